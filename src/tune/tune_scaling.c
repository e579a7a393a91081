// Measures and predicts how a setting scales over several devices.

#include "tune/tune_int.h"

#include <math.h>
#include <string.h>

//------------------------------------------ prediction ------------------------------------------
// Predicts how a setting scales over ranks that exchange gradients, from one device alone and the time of an
// all-reduce. docs/bench.md has the model.

// In a ring of k ranks each value takes 2 (k - 1) hops in a row, and each rank sends 2 (k - 1) / k of the values.
static double hops(double from, double to) { return (to - 1) / (from - 1); }
static double traffic(double from, double to) { return (1 - 1 / to) / (1 - 1 / from); }

typedef struct pace {
  double latency_ms, ms_per_byte, least_bytes;
} pace;

static pace pace_of(const brim_scale_model *m, int64_t ranks) {
  const brim_scaling_exchange *e = &m->exchange;
  double from = (double)m->measured, to = (double)ranks,
         extra_bytes = e->bucket_bytes - e->small_bytes;
  pace out = {.latency_ms = e->small_ms, .least_bytes = e->small_bytes};
  if (extra_bytes > 0) out.ms_per_byte = fmax(0, (e->bucket_ms - e->small_ms) / extra_bytes);
  out.latency_ms *= hops(from, to);
  out.ms_per_byte *= traffic(from, to);
  return out;
}

static double sum_ms(const pace *l, double bytes) {
  return l->latency_ms + l->ms_per_byte * fmax(0, bytes - l->least_bytes);
}

void brim_scale_predict(const brim_scale_model *m, int64_t ranks, brim_scaling_forecast *out) {
  const brim_scaling_exchange *e = &m->exchange;
  *out = (brim_scaling_forecast){.ranks = ranks,
                                 .samples_per_s = (double)NAN,
                                 .efficiency = (double)NAN,
                                 .step_ms = (double)NAN,
                                 .exchange_ms = (double)NAN,
                                 .waited_ms = (double)NAN,
                                 .beyond = ranks > m->measured,
                                 .network = m->node > 0 && ranks > m->node};
  if (m->measured < 2 || ranks < 2 || e->sums < 1 || out->network) return;
  pace l = pace_of(m, ranks);
  double bucket = sum_ms(&l, e->gradient_bytes / e->sums), sums = e->sums * bucket;
  double calls = e->calls > 0 ? e->calls * sum_ms(&l, e->call_bytes / e->calls) : 0;
  out->exchange_ms = sums + calls;
  // the last sum begins when the backward pass has ended: nothing hides it
  out->waited_ms = calls + fmax(bucket, sums - m->hidden_ms);
  if (isnan(m->hidden_ms)) out->waited_ms = (double)NAN;  // fmax ignores NaN
  out->step_ms = m->step_ms + out->waited_ms;
  out->samples_per_s = (double)ranks * m->rows / (out->step_ms * 1e-3);
  out->efficiency = m->step_ms / out->step_ms;
}

size_t brim_scale_further(int64_t measured, int64_t asked, int64_t out[BRIM_SCALING_FURTHER]) {
  int64_t most = asked > 8 ? asked : 8;
  size_t n = 0;
  for (int64_t k = 2; k < most && n + 1 < BRIM_SCALING_FURTHER; k *= 2) {
    if (k > measured) out[n++] = k;
  }
  if (most > measured) out[n++] = most;
  return n;
}

//----------------------------------------- measurement -----------------------------------------
// Runs a setting on 1, 2, 4, ... devices at once, each with the same batch (weak scaling), and finds the phase of a
// step that grew against one device alone. It runs first without exchanging gradients, which is an upper bound for
// data-parallel training, then with the exchange.

// A smaller share of a step is noise.
#define NOISE 0.01

typedef struct scaler {
  const brim_scale_options *options;
  size_t done, total;
  brim_time start;
  char title[96];
} scaler;

size_t brim_scale_counts(size_t k, size_t out[8]) {
  size_t n = 0;
  if (k > BRIM_SCALING_MAX) k = BRIM_SCALING_MAX;
  for (size_t count = 1; count < k; count *= 2) out[n++] = count;
  out[n++] = k;
  return n;
}

//---------------------------------- losses ----------------------------------

static double mean_ms(const brim_scaling *s, int phase) {
  const brim_result *r = &s->result;
  return r->phase_used[phase] ? r->phase_ms[phase].mean : 0;
}

static void note_loss(brim_scaling *s, const char *to, double ms) {
  if (!(ms > s->lost_ms)) return;
  s->lost_ms = ms;
  snprintf(s->lost_to, sizeof s->lost_to, "%s", to);
}

void brim_scale_compare(brim_scaling *s, const brim_scaling *one) {
  s->one = one->result.samples_per_s;
  s->efficiency = s->result.samples_per_s / (s->ran * s->one);
  s->exchange.efficiency = s->exchange.samples_per_s / (s->ran * s->one);
  s->lost_to[0] = '\0';
  s->lost_ms = (double)NAN;
  double step = s->result.total_ms.mean, compute = 0;
  if (s->devices == 1 || !(s->efficiency > 0)) return;
  s->lost_ms = NOISE * step;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double grown = mean_ms(s, p) - mean_ms(one, p);
    if (brim_phase_computes(p)) {
      compute += grown;
    } else {
      note_loss(s, brim_phase_key((brim_phase)p), grown);
    }
  }
  note_loss(s, "compute", compute);
  // Parts of the data set may end in shorter batches, which cost whole steps.
  double rows = s->effective_batch / s->ran, full = one->effective_batch / one->ran;
  note_loss(s, "short_batch", step * (1 - rows / full));
  if (!s->lost_to[0]) s->lost_ms = (double)NAN;
}

//---------------------------------- measuring ----------------------------------

static void show(void *ctx) {
  scaler *s = ctx;
  const brim_scale_options *o = s->options;
  if (!o->on_progress) return;
  brim_progress p;
  memset(&p, 0, sizeof p);
  p.title = s->title;
  p.done = (int64_t)s->done;
  p.total = (int64_t)s->total;
  p.elapsed_s = (double)brim_time_since_ns(s->start, brim_clock_now()) * 1e-9;
  p.eta_s = s->done ? p.elapsed_s / (double)s->done * (double)(s->total - s->done) : (double)NAN;
  p.rate = (double)NAN;
  p.unit = "trials";
  o->on_progress(o->ctx, &p);
}

// The time of a step in which sums of gradients can hide: the backward pass of the last micro-batch. On a CPU they
// hide only as far as cores are idle.
static double hidden_ms(const scaler *s, size_t setting, const brim_scaling *one, int ranks) {
  const brim_scale_options *o = s->options;
  const brim_device_info *info = &o->replicas[0].device->info;
  const brim_result *r = &one->result;
  double parts = brim_result_number_as(r, BRIM_ROLE_ACCUMULATION, 1), step = r->total_ms.mean;
  if (!info->host_memory) {
    return o->backward_share ? step * o->backward_share[setting] / parts : (double)NAN;
  }
  double cores = brim_cpu_count(), threads = info->threads > 0 ? info->threads : 1;
  double spare = fmin(1, fmax(0, cores / ranks - threads));
  return spare * mean_ms(one, BRIM_PHASE_BACKWARD) / parts;
}

static void predict(const scaler *s, size_t setting, brim_scaling *now, const brim_scaling *one) {
  const brim_scale_options *o = s->options;
  int64_t further[BRIM_SCALING_FURTHER];
  if (!(now->exchange.bucket_ms > 0)) return;
  brim_scale_model model = {.step_ms = one->result.total_ms.mean,
                            .rows = one->effective_batch,
                            .hidden_ms = hidden_ms(s, setting, one, now->ran),
                            .exchange = now->exchange,
                            .measured = now->ran,
                            .node = o->node};
  brim_scale_predict(&model, now->ran, &now->predicted);
  if (now->devices < (int)o->replica_count) return;
  now->further_count = (int)brim_scale_further(now->ran, o->ranks, further);
  for (int i = 0; i < now->further_count; i++) {
    brim_scale_predict(&model, further[i], &now->further[i]);
  }
}

// Measures a setting on `devices` devices. `all` holds the `before` earlier measurements of this setting; the first
// is that of one device.
static brim_status measure(scaler *s, size_t index, size_t devices, brim_scaling *all,
                           size_t before) {
  const brim_scale_options *o = s->options;
  const brim_setting *setting = &o->settings[index];
  brim_scaling *now = &all[before];
  brim_scaling_options how = o->measure;
  how.on_wait = show;
  how.ctx = s;
  snprintf(s->title, sizeof s->title,
           devices == 1 ? brim_tr("scaling: %zu device") : brim_tr("scaling: %zu devices"),
           devices);
  show(s);
  brim_status status = brim_scaling_run(o->replicas, devices, setting, &how, now);
  if (!status && now->ran > 1) {
    snprintf(s->title, sizeof s->title, brim_tr("scaling: %zu devices exchange gradients"),
             devices);
    show(s);
    status = brim_scaling_exchange_run(o->replicas, devices, setting, &how, now);
  }
  if (status) {
    brim_scaling_deinit(now);
    return status;
  }
  brim_scale_compare(now, &all[0]);
  if (now->ran > 1) predict(s, index, now, &all[0]);
  if (o->on_result) o->on_result(o->ctx, now);
  s->done++;
  return BRIM_OK;
}

brim_status brim_scale(const brim_scale_options *options, brim_scaling **out, size_t *count) {
  size_t counts[8], n = brim_scale_counts(options->replica_count, counts);
  scaler s = {.options = options, .total = n * options->setting_count, .start = brim_clock_now()};
  *count = 0;
  *out = (brim_scaling *)brim_calloc(s.total + 1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory for %zu measurements", s.total);
  for (size_t i = 0; i < options->setting_count; i++) {
    brim_scaling *all = &(*out)[i * n];
    for (size_t k = 0; k < n; k++) {
      BRIM_TRY(measure(&s, i, counts[k], all, k));
      ++*count;
    }
  }
  return BRIM_OK;
}
