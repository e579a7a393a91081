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

bool brim_config_value_is_usual(const brim_config_row *row, const brim_config_value *value,
                                const char *usual) {
  int64_t integer = 0;
  double number = 0;
  if (value->is_null) return !usual || strcmp(usual, "auto") == 0;
  if (!usual) return false;
  switch (row->type) {
    case BRIM_CONFIG_BOOL:
      return strcmp(usual, value->boolean ? "true" : "false") == 0;
    case BRIM_CONFIG_INT:
      return brim_parse_i64(usual, &integer) && integer == value->integer;
    case BRIM_CONFIG_FLOAT:
      return brim_parse_f64(usual, &number) && number == value->number;
    default:
      return value->string && strcmp(usual, value->string) == 0;
  }
}

bool brim_config_value_is_asked(const brim_config_source *source, const brim_config_row *row,
                                const brim_config_value *value) {
  if (!value->is_set || value->layer < 0) return false;
  if (value->layer == source->override_layer) return true;
  return !brim_config_layer_is_preset(source, value->layer) &&
         !brim_config_value_is_usual(row, value, row->key.default_text);
}

const brim_config_arg *brim_config_setting_arg(const brim_config_source *source,
                                               const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  int whole = brim_config_setting_find(source, s->row, s->slot, NULL);
  if (whole < 0) whole = brim_config_setting_find(source, s->row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_node *node = whole < 0 ? NULL : source->settings.items[whole].node;
  if (node && node->kind == BRIM_CONFIG_NODE_LIST) node = node->first;
  if (node && node->kind == BRIM_CONFIG_NODE_MAP) node = brim_config_node_get(node, "_type");
  const char *text = node && node->kind == BRIM_CONFIG_NODE_SCALAR ? node->text : NULL;
  if (!text) text = row->key.default_text;
  char name[64];
  size_t length = text ? strcspn(text, "(| ") : 0;
  if (!length || length >= sizeof name) return NULL;
  memcpy(name, text, length);
  name[length] = 0;
  return brim_config_arg_find(brim_config_component_find(row->category, name), s->arg);
}
