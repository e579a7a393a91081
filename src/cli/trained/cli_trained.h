// What eval, predict and export share: a checkpoint, the config that comes out of it, the device, and
// the data it is used on.
#ifndef BRIM_CLI_TRAINED_H_
#define BRIM_CLI_TRAINED_H_

#include "cli/job/cli_job.h"
#include "workload/learn/learn_trained.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cli_trained {
  brim_cli *cli;
  brim_cli_job job;  // registry, config and device; its workload stays closed
  brim_trained *trained;
  brim_trained_data data;
  bool path_given;  // data.path was given on the command line
  bool warned;      // the warnings of a config file were reported
  char *lost;  // where the run had its data, and there are none; NULL = they were not looked for
  const char *output;     // --output; NULL = none
  bool ema;               // averaged weights are used
  const char *precision;  // that outputs are computed in; NULL = there is no choice
  // Of what is being done, for the progress line.
  const char *title;
  brim_time start;
  int64_t done;
} brim_cli_trained;

// The checkpoint named first, its config with everything else on the command line laid over it. No
// device, no data yet.
brim_status brim_cli_trained_init(brim_cli *cli, brim_cli_trained *c);
void brim_cli_trained_deinit(brim_cli_trained *c);
// Where to write: --output, else `standard`. "-" is the standard output. BRIM_EEXIST where the file is
// there and --force was not given.
brim_status brim_cli_trained_output(brim_cli_trained *c, const char *standard);
// Whose checkpoint it is: by its name, else by its tensors; NULL = of none that this program has.
const brim_workload_table *brim_cli_trained_table(const brim_trained *t);
// Is what was trained computed from samples of data?
bool brim_cli_trained_takes_samples(const brim_trained *t);
// Can `brim render` show it?
bool brim_cli_trained_can_be_shown(const brim_trained *t);
// "an ars policy"
void brim_cli_trained_what(const brim_trained *t, char *out, size_t size);
// One more override, whose text is taken as it is.
brim_status brim_cli_trained_set(brim_cli_trained *c, const char *key, const char *text);
brim_status brim_cli_trained_set_int(brim_cli_trained *c, const char *key, int64_t value);
// Of a status that says there is no data.path: where the run had its data, and what to give instead.
brim_status brim_cli_trained_lost(const brim_cli_trained *c, brim_status status);
// The set; and the device.
brim_status brim_cli_trained_data(brim_cli_trained *c, const brim_trained_want *want);
brim_status brim_cli_trained_device(brim_cli_trained *c);
// --batch-size; 0 = it was not given.
brim_status brim_cli_trained_batch(brim_cli_trained *c, int64_t *out);
// All samples through the network; `fn` gets the outputs.
brim_status brim_cli_trained_run(brim_cli_trained *c, const char *title, brim_trained_fn fn,
                                 void *ctx, brim_trained_result *out);
// Progress of `rows` more.
void brim_cli_trained_tick(brim_cli_trained *c, int64_t rows);

// Things to show. "resnet18, 11.2 M parameters, after epoch 12 (step 4680)"; "d.h5, test: 50 samples".
brim_status brim_cli_trained_model_text(const brim_cli_trained *c, brim_str *out);
void brim_cli_trained_data_text(const brim_cli_trained *c, brim_str *out);
// Device, precision and, where it is a slow choice, the backend: a row each.
void brim_cli_trained_machine(const brim_cli_trained *c, brim_str *out);
// "  label      value" as train's banner has it.
void brim_cli_trained_row(const brim_cli_trained *c, const char *label, const char *value,
                          brim_str *out);
// The name of a class, or its number in `text`.
const char *brim_cli_trained_class(const brim_cli_trained *c, int64_t index, char text[32]);
// What people may want to know of how the data were taken, to stderr.
void brim_cli_trained_notes(const brim_cli_trained *c);
// checkpoint, workload, step, model, data and split into an event or a file.
brim_status brim_cli_trained_json(const brim_cli_trained *c, json_t *out);

// Options that all three (1), or eval and predict (2), have: rows to be put into their tables.
#define BRIM_CLI_TRAINED_OPTIONS                                                   \
  {.name = "config",                                                               \
   .kind = BRIM_OPTION_STRING,                                                     \
   .metavar = "FILE",                                                              \
   .help = BRIM_N_("config of the run, for a checkpoint without its own config")}, \
      {.name = "data-path",                                                        \
       .kind = BRIM_OPTION_STRING,                                                 \
       .metavar = "PATH",                                                          \
       .help = BRIM_N_("data file or folder"),                                     \
       .key = "data.path"},                                                        \
      {.name = "allow-external",                                                   \
       .help = BRIM_N_("read data that an HDF5 file keeps in other files"),        \
       .key = "data.allow_external"},                                              \
  {                                                                                \
    .name = "ema", .kind = BRIM_OPTION_ENUM, .metavar = "V",                       \
    .help = BRIM_N_("use averaged weights; auto = if the checkpoint has them"),    \
    .default_text = "auto", .choices = brim_cli_trained_ema                        \
  }
#define BRIM_CLI_TRAINED_RUN_OPTIONS                                                 \
  {.name = "split",                                                                  \
   .kind = BRIM_OPTION_ENUM,                                                         \
   .metavar = "S",                                                                   \
   .help = BRIM_N_("split of the data to use"),                                      \
   .choices = brim_cli_trained_splits},                                              \
      {.name = "batch-size",                                                         \
       .kind = BRIM_OPTION_INT,                                                      \
       .help = BRIM_N_("samples per batch (default: as in training, at most 256)")}, \
      {.name = "precision",                                                          \
       .kind = BRIM_OPTION_ENUM,                                                     \
       .metavar = "P",                                                               \
       .help = BRIM_N_("compute precision"),                                         \
       .default_text = "fp32",                                                       \
       .choices = brim_cli_trained_precisions},                                      \
      {.name = "num-workers",                                                        \
       .kind = BRIM_OPTION_INT,                                                      \
       .help = BRIM_N_("data-loader threads (0 = load in the main thread)"),         \
       .key = "data.num_workers"},                                                   \
      {.name = "device",                                                             \
       .kind = BRIM_OPTION_STRING,                                                   \
       .metavar = "DEV",                                                             \
       .help = BRIM_N_("auto, cpu, cuda, cuda:N or ref"),                            \
       .key = "device",                                                              \
       .group = BRIM_N_("Machine")},                                                 \
  {                                                                                  \
    .name = "threads", .kind = BRIM_OPTION_INT,                                      \
    .help = BRIM_N_("CPU threads for computing (0 = all cores)"), .key = "threads",  \
    .group = BRIM_N_("Machine")                                                      \
  }
extern const char *const brim_cli_trained_ema[], *const brim_cli_trained_splits[],
                                                     *const brim_cli_trained_precisions[];

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TRAINED_H_
