// Inside the workload room: the tables of the workloads, and what their checkpoints share.
#ifndef BRIM_WORKLOAD_INT_H_
#define BRIM_WORKLOAD_INT_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"
#include "workload/workload_watch.h"

extern const brim_workload_table brim_workload_supervised;
extern const brim_workload_table brim_workload_contrastive;
extern const brim_workload_table brim_workload_ars;
extern const brim_workload_table brim_workload_mappo;

// Device, library and, where training may resume from it, the chosen algorithms into a checkpoint's
// metadata.
brim_status brim_work_put_device(brim_device *device, bool algorithms, json_t *meta);
// A checkpoint's metadata are strings.
brim_status brim_work_put_i64(json_t *meta, const char *key, int64_t value);

#endif  // BRIM_WORKLOAD_INT_H_
