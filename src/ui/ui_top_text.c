// A machine as plain text: everything once, or a line per GPU for a pipe.
#include <math.h>
#include <stdio.h>

#include "ui/ui_top_int.h"

//---------------------------------- lines ----------------------------------

static void add_percent(brim_str *out, const char *name, double percent) {
  char text[16];
  brim_ui_top_percent(percent, text);
  brim_str_printf(out, "  %s %s", name, text);
}

static void host_line(const brim_top_view *view, brim_str *out) {
  char used[32], total[32];
  add_percent(out, "CPU", view->host.cpu_percent);
  brim_ui_top_bytes(view->host.memory_used, used);
  brim_ui_top_bytes(view->host.memory_total, total);
  brim_str_printf(out, "  %s %s/%s", brim_tr("memory"), used, total);
}

static void gpu_line(const brim_top_view *view, const brim_top_gpu *gpu, const brim_term *term,
                     brim_str *out) {
  char a[32], b[32];
  brim_str words;
  brim_ui_style style;
  brim_ui_top_count(gpu->index, a);
  brim_str_printf(out, "  GPU %s", a);
  add_percent(out, brim_tr("utilisation"), gpu->gpu_percent);
  add_percent(out, "SM", gpu->sm_percent);
  add_percent(out, brim_tr("tensor"), gpu->tensor_percent);
  add_percent(out, "DRAM", gpu->dram_percent);
  add_percent(out, "OFU", gpu->ofu_percent);
  brim_ui_top_bytes(gpu->memory_used, a);
  brim_ui_top_bytes(gpu->memory_total, b);
  brim_str_printf(out, "  %s %s/%s", brim_tr("memory"), a, b);
  brim_ui_top_whole(gpu->power_w, a);
  brim_ui_top_whole(gpu->power_limit_w, b);
  brim_str_printf(out, "  %s/%s W", a, b);
  brim_ui_top_whole(gpu->clock_mhz, a);
  brim_ui_top_whole(gpu->temperature_c, b);
  brim_str_printf(out, "  %s MHz  %s %s", a, b, term->unicode ? "°C" : "C");
  brim_str_init(&words);
  brim_ui_top_held(gpu, false, &words);
  if (words.len > 0) brim_str_printf(out, "  %s", words.data);
  brim_str_clear(&words);
  brim_ui_top_trouble(view, gpu, &words, &style);
  if (words.len > 0) {
    brim_str_append(out, "  ");
    brim_ui_styled(out, term, style, words.data);
  }
  if (words.status && !out->status) out->status = words.status;
  brim_str_deinit(&words);
}

void brim_ui_top_lines(const brim_top_view *view, const brim_term *term, brim_str *out) {
  char clock[16];
  brim_ui_top_clock(view->when_s, clock);
  for (size_t i = 0; i < view->gpu_count; i++) {
    brim_str_append(out, clock);
    gpu_line(view, &view->gpus[i], term, out);
    brim_str_append_char(out, '\n');
  }
  if (view->gpu_count == 0) {
    brim_str_append(out, clock);
    host_line(view, out);
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < view->job_count; i++) {
    brim_str_printf(out, "%s  ", clock);
    brim_ui_top_job_line(view, &view->jobs[i], out);
    brim_str_append_char(out, '\n');
  }
}

//---------------------------------- everything once ----------------------------------

static brim_status put_lists(const brim_ui_top_scene *s, brim_str *out) {
  for (size_t i = 0; i < s->view->event_count; i++) {
    brim_ui_top_event(&s->view->events[i], s->term, out);
    brim_str_append_char(out, '\n');
  }
  if (s->view->job_count > 0) {
    brim_str_append_char(out, '\n');
    BRIM_TRY(brim_ui_top_jobs(s, s->view->job_count, out));
  }
  for (size_t i = 0; i < s->view->job_count; i++) {
    if (s->view->jobs[i].finding_count == 0) continue;
    brim_ui_top_finding(s, &s->view->jobs[i], out);
    brim_str_append_char(out, '\n');
  }
  size_t *rows = NULL, count = 0;
  BRIM_TRY(brim_ui_top_pick(s->state, s->view, &rows, &count));
  brim_status status = BRIM_OK;
  if (count > 0) {
    brim_str_append_char(out, '\n');
    status = brim_ui_top_processes(s, rows, count, out);
  }
  brim_free(rows);
  for (size_t i = 0; i < s->view->note_count && !status; i++) {
    brim_ui_styled(out, s->term, BRIM_UI_DIM, s->view->notes[i]);
    brim_str_append_char(out, '\n');
  }
  return status;
}

static void put_panels(const brim_ui_top_scene *s, brim_str *out) {
  brim_str line;
  brim_str_init(&line);
  for (size_t i = 0; i < s->view->gpu_count; i++) {
    for (int n = 0; n < BRIM_UI_TOP_PANEL_LINES; n++) {
      brim_str_clear(&line);
      brim_ui_top_panel_line(s, i, n, s->term->width, &line);
      brim_str_append(out, line.data);
      brim_str_append_char(out, '\n');
      if (line.status && !out->status) out->status = line.status;
    }
  }
  brim_str_deinit(&line);
}

brim_status brim_ui_top_text(const brim_top_view *view, const brim_ui_top_history *history,
                             const brim_term *term, brim_str *out) {
  enum { PIPE_WIDTH = 132 };
  brim_term wide = *term;
  brim_ui_top state = {.order = view->gpu_count ? BRIM_UI_TOP_BY_MEMORY : BRIM_UI_TOP_BY_CPU};
  if (wide.width <= 0) wide.width = PIPE_WIDTH;
  brim_ui_top_scene scene = {&state, view, history, &wide};
  brim_ui_frame frame = {.out = out, .term = &wide, .rows = 64, .left = 64};
  char clock[16];
  brim_ui_top_clock(view->when_s, clock);
  brim_ui_styled(out, &wide, BRIM_UI_TITLE, view->host.name[0] ? view->host.name : "brim top");
  brim_str_printf(out, "  %s", clock);
  if (view->driver[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("driver %s"), view->driver);
  }
  brim_str_append_char(out, '\n');
  if (view->gpu_count == 0) {
    brim_ui_top_host_panel(&scene, &frame);
    brim_ui_frame_text(&frame, BRIM_UI_DIM, brim_tr("no NVIDIA GPU is visible"));
  } else {
    brim_ui_top_host_lines(&scene, &frame, 2);
  }
  put_panels(&scene, out);
  BRIM_TRY(put_lists(&scene, out));
  return brim_str_status(out);
}
