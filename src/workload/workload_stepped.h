// Inside the workload room: rows of the tables of workloads that step a network over a data set. They are
// for a state that begins with a brim_stepped.
#ifndef BRIM_WORKLOAD_STEPPED_H_
#define BRIM_WORKLOAD_STEPPED_H_

#include "workload/workload_stepper_save.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first member of the state, whose other members it points to.
typedef struct brim_stepped {
  brim_stepper *stepper;
  brim_work_data *data;
  brim_loader_options *loader;                       // without a setting
  brim_checkpoint_facts (*facts)(const void *work);  // of the present setting
  brim_cache_of cache_of;
} brim_stepped;

// brim_workload_table's
brim_status brim_stepped_step(void *work, const brim_spans *spans, brim_step_info *out);
void brim_stepped_stops(void *work, const volatile sig_atomic_t *stop);
brim_status brim_stepped_metrics(void *work, bool reset, brim_work_metrics *out);
void brim_stepped_figures(void *work, const double *sums, double *values);
brim_status brim_stepped_save(void *work, const char *path, const json_t *extra, bool weights_only);
brim_status brim_stepped_load(void *work, const char *path, json_t **extra);
brim_status brim_stepped_snapshot(void *work);
brim_status brim_stepped_restore(void *work);
// brim_work_ranks_table's (workload_lead.c)
void brim_stepped_lead(void *work, bool on);
brim_status brim_stepped_follow(void *work, const brim_workload_table *table);
// Around `configure`: the other ranks do the same, and a setting stands on all of them or on none.
brim_status brim_stepped_tell_configure(const void *work, const brim_setting *setting);
brim_status brim_stepped_agree(const void *work, brim_status status);
// brim_work_evaluation_table's
brim_status brim_stepped_use(void *work, const char *path, bool averaged);
// Which settings of the loader cannot matter.
extern const brim_learn_matters brim_stepped_matters;
// All of these tables.
extern const brim_work_loading_table brim_stepped_loading;
extern const brim_work_ranks_table brim_stepped_ranks;
extern const brim_work_background_table brim_stepped_background;
extern const brim_work_diagnosis brim_stepped_diagnosis;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_STEPPED_H_
