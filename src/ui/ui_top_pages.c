// Pages of the live view: the keys, and everything about one GPU.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_top_int.h"

//---------------------------------- help ----------------------------------

static void put_help_row(brim_ui_frame *frame, const char *keys, const char *text) {
  char line[256];
  int pad = 12 - brim_utf8_width(keys);
  snprintf(line, sizeof line, "  %s%*s %s", keys, pad > 0 ? pad : 0, "", text);
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, line);
}

void brim_ui_top_help(brim_ui_frame *frame) {
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
    put_help_row(frame, rows[i].keys, brim_tr(rows[i].text));
  }
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  brim_ui_frame_text(frame, BRIM_UI_TITLE, brim_tr("Values"));
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    put_help_row(frame, brim_tr(words[i].name), brim_tr(words[i].text));
  }
  while (frame->left > 1) brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  static const brim_ui_hint back[] = {{"Esc", BRIM_N_("back")}};
  brim_ui_frame_hints(frame, "", back, 1);
}

//---------------------------------- one GPU ----------------------------------

static void fact(brim_str *out, const char *name, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void fact(brim_str *out, const char *name, const char *fmt, ...) {
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
  brim_ui_top_whole(gpu->power_limit_w, a);
  brim_ui_top_whole(gpu->power_limit_default_w, b);
  brim_ui_top_whole(gpu->power_limit_max_w, c);
  fact(out, brim_tr("power limit"), brim_tr("%s W (default %s W, most %s W)"), a, b, c);
  brim_ui_top_energy(gpu->energy_j, a);
  brim_ui_top_energy(gpu->energy_total_j, b);
  fact(out, brim_tr("energy"), brim_tr("%s here, %s since the driver was loaded"), a, b);
  brim_ui_top_whole(gpu->memory_clock_mhz, a);
  brim_ui_top_whole(gpu->memory_clock_max_mhz, b);
  brim_ui_top_whole(gpu->video_clock_mhz, c);
  fact(out, brim_tr("memory clock"), brim_tr("%s/%s MHz, video %s MHz"), a, b, c);
  char p[16], t[16];
  brim_ui_top_percent(gpu->power_violation_percent, p);
  brim_ui_top_percent(gpu->thermal_violation_percent, t);
  fact(out, brim_tr("held down by"), brim_tr("power %s, heat %s of the time"), p, t);
  brim_ui_top_whole(gpu->slowdown_c, a);
  brim_ui_top_whole(gpu->shutdown_c, b);
  brim_ui_top_percent(gpu->fan_percent, t);
  brim_ui_top_count(gpu->pstate, c);
  fact(out, brim_tr("slows down at"), brim_tr("%s °C, shuts down at %s °C; fan %s; P-state %s"), a,
       b, t, c);
}

static void memory_facts(const brim_top_gpu *gpu, brim_str *out) {
  char a[32], b[32], c[32], d[32], p[16];
  brim_ui_top_percent(gpu->memory_busy_percent, p);
  brim_ui_top_bytes(gpu->memory_reserved, a);
  fact(out, brim_tr("memory in use"), brim_tr("%s of the time (NVML); driver reserves %s"), p, a);
  brim_ui_top_bytes(gpu->bar1_used, a);
  brim_ui_top_bytes(gpu->bar1_total, b);
  brim_ui_top_bytes(gpu->confidential_used, c);
  fact(out, "BAR1", brim_tr("%s of %s; protected memory %s"), a, b, c);
  brim_ui_top_count(gpu->ecc_corrected, a);
  brim_ui_top_count(gpu->ecc_uncorrected, b);
  brim_ui_top_count(gpu->ecc_corrected_total, c);
  brim_ui_top_count(gpu->ecc_uncorrected_total, d);
  fact(out, brim_tr("ECC errors"), brim_tr("%s corrected, %s uncorrected; in its life %s and %s"),
       a, b, c, d);
  fact(out, brim_tr("ECC on"), "%s", flag_text(gpu->ecc));
  brim_ui_top_count(gpu->remapped_corrected, a);
  brim_ui_top_count(gpu->remapped_uncorrected, b);
  fact(out, brim_tr("remapped rows"),
       brim_tr("%s corrected, %s uncorrected; pending: %s, failed: %s"), a, b,
       flag_text(gpu->remap_pending), flag_text(gpu->remap_failed));
  brim_ui_top_count(gpu->retired_pages, a);
  fact(out, brim_tr("retired pages"), "%s", a);
}

static void link_facts(const brim_top_gpu *gpu, brim_str *out) {
  char a[32], b[32], c[32], d[32];
  brim_ui_top_count(gpu->pcie_generation, a);
  brim_ui_top_count(gpu->pcie_width, b);
  brim_ui_top_count(gpu->pcie_generation_max, c);
  brim_ui_top_count(gpu->pcie_width_max, d);
  fact(out, "PCIe", brim_tr("generation %s x%s of %s x%s"), a, b, c, d);
  brim_ui_top_rate(gpu->pcie_rx, a);
  brim_ui_top_rate(gpu->pcie_tx, b);
  brim_ui_top_count(gpu->pcie_replays, c);
  fact(out, "", brim_tr("in %s, out %s; replays %s"), a, b, c);
  brim_ui_top_rate(gpu->nvlink_rx, a);
  brim_ui_top_rate(gpu->nvlink_tx, b);
  fact(out, "NVLink", brim_tr("in %s, out %s"), a, b);
  char e[16], f[16], g[16], h[16];
  brim_ui_top_percent(gpu->encoder_percent, e);
  brim_ui_top_percent(gpu->decoder_percent, f);
  brim_ui_top_percent(gpu->jpeg_percent, g);
  brim_ui_top_percent(gpu->ofa_percent, h);
  fact(out, brim_tr("video engines"), brim_tr("encoder %s, decoder %s, JPEG %s, OFA %s"), e, f, g,
       h);
}

void brim_ui_top_facts(const brim_ui_top_scene *s, size_t place, brim_str *out) {
  const brim_top_gpu *gpu = &s->view->gpus[place];
  char a[32];
  power_facts(gpu, out);
  memory_facts(gpu, out);
  link_facts(gpu, out);
  fact(out, "MIG", "%s", flag_text(gpu->mig));
  fact(out, brim_tr("persistence mode"), "%s", flag_text(gpu->persistence));
  fact(out, brim_tr("compute mode"), "%s", gpu->compute_mode[0] ? gpu->compute_mode : "-");
  brim_ui_top_count(gpu->numa, a);
  fact(out, "NUMA", "%s", a);
  fact(out, "UUID", "%s", gpu->uuid[0] ? gpu->uuid : "-");
  fact(out, brim_tr("PCI bus"), "%s", gpu->bus[0] ? gpu->bus : "-");
  fact(out, brim_tr("Xid events"), "%s",
       gpu->xid_watched == BRIM_TOP_YES ? brim_tr("watched") : brim_tr("cannot be seen here"));
  for (size_t i = 0; i < s->view->event_count; i++) {
    const brim_top_event *event = &s->view->events[i];
    if (event->gpu != gpu->index) continue;
    brim_str_append(out, "  ");
    brim_ui_top_event(event, s->term, out);
    brim_str_append_char(out, '\n');
  }
}

// Lines of a text from `first` on, as many as find room.
static void put_text(brim_ui_frame *frame, const char *text, size_t first, int most) {
  brim_str line;
  brim_str_init(&line);
  for (size_t i = 0; *text && most > 0; i++) {
    size_t n = strcspn(text, "\n");
    if (i >= first) {
      brim_str_append_n(&line, text, n);
      brim_ui_frame_line(frame, &line);
      most--;
    }
    text += n + (text[n] == '\n');
  }
  brim_str_deinit(&line);
}

void brim_ui_top_details(brim_ui_frame *frame, brim_ui_top *state, const brim_ui_top_scene *s) {
  static const brim_ui_hint hints[] = {{"Esc", BRIM_N_("back")},
                                       {"<- ->", BRIM_N_("another GPU")},
                                       {"j k", BRIM_N_("scroll")},
                                       {"p", BRIM_N_("pause")}};
  brim_str line, facts;
  if (state->gpu >= s->view->gpu_count) state->gpu = 0;
  brim_str_init(&line);
  brim_str_init(&facts);
  for (int i = 0; i < BRIM_UI_TOP_PANEL_LINES && s->view->gpu_count > 0; i++) {
    brim_ui_top_panel_line(s, state->gpu, i, s->term->width, &line);
    brim_ui_frame_line(frame, &line);
  }
  if (s->view->gpu_count > 0) brim_ui_top_facts(s, state->gpu, &facts);
  size_t lines = 0;
  for (const char *p = facts.data; *p; p++) lines += *p == '\n';
  size_t room = frame->left > 1 ? (size_t)frame->left - 1 : 0;
  state->page = room;
  if (state->scroll + room > lines) state->scroll = lines > room ? lines - room : 0;
  put_text(frame, facts.data, state->scroll, (int)room);
  while (frame->left > 1) brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  brim_ui_frame_hints(frame, "", hints, sizeof hints / sizeof *hints);
  if (facts.status && !frame->out->status) frame->out->status = facts.status;
  brim_str_deinit(&facts);
  brim_str_deinit(&line);
}
