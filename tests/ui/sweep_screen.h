// A screen for tests of a sweep: its frames as lines, and pressed keys.
#ifndef BRIM_TESTS_UI_SWEEP_SCREEN_H_
#define BRIM_TESTS_UI_SWEEP_SCREEN_H_

#include "test.h"
#include "ui/frame.h"
#include "ui/sweep/ui_sweep.h"
#include "ui/sweep_view.h"

static inline brim_term screen_term(int width, bool colour) {
  return (brim_term){
      .tty = true, .redraw = true, .unicode = true, .colour = colour, .width = width};
}

static inline void korean(bool on) { assert_true(brim_msg_set_language(on ? "ko" : "en")); }

static const brim_ui_sweep_log sample_log = {
    .path = "runs/mnist-grid/exp/001122334455/attempt-1.log",
    .text = "epoch 1/10\nstep 1\rstep 2\rstep 3\n한글 \033[31m로그\033[0m\nlast line\n",
};

static inline void draw(brim_ui_sweep *state, const brim_sweep_view *view, int width, int rows,
                        brim_str *out) {
  brim_term term = screen_term(width, false);
  brim_str_clear(out);
  assert_ok(brim_ui_sweep_frame(state, view, &sample_log, &term, rows, out));
}

static inline brim_ui_sweep_action press(brim_ui_sweep *state, const brim_sweep_view *view,
                                         brim_key_code code) {
  return brim_ui_sweep_key(state, view, (brim_key){code, 0});
}

static inline brim_ui_sweep_action type(brim_ui_sweep *state, const brim_sweep_view *view,
                                        uint32_t ch) {
  return brim_ui_sweep_key(state, view, (brim_key){BRIM_KEY_CHAR, ch});
}

#endif  // BRIM_TESTS_UI_SWEEP_SCREEN_H_
