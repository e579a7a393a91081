// The key table: one row per canonical key with its type, default, bounds, choices, meaning, aliases
// (the spellings of the guides brim grew from), whether this version reads it and whether it belongs
// in a checkpoint. Everything that reads or explains a key takes it from here.
#include "config/config_int.h"

#include <stdio.h>
#include <string.h>

#define NAMES BRIM_KEY_NAMES
#define NONE BRIM_KEY_NO_NAMES
#define NEVER BRIM_CONFIG_NEVER_AXIS
#define SLOTS BRIM_CONFIG_SLOTS
#define LATER BRIM_CONFIG_LATER
#define SAVED BRIM_CONFIG_SAVED
#define SAVED_DATA BRIM_CONFIG_SAVED_DATA
#define SAVED_ENV BRIM_CONFIG_SAVED_ENV
#define SAVED_NETS BRIM_CONFIG_SAVED_NETS
#define OF_GRID BRIM_CONFIG_OF_GRID
#define NO_COST BRIM_CONFIG_NO_COST
#define TOP 1e15

#define COMP(n, d, cat, al, fl, m) \
  { {n, "component", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_COMPONENT, fl, 0, 0, cat }
#define PIPE(n, d, cat, al, fl, m) \
  { {n, "pipeline", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_PIPELINE, fl, 0, 0, cat }
#define SPECIAL(n, t, m) \
  { {n, t, NULL, BRIM_N_(m), NONE, NULL}, BRIM_CONFIG_SPECIAL, NEVER, 0, 0, NULL }

// Values of `workload`: the default, the others that are added, and one that is still to come.
#define USUAL "supervised"
#define TO_COME "command"
enum { MAX_WORKLOADS = 16 };
static const char *workloads[MAX_WORKLOADS + 3] = {USUAL, TO_COME};

static const brim_config_row rows[] = {
    // what runs, and where
    BRIM_KEY_CHOICE(
        "workload", USUAL, NONE, workloads, SAVED,
        "kind of training: labelled data, two views, policy search, multi-agent PPO, or a program"),
    BRIM_KEY_CHOICE(
        "preset", NULL, NAMES("gpu.preset"),
        NAMES("a100-80g", "a100-40g", "rtx3090-24g", "rtx4090-24g", "rtx3060-12g",
              "rtx3060-laptop-6g", "h200", "auto"),
        0,
        "default values for a GPU model; keys in the file override them, unless the preset is "
        "given on the command line; auto = the GPU of this machine"),
    BRIM_KEY_CHOICE(
        "model_size", "medium", NAMES("gpu.model_size", "preset_size"),
        NAMES("small", "medium", "large"), 0,
        "column of the preset: small (depth 3, hidden 16), medium (6, 64), large (12, 128)"),
    BRIM_KEY_STRING("name", NULL, NAMES("run_name", "experiment"), NEVER | BRIM_CONFIG_FILE_NAME,
                    "name of the run in records and paths; no '/', no leading '.'"),
    BRIM_KEY_STRING("project", NULL, NONE, NEVER | OF_GRID | LATER, "project of the run"),
    BRIM_KEY_STRING("output_dir", "runs", NAMES("out_dir"), NEVER | OF_GRID,
                    "folder for checkpoints, logs and records"),
    BRIM_KEY_INT("seed", "0", 0, 9e15, NONE, SAVED | NO_COST,
                 "random seed for weights, data order, augmentation and environments"),
    {{"device", "device", "auto",
      BRIM_N_("auto, cpu, ref, cuda, cuda:N, N, or a list of them; given a list, train runs one "
              "rank on each, and bench also measures scaling over them; never a grid axis"),
      NONE, NULL},
     BRIM_CONFIG_DEVICE,
     NEVER | OF_GRID,
     0,
     0,
     NULL},
    BRIM_KEY_CHOICE(
        "backend", "auto", NONE, NAMES("auto", "ref", "cpu", "cuda"), 0,
        "compute backend: ref (plain loops), cpu (oneDNN) or cuda; auto = the best for the device"),
    BRIM_KEY_INT("threads", "0", 0, 4096, NAMES("num_threads"), 0,
                 "CPU threads for computing (0 = all cores)"),
    BRIM_KEY_INT("gpus", "1", 0, 4096, NONE, NEVER | OF_GRID,
                 "number of GPUs in one run (data parallel, one rank each); never a grid axis"),
    BRIM_KEY_INT("ranks", "1", 1, 1024, NONE, NEVER,
                 "number of processes that train together, each on its part of every batch; ranks "
                 "beyond the GPUs share them; never a grid axis"),
    BRIM_KEY_INT("nodes", "1", 1, 65536, NONE, NEVER | OF_GRID,
                 "number of machines in one run, in Slurm; never a grid axis"),
    BRIM_KEY_STRINGS("tags", NULL, NONE, NULL, NEVER | OF_GRID,
                     "tags for finding the run; never a grid axis"),
    BRIM_KEY_INT("priority", "0", -1000, 1000, NONE, NEVER | OF_GRID,
                 "queue priority, higher first; never a grid axis"),
    {{"per_gpu", "int or auto", "1",
      BRIM_N_("sweep: experiments on one GPU at once; auto = as many as fit and raise the joint "
              "throughput"),
      NONE, NULL},
     BRIM_CONFIG_INT,
     NEVER | OF_GRID | BRIM_CONFIG_AUTO,
     1,
     64,
     NULL},
    BRIM_KEY_INT("retries", "2", 0, 1000, NAMES("max_retries"), NEVER | OF_GRID,
                 "sweep: times to run an experiment again after a failure that a retry may cure"),
    BRIM_KEY_STRING("store", NULL, NONE, NEVER | OF_GRID,
                    "sweep: folder or postgres:// URL of the queue (default: runs/NAME)"),
    BRIM_KEY_INT("seeds", "1", 1, 100000, NONE, NEVER | OF_GRID,
                 "sweep: run every grid point with this many seeds: seed, seed + 1, ..."),
    BRIM_KEY_INT("samples", "0", 0, 100000, NONE, NEVER | OF_GRID,
                 "sweep: number of draws for values written uniform(a, b), loguniform(a, b), "
                 "randint(a, b) or choice(x, y)"),
    BRIM_KEY_INT("grid_seed", "0", 0, 9e15, NONE, NEVER | OF_GRID,
                 "sweep: random seed for the draws of a grid"),
    BRIM_KEY_STRINGS("plugins", NULL, NAMES("plugin"), NULL, NEVER,
                     "plug-ins to load, where --allow-plugins is given"),

    // what is built
    COMP("model", NULL, "model", NONE, SAVED,
         "the network: mlp(depth=4, hidden=512), resnet18, ..."),
    COMP("loss", NULL, "loss", NONE, SAVED_DATA,
         "loss to minimize (default: cross_entropy for labels, mse for numbers, ntxent for two "
         "views)"),
    COMP("optimizer", "adamw", "optimizer", NAMES("optim"), SAVED_NETS,
         "optimizer that updates the weights"),
    COMP("scheduler", "constant", "scheduler", NAMES("lr_scheduler"), SAVED_NETS | NO_COST,
         "learning-rate schedule"),
    PIPE("metric", "accuracy", "metric", NAMES("metrics"), LATER,
         "metrics to report: accuracy | top5"),
    COMP("dataset", NULL, "dataset", NONE, SLOTS | SAVED_DATA,
         "source of the samples (default: detected from data.path); slots train, val, test"),
    PIPE("transform", NULL, "transform", NONE, SLOTS | SAVED_DATA,
         "transforms applied to a sample: resize(size=96) | normalize; slots train, val, test"),
    COMP("dataloader", NULL, "dataloader", NONE, SLOTS,
         "data loader and its settings; slots train, val, test"),
    COMP("env", NULL, "env", NAMES("environment"), SAVED_ENV, "environment for ars and mappo"),

    // data
    BRIM_KEY_STRING("data.path", NULL, NAMES("data_path"), 0, "data file or folder"),
    BRIM_KEY_INT("data.batch_size", "128", 1, 268435456, NAMES("batch_size"), SAVED_NETS,
                 "samples per micro-batch, of all ranks together"),
    BRIM_KEY_INT(
        "data.eval_batch_size", "0", 0, 268435456, NAMES("eval_batch_size"), 0,
        "samples per evaluation step; 0 = data.batch_size; never larger than data.batch_size under "
        "a gpu.memory_limit or after running out of memory"),
    BRIM_KEY_INT(
        "data.num_workers", "-1", -1, 1024, NAMES("num_workers"), 0,
        "data-loader threads (0 = load in the training thread, -1 = a quarter to half of the "
        "cores)"),
    BRIM_KEY_BOOL("data.pin_memory", "true", NAMES("pin_memory"), 0,
                  "use page-locked buffers for faster copies to the GPU; no effect on the CPU"),
    BRIM_KEY_INT("data.prefetch_factor", "2", 1, 1024, NAMES("prefetch_factor", "data.prefetch"), 0,
                 "batches each worker prepares ahead"),
    BRIM_KEY_BOOL("data.persistent_workers", "true", NAMES("persistent_workers"), 0,
                  "accepted without effect: loader threads always stay alive between epochs"),
    BRIM_KEY_BOOL("data.drop_last", "false", NAMES("drop_last"), SAVED_DATA,
                  "drop an incomplete last batch in training"),
    BRIM_KEY_BOOL("data.shuffle", "true", NAMES("shuffle"), SAVED_DATA,
                  "shuffle the samples every epoch, using the seed"),
    BRIM_KEY_CHOICE(
        "data.cache", "auto", NAMES("cache"), NAMES("none", "ram", "gpu", "auto"), 0,
        "keep samples in host memory, or on the GPU with the transforms run there; auto: on the "
        "GPU if they fit beside the plan; otherwise in host memory if reading is slow and a "
        "quarter of free memory suffices"),
    BRIM_KEY_CHOICE(
        "data.on_error", "fail", NAMES("on_error"), NAMES("fail", "skip"), 0,
        "what a broken record does: stop the run, or skip it (counted, reported and replaced by "
        "another sample)"),
    BRIM_KEY_INT("data.limit", "0", 0, TOP, NONE, SAVED_DATA,
                 "train on this many samples only, spread over the classes (0 = all)"),
    BRIM_KEY_FLOAT(
        "data.val_fraction", "0", 0, 0.9, NAMES("val_fraction"), SAVED_DATA,
        "share of the training set to hold out for validation, drawn by seed; ignored if "
        "dataset.val is given"),
    BRIM_KEY_STRINGS("data.inputs", NULL, NONE, NULL, SAVED_DATA,
                     "HDF5 datasets or NumPy arrays to read as inputs (empty = detect)"),
    BRIM_KEY_STRINGS("data.targets", NULL, NONE, NULL, SAVED_DATA,
                     "HDF5 datasets or NumPy arrays to read as targets (empty = detect)"),
    BRIM_KEY_BOOL("data.allow_external", "false", NAMES("allow_external"), 0,
                  "read data that an HDF5 file keeps in other files (external, virtual, linked)"),
    BRIM_KEY_FLOAT("data.slow_transform_ms", "10", 0, 1e6, NONE, 0,
                   "report a transform by name if it takes longer than this, in ms per sample"),

    // training
    BRIM_KEY_INT("training.epochs", "10", 0, 1e9, NAMES("epochs"), SAVED_DATA,
                 "number of passes over the data (epochs)"),
    BRIM_KEY_INT("training.steps", "0", 0, TOP, NAMES("max_steps_total"), 0,
                 "stop after this many optimizer steps (0 = set by the epochs)"),
    BRIM_KEY_FLOAT("training.learning_rate", NULL, 0, 1e9,
                   NAMES("lr", "learning_rate", "training.lr"), SAVED_NETS | NO_COST,
                   "learning rate (default: the optimizer's own)"),
    BRIM_KEY_FLOAT("training.weight_decay", NULL, 0, 1e9, NAMES("weight_decay"),
                   SAVED_NETS | NO_COST, "weight decay (default: the optimizer's own)"),
    BRIM_KEY_FLOAT("training.momentum", NULL, 0, 0.99999, NAMES("momentum"), SAVED_NETS,
                   "momentum of sgd (default: the optimizer's own)"),
    BRIM_KEY_BOOL("training.nesterov", NULL, NAMES("nesterov"), SAVED_NETS,
                  "Nesterov momentum of sgd"),
    BRIM_KEY_CHOICE(
        "training.precision", "fp32", NAMES("precision"),
        NAMES("fp32", "tf32", "bf16", "fp16", "auto"), SAVED_NETS,
        "compute precision; auto = bf16 or fp16 if the device has fast instructions for it, "
        "otherwise fp32. Master weights, statistics and losses stay in fp32"),
    BRIM_KEY_BOOL(
        "training.use_amp", "false", NAMES("use_amp", "mixed_precision", "gpu.mixed_precision"),
        SAVED_NETS,
        "mixed precision: true = precision auto, false = fp32; training.precision selects one "
        "type"),
    BRIM_KEY_INT(
        "training.gradient_accumulation_steps", "1", 1, 65536,
        NAMES("gradient_accumulation_steps", "gradient_accumulation", "gpu.gradient_accumulation"),
        SAVED_DATA,
        "micro-batches per optimizer step; the effective batch is batch_size times this"),
    BRIM_KEY_FLOAT("training.clip_norm", "0", 0, 1e9, NAMES("clip_norm", "grad_clip"), SAVED_NETS,
                   "largest norm of the gradient; 0 = no clipping"),
    BRIM_KEY_INT("training.warmup_steps", NULL, 0, TOP, NAMES("warmup_steps"), SAVED_NETS | NO_COST,
                 "length of the linear warm-up, in optimizer steps"),
    BRIM_KEY_FLOAT("training.warmup_epochs", "0", 0, 1e6, NAMES("warmup_epochs"),
                   SAVED_NETS | NO_COST, "length of the linear warm-up, in epochs"),
    BRIM_KEY_FLOAT("training.label_smoothing", NULL, 0, 0.999, NAMES("label_smoothing"),
                   SAVED_DATA | NO_COST, "share of the target spread over all classes"),
    BRIM_KEY_FLOAT(
        "training.ema_decay", "0", 0, 0.9999999, NAMES("ema_decay", "ema"), SAVED_DATA,
        "decay of the weight average (EMA) that is evaluated and saved as the model; at most (1 "
        "+ n) / (10 + n) after n steps; 0 = no average"),
    BRIM_KEY_INT(
        "training.ema_batches", "50", 0, 1 << 20, NAMES("ema_batches"), 0,
        "training batches used to recalibrate the batch-norm statistics of the averaged weights "
        "before evaluation; 0 = average the statistics like the weights"),
    BRIM_KEY_BOOL("training.sync_batchnorm", "true", NAMES("sync_batchnorm", "sync_bn"), 0,
                  "on several ranks: batch norm uses the samples of all ranks; false = each rank's "
                  "own, which needs no exchange"),
    BRIM_KEY_BOOL("training.deterministic", "true", NAMES("deterministic"), 0,
                  "give bit-identical results on every run with the same settings"),
    BRIM_KEY_CHOICE(
        "training.checkpointing", "auto",
        NAMES("gradient_checkpointing", "checkpointing", "training.gradient_checkpointing"),
        NAMES("auto", "true", "false"), 0,
        "recompute activations instead of storing them; auto = only as far as gpu.memory_limit "
        "requires"),
    BRIM_KEY_BOOL("training.compile", "true", NAMES("compile"), 0,
                  "capture the step as one graph and fuse ops; false = run op by op"),
    BRIM_KEY_STRING("training.resume", "none", NAMES("resume"), NEVER | OF_GRID,
                    "none, auto (the last checkpoint in output_dir), or a path to a checkpoint"),
    BRIM_KEY_STRING(
        "training.weights", NULL, NAMES("weights", "init_weights", "pretrained"), 0,
        "safetensors file with initial weights, matched by name: a model.safetensors, a checkpoint "
        "or a PyTorch state dict. From a contrastive run brim takes the encoder. A resumed run "
        "ignores it"),
    BRIM_KEY_INT(
        "training.early_stopping_patience", "0", 0, 1e9, NAMES("early_stopping", "patience"), 0,
        "stop after this many evaluations without improvement in the metric of checkpoint.best (0 "
        "= never)"),
    BRIM_KEY_FLOAT("training.early_stopping_delta", "0", 0, 1e9, NONE, 0,
                   "smallest change that counts as an improvement"),
    BRIM_KEY_INT("training.eval_interval", "1", 0, 1e9, NAMES("eval_interval"), 0,
                 "epochs between evaluations; 0 = only at the end"),

    // checkpoints and logs
    BRIM_KEY_STRING("checkpoint.dir", NULL, NAMES("checkpoint_dir"), NEVER | OF_GRID | LATER,
                    "folder for checkpoints (default: output_dir)"),
    BRIM_KEY_INT(
        "checkpoint.interval", "0", 0, TOP, NAMES("checkpoint_interval"), 0,
        "steps between checkpoints within an epoch, for mappo episodes (0 = save only after each "
        "epoch)"),
    BRIM_KEY_INT("checkpoint.keep", "2", 1, 1e6, NONE, 0,
                 "number of recent checkpoints to keep: last.safetensors and older ones as "
                 "step-NNNNNNNN.safetensors; the best one is kept in addition"),
    BRIM_KEY_STRING(
        "checkpoint.best", NULL, NONE, NO_COST,
        "metric that selects the best checkpoint: accuracy, loss, knn or return, or that of "
        "training with train_ in front (default: accuracy for classification, knn for contrastive "
        "learning, return for ars and mappo, otherwise loss)"),
    BRIM_KEY_INT("log.interval", "100", 1, 1e9, NAMES("log_interval"), NEVER,
                 "steps between progress lines"),
    BRIM_KEY_BOOL("log.csv", "true", NONE, NEVER, "write log.csv, one row per epoch"),
    BRIM_KEY_BOOL("log.jsonl", "true", NONE, NEVER,
                  "write log.jsonl, one line per epoch and per log.interval"),
    BRIM_KEY_BOOL("log.tensorboard", "false", NAMES("tensorboard"), NEVER,
                  "write TensorBoard event files"),
    BRIM_KEY_BYTES("log.rotate", "64MiB", NONE, NEVER,
                   "size at which brim starts a new log file (0 = never)"),

    // the GPU
    BRIM_KEY_FLOAT("gpu.memory_fraction", "0.9", 0.01, 1, NAMES("memory_fraction"), 0,
                   "bench on a GPU: largest share of its memory that a setting may use"),
    BRIM_KEY_INT("gpu.autotune_level", "2", 0, 4, NAMES("autotune_level"), LATER,
                 "how thoroughly to search for algorithms: 0 = heuristic only, 3 = measure all"),
    BRIM_KEY_BOOL(
        "gpu.cudnn_benchmark", "true", NAMES("cudnn_benchmark"), 0,
        "measure algorithms once per shape and use the fastest; false = use the heuristic's first "
        "choice"),
    BRIM_KEY_INT("gpu.empty_cache_freq", "0", 0, 1e9, NAMES("empty_cache_freq"), 0,
                 "accepted without effect: brim plans memory once, so there is no cache to empty"),
    BRIM_KEY_BYTES("gpu.memory_limit", "0", NAMES("memory_limit"), 0,
                   "memory limit that the plan must stay within, in bytes (0 = the free memory)"),
    BRIM_KEY_BYTES("gpu.workspace_limit", "0", NAMES("workspace_limit"), 0,
                   "largest workspace of one op (0 = set by the shapes of the op)"),
    BRIM_KEY_CHOICE(
        "gpu.on_oom", "adapt", NAMES("on_oom"), NAMES("adapt", "fail"), 0,
        "on out of memory: reduce the micro-batch and accumulate more at the same effective "
        "batch, or stop"),

    // brim bench
    BRIM_KEY_INTS("benchmark.batch_sizes", NULL, 1, 1e9, NAMES("batch_sizes"), 0,
                  "batch sizes to try (empty = chosen from the memory plan)"),
    BRIM_KEY_INTS("benchmark.num_workers_options", NULL, 0, 1024, NAMES("num_workers_options"), 0,
                  "loader threads to try"),
    BRIM_KEY_INTS("benchmark.threads_options", NULL, 1, 4096, NONE, 0,
                  "CPU threads to try (empty = 1, half and all, unless threads is set)"),
    BRIM_KEY_INTS("benchmark.prefetch_options", NULL, 1, 4096, NONE, 0, "prefetch factors to try"),
    BRIM_KEY_INTS("benchmark.accumulation_options", NULL, 1, 65536, NONE, 0,
                  "accumulation steps to try"),
    BRIM_KEY_INTS("benchmark.num_envs_options", NULL, 1, 1e9, NONE, 0,
                  "values of num_envs to try (ars.num_envs or mappo.num_envs)"),
    BRIM_KEY_INTS("benchmark.rollout_steps_options", NULL, 1, 1e6, NONE, 0,
                  "values of mappo.rollout_steps to try"),
    BRIM_KEY_INTS("benchmark.minibatches_options", NULL, 1, 1e6, NONE, 0,
                  "values of mappo.minibatches to try"),
    BRIM_KEY_INTS("benchmark.num_dirs_options", NULL, 1, 1e6, NONE, 0,
                  "values of ars.num_dirs to try"),
    BRIM_KEY_INTS("benchmark.dir_chunk_options", NULL, 1, 1e6, NONE, 0,
                  "values of ars.dir_chunk to try, up to ars.num_dirs"),
    BRIM_KEY_STRINGS("benchmark.precisions", NULL, NONE,
                     NAMES("fp32", "tf32", "bf16", "fp16", "auto"), 0,
                     "precisions to try; overrides test_mixed_precision"),
    BRIM_KEY_INT("benchmark.steps_per_test", "10", 1, 1e6, NAMES("steps_per_test"), 0,
                 "maximum measured steps per setting"),
    BRIM_KEY_INT(
        "benchmark.min_steps", "5", 1, 1e6, NONE, 0,
        "minimum measured steps per setting, even if the times agree; raises steps_per_test if "
        "larger"),
    BRIM_KEY_INT("benchmark.warmup_steps", "3", 0, 1e6, NONE, LATER,
                 "minimum warm-up steps before measuring"),
    BRIM_KEY_INT("benchmark.repeats", "3", 1, 9, NONE, 0,
                 "measuring budget, in passes over all settings (1: each once)"),
    BRIM_KEY_BOOL("benchmark.test_mixed_precision", "true", NAMES("test_mixed_precision"), 0,
                  "try mixed precision in addition to fp32"),
    BRIM_KEY_BOOL("benchmark.test_pin_memory", "false", NAMES("test_pin_memory"), 0,
                  "try pageable buffers in addition to page-locked ones"),
};

static const brim_config_row specials[] = {
    SPECIAL("include", "path or list of paths",
            "other config files, relative to this one; keys in this file override theirs"),
    SPECIAL("zip", "list of keys", "grid axes that change together: [a, b] or [[a, b], [c, d]]"),
    SPECIAL("exclude", "list of maps", "grid points to leave out: - {lr: 0.1, batch_size: 64}"),
};

enum {
  BUILT_IN = sizeof rows / sizeof rows[0],
  SPECIALS = sizeof specials / sizeof specials[0],
  MAX_ADDED = BRIM_CONFIG_MAX_ROWS - BUILT_IN - SPECIALS
};

// Keys of workloads, in the order they were added; `specials` come behind them. Written before threads
// start, read only afterwards.
static const brim_config_row *added[MAX_ADDED];
static size_t added_count;

size_t brim_config_key_count(void) { return BUILT_IN + added_count + SPECIALS; }

const brim_config_row *brim_config_row_at(size_t index) {
  if (index < BUILT_IN) return &rows[index];
  index -= BUILT_IN;
  return index < added_count ? added[index] : &specials[index - added_count];
}

const brim_config_key *brim_config_key_at(size_t index) {
  return index < brim_config_key_count() ? &brim_config_row_at(index)->key : NULL;
}

static bool same(const char *a, const char *b) { return *a == *b && !strcmp(a, b); }

int brim_config_row_find(const char *name) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    if (same(brim_config_row_at(i)->key.name, name)) return (int)i;
    for (const char *const *a = brim_config_row_at(i)->key.aliases; *a; a++) {
      if (same(*a, name)) return (int)i;
    }
  }
  return -1;
}

const brim_config_key *brim_config_key_find(const char *name) {
  int row = brim_config_row_find(name);
  return row < 0 ? NULL : &brim_config_row_at((size_t)row)->key;
}

// The row of a key that brim_config_key_at or _find gave: its first member. A checkpoint asks for every key,
// so this does not search.
static const brim_config_row *row_of(const brim_config_key *key) {
  return (const brim_config_row *)(const void *)key;
}

const char *brim_config_key_category(const brim_config_key *key) { return row_of(key)->category; }

static bool is_under(const char *key, const char *group) {
  size_t n = strlen(group);
  return !strncmp(key, group, n) && key[n] == '.';
}

bool brim_config_row_is_group(const char *name) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    if (is_under(brim_config_row_at(i)->key.name, name)) return true;
    for (const char *const *a = brim_config_row_at(i)->key.aliases; *a; a++) {
      if (is_under(*a, name)) return true;
    }
  }
  return false;
}

bool brim_config_row_is_for(const brim_config_row *row, const char *workload) {
  if (is_under(row->key.name, "benchmark")) return false;
  for (const char *const *w = workloads; *w; w++) {
    if (is_under(row->key.name, *w)) return strcmp(*w, workload) == 0;
  }
  return true;
}

// Of each workload that has some.
static const char *const *yields[MAX_WORKLOADS];
static size_t yield_count;

void brim_config_add_yields(const char *const *pairs) {
  if (yield_count < MAX_WORKLOADS) yields[yield_count++] = pairs;
}

bool brim_config_row_yields(int row, int later) {
  const char *key = brim_config_row_at((size_t)row)->key.name;
  const char *other = brim_config_row_at((size_t)later)->key.name;
  for (size_t i = 0; i < yield_count; i++) {
    for (const char *const *p = yields[i]; *p; p += 2) {
      if (strcmp(p[0], key) == 0 && strcmp(p[1], other) == 0) return true;
    }
  }
  return false;
}

// By workload, as `added`.
static struct {
  const char *workload;
  const char *const *keys;
} given[MAX_WORKLOADS];
static size_t given_count;

void brim_config_add_given(const char *workload, const char *const *keys) {
  if (given_count == MAX_WORKLOADS) return;
  given[given_count].workload = workload;
  given[given_count++].keys = keys;
}

bool brim_config_row_counts_given(const brim_config_row *row, const char *workload) {
  for (size_t i = 0; i < given_count; i++) {
    if (strcmp(given[i].workload, workload) != 0) continue;
    for (const char *const *k = given[i].keys; *k; k++) {
      if (same(*k, row->key.name)) return true;
    }
  }
  return false;
}

bool brim_config_row_is_component(const brim_config_row *row) {
  return row->type == BRIM_CONFIG_COMPONENT || row->type == BRIM_CONFIG_PIPELINE;
}

bool brim_config_row_takes_list(const brim_config_row *row) {
  return row->type == BRIM_CONFIG_INTS || row->type == BRIM_CONFIG_STRINGS ||
         row->type == BRIM_CONFIG_DEVICE;
}

// Names of about this length, for brim_nearest: the others are too far off anyway, and comparing is
// the dear part.
static const char *nearest_of(const char *word) {
  const char *names[BRIM_CONFIG_MAX_ROWS * 4 + 1];
  size_t count = 0, length = strlen(word), slack = length / 2 + 1;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *name = brim_config_row_at(i)->key.name;
    for (const char *const *a = brim_config_row_at(i)->key.aliases; name; name = *a++) {
      size_t n = strlen(name);
      if (n + slack < length || n > length + slack) continue;
      if (count < BRIM_CONFIG_MAX_ROWS * 4) names[count++] = name;
    }
  }
  names[count] = NULL;
  return brim_nearest(word, names);
}

bool brim_config_row_ends(const brim_config_row *row, const char *name) {
  const char *dot = strrchr(row->key.name, '.');
  return dot && strcmp(dot + 1, name) == 0;
}

// "clip" is mappo.clip; of several workloads that have it, this one's. A known workload has no keys of others.
static const char *without_section(const char *name, const char *workload) {
  const char *first = NULL;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_row *row = brim_config_row_at(i);
    if (!brim_config_row_ends(row, name)) continue;
    if (workload && is_under(row->key.name, workload)) return row->key.name;
    if (!first && (!workload || brim_config_row_is_for(row, workload))) first = row->key.name;
  }
  return first;
}

// "mappo.epochs" is mappo.update_epochs.
static const char *shortened(const char *name, const char *last) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *key = brim_config_row_at(i)->key.name;
    const size_t section = (size_t)(last - name), n = strlen(key), end = strlen(last + 1);
    if (strncmp(key, name, section + 1) != 0 || n < section + 2 + end) continue;
    if (key[n - end - 1] == '_' && strcmp(key + n - end, last + 1) == 0) return key;
  }
  return NULL;
}

// A key one level off ("training.batch_size") is found by its last part.
const char *brim_config_row_nearest(const char *name, const char *workload) {
  const char *last = strrchr(name, '.');
  const char *known = last ? shortened(name, last) : without_section(name, workload);
  if (known) return known;
  if (last && (known = without_section(last + 1, workload))) return known;
  int row = last ? brim_config_row_find(last + 1) : -1;
  if (row >= 0) return brim_config_row_at((size_t)row)->key.name;
  const char *near = nearest_of(name);
  if (!near && last) near = nearest_of(last + 1);
  return near;
}

const char *brim_config_group_nearest(const char *name, char out[64]) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *key = brim_config_row_at(i)->key.name, *dot = strchr(key, '.');
    if (!dot || dot - key > 63) continue;
    snprintf(out, 64, "%.*s", (int)(dot - key), key);
    const char *const group[] = {out, NULL};
    if (brim_nearest(name, group)) return out;
  }
  return NULL;
}

bool brim_config_is_section(const char *name) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    if (is_under(brim_config_row_at(i)->key.name, name)) return true;
  }
  return false;
}

bool brim_config_key_is_used(const brim_config_key *key) { return !(row_of(key)->flags & LATER); }

bool brim_config_key_is_swept(const brim_config_key *key) {
  return (row_of(key)->flags & BRIM_CONFIG_SWEPT) != 0;
}

bool brim_config_key_is_saved(const brim_config_key *key, const char *workload,
                              brim_config_learning from) {
  const unsigned flags = row_of(key)->flags;
  if (flags & BRIM_CONFIG_SAVED_OWN) return workload && is_under(key->name, workload);
  if (flags & SAVED_DATA) return from == BRIM_CONFIG_LEARNS_FROM_DATA;
  if (flags & SAVED_NETS) return from != BRIM_CONFIG_LEARNS_IN_ENV;
  if (flags & SAVED_ENV) return from != BRIM_CONFIG_LEARNS_FROM_DATA;
  return (flags & SAVED) != 0;
}

//---------------------------------- added ----------------------------------

// A name or alias that is there already; NULL = all are free.
static const char *taken_name(const brim_config_key *key) {
  if (brim_config_row_find(key->name) >= 0) return key->name;
  for (const char *const *a = key->aliases; *a; a++) {
    if (brim_config_row_find(*a) >= 0) return *a;
  }
  return NULL;
}

static brim_status add_key(const char *workload, const brim_config_row *row) {
  const brim_config_key *key = &row->key;
  if (!is_under(key->name, workload)) {
    return brim_fail(BRIM_EINVAL, "a key of workload %s begins with '%s.', but this is %s",
                     workload, workload, key->name);
  }
  const char *taken = taken_name(key);
  if (taken) {
    return brim_fail(BRIM_EINVAL, "cannot add the key %s: there is a key %s already", key->name,
                     taken);
  }
  if (added_count == MAX_ADDED) {
    return brim_fail(BRIM_EINVAL, "cannot add the key %s: there are %d keys already", key->name,
                     BRIM_CONFIG_MAX_ROWS);
  }
  added[added_count++] = row;
  return BRIM_OK;
}

brim_status brim_config_add_keys(const char *workload, const brim_config_row *section,
                                 size_t count) {
  const size_t before = added_count;
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) status = add_key(workload, &section[i]);
  if (status) added_count = before;
  return status;
}

void brim_config_remove_keys(size_t count) { added_count -= count; }

brim_status brim_config_add_value(const char *workload) {
  // The usual one is a value before its workload is added, so that a config can be read without any.
  static bool usual_added;
  const bool usual = strcmp(workload, USUAL) == 0;
  bool taken = strcmp(workload, TO_COME) == 0 || (usual && usual_added);
  size_t at = 1;
  for (; strcmp(workloads[at], TO_COME) != 0; at++) taken |= strcmp(workloads[at], workload) == 0;
  if (taken) return brim_fail(BRIM_EINVAL, "there is a workload %s already", workload);
  if (at > MAX_WORKLOADS) return brim_fail(BRIM_EINVAL, "too many workloads for %s", workload);
  usual_added |= usual;
  if (usual) return BRIM_OK;
  workloads[at] = workload;
  workloads[at + 1] = TO_COME;
  return BRIM_OK;
}
