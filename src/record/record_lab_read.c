// Experiments out of lines of JSON. Memory is bounded by the number of experiments: of curves a
// number of points is kept that falls as they become more.
#include <math.h>
#include <string.h>

#include "record/record_int.h"
#include "record/record_lab_int.h"

enum { MOST_POINTS = 512 };
// Beyond these a number is damage, not a value that can be drawn.
static const double most_value = 1e100;
static const int64_t most_step = (int64_t)1 << 53;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
}

//---------------------------------- curves ----------------------------------

// Keeps the lowest and the highest of points from..end-1, in their order.
static size_t keep_extremes(brim_curve_point *points, size_t from, size_t end, size_t kept) {
  size_t low = from, high = from;
  for (size_t i = from; i < end; i++) {
    if (points[i].value < points[low].value) low = i;
    if (points[i].value > points[high].value) high = i;
  }
  const brim_curve_point first = points[low < high ? low : high];
  const brim_curve_point second = points[low < high ? high : low];
  points[kept++] = first;
  if (low != high) points[kept++] = second;
  return kept;
}

size_t brim_lab_thin(brim_curve_point *points, size_t count, size_t most) {
  if (count <= most) return count;
  const brim_curve_point last = points[count - 1];
  const size_t stretches = (most - 2) / 2, inner = count - 2;
  size_t kept = 1;  // never beyond the stretch that is read
  for (size_t i = 0; i < stretches; i++) {
    const size_t from = 1 + inner * i / stretches, end = 1 + inner * (i + 1) / stretches;
    if (end > from) kept = keep_extremes(points, from, end, kept);
  }
  points[kept++] = last;
  return kept;
}

// When there are too many points of all curves, every curve gets fewer.
static void thin_all(brim_lab_reader *r) {
  brim_lab_set *set = &r->set;
  while (r->points > BRIM_LAB_POINTS && set->most_points > BRIM_LAB_LEAST_POINTS) {
    set->most_points /= 2;
    r->points = 0;
    for (size_t i = 0; i < set->count; i++) {
      for (size_t k = 0; k < set->exps[i].curve_count; k++) {
        brim_lab_curve *c = &set->exps[i].curves[k];
        const size_t count = brim_lab_thin(c->points, c->count, set->most_points);
        void *smaller =
            count < c->count ? brim_realloc(c->points, count * sizeof *c->points) : NULL;
        if (smaller) c->points = smaller;
        c->count = count;
        r->points += count;
      }
    }
  }
}

// *out BRIM_LAB_METRICS: there is no room for another.
static brim_status metric_of(brim_lab_reader *r, const char *key, const char *workload,
                             size_t *out) {
  brim_lab_set *set = &r->set;
  for (*out = 0; *out < set->metric_count; ++*out) {
    if (strcmp(set->metrics[*out].key, key) == 0) return BRIM_OK;
  }
  if (*out == BRIM_LAB_METRICS) return BRIM_OK;
  const char *copy = brim_arena_strdup(r->arena, key);
  if (!copy) return no_memory();
  brim_lab_metric *m = &set->metrics[set->metric_count++];
  *m = (brim_lab_metric){.key = copy};
  m->declared = r->options.metric && r->options.metric(r->options.ctx, workload, key, &m->display);
  if (m->declared) m->better = m->display.better;
  return BRIM_OK;
}

static bool is_finite_number(const json_t *value, double *out) {
  if (!json_is_number(value)) return false;
  *out = json_number_value(value);
  return isfinite(*out) && fabs(*out) <= most_value;
}

static bool point_of(const json_t *row, brim_curve_point *out) {
  const json_t *step = json_array_get(row, 0);
  if (!json_is_integer(step)) return false;
  out->step = json_integer_value(step);
  return out->step >= -most_step && out->step <= most_step &&
         is_finite_number(json_array_get(row, 1), &out->value);
}

static void find_best(brim_lab_exp *e, const brim_curve_point *points, size_t count,
                      brim_metric_better better) {
  if (better == BRIM_BETTER_NEITHER) return;
  for (size_t i = 0; i < count; i++) {
    const bool first = isnan(e->best);
    const bool beats =
        better == BRIM_BETTER_HIGHER ? points[i].value > e->best : points[i].value < e->best;
    if (!first && !beats) continue;
    e->best = points[i].value;
    e->best_step = points[i].step;
  }
}

static brim_status add_curve(brim_lab_reader *r, brim_lab_exp *e, size_t metric,
                             const json_t *rows) {
  const size_t most = json_array_size(rows);
  brim_lab_curve *c = &e->curves[e->curve_count];
  brim_curve_point *points = brim_alloc((most + 1) * sizeof *points);
  if (!points) return no_memory();
  size_t count = 0;
  for (size_t i = 0; i < most; i++) {
    brim_curve_point p;
    if (!point_of(json_array_get(rows, i), &p)) continue;
    if (count > 0 && p.step <= points[count - 1].step) continue;  // the store gives them in order
    points[count++] = p;
  }
  if (count == 0) {
    brim_free(points);
    return BRIM_OK;
  }
  brim_lab_metric *m = &r->set.metrics[metric];
  if (strcmp(m->key, e->metric_key) == 0) find_best(e, points, count, m->better);
  count = brim_lab_thin(points, count, r->set.most_points);
  void *smaller = brim_realloc(points, count * sizeof *points);
  *c = (brim_lab_curve){metric, smaller ? smaller : points, count};
  e->curve_count++;
  r->points += count;
  m->count++;
  return BRIM_OK;
}

static brim_status add_curves(brim_lab_reader *r, brim_lab_exp *e, const char *workload,
                              const json_t *metrics) {
  const char *key;
  json_t *rows;
  if (!json_is_object(metrics)) return BRIM_OK;
  size_t metric = 0;
  if (e->metric_key[0])
    BRIM_TRY(metric_of(r, e->metric_key, workload, &metric));  // room for it first
  e->curves = brim_calloc(json_object_size(metrics) + 1, sizeof *e->curves);
  if (!e->curves) return no_memory();
  json_object_foreach((json_t *)metrics, key, rows) {
    BRIM_TRY(metric_of(r, key, workload, &metric));
    if (metric == BRIM_LAB_METRICS) {
      r->set.metrics_left_out++;
    } else if (json_is_array(rows)) {
      BRIM_TRY(add_curve(r, e, metric, rows));
    }
  }
  return BRIM_OK;
}

//---------------------------------- fields ----------------------------------

static const char *text_of(brim_lab_reader *r, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  size_t length = text ? strlen(text) : 0;
  if (length == 0) return "";
  // Of what is too long the end says most.
  if (length > BRIM_LAB_TEXT) {
    text += length - BRIM_LAB_TEXT;
    while ((*text & 0xc0) == 0x80) text++;
    length = strlen(text);
  }
  uint32_t number = brim_lab_text(&r->values, r->arena, text, length);
  return number == BRIM_LAB_NONE ? NULL : r->values.list[number];
}

static int64_t integer_of(const json_t *object, const char *key, int64_t unknown) {
  const json_t *value = json_object_get(object, key);
  return json_is_integer(value) ? json_integer_value(value) : unknown;
}

static brim_status read_attempt(brim_lab_reader *r, const json_t *o, brim_lab_attempt *out) {
  *out = (brim_lab_attempt){.worker = text_of(r, o, "worker"),
                            .host = text_of(r, o, "host"),
                            .devices = text_of(r, o, "devices"),
                            .outcome = text_of(r, o, "outcome"),
                            .failure = text_of(r, o, "failure"),
                            .message = text_of(r, o, "message"),
                            .n = integer_of(o, "n", 0),
                            .from_step = integer_of(o, "from_step", -1),
                            .exit_code = integer_of(o, "exit_code", 0),
                            .claimed = integer_of(o, "claimed_ms", 0),
                            .started = integer_of(o, "started_ms", 0),
                            .ended = integer_of(o, "ended_ms", 0)};
  const bool all =
      out->worker && out->host && out->devices && out->outcome && out->failure && out->message;
  return all ? BRIM_OK : no_memory();
}

static brim_status read_attempts(brim_lab_reader *r, const json_t *list, brim_lab_exp *e) {
  const size_t count = json_array_size(list);
  e->attempt_count = count < BRIM_LAB_ATTEMPTS ? count : BRIM_LAB_ATTEMPTS;
  e->attempts_left_out = count - e->attempt_count;
  e->attempts = brim_arena_calloc(r->arena, e->attempt_count + 1, sizeof *e->attempts);
  if (!e->attempts) return no_memory();
  for (size_t i = 0; i < e->attempt_count; i++) {
    const size_t from = i < BRIM_LAB_ATTEMPTS / 2 ? i : i + e->attempts_left_out;
    BRIM_TRY(read_attempt(r, json_array_get(list, from), &e->attempts[i]));
  }
  return BRIM_OK;
}

// Lines of earlier versions have no time of the attempts: from the first one's start to the end then.
static void read_times(const json_t *o, brim_lab_exp *e) {
  bool over = e->ended > e->started;
  e->ran_ms = integer_of(o, "ran_ms", e->started > 0 && over ? e->ended - e->started : 0);
  e->since = integer_of(o, "since_ms", json_object_get(o, "ran_ms") || e->ended ? 0 : e->started);
}

static brim_status read_fields(brim_lab_reader *r, const json_t *o, brim_lab_exp *e) {
  *e = (brim_lab_exp){.id = text_of(r, o, "id"),
                      .grid = text_of(r, o, "grid"),
                      .label = text_of(r, o, "label"),
                      .tags = text_of(r, o, "tags"),
                      .state = text_of(r, o, "state"),
                      .metric_key = text_of(r, o, "metric_key"),
                      .failure = text_of(r, o, "failure"),
                      .reason = text_of(r, o, "reason"),
                      .last_lines = text_of(r, o, "last_lines"),
                      .idx = integer_of(o, "index", -1),
                      .gpus = integer_of(o, "gpus", 1),
                      .step = integer_of(o, "step", -1),
                      .steps = integer_of(o, "steps", -1),
                      .epoch = integer_of(o, "epoch", -1),
                      .epochs = integer_of(o, "epochs", -1),
                      .created = integer_of(o, "created_ms", 0),
                      .started = integer_of(o, "started_ms", 0),
                      .ended = integer_of(o, "ended_ms", 0),
                      .last = (double)NAN,
                      .best = (double)NAN,
                      .best_step = -1};
  const bool all = e->id && e->grid && e->label && e->tags && e->state && e->metric_key &&
                   e->failure && e->reason && e->last_lines;
  if (!all) return no_memory();
  e->done = strcmp(e->state, "done") == 0;
  read_times(o, e);
  double last = 0;
  if (is_finite_number(json_object_get(o, "metric"), &last)) e->last = last;
  return BRIM_OK;
}

//---------------------------------- experiments ----------------------------------

static brim_status check(const json_t *value, const char *name, int line) {
  const char *schema = json_string_value(json_object_get(value, "schema"));
  const char *id = json_string_value(json_object_get(value, "id"));
  const char *state = json_string_value(json_object_get(value, "state"));
  if (schema && strcmp(schema, BRIM_LAB_SCHEMA) != 0) {
    return brim_fail_at(BRIM_EPARSE, name, line, 0, "the schema is '%.40s', not %s", schema,
                        BRIM_LAB_SCHEMA);
  }
  if (id && id[0] && state) return BRIM_OK;
  return brim_fail_at(BRIM_EPARSE, name, line, 0, "this is no experiment of a store");
}

static brim_status reserve(brim_lab_reader *r) {
  if (r->set.count < r->capacity) return BRIM_OK;
  size_t capacity = r->capacity ? r->capacity * 2 : 64;
  void *exps = brim_realloc(r->set.exps, capacity * sizeof *r->set.exps);
  if (!exps) return no_memory();
  r->set.exps = exps;
  void *raws = brim_realloc(r->raws, capacity * sizeof *r->raws);
  if (!raws) return no_memory();
  r->raws = raws;
  r->capacity = capacity;
  return BRIM_OK;
}

static const char *workload_of(const brim_lab_reader *r, const brim_lab_raw *raw) {
  for (size_t i = 0; i < raw->count; i++) {
    if (strcmp(r->names.list[raw->settings[i].name], "workload") == 0) {
      return r->values.list[raw->settings[i].value];
    }
  }
  return "";
}

static brim_status fill(brim_lab_reader *r, const json_t *value, brim_lab_exp *e,
                        brim_lab_raw *raw) {
  const json_t *config = json_object_get(value, "config");
  BRIM_TRY(read_fields(r, value, e));
  BRIM_TRY(brim_lab_flatten(r, config, e->label, raw));
  BRIM_TRY(read_attempts(r, json_object_get(value, "attempts"), e));
  return add_curves(r, e, workload_of(r, raw), json_object_get(value, "metrics"));
}

static void free_curves(brim_lab_exp *e) {
  for (size_t i = 0; i < e->curve_count; i++) brim_free(e->curves[i].points);
  brim_free(e->curves);
}

brim_status brim_lab_reader_add(brim_lab_reader *r, const json_t *value, const char *name,
                                int line) {
  BRIM_TRY(check(value, name, line));
  const char *id = json_string_value(json_object_get(value, "id"));
  const size_t ids = r->ids.count;
  if (brim_lab_text(&r->ids, r->arena, id, strlen(id)) == BRIM_LAB_NONE) return no_memory();
  if (r->ids.count == ids) return BRIM_OK;  // it came already
  BRIM_TRY(reserve(r));
  brim_lab_exp *e = &r->set.exps[r->set.count];
  brim_lab_raw *raw = &r->raws[r->set.count];
  memset(e, 0, sizeof *e);
  memset(raw, 0, sizeof *raw);
  brim_status status = fill(r, value, e, raw);
  if (status) {
    free_curves(e);
    return status;
  }
  r->set.count++;
  thin_all(r);
  return BRIM_OK;
}

brim_status brim_lab_reader_grid(brim_lab_reader *r, const brim_lab_grid_row *row) {
  if (r->set.grid_count == r->grid_capacity) {
    const size_t capacity = r->grid_capacity ? r->grid_capacity * 2 : 8;
    void *grown = brim_realloc(r->grids, capacity * sizeof *r->grids);
    if (!grown) return no_memory();
    r->grids = grown;
    r->set.grids = grown;
    r->grid_capacity = capacity;
  }
  brim_lab_grid_row *copy = &r->grids[r->set.grid_count];
  *copy = *row;
  copy->id = brim_arena_strdup(r->arena, row->id ? row->id : "");
  copy->name = brim_arena_strdup(r->arena, row->name ? row->name : "");
  copy->version = brim_arena_strdup(r->arena, row->version ? row->version : "");
  if (!copy->id || !copy->name || !copy->version) return no_memory();
  r->set.grid_count++;
  return BRIM_OK;
}

static brim_status add_line(void *ctx, json_t *value, const char *name, int line) {
  return brim_lab_reader_add(ctx, value, name, line);
}

brim_status brim_lab_reader_file(brim_lab_reader *reader, const char *path, bool *torn) {
  return brim_record_each_line(path, add_line, reader, torn);
}

brim_status brim_lab_reader_create(const brim_lab_options *options, brim_lab_reader **out) {
  *out = NULL;
  brim_json_setup();
  brim_lab_reader *r = brim_calloc(1, sizeof *r);
  if (!r) return no_memory();
  if (options) r->options = *options;
  r->set.metrics = r->metrics;
  r->set.most_points = MOST_POINTS;
  brim_status status = brim_arena_create(1 << 16, &r->arena);
  if (status) {
    brim_lab_reader_destroy(r);
    return status;
  }
  *out = r;
  return BRIM_OK;
}

void brim_lab_reader_destroy(brim_lab_reader *r) {
  if (!r) return;
  for (size_t i = 0; i < r->set.count; i++) free_curves(&r->set.exps[i]);
  brim_free(r->set.exps);
  brim_free(r->raws);
  brim_free(r->grids);
  brim_lab_texts_deinit(&r->names);
  brim_lab_texts_deinit(&r->values);
  brim_lab_texts_deinit(&r->ids);
  brim_arena_destroy(r->arena);
  brim_free(r);
}
