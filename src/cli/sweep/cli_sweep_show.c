// Actions of `brim sweep` that show something: status, log, get.

#include "cli/sweep/cli_sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/exec/lab_exec.h"
#include "lab/http/lab_http_client.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_files.h"
#include "lab/wire/lab_wire_link.h"
#include "ui/sweep/ui_sweep.h"

//--------------------------------------------- pool ---------------------------------------------
// The workers of a server, and why experiments wait.

typedef struct server_pool {
  json_t *waits;         // {id: text} in the user's language
  json_t *workers;       // rows of the reply, without workers gone for a day
  char first_wait[160];  // why the first of the queue waits; "" = none does
  int64_t now;           // by the clock of the store
} server_pool;

enum { FORGOTTEN_MS = 86400 * 1000 };  // do not list workers gone for this long

//---------------------------------- why experiments wait ----------------------------------

// The codes of lab_wire_answer.c; a newer server may have others.
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
  server_pool *pool = ctx;
  const json_t *list = json_object_get(line, "exps");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i), *waits = json_object_get(row, "waits");
    const char *id = json_string_value(json_object_get(row, "id"));
    char text[160];
    if (!id || !waits) continue;
    wait_text(waits, pool->now, text, sizeof text);
    BRIM_TRY(brim_json_put(pool->waits, id, json_string(text)));
    if (!pool->first_wait[0]) snprintf(pool->first_wait, sizeof pool->first_wait, "%s", text);
  }
  return BRIM_OK;
}

static brim_status read_waits(brim_lab_link *link, const brim_store_filter *which,
                              server_pool *pool) {
  const brim_lab_request request = {.op = BRIM_LAB_OP_LIST,
                                    .waits = true,
                                    .filter = {.grid = which->grid,
                                               .states = 1U << BRIM_EXP_QUEUED,
                                               .order = BRIM_STORE_BY_QUEUE,
                                               .limit = which->limit}};
  return brim_lab_lines(link, &request, take_waits, pool);
}

// NULL: the experiment does not wait, or the server was not asked.
static const char *sweep_pool_waits(const server_pool *pool, const char *exp) {
  return json_string_value(json_object_get(pool->waits, exp));
}

//---------------------------------- workers ----------------------------------

static brim_status take_workers(void *ctx, const json_t *line) {
  server_pool *pool = ctx;
  const json_t *list = json_object_get(line, "workers");
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *row = json_array_get(list, i);
    int64_t seen = json_integer_value(json_object_get(row, "last_seen"));
    if (pool->now - seen > FORGOTTEN_MS) continue;
    BRIM_TRY(brim_json_push(pool->workers, json_incref(row)));
  }
  return BRIM_OK;
}

static brim_status sweep_pool_read(brim_lab_link *link, const brim_store_filter *which,
                                   server_pool *out) {
  *out = (server_pool){.waits = json_object(), .workers = json_array()};
  const brim_lab_request request = {.op = BRIM_LAB_OP_WORKERS};
  brim_status status = out->waits && out->workers
                           ? brim_lab_now(link, &out->now)
                           : brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (!status) status = brim_lab_lines(link, &request, take_workers, out);
  return status ? status : read_waits(link, which, out);
}

// A zeroed pool is fine.
static void sweep_pool_deinit(server_pool *pool) {
  json_decref(pool->waits);
  json_decref(pool->workers);
}

// "2 x NVIDIA H200"; "cpu" without a GPU; nothing if the worker has not reported.
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

static brim_status sweep_pool_table(const server_pool *pool, const brim_term *term, brim_str *out) {
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

//-------------------------------------------- status --------------------------------------------
// `brim sweep status`.

//---------------------------------- status ----------------------------------

typedef struct listing {
  brim_sweep_view *view;
  // What a running sweep reports about the running and the next experiments; NULL if no sweep runs.
  json_t *rows;
  json_t *grids;     // {id: name}, the oldest first
  const char *grid;  // the id of the one that is listed; NULL = all
  server_pool pool;  // of a server
} listing;

static void add_details(const json_t *rows, brim_sweep_row *row) {
  size_t i;
  json_t *item;
  json_array_foreach(rows, i, item) {
    const char *id = json_string_value(json_object_get(item, "id"));
    if (!id || strcmp(id, row->id) != 0) continue;
    const char *devices = json_string_value(json_object_get(item, "devices"));
    const char *waiting = json_string_value(json_object_get(item, "waiting"));
    const json_t *eta = json_object_get(item, "eta_s");
    if (devices) row->devices = devices;
    if (waiting && row->state == BRIM_SWEEP_QUEUED) row->waiting = waiting;
    if (json_is_number(eta)) row->eta_s = json_number_value(eta);
  }
}

static brim_status on_row(void *ctx, const brim_store_exp *exp) {
  const listing *l = ctx;
  brim_sweep_view *view = l->view;
  brim_sweep_row row;
  brim_sweep_metric metric;
  if (exp->metric_key[0] && !brim_sweep_view_metric(view, exp->metric_key) &&
      view->metric_count < BRIM_SWEEP_METRICS && brim_cli_sweep_metric(exp->metric_key, &metric)) {
    view->metrics[view->metric_count++] = metric;
  }
  brim_lab_row_of(exp, &row);
  const char *grid = json_string_value(json_object_get(l->grids, l->grid ? l->grid : exp->grid));
  const char *waiting = sweep_pool_waits(&l->pool, exp->id);
  if (grid) row.grid = grid;
  if (waiting && row.state == BRIM_SWEEP_QUEUED) row.waiting = waiting;
  add_details(l->rows, &row);
  return brim_sweep_view_put(view, &row);
}

typedef struct best_of {
  brim_metric_better better;
  double value;
} best_of;

static brim_status on_value(void *ctx, const brim_store_metric *row, int64_t attempt) {
  best_of *best = ctx;
  bool higher = best->better == BRIM_BETTER_HIGHER;
  (void)attempt;
  if (isnan(best->value) || (higher ? row->value > best->value : row->value < best->value)) {
    best->value = row->value;
  }
  return BRIM_OK;
}

static brim_status read_best(brim_lab_link *link, brim_sweep_view *view) {
  for (size_t i = 0; i < view->row_count; i++) {
    brim_sweep_row *row = &view->rows[i];
    const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
    if (!metric || metric->better == BRIM_BETTER_NEITHER || isnan(row->metric)) continue;
    best_of best = {metric->better, (double)NAN};
    BRIM_TRY(brim_lab_read_metrics(link, row->id, row->metric_key, 0, on_value, &best));
    row->best = best.value;
  }
  return BRIM_OK;
}

// Reads view, rows and folder from the process that runs the sweep; each may be NULL. Leaves them
// as they are if no process runs it.
static brim_status ask_running_sweep(brim_lab_link *link, brim_sweep_view *view, json_t **rows,
                                     char **folder) {
  brim_lab_reply reply = {0};
  brim_status status = brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_STATUS}, &reply);
  if (status == BRIM_EUNSUPPORTED || status == BRIM_ESTATE) {
    brim_status_clear();
    status = BRIM_OK;
  } else if (!status && view) {
    status = brim_sweep_view_from_json(json_object_get(reply.more, "view"), view);
  }
  if (!status && rows) *rows = json_incref(json_object_get(reply.more, "rows"));
  const char *text = json_string_value(json_object_get(reply.more, "folder"));
  if (!status && folder && text) *folder = brim_strdup(text);
  json_decref(reply.more);
  return status;
}

static int64_t limit_of(const brim_cli *cli) {
  if (brim_option_flag(&cli->parse, "all", false)) return 0;
  return brim_option_int(&cli->parse, "limit", 40);
}

static brim_status on_first(void *ctx, const brim_store_exp *exp) {
  brim_sweep_metric metric = {.better = BRIM_BETTER_NEITHER};
  if (exp->metric_key[0] && brim_cli_sweep_metric(exp->metric_key, &metric)) {
    *(brim_metric_better *)ctx = metric.better;
  }
  return BRIM_OK;
}

// The order of results, by the metric of finished experiments.
static brim_status best_order(brim_lab_link *link, const char *grid, brim_store_order *out) {
  const brim_store_filter one = {.grid = grid, .states = 1u << BRIM_EXP_DONE, .limit = 1};
  brim_metric_better better = BRIM_BETTER_NEITHER;
  BRIM_TRY(brim_lab_list(link, &one, on_first, &better));
  *out = better == BRIM_BETTER_LOWER    ? BRIM_STORE_BY_METRIC_LOWEST
         : better == BRIM_BETTER_HIGHER ? BRIM_STORE_BY_METRIC_HIGHEST
                                        : BRIM_STORE_BY_ENDED;
  return BRIM_OK;
}

// Reads the experiments that the options choose, or a mix: running ones, best results, failures, the next in the queue,
// the rest; at most --limit in all. Parts that need less leave room for others.
static brim_status read_rows(brim_cli *cli, brim_lab_link *link, listing *l) {
  enum { PARTS = 5 };
  const brim_sweep_view *view = l->view;
  const int64_t *n = view->counts;
  const char *state = brim_option_string(&cli->parse, "state", NULL);
  const char *tag = brim_option_string(&cli->parse, "tag", NULL);
  const int64_t limit = limit_of(cli);
  if (state || tag || limit == 0 || brim_sweep_view_total(view) <= limit) {
    brim_store_filter chosen = {
        .grid = l->grid, .states = brim_cli_sweep_states(state), .tag = tag, .limit = limit};
    if (chosen.states == 1u << BRIM_EXP_DONE) BRIM_TRY(best_order(link, l->grid, &chosen.order));
    return brim_lab_list(link, &chosen, on_row, l);
  }
  struct {
    brim_store_filter filter;
    int64_t count, weight;  // weight: part of the limit, relative to the other parts
  } parts[PARTS] = {
      {{.states = 1u << BRIM_EXP_RUNNING | 1u << BRIM_EXP_LEASED},
       n[BRIM_SWEEP_RUNNING] + n[BRIM_SWEEP_LEASED],
       2},
      {{.states = 1u << BRIM_EXP_DONE}, n[BRIM_SWEEP_DONE], 2},
      {{.states = 1u << BRIM_EXP_FAILED, .order = BRIM_STORE_BY_ENDED}, n[BRIM_SWEEP_FAILED], 1},
      {{.states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE}, n[BRIM_SWEEP_QUEUED], 1},
      {{.states = 1u << BRIM_EXP_PAUSED | 1u << BRIM_EXP_CANCELLED},
       n[BRIM_SWEEP_PAUSED] + n[BRIM_SWEEP_CANCELLED],
       1}};
  BRIM_TRY(best_order(link, l->grid, &parts[1].filter.order));
  int64_t weights = 0, left = limit;
  for (int i = 0; i < PARTS; i++) weights += parts[i].count > 0 ? parts[i].weight : 0;
  for (int i = 0; i < PARTS; i++) {
    const int64_t fair = weights > 0 ? (limit * parts[i].weight + weights - 1) / weights : 0;
    int64_t rows = parts[i].count < fair ? parts[i].count : fair;
    parts[i].filter.limit = rows < left ? rows : left;
    left -= parts[i].filter.limit;
  }
  for (int i = 0; i < PARTS && left > 0; i++) {
    const int64_t more = parts[i].count - parts[i].filter.limit;
    const int64_t add = more < left ? more : left;
    parts[i].filter.limit += add;
    left -= add;
  }
  for (int i = 0; i < PARTS; i++) {
    parts[i].filter.grid = l->grid;
    if (parts[i].filter.limit > 0) BRIM_TRY(brim_lab_list(link, &parts[i].filter, on_row, l));
  }
  return BRIM_OK;
}

static brim_status on_grid(void *ctx, const brim_store_grid_row *row) {
  listing *l = ctx;
  return brim_json_put(l->grids, row->grid.id, json_string(row->grid.name));
}

// The newest grid of that name, or the one whose id has that beginning.
static brim_status find_grid(const char *name, listing *l) {
  const char *id;
  json_t *grid_name;
  json_object_foreach(l->grids, id, grid_name) {
    bool named = strcmp(json_string_value(grid_name), name) == 0;
    if (named || strncmp(id, name, strlen(name)) == 0) l->grid = id;
  }
  return l->grid ? BRIM_OK : brim_fail(BRIM_ENOENT, "the store has no grid %s", name);
}

// Reads the grids of the store, and sets the title: the name of the only grid, or the number of grids.
static brim_status read_grids(brim_cli *cli, brim_lab_link *link, listing *l) {
  const char *name = brim_option_string(&cli->parse, "grid", NULL);
  char *title = l->view->title;
  l->grids = json_object();
  if (!l->grids) return brim_fail(BRIM_ENOMEM, "out of memory while reading a sweep");
  BRIM_TRY(brim_lab_grids(link, on_grid, l));
  if (name) BRIM_TRY(find_grid(name, l));
  size_t count = json_object_size(l->grids);
  const char *only = l->grid ? l->grid : json_object_iter_key(json_object_iter(l->grids));
  if (l->grid || count == 1) {
    const char *text = json_string_value(json_object_get(l->grids, only));
    snprintf(title, sizeof l->view->title, "%s", text);
  } else if (count > 1) {
    snprintf(title, sizeof l->view->title, brim_tr("%zu grids"), count);
  }
  return BRIM_OK;
}

// Asks a server why experiments wait.
static brim_status read_pool(brim_cli *cli, brim_lab_link *link, listing *l) {
  const int64_t *counts = l->view->counts;
  const brim_store_filter which = {.grid = l->grid, .limit = limit_of(cli)};
  BRIM_TRY(sweep_pool_read(link, &which, &l->pool));
  if (counts[BRIM_SWEEP_RUNNING] + counts[BRIM_SWEEP_LEASED] == 0 && l->pool.first_wait[0]) {
    snprintf(l->view->notice, sizeof l->view->notice, brim_tr("nothing runs: %s"),
             l->pool.first_wait);
  }
  return BRIM_OK;
}

static brim_status read_view(brim_cli *cli, brim_lab_link *link, const char *place, listing *l) {
  brim_store_counts counts;
  brim_sweep_view *view = l->view;
  snprintf(view->store, sizeof view->store, "%s", brim_store_is_url(place) ? "postgres" : place);
  view->now_s = brim_clock_wall_s();
  BRIM_TRY(ask_running_sweep(link, view, &l->rows, NULL));
  BRIM_TRY(read_grids(cli, link, l));
  BRIM_TRY(brim_lab_count(link, l->grid, &counts));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) view->counts[i] = counts.states[i];
  if (brim_lab_is_server(place)) BRIM_TRY(read_pool(cli, link, l));
  BRIM_TRY(read_rows(cli, link, l));
  return read_best(link, view);
}

static brim_status print_view(brim_cli *cli, const listing *l) {
  const brim_sweep_view *view = l->view;
  const brim_ui_sweep_status_options how = {.pool = brim_lab_is_server(view->store)};
  if (cli->json) {
    json_t *value = NULL;
    BRIM_TRY(brim_sweep_view_to_json(view, true, &value));
    if (l->pool.workers) {
      brim_status put = brim_json_put(value, "workers", json_incref(l->pool.workers));
      if (put) json_decref(value);
      BRIM_TRY(put);
    }
    return brim_cli_json(cli, value);
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_sweep_status(view, &cli->out, &how, &text);
  if (!status && l->pool.workers) status = sweep_pool_table(&l->pool, &cli->out, &text);
  return brim_cli_finish_text(cli, &text, status);
}

static brim_status status_action(brim_cli *cli) {
  char *place = NULL;
  brim_lab_link *link = NULL;
  if (brim_option_int(&cli->parse, "limit", 40) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--limit must be 0 or more"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 1, &place));
  brim_sweep_view *view = brim_calloc(1, sizeof *view);
  brim_status status =
      view ? brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &link)
           : brim_fail(BRIM_ENOMEM, "out of memory while reading a sweep");
  if (view) brim_sweep_view_init(view);
  listing l = {.view = view};
  if (!status) status = read_view(cli, link, place, &l);
  if (!status) status = print_view(cli, &l);
  sweep_pool_deinit(&l.pool);
  json_decref(l.grids);
  json_decref(l.rows);
  if (view) brim_sweep_view_deinit(view);
  brim_free(view);
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}

//--------------------------------------------- log ---------------------------------------------
// The log of an attempt, from the folder of the sweep or from a server.

enum { READ_BYTES = 64 << 10, FOLLOW_MS = 300, RETRY_MS = 1000, CONNECT_MS = 10000 };

typedef struct log_view {
  brim_cli *cli;
  brim_lab_link *link;
  char exp[BRIM_EXP_ID];
  int64_t attempt;           // 0 = the last
  bool open;                 // it may still be written
  char *path;                // the log file; NULL if a server has it
  brim_http_client *client;  // the server that has the log; NULL if it is a file
  int64_t offset;            // bytes printed or skipped so far
} log_view;

// Sets the number of the last attempt if none is given, and whether the attempt still runs.
static brim_status read_attempt(log_view *v) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_lab_get(v->link, v->exp, &exp));
  bool under_way = exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING;
  if (v->attempt == 0) v->attempt = exp->attempt;
  v->open = under_way && exp->attempt == v->attempt;
  brim_store_exp_free(exp);
  return BRIM_OK;
}

static brim_status print_bytes(void *ctx, const char *data, size_t size) {
  log_view *v = ctx;
  brim_str text;
  brim_str_init(&text);
  brim_str_append_n(&text, data, size);
  brim_cli_print(v->cli, &text);
  brim_status status = brim_str_status(&text);
  brim_str_deinit(&text);
  v->offset += (int64_t)size;
  return status;
}

// Reads the log from v->offset on, from the server.
static brim_status fetch_log(log_view *v, brim_status (*take)(void *, const char *, size_t),
                             void *ctx) {
  const brim_lab_range_fetch how = {.exp = v->exp,
                                    .name = "log",
                                    .attempt = v->attempt,
                                    .from = v->offset,
                                    .take = take,
                                    .ctx = ctx};
  brim_status status = brim_lab_fetch(v->client, &how);
  if (status != BRIM_ENOENT || !v->open) return status;
  brim_status_clear();  // nothing has come yet
  return BRIM_OK;
}

// Prints the lines written since the last call.
static brim_status print_more(log_view *v) {
  if (v->client) return fetch_log(v, print_bytes, v);
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(v->path, &fd, &size));
  char *piece = brim_alloc(READ_BYTES);
  ssize_t got = piece ? 1 : 0;
  while (got > 0) {
    got = pread(fd, piece, READ_BYTES, (off_t)v->offset);
    if (got > 0 && print_bytes(v, piece, (size_t)got)) break;
  }
  close(fd);
  brim_free(piece);
  return piece ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

static brim_status append_bytes(void *ctx, const char *data, size_t size) {
  brim_str_append_n(ctx, data, size);
  return brim_str_status(ctx);
}

static brim_status read_log(log_view *v, char **text, size_t *size) {
  brim_str all;
  if (!v->client) return brim_fs_read(v->path, 0, text, size);
  brim_str_init(&all);
  brim_status status = fetch_log(v, append_bytes, &all);
  *size = all.len;
  *text = status ? NULL : brim_str_take(&all);
  brim_str_deinit(&all);
  return status || *text ? status : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

// Finds the beginning of the last `lines` lines.
static brim_status skip_lines(log_view *v, int64_t lines) {
  char *text = NULL;
  size_t size = 0;
  if (lines <= 0) return BRIM_OK;
  BRIM_TRY(read_log(v, &text, &size));
  size_t at = size;
  while (at > 0 && lines > 0) {
    at--;
    if (at > 0 && text[at - 1] == '\n') lines--;
  }
  v->offset = (int64_t)at;
  brim_free(text);
  return BRIM_OK;
}

static brim_status print_new(log_view *v, bool *last) {
  BRIM_TRY(read_attempt(v));
  *last = !v->open;  // asked before the file was read, so that nothing is missed
  return print_more(v);
}

// Follows the log. A missing server may come back: trainings continue without it.
static brim_status follow(log_view *v) {
  bool lost = false, last = false;
  for (;;) {
    brim_status status = print_new(v, &last);
    bool away = status == BRIM_EIO && v->client;
    if (status && !away) return status;
    if (away && !lost) {
      brim_cli_note(v->cli, brim_tr("cannot reach the server; brim waits for it: %s\n"),
                    brim_status_detail());
    } else if (lost && !away) {
      brim_cli_note(v->cli, "%s", brim_tr("the server answers again\n"));
    }
    brim_status_clear();
    lost = away;
    if ((last && !away) || *v->cli->stop) return BRIM_OK;
    usleep((lost ? RETRY_MS : FOLLOW_MS) * 1000);
  }
}

static brim_status show_log(log_view *v, const char *folder) {
  BRIM_TRY(brim_lab_find(v->link, v->cli->parse.positional[1], v->exp));
  BRIM_TRY(read_attempt(v));
  if (v->attempt < 1) return brim_fail(BRIM_ENOENT, "experiment %.12s has not run yet", v->exp);
  if (!v->client) BRIM_TRY(brim_cli_sweep_log_path(folder, v->exp, v->attempt, &v->path));
  if (!v->client && !brim_fs_exists(v->path)) {
    return brim_fail(BRIM_ENOENT, "there is no log at %s; --output-dir names the sweep's folder",
                     v->path);
  }
  BRIM_TRY(skip_lines(v, brim_option_int(&v->cli->parse, "lines", 0)));
  if (brim_option_flag(&v->cli->parse, "follow", false)) return follow(v);
  return print_more(v);
}

static brim_status log_action(brim_cli *cli) {
  log_view v = {.cli = cli, .attempt = brim_option_int(&cli->parse, "attempt", 0)};
  char *place = NULL, *folder = NULL;
  const char *given = brim_option_string(&cli->parse, "output-dir", NULL);
  if (cli->parse.positional_count != 2 || v.attempt < 0) {
    return brim_cli_usage(cli, BRIM_N_("log needs one experiment: brim sweep log ID"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status =
      brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &v.link);
  const char *url = !status && !given ? brim_lab_link_server(v.link) : NULL;
  if (url) {
    status = brim_lab_http_open(url, CONNECT_MS, &v.client);
  } else if (!status && !given) {
    status = ask_running_sweep(v.link, NULL, NULL, &folder);
  }
  if (!status) status = show_log(&v, given ? given : folder ? folder : place);
  brim_http_client_close(v.client);
  brim_lab_link_close(v.link);
  brim_free(v.path);
  brim_free(folder);
  brim_free(place);
  return status;
}

//--------------------------------------------- get ---------------------------------------------
// A file of an experiment, from the folder of the sweep or from a server.

enum { GET_CONNECT_MS = 10000 };

typedef struct file_request {
  brim_cli *cli;
  brim_lab_link *link;
  const brim_lab_file_kind *kind;
  char exp[BRIM_EXP_ID];
  char *path;
} file_request;

static bool not_stopped(void *ctx) {
  const file_request *g = ctx;
  return !*g->cli->stop;
}

static brim_status from_server(file_request *g, const char *url) {
  brim_lab_file_row rows[BRIM_LAB_FILE_KINDS];
  brim_http_client *client = NULL;
  BRIM_TRY(brim_lab_file_rows(g->link, g->exp, rows));
  const brim_lab_file_row *row = &rows[g->kind - brim_lab_file_kinds];
  if (!row->there) {
    return brim_fail(BRIM_ENOENT, "the server has no %s of this experiment", g->kind->name);
  }
  BRIM_TRY(brim_lab_http_open(url, GET_CONNECT_MS, &client));
  brim_lab_download how = {.client = client,
                           .exp = g->exp,
                           .kind = g->kind,
                           .row = row,
                           .path = g->path,
                           .keep = not_stopped,
                           .ctx = g};
  brim_status status = brim_lab_get_file(&how);
  brim_http_client_close(client);
  return status;
}

static brim_status from_folder(file_request *g, const char *folder) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, g->exp, &path);
  brim_str_printf(&path, "/%s", g->kind->local);
  if (!status) status = brim_str_status(&path);
  if (!status && !brim_fs_exists(path.data)) {
    status =
        brim_fail(BRIM_ENOENT, "there is no %s; --output-dir names the sweep's folder", path.data);
  }
  if (!status) status = brim_fs_copy(path.data, g->path);
  brim_str_deinit(&path);
  return status;
}

static brim_status choose_path(file_request *g) {
  const char *given = brim_option_string(&g->cli->parse, "output", NULL);
  brim_str path;
  brim_str_init(&path);
  if (given) {
    brim_str_append(&path, given);
  } else {
    brim_str_printf(&path, "%.12s-%s", g->exp, g->kind->shown);
  }
  g->path = brim_str_take(&path);
  return g->path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a sweep");
}

static brim_status print_written(const file_request *g) {
  if (!g->cli->json) {
    brim_cli_note(g->cli, brim_tr("wrote %s\n"), g->path);
    return BRIM_OK;
  }
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "exp", json_string(g->exp));
  if (!status) status = brim_json_put(f, "name", json_string(g->kind->name));
  if (!status) status = brim_json_put(f, "path", json_string(g->path));
  return brim_cli_finish_event(g->cli, "got", f, status);
}

static brim_status get(file_request *g, const char *place) {
  const char *url = brim_lab_link_server(g->link),
             *given = brim_option_string(&g->cli->parse, "output-dir", NULL);
  char *folder = NULL;
  BRIM_TRY(brim_lab_find(g->link, g->cli->parse.positional[1], g->exp));
  BRIM_TRY(choose_path(g));
  // Without --output the name is brim's own: a file of an earlier download may be replaced.
  if (brim_option_string(&g->cli->parse, "output", NULL)) {
    BRIM_TRY(brim_cli_check_replace(g->cli, g->path, NULL));
  }
  if (url && !given) return from_server(g, url);
  brim_status status = given ? BRIM_OK : ask_running_sweep(g->link, NULL, NULL, &folder);
  if (!status) status = from_folder(g, given ? given : folder ? folder : place);
  brim_free(folder);
  return status;
}

static brim_status get_action(brim_cli *cli) {
  const size_t words = cli->parse.positional_count;
  const char *name = words > 2 ? cli->parse.positional[2] : "weights";
  file_request g = {.cli = cli, .kind = brim_lab_file_find(name)};
  char *place = NULL;
  if (words < 2 || words > 3) {
    return brim_cli_usage(cli, BRIM_N_("get needs one experiment: brim sweep get ID [NAME]"));
  }
  if (!g.kind || g.kind->log) {
    return brim_cli_usage(
        cli, BRIM_N_("get takes weights, best, checkpoint, record or config, not '%.100s'"), name);
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status =
      brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &g.link);
  if (!status) status = get(&g, place);
  if (!status) status = print_written(&g);
  brim_lab_link_close(g.link);
  brim_free(g.path);
  brim_free(place);
  return status;
}

const brim_cli_verb brim_cli_sweep_show[] = {
    {"status", status_action},
    {"log", log_action},
    {"get", get_action},
    {NULL, NULL},
};
