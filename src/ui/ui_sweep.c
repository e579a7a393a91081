// The live table of a sweep: one frame as lines of text. Pages over the table (details, log, help) are
// in ui_sweep_pages.c, cells in ui_sweep_cells.c.
#include "ui/ui_sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_lab.h"
#include "ui/ui_sweep_frame.h"

// Puts `right` at the right edge of a line, where it finds room.
static void put_right(brim_str *line, const brim_term *term, const char *right) {
  int room = term->width - brim_utf8_width(line->data) - brim_utf8_width(right);
  if (room < 2) return;
  brim_str_repeat(line, ' ', (size_t)room);
  brim_ui_styled(line, term, BRIM_UI_DIM, right);
}

//---------------------------------- header ----------------------------------

static void put_title(brim_ui_frame *f, const brim_sweep_view *view) {
  char text[64] = "", clock[32];
  brim_str line, part;
  brim_str_init(&line);
  brim_str_init(&part);
  brim_ui_clip(&part, f->term, view->title, f->term->width / 2);
  brim_ui_styled(&line, f->term, BRIM_UI_TITLE, part.data);
  brim_ui_sweep_clock(view->now_s - view->started_s, clock);
  if (clock[0]) snprintf(text, sizeof text, brim_tr("running for %s"), clock);
  int room = f->term->width - brim_utf8_width(line.data) - brim_utf8_width(text) - 4;
  if (room >= 8) {
    brim_str_clear(&part);
    brim_ui_clip(&part, f->term, view->store, room);
    brim_str_append(&line, "  ");
    brim_ui_styled(&line, f->term, BRIM_UI_DIM, part.data);
  }
  put_right(&line, f->term, text);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&part);
  brim_str_deinit(&line);
}

static void put_total(brim_ui_frame *f, const brim_sweep_view *view) {
  char number[32], text[96];
  double fraction = brim_ui_sweep_total_fraction(view);
  brim_str line;
  brim_str_init(&line);
  int bar = f->term->width / 3 < 40 ? f->term->width / 3 : 40;
  if (f->term->colour) brim_str_append(&line, "\033[36m");
  brim_ui_sweep_bar(&line, f->term, fraction, bar);
  if (f->term->colour) brim_str_append(&line, "\033[0m");
  brim_str_printf(&line, "  %3.0f %%", isnan(fraction) ? 0 : floor(brim_shown(fraction * 100)));
  if (!isnan(view->done_per_h)) {
    brim_ui_number(view->done_per_h, number);
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("%s experiments/h"), number);
  }
  if (view->steps_per_s > 0 && f->term->width >= 110) {
    brim_ui_number(view->steps_per_s, number);
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

static const char *list_name(brim_ui_sweep_list list) {
  static const char *const names[BRIM_UI_SWEEP_LIST_COUNT] = {
      [BRIM_UI_SWEEP_ALL] = BRIM_N_("all"),         [BRIM_UI_SWEEP_ACTIVE] = BRIM_N_("running"),
      [BRIM_UI_SWEEP_WAITING] = BRIM_N_("queued"),  [BRIM_UI_SWEEP_FINISHED] = BRIM_N_("done"),
      [BRIM_UI_SWEEP_FAILURES] = BRIM_N_("failed"), [BRIM_UI_SWEEP_HELD] = BRIM_N_("other"),
  };
  return brim_tr(names[list]);
}

// "1 all 1,200  2 running 8": the counts, and the keys that list them.
static void put_lists(brim_ui_frame *f, const brim_ui_sweep *state, const brim_sweep_view *view) {
  char text[96], number[32];
  brim_str line;
  brim_str_init(&line);
  for (int i = 0; i < BRIM_UI_SWEEP_LIST_COUNT; i++) {
    int64_t count = brim_ui_sweep_count(view, (brim_ui_sweep_list)i);
    brim_format_count((double)count, number);
    snprintf(text, sizeof text, "%d %s %s", i + 1, list_name((brim_ui_sweep_list)i), number);
    if (i > 0) brim_str_append(&line, "  ");
    bool chosen = state->list == (brim_ui_sweep_list)i;
    brim_ui_style style = chosen                                     ? BRIM_UI_SELECTED
                          : i == BRIM_UI_SWEEP_FAILURES && count > 0 ? BRIM_UI_BAD
                          : count > 0                                ? BRIM_UI_PLAIN
                                                                     : BRIM_UI_DIM;
    // Without styles the chosen one stands in brackets.
    if (chosen && !f->term->colour) brim_str_append_char(&line, '[');
    brim_ui_styled(&line, f->term, style, text);
    if (chosen && !f->term->colour) brim_str_append_char(&line, ']');
  }
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&line);
}

// At most `most` lines; what finds no room is counted in the last one.
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
    brim_ui_sweep_gpu(&view->gpus[i], f->term, width, &cell);
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

// "best val acc so far: 91.20 %  lr=0.1 seed=2": of those that are done or under way.
static void put_best(brim_ui_frame *f, const brim_sweep_view *view) {
  const brim_sweep_metric *metric = view->metric_count > 0 ? &view->metrics[0] : NULL;
  const brim_sweep_row *first = NULL;
  char value[32];
  if (!metric || metric->better == BRIM_BETTER_NEITHER) return;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    const bool open = row->state == BRIM_SWEEP_DONE || row->state == BRIM_SWEEP_RUNNING;
    if (!open || strcmp(row->metric_key, metric->key) != 0 || !isfinite(row->best)) continue;
    const brim_lab_rank a = {row->best, 1, 1}, b = {first ? first->best : (double)NAN, 1, 1};
    if (!first || brim_lab_rank_order(&a, &b, metric->better) < 0) first = row;
  }
  if (!first) return;
  brim_str line, label;
  brim_str_init(&line);
  brim_str_init(&label);
  brim_ui_sweep_value(metric, first->best, value);
  brim_str_printf(&line, brim_tr("best %s so far: %s"), brim_ui_sweep_metric_label(metric), value);
  const int room = f->term->width - brim_utf8_width(line.data) - 2;
  if (room >= 8) brim_ui_clip(&label, f->term, *first->label ? first->label : first->id, room);
  brim_str_append(&line, label.len ? "  " : "");
  brim_ui_styled(&line, f->term, BRIM_UI_BEST, label.data);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&label);
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

typedef struct table {
  const brim_sweep_view *view;
  const size_t *rows;
  size_t count, at, top;
  brim_ui_column columns[BRIM_UI_SWEEP_COLUMN_COUNT];
  int widths[BRIM_UI_SWEEP_COLUMN_COUNT];
  bool use_short;
  brim_ui_sweep_look look;
} table;

enum { MARK = 2, GAP = 2, LABEL_MOST = 60 };

static int used_width(const table *t) {
  int used = MARK - GAP;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] > 0) used += t->widths[i] + GAP;
  }
  return used;
}

static int label_width(const table *t) {
  int wide = brim_utf8_width(t->columns[BRIM_UI_SWEEP_LABEL].header);
  // The heading has the keys, the last without the room its values need.
  if (t->look.values) {
    wide = -1;
    for (size_t i = 0; i < t->look.key_count; i++) wide += t->look.key_widths[i] + 1;
  }
  for (size_t i = 0; i < t->count && !t->look.values; i += brim_ui_sweep_stride(t->count)) {
    int one = brim_utf8_width(t->view->rows[t->rows[i]].label);
    if (one > wide) wide = one;
  }
  return wide < 16 ? 16 : wide < LABEL_MOST ? wide : LABEL_MOST;
}

// Widths for labels as they are, or for their values below the keys. Returns how wide labels want to be.
static int try_layout(table *t, const brim_term *term, bool short_labels) {
  int natural[BRIM_UI_SWEEP_COLUMN_COUNT];
  memcpy(natural, brim_ui_sweep_widths, sizeof natural);
  brim_ui_sweep_columns(t->view, t->rows, t->count, short_labels, &t->look, t->columns);
  int label = label_width(t);
  natural[BRIM_UI_SWEEP_LABEL] = label;
  natural[BRIM_UI_SWEEP_NOTE] = 20;
  if (!t->look.bar) natural[BRIM_UI_SWEEP_PROGRESS] = 5;
  brim_ui_layout(t->columns, natural, BRIM_UI_SWEEP_COLUMN_COUNT, term->width - MARK, 0, t->widths,
                 &t->use_short);
  return label;
}

static void lay_out(table *t, const brim_term *term) {
  t->look.term = term;
  t->look.bar = term->width >= 100;
  int label = try_layout(t, term, false);
  if (t->widths[BRIM_UI_SWEEP_LABEL] < label) label = try_layout(t, term, true);
  // What is left over goes to the labels, then to the notes.
  int left = term->width - used_width(t);
  int *wide = t->widths;
  if (left > 0 && wide[BRIM_UI_SWEEP_LABEL] < label) {
    int more = label - wide[BRIM_UI_SWEEP_LABEL];
    wide[BRIM_UI_SWEEP_LABEL] += more < left ? more : left;
    left -= more < left ? more : left;
  }
  if (left > 0 && wide[BRIM_UI_SWEEP_NOTE] > 0) wide[BRIM_UI_SWEEP_NOTE] += left;
}

// One cell of exactly `width` columns.
static void put_cell(brim_str *line, const brim_term *term, const brim_ui_column *column,
                     const char *text, int width, brim_ui_style style) {
  brim_str cell;
  brim_str_init(&cell);
  brim_ui_clip(&cell, term, text, width);
  int pad = width - brim_utf8_width(cell.data);
  if (pad > 0 && column->align == BRIM_UI_RIGHT) brim_str_repeat(line, ' ', (size_t)pad);
  brim_ui_styled(line, term, style, cell.data);
  if (pad > 0 && column->align == BRIM_UI_LEFT) brim_str_repeat(line, ' ', (size_t)pad);
  if (cell.status) line->status = cell.status;
  brim_str_deinit(&cell);
}

static void put_table_header(brim_ui_frame *f, const table *t) {
  brim_str line, text;
  brim_str_init(&line);
  brim_str_init(&text);
  brim_str_repeat(&text, ' ', MARK);
  brim_term plain = *f->term;
  plain.colour = false;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] == 0) continue;
    if (text.len > MARK) brim_str_repeat(&text, ' ', GAP);
    const brim_ui_column *column = &t->columns[i];
    const char *header =
        t->use_short && column->short_header ? column->short_header : column->header;
    put_cell(&text, &plain, column, header, t->widths[i], BRIM_UI_PLAIN);
  }
  brim_ui_styled(&line, f->term, BRIM_UI_BOLD, text.data);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&text);
  brim_str_deinit(&line);
}

static void put_row(brim_ui_frame *f, const table *t, const brim_sweep_row *row, bool selected) {
  brim_str line, cell;
  brim_str_init(&line);
  brim_str_init(&cell);
  brim_term plain = *f->term;
  if (selected) plain.colour = false;  // one style for the whole row
  brim_str_append(&line, selected ? (f->term->unicode ? "▸ " : "> ") : "  ");
  bool first = true;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    if (t->widths[i] == 0) continue;
    if (!first) brim_str_repeat(&line, ' ', GAP);
    first = false;
    brim_str_clear(&cell);
    brim_ui_style style =
        brim_ui_sweep_cell(t->view, row, (brim_ui_sweep_column)i, &t->look, &cell);
    put_cell(&line, &plain, &t->columns[i], cell.data, t->widths[i], style);
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

static void put_table(brim_ui_frame *f, brim_ui_sweep *state, table *t, int lines) {
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

// Why the selected row failed or waits, and its place in the list.
static void put_selected(brim_ui_frame *f, const brim_ui_sweep *state, const table *t) {
  char place[96], at[32], count[32];
  brim_str line, note, clipped;
  brim_str_init(&line);
  brim_str_init(&note);
  brim_str_init(&clipped);
  brim_format_count((double)(t->count ? t->at + 1 : 0), at);
  brim_format_count((double)t->count, count);
  static const char *const orders[BRIM_UI_SWEEP_ORDER_COUNT] = {
      [BRIM_UI_SWEEP_BY_STATE] = BRIM_N_("by state"),
      [BRIM_UI_SWEEP_BY_INDEX] = BRIM_N_("by grid order"),
      [BRIM_UI_SWEEP_BY_METRIC] = BRIM_N_("best first"),
      [BRIM_UI_SWEEP_BY_TIME] = BRIM_N_("newest first"),
  };
  snprintf(place, sizeof place, "%s/%s  %s", at, count, brim_tr(orders[state->order]));
  if (t->count > 0) brim_ui_sweep_note(&t->view->rows[t->rows[t->at]], &note);
  int room = f->term->width - brim_utf8_width(place) - 2;
  if (room >= 8) brim_ui_clip(&clipped, f->term, note.data, room);
  bool failed = t->count > 0 && t->view->rows[t->rows[t->at]].state == BRIM_SWEEP_FAILED;
  brim_ui_styled(&line, f->term, failed ? BRIM_UI_BAD : BRIM_UI_WARN, clipped.data);
  put_right(&line, f->term, place);
  brim_ui_frame_line(f, &line);
  brim_str_deinit(&clipped);
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
  table t = {.view = view};
  brim_ui_sweep_pick pick = {state->list, state->order, state->search};
  BRIM_TRY(brim_ui_sweep_rows(view, &pick, &rows, &t.count));
  t.rows = rows;
  t.at = brim_ui_sweep_find(state, view, rows, t.count);
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
    brim_ui_sweep_help(&frame, state);
  } else if (state->mode == BRIM_UI_SWEEP_DETAILS || state->mode == BRIM_UI_SWEEP_LOG) {
    brim_ui_sweep_page(&frame, state, view, log);
  } else {
    BRIM_TRY(table_frame(&frame, state, view));
  }
  return brim_str_status(out);
}
