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
  json_t *rows;  // what the sweep knows of those that run and come next; NULL = none runs
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

// Under way, failed, and the next in the queue; or what the options choose.
static brim_status read_rows(brim_cli *cli, brim_lab_link *link, listing *l, bool *all) {
  const brim_sweep_view *view = l->view;
  const char *state = brim_option_string(&cli->parse, "state", NULL);
  const char *tag = brim_option_string(&cli->parse, "tag", NULL);
  int64_t limit = brim_option_int(&cli->parse, "limit", 40);
  if (brim_option_flag(&cli->parse, "all", false)) limit = 0;
  int64_t open = view->counts[BRIM_SWEEP_QUEUED] + view->counts[BRIM_SWEEP_LEASED] +
                 view->counts[BRIM_SWEEP_RUNNING] + view->counts[BRIM_SWEEP_FAILED];
  *all = state || tag || limit == 0 || open == 0 || brim_sweep_view_total(view) <= limit;
  if (*all) {
    const brim_store_filter chosen = {.states = states_of(state), .tag = tag, .limit = limit};
    return brim_lab_list(link, &chosen, on_row, l);
  }
  const brim_store_filter parts[] = {
      {.states = 1u << BRIM_EXP_RUNNING | 1u << BRIM_EXP_LEASED, .limit = limit},
      {.states = 1u << BRIM_EXP_FAILED, .order = BRIM_STORE_BY_ENDED, .limit = limit},
      {.states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = limit},
      {.states = 1u << BRIM_EXP_DONE, .order = BRIM_STORE_BY_ENDED, .limit = limit},
      {.states = 1u << BRIM_EXP_PAUSED | 1u << BRIM_EXP_CANCELLED, .limit = limit}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    BRIM_TRY(brim_lab_list(link, &parts[i], on_row, l));
  }
  return BRIM_OK;
}

static brim_status on_grid(void *ctx, const brim_store_grid_row *row) {
  brim_sweep_view *view = ctx;
  snprintf(view->title, sizeof view->title, "%s", row->grid.name);
  return BRIM_OK;
}

static brim_status read_view(brim_cli *cli, brim_lab_link *link, const char *place,
                             brim_sweep_view *view, bool *all) {
  brim_store_counts counts;
  listing l = {.view = view};
  snprintf(view->store, sizeof view->store, "%s", brim_store_is_url(place) ? "postgres" : place);
  view->now_s = brim_clock_wall_s();
  BRIM_TRY(brim_lab_count(link, NULL, &counts));
  brim_status status = brim_cli_sweep_ask(link, view, &l.rows, NULL);
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) view->counts[i] = counts.states[i];
  if (!status && !view->title[0]) status = brim_lab_grids(link, on_grid, view);
  if (!status) status = read_rows(cli, link, &l, all);
  json_decref(l.rows);
  return status ? status : read_best(link, view);
}

static brim_status print_view(brim_cli *cli, const brim_sweep_view *view, bool all) {
  const brim_ui_sweep_status_options how = {.all = all, .pool = brim_lab_is_server(view->store)};
  if (cli->json) {
    json_t *value = NULL;
    BRIM_TRY(brim_sweep_view_to_json(view, true, &value));
    return brim_cli_json(cli, value);
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_sweep_status(view, &cli->out, &how, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_sweep_status(brim_cli *cli) {
  char *place = NULL;
  brim_lab_link *link = NULL;
  bool all = false;
  if (brim_option_int(&cli->parse, "limit", 40) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--limit must be 0 or more"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 1, &place));
  brim_sweep_view *view = brim_calloc(1, sizeof *view);
  brim_status status =
      view ? brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &link)
           : brim_fail(BRIM_ENOMEM, "out of memory while reading a sweep");
  if (view) brim_sweep_view_init(view);
  if (!status) status = read_view(cli, link, place, view, &all);
  if (!status) status = print_view(cli, view, all);
  if (view) brim_sweep_view_deinit(view);
  brim_free(view);
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}
