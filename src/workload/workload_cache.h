// Inside the workload room: where the samples of a workload's sets are kept. Decided from the plan alone
// (and what was free when the workload was opened), so that planning a setting and building it agree.
#ifndef BRIM_WORKLOAD_CACHE_H_
#define BRIM_WORKLOAD_CACHE_H_

#include "workload/workload_data.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const brim_cache_choices[];  // NULL-terminated
const char *brim_cache_name(brim_cache cache);  // "mapped"
// The plan's row of samples that are kept in host memory.
#define BRIM_CACHE_ROW BRIM_N_("dataset cache")

// What a setting asks for, and what else it takes.
typedef struct brim_cache_request {
  brim_cache asked;
  const brim_loader_options *train, *eval;
  uint64_t limit;         // gpu.memory_limit; 0 = none
  uint64_t loaders;       // bytes of all loaders (brim_work_counts_loaders)
  const brim_plan *plan;  // the network's
} brim_cache_request;

// Notes what is free, and whether the GPU can read the sources' mapped files.
brim_status brim_work_data_measure(brim_work_data *d);
// Device and host are one memory, and gpu.memory_limit is for the loaders too.
bool brim_work_counts_loaders(const brim_work_data *d, uint64_t limit);
// Fills in the loaders' part of a request that has `asked` and `limit`: options, and bytes where they
// count.
brim_status brim_work_request(const brim_work_data *d, const brim_loader_options *train,
                              const brim_loader_options *eval, brim_cache_request *r);
// No worker loads samples that are kept so: they lie on the device, or are read by it.
bool brim_cache_needs_no_workers(brim_cache cache);
// What the network may take of a limit: a data set that shall lie on the device is there before it.
uint64_t brim_work_left_to_net(const brim_work_data *d, const brim_cache_request *r);
// Where samples are kept; an error says why what was asked for cannot be.
brim_status brim_work_choose_cache(const brim_work_data *d, const brim_cache_request *r,
                                   brim_work_caching *out);
// Rows of the loaders and of what is kept.
brim_status brim_work_plan_sets(const brim_work_data *d, const brim_work_caching *caching,
                                const brim_loader_options *train, const brim_loader_options *eval,
                                brim_plan *plan);
// Makes d->planned so: sources kept in memory, resident sets made or given back. `limit`: of training
// samples, 0 = all.
brim_status brim_work_keep(brim_work_data *d, uint64_t limit);
// A setting that does not stand holds no memory.
void brim_work_drop_residents(brim_work_data *d);
uint64_t brim_work_locked_bytes(const brim_work_data *d);
// The default of data.num_workers: between a quarter and half of the cores.
int64_t brim_work_default_workers(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_CACHE_H_
