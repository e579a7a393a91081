// Why experiments wait: the queue and the workers at one moment, looked at once for a whole reply.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ids.h"
#include "lab/lab_ops_int.h"

enum { WORKERS = 1024, LACKS = 1024, WHAT = 65 };

// What a worker could run at most. Unknown is "everything": it has said nothing.
typedef struct capacity {
  bool unknown;
  int64_t gpus;       // 1 where it runs them on the CPU
  double most_bytes;  // of its largest GPU; infinite on the CPU
} capacity;

struct brim_lab_waits {
  int64_t now;
  capacity workers[WORKERS];  // those that are here and take experiments
  size_t count, draining;
  char lacks[LACKS][WHAT];  // experiments and grids that some worker lacks something for
  size_t lack_count;
  char (*queue)[BRIM_EXP_ID];
  size_t queued;
  brim_lab_ids ranks;
};

static capacity read_capacity(const char *text) {
  json_t *status = NULL;
  capacity c = {.unknown = true};
  if (!text[0] || brim_json_parse(text, strlen(text), "status", &status)) {
    brim_status_clear();
    return c;
  }
  const json_t *gpus = json_object_get(status, "gpus");
  const bool cpu = json_integer_value(json_object_get(status, "cpu_slots")) > 0;
  if (json_is_array(gpus)) {
    c = (capacity){.gpus = (int64_t)json_array_size(gpus)};
    for (size_t i = 0; i < json_array_size(gpus); i++) {
      const json_t *total = json_object_get(json_array_get(gpus, i), "memory_total");
      c.most_bytes =
          fmax(c.most_bytes, json_is_number(total) ? json_number_value(total) : INFINITY);
    }
    if (cpu) c.most_bytes = INFINITY;
    if (cpu && c.gpus == 0) c.gpus = 1;
  }
  json_decref(status);
  return c;
}

static brim_status add_worker(void *ctx, const brim_store_worker *w) {
  brim_lab_waits *waits = (brim_lab_waits *)ctx;
  if (waits->now - w->last_seen > BRIM_WORKER_GONE_MS) return BRIM_OK;
  if (w->drain) {
    waits->draining++;
  } else if (waits->count < WORKERS) {
    waits->workers[waits->count++] = read_capacity(w->status);
  }
  return BRIM_OK;
}

static brim_status add_lack(void *ctx, const brim_store_lack *lack) {
  brim_lab_waits *w = (brim_lab_waits *)ctx;
  if (w->lack_count < LACKS) snprintf(w->lacks[w->lack_count++], WHAT, "%s", lack->what);
  return BRIM_OK;
}

static bool is_lacking(const brim_lab_waits *w, const brim_store_exp *exp) {
  for (size_t i = 0; i < w->lack_count; i++) {
    if (strcmp(w->lacks[i], exp->id) == 0 || strcmp(w->lacks[i], exp->grid) == 0) return true;
  }
  return false;
}

static brim_status fill(brim_store *store, brim_lab_waits *w) {
  BRIM_TRY(brim_store_now(store, &w->now));
  BRIM_TRY(brim_store_workers(store, add_worker, w));
  BRIM_TRY(brim_store_lacks(store, w->now - BRIM_WORKER_GONE_MS, add_lack, w));
  BRIM_TRY(brim_store_queue(store, &w->queue, &w->queued));
  BRIM_TRY(brim_lab_ids_init(&w->ranks, w->queued));
  for (size_t i = 0; i < w->queued; i++) brim_lab_ids_add(&w->ranks, w->queue[i], i);
  return BRIM_OK;
}

brim_status brim_lab_waits_create(brim_store *store, brim_lab_waits **out) {
  brim_lab_waits *w = (brim_lab_waits *)brim_calloc(1, sizeof *w);
  *out = NULL;
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  brim_status status = fill(store, w);
  if (status) {
    brim_lab_waits_destroy(w);
    return status;
  }
  *out = w;
  return BRIM_OK;
}

void brim_lab_waits_destroy(brim_lab_waits *w) {
  if (!w) return;
  brim_lab_ids_deinit(&w->ranks);
  brim_free(w->queue);
  brim_free(w);
}

// How much of what it needs some worker has: 0 = GPUs, 1 = memory, 2 = both.
static int fits(const brim_lab_waits *w, const brim_store_exp *exp) {
  int best = 0;
  for (size_t i = 0; i < w->count; i++) {
    const capacity *c = &w->workers[i];
    if (!c->unknown && c->gpus < exp->gpus) continue;
    if (c->unknown || (double)exp->need_bytes <= c->most_bytes) return 2;
    best = 1;
  }
  return best;
}

// Texts are English: a page makes its own from the code.
static const char *code_of(const brim_lab_waits *w, const brim_store_exp *exp, size_t *ahead,
                           char *text, size_t size) {
  if (exp->state == BRIM_EXP_PAUSED) {
    snprintf(text, size, "it is paused");
    return "paused";
  }
  if (w->count == 0) {
    snprintf(text, size, w->draining ? "every worker drains" : "no worker is connected");
    return w->draining ? "drain" : "no_worker";
  }
  int has = fits(w, exp);
  if (has == 0) {
    snprintf(text, size, "needs %lld GPUs, more than any worker has", (long long)exp->gpus);
    return "no_gpu";
  }
  if (has == 1) {
    snprintf(text, size, "needs %lld bytes, more than any worker's GPU has",
             (long long)exp->need_bytes);
    return "no_memory";
  }
  if (exp->not_before > w->now) {
    snprintf(text, size, "failed and is retried in %.0f s",
             (double)(exp->not_before - w->now) / 1e3);
    return "backoff";
  }
  if (!brim_lab_ids_find(&w->ranks, exp->id, ahead)) *ahead = 0;  // was queued since
  if (is_lacking(w, exp)) {
    snprintf(text, size, "waits for a worker that has what it needs: another one failed");
    return "lacks";
  }
  if (*ahead == 0) {
    snprintf(text, size, "is next, and waits for a free worker");
    return "next";
  }
  snprintf(text, size, "%zu experiments are before it", *ahead);
  return "behind";
}

brim_status brim_lab_waits_put(const brim_lab_waits *w, const brim_store_exp *exp, json_t *row) {
  char text[128];
  size_t ahead = 0;
  if (exp->state != BRIM_EXP_QUEUED && exp->state != BRIM_EXP_PAUSED) return BRIM_OK;
  const char *code = code_of(w, exp, &ahead, text, sizeof text);
  json_t *o = json_object();
  BRIM_TRY(brim_json_put(row, "waits", o));
  BRIM_TRY(brim_json_put(o, "code", json_string(code)));
  BRIM_TRY(brim_json_put(o, "text", json_string(text)));
  if (ahead > 0) BRIM_TRY(brim_json_put(o, "ahead", json_integer((json_int_t)ahead)));
  if (strcmp(code, "backoff") != 0) return BRIM_OK;
  return brim_json_put(o, "until_ms", json_integer(exp->not_before));
}
