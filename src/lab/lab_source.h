// Where the experiments of a sweep or a worker are: in a store that this process has open, or with a
// server that it reaches through a link. The calls are those of lab_store.h.
#ifndef BRIM_LAB_SOURCE_H_
#define BRIM_LAB_SOURCE_H_

#include "lab/lab_link.h"
#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_lab_source {
  brim_store *store;    // NULL: with a server
  brim_lab_link *link;  // to it; both are the caller's
} brim_lab_source;

brim_status brim_lab_source_now(const brim_lab_source *source, int64_t *ms);
brim_status brim_lab_source_get(const brim_lab_source *source, const char *exp,
                                brim_store_exp **out);
brim_status brim_lab_source_list(const brim_lab_source *source, const brim_store_filter *filter,
                                 brim_store_exp_fn fn, void *ctx);
brim_status brim_lab_source_count(const brim_lab_source *source, brim_store_counts *out);
brim_status brim_lab_source_attempts(const brim_lab_source *source, const char *exp,
                                     brim_store_attempt_fn fn, void *ctx);
brim_status brim_lab_source_metrics(const brim_lab_source *source, const char *exp, const char *key,
                                    brim_store_metric_fn fn, void *ctx);
brim_status brim_lab_source_submit(const brim_lab_source *source, const brim_store_grid *grid,
                                   const brim_store_point *points, size_t count,
                                   brim_store_submitted *out);
brim_status brim_lab_source_claim(const brim_lab_source *source, const brim_store_request *request,
                                  brim_store_claimed *out);
brim_status brim_lab_source_finish(const brim_lab_source *source, const brim_store_ref *ref,
                                   const brim_store_result *result);
brim_status brim_lab_source_seen(const brim_lab_source *source, const brim_store_worker *worker);
// A server does both itself.
brim_status brim_lab_source_reap(const brim_lab_source *source, int64_t *expired);
brim_status brim_lab_source_check(const brim_lab_source *source);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_SOURCE_H_
