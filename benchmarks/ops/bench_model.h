// Shared by the files of bench_model: one network on one device, and its ops timed one by one.
#ifndef BRIM_BENCH_MODEL_H_
#define BRIM_BENCH_MODEL_H_

#include "base/base.h"
#include "engine/engine_int.h"
#include "measure/measure_int.h"

// The machine's limits that bound the speed of a network.
typedef struct bench_ceilings {
  double copy_bytes_per_s;  // device to device, read and write counted
  double flops_per_s;       // rate of a large LINEAR in the network's precision
} bench_ceilings;

// Every call of a step without accumulation, in order, with `ms` of device time each: a table, or JSON lines. The
// network must have made a step before; its parameters are useless afterwards.
brim_status bench_model_ops(brim_net *net, const bench_ceilings *ceilings, double ms, bool json);

// A program: --help, its options, and its main function.
typedef struct bench_run {
  const brim_option_parse *parse;
  const brim_registry *registry;  // has the plug-ins beside the program
  brim_arena *arena;              // freed after `run`
} bench_run;
typedef struct bench_program {
  const char *name, *usage;  // usage: the words after the name
  const brim_option *const *tables;
  brim_status (*run)(const bench_run *r);
} bench_program;
int bench_main(const bench_program *program, int argc, char **argv);
// Parses "resnet18(width=2)"; a message names it by `what`.
brim_status bench_parse_component(brim_arena *arena, const char *text, const char *what,
                                  const brim_component **out);

// Prints one object to stdout as a line, and frees it.
brim_status bench_print_json(json_t *object);

#endif  // BRIM_BENCH_MODEL_H_
