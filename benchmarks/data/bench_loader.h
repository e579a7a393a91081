// Shared by the files of bench_loader: windows of time, and the peer that reads with H5Dread.
#ifndef BRIM_BENCH_LOADER_H_
#define BRIM_BENCH_LOADER_H_

#include "base/base.h"

enum { BENCH_LOADER_MAX_WINDOWS = 200 };

// One piece of work (a batch, a chunk); *samples gets its number of samples.
typedef brim_status (*bench_loader_step)(void *ctx, uint64_t *samples);

typedef struct bench_loader_timing {
  double rate[BENCH_LOADER_MAX_WINDOWS];  // samples/s
  size_t windows;
  uint64_t samples, steps;
  double seconds;
  brim_stats_summary summary;  // statistics of the rates
} bench_loader_timing;

// Runs `windows` windows of seconds
// windows each, and more of them until min_steps is reached (up to ten times the seconds).
brim_status bench_loader_measure(bench_loader_step step, void *ctx, double seconds, size_t windows,
                                 uint64_t min_steps, bench_loader_timing *out);
brim_status bench_loader_put_timing(const bench_loader_timing *t, double sample_bytes,
                                    json_t *line);

// The sum over rows of a hash of each row: the same in any order.
uint64_t bench_loader_hash(const void *row, size_t bytes);

// One thread that reads a dataset with H5Dread and the library's default cache.
typedef enum bench_h5_how {
  BENCH_H5_ROWS,    // one row per call, in random order
  BENCH_H5_CHUNKS,  // the rows of a chunk per call, one chunk after the other
  BENCH_H5_ALL,     // everything in one call
} bench_h5_how;

typedef struct bench_h5 bench_h5;
// dataset: its name ("x"). `seed` decides the order of rows.
brim_status bench_h5_open(const char *path, const char *dataset, bench_h5_how how, uint64_t seed,
                          bench_h5 **out);
void bench_h5_close(bench_h5 *h5);
uint64_t bench_h5_rows(const bench_h5 *h5);
size_t bench_h5_row_bytes(const bench_h5 *h5);
uint64_t bench_h5_rows_per_call(const bench_h5 *h5);
brim_status bench_h5_step(void *h5, uint64_t *samples);
// One pass over all rows, chunk by chunk.
brim_status bench_h5_digest(bench_h5 *h5, uint64_t *digest);

#endif  // BRIM_BENCH_LOADER_H_
