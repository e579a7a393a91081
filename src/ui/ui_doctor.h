// The doctor's report for people. Callers: the doctor command.
#ifndef BRIM_UI_DOCTOR_H_
#define BRIM_UI_DOCTOR_H_

#include "record/record_doctor.h"
#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

// Groups with a line per check: state, what, value; below lines that are not good, why it matters and
// the command that fixes it. `all`: below good ones, too. Ends with the counts.
void brim_ui_doctor(const brim_term *term, const brim_doctor_report *report, bool all,
                    brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_DOCTOR_H_
