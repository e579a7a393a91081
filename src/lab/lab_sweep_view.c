// The view of a sweep, from its store and its places. Rows are read again only where the store
// changed, so that 10,000 of them cost nothing while little happens.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_grid.h"
#include "lab/lab_sweep_int.h"

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

// The best value so far, where a direction is known.
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

// "GPU 0" where the sweep knows the UUID.
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
  // A key comes with the first experiment that has it, or when a run records another than expected.
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
    brim_lab_config_group(exp->config, group);
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

// Experiments that ended before this sweep have details too; some with each call.
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

// Everything once, and what changed since then in detail.
static brim_status read_rows(brim_lab_sweep *s) {
  int64_t now = brim_lab_now_ms();
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

brim_sweep_gpu_state brim_lab_gpu_state(brim_lab_place_state state) {
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

// The cluster as one place: elements that run, of those that are in its queue.
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
    to->state = brim_lab_gpu_state(from.state);
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

// What is left by what the experiments of this sweep took; unknown before the first has ended.
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
  s->looked_ms = brim_lab_now_ms();
  fill_places(s);
  fill_rates(s);
  *out = v;
  if (!rows || brim_lab_now_ms() < s->trouble_ms) return BRIM_OK;
  return brim_lab_tolerate(s, read_rows(s));
}

bool brim_lab_sweep_view_lags(const brim_lab_sweep *s) {
  return s->trouble_ms == 0 && s->detail_at < s->view.row_count;
}
