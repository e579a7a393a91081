// The supervised workload: planned bytes, learning, resuming, snapshots, knobs, bad configs.
#include <math.h>
#include <unistd.h>

#include "same_file.h"
#include "workload/fixture.h"

static void steps(fixture *f, int n, brim_step_info *last) {
  for (int i = 0; i < n; i++) assert_ok(f->work->table->step(f->work->state, NULL, last));
}

static void test_it_learns(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  brim_work_metrics first, last;
  brim_step_info info;
  brim_work_info about;
  f.work->table->info(f.work->state, &about);
  assert_int_equal(about.samples_per_epoch, 500);
  assert_int_equal(about.steps_per_epoch, 16);  // 500 / 32, the last one short
  assert_true(about.eval_samples > 0);
  assert_ok(brim_work_evaluate(f.work, &first));
  steps(&f, 16, &info);
  assert_true(info.epoch_end);
  assert_int_equal(info.samples, 500 - 15 * 32);
  steps(&f, 32, &info);
  assert_ok(brim_work_evaluate(f.work, &last));
  assert_true(figure(last, "accuracy") > figure(first, "accuracy") + 0.3);
  assert_true(figure(last, "loss") < 0.5 * figure(first, "loss"));
  assert_int_equal(last.samples, about.eval_samples);
  fixture_close(&f);
}

static void test_metrics_are_not_mixed_with_evaluation(void **state) {
  (void)state;
  fixture a, b;
  assert_ok(fixture_open(&a, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_open(&b, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&a));
  assert_ok(fixture_configure(&b));
  brim_step_info info;
  brim_work_metrics ma, mb, eval;
  steps(&a, 5, &info);
  steps(&b, 3, &info);
  assert_ok(brim_work_evaluate(b.work, &eval));
  steps(&b, 2, &info);
  assert_ok(a.work->table->metrics(a.work->state, true, &ma));
  assert_ok(b.work->table->metrics(b.work->state, true, &mb));
  assert_int_equal(ma.samples, 160);
  assert_int_equal(mb.samples, 160);
  assert_float_equal(figure(ma, "loss"), figure(mb, "loss"), 1e-6);
  assert_ok(a.work->table->metrics(a.work->state, true, &ma));
  assert_int_equal(ma.samples, 0);
  assert_true(isnan(figure(ma, "loss")));
  fixture_close(&a);
  fixture_close(&b);
}

// Saves at every position up to the second epoch, loads into a fresh workload, and continues: same bytes.
static void resume_equals(const char *device) {
  fixture whole, part;
  brim_step_info info;
  for (int at = 1; at < 20; at += 6) {
    if (fixture_open(&whole, device, fixture_yaml, NULL, 0)) {
      fixture_close(&whole);
      BRIM_SKIP(brim_status_detail());
    }
    assert_ok(fixture_configure(&whole));
    steps(&whole, at, &info);
    assert_ok(whole.work->table->save(whole.work->state, "mid.safetensors", NULL, false));
    steps(&whole, 25 - at, &info);
    assert_ok(whole.work->table->save(whole.work->state, "whole.safetensors", NULL, false));
    fixture_close(&whole);

    assert_ok(fixture_open(&part, device, fixture_yaml, NULL, 0));
    assert_ok(fixture_configure(&part));
    assert_ok(part.work->table->load(part.work->state, "mid.safetensors", NULL));
    steps(&part, 25 - at, &info);
    assert_int_equal(info.step, 25);
    assert_ok(part.work->table->save(part.work->state, "part.safetensors", NULL, false));
    fixture_close(&part);
    assert_same_file("whole.safetensors", "part.safetensors");
  }
}

static void test_resume_is_exact_on_ref(void **state) {
  (void)state;
  resume_equals("ref");
}

static void test_resume_is_exact_on_cpu(void **state) {
  (void)state;
  resume_equals("cpu");
}

static void test_resume_is_exact_on_cuda(void **state) {
  (void)state;
  resume_equals("cuda");
}

static void test_snapshot_leaves_no_trace(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 4, &info);
  assert_ok(f.work->table->save(f.work->state, "before.safetensors", NULL, false));
  assert_ok(f.work->table->snapshot(f.work->state));
  steps(&f, 20, &info);
  assert_ok(f.work->table->restore(f.work->state));
  assert_ok(f.work->table->save(f.work->state, "after.safetensors", NULL, false));
  assert_same_file("before.safetensors", "after.safetensors");
  steps(&f, 1, &info);
  assert_int_equal(info.step, 5);
  fixture_close(&f);
}

// The allocator counts exactly the plan's bytes, for every combination of knobs.
static void planned_is_counted(const char *device) {
  fixture f;
  if (fixture_open(&f, device, fixture_yaml, NULL, 0)) {
    fixture_close(&f);
    BRIM_SKIP(brim_status_detail());
  }
  const int64_t batches[] = {1, 7, 64, 500, 1000};
  const int64_t workers[] = {0, 1, 3};
  const int64_t precisions[] = {0, 2};  // fp32, bf16
  const int64_t accumulations[] = {1, 3};
  int tried = 0;
  for (size_t i = 0; i < 5 * 3 * 2 * 2; i++) {
    brim_setting setting = brim_work_setting(f.work);
    setting.value[brim_work_knob(f.work, "batch_size")] = batches[i % 5];
    setting.value[brim_work_knob(f.work, "num_workers")] = workers[i / 5 % 3];
    setting.value[brim_work_knob(f.work, "precision")] = precisions[i / 15 % 2];
    setting.value[brim_work_knob(f.work, "accumulation")] = accumulations[i / 30];
    brim_plan plan;
    brim_status status = f.work->table->plan(f.work->state, &setting, &plan);
    if (status == BRIM_EUNSUPPORTED) continue;  // bf16 on a CPU without it
    assert_ok(status);
    assert_ok(f.work->table->configure(f.work->state, &setting));
    brim_step_info info;
    steps(&f, 2, &info);
    brim_alloc_stats stats;
    brim_alloc_get_stats(&stats);
    assert_int_equal(stats.live_bytes[BRIM_MEM_PLANNED],
                     plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST]);
    tried++;
  }
  assert_true(tried >= 30);
  fixture_close(&f);
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  assert_int_equal(stats.live_bytes[BRIM_MEM_PLANNED], 0);
}

static void test_planned_bytes_are_real_on_ref(void **state) {
  (void)state;
  planned_is_counted("ref");
}

static void test_planned_bytes_are_real_on_cpu(void **state) {
  (void)state;
  planned_is_counted("cpu");
}

static void test_a_step_allocates_nothing(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  brim_alloc_stats before, after;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 3, &info);
  brim_alloc_get_stats(&before);
  steps(&f, 40, &info);  // over epoch boundaries
  brim_alloc_get_stats(&after);
  assert_int_equal(after.calls, before.calls);
  fixture_close(&f);
}

static void test_bad_configs_say_what_to_do(void **state) {
  (void)state;
  static const struct {
    const char *yaml;
    const char *says;
  } cases[] = {
      {"model: mlp\n", "--data-path"},
      {"dataset: idx\ndata: {path: /nonexistent/folder}\n", "/nonexistent/folder"},
      {"dataset: synthetic\nworkload: contrastive\n", "contrastive"},
      {"dataset: synthetic\nmodel: transformer(hidden=10, heads=3)\n", "heads"},
      {"dataset: synthetic(samples=10)\ndata: {batch_size: 64, drop_last: true}\n", "drop_last"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f;
    brim_status status = fixture_open(&f, "ref", cases[i].yaml, NULL, 0);
    if (!status) status = fixture_configure(&f);
    assert_int_not_equal(status, BRIM_OK);
    if (!strstr(brim_status_detail(), cases[i].says)) {
      fail_msg("case %zu: '%s' does not say '%s'", i, brim_status_detail(), cases[i].says);
    }
    fixture_close(&f);
  }
}

static void test_training_keys_win_over_the_component(void **state) {
  (void)state;
  const char *const overrides[] = {"training.learning_rate=0.5", "scheduler=constant"};
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 2));
  assert_ok(fixture_configure(&f));
  steps(&f, 1, &info);
  assert_float_equal(info.lr, 0.5, 1e-12);
  fixture_close(&f);
}

// step(every=1) falls once an epoch: 16 steps of 500 samples in batches of 32
static void test_schedules_count_epochs(void **state) {
  (void)state;
  const char *const overrides[] = {"scheduler=step(every=1, gamma=0.1)", "lr=0.01"};
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 2));
  assert_ok(fixture_configure(&f));
  steps(&f, 16, &info);
  assert_true(fabs(info.lr - 0.01) < 1e-12);
  steps(&f, 1, &info);
  assert_true(fabs(info.lr - 0.001) < 1e-12);
  steps(&f, 16, &info);
  assert_true(fabs(info.lr - 0.0001) < 1e-12);
  fixture_close(&f);
}

// The rate rises during the first epoch (16 steps), whichever key asks for it.
static void test_warm_up_by_epochs_and_steps(void **state) {
  (void)state;
  static const char *const ways[] = {"training.warmup_epochs=1", "training.warmup_steps=16",
                                     "scheduler=constant(warmup=16)"};
  for (size_t i = 0; i < 3; i++) {
    const char *const overrides[] = {ways[i], "lr=0.016"};
    fixture f;
    brim_step_info info;
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 2));
    assert_ok(fixture_configure(&f));
    steps(&f, 1, &info);
    assert_true(fabs(info.lr - 0.001) < 1e-12);
    steps(&f, 15, &info);
    assert_true(fabs(info.lr - 0.016) < 1e-12);
    fixture_close(&f);
  }
}

// A regression needs no loss in the config.
static void test_regression_takes_mse(void **state) {
  (void)state;
  const char *const overrides[] = {
      "dataset=synthetic(shape=(4, 4), classes=0, targets=2, samples=200)"};
  fixture f;
  brim_step_info info;
  brim_work_metrics first, last;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 1));
  assert_ok(fixture_configure(&f));
  assert_ok(brim_work_evaluate(f.work, &first));
  steps(&f, 60, &info);
  assert_ok(brim_work_evaluate(f.work, &last));
  assert_true(isnan(figure(last, "accuracy")));
  assert_true(figure(last, "loss") < figure(first, "loss"));
  fixture_close(&f);
}

// A checkpoint in the middle of an epoch continues with another batch size, drop_last or not.
static void test_resume_with_another_batch_size(void **state) {
  (void)state;
  static const char *const ways[] = {"data.drop_last=true", "data.drop_last=false"};
  for (size_t i = 0; i < 2; i++) {
    const char *const before[] = {ways[i]};
    const char *const after[] = {ways[i], "data.batch_size=50"};
    fixture a, b;
    brim_step_info info;
    assert_ok(fixture_open(&a, "ref", fixture_yaml, before, 1));
    assert_ok(fixture_configure(&a));
    steps(&a, 14, &info);
    assert_ok(a.work->table->save(a.work->state, "batch.safetensors", NULL, false));
    fixture_close(&a);
    assert_ok(fixture_open(&b, "ref", fixture_yaml, after, 2));
    assert_ok(fixture_configure(&b));
    assert_ok(b.work->table->load(b.work->state, "batch.safetensors", NULL));
    steps(&b, 25, &info);
    assert_int_equal(info.step, 39);
    fixture_close(&b);
  }
}

// The schedule follows the position in the data: another batch size does not end it early.
static void test_schedule_survives_another_batch_size(void **state) {
  (void)state;
  const char *const before[] = {"scheduler=cosine", "data.batch_size=10", "lr=0.01"};
  const char *const after[] = {"scheduler=cosine", "data.batch_size=100", "lr=0.01"};
  fixture a, b;
  brim_step_info info;
  assert_ok(fixture_open(&a, "ref", fixture_yaml, before, 3));
  assert_ok(fixture_configure(&a));
  steps(&a, 75, &info);  // half of three epochs of 50 steps
  double half = info.lr;
  assert_ok(a.work->table->save(a.work->state, "half.safetensors", NULL, false));
  fixture_close(&a);
  assert_ok(fixture_open(&b, "ref", fixture_yaml, after, 3));
  assert_ok(fixture_configure(&b));
  assert_ok(b.work->table->load(b.work->state, "half.safetensors", NULL));
  steps(&b, 1, &info);
  assert_true(fabs(info.lr - half) < 0.0015);
  fixture_close(&b);
}

// The rest of the epoch is smaller than a batch of the new size: training continues with the next epoch.
static void test_drop_last_moves_to_the_next_epoch(void **state) {
  (void)state;
  const char *const before[] = {"data.drop_last=true", "data.batch_size=50"};
  const char *const after[] = {"data.drop_last=true", "data.batch_size=150"};
  fixture a, b;
  brim_step_info info;
  json_t *extra = NULL;
  assert_ok(fixture_open(&a, "ref", fixture_yaml, before, 2));
  assert_ok(fixture_configure(&a));
  steps(&a, 9, &info);  // at sample 450 of 500: three batches of 150 end there
  assert_ok(a.work->table->save(a.work->state, "late.safetensors", NULL, false));
  fixture_close(&a);
  assert_ok(fixture_open(&b, "ref", fixture_yaml, after, 2));
  assert_ok(fixture_configure(&b));
  assert_ok(b.work->table->load(b.work->state, "late.safetensors", &extra));
  assert_string_equal(json_string_value(json_object_get(extra, "brim.epoch")), "1");
  assert_non_null(json_object_get(extra, "brim.new_epoch"));
  json_decref(extra);
  steps(&b, 3, &info);
  assert_int_equal(info.epoch, 1);
  assert_true(info.epoch_end);
  fixture_close(&b);
}

static void test_hostile_metadata_is_refused(void **state) {
  (void)state;
  static const char *const bad[][2] = {{"brim.step", "9223372036854775807"},
                                       {"brim.epoch", "9007199254740992"},
                                       {"brim.position", "-1"},
                                       {"brim.position", "500"},
                                       {"brim.step", "many"}};
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 2, &info);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *extra = json_object();
    assert_int_equal(json_object_set_new(extra, bad[i][0], json_string(bad[i][1])), 0);
    assert_ok(f.work->table->save(f.work->state, "hostile.safetensors", extra, false));
    json_decref(extra);
    assert_int_not_equal(f.work->table->load(f.work->state, "hostile.safetensors", NULL), BRIM_OK);
    assert_non_null(strstr(brim_status_detail(), "hostile.safetensors"));
  }
  steps(&f, 1, &info);
  assert_int_equal(info.step, 3);
  fixture_close(&f);
}

// A checkpoint of other data, or a file that is no checkpoint, changes nothing.
static void test_load_refuses_strangers(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 2, &info);
  assert_ok(f.work->table->save(f.work->state, "weights.safetensors", NULL, true));
  assert_int_not_equal(f.work->table->load(f.work->state, "weights.safetensors", NULL), BRIM_OK);
  assert_ok(brim_fs_write("junk.safetensors", "junk", 4));
  assert_int_not_equal(f.work->table->load(f.work->state, "junk.safetensors", NULL), BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "junk.safetensors"));
  steps(&f, 1, &info);
  assert_int_equal(info.step, 3);
  fixture_close(&f);
}

static brim_work_metrics evaluation(const fixture *f) {
  brim_work_metrics m;
  assert_ok(brim_work_evaluate(f->work, &m));
  return m;
}

static void test_starts_from_weights(void **state) {
  (void)state;
  static const char *const overrides[] = {"training.weights=start.safetensors", "seed=9",
                                          "model=mlp(depth=2, hidden=25)"};
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  double fresh = figure(evaluation(&f), "loss");
  steps(&f, 5, &info);
  double trained = figure(evaluation(&f), "loss");
  assert_true(fresh != trained);
  assert_ok(f.work->table->save(f.work->state, "start.safetensors", NULL, true));
  fixture_close(&f);
  // a new run, from its first step
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 1));
  assert_ok(fixture_configure(&f));
  assert_true(figure(evaluation(&f), "loss") == trained);
  steps(&f, 1, &info);
  assert_int_equal(info.step, 1);
  assert_ok(fixture_configure(&f));  // the loaded weights again, not those after the step
  assert_true(figure(evaluation(&f), "loss") == trained);
  // a full checkpoint serves too; a resumed run does not read it
  assert_ok(f.work->table->save(f.work->state, "start.safetensors", NULL, false));
  assert_ok(fixture_configure(&f));
  assert_true(figure(evaluation(&f), "loss") == trained);
  assert_ok(brim_fs_remove("start.safetensors"));
  assert_status(fixture_configure(&f), BRIM_ENOENT);
  f.work->table->resuming(f.work->state, NULL);
  assert_ok(fixture_configure(&f));
  assert_true(figure(evaluation(&f), "loss") == fresh);
  assert_ok(f.work->table->save(f.work->state, "start.safetensors", NULL, true));
  fixture_close(&f);
  // weights of another shape
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 3));
  assert_status(fixture_configure(&f), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "layers.0.weight"));
  fixture_close(&f);
}

// Heads and patch follow from hidden and from the signal's length if they are not given.
static void test_transformer_chooses_heads_and_patch(void **state) {
  (void)state;
  static const struct {
    const char *data, *chosen, *given;
  } rows[] = {
      {"(5160, 2)", "depth=3, hidden=16", "depth=3, hidden=16, heads=1, patch=30"},
      {"(5160, 2)", "depth=6, hidden=64", "depth=6, hidden=64, heads=4, patch=30"},
      {"(5160, 2)", "depth=12, hidden=128", "depth=12, hidden=128, heads=8, patch=30"},
      {"(48, 1)", "depth=1, hidden=50", "depth=1, hidden=50, heads=2, patch=24"},
      {"(31, 1)", "depth=1, hidden=8", "depth=1, hidden=8, heads=1, patch=31"},
      {"(37, 1)", "depth=1, hidden=51", "depth=1, hidden=51, heads=3, patch=1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_plan plans[2];
    for (int given = 0; given < 2; given++) {
      char yaml[256];
      fixture f;
      snprintf(yaml, sizeof yaml,
               "dataset: synthetic(shape=%s, samples=8)\nmodel: transformer(%s)\n"
               "data: {batch_size: 2, num_workers: 0}\n",
               rows[i].data, given ? rows[i].given : rows[i].chosen);
      assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
      brim_setting setting = brim_work_setting(f.work);
      assert_ok(f.work->table->plan(f.work->state, &setting, &plans[given]));
      fixture_close(&f);
    }
    assert_int_equal(plans[0].parameter_count, plans[1].parameter_count);
    assert_int_equal(plans[0].bytes[BRIM_PLACE_DEVICE], plans[1].bytes[BRIM_PLACE_DEVICE]);
    assert_true(plans[0].flops_per_step == plans[1].flops_per_step);
  }
}

// If device and host share one memory, a limit covers all rows; checkpointing makes them fit.
static void test_a_limit_counts_the_loader(void **state) {
  (void)state;
  static const char yaml[] =
      "dataset: synthetic(shape=(24, 24), classes=4, samples=300, val_samples=300)\n"
      "model: resmlp(depth=6, hidden=32)\n"
      "data: {batch_size: 64, eval_batch_size: 256, num_workers: 1}\n";
  fixture f;
  brim_plan all, half;
  char limit[64];
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &setting, &all));
  assert_int_equal(all.segments, 6);
  assert_int_equal(all.recomputed, 0);
  fixture_close(&f);
  uint64_t host = all.bytes[BRIM_PLACE_HOST], device = all.bytes[BRIM_PLACE_DEVICE];
  assert_true(host > 0);
  // with the evaluation batch as large as the training batch
  const char *const small[] = {"eval_batch_size=64"};
  assert_ok(fixture_open(&f, "ref", yaml, small, 1));
  assert_ok(f.work->table->plan(f.work->state, &setting, &all));
  fixture_close(&f);
  assert_true(all.bytes[BRIM_PLACE_HOST] < host);
  assert_true(all.bytes[BRIM_PLACE_DEVICE] <= device);
  uint64_t need = all.bytes[BRIM_PLACE_HOST] + all.bytes[BRIM_PLACE_DEVICE];
  snprintf(limit, sizeof limit, "gpu.memory_limit=%llu", (unsigned long long)need);
  const char *const whole[] = {limit};
  assert_ok(fixture_open(&f, "ref", yaml, whole, 1));
  assert_ok(f.work->table->plan(f.work->state, &setting, &half));
  assert_int_equal(half.recomputed, 0);
  assert_ok(brim_work_check_fit(f.work, &setting, &half, need));
  fixture_close(&f);
  snprintf(limit, sizeof limit, "gpu.memory_limit=%llu", (unsigned long long)need - 1);
  assert_ok(fixture_open(&f, "ref", yaml, whole, 1));
  assert_ok(f.work->table->plan(f.work->state, &setting, &half));
  assert_true(half.recomputed > 0);
  assert_ok(brim_work_check_fit(f.work, &setting, &half, need - 1));
  assert_ok(fixture_configure(&f));
  brim_step_info info;
  steps(&f, 1, &info);
  fixture_close(&f);
}

// All ranks have the same number of samples; a single process has all samples again.
static void test_ranks_share_an_epoch(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  static const struct {
    int rank, world, samples;
  } rows[] = {{0, 2, 250}, {1, 2, 250}, {2, 3, 166}, {0, 1, 500}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_work_info info;
    f.work->table->ranks->share(f.work->state, rows[i].rank, rows[i].world);
    assert_ok(fixture_configure(&f));
    f.work->table->info(f.work->state, &info);
    assert_int_equal(info.samples_per_epoch, rows[i].samples);
    assert_int_equal(info.set_samples, 500);
    brim_step_info step;
    int64_t samples = 0;
    do {
      assert_ok(f.work->table->step(f.work->state, NULL, &step));
      samples += step.samples;
    } while (!step.epoch_end);
    assert_int_equal(samples, rows[i].samples);
    // every rank evaluates the whole set
    brim_work_metrics metrics;
    assert_ok(brim_work_evaluate(f.work, &metrics));
    assert_int_equal(metrics.samples, info.eval_samples);
  }
  fixture_close(&f);
}

static void test_lists_of_devices(void **state) {
  (void)state;
  static const struct {
    const char *yaml;
    size_t count;
    const char *first, *last;
  } rows[] = {{"seed: 1\n", 1, "auto", "auto"},
              {"device: 3\n", 1, "cuda:3", "cuda:3"},
              {"device: cpu\nbackend: ref\n", 1, "ref", "ref"},
              {"device: [1, cuda:0]\n", 2, "cuda:1", "cuda:0"},
              {"device: [1, 0]\nbackend: cuda\n", 2, "cuda:1", "cuda:0"},
              {"device: [cpu, cpu, cuda:2]\n", 3, "cpu", "cuda:2"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_config_options options = {.text = rows[i].yaml, .text_name = "test.yaml"};
    brim_config *config = NULL;
    const char *spec = NULL;
    assert_ok(brim_config_load(&options, &config));
    assert_int_equal(brim_work_device_count(config), rows[i].count);
    assert_ok(brim_work_device_at(config, 0, &spec));
    assert_string_equal(spec, rows[i].first);
    assert_ok(brim_work_device_at(config, rows[i].count - 1, &spec));
    assert_string_equal(spec, rows[i].last);
    brim_status status = brim_work_device_spec(config, &spec);
    assert_int_equal(status, rows[i].count > 1 ? BRIM_EUNSUPPORTED : BRIM_OK);
    if (status) assert_non_null(strstr(brim_status_detail(), "brim bench"));
    if (!status) assert_string_equal(spec, rows[i].first);
    brim_config_close(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_share_an_epoch),
      cmocka_unit_test(test_lists_of_devices),
      cmocka_unit_test(test_it_learns),
      cmocka_unit_test(test_metrics_are_not_mixed_with_evaluation),
      cmocka_unit_test(test_resume_is_exact_on_ref),
      cmocka_unit_test(test_resume_is_exact_on_cpu),
      cmocka_unit_test(test_resume_is_exact_on_cuda),
      cmocka_unit_test(test_snapshot_leaves_no_trace),
      cmocka_unit_test(test_planned_bytes_are_real_on_ref),
      cmocka_unit_test(test_planned_bytes_are_real_on_cpu),
      cmocka_unit_test(test_a_step_allocates_nothing),
      cmocka_unit_test(test_bad_configs_say_what_to_do),
      cmocka_unit_test(test_training_keys_win_over_the_component),
      cmocka_unit_test(test_schedules_count_epochs),
      cmocka_unit_test(test_warm_up_by_epochs_and_steps),
      cmocka_unit_test(test_regression_takes_mse),
      cmocka_unit_test(test_resume_with_another_batch_size),
      cmocka_unit_test(test_schedule_survives_another_batch_size),
      cmocka_unit_test(test_drop_last_moves_to_the_next_epoch),
      cmocka_unit_test(test_hostile_metadata_is_refused),
      cmocka_unit_test(test_load_refuses_strangers),
      cmocka_unit_test(test_starts_from_weights),
      cmocka_unit_test(test_transformer_chooses_heads_and_patch),
      cmocka_unit_test(test_a_limit_counts_the_loader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
