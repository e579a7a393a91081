// Keys of the live table: what they change in the view, and what they ask of the sweep.
#include <string.h>

#include "ui/ui_sweep_int.h"

void brim_ui_sweep_init(brim_ui_sweep *state) { memset(state, 0, sizeof *state); }

const char *brim_ui_sweep_wants_log(const brim_ui_sweep *state) {
  bool shows = state->mode == BRIM_UI_SWEEP_LOG || state->mode == BRIM_UI_SWEEP_DETAILS;
  return shows && state->target[0] ? state->target : NULL;
}

//---------------------------------- the selected row ----------------------------------

// The rows as they are listed now, and the selected one among them.
typedef struct listing {
  size_t *rows;
  size_t count, at;
} listing;

static bool list_rows(brim_ui_sweep *state, const brim_sweep_view *view, listing *out) {
  brim_ui_sweep_pick pick = {state->list, state->order, state->search};
  if (brim_ui_sweep_rows(view, &pick, &out->rows, &out->count)) return false;
  out->at = brim_ui_sweep_find(state, view, out->rows, out->count);
  return true;
}

size_t brim_ui_sweep_find(brim_ui_sweep *state, const brim_sweep_view *view, const size_t *rows,
                          size_t count) {
  size_t at = state->moved ? state->at : 0, found = count;
  for (size_t i = 0; i < count && found == count && state->moved; i++) {
    if (strcmp(view->rows[rows[i]].id, state->selected) == 0) found = i;
  }
  // The cursor goes with its experiment on the screen. One that left it, such as by ending, leaves its
  // place to the next: the table must not jump to the end of 10,000 rows.
  bool near = found + 1 >= state->top && found <= state->top + state->page;
  if (found < count && (near || state->follow)) at = found;
  if (at >= count) at = count ? count - 1 : 0;
  state->at = at;
  return at;
}

// What the last frame had under the cursor, even if the list has changed since.
static const brim_sweep_row *selected_row(brim_ui_sweep *state, const brim_sweep_view *view) {
  listing list;
  if (state->selected[0]) return brim_sweep_view_find(view, state->selected);
  if (!list_rows(state, view, &list)) return NULL;
  const brim_sweep_row *row = list.count ? &view->rows[list.rows[list.at]] : NULL;
  brim_free(list.rows);
  return row;
}

static void copy_id(char out[33], const char *id) {
  size_t n = strnlen(id, 32);
  memcpy(out, id, n);
  out[n] = '\0';
}

static brim_ui_sweep_action move(brim_ui_sweep *state, const brim_sweep_view *view, int64_t by) {
  listing list;
  if (!list_rows(state, view, &list)) return BRIM_UI_SWEEP_NOTHING;
  if (list.count > 0) {
    int64_t last = (int64_t)list.count - 1, to = (int64_t)list.at + by;
    to = to < 0 ? 0 : to > last ? last : to;
    state->at = (size_t)to;
    state->moved = to > 0;
    state->follow = true;
    copy_id(state->selected, view->rows[list.rows[to]].id);
  }
  brim_free(list.rows);
  return BRIM_UI_SWEEP_DRAW;
}

//---------------------------------- actions ----------------------------------

static bool active(const brim_sweep_row *row) {
  return row->state == BRIM_SWEEP_RUNNING || row->state == BRIM_SWEEP_LEASED;
}

// What a key asks of this row; NOTHING where its state does not allow it.
static brim_ui_sweep_action row_action(const brim_sweep_row *row, uint32_t key) {
  bool live = active(row) || row->state == BRIM_SWEEP_QUEUED;
  bool pausing = active(row) && row->want == BRIM_SWEEP_WANT_PAUSE;
  switch (key) {
    case 'c':
      return live || row->state == BRIM_SWEEP_PAUSED ? BRIM_UI_SWEEP_CANCEL : BRIM_UI_SWEEP_NOTHING;
    case 'p':
      if (pausing || row->state == BRIM_SWEEP_PAUSED) return BRIM_UI_SWEEP_RESUME;
      return live ? BRIM_UI_SWEEP_PAUSE : BRIM_UI_SWEEP_NOTHING;
    case 'r':
      return row->state == BRIM_SWEEP_FAILED || row->state == BRIM_SWEEP_CANCELLED
                 ? BRIM_UI_SWEEP_RETRY
                 : BRIM_UI_SWEEP_NOTHING;
    case '+':
    case '=':
      return row->state == BRIM_SWEEP_QUEUED ? BRIM_UI_SWEEP_RAISE : BRIM_UI_SWEEP_NOTHING;
    case '-':
      return row->state == BRIM_SWEEP_QUEUED ? BRIM_UI_SWEEP_LOWER : BRIM_UI_SWEEP_NOTHING;
    default:
      return BRIM_UI_SWEEP_NOTHING;
  }
}

static brim_ui_sweep_action ask(brim_ui_sweep *state, brim_ui_sweep_action action) {
  state->pending = action;
  state->mode = BRIM_UI_SWEEP_CONFIRM;
  return BRIM_UI_SWEEP_DRAW;
}

// A key for one experiment; cancelling asks first.
static brim_ui_sweep_action act(brim_ui_sweep *state, const brim_sweep_view *view, uint32_t key) {
  const brim_sweep_row *row = state->mode == BRIM_UI_SWEEP_TABLE
                                  ? selected_row(state, view)
                                  : brim_sweep_view_find(view, state->target);
  brim_ui_sweep_action action = row ? row_action(row, key) : BRIM_UI_SWEEP_NOTHING;
  if (action == BRIM_UI_SWEEP_NOTHING) return action;
  copy_id(state->target, row->id);
  return action == BRIM_UI_SWEEP_CANCEL ? ask(state, action) : action;
}

static brim_ui_sweep_action open_row(brim_ui_sweep *state, const brim_sweep_view *view,
                                     brim_ui_sweep_mode mode) {
  const brim_sweep_row *row = selected_row(state, view);
  if (!row) return BRIM_UI_SWEEP_NOTHING;
  copy_id(state->target, row->id);
  state->mode = mode;
  state->scroll = 0;
  return BRIM_UI_SWEEP_DRAW;
}

static bool any_out(const brim_sweep_view *view) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    if (view->gpus[i].state == BRIM_SWEEP_GPU_OUT) return true;
  }
  return false;
}

//---------------------------------- modes ----------------------------------

static void to_the_top(brim_ui_sweep *state) {
  state->selected[0] = '\0';
  state->at = state->top = 0;
  state->moved = false;
}

static brim_ui_sweep_action choose_list(brim_ui_sweep *state, brim_ui_sweep_list list) {
  state->list = list;
  to_the_top(state);
  return BRIM_UI_SWEEP_DRAW;
}

static brim_ui_sweep_action table_char(brim_ui_sweep *state, const brim_sweep_view *view,
                                       uint32_t ch) {
  if (ch >= '1' && ch < '1' + BRIM_UI_SWEEP_LIST_COUNT) {
    return choose_list(state, (brim_ui_sweep_list)(ch - '1'));
  }
  switch (ch) {
    case 'k':
      return move(state, view, -1);
    case 'j':
      return move(state, view, 1);
    case 'g':
      return move(state, view, INT32_MIN);
    case 'G':
      return move(state, view, INT32_MAX);
    case ' ':
      return move(state, view, (int64_t)state->page);
    case 'l':
      return open_row(state, view, BRIM_UI_SWEEP_LOG);
    case 's':
      state->order = (brim_ui_sweep_order)((state->order + 1) % BRIM_UI_SWEEP_ORDER_COUNT);
      state->follow = true;
      return BRIM_UI_SWEEP_DRAW;
    case '/':
      state->mode = BRIM_UI_SWEEP_SEARCH;
      return BRIM_UI_SWEEP_DRAW;
    case '?':
    case 'h':
      state->mode = BRIM_UI_SWEEP_HELP;
      return BRIM_UI_SWEEP_DRAW;
    case 'q':
      return state->watching ? BRIM_UI_SWEEP_LEAVE : ask(state, BRIM_UI_SWEEP_STOP);
    case 'R':
      return view->counts[BRIM_SWEEP_FAILED] > 0 ? ask(state, BRIM_UI_SWEEP_RETRY_FAILED)
                                                 : BRIM_UI_SWEEP_NOTHING;
    case 'u':
      return any_out(view) ? ask(state, BRIM_UI_SWEEP_RETURN_GPUS) : BRIM_UI_SWEEP_NOTHING;
    default:
      return act(state, view, ch);
  }
}

static brim_ui_sweep_action table_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                      brim_key key) {
  int64_t page = state->page > 1 ? (int64_t)state->page - 1 : 1;
  switch (key.code) {
    case BRIM_KEY_UP:
      return move(state, view, -1);
    case BRIM_KEY_DOWN:
      return move(state, view, 1);
    case BRIM_KEY_PAGE_UP:
      return move(state, view, -page);
    case BRIM_KEY_PAGE_DOWN:
      return move(state, view, page);
    case BRIM_KEY_HOME:
      return move(state, view, INT32_MIN);
    case BRIM_KEY_END:
      return move(state, view, INT32_MAX);
    case BRIM_KEY_ENTER:
      return open_row(state, view, BRIM_UI_SWEEP_DETAILS);
    case BRIM_KEY_TAB:
      return choose_list(state, (brim_ui_sweep_list)((state->list + 1) % BRIM_UI_SWEEP_LIST_COUNT));
    case BRIM_KEY_ESCAPE:
      state->search[0] = '\0';
      return choose_list(state, BRIM_UI_SWEEP_ALL);
    case BRIM_KEY_CHAR:
      return table_char(state, view, brim_key_latin(key.ch));
    default:
      return BRIM_UI_SWEEP_NOTHING;
  }
}

// A page over the table: a log, details, help.
static brim_ui_sweep_action page_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                     brim_key key) {
  uint32_t ch = key.code == BRIM_KEY_CHAR ? brim_key_latin(key.ch) : 0;
  int64_t page = state->page > 1 ? (int64_t)state->page - 1 : 1, by = 0;
  if (key.code == BRIM_KEY_ESCAPE || ch == 'q' || ch == '?' || key.code == BRIM_KEY_LEFT) {
    state->mode = BRIM_UI_SWEEP_TABLE;
    return BRIM_UI_SWEEP_DRAW;
  }
  if (state->mode == BRIM_UI_SWEEP_HELP) return BRIM_UI_SWEEP_NOTHING;
  if (ch == 'l' || key.code == BRIM_KEY_ENTER) {
    bool log = state->mode == BRIM_UI_SWEEP_LOG;
    state->mode = log ? BRIM_UI_SWEEP_DETAILS : BRIM_UI_SWEEP_LOG;
    state->scroll = 0;
    return BRIM_UI_SWEEP_DRAW;
  }
  if (key.code == BRIM_KEY_UP || ch == 'k') by = 1;
  if (key.code == BRIM_KEY_DOWN || ch == 'j') by = -1;
  if (key.code == BRIM_KEY_PAGE_UP) by = page;
  if (key.code == BRIM_KEY_PAGE_DOWN || ch == ' ') by = -page;
  if (key.code == BRIM_KEY_HOME || ch == 'g') by = INT32_MAX;
  if (key.code == BRIM_KEY_END || ch == 'G') by = INT32_MIN;
  if (by == 0) return act(state, view, ch);
  state->scroll += by;  // the frame holds it to the log's lines
  if (state->scroll < 0) state->scroll = 0;
  return BRIM_UI_SWEEP_DRAW;
}

static void add_char(brim_ui_sweep *state, uint32_t ch) {
  char bytes[4];
  size_t n = 0, used = strlen(state->search);
  if (ch < 0x80) {
    bytes[n++] = (char)ch;
  } else if (ch < 0x800) {
    bytes[n++] = (char)(0xC0 | ch >> 6);
    bytes[n++] = (char)(0x80 | (ch & 0x3F));
  } else if (ch < 0x10000) {
    bytes[n++] = (char)(0xE0 | ch >> 12);
    bytes[n++] = (char)(0x80 | (ch >> 6 & 0x3F));
    bytes[n++] = (char)(0x80 | (ch & 0x3F));
  } else {
    bytes[n++] = (char)(0xF0 | ch >> 18);
    bytes[n++] = (char)(0x80 | (ch >> 12 & 0x3F));
    bytes[n++] = (char)(0x80 | (ch >> 6 & 0x3F));
    bytes[n++] = (char)(0x80 | (ch & 0x3F));
  }
  if (used + n >= sizeof state->search) return;
  memcpy(state->search + used, bytes, n);
  state->search[used + n] = '\0';
}

static brim_ui_sweep_action search_key(brim_ui_sweep *state, brim_key key) {
  size_t n = strlen(state->search);
  if (key.code == BRIM_KEY_CHAR) {
    add_char(state, key.ch);
  } else if (key.code == BRIM_KEY_BACKSPACE && n > 0) {
    do {
      n--;
    } while (n > 0 && ((unsigned char)state->search[n] & 0xC0) == 0x80);
    state->search[n] = '\0';
  } else if (key.code == BRIM_KEY_ESCAPE) {
    state->search[0] = '\0';
    state->mode = BRIM_UI_SWEEP_TABLE;
  } else {
    state->mode = BRIM_UI_SWEEP_TABLE;
    return BRIM_UI_SWEEP_DRAW;
  }
  to_the_top(state);
  return BRIM_UI_SWEEP_DRAW;
}

static brim_ui_sweep_action confirm_key(brim_ui_sweep *state, brim_key key) {
  uint32_t ch = key.code == BRIM_KEY_CHAR ? brim_key_latin(key.ch) : 0;
  brim_ui_sweep_action pending = state->pending;
  state->mode = BRIM_UI_SWEEP_TABLE;
  state->pending = BRIM_UI_SWEEP_NOTHING;
  if (ch == 'y') return pending;
  if (ch == 'd' && pending == BRIM_UI_SWEEP_STOP) return BRIM_UI_SWEEP_LEAVE;
  return BRIM_UI_SWEEP_DRAW;
}

brim_ui_sweep_action brim_ui_sweep_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                       brim_key key) {
  if (key.code == BRIM_KEY_NONE) return BRIM_UI_SWEEP_NOTHING;
  if (key.code == BRIM_KEY_REDRAW) return BRIM_UI_SWEEP_DRAW;
  switch (state->mode) {
    case BRIM_UI_SWEEP_SEARCH:
      return search_key(state, key);
    case BRIM_UI_SWEEP_CONFIRM:
      return confirm_key(state, key);
    case BRIM_UI_SWEEP_TABLE:
      return table_key(state, view, key);
    default:
      return page_key(state, view, key);
  }
}
