// Findings about training a network on data, each with the knob that would help: waiting for I/O, slow
// transforms, copies to the GPU, full precision, launches, small batches. The gain is the measured difference
// if the remedy was measured; else it is computed from the measured times, or is unknown.
#include "workload/learn/learn.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"

static double compute_ms(const brim_result *r) {
  return brim_result_phase_ms(r, BRIM_PHASE_FORWARD) +
         brim_result_phase_ms(r, BRIM_PHASE_BACKWARD) +
         brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) +
         brim_result_phase_ms(r, BRIM_PHASE_COMPUTE);
}

// Milliseconds that another setting saves; NaN if it was not measured.
static double gain_of(const brim_result *r, const brim_result *other) {
  return other ? brim_finding_gain_ms(r, other) : (double)NAN;
}

// Limits a gain to the time that the change affects: more is noise.
static double capped_gain(double gain, double touched) { return gain > touched ? touched : gain; }

static bool is_worth(const brim_result *r, double ms) {
  return ms > BRIM_FINDING_LEAST * r->total_ms.median;
}

static bool is(const brim_result *r, const char *knob, const char *value) {
  return strcmp(brim_result_knob_text(r, knob), value) == 0;
}

//---------------------------------- data ----------------------------------

// Asks to try more workers: first as many as loading needs to keep up with computing, by the measured times;
// then twice the best number, while the step still waits for data.
static void try_workers(const brim_findings *v, const brim_result *best, brim_finding *f) {
  const brim_result *r = v->r, *at = best ? best : r;
  double now = brim_result_knob_number(at, "num_workers", 0);
  double busy = r->worker_io_ms + r->worker_transform_ms;
  double next = 2 * now;
  char value[32];
  if (now == 0) next = ceil(busy / fmax(compute_ms(r), 1e-3));
  if (best && !(brim_result_phase_ms(best, BRIM_PHASE_IO) > 0.1 * best->total_ms.median)) return;
  if (!(next >= 1)) next = 1;
  if (r->cores > 0 && next > r->cores) next = r->cores;
  if (next <= now) return;
  snprintf(value, sizeof value, "%.0f", next);
  brim_finding_try(v, f, "num_workers", value);
}

// Milliseconds of a step at the throughput of one stage.
static double stage_ms(const brim_result *r, double samples_per_s) {
  return r->samples_per_s * r->total_ms.median / samples_per_s;
}

// Milliseconds that a step saves if loading takes `ms` less. Without workers, a step saves `ms`, at most the
// time that is not computing. Workers get faster by the share of `ms` in their time, which helps while loading
// takes longer than computing. On busy cores, computing also gets its share of the freed time.
static double saved_by(const brim_result *r, double ms) {
  double total = r->total_ms.median, busy = r->worker_io_ms + r->worker_transform_ms;
  double compute = stage_ms(r, r->compute_samples_per_s);
  // A step that waits much for data takes as long as loading. Loading measured alone has all cores and may be
  // faster.
  double io = brim_result_phase_ms(r, BRIM_PHASE_IO);
  double data = io > 0.1 * total ? total : stage_ms(r, r->data_samples_per_s);
  double bound = isnan(compute) ? total : fmax(0, total - compute);
  if (brim_result_knob_number(r, "num_workers", 0) < 1) {
    return fmin(ms, fmin(bound, io));
  }
  double faster = data * (1 - fmin(1, ms / busy));
  double alone = isnan(compute) ? data - faster : fmax(data, compute) - fmax(faster, compute);
  double shared = 0;
  if (!brim_result_has_gpu(r) && r->cpu_percent > 85 && r->cores > 0) {
    shared = ms / (r->cores * fmin(1, r->cpu_percent / 100));
  }
  return fmin(bound, fmax(isnan(alone) ? 0 : alone, shared));
}

// True if samples are kept in memory already. Reading may take time even so: a sweep measures the first epoch,
// which fills the cache.
static bool keeps_samples(const brim_result *r) {
  for (size_t i = 0; i < r->plan.row_count; i++) {
    if (strcmp(r->plan.rows[i].name, BRIM_CACHE_ROW) == 0) return true;
  }
  return false;
}

// Asks to try keeping samples in memory, where they are read and decoded only once, if that saves enough.
static void try_cache(const brim_findings *v, brim_finding *f) {
  if (f->try_knob[0] || keeps_samples(v->r)) return;
  if (is_worth(v->r, saved_by(v->r, v->r->worker_io_ms))) {
    brim_finding_try(v, f, "cache", "ram");
  }
}

// A remedy for slow loading, and its measurement if there is one.
typedef struct io_cure {
  const char *knob;
  const brim_result *twin;
  double gain;
} io_cure;

static bool io_helps(const brim_result *r, const io_cure *c) { return is_worth(r, c->gain); }

static void name_cure(const brim_result *r, const io_cure *c, brim_finding *f) {
  const char *value = brim_result_knob_text(c->twin, c->knob);
  f->cost_ms = c->gain;
  brim_finding_change(f, c->knob, value, true);
  if (strcmp(c->knob, "cache") == 0) {
    brim_words_add(
        f->remedy, sizeof f->remedy,
        BRIM_N_("data.cache=%s: measured, %.2f ms less for the same samples, from the second "
                "epoch on"),
        value, c->gain);
  } else {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("num_workers %d -> %s: measured, %.2f ms less for the same samples"),
                   (int)brim_result_knob_number(r, c->knob, 0), value, c->gain);
  }
}

// Finds the part of loading that makes steps longer: reading, transforms, or both if neither stands out.
static void costly_parts(const brim_result *r, bool *reading, bool *transforms) {
  bool known = !isnan(r->worker_io_ms + r->worker_transform_ms);
  *reading = known && is_worth(r, saved_by(r, r->worker_io_ms));
  *transforms = known && is_worth(r, saved_by(r, r->worker_transform_ms));
  if (!*reading && !*transforms) *reading = *transforms = true;
}

// Names the remedies if more workers do not help: caches that were not tried, and less work in the costly part.
static void name_other_remedies(const brim_findings *v, const char *reason, brim_finding *f) {
  bool reading, transforms;
  costly_parts(v->r, &reading, &transforms);
  brim_findings asking = *v;
  brim_finding unused = {0};
  asking.probing = true;
  bool ram = reading && !keeps_samples(v->r) && brim_finding_try(&asking, &unused, "cache", "ram");
  bool gpu = brim_result_has_gpu(v->r) && brim_finding_try(&asking, &unused, "cache", "gpu");
  f->cost_ms = (double)NAN;
  brim_words_put(f->remedy, sizeof f->remedy, reason);
  brim_words_add(f->remedy, sizeof f->remedy, ": %s%s", ram ? "data.cache=ram, " : "",
                 gpu ? "data.cache=gpu, " : "");
  brim_words_put(f->remedy, sizeof f->remedy,
                 !reading ? BRIM_N_("cheaper transforms")
                 : !transforms
                     ? BRIM_N_("a faster disk, or `brim data convert` to a packed file")
                     : BRIM_N_("cheaper transforms, a faster disk, or `brim data convert` to a "
                               "packed file"));
}

// Chooses the best measured remedy: more workers, which help while there are cores for them, or samples kept in
// memory.
static void io_remedy(const brim_findings *v, brim_finding *f) {
  const brim_result *r = v->r;
  const brim_result *more = brim_finding_twin(v, "num_workers", BRIM_TWIN_MORE, NULL);
  io_cure workers = {.knob = "num_workers"}, ram = {.knob = "cache"};
  workers.twin = brim_finding_twin(v, workers.knob, BRIM_TWIN_ANY, NULL);
  ram.twin = brim_finding_twin(v, ram.knob, BRIM_TWIN_THIS, "ram");
  workers.gain = capped_gain(gain_of(r, workers.twin), f->cost_ms);
  ram.gain = capped_gain(gain_of(r, ram.twin), f->cost_ms);
  int now = (int)brim_result_knob_number(r, "num_workers", 0);
  f->predicted_ms = f->cost_ms;
  if (!more || (io_helps(r, &workers) && more == workers.twin)) try_workers(v, more, f);
  try_cache(v, f);
  if (io_helps(r, &workers) || io_helps(r, &ram)) {
    bool first = io_helps(r, &workers) && !(ram.gain > workers.gain);
    const io_cure *best = first ? &workers : &ram, *other = first ? &ram : &workers;
    name_cure(r, best, f);
    if (!io_helps(r, other)) return;
    brim_words_add(f->remedy, sizeof f->remedy, BRIM_N_(" (%s %s: %.2f ms less)"), other->knob,
                   brim_result_knob_text(other->twin, other->knob), other->gain);
  } else if (r->cores > 0 && now >= r->cores) {
    name_other_remedies(v, BRIM_N_("every core has a worker"), f);
  } else if (more) {
    name_other_remedies(v, BRIM_N_("more workers did not help"), f);
  } else if (now == 0) {  // nothing is prefetched without workers
    brim_words_add(f->remedy, sizeof f->remedy, "num_workers 0 -> 1");
  } else {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("num_workers %d -> %d, or a larger prefetch_factor"), now, now * 2);
  }
}

static bool waits_for_data(const brim_result *r) {
  double io = brim_result_phase_ms(r, BRIM_PHASE_IO);
  return io > 30.0 || io > compute_ms(r) || io > 0.10 * r->total_ms.median;
}

// The transform with most of the loader's time; NULL = none costs the step enough.
static const brim_result_stage *slowest_transform(const brim_result *r) {
  const brim_result_stage *worst = NULL;
  for (size_t i = 0; i < r->stage_count; i++) {
    if (!worst || r->stages[i].ms > worst->ms) worst = &r->stages[i];
  }
  return worst && waits_for_data(r) && is_worth(r, saved_by(r, worst->ms)) ? worst : NULL;
}

static void find_io(const brim_findings *v) {
  brim_result *r = v->r;
  double io = brim_result_phase_ms(r, BRIM_PHASE_IO);
  if (!waits_for_data(r)) return;
  brim_finding *f = brim_finding_add(r, "io_wait", io);
  if (!f) return;
  brim_words_add(
      f->text, sizeof f->text,
      keeps_samples(r)
          ? BRIM_N_("in the first epoch, which fills the cache, the step waits %.2f ms for "
                    "data (%.0f %% of it); compute takes %.2f ms")
          : BRIM_N_("the step waits %.2f ms for data (%.0f %% of it); compute takes %.2f ms"),
      io, brim_shown(100 * io / r->total_ms.median), compute_ms(r));
  io_remedy(v, f);
  bool reading, transforms;
  costly_parts(r, &reading, &transforms);
  // drop this finding: a slow transform has its own
  if (isnan(f->cost_ms) && !f->try_knob[0] && !reading && slowest_transform(r)) r->finding_count--;
}

// Reports slow transforms on the GPU. They all run together between steps, so the time of each is unknown.
static void find_device_transform(const brim_findings *v) {
  brim_result *r = v->r;
  double ms = brim_result_phase_ms(r, BRIM_PHASE_TRANSFORM);
  if (!brim_result_has_gpu(r) || !(ms > compute_ms(r)) || !(ms > 0.3 * r->total_ms.median)) return;
  brim_finding *f = brim_finding_add(r, "slow_transform", ms);
  if (!f) return;
  f->predicted_ms = ms;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("the transforms take %.2f ms of the step on the GPU (%.0f %% of it); compute "
              "takes %.2f ms"),
      ms, brim_shown(100 * ms / r->total_ms.median), compute_ms(r));
  brim_words_put(f->remedy, sizeof f->remedy,
                 BRIM_N_("transform.train: make the costliest cheaper or leave it out"));
}

static void find_transform(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result_stage *worst = slowest_transform(r);
  double busy = r->worker_io_ms + r->worker_transform_ms;
  if (!worst) return;
  double saved = saved_by(r, worst->ms);
  brim_finding *f = brim_finding_add(r, "slow_transform", saved);
  if (!f) return;
  f->predicted_ms = saved;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("the transform %s takes %.2f ms of the loader's %.2f ms per step, and the step "
              "waits for it"),
      worst->name, worst->ms, busy);
  brim_words_add(
      f->remedy, sizeof f->remedy,
      brim_result_has_gpu(r)
          ? BRIM_N_("transform.train: make %s cheaper or leave it out; data.cache=gpu transforms "
                    "on the GPU")
          : BRIM_N_("transform.train: make %s cheaper or leave it out"),
      worst->name);
}

// Reports copies from pageable memory. They cost more than their own time, since the host waits for them.
static bool find_pageable(const brim_findings *v, double h2d) {
  brim_result *r = v->r;
  const brim_result *twin = brim_finding_twin(v, "pin_memory", BRIM_TWIN_THIS, "true");
  double gain = gain_of(r, twin);
  if (!is(r, "pin_memory", "false") || (twin && !is_worth(r, gain))) return false;
  if (!twin && !v->probing && !(h2d > 0.05 * r->total_ms.median)) return false;
  brim_finding *f = brim_finding_add(r, "h2d", twin ? gain : h2d);
  if (!f) return true;
  f->predicted_ms = h2d;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.2f ms of the step are copies to the GPU, out of pageable memory"), h2d);
  brim_finding_change(f, "pin_memory", "true", twin != NULL);
  if (twin) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("pin_memory false -> true: measured, %.2f ms less for the same samples"),
                   gain);
  } else {
    brim_words_add(f->remedy, sizeof f->remedy, "pin_memory false -> true");
    brim_finding_try(v, f, "pin_memory", "true");
  }
  return true;
}

static void find_h2d(const brim_findings *v) {
  brim_result *r = v->r;
  double h2d = brim_result_phase_ms(r, BRIM_PHASE_H2D);
  if (!brim_result_has_gpu(r)) return;
  if (find_pageable(v, h2d) || !(h2d > 0.05 * r->total_ms.median)) return;
  const brim_result *twin = brim_finding_twin(v, "cache", BRIM_TWIN_THIS, "gpu");
  double gain = gain_of(r, twin);
  if (twin && !is_worth(r, gain)) return;
  brim_finding *f = brim_finding_add(r, "h2d", twin ? gain : h2d);
  if (!f) return;
  f->predicted_ms = h2d;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("%.2f ms of the step are copies to the GPU that do not overlap with computing"), h2d);
  if (twin) {
    brim_finding_change(f, "cache", "gpu", true);
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("data.cache=gpu: measured, %.2f ms less for the same samples"), gain);
    return;
  }
  brim_finding_try(v, f, "cache", "gpu");
  brim_words_put(f->remedy, sizeof f->remedy,
                 BRIM_N_("data.cache=gpu if the set fits, or samples of a smaller type"));
}

//---------------------------------- computing ----------------------------------

// Reports full precision, or a step launched op by op, with the knob that changes it. The caller has found that
// computing dominates the step or that the knob was measured.
static void find_knob(const brim_findings *v, const char *code, const char *knob,
                      const char *better, const char *text) {
  brim_result *r = v->r;
  const brim_result *twin = brim_finding_twin(v, knob, BRIM_TWIN_THIS, better);
  double gain = gain_of(r, twin);
  if (twin && !is_worth(r, gain)) return;  // a measurement shows too little gain
  brim_finding *f = brim_finding_add(r, code, gain);
  if (!f) return;
  brim_finding_change(f, knob, better, twin != NULL);
  brim_finding_try(v, f, knob, better);
  snprintf(f->text, sizeof f->text, "%s", text);
  brim_words_add(f->remedy, sizeof f->remedy,
                 twin ? BRIM_N_("%s %s -> %s: measured, %.2f ms less for the same samples")
                      : BRIM_N_("%s %s -> %s: not measured in this sweep"),
                 knob, brim_result_knob_text(r, knob), better, gain);
}

// Reports the fastest measured precision. Also names the gain of tf32, which changes numbers less than bf16.
static void find_precision(const brim_findings *v, const char *text) {
  brim_result *r = v->r;
  const brim_result *tf32 =  // on a CPU tf32 is fp32
      brim_result_has_gpu(r) ? brim_finding_twin(v, "precision", BRIM_TWIN_THIS, "tf32") : NULL;
  const brim_result *bf16 = brim_finding_twin(v, "precision", BRIM_TWIN_THIS, "bf16");
  double a = gain_of(r, tf32), b = gain_of(r, bf16);
  bool tf32_wins = tf32 && (!bf16 || a >= b);
  size_t before = r->finding_count;
  find_knob(v, "precision", "precision", tf32_wins ? "tf32" : "bf16", text);
  if (r->finding_count == before || !brim_result_has_gpu(r)) return;
  brim_finding *f = &r->findings[before];
  if (!brim_finding_try(v, f, "precision", "tf32")) brim_finding_try(v, f, "precision", "bf16");
  if (tf32_wins || !tf32 || !bf16 || !is_worth(r, a)) return;
  brim_words_add(f->remedy, sizeof f->remedy, BRIM_N_(" (tf32: %.2f ms less)"), a);
}

// A CPU computes faster in 16 bits only with instructions for them: measured matrix products show that, and a
// trial decides.
static bool cpu_may_halve(const brim_findings *v) {
  const brim_machine_ceilings *most = &v->r->ceilings;
  if (brim_finding_twin(v, "precision", BRIM_TWIN_THIS, "bf16")) return true;
  bool slower = most->gemm_bf16_flops <= most->gemm_fp32_flops;
  return v->probing && !slower;
}

static void find_compute(const brim_findings *v) {
  brim_result *r = v->r;
  char text[200] = "", launches[128] = "";
  double compute = compute_ms(r);
  bool gpu = brim_result_has_gpu(r);
  if (!(v->probing || compute > 0.5 * r->total_ms.median)) return;
  brim_words_add(text, sizeof text, BRIM_N_("%.2f ms of %.2f ms are computing, in full precision"),
                 compute, r->total_ms.median);
  if (is(r, "precision", "fp32") && (gpu || cpu_may_halve(v))) find_precision(v, text);
  if (gpu && is(r, "compile", "false")) {
    brim_words_put(launches, sizeof launches,
                   BRIM_N_("the host launches every op separately, so short kernels wait for it"));
    find_knob(v, "launches", "compile", "true", launches);
  }
}

//---------------------------------- utilisation and memory ----------------------------------

// True if the device idles in part of a step: by a utilization counter, else by the share of a step that does
// not depend on the batch.
static bool is_small(const brim_result *r) {
  double fixed =
      brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) + brim_result_phase_ms(r, BRIM_PHASE_OTHER);
  if (!isnan(r->sm_percent)) return r->sm_percent < 70;
  if (!isnan(r->gpu_percent)) return r->gpu_percent < 70;
  return fixed >= 0.25 * r->total_ms.median;
}

static void small_text(const brim_result *r, brim_finding *f) {
  if (!isnan(r->sm_percent)) {
    brim_words_add(
        f->text, sizeof f->text,
        isnan(r->gpu_percent)
            ? BRIM_N_("%.0f %% of the GPU's multiprocessors are at work")
            : BRIM_N_("%.0f %% of the GPU's multiprocessors are at work (it is busy %.0f %% of "
                      "the time)"),
        r->sm_percent, r->gpu_percent);
  } else if (!isnan(r->gpu_percent)) {
    brim_words_add(f->text, sizeof f->text, BRIM_N_("the GPU is busy %.0f %% of the time"),
                   r->gpu_percent);
  } else {
    brim_words_add(
        f->text, sizeof f->text,
        BRIM_N_("%.2f ms of %.2f ms do not depend on the batch (optimizer and overhead)"),
        brim_result_phase_ms(r, BRIM_PHASE_OPTIMIZER) + brim_result_phase_ms(r, BRIM_PHASE_OTHER),
        r->total_ms.median);
  }
}

// Proposes twice the batch, if an epoch has enough samples for a step.
static void larger_batch(const brim_result *r, double batch, brim_finding *f) {
  double epoch = round(r->epoch_s * r->samples_per_s);
  double most = floor(epoch / brim_result_knob_number(r, "accumulation", 1));
  if (!(epoch > 0) || 2 * batch <= most) {
    brim_words_add(f->remedy, sizeof f->remedy, BRIM_N_("batch_size %.0f -> %.0f"), batch,
                   2 * batch);
  } else if (batch < most) {
    brim_words_add(f->remedy, sizeof f->remedy, BRIM_N_("batch_size %.0f -> %.0f, all of an epoch"),
                   batch, most);
  } else {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("no larger batch_size: an epoch has %.0f samples"), epoch);
  }
}

// A larger batch that saves this share of a step is reported at any utilization.
#define MUCH_FASTER 0.15

// Asks to try four times the batch, or twice if that does not fit; after a measurement, four times the best.
// brim_finding_try knows which sizes fit.
static void try_batch(const brim_findings *v, const brim_result *best, brim_finding *f) {
  double from = brim_result_knob_number(best ? best : v->r, "batch_size", 0);
  for (int times = 4; times > (best ? 2 : 1); times /= 2) {
    char value[32];
    snprintf(value, sizeof value, "%.0f", times * from);
    if (brim_finding_try(v, f, "batch_size", value)) return;
  }
}

// Reports a small batch, by utilization or by a measurement. On a CPU, whose phases say little, asks to try a
// larger batch.
static void find_small_batch(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *larger = brim_finding_twin(v, "batch_size", BRIM_TWIN_MORE, NULL);
  double batch = brim_result_knob_number(r, "batch_size", 0);
  double touched = r->total_ms.median - brim_result_phase_ms(r, BRIM_PHASE_IO);
  double gain = larger ? capped_gain(brim_finding_gain_ms(r, larger), touched) : 0;
  bool small = is_small(r), much = gain > MUCH_FASTER * r->total_ms.median;
  bool helps = much || (small && is_worth(r, gain));
  bool tried = v->probing && !brim_result_has_gpu(r);
  // a larger batch was not faster: the batch size is not what keeps the device idle
  if (batch <= 0 || (larger ? !helps : !small && !tried)) return;
  brim_finding *f = brim_finding_add(r, "small_batch", helps ? gain : (double)NAN);
  if (!f) return;
  if (small) {
    small_text(r, f);
  } else {
    brim_words_add(
        f->text, sizeof f->text,
        BRIM_N_("a step of %.0f samples is short: larger ones take less time per sample"), batch);
  }
  try_batch(v, helps ? larger : NULL, f);
  if (helps) {
    const char *value = brim_result_knob_text(larger, "batch_size");
    brim_finding_change(f, "batch_size", value, true);
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("batch_size %.0f -> %s: measured, %.2f ms less for the same samples"),
                   batch, value, gain);
  } else {
    larger_batch(r, batch, f);
  }
}

static void find(const brim_findings *v) {
  find_io(v);
  find_transform(v);
  find_device_transform(v);
  find_h2d(v);
  find_compute(v);
  find_small_batch(v);
}

const brim_work_findings_table brim_learn_findings = {find};
