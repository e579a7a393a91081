// The host of the live view: two lines above the GPUs, or a panel where there is none.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_top_int.h"

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
  brim_ui_top_bar(&line, s->term, host->cpu_percent, 10, BRIM_UI_BOLD);
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
  brim_ui_top_bar(&line, s->term, percent, width >= 96 ? 24 : 16, BRIM_UI_BOLD);
  brim_str_append_char(&line, ' ');
  brim_ui_top_put(&line, s->term, BRIM_UI_PLAIN, note, width - brim_utf8_width(line.data));
  int column = width >= 96 ? 72 : 62;
  if (ring && s->history && brim_utf8_width(line.data) < column) {
    int room = width - column < BRIM_UI_TOP_SAMPLES ? width - column : BRIM_UI_TOP_SAMPLES;
    brim_ui_top_pad(&line, column);
    brim_ui_top_spark(&line, s->term, ring, s->history->count, s->history->next, room);
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
