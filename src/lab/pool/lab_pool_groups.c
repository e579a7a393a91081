// Requests of pages about many experiments: names of metrics, best values, groups.

#include "base/base_msg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "base/base_words.h"
#include "lab/grid/lab_grid.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"
#include "record/record_lab.h"

//----------------------------------------- best values -----------------------------------------
// GET /v1/names: labels and formats of metrics. POST /v1/bests: best values of experiments. Workloads declare
// if less or more of a metric is better.

static bool find_metric(const brim_lab_pool *pool, const char *key, brim_sweep_metric *out) {
  const brim_lab_grid_maker *maker = pool->options.maker;
  return maker && maker->metric && maker->metric(maker->ctx, key, out);
}

// Whether lower or higher values of the metric are better; NEITHER if unknown.
static brim_metric_better better_of(const brim_lab_pool *pool, const char *key) {
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

static void serve_names(brim_lab_pool *pool, const brim_pool_caller *caller,
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
                             better_of(pool, key) == BRIM_BETTER_LOWER, &best);
  }
  pthread_mutex_unlock(&pool->reading.lock);
  if (status == BRIM_ENOENT) {  // removed since the page listed it
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

static void serve_bests(brim_lab_pool *pool, const brim_pool_caller *caller,
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

//-------------------------------------------- groups --------------------------------------------
// GET /v1/keys: metrics of a grid. GET /v1/groups: its experiments in groups that differ in one key only (the
// seed). Both read some experiments at a time, so that others get the store in between.

enum { LINE_BYTES = 64 << 10 };

typedef struct exp_list {
  brim_lab_pool *pool;
  char (*ids)[BRIM_EXP_ID];
  size_t count;
} exp_list;

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a reply"); }

static brim_status read_ids(exp_list *r, const brim_http_request *http) {
  pthread_mutex_lock(&r->pool->reading.lock);
  brim_status status =
      brim_store_ids(r->pool->reading.store, brim_http_query(http, "grid"), &r->ids, &r->count);
  pthread_mutex_unlock(&r->pool->reading.lock);
  return status;
}

static brim_store_some ids_from(const exp_list *r, size_t at) {
  size_t n = r->count - at < BRIM_STORE_SOME ? r->count - at : BRIM_STORE_SOME;
  return (brim_store_some){(const char(*)[BRIM_EXP_ID])(r->ids + at), n};
}

// Appends a line of the reply. `more`: it is not the last one.
static brim_status put_line(json_t *line, bool more, brim_str *out) {
  char *text = NULL;
  brim_status status = brim_json_put(line, "id", json_null());
  if (!status) status = brim_json_put(line, "ok", json_true());
  if (!status && more) status = brim_json_put(line, "more", json_true());
  if (!status) status = brim_json_dump(line, 0, &text);
  if (!status) brim_str_printf(out, "%s\n", text);
  brim_free(text);
  return status ? status : brim_str_status(out);
}

//---------------------------------- keys ----------------------------------

static brim_status add_key(void *ctx, const char *key, int64_t count) {
  json_t *counts = (json_t *)ctx;
  int64_t before = json_integer_value(json_object_get(counts, key));
  return brim_json_put(counts, key, json_integer(before + count));
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static brim_status put_keys(json_t *counts, brim_str *out) {
  size_t n = json_object_size(counts), i = 0;
  const char **names = (const char **)brim_calloc(n + 1, sizeof *names);
  json_t *line = json_object(), *list = json_array();
  const char *key;
  json_t *value;
  brim_status status = names && line ? brim_json_put(line, "keys", list) : no_memory();
  json_object_foreach(counts, key, value) {
    if (names) names[i++] = key;
  }
  if (names) qsort(names, n, sizeof *names, by_name);
  for (i = 0; !status && i < n; i++) {
    json_t *row = json_object();
    status = brim_json_push(list, row);
    if (!status) status = brim_json_put(row, "key", json_string(names[i]));
    if (!status) {
      status = brim_json_put(row, "count", json_incref(json_object_get(counts, names[i])));
    }
  }
  if (!status) status = put_line(line, false, out);
  json_decref(line);
  brim_free(names);
  return status;
}

static void serve_keys(brim_lab_pool *pool, const brim_pool_caller *caller,
                       const brim_http_request *http, brim_http_reply *reply) {
  exp_list r = {.pool = pool};
  json_t *counts = json_object();
  (void)caller;
  brim_status status = counts ? read_ids(&r, http) : no_memory();
  for (size_t i = 0; !status && i < r.count; i += BRIM_STORE_SOME) {
    const brim_store_some some = ids_from(&r, i);
    pthread_mutex_lock(&pool->reading.lock);
    status = brim_store_keys(pool->reading.store, &some, add_key, counts);
    pthread_mutex_unlock(&pool->reading.lock);
  }
  if (!status) status = put_keys(counts, &reply->body);
  if (status) brim_pool_reply_failure(reply, status);
  json_decref(counts);
  brim_free(r.ids);
}

//---------------------------------- labels ----------------------------------

// The end of the part at `at` of a label like "lr=0.1 model=mlp(depth=3, width=4)": a space outside of brackets
// and quotes, before a name and '='.
static size_t part_end(const char *label, size_t at) {
  int depth = 0;
  char quote = '\0';
  for (size_t i = at; label[i]; i++) {
    char c = label[i];
    if (quote) {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (strchr("([{", c)) {
      depth++;
    } else if (strchr(")]}", c)) {
      depth--;
    } else if (c == ' ' && depth <= 0) {
      size_t n =
          strspn(label + i + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789");
      if (n > 0 && label[i + 1 + n] == '=') return i;
    }
  }
  return strlen(label);
}

// The parts of a label without one key, as an object of texts.
static brim_status read_label(const char *label, const char *without, json_t *out) {
  for (size_t at = 0; label[at];) {
    size_t end = part_end(label, at), name = strcspn(label + at, "=");
    if (at + name < end) {
      char key[128];
      snprintf(key, sizeof key, "%.*s", (int)name, label + at);
      brim_utf8_trim(key);
      if (strcmp(key, without) != 0) {
        BRIM_TRY(brim_json_put(out, key, json_stringn(label + at + name + 1, end - at - name - 1)));
      }
    }
    at = end + (label[end] == ' ');
  }
  return BRIM_OK;
}

//---------------------------------- groups ----------------------------------

typedef struct grouping {
  exp_list r;
  char metric_key[BRIM_METRIC_NAME];  // "" = the metric shown of each experiment
  const char *varied_key;             // experiments of a group differ only in this config key
  brim_store_take take;
  brim_metric_better better;
  json_t *groups;  // by their common parameters, in the order of their first experiments
} grouping;

// Names the group of an experiment. For the seed: the group id in the stored config ("# group ...").
// For another key: the parameters of its label without that key.
static brim_status name_group(const grouping *g, const brim_store_outcome *row, json_t *params,
                              brim_str *out) {
  char group_id[BRIM_LAB_ID] = "";
  if (strcmp(g->varied_key, "seed") == 0) brim_lab_config_mark(row->head, "group", group_id);
  if (group_id[0]) {
    brim_str_append(out, group_id);
    return brim_str_status(out);
  }
  char *text = NULL;
  BRIM_TRY(brim_json_dump(params, 0, &text));
  brim_str_append(out, text);
  brim_free(text);
  return brim_str_status(out);
}

static brim_status begin_group(json_t *params, json_t **out) {
  json_t *group = json_object();
  brim_status status = group ? brim_json_put(group, "params", json_incref(params)) : no_memory();
  if (!status) status = brim_json_put(group, "n", json_integer(0));
  if (!status) status = brim_json_put(group, "states", json_object());
  if (!status) status = brim_json_put(group, "values", json_array());
  if (!status) status = brim_json_put(group, "exps", json_array());
  if (!status) {
    *out = group;
    return BRIM_OK;
  }
  json_decref(group);
  return status;
}

static brim_status add_to_group(json_t *group, const brim_store_outcome *row) {
  const char *state = brim_exp_state_name(row->state);
  json_t *states = json_object_get(group, "states");
  int64_t n = json_integer_value(json_object_get(group, "n")),
          of_state = json_integer_value(json_object_get(states, state));
  BRIM_TRY(brim_json_put(group, "n", json_integer(n + 1)));
  BRIM_TRY(brim_json_put(states, state, json_integer(of_state + 1)));
  BRIM_TRY(brim_json_push(json_object_get(group, "exps"), json_string(row->id)));
  // leave out experiments that run or were stopped: their last value is no result
  double value = row->state == BRIM_EXP_DONE ? row->value : (double)NAN;
  return brim_json_push(json_object_get(group, "values"), brim_json_number(value));
}

static brim_status add_outcome(void *ctx, const brim_store_outcome *row) {
  grouping *g = (grouping *)ctx;
  json_t *params = json_object(), *group = NULL;
  brim_str name;
  brim_str_init(&name);
  brim_status status = params ? read_label(row->label, g->varied_key, params) : no_memory();
  if (!status) status = name_group(g, row, params, &name);
  if (!status) group = json_object_get(g->groups, name.data);
  if (!status && !group) {
    status = begin_group(params, &group);
    if (!status) status = brim_json_put(g->groups, name.data, group);
  }
  if (!status) status = add_to_group(group, row);
  brim_str_deinit(&name);
  json_decref(params);
  return status;
}

typedef struct ranked {
  json_t *group;
  size_t index;
  brim_lab_rank rank;
  brim_metric_better better;
} ranked;

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  const int order = brim_lab_rank_order(&x->rank, &y->rank, x->better);
  return order ? order : (x->index > y->index) - (x->index < y->index);
}

// Adds mean, standard deviation and best of the experiments that are done.
static brim_status put_statistics(const grouping *g, ranked *out) {
  json_t *group = out->group;
  const json_t *values = json_object_get(group, "values");
  const size_t count = json_array_size(values);
  double *list = brim_calloc(count + 1, sizeof *list);
  brim_lab_stats s;
  if (!list) return no_memory();
  for (size_t i = 0; i < count; i++) {
    const json_t *v = json_array_get(values, i);
    list[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
  }
  brim_lab_stats_of(list, count, &s);
  brim_free(list);
  out->rank = (brim_lab_rank){s.mean, s.n, count};
  out->better = g->better;
  BRIM_TRY(brim_json_put(group, "measured", json_integer((json_int_t)s.n)));
  BRIM_TRY(brim_json_put(group, "complete", json_boolean(s.n == count)));
  BRIM_TRY(brim_json_put(group, "mean", brim_json_number(s.mean)));
  BRIM_TRY(brim_json_put(group, "std", brim_json_number(s.stddev)));
  return brim_json_put(group, "best",
                       brim_json_number(g->better == BRIM_BETTER_LOWER ? s.least : s.most));
}

// Writes lines of about LINE_BYTES bytes, best group first.
static brim_status put_ranked(const ranked *list, size_t count, brim_str *out) {
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status;) {
    json_t *line = json_object(), *groups = json_array();
    status = brim_json_put(line, "groups", groups);
    for (size_t size = 0; i < count && size < LINE_BYTES && !status; i++) {
      status = brim_json_push(groups, json_incref(list[i].group));
      size += 300 + 60 * json_array_size(json_object_get(list[i].group, "exps"));
    }
    if (!status) status = put_line(line, true, out);
    json_decref(line);
  }
  return status;
}

static brim_status put_groups(grouping *g, brim_str *out) {
  const size_t count = json_object_size(g->groups);
  ranked *list = brim_calloc(count + 1, sizeof *list);
  brim_status status = list ? BRIM_OK : no_memory();
  const char *name;
  json_t *group;
  size_t n = 0;
  json_object_foreach(g->groups, name, group) {
    if (status) break;
    list[n] = (ranked){.group = group, .index = n};
    status = put_statistics(g, &list[n++]);
  }
  if (!status && n > 0) qsort(list, n, sizeof *list, by_rank);
  if (!status) status = put_ranked(list, n, out);
  brim_free(list);
  json_t *last = json_object();
  if (!status) status = brim_json_put(last, "key", json_string(g->metric_key));
  if (!status) {
    status = brim_json_put(last, "lower_is_better", json_boolean(g->better == BRIM_BETTER_LOWER));
  }
  if (!status) {
    status = brim_json_put(last, "take", json_string(g->take == BRIM_STORE_LAST ? "last" : "best"));
  }
  if (!status) status = put_line(last, false, out);
  json_decref(last);
  return status;
}

// Reads the query. Without `key`, groups show the metric of the first experiment. The result of an
// experiment is its best value if lower or higher is better, else its last value; take=last asks for
// the last value.
static brim_status read_query(grouping *g, const brim_http_request *http) {
  const char *key = brim_http_query(http, "key"), *take = brim_http_query(http, "take");
  g->varied_key = brim_http_query(http, "over");
  if (!g->varied_key) g->varied_key = "seed";
  if (key && key[0]) {
    snprintf(g->metric_key, sizeof g->metric_key, "%s", key);
  } else if (g->r.count > 0) {
    brim_store_exp *exp = NULL;
    pthread_mutex_lock(&g->r.pool->reading.lock);
    brim_status status = brim_store_get(g->r.pool->reading.store, g->r.ids[0], &exp);
    pthread_mutex_unlock(&g->r.pool->reading.lock);
    BRIM_TRY(status);
    snprintf(g->metric_key, sizeof g->metric_key, "%s", exp->metric_key);
    brim_store_exp_free(exp);
  }
  brim_utf8_trim(g->metric_key);
  g->better = better_of(g->r.pool, g->metric_key);
  if (take && strcmp(take, "last") != 0 && strcmp(take, "best") != 0) {
    return brim_fail(BRIM_EINVAL, "take is last or best");
  }
  if (take && strcmp(take, "last") == 0) return BRIM_OK;
  if (g->better == BRIM_BETTER_LOWER) g->take = BRIM_STORE_LEAST;
  if (g->better == BRIM_BETTER_HIGHER) g->take = BRIM_STORE_GREATEST;
  return BRIM_OK;
}

static void serve_groups(brim_lab_pool *pool, const brim_pool_caller *caller,
                         const brim_http_request *http, brim_http_reply *reply) {
  grouping g = {.r = {.pool = pool}, .groups = json_object()};
  (void)caller;
  brim_status status = g.groups ? read_ids(&g.r, http) : no_memory();
  if (!status) status = read_query(&g, http);
  for (size_t i = 0; !status && i < g.r.count; i += BRIM_STORE_SOME) {
    const brim_store_some some = ids_from(&g.r, i);
    pthread_mutex_lock(&pool->reading.lock);
    status = brim_store_outcomes(pool->reading.store, &some, g.metric_key[0] ? g.metric_key : NULL,
                                 g.take, add_outcome, &g);
    pthread_mutex_unlock(&pool->reading.lock);
  }
  if (!status) status = put_groups(&g, &reply->body);
  if (status) brim_pool_reply_failure(reply, status);
  json_decref(g.groups);
  brim_free(g.r.ids);
}

const brim_pool_route brim_pool_group_routes[] = {
    BRIM_POOL_OWN("GET", "v1/keys", READ, serve_keys, 0),
    BRIM_POOL_OWN("GET", "v1/groups", READ, serve_groups, 0),
    BRIM_POOL_OWN("GET", "v1/names", READ, serve_names, 0),
    BRIM_POOL_OWN("POST", "v1/bests", READ, serve_bests, BRIM_POOL_BODY_SMALL),
    {0},
};
