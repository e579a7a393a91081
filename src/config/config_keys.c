// The key table: one row per canonical key with its type, default, bounds, choices, meaning and aliases
// (the spellings of the guides brim grew from). Also links (arguments of components that are keys too), presets,
// the sections that workloads add, and `brim config explain`.
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

// Values of `workload`: the default, the names that workloads add, and one reserved name.
#define USUAL "supervised"
#define RESERVED "command"
enum { MAX_WORKLOADS = 16 };
static const char *workloads[MAX_WORKLOADS + 3] = {USUAL, RESERVED};

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
  MAX_KEYS = BRIM_CONFIG_MAX_ROWS - BUILT_IN - SPECIALS,
  MAX_LINKS = 32,
  MAX_PRESET_VALUES = 64
};

// Rows that workloads added (brim_config_add_workload). Written before threads start, read-only afterwards.
static struct {
  const brim_config_row *keys[MAX_KEYS];  // listed between `rows` and `specials`
  const brim_config_link *links[MAX_LINKS];
  const brim_config_preset_row *presets[MAX_PRESET_VALUES];
  struct {
    const char *workload;
    const brim_config_section *section;
  } sections[MAX_WORKLOADS + 1];
  size_t key_count, link_count, preset_count, section_count;
} added;

size_t brim_config_key_count(void) { return BUILT_IN + added.key_count + SPECIALS; }

const brim_config_row *brim_config_row_at(size_t index) {
  if (index < BUILT_IN) return &rows[index];
  index -= BUILT_IN;
  return index < added.key_count ? added.keys[index] : &specials[index - added.key_count];
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

// The row of a key that brim_config_key_at or _find returned: the key is its first member. Saving a
// checkpoint asks for every key, so this must not search.
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

bool brim_config_row_yields(int row, int later) {
  const char *key = brim_config_row_at((size_t)row)->key.name;
  const char *other = brim_config_row_at((size_t)later)->key.name;
  for (size_t i = 0; i < added.section_count; i++) {
    for (const char *const *p = added.sections[i].section->yields; p && *p; p += 2) {
      if (strcmp(p[0], key) == 0 && strcmp(p[1], other) == 0) return true;
    }
  }
  return false;
}

bool brim_config_row_counts_given(const brim_config_row *row, const char *workload) {
  for (size_t i = 0; i < added.section_count; i++) {
    if (strcmp(added.sections[i].workload, workload) != 0) continue;
    for (const char *const *k = added.sections[i].section->given; k && *k; k++) {
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

// The most similar name or alias. Names of a very different length are skipped: they cannot be near,
// and comparing is expensive.
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

// True if `name` is the last part of the row's dotted key.
static bool row_ends(const brim_config_row *row, const char *name) {
  const char *dot = strrchr(row->key.name, '.');
  return dot && strcmp(dot + 1, name) == 0;
}

// Adds the section: "clip" means mappo.clip. If several workloads have the key, prefers that of `workload`, else
// takes the first that `workload` (NULL = any) can use.
static const char *without_section(const char *name, const char *workload) {
  const char *first = NULL;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_row *row = brim_config_row_at(i);
    if (!row_ends(row, name)) continue;
    if (workload && is_under(row->key.name, workload)) return row->key.name;
    if (!first && (!workload || brim_config_row_is_for(row, workload))) first = row->key.name;
  }
  return first;
}

// Completes a shortened key: "mappo.epochs" means mappo.update_epochs.
static const char *shortened(const char *name, const char *last) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *key = brim_config_row_at(i)->key.name;
    const size_t section = (size_t)(last - name), n = strlen(key), end = strlen(last + 1);
    if (strncmp(key, name, section + 1) != 0 || n < section + 2 + end) continue;
    if (key[n - end - 1] == '_' && strcmp(key + n - end, last + 1) == 0) return key;
  }
  return NULL;
}

// Tries shortened names and other sections ("training.batch_size" means data.batch_size) before spelling.
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

// A section of a similar name ("data"), into out; NULL = none.
static const char *group_nearest(const char *name, char out[64]) {
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

// ---- links -------------------------------------------------------------------------------------
// Settings that exist both as a key and as a component's argument: training.learning_rate and sgd(lr=...).
// config_resolve.c makes both say the same.

static const brim_config_link links[] = {
    {"optimizer", "lr", "training.learning_rate", false},
    {"optimizer", "weight_decay", "training.weight_decay", false},
    {"optimizer", "momentum", "training.momentum", false},
    {"optimizer", "nesterov", "training.nesterov", false},
    {"loss", "label_smoothing", "training.label_smoothing", false},
    {"scheduler", "warmup", "training.warmup_steps", false},
    {"dataloader", "batch_size", "data.batch_size", false},
    {"dataloader", "num_workers", "data.num_workers", false},
    {"dataloader", "prefetch_factor", "data.prefetch_factor", false},
    {"dataloader", "persistent_workers", "data.persistent_workers", false},
    {"dataloader", "pin_memory", "data.pin_memory", false},
    {"dataloader", "drop_last", "data.drop_last", false},
    {"dataloader", "shuffle", "data.shuffle", false},
    {"dataloader", "batch_size", "data.eval_batch_size", true},
};

const brim_config_link *brim_config_link_at(size_t index) {
  const size_t own = sizeof links / sizeof links[0];
  if (index < own) return &links[index];
  return index - own < added.link_count ? added.links[index - own] : NULL;
}

bool brim_config_link_applies(const brim_config_link *l, int row, int slot) {
  if (strcmp(l->component, brim_config_row_at((size_t)row)->key.name)) return false;
  bool evaluation = slot == BRIM_CONFIG_SLOT_VAL || slot == BRIM_CONFIG_SLOT_TEST;
  return l->evaluation == evaluation;
}

// ---- presets -----------------------------------------------------------------------------------
// Per GPU and model size: batch, workers, accumulation, learning rate and memory share. The guides brim
// grew from give some of these values; the others are scaled from the nearest one, as `meaning` says.

typedef struct preset {
  const char *name;
  const char *match;     // part of the GPU's name; NULL: found by memory only
  uint64_t least_bytes;  // memory of a GPU that may use the preset
  int batch[3];          // small, medium, large
  int workers[3];
  int accumulation[3];
  const char *lr[3];
  const char *memory_fraction;
  int autotune_level;
  int empty_cache_freq;
  const char *meaning;
} preset;

static const char *const sizes[] = {"small", "medium", "large"};

// Ordered by memory, largest first: `auto` takes the first preset that fits.
static const preset presets[] = {
    {"h200",
     "H200",
     130000000000,
     {8192, 2048, 512},
     {12, 12, 12},
     {1, 1, 2},
     {"0.00042", "0.00028", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_(
         "NVIDIA H200, 141 GB. Scaled from the A100 80 GB: twice the batch, the same effective "
         "batch for large models, learning rates by the square-root rule. ARS is as on the A100.")},
    {"a100-80g",
     "A100",
     70000000000,
     {4096, 1024, 256},
     {12, 12, 8},
     {1, 1, 4},
     {"0.0003", "0.0002", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_("NVIDIA A100 80 GB. All values are tuned.")},
    {"a100-40g",
     "A100",
     38000000000,
     {2048, 512, 128},
     {8, 8, 8},
     {1, 2, 8},
     {"0.00021", "0.0002", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_("NVIDIA A100 40 GB. Tuned: batches, workers and accumulation of small and medium. "
             "Large is half the 80 GB batch at the same effective batch. Learning rates follow the "
             "square-root rule from the 80 GB ones.")},
    {"rtx4090-24g",
     "4090",
     22000000000,
     {1024, 256, 64},
     {6, 4, 4},
     {1, 4, 16},
     {"0.00015", "0.0002", "0.00015"},
     "0.85",
     2,
     0,
     BRIM_N_(
         "GeForce RTX 4090, 24 GB. Tuned: batches, workers and accumulation of small and medium. "
         "Large keeps the effective batch of 1024. Learning rates follow the square-root rule. "
         "Memory share, autotune level and ARS are scaled from the RTX 3060.")},
    {"rtx3090-24g",
     "3090",
     22000000000,
     {1024, 256, 64},
     {6, 4, 4},
     {1, 4, 16},
     {"0.00015", "0.0002", "0.00015"},
     "0.85",
     2,
     0,
     BRIM_N_("GeForce RTX 3090, 24 GB. Same values as rtx4090-24g.")},
    {"rtx3060-12g",
     "3060",
     11000000000,
     {512, 128, 32},
     {6, 6, 6},
     {1, 4, 16},
     {"0.00011", "0.00014", "0.00011"},
     "0.85",
     2,
     5,
     BRIM_N_("GeForce RTX 3060, 12 GB. Tuned: medium, 128 x 4 with 6 workers and pinned memory. "
             "Small and large keep the effective batch of 512. Learning rates follow the "
             "square-root rule. ARS is twice the laptop's.")},
    {"rtx3060-laptop-6g",
     "3060",
     0,
     {256, 64, 16},
     {4, 4, 4},
     {2, 8, 32},
     {"0.00011", "0.00014", "0.00011"},
     "0.85",
     2,
     0,
     BRIM_N_(
         "GeForce RTX 3060 Laptop, 6 GB. Tuned: memory share, autotune level, ARS and the small "
         "model's batch. The rest is half the 12 GB card's batch at the same effective batch.")},
};
enum {
  PRESET_COUNT = sizeof presets / sizeof presets[0],
  OWN_VALUES = 10  // values that a row of `presets` gives, of BRIM_CONFIG_PRESET_VALUES
};

size_t brim_config_preset_count(void) { return PRESET_COUNT + 1; }

const char *brim_config_preset_name(size_t index) {
  return index < PRESET_COUNT ? presets[index].name : "auto";
}

static const preset *preset_find(const char *name) {
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    if (!strcmp(presets[i].name, name)) return &presets[i];
  }
  return NULL;
}

// The preset whose name matches the GPU, else the largest preset that fits the GPU's memory. NULL without a GPU.
static const preset *preset_pick(const brim_config_facts *facts) {
  if (!facts || !facts->gpu_name) return NULL;
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    const preset *p = &presets[i];
    if (!strstr(facts->gpu_name, p->match)) continue;
    bool laptop = strstr(facts->gpu_name, "Laptop") != NULL;
    if (laptop && p->least_bytes > 0) continue;
    if (!facts->gpu_bytes || facts->gpu_bytes >= p->least_bytes) return p;
  }
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    if (facts->gpu_bytes >= presets[i].least_bytes) return &presets[i];
  }
  return &presets[PRESET_COUNT - 1];
}

static void put(brim_config_preset *out, const char *key, const char *text) {
  if (out->count == BRIM_CONFIG_PRESET_VALUES) return;  // add_presets refuses more
  brim_config_preset_value *v = &out->values[out->count++];
  v->key = key;
  v->row = brim_config_row_find(key);
  snprintf(v->text, sizeof v->text, "%s", text);
}

static void put_int(brim_config_preset *out, const char *key, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  put(out, key, text);
}

// Adds the values that workloads have for this preset.
static void put_added(brim_config_preset *out) {
  for (size_t i = 0; i < added.preset_count; i++) {
    const brim_config_preset_row *row = added.presets[i];
    if (strcmp(row->preset, out->name) == 0) put(out, row->key, row->text);
  }
}

// The preset without a GPU: small batches, a quarter of the cores for the loader, no pinned memory, fp32.
static void without_gpu(size_t size, int cores, brim_config_preset *out) {
  static const int batch[] = {128, 64, 32};
  out->name = BRIM_CONFIG_NO_GPU;
  put_int(out, "data.batch_size", batch[size]);
  put_int(out, "data.num_workers", cores >= 8 ? cores / 4 : cores >= 2 ? 1 : 0);
  put(out, "data.pin_memory", "false");
  put(out, "training.use_amp", "false");
  put_added(out);
}

void brim_config_preset_get(const char *name, const char *size, const brim_config_facts *facts,
                            brim_config_preset *out) {
  size_t s = 0;
  while (s < 2 && strcmp(sizes[s], size)) s++;
  *out = (brim_config_preset){0};
  const preset *p = strcmp(name, "auto") ? preset_find(name) : preset_pick(facts);
  if (!p) {
    without_gpu(s, facts ? facts->cpu_cores : 0, out);
    return;
  }
  out->name = p->name;
  put_int(out, "data.batch_size", p->batch[s]);
  put_int(out, "data.num_workers", p->workers[s]);
  put(out, "data.pin_memory", "true");
  put(out, "training.use_amp", "true");
  put(out, "training.learning_rate", p->lr[s]);
  put_int(out, "training.gradient_accumulation_steps", p->accumulation[s]);
  put(out, "gpu.memory_fraction", p->memory_fraction);
  put_int(out, "gpu.autotune_level", p->autotune_level);
  put(out, "gpu.cudnn_benchmark", "true");
  if (p->empty_cache_freq) put_int(out, "gpu.empty_cache_freq", p->empty_cache_freq);
  put_added(out);
}

static void explain_preset(const char *name, brim_str *out) {
  const preset *p = preset_find(name);
  brim_str_printf(out, "preset %s\n  ", name);
  if (!p) {
    brim_str_append(out, brim_tr("Selects the preset for this machine's GPU by its name and "
                                 "memory. Without a GPU the values suit a CPU."));
    brim_str_append_char(out, '\n');
    return;
  }
  brim_str_append(out, brim_tr(p->meaning));
  brim_str_append(out, "\n");
  brim_str_append(out,
                  brim_tr("  Its learning rate applies to adam and adamw; sgd keeps its own."));
  brim_str_append(out, "\n\n");
  for (size_t s = 0; s < 3; s++) {
    brim_config_preset values;
    brim_config_preset_get(name, sizes[s], NULL, &values);
    brim_str_printf(out, "  model_size: %s\n", sizes[s]);
    for (size_t i = 0; i < values.count; i++) {
      brim_str_printf(out, "    %s: %s\n", values.values[i].key, values.values[i].text);
    }
  }
}

// ---- explain -----------------------------------------------------------------------------------

static void explain_key(const brim_config_row *row, brim_str *out) {
  const brim_config_key *key = &row->key;
  brim_str_printf(out, "%s\n  %s\n  %s %s\n", key->name, brim_tr(key->meaning), brim_tr("type:"),
                  key->type);
  brim_str_printf(out, "  %s %s\n", brim_tr("default:"),
                  key->default_text ? key->default_text : brim_tr("none"));
  if (row->min != 0 || row->max != 0) {
    brim_str_printf(out, brim_tr("  between: %.10g and %.10g\n"), row->min, row->max);
  }
  if (key->choices) {
    brim_str_printf(out, "  %s", brim_tr("one of:"));
    for (const char *const *c = key->choices; *c; c++) brim_str_printf(out, " %s", *c);
    brim_str_append_char(out, '\n');
  }
  if (key->aliases[0]) {
    brim_str_printf(out, "  %s", brim_tr("also written:"));
    for (const char *const *a = key->aliases; *a; a++) brim_str_printf(out, " %s", *a);
    brim_str_append_char(out, '\n');
  }
  if (row->category) {
    brim_str_printf(out, "  %s", brim_tr("known:"));
    for (size_t i = 0; i < brim_config_component_count(); i++) {
      const brim_config_component_row *c = brim_config_component_at(i);
      if (!strcmp(c->category, row->category)) brim_str_printf(out, " %s", c->name);
    }
    brim_str_append_char(out, '\n');
  }
  if (row->flags & BRIM_CONFIG_SLOTS) {
    brim_str_printf(out, "  %s train val test\n", brim_tr("slots:"));
  }
}

static void explain_component(const brim_config_component_row *row, brim_str *out) {
  brim_str_printf(out, "%s (%s)\n  %s\n", row->name, row->category, brim_tr(row->meaning));
  for (size_t i = 0; i < row->arg_count; i++) {
    const brim_config_arg *arg = &row->args[i];
    brim_str_printf(out, "  %s: %s", arg->name, brim_config_arg_type_name(arg->type));
    if (arg->choices) brim_str_printf(out, " (%s)", arg->choices);
    if (arg->required) brim_str_append(out, brim_tr(", required"));
    if (arg->default_text) {
      brim_str_printf(out, brim_tr(", default %s"), arg->default_text);
    }
    if (arg->alias) brim_str_printf(out, brim_tr(", also %s"), arg->alias);
    brim_str_printf(out, "; %s\n", brim_tr(arg->meaning));
  }
}

static bool is_preset(const char *name) {
  for (size_t i = 0; i < brim_config_preset_count(); i++) {
    if (!strcmp(brim_config_preset_name(i), name)) return true;
  }
  return false;
}

brim_status brim_config_explain(const char *name, brim_str *out) {
  int row = brim_config_row_find(name);
  bool found = false;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_row *r = brim_config_row_at(i);
    if ((int)i != row && !row_ends(r, name)) continue;  // several workloads may have the key
    explain_key(r, out);
    found = true;
  }
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *c = brim_config_component_at(i);
    if (strcmp(c->name, name)) continue;
    explain_component(c, out);
    found = true;
  }
  if (is_preset(name)) {
    explain_preset(name, out);
    found = true;
  }
  if (brim_str_starts(name, "plugin:")) {
    brim_str_printf(out,
                    brim_tr("%s: a source, environment or other part from a plug-in, which defines "
                            "its arguments; load it with --plugin FILE\n"),
                    name);
    found = true;
  }
  if (found) return brim_str_status(out);
  const char *names[256];
  size_t count = 0;
  for (size_t i = 0; i < brim_config_component_count() && count < 240; i++) {
    names[count++] = brim_config_component_at(i)->name;
  }
  for (size_t i = 0; i < brim_config_preset_count() && count < 255; i++) {
    names[count++] = brim_config_preset_name(i);
  }
  names[count] = NULL;
  char group[64];
  const char *key = brim_config_row_nearest(name, NULL), *section = group_nearest(name, group);
  const char *near = section ? section : key;
  if (section && key && brim_edit_distance(name, key) < brim_edit_distance(name, section))
    near = key;
  if (!near) near = brim_nearest(name, names);
  if (near) {
    return brim_fail(BRIM_ENOENT,
                     "no key, section, component or preset '%.120s'; did you mean '%s'?", name,
                     near);
  }
  return brim_fail(BRIM_ENOENT, "no key, section, component or preset '%.120s'", name);
}

// ---- what a workload adds ----------------------------------------------------------------------

// A name or alias of `key` that another key has already; NULL = all are free.
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
  if (added.key_count == MAX_KEYS) {
    return brim_fail(BRIM_EINVAL, "cannot add the key %s: there are %d keys already", key->name,
                     BRIM_CONFIG_MAX_ROWS);
  }
  added.keys[added.key_count++] = row;
  return BRIM_OK;
}

// Adds links and values of presets after a check that the keys they name exist.
static brim_status add_links(const brim_config_link *list, size_t count) {
  if (count > MAX_LINKS - added.link_count) {
    return brim_fail(BRIM_EINVAL, "too many keys that are arguments too: %zu more than %d",
                     added.link_count + count - MAX_LINKS, MAX_LINKS);
  }
  for (size_t i = 0; i < count; i++) {
    if (brim_config_row_find(list[i].component) < 0 || brim_config_row_find(list[i].key) < 0) {
      return brim_fail(BRIM_EINVAL, "no key %s, or no key %s that it can be an argument of",
                       list[i].key, list[i].component);
    }
    added.links[added.link_count++] = &list[i];
  }
  return BRIM_OK;
}

static brim_status add_presets(const brim_config_preset_row *list, size_t count) {
  for (const brim_config_preset_row *row = list; row < list + count; row++) {
    const bool known = preset_find(row->preset) || strcmp(row->preset, BRIM_CONFIG_NO_GPU) == 0;
    if (!known || brim_config_row_find(row->key) < 0) {
      return brim_fail(BRIM_EINVAL, "no preset %s, or no key %s that it could set", row->preset,
                       row->key);
    }
    size_t values = OWN_VALUES;
    for (size_t i = 0; i < added.preset_count; i++) {
      values += strcmp(added.presets[i]->preset, row->preset) == 0;
    }
    if (added.preset_count == MAX_PRESET_VALUES || values == BRIM_CONFIG_PRESET_VALUES) {
      return brim_fail(BRIM_EINVAL, "preset %s has too many values for %s", row->preset, row->key);
    }
    added.presets[added.preset_count++] = row;
  }
  return BRIM_OK;
}

// Finds the place in `workloads` for a new name; fails if the name exists. The default name has its place from
// the start, so that a config can be read before any workload is added.
static brim_status place_of_name(const char *workload, size_t *out) {
  const bool usual = strcmp(workload, USUAL) == 0;
  bool taken = strcmp(workload, RESERVED) == 0;
  for (size_t i = 0; i < added.section_count; i++) {
    taken |= strcmp(added.sections[i].workload, workload) == 0;
  }
  size_t at = 1;
  while (strcmp(workloads[at], RESERVED) != 0) at++;
  if (taken) return brim_fail(BRIM_EINVAL, "there is a workload %s already", workload);
  if (at > MAX_WORKLOADS) return brim_fail(BRIM_EINVAL, "too many workloads for %s", workload);
  *out = usual ? 0 : at;
  return BRIM_OK;
}

brim_status brim_config_add_workload(const char *workload, const brim_config_section *section) {
  static const brim_config_section nothing = {0};
  const brim_config_section *s = section ? section : &nothing;
  const size_t keys = added.key_count, links_before = added.link_count;
  const size_t presets_before = added.preset_count;
  brim_status status = BRIM_OK;
  size_t place = 0;
  for (size_t i = 0; !status && i < s->key_count; i++) status = add_key(workload, &s->keys[i]);
  if (!status) status = add_links(s->links, s->link_count);
  if (!status) status = add_presets(s->presets, s->preset_count);
  if (!status) status = place_of_name(workload, &place);
  // Add components last: they cannot be removed after a failure.
  if (!status) status = brim_config_add_components(s->components, s->component_count);
  if (status) {
    added.key_count = keys;
    added.link_count = links_before;
    added.preset_count = presets_before;
    return status;
  }
  workloads[place] = workload;
  if (place > 0) workloads[place + 1] = RESERVED;
  added.sections[added.section_count].workload = workload;
  added.sections[added.section_count++].section = s;
  return BRIM_OK;
}
