// Findings of one trial, each priced in ms per step and with the knob that would help. The order is
// seed guide 002's order of reading: waited I/O, what is computed, utilisation, memory; then what
// makes the figures themselves doubtful. Where the sweep measured the remedy, the price is the
// measured difference; where nobody measured it there is none.
#include <math.h>
#include <string.h>

#include "tune/tune.h"

typedef struct view {
  brim_result *r;              // of whom
  const brim_result *results;  // all that was measured
  size_t count;
} view;

static brim_finding *add(brim_result *r, const char *code, double cost_ms) {
  if (r->finding_count == BRIM_RESULT_MAX_FINDINGS) return NULL;
  brim_finding *f = &r->findings[r->finding_count++];
  memset(f, 0, sizeof *f);
  snprintf(f->code, sizeof f->code, "%s", code);
  f->cost_ms = cost_ms;
  return f;
}

static const char *knob_text(const brim_result *r, const char *name) {
  const brim_result_knob *k = brim_result_knob_find(r, name);
  return k ? k->value : "";
}

static bool same_but(const brim_result *a, const brim_result *b, const char *name) {
  if (a->knob_count != b->knob_count) return false;
  for (size_t i = 0; i < a->knob_count; i++) {
    const char *knob = a->knobs[i].name;
    if (strcmp(knob, name) == 0) continue;
    if (strcmp(a->knobs[i].value, knob_text(b, knob)) != 0) return false;
  }
  return true;
}

// Of the settings that differ from this one in one knob alone, those that a remedy may name.
typedef bool (*wanted)(const view *v, const brim_result *other, const char *knob,
                       const char *value);

static bool any_value(const view *v, const brim_result *other, const char *knob,
                      const char *value) {
  (void)value;
  return strcmp(knob_text(other, knob), knob_text(v->r, knob)) != 0;
}

static bool this_value(const view *v, const brim_result *other, const char *knob,
                       const char *value) {
  (void)v;
  return strcmp(knob_text(other, knob), value) == 0;
}

static bool more_of_it(const view *v, const brim_result *other, const char *knob,
                       const char *value) {
  (void)value;
  return brim_result_knob_number(other, knob, 0) > brim_result_knob_number(v->r, knob, 0);
}

// The fastest of them; NULL when none was measured.
static const brim_result *best_twin(const view *v, const char *knob, wanted is_wanted,
                                    const char *value) {
  const brim_result *best = NULL;
  for (size_t i = 0; i < v->count; i++) {
    const brim_result *other = &v->results[i];
    if (other == v->r || !brim_result_ran(other) || !same_but(v->r, other, knob)) continue;
    if (!is_wanted(v, other, knob, value)) continue;
    if (!best || other->samples_per_s > best->samples_per_s) best = other;
  }
  return best;
}

static double samples_per_step(const brim_result *r) {
  return r->samples_per_s * r->total_ms.median * 1e-3;
}

// What this step's samples would take less at another setting's rate.
static double gain_ms(const brim_result *r, const brim_result *other) {
  return r->total_ms.median - samples_per_step(r) / other->samples_per_s * 1e3;
}

static double phase(const brim_result *r, brim_phase p) {
  double ms = r->phase_ms[p].median;
  return isnan(ms) ? 0 : ms;
}

static double compute_ms(const brim_result *r) {
  return phase(r, BRIM_PHASE_FORWARD) + phase(r, BRIM_PHASE_BACKWARD) +
         phase(r, BRIM_PHASE_OPTIMIZER) + phase(r, BRIM_PHASE_COMPUTE);
}

//---------------------------------- data ----------------------------------

// More workers help while there are cores for them and they are what is waited for.
static void io_remedy(const view *v, brim_finding *f) {
  const brim_result *r = v->r, *twin = best_twin(v, "num_workers", any_value, NULL);
  const brim_result *more = best_twin(v, "num_workers", more_of_it, NULL);
  int workers = (int)brim_result_knob_number(r, "num_workers", 0);
  if (twin && gain_ms(r, twin) > 0.03 * r->total_ms.median) {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("num_workers %d -> %s: measured, %.2f ms less for the same samples"), workers,
             knob_text(twin, "num_workers"), gain_ms(r, twin));
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

static void find_io(const view *v) {
  brim_result *r = v->r;
  double io = phase(r, BRIM_PHASE_IO), compute = compute_ms(r);
  if (!(io > 30.0 || io > compute || io > 0.10 * r->total_ms.median)) return;
  brim_finding *f = add(r, "io_wait", io);
  if (!f) return;
  snprintf(f->text, sizeof f->text,
           brim_tr("the step waits %.2f ms for data (%.0f %% of it); compute takes %.2f ms"), io,
           100 * io / r->total_ms.median, compute);
  io_remedy(v, f);
}

static void find_h2d(const view *v) {
  brim_result *r = v->r;
  double h2d = phase(r, BRIM_PHASE_H2D);
  if (!brim_result_has_gpu(r) || !(h2d > 0.05 * r->total_ms.median)) return;
  brim_finding *f = add(r, "h2d", h2d);
  if (!f) return;
  bool pageable = strcmp(knob_text(r, "pin_memory"), "false") == 0;
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
  return strcmp(knob_text(r, knob), value) == 0;
}

// Full precision, or a step launched op by op: a knob each. Only where computing is most of it.
static void find_knob(const view *v, const char *code, const char *knob, const char *better,
                      const char *text) {
  brim_result *r = v->r;
  const brim_result *twin = best_twin(v, knob, this_value, better);
  double gain = twin ? gain_ms(r, twin) : (double)NAN;
  if (twin && gain <= 0.03 * r->total_ms.median) return;  // measured: it does not help
  brim_finding *f = add(r, code, gain);
  if (!f) return;
  snprintf(f->text, sizeof f->text, "%s", text);
  snprintf(f->remedy, sizeof f->remedy,
           twin ? brim_tr("%s %s -> %s: measured, %.2f ms less for the same samples")
                : brim_tr("%s %s -> %s: not measured in this sweep"),
           knob, knob_text(r, knob), better, gain);
}

static void find_compute(const view *v) {
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

// The share of a step that does not shrink with the batch tells where nobody counts utilisation.
static bool is_small(const brim_result *r) {
  double fixed = phase(r, BRIM_PHASE_OPTIMIZER) + phase(r, BRIM_PHASE_OTHER);
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
    snprintf(f->text, sizeof f->text,
             brim_tr("%.2f ms of %.2f ms do not depend on the batch (optimiser and overhead)"),
             phase(r, BRIM_PHASE_OPTIMIZER) + phase(r, BRIM_PHASE_OTHER), r->total_ms.median);
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

static void find_small_batch(const view *v) {
  brim_result *r = v->r;
  const brim_result *larger = best_twin(v, "batch_size", more_of_it, NULL);
  double batch = brim_result_knob_number(r, "batch_size", 0);
  double gain = larger ? gain_ms(r, larger) : 0;
  bool helps = gain > 0.03 * r->total_ms.median;
  // a larger batch that is no faster: the batch is not what keeps the device from being busy
  if (!is_small(r) || batch <= 0 || (larger && !helps)) return;
  brim_finding *f = add(r, "small_batch", helps ? gain : (double)NAN);
  if (!f) return;
  small_text(r, f);
  if (helps) {
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("batch_size %.0f -> %s: measured, %.2f ms less for the same samples"), batch,
             knob_text(larger, "batch_size"), gain);
  } else {
    larger_batch(r, batch, f);
  }
}

//---------------------------------- a policy search ----------------------------------

enum { LANES = 4 };  // threads of an environment on a GPU: one for each leg

// Remedy and price of more of a knob: as measured, else `otherwise`.
static void more_of(const view *v, const char *knob, double otherwise, brim_finding *f) {
  const brim_result *more = best_twin(v, knob, more_of_it, NULL);
  double gain = more ? gain_ms(v->r, more) : (double)NAN;
  if (more && gain > 0) {
    f->cost_ms = gain;
    snprintf(f->remedy, sizeof f->remedy,
             brim_tr("%s %s -> %s: measured, %.2f ms less for the same env steps"), knob,
             knob_text(v->r, knob), knob_text(more, knob), gain);
  } else {
    snprintf(f->remedy, sizeof f->remedy, "%s %s -> %.0f", knob, knob_text(v->r, knob), otherwise);
  }
}

// Directions that wait for one another, although there is room: a smaller chunk is for want of memory.
static void find_chunks(const view *v) {
  brim_result *r = v->r;
  double dirs = brim_result_knob_number(r, "num_dirs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  const brim_result *more = best_twin(v, "dir_chunk", more_of_it, NULL);
  if (!(chunk > 0) || chunk >= dirs) return;
  if (more && gain_ms(r, more) <= 0.03 * r->total_ms.median) return;  // measured: no matter
  if (!more && !brim_result_has_gpu(r)) return;  // on a CPU its threads are busy with fewer
  brim_finding *f = add(r, "serial_chunks", (double)NAN);
  if (!f) return;
  snprintf(f->text, sizeof f->text,
           brim_tr("%.0f directions run %.0f at a time, in %.0f consecutive turns"), dirs, chunk,
           ceil(dirs / chunk));
  more_of(v, "dir_chunk", dirs, f);
}

// Why a large card is no faster than a laptop's: it is not given enough to do at once.
static void find_threads(const view *v) {
  brim_result *r = v->r;
  const brim_gpu_facts *gpu = brim_result_has_gpu(r) ? brim_gpu_facts_find(r->device) : NULL;
  double envs = brim_result_knob_number(r, "num_envs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  double threads = envs * chunk * LANES;
  double most = gpu ? (double)gpu->sms * gpu->threads_per_sm : (double)NAN;
  if (!(threads > 0) || !(threads < 0.5 * most)) return;
  const brim_result *more = best_twin(v, "num_envs", more_of_it, NULL);
  if (more && gain_ms(r, more) <= 0.03 * r->total_ms.median) return;
  brim_finding *f = add(r, "few_threads", (double)NAN);
  if (!f) return;
  const brim_gpu_facts *laptop = brim_gpu_facts_find("3060 Laptop");
  bool fills = threads <= (double)laptop->sms * laptop->threads_per_sm;
  snprintf(f->text, sizeof f->text,
           fills ? brim_tr("%.0f x %.0f environments use %.0f of the %.0f threads of this card; a "
                           "laptop GPU runs as many, just as fast")
                 : brim_tr("%.0f x %.0f environments use %.0f of the %.0f threads of this card; "
                           "the rest idles"),
           envs, chunk, threads, most);
  more_of(v, "num_envs", ceil(most / (chunk * LANES) / 2) * 2, f);
}

static void find_memory(const view *v) {
  brim_result *r = v->r;
  double need = brim_result_memory(r), share = need / r->free_bytes;
  if (isnan(share) || share < 0.8) return;
  char bytes[32];
  brim_finding *f = add(r, "memory_high", (double)NAN);
  if (!f) return;
  brim_format_bytes((uint64_t)need, bytes);
  snprintf(f->text, sizeof f->text,
           brim_tr("%s are %.0f %% of the memory that is free: another process, or a longer "
                   "sample, ends the run"),
           bytes, 100 * share);
  snprintf(f->remedy, sizeof f->remedy, "%s",
           brim_tr("a smaller batch_size with gradient_accumulation_steps, or checkpointing=true"));
}

//---------------------------------- doubts ----------------------------------

static void find_throttle(const view *v) {
  brim_result *r = v->r;
  if (!r->throttle[0]) return;
  double lost = r->clock_max_mhz > 0 ? r->total_ms.median * (1 - r->clock_mhz / r->clock_max_mhz)
                                     : (double)NAN;
  brim_finding *f = add(r, r->throttled ? "throttled" : "power_cap", lost);
  if (!f) return;
  if (isnan(lost)) {
    snprintf(f->text, sizeof f->text, brim_tr("the clock was limited: %s"), r->throttle);
  } else {
    snprintf(f->text, sizeof f->text, brim_tr("the clock was limited to %.0f of %.0f MHz: %s"),
             r->clock_mhz, r->clock_max_mhz, r->throttle);
  }
  snprintf(
      f->remedy, sizeof f->remedy, "%s",
      r->throttled
          ? brim_tr("check the cooling and other jobs on the card; measure again when it is cool")
          : brim_tr("as this card is set up; a lower precision does more work per joule"));
}

// By what made it unstable: the spread of its steps, or of its repeats.
static double spread_of(const brim_result *r) {
  double steps =
      fmax(r->total_ms.mad, (r->total_ms.ci_high - r->total_ms.ci_low) / 2) / r->total_ms.median;
  double repeats = (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s;
  return fmax(steps, repeats);
}

static void find_noise(const view *v) {
  brim_result *r = v->r;
  if (r->stable) return;
  bool one = brim_result_one_sample(r);
  brim_finding *f = add(r, "unstable", one ? (double)NAN : spread_of(r) * r->total_ms.median);
  if (!f) return;
  if (one) {
    snprintf(f->text, sizeof f->text, "%s",
             brim_tr("one sample is not enough to show whether the times are stable"));
    snprintf(f->remedy, sizeof f->remedy, "%s", brim_tr("more --steps, or --repeats 2 or more"));
    return;
  }
  snprintf(f->text, sizeof f->text,
           brim_tr("step times vary by %.0f %% around the median; something else uses the machine"),
           100 * spread_of(r));
  snprintf(f->remedy, sizeof f->remedy, "%s",
           brim_tr("measure again on a quiet machine, or with more --steps"));
}

void brim_diagnose(brim_result *results, size_t count, size_t index) {
  view v = {&results[index], results, count};
  if (!brim_result_ran(v.r) || !(v.r->total_ms.median > 0)) return;
  v.r->finding_count = 0;
  find_io(&v);
  find_h2d(&v);
  find_compute(&v);
  find_small_batch(&v);
  find_chunks(&v);
  find_threads(&v);
  find_memory(&v);
  find_throttle(&v);
  find_noise(&v);
}
