// The parts of the live view of a machine: figures, bars and sparklines, the host, GPUs, and the lists of jobs,
// processes and events.

#include "ui/ui_top_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base_text.h"
#include "base/base_words.h"

//------------------------------------------- figures -------------------------------------------
// Pieces of text of the live view of a machine: figures, bars, sparklines.

//---------------------------------- figures ----------------------------------

void brim_ui_top_percent(double percent, char out[16]) {
  percent = brim_shown(percent);
  if (!isfinite(percent) || fabs(percent) > 99999) {
    snprintf(out, 16, "-");
  } else if (percent > 0 && percent < 9.95) {
    snprintf(out, 16, "%.1f %%", percent);
  } else {
    snprintf(out, 16, "%.0f %%", percent);
  }
}

void brim_ui_top_whole(double value, char out[32]) {
  if (!isfinite(value) || fabs(value) > 1e15) {
    snprintf(out, 32, "-");
  } else {
    snprintf(out, 32, "%.0f", brim_shown(value));
  }
}

void brim_ui_top_count(int64_t value, char out[32]) {
  if (value < 0) {
    snprintf(out, 32, "-");
  } else {
    brim_format_count((double)value, out);
  }
}

void brim_ui_top_bytes(double bytes, char out[32]) {
  if (!(bytes >= 0) || bytes > 1e18) {
    snprintf(out, 32, "-");
  } else {
    brim_format_bytes((uint64_t)bytes, out);
  }
}

void brim_ui_top_rate(double bytes_per_s, char out[32]) {
  char text[32];
  brim_ui_top_bytes(bytes_per_s, text);
  snprintf(out, 32, *text == '-' ? "-" : "%.24s/s", text);
}

void brim_ui_top_energy(double joules, char out[32]) {
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

void brim_ui_top_clock(double when_s, char out[16]) {
  struct tm local;
  snprintf(out, 16, "-");
  if (!(fabs(when_s) < 1e11)) return;
  time_t when = (time_t)when_s;
  if (!localtime_r(&when, &local)) return;
  snprintf(out, 16, "%02d:%02d:%02d", local.tm_hour % 24, local.tm_min % 60, local.tm_sec % 61);
}

// "met", "missed", "" (unknown), and its style.
static const char *top_target(brim_top_flag flag, brim_ui_style *style) {
  *style = flag == BRIM_TOP_YES ? BRIM_UI_GOOD : flag == BRIM_TOP_NO ? BRIM_UI_WARN : BRIM_UI_PLAIN;
  return flag == BRIM_TOP_YES ? brim_tr("met") : flag == BRIM_TOP_NO ? brim_tr("missed") : "";
}

//---------------------------------- pictures ----------------------------------

// Filled part of `width` columns; brackets where the terminal has no Unicode.
static void top_bar(brim_str *out, const brim_term *term, double percent, int width,
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

// The last `width` of `count` values of a ring, the newest at `next` - 1; a blank where unknown.
static void top_spark(brim_str *out, const brim_term *term, const float *ring, size_t count,
                      size_t next, int width) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const plain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  for (int i = 0; i < width && ring; i++) {
    size_t back = (size_t)(width - i);
    if (back > count) continue;  // it grows from the left
    float value = ring[(next + BRIM_UI_TOP_SAMPLES - back) % BRIM_UI_TOP_SAMPLES];
    if (!isfinite(value)) {
      brim_str_append_char(out, ' ');
      continue;
    }
    int level = value <= 0 ? 0 : value >= 100 ? 7 : (int)(value / 12.5f);
    brim_str_append(out, term->unicode ? blocks[level] : plain[level]);
  }
}

//---------------------------------- lines ----------------------------------

void brim_ui_top_pad(brim_str *line, int column) {
  int used = brim_utf8_width(line->data);
  if (used < column) brim_str_repeat(line, ' ', (size_t)(column - used));
}

void brim_ui_top_put(brim_str *line, const brim_term *term, brim_ui_style style, const char *text,
                     int room) {
  if (room <= 0 || !*text) return;
  brim_str clipped;
  brim_str_init(&clipped);
  brim_ui_clip(&clipped, term, text, room);
  brim_ui_styled(line, term, style, clipped.data);
  if (clipped.status && !line->status) line->status = clipped.status;
  brim_str_deinit(&clipped);
}

// A table's text without the rule below its header.
static void top_drop_rule(const brim_str *from, brim_str *out) {
  const char *header = from->data, *rule = strchr(header, '\n');
  if (!rule) return;
  brim_str_append_n(out, header, (size_t)(rule + 1 - header));
  const char *rows = strchr(rule + 1, '\n');
  if (rows) brim_str_append(out, rows + 1);
}

//--------------------------------------------- host ---------------------------------------------
// The host of the live view: two lines above the GPUs, or a panel where there is none.

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : NAN; }

// What a control group takes away from the CPU; "" = nothing.
static void quota_text(const brim_top_host *host, brim_str *out) {
  char text[16];
  if (!isfinite(host->quota_cores)) return;
  brim_str_append(out, "  ");
  brim_str_printf(out, brim_tr("quota %.4g cores"), host->quota_cores);
  if (!(host->quota_throttled_percent > 0)) return;
  brim_ui_top_percent(host->quota_throttled_percent, text);
  brim_str_append(out, ", ");
  brim_str_printf(out, brim_tr("throttled %s of the time"), text);
}

// "used/total"; "-" when neither is known.
static void pair_text(double used, double total, char out[96]) {
  char a[32], b[32];
  brim_ui_top_bytes(used, a);
  brim_ui_top_bytes(total, b);
  snprintf(out, 96, "%s/%s", a, b);
  if (*a == '-' && *b == '-') snprintf(out, 96, "-");
}

static double memory_total(const brim_top_host *host) {
  return host->memory_limit < host->memory_total ? host->memory_limit : host->memory_total;
}

// "CPU   32 % ███░░░░░░░  load 61.2 of 192 cores  quota ...  memory ..."
static void first_line(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  const brim_top_host *host = &s->view->host;
  char text[96], cores[32];
  brim_str line, quota;
  brim_str_init(&line);
  brim_str_init(&quota);
  brim_ui_styled(&line, s->term, BRIM_UI_TITLE, "CPU");
  brim_ui_top_percent(host->cpu_percent, text);
  brim_ui_top_pad(&line, 10 - brim_utf8_width(text));
  brim_str_append(&line, text);
  brim_str_append_char(&line, ' ');
  top_bar(&line, s->term, host->cpu_percent, 10, BRIM_UI_BOLD);
  brim_ui_top_count(host->cores, cores);
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
  brim_ui_top_rate(first, a);
  brim_ui_top_rate(second, b);
  brim_str_append(line, "  ");
  brim_str_printf(line, fmt, a, b);
}

// `sizes`: with those that the panel has rows for.
static void second_line(const brim_ui_top_scene *s, brim_ui_frame *frame, bool sizes) {
  const brim_top_host *host = &s->view->host;
  char text[96];
  brim_str line;
  brim_str_init(&line);
  brim_ui_top_percent(host->iowait_percent, text);
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

void brim_ui_top_host_lines(const brim_ui_top_scene *s, brim_ui_frame *frame, int lines) {
  if (lines >= 1) first_line(s, frame);
  if (lines >= 2) second_line(s, frame, true);
}

//---------------------------------- panel ----------------------------------

// "  memory       27 % ████░░░░  410.0 GiB/1.5 TiB      ▁▂▃"
static void put_share(const brim_ui_top_scene *s, brim_ui_frame *frame, const char *label,
                      double percent, const char *note, const float *ring) {
  char text[16];
  brim_str line;
  int width = s->term->width;
  brim_str_init(&line);
  brim_str_append(&line, "  ");
  brim_ui_top_put(&line, s->term, BRIM_UI_PLAIN, label, 11);
  brim_ui_top_percent(percent, text);
  brim_ui_top_pad(&line, 20 - brim_utf8_width(text));
  brim_str_append(&line, text);
  brim_str_append_char(&line, ' ');
  top_bar(&line, s->term, percent, width >= 96 ? 24 : 16, BRIM_UI_BOLD);
  brim_str_append_char(&line, ' ');
  brim_ui_top_put(&line, s->term, BRIM_UI_PLAIN, note, width - brim_utf8_width(line.data));
  int column = width >= 96 ? 72 : 62;
  if (ring && s->history && brim_utf8_width(line.data) < column) {
    int room = width - column < BRIM_UI_TOP_SAMPLES ? width - column : BRIM_UI_TOP_SAMPLES;
    brim_ui_top_pad(&line, column);
    top_spark(&line, s->term, ring, s->history->count, s->history->next, room);
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

void brim_ui_top_host_panel(const brim_ui_top_scene *s, brim_ui_frame *frame) {
  const brim_top_host *host = &s->view->host;
  char text[96], cores[32];
  brim_str title;
  brim_str_init(&title);
  brim_ui_styled(&title, s->term, BRIM_UI_TITLE, "CPU");
  brim_str_append(&title, "  ");
  brim_ui_top_put(&title, s->term, BRIM_UI_BOLD, host->cpu, 48);
  brim_ui_top_count(host->cores, cores);
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
  second_line(s, frame, false);
}

//--------------------------------------------- GPUs ---------------------------------------------
// GPUs of the live view: a panel with the ladder of utilisation for each, or a table where there is
// no room for panels.

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
  const char *mark = r.target >= 0 ? top_target(gpu->targets[r.target], &style) : "";
  brim_str_append(line, "  ");
  brim_ui_top_put(line, s->term, BRIM_UI_PLAIN, r.label, LABEL - 3);
  brim_ui_top_percent(r.percent, text);
  brim_ui_top_pad(line, VALUE - brim_utf8_width(text));
  brim_ui_styled(line, s->term, isfinite(r.percent) ? style : BRIM_UI_DIM, text);
  brim_str_append_char(line, ' ');
  top_bar(line, s->term, r.percent, bar, style == BRIM_UI_PLAIN ? BRIM_UI_BOLD : style);
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
    top_spark(&spark, s->term, ring, s->history->count, s->history->next, room);
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
  (void)top_target(gpu->targets[target], &style);
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
  if (ring) top_spark(&words, s->term, ring, s->history->count, s->history->next, 16);
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
  if (!status) top_drop_rule(&text, out);
  brim_ui_table_deinit(&table);
  brim_str_deinit(&text);
  return status;
}

//-------------------------------------------- lists --------------------------------------------
// Lists of the live view: brim's jobs, processes, events.

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
  if (!status) top_drop_rule(&text, out);
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
  if (!status) top_drop_rule(&text, out);
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
