// NTXENT, the contrastive loss (normalised temperature-scaled cross-entropy). Rows are scaled to length 1.
// A block of rows is multiplied with all rows, which gives the cosine similarities; a softmax over each row
// of them gives the loss. The gradient computes the similarities again, so the matrix of all pairs is never
// kept. Valid rows are numbered without gaps, so padding takes no part. Each row is summed by one thread in
// a fixed order, so the bits do not depend on the thread count.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { BLOCK_ROWS = 24 };

typedef struct ntxent_arg {
  const void *z;
  void *dz;  // may be NULL
  brim_dtype type;
  int64_t half, d;                   // rows i and i + half are two views of a sample
  int64_t samples, count;            // valid samples; their rows: 2 * samples
  int64_t n_pad, d_pad;              // rows of z, and d, rounded up
  float inverse_temperature, scale;  // 1 / temperature; factor of the gradient
  float *unit;                       // (count, d_pad)
  float *unit_transposed;            // (d, n_pad)
  // (n_pad): length of the row in z; log of the sum of exponentials of its similarities
  float *length, *lse;
  double *loss;        // (count)
  float *hit;          // (count): 1 if the arg max is the other view, else 0
  float *buffers;      // each thread's (BLOCK_ROWS, n_pad) and (BLOCK_ROWS, d_pad)
  size_t buffer_size;  // floats of a thread in `buffers`
} ntxent_arg;

// Lays the workspace out for n rows, of which any number may be valid. Returns its bytes.
static size_t lay_out(ntxent_arg *a, int64_t n, int threads, void *workspace) {
  char *at = workspace;
  size_t used = 0;
  a->n_pad = brim_cpu_round_up(n, BRIM_CPU_SMALL_COLS);
  a->d_pad = brim_cpu_round_up(a->d, BRIM_CPU_SMALL_COLS);
  a->buffer_size = (size_t)(BLOCK_ROWS * (a->n_pad + a->d_pad));
  size_t bytes[] = {(size_t)(n * a->d_pad) * 4,
                    (size_t)(a->d * a->n_pad) * 4,
                    (size_t)a->n_pad * 4,
                    (size_t)a->n_pad * 4,
                    (size_t)n * 8,
                    (size_t)n * 4,
                    a->buffer_size * 4 * (size_t)threads};
  float **to[] = {&a->unit, &a->unit_transposed, &a->length, &a->lse, NULL, &a->hit, &a->buffers};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
    void *here = at ? at + used : NULL;
    if (to[i]) {
      *to[i] = here;
    } else {
      a->loss = here;
    }
    used += brim_cpu_round64(bytes[i]);
  }
  return used;
}

static brim_status ntxent_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  ntxent_arg a = {.d = call->in[0].dim[1]};
  call->workspace_bytes = lay_out(&a, call->in[0].dim[0], device->threads, NULL);
  return BRIM_OK;
}

// row_of: the k-th row that is not padding. pair_of: the number of its other view among these rows.
static int64_t row_of(const ntxent_arg *a, int64_t k) {
  return k < a->samples ? k : a->half + k - a->samples;
}
static int64_t pair_of(const ntxent_arg *a, int64_t k) {
  return k < a->samples ? k + a->samples : k - a->samples;
}

BRIM_CPU_CLONES static void normalise(const ntxent_arg *a, int64_t lo, int64_t hi) {
  float wide[BRIM_CPU_BLOCK];
  for (int64_t k = lo; k < hi; k++) {
    float *u = a->unit + k * a->d_pad;
    double squares = 0;
    for (int64_t c = 0; c < a->d; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, a->d - c);
      const float *z = brim_cpu_read(a->z, a->type, row_of(a, k) * a->d + c, n, wide);
      for (int64_t j = 0; j < n; j++) {
        u[c + j] = z[j];
        squares += (double)z[j] * (double)z[j];
      }
    }
    // A row of zeros stays 0.
    double length = sqrt(squares);
    length = length < 1e-12 ? 1e-12 : length;
    a->length[k] = (float)length;
    float inverse = (float)(1.0 / length);
    for (int64_t j = 0; j < a->d; j++) {
      u[j] *= inverse;
      a->unit_transposed[j * a->n_pad + k] = u[j];
    }
    for (int64_t j = a->d; j < a->d_pad; j++) u[j] = 0.0f;
  }
}

// Computes the similarities of rows [k, k + rows) with all rows, divided by the temperature. The similarity
// of a row with itself becomes -infinity.
static void similarities(const ntxent_arg *a, int64_t k, int64_t rows, float *s) {
  brim_cpu_small product = {.m = rows,
                            .n = a->count,
                            .k = a->d,
                            .a = a->unit + k * a->d_pad,
                            .a_row = a->d_pad,
                            .a_step = 1,
                            .b = a->unit_transposed,
                            .b_ld = a->n_pad,
                            .c = s,
                            .c_ld = a->n_pad};
  brim_cpu_small_run(&product);
  for (int64_t i = 0; i < rows; i++, s += a->n_pad) {
    for (int64_t j = 0; j < a->count; j++) s[j] *= a->inverse_temperature;
    s[k + i] = -INFINITY;
  }
}

BRIM_CPU_CLONES static double exp_sum(const float *s, int64_t n, float max) {
  double total = 0;
  for (int64_t j = 0; j < n; j += BRIM_CPU_BLOCK) {
    int64_t end = brim_cpu_min(j + BRIM_CPU_BLOCK, n);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = j; i < end; i++) sum += brim_cpu_exp_down(s[i] - max);
    total += (double)sum;
  }
  return total;
}

static void row_loss(const ntxent_arg *a, int64_t k, const float *s) {
  float max = -INFINITY;
  int64_t best = -1, pair = pair_of(a, k);
  for (int64_t j = 0; j < a->count; j++) {
    if (s[j] > max) max = s[j], best = j;
  }
  double lse = (double)max + log(exp_sum(s, a->count, max));
  a->lse[k] = (float)lse;
  a->loss[k] = lse - (double)s[pair];
  a->hit[k] = best == pair ? 1.0f : 0.0f;
}

// Turns similarities of a row into the weights of the other rows in its gradient.
BRIM_CPU_CLONES static void weigh(const float *restrict lse, float own, float *restrict s,
                                  int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) s[j] = brim_cpu_exp(s[j] - own) + brim_cpu_exp(s[j] - lse[j]);
}

// Turns the gradient of a unit row into that of the row of z and stores it: removes the part along the row,
// scales, and divides by the row's length.
static void store_gradient(const ntxent_arg *a, int64_t k, float *g) {
  const float *u = a->unit + k * a->d_pad;
  double along = 0;
  for (int64_t j = 0; j < a->d; j++) along += (double)g[j] * (double)u[j];
  float factor = a->scale * 0.5f * a->inverse_temperature / a->length[k];
  for (int64_t j = 0; j < a->d; j++) g[j] = (g[j] - (float)along * u[j]) * factor;
  int64_t at = row_of(a, k) * a->d;
  if (a->type == BRIM_F32) {
    memcpy((float *)a->dz + at, g, (size_t)a->d * sizeof *g);
  } else {
    brim_cpu_flush(a->dz, a->type, at, a->d, g);
  }
}

static void gradient_block(const ntxent_arg *a, int64_t k, int64_t rows, float *s, float *g) {
  for (int64_t i = 0; i < rows; i++) {
    float *row = s + i * a->n_pad;
    weigh(a->lse, a->lse[k + i], row, a->count);
    row[k + i] = 0.0f;
    row[pair_of(a, k + i)] -= 2.0f;
  }
  brim_cpu_small product = {.m = rows,
                            .n = a->d,
                            .k = a->count,
                            .a = s,
                            .a_row = a->n_pad,
                            .a_step = 1,
                            .b = a->unit,
                            .b_ld = a->d_pad,
                            .c = g,
                            .c_ld = a->d_pad};
  brim_cpu_small_run(&product);
  for (int64_t i = 0; i < rows; i++) store_gradient(a, k + i, g + i * a->d_pad);
}

static void clear_padding(const ntxent_arg *a) {
  size_t row = (size_t)a->d * brim_cpu_size(a->type);
  size_t bytes = (size_t)(a->half - a->samples) * row;
  memset((char *)a->dz + (size_t)a->samples * row, 0, bytes);
  memset((char *)a->dz + (size_t)(a->half + a->samples) * row, 0, bytes);
}

static void normalise_body(void *arg, int rank, int size) {
  const ntxent_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->count, BLOCK_ROWS, rank, size, &lo, &hi);
  normalise(a, lo, hi);
  if (rank > 0) return;
  for (int64_t j = 0; j < a->d; j++) {
    for (int64_t k = a->count; k < a->n_pad; k++) a->unit_transposed[j * a->n_pad + k] = 0.0f;
  }
  if (a->dz) clear_padding(a);
}

static void loss_body(void *arg, int rank, int size) {
  const ntxent_arg *a = arg;
  float *s = a->buffers + (size_t)rank * a->buffer_size;
  int64_t lo, hi;
  brim_cpu_split(a->count, BLOCK_ROWS, rank, size, &lo, &hi);
  for (int64_t k = lo; k < hi; k += BLOCK_ROWS) {
    int64_t rows = brim_cpu_min(BLOCK_ROWS, hi - k);
    similarities(a, k, rows, s);
    for (int64_t i = 0; i < rows; i++) row_loss(a, k + i, s + i * a->n_pad);
  }
}

static void gradient_body(void *arg, int rank, int size) {
  const ntxent_arg *a = arg;
  float *s = a->buffers + (size_t)rank * a->buffer_size, *g = s + BLOCK_ROWS * a->n_pad;
  int64_t lo, hi;
  brim_cpu_split(a->count, BLOCK_ROWS, rank, size, &lo, &hi);
  for (int64_t k = lo; k < hi; k += BLOCK_ROWS) {
    int64_t rows = brim_cpu_min(BLOCK_ROWS, hi - k);
    similarities(a, k, rows, s);
    gradient_block(a, k, rows, s, g);
  }
}

static brim_status ntxent_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const double *state = call->in[1].data;
  const brim_tensor *dz = brim_cpu_out(call, 1);
  ntxent_arg a = {.z = call->in[0].data,
                  .dz = dz ? dz->data : NULL,
                  .type = call->in[0].dtype,
                  .half = call->in[0].dim[0] / 2,
                  .d = call->in[0].dim[1],
                  .inverse_temperature = 1.0f / call->attr.temperature};
  a.samples = brim_cpu_valid(state, BRIM_STATE_SAMPLES, a.half);
  a.count = 2 * a.samples;
  a.scale = (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
  lay_out(&a, call->in[0].dim[0], device->threads, call->workspace);
  double work = (double)a.count * (double)a.count * (double)a.d;
  const int threads = brim_cpu_team_for(device->threads, work, BRIM_CPU_TEAM_PRODUCTS);
  brim_cpu_team_run(threads, normalise_body, &a);
  brim_cpu_team_run(threads, loss_body, &a);
  if (a.dz) brim_cpu_team_run(threads, gradient_body, &a);
  double loss = 0, correct = 0, bad = 0;
  for (int64_t i = 0; i < a.samples; i++) {
    double both = 0.5 * (a.loss[i] + a.loss[i + a.samples]);
    if (isfinite(both)) {
      loss += both;
      correct += (double)a.hit[i];
    } else {
      bad += 1;
    }
  }
  float *metrics = call->out[0].data;
  metrics[BRIM_METRIC_LOSS] += (float)loss;
  metrics[BRIM_METRIC_CORRECT] += (float)correct;
  metrics[BRIM_METRIC_ROWS] += (float)a.samples;
  metrics[BRIM_METRIC_BAD] += (float)bad;
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_NTXENT, brim_cpu_validate, ntxent_prepare, ntxent_run, NULL},
};

const brim_op_family brim_cpu_ntxent_ops = {rows, sizeof rows / sizeof *rows};
