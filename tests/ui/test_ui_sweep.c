// A sweep on the screen: frames of every size, keys, the status and the summary.
#include "ui/ui_sweep.h"

#include <math.h>

#include "test.h"
#include "ui/sweep_view.h"

static brim_term screen_term(int width, bool colour) {
  return (brim_term){
      .tty = true, .redraw = true, .unicode = true, .colour = colour, .width = width};
}

static void korean(bool on) { assert_true(brim_msg_set_language(on ? "ko" : "en")); }

static const brim_ui_sweep_log sample_log = {
    .path = "runs/mnist-grid/exp/001122334455/attempt-1.log",
    .text = "epoch 1/10\nstep 1\rstep 2\rstep 3\n한글 \033[31m로그\033[0m\nlast line\n",
};

static void draw(brim_ui_sweep *state, const brim_sweep_view *view, int width, int rows,
                 brim_str *out) {
  brim_term term = screen_term(width, false);
  brim_str_clear(out);
  assert_ok(brim_ui_sweep_frame(state, view, &sample_log, &term, rows, out));
}

// Line `n` of a text, from 0; into a buffer.
static const char *line_of(const char *text, int n, char out[1024]) {
  for (; n > 0 && *text; n--) {
    text += strcspn(text, "\n");
    text += *text == '\n';
  }
  snprintf(out, 1024, "%.*s", (int)strcspn(text, "\n"), text);
  return out;
}

static int count_lines(const char *text) {
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static brim_ui_sweep_action press(brim_ui_sweep *state, const brim_sweep_view *view,
                                  brim_key_code code) {
  return brim_ui_sweep_key(state, view, (brim_key){code, 0});
}

static brim_ui_sweep_action type(brim_ui_sweep *state, const brim_sweep_view *view, uint32_t ch) {
  return brim_ui_sweep_key(state, view, (brim_key){BRIM_KEY_CHAR, ch});
}

//---------------------------------- frames ----------------------------------

// No line is wider than the screen, there are never more lines than it has, and nothing but styles
// and line ends could move the cursor.
static void check_frame(const char *text, int width, int rows) {
  char line[1024];
  int lines = count_lines(text);
  assert_true(lines <= rows);
  if (rows >= 14) assert_int_equal(lines, rows);
  for (int i = 0; i < lines; i++) {
    line_of(text, i, line);
    assert_true(brim_utf8_valid(line, strlen(line)));
    if (brim_utf8_width(line) > width)
      fail_msg("%d columns of %d: %s", brim_utf8_width(line), width, line);
  }
  for (const char *p = text; *p; p++) {
    if (*p == '\033') {
      size_t n = 2 + strspn(p + 2, "0123456789;");
      assert_true(p[1] == '[' && p[n] == 'm');
    } else {
      assert_true(*p == '\n' || (unsigned char)*p >= ' ');
    }
  }
}

static void put_hostile_row(brim_sweep_view *view) {
  brim_sweep_row row;
  brim_sweep_row_init(&row);
  row.id = "ffffffffffffffffffffffffffffffff";
  row.label =
      "모델=\033[2Jresnet\a 이름이=아주아주아주긴한글라벨입니다끝까지보이지않습니다 x=\xff\xfe";
  row.message = "줄\n바꿈\033]0;title\a";
  row.waiting = "\u202eright to left";
  row.devices = "GPU 0+1+2+3+4+5+6+7";
  row.state = BRIM_SWEEP_RUNNING;
  row.failure = BRIM_FAILURE_CRASH;
  row.step = 9;
  row.steps = 5;
  row.epoch = 999999;
  row.epochs = 1000000;
  row.metric = -1.2345678e-300;
  row.started_s = SWEEP_NOW - 1e7;
  row.eta_s = 1e8;
  row.metric_key = "not declared";
  assert_ok(brim_sweep_view_put(view, &row));
}

static void each_mode(brim_sweep_view *view, const brim_term *term, int rows, brim_str *out) {
  for (int mode = 0; mode < BRIM_UI_SWEEP_MODE_COUNT; mode++) {
    for (int pending = BRIM_UI_SWEEP_CANCEL; pending <= BRIM_UI_SWEEP_STOP; pending++) {
      brim_ui_sweep state;
      brim_ui_sweep_init(&state);
      state.mode = (brim_ui_sweep_mode)mode;
      state.pending = (brim_ui_sweep_action)pending;
      snprintf(state.target, sizeof state.target, "%.32s", view->rows[view->row_count - 1].id);
      snprintf(state.search, sizeof state.search, "%s", mode == BRIM_UI_SWEEP_SEARCH ? "모델" : "");
      brim_str_clear(out);
      assert_ok(brim_ui_sweep_frame(&state, view, &sample_log, term, rows, out));
      check_frame(out->data, term->width, rows);
      if (mode != BRIM_UI_SWEEP_CONFIRM) break;
    }
  }
}

static void test_every_size(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  sweep_view_fill(&view, 70, 10);
  put_hostile_row(&view);
  brim_sweep_view_count(&view);
  view.stopping = true;
  snprintf(view.notice, sizeof view.notice, "첫 실험 3개가 모두 실패했습니다\033[H");
  static const int heights[] = {1, 5, 10, 24, 60};
  for (int language = 0; language < 2; language++) {
    korean(language);
    for (int width = 20; width <= 220; width += width < 130 ? 3 : 13) {
      for (size_t h = 0; h < sizeof heights / sizeof *heights; h++) {
        brim_term term = screen_term(width, width % 2);
        term.unicode = width % 5 != 0;
        each_mode(&view, &term, heights[h], &out);
      }
    }
  }
  korean(false);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_a_small_screen(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 4);
  draw(&state, &view, 80, 24, &out);
  assert_string_equal(
      line_of(out.data, 0, line),
      "mnist-grid  runs/mnist-grid                                  running for 2:13:24");
  assert_string_equal(line_of(out.data, 1, line),
                      "━━━━━━━━━━────────────────   40 %  52.1 experiments/h  ETA 4 h 10 min");
  assert_string_equal(line_of(out.data, 2, line),
                      "[1 all 60]  2 running 8  3 queued 29  4 done 18  5 failed 2  6 other 3");
  assert_string_equal(
      line_of(out.data, 6, line),
      "GPU 3   used by others   15.1/139.8 GiB   77 %  held by pid 71 (alice)  415 W");
  assert_string_equal(
      line_of(out.data, 7, line),
      "  State       lr   batch_size width seed      %     score  Where        ETA");
  assert_string_equal(
      line_of(out.data, 8, line),
      "▸ running     0.1  128        65    1      73 %   87.80 %  GPU 3       4:00");
  assert_string_equal(
      line_of(out.data, 11, line),
      "  pausing     0.1  64         65    3      36 %   83.90 %  GPU 1      12:00");
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_a_large_screen(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 120, 4);
  draw(&state, &view, 200, 60, &out);
  line_of(out.data, 16, line);
  assert_non_null(strstr(line, "failed      lr=0.01 batch_size=64 width=65 seed=1 "));
  assert_non_null(strstr(line, "OOM: cannot allocate 2.1 GiB on GPU 0: 1.7 GiB are free"));
  assert_non_null(strstr(out.data, "is done: score 90.70 %"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// Columns stand below each other in any language, and while figures change.
static void test_columns_stand_still(void **unused) {
  (void)unused;
  char line[1024];
  brim_str out;
  brim_str_init(&out);
  for (int language = 0; language < 2; language++) {
    korean(language);
    brim_sweep_view view;
    brim_ui_sweep state;
    int column = -1, rows = 0;
    brim_ui_sweep_init(&state);
    sweep_view_fill(&view, 60, 0);
    for (int tick = 0; tick < 3; tick++) {
      for (size_t i = 0; i < view.row_count; i++) {
        brim_sweep_row row = view.rows[i];
        if (row.state != BRIM_SWEEP_RUNNING) continue;
        row.step += 7 * tick;
        row.eta_s = tick == 2 ? 36000 : row.eta_s;
        row.metric = tick ? 0.01 * tick : NAN;
        row.label = i % 2 ? "학습률=0.1 폭=한글" : row.label;
        assert_ok(brim_sweep_view_put(&view, &row));
      }
      draw(&state, &view, 90, 24, &out);
      for (int i = 0; i < 24; i++) {
        const char *at = strstr(line_of(out.data, i, line), "GPU ");
        if (!at) continue;
        line[at - line] = '\0';
        if (column < 0) column = brim_utf8_width(line);
        assert_int_equal(brim_utf8_width(line), column);
        rows++;
      }
    }
    assert_true(rows >= 20);
    brim_sweep_view_deinit(&view);
  }
  korean(false);
  brim_str_deinit(&out);
}

// Values stand below the keys of their label, and never below those of another.
static void test_labels_with_other_keys(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 3000, 0);
  press(&state, &view, BRIM_KEY_DOWN);
  brim_sweep_row row = *brim_sweep_view_find(&view, state.selected);
  row.label = "momentum=0.9 lr=a b c";
  assert_ok(brim_sweep_view_put(&view, &row));
  draw(&state, &view, 80, 24, &out);
  assert_true(brim_str_starts(line_of(out.data, 3, line), "  State       lr   batch_size width"));
  assert_non_null(strstr(line_of(out.data, 4, line), "running     0.1  "));
  assert_non_null(strstr(line_of(out.data, 5, line), "running     momentum=0.9 lr=a b c "));
  brim_sweep_view_deinit(&view);
  // A value may have spaces.
  sweep_view_fill(&view, 20, 0);
  for (size_t i = 0; i < view.row_count; i++) {
    row = view.rows[i];
    row.label = "transform=flip | crop(size=24) | normalize lr=0.1 batch_size=64 momentum=0.95";
    assert_ok(brim_sweep_view_put(&view, &row));
  }
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "flip | crop(size=24) | normalize 0.1 6"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_more_gpus_than_lines(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 20, 12);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "GPU 2 "));
  assert_null(strstr(out.data, "GPU 3  "));
  assert_non_null(strstr(out.data, "9 more: 5 busy, 0 free, 4 not usable"));
  draw(&state, &view, 200, 60, &out);
  assert_non_null(strstr(out.data, "three experiments failed in a row: crashed"));
  assert_null(strstr(out.data, "not usable"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

//---------------------------------- keys ----------------------------------

static void test_moving_among_ten_thousand(void **unused) {
  (void)unused;
  enum { MANY = 10000 };
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, MANY, 1);
  draw(&state, &view, 100, 30, &out);
  size_t page = state.page;
  assert_true(page > 10);
  assert_int_equal(press(&state, &view, BRIM_KEY_END), BRIM_UI_SWEEP_DRAW);
  draw(&state, &view, 100, 30, &out);
  assert_int_equal(state.at, MANY - 1);
  assert_int_equal(state.top, MANY - page);
  assert_non_null(strstr(out.data, "10,000/10,000"));
  press(&state, &view, BRIM_KEY_PAGE_UP);
  assert_int_equal(state.at, MANY - page);
  press(&state, &view, BRIM_KEY_HOME);
  press(&state, &view, BRIM_KEY_UP);
  assert_int_equal(state.at, 0);
  draw(&state, &view, 100, 30, &out);
  assert_int_equal(state.top, 0);
  press(&state, &view, BRIM_KEY_DOWN);
  type(&state, &view, 'j');
  type(&state, &view, 0x3153);  // the same key with Hangul switched on
  type(&state, &view, 'k');
  assert_int_equal(state.at, 2);
  draw(&state, &view, 100, 30, &out);
  assert_int_equal(state.top, 0);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static const char *id_at(const brim_sweep_view *view, brim_sweep_state state, int nth) {
  for (size_t i = 0; i < view->row_count; i++) {
    if (view->rows[i].state == state && nth-- == 0) return view->rows[i].id;
  }
  return "";
}

static void change_state(brim_sweep_view *view, const char *id, brim_sweep_state state) {
  brim_sweep_row row = *brim_sweep_view_find(view, id);
  row.state = state;
  row.ended_s = 1;
  assert_ok(brim_sweep_view_put(view, &row));
}

// The cursor goes with its experiment on the screen and does not leave the screen with it.
static void test_the_cursor_and_its_experiment(void **unused) {
  (void)unused;
  char selected[33];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  draw(&state, &view, 80, 24, &out);
  press(&state, &view, BRIM_KEY_DOWN);
  press(&state, &view, BRIM_KEY_DOWN);
  draw(&state, &view, 80, 24, &out);
  memcpy(selected, state.selected, sizeof selected);
  assert_int_equal(state.at, 2);
  change_state(&view, state.selected, BRIM_SWEEP_LEASED);  // a few rows further down
  draw(&state, &view, 80, 24, &out);
  assert_string_equal(state.selected, selected);
  assert_true(state.at > 2 && state.at < 10);
  size_t at = state.at;
  change_state(&view, state.selected, BRIM_SWEEP_DONE);  // far below
  draw(&state, &view, 80, 24, &out);
  assert_int_equal(state.at, at);
  assert_string_not_equal(state.selected, selected);
  // Another order takes it along.
  memcpy(selected, state.selected, sizeof selected);
  for (int i = 0; i < BRIM_UI_SWEEP_ORDER_COUNT; i++) {
    type(&state, &view, 's');
    draw(&state, &view, 80, 24, &out);
    assert_string_equal(state.selected, selected);
  }
  // On the first row it stays on the first row, whichever that is.
  press(&state, &view, BRIM_KEY_HOME);
  draw(&state, &view, 80, 24, &out);
  change_state(&view, state.selected, BRIM_SWEEP_DONE);
  draw(&state, &view, 80, 24, &out);
  assert_int_equal(state.at, 0);
  assert_int_equal(brim_sweep_view_find(&view, state.selected)->state, BRIM_SWEEP_RUNNING);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A key acts on what the screen showed, not on what took its place since.
static void test_keys_act_on_what_was_shown(void **unused) {
  (void)unused;
  char shown[33];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  draw(&state, &view, 80, 24, &out);
  memcpy(shown, state.selected, sizeof shown);
  change_state(&view, shown, BRIM_SWEEP_DONE);
  assert_int_equal(type(&state, &view, 'p'), BRIM_UI_SWEEP_NOTHING);  // it is done
  change_state(&view, shown, BRIM_SWEEP_QUEUED);
  change_state(&view, id_at(&view, BRIM_SWEEP_QUEUED, 9), BRIM_SWEEP_RUNNING);
  assert_int_equal(type(&state, &view, 'p'), BRIM_UI_SWEEP_PAUSE);
  assert_string_equal(state.target, shown);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static brim_ui_sweep_action key_on(brim_sweep_state row_state, brim_sweep_want want, uint32_t ch) {
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_sweep_row row;
  brim_sweep_view_init(&view);
  brim_ui_sweep_init(&state);
  brim_sweep_row_init(&row);
  row.id = "abc";
  row.label = "lr=1";
  row.state = row_state;
  row.want = want;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_sweep_view_count(&view);
  brim_ui_sweep_action action = type(&state, &view, ch);
  if (state.mode == BRIM_UI_SWEEP_CONFIRM) {
    assert_int_equal(action, BRIM_UI_SWEEP_DRAW);
    action = type(&state, &view, 'y');
    assert_int_equal(state.mode, BRIM_UI_SWEEP_TABLE);
  }
  if (action > BRIM_UI_SWEEP_DRAW) assert_string_equal(state.target, "abc");
  brim_sweep_view_deinit(&view);
  return action;
}

static void test_actions_by_state(void **unused) {
  (void)unused;
  const brim_ui_sweep_action none = BRIM_UI_SWEEP_NOTHING;
  const struct {
    brim_sweep_state state;
    brim_ui_sweep_action c, p, r, plus;
  } rows[] = {
      {BRIM_SWEEP_QUEUED, BRIM_UI_SWEEP_CANCEL, BRIM_UI_SWEEP_PAUSE, none, BRIM_UI_SWEEP_RAISE},
      {BRIM_SWEEP_LEASED, BRIM_UI_SWEEP_CANCEL, BRIM_UI_SWEEP_PAUSE, none, none},
      {BRIM_SWEEP_RUNNING, BRIM_UI_SWEEP_CANCEL, BRIM_UI_SWEEP_PAUSE, none, none},
      {BRIM_SWEEP_DONE, none, none, none, none},
      {BRIM_SWEEP_FAILED, none, none, BRIM_UI_SWEEP_RETRY, none},
      {BRIM_SWEEP_CANCELLED, none, none, BRIM_UI_SWEEP_RETRY, none},
      {BRIM_SWEEP_PAUSED, BRIM_UI_SWEEP_CANCEL, BRIM_UI_SWEEP_RESUME, none, none},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(key_on(rows[i].state, BRIM_SWEEP_WANT_RUN, 'c'), rows[i].c);
    assert_int_equal(key_on(rows[i].state, BRIM_SWEEP_WANT_RUN, 'p'), rows[i].p);
    assert_int_equal(key_on(rows[i].state, BRIM_SWEEP_WANT_RUN, 'r'), rows[i].r);
    assert_int_equal(key_on(rows[i].state, BRIM_SWEEP_WANT_RUN, '+'), rows[i].plus);
  }
  assert_int_equal(key_on(BRIM_SWEEP_RUNNING, BRIM_SWEEP_WANT_PAUSE, 'p'), BRIM_UI_SWEEP_RESUME);
  assert_int_equal(key_on(BRIM_SWEEP_QUEUED, BRIM_SWEEP_WANT_RUN, '-'), BRIM_UI_SWEEP_LOWER);
}

static void test_questions(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 8);
  // Nothing happens without a yes, whatever else is typed or pasted.
  static const uint32_t no[] = {'n', 'c', 'x', ' ', 'Y', 0x1100};
  for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
    type(&state, &view, 'c');
    draw(&state, &view, 80, 24, &out);
    assert_non_null(strstr(out.data, "Cancel lr=0.1 batch_size=128 width=65 seed=1?  y yes  n no"));
    assert_int_equal(type(&state, &view, no[i]), BRIM_UI_SWEEP_DRAW);
    assert_int_equal(state.mode, BRIM_UI_SWEEP_TABLE);
  }
  type(&state, &view, 'q');
  assert_int_equal(press(&state, &view, BRIM_KEY_ENTER), BRIM_UI_SWEEP_DRAW);
  type(&state, &view, 'q');
  assert_int_equal(type(&state, &view, 'y'), BRIM_UI_SWEEP_STOP);
  type(&state, &view, 'q');
  assert_int_equal(type(&state, &view, 'd'), BRIM_UI_SWEEP_LEAVE);
  type(&state, &view, 'c');
  assert_int_equal(type(&state, &view, 'd'), BRIM_UI_SWEEP_DRAW);
  type(&state, &view, 'R');
  assert_int_equal(type(&state, &view, 0x315B), BRIM_UI_SWEEP_RETRY_FAILED);  // y in Hangul
  type(&state, &view, 'u');
  assert_int_equal(type(&state, &view, 'y'), BRIM_UI_SWEEP_RETURN_GPUS);
  view.gpus[5].state = BRIM_SWEEP_GPU_FREE;
  assert_int_equal(type(&state, &view, 'u'), BRIM_UI_SWEEP_NOTHING);
  // A view of another process is closed at once.
  state.watching = true;
  assert_int_equal(type(&state, &view, 'q'), BRIM_UI_SWEEP_LEAVE);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_lists_and_search(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  brim_sweep_row row = view.rows[3];
  row.label = "학습률=0.5";
  assert_ok(brim_sweep_view_put(&view, &row));
  type(&state, &view, '5');
  draw(&state, &view, 120, 24, &out);
  assert_non_null(strstr(out.data, "1/2  by state"));
  press(&state, &view, BRIM_KEY_TAB);
  assert_int_equal(state.list, BRIM_UI_SWEEP_HELD);
  press(&state, &view, BRIM_KEY_TAB);
  assert_int_equal(state.list, BRIM_UI_SWEEP_ALL);
  type(&state, &view, '/');
  type(&state, &view, 0xD559);  // a letter of the label, not a command
  type(&state, &view, 0xC2B5);
  type(&state, &view, 'q');
  assert_string_equal(state.search, "학습q");
  draw(&state, &view, 120, 24, &out);
  assert_non_null(strstr(out.data, "no experiments in this list"));
  press(&state, &view, BRIM_KEY_BACKSPACE);
  press(&state, &view, BRIM_KEY_BACKSPACE);
  assert_string_equal(state.search, "학");
  draw(&state, &view, 120, 24, &out);
  assert_non_null(strstr(out.data, "1/1  by state"));
  press(&state, &view, BRIM_KEY_ENTER);
  assert_int_equal(state.mode, BRIM_UI_SWEEP_TABLE);
  draw(&state, &view, 120, 24, &out);
  assert_non_null(strstr(out.data, "Search: 학  Esc end"));
  press(&state, &view, BRIM_KEY_ESCAPE);
  assert_string_equal(state.search, "");
  for (int i = 0; i < 100; i++) type(&state, &view, i ? 0xAC00 : '/');
  assert_true(brim_utf8_valid(state.search, strlen(state.search)));
  press(&state, &view, BRIM_KEY_ESCAPE);
  assert_int_equal(state.mode, BRIM_UI_SWEEP_TABLE);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_orders(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  state.order = BRIM_UI_SWEEP_BY_METRIC;
  draw(&state, &view, 200, 24, &out);
  char line[1024];
  assert_non_null(strstr(line_of(out.data, 4, line), "91.40 %"));
  view.metrics[0].better = BRIM_BETTER_LOWER;
  draw(&state, &view, 200, 24, &out);
  assert_non_null(strstr(line_of(out.data, 4, line), "82.30 %"));
  // Values that are unknown come last.
  press(&state, &view, BRIM_KEY_END);
  draw(&state, &view, 200, 24, &out);
  assert_non_null(strstr(line_of(out.data, 4, line), "queued"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_pages(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  assert_null(brim_ui_sweep_wants_log(&state));
  type(&state, &view, '5');
  press(&state, &view, BRIM_KEY_ENTER);
  assert_string_equal(brim_ui_sweep_wants_log(&state), state.target);
  draw(&state, &view, 60, 24, &out);
  assert_string_equal(line_of(out.data, 0, line), "lr=0.1 batch_size=64 width=64 seed=4");
  assert_non_null(strstr(out.data, "failed, attempt 1, 2 retries left"));
  assert_non_null(strstr(out.data, "step 1,234 of 5,000, epoch 2 of 10"));
  // A long message continues below itself.
  assert_non_null(strstr(out.data,
                         "  Failure     NaN: the loss is not finite at step 1234;\n"
                         "              lower the learning rate\n"));
  assert_non_null(strstr(out.data, "\nstep 3\n"));
  assert_null(strstr(out.data, "step 2"));
  assert_non_null(strstr(out.data, "한글 ?[31m로그?[0m\n"));
  type(&state, &view, 'l');
  draw(&state, &view, 60, 6, &out);
  assert_string_equal(line_of(out.data, 4, line), "last line");
  press(&state, &view, BRIM_KEY_UP);
  draw(&state, &view, 60, 6, &out);
  assert_string_equal(line_of(out.data, 2, line), "epoch 1/10");
  press(&state, &view, BRIM_KEY_HOME);  // no further than the first line
  draw(&state, &view, 60, 6, &out);
  assert_int_equal(state.scroll, 1);
  assert_int_equal(type(&state, &view, 'r'), BRIM_UI_SWEEP_RETRY);
  press(&state, &view, BRIM_KEY_ESCAPE);
  assert_null(brim_ui_sweep_wants_log(&state));
  type(&state, &view, '?');
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "cancel it; asks first"));
  assert_int_equal(type(&state, &view, 'c'), BRIM_UI_SWEEP_NOTHING);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// Events of a training are shown for people; lines that only look like one stay.
static void test_events_in_a_log(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_term term = screen_term(80, false);
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 60, 0);
  type(&state, &view, 'l');
  const brim_ui_sweep_log log = {
      .text =
          "{\"event\":\"epoch\",\"epoch\":47,\"q\":0.334678,\"name\":\"a\\u001b\",\"all\":[1],"
          "\"none\":null,\"ok\":true}\n"
          "{\"event\": 7}\n{broken\n{\"t\": 5}\n[1]\n"};
  assert_ok(brim_ui_sweep_frame(&state, &view, &log, &term, 8, &out));
  assert_string_equal(line_of(out.data, 2, line),
                      "epoch  epoch=47  q=0.3347  name=a?  all=...  ok=true");
  assert_string_equal(line_of(out.data, 3, line), "{\"event\": 7}");
  assert_string_equal(line_of(out.data, 4, line), "{broken");
  assert_string_equal(line_of(out.data, 5, line), "{\"t\": 5}");
  assert_string_equal(line_of(out.data, 6, line), "[1]");
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_nothing_to_show(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_term plain = {0};
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  brim_sweep_view_init(&view);
  for (int code = 0; code < BRIM_KEY_COUNT; code++) press(&state, &view, (brim_key_code)code);
  for (uint32_t ch = ' '; ch < 0x7F; ch++) {
    state.mode = BRIM_UI_SWEEP_TABLE;
    type(&state, &view, ch);
  }
  brim_ui_sweep_init(&state);
  draw(&state, &view, 80, 24, &out);
  assert_non_null(strstr(out.data, "no experiments in this list"));
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "0 of 0 done"));
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

//---------------------------------- plain text ----------------------------------

static void test_status(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_term plain = {0};
  brim_str out;
  brim_str_init(&out);
  sweep_view_fill(&view, 600, 2);
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "mnist-grid  runs/mnist-grid\n178 of 600 done  8 running  "));
  assert_non_null(strstr(out.data,
                         "52.1 experiments/h  ETA 4 h 10 min  process 4711, running for "
                         "2:13:24\n"));
  assert_non_null(strstr(out.data, "GPU 3 is held by pid 71 (alice)"));
  assert_non_null(strstr(out.data, "\n577 more; --all lists every experiment\n"));
  assert_null(strchr(out.data, '\033'));
  assert_int_equal(count_lines(out.data), 3 + 1 + 2 + 1 + 2 + 8 + 10 + 5 + 1);
  brim_str_clear(&out);
  brim_ui_sweep_status_options all = {.all = true};
  view.pid = 0;
  assert_ok(brim_ui_sweep_status(&view, &plain, &all, &out));
  assert_int_equal(count_lines(out.data), 3 + 1 + 2 + 1 + 2 + 600);
  assert_null(strstr(out.data, "--all"));
  // Every row begins with the id that cancel, pause, retry and log take.
  for (size_t i = 0; i < view.row_count; i++) {
    char id[16];
    snprintf(id, sizeof id, "\n%.12s ", view.rows[i].id);
    assert_non_null(strstr(out.data, id));
  }
  assert_non_null(strstr(out.data, "no sweep is running on this store\n"));
  // A column without a text is left out.
  assert_non_null(strstr(out.data, "  ETA"));
  for (size_t i = 0; i < view.row_count; i++) view.rows[i].eta_s = NAN;
  view.eta_s = NAN;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_status(&view, &plain, &all, &out));
  assert_null(strstr(out.data, "ETA"));
  view.eta_s = 15000;
  brim_str_clear(&out);
  brim_ui_sweep_line(&view, &plain, &out);
  assert_string_equal(out.data,
                      "178 of 600 done  8 running  356 queued  22 failed  23 paused  13 cancelled  "
                      "52.1 experiments/h  ETA 4 h 10 min");
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_status_fits_a_terminal(void **unused) {
  (void)unused;
  char line[1024];
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  sweep_view_fill(&view, 60, 4);
  for (int language = 0; language < 2; language++) {
    korean(language);
    brim_term term = screen_term(80, false);
    brim_str_clear(&out);
    assert_ok(brim_ui_sweep_status(&view, &term, NULL, &out));
    for (int i = 0; i < count_lines(out.data); i++) {
      assert_true(brim_utf8_width(line_of(out.data, i, line)) <= 80);
    }
    assert_non_null(strstr(out.data, "0.1  128        65    1"));
    // Why one failed stays longer than how far it came.
    assert_non_null(strstr(out.data, brim_tr("Note")));
    assert_null(strstr(out.data, brim_tr("Epoch")));
  }
  korean(false);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_messages(void **unused) {
  (void)unused;
  brim_term plain = {0}, narrow = screen_term(40, false);
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  brim_sweep_view_init(&view);
  brim_sweep_view_say(&view, BRIM_SWEEP_ERROR, NAN, NULL, "it failed\033[2J\nbadly");
  brim_ui_sweep_message(&view.messages[0], &plain, &out);
  assert_string_equal(out.data, "it failed?[2J badly");
  brim_str_clear(&out);
  view.messages[0].when_s = SWEEP_NOW;
  snprintf(view.messages[0].text, 400, "%0200d", 7);
  brim_ui_sweep_message(&view.messages[0], &narrow, &out);
  assert_int_equal(brim_utf8_width(out.data), 40);
  assert_true(out.data[2] == ':' && out.data[5] == ':');
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

//---------------------------------- summary ----------------------------------

static void put_result(brim_sweep_view *view, int i, const char *group, double value,
                       brim_sweep_state state) {
  char id[33], label[64];
  brim_sweep_row row;
  brim_sweep_row_init(&row);
  snprintf(id, sizeof id, "%032d", i);
  snprintf(label, sizeof label, "%s seed=%d", group, i);
  row.id = id;
  row.label = label;
  row.group = row.point = group;
  row.metric_key = "eval_score";
  row.idx = i;
  row.state = state;
  row.metric = value;
  assert_ok(brim_sweep_view_put(view, &row));
}

static void start_summary(brim_sweep_view *view) {
  brim_sweep_view_init(view);
  snprintf(view->title, sizeof view->title, "night");
  view->metric_count = 1;
  view->metrics[0] = (brim_sweep_metric){
      .key = "eval_score", .label = "score", .better = BRIM_BETTER_HIGHER, .digits = 4};
}

static void test_summary_of_seeds(void **unused) {
  (void)unused;
  brim_term plain = {.unicode = true};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  put_result(&view, 0, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 1, "lr=2", 4, BRIM_SWEEP_DONE);
  put_result(&view, 2, "lr=1", 3, BRIM_SWEEP_DONE);
  put_result(&view, 3, "lr=2", 5, BRIM_SWEEP_DONE);
  put_result(&view, 4, "lr=2", 9, BRIM_SWEEP_DONE);
  put_result(&view, 5, "lr=2", 100, BRIM_SWEEP_FAILED);  // no result
  put_result(&view, 6, "lr=3", INFINITY, BRIM_SWEEP_DONE);
  put_result(&view, 7, "lr=4", 2, BRIM_SWEEP_QUEUED);
  brim_sweep_view_count(&view);
  brim_ui_sweep_summary_options options = {
      .retry = "brim sweep rerun-failed", .resume = "brim sweep g.yaml", .report = "brim report x"};
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  // (4 + 5 + 9) / 3 = 6, sqrt((4 + 1 + 9) / 2) = 2.646; 2 and sqrt(2)
  assert_non_null(strstr(out.data, "6.0 ± 2.6  lr=2  3 of 4 seeds\n"));
  assert_non_null(strstr(out.data, "2.0 ± 1.4  lr=1  2 seeds\n"));
  assert_true(strstr(out.data, "lr=2  3 of") < strstr(out.data, "lr=1  2 seeds"));
  assert_non_null(strstr(out.data,
                         "Best by score\n           9  lr=2 seed=4  000000000000\n"
                         "           5  lr=2 seed=3  000000000000\n"));
  assert_null(strstr(out.data, "inf"));
  assert_null(strstr(out.data, "100"));
  assert_non_null(strstr(out.data, "continue: brim sweep g.yaml\n"));
  assert_non_null(strstr(out.data, "report: brim report x\n"));
  // Where less is better, the order turns round.
  view.metrics[0].better = BRIM_BETTER_LOWER;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_true(strstr(out.data, "lr=2  3 of") > strstr(out.data, "lr=1  2 seeds"));
  assert_non_null(strstr(out.data, "Best by score\n           1  lr=1 seed=0"));
  view.metrics[0].better = BRIM_BETTER_NEITHER;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_null(strstr(out.data, "Best"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A grid whose only axis is the seed: its group has no other name than the grid's.
static void test_summary_of_seeds_alone(void **unused) {
  (void)unused;
  brim_term plain = {.unicode = true};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  view.metrics[0].format = BRIM_METRIC_PERCENT;
  view.metrics[0].digits = 1;
  for (int i = 0; i < 2; i++) {
    char id[33], label[32];
    brim_sweep_row row;
    brim_sweep_row_init(&row);
    snprintf(id, sizeof id, "%032d", i);
    snprintf(label, sizeof label, "seed=%d", i);
    row.id = id;
    row.label = label;
    row.group = "g";
    row.metric_key = "eval_score";
    row.state = BRIM_SWEEP_DONE;
    row.metric = 0.8 + 0.1 * i;
    assert_ok(brim_sweep_view_put(&view, &row));
  }
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "85.0 ± 7.1 %  night  2 seeds\n"));
  assert_null(strstr(out.data, "seed=0  2 seeds"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A grid without axes: its experiment has no label.
static void test_summary_without_labels(void **unused) {
  (void)unused;
  brim_term plain = {.width = 80};
  brim_sweep_view view;
  brim_str out;
  brim_sweep_row row;
  brim_str_init(&out);
  start_summary(&view);
  brim_sweep_row_init(&row);
  row.id = "00000000000000000000000000000001";
  row.state = BRIM_SWEEP_FAILED;
  row.failure = BRIM_FAILURE_DATA;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "  bad data  1  night  000000000000\n"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// Last and best values never stand in one list.
static void test_best_values_need_all(void **unused) {
  (void)unused;
  brim_term plain = {0};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  put_result(&view, 0, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 1, "lr=2", 2, BRIM_SWEEP_DONE);
  brim_sweep_row row = view.rows[0];
  row.best = 10;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_null(strstr(out.data, " 10  "));
  row = view.rows[1];
  row.best = 3;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, " 10  lr=1"));
  assert_null(strstr(out.data, "seeds"));  // one each
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_summary_of_failures(void **unused) {
  (void)unused;
  brim_term plain = {0};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  static const struct {
    brim_failure failure;
    double ended;
    const char *message;
  } rows[] = {
      {BRIM_FAILURE_CRASH, 50, "crashed later"},  {BRIM_FAILURE_CRASH, 20, "crashed first"},
      {BRIM_FAILURE_CRASH, NAN, "crashed once"},  {BRIM_FAILURE_OOM_DEVICE, 10, "no room"},
      {BRIM_FAILURE_CRASH, 30, "crashed second"},
  };
  for (int i = 0; i < 5; i++) {
    put_result(&view, i, "lr=1", NAN, BRIM_SWEEP_FAILED);
    brim_sweep_row row = view.rows[i];
    row.failure = rows[i].failure;
    row.ended_s = rows[i].ended;
    row.message = rows[i].message;
    assert_ok(brim_sweep_view_put(&view, &row));
  }
  brim_sweep_view_count(&view);
  brim_ui_sweep_summary_options options = {.retry = "brim sweep rerun-failed --store a",
                                           .resume = "brim sweep g.yaml"};
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data,
                         "  crashed  4  lr=1 seed=1  000000000000\n    crashed first\n"
                         "  OOM  1  lr=1 seed=3  000000000000\n    no room\n"
                         "  fix the cause, then retry them: brim sweep rerun-failed --store a\n"));
  assert_null(strstr(out.data, "continue"));
  assert_null(strstr(out.data, "attempt"));
  // a crash may pass the next time
  brim_sweep_row oom = view.rows[3];
  oom.failure = BRIM_FAILURE_CRASH;
  assert_ok(brim_sweep_view_put(&view, &oom));
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data, "  retry them: brim sweep rerun-failed --store a\n"));
  // After a night: when it ended, what was repeated, what is broken.
  sweep_view_gpus(&view, 6);
  put_result(&view, 7, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 8, "lr=1", 1, BRIM_SWEEP_DONE);
  brim_sweep_row row = view.rows[5];
  row.attempt = 3;
  assert_ok(brim_sweep_view_put(&view, &row));
  view.now_s = SWEEP_NOW;
  view.started_s = SWEEP_NOW - 65;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data, "in 1:05  ended at "));
  assert_non_null(strstr(out.data,
                         "\n1 of the done ones took more than one attempt\n"
                         "GPU 5 is out of service: three experiments failed in a row: "
                         "crashed\n"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_out_of_memory(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_alloc_stats before, after;
  sweep_view_fill(&view, 30, 4);
  int refused = 0;
  for (int what = 0; what < 3; what++) {
    for (uint64_t n = 1; n < 400; n = n < 20 ? n + 1 : n * 5 / 4) {
      brim_str out;
      brim_ui_sweep state;
      brim_term term = screen_term(90, true);
      brim_str_init(&out);
      brim_ui_sweep_init(&state);
      brim_alloc_get_stats(&before);
      brim_alloc_fail_nth(n, 1);
      brim_status status = what == 0   ? brim_ui_sweep_frame(&state, &view, NULL, &term, 24, &out)
                           : what == 1 ? brim_ui_sweep_status(&view, &term, NULL, &out)
                                       : brim_ui_sweep_summary(&view, &term, NULL, &out);
      brim_alloc_fail_nth(0, 0);
      assert_true(status == BRIM_OK || status == BRIM_ENOMEM);
      refused += status == BRIM_ENOMEM;
      brim_str_deinit(&out);
      brim_alloc_get_stats(&after);
      assert_int_equal(before.live_blocks[0], after.live_blocks[0]);
    }
  }
  assert_true(refused > 60);
  brim_sweep_view_deinit(&view);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_size),
      cmocka_unit_test(test_a_small_screen),
      cmocka_unit_test(test_a_large_screen),
      cmocka_unit_test(test_columns_stand_still),
      cmocka_unit_test(test_labels_with_other_keys),
      cmocka_unit_test(test_more_gpus_than_lines),
      cmocka_unit_test(test_moving_among_ten_thousand),
      cmocka_unit_test(test_the_cursor_and_its_experiment),
      cmocka_unit_test(test_keys_act_on_what_was_shown),
      cmocka_unit_test(test_actions_by_state),
      cmocka_unit_test(test_questions),
      cmocka_unit_test(test_lists_and_search),
      cmocka_unit_test(test_orders),
      cmocka_unit_test(test_pages),
      cmocka_unit_test(test_events_in_a_log),
      cmocka_unit_test(test_nothing_to_show),
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_status_fits_a_terminal),
      cmocka_unit_test(test_messages),
      cmocka_unit_test(test_summary_of_seeds),
      cmocka_unit_test(test_summary_of_seeds_alone),
      cmocka_unit_test(test_summary_without_labels),
      cmocka_unit_test(test_best_values_need_all),
      cmocka_unit_test(test_summary_of_failures),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
