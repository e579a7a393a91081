// Gets plans of experiments from a planning child, and makes the forecast of a grid (lab_grid.h).

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_child.h"
#include "lab/grid/lab_grid.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_ids.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_lab.h"

//-------------------------------------------- lines --------------------------------------------
// Converts a plan to and from the line that the planning child prints.

void brim_lab_plan_init(brim_lab_plan *plan) {
  memset(plan, 0, sizeof *plan);
  plan->planned_device = plan->planned_host = plan->overhead = (double)NAN;
  plan->free = plan->total = (double)NAN;
  plan->samples_per_step = plan->steps = plan->epochs = (double)NAN;
  plan->step_s = plan->start_s = plan->run_s = (double)NAN;
}

typedef struct number {
  const char *key;
  size_t offset;
} number;

#define NUMBER(key, field) \
  { key, offsetof(brim_lab_plan, field) }
static const number numbers[] = {
    NUMBER("planned_device", planned_device),
    NUMBER("planned_host", planned_host),
    NUMBER("overhead", overhead),
    NUMBER("free", free),
    NUMBER("total", total),
    NUMBER("samples_per_step", samples_per_step),
    NUMBER("steps", steps),
    NUMBER("epochs", epochs),
    NUMBER("step_s", step_s),
    NUMBER("start_s", start_s),
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static brim_status fill_json(const brim_lab_plan *p, json_t *o) {
  BRIM_TRY(brim_json_put(o, "id", json_string(p->id)));
  BRIM_TRY(brim_json_put(o, "device", json_string(p->device)));
  BRIM_TRY(brim_json_put(o, "name", json_string(p->name)));
  for (size_t i = 0; i < NUMBERS; i++) {
    const double *value = (const double *)(const void *)((const char *)p + numbers[i].offset);
    BRIM_TRY(brim_json_put(o, numbers[i].key, brim_json_number(*value)));
  }
  BRIM_TRY(brim_json_put(o, "evaluates", json_boolean(p->evaluates)));
  BRIM_TRY(brim_json_put(o, "adapts", json_boolean(p->adapts)));
  BRIM_TRY(brim_json_put(o, "failure", json_string(brim_failure_name(p->failure))));
  return brim_json_put(o, "message", json_string(p->message));
}

brim_status brim_lab_plan_to_json(const brim_lab_plan *plan, json_t **out) {
  brim_json_setup();
  *out = json_object();
  brim_status status = *out ? fill_json(plan, *out) : brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

static void read_text(const json_t *o, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(o, key));
  snprintf(out, size, "%s", text ? text : "");
  brim_utf8_trim(out);
}

brim_status brim_lab_plan_from_json(const json_t *value, brim_lab_plan *out) {
  brim_lab_plan_init(out);
  const char *failure = json_string_value(json_object_get(value, "failure"));
  if (!json_is_string(json_object_get(value, "id")) || !failure) {
    return brim_fail(BRIM_EPARSE, "this line is no plan of an experiment");
  }
  read_text(value, "id", out->id, sizeof out->id);
  read_text(value, "device", out->device, sizeof out->device);
  read_text(value, "name", out->name, sizeof out->name);
  read_text(value, "message", out->message, sizeof out->message);
  for (size_t i = 0; i < NUMBERS; i++) {
    const json_t *n = json_object_get(value, numbers[i].key);
    double *at = (double *)(void *)((char *)out + numbers[i].offset);
    if (json_is_number(n) && json_number_value(n) >= 0) *at = json_number_value(n);
  }
  out->evaluates = json_is_true(json_object_get(value, "evaluates"));
  out->adapts = json_is_true(json_object_get(value, "adapts"));
  out->failure = brim_failure_of(failure);
  out->run_s = out->steps * out->step_s + out->start_s;
  return BRIM_OK;
}

//-------------------------------------------- child --------------------------------------------
// The dialogue with `brim sweep plan`. A few questions are under way at a time. If the child dies or
// hangs over a question, a new child begins with the next one.

enum {
  WINDOW = 4,  // most questions that wait for an answer
  WAIT_MS = 200,
  LIMIT_MS = 120000,
  LIMIT_MEASURE_MS = 600000,
  LOST_CHILDREN = 3
};

// A question, and where its answer goes.
typedef struct plan_job {
  const char *id, *config, *device;
  brim_lab_plan *out;  // its id and device are already set
} plan_job;

typedef struct talk {
  const brim_lab_plan_options *options;
  const plan_job *jobs;
  size_t count, sent, done;
  brim_child *child;
  brim_str out;      // text of the question that is being written
  size_t written;    // bytes of `out` that are written
  brim_time heard;   // when the last answer came or the child began
  int silent;        // children in a row that ended without any answer
  char visible[96];  // "CUDA_VISIBLE_DEVICES=.." of the child; "" = all devices
  char last[256];    // last line of its stderr
} talk;

// True for a UUID. It needs a child that sees only this device: CUDA shows one slice of a GPU to a
// process.
static bool is_uuid(const char *device) {
  return brim_str_starts(device, "GPU-") || brim_str_starts(device, "MIG-");
}

static const char *asked_for(const char *device) { return is_uuid(device) ? "cuda:0" : device; }

static void visible_of(const char *device, char out[96]) {
  out[0] = '\0';
  if (is_uuid(device)) snprintf(out, 96, "CUDA_VISIBLE_DEVICES=%.63s", device);
}

static void report_progress(const talk *t) {
  if (t->options->on_plan) t->options->on_plan(t->options->ctx, t->done, t->count);
}

static brim_status on_line(void *ctx, const brim_child_line *line) {
  talk *t = ctx;
  if (line->stream == BRIM_CHILD_ERR) {
    if (line->size) snprintf(t->last, sizeof t->last, "%.*s", (int)sizeof t->last - 1, line->text);
    brim_utf8_trim(t->last);
    return BRIM_OK;
  }
  json_t *value;
  brim_lab_plan plan;
  // Libraries may print to stdout too: skip lines that are no answer.
  if (t->done == t->sent || brim_json_parse(line->text, line->size, "plan", &value)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const plan_job *job = &t->jobs[t->done];
  brim_status status = brim_lab_plan_from_json(value, &plan);
  json_decref(value);
  if (status || strcmp(plan.id, job->id) != 0 || strcmp(plan.device, asked_for(job->device)) != 0) {
    brim_status_clear();
    return BRIM_OK;
  }
  *job->out = plan;
  snprintf(job->out->device, sizeof job->out->device, "%s", job->device);
  t->done++;
  t->silent = 0;
  t->heard = brim_clock_now();
  report_progress(t);
  return BRIM_OK;
}

static brim_status start(talk *t) {
  // The child must number devices as the sweep does.
  visible_of(t->jobs[t->done].device, t->visible);
  const char *const order[] = {"CUDA_DEVICE_ORDER=PCI_BUS_ID", t->visible[0] ? t->visible : NULL,
                               NULL};
  const brim_child_options options = {.argv = t->options->command,
                                      .env_change = order,
                                      .in = BRIM_CHILD_PIPE,
                                      .out = BRIM_CHILD_PIPE,
                                      .err = BRIM_CHILD_PIPE,
                                      .die_with_parent = true,
                                      .on_line = on_line,
                                      .ctx = t};
  t->sent = t->done;
  t->written = 0;
  t->last[0] = '\0';
  t->heard = brim_clock_now();
  brim_str_clear(&t->out);
  return brim_child_start(&options, &t->child);
}

static brim_status put_question(const talk *t, json_t *o) {
  const plan_job *job = &t->jobs[t->sent];
  BRIM_TRY(brim_json_put(o, "id", json_string(job->id)));
  BRIM_TRY(brim_json_put(o, "config", json_string(job->config)));
  BRIM_TRY(brim_json_put(o, "device", json_string(asked_for(job->device))));
  return brim_json_put(o, "measure", json_boolean(t->options->measure));
}

static brim_status ask(talk *t) {
  char *text = NULL;
  json_t *o = json_object();
  brim_status status = o ? put_question(t, o) : brim_fail(BRIM_ENOMEM, "out of memory for a plan");
  if (!status) status = brim_json_dump(o, 0, &text);
  json_decref(o);
  if (status) return status;
  brim_str_clear(&t->out);
  brim_str_printf(&t->out, "%s\n", text);
  brim_free(text);
  t->written = 0;
  t->sent++;
  return brim_str_status(&t->out);
}

// True if the next question needs a child that sees other devices than this one.
static bool needs_another(const talk *t) {
  char visible[96];
  if (t->sent == t->count) return false;
  visible_of(t->jobs[t->sent].device, visible);
  return strcmp(visible, t->visible) != 0;
}

// Writes as much as the child takes. If writing fails, the child ends soon and its end gives the
// reason.
static brim_status write_some(talk *t) {
  for (;;) {
    if (t->written == t->out.len) {
      if (t->sent == t->count || t->sent - t->done >= WINDOW || needs_another(t)) return BRIM_OK;
      BRIM_TRY(ask(t));
    }
    size_t n = 0;
    brim_status status =
        brim_child_write(t->child, t->out.data + t->written, t->out.len - t->written, &n);
    if (status == BRIM_EEND) {
      brim_status_clear();
      return BRIM_OK;
    }
    if (status || n == 0) return status;
    t->written += n;
  }
}

// Gives up the oldest question without an answer.
static void give_up_question(talk *t, brim_failure failure) {
  brim_lab_plan *plan = t->jobs[t->done].out;
  const brim_child_result *r =
      failure == BRIM_FAILURE_HUNG ? NULL : brim_child_get_result(t->child);
  plan->failure = failure;
  if (!r) {
    snprintf(plan->message, sizeof plan->message, "%s",
             brim_tr("planning took too long and was ended"));
  } else if (r->signal) {
    snprintf(plan->message, sizeof plan->message, brim_tr("planning was ended by signal %d"),
             r->signal);
  } else {
    snprintf(plan->message, sizeof plan->message,
             brim_tr("planning ended with exit code %d without an answer: %s"), r->exit_code,
             t->last);
  }
  brim_utf8_trim(plan->message);
  t->done++;
  t->silent++;
  report_progress(t);
}

static brim_status lost_too_many(const talk *t) {
  const brim_lab_plan *plan = t->jobs[t->done - 1].out;
  return brim_fail(BRIM_ECHILD, "cannot plan the experiments: %s", plan->message);
}

static void wait_for(talk *t) {
  struct pollfd fds[BRIM_CHILD_FDS + 1];
  int limit = -1;
  nfds_t n = (nfds_t)brim_child_fds(t->child, fds, &limit);
  if (t->written < t->out.len && brim_child_input_fd(t->child) >= 0) {
    fds[n++] = (struct pollfd){.fd = brim_child_input_fd(t->child), .events = POLLOUT};
  }
  (void)poll(fds, n, limit >= 0 && limit < WAIT_MS ? limit : WAIT_MS);
}

static bool is_late(const talk *t) {
  int64_t limit = t->options->limit_ms;
  if (limit <= 0) limit = t->options->measure ? LIMIT_MEASURE_MS : LIMIT_MS;
  return brim_time_since_ns(t->heard, brim_clock_now()) > limit * 1000000;
}

static brim_status take_turn(talk *t) {
  bool ended = false;
  if (t->options->stop && *t->options->stop) {
    return brim_fail(BRIM_EINTERRUPTED, "planning was interrupted");
  }
  if (t->child && t->done == t->sent && needs_another(t)) {
    brim_child_close(t->child);
    t->child = NULL;
  }
  if (!t->child) BRIM_TRY(start(t));
  BRIM_TRY(write_some(t));
  wait_for(t);
  BRIM_TRY(brim_child_poll(t->child, &ended));
  const bool late = !ended && is_late(t);
  if (t->done == t->count || (!ended && !late)) return BRIM_OK;
  give_up_question(t, late ? BRIM_FAILURE_HUNG : BRIM_FAILURE_CRASH);
  brim_child_close(t->child);
  t->child = NULL;
  return t->silent >= LOST_CHILDREN ? lost_too_many(t) : BRIM_OK;
}

// Plans all jobs in order. A question that crashes or hangs its child gets that failure class.
// BRIM_ECHILD: several children in a row gave no answer.
static brim_status plan_child_run(const brim_lab_plan_options *options, const plan_job *jobs,
                                  size_t count) {
  talk t = {.options = options, .jobs = jobs, .count = count};
  brim_status status = BRIM_OK;
  brim_str_init(&t.out);
  brim_json_setup();
  while (t.done < count && !status) status = take_turn(&t);
  brim_child_close(t.child);
  brim_str_deinit(&t.out);
  return status;
}

//------------------------------------------- forecast -------------------------------------------
// Forecasts a grid from the plans of the planning child and from the times of runs in a store.

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

// Numbers the costs by their first points; first[i] is the first point with cost i.
static brim_status find_costs(const brim_lab_grid *grid, brim_lab_forecast *out, size_t *first) {
  brim_lab_ids set = {0};
  BRIM_TRY(brim_lab_ids_init(&set, grid->count));
  for (size_t i = 0; i < grid->count; i++) {
    const char *cost = grid->points[i].cost_id;
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
  plan_job *jobs = brim_calloc(total + 1, sizeof *jobs);
  out->plans = brim_calloc(total + 1, sizeof *out->plans);
  brim_status status = BRIM_OK;
  if (!jobs || !out->plans) status = brim_fail(BRIM_ENOMEM, "out of memory for %zu plans", total);
  // Go device by device, so that the child opens each device once.
  for (size_t i = 0; i < total && !status; i++) {
    const size_t device = i / out->costs, cost = i % out->costs;
    const brim_lab_point *point = &grid->points[first[cost]];
    jobs[i] = (plan_job){.id = point->cost_id,
                         .config = point->config,
                         .device = devices[device],
                         .out = &out->plans[cost * out->devices + device]};
    brim_lab_plan_init(jobs[i].out);
    snprintf(jobs[i].out->id, sizeof jobs[i].out->id, "%s", point->cost_id);
    snprintf(jobs[i].out->device, sizeof jobs[i].out->device, "%s", devices[device]);
  }
  if (!status) status = plan_child_run(options, jobs, total);
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

enum { MOST_RUNS = 3 };  // most runs of one cost that are read

typedef struct cost_runs {
  char ids[MOST_RUNS][BRIM_EXP_ID];
  size_t count;
  double sum_s;
  size_t known;
} cost_runs;

typedef struct run_times {
  const brim_lab_ids *costs;
  cost_runs *runs;
  cost_runs *current;  // the cost whose attempts are read now
  char host[256];
} run_times;

// Keeps experiments that finished in their first attempt: its time is the time of the whole run.
static brim_status see_experiment(void *ctx, const brim_store_exp *exp) {
  run_times *t = ctx;
  char cost[BRIM_LAB_ID];
  size_t row;
  brim_lab_config_mark(exp->config, "cost", cost);
  if (!cost[0] || exp->attempt != 1 || !brim_lab_ids_find(t->costs, cost, &row)) return BRIM_OK;
  cost_runs *r = &t->runs[row];
  if (r->count < MOST_RUNS) snprintf(r->ids[r->count++], BRIM_EXP_ID, "%s", exp->id);
  return BRIM_OK;
}

static brim_status see_attempt(void *ctx, const brim_store_attempt *a) {
  run_times *t = ctx;
  const bool here = !a->host[0] || !strcmp(a->host, t->host);
  if (!here || a->outcome != BRIM_ATTEMPT_OK || a->from_step > 0) return BRIM_OK;
  if (a->started <= 0 || a->ended <= a->started) return BRIM_OK;
  t->current->sum_s += (double)(a->ended - a->started) / 1000;
  t->current->known++;
  return BRIM_OK;
}

static brim_status read_times(run_times *t, brim_lab_forecast *f, struct brim_lab_link *link) {
  const brim_store_filter done = {.states = 1u << BRIM_EXP_DONE, .texts = true};
  BRIM_TRY(brim_lab_list(link, &done, see_experiment, t));
  for (size_t i = 0; i < f->costs; i++) {
    t->current = &t->runs[i];
    for (size_t n = 0; n < t->current->count; n++) {
      BRIM_TRY(brim_lab_attempts(link, t->current->ids[n], see_attempt, t));
    }
    for (size_t d = 0; d < f->devices && t->current->known; d++) {
      f->plans[i * f->devices + d].run_s = t->current->sum_s / (double)t->current->known;
      f->plans[i * f->devices + d].run_known = true;
    }
  }
  return BRIM_OK;
}

brim_status brim_lab_forecast_times(brim_lab_forecast *forecast, struct brim_lab_link *link) {
  brim_lab_ids set = {0};
  run_times t = {.costs = &set};
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
