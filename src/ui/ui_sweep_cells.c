// Texts of a sweep's experiments and GPUs: what a cell of the live table and of the status shows.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_sweep_int.h"

//---------------------------------- state ----------------------------------

const char *brim_ui_sweep_state_text(const brim_sweep_row *row) {
  static const char *const texts[BRIM_SWEEP_STATE_COUNT] = {
      [BRIM_SWEEP_QUEUED] = BRIM_N_("queued"),   [BRIM_SWEEP_LEASED] = BRIM_N_("starting"),
      [BRIM_SWEEP_RUNNING] = BRIM_N_("running"), [BRIM_SWEEP_DONE] = BRIM_N_("done"),
      [BRIM_SWEEP_FAILED] = BRIM_N_("failed"),   [BRIM_SWEEP_CANCELLED] = BRIM_N_("cancelled"),
      [BRIM_SWEEP_PAUSED] = BRIM_N_("paused"),
  };
  bool active = row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
  if (active && row->want == BRIM_SWEEP_WANT_PAUSE) return brim_tr("pausing");
  if (active && row->want == BRIM_SWEEP_WANT_CANCEL) return brim_tr("cancelling");
  if ((unsigned)row->state >= BRIM_SWEEP_STATE_COUNT) return "";
  return brim_tr(texts[row->state]);
}

brim_ui_style brim_ui_sweep_state_style(brim_sweep_state state) {
  switch (state) {
    case BRIM_SWEEP_RUNNING:
    case BRIM_SWEEP_LEASED:
      return BRIM_UI_BEST;
    case BRIM_SWEEP_DONE:
      return BRIM_UI_GOOD;
    case BRIM_SWEEP_FAILED:
      return BRIM_UI_BAD;
    case BRIM_SWEEP_PAUSED:
      return BRIM_UI_WARN;
    default:
      return BRIM_UI_DIM;
  }
}

void brim_ui_sweep_note(const brim_sweep_row *row, brim_str *out) {
  if (row->failure != BRIM_FAILURE_NONE && row->state != BRIM_SWEEP_DONE) {
    // Of one that waits for its retry, the failure is its last attempt's.
    brim_str_printf(out, "%s%s%s", brim_ui_failure_class(row->failure), *row->message ? ": " : "",
                    row->message);
    if (*row->waiting) brim_str_append(out, "; ");
  }
  if (!brim_sweep_state_ended(row->state)) brim_str_append(out, row->waiting);
}

//---------------------------------- numbers ----------------------------------

double brim_ui_sweep_fraction(const brim_sweep_row *row) {
  double f = NAN;
  if (row->steps > 0 && row->step >= 0) {
    f = (double)row->step / (double)row->steps;
  } else if (row->epochs > 0 && row->epoch >= 0) {
    f = (double)row->epoch / (double)row->epochs;
  }
  return f > 1 ? 1 : f;
}

double brim_ui_sweep_total_fraction(const brim_sweep_view *view) {
  int64_t total = brim_sweep_view_total(view);
  double ended = 0;
  if (total <= 0) return NAN;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (brim_sweep_state_ended((brim_sweep_state)i)) ended += (double)view->counts[i];
  }
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    double f = brim_sweep_state_ended(row->state) ? NAN : brim_ui_sweep_fraction(row);
    if (!isnan(f)) ended += f;
  }
  double fraction = ended / (double)total;
  return fraction > 1 ? 1 : fraction;
}

void brim_ui_sweep_clock(double seconds, char out[32]) {
  out[0] = '\0';
  if (!(seconds >= 0) || seconds > 1e9) return;
  long long s = (long long)seconds;
  if (s >= 4 * 86400) {
    snprintf(out, 32, brim_tr("%lld d %02lld h"), s / 86400, s / 3600 % 24);
  } else if (s >= 3600) {
    snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
  }
}

double brim_ui_sweep_seconds(const brim_sweep_view *view, const brim_sweep_row *row) {
  if (isnan(row->since_s)) return row->ran_s;
  return fmax(0, view->now_s - row->since_s) + (isnan(row->ran_s) ? 0 : row->ran_s);
}

void brim_ui_sweep_value(const brim_sweep_metric *metric, double value, char out[32]) {
  out[0] = '\0';
  if (isnan(value)) return;
  brim_metric row = {.format = BRIM_METRIC_NUMBER};
  if (metric) row.format = metric->format;
  if (metric) row.digits = metric->digits;
  brim_metric_format_value(&row, value, out);
}

const char *brim_ui_sweep_metric_label(const brim_sweep_metric *metric) {
  return metric->label[0] ? brim_tr(metric->label) : metric->key;
}

void brim_ui_sweep_bar(brim_str *out, const brim_term *term, double fraction, int width) {
  int full = isnan(fraction) ? 0 : (int)floor(fraction * width);
  for (int i = 0; i < width; i++) {
    brim_str_append(out, i < full ? (term->unicode ? "━" : "#") : (term->unicode ? "─" : "."));
  }
}

//---------------------------------- columns ----------------------------------

const int brim_ui_sweep_widths[BRIM_UI_SWEEP_COLUMN_COUNT] = {
    [BRIM_UI_SWEEP_STATE] = 10, [BRIM_UI_SWEEP_PROGRESS] = 13, [BRIM_UI_SWEEP_EPOCH] = 9,
    [BRIM_UI_SWEEP_METRIC] = 8, [BRIM_UI_SWEEP_BEST] = 8,      [BRIM_UI_SWEEP_WHERE] = 6,
    [BRIM_UI_SWEEP_TIME] = 8,   [BRIM_UI_SWEEP_ETA] = 8,
};

// One "key=value" of a label. The value ends in front of the next key.
typedef struct pair {
  const char *key, *value;
  size_t key_size, value_size;
} pair;

// Bytes of the key that a text begins with; 0 = it begins with none. "crop(size=24)" has none.
static size_t key_at(const char *text) {
  size_t n = strcspn(text, "= ()[]{},|\"'");
  return text[n] == '=' ? n : 0;
}

static bool next_pair(const char **at, pair *out) {
  const char *label = *at;
  out->key = label;
  out->key_size = key_at(label);
  if (out->key_size == 0) return false;
  label += out->key_size + 1;
  out->value = label;
  for (;;) {
    label += strcspn(label, " ");
    out->value_size = (size_t)(label - out->value);
    if (!*label) break;
    label++;
    if (key_at(label) > 0) break;
  }
  *at = label;
  return true;
}

static int width_of(const char *text, size_t size) {
  char copy[128];
  if (size >= sizeof copy) size = sizeof copy - 1;
  memcpy(copy, text, size);
  copy[size] = '\0';
  return brim_utf8_width(copy);
}

// Whether a label has the keys of another; their widths grow to what its values need.
static bool same_keys(const char *label, const char *other, brim_ui_sweep_look *look) {
  pair a, b;
  size_t n = 0;
  for (; *label && n < BRIM_UI_SWEEP_KEYS; n++) {
    if (!next_pair(&label, &a) || !next_pair(&other, &b)) return false;
    if (a.key_size != b.key_size || memcmp(a.key, b.key, a.key_size) != 0) return false;
    if (!look) continue;
    int key = width_of(a.key, a.key_size), value = width_of(a.value, a.value_size);
    if (n >= look->key_count) look->key_widths[look->key_count++] = key;
    if (value > look->key_widths[n]) look->key_widths[n] = value;
  }
  return n > 0 && !*label && !*other;
}

size_t brim_ui_sweep_stride(size_t count) {
  enum { LOOKED_AT = 500 };
  return count / LOOKED_AT + 1;
}

// Whether the rows have common keys, and how wide each key and its values are.
static bool common_keys(const brim_sweep_view *view, const size_t *rows, size_t count,
                        brim_ui_sweep_look *look) {
  look->key_count = 0;
  look->keys = count > 0 ? view->rows[rows[0]].label : "";
  for (size_t i = 0; i < count; i += brim_ui_sweep_stride(count)) {
    if (!same_keys(view->rows[rows[i]].label, look->keys, look)) return false;
  }
  return look->key_count > 0;
}

// The keys of a label or its values, each below the other.
static void put_pairs(const char *label, bool values, const brim_ui_sweep_look *look,
                      brim_str *out) {
  pair one;
  for (size_t i = 0; i < look->key_count && next_pair(&label, &one); i++) {
    const char *text = values ? one.value : one.key;
    size_t size = values ? one.value_size : one.key_size;
    int pad = look->key_widths[i] - width_of(text, size);
    brim_str_append_n(out, text, size);
    if (i + 1 < look->key_count) brim_str_repeat(out, ' ', (size_t)(pad > 0 ? pad + 1 : 1));
  }
}

void brim_ui_sweep_columns(const brim_sweep_view *view, const size_t *rows, size_t count,
                           bool short_labels, brim_ui_sweep_look *look,
                           brim_ui_column out[BRIM_UI_SWEEP_COLUMN_COUNT]) {
  look->values = short_labels && common_keys(view, rows, count, look);
  const char *experiment = brim_tr("Experiment");
  int least = 24;
  if (look->values) {
    least = -1;
    for (size_t i = 0; i < look->key_count; i++) least += look->key_widths[i] + 1;
    if (least > 40) least = 40;
    brim_str keys;
    brim_str_init(&keys);
    put_pairs(view->rows[rows[0]].label, false, look, &keys);
    snprintf(look->label, sizeof look->label, "%.*s", (int)sizeof look->label - 1, keys.data);
    brim_utf8_trim(look->label);
    brim_str_deinit(&keys);
    experiment = look->label;
  }
  const brim_ui_column columns[BRIM_UI_SWEEP_COLUMN_COUNT] = {
      [BRIM_UI_SWEEP_STATE] = {brim_tr("State"), NULL, BRIM_UI_LEFT, 0, 0},
      [BRIM_UI_SWEEP_LABEL] = {experiment, NULL, BRIM_UI_LEFT, 0, least},
      [BRIM_UI_SWEEP_PROGRESS] = {brim_tr("Progress"), "%", BRIM_UI_RIGHT, 3, 0},
      [BRIM_UI_SWEEP_EPOCH] = {brim_tr("Epoch"), NULL, BRIM_UI_RIGHT, 8, 0},
      [BRIM_UI_SWEEP_METRIC] = {look->last, brim_tr("Last"), BRIM_UI_RIGHT, 4, 0},
      [BRIM_UI_SWEEP_BEST] = {look->best, brim_tr("Best"), BRIM_UI_RIGHT, 1, 0},
      [BRIM_UI_SWEEP_WHERE] = {brim_tr("Where"), NULL, BRIM_UI_LEFT, 6, 0},
      [BRIM_UI_SWEEP_TIME] = {brim_tr("Time"), NULL, BRIM_UI_RIGHT, 7, 0},
      [BRIM_UI_SWEEP_ETA] = {brim_tr("ETA"), NULL, BRIM_UI_RIGHT, 5, 0},
      [BRIM_UI_SWEEP_NOTE] = {brim_tr("Note"), NULL, BRIM_UI_LEFT, 9, 14},
  };
  // Two values of one metric: both headings say which.
  if (view->metric_count == 1) {
    const char *label = brim_ui_sweep_metric_label(&view->metrics[0]);
    snprintf(look->last, sizeof look->last, brim_tr("%.40s, last"), label);
    snprintf(look->best, sizeof look->best, brim_tr("%.40s, best"), label);
  } else {
    snprintf(look->last, sizeof look->last, "%s", brim_tr("Last"));
    snprintf(look->best, sizeof look->best, "%s", brim_tr("Best"));
  }
  memcpy(out, columns, sizeof columns);
}

static void progress_cell(const brim_sweep_row *row, const brim_ui_sweep_look *look,
                          brim_str *out) {
  double f = row->state == BRIM_SWEEP_DONE ? 1 : brim_ui_sweep_fraction(row);
  if (isnan(f)) return;
  bool active = row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
  if (active && look->bar) {
    brim_ui_sweep_bar(out, look->term, f, 7);
    brim_str_append_char(out, ' ');
  }
  brim_str_printf(out, "%3.0f %%", floor(brim_shown(f * 100)));
}

static void label_cell(const brim_sweep_row *row, const brim_ui_sweep_look *look, brim_str *out) {
  if (look->values && same_keys(row->label, look->keys, NULL)) {
    put_pairs(row->label, true, look, out);
  } else {
    brim_str_append(out, *row->label ? row->label : row->id);
  }
}

brim_ui_style brim_ui_sweep_cell(const brim_sweep_view *view, const brim_sweep_row *row,
                                 brim_ui_sweep_column column, const brim_ui_sweep_look *look,
                                 brim_str *out) {
  char text[32] = "";
  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  switch (column) {
    case BRIM_UI_SWEEP_STATE:
      brim_str_append(out, brim_ui_sweep_state_text(row));
      return brim_ui_sweep_state_style(row->state);
    case BRIM_UI_SWEEP_LABEL:
      label_cell(row, look, out);
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_PROGRESS:
      progress_cell(row, look, out);
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_EPOCH:
      if (row->epoch >= 0 && row->epochs > 0) {
        brim_str_printf(out, "%lld/%lld", (long long)row->epoch, (long long)row->epochs);
      }
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_METRIC:
      brim_ui_sweep_value(metric, row->metric, text);
      break;
    case BRIM_UI_SWEEP_BEST:
      brim_ui_sweep_value(metric, row->best, text);
      break;
    case BRIM_UI_SWEEP_WHERE:
      brim_str_append(out, row->devices);
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_TIME:
      brim_ui_sweep_clock(brim_ui_sweep_seconds(view, row), text);
      break;
    case BRIM_UI_SWEEP_ETA:
      if (!brim_sweep_state_ended(row->state)) brim_ui_sweep_clock(row->eta_s, text);
      break;
    default:
      brim_ui_sweep_note(row, out);
      return row->state == BRIM_SWEEP_FAILED ? BRIM_UI_BAD : BRIM_UI_DIM;
  }
  brim_str_append(out, text);
  return BRIM_UI_PLAIN;
}

//---------------------------------- GPUs ----------------------------------

static brim_ui_style gpu_style(brim_sweep_gpu_state state) {
  return state == BRIM_SWEEP_GPU_OUT                                            ? BRIM_UI_BAD
         : state == BRIM_SWEEP_GPU_FOREIGN || state == BRIM_SWEEP_GPU_RELEASING ? BRIM_UI_WARN
         : state == BRIM_SWEEP_GPU_BUSY                                         ? BRIM_UI_GOOD
                                                                                : BRIM_UI_DIM;
}

static void gpu_state(const brim_sweep_gpu *gpu, char out[64]) {
  static const char *const texts[BRIM_SWEEP_GPU_STATE_COUNT] = {
      [BRIM_SWEEP_GPU_FREE] = BRIM_N_("free"),
      [BRIM_SWEEP_GPU_BUSY] = BRIM_N_("busy"),
      [BRIM_SWEEP_GPU_FOREIGN] = BRIM_N_("used by others"),
      [BRIM_SWEEP_GPU_RELEASING] = BRIM_N_("freeing memory"),
      [BRIM_SWEEP_GPU_OUT] = BRIM_N_("out of service"),
  };
  if (gpu->state == BRIM_SWEEP_GPU_BUSY && gpu->slots > 0) {
    snprintf(out, 64, brim_tr("%lld of %lld running"), (long long)gpu->running,
             (long long)gpu->slots);
  } else if (gpu->state == BRIM_SWEEP_GPU_BUSY) {
    snprintf(out, 64, brim_tr("%lld running"), (long long)gpu->running);
  } else {
    unsigned state = (unsigned)gpu->state;
    snprintf(out, 64, "%s", state < BRIM_SWEEP_GPU_STATE_COUNT ? brim_tr(texts[state]) : "");
  }
}

// Appends a part where it finds room behind two spaces.
static void add_part(brim_str *line, const brim_term *term, int width, int reserve,
                     const char *text, brim_ui_style style) {
  int used = brim_utf8_width(line->data);
  int wide = brim_utf8_width(text);
  if (!*text || (width > 0 && used + 2 + wide > width)) return;
  brim_str_append(line, used ? "  " : "");
  brim_ui_styled(line, term, style, text);
  // Parts stand below each other where there is room for that.
  if (wide < reserve && (width == 0 || used + 2 + reserve < width)) {
    brim_str_repeat(line, ' ', (size_t)(reserve - wide));
  }
}

static void add_clipped(brim_str *line, const brim_term *term, int width, const char *text,
                        brim_ui_style style) {
  int room = width > 0 ? width - brim_utf8_width(line->data) - 2 : 0;
  if (!*text || (width > 0 && room < 8)) return;
  brim_str part;
  brim_str_init(&part);
  brim_ui_clip(&part, term, text, room);
  brim_str_append(line, "  ");
  brim_ui_styled(line, term, style, part.data);
  if (part.status && !line->status) line->status = part.status;
  brim_str_deinit(&part);
}

void brim_ui_sweep_gpu(const brim_sweep_gpu *gpu, const brim_term *term, int width, brim_str *out) {
  char text[64], figure[32];
  brim_str line;
  brim_str_init(&line);
  brim_ui_clip(&line, term, gpu->name, 16);
  int pad = 6 - brim_utf8_width(line.data);
  if (pad > 0) brim_str_repeat(&line, ' ', (size_t)pad);
  gpu_state(gpu, text);
  add_part(&line, term, width, 14, text, gpu_style(gpu->state));
  if (!isnan(gpu->memory_used) && gpu->memory_total > 0) {
    snprintf(text, sizeof text, "%5.1f/%.1f GiB", brim_shown(gpu->memory_used / (1 << 30)),
             brim_shown(gpu->memory_total / (1 << 30)));
    add_part(&line, term, width, 15, text, BRIM_UI_PLAIN);
  }
  if (!isnan(gpu->gpu_percent)) {
    snprintf(text, sizeof text, "%3.0f %%", brim_shown(gpu->gpu_percent));
    add_part(&line, term, width, 5, text, BRIM_UI_PLAIN);
  }
  bool trouble = gpu->why[0] != '\0';
  if (trouble) add_clipped(&line, term, width, gpu->why, gpu_style(gpu->state));
  if (!isnan(gpu->steps_per_s)) {
    brim_ui_number(gpu->steps_per_s, figure);
    snprintf(text, sizeof text, brim_tr("%s steps/s"), figure);
    add_part(&line, term, width, 14, text, BRIM_UI_PLAIN);
  }
  if (!isnan(gpu->power_w)) {
    snprintf(text, sizeof text, "%3.0f W", gpu->power_w);
    add_part(&line, term, width, 5, text, BRIM_UI_DIM);
  }
  if (!isnan(gpu->temperature_c)) {
    snprintf(text, sizeof text, "%.0f %s", gpu->temperature_c, term->unicode ? "°C" : "C");
    add_part(&line, term, width, 6, text, BRIM_UI_DIM);
  }
  if (!trouble) add_clipped(&line, term, width, gpu->model, BRIM_UI_DIM);
  brim_str_append(out, line.data);
  if (line.status && !out->status) out->status = line.status;
  brim_str_deinit(&line);
}
