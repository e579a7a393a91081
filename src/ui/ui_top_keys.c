// Keys of the live view of a machine.
#include <math.h>
#include <string.h>

#include "ui/ui_top.h"

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
