// GPUs of the live view: a panel with the ladder of utilisation for each, or a table where there is
// no room for panels.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_top_int.h"

//---------------------------------- words ----------------------------------

static void join(brim_str *out, const char *text) {
  if (out->len > 0) brim_str_append(out, ", ");
  brim_str_append(out, text);
}

void brim_ui_top_held(const brim_top_gpu *gpu, bool shares, brim_str *out) {
  bool share = shares && gpu->power_violation_percent > 0;
  for (int i = 0; i < BRIM_TOP_THROTTLE_COUNT; i++) {
    // power may have held it down in the interval, and not now
    bool power = i == BRIM_TOP_THROTTLE_POWER_CAP && share;
    if (!(gpu->throttle >> i & 1) && !power) continue;
    join(out, brim_tr(brim_top_throttle_words((brim_top_throttle)i)));
    if (!power) continue;
    char text[16];
    brim_ui_top_percent(gpu->power_violation_percent, text);
    brim_str_printf(out, " %s", text);
  }
}

static void worse(brim_ui_style *style, brim_ui_style than) {
  if (*style != BRIM_UI_BAD) *style = than;
}

static void add_memory_trouble(const brim_top_gpu *gpu, brim_str *out, brim_ui_style *style) {
  char text[96], count[32];
  if (gpu->ecc_uncorrected > 0) {
    brim_ui_top_count(gpu->ecc_uncorrected, count);
    snprintf(text, sizeof text, brim_tr("uncorrected ECC errors: %s"), count);
    join(out, text);
    worse(style, BRIM_UI_BAD);
  }
  if (gpu->remap_failed == BRIM_TOP_YES) {
    join(out, brim_tr("row remap failed: replace the GPU"));
    worse(style, BRIM_UI_BAD);
  } else if (gpu->remap_pending == BRIM_TOP_YES) {
    join(out, brim_tr("row remap pending: reset the GPU"));
    worse(style, BRIM_UI_WARN);
  }
}

void brim_ui_top_trouble(const brim_top_view *view, const brim_top_gpu *gpu, brim_str *out,
                         brim_ui_style *style) {
  char text[96], duration[32];
  (void)view;
  *style = BRIM_UI_PLAIN;
  if (gpu->lost == BRIM_TOP_YES) {
    join(out, brim_tr("lost: the driver does not answer"));
    worse(style, BRIM_UI_BAD);
  }
  if (gpu->hang == BRIM_TOP_YES) {
    brim_format_duration(floor(gpu->hang_s), duration);
    snprintf(text, sizeof text, brim_tr("HANG? busy at idle power for %s"), duration);
    join(out, text);
    worse(style, BRIM_UI_BAD);
  }
  if (gpu->xid >= 0) {
    snprintf(text, sizeof text, "Xid %lld", (long long)gpu->xid);
    join(out, text);
    worse(style, BRIM_UI_BAD);
  }
  add_memory_trouble(gpu, out, style);
  if (gpu->pcie_width > 0 && gpu->pcie_width < gpu->pcie_width_max) {
    snprintf(text, sizeof text, brim_tr("PCIe x%lld of x%lld"), (long long)gpu->pcie_width,
             (long long)gpu->pcie_width_max);
    join(out, text);
    worse(style, BRIM_UI_WARN);
  }
}

//---------------------------------- panel ----------------------------------

// "GPU 0  NVIDIA H200  0000:18:00.0  HANG? ..."
static void put_title(const brim_ui_top_scene *s, const brim_top_gpu *gpu, int width,
                      brim_str *line) {
  char text[32];
  brim_str trouble;
  brim_ui_style style;
  brim_str_init(&trouble);
  brim_ui_top_count(gpu->index, text);
  brim_str title;
  brim_str_init(&title);
  brim_str_printf(&title, gpu->slice == BRIM_TOP_YES ? "MIG %s" : "GPU %s", text);
  brim_ui_styled(line, s->term, BRIM_UI_TITLE, title.data);
  brim_str_append(line, "  ");
  brim_ui_top_put(line, s->term, BRIM_UI_BOLD, gpu->name, 36);
  brim_str_append(line, "  ");
  brim_ui_top_trouble(s->view, gpu, &trouble, &style);
  int room = width - brim_utf8_width(line->data);
  if (trouble.len > 0) {
    brim_ui_top_put(line, s->term, style, trouble.data, room);
  } else {
    brim_ui_top_put(line, s->term, BRIM_UI_DIM, gpu->bus, room);
  }
  if (trouble.status || title.status) line->status = BRIM_ENOMEM;
  brim_str_deinit(&title);
  brim_str_deinit(&trouble);
}

typedef struct rung {
  const char *label;
  brim_ui_top_trace trace;
  double percent;
  int target;  // brim_top_target; -1 = none
  const char *note;
} rung;

// "  tensor       52 % ██████████░░░░░░░░░░  met     612/700 W         ▃▄▅▆"
static void put_rung(const brim_ui_top_scene *s, const brim_top_gpu *gpu, size_t place, rung r,
                     int width, brim_str *line) {
  enum { LABEL = 14, VALUE = 20 };
  char text[16];
  int bar = width >= 96 ? 24 : 16;
  brim_ui_style style = BRIM_UI_PLAIN;
  const char *mark = r.target >= 0 ? brim_ui_top_target(gpu->targets[r.target], &style) : "";
  brim_str_append(line, "  ");
  brim_ui_top_put(line, s->term, BRIM_UI_PLAIN, r.label, LABEL - 3);
  brim_ui_top_percent(r.percent, text);
  brim_ui_top_pad(line, VALUE - brim_utf8_width(text));
  brim_ui_styled(line, s->term, isfinite(r.percent) ? style : BRIM_UI_DIM, text);
  brim_str_append_char(line, ' ');
  brim_ui_top_bar(line, s->term, r.percent, bar, style == BRIM_UI_PLAIN ? BRIM_UI_BOLD : style);
  brim_str_append_char(line, ' ');
  int column = brim_utf8_width(line->data);
  brim_ui_top_put(line, s->term, style, mark, width - column);
  if (*mark) brim_str_append_char(line, ' ');
  int used = brim_utf8_width(line->data);
  brim_ui_top_put(line, s->term, BRIM_UI_PLAIN, r.note, width - used);
  column += width >= 96 ? 26 : 24;
  if (width - column < 4 || brim_utf8_width(line->data) >= column) return;
  brim_ui_top_pad(line, column);
  const float *ring = brim_ui_top_ring(s->history, place, r.trace);
  int room = width - column < BRIM_UI_TOP_SAMPLES ? width - column : BRIM_UI_TOP_SAMPLES;
  brim_str spark;
  brim_str_init(&spark);
  if (ring) {
    brim_ui_top_spark(&spark, s->term, ring, s->history->count, s->history->next, room);
  }
  brim_ui_styled(line, s->term, BRIM_UI_DIM, spark.data);
  if (spark.status) line->status = spark.status;
  brim_str_deinit(&spark);
}

static void memory_note(const brim_top_gpu *gpu, char out[96]) {
  if (!isfinite(gpu->memory_used) || !isfinite(gpu->memory_total)) {
    out[0] = '\0';
    return;
  }
  snprintf(out, 96, "%.1f/%.1f GiB", brim_shown(gpu->memory_used / (1 << 30)),
           brim_shown(gpu->memory_total / (1 << 30)));
}

static void power_note(const brim_top_gpu *gpu, char out[96]) {
  char power[32], limit[32];
  brim_ui_top_whole(gpu->power_w, power);
  brim_ui_top_whole(gpu->power_limit_w, limit);
  snprintf(out, 96, "%s/%s W", power, limit);
  if (*power == '-' && *limit == '-') out[0] = '\0';
}

// "  clock 1755/1980 MHz: power cap 38 %  memory 3201 MHz  58 °C, memory 66 °C  26 Wh"
static void put_clocks(const brim_ui_top_scene *s, const brim_top_gpu *gpu, int width,
                       brim_str *line) {
  char now[32], most[32], memory[32], text[64];
  brim_str held, rest;
  brim_str_init(&held);
  brim_str_init(&rest);
  brim_ui_top_whole(gpu->clock_mhz, now);
  brim_ui_top_whole(gpu->clock_max_mhz, most);
  brim_str_append(line, "  ");
  brim_str_printf(line, brim_tr("clock %s/%s MHz"), now, most);
  bool idle = gpu->throttle == 1u << BRIM_TOP_THROTTLE_IDLE;
  brim_ui_top_held(gpu, true, &held);
  if (held.len > 0) {
    brim_str_append(line, ": ");
    int room = width - brim_utf8_width(line->data);
    brim_ui_top_put(line, s->term, idle ? BRIM_UI_DIM : BRIM_UI_WARN, held.data, room);
  } else if (gpu->throttle_known) {
    brim_str_append(line, ": ");
    brim_ui_styled(line, s->term, BRIM_UI_GOOD, brim_tr("not held down"));
  }
  const char *degrees = s->term->unicode ? "°C" : "C";
  brim_ui_top_whole(gpu->temperature_c, now);
  brim_ui_top_whole(gpu->memory_temperature_c, memory);
  brim_str_printf(&rest, "  %s %s", now, degrees);
  if (*memory != '-') {
    brim_str_append(&rest, ", ");
    brim_str_printf(&rest, brim_tr("memory %s %s"), memory, degrees);
  }
  brim_ui_top_energy(gpu->energy_j, text);
  if (*text != '-') brim_str_printf(&rest, "  %s", text);
  int room = width - brim_utf8_width(line->data);
  brim_ui_top_put(line, s->term, BRIM_UI_PLAIN, rest.data, room);
  if (held.status || rest.status) line->status = BRIM_ENOMEM;
  brim_str_deinit(&rest);
  brim_str_deinit(&held);
}

// "  PCIe 5 x16  in 2.7 GiB/s  out 67 MiB/s  ECC 0 + 0  remapped 0  video 0/0 %"
static void put_links(const brim_ui_top_scene *s, const brim_top_gpu *gpu, int width,
                      brim_str *line) {
  char a[32], b[32];
  brim_str text;
  brim_str_init(&text);
  brim_ui_top_count(gpu->pcie_generation, a);
  brim_ui_top_count(gpu->pcie_width, b);
  brim_str_printf(&text, "  PCIe %s x%s", a, b);
  brim_ui_top_rate(gpu->pcie_rx, a);
  brim_ui_top_rate(gpu->pcie_tx, b);
  brim_str_append(&text, "  ");
  brim_str_printf(&text, brim_tr("in %s out %s"), a, b);
  if (gpu->ecc == BRIM_TOP_NO) {
    brim_str_printf(&text, "  %s", brim_tr("ECC off"));
  } else {
    brim_ui_top_count(gpu->ecc_corrected, a);
    brim_ui_top_count(gpu->ecc_uncorrected, b);
    brim_str_printf(&text, "  ECC %s+%s", a, b);
  }
  if (gpu->mig == BRIM_TOP_YES) brim_str_append(&text, "  MIG");
  if (gpu->persistence == BRIM_TOP_NO) {
    brim_str_append(&text, "  ");
    brim_str_append(&text, brim_tr("no persistence"));
  }
  if (*gpu->compute_mode && strcmp(gpu->compute_mode, "default") != 0) {
    brim_str_printf(&text, "  %s", gpu->compute_mode);
  }
  brim_ui_top_put(line, s->term, BRIM_UI_DIM, text.data, width);
  if (text.status) line->status = text.status;
  brim_str_deinit(&text);
}

void brim_ui_top_panel_line(const brim_ui_top_scene *s, size_t place, int n, int width,
                            brim_str *out) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char ceiling[96] = "", memory[96], power[96], text[16];
  memory_note(gpu, memory);
  power_note(gpu, power);
  if (isfinite(gpu->ceiling_percent)) {
    brim_ui_top_percent(gpu->ceiling_percent, text);
    snprintf(ceiling, sizeof ceiling, brim_tr("GEMM reached %s"), text);
  }
  const rung rungs[BRIM_UI_TOP_TRACE_COUNT] = {
      {brim_tr("utilisation"), BRIM_UI_TOP_KERNELS, gpu->gpu_percent, BRIM_TOP_TARGET_UTILISATION,
       ""},
      {brim_tr("SMs"), BRIM_UI_TOP_SM, gpu->sm_percent, -1, ""},
      {brim_tr("occupancy"), BRIM_UI_TOP_OCCUPANCY, gpu->occupancy_percent, -1, ""},
      {brim_tr("tensor"), BRIM_UI_TOP_TENSOR, gpu->tensor_percent, -1, ""},
      {"DRAM", BRIM_UI_TOP_DRAM, gpu->dram_percent, -1, ""},
      {"OFU", BRIM_UI_TOP_OFU, gpu->ofu_percent, -1, ceiling},
      {brim_tr("memory"), BRIM_UI_TOP_MEMORY, brim_top_memory_percent(gpu), BRIM_TOP_TARGET_MEMORY,
       memory},
      {brim_tr("power"), BRIM_UI_TOP_POWER, brim_top_power_percent(gpu), BRIM_TOP_TARGET_POWER,
       power},
  };
  if (n == 0) {
    put_title(s, gpu, width, out);
  } else if (n <= BRIM_UI_TOP_TRACE_COUNT) {
    put_rung(s, gpu, place, rungs[n - 1], width, out);
  } else if (n == BRIM_UI_TOP_TRACE_COUNT + 1) {
    put_clocks(s, gpu, width, out);
  } else {
    put_links(s, gpu, width, out);
  }
}

//---------------------------------- table ----------------------------------

// On narrow screens occupancy would come and go with the length of the state's text.
enum { WIDE = 100, OCCUPANCY = 4 };

static const char *mark_of(const brim_term *term, brim_top_flag flag) {
  if (flag == BRIM_TOP_UNKNOWN) return " ";
  if (term->unicode) return flag == BRIM_TOP_YES ? "✓" : "✗";
  return flag == BRIM_TOP_YES ? "+" : "-";
}

static void add_share(brim_ui_table *table, double percent) {
  percent = brim_shown(percent);
  if (!isfinite(percent)) {
    brim_ui_table_add(table, BRIM_UI_DIM, "%3s", "-");
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, percent > 0 && percent < 9.95 ? "%.1f" : "%3.0f",
                      percent);
  }
}

static void add_target(brim_ui_table *table, const brim_term *term, const brim_top_gpu *gpu,
                       brim_top_target target, const char *text) {
  brim_ui_style style;
  (void)brim_ui_top_target(gpu->targets[target], &style);
  brim_ui_table_add(table, style, "%s%s", text, mark_of(term, gpu->targets[target]));
}

static void add_rest(const brim_ui_top_scene *s, size_t place, brim_ui_table *table) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char text[32], other[32];
  brim_str words;
  brim_ui_style style;
  brim_str_init(&words);
  brim_ui_top_rate(gpu->pcie_rx, text);
  brim_ui_top_rate(gpu->pcie_tx, other);
  brim_ui_table_add(table, BRIM_UI_DIM, "%10s", text);
  brim_ui_table_add(table, BRIM_UI_DIM, "%10s", other);
  const float *ring = brim_ui_top_ring(s->history, place, BRIM_UI_TOP_KERNELS);
  if (ring) brim_ui_top_spark(&words, s->term, ring, s->history->count, s->history->next, 16);
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", words.data);
  brim_str_clear(&words);
  brim_ui_top_trouble(s->view, gpu, &words, &style);
  if (words.len == 0 && gpu->throttle != 1u << BRIM_TOP_THROTTLE_IDLE) style = BRIM_UI_WARN;
  if (words.len > 0 && gpu->throttle) brim_str_append(&words, ", ");
  brim_str held;
  brim_str_init(&held);
  brim_ui_top_held(gpu, false, &held);
  brim_str_append(&words, held.data);
  brim_ui_table_add(table, style, "%s", words.data);
  if (held.status || words.status) table->status = BRIM_ENOMEM;
  brim_str_deinit(&held);
  brim_str_deinit(&words);
}

static void add_gpu(const brim_ui_top_scene *s, size_t place, brim_ui_table *table) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char a[32], b[32], text[96];
  brim_ui_top_count(gpu->index, a);
  brim_ui_table_add(table, BRIM_UI_TITLE, gpu->slice == BRIM_TOP_YES ? "%s M" : "%s", a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", gpu->name);
  brim_ui_top_whole(gpu->gpu_percent, a);
  snprintf(text, sizeof text, "%3s", a);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_UTILISATION, text);
  add_share(table, gpu->sm_percent);
  if (s->term->width >= WIDE) add_share(table, gpu->occupancy_percent);
  add_share(table, gpu->tensor_percent);
  add_share(table, gpu->dram_percent);
  add_share(table, gpu->ofu_percent);
  add_share(table, gpu->ceiling_percent);
  brim_ui_top_whole(gpu->memory_used / (1 << 30), a);
  brim_ui_top_whole(gpu->memory_total / (1 << 30), b);
  snprintf(text, sizeof text, "%3s/%s", a, b);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_MEMORY, text);
  brim_ui_top_whole(gpu->power_w, a);
  brim_ui_top_whole(gpu->power_limit_w, b);
  snprintf(text, sizeof text, "%3s/%s", a, b);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_POWER, text);
  brim_ui_top_whole(gpu->clock_mhz, a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%4s", a);
  brim_ui_top_whole(gpu->temperature_c, a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%2s", a);
  add_rest(s, place, table);
}

brim_status brim_ui_top_gpu_table(const brim_ui_top_scene *s, brim_str *out) {
  const brim_ui_column all[] = {
      {"GPU", NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("model"), NULL, BRIM_UI_LEFT, 8, 8},
      {brim_tr("util %"), NULL, BRIM_UI_RIGHT, 0, 0},
      {"SM", NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("occ."), NULL, BRIM_UI_RIGHT, 6, 0},
      {brim_tr("tensor"), brim_tr("tens"), BRIM_UI_RIGHT, 2, 0},
      {"DRAM", NULL, BRIM_UI_RIGHT, 3, 0},
      {"OFU", NULL, BRIM_UI_RIGHT, 3, 0},
      {"GEMM", NULL, BRIM_UI_RIGHT, 7, 0},
      {brim_tr("memory GiB"), "GiB", BRIM_UI_RIGHT, 0, 0},
      {brim_tr("power W"), "W", BRIM_UI_RIGHT, 0, 0},
      {"MHz", NULL, BRIM_UI_RIGHT, 4, 0},
      {s->term->unicode ? "°C" : "C", NULL, BRIM_UI_RIGHT, 4, 0},
      {brim_tr("PCIe in"), NULL, BRIM_UI_RIGHT, 9, 0},
      {brim_tr("PCIe out"), NULL, BRIM_UI_RIGHT, 9, 0},
      {brim_tr("trend"), NULL, BRIM_UI_LEFT, 10, 0},
      {brim_tr("state"), NULL, BRIM_UI_LEFT, 1, 14},
  };
  brim_ui_column columns[sizeof all / sizeof *all];
  size_t count = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (i != OCCUPANCY || s->term->width >= WIDE) columns[count++] = all[i];
  }
  brim_ui_table table;
  brim_str text;
  brim_str_init(&text);
  brim_ui_table_init(&table, columns, count);
  for (size_t i = 0; i < s->view->gpu_count; i++) add_gpu(s, i, &table);
  brim_status status = brim_ui_table_render(&table, s->term, &text, NULL);
  if (!status) brim_ui_top_drop_rule(&text, out);
  brim_ui_table_deinit(&table);
  brim_str_deinit(&text);
  return status;
}
