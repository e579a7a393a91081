// Findings of one trial, each priced in ms per step. The rules are seed guide 002's order of
// reading: waited I/O first, then too small a batch, then noise.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "tune/tune.h"

static brim_finding *add(brim_result *r, const char *code, double cost_ms) {
  if (r->finding_count == BRIM_RESULT_MAX_FINDINGS) return NULL;
  brim_finding *f = &r->findings[r->finding_count++];
  memset(f, 0, sizeof *f);
  snprintf(f->code, sizeof f->code, "%s", code);
  f->cost_ms = cost_ms;
  return f;
}

static double knob_number(const brim_result *r, const char *name, double fallback) {
  const brim_result_knob *k = brim_result_knob_find(r, name);
  return k && !isnan(k->number) ? k->number : fallback;
}

static void find_io(brim_result *r) {
  double io = r->phase_ms[BRIM_PHASE_IO].median;
  double compute = r->phase_ms[BRIM_PHASE_FORWARD].median +
                   r->phase_ms[BRIM_PHASE_BACKWARD].median +
                   r->phase_ms[BRIM_PHASE_OPTIMIZER].median;
  if (!(io > 30.0 || io > compute || io > 0.10 * r->total_ms.median)) return;
  brim_finding *f = add(r, "io_wait", io);
  if (!f) return;
  int workers = (int)knob_number(r, "num_workers", 0);
  snprintf(f->text, sizeof f->text,
           brim_tr("the step waits %.2f ms for data (%.0f %% of it); compute takes %.2f ms"), io,
           100 * io / r->total_ms.median, compute);
  snprintf(f->remedy, sizeof f->remedy,
           brim_tr("num_workers %d -> %d, or a larger prefetch_factor"), workers,
           workers == 0 ? 1 : workers * 2);
}

// FLOPs over bytes below which a step is bound by overhead rather than arithmetic cannot be read
// from one trial; the optimiser and `other` do not shrink with the batch, so their share tells.
static void find_small_batch(brim_result *r) {
  double fixed = r->phase_ms[BRIM_PHASE_OPTIMIZER].median + r->phase_ms[BRIM_PHASE_OTHER].median;
  if (fixed < 0.25 * r->total_ms.median) return;
  brim_finding *f = add(r, "small_batch", fixed);
  if (!f) return;
  int batch = (int)knob_number(r, "batch_size", 0);
  snprintf(f->text, sizeof f->text,
           brim_tr("%.2f ms of %.2f ms do not depend on the batch (optimiser and overhead)"), fixed,
           r->total_ms.median);
  snprintf(f->remedy, sizeof f->remedy, brim_tr("batch_size %d -> %d"), batch, batch * 2);
}

static void find_noise(brim_result *r) {
  if (r->stable) return;
  brim_finding *f = add(r, "unstable", r->total_ms.mad);
  if (!f) return;
  snprintf(
      f->text, sizeof f->text,
      brim_tr("step times spread by %.0f %% around the median; something else uses the machine"),
      100 * r->total_ms.mad / r->total_ms.median);
  snprintf(f->remedy, sizeof f->remedy, "%s",
           brim_tr("measure again on a quiet machine, or with more --steps"));
}

void brim_diagnose(brim_result *result) {
  if (result->failure != BRIM_FAILURE_NONE || !(result->total_ms.median > 0)) return;
  result->finding_count = 0;
  find_io(result);
  find_small_batch(result);
  find_noise(result);
}
