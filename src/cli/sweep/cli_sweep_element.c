// `brim sweep element`, started by Slurm and not by people: one element of an array runs one experiment of
// the store, and ends. Its words:
//   place=   the store, as the link opens it; a database's URL comes whole in the environment (lab_exec.h)
//   folder=  of the sweep's experiments    array=  the array's name    worker=  its worker's name
//   device= lease_ms= beat_ms= grace_ms= stall_ms=    as in lab_exec.h; may be left out
//   trainer= a program to run instead of `brim train`; for tests
// Which experiment: SLURM_ARRAY_TASK_ID in FOLDER/slurm/ARRAY.json. Exit codes: 0 the experiment is done or
// there is nothing to do, 1 it failed, 75 it saved and Slurm runs the element again.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_exec.h"
#include "lab/lab_link.h"
#include "lab/lab_sweep.h"
#include "lab/slurm/lab_slurm.h"

enum {
  CALL_MS = 3000,
  AGAIN_MS = 200,
  LEASE_MS = 60000,
  EXTRA_MS = 15000,    // beyond the lease of an earlier attempt that is lost
  COMMAND_MS = 30000,  // of a command of Slurm
  MOST_WORDS = 40,
  RANK_WORDS = 6
};

typedef struct element {
  brim_cli *cli;
  const char *place, *folder, *array, *worker, *device, *trainer;
  int64_t lease_ms, beat_ms, grace_ms, stall_ms;
  const char *job, *task;  // as Slurm named them
  char node[65];
  brim_slurm_array is;
  const char *exp;
  brim_lab_link *link;
  char *url;  // the whole place of a database; NULL: it is a folder
} element;

//---------------------------------- words ----------------------------------

static bool take_word(element *e, const char *word) {
  return brim_cli_sweep_take_text(word, "place", &e->place) ||
         brim_cli_sweep_take_text(word, "folder", &e->folder) ||
         brim_cli_sweep_take_text(word, "array", &e->array) ||
         brim_cli_sweep_take_text(word, "worker", &e->worker) ||
         brim_cli_sweep_take_text(word, "device", &e->device) ||
         brim_cli_sweep_take_text(word, "trainer", &e->trainer) ||
         brim_cli_sweep_take_number(word, "lease_ms", &e->lease_ms) ||
         brim_cli_sweep_take_number(word, "beat_ms", &e->beat_ms) ||
         brim_cli_sweep_take_number(word, "grace_ms", &e->grace_ms) ||
         brim_cli_sweep_take_number(word, "stall_ms", &e->stall_ms);
}

static brim_status parse_words(element *e) {
  brim_cli *cli = e->cli;
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!take_word(e, word)) return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), word);
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

// *mine: the array is still the sweep's, and this element has an experiment in it.
static brim_status find_experiment(element *e, bool *mine) {
  int64_t task = -1;
  *mine = false;
  brim_status status = brim_slurm_array_read(e->folder, e->array, &e->is);
  if (status == BRIM_ENOENT) {  // the sweep took its submission for lost, or has ended
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  if (!brim_parse_i64(e->task, &task) || task < 0 || (size_t)task >= e->is.count) {
    return brim_fail(BRIM_EINVAL, "the array %s has no element %s", e->array, e->task);
  }
  e->exp = e->is.exps[task].id;
  *mine =
      (!e->is.job[0] || strcmp(e->is.job, e->job) == 0) && !e->is.exps[task].over && !e->is.stop;
  return BRIM_OK;
}

//---------------------------------- the store ----------------------------------

static brim_status open_link(element *e) {
  const char *whole = getenv(BRIM_LAB_PLACE_ENV);
  if (brim_store_is_url(e->place)) {
    e->url = brim_strdup(whole ? whole : e->place);
    if (!e->url) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  }
  const brim_store_options store = {.lease_ms = e->lease_ms};
  const brim_lab_link_options how = {.sweep_only = true, .timeout_ms = CALL_MS, .store = &store};
  const brim_time begin = brim_clock_now();
  for (;;) {
    brim_status status = brim_lab_link_open(e->url ? e->url : e->place, &how, &e->link);
    if (status != BRIM_EIO || *e->cli->stop) return status;
    if (brim_time_since_ns(begin, brim_clock_now()) > e->lease_ms * 1000000) {
      return brim_fail(BRIM_EIO, "no sweep answers at %s; brim sweep --engine slurm starts one",
                       e->place);
    }
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

typedef struct exp_now {
  brim_exp_state state;
  int64_t not_before;
} exp_now;

static brim_status on_exp(void *ctx, const brim_store_exp *exp) {
  exp_now *now = ctx;
  now->state = exp->state;
  now->not_before = exp->not_before;
  return BRIM_OK;
}

// With a database there may be no sweep now that ends leases.
static void end_leases(const element *e) {
  const brim_store_options how = {.lease_ms = e->lease_ms, .grace_ms = -1};
  brim_store *store = NULL;
  if (!e->url) return;
  if (!brim_store_open(e->url, &how, &store)) (void)brim_store_reap(store, NULL);
  brim_store_close(store);
  brim_status_clear();
}

// Whether it is worth while to ask again: an earlier attempt has a lease, or a pause is not over.
static brim_status may_come(element *e, bool *out) {
  exp_now now = {.state = BRIM_EXP_DONE};
  *out = false;
  BRIM_TRY(brim_lab_get(e->link, e->exp, on_exp, &now));
  *out =
      now.state == BRIM_EXP_QUEUED || now.state == BRIM_EXP_LEASED || now.state == BRIM_EXP_RUNNING;
  if (now.state == BRIM_EXP_LEASED || now.state == BRIM_EXP_RUNNING) end_leases(e);
  return BRIM_OK;
}

// The same claim until there is an answer. claimed->exp NULL: the experiment needs no run now.
static brim_status claim(element *e, brim_store_claimed *claimed) {
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
    if (!status) status = may_come(e, &later);
    if (status && status != BRIM_EIO) return status;
    bool over = brim_time_since_ns(begin, brim_clock_now()) > (e->lease_ms + EXTRA_MS) * 1000000;
    if (*e->cli->stop || over || (!status && !later)) return status;
    brim_status_clear();
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

//---------------------------------- the training ----------------------------------

typedef struct command_words {
  const char *list[MOST_WORDS];
  char text[RANK_WORDS][48];
  size_t count;
} command_words;

static void add(command_words *w, const char *word) {
  if (w->count < MOST_WORDS - 1) w->list[w->count++] = word;
}

static int64_t ranks_of(const element *e) {
  int64_t nodes = e->is.nodes > 1 ? e->is.nodes : 1, ranks = e->is.gpus > 1 ? e->is.gpus : 1;
  return ranks > nodes ? ranks : nodes;
}

// How ranks find each other: PMIx where srun has it, else what it has.
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

static void add_srun(const element *e, command_words *w) {
  const char *mpi = mpi_of();
  add(w, "srun");
  if (mpi) {
    snprintf(w->text[0], sizeof w->text[0], "--mpi=%s", mpi);
    add(w, w->text[0]);
  }
  snprintf(w->text[1], sizeof w->text[1], "--ntasks=%lld", (long long)ranks_of(e));
  add(w, w->text[1]);
  if (e->is.nodes > 1) {
    snprintf(w->text[2], sizeof w->text[2], "--nodes=%lld", (long long)e->is.nodes);
    add(w, w->text[2]);
  }
  add(w, "--kill-on-bad-exit=1");
}

static void add_plugins(const brim_cli *cli, command_words *w) {
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    add(w, "--plugin");
    add(w, item->values[0]);
  }
  if (brim_option_flag(&cli->parse, "allow-plugins", false)) add(w, "--allow-plugins");
}

// What Slurm gave to each task; 0 = it says nothing, or the config has a number of its own.
static int64_t threads_of(const element *e, const char *config) {
  const char *text = getenv("SLURM_CPUS_PER_TASK");
  int64_t n = 0;
  if (!text && ranks_of(e) == 1) text = getenv("SLURM_CPUS_ON_NODE");
  const char *own = strncmp(config, "threads:", 8) == 0 ? config : strstr(config, "\nthreads:");
  if (own && strtoll(strchr(own, ':') + 1, NULL, 10) > 0) return 0;
  return text && brim_parse_i64(text, &n) && n > 0 && n <= 4096 ? n : 0;
}

// A sweep that was started within a job hands these down; a training of one rank has none.
static const char *const no_ranks[] = {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS",
                                       "SLURM_NTASKS",  "SLURM_NPROCS", NULL};

static brim_status execute(element *e, const brim_store_claimed *claimed, const char *self,
                           brim_lab_exec_report *report) {
  const bool ranks = ranks_of(e) > 1;
  command_words *w = brim_calloc(1, sizeof *w);
  brim_str folder;
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  if (ranks) add_srun(e, w);
  add(w, e->trainer ? e->trainer : self);
  if (!e->trainer) add(w, "train");
  if (!e->trainer) add_plugins(e->cli, w);
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
      // srun ends its tasks on SIGTERM; other signals it passes on
      .stop_signal = ranks ? SIGUSR2 : 0,
      .stop = e->cli->stop};
  if (!status) status = brim_lab_execute(&options, report);
  brim_str_deinit(&folder);
  brim_free(w);
  return status;
}

//---------------------------------- after ----------------------------------

typedef struct own_state {
  const element *e;
  brim_slurm_state state;
} own_state;

static void on_own(void *ctx, const brim_slurm_row *row) {
  own_state *own = ctx;
  if (strcmp(row->job, own->e->job) == 0 && row->index == strtoll(own->e->task, NULL, 10)) {
    own->state = strcmp(row->word, "RUNNING") == 0 ? BRIM_SLURM_RUNNING : BRIM_SLURM_UNKNOWN;
  }
}

// Slurm may have a reason of its own to end the element: scancel, or it queues the element again on its own.
static bool is_running(const element *e) {
  own_state own = {e, BRIM_SLURM_UNKNOWN};
  const char *names[] = {e->array};
  brim_slurm_words words = {0};
  brim_slurm_command look = {0};
  brim_slurm_words_look(names, 1, &words);
  if (brim_slurm_run(&words, COMMAND_MS, &look)) brim_status_clear();
  if (brim_slurm_good(&look)) {
    (void)brim_slurm_rows(look.out.data ? look.out.data : "", false, on_own, &own);
  }
  brim_slurm_close(&look);
  return own.state == BRIM_SLURM_RUNNING;
}

// By the array's number and the element's own, which stay the same however often it is queued.
static brim_status requeue(element *e) {
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

static brim_status run(element *e) {
  bool mine = false;
  char *self = NULL;
  brim_store_claimed claimed = {0};
  brim_lab_exec_report report = {0};
  BRIM_TRY(find_experiment(e, &mine));
  if (!mine) return BRIM_OK;
  BRIM_TRY(open_link(e));
  unsetenv(BRIM_LAB_PLACE_ENV);  // the link has its copy, and a training needs none
  BRIM_TRY(claim(e, &claimed));
  if (!claimed.exp) return *e->cli->stop ? requeue(e) : BRIM_OK;
  brim_status status = brim_fs_exe(&self);
  if (!status) status = execute(e, &claimed, self, &report);
  brim_free(self);
  brim_store_exp_free(claimed.exp);
  BRIM_TRY(status);
  if (report.end == BRIM_LAB_EXEC_STALE || report.outcome == BRIM_ATTEMPT_OK) return BRIM_OK;
  if (report.outcome == BRIM_ATTEMPT_STOPPED && *e->cli->stop) return requeue(e);
  if (report.outcome == BRIM_ATTEMPT_STOPPED) return BRIM_OK;  // by the user's wish
  return brim_fail(BRIM_ECHILD, "%s: %s", brim_failure_name(report.failure), report.message);
}

brim_status brim_cli_sweep_element(brim_cli *cli) {
  element e = {.cli = cli};
  // preemption signals more than once, and the training must save all the same
  brim_cli_interrupt_set(BRIM_CLI_SAVES_ALWAYS);
  brim_status status = parse_words(&e);
  if (!status) status = run(&e);
  brim_lab_link_close(e.link);
  brim_slurm_array_deinit(&e.is);
  brim_free(e.url);
  return status;
}
