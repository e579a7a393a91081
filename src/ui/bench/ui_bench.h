// Bench results as a person sees them: the summary on a terminal, the comparison of two sets of records, and the HTML
// report. Pure functions of records and of a brim_term. Callers: src/cli/bench; ui/profile for findings.
#ifndef BRIM_UI_BENCH_H_
#define BRIM_UI_BENCH_H_

#include "record/record_view.h"
#include "ui/term/ui_term.h"

//---------------------------------- texts ----------------------------------

// The failure class of a result. Without a failure: "ok", "throttled", "unstable" or "one sample".
const char *brim_ui_failure_text(const brim_result *result);
// "batch_size=256 num_workers=2 precision=bf16"
void brim_ui_setting(const brim_result *result, brim_str *out);
// Translates the description of a task ("mlp on 60,000 samples of 28x28 u8"), which records keep in English. A text of
// another form stays as it is.
const char *brim_ui_description(const char *english, char out[192]);
const char *brim_ui_phase_name(int phase);  // "Waited I/O", for legends
// "x1.4 [1.3, 1.5]"; "" when unknown.
void brim_ui_factor(brim_interval factor, char out[64]);
// "  Label:   value"
void brim_ui_put_line(const brim_term *term, const char *label, const char *value, brim_str *out);
// Appends ", while other programs had 63 % of the CPU" to a share of a ceiling; nothing if other programs used little,
// or if the result has a GPU.
void brim_ui_add_others(const brim_result *result, brim_str *out);
// Says why shares of the machine's ceilings are unknown (brim_machine_doubtful).
void brim_ui_doubtful(const brim_result *result, char out[256]);

//---------------------------------- terminal ----------------------------------

// The summary table, the optimal configuration, and the findings of the recommended and of the fastest setting.
brim_status brim_ui_bench(const brim_term *term, const brim_result *results, size_t count,
                          const brim_recommendation *picks, brim_str *out);
// The short form: the table, one line for each pick, the recommended setting and its reason.
brim_status brim_ui_bench_short(const brim_term *term, const brim_result *results, size_t count,
                                const brim_recommendation *picks, brim_str *out);
brim_status brim_ui_bench_table(const brim_term *term, const brim_result *results, size_t count,
                                int recommended, brim_str *out);
// Tables that the workload makes of the results.
brim_status brim_ui_workload_tables(const brim_term *term, const brim_view *views, size_t count,
                                    brim_str *out);
// The checklist before training and the learning-rate note.
void brim_ui_advice(const brim_term *term, const brim_advice *advice, brim_str *out);

// Settings on several devices at once: a table for each setting, devices that did not run, the limits of the figures.
// `note` (may be NULL): a line about training with the large total batch of all devices.
brim_status brim_ui_scaling(const brim_term *term, const brim_scaling *all, size_t count,
                            const char *note, brim_str *out);

// The planned memory of settings that did not run, and why settings have no plan. Shares are of `limit` bytes if that
// is less than what is free; 0 = no limit.
brim_status brim_ui_plan_sweep(const brim_term *term, const brim_result *results, size_t count,
                               uint64_t limit, brim_str *out);

//---------------------------------- findings ----------------------------------

// All findings of a result. If nothing is worth fixing, the first line says so and gives the share of the ceiling;
// notes follow. `beside`: if not NULL, `result` is the config's own setting and is shown next to this recommendation.
void brim_ui_bench_findings(const brim_term *term, const brim_result *result,
                            const brim_recommendation *beside, brim_str *out);
// A finding's text and remedy as HTML, in the reader's language.
void brim_ui_put_finding_text(const brim_finding *finding, brim_str *out);
// "nothing worth fixing: 98 % of the slower stage (computing)". False if the result did not run or has a finding that
// is more than a note.
bool brim_ui_healthy(const brim_result *result, char out[256]);
// True if several findings have a price. Each price is what one remedy saves alone, so prices do not add up.
bool brim_ui_prices_overlap(const brim_result *result);
#define BRIM_UI_PRICES_OVERLAP \
  BRIM_N_("Each price is what one remedy saves alone; together they may save less.")
// ", estimated" for a price without a measured change behind it, else "".
const char *brim_ui_estimated(const brim_finding *f);

//---------------------------------- compare ----------------------------------

typedef enum brim_ui_verdict {
  BRIM_UI_VERDICT_UNKNOWN,  // provisional: no interval
  BRIM_UI_VERDICT_ONCE,  // provisional: a side was measured once, so the interval lacks the variation between repeats
  BRIM_UI_VERDICT_FASTER,  // certain: the ratio's interval is above 1
  BRIM_UI_VERDICT_SLOWER,  // certain: the ratio's interval is below 1
  BRIM_UI_VERDICT_OPEN,    // the interval includes 1: the sides cannot be told apart
  BRIM_UI_VERDICT_A_FAILED,
  BRIM_UI_VERDICT_B_FAILED,
  BRIM_UI_VERDICT_BOTH_FAILED,
  BRIM_UI_VERDICT_COUNT
} brim_ui_verdict;

// One setting in two records. The ratio is samples/s of b divided by samples/s of a; its 95 % interval treats the two
// records as independent.
typedef struct brim_ui_pair {
  const brim_result *a, *b;
  brim_interval ratio;
  brim_ui_verdict verdict;
} brim_ui_pair;

void brim_ui_compare_pair(const brim_result *a, const brim_result *b, brim_ui_pair *out);
bool brim_ui_verdict_certain(brim_ui_verdict verdict);
// The geometric mean of the ratios and its verdict, as a pair whose a and b are NULL. The mean is over the pairs that
// were measured more than once, or over all pairs if none was. Returns the number of these pairs; 0 = no setting ran in
// both.
size_t brim_ui_compare_overall(const brim_ui_pair *pairs, size_t count, brim_ui_pair *out);
const char *brim_ui_verdict_name(brim_ui_verdict verdict);  // "faster", for JSON
typedef struct brim_ui_sides {
  const char *a, *b;
  const char *differences;  // lines on what else the sides differ in; NULL = none
} brim_ui_sides;
// The names of the two sides, their other differences, the table, the count of each verdict, and one line over all.
brim_status brim_ui_compare(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                            const brim_ui_sides *sides, brim_str *out);

//---------------------------------- report ----------------------------------

// Says why the achieved throughput is within or outside the prediction; "" when unknown.
void brim_ui_verified_comment(const brim_verification *verified, char out[320]);

typedef struct brim_ui_report_options {
  const char *title;    // NULL = the description of the task
  const char *command;  // the command line; NULL = left out
  const brim_recommendation *picks;
  const brim_advice *advice;          // of the recommended setting; NULL = left out
  const brim_verification *verified;  // of the recommended setting; NULL = left out
  const brim_scaling *scaling;        // settings on several devices at once
  size_t scaling_count;               // 0 = left out
  const char *scaling_note;  // a line about training with the large total batch; NULL = none
  const brim_view *views;    // tables of the workload
  size_t view_count;         // 0 = left out
  const brim_result *own;    // the config's setting, one of the results; NULL = left out
} brim_ui_report_options;

// One self-contained HTML page: recommendation, findings, charts, where the time goes, utilisation,
// heat map, table, memory plan, machine.
brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out);

#endif  // BRIM_UI_BENCH_H_
