// Experiments of a sweep as rows and cells. The live view: the effect of keys, and frames as lines of text. Plain text:
// `brim sweep status`, the summary at the end, the dry run, and the comparison of groups of experiments.

#include "ui/sweep/ui_sweep.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ui/sweep/ui_sweep_int.h"

//-------------------------------------------- values --------------------------------------------

static bool is_percent(const brim_sweep_metric *metric) {
  return metric && metric->format == BRIM_METRIC_PERCENT;
}

static int percent_digits(const brim_sweep_metric *metric) {
  return metric->digits ? metric->digits : 2;
}

// The decimals that show two digits of `std`. -1 if std is unknown or the number would have too many digits to read.
static int decimals_of(double size, double std) {
  if (!isfinite(std)) return -1;
  const double place = std > 0 ? floor(log10(std)) : -3;
  if (!(fabs(size) < 1e6) || place < -6 || place >= 6) return -1;
  return place < 1 ? 1 - (int)place : 0;
}

const char *brim_ui_value_label(const brim_sweep_metric *metric) {
  return metric->label[0] ? brim_tr(metric->label) : metric->key;
}

// "91.20 %"; "" when unknown.
static void value_text(const brim_sweep_metric *metric, double value, char out[32]) {
  out[0] = '\0';
  if (isnan(value)) return;
  brim_metric row = {.format = BRIM_METRIC_NUMBER};
  if (metric) row.format = metric->format;
  if (metric) row.digits = metric->digits;
  brim_metric_format_value(&row, value, out);
}

void brim_ui_value_or_dash(const brim_sweep_metric *metric, double value, char out[32]) {
  value_text(metric, isfinite(value) ? value : (double)NAN, out);
  if (!out[0]) snprintf(out, 32, BRIM_UI_DASH);
}

void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]) {
  char number[32];
  if (!isfinite(mean) || !isfinite(std)) {
    brim_ui_value_or_dash(metric, mean, number);
    snprintf(out, 80, "%s", number);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f %%", digits, brim_shown(mean * 100), digits,
             brim_shown(std * 100));
  } else if (decimals_of(mean, std) >= 0) {
    const int digits = decimals_of(mean, std);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f", digits, brim_shown(mean), digits, brim_shown(std));
  } else {
    brim_ui_value_or_dash(metric, mean, number);
    snprintf(out, 80, "%s \xc2\xb1 %.2g", number, brim_shown(std));
  }
}

void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]) {
  const double size = fmax(fabs(bounds[0]), fabs(bounds[1]));
  if (!isfinite(bounds[0]) || !isfinite(bounds[1])) {
    snprintf(out, 80, BRIM_UI_DASH);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f %%", digits, brim_shown(bounds[0] * 100), digits,
             brim_shown(bounds[1] * 100));
  } else if (decimals_of(size, std) >= 0) {
    const int digits = decimals_of(size, std);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f", digits, brim_shown(bounds[0]), digits,
             brim_shown(bounds[1]));
  } else {
    snprintf(out, 80, "%.4g \xe2\x80\x93 %.4g", brim_shown(bounds[0]), brim_shown(bounds[1]));
  }
}

static void put_signed(const brim_sweep_metric *metric, double value, char out[32]) {
  if (is_percent(metric)) {
    snprintf(out, 32, "%+.*f", percent_digits(metric), brim_shown(value * 100));
  } else {
    snprintf(out, 32, "%+.3g", brim_shown(value));
  }
}

void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]) {
  char middle[32], low[32], high[32], text[104];
  if (!isfinite(mean)) {
    snprintf(out, 112, "-");
    return;
  }
  put_signed(metric, mean, middle);
  if (isfinite(bounds[0])) {
    put_signed(metric, bounds[0], low);
    put_signed(metric, bounds[1], high);
    snprintf(text, sizeof text, "%s [%s, %s]", middle, low, high);
  } else {
    snprintf(text, sizeof text, "%s", middle);
  }
  snprintf(out, 112, is_percent(metric) ? brim_tr("%s pp") : "%s", text);
}

//--------------------------------------------- rows ---------------------------------------------

typedef struct brim_ui_sweep_pick {
  brim_ui_sweep_list list;
  brim_ui_sweep_order order;
  const char *search;  // words that the label, the id or the tags must have; "" = any
} brim_ui_sweep_pick;

static bool is_listed(brim_ui_sweep_list list, brim_sweep_state state) {
  switch (list) {
    case BRIM_UI_SWEEP_ACTIVE:
      return state == BRIM_SWEEP_RUNNING || state == BRIM_SWEEP_LEASED;
    case BRIM_UI_SWEEP_WAITING:
      return state == BRIM_SWEEP_QUEUED;
    case BRIM_UI_SWEEP_FINISHED:
      return state == BRIM_SWEEP_DONE;
    case BRIM_UI_SWEEP_FAILURES:
      return state == BRIM_SWEEP_FAILED;
    case BRIM_UI_SWEEP_HELD:
      return state == BRIM_SWEEP_PAUSED || state == BRIM_SWEEP_CANCELLED;
    default:
      return true;
  }
}

// Rows with smaller keys come first; rows with equal keys keep the grid's order.
typedef struct sort_entry {
  double key[2];
  int64_t idx;
  size_t place;
} sort_entry;

static int by_keys(const void *a, const void *b) {
  const sort_entry *x = (const sort_entry *)a, *y = (const sort_entry *)b;
  for (int i = 0; i < 2; i++) {
    if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
  }
  if (x->idx != y->idx) return x->idx < y->idx ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

static double value_or(double value, double otherwise) { return isnan(value) ? otherwise : value; }

// Sorts running experiments first, then the latest results, then the queue. The dashboard uses the same order, so that
// results are never below a long queue.
static void state_keys(const brim_sweep_row *row, double key[2]) {
  static const double rank[BRIM_SWEEP_STATE_COUNT] = {
      [BRIM_SWEEP_RUNNING] = 0,   [BRIM_SWEEP_LEASED] = 1, [BRIM_SWEEP_FAILED] = 2,
      [BRIM_SWEEP_DONE] = 2,      [BRIM_SWEEP_QUEUED] = 3, [BRIM_SWEEP_PAUSED] = 4,
      [BRIM_SWEEP_CANCELLED] = 5,
  };
  key[0] = (unsigned)row->state < BRIM_SWEEP_STATE_COUNT ? rank[row->state] : 7;
  if (brim_sweep_state_ended(row->state)) {
    key[1] = -value_or(row->ended_s, 0);
  } else if (row->state == BRIM_SWEEP_QUEUED) {
    key[1] = -(double)row->priority;
  } else {
    key[1] = value_or(row->started_s, 0);
  }
}

static void metric_keys(const brim_sweep_view *view, const brim_sweep_row *row, double key[2]) {
  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  double value = isnan(row->best) ? row->metric : row->best;
  key[0] = isnan(value);
  key[1] = isnan(value) ? 0 : metric && metric->better == BRIM_BETTER_LOWER ? value : -value;
}

static void set_keys(const brim_sweep_view *view, brim_ui_sweep_order order, size_t place,
                     sort_entry *out) {
  const brim_sweep_row *row = &view->rows[place];
  *out = (sort_entry){.idx = row->idx, .place = place};
  if (order == BRIM_UI_SWEEP_BY_STATE) {
    state_keys(row, out->key);
  } else if (order == BRIM_UI_SWEEP_BY_METRIC) {
    metric_keys(view, row, out->key);
  } else if (order == BRIM_UI_SWEEP_BY_TIME) {
    double last = value_or(row->ended_s, value_or(row->started_s, value_or(row->created_s, 0)));
    out->key[0] = -last;
  }
}

// True if the text has the word. A word such as "lr=0.01" finds only the whole number, not "lr=0.012" or "lr=0.01e-3".
static bool has_word(const char *text, const char *word) {
  const size_t n = strlen(word);
  const bool whole = strchr(word, '=') && word[n - 1] >= '0' && word[n - 1] <= '9';
  for (const char *at = text; (at = strcasestr(at, word)); at++) {
    if (!whole || !at[n] || !strchr("0123456789.eE", at[n])) return true;
  }
  return false;
}

// True if the row has every word of a search.
static bool matches_search(const brim_sweep_row *row, const char *search) {
  char word[128];
  while (*search) {
    search += strspn(search, " ");
    const size_t n = strcspn(search, " ");
    if (n == 0) break;
    snprintf(word, sizeof word, "%.*s", (int)n, search);
    brim_utf8_trim(word);
    search += n;
    if (!has_word(row->label, word) && !has_word(row->tags, word) &&
        strncasecmp(row->id, word, strlen(word)) != 0) {
      return false;
    }
  }
  return true;
}

// Lists the rows that `pick` selects, in its order, as indices into view->rows. Release *out by brim_free.
static brim_status sweep_rows(const brim_sweep_view *view, const brim_ui_sweep_pick *pick,
                              size_t **out, size_t *count) {
  *count = 0;
  *out = (size_t *)brim_calloc(view->row_count + 1, sizeof **out);
  sort_entry *entries =
      *out ? (sort_entry *)brim_calloc(view->row_count + 1, sizeof *entries) : NULL;
  if (!entries) {
    brim_free(*out);
    *out = NULL;
    return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  }
  size_t n = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    if (!is_listed(pick->list, row->state) || !matches_search(row, pick->search)) continue;
    set_keys(view, pick->order, i, &entries[n++]);
  }
  qsort(entries, n, sizeof *entries, by_keys);
  for (size_t i = 0; i < n; i++) (*out)[i] = entries[i].place;
  brim_free(entries);
  *count = n;
  return BRIM_OK;
}

//-------------------------------------------- cells --------------------------------------------

typedef enum brim_ui_sweep_column {
  BRIM_UI_SWEEP_STATE,
  BRIM_UI_SWEEP_LABEL,
  BRIM_UI_SWEEP_PROGRESS,
  BRIM_UI_SWEEP_EPOCH,
  BRIM_UI_SWEEP_METRIC,
  BRIM_UI_SWEEP_BEST,
  BRIM_UI_SWEEP_WHERE,
  BRIM_UI_SWEEP_TIME,
  BRIM_UI_SWEEP_ETA,
  BRIM_UI_SWEEP_NOTE,
  BRIM_UI_SWEEP_COLUMN_COUNT
} brim_ui_sweep_column;

enum { BRIM_UI_SWEEP_KEYS = 16 };

// How to write cells; headings and key widths of the current rows.
typedef struct brim_ui_sweep_look {
  const brim_term *term;
  bool bar;                 // show progress of running experiments as a bar too
  bool values;              // labels show values only; the heading has the keys
  char last[96], best[96];  // storage for the headings of these columns
  char label[256];
  const char *keys;  // a label that has the common keys
  size_t key_count;  // number of keys of a label, if `values`
  int key_widths[BRIM_UI_SWEEP_KEYS];
} brim_ui_sweep_look;

const char *brim_ui_sweep_state_name(brim_sweep_state state) {
  static const char *const texts[BRIM_SWEEP_STATE_COUNT] = {
      [BRIM_SWEEP_QUEUED] = BRIM_N_("queued"),   [BRIM_SWEEP_LEASED] = BRIM_N_("starting"),
      [BRIM_SWEEP_RUNNING] = BRIM_N_("running"), [BRIM_SWEEP_DONE] = BRIM_N_("done"),
      [BRIM_SWEEP_FAILED] = BRIM_N_("failed"),   [BRIM_SWEEP_CANCELLED] = BRIM_N_("cancelled"),
      [BRIM_SWEEP_PAUSED] = BRIM_N_("paused"),
  };
  return (unsigned)state < BRIM_SWEEP_STATE_COUNT ? brim_tr(texts[state]) : "";
}

// The name of the state, or "pausing" or "cancelling" if the user asked to pause or cancel.
static const char *state_text(const brim_sweep_row *row) {
  bool active = row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
  if (active && row->want == BRIM_SWEEP_WANT_PAUSE) return brim_tr("pausing");
  if (active && row->want == BRIM_SWEEP_WANT_CANCEL) return brim_tr("cancelling");
  return brim_ui_sweep_state_name(row->state);
}

static brim_ui_style state_style(brim_sweep_state state) {
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

// Puts why an experiment failed or waits; nothing if neither applies.
static void put_note(const brim_sweep_row *row, brim_str *out) {
  if (row->failure != BRIM_FAILURE_NONE && row->state != BRIM_SWEEP_DONE) {
    // An experiment that waits for its retry has the failure of its last attempt.
    brim_str_printf(out, "%s%s%s", brim_ui_failure_class(row->failure), *row->message ? ": " : "",
                    row->message);
    if (*row->waiting) brim_str_append(out, "; ");
  }
  if (!brim_sweep_state_ended(row->state)) brim_str_append(out, row->waiting);
}

// The progress of an experiment, 0 to 1; NaN = unknown.
static double fraction_of(const brim_sweep_row *row) {
  double f = NAN;
  if (row->steps > 0 && row->step >= 0) {
    f = (double)row->step / (double)row->steps;
  } else if (row->epochs > 0 && row->epoch >= 0) {
    f = (double)row->epoch / (double)row->epochs;
  }
  return f > 1 ? 1 : f;
}

// "12:04", "3:12:04", "4 d 07 h"; "" = unknown.
static void duration_text(double seconds, char out[32]) {
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

// Seconds that the attempts of an experiment ran, a running one until now; NaN if none began.
static double seconds_of(const brim_sweep_view *view, const brim_sweep_row *row) {
  if (isnan(row->since_s)) return row->ran_s;
  return fmax(0, view->now_s - row->since_s) + (isnan(row->ran_s) ? 0 : row->ran_s);
}

static void put_bar(brim_str *out, const brim_term *term, double fraction, int width) {
  int full = isnan(fraction) ? 0 : (int)floor(fraction * width);
  for (int i = 0; i < width; i++) {
    brim_str_append(out, i < full ? (term->unicode ? "━" : "#") : (term->unicode ? "─" : "."));
  }
}

// One "key=value" of a label. The value ends before the next key.
typedef struct pair {
  const char *key, *value;
  size_t key_size, value_size;
} pair;

// Length of the key that a text begins with; 0 if it begins with no key, as "crop(size=24)".
static size_t key_length(const char *text) {
  size_t n = strcspn(text, "= ()[]{},|\"'");
  return text[n] == '=' ? n : 0;
}

static bool next_pair(const char **at, pair *out) {
  const char *label = *at;
  out->key = label;
  out->key_size = key_length(label);
  if (out->key_size == 0) return false;
  label += out->key_size + 1;
  out->value = label;
  for (;;) {
    label += strcspn(label, " ");
    out->value_size = (size_t)(label - out->value);
    if (!*label) break;
    label++;
    if (key_length(label) > 0) break;
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

// True if two labels have the same keys. Widens look->key_widths to the keys and values of `label` (look may be NULL).
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

// Returns n: widths are measured on every n-th row only, so that a frame of 10,000 rows is quick.
static size_t sample_stride(size_t count) {
  enum { SAMPLED_ROWS = 500 };
  return count / SAMPLED_ROWS + 1;
}

// True if the labels of the rows have the same keys. Measures the width of each key and its values.
static bool common_keys(const brim_sweep_view *view, const size_t *rows, size_t count,
                        brim_ui_sweep_look *look) {
  look->key_count = 0;
  look->keys = count > 0 ? view->rows[rows[0]].label : "";
  for (size_t i = 0; i < count; i += sample_stride(count)) {
    if (!same_keys(view->rows[rows[i]].label, look->keys, look)) return false;
  }
  return look->key_count > 0;
}

// Puts the keys of a label, or its values, padded so that values stand below their keys.
static void put_pairs(const char *label, bool values, const brim_ui_sweep_look *look,
                      brim_str *out) {
  pair part;
  for (size_t i = 0; i < look->key_count && next_pair(&label, &part); i++) {
    const char *text = values ? part.value : part.key;
    size_t size = values ? part.value_size : part.key_size;
    int pad = look->key_widths[i] - width_of(text, size);
    brim_str_append_n(out, text, size);
    if (i + 1 < look->key_count) brim_str_repeat(out, ' ', (size_t)(pad > 0 ? pad + 1 : 1));
  }
}

// Makes the columns of a view. `short_labels`: the heading takes the keys of labels if all `rows` have the same keys.
static void sweep_columns(const brim_sweep_view *view, const size_t *rows, size_t count,
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
  // With one metric, both headings name it.
  if (view->metric_count == 1) {
    const char *label = brim_ui_value_label(&view->metrics[0]);
    snprintf(look->last, sizeof look->last, brim_tr("%.40s, last"), label);
    snprintf(look->best, sizeof look->best, brim_tr("%.40s, best"), label);
  } else {
    snprintf(look->last, sizeof look->last, "%s", brim_tr("Last"));
    snprintf(look->best, sizeof look->best, "%s", brim_tr("Best"));
  }
  memcpy(out, columns, sizeof columns);
}

static brim_ui_style sweep_cell(const brim_sweep_view *view, const brim_sweep_row *row,
                                brim_ui_sweep_column column, const brim_ui_sweep_look *look,
                                brim_str *out) {
  char text[32] = "";
  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  switch (column) {
    case BRIM_UI_SWEEP_STATE:
      brim_str_append(out, state_text(row));
      return state_style(row->state);
    case BRIM_UI_SWEEP_LABEL:
      if (look->values && same_keys(row->label, look->keys, NULL)) {
        put_pairs(row->label, true, look, out);
      } else {
        brim_str_append(out, *row->label ? row->label : row->id);
      }
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_PROGRESS: {
      double f = row->state == BRIM_SWEEP_DONE ? 1 : fraction_of(row);
      if (isnan(f)) return BRIM_UI_PLAIN;
      bool active = row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
      if (active && look->bar) {
        put_bar(out, look->term, f, 7);
        brim_str_append_char(out, ' ');
      }
      brim_str_printf(out, "%3.0f %%", floor(brim_shown(f * 100)));
      return BRIM_UI_PLAIN;
    }
    case BRIM_UI_SWEEP_EPOCH:
      if (row->epoch >= 0 && row->epochs > 0) {
        brim_str_printf(out, "%lld/%lld", (long long)row->epoch, (long long)row->epochs);
      }
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_METRIC:
      value_text(metric, row->metric, text);
      break;
    case BRIM_UI_SWEEP_BEST:
      value_text(metric, row->best, text);
      break;
    case BRIM_UI_SWEEP_WHERE:
      brim_str_append(out, row->devices);
      return BRIM_UI_PLAIN;
    case BRIM_UI_SWEEP_TIME:
      duration_text(seconds_of(view, row), text);
      break;
    case BRIM_UI_SWEEP_ETA:
      if (!brim_sweep_state_ended(row->state)) duration_text(row->eta_s, text);
      break;
    default:
      put_note(row, out);
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

// Appends a part after two spaces, if it fits. `reserve`: the part is padded to this width if there is room, so that
// the parts of several lines align.
static void add_part(brim_str *line, const brim_term *term, int width, int reserve,
                     const char *text, brim_ui_style style) {
  int used = brim_utf8_width(line->data);
  int wide = brim_utf8_width(text);
  if (!*text || (width > 0 && used + 2 + wide > width)) return;
  brim_str_append(line, used ? "  " : "");
  brim_ui_styled(line, term, style, text);
  if (wide < reserve && (width == 0 || used + 2 + reserve < width)) {
    brim_str_repeat(line, ' ', (size_t)(reserve - wide));
  }
}

// Appends a part after two spaces, cut at the width; nothing if fewer than 8 columns are free.
static void add_clipped(brim_str *line, const brim_term *term, int width, const char *text,
                        brim_ui_style style) {
  int room = width > 0 ? width - brim_utf8_width(line->data) - 2 : INT_MAX;
  if (!*text || room < 8) return;
  brim_str_append(line, "  ");
  brim_ui_put_clipped(line, term, style, text, room);
}

// "GPU 0  2 running  12.1/139.8 GiB  98 %", clipped to the width (0 = no limit).
static void put_gpu(const brim_sweep_gpu *gpu, const brim_term *term, int width, brim_str *out) {
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
    brim_format_figure(gpu->steps_per_s, figure);
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

//--------------------------------------------- keys ---------------------------------------------

void brim_ui_sweep_init(brim_ui_sweep *state) { memset(state, 0, sizeof *state); }

const char *brim_ui_sweep_wants_log(const brim_ui_sweep *state) {
  bool shows = state->mode == BRIM_UI_SWEEP_LOG || state->mode == BRIM_UI_SWEEP_DETAILS;
  return shows && state->target[0] ? state->target : NULL;
}

// Finds the selected experiment in these rows and keeps its place in state->at.
static size_t find_selected(brim_ui_sweep *state, const brim_sweep_view *view, const size_t *rows,
                            size_t count) {
  size_t at = state->moved ? state->at : 0, found = count;
  for (size_t i = 0; i < count && found == count && state->moved; i++) {
    if (strcmp(view->rows[rows[i]].id, state->selected) == 0) found = i;
  }
  // The cursor follows its experiment while it stays on the screen. When the experiment leaves the screen, for example
  // because it ended, the cursor stays: the table must not jump to the end of 10,000 rows.
  bool near = found + 1 >= state->top && found <= state->top + state->page;
  if (found < count && (near || state->follow)) at = found;
  if (at >= count) at = count ? count - 1 : 0;
  state->at = at;
  return at;
}

// The rows of the current list, and the index of the selected row.
typedef struct listing {
  size_t *rows;
  size_t count, at;
} listing;

static bool list_rows(brim_ui_sweep *state, const brim_sweep_view *view, listing *out) {
  brim_ui_sweep_pick pick = {state->list, state->order, state->search};
  if (sweep_rows(view, &pick, &out->rows, &out->count)) return false;
  out->at = find_selected(state, view, out->rows, out->count);
  return true;
}

// The row that was under the cursor in the last frame, even if the list has changed since.
static const brim_sweep_row *selected_row(brim_ui_sweep *state, const brim_sweep_view *view) {
  listing list;
  if (state->selected[0]) return brim_sweep_view_find(view, state->selected);
  if (!list_rows(state, view, &list)) return NULL;
  const brim_sweep_row *row = list.count ? &view->rows[list.rows[list.at]] : NULL;
  brim_free(list.rows);
  return row;
}

static void copy_id(char out[33], const char *id) {
  size_t n = strnlen(id, 32);
  memcpy(out, id, n);
  out[n] = '\0';
}

static brim_ui_sweep_action move_cursor(brim_ui_sweep *state, const brim_sweep_view *view,
                                        int64_t delta) {
  listing list;
  if (!list_rows(state, view, &list)) return BRIM_UI_SWEEP_NOTHING;
  if (list.count > 0) {
    int64_t last = (int64_t)list.count - 1, to = (int64_t)list.at + delta;
    to = to < 0 ? 0 : to > last ? last : to;
    state->at = (size_t)to;
    state->moved = to > 0;
    state->follow = true;
    copy_id(state->selected, view->rows[list.rows[to]].id);
  }
  brim_free(list.rows);
  return BRIM_UI_SWEEP_DRAW;
}

//---------------------------------- actions ----------------------------------

static bool is_active(const brim_sweep_row *row) {
  return row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
}

// The action of a key on this row; NOTHING if the state of the row does not allow the action.
static brim_ui_sweep_action row_action(const brim_sweep_row *row, uint32_t key) {
  bool live = is_active(row) || row->state == BRIM_SWEEP_QUEUED;
  bool pausing = is_active(row) && row->want == BRIM_SWEEP_WANT_PAUSE;
  switch (key) {
    case 'c':
      return live || row->state == BRIM_SWEEP_PAUSED ? BRIM_UI_SWEEP_CANCEL : BRIM_UI_SWEEP_NOTHING;
    case 'p':
      if (pausing || row->state == BRIM_SWEEP_PAUSED) return BRIM_UI_SWEEP_RESUME;
      return live ? BRIM_UI_SWEEP_PAUSE : BRIM_UI_SWEEP_NOTHING;
    case 'r':
      return row->state == BRIM_SWEEP_FAILED || row->state == BRIM_SWEEP_CANCELLED
                 ? BRIM_UI_SWEEP_RETRY
                 : BRIM_UI_SWEEP_NOTHING;
    case '+':
    case '=':
      return row->state == BRIM_SWEEP_QUEUED ? BRIM_UI_SWEEP_RAISE : BRIM_UI_SWEEP_NOTHING;
    case '-':
      return row->state == BRIM_SWEEP_QUEUED ? BRIM_UI_SWEEP_LOWER : BRIM_UI_SWEEP_NOTHING;
    default:
      return BRIM_UI_SWEEP_NOTHING;
  }
}

static brim_ui_sweep_action ask_first(brim_ui_sweep *state, brim_ui_sweep_action action) {
  state->pending = action;
  state->mode = BRIM_UI_SWEEP_CONFIRM;
  return BRIM_UI_SWEEP_DRAW;
}

// Handles a key that acts on one experiment. Cancelling asks the user first.
static brim_ui_sweep_action row_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                    uint32_t key) {
  const brim_sweep_row *row = state->mode == BRIM_UI_SWEEP_TABLE
                                  ? selected_row(state, view)
                                  : brim_sweep_view_find(view, state->target);
  brim_ui_sweep_action action = row ? row_action(row, key) : BRIM_UI_SWEEP_NOTHING;
  if (action == BRIM_UI_SWEEP_NOTHING) return action;
  copy_id(state->target, row->id);
  return action == BRIM_UI_SWEEP_CANCEL ? ask_first(state, action) : action;
}

static brim_ui_sweep_action open_row(brim_ui_sweep *state, const brim_sweep_view *view,
                                     brim_ui_sweep_mode mode) {
  const brim_sweep_row *row = selected_row(state, view);
  if (!row) return BRIM_UI_SWEEP_NOTHING;
  copy_id(state->target, row->id);
  state->mode = mode;
  state->scroll = 0;
  return BRIM_UI_SWEEP_DRAW;
}

static bool has_gpu_out(const brim_sweep_view *view) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    if (view->gpus[i].state == BRIM_SWEEP_GPU_OUT) return true;
  }
  return false;
}

//---------------------------------- modes ----------------------------------

static void reset_cursor(brim_ui_sweep *state) {
  state->selected[0] = '\0';
  state->at = state->top = 0;
  state->moved = false;
}

static brim_ui_sweep_action choose_list(brim_ui_sweep *state, brim_ui_sweep_list list) {
  state->list = list;
  reset_cursor(state);
  return BRIM_UI_SWEEP_DRAW;
}

static brim_ui_sweep_action table_char(brim_ui_sweep *state, const brim_sweep_view *view,
                                       uint32_t ch) {
  if (ch >= '1' && ch < '1' + BRIM_UI_SWEEP_LIST_COUNT) {
    return choose_list(state, (brim_ui_sweep_list)(ch - '1'));
  }
  switch (ch) {
    case 'k':
      return move_cursor(state, view, -1);
    case 'j':
      return move_cursor(state, view, 1);
    case 'g':
      return move_cursor(state, view, INT32_MIN);
    case 'G':
      return move_cursor(state, view, INT32_MAX);
    case ' ':
      return move_cursor(state, view, (int64_t)state->page);
    case 'l':
      return open_row(state, view, BRIM_UI_SWEEP_LOG);
    case 's':
      state->order = (brim_ui_sweep_order)((state->order + 1) % BRIM_UI_SWEEP_ORDER_COUNT);
      state->follow = true;
      return BRIM_UI_SWEEP_DRAW;
    case '/':
      state->mode = BRIM_UI_SWEEP_SEARCH;
      return BRIM_UI_SWEEP_DRAW;
    case '?':
    case 'h':
      state->mode = BRIM_UI_SWEEP_HELP;
      return BRIM_UI_SWEEP_DRAW;
    case 'q':
      return state->watching ? BRIM_UI_SWEEP_LEAVE : ask_first(state, BRIM_UI_SWEEP_STOP);
    case 'R':
      return view->counts[BRIM_SWEEP_FAILED] > 0 ? ask_first(state, BRIM_UI_SWEEP_RETRY_FAILED)
                                                 : BRIM_UI_SWEEP_NOTHING;
    case 'u':
      return has_gpu_out(view) ? ask_first(state, BRIM_UI_SWEEP_RETURN_GPUS)
                               : BRIM_UI_SWEEP_NOTHING;
    default:
      return row_key(state, view, ch);
  }
}

static brim_ui_sweep_action table_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                      brim_key key) {
  int64_t page = state->page > 1 ? (int64_t)state->page - 1 : 1;
  switch (key.code) {
    case BRIM_KEY_UP:
      return move_cursor(state, view, -1);
    case BRIM_KEY_DOWN:
      return move_cursor(state, view, 1);
    case BRIM_KEY_PAGE_UP:
      return move_cursor(state, view, -page);
    case BRIM_KEY_PAGE_DOWN:
      return move_cursor(state, view, page);
    case BRIM_KEY_HOME:
      return move_cursor(state, view, INT32_MIN);
    case BRIM_KEY_END:
      return move_cursor(state, view, INT32_MAX);
    case BRIM_KEY_ENTER:
      return open_row(state, view, BRIM_UI_SWEEP_DETAILS);
    case BRIM_KEY_TAB:
      return choose_list(state, (brim_ui_sweep_list)((state->list + 1) % BRIM_UI_SWEEP_LIST_COUNT));
    case BRIM_KEY_ESCAPE:
      state->search[0] = '\0';
      return choose_list(state, BRIM_UI_SWEEP_ALL);
    case BRIM_KEY_CHAR:
      return table_char(state, view, brim_key_latin(key.ch));
    default:
      return BRIM_UI_SWEEP_NOTHING;
  }
}

// Handles keys on the pages over the table: log, details, help.
static brim_ui_sweep_action page_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                     brim_key key) {
  uint32_t ch = key.code == BRIM_KEY_CHAR ? brim_key_latin(key.ch) : 0;
  int64_t page = state->page > 1 ? (int64_t)state->page - 1 : 1, delta = 0;
  if (key.code == BRIM_KEY_ESCAPE || ch == 'q' || ch == '?' || key.code == BRIM_KEY_LEFT) {
    state->mode = BRIM_UI_SWEEP_TABLE;
    return BRIM_UI_SWEEP_DRAW;
  }
  if (state->mode == BRIM_UI_SWEEP_HELP) return BRIM_UI_SWEEP_NOTHING;
  if (ch == 'l' || key.code == BRIM_KEY_ENTER) {
    bool log = state->mode == BRIM_UI_SWEEP_LOG;
    state->mode = log ? BRIM_UI_SWEEP_DETAILS : BRIM_UI_SWEEP_LOG;
    state->scroll = 0;
    return BRIM_UI_SWEEP_DRAW;
  }
  if (key.code == BRIM_KEY_UP || ch == 'k') delta = 1;
  if (key.code == BRIM_KEY_DOWN || ch == 'j') delta = -1;
  if (key.code == BRIM_KEY_PAGE_UP) delta = page;
  if (key.code == BRIM_KEY_PAGE_DOWN || ch == ' ') delta = -page;
  if (key.code == BRIM_KEY_HOME || ch == 'g') delta = INT32_MAX;
  if (key.code == BRIM_KEY_END || ch == 'G') delta = INT32_MIN;
  if (delta == 0) return row_key(state, view, ch);
  state->scroll += delta;  // put_log limits it to the log's lines
  if (state->scroll < 0) state->scroll = 0;
  return BRIM_UI_SWEEP_DRAW;
}

static brim_ui_sweep_action search_key(brim_ui_sweep *state, brim_key key) {
  bool leaves = key.code == BRIM_KEY_BACKSPACE && !state->search[0];
  if (leaves || !brim_key_edit(key, state->search, sizeof state->search)) {
    state->mode = BRIM_UI_SWEEP_TABLE;
    if (key.code != BRIM_KEY_ESCAPE) return BRIM_UI_SWEEP_DRAW;
    state->search[0] = '\0';
  }
  reset_cursor(state);
  return BRIM_UI_SWEEP_DRAW;
}

static brim_ui_sweep_action confirm_key(brim_ui_sweep *state, brim_key key) {
  uint32_t ch = key.code == BRIM_KEY_CHAR ? brim_key_latin(key.ch) : 0;
  brim_ui_sweep_action pending = state->pending;
  state->mode = BRIM_UI_SWEEP_TABLE;
  state->pending = BRIM_UI_SWEEP_NOTHING;
  if (ch == 'y') return pending;
  if (ch == 'd' && pending == BRIM_UI_SWEEP_STOP) return BRIM_UI_SWEEP_LEAVE;
  return BRIM_UI_SWEEP_DRAW;
}

brim_ui_sweep_action brim_ui_sweep_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                       brim_key key) {
  if (key.code == BRIM_KEY_NONE) return BRIM_UI_SWEEP_NOTHING;
  if (key.code == BRIM_KEY_REDRAW) return BRIM_UI_SWEEP_DRAW;
  switch (state->mode) {
    case BRIM_UI_SWEEP_SEARCH:
      return search_key(state, key);
    case BRIM_UI_SWEEP_CONFIRM:
      return confirm_key(state, key);
    case BRIM_UI_SWEEP_TABLE:
      return table_key(state, view, key);
    default:
      return page_key(state, view, key);
  }
}

//-------------------------------------------- pages --------------------------------------------
// Pages over the live table: the keys, one experiment, its log.

static void put_help(brim_ui_frame *frame, const brim_ui_sweep *state) {
  static const struct {
    const char *keys, *text;
  } rows[] = {
      {"↑ ↓ j k", BRIM_N_("move; PgUp, PgDn, Home and End move further")},
      {"Enter", BRIM_N_("details of the experiment")},
      {"l", BRIM_N_("its log")},
      {"c", BRIM_N_("cancel it; asks first")},
      {"p", BRIM_N_("pause it after a checkpoint, or resume it")},
      {"r", BRIM_N_("retry it after a failure or a cancellation")},
      {"R", BRIM_N_("retry all failed experiments; asks first")},
      {"+ -", BRIM_N_("run it earlier or later than the other queued ones")},
      {"1-6 Tab", BRIM_N_("list all, running, queued, done, failed, paused or cancelled ones")},
      {"s", BRIM_N_("sort by state, grid order, metric or time")},
      {"/", BRIM_N_("search labels, tags and ids; Esc ends it")},
      {"u", BRIM_N_("use GPUs again that are out of service; asks first")},
      {"Ctrl-L", BRIM_N_("draw the screen again")},
      {"Ctrl-C", BRIM_N_("stop the sweep: running experiments save first")},
      {"q", BRIM_N_("stop the sweep or close this table; asks first")},
  };
  brim_ui_frame_text(frame, BRIM_UI_TITLE, brim_tr("Keys"));
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *keys = i == 0 && !frame->term->unicode ? "Up Down j k" : rows[i].keys;
    const char *text = rows[i].text;
    if (state->watching && strcmp(keys, "Ctrl-C") == 0) continue;
    if (state->watching && strcmp(keys, "q") == 0) text = BRIM_N_("close this table");
    brim_ui_frame_help(frame, keys, brim_tr(text));
  }
  static const brim_ui_hint back[] = {{"Esc", BRIM_N_("back")}};
  brim_ui_frame_hints(frame, "", back, 1);
}

// Puts "  Started   12 min ago". A long value continues on further lines, at most six in all.
static void put_fact(brim_ui_frame *f, const char *name, brim_ui_style style, const char *value) {
  enum { INDENT = 14 };
  if (!*value) return;
  char label[64];
  int pad = INDENT - 2 - brim_utf8_width(name);
  snprintf(label, sizeof label, "  %s%*s", name, pad > 0 ? pad : 1, "");
  int room = f->term->width - brim_utf8_width(label);
  for (int line = 0; *value && line < 6 && room > 8; line++) {
    brim_str out, part;  // out: the line; part: the text of the value on this line
    size_t n = 0, space = 0;
    int used = 0;
    while (value[n] && value[n] != '\n') {
      size_t size = 1;
      char character[8];
      while (size < 4 && ((unsigned char)value[n + size] & 0xC0) == 0x80) size++;
      memcpy(character, value + n, size);
      character[size] = '\0';
      used += brim_utf8_width(character);
      if (used > room) break;
      if (value[n] == ' ') space = n;
      n += size;
    }
    if (value[n] && value[n] != '\n' && space > 0) n = space;
    brim_str_init(&out);
    brim_str_init(&part);
    brim_str_append_n(&part, value, n);
    brim_str_append(&out, line == 0 ? label : "");
    if (line > 0) brim_str_repeat(&out, ' ', (size_t)(f->term->width - room));
    brim_ui_put_clipped(&out, f->term, style, part.data, room);
    brim_ui_frame_line(f, &out);
    brim_str_deinit(&part);
    brim_str_deinit(&out);
    value += n;
    while (*value == ' ' || *value == '\n') value++;
  }
}

static void put_experiment(brim_ui_frame *f, const brim_sweep_view *view,
                           const brim_sweep_row *row) {
  char text[160] = "", a[32], b[32];
  put_fact(f, brim_tr("Id"), BRIM_UI_PLAIN, row->id);

  int n = snprintf(text, sizeof text, "%s", state_text(row));
  if (row->attempt > 0 && n > 0 && n < (int)sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, brim_tr(", attempt %lld, %lld retries left"),
             (long long)row->attempt, (long long)row->tries_left);
  }
  put_fact(f, brim_tr("State"), state_style(row->state), text);

  size_t used = 0;
  text[0] = '\0';
  brim_format_count((double)row->step, a);
  brim_format_count((double)row->steps, b);
  if (row->step >= 0 && row->steps > 0) {
    used = brim_msg_format(text, sizeof text, brim_tr("step %s of %s"), a, b);
  } else if (row->step >= 0) {
    used = brim_msg_format(text, sizeof text, brim_tr("step %s"), a);
  }
  if (row->epoch >= 0 && row->epochs > 0) {
    used += brim_msg_format(text + used, sizeof text - used, "%s", used ? ", " : "");
    (void)brim_msg_format(text + used, sizeof text - used, brim_tr("epoch %lld of %lld"),
                          (long long)row->epoch, (long long)row->epochs);
  }
  put_fact(f, brim_tr("Progress"), BRIM_UI_PLAIN, text);

  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  value_text(metric, row->metric, a);
  value_text(metric, row->best, b);
  if (a[0] && b[0]) {
    snprintf(text, sizeof text, brim_tr("%s, best %s"), a, b);
  } else {
    snprintf(text, sizeof text, "%s", a[0] ? a : b);
  }
  const char *label = metric ? brim_ui_value_label(metric) : row->metric_key;
  put_fact(f, label, BRIM_UI_PLAIN, text);

  duration_text(seconds_of(view, row), a);
  duration_text(brim_sweep_state_ended(row->state) ? NAN : row->eta_s, b);
  if (a[0] && b[0]) {
    snprintf(text, sizeof text, brim_tr("%s, ETA %s"), a, b);
  } else {
    snprintf(text, sizeof text, "%s", a[0] ? a : b);
  }
  put_fact(f, brim_tr("Time"), BRIM_UI_PLAIN, text);

  snprintf(text, sizeof text, "%.100s%s%.40s", row->devices, *row->host ? ", " : "", row->host);
  put_fact(f, brim_tr("Where"), BRIM_UI_PLAIN, text);
  put_fact(f, brim_tr("Tags"), BRIM_UI_PLAIN, row->tags);
  if (row->priority != 0) {
    snprintf(text, sizeof text, "%lld", (long long)row->priority);
    put_fact(f, brim_tr("Priority"), BRIM_UI_PLAIN, text);
  }
  brim_str note;
  brim_str_init(&note);
  put_note(row, &note);
  bool failed = row->state == BRIM_SWEEP_FAILED;
  put_fact(f, failed ? brim_tr("Failure") : brim_tr("Note"), failed ? BRIM_UI_BAD : BRIM_UI_WARN,
           note.data);
  brim_str_deinit(&note);
}

//---------------------------------- log ----------------------------------

// Puts one value of an event: a number in short form, a nested value as "...".
static void put_value(brim_str *out, const char *key, const json_t *value) {
  if (json_is_string(value)) {
    brim_str_printf(out, "  %s=%s", key, json_string_value(value));
  } else if (json_is_integer(value)) {
    brim_str_printf(out, "  %s=%lld", key, (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    brim_str_printf(out, "  %s=%.4g", key, json_real_value(value));
  } else if (json_is_boolean(value)) {
    brim_str_printf(out, "  %s=%s", key, json_is_true(value) ? "true" : "false");
  } else if (!json_is_null(value)) {
    brim_str_printf(out, "  %s=...", key);
  }
}

// Puts a line of the log. An event that brim wrote with --json becomes "12:03:11  epoch  epoch=4  loss=0.31"; other
// lines stay as they are.
static void put_event(const char *line, size_t size, brim_str *out) {
  json_t *event = NULL;
  const char *key;
  json_t *value;
  bool object = size > 2 && line[0] == '{' && !brim_json_parse(line, size, "", &event);
  const char *name = object ? json_string_value(json_object_get(event, "event")) : NULL;
  if (!name) {
    brim_str_append_n(out, line, size);
  } else {
    const json_t *when = json_object_get(event, "t");
    char clock[16];
    brim_ui_time_of_day(json_is_number(when) ? json_number_value(when) : NAN, "", clock);
    brim_str_printf(out, "%s%s%s", clock, clock[0] ? "  " : "", name);
    json_object_foreach(event, key, value) {
      if (strcmp(key, "event") != 0 && strcmp(key, "t") != 0) put_value(out, key, value);
    }
  }
  json_decref(event);
}

// Puts `lines` lines of the log, scrolled up by state->scroll lines from its end.
static void put_log(brim_ui_frame *f, brim_ui_sweep *state, const char *text, int lines) {
  if (lines < 1) return;
  size_t total = 0, room = (size_t)lines;
  for (const char *p = text ? text : ""; *p; p++) total += *p == '\n' || !p[1];
  int64_t most = total > room ? (int64_t)(total - room) : 0;
  if (state->scroll > most) state->scroll = most;
  size_t skip = (size_t)(most - state->scroll), shown = 0;
  const char *at = text ? text : "";
  for (size_t i = 0; *at && shown < room; i++) {
    size_t n = strcspn(at, "\n");
    // If \r overwrote the line, show only its last text.
    size_t from = n > 0 && at[n - 1] == '\r' ? n - 1 : n, end = from;
    while (from > 0 && at[from - 1] != '\r') from--;
    if (i >= skip) {
      brim_str line;
      brim_str_init(&line);
      put_event(at + from, end - from, &line);
      brim_ui_frame_text(f, BRIM_UI_PLAIN, line.data);
      brim_str_deinit(&line);
      shown++;
    }
    at += n + (at[n] == '\n');
  }
  for (; shown < room; shown++) {
    bool none = total == 0 && shown == 0;
    brim_ui_frame_text(f, BRIM_UI_DIM, none ? brim_tr("the log is empty") : "");
  }
}

static void put_page(brim_ui_frame *frame, brim_ui_sweep *state, const brim_sweep_view *view,
                     const brim_ui_sweep_log *log) {
  const brim_sweep_row *row = brim_sweep_view_find(view, state->target);
  brim_ui_frame_text(frame, BRIM_UI_TITLE, row ? row->label : state->target);
  if (row && state->mode == BRIM_UI_SWEEP_DETAILS) put_experiment(frame, view, row);
  brim_ui_frame_text(frame, BRIM_UI_DIM, log && log->path ? log->path : "");
  int lines = frame->left - 1;
  state->page = lines > 1 ? (size_t)lines : 1;
  put_log(frame, state, log ? log->text : NULL, lines);
  const brim_ui_hint hints[] = {
      {"Esc", BRIM_N_("back")},
      {"l", state->mode == BRIM_UI_SWEEP_LOG ? BRIM_N_("details") : BRIM_N_("log")},
      {frame->term->unicode ? "↑↓" : "Up Down", BRIM_N_("scroll")},
      {"c", BRIM_N_("cancel")},
      {"p", BRIM_N_("pause")},
      {"r", BRIM_N_("retry")},
  };
  brim_ui_frame_hints(frame, "", hints, sizeof hints / sizeof *hints);
}

//-------------------------------------------- table --------------------------------------------

// Puts `right` at the right edge of a line, if there is room.
static void put_right(brim_str *line, const brim_term *term, const char *right) {
  int room = term->width - brim_utf8_width(line->data) - brim_utf8_width(right);
  if (room < 2) return;
  brim_str_repeat(line, ' ', (size_t)room);
  brim_ui_styled(line, term, BRIM_UI_DIM, right);
}

//---------------------------------- header ----------------------------------

static void put_title(brim_ui_frame *f, const brim_sweep_view *view) {
  char text[64] = "", clock[32];
  brim_str line;
  brim_str_init(&line);
  brim_ui_put_clipped(&line, f->term, BRIM_UI_TITLE, view->title, f->term->width / 2);
  duration_text(view->now_s - view->started_s, clock);
  if (clock[0]) snprintf(text, sizeof text, brim_tr("running for %s"), clock);
  int room = f->term->width - brim_utf8_width(line.data) - brim_utf8_width(text) - 4;
  if (room >= 8) {
    brim_str_append(&line, "  ");
    brim_ui_put_clipped(&line, f->term, BRIM_UI_DIM, view->store, room);
  }
  put_right(&line, f->term, text);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&line);
}

// The share of the sweep that ended, 0 to 1; an experiment that has not ended counts by its progress. NaN = unknown.
static double total_fraction(const brim_sweep_view *view) {
  int64_t total = brim_sweep_view_total(view);
  double ended = 0;
  if (total <= 0) return NAN;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (brim_sweep_state_ended((brim_sweep_state)i)) ended += (double)view->counts[i];
  }
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    double f = brim_sweep_state_ended(row->state) ? NAN : fraction_of(row);
    if (!isnan(f)) ended += f;
  }
  double fraction = ended / (double)total;
  return fraction > 1 ? 1 : fraction;
}

static void put_total(brim_ui_frame *f, const brim_sweep_view *view) {
  char number[32], text[96];
  double fraction = total_fraction(view);
  brim_str line;
  brim_str_init(&line);
  int bar = f->term->width / 3 < 40 ? f->term->width / 3 : 40;
  if (f->term->colour) brim_str_append(&line, "\033[36m");
  put_bar(&line, f->term, fraction, bar);
  if (f->term->colour) brim_str_append(&line, "\033[0m");
  brim_str_printf(&line, "  %3.0f %%", isnan(fraction) ? 0 : floor(brim_shown(fraction * 100)));
  if (!isnan(view->done_per_h)) {
    brim_format_figure(view->done_per_h, number);
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("%s experiments/h"), number);
  }
  if (view->steps_per_s > 0 && f->term->width >= 110) {
    brim_format_figure(view->steps_per_s, number);
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("%s steps/s"), number);
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), number);
    snprintf(text, sizeof text, brim_tr("ETA %s"), number);
    brim_str_append(&line, "  ");
    brim_ui_styled(&line, f->term, BRIM_UI_BOLD, text);
  }
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&line);
}

// Puts "1 all 1,200  2 running 8": each list with its key and count.
static void put_lists(brim_ui_frame *f, const brim_ui_sweep *state, const brim_sweep_view *view) {
  static const char *const names[BRIM_UI_SWEEP_LIST_COUNT] = {
      [BRIM_UI_SWEEP_ALL] = BRIM_N_("all"),         [BRIM_UI_SWEEP_ACTIVE] = BRIM_N_("running"),
      [BRIM_UI_SWEEP_WAITING] = BRIM_N_("queued"),  [BRIM_UI_SWEEP_FINISHED] = BRIM_N_("done"),
      [BRIM_UI_SWEEP_FAILURES] = BRIM_N_("failed"), [BRIM_UI_SWEEP_HELD] = BRIM_N_("other"),
  };
  char text[96], number[32];
  brim_str line;
  brim_str_init(&line);
  for (int i = 0; i < BRIM_UI_SWEEP_LIST_COUNT; i++) {
    int64_t count = 0;
    for (int k = 0; k < BRIM_SWEEP_STATE_COUNT; k++) {
      bool listed = is_listed((brim_ui_sweep_list)i, (brim_sweep_state)k);
      if (listed) count += view->counts[k];
    }
    brim_format_count((double)count, number);
    snprintf(text, sizeof text, "%d %s %s", i + 1, brim_tr(names[i]), number);
    if (i > 0) brim_str_append(&line, "  ");
    bool chosen = state->list == (brim_ui_sweep_list)i;
    brim_ui_style style = chosen                                     ? BRIM_UI_SELECTED
                          : i == BRIM_UI_SWEEP_FAILURES && count > 0 ? BRIM_UI_BAD
                          : count > 0                                ? BRIM_UI_PLAIN
                                                                     : BRIM_UI_DIM;
    // Without colour the chosen list is in brackets.
    if (chosen && !f->term->colour) brim_str_append_char(&line, '[');
    brim_ui_styled(&line, f->term, style, text);
    if (chosen && !f->term->colour) brim_str_append_char(&line, ']');
  }
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&line);
}

// Puts the GPUs in at most `most` lines; the last line counts the GPUs that found no room.
static void put_gpus(brim_ui_frame *f, const brim_sweep_view *view, int most) {
  size_t shown = view->gpu_count;
  int across = f->term->width / 58 > 1 ? f->term->width / 58 : 1;
  if ((int)view->gpu_count <= most) across = 1;
  if (shown > (size_t)(most * across)) shown = (size_t)((most - 1) * across);
  brim_str line, cell;
  brim_str_init(&line);
  brim_str_init(&cell);
  int width = f->term->width / across - (across > 1 ? 2 : 0);
  for (size_t i = 0; i < shown; i++) {
    brim_str_clear(&cell);
    put_gpu(&view->gpus[i], f->term, width, &cell);
    brim_str_append(&line, cell.data);
    int pad = width + 2 - brim_utf8_width(cell.data);
    bool last = (i + 1) % (size_t)across == 0 || i + 1 == shown;
    if (!last && pad > 0) brim_str_repeat(&line, ' ', (size_t)pad);
    if (last) brim_ui_frame_line(f, &line);
  }
  if (shown < view->gpu_count) {
    int64_t counts[BRIM_SWEEP_GPU_STATE_COUNT] = {0};
    for (size_t i = shown; i < view->gpu_count; i++) counts[view->gpus[i].state]++;
    brim_str_printf(&line, brim_tr("%zu more: %lld busy, %lld free, %lld not usable"),
                    view->gpu_count - shown, (long long)counts[BRIM_SWEEP_GPU_BUSY],
                    (long long)counts[BRIM_SWEEP_GPU_FREE],
                    (long long)(counts[BRIM_SWEEP_GPU_FOREIGN] + counts[BRIM_SWEEP_GPU_OUT] +
                                counts[BRIM_SWEEP_GPU_RELEASING]));
    brim_ui_frame_line(f, &line);
  }
  brim_str_deinit(&cell);
  brim_str_deinit(&line);
}

// Puts "best val acc so far: 91.20 %  lr=0.1 seed=2". Only experiments that are done or running count.
static void put_best(brim_ui_frame *f, const brim_sweep_view *view) {
  const brim_sweep_metric *metric = view->metric_count > 0 ? &view->metrics[0] : NULL;
  const brim_sweep_row *first = NULL;
  char value[32];
  if (!metric || metric->better == BRIM_BETTER_NEITHER) return;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    const bool eligible = row->state == BRIM_SWEEP_DONE || row->state == BRIM_SWEEP_RUNNING;
    if (!eligible || strcmp(row->metric_key, metric->key) != 0 || !isfinite(row->best)) continue;
    const brim_lab_rank a = {row->best, 1, 1}, b = {first ? first->best : (double)NAN, 1, 1};
    if (!first || brim_lab_rank_order(&a, &b, metric->better) < 0) first = row;
  }
  if (!first) return;
  brim_str line;
  brim_str_init(&line);
  value_text(metric, first->best, value);
  brim_str_printf(&line, brim_tr("best %s so far: %s"), brim_ui_value_label(metric), value);
  const int room = f->term->width - brim_utf8_width(line.data) - 2;
  if (room >= 8) {
    brim_str_append(&line, "  ");
    brim_ui_put_clipped(&line, f->term, BRIM_UI_BEST, *first->label ? first->label : first->id,
                        room);
  }
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&line);
}

static void put_header(brim_ui_frame *f, const brim_ui_sweep *state, const brim_sweep_view *view) {
  put_title(f, view);
  put_total(f, view);
  put_lists(f, state, view);
  if (f->rows >= 12) put_best(f, view);
  if (view->stopping) {
    brim_ui_frame_text(f, BRIM_UI_WARN, brim_tr("stopping: running experiments save first"));
  }
  if (view->notice[0]) brim_ui_frame_text(f, BRIM_UI_BAD, view->notice);
  int most = f->rows / 5 > 2 ? f->rows / 5 : 2;
  if (view->gpu_count > 0) put_gpus(f, view, most);
}

//---------------------------------- table ----------------------------------

typedef struct live_table {
  const brim_sweep_view *view;
  const size_t *rows;
  size_t count, at, top;
  brim_ui_column columns[BRIM_UI_SWEEP_COLUMN_COUNT];
  int widths[BRIM_UI_SWEEP_COLUMN_COUNT];
  bool use_short;
  brim_ui_sweep_look look;
} live_table;

enum { CURSOR_WIDTH = 2, GAP = 2, MAX_LABEL = 60 };

// Widths of the columns, the same in every frame so that the table does not jump. try_layout sets widths that are 0
// here.
static const int column_widths[BRIM_UI_SWEEP_COLUMN_COUNT] = {
    [BRIM_UI_SWEEP_STATE] = 10, [BRIM_UI_SWEEP_PROGRESS] = 13, [BRIM_UI_SWEEP_EPOCH] = 9,
    [BRIM_UI_SWEEP_METRIC] = 8, [BRIM_UI_SWEEP_BEST] = 8,      [BRIM_UI_SWEEP_WHERE] = 6,
    [BRIM_UI_SWEEP_TIME] = 8,   [BRIM_UI_SWEEP_ETA] = 8,
};

static int used_width(const live_table *t) {
  int used = CURSOR_WIDTH - GAP;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] > 0) used += t->widths[i] + GAP;
  }
  return used;
}

static int label_width(const live_table *t) {
  int wide = brim_utf8_width(t->columns[BRIM_UI_SWEEP_LABEL].header);
  // If the heading has the keys, labels need the widths of all keys and a space between them.
  if (t->look.values) {
    wide = -1;
    for (size_t i = 0; i < t->look.key_count; i++) wide += t->look.key_widths[i] + 1;
  }
  for (size_t i = 0; i < t->count && !t->look.values; i += sample_stride(t->count)) {
    int width = brim_utf8_width(t->view->rows[t->rows[i]].label);
    if (width > wide) wide = width;
  }
  return wide < 16 ? 16 : wide < MAX_LABEL ? wide : MAX_LABEL;
}

// Lays the columns out for full labels, or for values below their keys. Returns the width that labels need.
static int try_layout(live_table *t, const brim_term *term, bool short_labels) {
  int natural[BRIM_UI_SWEEP_COLUMN_COUNT];
  memcpy(natural, column_widths, sizeof natural);
  sweep_columns(t->view, t->rows, t->count, short_labels, &t->look, t->columns);
  int label = label_width(t);
  natural[BRIM_UI_SWEEP_LABEL] = label;
  natural[BRIM_UI_SWEEP_NOTE] = 20;
  if (!t->look.bar) natural[BRIM_UI_SWEEP_PROGRESS] = 5;
  brim_ui_layout(t->columns, natural, BRIM_UI_SWEEP_COLUMN_COUNT, term->width - CURSOR_WIDTH, 0,
                 t->widths, &t->use_short);
  return label;
}

static void lay_out(live_table *t, const brim_term *term) {
  t->look.term = term;
  t->look.bar = term->width >= 100;
  int label = try_layout(t, term, false);
  if (t->widths[BRIM_UI_SWEEP_LABEL] < label) label = try_layout(t, term, true);
  // Give free width to the labels, then to the notes.
  int left = term->width - used_width(t);
  int *wide = t->widths;
  if (left > 0 && wide[BRIM_UI_SWEEP_LABEL] < label) {
    int more = label - wide[BRIM_UI_SWEEP_LABEL];
    wide[BRIM_UI_SWEEP_LABEL] += more < left ? more : left;
    left -= more < left ? more : left;
  }
  if (left > 0 && wide[BRIM_UI_SWEEP_NOTE] > 0) wide[BRIM_UI_SWEEP_NOTE] += left;
}

static void put_table_header(brim_ui_frame *f, const live_table *t) {
  brim_str line, text;
  brim_str_init(&line);
  brim_str_init(&text);
  brim_str_repeat(&text, ' ', CURSOR_WIDTH);
  brim_term plain = *f->term;
  plain.colour = false;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] == 0) continue;
    if (text.len > CURSOR_WIDTH) brim_str_repeat(&text, ' ', GAP);
    const brim_ui_column *column = &t->columns[i];
    const char *header =
        t->use_short && column->short_header ? column->short_header : column->header;
    brim_ui_put_cell(&text, &plain, column->align, BRIM_UI_PLAIN, header, t->widths[i]);
  }
  brim_ui_styled(&line, f->term, BRIM_UI_BOLD, text.data);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&text);
  brim_str_deinit(&line);
}

static void put_row(brim_ui_frame *f, const live_table *t, const brim_sweep_row *row,
                    bool selected) {
  brim_str line, cell;
  brim_str_init(&line);
  brim_str_init(&cell);
  brim_term plain = *f->term;
  if (selected) plain.colour = false;  // the selected row has one style as a whole
  brim_str_append(&line, selected ? (f->term->unicode ? "▸ " : "> ") : "  ");
  bool first = true;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] == 0) continue;
    if (!first) brim_str_repeat(&line, ' ', GAP);
    first = false;
    brim_str_clear(&cell);
    brim_ui_style style = sweep_cell(t->view, row, (brim_ui_sweep_column)i, &t->look, &cell);
    brim_ui_put_cell(&line, &plain, t->columns[i].align, style, cell.data, t->widths[i]);
  }
  if (selected && f->term->colour) {
    brim_str_clear(&cell);
    brim_ui_styled(&cell, f->term, BRIM_UI_SELECTED, line.data);
    brim_ui_frame_line(f, &cell);
  } else {
    brim_ui_frame_line(f, &line);
  }
  brim_str_deinit(&cell);
  brim_str_deinit(&line);
}

static void put_table(brim_ui_frame *f, brim_ui_sweep *state, live_table *t, int lines) {
  size_t page = lines > 1 ? (size_t)lines - 1 : 1;
  lay_out(t, f->term);
  put_table_header(f, t);
  state->page = page;
  if (t->at < state->top) state->top = t->at;
  if (t->at >= state->top + page) state->top = t->at - page + 1;
  if (state->top + page > t->count) state->top = t->count > page ? t->count - page : 0;
  for (size_t i = 0; i < page; i++) {
    size_t at = state->top + i;
    if (at < t->count) {
      put_row(f, t, &t->view->rows[t->rows[at]], at == t->at);
    } else {
      bool none = t->count == 0 && i == 1;
      brim_ui_frame_text(f, BRIM_UI_DIM, none ? brim_tr("  no experiments in this list") : "");
    }
  }
}

//---------------------------------- footer ----------------------------------

// Puts the line below the table: why the selected row failed or waits, and its place in the list.
static void put_selected(brim_ui_frame *f, const brim_ui_sweep *state, const live_table *t) {
  char place[96], at[32], count[32];
  brim_str line, note;
  brim_str_init(&line);
  brim_str_init(&note);
  brim_format_count((double)(t->count ? t->at + 1 : 0), at);
  brim_format_count((double)t->count, count);
  static const char *const orders[BRIM_UI_SWEEP_ORDER_COUNT] = {
      [BRIM_UI_SWEEP_BY_STATE] = BRIM_N_("by state"),
      [BRIM_UI_SWEEP_BY_INDEX] = BRIM_N_("by grid order"),
      [BRIM_UI_SWEEP_BY_METRIC] = BRIM_N_("best first"),
      [BRIM_UI_SWEEP_BY_TIME] = BRIM_N_("newest first"),
  };
  snprintf(place, sizeof place, "%s/%s  %s", at, count, brim_tr(orders[state->order]));
  if (t->count > 0) put_note(&t->view->rows[t->rows[t->at]], &note);
  int room = f->term->width - brim_utf8_width(place) - 2;
  bool failed = t->count > 0 && t->view->rows[t->rows[t->at]].state == BRIM_SWEEP_FAILED;
  brim_ui_put_clipped(&line, f->term, failed ? BRIM_UI_BAD : BRIM_UI_WARN, note.data,
                      room >= 8 ? room : 0);
  put_right(&line, f->term, place);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&note);
  brim_str_deinit(&line);
}

static void put_messages(brim_ui_frame *f, const brim_sweep_view *view, int lines) {
  for (int i = 0; i < lines; i++) {
    size_t back = (size_t)(lines - i);
    if (back > view->message_count) {
      brim_ui_frame_text(f, BRIM_UI_PLAIN, "");
      continue;
    }
    brim_str line;
    brim_str_init(&line);
    brim_ui_sweep_message(&view->messages[view->message_count - back], f->term, &line);
    brim_ui_frame_line(f, &line);
    brim_str_deinit(&line);
  }
}

static void put_question(brim_ui_frame *f, const brim_ui_sweep *state,
                         const brim_sweep_view *view) {
  static const brim_ui_hint yes_no[] = {{"y", BRIM_N_("yes")}, {"n", BRIM_N_("no")}};
  static const brim_ui_hint stop[] = {
      {"y", BRIM_N_("stop")}, {"d", BRIM_N_("only close this table")}, {"n", BRIM_N_("no")}};
  char text[256];
  const brim_sweep_row *row = brim_sweep_view_find(view, state->target);
  bool stops = false;
  if (state->pending == BRIM_UI_SWEEP_CANCEL) {
    (void)brim_msg_format(text, sizeof text, brim_tr("Cancel %.120s?"), row ? row->label : "");
  } else if (state->pending == BRIM_UI_SWEEP_RETRY_FAILED) {
    snprintf(text, sizeof text, brim_tr("Retry %lld failed experiments?"),
             (long long)view->counts[BRIM_SWEEP_FAILED]);
  } else if (state->pending == BRIM_UI_SWEEP_RETURN_GPUS) {
    snprintf(text, sizeof text, "%s", brim_tr("Use the GPUs that are out of service again?"));
  } else {
    snprintf(text, sizeof text, "%s", brim_tr("Stop the sweep? Running experiments save first."));
    stops = true;
  }
  brim_ui_frame_hints(f, text, stops ? stop : yes_no, stops ? 3 : 2);
}

static void put_footer(brim_ui_frame *f, const brim_ui_sweep *state, const brim_sweep_view *view) {
  static const brim_ui_hint hints[] = {
      {"q", BRIM_N_("quit")},   {"?", BRIM_N_("help")},         {"Enter", BRIM_N_("details")},
      {"l", BRIM_N_("log")},    {"c", BRIM_N_("cancel")},       {"p", BRIM_N_("pause")},
      {"r", BRIM_N_("retry")},  {"/", BRIM_N_("find")},         {"s", BRIM_N_("sort")},
      {"1-6", BRIM_N_("list")}, {"R", BRIM_N_("retry failed")}, {"+-", BRIM_N_("priority")},
  };
  static const brim_ui_hint typing[] = {{"Enter", BRIM_N_("keep")}, {"Esc", BRIM_N_("end")}};
  bool types = state->mode == BRIM_UI_SWEEP_SEARCH;
  if (state->mode == BRIM_UI_SWEEP_CONFIRM) {
    put_question(f, state, view);
  } else if (types || state->search[0]) {
    char text[128];
    snprintf(text, sizeof text, types ? brim_tr("Search: %s_") : brim_tr("Search: %s"),
             state->search);
    brim_ui_frame_hints(f, text, types ? typing : typing + 1, types ? 2 : 1);
  } else {
    brim_ui_frame_hints(f, "", hints, sizeof hints / sizeof *hints);
  }
}

static brim_status table_frame(brim_ui_frame *f, brim_ui_sweep *state,
                               const brim_sweep_view *view) {
  size_t *rows = NULL;
  live_table t = {.view = view};
  brim_ui_sweep_pick pick = {state->list, state->order, state->search};
  BRIM_TRY(sweep_rows(view, &pick, &rows, &t.count));
  t.rows = rows;
  t.at = find_selected(state, view, rows, t.count);
  state->follow = false;
  snprintf(state->selected, sizeof state->selected, "%.32s",
           t.count > 0 ? view->rows[rows[t.at]].id : "");
  put_header(f, state, view);
  int messages = f->rows >= 45 ? 5 : f->rows >= 30 ? 3 : 1;
  int lines = f->left - messages - 2;
  put_table(f, state, &t, lines > 2 ? lines : 2);
  put_selected(f, state, &t);
  put_messages(f, view, messages);
  put_footer(f, state, view);
  brim_free(rows);
  return BRIM_OK;
}

brim_status brim_ui_sweep_frame(brim_ui_sweep *state, const brim_sweep_view *view,
                                const brim_ui_sweep_log *log, const brim_term *term, int rows,
                                brim_str *out) {
  brim_term wide = *term;
  if (wide.width <= 0) wide.width = 80;
  brim_ui_frame frame = {.out = out, .term = &wide, .rows = rows, .left = rows};
  if (state->mode == BRIM_UI_SWEEP_HELP) {
    put_help(&frame, state);
  } else if (state->mode == BRIM_UI_SWEEP_DETAILS || state->mode == BRIM_UI_SWEEP_LOG) {
    put_page(&frame, state, view, log);
  } else {
    BRIM_TRY(table_frame(&frame, state, view));
  }
  return brim_str_status(out);
}

//--------------------------------------- lines and status ---------------------------------------

static void add_count(brim_str *out, const brim_term *term, brim_ui_style style, const char *fmt,
                      int64_t count) {
  char number[32], text[96];
  if (count == 0) return;
  brim_format_count((double)count, number);
  snprintf(text, sizeof text, fmt, number);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, style, text);
}

// "412 of 1,200 done  8 running  12 failed"
static void put_counts(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char done[32], total[32];
  const int64_t *counts = view->counts;
  brim_format_count((double)counts[BRIM_SWEEP_DONE], done);
  brim_format_count((double)brim_sweep_view_total(view), total);
  brim_str_printf(out, brim_tr("%s of %s done"), done, total);
  add_count(out, term, BRIM_UI_PLAIN, brim_tr("%s running"),
            counts[BRIM_SWEEP_RUNNING] + counts[BRIM_SWEEP_LEASED]);
  add_count(out, term, BRIM_UI_PLAIN, brim_tr("%s queued"), counts[BRIM_SWEEP_QUEUED]);
  add_count(out, term, BRIM_UI_BAD, brim_tr("%s failed"), counts[BRIM_SWEEP_FAILED]);
  add_count(out, term, BRIM_UI_WARN, brim_tr("%s paused"), counts[BRIM_SWEEP_PAUSED]);
  add_count(out, term, BRIM_UI_DIM, brim_tr("%s cancelled"), counts[BRIM_SWEEP_CANCELLED]);
}

void brim_ui_sweep_line(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  put_counts(view, term, out);
  if (!isnan(view->done_per_h)) {
    brim_format_figure(view->done_per_h, number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("%s experiments/h"), number);
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ETA %s"), number);
  }
}

void brim_ui_sweep_message(const brim_sweep_message *message, const brim_term *term,
                           brim_str *out) {
  brim_ui_style style = message->level == BRIM_SWEEP_ERROR  ? BRIM_UI_BAD
                        : message->level == BRIM_SWEEP_WARN ? BRIM_UI_WARN
                                                            : BRIM_UI_PLAIN;
  int room = term->width;
  char clock[16];
  brim_ui_time_of_day(message->when_s, "", clock);
  if (clock[0]) {
    brim_ui_styled(out, term, BRIM_UI_DIM, clock);
    brim_str_append(out, "  ");
    room -= 10;
  }
  brim_ui_put_clipped(out, term, style, message->text, term->redraw && room > 0 ? room : INT_MAX);
}

//---------------------------------- status ----------------------------------

static brim_status status_gpus(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    brim_str_append(out, "  ");
    int width = term->width > 2 ? term->width - 2 : 0;
    put_gpu(&view->gpus[i], term, width, out);
    brim_str_append_char(out, '\n');
  }
  if (view->gpu_count > 0) brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

// True if a row has a text in this column. Columns without any text are not shown.
static bool has_text(const brim_sweep_view *view, const size_t *rows, size_t count,
                     brim_ui_sweep_column column, const brim_ui_sweep_look *look) {
  bool found = false;
  for (size_t i = 0; i < count && !found; i++) {
    brim_str cell;
    brim_str_init(&cell);
    sweep_cell(view, &view->rows[rows[i]], column, look, &cell);
    found = cell.len > 0;
    brim_str_deinit(&cell);
  }
  return found;
}

// True if the rows belong to several grids; then a column names the grid.
static bool has_several_grids(const brim_sweep_view *view, const size_t *rows, size_t count) {
  for (size_t i = 1; i < count; i++) {
    if (strcmp(view->rows[rows[i]].grid, view->rows[rows[0]].grid) != 0) return true;
  }
  return false;
}

static void add_row(brim_ui_table *table, const brim_sweep_view *view, const brim_sweep_row *row,
                    const bool *used, const brim_ui_sweep_look *look) {
  brim_ui_table_add(table, BRIM_UI_DIM, "%.12s", row->id);
  if (used[BRIM_UI_SWEEP_COLUMN_COUNT]) brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", row->grid);
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    brim_str cell;
    if (!used[i]) continue;
    brim_str_init(&cell);
    brim_ui_style style = sweep_cell(view, row, (brim_ui_sweep_column)i, look, &cell);
    if (cell.status && !table->status) table->status = cell.status;
    brim_ui_table_add(table, style, "%s", cell.data);
    brim_str_deinit(&cell);
  }
}

// Lists all rows of the view: running, done with the best first, failed, queued, then paused and cancelled.
static brim_status choose_rows(const brim_sweep_view *view, size_t *rows, size_t *count) {
  static const brim_ui_sweep_list lists[] = {BRIM_UI_SWEEP_ACTIVE, BRIM_UI_SWEEP_FINISHED,
                                             BRIM_UI_SWEEP_FAILURES, BRIM_UI_SWEEP_WAITING,
                                             BRIM_UI_SWEEP_HELD};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const bool done = lists[i] == BRIM_UI_SWEEP_FINISHED;
    const brim_ui_sweep_pick pick = {lists[i],
                                     done ? BRIM_UI_SWEEP_BY_METRIC : BRIM_UI_SWEEP_BY_STATE, ""};
    size_t *listed = NULL, n = 0;
    BRIM_TRY(sweep_rows(view, &pick, &listed, &n));
    if (n > 0) memcpy(rows + *count, listed, n * sizeof *rows);
    *count += n;
    brim_free(listed);
  }
  return BRIM_OK;
}

static brim_status put_rows(const brim_sweep_view *view, const brim_term *term, const size_t *rows,
                            size_t count, brim_str *out) {
  // The id comes first: the commands cancel, pause, retry and log take it.
  brim_ui_column columns[2 + BRIM_UI_SWEEP_COLUMN_COUNT] = {
      {"ID", NULL, BRIM_UI_LEFT, 0, 0}, {brim_tr("Grid"), NULL, BRIM_UI_LEFT, 1, 8}};
  bool grids = has_several_grids(view, rows, count);
  brim_ui_table table;
  brim_ui_sweep_look look = {.term = term};
  bool narrow = term->width > 0 && term->width < 132;
  sweep_columns(view, rows, count, narrow, &look, columns + 2);
  bool used[BRIM_UI_SWEEP_COLUMN_COUNT + 1];  // shown columns; the last is the grid
  size_t n = grids ? 2 : 1;
  used[BRIM_UI_SWEEP_COLUMN_COUNT] = grids;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    used[i] = has_text(view, rows, count, (brim_ui_sweep_column)i, &look);
    if (used[i]) columns[n++] = columns[2 + i];
    // Keep notes longer than the live table does: users run `status` to see why an experiment failed or waits.
    if (used[i] && i == BRIM_UI_SWEEP_NOTE) columns[n - 1].priority = 2;
  }
  brim_ui_table_init(&table, columns, n);
  for (size_t i = 0; i < count; i++) add_row(&table, view, &view->rows[rows[i]], used, &look);
  brim_status status = count > 0 ? brim_ui_table_render(&table, term, out, NULL) : BRIM_OK;
  brim_ui_table_deinit(&table);
  return status;
}

static brim_status status_table(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  size_t count = 0;
  size_t *rows = (size_t *)brim_calloc(view->row_count + 1, sizeof *rows);
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  brim_status status = choose_rows(view, rows, &count);
  if (!status) status = put_rows(view, term, rows, count, out);
  brim_free(rows);
  int64_t left_out = brim_sweep_view_total(view) - (int64_t)count;
  if (!status && left_out > 0) {
    brim_format_count((double)left_out, number);
    brim_str_printf(out, brim_tr("%s more; --all lists every experiment\n"), number);
  }
  return status ? status : brim_str_status(out);
}

static void put_rates(const brim_sweep_view *view, bool pool, brim_str *out) {
  char text[32];
  const char *gap = "";
  if (!isnan(view->done_per_h)) {
    brim_format_figure(view->done_per_h, text);
    brim_str_printf(out, brim_tr("%s experiments/h"), text);
    gap = "  ";
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), text);
    brim_str_append(out, gap);
    brim_str_printf(out, brim_tr("ETA %s"), text);
    gap = "  ";
  }
  brim_str_append(out, gap);
  duration_text(view->now_s - view->started_s, text);
  if (view->pid > 0 && text[0]) {
    brim_str_printf(out, brim_tr("process %lld, running for %s\n"), (long long)view->pid, text);
  } else if (view->pid > 0) {
    brim_str_printf(out, brim_tr("process %lld\n"), (long long)view->pid);
  } else if (!pool) {
    brim_str_append(out, brim_tr("no sweep is running on this store\n"));
  }
}

// Puts the number of ended experiments whose files are still on the machines of their workers.
static void put_pending_uploads(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  long long count = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    bool ended = row->state == BRIM_SWEEP_DONE || row->state == BRIM_SWEEP_FAILED;
    count += ended && *row->owed;
  }
  if (count == 0) return;
  char text[160];
  snprintf(text, sizeof text,
           brim_tr("%lld ended experiments have files that their workers still have to send"),
           count);
  brim_ui_styled(out, term, BRIM_UI_WARN, text);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_sweep_status(const brim_sweep_view *view, const brim_term *term,
                                 const brim_ui_sweep_status_options *options, brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_TITLE, view->title);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, view->store);
  brim_str_append_char(out, '\n');
  put_counts(view, term, out);
  brim_str_append_char(out, '\n');
  put_rates(view, options && options->pool, out);
  put_pending_uploads(view, term, out);
  if (view->stopping) {
    brim_ui_styled(out, term, BRIM_UI_WARN, brim_tr("stopping: running experiments save first"));
    brim_str_append_char(out, '\n');
  }
  if (view->notice[0]) {
    brim_ui_styled(out, term, BRIM_UI_BAD, view->notice);
    brim_str_append_char(out, '\n');
  }
  brim_str_append_char(out, '\n');
  BRIM_TRY(status_gpus(view, term, out));
  return status_table(view, term, out);
}

//------------------------------------------- summary -------------------------------------------

enum { BEST_ROWS = 5, GROUP_ROWS = 10 };

//---------------------------------- failures ----------------------------------

// A class of failure: how often it occurred, and the first experiment that failed so, by time.
typedef struct failed_class {
  brim_failure failure;
  int64_t count;
  const brim_sweep_row *first;
} failed_class;

static size_t count_classes(const brim_sweep_view *view, failed_class out[BRIM_FAILURE_COUNT]) {
  size_t classes = 0;
  for (int c = 0; c < BRIM_FAILURE_COUNT; c++) {
    failed_class failed = {.failure = (brim_failure)c};
    for (size_t i = 0; i < view->row_count; i++) {
      const brim_sweep_row *row = &view->rows[i];
      if (row->state != BRIM_SWEEP_FAILED || row->failure != failed.failure) continue;
      failed.count++;
      // An unknown time counts as the latest.
      if (!failed.first || row->ended_s < failed.first->ended_s ||
          (isnan(failed.first->ended_s) && !isnan(row->ended_s))) {
        failed.first = row;
      }
    }
    if (failed.count > 0) out[classes++] = failed;
  }
  return classes;
}

static int most_frequent_first(const void *a, const void *b) {
  const failed_class *x = (const failed_class *)a, *y = (const failed_class *)b;
  return x->count != y->count ? (x->count > y->count ? -1 : 1) : (int)x->failure - (int)y->failure;
}

// Returns the label, or the title if the label is empty: for a grid without axes, and for a group whose only axis is
// the seed.
static const char *name_of(const brim_sweep_view *view, const char *label) {
  return *label ? label : view->title;
}

// Puts "  OOM  3  lr=0.1 batch_size=4096  ID", with the message below.
static void put_class(const brim_sweep_view *view, const brim_term *term,
                      const failed_class *failed, brim_str *out) {
  char count[32], text[128];
  brim_str plain;
  brim_format_count((double)failed->count, count);
  snprintf(text, sizeof text, "  %s  %s", brim_ui_failure_class(failed->failure), count);
  brim_ui_styled(out, term, BRIM_UI_BAD, text);
  brim_str_append(out, "  ");
  brim_str_init(&plain);
  int room = term->width > 0 ? term->width - brim_utf8_width(text) - 16 : 0;
  brim_ui_clip(&plain, term, name_of(view, failed->first->label), room < 0 ? 8 : room);
  brim_str_printf(out, "%s  ", plain.data);
  brim_str_printf(out, "%.12s\n", failed->first->id);
  if (*failed->first->message) {
    brim_str_clear(&plain);
    brim_ui_clip(&plain, term, failed->first->message, 0);
    brim_str_append(out, "    ");
    brim_ui_fit(out, term, plain.data, 4);
    brim_str_append_char(out, '\n');
  }
  if (plain.status && !out->status) out->status = plain.status;
  brim_str_deinit(&plain);
}

static void put_failures(const brim_sweep_view *view, const brim_term *term, const char *retry,
                         brim_str *out) {
  failed_class classes[BRIM_FAILURE_COUNT];
  size_t count = count_classes(view, classes);
  if (count == 0) return;
  qsort(classes, count, sizeof *classes, most_frequent_first);
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_BOLD, brim_tr("Failures, with the first of each kind"));
  brim_str_append_char(out, '\n');
  bool may_succeed = true;  // a retry without changes may succeed
  for (size_t i = 0; i < count; i++) {
    put_class(view, term, &classes[i], out);
    may_succeed = may_succeed && brim_failure_retry_of(classes[i].failure) != BRIM_RETRY_NEVER;
  }
  if (retry) {
    brim_str_append(out, "  ");
    brim_str_printf(
        out,
        may_succeed ? brim_tr("retry them: %s\n") : brim_tr("fix the cause, then retry them: %s\n"),
        retry);
  }
}

//---------------------------------- ranking ----------------------------------

// True if every experiment that is done has a best value of the metric: then best values rank the experiments. Else
// last values do, since a list must not mix the two.
static bool all_have_best(const brim_sweep_view *view, const char *key) {
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    if (row->state == BRIM_SWEEP_DONE && strcmp(row->metric_key, key) == 0 && isnan(row->best) &&
        !isnan(row->metric)) {
      return false;
    }
  }
  return true;
}

typedef struct ranked {
  const brim_sweep_row *row;
  double value;
  brim_metric_better better;
} ranked;

typedef struct group {
  const brim_sweep_row *row;  // first experiment of the group in the grid's order
  brim_lab_stats stats;
  size_t seeds;  // number of experiments, done or not
  brim_metric_better better;
} group;

static bool is_earlier(const brim_sweep_row *a, const brim_sweep_row *b) {
  return a->idx != b->idx ? a->idx < b->idx : strcmp(a->id, b->id) < 0;
}

static int best_first(const void *a, const void *b) {
  const ranked *x = (const ranked *)a, *y = (const ranked *)b;
  const brim_lab_rank p = {x->value, 1, 1}, q = {y->value, 1, 1};
  const int order = brim_lab_rank_order(&p, &q, x->better);
  return order ? order : is_earlier(x->row, y->row) ? -1 : is_earlier(y->row, x->row);
}

// Lists the experiments that are done and have a finite value of the metric, the best first. Release *out by brim_free.
static brim_status rank_rows(const brim_sweep_view *view, const brim_sweep_metric *metric,
                             ranked **out, size_t *count) {
  bool best = all_have_best(view, metric->key);
  size_t n = 0;
  *out = (ranked *)brim_calloc(view->row_count + 1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    double value = best ? row->best : row->metric;
    if (row->state != BRIM_SWEEP_DONE || strcmp(row->metric_key, metric->key) != 0) continue;
    if (isfinite(value)) (*out)[n++] = (ranked){row, value, metric->better};
  }
  qsort(*out, n, sizeof **out, best_first);
  *count = n;
  return BRIM_OK;
}

static void summary_best(const brim_sweep_view *view, const brim_sweep_metric *metric,
                         const brim_term *term, const ranked *ranking, size_t count, bool best,
                         brim_str *out) {
  char value[32];
  brim_str_append_char(out, '\n');
  brim_str title;
  brim_str_init(&title);
  brim_str_printf(&title, best ? brim_tr("Best %s of each run") : brim_tr("Last %s of each run"),
                  brim_ui_value_label(metric));
  brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
  brim_str_deinit(&title);
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count && i < BEST_ROWS; i++) {
    value_text(metric, ranking[i].value, value);
    brim_str_printf(out, "  %10s  ", value);
    brim_ui_put_clipped(out, term, i == 0 ? BRIM_UI_BEST : BRIM_UI_PLAIN,
                        name_of(view, ranking[i].row->label),
                        term->width > 40 ? term->width - 30 : INT_MAX);
    brim_str_printf(out, "  %.12s\n", ranking[i].row->id);
  }
}

//---------------------------------- groups over seeds ----------------------------------

static int by_group(const void *a, const void *b) {
  const ranked *x = (const ranked *)a, *y = (const ranked *)b;
  int order = strcmp(x->row->group, y->row->group);
  return order ? order : is_earlier(x->row, y->row) ? -1 : is_earlier(y->row, x->row);
}

static int best_group_first(const void *a, const void *b) {
  const group *x = (const group *)a, *y = (const group *)b;
  const brim_lab_rank p = {x->stats.mean, x->stats.n, x->seeds};
  const brim_lab_rank q = {y->stats.mean, y->stats.n, y->seeds};
  const int order = brim_lab_rank_order(&p, &q, x->better);
  return order ? order : is_earlier(x->row, y->row) ? -1 : is_earlier(y->row, x->row);
}

static int by_group_name(const void *a, const void *b) {
  return strcmp(((const group *)a)->row->group, ((const group *)b)->row->group);
}

// Counts all experiments of each group, also those without a value, which its mean lacks. `groups` must be sorted by
// name.
static void count_seeds(const brim_sweep_view *view, group *groups, size_t count) {
  for (size_t i = 0; i < view->row_count; i++) {
    const group key = {.row = &view->rows[i]};
    group *g = (group *)bsearch(&key, groups, count, sizeof *groups, by_group_name);
    if (g) g->seeds++;
  }
}

static void put_group(const brim_sweep_view *view, const brim_sweep_metric *metric,
                      const brim_term *term, const group *g, bool first, brim_str *out) {
  char text[80], seeds[64];
  brim_ui_value_spread(metric, g->stats.mean, g->stats.stddev, text);
  char *sign = strstr(text, "\xc2\xb1");
  if (sign && !term->unicode) memcpy(sign, "+-", 2);
  const bool lacks = g->stats.n < g->seeds;
  if (lacks) {
    snprintf(seeds, sizeof seeds, brim_tr("%zu of %zu seeds"), g->stats.n, g->seeds);
  } else {
    snprintf(seeds, sizeof seeds, brim_tr("%zu seeds"), g->stats.n);
  }
  int pad = 20 - brim_utf8_width(text);
  brim_str_printf(out, "  %*s%s  ", pad > 0 ? pad : 0, "", text);
  // Do not cut labels if they would have no room at all.
  int room = term->width > 50 ? term->width - 26 - brim_utf8_width(seeds) : 0;
  brim_ui_put_clipped(out, term, first ? BRIM_UI_BEST : BRIM_UI_PLAIN, name_of(view, g->row->point),
                      room > 0 ? room : INT_MAX);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, lacks ? BRIM_UI_WARN : BRIM_UI_DIM, seeds);
  brim_str_append_char(out, '\n');
}

// Makes the groups of the ranked experiments, the best first. Reorders `ranking`.
static brim_status make_groups(const brim_sweep_view *view, const brim_sweep_metric *metric,
                               ranked *ranking, size_t count, group *out, size_t *group_count) {
  double *values = (double *)brim_calloc(count + 1, sizeof *values);
  size_t groups = 0;
  if (!values) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  qsort(ranking, count, sizeof *ranking, by_group);
  for (size_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && strcmp(ranking[i].row->group, ranking[i + n].row->group) == 0;)
      n++;
    if (!*ranking[i].row->group) continue;
    for (size_t k = 0; k < n; k++) values[k] = ranking[i + k].value;
    group *g = &out[groups++];
    *g = (group){.row = ranking[i].row, .better = metric->better};
    brim_lab_stats_of(values, n, &g->stats);
  }
  brim_free(values);
  count_seeds(view, out, groups);
  if (groups > 0) qsort(out, groups, sizeof *out, best_group_first);
  *group_count = groups;
  return BRIM_OK;
}

static brim_status put_groups(const brim_sweep_view *view, const brim_sweep_metric *metric,
                              const brim_term *term, ranked *ranking, size_t count, brim_str *out) {
  group *groups = (group *)brim_calloc(count + 1, sizeof *groups);
  if (!groups) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  size_t n = 0;
  brim_status status = make_groups(view, metric, ranking, count, groups, &n);
  size_t shown = n < GROUP_ROWS ? n : GROUP_ROWS;
  bool several = false;
  for (size_t i = 0; i < shown; i++) several = several || groups[i].seeds > 1;
  if (several) {
    const bool best = all_have_best(view, metric->key);
    brim_str title;
    brim_str_init(&title);
    brim_str_printf(
        &title,
        best ? brim_tr("Mean %s standard deviation over seeds, of the best %s of each run")
             : brim_tr("Mean %s standard deviation over seeds, of the last %s of each run"),
        term->unicode ? "±" : "+-", brim_ui_value_label(metric));
    brim_str_append_char(out, '\n');
    brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&title);
    for (size_t i = 0; i < shown; i++) put_group(view, metric, term, &groups[i], i == 0, out);
  }
  brim_free(groups);
  return status ? status : brim_str_status(out);
}

static brim_status put_metric(const brim_sweep_view *view, const brim_sweep_metric *metric,
                              const brim_term *term, brim_str *out) {
  ranked *ranking = NULL;
  size_t count = 0;
  BRIM_TRY(rank_rows(view, metric, &ranking, &count));
  brim_status status = BRIM_OK;
  // Without a better direction no experiment is the best.
  if (count > 0 && metric->better != BRIM_BETTER_NEITHER)
    summary_best(view, metric, term, ranking, count, all_have_best(view, metric->key), out);
  if (count > 0) status = put_groups(view, metric, term, ranking, count, out);
  brim_free(ranking);
  return status;
}

// Puts how many done experiments took more than one attempt, and the GPUs that are out of service.
static void put_incidents(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  int64_t retried = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    retried += view->rows[i].state == BRIM_SWEEP_DONE && view->rows[i].attempt > 1;
  }
  if (retried > 0) {
    brim_format_count((double)retried, number);
    brim_str_printf(out, brim_tr("%s of the done ones took more than one attempt\n"), number);
  }
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_sweep_gpu *gpu = &view->gpus[i];
    if (gpu->state != BRIM_SWEEP_GPU_OUT) continue;
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, brim_tr("%s is out of service: %s"), gpu->name, gpu->why);
    brim_ui_styled(out, term, BRIM_UI_BAD, line.data);
    brim_str_append_char(out, '\n');
    if (line.status && !out->status) out->status = line.status;
    brim_str_deinit(&line);
  }
}

static void put_command(brim_str *out, const char *fmt, const char *command) {
  if (!command) return;
  brim_str_printf(out, fmt, command);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_sweep_summary(const brim_sweep_view *view, const brim_term *term,
                                  const brim_ui_sweep_summary_options *options, brim_str *out) {
  char clock[32], ended[16], zone[16] = "";
  int64_t left = 0;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (!brim_sweep_state_ended((brim_sweep_state)i)) left += view->counts[i];
  }
  brim_ui_styled(out, term, BRIM_UI_TITLE, view->title);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, view->store);
  duration_text(view->now_s - view->started_s, clock);
  if (clock[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("in %s"), clock);
  }
  brim_ui_time_of_day(view->now_s, "", ended);
  struct tm local;
  const time_t when = fabs(view->now_s) < 1e11 ? (time_t)view->now_s : 0;
  if (ended[0] && localtime_r(&when, &local)) (void)strftime(zone, sizeof zone, "%Z", &local);
  if (clock[0] && ended[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ended at %s %s"), ended, zone);
  }
  brim_str_append_char(out, '\n');
  put_counts(view, term, out);
  brim_str_append_char(out, '\n');
  put_incidents(view, term, out);
  if (view->notice[0]) {
    brim_ui_styled(out, term, BRIM_UI_BAD, view->notice);
    brim_str_append_char(out, '\n');
  }
  put_failures(view, term, options ? options->retry : NULL, out);
  for (size_t i = 0; i < view->metric_count; i++) {
    BRIM_TRY(put_metric(view, &view->metrics[i], term, out));
  }
  brim_str_append_char(out, '\n');
  if (left > 0) put_command(out, brim_tr("continue: %s"), options ? options->resume : NULL);
  put_command(out, brim_tr("report: %s"), options ? options->report : NULL);
  return brim_str_status(out);
}

//------------------------------------------- dry run -------------------------------------------

enum { ID_DIGITS = 12, MESSAGES = 5, FIRST_COLUMNS = 3, LAST_COLUMNS = 3 };

static void add_need(brim_ui_table *table, const brim_forecast_need *need) {
  char bytes[32] = "-";
  if (!isnan(need->bytes)) brim_format_bytes((uint64_t)need->bytes, bytes);
  if (need->failure == BRIM_FAILURE_NONE) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", bytes);
  } else if (need->failure == BRIM_FAILURE_OOM_PLANNED) {
    brim_ui_table_add(table, need->adapts ? BRIM_UI_WARN : BRIM_UI_BAD, "%s %s", bytes,
                      need->adapts ? brim_tr("(adapts)") : brim_tr("(too large)"));
  } else {
    brim_ui_table_add(table, BRIM_UI_BAD, "%s", brim_ui_failure_class(need->failure));
  }
}

static void add_forecast_row(brim_ui_table *table, const brim_forecast *f, size_t i) {
  const brim_forecast_row *row = &f->rows[i];
  const brim_forecast_need *best = brim_forecast_best(f, row);
  char steps[32] = "-", time[32] = "-";
  if (!isnan(row->steps)) brim_format_count(row->steps, steps);
  if (best && !isnan(best->run_s)) brim_format_duration(best->run_s, time);
  brim_ui_table_add(table, BRIM_UI_DIM, "%zu", i + 1);
  brim_ui_table_add(table, BRIM_UI_DIM, "%.*s", ID_DIGITS, row->id);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", row->label[0] ? row->label : "-");
  for (size_t d = 0; d < f->device_count; d++) add_need(table, &row->needs[d]);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", steps);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", time);
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->state ? brim_tr(row->state) : brim_tr("new"));
}

static brim_status put_forecast_table(const brim_term *term, const brim_forecast *f,
                                      brim_str *out) {
  brim_ui_column columns[FIRST_COLUMNS + BRIM_FORECAST_DEVICES + LAST_COLUMNS] = {
      {"#", NULL, BRIM_UI_RIGHT, 3, 0},
      {"id", NULL, BRIM_UI_LEFT, 2, 0},
      {brim_tr("experiment"), NULL, BRIM_UI_LEFT, 0, 12}};
  size_t count = FIRST_COLUMNS;
  for (size_t d = 0; d < f->device_count; d++) {
    const char *name = f->devices[d].name[0] ? f->devices[d].name : f->devices[d].spec;
    columns[count++] =
        (brim_ui_column){f->device_count == 1 ? brim_tr("memory") : name,
                         f->device_count == 1 ? NULL : f->devices[d].spec, BRIM_UI_RIGHT, 0, 0};
  }
  columns[count++] = (brim_ui_column){brim_tr("steps"), NULL, BRIM_UI_RIGHT, 2, 0};
  columns[count++] = (brim_ui_column){brim_tr("time"), NULL, BRIM_UI_RIGHT, 1, 0};
  columns[count++] = (brim_ui_column){brim_tr("store"), NULL, BRIM_UI_LEFT, 1, 0};
  brim_ui_table table;
  brim_ui_table_init(&table, columns, count);
  for (size_t i = 0; i < f->row_count; i++) add_forecast_row(&table, f, i);
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

// A reason why experiments do not run on a device.
typedef struct complaint {
  const brim_forecast_need *need;
  const brim_forecast_row *first;  // the first experiment that has this reason
  size_t device, count;
} complaint;

static void put_complaints(const brim_term *term, const brim_forecast *f, brim_str *out) {
  complaint list[MESSAGES];
  size_t count = 0, more = 0;
  for (size_t i = 0; i < f->row_count * f->device_count; i++) {
    const brim_forecast_row *row = &f->rows[i / f->device_count];
    const brim_forecast_need *need = &row->needs[i % f->device_count];
    if (need->failure == BRIM_FAILURE_NONE) continue;
    size_t n = 0;
    while (n < count && (list[n].device != i % f->device_count || list[n].need->message == NULL ||
                         strcmp(list[n].need->message, need->message) != 0)) {
      n++;
    }
    if (n < count) {
      list[n].count++;
    } else if (count < MESSAGES) {
      list[count++] = (complaint){need, row, i % f->device_count, 1};
    } else {
      more++;
    }
  }
  for (size_t i = 0; i < count; i++) {
    brim_str text;
    brim_str_init(&text);
    brim_str_printf(&text, brim_tr("%s on %s (experiments: %zu, first: %.*s): %s"),
                    brim_ui_failure_class(list[i].need->failure),
                    f->devices[list[i].device].name[0] ? f->devices[list[i].device].name
                                                       : f->devices[list[i].device].spec,
                    list[i].count, ID_DIGITS, list[i].first->id, list[i].need->message);
    brim_ui_wrap(out, term, text.data, 2);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&text);
  }
  if (more) brim_str_printf(out, brim_tr("and %zu more that do not run as planned\n"), more);
}

static void put_time(const brim_forecast *f, const brim_forecast_sums *s, brim_str *out) {
  char training[32], wall[32];
  if (s->to_run == 0) return;
  brim_format_duration(s->run_s, training);
  if (s->timeless == 0) {
    brim_format_duration(s->wall_s, wall);
    brim_str_printf(out,
                    f->slots == 1
                        ? brim_tr("time         about %s, one experiment after the other\n")
                        : brim_tr("time         about %s: %s of training, %lld at a time\n"),
                    wall, training, (long long)f->slots);
  } else if (s->timeless == s->to_run) {
    brim_str_append(out, brim_tr("time         unknown: --measure runs a few steps of each\n"));
  } else {
    brim_str_printf(out,
                    brim_tr("time         %s of training; unknown for %zu of %zu experiments\n"),
                    training, s->timeless, s->to_run);
  }
}

static void put_sums(const brim_forecast *f, brim_str *out) {
  brim_forecast_sums s;
  char most[32], total[32];
  brim_forecast_sum(f, &s);
  brim_str_printf(out, brim_tr("experiments  %zu: %zu new, %zu in the store (%zu done)\n"),
                  f->row_count, s.fresh, s.known, s.done);
  for (size_t d = 0; d < f->device_count; d++) {
    const brim_forecast_device *device = &f->devices[d];
    if (isnan(device->total)) continue;
    brim_format_bytes((uint64_t)device->total, total);
    brim_str_printf(out, brim_tr("device       %lld x %s, %s\n"), (long long)device->count,
                    device->name, total);
  }
  if (!isnan(s.most_bytes)) {
    brim_format_bytes((uint64_t)s.most_bytes, most);
    brim_str_printf(out, brim_tr("memory       up to %s for one experiment\n"), most);
  }
  if (s.adapt) {
    brim_str_printf(out, brim_tr("adapts       %zu, with less memory than planned\n"), s.adapt);
  }
  if (s.stuck) brim_str_printf(out, brim_tr("cannot run   %zu\n"), s.stuck);
  put_time(f, &s, out);
}

brim_status brim_ui_forecast(const brim_term *term, const brim_forecast *forecast, brim_str *out) {
  BRIM_TRY(put_forecast_table(term, forecast, out));
  brim_str_append_char(out, '\n');
  put_complaints(term, forecast, out);
  put_sums(forecast, out);
  brim_str_append(out, brim_tr("nothing was submitted\n"));
  return brim_str_status(out);
}

//------------------------------------------ comparison ------------------------------------------
// The comparison of two sides. For each match of groups: mean and deviation of both sides, the difference with its
// interval, the verdict.

static const char *verdict_text(brim_lab_verdict verdict, brim_ui_style *style) {
  static const struct {
    const char *text;
    brim_ui_style style;
  } rows[BRIM_LAB_VERDICT_COUNT] = {
      [BRIM_LAB_UNKNOWN] = {BRIM_N_("certainly different"), BRIM_UI_WARN},
      [BRIM_LAB_ONCE] = {BRIM_N_("one result, no interval"), BRIM_UI_WARN},
      [BRIM_LAB_BETTER] = {BRIM_N_("certainly better"), BRIM_UI_GOOD},
      [BRIM_LAB_WORSE] = {BRIM_N_("certainly worse"), BRIM_UI_BAD},
      [BRIM_LAB_OPEN] = {BRIM_N_("cannot be told apart"), BRIM_UI_DIM},
      [BRIM_LAB_A_MISSING] = {BRIM_N_("only B has a result"), BRIM_UI_WARN},
      [BRIM_LAB_B_MISSING] = {BRIM_N_("B has no result"), BRIM_UI_WARN},
      [BRIM_LAB_BOTH_MISSING] = {BRIM_N_("neither has a result"), BRIM_UI_DIM}};
  *style = rows[verdict].style;
  return brim_tr(rows[verdict].text);
}

static bool is_narrow(const brim_term *term) { return term->width > 0 && term->width < 100; }

// "0.912 ± 0.013 (5)": mean, deviation, results.
static void side_text(const brim_term *term, const brim_sweep_metric *display,
                      const brim_lab_stats *stats, char out[112]) {
  char spread[80];
  if (stats->n == 0) {
    snprintf(out, 112, "-");
    return;
  }
  brim_ui_value_spread(display, stats->mean, stats->stddev, spread);
  char *sign = strstr(spread, "\xc2\xb1"), *unit = strstr(spread, " %");
  if (sign && !term->unicode) memcpy(sign, "+-", 2);
  if (unit && is_narrow(term)) *unit = '\0';  // the heading has the unit
  snprintf(out, 112, "%s (%zu)", spread, stats->n);
}

static void difference_text(const brim_sweep_metric *display, const brim_lab_difference *d,
                            char out[112]) {
  const double bounds[2] = {d->low, d->high};
  brim_ui_value_difference(display, d->mean, bounds, out);
}

enum { MAX_KEYS = 12 };

// The value of a setting in a group, taken from its first experiment.
static const char *value_of(const brim_lab_set *set, const brim_lab_group *g, const char *key) {
  const char *value = brim_lab_value(set, &set->exps[g->members[0]], key);
  return value ? value : "-";
}

// True if a setting differs between matches, or between the two sides of a match.
static bool setting_varies(const brim_lab_comparison *c, const brim_ui_lab_sides *sets,
                           const char *key) {
  const char *first = value_of(sets->b, c->matches[0].b, key);
  for (size_t i = 0; i < c->count; i++) {
    const brim_lab_match *m = &c->matches[i];
    if (strcmp(value_of(sets->b, m->b, key), first) != 0) return true;
    if (strcmp(value_of(sets->a, m->a, key), first) != 0) return true;
  }
  return false;
}

// Adds "0.1", or "fp32 -> bf16" if the two sides differ in the setting.
static void add_setting(brim_ui_table *table, const brim_lab_match *m,
                        const brim_ui_lab_sides *sets, const char *key) {
  const char *a = value_of(sets->a, m->a, key), *b = value_of(sets->b, m->b, key);
  if (strcmp(a, b) == 0) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", b);
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s -> %s", a, b);
  }
}

static void add_match(brim_ui_table *table, const brim_term *term, const brim_lab_match *m,
                      const brim_ui_lab_sides *sets) {
  char text[112];
  brim_ui_style style;
  const brim_sweep_metric *display = brim_lab_display(sets->b, m->metric_key);
  const char *verdict = verdict_text(m->verdict, &style);
  side_text(term, display, &m->a_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  side_text(term, display, &m->b_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  difference_text(display, &m->difference, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// Puts the table of matches. On a narrow terminal the verdict is left out first: its colour is that of the difference,
// and the lines below count the verdicts. The difference stays longest, then the two means.
static brim_status put_matches(const brim_term *term, const brim_lab_comparison *c,
                               const brim_ui_lab_sides *sets, brim_str *out) {
  brim_ui_column columns[MAX_KEYS + 4];
  const char *keys[MAX_KEYS];
  size_t count = 0;
  for (size_t i = 0; i < sets->b->key_count && count < MAX_KEYS && c->count > 0; i++) {
    const brim_lab_key *key = &sets->b->keys[i];
    if (key->over || !setting_varies(c, sets, key->name)) continue;
    columns[count] = (brim_ui_column){
        .header = brim_ui_lab_short(sets->b, i), .align = BRIM_UI_RIGHT, .min_width = 12};
    keys[count++] = key->name;
  }
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  const brim_sweep_metric *display = brim_lab_display(sets->b, key);
  const bool unit = display && display->format == BRIM_METRIC_PERCENT && is_narrow(term);
  const brim_ui_column fixed[] = {
      {unit ? "A, %" : "A", NULL, BRIM_UI_RIGHT, 2, 0},
      {unit ? "B, %" : "B", NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B - A [95 %]"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("Verdict"), NULL, BRIM_UI_LEFT, 3, 0},
  };
  memcpy(columns + count, fixed, sizeof fixed);
  brim_ui_table table;
  int left_out = 0;
  brim_ui_table_init(&table, columns, count + sizeof fixed / sizeof *fixed);
  for (size_t i = 0; i < c->count; i++) {
    for (size_t k = 0; k < count; k++) add_setting(&table, &c->matches[i], sets, keys[k]);
    add_match(&table, term, &c->matches[i], sets);
  }
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_verdict_counts(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  const char *separator = "  ";
  for (int v = 0; v < BRIM_LAB_VERDICT_COUNT; v++) {
    size_t n = 0;
    brim_ui_style style;
    for (size_t i = 0; i < c->count; i++) n += c->matches[i].verdict == (brim_lab_verdict)v;
    if (n == 0) continue;
    const char *text = verdict_text((brim_lab_verdict)v, &style);
    brim_str_append(out, separator);
    brim_ui_styled(out, term, style, text);
    brim_str_printf(out, ": %zu", n);
    separator = ",\n  ";
  }
  brim_str_append_char(out, '\n');
}

static const char *overall_text(brim_lab_verdict verdict) {
  switch (verdict) {
    case BRIM_LAB_BETTER:
      return brim_tr("Certain: B is better on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_WORSE:
      return brim_tr("Certain: B is worse on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_UNKNOWN:
      return brim_tr("Certain: B differs on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_OPEN:
      return brim_tr("Provisional: A and B cannot be told apart on average (%s; settings: %zu)");
    case BRIM_LAB_ONCE:
      return brim_tr("Provisional: a single setting has results in both (%s; settings: %zu)");
    default:
      return NULL;
  }
}

static void put_overall(const brim_term *term, const brim_lab_comparison *c,
                        const brim_ui_lab_sides *sets, brim_str *out) {
  char difference[112], line[320];
  const char *text = overall_text(c->verdict);
  const brim_lab_difference d = {c->overall.mean, c->overall.low, c->overall.high};
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  difference_text(brim_lab_display(sets->b, key), &d, difference);
  if (text) {
    snprintf(line, sizeof line, text, difference, c->overall.n);
  } else {
    snprintf(line, sizeof line, "%s", brim_tr("Provisional: no setting has results in both"));
  }
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

// Warns that among many 95 % intervals some exclude 0 by chance.
static void put_caution(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  size_t intervals = 0;
  for (size_t i = 0; i < c->count; i++) intervals += isnan(c->matches[i].difference.low) ? 0u : 1u;
  if (intervals < 20) return;
  char line[160];
  snprintf(line, sizeof line,
           brim_tr("Of %zu intervals of 95 %%, about %zu exclude 0 by chance alone."), intervals,
           (intervals + 10) / 20);
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_lab_compare(const brim_term *term, const brim_lab_comparison *comparison,
                                const brim_ui_lab_sides *sides, brim_str *out) {
  brim_str_printf(out, "A  %s\nB  %s\n\n", sides->a_name, sides->b_name);
  if (sides->differences && sides->differences[0]) {
    // Put differences in front of the verdicts, which they may explain.
    brim_str_append(out, sides->differences);
    brim_str_append_char(out, '\n');
  }
  brim_str_printf(out, "%s\n\n", sides->metric);
  BRIM_TRY(put_matches(term, comparison, sides, out));
  brim_str_append_char(out, '\n');
  put_verdict_counts(term, comparison, out);
  if (!comparison->several_values) put_overall(term, comparison, sides, out);
  put_caution(term, comparison, out);
  return brim_str_status(out);
}
