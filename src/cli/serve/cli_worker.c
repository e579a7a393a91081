// `brim worker` and `brim serve --client-only`: takes experiments from a server and runs them on this machine.
#include <stdlib.h>
#include <string.h>

#include "cli/serve/cli_serve.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_link.h"

static const brim_option options[] = {
    {.name = "url",
     .kind = BRIM_OPTION_STRING,
     .metavar = "URL",
     .help = BRIM_N_("address of the server: https://server:8000")},
    {.name = "client-only", .help = BRIM_N_("accepted, and without effect: a worker is one")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for the files of the experiments"),
     .default_text = "runs/worker"},
    BRIM_CLI_WORKER_TRUST(BRIM_N_("Network")),
    {.name = "insecure",
     .help = BRIM_N_("connect without TLS: others on the way can read along"),
     .group = BRIM_N_("Network")},
    BRIM_CLI_WORKER_MACHINE,
    {0},
};

// Executors are other processes and read these from the environment.
static brim_status set_variables(brim_cli *cli) {
  const char *ca = brim_option_string(&cli->parse, "ca", NULL);
  const char *pin = brim_option_string(&cli->parse, "pin", NULL);
  const char *file = brim_option_string(&cli->parse, "token-file", NULL);
  if (ca) setenv(BRIM_LAB_CA_ENV, ca, 1);
  if (pin) setenv(BRIM_LAB_PIN_ENV, pin, 1);
  if (brim_option_flag(&cli->parse, "insecure", false)) setenv(BRIM_LAB_INSECURE_ENV, "1", 1);
  if (!file) return BRIM_OK;
  brim_cli_warn_readable(file);
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(file, 4096, &text, &size));
  text[strcspn(text, "\r\n")] = '\0';
  setenv(BRIM_LAB_TOKEN_ENV, text, 1);
  brim_free(text);
  return BRIM_OK;
}

enum { AGAIN_MS = 500, AGAIN_MOST_MS = 30000, STOP_MS = 100 };

// Waits for the server: after a power failure workers and server start in any order.
static brim_status open_patiently(brim_cli_sweep_job *j, brim_lab_sweep **out) {
  for (int64_t wait = AGAIN_MS;; wait = 2 * wait < AGAIN_MOST_MS ? 2 * wait : AGAIN_MOST_MS) {
    brim_status status = brim_cli_sweep_open(j, out);
    if (status != BRIM_EIO) return status;
    if (wait == AGAIN_MS) {
      brim_cli_note(j->cli, brim_tr("cannot reach the server; brim tries again: %s\n"),
                    brim_status_detail());
    }
    brim_status_clear();
    for (int64_t waited = 0; waited < wait; waited += STOP_MS) {
      if (*j->cli->stop) {
        return brim_fail(BRIM_EINTERRUPTED, "stopped before the server answered");
      }
      brim_clock_sleep_ns((int64_t)STOP_MS * 1000000);
    }
  }
}

static brim_status work(brim_cli_sweep_job *j) {
  brim_lab_sweep *sweep = NULL;
  BRIM_TRY(open_patiently(j, &sweep));
  j->cli->running = true;
  brim_status status = brim_cli_sweep_watch(j, sweep);
  brim_lab_sweep_close(sweep);
  return status;
}

brim_status brim_cli_worker_run(brim_cli *cli) {
  brim_cli_sweep_job j = {.cli = cli, .worker = true, .only_continue = true};
  const char *url = brim_option_string(&cli->parse, "url", NULL);
  const char *folder = brim_option_string(&cli->parse, "output-dir", "runs/worker");
  if (cli->parse.positional_count > 0) {
    return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), cli->parse.positional[0]);
  }
  if (!url) return brim_cli_usage(cli, BRIM_N_("name the server with --url"));
  if (!brim_lab_is_server(url)) {
    return brim_cli_usage(
        cli, BRIM_N_("%s is no address of a server; it looks like https://server:8000"), url);
  }
  BRIM_TRY(brim_cli_sweep_check(cli));
  BRIM_TRY(set_variables(cli));
  if (brim_gpu_monitor_open(&j.monitor)) brim_status_clear();
  j.place = brim_strdup(url);
  j.shown = brim_strdup(url);
  j.folder = brim_strdup(folder);
  j.name = brim_strdup(brim_fs_basename(folder));
  brim_status status = j.place && j.shown && j.folder && j.name
                           ? work(&j)
                           : brim_fail(BRIM_ENOMEM, "out of memory while starting a worker");
  brim_gpu_monitor_close(j.monitor);
  brim_free(j.name);
  brim_free(j.folder);
  brim_free(j.shown);
  brim_free(j.place);
  return status;
}

const brim_cli_command brim_cli_worker = {
    .name = "worker",
    .summary = BRIM_N_("run experiments that a server hands out"),
    .usage = "--url URL [--device DEV] [--output-dir DIR]",
    .about = BRIM_N_(
        "worker joins the pool of a brim serve and runs its experiments on this machine: one per "
        "GPU, or --jobs of them on the CPU. It may leave at any time: Ctrl-C stops the trainings "
        "at a checkpoint, and the server gives what is left to others. While the "
        "server cannot be reached, trainings continue and their results are kept."),
    .examples = BRIM_N_(
        "join a pool\nbrim worker --url https://server:8000 --token-file token.txt\nuse two GPUs "
        "only\nbrim worker --url https://server:8000 --device 0,1\n"),
    .options = options,
    .run = brim_cli_worker_run,
    .interrupt = BRIM_CLI_SAVES,
};
