// All calls of PPO in one recorded launch on a GPU: launched again after the clock advanced, it computes the next
// iteration, with the CPU's bits.
#include "ppo_test.h"

enum { STEPS = 4, ENVS = 700, AGENTS = 3, ACT = 5, ROWS = STEPS * ENVS, BATCH = 1000, VALID = 990 };

// The works of an iteration, in the memory of a place.
typedef struct job {
  brim_ppo_shape shape;
  uint64_t *clock;
  brim_ppo_sample sample;
  brim_ppo_advantages advantages;
  brim_ppo_rows rows;
  brim_ppo_losses losses;
} job;

typedef struct result {
  int32_t action[ROWS * AGENTS], rows[BATCH];
  float logp[ROWS * AGENTS], adv[ROWS], actor[BATCH * AGENTS * ACT], critic[BATCH];
  brim_ppo_norm norm;
  brim_ppo_moments moments;
  double metrics[BRIM_PPO_METRIC_COUNT];
} result;

static float *numbers(ppo_place *p, int64_t count, uint64_t from) {
  float *host = malloc((size_t)count * sizeof *host);
  assert_non_null(host);
  for (int64_t i = 0; i < count; i++) host[i] = (float)ppo_normal(from + (uint64_t)i);
  float *to = ppo_give(p, host, (size_t)count * sizeof *host);
  free(host);
  return to;
}

static brim_tensor matrix(ppo_place *p, int64_t rows, int64_t width, uint64_t from) {
  const int64_t dim[2] = {rows, width};
  return brim_tensor_make(numbers(p, rows * width, from), BRIM_F32, 2, dim);
}

static brim_ppo_net net(ppo_place *p, int64_t rows, int64_t width, int64_t valid, uint64_t from) {
  double state[BRIM_STATE_COUNT] = {0};
  state[BRIM_STATE_ROWS] = (double)valid;
  state[BRIM_STATE_GRAD_SCALE] = 1.0 / (double)valid;
  state[BRIM_STATE_LOSS_SCALE] = 8;
  return (brim_ppo_net){.output = matrix(p, rows, width, from),
                        .gradient = ppo_give_tensor(p, BRIM_F32, rows, width, NULL),
                        .state = ppo_give(p, state, sizeof state)};
}

static void prepare_advantages(ppo_place *p, job *j) {
  static int8_t end[ROWS];
  static int32_t final[ROWS];
  const brim_ppo_norm norm = {0};
  for (int i = 0; i < ROWS; i++) {
    end[i] = i % 11 == 3 ? BRIM_ENV_TERMINATED : i % 7 == 2 ? BRIM_ENV_TRUNCATED : BRIM_ENV_RUNNING;
    final[i] = end[i] == BRIM_ENV_TRUNCATED ? 0 : -1;
  }
  j->advantages = (brim_ppo_advantages){.values = matrix(p, ROWS + 2 * ENVS, 1, 1 << 20),
                                        .reward = numbers(p, ROWS, 1 << 21),
                                        .end = ppo_give(p, end, sizeof end),
                                        .final = ppo_give(p, final, sizeof final),
                                        .gamma = 0.99f,
                                        .lambda = 0.95f,
                                        .beta = 0.5f,
                                        .norm = ppo_give(p, &norm, sizeof norm),
                                        .adv = ppo_give(p, NULL, ROWS * sizeof(float)),
                                        .ret = ppo_give(p, NULL, ROWS * sizeof(float)),
                                        .old = ppo_give(p, NULL, ROWS * sizeof(float)),
                                        .moments = ppo_give(p, NULL, sizeof(brim_ppo_moments)),
                                        .scratch = ppo_scratch(p, &j->shape)};
}

static void prepare(ppo_place *p, job *j) {
  const int64_t bad = 0;
  const double none[BRIM_PPO_METRIC_COUNT] = {0};
  *j = (job){.shape = {.steps = STEPS,
                       .envs = ENVS,
                       .agents = AGENTS,
                       .act = ACT,
                       .rewards = 1,
                       .finals = 1,
                       .batch = BATCH}};
  const uint64_t clock = 0;
  j->clock = ppo_give(p, &clock, sizeof clock);
  int32_t *action = ppo_give(p, NULL, ROWS * AGENTS * sizeof *action);
  float *logp = ppo_give(p, NULL, ROWS * AGENTS * sizeof *logp);
  j->sample = (brim_ppo_sample){.outputs = matrix(p, ENVS * AGENTS, ACT, 0),
                                .rows = ENVS * AGENTS,
                                .clock = j->clock,
                                .seed = 9,
                                .action = action,
                                .logp = logp,
                                .bad = ppo_give(p, &bad, sizeof bad)};
  prepare_advantages(p, j);
  j->rows = (brim_ppo_rows){.seed = 9,
                            .clock = j->clock,
                            .epoch = 1,
                            .total = ROWS,
                            .first = BATCH,
                            .count = VALID,
                            .rows = ppo_give(p, NULL, BATCH * sizeof(int32_t))};
  j->losses = (brim_ppo_losses){.rows = j->rows.rows,
                                .actor = net(p, BATCH * AGENTS, ACT, VALID * AGENTS, 1 << 22),
                                .critic = net(p, BATCH, 1, VALID, 1 << 23),
                                .action = action,
                                .logp = logp,
                                .adv = j->advantages.adv,
                                .ret = j->advantages.ret,
                                .old = j->advantages.old,
                                .norm = j->advantages.norm,
                                .moments = j->advantages.moments,
                                .clip = 0.2f,
                                .value_clip = 0.2f,
                                .value_coef = 0.5f,
                                .entropy = 0.01f,
                                .metrics = ppo_give(p, none, sizeof none),
                                .scratch = j->advantages.scratch};
}

static void enqueue(ppo_place *p, const job *j) {
  for (int32_t t = 0; t < STEPS; t++) {
    brim_ppo_sample step = j->sample;
    step.t = t;
    step.action += t * ENVS * AGENTS;
    step.logp += t * ENVS * AGENTS;
    assert_ok(p->table->sample(&p->where, &j->shape, &step));
  }
  assert_ok(p->table->advantages(&p->where, &j->shape, &j->advantages));
  assert_ok(p->table->rows(&p->where, &j->rows));
  assert_ok(p->table->losses(&p->where, &j->shape, &j->losses));
}

static void collect(ppo_place *p, const job *j, result *r) {
  memset(r, 0, sizeof *r);
  ppo_take(p, r->action, j->sample.action, sizeof r->action);
  ppo_take(p, r->logp, j->sample.logp, sizeof r->logp);
  ppo_take(p, r->rows, j->rows.rows, VALID * sizeof(int32_t));
  ppo_take(p, r->adv, j->advantages.adv, sizeof r->adv);
  ppo_take(p, &r->norm, j->advantages.norm, sizeof r->norm);
  ppo_take(p, &r->moments, j->advantages.moments, sizeof r->moments);
  ppo_take_tensor(p, &j->losses.actor.gradient, r->actor);
  ppo_take_tensor(p, &j->losses.critic.gradient, r->critic);
  ppo_take(p, r->metrics, j->losses.metrics, sizeof r->metrics);
}

static void test_recorded(void **state) {
  ppo_places *places = *state;
  if (places->count < 3) BRIM_SKIP("no GPU");
  ppo_place *cpu = &places->at[1], *gpu = &places->at[2];
  if (!brim_device_has_graphs(gpu->device)) BRIM_SKIP("the device records nothing");
  static job here, there;
  static result want, got;
  prepare(cpu, &here);
  prepare(gpu, &there);
  brim_graph_exec *exec = NULL;
  for (uint64_t clock = 0; clock < 4 * STEPS; clock += STEPS) {
    *here.clock = clock;
    enqueue(cpu, &here);
    collect(cpu, &here, &want);
    assert_ok(brim_device_copy(gpu->device, there.clock, &clock, sizeof clock, BRIM_COPY_H2D));
    if (clock == STEPS) {  // the first iteration runs call by call
      assert_ok(brim_capture_begin(gpu->device));
      enqueue(gpu, &there);
      assert_ok(brim_capture_end(gpu->device, &exec));
    }
    if (exec) {
      assert_ok(brim_graph_launch(gpu->device, exec));
    } else {
      enqueue(gpu, &there);
    }
    collect(gpu, &there, &got);
    assert_memory_equal(&want, &got, sizeof got);
  }
  brim_graph_exec_destroy(gpu->device, exec);
  ppo_clear(cpu);
  ppo_clear(gpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded)};
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
