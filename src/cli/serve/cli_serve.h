// Shared by `brim serve` and `brim worker`.
#ifndef BRIM_CLI_SERVE_H_
#define BRIM_CLI_SERVE_H_

#include "cli/cli.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/http/lab_http_pin.h"
#include "lab/pool/lab_pool.h"

// Replaces the file by a new one that only its owner can read.
brim_status brim_cli_write_private(const char *path, const char *text);

// Option rows of both commands: how a worker checks the server, and the devices that it uses.
#define BRIM_CLI_WORKER_TRUST(heading)                                                  \
  {.name = "token-file",                                                                \
   .kind = BRIM_OPTION_STRING,                                                          \
   .metavar = "FILE",                                                                   \
   .help = BRIM_N_("file with the token (default: the variable BRIM_TOKEN)"),           \
   .group = (heading)},                                                                 \
      {.name = "ca",                                                                    \
       .kind = BRIM_OPTION_STRING,                                                      \
       .metavar = "FILE",                                                               \
       .help = BRIM_N_("certificate that the server's is checked against, PEM"),        \
       .group = (heading)},                                                             \
  {                                                                                     \
    .name = "pin", .kind = BRIM_OPTION_STRING, .metavar = "KEY",                        \
    .help = BRIM_N_("hash of the server's public key: sha256//..."), .group = (heading) \
  }
#define BRIM_CLI_WORKER_MACHINE                                                         \
  {.name = "device",                                                                    \
   .kind = BRIM_OPTION_STRING,                                                          \
   .metavar = "DEV",                                                                    \
   .help = BRIM_N_("where experiments may run: auto, cpu, cuda, 0 or 0,1"),             \
   .group = BRIM_N_("Machine")},                                                        \
      {.name = "jobs",                                                                  \
       .kind = BRIM_OPTION_INT,                                                         \
       .help = BRIM_N_("experiments that run at the same time on the CPU"),             \
       .default_text = "1",                                                             \
       .group = BRIM_N_("Machine")},                                                    \
      {.name = "share",                                                                 \
       .help = BRIM_N_("also use GPUs that other programs use"),                        \
       .group = BRIM_N_("Machine")},                                                    \
      {.name = "mps",                                                                   \
       .help = BRIM_N_("experiments that share a GPU compute at once, by NVIDIA MPS"),  \
       .negatable = true,                                                               \
       .default_text = "on",                                                            \
       .group = BRIM_N_("Machine")},                                                    \
  {                                                                                     \
    .name = "stall", .kind = BRIM_OPTION_FLOAT, .metavar = "S",                         \
    .help = BRIM_N_("seconds without progress before a training is ended (0 = never)"), \
    .default_text = "600", .group = BRIM_N_("Machine")                                  \
  }

#endif  // BRIM_CLI_SERVE_H_
