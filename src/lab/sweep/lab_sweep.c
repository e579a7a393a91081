// The loop of a sweep (lab_sweep.h): opening, starting and reaping executors, turns and stopping; and
// the view of the sweep for terminals and servers.

#include "lab/sweep/lab_sweep.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "lab/exec/lab_exec.h"
#include "lab/grid/lab_grid.h"
#include "lab/sweep/lab_sweep_int.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_lab.h"

//------------------------------------- messages and changes -------------------------------------
// Keeps the list of executors, the messages, the changes for the view, and the pauses while the store
// cannot be reached.

enum {
  TROUBLE_MS = 500,      // pause before the next try while the store is out of reach; doubles
  TROUBLE_MOST = 30000,  // longest pause
  TELL_MS = 60000        // between messages about the store
};

void brim_lab_worker_name(const char *id, const char *host, const char *path,
                          char out[BRIM_LAB_WORKER_NAME]) {
  char hex[BRIM_SHA256_HEX];
  if (!host[0]) host = "host";
  brim_sha256_hex(path, strlen(path), hex);
  if (id[0]) {
    snprintf(out, BRIM_LAB_WORKER_NAME, "%.32s.%.17s-%.12s", id, host, hex);
  } else {
    snprintf(out, BRIM_LAB_WORKER_NAME, "%.40s-%.12s", host, hex);
  }
}

static brim_lab_runner *runner_find(brim_lab_sweep *s, const char *exp) {
  for (size_t i = 0; i < s->count; i++) {
    if (strcmp(s->runners[i]->ref.exp, exp) == 0) return s->runners[i];
  }
  return NULL;
}

// Frees a runner and leaves its process running.
static void runner_free(brim_lab_runner *r) {
  if (!r) return;
  if (r->child) brim_child_detach(r->child);
  brim_free(r->folder);
  brim_free(r->devices);
  brim_free(r);
}

// Adds a runner of the attempt to the sweep's list.
static brim_status runner_add(brim_lab_sweep *s, const brim_store_ref *ref, brim_lab_runner **out) {
  brim_str folder;
  if (s->count == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 16;
    brim_lab_runner **more = brim_realloc(s->runners, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
    s->runners = more;
    s->cap = cap;
  }
  brim_lab_runner *r = brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(s->folder, ref->exp, &folder);
  r->folder = status ? NULL : brim_str_take(&folder);
  brim_str_deinit(&folder);
  if (!r->folder) {
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  }
  r->ref = *ref;
  r->step = r->steps = -1;
  s->runners[s->count++] = r;
  *out = r;
  return BRIM_OK;
}

static void runner_drop(brim_lab_sweep *s, brim_lab_runner *r) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->runners[i] != r) continue;
    memmove(&s->runners[i], &s->runners[i + 1], (s->count - i - 1) * sizeof *s->runners);
    s->count--;
    break;
  }
  brim_child_close(r->child);
  r->child = NULL;
  runner_free(r);
}

// Finishes an attempt as a failure of the machine. Does nothing if another attempt has taken over.
static brim_status finish_infra(brim_lab_sweep *s, const brim_store_ref *ref, const char *message,
                                const char *tail) {
  const brim_store_result result = {.outcome = BRIM_ATTEMPT_ERROR,
                                    .failure = BRIM_FAILURE_INFRASTRUCTURE,
                                    .exit_code = -1,
                                    .message = message,
                                    .last_lines = tail};
  brim_status status = brim_lab_finish(s->source, ref, &result, NULL);
  if (status != BRIM_ESTATE && status != BRIM_ENOENT) return status;
  brim_status_clear();  // another attempt has taken over
  return BRIM_OK;
}

void brim_lab_shorten(const char *text, char *out, size_t size) {
  static const char more[] = " ...";
  snprintf(out, size, "%s", text);
  if (strlen(text) < size) return;
  size_t end = size - sizeof more;
  while (end > size / 2 && out[end] != ' ') end--;
  if (out[end] != ' ') end = size - sizeof more;  // no word ends there: cut inside a word
  out[end] = '\0';
  brim_utf8_trim(out);
  memcpy(out + strlen(out), more, sizeof more);
}

void brim_lab_say(brim_lab_sweep *s, brim_sweep_level level, const char *exp, const char *fmt,
                  ...) {
  char text[sizeof s->view.messages[0].text];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  brim_utf8_trim(text);
  brim_sweep_view_say(&s->view, level, brim_clock_wall_s(), exp, text);
}

void brim_lab_sweep_say(brim_lab_sweep *s, brim_sweep_level level, const char *exp,
                        const char *text) {
  brim_lab_say(s, level, exp, "%s", text);
}

void brim_lab_dirty(brim_lab_sweep *s, const char *exp) {
  if (s->all_dirty) return;
  for (size_t i = 0; i < s->dirty_count; i++) {
    if (strcmp(s->dirty[i], exp) == 0) return;
  }
  if (!exp[0] || s->dirty_count == BRIM_LAB_DIRTY) {
    s->all_dirty = true;
    return;
  }
  snprintf(s->dirty[s->dirty_count++], sizeof s->dirty[0], "%s", exp);
}

// Turns BRIM_EIO into a message and a pause; returns other failures.
static brim_status tolerate(brim_lab_sweep *s, brim_status status) {
  if (status != BRIM_EIO) return status;
  int64_t now = brim_clock_ms();
  if (s->trouble_ms == 0 || now - s->told_ms > TELL_MS) {
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                 brim_tr("cannot use the store; brim tries again: %.300s"), brim_status_detail());
    s->told_ms = now;
  }
  s->trouble_wait = s->trouble_wait == 0 ? TROUBLE_MS : 2 * s->trouble_wait;
  if (s->trouble_wait > TROUBLE_MOST) s->trouble_wait = TROUBLE_MOST;
  s->trouble_ms = now + s->trouble_wait;
  s->counted = false;
  brim_status_clear();
  return BRIM_OK;
}

//-------------------------------------------- view ----------------------------------------------
// The sweep as terminals and servers see it: readings of its GPUs, the status of a worker, and the
// view, made from the store and the places. A row is read again only when its experiment has changed,
// so that 10,000 rows cost nothing while little happens.

//--------------------------------------------- GPUs ---------------------------------------------
// The use, power and temperature of the GPUs, and the steps of the experiments on each. A reading
// covers the time between two marks of a sampler, whose own thread sleeps: one second while a user
// looks at a view, five if a server shows the readings, otherwise ten.

enum {
  LOOKED_AT_MS = 1000,
  UNSEEN_MS = 10000,
  SERVES_MS = 5000,        // for a worker, whose server shows the readings
  LOOKED_AT_FOR_MS = 5000  // time after a view was made in which it counts as looked at
};
static const double sampler_period_s = 86400;  // long: readings are made at marks only

// Starts a sampler. If that fails, the GPU's readings stay unknown.
static void start_reader(brim_lab_sweep *s, const char *uuid) {
  brim_lab_gpu_reader *r = &s->readers[s->reader_count++];
  memset(r, 0, sizeof *r);
  snprintf(r->uuid, sizeof r->uuid, "%s", uuid);
  r->power_w = r->power_limit_w = r->gpu_percent = r->temperature_c = (double)NAN;
  if (!s->options.monitor ||
      brim_gpu_sampler_start(s->options.monitor, uuid, sampler_period_s, &r->sampler)) {
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
  const bool looked_at = s->looked_ms > 0 && now_ms - s->looked_ms < LOOKED_AT_FOR_MS;
  const int64_t every = looked_at ? LOOKED_AT_MS : s->options.serves ? SERVES_MS : UNSEEN_MS;
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

// True if a list of devices in the form of a slot ("GPU-1,GPU-2", "cpu") contains this device.
static bool has_device(const char *list, const char *device) {
  const size_t n = strlen(device);
  for (const char *at = list; *at; at += *at == ',') {
    const size_t size = strcspn(at, ",");
    if (size == n && strncmp(at, device, n) == 0) return true;
    at += size;
  }
  return false;
}

// Sums the steps per second of the experiments on a device; unknown until one of them has made steps.
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

// Use of the processor since the last call, in percent; unknown at the first call.
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

// Makes the status of a worker's machine for its server: a JSON object with each GPU, the processor and
// memory. Free with brim_free.
static brim_status sweep_status(brim_lab_sweep *s, char **out) {
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
  ALL_ROWS_MS = 10000,  // read all rows again, since other processes may change a shared store
  DETAILS = 40,         // experiments whose details one call reads
  NEXT_QUEUED = 10      // queued experiments that a status request gets
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

// Reads the best value so far, if the metric says which direction is better.
static brim_status read_best(brim_lab_sweep *s, brim_sweep_row *row) {
  const brim_sweep_metric *metric = brim_sweep_view_metric(&s->view, row->metric_key);
  if (!metric || metric->better == BRIM_BETTER_NEITHER || isnan(row->metric)) return BRIM_OK;
  best_of best = {.better = metric->better, .value = NAN};
  BRIM_TRY(brim_lab_read_metrics(s->source, row->id, row->metric_key, 0, on_value, &best));
  row->best = best.value;
  return BRIM_OK;
}

static void add_run(brim_lab_sweep *s, brim_sweep_row *row) {
  const brim_lab_runner *r = runner_find(s, row->id);
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

// Replaces the UUID of a device by "GPU 0" if the sweep knows it, and drops this machine's own name.
static void name_device(const brim_lab_sweep *s, device_of *d) {
  for (size_t i = 0; i < brim_lab_place_count(s->placing); i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (strcmp(gpu.uuid, d->text) == 0) snprintf(d->text, sizeof d->text, "GPU %d", gpu.index);
  }
  if (strcmp(d->host, s->host) == 0) d->host[0] = '\0';
}

// Copies the label without the seed.
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
  // Describe a metric when the first experiment with it is shown.
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

// Reads the details of the next DETAILS rows; repeated calls reach all rows.
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

// Reads all rows now and then, the changed ones at each call, and some details.
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
  char ids[NEXT_QUEUED][BRIM_EXP_ID];
  size_t count;
} next_ids;

static brim_status on_next(void *ctx, const brim_store_exp *exp) {
  next_ids *next = ctx;
  if (next->count < NEXT_QUEUED) snprintf(next->ids[next->count++], BRIM_EXP_ID, "%s", exp->id);
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

// Lists the running experiments and the next ones in the queue, with details that only the sweep knows:
// devices, time left, reason to wait.
static brim_status sweep_active(brim_lab_sweep *s, json_t *list) {
  const brim_store_filter queue = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = NEXT_QUEUED};
  next_ids next = {.count = 0};
  BRIM_TRY(brim_lab_list(s->source, &queue, on_next, &next));
  for (size_t i = 0; i < s->count; i++) BRIM_TRY(push_row(s, s->runners[i]->ref.exp, list));
  for (size_t i = 0; i < next.count; i++) BRIM_TRY(push_row(s, next.ids[i], list));
  return BRIM_OK;
}

//---------------------------------- places ----------------------------------

// Shows the cluster as one place with a slot for each unfinished task. The running tasks take slots.
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

// Estimates the time left from the experiments that have ended; unknown before the first end.
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
  return tolerate(s, read_rows(s));
}

bool brim_lab_sweep_view_lags(const brim_lab_sweep *s) {
  return s->trouble_ms == 0 && s->detail_at < s->view.row_count;
}

//---------------------------------------- first failures ----------------------------------------
// Ends a sweep whose first experiments all fail the same way, since the others would fail too.

// Removes the parts of a message that differ between experiments: the experiment's folder, and numbers.
static void normalise(const char *message, const char *folder, char *out, size_t size) {
  size_t n = 0, skip = strlen(folder);
  while (*message && n + 1 < size) {
    if (skip > 0 && strncmp(message, folder, skip) == 0) {
      message += skip;
      out[n++] = '*';
    } else if (isdigit((unsigned char)*message)) {
      while (isdigit((unsigned char)*message)) message++;
      out[n++] = '0';
    } else {
      out[n++] = *message++;
    }
  }
  out[n] = '\0';
}

void brim_lab_same_done(brim_lab_same *same) { same->off = true; }

bool brim_lab_same_add(brim_lab_same *same, const char *exp, const char *folder,
                       brim_failure failure, const char *message) {
  char text[sizeof same->message];
  if (same->off || brim_failure_retry_of(failure) == BRIM_RETRY_FREE) return false;
  for (size_t i = 0; i < same->count; i++) {
    if (strcmp(same->exps[i], exp) == 0) return false;
  }
  normalise(message, folder, text, sizeof text);
  if (same->count > 0 && (failure != same->failure || strcmp(text, same->message) != 0)) {
    same->off = true;
    return false;
  }
  same->failure = failure;
  snprintf(same->message, sizeof same->message, "%s", text);
  snprintf(same->exps[same->count++], sizeof same->exps[0], "%s", exp);
  if (same->count < BRIM_LAB_SAME) return false;
  same->off = true;
  return true;
}

//-------------------------------------- starting executors --------------------------------------

enum {
  WORDS = 48,
  ALL_GPUS = 1 << 20,
  BEAT_MS = 2000,  // longest time between beats, which carry the progress that views show
  SERVER_AWAY_MS = 7 * 24 * 3600 * 1000
};

static brim_status on_line(void *ctx, const brim_child_line *line) {
  brim_lab_runner *r = ctx;
  size_t used = strlen(r->tail), size = line->size < 400 ? line->size : 400;
  if (used + size + 2 > sizeof r->tail) {
    size_t keep = used / 2;
    memmove(r->tail, r->tail + used - keep, keep + 1);
    used = keep;
  }
  if (used + size + 2 > sizeof r->tail) used = 0;
  snprintf(r->tail + used, sizeof r->tail - used, "%s%.*s", used ? "\n" : "", (int)size,
           line->text);
  return BRIM_OK;
}

typedef struct word_list {
  const char *words[WORDS];
  char text[WORDS][1200];
  size_t count;
} word_list;

static void add_word(word_list *w, const char *key, const char *value) {
  snprintf(w->text[w->count], sizeof w->text[0], "%s=%s", key, value);
  w->words[w->count] = w->text[w->count];
  w->count++;
}

static void add_number(word_list *w, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  add_word(w, key, text);
}

static brim_status start_executor(brim_lab_sweep *s, brim_lab_runner *r, const char *config,
                                  const brim_lab_place_slot *slot) {
  word_list *w = brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  char threads[32], workload[64];
  brim_lab_config_value(config, "threads", threads, sizeof threads);
  brim_lab_config_value(config, "workload", workload, sizeof workload);

  w->words[w->count++] = s->program;
  w->words[w->count++] = "--quiet";
  w->words[w->count++] = "sweep";
  w->words[w->count++] = "execute";
  char *shown = brim_store_place_shown(s->place);
  add_word(w, "place", shown ? shown : "");
  brim_free(shown);
  add_word(w, "folder", r->folder);
  add_word(w, "exp", r->ref.exp);
  add_number(w, "attempt", r->ref.attempt);
  add_number(w, "fence", r->ref.fence);
  add_word(w, "device", slot->cpu ? "cpu" : "cuda");
  add_word(w, "gpus", slot->cpu ? "" : slot->devices);
  if (slot->threads > 0 && strtoll(threads, NULL, 10) <= 0) add_number(w, "threads", slot->threads);
  // A server may be away for long: the training continues meanwhile, and the spool keeps its results.
  const bool patient = brim_lab_is_server(s->place);
  add_number(w, "linger_ms", patient ? (int64_t)SERVER_AWAY_MS : s->options.store.lease_ms);
  int64_t beat = s->options.store.lease_ms / 4;
  add_number(w, "beat_ms", beat < BEAT_MS ? beat : BEAT_MS);
  add_number(w, "grace_ms", s->options.grace_ms);
  for (const char *const *extra = s->options.words; extra && *extra && w->count < WORDS - 2;) {
    w->words[w->count++] = *extra++;
  }
  if (s->options.stall_ms) add_number(w, "stall_ms", s->options.stall_ms);

  // The environment has the variables of the slot, and the URL that must not show in a list of
  // processes.
  brim_str pipe, percent, place;
  const char *env[4];
  size_t n = 0;
  brim_str_init(&pipe);
  brim_str_init(&percent);
  brim_str_init(&place);
  if (slot->mps_pipe[0]) {
    brim_str_printf(&pipe, "CUDA_MPS_PIPE_DIRECTORY=%s", slot->mps_pipe);
    env[n++] = pipe.data;
  }
  if (slot->mps_pipe[0] && slot->mps_percent > 0 && s->options.any_part &&
      s->options.any_part(workload)) {
    brim_str_printf(&percent, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", slot->mps_percent);
    env[n++] = percent.data;
  }
  if (brim_store_is_url(s->place)) {
    brim_str_printf(&place, BRIM_LAB_PLACE_ENV "=%s", s->place);
    env[n++] = place.data;
  }
  env[n] = NULL;
  const brim_child_options how = {.argv = w->words,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_PIPE,
                                  .pass_fds = slot->fds,
                                  .pass_count = slot->fd_count,
                                  .on_line = on_line,
                                  .ctx = r};
  brim_status status = brim_str_status(&pipe);
  if (!status) status = brim_str_status(&percent);
  if (!status) status = brim_str_status(&place);
  if (!status) status = brim_child_start(&how, &r->child);
  brim_str_deinit(&place);
  brim_str_deinit(&percent);
  brim_str_deinit(&pipe);
  brim_free(w);
  if (!status) r->pid = brim_child_pid(r->child);
  return status;
}

// Starts the executor of a claimed attempt. If that fails, finishes the attempt as a failure of the
// machine.
static brim_status run_attempt(brim_lab_sweep *s, const brim_store_claimed *claimed,
                               const brim_lab_place_slot *slot) {
  brim_lab_runner *r = NULL;
  brim_lab_exec_owner owner;
  BRIM_TRY(runner_add(s, &claimed->ref, &r));
  brim_status status = brim_fs_mkdirs(r->folder);
  if (!status && brim_lab_exec_find(r->folder, &owner)) status = brim_lab_exec_kill(r->folder);
  if (!status) status = start_executor(s, r, claimed->exp->config, slot);
  if (!status) {
    r->devices = brim_strdup(slot->devices);  // NULL: a view lacks the steps of this GPU
    brim_lab_say(s, BRIM_SWEEP_INFO, r->ref.exp, brim_tr("%.200s starts on %.80s"),
                 claimed->exp->label[0] ? claimed->exp->label : r->ref.exp,
                 slot->cpu ? "cpu" : slot->devices);
    return brim_lab_place_started(s->placing, r->ref.exp, r->pid);
  }
  char message[600];
  snprintf(message, sizeof message, brim_tr("cannot start the experiment: %.500s"),
           brim_status_detail());
  brim_lab_say(s, BRIM_SWEEP_WARN, r->ref.exp, "%s", message);
  status = finish_infra(s, &r->ref, message, "");
  runner_drop(s, r);
  brim_lab_place_ended(s->placing, brim_clock_ms(), claimed->ref.exp, BRIM_LAB_PLACE_UNUSED,
                       BRIM_FAILURE_NONE);
  return status;
}

// Gives back a claim that got no reply, which the store may have carried out. The same claim again gets
// the same attempt, which is then stopped: its place may be taken by now, and other workers may want
// the experiment.
static brim_status return_claim(brim_lab_sweep *s) {
  if (!s->claim[0]) return BRIM_OK;
  const brim_store_request request = {.worker = s->worker,
                                      .claim_id = s->claim,
                                      .host = s->host,
                                      .exp = s->claim_exp,
                                      .free_gpus = ALL_GPUS,
                                      .free_bytes = -1};
  const brim_store_result back = {.outcome = BRIM_ATTEMPT_STOPPED};
  brim_store_claimed claimed = {0};
  brim_status status = brim_lab_claim(s->source, &request, &claimed);
  if (!status && claimed.exp) status = brim_lab_finish(s->source, &claimed.ref, &back, NULL);
  brim_store_exp_free(claimed.exp);
  if (status == BRIM_EIO || status == BRIM_ENOMEM) return status;
  brim_status_clear();  // another attempt has taken over, or nothing was claimed
  s->claim[0] = '\0';
  return BRIM_OK;
}

static brim_status claim_and_run(brim_lab_sweep *s, const char *exp,
                                 const brim_lab_place_slot *slot) {
  brim_store_random_id(s->claim);
  snprintf(s->claim_exp, sizeof s->claim_exp, "%s", exp);
  const brim_store_request request = {.worker = s->worker,
                                      .claim_id = s->claim,
                                      .host = s->host,
                                      .devices = slot->devices,
                                      .exp = exp,
                                      .free_gpus = ALL_GPUS,
                                      .free_bytes = -1};
  brim_store_claimed claimed = {0};
  brim_status status = brim_lab_claim(s->source, &request, &claimed);
  if (status != BRIM_EIO) s->claim[0] = '\0';
  if (status || !claimed.exp) {
    brim_lab_place_ended(s->placing, brim_clock_ms(), exp, BRIM_LAB_PLACE_UNUSED,
                         BRIM_FAILURE_NONE);
    return status;
  }
  if (!s->store) s->lease_ms = claimed.lease_ms;
  brim_lab_dirty(s, exp);
  status = run_attempt(s, &claimed, slot);
  brim_store_exp_free(claimed.exp);
  return status;
}

//---------------------------------- the queue ----------------------------------

typedef struct queue {
  brim_lab_place_want wants[BRIM_LAB_WINDOW];
  char ids[BRIM_LAB_WINDOW][BRIM_EXP_ID];
  brim_lab_sweep *sweep;
  size_t count, listed;
  bool some_delayed;  // some experiments wait for their time or their last executor
  int64_t now;
} queue;

// Hashes the cost of an experiment. Experiments of one cost take the same time for a step, such as
// those that differ in their seed or learning rate. Without a cost, the label is hashed.
static uint64_t kind_of(const brim_store_exp *exp) {
  char cost[BRIM_LAB_ID] = "";
  uint64_t hash = 14695981039346656037u;
  if (exp->config[0]) brim_lab_config_mark(exp->config, "cost", cost);
  for (const char *at = cost[0] ? cost : exp->label; *at; at++) {
    hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  }
  return hash ? hash : 1;
}

static brim_status on_queued(void *ctx, const brim_store_exp *exp) {
  queue *q = ctx;
  q->listed++;
  // Skip an experiment that must wait, or whose last executor has reported but not ended.
  if (exp->not_before > q->now || runner_find(q->sweep, exp->id)) {
    q->some_delayed = true;
    return BRIM_OK;
  }
  snprintf(q->ids[q->count], sizeof q->ids[0], "%s", exp->id);
  q->wants[q->count] = (brim_lab_place_want){.exp = q->ids[q->count],
                                             .gpus = exp->gpus,
                                             .need_bytes = (double)exp->need_bytes,
                                             .kind = kind_of(exp)};
  q->count++;
  return BRIM_OK;
}

// Goes through windows of the queue until one leaves an experiment that could run here later.
static brim_status place_windows(brim_lab_sweep *s, queue *q, bool *left) {
  brim_store_filter filter = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = BRIM_LAB_WINDOW};
  // Packing compares costs, which are in the config.
  filter.texts = s->options.per_gpu > 1 || s->options.per_gpu == BRIM_LAB_PLACE_AUTO;
  *left = false;
  for (;;) {
    const size_t before = s->count;
    q->count = q->listed = 0;
    q->some_delayed = false;
    BRIM_TRY(brim_lab_list(s->source, &filter, on_queued, q));
    if (q->listed == 0) return BRIM_OK;
    for (;;) {
      size_t chosen = 0;
      brim_lab_place_slot slot;
      BRIM_TRY(
          brim_lab_place_choose(s->placing, brim_clock_ms(), q->wants, q->count, &chosen, &slot));
      if (chosen >= q->count) break;
      BRIM_TRY(claim_and_run(s, q->wants[chosen].exp, &slot));
      memmove(&q->wants[chosen], &q->wants[chosen + 1],
              (q->count - chosen - 1) * sizeof q->wants[0]);
      q->count--;
    }
    *left = *left || q->some_delayed || s->count > before;
    for (size_t i = 0; i < q->count; i++) {
      if (brim_lab_place_never(s->placing, &q->wants[i], NULL, 0)) continue;
      *left = true;
      return BRIM_OK;
    }
    filter.offset += (int64_t)q->listed - (int64_t)(s->count - before);
  }
}

// Starts the experiments that fit. *left: queued experiments may start later.
static brim_status start_queued(brim_lab_sweep *s, bool *left) {
  queue *q = brim_calloc(1, sizeof *q);
  if (!q) return brim_fail(BRIM_ENOMEM, "out of memory while placing experiments");
  q->sweep = s;
  brim_status status = return_claim(s);
  if (!status) status = brim_lab_now(s->source, &q->now);
  if (!status) status = place_windows(s, q, left);
  if (status == BRIM_EIO) *left = true;
  brim_free(q);
  return status;
}

//--------------------------------------- the end of executors ---------------------------------------

enum {
  KILL_AFTER_MS = 15000,  // time for an executor to end after the training's own time to stop
  ADOPTED_MS = 500        // between two looks for an executor of an earlier sweep
};

static void ask_to_stop(brim_lab_runner *r) {
  brim_lab_exec_owner owner;
  if (r->asked) return;
  r->asked = true;
  r->asked_ms = brim_clock_ms();
  if (r->child) {
    (void)brim_child_signal(r->child, SIGTERM);
  } else if (brim_lab_exec_find(r->folder, &owner) && owner.attempt == r->ref.attempt) {
    (void)kill((pid_t)owner.pid, SIGTERM);
  }
  brim_status_clear();
}

void brim_lab_sweep_stop(brim_lab_sweep *s) {
  if (s->stopping) return;
  s->stopping = true;
  if (s->end == BRIM_LAB_END_NONE) s->end = BRIM_LAB_END_STOPPED;
  for (size_t i = 0; i < s->count; i++) ask_to_stop(s->runners[i]);
}

// Checks whether the executor's process has ended, and kills a process that does not stop.
static brim_status poll_runner(brim_lab_sweep *s, brim_lab_runner *r, int64_t now) {
  brim_lab_exec_owner owner;
  if (r->gone) return BRIM_OK;
  if (r->asked && now - r->asked_ms > s->options.grace_ms + KILL_AFTER_MS && !r->killed) {
    r->killed = true;
    if (brim_lab_exec_kill(r->folder)) brim_status_clear();
    if (r->child) (void)brim_child_signal(r->child, SIGKILL);
  }
  if (r->child) {
    brim_status status = brim_child_poll(r->child, &r->gone);
    if (status == BRIM_ECHILD) r->gone = true;
    if (status && status != BRIM_ENOMEM) brim_status_clear();
    return status == BRIM_ENOMEM ? status : BRIM_OK;
  }
  if (now < r->next_look_ms) return BRIM_OK;
  r->next_look_ms = now + ADOPTED_MS;
  r->gone = !(brim_lab_exec_find(r->folder, &owner) && owner.attempt == r->ref.attempt);
  return BRIM_OK;
}

static bool is_open(const brim_store_exp *exp, const brim_store_ref *ref) {
  return exp->fence == ref->fence && exp->attempt == ref->attempt &&
         (exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING);
}

typedef struct last_attempt {
  int64_t n;
  brim_attempt_outcome outcome;
  brim_failure failure;
  char message[512];
} last_attempt;

static brim_status on_attempt(void *ctx, const brim_store_attempt *a) {
  last_attempt *last = ctx;
  if (a->n != last->n) return BRIM_OK;
  last->outcome = a->outcome;
  last->failure = brim_failure_of(a->failure);
  snprintf(last->message, sizeof last->message, "%s", a->message);
  brim_utf8_trim(last->message);
  return BRIM_OK;
}

static void say_end(brim_lab_sweep *s, const brim_store_exp *exp, const last_attempt *last) {
  const char *label = exp->label[0] ? exp->label : exp->id;
  char why[220];
  brim_lab_shorten(last->message, why, sizeof why);
  if (last->outcome == BRIM_ATTEMPT_OK) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is done"), label);
  } else if (exp->state == BRIM_EXP_FAILED) {
    brim_lab_say(s, BRIM_SWEEP_ERROR, exp->id, brim_tr("%.120s failed (%s): %s"), label,
                 brim_failure_name(last->failure), why);
  } else if (exp->state == BRIM_EXP_CANCELLED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is cancelled"), label);
  } else if (exp->state == BRIM_EXP_PAUSED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is paused"), label);
  } else if (last->outcome == BRIM_ATTEMPT_ERROR) {
    brim_lab_say(s, BRIM_SWEEP_WARN, exp->id, brim_tr("%.120s failed (%s) and runs again: %s"),
                 label, brim_failure_name(last->failure), why);
  } else {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s stopped and is queued again"), label);
  }
}

brim_status brim_lab_take_note(brim_lab_sweep *s, int64_t attempt, const char *folder,
                               const brim_store_exp *exp) {
  last_attempt last = {.n = attempt, .outcome = BRIM_ATTEMPT_EXPIRED};
  BRIM_TRY(brim_lab_attempts(s->source, exp->id, on_attempt, &last));
  brim_lab_place_end end = last.outcome == BRIM_ATTEMPT_OK      ? BRIM_LAB_PLACE_OK
                           : last.outcome == BRIM_ATTEMPT_ERROR ? BRIM_LAB_PLACE_FAILED
                                                                : BRIM_LAB_PLACE_STOPPED;
  brim_lab_place_ended(s->placing, brim_clock_ms(), exp->id, end, last.failure);
  if (exp->attempt == attempt) say_end(s, exp, &last);
  if (exp->state == BRIM_EXP_DONE && exp->ran_ms > 0) {
    s->ended++;
    s->ended_s += (double)exp->ran_ms / 1e3;
  }
  if (last.outcome == BRIM_ATTEMPT_OK) brim_lab_same_done(&s->same);
  if (last.outcome != BRIM_ATTEMPT_ERROR || s->options.keep_going || s->stopping ||
      !brim_lab_same_add(&s->same, exp->id, folder, last.failure, last.message)) {
    return BRIM_OK;
  }
  char why[300];
  brim_lab_shorten(last.message, why, sizeof why);
  s->end = BRIM_LAB_END_SAME_FAILURE;
  snprintf(s->view.notice, sizeof s->view.notice,
           brim_tr("the first %d experiments all failed the same way (%s): %s"), BRIM_LAB_SAME,
           brim_failure_name(last.failure), why);
  brim_lab_say(s, BRIM_SWEEP_ERROR, NULL, "%s", s->view.notice);
  brim_lab_sweep_stop(s);
  return BRIM_OK;
}

// Makes sure that the attempt of an ended executor has a result. The next turn calls it again after
// BRIM_EIO.
static brim_status complete_attempt(brim_lab_sweep *s, brim_lab_runner *r) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_lab_get(s->source, r->ref.exp, &exp));
  brim_status status = BRIM_OK;
  if (is_open(exp, &r->ref)) {
    char message[128];
    brim_lab_replayed replayed = {0};
    status = brim_lab_exec_kill(r->folder);  // kills its training, if that still runs
    if (!status) status = brim_lab_spool_replay_folder(r->folder, s->link, &replayed);
    brim_store_exp_free(exp);
    exp = NULL;
    if (!status) status = brim_lab_get(s->source, r->ref.exp, &exp);
    if (!status && is_open(exp, &r->ref)) {
      const brim_child_result *result = r->child ? brim_child_get_result(r->child) : NULL;
      if (!result || result->lost) {
        snprintf(message, sizeof message, "%s", brim_tr("the executor ended without a result"));
      } else if (result->signal) {
        snprintf(message, sizeof message, brim_tr("the executor was ended by signal %d"),
                 result->signal);
      } else {
        snprintf(message, sizeof message,
                 brim_tr("the executor ended without a result, exit code %d"), result->exit_code);
      }
      status = finish_infra(s, &r->ref, message, r->tail);
      brim_store_exp_free(exp);
      exp = NULL;
      if (!status) status = brim_lab_get(s->source, r->ref.exp, &exp);
    }
  }
  if (!status) status = brim_lab_take_note(s, r->ref.attempt, r->folder, exp);
  brim_store_exp_free(exp);
  return status;
}

// Completes the attempts of executors that have ended.
static brim_status reap_runners(brim_lab_sweep *s) {
  int64_t now = brim_clock_ms();
  // Poll all executors first, since the store may refuse the result of one.
  for (size_t i = 0; i < s->count; i++) BRIM_TRY(poll_runner(s, s->runners[i], now));
  for (size_t i = 0; i < s->count;) {
    brim_lab_runner *r = s->runners[i];
    if (!r->gone) {
      i++;
      continue;
    }
    BRIM_TRY(complete_attempt(s, r));
    brim_lab_uploads_look(s->uploads, r->folder);
    brim_lab_dirty(s, r->ref.exp);
    s->look = true;
    runner_drop(s, r);
  }
  return BRIM_OK;
}

// Kills executors that have lost their attempt: their lease ended because they were stopped or hang,
// and the next attempt must not meet them.
static brim_status end_stale(brim_lab_sweep *s) {
  for (size_t i = 0; i < s->count; i++) {
    brim_lab_runner *r = s->runners[i];
    brim_store_exp *exp = NULL;
    if (r->gone || r->killed) continue;
    BRIM_TRY(brim_lab_get(s->source, r->ref.exp, &exp));
    bool stale = !is_open(exp, &r->ref), seen = r->stale;
    brim_store_exp_free(exp);
    r->stale = stale;
    // With a server the executor may be about to end on its own, so give it until the next look.
    if (!stale || (!s->store && !seen)) continue;
    r->killed = true;
    if (brim_lab_exec_kill(r->folder)) brim_status_clear();
    if (r->child) (void)brim_child_signal(r->child, SIGKILL);
    brim_status_clear();
  }
  return BRIM_OK;
}

//------------------------------------------- adopting -------------------------------------------

typedef struct open_attempt {
  brim_store_ref ref;
  int64_t gpus;
  char devices[BRIM_LAB_PLACE_DEVICES];
} open_attempt;

typedef struct open_list {
  const char *worker;
  open_attempt *items;
  size_t count, cap;
} open_list;

static brim_status on_open(void *ctx, const brim_store_exp *exp) {
  open_list *list = ctx;
  if (strcmp(exp->worker, list->worker) != 0) return BRIM_OK;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 16;
    open_attempt *more = brim_realloc(list->items, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while adopting experiments");
    list->items = more;
    list->cap = cap;
  }
  open_attempt *a = &list->items[list->count++];
  *a = (open_attempt){.ref = {.attempt = exp->attempt, .fence = exp->fence}, .gpus = exp->gpus};
  snprintf(a->ref.exp, sizeof a->ref.exp, "%s", exp->id);
  return BRIM_OK;
}

static brim_status on_devices(void *ctx, const brim_store_attempt *attempt) {
  open_attempt *a = ctx;
  if (attempt->n == a->ref.attempt) {
    snprintf(a->devices, sizeof a->devices, "%s", attempt->devices);
  }
  return BRIM_OK;
}

static brim_status adopt_one(brim_lab_sweep *s, open_attempt *a, size_t *adopted) {
  brim_lab_runner *r = NULL;
  brim_lab_exec_owner owner = {0};
  BRIM_TRY(brim_lab_attempts(s->source, a->ref.exp, on_devices, a));
  BRIM_TRY(runner_add(s, &a->ref, &r));
  if (brim_lab_exec_find(r->folder, &owner) && owner.attempt == a->ref.attempt &&
      owner.fence == a->ref.fence) {
    const brim_lab_place_want want = {.exp = r->ref.exp, .gpus = a->gpus};
    r->pid = owner.pid;
    r->devices = brim_strdup(a->devices);
    ++*adopted;
    brim_status status =
        brim_lab_place_adopt(s->placing, brim_clock_ms(), &want, a->devices, owner.pid);
    if (status != BRIM_ENOENT && status != BRIM_EINVAL) return status;
    brim_status_clear();  // this sweep may not use its device, so it stops here and runs elsewhere
    ask_to_stop(r);
    return BRIM_OK;
  }
  r->gone = true;  // the executor has ended; the next turn completes its attempt
  return BRIM_OK;
}

// Adopts the executors that an earlier sweep of this folder left running.
static brim_status adopt(brim_lab_sweep *s) {
  open_list list = {.worker = s->worker};
  const brim_store_filter filter = {.states = 1u << BRIM_EXP_LEASED | 1u << BRIM_EXP_RUNNING};
  size_t adopted = 0;
  brim_status status = brim_lab_list(s->source, &filter, on_open, &list);
  for (size_t i = 0; i < list.count && !status; i++) {
    status = adopt_one(s, &list.items[i], &adopted);
  }
  brim_free(list.items);
  if (adopted > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("%zu experiments of the last sweep still run; brim keeps them"), adopted);
  }
  return status;
}

//---------------------------------- progress ----------------------------------

static brim_status on_running(void *ctx, const brim_store_exp *exp) {
  brim_lab_sweep *s = ctx;
  brim_lab_runner *r = runner_find(s, exp->id);
  int64_t now = brim_clock_ms();
  if (!r || exp->step < 0) return BRIM_OK;
  brim_lab_place_progress(s->placing, now, exp->id, exp->step);
  if (exp->step > r->step && r->step >= 0 && now > r->step_ms) {
    double rate = (double)(exp->step - r->step) * 1e3 / (double)(now - r->step_ms);
    r->steps_per_s = r->steps_per_s > 0 ? 0.7 * r->steps_per_s + 0.3 * rate : rate;
  }
  if (exp->step != r->step) {
    r->step = exp->step;
    r->step_ms = now;
  }
  r->steps = exp->steps;
  return BRIM_OK;
}

//--------------------------------------------- loop ---------------------------------------------

enum {
  LEASE_MS = 60000,
  GRACE_MS = 60000,
  COUNT_MS = 1000,     // longest time between two counts of the states
  PROGRESS_MS = 2000,  // between two readings of the steps
  GIVE_UP_MS = 10000,  // a stopping sweep waits this long for its store
  SEEN_MS = 15000,     // between two reports to the store that this sweep is alive
  STATUS_MS = 5000,    // between two reports of a worker, with its machine's status
  STALE_MS = 15000     // longest time between a worker's looks for executors that lost their lease
};

//---------------------------------- requests of others ----------------------------------

// Tells an executor to stop at once if the user wants its experiment stopped; its next beat would tell
// it later.
static void on_changed(void *ctx, brim_lab_op op, const char *exp) {
  brim_lab_sweep *s = ctx;
  brim_lab_dirty(s, exp);
  if (op == BRIM_LAB_OP_BEAT || op == BRIM_LAB_OP_METRICS || op == BRIM_LAB_OP_LOG) return;
  s->look = true;
  brim_lab_runner *runner = op == BRIM_LAB_OP_WANT ? runner_find(s, exp) : NULL;
  brim_store_exp *now = NULL;
  if (runner && !brim_lab_get(s->source, exp, &now) && now->want != BRIM_WANT_RUN) {
    ask_to_stop(runner);
  }
  brim_store_exp_free(now);
}

// Answers the requests that only the sweep can answer.
static brim_status on_request(void *ctx, const brim_lab_request *request, brim_lab_reply *reply,
                              bool *taken) {
  brim_lab_sweep *s = ctx;
  *taken = true;
  if (request->op == BRIM_LAB_OP_STATUS) {
    const brim_sweep_view *view = NULL;
    json_t *value = NULL;
    BRIM_TRY(brim_lab_sweep_view(s, false, &view));
    BRIM_TRY(brim_sweep_view_to_json(view, false, &value));
    reply->more = json_object();
    BRIM_TRY(brim_json_put(reply->more, "view", value));
    value = json_array();
    BRIM_TRY(brim_json_put(reply->more, "rows", value));
    BRIM_TRY(sweep_active(s, value));
    return brim_json_put(reply->more, "folder", json_string(s->folder));
  }
  if (request->op == BRIM_LAB_OP_RESTORE) {
    if (!request->device) return brim_fail(BRIM_EINVAL, "the request names no device");
    return brim_lab_place_restore(s->placing, request->device);
  }
  if (request->op == BRIM_LAB_OP_STOP) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL, "%s",
                 brim_tr("another terminal asked the sweep to stop"));
    brim_lab_sweep_stop(s);
    return BRIM_OK;
  }
  *taken = false;
  return BRIM_OK;
}

//---------------------------------- opening ----------------------------------

static brim_status copy_text(const char *text, char **out) {
  if (!text) return BRIM_OK;
  *out = brim_strdup(text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
}

// Copies the options that the caller may free before an executor is started.
static brim_status copy_options(const brim_lab_sweep_options *o, brim_lab_sweep *s) {
  size_t n = 0;
  s->options = *o;
  if (s->options.grace_ms <= 0) s->options.grace_ms = GRACE_MS;
  if (s->options.store.lease_ms <= 0) s->options.store.lease_ms = LEASE_MS;
  BRIM_TRY(copy_text(o->place, &s->place));
  BRIM_TRY(copy_text(o->folder ? o->folder : o->place, &s->folder));
  BRIM_TRY(copy_text(o->title ? o->title : "", &s->title));
  BRIM_TRY(copy_text(o->program, &s->program));
  BRIM_TRY(copy_text(o->version ? o->version : "", &s->version));
  BRIM_TRY(copy_text(o->devices, &s->devices));
  BRIM_TRY(copy_text(o->lock_dir, &s->lock_dir));
  while (o->words && o->words[n]) n++;
  s->options.words = NULL;
  s->words = brim_calloc(n + 1, sizeof *s->words);
  if (!s->words) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  for (size_t i = 0; i < n; i++) BRIM_TRY(copy_text(o->words[i], &s->words[i]));
  s->options.words = (const char *const *)s->words;
  return BRIM_OK;
}

// Names the worker by its folder's path and this machine: the next sweep of the folder gets the same
// name.
static void name_worker(brim_lab_sweep *s, const char *id) {
  char *real = realpath(s->folder, NULL);
  if (gethostname(s->host, sizeof s->host - 1) != 0) s->host[0] = '\0';
  // Tasks of Slurm belong to the folder, whatever machine the sweep runs on.
  const bool slurm = s->options.slurm != NULL;
  brim_lab_worker_name(slurm ? "slurm" : id, slurm ? "" : s->host, real ? real : s->folder,
                       s->worker);
  free(real);
}

static brim_status open_placing(brim_lab_sweep *s) {
  const brim_lab_place_options how = {.store = s->store ? brim_store_place(s->store) : s->place,
                                      .devices = s->devices,
                                      .visible = getenv("CUDA_VISIBLE_DEVICES"),
                                      .cores = (int)s->options.cores,
                                      .jobs = (int)s->options.jobs,
                                      .per_gpu = (int)s->options.per_gpu,
                                      .share = s->options.share,
                                      .no_mps = s->options.no_mps,
                                      .monitor = s->options.monitor,
                                      .lock_dir = s->lock_dir};
  // With Slurm, the tasks have the devices, and this machine places nothing.
  const brim_lab_place_options none = {
      .store = how.store, .devices = "cpu", .lock_dir = s->lock_dir};
  if (s->options.slurm) return brim_lab_place_open(&none, &s->placing);
  return brim_lab_place_open(&how, &s->placing);
}

// Opens the store, or the link to the server if this is a worker.
static brim_status open_source(brim_lab_sweep *s) {
  char id[65], version[32];
  name_worker(s, "");
  s->ops =
      (brim_lab_ops){.version = s->version, .changed = on_changed, .answer = on_request, .ctx = s};
  if (!brim_lab_is_server(s->place)) {
    BRIM_TRY(brim_store_open(s->place, &s->options.store, &s->store));
    s->ops.store = s->own.store = s->store;
    BRIM_TRY(brim_lab_link_local(&s->own, &s->source));
    return brim_lab_link_local(&s->ops, &s->link);
  }
  BRIM_TRY(brim_lab_link_open(s->place, NULL, &s->link));
  BRIM_TRY(brim_lab_whoami(s->link, id, version));
  if (!brim_lab_wire_fits(version, s->version)) {
    return brim_fail(BRIM_EABI, "the server is brim %s and takes no worker of brim %s; install %s",
                     version, s->version, version);
  }
  if (strcmp(version, s->version) != 0) {
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("the server is brim %s, this worker %s"),
                 version, s->version);
  }
  name_worker(s, id);  // a server's names of workers begin with the id of their token
  s->source = s->link;
  return BRIM_OK;
}

static brim_status open_parts(brim_lab_sweep *s) {
  const bool elsewhere = brim_store_is_url(s->place) || brim_lab_is_server(s->place);
  const char *served = elsewhere ? s->folder : s->place;
  brim_status made = brim_fs_refused(brim_fs_mkdirs(s->folder));
  // BRIM_EEXIST means here that a file is in the way, not another sweep.
  if (made) return made == BRIM_EEXIST ? BRIM_EINVAL : made;
  BRIM_TRY(open_source(s));
  BRIM_TRY(open_placing(s));
  BRIM_TRY(brim_lab_server_open(&(brim_lab_server_options){.folder = served, .ops = s->ops},
                                &s->server));
  brim_lab_replayed replayed = {0};
  BRIM_TRY(tolerate(s, brim_lab_spool_replay(s->folder, s->link, &replayed)));
  if (replayed.finished > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("%lld experiments ended while no sweep was running; brim took over their "
                         "results"),
                 (long long)replayed.finished);
  }
  if (!s->store) BRIM_TRY(brim_lab_uploads_open(s->link, s->folder, &s->uploads));
  if (s->options.slurm) return brim_lab_slurm_open(s, &s->slurm);
  return adopt(s);
}

brim_status brim_lab_sweep_open(const brim_lab_sweep_options *options, brim_lab_sweep **out) {
  brim_lab_sweep *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  brim_sweep_view_init(&s->view);
  s->all_dirty = s->look = true;
  s->paused = -1;
  s->view.started_s = s->first_s = brim_clock_wall_s();
  brim_status status = copy_options(options, s);
  if (!status) status = open_parts(s);
  if (status) {
    brim_lab_sweep_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

// Reports that this worker leaves, so that others need not wait until it counts as gone. Skips a store
// that did not answer.
static void say_goodbye(brim_lab_sweep *s) {
  if (s->seen_ms == 0 || s->trouble_ms > 0) return;
  const brim_store_worker self = {
      .id = s->worker, .host = s->host, .gpus = "", .version = s->version, .left = true};
  char why[1024];  // keeps the detail of a failure that ends the sweep
  snprintf(why, sizeof why, "%s", brim_status_detail());
  (void)brim_lab_worker_seen(s->source, &self);
  brim_status_set_detail(why);
}

void brim_lab_sweep_close(brim_lab_sweep *s) {
  if (!s) return;
  say_goodbye(s);
  brim_lab_server_close(s->server);
  brim_lab_gpus_close(s);
  for (size_t i = 0; i < s->count; i++) runner_free(s->runners[i]);
  brim_free(s->runners);
  brim_lab_slurm_close(s->slurm);
  brim_lab_place_close(s->placing);
  brim_lab_uploads_close(s->uploads);
  if (s->source != s->link) brim_lab_link_close(s->source);
  brim_lab_link_close(s->link);
  brim_store_close(s->store);
  brim_sweep_view_deinit(&s->view);
  brim_free(s->fds);
  brim_free(s->place);
  brim_free(s->folder);
  brim_free(s->title);
  brim_free(s->program);
  brim_free(s->version);
  brim_free(s->devices);
  for (size_t i = 0; s->words && s->words[i]; i++) brim_free(s->words[i]);
  brim_free(s->words);
  brim_free(s->lock_dir);
  brim_free(s);
}

brim_status brim_lab_sweep_submit(brim_lab_sweep *s, const brim_store_grid *grid,
                                  const brim_store_point *points, size_t count,
                                  brim_store_submitted *out) {
  s->look = s->all_dirty = true;
  return brim_lab_submit(s->source, grid, points, count, out);
}

struct brim_lab_link *brim_lab_sweep_link(brim_lab_sweep *s) {
  return s->link;
}

//---------------------------------- turns ----------------------------------

static brim_status read_counts(brim_lab_sweep *s, int64_t now) {
  if (!s->look && s->counted && now - s->count_ms < COUNT_MS) return BRIM_OK;
  s->count_ms = now;
  BRIM_TRY(brim_lab_count(s->source, NULL, &s->counts));
  s->counted = true;
  const int64_t paused = s->counts.states[BRIM_EXP_PAUSED];
  if (s->paused < 0 || paused < s->paused) s->paused = paused;
  return BRIM_OK;
}

// Reports that this sweep is alive, reads progress, and ends leases that ran out.
static brim_status keep_store(brim_lab_sweep *s, int64_t now) {
  int64_t lease = s->options.store.lease_ms, expired = 0;
  if (s->store) BRIM_TRY(brim_store_check_file(s->store));  // a server checks its own file
  if (now >= s->seen_ms) {
    char *status = NULL;
    s->seen_ms = now + (s->options.serves ? STATUS_MS : SEEN_MS);
    if (s->options.serves) BRIM_TRY(sweep_status(s, &status));
    const brim_store_worker self = {
        .id = s->worker, .host = s->host, .gpus = "", .version = s->version, .status = status};
    brim_status told = brim_lab_worker_seen(s->source, &self);
    brim_free(status);
    BRIM_TRY(told);
  }
  if (now >= s->progress_ms) {
    const brim_store_filter running = {.states = 1u << BRIM_EXP_RUNNING};
    s->progress_ms = now + PROGRESS_MS;
    if (s->count > 0) BRIM_TRY(brim_lab_list(s->source, &running, on_running, s));
  }
  if (!s->store && now >= s->stale_ms) {
    int64_t often = s->lease_ms > 0 && s->lease_ms / 2 < STALE_MS ? s->lease_ms / 2 : STALE_MS;
    s->stale_ms = now + often;
    BRIM_TRY(end_stale(s));
  }
  if (now < s->reap_ms) return BRIM_OK;
  s->reap_ms = now + (lease / 12 > 5000 ? 5000 : lease / 12 < 200 ? 200 : lease / 12);
  if (s->store) BRIM_TRY(brim_store_reap(s->store, &expired));
  if (expired == 0) return BRIM_OK;
  s->look = s->all_dirty = true;
  return end_stale(s);
}

// Reports GPUs that become unusable, or usable again.
static void tell_gpus(brim_lab_sweep *s) {
  for (size_t i = 0; i < brim_lab_place_count(s->placing) && i < BRIM_LAB_PLACE_GPUS; i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    brim_lab_place_state before = s->gpu_states[i];
    s->gpu_states[i] = gpu.state;
    if (gpu.state == before) continue;
    if (gpu.state == BRIM_LAB_PLACE_OUT) {
      brim_lab_say(s, BRIM_SWEEP_ERROR, NULL, brim_tr("GPU %d is out of service: %.200s"),
                   gpu.index, gpu.reason);
    } else if (gpu.state == BRIM_LAB_PLACE_FOREIGN || gpu.state == BRIM_LAB_PLACE_LOCKED) {
      brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("GPU %d is left alone: %.200s"), gpu.index,
                   gpu.reason);
    } else if (before == BRIM_LAB_PLACE_OUT) {
      brim_lab_say(s, BRIM_SWEEP_INFO, NULL, brim_tr("GPU %d is in service again"), gpu.index);
    }
  }
}

// True if every device is out of service.
static bool all_out_of_service(const brim_lab_sweep *s) {
  int slots = 0, taken = 0;
  size_t count = brim_lab_place_count(s->placing);
  brim_lab_place_cpu(s->placing, &slots, &taken);
  for (size_t i = 0; i < count; i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (gpu.state != BRIM_LAB_PLACE_OUT) return false;
  }
  return slots == 0 && count > 0;
}

static brim_status run_turn(brim_lab_sweep *s, int64_t now) {
  BRIM_TRY(reap_runners(s));
  BRIM_TRY(keep_store(s, now));
  if (s->slurm) {
    BRIM_TRY(brim_lab_slurm_turn(s, now));
    s->left = true;
  } else {
    BRIM_TRY(brim_lab_place_tick(s->placing, now));
    tell_gpus(s);
    brim_lab_gpus_read(s, now);
    const char *excess = brim_lab_place_excess(s->placing, now);
    brim_lab_runner *runner = excess ? runner_find(s, excess) : NULL;
    if (runner) ask_to_stop(runner);
    if (!s->stopping && (s->look || now >= s->place_ms)) {
      s->place_ms = now + COUNT_MS;
      BRIM_TRY(start_queued(s, &s->left));
    }
  }
  BRIM_TRY(read_counts(s, now));
  s->look = false;
  s->trouble_ms = s->trouble_wait = 0;
  return BRIM_OK;
}

// True if every executor has ended and the store has taken no results for a while: they stay in the
// spools.
static bool gives_up(brim_lab_sweep *s) {
  int64_t now = brim_clock_ms(), lease = s->options.store.lease_ms;
  bool ended = s->stopping && s->trouble_ms > 0;
  for (size_t i = 0; i < s->count; i++) ended = ended && s->runners[i]->gone;
  if (!ended) {
    s->give_up_ms = 0;
    return false;
  }
  if (s->give_up_ms == 0) s->give_up_ms = now + (lease < GIVE_UP_MS ? lease : GIVE_UP_MS);
  if (now < s->give_up_ms) return false;
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL, "%s",
               brim_tr("the store cannot be used; the next sweep reads the results of the last "
                       "experiments from their folders"));
  return true;
}

// True if only paused experiments are left and some were paused during this sweep: the sweep then waits
// for its user. It does not wait for experiments that an earlier sweep left paused.
static bool waits_for_paused(brim_lab_sweep *s) {
  const int64_t *n = s->counts.states;
  const bool waits = n[BRIM_EXP_PAUSED] > s->paused && n[BRIM_EXP_QUEUED] == 0;
  if (waits && !s->told_paused) {
    brim_lab_say(
        s, BRIM_SWEEP_WARN, NULL,
        brim_tr("only paused experiments are left (%lld): brim sweep resume --all continues "
                "them, Ctrl-C ends the sweep"),
        (long long)n[BRIM_EXP_PAUSED]);
  }
  s->told_paused = waits;
  return waits;
}

static bool finished(brim_lab_sweep *s) {
  const int64_t *n = s->counts.states;
  int64_t under_way = n[BRIM_EXP_LEASED] + n[BRIM_EXP_RUNNING];
  if (s->count > 0) return gives_up(s);
  if (s->slurm && s->stopping) return brim_lab_slurm_idle(s);
  if (s->stopping) return true;
  if (s->options.serves) return false;
  if (!s->counted || under_way > 0) return false;
  if (waits_for_paused(s)) return false;
  if (s->slurm && n[BRIM_EXP_QUEUED] == 0 && !brim_lab_slurm_idle(s)) return false;
  bool out = n[BRIM_EXP_QUEUED] > 0 && all_out_of_service(s);
  if (n[BRIM_EXP_QUEUED] > 0 && s->left && !out) return false;
  if (out) {
    snprintf(s->view.notice, sizeof s->view.notice, "%s", brim_tr("every GPU is out of service"));
  }
  s->end = n[BRIM_EXP_QUEUED] > 0 ? BRIM_LAB_END_NO_PLACE : BRIM_LAB_END_ALL;
  return true;
}

static int shorter_wait(int64_t a, int64_t b) {
  int64_t least = a < 0 ? b : b < 0 ? a : a < b ? a : b;
  return least < 0 ? -1 : least > INT_MAX ? INT_MAX : (int)least;
}

static brim_status grow_fds(brim_lab_sweep *s, size_t need) {
  if (need <= s->fd_cap) return BRIM_OK;
  struct pollfd *more = brim_realloc(s->fds, need * 2 * sizeof *more);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the sweep's loop");
  s->fds = more;
  s->fd_cap = need * 2;
  return BRIM_OK;
}

// Waits until the socket, an executor, the caller's descriptors or a time limit needs a turn.
static brim_status wait_for_work(brim_lab_sweep *s, struct pollfd *extra, size_t extra_count,
                                 int timeout_ms) {
  size_t n = 0;
  int64_t now = brim_clock_ms();
  // While the store cannot be reached, leave out the executors: their descriptors would stay ready.
  bool trouble = s->trouble_ms > now;
  int wait = shorter_wait(timeout_ms, brim_lab_server_wait_ms(s->server));
  if (trouble) {
    wait = shorter_wait(wait, s->trouble_ms - now);
  } else if (!s->slurm) {
    wait = shorter_wait(wait, brim_lab_place_wait_ms(s->placing, now));
  }
  wait = shorter_wait(wait, s->options.store.lease_ms < 4 * COUNT_MS ? s->options.store.lease_ms / 8
                                                                     : COUNT_MS / 2);
  BRIM_TRY(grow_fds(s, extra_count + 1 + (s->count + 1) * BRIM_CHILD_FDS));
  for (size_t i = 0; i < extra_count; i++) s->fds[n++] = extra[i];
  s->fds[n++] = (struct pollfd){.fd = brim_lab_server_fd(s->server), .events = POLLIN};
  if (s->slurm && !trouble) {
    int limit = -1;
    n += brim_lab_slurm_fds(s->slurm, s->fds + n, &limit);
    wait = shorter_wait(wait, limit);
  }
  for (size_t i = 0; i < s->count; i++) {
    int limit = -1;
    if (trouble || s->runners[i]->gone || !s->runners[i]->child) continue;
    n += brim_child_fds(s->runners[i]->child, s->fds + n, &limit);
    wait = shorter_wait(wait, limit);
  }
  int ready = poll(s->fds, (nfds_t)n, wait);
  for (size_t i = 0; i < extra_count; i++) extra[i].revents = ready > 0 ? s->fds[i].revents : 0;
  return BRIM_OK;
}

brim_status brim_lab_sweep_turn(brim_lab_sweep *s, struct pollfd *extra, size_t extra_count,
                                int timeout_ms, bool *done) {
  int64_t now = brim_clock_ms(), lease = s->options.store.lease_ms;
  *done = false;
  // If this process was suspended, executors get time to beat before leases are reaped.
  if (s->last_ms > 0 && now - s->last_ms > lease / 4) s->reap_ms = now + lease / 2;
  s->last_ms = now;
  BRIM_TRY(tolerate(s, brim_lab_server_serve(s->server)));
  if (now >= s->trouble_ms) BRIM_TRY(tolerate(s, run_turn(s, now)));
  *done = finished(s);
  if (*done) return BRIM_OK;
  BRIM_TRY(wait_for_work(s, extra, extra_count, timeout_ms));
  return tolerate(s, brim_lab_server_serve(s->server));
}

brim_lab_end brim_lab_sweep_end(const brim_lab_sweep *s) { return s->end; }
