// Fused rollouts on CUDA against the CPU: the CPU's environments, stepped with the rollout's actions, give the same
// bits of everything but log probabilities. Those are compared with an actor in double precision. Without a GPU there
// is nothing to test.
#include <math.h>

#include "collect_test.h"

#include "backend/backend_half.h"
#include "env/cartpole/cartpole.h"
#include "env/uav/uav.h"
#include "fused_room.h"
#include "rl/rl_fused.h"
#include "rl/rl_ppo_row.h"

enum { CASES = 30, SEED = 23, MOST = BRIM_FUSED_MAX_WHOLE, GUARD = 64 };

//---------------------------------- cases ----------------------------------

typedef struct fused_case {
  const char *name;
  brim_collect_shape shape;
  int32_t inputs, hidden, outputs, act, critic_inputs;
  int32_t masks;  // 1: with the mask `allowed`
} fused_case;

// Number n of case i, between `low` and `high`.
static int32_t pick(int i, int n, int32_t low, int32_t high) {
  const uint32_t bits = brim_philox(brim_rng_key(77, BRIM_RNG_TEST), (uint64_t)i, (uint64_t)n).v[0];
  return low + (int32_t)(bits % (uint32_t)(high - low + 1));
}

static brim_uav_values uav_values(int i) {
  const int peer = i % 3 == 0;
  brim_uav_values v = {.rules = peer ? BRIM_UAV_PEER : BRIM_UAV_BRIM};
  v.task = peer || i % 2 ? BRIM_UAV_GOALS : BRIM_UAV_COVERAGE;
  v.size = pick(i, 0, 4, peer ? 50 : 12);
  v.num_uavs = pick(i, 1, 1, i % 4 == 0 ? 28 : 10);
  v.num_obstacles = pick(i, 2, 0, v.size / 2);
  if (!peer && v.size < 8 && v.num_uavs > 6) v.num_uavs = 6;
  v.crop = peer && v.size >= 5 && i % 2 ? 5 : peer && v.size >= 7 && i % 4 == 2 ? 7 : 3;
  v.episode_steps = pick(i, 3, 2, 30);
  v.team = pick(i, 4, 0, 1);
  return v;
}

static fused_case case_of(int i) {
  fused_case c = {.name = i % 5 == 4 ? "cartpole" : "uav", .masks = i % 7 != 0};
  const int32_t envs = i % 6 == 0 ? pick(i, 5, 1, 4) : pick(i, 5, 5, i % 6 == 1 ? 700 : 150);
  c.shape = (brim_collect_shape){.num_envs = envs, .steps = pick(i, 6, 1, 20), .seed = 5};
  if (i % 5 == 4) {
    c.shape.row = &brim_cartpole_row;
    c.shape.row->defaults(0, c.shape.env.bytes);
    set_value(&c.shape, brim_cartpole_values, reset, 0.15f);
  } else {
    const brim_uav_values v = uav_values(i);
    c.shape.row = &brim_uav_row;
    memcpy(c.shape.env.bytes, &v, sizeof v);
  }
  c.shape.episode_length = pick(i, 7, 2, 25);
  assert_null(brim_collect_problem(&c.shape));
  const brim_env_sizes z = brim_collect_sizes(&c.shape);
  const int32_t critic = z.global ? z.global : z.agents * z.obs;
  c.inputs = (z.obs + 7) / 8 * 8;
  if (c.inputs < 64 && i % 4 == 3) c.inputs += 8;
  c.hidden = i % 3 == 2 ? MOST : 8 * pick(i, 8, 1, MOST / 8);
  c.outputs = i % 2 ? 8 : z.act;
  c.act = i % 4 == 1 ? BRIM_ACT_RELU : BRIM_ACT_TANH;
  c.critic_inputs = (critic + 7) / 8 * 8;
  return c;
}

// An actor's weights and biases, bf16.
typedef struct fused_actor {
  uint16_t weight[BRIM_FUSED_LAYERS][MOST * MOST], bias[BRIM_FUSED_LAYERS][MOST];
} fused_actor;

static uint16_t drawn(int layer, int64_t n, double scale) {
  const brim_philox4 r = brim_philox(brim_rng_key(78, BRIM_RNG_TEST), (uint64_t)layer, (uint64_t)n);
  return brim_f32_to_bf16((float)(scale * (double)brim_env_signed(r.v[0])));
}

static fused_actor *actor_of(const fused_case *c) {
  const int32_t in[] = {c->inputs, c->hidden, c->hidden},
                out[] = {c->hidden, c->hidden, c->outputs};
  fused_actor *a = malloc(sizeof *a);
  assert_non_null(a);
  for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
    const double scale = (l == 2 ? 3.0 : 1.7) / sqrt((double)in[l]);
    for (int32_t n = 0; n < in[l] * out[l]; n++) a->weight[l][n] = drawn(l, n, scale);
    for (int32_t n = 0; n < out[l]; n++) a->bias[l][n] = drawn(l + 10, n, 0.3);
  }
  return a;
}

//---------------------------------- a run on the GPU ----------------------------------

// A rollout's memory on the GPU, and its results on the host.
typedef struct fused_run {
  camp g;
  const brim_fused_rollout_table *table;
  brim_fused_rollout work;
  size_t actor_bytes, critic_bytes, allowed_bytes;
  void *weights;
  char *block, *actor, *critic;
  uint8_t *allowed;
} fused_run;

static brim_fused_net net_of(const fused_case *c) {
  return (brim_fused_net){.dtype = BRIM_BF16,
                          .act = c->act,
                          .inputs = c->inputs,
                          .hidden = c->hidden,
                          .outputs = c->outputs};
}

// True if the GPU takes such a rollout.
static bool takes(const fused_case *c) {
  char full[64];
  const brim_fused_net net = net_of(c);
  snprintf(full, sizeof full, BRIM_FUSED_ROLLOUT_EXTENSION "%s", c->name);
  const brim_fused_rollout_table *table = brim_registry_extension(world.registry, full);
  assert_non_null(table);
  if (table->can(&c->shape, &net)) return true;
  fused_leave_out(world.device);
  return false;
}

static void run_open(fused_run *r, const fused_case *c, const fused_actor *actor, int32_t blocks) {
  char full[64];
  camp g[2];
  *r = (fused_run){0};
  assert_int_equal(camps_of(c->name, g), 2);
  snprintf(full, sizeof full, BRIM_FUSED_ROLLOUT_EXTENSION "%s", c->name);
  r->g = g[1];
  r->table = brim_registry_extension(world.registry, full);
  assert_non_null(r->table);
  assert_int_equal(r->table->abi, BRIM_FUSED_ABI);
  camp_prepare(&r->g, &c->shape);
  const size_t rows = (size_t)c->shape.steps * (size_t)c->shape.num_envs;
  const brim_collect_layout *at = &r->g.at;
  r->allowed_bytes = rows * (size_t)at->agents;
  r->actor_bytes = r->allowed_bytes * (size_t)c->inputs * 2;
  r->critic_bytes = (size_t)at->slots * (size_t)at->envs * (size_t)c->critic_inputs * 2;
  r->block = malloc(at->bytes);
  r->actor = malloc(r->actor_bytes + GUARD);
  r->critic = malloc(r->critic_bytes + GUARD);
  r->allowed = malloc(r->allowed_bytes + GUARD);
  assert_true(r->block && r->actor && r->critic && r->allowed);
  r->weights = camp_alloc(&r->g, sizeof *actor);
  camp_put(&r->g, r->weights, actor, sizeof *actor);
  const fused_actor *there = r->weights;
  r->work.actor = net_of(c);
  for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
    r->work.actor.weight[l] = there->weight[l];
    r->work.actor.bias[l] = there->bias[l];
  }
  r->work.seed = SEED;
  r->work.critic_inputs = c->critic_inputs;
  r->work.actor_seen = camp_alloc(&r->g, r->actor_bytes + GUARD);
  r->work.critic_seen = camp_alloc(&r->g, r->critic_bytes + GUARD);
  r->work.allowed = c->masks ? camp_alloc(&r->g, r->allowed_bytes + GUARD) : NULL;
  r->work.bad = camp_alloc(&r->g, sizeof *r->work.bad);
  r->work.blocks = blocks;
  const int64_t none = 0;
  camp_put(&r->g, r->work.bad, &none, sizeof none);
  assert_int_equal(r->table->can(&c->shape, &r->work.actor), 1);
}

static void run_close(fused_run *r) {
  void *const there[] = {r->weights, r->work.actor_seen, r->work.critic_seen, r->work.allowed,
                         r->work.bad};
  void *const here[] = {r->block, r->actor, r->critic, r->allowed};
  for (int i = 0; i < 5; i++) {
    if (there[i]) camp_free(&r->g, there[i]);
  }
  for (int i = 0; i < 4; i++) free(here[i]);
  camp_clear(&r->g);
}

static void get_guarded(fused_run *r, const void *from, void *to, size_t bytes) {
  camp_get(&r->g, from, to, bytes + GUARD);
  for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(((uint8_t *)to)[i], 0xFF);
}

// Runs one rollout, in memory that is filled with ones.
static void run_once(fused_run *r) {
  assert_ok(brim_device_fill(r->g.device, r->work.actor_seen, 0xFF, r->actor_bytes));
  assert_ok(brim_device_fill(r->g.device, r->work.critic_seen, 0xFF, r->critic_bytes));
  if (r->work.allowed) {
    assert_ok(brim_device_fill(r->g.device, r->work.allowed, 0xFF, r->allowed_bytes));
  }
  assert_ok(r->table->run(&r->g.where, &r->g.shape, r->g.block, &r->work));
  camp_get(&r->g, r->g.block, r->block, r->g.at.bytes);
  get_guarded(r, r->work.actor_seen, r->actor, r->actor_bytes);
  get_guarded(r, r->work.critic_seen, r->critic, r->critic_bytes);
  if (r->work.allowed) get_guarded(r, r->work.allowed, r->allowed, r->allowed_bytes);
}

static int64_t run_bad(fused_run *r) {
  int64_t bad;
  camp_get(&r->g, r->work.bad, &bad, sizeof bad);
  return bad;
}

//---------------------------------- against the CPU ----------------------------------

static void assert_same(const void *a, const void *b, size_t bytes, const char *what, int i) {
  if (memcmp(a, b, bytes) == 0) return;
  size_t at = 0;
  while (((const char *)a)[at] == ((const char *)b)[at]) at++;
  fail_msg("case %d: %s: byte %zu of %zu differs", i, what, at, bytes);
}

// Compares the inputs of the networks with a slot of the CPU's block; the actor's only for steps. Masks that the
// rollout does not store are the CPU's.
static void compare_seen(const fused_run *r, camp *cpu, const fused_case *c, int32_t slot, int i) {
  const size_t envs = (size_t)cpu->at.envs, rows = envs * (size_t)cpu->at.agents;
  const size_t actor = rows * (size_t)c->inputs * 2, critic = envs * (size_t)c->critic_inputs * 2;
  char *x = aligned_alloc(64, (actor + 63) / 64 * 64),
       *y = aligned_alloc(64, (critic + 63) / 64 * 64);
  uint64_t *mask = malloc(rows * sizeof *mask);
  assert_true(x && y && mask);
  const brim_collect_view view = {.first = (int64_t)slot * cpu->at.envs,
                                  .count = cpu->at.envs,
                                  .actor = {x, BRIM_BF16, c->inputs},
                                  .critic = {y, BRIM_BF16, c->critic_inputs},
                                  .mask = mask};
  camp_look(cpu, &view);
  assert_same(y, r->critic + (size_t)slot * critic, critic, "critic_seen", i);
  if (slot < cpu->at.steps) {
    assert_same(x, r->actor + (size_t)slot * actor, actor, "actor_seen", i);
    for (size_t n = 0; n < rows; n++) {
      uint8_t *allowed = &r->allowed[(size_t)slot * rows + n];
      if (!c->masks) *allowed = (uint8_t)mask[n];
      assert_int_equal(*allowed, mask[n]);
    }
  }
  free(x);
  free(y);
  free(mask);
}

// Compares final states: reached ones with the CPU's, the others must be untouched.
static int32_t compare_finals(const fused_run *r, camp *cpu, const fused_case *c, int i) {
  const brim_collect_layout *at = &cpu->at;
  const int32_t *final = (const int32_t *)(const void *)(r->block + at->final);
  const size_t each = (size_t)c->critic_inputs * 2, finals = (size_t)(at->finals * at->envs);
  uint8_t *reached = calloc(finals, 1);
  char *y = aligned_alloc(64, (each + 63) / 64 * 64);
  assert_true(reached && y);
  int32_t count = 0;
  for (int32_t n = 0; n < at->steps * at->envs; n++) {
    if (final[n] < 0) continue;
    const int32_t row = (at->steps + 1 + final[n]) * at->envs + n % at->envs;
    const brim_collect_view view = {
        .first = row, .count = 1, .critic = {y, BRIM_BF16, c->critic_inputs}};
    camp_look(cpu, &view);
    assert_same(y, r->critic + (size_t)row * each, each, "critic_seen of a final state", i);
    reached[final[n] * at->envs + n % at->envs] = 1;
    count++;
  }
  const uint8_t *behind = (const uint8_t *)r->critic + (size_t)((at->steps + 1) * at->envs) * each;
  for (size_t n = 0; n < finals; n++) {
    for (size_t b = 0; !reached[n] && b < each; b++) assert_int_equal(behind[n * each + b], 0xFF);
  }
  free(reached);
  free(y);
  return count;
}

// The CPU steps with the drawn actions.
static int32_t compare_rollout(const fused_run *r, camp *cpu, const fused_case *c, int i) {
  const brim_collect_layout *at = &cpu->at;
  const size_t steps = (size_t)at->steps * (size_t)at->envs, actions = steps * (size_t)at->agents;
  memcpy(cpu->block + at->action, r->block + at->action, actions * sizeof(int32_t));
  camp_begin(cpu);
  for (int32_t t = 0; t < at->steps; t++) {
    compare_seen(r, cpu, c, t, i);
    camp_step(cpu, t);
  }
  compare_seen(r, cpu, c, at->steps, i);
  const size_t rewards = steps * (size_t)at->rewards * sizeof(float);
  assert_same(cpu->block + at->reward, r->block + at->reward, rewards, "reward", i);
  assert_same(cpu->block + at->end, r->block + at->end, steps, "end", i);
  assert_same(cpu->block + at->final, r->block + at->final, steps * sizeof(int32_t), "final", i);
  assert_same(cpu->block + at->states, r->block + at->states, (size_t)at->envs * at->state_bytes,
              "state 0", i);
  for (int k = 0; k < 2; k++) {
    const brim_collect_span s = at->saved[k];
    assert_same(cpu->block + s.offset, r->block + s.offset, s.bytes,
                k ? "what a run carries along" : "state T", i);
  }
  return compare_finals(r, cpu, c, i);
}

//---------------------------------- against an actor in double precision ----------------------------------

static void layer(const fused_actor *a, int l, int32_t in, int32_t out, const double *x,
                  double *y) {
  for (int32_t j = 0; j < out; j++) {
    double sum = (double)brim_bf16_to_f32(a->bias[l][j]);
    for (int32_t k = 0; k < in; k++) {
      sum += (double)brim_bf16_to_f32(a->weight[l][j * in + k]) * x[k];
    }
    y[j] = sum;
  }
}

static void probabilities(const fused_case *c, const fused_actor *a, const uint16_t *seen,
                          uint64_t mask, double *out) {
  double x[MOST], y[MOST], sum = 0, top = -INFINITY;
  for (int32_t k = 0; k < c->inputs; k++) x[k] = (double)brim_bf16_to_f32(seen[k]);
  for (int l = 0; l < 2; l++) {
    layer(a, l, l ? c->hidden : c->inputs, c->hidden, x, y);
    for (int32_t j = 0; j < c->hidden; j++) {
      x[j] = c->act == BRIM_ACT_TANH ? tanh(y[j]) : y[j] > 0 ? y[j] : 0;
    }
  }
  const int32_t act = brim_collect_sizes(&c->shape).act;
  layer(a, 2, c->hidden, act, x, y);
  for (int32_t j = 0; j < act; j++) {
    if (brim_ppo_allows(mask, j) && y[j] > top) top = y[j];
  }
  for (int32_t j = 0; j < act; j++) {
    out[j] = brim_ppo_allows(mask, j) ? exp(y[j] - top) : 0;
    sum += out[j];
  }
  for (int32_t j = 0; j < act; j++) out[j] /= sum;
}

// Checks some of the rows: the log probability, and that the random number falls into the action's share.
static void compare_actor(const fused_run *r, const fused_case *c, const fused_actor *a, int i) {
  enum { ROWS = 400 };
  const brim_collect_layout *at = &r->g.at;
  const int64_t step = (int64_t)at->envs * at->agents, rows = at->steps * step;
  const int64_t skip = rows / ROWS + 1;
  const int32_t *action = (const int32_t *)(const void *)(r->block + at->action);
  const float *logp = (const float *)(const void *)(r->block + at->logp);
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(r->block + at->clock);
  const uint64_t key = brim_ppo_action_key(SEED, 0);
  for (int64_t n = i % skip; n < rows; n += skip) {
    const int64_t t = n / step;
    double p[BRIM_FUSED_MAX_ACT], below = 0;
    probabilities(c, a, (const uint16_t *)(const void *)r->actor + n * c->inputs, r->allowed[n], p);
    assert_true(action[n] >= 0 && action[n] < at->act);
    for (int32_t j = 0; j < action[n]; j++) below += p[j];
    const double u =
        (double)brim_rng_uniform(brim_ppo_bits(key, clock->now + (uint64_t)t, n - t * step));
    assert_true(p[action[n]] > 0);
    if (fabs((double)logp[n] - log(p[action[n]])) > 3e-2) {
      fail_msg("case %d, row %lld: log probability %g, expected %g", i, (long long)n,
               (double)logp[n], log(p[action[n]]));
    }
    assert_true(u >= below - 2e-2 && u <= below + p[action[n]] + 2e-2);
  }
}

//---------------------------------- tests ----------------------------------

static void need_gpu(void) {
  if (!world.device) BRIM_SKIP("no GPU");
}

static void rollouts_are_those_of_the_cpu(void **state) {
  (void)state;
  need_gpu();
  int64_t finals = 0, ended = 0;
  for (int i = 0; i < CASES; i++) {
    const fused_case c = case_of(i);
    if (!takes(&c)) continue;
    fused_actor *actor = actor_of(&c);
    camp cpu = camp_cpu(2);
    fused_run r;
    run_open(&r, &c, actor, 0);
    camp_prepare(&cpu, &c.shape);
    for (int rollout = 0; rollout < 3; rollout++) {
      run_once(&r);
      finals += compare_rollout(&r, &cpu, &c, i);
      compare_actor(&r, &c, actor, i);
    }
    ended += camp_tally(&cpu, 0).terminated;
    assert_int_equal(run_bad(&r), 0);
    run_close(&r);
    camp_clear(&cpu);
    free(actor);
  }
  if (!fused_has_room(world.device)) return;
  assert_true(finals > 1000 && ended > 300);  // both kinds of end occurred
}

// The division of environments and the moment of a run change nothing.
static void bits_do_not_depend_on_blocks(void **state) {
  (void)state;
  static const int32_t blocks[] = {0, 0, 1, 3, 50};
  need_gpu();
  for (int i = 0; i < CASES; i += 2) {
    const fused_case c = case_of(i);
    if (!takes(&c)) continue;
    fused_actor *actor = actor_of(&c);
    fused_run first;
    run_open(&first, &c, actor, 0);
    for (int rollout = 0; rollout < 2; rollout++) run_once(&first);
    for (int b = 1; b < 5; b++) {
      fused_run r;
      run_open(&r, &c, actor, blocks[b]);
      for (int rollout = 0; rollout < 2; rollout++) run_once(&r);
      assert_same(first.block, r.block, r.g.at.bytes, "block", i);
      assert_same(first.actor, r.actor, r.actor_bytes, "actor_seen", i);
      assert_same(first.critic, r.critic, r.critic_bytes, "critic_seen", i);
      if (c.masks) assert_same(first.allowed, r.allowed, r.allowed_bytes, "allowed", i);
      run_close(&r);
    }
    run_close(&first);
    free(actor);
  }
}

// More environments than a team of warps has lanes: each block works through several groups.
static void groups_of_environments_follow_each_other(void **state) {
  (void)state;
  need_gpu();
  fused_case c = case_of(3);
  c.shape.num_envs = 1500;
  c.shape.steps = 7;
  if (!takes(&c)) skip();
  fused_actor *actor = actor_of(&c);
  camp cpu = camp_cpu(2);
  fused_run r;
  run_open(&r, &c, actor, 1);
  camp_prepare(&cpu, &c.shape);
  for (int rollout = 0; rollout < 2; rollout++) {
    run_once(&r);
    compare_rollout(&r, &cpu, &c, 3);
  }
  run_close(&r);
  camp_clear(&cpu);
  free(actor);
}

// NaN outputs: the first action is taken, and each row is counted.
static void bad_rows_are_counted(void **state) {
  (void)state;
  need_gpu();
  const fused_case c = case_of(7);
  if (!takes(&c)) skip();
  fused_actor *actor = actor_of(&c);
  for (int32_t n = 0; n < c.outputs; n++) actor->bias[2][n] = 0x7fc0;  // NaN
  fused_run r;
  run_open(&r, &c, actor, 0);
  run_once(&r);
  const brim_collect_layout *at = &r.g.at;
  const int64_t rows = (int64_t)at->steps * at->envs * at->agents;
  const int32_t *action = (const int32_t *)(const void *)(r.block + at->action);
  const float *logp = (const float *)(const void *)(r.block + at->logp);
  assert_int_equal(run_bad(&r), rows);
  for (int64_t n = 0; n < rows; n++) assert_true(action[n] == 0 && logp[n] == 0.0f);
  run_close(&r);
  free(actor);
}

static void others_are_refused(void **state) {
  (void)state;
  need_gpu();
  const fused_case c = case_of(3);
  if (!takes(&c)) skip();
  fused_actor *actor = actor_of(&c);
  fused_run r;
  run_open(&r, &c, actor, 0);
  brim_collect_shape once = c.shape;
  once.once = 1;
  assert_int_equal(r.table->can(&once, &r.work.actor), 0);
  for (int i = 0; i < 8; i++) {
    brim_fused_net n = net_of(&c);
    if (i == 0) n.dtype = BRIM_F32;
    if (i == 1) n.dtype = BRIM_F16;
    if (i == 2) n.act = BRIM_ACT_GELU;
    if (i == 3) n.hidden = BRIM_FUSED_MAX_WHOLE + 8;
    if (i == 4) n.inputs = BRIM_FUSED_MAX_INPUTS + 8;
    if (i == 5) n.inputs = brim_collect_sizes(&c.shape).obs / 8 * 8;
    if (i == 6) n.inputs += 4;
    if (i == 7) n.outputs = brim_collect_sizes(&c.shape).act - 1;
    assert_int_equal(r.table->can(&c.shape, &n), 0);
  }
  brim_fused_rollout narrow = r.work;
  narrow.critic_inputs = r.g.at.critic - 1;
  assert_status(r.table->run(&r.g.where, &c.shape, r.g.block, &narrow), BRIM_EINVAL);
  run_close(&r);
  free(actor);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rollouts_are_those_of_the_cpu),
      cmocka_unit_test(bits_do_not_depend_on_blocks),
      cmocka_unit_test(groups_of_environments_follow_each_other),
      cmocka_unit_test(bad_rows_are_counted),
      cmocka_unit_test(others_are_refused),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
