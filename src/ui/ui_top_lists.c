// Lists of the live view: brim's jobs, processes, events.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_text.h"
#include "base/base_words.h"
#include "ui/ui_top_int.h"

enum { PROCESS_COLUMNS = 16 };
enum { STALE_S = 10 };  // a job that has not published for so long is marked

//---------------------------------- jobs ----------------------------------

static const char *phase_text(brim_job_phase phase) {
  static const char *const words[BRIM_JOB_PHASE_COUNT] = {
      [BRIM_JOB_UNKNOWN] = "-",
      [BRIM_JOB_START] = BRIM_N_("starting"),
      [BRIM_JOB_TRAIN] = BRIM_N_("training"),
      [BRIM_JOB_EVALUATE] = BRIM_N_("evaluating"),
      [BRIM_JOB_CHECKPOINT] = BRIM_N_("saving"),
      [BRIM_JOB_MEASURE] = BRIM_N_("measuring"),
      [BRIM_JOB_END] = BRIM_N_("ending"),
  };
  const char *word = words[phase];
  return strcmp(word, "-") == 0 ? word : brim_tr(word);
}

// "3/10", "3", "-"
static void of_text(int64_t done, int64_t all, char out[64]) {
  char a[32], b[32];
  brim_ui_top_count(done, a);
  brim_ui_top_count(all, b);
  if (all > 0) {
    snprintf(out, 64, "%s/%s", a, b);
  } else {
    snprintf(out, 64, "%s", a);
  }
}

// "training", or "no news for 12 s"
static brim_ui_style state_text(const brim_job *job, double now_s, char out[64]) {
  char figure[32];
  double age = now_s - job->updated_s;
  if (age > STALE_S) {
    brim_format_duration(floor(age), figure);
    snprintf(out, 64, brim_tr("no news for %s"), figure);
    return BRIM_UI_WARN;
  }
  snprintf(out, 64, "%s", phase_text(job->phase));
  return BRIM_UI_PLAIN;
}

static const char *unit_of(const brim_job *job) {
  return job->unit[0] ? brim_tr(job->unit) : brim_tr("samples");
}

static void time_left(const brim_job *job, char out[32]) {
  if (isfinite(job->eta_s)) {
    brim_format_duration(job->eta_s < 1 ? 1 : floor(job->eta_s), out);
  } else {
    snprintf(out, 32, "-");
  }
}

static void add_job(brim_ui_table *table, const brim_job *job, double now_s) {
  char text[64], figure[32];
  brim_ui_table_add(table, BRIM_UI_TITLE, "%s %s", job->command[0] ? job->command : "brim",
                    job->name[0] ? job->name : job->workload);
  brim_ui_top_count(job->pid, figure);
  snprintf(text, sizeof text, "%lld", (long long)job->pid);
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", job->pid >= 0 ? text : "-");
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", job->device);
  brim_ui_style style = state_text(job, now_s, text);
  brim_ui_table_add(table, style, "%s", text);
  of_text(job->epoch, job->epochs, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  of_text(job->step, job->steps, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  brim_ui_number(job->samples_per_s, figure);
  brim_ui_table_add(table, BRIM_UI_BOLD, "%s", figure);
  snprintf(figure, sizeof figure, "%.4g", job->metric);
  if (isfinite(job->metric) && job->metric_key[0]) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s %s", job->metric_key, figure);
  } else {
    brim_ui_table_add(table, BRIM_UI_DIM, "-");
  }
  time_left(job, figure);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", figure);
}

void brim_ui_top_job_line(const brim_top_view *view, const brim_job *job, brim_str *out) {
  char text[64], figure[32];
  brim_str line;
  brim_str_init(&line);
  brim_str_printf(&line, "%s %s", job->command[0] ? job->command : "brim",
                  job->name[0] ? job->name : job->workload);
  brim_str_printf(&line, "  PID %lld", (long long)job->pid);
  if (job->device[0]) brim_str_printf(&line, "  %s", job->device);
  (void)state_text(job, view->when_s, text);
  brim_str_printf(&line, "  %s", text);
  of_text(job->epoch, job->epochs, text);
  if (job->epoch >= 0) brim_str_printf(&line, "  %s %s", brim_tr("epoch"), text);
  of_text(job->step, job->steps, text);
  if (job->step >= 0) brim_str_printf(&line, "  %s %s", brim_tr("step"), text);
  brim_ui_number(job->samples_per_s, figure);
  if (isfinite(job->samples_per_s)) brim_str_printf(&line, "  %s %s/s", figure, unit_of(job));
  if (isfinite(job->metric) && job->metric_key[0]) {
    brim_str_printf(&line, "  %s %.4g", job->metric_key, job->metric);
  }
  time_left(job, figure);
  brim_str_printf(&line, "  %s %s", brim_tr("time left"), figure);
  char plain[512];
  brim_text_plain(line.data, plain, sizeof plain);
  brim_str_append(out, plain);
  if (line.status && !out->status) out->status = line.status;
  brim_str_deinit(&line);
}

brim_status brim_ui_top_jobs(const brim_ui_top_scene *s, size_t most, brim_str *out) {
  const brim_ui_column columns[] = {
      {brim_tr("brim job"), NULL, BRIM_UI_LEFT, 0, 22},
      {"PID", NULL, BRIM_UI_RIGHT, 5, 0},
      {brim_tr("device"), NULL, BRIM_UI_LEFT, 4, 6},
      {brim_tr("phase"), NULL, BRIM_UI_LEFT, 0, 8},
      {brim_tr("epoch"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("step"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("samples/s"), NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("metric"), NULL, BRIM_UI_LEFT, 2, 12},
      {brim_tr("time left"), NULL, BRIM_UI_RIGHT, 2, 0},
  };
  brim_ui_table table;
  brim_str text;
  brim_str_init(&text);
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < s->view->job_count && i < most; i++) {
    add_job(&table, &s->view->jobs[i], s->view->when_s);
  }
  brim_status status = brim_ui_table_render(&table, s->term, &text, NULL);
  if (!status) brim_ui_top_drop_rule(&text, out);
  brim_ui_table_deinit(&table);
  brim_str_deinit(&text);
  return status;
}

void brim_ui_top_finding(const brim_ui_top_scene *s, const brim_job *job, brim_str *out) {
  char cost[32];
  brim_str line;
  if (job->finding_count == 0) return;
  const brim_finding *finding = &job->findings[0];
  brim_str_init(&line);
  brim_str_append(&line, "  ");
  if (job->name[0]) brim_str_printf(&line, "%s: ", job->name);
  if (finding->cost_ms > 0) {
    brim_ui_ms(finding->cost_ms, cost);
    brim_str_printf(&line, brim_tr("%s ms/step"), cost);
    brim_str_append(&line, ": ");
  }
  brim_words_read(finding->text, &line);
  if (finding->remedy[0]) {
    brim_str_append(&line, " (");
    brim_words_read(finding->remedy, &line);
    brim_str_append(&line, ")");
  }
  brim_ui_top_put(out, s->term, BRIM_UI_WARN, line.data, s->term->width);
  if (line.status) out->status = line.status;
  brim_str_deinit(&line);
}

//---------------------------------- processes ----------------------------------

static double key_of(const brim_top_process *p, brim_ui_top_order order) {
  switch (order) {
    case BRIM_UI_TOP_BY_SM:
      return p->sm_percent;
    case BRIM_UI_TOP_BY_CPU:
      return p->cpu_percent;
    case BRIM_UI_TOP_BY_RSS:
      return p->rss;
    case BRIM_UI_TOP_BY_GPU:
      return p->gpu < 0 ? (double)NAN : -(double)p->gpu;
    case BRIM_UI_TOP_BY_PID:
      return -(double)p->pid;
    case BRIM_UI_TOP_BY_MEMORY:
    case BRIM_UI_TOP_ORDER_COUNT:
      break;
  }
  return p->memory;
}

static bool contains(const char *text, const char *part) { return strcasestr(text, part) != NULL; }

static bool passes(const brim_top_process *p, const char *filter) {
  char pid[32];
  snprintf(pid, sizeof pid, "%lld", (long long)p->pid);
  return !*filter || contains(p->command, filter) || contains(p->user, filter) ||
         contains(p->container, filter) || contains(pid, filter);
}

// Whether `a` comes before `b`: the larger first, unknown last, then by CPU, then as they came.
static bool before(const brim_top_process *a, const brim_top_process *b, brim_ui_top_order order) {
  double x = key_of(a, order), y = key_of(b, order);
  if (isnan(x) != isnan(y)) return isnan(y);
  if (x > y || x < y) return x > y;
  if (isnan(a->cpu_percent) != isnan(b->cpu_percent)) return isnan(b->cpu_percent);
  return a->cpu_percent > b->cpu_percent;
}

// Merge sort: equal ones stay in their order, so that the list does not flicker.
static void sort_rows(const brim_top_view *view, brim_ui_top_order order, size_t *rows,
                      size_t *scratch, size_t count) {
  if (count < 2) return;
  size_t half = count / 2, a = 0, b = half, n = 0;
  sort_rows(view, order, rows, scratch, half);
  sort_rows(view, order, rows + half, scratch, count - half);
  while (a < half || b < count) {
    bool second = a >= half || (b < count && before(&view->processes[rows[b]],
                                                    &view->processes[rows[a]], order));
    scratch[n++] = second ? rows[b++] : rows[a++];
  }
  memcpy(rows, scratch, count * sizeof *rows);
}

brim_status brim_ui_top_pick(const brim_ui_top *state, const brim_top_view *view, size_t **out,
                             size_t *count) {
  size_t *rows = brim_calloc(2 * view->process_count + 1, sizeof *rows);
  *out = rows;
  *count = 0;
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory");
  for (size_t i = 0; i < view->process_count; i++) {
    if (passes(&view->processes[i], state->filter)) rows[(*count)++] = i;
  }
  sort_rows(view, state->order, rows, rows + view->process_count, *count);
  return BRIM_OK;
}

static void add_percent(brim_ui_table *table, double percent) {
  if (!isfinite(percent)) {
    brim_ui_table_add(table, BRIM_UI_DIM, "-");
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%3.0f", percent);
  }
}

// What a table of processes has columns for.
typedef struct process_columns {
  bool gpus, containers;
} process_columns;

static void add_gpu_cells(brim_ui_table *table, const brim_top_process *p) {
  char text[32];
  brim_ui_top_bytes(p->memory, text);
  brim_ui_table_add(table, BRIM_UI_BOLD, "%s", text);
  add_percent(table, p->sm_percent);
  add_percent(table, p->memory_busy_percent);
  add_percent(table, p->encoder_percent);
  add_percent(table, p->decoder_percent);
  add_percent(table, p->jpeg_percent);
  add_percent(table, p->ofa_percent);
}

static void add_process(brim_ui_table *table, const brim_top_process *p, process_columns has) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)p->pid);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->pid >= 0 ? text : "-");
  brim_ui_top_count(p->gpu, text);
  if (has.gpus) brim_ui_table_add(table, BRIM_UI_TITLE, "%s", text);
  if (has.gpus) brim_ui_table_add(table, BRIM_UI_DIM, "%s", p->type);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->user[0] ? p->user : "-");
  if (has.gpus) add_gpu_cells(table, p);
  add_percent(table, p->cpu_percent);
  brim_ui_top_bytes(p->rss, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  if (isfinite(p->elapsed_s)) {
    brim_format_duration(floor(p->elapsed_s), text);
  } else {
    snprintf(text, sizeof text, "-");
  }
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", text);
  if (has.containers) brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->container);
  if (p->elsewhere == BRIM_TOP_YES && !p->command[0]) {
    brim_ui_table_add(table, BRIM_UI_DIM, "%s", brim_tr("another container's process"));
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->command[0] ? p->command : "-");
  }
}

// Columns of the table in their order; how many.
static size_t choose_columns(process_columns has, brim_ui_column *out) {
  const struct {
    bool shown;
    brim_ui_column column;
  } all[PROCESS_COLUMNS] = {
      {true, {"PID", NULL, BRIM_UI_RIGHT, 0, 0}},
      {has.gpus, {"GPU", NULL, BRIM_UI_RIGHT, 0, 0}},
      {has.gpus, {brim_tr("type"), NULL, BRIM_UI_LEFT, 6, 0}},
      {true, {brim_tr("user"), NULL, BRIM_UI_LEFT, 2, 8}},
      {has.gpus, {brim_tr("GPU memory"), brim_tr("GPU mem"), BRIM_UI_RIGHT, 0, 0}},
      {has.gpus, {"SM%", NULL, BRIM_UI_RIGHT, 1, 0}},
      {has.gpus, {"mem%", NULL, BRIM_UI_RIGHT, 7, 0}},
      {has.gpus, {"enc%", NULL, BRIM_UI_RIGHT, 8, 0}},
      {has.gpus, {"dec%", NULL, BRIM_UI_RIGHT, 8, 0}},
      {has.gpus, {"jpg%", NULL, BRIM_UI_RIGHT, 9, 0}},
      {has.gpus, {"ofa%", NULL, BRIM_UI_RIGHT, 9, 0}},
      {true, {"CPU%", NULL, BRIM_UI_RIGHT, 2, 0}},
      {true, {"RSS", NULL, BRIM_UI_RIGHT, 4, 0}},
      {true, {brim_tr("time"), NULL, BRIM_UI_RIGHT, 5, 0}},
      {has.containers, {brim_tr("container"), NULL, BRIM_UI_LEFT, 6, 12}},
      {true, {brim_tr("command"), NULL, BRIM_UI_LEFT, 0, 24}},
  };
  size_t count = 0;
  for (size_t i = 0; i < PROCESS_COLUMNS; i++) {
    if (all[i].shown) out[count++] = all[i].column;
  }
  return count;
}

brim_status brim_ui_top_processes(const brim_ui_top_scene *s, const size_t *rows, size_t count,
                                  brim_str *out) {
  process_columns has = {.gpus = s->view->gpu_count > 0};
  for (size_t i = 0; i < count; i++) {
    has.gpus |= s->view->processes[rows[i]].gpu >= 0;
    has.containers |= s->view->processes[rows[i]].container[0] != '\0';
  }
  brim_ui_column columns[PROCESS_COLUMNS];
  size_t width = choose_columns(has, columns);
  brim_ui_table table;
  brim_str text;
  brim_str_init(&text);
  brim_ui_table_init(&table, columns, width);
  for (size_t i = 0; i < count; i++) add_process(&table, &s->view->processes[rows[i]], has);
  brim_status status = brim_ui_table_render(&table, s->term, &text, NULL);
  if (!status) brim_ui_top_drop_rule(&text, out);
  brim_ui_table_deinit(&table);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- events ----------------------------------

// "15:03:05  GPU 1  Xid 94: contained ECC error"
void brim_ui_top_event(const brim_top_event *event, const brim_term *term, brim_str *out) {
  char clock[16];
  brim_str text;
  brim_str_init(&text);
  brim_ui_top_clock(event->when_s, clock);
  brim_str_printf(&text, "%s  ", clock);
  if (event->gpu >= 0) brim_str_printf(&text, "GPU %lld  ", (long long)event->gpu);
  if (strcmp(event->kind, "xid") == 0) {
    brim_str_append(&text, "Xid");
  } else {
    brim_str_append(&text, event->kind);
  }
  if (event->code >= 0) brim_str_printf(&text, " %lld", (long long)event->code);
  if (event->text[0]) brim_str_printf(&text, ": %s", event->text);
  brim_ui_top_put(out, term, BRIM_UI_BAD, text.data, term->width > 0 ? term->width : 160);
  if (text.status) out->status = text.status;
  brim_str_deinit(&text);
}
