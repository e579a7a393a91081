// GET /v1/names and POST /v1/bests: how a page shows metrics, and the best values of experiments. What is
// better, workloads declare.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_msg.h"
#include "base/base_status.h"
#include "base/base_words.h"
#include "lab/lab_wire.h"
#include "lab/pool/lab_pool_int.h"

static bool find_metric(const brim_lab_pool *pool, const char *key, brim_sweep_metric *out) {
  const brim_lab_grid_maker *maker = pool->options.maker;
  return maker && maker->metric && maker->metric(maker->ctx, key, out);
}

brim_metric_better brim_pool_better(const brim_lab_pool *pool, const char *key) {
  brim_sweep_metric metric;
  return find_metric(pool, key, &metric) ? metric.better : BRIM_BETTER_NEITHER;
}

//---------------------------------- names ----------------------------------

static brim_status put_name(const brim_lab_pool *pool, const char *key, json_t *list) {
  brim_sweep_metric metric;
  if (!find_metric(pool, key, &metric)) return BRIM_OK;
  json_t *row = json_object();
  BRIM_TRY(brim_json_push(list, row));
  BRIM_TRY(brim_json_put(row, "key", json_string(key)));
  BRIM_TRY(brim_json_put(row, "label", json_string(metric.label)));
  // The page chooses the language itself.
  BRIM_TRY(brim_json_put(row, "label_ko",
                         json_string(brim_tr_in(brim_msg_catalogue_of("ko"), metric.label))));
  BRIM_TRY(brim_json_put(row, "lower", json_boolean(metric.better == BRIM_BETTER_LOWER)));
  if (metric.digits) BRIM_TRY(brim_json_put(row, "digits", json_integer(metric.digits)));
  return brim_json_put(row, "percent", json_boolean(metric.format == BRIM_METRIC_PERCENT));
}

void brim_pool_names(brim_lab_pool *pool, const brim_pool_caller *caller,
                     const brim_http_request *http, brim_http_reply *reply) {
  const char *keys = brim_http_query(http, "keys");
  json_t *line = json_object(), *list = json_array();
  brim_status status = brim_json_put(line, "names", list);
  (void)caller;
  while (!status && keys && *keys) {
    char key[BRIM_METRIC_NAME];
    size_t n = strcspn(keys, ",");
    if (n > 0 && n < sizeof key) {
      snprintf(key, sizeof key, "%.*s", (int)n, keys);
      status = put_name(pool, key, list);
    }
    keys += n;
    keys += *keys == ',';
  }
  brim_pool_reply_line(reply, line, status);
}

//---------------------------------- best values ----------------------------------

static brim_status put_best(brim_lab_pool *pool, const char *exp, const char *key, json_t *list) {
  brim_store_best_value best;
  char id[BRIM_EXP_ID];
  pthread_mutex_lock(&pool->reading.lock);
  brim_status status = brim_store_find(pool->reading.store, exp, id);
  if (!status) {
    status = brim_store_best(pool->reading.store, id, key,
                             brim_pool_better(pool, key) == BRIM_BETTER_LOWER, &best);
  }
  pthread_mutex_unlock(&pool->reading.lock);
  if (status == BRIM_ENOENT) {  // removed since the page has seen it
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  if (isnan(best.value)) return BRIM_OK;
  json_t *row = json_object();
  BRIM_TRY(brim_json_push(list, row));
  BRIM_TRY(brim_json_put(row, "exp", json_string(id)));
  BRIM_TRY(brim_json_put(row, "value", brim_lab_wire_real(best.value)));
  return brim_json_put(row, "step", json_integer(best.step));
}

void brim_pool_bests(brim_lab_pool *pool, const brim_pool_caller *caller,
                     const brim_http_request *http, brim_http_reply *reply) {
  json_t *body = NULL, *line = json_object(), *list = json_array();
  const char *key = NULL;
  (void)caller;
  brim_status status = brim_json_put(line, "bests", list);
  if (!status) status = brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &body);
  if (!status) status = brim_lab_wire_string(body, "key", true, &key);
  const json_t *exps = json_object_get(body, "exps");
  size_t count = json_array_size(exps);
  if (!status && (!json_is_array(exps) || count > BRIM_STORE_SOME)) {
    status =
        brim_fail(BRIM_EINVAL, "exps is a list of at most %d ids of experiments", BRIM_STORE_SOME);
  }
  for (size_t i = 0; !status && i < count; i++) {
    const char *id = json_string_value(json_array_get(exps, i));
    status = put_best(pool, id ? id : "", key, list);
  }
  json_decref(body);
  brim_pool_reply_line(reply, line, status);
}
