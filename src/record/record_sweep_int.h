// Inside the record room: which members of a sweep's row are texts.
#ifndef BRIM_RECORD_SWEEP_INT_H_
#define BRIM_RECORD_SWEEP_INT_H_

#include "record/record_int.h"
#include "record/record_sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_SWEEP_ROW_TEXTS = 12 };
// Offsets of the texts; the id is the first.
extern const size_t brim_sweep_row_texts[BRIM_SWEEP_ROW_TEXTS];

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_SWEEP_INT_H_
