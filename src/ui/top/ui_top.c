// A machine as a person sees it: the live view of `brim top`, plain lines for a pipe, everything once as text, CSV.
// Pure functions of a brim_top_view, of the state of the live view, and of the last readings.

#include "ui/top/ui_top.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_text.h"
#include "base/base_words.h"

// The inputs of every part of a view.
typedef struct scene {
  const brim_ui_top *state;
  const brim_top_view *view;
  const brim_ui_top_history *history;
  const brim_term *term;  // its width is known
} scene;

//------------------------------------------- history -------------------------------------------

void brim_ui_top_history_init(brim_ui_top_history *history) { memset(history, 0, sizeof *history); }

void brim_ui_top_history_deinit(brim_ui_top_history *history) {
  brim_free(history->values);
  brim_ui_top_history_init(history);
}

static float *ring_at(const brim_ui_top_history *history, size_t gpu, brim_ui_top_trace trace) {
  size_t row = gpu * BRIM_UI_TOP_TRACE_COUNT + (size_t)trace;
  return history->values + row * BRIM_UI_TOP_SAMPLES;
}

static brim_status restart_history(brim_ui_top_history *history, const brim_top_view *view) {
  brim_ui_top_history_deinit(history);
  if (view->gpu_count == 0) return BRIM_OK;
  size_t per_gpu = (size_t)BRIM_UI_TOP_TRACE_COUNT * BRIM_UI_TOP_SAMPLES;
  history->values = brim_calloc(view->gpu_count * per_gpu, sizeof *history->values);
  if (!history->values) return brim_fail(BRIM_ENOMEM, "out of memory");
  history->gpus = view->gpu_count;
  memcpy(history->first, view->gpus[0].uuid, sizeof history->first);
  return BRIM_OK;
}

brim_status brim_ui_top_history_add(brim_ui_top_history *history, const brim_top_view *view) {
  bool same_gpus = history->gpus == view->gpu_count &&
                   (view->gpu_count == 0 || strcmp(history->first, view->gpus[0].uuid) == 0);
  if (!same_gpus) BRIM_TRY(restart_history(history, view));
  size_t at = history->next;
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_top_gpu *gpu = &view->gpus[i];
    const double values[BRIM_UI_TOP_TRACE_COUNT] = {
        [BRIM_UI_TOP_KERNELS] = gpu->gpu_percent,
        [BRIM_UI_TOP_SM] = gpu->sm_percent,
        [BRIM_UI_TOP_OCCUPANCY] = gpu->occupancy_percent,
        [BRIM_UI_TOP_TENSOR] = gpu->tensor_percent,
        [BRIM_UI_TOP_DRAM] = gpu->dram_percent,
        [BRIM_UI_TOP_OFU] = gpu->ofu_percent,
        [BRIM_UI_TOP_MEMORY] = brim_top_memory_percent(gpu),
        [BRIM_UI_TOP_POWER] = brim_top_power_percent(gpu),
    };
    for (int t = 0; t < BRIM_UI_TOP_TRACE_COUNT; t++) {
      ring_at(history, i, (brim_ui_top_trace)t)[at] = (float)values[t];
    }
  }
  history->host[0][at] = (float)view->host.cpu_percent;
  history->host[1][at] =
      (float)(view->host.memory_total > 0 ? 100 * view->host.memory_used / view->host.memory_total
                                          : NAN);
  history->next = (at + 1) % BRIM_UI_TOP_SAMPLES;
  if (history->count < BRIM_UI_TOP_SAMPLES) history->count++;
  return BRIM_OK;
}

//------------------------------------------- figures -------------------------------------------
// Numbers as text; "-" when unknown.

static void percent_text(double percent, char out[16]) {
  percent = brim_shown(percent);
  if (!isfinite(percent) || fabs(percent) > 99999) {
    snprintf(out, 16, "-");
  } else if (percent > 0 && percent < 9.95) {
    snprintf(out, 16, "%.1f %%", percent);
  } else {
    snprintf(out, 16, "%.0f %%", percent);
  }
}

static void whole_text(double value, char out[32]) {
  if (!isfinite(value) || fabs(value) > 1e15) {
    snprintf(out, 32, "-");
  } else {
    snprintf(out, 32, "%.0f", brim_shown(value));
  }
}

static void count_text(int64_t value, char out[32]) {
  if (value < 0) {
    snprintf(out, 32, "-");
  } else {
    brim_format_count((double)value, out);
  }
}

static void bytes_text(double bytes, char out[32]) {
  if (!(bytes >= 0) || bytes > 1e18) {
    snprintf(out, 32, "-");
  } else {
    brim_format_bytes((uint64_t)bytes, out);
  }
}

static void rate_text(double bytes_per_s, char out[32]) {
  char text[32];
  bytes_text(bytes_per_s, text);
  snprintf(out, 32, *text == '-' ? "-" : "%.24s/s", text);
}

static void energy_text(double joules, char out[32]) {
  if (!(joules >= 0) || joules > 1e18) {
    snprintf(out, 32, "-");
  } else if (joules >= 3.6e6) {
    snprintf(out, 32, "%.1f kWh", brim_shown(joules / 3.6e6));
  } else if (joules >= 36000) {
    snprintf(out, 32, "%.0f Wh", brim_shown(joules / 3600));
  } else {
    snprintf(out, 32, "%.1f Wh", brim_shown(joules / 3600));
  }
}

// A target as a word: "met", "missed" or "" (unknown), with its style.
static const char *target_word(brim_top_flag flag, brim_ui_style *style) {
  *style = flag == BRIM_TOP_YES ? BRIM_UI_GOOD : flag == BRIM_TOP_NO ? BRIM_UI_WARN : BRIM_UI_PLAIN;
  return flag == BRIM_TOP_YES ? brim_tr("met") : flag == BRIM_TOP_NO ? brim_tr("missed") : "";
}

//---------------------------------- pictures ----------------------------------

// Puts a bar of `width` columns.
static void put_bar(brim_str *out, const brim_term *term, double percent, int width,
                    brim_ui_style style) {
  double share = isfinite(percent) ? percent / 100 : 0;
  int filled = share <= 0 ? 0 : share >= 1 ? width : (int)(share * width + 0.5);
  if (filled == 0 && share > 0.005) filled = 1;
  brim_str part;
  brim_str_init(&part);
  for (int i = 0; i < filled; i++) brim_str_append(&part, term->unicode ? "█" : "#");
  brim_ui_styled(out, term, style, part.data);
  brim_str_clear(&part);
  for (int i = filled; i < width; i++) brim_str_append(&part, term->unicode ? "░" : ".");
  brim_ui_styled(out, term, BRIM_UI_DIM, part.data);
  if (part.status && !out->status) out->status = part.status;
  brim_str_deinit(&part);
}

// Puts a sparkline of the last `width` values of a ring; a blank for an unknown value.
static void put_spark(brim_str *out, const scene *s, const float *ring, int width) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const plain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  for (int i = 0; i < width; i++) {
    size_t back = (size_t)(width - i);
    if (back > s->history->count) continue;
    float value = ring[(s->history->next + BRIM_UI_TOP_SAMPLES - back) % BRIM_UI_TOP_SAMPLES];
    if (!isfinite(value)) {
      brim_str_append_char(out, ' ');
      continue;
    }
    int level = value <= 0 ? 0 : value >= 100 ? 7 : (int)(value / 12.5f);
    brim_str_append(out, s->term->unicode ? blocks[level] : plain[level]);
  }
}

//---------------------------------- lines ----------------------------------

static void pad_to(brim_str *line, int column) {
  int used = brim_utf8_width(line->data);
  if (used < column) brim_str_repeat(line, ' ', (size_t)(column - used));
}

//--------------------------------------------- host ---------------------------------------------
// Two lines above the GPUs, or a panel if there is no GPU.

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : NAN; }

// Appends the CPU quota of the control group, and how often it throttles; nothing if there is no quota.
static void quota_text(const brim_top_host *host, brim_str *out) {
  char text[16];
  if (!isfinite(host->quota_cores)) return;
  brim_str_append(out, "  ");
  brim_str_printf(out, brim_tr("quota %.4g cores"), host->quota_cores);
  if (!(host->quota_throttled_percent > 0)) return;
  percent_text(host->quota_throttled_percent, text);
  brim_str_append(out, ", ");
  brim_str_printf(out, brim_tr("throttled %s of the time"), text);
}

// "used/total"; "-" when neither is known.
static void pair_text(double used, double total, char out[96]) {
  char a[32], b[32];
  bytes_text(used, a);
  bytes_text(total, b);
  snprintf(out, 96, "%s/%s", a, b);
  if (*a == '-' && *b == '-') snprintf(out, 96, "-");
}

static double memory_total(const brim_top_host *host) {
  return host->memory_limit < host->memory_total ? host->memory_limit : host->memory_total;
}

// "CPU   32 % ███░░░░░░░  192 cores  load 61.2  memory ...  quota ..."
static void put_cpu_line(const scene *s, brim_ui_frame *frame) {
  const brim_top_host *host = &s->view->host;
  char text[96], cores[32];
  brim_str line, quota;
  brim_str_init(&line);
  brim_str_init(&quota);
  brim_ui_styled(&line, s->term, BRIM_UI_TITLE, "CPU");
  percent_text(host->cpu_percent, text);
  pad_to(&line, 10 - brim_utf8_width(text));
  brim_str_append(&line, text);
  brim_str_append_char(&line, ' ');
  put_bar(&line, s->term, host->cpu_percent, 10, BRIM_UI_BOLD);
  count_text(host->cores, cores);
  brim_str_append(&line, "  ");
  brim_str_printf(&line, brim_tr("%s cores"), cores);
  if (isfinite(host->load_1)) {
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("load %.1f"), host->load_1);
  }
  pair_text(host->memory_used, memory_total(host), text);
  brim_str_append(&line, "  ");
  brim_str_printf(&line, brim_tr("memory %s"), text);
  quota_text(host, &quota);
  brim_ui_styled(&line, s->term, host->quota_throttled_percent > 0 ? BRIM_UI_WARN : BRIM_UI_PLAIN,
                 quota.data);
  if (quota.status) line.status = quota.status;
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&quota);
  brim_str_deinit(&line);
}

static void add_rate(brim_str *line, const char *fmt, double first, double second) {
  char a[32], b[32];
  rate_text(first, a);
  rate_text(second, b);
  brim_str_append(line, "  ");
  brim_str_printf(line, fmt, a, b);
}

// `sizes`: include /dev/shm and swap. The panel does not, since it has rows for them.
static void put_io_line(const scene *s, brim_ui_frame *frame, bool sizes) {
  const brim_top_host *host = &s->view->host;
  char text[96];
  brim_str line;
  brim_str_init(&line);
  percent_text(host->iowait_percent, text);
  brim_str_append(&line, "  ");
  brim_str_printf(&line, brim_tr("I/O wait %s"), text);
  add_rate(&line, brim_tr("disk in %s out %s"), host->disk_read, host->disk_write);
  add_rate(&line, brim_tr("net in %s out %s"), host->network_rx, host->network_tx);
  if (sizes && host->shm_total > 0) {
    pair_text(host->shm_used, host->shm_total, text);
    brim_str_printf(&line, "  /dev/shm %s", text);
  }
  if (sizes && host->swap_total > 0) {
    pair_text(host->swap_used, host->swap_total, text);
    brim_str_append(&line, "  ");
    brim_str_printf(&line, brim_tr("swap %s"), text);
  }
  brim_ui_frame_text(frame, BRIM_UI_DIM, line.data);
  if (line.status) frame->out->status = line.status;
  brim_str_deinit(&line);
}

static void put_host_lines(const scene *s, brim_ui_frame *frame, int lines) {
  if (lines >= 1) put_cpu_line(s, frame);
  if (lines >= 2) put_io_line(s, frame, true);
}

//---------------------------------- panel ----------------------------------

// "  memory       27 % ████░░░░  410.0 GiB/1.5 TiB      ▁▂▃"
static void put_share(const scene *s, brim_ui_frame *frame, const char *label, double percent,
                      const char *note, const float *ring) {
  char text[16];
  brim_str line;
  int width = s->term->width;
  brim_str_init(&line);
  brim_str_append(&line, "  ");
  brim_ui_put_clipped(&line, s->term, BRIM_UI_PLAIN, label, 11);
  percent_text(percent, text);
  pad_to(&line, 20 - brim_utf8_width(text));
  brim_str_append(&line, text);
  brim_str_append_char(&line, ' ');
  put_bar(&line, s->term, percent, width >= 96 ? 24 : 16, BRIM_UI_BOLD);
  brim_str_append_char(&line, ' ');
  brim_ui_put_clipped(&line, s->term, BRIM_UI_PLAIN, note, width - brim_utf8_width(line.data));
  int column = width >= 96 ? 72 : 62;
  if (ring && s->history && brim_utf8_width(line.data) < column) {
    int room = width - column < BRIM_UI_TOP_SAMPLES ? width - column : BRIM_UI_TOP_SAMPLES;
    pad_to(&line, column);
    put_spark(&line, s, ring, room);
  }
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}

static void load_text(const brim_top_host *host, char *out, size_t size) {
  const double loads[3] = {host->load_1, host->load_5, host->load_15};
  char words[3][32];
  for (int i = 0; i < 3; i++) {
    snprintf(words[i], sizeof words[i], "-");
    if (isfinite(loads[i])) snprintf(words[i], sizeof words[i], "%.1f", loads[i]);
  }
  snprintf(out, size, brim_tr("load %s %s %s"), words[0], words[1], words[2]);
}

static void put_host_panel(const scene *s, brim_ui_frame *frame) {
  const brim_top_host *host = &s->view->host;
  char text[96], cores[32];
  brim_str title;
  brim_str_init(&title);
  brim_ui_styled(&title, s->term, BRIM_UI_TITLE, "CPU");
  brim_str_append(&title, "  ");
  brim_ui_put_clipped(&title, s->term, BRIM_UI_BOLD, host->cpu, 48);
  count_text(host->cores, cores);
  brim_str_append(&title, "  ");
  brim_str_printf(&title, brim_tr("%s cores"), cores);
  quota_text(host, &title);
  brim_ui_frame_line(frame, &title);
  brim_str_deinit(&title);
  text[0] = '\0';
  if (isfinite(host->load_1)) load_text(host, text, sizeof text);
  const float *cpu = s->history ? s->history->host[0] : NULL;
  const float *memory = s->history ? s->history->host[1] : NULL;
  put_share(s, frame, brim_tr("CPU use"), host->cpu_percent, text, cpu);
  pair_text(host->memory_used, memory_total(host), text);
  put_share(s, frame, brim_tr("memory"), share(host->memory_used, memory_total(host)), text,
            memory);
  pair_text(host->swap_used, host->swap_total, text);
  if (host->swap_total <= 0) snprintf(text, sizeof text, "%s", brim_tr("none"));
  put_share(s, frame, brim_tr("swap"), share(host->swap_used, host->swap_total), text, NULL);
  pair_text(host->shm_used, host->shm_total, text);
  put_share(s, frame, "/dev/shm", share(host->shm_used, host->shm_total), text, NULL);
  put_io_line(s, frame, false);
}

//--------------------------------------------- GPUs ---------------------------------------------
// A panel for each GPU with the ladder of utilisation, or a table if there is no room for panels.

static void join(brim_str *out, const char *text) {
  if (out->len > 0) brim_str_append(out, ", ");
  brim_str_append(out, text);
}

// Appends why the clock is below its maximum. `shares`: also append the share of time in which
// the power cap lowered it.
static void throttle_text(const brim_top_gpu *gpu, bool shares, brim_str *out) {
  bool share = shares && gpu->power_violation_percent > 0;
  for (int i = 0; i < BRIM_TOP_THROTTLE_COUNT; i++) {
    // The power cap may have lowered the clock during the interval even if it does not now.
    bool power = i == BRIM_TOP_THROTTLE_POWER_CAP && share;
    if (!(gpu->throttle >> i & 1) && !power) continue;
    join(out, brim_tr(brim_top_throttle_words((brim_top_throttle)i)));
    if (!power) continue;
    char text[16];
    percent_text(gpu->power_violation_percent, text);
    brim_str_printf(out, " %s", text);
  }
}

static void raise_style(brim_ui_style *style, brim_ui_style style_of_trouble) {
  if (*style != BRIM_UI_BAD) *style = style_of_trouble;
}

static void add_memory_trouble(const brim_top_gpu *gpu, brim_str *out, brim_ui_style *style) {
  char text[96], count[32];
  if (gpu->ecc_uncorrected > 0) {
    count_text(gpu->ecc_uncorrected, count);
    snprintf(text, sizeof text, brim_tr("uncorrected ECC errors: %s"), count);
    join(out, text);
    raise_style(style, BRIM_UI_BAD);
  }
  if (gpu->remap_failed == BRIM_TOP_YES) {
    join(out, brim_tr("row remap failed: replace the GPU"));
    raise_style(style, BRIM_UI_BAD);
  } else if (gpu->remap_pending == BRIM_TOP_YES) {
    join(out, brim_tr("row remap pending: reset the GPU"));
    raise_style(style, BRIM_UI_WARN);
  }
}

// Appends what is wrong with a GPU: lost, hang, Xid, memory errors, narrow PCIe link; nothing if all is well. *style:
// the style of the worst trouble.
static void trouble_text(const brim_top_gpu *gpu, brim_str *out, brim_ui_style *style) {
  char text[96], duration[32];
  *style = BRIM_UI_PLAIN;
  if (gpu->lost == BRIM_TOP_YES) {
    join(out, brim_tr("lost: the driver does not answer"));
    raise_style(style, BRIM_UI_BAD);
  }
  if (gpu->hang == BRIM_TOP_YES) {
    brim_format_duration(floor(gpu->hang_s), duration);
    snprintf(text, sizeof text, brim_tr("HANG? busy at idle power for %s"), duration);
    join(out, text);
    raise_style(style, BRIM_UI_BAD);
  }
  if (gpu->xid >= 0) {
    snprintf(text, sizeof text, "Xid %lld", (long long)gpu->xid);
    join(out, text);
    raise_style(style, BRIM_UI_BAD);
  }
  add_memory_trouble(gpu, out, style);
  if (gpu->pcie_width > 0 && gpu->pcie_width < gpu->pcie_width_max) {
    snprintf(text, sizeof text, brim_tr("PCIe x%lld of x%lld"), (long long)gpu->pcie_width,
             (long long)gpu->pcie_width_max);
    join(out, text);
    raise_style(style, BRIM_UI_WARN);
  }
}

//---------------------------------- panel ----------------------------------

enum { PANEL_LINES = 11, PANEL_WIDTH = 78 };

// "GPU 0  NVIDIA H200  0000:18:00.0", or the trouble ("HANG? ...") instead of the bus.
static void put_title(const scene *s, const brim_top_gpu *gpu, int width, brim_str *line) {
  char text[32];
  brim_str trouble;
  brim_ui_style style;
  brim_str_init(&trouble);
  count_text(gpu->index, text);
  brim_str title;
  brim_str_init(&title);
  brim_str_printf(&title, gpu->slice == BRIM_TOP_YES ? "MIG %s" : "GPU %s", text);
  brim_ui_styled(line, s->term, BRIM_UI_TITLE, title.data);
  brim_str_append(line, "  ");
  brim_ui_put_clipped(line, s->term, BRIM_UI_BOLD, gpu->name, 36);
  brim_str_append(line, "  ");
  trouble_text(gpu, &trouble, &style);
  int room = width - brim_utf8_width(line->data);
  if (trouble.len > 0) {
    brim_ui_put_clipped(line, s->term, style, trouble.data, room);
  } else {
    brim_ui_put_clipped(line, s->term, BRIM_UI_DIM, gpu->bus, room);
  }
  if (trouble.status || title.status) line->status = BRIM_ENOMEM;
  brim_str_deinit(&title);
  brim_str_deinit(&trouble);
}

// A line of the ladder of utilisation.
typedef struct rung {
  const char *label;
  brim_ui_top_trace trace;
  double percent;
  int target;  // brim_top_target; -1 = none
  const char *note;
} rung;

// "  power        87 % ██████████████░░ met 612/700 W         ▃▄▅▆"
static void put_rung(const scene *s, const brim_top_gpu *gpu, size_t place, rung r, int width,
                     brim_str *line) {
  enum { LABEL = 14, VALUE = 20 };
  char text[16];
  int bar = width >= 96 ? 24 : 16;
  brim_ui_style style = BRIM_UI_PLAIN;
  const char *mark = r.target >= 0 ? target_word(gpu->targets[r.target], &style) : "";
  brim_str_append(line, "  ");
  brim_ui_put_clipped(line, s->term, BRIM_UI_PLAIN, r.label, LABEL - 3);
  percent_text(r.percent, text);
  pad_to(line, VALUE - brim_utf8_width(text));
  brim_ui_styled(line, s->term, isfinite(r.percent) ? style : BRIM_UI_DIM, text);
  brim_str_append_char(line, ' ');
  put_bar(line, s->term, r.percent, bar, style == BRIM_UI_PLAIN ? BRIM_UI_BOLD : style);
  brim_str_append_char(line, ' ');
  int column = brim_utf8_width(line->data);
  brim_ui_put_clipped(line, s->term, style, mark, width - column);
  if (*mark) brim_str_append_char(line, ' ');
  int used = brim_utf8_width(line->data);
  brim_ui_put_clipped(line, s->term, BRIM_UI_PLAIN, r.note, width - used);
  column += width >= 96 ? 26 : 24;
  if (width - column < 4 || brim_utf8_width(line->data) >= column) return;
  pad_to(line, column);
  const float *ring =
      s->history && place < s->history->gpus ? ring_at(s->history, place, r.trace) : NULL;
  int room = width - column < BRIM_UI_TOP_SAMPLES ? width - column : BRIM_UI_TOP_SAMPLES;
  brim_str spark;
  brim_str_init(&spark);
  if (ring) put_spark(&spark, s, ring, room);
  brim_ui_styled(line, s->term, BRIM_UI_DIM, spark.data);
  if (spark.status) line->status = spark.status;
  brim_str_deinit(&spark);
}

// "  clock 1755/1980 MHz: power cap 38 %  58 °C, memory 66 °C  26 Wh"
static void put_clocks(const scene *s, const brim_top_gpu *gpu, int width, brim_str *line) {
  char value[32], most[32], memory[32], text[64];
  brim_str reasons, tail;
  brim_str_init(&reasons);
  brim_str_init(&tail);
  whole_text(gpu->clock_mhz, value);
  whole_text(gpu->clock_max_mhz, most);
  brim_str_append(line, "  ");
  brim_str_printf(line, brim_tr("clock %s/%s MHz"), value, most);
  bool idle = gpu->throttle == 1u << BRIM_TOP_THROTTLE_IDLE;
  throttle_text(gpu, true, &reasons);
  if (reasons.len > 0) {
    brim_str_append(line, ": ");
    int room = width - brim_utf8_width(line->data);
    brim_ui_put_clipped(line, s->term, idle ? BRIM_UI_DIM : BRIM_UI_WARN, reasons.data, room);
  } else if (gpu->throttle_known) {
    brim_str_append(line, ": ");
    brim_ui_styled(line, s->term, BRIM_UI_GOOD, brim_tr("not held down"));
  }
  const char *degrees = s->term->unicode ? "°C" : "C";
  whole_text(gpu->temperature_c, value);
  whole_text(gpu->memory_temperature_c, memory);
  brim_str_printf(&tail, "  %s %s", value, degrees);
  if (*memory != '-') {
    brim_str_append(&tail, ", ");
    brim_str_printf(&tail, brim_tr("memory %s %s"), memory, degrees);
  }
  energy_text(gpu->energy_j, text);
  if (*text != '-') brim_str_printf(&tail, "  %s", text);
  int room = width - brim_utf8_width(line->data);
  brim_ui_put_clipped(line, s->term, BRIM_UI_PLAIN, tail.data, room);
  if (reasons.status || tail.status) line->status = BRIM_ENOMEM;
  brim_str_deinit(&tail);
  brim_str_deinit(&reasons);
}

// "  PCIe 5 x16  in 2.7 GiB/s out 67 MiB/s  ECC 0+0  no persistence"
static void put_links(const scene *s, const brim_top_gpu *gpu, int width, brim_str *line) {
  char a[32], b[32];
  brim_str text;
  brim_str_init(&text);
  count_text(gpu->pcie_generation, a);
  count_text(gpu->pcie_width, b);
  brim_str_printf(&text, "  PCIe %s x%s", a, b);
  rate_text(gpu->pcie_rx, a);
  rate_text(gpu->pcie_tx, b);
  brim_str_append(&text, "  ");
  brim_str_printf(&text, brim_tr("in %s out %s"), a, b);
  if (gpu->ecc == BRIM_TOP_NO) {
    brim_str_printf(&text, "  %s", brim_tr("ECC off"));
  } else {
    count_text(gpu->ecc_corrected, a);
    count_text(gpu->ecc_uncorrected, b);
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
  brim_ui_put_clipped(line, s->term, BRIM_UI_DIM, text.data, width);
  if (text.status) line->status = text.status;
  brim_str_deinit(&text);
}

// Puts line n of a GPU's panel, at most `width` columns wide.
static void put_panel_line(const scene *s, size_t place, int n, int width, brim_str *out) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char ceiling[96] = "", memory[96] = "", power[96] = "", text[16];
  if (isfinite(gpu->memory_used) && isfinite(gpu->memory_total)) {
    snprintf(memory, sizeof memory, "%.1f/%.1f GiB", brim_shown(gpu->memory_used / (1 << 30)),
             brim_shown(gpu->memory_total / (1 << 30)));
  }
  char now[32], limit[32];
  whole_text(gpu->power_w, now);
  whole_text(gpu->power_limit_w, limit);
  if (*now != '-' || *limit != '-') snprintf(power, sizeof power, "%s/%s W", now, limit);
  if (isfinite(gpu->ceiling_percent)) {
    percent_text(gpu->ceiling_percent, text);
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

// Screens below WIDE columns never show column OCCUPANCY: it would appear and vanish with the length of the state's
// text.
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
  (void)target_word(gpu->targets[target], &style);
  brim_ui_table_add(table, style, "%s%s", text, mark_of(term, gpu->targets[target]));
}

static void add_last_cells(const scene *s, size_t place, brim_ui_table *table) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char text[32], other[32];
  brim_str words;
  brim_ui_style style;
  brim_str_init(&words);
  rate_text(gpu->pcie_rx, text);
  rate_text(gpu->pcie_tx, other);
  brim_ui_table_add(table, BRIM_UI_DIM, "%10s", text);
  brim_ui_table_add(table, BRIM_UI_DIM, "%10s", other);
  if (s->history && place < s->history->gpus) {
    put_spark(&words, s, ring_at(s->history, place, BRIM_UI_TOP_KERNELS), 16);
  }
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", words.data);
  brim_str_clear(&words);
  trouble_text(gpu, &words, &style);
  if (words.len == 0 && gpu->throttle != 1u << BRIM_TOP_THROTTLE_IDLE) style = BRIM_UI_WARN;
  if (words.len > 0 && gpu->throttle) brim_str_append(&words, ", ");
  brim_str reasons;
  brim_str_init(&reasons);
  throttle_text(gpu, false, &reasons);
  brim_str_append(&words, reasons.data);
  brim_ui_table_add(table, style, "%s", words.data);
  if (reasons.status || words.status) table->status = BRIM_ENOMEM;
  brim_str_deinit(&reasons);
  brim_str_deinit(&words);
}

static void add_gpu(const scene *s, size_t place, brim_ui_table *table) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char a[32], b[32], text[96];
  count_text(gpu->index, a);
  brim_ui_table_add(table, BRIM_UI_TITLE, gpu->slice == BRIM_TOP_YES ? "%s M" : "%s", a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", gpu->name);
  whole_text(gpu->gpu_percent, a);
  snprintf(text, sizeof text, "%3s", a);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_UTILISATION, text);
  add_share(table, gpu->sm_percent);
  if (s->term->width >= WIDE) add_share(table, gpu->occupancy_percent);
  add_share(table, gpu->tensor_percent);
  add_share(table, gpu->dram_percent);
  add_share(table, gpu->ofu_percent);
  add_share(table, gpu->ceiling_percent);
  whole_text(gpu->memory_used / (1 << 30), a);
  whole_text(gpu->memory_total / (1 << 30), b);
  snprintf(text, sizeof text, "%3s/%s", a, b);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_MEMORY, text);
  whole_text(gpu->power_w, a);
  whole_text(gpu->power_limit_w, b);
  snprintf(text, sizeof text, "%3s/%s", a, b);
  add_target(table, s->term, gpu, BRIM_TOP_TARGET_POWER, text);
  whole_text(gpu->clock_mhz, a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%4s", a);
  whole_text(gpu->temperature_c, a);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%2s", a);
  add_last_cells(s, place, table);
}

static brim_status put_gpu_table(const scene *s, brim_str *out) {
  const brim_ui_column candidates[] = {
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
  brim_ui_column columns[sizeof candidates / sizeof *candidates];
  size_t count = 0;
  for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
    if (i != OCCUPANCY || s->term->width >= WIDE) columns[count++] = candidates[i];
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, count);
  table.no_rule = true;
  for (size_t i = 0; i < s->view->gpu_count; i++) add_gpu(s, i, &table);
  brim_status status = brim_ui_table_render(&table, s->term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

//-------------------------------------------- lists --------------------------------------------
// The lists of jobs of brim, processes and events.

enum { PROCESS_COLUMNS = 16 };
enum { STALE_S = 10 };  // mark jobs that have published nothing for this long

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
static void progress_text(int64_t done, int64_t total, char out[64]) {
  char a[32], b[32];
  count_text(done, a);
  count_text(total, b);
  if (total > 0) {
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
  snprintf(text, sizeof text, "%lld", (long long)job->pid);
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", job->pid >= 0 ? text : "-");
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", job->device);
  brim_ui_style style = state_text(job, now_s, text);
  brim_ui_table_add(table, style, "%s", text);
  progress_text(job->epoch, job->epochs, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  progress_text(job->step, job->steps, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  brim_format_figure(job->samples_per_s, figure);
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

// Puts a job as one line for a pipe.
static void put_job_line(const brim_top_view *view, const brim_job *job, brim_str *out) {
  char text[64], figure[32];
  brim_str line;
  brim_str_init(&line);
  brim_str_printf(&line, "%s %s", job->command[0] ? job->command : "brim",
                  job->name[0] ? job->name : job->workload);
  brim_str_printf(&line, "  PID %lld", (long long)job->pid);
  if (job->device[0]) brim_str_printf(&line, "  %s", job->device);
  (void)state_text(job, view->when_s, text);
  brim_str_printf(&line, "  %s", text);
  progress_text(job->epoch, job->epochs, text);
  if (job->epoch >= 0) brim_str_printf(&line, "  %s %s", brim_tr("epoch"), text);
  progress_text(job->step, job->steps, text);
  if (job->step >= 0) brim_str_printf(&line, "  %s %s", brim_tr("step"), text);
  brim_format_figure(job->samples_per_s, figure);
  if (isfinite(job->samples_per_s))
    brim_str_printf(&line, "  %s %s/s", figure,
                    job->unit[0] ? brim_tr(job->unit) : brim_tr("samples"));
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

static brim_status put_job_table(const scene *s, size_t most, brim_str *out) {
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
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  table.no_rule = true;
  for (size_t i = 0; i < s->view->job_count && i < most; i++) {
    add_job(&table, &s->view->jobs[i], s->view->when_s);
  }
  brim_status status = brim_ui_table_render(&table, s->term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

// Puts one line about the first finding of a job, which is the worst.
static void put_finding(const scene *s, const brim_job *job, brim_str *out) {
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
  brim_ui_put_clipped(out, s->term, BRIM_UI_WARN, line.data, s->term->width);
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

static bool passes_filter(const brim_top_process *p, const char *filter) {
  char pid[32];
  snprintf(pid, sizeof pid, "%lld", (long long)p->pid);
  return !*filter || contains(p->command, filter) || contains(p->user, filter) ||
         contains(p->container, filter) || contains(pid, filter);
}

// True if `a` comes before `b`: by the key, larger values first and unknown ones last, then by CPU.
static bool comes_before(const brim_top_process *a, const brim_top_process *b,
                         brim_ui_top_order order) {
  double x = key_of(a, order), y = key_of(b, order);
  if (isnan(x) != isnan(y)) return isnan(y);
  if (x > y || x < y) return x > y;
  if (isnan(a->cpu_percent) != isnan(b->cpu_percent)) return isnan(b->cpu_percent);
  return a->cpu_percent > b->cpu_percent;
}

// Sorts by merging, which keeps equal processes in their order: the list must not flicker.
static void sort_rows(const brim_top_view *view, brim_ui_top_order order, size_t *rows,
                      size_t *scratch, size_t count) {
  if (count < 2) return;
  size_t half = count / 2, a = 0, b = half, n = 0;
  sort_rows(view, order, rows, scratch, half);
  sort_rows(view, order, rows + half, scratch, count - half);
  while (a < half || b < count) {
    bool second = a >= half || (b < count && comes_before(&view->processes[rows[b]],
                                                          &view->processes[rows[a]], order));
    scratch[n++] = second ? rows[b++] : rows[a++];
  }
  memcpy(rows, scratch, count * sizeof *rows);
}

// Lists the processes that pass the filter, in the order that the state asks for, as indices into view->processes.
// Release *out by brim_free.
static brim_status pick_processes(const brim_ui_top *state, const brim_top_view *view, size_t **out,
                                  size_t *count) {
  size_t *rows = brim_calloc(2 * view->process_count + 1, sizeof *rows);
  *out = rows;
  *count = 0;
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory");
  for (size_t i = 0; i < view->process_count; i++) {
    if (passes_filter(&view->processes[i], state->filter)) rows[(*count)++] = i;
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

// The optional columns that the table of processes has.
typedef struct process_columns {
  bool gpus, containers;
} process_columns;

static void add_gpu_cells(brim_ui_table *table, const brim_top_process *p) {
  char text[32];
  bytes_text(p->memory, text);
  brim_ui_table_add(table, BRIM_UI_BOLD, "%s", text);
  add_percent(table, p->sm_percent);
  add_percent(table, p->memory_busy_percent);
  add_percent(table, p->encoder_percent);
  add_percent(table, p->decoder_percent);
  add_percent(table, p->jpeg_percent);
  add_percent(table, p->ofa_percent);
}

static void add_process(brim_ui_table *table, const brim_top_process *p, process_columns optional) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)p->pid);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->pid >= 0 ? text : "-");
  count_text(p->gpu, text);
  if (optional.gpus) brim_ui_table_add(table, BRIM_UI_TITLE, "%s", text);
  if (optional.gpus) brim_ui_table_add(table, BRIM_UI_DIM, "%s", p->type);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->user[0] ? p->user : "-");
  if (optional.gpus) add_gpu_cells(table, p);
  add_percent(table, p->cpu_percent);
  bytes_text(p->rss, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  if (isfinite(p->elapsed_s)) {
    brim_format_duration(floor(p->elapsed_s), text);
  } else {
    snprintf(text, sizeof text, "-");
  }
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", text);
  if (optional.containers) brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->container);
  if (p->elsewhere == BRIM_TOP_YES && !p->command[0]) {
    brim_ui_table_add(table, BRIM_UI_DIM, "%s", brim_tr("another container's process"));
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", p->command[0] ? p->command : "-");
  }
}

// Fills the columns of the table of processes. Returns their number.
static size_t choose_columns(process_columns optional, brim_ui_column *out) {
  const struct {
    bool shown;
    brim_ui_column column;
  } candidates[PROCESS_COLUMNS] = {
      {true, {"PID", NULL, BRIM_UI_RIGHT, 0, 0}},
      {optional.gpus, {"GPU", NULL, BRIM_UI_RIGHT, 0, 0}},
      {optional.gpus, {brim_tr("type"), NULL, BRIM_UI_LEFT, 6, 0}},
      {true, {brim_tr("user"), NULL, BRIM_UI_LEFT, 2, 8}},
      {optional.gpus, {brim_tr("GPU memory"), brim_tr("GPU mem"), BRIM_UI_RIGHT, 0, 0}},
      {optional.gpus, {"SM%", NULL, BRIM_UI_RIGHT, 1, 0}},
      {optional.gpus, {"mem%", NULL, BRIM_UI_RIGHT, 7, 0}},
      {optional.gpus, {"enc%", NULL, BRIM_UI_RIGHT, 8, 0}},
      {optional.gpus, {"dec%", NULL, BRIM_UI_RIGHT, 8, 0}},
      {optional.gpus, {"jpg%", NULL, BRIM_UI_RIGHT, 9, 0}},
      {optional.gpus, {"ofa%", NULL, BRIM_UI_RIGHT, 9, 0}},
      {true, {"CPU%", NULL, BRIM_UI_RIGHT, 2, 0}},
      {true, {"RSS", NULL, BRIM_UI_RIGHT, 4, 0}},
      {true, {brim_tr("time"), NULL, BRIM_UI_RIGHT, 5, 0}},
      {optional.containers, {brim_tr("container"), NULL, BRIM_UI_LEFT, 6, 12}},
      {true, {brim_tr("command"), NULL, BRIM_UI_LEFT, 0, 24}},
  };
  size_t count = 0;
  for (size_t i = 0; i < PROCESS_COLUMNS; i++) {
    if (candidates[i].shown) out[count++] = candidates[i].column;
  }
  return count;
}

static brim_status put_process_table(const scene *s, const size_t *rows, size_t count,
                                     brim_str *out) {
  process_columns optional = {.gpus = s->view->gpu_count > 0};
  for (size_t i = 0; i < count; i++) {
    optional.gpus |= s->view->processes[rows[i]].gpu >= 0;
    optional.containers |= s->view->processes[rows[i]].container[0] != '\0';
  }
  brim_ui_column columns[PROCESS_COLUMNS];
  size_t width = choose_columns(optional, columns);
  brim_ui_table table;
  brim_ui_table_init(&table, columns, width);
  table.no_rule = true;
  for (size_t i = 0; i < count; i++) add_process(&table, &s->view->processes[rows[i]], optional);
  brim_status status = brim_ui_table_render(&table, s->term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

//---------------------------------- events ----------------------------------

// "15:03:05  GPU 1  Xid 94: contained ECC error"
static void put_event(const brim_top_event *event, const brim_term *term, brim_str *out) {
  char clock[16];
  brim_str text;
  brim_str_init(&text);
  brim_ui_time_of_day(event->when_s, "-", clock);
  brim_str_printf(&text, "%s  ", clock);
  if (event->gpu >= 0) brim_str_printf(&text, "GPU %lld  ", (long long)event->gpu);
  if (strcmp(event->kind, "xid") == 0) {
    brim_str_append(&text, "Xid");
  } else {
    brim_str_append(&text, event->kind);
  }
  if (event->code >= 0) brim_str_printf(&text, " %lld", (long long)event->code);
  if (event->text[0]) brim_str_printf(&text, ": %s", event->text);
  brim_ui_put_clipped(out, term, BRIM_UI_BAD, text.data, term->width > 0 ? term->width : 160);
  if (text.status) out->status = text.status;
  brim_str_deinit(&text);
}

//-------------------------------------------- pages --------------------------------------------
// Help, and everything about one GPU.

static void put_help(brim_ui_frame *frame) {
  static const struct {
    const char *keys, *text;
  } rows[] = {
      {"s", BRIM_N_("sort processes: GPU memory, SM, CPU, RSS, GPU, pid")},
      {"/", BRIM_N_("filter processes by command, user, container or pid")},
      {"g Enter", BRIM_N_("everything about one GPU; left and right choose it")},
      {"j k PgDn", BRIM_N_("scroll")},
      {"p Space", BRIM_N_("pause, or continue")},
      {"+ -", BRIM_N_("halve or double the interval")},
      {"Esc", BRIM_N_("go back; drop the filter")},
      {"Ctrl-L", BRIM_N_("draw the screen again")},
      {"q", BRIM_N_("quit")},
  };
  static const struct {
    const char *name, *text;
  } words[] = {
      {BRIM_N_("utilisation"), BRIM_N_("time in which a kernel ran (NVML); target above 90 %")},
      {BRIM_N_("SMs"), BRIM_N_("SMs with a warp on them (GPM, Hopper and later)")},
      {BRIM_N_("occupancy"), BRIM_N_("warps on SMs, of what they could hold (GPM)")},
      {BRIM_N_("tensor"), BRIM_N_("tensor pipes in use (GPM)")},
      {"DRAM", BRIM_N_("bandwidth of device memory in use (GPM)")},
      {"OFU", BRIM_N_("tensor x clock: share of the peak at the highest clock")},
      {"GEMM", BRIM_N_("best matrix product measured here, of the same peak")},
      {BRIM_N_("memory"), BRIM_N_("target above 80 %")},
      {BRIM_N_("power"), BRIM_N_("target at least 75 % of the limit")},
  };
  brim_ui_frame_text(frame, BRIM_UI_TITLE, brim_tr("Keys"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_ui_frame_help(frame, rows[i].keys, brim_tr(rows[i].text));
  }
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  brim_ui_frame_text(frame, BRIM_UI_TITLE, brim_tr("Values"));
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    brim_ui_frame_help(frame, brim_tr(words[i].name), brim_tr(words[i].text));
  }
  static const brim_ui_hint back[] = {{"Esc", BRIM_N_("back")}};
  brim_ui_frame_hints(frame, "", back, 1);
}

//---------------------------------- one GPU ----------------------------------

static void put_fact(brim_str *out, const char *name, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void put_fact(brim_str *out, const char *name, const char *fmt, ...) {
  brim_str value;
  va_list args;
  brim_str_init(&value);
  va_start(args, fmt);
  brim_str_vprintf(&value, fmt, args);
  va_end(args);
  brim_str_printf(out, "  %s", name);
  brim_str_repeat(out, ' ', (size_t)(brim_utf8_width(name) < 22 ? 22 - brim_utf8_width(name) : 1));
  brim_str_append(out, value.data);
  brim_str_append_char(out, '\n');
  if (value.status && !out->status) out->status = value.status;
  brim_str_deinit(&value);
}

static const char *flag_text(brim_top_flag flag) {
  return flag == BRIM_TOP_YES ? brim_tr("yes") : flag == BRIM_TOP_NO ? brim_tr("no") : "-";
}

static void power_facts(const brim_top_gpu *gpu, brim_str *out) {
  char a[32], b[32], c[32];
  whole_text(gpu->power_limit_w, a);
  whole_text(gpu->power_limit_default_w, b);
  whole_text(gpu->power_limit_max_w, c);
  put_fact(out, brim_tr("power limit"), brim_tr("%s W (default %s W, most %s W)"), a, b, c);
  energy_text(gpu->energy_j, a);
  energy_text(gpu->energy_total_j, b);
  put_fact(out, brim_tr("energy"), brim_tr("%s here, %s since the driver was loaded"), a, b);
  whole_text(gpu->memory_clock_mhz, a);
  whole_text(gpu->memory_clock_max_mhz, b);
  whole_text(gpu->video_clock_mhz, c);
  put_fact(out, brim_tr("memory clock"), brim_tr("%s/%s MHz, video %s MHz"), a, b, c);
  char p[16], t[16];
  percent_text(gpu->power_violation_percent, p);
  percent_text(gpu->thermal_violation_percent, t);
  put_fact(out, brim_tr("held down by"), brim_tr("power %s, heat %s of the time"), p, t);
  whole_text(gpu->slowdown_c, a);
  whole_text(gpu->shutdown_c, b);
  percent_text(gpu->fan_percent, t);
  count_text(gpu->pstate, c);
  put_fact(out, brim_tr("slows down at"), brim_tr("%s °C, shuts down at %s °C; fan %s; P-state %s"),
           a, b, t, c);
}

static void memory_facts(const brim_top_gpu *gpu, brim_str *out) {
  char a[32], b[32], c[32], d[32], p[16];
  percent_text(gpu->memory_busy_percent, p);
  bytes_text(gpu->memory_reserved, a);
  put_fact(out, brim_tr("memory in use"), brim_tr("%s of the time (NVML); driver reserves %s"), p,
           a);
  bytes_text(gpu->bar1_used, a);
  bytes_text(gpu->bar1_total, b);
  bytes_text(gpu->confidential_used, c);
  put_fact(out, "BAR1", brim_tr("%s of %s; protected memory %s"), a, b, c);
  count_text(gpu->ecc_corrected, a);
  count_text(gpu->ecc_uncorrected, b);
  count_text(gpu->ecc_corrected_total, c);
  count_text(gpu->ecc_uncorrected_total, d);
  put_fact(out, brim_tr("ECC errors"),
           brim_tr("%s corrected, %s uncorrected; in its life %s and %s"), a, b, c, d);
  put_fact(out, brim_tr("ECC on"), "%s", flag_text(gpu->ecc));
  count_text(gpu->remapped_corrected, a);
  count_text(gpu->remapped_uncorrected, b);
  put_fact(out, brim_tr("remapped rows"),
           brim_tr("%s corrected, %s uncorrected; pending: %s, failed: %s"), a, b,
           flag_text(gpu->remap_pending), flag_text(gpu->remap_failed));
  count_text(gpu->retired_pages, a);
  put_fact(out, brim_tr("retired pages"), "%s", a);
}

static void link_facts(const brim_top_gpu *gpu, brim_str *out) {
  char a[32], b[32], c[32], d[32];
  count_text(gpu->pcie_generation, a);
  count_text(gpu->pcie_width, b);
  count_text(gpu->pcie_generation_max, c);
  count_text(gpu->pcie_width_max, d);
  put_fact(out, "PCIe", brim_tr("generation %s x%s of %s x%s"), a, b, c, d);
  rate_text(gpu->pcie_rx, a);
  rate_text(gpu->pcie_tx, b);
  count_text(gpu->pcie_replays, c);
  put_fact(out, "", brim_tr("in %s, out %s; replays %s"), a, b, c);
  rate_text(gpu->nvlink_rx, a);
  rate_text(gpu->nvlink_tx, b);
  put_fact(out, "NVLink", brim_tr("in %s, out %s"), a, b);
  char e[16], f[16], g[16], h[16];
  percent_text(gpu->encoder_percent, e);
  percent_text(gpu->decoder_percent, f);
  percent_text(gpu->jpeg_percent, g);
  percent_text(gpu->ofa_percent, h);
  put_fact(out, brim_tr("video engines"), brim_tr("encoder %s, decoder %s, JPEG %s, OFA %s"), e, f,
           g, h);
}

// Puts facts about a GPU that its panel has no room for, one per line.
static void put_facts(const scene *s, size_t place, brim_str *out) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char a[32];
  power_facts(gpu, out);
  memory_facts(gpu, out);
  link_facts(gpu, out);
  put_fact(out, "MIG", "%s", flag_text(gpu->mig));
  put_fact(out, brim_tr("persistence mode"), "%s", flag_text(gpu->persistence));
  put_fact(out, brim_tr("compute mode"), "%s", gpu->compute_mode[0] ? gpu->compute_mode : "-");
  count_text(gpu->numa, a);
  put_fact(out, "NUMA", "%s", a);
  put_fact(out, "UUID", "%s", gpu->uuid[0] ? gpu->uuid : "-");
  put_fact(out, brim_tr("PCI bus"), "%s", gpu->bus[0] ? gpu->bus : "-");
  put_fact(out, brim_tr("Xid events"), "%s",
           gpu->xid_watched == BRIM_TOP_YES ? brim_tr("watched") : brim_tr("cannot be seen here"));
  for (size_t i = 0; i < s->view->event_count; i++) {
    const brim_top_event *event = &s->view->events[i];
    if (event->gpu != gpu->index) continue;
    brim_str_append(out, "  ");
    put_event(event, s->term, out);
    brim_str_append_char(out, '\n');
  }
}

static void put_details(brim_ui_frame *frame, brim_ui_top *state, const scene *s) {
  static const brim_ui_hint hints[] = {{"Esc", BRIM_N_("back")},
                                       {"<- ->", BRIM_N_("another GPU")},
                                       {"j k", BRIM_N_("scroll")},
                                       {"p", BRIM_N_("pause")}};
  brim_str line, facts;
  if (state->gpu >= s->view->gpu_count) state->gpu = 0;
  brim_str_init(&line);
  brim_str_init(&facts);
  for (int i = 0; i < PANEL_LINES && s->view->gpu_count > 0; i++) {
    put_panel_line(s, state->gpu, i, s->term->width, &line);
    brim_ui_frame_line(frame, &line);
  }
  if (s->view->gpu_count > 0) put_facts(s, state->gpu, &facts);
  size_t lines = 0;
  for (const char *p = facts.data; *p; p++) lines += *p == '\n';
  size_t room = frame->left > 1 ? (size_t)frame->left - 1 : 0;
  state->page = room;
  if (state->scroll + room > lines) state->scroll = lines > room ? lines - room : 0;
  brim_ui_frame_lines(frame, &facts, state->scroll, (int)room);
  brim_ui_frame_hints(frame, "", hints, sizeof hints / sizeof *hints);
  brim_str_deinit(&facts);
  brim_str_deinit(&line);
}

//--------------------------------------------- keys ---------------------------------------------

void brim_ui_top_init(brim_ui_top *state) {
  memset(state, 0, sizeof *state);
  state->interval_s = 1;
  state->slow_s = state->age_s = NAN;
}

static brim_ui_top_action filter_key(brim_ui_top *state, brim_key key) {
  state->top = 0;
  if (brim_key_edit(key, state->filter, sizeof state->filter)) return BRIM_UI_TOP_DRAW;
  if (key.code != BRIM_KEY_ENTER && key.code != BRIM_KEY_ESCAPE) return BRIM_UI_TOP_NOTHING;
  if (key.code == BRIM_KEY_ESCAPE) state->filter[0] = '\0';
  state->mode = BRIM_UI_TOP_MAIN;
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action move_key(brim_ui_top *state, brim_key_code code) {
  size_t *at = state->mode == BRIM_UI_TOP_DETAILS ? &state->scroll : &state->top;
  int64_t page = state->page > 1 ? (int64_t)state->page : 1, target = (int64_t)*at;
  switch (code) {
    case BRIM_KEY_UP:
      target--;
      break;
    case BRIM_KEY_DOWN:
      target++;
      break;
    case BRIM_KEY_PAGE_UP:
      target -= page;
      break;
    case BRIM_KEY_PAGE_DOWN:
      target += page;
      break;
    case BRIM_KEY_HOME:
      target = 0;
      break;
    case BRIM_KEY_END:
      target = INT32_MAX;
      break;
    default:
      return BRIM_UI_TOP_NOTHING;
  }
  *at = target < 0 ? 0 : (size_t)target;  // put_details and put_processes limit it to the last page
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action step_gpu(brim_ui_top *state, const brim_top_view *view, bool back) {
  if (state->mode != BRIM_UI_TOP_DETAILS || view->gpu_count == 0) return BRIM_UI_TOP_NOTHING;
  size_t n = view->gpu_count;
  state->gpu = (state->gpu + (back ? n - 1 : 1)) % n;
  state->scroll = 0;
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action open_page(brim_ui_top *state, brim_ui_top_mode mode) {
  state->mode = state->mode == mode ? BRIM_UI_TOP_MAIN : mode;
  state->scroll = 0;
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action open_details(brim_ui_top *state, const brim_top_view *view) {
  if (view->gpu_count > 0) return open_page(state, BRIM_UI_TOP_DETAILS);
  state->hint = BRIM_N_("there is no GPU to show");
  return BRIM_UI_TOP_DRAW;
}

// Handles Escape and q. Both leave a page; on the main view Escape drops the filter and q quits.
static brim_ui_top_action leave_page(brim_ui_top *state, bool quits) {
  if (state->mode != BRIM_UI_TOP_MAIN) {
    state->mode = BRIM_UI_TOP_MAIN;
    return BRIM_UI_TOP_DRAW;
  }
  if (quits) return BRIM_UI_TOP_QUIT;
  if (!state->filter[0]) return BRIM_UI_TOP_NOTHING;
  state->filter[0] = '\0';
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action letter_key(brim_ui_top *state, const brim_top_view *view, uint32_t ch) {
  switch (brim_key_latin(ch)) {
    case 'q':
      return leave_page(state, true);
    case '?':
    case 'h':
      return open_page(state, BRIM_UI_TOP_HELP);
    case 'p':
    case ' ':
      state->paused = !state->paused;
      return BRIM_UI_TOP_DRAW;
    case 's':
      state->order = (brim_ui_top_order)((state->order + 1) % BRIM_UI_TOP_ORDER_COUNT);
      state->top = 0;
      return BRIM_UI_TOP_DRAW;
    case '/':
    case 'f':
      state->mode = BRIM_UI_TOP_FILTER;
      return BRIM_UI_TOP_DRAW;
    case 'g':
      return open_details(state, view);
    case 'j':
      return move_key(state, BRIM_KEY_DOWN);
    case 'k':
      return move_key(state, BRIM_KEY_UP);
    case '+':
    case '=':
      return BRIM_UI_TOP_FASTER;
    case '-':
      return BRIM_UI_TOP_SLOWER;
    default:
      return BRIM_UI_TOP_NOTHING;
  }
}

brim_ui_top_action brim_ui_top_key(brim_ui_top *state, const brim_top_view *view, brim_key key) {
  state->hint = NULL;
  if (state->mode == BRIM_UI_TOP_FILTER) return filter_key(state, key);
  switch (key.code) {
    case BRIM_KEY_CHAR:
      return letter_key(state, view, key.ch);
    case BRIM_KEY_ESCAPE:
      return leave_page(state, false);
    case BRIM_KEY_ENTER:
      return open_details(state, view);
    case BRIM_KEY_RIGHT:
    case BRIM_KEY_TAB:
      return step_gpu(state, view, false);
    case BRIM_KEY_LEFT:
      return step_gpu(state, view, true);
    case BRIM_KEY_REDRAW:
      return BRIM_UI_TOP_DRAW;
    default:
      return move_key(state, key.code);
  }
}

//-------------------------------------------- frame --------------------------------------------
// The parts of the main view, from top to bottom. Parts that find no room on the screen are left out.

//---------------------------------- header ----------------------------------

static void put_header(const scene *s, brim_ui_frame *frame) {
  char clock[16], interval[32];
  brim_str line;
  brim_str_init(&line);
  brim_ui_styled(&line, s->term, BRIM_UI_TITLE, "brim top");
  brim_str_append(&line, "  ");
  brim_ui_put_clipped(&line, s->term, BRIM_UI_BOLD, s->view->host.name, 24);
  brim_ui_time_of_day(s->view->when_s, "-", clock);
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
    brim_ui_put_clipped(&line, s->term, BRIM_UI_DIM, s->state->source, 40);
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

// Puts a line if the driver answers slowly, or if there is no reading yet.
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

// The number of panels side by side; 0 if the screen has no room for panels.
static int panel_columns(const scene *s, int left) {
  enum { BELOW = 8 };  // lines kept for jobs, processes and keys
  int count = (int)s->view->gpu_count;
  int columns = s->term->width / PANEL_WIDTH;
  if (columns > count) columns = count;
  if (columns < 1) return 0;
  int lines = (count + columns - 1) / columns * PANEL_LINES;
  return lines + BELOW <= left ? columns : 0;
}

static void put_panels(const scene *s, brim_ui_frame *frame, int columns) {
  size_t across = (size_t)columns;
  int width = s->term->width / columns;
  brim_str line, part;
  brim_str_init(&line);
  brim_str_init(&part);
  for (size_t first = 0; first < s->view->gpu_count; first += across) {
    for (int n = 0; n < PANEL_LINES; n++) {
      for (size_t i = 0; i < across && first + i < s->view->gpu_count; i++) {
        pad_to(&line, (int)i * width);
        brim_str_clear(&part);
        put_panel_line(s, first + i, n, width - (columns > 1 ? 2 : 0), &part);
        brim_str_append(&line, part.data);
        if (part.status && !line.status) line.status = part.status;
      }
      brim_ui_frame_line(frame, &line);
    }
  }
  brim_str_deinit(&part);
  brim_str_deinit(&line);
}

static brim_status put_gpus(const scene *s, brim_ui_frame *frame) {
  int columns = panel_columns(s, frame->left);
  if (columns > 0) {
    put_panels(s, frame, columns);
    return BRIM_OK;
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = put_gpu_table(s, &text);
  if (!status) brim_ui_frame_lines(frame, &text, 0, frame->left - 1);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- lists ----------------------------------

static brim_status put_jobs(const scene *s, brim_ui_frame *frame) {
  int room = frame->left / 2;
  if (s->view->job_count == 0 || room < 2) return BRIM_OK;
  size_t most = (size_t)room - 1;
  brim_str text;
  brim_str_init(&text);
  brim_status status = put_job_table(s, most, &text);
  if (!status) brim_ui_frame_lines(frame, &text, 0, room);
  brim_str_deinit(&text);
  int left = room - 1 - (int)(s->view->job_count < most ? s->view->job_count : most);
  for (size_t i = 0; i < s->view->job_count && left > 0 && !status; i++) {
    brim_str line;
    if (s->view->jobs[i].finding_count == 0) continue;
    brim_str_init(&line);
    put_finding(s, &s->view->jobs[i], &line);
    brim_ui_frame_line(frame, &line);
    brim_str_deinit(&line);
    left--;
  }
  return status;
}

static void put_events(const scene *s, brim_ui_frame *frame) {
  size_t most = frame->rows >= 40 ? 3 : 1, count = s->view->event_count;
  if (frame->left < 6) return;
  for (size_t i = count > most ? count - most : 0; i < count; i++) {
    brim_str line;
    brim_str_init(&line);
    put_event(&s->view->events[i], s->term, &line);
    brim_ui_frame_line(frame, &line);
    brim_str_deinit(&line);
  }
  most = frame->rows >= 40 ? 3 : 1;
  for (size_t i = 0; i < s->view->note_count && i < most; i++) {
    brim_ui_frame_text(frame, BRIM_UI_DIM, s->view->notes[i]);
  }
}

// "processes 1-5 of 12  by GPU memory  filter: python"
static void put_process_title(const scene *s, brim_ui_frame *frame, size_t first, size_t shown,
                              size_t count) {
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
    brim_ui_put_clipped(&line, s->term, BRIM_UI_WARN, title, 80);
  }
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}

static brim_status put_processes(brim_ui_top *state, const scene *s, brim_ui_frame *frame) {
  size_t *rows = NULL, count = 0;
  bool none = s->view->gpu_count == 0 && s->view->process_count == 0;
  if (frame->left < 4 || none) return BRIM_OK;
  BRIM_TRY(pick_processes(state, s->view, &rows, &count));
  size_t room = (size_t)frame->left - 3;  // title, header, keys
  state->page = room;
  if (state->top + room > count) state->top = count > room ? count - room : 0;
  size_t shown = count - state->top < room ? count - state->top : room;
  put_process_title(s, frame, state->top, shown, count);
  brim_str text;
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  if (shown > 0) status = put_process_table(s, rows + state->top, shown, &text);
  if (!status) brim_ui_frame_lines(frame, &text, 0, frame->left - 1);
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
  if (state->mode == BRIM_UI_TOP_FILTER) {
    char text[128];
    snprintf(text, sizeof text, brim_tr("Filter: %s_"), state->filter);
    brim_ui_frame_hints(frame, text, typing, 2);
  } else {
    const char *hint = state->hint ? brim_tr(state->hint) : "";
    brim_ui_frame_hints(frame, hint, hints, sizeof hints / sizeof *hints);
  }
}

static brim_status main_frame(brim_ui_top *state, const scene *s, brim_ui_frame *frame) {
  put_header(s, frame);
  put_lateness(state, frame);
  if (state->empty) {
    put_footer(state, frame);
    return BRIM_OK;
  }
  if (s->view->gpu_count == 0) {
    put_host_panel(s, frame);
    brim_ui_frame_text(frame, BRIM_UI_DIM, brim_tr("no NVIDIA GPU is visible"));
  } else {
    put_host_lines(s, frame, frame->rows >= 20 ? 2 : 1);
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
  scene s = {state, view, history, &wide};
  if (state->mode == BRIM_UI_TOP_HELP) {
    put_help(&frame);
  } else if (state->mode == BRIM_UI_TOP_DETAILS && view->gpu_count > 0) {
    put_details(&frame, state, &s);
  } else {
    BRIM_TRY(main_frame(state, &s, &frame));
  }
  return brim_str_status(out);
}

//------------------------------------------ plain text ------------------------------------------

static void put_percent(brim_str *out, const char *name, double percent) {
  char text[16];
  percent_text(percent, text);
  brim_str_printf(out, "  %s %s", name, text);
}

static void host_line(const brim_top_view *view, brim_str *out) {
  char used[32], total[32];
  put_percent(out, "CPU", view->host.cpu_percent);
  bytes_text(view->host.memory_used, used);
  bytes_text(view->host.memory_total, total);
  brim_str_printf(out, "  %s %s/%s", brim_tr("memory"), used, total);
}

static void gpu_line(const brim_top_gpu *gpu, const brim_term *term, brim_str *out) {
  char a[32], b[32];
  brim_str words;
  brim_ui_style style;
  count_text(gpu->index, a);
  brim_str_printf(out, "  GPU %s", a);
  put_percent(out, brim_tr("utilisation"), gpu->gpu_percent);
  put_percent(out, "SM", gpu->sm_percent);
  put_percent(out, brim_tr("tensor"), gpu->tensor_percent);
  put_percent(out, "DRAM", gpu->dram_percent);
  put_percent(out, "OFU", gpu->ofu_percent);
  bytes_text(gpu->memory_used, a);
  bytes_text(gpu->memory_total, b);
  brim_str_printf(out, "  %s %s/%s", brim_tr("memory"), a, b);
  whole_text(gpu->power_w, a);
  whole_text(gpu->power_limit_w, b);
  brim_str_printf(out, "  %s/%s W", a, b);
  whole_text(gpu->clock_mhz, a);
  whole_text(gpu->temperature_c, b);
  brim_str_printf(out, "  %s MHz  %s %s", a, b, term->unicode ? "°C" : "C");
  brim_str_init(&words);
  throttle_text(gpu, false, &words);
  if (words.len > 0) brim_str_printf(out, "  %s", words.data);
  brim_str_clear(&words);
  trouble_text(gpu, &words, &style);
  if (words.len > 0) {
    brim_str_append(out, "  ");
    brim_ui_styled(out, term, style, words.data);
  }
  if (words.status && !out->status) out->status = words.status;
  brim_str_deinit(&words);
}

void brim_ui_top_lines(const brim_top_view *view, const brim_term *term, brim_str *out) {
  char clock[16];
  brim_ui_time_of_day(view->when_s, "-", clock);
  for (size_t i = 0; i < view->gpu_count; i++) {
    brim_str_append(out, clock);
    gpu_line(&view->gpus[i], term, out);
    brim_str_append_char(out, '\n');
  }
  if (view->gpu_count == 0) {
    brim_str_append(out, clock);
    host_line(view, out);
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < view->job_count; i++) {
    brim_str_printf(out, "%s  ", clock);
    put_job_line(view, &view->jobs[i], out);
    brim_str_append_char(out, '\n');
  }
}

//---------------------------------- everything once ----------------------------------

static brim_status put_lists(const scene *s, brim_str *out) {
  for (size_t i = 0; i < s->view->event_count; i++) {
    put_event(&s->view->events[i], s->term, out);
    brim_str_append_char(out, '\n');
  }
  if (s->view->job_count > 0) {
    brim_str_append_char(out, '\n');
    BRIM_TRY(put_job_table(s, s->view->job_count, out));
  }
  for (size_t i = 0; i < s->view->job_count; i++) {
    if (s->view->jobs[i].finding_count == 0) continue;
    put_finding(s, &s->view->jobs[i], out);
    brim_str_append_char(out, '\n');
  }
  size_t *rows = NULL, count = 0;
  BRIM_TRY(pick_processes(s->state, s->view, &rows, &count));
  brim_status status = BRIM_OK;
  if (count > 0) {
    brim_str_append_char(out, '\n');
    status = put_process_table(s, rows, count, out);
  }
  brim_free(rows);
  for (size_t i = 0; i < s->view->note_count && !status; i++) {
    brim_ui_styled(out, s->term, BRIM_UI_DIM, s->view->notes[i]);
    brim_str_append_char(out, '\n');
  }
  return status;
}

brim_status brim_ui_top_text(const brim_top_view *view, const brim_ui_top_history *history,
                             const brim_term *term, brim_str *out) {
  enum { PIPE_WIDTH = 132 };
  brim_term wide = *term;
  brim_ui_top state = {.order = view->gpu_count ? BRIM_UI_TOP_BY_MEMORY : BRIM_UI_TOP_BY_CPU};
  if (wide.width <= 0) wide.width = PIPE_WIDTH;
  scene s = {&state, view, history, &wide};
  brim_ui_frame frame = {.out = out, .term = &wide, .rows = 64, .left = 64};
  char clock[16];
  brim_ui_time_of_day(view->when_s, "-", clock);
  brim_ui_styled(out, &wide, BRIM_UI_TITLE, view->host.name[0] ? view->host.name : "brim top");
  brim_str_printf(out, "  %s", clock);
  if (view->driver[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("driver %s"), view->driver);
  }
  brim_str_append_char(out, '\n');
  if (view->gpu_count == 0) {
    put_host_panel(&s, &frame);
    brim_ui_frame_text(&frame, BRIM_UI_DIM, brim_tr("no NVIDIA GPU is visible"));
  } else {
    put_host_lines(&s, &frame, 2);
  }
  brim_str line;
  brim_str_init(&line);
  for (size_t i = 0; i < view->gpu_count; i++) {
    for (int n = 0; n < PANEL_LINES; n++) {
      brim_str_clear(&line);
      put_panel_line(&s, i, n, wide.width, &line);
      brim_str_append(out, line.data);
      brim_str_append_char(out, '\n');
    }
  }
  if (line.status && !out->status) out->status = line.status;
  brim_str_deinit(&line);
  BRIM_TRY(put_lists(&s, out));
  return brim_str_status(out);
}

//--------------------------------------------- CSV ---------------------------------------------
// CSV has a row per GPU with every number of the GPU and of its host. The columns are the keys of the JSON record, so
// that CSV and record cannot disagree. Only the record has processes, events and jobs.

typedef struct csv_row {
  brim_str *out;
  bool first, names;
} csv_row;

static void put_csv_cell(csv_row *row, const char *text) {
  if (!row->first) brim_str_append_char(row->out, ',');
  row->first = false;
  brim_text_append_csv(row->out, text);
}

// Puts a list as one cell: "power_cap+thermal", "99+10.2".
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
  put_csv_cell(row, text.data);
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
    put_csv_cell(row, json_string_value(value));
    return;
  }
  if (json_is_boolean(value)) snprintf(text, sizeof text, "%d", json_is_true(value) ? 1 : 0);
  if (json_is_number(value)) brim_format_f64(json_number_value(value), text);
  put_csv_cell(row, text);
}

// Puts the members of an object as cells: their values, or if row->names their names with a prefix. Members of an
// object inside it have the prefix "target_".
static void put_members(csv_row *row, json_t *object, const char *prefix) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char name[96];
    if (json_is_object(value)) {
      put_members(row, value, "target_");
    } else if (row->names) {
      snprintf(name, sizeof name, "%s%s", prefix, key);
      put_csv_cell(row, name);
    } else {
      put_value(row, value);
    }
  }
}

static void put_row(json_t *root, json_t *gpu, bool names, brim_str *out) {
  csv_row row = {.out = out, .first = true, .names = names};
  if (names) {
    put_csv_cell(&row, "when_s");
    put_csv_cell(&row, "interval_s");
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

// Puts the row of a host with one GPU of unknown values. It gives the names of the columns (view NULL), and the row of
// a host without a GPU.
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
