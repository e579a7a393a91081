// The ars workload: allowed configs, the parts of a step, chunks that change nothing, and checkpoints that restore the
// training bit for bit.
#include <math.h>

#include "engine/engine.h"
#include "same_file.h"
#include "workload/ars_fixture.h"

//---------------------------------- configs ----------------------------------

static void refused(const char *one, const char *two, const char *words) {
  fixture f;
  const char *const overrides[] = {one, two};
  brim_status status = fixture_open(&f, "ref", yaml, overrides, two ? 2 : 1);
  assert_true(status != BRIM_OK);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s: %s", one, brim_status_detail());
  fixture_close(&f);
}

static void keep_text(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)level, (void)module;
  snprintf(ctx, 1024, "%s", text);
}

static void test_bad_configs(void **state) {
  (void)state;
  refused("ars.num_envs=7", NULL, "expected an even number");
  refused("env=quadruped(task=jump)", NULL, "task");
  refused("env=quadruped(integrator=verlet)", NULL, "integrator");
  refused("env=quadruped(margin=0.05)", NULL, "margin is 0.05, expected 0.01");
  refused("env=walker", NULL, "unknown env 'walker'");
  refused("env=uav(crop=10)", NULL, "crop is 10, expected an odd number");
  refused("env=uav(size=8)", NULL, "crop is 11, but the grid has only 8 x 8 cells");
  refused("env=uav(num_obstacles=1024)", NULL, "num_obstacles is 1024, but the grid has only");
  refused("env=uav(grid_size=11, num_obstacles=111)", NULL,
          "num_uavs is 10, but 11 x 11 cells with 111 obstacles have only 10 free cells");
  refused("env=uav(size=32, grid_size=32)", NULL, "'size' and 'grid_size' are the same argument");
  refused("env=uav(rules=peer, task=coverage)", NULL, "rules=peer has only the task goals");
  refused("ars.noise_std=0", NULL, "without noise");
  refused("model=resnet18", NULL, "linear_policy or mlp_policy");
  refused("model=mlp(depth=7, dropout=0.5)", NULL, "model is mlp, but ars needs a policy");
  refused("model=linear", NULL, "model is linear, but ars needs a policy");
  refused("model=mlp_policy(depth=3)", NULL, "one hidden layer");
}

// A default chunk is never too large.
static void test_chunk_by_default(void **state) {
  (void)state;
  fixture f;
  static const char few[] = "workload: ars\nars: {num_envs: 8, num_dirs: 2}\n";
  assert_ok(fixture_open(&f, "ref", few, NULL, 0));
  assert_int_equal(brim_work_setting(f.work).value[brim_work_knob(f.work, "dir_chunk")], 2);
  fixture_close(&f);
  // nor is the default if a file spells out all values
  static const char written[] = "workload: ars\nars: {num_envs: 8, num_dirs: 2, dir_chunk: 8}\n";
  assert_ok(fixture_open(&f, "ref", written, NULL, 0));
  assert_int_equal(brim_work_setting(f.work).value[brim_work_knob(f.work, "dir_chunk")], 2);
  fixture_close(&f);
  // a chunk from the config is cut, and brim reports it
  static const char *const asked[] = {"ars.dir_chunk=8", "ars.num_dirs=2"};
  for (int i = 0; i < 2; i++) {
    char said[1024] = "";
    brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
    assert_ok(fixture_open(&f, "ref", yaml, &asked[i], 1));
    brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
    assert_int_equal(brim_work_setting(f.work).value[brim_work_knob(f.work, "dir_chunk")],
                     i ? 2 : 4);
    assert_non_null(strstr(said, i ? "dir_chunk is 4, more than the 2 directions"
                                   : "dir_chunk is 8, more than the 4 directions"));
    fixture_close(&f);
  }
}

static void test_phases(void **state) {
  (void)state;
  static const char plain[] = "workload: ars\n";
  const char *const second[] = {"ars.phase=phase2"};
  brim_rollout_shape one, two;
  fixture f;
  assert_ok(fixture_open(&f, "ref", plain, NULL, 0));
  assert_ok(brim_ars_shape(f.config, NULL, &one));
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", plain, second, 1));
  assert_ok(brim_ars_shape(f.config, NULL, &two));
  fixture_close(&f);
  assert_true(robot_of(&two).push_speed > robot_of(&one).push_speed);
  assert_true(two.episode_length > one.episode_length);
  // the first run has the config's seed, the second another one: it may start from the first one's policy
  assert_true(one.seed == 0);
  assert_true(two.seed != one.seed);
  assert_int_equal(robot_of(&one).frame_skip, 5);
  assert_true(one.filter == 1);
}

static void test_plan(void **state) {
  (void)state;
  fixture f;
  brim_plan all, half, small;
  open_with(&f, NULL, NULL);
  brim_setting s = brim_work_setting(f.work);
  int chunk = brim_work_knob(f.work, "ars.dir_chunk"), envs = brim_work_knob(f.work, "num_envs");
  assert_ok(f.work->table->plan(f.work->state, &s, &all));
  assert_true(all.samples_per_step == 8 * 4 * 20);
  assert_int_equal(all.parameter_count, 29 * 8);
  s.value[envs] = 4096;
  assert_ok(f.work->table->plan(f.work->state, &s, &all));
  assert_true(f.work->table->shrinking->shrink(f.work->state, &s));
  assert_int_equal(s.value[chunk], 2);
  assert_int_equal(s.value[envs], 4096);
  assert_ok(f.work->table->plan(f.work->state, &s, &half));
  assert_true(half.bytes[BRIM_PLACE_DEVICE] <= all.bytes[BRIM_PLACE_DEVICE]);
  assert_true(f.work->table->shrinking->shrink(f.work->state, &s));
  assert_true(f.work->table->shrinking->shrink(f.work->state, &s));
  assert_int_equal(s.value[chunk], 1);
  assert_int_equal(s.value[envs], 2048);
  assert_ok(f.work->table->plan(f.work->state, &s, &small));
  assert_true(small.bytes[BRIM_PLACE_DEVICE] <= half.bytes[BRIM_PLACE_DEVICE]);
  int more = 0;
  while (f.work->table->shrinking->shrink(f.work->state, &s)) {
    assert_int_equal(s.value[envs] % 2, 0);
    assert_true(++more < 64);
  }
  assert_int_equal(s.value[envs], 2);
  fixture_close(&f);
}

//---------------------------------- stepping ----------------------------------

static void test_steps(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  brim_work_metrics m;
  open_with(&f, NULL, NULL);
  five_steps(&f, "env steps", 8 * 4 * 20, 6, &info);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_true(isnan(figure(m, "loss")));
  assert_int_equal(episodes_of(m).count, 5 * 4 * 2);
  assert_int_equal(episodes_of(m).steps, 5 * 8 * 4 * 20);
  assert_true(isfinite(figure(m, "return")) && figure(m, "spread") > 0);
  assert_true(figure(m, "update_norm") > 0 && figure(m, "policy_norm") > 0);
  assert_true(figure(m, "sigma") > 0);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(episodes_of(m).count, 0);
  assert_true(isnan(figure(m, "return")));
  fixture_close(&f);
}

// Follows episodes to their end and counts them again one by one. Pushes carry a passive robot far in some of them and
// throw it over in others.
static void test_walked(void **state) {
  (void)state;
  enum { EPISODES = 60, LENGTH = 20 };
  static const char walk[] =
      "workload: ars\n"
      "env: quadruped(task=walk, push_speed=9, push_every=4)\n"
      "ars: {num_envs: 8, num_dirs: 4, top_dirs: 2, eval_episodes: 60, episode_length: 20}\n";
  fixture f;
  brim_work_metrics m;
  brim_rollout_shape shape;
  float theta[BRIM_QUADRUPED_OBS * BRIM_QUADRUPED_ACT] = {0}, normal[2 * BRIM_QUADRUPED_OBS] = {0};
  const brim_rollout_eval how = {.episodes = EPISODES, .stream = BRIM_ARS_STREAM_TRAINING};
  int64_t walked = 0;
  assert_ok(fixture_open(&f, "ref", walk, NULL, 0));
  assert_ok(fixture_configure(&f));
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_ok(brim_ars_shape(f.config, NULL, &shape));
  for (int32_t i = 0; i < EPISODES; i++) {
    float frames[LENGTH + 1][BRIM_QUADRUPED_FRAME], reward[LENGTH + 1];
    brim_rollout_record r = {.capacity = LENGTH + 1, .frames = frames[0], .reward = reward};
    assert_ok(brim_rollout_trace(&shape, theta, normal, &how, i, &r));
    const float far = frames[r.states - 1][0] - frames[0][0];
    walked += r.outcome == BRIM_ENV_TRUNCATED && far >= 1.0f;  // metres, in one second
  }
  assert_true(walked > 0 && walked < EPISODES);
  assert_true(figure(m, "walked") == (double)walked);
  assert_true(metric_value(m.set, m.baseline, "walked") == (double)walked);
  assert_true(fabs(figure(m, "walk_seconds") - 1) < 1e-6);
  fixture_close(&f);
  // a standing robot does not walk, however far it is pushed
  open_with(&f, NULL, NULL);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_true(isnan(figure(m, "walked")));
  fixture_close(&f);
}

static void test_evaluate(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics one, two;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  assert_ok(brim_work_evaluate(f.work, &one));
  assert_ok(brim_work_evaluate(f.work, &two));
  assert_string_equal(deciding_key(one), "return");
  assert_int_equal(episodes_of(one).episodes, 6);
  assert_true(one.baseline[BRIM_ARS_EPISODES] == 6);
  const brim_ars_returns held = episodes_of(one);
  assert_true(figure(one, "return") == brim_returns_mean(&held));
  assert_memory_equal(one.sums, two.sums, sizeof one.sums);
  assert_true(figure(one, "return") == figure(two, "return"));
  assert_memory_equal(one.baseline, two.baseline, sizeof one.baseline);
  // a policy of zeros is the baseline itself: the same episodes
  fixture zero;
  open_with(&zero, NULL, NULL);
  assert_ok(brim_work_evaluate(zero.work, &two));
  for (int i = 0; i <= BRIM_ARS_EPISODES; i++) {
    assert_true(two.values[i] == two.baseline[i] ||
                (isnan(two.values[i]) && isnan(two.baseline[i])));
  }
  assert_memory_equal(two.baseline, one.baseline, sizeof two.baseline);
  fixture_close(&zero);
  fixture_close(&f);
  open_with(&f, "ars.eval_episodes=0", NULL);
  assert_status(brim_work_evaluate(f.work, &one), BRIM_ESTATE);
  fixture_close(&f);
}

// The number of directions at once is only a matter of memory: every divisor gives the same bits.
static void test_chunks(void **state) {
  (void)state;
  static const char *const chunks[] = {"ars.dir_chunk=4", "ars.dir_chunk=3", "ars.dir_chunk=2",
                                       "ars.dir_chunk=1"};
  static const char *const files[] = {"chunk4", "chunk3", "chunk2", "chunk1"};
  for (int i = 0; i < 4; i++) {
    fixture f;
    open_with(&f, chunks[i], NULL);
    steps(&f, 3);
    save(&f, files[i]);
    fixture_close(&f);
    if (i > 0) assert_same_file(files[0], files[i]);
  }
}

//---------------------------------- checkpoints ----------------------------------

static void test_resume(void **state) {
  (void)state;
  static const char *const models[] = {"model=linear_policy", "model=mlp_policy(hidden=16)"};
  for (int i = 0; i < 2; i++) {
    fixture whole, part, rest;
    json_t *extra = NULL;
    open_with(&whole, models[i], NULL);
    steps(&whole, 5);
    save(&whole, "whole");
    open_with(&part, models[i], NULL);
    steps(&part, 3);
    save(&part, "part");
    open_with(&rest, models[i], NULL);
    assert_ok(rest.work->table->load(rest.work->state, "part", &extra));
    assert_string_equal(json_string_value(json_object_get(extra, "brim.step")), "3");
    json_decref(extra);
    steps(&rest, 2);
    save(&rest, "rest");
    assert_same_file("whole", "rest");
    fixture_close(&whole);
    fixture_close(&part);
    fixture_close(&rest);
  }
}

static void test_snapshot(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "before");
  assert_ok(f.work->table->snapshot(f.work->state));
  steps(&f, 2);
  save(&f, "between");
  assert_ok(f.work->table->restore(f.work->state));
  save(&f, "after");
  assert_same_file("before", "after");
  fixture_close(&f);
}

// Copies a file with one value replaced.
static void write_with(const char *from, const char *to, const char *name, double value) {
  brim_safetensors *file = NULL;
  brim_safetensors_entry entries[16];
  static double buffer[4096];
  assert_ok(brim_safetensors_open(from, &file));
  size_t n = brim_safetensors_count(file);
  assert_true(n <= 16);
  for (size_t i = 0; i < n; i++) {
    entries[i] = *brim_safetensors_at(file, i);
    if (strcmp(entries[i].name, name) != 0) continue;
    assert_true(entries[i].bytes <= sizeof buffer);
    memcpy(buffer, entries[i].data, entries[i].bytes);
    if (entries[i].dtype == BRIM_F64) {
      buffer[0] = value;
    } else {
      ((float *)buffer)[3] = (float)value;
    }
    entries[i].data = buffer;
  }
  json_t *meta = json_deep_copy(brim_safetensors_metadata(file));
  json_object_del(meta, BRIM_SAFETENSORS_SUM);
  assert_ok(brim_safetensors_write(to, entries, n, meta));
  json_decref(meta);
  brim_safetensors_close(file);
}

static void test_bad_checkpoints(void **state) {
  (void)state;
  fixture f, mlp;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "good");
  write_with("good", "nan", "policy.weight", (double)NAN);
  refuses(&f, "nan", "value 3 of policy.weight is NaN");
  write_with("good", "infinite", "normal.rstd", (double)INFINITY);
  refuses(&f, "infinite", "of normal.rstd is infinite");
  write_with("good", "negative", "filter.count", -1);
  refuses(&f, "negative", "filter");
  write_with("good", "countless", "filter.count", 1e308);
  refuses(&f, "countless", "an impossible number of observations");
  json_t *extra = json_pack("{s:s}", "brim.iteration", "9000000000000000");
  assert_ok(f.work->table->save(f.work->state, "late", extra, false));
  json_decref(extra);
  refuses(&f, "late", "brim.iteration is 9000000000000000");
  open_with(&mlp, "model=mlp_policy(hidden=16)", NULL);
  refuses(&mlp, "good", "its policy is linear_policy, but this run uses mlp_policy(hidden=16)");
  save(&mlp, "mlp");
  refuses(&f, "mlp", "its policy is mlp_policy(hidden=16)");
  fixture_close(&mlp);
  assert_ok(f.work->table->save(f.work->state, "model", NULL, true));
  refuses(&f, "model", "--weights");
  fixture_close(&f);
}

// An environment's sizes may depend on its arguments: the message has the sizes, and does not blame the model.
static void test_other_sizes(void **state) {
  (void)state;
  static const char *const models[] = {"model=linear_policy", "model=mlp_policy(hidden=16)"};
  for (size_t i = 0; i < 2; i++) {
    fixture small, large;
    open_with(&small, "env=uav(crop=3)", models[i]);
    open_with(&large, "env=uav(crop=5)", models[i]);
    save(&small, "small");
    refuses(&large, "small", "its policy has 44 observations and 5 actions, but this run's");
    refuses(&large, "small", "set env=... as in its training");
    fixture_close(&small);
    fixture_close(&large);
  }
}

// A second phase starts at step 0 from the first one's policy and statistics.
static void test_weights(void **state) {
  (void)state;
  fixture f;
  brim_ars_policy one, two;
  open_with(&f, NULL, NULL);
  steps(&f, 3);
  assert_ok(f.work->table->save(f.work->state, "first", NULL, true));
  fixture_close(&f);
  open_with(&f, "training.weights=first", "ars.phase=phase2");
  save(&f, "second");
  brim_rollout_shape shape;
  assert_ok(brim_ars_shape(f.config, NULL, &shape));
  assert_ok(brim_ars_policy_read("first", &shape, &one));
  assert_ok(brim_ars_policy_read("second", &shape, &two));
  assert_int_equal(one.iteration, 3);
  assert_int_equal(two.iteration, 0);
  assert_int_equal(one.params, 29 * 8);
  assert_memory_equal(one.theta, two.theta, one.params * sizeof *one.theta);
  assert_memory_equal(one.normal, two.normal, 2 * 29 * sizeof *one.normal);
  assert_memory_equal(one.filter, two.filter, (1 + 2 * 29) * sizeof *one.filter);
  assert_true(one.filter[0] > 0);
  brim_ars_policy_deinit(&one);
  brim_ars_policy_deinit(&two);
  fixture_close(&f);
  // a policy of normalised observations does not fit v1
  const char *const v1[] = {"training.weights=first", "ars.version=v1"};
  assert_ok(fixture_open(&f, "ref", yaml, v1, 2));
  assert_true(fixture_configure(&f) != BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "v2"));
  fixture_close(&f);
}

static void test_use(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics trained, evaluated;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  assert_ok(brim_work_evaluate(f.work, &trained));
  // the workload owns the rows, so read them before it closes
  double of_training = figure(trained, "return");
  save(&f, "used");
  fixture_close(&f);
  open_with(&f, NULL, NULL);
  assert_ok(brim_work_use(f.work, "used", false));
  assert_ok(brim_work_evaluate(f.work, &evaluated));
  // its episodes differ from the evaluations of the training
  assert_true(figure(evaluated, "return") != of_training);
  assert_true(evaluated.baseline[BRIM_ARS_RETURN] != trained.baseline[BRIM_ARS_RETURN]);
  fixture_close(&f);
}

static brim_status train_a_little(void) {
  fixture f;
  brim_step_info info;
  brim_work_metrics m;
  brim_status status = fixture_open(&f, "ref", yaml, NULL, 0);
  if (!status) status = fixture_configure(&f);
  if (!status) status = f.work->table->step(f.work->state, NULL, &info);
  if (!status) status = brim_work_evaluate(f.work, &m);
  if (!status) status = f.work->table->snapshot(f.work->state);
  if (!status) status = f.work->table->restore(f.work->state);
  if (!status) status = f.work->table->save(f.work->state, "little", NULL, false);
  if (!status) status = f.work->table->load(f.work->state, "little", NULL);
  fixture_close(&f);
  return status;
}

// Each allocation fails once (a seed selects one in four): an error each time, never a crash, and the next run is
// complete.
static void test_out_of_memory(void **state) {
  (void)state;
  brim_json_own_memory();
  assert_ok(train_a_little());
  uint64_t n = 1;
  for (;; n++) {
    if (!test_is_sampled(n, 4)) continue;
    uint64_t before = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = train_a_little();
    brim_alloc_fail_nth(0, 0);
    if (brim_alloc_failures() == before) {
      assert_ok(status);
      break;
    }
    assert_true(n < 100000);
  }
  assert_true(n > 20);
  assert_ok(train_a_little());
}

// Chunks and repeated runs give the same bits on CUDA too.
static void test_cuda(void **state) {
  (void)state;
  static const char *const chunks[] = {"ars.dir_chunk=4", "ars.dir_chunk=4", "ars.dir_chunk=1"};
  static const char *const files[] = {"cuda0", "cuda1", "cuda2"};
  for (int i = 0; i < 3; i++) {
    fixture f;
    brim_status status = fixture_open(&f, "cuda", yaml, &chunks[i], 1);
    if (status) fixture_close(&f);
    if (status) BRIM_SKIP(brim_status_detail());
    assert_ok(fixture_configure(&f));
    steps(&f, 3);
    save(&f, files[i]);
    fixture_close(&f);
    if (i > 0) assert_same_file(files[0], files[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_configs),     cmocka_unit_test(test_chunk_by_default),
      cmocka_unit_test(test_phases),          cmocka_unit_test(test_plan),
      cmocka_unit_test(test_steps),           cmocka_unit_test(test_evaluate),
      cmocka_unit_test(test_walked),          cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_resume),          cmocka_unit_test(test_snapshot),
      cmocka_unit_test(test_bad_checkpoints), cmocka_unit_test(test_other_sizes),
      cmocka_unit_test(test_weights),         cmocka_unit_test(test_use),
      cmocka_unit_test(test_out_of_memory),   cmocka_unit_test(test_cuda),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
