// Shared by eval, predict, export and render: a checkpoint, its config, the device, and the data.
#ifndef BRIM_CLI_TRAINED_H_
#define BRIM_CLI_TRAINED_H_

#include "cli/job/cli_job.h"
#include "workload/learn/learn_trained.h"

typedef struct brim_cli_trained {
  brim_cli *cli;
  brim_cli_job job;  // job.work is open only if the workload runs its own evaluation
  brim_trained *trained;
  brim_trained_data data;
  bool path_given;        // data.path was given on the command line
  bool warned;            // the warnings of a config file were reported
  char *lost_data_path;   // the data path of the run if it does not exist any more; else NULL
  const char *output;     // --output; NULL = none
  bool ema;               // use averaged weights
  const char *precision;  // compute precision of the outputs; NULL = not shown
  const char *title;      // title of the progress line
  brim_time start;
  int64_t done;  // finished rows, for the progress line
} brim_cli_trained;

// Opens the checkpoint that the first word names, and its config with the overrides of the command line. Does not open
// the device or the data.
brim_status brim_cli_trained_init(brim_cli *cli, brim_cli_trained *c);
void brim_cli_trained_deinit(brim_cli_trained *c);
// Sets the output to --output, else to the path `standard`. "-" means stdout. BRIM_EEXIST if the file exists and
// --force is missing.
brim_status brim_cli_trained_output(brim_cli_trained *c, const char *standard);
// Finds the workload of a checkpoint by the name stored in it, or by its tensors if no name is stored. NULL if this
// program has no such workload.
const brim_workload_table *brim_cli_trained_table(const brim_trained *t);
// Does the model take samples of data?
bool brim_cli_trained_takes_samples(const brim_trained *t);
// Can `brim render` show the model?
bool brim_cli_trained_can_be_shown(const brim_trained *t);
// A text such as "an ars policy".
void brim_cli_trained_describe(const brim_trained *t, char *out, size_t size);
// Adds an override and reads the config again. The text is a string, not YAML.
brim_status brim_cli_trained_set(brim_cli_trained *c, const char *key, const char *text);
brim_status brim_cli_trained_set_int(brim_cli_trained *c, const char *key, int64_t value);
// Improves the failure of a missing data.path: names the data of the run, and the option to give.
brim_status brim_cli_trained_explain_no_data(const brim_cli_trained *c, brim_status status);
// Opens the data.
brim_status brim_cli_trained_data(brim_cli_trained *c, const brim_trained_want *want);
// Opens the device.
brim_status brim_cli_trained_device(brim_cli_trained *c);
// Reads --batch-size; 0 = it was not given.
brim_status brim_cli_trained_batch(brim_cli_trained *c, int64_t *out);
// Runs all samples through the network; `fn` gets the outputs.
brim_status brim_cli_trained_run(brim_cli_trained *c, const char *title, brim_trained_fn fn,
                                 void *ctx, brim_trained_result *out);
// Reports progress: `rows` more are done.
void brim_cli_trained_tick(brim_cli_trained *c, int64_t rows);

// Texts such as "resnet18, 11.2 M parameters, epoch 12, step 4680" and "d.h5, test: 50 samples".
brim_status brim_cli_trained_model_text(const brim_cli_trained *c, brim_str *out);
void brim_cli_trained_data_text(const brim_cli_trained *c, brim_str *out);
// Writes the rows of the device, the precision, and the backend if it is slow.
void brim_cli_trained_device_rows(const brim_cli_trained *c, brim_str *out);
// Prints notes on stderr about the use of the data: resized, converted to grey, only a part evaluated.
void brim_cli_trained_notes(const brim_cli_trained *c);
// Puts checkpoint, workload, step, model, data and split into an event or a file.
brim_status brim_cli_trained_json(const brim_cli_trained *c, json_t *out);

// Option rows that commands share. BRIM_CLI_OPTION_RUN_CONFIG: eval, predict, export, render.
// BRIM_CLI_TRAINED_OPTIONS: eval, predict, export. BRIM_CLI_TRAINED_RUN_OPTIONS: eval, predict.
#define BRIM_CLI_OPTION_RUN_CONFIG                                                \
  {                                                                               \
    .name = "config", .kind = BRIM_OPTION_STRING, .metavar = "FILE",              \
    .help = BRIM_N_("config of the run, for a checkpoint without its own config") \
  }
#define BRIM_CLI_TRAINED_OPTIONS                                                           \
  BRIM_CLI_OPTION_RUN_CONFIG, BRIM_CLI_OPTION_DATA_PATH, BRIM_CLI_OPTION_ALLOW_EXTERNAL, { \
    .name = "ema", .kind = BRIM_OPTION_ENUM, .metavar = "V",                               \
    .help = BRIM_N_("use averaged weights; auto = if the checkpoint has them"),            \
    .default_text = "auto", .choices = brim_cli_trained_ema                                \
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
      BRIM_CLI_OPTION_DEVICE, BRIM_CLI_OPTION_THREADS
extern const char *const brim_cli_trained_ema[], *const brim_cli_trained_splits[],
                                                     *const brim_cli_trained_precisions[];

#endif  // BRIM_CLI_TRAINED_H_
