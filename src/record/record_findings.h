// Evidence for findings: settings of a sweep that differ in one knob, and what the difference is
// worth. Callers: workloads, for their own findings, and tune.
#ifndef BRIM_RECORD_FINDINGS_H_
#define BRIM_RECORD_FINDINGS_H_

#include "record/record.h"

// A result and its evidence: the results of the same sweep.
typedef struct brim_findings {
  brim_result *r;
  const brim_result *results;
  size_t count;
  // More settings can be measured: add what may cost time with a value to try (brim_finding_try), even without evidence
  // yet.
  bool probing;
} brim_findings;

// A smaller share of a step is not worth a change.
#define BRIM_FINDING_LEAST 0.03

// Twins: settings that differ from a result in one knob only.
typedef enum brim_twin_kind { BRIM_TWIN_ANY, BRIM_TWIN_THIS, BRIM_TWIN_MORE } brim_twin_kind;

// Adds a finding; NULL if there is no room. cost_ms NaN = not measured.
brim_finding *brim_finding_add(brim_result *r, const char *code, double cost_ms);
// The fastest twin in `knob`: with any other value, with `value`, or with a larger number. NULL if none was measured.
const brim_result *brim_finding_twin(const brim_findings *v, const char *knob, brim_twin_kind kind,
                                     const char *value);
// Milliseconds per step saved at the other setting's rate; 0 if the two intervals overlap. An unknown interval counts as
// none.
double brim_finding_gain_ms(const brim_result *r, const brim_result *other);
// Sets the change that the price is of.
void brim_finding_change(brim_finding *f, const char *knob, const char *value, bool measured);
// Asks to measure the twin with this value, for the price. False if it was measured, did not run, is the setting itself,
// or nothing more can be measured.
bool brim_finding_try(const brim_findings *v, brim_finding *f, const char *knob, const char *value);
// Adds {text, remedy} in a language under its name ("ko") to a finding in JSON, for pages whose reader chooses the
// language in the browser.
brim_status brim_finding_add_language(json_t *finding, const brim_msg_catalogue *language);
// The dearest first, then those without a price, then notes.
void brim_findings_sort(brim_result *r);
// Does it have a finding that is no note?
bool brim_result_worth_fixing(const brim_result *r);
// Throughput as a share of the slower stage alone (loading, computing), which *loading tells; NaN = not measured. Above
// 1 the machine was busy when the stages were measured.
double brim_result_ceiling_share(const brim_result *r, bool *loading);
// Were these ceilings measured on a busy machine? They are then too low by an unknown amount: do not print shares of
// them.
bool brim_machine_doubtful(const brim_machine_ceilings *ceilings);
// The plan's FLOPs (bytes) of a step as a share of what the machine could do in the step's time, in the setting's
// precision, whose name goes to *precision. NaN = unknown, or the ceiling is wrong (doubtful, or exceeded).
double brim_result_product_share(const brim_result *r, const char **precision);
double brim_result_memory_share(const brim_result *r);
const char *brim_result_knob_text(const brim_result *r, const char *name);  // "" = it has none
// A phase's share of the mean step, in ms of the median step: unlike medians of phases these add up to the median step.
// 0 = unknown.
double brim_result_phase_ms(const brim_result *r, brim_phase phase);

#endif  // BRIM_RECORD_FINDINGS_H_
