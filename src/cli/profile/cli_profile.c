// `brim profile CONFIG`: where the time and the memory of a step go. src/measure measures.

#include "cli/job/cli_aside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/job/cli_job_options.h"
#include "cli/job/cli_memory.h"
#include "cli/train/cli_train_ranks.h"
#include "measure/measure.h"
#include "profile/profile_chrome.h"
#include "profile/profile_rows.h"
#include "profile/profile_scalars.h"
#include "profile/profile_trace.h"
#include "record/record_snapshot.h"
#include "tune/tune.h"
#include "ui/profile/ui_profile.h"

// Files, in the order in which they are listed.
typedef enum cli_profile_file {
  CLI_PROFILE_RECORD,    // profile.json
  CLI_PROFILE_PAGE,      // profile.html
  CLI_PROFILE_TRACE,     // trace.json.gz
  CLI_PROFILE_SNAPSHOT,  // of memory: only where it is asked for
  CLI_PROFILE_EVENTS,    // TensorBoard's folder: the same
  CLI_PROFILE_FILES
} cli_profile_file;

typedef struct cli_profile {
  brim_cli *cli;
  brim_cli_job *job;
  brim_setting setting;
  brim_time begun;  // measuring
  brim_machine_ceilings machine;
  brim_gpu_sampler *sampler;       // on a GPU; NULL = none
  char *paths[CLI_PROFILE_FILES];  // chosen before anything is measured; NULL = not asked for
  bool wrote[CLI_PROFILE_FILES];
  brim_fs_lockfile *lock;  // of the output folder
  brim_profile profile;
  brim_trace trace;
} cli_profile;

//-------------------------------------------- files --------------------------------------------
// The files of a profile. Whether they can be written is determined before anything is measured; those of
// an earlier profile in the same folder are kept under other names.

// Option, name in the folder (NULL = only where the option names it), key in JSON, label.
static const struct {
  const char *option, *name, *key, *label;
  const char *mark;  // in the beginning of a file that a profile wrote; NULL = none
} files[CLI_PROFILE_FILES] = {
    [CLI_PROFILE_RECORD] = {NULL, "profile.json", "record", BRIM_N_("record"), NULL},
    [CLI_PROFILE_PAGE] = {"html", "profile.html", "html", BRIM_N_("page"), BRIM_CLI_PAGE_MARK},
    [CLI_PROFILE_TRACE] = {"trace", "trace.json.gz", "trace", BRIM_N_("trace"),
                           "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\""},
    [CLI_PROFILE_SNAPSHOT] = {"memory-snapshot", NULL, "memory_snapshot", BRIM_N_("memory"), NULL},
    [CLI_PROFILE_EVENTS] = {"tensorboard", NULL, "tensorboard", "TensorBoard", NULL},
};

//---------------------------------- before ----------------------------------

// output_dir when it is given, else runs/profile-NAME with the run's name or the config's.
static brim_status choose_folder(const brim_cli_job *job, brim_str *out) {
  if (brim_cli_job_output_dir(job)) {
    brim_str_append(out, brim_cli_job_output_dir(job));
    return brim_str_status(out);
  }
  const char *name = brim_config_string(job->config, "name");
  if (!name && job->input.path) name = brim_fs_basename(job->input.path);
  if (!name) name = brim_config_string(job->config, "workload");
  size_t n = strlen(name);
  if (brim_str_ends(name, ".yaml")) n -= 5;
  if (brim_str_ends(name, ".yml")) n -= 4;
  brim_str_append(out, "runs/profile-");
  brim_str_append_n(out, name, n);
  return brim_str_status(out);
}

// A place that cannot be written to is wrong input: nothing has begun.
static brim_status check_file(const char *path) {
  char *folder = brim_fs_dirname(path);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  brim_status status = strcmp(folder, ".") == 0 ? BRIM_OK : brim_fs_mkdirs(folder);
  brim_free(folder);
  struct stat st;
  if (!status && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
  }
  if (!status) status = brim_fs_check_target(path);
  return brim_fs_refused(status);
}

static brim_status check_folder(const char *path) {
  brim_status status = brim_fs_mkdirs(path);
  char *probe = status ? NULL : brim_fs_join(path, "events");
  if (!status && !probe) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (!status) status = brim_fs_check_target(probe);
  brim_free(probe);
  return brim_fs_refused(status);
}

static brim_status check_endings(cli_profile *p) {
  const char *trace = p->paths[CLI_PROFILE_TRACE];
  if (!brim_str_ends(trace, ".json") && !brim_str_ends(trace, ".json.gz")) {
    return brim_cli_usage(p->cli, BRIM_N_("--trace must end in .json or .json.gz, not %s"), trace);
  }
  return BRIM_OK;
}

static brim_status choose_paths(cli_profile *p, const char *folder) {
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    const char *given =
        files[i].option ? brim_option_string(&p->cli->parse, files[i].option, NULL) : NULL;
    if (!given && !files[i].name) continue;
    p->paths[i] = given ? brim_strdup(given) : brim_fs_join(folder, files[i].name);
    if (!p->paths[i]) return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  return check_endings(p);
}

// Before anything is measured: where files go, and whether they can be written (BRIM_EINVAL when not).
static brim_status profile_prepare(cli_profile *p) {
  brim_str folder;
  brim_str_init(&folder);
  brim_status status = choose_folder(p->job, &folder);
  if (!status) status = choose_paths(p, folder.data);
  if (!status) {
    status = brim_cli_job_check_outputs(p->cli, p->job, (const char *const *)p->paths,
                                        CLI_PROFILE_FILES);
  }
  for (int i = 0; i < CLI_PROFILE_FILES && !status; i++) {
    if (!p->paths[i]) continue;
    status = i == CLI_PROFILE_EVENTS ? check_folder(p->paths[i]) : check_file(p->paths[i]);
    // what has its usual name is kept beside the new one
    bool named = files[i].option && brim_option_string(&p->cli->parse, files[i].option, NULL);
    if (!status && named) status = brim_cli_check_replace(p->cli, p->paths[i], files[i].mark);
  }
  if (!status) status = brim_fs_lock_folder(folder.data, &p->lock);
  for (int i = 0; i < CLI_PROFILE_FILES && !status && p->lock; i++) {
    if (p->paths[i]) brim_fs_remove_stale_of(p->paths[i]);
  }
  brim_str_deinit(&folder);
  return status;
}

//---------------------------------- after ----------------------------------

// Takes the value.
static brim_status write_json(json_t *value, int indent, const char *path) {
  char *text = NULL;
  brim_status status = brim_json_dump(value, indent, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  brim_free(text);
  json_decref(value);
  return status;
}

static brim_status write_record(const cli_profile *p, const char *path) {
  json_t *value = NULL;
  BRIM_TRY(brim_profile_to_json(&p->profile, &value));
  return write_json(value, 1, path);
}

static brim_status write_page(const cli_profile *p, const char *path) {
  brim_str page, command;
  brim_str_init(&page);
  brim_str_init(&command);
  brim_cli_command_text(p->cli, &command);
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_profile_page(&p->profile, command.data, &page);
  if (!status) status = brim_fs_write(path, page.data, page.len);
  brim_str_deinit(&command);
  brim_str_deinit(&page);
  return status;
}

static brim_status write_trace(const cli_profile *p, const char *path) {
  return brim_chrome_write(&p->trace, &p->profile.memory, path);
}

static brim_status write_snapshot(const cli_profile *p, const char *path) {
  json_t *value = NULL;
  BRIM_TRY(brim_snapshot_to_json(&p->profile, &value));
  return write_json(value, 1, path);
}

static brim_status write_events(const cli_profile *p, const char *path) {
  return brim_scalars_write(&p->trace, path);
}

// A file that was named outright is replaced, as asked for.
static brim_status put_aside(const cli_profile *p) {
  const char *paths[CLI_PROFILE_FILES] = {NULL};
  char *kept = NULL;
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    const char *option = files[i].option;
    if (!option || !brim_option_string(&p->cli->parse, option, NULL)) paths[i] = p->paths[i];
  }
  BRIM_TRY(brim_cli_put_aside(paths, CLI_PROFILE_FILES, (const char *const *)p->paths,
                              CLI_PROFILE_FILES, p->job->input.path, &kept));
  if (kept) brim_cli_note(p->cli, brim_tr("the earlier profile is kept: %s\n"), kept);
  brim_free(kept);
  return BRIM_OK;
}

// Afterwards. Tries all of them; returns the first failure (BRIM_EIO or BRIM_ENOMEM).
static brim_status profile_files(cli_profile *p) {
  static brim_status (*const write[CLI_PROFILE_FILES])(const cli_profile *, const char *) = {
      [CLI_PROFILE_RECORD] = write_record, [CLI_PROFILE_PAGE] = write_page,
      [CLI_PROFILE_TRACE] = write_trace,   [CLI_PROFILE_SNAPSHOT] = write_snapshot,
      [CLI_PROFILE_EVENTS] = write_events,
  };
  brim_status first = BRIM_OK;
  char detail[512] = "";
  const brim_status kept = put_aside(p);
  if (kept) return kept == BRIM_ENOMEM ? kept : BRIM_EIO;
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    if (!p->paths[i]) continue;
    const brim_status status = write[i](p, p->paths[i]);
    p->wrote[i] = status == BRIM_OK;
    if (!status || first) continue;
    first = status == BRIM_ENOMEM ? status : BRIM_EIO;
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
  }
  if (first) brim_status_set_detail(detail);
  return first;
}

// The page alone where --html names it, from a record that was read; it may not take the record's place.
static brim_status profile_page_again(cli_profile *p, const char *record) {
  const char *given = brim_option_string(&p->cli->parse, files[CLI_PROFILE_PAGE].option, NULL);
  if (!given) return BRIM_OK;
  BRIM_TRY(brim_cli_check_outputs(p->cli, &record, 1, &given, 1));
  p->paths[CLI_PROFILE_PAGE] = brim_strdup(given);
  if (!p->paths[CLI_PROFILE_PAGE]) {
    return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  BRIM_TRY(check_file(given));
  BRIM_TRY(write_page(p, given));
  p->wrote[CLI_PROFILE_PAGE] = true;
  return BRIM_OK;
}

static void profile_files_free(cli_profile *p) {
  brim_fs_unlock(p->lock);
  for (int i = 0; i < CLI_PROFILE_FILES; i++) brim_free(p->paths[i]);
}

// {"record": path, ...} of those that were written; NULL without memory.
static json_t *profile_files_json(const cli_profile *p) {
  json_t *object = json_object();
  for (int i = 0; object && i < CLI_PROFILE_FILES; i++) {
    if (!p->wrote[i] || !brim_json_put(object, files[i].key, json_string(p->paths[i]))) continue;
    json_decref(object);
    return NULL;
  }
  return object;
}

// "profile    runs/profile-x/profile.json", a line each.
static void profile_files_text(const cli_profile *p, brim_str *out) {
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    if (!p->wrote[i]) continue;
    const char *label = brim_tr(files[i].label);
    const int width = brim_utf8_width(label);
    brim_str_append(out, label);
    brim_str_repeat(out, ' ', (size_t)(width < 12 ? 13 - width : 1));
    brim_str_printf(out, "%s\n", p->paths[i]);
  }
}

//------------------------------------------- command -------------------------------------------
// `brim profile CONFIG`: where the time and the memory of a step go. Measuring is measure_profile.c's;
// this file is the options, the order of events and what is printed.

enum { LEAST_STEPS = 1, MOST_STEPS = 10000, ROWS = 10 };

static const char *const sorts[] = {"time", "count", "share", "ceiling", "name", NULL};
static const char *const sources[] = {"auto", "cupti", "events", NULL};
static const char *const lists[] = {"kernel", "op", "layer", "phase", "transform", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "by",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "WHAT",
     .help = BRIM_N_("rows of the table"),
     .choices = lists,
     .default_text = BRIM_N_("kernel, or op without records of the GPU")},
    {.name = "sort",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "BY",
     .help = BRIM_N_("order of the table (ceiling: furthest below it first)"),
     .choices = sorts,
     .default_text = "time"},
    {.name = "limit",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("rows to print (0: all); files have all"),
     .default_text = "10"},
    {.name = "steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("steps to trace, after the warm-up"),
     .default_text = BRIM_N_("20, fewer where they are long")},
    {.name = "source",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "S",
     .help = BRIM_N_("where times of a GPU come from"),
     .choices = sources,
     .default_text = "auto"},
    {.name = "price",
     .negatable = true,
     .help = BRIM_N_("also measure what the findings' remedies would gain"),
     .default_text = "yes"},
    BRIM_CLI_OPTION_DEVICE,
    BRIM_CLI_OPTION_BACKEND,
    BRIM_CLI_OPTION_THREADS,
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for the files"),
     .key = "output_dir",
     .default_text = "runs/profile-NAME",
     .group = BRIM_N_("Files")},
    {.name = "html",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write the HTML page"),
     .default_text = BRIM_N_("profile.html in output_dir"),
     .group = BRIM_N_("Files")},
    {.name = "trace",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write the trace for Perfetto and HTA (.json or .json.gz)"),
     .default_text = BRIM_N_("trace.json.gz in output_dir"),
     .group = BRIM_N_("Files")},
    {.name = "tensorboard",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("write figures of each traced step as TensorBoard event files"),
     .group = BRIM_N_("Files")},
    {.name = "memory-snapshot",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write what is in memory at each op of a step, as JSON"),
     .group = BRIM_N_("Files")},
    {.name = "force",
     .help = BRIM_N_("replace files that brim did not write"),
     .group = BRIM_N_("Files")},
    {0},
};

//---------------------------------- options ----------------------------------

static brim_status check_options(brim_cli *cli) {
  const int64_t steps = brim_option_int(&cli->parse, "steps", LEAST_STEPS);
  if (steps < LEAST_STEPS || steps > MOST_STEPS) {
    return brim_cli_usage(cli, BRIM_N_("--steps must be from %d to %d"), LEAST_STEPS, MOST_STEPS);
  }
  if (brim_option_int(&cli->parse, "limit", ROWS) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--limit must be 0 or more"));
  }
  return BRIM_OK;
}

static int place_of(const char *const *words, const char *word) {
  for (int i = 0; word && words[i]; i++) {
    if (strcmp(words[i], word) == 0) return i;
  }
  return -1;
}

// A list without rows is not what was asked for; the finest that there is is shown, and why.
static brim_ui_profile_options show_options(const cli_profile *p) {
  const brim_option_parse *parse = &p->cli->parse;
  const int by = place_of(lists, brim_option_string(parse, "by", NULL));
  const int sort = place_of(sorts, brim_option_string(parse, "sort", "time"));
  brim_ui_profile_options how = {.by = brim_ui_profile_finest(&p->profile),
                                 .sort = (brim_ui_profile_sort)(sort < 0 ? 0 : sort),
                                 .limit = (size_t)brim_option_int(parse, "limit", ROWS)};
  if (by < 0) return how;
  if (p->profile.lists[by].count > 0) {
    how.by = (brim_profile_list)by;
  } else {
    brim_cli_note(p->cli, brim_tr("this profile has no rows of --by %s; it shows others\n"),
                  lists[by]);
  }
  return how;
}

//---------------------------------- measuring ----------------------------------

static void on_stage(void *ctx, const char *what) {
  cli_profile *p = ctx;
  const double elapsed_ns = (double)brim_time_since_ns(p->begun, brim_clock_now());
  const brim_progress progress = {.title = brim_tr(what),
                                  .done = -1,
                                  .elapsed_s = elapsed_ns / 1e9,
                                  .eta_s = (double)NAN,
                                  .rate = (double)NAN};
  brim_cli_progress(p->cli, &progress);
}

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_progress(((cli_profile *)ctx)->cli, progress);
}

static brim_status on_crash(void *ctx) {
  cli_profile *p = ctx;
  return brim_cli_job_reopen(p->cli, p->job);
}

static void banner(const cli_profile *p) {
  char device[320], what[192];
  brim_work_info info;
  const brim_cli_job *job = p->job;
  memset(&info, 0, sizeof info);
  job->work->table->info(job->work->state, &info);
  brim_cli_device_text(job->device, device, sizeof device);
  brim_cli_note(p->cli, "brim profile  %s\n", device);
  if (brim_cli_backend_text(job, device, sizeof device)) brim_cli_note(p->cli, "  %s\n", device);
  if (info.description) {
    brim_cli_note(p->cli, "  %s\n", brim_ui_description(info.description, what));
  }
  brim_cli_note(p->cli, "\n");
}

static brim_status measure_machine(cli_profile *p) {
  const brim_machine_options how = brim_cli_machine_options(p->cli, p->job);
  brim_machine_ceilings_init(&p->machine);
  return brim_machine_ceilings_get(p->job->device, &how, &p->machine);
}

// Without it the columns of utilisation stay unknown: no reason not to measure.
static void start_sampler(cli_profile *p) {
  brim_cli_job *job = p->job;
  if (!job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.05, &p->sampler)) {
    brim_log_info("profile", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

static brim_status measure(cli_profile *p) {
  const brim_cli_job *job = p->job;
  p->setting = brim_work_setting(job->work);
  p->begun = brim_clock_now();
  BRIM_TRY(measure_machine(p));
  start_sampler(p);
  const char *source = brim_option_string(&p->cli->parse, "source", NULL);
  const brim_profile_options how = {.steps = (int)brim_option_int(&p->cli->parse, "steps", 0),
                                    .source = source && strcmp(source, "auto") ? source : NULL,
                                    .memory_limit = brim_cli_memory_limit(job),
                                    .memory = &p->job->memory,
                                    .sampler = p->sampler,
                                    .machine = &p->machine,
                                    .stop = p->cli->stop,
                                    .on_stage = on_stage,
                                    .ctx = p};
  brim_status status = brim_profile_run(job->work, job->config, job->device, &p->setting, &how,
                                        &p->profile, &p->trace);
  brim_gpu_sampler_stop(p->sampler);
  p->sampler = NULL;
  return status;
}

// Ceilings from a busy hour would give shares above 100 %.
static void check_machine(cli_profile *p) {
  const brim_machine_options how = brim_cli_machine_options(p->cli, p->job);
  if (!brim_machine_ceilings_raise(p->job->device, &how, &p->profile.result, 1, &p->machine))
    return;
  const char *precision = brim_result_text_as(&p->profile.result, BRIM_ROLE_PRECISION);
  brim_profile_ceilings(&p->profile, precision[0] ? precision : "fp32");
}

// Prices of the findings, by short runs of their remedies. Interrupted, they are what was known until then.
static brim_status find(cli_profile *p) {
  const brim_cli_job *job = p->job;
  const brim_remedy_options how = {.setting = &p->setting,
                                   .folder = brim_cli_job_saves_in(job),
                                   .trial = {.memory_limit = brim_cli_memory_limit(job),
                                             .memory = &p->job->memory,
                                             .machine = &p->machine,
                                             .ci_target = 0.01,
                                             .stop = p->cli->stop},
                                   .on_progress = on_progress,
                                   .ctx = p};
  if (brim_option_flag(&p->cli->parse, "price", true)) {
    brim_work_subject work = {.config = job->config,
                              .work = &p->job->work,
                              .device = &p->job->device,
                              .reopen = on_crash,
                              .ctx = p};
    brim_subject subject;
    brim_work_subject_open(&work, &subject);
    return brim_remedies_measure(&subject, &how, &p->profile.result, 1, 0);
  }
  brim_diagnose(&p->profile.result, 1, 0);
  return BRIM_OK;
}

// The setting itself failed: it did not fit, or its steps did not run.
static brim_status check_ran(cli_profile *p) {
  const brim_result *r = &p->profile.result;
  if (r->failure == BRIM_FAILURE_NONE) return BRIM_OK;
  p->cli->running = r->failure == BRIM_FAILURE_OTHER;
  return brim_fail(brim_result_is_oom(r) ? BRIM_EOOM : r->failure_status, "%s", r->message);
}

//---------------------------------- what is shown ----------------------------------

static brim_status print_text(const cli_profile *p) {
  brim_str out;
  brim_str_init(&out);
  const brim_ui_profile_options how = show_options(p);
  brim_status status = brim_ui_profile(&p->cli->out, &p->profile, &how, &out);
  brim_str_append_char(&out, '\n');
  profile_files_text(p, &out);
  if (!status) status = brim_str_status(&out);
  if (!status) brim_cli_print(p->cli, &out);
  brim_str_deinit(&out);
  return status;
}

static brim_status print_json(const cli_profile *p) {
  json_t *fields = json_object(), *value = NULL;
  brim_status status = brim_profile_to_json(&p->profile, &value);
  if (!status) status = brim_json_put(fields, "profile", value);
  if (!status) status = brim_json_put(fields, "files", profile_files_json(p));
  if (status) {
    json_decref(fields);
    return status;
  }
  return brim_cli_event(p->cli, "profile", fields);
}

// What was measured is shown even where it could not be written.
static brim_status finish(cli_profile *p) {
  char detail[512];
  brim_status written = profile_files(p);
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  BRIM_TRY(p->cli->json ? print_json(p) : print_text(p));
  if (written) brim_status_set_detail(detail);
  return written;
}

//---------------------------------- an earlier profile ----------------------------------

// A config may be JSON, too: a valid file without a schema of brim's. What is no JSON is a torn record.
static bool is_config(const char *path) {
  char *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  brim_status status = brim_fs_read(path, 0, &text, &size);
  if (!status) status = brim_json_parse(text, size, path, &value);
  const char *schema = json_string_value(json_object_get(value, "schema"));
  bool config = !status && (!schema || strncmp(schema, "brim.", 5) != 0);
  brim_free(text);
  json_decref(value);
  brim_status_clear();
  return config;
}

// The record that is named instead of a config, for brim_free; NULL = none is: profile.json, or the folder
// it is in.
static char *earlier_record(const brim_cli *cli) {
  const brim_option_parse *parse = &cli->parse;
  const char *word = parse->positional_count == 1 ? parse->positional[0] : "";
  if (brim_str_ends(word, ".json") && brim_fs_exists(word)) {
    return is_config(word) ? NULL : brim_strdup(word);
  }
  char *path = word[0] && brim_fs_is_dir(word) ? brim_fs_join(word, "profile.json") : NULL;
  if (path && brim_fs_exists(path)) return path;
  brim_free(path);
  return NULL;
}

// Of a command's own options, what a record has no answer to.
static brim_status check_shows(brim_cli *cli) {
  static const char *const shows[] = {"by", "sort", "limit", "html", NULL};
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option *option = cli->parse.items[i].option;
    bool global = false;
    for (const brim_option *o = brim_cli_global_options(); o->name; o++) {
      global = global || o == option;
    }
    if (global || place_of(shows, option->name) >= 0) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s is for measuring; an earlier profile is only shown"),
                          option->name);
  }
  return check_options(cli);
}

// Shows it again, measuring nothing. Of the files only the page can be made from a record.
static brim_status show_earlier(cli_profile *p, const char *path) {
  char *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  BRIM_TRY(check_shows(p->cli));
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  brim_status status = brim_json_parse(text, size, path, &value);
  brim_free(text);
  if (!status) status = brim_profile_from_json(value, path, &p->profile);
  json_decref(value);
  BRIM_TRY(status);
  brim_result_know(&p->profile.result, 1);
  BRIM_TRY(profile_page_again(p, path));
  return p->cli->json ? print_json(p) : print_text(p);
}

//---------------------------------- the command ----------------------------------

static brim_status profile_work(cli_profile *p) {
  BRIM_TRY(profile_prepare(p));
  banner(p);
  BRIM_TRY(measure(p));
  BRIM_TRY(check_ran(p));
  p->cli->running = true;
  brim_time start = brim_clock_now();
  check_machine(p);
  brim_status found = find(p);
  p->profile.seconds += (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  if (found && found != BRIM_EINTERRUPTED) return found;
  BRIM_TRY(finish(p));
  return found ? brim_fail(found, "interrupted; the findings have no measured prices") : BRIM_OK;
}

// The first rank measures, and the others make the steps that it makes.
static brim_status profile_ranks(cli_profile *p) {
  const brim_work *work = p->job->work;
  const brim_work_ranks_table *ranks = work->table->ranks;
  if (!ranks) {
    return brim_fail(BRIM_EUNSUPPORTED, "workload %s runs on one rank only", work->table->name);
  }
  if (brim_ranks_rank(p->job->ranks) > 0) return ranks->follow(work->state, work->table);
  ranks->lead(work->state, true);
  brim_status status = profile_work(p);
  if (p->job->work) p->job->work->table->ranks->lead(p->job->work->state, false);
  return status;
}

static brim_status profile_all(cli_profile *p) {
  brim_cli_job *job = p->job;
  BRIM_TRY(check_options(p->cli));
  BRIM_TRY(brim_cli_job_config(p->cli, job));
  if (!job->ranks) {
    int count = 1;
    BRIM_TRY(brim_cli_ranks_wanted(job, &count));
    if (count > 1) return brim_cli_ranks_launch(p->cli, count);
    job->on_first = true;  // of a list that gpus or ranks cut to one
  }
  BRIM_TRY(brim_cli_job_open(p->cli, job));
  return job->ranks ? profile_ranks(p) : profile_work(p);
}

static brim_status profile_config(cli_profile *p) {
  brim_cli_ranks *ranks = NULL;
  BRIM_TRY(brim_cli_ranks_open(p->cli, &ranks));
  p->job->ranks = brim_cli_ranks_get(ranks);
  brim_status status = brim_cli_ranks_failed(p->cli, ranks, profile_all(p));
  brim_cli_job_close(p->job);
  brim_cli_ranks_close(ranks);
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  cli_profile p = {.cli = cli, .job = &job};
  brim_profile_init(&p.profile);
  brim_trace_init(&p.trace);
  char *record = earlier_record(cli);
  brim_status status = record ? show_earlier(&p, record) : profile_config(&p);
  brim_free(record);
  brim_trace_deinit(&p.trace);
  brim_profile_deinit(&p.profile);
  profile_files_free(&p);
  return status;
}

const brim_cli_command brim_cli_profile = {
    .name = "profile",
    .summary = BRIM_N_("show where the time and memory of a step go"),
    .usage = "[CONFIG | RECORD] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Measures the step of CONFIG untraced, then traces some steps. Prints a table by kernel, "
        "op, "
        "layer, phase or transform, and timelines of phases and memory. Lists why the GPU was "
        "idle, "
        "and findings with their price in ms per step.\nWrites profile.json, profile.html and "
        "trace.json.gz. On a GPU the times come from CUPTI; without it, from the engine's own "
        "events. brim writes no checkpoint. `brim bench` compares settings.\nThe folder or the "
        "profile.json of an earlier profile in place of CONFIG shows it again."),
    .examples = BRIM_N_(
        "profile a config\nbrim profile configs/mnist-mlp.yaml --data-path data/mnist\nthe layers, "
        "all of them\nbrim profile mnist.yaml --by layer --limit 0\nkernels that are furthest "
        "below "
        "their ceiling\nbrim profile mnist.yaml --sort ceiling\nalso for TensorBoard, and the "
        "memory at each op\nbrim profile mnist.yaml --tensorboard runs/tb --memory-snapshot "
        "memory.json\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
