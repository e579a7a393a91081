// Forecasts of a grid: one question for each cost and device, children that crash, hang, answer nonsense or are
// missing, and times of earlier runs from a store. The program is its own planning child: an argument makes it answer
// questions in that way.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/grid/lab_grid.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_link.h"
#include "test.h"
#include "workload/workload.h"

static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

//---------------------------------- the child ----------------------------------

// Memory by the batch size of the config: 1 MB a sample.
static void reply(const json_t *question) {
  const char *config = json_string_value(json_object_get(question, "config"));
  const char *at = strstr(config, "data.batch_size: ");
  const double batch = at ? strtod(at + strlen("data.batch_size: "), NULL) : 128;
  brim_lab_plan plan;
  json_t *out;
  char *text;
  brim_lab_plan_init(&plan);
  snprintf(plan.id, sizeof plan.id, "%s", json_string_value(json_object_get(question, "id")));
  snprintf(plan.device, sizeof plan.device, "%s",
           json_string_value(json_object_get(question, "device")));
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  snprintf(plan.name, sizeof plan.name, "%s", visible ? visible : "pretend");
  plan.planned_device = batch * 1e6;
  plan.steps = 100;
  if (json_is_true(json_object_get(question, "measure"))) {
    plan.step_s = 0.5;
    plan.start_s = 7;
  }
  if (batch > 1000) plan.failure = BRIM_FAILURE_OOM_PLANNED;
  assert_ok(brim_lab_plan_to_json(&plan, &out));
  assert_ok(brim_json_dump(out, 0, &text));
  printf("%s\n", text);
  fflush(stdout);
  brim_free(text);
  json_decref(out);
}

static int child(const char *how) {
  char *line = NULL;
  size_t cap = 0;
  ssize_t size;
  while ((size = getline(&line, &cap, stdin)) > 0) {
    json_t *question;
    if (brim_json_parse(line, (size_t)size, "stdin", &question)) return 9;
    const bool marked = strstr(line, "data.batch_size: 66\\n") != NULL;
    if (!strcmp(how, "noise")) {
      printf(
          "a library says hello\n{}\n{\"id\": \"x\", \"device\": \"%s\", \"failure\": \"none\"}\n",
          json_string_value(json_object_get(question, "device")));
    }
    if (!strcmp(how, "crash") && marked) abort();
    if (!strcmp(how, "hang") && marked) pause();
    if (!strcmp(how, "dead")) {
      fprintf(stderr, "no such thing\n");
      json_decref(question);
      free(line);
      return 3;
    }
    reply(question);
    json_decref(question);
  }
  free(line);
  return 0;
}

static char self[4096];

static brim_lab_plan_options options_of(const char *how, const char *command[3]) {
  command[0] = self;
  command[1] = how;
  command[2] = NULL;
  return (brim_lab_plan_options){.command = command};
}

//---------------------------------- the tests ----------------------------------

static const char text[] =
    "batch_size: [64, 65, 66, 67, 2000]\nlr: [0.1, 0.2]\nseeds: 3\nname: forecast\n";

static brim_lab_grid expand(const char *yaml) {
  brim_config_options options = {.text = yaml};
  brim_config *config;
  brim_lab_grid grid;
  if (brim_config_load(&options, &config)) fail_msg("%s", brim_status_detail());
  assert_ok(brim_lab_grid_expand(config, NULL, &grid));
  brim_config_close(config);
  return grid;
}

static const char *const devices[] = {"cuda:0", "cuda:1"};

static void count_plans(void *ctx, size_t done, size_t total) {
  size_t *seen = ctx;
  assert_int_equal(done, *seen + 1);
  assert_int_equal(total, 10);
  *seen = done;
}

static void one_question_per_cost_and_device(void **state) {
  (void)state;
  static const char *const ways[] = {"answer", "noise"};
  brim_lab_grid grid = expand(text);
  for (size_t w = 0; w < 2; w++) {
    const char *command[3];
    size_t seen = 0;
    brim_lab_plan_options options = options_of(ways[w], command);
    options.on_plan = count_plans;
    options.ctx = &seen;
    brim_lab_forecast f;
    assert_ok(brim_lab_forecast_make(&grid, devices, 2, &options, &f));
    assert_int_equal(f.costs, 5);  // learning rates and seeds do not change the cost
    assert_int_equal(f.points, 30);
    assert_int_equal(seen, 10);
    for (size_t i = 0; i < 30; i++) {
      static const double batch[] = {64, 65, 66, 67, 2000};
      for (size_t d = 0; d < 2; d++) {
        const brim_lab_plan *plan = brim_lab_forecast_of(&f, i, d);
        assert_string_equal(plan->id, grid.points[i].cost_id);
        assert_string_equal(plan->device, devices[d]);
        assert_true(plan->planned_device == batch[i / 6] * 1e6);
        assert_int_equal(plan->failure, i / 6 == 4 ? BRIM_FAILURE_OOM_PLANNED : BRIM_FAILURE_NONE);
        assert_true(isnan(plan->run_s) && isnan(plan->step_s) && isnan(plan->overhead));
      }
    }
    assert_null(brim_lab_forecast_of(&f, 30, 0));
    assert_null(brim_lab_forecast_of(&f, 0, 2));
    brim_lab_forecast_free(&f);
    brim_lab_forecast_free(&f);
  }
  brim_lab_grid_free(&grid);
}

static void measured_steps_give_a_time(void **state) {
  (void)state;
  const char *command[3];
  brim_lab_grid grid = expand(text);
  brim_lab_plan_options options = options_of("answer", command);
  options.measure = true;
  brim_lab_forecast f;
  assert_ok(brim_lab_forecast_make(&grid, devices, 1, &options, &f));
  assert_true(brim_lab_forecast_of(&f, 7, 0)->run_s == 57);
  assert_false(brim_lab_forecast_of(&f, 7, 0)->run_known);
  brim_lab_forecast_free(&f);
  brim_lab_grid_free(&grid);
}

// CUDA shows a process only one slice of a GPU, so each slice has its own child.
static void slices_have_children_of_their_own(void **state) {
  (void)state;
  static const char *const slices[] = {"cuda:0", "MIG-11111111-2222-3333-4444-555555555555",
                                       "MIG-66666666-2222-3333-4444-555555555555"};
  const char *command[3];
  brim_lab_grid grid = expand(text);
  brim_lab_plan_options options = options_of("crash", command);
  brim_lab_forecast f;
  unsetenv("CUDA_VISIBLE_DEVICES");
  assert_ok(brim_lab_forecast_make(&grid, slices, 3, &options, &f));
  for (size_t cost = 0; cost < 5; cost++) {
    for (size_t d = 0; d < 3; d++) {
      const brim_lab_plan *plan = &f.plans[cost * 3 + d];
      assert_string_equal(plan->device, slices[d]);
      if (cost == 2) continue;  // this one crashes
      assert_string_equal(plan->name, d == 0 ? "pretend" : slices[d]);
      assert_true(plan->planned_device > 0);
    }
  }
  brim_lab_forecast_free(&f);
  brim_lab_grid_free(&grid);
}

// A crash or hang of the child is recorded as a failure of its class, and the next child continues after that point.
static void children_may_end(void **state) {
  (void)state;
  static const struct {
    const char *how;
    brim_failure failure;
    size_t devices;
    int64_t limit_ms;
  } cases[] = {{"crash", BRIM_FAILURE_CRASH, 2, 0}, {"hang", BRIM_FAILURE_HUNG, 1, 8000}};
  brim_lab_grid grid = expand(text);
  for (size_t c = 0; c < 2; c++) {
    const char *command[3];
    brim_lab_plan_options options = options_of(cases[c].how, command);
    options.limit_ms = cases[c].limit_ms;  // generous: a busy machine answers late
    brim_lab_forecast f;
    assert_ok(brim_lab_forecast_make(&grid, devices, cases[c].devices, &options, &f));
    for (size_t cost = 0; cost < 5; cost++) {
      for (size_t d = 0; d < f.devices; d++) {
        const brim_lab_plan *plan = &f.plans[cost * f.devices + d];
        if (cost == 2) {
          assert_int_equal(plan->failure, cases[c].failure);
          assert_true(isnan(plan->planned_device) && plan->message[0]);
          assert_string_equal(plan->device, devices[d]);
        } else {
          assert_true(plan->planned_device > 0);
        }
      }
    }
    brim_lab_forecast_free(&f);
  }
  brim_lab_grid_free(&grid);
}

static void no_child_at_all(void **state) {
  (void)state;
  const char *command[3];
  brim_lab_grid grid = expand(text);
  brim_lab_plan_options options = options_of("dead", command);
  brim_lab_forecast f;
  assert_status(brim_lab_forecast_make(&grid, devices, 2, &options, &f), BRIM_ECHILD);
  assert_non_null(strstr(brim_status_detail(), "no such thing"));
  assert_null(f.plans);
  const char *const missing[] = {"./not-here", NULL};
  options.command = missing;
  assert_true(brim_lab_forecast_make(&grid, devices, 2, &options, &f) != BRIM_OK);
  volatile sig_atomic_t stop = 1;
  options = options_of("answer", command);
  options.stop = &stop;
  assert_status(brim_lab_forecast_make(&grid, devices, 2, &options, &f), BRIM_EINTERRUPTED);
  brim_lab_grid_free(&grid);
}

//---------------------------------- times ----------------------------------

static int64_t now_ms = 1000000;
static int64_t clock_of(void *ctx) {
  (void)ctx;
  return now_ms;
}

static void run(brim_store *store, const char *id, const char *host, int64_t ms,
                brim_attempt_outcome outcome) {
  const brim_store_request request = {
      .worker = "w", .claim_id = id, .host = host, .exp = id, .free_gpus = 8, .free_bytes = -1};
  brim_store_claimed claimed;
  assert_ok(brim_store_claim(store, &request, &claimed));
  assert_non_null(claimed.exp);
  brim_store_exp_free(claimed.exp);
  assert_ok(brim_store_start(store, &claimed.ref, 1, 0));
  now_ms += ms;
  const brim_store_result result = {
      .outcome = outcome,
      .failure = outcome == BRIM_ATTEMPT_OK ? BRIM_FAILURE_NONE : BRIM_FAILURE_NAN};
  assert_ok(brim_store_finish(store, &claimed.ref, &result, NULL));
}

static void read_times(const char *place, brim_lab_forecast *f) {
  brim_lab_link *link;
  assert_ok(brim_lab_link_open(place, NULL, &link));
  assert_ok(brim_lab_forecast_times(f, link));
  brim_lab_link_close(link);
}

static void times_of_finished_runs(void **state) {
  (void)state;
  const char *command[3];
  char folder[] = "lab-plan-XXXXXX", host[256] = "";
  assert_non_null(mkdtemp(folder));
  assert_int_equal(gethostname(host, sizeof host - 1), 0);
  brim_lab_grid grid = expand(text);
  brim_lab_plan_options options = options_of("answer", command);
  brim_lab_forecast f;
  assert_ok(brim_lab_forecast_make(&grid, devices, 2, &options, &f));
  const brim_store_options how = {.clock = clock_of};
  brim_store *store;
  assert_ok(brim_store_open(folder, &how, &store));
  brim_store_close(store);
  read_times(folder, &f);
  assert_ok(brim_store_open(folder, &how, &store));
  for (size_t i = 0; i < 30; i++) assert_true(isnan(brim_lab_forecast_of(&f, i, 0)->run_s));
  brim_store_point points[30];
  for (size_t i = 0; i < 30; i++) {
    const brim_lab_point *p = &grid.points[i];
    points[i] = (brim_store_point){.id = p->id, .idx = p->idx, .config = p->config, .gpus = 1};
  }
  const brim_store_grid row = {.id = grid.id};
  brim_store_submitted submitted;
  assert_ok(brim_store_submit(store, &row, points, 30, &submitted));
  run(store, points[0].id, host, 20000, BRIM_ATTEMPT_OK);
  run(store, points[5].id, host, 40000, BRIM_ATTEMPT_OK);        // the same cost
  run(store, points[7].id, "elsewhere", 7000, BRIM_ATTEMPT_OK);  // another machine
  run(store, points[13].id, host, 7000, BRIM_ATTEMPT_ERROR);
  brim_store_close(store);
  read_times(folder, &f);
  for (size_t i = 0; i < 30; i++) {
    const brim_lab_plan *plan = brim_lab_forecast_of(&f, i, 1);
    assert_int_equal(plan->run_known, i < 6);
    if (i < 6) assert_true(plan->run_s == 30);
    if (i >= 6) assert_true(isnan(plan->run_s));
  }
  brim_lab_forecast_free(&f);
  brim_lab_grid_free(&grid);
}

static void lines_are_checked(void **state) {
  (void)state;
  static const char *const bad[] = {"{}", "[]", "{\"id\": 3, \"failure\": \"none\"}",
                                    "{\"id\": \"a\"}"};
  brim_lab_plan plan;
  json_t *value;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    assert_ok(brim_json_parse(bad[i], strlen(bad[i]), "t", &value));
    assert_status(brim_lab_plan_from_json(value, &plan), BRIM_EPARSE);
    json_decref(value);
  }
  static const char odd[] =
      "{\"id\": \"a\", \"failure\": \"purple\", \"steps\": -3, \"free\": \"many\", \"total\": 5}";
  assert_ok(brim_json_parse(odd, strlen(odd), "t", &value));
  assert_ok(brim_lab_plan_from_json(value, &plan));
  assert_int_equal(plan.failure, BRIM_FAILURE_OTHER);
  assert_true(isnan(plan.steps) && isnan(plan.free) && plan.total == 5);
  json_decref(value);
}

int main(int argc, char **argv) {
  if (argc > 1) return child(argv[1]);
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_question_per_cost_and_device),
      cmocka_unit_test(measured_steps_give_a_time),
      cmocka_unit_test(slices_have_children_of_their_own),
      cmocka_unit_test(children_may_end),
      cmocka_unit_test(no_child_at_all),
      cmocka_unit_test(times_of_finished_runs),
      cmocka_unit_test(lines_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
