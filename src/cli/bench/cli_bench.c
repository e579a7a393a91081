// `brim bench`: parses options and prints a session over the config's workload. src/tune/tune_session.c chooses
// settings, measures, recommends and writes the files.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job.h"
#include "tune/tune.h"

typedef struct bench {
  brim_cli *cli;
  brim_cli_job job;
  brim_work_subject work;
  brim_subject subject;  // a view of `work`, which the session measures
  brim_tuning session;
  brim_device_info gpu;  // owns the device name that `facts` points to
  brim_config_facts facts;
  char *jsonl_path, *html_path, *best_path;
} bench;

enum { DEFAULT_VERIFY_SECONDS = 60 };

//------------------------------------------- options -------------------------------------------

static const char *const checkpointing_choices[] = {"true", "false", "auto", NULL};
static const char *const cache_choices[] = {"none", "ram", "gpu", "auto", NULL};
static const char *const batch_aliases[] = {"batch-size", NULL};
static const char *const precision_aliases[] = {"precision", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "batch-sizes",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("batch sizes to try"),
     .key = "benchmark.batch_sizes",
     .default_text = BRIM_N_("powers of two up to what the plan allows"),
     .aliases = batch_aliases},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("numbers of loader threads to try"),
     .key = "benchmark.num_workers_options",
     .aliases = brim_cli_workers_aliases},
    {.name = "precisions",
     .kind = BRIM_OPTION_ENUM,
     .multiple = true,
     .metavar = "P",
     .help = BRIM_N_("precisions to try"),
     .key = "benchmark.precisions",
     .choices = brim_cli_precisions,
     .aliases = precision_aliases},
    {.name = "compile",
     .kind = BRIM_OPTION_ENUM,
     .multiple = true,
     .metavar = "V",
     .help = BRIM_N_("with and without capturing the step as one graph"),
     .choices = brim_cli_bool_words},
    {.name = "checkpointing",
     .kind = BRIM_OPTION_ENUM,
     .multiple = true,
     .metavar = "V",
     .help = BRIM_N_("with and without recomputing activations"),
     .choices = checkpointing_choices},
    {.name = "cache",
     .kind = BRIM_OPTION_ENUM,
     .multiple = true,
     .metavar = "C",
     .help = BRIM_N_("data set read from disk, in host memory, or on the GPU"),
     .choices = cache_choices},
    {.name = "steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("maximum measured steps per setting"),
     .key = "benchmark.steps_per_test",
     .default_text = "10"},
    {.name = "min-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("minimum measured steps per setting, even if the times agree"),
     .key = "benchmark.min_steps",
     .default_text = "5"},
    {.name = "repeats",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("measuring budget, in passes over all settings (1: each once)"),
     .key = "benchmark.repeats",
     .default_text = "3"},
    {.name = "budget",
     .kind = BRIM_OPTION_INT,
     .metavar = "SECONDS",
     .help = BRIM_N_("time limit of the sweep; the table shows what was measured until then"),
     .default_text = "no limit"},
    {.name = "exhaustive",
     .help = BRIM_N_("measure every setting of a large grid, not only those near the best")},
    {.name = "ceilings",
     .negatable = true,
     .help = BRIM_N_("also measure the limits of machine, loader and device"),
     .default_text = "yes"},
    {.name = "price",
     .negatable = true,
     .help = BRIM_N_("also measure what the findings' remedies would gain"),
     .default_text = "yes"},
    {.name = "all", .help = BRIM_N_("try every knob of the workload, a few values each")},
    {.name = "benchmark-batch",
     .help = BRIM_N_("try batch sizes only; keep everything else as in the config")},
    {.name = "plan", .help = BRIM_N_("only show the memory of every setting, without running any")},
    {.name = "gpu",
     .kind = BRIM_OPTION_STRING,
     .metavar = "NAME",
     .help = BRIM_N_("with --plan: memory of a card that is not here, such as rtx3060-12gb")},
    {.name = "apply",
     .kind = BRIM_OPTION_STRING,
     .optional = true,
     .metavar = "FILE",
     .help = BRIM_N_("write the recommendation into FILE (default: the config)")},
    {.name = "keep-lr", .help = BRIM_N_("keep the learning rate when the effective batch changes")},
    {.name = "verify",
     .help = BRIM_N_("train an epoch with the recommendation and compare throughput")},
    {.name = "verify-seconds",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("time limit of --verify in seconds; measures part of a longer epoch"),
     .default_text = "60"},
    {.name = "device",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DEV",
     .help = BRIM_N_("auto, cpu, cuda, cuda:N or ref; a list also measures scaling"),
     .key = "device",
     .group = BRIM_N_("Machine")},
    BRIM_CLI_OPTION_BACKEND,
    BRIM_CLI_OPTION_THREADS,
    {.name = "output",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write the records, one JSON object per line"),
     .default_text = BRIM_N_("results.jsonl in output_dir"),
     .group = BRIM_N_("Files")},
    {.name = "report",
     .kind = BRIM_OPTION_STRING,
     .optional = true,
     .metavar = "FILE",
     .help = BRIM_N_("write the HTML report"),
     .default_text = BRIM_N_("report.html in output_dir"),
     .group = BRIM_N_("Files")},
    {.name = "force",
     .help = BRIM_N_("replace a file that is no page of brim's"),
     .group = BRIM_N_("Files")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for the files"),
     .key = "output_dir",
     .default_text = "runs/bench",
     .group = BRIM_N_("Files")},
    {.name = "resume",
     .help = BRIM_N_("continue an interrupted sweep; keep settings already measured"),
     .metavar = "when",
     .choices = brim_cli_resume_words,
     .group = BRIM_N_("Files")},
    {0},
};

//-------------------------------------------- banner --------------------------------------------

// A line that starts with `head`; the text is wrapped beside it.
static void note_line(bench *b, const char *head, const char *text) {
  brim_str line;
  brim_str_init(&line);
  brim_ui_fit(&line, &b->cli->err, text, brim_utf8_width(head));
  if (!brim_str_status(&line)) brim_cli_note(b->cli, "%s%s\n", head, line.data);
  brim_str_deinit(&line);
}

// True if a setting uses `value` for the knob. An axis may list values that no setting uses, such as a batch larger
// than the data set.
static bool is_swept(const brim_tuning *s, int knob, int64_t value) {
  for (size_t i = 0; i < s->settings.count; i++) {
    if (s->settings.setting[i].value[knob] == value) return true;
  }
  return false;
}

static void settings_line(const brim_tuning *s, brim_str *out) {
  size_t settings = s->settings.count;
  brim_str_printf(out, settings == 1 ? brim_tr("%zu setting:") : brim_tr("%zu settings:"),
                  settings);
  for (size_t i = 0; i < s->axis_count; i++) {
    const brim_sweep_axis *axis = &s->axes[i];
    const brim_knob *knob = &s->subject->knobs[axis->knob];
    brim_str_printf(out, "%s %s", i ? "," : "", knob->name);
    for (size_t k = 0; k < axis->count; k++) {
      char text[32];
      if (!is_swept(s, axis->knob, axis->values[k])) continue;
      brim_knob_format(knob, axis->values[k], text);
      brim_str_printf(out, " %s", text);
    }
  }
  if (s->settings.own_added) brim_str_append(out, brim_tr(", and the config's own setting"));
}

static void banner(bench *b) {
  char device[320];
  brim_work_info info;
  const brim_cli_job *job = &b->job;
  memset(&info, 0, sizeof info);
  job->work->table->info(job->work->state, &info);
  brim_cli_device_text(job->device, device, sizeof device);
  note_line(b, "brim bench  ", device);
  if (brim_cli_backend_text(job, device, sizeof device)) note_line(b, "  ", device);
  if (info.description) {
    char what[192];
    note_line(b, "  ", brim_ui_description(info.description, what));
  }
  brim_str text;
  brim_str_init(&text);
  settings_line(&b->session, &text);
  if (!brim_str_status(&text)) note_line(b, "  ", text.data);
  brim_str_deinit(&text);
  brim_cli_note(b->cli, "\n");
}

//------------------------------------------ text output ------------------------------------------

static void put_card(const bench *b, brim_str *out) {
  const brim_tuning *s = &b->session;
  char bytes[32];
  if (!s->how.card) return;
  brim_format_bytes((uint64_t)s->how.card_bytes, bytes);
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text,
                  brim_tr("planned for %s with %s, nothing was measured. Its driver and libraries "
                          "take 0.3 to 1 GiB of that."),
                  s->how.card, bytes);
  if (b->job.device->info.host_memory) {
    brim_str_append(&text,
                    brim_tr(" This plan is the CPU's: it lacks two batches of inputs and the "
                            "GPU's workspaces. On a GPU of any size the plan is exact."));
  }
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, &b->cli->out, text.data, 0);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

// Prints the memory overhead that the plan does not contain: measured for the recommended setting,
// or, with --plan, known from earlier runs.
static void put_memory(const bench *b, brim_str *out) {
  const brim_tuning *s = &b->session;
  char text[96];
  double overhead = (double)NAN;
  if (!s->how.plan_only && s->picks.recommended >= 0) {
    overhead = s->results[s->picks.recommended].overhead_bytes;
  }
  for (size_t i = 0; i < s->count && isnan(overhead); i++) overhead = s->results[i].overhead_bytes;
  brim_cli_overhead_text(overhead, text, sizeof text);
  brim_str_printf(out, brim_tr("\noverhead      %s, on top of what is planned\n"), text);
}

// Explains slow copies from pageable memory if the table shows them.
static void put_pageable(const bench *b, brim_str *out) {
  const brim_tuning *s = &b->session;
  const char *why = brim_cli_pageable_text(b->job.device);
  for (size_t i = 0; i < s->count && why; i++) {
    const brim_result *r = &s->results[i];
    if (strcmp(brim_result_text_as(r, BRIM_ROLE_PINNED), "false") != 0) continue;
    if (!(r->phase_ms[BRIM_PHASE_H2D].median > 0.05 * r->total_ms.median)) continue;
    brim_str_printf(out, "\n%s\n", why);
    return;
  }
}

// Prints the advice: the whole checklist with --verbose, else only the learning rate for the changed batch size.
static void put_advice(const bench *b, brim_str *out) {
  const brim_tuning *s = &b->session;
  if (b->cli->verbose) {
    brim_ui_advice(&b->cli->out, &s->advice, out);
  } else if (s->advice.learning_rate[0]) {
    brim_str_append_char(out, '\n');
    brim_ui_wrap(out, &b->cli->out, s->advice.learning_rate, 0);
    brim_str_append_char(out, '\n');
  }
}

// Prints the findings about the config's own setting. --verbose skips them if the setting is the recommended or the
// fastest one, whose findings it has shown already.
static void put_findings(const bench *b, brim_str *out) {
  const brim_tuning *s = &b->session;
  const int own = s->settings.own;
  if (own < 0 || (size_t)own >= s->count || !brim_result_ran(&s->results[own])) return;
  if (b->cli->verbose && (own == s->picks.recommended || own == s->picks.highest)) return;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, &b->cli->out, brim_tr("FINDINGS ABOUT THE CONFIG'S OWN SETTING"));
  brim_str_append_char(out, '\n');
  brim_ui_bench_findings(&b->cli->out, &s->results[own], &s->picks, out);
}

// Makes the workload's own tables of the results. --benchmark-batch leaves out the tables that every
// sweep has.
static size_t make_views(const bench *b, brim_view views[BRIM_VIEWS]) {
  const brim_tuning *s = &b->session;
  const brim_work *work = b->job.work;
  if (!work || !work->table->views || s->count == 0) return 0;
  const brim_setting own = brim_work_setting(work);
  return work->table->views->make(s->results, s->count, &own, !s->how.batch_only, views);
}

static brim_status put_views(const bench *b, brim_str *out) {
  const brim_work *work = b->job.work;
  brim_view views[BRIM_VIEWS];
  if (!work || !work->table->views || b->session.count == 0) return BRIM_OK;
  if (!b->cli->verbose && !work->table->views->brief) return BRIM_OK;
  return brim_ui_workload_tables(&b->cli->out, views, make_views(b, views), out);
}

static brim_status print_text(const bench *b) {
  const brim_tuning *s = &b->session;
  brim_str text;
  brim_str_init(&text);
  brim_status status =
      s->how.plan_only  ? brim_ui_plan_sweep(&b->cli->out, s->results, s->count,
                                             (uint64_t)s->how.config_limit, &text)
      : b->cli->verbose ? brim_ui_bench(&b->cli->out, s->results, s->count, &s->picks, &text)
                        : brim_ui_bench_short(&b->cli->out, s->results, s->count, &s->picks, &text);
  if (!status && !s->how.plan_only) status = put_views(b, &text);
  if (!status && !s->how.plan_only) put_findings(b, &text);
  if (!s->interrupted && s->count < s->grid) {
    brim_str_printf(&text,
                    s->budget_ended
                        ? brim_tr("\nthe budget ended the sweep: %zu of %zu settings were "
                                  "measured; the same command with --resume continues\n")
                        : brim_tr("\n%zu of %zu settings were measured, those near the best; "
                                  "--exhaustive measures all\n"),
                    s->count, s->grid);
  } else if (s->budget_ended) {
    brim_str_append(&text, brim_tr("\nthe budget ended the sweep; the same command with --resume "
                                   "continues\n"));
  }
  if (s->interrupted) {
    size_t done = s->count;
    if (done > 0 && s->results[done - 1].failure == BRIM_FAILURE_INTERRUPTED) done--;
    brim_str_printf(&text,
                    done == 1 ? brim_tr("\ninterrupted: %zu setting was done\n")
                              : brim_tr("\ninterrupted: %zu settings were done\n"),
                    done);
    if (s->wrote_jsonl && done + s->known_count > 0) {
      brim_str_append(&text, s->how.resume ? brim_tr("the same command continues from there\n")
                                           : brim_tr("the same command with --resume continues\n"));
    }
  }
  put_card(b, &text);
  if (!s->how.plan_only && s->count > 0) put_advice(b, &text);
  if (!status) {
    status = brim_ui_scaling(&b->cli->out, s->scaling, s->scaling_count, s->scaling_note, &text);
  }
  bool details = s->how.plan_only || b->cli->verbose;
  if (b->job.memory.uuid[0] && details) put_memory(b, &text);
  if (!s->how.plan_only && details) put_pageable(b, &text);
  if (!s->how.plan_only && !b->cli->quiet) {
    brim_str_append_char(&text, '\n');
    brim_str_printf(&text, brim_tr("best setting  %s\n"),
                    s->wrote_best ? s->how.best : brim_tr("none, so brim writes no best.yaml"));
    if (s->wrote_jsonl) brim_str_printf(&text, brim_tr("records       %s\n"), s->how.jsonl);
    if (s->wrote_html) brim_str_printf(&text, brim_tr("report        %s\n"), s->how.html);
    if (!b->cli->verbose) {
      brim_str_append(&text, brim_tr("details       --verbose, or the report\n"));
    }
  }
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

// Prints the throughput that --verify measured next to the predicted one.
static brim_status print_verified(const bench *b) {
  const brim_tuning *s = &b->session;
  const brim_verification *v = &s->verification;
  char predicted[32], achieved[32], time[32], cap[32];
  brim_str text;
  brim_str_init(&text);
  brim_format_figure(v->predicted.value, predicted);
  brim_format_figure(v->achieved, achieved);
  brim_format_duration(v->seconds, time);
  brim_format_duration(v->cap_s, cap);
  brim_str_printf(&text,
                  brim_tr("\nverified      predicted %s %s/s, achieved %s in training: %.1f %%\n"),
                  predicted, brim_tr(brim_result_unit(&s->results[s->picks.recommended])), achieved,
                  brim_shown(100 * v->achieved / v->predicted.value));
  if (v->epochs == 0) {
    brim_str_printf(&text,
                    brim_tr("              over %s, a part of an epoch: --verify-seconds "
                            "ended it after %s\n"),
                    time, cap);
  } else {
    brim_str_printf(&text,
                    v->epochs == 1 ? brim_tr("              over %s of %" PRId64 " epoch\n")
                                   : brim_tr("              over %s of %" PRId64 " short epochs\n"),
                    time, v->epochs);
  }
  char comment[320];
  brim_ui_verified_comment(v, comment);
  if (comment[0]) {
    brim_str_append(&text, "              ");
    brim_ui_fit(&text, &b->cli->out, comment, 14);
    brim_str_append_char(&text, '\n');
  }
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

static brim_status print_edit(const bench *b, const brim_tuning_edit *edit) {
  const char *path = b->session.how.apply;
  const brim_config_edit_result *result = &edit->file;
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  brim_str_printf(&text,
                  result->changed ? brim_tr("applied       %s\n")
                                  : brim_tr("applied       %s already has this setting\n"),
                  path);
  brim_rate_change_text(&edit->rate, &text);
  brim_status status = b->cli->quiet
                           ? BRIM_OK
                           : brim_ui_diff(&b->cli->out, path, result->before, result->before_size,
                                          result->after, result->after_size, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

//------------------------------------------ JSON events ------------------------------------------

// Writes a JSON event with `result`, and releases `result`. Writes nothing if `status` is a failure.
// A failed write does not stop the session: the records are in the file.
static void write_result_event(brim_cli *cli, const char *event, brim_status status,
                               json_t *result) {
  json_t *fields = json_object();
  if (!status) status = brim_json_put(fields, "result", result);
  if (status) {
    json_decref(fields);
  } else {
    status = brim_cli_event(cli, event, fields);
  }
  if (status) brim_status_clear();
}

static json_t *path_json(const char *path, bool written) {
  return path && written ? json_string(path) : json_null();
}

static brim_status put_factor(json_t *f, const char *key, brim_interval factor) {
  json_t *list = json_array();
  brim_status s = brim_json_push(list, brim_json_number(factor.value));
  if (!s) s = brim_json_push(list, brim_json_number(factor.low));
  if (!s) s = brim_json_push(list, brim_json_number(factor.high));
  if (!s) return brim_json_put(f, key, list);
  json_decref(list);
  return s;
}

// Factors are [value, low, high]; null = unknown.
static brim_status put_decision(const brim_tuning *s, json_t *f) {
  const brim_recommendation *d = &s->picks;
  BRIM_TRY(brim_json_put(f, "provisional", json_boolean(d->provisional)));
  BRIM_TRY(brim_json_put(f, "keep", json_boolean(brim_recommendation_keeps(d))));
  double others = brim_results_others(s->results, s->count);
  BRIM_TRY(brim_json_put(f, "others_cpu_percent", brim_json_number(others)));
  BRIM_TRY(brim_json_put(f, "grid", json_integer((json_int_t)s->grid)));
  BRIM_TRY(brim_json_put(f, "budget_ended", json_boolean(s->budget_ended)));
  BRIM_TRY(brim_json_put(f, "reason", json_string(d->reason)));
  BRIM_TRY(put_factor(f, "gain", d->gain));
  return put_factor(f, "beside", d->more);
}

static brim_status print_json(const bench *b) {
  const brim_tuning *s = &b->session;
  const struct {
    const char *key;
    int index;
  } picks[] = {{"now", s->picks.now},
               {"highest", s->picks.highest},
               {"efficient", s->picks.efficient},
               {"recommended", s->picks.recommended}};
  const size_t pick_count = sizeof picks / sizeof *picks;
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "count", json_integer((json_int_t)s->count));
  if (!status) status = brim_json_put(f, "interrupted", json_boolean(s->interrupted));
  for (size_t i = 0; i < pick_count && !status; i++) {
    int at = picks[i].index;
    if (at < 0) {
      status = brim_json_put(f, picks[i].key, json_null());
      continue;
    }
    json_t *json = NULL;
    status = brim_result_to_json(&s->results[at], &json);
    json_t *setting = json_object_get(json_object_get(json, "what"), "setting");
    if (!status) status = brim_json_put(f, picks[i].key, json_incref(setting));
    json_decref(json);
  }
  if (!status) status = put_decision(s, f);
  if (!status) status = brim_json_put(f, "records", path_json(s->how.jsonl, s->wrote_jsonl));
  if (!status) status = brim_json_put(f, "report", path_json(s->how.html, s->wrote_html));
  if (!status) status = brim_json_put(f, "best", path_json(s->how.best, s->wrote_best));
  if (status) {
    json_decref(f);
    return status;
  }
  return brim_cli_event(b->cli, "result", f);
}

static brim_status verify_event(const bench *b) {
  const brim_verification *v = &b->session.verification;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "predicted_samples_per_s", brim_json_number(v->predicted.value));
  if (!s) s = brim_json_put(f, "achieved_samples_per_s", brim_json_number(v->achieved));
  if (!s) s = brim_json_put(f, "ratio", brim_json_number(v->achieved / v->predicted.value));
  if (!s) s = brim_json_put(f, "expected_low", brim_json_number(v->predicted.low));
  if (!s) s = brim_json_put(f, "expected_high", brim_json_number(v->predicted.high));
  bool known = v->predicted.low > 0 && isfinite(v->predicted.high);
  bool within = v->achieved >= v->predicted.low && v->achieved <= v->predicted.high;
  if (!s) s = brim_json_put(f, "as_expected", known ? json_boolean(within) : json_null());
  if (!s) s = brim_json_put(f, "others_cpu_percent_sweep", brim_json_number(v->others_then));
  if (!s) s = brim_json_put(f, "others_cpu_percent", brim_json_number(v->others_now));
  if (!s) s = brim_json_put(f, "epochs", json_integer(v->epochs));
  if (!s) s = brim_json_put(f, "steps", json_integer(v->steps));
  if (!s) s = brim_json_put(f, "partial", json_boolean(v->epochs == 0));
  if (!s) s = brim_json_put(f, "samples", brim_json_number(v->samples));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(v->seconds));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "verify", f);
}

static brim_status apply_event(const bench *b, const brim_tuning_edit *edit) {
  const char *path = b->session.how.apply;
  const brim_config_edit_result *result = &edit->file;
  static const brim_term plain = {0};
  brim_str diff;
  brim_str_init(&diff);
  brim_status s = brim_ui_diff(&plain, path, result->before, result->before_size, result->after,
                               result->after_size, &diff);
  json_t *f = json_object(), *keys = json_object();
  for (size_t i = 0; i < edit->count && !s; i++) {
    s = brim_json_put(keys, edit->edits[i].key, json_string(edit->edits[i].value));
  }
  if (!s) s = brim_json_put(f, "path", json_string(path));
  if (!s) s = brim_json_put(f, "changed", json_boolean(result->changed));
  if (!s) s = brim_json_put(f, "keys", json_incref(keys));
  if (!s) s = brim_json_put(f, "diff", json_string(diff.data));
  json_decref(keys);
  brim_str_deinit(&diff);
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "apply", f);
}

//----------------------------------- callbacks of the session -----------------------------------

static void on_note(void *ctx, const char *text) { brim_cli_note(((bench *)ctx)->cli, "%s", text); }

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_progress(((bench *)ctx)->cli, progress);
}

static void on_result(void *ctx, const brim_result *result) {
  brim_cli *cli = ((bench *)ctx)->cli;
  json_t *json = NULL;
  if (!cli->json) return;
  brim_status status = brim_result_to_json(result, &json);
  write_result_event(cli, "trial", status, json);
}

static void on_scaling(void *ctx, const brim_scaling *scaling) {
  brim_cli *cli = ((bench *)ctx)->cli;
  json_t *json = NULL;
  if (!cli->json) return;
  brim_status status = brim_scaling_to_json(scaling, &json);
  write_result_event(cli, "scaling", status, json);
}

// A table of the results so far, while the sweep continues.
static void on_so_far(void *ctx, const brim_result *results, size_t count) {
  brim_cli *cli = ((bench *)ctx)->cli;
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  if (!brim_ui_bench_table(&cli->err, results, count, -1, &text)) {
    brim_str_append(&text, brim_tr("so far; the sweep continues\n\n"));
    if (!brim_str_status(&text)) brim_cli_note(cli, "%s", text.data);
  }
  brim_status_clear();
  brim_str_deinit(&text);
}

// Renames the files of an earlier sweep (results-1.jsonl, ...). A report that --report names is
// replaced instead.
static brim_status keep_earlier(void *ctx) {
  bench *b = ctx;
  const char *const paths[] = {b->jsonl_path, b->best_path, b->html_path};
  size_t count = brim_option_string(&b->cli->parse, "report", NULL) ? 2 : 3;
  char *kept = NULL;
  BRIM_TRY(brim_cli_keep_earlier(paths, count, paths, 3, b->job.input.path, &kept));
  if (kept) brim_cli_note(b->cli, brim_tr("the earlier sweep is kept: %s\n"), kept);
  brim_free(kept);
  return BRIM_OK;
}

static brim_status make_report(void *ctx, brim_str *page) {
  const bench *b = ctx;
  const brim_tuning *s = &b->session;
  const int own = s->settings.own;
  brim_view views[BRIM_VIEWS];
  brim_str command;
  brim_str_init(&command);
  brim_cli_command_text(b->cli, &command);
  const brim_ui_report_options how = {
      .views = views,
      .view_count = make_views(b, views),
      .own = own >= 0 && (size_t)own < s->count ? &s->results[own] : NULL,
      .command = command.data,
      .picks = &s->picks,
      .advice = s->count > 0 ? &s->advice : NULL,
      .verified = s->proof ? &s->verification : NULL,
      .scaling = s->scaling,
      .scaling_count = s->scaling_count,
      .scaling_note = s->scaling_note};
  brim_status status = brim_ui_report(&how, s->results, s->count, page);
  if (!status) status = brim_str_status(&command);
  brim_str_deinit(&command);
  return status;
}

static const brim_tuning_events events = {.note = on_note,
                                          .progress = on_progress,
                                          .result = on_result,
                                          .final = on_result,
                                          .so_far = on_so_far,
                                          .scaling = on_scaling,
                                          .keep_earlier = keep_earlier,
                                          .report = make_report};

//---------------------------------- the command line ----------------------------------

// --gpu NAME: plan for a card that is not here.
static brim_status check_card(brim_cli *cli, brim_tuning_options *how) {
  how->card = brim_option_string(&cli->parse, "gpu", NULL);
  if (!how->card) return BRIM_OK;
  if (!how->plan_only) {
    return brim_cli_usage(cli, BRIM_N_("--gpu plans for a card that is not here; add --plan"));
  }
  if (brim_gpu_memory_find(how->card, &how->card, &how->card_bytes)) return BRIM_OK;
  brim_str names;
  brim_str_init(&names);
  brim_gpu_memory_names(&names);
  brim_status status = brim_cli_usage(cli, BRIM_N_("--gpu: '%.40s' is not known; known are %s"),
                                      how->card, names.data ? names.data : "");
  brim_str_deinit(&names);
  return status;
}

// Chooses the file that --apply edits: FILE, else the given config. A config that comes with brim is never edited.
static brim_status apply_file(bench *b, brim_tuning_options *how) {
  brim_cli *cli = b->cli;
  const brim_cli_input *input = &b->job.input;
  if (!brim_option_find(&cli->parse, "apply")) return BRIM_OK;
  if (how->plan_only) {
    return brim_cli_usage(cli, BRIM_N_("--apply needs a measurement; leave out --plan"));
  }
  const char *given = brim_option_string(&cli->parse, "apply", "");
  if (given[0]) {
    how->apply = given;
  } else if (input->found_path) {
    return brim_cli_usage(cli, BRIM_N_("--apply: %.200s comes with brim; name a FILE of yours"),
                          input->found_path);
  } else if (input->path) {
    how->apply = input->path;
  } else {
    return brim_cli_usage(cli, BRIM_N_("--apply: no config is given; name a FILE to edit"));
  }
  return BRIM_OK;
}

// Checks that need no open device.
static brim_status check_options(bench *b, brim_tuning_options *how) {
  const brim_option_parse *parse = &b->cli->parse;
  BRIM_TRY(apply_file(b, how));
  if (how->verify && how->plan_only) {
    return brim_cli_usage(b->cli, BRIM_N_("--verify needs a measurement; leave out --plan"));
  }
  if (how->verify_s < 1) {
    return brim_cli_usage(b->cli, BRIM_N_("--verify-seconds must be 1 or more"));
  }
  how->device_count = brim_work_device_count(b->job.config);
  if (how->device_count > BRIM_SCALING_MAX) {
    return brim_fail(BRIM_EINVAL, "device names %zu devices; scaling is measured on at most %d",
                     how->device_count, BRIM_SCALING_MAX);
  }
  BRIM_TRY(brim_config_devices_apart(b->job.config));
  BRIM_TRY(check_card(b->cli, how));
  if (brim_option_find(parse, "budget") && how->budget_s < 1) {
    return brim_cli_usage(b->cli, BRIM_N_("--budget must be 1 second or more"));
  }
  return BRIM_OK;
}

// True if --`name` sets values of knob `knob`, or of any knob if `knob` is -1.
static bool is_option_of(const brim_work *work, int knob, const char *name) {
  for (size_t i = 0; i < work->knob_count; i++) {
    const char *option = work->knobs[i].option;
    if (knob >= 0 && (int)i != knob) continue;
    if (option && strcmp(option + 2, name) == 0) return true;
  }
  return false;
}

// Rejects --benchmark-batch together with --all or with an option that lists values of another knob. Lists in the
// config are allowed.
static brim_status check_batch_only(bench *b) {
  const brim_work *work = b->job.work;
  const brim_option_parse *parse = &b->cli->parse;
  int batch = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  for (size_t i = 0; i < parse->count; i++) {
    const brim_option *o = parse->items[i].option;
    bool values = o->multiple && (o->kind == BRIM_OPTION_INT || o->kind == BRIM_OPTION_ENUM);
    if (strcmp(o->name, "all") != 0 && (!values || is_option_of(work, batch, o->name))) continue;
    return brim_cli_usage(b->cli, BRIM_N_("--benchmark-batch and --%s contradict each other"),
                          o->name);
  }
  for (size_t i = 0; i < work->knob_count; i++) {
    if (work->knobs[i].axis) return BRIM_OK;
  }
  return brim_cli_usage(b->cli, BRIM_N_("--%s: this workload has no such knob"), "benchmark-batch");
}

// Reads the values of knobs that no config key lists, such as --compile true false.
static brim_status read_values(bench *b, brim_tuning_options *how) {
  const brim_work *work = b->job.work;
  for (size_t k = 0; k < work->knob_count; k++) {
    const brim_knob *knob = &work->knobs[k];
    if (knob->list || !knob->option || !knob->axis) continue;
    const char *option = knob->option + 2;  // after the dashes
    const brim_option_value *words = brim_option_find(&b->cli->parse, option);
    for (size_t i = 0; words && i < words->count && i < BRIM_KNOB_AXIS; i++) {
      if (!brim_knob_read(knob, words->values[i], &how->given[k][i])) {
        return brim_cli_usage(b->cli, BRIM_N_("--%s: %.100s is not known here"), option,
                              words->values[i]);
      }
      how->given_count[k] = i + 1;
    }
  }
  return BRIM_OK;
}

// Finds the option that set `key`. Called when its value is wrong: marks the failure as a usage error.
static const char *option_of_key(void *ctx, const char *key, char out[64]) {
  brim_cli *cli = ((bench *)ctx)->cli;
  const char *name = brim_cli_typed(cli, key, out);
  if (name) cli->usage_error = true;
  return name;
}

static brim_status reopen(void *ctx) {
  bench *b = ctx;
  return brim_cli_job_reopen(b->cli, &b->job);
}

static brim_status open_device(void *ctx, const char *spec, const brim_device_options *how,
                               brim_memory_watch *watch, brim_device **out) {
  return brim_cli_device_open(&((bench *)ctx)->job, spec, how, watch, out);
}

// Opens the session over the open job.
static brim_status open_session(bench *b, brim_tuning_options *how) {
  brim_cli_job *job = &b->job;
  const brim_config *config = job->config;
  brim_cli_gpu_facts(job->registry, &b->gpu, &b->facts);
  b->work = (brim_work_subject){.config = config,
                                .work = &job->work,
                                .device = &job->device,
                                .reopen = reopen,
                                .open_device = open_device,
                                .ctx = b,
                                .memory = &job->memory,
                                .registry = job->registry,
                                .options = &job->options,
                                .facts = &b->facts,
                                .path = job->input.path};
  BRIM_TRY(brim_work_subject_begin(&b->work, (const char *const *)job->input.overrides,
                                   job->input.count));
  brim_work_subject_open(&b->work, &b->subject);
  if (how->batch_only) BRIM_TRY(check_batch_only(b));
  BRIM_TRY(read_values(b, how));
  how->events = &events;
  how->ctx = b;
  how->typed = option_of_key;
  how->stop = b->cli->stop;
  how->steps = (int)brim_config_int(config, "benchmark.steps_per_test");
  how->steps_asked = brim_config_is_set(config, "benchmark.steps_per_test");
  if (brim_config_is_set(config, "benchmark.min_steps")) {  // its default must not raise --steps
    how->min_steps = (int)brim_config_int(config, "benchmark.min_steps");
  }
  how->repeats = (int)brim_config_int(config, "benchmark.repeats");
  how->memory_limit = brim_cli_memory_limit(job);
  how->config_limit = (double)brim_config_int(config, "gpu.memory_limit");
  how->memory = &job->memory;
  how->monitor = job->monitor;
  how->device = &job->device;
  how->machine = brim_cli_machine_options(b->cli, job);
  how->config = config;
  int64_t nodes = brim_config_int(config, "nodes"),
          ranks_per_node = brim_config_int(config, "gpus");
  if (brim_config_int(config, "ranks") > ranks_per_node) {
    ranks_per_node = brim_config_int(config, "ranks");
  }
  how->ranks = ranks_per_node * nodes;
  how->node = nodes > 1 ? ranks_per_node : 0;
  return brim_tuning_open(&b->session, &b->subject, how);
}

// Chooses a file's path; freed with the bench.
static brim_status file_path(const bench *b, const char *option, const char *name, char **path) {
  const char *given = option ? brim_option_string(&b->cli->parse, option, NULL) : NULL;
  *path = given ? brim_strdup(given) : brim_fs_join(brim_cli_job_bench_dir(&b->job), name);
  return *path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", name);
}

// Chooses where files go. best.yaml and the file of --apply may be the config of this sweep; records and
// report may not.
static brim_status choose_files(bench *b) {
  brim_tuning_options *how = &b->session.how;
  BRIM_TRY(file_path(b, "output", "results.jsonl", &b->jsonl_path));
  BRIM_TRY(file_path(b, "report", "report.html", &b->html_path));
  BRIM_TRY(file_path(b, NULL, "best.yaml", &b->best_path));
  how->jsonl = b->jsonl_path;
  how->html = b->html_path;
  how->best = b->best_path;
  const char *const written[] = {b->jsonl_path, b->html_path};
  BRIM_TRY(brim_cli_job_check_outputs(b->cli, &b->job, written, 2));
  const char *const configs[] = {b->best_path, how->apply};
  for (size_t i = 0; i < 2; i++) {
    const char *const all[] = {configs[i], b->jsonl_path, b->html_path};
    BRIM_TRY(brim_cli_check_outputs(b->cli, NULL, 0, all, 3));
  }
  if (!brim_option_string(&b->cli->parse, "report", NULL)) return BRIM_OK;
  return brim_cli_check_replace(b->cli, b->html_path, BRIM_CLI_PAGE_MARK);
}

//---------------------------------- the command ----------------------------------

static brim_status apply(bench *b) {
  brim_tuning_edit edit;
  if (!b->session.how.apply) return BRIM_OK;
  brim_status status = brim_tuning_apply(&b->session, &edit);
  b->cli->running = b->cli->running || b->session.running;
  if (status) return status;
  status = b->cli->json ? apply_event(b, &edit) : print_edit(b, &edit);
  brim_config_edit_result_deinit(&edit.file);
  return status;
}

static brim_status run_bench(bench *b) {
  brim_cli *cli = b->cli;
  brim_tuning *s = &b->session;
  const brim_option_parse *parse = &cli->parse;
  brim_tuning_options how = {
      .plan_only = brim_option_flag(parse, "plan", false),
      .all = brim_option_flag(parse, "all", false),
      .batch_only = brim_option_flag(parse, "benchmark-batch", false),
      .exhaustive = brim_option_flag(parse, "exhaustive", false),
      .ceilings = brim_option_flag(parse, "ceilings", true),
      .price = brim_option_flag(parse, "price", true),
      .resume = brim_option_flag(parse, "resume", false),
      .verify = brim_option_flag(parse, "verify", false),
      .keep_rate = brim_option_flag(parse, "keep-lr", false),
      .budget_s = (double)brim_option_int(parse, "budget", 0),
      .verify_s = (double)brim_option_int(parse, "verify-seconds", DEFAULT_VERIFY_SECONDS),
  };
  BRIM_TRY(brim_cli_job_config(cli, &b->job));
  BRIM_TRY(check_options(b, &how));
  BRIM_TRY(brim_cli_job_open(cli, &b->job));
  BRIM_TRY(open_session(b, &how));
  BRIM_TRY(brim_tuning_choose(s));
  if (!how.plan_only) {
    BRIM_TRY(choose_files(b));
    BRIM_TRY(brim_tuning_prepare(s));
    s->how.checkpoints = brim_cli_job_checkpoint_disk(&b->job);
  }
  banner(b);
  brim_status status = brim_tuning_run(s);
  cli->running = cli->running || s->running;
  if (!s->measured) return status;
  // show results even if they could not be written
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  BRIM_TRY(cli->json ? print_json(b) : print_text(b));
  if (s->proof) BRIM_TRY(cli->json ? verify_event(b) : print_verified(b));
  if (!status) return apply(b);
  brim_status_set_detail(detail);
  return status;
}

static brim_status run(brim_cli *cli) {
  bench b = {.cli = cli, .job = {.on_first = true}};
  brim_status status = run_bench(&b);
  brim_tuning_close(&b.session);
  brim_cli_job_close(&b.job);
  brim_work_subject_end(&b.work);
  brim_free(b.jsonl_path);
  brim_free(b.html_path);
  brim_free(b.best_path);
  return status;
}

const brim_cli_command brim_cli_bench = {
    .name = "bench",
    .summary = BRIM_N_("sweep batch size, workers and precision; recommend a setting"),
    .usage = "[CONFIG] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Measures every setting, prints a table, recommends a setting, and writes results.jsonl, "
        "report.html and best.yaml. Settings that cannot fit in memory are reported as OOM "
        "(planned) without being run.\nThe values to sweep come from the options, then from the "
        "config's benchmark section, then from the memory plan. Ctrl-C prints the results so far. "
        "If no setting ran, the exit code shows why: 4 means memory."),
    .examples = BRIM_N_(
        "sweep a grid chosen from the memory plan\nbrim bench configs/mnist-mlp.yaml --data-path "
        "data/mnist\nsweep these settings only\nbrim bench mnist.yaml --batch-sizes 128 256 512 "
        "--num-workers 0 2\nshow the memory of each setting\nbrim bench mnist.yaml --batch-sizes "
        "1024 65536 --plan\nmeasure, verify by training, write the result into the config\nbrim "
        "bench mnist.yaml --verify --apply\npredict and measure scaling over two "
        "GPUs\nbrim bench mnist.yaml --device cuda:0,cuda:1\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_SAVES,
};
