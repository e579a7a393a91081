// A whole terminal for a live view: alternate screen, keys, drawing that sends only the lines that
// changed. It knows nothing about what is shown. Callers: the live table of `brim sweep`, `brim top`.
//
// The terminal is restored when the screen closes, when the process exits or dies of a signal, and
// while Ctrl-Z holds it. It never blocks: what a slow terminal does not take waits, and frames in
// between are left out. Ctrl-C stays a signal.
#ifndef BRIM_UI_SCREEN_H_
#define BRIM_UI_SCREEN_H_

#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- keys ----------------------------------

typedef enum brim_key_code {
  BRIM_KEY_NONE,
  BRIM_KEY_CHAR,  // `ch`: a printable character
  BRIM_KEY_UP,
  BRIM_KEY_DOWN,
  BRIM_KEY_LEFT,
  BRIM_KEY_RIGHT,
  BRIM_KEY_PAGE_UP,
  BRIM_KEY_PAGE_DOWN,
  BRIM_KEY_HOME,
  BRIM_KEY_END,
  BRIM_KEY_DELETE,
  BRIM_KEY_ENTER,
  BRIM_KEY_TAB,
  BRIM_KEY_BACKSPACE,
  BRIM_KEY_ESCAPE,
  BRIM_KEY_REDRAW,  // Ctrl-L
  BRIM_KEY_COUNT
} brim_key_code;

typedef struct brim_key {
  brim_key_code code;
  uint32_t ch;  // code point of a CHAR, else 0
} brim_key;

// The first key of n bytes from a terminal; returns the bytes it took. 0: the bytes begin a key whose
// rest has not come. `last`: no more will come, so what is there is a key or is skipped. Sequences that
// are not known take their bytes and give NONE.
size_t brim_key_decode(const char *bytes, size_t n, bool last, brim_key *out);
// The Latin letter on the key that types this letter of the Korean keyboard, so that commands work
// while Hangul is switched on; other characters as they are.
uint32_t brim_key_latin(uint32_t ch);

//---------------------------------- screen ----------------------------------

typedef struct brim_screen brim_screen;

// Takes the terminal over. BRIM_EUNSUPPORTED: the descriptors are no terminal, it is dumb, or this
// process is in its background; print plain lines then. BRIM_ESTATE: another screen is open.
brim_status brim_screen_open(int in_fd, int out_fd, brim_ui_colour colour, brim_screen **out);
// Restores the terminal; NULL is fine.
void brim_screen_close(brim_screen *screen);

// Whether a screen is shown now: what else is written to the terminal would lie over it.
// Async-signal-safe.
bool brim_screen_shown(void);
// Restores the terminal at once, for a signal handler that ends the process. Async-signal-safe;
// nothing happens where no screen is open.
void brim_screen_restore(void);

// The terminal as it is now, its width included; *rows its height.
void brim_screen_size(const brim_screen *screen, brim_term *term, int *rows);
// For poll(2): a key has come when it is readable. Resizing interrupts poll (EINTR). -1 when the
// terminal is gone.
int brim_screen_fd(const brim_screen *screen);
// The next key, without waiting; false: none. Call until false. A lone Escape is known as one after
// BRIM_SCREEN_ESCAPE_MS, so poll again that soon while brim_screen_waits.
enum { BRIM_SCREEN_ESCAPE_MS = 50 };
bool brim_screen_key(brim_screen *screen, brim_time now, brim_key *out);
bool brim_screen_waits(const brim_screen *screen);

// Shows lines of text, each ended by '\n', from the top; lines beyond the height are left out and what
// is wider than the terminal is cut by it. Styles are those of brim_ui_styled. BRIM_EIO: the terminal
// is gone; close the screen and continue without it.
brim_status brim_screen_draw(brim_screen *screen, const char *text);
// The next draw sends everything, for a screen that another program has written on.
void brim_screen_forget(brim_screen *screen);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_SCREEN_H_
