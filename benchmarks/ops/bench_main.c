// The frame of the programs that measure networks: options, help, plug-ins, errors.
#include <stdio.h>

#include "bench_model.h"
#include "config/config.h"

brim_status bench_parse_component(brim_arena *arena, const char *text, const char *what,
                                  const brim_component **out) {
  brim_pipeline components;
  BRIM_TRY(brim_config_parse_expression(arena, text, what, &components));
  if (components.count != 1 || components.tail) {
    return brim_fail(BRIM_EINVAL, "%s is '%s', expected one component", what, text);
  }
  *out = &components.items[0];
  return BRIM_OK;
}

static void print_help(const bench_program *program) {
  brim_str text;
  brim_str_init(&text);
  brim_option_help(program->tables, 100, &text);
  printf("usage: %s %s\n%s", program->name, program->usage, text.data);
  brim_str_deinit(&text);
}

static brim_status run(const bench_program *program, const brim_option_parse *parse) {
  bench_run r = {.parse = parse};
  brim_registry *registry = NULL;
  brim_status status = brim_arena_create(0, &r.arena);
  if (!status) status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load_default(registry);
  r.registry = registry;
  if (!status) status = program->run(&r);
  if (status) fprintf(stderr, "%s: %s\n", program->name, brim_status_detail());
  brim_registry_destroy(registry);
  brim_arena_destroy(r.arena);
  return status;
}

int bench_main(const bench_program *program, int argc, char **argv) {
  brim_json_setup();  // must come before jansson's first allocation
  brim_option_parse parse;
  brim_status status =
      brim_option_parse_args(program->tables, argc - 1, (const char *const *)(argv + 1), &parse);
  if (status) {
    fprintf(stderr, "%s: %s\n", program->name, brim_status_detail());
    return 2;
  }
  if (brim_option_flag(&parse, "help", false)) {
    print_help(program);
  } else {
    status = run(program, &parse);
  }
  brim_option_parse_deinit(&parse);
  return status ? 1 : 0;
}
