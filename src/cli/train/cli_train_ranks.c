// Ranks of `brim train`: how many the config asks for, which one this process is, the reason of a failure
// (printed once for all of them). cli_train_launch.c starts the processes.
#include "cli/train/cli_train_ranks.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
