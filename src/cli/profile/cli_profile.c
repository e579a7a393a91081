// `brim profile`: parses options and prints where the time and memory of a step go. src/tune/tune_session.c measures and
// writes the files.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job.h"
#include "cli/job/cli_ranks.h"
#include "tune/tune.h"
#include "ui/profile/ui_profile.h"

typedef struct cli_profile {
  brim_cli *cli;
  brim_cli_job *job;
  brim_work_subject work;
  brim_subject subject;  // the job's workload
  brim_profile_session session;
  brim_time start;                  // when measuring began
  char *paths[BRIM_PROFILE_FILES];  // owned
} cli_profile;

//-------------------------------------------- files --------------------------------------------

// Option, name in the folder (NULL = only if the option names it), key in JSON, label.
static const struct {
  const char *option, *name, *key, *label;
  const char *mark;  // in the beginning of a file that a profile wrote; NULL = none
} files[BRIM_PROFILE_FILES] = {
    [BRIM_PROFILE_FILE_RECORD] = {NULL, "profile.json", "record", BRIM_N_("record"), NULL},
    [BRIM_PROFILE_FILE_PAGE] = {"html", "profile.html", "html", BRIM_N_("page"),
                                BRIM_CLI_PAGE_MARK},
    [BRIM_PROFILE_FILE_TRACE] = {"trace", "trace.json.gz", "trace", BRIM_N_("trace"),
                                 "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\""},
    [BRIM_PROFILE_FILE_SNAPSHOT] = {"memory-snapshot", NULL, "memory_snapshot", BRIM_N_("memory"),
                                    NULL},
    [BRIM_PROFILE_FILE_EVENTS] = {"tensorboard", NULL, "tensorboard", "TensorBoard", NULL},
};

// output_dir if given, else runs/profile-NAME with the run's name or the config's.
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

static brim_status check_endings(cli_profile *p) {
  const char *trace = p->paths[BRIM_PROFILE_FILE_TRACE];
  if (!brim_str_ends(trace, ".json") && !brim_str_ends(trace, ".json.gz")) {
    return brim_cli_usage(p->cli, BRIM_N_("--trace must end in .json or .json.gz, not %s"), trace);
  }
  return BRIM_OK;
}

static brim_status choose_paths(cli_profile *p, const char *folder) {
  for (int i = 0; i < BRIM_PROFILE_FILES; i++) {
    const char *given =
        files[i].option ? brim_option_string(&p->cli->parse, files[i].option, NULL) : NULL;
    if (!given && !files[i].name) continue;
    p->paths[i] = given ? brim_strdup(given) : brim_fs_join(folder, files[i].name);
    if (!p->paths[i]) return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  return check_endings(p);
}

// Chooses where files go, and checks that they can be written (BRIM_EINVAL).
static brim_status prepare(cli_profile *p) {
  brim_profile_session_options *how = &p->session.how;
  brim_str folder;
  brim_str_init(&folder);
  brim_status status = choose_folder(p->job, &folder);
  if (!status) status = choose_paths(p, folder.data);
  if (!status) {
    status = brim_cli_job_check_outputs(p->cli, p->job, (const char *const *)p->paths,
                                        BRIM_PROFILE_FILES);
  }
  for (int i = 0; i < BRIM_PROFILE_FILES && !status; i++) {
    if (!p->paths[i]) continue;
    how->paths[i] = p->paths[i];
    status = brim_profile_check_file(p->paths[i], i == BRIM_PROFILE_FILE_EVENTS);
    // a file with its usual name is kept beside the new one
    bool named = files[i].option && brim_option_string(&p->cli->parse, files[i].option, NULL);
    if (!status && named) status = brim_cli_check_replace(p->cli, p->paths[i], files[i].mark);
  }
  how->folder = folder.data;
  if (!status) status = brim_profile_session_prepare(&p->session);
  how->folder = NULL;
  brim_str_deinit(&folder);
  return status;
}

static brim_status make_page(void *ctx, brim_str *out) {
  const cli_profile *p = ctx;
  brim_str command;
  brim_str_init(&command);
  brim_cli_command_text(p->cli, &command);
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_profile_page(&p->session.profile, command.data, out);
  brim_str_deinit(&command);
  return status;
}

// Keeps earlier files with usual names. A file that an option names is replaced.
static brim_status keep_earlier(void *ctx) {
  const cli_profile *p = ctx;
  const char *paths[BRIM_PROFILE_FILES] = {NULL};
  char *kept = NULL;
  for (int i = 0; i < BRIM_PROFILE_FILES; i++) {
    const char *option = files[i].option;
    if (!option || !brim_option_string(&p->cli->parse, option, NULL)) paths[i] = p->paths[i];
  }
  BRIM_TRY(brim_cli_keep_earlier(paths, BRIM_PROFILE_FILES, (const char *const *)p->paths,
                                 BRIM_PROFILE_FILES, p->job->input.path, &kept));
  if (kept) brim_cli_note(p->cli, brim_tr("the earlier profile is kept: %s\n"), kept);
  brim_free(kept);
  return BRIM_OK;
}

// --html with an earlier record: writes its page, not over the record itself.
static brim_status profile_page_again(cli_profile *p, const char *record) {
  const char *given =
      brim_option_string(&p->cli->parse, files[BRIM_PROFILE_FILE_PAGE].option, NULL);
  if (!given) return BRIM_OK;
  BRIM_TRY(brim_cli_check_outputs(p->cli, &record, 1, &given, 1));
  p->paths[BRIM_PROFILE_FILE_PAGE] = brim_strdup(given);
  if (!p->paths[BRIM_PROFILE_FILE_PAGE]) {
    return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  BRIM_TRY(brim_profile_check_file(given, false));
  brim_str page;
  brim_str_init(&page);
  brim_status status = make_page(p, &page);
  if (!status) status = brim_fs_write(given, page.data, page.len);
  brim_str_deinit(&page);
  p->session.wrote[BRIM_PROFILE_FILE_PAGE] = !status;
  return status;
}

// {"record": path, ...} of the written files; NULL without memory.
static json_t *profile_files_json(const cli_profile *p) {
  json_t *object = json_object();
  for (int i = 0; object && i < BRIM_PROFILE_FILES; i++) {
    if (!p->session.wrote[i] || !brim_json_put(object, files[i].key, json_string(p->paths[i])))
      continue;
    json_decref(object);
    return NULL;
  }
  return object;
}

// "profile    runs/profile-x/profile.json", a line each.
static void profile_files_text(const cli_profile *p, brim_str *out) {
  for (int i = 0; i < BRIM_PROFILE_FILES; i++) {
    if (!p->session.wrote[i]) continue;
    const char *label = brim_tr(files[i].label);
    const int width = brim_utf8_width(label);
    brim_str_append(out, label);
    brim_str_repeat(out, ' ', (size_t)(width < 12 ? 13 - width : 1));
    brim_str_printf(out, "%s\n", p->paths[i]);
  }
}

//------------------------------------------- command -------------------------------------------

enum { LEAST_STEPS = 1, MOST_STEPS = 10000, DEFAULT_LIMIT = 10 };

static const char *const sort_words[] = {"time", "count", "share", "ceiling", "name", NULL};
static const char *const source_words[] = {"auto", "cupti", "events", NULL};
static const char *const by_words[] = {"kernel", "op", "layer", "phase", "transform", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "by",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "WHAT",
     .help = BRIM_N_("rows of the table"),
     .choices = by_words,
     .default_text = BRIM_N_("kernel, or op without records of the GPU")},
    {.name = "sort",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "BY",
     .help = BRIM_N_("order of the table (ceiling: furthest below it first)"),
     .choices = sort_words,
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
     .choices = source_words,
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
  if (brim_option_int(&cli->parse, "limit", DEFAULT_LIMIT) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--limit must be 0 or more"));
  }
  return BRIM_OK;
}

static int index_of(const char *const *words, const char *word) {
  for (int i = 0; word && words[i]; i++) {
    if (strcmp(words[i], word) == 0) return i;
  }
  return -1;
}

// Options of the table. If the profile has no rows for --by, notes that and takes the finest table
// that has rows.
static brim_ui_profile_options show_options(const cli_profile *p) {
  const brim_option_parse *parse = &p->cli->parse;
  const int by = index_of(by_words, brim_option_string(parse, "by", NULL));
  const int sort = index_of(sort_words, brim_option_string(parse, "sort", "time"));
  brim_ui_profile_options how = {.by = brim_ui_profile_finest(&p->session.profile),
                                 .sort = (brim_ui_profile_sort)(sort < 0 ? 0 : sort),
                                 .limit = (size_t)brim_option_int(parse, "limit", DEFAULT_LIMIT)};
  if (by < 0) return how;
  if (p->session.profile.lists[by].count > 0) {
    how.by = (brim_profile_list)by;
  } else {
    brim_cli_note(p->cli, brim_tr("this profile has no rows of --by %s; it shows others\n"),
                  by_words[by]);
  }
  return how;
}

//---------------------------------- measuring ----------------------------------

static void on_stage(void *ctx, const char *what) {
  cli_profile *p = ctx;
  const double elapsed_ns = (double)brim_time_since_ns(p->start, brim_clock_now());
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

static brim_status reopen(void *ctx) {
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

// Opens the session over the open job.
static void open_session(cli_profile *p) {
  brim_cli_job *job = p->job;
  const brim_option_parse *parse = &p->cli->parse;
  const char *source = brim_option_string(parse, "source", NULL);
  p->work = (brim_work_subject){.config = job->config,
                                .work = &job->work,
                                .device = &job->device,
                                .reopen = reopen,
                                .ctx = p};
  brim_work_subject_open(&p->work, &p->subject);
  const brim_profile_session_options how = {
      .profile = {.steps = (int)brim_option_int(parse, "steps", 0),
                  .source = source && strcmp(source, "auto") ? source : NULL,
                  .memory_limit = brim_cli_memory_limit(job),
                  .memory = &job->memory,
                  .stop = p->cli->stop,
                  .on_stage = on_stage,
                  .ctx = p},
      .machine = brim_cli_machine_options(p->cli, job),
      .monitor = job->monitor,
      .device = &job->device,
      .price = brim_option_flag(parse, "price", true),
      .on_progress = on_progress,
      .keep_earlier = keep_earlier,
      .page = make_page,
      .ctx = p};
  brim_profile_session_open(&p->session, &p->subject, &how);
}

//---------------------------------- what is shown ----------------------------------

static brim_status print_text(const cli_profile *p) {
  brim_str out;
  brim_str_init(&out);
  const brim_ui_profile_options how = show_options(p);
  brim_status status = brim_ui_profile(&p->cli->out, &p->session.profile, &how, &out);
  brim_str_append_char(&out, '\n');
  profile_files_text(p, &out);
  if (!status) status = brim_str_status(&out);
  if (!status) brim_cli_print(p->cli, &out);
  brim_str_deinit(&out);
  return status;
}

static brim_status print_json(const cli_profile *p) {
  json_t *fields = json_object(), *value = NULL;
  brim_status status = brim_profile_to_json(&p->session.profile, &value);
  if (!status) status = brim_json_put(fields, "profile", value);
  if (!status) status = brim_json_put(fields, "files", profile_files_json(p));
  if (status) {
    json_decref(fields);
    return status;
  }
  return brim_cli_event(p->cli, "profile", fields);
}

//---------------------------------- an earlier profile ----------------------------------

// True if the file is a config written as JSON: valid JSON without a "brim." schema. Invalid JSON
// counts as a damaged record.
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

// The record named instead of a config (profile.json or its folder), for brim_free; NULL = none.
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

// Refuses options of measuring.
static brim_status check_show_options(brim_cli *cli) {
  static const char *const shown_options[] = {"by", "sort", "limit", "html", NULL};
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option *option = cli->parse.items[i].option;
    bool global = false;
    for (const brim_option *o = brim_cli_global_options(); o->name; o++) {
      global = global || o == option;
    }
    if (global || index_of(shown_options, option->name) >= 0) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s is for measuring; an earlier profile is only shown"),
                          option->name);
  }
  return check_options(cli);
}

// Shows an earlier record without measuring. Only the HTML page can be made from a record, not the
// trace or the other files.
static brim_status show_earlier(cli_profile *p, const char *path) {
  char *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  BRIM_TRY(check_show_options(p->cli));
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  brim_status status = brim_json_parse(text, size, path, &value);
  brim_free(text);
  if (!status) status = brim_profile_from_json(value, path, &p->session.profile);
  json_decref(value);
  BRIM_TRY(status);
  brim_result_attach_knobs(&p->session.profile.result, 1);
  BRIM_TRY(profile_page_again(p, path));
  return p->cli->json ? print_json(p) : print_text(p);
}

//---------------------------------- the command ----------------------------------

static brim_status profile_work(cli_profile *p) {
  char detail[512];
  open_session(p);
  BRIM_TRY(prepare(p));
  banner(p);
  p->session.how.checkpoints = brim_cli_job_checkpoint_disk(p->job);
  p->start = brim_clock_now();
  brim_status status = brim_profile_session_run(&p->session);
  p->cli->running = p->session.running;
  BRIM_TRY(status);
  // show the profile even if it could not be written
  status = brim_profile_session_write(&p->session);
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  BRIM_TRY(p->cli->json ? print_json(p) : print_text(p));
  if (status) brim_status_set_detail(detail);
  BRIM_TRY(status);
  if (!p->session.unpriced) return BRIM_OK;
  return brim_fail(BRIM_EINTERRUPTED, "interrupted; the findings have no measured prices");
}

// The first rank measures; the others repeat its steps.
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

static brim_status profile_or_launch(cli_profile *p) {
  brim_cli_job *job = p->job;
  BRIM_TRY(check_options(p->cli));
  BRIM_TRY(brim_cli_job_config(p->cli, job));
  if (!job->ranks) {
    int count = 1;
    BRIM_TRY(brim_cli_ranks_wanted(job, &count));
    if (count > 1) return brim_cli_ranks_launch(p->cli, count);
    job->on_first = true;  // one rank: of a list of devices use the first
  }
  BRIM_TRY(brim_cli_job_open(p->cli, job));
  return job->ranks ? profile_ranks(p) : profile_work(p);
}

static brim_status profile_config(cli_profile *p) {
  brim_cli_ranks *ranks = NULL;
  BRIM_TRY(brim_cli_ranks_open(p->cli, &ranks));
  p->job->ranks = brim_cli_ranks_get(ranks);
  brim_status status = brim_cli_ranks_failed(p->cli, ranks, profile_or_launch(p));
  brim_cli_job_close(p->job);
  brim_cli_ranks_close(ranks);
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  cli_profile p = {.cli = cli, .job = &job};
  brim_profile_init(&p.session.profile);
  brim_trace_init(&p.session.trace);
  char *record = earlier_record(cli);
  brim_status status = record ? show_earlier(&p, record) : profile_config(&p);
  brim_free(record);
  brim_profile_session_close(&p.session);
  for (int i = 0; i < BRIM_PROFILE_FILES; i++) brim_free(p.paths[i]);
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
