// The topics of `brim help` about the work: data, models, training, precision, memory, files. Lists
// come from the tables of keys and components; only what no table says stands here.
#include "cli/help/cli_topics.h"
#include "config/config.h"

#define PARAGRAPH(text) brim_topic_paragraph(brim_tr(text), width, out)

static void blank(brim_str *out) { brim_str_append_char(out, '\n'); }

void brim_topic_data(int width, brim_str *out) {
  PARAGRAPH(
      "A path is enough: brim detects the format. brim data info PATH describes the data, brim "
      "init PATH writes a config for it, and brim data verify PATH lists every broken record.");
  brim_topic_components("dataset", width, out);
  blank(out);
  PARAGRAPH(
      "Training uses the split train; evaluation uses val, or test if there is no val. In a folder "
      "of images the splits are the folders train, val and test, each with one folder per class. "
      "Class folders alone are all train. data.val_fraction then holds out a share of the training "
      "set for validation.");
  brim_topic_keys("data.", width, out);
}

void brim_topic_transforms(int width, brim_str *out) {
  PARAGRAPH(
      "Transforms are a pipeline of stages separated by |. transform.train is for training, "
      "transform.val for evaluation. A single pipeline serves both; evaluation skips its random "
      "stages. If images differ in size, the first stage must bring them to one size. "
      "transform.val may produce larger images than transform.train: convolutional networks "
      "trained on random crops are more accurate on those.");
  brim_str_append(out,
                  "  transform:\n"
                  "    train: random_resized_crop(size=224) | random_flip\n"
                  "    val: resize(size=256) | center_crop(size=224)\n\n");
  brim_topic_components("transform", width, out);
  blank(out);
  PARAGRAPH("brim config explain NAME lists the arguments of a component.");
}

void brim_topic_models(int width, brim_str *out) {
  PARAGRAPH(
      "brim derives the inputs and outputs of the network from the samples and targets. Write "
      "arguments in parentheses: model: resnet18(width=32).");
  const char *heading, *category;
  for (size_t i = 0; (category = brim_config_category_at(i, &heading)); i++) {
    brim_str_printf(out, "%s\n", brim_tr(heading));
    brim_topic_components(category, width, out);
    blank(out);
  }
  PARAGRAPH(
      "Weights have the names and shapes of PyTorch modules. model.safetensors loads into "
      "torchvision's networks, and --weights loads theirs.");
}

void brim_topic_training(int width, brim_str *out) {
  PARAGRAPH("From a folder of images to a trained model:");
  brim_str_append(out,
                  "  brim init photos\n"
                  "  brim bench photos.yaml --apply\n"
                  "  brim train photos.yaml\n\n");
  PARAGRAPH(
      "The first command writes a config for the data. The second finds the fastest setting and "
      "writes it into the config. The third trains and writes its files to runs/photos. Change a "
      "value for one run on the command line: brim train photos.yaml lr=0.01 --epochs 5.");
  brim_topic_keys("training.", width, out);
}

void brim_topic_precision(int width, brim_str *out) {
  static const brim_topic_pair rows[] = {
      {"fp32", BRIM_N_("32 bits throughout: the reference")},
      {"tf32", BRIM_N_("fp32 whose matrix products use 10 mantissa bits on tensor cores (GPU)")},
      {"bf16", BRIM_N_("16 bits with the range of fp32: fast if the device supports it, needs no "
                       "loss scaling")},
      {"fp16", BRIM_N_("16 bits with a small range: brim scales the loss, and skips and counts "
                       "steps that overflow")},
      {"auto", BRIM_N_("bf16 or fp16 if the device has fast instructions for it, otherwise fp32")},
  };
  PARAGRAPH(
      "training.precision (--precision) is the compute precision. Weights, statistics and losses "
      "always stay in fp32, in memory and in files.");
  brim_topic_pairs(rows, sizeof rows / sizeof rows[0], 10, width, out);
  blank(out);
  PARAGRAPH("brim bench --precisions fp32 bf16 measures the difference on this machine.");
}

void brim_topic_memory(int width, brim_str *out) {
  PARAGRAPH(
      "brim plans memory before a run and allocates it once: weights, gradients, optimizer, "
      "activations, workspace and loader. brim bench --plan prints the plan of every setting. brim "
      "bench reports settings that cannot fit without running them.");
  PARAGRAPH(
      "If a setting does not fit, brim train uses smaller micro-batches and keeps the effective "
      "batch. These options reduce the memory of a setting:");
  brim_str_append(out,
                  "  --precision bf16\n"
                  "  --checkpointing true\n"
                  "  --batch-size 64 training.gradient_accumulation_steps=4\n\n");
  PARAGRAPH(
      "The first halves the memory of activations. The second recomputes activations instead of "
      "storing them. The third uses smaller micro-batches for the same effective batch.");
  PARAGRAPH(
      "On a GPU you share, gpu.memory_limit=10GB limits the plan. brim then recomputes only as "
      "many activations as it must to stay within the limit.");
  brim_topic_keys("gpu.", width, out);
}

void brim_topic_bench(int width, brim_str *out) {
  static const brim_topic_pair files[] = {
      {"results.jsonl", BRIM_N_("one record per setting, with every measurement")},
      {"report.html", BRIM_N_("report with charts, in one self-contained file")},
      {"best.yaml", BRIM_N_("the recommended setting as a config for brim train")},
  };
  PARAGRAPH(
      "brim bench CONFIG measures batch sizes, workers and precisions. It times I/O, forward, "
      "backward and optimizer separately and recommends the fastest setting. It writes:");
  brim_topic_pairs(files, sizeof files / sizeof files[0], 18, width, out);
  blank(out);
  PARAGRAPH(
      "--apply writes the recommendation into the config. --verify checks it with an epoch of "
      "training. --resume continues an interrupted sweep. brim compare A B compares two sweeps.");
  brim_topic_keys("benchmark.", width, out);
}

void brim_topic_sweep(int width, brim_str *out) {
  PARAGRAPH(
      "Every list in a config is an axis of a grid, and every point of the grid is one experiment. "
      "device, gpus, per_gpu, tags, priority and output_dir are never axes.");
  brim_str_append(out,
                  "  device: [0, 1, 2, 3]\n"
                  "  lr: logspace(1e-4, 1e-1, 4)\n"
                  "  batch_size: [64, 128]\n"
                  "  seeds: 3\n\n");
  PARAGRAPH(
      "brim sweep grid.yaml stores these 24 experiments below runs/grid and runs them, one per "
      "GPU. "
      "The same command continues after Ctrl-C and after a crash. It adds only experiments that "
      "the store does not have, because an experiment's id is the hash of its config.");
  PARAGRAPH(
      "Crashes and hangs are retried, as often as retries says. Killed processes and failures of "
      "the machine cost no retry. Out of memory, NaN, bad data and a bad config are not retried. "
      "If "
      "the first three experiments fail the same way, the sweep stops.");
  brim_str_append(out,
                  "  brim sweep status runs/grid\n"
                  "  brim sweep cancel 1f0c27\n"
                  "  brim sweep rerun-failed runs/grid\n"
                  "  brim sweep export runs/grid --format csv\n\n");
  PARAGRAPH(
      "These work while a sweep runs and while none does. The experiment's files are in "
      "runs/grid/exp/ID. --store postgres://... shares one queue between machines.");
}

void brim_topic_checkpoints(int width, brim_str *out) {
  static const brim_topic_pair files[] = {
      {"last.safetensors", BRIM_N_("everything needed to resume: weights, optimizer, position")},
      {"best.safetensors", BRIM_N_("the same, at the best evaluation so far")},
      {"model.safetensors", BRIM_N_("the weights only, written at the end of the run")},
  };
  PARAGRAPH("A run writes these files to its folder (--output-dir, or runs/NAME):");
  brim_topic_pairs(files, sizeof files / sizeof files[0], 22, width, out);
  blank(out);
  PARAGRAPH(
      "They are safetensors files with the names of PyTorch modules. brim writes a new file next "
      "to the old one and then replaces it, so a crash never leaves a partial file.");
  brim_topic_keys("checkpoint.", width, out);
}

void brim_topic_resume(int width, brim_str *out) {
  PARAGRAPH(
      "On Ctrl-C, SIGTERM or SIGHUP brim finishes the step, saves and exits with 130. The same "
      "command with --resume continues from the last checkpoint; the result is bit-identical to an "
      "uninterrupted run. Without a checkpoint it starts from the beginning.");
  brim_str_append(out,
                  "  brim train photos.yaml\n"
                  "  brim train photos.yaml --resume\n"
                  "  brim train photos.yaml --resume-from best.safetensors\n\n");
  PARAGRAPH(
      "You may change epochs, workers, logs and the device between runs. brim refuses another "
      "model. It accepts other data, another seed or another learning rate with a warning. "
      "--weights FILE is different: it loads only the weights and starts at step 0.");
}

void brim_topic_logs(int width, brim_str *out) {
  PARAGRAPH(
      "Logs are in the folder of the run. --json prints the same events as JSON lines on stdout, "
      "for other programs. --verbose logs each action to stderr.");
  brim_topic_keys("log.", width, out);
}

void brim_topic_language(int width, brim_str *out) {
  PARAGRAPH(
      "brim speaks English and Korean. The first of LC_ALL, LC_MESSAGES and LANG that is set "
      "chooses; --lang en or --lang ko overrides it. Names of options, keys, files and JSON fields "
      "are the same in both.");
  brim_str_append(out, "  brim --lang ko help\n  LANG=ko_KR.UTF-8 brim train photos.yaml\n");
}
