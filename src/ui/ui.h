// What a person sees: tables, progress, the bench summary, HTML reports and replays. Pure functions
// of records and of a brim_term; text goes into a brim_str and the caller prints it. No device
// handles, no clocks, no files (ui_term.c alone asks the terminal and the environment). Callers:
// the commands in src/cli.
#ifndef BRIM_UI_H_
#define BRIM_UI_H_

#include "base/base.h"
#include "record/record.h"
#include "record/record_curves.h"
#include "record/record_trajectory.h"
#include "record/record_view.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- terminal ----------------------------------

typedef enum brim_ui_colour {
  BRIM_UI_COLOUR_AUTO,
  BRIM_UI_COLOUR_ALWAYS,
  BRIM_UI_COLOUR_NEVER,
  BRIM_UI_COLOUR_COUNT
} brim_ui_colour;

// What an output stream can show.
typedef struct brim_term {
  bool tty;
  bool colour;
  bool unicode;
  bool redraw;  // a line can be drawn over: a terminal that is not dumb
  int width;    // columns; 0 = no limit (a file or a pipe)
} brim_term;

// What a decision rests on; texts are environment values, NULL when unset.
typedef struct brim_term_facts {
  bool tty;
  int columns;  // from the terminal; 0 = unknown
  const char *env_columns, *no_color, *clicolor_force, *term;
  const char *lc_all, *lc_ctype, *lang;
} brim_term_facts;

// Colour: always and never are final; auto is on for a terminal that is not dumb, off when NO_COLOR
// is set and not empty, on when CLICOLOR_FORCE is set to anything but 0 (NO_COLOR wins).
// Width: COLUMNS, then the terminal, then 80 on a terminal and no limit elsewhere.
// Unicode: when LC_ALL, LC_CTYPE or LANG (the first that is set) names UTF-8.
void brim_term_decide(const brim_term_facts *facts, brim_ui_colour colour, brim_term *out);
// The same for a file descriptor of this process.
void brim_term_detect(int fd, brim_ui_colour colour, brim_term *out);

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

// Text in a style; plain where the terminal has no colour.
void brim_ui_styled(brim_str *out, const brim_term *term, brim_ui_style style, const char *text);
// Text on its way to the terminal: brim's own colours pass where it has them, every other control
// character becomes visible (base_text.h).
void brim_ui_plain(brim_str *out, const brim_term *term, const char *text, size_t n);
// The first `columns` columns of a text, cut with an ellipsis when it is longer. Control characters
// become '?', so that no text can move the cursor.
void brim_ui_clip(brim_str *out, const brim_term *term, const char *text, int columns);
// "OPTIMAL CONFIGURATION" between rules.
void brim_ui_heading(brim_str *out, const brim_term *term, const char *text);
// Words wrapped to the width (80 when there is no limit), lines after the first indented.
void brim_ui_wrap(brim_str *out, const brim_term *term, const char *text, int indent);
// A line of parts with two spaces between them: as it is where it fits or is no terminal,
// else broken between parts, never within one.
void brim_ui_wrap_parts(brim_str *out, const brim_term *term, const char *line, int indent);
// The same for the rest of a line that stands at column `indent`: as it is where it fits or there is
// no limit.
void brim_ui_fit(brim_str *out, const brim_term *term, const char *text, int indent);

//---------------------------------- tables ----------------------------------

typedef enum brim_ui_align { BRIM_UI_LEFT, BRIM_UI_RIGHT } brim_ui_align;

typedef struct brim_ui_column {
  const char *header;
  const char *short_header;  // taken when space is short; NULL = none
  brim_ui_align align;
  int priority;   // 0 stays longest; the highest number is left out first
  int min_width;  // > 0: may shrink to this, cells cut with an ellipsis; 0 = never shrinks
} brim_ui_column;

// Choose widths so that columns and gaps (2 between columns) fit `width` (0 = no limit).
// natural[i]: widest cell without the header. out[i] = 0 means left out; *use_short says whether
// short headers were taken. In this order: short headers, shrink, leave out from the highest
// priority down to 1, and at last cut what is left (each column keeps at least one).
// `together`: bits of columns that are left out together, 0 = none.
void brim_ui_layout(const brim_ui_column *columns, const int *natural, size_t count, int width,
                    uint64_t together, int *out, bool *use_short);

#define BRIM_UI_MAX_COLUMNS 32

typedef struct brim_ui_cell {
  char *text;
  brim_ui_style style;
} brim_ui_cell;

// Rows are filled cell by cell, left to right. Failures stick and are returned by render.
typedef struct brim_ui_table {
  const brim_ui_column *columns;
  size_t column_count;
  brim_ui_cell *cells;
  size_t cell_count, cap;
  uint64_t together;  // bits of columns that are left out together or not at all; 0 = each alone
  brim_status status;
} brim_ui_table;

void brim_ui_table_init(brim_ui_table *table, const brim_ui_column *columns, size_t count);
void brim_ui_table_deinit(brim_ui_table *table);
void brim_ui_table_add(brim_ui_table *table, brim_ui_style style, const char *fmt, ...)
    BRIM_PRINTF(3, 4);
// Header, rule, rows. *left_out (may be NULL) gets the number of columns that found no room.
brim_status brim_ui_table_render(const brim_ui_table *table, const brim_term *term, brim_str *out,
                                 int *left_out);

//---------------------------------- progress ----------------------------------

// One line without a newline, at most width - 1 columns on a terminal. Parts that find no room are
// left out: all figures but the first, then the count, the shares, the bar; the title stays.
void brim_ui_progress_line(const brim_progress *progress, const brim_term *term, brim_str *out);

// When to draw. On a terminal one line is redrawn at most 10 times a second; elsewhere a plain line
// comes every 10 s. The caller passes the time.
typedef struct brim_ui_progress {
  bool started, on_screen;
  brim_time last;
  char printed[160];  // the beginning of the last plain line: one that says the same is left out
} brim_ui_progress;

void brim_ui_progress_init(brim_ui_progress *state);
// Appends what is to be written now; often nothing.
void brim_ui_progress_update(brim_ui_progress *state, const brim_term *term,
                             const brim_progress *progress, brim_time now, brim_str *out);
// Takes the line off the screen, before anything else is printed.
void brim_ui_progress_clear(brim_ui_progress *state, const brim_term *term, brim_str *out);

//---------------------------------- bench ----------------------------------

// "ok", "OOM (planned)", "NaN", ...
const char *brim_ui_failure_class(brim_failure failure);
// The same of a result, where "ok" may also be "unstable".
const char *brim_ui_failure_text(const brim_result *result);
// "batch_size=256 num_workers=2 precision=bf16"
void brim_ui_setting(const brim_result *result, brim_str *out);
// What is measured, in the language of the messages: records keep it in English ("mlp on 60,000
// samples of 28x28 u8"). A text of another form stays as it is.
const char *brim_ui_description(const char *english, char out[192]);
// A number for people: "12,345", "548", "27.5", "0.31"; "-" when unknown.
void brim_ui_number(double value, char out[32]);
// Milliseconds with three significant digits: "921", "36.4", "0.52"; "-" when unknown.
void brim_ui_ms(double value, char out[32]);

brim_status brim_ui_bench_table(const brim_term *term, const brim_result *results, size_t count,
                                int recommended, brim_str *out);
// One after the other, or that there is nothing worth fixing and how near the setting is to its ceiling,
// before what is only a note.
// `beside` (may be NULL): the recommendation that the config's own setting stands beside.
void brim_ui_bench_findings(const brim_term *term, const brim_result *result,
                            const brim_recommendation *beside, brim_str *out);
// "nothing worth fixing: 98 % of the slower stage (computing)", for any view; false where the result has
// a finding that is more than a note, or did not run.
bool brim_ui_healthy(const brim_result *result, char out[256]);
// Has it several prices? Each is of one remedy alone, so that they do not add up.
bool brim_ui_prices_overlap(const brim_result *result);
// ", estimated" behind a price that no measured change stands for, else "".
const char *brim_ui_estimated(const brim_finding *f);
#define BRIM_UI_PRICES_OVERLAP \
  BRIM_N_("Each price is what one remedy saves alone; together they may save less.")
// Summary table, optimal configuration and the findings of the recommended setting.
brim_status brim_ui_bench(const brim_term *term, const brim_result *results, size_t count,
                          const brim_recommendation *picks, brim_str *out);

// After it: the tables that the workload makes of it.
brim_status brim_ui_views(const brim_term *term, const brim_view *views, size_t count,
                          brim_str *out);

// The same in short: the table, the recommended setting, one reason.
brim_status brim_ui_bench_short(const brim_term *term, const brim_result *results, size_t count,
                                const brim_recommendation *picks, brim_str *out);
// "x1.4 [1.3, 1.5]"; "" when unknown.
void brim_ui_factor(brim_interval factor, char out[64]);

// The checklist before training and the learning-rate note.
void brim_ui_advice(const brim_term *term, const brim_advice *advice, brim_str *out);

// Settings on several devices at once: a table each, which devices did not run, what is not measured.
// `note` (may be NULL): what so large a batch means.
brim_status brim_ui_scaling(const brim_term *term, const brim_scaling *all, size_t count,
                            const char *note, brim_str *out);

// Memory of every setting of a sweep that was only planned, and below why a setting has no plan.
// Shares are of `limit` bytes where that is less than what is free; 0 = no limit.
brim_status brim_ui_plan_sweep(const brim_term *term, const brim_result *results, size_t count,
                               uint64_t limit, brim_str *out);

//---------------------------------- compare ----------------------------------

typedef enum brim_ui_verdict {
  BRIM_UI_VERDICT_UNKNOWN,  // no interval: provisional
  BRIM_UI_VERDICT_ONCE,     // an interval of one visit, which misses what changes between visits
  BRIM_UI_VERDICT_FASTER,   // certain: all of the ratio's interval is above 1
  BRIM_UI_VERDICT_SLOWER,   // certain: below
  BRIM_UI_VERDICT_OPEN,     // 1 lies in it: cannot be told apart
  BRIM_UI_VERDICT_A_FAILED,
  BRIM_UI_VERDICT_B_FAILED,
  BRIM_UI_VERDICT_BOTH_FAILED,
  BRIM_UI_VERDICT_COUNT
} brim_ui_verdict;

// One setting in two records. The ratio is samples/s of b over that of a; its 95 % interval takes the
// two for independent. NaN = unknown.
typedef struct brim_ui_pair {
  const brim_result *a, *b;
  double ratio, low, high;
  brim_ui_verdict verdict;
} brim_ui_pair;

void brim_ui_compare_pair(const brim_result *a, const brim_result *b, brim_ui_pair *out);
bool brim_ui_verdict_certain(brim_ui_verdict verdict);
// Geometric mean of the ratios, as a pair without sides, and its verdict: of those that were measured
// more than once, or of all where none was. Returns how many; 0 = no setting ran in both.
size_t brim_ui_compare_overall(const brim_ui_pair *pairs, size_t count, brim_ui_pair *out);
const char *brim_ui_verdict_name(brim_ui_verdict verdict);  // "faster", for JSON
// The names of the two sides, what else they differ in, the table, how many of each verdict, and one
// line over all.
typedef struct brim_ui_sides {
  const char *a, *b;
  const char *differences;  // lines; NULL = none
} brim_ui_sides;
brim_status brim_ui_compare(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                            const brim_ui_sides *sides, brim_str *out);

//---------------------------------- changes ----------------------------------

// A unified diff with two lines of context; nothing where the texts are equal.
brim_status brim_ui_diff(const brim_term *term, const char *name, const char *before,
                         size_t before_size, const char *after, size_t after_size, brim_str *out);

//---------------------------------- report ----------------------------------

// What the difference means: within what was to be expected, or not, and why.
void brim_ui_verified_comment(const brim_verification *verified, char out[320]);

typedef struct brim_ui_report_options {
  const char *title;    // NULL = what the task is
  const char *command;  // the command line; NULL = left out
  const brim_recommendation *picks;
  const brim_advice *advice;          // of the recommended setting; NULL = left out
  const brim_verification *verified;  // the same
  const brim_scaling *scaling;        // settings on several devices at once
  size_t scaling_count;               // 0 = left out
  const char *scaling_note;           // what so large a batch means; NULL = nothing
  const brim_view *views;             // tables of the workload
  size_t view_count;                  // 0 = left out
  const brim_result *own;  // the config's setting, one of the results; NULL = not looked at
} brim_ui_report_options;

// One self-contained HTML page: recommendation, findings, charts, where the time goes, utilisation,
// heat map, table, memory plan, machine.
brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out);
// Text made safe inside HTML elements and quoted attributes.
void brim_ui_escape_html(brim_str *out, const char *text);

//---------------------------------- replay ----------------------------------

#define BRIM_UI_MAX_REPLAYS 4   // beside each other
#define BRIM_UI_MAX_EPISODES 8  // to choose from

typedef struct brim_ui_fact {
  const char *name, *value;
} brim_ui_fact;

typedef struct brim_ui_replay_options {
  const char *title;
  const char *about;    // below it: what is replayed; NULL = nothing
  const char *command;  // the command line; NULL = left out
  const char *score;    // what the sum of the rewards is, translated
  // Names of the episodes, where there are several to choose from; NULL = there is one.
  const char *const *episodes;
  size_t episode_count;
  const brim_ui_fact *facts;
  size_t fact_count;
  const brim_curves *training;    // of the run; NULL or without a curve = left out
  const char *training_step;      // a message: what a step of it is; NULL = "step"
  const char *training_baseline;  // a message: whose values the baseline's are; NULL = left out
} brim_ui_replay_options;

// One self-contained HTML page that replays one trajectory, or up to BRIM_UI_MAX_REPLAYS of the same steps
// beside each other; of several episodes, as many of each, one episode after the other. Trajectories are
// finished (brim_trajectory_finish) and have one scene. BRIM_EINVAL: none of them, or more. BRIM_EUNSUPPORTED: there is no picture of the scene's kind (web/replay/scene_KIND.js).
brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_H_
