// `brim sweep`: the command and its options; finding stores and logs; the metric of an experiment.

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
#include "lab/wire/lab_wire_link.h"

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
    bool later = folder && find_store(folder, &st) &&
                 (!*out || st.st_mtim.tv_sec > newest.tv_sec ||
                  (st.st_mtim.tv_sec == newest.tv_sec && st.st_mtim.tv_nsec > newest.tv_nsec));
    if (later) {
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
  // The first name is shown until a metric is recorded (lab_store.h).
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

// A file with the name of an action is written ./status.
static brim_status run(brim_cli *cli) {
  static const brim_cli_verb others[] = {
      {"export", brim_cli_sweep_export}, {"chaos", brim_cli_sweep_chaos}, {NULL, NULL}};
  static const brim_cli_verb *const tables[] = {brim_cli_sweep_show, brim_cli_sweep_control, others,
                                                brim_cli_sweep_child};
  const char *word = cli->parse.positional_count > 0 ? cli->parse.positional[0] : "";
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    for (const brim_cli_verb *verb = tables[i]; verb->name; verb++) {
      if (strcmp(verb->name, word) != 0) continue;
      // Ctrl-C stops an action of a user, and never the sweep.
      if (tables[i] != brim_cli_sweep_child) brim_cli_interrupt_set(BRIM_CLI_STOPS);
      return verb->run(cli);
    }
  }
  return brim_cli_sweep_run(cli);
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
