// What the loader did during a run, per sample: for the logs, the summary and the warning about slow
// transforms.
#include <string.h>

#include "run/run_int.h"

enum { FEW_SAMPLES = 8 };  // below, one cold call would decide

_Static_assert(BRIM_WORK_MAX_STAGES <= 32, "bits of brim_run_loader.said");

void brim_run_loader_init(brim_run_loader *loader, const brim_config *config) {
  memset(loader, 0, sizeof *loader);
  loader->slow_ms = brim_config_float(config, "data.slow_transform_ms");
}

static bool take(const brim_work *work, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (!work->table->loading) return false;
  work->table->loading->stats(work->state, out);
  return true;
}

static void per_sample(const brim_work_loading *from, const brim_work_loading *to,
                       brim_run_loading *out) {
  memset(out, 0, sizeof *out);
  out->broken = to->broken;
  out->broken_reads = to->broken_reads;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", to->first_broken);
  out->cache = to->cache;
  out->locked_bytes = to->locked_bytes;
  out->samples = to->samples - from->samples;
  out->stage_count = to->stage_count;
  for (size_t i = 0; i < to->stage_count; i++) out->stage[i] = to->stage[i];
  if (out->samples <= 0) return;
  double each = 1e-6 / (double)out->samples;
  out->read_ms = (double)(to->read_ns - from->read_ns) * each;
  for (size_t i = 0; i < to->stage_count; i++) {
    out->stage_ms[i] = (double)(to->stage_ns[i] - from->stage_ns[i]) * each;
  }
}

static void warn_of_slow(brim_run_loader *loader, const brim_run_loading *loading) {
  if (loading->samples < FEW_SAMPLES) return;
  for (size_t i = 0; i < loading->stage_count; i++) {
    uint32_t bit = (uint32_t)1 << i;
    if (loading->stage_ms[i] <= loader->slow_ms || (loader->said & bit)) continue;
    loader->said |= bit;
    brim_log_warn("run",
                  "transform %s takes %.3g ms per sample (limit data.slow_transform_ms %g); move "
                  "it after the stage that shrinks the image, raise data.num_workers, or run it on "
                  "the GPU with data.cache=gpu",
                  loading->stage[i], loading->stage_ms[i], loader->slow_ms);
  }
}

void brim_run_loader_epoch(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now;
  memset(out, 0, sizeof *out);
  if (!take(work, &now)) return;
  per_sample(&loader->before, &now, out);
  loader->before = now;
  warn_of_slow(loader, out);
}

void brim_run_loader_all(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now, none;
  memset(out, 0, sizeof *out);
  memset(&none, 0, sizeof none);
  if (!take(work, &now)) return;
  per_sample(&none, &now, out);
  warn_of_slow(loader, out);
}
