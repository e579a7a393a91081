// What a workload brings: its name, keys, components, links and values of presets, all of them or none.
#include "config/config_int.h"

// The name last: a value cannot be taken back, and nothing fails behind it.
brim_status brim_config_add_workload(const char *workload, const brim_config_section *section) {
  static const brim_config_section nothing = {0};
  const brim_config_section *s = section ? section : &nothing;
  BRIM_TRY(brim_config_add_keys(workload, s->keys, s->key_count));
  brim_status status = brim_config_add_components(s->components, s->component_count);
  if (status) goto fail_components;
  status = brim_config_add_links(s->links, s->link_count);
  if (status) goto fail_links;
  status = brim_config_add_presets(s->presets, s->preset_count);
  if (status) goto fail_presets;
  status = brim_config_add_value(workload);
  if (!status) {
    if (s->yields) brim_config_add_yields(s->yields);
    if (s->given) brim_config_add_given(workload, s->given);
    return BRIM_OK;
  }
  brim_config_remove_presets(s->preset_count);
fail_presets:
  brim_config_remove_links(s->link_count);
fail_links:
  brim_config_remove_components(s->components, s->component_count);
fail_components:
  brim_config_remove_keys(s->key_count);
  return status;
}
