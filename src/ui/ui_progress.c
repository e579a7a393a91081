// Progress: one redrawn line on a terminal, plain lines at a modest rate elsewhere.
#include "ui/ui.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PART_SIZE = 160, BAR_MAX = 30, BAR_MIN = 8 };

// One piece of the line; the highest `drop` goes first when space is short.
typedef struct part {
  char text[PART_SIZE];
  int drop;
  int width;
  bool used;
} part;

enum {
  PART_TITLE,
  PART_BAR,
  PART_PERCENT,
  PART_COUNT_DONE,
  PART_RATE,
  PART_ETA,
  PART_FIGURE,
  PART_FIGURES,
  PART_SHARES,
  PART_TOTAL
};

static const int part_drop[PART_TOTAL] = {
    [PART_TITLE] = 0, [PART_BAR] = 5,    [PART_PERCENT] = 1, [PART_COUNT_DONE] = 7, [PART_RATE] = 3,
    [PART_ETA] = 4,   [PART_FIGURE] = 2, [PART_FIGURES] = 8, [PART_SHARES] = 6,
};

// Columns kept for parts whose text grows and shrinks, so that the redrawn line stands still: as wide
// as they usually get.
static const int part_reserve[PART_TOTAL] = {
    [PART_RATE] = 17, [PART_ETA] = 8, [PART_FIGURE] = 11, [PART_FIGURES] = 10, [PART_SHARES] = 28,
};

static double fraction(const brim_progress *p) {
  if (p->total <= 0) return NAN;
  double f = (double)p->done / (double)p->total;
  return f < 0 ? 0 : f > 1 ? 1 : f;
}

// "io 3% fwd 31% bwd 58% opt 8%"; shares that round to 0 are left out.
static void shares_text(const brim_progress *p, char *out, size_t size) {
  static const char *const names[BRIM_PHASE_COUNT] = {
      [BRIM_PHASE_IO] = "io",         [BRIM_PHASE_TRANSFORM] = "tf",
      [BRIM_PHASE_H2D] = "h2d",       [BRIM_PHASE_COMPUTE] = "compute",
      [BRIM_PHASE_FORWARD] = "fwd",   [BRIM_PHASE_BACKWARD] = "bwd",
      [BRIM_PHASE_OPTIMIZER] = "opt", [BRIM_PHASE_ENV] = "env",
      [BRIM_PHASE_ACT] = "act",       [BRIM_PHASE_UPDATE] = "upd",
      [BRIM_PHASE_OTHER] = "other",
  };
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    double share = p->phase_share[i];
    if (!(share >= 0.005)) continue;
    int n = snprintf(out + used, size - used, "%s%s %.0f%%", used ? " " : "", names[i],
                     brim_shown(share * 100));
    if (n < 0 || (size_t)n >= size - used) break;
    used += (size_t)n;
  }
}

static void set_part(part *parts, int which, const char *text) {
  snprintf(parts[which].text, PART_SIZE, "%.*s", PART_SIZE - 1, text);
  parts[which].used = text[0] != '\0';
}

static void count_text(const brim_progress *p, char *out, size_t size) {
  char done[32], total[32];
  brim_format_count((double)p->done, done);
  brim_format_count((double)p->total, total);
  out[0] = '\0';
  if (p->total > 0) {
    snprintf(out, size, "%s/%s", done, total);
  } else if (p->done >= 0) {
    snprintf(out, size, brim_tr("%s steps"), done);
  }
}

// The first figure of training, and the others: "loss 0.3123" and "acc 90.9 %".
static void figure_parts(const brim_progress *p, part *parts) {
  char texts[8][BRIM_METRIC_TEXT], others[PART_SIZE];
  if (!p->metrics || !p->values) return;
  size_t n = brim_metric_parts(p->metrics, BRIM_METRIC_LINE_PROGRESS, p->values, p->baseline, texts,
                               sizeof texts / sizeof *texts);
  if (n == 0) return;
  set_part(parts, PART_FIGURE, texts[0] + 2);  // behind its separator
  size_t used = 0;
  others[0] = '\0';
  for (size_t i = 1; i < n && used < sizeof others; i++) {
    used += (size_t)snprintf(others + used, sizeof others - used, "%s%s", i > 1 ? "  " : "",
                             texts[i] + 2);
  }
  set_part(parts, PART_FIGURES, others);
}

static void fill_parts(const brim_progress *p, part *parts) {
  char text[PART_SIZE], number[32];
  for (int i = 0; i < PART_TOTAL; i++) parts[i] = (part){.drop = part_drop[i]};
  set_part(parts, PART_TITLE, p->title ? p->title : "");
  if (p->epochs > 0) {
    snprintf(text, sizeof text, brim_tr("epoch %lld/%lld"), (long long)p->epoch,
             (long long)p->epochs);
    set_part(parts, PART_TITLE, text);
  }
  double f = fraction(p);
  if (!isnan(f)) {
    snprintf(text, sizeof text, "%3.0f %%", floor(brim_shown(f * 100)));
    set_part(parts, PART_PERCENT, text);
    parts[PART_BAR].used = true;
  }
  count_text(p, text, sizeof text);
  set_part(parts, PART_COUNT_DONE, text);
  if (!isnan(p->rate)) {
    brim_ui_number(p->rate, number);
    snprintf(text, sizeof text, "%s %s/s", number, brim_tr(p->unit ? p->unit : BRIM_N_("samples")));
    set_part(parts, PART_RATE, text);
  }
  if (!isnan(p->eta_s) && p->eta_s >= 0) {
    brim_format_duration(p->eta_s < 1 ? 1 : floor(p->eta_s), number);
    snprintf(text, sizeof text, brim_tr("ETA %s"), number);
    set_part(parts, PART_ETA, text);
  }
  figure_parts(p, parts);
  shares_text(p, text, sizeof text);
  set_part(parts, PART_SHARES, text);
}

static void measure_parts(part *parts, const brim_progress *p, bool redraw) {
  for (int i = 0; i < PART_TOTAL; i++) {
    parts[i].width = i == PART_BAR ? BAR_MIN : brim_utf8_width(parts[i].text);
    if (redraw && parts[i].width < part_reserve[i]) parts[i].width = part_reserve[i];
  }
  if (redraw && p->total > 0) {
    char total[32];
    brim_format_count((double)p->total, total);
    int widest = 2 * brim_utf8_width(total) + 1;
    if (parts[PART_COUNT_DONE].width < widest) parts[PART_COUNT_DONE].width = widest;
  }
}

static int line_width(const part *parts) {
  int total = 0;
  for (int i = 0; i < PART_TOTAL; i++) {
    if (parts[i].used) total += parts[i].width + (total > 0 ? 2 : 0);
  }
  return total;
}

static void fit_parts(part *parts, int width) {
  while (line_width(parts) > width) {
    int worst = -1;
    for (int i = 0; i < PART_TOTAL; i++) {
      if (parts[i].used && parts[i].drop > 0 && (worst < 0 || parts[i].drop > parts[worst].drop)) {
        worst = i;
      }
    }
    if (worst < 0) return;
    parts[worst].used = false;
  }
}

static void put_bar(brim_str *out, const brim_term *term, double f, int width) {
  int full = (int)floor(f * width);
  if (term->colour) brim_str_append(out, "\033[36m");
  if (!term->unicode) brim_str_append_char(out, '[');
  int cells = term->unicode ? width : width - 2;
  if (!term->unicode) full = (int)floor(f * cells);
  for (int i = 0; i < cells; i++) {
    if (i == full && term->colour) brim_str_append(out, "\033[2m");
    brim_str_append(out, i < full ? (term->unicode ? "━" : "#") : (term->unicode ? "─" : "."));
  }
  if (!term->unicode) brim_str_append_char(out, ']');
  if (term->colour) brim_str_append(out, "\033[0m");
}

void brim_ui_progress_line(const brim_progress *progress, const brim_term *term, brim_str *out) {
  part parts[PART_TOTAL];
  fill_parts(progress, parts);
  measure_parts(parts, progress, term->redraw);
  if (!term->redraw) parts[PART_BAR].used = false;
  int width = term->redraw && term->width ? term->width - 1 : 0;
  if (width > 0) fit_parts(parts, width);
  int left = width > 0 ? width - line_width(parts) : BAR_MAX;
  int bar = BAR_MIN + left < BAR_MAX ? BAR_MIN + left : BAR_MAX;
  bool first = true;
  int pad = 0;  // of the part before
  for (int i = 0; i < PART_TOTAL; i++) {
    if (!parts[i].used) continue;
    if (!first) brim_str_repeat(out, ' ', (size_t)(2 + pad));
    first = false;
    pad = 0;
    if (i == PART_BAR) {
      put_bar(out, term, fraction(progress), bar);
    } else if (i == PART_TITLE) {
      int room = width > 0 ? width : 0;
      brim_str text;
      brim_str_init(&text);
      brim_ui_clip(&text, term, parts[i].text, room);
      brim_ui_styled(out, term, BRIM_UI_BOLD, text.data);
      brim_str_deinit(&text);
    } else {
      brim_ui_styled(out, term, i == PART_SHARES ? BRIM_UI_DIM : BRIM_UI_PLAIN, parts[i].text);
      pad = parts[i].width - brim_utf8_width(parts[i].text);
    }
  }
}

void brim_ui_progress_init(brim_ui_progress *state) { memset(state, 0, sizeof *state); }

static void put_plain_line(brim_ui_progress *state, const brim_term *term,
                           const brim_progress *progress, brim_str *out) {
  brim_str line;
  brim_str_init(&line);
  brim_ui_progress_line(progress, term, &line);
  if (!line.status && strncmp(line.data, state->printed, sizeof state->printed - 1) != 0) {
    snprintf(state->printed, sizeof state->printed, "%s", line.data);
    brim_str_printf(out, "%s\n", line.data);
  }
  brim_str_deinit(&line);
}

void brim_ui_progress_update(brim_ui_progress *state, const brim_term *term,
                             const brim_progress *progress, brim_time now, brim_str *out) {
  const int64_t interval_ns = term->redraw ? 100000000 : 10000000000;
  if (!state->started) {
    state->started = true;
    state->last = now;
    if (!term->redraw) return;  // a plain line only after the first interval
  } else if (brim_time_since_ns(state->last, now) < interval_ns) {
    return;
  }
  state->last = now;
  if (term->redraw) {
    brim_str_append(out, "\r\033[2K");
    brim_ui_progress_line(progress, term, out);
  } else {
    put_plain_line(state, term, progress, out);
  }
  state->on_screen = term->redraw;
}

void brim_ui_progress_clear(brim_ui_progress *state, const brim_term *term, brim_str *out) {
  if (!state->on_screen || !term->redraw) return;
  brim_str_append(out, "\r\033[2K");
  state->on_screen = false;
}
