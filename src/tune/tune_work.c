// A workload of brim as a subject: what a session asks of it, answered by measure and by the workload itself.

#include "tune/tune_int.h"

#include <math.h>
#include <string.h>

//---------------------------------- knobs ----------------------------------

brim_setting brim_subject_setting(const brim_subject *subject) {
  brim_setting setting;
  memset(&setting, 0, sizeof setting);
  for (size_t i = 0; i < subject->knob_count; i++) setting.value[i] = subject->knobs[i].value;
  return setting;
}

int brim_subject_knob(const brim_subject *subject, const char *name) {
  for (size_t i = 0; i < subject->knob_count; i++) {
    const brim_knob *knob = &subject->knobs[i];
    if (strcmp(knob->name, name) == 0 || (knob->key && strcmp(knob->key, name) == 0)) return (int)i;
  }
  return -1;
}

int brim_subject_knob_as(const brim_subject *subject, brim_knob_role role) {
  const brim_knob_row *row = brim_knob_find_as(subject->knob_set, role);
  return row ? brim_subject_knob(subject, row->name) : -1;
}

bool brim_subject_knob_matters(const brim_subject *subject, size_t knob,
                               const brim_setting *setting) {
  const brim_knob *row = &subject->knobs[knob];
  return !row->matters || row->matters(subject->knob_owner, setting);
}

double brim_subject_rows(const brim_subject *subject, const brim_setting *setting) {
  double product = 1;
  for (size_t i = 0; i < subject->knob_count; i++) {
    if (subject->knobs[i].multiplies) product *= fmax(1, (double)setting->value[i]);
  }
  return product;
}

//---------------------------------- running ----------------------------------

static brim_status work_run(void *state, const brim_setting *setting, const brim_trial_options *how,
                            brim_result *out) {
  const brim_work_subject *s = state;
  return brim_trial_run(*s->work, s->config, *s->device, setting, how, out);
}

static brim_status work_plan(void *state, const brim_setting *setting,
                             const brim_trial_options *how, brim_result *out) {
  const brim_work_subject *s = state;
  return brim_trial_plan(*s->work, s->config, *s->device, setting, how, out);
}

static bool work_sensible(void *state, const brim_setting *setting) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  return work->table->sensible(work->state, setting);
}

// Planning a setting that is not sensible fails with the reason.
static brim_status work_refuse(void *state, const brim_setting *setting) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  brim_plan plan;
  return work->table->plan(work->state, setting, &plan);
}

static void work_facts(void *state, brim_subject_facts *out) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  brim_work_info info;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  *out = (brim_subject_facts){.set_samples = info.set_samples,
                              .learning_rate = info.learning_rate,
                              .adaptive = info.adaptive};
}

static brim_status work_recover(brim_subject *subject) {
  brim_work_subject *s = subject->state;
  if (!s->reopen) return BRIM_OK;
  BRIM_TRY(s->reopen(s->ctx));
  brim_work_subject_open(s, subject);
  return BRIM_OK;
}

// A cache is filled by an epoch, or by as many steps as a visit of a few samples makes and more.
static brim_status work_warm(void *state, const brim_setting *setting, double seconds,
                             const volatile sig_atomic_t *stop) {
  const brim_work_subject *s = state;
  const brim_work *work = *s->work;
  brim_work_info info;
  brim_step_info step;
  brim_time start = brim_clock_now();
  brim_status status = work->table->configure(work->state, setting);
  memset(&info, 0, sizeof info);
  if (!status) work->table->info(work->state, &info);
  int64_t epoch = info.steps_per_epoch > 0 ? info.steps_per_epoch : INT64_MAX;
  for (int64_t i = 0; !status && i < epoch; i++) {
    double spent = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    if (i >= BRIM_SUBJECT_WARM_STEPS && spent > seconds) break;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    status = work->table->step(work->state, NULL, &step);
  }
  if (!status) status = brim_device_sync(*s->device);
  if (status == BRIM_EINTERRUPTED || status == BRIM_EDEVICE) return status;
  brim_status_clear();
  return BRIM_OK;
}

// Seconds that the steps beside checkpoints take at least (measure_checkpoint.c).
static double checkpoint_s(const brim_config *config, double step_s) {
  double gap = fmin(50, (double)brim_config_int(config, "checkpoint.interval"));
  return (12 + 2 * gap) * step_s;
}

static brim_status work_beside(void *state, const brim_setting *setting,
                               const brim_subject_beside *how, brim_result *out) {
  const brim_work_subject *s = state;
  brim_work *work = *s->work;
  bool saves = how->folder && s->config && brim_config_int(s->config, "checkpoint.interval") > 0;
  if (saves && checkpoint_s(s->config, how->step_s) > how->left_s) {
    *how->no_time = true;
    saves = false;
  }
  if ((*s->device)->info.host_memory && !saves) return BRIM_OK;
  BRIM_TRY(work->table->configure(work->state, setting));
  BRIM_TRY(brim_sharing_measure(*s->device, how->watch, out));
  return saves ? brim_checkpoint_measure(work, s->config, *s->device, how->folder, out) : BRIM_OK;
}

static const brim_subject_table work_table = {
    .run = work_run,
    .plan = work_plan,
    .sensible = work_sensible,
    .refuse = work_refuse,
    .facts = work_facts,
    .recover = work_recover,
    .warm = work_warm,
    .beside = work_beside,
};

void brim_work_subject_open(brim_work_subject *of, brim_subject *out) {
  const brim_work *work = *of->work;
  *out = (brim_subject){.table = &work_table,
                        .state = of,
                        .knobs = work->knobs,
                        .knob_count = work->knob_count,
                        .knob_set = work->table->knob_set,
                        .knob_owner = work->state,
                        .host = of->device && (*of->device)->info.host_memory};
}
