// Fuzz: any text as a component expression. An expression that parses must print to text that parses to the same again.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "config/config_int.h"
#include "workload/workload.h"

// The list of workloads adds their keys and components before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fine) {
  if (!fine) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  brim_arena *arena;
  char *text = malloc(size + 1);
  if (!text) return 0;
  if (size) memcpy(text, data, size);
  text[size] = 0;
  if (brim_arena_create(0, &arena)) {
    free(text);
    return 0;
  }
  brim_pipeline first, second;
  brim_str once, twice;
  brim_str_init(&once);
  brim_str_init(&twice);
  if (!brim_config_parse_expression(arena, text, "fuzz", &first)) {
    brim_config_pipeline_print(&once, &first);
    // Quoting may make it longer than the limit of an expression.
    if (once.len <= BRIM_CONFIG_MAX_EXPRESSION) {
      must(!brim_config_parse_expression(arena, once.data, "fuzz", &second));
      must(first.count == second.count && first.tail == second.tail);
      brim_config_pipeline_print(&twice, &second);
      must(!strcmp(once.data, twice.data));
    }
  } else {
    must(strstr(brim_status_detail(), "fuzz:1:") != NULL);
  }
  brim_str_deinit(&once);
  brim_str_deinit(&twice);
  brim_arena_destroy(arena);
  free(text);
  return 0;
}
