// Evidence for findings: settings of a sweep that differ in one knob, and what the difference is
// worth. Callers: workloads, for their own findings, and tune.
#ifndef BRIM_RECORD_FINDINGS_H_
#define BRIM_RECORD_FINDINGS_H_

#include "record/record.h"

#ifdef __cplusplus
extern "C" {
#endif

// A result, and all that was measured beside it.
typedef struct brim_findings {
  brim_result *r;
  const brim_result *results;
  size_t count;
  // More settings can be measured: what may cost time is added with the value to try (brim_finding_try),
  // even where nothing shows it yet.
  bool probing;
} brim_findings;

// Less of a step than this share is not worth a change.
#define BRIM_FINDING_LEAST 0.03

// Of the settings that differ from this one in one knob alone, those that a remedy may name.
typedef enum brim_twin_kind { BRIM_TWIN_ANY, BRIM_TWIN_THIS, BRIM_TWIN_MORE } brim_twin_kind;

// One more; NULL when there is no room. cost_ms NaN = not measured.
brim_finding *brim_finding_add(brim_result *r, const char *code, double cost_ms);
// The fastest of the twins in `knob`: with any other value, with `value`, or with a larger number. NULL
// when none was measured.
const brim_result *brim_finding_twin(const brim_findings *v, const char *knob, brim_twin_kind kind,
                                     const char *value);
// What this step's samples would take less at another setting's rate; 0 where the intervals of the two do
// not tell them apart. An unknown interval is none.
double brim_finding_gain_ms(const brim_result *r, const brim_result *other);
// The change that the price stands for.
void brim_finding_change(brim_finding *f, const char *knob, const char *value, bool measured);
// Asks for a setting that differs in this knob alone, for the price; false where it was measured or did
// not run before, where the setting has it already, or nothing more can be measured.
bool brim_finding_try(const brim_findings *v, brim_finding *f, const char *knob, const char *value);
// {text, remedy} in a language under its name ("ko") beside the English texts of a finding in JSON, where it has
// the values for it: for a page, whose reader chooses the language in the browser.
brim_status brim_finding_add_language(json_t *finding, const brim_msg_catalogue *language);
// The dearest first, then those without a price, then notes.
void brim_findings_sort(brim_result *r);
// Has it a finding that is more than a note?
bool brim_result_worth_fixing(const brim_result *r);
// Throughput as a share of the slower of its stages alone (loading, computing), which `loading` names;
// NaN = not measured. Above 1 the machine was busy when the stages were measured.
double brim_result_ceiling_share(const brim_result *r, bool *loading);
// Were these ceilings measured while other programs used the machine? They are then too low, by an amount
// that nothing tells: no share of them is printed.
bool brim_machine_doubtful(const brim_machine_ceilings *ceilings);
// What a step needs by the plan as a share of what the machine can do in the step's time: FLOPs of matrix
// products in the setting's precision, whose name goes to *precision, and bytes of copies in memory. NaN =
// unknown, or above 1 or doubtful: the ceiling is then wrong.
double brim_result_product_share(const brim_result *r, const char **precision);
double brim_result_memory_share(const brim_result *r);
const char *brim_result_knob_text(const brim_result *r, const char *name);  // "" = it has none
// A phase's share of the mean step, of the median step: medians of phases do not add up to the median step,
// and these do. Records keep the statistics as they were measured. 0 = unknown.
double brim_result_phase_ms(const brim_result *r, brim_phase phase);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_FINDINGS_H_
