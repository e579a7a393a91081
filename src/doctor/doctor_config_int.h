// Inside the doctor, about a config: earlier measurements of it, its knobs, what a sweep would try.
#ifndef BRIM_DOCTOR_CONFIG_INT_H_
#define BRIM_DOCTOR_CONFIG_INT_H_

#include "doctor/doctor_int.h"
#include "tune/tune.h"

#ifdef __cplusplus
extern "C" {
#endif

// Results of an earlier bench that are of this job on this device, and what follows from them.
typedef struct brim_doctor_records {
  brim_result *results;
  size_t count;
  int own;                    // the config's own setting; -1 = none
  brim_recommendation picks;  // where there are results
} brim_doctor_records;
// Unreadable files have no records.
void brim_doctor_records_read(const brim_doctor_job *job, brim_doctor_records *out);
void brim_doctor_records_free(brim_doctor_records *records);
// The line about them.
void brim_doctor_measured(const brim_doctor_job *job, const brim_doctor_records *records,
                          brim_doctor_report *out);

// What the workload tells of itself.
void brim_doctor_info(const brim_doctor_job *job, brim_work_info *out);

// Which knob is far from its best, by rules.
void brim_doctor_rules(const brim_doctor_job *job, brim_doctor_report *out);
// What `brim bench` would try, in the order in which it chooses.
void brim_doctor_sweep(const brim_doctor_job *job, brim_doctor_report *out);

// The whole command that trains this job with other values ("data.pin_memory=true"), or that measures it
// (`extra`: options; "" = none). One that is too long for a line is left to the reader.
void brim_doctor_fix_train(const brim_doctor_job *job, brim_doctor_line *line, const char *fmt, ...)
    BRIM_PRINTF(3, 4);
void brim_doctor_fix_bench(const brim_doctor_job *job, brim_doctor_line *line, const char *extra);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DOCTOR_CONFIG_INT_H_
