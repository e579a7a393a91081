// The doctor's report for people. Callers: the doctor command.
#ifndef BRIM_UI_DOCTOR_H_
#define BRIM_UI_DOCTOR_H_

#include "record/record_doctor.h"
#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

// Groups with a line per check: state, what, value; below lines that are not good, why it matters and
// the command that fixes it. Ends with the counts.
typedef enum brim_ui_doctor_lines {
  BRIM_UI_DOCTOR_TROUBLE,  // only lines that are warn or bad, without counts
  BRIM_UI_DOCTOR_ALL,
  BRIM_UI_DOCTOR_WHY,  // and why good ones matter
  BRIM_UI_DOCTOR_LINES_COUNT
} brim_ui_doctor_lines;
void brim_ui_doctor(const brim_term *term, const brim_doctor_report *report,
                    brim_ui_doctor_lines lines, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_DOCTOR_H_
