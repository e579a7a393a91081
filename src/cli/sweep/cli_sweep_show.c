// `brim sweep status`.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"
#include "lab/lab_sweep.h"
#include "ui/ui_sweep.h"

//---------------------------------- status ----------------------------------

typedef struct listing {
  brim_sweep_view *view;
  json_t *rows;      // what the sweep knows of those that run and come next; NULL = none runs
  json_t *grids;     // {id: name}, the oldest first
  const char *grid;  // the id of the one that is listed; NULL = all
  brim_cli_sweep_pool pool;  // of a server
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
  const char *waiting = brim_cli_sweep_pool_waits(&l->pool, exp->id);
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

brim_status brim_cli_sweep_ask(brim_lab_link *link, brim_sweep_view *view, json_t **rows,
                               char **folder) {
  json_t *reply = NULL, *request = json_pack("{s:s}", "op", "status");
  brim_status status = request ? brim_lab_call(link, request, &reply) : BRIM_ENOMEM;
  if (status == BRIM_EUNSUPPORTED || status == BRIM_ESTATE) {
    brim_status_clear();
    status = BRIM_OK;
  } else if (!status && view) {
    status = brim_sweep_view_from_json(json_object_get(reply, "view"), view);
  }
  if (!status && rows) *rows = json_incref(json_object_get(reply, "rows"));
  const char *text = json_string_value(json_object_get(reply, "folder"));
  if (!status && folder && text) *folder = brim_strdup(text);
  json_decref(reply);
  json_decref(request);
  return status;
}

static unsigned states_of(const char *name) {
  brim_exp_state state = BRIM_EXP_QUEUED;
  if (!name || !brim_exp_state_of(name, &state)) return 0;
  return state == BRIM_EXP_RUNNING ? 1u << BRIM_EXP_RUNNING | 1u << BRIM_EXP_LEASED : 1u << state;
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

// Which results come first, by the metric of those that are done.
static brim_status best_order(brim_lab_link *link, const char *grid, brim_store_order *out) {
  const brim_store_filter one = {.grid = grid, .states = 1u << BRIM_EXP_DONE, .limit = 1};
  brim_metric_better better = BRIM_BETTER_NEITHER;
  BRIM_TRY(brim_lab_list(link, &one, on_first, &better));
  *out = better == BRIM_BETTER_LOWER    ? BRIM_STORE_BY_METRIC_LOWEST
         : better == BRIM_BETTER_HIGHER ? BRIM_STORE_BY_METRIC_HIGHEST
                                        : BRIM_STORE_BY_ENDED;
  return BRIM_OK;
}

// What the options choose, or a fair mix: what runs, the best results, failures, the next in the queue,
// the rest. At most --limit in all; what one part leaves over, the others get.
static brim_status read_rows(brim_cli *cli, brim_lab_link *link, listing *l) {
  enum { PARTS = 5 };
  const brim_sweep_view *view = l->view;
  const int64_t *n = view->counts;
  const char *state = brim_option_string(&cli->parse, "state", NULL);
  const char *tag = brim_option_string(&cli->parse, "tag", NULL);
  const int64_t limit = limit_of(cli);
  if (state || tag || limit == 0 || brim_sweep_view_total(view) <= limit) {
    brim_store_filter chosen = {
        .grid = l->grid, .states = states_of(state), .tag = tag, .limit = limit};
    if (chosen.states == 1u << BRIM_EXP_DONE) BRIM_TRY(best_order(link, l->grid, &chosen.order));
    return brim_lab_list(link, &chosen, on_row, l);
  }
  struct {
    brim_store_filter filter;
    int64_t count, share;  // of the limit, in quarters
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
  int64_t shares = 0, left = limit;
  for (int i = 0; i < PARTS; i++) shares += parts[i].count > 0 ? parts[i].share : 0;
  for (int i = 0; i < PARTS; i++) {
    const int64_t fair = shares > 0 ? (limit * parts[i].share + shares - 1) / shares : 0;
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

// The newest grid of that name, or the one whose id begins so.
static brim_status find_grid(const char *name, listing *l) {
  const char *id;
  json_t *is;
  json_object_foreach(l->grids, id, is) {
    bool named = strcmp(json_string_value(is), name) == 0;
    if (named || strncmp(id, name, strlen(name)) == 0) l->grid = id;
  }
  return l->grid ? BRIM_OK : brim_fail(BRIM_ENOENT, "the store has no grid %s", name);
}

// A store with several grids is not named by one of them.
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

// Why nothing runs, where a server has something to run.
static brim_status read_pool(brim_cli *cli, brim_lab_link *link, listing *l) {
  const int64_t *counts = l->view->counts;
  const brim_store_filter which = {.grid = l->grid, .limit = limit_of(cli)};
  BRIM_TRY(brim_cli_sweep_pool_read(link, &which, &l->pool));
  if (counts[BRIM_SWEEP_RUNNING] + counts[BRIM_SWEEP_LEASED] == 0 && l->pool.first[0]) {
    snprintf(l->view->notice, sizeof l->view->notice, brim_tr("nothing runs: %s"), l->pool.first);
  }
  return BRIM_OK;
}

static brim_status read_view(brim_cli *cli, brim_lab_link *link, const char *place, listing *l) {
  brim_store_counts counts;
  brim_sweep_view *view = l->view;
  snprintf(view->store, sizeof view->store, "%s", brim_store_is_url(place) ? "postgres" : place);
  view->now_s = brim_clock_wall_s();
  BRIM_TRY(brim_cli_sweep_ask(link, view, &l->rows, NULL));
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
  if (!status && l->pool.workers) status = brim_cli_sweep_pool_table(&l->pool, &cli->out, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_sweep_status(brim_cli *cli) {
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
  brim_cli_sweep_pool_deinit(&l.pool);
  json_decref(l.grids);
  json_decref(l.rows);
  if (view) brim_sweep_view_deinit(view);
  brim_free(view);
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}
