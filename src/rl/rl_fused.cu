// Fused updates on a GPU: the extension BRIM_FUSED_EXTENSION. Each network of an update is one launch of a
// block per multiprocessor; then the blocks' gradients and sums of losses are added up in the order of
// blocks.
#include "rl/rl_fused.h"

#include "rl/rl_fused_f32.cuh"
#include "rl/rl_fused_roles.cuh"
#include "rl/rl_fused_update.cuh"
#include "rl/rl_host.cuh"

//---------------------------------- sums over blocks ----------------------------------

enum { ADD_NUMBERS = 64, ADD_PARTS = 4, NETS = 2 };

struct fused_add_net {
  const float *grads;
  const double *sums;
  int64_t numbers;  // gradients of the network
  int32_t blocks, first_metric, metrics;
  fused_places places;  // where each tensor begins in them
  float *weight[BRIM_FUSED_LAYERS], *bias[BRIM_FUSED_LAYERS];
};

struct fused_add_args {
  fused_add_net net[NETS];
  unsigned first[NETS + 1];  // first thread block of each network; the last adds the metrics
  double *metrics;
};

__device__ static float *fused_place(const fused_add_net &n, int64_t at) {
  for (int i = BRIM_FUSED_LAYERS - 1; i >= 0; i--) {
    if (at >= n.places.bias[i]) return n.bias[i] + (at - n.places.bias[i]);
    if (at >= n.places.weight[i]) return n.weight[i] + (at - n.places.weight[i]);
  }
  return NULL;
}

// Adds a number over the update's blocks with ADD_PARTS threads; each takes a part of the blocks.
__device__ static void fused_add_number(const fused_add_net &n, int64_t first) {
  __shared__ float room[ADD_PARTS][ADD_NUMBERS];
  const int number = (int)threadIdx.x % ADD_NUMBERS, part = (int)threadIdx.x / ADD_NUMBERS;
  const int64_t at = first + number;
  const int begin = n.blocks * part / ADD_PARTS, end = n.blocks * (part + 1) / ADD_PARTS;
  float sum = 0.0f;
  if (at < n.numbers) {
#pragma unroll 8
    for (int b = begin; b < end; b++) sum += n.grads[b * n.numbers + at];
  }
  room[part][number] = sum;
  __syncthreads();
  if (part > 0 || at >= n.numbers) return;
  for (int k = 1; k < ADD_PARTS; k++) sum += room[k][number];
  *fused_place(n, at) = sum;
}

static __global__ void __launch_bounds__(ADD_NUMBERS *ADD_PARTS)
    fused_add_kernel(const __grid_constant__ fused_add_args w) {
  for (int i = 0; i < NETS; i++) {
    if (blockIdx.x < w.first[i] || blockIdx.x >= w.first[i + 1]) continue;
    fused_add_number(w.net[i], (int64_t)(blockIdx.x - w.first[i]) * ADD_NUMBERS);
    return;
  }
  const int k = (int)threadIdx.x % 32, i = (int)threadIdx.x / 32;
  if (i >= NETS || k >= w.net[i].metrics) return;
  double sum = 0;
#pragma unroll 8
  for (int b = 0; b < w.net[i].blocks; b++) sum += w.net[i].sums[(int64_t)b * FUSED_METRICS + k];
  w.metrics[w.net[i].first_metric + k] += sum;
}

//---------------------------------- launches ----------------------------------

// An attribute of the current device; 0 on failure.
static int fused_attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) || cudaDeviceGetAttribute(&value, which, device)) {
    cudaGetLastError();
    return 0;
  }
  return value;
}

// The sizes of a kernel: the padded hidden numbers and inputs it is compiled for (inputs 0 = REST), and
// its launch.
struct fused_form {
  int32_t hidden, inputs;
  size_t bytes;     // of shared memory
  int32_t rows;     // of a tile
  int32_t threads;  // of a block
  int32_t teams;    // of a block that have sums of their own
};

template <class A>
static brim_status fused_start(void (*kernel)(A), const fused_form *form, int32_t blocks,
                               cudaStream_t stream, const A &args) {
  BRIM_TRY(rl_cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)form->bytes),
      "mappo.fused: shared memory"));
  kernel<<<(unsigned)blocks, (unsigned)form->threads, form->bytes, stream>>>(args);
  return rl_cuda_check(cudaGetLastError(), "mappo.fused: launch");
}

template <int H, int K>
static fused_form fused_form_of() {
  return {H,
          K,
          sizeof(fused_shared<H, K>),
          fused_sizes<H, K>::M,
          fused_sizes<H, K>::BLOCK,
          fused_sizes<H, K>::TEAMS};
}

// The f32 kernels (rl_fused_f32.cuh).
template <int H>
static fused_form plain_form_of() {
  return {H, PLAIN_K, sizeof(plain_shared<H>), PLAIN_M, FUSED_THREADS, 1};
}

template <int H>
static fused_form roles_form_of() {
  return {H, ROLES_K, sizeof(roles_shared<H>), ROLES_ROWS, ROLES_THREADS, 1};
}

static fused_form fused_form_find(const brim_fused_net *n, brim_fused_way way) {
  const bool narrow = n->hidden <= 64;
  if (n->dtype == BRIM_F32) return narrow ? plain_form_of<64>() : plain_form_of<128>();
  if (way == BRIM_FUSED_REST) {
    if (n->hidden > 128) return fused_form_of<256, 0>();
    return narrow ? fused_form_of<64, 0>() : fused_form_of<128, 0>();
  }
  if (n->inputs > 32) return narrow ? fused_form_of<64, 64>() : fused_form_of<128, 64>();
  return narrow ? fused_form_of<64, 32>() : fused_form_of<128, 32>();
}

static bool fused_fits(const brim_fused_net *n, brim_fused_way way) {
  const int room = fused_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return fused_form_find(n, way).bytes <= (size_t)room;
}

static brim_fused_way fused_way(const brim_fused_net *n) {
  const bool bf16 = n->dtype == BRIM_BF16;
  const bool whole = n->hidden <= BRIM_FUSED_MAX_WHOLE && n->inputs <= BRIM_FUSED_MAX_INPUTS;
  if ((!bf16 && n->dtype != BRIM_F32) || (n->act != BRIM_ACT_TANH && n->act != BRIM_ACT_RELU)) {
    return BRIM_FUSED_NOT;
  }
  if (n->inputs < 8 || n->inputs % 8 || n->hidden < 1 || n->outputs < 1 ||
      n->outputs > BRIM_FUSED_MAX_OUTPUTS) {
    return BRIM_FUSED_NOT;
  }
  const bool rest = bf16 && n->hidden <= BRIM_FUSED_MAX_HIDDEN && n->hidden % 8 == 0;
  if (fused_attribute(cudaDevAttrComputeCapabilityMajor) < 8) return BRIM_FUSED_NOT;
  if (whole && fused_fits(n, BRIM_FUSED_WHOLE)) return BRIM_FUSED_WHOLE;
  // REST takes less shared memory than WHOLE
  return rest && fused_fits(n, BRIM_FUSED_REST) ? BRIM_FUSED_REST : BRIM_FUSED_NOT;
}

// The kernel of an actor: the one with roles for warps if it takes the network, else the usual one.
static fused_form fused_form_actor(const brim_fused_net *n, brim_fused_way way) {
  const fused_form usual = fused_form_find(n, way);
  if (n->dtype != BRIM_BF16 || usual.inputs != ROLES_K) return usual;
  const fused_form roles = usual.hidden > 64 ? roles_form_of<128>() : roles_form_of<64>();
  const int room = fused_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return roles.bytes <= (size_t)room ? roles : usual;
}

static int32_t fused_blocks(const fused_form *form, int64_t rows) {
  const int64_t each = (int64_t)form->rows * form->teams, tiles = (rows + each - 1) / each;
  const int most = fused_attribute(cudaDevAttrMultiProcessorCount);
  return (int32_t)(tiles < most ? tiles : most > 0 ? most : 1);
}

//---------------------------------- updates ----------------------------------

// Offsets in the scratch memory, in bytes.
struct fused_scratch_layout {
  size_t grads[NETS], sums[NETS], bytes;
};

static fused_scratch_layout fused_scratch_layout_of(const brim_fused_net *const *nets) {
  const size_t processors = (size_t)fused_attribute(cudaDevAttrMultiProcessorCount);
  fused_scratch_layout r;
  r.bytes = 0;
  for (int i = 0; i < NETS; i++) {
    const brim_fused_net *n = nets[i];
    const size_t blocks = processors * (size_t)fused_form_find(n, fused_way(n)).teams;
    const fused_places p =
        fused_places_of(n->inputs, n->hidden, n->outputs, fused_way(n) == BRIM_FUSED_WHOLE);
    r.grads[i] = r.bytes;
    r.bytes += (blocks * (size_t)p.all * sizeof(float) + 255) & ~(size_t)255;
    r.sums[i] = r.bytes;
    r.bytes += (blocks * FUSED_METRICS * sizeof(double) + 255) & ~(size_t)255;
  }
  return r;
}

static brim_status fused_scratch(const brim_ppo_shape *shape, const brim_fused_net *actor,
                                 const brim_fused_net *critic, size_t *bytes) {
  const brim_fused_net *nets[NETS] = {actor, critic};
  const char *problem = brim_ppo_problem(shape);
  if (problem) return rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem));
  *bytes = fused_scratch_layout_of(nets).bytes;
  return BRIM_OK;
}

static fused_loss fused_loss_of(const brim_ppo_shape *shape, const brim_fused_update *u,
                                bool critic) {
  const brim_ppo_losses *l = &u->losses;
  fused_loss w;
  w.rows = l->rows;
  w.action = l->action;
  w.mask = l->mask;
  w.allowed = u->allowed;
  w.logp = l->logp;
  w.adv = l->adv;
  w.ret = l->ret;
  w.old = l->old;
  w.norm = l->norm;
  w.moments = l->moments;
  w.state = critic ? l->critic.state : l->actor.state;
  w.clip = l->clip;
  w.value_clip = l->value_clip;
  w.value_coef = l->value_coef;
  w.entropy = l->entropy;
  w.huber = l->huber;
  w.agents = fused_divide::of(critic ? 1 : shape->agents);
  w.act = shape->act;
  w.rewards = shape->rewards;
  w.critic = critic;
  return w;
}

// A kernel's arguments for a network: A is their struct, T the type of the network's numbers.
template <class A, class T>
static A fused_args_of(const brim_fused_net *n, const void *input, int64_t count) {
  A a;
  memset((void *)&a, 0, sizeof a);
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    a.weight[i] = (const T *)n->weight[i];
    a.bias[i] = (const T *)n->bias[i];
  }
  a.input = (const T *)input;
  a.inputs = n->inputs;
  a.hidden = n->hidden;
  a.outputs = n->outputs;
  a.relu = n->act == BRIM_ACT_RELU;
  a.count = count;
  return a;
}

static int fused_index(const fused_form *f) {
  return (f->hidden > 128 ? 2 : f->hidden > 64) * 3 + (f->inputs == 0 ? 0 : f->inputs / 32);
}

static brim_status fused_run(const fused_form *f, int32_t blocks, cudaStream_t stream,
                             const fused_update_args &a) {
  static void (*const kernels[])(fused_update_args) = {
      fused_update_kernel<64, 0>,  fused_update_kernel<64, 32>,  fused_update_kernel<64, 64>,
      fused_update_kernel<128, 0>, fused_update_kernel<128, 32>, fused_update_kernel<128, 64>,
      fused_update_kernel<256, 0>};
  static void (*const roles[2][2])(fused_update_args) = {
      {roles_kernel<64, false>, roles_kernel<64, true>},
      {roles_kernel<128, false>, roles_kernel<128, true>}};
  if (f->rows == ROLES_ROWS && f->inputs == ROLES_K) {
    return fused_start(roles[f->hidden > 64][a.relu], f, blocks, stream, a);
  }
  return fused_start(kernels[fused_index(f)], f, blocks, stream, a);
}

// One network; says in `add` what is to be added up.
static brim_status fused_update_net(const brim_rollout_where *where, const brim_ppo_shape *shape,
                                    const brim_fused_update *u, bool critic,
                                    const fused_scratch_layout *rooms, fused_add_net *add) {
  const brim_fused_part *part = critic ? &u->critic : &u->actor;
  const brim_fused_net *n = &part->net;
  const brim_fused_way way = fused_way(n);
  if (way == BRIM_FUSED_NOT) {
    return rl_cuda_fail(BRIM_EUNSUPPORTED, BRIM_N_("networks of such a shape are not fused"));
  }
  const fused_form form = critic ? fused_form_find(n, way) : fused_form_actor(n, way);
  const int64_t count = shape->batch * (critic ? 1 : shape->agents);
  const cudaStream_t stream = (cudaStream_t)where->stream;
  memset((void *)add, 0, sizeof *add);
  add->places = fused_places_of(n->inputs, n->hidden, n->outputs, way == BRIM_FUSED_WHOLE);
  add->numbers = add->places.all;
  const int32_t blocks = fused_blocks(&form, count);
  add->blocks = blocks * form.teams;
  add->grads = (float *)((char *)u->scratch + rooms->grads[critic]);
  add->sums = (double *)((char *)u->scratch + rooms->sums[critic]);
  add->first_metric = critic ? BRIM_PPO_ACTOR_METRICS : 0;
  add->metrics = critic ? BRIM_PPO_METRIC_COUNT - BRIM_PPO_ACTOR_METRICS : BRIM_PPO_ACTOR_METRICS;
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    add->weight[i] = n->weight_grad[i];
    add->bias[i] = n->bias_grad[i];
  }
  if (n->dtype == BRIM_F32) {
    plain_args a = fused_args_of<plain_args, float>(n, part->input, count);
    a.listed = part->listed;
    a.loss = fused_loss_of(shape, u, critic);
    a.grads = (float *)add->grads;
    a.grads_each = add->numbers;
    a.sums = (double *)add->sums;
    return fused_start(form.hidden > 64 ? plain_kernel<128, false> : plain_kernel<64, false>, &form,
                       add->blocks, stream, a);
  }
  fused_update_args a = fused_args_of<fused_update_args, uint16_t>(n, part->input, count);
  a.listed = part->listed;
  a.z = (uint16_t *)part->z;
  a.h = (uint16_t *)part->h;
  a.g = (uint16_t *)part->g;
  a.loss = fused_loss_of(shape, u, critic);
  a.grads = (float *)add->grads;
  a.grads_each = add->numbers;
  a.sums = (double *)add->sums;
  return fused_run(&form, blocks, stream, a);
}

// NULL = an update can be made.
static const char *fused_problem(const brim_ppo_shape *shape, const brim_fused_net *const *nets) {
  const char *problem = brim_ppo_problem(shape);
  if (problem) return problem;
  if (shape->act > BRIM_FUSED_MAX_ACT || shape->act > nets[0]->outputs) {
    return BRIM_N_("the actor's tensors do not fit the minibatch");
  }
  if (shape->batch < 1 || shape->rewards > nets[1]->outputs) {
    return BRIM_N_("the critic's tensors do not fit the minibatch");
  }
  return NULL;
}

static brim_status fused_update(const brim_rollout_where *where, const brim_ppo_shape *shape,
                                const brim_fused_update *u) {
  const brim_fused_net *nets[NETS] = {&u->actor.net, &u->critic.net};
  const char *problem = fused_problem(shape, nets);
  if (problem) return rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem));
  BRIM_TRY(rl_cuda_enter(u->scratch, "mappo.fused: the device's memory"));
  const fused_scratch_layout rooms = fused_scratch_layout_of(nets);
  fused_add_args add;
  unsigned blocks = 0;
  for (int i = 0; i < NETS; i++) {
    BRIM_TRY(fused_update_net(where, shape, u, i > 0, &rooms, &add.net[i]));
    add.first[i] = blocks;
    blocks += (unsigned)((add.net[i].numbers + ADD_NUMBERS - 1) / ADD_NUMBERS);
  }
  add.first[NETS] = blocks;
  add.metrics = u->losses.metrics;
  fused_add_kernel<<<blocks + 1, ADD_NUMBERS * ADD_PARTS, 0, (cudaStream_t)where->stream>>>(add);
  return rl_cuda_check(cudaGetLastError(), "mappo.fused: sums");
}

//---------------------------------- values ----------------------------------

static brim_status fused_values(const brim_rollout_where *where, const brim_fused_net *n,
                                const void *input, int64_t rows, void *outputs) {
  BRIM_TRY(rl_cuda_enter(outputs, "mappo.fused: the device's memory"));
  if (fused_way(n) != BRIM_FUSED_WHOLE) {
    return rl_cuda_fail(BRIM_EUNSUPPORTED, BRIM_N_("networks of such a shape are not fused"));
  }
  if (rows < 1) return BRIM_OK;
  const fused_form form = fused_form_find(n, BRIM_FUSED_WHOLE);
  const int32_t blocks = fused_blocks(&form, rows);
  const cudaStream_t stream = (cudaStream_t)where->stream;
  if (n->dtype == BRIM_F32) {
    plain_args a = fused_args_of<plain_args, float>(n, input, rows);
    a.values = (float *)outputs;
    return fused_start(form.hidden > 64 ? plain_kernel<128, true> : plain_kernel<64, true>, &form,
                       blocks, stream, a);
  }
  static void (*const kernels[])(fused_values_args) = {
      NULL, fused_values_kernel<64, 32>,  fused_values_kernel<64, 64>,
      NULL, fused_values_kernel<128, 32>, fused_values_kernel<128, 64>};
  fused_values_args a;
  a.net = fused_args_of<fused_update_args, uint16_t>(n, input, rows);
  a.outputs = (uint16_t *)outputs;
  return fused_start(kernels[fused_index(&form)], &form, blocks, stream, a);
}

extern "C" {
const brim_fused_table brim_fused_cuda = {BRIM_FUSED_ABI, fused_way, fused_scratch, fused_update,
                                          fused_values};
void brim_fused_cuda_set_host(const brim_host_api *host) { rl_cuda_host = host; }
}
