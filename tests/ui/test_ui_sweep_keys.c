// Keys in the table of a sweep: moving, lists, questions, actions, pages.
#include "sweep_screen.h"

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

// The cursor follows its experiment on the screen, but does not leave the screen with it.
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
  // Sorting differently keeps the cursor on its experiment.
  memcpy(selected, state.selected, sizeof selected);
  for (int i = 0; i < BRIM_UI_SWEEP_ORDER_COUNT; i++) {
    type(&state, &view, 's');
    draw(&state, &view, 80, 24, &out);
    assert_string_equal(state.selected, selected);
  }
  // A cursor on the first row stays on the first row, even if another experiment moves there.
  press(&state, &view, BRIM_KEY_HOME);
  draw(&state, &view, 80, 24, &out);
  change_state(&view, state.selected, BRIM_SWEEP_DONE);
  draw(&state, &view, 80, 24, &out);
  assert_int_equal(state.at, 0);
  assert_int_equal(brim_sweep_view_find(&view, state.selected)->state, BRIM_SWEEP_RUNNING);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A key acts on the experiment that the screen showed, not on the one that has replaced it since.
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
  // the experiment is done meanwhile
  assert_int_equal(type(&state, &view, 'p'), BRIM_UI_SWEEP_NOTHING);
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
  // A view of another process closes at once.
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
  type(&state, &view, 0xD559);  // a letter of the filter, not a command
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
  char line[FRAME_LINE];
  assert_non_null(strstr(line_of(out.data, 5, line), "91.40 %"));
  view.metrics[0].better = BRIM_BETTER_LOWER;
  draw(&state, &view, 200, 24, &out);
  assert_non_null(strstr(line_of(out.data, 5, line), "82.30 %"));
  // Unknown values sort last.
  press(&state, &view, BRIM_KEY_END);
  draw(&state, &view, 200, 24, &out);
  assert_non_null(strstr(line_of(out.data, 5, line), "queued"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_pages(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
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
  // A long message continues on the next lines.
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
  press(&state, &view, BRIM_KEY_HOME);  // not beyond the first line
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

// Events of a training are rewritten for people; lines that only resemble one stay.
static void test_events_in_a_log(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
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

int main(void) {
  const struct CMUnitTest tests[] = {
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
