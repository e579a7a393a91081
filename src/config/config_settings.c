// Settings as the files and the command line gave them: finding one, and its value at a grid point.
// What they mean together is config_resolve.c's and config_links.c's.
#include <string.h>

#include "config/config_int.h"

int brim_config_setting_find(const brim_config_source *source, int row, int slot, const char *arg) {
  for (size_t i = source->settings.count; i-- > 0;) {
    const brim_config_setting *s = &source->settings.items[i];
    if (!s->live || s->row != row || s->slot != slot || !s->arg != !arg) continue;
    if (!arg || !strcmp(s->arg, arg)) return (int)i;
  }
  return -1;
}

const brim_config_node *brim_config_setting_node(const brim_config_source *source,
                                                 const brim_config_setting *setting,
                                                 size_t raw_point) {
  if (setting->axis < 0) return setting->node;
  const brim_config_axis_state *axis = &source->axes[setting->axis];
  return axis->items[raw_point / axis->stride % axis->count];
}

bool brim_config_layer_is_preset(const brim_config_source *source, int layer) {
  return layer == -1 || layer == source->override_layer - 1;
}
