// How a setting would scale over ranks that exchange gradients, from one device alone and from the time of an
// all-reduce. A pure function: what is not known stays unknown. docs/bench.md states the model.
#include <math.h>

#include "tune/tune_int.h"

// A ring of k ranks: each value takes 2 (k - 1) hops one after the other, and each rank sends
// 2 (k - 1) / k of the values.
static double hops(double from, double to) { return (to - 1) / (from - 1); }
static double traffic(double from, double to) { return (1 - 1 / to) / (1 - 1 / from); }

typedef struct pace {
  double latency_ms, ms_per_byte, least_bytes;
} pace;

static pace pace_of(const brim_scale_model *m, int64_t ranks) {
  const brim_scaling_exchange *e = &m->exchange;
  double from = (double)m->measured, to = (double)ranks, more = e->bucket_bytes - e->small_bytes;
  pace out = {.latency_ms = e->small_ms, .least_bytes = e->small_bytes};
  if (more > 0) out.ms_per_byte = fmax(0, (e->bucket_ms - e->small_ms) / more);
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
  // nothing is left to hide the last sum, which the backward pass has to end for
  out->waited_ms = calls + fmax(bucket, sums - m->hidden_ms);
  if (isnan(m->hidden_ms)) out->waited_ms = (double)NAN;  // (which fmax leaves out)
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
