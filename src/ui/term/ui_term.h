// The terminal: styled and wrapped text, numbers as people read them, tables, progress lines, diffs, and a full screen
// with keys for live views. Text goes into a brim_str that the caller prints; only ui_screen.c and brim_term_detect
// touch the terminal itself. Callers: the other folders of ui, and the commands in src/cli.
#ifndef BRIM_UI_TERM_H_
#define BRIM_UI_TERM_H_

#include "base/base.h"
#include "record/record.h"

//---------------------------------- terminal ----------------------------------

typedef enum brim_ui_colour {
  BRIM_UI_COLOUR_AUTO,
  BRIM_UI_COLOUR_ALWAYS,
  BRIM_UI_COLOUR_NEVER,
  BRIM_UI_COLOUR_COUNT
} brim_ui_colour;

// The abilities of an output stream.
typedef struct brim_term {
  bool tty;
  bool colour;
  bool unicode;
  bool redraw;  // a terminal that can overwrite its last line
  int width;    // columns; 0 = no limit (a file or a pipe)
} brim_term;

// The inputs of brim_term_decide. Texts are environment variables, NULL when unset.
typedef struct brim_term_facts {
  bool tty;
  int columns;  // reported by the terminal; 0 = unknown
  const char *env_columns, *no_color, *clicolor_force, *term;
  const char *lc_all, *lc_ctype, *lang;
} brim_term_facts;

// Colour: ALWAYS and NEVER are final. AUTO is on for a terminal that is not dumb; a NO_COLOR that is not empty turns it
// off, else a CLICOLOR_FORCE other than 0 turns it on.
// Width: COLUMNS, else what the terminal reports, else 80 on a terminal and no limit elsewhere.
// Unicode: the first of LC_ALL, LC_CTYPE and LANG that is set names UTF-8.
void brim_term_decide(const brim_term_facts *facts, brim_ui_colour colour, brim_term *out);
// brim_term_decide for a file descriptor of this process.
void brim_term_detect(int fd, brim_ui_colour colour, brim_term *out);

//---------------------------------- text ----------------------------------

typedef enum brim_ui_style {
  BRIM_UI_PLAIN,
  BRIM_UI_BOLD,
  BRIM_UI_DIM,
  BRIM_UI_GOOD,      // green
  BRIM_UI_WARN,      // yellow
  BRIM_UI_BAD,       // red
  BRIM_UI_TITLE,     // bold cyan
  BRIM_UI_BEST,      // bold green
  BRIM_UI_SELECTED,  // reversed
  BRIM_UI_STYLE_COUNT
} brim_ui_style;

// Appends a text in a style; without style if the terminal has no colour.
void brim_ui_styled(brim_str *out, const brim_term *term, brim_ui_style style, const char *text);
// Appends a text that may already be styled: brim's own styles stay if the terminal has colour; every other control
// character becomes visible (base_text.h).
void brim_ui_plain(brim_str *out, const brim_term *term, const char *text, size_t n);
// Appends the first `columns` columns of a text, with an ellipsis if it was cut; 0 = the whole text. Tabs and newlines
// become spaces and other control characters '?', so that no text can move the cursor.
void brim_ui_clip(brim_str *out, const brim_term *term, const char *text, int columns);
// Appends a clipped text in a style; nothing if columns < 1.
void brim_ui_put_clipped(brim_str *out, const brim_term *term, brim_ui_style style,
                         const char *text, int columns);
// Appends a heading between two rules.
void brim_ui_heading(brim_str *out, const brim_term *term, const char *text);
// Appends words wrapped to the width, at most 100 (80 if there is no limit). Lines after the first are indented.
void brim_ui_wrap(brim_str *out, const brim_term *term, const char *text, int indent);
// Appends a line whose parts are two spaces apart. On a terminal that is too narrow the line is broken between parts,
// never inside a part.
void brim_ui_wrap_parts(brim_str *out, const brim_term *term, const char *line, int indent);
// Appends a text that begins at column `indent`, wrapped only if it does not fit on the line.
void brim_ui_fit(brim_str *out, const brim_term *term, const char *text, int indent);

//---------------------------------- numbers ----------------------------------

#define BRIM_UI_DASH "\xe2\x80\x93"  // stands for an unknown value

// Milliseconds with three significant digits: "921", "36.4", "0.52"; "-" when unknown.
void brim_ui_ms(double value, char out[32]);
// "12:03:11", the local time of day; `unknown` when there is none.
void brim_ui_time_of_day(double when_s, const char *unknown, char out[16]);
// "ok", "OOM (planned)", "NaN", ...
const char *brim_ui_failure_class(brim_failure failure);

//---------------------------------- tables ----------------------------------

typedef enum brim_ui_align { BRIM_UI_LEFT, BRIM_UI_RIGHT } brim_ui_align;

typedef struct brim_ui_column {
  const char *header;
  const char *short_header;  // used when space is short; NULL = none
  brim_ui_align align;
  int priority;  // the column with the highest number is left out first; 0 always stays
  int min_width;  // > 0: the column may shrink to this width, its cells cut with an ellipsis; 0 = never shrinks
} brim_ui_column;

// Chooses widths so that columns and the gaps of 2 between them fit `width` (0 = no limit).
// natural[i]: widest cell without the header. out[i]: the width; 0 = left out. *use_short: short headers are used.
// Steps, until the columns fit: use short headers, shrink, leave out columns from the highest priority down to 1, cut
// the widest columns down to 1, leave out columns from the right.
// `together`: bits of columns that are left out together; 0 = none.
void brim_ui_layout(const brim_ui_column *columns, const int *natural, size_t count, int width,
                    uint64_t together, int *out, bool *use_short);
// One cell of exactly `width` columns.
void brim_ui_put_cell(brim_str *out, const brim_term *term, brim_ui_align align,
                      brim_ui_style style, const char *text, int width);

#define BRIM_UI_MAX_COLUMNS 32

typedef struct brim_ui_cell {
  char *text;
  brim_ui_style style;
} brim_ui_cell;

// Rows are filled cell by cell, left to right. The first failure sticks; render returns it.
typedef struct brim_ui_table {
  const brim_ui_column *columns;
  size_t column_count;
  brim_ui_cell *cells;
  size_t cell_count, cap;
  uint64_t together;  // as in brim_ui_layout
  bool no_rule;       // no line between the header and the rows
  brim_status status;
} brim_ui_table;

void brim_ui_table_init(brim_ui_table *table, const brim_ui_column *columns, size_t count);
void brim_ui_table_deinit(brim_ui_table *table);
void brim_ui_table_add(brim_ui_table *table, brim_ui_style style, const char *fmt, ...)
    BRIM_PRINTF(3, 4);
// Appends header, rule and rows. *left_out (may be NULL): the number of columns that found no room.
brim_status brim_ui_table_render(const brim_ui_table *table, const brim_term *term, brim_str *out,
                                 int *left_out);
// Appends the line below a table that lacks columns: "2 columns left out: ..."; nothing for 0.
void brim_ui_note_left_out(const brim_term *term, int left_out, brim_str *out);

//---------------------------------- progress ----------------------------------

// One line without a newline, at most width - 1 columns on a terminal. When space is short, parts are left out in this
// order: all figures but the first, the count, the shares, the bar, the ETA, the rate, the first figure, the
// percentage. The title stays.
void brim_ui_progress_line(const brim_progress *progress, const brim_term *term, brim_str *out);

// Decides when to print progress. On a terminal one line is redrawn at most 10 times a second; elsewhere a plain line
// is printed every 10 s.
typedef struct brim_ui_progress {
  bool started, on_screen;
  brim_time last;
  char printed[160];  // the beginning of the last plain line: an equal line is not printed again
} brim_ui_progress;

void brim_ui_progress_init(brim_ui_progress *state);
// Appends the text to print now; often nothing.
void brim_ui_progress_update(brim_ui_progress *state, const brim_term *term,
                             const brim_progress *progress, brim_time now, brim_str *out);
// Erases the line. Call this before printing anything else.
void brim_ui_progress_clear(brim_ui_progress *state, const brim_term *term, brim_str *out);

//---------------------------------- differences ----------------------------------

// A unified diff with two lines of context; nothing if the texts are equal.
brim_status brim_ui_diff(const brim_term *term, const char *name, const char *before,
                         size_t before_size, const char *after, size_t after_size, brim_str *out);

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

// Decodes the first key of n bytes from a terminal and returns how many bytes it took. 0: the bytes begin a key that is
// not complete yet. `last`: no more bytes will come, so an incomplete key is decoded as it is or skipped. Unknown
// sequences take their bytes and give NONE.
size_t brim_key_decode(const char *bytes, size_t n, bool last, brim_key *out);
// Returns the Latin letter on the key that types this letter of the Korean keyboard, so that commands work while Hangul
// input is on. Returns other characters unchanged.
uint32_t brim_key_latin(uint32_t ch);
// Edits a text of `size` bytes as a line of input does: a CHAR is appended where it fits, BACKSPACE removes the last
// character. Returns false for any other key.
bool brim_key_edit(brim_key key, char *text, size_t size);

//---------------------------------- screen ----------------------------------

// A full screen for a live view: alternate screen, keys, drawing that sends only the lines that changed.
//
// The terminal is restored when the screen closes, when the process exits or dies of a signal, and while Ctrl-Z holds
// it. Nothing blocks: while a slow terminal has not taken the last frame, new frames are dropped. Ctrl-C stays a
// signal.
typedef struct brim_screen brim_screen;

// Takes the terminal over. BRIM_EUNSUPPORTED: the descriptors are no terminal, the terminal is dumb, or this process is
// in the background; print plain lines then. BRIM_ESTATE: another screen is open.
brim_status brim_screen_open(int in_fd, int out_fd, brim_ui_colour colour, brim_screen **out);
// Restores the terminal; NULL is fine.
void brim_screen_close(brim_screen *screen);

// True while a screen is shown: anything else that is written to the terminal would land on it. Async-signal-safe.
bool brim_screen_shown(void);
// Restores the terminal at once, for a signal handler that ends the process. Async-signal-safe; does nothing if no
// screen is open.
void brim_screen_restore(void);

// Fills `term` with the abilities and the current width of the terminal; *rows: its current height.
void brim_screen_size(const brim_screen *screen, brim_term *term, int *rows);
// The descriptor to poll: readable when a key has come. Resizing interrupts poll (EINTR). -1 while
// the process is in the background, or when the terminal is gone.
int brim_screen_fd(const brim_screen *screen);
// Reads the next key without waiting; false if there is none. Call this until it returns false. A lone Escape is a key
// only after BRIM_SCREEN_ESCAPE_MS, so poll again after that time while brim_screen_has_input is true.
enum { BRIM_SCREEN_ESCAPE_MS = 50 };
bool brim_screen_key(brim_screen *screen, brim_time now, brim_key *out);
bool brim_screen_has_input(const brim_screen *screen);

// Shows lines of text from the top, each ended by '\n'. Lines beyond the height are left out; the terminal cuts lines
// that are too wide. Styles are those of brim_ui_styled. BRIM_EIO: the terminal is gone; close the screen and continue
// without it.
brim_status brim_screen_draw(brim_screen *screen, const char *text);
// Makes the next draw send everything. Call this after another program wrote on the screen.
void brim_screen_redraw_all(brim_screen *screen);

//---------------------------------- frames ----------------------------------

// A frame of a live view under construction, line by line.
typedef struct brim_ui_frame {
  brim_str *out;
  const brim_term *term;  // its width is known
  int rows, left;         // lines of the frame, and lines that are still free
} brim_ui_frame;

// Adds one line, cut at the width, and clears `line`. A frame that is full stays as it is.
void brim_ui_frame_line(brim_ui_frame *frame, brim_str *line);
// Adds a text as a line of one style; its control characters become '?'.
void brim_ui_frame_text(brim_ui_frame *frame, brim_ui_style style, const char *text);
// Adds at most `most` lines of a text, beginning with line `first` (counted from 0).
void brim_ui_frame_lines(brim_ui_frame *frame, const brim_str *text, size_t first, int most);
// Adds a row of a help page: "  Ctrl-L       draw the screen again".
void brim_ui_frame_help(brim_ui_frame *frame, const char *keys, const char *text);

typedef struct brim_ui_hint {
  const char *key, *text;  // the text is a message
} brim_ui_hint;
// Adds the last line: a question, or "", and as many hints about keys as fit. Free lines above the last line stay
// empty.
void brim_ui_frame_hints(brim_ui_frame *frame, const char *question, const brim_ui_hint *hints,
                         size_t count);

#endif  // BRIM_UI_TERM_H_
