// Reading measured records (brim.result/1, one JSON object per line).
#ifndef BRIM_RECORDS_H_
#define BRIM_RECORDS_H_

#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_records brim_records;

BRIM_API brim_status brim_records_open(const char *path, brim_records **out);
BRIM_API void brim_records_close(brim_records *records);
BRIM_API size_t brim_records_count(const brim_records *records);
// A number by dotted path ("throughput.samples_per_s", "phases.forward.median_ms");
// BRIM_ENOENT if it is missing; NaN in *out if it is null.
BRIM_API brim_status brim_records_number(const brim_records *records, size_t index,
                                         const char *path, double *out);
// A string by dotted path; lives as long as the records.
BRIM_API brim_status brim_records_string(const brim_records *records, size_t index,
                                         const char *path, const char **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORDS_H_
