// See lab_source.h.
#include "lab/lab_source.h"

#include "base/base_status.h"

brim_status brim_lab_source_now(const brim_lab_source *s, int64_t *ms) {
  return s->store ? brim_store_now(s->store, ms) : brim_lab_now(s->link, ms);
}

static brim_status keep(void *ctx, const brim_store_exp *exp) {
  return brim_store_exp_copy(exp, ctx);
}

brim_status brim_lab_source_get(const brim_lab_source *s, const char *exp, brim_store_exp **out) {
  *out = NULL;
  if (s->store) return brim_store_get(s->store, exp, out);
  brim_status status = brim_lab_get(s->link, exp, keep, out);
  if (!status) return BRIM_OK;
  brim_store_exp_free(*out);
  *out = NULL;
  return status;
}

brim_status brim_lab_source_list(const brim_lab_source *s, const brim_store_filter *filter,
                                 brim_store_exp_fn fn, void *ctx) {
  static const brim_store_filter all = {0};
  if (s->store) return brim_store_list(s->store, filter, fn, ctx);
  return brim_lab_list(s->link, filter ? filter : &all, fn, ctx);
}

brim_status brim_lab_source_count(const brim_lab_source *s, brim_store_counts *out) {
  return s->store ? brim_store_count(s->store, NULL, out) : brim_lab_count(s->link, NULL, out);
}

brim_status brim_lab_source_attempts(const brim_lab_source *s, const char *exp,
                                     brim_store_attempt_fn fn, void *ctx) {
  if (s->store) return brim_store_attempts(s->store, exp, fn, ctx);
  return brim_lab_attempts(s->link, exp, fn, ctx);
}

brim_status brim_lab_source_metrics(const brim_lab_source *s, const char *exp, const char *key,
                                    brim_store_metric_fn fn, void *ctx) {
  if (s->store) return brim_store_read_metrics(s->store, exp, key, fn, ctx);
  return brim_lab_read_metrics(s->link, exp, key, 0, fn, ctx);
}

brim_status brim_lab_source_submit(const brim_lab_source *s, const brim_store_grid *grid,
                                   const brim_store_point *points, size_t count,
                                   brim_store_submitted *out) {
  if (s->store) return brim_store_submit(s->store, grid, points, count, out);
  return brim_lab_submit(s->link, grid, points, count, out);
}

brim_status brim_lab_source_claim(const brim_lab_source *s, const brim_store_request *request,
                                  brim_store_claimed *out) {
  if (s->store) return brim_store_claim(s->store, request, out);
  return brim_lab_claim(s->link, request, out);
}

brim_status brim_lab_source_finish(const brim_lab_source *s, const brim_store_ref *ref,
                                   const brim_store_result *result) {
  if (s->store) return brim_store_finish(s->store, ref, result, NULL);
  return brim_lab_finish(s->link, ref, result, NULL);
}

brim_status brim_lab_source_seen(const brim_lab_source *s, const brim_store_worker *worker) {
  return s->store ? brim_store_worker_seen(s->store, worker) : brim_lab_seen(s->link, worker);
}

brim_status brim_lab_source_reap(const brim_lab_source *s, int64_t *expired) {
  *expired = 0;
  return s->store ? brim_store_reap(s->store, expired) : BRIM_OK;
}

brim_status brim_lab_source_check(const brim_lab_source *s) {
  return s->store ? brim_store_check_file(s->store) : BRIM_OK;
}
