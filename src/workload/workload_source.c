// The components of data sets, and the pipelines for their samples, as the config has them.
#include "workload/workload_source.h"

#include <string.h>

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the data");
}

brim_status brim_work_with_argument(brim_arena *arena, const brim_component **component,
                                    const char *name, const brim_value *value) {
  const brim_component *from = *component;
  brim_component *c = brim_arena_calloc(arena, 1, sizeof *c);
  brim_argument *args = brim_arena_calloc(arena, from->arg_count + 1, sizeof *args);
  if (!c || !args) return no_memory();
  *c = *from;
  c->args = args;
  c->arg_count = 0;
  for (size_t i = 0; i < from->arg_count; i++) {
    if (strcmp(from->args[i].name, name) != 0) args[c->arg_count++] = from->args[i];
  }
  if (value) args[c->arg_count++] = (brim_argument){.name = name, .value = *value};
  *component = c;
  return BRIM_OK;
}

// data.inputs and data.targets are those of the components hdf5 and numpy that have none of their own.
static brim_status add_names(const brim_config *config, brim_arena *arena, const char *key,
                             const char *argument, const brim_component **component) {
  const char *const *names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_config_get_strings(config, key, &names, &count));
  if (count == 0 || brim_component_arg(*component, argument)) return BRIM_OK;
  if (strcmp((*component)->name, "hdf5") != 0 && strcmp((*component)->name, "numpy") != 0) {
    brim_log_warn("workload", "%s has no effect on '%s'; it applies to hdf5 and numpy", key,
                  (*component)->name);
    return BRIM_OK;
  }
  brim_value *items = brim_arena_calloc(arena, count, sizeof *items);
  if (!items) return no_memory();
  for (size_t i = 0; i < count; i++) {
    items[i] = (brim_value){.kind = BRIM_VALUE_STRING, .string = names[i]};
  }
  brim_value list = {.kind = BRIM_VALUE_LIST, .items = items, .count = count};
  return brim_work_with_argument(arena, component, argument, &list);
}

brim_status brim_work_allow_external(brim_arena *arena, const brim_component **component) {
  const brim_value yes = {.kind = BRIM_VALUE_BOOL, .boolean = true};
  if (strcmp((*component)->name, "hdf5") != 0) return BRIM_OK;
  return brim_work_with_argument(arena, component, "allow_external", &yes);
}

brim_status brim_work_add_names(const brim_config *config, brim_arena *arena,
                                const brim_component **component, bool targets) {
  BRIM_TRY(add_names(config, arena, "data.inputs", "inputs", component));
  return targets ? add_names(config, arena, "data.targets", "targets", component) : BRIM_OK;
}

const brim_pipeline *brim_work_eval_pipeline(const brim_config *config, bool *random) {
  static const char *const slots[] = {"val", "test"};
  // A slot that was not given answers with the plain pipeline; without one that is the slot train.
  const brim_pipeline *plain = brim_config_pipeline(config, "transform", NULL);
  const brim_pipeline *found = NULL;
  *random = true;
  for (size_t i = 0; i < 2; i++) {
    found = brim_config_pipeline(config, "transform", slots[i]);
    if (found && found != plain) return found;
  }
  *random = false;
  return found;
}

// A transform.val that ends in images of another size is taken at its word: a network that has seen
// random crops, which enlarge, does better on larger images.
bool brim_work_any_size(const brim_config *config) {
  bool given = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(config, &given);
  return given && pipeline && pipeline->count > 0;
}
