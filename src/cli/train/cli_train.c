// `brim train`: options to config, config to workload, workload to the training loop, which is src/run.

#include "cli/train/cli_train.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/job/cli_job_options.h"
#include "cli/train/cli_train_ranks.h"
#include "engine/engine.h"
#include "record/record_channel.h"
#include "workload/learn/learn_trained.h"

//-------------------------------------------- ranks --------------------------------------------
// Ranks of `brim train`: how many the config asks for, which one this process is, the reason of a failure
// (printed once for all of them). cli_train.c starts the processes.

struct brim_cli_ranks {
  brim_ranks *ranks;
  atomic_bool told;      // the reason of a failure was printed, by whichever thread
  atomic_int exit_code;  // of a process that its watch ends
};

brim_ranks *brim_cli_ranks_get(const brim_cli_ranks *r) { return r ? r->ranks : NULL; }

//---------------------------------- how many ----------------------------------

static brim_status check_gpus(const brim_cli_job *job, int64_t gpus, size_t devices) {
  if (devices > 1) {
    if ((size_t)gpus <= devices) return BRIM_OK;
    return brim_fail(BRIM_EINVAL, "gpus is %d, but device names %zu devices", (int)gpus, devices);
  }
  const int there = brim_cli_job_gpus(job);
  if (gpus <= there) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "gpus is %d, but this machine has %d GPUs; ranks=%d shares what is there",
                   (int)gpus, there, (int)gpus);
}

// A GPU of the list that is not here would be every rank's failure: it is one before they start.
static brim_status check_devices(const brim_cli_job *job, size_t devices) {
  const int there = brim_cli_job_gpus(job);
  for (size_t i = 0; i < devices; i++) {
    const char *spec = NULL;
    int64_t index = 0;
    BRIM_TRY(brim_work_device_at(job->config, i, &spec));
    const char *colon = strchr(spec, ':');
    bool gpu = brim_str_starts(spec, "cuda"), number = brim_parse_i64(spec, &index);
    if (!(gpu || number) || (colon && !brim_parse_i64(colon + 1, &index))) continue;
    if (index < there) continue;
    return brim_fail(BRIM_EDEVICE,
                     "device names %s, but this machine has %d GPUs; --device cpu trains without, "
                     "brim doctor says what is missing",
                     spec, there);
  }
  return BRIM_OK;
}

brim_status brim_cli_ranks_wanted(const brim_cli_job *job, int *out) {
  const size_t devices = brim_work_device_count(job->config);
  const int64_t gpus =
      brim_config_is_set(job->config, "gpus") ? brim_config_int(job->config, "gpus") : 0;
  const int64_t ranks =
      brim_config_is_set(job->config, "ranks") ? brim_config_int(job->config, "ranks") : 0;
  *out = ranks > 0 ? (int)ranks : gpus > 0 ? (int)gpus : (int)devices;
  if (devices > 1) BRIM_TRY(check_devices(job, devices));
  if (gpus > 1 && ranks <= 0) BRIM_TRY(check_gpus(job, gpus, devices));
  if (ranks > 0 && gpus > 0 && ranks != gpus) {
    return brim_fail(BRIM_EINVAL, "ranks is %d and gpus is %d; set only one of them", (int)ranks,
                     (int)gpus);
  }
  return BRIM_OK;
}

//---------------------------------- one rank ----------------------------------

// What another rank than the first has to say is a failure; all else the first one says.
static void be_quiet(brim_cli *cli) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  cli->quiet = true;
  cli->json = false;
  brim_cli_log(cli);
  cli->stop = brim_cli_signals(false, BRIM_CLI_SAVES);
  if (nowhere < 0) return;
  fflush(stdout);
  (void)dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

// From the watch: another rank failed, and this one has not ended in time.
static void on_stuck(void *ctx, const char *why) {
  brim_cli_ranks *r = ctx;
  if (!atomic_exchange(&r->told, true) && brim_ranks_reports(r->ranks)) {
    fprintf(stderr, "\nbrim: %s %s\n", brim_tr("error:"), why);
  }
  _exit(atomic_load(&r->exit_code));
}

// mpirun binds each rank to one core by default: loader, exchange and driver then share it.
static void warn_of_binding(const brim_ranks *ranks) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (ranks->origin != BRIM_RANKS_MPI || ranks->rank > 0) return;
  if (brim_cpu_count() > 1 || cores <= ranks->local_size) return;
  brim_log_warn("train",
                "this rank may use 1 of %ld cores, which makes it slow; start it with mpirun "
                "--bind-to none, or srun --cpus-per-task",
                cores);
}

brim_status brim_cli_ranks_open(brim_cli *cli, brim_cli_ranks **out) {
  brim_ranks_place place;
  *out = NULL;
  BRIM_TRY(brim_ranks_find(getenv, &place));
  if (place.origin == BRIM_RANKS_ALONE) return BRIM_OK;
  if (place.rank > 0) be_quiet(cli);
  brim_cli_ranks *r = brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  atomic_init(&r->told, false);
  atomic_init(&r->exit_code, BRIM_CLI_EXIT_RANK);
  const brim_ranks_options how = {.on_stuck = on_stuck, .ctx = r};
  brim_status status = brim_ranks_open(&place, &how, &r->ranks);
  if (status) {
    brim_free(r);
    return status;
  }
  warn_of_binding(r->ranks);
  *out = r;
  return BRIM_OK;
}

brim_status brim_cli_ranks_failed(brim_cli *cli, brim_cli_ranks *r, brim_status status) {
  if (!r || !status) return status;
  if (status == BRIM_EINTERRUPTED) {  // all ranks agreed on it
    if (r->ranks->rank > 0) cli->error_reported = true;
    return status;
  }
  status = brim_ranks_fail(r->ranks, status);
  atomic_store(&r->exit_code, brim_cli_exit_of(cli, status));
  const bool reports = brim_ranks_reports(r->ranks);
  cli->error_reported = true;
  if (atomic_exchange(&r->told, true)) return status;  // the watch is about to end this process
  if (reports) brim_cli_error(cli, status);
  return status;
}

void brim_cli_ranks_close(brim_cli_ranks *r) {
  if (!r) return;
  brim_ranks_close(r->ranks);
  brim_free(r);
}

//------------------------------------------- launcher -------------------------------------------
// The launcher of ranks on one machine: as many processes of the same command line, whose environment says
// which rank they are. The first one has the terminal; of the others only failures are shown.

#define LOOK_MS 100
// After the first rank has failed the others end within BRIM_RANKS_GRACE_NS, by their watch.
#define GRACE_NS (BRIM_RANKS_GRACE_NS + (int64_t)500000000)

typedef struct rank_child {
  int rank;
  brim_child *child;
  pid_t pid;
  bool ended, killed;  // killed: by this launcher
  int exit_code;       // -1 = a signal
  int signal;
} rank_child;

typedef struct launch {
  brim_cli *cli;
  rank_child *ranks;  // (count)
  int count;
  char name[64];
  int64_t failed_ns;  // when the first rank failed; 0 = none has
  int first_failed;   // its number; -1 = none: a rank that follows another's failure does not count
  bool passed_stop;
} launch;

//---------------------------------- starting ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  const rank_child *r = ctx;
  if (line->size == 0) return BRIM_OK;
  fprintf(stderr, "[rank %d] %s\n", r->rank, line->text);
  return BRIM_OK;
}

static brim_status start_rank(launch *l, const char *const *argv, rank_child *r) {
  char rank[32], size[32], name[96];
  snprintf(rank, sizeof rank, BRIM_RANKS_ENV_RANK "=%d", r->rank);
  snprintf(size, sizeof size, BRIM_RANKS_ENV_SIZE "=%d", l->count);
  snprintf(name, sizeof name, BRIM_RANKS_ENV_NAME "=%s", l->name);
  const char *const env[] = {rank, size, name, NULL};
  const bool first = r->rank == 0;
  const brim_child_options how = {.argv = argv,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = first ? BRIM_CHILD_INHERIT : BRIM_CHILD_NULL,
                                  .err = first ? BRIM_CHILD_INHERIT : BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_line,
                                  .ctx = r};
  BRIM_TRY(brim_child_start(&how, &r->child));
  r->pid = brim_child_pid(r->child);
  return BRIM_OK;
}

static brim_status start_all(launch *l) {
  char *program = NULL;
  BRIM_TRY(brim_fs_exe(&program));
  const char **argv = brim_calloc((size_t)l->cli->argc + 1, sizeof *argv);
  brim_status status =
      argv ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (argv) {
    argv[0] = program;
    for (int i = 1; i < l->cli->argc; i++) argv[i] = l->cli->argv[i];
  }
  for (int r = 0; r < l->count && !status; r++) {
    l->ranks[r].rank = r;
    status = start_rank(l, argv, &l->ranks[r]);
  }
  brim_free(argv);
  brim_free(program);
  return status;
}

//---------------------------------- waiting ----------------------------------

static void note_end(launch *l, rank_child *r) {
  const brim_child_result *end = brim_child_get_result(r->child);
  r->ended = true;
  r->exit_code = end->lost ? BRIM_CLI_EXIT_FAILED : end->exit_code;
  r->signal = end->signal;
  const bool good = r->exit_code == BRIM_CLI_EXIT_OK || r->exit_code == BRIM_CLI_EXIT_INTERRUPTED;
  if (good) return;
  if (!l->failed_ns) l->failed_ns = brim_clock_now().ns;
  const bool follows = r->exit_code == BRIM_CLI_EXIT_RANK || r->killed;
  if (!follows && l->first_failed < 0) l->first_failed = r->rank;
}

// The wish to stop goes to all: they agree on the step to stop at.
static void pass_stop(launch *l) {
  if (!*l->cli->stop || l->passed_stop) return;
  l->passed_stop = true;
  for (int r = 0; r < l->count; r++) {
    if (!l->ranks[r].ended && brim_child_signal(l->ranks[r].child, SIGTERM)) brim_status_clear();
  }
}

static void kill_late(launch *l) {
  if (!l->failed_ns || brim_clock_now().ns - l->failed_ns < GRACE_NS) return;
  for (int r = 0; r < l->count; r++) {
    rank_child *c = &l->ranks[r];
    if (c->ended || c->killed) continue;
    c->killed = true;
    if (brim_child_signal_group(c->child, SIGKILL)) brim_status_clear();
  }
}

static void wait_all(launch *l, brim_child **children) {
  for (int running = l->count; running > 0;) {
    brim_child_wait_any(children, (size_t)l->count, LOOK_MS);
    running = 0;
    for (int r = 0; r < l->count; r++) {
      rank_child *c = &l->ranks[r];
      bool ended = c->ended;
      if (!ended && brim_child_poll(c->child, &ended)) brim_status_clear();
      if (ended && !c->ended) note_end(l, c);
      running += !ended;
    }
    pass_stop(l);
    kill_late(l);
  }
}

//---------------------------------- the result ----------------------------------

static brim_status status_of(int exit_code) {
  switch (exit_code) {
    case BRIM_CLI_EXIT_USAGE:
      return BRIM_EINVAL;
    case BRIM_CLI_EXIT_DEVICE:
      return BRIM_EDEVICE;
    case BRIM_CLI_EXIT_MEMORY:
      return BRIM_EOOM;
    default:
      return BRIM_ECHILD;
  }
}

// A rank that ended without a word, or did not end.
static brim_status tell(const rank_child *r) {
  if (r->killed) {
    return brim_fail(BRIM_ECHILD, "rank %d (PID %d) gave no sign of life", r->rank, (int)r->pid);
  }
  if (r->signal) {
    return brim_fail(BRIM_ECHILD, "rank %d (PID %d) was ended by signal %d (%s)", r->rank,
                     (int)r->pid, r->signal, strsignal(r->signal));
  }
  return brim_fail(BRIM_ECHILD, "rank %d (PID %d) failed with exit code %d", r->rank, (int)r->pid,
                   r->exit_code);
}

static brim_status result(launch *l) {
  if (!l->failed_ns) {
    bool interrupted = l->ranks[0].exit_code == BRIM_CLI_EXIT_INTERRUPTED;
    l->cli->error_reported = interrupted;
    return interrupted ? BRIM_EINTERRUPTED : BRIM_OK;
  }
  // The first rank prints the reason, whichever rank's it is, unless it has no voice any more.
  const rank_child *first = &l->ranks[0];
  const bool told = first->exit_code > 0 && first->exit_code != BRIM_CLI_EXIT_INTERRUPTED;
  l->cli->error_reported = told;
  const rank_child *failed = l->first_failed >= 0 ? &l->ranks[l->first_failed] : NULL;
  for (int r = 0; r < l->count && !failed; r++) {
    if (l->ranks[r].killed) failed = &l->ranks[r];
  }
  if (!failed) failed = first;
  brim_status status = tell(failed);
  return told && failed->exit_code > 0 ? status_of(failed->exit_code) : status;
}

static brim_status launch_init(launch *l) {
  uint32_t random = 0;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint32_t)getpid();
  snprintf(l->name, sizeof l->name, "/brim-%d-%08x", (int)getpid(), random);
  l->ranks = brim_calloc((size_t)l->count, sizeof *l->ranks);
  return l->ranks ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
}

// Of ranks that ended before all had come.
static void unlink_memory(const launch *l) {
  char twin[sizeof l->name + 8];
  snprintf(twin, sizeof twin, "%s-twin", l->name);
  shm_unlink(l->name);
  shm_unlink(twin);
}

brim_status brim_cli_ranks_launch(brim_cli *cli, int count) {
  launch l = {.cli = cli, .count = count, .first_failed = -1};
  // The first rank answers a signal; this process passes it on.
  cli->stop = brim_cli_signals(false, BRIM_CLI_SAVES);
  BRIM_TRY(launch_init(&l));
  brim_child **children = brim_calloc((size_t)count, sizeof(brim_child *));
  brim_status status =
      children ? start_all(&l) : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (!status) {
    for (int r = 0; r < count; r++) children[r] = l.ranks[r].child;
    wait_all(&l, children);
    status = result(&l);
  }
  for (int r = 0; r < count; r++) brim_child_close(l.ranks[r].child);
  unlink_memory(&l);
  brim_free(children);
  brim_free(l.ranks);
  return status;
}

//------------------------------------------- command -------------------------------------------
// `brim train`: options to config, config to workload, workload to the training loop, which is
// src/run. What a person sees of it is in cli_train_show.c and cli_train_show.c.

static const char *const checkpointing_choices[] = {"auto", "true", "false", NULL};
static const char *const cache_choices[] = {"auto", "none", "ram", "gpu", NULL};
static const char *const lr_aliases[] = {"learning-rate", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "epochs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of passes over the data (epochs)"),
     .key = "training.epochs"},
    {.name = "batch-size",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("samples per micro-batch"),
     .key = "data.batch_size"},
    {.name = "lr",
     .kind = BRIM_OPTION_FLOAT,
     .help = BRIM_N_("learning rate"),
     .key = "training.learning_rate",
     .aliases = lr_aliases},
    {.name = "precision",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "P",
     .help = BRIM_N_("compute precision"),
     .key = "training.precision",
     .choices = brim_cli_precisions},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("data-loader threads (0 = load in the main thread)"),
     .key = "data.num_workers",
     .aliases = brim_cli_workers_aliases},
    {.name = "cache",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "C",
     .help = BRIM_N_("keep the data set in host memory or on the GPU"),
     .key = "data.cache",
     .choices = cache_choices},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("random seed for weights, data order and augmentation"),
     .key = "seed"},
    {.name = "max-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("stop after this many optimizer steps in total (0 = no limit)")},
    {.name = "compile",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("capture the step as one graph and fuse ops, or run op by op"),
     .key = "training.compile",
     .choices = brim_cli_truths},
    {.name = "checkpointing",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("recompute activations instead of storing them"),
     .key = "training.checkpointing",
     .choices = checkpointing_choices},
    BRIM_CLI_OPTION_DEVICE,
    BRIM_CLI_OPTION_BACKEND,
    BRIM_CLI_OPTION_THREADS,
    {.name = "gpus",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train on this many GPUs of this machine (one rank each)"),
     .key = "gpus",
     .group = BRIM_N_("Machine")},
    {.name = "ranks",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train with this many processes that share the batch"),
     .key = "ranks",
     .group = BRIM_N_("Machine")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for checkpoints and logs"),
     .key = "output_dir",
     .default_text = "runs/NAME",
     .group = BRIM_N_("Files")},
    {.name = "weights",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("start from the weights in this file, with a new optimizer"),
     .key = "training.weights",
     .group = BRIM_N_("Files")},
    {.name = "resume",
     .help = BRIM_N_("resume from the newest valid checkpoint, if any (same as auto)"),
     .metavar = "when",
     .choices = brim_cli_resume_words,
     .group = BRIM_N_("Files")},
    {.name = "resume-from",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("resume from this checkpoint"),
     .group = BRIM_N_("Files")},
    {0},
};

//---------------------------------- where files go ----------------------------------

static bool lies_in(const char *path, const char *dir) {
  char *folder = brim_fs_dirname(path);
  bool same = brim_fs_same(folder, dir);
  brim_free(folder);
  return same;
}

// Any checkpoint: a new run would take those of later steps for its own future.
static bool holds_checkpoint(const char *dir) {
  char **names = NULL;
  size_t count = 0;
  bool found = false;
  if (!brim_fs_is_dir(dir) || brim_fs_list(dir, &names, &count)) return false;
  for (size_t i = 0; !found && i < count; i++) {
    found = strcmp(names[i], "last.safetensors") == 0 ||
            strcmp(names[i], "best.safetensors") == 0 ||
            (brim_str_starts(names[i], "step-") && brim_str_ends(names[i], ".safetensors"));
  }
  brim_fs_list_free(names, count);
  return found;
}

static brim_status refuse_overwriting(const char *dir) {
  char *model = brim_fs_join(dir, "model.safetensors");
  bool kept = model && brim_fs_exists(model);
  brim_free(model);
  if (!holds_checkpoint(dir)) {
    if (!kept) return BRIM_OK;
    return brim_fail(BRIM_EEXIST,
                     "%s already holds a model; choose another folder with --output-dir, or move "
                     "model.safetensors away",
                     dir);
  }
  return brim_fail(BRIM_EEXIST,
                   "%s already holds a run; continue it with --resume, or choose another folder "
                   "with --output-dir",
                   dir);
}

//---------------------------------- the command ----------------------------------

// --resume, --resume-from, and training.resume: none, auto or a path.
static void choose_resume(const brim_cli *cli, const brim_config *config, brim_run_options *out) {
  const char *key = brim_config_string(config, "training.resume");
  out->resume = brim_option_flag(&cli->parse, "resume", false);
  out->resume_path = brim_option_string(&cli->parse, "resume-from", NULL);
  if (!key || strcmp(key, "none") == 0) return;
  if (strcmp(key, "auto") == 0) {
    out->resume = true;
  } else if (!out->resume_path && !out->resume) {
    out->resume_path = key;
  }
}

// Before a device and data are opened for it.
static brim_status check_there(const char *path) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_trained_refuse_folder(path, "last.safetensors"));
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_safetensors_close(file);
  return BRIM_OK;
}

// For programs that run many trainings: what kind of failure it was. Files are those of the data from
// when the device is open.
static brim_failure class_of(const brim_cli *cli, const brim_cli_job *job, brim_status status,
                             const brim_run_result *r) {
  if (r->diverged) return BRIM_FAILURE_NAN;
  if (r->folder_failed) return BRIM_FAILURE_INFRASTRUCTURE;
  switch (status) {
    case BRIM_EOOM:
      return cli->running ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EDEVICE:
      return brim_cli_device_class(job);
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_ECHILD:
    case BRIM_EINTERNAL:
    case BRIM_ERANK:
      return BRIM_FAILURE_CRASH;
    case BRIM_EIO:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_EEND:
      return job->device ? BRIM_FAILURE_DATA : BRIM_FAILURE_BAD_CONFIG;
    default:
      return cli->running ? BRIM_FAILURE_OTHER : BRIM_FAILURE_BAD_CONFIG;
  }
}

// What can be refused before a device and data are opened.
static brim_status prepare(const brim_cli *cli, const brim_cli_job *job, const char *dir,
                           brim_run_options *how) {
  choose_resume(cli, job->config, how);
  if (brim_ranks_rank(job->ranks) > 0) return BRIM_OK;  // the first rank looks at files
  if (how->resume_path) BRIM_TRY(check_there(how->resume_path));
  // a checkpoint from elsewhere starts a run of its own: it needs a place of its own
  bool continues = how->resume || (how->resume_path && lies_in(how->resume_path, dir));
  return continues ? BRIM_OK : refuse_overwriting(dir);
}

static brim_status train_in(brim_cli *cli, brim_cli_job *job, const char *dir,
                            brim_run_result *result) {
  brim_cli_training t = {
      .cli = cli, .job = job, .output_dir = dir, .memory = {.cli = cli, .job = job}};
  cli->channel = getenv(BRIM_CHANNEL_ENV) != NULL;
  brim_run_options how = {.output_dir = dir,
                          .stop = cli->stop,
                          .publish = "train",
                          .max_steps = brim_option_int(&cli->parse, "max-steps", 0)};
  brim_cli_training_watch(&t, &how);
  BRIM_TRY(prepare(cli, job, dir, &how));
  if (!job->ranks) {
    int count = 1;
    BRIM_TRY(brim_cli_ranks_wanted(job, &count));
    if (count > 1) return brim_cli_ranks_launch(cli, count);
    job->on_first = true;  // of a list that gpus or ranks cut to one
  }
  BRIM_TRY(brim_cli_job_open(cli, job));
  brim_status status = brim_run_train(job->work, job->config, &how, result);
  brim_cli_training_end(&t);
  if (status) {
    status = brim_cli_memory_failed(&t.memory, status);
  } else {
    brim_cli_memory_measure(&t.memory);
  }
  if (status == BRIM_OK || (status == BRIM_EINTERRUPTED && result->interrupted)) {
    brim_status shown = brim_cli_training_result(&t, result);
    if (!status) status = shown;
  }
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  if (brim_option_int(&cli->parse, "max-steps", 0) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--max-steps must be 0 or more"));
  }
  brim_run_result result;
  memset(&result, 0, sizeof result);
  brim_cli_ranks *ranks = NULL;
  BRIM_TRY(brim_cli_ranks_open(cli, &ranks));
  job.ranks = brim_cli_ranks_get(ranks);
  // what there is to say of the config the launcher has said
  bool launched = job.ranks && job.ranks->origin == BRIM_RANKS_BRIM;
  bool before = launched ? brim_log_hush(true) : false;
  brim_status status = brim_cli_job_config(cli, &job);
  if (launched) brim_log_hush(before);
  if (!status) {
    char *dir = NULL;
    status = brim_cli_job_run_dir(&job, &dir);
    if (!status) status = train_in(cli, &job, dir, &result);
    brim_free(dir);
  }
  if (status) cli->failure = class_of(cli, &job, status, &result);
  status = brim_cli_ranks_failed(cli, ranks, status);
  brim_cli_job_close(&job);
  brim_cli_ranks_close(ranks);
  return status;
}

const brim_cli_command brim_cli_train = {
    .name = "train",
    .summary = BRIM_N_("train, with progress, checkpoints and logs"),
    .usage = "[CONFIG] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_("Trains as CONFIG describes. Options and key=value arguments override the "
                     "file; `brim config explain` lists every key.\nOn Ctrl-C brim finishes the "
                     "step, saves and exits with 130. `--resume` continues from there; the result "
                     "is bit-identical. A second Ctrl-C, at least one second later, stops "
                     "immediately."),
    .examples = BRIM_N_(
        "train ten epochs on MNIST\nbrim train configs/mnist-mlp.yaml --data-path data/mnist "
        "--epochs 10\nanother optimizer, another folder\nbrim train mnist.yaml optimizer=sgd "
        "lr=0.1 --output-dir runs/sgd\nstart from weights of brim or PyTorch\nbrim train "
        "cifar.yaml --weights model.safetensors\nresume after an interruption\nbrim train "
        "configs/mnist-mlp.yaml --data-path data/mnist --resume\ntrain one model on two GPUs\nbrim "
        "train cifar.yaml --gpus 2\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_SAVES,
};
