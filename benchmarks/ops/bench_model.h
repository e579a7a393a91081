// What the files of bench_model share: one network on one device, and its ops timed one by one.
#ifndef BRIM_BENCH_MODEL_H_
#define BRIM_BENCH_MODEL_H_

#include "base/base.h"
#include "engine/engine_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rates that nothing on this device exceeded, measured in this process.
typedef struct bench_ceilings {
  double copy_bytes_per_s;  // device to device, read and write counted
  double flops_per_s;       // of a large LINEAR in the network's type
  int64_t linear_size;      // it was this large, cubed
} bench_ceilings;

brim_status bench_ceilings_measure(brim_device *device, brim_dtype type, bool tf32,
                                   bench_ceilings *out);

// Every call of a step that is not accumulated, in order, `ms` of device time each: a table, or
// JSON lines. The network has made a step before; its parameters are worth nothing afterwards.
brim_status bench_model_ops(brim_net *net, const bench_ceilings *ceilings, double ms, bool json);

// Random values that a device can do arithmetic on; only power and so clocks depend on them.
void bench_random_values(brim_dtype type, void *out, size_t count);

// One object to stdout as a line; takes it.
brim_status bench_print_json(json_t *object);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BENCH_MODEL_H_
