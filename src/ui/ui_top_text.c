// A machine as plain text: everything once, a line per GPU for a pipe, CSV.

#include "ui/ui_top_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_text.h"
#include "ui/ui_top.h"

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

//--------------------------------------------- CSV ---------------------------------------------
// A machine as CSV: a row per GPU with every number of it and of its host. The columns are the keys of
// the JSON record, so that the two cannot disagree. Processes, events and jobs are in the record alone.

typedef struct csv_row {
  brim_str *out;
  bool first, names;
} csv_row;

static void put_cell(csv_row *row, const char *text) {
  if (!row->first) brim_str_append_char(row->out, ',');
  row->first = false;
  brim_text_append_csv(row->out, text);
}

// A list as one cell: "power_cap+thermal", "99+10.2".
static void put_names(csv_row *row, const json_t *list) {
  brim_str text;
  brim_str_init(&text);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    char number[32] = "";
    if (json_is_number(item)) brim_format_f64(json_number_value(item), number);
    if (i > 0) brim_str_append_char(&text, '+');
    brim_str_append(&text, json_is_string(item) ? json_string_value(item) : number);
  }
  put_cell(row, text.data);
  if (text.status && !row->out->status) row->out->status = text.status;
  brim_str_deinit(&text);
}

static void put_value(csv_row *row, const json_t *value) {
  char text[32] = "";
  if (json_is_array(value)) {
    put_names(row, value);
    return;
  }
  if (json_is_string(value)) {
    put_cell(row, json_string_value(value));
    return;
  }
  if (json_is_boolean(value)) snprintf(text, sizeof text, "%d", json_is_true(value) ? 1 : 0);
  if (json_is_number(value)) brim_format_f64(json_number_value(value), text);
  put_cell(row, text);
}

// The members of an object, or their names with a prefix.
static void put_members(csv_row *row, json_t *object, const char *prefix) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char name[96];
    if (json_is_object(value)) {
      put_members(row, value, "target_");
    } else if (row->names) {
      snprintf(name, sizeof name, "%s%s", prefix, key);
      put_cell(row, name);
    } else {
      put_value(row, value);
    }
  }
}

static void put_row(json_t *root, json_t *gpu, bool names, brim_str *out) {
  csv_row row = {.out = out, .first = true, .names = names};
  if (names) {
    put_cell(&row, "when_s");
    put_cell(&row, "interval_s");
  } else {
    put_value(&row, json_object_get(root, "when_s"));
    put_value(&row, json_object_get(root, "interval_s"));
  }
  put_members(&row, gpu, "");
  put_members(&row, json_object_get(root, "host"), "host_");
  brim_str_append_char(out, '\n');
}

static brim_status put_rows(const brim_top_view *view, bool names, brim_str *out) {
  json_t *root = NULL;
  BRIM_TRY(brim_top_view_to_json(view, &root));
  json_t *gpus = json_object_get(root, "gpus");
  for (size_t i = 0; i < json_array_size(gpus); i++) {
    put_row(root, json_array_get(gpus, i), names, out);
  }
  json_decref(root);
  return brim_str_status(out);
}

// A machine with one GPU about which nothing is known: the columns, and the row of a host without one.
static brim_status put_unknown_gpu(const brim_top_view *view, bool names, brim_str *out) {
  brim_top_view blank;
  brim_top_view_init(&blank);
  brim_status status = BRIM_OK;
  if (view) {
    blank.when_s = view->when_s;
    blank.interval_s = view->interval_s;
    blank.host = view->host;
  }
  if (!brim_top_view_add_gpu(&blank)) status = brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) status = put_rows(&blank, names, out);
  brim_top_view_deinit(&blank);
  return status;
}

brim_status brim_ui_top_csv_header(brim_str *out) { return put_unknown_gpu(NULL, true, out); }

brim_status brim_ui_top_csv_rows(const brim_top_view *view, brim_str *out) {
  return view->gpu_count > 0 ? put_rows(view, false, out) : put_unknown_gpu(view, false, out);
}
