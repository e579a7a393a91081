// A sweep as others see it: readings of its GPUs, the status of a worker, and the view, from the
// store and the places. Rows are read again only where the store has changed, so that 10,000 rows
// cost nothing while little happens.

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/grid/lab_grid.h"
#include "lab/sweep/lab_sweep_int.h"
#include "lab/wire/lab_wire.h"
#include "record/record_lab.h"

//--------------------------------------------- GPUs ---------------------------------------------
// The use, power and temperature of the GPUs, and the steps of the experiments on each. A reading
// covers the time between two marks of a sampler whose own thread sleeps: a second while a view is
// looked at, five where a server shows the readings, else ten.

enum {
  LOOKED_AT_MS = 1000,
  ALONE_MS = 10000,
  SERVES_MS = 5000,  // of a worker, whose server shows them
  LOOKS_MS = 5000    // a view counts as looked at until so long after it was made
};
static const double never_s = 86400;  // the sampler's own period

// A GPU whose sampler does not start stays unknown.
static void start_reader(brim_lab_sweep *s, const char *uuid) {
  brim_lab_gpu_reader *r = &s->readers[s->reader_count++];
  memset(r, 0, sizeof *r);
  snprintf(r->uuid, sizeof r->uuid, "%s", uuid);
  r->power_w = r->power_limit_w = r->gpu_percent = r->temperature_c = (double)NAN;
  if (!s->options.monitor ||
      brim_gpu_sampler_start(s->options.monitor, uuid, never_s, &r->sampler)) {
    brim_status_clear();
    r->sampler = NULL;
    return;
  }
  brim_gpu_sampler_mark(r->sampler);
}

static const brim_lab_gpu_reader *gpus_find(const brim_lab_sweep *s, const char *uuid) {
  for (size_t i = 0; i < s->reader_count; i++) {
    if (strcmp(s->readers[i].uuid, uuid) == 0) return &s->readers[i];
  }
  return NULL;
}

static void read_gpu(brim_lab_gpu_reader *r) {
  brim_gpu_usage usage;
  if (!r->sampler) return;
  brim_gpu_sampler_read(r->sampler, &usage);
  brim_gpu_sampler_mark(r->sampler);
  r->gpu_percent = usage.gpu_percent;
  r->power_w = usage.power_w;
  r->power_limit_w = usage.power_limit_w;
  r->temperature_c = usage.temperature_c;
}

void brim_lab_gpus_read(brim_lab_sweep *s, int64_t now_ms) {
  const bool looked_at = s->looked_ms > 0 && now_ms - s->looked_ms < LOOKS_MS;
  const int64_t every = looked_at ? LOOKED_AT_MS : s->options.serves ? SERVES_MS : ALONE_MS;
  if (s->gpus_ms > 0 && now_ms - s->gpus_ms < every) return;
  s->gpus_ms = now_ms;
  for (size_t i = 0; i < s->reader_count; i++) read_gpu(&s->readers[i]);
  for (size_t i = 0; i < brim_lab_place_count(s->placing); i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (!gpus_find(s, gpu.uuid) && s->reader_count < BRIM_LAB_PLACE_GPUS) start_reader(s, gpu.uuid);
  }
}

void brim_lab_gpus_close(brim_lab_sweep *s) {
  for (size_t i = 0; i < s->reader_count; i++) brim_gpu_sampler_stop(s->readers[i].sampler);
  s->reader_count = 0;
}

// True if a list of devices as a slot has it ("GPU-1,GPU-2", "cpu") contains this one.
static bool has_device(const char *list, const char *device) {
  const size_t n = strlen(device);
  for (const char *at = list; *at; at += *at == ',') {
    const size_t size = strcspn(at, ",");
    if (size == n && strncmp(at, device, n) == 0) return true;
    at += size;
  }
  return false;
}

// Steps per second of the experiments on a device; unknown as long as none of them has made steps.
static double steps_on(const brim_lab_sweep *s, const char *device) {
  double sum = (double)NAN;
  for (size_t i = 0; i < s->count; i++) {
    const brim_lab_runner *r = s->runners[i];
    if (!(r->steps_per_s > 0) || !r->devices || !has_device(r->devices, device)) continue;
    sum = isnan(sum) ? r->steps_per_s : sum + r->steps_per_s;
  }
  return sum;
}

void brim_lab_gpus_fill(brim_lab_sweep *s, brim_sweep_gpu *out) {
  const brim_lab_gpu_reader *r = out->id[0] ? gpus_find(s, out->id) : NULL;
  out->steps_per_s = steps_on(s, out->id[0] ? out->id : out->name);
  if (!r) return;
  out->gpu_percent = r->gpu_percent;
  out->power_w = r->power_w;
  out->temperature_c = r->temperature_c;
}

static brim_sweep_gpu_state gpu_state(brim_lab_place_state state) {
  switch (state) {
    case BRIM_LAB_PLACE_FREE:
      return BRIM_SWEEP_GPU_FREE;
    case BRIM_LAB_PLACE_BUSY:
      return BRIM_SWEEP_GPU_BUSY;
    case BRIM_LAB_PLACE_RETURNING:
      return BRIM_SWEEP_GPU_RELEASING;
    case BRIM_LAB_PLACE_FOREIGN:
    case BRIM_LAB_PLACE_LOCKED:
      return BRIM_SWEEP_GPU_FOREIGN;
    case BRIM_LAB_PLACE_OUT:
    case BRIM_LAB_PLACE_STATE_COUNT:
      break;
  }
  return BRIM_SWEEP_GPU_OUT;
}

//-------------------------------------- status of a worker --------------------------------------

static brim_status put_gpu(brim_lab_sweep *s, size_t i, json_t *list) {
  brim_lab_place_gpu gpu;
  json_t *o = json_object();
  BRIM_TRY(brim_json_push(list, o));
  brim_lab_place_get(s->placing, i, &gpu);
  const brim_lab_gpu_reader *read = gpus_find(s, gpu.uuid);
  BRIM_TRY(brim_json_put(o, "index", json_integer(gpu.index)));
  BRIM_TRY(brim_json_put(o, "uuid", brim_lab_wire_text(gpu.uuid)));
  BRIM_TRY(brim_json_put(o, "name", brim_lab_wire_text(gpu.name)));
  BRIM_TRY(brim_json_put(o, "state", json_string(brim_sweep_gpu_state_name(gpu_state(gpu.state)))));
  BRIM_TRY(brim_json_put(o, "running", json_integer(gpu.jobs)));
  BRIM_TRY(brim_json_put(o, "util", brim_json_number(read ? read->gpu_percent : (double)NAN)));
  BRIM_TRY(brim_json_put(o, "memory_used", brim_json_number(gpu.total_bytes - gpu.free_bytes)));
  BRIM_TRY(brim_json_put(o, "memory_total", brim_json_number(gpu.total_bytes)));
  BRIM_TRY(brim_json_put(o, "power_w", brim_json_number(read ? read->power_w : (double)NAN)));
  BRIM_TRY(brim_json_put(o, "power_limit_w",
                         brim_json_number(read ? read->power_limit_w : (double)NAN)));
  return brim_json_put(o, "temp_c", brim_json_number(read ? read->temperature_c : (double)NAN));
}

// Use of the processor since the last call; unknown the first time.
static double cpu_percent(brim_lab_sweep *s) {
  const brim_host_provider machine = brim_host_provider_system("");
  brim_host_sample now;
  if (brim_host_read_sample(&machine, &now)) {
    brim_status_clear();
    return (double)NAN;
  }
  double percent = (double)NAN;
  if (s->host_read) percent = brim_host_usage_between(&s->host_sample, &now).system_cpu_percent;
  s->host_sample = now;
  s->host_read = true;
  return percent;
}

static brim_status put_host(brim_lab_sweep *s, json_t *o) {
  brim_host_info info = {.memory_total_bytes = (double)NAN, .memory_available_bytes = (double)NAN};
  int taken = 0, slots = 0;
  if (brim_host_get_info(&info)) brim_status_clear();
  brim_lab_place_cpu(s->placing, &slots, &taken);
  BRIM_TRY(brim_json_put(o, "cpu_percent", brim_json_number(cpu_percent(s))));
  BRIM_TRY(brim_json_put(o, "memory_used",
                         brim_json_number(info.memory_total_bytes - info.memory_available_bytes)));
  BRIM_TRY(brim_json_put(o, "memory_total", brim_json_number(info.memory_total_bytes)));
  BRIM_TRY(brim_json_put(o, "cpu_slots", json_integer(slots)));
  return brim_json_put(o, "running", json_integer((json_int_t)s->count));
}

brim_status brim_lab_sweep_status(brim_lab_sweep *s, char **out) {
  json_t *o = json_object(), *gpus = json_array();
  *out = NULL;
  brim_status status = brim_json_put(o, "gpus", gpus);
  for (size_t i = 0; !status && i < brim_lab_place_count(s->placing); i++) {
    status = put_gpu(s, i, gpus);
  }
  if (!status) status = put_host(s, o);
  if (!status) status = brim_json_dump(o, 0, out);
  json_decref(o);
  return status;
}

//--------------------------------------------- view ---------------------------------------------

enum {
  ALL_ROWS_MS = 10000,  // other processes may have changed a shared store
  DETAILS = 40,         // experiments whose details a call reads
  NEXT = 10             // queued experiments that a status explains
};

static double seconds(int64_t ms) { return ms > 0 ? (double)ms / 1e3 : NAN; }

void brim_lab_row_of(const brim_store_exp *exp, brim_sweep_row *out) {
  brim_sweep_row_init(out);
  out->id = exp->id;
  out->label = exp->label;
  out->tags = exp->tags;
  out->metric_key = exp->metric_key;
  out->message = exp->reason;
  out->owed = exp->owed;
  out->state = (brim_sweep_state)exp->state;
  out->want = (brim_sweep_want)exp->want;
  out->failure = brim_failure_of(exp->failure);
  out->idx = exp->idx;
  out->priority = exp->priority;
  out->gpus = exp->gpus;
  out->attempt = exp->attempt;
  out->tries_left = exp->tries_left;
  out->step = exp->step;
  out->steps = exp->steps;
  out->epoch = exp->epoch;
  out->epochs = exp->epochs;
  out->metric = exp->metric;
  out->created_s = seconds(exp->created);
  out->started_s = seconds(exp->started);
  out->ended_s = seconds(exp->ended);
  if (exp->ran_ms > 0 || exp->since > 0) out->ran_s = (double)exp->ran_ms / 1e3;
  out->since_s = seconds(exp->since);
}

//---------------------------------- rows ----------------------------------

typedef struct best_of {
  brim_metric_better better;
  double value;
} best_of;

static brim_status on_value(void *ctx, const brim_store_metric *row, int64_t attempt) {
  best_of *best = ctx;
  bool first = isnan(best->value);
  (void)attempt;
  if (isnan(row->value)) return BRIM_OK;
  if (first ||
      (best->better == BRIM_BETTER_HIGHER ? row->value > best->value : row->value < best->value)) {
    best->value = row->value;
  }
  return BRIM_OK;
}

// Reads the best value so far, if it is known which way is better.
static brim_status read_best(brim_lab_sweep *s, brim_sweep_row *row) {
  const brim_sweep_metric *metric = brim_sweep_view_metric(&s->view, row->metric_key);
  if (!metric || metric->better == BRIM_BETTER_NEITHER || isnan(row->metric)) return BRIM_OK;
  best_of best = {.better = metric->better, .value = NAN};
  BRIM_TRY(brim_lab_read_metrics(s->source, row->id, row->metric_key, 0, on_value, &best));
  row->best = best.value;
  return BRIM_OK;
}

static void add_run(brim_lab_sweep *s, brim_sweep_row *row) {
  const brim_lab_runner *r = brim_lab_runner_find(s, row->id);
  if (!r || !(r->steps_per_s > 0)) return;
  row->steps_per_s = r->steps_per_s;
  if (row->steps > 0 && row->step >= 0) {
    row->eta_s = (double)(row->steps - row->step) / r->steps_per_s;
  }
}

typedef struct device_of {
  int64_t n;
  char text[64];
  char host[64];
} device_of;

static brim_status on_device(void *ctx, const brim_store_attempt *a) {
  device_of *d = ctx;
  if (a->n != d->n) return BRIM_OK;
  snprintf(d->text, sizeof d->text, "%s", a->devices);
  snprintf(d->host, sizeof d->host, "%s", a->host);
  return BRIM_OK;
}

// Names a device "GPU 0" if the sweep knows its UUID.
static void name_device(const brim_lab_sweep *s, device_of *d) {
  for (size_t i = 0; i < brim_lab_place_count(s->placing); i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (strcmp(gpu.uuid, d->text) == 0) snprintf(d->text, sizeof d->text, "GPU %d", gpu.index);
  }
  if (strcmp(d->host, s->host) == 0) d->host[0] = '\0';
}

// The label without the seed.
static void point_of(const char *label, char *out, size_t size) {
  size_t n = 0;
  while (*label) {
    size_t word = strcspn(label, " ");
    bool seed = brim_str_starts(label, "seed=");
    if (!seed && n + word + 2 < size) {
      if (n > 0) out[n++] = ' ';
      memcpy(out + n, label, word);
      n += word;
    }
    label += word + (label[word] == ' ');
  }
  out[n] = '\0';
}

static brim_status put_row(brim_lab_sweep *s, const brim_store_exp *exp, bool details) {
  brim_sweep_row row;
  device_of device = {.n = exp->attempt};
  char why[BRIM_LAB_PLACE_TEXT] = "", group[BRIM_LAB_ID] = "", point[256] = "";
  brim_lab_row_of(exp, &row);
  // a metric is described when the first experiment has it
  brim_sweep_metric metric;
  if (row.metric_key[0] && !brim_sweep_view_metric(&s->view, row.metric_key) &&
      s->view.metric_count < BRIM_SWEEP_METRICS && s->options.metric &&
      s->options.metric(row.metric_key, &metric)) {
    s->view.metrics[s->view.metric_count++] = metric;
  }
  if (details) {
    const brim_lab_place_want want = {
        .exp = exp->id, .gpus = exp->gpus, .need_bytes = (double)exp->need_bytes};
    BRIM_TRY(read_best(s, &row));
    if (exp->attempt > 0) BRIM_TRY(brim_lab_attempts(s->source, exp->id, on_device, &device));
    name_device(s, &device);
    row.devices = device.text;
    row.host = device.host;
    if (s->slurm) {
      brim_lab_slurm_why(s->slurm, exp->id, why, sizeof why);
    } else if (exp->state == BRIM_EXP_QUEUED) {
      brim_lab_place_why(s->placing, &want, why, sizeof why);
    }
    row.waiting = why;
    brim_lab_config_mark(exp->config, "group", group);
    point_of(exp->label, point, sizeof point);
    row.group = group;
    row.point = point;
    add_run(s, &row);
  } else {
    const brim_sweep_row *old = brim_sweep_view_find(&s->view, exp->id);
    if (old) {
      row.best = old->best;
      row.group = old->group;
      row.point = old->point;
      row.devices = old->devices;
      row.host = old->host;
      row.waiting = exp->state == BRIM_EXP_QUEUED ? old->waiting : "";
    }
    add_run(s, &row);
  }
  return brim_sweep_view_put(&s->view, &row);
}

static brim_status on_row(void *ctx, const brim_store_exp *exp) { return put_row(ctx, exp, false); }

static brim_status read_row(brim_lab_sweep *s, const char *id) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_lab_get(s->source, id, &exp));
  brim_status status = put_row(s, exp, true);
  brim_store_exp_free(exp);
  return status;
}

// Reads the details of some experiments that ended before this sweep with each call.
static brim_status read_details(brim_lab_sweep *s) {
  char ids[DETAILS][BRIM_EXP_ID];
  size_t n = 0;
  for (; s->detail_at < s->view.row_count && n < DETAILS; s->detail_at++) {
    const brim_sweep_row *row = &s->view.rows[s->detail_at];
    if (row->attempt > 0) snprintf(ids[n++], sizeof ids[0], "%s", row->id);
  }
  for (size_t i = 0; i < n; i++) BRIM_TRY(read_row(s, ids[i]));
  return BRIM_OK;
}

// Reads everything once, and then the details of what has changed.
static brim_status read_rows(brim_lab_sweep *s) {
  int64_t now = brim_clock_ms();
  if (s->all_dirty || now - s->rows_ms > ALL_ROWS_MS) {
    BRIM_TRY(brim_lab_list(s->source, NULL, on_row, s));
    s->rows_ms = now;
    s->all_dirty = false;
  }
  for (size_t i = 0; i < s->count; i++) brim_lab_dirty(s, s->runners[i]->ref.exp);
  while (s->dirty_count > 0) {
    brim_status status = read_row(s, s->dirty[s->dirty_count - 1]);
    if (status && status != BRIM_ENOENT) return status;
    s->dirty_count--;
  }
  return read_details(s);
}

typedef struct next_ids {
  char ids[NEXT][BRIM_EXP_ID];
  size_t count;
} next_ids;

static brim_status on_next(void *ctx, const brim_store_exp *exp) {
  next_ids *next = ctx;
  if (next->count < NEXT) snprintf(next->ids[next->count++], BRIM_EXP_ID, "%s", exp->id);
  return BRIM_OK;
}

static brim_status push_row(brim_lab_sweep *s, const char *id, json_t *list) {
  json_t *item = NULL;
  BRIM_TRY(read_row(s, id));
  const brim_sweep_row *row = brim_sweep_view_find(&s->view, id);
  if (!row) return BRIM_OK;
  BRIM_TRY(brim_sweep_row_to_json(row, &item));
  return brim_json_push(list, item);
}

brim_status brim_lab_sweep_active(brim_lab_sweep *s, json_t *list) {
  const brim_store_filter queue = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = NEXT};
  next_ids next = {.count = 0};
  BRIM_TRY(brim_lab_list(s->source, &queue, on_next, &next));
  for (size_t i = 0; i < s->count; i++) BRIM_TRY(push_row(s, s->runners[i]->ref.exp, list));
  for (size_t i = 0; i < next.count; i++) BRIM_TRY(push_row(s, next.ids[i], list));
  return BRIM_OK;
}

//---------------------------------- places ----------------------------------

// Shows the cluster as one place: tasks that run, of those in its queue.
static void fill_slurm(brim_lab_sweep *s) {
  brim_sweep_gpu *place = &s->view.gpus[s->view.gpu_count++];
  int64_t running = 0, waiting = 0;
  brim_lab_slurm_count(s->slurm, &running, &waiting);
  brim_sweep_gpu_init(place);
  snprintf(place->name, sizeof place->name, "slurm");
  place->state = running > 0 ? BRIM_SWEEP_GPU_BUSY : BRIM_SWEEP_GPU_FREE;
  place->running = (int)running;
  place->slots = (int)(running + waiting);
}

static void fill_places(brim_lab_sweep *s) {
  brim_sweep_view *v = &s->view;
  int slots = 0, taken = 0;
  v->gpu_count = 0;
  if (s->slurm) {
    fill_slurm(s);
    return;
  }
  for (size_t i = 0; i < brim_lab_place_count(s->placing) && v->gpu_count < BRIM_SWEEP_GPUS - 1;
       i++) {
    brim_lab_place_gpu from;
    brim_sweep_gpu *to = &v->gpus[v->gpu_count++];
    brim_lab_place_get(s->placing, i, &from);
    brim_sweep_gpu_init(to);
    snprintf(to->name, sizeof to->name, "GPU %d", from.index);
    snprintf(to->model, sizeof to->model, "%s", from.name);
    snprintf(to->id, sizeof to->id, "%s", from.uuid);
    snprintf(to->why, sizeof to->why, "%s", from.reason);
    to->state = gpu_state(from.state);
    to->running = from.jobs;
    to->slots = from.limit;
    to->memory_total = from.total_bytes;
    to->memory_used = from.total_bytes - from.free_bytes;
    brim_lab_gpus_fill(s, to);
  }
  brim_lab_place_cpu(s->placing, &slots, &taken);
  if (slots == 0) return;
  brim_sweep_gpu *cpu = &v->gpus[v->gpu_count++];
  brim_sweep_gpu_init(cpu);
  snprintf(cpu->name, sizeof cpu->name, "cpu");
  cpu->state = taken > 0 ? BRIM_SWEEP_GPU_BUSY : BRIM_SWEEP_GPU_FREE;
  cpu->running = taken;
  cpu->slots = slots;
  brim_lab_gpus_fill(s, cpu);
}

//---------------------------------- rates ----------------------------------

// Estimates the time left from the experiments that have ended; unknown before the first.
static void fill_rates(brim_lab_sweep *s) {
  brim_sweep_view *v = &s->view;
  const int64_t *n = s->counts.states;
  double elapsed = v->now_s - s->first_s, left = 0;
  v->done_per_h = s->ended > 0 && elapsed > 0 ? (double)s->ended * 3600.0 / elapsed : NAN;
  v->steps_per_s = 0;
  v->eta_s = NAN;
  for (size_t i = 0; i < s->count; i++) v->steps_per_s += s->runners[i]->steps_per_s;
  if (s->ended == 0 || s->count == 0) return;
  double each = s->ended_s / (double)s->ended;
  left = each * (double)n[BRIM_EXP_QUEUED];
  for (size_t i = 0; i < s->count; i++) {
    const brim_lab_runner *r = s->runners[i];
    bool known = r->steps > 0 && r->step >= 0 && r->steps_per_s > 0;
    left += known ? (double)(r->steps - r->step) / r->steps_per_s : each / 2;
  }
  v->eta_s = left / (double)s->count;
}

brim_status brim_lab_sweep_view(brim_lab_sweep *s, bool rows, const brim_sweep_view **out) {
  brim_sweep_view *v = &s->view;
  snprintf(v->title, sizeof v->title, "%s", s->title);
  snprintf(v->store, sizeof v->store, "%s", s->store ? brim_store_place(s->store) : s->place);
  v->pid = (int64_t)getpid();
  v->now_s = brim_clock_wall_s();
  v->stopping = s->stopping;
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) v->counts[i] = s->counts.states[i];
  s->looked_ms = brim_clock_ms();
  fill_places(s);
  fill_rates(s);
  *out = v;
  if (!rows || brim_clock_ms() < s->trouble_ms) return BRIM_OK;
  return brim_lab_tolerate(s, read_rows(s));
}

bool brim_lab_sweep_view_lags(const brim_lab_sweep *s) {
  return s->trouble_ms == 0 && s->detail_at < s->view.row_count;
}
