// Actions of `brim sweep` that change experiments, sweeps or workers: cancel, pause, resume, retry, rerun-failed,
// priority, move, stop, drain, undrain.

#include "cli/sweep/cli_sweep.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lab/wire/lab_wire_link.h"

// A change to the experiments that the user names, or to all experiments in one of `states`.
typedef struct control {
  const char *name;
  unsigned states;
  brim_exp_want want;                   // BRIM_WANT_COUNT = retry
  const char *one_text, *several_text;  // messages with the number of experiments
  bool needs_sweep;                     // has no effect until a sweep runs the experiments
  unsigned no_change;                   // states of experiments that need no change
  const char
      *already_text;  // message with the number of experiments that needed no change; NULL = none
} control;

typedef struct id_list {
  char (*ids)[BRIM_EXP_ID];
  size_t count, cap;
} id_list;

static brim_status add_id(id_list *list, const char *id) {
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 64;
    char(*more)[BRIM_EXP_ID] = brim_realloc(list->ids, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
    list->ids = more;
    list->cap = cap;
  }
  snprintf(list->ids[list->count++], BRIM_EXP_ID, "%s", id);
  return BRIM_OK;
}

static brim_status on_exp(void *ctx, const brim_store_exp *exp) { return add_id(ctx, exp->id); }

// The result of a change.
typedef struct outcome {
  int64_t count;    // changed
  int64_t already;  // named, and needed no change
  int64_t failed;   // named, and could not be changed
  brim_status status;
  char why[1024];  // the last failure
} outcome;

// Counts a named experiment that could not be changed. Logs all such failures but the last, with which the command
// fails.
static void count_failure(outcome *out, brim_status status) {
  if (out->failed > 0) brim_log_error("sweep", "%s", out->why);
  out->failed++;
  out->status = status;
  snprintf(out->why, sizeof out->why, "%s", brim_status_detail());
  brim_status_clear();
}

// Collects the experiments that the command line names, or that --all and --tag choose. A name of
// no experiment, or of several, counts as failed; the other names still apply.
static brim_status choose(brim_cli *cli, brim_lab_link *link, const control *change, id_list *list,
                          outcome *out) {
  const char *tag = brim_option_string(&cli->parse, "tag", NULL);
  bool all = brim_option_flag(&cli->parse, "all", false) || tag;
  size_t named = cli->parse.positional_count - 1;
  if (all && named > 0) {
    return brim_cli_usage(cli, BRIM_N_("name experiments, or use --all or --tag, not both"));
  }
  if (!all && named == 0) {
    return brim_cli_usage(cli, BRIM_N_("name the experiments by their ids, or use --all"));
  }
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    char id[BRIM_EXP_ID];
    brim_status status = brim_lab_find(link, cli->parse.positional[i], id);
    if (status == BRIM_ENOENT || status == BRIM_EINVAL) {
      count_failure(out, status);
      continue;
    }
    if (!status) status = add_id(list, id);
    BRIM_TRY(status);
  }
  const brim_store_filter filter = {.states = change->states, .tag = tag};
  return all ? brim_lab_list(link, &filter, on_exp, list) : BRIM_OK;
}

static brim_status report_change(brim_cli *cli, const control *change, brim_lab_link *link,
                                 const char *place, const outcome *out) {
  const int64_t count = out->count, already = out->already;
  if (cli->json) {
    json_t *f = json_object();
    brim_status s = brim_json_put(f, "count", json_integer(count));
    if (!s && change->already_text) s = brim_json_put(f, "already", json_integer(already));
    if (!s && out->failed > 0) s = brim_json_put(f, "failed", json_integer(out->failed));
    if (!s) s = brim_json_put(f, "sweep_runs", json_boolean(brim_lab_link_to_sweep(link)));
    return brim_cli_finish_event(cli, change->name, f, s);
  }
  brim_str text;
  brim_str_init(&text);
  if (count > 0 || (already == 0 && out->failed == 0)) {
    brim_str_printf(&text, brim_tr(count == 1 ? change->one_text : change->several_text),
                    (long long)count);
    brim_str_append_char(&text, '\n');
  }
  if (already > 0) {
    brim_str_printf(&text, brim_tr(change->already_text), (long long)already);
    brim_str_append_char(&text, '\n');
  }
  if (change->needs_sweep && count > 0 && !brim_lab_link_to_sweep(link) &&
      !brim_store_is_url(place) && !brim_lab_is_server(place)) {
    brim_str_printf(
        &text, brim_tr("no sweep runs on this store; brim sweep --store %s starts one\n"), place);
  }
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

static brim_status apply_one(brim_lab_link *link, const control *change, const char *id,
                             outcome *out) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_lab_get(link, id, &exp));
  bool live = exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING;
  bool no_change = live ? exp->want == change->want : change->no_change >> exp->state & 1;
  brim_store_exp_free(exp);
  BRIM_TRY(change->want == BRIM_WANT_COUNT ? brim_lab_retry(link, id)
                                           : brim_lab_want(link, id, change->want));
  out->count += !no_change;
  out->already += no_change;
  return BRIM_OK;
}

// Changes every named experiment that can be changed. A store that does not answer ends the command.
static brim_status apply_named(brim_lab_link *link, const control *change, const id_list *list,
                               outcome *out) {
  for (size_t i = 0; i < list->count; i++) {
    brim_status status = apply_one(link, change, list->ids[i], out);
    if (!status) continue;
    if (status != BRIM_ESTATE) {  // the detail of BRIM_ESTATE already names the experiment
      status = brim_fail_context(status, "experiment %.12s", list->ids[i]);
      if (status != BRIM_ENOENT) return status;
    }
    count_failure(out, status);
  }
  return BRIM_OK;
}

// Changes experiments chosen by their state. Skips experiments whose state has changed since.
static brim_status apply_chosen(brim_lab_link *link, const control *change, const id_list *list,
                                outcome *out) {
  int64_t *count = &out->count;
  const char(*ids)[BRIM_EXP_ID] = (const char(*)[BRIM_EXP_ID])list->ids;
  if (change->want == BRIM_WANT_COUNT) return brim_lab_retry_each(link, ids, list->count, count);
  return brim_lab_want_each(link, ids, list->count, change->want, count);
}

static brim_status apply(brim_cli *cli, const control *change) {
  char *place = NULL;
  brim_lab_link *link = NULL;
  id_list list = {0};
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status = brim_lab_link_open(place, NULL, &link);
  outcome out = {.status = BRIM_OK};
  if (!status) status = choose(cli, link, change, &list, &out);
  bool named = cli->parse.positional_count > 1;
  if (!status) status = (named ? apply_named : apply_chosen)(link, change, &list, &out);
  bool only_failed = cli->parse.positional_count == 2 && out.failed > 0;
  if (!status && !only_failed) status = report_change(cli, change, link, place, &out);
  if (!status && out.failed > 0) {
    brim_status_set_detail(out.why);
    status = out.status;
  }
  brim_lab_link_close(link);
  brim_free(list.ids);
  brim_free(place);
  return status;
}

enum {
  WAITING = 1u << BRIM_EXP_QUEUED,
  UNDER_WAY = 1u << BRIM_EXP_LEASED | 1u << BRIM_EXP_RUNNING,
  PAUSED = 1u << BRIM_EXP_PAUSED,
  ENDED_BADLY = 1u << BRIM_EXP_FAILED | 1u << BRIM_EXP_CANCELLED
};

static brim_status cancel_action(brim_cli *cli) {
  static const control change = {"cancel",
                                 WAITING | UNDER_WAY | PAUSED,
                                 BRIM_WANT_CANCEL,
                                 BRIM_N_("cancelled %lld experiment"),
                                 BRIM_N_("cancelled %lld experiments"),
                                 false,
                                 1u << BRIM_EXP_CANCELLED,
                                 BRIM_N_("cancelled already, or being cancelled: %lld")};
  return apply(cli, &change);
}

static brim_status pause_action(brim_cli *cli) {
  static const control change = {"pause",
                                 WAITING | UNDER_WAY,
                                 BRIM_WANT_PAUSE,
                                 BRIM_N_("paused %lld experiment"),
                                 BRIM_N_("paused %lld experiments"),
                                 false,
                                 PAUSED,
                                 BRIM_N_("paused already, or being paused: %lld")};
  return apply(cli, &change);
}

static brim_status resume_action(brim_cli *cli) {
  static const control change = {"resume",
                                 PAUSED,
                                 BRIM_WANT_RUN,
                                 BRIM_N_("resumed %lld experiment"),
                                 BRIM_N_("resumed %lld experiments"),
                                 true,
                                 WAITING,
                                 BRIM_N_("queued or running already: %lld")};
  return apply(cli, &change);
}

static brim_status retry_action(brim_cli *cli) {
  static const control change = {"retry",
                                 PAUSED | ENDED_BADLY,
                                 BRIM_WANT_COUNT,
                                 BRIM_N_("queued %lld experiment again"),
                                 BRIM_N_("queued %lld experiments again"),
                                 true,
                                 WAITING,
                                 BRIM_N_("queued already: %lld")};
  return apply(cli, &change);
}

static brim_status rerun_failed_action(brim_cli *cli) {
  static const control change = {"rerun-failed",
                                 0,
                                 BRIM_WANT_COUNT,
                                 BRIM_N_("queued %lld failed experiment again"),
                                 BRIM_N_("queued %lld failed experiments again"),
                                 true,
                                 0,
                                 NULL};
  char *place = NULL;
  brim_lab_link *link = NULL;
  int64_t count = 0;
  BRIM_TRY(brim_cli_sweep_place(cli, 1, &place));
  brim_status status = brim_lab_link_open(place, NULL, &link);
  if (!status) status = brim_lab_retry_failed(link, NULL, &count);
  if (!status) status = report_change(cli, &change, link, place, &(outcome){.count = count});
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}

static brim_status priority_action(brim_cli *cli) {
  static const control change = {"priority",
                                 0,
                                 BRIM_WANT_COUNT,
                                 BRIM_N_("changed the priority of %lld experiment"),
                                 BRIM_N_("changed the priority of %lld experiments"),
                                 false,
                                 0,
                                 NULL};
  size_t words = cli->parse.positional_count;
  int64_t priority = 0;
  if (words != 3 || !brim_parse_i64(cli->parse.positional[2], &priority)) {
    return brim_cli_usage(cli, BRIM_N_("priority needs an experiment and a number"));
  }
  char *place = NULL;
  brim_lab_link *link = NULL;
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status = brim_lab_link_open(place, NULL, &link);
  if (!status) status = brim_lab_set_priority(link, cli->parse.positional[1], priority);
  if (!status) status = report_change(cli, &change, link, place, &(outcome){.count = 1});
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}

static brim_status move_action(brim_cli *cli) {
  brim_store *from = NULL, *to = NULL;
  if (cli->parse.positional_count != 3) {
    return brim_cli_usage(cli, BRIM_N_("move needs two stores: brim sweep move FROM TO"));
  }
  const char *source = cli->parse.positional[1], *target = cli->parse.positional[2];
  if (!brim_cli_sweep_has_store(source)) return brim_fail(BRIM_ENOENT, "%s has no store", source);
  brim_status status = brim_store_open(source, NULL, &from);
  if (!status) status = brim_store_open(target, NULL, &to);
  if (!status) status = brim_store_move(from, to);
  brim_store_counts counts = {0};
  if (!status) status = brim_store_count(to, NULL, &counts);
  if (!status && cli->json) {
    json_t *f = json_object();
    status = brim_json_put(f, "experiments", json_integer(counts.total));
    status = brim_cli_finish_event(cli, "moved", f, status);
  } else if (!status) {
    brim_cli_note(cli, brim_tr("moved %lld experiments to %s\n"), (long long)counts.total,
                  brim_store_place(to));
  }
  brim_store_close(to);
  brim_store_close(from);
  return status;
}

static brim_status tell_stopped(brim_cli *cli, int64_t pid) {
  if (!cli->json) {
    brim_cli_note(cli, brim_tr("the sweep (process %lld) stops; its trainings save first\n"),
                  (long long)pid);
    return BRIM_OK;
  }
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "pid", json_integer(pid));
  return brim_cli_finish_event(cli, "stop", f, status);
}

static brim_status stop_in(brim_cli *cli, const char *folder) {
  brim_lab_link *link = NULL;
  int64_t pid = 0;
  if (!brim_lab_sweep_runs(folder, &pid)) {
    return brim_fail(BRIM_ESTATE, "no sweep runs in %s", folder);
  }
  BRIM_TRY(brim_lab_link_open(folder, &(brim_lab_link_options){.sweep_only = true}, &link));
  brim_status status = brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_STOP}, NULL);
  brim_lab_link_close(link);
  return status ? status : tell_stopped(cli, pid);
}

// Stops the sweep of a folder. A database needs --output-dir, since several sweeps may use it.
static brim_status stop_action(brim_cli *cli) {
  char *place = NULL;
  const char *folder = brim_option_string(&cli->parse, "output-dir", NULL);
  if (folder) return stop_in(cli, folder);
  BRIM_TRY(brim_cli_sweep_place(cli, 1, &place));
  brim_status status =
      brim_store_is_url(place) || brim_lab_is_server(place)
          ? brim_cli_usage(cli, BRIM_N_("name the folder of the sweep with --output-dir"))
          : stop_in(cli, place);
  brim_free(place);
  return status;
}

//-------------------------------------------- drain --------------------------------------------
// A drained worker finishes its experiments and takes no more.

static brim_status drain_tell(brim_cli *cli, const char *worker, bool drain) {
  if (cli->json) {
    json_t *f = json_object();
    brim_status s = brim_json_put(f, "worker", json_string(worker));
    return brim_cli_finish_event(cli, drain ? "drain" : "undrain", f, s);
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text,
                  drain ? brim_tr("worker %s finishes its experiments and takes no more\n")
                        : brim_tr("worker %s takes experiments again\n"),
                  worker);
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

static brim_status drain_each(brim_cli *cli, brim_lab_link *link, size_t first, bool drain) {
  for (size_t i = first; i < cli->parse.positional_count; i++) {
    const char *worker = cli->parse.positional[i];
    const brim_lab_request request = {.op = BRIM_LAB_OP_DRAIN, .worker = worker, .drain = drain};
    BRIM_TRY(brim_lab_call(link, &request, NULL));
    BRIM_TRY(drain_tell(cli, worker, drain));
  }
  return BRIM_OK;
}

// The first word may be the URL of the server, since no worker has such a name. The other words are workers.
static brim_status drain_apply(brim_cli *cli, bool drain) {
  char *place = NULL;
  brim_lab_link *link = NULL;
  bool url = cli->parse.positional_count > 1 && brim_lab_is_server(cli->parse.positional[1]);
  if (cli->parse.positional_count < (url ? 3u : 2u)) {
    return brim_cli_usage(cli, BRIM_N_("name the workers; brim sweep status lists them"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, url ? 1 : 0, &place));
  brim_status status = brim_lab_link_open(place, NULL, &link);
  if (!status) status = drain_each(cli, link, url ? 2 : 1, drain);
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}

static brim_status drain_action(brim_cli *cli) { return drain_apply(cli, true); }

static brim_status undrain_action(brim_cli *cli) { return drain_apply(cli, false); }

const brim_cli_verb brim_cli_sweep_control[] = {
    {"cancel", cancel_action},
    {"pause", pause_action},
    {"resume", resume_action},
    {"retry", retry_action},
    {"rerun-failed", rerun_failed_action},
    {"priority", priority_action},
    {"drain", drain_action},
    {"undrain", undrain_action},
    {"move", move_action},
    {"stop", stop_action},
    {NULL, NULL},
};
