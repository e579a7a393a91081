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
} brim_findings;

// Of the settings that differ from this one in one knob alone, those that a remedy may name.
typedef enum brim_twin_kind { BRIM_TWIN_ANY, BRIM_TWIN_THIS, BRIM_TWIN_MORE } brim_twin_kind;

// One more; NULL when there is no room. cost_ms NaN = not measured.
brim_finding *brim_finding_add(brim_result *r, const char *code, double cost_ms);
// The fastest of the twins in `knob`: with any other value, with `value`, or with a larger number. NULL
// when none was measured.
const brim_result *brim_finding_twin(const brim_findings *v, const char *knob, brim_twin_kind kind,
                                     const char *value);
// What this step's samples would take less at another setting's rate.
double brim_finding_gain_ms(const brim_result *r, const brim_result *other);
const char *brim_result_knob_text(const brim_result *r, const char *name);  // "" = it has none
double brim_result_phase_ms(const brim_result *r, brim_phase phase);  // the median; 0 = unknown

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_FINDINGS_H_
