// The mappo workload: allowed configs, the sizes that settings give, the parts of a step. The seed alone decides the
// result, and a checkpoint restores the training bit for bit.
#include <math.h>

#include "engine/engine.h"
#include "same_file.h"
#include "workload/fixture.h"
#include "workload/mappo/mappo_int.h"

static const char yaml[] =
    "workload: mappo\n"
    "env: cartpole\n"
    "model: actor_critic(depth=2, hidden=16)\n"
    "optimizer: adam(lr=0.003)\n"
    "mappo: {num_envs: 6, rollout_steps: 20, update_epochs: 3, minibatches: 4, iterations: 5,\n"
    "        eval_interval: 2, eval_episodes: 10}\n"
    "seed: 3\n";

static const brim_mappo *of(const fixture *f) { return (const brim_mappo *)f->work->state; }

static void open_on(fixture *f, const char *device, const char *one, const char *two) {
  const char *const overrides[] = {one, two};
  assert_ok(fixture_open(f, device, yaml, overrides, one ? two ? 2 : 1 : 0));
  assert_ok(fixture_configure(f));
}

static void open_with(fixture *f, const char *one, const char *two) { open_on(f, "ref", one, two); }

static void steps(fixture *f, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    assert_ok(f->work->table->step(f->work->state, NULL, &info));
  }
}

static void save(fixture *f, const char *path) {
  assert_ok(f->work->table->save(f->work->state, path, NULL, false));
}

//---------------------------------- configs ----------------------------------

static void refused(const char *one, const char *two, const char *words) {
  fixture f;
  const char *const overrides[] = {one, two};
  brim_status status = fixture_open(&f, "ref", yaml, overrides, two ? 2 : 1);
  assert_true(status != BRIM_OK);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s: %s", one, brim_status_detail());
  fixture_close(&f);
}

static void test_bad_configs(void **state) {
  (void)state;
  refused("mappo.minibatches=7", NULL,
          "mappo.minibatches is 7, which does not divide the 120 environment steps of a rollout (6 "
          "environments x 20 steps); use 6 or 8");
  refused("mappo.minibatches=121", NULL, "more than the 120 environment steps");
  refused("mappo.collect_on=gpu", NULL, "mappo.collect_on is gpu, but the device is ref");
  refused("env=quadruped", NULL, "whose actions are continuous, but mappo needs discrete actions");
  refused("model=resnet18", NULL, "model is resnet18, but mappo needs actor_critic");
  refused("model=actor_critic(shared=true)", NULL, "cannot share layers");
  refused("model=mlp(dropout=0.1)", NULL, "omit dropout");
  refused("mappo.clip=0", NULL, "mappo.clip is 0");
  refused("mappo.update_epochs=65535", "mappo.minibatches=120",
          "mappo.update_epochs 65535 x minibatches 120 make 7864200 updates of an iteration");
}

static void comes_to(const char *one, const char *two, int envs, int length, int count, int batch) {
  fixture f;
  const char *const overrides[] = {one, two};
  assert_ok(fixture_open(&f, "ref", yaml, overrides, two ? 2 : 1));
  const brim_mappo_sizes *s = &of(&f)->sizes;
  if (s->envs != envs || s->steps != length || s->minibatches != count || s->batch != batch) {
    fail_msg("%s: %d environments, %d steps, %d minibatches of %d", one, s->envs, s->steps,
             s->minibatches, s->batch);
  }
  fixture_close(&f);
}

// Numbers of environments, steps and minibatches, from any of the keys that set them.
static void test_sizes(void **state) {
  (void)state;
  comes_to("mappo.minibatches=6", NULL, 6, 20, 6, 20);
  // an episode of cartpole has 500 steps
  // if two keys set the same size, the command line's counts, not the file's
  comes_to("mappo.num_envs=8", "mappo.episodes_per_batch=2", 8, 125, 4, 250);
  comes_to("mappo.num_envs=6", "data.batch_size=60", 6, 20, 2, 60);
  comes_to("mappo.rollout_steps=30", "mappo.minibatches=6", 6, 30, 6, 30);
  comes_to("data.num_workers=4", "mappo.episodes_per_worker=3", 12, 20, 4, 60);
  // both from the command line
  comes_to("mappo.num_envs=6", "mappo.episodes_per_worker=3", 6, 20, 4, 30);
  // these sizes divide all 120 steps; 50 does not
  comes_to("data.batch_size=60", "mappo.minibatches=null", 6, 20, 2, 60);
  comes_to("data.batch_size=50", "mappo.minibatches=null", 6, 20, 2, 60);
  comes_to("data.batch_size=500", "mappo.minibatches=null", 6, 20, 1, 120);
}

// The same defaults if nothing else is given.
static void test_sizes_of_the_guide(void **state) {
  (void)state;
  static const char few[] =
      "workload: mappo\nenv: cartpole\nmodel: actor_critic(hidden=8)\n"
      "num_workers: 4\nepisodes_per_worker: 2\nepisodes_per_batch: 10\nbatch_size: 512\n"
      "update_epochs: 2\n";
  fixture f;
  assert_ok(fixture_open(&f, "ref", few, NULL, 0));
  const brim_mappo_sizes *s = &of(&f)->sizes;
  assert_int_equal(s->envs, 8);
  assert_int_equal(s->steps, 625);  // 10 x 500 / 8
  assert_int_equal(s->batch, 500);  // a tenth of 5,000
  assert_int_equal(s->minibatches, 10);
  assert_int_equal(s->updates, 20);
  // a sweep over environments keeps the numbers of episodes and samples
  assert_int_equal(brim_work_knob(f.work, "episodes_per_batch"), BRIM_MAPPO_STEPS);
  assert_int_equal(brim_work_knob(f.work, "batch_size"), BRIM_MAPPO_BATCH);
  brim_setting setting = brim_work_setting(f.work);
  brim_mappo_sizes other;
  setting.value[BRIM_MAPPO_ENVS] = 16;
  assert_ok(brim_mappo_apply(of(&f), &setting, &other));
  assert_int_equal(other.steps, 313);
  fixture_close(&f);
}

// The dictionary of the PyTorch script, as in docs/mappo.md.
static void test_dictionary(void **state) {
  (void)state;
  static const char dictionary[] =
      "{\n"
      "    \"workload\": \"mappo\", \"env\": \"uav\",\n"
      "    \"num_uavs\": 10, \"grid_size\": 24,\n"
      "    \"num_workers\": 8,              # parallel environments\n"
      "    \"episodes_per_worker\": 2,\n"
      "    \"episodes_per_batch\": 20,    # 10 -> 20\n"
      "    \"batch_size\": 1024,\n"
      "    \"use_amp\": True,\n"
      "    \"update_epochs\": 5,\n"
      "    \"num_obstacles\": 30,\n"
      "    \"max_steps\": 150,\n"
      "    \"checkpoint_interval\": 1000,\n"
      "}\n";
  fixture f;
  assert_ok(fixture_open(&f, "ref", dictionary, NULL, 0));
  const brim_mappo *w = of(&f);
  assert_int_equal(w->sizes.envs, 16);
  assert_int_equal(w->sizes.steps, 188);  // 20 x 150 / 16, rounded up
  assert_int_equal(w->sizes.workers, 8);
  assert_int_equal(w->sizes.minibatches, 32);
  assert_int_equal(w->sizes.batch * w->z.agents, 940);  // of 30,080, near 1,024
  assert_int_equal(w->how.epochs, 5);
  assert_int_equal(w->shape.episode_length, 150);
  assert_int_equal(brim_config_int(f.config, "checkpoint.interval"), 1000);
  assert_true(brim_config_bool(f.config, "training.use_amp"));
  const brim_component *env = brim_config_component(f.config, "env", NULL);
  assert_int_equal(brim_component_int(env, "num_obstacles", 0), 30);
  assert_int_equal(brim_component_int(env, "num_uavs", 0), 10);
  assert_int_equal(brim_component_int(env, "size", 0), 24);
  brim_work_info info;
  f.work->table->info(f.work->state, &info);
  assert_string_equal(info.interval_unit, "episodes");
  fixture_close(&f);
}

static int64_t chosen(const char *one, const char *two, bool gpu) {
  fixture f;
  const char *const overrides[] = {"mappo.num_envs=auto", one, two};
  assert_ok(fixture_open(&f, "ref", yaml, overrides, one ? two ? 3 : 2 : 1));
  // the number for a GPU: only the kind of device is asked for
  brim_mappo w = *of(&f);
  brim_device device = *w.context.device;
  if (gpu) device.info.kind = BRIM_DEVICE_GPU;
  w.context.device = &device;
  assert_ok(brim_mappo_choose(&w));
  fixture_close(&f);
  return w.knobs[BRIM_MAPPO_ENVS].value;
}

// The number of environments, if the config leaves it open.
static void test_chosen_environments(void **state) {
  (void)state;
  assert_int_equal(chosen(NULL, NULL, false), 32);
  assert_int_equal(chosen(NULL, NULL, true), 1024);
  assert_int_equal(chosen("mappo.num_envs=7", "mappo.minibatches=2", true),
                   7);  // a number that the config sets stays
  assert_int_equal(chosen("mappo.collect_on=cpu", NULL, true), 32);
  assert_int_equal(chosen("data.num_workers=4", "mappo.episodes_per_worker=3", true), 12);
  // minibatches divide its rollouts of 20 steps
  assert_int_equal(chosen("mappo.minibatches=3", NULL, false), 30);
  assert_int_equal(chosen("mappo.minibatches=3", NULL, true), 1023);
  assert_int_equal(chosen("mappo.minibatches=640", NULL, false), 32);
  // not more than the episodes in an iteration
  assert_int_equal(chosen("mappo.rollout_steps=null", "mappo.episodes_per_batch=10", true), 10);
  assert_int_equal(chosen("mappo.rollout_steps=null", "mappo.episodes_per_batch=40", false), 32);
  refused("mappo.num_envs=many", NULL, "'mappo.num_envs' expects int or auto, not 'many'");
}

// A run that continues keeps the number it chose, also on another device.
static void test_kept_environments(void **state) {
  (void)state;
  static const char *const meta_of[] = {"{\"num_envs\": 5, \"chosen_envs\": 10}",
                                        "{\"num_envs\": 5}", "{\"num_envs\": -5}", "{", NULL};
  static const int64_t expected[] = {10, 5, 32, 32, 32};
  for (int i = 0; i < 5; i++) {
    fixture f;
    const char *const overrides[] = {"mappo.num_envs=auto"};
    assert_ok(fixture_open(&f, "ref", yaml, overrides, 1));
    json_t *meta = json_object();
    if (meta_of[i]) json_object_set_new(meta, "brim.policy", json_string(meta_of[i]));
    f.work->table->resuming(f.work->state, meta);
    assert_int_equal(brim_work_setting(f.work).value[BRIM_MAPPO_ENVS], expected[i]);
    fixture_close(&f);
    assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
    f.work->table->resuming(f.work->state, meta);
    assert_int_equal(brim_work_setting(f.work).value[BRIM_MAPPO_ENVS], 6);
    fixture_close(&f);
    json_decref(meta);
  }
}

static void test_knobs(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  const brim_knob *k = f.work->knobs;
  brim_setting s = brim_work_setting(f.work);
  assert_int_equal(f.work->knob_count, BRIM_MAPPO_KNOBS);
  for (size_t i = 0; i < f.work->knob_count; i++) {
    assert_non_null(brim_knob_find(f.work->table->knob_set, k[i].name));
    assert_true(k[i].value >= k[i].min && k[i].value <= k[i].max);
  }
  // environments run on the CPU: no number to choose, and its threads matter
  assert_false(k[BRIM_MAPPO_COLLECT].matters(f.work->state, &s));
  assert_true(k[BRIM_MAPPO_WORKERS].matters(f.work->state, &s));
  assert_true(k[BRIM_MAPPO_ENVS].changes_learning);
  s.value[BRIM_MAPPO_BATCH] = 7;
  assert_false(f.work->table->sensible(f.work->state, &s));
  fixture_close(&f);
}

// The compute threads of a setting are the device's. Environments step with the same number unless the config sets
// theirs.
static void test_threads_of_a_setting(void **state) {
  (void)state;
  fixture f;
  const char *const two = "threads=2";
  if (fixture_open(&f, "cpu", yaml, &two, 1)) BRIM_SKIP("no cpu plug-in");
  for (int threads = 1; threads <= 2; threads++) {
    brim_setting s = brim_work_setting(f.work);
    brim_plan plan;
    assert_int_equal(s.value[BRIM_MAPPO_THREADS], 2);
    s.value[BRIM_MAPPO_THREADS] = threads;
    const int before = of(&f)->context.device->info.threads;
    assert_ok(f.work->table->plan(f.work->state, &s, &plan));
    assert_int_equal(of(&f)->context.device->info.threads, before);
    assert_ok(f.work->table->configure(f.work->state, &s));
    assert_int_equal(of(&f)->context.device->info.threads, threads);
    assert_int_equal(of(&f)->where.threads, threads);
    assert_int_equal(brim_pool_threads(of(&f)->where.pool), threads);
    assert_int_equal(of(&f)->host.threads, threads);
    s.value[BRIM_MAPPO_WORKERS] = 3;
    assert_ok(f.work->table->configure(f.work->state, &s));
    assert_int_equal(of(&f)->host.threads, 3);
    assert_int_equal(of(&f)->where.threads, threads);
  }
  fixture_close(&f);
}

static void test_plan(void **state) {
  (void)state;
  fixture f;
  brim_plan plan, less;
  brim_alloc_stats before, after;
  const char *const none[] = {NULL};
  assert_ok(fixture_open(&f, "ref", yaml, none, 0));
  brim_setting s = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &s, &plan));
  assert_true(plan.samples_per_step == 120);
  assert_int_equal(plan.parameter_count, 2 * (8 * 16 + 16 + 16 * 16 + 16) + 16 * 3 + 3);
  brim_alloc_get_stats(&before);
  assert_ok(f.work->table->configure(f.work->state, &s));
  brim_alloc_get_stats(&after);
  // allocations equal the plan
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST]);
  // out of memory: fewer environments, in numbers that minibatches divide
  assert_true(f.work->table->shrinking->shrink(f.work->state, &s));
  assert_int_equal(s.value[BRIM_MAPPO_ENVS], 3);
  assert_ok(f.work->table->plan(f.work->state, &s, &less));
  assert_true(less.bytes[BRIM_PLACE_DEVICE] < plan.bytes[BRIM_PLACE_DEVICE]);
  assert_true(f.work->table->shrinking->shrink(f.work->state, &s));
  assert_int_equal(s.value[BRIM_MAPPO_ENVS], 1);
  assert_false(f.work->table->shrinking->shrink(f.work->state, &s));
  fixture_close(&f);
}

//---------------------------------- stepping ----------------------------------

// Units of a rate per sample; 0 if the workload lacks the rate.
static double rate_of(const brim_work_info *info, const brim_metric_set *set, const char *key) {
  for (size_t i = 0; i < info->rate_count; i++) {
    if (info->rates[i].row == 1 + brim_metric_find(set, key)) return info->rates[i].per_sample;
  }
  return 0;
}

static void test_steps(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  brim_work_metrics m;
  open_with(&f, NULL, NULL);
  five_steps(&f, "agent steps", 120, 10, &info);
  assert_true(info.lr == 0.003);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(m.samples, 5 * 120);
  assert_int_equal(m.bad, 0);
  assert_int_equal(m.skipped, 0);
  // every sample of every epoch counts once
  assert_true(m.sums[BRIM_MAPPO_SUM_ROWS] == 5 * 120 * 3);
  assert_true(m.sums[BRIM_MAPPO_SUM_VALUES] == 5 * 120 * 3);
  double entropy = figure(m, "policy_entropy");
  assert_true(entropy > 0.3 && entropy <= log(2) + 1e-6);
  assert_true(figure(m, "value_loss") > 0);
  assert_true(figure(m, "approx_kl") > -1e-6 && figure(m, "approx_kl") < 1);
  assert_true(figure(m, "actor_grad_norm") > 0 && figure(m, "critic_grad_norm") > 0);
  // two rates, and environment steps beside them
  brim_work_info about;
  f.work->table->info(f.work->state, &about);
  assert_true(rate_of(&about, m.set, "collected_per_s") == 1);
  assert_true(rate_of(&about, m.set, "trained_per_s") == 3);
  assert_true(rate_of(&about, m.set, "env_steps_per_s") == 1);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(m.samples, 0);
  fixture_close(&f);
}

// Rows of update number `index` of an iteration, computed independently.
static void expected_rows(const brim_mappo *w, int64_t index, int32_t *rows) {
  const brim_mappo_sizes *s = &w->sizes;
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(w->block + w->layout.clock);
  const brim_ppo_rows work = {.seed = 3,
                              .clock = &clock->now,
                              .epoch = (int32_t)(index / s->minibatches),
                              .total = (int64_t)s->envs * s->steps,
                              .first = index % s->minibatches * s->batch,
                              .count = s->batch,
                              .rows = rows};
  assert_ok(brim_ppo_cpu()->rows(&w->where, &work));
}

// Several agents: all their samples count in every epoch. The last update takes the last part of the last epoch's
// order, and optimizer steps are counted over all updates.
static void test_updates(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics m;
  brim_step_info info;
  open_with(&f, "env=uav(size=8, num_uavs=3, num_obstacles=4, episode_steps=12, crop=3)",
            "scheduler=step(every=1, gamma=0.5)");
  const brim_mappo *w = of(&f);
  steps(&f, 1);
  assert_ok(f.work->table->step(f.work->state, NULL, &info));
  assert_ok(f.work->table->metrics(f.work->state, false, &m));
  assert_int_equal(info.samples, 6 * 20 * 3);
  assert_true(m.sums[BRIM_MAPPO_SUM_ROWS] == 2 * 6 * 20 * 3 * 3);
  assert_true(m.sums[BRIM_MAPPO_SUM_VALUES] == 2 * 6 * 20 * 3 * 3);  // one value per agent
  assert_int_equal(w->sizes.updates, 12);
  int32_t rows[64], first[64];
  assert_true(w->sizes.batch == 30);
  expected_rows(w, 11, rows);
  expected_rows(w, 0, first);
  assert_memory_equal(w->memory + w->places.rows, rows, 30 * sizeof *rows);
  assert_memory_not_equal(rows, first, 30 * sizeof *rows);
  for (int i = 0; i < 12; i++) {
    for (int n = 0; n < BRIM_MAPPO_NETS; n++) {
      const brim_group_state *s = &w->states[i * BRIM_MAPPO_NETS + n];
      assert_int_equal(s->step, 12 + i + 1);
      assert_true(s->lr == info.lr && s->lr == 0.0015);
      assert_int_equal(s->rows, n == BRIM_MAPPO_ACTOR ? 90 : 30);
    }
  }
  fixture_close(&f);
}

static void test_episodes(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics m;
  open_with(&f, "mappo.rollout_steps=200", NULL);
  steps(&f, 1);
  assert_ok(f.work->table->metrics(f.work->state, false, &m));
  const brim_mappo *w = of(&f);
  assert_true(w->now.episodes > 10);
  assert_true(figure(m, "episodes") == (double)w->now.episodes);
  // each step earns 1, so a return is a length
  assert_true(figure(m, "return") == figure(m, "length"));
  assert_true(figure(m, "return") > 8 && figure(m, "return") < 60);
  assert_true(figure(m, "falls") == 1);
  fixture_close(&f);
}

// The seed alone decides, with any number of threads for the environments.
static void test_repeatable(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  steps(&f, 3);
  save(&f, "a.safetensors");
  fixture_close(&f);
  open_with(&f, "data.num_workers=3", NULL);
  steps(&f, 3);
  save(&f, "b.safetensors");
  fixture_close(&f);
  assert_same_file("a.safetensors", "b.safetensors");
  open_with(&f, "seed=4", NULL);
  steps(&f, 3);
  save(&f, "b.safetensors");
  fixture_close(&f);
  char *a = NULL, *b = NULL;
  size_t na = 0, nb = 0;
  assert_ok(brim_fs_read("a.safetensors", 0, &a, &na));
  assert_ok(brim_fs_read("b.safetensors", 0, &b, &nb));
  assert_true(na != nb || memcmp(a, b, na) != 0);
  brim_free(a);
  brim_free(b);
}

//---------------------------------- checkpoints ----------------------------------

// A killed and resumed run equals an undisturbed one: on the plain backend and on the fast one.
static void test_resume(void **state) {
  (void)state;
  static const char *const devices[] = {"ref", "cpu"};
  for (int i = 0; i < 2; i++) {
    fixture f;
    brim_work_metrics m;
    json_t *extra = NULL;
    open_on(&f, devices[i], NULL, NULL);
    steps(&f, 2);
    save(&f, "half.safetensors");
    // an evaluation does not change the training
    assert_ok(f.work->table->evaluation->evaluate(f.work->state, &m));
    steps(&f, 2);
    save(&f, "whole.safetensors");
    fixture_close(&f);
    open_on(&f, devices[i], NULL, NULL);
    assert_ok(f.work->table->load(f.work->state, "half.safetensors", &extra));
    assert_string_equal(json_string_value(json_object_get(extra, "brim.step")), "2");
    json_decref(extra);
    steps(&f, 2);
    save(&f, "resumed.safetensors");
    fixture_close(&f);
    assert_same_file("whole.safetensors", "resumed.safetensors");
  }
}

static void refuses(fixture *f, const char *path, const char *words) {
  save(f, "untouched.safetensors");
  assert_true(f->work->table->load(f->work->state, path, NULL) != BRIM_OK);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s", brim_status_detail());
  save(f, "still.safetensors");
  assert_same_file("untouched.safetensors", "still.safetensors");
}

static void test_names_and_refusals(void **state) {
  (void)state;
  fixture f;
  brim_safetensors *file;
  open_with(&f, NULL, NULL);
  steps(&f, 1);
  save(&f, "a.safetensors");
  assert_ok(f.work->table->save(f.work->state, "model.safetensors", NULL, true));
  assert_ok(brim_safetensors_open("a.safetensors", &file));
  static const char *const names[] = {"actor.layers.0.weight",
                                      "actor.layers.2.bias",
                                      "critic.layers.2.weight",
                                      "actor.optimizer.m.layers.0.weight",
                                      "critic.optimizer.v.layers.1.bias",
                                      "critic.optimizer.state",
                                      "rollout.states",
                                      "rollout.carried",
                                      "value_norm.sums"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!brim_safetensors_find(file, names[i])) fail_msg("no %s", names[i]);
  }
  const brim_safetensors_entry *e = brim_safetensors_find(file, "actor.layers.0.weight");
  assert_true(e->rank == 2 && e->dim[0] == 16 && e->dim[1] == 8);
  assert_true(f.work->table->owns(file));
  brim_safetensors_close(file);
  refuses(&f, "model.safetensors", "holds only networks");
  refuses(&f, "missing.safetensors", "missing.safetensors");
  fixture_close(&f);
  open_with(&f, "model=actor_critic(hidden=8)", NULL);
  refuses(&f, "a.safetensors", "has shape (16, 8), expected (8, 8)");
  fixture_close(&f);
}

// A file that another program edited has no checksum: invalid states in it are refused all the same.
static void test_damaged_states(void **state) {
  (void)state;
  fixture f;
  brim_safetensors *file;
  brim_safetensors_entry entries[64];
  size_t n = 0;
  open_with(&f, NULL, NULL);
  steps(&f, 1);
  save(&f, "a.safetensors");
  assert_ok(brim_safetensors_open("a.safetensors", &file));
  const brim_safetensors_entry *e;
  unsigned char states[512];
  for (size_t i = 0; (e = brim_safetensors_at(file, i)); i++) {
    assert_true(n < 64);
    entries[n++] = *e;
    if (strcmp(e->name, "rollout.states") != 0) continue;
    assert_true(e->bytes <= sizeof states);
    memset(states, 0xff, sizeof states);  // not numbers
    entries[n - 1].data = states;
  }
  json_t *meta = json_deep_copy(brim_safetensors_metadata(file));
  (void)json_object_del(meta, BRIM_SAFETENSORS_SUM);
  assert_ok(brim_safetensors_write("b.safetensors", entries, n, meta));
  json_decref(meta);
  brim_safetensors_close(file);
  refuses(&f, "b.safetensors", "b.safetensors: the state of environment 0 is not one of cartpole");
  fixture_close(&f);
}

// Weights alone start another run: networks and return statistics come from the file.
static void test_weights(void **state) {
  (void)state;
  fixture f, g;
  open_with(&f, NULL, NULL);
  steps(&f, 3);
  assert_ok(f.work->table->save(f.work->state, "model.safetensors", NULL, true));
  open_with(&g, "training.weights=model.safetensors", NULL);
  assert_ok(g.work->table->save(g.work->state, "again.safetensors", NULL, true));
  for (int n = 0; n < BRIM_MAPPO_NETS; n++) {
    brim_net *a = brim_mappo_net(of(&f), n), *b = brim_mappo_net(of(&g), n);
    for (size_t i = 0; i < brim_net_param_count(a); i++) {
      float x[512], y[512];
      assert_true(brim_net_param_at(a, i)->count <= 512);
      assert_ok(brim_net_param_read(a, i, x));
      assert_ok(brim_net_param_read(b, i, y));
      assert_memory_equal(x, y, (size_t)brim_net_param_at(a, i)->count * sizeof *x);
    }
  }
  assert_int_equal(of(&g)->now.step, 0);
  fixture_close(&g);
  fixture_close(&f);
}

// States of a grid with other settings are refused, even if they have the same number of bytes.
static void test_other_grid(void **state) {
  (void)state;
  static const char *const other[] = {"env=uav(size=4, crop=1, num_uavs=2, num_obstacles=5)",
                                      "env=uav(size=2, crop=1, num_uavs=2, num_obstacles=1)"};
  fixture f;
  open_with(&f, "env=uav(size=4, crop=1, num_uavs=2, num_obstacles=1)", NULL);
  steps(&f, 2);
  const size_t bytes = of(&f)->layout.saved[0].bytes;
  save(&f, "grid.safetensors");
  fixture_close(&f);
  for (int i = 0; i < 2; i++) {
    open_with(&f, other[i], NULL);
    assert_int_equal(of(&f)->layout.saved[0].bytes, bytes);
    assert_ok(f.work->table->load(f.work->state, "grid.safetensors", NULL));
    assert_int_equal(of(&f)->now.step, 2);
    const brim_mappo *w = of(&f);
    assert_ok(brim_collect_check_saved(&w->shape, w->block + w->layout.saved[0].offset,
                                       w->block + w->layout.saved[1].offset));
    steps(&f, 2);
    fixture_close(&f);
  }
}

// Another number of environments continues with new episodes; networks and position come from the file.
static void test_other_environments(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "a.safetensors");
  fixture_close(&f);
  open_with(&f, "mappo.num_envs=4", NULL);
  assert_ok(f.work->table->load(f.work->state, "a.safetensors", NULL));
  assert_int_equal(of(&f)->now.step, 2);
  steps(&f, 1);
  fixture_close(&f);
}

static void test_snapshot(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "a.safetensors");
  assert_ok(f.work->table->snapshot(f.work->state));
  steps(&f, 2);
  save(&f, "b.safetensors");
  assert_ok(f.work->table->restore(f.work->state));
  save(&f, "again.safetensors");
  assert_same_file("a.safetensors", "again.safetensors");
  steps(&f, 2);
  save(&f, "again.safetensors");
  assert_same_file("b.safetensors", "again.safetensors");
  fixture_close(&f);
}

// A stop within an iteration leaves the state as it was before the iteration.
static void test_stop(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  const volatile sig_atomic_t stop = 1;
  open_with(&f, NULL, NULL);
  steps(&f, 1);
  save(&f, "a.safetensors");
  f.work->table->stops(f.work->state, &stop);
  assert_int_equal(f.work->table->step(f.work->state, NULL, &info), BRIM_EINTERRUPTED);
  f.work->table->stops(f.work->state, NULL);
  save(&f, "b.safetensors");
  assert_same_file("a.safetensors", "b.safetensors");
  steps(&f, 1);
  save(&f, "a.safetensors");
  fixture_close(&f);
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "b.safetensors");
  fixture_close(&f);
  assert_same_file("a.safetensors", "b.safetensors");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_configs),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_sizes_of_the_guide),
      cmocka_unit_test(test_dictionary),
      cmocka_unit_test(test_chosen_environments),
      cmocka_unit_test(test_kept_environments),
      cmocka_unit_test(test_knobs),
      cmocka_unit_test(test_threads_of_a_setting),
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_steps),
      cmocka_unit_test(test_updates),
      cmocka_unit_test(test_episodes),
      cmocka_unit_test(test_repeatable),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_names_and_refusals),
      cmocka_unit_test(test_damaged_states),
      cmocka_unit_test(test_weights),
      cmocka_unit_test(test_other_environments),
      cmocka_unit_test(test_other_grid),
      cmocka_unit_test(test_snapshot),
      cmocka_unit_test(test_stop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
