// Inside the workload room: the components of data sets, and the pipelines for their samples, as the
// config has them. Training and the use of trained networks read them alike.
#ifndef BRIM_WORKLOAD_SOURCE_H_
#define BRIM_WORKLOAD_SOURCE_H_

#include "config/config.h"

// A copy of a component with one argument more, or, where `value` is NULL, without those of this
// name.
brim_status brim_work_with_argument(brim_arena *arena, const brim_component **component,
                                    const char *name, const brim_value *value);
// One of hdf5 that may read data in other files.
brim_status brim_work_allow_external(brim_arena *arena, const brim_component **component);
// One with data.inputs (and data.targets) where it is hdf5 and has none of its own.
brim_status brim_work_add_names(const brim_config *config, brim_arena *arena,
                                const brim_component **component, bool targets);
// What evaluation does to its samples: transform.val, else transform.test, each as it stands; else,
// of a pipeline given for all, what does not draw. NULL = nothing.
const brim_pipeline *brim_work_eval_pipeline(const brim_config *config, bool *random);
// Whether evaluation may have images of another size than training.
bool brim_work_any_size(const brim_config *config);

#endif  // BRIM_WORKLOAD_SOURCE_H_
