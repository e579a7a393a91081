// Inside the workload room: the two sets of a workload that learns from data, opened and transformed as
// the config says, and where their samples are kept (workload_cache.h). Each workload has its own.
#ifndef BRIM_WORKLOAD_DATA_H_
#define BRIM_WORKLOAD_DATA_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

// data.cache's words, in this order.
typedef enum brim_cache {
  BRIM_CACHE_NONE,
  BRIM_CACHE_RAM,
  BRIM_CACHE_GPU,
  BRIM_CACHE_AUTO,
  BRIM_CACHE_MAPPED,  // no word of data.cache: the GPU reads the mapped file, where none or auto lead
  BRIM_CACHE_COUNT
} brim_cache;

// Where the samples of each set are kept under one setting; never AUTO.
typedef struct brim_work_caching {
  brim_cache train, eval;
  // why the GPU does not read the training set's mapped file; "" = it does, or there is none
  char why[256];
} brim_work_caching;

// What may become of a set whose samples lie in a mapped file.
typedef struct brim_work_mapped {
  uint64_t bytes;  // to be page-locked; 0 = the GPU does not read it
  char why[256];   // "" = there is no such file, or nothing speaks against it
} brim_work_mapped;

typedef struct brim_work_set {
  brim_source *source;          // NULL = there is none
  brim_transforms *transforms;  // NULL = samples as they are
  brim_resident *resident;      // kept over settings that use it; NULL = none
  brim_work_mapped mapped;
} brim_work_set;

typedef struct brim_work_data {
  brim_work_context context;
  const brim_config *config;       // borrowed; outlives it
  brim_arena *arena;               // what was made of the config's components
  uint64_t seed;                   // of shares and transforms
  brim_work_set train, eval;       // eval without a source = nothing to evaluate on
  const char *const *class_names;  // of the training set's labels; NULL = it has none

  // how the sets were opened, so that they can be opened again
  const brim_component *component;
  double share;    // of the training set that evaluation has
  bool any_split;  // as in brim_work_data_open_eval

  uint64_t device_bytes;  // what was free when the workload was opened, so that every setting is
  uint64_t host_bytes;    // measured by the same; each rank has its part of the host's
  brim_work_caching caching;  // of the present setting
  // where samples are kept under the setting that was planned last, so that configuring it decides
  // nothing again
  brim_work_caching planned;
  brim_setting planned_for;
  bool has_planned;
  bool reported_why;  // the GPU does not read a mapped file
} brim_work_data;

brim_status brim_work_data_init(brim_work_data *d, const brim_work_context *context,
                                const brim_config *config);
void brim_work_data_deinit(brim_work_data *d);

// Opening, in this order. The training set as a whole:
brim_status brim_work_data_open_train(brim_work_data *d);
// data.val_fraction, or 0 where the config names a set of its own for validation.
double brim_work_val_fraction(const brim_config *config);
// Its part without `share`, up to data.limit, and its transforms.
brim_status brim_work_data_take_train(brim_work_data *d, double share);
// The evaluation set and its transforms: dataset.val, else `share` of the training set, else
// dataset.test, else the val split of the component for all; `any_split`: whatever split that names for
// training. Where such a split is missing there is no set, *missing is true, and the status detail says
// why.
brim_status brim_work_data_open_eval(brim_work_data *d, bool any_split, bool *missing);
// Warns of that, and clears the detail.
void brim_work_warn_no_eval(void);
// The sets' samples have the same shape and the same targets.
brim_status brim_work_data_check(const brim_work_data *d);
// Samples that are known to be broken end a run before it begins; `limit` as in data.limit.
brim_status brim_work_data_check_readable(const brim_work_data *d, uint64_t limit);

// The views that the training pipeline makes of a sample, by its stages alone.
int32_t brim_work_views(const brim_config *config);
// The shape of the samples that reach the network.
const brim_source_info *brim_work_set_info(const brim_work_set *set);
// Evaluation's images where they have another size than training's; warns of smaller ones.
void brim_work_set_eval_size(const brim_work_data *d, brim_net_spec *spec);

// A source, with what the config says of its path.
brim_status brim_work_open_source(const brim_work_data *d, const brim_component *component,
                                  const char *split, brim_source **out);
// A pipeline for a source; NULL where there is nothing to do.
brim_status brim_work_make_transforms(const brim_pipeline *pipeline, const brim_source *source,
                                      uint64_t seed, bool random, brim_transforms **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_DATA_H_
