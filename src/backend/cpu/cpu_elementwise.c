// Ops that touch each element once: ACT, ACT_BWD, ADD, CAST, INPUT, DROPOUT. All work on blocks of
// BRIM_CPU_BLOCK elements, widened to f32 where they are bf16. Outputs may be inputs.
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"
#include "hd/hd_philox.h"

static int64_t block_size(int64_t i, int64_t end) {
  return end - i < BRIM_CPU_BLOCK ? end - i : BRIM_CPU_BLOCK;
}

//---------------------------------- activations ----------------------------------

BRIM_CPU_CLONES static void act_block(brim_act act, const float *x, float *y, int64_t n) {
  switch (act) {
    case BRIM_ACT_RELU:
      for (int64_t i = 0; i < n; i++) y[i] = x[i] <= 0.0f ? 0.0f : x[i];
      break;
    case BRIM_ACT_GELU:
      for (int64_t i = 0; i < n; i++) y[i] = brim_cpu_gelu(x[i]);
      break;
    case BRIM_ACT_TANH:
      for (int64_t i = 0; i < n; i++) y[i] = brim_cpu_tanh(x[i]);
      break;
    case BRIM_ACT_NONE:
    case BRIM_ACT_COUNT:
      if (x != y) memcpy(y, x, (size_t)n * sizeof *y);
      break;
  }
}

// saved: x for RELU and GELU, y for TANH.
BRIM_CPU_CLONES static void slope_block(brim_act act, const float *dy, const float *saved,
                                        float *dx, int64_t n) {
  switch (act) {
    case BRIM_ACT_RELU:
      for (int64_t i = 0; i < n; i++) {
        float v = dy[i];  // loaded for every i, so that the loop vectorizes
        dx[i] = saved[i] > 0.0f ? v : 0.0f;
      }
      break;
    case BRIM_ACT_GELU:
      for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * brim_cpu_gelu_slope(saved[i]);
      break;
    case BRIM_ACT_TANH:
      for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (1.0f - saved[i] * saved[i]);
      break;
    case BRIM_ACT_NONE:
    case BRIM_ACT_COUNT:
      if (dx != dy) memcpy(dx, dy, (size_t)n * sizeof *dx);
      break;
  }
}

// Only static functions are cloned for several instruction sets: the loader would have to resolve the
// hidden symbol of another, which is risky.
void brim_cpu_act(brim_act act, const float *x, float *y, int64_t n) { act_block(act, x, y, n); }
void brim_cpu_act_slope(brim_act act, const float *dy, const float *saved, float *dx, int64_t n) {
  slope_block(act, dy, saved, dx, n);
}

BRIM_CPU_CLONES static void act_body(void *arg, int rank, int size) {
  const brim_cpu_map_arg *m = arg;
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi;
  brim_cpu_split(m->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = block_size(i, hi);
    float *y = brim_cpu_write(m->y, m->type, i, out);
    brim_cpu_act(m->act, brim_cpu_read(m->a, m->type, i, n, in), y, n);
    brim_cpu_flush(m->y, m->type, i, n, out);
  }
}

BRIM_CPU_CLONES static void act_bwd_body(void *arg, int rank, int size) {
  const brim_cpu_map_arg *m = arg;
  float dy[BRIM_CPU_BLOCK], s[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi;
  brim_cpu_split(m->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = block_size(i, hi);
    float *dx = brim_cpu_write(m->y, m->type, i, out);
    brim_cpu_act_slope(m->act, brim_cpu_read(m->a, m->type, i, n, dy),
                       brim_cpu_read(m->b, m->type, i, n, s), dx, n);
    brim_cpu_flush(m->y, m->type, i, n, out);
  }
}

BRIM_CPU_CLONES static void add_body(void *arg, int rank, int size) {
  const brim_cpu_map_arg *m = arg;
  float a_buffer[BRIM_CPU_BLOCK], b_buffer[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi;
  brim_cpu_split(m->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = block_size(i, hi);
    const float *a = brim_cpu_read(m->a, m->type, i, n, a_buffer);
    const float *b = brim_cpu_read(m->b, m->type, i, n, b_buffer);
    float *y = brim_cpu_write(m->y, m->type, i, out);
    for (int64_t j = 0; j < n; j++) y[j] = a[j] + b[j];
    brim_cpu_flush(m->y, m->type, i, n, out);
  }
}

void brim_cpu_add_or_act_bwd(int threads, brim_op op, brim_cpu_map_arg arg) {
  brim_cpu_team_run(brim_cpu_team_for(threads, (double)arg.count, BRIM_CPU_TEAM_ELEMENTS),
                    op == BRIM_OP_ADD ? add_body : act_bwd_body, &arg);
}

static brim_status run_map(void *impl, const brim_op_call *call, brim_cpu_body body) {
  const brim_tensor *second = brim_cpu_in(call, 1);
  brim_cpu_map_arg m = {.a = call->in[0].data,
                        .b = second ? second->data : NULL,
                        .y = call->out[0].data,
                        .type = call->in[0].dtype,
                        .count = brim_cpu_elements(&call->in[0]),
                        .act = call->attr.act};
  return brim_cpu_spread(impl, m.count, body, &m);
}

static brim_status act_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_map(impl, call, act_body);
}
static brim_status act_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_map(impl, call, act_bwd_body);
}
static brim_status add_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_map(impl, call, add_body);
}

//---------------------------------- cast ----------------------------------

typedef struct cast_arg {
  const brim_tensor *x, *y;
  int64_t count;
} cast_arg;

BRIM_CPU_INLINE void cast_block(const brim_tensor *x, const brim_tensor *y, int64_t i, int64_t n) {
  float buffer[BRIM_CPU_BLOCK];
  const float *from = buffer;
  if (x->dtype == BRIM_F64) {
    const double *d = (const double *)x->data + i;
    if (y->dtype == BRIM_F64) {
      memmove((double *)y->data + i, d, (size_t)n * sizeof *d);
      return;
    }
    for (int64_t j = 0; j < n; j++) buffer[j] = (float)d[j];
  } else {
    from = brim_cpu_read(x->data, x->dtype, i, n, buffer);
  }
  if (y->dtype == BRIM_F64) {
    double *d = (double *)y->data + i;
    for (int64_t j = 0; j < n; j++) d[j] = (double)from[j];
  } else if (y->dtype == BRIM_F32) {
    memmove((float *)y->data + i, from, (size_t)n * sizeof *from);
  } else {
    brim_cpu_flush(y->data, y->dtype, i, n, from);
  }
}

BRIM_CPU_CLONES static void cast_body(void *arg, int rank, int size) {
  const cast_arg *c = arg;
  int64_t lo, hi;
  brim_cpu_split(c->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) cast_block(c->x, c->y, i, block_size(i, hi));
}

static brim_status cast_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  cast_arg c = {&call->in[0], &call->out[0], brim_cpu_elements(&call->in[0])};
  return brim_cpu_spread(impl, c.count, cast_body, &c);
}

//---------------------------------- input ----------------------------------

typedef struct input_arg {
  const brim_tensor *x, *y;
  int64_t rows, cols;
  int channels, padded;  // channels of x and of y
  // The channels' factors repeated, so that a block may start at any channel.
  float scale[BRIM_CPU_BLOCK + 4], shift[BRIM_CPU_BLOCK + 4];
} input_arg;

// n values from element `at` of x, times scale plus shift, into y (f32, no gaps).
BRIM_CPU_INLINE void input_block(const input_arg *a, int64_t at, int64_t n, float *y) {
  float in[BRIM_CPU_BLOCK];
  const float *scale = a->scale + at % a->channels, *shift = a->shift + at % a->channels;
  const float *x = in;
  if (a->x->dtype == BRIM_U8) {
    const uint8_t *u = (const uint8_t *)a->x->data + at;
    for (int64_t j = 0; j < n; j++) in[j] = (float)u[j];
  } else {
    x = brim_cpu_read(a->x->data, a->x->dtype, at, n, in);
  }
  for (int64_t j = 0; j < n; j++) y[j] = x[j] * scale[j] + shift[j];
}

BRIM_CPU_CLONES static void input_body(void *arg, int rank, int size) {
  const input_arg *a = arg;
  float out[BRIM_CPU_BLOCK];
  brim_dtype type = a->y->dtype;
  int64_t lo, hi;
  // Rows are whole multiples of the channels, so the whole array is treated as one row.
  brim_cpu_split(a->rows * a->cols, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = block_size(i, hi);
    input_block(a, i, n, brim_cpu_write(a->y->data, type, i, out));
    brim_cpu_flush(a->y->data, type, i, n, out);
  }
}

// y has more channels than x: the others become 0.
BRIM_CPU_CLONES static void input_padded_body(void *arg, int rank, int size) {
  const input_arg *a = arg;
  enum { PIXELS = BRIM_CPU_BLOCK / 4 };
  float values[BRIM_CPU_BLOCK];
  int64_t lo, hi, channels = a->channels, padded = a->padded;
  brim_cpu_split(a->rows * a->cols / channels, PIXELS, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += PIXELS) {
    int64_t n = hi - i < PIXELS ? hi - i : PIXELS;
    input_block(a, i * channels, n * channels, values);
    size_t bytes = brim_cpu_size(a->y->dtype);
    memset((char *)a->y->data + (size_t)(i * padded) * bytes, 0, (size_t)(n * padded) * bytes);
    for (int64_t p = 0; p < n; p++) {
      for (int64_t c = 0; c < channels; c++) {
        float v = values[p * channels + c];
        int64_t at = (i + p) * padded + c;
        if (a->y->dtype == BRIM_F32) {
          ((float *)a->y->data)[at] = v;
        } else {
          ((uint16_t *)a->y->data)[at] = brim_cpu_to_bf16(v);
        }
      }
    }
  }
}

static brim_status input_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  input_arg a = {.x = &call->in[0],
                 .y = &call->out[0],
                 .rows = call->in[0].dim[0],
                 .channels = call->attr.channels,
                 .padded = (int)brim_cpu_cols(&call->out[0])};
  int64_t count = brim_cpu_elements(a.x);
  a.cols = count / a.rows;
  for (int j = 0; j < BRIM_CPU_BLOCK + 4; j++) {
    a.scale[j] = call->attr.scale[j % a.channels];
    a.shift[j] = call->attr.shift[j % a.channels];
  }
  bool padded = brim_cpu_elements(a.y) != count;
  return brim_cpu_spread(impl, count, padded ? input_padded_body : input_body, &a);
}

//---------------------------------- dropout ----------------------------------

typedef struct dropout_arg {
  const void *x;
  void *y;
  brim_dtype type;
  int64_t count;
  uint64_t key, counter, first;  // first: number of the batch's first element
  float p, scale;                // scale = 1 / (1 - p)
} dropout_arg;

enum { LANES = 16 };

// brim_philox for counters group .. group + LANES - 1 side by side, which compilers vectorize;
// outputs in order.
BRIM_CPU_INLINE void philox_lanes(uint64_t key, uint64_t high, uint64_t group, uint32_t *bits) {
  uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int i = 0; i < LANES; i++) {
    uint64_t low = group + (uint64_t)i;
    c0[i] = (uint32_t)low, c1[i] = (uint32_t)(low >> 32);
    c2[i] = (uint32_t)high, c3[i] = (uint32_t)(high >> 32);
  }
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    for (int i = 0; i < LANES; i++) {
      uint64_t p0 = (uint64_t)c0[i] * 0xD2511F53u, p1 = (uint64_t)c2[i] * 0xCD9E8D57u;
      c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = (uint32_t)p1;
      c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = (uint32_t)p0;
    }
  }
  for (int i = 0; i < LANES; i++) {
    bits[4 * i] = c0[i], bits[4 * i + 1] = c1[i], bits[4 * i + 2] = c2[i], bits[4 * i + 3] = c3[i];
  }
}

// 32 random bits for each of elements e .. e + n - 1; bits has room for n + 6, rounded up to lanes.
BRIM_CPU_INLINE const uint32_t *random_bits(const dropout_arg *d, uint64_t e, int64_t n,
                                            uint32_t *bits) {
  uint64_t group = e / 4, last = (e + (uint64_t)n - 1) / 4;
  for (uint64_t g = group; g <= last; g += LANES) {
    philox_lanes(d->key, d->counter, g, bits + 4 * (g - group));
  }
  return bits + e % 4;
}

BRIM_CPU_CLONES static void dropout_body(void *arg, int rank, int size) {
  const dropout_arg *d = arg;
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  uint32_t room[BRIM_CPU_BLOCK + 8 + 4 * LANES];
  int64_t lo, hi;
  brim_cpu_split(d->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = block_size(i, hi);
    const uint32_t *bits = random_bits(d, d->first + (uint64_t)i, n, room);
    const float *x = brim_cpu_read(d->x, d->type, i, n, in);
    float *y = brim_cpu_write(d->y, d->type, i, out);
    for (int64_t j = 0; j < n; j++) {
      y[j] = brim_rng_uniform(bits[j]) < d->p ? 0.0f : x[j] * d->scale;
    }
    brim_cpu_flush(d->y, d->type, i, n, out);
  }
}

static brim_status dropout_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const double *state = call->in[1].data;
  uint64_t seed = (uint64_t)state[BRIM_STATE_SEED], step = (uint64_t)state[BRIM_STATE_STEP];
  dropout_arg d = {.x = call->in[0].data,
                   .y = call->out[0].data,
                   .type = call->in[0].dtype,
                   .count = brim_cpu_elements(&call->in[0]),
                   .key = brim_rng_key(seed, BRIM_RNG_DROPOUT),
                   .counter = step << 16 | call->attr.layer,
                   .p = call->attr.p,
                   .scale = 1.0f / (1.0f - call->attr.p)};
  uint64_t per_row = (uint64_t)(d.count / call->in[0].dim[0]);
  d.first = (uint64_t)state[BRIM_STATE_ROW_OFFSET] * per_row;
  return brim_cpu_spread(impl, d.count, dropout_body, &d);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_ACT, brim_cpu_validate, NULL, act_run, NULL},
    {BRIM_OP_ACT_BWD, brim_cpu_validate, NULL, act_bwd_run, NULL},
    {BRIM_OP_DROPOUT, brim_cpu_validate, NULL, dropout_run, NULL},
    {BRIM_OP_ADD, brim_cpu_validate, NULL, add_run, NULL},
    {BRIM_OP_CAST, brim_cpu_validate, NULL, cast_run, NULL},
    {BRIM_OP_INPUT, brim_cpu_validate, NULL, input_run, NULL},
};

const brim_op_family brim_cpu_elementwise_ops = {rows, sizeof rows / sizeof *rows};
