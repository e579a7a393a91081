// BATCHNORM_BWD, the gradient of batch norm, add and ReLU: sums over the pixels first, dx after them.
// BATCHNORM_BWD_SUMS and BATCHNORM_BWD_JOINED are its two halves.
#include "backend/cpu/cpu_batchnorm.h"

// What lets a gradient pass: everything, y > 0, or the same determined again from x.
typedef enum bn_gate { GATE_NONE, GATE_Y, GATE_X } bn_gate;

// Elements [i, i + n), which start at column c of the span.
typedef struct bn_block {
  int64_t i, c, n;
} bn_block;

// What arrives at the norm's output in a block: dy + dy2 where the activation let it pass.
BRIM_CPU_INLINE void passed_loop(const bn_arg *a, brim_dtype type, bn_gate gate, bool two,
                                 bn_block block, float *restrict to) {
  int64_t i = block.i, c = block.c, n = block.n;
  const float *mean = bn_table_of(a, T_MEAN) + c, *factor = bn_table_of(a, T_FACTOR) + c;
  const float *shift = bn_table_of(a, T_SHIFT) + c;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float d = brim_cpu_get(a->dy, type, i + j), sign = 1;
    if (two) d += brim_cpu_get(a->dy2, type, i + j);
    if (gate == GATE_Y) sign = brim_cpu_get(a->y_in, type, i + j);
    if (gate == GATE_X) {
      sign = (brim_cpu_get(a->x, type, i + j) - mean[j]) * factor[j] + shift[j];
    }
    to[j] = sign > 0.0f ? d : 0.0f;
  }
}

// One loop for each kind, chosen outside of it.
BRIM_CPU_CLONES static void passed(const bn_arg *a, bn_block block, float *to) {
  bn_gate gate = !a->relu ? GATE_NONE : (a->y_in ? GATE_Y : GATE_X);
#define KIND(t, g, two)                                             \
  if (a->type == (t) && gate == (g) && (a->dy2 != NULL) == (two)) { \
    passed_loop(a, t, g, two, block, to);                           \
    return;                                                         \
  }
  KIND(BRIM_BF16, GATE_NONE, false)
  KIND(BRIM_BF16, GATE_NONE, true)
  KIND(BRIM_BF16, GATE_Y, false)
  KIND(BRIM_BF16, GATE_Y, true)
  KIND(BRIM_BF16, GATE_X, false)
  KIND(BRIM_BF16, GATE_X, true)
  KIND(BRIM_F32, GATE_NONE, false)
  KIND(BRIM_F32, GATE_NONE, true)
  KIND(BRIM_F32, GATE_Y, false)
  KIND(BRIM_F32, GATE_Y, true)
  KIND(BRIM_F32, GATE_X, false)
  KIND(BRIM_F32, GATE_X, true)
#undef KIND
}

// Sums of d and of d * (x - mean) over a strip. Blocks are whole pixels where channels are few.
BRIM_CPU_INLINE void sum_strip(const bn_arg *a, brim_dtype type, int64_t strip) {
  bn_sums s;
  float d[BRIM_CPU_BLOCK];
  double *sum = a->part + strip * 2 * a->c, *sum_x = sum + a->c;
  int64_t begin = strip * a->strip * a->c;
  int64_t end = brim_cpu_min((strip + 1) * a->strip, a->valid) * a->c;
  for (int64_t j = 0; j < a->c; j++) sum[j] = sum_x[j] = 0;
  for (int64_t c = 0; c < a->span; c += BRIM_CPU_BLOCK) {
    int64_t width = brim_cpu_min(BRIM_CPU_BLOCK, a->span - c);
    const float *mean = bn_table_of(a, T_MEAN) + c;
    int64_t chunk = a->span * (CHUNK / width);
    for (int64_t i0 = begin; i0 < end; i0 += chunk) {
      int64_t stop = brim_cpu_min(i0 + chunk, end);
      for (int64_t j = 0; j < width; j++) s.one[j] = s.two[j] = 0;
      for (int64_t i = i0 + c; i < stop; i += a->span) {
        int64_t n = brim_cpu_min(width, stop - i);
        passed(a, (bn_block){i, c, n}, d);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
          s.one[j] += d[j];
          s.two[j] += d[j] * (brim_cpu_get(a->x, type, i + j) - mean[j]);
        }
      }
      bn_fold(a, width, s.one);
      bn_fold(a, width, s.two);
      for (int64_t j = 0; j < brim_cpu_min(width, a->c); j++) {
        sum[c + j] += (double)s.one[j];
        sum_x[c + j] += (double)s.two[j];
      }
    }
  }
}

BRIM_CPU_CLONES static void sum_strips(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t strip = lo; strip < hi; strip++) {
    if (a->type == BRIM_F32) {
      sum_strip(a, BRIM_F32, strip);
    } else {
      sum_strip(a, BRIM_BF16, strip);
    }
  }
}

BRIM_CPU_CLONES static void add_strips(const bn_arg *a, int64_t lo, int64_t n, double *sum,
                                       double *sum_x) {
  for (int64_t j = 0; j < n; j++) sum[j] = sum_x[j] = 0;
  for (int64_t strip = 0; strip < a->strips; strip++) {
    const double *part = a->part + strip * 2 * a->c + lo;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += part[j], sum_x[j] += part[a->c + j];
  }
}

// What dx takes off, from sums over n values.
static void set_take(const bn_arg *a, int64_t c, double n, double sum, double sum_norm) {
  bn_table_of(a, T_TAKE)[c] = (float)(sum / n);
  bn_table_of(a, T_TILT)[c] = (float)(sum_norm * (double)a->s_in[c] / n);
}

static void finish_sums(const bn_arg *a, int64_t lo, int64_t hi) {
  double n = a->valid > 0 ? (double)a->valid : 1, sum[FEW], sum_x[FEW];
  for (int64_t c = lo; c < hi; c++) {
    int64_t j = (c - lo) % FEW;
    if (j == 0) add_strips(a, c, brim_cpu_min(FEW, hi - c), sum, sum_x);
    double sum_norm = sum_x[j] * (double)a->s_in[c];
    float dg = (float)sum_norm, db = (float)sum[j];
    a->dg[c] = a->accumulate ? a->dg[c] + dg : dg;
    a->db[c] = a->accumulate ? a->db[c] + db : db;
    if (a->figures) {
      a->figures[c] = db;
      a->figures[a->c + c] = dg;
    } else {
      set_take(a, c, n, sum[j], sum_norm);
    }
  }
}

static void repeat_take(const bn_arg *a, int64_t lo, int64_t hi) {
  bn_repeat(a, T_TAKE, lo, hi);
  bn_repeat(a, T_TILT, lo, hi);
}

static void zero_elements(void *data, brim_dtype type, int64_t lo, int64_t hi) {
  size_t size = brim_cpu_size(type);
  if (hi > lo) memset((char *)data + (size_t)lo * size, 0, (size_t)(hi - lo) * size);
}

// dx of elements [i, i + n), which start at column c of the span, and dz. Either may be dy, dy2, x
// or y: those are read by now, or in the same place.
BRIM_CPU_INLINE void dx_block(const bn_arg *a, brim_dtype type, int64_t i, int64_t c, int64_t n) {
  float d[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  const float *mean = bn_table_of(a, T_MEAN) + c, *factor = bn_table_of(a, T_FACTOR) + c;
  const float *take = bn_table_of(a, T_TAKE) + c, *tilt = bn_table_of(a, T_TILT) + c;
  passed(a, (bn_block){i, c, n}, d);
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float distance = brim_cpu_get(a->x, type, i + j) - mean[j];
    out[j] = factor[j] * (d[j] - take[j] - distance * tilt[j]);
  }
#pragma omp simd
  for (int64_t j = 0; j < n; j++) brim_cpu_put(a->dx, type, i + j, out[j]);
  if (!a->dz) return;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) brim_cpu_put(a->dz, type, i + j, d[j]);
}

BRIM_CPU_CLONES static void dx_spans(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t i = lo; i < hi; i += a->span) {
    int64_t length = brim_cpu_min(a->span, hi - i);
    for (int64_t c = 0; c < length; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, length - c);
      if (a->type == BRIM_F32) {
        dx_block(a, BRIM_F32, i + c, c, n);
      } else {
        dx_block(a, BRIM_BF16, i + c, c, n);
      }
    }
  }
}

static void dx_share(const bn_arg *a, int64_t lo, int64_t hi) {
  int64_t valid = a->valid * a->c, from = lo > valid ? lo : valid;
  dx_spans(a, lo, brim_cpu_min(hi, valid));
  zero_elements(a->dx, a->type, from, hi);
  if (a->dz) zero_elements(a->dz, a->type, from, hi);
}

static void factors_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  bn_factors(a, lo, hi);
}

static void sums_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->strips, 1, rank, size, &lo, &hi);
  sum_strips(a, lo, hi);
}

static void finish_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  finish_sums(a, lo, hi);
  if (!a->figures) repeat_take(a, lo, hi);
}

static void joined_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  double n = a->total > 0 ? a->total : 1;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  bn_factors(a, lo, hi);
  for (int64_t c = lo; c < hi; c++) {
    set_take(a, c, n, (double)a->sums_in[c], (double)a->sums_in[a->c + c]);
  }
  repeat_take(a, lo, hi);
}

static void dx_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  bn_share(a, rank, size, &lo, &hi);
  dx_share(a, lo, hi);
}

// What the three have in common; `state` is its place among the inputs, with y and dy2 behind it.
static bn_arg backward_arg(const brim_op_call *call, int state) {
  bn_arg a = {.dy = call->in[0].data,
              .x = call->in[1].data,
              .g = call->in[2].data,
              .b = call->in[3].data,
              .mean_in = call->in[4].data,
              .s_in = call->in[5].data,
              .y_in = bn_data_of(brim_cpu_in(call, state + 1)),
              .dy2 = bn_data_of(brim_cpu_in(call, state + 2)),
              .relu = call->attr.act == BRIM_ACT_RELU,
              .accumulate = call->attr.accumulate};
  bn_plan_from(&a, &call->in[1]);
  a.valid = bn_valid_pixels(&call->in[1], call->in[state].data);
  bn_workspace(&a, call->workspace);
  return a;
}

brim_status brim_cpu_batchnorm_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 6);
  a.dx = call->out[0].data;
  a.dg = call->out[1].data;
  a.db = call->out[2].data;
  a.dz = bn_data_of(brim_cpu_out(call, 3));
  return bn_run(impl, &a,
                (const brim_cpu_body[]){factors_body, sums_body, finish_body, dx_body, NULL});
}

brim_status brim_cpu_batchnorm_bwd_sums_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 6);
  a.figures = call->out[0].data;
  a.dg = call->out[1].data;
  a.db = call->out[2].data;
  return bn_run(impl, &a, (const brim_cpu_body[]){factors_body, sums_body, finish_body, NULL});
}

brim_status brim_cpu_batchnorm_bwd_joined_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 8);
  a.sums_in = call->in[6].data;
  a.total = (double)*(const float *)call->in[7].data;
  a.dx = call->out[0].data;
  a.dz = bn_data_of(brim_cpu_out(call, 1));
  return bn_run(impl, &a, (const brim_cpu_body[]){joined_body, dx_body, NULL});
}
