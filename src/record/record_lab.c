// Reads, groups and compares the experiments of a store (record_lab.h).

#include "record/record_lab.h"

#include "base/base_xxh64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_stats.h"
#include "record/record_int.h"
#include "record/record_lab_int.h"

//------------------------------------------- settings -------------------------------------------
// Turns the config and the label of an experiment into flat names and values.

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
}

//---------------------------------- texts ----------------------------------

static uint64_t hash_of(const char *text, size_t length) {
  brim_xxh64 h;
  brim_xxh64_init(&h);
  brim_xxh64_update(&h, text, length);
  return brim_xxh64_value(&h);
}

static void put_slot(brim_lab_texts *t, uint32_t number) {
  size_t at = (size_t)hash_of(t->list[number], strlen(t->list[number])) & (t->slot_count - 1);
  while (t->slots[at]) at = (at + 1) & (t->slot_count - 1);
  t->slots[at] = number + 1;
}

// Makes room for one more text and keeps at most half of the slots in use.
static bool grow(brim_lab_texts *t) {
  if (t->count == t->capacity) {
    size_t capacity = t->capacity ? t->capacity * 2 : 256;
    void *grown = brim_realloc(t->list, capacity * sizeof *t->list);
    if (!grown) return false;
    t->list = grown;
    t->capacity = capacity;
  }
  if (t->slot_count > 2 * t->count + 1) return true;
  size_t slot_count = t->slot_count ? t->slot_count * 2 : 512;
  uint32_t *slots = brim_calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  brim_free(t->slots);
  t->slots = slots;
  t->slot_count = slot_count;
  for (size_t i = 0; i < t->count; i++) put_slot(t, (uint32_t)i);
  return true;
}

// Returns the number of a text; a new text is copied into the arena. BRIM_LAB_NONE: out of memory.
static uint32_t brim_lab_text(brim_lab_texts *t, brim_arena *arena, const char *text,
                              size_t length) {
  if (t->count >= UINT32_MAX - 1 || !grow(t)) return BRIM_LAB_NONE;
  size_t at = (size_t)hash_of(text, length) & (t->slot_count - 1);
  for (; t->slots[at]; at = (at + 1) & (t->slot_count - 1)) {
    const char *other = t->list[t->slots[at] - 1];
    if (strlen(other) == length && memcmp(other, text, length) == 0) return t->slots[at] - 1;
  }
  const char *copy = brim_arena_strndup(arena, text, length);
  if (!copy) return BRIM_LAB_NONE;
  t->list[t->count] = copy;
  t->slots[at] = (uint32_t)t->count + 1;
  return (uint32_t)t->count++;
}

static void brim_lab_texts_deinit(brim_lab_texts *t) {
  brim_free(t->list);
  brim_free(t->slots);
}

//---------------------------------- settings ----------------------------------

enum { MAX_DEPTH = 16, MAX_NAME = BRIM_LAB_CONFIG_NAME, MAX_SETTINGS = 1024 };

typedef struct flat {
  brim_lab_reader *reader;
  brim_lab_setting list[MAX_SETTINGS];
  size_t count;
  bool axis;
} flat;

static brim_status add(flat *f, const char *name, const char *value, size_t length) {
  if (f->count == MAX_SETTINGS) return BRIM_OK;  // brim's configs have fewer settings
  brim_lab_reader *r = f->reader;
  brim_lab_setting *s = &f->list[f->count];
  s->name = brim_lab_text(&r->names, r->arena, name, strlen(name));
  s->value = brim_lab_text(&r->values, r->arena, value, length);
  s->axis = f->axis;
  if (s->name == BRIM_LAB_NONE || s->value == BRIM_LAB_NONE) return no_memory();
  f->count++;
  return BRIM_OK;
}

static size_t name_length(const char *text) {
  size_t n = 0;
  while ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z') ||
         (n > 0 && ((text[n] >= '0' && text[n] <= '9') || text[n] == '.' || text[n] == '-')) ||
         text[n] == '_') {
    n++;
  }
  return n;
}

// Returns the number of bytes up to `stop` outside brackets and quotes, or to the end. In a label, where `stop` is
// a space, it ends only at a space in front of the next "name=".
static size_t value_length(const char *text, char stop) {
  int depth = 0;
  char quote = 0;
  size_t i = 0;
  for (; text[i]; i++) {
    const char c = text[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (strchr("([{", c)) {
      depth++;
    } else if (strchr(")]}", c) && depth > 0) {
      depth--;
    } else if (c == stop && depth == 0) {
      if (stop != ' ') break;
      size_t n = name_length(text + i + 1);
      if (n > 0 && text[i + 1 + n] == '=') break;
    }
  }
  return i;
}

// Returns the text between the brackets of "adamw(lr=0.1, eps=1e-8)", or NULL if `text` has another form.
static const char *arguments_of(const char *text, size_t *name, size_t *length) {
  *name = name_length(text);
  const size_t n = strlen(text);
  if (*name == 0 || text[*name] != '(' || n < *name + 2 || text[n - 1] != ')') return NULL;
  *length = n - *name - 2;
  // the last bracket of "a(b=1) | c(d=2)" does not close the first one
  if (value_length(text + *name, '|') != n - *name) return NULL;
  return text + *name + 1;
}

static brim_status add_text(flat *f, const char *name, const char *text) {
  char inner[2048], full[2 * MAX_NAME];
  size_t base = 0, length = 0;
  const char *arguments = arguments_of(text, &base, &length);
  if (!arguments || length >= sizeof inner) return add(f, name, text, strlen(text));
  memcpy(inner, arguments, length);
  inner[length] = '\0';
  for (const char *p = inner; *p;) {  // split the arguments only if each has a name
    const size_t n = name_length(p);
    if (n == 0 || n >= MAX_NAME || p[n] != '=') return add(f, name, text, strlen(text));
    p += value_length(p, ',');
    p += strspn(p, ", ");
  }
  BRIM_TRY(add(f, name, text, base));
  for (const char *p = inner; *p;) {
    const size_t n = name_length(p), end = value_length(p, ',');
    snprintf(full, sizeof full, "%.*s.%.*s", MAX_NAME, name, (int)n, p);
    BRIM_TRY(add(f, full, p + n + 1, end - n - 1));
    p += end;
    p += strspn(p, ", ");
  }
  return BRIM_OK;
}

static brim_status add_value(flat *f, const char *name, const json_t *value) {
  char number[32], *text = NULL;
  switch (json_typeof(value)) {
    case JSON_NULL:  // not set
      return BRIM_OK;
    case JSON_STRING:
      return add_text(f, name, json_string_value(value));
    case JSON_INTEGER:
      snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
      return add(f, name, number, strlen(number));
    case JSON_REAL:
      brim_format_f64(json_real_value(value), number);
      return add(f, name, number, strlen(number));
    default:
      break;
  }
  BRIM_TRY(brim_json_dump(value, 0, &text));
  brim_status status = add(f, name, text, strlen(text));
  brim_free(text);
  return status;
}

static brim_status add_object(flat *f, const char *prefix, const json_t *object, int depth) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
    brim_utf8_trim(name);
    if (json_is_object(value) && depth < MAX_DEPTH) {
      BRIM_TRY(add_object(f, name, value, depth + 1));
    } else {
      BRIM_TRY(add_value(f, name, value));
    }
  }
  return BRIM_OK;
}

// Adds a setting without the quotes of a quoted scalar.
static brim_status add_scalar(flat *f, const char *name, char *text) {
  const size_t n = strlen(text);
  json_t *value = NULL;
  if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
    value = json_loadb(text, n, JSON_DECODE_ANY, NULL);
  } else if (n >= 2 && text[0] == '\'' && text[n - 1] == '\'') {
    size_t kept = 0;
    for (size_t i = 1; i + 1 < n; i++) {
      text[kept++] = text[i];
      if (text[i] == '\'' && text[i + 1] == '\'') i++;
    }
    text[kept] = '\0';
  }
  brim_status status = add_text(f, name, json_is_string(value) ? json_string_value(value) : text);
  json_decref(value);
  return status;
}

bool brim_lab_config_next(const char **text, brim_lab_config_line *out) {
  for (const char *at = *text; *at;) {
    const size_t length = strcspn(at, "\n");
    out->mark = brim_str_starts(at, "# ");
    const char *name = out->mark ? at + 2 : at;
    const size_t n = name_length(name);
    const char *behind = name + n;
    // the length of " " after a mark, or of ": " after a key
    const size_t gap = out->mark ? 1 : 2;
    const bool good = n > 0 && n < sizeof out->name && (size_t)(behind - at) + gap <= length &&
                      (out->mark ? behind[0] == ' ' : behind[0] == ':' && behind[1] == ' ');
    const char *line = at;
    at += length + (at[length] == '\n');
    if (!good) continue;
    memcpy(out->name, name, n);
    out->name[n] = '\0';
    out->value = behind + gap;
    out->size = (size_t)(line + length - out->value);
    *text = at;
    return true;
  }
  return false;
}

void brim_lab_config_value(const char *config, const char *key, char *out, size_t size) {
  brim_lab_config_line line;
  out[0] = '\0';
  while (brim_lab_config_next(&config, &line)) {
    if (line.mark || strcmp(line.name, key) != 0) continue;
    snprintf(out, size, "%.*s", (int)line.size, line.value);
    return;
  }
}

void brim_lab_config_mark(const char *config, const char *name, char out[BRIM_LAB_MARK]) {
  brim_lab_config_line line;
  out[0] = '\0';
  while (brim_lab_config_next(&config, &line) && line.mark) {
    const bool whole = line.size == BRIM_LAB_MARK - 1 && line.value[line.size] == '\n' &&
                       strspn(line.value, "0123456789abcdef") == line.size;
    if (!whole || strcmp(line.name, name) != 0) continue;
    memcpy(out, line.value, line.size);
    out[line.size] = '\0';
    return;
  }
}

static brim_status add_lines(flat *f, const char *text) {
  brim_lab_config_line line;
  brim_str value;
  brim_str_init(&value);
  brim_status status = BRIM_OK;
  while (!status && brim_lab_config_next(&text, &line)) {
    if (line.mark) continue;
    brim_str_clear(&value);
    brim_str_append_n(&value, line.value, line.size);
    status = brim_str_status(&value);
    if (!status) status = add_scalar(f, line.name, value.data);
  }
  brim_str_deinit(&value);
  return status;
}

// Adds the settings of a label such as "lr=0.1 model=mlp(depth=3, width=2) seed=0".
static brim_status add_label(flat *f, const char *label) {
  f->axis = true;
  for (const char *p = label; *p;) {
    char name[MAX_NAME];
    const size_t n = name_length(p);
    const size_t end = value_length(p, ' ');
    if (n > 0 && n < sizeof name && p[n] == '=') {
      memcpy(name, p, n);
      name[n] = '\0';
      BRIM_TRY(add(f, name, p + n + 1, end - n - 1));
    }
    p += end;
    p += strspn(p, " ");
  }
  return BRIM_OK;
}

// Flattens the settings of an experiment. The config is a JSON object, or lines "key: value" of YAML. {"a": {"b":
// 1}} becomes a.b=1; "adamw(lr=0.1)" as optimizer becomes optimizer=adamw and optimizer.lr=0.1. Fails only with
// BRIM_ENOMEM.
static brim_status brim_lab_flatten(brim_lab_reader *reader, const json_t *config,
                                    const char *label, brim_lab_raw *out) {
  flat *f = brim_calloc(1, sizeof *f);
  if (!f) return no_memory();
  f->reader = reader;
  brim_status status = BRIM_OK;
  if (json_is_object(config)) status = add_object(f, "", config, 0);
  if (json_is_string(config)) status = add_lines(f, json_string_value(config));
  if (!status) status = add_label(f, label);
  if (!status) {
    out->count = f->count;
    out->settings =
        brim_arena_alloc(reader->arena, f->count * sizeof *f->list + 1, _Alignof(brim_lab_setting));
    if (out->settings) memcpy(out->settings, f->list, f->count * sizeof *f->list);
    status = out->settings ? BRIM_OK : no_memory();
  }
  brim_free(f);
  return status;
}

//------------------------------------------- reading -------------------------------------------
// Reads experiments from lines of JSON. The memory of curves is bounded: the more experiments, the fewer points a
// curve keeps.

enum { MOST_POINTS = 512 };
// Larger numbers are damage, not values that can be drawn.
static const double most_value = 1e100;
static const int64_t most_step = (int64_t)1 << 53;

//---------------------------------- curves ----------------------------------

// Appends the lowest and the highest of points from..end-1, in their order, and returns the new number kept.
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
  size_t kept = 1;  // points written so far; it never passes the points being read
  for (size_t i = 0; i < stretches; i++) {
    const size_t from = 1 + inner * i / stretches, end = 1 + inner * (i + 1) / stretches;
    if (end > from) kept = keep_extremes(points, from, end, kept);
  }
  points[kept++] = last;
  return kept;
}

// While all curves together have too many points, halves the points per curve.
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

// Finds or adds a metric. *out is BRIM_LAB_METRICS if there is no room for another.
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
    // the store gives points in order of steps
    if (count > 0 && p.step <= points[count - 1].step) continue;
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
    // make sure that the deciding metric gets a place
    BRIM_TRY(metric_of(r, e->metric_key, workload, &metric));
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
  // The end of a long text says most, so keep that.
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

// Lines of earlier versions have no time of the attempts; then it is the time from first start to end.
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
  if (r->ids.count == ids) return BRIM_OK;  // the experiment came in an earlier line
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

//--------------------------------------------- keys ---------------------------------------------
// Finds the settings that tell experiments apart. Settings that follow from others (optimizer.lr from
// training.learning_rate) are left out.

//---------------------------------- a table of values ----------------------------------

// The values of one setting over all experiments.
typedef struct column {
  size_t count;    // experiments that have the setting
  uint32_t first;  // value of the first experiment that has it
  bool differs, axis, ignored, over, chosen;
} column;

typedef struct finder {
  brim_lab_reader *reader;
  column *columns;   // one per name
  uint32_t *row;     // value of each name in one experiment
  uint32_t *usual;   // default value of each name; BRIM_LAB_NONE = unknown
  uint32_t preset;   // number of the name "preset"; BRIM_LAB_NONE = no experiment has it
  uint32_t *chosen;  // names of the chosen settings
  size_t chosen_count;
  uint32_t *order;  // all names: axes in the order of labels, then the others
  size_t order_count;
  uint64_t *hashes;  // for each experiment, a hash of its chosen values
} finder;

static bool is_listed(const char *const *list, const char *name) {
  for (; list && *list; list++) {
    const size_t n = strlen(*list);
    if (n > 0 && (*list)[n - 1] == '.' ? strncmp(*list, name, n) == 0 : strcmp(*list, name) == 0) {
      return true;
    }
  }
  return false;
}

static uint32_t given_value(const finder *f, size_t exp, uint32_t name) {
  const brim_lab_raw *raw = &f->reader->raws[exp];
  for (size_t i = 0; i < raw->count; i++) {
    if (raw->settings[i].name == name) return raw->settings[i].value;
  }
  return BRIM_LAB_NONE;
}

// The values that a preset gives are not stored. So if an experiment has a preset, only repetitions (the seed) are
// known to be at their defaults.
static uint32_t usual_value(const finder *f, uint32_t name, bool preset) {
  return preset && !f->columns[name].over ? BRIM_LAB_NONE : f->usual[name];
}

static bool has_preset(const finder *f, size_t exp) {
  return f->preset != BRIM_LAB_NONE && given_value(f, exp, f->preset) != BRIM_LAB_NONE;
}

// Fills f->row. A value of the config wins over one of the label, which may be spelled differently.
static void read_row(const finder *f, size_t exp) {
  const brim_lab_raw *raw = &f->reader->raws[exp];
  const bool preset = has_preset(f, exp);
  const size_t names = f->reader->names.count;
  for (size_t n = 0; n < names; n++) f->row[n] = usual_value(f, (uint32_t)n, preset);
  for (size_t i = raw->count; i-- > 0;) f->row[raw->settings[i].name] = raw->settings[i].value;
}

// Finds the experiments' own spelling of the number `usual`. Returns `usual` if no experiment has it.
static uint32_t spelling_of(const finder *f, uint32_t name, uint32_t usual) {
  const brim_lab_reader *r = f->reader;
  double number, other;
  if (!brim_parse_f64(r->values.list[usual], &number)) return usual;
  for (size_t i = 0; i < r->set.count; i++) {
    const uint32_t value = given_value(f, i, name);
    if (value != BRIM_LAB_NONE && brim_parse_f64(r->values.list[value], &other) &&
        other == number) {
      return value;
    }
  }
  return usual;
}

static brim_status find_defaults(finder *f) {
  static const char *const seed[] = {"seed", NULL};
  brim_lab_reader *r = f->reader;
  const size_t names = r->names.count;
  f->preset = BRIM_LAB_NONE;
  for (size_t name = 0; name < names; name++) {
    const char *text =
        r->options.default_of ? r->options.default_of(r->options.ctx, r->names.list[name]) : NULL;
    f->usual[name] = BRIM_LAB_NONE;
    f->columns[name].ignored = is_listed(r->options.ignored, r->names.list[name]);
    f->columns[name].over =
        is_listed(r->options.over ? r->options.over : seed, r->names.list[name]);
    if (strcmp(r->names.list[name], "preset") == 0) f->preset = (uint32_t)name;
    if (!text || !text[0]) continue;
    const uint32_t usual = brim_lab_text(&r->values, r->arena, text, strlen(text));
    if (usual == BRIM_LAB_NONE) return no_memory();
    f->usual[name] = spelling_of(f, (uint32_t)name, usual);
  }
  return BRIM_OK;
}

static void put_order(finder *f, bool axes) {
  const brim_lab_reader *r = f->reader;
  for (size_t i = 0; i < r->set.count; i++) {
    for (size_t k = 0; k < r->raws[i].count; k++) {
      const brim_lab_setting *s = &r->raws[i].settings[k];
      column *c = &f->columns[s->name];
      if (axes && s->axis && !c->axis) {
        c->axis = true;
        f->order[f->order_count++] = s->name;
      }
    }
  }
  for (size_t name = 0; !axes && name < r->names.count; name++) {
    if (!f->columns[name].axis) f->order[f->order_count++] = (uint32_t)name;
  }
}

static void read_columns(finder *f) {
  const brim_lab_reader *r = f->reader;
  const size_t names = r->names.count;
  for (size_t i = 0; i < r->set.count; i++) {
    read_row(f, i);
    for (size_t name = 0; name < names; name++) {
      column *c = &f->columns[name];
      if (f->row[name] == BRIM_LAB_NONE) continue;
      if (c->count++ == 0) c->first = f->row[name];
      if (c->first != f->row[name]) c->differs = true;
    }
  }
  for (size_t name = 0; name < names; name++) {
    column *c = &f->columns[name];
    if (c->count < r->set.count) c->differs = true;
  }
  put_order(f, true);
  put_order(f, false);
}

//---------------------------------- which settings ----------------------------------

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

// A hash table of experiments: each slot has 1 + the first experiment with its hash; 0 = free.
typedef struct firsts {
  size_t *slots;
  size_t count;
} firsts;

static bool firsts_init(firsts *t, size_t experiments) {
  t->count = 16;
  while (t->count < 2 * experiments) t->count *= 2;
  t->slots = brim_calloc(t->count, sizeof *t->slots);
  return t->slots;
}

// Returns the first experiment with the same hash.
static size_t first_of(firsts *t, const uint64_t *hashes, size_t exp) {
  size_t at = (size_t)(hashes[exp] >> 7) & (t->count - 1);
  while (t->slots[at] && hashes[t->slots[at] - 1] != hashes[exp]) at = (at + 1) & (t->count - 1);
  if (!t->slots[at]) t->slots[at] = exp + 1;
  return t->slots[at] - 1;
}

static uint32_t value_of(const finder *f, size_t exp, uint32_t name) {
  const uint32_t value = given_value(f, exp, name);
  return value != BRIM_LAB_NONE ? value : usual_value(f, name, has_preset(f, exp));
}

// *out: experiments with equal values of the chosen settings also have equal values of this one.
static brim_status is_derived(const finder *f, uint32_t name, bool *out) {
  firsts t;
  if (!firsts_init(&t, f->reader->set.count)) return no_memory();
  *out = true;
  for (size_t i = 0; i < f->reader->set.count && *out; i++) {
    const size_t first = first_of(&t, f->hashes, i);
    *out = first == i || value_of(f, first, name) == value_of(f, i, name);
  }
  brim_free(t.slots);
  return BRIM_OK;
}

static void choose(finder *f, uint32_t name) {
  f->columns[name].chosen = true;
  f->chosen[f->chosen_count++] = name;
  for (size_t i = 0; i < f->reader->set.count; i++) {
    f->hashes[i] = mix(f->hashes[i], value_of(f, i, name) + (uint64_t)1);
  }
}

static brim_status choose_keys(finder *f) {
  for (size_t i = 0; i < f->order_count; i++) {
    const column *c = &f->columns[f->order[i]];
    bool derived = false;
    if (!c->differs || c->ignored) continue;
    if (!c->axis) BRIM_TRY(is_derived(f, f->order[i], &derived));
    if (derived) continue;
    if (f->chosen_count < BRIM_LAB_KEYS) {
      choose(f, f->order[i]);
    } else {
      f->reader->set.keys_left_out++;
    }
  }
  return BRIM_OK;
}

//---------------------------------- the result ----------------------------------

static void describe(const finder *f, size_t index, uint8_t *seen, brim_lab_key *out) {
  const brim_lab_reader *r = f->reader;
  const uint32_t name = f->chosen[index];
  double number;
  *out = (brim_lab_key){.name = r->names.list[name], .number = true, .over = f->columns[name].over};
  memset(seen, 0, r->values.count);
  for (size_t i = 0; i < r->set.count; i++) {
    const uint32_t value = value_of(f, i, name);
    r->set.exps[i].values[index] = value == BRIM_LAB_NONE ? NULL : r->values.list[value];
    if (value == BRIM_LAB_NONE || seen[value]) continue;
    seen[value] = 1;
    out->distinct++;
    if (!brim_parse_f64(r->values.list[value], &number) || !isfinite(number)) out->number = false;
  }
}

static brim_status put_keys(finder *f) {
  brim_lab_reader *r = f->reader;
  brim_lab_set *set = &r->set;
  const size_t n = f->chosen_count;
  brim_lab_key *keys = brim_arena_calloc(r->arena, n + 1, sizeof *keys);
  const char **values = brim_arena_calloc(r->arena, n * set->count + 1, sizeof *values);
  uint8_t *seen = brim_alloc(r->values.count + 1);
  const bool all = keys && values && seen;
  for (size_t i = 0; all && i < set->count; i++) set->exps[i].values = values + i * n;
  for (size_t i = 0; all && i < n; i++) describe(f, i, seen, &keys[i]);
  brim_free(seen);
  if (!all) return no_memory();
  set->keys = keys;
  set->key_count = n;
  return BRIM_OK;
}

static brim_status put_common(finder *f) {
  brim_lab_reader *r = f->reader;
  brim_lab_pair *common = brim_arena_calloc(r->arena, r->names.count + 1, sizeof *common);
  if (!common) return no_memory();
  r->set.common = common;
  for (size_t name = 0; name < r->names.count; name++) {
    const column *c = &f->columns[name];
    if (c->differs || c->ignored || c->count == 0) continue;
    common[r->set.common_count++] = (brim_lab_pair){r->names.list[name], r->values.list[c->first]};
  }
  return BRIM_OK;
}

// Fills keys and common settings of the set.
static brim_status brim_lab_find_keys(brim_lab_reader *r) {
  const size_t names = r->names.count + 1;
  finder f = {.reader = r,
              .columns = brim_calloc(names, sizeof *f.columns),
              .row = brim_calloc(names, sizeof *f.row),
              .usual = brim_calloc(names, sizeof *f.usual),
              .chosen = brim_calloc(BRIM_LAB_KEYS, sizeof *f.chosen),
              .order = brim_calloc(names, sizeof *f.order),
              .hashes = brim_calloc(r->set.count + 1, sizeof *f.hashes)};
  brim_status status =
      f.columns && f.row && f.usual && f.chosen && f.order && f.hashes ? BRIM_OK : no_memory();
  if (!status) status = find_defaults(&f);
  if (!status) {
    read_columns(&f);
    status = choose_keys(&f);
  }
  if (!status) status = put_keys(&f);
  if (!status) status = put_common(&f);
  brim_free(f.columns);
  brim_free(f.row);
  brim_free(f.usual);
  brim_free(f.chosen);
  brim_free(f.order);
  brim_free(f.hashes);
  return status;
}

//-------------------------------------------- groups --------------------------------------------
// Groups experiments that repeat each other, with mean and deviation, and completes the set.

//---------------------------------- statistics ----------------------------------

void brim_lab_stats_of(const double *values, size_t count, brim_lab_stats *out) {
  *out = (brim_lab_stats){.mean = (double)NAN,
                          .stddev = (double)NAN,
                          .low = (double)NAN,
                          .high = (double)NAN,
                          .least = (double)NAN,
                          .most = (double)NAN};
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(values[i])) continue;
    sum += values[i];
    if (out->n == 0 || values[i] < out->least) out->least = values[i];
    if (out->n == 0 || values[i] > out->most) out->most = values[i];
    out->n++;
  }
  if (out->n == 0) return;
  out->mean = sum / (double)out->n;
  for (size_t i = 0; i < count; i++) {
    if (isfinite(values[i])) squares += (values[i] - out->mean) * (values[i] - out->mean);
  }
  if (out->n < 2) return;
  const double df = (double)(out->n - 1);
  out->stddev = sqrt(squares / df);
  const double half = brim_stats_t95(df) * out->stddev / sqrt((double)out->n);
  out->low = out->mean - half;
  out->high = out->mean + half;
}

const brim_lab_stats *brim_lab_group_stats(const brim_lab_group *group, brim_lab_result result) {
  return result == BRIM_LAB_BEST ? &group->best : &group->last;
}

int brim_lab_rank_order(const brim_lab_rank *a, const brim_lab_rank *b, brim_metric_better better) {
  if (isnan(a->mean) || isnan(b->mean)) return isnan(a->mean) - isnan(b->mean);
  const bool lacks_a = a->results < a->count, lacks_b = b->results < b->count;
  if (lacks_a != lacks_b) return lacks_a - lacks_b;
  const int order = (a->mean > b->mean) - (a->mean < b->mean);
  return better == BRIM_BETTER_LOWER ? order : better == BRIM_BETTER_HIGHER ? -order : 0;
}

brim_lab_rank brim_lab_group_rank(const brim_lab_group *group, brim_lab_result result) {
  const brim_lab_stats *stats = brim_lab_group_stats(group, result);
  return (brim_lab_rank){stats->mean, stats->n, group->count};
}

double brim_lab_exp_result(const brim_lab_exp *exp, brim_lab_result result) {
  return result == BRIM_LAB_BEST && !isnan(exp->best) ? exp->best : exp->last;
}

brim_metric_better brim_lab_better(const brim_lab_set *set, const char *metric_key) {
  for (size_t i = 0; i < set->metric_count; i++) {
    if (strcmp(set->metrics[i].key, metric_key) == 0) return set->metrics[i].better;
  }
  return BRIM_BETTER_NEITHER;
}

const brim_sweep_metric *brim_lab_display(const brim_lab_set *set, const char *metric_key) {
  for (size_t i = 0; i < set->metric_count; i++) {
    const brim_lab_metric *m = &set->metrics[i];
    if (strcmp(m->key, metric_key) == 0) return m->declared ? &m->display : NULL;
  }
  return NULL;
}

const char *brim_lab_value(const brim_lab_set *set, const brim_lab_exp *exp, const char *key) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (strcmp(set->keys[i].name, key) == 0) return exp->values[i];
  }
  for (size_t i = 0; i < set->common_count; i++) {
    if (strcmp(set->common[i].name, key) == 0) return set->common[i].value;
  }
  return NULL;
}

//---------------------------------- groups ----------------------------------

// An experiment as qsort sees it. Sorting puts the experiments of a group next to each other, in order of
// submission.
typedef struct member {
  const brim_lab_set *set;
  size_t exp;
} member;

static int compare_texts(const char *a, const char *b) {
  // Each text is stored once, so equal texts have equal pointers.
  if (a == b) return 0;
  if (!a || !b) return a ? 1 : -1;
  return strcmp(a, b);
}

static int compare_groups(const member *x, const member *y) {
  const brim_lab_exp *a = &x->set->exps[x->exp], *b = &y->set->exps[y->exp];
  int order = compare_texts(a->metric_key, b->metric_key);
  for (size_t i = 0; i < x->set->key_count && !order; i++) {
    if (!x->set->keys[i].over) order = compare_texts(a->values[i], b->values[i]);
  }
  return order;
}

static int by_group(const void *a, const void *b) {
  const member *x = a, *y = b;
  const int order = compare_groups(x, y);
  return order ? order : (x->exp > y->exp) - (x->exp < y->exp);
}

static int by_first(const void *a, const void *b) {
  const brim_lab_group *x = a, *y = b;
  return (x->members[0] > y->members[0]) - (x->members[0] < y->members[0]);
}

static brim_status put_label(brim_lab_reader *r, brim_lab_group *g) {
  brim_str text;
  brim_str_init(&text);
  const brim_lab_exp *first = &r->set.exps[g->members[0]];
  for (size_t i = 0; i < r->set.key_count; i++) {
    if (r->set.keys[i].over || !first->values[i]) continue;
    brim_str_printf(&text, "%s%s=%s", text.len ? " " : "", r->set.keys[i].name, first->values[i]);
  }
  brim_status status = brim_str_status(&text);
  if (!status && !(g->label = brim_arena_strdup(r->arena, text.data))) status = no_memory();
  brim_str_deinit(&text);
  return status;
}

static void put_stats(const brim_lab_set *set, brim_lab_group *g, double *values) {
  for (int result = 0; result < BRIM_LAB_RESULT_COUNT; result++) {
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++) {
      const brim_lab_exp *e = &set->exps[g->members[i]];
      if (e->done) values[n++] = brim_lab_exp_result(e, (brim_lab_result)result);
    }
    brim_lab_stats *stats = result == BRIM_LAB_BEST ? &g->best : &g->last;
    g->done = n;
    brim_lab_stats_of(values, n, stats);
    // Student's t knows no bounds, so clamp the interval of a share to 0..1.
    const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
    if (n > 1 && display && display->format == BRIM_METRIC_PERCENT) {
      if (stats->least >= 0) stats->low = fmax(stats->low, 0);
      if (stats->most <= 1) stats->high = fmin(stats->high, 1);
    }
  }
}

// `members` are sorted by group.
static brim_status put_groups(brim_lab_reader *r, const member *members, double *values) {
  brim_lab_set *set = &r->set;
  size_t *list = brim_arena_calloc(r->arena, set->count + 1, sizeof *list);
  brim_lab_group *groups = brim_arena_calloc(r->arena, set->count + 1, sizeof *groups);
  if (!list || !groups) return no_memory();
  for (size_t i = 0; i < set->count; i++) {
    if (i == 0 || compare_groups(&members[i - 1], &members[i]) != 0) {
      groups[set->group_count++] =
          (brim_lab_group){.members = list + i, .metric_key = set->exps[members[i].exp].metric_key};
    }
    list[i] = members[i].exp;
    groups[set->group_count - 1].count++;
  }
  if (set->group_count) qsort(groups, set->group_count, sizeof *groups, by_first);
  for (size_t g = 0; g < set->group_count; g++) {
    for (size_t i = 0; i < groups[g].count; i++) set->exps[groups[g].members[i]].group = g;
    put_stats(set, &groups[g], values);
    BRIM_TRY(put_label(r, &groups[g]));
  }
  set->groups = groups;
  return BRIM_OK;
}

static brim_status brim_lab_find_groups(brim_lab_reader *r) {
  const size_t count = r->set.count;
  member *members = brim_calloc(count + 1, sizeof *members);
  double *values = brim_calloc(count + 1, sizeof *values);
  brim_status status = members && values ? BRIM_OK : no_memory();
  for (size_t i = 0; !status && i < count; i++) members[i] = (member){&r->set, i};
  if (!status && count) qsort(members, count, sizeof *members, by_group);
  if (!status) status = put_groups(r, members, values);
  brim_free(members);
  brim_free(values);
  return status;
}

//---------------------------------- the set ----------------------------------

typedef struct ranked {
  brim_lab_metric metric;
  size_t old_index;
  size_t decides;  // experiments that have it as metric_key
} ranked;

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->decides != y->decides) return x->decides > y->decides ? -1 : 1;
  const bool left = x->metric.better != BRIM_BETTER_NEITHER;
  const bool right = y->metric.better != BRIM_BETTER_NEITHER;
  if (left != right) return left ? -1 : 1;
  return strcmp(x->metric.key, y->metric.key);
}

static void order_metrics(brim_lab_set *set) {
  ranked list[BRIM_LAB_METRICS];
  size_t new_index[BRIM_LAB_METRICS];
  for (size_t i = 0; i < set->metric_count; i++) {
    list[i] = (ranked){set->metrics[i], i, 0};
    for (size_t k = 0; k < set->count; k++) {
      list[i].decides += strcmp(set->exps[k].metric_key, set->metrics[i].key) == 0;
    }
  }
  if (set->metric_count) qsort(list, set->metric_count, sizeof *list, by_rank);
  for (size_t i = 0; i < set->metric_count; i++) {
    new_index[list[i].old_index] = i;
    set->metrics[i] = list[i].metric;
  }
  for (size_t i = 0; i < set->count; i++) {
    brim_lab_exp *e = &set->exps[i];
    for (size_t k = 0; k < e->curve_count; k++)
      e->curves[k].metric = new_index[e->curves[k].metric];
  }
}

brim_status brim_lab_reader_finish(brim_lab_reader *r, const brim_lab_set **out) {
  *out = NULL;
  order_metrics(&r->set);
  BRIM_TRY(brim_lab_find_keys(r));
  BRIM_TRY(brim_lab_find_groups(r));
  *out = &r->set;
  return BRIM_OK;
}

//------------------------------------------ comparison ------------------------------------------
// Compares two sets of experiments, or the groups of one set: which settings have a partner, how far their results
// are apart, and whether that is more than repetitions differ.

static brim_status compare_no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while comparing experiments");
}

const char *brim_lab_verdict_name(brim_lab_verdict verdict) {
  static const char *const names[BRIM_LAB_VERDICT_COUNT] = {
      [BRIM_LAB_UNKNOWN] = "unknown",     [BRIM_LAB_ONCE] = "once",
      [BRIM_LAB_BETTER] = "better",       [BRIM_LAB_WORSE] = "worse",
      [BRIM_LAB_OPEN] = "open",           [BRIM_LAB_A_MISSING] = "a_missing",
      [BRIM_LAB_B_MISSING] = "b_missing", [BRIM_LAB_BOTH_MISSING] = "both_missing"};
  return (unsigned)verdict < BRIM_LAB_VERDICT_COUNT ? names[verdict] : "unknown";
}

//---------------------------------- differences ----------------------------------

static brim_lab_verdict decide(double low, double high, brim_metric_better better) {
  if (low <= 0 && high >= 0) return BRIM_LAB_OPEN;
  if (better == BRIM_BETTER_NEITHER) return BRIM_LAB_UNKNOWN;
  return (low > 0) == (better == BRIM_BETTER_HIGHER) ? BRIM_LAB_BETTER : BRIM_LAB_WORSE;
}

// Student's t for fractional degrees of freedom: interpolated in 1 / df between the whole numbers around.
static double t_between(double df) {
  const double below = fmax(1, floor(df)), above = below + 1;
  const double share = (1 / fmax(1, df) - 1 / above) / (1 / below - 1 / above);
  return brim_stats_t95(above) + share * (brim_stats_t95(below) - brim_stats_t95(above));
}

// Half the 95 % interval by Welch's test, since the two sides may spread differently.
static double half_width(const brim_lab_stats *a, const brim_lab_stats *b) {
  const double va = a->stddev * a->stddev / (double)a->n;
  const double vb = b->stddev * b->stddev / (double)b->n;
  if (!(va + vb > 0)) return 0;
  const double df =
      (va + vb) * (va + vb) / (va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1));
  return t_between(df) * sqrt(va + vb);
}

brim_lab_verdict brim_lab_differ(const brim_lab_stats *a, const brim_lab_stats *b,
                                 brim_metric_better better, brim_lab_difference *out) {
  *out = (brim_lab_difference){(double)NAN, (double)NAN, (double)NAN};
  if (a->n == 0 || b->n == 0) {
    return a->n > 0 ? BRIM_LAB_B_MISSING : b->n > 0 ? BRIM_LAB_A_MISSING : BRIM_LAB_BOTH_MISSING;
  }
  out->mean = b->mean - a->mean;
  if (a->n < 2 || b->n < 2) return BRIM_LAB_ONCE;
  const double half = half_width(a, b);
  out->low = out->mean - half;
  out->high = out->mean + half;
  return decide(out->low, out->high, better);
}

static void measure(brim_lab_match *m, brim_lab_result result, brim_metric_better better) {
  m->a_stats = *brim_lab_group_stats(m->a, result);
  m->b_stats = *brim_lab_group_stats(m->b, result);
  m->metric_key = m->a->metric_key;
  m->verdict = brim_lab_differ(&m->a_stats, &m->b_stats, better, &m->difference);
}

// Half the 95 % interval of the mean difference, from the spread of repetitions; NaN if a match has too few.
static double half_width_within(const brim_lab_comparison *c) {
  double sum = 0, freedom = 0, points = 0;
  for (size_t i = 0; i < c->count; i++) {
    const brim_lab_match *m = &c->matches[i];
    if (isnan(m->difference.mean)) continue;
    if (m->a_stats.n < 2 || m->b_stats.n < 2) return (double)NAN;
    const double na = (double)m->a_stats.n, nb = (double)m->b_stats.n;
    const double va = m->a_stats.stddev * m->a_stats.stddev / na;
    const double vb = m->b_stats.stddev * m->b_stats.stddev / nb;
    sum += va + vb;
    freedom += va * va / (na - 1) + vb * vb / (nb - 1);
    points++;
  }
  if (!(freedom > 0)) return (double)NAN;
  return t_between(sum * sum / freedom) * sqrt(sum) / points;
}

// Computes the overall difference. Each match is one difference, whatever the number of repetitions behind it. A
// few differences may agree by chance, so the interval is never narrower than the repetitions allow.
static brim_status measure_all(brim_lab_comparison *c, brim_metric_better better) {
  double *list = brim_calloc(c->count + 1, sizeof *list);
  if (!list) return compare_no_memory();
  bool same = true;
  for (size_t i = 0; i < c->count; i++) {
    list[i] = c->matches[i].difference.mean;
    same = same && strcmp(c->matches[i].metric_key, c->matches[0].metric_key) == 0;
  }
  brim_lab_stats_of(list, same && !c->several_values ? c->count : 0, &c->overall);
  brim_free(list);
  const double within = half_width_within(c);
  if (c->overall.n >= 2 && within > c->overall.high - c->overall.mean) {
    c->overall.low = c->overall.mean - within;
    c->overall.high = c->overall.mean + within;
  }
  c->verdict = c->overall.n == 0  ? BRIM_LAB_BOTH_MISSING
               : c->overall.n < 2 ? BRIM_LAB_ONCE
                                  : decide(c->overall.low, c->overall.high, better);
  return BRIM_OK;
}

//---------------------------------- partners ----------------------------------

// The settings in which partners must agree.
typedef struct keys {
  const char *names[2 * BRIM_LAB_KEYS];
  size_t count;
} keys;

static void add_keys(keys *k, const brim_lab_set *set, const char *except) {
  for (size_t i = 0; i < set->key_count; i++) {
    bool known = set->keys[i].over || (except && strcmp(set->keys[i].name, except) == 0);
    for (size_t j = 0; j < k->count && !known; j++) {
      known = strcmp(k->names[j], set->keys[i].name) == 0;
    }
    if (!known) k->names[k->count++] = set->keys[i].name;
  }
}

static const char *compare_value_of(const brim_lab_set *set, const brim_lab_group *g,
                                    const char *key) {
  return brim_lab_value(set, &set->exps[g->members[0]], key);
}

// Writes the metric and the values of all keys as one text, each after its length.
static brim_status signature(const keys *k, const brim_lab_set *set, const brim_lab_group *g,
                             brim_str *out) {
  brim_str_clear(out);
  brim_str_printf(out, "%zu %s", strlen(g->metric_key), g->metric_key);
  for (size_t i = 0; i < k->count; i++) {
    const char *value = compare_value_of(set, g, k->names[i]);
    if (value) brim_str_printf(out, "%zu %s", strlen(value), value);
    if (!value) brim_str_append(out, "-");
  }
  return brim_str_status(out);
}

// Groups by signature: `texts` numbers the signatures, `groups` has the first group of each number.
typedef struct group_index {
  brim_arena *arena;
  brim_lab_texts texts;
  const brim_lab_group **groups;
  brim_str text;
} group_index;

// `count`: number of groups that will be added or looked up.
static brim_status index_open(group_index *x, size_t count) {
  *x = (group_index){0};
  brim_str_init(&x->text);
  x->groups = brim_calloc(count + 1, sizeof *x->groups);
  if (!x->groups) return compare_no_memory();
  return brim_arena_create(0, &x->arena);
}

static void index_close(group_index *x) {
  brim_lab_texts_deinit(&x->texts);
  brim_arena_destroy(x->arena);
  brim_str_deinit(&x->text);
  brim_free(x->groups);
}

static brim_status index_add(group_index *x, const keys *k, const brim_lab_set *set,
                             const brim_lab_group *g) {
  BRIM_TRY(signature(k, set, g, &x->text));
  const uint32_t number = brim_lab_text(&x->texts, x->arena, x->text.data, x->text.len);
  if (number == BRIM_LAB_NONE) return compare_no_memory();
  if (!x->groups[number]) x->groups[number] = g;
  return BRIM_OK;
}

// Finds the partner of a group; *out NULL = it has none.
static brim_status index_find(group_index *x, const keys *k, const brim_lab_set *set,
                              const brim_lab_group *g, const brim_lab_group **out) {
  BRIM_TRY(signature(k, set, g, &x->text));
  const uint32_t number = brim_lab_text(&x->texts, x->arena, x->text.data, x->text.len);
  if (number == BRIM_LAB_NONE) return compare_no_memory();
  *out = x->groups[number];
  return BRIM_OK;
}

//---------------------------------- matching ----------------------------------

typedef struct matching {
  const brim_lab_set *a, *b;
  brim_lab_result result;
  keys keys;
  group_index index;  // the groups of set A
  brim_lab_comparison *out;
  brim_metric_better better;
} matching;

static brim_status open_matching(matching *m) {
  *m->out = (brim_lab_comparison){0};
  BRIM_TRY(index_open(&m->index, m->a->group_count + m->b->group_count));
  m->out->matches = brim_calloc(m->b->group_count + 1, sizeof *m->out->matches);
  return m->out->matches ? BRIM_OK : compare_no_memory();
}

static brim_status match(matching *m, const brim_lab_group *b) {
  const brim_lab_group *a = NULL;
  BRIM_TRY(index_find(&m->index, &m->keys, m->b, b, &a));
  m->out->only_b += !a;
  if (!a) return BRIM_OK;
  brim_lab_match *pair = &m->out->matches[m->out->count++];
  *pair = (brim_lab_match){.a = a, .b = b, .label = b->label[0] ? b->label : a->label};
  m->better = brim_lab_better(m->b, b->metric_key);
  measure(pair, m->result, m->better);
  return BRIM_OK;
}

static brim_status close_matching(matching *m, brim_status status) {
  index_close(&m->index);
  if (!status) status = measure_all(m->out, m->better);
  if (status) brim_lab_comparison_deinit(m->out);
  return status;
}

brim_status brim_lab_compare(const brim_lab_set *a, const brim_lab_set *b, brim_lab_result result,
                             brim_lab_comparison *out) {
  matching m = {.a = a, .b = b, .result = result, .out = out};
  add_keys(&m.keys, a, NULL);
  add_keys(&m.keys, b, NULL);
  brim_status status = open_matching(&m);
  for (size_t i = 0; i < a->group_count && !status; i++) {
    status = index_add(&m.index, &m.keys, a, &a->groups[i]);
  }
  for (size_t i = 0; i < b->group_count && !status; i++) status = match(&m, &b->groups[i]);
  if (!status && out->count == 0) {
    status = brim_fail(BRIM_EINVAL, "the two stores have no setting in common");
  }
  out->only_a = a->group_count - out->count;
  return close_matching(&m, status);
}

static const brim_lab_key *find_key(const brim_lab_set *set, const char *name) {
  const brim_lab_key *found = NULL;
  const size_t n = strlen(name);
  for (size_t i = 0; i < set->key_count; i++) {
    const char *full = set->keys[i].name;
    if (strcmp(full, name) == 0) return &set->keys[i];
    // "batch_size" also finds data.batch_size
    const size_t length = strlen(full);
    if (length > n && full[length - n - 1] == '.' && strcmp(full + length - n, name) == 0) {
      found = &set->keys[i];
    }
  }
  return found;
}

static brim_status unknown_key(const brim_lab_set *set, const char *key) {
  brim_str all;
  brim_str_init(&all);
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over) continue;
    brim_str_printf(&all, "%s%s", all.len ? ", " : "", set->keys[i].name);
  }
  brim_status status =
      brim_fail(BRIM_EINVAL, "the experiments do not differ in '%.60s'; they differ in %.300s", key,
                all.len ? all.data : "-");
  brim_str_deinit(&all);
  return status;
}

brim_status brim_lab_compare_by(const brim_lab_set *set, const char *name, brim_lab_result result,
                                brim_lab_comparison *out) {
  const brim_lab_key *key = find_key(set, name);
  *out = (brim_lab_comparison){0};
  if (!key || key->over) return unknown_key(set, name);
  matching m = {.a = set, .b = set, .result = result, .out = out};
  add_keys(&m.keys, set, key->name);
  const char *base = compare_value_of(set, &set->groups[0], key->name), *other = NULL;
  brim_status status = open_matching(&m);
  for (int b = 0; b < 2; b++) {  // first the groups with the first value, then the others
    for (size_t i = 0; i < set->group_count && !status; i++) {
      const brim_lab_group *g = &set->groups[i];
      // equal texts have one address
      const bool is_base = compare_value_of(set, g, key->name) == base;
      if (is_base && !b) status = index_add(&m.index, &m.keys, set, g);
      if (is_base || !b) continue;
      const char *value = compare_value_of(set, g, key->name);
      out->several_values = out->several_values || (other && value != other);
      other = value;
      status = match(&m, g);
    }
  }
  if (!status && out->count == 0) {
    status = brim_fail(BRIM_EINVAL, "no two groups of experiments differ in %s alone", key->name);
  }
  return close_matching(&m, status);
}

void brim_lab_comparison_deinit(brim_lab_comparison *comparison) {
  brim_free(comparison->matches);
  *comparison = (brim_lab_comparison){0};
}
