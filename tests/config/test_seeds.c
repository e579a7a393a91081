// Every yaml block of the five guides: `config check` accepts it, it has the meaning that the guide gives, and every
// repeated key or trailing `...` in a pipeline is known.
#include "base/base.h"
#include "config_test.h"
#include "seed_blocks.h"

enum { BLOCKS = sizeof seed_blocks / sizeof seed_blocks[0] };

typedef struct pair {
  const char *key, *text;
} pair;

typedef struct expectation {
  int seed, line;
  pair values[8];
  const char *warnings[4];  // parts of the warning with this index
  const char *refused;      // NULL: RUN accepts it too
  void (*check)(const brim_config *config);
} expectation;

static void model_is_wrn(const brim_config *config) {
  const brim_component *model = brim_config_component(config, "model", NULL);
  assert_non_null(model);
  assert_string_equal(model->name, "wideresnet");
  assert_int_equal(brim_component_int(model, "depth", 0), 28);
  assert_int_equal(brim_component_int(model, "width", 0), 2);
}

static void crop_224(const brim_config *config) {
  const brim_pipeline *p = brim_config_pipeline(config, "transform", "train");
  assert_non_null(p);
  assert_int_equal(p->count, 1);
  assert_true(p->tail);
  assert_string_equal(p->items[0].name, "random_resized_crop");
  assert_int_equal(brim_component_int(&p->items[0], "size", 0), 224);
  const brim_value *scale = brim_component_arg(&p->items[0], "scale");
  assert_non_null(scale);
  assert_int_equal(scale->kind, BRIM_VALUE_LIST);
  assert_int_equal(scale->count, 2);
  assert_true(scale->items[0].number == 0.8 && scale->items[1].number == 1.0);
  assert_null(brim_config_pipeline(config, "transform", "val"));
}

static void resize_128(const brim_config *config) {
  const brim_pipeline *p = brim_config_pipeline(config, "transform", "train");
  assert_non_null(p);
  assert_int_equal(p->count, 1);
  assert_true(p->tail);
  assert_string_equal(p->items[0].name, "resize");
  assert_int_equal(brim_component_int(&p->items[0], "size", 0), 128);
}

static void loader_train(const brim_config *config) {
  const brim_component *loader = brim_config_component(config, "dataloader", "train");
  assert_non_null(loader);
  assert_string_equal(loader->name, "basic");
  assert_string_equal(brim_component_string(loader, "split", ""), "train");
  assert_true(brim_component_bool(loader, "shuffle", false));
  assert_int_equal(brim_component_int(loader, "prefetch_factor", 0), 2);
  assert_null(brim_config_component(config, "dataloader", "val"));
}

static void four_gpus(const brim_config *config) {
  assert_ints(config, "device", "0 1 2 3");
  assert_int_equal(brim_config_grid_count(config), 1);
  assert_int_equal(brim_config_axis_count(config), 0);
}

// 3 x 2 experiments over four GPUs: six points, and the device list is never an axis.
static void six_points(const brim_config *config) {
  static const char *const lr[] = {"0.0001", "0.001", "0.01"};
  static const char *const batch[] = {"64", "128"};
  assert_int_equal(brim_config_axis_count(config), 2);
  assert_string_equal(brim_config_axis_at(config, 0).key, "training.learning_rate");
  assert_int_equal(brim_config_axis_at(config, 0).count, 3);
  assert_string_equal(brim_config_axis_at(config, 1).key, "data.batch_size");
  assert_int_equal(brim_config_grid_count(config), 6);
  for (size_t i = 0; i < 6; i++) {
    brim_config *point;
    assert_ok(brim_config_grid_point(config, i, &point));
    assert_key(point, "lr", lr[i / 2]);
    assert_key(point, "batch_size", batch[i % 2]);
    assert_ints(point, "device", "0 1 2 3");
    brim_config_close(point);
  }
}

static void nothing_set(const brim_config *config) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    assert_false(brim_config_is_set(config, brim_config_key_at(i)->name));
  }
}

static void precision_auto(const brim_config *config) { assert_key(config, "precision", "auto"); }

static const expectation expectations[] = {
    {2,
     117,
     {{"benchmark.batch_sizes", "1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192"},
      {"benchmark.num_workers_options", "0 2 4 8 12 16"},
      {"benchmark.steps_per_test", "10"},
      {"benchmark.test_mixed_precision", "true"},
      {"benchmark.test_pin_memory", "true"}},
     {0},
     NULL,
     NULL},
    {2,
     248,
     {{"data.batch_size", "4096"},
      {"data.num_workers", "12"},
      {"data.pin_memory", "true"},
      {"training.use_amp", "true"},
      {"training.learning_rate", "0.0003"}},
     {0},
     NULL,
     precision_auto},
    {2,
     266,
     {{"data.batch_size", "1024"},
      {"data.num_workers", "12"},
      {"data.pin_memory", "true"},
      {"training.use_amp", "true"},
      {"training.learning_rate", "0.0002"}},
     {0},
     NULL,
     precision_auto},
    {2,
     284,
     {{"data.batch_size", "256"},
      {"data.num_workers", "8"},
      {"data.pin_memory", "true"},
      {"training.use_amp", "true"},
      {"training.learning_rate", "0.00015"},
      {"training.gradient_accumulation_steps", "4"}},
     {0},
     NULL,
     NULL},
    {2,
     305,
     {{"data.batch_size", "2048"}, {"data.num_workers", "8"}, {"training.use_amp", "true"}},
     {0},
     NULL,
     NULL},
    {2,
     315,
     {{"data.batch_size", "512"},
      {"data.num_workers", "8"},
      {"training.use_amp", "true"},
      {"training.gradient_accumulation_steps", "2"}},
     {0},
     NULL,
     NULL},
    {2,
     328,
     {{"data.batch_size", "1024"}, {"data.num_workers", "6"}, {"training.use_amp", "true"}},
     {0},
     NULL,
     NULL},
    {2,
     338,
     {{"data.batch_size", "256"},
      {"data.num_workers", "4"},
      {"training.use_amp", "true"},
      {"training.gradient_accumulation_steps", "4"}},
     {0},
     NULL,
     NULL},
    {3,
     13,
     {{"batch_size", "64"}, {"gradient_accumulation_steps", "2"}},
     {"on line 2 and on line 5", "on line 5 and on line 8"},
     NULL,
     NULL},
    {3, 49, {{"num_workers", "4"}}, {"on line 4 and on line 7"}, NULL, NULL},
    {3, 61, {{0}}, {"on line 2 and on line 5", "on line 5 and on line 8"}, NULL, model_is_wrn},
    {3,
     74,
     {{0}},
     {"t.yaml:3:3: 'train' is given twice: on line 2 and on line 3; the later one wins",
      "'transform' is given twice: on line 1 and on line 6", "'transform' ends in '...'"},
     NULL,
     crop_224},
    {3,
     98,
     {{"num_workers", "4"}, {"pin_memory", "true"}, {"persistent_workers", "true"}},
     {0},
     NULL,
     NULL},
    {3, 130, {{"data.prefetch_factor", "2"}, {"data.shuffle", "true"}}, {0}, NULL, loader_train},
    {3, 157, {{"batch_size", "256"}}, {0}, NULL, four_gpus},
    {3, 167, {{0}}, {0}, NULL, nothing_set},
    {3, 182, {{0}}, {0}, NULL, six_points},
    {3,
     290,
     {{"batch_size", "64"}, {"gradient_accumulation_steps", "2"}, {"num_workers", "2"}},
     {"t.yaml:6:10: 'transform' ends in '...': brim adds no stage to those that are written"},
     NULL,
     resize_128},
    {4, 21, {{"data.num_workers", "6"}, {"data.pin_memory", "true"}}, {0}, NULL, NULL},
    {4,
     34,
     {{"gpu.mixed_precision", "true"}, {"training.use_amp", "true"}},
     {0},
     NULL,
     precision_auto},
    {4,
     46,
     {{"gpu.gradient_accumulation", "4"}, {"training.gradient_accumulation_steps", "4"}},
     {0},
     NULL,
     NULL},
    {4, 64, {{"gpu.cudnn_benchmark", "true"}}, {0}, NULL, NULL},
    {4, 75, {{"gpu.empty_cache_freq", "5"}}, {0}, NULL, NULL},
    {4,
     141,
     {{"data.batch_size", "96"},
      {"training.gradient_accumulation_steps", "5"},
      {"gpu.empty_cache_freq", "3"}},
     {0},
     NULL,
     NULL},
    {4, 152, {{"data.num_workers", "8"}}, {"on line 2 and on line 4"}, NULL, NULL},
};

static void every_block_means_what_it_says(void **state) {
  (void)state;
  assert_int_equal(sizeof expectations / sizeof expectations[0], BLOCKS);
  for (size_t i = 0; i < BLOCKS; i++) {
    const seed_block *block = &seed_blocks[i];
    const expectation *e = &expectations[i];
    assert_int_equal(block->seed, e->seed);
    assert_int_equal(block->line, e->line);
    brim_config *config = must_load(BRIM_CONFIG_CHECK, block->text);
    for (size_t v = 0; v < 8 && e->values[v].key; v++) {
      assert_key(config, e->values[v].key, e->values[v].text);
      assert_true(brim_config_is_set(config, e->values[v].key));
    }
    size_t warnings = 0;
    while (warnings < 4 && e->warnings[warnings]) {
      const char *got = brim_config_warning(config, warnings);
      if (!got || !strstr(got, e->warnings[warnings])) {
        fail_msg("seed %03d line %d: warning %zu is '%s'", block->seed, block->line, warnings,
                 got ? got : "none");
      }
      warnings++;
    }
    assert_int_equal(brim_config_warning_count(config), warnings);
    if (e->check) e->check(config);
    brim_config_close(config);
  }
}

// Each item of an axis that ends in `...` gets one warning.
static void tails_of_axes(void **state) {
  (void)state;
  brim_config *config =
      must_load(BRIM_CONFIG_CHECK, "transform: [pad | ..., cutout, cutout | ... ]\n");
  assert_int_equal(brim_config_grid_count(config), 3);
  assert_int_equal(brim_config_warning_count(config), 2);
  assert_non_null(strstr(brim_config_warning(config, 0), "t.yaml:1:13: 'transform' ends in"));
  assert_non_null(strstr(brim_config_warning(config, 1), "t.yaml:1:32: 'transform' ends in"));
  brim_config_close(config);
}

static void what_runs_refuses_the_sloppy_ones(void **state) {
  (void)state;
  for (size_t i = 0; i < BLOCKS; i++) {
    const expectation *e = &expectations[i];
    if (e->refused) {
      assert_refused(BRIM_CONFIG_RUN, seed_blocks[i].text, BRIM_EINVAL, WORDS(e->refused));
      continue;
    }
    brim_config *config = must_load(BRIM_CONFIG_RUN, seed_blocks[i].text);
    for (size_t v = 0; v < 8 && e->values[v].key; v++) {
      assert_key(config, e->values[v].key, e->values[v].text);
    }
    size_t warnings = 0;  // the same as in check
    for (; warnings < 4 && e->warnings[warnings]; warnings++) {
      assert_non_null(strstr(brim_config_warning(config, warnings), e->warnings[warnings]));
    }
    assert_int_equal(brim_config_warning_count(config), warnings);
    if (e->check) e->check(config);
    brim_config_close(config);
  }
}

// The blocks above still equal those of the guides.
static void blocks_are_the_files(void **state) {
  (void)state;
  const char *dir = BRIM_SOURCE_DIR "/tests/data/guides";
  char **names;
  size_t count, found = 0;
  assert_ok(brim_fs_list(dir, &names, &count));
  for (size_t f = 0; f < count; f++) {
    char *path = brim_fs_join(dir, names[f]);
    char *text;
    size_t size;
    assert_ok(brim_fs_read(path, 0, &text, &size));
    int line = 1, open = 0;
    brim_str block;
    brim_str_init(&block);
    for (char *p = text; *p; line++) {
      size_t length = strcspn(p, "\n");
      if (!open && length == 7 && !strncmp(p, "```yaml", 7)) {
        open = line;
        brim_str_clear(&block);
      } else if (open && length == 3 && !strncmp(p, "```", 3)) {
        assert_true(found < BLOCKS);
        assert_int_equal(seed_blocks[found].seed, atoi(names[f]));
        assert_int_equal(seed_blocks[found].line, open);
        assert_string_equal(seed_blocks[found].text, block.data);
        found++;
        open = 0;
      } else if (open) {
        brim_str_append_n(&block, p, length);
        brim_str_append_char(&block, '\n');
      }
      p += length + (p[length] == '\n');
    }
    brim_str_deinit(&block);
    brim_free(text);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  assert_int_equal(found, BLOCKS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_block_means_what_it_says),
      cmocka_unit_test(tails_of_axes),
      cmocka_unit_test(what_runs_refuses_the_sloppy_ones),
      cmocka_unit_test(blocks_are_the_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
