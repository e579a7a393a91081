// Findings of workloads that train a network on data, each with the knob that would help: waited I/O, copies
// to the GPU, full precision, launches, small batches. Where the sweep measured the remedy, the price is the
// measured difference; where nothing measured it there is none.
#include "workload/workload_findings.h"

#include <math.h>
#include <string.h>

static double compute_ms(const brim_result *r) {
  return brim_result_phase_ms(r, BRIM_PHASE_FORWARD) +
         brim_result_phase_ms(r, BRIM_PHASE_BACKWARD) +
         brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) +
         brim_result_phase_ms(r, BRIM_PHASE_COMPUTE);
}

//---------------------------------- data ----------------------------------

// More workers help while there are cores for them and they are what is waited for.
static void io_remedy(const brim_findings *v, brim_finding *f) {
  const brim_result *r = v->r, *twin = brim_finding_twin(v, "num_workers", BRIM_TWIN_ANY, NULL);
  const brim_result *more = brim_finding_twin(v, "num_workers", BRIM_TWIN_MORE, NULL);
  int workers = (int)brim_result_knob_number(r, "num_workers", 0);
  if (twin && brim_finding_gain_ms(r, twin) > 0.03 * r->total_ms.median) {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("num_workers %d -> %s: measured, %.2f ms less for the same samples"), workers,
             brim_result_knob_text(twin, "num_workers"), brim_finding_gain_ms(r, twin));
  } else if (r->cores > 0 && workers >= r->cores) {
    snprintf(f->remedy, sizeof f->remedy, "%s",
             brim_tr("every core has a worker: data.cache=ram or gpu, cheaper transforms, or "
                     "`brim data convert` to a packed file"));
  } else if (more) {
    snprintf(f->remedy, sizeof f->remedy, "%s",
             brim_tr("more workers did not help: data.cache=ram or gpu, a faster disk, or "
                     "`brim data convert` to a packed file"));
  } else {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("num_workers %d -> %d, or a larger prefetch_factor"), workers,
             workers == 0 ? 1 : workers * 2);
  }
}

static void find_io(const brim_findings *v) {
  brim_result *r = v->r;
  double io = brim_result_phase_ms(r, BRIM_PHASE_IO), compute = compute_ms(r);
  if (!(io > 30.0 || io > compute || io > 0.10 * r->total_ms.median)) return;
  brim_finding *f = brim_finding_add(r, "io_wait", io);
  if (!f) return;
  snprintf(f->text, sizeof f->text,
           brim_tr("the step waits %.2f ms for data (%.0f %% of it); compute takes %.2f ms"), io,
           100 * io / r->total_ms.median, compute);
  io_remedy(v, f);
}

static void find_h2d(const brim_findings *v) {
  brim_result *r = v->r;
  double h2d = brim_result_phase_ms(r, BRIM_PHASE_H2D);
  if (!brim_result_has_gpu(r) || !(h2d > 0.05 * r->total_ms.median)) return;
  brim_finding *f = brim_finding_add(r, "h2d", h2d);
  if (!f) return;
  bool pageable = strcmp(brim_result_knob_text(r, "pin_memory"), "false") == 0;
  snprintf(
      f->text, sizeof f->text,
      pageable
          ? brim_tr("%.2f ms of the step are copies to the GPU, out of pageable memory")
          : brim_tr("%.2f ms of the step are copies to the GPU that do not overlap with computing"),
      h2d);
  snprintf(f->remedy, sizeof f->remedy, "%s",
           pageable ? "pin_memory false -> true"
                    : brim_tr("data.cache=gpu if the set fits, or samples of a smaller type"));
}

//---------------------------------- computing ----------------------------------

static bool is(const brim_result *r, const char *knob, const char *value) {
  return strcmp(brim_result_knob_text(r, knob), value) == 0;
}

// Full precision, or a step launched op by op: a knob each. Only where computing is most of it.
static void find_knob(const brim_findings *v, const char *code, const char *knob,
                      const char *better, const char *text) {
  brim_result *r = v->r;
  const brim_result *twin = brim_finding_twin(v, knob, BRIM_TWIN_THIS, better);
  double gain = twin ? brim_finding_gain_ms(r, twin) : (double)NAN;
  if (twin && gain <= 0.03 * r->total_ms.median) return;  // measured: it does not help
  brim_finding *f = brim_finding_add(r, code, gain);
  if (!f) return;
  snprintf(f->text, sizeof f->text, "%s", text);
  snprintf(f->remedy, sizeof f->remedy,
           twin ? brim_tr("%s %s -> %s: measured, %.2f ms less for the same samples")
                : brim_tr("%s %s -> %s: not measured in this sweep"),
           knob, brim_result_knob_text(r, knob), better, gain);
}

static void find_compute(const brim_findings *v) {
  brim_result *r = v->r;
  char text[200];
  double compute = compute_ms(r);
  if (!(compute > 0.5 * r->total_ms.median)) return;
  snprintf(text, sizeof text, brim_tr("%.2f ms of %.2f ms are computing, in full precision"),
           compute, r->total_ms.median);
  if (brim_result_has_gpu(r) && is(r, "precision", "fp32")) {
    find_knob(v, "precision", "precision", "bf16", text);
  }
  if (brim_result_has_gpu(r) && is(r, "compile", "false")) {
    find_knob(v, "launches", "compile", "true",
              brim_tr("the host launches every op separately, so short kernels wait for it"));
  }
}

//---------------------------------- utilisation and memory ----------------------------------

// The share of a step that does not shrink with the batch shows it where utilisation is not
// counted.
static bool is_small(const brim_result *r) {
  double fixed =
      brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) + brim_result_phase_ms(r, BRIM_PHASE_OTHER);
  if (!isnan(r->sm_percent)) return r->sm_percent < 70;
  if (!isnan(r->gpu_percent)) return r->gpu_percent < 70;
  return fixed >= 0.25 * r->total_ms.median;
}

static void small_text(const brim_result *r, brim_finding *f) {
  if (!isnan(r->sm_percent)) {
    snprintf(
        f->text, sizeof f->text,
        isnan(r->gpu_percent)
            ? brim_tr("%.0f %% of the GPU's multiprocessors are at work")
            : brim_tr("%.0f %% of the GPU's multiprocessors are at work (it is busy %.0f %% of "
                      "the time)"),
        r->sm_percent, r->gpu_percent);
  } else if (!isnan(r->gpu_percent)) {
    snprintf(f->text, sizeof f->text, brim_tr("the GPU is busy %.0f %% of the time"),
             r->gpu_percent);
  } else {
    snprintf(
        f->text, sizeof f->text,
        brim_tr("%.2f ms of %.2f ms do not depend on the batch (optimiser and overhead)"),
        brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) + brim_result_phase_ms(r, BRIM_PHASE_OTHER),
        r->total_ms.median);
  }
}

// Twice of it, as far as an epoch has the samples for one step.
static void larger_batch(const brim_result *r, double batch, brim_finding *f) {
  double epoch = round(r->epoch_s * r->samples_per_s);
  double most = floor(epoch / brim_result_knob_number(r, "accumulation", 1));
  if (!(epoch > 0) || 2 * batch <= most) {
    snprintf(f->remedy, sizeof f->remedy, brim_tr("batch_size %.0f -> %.0f"), batch, 2 * batch);
  } else if (batch < most) {
    snprintf(f->remedy, sizeof f->remedy, brim_tr("batch_size %.0f -> %.0f, all of an epoch"),
             batch, most);
  } else {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("no larger batch_size: an epoch has %.0f samples"), epoch);
  }
}

static void find_small_batch(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *larger = brim_finding_twin(v, "batch_size", BRIM_TWIN_MORE, NULL);
  double batch = brim_result_knob_number(r, "batch_size", 0);
  double gain = larger ? brim_finding_gain_ms(r, larger) : 0;
  bool helps = gain > 0.03 * r->total_ms.median;
  // a larger batch that is no faster: the batch is not what keeps the device from being busy
  if (!is_small(r) || batch <= 0 || (larger && !helps)) return;
  brim_finding *f = brim_finding_add(r, "small_batch", helps ? gain : (double)NAN);
  if (!f) return;
  small_text(r, f);
  if (helps) {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("batch_size %.0f -> %s: measured, %.2f ms less for the same samples"), batch,
             brim_result_knob_text(larger, "batch_size"), gain);
  } else {
    larger_batch(r, batch, f);
  }
}

static void find(const brim_findings *v) {
  find_io(v);
  find_h2d(v);
  find_compute(v);
  find_small_batch(v);
}

const brim_work_findings_table brim_learn_findings = {find};
