// What train and bench share: overrides from the command line, the config, plug-ins, the device and
// the workload, opened in that order and closed together.
#ifndef BRIM_CLI_JOB_H_
#define BRIM_CLI_JOB_H_

#include "cli/cli.h"
#include "config/config.h"
#include "measure/measure.h"
#include "run/run.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

// Overrides "key=value" and the config file, as the command line gives them.
typedef struct brim_cli_input {
  const char *word;  // that named the config; NULL = none did
  const char *path;  // config file; NULL = defaults alone
  char *found;       // owned, when it was found among the installed configs
  char **overrides;
  size_t count, cap;
} brim_cli_input;
// The same from positional words first..end only.
brim_status brim_cli_input_words(brim_cli *cli, size_t first, brim_cli_input *input);
// Options with a key, and words first..end, all of which have to be key=value.
brim_status brim_cli_input_rest(brim_cli *cli, size_t first, brim_cli_input *input);
void brim_cli_input_deinit(brim_cli_input *input);
// The key of the same name that a workload has in its own section, of a key in another workload's; false
// where the key is none of another workload, or this one has no such key.
bool brim_cli_own_key(const char *key, const char *workload, char out[64]);
brim_status brim_cli_input_add(brim_cli_input *input, const char *fmt, ...) BRIM_PRINTF(2, 3);
// What has to follow "brim train" or "brim bench" to name the same job: the config, all overrides and
// plug-ins, in quotes where a shell needs them.
brim_status brim_cli_input_text(const brim_cli *cli, const brim_cli_input *input, brim_str *out);

//---------------------------------- the job ----------------------------------

typedef struct brim_cli_job {
  brim_cli_input input;
  brim_registry *registry;
  brim_config *config;
  brim_device_options options;  // that it was opened with
  brim_device *device;
  brim_work *work;
  brim_ranks *ranks;   // borrowed, of a command that runs as one of several; NULL = it does not
  char exchange[256];  // why they do not exchange by the GPU's own means; "" = they do, or need not
  brim_gpu_monitor *monitor;  // NULL without a GPU or without NVML
  brim_memory_watch memory;   // idle on a CPU
  bool any_device;            // brim chose the device: the config says auto
  bool absent;                // this machine has no such device, driver or plug-in
  bool evaluates;             // no training follows
  bool on_first;  // the command makes use of a list of devices: the job is opened on the first
} brim_cli_job;

// A registry with the default plug-ins and those of --plugin.
brim_status brim_cli_registry(brim_cli *cli, brim_registry **out);
// The first GPU that is here, for the preset `auto`; `info` keeps its name.
void brim_cli_facts(const brim_registry *registry, brim_device_info *info, brim_config_facts *out);
// The config of `options`, whose overrides are those of `input`: with the keys of its own workload. What is
// wrong with the value of an option is reported by the option's name.
brim_status brim_cli_load_config(brim_cli *cli, const brim_config_options *options,
                                 brim_cli_input *input, brim_config **out);
// Input, plug-ins, config. Warnings of the config are logged; a grid is refused.
brim_status brim_cli_job_config(brim_cli *cli, brim_cli_job *job);
// Input and config of a grid. Loads no plug-in, so that no GPU is opened.
brim_status brim_cli_grid_config(brim_cli *cli, const brim_config_facts *facts, brim_cli_job *job);
// Device and workload; the memory of a GPU is watched from before it is opened.
brim_status brim_cli_job_open(brim_cli *cli, brim_cli_job *job);
// One more device, with its own watch; the monitor is the job's.
brim_status brim_cli_device_open(brim_cli_job *job, const char *spec,
                                 const brim_device_options *options, brim_memory_watch *watch,
                                 brim_device **out);
// The failure of a status of BRIM_EDEVICE: UNSUPPORTED where this machine has no such device, driver or
// plug-in, which another attempt does not change; INFRASTRUCTURE where the device fails.
brim_failure brim_cli_device_class(const brim_cli_job *job);
int brim_cli_job_gpus(const brim_cli_job *job);  // that this process sees
// Both again, after the device crashed.
brim_status brim_cli_job_reopen(brim_cli *cli, brim_cli_job *job);
// Loads the plug-ins that the config names; BRIM_EINVAL where the user has not agreed to one.
brim_status brim_cli_job_plugins(const brim_cli *cli, brim_cli_job *job);
// The name of the run, for brim_free: the config's `name`, else "grid" of "configs/grid.yaml", else
// the workload's. It becomes a folder: one with control characters is BRIM_EINVAL.
brim_status brim_cli_job_name(const brim_cli_job *job, char **out);
// output_dir when the config gives another than the default "runs" (which a resolved config spells
// out), else NULL: the command then chooses a folder below runs.
const char *brim_cli_job_output_dir(const brim_cli_job *job);
// The folder that `brim train` writes to, for brim_free: output_dir when it is given, else runs/NAME.
brim_status brim_cli_job_run_dir(const brim_cli_job *job, char **out);
// The folder of a sweep's records, report and best.yaml: output_dir when it is given, else runs/bench.
const char *brim_cli_job_bench_dir(const brim_cli_job *job);
// A folder that is there, on the disk that checkpoints of this job would go to.
const char *brim_cli_job_saves_in(const brim_cli_job *job);
// brim_cli_check_outputs with what every job reads: its config, data and weights.
brim_status brim_cli_job_check_outputs(brim_cli *cli, const brim_cli_job *job,
                                       const char *const *written, size_t count);
void brim_cli_job_close(brim_cli_job *job);
// "cpu: Neoverse-V1, 2 threads (oneDNN 2.6.3)"
void brim_cli_device_text(const brim_device *device, char *out, size_t size);
// Where brim chose the slow reference backend: "ref (slow), because ..."; else false.
bool brim_cli_backend_text(const brim_cli_job *job, char *out, size_t size);
// The overhead of a GPU: "512 MiB (CUDA context, libraries)", "measured after warm-up" when it is
// NaN.
void brim_cli_overhead_text(double bytes, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_JOB_H_
