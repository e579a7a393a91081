// Data that a page requests from a server: grids as text, keys, curves and groups of many experiments.
#include "pool_test.h"

#include <math.h>

#include "lab/grid/lab_grid.h"
#include "workload/workload.h"

// The list of workloads adds their keys before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

static brim_status describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  (void)ctx;
  (void)point;
  out->metric_key = "eval_loss";
  out->epochs = 3;
  return BRIM_OK;
}

static brim_status needs(void *ctx, const brim_lab_grid *grid, brim_store_point *points) {
  (void)ctx;
  for (size_t i = 0; i < grid->count; i++) points[i].need_bytes = 1000;
  return BRIM_OK;
}

static bool find_metric(void *ctx, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  if (strcmp(key, "other") == 0) return false;
  *out = (brim_sweep_metric){.better = BRIM_BETTER_HIGHER, .label = "val acc"};
  if (strstr(key, "loss")) out->better = BRIM_BETTER_LOWER;
  if (strstr(key, "acc")) out->format = BRIM_METRIC_PERCENT;
  return true;
}

static const brim_lab_grid_maker maker = {
    .describe = describe, .needs = needs, .metric = find_metric};

//---------------------------------- grids ----------------------------------

static int post_grid(const char *yaml, const char *name, bool dry) {
  json_t *body = json_pack("{s:s, s:s, s:b}", "yaml", yaml, "name", name, "dry", dry);
  char *text = json_dumps(body, 0);
  int status = post("/v1/grids", text);
  json_decref(body);
  free(text);
  return status;
}

static const char guide[] =
    "device: [0, 1]\nmodel: mlp(depth=2)\nlr: [1e-4, 1e-3, 1e-2]\nseed: [1, 2]\n";

static int64_t total(void) {
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  return counts.total;
}

static void test_a_grid_is_expanded(void **state) {
  (void)state;
  assert_int_equal(post_grid(guide, "it's a guide", true), 200);
  assert_int_equal(int_of("points"), 6);
  assert_int_equal(int_of("added"), 6);
  assert_string_equal(text_of("name"), "it's a guide");
  const json_t *first = json_object_get(reply, "first");
  assert_int_equal(json_array_size(first), 6);
  const char *label = json_string_value(json_object_get(json_array_get(first, 1), "name"));
  assert_string_equal(label, "lr=0.0001 seed=2");
  assert_int_equal(total(), 0);  // a dry run
  assert_int_equal(post_grid(guide, "it's a guide", false), 200);
  assert_int_equal(int_of("added"), 6);
  assert_int_equal(post_grid(guide, "another", true), 200);
  assert_int_equal(int_of("existing"), 6);
  assert_int_equal(post_grid(guide, "another", false), 200);
  assert_int_equal(int_of("existing"), 6);
  assert_int_equal(total(), 6);
}

// The same ids, texts and needs as in a program that expands the file itself.
static void test_a_grid_is_what_sweep_submits(void **state) {
  (void)state;
  const char *const overrides[] = {"name=guide", "priority=7"};
  const brim_config_options how = {
      .text = guide, .text_name = "t.yaml", .overrides = overrides, .override_count = 2};
  const brim_lab_grid_options expanding = {.describe = describe};
  brim_config *config;
  brim_lab_grid grid;
  brim_store_exp *exp;
  assert_ok(brim_config_load(&how, &config));
  assert_ok(brim_lab_grid_expand(config, &expanding, &grid));
  json_t *body = json_pack("{s:s, s:s, s:i}", "yaml", guide, "name", "guide", "priority", 7);
  char *text = json_dumps(body, 0);
  assert_int_equal(post("/v1/grids", text), 200);
  free(text);
  json_decref(body);
  assert_string_equal(text_of("grid"), grid.id);
  for (size_t i = 0; i < grid.count; i++) {
    assert_ok(brim_store_get(store, grid.points[i].id, &exp));
    assert_string_equal(exp->config, grid.points[i].config);
    assert_string_equal(exp->label, grid.points[i].label);
    assert_string_equal(exp->metric_key, "eval_loss");
    assert_int_equal(exp->priority, 7);
    assert_int_equal(exp->epochs, 3);
    assert_int_equal(exp->need_bytes, 1000);
    brim_store_exp_free(exp);
  }
  assert_int_equal(get("/v1/grids?texts=true"), 200);
  assert_non_null(strstr(answer.body.data, "# priority=7"));
  assert_non_null(strstr(answer.body.data, "\"version\":\"9.9\""));
  brim_lab_grid_free(&grid);
  brim_config_close(config);
}

static void refused(const char *yaml, int line, int column, const char *part) {
  int status = post_grid(yaml, "", false);
  if (status != 400 || int_of("line") != line || int_of("column") != column ||
      !strstr(text_of("message"), part)) {
    fail_msg("%s: %d %s", yaml, status, answer.body.data);
  }
}

static void test_bad_grids_are_refused(void **state) {
  (void)state;
  refused("model: mlp(depth=2)\nlearning_rat: 3\n", 2, 1, "did you mean");
  refused("lr: [1, \n", 2, 1, "YAML");
  refused("lr: 0.1\ninclude: /etc/passwd\n", 2, 10, "include");
  refused("include: [a.yaml]\n", 1, 10, "include");
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < 40; i++) brim_str_append_char(&text, '[');
  refused(text.data, 1, 33, "nested deeper");
  brim_str_clear(&text);
  brim_str_append(&text, "seed: [0");
  for (int i = 1; i < 200; i++) brim_str_printf(&text, ", %d", i);
  brim_str_append(&text, "]\nepochs: [1");
  for (int i = 2; i < 200; i++) brim_str_printf(&text, ", %d", i);
  brim_str_append(&text, "]\n");
  refused(text.data, 0, 0, "at most 20000");
  brim_str_clear(&text);
  brim_str_repeat(&text, ' ', BRIM_CONFIG_MAX_BYTES + 1);
  refused(text.data, 0, 0, "more than");
  brim_str_deinit(&text);
  // all of them are reported
  assert_int_equal(post_grid("learning_rat: 3\nbatch_siz: 4\n", "", true), 400);
  assert_int_equal(json_array_size(json_object_get(reply, "mistakes")), 2);
  assert_int_equal(post_grid("lr: 1\n", "a\nb", true), 400);
  assert_int_equal(post("/v1/grids", "{\"yaml\": 3}"), 400);
  assert_int_equal(post("/v1/grids", "[]"), 400);
  assert_int_equal(post("/v1/grids", "{}"), 400);
  assert_int_equal(total(), 0);
}

static void test_grids_need_the_role(void **state) {
  (void)state;
  char token[BRIM_ROLE_COUNT][BRIM_TOKEN];
  static const int expected[] = {403, 200, 403, 200};
  for (int i = 0; i < BRIM_ROLE_COUNT; i++) {
    add_token(brim_role_name((brim_role)i), brim_role_name((brim_role)i), token[i]);
  }
  assert_ok(brim_lab_pool_tend(pool));
  for (int i = 0; i < BRIM_ROLE_COUNT; i++) {
    assert_int_equal(as(token[i], "POST", "/v1/grids", "{\"yaml\": \"lr: [1, 2]\"}"), expected[i]);
    assert_int_equal(as(token[i], "GET", "/v1/groups", NULL), 200);
    assert_int_equal(as(token[i], "GET", "/v1/keys", NULL), 200);
  }
  assert_int_equal(as(NULL, "POST", "/v1/grids", "{}"), 401);
  assert_int_equal(as(NULL, "GET", "/v1/keys", NULL), 401);
}

//---------------------------------- metrics ----------------------------------

// Writes values of `key` for experiment n, at steps 0, 1, 2 ...
static void write_values(int n, const char *key, const double *values, int count, int64_t seq) {
  brim_store_metric rows[16];
  brim_store_ref ref = {.attempt = 1, .fence = 1};
  lab_id(n, ref.exp);
  for (int i = 0; i < count; i++) rows[i] = (brim_store_metric){key, i, values[i]};
  assert_ok(brim_store_metrics(store, &ref, seq, rows, (size_t)count));
}

static void test_keys_and_curves(void **state) {
  (void)state;
  char body[256], one[BRIM_EXP_ID], two[BRIM_EXP_ID];
  lab_submit(store, "g1", 1, 2);
  lab_submit(store, "g2", 3, 1);
  for (int i = 1; i <= 3; i++) lab_run(store, i);
  write_values(1, "loss", (double[]){3, 2, 1}, 3, 1);
  write_values(2, "loss", (double[]){4}, 1, 1);
  write_values(2, "acc", (double[]){0.5, (double)NAN}, 2, 2);
  write_values(3, "other", (double[]){4}, 1, 1);
  assert_int_equal(get("/v1/keys?grid=g1"), 200);
  assert_non_null(strstr(
      answer.body.data, "\"keys\":[{\"key\":\"acc\",\"count\":1},{\"key\":\"loss\",\"count\":2}]"));
  assert_int_equal(get("/v1/keys"), 200);
  assert_int_equal(json_array_size(json_object_get(reply, "keys")), 3);
  assert_int_equal(get("/v1/keys?grid=none"), 200);
  assert_int_equal(json_array_size(json_object_get(reply, "keys")), 0);
  snprintf(body, sizeof body, "{\"exps\": [\"%s\", \"%s\"], \"key\": \"acc\", \"points\": 10}",
           lab_id(1, one), lab_id(2, two));
  assert_int_equal(post("/v1/curves", body), 200);
  char expected[400];
  snprintf(
      expected, sizeof expected,
      "\"buckets\":[],\"exp\":\"%s\"}\n{\"id\":null,\"ok\":true,\"more\":true,"
      "\"buckets\":[[0,0,1,0,0.5,0.5,0.5],[1,1,0,1,\"nan\",\"nan\",\"nan\"]],\"exp\":\"%s\"}\n",
      one, two);
  if (!strstr(answer.body.data, expected)) fail_msg("%s\n%s", answer.body.data, expected);
  assert_int_equal(post("/v1/curves", "{\"exps\": [], \"key\": \"acc\"}"), 200);
  assert_int_equal(post("/v1/curves", "{\"exps\": [\"ff\"], \"key\": \"acc\"}"), 404);
  assert_int_equal(post("/v1/curves", "{\"exps\": 3, \"key\": \"acc\"}"), 400);
  assert_int_equal(post("/v1/curves", "{\"exps\": []}"), 400);
}

static void test_names(void **state) {
  (void)state;
  assert_int_equal(get("/v1/names?keys=eval_acc,other,,eval_loss"), 200);
  const json_t *names = json_object_get(reply, "names"), *acc = json_array_get(names, 0);
  assert_int_equal(json_array_size(names), 2);
  assert_string_equal(json_string_value(json_object_get(acc, "key")), "eval_acc");
  assert_string_equal(json_string_value(json_object_get(acc, "label")), "val acc");
  assert_string_not_equal(json_string_value(json_object_get(acc, "label_ko")), "val acc");
  assert_true(json_is_true(json_object_get(acc, "percent")));
  assert_true(json_is_false(json_object_get(acc, "lower")));
  assert_true(json_is_true(json_object_get(json_array_get(names, 1), "lower")));
  assert_int_equal(get("/v1/names"), 200);
  assert_int_equal(json_array_size(json_object_get(reply, "names")), 0);
}

static void assert_best(size_t i, const char *exp, double value, int64_t step) {
  const json_t *row = json_array_get(json_object_get(reply, "bests"), i);
  assert_string_equal(json_string_value(json_object_get(row, "exp")), exp);
  assert_true(json_number_value(json_object_get(row, "value")) == value);
  assert_int_equal(json_integer_value(json_object_get(row, "step")), step);
}

static void test_bests(void **state) {
  (void)state;
  char body[256], one[BRIM_EXP_ID], two[BRIM_EXP_ID];
  lab_submit(store, "g1", 1, 3);
  for (int i = 1; i <= 2; i++) lab_run(store, i);
  write_values(1, "loss", (double[]){3, 1, 2, 1}, 4, 1);
  write_values(1, "acc", (double[]){0.5, (double)NAN, 0.75, 0.25}, 4, 2);
  write_values(2, "loss", (double[]){(double)NAN}, 1, 1);
  snprintf(body, sizeof body, "{\"exps\": [\"%s\", \"%s\", \"ff\"], \"key\": \"loss\"}",
           lab_id(1, one), lab_id(2, two));
  assert_int_equal(post("/v1/bests", body), 200);  // an experiment without values has no best
  assert_int_equal(json_array_size(json_object_get(reply, "bests")), 1);
  assert_best(0, one, 1, 1);
  snprintf(body, sizeof body, "{\"exps\": [\"%s\"], \"key\": \"acc\"}", one);
  assert_int_equal(post("/v1/bests", body), 200);
  assert_best(0, one, 0.75, 2);
  assert_int_equal(post("/v1/bests", "{\"exps\": [\"-\"], \"key\": \"acc\"}"), 400);
  assert_int_equal(post("/v1/bests", "{\"exps\": 3, \"key\": \"acc\"}"), 400);
  assert_int_equal(post("/v1/bests", "{\"exps\": []}"), 400);
  assert_int_equal(post("/v1/bests", "{\"exps\": [], \"key\": \"acc\"}"), 200);
}

// Writes a grid into the store whose experiments have one metric each. The first ones are done, the others run.
static void run_grid(const char *yaml, const char *key, const double (*values)[2], size_t count,
                     size_t done) {
  char(*ids)[BRIM_EXP_ID];
  size_t n;
  assert_int_equal(post_grid(yaml, "g", false), 200);
  assert_ok(brim_store_ids(store, text_of("grid"), &ids, &n));
  assert_int_equal(n, count);
  for (size_t i = 0; i < n; i++) {
    const brim_store_request r = {
        .worker = "w", .claim_id = ids[i], .exp = ids[i], .free_gpus = 1, .free_bytes = -1};
    brim_store_claimed c;
    assert_ok(brim_store_claim(store, &r, &c));
    const brim_store_metric rows[] = {{key, 1, values[i][0]}, {key, 2, values[i][1]}};
    assert_ok(brim_store_metrics(store, &c.ref, 1, rows, 2));
    if (i < done) lab_finish(store, &c.ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
    brim_store_exp_free(c.exp);
  }
  brim_free(ids);
}

static const json_t *group(size_t i) {
  static json_t *line;
  size_t n = strcspn(answer.body.data, "\n");
  json_decref(line);
  assert_ok(brim_json_parse(answer.body.data, n, "line", &line));
  return json_array_get(json_object_get(line, "groups"), i);
}

static double real_of(const json_t *o, const char *key) {
  return json_number_value(json_object_get(o, key));
}

static void test_groups(void **state) {
  (void)state;
  static const double values[][2] = {{5, 1}, {6, 3}, {1, 10}, {(double)NAN, (double)NAN}};
  run_grid("model: [\"mlp(depth=1, hidden=8)\", \"mlp(depth=2, hidden=8)\"]\nseed: [1, 2]\n",
           "a_loss", values, 4, 4);
  assert_int_equal(get("/v1/groups?key=a_loss"), 200);
  const json_t *g = group(0), *params = json_object_get(g, "params");
  assert_int_equal(json_object_size(params), 1);
  assert_string_equal(json_string_value(json_object_get(params, "model")),
                      "mlp(depth=1, hidden=8)");
  assert_int_equal(json_integer_value(json_object_get(g, "n")), 2);
  assert_true(real_of(g, "mean") == 2 && fabs(real_of(g, "std") - sqrt(2)) < 1e-12);
  assert_true(real_of(g, "best") == 1);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(g, "states"), "done")), 2);
  g = group(1);
  assert_int_equal(json_integer_value(json_object_get(g, "measured")), 1);
  // The best value of a run counts; a group with a missing result ranks behind complete ones.
  assert_true(real_of(g, "mean") == 1 && json_is_null(json_object_get(g, "std")));
  assert_true(json_is_false(json_object_get(g, "complete")));
  assert_true(json_is_true(json_object_get(group(0), "complete")));
  assert_null(group(2));
  assert_int_equal(get("/v1/groups?key=a_loss&take=last"), 200);
  assert_true(real_of(group(0), "mean") == 2 && real_of(group(1), "mean") == 10);
  assert_int_equal(get("/v1/groups?key=a_loss&over=model"), 200);
  assert_int_equal(json_array_size(json_object_get(group(0), "exps")), 2);
  assert_string_equal(
      json_string_value(json_object_get(json_object_get(group(1), "params"), "seed")), "2");
  assert_int_equal(get("/v1/groups?key=none"), 200);
  assert_true(json_is_null(json_object_get(group(0), "mean")));
  assert_int_equal(get("/v1/groups?take=worst"), 400);
}

static void test_groups_count_what_is_done(void **state) {
  (void)state;
  static const double values[][2] = {{5, 1}, {6, 3}, {1, 100}, {1, 1000}};
  char(*ids)[BRIM_EXP_ID];
  size_t n;
  run_grid("lr: [0.1]\nseed: [1, 2, 3, 4]\n", "a_loss", values, 4, 2);
  assert_ok(brim_store_ids(store, NULL, &ids, &n));
  assert_ok(brim_store_want(store, ids[3], BRIM_WANT_CANCEL));
  assert_int_equal(get("/v1/groups?key=a_loss"), 200);
  const json_t *g = group(0);
  assert_int_equal(json_integer_value(json_object_get(g, "n")), 4);
  assert_int_equal(json_integer_value(json_object_get(g, "measured")), 2);
  assert_true(real_of(g, "mean") == 2 && real_of(g, "best") == 1);
  assert_int_equal(json_array_size(json_object_get(g, "exps")), 4);
  assert_true(json_is_null(json_array_get(json_object_get(g, "values"), 2)));
  brim_free(ids);
}

//---------------------------------- why experiments wait ----------------------------------

static const char *code_of(int n, int64_t *ahead) {
  static char code[32];
  char path[64], id[BRIM_EXP_ID];
  snprintf(path, sizeof path, "/v1/exps/%s", lab_id(n, id));
  assert_int_equal(get(path), 200);
  const json_t *waits = json_object_get(json_object_get(reply, "exp"), "waits");
  const char *text = json_string_value(json_object_get(waits, "code"));
  *ahead = json_integer_value(json_object_get(waits, "ahead"));
  snprintf(code, sizeof code, "%s", text ? text : "");
  return code;
}

static void seen(const char *name, const char *status) {
  const brim_store_worker w = {
      .id = name, .host = "h", .gpus = "", .version = "1", .status = status};
  assert_ok(brim_store_worker_seen(store, &w));
}

static void test_why_experiments_wait(void **state) {
  (void)state;
  int64_t ahead;
  char id[BRIM_EXP_ID];
  lab_submit(store, "g1", 1, 3);
  brim_store_point big = {
      .id = lab_id(9, id), .idx = 9, .config = "", .gpus = 2, .need_bytes = 5000000000};
  const brim_store_grid grid = {.id = "g2"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &grid, &big, 1, &out));
  assert_string_equal(code_of(1, &ahead), "no_worker");
  seen("old", "{\"gpus\": [{\"memory_total\": 1e9}]}");
  lab_clock_ms += 60000;
  assert_string_equal(code_of(1, &ahead), "no_worker");
  seen("w", "{\"gpus\": [{\"memory_total\": 1e9}]}");
  assert_string_equal(code_of(1, &ahead), "next");
  assert_string_equal(code_of(3, &ahead), "behind");
  assert_int_equal(ahead, 2);
  assert_string_equal(code_of(9, &ahead), "no_gpu");
  seen("two", "{\"gpus\": [{\"memory_total\": 1e9}, {\"memory_total\": 2e9}]}");
  assert_string_equal(code_of(9, &ahead), "no_memory");
  seen("silent", "");
  assert_string_equal(code_of(9, &ahead), "behind");
  assert_ok(brim_store_want(store, lab_id(2, id), BRIM_WANT_PAUSE));
  assert_string_equal(code_of(2, &ahead), "paused");
  assert_string_equal(code_of(3, &ahead), "behind");
  assert_int_equal(ahead, 1);
  brim_store_ref ref = lab_run(store, 1);
  assert_string_equal(code_of(1, &ahead), "");
  lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
  assert_string_equal(code_of(1, &ahead), "backoff");
  seen("w1", "");  // lab_run's worker
  ref = lab_run(store, 3);
  lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_DATA);
  assert_string_equal(code_of(3, &ahead), "lacks");
  lab_clock_ms += 60000;
  seen("w", "");
  assert_string_equal(code_of(3, &ahead), "behind");  // the worker that lacked it has gone
  seen("two", "");
  seen("silent", "");
  assert_ok(brim_store_drain(store, "w", true));
  assert_ok(brim_store_drain(store, "two", true));
  assert_ok(brim_store_drain(store, "silent", true));
  assert_string_equal(code_of(3, &ahead), "drain");
  assert_int_equal(get("/v1/exps?states=queued"), 200);
  assert_non_null(strstr(answer.body.data, "\"waits\":{\"code\":\"drain\""));
  assert_int_equal(post("/v1/call", "{\"op\": \"list\"}"), 200);
  assert_null(strstr(answer.body.data, "\"waits\""));  // links do not request it
}

static void test_workers_that_lack_something(void **state) {
  (void)state;
  seen("w1", "");
  seen("other", "");
  lab_submit(store, "g1", 1, 4);
  for (int n = 1; n <= 3; n++) {
    assert_int_equal(get("/v1/workers"), 200);
    assert_null(strstr(answer.body.data, "lacks"));
    brim_store_ref ref = lab_run(store, n);
    lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_UNSUPPORTED);
  }
  assert_int_equal(get("/v1/workers"), 200);
  const char *other = strstr(answer.body.data, "\"other\""),
             *lacks = strstr(answer.body.data, "\"lacks\":[\"g1\"]");
  assert_non_null(other);
  assert_non_null(lacks);
  assert_true(strstr(answer.body.data, "\"w1\"") < lacks);
  assert_null(strstr(lacks + 2, "lacks"));
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  pool_extras.maker = &maker;
  const struct CMUnitTest tests[] = {
      TEST(test_a_grid_is_expanded),
      TEST(test_a_grid_is_what_sweep_submits),
      TEST(test_bad_grids_are_refused),
      TEST(test_grids_need_the_role),
      TEST(test_keys_and_curves),
      TEST(test_groups),
      TEST(test_groups_count_what_is_done),
      TEST(test_names),
      TEST(test_bests),
      TEST(test_why_experiments_wait),
      TEST(test_workers_that_lack_something),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
