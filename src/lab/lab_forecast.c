// The forecast of a grid (lab_plan.h): plans of the planning child, and times of runs that a store knows.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_ids.h"
#include "lab/lab_link.h"
#include "lab/lab_plan_child.h"
#include "lab/store/lab_store.h"

//---------------------------------- the forecast ----------------------------------

void brim_lab_forecast_free(brim_lab_forecast *forecast) {
  brim_free(forecast->plans);
  brim_free(forecast->cost_of);
  memset(forecast, 0, sizeof *forecast);
}

const brim_lab_plan *brim_lab_forecast_of(const brim_lab_forecast *forecast, size_t point,
                                          size_t device) {
  if (point >= forecast->points || device >= forecast->devices) return NULL;
  return &forecast->plans[forecast->cost_of[point] * forecast->devices + device];
}

// Costs by their first point; first[i] is that of cost i.
static brim_status find_costs(const brim_lab_grid *grid, brim_lab_forecast *out, size_t *first) {
  brim_lab_ids set = {0};
  BRIM_TRY(brim_lab_ids_init(&set, grid->count));
  for (size_t i = 0; i < grid->count; i++) {
    const char *cost = grid->points[i].cost;
    if (!brim_lab_ids_find(&set, cost, &out->cost_of[i])) {
      first[out->costs] = i;
      out->cost_of[i] = out->costs++;
      brim_lab_ids_add(&set, cost, out->cost_of[i]);
    }
  }
  brim_lab_ids_deinit(&set);
  return BRIM_OK;
}

static brim_status make_plans(const brim_lab_grid *grid, const char *const *devices,
                              const size_t *first, const brim_lab_plan_options *options,
                              brim_lab_forecast *out) {
  const size_t total = out->costs * out->devices;
  brim_lab_plan_job *jobs = brim_calloc(total + 1, sizeof *jobs);
  out->plans = brim_calloc(total + 1, sizeof *out->plans);
  brim_status status = BRIM_OK;
  if (!jobs || !out->plans) status = brim_fail(BRIM_ENOMEM, "out of memory for %zu plans", total);
  // All of one device behind another: the child opens each once.
  for (size_t i = 0; i < total && !status; i++) {
    const size_t device = i / out->costs, cost = i % out->costs;
    const brim_lab_point *point = &grid->points[first[cost]];
    jobs[i] = (brim_lab_plan_job){.id = point->cost,
                                  .config = point->config,
                                  .device = devices[device],
                                  .out = &out->plans[cost * out->devices + device]};
    brim_lab_plan_init(jobs[i].out);
    snprintf(jobs[i].out->id, sizeof jobs[i].out->id, "%s", point->cost);
    snprintf(jobs[i].out->device, sizeof jobs[i].out->device, "%s", devices[device]);
  }
  if (!status) status = brim_lab_plan_child_run(options, jobs, total);
  brim_free(jobs);
  return status;
}

brim_status brim_lab_forecast_make(const brim_lab_grid *grid, const char *const *devices,
                                   size_t device_count, const brim_lab_plan_options *options,
                                   brim_lab_forecast *out) {
  memset(out, 0, sizeof *out);
  out->devices = device_count;
  out->points = grid->count;
  out->cost_of = brim_calloc(grid->count + 1, sizeof *out->cost_of);
  size_t *first = brim_calloc(grid->count + 1, sizeof *first);
  brim_status status = BRIM_OK;
  if (!out->cost_of || !first) status = brim_fail(BRIM_ENOMEM, "out of memory for a forecast");
  if (!status) status = find_costs(grid, out, first);
  if (!status) status = make_plans(grid, devices, first, options, out);
  brim_free(first);
  if (status) brim_lab_forecast_free(out);
  return status;
}

//---------------------------------- times ----------------------------------

// Runs of one cost that are looked at.
enum { RUNS = 3 };

typedef struct cost_runs {
  char ids[RUNS][BRIM_EXP_ID];
  size_t count;
  double sum_s;
  size_t known;
} cost_runs;

typedef struct times {
  const brim_lab_ids *costs;
  cost_runs *runs;
  cost_runs *now;  // whose attempts are read
  char host[256];
} times;

// One attempt from the beginning to the end: its time is that of the run.
static brim_status see_experiment(void *ctx, const brim_store_exp *exp) {
  times *t = ctx;
  char cost[BRIM_LAB_ID];
  size_t row;
  brim_lab_config_cost(exp->config, cost);
  if (!cost[0] || exp->attempt != 1 || !brim_lab_ids_find(t->costs, cost, &row)) return BRIM_OK;
  cost_runs *r = &t->runs[row];
  if (r->count < RUNS) snprintf(r->ids[r->count++], BRIM_EXP_ID, "%s", exp->id);
  return BRIM_OK;
}

static brim_status see_attempt(void *ctx, const brim_store_attempt *a) {
  times *t = ctx;
  const bool here = !a->host[0] || !strcmp(a->host, t->host);
  if (!here || a->outcome != BRIM_ATTEMPT_OK || a->from_step > 0) return BRIM_OK;
  if (a->started <= 0 || a->ended <= a->started) return BRIM_OK;
  t->now->sum_s += (double)(a->ended - a->started) / 1000;
  t->now->known++;
  return BRIM_OK;
}

static brim_status read_times(times *t, brim_lab_forecast *f, struct brim_lab_link *link) {
  const brim_store_filter done = {.states = 1u << BRIM_EXP_DONE, .texts = true};
  BRIM_TRY(brim_lab_list(link, &done, see_experiment, t));
  for (size_t i = 0; i < f->costs; i++) {
    t->now = &t->runs[i];
    for (size_t n = 0; n < t->now->count; n++) {
      BRIM_TRY(brim_lab_attempts(link, t->now->ids[n], see_attempt, t));
    }
    for (size_t d = 0; d < f->devices && t->now->known; d++) {
      f->plans[i * f->devices + d].run_s = t->now->sum_s / (double)t->now->known;
      f->plans[i * f->devices + d].run_known = true;
    }
  }
  return BRIM_OK;
}

brim_status brim_lab_forecast_times(brim_lab_forecast *forecast, struct brim_lab_link *link) {
  brim_lab_ids set = {0};
  times t = {.costs = &set};
  BRIM_TRY(brim_lab_ids_init(&set, forecast->costs));
  for (size_t i = 0; i < forecast->costs; i++) {
    brim_lab_ids_add(&set, forecast->plans[i * forecast->devices].id, i);
  }
  if (gethostname(t.host, sizeof t.host - 1) != 0) t.host[0] = '\0';
  t.runs = brim_calloc(forecast->costs + 1, sizeof *t.runs);
  brim_status status = t.runs ? read_times(&t, forecast, link)
                              : brim_fail(BRIM_ENOMEM, "out of memory for a forecast");
  brim_free(t.runs);
  brim_lab_ids_deinit(&set);
  return status;
}
