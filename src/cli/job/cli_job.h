// A job: what train, bench and others work on. Overrides of the command line, the config, plug-ins, the device and the
// workload are opened in this order and closed together. Also option rows and reports that these commands share.
#ifndef BRIM_CLI_JOB_H_
#define BRIM_CLI_JOB_H_

#include "cli/cli.h"
#include "config/config.h"
#include "measure/measure.h"
#include "run/run.h"
#include "workload/workload.h"

// The config file and the overrides "key=value" of the command line.
typedef struct brim_cli_input {
  const char *word;  // the word that names the config; NULL = none
  const char *path;  // config file; NULL = defaults only
  char *found_path;  // owned; set if the config was found by name
  char **overrides;
  size_t count, cap;
} brim_cli_input;
// Reads the positional words from `first` on, without options.
brim_status brim_cli_input_words(brim_cli *cli, size_t first, brim_cli_input *input);
// Reads options with a key, and the words from `first` on, which must be key=value.
brim_status brim_cli_input_rest(brim_cli *cli, size_t first, brim_cli_input *input);
void brim_cli_input_deinit(brim_cli_input *input);
// If `key` is in the section of another workload, writes the key of the same name in the section of
// `workload` to `out`. False if `key` is in no such section, or `workload` has no such key.
bool brim_cli_workload_key(const char *key, const char *workload, char out[64]);
brim_status brim_cli_input_add(brim_cli_input *input, const char *fmt, ...) BRIM_PRINTF(2, 3);

//---------------------------------- the job ----------------------------------

typedef struct brim_cli_job {
  brim_cli_input input;
  brim_registry *registry;
  brim_config *config;
  brim_device_options options;  // of the open device
  brim_device *device;
  brim_work *work;
  brim_ranks *ranks;  // borrowed; NULL if this process is no rank of several
  char no_nccl_reason
      [256];  // why ranks do not exchange gradients over NCCL; "" = they do, or need not
  brim_gpu_monitor *monitor;  // NULL without a GPU or without NVML
  brim_memory_watch memory;   // idle on a CPU
  bool any_device;            // the config says auto: brim chose the device
  bool absent;                // this machine has no such device, driver or plug-in
  bool evaluates;             // the command only evaluates: it does not train
  bool on_first;              // of a list of devices, open the first
} brim_cli_job;

// Opens a registry with the default plug-ins and those of --plugin.
brim_status brim_cli_registry(brim_cli *cli, brim_registry **out);
// Describes the first GPU of this machine, for the preset `auto`. `out` points to the name in `info`.
void brim_cli_gpu_facts(const brim_registry *registry, brim_device_info *info,
                        brim_config_facts *out);
// Loads the config of `options`, whose overrides are those of `input`. Moves overrides to the section of the config's
// workload. Reports a bad value of an option by the option's name.
brim_status brim_cli_load_config(brim_cli *cli, const brim_config_options *options,
                                 brim_cli_input *input, brim_config **out);
// Reads input, plug-ins and config. Logs warnings of the config; refuses a grid.
brim_status brim_cli_job_config(brim_cli *cli, brim_cli_job *job);
// Reads input and config of a grid. Loads no plug-in, so no GPU is opened.
brim_status brim_cli_grid_config(brim_cli *cli, const brim_config_facts *facts, brim_cli_job *job);
// Opens device and workload. Watches the memory of a GPU from before it is opened.
brim_status brim_cli_job_open(brim_cli *cli, brim_cli_job *job);
// Opens one more device. `watch` watches its memory. Opens the monitor of the job if it is not open.
brim_status brim_cli_device_open(brim_cli_job *job, const char *spec,
                                 const brim_device_options *options, brim_memory_watch *watch,
                                 brim_device **out);
// The failure class of BRIM_EDEVICE: UNSUPPORTED if this machine has no such device, driver or plug-in, so that a retry
// cannot help; INFRASTRUCTURE if the device failed.
brim_failure brim_cli_device_class(const brim_cli_job *job);
int brim_cli_job_gpus(const brim_cli_job *job);  // GPUs that this process can use
// Opens device and workload again, after the device crashed.
brim_status brim_cli_job_reopen(brim_cli *cli, brim_cli_job *job);
// Loads the plug-ins that the config names; BRIM_EINVAL if the user has not allowed one.
brim_status brim_cli_job_plugins(const brim_cli *cli, brim_cli_job *job);
// The name of the run, for brim_free: the config's `name`, else "grid" for "configs/grid.yaml", else the workload's. It
// becomes a folder, so control characters are BRIM_EINVAL.
brim_status brim_cli_job_name(const brim_cli_job *job, char **out);
// output_dir of the config; NULL for "runs" (the default, which resolved configs contain): the command
// then chooses a folder in runs.
const char *brim_cli_job_output_dir(const brim_cli_job *job);
// The output folder of `brim train`, for brim_free: output_dir if given, else runs/NAME.
brim_status brim_cli_job_run_dir(const brim_cli_job *job, char **out);
// The output folder of `brim bench`: output_dir if given, else runs/bench.
const char *brim_cli_job_bench_dir(const brim_cli_job *job);
// An existing folder on the disk of this job's checkpoints.
const char *brim_cli_job_checkpoint_disk(const brim_cli_job *job);
// brim_cli_check_outputs for a command that reads the job's config, data and weights.
brim_status brim_cli_job_check_outputs(brim_cli *cli, const brim_cli_job *job,
                                       const char *const *written, size_t count);
void brim_cli_job_close(brim_cli_job *job);
// "cpu: Neoverse-V1, 2 threads (oneDNN 2.6.3)"
void brim_cli_device_text(const brim_device *device, char *out, size_t size);
// "ref (slow), because ..." if brim chose the slow reference backend; else false.
bool brim_cli_backend_text(const brim_cli_job *job, char *out, size_t size);
// The overhead of a GPU: "512 MiB (CUDA context, libraries)", or "measured after warm-up" if it is NaN.
void brim_cli_overhead_text(double bytes, char *out, size_t size);

// Device bytes that a plan may use, by gpu.memory_limit and gpu.memory_fraction; 0 = no limit.
uint64_t brim_cli_memory_limit(const brim_cli_job *job);
// Options for measuring the ceilings of the job's device.
brim_machine_options brim_cli_machine_options(const brim_cli *cli, const brim_cli_job *job);
// The text that explains slow copies from pageable memory; NULL on a CPU, which does not copy.
const char *brim_cli_pageable_text(const brim_device *device);

//---------------------------------- option rows ----------------------------------

extern const char *const brim_cli_precisions[];
extern const char *const brim_cli_backends[];
extern const char *const brim_cli_bool_words[];
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

#endif  // BRIM_CLI_JOB_H_
