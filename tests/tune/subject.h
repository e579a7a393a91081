// The workload of a fixture as the subject of a sweep.
#ifndef BRIM_TESTS_TUNE_SUBJECT_H_
#define BRIM_TESTS_TUNE_SUBJECT_H_

#include "tune/tune_int.h"
#include "workload/fixture.h"

// One fixture at a time.
static inline brim_subject *subject_of(fixture *f) {
  static brim_work_subject work;
  static brim_subject subject;
  work = (brim_work_subject){.config = f->config, .work = &f->work, .device = &f->device};
  brim_work_subject_open(&work, &subject);
  return &subject;
}

#endif  // BRIM_TESTS_TUNE_SUBJECT_H_
