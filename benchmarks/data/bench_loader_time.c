// Windows of time over batches, their JSON, and the hash that shows whether two programs read the same rows.
#include <string.h>

#include "bench_loader.h"

static brim_status one_window(bench_loader_step step, void *ctx, double wanted,
                              bench_loader_timing *out) {
  brim_time start = brim_clock_now();
  uint64_t samples = 0;
  double seconds;
  do {
    uint64_t n = 0;
    BRIM_TRY(step(ctx, &n));
    samples += n;
    out->steps++;
    seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  } while (seconds < wanted);
  out->rate[out->windows++] = (double)samples / seconds;
  out->samples += samples;
  out->seconds += seconds;
  return BRIM_OK;
}

brim_status bench_loader_measure(bench_loader_step step, void *ctx, double seconds, size_t windows,
                                 uint64_t min_steps, bench_loader_timing *out) {
  memset(out, 0, sizeof *out);
  while (out->windows < windows || (out->steps < min_steps && out->seconds < 10 * seconds &&
                                    out->windows < BENCH_LOADER_MAX_WINDOWS)) {
    BRIM_TRY(one_window(step, ctx, seconds / (double)windows, out));
  }
  return brim_stats_summarize(out->rate, out->windows, 1, &out->summary);
}

brim_status bench_loader_put_timing(const bench_loader_timing *t, double sample_bytes,
                                    json_t *line) {
  const brim_stats_summary *s = &t->summary;
  BRIM_TRY(brim_json_put(line, "samples_per_s", brim_json_number(s->median)));
  BRIM_TRY(brim_json_put(line, "samples_per_s_min", brim_json_number(s->min)));
  BRIM_TRY(brim_json_put(line, "samples_per_s_max", brim_json_number(s->max)));
  BRIM_TRY(brim_json_put(line, "samples_per_s_mad", brim_json_number(s->mad)));
  BRIM_TRY(brim_json_put(line, "mb_per_s", brim_json_number(s->median * sample_bytes * 1e-6)));
  BRIM_TRY(brim_json_put(line, "sample_bytes", brim_json_number(sample_bytes)));
  BRIM_TRY(brim_json_put(line, "windows", json_integer((json_int_t)t->windows)));
  BRIM_TRY(brim_json_put(line, "timed_s", brim_json_number(t->seconds)));
  return brim_json_put(line, "timed_samples", json_integer((json_int_t)t->samples));
}

uint64_t bench_loader_hash(const void *row, size_t bytes) {
  const uint8_t *p = row;
  uint64_t h = 0x9E3779B97F4A7C15u, word;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    memcpy(&word, p + i, 8);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  }
  for (; i < bytes; i++) h = (h ^ p[i]) * 0xD6E8FEB86659FD93u;
  return h ^ (h >> 29);
}
