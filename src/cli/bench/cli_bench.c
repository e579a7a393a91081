// `brim bench`: which settings to try, the sweep, the table, the recommendation. What to recommend is decided in
// src/tune.

#include "cli/bench/cli_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job_options.h"
#include "cli/job/cli_loading.h"
#include "monitor/monitor_job.h"

//-------------------------------------- the setting before --------------------------------------
// What the user had before the sweep, for the advice after it.

void brim_cli_bench_facts(bench *b, brim_advice_facts *out) {
  const brim_work *work = b->job->work;
  brim_work_subject_open(&b->work, &b->subject);  // --verify opens another workload
  brim_advice_facts_of(&b->subject, out);
  out->larger = b->picks.recommended == b->settings.own ? b->larger : (double)NAN;
  for (size_t i = 0; i < b->axes.count; i++) {
    if (b->axes.axis[i].count < 2) continue;
    out->several[out->several_count++] = work->knobs[b->axes.axis[i].knob].name;
  }
  const brim_setting *pick =
      b->picks.recommended >= 0 ? &b->settings.setting[b->picks.recommended] : NULL;
  for (size_t k = 0; pick && k < work->knob_count; k++) {
    const brim_knob *knob = &work->knobs[k];
    if (knob->matters && !knob->matters(work->state, pick))
      out->idle[out->idle_count++] = knob->name;
  }
}

// What to do with the recommendation: after choosing it and before --verify, whose workload is
// another than the user had.
static void bench_advise(bench *b, brim_advice *out) {
  brim_advice_facts facts;
  brim_cli_bench_facts(b, &facts);
  brim_advise(b->results, b->count, b->picks.recommended, &facts, out);
}

//---------------------------------------- recommendation ----------------------------------------
// What is recommended of what was measured, and what is reported about it.

// What asks for a knob's values: an option, or the key.
static const char *option_of(const brim_knob *knob) {
  return knob->option ? knob->option : knob->list ? knob->list : "";
}

// "batch_size 1024 changes learning: ask for it with --batch-sizes"
static void beside_text(const bench *b, int index, char out[192]) {
  const brim_work *work = b->job->work;
  brim_setting own = brim_work_setting(work);
  char what[96] = "";
  const char *option = "";
  for (size_t k = 0; k < work->knob_count; k++) {
    int64_t value = b->settings.setting[index].value[k];
    if (!work->knobs[k].changes_learning || value == own.value[k]) continue;
    char text[32];
    size_t n = strlen(what);
    brim_knob_format(&work->knobs[k], value, text);
    snprintf(what + n, sizeof what - n, "%s%s %s", n ? ", " : "", work->knobs[k].name, text);
    if (!option[0]) option = option_of(&work->knobs[k]);
  }
  brim_msg_format(out, 192, brim_tr("but %s changes learning: ask for it with %s"), what, option);
}

// Is the config's own setting there to compare with, outside of values that the user named?
static bool is_reference(const bench *b) {
  for (size_t a = 0; a < b->axes.count && b->settings.own_added && b->settings.own >= 0; a++) {
    const brim_sweep_axis *axis = &b->axes.axis[a];
    bool has = !b->axes.named[axis->knob];
    for (size_t i = 0; i < axis->count && !has; i++) {
      has = axis->values[i] == b->settings.setting[b->settings.own].value[axis->knob];
    }
    if (!has) return true;
  }
  return false;
}

// Picks and decision from what was measured.
static void bench_choose(bench *b, bool interrupted) {
  bool *withheld = b->count > 0 ? (bool *)brim_calloc(b->count, sizeof *withheld) : NULL;
  for (size_t i = 0; withheld && i < b->count; i++) {
    withheld[i] = brim_sweep_changes_learning(&b->subject, b->axes.named, &b->settings.setting[i]);
  }
  brim_recommend_options how = {.race = b->race,
                                .now = b->settings.own,
                                .now_is_reference = is_reference(b),
                                .interrupted = interrupted,
                                .withheld = withheld};
  brim_recommend(b->results, b->count, &how, &b->picks);
  brim_recommendation *r = &b->picks;
  brim_recommend_reason(b->results, b->count, r, b->race, r->reason);
  if (r->beside >= 0) beside_text(b, r->beside, r->beside_text);
  brim_free(withheld);
  if (b->count > 0) bench_advise(b, &b->advice);
}

//------------------------------------------- findings -------------------------------------------
// What `brim bench` finds about the config's own setting: prices by short runs of the remedies, and how
// that is shown.

static bool own_ran(const bench *b) {
  const int own = b->settings.own;
  return own >= 0 && (size_t)own < b->count && brim_result_ran(&b->results[own]);
}

// After the sweep, unless --no-price: remedies of the config's own setting run for a moment each, by
// these options but for the setting. Later, what was found about it, or that there is nothing to fix.
static brim_status bench_price(bench *b, const brim_remedy_options *options) {
  const brim_cli_job *job = b->job;
  if (!own_ran(b) || !job->work || !brim_option_flag(&b->cli->parse, "price", true)) return BRIM_OK;
  size_t own = (size_t)b->settings.own;
  brim_remedy_options how = *options;
  how.setting = &b->settings.setting[own];
  how.folder = brim_cli_job_saves_in(job);
  how.larger = &b->larger;
  b->priced = true;
  brim_status status = brim_remedies_measure(&b->subject, &how, b->results, b->count, own);
  if (job->work) bench_advise(b, &b->advice);  // now with what was tried
  return status;
}

static void bench_put_findings(const bench *b, brim_str *out) {
  const int own = b->settings.own;
  if (!own_ran(b)) return;
  if (b->cli->verbose && (own == b->picks.recommended || own == b->picks.highest)) return;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, &b->cli->out, brim_tr("FINDINGS ABOUT THE CONFIG'S OWN SETTING"));
  brim_str_append_char(out, '\n');
  brim_ui_bench_findings(&b->cli->out, &b->results[own], &b->picks, out);
}

//-------------------------------------- published progress --------------------------------------
// What a sweep of settings publishes for `brim top` while it measures: which setting, how many are left.

enum { PERIOD_NS = 500000000 };

// What is measured now, for `brim top` (cli_bench.c). A result is of the setting whose progress came
// last.
static void bench_publish_start(bench *b) {
  brim_job *job = &b->published;
  const brim_device *device = b->job->device;
  if (b->plan_only) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "bench");
  snprintf(job->workload, sizeof job->workload, "%.31s", b->job->work->table->name);
  if (device) {
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  job->phase = BRIM_JOB_START;
  b->publisher = brim_job_publisher_start(job);
}

static void bench_publish_stop(bench *b) {
  brim_job_publisher_stop(b->publisher);
  b->publisher = NULL;
}

// Figures belong to the setting whose name stands beside them: another one begins without.
static void take_name(brim_job *job, const char *title) {
  char name[sizeof job->name];
  snprintf(name, sizeof name, "%.63s", title ? title : "");
  brim_utf8_trim(name);
  if (strcmp(name, job->name) == 0) return;
  memcpy(job->name, name, sizeof job->name);
  job->samples_per_s = (double)NAN;
  job->finding_count = 0;
}

void brim_cli_bench_publish(bench *b, const brim_progress *progress) {
  brim_job *job = &b->published;
  brim_time now = brim_clock_now();
  take_name(job, progress->title);
  job->phase = BRIM_JOB_MEASURE;
  job->eta_s = progress->eta_s;  // its steps are settings, which the title counts
  if (!b->publisher || brim_time_since_ns(b->published_at, now) < PERIOD_NS) return;
  b->published_at = now;
  brim_job_publisher_set(b->publisher, job);
}

void brim_cli_bench_publish_result(bench *b, const brim_result *result) {
  brim_job *job = &b->published;
  job->samples_per_s = result->samples_per_s;
  snprintf(job->unit, sizeof job->unit, "%.23s", brim_result_unit(result));
  job->finding_count = 0;
  for (size_t i = 0; i < result->finding_count && i < BRIM_JOB_FINDINGS; i++) {
    job->findings[job->finding_count++] = result->findings[i];
  }
  brim_job_publisher_set(b->publisher, job);
}

//-------------------------------------------- traces --------------------------------------------
// After the sweep, on a GPU: a few steps of the settings that are named, under the GPU's own records.

static bool has_run(const bench *b, int index) {
  return index >= 0 && brim_result_ran(&b->results[index]);
}

static bool trace_one(bench *b, brim_gpu_trace *trace, int index) {
  const brim_cli_job *job = b->job;
  brim_setting setting = b->settings.setting[index];
  if (brim_trial_trace(job->work, job->device, &setting, trace, &b->results[index])) {
    brim_log_info("bench", "a setting could not be traced: %s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  return true;
}

// What the GPU itself records of the picks; on a CPU nothing. True where something was. The last of
// all that runs: what records stays attached to the process and slows down what follows.
static bool bench_trace(bench *b) {
  brim_gpu_trace *trace = NULL;
  if (!b->job->memory.uuid[0] || !b->job->work) return false;
  if (!has_run(b, b->picks.recommended)) return false;
  if (brim_gpu_trace_open(&trace)) {
    brim_log_info("bench", "the GPU's own records are not read: %s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  bool traced = trace_one(b, trace, b->picks.recommended);
  if (b->picks.highest != b->picks.recommended) {
    traced = trace_one(b, trace, b->picks.highest) || traced;
  }
  brim_gpu_trace_close(trace);
  return traced;
}

//------------------------------------------- command -------------------------------------------
// `brim bench`: which settings to try, the sweep, the table, the recommendation, the files it
// leaves. What to recommend is decided in src/tune; which axes there are in cli_bench_axes.c.

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
     .choices = brim_cli_truths},
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

//---------------------------------- a card that is not here ----------------------------------

static brim_status check_card(bench *b) {
  b->card = brim_option_string(&b->cli->parse, "gpu", NULL);
  if (!b->card) return BRIM_OK;
  if (!b->plan_only) {
    return brim_cli_usage(b->cli, BRIM_N_("--gpu plans for a card that is not here; add --plan"));
  }
  if (brim_gpu_memory_find(b->card, &b->card, &b->card_bytes)) return BRIM_OK;
  brim_str names;
  brim_str_init(&names);
  brim_gpu_memory_names(&names);
  brim_status status = brim_cli_usage(b->cli, BRIM_N_("--gpu: '%.40s' is not known; known are %s"),
                                      b->card, names.data ? names.data : "");
  brim_str_deinit(&names);
  return status;
}

static uint64_t config_limit(const brim_cli_job *job) {
  return (uint64_t)brim_config_int(job->config, "gpu.memory_limit");
}

// The card's memory in place of this device's. Plans by a CPU put everything in one memory; a card holds what
// is planned for the device.
static void take_card(const bench *b, brim_result *r) {
  double limit = (double)config_limit(b->job);
  double most = limit > 0 && limit < b->card_bytes ? limit : b->card_bytes;
  if (r->failure != BRIM_FAILURE_NONE && r->failure != BRIM_FAILURE_OOM_PLANNED) return;
  bool fits = (double)r->plan.bytes[BRIM_PLACE_DEVICE] <= most;
  r->free_bytes = r->total_bytes = b->card_bytes;
  snprintf(r->device, sizeof r->device, "%s", b->card);
  snprintf(r->device_id, sizeof r->device_id, "%s", b->card);
  r->failure = fits ? BRIM_FAILURE_NONE : BRIM_FAILURE_OOM_PLANNED;
  r->failure_status = fits ? BRIM_OK : BRIM_EOOM;
  r->message[0] = '\0';
}

static void put_card(const bench *b, brim_str *out) {
  char bytes[32];
  if (!b->card) return;
  brim_format_bytes((uint64_t)b->card_bytes, bytes);
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text,
                  brim_tr("planned for %s with %s, nothing was measured. Its driver and libraries "
                          "take 0.3 to 1 GiB of that."),
                  b->card, bytes);
  if (b->job->device->info.host_memory) {
    brim_str_append(&text,
                    brim_tr(" This plan is the CPU's: it lacks two batches of inputs and the "
                            "GPU's workspaces. On a GPU of any size the plan is exact."));
  }
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, &b->cli->out, text.data, 0);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

//---------------------------------- what is shown ----------------------------------

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_progress(((bench *)ctx)->cli, progress);
  brim_cli_bench_publish(ctx, progress);
}

static brim_status trial_event(brim_cli *cli, const brim_result *result) {
  json_t *json = NULL;
  json_t *fields = json_object();
  brim_status status = brim_result_to_json(result, &json);
  if (!status) status = brim_json_put(fields, "result", json);
  if (status) {
    json_decref(fields);
    return status;
  }
  return brim_cli_event(cli, "trial", fields);
}

static void on_result(void *ctx, const brim_result *result) {
  bench *b = ctx;
  if (!b->plan_only) brim_cli_bench_record(b, result);
  brim_cli_bench_publish_result(b, result);
  brim_result shown = *result;
  if (b->card) take_card(b, &shown);
  // An event that could not be reported is no reason to stop: the records are in the file.
  if (b->cli->json && trial_event(b->cli, &shown)) brim_status_clear();
}

// The events of its single runs came before; this one is what stands in the end.
static void on_final(void *ctx, const brim_result *result) {
  bench *b = ctx;
  if (b->cli->json && trial_event(b->cli, result)) brim_status_clear();
}

// A line that starts with `head`; what follows is wrapped below where it starts.
static void note_line(bench *b, const char *head, const char *text) {
  brim_str line;
  brim_str_init(&line);
  brim_ui_fit(&line, &b->cli->err, text, brim_utf8_width(head));
  if (!brim_str_status(&line)) brim_cli_note(b->cli, "%s%s\n", head, line.data);
  brim_str_deinit(&line);
}

// Some values are left out: batches beyond the data, for one.
static bool is_swept(const bench *b, int knob, int64_t value) {
  for (size_t i = 0; i < b->settings.count; i++) {
    if (b->settings.setting[i].value[knob] == value) return true;
  }
  return false;
}

static void settings_line(const bench *b, brim_str *out) {
  size_t settings = b->settings.count;
  brim_str_printf(out, settings == 1 ? brim_tr("%zu setting:") : brim_tr("%zu settings:"),
                  settings);
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_sweep_axis *axis = &b->axes.axis[i];
    const brim_knob *knob = &b->job->work->knobs[axis->knob];
    brim_str_printf(out, "%s %s", i ? "," : "", knob->name);
    for (size_t k = 0; k < axis->count; k++) {
      char text[32];
      if (!is_swept(b, axis->knob, axis->values[k])) continue;
      brim_knob_format(knob, axis->values[k], text);
      brim_str_printf(out, " %s", text);
    }
  }
  if (b->settings.own_added) brim_str_append(out, brim_tr(", and the config's own setting"));
}

static void banner(bench *b) {
  char device[320];
  brim_work_info info;
  const brim_cli_job *job = b->job;
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
  settings_line(b, &text);
  if (!brim_str_status(&text)) note_line(b, "  ", text.data);
  brim_str_deinit(&text);
  brim_cli_note(b->cli, "\n");
}

// What comes on top of every plan: of the recommended setting as it was measured, of plans alone as
// an earlier run left it.
static void put_memory(const bench *b, brim_str *out) {
  char text[96];
  double overhead = (double)NAN;
  if (!b->plan_only && b->picks.recommended >= 0) {
    overhead = b->results[b->picks.recommended].overhead_bytes;
  }
  for (size_t i = 0; i < b->count && isnan(overhead); i++) overhead = b->results[i].overhead_bytes;
  brim_cli_overhead_text(overhead, text, sizeof text);
  brim_str_printf(out, brim_tr("\noverhead      %s, on top of what is planned\n"), text);
}

// Where copies from pageable memory show in the table, this says why.
static void put_pageable(const bench *b, brim_str *out) {
  const char *why = brim_cli_pageable_text(b->job->device);
  for (size_t i = 0; i < b->count && why; i++) {
    const brim_result *r = &b->results[i];
    if (strcmp(brim_result_text_as(r, BRIM_ROLE_PINNED), "false") != 0) continue;
    if (!(r->phase_ms[BRIM_PHASE_H2D].median > 0.05 * r->total_ms.median)) continue;
    brim_str_printf(out, "\n%s\n", why);
    return;
  }
}

// In short only what has to be done: the learning rate of a changed batch.
static void put_advice(const bench *b, brim_str *out) {
  if (b->cli->verbose) {
    brim_ui_advice(&b->cli->out, &b->advice, out);
  } else if (b->advice.learning_rate[0]) {
    brim_str_append_char(out, '\n');
    brim_ui_wrap(out, &b->cli->out, b->advice.learning_rate, 0);
    brim_str_append_char(out, '\n');
  }
}

static brim_status put_views(const bench *b, brim_str *out) {
  const brim_work *work = b->job->work;
  if (!b->cli->verbose && !(work->table->views && work->table->views->brief)) return BRIM_OK;
  brim_view views[BRIM_VIEWS];
  if (!work->table->views || b->count == 0) return BRIM_OK;
  BRIM_TRY(brim_ui_workload_tables(&b->cli->out, views, brim_cli_bench_views(b, views), out));
  return BRIM_OK;
}

static brim_status print_text(bench *b, bool interrupted) {
  brim_str text;
  brim_str_init(&text);
  brim_status status =
      b->plan_only
          ? brim_ui_plan_sweep(&b->cli->out, b->results, b->count, config_limit(b->job), &text)
      : b->cli->verbose ? brim_ui_bench(&b->cli->out, b->results, b->count, &b->picks, &text)
                        : brim_ui_bench_short(&b->cli->out, b->results, b->count, &b->picks, &text);
  if (!status && !b->plan_only) status = put_views(b, &text);
  if (!status && !b->plan_only) bench_put_findings(b, &text);
  if (!interrupted && b->count < b->grid) {
    brim_str_printf(&text,
                    b->budget_ended
                        ? brim_tr("\nthe budget ended the sweep: %zu of %zu settings were "
                                  "measured; the same command with --resume continues\n")
                        : brim_tr("\n%zu of %zu settings were measured, those near the best; "
                                  "--exhaustive measures all\n"),
                    b->count, b->grid);
  } else if (b->budget_ended) {
    brim_str_append(&text, brim_tr("\nthe budget ended the sweep; the same command with --resume "
                                   "continues\n"));
  }
  if (interrupted) {
    size_t done = b->count;
    if (done > 0 && b->results[done - 1].failure == BRIM_FAILURE_INTERRUPTED) done--;
    brim_str_printf(&text,
                    done == 1 ? brim_tr("\ninterrupted: %zu setting was done\n")
                              : brim_tr("\ninterrupted: %zu settings were done\n"),
                    done);
    if (b->wrote_jsonl && done + b->known_count > 0) {
      brim_str_append(&text, b->resume ? brim_tr("the same command continues from there\n")
                                       : brim_tr("the same command with --resume continues\n"));
    }
  }
  put_card(b, &text);
  if (!b->plan_only && b->count > 0) put_advice(b, &text);
  if (!status) {
    status = brim_ui_scaling(&b->cli->out, b->scaling, b->scaling_count, b->scaling_note, &text);
  }
  bool details = b->plan_only || b->cli->verbose;
  if (b->job->memory.uuid[0] && details) put_memory(b, &text);
  if (!b->plan_only && details) put_pageable(b, &text);
  if (!b->plan_only && !b->cli->quiet) {
    brim_str_append_char(&text, '\n');
    brim_str_printf(&text, brim_tr("best setting  %s\n"),
                    b->wrote_best ? b->best : brim_tr("none, so brim writes no best.yaml"));
    if (b->wrote_jsonl) brim_str_printf(&text, brim_tr("records       %s\n"), b->jsonl);
    if (b->wrote_html) brim_str_printf(&text, brim_tr("report        %s\n"), b->html);
    if (!b->cli->verbose) {
      brim_str_append(&text, brim_tr("details       --verbose, or the report\n"));
    }
  }
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
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

// Factors are [value, low, high]; null where unknown.
static brim_status put_decision(const bench *b, json_t *f) {
  const brim_recommendation *d = &b->picks;
  BRIM_TRY(brim_json_put(f, "provisional", json_boolean(d->provisional)));
  BRIM_TRY(brim_json_put(f, "keep", json_boolean(brim_recommendation_keeps(d))));
  double others = brim_results_others(b->results, b->count);
  BRIM_TRY(brim_json_put(f, "others_cpu_percent", brim_json_number(others)));
  BRIM_TRY(brim_json_put(f, "grid", json_integer((json_int_t)b->grid)));
  BRIM_TRY(brim_json_put(f, "budget_ended", json_boolean(b->budget_ended)));
  BRIM_TRY(brim_json_put(f, "reason", json_string(d->reason)));
  BRIM_TRY(put_factor(f, "gain", d->gain));
  return put_factor(f, "beside", d->more);
}

static brim_status print_json(bench *b, bool interrupted) {
  const struct {
    const char *key;
    int index;
  } picks[] = {{"now", b->picks.now},
               {"highest", b->picks.highest},
               {"efficient", b->picks.efficient},
               {"recommended", b->picks.recommended}};
  const size_t pick_count = sizeof picks / sizeof *picks;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "count", json_integer((json_int_t)b->count));
  if (!s) s = brim_json_put(f, "interrupted", json_boolean(interrupted));
  for (size_t i = 0; i < pick_count && !s; i++) {
    int at = picks[i].index;
    if (at < 0) {
      s = brim_json_put(f, picks[i].key, json_null());
      continue;
    }
    json_t *json = NULL;
    s = brim_result_to_json(&b->results[at], &json);
    json_t *setting = json_object_get(json_object_get(json, "what"), "setting");
    if (!s) s = brim_json_put(f, picks[i].key, json_incref(setting));
    json_decref(json);
  }
  if (!s) s = put_decision(b, f);
  if (!s) s = brim_json_put(f, "records", path_json(b->jsonl, b->wrote_jsonl));
  if (!s) s = brim_json_put(f, "report", path_json(b->html, b->wrote_html));
  if (!s) s = brim_json_put(f, "best", path_json(b->best, b->wrote_best));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "result", f);
}

//---------------------------------- the command ----------------------------------

static brim_status on_crash(void *ctx) {
  bench *b = ctx;
  return brim_cli_job_reopen(b->cli, b->job);
}

// Without it the columns of utilisation stay unknown: no reason not to measure.
static void start_sampler(bench *b) {
  brim_cli_job *job = b->job;
  if (b->plan_only || !job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.05, &b->sampler)) {
    brim_log_info("bench", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

static bool with_ceilings(const bench *b) {
  return brim_option_flag(&b->cli->parse, "ceilings", true);
}

// Known from an earlier run on this machine, or measured now, in a second or two.
static brim_status measure_machine(bench *b) {
  brim_machine_options how = brim_cli_machine_options(b->cli, b->job);
  brim_machine_ceilings_init(&b->machine);
  if (b->plan_only || !with_ceilings(b)) return BRIM_OK;
  return brim_machine_ceilings_get(b->job->device, &how, &b->machine);
}

// What is still too low after measuring again is marked where it is shown.
static void check_machine(bench *b) {
  brim_machine_options how = brim_cli_machine_options(b->cli, b->job);
  (void)brim_machine_ceilings_raise(b->job->device, &how, b->results, b->count, &b->machine);
}

// Of a first visit; what a sweep may take is a multiple of it. Steps of a CPU are what they are at once,
// a GPU's come after recording and loading.
#define CPU_SECONDS 4.0
#define GPU_SECONDS 30.0

static double budget(const bench *b) {
  return (double)brim_option_int(&b->cli->parse, "budget", 0);
}

// Fewer steps than usual were asked for: every part of a visit is shorter.
enum { USUAL_STEPS = 10, LEAST_STEPS = 2 };

static bool is_brief(const bench *b) {
  const brim_config *config = b->job->config;
  return brim_config_is_set(config, "benchmark.steps_per_test") &&
         brim_config_int(config, "benchmark.steps_per_test") < USUAL_STEPS;
}

static double usual_seconds(const bench *b) {
  return b->job->device->info.host_memory ? CPU_SECONDS : GPU_SECONDS;
}

double brim_cli_bench_visit_share(const bench *b) {
  int64_t steps = brim_config_int(b->job->config, "benchmark.steps_per_test");
  double share = is_brief(b) ? fmax(LEAST_STEPS, (double)steps) / USUAL_STEPS : 1;
  // a budget has room for several settings
  return budget(b) > 0 ? fmin(share, fmax(0.25, budget(b) / 16) / usual_seconds(b)) : share;
}

static brim_trial_options trial_options(const bench *b) {
  const brim_cli_job *job = b->job;
  int steps = (int)brim_config_int(job->config, "benchmark.steps_per_test");
  bool brief = is_brief(b);
  // the default does not raise what was asked for
  bool least = brim_config_is_set(job->config, "benchmark.min_steps");
  return (brim_trial_options){
      .steps = steps,
      .max_warmup = brief ? (steps > LEAST_STEPS ? steps : LEAST_STEPS) : 0,
      .min_steps = least ? (int)brim_config_int(job->config, "benchmark.min_steps") : 0,
      .ci_target = 0.01,
      .max_seconds = usual_seconds(b) * brim_cli_bench_visit_share(b),
      .memory_limit = brim_cli_memory_limit(job),
      .memory = &b->job->memory,
      .sampler = b->sampler,
      .machine = &b->machine,
      .ceilings = with_ceilings(b),
      .stop = b->cli->stop};
}

// A table of what there is, while the sweep continues.
static void on_first(void *ctx, const brim_result *results, size_t count) {
  bench *b = ctx;
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  if (!brim_ui_bench_table(&b->cli->err, results, count, -1, &text)) {
    brim_str_append(&text, brim_tr("so far; the sweep continues\n\n"));
    if (!brim_str_status(&text)) brim_cli_note(b->cli, "%s", text.data);
  }
  brim_status_clear();
  brim_str_deinit(&text);
}

// From here on settings are those that have a result, as a smaller grid would have had them.
static void keep_measured(bench *b, const size_t *setting_of) {
  int own = -1;
  for (size_t i = 0; i < b->count; i++) {
    if (b->settings.own >= 0 && setting_of[i] == (size_t)b->settings.own) own = (int)i;
    b->settings.setting[i] = b->settings.setting[setting_of[i]];
  }
  b->settings.own = own;
  b->settings.count = b->count;
}

// Larger grids are climbed, unless all of it was asked for.
enum { WHOLE_GRID = 24 };

static brim_status sweep(bench *b) {
  const brim_cli_job *job = b->job;
  b->grid = b->settings.count;
  size_t *setting_of = brim_calloc(b->settings.count + 1, sizeof *setting_of);
  if (!setting_of) return brim_fail(BRIM_ENOMEM, "out of memory for the sweep");
  brim_sweep_options how = {
      .axes = b->axes.axis,
      .axis_count = b->axes.count,
      .trial = trial_options(b),
      .settings = &b->settings,
      .race = &b->race,
      .plan_only = b->plan_only,
      .repeats = (int)brim_config_int(job->config, "benchmark.repeats"),
      .on_progress = on_progress,
      .on_result = on_result,
      .on_final = on_final,
      .known = b->resume ? brim_cli_bench_known : NULL,
      .on_first = on_first,
      .climb_above = brim_option_flag(&b->cli->parse, "exhaustive", false) ? 0 : WHOLE_GRID,
      .budget_s =
          b->plan_only ? 0 : budget(b),  // the machine's ceilings take a second of their own
      .setting_of = setting_of,
      .budget_ended = &b->budget_ended,
      .ctx = b,
  };
  brim_status status = brim_sweep_run(&b->subject, &how, &b->results, &b->count);
  if (b->results) keep_measured(b, setting_of);
  brim_free(setting_of);
  return status;
}

// A sweep of which nothing ran has failed: by the first failure that is not one of memory, which is
// the rarer one to foresee, else by memory. Of plans alone a setting that does not fit is an answer.
static brim_status nothing_ran(const bench *b) {
  const brim_result *cause = NULL;
  for (size_t i = 0; i < b->count; i++) {
    const brim_result *r = &b->results[i];
    if (r->failure == BRIM_FAILURE_NONE || (b->plan_only && brim_result_is_oom(r))) return BRIM_OK;
    if (!cause || (brim_result_is_oom(cause) && !brim_result_is_oom(r))) cause = r;
  }
  if (!cause) return BRIM_OK;
  brim_status status = brim_result_is_oom(cause) ? BRIM_EOOM : cause->failure_status;
  b->cli->running = cause->failure == BRIM_FAILURE_OTHER;  // the setting stood, its steps failed
  if (b->plan_only) {
    return brim_fail(status, "no setting can be planned: %s", cause->message);
  }
  return brim_fail(status, "no setting ran: %s", cause->message);
}

// The first that went wrong, until everything else that there is was shown.
typedef struct outcome {
  brim_status status;
  char detail[1024];
} outcome;

static void keep(outcome *o, brim_status status) {
  if (!status || o->status) return;
  o->status = status;
  snprintf(o->detail, sizeof o->detail, "%s", brim_status_detail());
}

// Of a budget, prices take what they take without one at most.
#define LONGEST_PRICES 25.0

// The files are there before anything more is run, and written again when that has told something.
static void complete(bench *b, outcome *end) {
  outcome interrupted = *end;
  end->status = BRIM_OK;
  bench_choose(b, interrupted.status == BRIM_EINTERRUPTED);
  check_machine(b);
  if (b->count > 0) keep(end, brim_cli_bench_files(b));
  if (!end->status) *end = interrupted;
  if (!end->status) keep(end, nothing_ran(b));
  if (end->status) return;
  brim_remedy_options how = {.trial = trial_options(b), .on_progress = on_progress, .ctx = b};
  double spent = (double)brim_time_since_ns(b->started, brim_clock_now()) * 1e-9;
  if (budget(b) > 0) how.seconds = fmin(LONGEST_PRICES, budget(b) - spent);
  if (!(how.seconds < 0)) keep(end, bench_price(b, &how));
  if (!end->status) keep(end, brim_cli_bench_scale(b));
  if (!end->status) keep(end, brim_cli_bench_verify(b));
  bool traced = !end->status && bench_trace(b);
  if (traced || b->priced || b->proof_record || b->scaling_count > 0)
    keep(end, brim_cli_bench_files(b));
}

// What was measured is shown even where it could not be written.
static brim_status finish(bench *b, brim_status swept) {
  outcome end = {BRIM_OK, ""};
  keep(&end, swept);
  if (b->plan_only) {
    if (!swept) keep(&end, nothing_ran(b));
  } else {
    complete(b, &end);
  }
  bool interrupted = swept == BRIM_EINTERRUPTED;
  BRIM_TRY(b->cli->json ? print_json(b, interrupted) : print_text(b, interrupted));
  BRIM_TRY(brim_cli_bench_verified(b));
  if (end.status) brim_status_set_detail(end.detail);
  return end.status ? end.status : brim_cli_bench_apply(b);
}

static brim_status bench_all(bench *b) {
  BRIM_TRY(brim_cli_job_config(b->cli, b->job));
  BRIM_TRY(brim_cli_bench_apply_file(b));
  BRIM_TRY(brim_cli_bench_verify_check(b));
  BRIM_TRY(brim_cli_bench_scale_check(b));
  BRIM_TRY(check_card(b));
  if (brim_option_find(&b->cli->parse, "budget") && budget(b) < 1) {
    return brim_cli_usage(b->cli, BRIM_N_("--budget must be 1 second or more"));
  }
  BRIM_TRY(brim_cli_job_open(b->cli, b->job));
  b->work = (brim_work_subject){.config = b->job->config,
                                .work = &b->job->work,
                                .device = &b->job->device,
                                .reopen = on_crash,
                                .ctx = b};
  brim_work_subject_open(&b->work, &b->subject);
  BRIM_TRY(brim_cli_bench_axes(b));
  BRIM_TRY(brim_cli_bench_apply_check(b));
  if (!b->plan_only) BRIM_TRY(brim_cli_bench_prepare(b));
  banner(b);
  bench_publish_start(b);
  b->started = brim_clock_now();
  brim_status status = measure_machine(b);
  if (!status) {
    start_sampler(b);
    status = sweep(b);
  }
  brim_gpu_sampler_stop(b->sampler);
  b->sampler = NULL;
  for (size_t i = 0; i < b->count && b->card; i++) take_card(b, &b->results[i]);
  if (!status || status == BRIM_EINTERRUPTED) status = finish(b, status);
  bench_publish_stop(b);
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {.on_first = true};
  bench b = {.cli = cli,
             .job = &job,
             .settings = {.own = -1},
             .larger = (double)NAN,
             .plan_only = brim_option_flag(&cli->parse, "plan", false)};
  brim_recommendation_init(&b.picks);
  brim_status status = bench_all(&b);
  for (size_t i = 0; i < b.count; i++) brim_result_deinit(&b.results[i]);
  brim_free(b.results);
  if (b.proof_record) brim_result_deinit(b.proof_record);
  brim_free(b.proof_record);
  brim_race_destroy(b.race);
  brim_cli_bench_scale_free(&b);
  brim_cli_bench_known_free(&b);
  brim_cli_bench_axes_free(&b);
  brim_fs_unlock(b.lock);
  brim_free(b.jsonl);
  brim_free(b.html);
  brim_free(b.best);
  brim_cli_job_close(&job);
  brim_config_close(b.verified);
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
