// Evidence for findings: settings of a sweep that differ in one knob, and the time that the difference saves.
// Callers: workloads, for their own findings, and tune.
#ifndef BRIM_RECORD_FINDINGS_H_
#define BRIM_RECORD_FINDINGS_H_

#include "record/record.h"

// The result that gets findings, and the results of its sweep as evidence.
typedef struct brim_findings {
  brim_result *r;
  const brim_result *results;
  size_t count;
  // True if the sweep can still measure more settings. Then also add findings without evidence, with a value to try
  // (brim_finding_try).
  bool probing;
} brim_findings;

// A smaller share of a step is not reported.
#define BRIM_FINDING_LEAST 0.03

// A twin of a result is a setting that differs from it in one knob only. The twin kinds select its value in that
// knob: any other value, this value, or a larger number.
typedef enum brim_twin_kind { BRIM_TWIN_ANY, BRIM_TWIN_THIS, BRIM_TWIN_MORE } brim_twin_kind;

// Adds a finding; NULL if there is no room. cost_ms NaN = not measured.
brim_finding *brim_finding_add(brim_result *r, const char *code, double cost_ms);
// The fastest twin of the result in `knob`; `kind` says which values count. NULL if none was measured.
const brim_result *brim_finding_twin(const brim_findings *v, const char *knob, brim_twin_kind kind,
                                     const char *value);
// Milliseconds per step saved at the rate of `other`; 0 if the two intervals overlap. An unknown interval is
// treated as having no width.
double brim_finding_gain_ms(const brim_result *r, const brim_result *other);
// Sets the change whose saving cost_ms is.
void brim_finding_change(brim_finding *f, const char *knob, const char *value, bool measured);
// Asks the sweep to measure the twin with this value, to price the finding. False if it was measured or did not
// run, if the value is the setting's own, or if nothing more can be measured.
bool brim_finding_try(const brim_findings *v, brim_finding *f, const char *knob, const char *value);
// Adds {text, remedy} in a language to a finding in JSON, under the language's name ("ko"). For pages whose reader
// chooses the language in the browser.
brim_status brim_finding_add_language(json_t *finding, const brim_msg_catalogue *language);
// Sorts: the most expensive first, then findings without a price, then notes.
void brim_findings_sort(brim_result *r);
// True if the result has a finding that is not a note.
bool brim_result_worth_fixing(const brim_result *r);
// Throughput as a share of the slower stage's own throughput (loading or computing). *loading tells which stage
// that is. NaN = not measured. Above 1: the machine was busy when the stages were measured.
double brim_result_ceiling_share(const brim_result *r, bool *loading);
// True if the ceilings were measured on a busy machine. They are then too low by an unknown amount: do not print
// shares of them.
bool brim_machine_doubtful(const brim_machine_ceilings *ceilings);
// The plan's FLOPs of a step as a share of what the machine can compute in the step's time, at the setting's
// precision, whose name goes to *precision. The memory share does the same for the plan's bytes. NaN = unknown, or
// the ceiling is wrong (doubtful, or exceeded).
double brim_result_product_share(const brim_result *r, const char **precision);
double brim_result_memory_share(const brim_result *r);
// "" = the setting has no such knob
const char *brim_result_knob_text(const brim_result *r, const char *name);
// A phase's share of the mean step, applied to the median step, in ms. These add up to the median step, which
// medians of phases do not. 0 = unknown.
double brim_result_phase_ms(const brim_result *r, brim_phase phase);

#endif  // BRIM_RECORD_FINDINGS_H_
