// Actions of `brim sweep` that sweeps and Slurm start, not users: execute, element, plan.

#include "cli/sweep/cli_sweep.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/job/cli_job.h"
#include "lab/exec/lab_exec.h"
#include "lab/grid/lab_grid.h"
#include "lab/slurm/lab_slurm.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_lab.h"
#include "run/run.h"

// Takes the value of a word key=value; false if it has another key.
static bool take_text(const char *word, const char *key, const char **out) {
  size_t n = strlen(key);
  if (strncmp(word, key, n) != 0 || word[n] != '=') return false;
  *out = word + n + 1;
  return true;
}

static bool take_number(const char *word, const char *key, int64_t *out) {
  const char *text;
  return take_text(word, key, &text) && brim_parse_i64(text, out);
}

//------------------------------------------- execute -------------------------------------------
// `brim sweep execute`, started by a sweep: one attempt of one experiment. Its words:
//   place=    the store, as the link opens it; the environment has a database's URL with its password (lab_exec.h)
//   folder=   the folder of the experiment
//   exp=      32 digits    attempt=    fence=
//   device= gpus= threads= linger_ms= stall_ms= grace_ms= beat_ms=    as in lab_exec.h; may be left out
//   trainer=  a program to run instead of `brim train`, with the same words behind it; for tests
// Exit code 0: the result is in the store or in the spool, or the attempt was replaced.

enum {
  CALL_MS = 3000,  // timeout of one call; the training's output waits meanwhile
  LINGER_MS = 60000,
  AGAIN_MS = 100,
  MOST_PLUGINS = 8
};

typedef struct execute_words {
  const char *place, *folder, *exp, *device, *gpus, *trainer;
  int64_t attempt, fence, threads, linger_ms, stall_ms, grace_ms, beat_ms;
} execute_words;

static bool take_word(execute_words *w, const char *word) {
  return take_text(word, "place", &w->place) || take_text(word, "folder", &w->folder) ||
         take_text(word, "exp", &w->exp) || take_text(word, "device", &w->device) ||
         take_text(word, "gpus", &w->gpus) || take_text(word, "trainer", &w->trainer) ||
         take_number(word, "attempt", &w->attempt) || take_number(word, "fence", &w->fence) ||
         take_number(word, "threads", &w->threads) ||
         take_number(word, "linger_ms", &w->linger_ms) ||
         take_number(word, "stall_ms", &w->stall_ms) ||
         take_number(word, "grace_ms", &w->grace_ms) || take_number(word, "beat_ms", &w->beat_ms);
}

static brim_status parse_words(brim_cli *cli, execute_words *w) {
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!take_word(w, word)) return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), word);
  }
  bool complete = w->place && w->folder && w->exp && strlen(w->exp) == BRIM_EXP_ID - 1 &&
                  w->attempt > 0 && w->fence > 0;
  if (complete) return BRIM_OK;
  return brim_cli_usage(cli, BRIM_N_("execute needs place, folder, exp, attempt and fence"));
}

// Adds the options that load the plug-ins which the user of the sweep has allowed; `out` ends with NULL.
static void add_plugins(const brim_cli *cli, const char **out) {
  size_t n = 0;
  for (size_t i = 0; i < cli->parse.count && n < 2 * MOST_PLUGINS; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    out[n++] = "--plugin";
    out[n++] = item->values[0];
  }
  if (brim_option_flag(&cli->parse, "allow-plugins", false)) out[n++] = "--allow-plugins";
  out[n] = NULL;
}

static brim_status execute(brim_cli *cli, const execute_words *w, brim_lab_link *link,
                           const char *self) {
  const char *brim_train[2 * MOST_PLUGINS + 4] = {self, "train"}, *const other[] = {w->trainer,
                                                                                    NULL};
  add_plugins(cli, brim_train + 2);
  brim_lab_exec_options options = {
      .link = link,
      .ref = {.attempt = w->attempt, .fence = w->fence},
      .folder = w->folder,
      .command = w->trainer ? other : brim_train,
      .device = w->device,
      .gpus = w->gpus,
      .threads = w->threads,
      .linger_ms = w->linger_ms,
      .stall_ms = w->stall_ms,
      .grace_ms = w->grace_ms,
      .beat_ms = w->beat_ms,
      .stop = cli->stop,
  };
  snprintf(options.ref.exp, sizeof options.ref.exp, "%s", w->exp);
  brim_lab_exec_report report;
  BRIM_TRY(brim_lab_execute(&options, &report));
  if (report.end == BRIM_LAB_EXEC_STALE) {
    brim_log_warn("lab", "attempt %lld is no longer the experiment's; its result is dropped",
                  (long long)w->attempt);
  }
  return BRIM_OK;
}

// Opens the link. Waits for a sweep: the sweep that started this process may have been killed, and a new one may start.
static brim_status open_link(const brim_cli *cli, const execute_words *w, brim_lab_link **out) {
  const char *env_place = getenv(BRIM_LAB_PLACE_ENV);
  const char *place = brim_store_is_url(w->place) && env_place ? env_place : w->place;
  const brim_lab_link_options how = {.sweep_only = true, .timeout_ms = CALL_MS};
  int64_t linger_ms = w->linger_ms > 0 ? w->linger_ms : LINGER_MS;
  brim_time begin = brim_clock_now();
  for (;;) {
    brim_status status = brim_lab_link_open(place, &how, out);
    if (status != BRIM_EIO || *cli->stop) return status;
    if (brim_time_since_ns(begin, brim_clock_now()) > linger_ms * 1000000) return status;
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

static brim_status execute_action(brim_cli *cli) {
  execute_words words = {0};
  BRIM_TRY(parse_words(cli, &words));
  brim_lab_link *link = NULL;
  BRIM_TRY(open_link(cli, &words, &link));
  unsetenv(BRIM_LAB_PLACE_ENV);  // the link has a copy; trainings must not see it
  char *self = NULL;
  brim_status status = brim_fs_exe(&self);
  if (!status) status = execute(cli, &words, link, self);
  brim_free(self);
  brim_lab_link_close(link);
  return status;
}

//------------------------------------------ Slurm task ------------------------------------------
// `brim sweep element`, started by Slurm: one task of an array runs one experiment of
// the store, and ends. Its words:
//   place=   the store, as the link opens it; the environment has a database's URL with its password (lab_exec.h)
//   folder=  the folder of the sweep's experiments
//   array=   the array's name    worker=  the name of the array's worker
//   device= lease_ms= beat_ms= grace_ms= stall_ms=    as in lab_exec.h; may be left out
//   trainer= a program to run instead of `brim train`; for tests
// FOLDER/slurm/ARRAY.json has the experiment of SLURM_ARRAY_TASK_ID. Exit codes: 0 the experiment is done or
// there is nothing to do, 1 it failed, 75 it saved and Slurm runs the task again.

enum {
  ELEMENT_CALL_MS = 3000,
  ELEMENT_AGAIN_MS = 200,
  LEASE_MS = 60000,
  EXTRA_MS = 15000,    // time to wait beyond the lease of a lost attempt
  COMMAND_MS = 30000,  // timeout of a command of Slurm
  MOST_WORDS = 40,
  RANK_WORDS = 6
};

typedef struct slurm_task {
  brim_cli *cli;
  const char *place, *folder, *array, *worker, *device, *trainer;
  int64_t lease_ms, beat_ms, grace_ms, stall_ms;
  const char *job, *task;  // SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID
  char node[65];
  brim_slurm_array slurm_array;  // as the sweep wrote it
  const char *exp;               // id of the experiment, in slurm_array
  brim_lab_link *link;
  char *url;  // URL of a database with its password; NULL = the store is a folder
} slurm_task;

//---------------------------------- words ----------------------------------

static bool task_take_word(slurm_task *e, const char *word) {
  return take_text(word, "place", &e->place) || take_text(word, "folder", &e->folder) ||
         take_text(word, "array", &e->array) || take_text(word, "worker", &e->worker) ||
         take_text(word, "device", &e->device) || take_text(word, "trainer", &e->trainer) ||
         take_number(word, "lease_ms", &e->lease_ms) || take_number(word, "beat_ms", &e->beat_ms) ||
         take_number(word, "grace_ms", &e->grace_ms) || take_number(word, "stall_ms", &e->stall_ms);
}

static brim_status task_parse_words(slurm_task *e) {
  brim_cli *cli = e->cli;
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!task_take_word(e, word))
      return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), word);
  }
  e->job = getenv("SLURM_ARRAY_JOB_ID");
  e->task = getenv("SLURM_ARRAY_TASK_ID");
  if (!e->place || !e->folder || !e->array || !e->worker) {
    return brim_cli_usage(cli, BRIM_N_("element needs place, folder, array and worker"));
  }
  if (!e->job || !e->task) {
    return brim_cli_usage(cli, BRIM_N_("Slurm starts this command, as an element of an array"));
  }
  if (e->lease_ms <= 0) e->lease_ms = LEASE_MS;
  const char *node = getenv("SLURMD_NODENAME");
  if (node) {
    snprintf(e->node, sizeof e->node, "%s", node);
  } else if (gethostname(e->node, sizeof e->node - 1) != 0) {
    e->node[0] = '\0';
  }
  return BRIM_OK;
}

// Finds the experiment of this task. *mine = false: the task has nothing to run, since the sweep has replaced, stopped
// or finished the array or this element of it.
static brim_status find_experiment(slurm_task *e, bool *mine) {
  int64_t task = -1;
  *mine = false;
  brim_status status = brim_slurm_array_read(e->folder, e->array, &e->slurm_array);
  if (status == BRIM_ENOENT) {  // the sweep considers its submission lost, or has ended
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  if (!brim_parse_i64(e->task, &task) || task < 0 || (size_t)task >= e->slurm_array.count) {
    return brim_fail(BRIM_EINVAL, "the array %s has no element %s", e->array, e->task);
  }
  e->exp = e->slurm_array.exps[task].id;
  *mine = (!e->slurm_array.job[0] || strcmp(e->slurm_array.job, e->job) == 0) &&
          !e->slurm_array.exps[task].over && !e->slurm_array.stop;
  return BRIM_OK;
}

//---------------------------------- the store ----------------------------------

static brim_status task_open_link(slurm_task *e) {
  const char *env_place = getenv(BRIM_LAB_PLACE_ENV);
  if (brim_store_is_url(e->place)) {
    e->url = brim_strdup(env_place ? env_place : e->place);
    if (!e->url) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  }
  const brim_store_options store = {.lease_ms = e->lease_ms};
  const brim_lab_link_options how = {
      .sweep_only = true, .timeout_ms = ELEMENT_CALL_MS, .store = &store};
  const brim_time begin = brim_clock_now();
  for (;;) {
    brim_status status = brim_lab_link_open(e->url ? e->url : e->place, &how, &e->link);
    if (status != BRIM_EIO || *e->cli->stop) return status;
    if (brim_time_since_ns(begin, brim_clock_now()) > e->lease_ms * 1000000) {
      return brim_fail(BRIM_EIO, "no sweep answers at %s; brim sweep --engine slurm starts one",
                       e->place);
    }
    brim_clock_sleep_ns((int64_t)ELEMENT_AGAIN_MS * 1000000);
  }
}

// Ends expired leases in a database: there may be no sweep that ends them.
static void end_leases(const slurm_task *e) {
  const brim_store_options how = {.lease_ms = e->lease_ms, .grace_ms = -1};
  brim_store *store = NULL;
  if (!e->url) return;
  if (!brim_store_open(e->url, &how, &store)) (void)brim_store_reap(store, NULL);
  brim_store_close(store);
  brim_status_clear();
}

// *out = a claim can succeed later: an earlier attempt still has its lease, or the pause before a retry is not over.
static brim_status can_claim_later(slurm_task *e, bool *out) {
  brim_store_exp *exp = NULL;
  *out = false;
  BRIM_TRY(brim_lab_get(e->link, e->exp, &exp));
  bool leased = exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING;
  *out = leased || exp->state == BRIM_EXP_QUEUED;
  brim_store_exp_free(exp);
  if (leased) end_leases(e);
  return BRIM_OK;
}

// Claims the experiment, and tries again while a claim can succeed later. BRIM_OK with claimed->exp NULL: the
// experiment needs no run, this command was told to stop, or the wait was too long.
static brim_status claim(slurm_task *e, brim_store_claimed *claimed) {
  const char *gpus = getenv("CUDA_VISIBLE_DEVICES");
  char id[BRIM_EXP_ID], devices[96];
  snprintf(devices, sizeof devices, "slurm %s_%s%s%.48s", e->job, e->task, gpus ? " gpu " : "",
           gpus ? gpus : "");
  brim_store_random_id(id);
  const brim_store_request request = {.worker = e->worker,
                                      .claim_id = id,
                                      .host = e->node,
                                      .devices = devices,
                                      .exp = e->exp,
                                      .free_gpus = 1 << 20,
                                      .free_bytes = -1};
  const brim_time begin = brim_clock_now();
  for (;;) {
    bool later = false;
    brim_status status = brim_lab_claim(e->link, &request, claimed);
    if (!status && claimed->exp) return BRIM_OK;
    if (!status) status = can_claim_later(e, &later);
    if (status && status != BRIM_EIO) return status;
    bool timed_out =
        brim_time_since_ns(begin, brim_clock_now()) > (e->lease_ms + EXTRA_MS) * 1000000;
    if (*e->cli->stop || timed_out || (!status && !later)) return status;
    brim_status_clear();
    brim_clock_sleep_ns((int64_t)ELEMENT_AGAIN_MS * 1000000);
  }
}

//---------------------------------- the training ----------------------------------

typedef struct command_words {
  const char *list[MOST_WORDS];
  char text[RANK_WORDS][48];
  size_t count;
} command_words;

static void add_word(command_words *w, const char *word) {
  if (w->count < MOST_WORDS - 1) w->list[w->count++] = word;
}

static int64_t ranks_of(const slurm_task *e) {
  int64_t nodes = e->slurm_array.nodes > 1 ? e->slurm_array.nodes : 1,
          ranks = e->slurm_array.gpus > 1 ? e->slurm_array.gpus : 1;
  return ranks > nodes ? ranks : nodes;
}

// The plug-in of srun by which ranks find each other: the first of `known` that srun has; NULL = srun's default.
static const char *mpi_of(void) {
  static const char *const known[] = {"pmix", "pmix_v5", "pmix_v4", "pmix_v3", "pmi2"};
  brim_slurm_words words = {0};
  brim_slurm_command list = {0};
  const char *found = NULL;
  brim_slurm_word(&words, "srun");
  brim_slurm_word(&words, "--mpi=list");
  if (brim_slurm_run(&words, COMMAND_MS, &list)) brim_status_clear();
  for (size_t i = 0; !found && i < sizeof known / sizeof known[0]; i++) {
    bool has = (list.out.data && brim_slurm_has_mpi(list.out.data, known[i])) ||
               (list.err.data && brim_slurm_has_mpi(list.err.data, known[i]));
    if (has) found = known[i];
  }
  brim_slurm_close(&list);
  return found;
}

static void add_srun(const slurm_task *e, command_words *w) {
  const char *mpi = mpi_of();
  add_word(w, "srun");
  if (mpi) {
    snprintf(w->text[0], sizeof w->text[0], "--mpi=%s", mpi);
    add_word(w, w->text[0]);
  }
  snprintf(w->text[1], sizeof w->text[1], "--ntasks=%lld", (long long)ranks_of(e));
  add_word(w, w->text[1]);
  if (e->slurm_array.nodes > 1) {
    snprintf(w->text[2], sizeof w->text[2], "--nodes=%lld", (long long)e->slurm_array.nodes);
    add_word(w, w->text[2]);
  }
  add_word(w, "--kill-on-bad-exit=1");
}

static void task_add_plugins(const brim_cli *cli, command_words *w) {
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    add_word(w, "--plugin");
    add_word(w, item->values[0]);
  }
  if (brim_option_flag(&cli->parse, "allow-plugins", false)) add_word(w, "--allow-plugins");
}

// The cores that Slurm gave to each task; 0 = unknown, or the config sets `threads`.
static int64_t threads_of(const slurm_task *e, const char *config) {
  const char *text = getenv("SLURM_CPUS_PER_TASK");
  int64_t n = 0;
  if (!text && ranks_of(e) == 1) text = getenv("SLURM_CPUS_ON_NODE");
  char config_threads[32];
  brim_lab_config_value(config, "threads", config_threads, sizeof config_threads);
  if (strtoll(config_threads, NULL, 10) > 0) return 0;
  return text && brim_parse_i64(text, &n) && n > 0 && n <= 4096 ? n : 0;
}

// Variables that Slurm sets for each job: a training of one rank that saw them would look for other ranks.
static const char *const no_ranks[] = {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS",
                                       "SLURM_NTASKS",  "SLURM_NPROCS", NULL};

static brim_status task_execute(slurm_task *e, const brim_store_claimed *claimed, const char *self,
                                brim_lab_exec_report *report) {
  const bool ranks = ranks_of(e) > 1;
  command_words *w = brim_calloc(1, sizeof *w);
  brim_str folder;
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  if (ranks) add_srun(e, w);
  add_word(w, e->trainer ? e->trainer : self);
  if (!e->trainer) add_word(w, "train");
  if (!e->trainer) task_add_plugins(e->cli, w);
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(e->folder, e->exp, &folder);
  const brim_lab_exec_options options = {
      .link = e->link,
      .ref = claimed->ref,
      .folder = folder.data,
      .command = w->list,
      .device = e->device,
      .threads = threads_of(e, claimed->exp->config),
      .env = ranks ? NULL : no_ranks,
      .linger_ms = e->lease_ms,
      .stall_ms = e->stall_ms,
      .grace_ms = e->grace_ms,
      .beat_ms = e->beat_ms,
      // srun ends its tasks on SIGTERM, but passes other signals on.
      .stop_signal = ranks ? SIGUSR2 : 0,
      .stop = e->cli->stop};
  if (!status) status = brim_lab_execute(&options, report);
  brim_str_deinit(&folder);
  brim_free(w);
  return status;
}

//---------------------------------- after the training ----------------------------------

typedef struct own_state {
  const slurm_task *e;
  brim_slurm_state state;
} own_state;

static void on_own(void *ctx, const brim_slurm_row *row) {
  own_state *own = ctx;
  if (strcmp(row->job, own->e->job) == 0 && row->index == strtoll(own->e->task, NULL, 10)) {
    own->state = strcmp(row->word, "RUNNING") == 0 ? BRIM_SLURM_RUNNING : BRIM_SLURM_UNKNOWN;
  }
}

// Does Slurm list the task as running? Else scancel has ended it, Slurm queues it again, or squeue failed.
static bool is_running(const slurm_task *e) {
  own_state own = {e, BRIM_SLURM_UNKNOWN};
  const char *names[] = {e->array};
  brim_slurm_words words = {0};
  brim_slurm_command squeue = {0};
  brim_slurm_words_squeue(names, 1, &words);
  if (brim_slurm_run(&words, COMMAND_MS, &squeue)) brim_status_clear();
  if (brim_slurm_good(&squeue)) {
    (void)brim_slurm_rows(squeue.out.data ? squeue.out.data : "", false, on_own, &own);
  }
  brim_slurm_close(&squeue);
  return own.state == BRIM_SLURM_RUNNING;
}

// Asks Slurm to run the task again. Names it by its array and index, which stay the same however often it is queued.
static brim_status requeue(slurm_task *e) {
  brim_slurm_array now = {0};
  brim_slurm_words words = {0};
  brim_slurm_command command = {0};
  char why[256];
  bool stop = brim_slurm_array_read(e->folder, e->array, &now) != BRIM_OK || now.stop;
  brim_slurm_array_deinit(&now);
  brim_status_clear();
  if (stop || !is_running(e)) return brim_fail(BRIM_EINTERRUPTED, "stopped");
  brim_slurm_word(&words, "scontrol");
  brim_slurm_word(&words, "requeue");
  brim_slurm_word(&words, "%s_%s", e->job, e->task);
  brim_status status = brim_slurm_run(&words, COMMAND_MS, &command);
  if (status || !brim_slurm_good(&command)) {
    brim_slurm_why(&command, why, sizeof why);
    brim_log_warn("slurm", "cannot queue %s_%s again; the sweep submits another one: %s", e->job,
                  e->task, why);
  }
  brim_slurm_close(&command);
  brim_status_clear();
  e->cli->requeue = true;
  return brim_fail(BRIM_EINTERRUPTED, "stopped to run again");
}

static brim_status run(slurm_task *e) {
  bool mine = false;
  char *self = NULL;
  brim_store_claimed claimed = {0};
  brim_lab_exec_report report = {0};
  BRIM_TRY(find_experiment(e, &mine));
  if (!mine) return BRIM_OK;
  BRIM_TRY(task_open_link(e));
  unsetenv(BRIM_LAB_PLACE_ENV);  // the link has a copy; trainings must not see it
  BRIM_TRY(claim(e, &claimed));
  if (!claimed.exp) return *e->cli->stop ? requeue(e) : BRIM_OK;
  brim_status status = brim_fs_exe(&self);
  if (!status) status = task_execute(e, &claimed, self, &report);
  brim_free(self);
  brim_store_exp_free(claimed.exp);
  BRIM_TRY(status);
  if (report.end == BRIM_LAB_EXEC_STALE || report.outcome == BRIM_ATTEMPT_OK) return BRIM_OK;
  if (report.outcome == BRIM_ATTEMPT_STOPPED && *e->cli->stop) return requeue(e);
  if (report.outcome == BRIM_ATTEMPT_STOPPED) return BRIM_OK;  // stopped by the user
  return brim_fail(BRIM_ECHILD, "%s: %s", brim_failure_name(report.failure), report.message);
}

static brim_status slurm_task_action(brim_cli *cli) {
  slurm_task e = {.cli = cli};
  // Preemption signals more than once, but the training must save.
  brim_cli_interrupt_set(BRIM_CLI_SAVES_ALWAYS);
  brim_status status = task_parse_words(&e);
  if (!status) status = run(&e);
  brim_lab_link_close(e.link);
  brim_slurm_array_deinit(&e.slurm_array);
  brim_free(e.url);
  return status;
}

//--------------------------------------------- plan ---------------------------------------------
// `brim sweep plan`, started by a sweep: reads questions from standard input, one JSON object per line, and answers
// each with the needs of an experiment (lab/grid/lab_grid.h), or with a failure class and a message. Ends when
// its input ends.

// Limits of a measurement. It only has to tell hours from days.
enum { MEASURED_STEPS = 5, MEASURED_WARMUP = 5 };
#define MEASURED_SECONDS 10.0

typedef struct planner {
  brim_cli *cli;
  brim_cli_job job;     // its device stays open for the next question
  char spec[64];        // spec of the open device
  bool plugins_loaded;  // the plug-ins of the grid are loaded: no axis changes them
  double ready_s;       // seconds to load the plug-ins, which start the drivers
  double device_s;      // seconds to open the device
} planner;

static brim_failure class_of(const brim_cli_job *job, brim_status status) {
  switch (status) {
    case BRIM_EOOM:
      return BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_EDEVICE:
      return brim_cli_device_class(job);
    case BRIM_EIO:
    case BRIM_EEND:
      return BRIM_FAILURE_DATA;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_ELIMIT:
      return BRIM_FAILURE_BAD_CONFIG;
    default:
      return BRIM_FAILURE_OTHER;
  }
}

//---------------------------------- opening ----------------------------------

static void close_work(planner *p) {
  brim_work_close(p->job.work);
  brim_config_close(p->job.config);
  p->job.work = NULL;
  p->job.config = NULL;
  p->job.memory.held = 0;
}

static void close_device(planner *p) {
  brim_device_close(p->job.device);
  p->job.device = NULL;
  p->spec[0] = '\0';
}

static double seconds_since(brim_time begin) {
  return (double)brim_time_since_ns(begin, brim_clock_now()) * 1e-9;
}

// Describes the GPU of the question, for the preset `auto`.
static void facts_of(const planner *p, const char *device, brim_device_info *info,
                     brim_config_facts *out) {
  const brim_backend *cuda = brim_registry_backend(p->job.registry, "cuda");
  const char *colon = strchr(device, ':');
  int64_t index = 0;
  int count = 0;
  memset(out, 0, sizeof *out);
  out->cpu_cores = brim_cpu_count();
  if (!brim_str_starts(device, "cuda") && strcmp(device, "auto") != 0) return;
  if (colon && !brim_parse_i64(colon + 1, &index)) return;
  if (!cuda || cuda->device_count(&count) || index < 0 || index >= count) return;
  if (cuda->device_info((int)index, info)) return;
  out->gpu_name = info->name;
  out->gpu_bytes = info->total_bytes;
}

static brim_status load(planner *p, const char *text, const char *device) {
  brim_device_info info;
  brim_config_facts facts;
  char override[96];
  const char *const overrides[] = {override};
  snprintf(override, sizeof override, "device=%s", device);
  facts_of(p, device, &info, &facts);
  const brim_config_options options = {.text = text,
                                       .text_name = "experiment",
                                       .no_include = true,
                                       .overrides = overrides,
                                       .override_count = 1,
                                       .facts = &facts};
  BRIM_TRY(brim_config_load(&options, &p->job.config));
  BRIM_TRY(brim_work_refuse_grid(p->job.config));
  if (p->plugins_loaded) return BRIM_OK;
  BRIM_TRY(brim_cli_job_plugins(p->cli, &p->job));
  p->plugins_loaded = true;
  return BRIM_OK;
}

static brim_status open_work(planner *p) {
  const char *spec;
  brim_device_options options;
  brim_cli_job *job = &p->job;
  BRIM_TRY(brim_work_device_spec(job->config, &spec));
  BRIM_TRY(brim_work_device_options(job->config, &options));
  if (job->device &&
      (strcmp(spec, p->spec) != 0 || memcmp(&options, &job->options, sizeof options) != 0)) {
    close_device(p);
  }
  if (!job->device) {
    const brim_time begin = brim_clock_now();
    job->options = options;
    BRIM_TRY(brim_cli_device_open(job, spec, &job->options, &job->memory, &job->device));
    snprintf(p->spec, sizeof p->spec, "%s", spec);
    p->device_s = seconds_since(begin);
  }
  const brim_work_context context = {.registry = job->registry, .device = job->device};
  return brim_work_open(&context, job->config, &job->work);
}

//---------------------------------- planning ----------------------------------

// The steps of an epoch, computed before the network is built.
static double epoch_steps(const brim_cli_job *job, const brim_work_info *info,
                          const brim_plan *plan) {
  if (info->steps_per_epoch > 0) return (double)info->steps_per_epoch;
  if (info->set_samples <= 0 || !(plan->samples_per_step > 0)) return (double)NAN;
  const double steps = (double)info->set_samples / plan->samples_per_step;
  return brim_config_bool(job->config, "data.drop_last") && steps >= 1 ? floor(steps) : ceil(steps);
}

static void count_steps(const brim_cli_job *job, const brim_plan *plan, brim_lab_plan *out) {
  brim_work_info info;
  memset(&info, 0, sizeof info);
  job->work->table->info(job->work->state, &info);
  const int64_t most = brim_config_int(job->config, "training.steps");
  out->epochs =
      (double)(info.epochs > 0 ? info.epochs : brim_config_int(job->config, "training.epochs"));
  out->steps = info.steps > 0 ? (double)info.steps : out->epochs * epoch_steps(job, &info, plan);
  if (most > 0 && !((double)most >= out->steps)) out->steps = (double)most;
  out->evaluates = info.eval_samples > 0;
}

static void take_result(const brim_cli_job *job, const brim_result *r, brim_lab_plan *out) {
  uint64_t free_bytes, total_bytes;
  out->failure = r->failure;
  snprintf(out->message, sizeof out->message, "%s", r->message);
  brim_utf8_trim(out->message);
  if (brim_device_memory(job->device, &free_bytes, &total_bytes) == BRIM_OK) {
    out->free = (double)free_bytes;
    out->total = (double)total_bytes;
  }
  brim_status_clear();
  if (r->plan.row_count == 0) return;
  out->planned_device = (double)r->plan.bytes[BRIM_PLACE_DEVICE];
  out->planned_host = (double)r->plan.bytes[BRIM_PLACE_HOST];
  out->overhead = r->overhead_bytes;
  out->samples_per_step = r->plan.samples_per_step;
  count_steps(job, &r->plan, out);
}

// Measures the time of a step, and of the start: building the network, choosing algorithms, the first slow steps.
static brim_status measure(brim_cli_job *job, const brim_setting *setting,
                           const brim_trial_options *how, brim_lab_plan *out) {
  const brim_time begin = brim_clock_now();
  brim_trial_options options = *how;
  brim_result r;
  brim_result_init(&r);
  options.steps = options.min_steps = MEASURED_STEPS;
  options.max_warmup = MEASURED_WARMUP;
  options.max_seconds = MEASURED_SECONDS;
  brim_status status = brim_trial_run(job->work, job->config, job->device, setting, &options, &r);
  if (!status && brim_result_ran(&r)) {
    out->step_s = r.total_ms.median / 1000;
    out->start_s = fmax(0, seconds_since(begin) - (double)r.steps * out->step_s);
    if (!isnan(r.overhead_bytes)) out->overhead = r.overhead_bytes;
  } else if (!status) {
    out->failure = r.failure;
    snprintf(out->message, sizeof out->message, "%s", r.message);
    brim_utf8_trim(out->message);
  }
  brim_result_deinit(&r);
  return status;
}

static brim_status plan(planner *p, const json_t *question, brim_lab_plan *out) {
  const char *text = json_string_value(json_object_get(question, "config"));
  brim_cli_job *job = &p->job;
  if (!text) return brim_fail(BRIM_EPARSE, "the question has no config");
  const brim_time begin = brim_clock_now();
  const bool opened = job->device != NULL;
  BRIM_TRY(load(p, text, out->device));
  BRIM_TRY(open_work(p));
  // Count the time to open the device even if this process has it open: every experiment opens it.
  const double open_s = seconds_since(begin) + (opened ? p->device_s : 0);
  snprintf(out->name, sizeof out->name, "%s", job->device->info.name);
  const brim_setting setting = brim_work_setting(job->work);
  const brim_trial_options how = {
      .memory_limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit"),
      .memory = &job->memory,
      .stop = p->cli->stop};
  brim_result r;
  brim_result_init(&r);
  brim_status status = brim_trial_plan(job->work, job->config, job->device, &setting, &how, &r);
  if (!status) take_result(job, &r, out);
  if (!status && out->failure == BRIM_FAILURE_OOM_PLANNED) {
    out->adapts = brim_run_adapts(job->work, job->config);
  }
  brim_result_deinit(&r);
  const bool measure_asked = json_is_true(json_object_get(question, "measure"));
  if (status || !measure_asked || out->failure != BRIM_FAILURE_NONE) return status;
  BRIM_TRY(measure(job, &setting, &how, out));
  out->start_s += p->ready_s + open_s;
  return BRIM_OK;
}

//---------------------------------- lines ----------------------------------

static void copy_text(const json_t *question, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(question, key));
  snprintf(out, size, "%s", text ? text : "");
}

static brim_status answer(planner *p, const char *line, size_t size) {
  json_t *question, *reply;
  brim_lab_plan out;
  brim_lab_plan_init(&out);
  brim_status status = brim_json_parse(line, size, "standard input", &question);
  if (!status) {
    copy_text(question, "id", out.id, sizeof out.id);
    copy_text(question, "device", out.device, sizeof out.device);
    if (!out.device[0]) snprintf(out.device, sizeof out.device, "auto");
    status = plan(p, question, &out);
    json_decref(question);
  }
  if (status == BRIM_EINTERRUPTED) return status;
  if (status) {
    out.failure = class_of(&p->job, status);
    snprintf(out.message, sizeof out.message, "%s", brim_status_detail());
    brim_utf8_trim(out.message);
    brim_status_clear();
  }
  close_work(p);
  // Do not use a crashed device again.
  if (out.failure == BRIM_FAILURE_CRASH) close_device(p);
  BRIM_TRY(brim_lab_plan_to_json(&out, &reply));
  return brim_cli_json(p->cli, reply);
}

static brim_status plan_action(brim_cli *cli) {
  planner p = {.cli = cli};
  char *line = NULL;
  size_t cap = 0;
  ssize_t size;
  const brim_time begin = brim_clock_now();
  brim_status status = brim_cli_registry(cli, &p.job.registry);
  p.ready_s = seconds_since(begin);
  while (!status && (size = getline(&line, &cap, stdin)) >= 0) {
    if (size > 1) status = answer(&p, line, (size_t)size);
    if (!status && fflush(stdout) != 0) status = BRIM_EEND;  // the sweep has ended
  }
  free(line);
  close_work(&p);
  brim_cli_job_close(&p.job);
  return status == BRIM_EEND ? BRIM_OK : status;
}

const brim_cli_verb brim_cli_sweep_child[] = {
    {"execute", execute_action},
    {"element", slurm_task_action},
    {"plan", plan_action},
    {NULL, NULL},
};
