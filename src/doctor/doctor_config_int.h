// Inside the doctor, about a config: earlier measurements of it, its knobs, what a sweep would try.
#ifndef BRIM_DOCTOR_CONFIG_INT_H_
#define BRIM_DOCTOR_CONFIG_INT_H_

#include "doctor/doctor_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// Results of an earlier bench that are of this job on this device.
typedef struct brim_doctor_records {
  brim_result *results;
  size_t count;
  size_t fitting;  // of this job, measured and steady
  int own, best;   // the config's own setting, and the fastest; -1 = none
} brim_doctor_records;
// Unreadable files have no records.
void brim_doctor_records_read(const brim_doctor_job *job, brim_doctor_records *out);
void brim_doctor_records_free(brim_doctor_records *records);

// Which knob is far from its best: by the records, else by rules.
void brim_doctor_knobs(const brim_doctor_job *job, const brim_doctor_records *records,
                       brim_doctor_report *out);
// What `brim bench` would try, in the order in which it chooses.
void brim_doctor_sweep(const brim_doctor_job *job, brim_doctor_report *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DOCTOR_CONFIG_INT_H_
