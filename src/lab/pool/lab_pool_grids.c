// POST /v1/grids expands the text of a grid to experiments, as `brim sweep` does with a file. The text
// may not include files of this machine, and its size is limited.
//
// POST /v1/points takes experiments that a client expanded. The server reads their configs again and
// checks that each id belongs to its config.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/grid/lab_grid.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"

#define TEXT_NAME "grid"  // name of the text in messages: "grid:3:5: ..."
enum { FIRST_SHOWN = 20, MISTAKES = 50, NAME_MAX_BYTES = 200, WORDS_MAX_BYTES = 4096 };

typedef struct work {
  brim_lab_pool *pool;
  json_t *body;
  const char *name, *yaml;
  bool dry;
  int64_t priority;
  bool has_priority;
  json_t *mistakes;  // [{line, column, message}]
  brim_config *config;
  brim_lab_grid grid;
  brim_str overrides[2], text;  // text: the grid as the store keeps it
  brim_store_point *points;
} work;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a grid");
}

//---------------------------------- the request ----------------------------------

static brim_status read_work(const brim_http_request *http, work *w) {
  BRIM_TRY(brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &w->body));
  if (!json_is_object(w->body)) return brim_fail(BRIM_EINVAL, "the body is a JSON object");
  BRIM_TRY(brim_lab_wire_string(w->body, "yaml", true, &w->yaml));
  BRIM_TRY(brim_lab_wire_string(w->body, "name", false, &w->name));
  BRIM_TRY(brim_lab_wire_bool(w->body, "dry", &w->dry));
  w->has_priority = json_is_integer(json_object_get(w->body, "priority"));
  BRIM_TRY(brim_lab_wire_int(w->body, "priority", false, &w->priority));
  if (strlen(w->name) > NAME_MAX_BYTES) {
    return brim_fail(BRIM_EINVAL, "the name has more than %d bytes", NAME_MAX_BYTES);
  }
  if (strlen(w->yaml) > BRIM_CONFIG_MAX_BYTES) {
    return brim_fail(BRIM_ELIMIT, "the grid has more than %d bytes", BRIM_CONFIG_MAX_BYTES);
  }
  return BRIM_OK;
}

// Appends "name='it''s'". The quotes make any name a text, even one that looks like a number.
static void put_name(brim_str *out, const char *name) {
  brim_str_append(out, "name='");
  for (; *name; name++) {
    if (*name == '\'') brim_str_append_char(out, '\'');
    brim_str_append_char(out, *name);
  }
  brim_str_append_char(out, '\'');
}

// Turns name and priority of the request into overrides, and writes the grid's text for the store.
static brim_status put_overrides(work *w, const char *list[2], size_t *count) {
  *count = 0;
  brim_store_put_shown(&w->text, w->yaml);  // readers must not see a password of a store
  if (w->text.len > 0 && w->text.data[w->text.len - 1] != '\n') {
    brim_str_append_char(&w->text, '\n');
  }
  if (w->name[0]) put_name(&w->overrides[(*count)++], w->name);
  if (w->has_priority) {
    brim_str_printf(&w->overrides[(*count)++], "priority=%lld", (long long)w->priority);
  }
  for (size_t i = 0; i < *count; i++) {
    BRIM_TRY(brim_str_status(&w->overrides[i]));
    list[i] = w->overrides[i].data;
    brim_str_printf(&w->text, "# %s\n", list[i]);
  }
  return brim_str_status(&w->text);
}

//---------------------------------- mistakes ----------------------------------

// Reads "grid:LINE:COLUMN: text". Without a position both numbers are 0.
static void read_place(const char *text, int *line, int *column) {
  *line = *column = 0;
  if (sscanf(text, TEXT_NAME ":%d:%d: ", line, column) != 2) *line = *column = 0;
}

static brim_status put_mistake(json_t *out, const char *text) {
  int line, column;
  read_place(text, &line, &column);
  if (line > 0) BRIM_TRY(brim_json_put(out, "line", json_integer(line)));
  if (line > 0) BRIM_TRY(brim_json_put(out, "column", json_integer(column)));
  return brim_json_put(out, "message", brim_lab_wire_text(text));
}

static void on_mistake(void *ctx, const char *text) {
  work *w = (work *)ctx;
  if (json_array_size(w->mistakes) >= MISTAKES) return;
  json_t *row = json_object();
  if (put_mistake(row, text)) {
    brim_status_clear();
    json_decref(row);
  } else if (brim_json_push(w->mistakes, row)) {
    brim_status_clear();
  }
}

static brim_status put_refusal(const work *w, json_t *out, brim_status status, const char *detail) {
  BRIM_TRY(brim_json_put(out, "id", json_null()));
  BRIM_TRY(brim_json_put(out, "ok", json_false()));
  BRIM_TRY(brim_json_put(out, "status", json_string(brim_status_name(status))));
  BRIM_TRY(put_mistake(out, detail));
  return brim_json_put(out, "mistakes", json_incref(w->mistakes));
}

// Refuses the text with its mistakes. Other failures are reported as the server's.
static void refuse_grid(const work *w, brim_status status, brim_http_reply *reply) {
  char detail[1024];
  char *line = NULL;
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_utf8_trim(detail);
  bool own = status != BRIM_EINVAL && status != BRIM_EPARSE && status != BRIM_ELIMIT &&
             status != BRIM_EUNSUPPORTED && status != BRIM_ENOENT;
  json_t *out = own ? NULL : json_object();
  if (out && !put_refusal(w, out, status, detail) && !brim_json_dump(out, 0, &line)) {
    brim_str_printf(&reply->body, "%s\n", line);
    reply->status = status == BRIM_EUNSUPPORTED ? 501 : 400;
  } else {
    brim_status_set_detail(detail);
    brim_pool_reply_failure(reply, status);
  }
  brim_free(line);
  json_decref(out);
}

//---------------------------------- expanding ----------------------------------

static bool has_control(const char *text) {
  for (; *text; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
  }
  return false;
}

static brim_status expand(work *w) {
  const brim_lab_grid_maker *maker = w->pool->options.maker;
  const char *overrides[2];
  size_t count = 0;
  if (has_control(w->name)) return brim_fail(BRIM_EINVAL, "the name has control characters");
  BRIM_TRY(put_overrides(w, overrides, &count));
  const brim_config_options how = {.text = w->yaml,
                                   .text_name = TEXT_NAME,
                                   .no_include = true,
                                   .overrides = overrides,
                                   .override_count = count,
                                   .mode = BRIM_CONFIG_RUN,
                                   .facts = maker->facts,
                                   .on_mistake = on_mistake,
                                   .ctx = w};
  BRIM_TRY(brim_config_load(&how, &w->config));
  size_t points = brim_config_grid_count(w->config);
  if (points > BRIM_POOL_GRID_POINTS) {
    return brim_fail(BRIM_ELIMIT, "the grid has %zu points; a server takes at most %d at once",
                     points, BRIM_POOL_GRID_POINTS);
  }
  const brim_lab_grid_options expanding = {.name = brim_config_string(w->config, "workload"),
                                           .describe = maker->describe,
                                           .ctx = maker->ctx,
                                           .stop = maker->stop};
  BRIM_TRY(brim_lab_grid_expand(w->config, &expanding, &w->grid));
  BRIM_TRY(brim_lab_grid_points(&w->grid, &w->points));
  if (w->dry || !maker->needs) return BRIM_OK;
  return maker->needs(maker->ctx, &w->grid, w->points);
}

//---------------------------------- experiments that are there ----------------------------------

// Computes the id of a config from elsewhere, and the text that the store would keep of it.
static brim_status read_experiment(const char *config, char id[BRIM_LAB_ID], brim_str *text) {
  const brim_config_options how = {
      .text = config, .text_name = "config", .no_include = true, .mode = BRIM_CONFIG_RUN};
  char hashes[BRIM_CONFIG_IDENTITY_COUNT][BRIM_LAB_ID];
  brim_config *read;
  BRIM_TRY(brim_config_load(&how, &read));
  brim_status status = BRIM_OK;
  if (brim_config_axis_count(read) > 0) {
    status = brim_fail(BRIM_EINVAL, "the config of an experiment is a grid");
  }
  if (!status) status = brim_config_hashes(read, hashes);
  if (!status) memcpy(id, hashes[BRIM_CONFIG_EXPERIMENT], BRIM_LAB_ID);
  if (!status && text)
    status = brim_lab_config_text(read, (const char(*)[BRIM_LAB_ID])hashes, text);
  brim_config_close(read);
  return status;
}

// Refuses a point if the store has another config under its id: the results of that config would be
// taken for the point's. Settings that do not count for the id (output_dir, ...) may differ.
static brim_status check_same(brim_store *store, const brim_store_point *p) {
  brim_store_exp *exp = NULL;
  char id[BRIM_LAB_ID] = "";
  brim_status status = brim_store_get(store, p->id, &exp);
  if (status == BRIM_ENOENT) {
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  bool same = strcmp(exp->config, p->config) == 0;
  if (!same && !read_experiment(exp->config, id, NULL)) same = strcmp(id, p->id) == 0;
  brim_store_exp_free(exp);
  brim_status_clear();
  if (same) return BRIM_OK;
  return brim_fail(BRIM_EEXIST, "experiment %s is in the store with another config", p->id);
}

// Checks points against the store, some at a time, so that other requests can use it in between.
// *known: points that the store has.
static brim_status check_known(brim_lab_pool *pool, const brim_store_point *points, size_t count,
                               int64_t *known) {
  char ids[BRIM_STORE_SOME][BRIM_EXP_ID];
  *known = 0;
  for (size_t i = 0; i < count;) {
    int64_t some = 0;
    size_t n = 0, first = i;
    while (n < BRIM_STORE_SOME && i < count) {
      snprintf(ids[n++], BRIM_EXP_ID, "%s", points[i++].id);
    }
    const brim_store_some of = {(const char(*)[BRIM_EXP_ID])ids, n};
    pthread_mutex_lock(&pool->reading.lock);
    brim_status status = brim_store_known(pool->reading.store, &of, &some);
    for (size_t k = first; !status && some > 0 && k < i; k++) {
      status = check_same(pool->reading.store, &points[k]);
    }
    pthread_mutex_unlock(&pool->reading.lock);
    if (status) return status;
    *known += some;
  }
  return BRIM_OK;
}

static brim_status check_words(const brim_store_point *p) {
  const char *const words[] = {p->label, p->tags, p->metric_key};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (words[i] && (has_control(words[i]) || strlen(words[i]) > WORDS_MAX_BYTES)) {
      return brim_fail(BRIM_EINVAL, "a label, tag or metric is too long or has control characters");
    }
  }
  return BRIM_OK;
}

// Checks a point of a request, and replaces its config by the text that this server would have made.
static brim_status check_point(json_t *value, brim_store_point *p, brim_str *text) {
  char id[BRIM_LAB_ID];
  BRIM_TRY(brim_lab_wire_get(value, BRIM_LAB_POINT, p));
  if (!p->id || !p->config) return brim_fail(BRIM_EINVAL, "a point has an id and a config");
  BRIM_TRY(check_words(p));
  brim_str_clear(text);
  BRIM_TRY(read_experiment(p->config, id, text));
  if (strcmp(id, p->id) != 0) {
    return brim_fail(BRIM_EINVAL, "the config of the point %.40s is that of experiment %s", p->id,
                     id);
  }
  BRIM_TRY(brim_json_put(value, "config", brim_lab_wire_text(text->data)));
  p->config = json_string_value(json_object_get(value, "config"));
  return BRIM_OK;
}

brim_status brim_pool_check_points(brim_lab_pool *pool, json_t *request) {
  json_t *list = json_object_get(request, "points");
  size_t count = json_array_size(list);
  int64_t known;
  brim_str text;
  if (!json_is_array(list)) return brim_fail(BRIM_EINVAL, "a grid needs its points");
  brim_store_point *points = brim_calloc(count + 1, sizeof *points);
  if (!points) return no_memory();
  brim_str_init(&text);
  pthread_mutex_lock(&pool->grids);
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) {
    status = check_point(json_array_get(list, i), &points[i], &text);
  }
  pthread_mutex_unlock(&pool->grids);
  brim_str_deinit(&text);
  if (!status) status = check_known(pool, points, count, &known);
  brim_free(points);
  return status;
}

//---------------------------------- the store ----------------------------------

static brim_status submit(work *w, const brim_pool_caller *caller, brim_store_submitted *out) {
  brim_lab_pool *pool = w->pool;
  BRIM_TRY(check_known(pool, w->points, w->grid.count, &out->existing));
  if (w->dry) {
    out->added = (int64_t)w->grid.count - out->existing;
    return BRIM_OK;
  }
  const brim_store_grid grid = {.id = w->grid.id,
                                .name = w->grid.name,
                                .text = w->text.data,
                                .version = pool->options.version};
  pthread_mutex_lock(&pool->lock);
  brim_store_set_author(pool->options.store, caller->id);
  brim_status status = brim_store_submit(pool->options.store, &grid, w->points, w->grid.count, out);
  brim_store_set_author(pool->options.store, "");
  if (!status) status = brim_pool_feed_read(&pool->feed, pool->options.store);
  pthread_mutex_unlock(&pool->lock);
  return status;
}

//---------------------------------- the reply ----------------------------------

static brim_status put_first(const work *w, json_t *out) {
  json_t *first = json_array();
  BRIM_TRY(brim_json_put(out, "first", first));
  for (size_t i = 0; i < w->grid.count && i < FIRST_SHOWN; i++) {
    json_t *row = json_object();
    BRIM_TRY(brim_json_push(first, row));
    BRIM_TRY(brim_json_put(row, "id", json_string(w->grid.points[i].id)));
    BRIM_TRY(brim_json_put(row, "name", brim_lab_wire_text(w->grid.points[i].label)));
    BRIM_TRY(brim_json_put(row, "config", brim_lab_wire_text(w->grid.points[i].config)));
  }
  return BRIM_OK;
}

static brim_status put_warnings(const work *w, json_t *out) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(out, "warnings", list));
  for (size_t i = 0; i < brim_config_warning_count(w->config) && i < MISTAKES; i++) {
    BRIM_TRY(brim_json_push(list, brim_lab_wire_text(brim_config_warning(w->config, i))));
  }
  for (size_t i = 0; i < w->grid.note_count; i++) {
    BRIM_TRY(brim_json_push(list, brim_lab_wire_text(w->grid.notes[i])));
  }
  return BRIM_OK;
}

static brim_status put_reply(const work *w, const brim_store_submitted *n, json_t *out) {
  BRIM_TRY(brim_json_put(out, "id", json_null()));
  BRIM_TRY(brim_json_put(out, "ok", json_true()));
  BRIM_TRY(brim_json_put(out, "grid", json_string(w->grid.id)));
  BRIM_TRY(brim_json_put(out, "name", brim_lab_wire_text(w->grid.name)));
  BRIM_TRY(brim_json_put(out, "dry", json_boolean(w->dry)));
  BRIM_TRY(brim_json_put(out, "points", json_integer((json_int_t)w->grid.count)));
  BRIM_TRY(brim_json_put(out, "added", json_integer(n->added)));
  BRIM_TRY(brim_json_put(out, "existing", json_integer(n->existing)));
  BRIM_TRY(put_first(w, out));
  return put_warnings(w, out);
}

static brim_status reply_grid(const work *w, const brim_store_submitted *n,
                              brim_http_reply *reply) {
  char *line = NULL;
  json_t *out = json_object();
  brim_status status = out ? put_reply(w, n, out) : no_memory();
  if (!status) status = brim_json_dump(out, 0, &line);
  json_decref(out);
  if (!status) brim_str_printf(&reply->body, "%s\n", line);
  brim_free(line);
  return status ? status : brim_str_status(&reply->body);
}

static void serve_work(work *w, const brim_pool_caller *caller, const brim_http_request *http,
                       brim_http_reply *reply) {
  brim_store_submitted submitted = {0};
  brim_status status = read_work(http, w);
  pthread_mutex_lock(&w->pool->grids);
  if (!status) status = expand(w);
  pthread_mutex_unlock(&w->pool->grids);
  if (status) {
    refuse_grid(w, status, reply);
    return;
  }
  status = submit(w, caller, &submitted);
  if (!status) status = reply_grid(w, &submitted, reply);
  if (status) brim_pool_reply_failure(reply, status);
}

static void serve_grid(brim_lab_pool *pool, const brim_pool_caller *caller,
                       const brim_http_request *http, brim_http_reply *reply) {
  work w = {.pool = pool, .name = "", .yaml = "", .mistakes = json_array()};
  for (int i = 0; i < 2; i++) brim_str_init(&w.overrides[i]);
  brim_str_init(&w.text);
  if (!pool->options.maker) {
    brim_http_reply_error(reply, 501, "this server expands no grids; use brim sweep --store URL");
  } else if (!w.mistakes) {
    brim_http_reply_error(reply, 503, "out of memory while reading a grid");
  } else {
    serve_work(&w, caller, http, reply);
  }
  brim_free(w.points);
  brim_lab_grid_free(&w.grid);
  brim_config_close(w.config);
  for (int i = 0; i < 2; i++) brim_str_deinit(&w.overrides[i]);
  brim_str_deinit(&w.text);
  json_decref(w.mistakes);
  json_decref(w.body);
}

const brim_pool_route brim_pool_grid_routes[] = {
    BRIM_POOL_OWN("POST", "v1/grids", SUBMIT, serve_grid, 2 * BRIM_CONFIG_MAX_BYTES),
    {0},
};
