// Reads curves from log.jsonl line by line, so that a long or damaged log needs no more memory.
#include "record/record_curves.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

// MAX_LINE: bytes of the longest line that is read; brim's own lines have about 2,000.
enum { MAX_LINE = 1 << 20, CHUNK = 1 << 16 };
// Larger numbers are damage, not values that can be drawn.
static const double most = 1e100;
static const int64_t most_steps = (int64_t)1 << 53;

//---------------------------------- thinning out ----------------------------------

// A stretch of a curve: its lowest and its highest point, in the order of their steps.
typedef struct stretch {
  brim_curve_point first, second;
} stretch;

typedef struct thinned {
  const brim_metric *row;
  char column[BRIM_METRIC_NAME], baseline_column[BRIM_METRIC_NAME];  // "" = none
  stretch list[BRIM_CURVE_STRETCHES];
  size_t count;
  int64_t stretch_points, last_points;  // points per stretch; points in the last stretch so far
  brim_curve_point first, last, marked;
  bool any, has_marked;
  double highest, baseline;
} thinned;

static stretch merge(const stretch *a, const stretch *b) {
  const brim_curve_point all[] = {a->first, a->second, b->first, b->second};
  int low = 0, high = 0;
  for (int i = 1; i < 4; i++) {
    if (all[i].value < all[low].value) low = i;
    if (all[i].value > all[high].value) high = i;
  }
  return low < high ? (stretch){all[low], all[high]} : (stretch){all[high], all[low]};
}

static void halve(thinned *t) {
  for (size_t i = 0; i < BRIM_CURVE_STRETCHES / 2; i++) {
    t->list[i] = merge(&t->list[2 * i], &t->list[2 * i + 1]);
  }
  t->count = BRIM_CURVE_STRETCHES / 2;
  t->stretch_points *= 2;
  t->last_points = t->stretch_points;
}

// Forgets all points logged from `step` on.
static void take_back(thinned *t, int64_t step) {
  if (t->first.step >= step) {
    t->count = 0;
    t->any = t->has_marked = false;
    t->stretch_points = 1;
    return;
  }
  if (t->has_marked && t->marked.step >= step) t->has_marked = false;
  while (t->count > 0 && t->list[t->count - 1].first.step >= step) t->count--;
  t->last_points = t->stretch_points;
  t->last = t->first;
  if (t->count == 0) return;
  stretch *end = &t->list[t->count - 1];
  if (end->second.step >= step) end->second = end->first;
  t->last = end->second;
}

static void add(thinned *t, int64_t step, double value, int64_t marked) {
  const brim_curve_point p = {step, value};
  if (t->any && step <= t->last.step) take_back(t, step);
  if (!t->any) t->first = p, t->any = true, t->last_points = t->stretch_points;
  t->last = p;
  if (step == marked) t->marked = p, t->has_marked = true;
  const stretch one = {p, p};
  if (t->count > 0 && t->last_points < t->stretch_points) {
    t->list[t->count - 1] = merge(&t->list[t->count - 1], &one);
    t->last_points++;
    return;
  }
  if (t->count == BRIM_CURVE_STRETCHES) halve(t);
  t->list[t->count++] = one;
  t->last_points = 1;
}

// Inserts a point at its step, unless the curve has a point of this step.
static void insert(brim_curve *c, brim_curve_point p) {
  size_t at = 0;
  while (at < c->count && c->points[at].step < p.step) at++;
  if (at < c->count && c->points[at].step == p.step) return;
  memmove(&c->points[at + 1], &c->points[at], (c->count - at) * sizeof *c->points);
  c->points[at] = p;
  c->count++;
}

static brim_status finish(const thinned *t, brim_curve *out) {
  out->row = t->row;
  out->baseline = t->baseline;
  out->count = 0;
  out->points = brim_calloc(BRIM_CURVE_POINTS, sizeof *out->points);
  if (!out->points) return brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
  for (size_t i = 0; i < t->count; i++) {
    insert(out, t->list[i].first);
    insert(out, t->list[i].second);
  }
  insert(out, t->first);
  insert(out, t->last);
  if (t->has_marked) insert(out, t->marked);
  return BRIM_OK;
}

//---------------------------------- lines ----------------------------------

typedef struct reader {
  thinned *list;
  size_t count;
  int64_t marked;
  brim_str line;
  bool too_long;  // the line that is being read
} reader;

static bool number_of(const json_t *object, const char *key, double *out) {
  const json_t *value = key[0] ? json_object_get(object, key) : NULL;
  if (!json_is_number(value)) return false;
  *out = json_number_value(value);
  return isfinite(*out) && fabs(*out) <= most;
}

static void take(reader *r, const json_t *line) {
  const char *event = json_string_value(json_object_get(line, "event"));
  const json_t *at = json_object_get(line, "step");
  if (!event || strcmp(event, "epoch") != 0 || !json_is_integer(at)) return;
  const int64_t step = (int64_t)json_integer_value(at);
  if (step < 0 || step > most_steps) return;
  for (size_t i = 0; i < r->count; i++) {
    thinned *t = &r->list[i];
    double value;
    if (number_of(line, t->baseline_column, &value)) t->baseline = value;
    if (!number_of(line, t->column, &value)) continue;
    add(t, step, value, r->marked);
    t->highest = fmax(t->highest, value);
  }
}

static brim_status end_line(reader *r) {
  brim_status status = brim_str_status(&r->line);
  // Most lines report a few steps. Only lines about epochs are parsed.
  if (!status && !r->too_long && r->line.len > 0 && strstr(r->line.data, "\"epoch\"")) {
    json_t *line = NULL;
    status = brim_json_parse(r->line.data, r->line.len, "log.jsonl", &line);
    if (!status) take(r, line);
    json_decref(line);
    if (status && status != BRIM_ENOMEM) {  // a damaged line
      brim_status_clear();
      status = BRIM_OK;
    }
  }
  brim_str_clear(&r->line);
  r->too_long = false;
  return status;
}

static brim_status take_bytes(reader *r, const char *bytes, size_t size) {
  while (size > 0) {
    const char *end = memchr(bytes, '\n', size);
    const size_t n = end ? (size_t)(end - bytes) : size;
    if (r->line.len + n > MAX_LINE) r->too_long = true;
    if (!r->too_long) brim_str_append_n(&r->line, bytes, n);
    if (!end) break;
    BRIM_TRY(end_line(r));
    bytes += n + 1;
    size -= n + 1;
  }
  return brim_str_status(&r->line);
}

static brim_status read_file(reader *r, const char *path) {
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  char *chunk = brim_alloc(CHUNK);
  brim_status status =
      chunk ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
  while (!status) {
    const ssize_t n = read(fd, chunk, CHUNK);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      status = brim_fail(BRIM_EIO, "cannot read %s: %s", path, brim_errno_text(errno));
    }
    if (n <= 0) break;
    status = take_bytes(r, chunk, (size_t)n);
  }
  if (!status) status = end_line(r);
  brim_free(chunk);
  close(fd);
  return status;
}

//---------------------------------- a run ----------------------------------

// Reads log.jsonl, then log.1.jsonl, ..., each newer than the file before.
static brim_status read_folder(reader *r, const char *folder) {
  for (int number = 0;; number++) {
    char name[32] = "log.jsonl";
    if (number > 0) snprintf(name, sizeof name, "log.%d.jsonl", number);
    char *path = brim_fs_join(folder, name);
    if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
    const bool there = brim_fs_exists(path);
    brim_status status = there ? read_file(r, path) : BRIM_OK;
    brim_free(path);
    if (status || !there) return status;
  }
}

// True for a row with a place of its own in evaluation lines, not one shown as the spread of another row.
static bool is_shown(const brim_metric *row) {
  const unsigned lines =
      BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL) | BRIM_METRIC_AT(BRIM_METRIC_LINE_SUMMARY);
  return (row->lines & lines) && (row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL)) &&
         row->join != BRIM_METRIC_SPREAD;
}

static void choose(reader *r, const brim_metric_set *set, brim_metric_stage stage) {
  for (size_t i = 0; i < set->count && i < BRIM_METRIC_MAX; i++) {
    const brim_metric *row = &set->rows[i];
    thinned *t = &r->list[r->count];
    memset(t, 0, sizeof *t);
    if (!is_shown(row) || !brim_metric_name(row, stage, BRIM_METRIC_COLUMN, t->column)) continue;
    // Only evaluations have a baseline.
    if (stage != BRIM_METRIC_EVAL ||
        !brim_metric_name(row, BRIM_METRIC_BASELINE, BRIM_METRIC_COLUMN, t->baseline_column)) {
      t->baseline_column[0] = '\0';
    }
    t->row = row;
    t->stretch_points = 1;
    t->highest = -INFINITY;
    t->baseline = (double)NAN;
    r->count++;
  }
}

static brim_status finish_all(const reader *r, brim_curves *out) {
  out->list = brim_calloc(r->count + 1, sizeof *out->list);
  if (!out->list) return brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
  for (size_t i = 0; i < r->count; i++) {
    const thinned *t = &r->list[i];
    if (!t->any || ((t->row->flags & BRIM_METRIC_POSITIVE) && !(t->highest > 0))) continue;
    BRIM_TRY(finish(t, &out->list[out->count]));
    out->count++;
  }
  return BRIM_OK;
}

static brim_status read_stage(const brim_metric_set *set, const char *folder,
                              brim_metric_stage stage, brim_curves *out) {
  reader r = {.marked = out->marked};
  brim_str_init(&r.line);
  r.list = brim_calloc(BRIM_METRIC_MAX, sizeof *r.list);
  brim_status status =
      r.list ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
  if (!status) {
    choose(&r, set, stage);
    status = read_folder(&r, folder);
  }
  if (!status) status = finish_all(&r, out);
  brim_str_deinit(&r.line);
  brim_free(r.list);
  if (status) brim_curves_deinit(out);
  return status;
}

brim_status brim_curves_read(const brim_metric_set *set, const char *folder, int64_t marked,
                             brim_curves *out) {
  *out = (brim_curves){.marked = marked};
  BRIM_TRY(read_stage(set, folder, BRIM_METRIC_EVAL, out));
  if (out->count > 0) return BRIM_OK;
  brim_curves_deinit(out);
  *out = (brim_curves){.marked = marked, .training = true};
  return read_stage(set, folder, BRIM_METRIC_TRAIN, out);
}

void brim_curves_deinit(brim_curves *curves) {
  for (size_t i = 0; i < curves->count; i++) brim_free(curves->list[i].points);
  brim_free(curves->list);
  curves->list = NULL;
  curves->count = 0;
}
