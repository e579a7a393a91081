// Experiments read back from lines: settings that distinguish them, groups over seeds, curves with a bounded number of
// points, comparisons with intervals; damaged lines, and memory that runs out.
#include <math.h>
#include <unistd.h>

#include "lab_lines.h"
#include "record/record_lab_int.h"

static brim_lab_reader *reader;
static const brim_lab_set *set;

static const char *const ignored[] = {"output_dir", "device", "log.", NULL};
static const brim_lab_options options = {
    .ignored = ignored, .metric = lab_metric, .default_of = lab_default};

static void assert_near(double value, double expected, double tolerance) {
  if (!(fabs(value - expected) <= tolerance)) fail_msg("%.12g, expected %.12g", value, expected);
}

static brim_lab_reader *create(void) {
  brim_lab_reader *r = NULL;
  assert_ok(brim_lab_reader_create(&options, &r));
  return r;
}

static int setup(void **state) {
  (void)state;
  reader = create();
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_lab_reader_destroy(reader);
  return 0;
}

static void add(const lab_line *line) { assert_ok(lab_line_add(reader, line)); }

static void finish(void) { assert_ok(brim_lab_reader_finish(reader, &set)); }

// Learning rates x seeds; `values` has each point's accuracy.
static void add_seeds(brim_lab_reader *r, const char *lr, int from, const char *const *values,
                      int count) {
  for (int i = 0; i < count; i++) {
    char label[64], config[256];
    snprintf(label, sizeof label, "training.learning_rate=%s seed=%d", lr, i);
    snprintf(config, sizeof config,
             "{\"workload\": \"supervised\", \"seed\": %d, \"output_dir\": \"runs/%d\","
             " \"log\": {\"interval\": %d}, \"training\": {\"learning_rate\": %s},"
             " \"optimizer\": \"adamw(lr=%s, eps=1e-08)\"}",
             i, from + i, from + i, lr, lr);
    assert_ok(lab_line_add(
        r, &(lab_line){.n = from + i, .label = label, .config = config, .metric = values[i]}));
  }
}

//---------------------------------- settings ----------------------------------

static void test_axes_are_the_keys(void **state) {
  (void)state;
  const char *const values[] = {"0.5", "0.6"};
  add_seeds(reader, "0.1", 1, values, 2);
  add_seeds(reader, "0.01", 3, values, 2);
  finish();
  // The optimizer's argument follows from the axis; folders and logs do not count as settings.
  assert_int_equal(set->key_count, 2);
  assert_string_equal(set->keys[0].name, "training.learning_rate");
  assert_true(set->keys[0].number);
  assert_false(set->keys[0].over);
  assert_int_equal(set->keys[0].distinct, 2);
  assert_string_equal(set->keys[1].name, "seed");
  assert_true(set->keys[1].over);
  assert_string_equal(set->exps[2].values[0], "0.01");
  assert_string_equal(set->exps[3].values[1], "1");
  assert_string_equal(brim_lab_value(set, &set->exps[0], "optimizer"), "adamw");
  assert_string_equal(brim_lab_value(set, &set->exps[0], "optimizer.eps"), "1e-08");
  assert_null(brim_lab_value(set, &set->exps[0], "output_dir"));
  assert_null(brim_lab_value(set, &set->exps[0], "log.interval"));
  assert_int_equal(set->common_count, 3);  // workload, optimizer, optimizer.eps
}

static void test_grids_of_different_files(void **state) {
  (void)state;
  // Two files with axes of their own: a key that one file fixed distinguishes the experiments too.
  add(&(lab_line){.n = 1, .label = "a=1", .config = "{\"a\": 1, \"b\": 7, \"epochs\": 5}"});
  add(&(lab_line){.n = 2, .label = "a=2", .config = "{\"a\": 2, \"b\": 7, \"epochs\": 5}"});
  add(&(lab_line){.n = 3, .label = "b=8", .config = "{\"a\": 1, \"b\": 8, \"epochs\": 5}"});
  add(&(lab_line){.n = 4, .label = "b=8", .config = "{\"a\": 1, \"b\": 8, \"epochs\": 9}"});
  finish();
  assert_int_equal(set->key_count, 3);
  assert_string_equal(set->keys[0].name, "a");
  assert_string_equal(set->keys[1].name, "b");
  assert_string_equal(set->keys[2].name, "epochs");
  assert_string_equal(set->exps[0].values[1], "7");  // from the config: its label lacks b
  assert_int_equal(set->group_count, 4);
  assert_string_equal(set->groups[3].label, "a=1 b=8 epochs=9");
}

static void test_values_with_spaces_and_brackets(void **state) {
  (void)state;
  add(&(lab_line){.n = 1,
                  .label = "model=mlp(depth=3, width=2) optimizer.lr=1e-4 transform=a(b=1) | c",
                  .config = "\"no json\""});
  add(&(lab_line){
      .n = 2, .label = "model=cnn optimizer.lr=1e-3 transform=[a=1 b=2]", .config = "\"no json\""});
  finish();
  assert_int_equal(set->key_count, 3);
  assert_string_equal(set->exps[0].values[0], "mlp(depth=3, width=2)");
  assert_string_equal(set->exps[0].values[1], "1e-4");
  assert_string_equal(set->exps[0].values[2], "a(b=1) | c");
  assert_string_equal(set->exps[1].values[2], "[a=1 b=2]");
  assert_true(set->keys[1].number);
  assert_false(set->keys[0].number);
}

static void test_expressions_are_taken_apart(void **state) {
  (void)state;
  add(&(lab_line){.n = 1,
                  .config = "{\"model\": \"mlp(depth=3, act=f(x=1, y=2), init=[1, 2])\","
                            " \"pipe\": \"a(b=1) | c(d=2)\", \"plain\": \"f(1, 2)\","
                            " \"empty\": \"g()\", \"none\": null, \"on\": true, \"w\": [1, 2]}"});
  finish();
  const brim_lab_exp *e = &set->exps[0];
  assert_string_equal(brim_lab_value(set, e, "model"), "mlp");
  assert_string_equal(brim_lab_value(set, e, "model.act"), "f(x=1, y=2)");
  assert_string_equal(brim_lab_value(set, e, "model.init"), "[1, 2]");
  assert_string_equal(brim_lab_value(set, e, "pipe"), "a(b=1) | c(d=2)");
  assert_string_equal(brim_lab_value(set, e, "plain"), "f(1, 2)");
  assert_string_equal(brim_lab_value(set, e, "empty"), "g");
  assert_string_equal(brim_lab_value(set, e, "on"), "true");
  assert_string_equal(brim_lab_value(set, e, "w"), "[1,2]");
  assert_null(brim_lab_value(set, e, "none"));
  assert_int_equal(set->key_count, 0);
}

static void test_configs_of_the_store(void **state) {
  (void)state;
  add(&(lab_line){.n = 1,
                  .label = "training.learning_rate=0.001",
                  .config = "\"# group 0123\\nworkload: ars\\ntraining.learning_rate: 0.001\\n"
                            "data.path: \\\"a: b\\\\n\\\"\\nname: 'it''s'\\n"
                            "optimizer: adamw(lr=0.001)\\n- odd\\nend\\nmodel: mlp\""});
  finish();
  const brim_lab_exp *e = &set->exps[0];
  assert_string_equal(brim_lab_value(set, e, "workload"), "ars");
  assert_string_equal(brim_lab_value(set, e, "training.learning_rate"), "0.001");
  assert_string_equal(brim_lab_value(set, e, "data.path"), "a: b\n");
  assert_string_equal(brim_lab_value(set, e, "name"), "it's");
  assert_string_equal(brim_lab_value(set, e, "optimizer.lr"), "0.001");
  assert_string_equal(brim_lab_value(set, e, "model"), "mlp");
  assert_int_equal(set->common_count, 7);
}

//---------------------------------- groups ----------------------------------

static void test_mean_over_seeds(void **state) {
  (void)state;
  const char *const high[] = {"0.9", "0.92", "0.94"}, *const low[] = {"0.5", "null", "0.7"};
  add_seeds(reader, "0.1", 1, high, 3);
  add_seeds(reader, "0.01", 4, low, 3);
  add(&(lab_line){.n = 9,
                  .label = "training.learning_rate=0.01 seed=9",
                  .config = "{\"workload\": \"supervised\", \"seed\": 9, \"training\":"
                            " {\"learning_rate\": 0.01}, \"optimizer\": \"adamw(lr=0.01, "
                            "eps=1e-08)\"}",
                  .state = "running",
                  .metric = "0.1"});
  finish();
  assert_int_equal(set->group_count, 2);
  const brim_lab_group *g = &set->groups[0];
  assert_string_equal(g->label, "training.learning_rate=0.1");
  assert_int_equal(g->count, 3);
  assert_int_equal(g->last.n, 3);
  assert_near(g->last.mean, 0.92, 1e-12);
  assert_near(g->last.stddev, 0.02, 1e-12);
  // 4.303 x 0.02 / sqrt(3)
  assert_near(g->last.low, 0.92 - 0.049687, 1e-5);
  assert_near(g->last.high, 0.92 + 0.049687, 1e-5);
  g = &set->groups[1];
  assert_int_equal(g->count, 4);
  assert_int_equal(g->done, 3);    // one still runs: its value is no result
  assert_int_equal(g->last.n, 2);  // one run has no value
  assert_near(g->last.mean, 0.6, 1e-12);
  assert_near(g->last.stddev, 0.1 * sqrt(2), 1e-12);
  assert_near(g->last.least, 0.5, 0);
  assert_near(g->last.most, 0.7, 0);
}

static void test_one_value_has_no_interval(void **state) {
  (void)state;
  const double one[] = {3, (double)NAN, (double)INFINITY};
  brim_lab_stats s;
  brim_lab_stats_of(one, 3, &s);
  assert_int_equal(s.n, 1);
  assert_near(s.mean, 3, 0);
  assert_true(isnan(s.stddev) && isnan(s.low) && isnan(s.high));
  brim_lab_stats_of(one, 0, &s);
  assert_int_equal(s.n, 0);
  assert_true(isnan(s.mean));
}

static void test_groups_over_other_settings(void **state) {
  (void)state;
  static const char *const over[] = {"fold", NULL};
  brim_lab_reader_destroy(reader);
  brim_lab_options o = options;
  o.over = over;
  assert_ok(brim_lab_reader_create(&o, &reader));
  add(&(lab_line){.n = 1, .label = "fold=1 seed=1", .metric = "1"});
  add(&(lab_line){.n = 2, .label = "fold=2 seed=1", .metric = "3"});
  add(&(lab_line){.n = 3, .label = "fold=1 seed=2", .metric = "5"});
  finish();
  assert_int_equal(set->group_count, 2);
  assert_string_equal(set->groups[0].label, "seed=1");
  assert_near(set->groups[0].last.mean, 2, 0);
}

// One definition for every view: a group with missing results ranks behind complete ones.
static void test_ranks(void **state) {
  (void)state;
  const brim_lab_rank whole = {0.8, 2, 2}, partial = {0.9, 1, 2}, none = {(double)NAN, 0, 2};
  const brim_lab_rank better = {0.85, 2, 2}, other = {0.7, 1, 2};
  assert_true(brim_lab_rank_order(&whole, &partial, BRIM_BETTER_HIGHER) < 0);
  assert_true(brim_lab_rank_order(&partial, &whole, BRIM_BETTER_LOWER) > 0);
  assert_true(brim_lab_rank_order(&better, &whole, BRIM_BETTER_HIGHER) < 0);
  assert_true(brim_lab_rank_order(&better, &whole, BRIM_BETTER_LOWER) > 0);
  assert_true(brim_lab_rank_order(&partial, &other, BRIM_BETTER_HIGHER) < 0);
  assert_true(brim_lab_rank_order(&none, &partial, BRIM_BETTER_HIGHER) > 0);
  assert_int_equal(brim_lab_rank_order(&none, &none, BRIM_BETTER_HIGHER), 0);
  assert_int_equal(brim_lab_rank_order(&whole, &better, BRIM_BETTER_NEITHER), 0);
}

// The interval of a share stays between 0 and 1.
static void test_intervals_of_shares(void **state) {
  (void)state;
  static const char curve[] = "{\"eval_accuracy\": [[1, 0.5]]}";
  add(&(lab_line){.n = 1,
                  .label = "seed=1",
                  .metric = "0.99",
                  .metric_key = "eval_accuracy",
                  .metrics = curve});
  add(&(lab_line){
      .n = 2, .label = "seed=2", .metric = "0.9", .metric_key = "eval_accuracy", .metrics = curve});
  finish();
  const brim_lab_stats *stats = &set->groups[0].last;
  assert_int_equal(stats->n, 2);
  assert_true(stats->low >= 0 && stats->high <= 1 && stats->low < stats->mean);
}

static void test_other_metrics_are_other_groups(void **state) {
  (void)state;
  add(&(lab_line){.n = 1, .label = "seed=1", .metric = "1", .metric_key = "loss"});
  add(&(lab_line){.n = 2, .label = "seed=2", .metric = "100", .metric_key = "return"});
  finish();
  assert_int_equal(set->group_count, 2);
}

// An experiment that does not set a key has its default, spelled like the others' values.
static void test_defaults_fill_gaps(void **state) {
  (void)state;
  add(&(lab_line){.n = 1, .label = "training.warmup=5"});
  add(&(lab_line){.n = 2, .label = "training.warmup=10 seed=1"});
  add(&(lab_line){.n = 3, .label = "seed=2"});
  add(&(lab_line){.n = 4, .label = "seed=3", .config = "{\"preset\": \"auto\"}"});
  finish();
  assert_string_equal(brim_lab_value(set, &set->exps[0], "seed"), "0");
  assert_string_equal(brim_lab_value(set, &set->exps[1], "seed"), "1");
  assert_string_equal(brim_lab_value(set, &set->exps[2], "training.warmup"), "10");
  // A preset may have set the key, and a preset's values are not stored.
  assert_null(brim_lab_value(set, &set->exps[3], "training.warmup"));
  assert_int_equal(set->exps[1].group, set->exps[2].group);
  assert_int_not_equal(set->exps[0].group, set->exps[2].group);
}

// A key that has its default in every experiment distinguishes none.
static void test_default_of_all(void **state) {
  (void)state;
  add(&(lab_line){.n = 1, .label = "seed=0"});
  add(&(lab_line){.n = 2, .config = "{\"a\": 1}"});
  finish();
  for (size_t i = 0; i < set->key_count; i++) assert_string_not_equal(set->keys[i].name, "seed");
  assert_string_equal(brim_lab_value(set, &set->exps[1], "seed"), "0");
}

//---------------------------------- curves ----------------------------------

static void test_curves_and_best(void **state) {
  (void)state;
  add(&(lab_line){.n = 1,
                  .metric = "0.8",
                  .metrics = "{\"lr\": [[1, 0.1]], \"eval_accuracy\": [[1, 0.5], [2, 0.9], "
                             "[3, null], [4, 0.8]], \"train_loss\": [[1, 2], [1, 3], [4, 1]]}"});
  finish();
  const brim_lab_exp *e = &set->exps[0];
  assert_int_equal(set->metric_count, 3);
  assert_string_equal(set->metrics[0].key, "eval_accuracy");  // the deciding metric is first
  // then one whose better direction is known
  assert_string_equal(set->metrics[1].key, "train_loss");
  assert_string_equal(set->metrics[2].key, "lr");
  assert_int_equal(set->metrics[1].better, BRIM_BETTER_LOWER);
  assert_near(e->last, 0.8, 0);
  assert_near(e->best, 0.9, 0);
  assert_int_equal(e->best_step, 2);
  assert_int_equal(e->curve_count, 3);
  for (size_t i = 0; i < e->curve_count; i++) {
    const brim_lab_curve *c = &e->curves[i];
    const size_t counts[] = {3, 2, 1};
    assert_int_equal(c->count, counts[c->metric]);
  }
  assert_string_equal(brim_lab_display(set, "eval_accuracy")->label, "val acc");
  assert_int_equal(brim_lab_display(set, "eval_accuracy")->format, BRIM_METRIC_PERCENT);
  assert_null(brim_lab_display(set, "lr"));
  assert_null(brim_lab_display(set, "nothing"));
  assert_int_equal(brim_lab_better(set, "lr"), BRIM_BETTER_NEITHER);
  assert_int_equal(brim_lab_better(set, "nothing"), BRIM_BETTER_NEITHER);
}

static void test_thinning_keeps_extremes(void **state) {
  (void)state;
  enum { COUNT = 1000, MOST = 20 };
  brim_curve_point points[COUNT];
  for (int i = 0; i < COUNT; i++) points[i] = (brim_curve_point){i, sin(i * 0.01)};
  points[371].value = 50;
  points[640].value = -50;
  const size_t count = brim_lab_thin(points, COUNT, MOST);
  assert_true(count <= MOST && count > MOST / 2);
  assert_int_equal(points[0].step, 0);
  assert_int_equal(points[count - 1].step, COUNT - 1);
  bool high = false, low = false;
  for (size_t i = 0; i < count; i++) {
    if (i > 0) assert_true(points[i].step > points[i - 1].step);
    high = high || points[i].value > 49;
    low = low || points[i].value < -49;
  }
  assert_true(high && low);
  assert_int_equal(brim_lab_thin(points, count, MOST), count);
}

static void test_points_are_bounded(void **state) {
  (void)state;
  enum { EXPERIMENTS = 300, STEPS = 5000 };
  brim_str metrics;
  brim_str_init(&metrics);
  brim_str_append(&metrics, "{");
  for (int k = 0; k < 10; k++) {
    brim_str_printf(&metrics, "%s\"m%d\": [[0, 1]", k ? ", " : "", k);
    for (int i = 1; i < STEPS / 10; i++) brim_str_printf(&metrics, ", [%d, %d]", i, i % 7);
    brim_str_append(&metrics, "]");
  }
  brim_str_append(&metrics, "}");
  json_t *value = NULL;
  brim_str line;
  brim_str_init(&line);
  lab_line_text(&(lab_line){.n = 1, .metrics = metrics.data}, &line);
  assert_ok(brim_json_parse(line.data, line.len, "line", &value));
  for (int n = 0; n < EXPERIMENTS; n++) {
    char id[33];
    snprintf(id, sizeof id, "%032x", (unsigned)n);
    assert_int_equal(json_object_set_new(value, "id", json_string(id)), 0);
    assert_ok(brim_lab_reader_add(reader, value, "test", n));
  }
  finish();
  size_t points = 0;
  for (size_t i = 0; i < set->count; i++) {
    assert_int_equal(set->exps[i].curve_count, 10);
    for (size_t k = 0; k < 10; k++) {
      const brim_lab_curve *c = &set->exps[i].curves[k];
      assert_int_equal(c->points[0].step, 0);
      assert_int_equal(c->points[c->count - 1].step, STEPS / 10 - 1);
      assert_true(c->count <= set->most_points);
      points += c->count;
    }
  }
  assert_true(points <= BRIM_LAB_POINTS);
  assert_true(set->most_points < 512);
  json_decref(value);
  brim_str_deinit(&line);
  brim_str_deinit(&metrics);
}

//---------------------------------- lines ----------------------------------

static void test_attempts_and_failures(void **state) {
  (void)state;
  add(&(lab_line){.n = 1,
                  .state = "failed",
                  .failure = "crash",
                  .reason = "segmentation fault",
                  .last_lines = "one\\ntwo",
                  .attempts = "[{\"n\": 1, \"worker\": \"w\", \"host\": \"h\", \"devices\": \"0\","
                              " \"outcome\": \"error\", \"failure\": \"crash\", \"exit_code\": 139,"
                              " \"message\": \"m\", \"from_step\": 7, \"claimed_ms\": 1,"
                              " \"started_ms\": 2, \"ended_ms\": null}]"});
  finish();
  const brim_lab_exp *e = &set->exps[0];
  assert_false(e->done);
  assert_string_equal(e->failure, "crash");
  assert_string_equal(e->last_lines, "one\ntwo");
  assert_int_equal(e->epochs, 10);
  assert_int_equal(e->attempt_count, 1);
  assert_string_equal(e->attempts[0].outcome, "error");
  assert_int_equal(e->attempts[0].exit_code, 139);
  assert_int_equal(e->attempts[0].from_step, 7);
  assert_int_equal(e->attempts[0].ended, 0);
}

static void test_many_attempts(void **state) {
  (void)state;
  brim_str list;
  brim_str_init(&list);
  for (int i = 1; i <= 100; i++) brim_str_printf(&list, "%c{\"n\": %d}", i > 1 ? ',' : '[', i);
  brim_str_append_char(&list, ']');
  add(&(lab_line){.n = 1, .attempts = list.data});
  brim_str_deinit(&list);
  finish();
  const brim_lab_exp *e = &set->exps[0];
  assert_int_equal(e->attempt_count, BRIM_LAB_ATTEMPTS);
  assert_int_equal(e->attempts_left_out, 100 - BRIM_LAB_ATTEMPTS);
  assert_int_equal(e->attempts[0].n, 1);
  assert_int_equal(e->attempts[BRIM_LAB_ATTEMPTS - 1].n, 100);
}

static void test_the_same_id_counts_once(void **state) {
  (void)state;
  add(&(lab_line){.n = 1});
  add(&(lab_line){.n = 1});
  add(&(lab_line){.n = 2});
  finish();
  assert_int_equal(set->count, 2);
}

static void test_an_empty_store(void **state) {
  (void)state;
  finish();
  assert_int_equal(set->count, 0);
  assert_int_equal(set->group_count, 0);
  assert_int_equal(set->key_count, 0);
}

static void test_files(void **state) {
  (void)state;
  brim_str text;
  brim_str_init(&text);
  for (int n = 1; n <= 3; n++) {
    lab_line_text(&(lab_line){.n = n}, &text);
    brim_str_append_char(&text, '\n');
  }
  assert_ok(brim_fs_write("export.jsonl", text.data, text.len));
  bool torn = true;
  assert_ok(brim_lab_reader_file(reader, "export.jsonl", &torn));
  assert_false(torn);
  finish();
  assert_int_equal(set->count, 3);
  brim_lab_reader_destroy(reader);
  reader = create();
  assert_ok(brim_fs_write("export.jsonl", text.data, text.len - 30));
  assert_ok(brim_lab_reader_file(reader, "export.jsonl", &torn));
  assert_true(torn);
  finish();
  assert_int_equal(set->count, 2);
  const char wrong[] = "{\"schema\": \"brim.result/1\", \"id\": \"1\", \"state\": \"done\"}\n";
  assert_ok(brim_fs_write("export.jsonl", wrong, strlen(wrong)));
  assert_status(brim_lab_reader_file(reader, "export.jsonl", &torn), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "export.jsonl:1"));
  brim_str_deinit(&text);
}

static void test_damaged_lines(void **state) {
  (void)state;
  static const char *const lines[] = {
      "[]", "1", "{}", "{\"id\": 1, \"state\": \"done\"}", "{\"id\": \"a\"}",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    json_t *value = NULL;
    assert_ok(brim_json_parse(lines[i], strlen(lines[i]), "line", &value));
    assert_status(brim_lab_reader_add(reader, value, "x.jsonl", 3), BRIM_EPARSE);
    assert_non_null(strstr(brim_status_detail(), "x.jsonl:3"));
    json_decref(value);
  }
  // Fields of a wrong kind stay unknown.
  const char odd[] =
      "{\"id\": \"a\", \"state\": \"done\", \"label\": 1, \"metric\": \"x\", \"config\": [1],"
      " \"attempts\": {\"n\": 1}, \"metrics\": {\"loss\": 1, \"acc\": [1, [], [\"a\", 2],"
      " [1, 1e200], [9007199254740994, 1]]}, \"step\": 1.5}";
  json_t *value = NULL;
  assert_ok(brim_json_parse(odd, strlen(odd), "line", &value));
  assert_ok(brim_lab_reader_add(reader, value, "x.jsonl", 4));
  json_decref(value);
  finish();
  assert_int_equal(set->count, 1);
  assert_string_equal(set->exps[0].label, "");
  assert_true(isnan(set->exps[0].last));
  assert_int_equal(set->exps[0].curve_count, 0);
  assert_int_equal(set->exps[0].step, -1);
}

//---------------------------------- comparing ----------------------------------

static brim_lab_reader *second(const char *lr, const char *const *values, int count,
                               const brim_lab_set **out) {
  brim_lab_reader *r = create();
  add_seeds(r, lr, 100, values, count);
  add_seeds(r, "0.7", 200, values, 1);
  assert_ok(brim_lab_reader_finish(r, out));
  return r;
}

static void test_compare_two_sets(void **state) {
  (void)state;
  const char *const a[] = {"0.80", "0.81", "0.79"}, *const b[] = {"0.90", "0.91", "0.89"};
  const brim_lab_set *other = NULL;
  add_seeds(reader, "0.1", 1, a, 3);
  add_seeds(reader, "0.01", 4, a, 3);
  finish();
  brim_lab_reader *r = second("0.1", b, 3, &other);
  brim_lab_comparison c;
  assert_ok(brim_lab_compare(set, other, BRIM_LAB_LAST, &c));
  assert_int_equal(c.count, 1);
  assert_int_equal(c.only_a, 1);
  assert_int_equal(c.only_b, 1);
  const brim_lab_match *m = &c.matches[0];
  assert_near(m->difference.mean, 0.1, 1e-12);
  // Welch with equal spreads: 4 degrees of freedom, 2.776 x sqrt(2 x 0.0001 / 3)
  assert_near(m->difference.high - m->difference.low, 2 * 2.776 * sqrt(2e-4 / 3), 1e-5);
  assert_int_equal(m->verdict, BRIM_LAB_BETTER);
  assert_int_equal(c.verdict, BRIM_LAB_ONCE);  // one point alone gives no interval
  brim_lab_comparison_deinit(&c);
  assert_ok(brim_lab_compare(other, set, BRIM_LAB_LAST, &c));
  assert_int_equal(c.matches[0].verdict, BRIM_LAB_WORSE);
  brim_lab_comparison_deinit(&c);
  brim_lab_reader_destroy(r);
}

static void test_compare_is_not_certain_of_one_seed(void **state) {
  (void)state;
  const char *const a[] = {"0.1", "0.2"}, *const b[] = {"0.9"};
  const brim_lab_set *other = NULL;
  add_seeds(reader, "0.1", 1, a, 2);
  add_seeds(reader, "0.7", 4, a, 1);
  finish();
  brim_lab_reader *r = second("0.1", b, 1, &other);
  brim_lab_comparison c;
  assert_ok(brim_lab_compare(set, other, BRIM_LAB_LAST, &c));
  assert_int_equal(c.count, 2);
  assert_int_equal(c.matches[0].verdict, BRIM_LAB_ONCE);
  assert_true(isnan(c.matches[0].difference.low));
  assert_near(c.matches[0].difference.mean, 0.75, 1e-12);
  // Over two points: 0.75 and 0.8, 12.706 x 0.0353553 / sqrt(2) wide on each side
  assert_int_equal(c.overall.n, 2);
  assert_near(c.overall.mean, 0.775, 1e-12);
  assert_near(c.overall.low, 0.775 - 12.706 * 0.025, 1e-6);
  assert_int_equal(c.verdict, BRIM_LAB_BETTER);
  brim_lab_comparison_deinit(&c);
  brim_lab_reader_destroy(r);
}

// Two differences that agree by chance are not certain if the seeds spread far.
static void test_compare_is_not_certain_by_chance(void **state) {
  (void)state;
  const char *const a[] = {"0.80", "0.90"}, *const b[] = {"0.82", "0.92"};
  const brim_lab_set *other = NULL;
  add_seeds(reader, "0.1", 1, a, 2);
  add_seeds(reader, "0.01", 4, a, 2);
  finish();
  brim_lab_reader *r = create();
  add_seeds(r, "0.1", 100, b, 2);
  add_seeds(r, "0.01", 104, b, 2);
  assert_ok(brim_lab_reader_finish(r, &other));
  brim_lab_comparison c;
  assert_ok(brim_lab_compare(set, other, BRIM_LAB_LAST, &c));
  assert_int_equal(c.count, 2);
  assert_near(c.overall.mean, 0.02, 1e-12);
  // Four groups of variance 0.005 / 2 each: 4 degrees of freedom, 2.776 x sqrt(0.01) / 2
  assert_near(c.overall.high - c.overall.mean, 2.776 * 0.05, 1e-4);
  assert_near(c.overall.mean - c.overall.low, 2.776 * 0.05, 1e-4);
  assert_int_equal(c.verdict, BRIM_LAB_OPEN);
  brim_lab_comparison_deinit(&c);
  brim_lab_reader_destroy(r);
}

static void test_compare_with_missing_results(void **state) {
  (void)state;
  const char *const none[] = {"null", "null"}, *const b[] = {"0.9", "0.9"};
  const brim_lab_set *other = NULL;
  add_seeds(reader, "0.1", 1, none, 2);
  finish();
  brim_lab_reader *r = second("0.1", b, 2, &other);
  brim_lab_comparison c;
  assert_ok(brim_lab_compare(set, other, BRIM_LAB_LAST, &c));
  assert_int_equal(c.matches[0].verdict, BRIM_LAB_A_MISSING);
  assert_int_equal(c.verdict, BRIM_LAB_BOTH_MISSING);
  brim_lab_comparison_deinit(&c);
  brim_lab_reader_destroy(r);
  r = second("0.3", b, 2, &other);
  assert_status(brim_lab_compare(set, other, BRIM_LAB_LAST, &c), BRIM_EINVAL);
  brim_lab_reader_destroy(r);
}

static void test_compare_by_a_setting(void **state) {
  (void)state;
  static const char *const points[][2] = {
      {"1", "fp32"}, {"2", "fp32"}, {"1", "bf16"}, {"2", "bf16"}, {"3", "bf16"}};
  static const char *const results[][2] = {
      {"0.5", "0.52"}, {"0.6", "0.61"}, {"0.51", "0.5"}, {"0.3", "0.31"}, {"0.9", "0.9"}};
  for (int i = 0; i < 5; i++) {
    for (int seed = 0; seed < 2; seed++) {
      char label[96];
      snprintf(label, sizeof label, "a=%s training.precision=%s seed=%d", points[i][0],
               points[i][1], seed);
      add(&(lab_line){.n = 10 * i + seed, .label = label, .metric = results[i][seed]});
    }
  }
  finish();
  brim_lab_comparison c;
  assert_ok(brim_lab_compare_by(set, "precision", BRIM_LAB_LAST, &c));
  assert_int_equal(c.count, 2);
  assert_int_equal(c.only_b, 1);  // a=3 lacks fp32
  assert_string_equal(c.matches[0].a->label, "a=1 training.precision=fp32");
  assert_string_equal(c.matches[0].b->label, "a=1 training.precision=bf16");
  assert_int_equal(c.matches[0].verdict, BRIM_LAB_OPEN);
  assert_int_equal(c.matches[1].verdict, BRIM_LAB_WORSE);
  assert_false(c.several_values);
  assert_int_equal(c.overall.n, 2);
  brim_lab_comparison_deinit(&c);
  // a=2 and a=3, both against a=1: no mean over the two
  assert_ok(brim_lab_compare_by(set, "a", BRIM_LAB_LAST, &c));
  assert_int_equal(c.count, 3);
  assert_true(c.several_values);
  assert_int_equal(c.overall.n, 0);
  assert_true(isnan(c.overall.mean));
  brim_lab_comparison_deinit(&c);
  assert_status(brim_lab_compare_by(set, "nothing", BRIM_LAB_LAST, &c), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "training.precision"));
  assert_status(brim_lab_compare_by(set, "seed", BRIM_LAB_LAST, &c), BRIM_EINVAL);
}

// Different spreads give degrees of freedom that are not whole.
static void test_welch(void **state) {
  (void)state;
  const double x[] = {1, 2, 3, 4, 5}, y[] = {10, 30};
  brim_lab_stats a, b;
  brim_lab_difference d;
  brim_lab_stats_of(x, 5, &a);
  brim_lab_stats_of(y, 2, &b);
  assert_int_equal(brim_lab_differ(&a, &b, BRIM_BETTER_HIGHER, &d), BRIM_LAB_OPEN);
  assert_near(d.mean, 17, 1e-12);
  // s^2/n are 0.5 and 100: 1.00999 degrees of freedom. The exact t is 12.45, the tables' 12.54.
  assert_near(d.high - d.mean, 12.54 * sqrt(100.5), 0.5);
  const double z[] = {100, 101, 102}, w[] = {1, 2, 3};
  brim_lab_stats_of(z, 3, &a);
  brim_lab_stats_of(w, 3, &b);
  assert_int_equal(brim_lab_differ(&a, &b, BRIM_BETTER_LOWER, &d), BRIM_LAB_BETTER);
  assert_int_equal(brim_lab_differ(&a, &b, BRIM_BETTER_HIGHER, &d), BRIM_LAB_WORSE);
  assert_int_equal(brim_lab_differ(&a, &b, BRIM_BETTER_NEITHER, &d), BRIM_LAB_UNKNOWN);
  assert_int_equal(brim_lab_differ(&a, &a, BRIM_BETTER_LOWER, &d), BRIM_LAB_OPEN);
}

//---------------------------------- memory ----------------------------------

static brim_status build(void) {
  brim_lab_reader *r = NULL;
  const brim_lab_set *s = NULL;
  BRIM_TRY(brim_lab_reader_create(&options, &r));
  brim_status status = BRIM_OK;
  for (int n = 0; n < 3 && !status; n++) {
    char label[32];
    snprintf(label, sizeof label, "lr=%d seed=%d", n / 2, n);
    status = lab_line_add(r, &(lab_line){.n = n,
                                         .label = label,
                                         .config = "{\"model\": \"mlp(depth=2)\"}",
                                         .metric = "1",
                                         .metrics = "{\"eval_accuracy\": [[1, 1], [2, 3]]}",
                                         .attempts = "[{\"n\": 1, \"host\": \"h\"}]"});
  }
  if (!status) status = brim_lab_reader_finish(r, &s);
  brim_lab_comparison c = {0};
  if (!status) status = brim_lab_compare(s, s, BRIM_LAB_LAST, &c);
  brim_lab_comparison_deinit(&c);
  brim_lab_reader_destroy(r);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  assert_ok(build());
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  int failed = 0;
  for (uint64_t n = 1; n < 100000; n++) {
    const uint64_t injected = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    const brim_status status = build();
    brim_alloc_fail_nth(0, 0);
    if (brim_alloc_failures() == injected) break;
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    failed += status != BRIM_OK;
  }
  brim_status_clear();
  assert_true(failed > 20);
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      TEST(test_axes_are_the_keys),
      TEST(test_grids_of_different_files),
      TEST(test_values_with_spaces_and_brackets),
      TEST(test_expressions_are_taken_apart),
      TEST(test_configs_of_the_store),
      TEST(test_mean_over_seeds),
      TEST(test_one_value_has_no_interval),
      TEST(test_groups_over_other_settings),
      TEST(test_ranks),
      TEST(test_intervals_of_shares),
      TEST(test_other_metrics_are_other_groups),
      TEST(test_defaults_fill_gaps),
      TEST(test_default_of_all),
      TEST(test_curves_and_best),
      TEST(test_thinning_keeps_extremes),
      TEST(test_points_are_bounded),
      TEST(test_attempts_and_failures),
      TEST(test_many_attempts),
      TEST(test_the_same_id_counts_once),
      TEST(test_an_empty_store),
      TEST(test_files),
      TEST(test_damaged_lines),
      TEST(test_compare_two_sets),
      TEST(test_compare_is_not_certain_of_one_seed),
      TEST(test_compare_is_not_certain_by_chance),
      TEST(test_compare_with_missing_results),
      TEST(test_compare_by_a_setting),
      TEST(test_welch),
      TEST(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
