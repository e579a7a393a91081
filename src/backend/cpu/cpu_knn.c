// UNIT and KNN: rows of length 1, and for each row the neighbours that vote. A heap keeps the nearest so
// far with the farthest of them on top; most candidates are farther than the top and are skipped. Votes are
// integers, so they do not depend on threads and orders.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

//---------------------------------- unit ----------------------------------

typedef struct unit_arg {
  const void *x;
  brim_dtype type;
  float *y;
  int64_t rows, cols;
} unit_arg;

BRIM_CPU_CLONES static void unit_body(void *arg, int rank, int size) {
  const unit_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->rows, 1, rank, size, &lo, &hi);
  for (int64_t r = lo; r < hi; r++) {
    float *y = a->y + r * a->cols;
    double squares = 0;
    for (int64_t i = 0; i < a->cols; i++) y[i] = brim_cpu_get(a->x, a->type, r * a->cols + i);
    for (int64_t i = 0; i < a->cols; i++) squares += (double)y[i] * (double)y[i];
    double length = sqrt(squares);
    float over = (float)(1 / (length < 1e-12 ? 1e-12 : length));
    for (int64_t i = 0; i < a->cols; i++) y[i] *= over;
  }
}

static brim_status unit_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  unit_arg a = {.x = call->in[0].data,
                .type = call->in[0].dtype,
                .y = call->out[0].data,
                .rows = call->in[0].dim[0],
                .cols = call->in[0].dim[1]};
  brim_cpu_team_run(
      brim_cpu_team_for(device->threads, (double)(a.rows * a.cols), BRIM_CPU_TEAM_EXPS), unit_body,
      &a);
  return BRIM_OK;
}

//---------------------------------- knn ----------------------------------

typedef struct neighbour {
  float s;
  int32_t index;
} neighbour;

typedef struct knn_arg {
  const float *s;  // (rows, bank)
  const int32_t *labels, *truth;
  int32_t *guess;  // may be NULL
  int64_t rows, bank, valid, k;
  int32_t classes;
  float temperature;
  int64_t *counts;  // (threads, 8): correct, bad and room to fill a cache line
  char *scratch;    // per thread: k neighbours, then a vote per class
  size_t scratch_bytes;
} knn_arg;

static int64_t most_neighbours(const brim_op_call *call) {
  return brim_cpu_min(call->attr.neighbours, call->in[0].dim[1]);
}

static size_t scratch_bytes(const brim_op_call *call) {
  return brim_cpu_round64((size_t)most_neighbours(call) * sizeof(neighbour)) +
         brim_cpu_round64((size_t)call->attr.classes * sizeof(int64_t));
}

static brim_status knn_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  call->workspace_bytes =
      (size_t)device->threads * (scratch_bytes(call) + brim_cpu_round64(2 * sizeof(int64_t)));
  return BRIM_OK;
}

// True if x is farther than y. Of equals the one with the larger index is farther.
static bool farther(neighbour x, neighbour y) {
  return x.s < y.s || (x.s == y.s && x.index > y.index);
}

static void sift_down(neighbour *heap, int64_t count) {
  neighbour moved = heap[0];
  int64_t at = 0;
  for (int64_t child = 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && farther(heap[child + 1], heap[child])) child++;
    if (!farther(heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

static void sift_up(neighbour *heap, int64_t at) {
  neighbour moved = heap[at];
  while (at > 0 && farther(moved, heap[(at - 1) / 2])) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = moved;
}

static int64_t nearest(const knn_arg *a, int64_t row, neighbour *heap) {
  const float *s = a->s + row * a->bank;
  int64_t count = 0;
  for (int64_t i = 0; i < a->bank; i++) {
    if (count == a->k && !(s[i] > heap[0].s)) continue;
    if (isnan(s[i])) continue;
    neighbour found = {s[i], (int32_t)i};
    if (count < a->k) {
      heap[count] = found;
      sift_up(heap, count++);
    } else {
      heap[0] = found;
      sift_down(heap, count);
    }
  }
  return count;
}

static int32_t vote(const knn_arg *a, int64_t row, neighbour *heap, int64_t *votes) {
  int64_t count = nearest(a, row, heap);
  if (count == 0) return -1;
  float top = heap[0].s;
  for (int64_t i = 1; i < count; i++) top = heap[i].s > top ? heap[i].s : top;
  memset(votes, 0, (size_t)a->classes * sizeof *votes);
  for (int64_t i = 0; i < count; i++) {
    int32_t label = a->labels[heap[i].index];
    if (label < 0 || label >= a->classes) continue;
    double away = heap[i].s == top ? 0 : ((double)heap[i].s - (double)top) / (double)a->temperature;
    votes[label] += (int64_t)(exp(away) * 0x1p40 + 0.5);
  }
  int32_t best = 0;
  for (int32_t c = 1; c < a->classes; c++) {
    if (votes[c] > votes[best]) best = c;
  }
  return best;
}

static void knn_body(void *arg, int rank, int size) {
  const knn_arg *a = arg;
  int64_t lo, hi, correct = 0, bad = 0;
  neighbour *heap = (neighbour *)(void *)(a->scratch + (size_t)rank * a->scratch_bytes);
  int64_t *votes =
      (int64_t *)(void *)((char *)heap + brim_cpu_round64((size_t)a->k * sizeof(neighbour)));
  brim_cpu_split(a->rows, 1, rank, size, &lo, &hi);
  for (int64_t row = lo; row < hi; row++) {
    bool counts = row < a->valid;
    int32_t label = counts ? vote(a, row, heap, votes) : -1;
    if (a->guess) a->guess[row] = label;
    if (!counts) continue;
    bool known = a->truth[row] >= 0 && a->truth[row] < a->classes;
    bad += label < 0 || !known;
    correct += label >= 0 && known && label == a->truth[row];
  }
  a->counts[rank * 8] = correct;
  a->counts[rank * 8 + 1] = bad;
}

static brim_status knn_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const brim_tensor *guess = brim_cpu_out(call, 1);
  knn_arg a = {.s = call->in[0].data,
               .labels = call->in[1].data,
               .truth = call->in[2].data,
               .guess = guess ? guess->data : NULL,
               .rows = call->in[0].dim[0],
               .bank = call->in[0].dim[1],
               .k = most_neighbours(call),
               .classes = call->attr.classes,
               .temperature = call->attr.temperature,
               .counts = call->workspace,
               .scratch_bytes = scratch_bytes(call)};
  a.valid = brim_cpu_valid_rows(call->in[3].data, a.rows);
  a.scratch =
      (char *)call->workspace + (size_t)device->threads * brim_cpu_round64(2 * sizeof(int64_t));
  memset(a.counts, 0, (size_t)device->threads * 8 * sizeof *a.counts);
  int threads = brim_cpu_team_for(device->threads, (double)(a.rows * a.bank), BRIM_CPU_TEAM_EXPS);
  brim_cpu_team_run(threads, knn_body, &a);
  int64_t correct = 0, bad = 0;
  for (int i = 0; i < device->threads; i++) {
    correct += a.counts[i * 8];
    bad += a.counts[i * 8 + 1];
  }
  float *metrics = call->out[0].data;
  metrics[BRIM_METRIC_CORRECT] += (float)correct;
  metrics[BRIM_METRIC_ROWS] += (float)a.valid;
  metrics[BRIM_METRIC_BAD] += (float)bad;
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_UNIT, brim_cpu_validate, NULL, unit_run, NULL},
    {BRIM_OP_KNN, brim_cpu_validate, knn_prepare, knn_run, NULL},
};

const brim_op_family brim_cpu_knn_ops = {rows, sizeof rows / sizeof *rows};
