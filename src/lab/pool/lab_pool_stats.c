// GET /metrics: what the server does, as Prometheus reads it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_wire.h"
#include "lab/pool/lab_pool_int.h"

enum { GONE_MS = 45000 };

// Upper bounds of the reply times; the last one has none.
static const double bounds[BRIM_POOL_BOUNDS - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                    0.1,   0.25,   0.5,   1,    2.5};

void brim_pool_stats_init(brim_pool_stats *s) {
  *s = (brim_pool_stats){0};
  pthread_mutex_init(&s->mutex, NULL);
}

void brim_pool_stats_deinit(brim_pool_stats *s) { pthread_mutex_destroy(&s->mutex); }

void brim_pool_stats_reply(brim_pool_stats *s, int status, double seconds) {
  int at = 0;
  if (status == 0) status = 200;
  while (at < BRIM_POOL_BOUNDS - 1 && seconds > bounds[at]) at++;
  pthread_mutex_lock(&s->mutex);
  if (status > 0 && status < BRIM_POOL_STATUSES) s->by_status[status]++;
  s->buckets[at]++;
  s->seconds += seconds;
  pthread_mutex_unlock(&s->mutex);
}

void brim_pool_stats_listen(brim_pool_stats *s, int change) {
  pthread_mutex_lock(&s->mutex);
  s->listeners += change;
  pthread_mutex_unlock(&s->mutex);
}

//---------------------------------- text ----------------------------------

static void put_head(brim_str *out, const char *name, const char *type, const char *help) {
  brim_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// A value of a label: what comes from a worker may have any character.
static void put_label(brim_str *out, const char *text) {
  for (; text && *text; text++) {
    if (*text == '\n') {
      brim_str_append(out, "\\n");
      continue;
    }
    if (*text == '"' || *text == '\\') brim_str_append_char(out, '\\');
    brim_str_append_char(out, *text);
  }
}

static void put_number(brim_str *out, double value) {
  char text[32];
  brim_format_f64(value, text);
  brim_str_printf(out, " %s\n", isnan(value) ? "NaN" : text);
}

static void put_replies(brim_str *out, brim_pool_stats *s) {
  static const char name[] = "brim_http_request_duration_seconds";
  int64_t count = 0;
  pthread_mutex_lock(&s->mutex);
  put_head(out, "brim_http_requests_total", "counter", "Replies by HTTP status.");
  for (int i = 0; i < BRIM_POOL_STATUSES; i++) {
    if (s->by_status[i] == 0) continue;
    brim_str_printf(out, "brim_http_requests_total{status=\"%d\"} %lld\n", i,
                    (long long)s->by_status[i]);
  }
  put_head(out, name, "histogram", "Time until a reply was made.");
  for (int i = 0; i < BRIM_POOL_BOUNDS; i++) {
    char bound[32] = "+Inf";
    count += s->buckets[i];
    if (i < BRIM_POOL_BOUNDS - 1) brim_format_f64(bounds[i], bound);
    brim_str_printf(out, "%s_bucket{le=\"%s\"} %lld\n", name, bound, (long long)count);
  }
  brim_str_printf(out, "%s_sum", name);
  put_number(out, s->seconds);
  brim_str_printf(out, "%s_count %lld\n", name, (long long)count);
  put_head(out, "brim_listeners", "gauge", "Open streams of events.");
  brim_str_printf(out, "brim_listeners %d\n", s->listeners);
  pthread_mutex_unlock(&s->mutex);
}

//---------------------------------- workers ----------------------------------

typedef struct workers {
  int64_t now;
  json_t *list;  // [{id, drain, status}] of those that are here
} workers;

static brim_status add_worker(void *ctx, const brim_store_worker *w) {
  workers *all = (workers *)ctx;
  json_t *status = NULL, *row = NULL;
  if (all->now - w->last_seen > GONE_MS) return BRIM_OK;
  if (w->status[0] && brim_json_parse(w->status, strlen(w->status), "status", &status)) {
    brim_status_clear();
  }
  row = json_object();
  BRIM_TRY(brim_json_push(all->list, row));
  BRIM_TRY(brim_json_put(row, "status", status ? status : json_object()));
  return brim_json_put(row, "id", brim_lab_wire_text(w->id));
}

static void put_gpu_metric(brim_str *out, const workers *all, const char *name, const char *help,
                           const char *field) {
  put_head(out, name, "gauge", help);
  for (size_t i = 0; i < json_array_size(all->list); i++) {
    const json_t *row = json_array_get(all->list, i);
    const json_t *gpus = json_object_get(json_object_get(row, "status"), "gpus");
    for (size_t g = 0; g < json_array_size(gpus); g++) {
      const json_t *gpu = json_array_get(gpus, g), *value = json_object_get(gpu, field);
      if (!json_is_number(value)) continue;
      brim_str_printf(out, "%s{worker=\"", name);
      put_label(out, json_string_value(json_object_get(row, "id")));
      brim_str_append(out, "\",gpu=\"");
      put_label(out, json_string_value(json_object_get(gpu, "uuid")));
      brim_str_append(out, "\"}");
      put_number(out, json_number_value(value));
    }
  }
}

static void put_workers(brim_str *out, const workers *all) {
  put_head(out, "brim_workers", "gauge", "Workers that reported within 45 seconds.");
  brim_str_printf(out, "brim_workers %zu\n", json_array_size(all->list));
  put_gpu_metric(out, all, "brim_gpu_utilization_percent", "Time in which a kernel ran.", "util");
  put_gpu_metric(out, all, "brim_gpu_memory_used_bytes", "Device memory in use.", "memory_used");
  put_gpu_metric(out, all, "brim_gpu_memory_total_bytes", "Device memory.", "memory_total");
  put_gpu_metric(out, all, "brim_gpu_power_watts", "Power that the GPU draws.", "power_w");
  put_gpu_metric(out, all, "brim_gpu_temperature_celsius", "Temperature of the GPU.", "temp_c");
}

// What was not measured is left out: an alarm for little room would take any number for one.
static void put_room(brim_str *out, brim_pool_room *r) {
  pthread_mutex_lock(&r->mutex);
  if (r->free_bytes >= 0) {
    put_head(out, "brim_disk_free_bytes", "gauge", "Free space for the store and files.");
    brim_str_printf(out, "brim_disk_free_bytes %lld\n", (long long)r->free_bytes);
    put_head(out, "brim_disk_total_bytes", "gauge", "Size of that disk.");
    brim_str_printf(out, "brim_disk_total_bytes %lld\n", (long long)r->total_bytes);
  }
  put_head(out, "brim_disk_full", "gauge", "1 while the server refuses files or changes.");
  brim_str_printf(out, "brim_disk_full %d\n", r->full ? 1 : 0);
  put_head(out, "brim_disk_refused_total", "counter", "Writes refused for lack of room.");
  brim_str_printf(out, "brim_disk_refused_total %lld\n", (long long)r->refused);
  pthread_mutex_unlock(&r->mutex);
}

static void put_counts(brim_str *out, const brim_store_counts *counts) {
  put_head(out, "brim_experiments", "gauge", "Experiments by state.");
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    brim_str_printf(out, "brim_experiments{state=\"%s\"} %lld\n",
                    brim_exp_state_name((brim_exp_state)i), (long long)counts->states[i]);
  }
}

void brim_pool_metrics(brim_lab_pool *pool, const brim_pool_caller *caller,
                       const brim_http_request *http, brim_http_reply *reply) {
  brim_store_counts counts;
  workers all = {.list = json_array()};
  brim_str *out = &reply->body;
  int64_t bytes = 0;
  (void)caller;
  (void)http;
  pthread_mutex_lock(&pool->reading.lock);
  brim_store *store = pool->reading.store;
  brim_status status = brim_store_count(store, NULL, &counts);
  if (!status) status = brim_store_now(store, &all.now);
  if (!status) status = brim_store_workers(store, add_worker, &all);
  if (!status) status = brim_store_bytes(store, &bytes);
  pthread_mutex_unlock(&pool->reading.lock);
  if (status) {
    brim_pool_reply_failure(reply, status);
  } else {
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    put_head(out, "brim_build_info", "gauge", "Version of the server.");
    brim_str_append(out, "brim_build_info{version=\"");
    put_label(out, pool->options.version);
    brim_str_append(out, "\"} 1\n");
    put_counts(out, &counts);
    put_workers(out, &all);
    put_replies(out, &pool->stats);
    put_room(out, &pool->room);
    put_head(out, "brim_connections", "gauge", "Open connections.");
    brim_str_printf(out, "brim_connections %d\n", brim_http_server_connections(pool->http));
    put_head(out, "brim_store_bytes", "gauge", "Size of the store.");
    brim_str_printf(out, "brim_store_bytes %lld\n", (long long)bytes);
  }
  json_decref(all.list);
}
