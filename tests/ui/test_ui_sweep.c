// A sweep on the screen: frames of every size, and memory that runs out. test_ui_sweep_keys.c has the keys,
// test_ui_sweep_text.c the status and the summary.
#include <math.h>

#include "sweep_screen.h"

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
  row.started_s = row.since_s = SWEEP_NOW - 1e7;
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
  char line[FRAME_LINE];
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
      line_of(out.data, 7, line),
      "GPU 3   used by others   15.1/139.8 GiB   77 %  held by pid 71 (alice)  415 W");
  assert_string_equal(
      line_of(out.data, 8, line),
      "  State       lr   batch_size width seed      %      Last      Best       ETA");
  assert_string_equal(
      line_of(out.data, 9, line),
      "▸ running     0.1  128        65    1      73 %   87.80 %   88.80 %      4:00");
  assert_string_equal(
      line_of(out.data, 12, line),
      "  pausing     0.1  64         65    3      36 %   83.90 %   84.90 %     12:00");
  // The best so far, and results listed above the queue.
  assert_string_equal(line_of(out.data, 3, line),
                      "best score so far: 91.40 %  lr=0.01 batch_size=64 width=64 seed=2");
  assert_non_null(strstr(out.data, "  done        0.01 64         64    0     100 %   91.00 %"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_a_large_screen(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_sweep_view view;
  brim_ui_sweep state;
  brim_str out;
  brim_str_init(&out);
  brim_ui_sweep_init(&state);
  sweep_view_fill(&view, 120, 4);
  draw(&state, &view, 200, 60, &out);
  line_of(out.data, 18, line);
  assert_non_null(strstr(line, "failed      lr=0.01 batch_size=64 width=65 seed=1 "));
  assert_non_null(strstr(line, "OOM: cannot allocate 2.1 GiB on GPU 0: 1.7 GiB are free"));
  assert_non_null(strstr(out.data, "is done: score 90.70 %"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// Columns are aligned in any language, and while figures change.
static void test_columns_stand_still(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
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

// Values are below the keys of their own label, never below those of another.
static void test_labels_with_other_keys(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
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
  assert_true(brim_str_starts(line_of(out.data, 4, line), "  State       lr   batch_size width"));
  assert_non_null(strstr(line_of(out.data, 5, line), "running     0.1  "));
  assert_non_null(strstr(line_of(out.data, 6, line), "running     momentum=0.9 lr=a b c "));
  brim_sweep_view_deinit(&view);
  // A value may contain spaces.
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
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
