// Inside the page of a store: what its parts share.
#ifndef BRIM_UI_LAB_INT_H_
#define BRIM_UI_LAB_INT_H_

#include "record/record_sweep.h"
#include "ui/ui_lab.h"
#include "ui/ui_report_int.h"
#include "ui/ui_sweep_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_UI_LAB_ROWS = 100,       // of a table that stands in the page without a script
  BRIM_UI_LAB_POINTS = 600000,  // of curves in a page, where there is more than one metric
  BRIM_UI_LAB_LINES = 2000000,  // bytes of last lines
  BRIM_UI_LAB_ATTEMPTS = 50000
};
// The name of a setting without what stands in front of it, where that is clear: "batch_size".
const char *brim_ui_lab_short(const brim_lab_set *set, size_t key);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_LAB_INT_H_
