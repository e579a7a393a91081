// Commands on the experiments of a store, an export or a database. `brim report`: one HTML page, written by
// src/ui/sweep/ui_lab.c. `brim compare` of stores: groups of experiments with equal settings side by side;
// src/record/record_lab.c matches them, src/ui/sweep draws them.
#include "cli/lab/cli_lab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "config/config.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_link.h"
#include "lab/wire/lab_wire_records.h"
#include "record/record_lab.h"
#include "record/record_sweep.h"
#include "ui/sweep/ui_sweep.h"
#include "workload/workload.h"

const char *const brim_cli_lab_values[] = {"best", "last", NULL};

typedef struct experiments {
  brim_lab_reader *reader;
  const brim_lab_set *set;
  char *place;  // as shown, without a password
} experiments;

static bool metric_of(void *ctx, const char *workload, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  const brim_config_key *row = brim_config_key_find("workload");
  const char *default_workload = row && row->default_text ? row->default_text : "";
  const brim_workload_table *table = brim_workload_find(workload[0] ? workload : default_workload);
  return table && table->metric_set && brim_sweep_metric_of(table->metric_set, key, out);
}

static const char *default_of(void *ctx, const char *name) {
  (void)ctx;
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 ? key->default_text : NULL;
}

static brim_lab_result result_of(const brim_cli *cli) {
  const char *value = brim_option_string(&cli->parse, "value", "best");
  return strcmp(value, "last") == 0 ? BRIM_LAB_LAST : BRIM_LAB_BEST;
}

// The values of every --over; NULL if it was not given.
static brim_status read_over(const brim_cli *cli, const char ***out) {
  size_t count = 0;
  *out = NULL;
  for (size_t i = 0; i < cli->parse.count; i++) {
    if (strcmp(cli->parse.items[i].option->name, "over") == 0) count += cli->parse.items[i].count;
  }
  if (count == 0) return BRIM_OK;
  const char **list = brim_calloc(count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
  count = 0;
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "over") != 0) continue;
    for (size_t k = 0; k < item->count; k++) {
      const brim_config_key *key = brim_config_key_find(item->values[k]);  // accepts aliases
      list[count++] = key ? key->name : item->values[k];
    }
  }
  *out = list;
  return BRIM_OK;
}

static void experiments_deinit(experiments *lab) {
  brim_lab_reader_destroy(lab->reader);
  brim_free(lab->place);
  *lab = (experiments){0};
}

// Reads the experiments of a place, by the options of the command.
static brim_status experiments_read(const brim_cli *cli, const char *place, experiments *out) {
  const char **over = NULL;
  bool torn = false;
  *out = (experiments){.place = brim_store_place_shown(place)};
  if (!out->place) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
  brim_status status = read_over(cli, &over);
  const brim_lab_options options = {.over = over,
                                    .ignored = brim_lab_ignored_keys(),
                                    .metric = metric_of,
                                    .default_of = default_of};
  if (!status) status = brim_lab_reader_create(&options, &out->reader);
  if (!status) status = brim_lab_records_read(place, out->reader, &torn);
  if (!status) status = brim_lab_reader_finish(out->reader, &out->set);
  brim_free(over);
  if (status) {
    experiments_deinit(out);
    return status;
  }
  if (torn) {
    brim_log_warn(
        "lab", "%s: the last line is incomplete (a run was killed while writing); brim ignores it",
        out->place);
  }
  return BRIM_OK;
}

//------------------------------------------- compare -------------------------------------------

typedef struct stores {
  brim_cli *cli;
  experiments a, b;
  const brim_lab_set *left, *right;  // the same set with --by
  brim_lab_comparison result;
  char name_a[320], name_b[320];
  json_t *differences;  // {key: [a, b]}
} stores;

//---------------------------------- reading ----------------------------------

static brim_status check_words(brim_cli *cli, const char *by) {
  const brim_option_parse *p = &cli->parse;
  if (brim_option_find(p, "fail-below")) {
    return brim_cli_usage(cli,
                          BRIM_N_("--fail-below is for records of brim bench, not for stores"));
  }
  if (p->positional_count != (by ? 1u : 2u)) {
    return by ? brim_cli_usage(cli, BRIM_N_("compare --by takes one store"))
              : brim_cli_usage(cli, BRIM_N_("compare takes two stores, or one and --by KEY"));
  }
  for (size_t i = 0; i < p->positional_count; i++) {
    if (brim_lab_kind_of(p->positional[i]) != BRIM_LAB_KIND_NONE) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s holds no experiments; brim compares a store only with another store",
                     p->positional[i]);
  }
  return BRIM_OK;
}

static brim_status match_by(stores *s, const char *by) {
  const brim_lab_set *set = s->left = s->right = s->a.set;
  BRIM_TRY(brim_lab_compare_by(set, by, result_of(s->cli), &s->result));
  // All matches have the same base value, so the first match names it.
  const brim_lab_match *first = &s->result.matches[0];
  const char *base = "-", *key = by;
  for (size_t i = 0; i < set->key_count; i++) {
    const char *x = set->exps[first->a->members[0]].values[i];
    const char *y = set->exps[first->b->members[0]].values[i];
    if (set->keys[i].over || x == y) continue;  // equal values are the same string
    key = set->keys[i].name;
    base = x ? x : brim_tr("not set");
  }
  snprintf(s->name_a, sizeof s->name_a, "%.160s, %.60s=%.80s", s->a.place, key, base);
  snprintf(s->name_b, sizeof s->name_b, brim_tr("%.160s, other values of %.60s"), s->a.place, key);
  return BRIM_OK;
}

static brim_status match_two(stores *s) {
  BRIM_TRY(experiments_read(s->cli, s->cli->parse.positional[1], &s->b));
  s->left = s->a.set;
  s->right = s->b.set;
  snprintf(s->name_a, sizeof s->name_a, "%.300s", s->a.place);
  snprintf(s->name_b, sizeof s->name_b, "%.300s", s->b.place);
  return brim_lab_compare(s->left, s->right, result_of(s->cli), &s->result);
}

//---------------------------------- other differences ----------------------------------

static bool is_key(const brim_lab_set *set, const char *name) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (strcmp(set->keys[i].name, name) == 0) return true;
  }
  return false;
}

static const char *common_value(const brim_lab_set *set, const char *name) {
  for (size_t i = 0; i < set->common_count; i++) {
    if (strcmp(set->common[i].name, name) == 0) return set->common[i].value;
  }
  return NULL;
}

static brim_status put_difference(json_t *out, const char *key, const char *a, const char *b) {
  json_t *both = json_array();
  brim_status status = brim_json_push(both, a ? json_string(a) : json_null());
  if (!status) status = brim_json_push(both, b ? json_string(b) : json_null());
  if (!status) return brim_json_put(out, key, both);
  json_decref(both);
  return status;
}

// Finds the settings that all experiments of a store share and that have another value in the other store.
static brim_status find_differences(stores *s) {
  s->differences = json_object();
  if (!s->differences) return brim_fail(BRIM_ENOMEM, "out of memory while comparing experiments");
  const brim_lab_set *sides[] = {s->left, s->right};
  for (size_t side = 0; side < 2; side++) {
    for (size_t i = 0; i < sides[side]->common_count; i++) {
      const char *name = sides[side]->common[i].name;
      if (is_key(s->left, name) || is_key(s->right, name)) continue;
      const char *a = common_value(s->left, name), *b = common_value(s->right, name);
      if (json_object_get(s->differences, name) || (a && b && strcmp(a, b) == 0)) continue;
      BRIM_TRY(put_difference(s->differences, name, a, b));
    }
  }
  return BRIM_OK;
}

static void put_differences(const stores *s, brim_str *out) {
  const char *key;
  json_t *value;
  if (json_object_size(s->differences) == 0) return;
  brim_str_append(out, brim_tr("A and B also differ in:\n"));
  json_object_foreach(s->differences, key, value) {
    const char *a = json_string_value(json_array_get(value, 0));
    const char *b = json_string_value(json_array_get(value, 1));
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, "%s: %s -> %s", key, a ? a : brim_tr("not set"),
                    b ? b : brim_tr("not set"));
    brim_str_append(out, "  ");
    if (!brim_str_status(&line)) brim_ui_clip(out, &s->cli->out, line.data, 160);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&line);
  }
}

//---------------------------------- output ----------------------------------

static void metric_line(const stores *s, char out[192]) {
  const char *key = s->result.count > 0 ? s->result.matches[0].metric_key : "";
  const brim_metric_better better = brim_lab_better(s->right, key);
  const brim_sweep_metric *display = brim_lab_display(s->right, key);
  const char *label = display ? brim_tr(display->label) : key;
  snprintf(out, 192, "%.80s, %s%s%s", label[0] ? label : brim_tr("no metric"),
           result_of(s->cli) == BRIM_LAB_BEST ? brim_tr("best value of a run")
                                              : brim_tr("last value of a run"),
           better == BRIM_BETTER_NEITHER ? "" : "; ",
           better == BRIM_BETTER_HIGHER  ? brim_tr("higher is better")
           : better == BRIM_BETTER_LOWER ? brim_tr("lower is better")
                                         : "");
}

static brim_status show_text(const stores *s) {
  brim_str text, differences;
  char metric[192];
  brim_str_init(&text);
  brim_str_init(&differences);
  put_differences(s, &differences);
  metric_line(s, metric);
  const brim_ui_lab_sides sides = {.a_name = s->name_a,
                                   .b_name = s->name_b,
                                   .differences = differences.data,
                                   .metric = metric,
                                   .a = s->left,
                                   .b = s->right};
  brim_status status = brim_str_status(&differences);
  if (!status) status = brim_ui_lab_compare(&s->cli->out, &s->result, &sides, &text);
  if (s->result.only_a > 0) {
    brim_str_printf(&text, brim_tr("  settings only in A: %zu\n"), s->result.only_a);
  }
  if (s->result.only_b > 0) {
    brim_str_printf(&text, brim_tr("  settings only in B: %zu\n"), s->result.only_b);
  }
  brim_str_deinit(&differences);
  return brim_cli_finish_text(s->cli, &text, status);
}

static bool is_certain(brim_lab_verdict verdict) {
  return verdict == BRIM_LAB_BETTER || verdict == BRIM_LAB_WORSE || verdict == BRIM_LAB_UNKNOWN;
}

static brim_status put_stats(json_t *to, const char *key, const brim_lab_stats *stats) {
  json_t *f = json_object();
  brim_status s = brim_json_put(to, key, f);
  if (!s) s = brim_json_put(f, "n", json_integer((json_int_t)stats->n));
  if (!s) s = brim_json_put(f, "mean", brim_json_number(stats->mean));
  if (!s) s = brim_json_put(f, "stddev", brim_json_number(stats->stddev));
  if (!s) s = brim_json_put(f, "ci_low", brim_json_number(stats->low));
  if (!s) s = brim_json_put(f, "ci_high", brim_json_number(stats->high));
  return s;
}

static brim_status match_json(const brim_lab_match *m, json_t *list) {
  json_t *f = json_object();
  BRIM_TRY(brim_json_push(list, f));
  BRIM_TRY(brim_json_put(f, "a_setting", json_string(m->a->label)));
  BRIM_TRY(brim_json_put(f, "b_setting", json_string(m->b->label)));
  BRIM_TRY(brim_json_put(f, "metric", json_string(m->metric_key)));
  BRIM_TRY(put_stats(f, "a", &m->a_stats));
  BRIM_TRY(put_stats(f, "b", &m->b_stats));
  BRIM_TRY(brim_json_put(f, "difference", brim_json_number(m->difference.mean)));
  BRIM_TRY(brim_json_put(f, "difference_low", brim_json_number(m->difference.low)));
  BRIM_TRY(brim_json_put(f, "difference_high", brim_json_number(m->difference.high)));
  BRIM_TRY(brim_json_put(f, "verdict", json_string(brim_lab_verdict_name(m->verdict))));
  return brim_json_put(f, "certain", json_boolean(is_certain(m->verdict)));
}

static brim_status fill_json(const stores *s, json_t *f) {
  const brim_lab_comparison *c = &s->result;
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(f, "pairs", list));
  for (size_t i = 0; i < c->count; i++) BRIM_TRY(match_json(&c->matches[i], list));
  BRIM_TRY(brim_json_put(f, "a", json_string(s->name_a)));
  BRIM_TRY(brim_json_put(f, "b", json_string(s->name_b)));
  BRIM_TRY(brim_json_put(f, "mean_difference", brim_json_number(c->overall.mean)));
  BRIM_TRY(brim_json_put(f, "mean_difference_low", brim_json_number(c->overall.low)));
  BRIM_TRY(brim_json_put(f, "mean_difference_high", brim_json_number(c->overall.high)));
  BRIM_TRY(brim_json_put(f, "mean_of", json_integer((json_int_t)c->overall.n)));
  BRIM_TRY(brim_json_put(f, "verdict", json_string(brim_lab_verdict_name(c->verdict))));
  BRIM_TRY(brim_json_put(f, "certain", json_boolean(is_certain(c->verdict))));
  BRIM_TRY(brim_json_put(f, "only_a", json_integer((json_int_t)c->only_a)));
  BRIM_TRY(brim_json_put(f, "only_b", json_integer((json_int_t)c->only_b)));
  return brim_json_put(f, "differences", json_incref(s->differences));
}

static brim_status show_json(const stores *s) {
  json_t *f = json_object();
  return brim_cli_finish_event(s->cli, "compare", f, fill_json(s, f));
}

//---------------------------------- the command ----------------------------------

static brim_status compare(stores *s) {
  const char *by = brim_option_string(&s->cli->parse, "by", NULL);
  BRIM_TRY(check_words(s->cli, by));
  BRIM_TRY(experiments_read(s->cli, s->cli->parse.positional[0], &s->a));
  BRIM_TRY(by ? match_by(s, by) : match_two(s));
  BRIM_TRY(find_differences(s));
  return s->cli->json ? show_json(s) : show_text(s);
}

brim_status brim_cli_lab_compare(brim_cli *cli) {
  stores s = {.cli = cli};
  brim_status status = compare(&s);
  json_decref(s.differences);
  brim_lab_comparison_deinit(&s.result);
  experiments_deinit(&s.a);
  experiments_deinit(&s.b);
  return status;
}

//------------------------------------------- report -------------------------------------------

static const char *const output_aliases[] = {"out", NULL};

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("HTML file to write; - is the standard output"),
     .default_text = "STORE/report.html",
     .aliases = output_aliases},
    {.name = "force", .help = BRIM_N_("replace a file that is no page of brim's")},
    BRIM_CLI_LAB_OPTIONS,
    {0},
};

typedef struct report {
  brim_cli *cli;
  const char *place;
  char *output;
  experiments lab;
} report;

//---------------------------------- places ----------------------------------

// The output: --output, else in the folder of a store, beside an export, or in the current folder for a database.
static char *output_of(const brim_cli *cli, const char *place) {
  const char *given = brim_option_string(&cli->parse, "output", NULL);
  if (given) return brim_strdup(given);
  if (brim_fs_is_dir(place)) return brim_fs_join(place, "report.html");
  if (brim_lab_kind_of(place) != BRIM_LAB_KIND_EXPORT) return brim_strdup("report.html");
  brim_str name;
  brim_str_init(&name);
  const char *dot = strrchr(place, '.'), *slash = strrchr(place, '/');
  const bool has_ending = dot && (!slash || dot > slash + 1) && dot > place;
  brim_str_append_n(&name, place, has_ending ? (size_t)(dot - place) : strlen(place));
  brim_str_append(&name, ".html");
  return brim_str_take(&name);
}

// Names the page that brim bench wrote into the folder, if there is one.
static brim_status show_bench_page(brim_cli *cli, const char *place, bool *shown) {
  char *page = brim_fs_join(place, "report.html"), *records = brim_fs_join(place, "results.jsonl");
  brim_status status = page && records ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory");
  *shown = !status && brim_fs_exists(page) && brim_fs_exists(records);
  if (*shown && cli->json) {
    json_t *f = json_object();
    status = brim_json_put(f, "output", json_string(page));
    status = brim_cli_finish_event(cli, "report", f, status);
  } else if (*shown) {
    brim_str out;
    brim_str_init(&out);
    brim_ui_styled(&out, &cli->out, BRIM_UI_BOLD, page);
    brim_str_append(&out, brim_tr(": the page that brim bench wrote\n"));
    status = brim_cli_finish_text(cli, &out, BRIM_OK);
  }
  brim_free(page);
  brim_free(records);
  return status;
}

// The store that the first word names, else the store below runs that changed last; for brim_free.
static brim_status find_place(brim_cli *cli, char **out) {
  const brim_option_parse *p = &cli->parse;
  *out = NULL;
  if (p->positional_count > 1) {
    return brim_cli_usage(cli, BRIM_N_("a report is of one store, not %zu"), p->positional_count);
  }
  if (p->positional_count == 1) {
    *out = brim_strdup(p->positional[0]);
    return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a page");
  }
  BRIM_TRY(brim_cli_sweep_newest(out));
  return *out ? BRIM_OK : brim_cli_usage(cli, BRIM_N_("name a store: brim report runs/NAME"));
}

static brim_status check_place(brim_cli *cli, const char *place, bool *shown) {
  *shown = false;
  if (brim_lab_kind_of(place) != BRIM_LAB_KIND_NONE) return BRIM_OK;
  if (brim_fs_is_dir(place)) {
    BRIM_TRY(show_bench_page(cli, place, shown));
    if (*shown) return BRIM_OK;
    return brim_fail(BRIM_ENOENT, "%s holds no store of experiments; run brim sweep first", place);
  }
  if (brim_lab_is_server(place)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "a report is made from the store itself; name what %s has as --store", place);
  }
  if (!brim_fs_exists(place)) return brim_fail(BRIM_ENOENT, "there is no %s", place);
  return brim_fail(BRIM_EINVAL,
                   "%s is no export of experiments; brim sweep export STORE writes one", place);
}

//---------------------------------- the page ----------------------------------

// The name that all grids of the store share; the place if their names differ.
static const char *title_of(const report *r) {
  const brim_lab_set *set = r->lab.set;
  for (size_t i = 0; i < set->grid_count; i++) {
    const char *name = set->grids[i].name;
    if (!name[0] || strcmp(name, set->grids[0].name) != 0) return r->lab.place;
  }
  return set->grid_count > 0 ? set->grids[0].name : r->lab.place;
}

static brim_status make_page(const report *r, brim_str *page) {
  brim_str command;
  brim_str_init(&command);
  // Leave the command out if it has the password of a database.
  if (strcmp(r->place, r->lab.place) == 0) brim_cli_command_text(r->cli, &command);
  const brim_ui_lab_options how = {.title = title_of(r),
                                   .place = r->lab.place,
                                   .command = command.len ? command.data : NULL,
                                   .result = result_of(r->cli),
                                   .now_s = brim_clock_wall_s()};
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_lab_report(&how, r->lab.set, page);
  brim_str_deinit(&command);
  return status;
}

//---------------------------------- the result ----------------------------------

static size_t count_state(const brim_lab_set *set, const char *state) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += strcmp(set->exps[i].state, state) == 0;
  return count;
}

static brim_status report_text(const report *r, size_t bytes) {
  brim_str out;
  char size[32];
  const brim_lab_set *set = r->lab.set;
  brim_str_init(&out);
  brim_format_bytes(bytes, size);
  brim_ui_styled(&out, &r->cli->out, BRIM_UI_BOLD, r->output);
  brim_str_printf(&out, brim_tr(": experiments: %zu, done: %zu, failed: %zu; groups: %zu; %s\n"),
                  set->count, count_state(set, "done"), count_state(set, "failed"),
                  set->group_count, size);
  return brim_cli_finish_text(r->cli, &out, BRIM_OK);
}

static brim_status report_json(const report *r, size_t bytes) {
  const brim_lab_set *set = r->lab.set;
  json_t *f = json_object(), *states = json_object();
  brim_status s = brim_json_put(f, "place", json_string(r->lab.place));
  if (!s) s = brim_json_put(f, "output", json_string(r->output));
  if (!s) s = brim_json_put(f, "bytes", json_integer((json_int_t)bytes));
  if (!s) s = brim_json_put(f, "experiments", json_integer((json_int_t)set->count));
  if (!s) s = brim_json_put(f, "groups", json_integer((json_int_t)set->group_count));
  if (!s) s = brim_json_put(f, "states", json_incref(states));
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT && !s; i++) {
    const char *name = brim_sweep_state_name((brim_sweep_state)i);
    s = brim_json_put(states, name, json_integer((json_int_t)count_state(set, name)));
  }
  json_decref(states);
  return brim_cli_finish_event(r->cli, "report", f, s);
}

//---------------------------------- the command ----------------------------------

static brim_status write_page(report *r) {
  brim_str page;
  brim_str_init(&page);
  brim_status status = make_page(r, &page);
  if (!status && strcmp(r->output, "-") == 0) {  // stdout gets only the page
    brim_cli_put_bytes(r->cli, page.data, page.len);
  } else if (!status) {
    status = brim_fs_write(r->output, page.data, page.len);
    if (!status) status = r->cli->json ? report_json(r, page.len) : report_text(r, page.len);
  }
  brim_str_deinit(&page);
  return status;
}

static brim_status report_of(brim_cli *cli, const char *place) {
  bool shown = false;
  BRIM_TRY(check_place(cli, place, &shown));
  if (shown) return BRIM_OK;
  report r = {.cli = cli, .place = place};
  r.output = output_of(cli, r.place);
  if (!r.output) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  brim_status status = brim_cli_check_replace(cli, r.output, BRIM_CLI_PAGE_MARK);
  if (!status) status = experiments_read(cli, r.place, &r.lab);
  if (!status) status = write_page(&r);
  experiments_deinit(&r.lab);
  brim_free(r.output);
  return status;
}

static brim_status run(brim_cli *cli) {
  char *place = NULL;
  BRIM_TRY(find_place(cli, &place));
  brim_status status = report_of(cli, place);
  brim_free(place);
  return status;
}

const brim_cli_command brim_cli_report = {
    .name = "report",
    .summary = BRIM_N_("write an HTML page of a sweep's experiments"),
    .usage = "[STORE] [--out FILE.html] [OPTIONS]",
    .about = BRIM_N_(
        "Writes one HTML page of all experiments of a sweep. It shows the best setting, mean "
        "\xc2\xb1 standard deviation over seeds, parallel coordinates and curves. A table with "
        "filters lists all experiments and their attempts. The page also lists the settings that "
        "differ, and failures by class with their last lines. It needs no network and no other "
        "file.\n"
        "STORE is the folder of a sweep, a postgres:// URL, or a file that brim sweep export "
        "wrote. Without it, brim takes the store below runs that changed last. The sweep may be "
        "running; the page shows the experiments as they are now."),
    .examples = BRIM_N_("a page of a sweep\nbrim report runs/rates\nthe last value of each run "
                        "counts, not the best\nbrim report runs/rates --value last --out "
                        "last.html\n"),
    .options = options,
    .run = run,
};
