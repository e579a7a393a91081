// The key table: one row per canonical key with its type, default, bounds, choices, meaning, aliases
// (the spellings of the guides brim grew from), whether this version reads it and whether it belongs
// in a checkpoint. Everything that reads or explains a key takes it from here.
#include "config/config_int.h"

#include <stdio.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NONE ((const char *const[]){NULL})
#define NEVER BRIM_CONFIG_NEVER_AXIS
#define SLOTS BRIM_CONFIG_SLOTS
#define LATER BRIM_CONFIG_LATER
#define SAVED BRIM_CONFIG_SAVED
#define SAVED_DATA BRIM_CONFIG_SAVED_DATA
#define SAVED_ENV BRIM_CONFIG_SAVED_ENV
#define SAVED_OWN BRIM_CONFIG_SAVED_OWN
#define SAVED_NETS BRIM_CONFIG_SAVED_NETS
#define TOP 1e15

#define INT(n, d, lo, hi, al, fl, m) \
  { {n, "int", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_INT, fl, lo, hi, NULL }
// A number that the run chooses unless one is given.
#define INT_AUTO(n, lo, hi, al, fl, m)                                                          \
  {                                                                                             \
    {n, "int or auto", "auto", BRIM_N_(m), al, NULL}, BRIM_CONFIG_INT, (fl) | BRIM_CONFIG_AUTO, \
        lo, hi, NULL                                                                            \
  }
#define FLOAT(n, d, lo, hi, al, fl, m) \
  { {n, "float", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_FLOAT, fl, lo, hi, NULL }
#define BOOL(n, d, al, fl, m) \
  { {n, "bool", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_BOOL, fl, 0, 0, NULL }
#define STR(n, d, al, fl, m) \
  { {n, "string", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_STRING, fl, 0, 0, NULL }
#define CHOICE(n, d, al, ch, fl, m) \
  { {n, "choice", d, BRIM_N_(m), al, ch}, BRIM_CONFIG_CHOICE, fl, 0, 0, NULL }
#define BYTES(n, d, al, fl, m) \
  { {n, "bytes", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_BYTES, fl, 0, 0, NULL }
#define INTS(n, d, lo, hi, al, fl, m) \
  { {n, "list of int", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_INTS, fl, lo, hi, NULL }
#define STRS(n, d, al, ch, fl, m) \
  { {n, "list of string", d, BRIM_N_(m), al, ch}, BRIM_CONFIG_STRINGS, fl, 0, 0, NULL }
#define COMP(n, d, cat, al, fl, m) \
  { {n, "component", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_COMPONENT, fl, 0, 0, cat }
#define PIPE(n, d, cat, al, fl, m) \
  { {n, "pipeline", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_PIPELINE, fl, 0, 0, cat }
#define SPECIAL(n, t, m) \
  { {n, t, NULL, BRIM_N_(m), NONE, NULL}, BRIM_CONFIG_SPECIAL, NEVER, 0, 0, NULL }

// Values of `workload`; those that are added come behind.
enum { MAX_WORKLOADS = 16 };
static const char *workloads[MAX_WORKLOADS + 1] = {"supervised", "contrastive", "ars", "mappo",
                                                   "command"};

static const brim_config_row rows[] = {
    // what runs, and where
    CHOICE(
        "workload", "supervised", NONE, workloads, SAVED,
        "kind of training: labelled data, two views, policy search, multi-agent PPO, or a program"),
    CHOICE("preset", NULL, NAMES("gpu.preset"),
           NAMES("a100-80g", "a100-40g", "rtx3090-24g", "rtx4090-24g", "rtx3060-12g",
                 "rtx3060-laptop-6g", "h200", "auto"),
           0,
           "default values for a GPU model; keys in the file override them, unless the preset is "
           "given on the command line; auto = the GPU of this machine"),
    CHOICE("model_size", "medium", NAMES("gpu.model_size", "preset_size"),
           NAMES("small", "medium", "large"), 0,
           "column of the preset: small (depth 3, hidden 16), medium (6, 64), large (12, 128)"),
    STR("name", NULL, NAMES("run_name", "experiment"), NEVER | BRIM_CONFIG_FILE_NAME,
        "name of the run in records and paths; no '/', no leading '.'"),
    STR("project", NULL, NONE, NEVER | LATER, "project of the run"),
    STR("output_dir", "runs", NAMES("out_dir"), NEVER, "folder for checkpoints, logs and records"),
    INT("seed", "0", 0, 9e15, NONE, SAVED,
        "random seed for weights, data order, augmentation and environments"),
    {{"device", "device", "auto",
      BRIM_N_("auto, cpu, ref, cuda, cuda:N, N, or a list of them; given a list, bench also "
              "measures scaling over the devices; never a grid axis"),
      NONE, NULL},
     BRIM_CONFIG_DEVICE,
     NEVER,
     0,
     0,
     NULL},
    CHOICE(
        "backend", "auto", NONE, NAMES("auto", "ref", "cpu", "cuda"), 0,
        "compute backend: ref (plain loops), cpu (oneDNN) or cuda; auto = the best for the device"),
    INT("threads", "0", 0, 4096, NAMES("num_threads"), 0,
        "CPU threads for computing (0 = all cores)"),
    INT("gpus", "1", 0, 4096, NONE, NEVER | LATER,
        "number of GPUs in one run (data parallel); never a grid axis"),
    INT("nodes", "1", 1, 65536, NONE, NEVER | LATER,
        "number of machines in one run; never a grid axis"),
    STRS("tags", NULL, NONE, NULL, NEVER, "tags for finding the run; never a grid axis"),
    INT("priority", "0", -1000, 1000, NONE, NEVER,
        "queue priority, higher first; never a grid axis"),
    STRS("plugins", NULL, NAMES("plugin"), NULL, NEVER,
         "plug-ins to load, where --allow-plugins is given"),

    // what is built
    COMP("model", NULL, "model", NONE, SAVED,
         "the network: mlp(depth=4, hidden=512), resnet18, ..."),
    COMP("loss", NULL, "loss", NONE, SAVED_DATA,
         "loss to minimize (default: cross_entropy for labels, mse for numbers, ntxent for two "
         "views)"),
    COMP("optimizer", "adamw", "optimizer", NAMES("optim"), SAVED_NETS,
         "optimizer that updates the weights"),
    COMP("scheduler", "constant", "scheduler", NAMES("lr_scheduler"), SAVED_NETS,
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
    STR("data.path", NULL, NAMES("data_path"), 0, "data file or folder"),
    INT("data.batch_size", "128", 1, 268435456, NAMES("batch_size"), SAVED_NETS,
        "samples per micro-batch on each device"),
    INT("data.eval_batch_size", "0", 0, 268435456, NAMES("eval_batch_size"), 0,
        "samples per evaluation step; 0 = data.batch_size; never larger than data.batch_size under "
        "a gpu.memory_limit or after running out of memory"),
    INT("data.num_workers", "-1", -1, 1024, NAMES("num_workers"), 0,
        "data-loader threads (0 = load in the training thread, -1 = a quarter to half of the "
        "cores)"),
    BOOL("data.pin_memory", "true", NAMES("pin_memory"), 0,
         "use page-locked buffers for faster copies to the GPU; no effect on the CPU"),
    INT("data.prefetch_factor", "2", 1, 1024, NAMES("prefetch_factor", "data.prefetch"), 0,
        "batches each worker prepares ahead"),
    BOOL("data.persistent_workers", "true", NAMES("persistent_workers"), 0,
         "accepted without effect: loader threads always stay alive between epochs"),
    BOOL("data.drop_last", "false", NAMES("drop_last"), SAVED_DATA,
         "drop an incomplete last batch in training"),
    BOOL("data.shuffle", "true", NAMES("shuffle"), SAVED_DATA,
         "shuffle the samples every epoch, using the seed"),
    CHOICE("data.cache", "auto", NAMES("cache"), NAMES("none", "ram", "gpu", "auto"), 0,
           "keep samples in host memory, or on the GPU with the transforms run there; auto: on the "
           "GPU if they fit beside the plan; otherwise in host memory if reading is slow and a "
           "quarter of free memory suffices"),
    CHOICE("data.on_error", "fail", NAMES("on_error"), NAMES("fail", "skip"), 0,
           "what a broken record does: stop the run, or skip it (counted, reported and replaced by "
           "another sample)"),
    INT("data.limit", "0", 0, TOP, NONE, SAVED_DATA,
        "train on this many samples only, spread over the classes (0 = all)"),
    FLOAT("data.val_fraction", "0", 0, 0.9, NAMES("val_fraction"), SAVED_DATA,
          "share of the training set to hold out for validation, drawn by seed; ignored if "
          "dataset.val is given"),
    STRS("data.inputs", NULL, NONE, NULL, SAVED_DATA,
         "HDF5 datasets to read as inputs (empty = detect)"),
    STRS("data.targets", NULL, NONE, NULL, SAVED_DATA,
         "HDF5 datasets to read as targets (empty = detect)"),
    BOOL("data.allow_external", "false", NAMES("allow_external"), 0,
         "read data that an HDF5 file keeps in other files (external, virtual, linked)"),
    FLOAT("data.slow_transform_ms", "10", 0, 1e6, NONE, 0,
          "report a transform by name if it takes longer than this, in ms per sample"),

    // training
    INT("training.epochs", "10", 0, 1e9, NAMES("epochs"), SAVED_DATA,
        "number of passes over the data (epochs)"),
    INT("training.steps", "0", 0, TOP, NAMES("max_steps_total"), 0,
        "stop after this many optimizer steps (0 = set by the epochs)"),
    FLOAT("training.learning_rate", NULL, 0, 1e9, NAMES("lr", "learning_rate", "training.lr"),
          SAVED_NETS, "learning rate (default: the optimizer's own)"),
    FLOAT("training.weight_decay", NULL, 0, 1e9, NAMES("weight_decay"), SAVED_NETS,
          "weight decay (default: the optimizer's own)"),
    FLOAT("training.momentum", NULL, 0, 0.99999, NAMES("momentum"), SAVED_NETS,
          "momentum of sgd (default: the optimizer's own)"),
    BOOL("training.nesterov", NULL, NAMES("nesterov"), SAVED_NETS, "Nesterov momentum of sgd"),
    CHOICE("training.precision", "fp32", NAMES("precision"),
           NAMES("fp32", "tf32", "bf16", "fp16", "auto"), SAVED_NETS,
           "compute precision; auto = bf16 or fp16 if the device has fast instructions for it, "
           "otherwise fp32. Master weights, statistics and losses stay in fp32"),
    BOOL("training.use_amp", "false", NAMES("use_amp", "mixed_precision", "gpu.mixed_precision"),
         SAVED_NETS,
         "mixed precision: true = precision auto, false = fp32; training.precision selects one "
         "type"),
    INT("training.gradient_accumulation_steps", "1", 1, 65536,
        NAMES("gradient_accumulation_steps", "gradient_accumulation", "gpu.gradient_accumulation"),
        SAVED_DATA,
        "micro-batches per optimizer step; the effective batch is batch_size times this"),
    FLOAT("training.clip_norm", "0", 0, 1e9, NAMES("clip_norm", "grad_clip"), SAVED_NETS,
          "largest norm of the gradient; 0 = no clipping"),
    INT("training.warmup_steps", NULL, 0, TOP, NAMES("warmup_steps"), SAVED_NETS,
        "length of the linear warm-up, in optimizer steps"),
    FLOAT("training.warmup_epochs", "0", 0, 1e6, NAMES("warmup_epochs"), SAVED_NETS,
          "length of the linear warm-up, in epochs"),
    FLOAT("training.label_smoothing", NULL, 0, 0.999, NAMES("label_smoothing"), SAVED_DATA,
          "share of the target spread over all classes"),
    FLOAT("training.ema_decay", "0", 0, 0.9999999, NAMES("ema_decay", "ema"), SAVED_DATA,
          "decay of the weight average (EMA) that is evaluated and saved as the model; at most (1 "
          "+ n) / (10 + n) after n steps; 0 = no average"),
    INT("training.ema_batches", "50", 0, 1 << 20, NAMES("ema_batches"), 0,
        "training batches used to recalibrate the batch-norm statistics of the averaged weights "
        "before evaluation; 0 = average the statistics like the weights"),
    BOOL("training.deterministic", "true", NAMES("deterministic"), 0,
         "give bit-identical results on every run with the same settings"),
    CHOICE("training.checkpointing", "auto",
           NAMES("gradient_checkpointing", "checkpointing", "training.gradient_checkpointing"),
           NAMES("auto", "true", "false"), 0,
           "recompute activations instead of storing them; auto = only as far as gpu.memory_limit "
           "requires"),
    BOOL("training.compile", "true", NAMES("compile"), 0,
         "capture the step as one graph and fuse ops; false = run op by op"),
    STR("training.resume", "none", NAMES("resume"), NEVER,
        "none, auto (the last checkpoint in output_dir), or a path to a checkpoint"),
    STR("training.weights", NULL, NAMES("weights", "init_weights", "pretrained"), NEVER,
        "safetensors file with initial weights, matched by name: a model.safetensors, a checkpoint "
        "or a PyTorch state dict. From a contrastive run brim takes the encoder. A resumed run "
        "ignores it"),
    INT("training.early_stopping_patience", "0", 0, 1e9, NAMES("early_stopping", "patience"), 0,
        "stop after this many evaluations without improvement in the metric of checkpoint.best (0 "
        "= never)"),
    FLOAT("training.early_stopping_delta", "0", 0, 1e9, NONE, 0,
          "smallest change that counts as an improvement"),
    INT("training.eval_interval", "1", 0, 1e9, NAMES("eval_interval"), 0,
        "epochs between evaluations; 0 = only at the end"),

    // checkpoints and logs
    STR("checkpoint.dir", NULL, NAMES("checkpoint_dir"), NEVER | LATER,
        "folder for checkpoints (default: output_dir)"),
    INT("checkpoint.interval", "0", 0, TOP, NAMES("checkpoint_interval"), 0,
        "steps between checkpoints within an epoch, for mappo episodes (0 = save only after each "
        "epoch)"),
    INT("checkpoint.keep", "2", 1, 1e6, NONE, 0,
        "number of recent checkpoints to keep: last.safetensors and older ones as "
        "step-NNNNNNNN.safetensors; the best one is kept in addition"),
    STR("checkpoint.best", NULL, NONE, 0,
        "metric that selects the best checkpoint: accuracy, loss, train_accuracy or train_loss "
        "(default: accuracy for classification, otherwise loss)"),
    INT("log.interval", "100", 1, 1e9, NAMES("log_interval"), 0, "steps between progress lines"),
    BOOL("log.csv", "true", NONE, 0, "write log.csv, one row per epoch"),
    BOOL("log.jsonl", "true", NONE, 0, "write log.jsonl, one line per epoch and per log.interval"),
    BOOL("log.tensorboard", "false", NAMES("tensorboard"), 0, "write TensorBoard event files"),
    BYTES("log.rotate", "64MiB", NONE, 0, "size at which brim starts a new log file (0 = never)"),

    // the GPU
    FLOAT("gpu.memory_fraction", "0.9", 0.01, 1, NAMES("memory_fraction"), 0,
          "bench on a GPU: largest share of its memory that a setting may use"),
    INT("gpu.autotune_level", "2", 0, 4, NAMES("autotune_level"), LATER,
        "how thoroughly to search for algorithms: 0 = heuristic only, 3 = measure all"),
    BOOL("gpu.cudnn_benchmark", "true", NAMES("cudnn_benchmark"), 0,
         "measure algorithms once per shape and use the fastest; false = use the heuristic's first "
         "choice"),
    INT("gpu.empty_cache_freq", "0", 0, 1e9, NAMES("empty_cache_freq"), 0,
        "accepted without effect: brim plans memory once, so there is no cache to empty"),
    BYTES("gpu.memory_limit", "0", NAMES("memory_limit"), 0,
          "memory limit that the plan must stay within, in bytes (0 = the free memory)"),
    BYTES("gpu.workspace_limit", "0", NAMES("workspace_limit"), 0,
          "largest workspace of one op (0 = set by the shapes of the op)"),
    CHOICE("gpu.on_oom", "adapt", NAMES("on_oom"), NAMES("adapt", "fail"), 0,
           "on out of memory: reduce the micro-batch and accumulate more at the same effective "
           "batch, or stop"),

    // brim bench
    INTS("benchmark.batch_sizes", NULL, 1, 1e9, NAMES("batch_sizes"), 0,
         "batch sizes to try (empty = chosen from the memory plan)"),
    INTS("benchmark.num_workers_options", NULL, 0, 1024, NAMES("num_workers_options"), 0,
         "loader threads to try"),
    INTS("benchmark.prefetch_options", NULL, 1, 4096, NONE, 0, "prefetch factors to try"),
    INTS("benchmark.accumulation_options", NULL, 1, 65536, NONE, 0, "accumulation steps to try"),
    INTS("benchmark.num_envs_options", NULL, 1, 1e9, NONE, 0,
         "values of num_envs to try (ars.num_envs or mappo.num_envs)"),
    INTS("benchmark.rollout_steps_options", NULL, 1, 1e6, NONE, 0,
         "values of mappo.rollout_steps to try"),
    INTS("benchmark.minibatches_options", NULL, 1, 1e6, NONE, 0,
         "values of mappo.minibatches to try"),
    INTS("benchmark.num_dirs_options", NULL, 1, 1e6, NONE, 0, "values of ars.num_dirs to try"),
    INTS("benchmark.dir_chunk_options", NULL, 1, 1e6, NONE, 0,
         "values of ars.dir_chunk to try, up to ars.num_dirs"),
    STRS("benchmark.precisions", NULL, NONE, NAMES("fp32", "tf32", "bf16", "fp16", "auto"), 0,
         "precisions to try; overrides test_mixed_precision"),
    INT("benchmark.steps_per_test", "10", 1, 1e6, NAMES("steps_per_test"), 0,
        "maximum measured steps per setting"),
    INT("benchmark.min_steps", "5", 1, 1e6, NONE, 0,
        "minimum measured steps per setting, even if the times agree; raises steps_per_test if "
        "larger"),
    INT("benchmark.warmup_steps", "3", 0, 1e6, NONE, LATER,
        "minimum warm-up steps before measuring"),
    INT("benchmark.repeats", "3", 1, 9, NONE, 0,
        "measuring budget, in passes over all settings (1: each once)"),
    BOOL("benchmark.test_mixed_precision", "true", NAMES("test_mixed_precision"), 0,
         "try mixed precision in addition to fp32"),
    BOOL("benchmark.test_pin_memory", "false", NAMES("test_pin_memory"), 0,
         "try pageable buffers in addition to page-locked ones"),

    // contrastive learning
    CHOICE("contrastive.accumulation", "auto", NONE, NAMES("plain", "exact", "auto"), SAVED_OWN,
           "which negatives to use: the micro-batch (plain), the whole effective batch in two "
           "passes (exact), or chosen by cost (auto)"),
    FLOAT("contrastive.temperature", NULL, 1e-6, 100, NAMES("temperature"), SAVED_OWN,
          "temperature of NT-Xent (default: the loss's own)"),
    INT("contrastive.views", "2", 2, 16, NONE, 0, "augmented copies of a sample"),
    INT("contrastive.projection_dim", "128", 1, 65536, NAMES("projection_dim"), 0,
        "width of the projection"),
    INT("contrastive.knn_k", "200", 1, 1e6, NONE, SAVED_OWN,
        "number of neighbours in the kNN evaluation"),
    FLOAT("contrastive.knn_temperature", "0.1", 1e-6, 100, NONE, SAVED_OWN,
          "temperature that weights the neighbours in the kNN evaluation"),
    INT("contrastive.probe_epochs", "100", 0, 1e6, NONE, SAVED_OWN, "epochs of the linear probe"),

    // augmented random search
    INT("ars.num_envs", "128", 1, 1e9, NAMES("num_envs"), SAVED_OWN,
        "environments per direction, half for plus and half for minus (even)"),
    INT("ars.num_dirs", "16", 1, 1e6, NAMES("num_dirs"), SAVED_OWN,
        "random directions per iteration, each run as a plus and minus pair"),
    INT("ars.dir_chunk", "8", 1, 1e6, NAMES("dir_chunk"), 0,
        "directions in memory at the same time; fewer use less memory"),
    INT("ars.top_dirs", "0", 0, 1e6, NAMES("top_dirs"), SAVED_OWN,
        "number of best directions in each update (0 = all)"),
    FLOAT("ars.noise_std", "0.03", 0, 1e3, NAMES("noise_std"), SAVED_OWN,
          "standard deviation of the perturbation"),
    FLOAT("ars.step_size", "0.02", 0, 1e3, NAMES("step_size"), SAVED_OWN,
          "step size of the update"),
    INT("ars.episode_length", NULL, 1, 1e9, NAMES("episode_length"), SAVED_OWN,
        "longest episode, in actions (default: set by env and ars.phase)"),
    INT("ars.iterations", "500", 1, 1e9, NAMES("iterations"), SAVED_OWN,
        "number of policy updates"),
    CHOICE("ars.version", "v2", NONE, NAMES("v1", "v2"), SAVED_OWN,
           "ARS version; v2 normalizes observations"),
    FLOAT("ars.shift", "0", -1e9, 1e9, NAMES("shift"), SAVED_OWN,
          "amount subtracted from the reward of every step; has an effect only with "
          "ars.restart=false"),
    BOOL("ars.restart", NULL, NONE, SAVED_OWN,
         "start a new episode when one ends early; false = end the rollout of that environment "
         "(default: set by env)"),
    INT("ars.eval_interval", "10", 1, 1e9, NONE, 0,
        "iterations per epoch; brim evaluates the policy after each epoch"),
    INT("ars.eval_episodes", "100", 0, 1e6, NONE, SAVED_OWN,
        "held-out episodes of an evaluation; 0 = none"),
    CHOICE("ars.phase", "phase1", NONE, NAMES("phase1", "phase2"), SAVED_OWN,
           "curriculum stage: phase1 = episodes of 200 actions, phase2 = episodes of 400 actions "
           "and stronger pushes"),

    // multi-agent PPO
    INT_AUTO("mappo.num_envs", 1, 1e6, NONE, SAVED_OWN,
             "environments that step side by side; auto = 1024 on a GPU, 32 on a CPU, or "
             "num_workers x episodes_per_worker"),
    INT("mappo.rollout_steps", NULL, 1, 1e6, NAMES("rollout_steps"), SAVED_OWN,
        "steps of each environment per iteration (default: 128, or set by episodes_per_batch)"),
    INT("mappo.episodes_per_batch", NULL, 1, 1e6, NAMES("episodes_per_batch"), SAVED_OWN,
        "episodes per iteration instead of rollout_steps: rollout_steps = episodes x length / "
        "num_envs, rounded up"),
    INT("mappo.episodes_per_worker", "0", 0, 1e6, NAMES("episodes_per_worker"), SAVED_OWN,
        "environments per CPU thread: num_envs = num_workers x this (0 = use num_envs)"),
    CHOICE("mappo.collect_on", "auto", NAMES("collect_on"), NAMES("auto", "cpu", "gpu"), 0,
           "where environments run; cpu with a GPU copies observations and actions every step"),
    INT("mappo.update_epochs", "5", 1, 65535, NAMES("update_epochs"), SAVED_OWN,
        "number of passes over the collected samples"),
    INT("mappo.minibatches", NULL, 1, 1e6, NAMES("minibatches", "num_minibatches"), SAVED_OWN,
        "minibatches per pass (default: 4, or set by data.batch_size in agent samples)"),
    FLOAT("mappo.gamma", "0.99", 0, 1, NAMES("gamma"), SAVED_OWN, "discount of later rewards"),
    FLOAT("mappo.gae_lambda", "0.95", 0, 1, NAMES("gae_lambda"), SAVED_OWN,
          "lambda of the advantage estimate (GAE)"),
    FLOAT("mappo.clip", "0.2", 0, 10, NAMES("clip_range"), SAVED_OWN,
          "clipping range of the policy ratio"),
    FLOAT("mappo.value_clip", "0.2", 0, 1e3, NONE, SAVED_OWN,
          "clipping range of the value, in standard deviations of returns with value_norm (0 = "
          "off)"),
    FLOAT("mappo.value_coef", "0.5", 0, 1e3, NAMES("value_coef"), SAVED_OWN,
          "weight of the value loss"),
    FLOAT("mappo.entropy_coef", "0.01", 0, 10, NAMES("entropy_coef"), SAVED_OWN,
          "weight of the entropy"),
    FLOAT("mappo.huber", "0", 0, 1e6, NONE, SAVED_OWN,
          "error above which the value loss grows linearly (0 = squared error)"),
    BOOL("mappo.value_norm", "true", NONE, SAVED_OWN,
         "normalize returns by their running mean and deviation"),
    BOOL("mappo.normalize_advantages", "true", NONE, SAVED_OWN,
         "normalize the advantages of an iteration to mean 0 and deviation 1"),
    INT("mappo.iterations", "200", 1, 1e9, NONE, SAVED_OWN,
        "number of iterations: one rollout and its updates"),
    INT("mappo.eval_interval", "10", 1, 1e9, NONE, 0,
        "iterations per epoch; brim evaluates the policy after each epoch"),
    INT("mappo.eval_episodes", "100", 0, 1e6, NONE, SAVED_OWN,
        "held-out episodes of an evaluation; 0 = none"),
    CHOICE("mappo.eval_actions", "sample", NONE, NAMES("sample", "best"), SAVED_OWN,
           "actions in evaluations: drawn from the policy, or the most probable"),
    INT("mappo.num_uavs", NULL, 1, 1024, NAMES("num_uavs"), 0, "num_uavs of env: uav"),
    INT("mappo.num_obstacles", NULL, 0, 1e6, NAMES("num_obstacles"), 0,
        "num_obstacles of env: uav"),
    INT("mappo.grid_size", NULL, 2, 65536, NAMES("grid_size"), 0, "size of env: uav"),
    INT("mappo.max_steps", NULL, 1, 1e9, NAMES("max_steps"), 0, "episode_steps of env: uav"),

    // not values
    SPECIAL("include", "path or list of paths",
            "other config files, relative to this one; keys in this file override theirs"),
    SPECIAL("zip", "list of keys", "grid axes that change together: [a, b] or [[a, b], [c, d]]"),
    SPECIAL("exclude", "list of maps", "grid points to leave out: - {lr: 0.1, batch_size: 64}"),
};

enum { BUILT_IN = sizeof rows / sizeof rows[0], MAX_ADDED = 32 };
_Static_assert(BUILT_IN + MAX_ADDED <= BRIM_CONFIG_MAX_ROWS, "BRIM_CONFIG_MAX_ROWS");

// Keys of registered workloads. Written by main before threads start, read only afterwards.
static brim_config_row added[MAX_ADDED];
static size_t added_count;

size_t brim_config_key_count(void) { return BUILT_IN + added_count; }

const brim_config_row *brim_config_row_at(size_t index) {
  return index < BUILT_IN ? &rows[index] : &added[index - BUILT_IN];
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

const char *brim_config_key_category(const brim_config_key *key) {
  int row = brim_config_row_find(key->name);
  return row < 0 ? NULL : brim_config_row_at((size_t)row)->category;
}

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

// A key one level off ("training.batch_size") is found by its last part.
const char *brim_config_row_nearest(const char *name) {
  const char *last = strrchr(name, '.');
  int row = last ? brim_config_row_find(last + 1) : -1;
  if (row >= 0) return brim_config_row_at((size_t)row)->key.name;
  const char *near = nearest_of(name);
  if (!near && last) near = nearest_of(last + 1);
  return near;
}

const char *brim_config_group_nearest(const char *name, char out[64]) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *dot = strchr(rows[i].key.name, '.');
    if (!dot || dot - rows[i].key.name > 63) continue;
    snprintf(out, 64, "%.*s", (int)(dot - rows[i].key.name), rows[i].key.name);
    const char *const group[] = {out, NULL};
    if (brim_nearest(name, group)) return out;
  }
  return NULL;
}

bool brim_config_is_section(const char *name) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    if (is_under(rows[i].key.name, name)) return true;
  }
  return false;
}

bool brim_config_key_is_used(const brim_config_key *key) {
  int row = brim_config_row_find(key->name);
  return row >= 0 && !(brim_config_row_at((size_t)row)->flags & LATER);
}

bool brim_config_key_is_swept(const brim_config_key *key) {
  int row = brim_config_row_find(key->name);
  return row >= 0 && (brim_config_row_at((size_t)row)->flags & BRIM_CONFIG_SWEPT);
}

bool brim_config_key_is_saved(const brim_config_key *key, const char *workload,
                              brim_config_learning from) {
  int row = brim_config_row_find(key->name);
  unsigned flags = row < 0 ? 0 : brim_config_row_at((size_t)row)->flags;
  if (flags & SAVED_OWN) return workload && is_under(key->name, workload);
  if (flags & SAVED_DATA) return from == BRIM_CONFIG_LEARNS_FROM_DATA;
  if (flags & SAVED_NETS) return from != BRIM_CONFIG_LEARNS_IN_ENV;
  if (flags & SAVED_ENV) return from != BRIM_CONFIG_LEARNS_FROM_DATA;
  return (flags & SAVED) != 0;
}

//---------------------------------- added ----------------------------------

static bool type_of(const char *name, brim_config_type *out) {
  static const struct {
    const char *name;
    brim_config_type type;
  } types[] = {{"int", BRIM_CONFIG_INT},
               {"float", BRIM_CONFIG_FLOAT},
               {"bool", BRIM_CONFIG_BOOL},
               {"string", BRIM_CONFIG_STRING},
               {"list of int", BRIM_CONFIG_INTS}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    *out = types[i].type;
    if (strcmp(types[i].name, name) == 0) return true;
  }
  return false;
}

static brim_status add_key(const char *workload, const brim_config_own_key *key) {
  static const char *const no_aliases[] = {NULL};
  brim_config_type type;
  if (!is_under(key->name, workload) || !type_of(key->type, &type)) {
    return brim_fail(BRIM_EINVAL, "%s of type %s cannot be a key of workload %s", key->name,
                     key->type, workload);
  }
  if (brim_config_row_find(key->name) >= 0 || added_count == MAX_ADDED) {
    return brim_fail(BRIM_EINVAL,
                     "cannot add the key %s: it is there already, or there are too many",
                     key->name);
  }
  added[added_count++] =
      (brim_config_row){{key->name, key->type, key->default_text, key->meaning, no_aliases, NULL},
                        type,
                        key->swept ? BRIM_CONFIG_SWEPT : SAVED_OWN,
                        key->min,
                        key->max,
                        NULL};
  return BRIM_OK;
}

brim_status brim_config_add_workload(const char *workload, const brim_config_own_key *keys,
                                     size_t count) {
  size_t n = 0;
  for (; workloads[n]; n++) {
    if (strcmp(workloads[n], workload) != 0) continue;
    return brim_fail(BRIM_EINVAL, "there is a workload %s already", workload);
  }
  if (n == MAX_WORKLOADS) return brim_fail(BRIM_EINVAL, "too many workloads for %s", workload);
  size_t before = added_count;
  for (size_t i = 0; i < count; i++) {
    brim_status status = add_key(workload, &keys[i]);
    if (!status) continue;
    added_count = before;
    return status;
  }
  workloads[n] = workload;
  return BRIM_OK;
}
