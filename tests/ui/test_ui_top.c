// A machine on the screen: frames of every size with 0, 1 and 8 GPUs, keys, text for --once, lines, CSV.
#include "ui/top/ui_top.h"

#include <math.h>
#include <stdlib.h>

#include "record/top_view.h"
#include "test.h"
#include "ui/frame.h"

static brim_term screen_term(int width, bool colour) {
  return (brim_term){
      .tty = true, .redraw = true, .unicode = true, .colour = colour, .width = width};
}

static void korean(bool on) { assert_true(brim_msg_set_language(on ? "ko" : "en")); }

// Finds the first line that contains this text; fails if there is none.
static const char *line_with(const char *text, const char *part, char out[FRAME_LINE]) {
  for (int i = 0, lines = count_lines(text); i < lines; i++) {
    if (strstr(line_of(text, i, out), part)) return out;
  }
  fail_msg("no line has '%s':\n%s", part, text);
  return NULL;
}

static void draw(brim_ui_top *state, const brim_top_view *view, int width, int rows,
                 brim_str *out) {
  brim_term term = screen_term(width, false);
  brim_ui_top_history history;
  brim_ui_top_history_init(&history);
  assert_ok(brim_ui_top_history_add(&history, view));
  brim_str_clear(out);
  assert_ok(brim_ui_top_frame(state, view, &history, &term, rows, out));
  brim_ui_top_history_deinit(&history);
}

//---------------------------------- frames ----------------------------------

static void add_hostile(brim_top_view *view) {
  brim_top_process *p = brim_top_view_add_process(view);
  p->pid = INT32_MAX;
  p->memory = 1e300;
  p->cpu_percent = -1e300;
  snprintf(p->command, sizeof p->command, "python \033[2J 아주긴한글이름의프로그램\n\a x\xff");
  snprintf(p->user, sizeof p->user, "\u202euser");
  brim_job *job = brim_top_view_add_job(view);
  snprintf(job->name, sizeof job->name, "이름\033]0;title\a");
  job->samples_per_s = 1e300;
  job->epoch = INT64_MAX;
  job->finding_count = 1;
  snprintf(job->findings[0].text, sizeof job->findings[0].text, "줄\n바꿈\033[H");
  brim_top_event *event = brim_top_view_add_event(view);
  snprintf(event->text, sizeof event->text, "\033[31mred\n");
  assert_ok(brim_top_view_note(view, "\033[2J메모"));
  snprintf(view->host.name, sizeof view->host.name, "host\033[H\n");
  if (view->gpu_count == 0) return;
  snprintf(view->gpus[0].name, sizeof view->gpus[0].name, "GPU\033[2J\n");
  view->gpus[0].power_w = INFINITY;
  view->gpus[0].gpu_percent = -1e308;
  view->gpus[0].throttle = UINT32_MAX;
  view->gpus[0].pcie_width = 8;
  view->gpus[0].ecc_uncorrected = INT64_MAX;
  view->gpus[0].remap_failed = BRIM_TOP_YES;
  view->gpus[0].lost = BRIM_TOP_YES;
}

static void each_mode(const brim_top_view *view, const brim_term *term, int rows, brim_str *out) {
  brim_ui_top_history history;
  brim_ui_top_history_init(&history);
  for (int i = 0; i < 3; i++) assert_ok(brim_ui_top_history_add(&history, view));
  for (int mode = 0; mode < BRIM_UI_TOP_MODE_COUNT; mode++) {
    brim_ui_top state;
    brim_ui_top_init(&state);
    state.mode = (brim_ui_top_mode)mode;
    state.paused = mode == BRIM_UI_TOP_MAIN;
    if (mode == BRIM_UI_TOP_FILTER) snprintf(state.filter, sizeof state.filter, "프로");
    snprintf(state.source, sizeof state.source, "replay of \033[2Jx");
    brim_str_clear(out);
    assert_ok(brim_ui_top_frame(&state, view, &history, term, rows, out));
    check_frame(out->data, term->width, rows);
  }
  brim_ui_top_history_deinit(&history);
}

static void test_every_size(void **unused) {
  (void)unused;
  static const int heights[] = {1, 5, 14, 24, 60}, gpus[] = {0, 1, 8};
  brim_str out;
  brim_str_init(&out);
  for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
    brim_top_view view;
    top_view_make(&view, gpus[g]);
    add_hostile(&view);
    for (int language = 0; language < 2; language++) {
      korean(language);
      for (int width = 20; width <= 220; width += width < 130 ? 7 : 23) {
        for (size_t h = 0; h < sizeof heights / sizeof *heights; h++) {
          brim_term term = screen_term(width, width % 2);
          term.unicode = width % 5 != 0;
          each_mode(&view, &term, heights[h], &out);
        }
      }
    }
    brim_top_view_deinit(&view);
  }
  korean(false);
  brim_str_deinit(&out);
}

static void test_one_gpu_has_a_panel(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 1);
  draw(&state, &view, 80, 24, &out);
  assert_string_equal(line_of(out.data, 3, line), "GPU 0  NVIDIA H200  0000:18:00.0");
  assert_non_null(strstr(line_of(out.data, 4, line), "utilisation   97 % ████████████████ met"));
  assert_non_null(strstr(line_of(out.data, 5, line), "SMs           71 %"));
  assert_non_null(strstr(line_of(out.data, 7, line), "tensor        52 %"));
  assert_non_null(strstr(line_of(out.data, 9, line), "OFU           46 %"));
  assert_non_null(strstr(line, "GEMM reached 72 %"));
  assert_non_null(strstr(line_of(out.data, 10, line), "met 123.8/140.6 GiB"));
  assert_non_null(strstr(line_of(out.data, 11, line), "met 612/700 W"));
  assert_string_equal(line_of(out.data, 12, line),
                      "  clock 1755/1980 MHz: power cap 38 %  58 °C, memory 66 °C  25 Wh");
  line_with(out.data, "train cifar10-resnet18", line);
  assert_non_null(strstr(line, "training"));
  assert_non_null(strstr(line, "47,749"));
  (void)line_with(out.data, "the GPU waits 3.1 ms per step for data", line);
  (void)line_with(out.data, "alice  111.8 GiB   95   800", line);
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_eight_gpus_are_a_table_or_panels(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 8);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(line_of(out.data, 3, line), "GPU  util %   SM  tens  DRAM  OFU"));
  assert_non_null(strstr(line_of(out.data, 4, line), "97✓"));
  assert_non_null(strstr(line, "612/700✓"));
  assert_non_null(strstr(line, "power cap"));
  assert_non_null(strstr(line_of(out.data, 5, line), "118/700✗"));
  assert_non_null(strstr(line, "Xid 94"));
  (void)line_with(out.data, "GPU 1  Xid 94: contained ECC error", line);
  draw(&state, &view, 200, 60, &out);
  for (int i = 0; i < 8; i++) {
    char name[64];
    snprintf(name, sizeof name, "GPU %d  NVIDIA H200", i);
    line_with(out.data, name, line);
    assert_true((strstr(line, name) - line > 90) == (i % 2 == 1));
  }
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_no_gpu_shows_the_host(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 0);
  assert_ok(brim_top_view_note(&view, "no NVIDIA driver found"));
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "AMD EPYC 9654 96-Core Processor  192 cores", line);
  (void)line_with(out.data, "memory        27 %", line);
  (void)line_with(out.data, "no NVIDIA GPU is visible", line);
  (void)line_with(out.data, "no NVIDIA driver found", line);
  assert_null(strstr(out.data, "tensor"));
  assert_null(strstr(out.data, "processes"));
  // values that the panel has rows for appear there once
  const char *shm = strstr(out.data, "/dev/shm");
  assert_non_null(shm);
  assert_null(strstr(shm + 1, "/dev/shm"));
  // a job on the CPU
  top_view_job(&view, 4711);
  brim_top_process *p = brim_top_view_add_process(&view);
  p->pid = 4711;
  p->cpu_percent = 198;
  snprintf(p->command, sizeof p->command, "brim train config.yaml");
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(line_with(out.data, "brim train config.yaml", line), "198"));
  assert_non_null(strstr(line_with(out.data, " PID  user", line), "CPU%"));
  assert_null(strstr(line, "SM%"));
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

// Unknown values are "-", and no bar or word is based on them.
static void test_unknown_is_a_dash(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  brim_top_view_init(&view);
  assert_non_null(brim_top_view_add_gpu(&view));
  brim_top_view_derive(&view, NULL);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(line_with(out.data, "utilisation", line), "    - ░░░░░░░░░░░░░░░░"));
  assert_null(strstr(out.data, "met"));
  assert_null(strstr(out.data, "missed"));
  assert_null(strstr(out.data, "not held down"));
  assert_null(strstr(out.data, " 0 %"));
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_trouble_is_said_in_words(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 1);
  brim_top_gpu *gpu = &view.gpus[0];
  gpu->hang = BRIM_TOP_YES;
  gpu->hang_s = 34;
  gpu->throttle = 1u << BRIM_TOP_THROTTLE_THERMAL | 1u << BRIM_TOP_THROTTLE_POWER_BRAKE;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "HANG? busy at idle power for 34 s", line);
  (void)line_with(out.data, "heat, power brake", line);
  gpu->hang = BRIM_TOP_NO;
  gpu->remap_pending = BRIM_TOP_YES;
  gpu->throttle = 0;
  gpu->power_violation_percent = 0;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "row remap pending: reset the GPU", line);
  (void)line_with(out.data, "not held down", line);
  // power limited it during the interval, but not now; a reason that only a later driver knows
  gpu->power_violation_percent = 38;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "MHz: power cap 38 %", line);
  gpu->throttle = 1u << BRIM_TOP_THROTTLE_THERMAL | 1u << BRIM_TOP_THROTTLE_OTHER;
  draw(&state, &view, 100, 24, &out);
  (void)line_with(out.data, "MHz: power cap 38 %, heat, another reason", line);
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

// A slow driver: the screen shows how slow, and the age of its values.
static void test_slow_drivers_are_reported(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 1);
  draw(&state, &view, 80, 24, &out);
  assert_null(strstr(out.data, "driver answers"));
  state.slow_s = 5.4;
  state.age_s = 65.2;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "slowly (5 s): these readings are 1 min 05 s old", line);
  brim_top_view_deinit(&view);
  // before the first reading nothing is shown about the machine
  brim_top_view_init(&view);
  state.empty = true;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "the driver has not answered for 5 s", line);
  state.slow_s = NAN;
  draw(&state, &view, 80, 24, &out);
  (void)line_with(out.data, "waiting for the first reading", line);
  assert_null(strstr(out.data, "no NVIDIA GPU"));
  assert_int_equal(count_lines(out.data), 24);
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

// A job without new values for a while is marked.
static void test_silent_jobs_are_marked(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 1);
  view.jobs[0].updated_s = view.when_s - 90;
  draw(&state, &view, 120, 24, &out);
  assert_non_null(strstr(line_with(out.data, "train cifar10", line), "no news for 1 min 30 s"));
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_sparklines_keep_the_last_readings(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_ui_top_history history;
  brim_ui_top state;
  brim_str out;
  brim_term term = screen_term(80, false);
  brim_str_init(&out);
  brim_ui_top_init(&state);
  brim_ui_top_history_init(&history);
  top_view_make(&view, 1);
  for (int i = 0; i < 2 * BRIM_UI_TOP_SAMPLES; i++) {
    view.gpus[0].gpu_percent = i % 2 ? 100 : 0;
    assert_ok(brim_ui_top_history_add(&history, &view));
  }
  assert_ok(brim_ui_top_frame(&state, &view, &history, &term, 24, &out));
  assert_non_null(strstr(line_with(out.data, "utilisation", line), "▁█▁█▁█▁█▁█▁█▁█▁█▁█"));
  // A changed set of GPUs starts without history.
  brim_top_view other;
  top_view_make(&other, 2);
  assert_ok(brim_ui_top_history_add(&history, &other));
  assert_int_equal(history.count, 1);
  assert_int_equal(history.gpus, 2);
  brim_top_view_deinit(&other);
  brim_top_view_deinit(&view);
  brim_ui_top_history_deinit(&history);
  brim_str_deinit(&out);
}

//---------------------------------- keys ----------------------------------

static brim_ui_top_action type(brim_ui_top *state, const brim_top_view *view, uint32_t ch) {
  return brim_ui_top_key(state, view, (brim_key){BRIM_KEY_CHAR, ch});
}

static brim_ui_top_action press(brim_ui_top *state, const brim_top_view *view, brim_key_code code) {
  return brim_ui_top_key(state, view, (brim_key){code, 0});
}

// Lists the pids of the processes in a frame, in order: "23000 23001 ".
static void pids_of(const char *frame, brim_str *out) {
  char line[FRAME_LINE];
  brim_str_clear(out);
  for (int i = 0, lines = count_lines(frame); i < lines; i++) {
    line_of(frame, i, line);
    if (strncmp(line, "23", 2) == 0) brim_str_printf(out, "%.5s ", line);
  }
}

static void test_sorting(void **unused) {
  (void)unused;
  brim_top_view view;
  brim_ui_top state;
  brim_str out, pids;
  brim_str_init(&out);
  brim_str_init(&pids);
  brim_ui_top_init(&state);
  top_view_make(&view, 3);
  view.processes[0].memory = NAN;
  view.processes[1].cpu_percent = 5000;
  view.processes[2].rss = 1e12;
  static const char *const orders[BRIM_UI_TOP_ORDER_COUNT] = {
      [BRIM_UI_TOP_BY_MEMORY] = "23001 23002 23000 ", [BRIM_UI_TOP_BY_SM] = "23000 23001 23002 ",
      [BRIM_UI_TOP_BY_CPU] = "23001 23000 23002 ",    [BRIM_UI_TOP_BY_RSS] = "23002 23001 23000 ",
      [BRIM_UI_TOP_BY_GPU] = "23000 23001 23002 ",    [BRIM_UI_TOP_BY_PID] = "23000 23001 23002 ",
  };
  for (int i = 0; i < BRIM_UI_TOP_ORDER_COUNT; i++) {
    assert_int_equal(state.order, i);
    draw(&state, &view, 80, 24, &out);
    pids_of(out.data, &pids);
    assert_string_equal(pids.data, orders[i]);
    assert_int_equal(type(&state, &view, 's'), BRIM_UI_TOP_DRAW);
  }
  assert_int_equal(state.order, BRIM_UI_TOP_BY_MEMORY);
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
  brim_str_deinit(&pids);
}

static void test_filtering(void **unused) {
  (void)unused;
  brim_top_view view;
  brim_ui_top state;
  brim_str out, pids;
  brim_str_init(&out);
  brim_str_init(&pids);
  brim_ui_top_init(&state);
  top_view_make(&view, 4);
  type(&state, &view, '/');
  for (const char *p = "PYTHoq"; *p; p++) type(&state, &view, (uint32_t)*p);
  press(&state, &view, BRIM_KEY_BACKSPACE);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "Filter: PYTHo_"));
  pids_of(out.data, &pids);
  assert_string_equal(pids.data, "23001 23003 ");
  press(&state, &view, BRIM_KEY_ENTER);
  assert_int_equal(state.mode, BRIM_UI_TOP_MAIN);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "processes 1-2 of 2"));
  assert_non_null(strstr(out.data, "filter: PYTHo"));
  press(&state, &view, BRIM_KEY_ESCAPE);
  assert_string_equal(state.filter, "");
  snprintf(state.filter, sizeof state.filter, "23002");
  draw(&state, &view, 80, 24, &out);
  pids_of(out.data, &pids);
  assert_string_equal(pids.data, "23002 ");
  // Hangul is added and removed by whole syllables.
  state.filter[0] = '\0';
  type(&state, &view, '/');
  type(&state, &view, 0xD55C);
  assert_string_equal(state.filter, "한");
  press(&state, &view, BRIM_KEY_BACKSPACE);
  assert_string_equal(state.filter, "");
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
  brim_str_deinit(&pids);
}

static void test_pages_and_leaving(void **unused) {
  (void)unused;
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 2);
  type(&state, &view, '?');
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "filter processes by command"));
  assert_int_equal(type(&state, &view, 'q'), BRIM_UI_TOP_DRAW);  // closes the page, not the program
  type(&state, &view, 'g');
  press(&state, &view, BRIM_KEY_RIGHT);
  draw(&state, &view, 80, 50, &out);
  assert_non_null(strstr(out.data, "GPU 1  NVIDIA H200"));
  assert_non_null(strstr(out.data, "GPU-00000001"));
  assert_non_null(strstr(out.data, "Xid 94: contained ECC error"));
  press(&state, &view, BRIM_KEY_RIGHT);
  assert_int_equal(state.gpu, 0);
  press(&state, &view, BRIM_KEY_END);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "Xid events"));
  press(&state, &view, BRIM_KEY_ESCAPE);
  type(&state, &view, 'p');
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "paused"));
  type(&state, &view, ' ');
  assert_false(state.paused);
  assert_int_equal(type(&state, &view, '+'), BRIM_UI_TOP_FASTER);
  assert_int_equal(type(&state, &view, '-'), BRIM_UI_TOP_SLOWER);
  assert_int_equal(type(&state, &view, 'z'), BRIM_UI_TOP_NOTHING);
  // the key q of the Korean keyboard
  assert_int_equal(type(&state, &view, 0x3142), BRIM_UI_TOP_QUIT);
  // Without a GPU there are no details.
  brim_top_view none;
  top_view_make(&none, 0);
  assert_int_equal(type(&state, &none, 'g'), BRIM_UI_TOP_DRAW);
  draw(&state, &none, 80, 24, &out);
  assert_non_null(strstr(out.data, "there is no GPU to show"));
  press(&state, &none, BRIM_KEY_DOWN);
  draw(&state, &none, 80, 24, &out);
  assert_null(strstr(out.data, "there is no GPU to show"));
  brim_top_view_deinit(&none);
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_scrolling_stays_in_the_list(void **unused) {
  (void)unused;
  brim_top_view view;
  brim_ui_top state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_top_init(&state);
  top_view_make(&view, 8);
  press(&state, &view, BRIM_KEY_END);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "-8 of 8"));
  press(&state, &view, BRIM_KEY_DOWN);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "-8 of 8"));
  press(&state, &view, BRIM_KEY_HOME);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "processes 1-"));
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

//---------------------------------- plain text ----------------------------------

static void test_text_and_lines(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_top_view view;
  brim_str out;
  brim_term pipe = {.width = 0};
  brim_str_init(&out);
  top_view_make(&view, 2);
  assert_ok(brim_ui_top_text(&view, NULL, &pipe, &out));
  (void)line_with(out.data, "utilisation   97 % #######################. met", line);
  (void)line_with(out.data, "GPU 1  NVIDIA H200  Xid 94", line);
  (void)line_with(out.data, "23001    1", line);
  assert_null(strchr(out.data, '\033'));
  brim_str_clear(&out);
  brim_ui_top_lines(&view, &pipe, &out);
  assert_int_equal(count_lines(out.data), 3);
  (void)line_with(out.data,
                  "train cifar10-resnet18  PID 23000  cuda:0  training  epoch 3/10  step 412/980  "
                  "47,749 samples/s  loss 0.4312  time left 21 min 50 s",
                  line);
  assert_non_null(strstr(line_of(out.data, 0, line), "GPU 0  utilisation 97 %  SM 71 %"));
  assert_non_null(strstr(line, "612/700 W  1755 MHz  58 C  power cap"));
  brim_top_view_deinit(&view);
  top_view_make(&view, 0);
  brim_str_clear(&out);
  brim_ui_top_lines(&view, &pipe, &out);
  assert_int_equal(count_lines(out.data), 1);
  assert_non_null(strstr(out.data, "CPU 32 %"));
  brim_top_view_deinit(&view);
  brim_str_deinit(&out);
}

static size_t count_cells(const char *line) {
  size_t n = 1;
  for (; *line && *line != '\n'; line++) n += *line == ',';
  return n;
}

static void test_csv_has_every_number(void **unused) {
  (void)unused;
  brim_str header, rows;
  for (int gpus = 0; gpus <= 2; gpus++) {
    brim_top_view view;
    brim_str_init(&header);
    brim_str_init(&rows);
    top_view_make(&view, gpus);
    view.host.core_count = 2;
    view.host.core_percent[0] = 99;
    view.host.core_percent[1] = 10.5;
    assert_ok(brim_ui_top_csv_header(&header));
    assert_ok(brim_ui_top_csv_rows(&view, &rows));
    assert_int_equal(count_lines(header.data), 1);
    assert_int_equal(count_lines(rows.data), gpus ? gpus : 1);
    assert_int_equal(count_cells(header.data), count_cells(rows.data));
    static const char *const names[] = {
        ",gpu_percent,", ",sm_percent,",        ",ofu_percent,",      ",power_w,",      ",pcie_rx,",
        ",throttle,",    ",target_power,host_", ",host_memory_used,", ",ecc_corrected,"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
      assert_non_null(strstr(header.data, names[i]));
    }
    assert_int_equal(strstr(rows.data, ",power_cap,") != NULL, gpus > 0);
    assert_non_null(strstr(rows.data, ",99+10.5\n"));
    brim_top_view_deinit(&view);
    brim_str_deinit(&header);
    brim_str_deinit(&rows);
  }
}

int main(void) {
  setenv("TZ", "UTC", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_size),
      cmocka_unit_test(test_one_gpu_has_a_panel),
      cmocka_unit_test(test_eight_gpus_are_a_table_or_panels),
      cmocka_unit_test(test_no_gpu_shows_the_host),
      cmocka_unit_test(test_unknown_is_a_dash),
      cmocka_unit_test(test_trouble_is_said_in_words),
      cmocka_unit_test(test_slow_drivers_are_reported),
      cmocka_unit_test(test_silent_jobs_are_marked),
      cmocka_unit_test(test_sparklines_keep_the_last_readings),
      cmocka_unit_test(test_sorting),
      cmocka_unit_test(test_filtering),
      cmocka_unit_test(test_pages_and_leaving),
      cmocka_unit_test(test_scrolling_stays_in_the_list),
      cmocka_unit_test(test_text_and_lines),
      cmocka_unit_test(test_csv_has_every_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
