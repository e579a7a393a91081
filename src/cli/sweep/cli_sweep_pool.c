// What `brim sweep status` asks a server beside its experiments: its workers, and why experiments wait.
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_link.h"

enum { FORGOTTEN_MS = 86400 * 1000 };  // workers that are gone this long are not listed

//---------------------------------- why experiments wait ----------------------------------

// The codes of lab_ops_waits.c; a newer server may have others.
static void wait_text(const json_t *waits, int64_t now, char *out, size_t size) {
  static const struct {
    const char *code, *text;
  } known[] = {
      {"next", BRIM_N_("next: every worker is busy")},
      {"paused", BRIM_N_("it is paused")},
      {"no_worker", BRIM_N_("no worker is connected")},
      {"drain", BRIM_N_("every worker drains")},
      {"no_gpu", BRIM_N_("needs more GPUs than any worker has")},
      {"no_memory", BRIM_N_("needs more memory than any worker's GPU has")},
      {"lacks", BRIM_N_("waits for a worker that has its data")},
  };
  const char *code = json_string_value(json_object_get(waits, "code"));
  const char *text = json_string_value(json_object_get(waits, "text"));
  snprintf(out, size, "%s", text ? text : "");
  if (!code) return;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strcmp(known[i].code, code) == 0) snprintf(out, size, "%s", brim_tr(known[i].text));
  }
  if (strcmp(code, "behind") == 0) {
    snprintf(out, size, brim_tr("%lld before it in the queue"),
             (long long)json_integer_value(json_object_get(waits, "ahead")));
  } else if (strcmp(code, "backoff") == 0) {
    int64_t left = json_integer_value(json_object_get(waits, "until_ms")) - now;
    snprintf(out, size, brim_tr("failed; retried in %lld s"),
             (long long)(left > 0 ? (left + 999) / 1000 : 0));
  }
}

static brim_status take_waits(void *ctx, const json_t *line) {
  brim_cli_sweep_pool *pool = ctx;
  const json_t *list = json_object_get(line, "exps");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i), *waits = json_object_get(row, "waits");
    const char *id = json_string_value(json_object_get(row, "id"));
    char text[160];
    if (!id || !waits) continue;
    wait_text(waits, pool->now, text, sizeof text);
    BRIM_TRY(brim_json_put(pool->waits, id, json_string(text)));
    if (!pool->first[0]) snprintf(pool->first, sizeof pool->first, "%s", text);
  }
  return BRIM_OK;
}

static brim_status read_waits(brim_lab_link *link, const brim_store_filter *which,
                              brim_cli_sweep_pool *pool) {
  json_t *request = json_pack("{s:s,s:b,s:[s],s:s,s:I}", "op", "list", "waits", 1, "states",
                              "queued", "order", "queue", "limit", (json_int_t)which->limit);
  brim_status status = request ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (!status && which->grid) status = brim_json_put(request, "grid", json_string(which->grid));
  if (!status) status = brim_lab_stream(link, request, take_waits, pool);
  json_decref(request);
  return status;
}

const char *brim_cli_sweep_pool_waits(const brim_cli_sweep_pool *pool, const char *exp) {
  return json_string_value(json_object_get(pool->waits, exp));
}

//---------------------------------- workers ----------------------------------

static brim_status take_workers(void *ctx, const json_t *line) {
  brim_cli_sweep_pool *pool = ctx;
  const json_t *list = json_object_get(line, "workers");
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *row = json_array_get(list, i);
    int64_t seen = json_integer_value(json_object_get(row, "last_seen"));
    if (pool->now - seen > FORGOTTEN_MS) continue;
    BRIM_TRY(brim_json_push(pool->workers, json_incref(row)));
  }
  return BRIM_OK;
}

brim_status brim_cli_sweep_pool_read(brim_lab_link *link, const brim_store_filter *which,
                                     brim_cli_sweep_pool *out) {
  *out = (brim_cli_sweep_pool){.waits = json_object(), .workers = json_array()};
  json_t *request = json_pack("{s:s}", "op", "workers");
  brim_status status = out->waits && out->workers && request
                           ? brim_lab_now(link, &out->now)
                           : brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (!status) status = brim_lab_stream(link, request, take_workers, out);
  if (!status) status = read_waits(link, which, out);
  json_decref(request);
  return status;
}

void brim_cli_sweep_pool_deinit(brim_cli_sweep_pool *pool) {
  json_decref(pool->waits);
  json_decref(pool->workers);
}

// "2 x NVIDIA H200"; "cpu" where it has none, and nothing of a worker that has said nothing.
static void gpus_text(const json_t *worker, char *out, size_t size) {
  const json_t *status = json_object_get(worker, "status"), *gpus = json_object_get(status, "gpus");
  const char *name = json_string_value(json_object_get(json_array_get(gpus, 0), "name"));
  size_t count = json_array_size(gpus);
  out[0] = '\0';
  if (count > 0) {
    snprintf(out, size, "%zu x %s", count, name ? name : "GPU");
  } else if (json_is_array(gpus)) {
    snprintf(out, size, "cpu");
  }
}

static void put_worker(brim_ui_table *table, const json_t *worker, int64_t now) {
  const char *id = json_string_value(json_object_get(worker, "id"));
  int64_t age = now - json_integer_value(json_object_get(worker, "last_seen"));
  const json_t *running = json_object_get(json_object_get(worker, "status"), "running");
  bool gone = age > BRIM_WORKER_GONE_MS, drains = json_is_true(json_object_get(worker, "drain"));
  char gpus[128], span[32];
  gpus_text(worker, gpus, sizeof gpus);
  brim_format_duration(age > 1000 ? (double)(age / 1000) : 0, span);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", id ? id : "");
  brim_ui_table_add(table,
                    gone     ? BRIM_UI_BAD
                    : drains ? BRIM_UI_WARN
                             : BRIM_UI_GOOD,
                    "%s",
                    gone     ? brim_tr("gone")
                    : drains ? brim_tr("draining")
                             : brim_tr("connected"));
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", gpus);
  if (gone || !json_is_integer(running)) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", "");
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%lld", (long long)json_integer_value(running));
  }
  brim_ui_table_add(table, BRIM_UI_DIM, brim_tr("%s ago"), span);
}

brim_status brim_cli_sweep_pool_table(const brim_cli_sweep_pool *pool, const brim_term *term,
                                      brim_str *out) {
  const brim_ui_column columns[] = {{brim_tr("Worker"), NULL, BRIM_UI_LEFT, 0, 12},
                                    {brim_tr("State"), NULL, BRIM_UI_LEFT, 0, 0},
                                    {brim_tr("GPUs"), NULL, BRIM_UI_LEFT, 2, 8},
                                    {brim_tr("Running"), NULL, BRIM_UI_RIGHT, 1, 0},
                                    {brim_tr("Last seen"), NULL, BRIM_UI_RIGHT, 3, 0}};
  brim_ui_table table;
  brim_str_append_char(out, '\n');
  if (json_array_size(pool->workers) == 0) {
    brim_str_append(out, brim_tr("the server has no worker; brim worker --url adds one\n"));
    return brim_str_status(out);
  }
  brim_ui_table_init(&table, columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < json_array_size(pool->workers); i++) {
    put_worker(&table, json_array_get(pool->workers, i), pool->now);
  }
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}
