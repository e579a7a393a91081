// `brim sweep`: the command and its options, finding stores and logs, the metric of an experiment; and
// `brim sweep GRID`, which expands the config to a grid, submits it to a store and runs the sweep. cli_sweep_live.c
// shows the running sweep.

#include "cli/sweep/cli_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/job/cli_job.h"
#include "lab/exec/lab_exec.h"
#include "lab/grid/lab_grid.h"
#include "lab/store/lab_store.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_ids.h"
#include "lab/wire/lab_wire_link.h"
#include "ui/sweep/ui_sweep.h"
#include "workload/workload.h"

//-------------------------------------------- place --------------------------------------------
// The places of stores and logs.

static bool find_store(const char *folder, struct stat *st) {
  char *file = brim_fs_join(folder, BRIM_STORE_FILE);
  bool found = file && stat(file, st) == 0;
  brim_free(file);
  return found;
}

bool brim_cli_sweep_has_store(const char *place) {
  struct stat st;
  return brim_store_is_url(place) || find_store(place, &st);
}

brim_status brim_cli_sweep_newest(char **out) {
  char **names = NULL;
  size_t count = 0;
  struct timespec newest = {0};
  *out = NULL;
  if (!brim_fs_is_dir("runs")) return BRIM_OK;
  BRIM_TRY(brim_fs_list("runs", &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    struct stat st;
    char *folder = brim_fs_join("runs", names[i]);
    if (!folder) status = brim_fail(BRIM_ENOMEM, "out of memory while looking for a store");
    bool is_newer = folder && find_store(folder, &st) &&
                    (!*out || st.st_mtim.tv_sec > newest.tv_sec ||
                     (st.st_mtim.tv_sec == newest.tv_sec && st.st_mtim.tv_nsec > newest.tv_nsec));
    if (is_newer) {
      newest = st.st_mtim;
      brim_free(*out);
      *out = folder;
    } else {
      brim_free(folder);
    }
  }
  brim_fs_list_free(names, count);
  return status;
}

brim_status brim_cli_sweep_place(brim_cli *cli, size_t at, char **out) {
  const char *given = brim_option_string(&cli->parse, "store", NULL);
  if (!given && at > 0 && at < cli->parse.positional_count) given = cli->parse.positional[at];
  const char *variable = getenv("BRIM_STORE");
  if (!given && variable && *variable) given = variable;
  *out = NULL;
  if (!given) {
    BRIM_TRY(brim_cli_sweep_newest(out));
    if (*out) {
      brim_cli_note(cli, brim_tr("store: %s\n"), *out);
      return BRIM_OK;
    }
    return brim_cli_usage(cli, BRIM_N_("there is no store below runs; name one with --store"));
  }
  if (!brim_lab_is_server(given) && !brim_cli_sweep_has_store(given)) {
    if (strchr(given, ':')) {
      return brim_fail(BRIM_ENOENT,
                       "%s is no folder with a store; the URL of a server begins with http:// or "
                       "https://",
                       given);
    }
    return brim_fail(BRIM_ENOENT, "%s holds no store of a sweep (" BRIM_STORE_FILE ")", given);
  }
  *out = brim_strdup(given);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while looking for a store");
}

brim_status brim_cli_sweep_log_path(const char *folder, const char *exp, int64_t attempt,
                                    char **out) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, exp, &path);
  brim_str_printf(&path, "/attempt-%lld.log", (long long)attempt);
  if (!status) status = brim_str_status(&path);
  *out = status ? NULL : brim_str_take(&path);
  brim_str_deinit(&path);
  return status || *out ? status : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

unsigned brim_cli_sweep_states(const char *name) {
  brim_exp_state state = BRIM_EXP_QUEUED;
  if (!name || !brim_exp_state_of(name, &state)) return 0;
  return state == BRIM_EXP_RUNNING ? 1u << BRIM_EXP_RUNNING | 1u << BRIM_EXP_LEASED : 1u << state;
}

//-------------------------------------------- metric --------------------------------------------
// The metric of an experiment and its display, as workloads declare them.

static const char *keep_name(brim_cli_metric_names *all, const char *name) {
  for (size_t i = 0; i < all->count; i++) {
    if (strcmp(all->names[i], name) == 0) return all->names[i];
  }
  if (all->count == sizeof all->names / sizeof all->names[0]) return "";
  snprintf(all->names[all->count], sizeof all->names[0], "%s", name);
  return all->names[all->count++];
}

static void add_name(const brim_metric *row, brim_metric_stage stage, brim_str *out) {
  char name[BRIM_METRIC_NAME];
  if (!brim_metric_name(row, stage, BRIM_METRIC_COLUMN, name)) return;
  // The list repeats its first name in front: that metric is shown until one is recorded (lab_store.h).
  if (out->len == 0) brim_str_append(out, name);
  brim_str_printf(out, " %s", name);
}

// Adds the metric that checkpoint.best names, then the ranking metrics of evaluations and of training.
static void add_names(const brim_workload_table *table, const brim_config *point, const char *best,
                      brim_metric_stage stage, brim_str *out) {
  const brim_metric_set *set = table->metric_set;
  for (size_t i = 0; best && i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool same = strcmp(row->key, best) == 0 || strcmp(brim_metric_best_name(row), best) == 0;
    if (same && (row->stages & BRIM_METRIC_AT(stage))) add_name(row, stage, out);
  }
  for (int at = stage == BRIM_METRIC_TRAIN ? 1 : 0; at < 2; at++) {
    double measured[BRIM_METRIC_MAX];
    brim_metric_unknown(measured);
    for (size_t i = 0; i < set->count; i++) {
      if (!table->measures || table->measures(point, set->rows[i].key)) measured[i] = 0;
    }
    const brim_metric_stage of = at ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
    for (int row; (row = brim_metric_deciding(set, of, measured, false)) >= 0;) {
      add_name(&set->rows[row], of, out);
      measured[row] = (double)NAN;
    }
  }
}

brim_status brim_cli_sweep_describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  const brim_workload_table *table = brim_workload_find(brim_config_string(point, "workload"));
  const char *best = brim_config_string(point, "checkpoint.best");
  brim_metric_stage stage = BRIM_METRIC_EVAL;
  brim_str names;
  out->metric_key = "";
  out->epochs = brim_config_int(point, "training.epochs");
  if (best && !best[0]) best = NULL;
  if (!table) return BRIM_OK;
  if (best && brim_str_starts(best, "train_")) {
    stage = BRIM_METRIC_TRAIN;
    best += 6;
  } else if (best && (brim_str_starts(best, "val_") || brim_str_starts(best, "eval_"))) {
    best = strchr(best, '_') + 1;
  }
  brim_str_init(&names);
  add_names(table, point, best, stage, &names);
  if (names.len > 0) out->metric_key = keep_name(ctx, names.data);
  brim_status status = brim_str_status(&names);
  brim_str_deinit(&names);
  return status;
}

bool brim_cli_sweep_metric(const char *key, brim_sweep_metric *out) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (brim_sweep_metric_of(table->metric_set, key, out)) return true;
  }
  return false;
}

//---------------------------------- command lines of children ----------------------------------

// A command line, NULL-terminated; its user calls brim_free(program).
typedef struct child_words {
  char *program;
  const char *list[28];
} child_words;

// Plug-ins are code: trainings and plans load only those that the user of this command has allowed.
static void plugin_words(const brim_cli_sweep_job *j, const char **out, size_t most) {
  const brim_option_parse *parse = &j->cli->parse;
  size_t n = 0;
  for (size_t i = 0; i < parse->count && n + 4 < most; i++) {
    if (strcmp(parse->items[i].option->name, "plugin") != 0) continue;
    out[n++] = "--plugin";
    out[n++] = parse->items[i].values[0];
  }
  if (brim_option_flag(parse, "allow-plugins", false) ||
      (j->job.config &&
       brim_config_layer_of(j->job.config, "plugins") == BRIM_CONFIG_FROM_OVERRIDE)) {
    out[n++] = "--allow-plugins";
  }
  out[n] = NULL;
}

static brim_status planner_words(const brim_cli_sweep_job *j, child_words *out) {
  enum { MOST = sizeof out->list / sizeof out->list[0] };
  *out = (child_words){0};
  if (!j->program) {
    BRIM_TRY(brim_fs_exe(&out->program));
  } else if (!(out->program = brim_strdup(j->program))) {
    return brim_fail(BRIM_ENOMEM, "out of memory for a path");
  }
  out->list[0] = out->program;
  out->list[1] = "sweep";
  out->list[2] = "plan";
  plugin_words(j, out->list + 3, MOST - 3);
  return BRIM_OK;
}

void brim_cli_sweep_gpu_spec(const brim_gpu_listed *gpus, size_t count, size_t at,
                             char out[BRIM_CLI_GPU_SPEC]) {
  bool slices = false;
  for (size_t i = 0; i < count; i++) slices = slices || gpus[i].slice;
  if (slices) {
    snprintf(out, BRIM_CLI_GPU_SPEC, "%s", gpus[at].uuid);
  } else {
    snprintf(out, BRIM_CLI_GPU_SPEC, "cuda:%zu", at);
  }
}

//-------------------------------------------- memory --------------------------------------------
// The device memory that experiments need, for grids that put several experiments on one GPU. Plans once for each kind
// of GPU that the grid may use; the largest need counts.

enum { MOST_KINDS = 8 };

typedef struct gpu_kinds {
  char names[MOST_KINDS][sizeof((brim_gpu_listed *)0)->name];
  char devices[MOST_KINDS][BRIM_CLI_GPU_SPEC];
  const char *list[MOST_KINDS];
  size_t count;
} gpu_kinds;

// Lists one GPU of each name, in the order of the child process, which sees only the GPUs of CUDA_VISIBLE_DEVICES.
static void list_kinds(brim_gpu_monitor *monitor, gpu_kinds *out) {
  brim_gpu_listed *gpus = NULL;
  size_t count = 0;
  out->count = 0;
  if (brim_gpu_list(monitor, &gpus, &count)) brim_status_clear();
  for (size_t i = 0; i < count && out->count < MOST_KINDS; i++) {
    bool seen = false;
    for (size_t k = 0; k < out->count; k++) seen |= strcmp(out->names[k], gpus[i].name) == 0;
    if (seen) continue;
    memcpy(out->names[out->count], gpus[i].name, sizeof gpus[i].name);
    brim_cli_sweep_gpu_spec(gpus, count, i, out->devices[out->count]);
    out->list[out->count] = out->devices[out->count];
    out->count++;
  }
  brim_free(gpus);
}

// Assumed bytes of the CUDA context and libraries if no run has measured them: over twice the largest value seen on an
// H200. Once an experiment runs, its measured memory counts.
static const double OVERHEAD = 2.0 * 1024 * 1024 * 1024;

// The largest need over all kinds of GPU, in bytes. 0 = unknown, or too large for one kind: the experiment then gets a
// GPU alone, and adapts or fails.
static int64_t need_of(const brim_lab_forecast *forecast, size_t point, size_t kinds) {
  double most = 0;
  for (size_t k = 0; k < kinds; k++) {
    const brim_lab_plan *plan = brim_lab_forecast_of(forecast, point, k);
    double bytes = plan->planned_device + (isnan(plan->overhead) ? OVERHEAD : plan->overhead);
    if (isnan(bytes) || plan->failure != BRIM_FAILURE_NONE) return 0;
    most = fmax(most, bytes);
  }
  return (int64_t)ceil(most);
}

brim_status brim_cli_sweep_needs(const brim_cli_sweep_job *j, struct brim_store_point *points) {
  gpu_kinds kinds;
  brim_lab_forecast forecast = {0};
  if (j->grid->per_gpu == 1 || !j->monitor) return BRIM_OK;
  list_kinds(j->monitor, &kinds);
  if (kinds.count == 0) return BRIM_OK;
  child_words words;
  BRIM_TRY(planner_words(j, &words));
  const brim_lab_plan_options how = {.command = words.list, .stop = j->cli->stop};
  brim_status status = brim_lab_forecast_make(j->grid, kinds.list, kinds.count, &how, &forecast);
  brim_free(words.program);
  if (status == BRIM_EINTERRUPTED || status == BRIM_ENOMEM) return status;
  if (status) {
    brim_log_warn("sweep", "cannot plan the memory of the experiments, so each has a GPU alone: %s",
                  brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  for (size_t i = 0; i < j->grid->count; i++) {
    points[i].need_bytes = need_of(&forecast, i, kinds.count);
  }
  brim_lab_forecast_free(&forecast);
  return BRIM_OK;
}

//-------------------------------------------- Slurm --------------------------------------------
// Options of `brim sweep --engine slurm`.

enum { MOST_EXTRA = 64 };

typedef struct brim_cli_sweep_slurm {
  brim_lab_slurm_options options;
  const char *extra[MOST_EXTRA + 1];
} brim_cli_sweep_slurm;

static bool is_engine(const brim_option_parse *parse, const char *name) {
  return strcmp(brim_option_string(parse, "engine", "local"), name) == 0;
}

// Refuses options of Slurm that are given without --engine slurm.
static brim_status check_local(brim_cli *cli) {
  static const char *const slurm_options[] = {"partition", "account", "time",  "cpus",
                                              "memory",    "gres",    "slurm", "slurm-poll"};
  for (size_t i = 0; i < sizeof slurm_options / sizeof slurm_options[0]; i++) {
    if (brim_option_find(&cli->parse, slurm_options[i])) {
      return brim_cli_usage(cli, BRIM_N_("--%s needs --engine slurm"), slurm_options[i]);
    }
  }
  return BRIM_OK;
}

static brim_status check_slurm(brim_cli *cli) {
  double poll = brim_option_float(&cli->parse, "slurm-poll", 10.0);
  int64_t cpus = brim_option_int(&cli->parse, "cpus", 1);
  if (!(poll >= 0.1 && poll <= 3600)) {
    return brim_cli_usage(cli, BRIM_N_("--slurm-poll must be from 0.1 to 3600"));
  }
  if (cpus < 1 || cpus > 4096) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "cpus", 1, 4096);
  }
  return BRIM_OK;
}

// Is the word an argument of sbatch that only brim sets?
static bool is_set_by_brim(const char *word) {
  static const char *const options_of_brim[] = {
      "--array",    "--job-name",  "--wait",       "--wrap",   "--signal",
      "--parsable", "--test-only", "--no-requeue", "--output", "--open-mode"};
  if (word[0] == '-' && word[1] && strchr("aJWo", word[1])) return true;
  for (size_t i = 0; i < sizeof options_of_brim / sizeof options_of_brim[0]; i++) {
    size_t n = strlen(options_of_brim[i]);
    if (strncmp(word, options_of_brim[i], n) == 0 && (!word[n] || word[n] == '=')) return true;
  }
  return false;
}

static brim_status take_sbatch_words(brim_cli *cli, const char **out) {
  const brim_option_parse *parse = &cli->parse;
  size_t n = 0;
  for (size_t i = 0; i < parse->count; i++) {
    if (strcmp(parse->items[i].option->name, "slurm") != 0) continue;
    const char *word = parse->items[i].values[0];
    if (word[0] != '-' || !word[1]) {
      return brim_cli_usage(cli, BRIM_N_("--slurm takes one option of sbatch: --slurm=--qos=long"));
    }
    if (is_set_by_brim(word))
      return brim_cli_usage(cli, BRIM_N_("brim sets sbatch's %.40s itself"), word);
    if (n == MOST_EXTRA) return brim_fail(BRIM_EINVAL, "--slurm can be given %d times", MOST_EXTRA);
    out[n++] = word;
  }
  out[n] = NULL;
  return BRIM_OK;
}

static brim_status sweep_slurm_open(const brim_cli_sweep_job *j, brim_cli_sweep_slurm **out) {
  const brim_option_parse *parse = &j->cli->parse;
  *out = NULL;
  if (!is_engine(parse, "slurm")) return check_local(j->cli);
  BRIM_TRY(check_slurm(j->cli));
  brim_cli_sweep_slurm *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the options of Slurm");
  s->options = (brim_lab_slurm_options){
      .ask = {.partition = brim_option_string(parse, "partition", NULL),
              .account = brim_option_string(parse, "account", NULL),
              .time = brim_option_string(parse, "time", NULL),
              .memory = brim_option_string(parse, "memory", NULL),
              .gres = brim_option_string(parse, "gres", NULL),
              .cpus = brim_option_int(parse, "cpus", 0),
              .at_once = brim_option_find(parse, "jobs") ? brim_option_int(parse, "jobs", 1) : 0,
              .extra = s->extra},
      .nodes = j->job.config ? brim_config_int(j->job.config, "nodes") : 1,
      .poll_ms = (int64_t)(brim_option_float(parse, "slurm-poll", 10.0) * 1e3)};
  brim_status status = take_sbatch_words(j->cli, s->extra);
  if (status) {
    brim_free(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

static const brim_lab_slurm_options *sweep_slurm_options(const brim_cli_sweep_slurm *s) {
  return s ? &s->options : NULL;
}

//-------------------------------------------- dry run --------------------------------------------
// `--dry-run` lists the experiments of the grid and their needs without submitting them. A child process plans, so
// this process opens no GPU. Reads the store if it exists.

typedef struct dry_job {
  const brim_cli_sweep_job *job;
  brim_lab_forecast plans;
  brim_forecast forecast;
  brim_forecast_row *rows;
  brim_forecast_need *needs;  // (rows, devices)
  brim_lab_ids ids;           // ids of the grid's points
  const char **states;        // state of each point in the store; NULL = new
} dry_job;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for a forecast");
}

//---------------------------------- devices ----------------------------------

static void add_device(brim_forecast *f, const char *spec, const char *name) {
  for (size_t i = 0; i < f->device_count; i++) {  // GPUs of one kind need one plan
    brim_forecast_device *known = &f->devices[i];
    if (strcmp(known->spec, spec) == 0) return;
    if (name[0] && strcmp(known->name, name) == 0) {
      known->count++;
      return;
    }
  }
  if (f->device_count == BRIM_FORECAST_DEVICES) return;
  brim_forecast_device *device = &f->devices[f->device_count++];
  *device = (brim_forecast_device){.count = 1, .total = (double)NAN};
  snprintf(device->spec, sizeof device->spec, "%s", spec);
  snprintf(device->name, sizeof device->name, "%s", name);
}

// Lists the devices of the grid and counts the experiments that can run at once. "auto" and "cuda" stand for all GPUs
// that NVML lists; a device that NVML does not list keeps its spec.
static void find_devices(dry_job *d) {
  const brim_lab_grid *grid = d->job->grid;
  brim_gpu_listed *gpus = NULL;
  size_t count = 0;
  if (d->job->monitor && brim_gpu_list(d->job->monitor, &gpus, &count)) count = 0;
  brim_status_clear();
  for (size_t i = 0; i < grid->device_count; i++) {
    const char *spec = grid->devices[i];
    const bool any_gpu = strcmp(spec, "auto") == 0 || strcmp(spec, "cuda") == 0;
    bool found = false;
    for (size_t g = 0; g < count; g++) {
      char gpu_spec[BRIM_CLI_GPU_SPEC], index[32];
      snprintf(index, sizeof index, "cuda:%zu", g);
      const bool named =
          strcmp(spec, index) == 0 || (strlen(spec) > 4 && brim_str_starts(gpus[g].uuid, spec));
      if (!any_gpu && !named) continue;
      brim_cli_sweep_gpu_spec(gpus, count, g, gpu_spec);
      add_device(&d->forecast, gpu_spec, gpus[g].name);
      found = true;
    }
    if (!found) add_device(&d->forecast, spec, "");
  }
  brim_free(gpus);
  for (size_t i = 0; i < d->forecast.device_count; i++) {
    const brim_forecast_device *device = &d->forecast.devices[i];
    const bool gpu = brim_str_starts(device->spec, "cuda") ||
                     brim_str_starts(device->spec, "GPU-") || brim_str_starts(device->spec, "MIG-");
    const int64_t slots_per_gpu = grid->per_gpu > 0 ? grid->per_gpu : 1;
    d->forecast.slots +=
        gpu ? device->count * slots_per_gpu : brim_option_int(&d->job->cli->parse, "jobs", 1);
  }
}

//---------------------------------- plans ----------------------------------

static void on_plan(void *ctx, size_t done, size_t total) {
  const dry_job *d = ctx;
  if (d->job->cli->json) return;
  const brim_progress progress = {.title = brim_tr("planning"),
                                  .done = (int64_t)done,
                                  .total = (int64_t)total,
                                  .elapsed_s = (double)NAN,
                                  .eta_s = (double)NAN,
                                  .rate = (double)NAN};
  brim_cli_progress(d->job->cli, &progress);
}

static brim_status make_plans(dry_job *d) {
  const char *specs[BRIM_FORECAST_DEVICES];
  child_words words;
  BRIM_TRY(planner_words(d->job, &words));
  const brim_lab_plan_options how = {
      .command = words.list,
      .measure = brim_option_flag(&d->job->cli->parse, "measure", false),
      .stop = d->job->cli->stop,
      .on_plan = on_plan,
      .ctx = d};
  for (size_t i = 0; i < d->forecast.device_count; i++) specs[i] = d->forecast.devices[i].spec;
  brim_status status =
      brim_lab_forecast_make(d->job->grid, specs, d->forecast.device_count, &how, &d->plans);
  brim_free(words.program);
  return status;
}

//---------------------------------- the store ----------------------------------

static brim_status on_exp(void *ctx, const brim_store_exp *exp) {
  dry_job *d = ctx;
  size_t point;
  if (brim_lab_ids_find(&d->ids, exp->id, &point))
    d->states[point] = brim_exp_state_name(exp->state);
  return BRIM_OK;
}

// Reads from the store which points exist, their states, and how long runs took. Treats a store that cannot be read as
// empty.
static brim_status read_store(dry_job *d) {
  brim_lab_link *link = NULL;
  const brim_lab_grid *grid = d->job->grid;
  BRIM_TRY(brim_lab_ids_init(&d->ids, grid->count));
  for (size_t i = 0; i < grid->count; i++) brim_lab_ids_add(&d->ids, grid->points[i].id, i);
  brim_status status = brim_lab_link_open(d->job->place, NULL, &link);
  if (!status) status = brim_lab_list(link, NULL, on_exp, d);
  if (!status) status = brim_lab_forecast_times(&d->plans, link);
  brim_lab_link_close(link);
  if (status == BRIM_ENOMEM) return status;
  if (status && status != BRIM_ENOENT) {
    brim_log_warn("sweep", "cannot read the store %s: %s", d->job->shown, brim_status_detail());
  }
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------- the record ----------------------------------

static void make_need(const brim_lab_plan *plan, brim_forecast_need *out) {
  const bool gpu = brim_str_starts(plan->device, "cuda");
  *out = (brim_forecast_need){.bytes = plan->planned_device,
                              .failure = plan->failure,
                              .adapts = plan->adapts,
                              .message = plan->message,
                              .run_s = plan->run_s,
                              .measured = !plan->run_known};
  if (gpu && !isnan(plan->overhead)) out->bytes += plan->overhead;
  if (!gpu) out->bytes += plan->planned_host;
}

static brim_status make_record(dry_job *d) {
  const brim_lab_grid *grid = d->job->grid;
  brim_forecast *f = &d->forecast;
  d->rows = brim_calloc(grid->count + 1, sizeof *d->rows);
  d->needs = brim_calloc(grid->count * f->device_count + 1, sizeof *d->needs);
  if (!d->rows || !d->needs) return no_memory();
  for (size_t i = 0; i < grid->count; i++) {
    brim_forecast_need *needs = &d->needs[i * f->device_count];
    double steps = (double)NAN;
    for (size_t n = 0; n < f->device_count; n++) {
      const brim_lab_plan *plan = brim_lab_forecast_of(&d->plans, i, n);
      brim_forecast_device *device = &f->devices[n];
      make_need(plan, &needs[n]);
      if (isnan(steps)) steps = plan->steps;
      if (isnan(device->total)) device->total = plan->total;
      if (!device->name[0]) snprintf(device->name, sizeof device->name, "%s", plan->name);
    }
    d->rows[i] = (brim_forecast_row){.id = grid->points[i].id,
                                     .label = grid->points[i].label,
                                     .state = d->states[i],
                                     .steps = steps,
                                     .needs = needs};
  }
  f->name = d->job->name;
  f->store = d->job->shown;
  f->rows = d->rows;
  f->row_count = grid->count;
  return BRIM_OK;
}

//---------------------------------- output ----------------------------------

static brim_status put_plan(json_t *plans, const brim_lab_plan *plan) {
  json_t *o;
  BRIM_TRY(brim_lab_plan_to_json(plan, &o));
  brim_status status = brim_json_put(o, "run_s", brim_json_number(plan->run_s));
  if (!status) status = brim_json_put(o, "run_known", json_boolean(plan->run_known));
  if (!status) return brim_json_push(plans, o);
  json_decref(o);
  return status;
}

static brim_status point_event(const dry_job *d, size_t i) {
  const brim_lab_point *p = &d->job->grid->points[i];
  json_t *f = json_object(), *plans = json_array();
  brim_status s = brim_json_put(f, "plans", plans);
  for (size_t n = 0; n < d->forecast.device_count && !s; n++) {
    s = put_plan(plans, brim_lab_forecast_of(&d->plans, i, n));
  }
  if (!s) s = brim_json_put(f, "id", json_string(p->id));
  if (!s) s = brim_json_put(f, "group", json_string(p->group));
  if (!s) s = brim_json_put(f, "label", json_string(p->label));
  if (!s) s = brim_json_put(f, "config", json_string(p->config));
  if (!s) s = brim_json_put(f, "state", d->states[i] ? json_string(d->states[i]) : json_null());
  return brim_cli_finish_event(d->job->cli, "point", f, s);
}

static brim_status sums_event(const dry_job *d) {
  brim_forecast_sums sums;
  brim_forecast_sum(&d->forecast, &sums);
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "experiments", json_integer((json_int_t)d->forecast.row_count));
  if (!s) s = brim_json_put(f, "new", json_integer((json_int_t)sums.fresh));
  if (!s) s = brim_json_put(f, "existing", json_integer((json_int_t)sums.known));
  if (!s) s = brim_json_put(f, "done", json_integer((json_int_t)sums.done));
  if (!s) s = brim_json_put(f, "adapt", json_integer((json_int_t)sums.adapt));
  if (!s) s = brim_json_put(f, "cannot_run", json_integer((json_int_t)sums.stuck));
  if (!s) s = brim_json_put(f, "most_bytes", brim_json_number(sums.most_bytes));
  if (!s) s = brim_json_put(f, "slots", json_integer(d->forecast.slots));
  if (!s) s = brim_json_put(f, "time_unknown", json_integer((json_int_t)sums.timeless));
  if (!s) s = brim_json_put(f, "run_s", brim_json_number(sums.run_s));
  if (!s) s = brim_json_put(f, "wall_s", brim_json_number(sums.wall_s));
  return brim_cli_finish_event(d->job->cli, "dry_run", f, s);
}

static brim_status dry_show(const dry_job *d) {
  brim_cli *cli = d->job->cli;
  if (cli->json) {
    for (size_t i = 0; i < d->job->grid->count; i++) BRIM_TRY(point_event(d, i));
    return sums_event(d);
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_forecast(&cli->out, &d->forecast, &text);
  return brim_cli_finish_text(cli, &text, status);
}

static brim_status dry_run(const brim_cli_sweep_job *job) {
  dry_job d = {.job = job};
  find_devices(&d);
  d.states = brim_calloc(job->grid->count + 1, sizeof *d.states);
  brim_status status = d.states ? make_plans(&d) : no_memory();
  if (!status) status = read_store(&d);
  if (!status) status = make_record(&d);
  if (!status) status = dry_show(&d);
  brim_lab_ids_deinit(&d.ids);
  brim_lab_forecast_free(&d.plans);
  brim_free(d.rows);
  brim_free(d.needs);
  brim_free(d.states);
  return status;
}

//-------------------------------------------- sweep --------------------------------------------

//---------------------------------- places ----------------------------------

static char *join_or_copy(const char *a, const char *b) {
  return b ? brim_fs_join(a, b) : brim_strdup(a);
}

static brim_status show_place(brim_cli_sweep_job *j) {
  j->shown = j->place ? brim_store_place_shown(j->place) : NULL;
  return j->shown ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a grid");
}

static brim_status choose_places(brim_cli_sweep_job *j, const char *store) {
  const char *given = brim_option_string(&j->cli->parse, "store", NULL);
  const char *folder = brim_option_string(&j->cli->parse, "output-dir", NULL);
  const char *variable = getenv("BRIM_STORE");
  if (!store && variable && *variable) store = variable;
  if (given) store = given;
  if (!folder && j->job.config) folder = brim_cli_job_output_dir(&j->job);
  if (folder) {
    j->folder = join_or_copy(folder, NULL);
  } else if (store && !brim_store_is_url(store) && !brim_lab_is_server(store)) {
    j->folder = join_or_copy(store, NULL);
  } else {
    j->folder = join_or_copy("runs", j->name ? j->name : "sweep");
  }
  j->place = j->folder ? join_or_copy(store ? store : j->folder, NULL) : NULL;
  return show_place(j);
}

//---------------------------------- submitting ----------------------------------

// Writes the submitted grid as text for users: the config file, then the overrides of the command line as comments.
// Hides passwords of stores.
static brim_status grid_text(const brim_cli_sweep_job *j, brim_str *out) {
  char *text = NULL;
  size_t size = 0;
  if (j->job.input.path) {
    BRIM_TRY(brim_fs_read(j->job.input.path, BRIM_CONFIG_MAX_BYTES, &text, &size));
    brim_store_put_shown(out, text);
    brim_free(text);
    if (out->len > 0 && out->data[out->len - 1] != '\n') brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < j->job.input.count; i++) {
    brim_str_append(out, "# ");
    brim_store_put_shown(out, j->job.input.overrides[i]);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out);
}

typedef struct workers_seen {
  int64_t now, count, draining;
} workers_seen;

static brim_status on_worker(void *ctx, const brim_store_worker *w) {
  workers_seen *seen = ctx;
  if (seen->now - w->last_seen > BRIM_WORKER_GONE_MS) return BRIM_OK;
  seen->count++;
  seen->draining += w->drain;
  return BRIM_OK;
}

static brim_status tell_waiting(const brim_cli_sweep_job *j, brim_lab_link *link) {
  workers_seen seen = {0};
  BRIM_TRY(brim_lab_now(link, &seen.now));
  BRIM_TRY(brim_lab_workers(link, on_worker, &seen));
  if (seen.count == 0) {
    brim_cli_note(j->cli, "%s", brim_tr("they wait: the server has no worker now\n"));
  } else if (seen.draining == seen.count) {
    brim_cli_note(j->cli, "%s", brim_tr("they wait: every worker of the server drains\n"));
  } else {
    brim_cli_note(j->cli, "%s", brim_tr("the server's workers run them\n"));
  }
  return BRIM_OK;
}

// Tells the user whether the experiments on a server run, wait or have ended.
static brim_status tell_server(const brim_cli_sweep_job *j, brim_lab_link *link) {
  brim_store_counts n;
  BRIM_TRY(brim_lab_count(link, j->grid->id, &n));
  const int64_t *s = n.states;
  if (s[BRIM_EXP_QUEUED] + s[BRIM_EXP_LEASED] + s[BRIM_EXP_RUNNING] > 0) {
    return tell_waiting(j, link);
  }
  brim_cli_note(j->cli,
                brim_tr("nothing is left to run: %lld done, %lld failed, %lld cancelled, "
                        "%lld paused\n"),
                (long long)s[BRIM_EXP_DONE], (long long)s[BRIM_EXP_FAILED],
                (long long)s[BRIM_EXP_CANCELLED], (long long)s[BRIM_EXP_PAUSED]);
  if (s[BRIM_EXP_FAILED] > 0) {
    brim_cli_note(j->cli, brim_tr("brim sweep rerun-failed %s queues failed ones again\n"),
                  j->shown);
  }
  return BRIM_OK;
}

// Reports the submission. `link` leads to the sweep or server that runs the experiments; NULL = this process runs them.
static brim_status tell_submitted(const brim_cli_sweep_job *j, const brim_store_submitted *n,
                                  brim_lab_link *link) {
  const bool elsewhere = link != NULL;
  if (!j->cli->json) {
    brim_cli_note(j->cli, brim_tr("%s: %lld experiments new, %lld already in the store %s\n"),
                  j->name, (long long)n->added, (long long)n->existing, j->shown);
    if (elsewhere && brim_lab_is_server(j->place)) return tell_server(j, link);
    if (elsewhere) {
      brim_cli_note(j->cli, "%s", brim_tr("the sweep that is running there runs them\n"));
    }
    return BRIM_OK;
  }
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "grid", json_string(j->grid->id));
  if (!s) s = brim_json_put(f, "name", json_string(j->name));
  if (!s) s = brim_json_put(f, "store", json_string(j->shown));
  if (!s) s = brim_json_put(f, "folder", json_string(j->folder));
  if (!s) s = brim_json_put(f, "added", json_integer(n->added));
  if (!s) s = brim_json_put(f, "existing", json_integer(n->existing));
  if (!s) s = brim_json_put(f, "running_elsewhere", json_boolean(elsewhere));
  return brim_cli_finish_event(j->cli, "submitted", f, s);
}

// Submits the grid to `sweep`; if it is NULL, to the sweep or server that runs at the place.
static brim_status submit(const brim_cli_sweep_job *j, brim_lab_sweep *sweep) {
  brim_str text;
  brim_store_point *points = NULL;
  brim_store_submitted submitted = {0};
  brim_lab_link *link = NULL;
  brim_str_init(&text);
  brim_status status = grid_text(j, &text);
  if (!status) status = brim_lab_grid_points(j->grid, &points);
  if (!status) status = brim_cli_sweep_needs(j, points);
  const brim_store_grid grid = {
      .id = j->grid->id, .name = j->name, .text = text.data, .version = BRIM_VERSION};
  if (!status && sweep) {
    status = brim_lab_sweep_submit(sweep, &grid, points, j->grid->count, &submitted);
  } else if (!status) {
    status = brim_lab_link_open(j->place, NULL, &link);
    if (!status) status = brim_lab_submit(link, &grid, points, j->grid->count, &submitted);
  }
  if (!status) status = tell_submitted(j, &submitted, link);
  brim_lab_link_close(link);
  brim_free(points);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- the sweep ----------------------------------

static brim_status device_text(const brim_lab_grid *grid, brim_str *out) {
  for (size_t i = 0; grid && i < grid->device_count; i++) {
    brim_str_printf(out, "%s%s", i ? "," : "", grid->devices[i]);
  }
  return brim_str_status(out);
}

// --stall in milliseconds; < 0 = never.
static int64_t stall_ms(const brim_option_parse *parse) {
  double seconds = brim_option_float(parse, "stall", 600.0);
  return seconds > 0 ? (int64_t)(seconds * 1e3) : -1;
}

static bool any_part(const char *workload) {
  const brim_workload_table *table = brim_workload_find(workload);
  return table && table->any_part;
}

brim_status brim_cli_sweep_open(const brim_cli_sweep_job *j, brim_lab_sweep **out) {
  const brim_option_parse *parse = &j->cli->parse;
  char *program = NULL;
  const char *words[24];
  brim_str devices;
  brim_str_init(&devices);
  plugin_words(j, words, sizeof words / sizeof words[0]);
  brim_status status = brim_fs_exe(&program);
  if (!status) status = device_text(j->grid, &devices);
  const int64_t per_gpu = j->grid ? j->grid->per_gpu : 1;
  const brim_lab_sweep_options how = {
      .place = j->place,
      .folder = j->folder,
      .title = j->name,
      .program = program,
      .version = BRIM_VERSION,
      .words = words,
      .devices = devices.len > 0 ? devices.data
                 : j->worker     ? brim_option_string(parse, "device", NULL)
                                 : NULL,
      .jobs = brim_option_int(parse, "jobs", 1),
      .per_gpu = per_gpu == 0 ? -1 : per_gpu,
      .cores = brim_cpu_count(),
      .share = brim_option_flag(parse, "share", false),
      .any_part = any_part,
      .metric = brim_cli_sweep_metric,
      .no_mps = !brim_option_flag(parse, "mps", true),
      .monitor = j->monitor,
      .keep_going = j->worker || brim_option_flag(parse, "keep-going", false),
      .serves = j->worker,
      .stall_ms = stall_ms(parse),
      .store = {.lease_ms = (int64_t)(brim_option_float(parse, "lease", 60.0) * 1e3),
                .backoff_ms = (int64_t)(brim_option_float(parse, "backoff", 5.0) * 1e3)},
      .slurm = sweep_slurm_options(j->slurm)};
  if (!status) status = brim_lab_sweep_open(&how, out);
  brim_free(program);
  brim_str_deinit(&devices);
  return status;
}

static brim_status run_sweep(const brim_cli_sweep_job *j) {
  brim_lab_sweep *sweep = NULL;
  if (brim_lab_is_server(j->place) && !j->slurm) {
    if (j->grid) return submit(j, NULL);
    return brim_cli_usage(
        j->cli, BRIM_N_("a server's workers run its experiments: brim worker --url %s"), j->place);
  }
  brim_status status = brim_cli_sweep_open(j, &sweep);
  const char *served = brim_store_is_url(j->place) ? j->folder : j->place;
  if (status == BRIM_EEXIST && j->grid && brim_lab_sweep_runs(served, NULL)) {
    brim_status_clear();
    return submit(j, NULL);
  }
  if (status) return status;
  j->cli->running = true;
  if (j->grid) status = submit(j, sweep);
  if (!status) status = brim_cli_sweep_watch(j, sweep);
  brim_lab_sweep_close(sweep);
  return status;
}

//---------------------------------- the command ----------------------------------

brim_status brim_cli_sweep_check(brim_cli *cli) {
  if (brim_option_int(&cli->parse, "jobs", 1) < 1 ||
      brim_option_int(&cli->parse, "jobs", 1) > 1024) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "jobs", 1, 1024);
  }
  double lease = brim_option_float(&cli->parse, "lease", 60.0);
  if (!(lease >= 1 && lease <= 86400)) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "lease", 1, 86400);
  }
  double stall = brim_option_float(&cli->parse, "stall", 600.0);
  if (!(stall == 0 || (stall >= 1 && stall <= 1e7))) {
    return brim_cli_usage(cli, BRIM_N_("--stall must be 0, or from 1 to 10000000"));
  }
  double backoff = brim_option_float(&cli->parse, "backoff", 5.0);
  if (!(backoff >= 0.001 && backoff <= 86400)) {
    return brim_cli_usage(cli, BRIM_N_("--backoff must be above 0 and at most 86400"));
  }
  return BRIM_OK;
}

// Asks NVML, so that the sweep opens no GPU.
void brim_cli_sweep_facts(brim_gpu_monitor *monitor, char name[96], brim_config_facts *out) {
  brim_gpu_listed *gpus = NULL;
  brim_gpu_memory memory;
  size_t count = 0;
  *out = (brim_config_facts){.cpu_cores = brim_cpu_count()};
  if (monitor && !brim_gpu_list(monitor, &gpus, &count) && count > 0) {
    snprintf(name, 96, "%s", gpus[0].name);
    out->gpu_name = name;
    if (!brim_gpu_read_memory(monitor, gpus[0].uuid, &memory) && memory.total > 0) {
      out->gpu_bytes = (uint64_t)memory.total;
    }
  }
  brim_status_clear();
  brim_free(gpus);
}

static brim_status expand(brim_cli_sweep_job *j, brim_cli_metric_names *names) {
  char gpu[96];
  brim_config_facts facts;
  brim_cli_sweep_facts(j->monitor, gpu, &facts);
  BRIM_TRY(brim_cli_grid_config(j->cli, &facts, &j->job));
  BRIM_TRY(brim_cli_job_name(&j->job, &j->name));
  j->grid = brim_calloc(1, sizeof *j->grid);
  if (!j->grid) return brim_fail(BRIM_ENOMEM, "out of memory while reading a grid");
  const brim_lab_grid_options how = {
      .name = j->name, .describe = brim_cli_sweep_describe, .ctx = names, .stop = j->cli->stop};
  BRIM_TRY(brim_lab_grid_expand(j->job.config, &how, j->grid));
  for (size_t i = 0; i < j->grid->note_count; i++) {
    brim_cli_note(j->cli, "%s\n", j->grid->notes[i]);
  }
  return BRIM_OK;
}

static void job_close(brim_cli_sweep_job *j) {
  brim_free(j->slurm);
  if (j->grid) brim_lab_grid_free(j->grid);
  brim_free(j->grid);
  brim_gpu_monitor_close(j->monitor);
  brim_free(j->name);
  brim_free(j->shown);
  brim_free(j->place);
  brim_free(j->folder);
  brim_cli_job_close(&j->job);
}

// Continues the experiments of a store, if no grid is named.
static brim_status continue_store(brim_cli_sweep_job *j) {
  j->only_continue = true;
  BRIM_TRY(brim_cli_sweep_place(j->cli, 0, &j->place));
  BRIM_TRY(show_place(j));
  const char *folder = brim_option_string(&j->cli->parse, "output-dir", NULL);
  if (!folder && brim_store_is_url(j->place)) {
    return brim_cli_usage(j->cli, BRIM_N_("name the folder of the experiments with --output-dir"));
  }
  j->folder = brim_strdup(folder ? folder : j->place);
  j->name = brim_strdup(brim_fs_basename(j->folder ? j->folder : ""));
  return j->folder && j->name ? BRIM_OK
                              : brim_fail(BRIM_ENOMEM, "out of memory while reading a grid");
}

// Runs `brim sweep GRID`: positional[0] is the grid. Without a grid continues --store.
static brim_status sweep_run(brim_cli *cli) {
  brim_cli_sweep_job j = {.cli = cli};
  brim_cli_metric_names names = {.count = 0};
  BRIM_TRY(brim_cli_sweep_check(cli));
  bool has_grid =
      cli->parse.positional_count > 0 || brim_option_string(&cli->parse, "config", NULL);
  if (!has_grid && !brim_option_string(&cli->parse, "store", NULL)) {
    return brim_cli_usage(cli, BRIM_N_("name a grid, or a store to continue with --store"));
  }
  if (brim_gpu_monitor_open(&j.monitor)) brim_status_clear();
  brim_status status = has_grid ? expand(&j, &names) : continue_store(&j);
  if (!status && has_grid) status = choose_places(&j, j.grid->store);
  if (!status && has_grid && brim_option_flag(&cli->parse, "dry-run", false)) {
    status = dry_run(&j);
  } else if (!status) {
    status = sweep_slurm_open(&j, &j.slurm);
    if (!status) status = run_sweep(&j);
  }
  job_close(&j);
  return status;
}

//------------------------------------------- command -------------------------------------------

static const char *const state_choices[] = {"queued", "running",   "done", "failed",
                                            "paused", "cancelled", NULL};
static const char *const engine_choices[] = {"local", "slurm", NULL};
static const char *const format_choices[] = {"jsonl", "csv", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    {.name = "store",
     .kind = BRIM_OPTION_STRING,
     .metavar = "PLACE",
     .help = BRIM_N_("store of the experiments: a folder, postgres:// or http(s):// URL")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for the experiments' files"),
     .default_text = "runs/NAME"},
    {.name = "dry-run",
     .help = BRIM_N_("list the experiments, their memory and time; run nothing")},
    {.name = "measure",
     .help = BRIM_N_("with --dry-run: measure a few steps where the time is unknown")},
    {.name = "keep-going",
     .help = BRIM_N_("continue when the first experiments all fail the same way")},
    BRIM_CLI_OPTION_DATA_PATH,
    {.name = "device",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DEV",
     .help = BRIM_N_("where experiments may run: auto, cpu, cuda, 0 or [0, 1, 2, 3]"),
     .key = "device",
     .group = BRIM_N_("Machine")},
    BRIM_CLI_OPTION_THREADS,
    {.name = "jobs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("experiments at once on the CPU; with Slurm: of each array"),
     .default_text = "1",
     .group = BRIM_N_("Machine")},
    {.name = "share",
     .help = BRIM_N_("also use GPUs that other programs use"),
     .group = BRIM_N_("Machine")},
    {.name = "mps",
     .help = BRIM_N_("experiments that share a GPU compute at once, by NVIDIA MPS"),
     .negatable = true,
     .default_text = "on",
     .group = BRIM_N_("Machine")},
    {.name = "lease",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds without contact before an experiment is queued again"),
     .default_text = "60",
     .group = BRIM_N_("Machine")},
    {.name = "stall",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds without progress before a training is ended (0 = never)"),
     .default_text = "600",
     .group = BRIM_N_("Machine")},
    {.name = "backoff",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds before the first retry; twice as long before the next"),
     .default_text = "5",
     .group = BRIM_N_("Machine")},
    {.name = "engine",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "E",
     .help = BRIM_N_("what runs the experiments: this machine, or Slurm's job arrays"),
     .default_text = "local",
     .choices = engine_choices,
     .group = BRIM_N_("Slurm")},
    {.name = "partition",
     .kind = BRIM_OPTION_STRING,
     .metavar = "NAME",
     .help = BRIM_N_("Slurm's partition"),
     .group = BRIM_N_("Slurm")},
    {.name = "account",
     .kind = BRIM_OPTION_STRING,
     .metavar = "NAME",
     .help = BRIM_N_("account that Slurm charges"),
     .group = BRIM_N_("Slurm")},
    {.name = "time",
     .kind = BRIM_OPTION_STRING,
     .metavar = "LIMIT",
     .help = BRIM_N_("time limit of a run, as sbatch takes it: 90, 1:30:00, 2-12"),
     .group = BRIM_N_("Slurm")},
    {.name = "cpus",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("CPUs of each experiment, or of each rank"),
     .group = BRIM_N_("Slurm")},
    {.name = "memory",
     .kind = BRIM_OPTION_STRING,
     .metavar = "SIZE",
     .help = BRIM_N_("memory on each node, as sbatch takes it: 32G"),
     .group = BRIM_N_("Slurm")},
    {.name = "gres",
     .kind = BRIM_OPTION_STRING,
     .metavar = "LIST",
     .help = BRIM_N_("resources on each node: gpu:1, gpu:a100:2"),
     .group = BRIM_N_("Slurm")},
    {.name = "slurm",
     .kind = BRIM_OPTION_STRING,
     .metavar = "ARG",
     .help = BRIM_N_("one more argument for sbatch; may be repeated: --slurm=--qos=long"),
     .group = BRIM_N_("Slurm")},
    {.name = "slurm-poll",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds between two looks at Slurm's queue"),
     .default_text = "10",
     .group = BRIM_N_("Slurm")},
    {.name = "state",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "STATE",
     .help = BRIM_N_("only experiments in this state"),
     .choices = state_choices,
     .group = BRIM_N_("Other terminals")},
    {.name = "tag",
     .kind = BRIM_OPTION_STRING,
     .metavar = "TAG",
     .help = BRIM_N_("only experiments with this tag"),
     .group = BRIM_N_("Other terminals")},
    {.name = "grid",
     .kind = BRIM_OPTION_STRING,
     .metavar = "NAME",
     .help = BRIM_N_("status: only experiments of this grid, by its name or id"),
     .group = BRIM_N_("Other terminals")},
    {.name = "all",
     .help = BRIM_N_("cancel, pause, resume, retry, status: every experiment"),
     .group = BRIM_N_("Other terminals")},
    {.name = "limit",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("status: number of experiments to list (0 = all)"),
     .default_text = "40",
     .group = BRIM_N_("Other terminals")},
    {.name = "format",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "F",
     .help = BRIM_N_("export: JSON lines with all metrics, or one CSV row per experiment"),
     .default_text = "jsonl",
     .choices = format_choices,
     .group = BRIM_N_("Other terminals")},
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("export, get: file to write (export: standard output by default)"),
     .group = BRIM_N_("Other terminals")},
    {.name = "force",
     .help = BRIM_N_("export, get: replace a file that is there"),
     .group = BRIM_N_("Other terminals")},
    {.name = "attempt",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("log: this attempt (default: the last)"),
     .group = BRIM_N_("Other terminals")},
    {.name = "lines",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("log: number of last lines to print (0 = all)"),
     .default_text = "0",
     .group = BRIM_N_("Other terminals")},
    {.name = "follow",
     .short_name = 'f',
     .help = BRIM_N_("log: keep printing until the attempt ends"),
     .group = BRIM_N_("Other terminals")},
    {.name = "minutes",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "N",
     .help = BRIM_N_("chaos: duration of the test"),
     .default_text = "2",
     .group = BRIM_N_("Chaos test")},
    {.name = "workers",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("chaos: test a server and N workers over HTTP (0 = a sweep)"),
     .default_text = "0",
     .group = BRIM_N_("Chaos test")},
    {.name = "executors",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("chaos: experiments that run at the same time"),
     .default_text = "16",
     .group = BRIM_N_("Chaos test")},
    {.name = "experiments",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("chaos: number of experiments (0 = as many as the duration allows)"),
     .default_text = "0",
     .group = BRIM_N_("Chaos test")},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("chaos: random seed of the kills (default: from the clock)"),
     .group = BRIM_N_("Chaos test")},
    {0},
};

// Runs the action that the first word names, else sweeps a grid. A grid file named "status" is given as ./status.
static brim_status run(brim_cli *cli) {
  static const brim_cli_verb *const tables[] = {brim_cli_sweep_show, brim_cli_sweep_control,
                                                brim_cli_sweep_export, brim_cli_sweep_chaos,
                                                brim_cli_sweep_child};
  const char *word = cli->parse.positional_count > 0 ? cli->parse.positional[0] : "";
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    for (const brim_cli_verb *verb = tables[i]; verb->name; verb++) {
      if (strcmp(verb->name, word) != 0) continue;
      // Ctrl-C stops an action that a user started, and never the sweep itself.
      if (tables[i] != brim_cli_sweep_child) brim_cli_interrupt_set(BRIM_CLI_STOPS);
      return verb->run(cli);
    }
  }
  return sweep_run(cli);
}

const brim_cli_command brim_cli_sweep = {
    .name = "sweep",
    .summary = BRIM_N_("run a grid of experiments and lose none"),
    .usage =
        "GRID [key.path=value ...] [--store PLACE] [--dry-run]\n"
        "status|stop|rerun-failed|export [PLACE]\n"
        "cancel|pause|resume|retry|log ID... [--store PLACE]\n"
        "priority ID N [--store PLACE]\n"
        "drain|undrain WORKER... [--store PLACE]\n"
        "get ID [weights|best|checkpoint|record|config] [--store PLACE] [-o FILE]\n"
        "move FROM TO\n"
        "chaos [--minutes N] [--workers N] [--store PLACE]",
    .about = BRIM_N_(
        "sweep runs every point of a config whose values are lists: one experiment per point. It "
        "stores the experiments first, then starts one brim train per free GPU, or --jobs of them "
        "on the CPU. Failed experiments are retried where a retry can help. Ctrl-C stops the "
        "trainings at a checkpoint; the same command continues them. If sweep is killed, the same "
        "command continues as well. An experiment's id is the hash of its config, so a second "
        "submission adds only what is missing. With --engine slurm the experiments are elements of "
        "Slurm's job arrays. The other forms show and control a sweep from "
        "another terminal, whether it runs or not."),
    .examples = BRIM_N_(
        "run six experiments\nbrim sweep mnist.yaml lr='[0.1, 0.01, 0.001]' "
        "batch_size='[64, 128]'\nlist them with their memory, run "
        "nothing\nbrim sweep grid.yaml --dry-run\nshow the state from another terminal\nbrim sweep "
        "status runs/grid\nrun what failed again\nbrim sweep rerun-failed runs/grid\nrun the grid "
        "in Slurm\n"
        "brim sweep grid.yaml --engine slurm --gres gpu:1 --time 4:00:00\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_SAVES,
};
