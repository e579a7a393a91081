// `brim report STORE`: one HTML page of all experiments of a store. The page is ui_lab.c's.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/lab/cli_lab.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_sweep.h"
#include "ui/sweep/ui_sweep.h"

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
  brim_cli_lab lab;
} report;

//---------------------------------- places ----------------------------------

// The page of a store lies in its folder, that of an export beside it, that of a database here.
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

// A folder of another command that has its page already.
static brim_status show_other(brim_cli *cli, const char *place, bool *shown) {
  char *page = brim_fs_join(place, "report.html"), *records = brim_fs_join(place, "results.jsonl");
  brim_status status = page && records ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory");
  *shown = !status && brim_fs_exists(page) && brim_fs_exists(records);
  if (*shown && cli->json) {
    json_t *f = json_object();
    status = brim_json_put(f, "output", json_string(page));
    if (!status)
      status = brim_cli_event(cli, "report", f);
    else
      json_decref(f);
  } else if (*shown) {
    brim_str out;
    brim_str_init(&out);
    brim_ui_styled(&out, &cli->out, BRIM_UI_BOLD, page);
    brim_str_append(&out, brim_tr(": the page that brim bench wrote\n"));
    status = brim_str_status(&out);
    if (!status) brim_cli_print(cli, &out);
    brim_str_deinit(&out);
  }
  brim_free(page);
  brim_free(records);
  return status;
}

// For brim_free; without a word the store below runs that changed last.
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
    BRIM_TRY(show_other(cli, place, shown));
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

// The name of the grid, or of the place where there are several.
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
  // The command line would show the password of a database.
  if (strcmp(r->place, r->lab.place) == 0) brim_cli_command_text(r->cli, &command);
  const brim_ui_lab_options how = {.title = title_of(r),
                                   .place = r->lab.place,
                                   .command = command.len ? command.data : NULL,
                                   .result = brim_cli_lab_result(r->cli),
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

static brim_status show(const report *r, size_t bytes) {
  brim_str out;
  char size[32];
  const brim_lab_set *set = r->lab.set;
  brim_str_init(&out);
  brim_format_bytes(bytes, size);
  brim_ui_styled(&out, &r->cli->out, BRIM_UI_BOLD, r->output);
  brim_str_printf(&out, brim_tr(": experiments: %zu, done: %zu, failed: %zu; groups: %zu; %s\n"),
                  set->count, count_state(set, "done"), count_state(set, "failed"),
                  set->group_count, size);
  brim_status status = brim_str_status(&out);
  if (!status) brim_cli_print(r->cli, &out);
  brim_str_deinit(&out);
  return status;
}

static brim_status show_json(const report *r, size_t bytes) {
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
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(r->cli, "report", f);
}

//---------------------------------- the command ----------------------------------

static brim_status write_page(report *r) {
  brim_str page;
  brim_str_init(&page);
  brim_status status = make_page(r, &page);
  if (!status && strcmp(r->output, "-") == 0) {  // the page alone
    brim_cli_put_bytes(r->cli, page.data, page.len);
  } else if (!status) {
    status = brim_fs_write(r->output, page.data, page.len);
    if (!status) status = r->cli->json ? show_json(r, page.len) : show(r, page.len);
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
  if (!status) status = brim_cli_lab_read(cli, r.place, &r.lab);
  if (!status) status = write_page(&r);
  brim_cli_lab_deinit(&r.lab);
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
