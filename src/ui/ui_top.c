// The live view of a machine: which parts a screen of this size has, the keys, the pages. ui_top_panels.c has the
// parts.

#include "ui/ui_top.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_top_int.h"

//------------------------------------------- history -------------------------------------------
// The last readings of a machine, for sparklines.

void brim_ui_top_history_init(brim_ui_top_history *history) { memset(history, 0, sizeof *history); }

void brim_ui_top_history_deinit(brim_ui_top_history *history) {
  brim_free(history->values);
  brim_ui_top_history_init(history);
}

static float *ring_at(const brim_ui_top_history *history, size_t gpu, brim_ui_top_trace trace) {
  size_t row = gpu * BRIM_UI_TOP_TRACE_COUNT + (size_t)trace;
  return history->values + row * BRIM_UI_TOP_SAMPLES;
}

const float *brim_ui_top_ring(const brim_ui_top_history *history, size_t gpu,
                              brim_ui_top_trace trace) {
  return history && gpu < history->gpus ? ring_at(history, gpu, trace) : NULL;
}

static brim_status start_anew(brim_ui_top_history *history, const brim_top_view *view) {
  brim_ui_top_history_deinit(history);
  if (view->gpu_count == 0) return BRIM_OK;
  size_t each = (size_t)BRIM_UI_TOP_TRACE_COUNT * BRIM_UI_TOP_SAMPLES;
  history->values = brim_calloc(view->gpu_count * each, sizeof *history->values);
  if (!history->values) return brim_fail(BRIM_ENOMEM, "out of memory");
  history->gpus = view->gpu_count;
  memcpy(history->first, view->gpus[0].uuid, sizeof history->first);
  return BRIM_OK;
}

static double host_memory(const brim_top_host *host) {
  return host->memory_total > 0 ? 100 * host->memory_used / host->memory_total : NAN;
}

brim_status brim_ui_top_history_add(brim_ui_top_history *history, const brim_top_view *view) {
  bool same = history->gpus == view->gpu_count &&
              (view->gpu_count == 0 || strcmp(history->first, view->gpus[0].uuid) == 0);
  if (!same) BRIM_TRY(start_anew(history, view));
  size_t at = history->next;
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_top_gpu *gpu = &view->gpus[i];
    const double now[BRIM_UI_TOP_TRACE_COUNT] = {
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
      ring_at(history, i, (brim_ui_top_trace)t)[at] = (float)now[t];
    }
  }
  history->host[0][at] = (float)view->host.cpu_percent;
  history->host[1][at] = (float)host_memory(&view->host);
  history->next = (at + 1) % BRIM_UI_TOP_SAMPLES;
  if (history->count < BRIM_UI_TOP_SAMPLES) history->count++;
  return BRIM_OK;
}

//-------------------------------------------- pages --------------------------------------------
// Pages of the live view: the keys, and everything about one GPU.

//---------------------------------- help ----------------------------------

static void put_help_row(brim_ui_frame *frame, const char *keys, const char *text) {
  char line[256];
  int pad = 12 - brim_utf8_width(keys);
  snprintf(line, sizeof line, "  %s%*s %s", keys, pad > 0 ? pad : 0, "", text);
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, line);
}

static void top_help(brim_ui_frame *frame) {
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

// Facts of a GPU, one per line: what the panel has no room for.
static void top_facts(const brim_ui_top_scene *s, size_t place, brim_str *out) {
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

static void top_details(brim_ui_frame *frame, brim_ui_top *state, const brim_ui_top_scene *s) {
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
  if (s->view->gpu_count > 0) top_facts(s, state->gpu, &facts);
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

//--------------------------------------------- keys ---------------------------------------------
// Keys of the live view of a machine.

void brim_ui_top_init(brim_ui_top *state) {
  memset(state, 0, sizeof *state);
  state->interval_s = 1;
  state->slow_s = state->age_s = NAN;
}

static void scroll_by(size_t *at, int64_t by) {
  int64_t to = (int64_t)*at + by;
  *at = to < 0 ? 0 : (size_t)to;  // the frame cuts it at the end
}

static void type_into(brim_ui_top *state, uint32_t ch) {
  char one[8];
  size_t n = 0, used = strlen(state->filter);
  if (ch < 0x80) {
    one[n++] = (char)ch;
  } else if (ch < 0x800) {
    one[n++] = (char)(0xC0 | ch >> 6);
    one[n++] = (char)(0x80 | (ch & 0x3F));
  } else if (ch < 0x10000) {
    one[n++] = (char)(0xE0 | ch >> 12);
    one[n++] = (char)(0x80 | (ch >> 6 & 0x3F));
    one[n++] = (char)(0x80 | (ch & 0x3F));
  } else {
    one[n++] = (char)(0xF0 | ch >> 18);
    one[n++] = (char)(0x80 | (ch >> 12 & 0x3F));
    one[n++] = (char)(0x80 | (ch >> 6 & 0x3F));
    one[n++] = (char)(0x80 | (ch & 0x3F));
  }
  if (used + n >= sizeof state->filter) return;
  memcpy(state->filter + used, one, n);
  state->filter[used + n] = '\0';
}

static brim_ui_top_action filter_key(brim_ui_top *state, brim_key key) {
  size_t n = strlen(state->filter);
  state->top = 0;
  switch (key.code) {
    case BRIM_KEY_CHAR:
      type_into(state, key.ch);
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_BACKSPACE:
      while (n > 0 && ((unsigned char)state->filter[n - 1] & 0xC0) == 0x80) n--;
      if (n > 0) n--;
      state->filter[n] = '\0';
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_ENTER:
      state->mode = BRIM_UI_TOP_MAIN;
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_ESCAPE:
      state->filter[0] = '\0';
      state->mode = BRIM_UI_TOP_MAIN;
      return BRIM_UI_TOP_DRAW;
    default:
      return BRIM_UI_TOP_NOTHING;
  }
}

static brim_ui_top_action move_key(brim_ui_top *state, brim_key_code code) {
  size_t *at = state->mode == BRIM_UI_TOP_DETAILS ? &state->scroll : &state->top;
  int64_t page = state->page > 1 ? (int64_t)state->page : 1;
  switch (code) {
    case BRIM_KEY_UP:
      scroll_by(at, -1);
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_DOWN:
      scroll_by(at, 1);
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_PAGE_UP:
      scroll_by(at, -page);
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_PAGE_DOWN:
      scroll_by(at, page);
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_HOME:
      *at = 0;
      return BRIM_UI_TOP_DRAW;
    case BRIM_KEY_END:
      *at = INT32_MAX;
      return BRIM_UI_TOP_DRAW;
    default:
      return BRIM_UI_TOP_NOTHING;
  }
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

// Escape and q leave a page; on the first page Escape drops the filter and q quits.
static brim_ui_top_action leave(brim_ui_top *state, bool quits) {
  if (state->mode != BRIM_UI_TOP_MAIN) {
    state->mode = BRIM_UI_TOP_MAIN;
    return BRIM_UI_TOP_DRAW;
  }
  if (quits) return BRIM_UI_TOP_QUIT;
  if (!state->filter[0]) return BRIM_UI_TOP_NOTHING;
  state->filter[0] = '\0';
  return BRIM_UI_TOP_DRAW;
}

static brim_ui_top_action letter(brim_ui_top *state, const brim_top_view *view, uint32_t ch) {
  switch (brim_key_latin(ch)) {
    case 'q':
      return leave(state, true);
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
      return letter(state, view, key.ch);
    case BRIM_KEY_ESCAPE:
      return leave(state, false);
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

//-------------------------------------------- layout --------------------------------------------
// The live view of a machine: which parts a screen of this size has, from top to bottom.

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
    top_help(&frame);
  } else if (state->mode == BRIM_UI_TOP_DETAILS && view->gpu_count > 0) {
    top_details(&frame, state, &scene);
  } else {
    BRIM_TRY(main_frame(state, &scene, &frame));
  }
  return brim_str_status(out);
}
