// `brim train`: options to config, config to workload, workload to the training loop, which is
// src/run. What a person sees of it is in cli_train_banner.c and cli_train_show.c.
#include "cli/train/cli_train.h"

#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job_options.h"
#include "cli/train/cli_train_ranks.h"
#include "engine/engine.h"
#include "workload/workload_trained.h"

static const char *const checkpointing_choices[] = {"auto", "true", "false", NULL};
static const char *const cache_choices[] = {"auto", "none", "ram", "gpu", NULL};
static const char *const lr_aliases[] = {"learning-rate", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "epochs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of passes over the data (epochs)"),
     .key = "training.epochs"},
    {.name = "batch-size",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("samples per micro-batch"),
     .key = "data.batch_size"},
    {.name = "lr",
     .kind = BRIM_OPTION_FLOAT,
     .help = BRIM_N_("learning rate"),
     .key = "training.learning_rate",
     .aliases = lr_aliases},
    {.name = "precision",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "P",
     .help = BRIM_N_("compute precision"),
     .key = "training.precision",
     .choices = brim_cli_precisions},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("data-loader threads (0 = load in the main thread)"),
     .key = "data.num_workers",
     .aliases = brim_cli_workers_aliases},
    {.name = "cache",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "C",
     .help = BRIM_N_("keep the data set in host memory or on the GPU"),
     .key = "data.cache",
     .choices = cache_choices},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("random seed for weights, data order and augmentation"),
     .key = "seed"},
    {.name = "max-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("stop after this many optimizer steps in total (0 = no limit)")},
    {.name = "compile",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("capture the step as one graph and fuse ops, or run op by op"),
     .key = "training.compile",
     .choices = brim_cli_truths},
    {.name = "checkpointing",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("recompute activations instead of storing them"),
     .key = "training.checkpointing",
     .choices = checkpointing_choices},
    BRIM_CLI_OPTION_DEVICE,
    BRIM_CLI_OPTION_BACKEND,
    BRIM_CLI_OPTION_THREADS,
    {.name = "gpus",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train on this many GPUs of this machine (one rank each)"),
     .key = "gpus",
     .group = BRIM_N_("Machine")},
    {.name = "ranks",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train with this many processes that share the batch"),
     .key = "ranks",
     .group = BRIM_N_("Machine")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for checkpoints and logs"),
     .key = "output_dir",
     .default_text = "runs/NAME",
     .group = BRIM_N_("Files")},
    {.name = "weights",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("start from the weights in this file, with a new optimizer"),
     .key = "training.weights",
     .group = BRIM_N_("Files")},
    {.name = "resume",
     .help = BRIM_N_("resume from the newest valid checkpoint, if any (same as auto)"),
     .metavar = "when",
     .choices = brim_cli_resume_words,
     .group = BRIM_N_("Files")},
    {.name = "resume-from",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("resume from this checkpoint"),
     .group = BRIM_N_("Files")},
    {0},
};

//---------------------------------- where files go ----------------------------------

static bool lies_in(const char *path, const char *dir) {
  char *folder = brim_fs_dirname(path);
  bool same = brim_fs_same(folder, dir);
  brim_free(folder);
  return same;
}

// Any checkpoint: a new run would take those of later steps for its own future.
static bool holds_checkpoint(const char *dir) {
  char **names = NULL;
  size_t count = 0;
  bool found = false;
  if (!brim_fs_is_dir(dir) || brim_fs_list(dir, &names, &count)) return false;
  for (size_t i = 0; !found && i < count; i++) {
    found = strcmp(names[i], "last.safetensors") == 0 ||
            strcmp(names[i], "best.safetensors") == 0 ||
            (brim_str_starts(names[i], "step-") && brim_str_ends(names[i], ".safetensors"));
  }
  brim_fs_list_free(names, count);
  return found;
}

static brim_status refuse_overwriting(const char *dir) {
  char *model = brim_fs_join(dir, "model.safetensors");
  bool kept = model && brim_fs_exists(model);
  brim_free(model);
  if (!holds_checkpoint(dir)) {
    if (!kept) return BRIM_OK;
    return brim_fail(BRIM_EEXIST,
                     "%s already holds a model; choose another folder with --output-dir, or move "
                     "model.safetensors away",
                     dir);
  }
  return brim_fail(BRIM_EEXIST,
                   "%s already holds a run; continue it with --resume, or choose another folder "
                   "with --output-dir",
                   dir);
}

//---------------------------------- the command ----------------------------------

// --resume, --resume-from, and training.resume: none, auto or a path.
static void choose_resume(const brim_cli *cli, const brim_config *config, brim_run_options *out) {
  const char *key = brim_config_string(config, "training.resume");
  out->resume = brim_option_flag(&cli->parse, "resume", false);
  out->resume_path = brim_option_string(&cli->parse, "resume-from", NULL);
  if (!key || strcmp(key, "none") == 0) return;
  if (strcmp(key, "auto") == 0) {
    out->resume = true;
  } else if (!out->resume_path && !out->resume) {
    out->resume_path = key;
  }
}

// Before a device and data are opened for it.
static brim_status check_there(const char *path) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_trained_refuse_folder(path, "last.safetensors"));
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_safetensors_close(file);
  return BRIM_OK;
}

// For programs that run many trainings: what kind of failure it was. Files are those of the data from
// when the device is open.
static brim_failure class_of(const brim_cli *cli, const brim_cli_job *job, brim_status status,
                             const brim_run_result *r) {
  if (r->diverged) return BRIM_FAILURE_NAN;
  if (r->folder_failed) return BRIM_FAILURE_INFRASTRUCTURE;
  switch (status) {
    case BRIM_EOOM:
      return cli->running ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EDEVICE:
      return brim_cli_device_class(job);
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_ECHILD:
    case BRIM_EINTERNAL:
    case BRIM_ERANK:
      return BRIM_FAILURE_CRASH;
    case BRIM_EIO:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_EEND:
      return job->device ? BRIM_FAILURE_DATA : BRIM_FAILURE_BAD_CONFIG;
    default:
      return cli->running ? BRIM_FAILURE_OTHER : BRIM_FAILURE_BAD_CONFIG;
  }
}

// What can be refused before a device and data are opened.
static brim_status prepare(const brim_cli *cli, const brim_cli_job *job, const char *dir,
                           brim_run_options *how) {
  choose_resume(cli, job->config, how);
  if (brim_ranks_rank(job->ranks) > 0) return BRIM_OK;  // the first rank looks at files
  if (how->resume_path) BRIM_TRY(check_there(how->resume_path));
  // a checkpoint from elsewhere starts a run of its own: it needs a place of its own
  bool continues = how->resume || (how->resume_path && lies_in(how->resume_path, dir));
  return continues ? BRIM_OK : refuse_overwriting(dir);
}

static brim_status train_in(brim_cli *cli, brim_cli_job *job, const char *dir,
                            brim_run_result *result) {
  brim_cli_training t = {
      .cli = cli, .job = job, .output_dir = dir, .memory = {.cli = cli, .job = job}};
  brim_run_options how = {.output_dir = dir,
                          .stop = cli->stop,
                          .publish = "train",
                          .max_steps = brim_option_int(&cli->parse, "max-steps", 0)};
  brim_cli_training_watch(&t, &how);
  BRIM_TRY(prepare(cli, job, dir, &how));
  if (!job->ranks) {
    int count = 1;
    BRIM_TRY(brim_cli_ranks_wanted(job, &count));
    if (count > 1) return brim_cli_ranks_launch(cli, count);
    job->on_first = true;  // of a list that gpus or ranks cut to one
  }
  BRIM_TRY(brim_cli_job_open(cli, job));
  brim_status status = brim_run_train(job->work, job->config, &how, result);
  brim_cli_training_end(&t);
  if (status) {
    status = brim_cli_memory_failed(&t.memory, status);
  } else {
    brim_cli_memory_measure(&t.memory);
  }
  if (status == BRIM_OK || (status == BRIM_EINTERRUPTED && result->interrupted)) {
    brim_status shown = brim_cli_training_result(&t, result);
    if (!status) status = shown;
  }
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  if (brim_option_int(&cli->parse, "max-steps", 0) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--max-steps must be 0 or more"));
  }
  brim_run_result result;
  memset(&result, 0, sizeof result);
  brim_cli_ranks *ranks = NULL;
  BRIM_TRY(brim_cli_ranks_open(cli, &ranks));
  job.ranks = brim_cli_ranks_get(ranks);
  // what there is to say of the config the launcher has said
  bool launched = job.ranks && job.ranks->origin == BRIM_RANKS_BRIM;
  bool before = launched ? brim_log_hush(true) : false;
  brim_status status = brim_cli_job_config(cli, &job);
  if (launched) brim_log_hush(before);
  if (!status) {
    char *dir = NULL;
    status = brim_cli_job_run_dir(&job, &dir);
    if (!status) status = train_in(cli, &job, dir, &result);
    brim_free(dir);
  }
  if (status) cli->failure = class_of(cli, &job, status, &result);
  status = brim_cli_ranks_failed(cli, ranks, status);
  brim_cli_job_close(&job);
  brim_cli_ranks_close(ranks);
  return status;
}

const brim_cli_command brim_cli_train = {
    .name = "train",
    .summary = BRIM_N_("train, with progress, checkpoints and logs"),
    .usage = "[CONFIG] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_("Trains as CONFIG describes. Options and key=value arguments override the "
                     "file; `brim config explain` lists every key.\nOn Ctrl-C brim finishes the "
                     "step, saves and exits with 130. `--resume` continues from there; the result "
                     "is bit-identical. A second Ctrl-C, at least one second later, stops "
                     "immediately."),
    .examples = BRIM_N_(
        "train ten epochs on MNIST\nbrim train configs/mnist-mlp.yaml --data-path data/mnist "
        "--epochs 10\nanother optimizer, another folder\nbrim train mnist.yaml optimizer=sgd "
        "lr=0.1 --output-dir runs/sgd\nstart from weights of brim or PyTorch\nbrim train "
        "cifar.yaml --weights model.safetensors\nresume after an interruption\nbrim train "
        "configs/mnist-mlp.yaml --data-path data/mnist --resume\ntrain one model on two GPUs\nbrim "
        "train cifar.yaml --gpus 2\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_SAVES,
};
