// Convolutions, NHWC: which engine of cuDNN does one (remembered, measured, or the first that its
// heuristics propose), and how a weight gradient comes to be f32 and added. cuDNN itself is in
// cuda_cudnn.cu, brim's own kernels in cuda_conv_direct.cu.
#include "backend/cuda/cuda_conv.cuh"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_cudnn.cuh"

// How the result gets where it belongs. ADD and ROUND are for weight gradients.
enum conv_way {
  WAY_OWN,    // brim's own kernels
  WAY_INTO,   // cuDNN writes (or adds) straight into the output
  WAY_ADD,    // cuDNN writes f32 into the workspace, which is added to dw
  WAY_ROUND,  // cuDNN writes T into the workspace, which is converted or added
  WAY_COUNT
};
static const char *const way_names[WAY_COUNT] = {"own", "into", "add", "round"};

enum { ALIGN = 256, PRECISE = 12, ROUNDED = 8 };  // plans that are timed at most
// A weight gradient rounded to T must be this much faster to be worth its lost digits.
static const float round_price = 1.15f;

struct conv_state {
  brim_cuda_conv conv;
  conv_way way;
  brim_cuda_dnn_problem *problem;
  brim_cuda_dnn_plan plan;
  size_t room;    // at the start of the workspace: dw on its way
  size_t budget;  // behind it: cuDNN's
};

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

//---------------------------------- shapes ----------------------------------

// The tensors in the order x, w, y, whatever the op.
static void tensors_of(const brim_op_call *c, const brim_tensor *t[3]) {
  bool forward = c->op == BRIM_OP_CONV, weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  t[0] = forward ? &c->in[0] : weight ? &c->in[1] : &c->out[0];
  t[1] = weight ? &c->out[0] : &c->in[1];
  t[2] = forward ? &c->out[0] : &c->in[0];
}

static brim_cuda_conv conv_of(const brim_op_call *call) {
  const brim_tensor *t[3];
  tensors_of(call, t);
  brim_cuda_conv c;
  memset(&c, 0, sizeof c);
  c.op = call->op;
  c.type = call->in[0].dtype;
  c.n = t[0]->dim[0];
  c.h = t[0]->dim[1];
  c.w = t[0]->dim[2];
  c.c = t[0]->dim[3];
  c.m = t[1]->dim[0];
  c.r = t[1]->dim[1];
  c.s = t[1]->dim[2];
  c.p = t[2]->dim[1];
  c.q = t[2]->dim[2];
  c.stride = call->attr.stride;
  c.pad = call->attr.pad;
  c.tf32 = c.type == BRIM_F32 && call->attr.tf32;
  c.accumulate = call->op == BRIM_OP_CONV_BWD_WEIGHT && call->attr.accumulate;
  return c;
}

static size_t type_bytes(brim_dtype type) { return type == BRIM_F32 ? 4 : 2; }
static int64_t weight_count(const brim_cuda_conv *c) { return c->m * c->r * c->s * c->c; }

// The workspace is a function of the shape and the options alone, so that a plan made without
// timing equals what is allocated. Engines that work on another layout want copies of both images
// and of the weights; in f32 without tensor cores there are no others worth having (cuDNN 9.19,
// H200). Tensor-core engines want little: weights split over k parts want sums in f32.
static void size_workspace(const brim_cuda *d, conv_state *s) {
  const brim_cuda_conv *c = &s->conv;
  const size_t mib = (size_t)1 << 20;
  size_t images = (size_t)(c->n * (c->h * c->w * c->c + c->p * c->q * c->m)) * type_bytes(c->type);
  size_t weights = round_up((size_t)weight_count(c) * sizeof(float));
  bool strict = c->type == BRIM_F32 && !c->tf32;
  s->budget = strict && images > 8 * mib ? images : 8 * mib;
  if (s->budget > 1024 * mib) s->budget = 1024 * mib;
  s->budget = round_up(s->budget + weights + mib);
  size_t cap = d->conv_workspace_cap;
  if (cap && s->budget > cap) s->budget = cap / ALIGN * ALIGN;
  // The detour of dw: in f32 to be added, in its own type to be widened.
  bool narrow = c->type != BRIM_F32 && !c->accumulate;
  bool detour = c->op == BRIM_OP_CONV_BWD_WEIGHT && (c->accumulate || narrow);
  s->room = !detour ? 0 : narrow ? round_up((size_t)weight_count(c) * 2) : weights;
}

static void key_of(const brim_cuda *d, const conv_state *s, char key[BRIM_CUDA_ALGO_CHARS]) {
  static const char *const types[] = {"f32", "bf16", "f16"};
  const brim_cuda_conv *c = &s->conv;
  const char *op = c->op == BRIM_OP_CONV            ? "fwd"
                   : c->op == BRIM_OP_CONV_BWD_DATA ? "data"
                                                    : "weight";
  const char *type = c->tf32 ? "tf32"
                             : types[c->type == BRIM_F32    ? 0
                                     : c->type == BRIM_BF16 ? 1
                                                            : 2];
  snprintf(key, BRIM_CUDA_ALGO_CHARS,
           "conv/%s%s/%s/n%lldh%lldw%lldc%lldm%lldr%llds%lld/stride%lldpad%lld/workspace%zu%s", op,
           c->accumulate ? "+" : "", type, (long long)c->n, (long long)c->h, (long long)c->w,
           (long long)c->c, (long long)c->m, (long long)c->r, (long long)c->s, (long long)c->stride,
           (long long)c->pad, s->budget >> 10, d->nondeterministic ? "/nondeterministic" : "");
}

//---------------------------------- one way ----------------------------------

static bool possible(const brim_cuda_conv *c, int way) {
  if (way == WAY_INTO) return true;
  if (c->op != BRIM_OP_CONV_BWD_WEIGHT) return false;
  return way == WAY_ADD ? c->accumulate : way == WAY_ROUND && c->type != BRIM_F32;
}

static brim_status open_way(brim_cuda *d, const brim_cuda_conv *c, int way,
                            brim_cuda_dnn_problem **out) {
  bool weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  brim_dtype type = weight && way != WAY_ROUND ? BRIM_F32 : c->type;
  return brim_cuda_dnn_problem_open(d, c, type, way == WAY_INTO && c->accumulate, out);
}

static brim_status run_way(brim_cuda *d, const conv_state *s, int way, brim_cuda_dnn_plan *plan,
                           void *const tensors[3], void *workspace, cudaStream_t stream) {
  char *base = (char *)round_up((size_t)workspace);
  const brim_cuda_conv *c = &s->conv;
  if (way == WAY_OWN) return brim_cuda_conv_direct(c, tensors, base, s->room + s->budget, stream);
  void *targets[3] = {tensors[0], tensors[1], tensors[2]};
  if (way != WAY_INTO) targets[1] = base;
  BRIM_TRY(brim_cuda_dnn_run(d, plan, targets, base + s->room, stream));
  if (way == WAY_INTO) return BRIM_OK;
  return brim_cuda_conv_sum((float *)tensors[1], base, way == WAY_ADD ? BRIM_F32 : c->type,
                            weight_count(c), 1, c->accumulate, stream);
}

// "into 12 2:7", as the table has it.
static void name_choice(const conv_state *s, char value[BRIM_CUDA_ALGO_CHARS]) {
  const char *gap = s->plan.text[0] ? " " : "";
  snprintf(value, BRIM_CUDA_ALGO_CHARS, "%s%s%s", way_names[s->way], gap, s->plan.text);
}

static bool nameable(const conv_state *s) { return s->way == WAY_OWN || s->plan.text[0]; }

// The other direction. False when the value is not understood or cuDNN no longer takes it.
static bool take_choice(brim_cuda *d, conv_state *s, const char *value) {
  if (strcmp(value, way_names[WAY_OWN]) == 0) {
    s->way = WAY_OWN;
    return true;
  }
  for (int way = WAY_INTO; way < WAY_COUNT; way++) {
    size_t length = strlen(way_names[way]);
    if (strncmp(value, way_names[way], length) != 0 || value[length] != ' ') continue;
    if (!possible(&s->conv, way) || open_way(d, &s->conv, way, &s->problem)) return false;
    if (!brim_cuda_dnn_plan_named(d, s->problem, value + length + 1, s->budget, &s->plan)) {
      s->way = (conv_way)way;
      return true;
    }
    brim_cuda_dnn_problem_close(d, s->problem);
    s->problem = NULL;
  }
  return false;
}

// The first plan of the heuristics that is allowed and fits; else brim's own kernels.
static void take_first(brim_cuda *d, conv_state *s) {
  for (int way = WAY_INTO; way < WAY_COUNT; way++) {
    if (!possible(&s->conv, way) || open_way(d, &s->conv, way, &s->problem)) continue;
    if (brim_cuda_dnn_plans(d, s->problem, s->budget, &s->plan, 1)) {
      s->way = (conv_way)way;
      return;
    }
    brim_cuda_dnn_problem_close(d, s->problem);
    s->problem = NULL;
  }
  s->way = WAY_OWN;
}

//---------------------------------- measuring ----------------------------------

// Everything that is timed for one convolution: precise ways first, then rounded ones.
struct conv_race {
  brim_cuda *device;
  const conv_state *state;
  brim_cuda_dnn_problem *problem[WAY_COUNT];
  brim_cuda_dnn_plan plan[PRECISE + ROUNDED];
  int way[PRECISE + ROUNDED];
  int precise, count;
  int first;         // first of the group being timed
  bool starved;      // no memory to time with
  void *tensors[3];  // temporaries
  void *workspace;
};

static void gather(conv_race *r, int way, int max) {
  const conv_state *s = r->state;
  if (max < 1 || !possible(&s->conv, way)) return;
  if (open_way(r->device, &s->conv, way, &r->problem[way])) return;
  int found = brim_cuda_dnn_plans(r->device, r->problem[way], s->budget, &r->plan[r->count], max);
  for (int i = 0; i < found; i++) r->way[r->count++] = way;
}

static brim_status race_run(void *ctx, int candidate, cudaStream_t stream) {
  conv_race *r = (conv_race *)ctx;
  int i = r->first + candidate;
  return run_way(r->device, r->state, r->way[i], &r->plan[i], r->tensors, r->workspace, stream);
}

// Temporaries of the sizes of the call, filled with a small number. NULL when there is no memory.
static char *race_memory(conv_race *r, size_t workspace_bytes) {
  const brim_cuda_conv *c = &r->state->conv;
  size_t x = round_up((size_t)(c->n * c->h * c->w * c->c) * type_bytes(c->type));
  size_t w = round_up((size_t)weight_count(c) * sizeof(float));
  size_t y = round_up((size_t)(c->n * c->p * c->q * c->m) * type_bytes(c->type));
  char *memory = NULL;
  if (BRIM_CUDA(cudaMalloc(&memory, x + w + y + workspace_bytes))) return NULL;
  cudaMemset(memory, 0x3c, x + w + y);  // 0.01 in f32 and bf16, 1.06 in f16
  cudaDeviceSynchronize();
  r->tensors[0] = memory;
  r->tensors[1] = memory + x;
  r->tensors[2] = memory + x + w;
  r->workspace = memory + x + w + y;
  return memory;
}

// Index of the winner; -1 when nothing could be timed.
static int race(conv_race *r, size_t workspace_bytes, float *ms) {
  char *memory = race_memory(r, workspace_bytes);
  r->starved = !memory;
  if (!memory) return -1;
  int best = -1, rounded = -1;
  float rounded_ms = 0;
  *ms = 0;
  if (r->precise && brim_cuda_algo_time(r->device, race_run, r, r->precise, &best, ms)) best = -1;
  r->first = r->precise;
  if (r->count > r->precise &&
      !brim_cuda_algo_time(r->device, race_run, r, r->count - r->precise, &rounded, &rounded_ms)) {
    if (best < 0 || rounded_ms * round_price < *ms) {
      best = r->precise + rounded;
      *ms = rounded_ms;
    }
  }
  cudaFree(memory);
  return best;
}

// False when there is nothing to choose from or, *starved, no memory to choose with.
static bool take_fastest(brim_cuda *d, conv_state *s, size_t workspace_bytes, const char *key,
                         bool *starved) {
  conv_race *r = (conv_race *)brim_cuda_host->alloc(sizeof *r, 0);
  *starved = !r;
  if (!r) return false;
  memset(r, 0, sizeof *r);
  r->device = d;
  r->state = s;
  gather(r, WAY_INTO, PRECISE);
  gather(r, WAY_ADD, PRECISE - r->count);
  r->precise = r->count;
  gather(r, WAY_ROUND, ROUNDED);
  float ms = 0;
  int best = r->count ? race(r, workspace_bytes, &ms) : -1;
  if (best >= 0) {
    s->way = (conv_way)r->way[best];
    s->plan = r->plan[best];
    s->problem = r->problem[s->way];
    r->problem[s->way] = NULL;
    char text[640];
    snprintf(text, sizeof text, "%s: %s %s, %.4f ms, the fastest of %d", key, way_names[s->way],
             s->plan.text, (double)ms, r->count);
    brim_cuda_host->log(3, "cuda", text);
  }
  for (int i = 0; i < r->count; i++) {
    if (i != best) brim_cuda_dnn_plan_close(d, &r->plan[i]);
  }
  for (auto &p : r->problem) brim_cuda_dnn_problem_close(d, p);
  *starved = r->starved;
  brim_cuda_host->free(r);
  return best >= 0;
}

static void choose_ready(brim_cuda *d, conv_state *s, size_t workspace_bytes, const char *key) {
  char value[BRIM_CUDA_ALGO_CHARS];
  if (brim_cuda_algo_find(d, key, value)) {
    if (take_choice(d, s, value)) return;
    char text[2 * BRIM_CUDA_ALGO_CHARS + 64];
    snprintf(text, sizeof text, "%s: the remembered algorithm \"%s\" cannot be had here", key,
             value);
    brim_cuda_host->log(1, "cuda", text);
  }
  bool starved = false;
  bool measured = d->measure_algorithms && take_fastest(d, s, workspace_bytes, key, &starved);
  if (!measured) take_first(d, s);
  if (!nameable(s)) return;
  name_choice(s, value);
  if (measured) {
    brim_cuda_algo_store(d, key, value);
  } else {
    brim_cuda_algo_note(d, key, value, starved);
  }
}

static void choose(brim_cuda *d, conv_state *s, size_t workspace_bytes) {
  s->way = WAY_OWN;
  if (!brim_cuda_dnn_ready(d)) return;
  char key[BRIM_CUDA_ALGO_CHARS], text[BRIM_CUDA_ALGO_CHARS + 192];
  key_of(d, s, key);
  choose_ready(d, s, workspace_bytes, key);
  if (s->way != WAY_OWN || !brim_cuda_algo_tell(d, key)) return;
  snprintf(text, sizeof text,
           "%s: no engine of cuDNN is used for this shape with a workspace of %zu KiB, but brim's "
           "own kernels, which are slow",
           key, s->budget >> 10);
  brim_cuda_host->log(1, "cuda", text);
}

//---------------------------------- the ops ----------------------------------

brim_status brim_cuda_conv_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return brim_cuda_float_type(&c->in[0], "a convolution");
}

// While planning, the size of the workspace is all that is needed: no engine is looked for.
brim_status brim_cuda_conv_prepare(void *impl, brim_op_call *call) {
  brim_cuda_enter(impl);
  brim_cuda *d = (brim_cuda *)impl;
  conv_state *s = (conv_state *)brim_cuda_host->alloc(sizeof *s, 0);
  if (!s) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a convolution");
  memset(s, 0, sizeof *s);
  s->conv = conv_of(call);
  size_workspace(d, s);
  call->workspace_bytes = s->room + s->budget + ALIGN;
  call->state = s;
  if (!call->planning) choose(d, s, call->workspace_bytes);
  return BRIM_OK;
}

void brim_cuda_conv_release(void *impl, brim_op_call *call) {
  brim_cuda *d = (brim_cuda *)impl;
  conv_state *s = (conv_state *)call->state;
  if (!s) return;
  brim_cuda_dnn_plan_close(d, &s->plan);
  brim_cuda_dnn_problem_close(d, s->problem);
  brim_cuda_host->free(s);
  call->state = NULL;
}

brim_status brim_cuda_conv_run(void *impl, void *stream, const brim_op_call *call) {
  brim_cuda_enter(impl);
  conv_state *s = (conv_state *)call->state;
  const brim_tensor *t[3];
  tensors_of(call, t);
  void *const tensors[3] = {t[0]->data, t[1]->data, t[2]->data};
  return run_way((brim_cuda *)impl, s, s->way, &s->plan, tensors, call->workspace,
                 (cudaStream_t)stream);
}
