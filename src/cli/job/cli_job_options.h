// Rows of options that several commands have, for their option tables, and the values they take.
#ifndef BRIM_CLI_JOB_OPTIONS_H_
#define BRIM_CLI_JOB_OPTIONS_H_

#include "base/base_msg.h"
#include "base/base_option.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const brim_cli_precisions[];
extern const char *const brim_cli_backends[];
extern const char *const brim_cli_truths[];
extern const char *const brim_cli_resume_words[];
extern const char *const brim_cli_workers_aliases[];

#define BRIM_CLI_OPTION_CONFIG                                          \
  {                                                                     \
    .name = "config", .kind = BRIM_OPTION_STRING, .metavar = "FILE",    \
    .help = BRIM_N_("config file (same as naming it without --config)") \
  }
#define BRIM_CLI_OPTION_DATA_PATH                                       \
  {                                                                     \
    .name = "data-path", .kind = BRIM_OPTION_STRING, .metavar = "PATH", \
    .help = BRIM_N_("data file or folder"), .key = "data.path"          \
  }
#define BRIM_CLI_OPTION_ALLOW_EXTERNAL                                                             \
  {                                                                                                \
    .name = "allow-external", .help = BRIM_N_("read data that an HDF5 file keeps in other files"), \
    .key = "data.allow_external"                                                                   \
  }
#define BRIM_CLI_OPTION_DEVICE                                          \
  {                                                                     \
    .name = "device", .kind = BRIM_OPTION_STRING, .metavar = "DEV",     \
    .help = BRIM_N_("auto, cpu, cuda, cuda:N or ref"), .key = "device", \
    .group = BRIM_N_("Machine")                                         \
  }
#define BRIM_CLI_OPTION_BACKEND                                                         \
  {                                                                                     \
    .name = "backend", .kind = BRIM_OPTION_ENUM, .metavar = "B",                        \
    .help = BRIM_N_("compute backend"), .key = "backend", .choices = brim_cli_backends, \
    .group = BRIM_N_("Machine")                                                         \
  }
#define BRIM_CLI_OPTION_THREADS                                                     \
  {                                                                                 \
    .name = "threads", .kind = BRIM_OPTION_INT,                                     \
    .help = BRIM_N_("CPU threads for computing (0 = all cores)"), .key = "threads", \
    .group = BRIM_N_("Machine")                                                     \
  }

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_JOB_OPTIONS_H_
