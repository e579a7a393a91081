// Each allocation of loading, walking and printing a config fails once: a clean error each time, nothing left behind.
// libyaml's own allocations do not go through brim and are not failed.
#include "base/base.h"
#include "config_test.h"

static const char *const grid_text =
    "x-d: &d {num_workers: 2, drop_last: yes}\n"
    "data: {<<: *d, batch_size: [32, 64]}\npreset: rtx3060-12g\n"
    "name: \"run-{{seed}}\"\nseed: 3\ntags: [a, \"b\"]\ndevice: [0, 1]\n"
    "model: {_type: mlp, depth: [1, 2]}\noptimizer: sgd(momentum=0.5)\nlr: [0.1, 0.2]\n"
    "transform:\n  train: \"random_resized_crop(size=8, scale=(0.8, 1.0)) | pad | ...\"\n"
    "  train: \"resize(size=8) | normalize(mean=[0.5, 0.5]) | ...\"\n"
    "dataset: {train: \"synthetic(shape=[1, 4])\", val: plugin:mine(x=other(y=1))}\n"
    "seeds: 2\nsamples: 2\nweight_decay: uniform(0, 1)\nwarmup_steps: range(1, 3)\n"
    "momentum: 0.4\nzip: [lr, batch_size]\nexclude: [{lr: 0.1, model.depth: 2}]\n";

// The whole life of a config; returns the first failure.
static brim_status live(void) {
  const char *overrides[] = {"epochs=2", "model.hidden=16"};
  brim_config_facts facts = {"Some GPU", 1, 2};
  brim_config_options options = {.text = grid_text,
                                 .text_name = "t.yaml",
                                 .overrides = overrides,
                                 .override_count = 2,
                                 .mode = BRIM_CONFIG_CHECK,
                                 .facts = &facts};
  brim_config *config = NULL, *point = NULL;
  char *json = NULL;
  char hash[33];
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_config_load(&options, &config);
  if (status) {
    assert_null(config);
    goto done;
  }
  status = brim_config_grid_point(config, 1, &point);
  if (!status) status = brim_config_grid_label(config, 1, &text);
  if (!status) status = brim_config_to_yaml(config, true, &text);
  if (!status) status = brim_config_explain("model", &text);
  if (!status) status = brim_config_json(config, &json);
  if (!status) status = brim_config_hash(point, BRIM_CONFIG_EXPERIMENT, hash);
  if (!status) status = brim_config_to_experiment(point, &text);
done:
  brim_config_text_free(json);
  brim_config_close(point);
  brim_config_close(config);
  brim_str_deinit(&text);
  return status;
}

static void sweep(int sticky) {
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1;
  for (;; n++) {
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, sticky);
    brim_status status = live();
    brim_alloc_fail_nth(0, 0);
    bool injected = brim_alloc_failures() > failures;
    if (!injected) {
      assert_ok(status);
      break;
    }
    if (status != BRIM_ENOMEM) fail_msg("allocation %d: %d", (int)n, (int)status);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    assert_int_equal(after.live_bytes[0], before.live_bytes[0]);
  }
  assert_true(n > 50);
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  assert_ok(live());
  sweep(0);
}

static void and_all_after_it(void **state) {
  (void)state;
  sweep(1);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(and_all_after_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
