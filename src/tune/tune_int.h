// Inside the tune room.
#ifndef BRIM_TUNE_INT_H_
#define BRIM_TUNE_INT_H_

#include <stdlib.h>

#include "tune/tune.h"

// An interval wider than this factor says nothing.
#define BRIM_TUNE_WIDEST 100.0

// What is visited first in a large grid (tune_sweep.c).
typedef struct brim_climb {
  const brim_subject *subject;
  const brim_sweep_settings *settings;
  const brim_sweep_axis *axes;
  size_t axis_count;
  const double *rate;  // (settings) NaN = not visited; 0 = it did not run, or takes too long
} brim_climb;
// -1 = enough were visited.
int64_t brim_climb_next(const brim_climb *climb);

// brim_diagnose; with `probing`, findings ask for settings that would price them (record_findings.h).
void brim_diagnose_with(brim_result *results, size_t count, size_t index, bool probing);

// The logarithm of how much faster the changed setting was, by pairs of visits; 0 where their spread does not
// separate that from none.
double brim_remedy_gain(const brim_result_visit *own, const brim_result_visit *changed,
                        size_t pairs);
// The sampler of a GPU; NULL where there is none: its columns stay unknown, which is no reason not to measure.
brim_gpu_sampler *brim_tune_sampler(const char *who, brim_gpu_monitor *monitor,
                                    const brim_memory_watch *memory);

// What `brim top` shows of a session: the setting that is measured, and the result of the setting whose
// progress came last.
void brim_tuning_job_progress(brim_job *job, const brim_progress *progress);
void brim_tuning_job_result(brim_job *job, const brim_result *result);

// Config files of a workload's session (tune_config.c).
brim_status brim_work_differs(void *state, const brim_result *record, const char **out);
void brim_work_resume_free(struct brim_work_resume *resume);
brim_status brim_work_write_best(brim_tuning *session, const char *path);
brim_status brim_work_check_edit(brim_tuning *session);
brim_status brim_work_edit(brim_tuning *session, brim_tuning_edit *out);
// One more override of the session's config; the config with all of them.
brim_status brim_work_override(brim_work_subject *s, const char *fmt, ...) BRIM_PRINTF(2, 3);
brim_status brim_work_load(const brim_work_subject *s, brim_config **out);

// Rows of a step: its time grows with them.
double brim_subject_rows(const brim_subject *subject, const brim_setting *setting);
// Steps of `warm` that count as a filled cache, and more than a visit of a few samples makes.
enum { BRIM_SUBJECT_WARM_STEPS = 16 };
// Seconds of a step with `more` times the samples. They take longer in proportion once the device is full: a
// GPU holds more warps until then, a CPU is taken for full.
double brim_remedy_step_s(const brim_result *own, bool gpu, double more);

#endif  // BRIM_TUNE_INT_H_
