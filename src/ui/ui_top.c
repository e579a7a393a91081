// The live view of a machine: which parts a screen of this size has, from top to bottom.
#include "ui/ui_top.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_top_int.h"

//---------------------------------- header ----------------------------------

static void put_header(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  char clock[16], interval[32];
  brim_str line;
  brim_str_init(&line);
  brim_ui_styled(&line, s->term, BRIM_UI_TITLE, "brim top");
  brim_str_append(&line, "  ");
  brim_ui_top_put(&line, s->term, BRIM_UI_BOLD, s->view->host.name, 24);
  brim_ui_top_clock(s->view->when_s, clock);
  brim_str_printf(&line, "  %s  ", clock);
  if (s->state->paused || s->state->ended) {
    brim_ui_styled(&line, s->term, BRIM_UI_SELECTED,
                   s->state->paused ? brim_tr("paused") : brim_tr("end of the recording"));
    brim_str_append(&line, "  ");
  }
  brim_format_f64(brim_round_digits(s->state->interval_s, 3), interval);
  brim_str_printf(&line, brim_tr("every %s s"), interval);
  if (s->view->driver[0]) {
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("driver %s"), s->view->driver);
  }
  if (s->state->source[0]) {
    brim_str_append(&line, "  ");
    brim_ui_top_put(&line, s->term, BRIM_UI_DIM, s->state->source, 40);
  }
  if (s->state->skipped > 0) {
    char text[96];
    snprintf(text, sizeof text, brim_tr("damaged lines skipped: %ld"), s->state->skipped);
    brim_str_append(&line, "  ");
    brim_ui_styled(&line, s->term, BRIM_UI_WARN, text);
  }
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}

// "the driver answers slowly: ..."; without a reading yet, how long it has been waited for.
static void put_lateness(const brim_ui_top *state, brim_ui_frame *frame) {
  char text[160], took[32], age[32];
  bool slow = isfinite(state->slow_s);
  if (!slow && !state->empty) return;
  brim_format_duration(slow ? floor(state->slow_s) : 0, took);
  brim_format_duration(isfinite(state->age_s) ? floor(state->age_s) : 0, age);
  if (!slow) {
    snprintf(text, sizeof text, "%s", brim_tr("waiting for the first reading"));
  } else if (state->empty) {
    snprintf(text, sizeof text, brim_tr("the driver has not answered for %s"), took);
  } else {
    snprintf(text, sizeof text,
             brim_tr("the driver answers slowly (%s): these readings are %s old"), took, age);
  }
  brim_ui_frame_text(frame, slow ? BRIM_UI_WARN : BRIM_UI_DIM, text);
}

//---------------------------------- GPUs ----------------------------------

// How many panels stand beside each other; 0: there is no room for panels.
static int panel_columns(const brim_ui_top_scene *s, int left) {
  enum { BELOW = 8 };  // lines for jobs, processes and keys
  int count = (int)s->view->gpu_count;
  int columns = s->term->width / BRIM_UI_TOP_PANEL_WIDTH;
  if (columns > count) columns = count;
  if (columns < 1) return 0;
  int lines = (count + columns - 1) / columns * BRIM_UI_TOP_PANEL_LINES;
  return lines + BELOW <= left ? columns : 0;
}

static void put_panels(const brim_ui_top_scene *s, brim_ui_frame *frame, int columns) {
  size_t across = (size_t)columns;
  int width = s->term->width / columns;
  brim_str line, part;
  brim_str_init(&line);
  brim_str_init(&part);
  for (size_t first = 0; first < s->view->gpu_count; first += across) {
    for (int n = 0; n < BRIM_UI_TOP_PANEL_LINES; n++) {
      for (size_t i = 0; i < across && first + i < s->view->gpu_count; i++) {
        brim_ui_top_pad(&line, (int)i * width);
        brim_str_clear(&part);
        brim_ui_top_panel_line(s, first + i, n, width - (columns > 1 ? 2 : 0), &part);
        brim_str_append(&line, part.data);
        if (part.status && !line.status) line.status = part.status;
      }
      brim_ui_frame_line(frame, &line);
    }
  }
  brim_str_deinit(&part);
  brim_str_deinit(&line);
}

// Lines of a text that is made already.
static void put_lines(brim_ui_frame *frame, const brim_str *text, int most) {
  brim_str line;
  brim_str_init(&line);
  for (const char *p = text->data; *p && most > 0; most--) {
    size_t n = strcspn(p, "\n");
    brim_str_append_n(&line, p, n);
    brim_ui_frame_line(frame, &line);
    p += n + (p[n] == '\n');
  }
  if (text->status && !frame->out->status) frame->out->status = text->status;
  brim_str_deinit(&line);
}

static brim_status put_gpus(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  int columns = panel_columns(s, frame->left);
  if (columns > 0) {
    put_panels(s, frame, columns);
    return BRIM_OK;
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_top_gpu_table(s, &text);
  if (!status) put_lines(frame, &text, frame->left - 1);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- below ----------------------------------

static brim_status put_jobs(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  int room = frame->left / 2;
  if (s->view->job_count == 0 || room < 2) return BRIM_OK;
  size_t most = (size_t)room - 1;
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_top_jobs(s, most, &text);
  if (!status) put_lines(frame, &text, room);
  brim_str_deinit(&text);
  int left = room - 1 - (int)(s->view->job_count < most ? s->view->job_count : most);
  for (size_t i = 0; i < s->view->job_count && left > 0 && !status; i++) {
    brim_str line;
    if (s->view->jobs[i].finding_count == 0) continue;
    brim_str_init(&line);
    brim_ui_top_finding(s, &s->view->jobs[i], &line);
    brim_ui_frame_line(frame, &line);
    brim_str_deinit(&line);
    left--;
  }
  return status;
}

static void put_events(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  size_t most = frame->rows >= 40 ? 3 : 1, count = s->view->event_count;
  if (frame->left < 6) return;
  for (size_t i = count > most ? count - most : 0; i < count; i++) {
    brim_str line;
    brim_str_init(&line);
    brim_ui_top_event(&s->view->events[i], s->term, &line);
    brim_ui_frame_line(frame, &line);
    brim_str_deinit(&line);
  }
  most = frame->rows >= 40 ? 3 : 1;
  for (size_t i = 0; i < s->view->note_count && i < most; i++) {
    brim_ui_frame_text(frame, BRIM_UI_DIM, s->view->notes[i]);
  }
}

// "Processes 1-5 of 12, by GPU memory, filter: python"
static void put_process_title(const brim_ui_top_scene *s, brim_ui_frame *frame, size_t first,
                              size_t shown, size_t count) {
  static const char *const orders[BRIM_UI_TOP_ORDER_COUNT] = {
      [BRIM_UI_TOP_BY_MEMORY] = BRIM_N_("by GPU memory"), [BRIM_UI_TOP_BY_SM] = BRIM_N_("by SM"),
      [BRIM_UI_TOP_BY_CPU] = BRIM_N_("by CPU"),           [BRIM_UI_TOP_BY_RSS] = BRIM_N_("by RSS"),
      [BRIM_UI_TOP_BY_GPU] = BRIM_N_("by GPU"),           [BRIM_UI_TOP_BY_PID] = BRIM_N_("by pid"),
  };
  char title[160];
  brim_str line;
  brim_str_init(&line);
  if (count == 0) {
    snprintf(title, sizeof title, "%s", brim_tr("no processes"));
  } else {
    snprintf(title, sizeof title, brim_tr("processes %zu-%zu of %zu"), first + 1, first + shown,
             count);
  }
  brim_ui_styled(&line, s->term, BRIM_UI_TITLE, title);
  brim_str_append(&line, "  ");
  brim_str_append(&line, brim_tr(orders[s->state->order]));
  if (s->state->filter[0]) {
    brim_str_append(&line, "  ");
    snprintf(title, sizeof title, brim_tr("filter: %s"), s->state->filter);
    brim_ui_top_put(&line, s->term, BRIM_UI_WARN, title, 80);
  }
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}

static brim_status put_processes(brim_ui_top *state, const brim_ui_top_scene *s,
                                 brim_ui_frame *frame) {
  size_t *rows = NULL, count = 0;
  bool none = s->view->gpu_count == 0 && s->view->process_count == 0;
  if (frame->left < 4 || none) return BRIM_OK;
  BRIM_TRY(brim_ui_top_pick(state, s->view, &rows, &count));
  size_t room = (size_t)frame->left - 3;  // title, header, keys
  state->page = room;
  if (state->top + room > count) state->top = count > room ? count - room : 0;
  size_t shown = count - state->top < room ? count - state->top : room;
  put_process_title(s, frame, state->top, shown, count);
  brim_str text;
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  if (shown > 0) status = brim_ui_top_processes(s, rows + state->top, shown, &text);
  if (!status) put_lines(frame, &text, frame->left - 1);
  brim_str_deinit(&text);
  brim_free(rows);
  return status;
}

static void put_footer(const brim_ui_top *state, brim_ui_frame *frame) {
  static const brim_ui_hint hints[] = {
      {"q", BRIM_N_("quit")},       {"?", BRIM_N_("help")},        {"s", BRIM_N_("sort")},
      {"/", BRIM_N_("filter")},     {"g", BRIM_N_("GPU details")}, {"p", BRIM_N_("pause")},
      {"+ -", BRIM_N_("interval")},
  };
  static const brim_ui_hint typing[] = {{"Enter", BRIM_N_("keep")}, {"Esc", BRIM_N_("end")}};
  while (frame->left > 1) brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  if (state->mode == BRIM_UI_TOP_FILTER) {
    char text[128];
    snprintf(text, sizeof text, brim_tr("Filter: %s_"), state->filter);
    brim_ui_frame_hints(frame, text, typing, 2);
  } else {
    const char *hint = state->hint ? brim_tr(state->hint) : "";
    brim_ui_frame_hints(frame, hint, hints, sizeof hints / sizeof *hints);
  }
}

static brim_status main_frame(brim_ui_top *state, const brim_ui_top_scene *s,
                              brim_ui_frame *frame) {
  put_header(s, frame);
  put_lateness(state, frame);
  if (state->empty) {
    put_footer(state, frame);
    return BRIM_OK;
  }
  if (s->view->gpu_count == 0) {
    brim_ui_top_host_panel(s, frame);
    brim_ui_frame_text(frame, BRIM_UI_DIM, brim_tr("no NVIDIA GPU is visible"));
  } else {
    brim_ui_top_host_lines(s, frame, frame->rows >= 20 ? 2 : 1);
    BRIM_TRY(put_gpus(s, frame));
  }
  BRIM_TRY(put_jobs(s, frame));
  put_events(s, frame);
  BRIM_TRY(put_processes(state, s, frame));
  put_footer(state, frame);
  return BRIM_OK;
}

brim_status brim_ui_top_frame(brim_ui_top *state, const brim_top_view *view,
                              const brim_ui_top_history *history, const brim_term *term, int rows,
                              brim_str *out) {
  brim_term wide = *term;
  if (wide.width <= 0) wide.width = 80;
  brim_ui_frame frame = {.out = out, .term = &wide, .rows = rows, .left = rows};
  brim_ui_top_scene scene = {state, view, history, &wide};
  if (state->mode == BRIM_UI_TOP_HELP) {
    brim_ui_top_help(&frame);
  } else if (state->mode == BRIM_UI_TOP_DETAILS && view->gpu_count > 0) {
    brim_ui_top_details(&frame, state, &scene);
  } else {
    BRIM_TRY(main_frame(state, &scene, &frame));
  }
  return brim_str_status(out);
}
