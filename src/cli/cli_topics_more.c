// The topics of `brim help` about the work: data, models, training, precision, memory, files. Lists
// come from the tables of keys and components; only what no table says stands here.
#include "cli/cli_topics.h"

#define PARAGRAPH(text) brim_topic_paragraph(brim_tr(text), width, out)

static void blank(brim_str *out) { brim_str_append_char(out, '\n'); }

void brim_topic_data(int width, brim_str *out) {
  PARAGRAPH(
      "A path is enough: brim finds out what lies there. brim data info PATH tells what it is, "
      "brim init PATH writes a config for it, brim data verify PATH names every broken record.");
  brim_topic_components("dataset", width, out);
  blank(out);
  PARAGRAPH(
      "Training takes the split train, evaluation val, or test where there is no val. In a folder "
      "of images these are the folders train, val and test, with a folder for each class inside; "
      "class folders alone are all train. data.val_fraction keeps a share of the training set for "
      "validation where there is no other set.");
  brim_topic_keys("data.", width, out);
}

void brim_topic_transforms(int width, brim_str *out) {
  PARAGRAPH(
      "Transforms are a pipeline: stages with | between them. transform.train is for training, "
      "transform.val for evaluation; one pipeline for both leaves out for evaluation what is drawn "
      "at random. Images of different sizes have to be brought to one size by the first stage. "
      "transform.val may end in larger images than transform.train: networks of convolutions that "
      "were trained on random crops are better on those.");
  brim_str_append(out,
                  "  transform:\n"
                  "    train: random_resized_crop(size=224) | random_flip\n"
                  "    val: resize(size=256) | center_crop(size=224)\n\n");
  brim_topic_components("transform", width, out);
  blank(out);
  PARAGRAPH("brim config explain NAME lists the arguments of one.");
}

static void put_category(const char *title, const char *category, int width, brim_str *out) {
  brim_str_printf(out, "%s\n", title);
  brim_topic_components(category, width, out);
  blank(out);
}

void brim_topic_models(int width, brim_str *out) {
  PARAGRAPH(
      "The network fits itself to the data: inputs and outputs follow from the samples and the "
      "targets. Arguments stand in parentheses: model: resnet18(width=32).");
  put_category(brim_tr("Models:"), "model", width, out);
  put_category(brim_tr("Losses:"), "loss", width, out);
  put_category(brim_tr("Optimisers:"), "optimizer", width, out);
  put_category(brim_tr("Schedules of the learning rate:"), "scheduler", width, out);
  PARAGRAPH(
      "Weights have the names and shapes of PyTorch modules: model.safetensors loads into "
      "torchvision's networks, and --weights starts from theirs.");
}

void brim_topic_training(int width, brim_str *out) {
  PARAGRAPH("From a folder of images to a trained model:");
  brim_str_append(out,
                  "  brim init photos\n"
                  "  brim bench photos.yaml --apply\n"
                  "  brim train photos.yaml\n\n");
  PARAGRAPH(
      "The first writes a config for the data, the second finds the fastest setting and writes it "
      "into the config, the third trains and leaves its files in runs/photos. A value can be "
      "changed for one run on the command line: brim train photos.yaml lr=0.01 --epochs 5.");
  brim_topic_keys("training.", width, out);
}

void brim_topic_contrastive(int width, brim_str *out) {
  PARAGRAPH(
      "Features are learned without labels: two augmented views of each image should look alike to "
      "the network, and other images different (SimCLR).");
  brim_str_append(out,
                  "  brim train contrastive --data-path stl10_binary\n"
                  "  brim train cifar10-simclr --data-path cifar10\n\n");
  PARAGRAPH("A config of your own needs these; brim init writes one for images without labels:");
  brim_str_append(out,
                  "  workload: contrastive\n"
                  "  model: simclr(backbone=resnet18, hidden=512, dim=128)\n"
                  "  transform:\n"
                  "    train: views | random_resized_crop(size=96)\n\n");
  PARAGRAPH(
      "Labels, where there are some, only judge the features: by their nearest neighbours (knn) "
      "while it trains, by a linear classifier on them (probe) at the end. brim predict --features "
      "writes them for other programs; brim train model=resnet18 --weights MODEL goes on from the "
      "encoder with labels.");
  brim_topic_keys("contrastive.", width, out);
}

void brim_topic_ars(int width, brim_str *out) {
  PARAGRAPH(
      "A policy for a four-legged robot is found without gradients: each iteration tries it with "
      "random perturbations, forwards and backwards, and moves it along those that made a "
      "difference (augmented random search). No data are needed.");
  brim_str_append(out,
                  "  brim train ars\n"
                  "  brim eval runs/quadruped-stand/best.safetensors\n"
                  "  brim render runs/quadruped-stand/best.safetensors \\\n"
                  "    --out gait.html\n"
                  "  brim train ars --phase phase2 --output-dir runs/stand2 \\\n"
                  "    --weights runs/quadruped-stand/best.safetensors\n"
                  "  brim train quadruped-walk\n"
                  "  brim bench ars --benchmark-batch\n\n");
  PARAGRAPH(
      "The first learns to stand while it is pushed; eval judges it in held-out episodes beside "
      "the zero policy, which does nothing; render writes a page to watch it. Phase 2, with longer "
      "episodes and stronger pushes, starts from what phase 1 learned. quadruped-walk is rewarded "
      "for its speed forwards, and bench finds how many environments and directions at once are "
      "fastest here.");
  PARAGRAPH("A config of your own needs these:");
  brim_str_append(out,
                  "  model: linear_policy\n"
                  "  workload: ars\n"
                  "  env: quadruped(task=stand)\n\n");
  brim_topic_keys("ars.", width, out);
}

void brim_topic_precision(int width, brim_str *out) {
  static const brim_topic_pair rows[] = {
      {"fp32", BRIM_N_("32 bits throughout: the reference")},
      {"tf32", BRIM_N_("fp32 with matrix products of 10 bits of mantissa on tensor cores (GPU)")},
      {"bf16",
       BRIM_N_("16 bits with the range of fp32: fast where the device has it, needs no loss "
               "scaling")},
      {"fp16", BRIM_N_("16 bits with a small range: losses are scaled, steps that overflow are "
                       "skipped and counted")},
      {"auto", BRIM_N_("bf16, else fp16, where the device has fast instructions; else fp32")},
  };
  PARAGRAPH(
      "training.precision (--precision) is the type of the maths. Weights, statistics and losses "
      "are kept in fp32 whatever it is, and so are the files.");
  brim_topic_pairs(rows, sizeof rows / sizeof rows[0], 10, width, out);
  blank(out);
  PARAGRAPH("brim bench --precisions fp32 bf16 measures what it brings here.");
}

void brim_topic_memory(int width, brim_str *out) {
  PARAGRAPH(
      "Before anything runs brim knows what a setting needs: weights, gradients, optimiser, "
      "activations, workspace and loader are planned and then allocated once. brim bench --plan "
      "prints the plan of every setting, and what does not fit is not tried.");
  PARAGRAPH("When it does not fit, in this order:");
  brim_str_append(out,
                  "  --precision bf16\n"
                  "  --checkpointing auto\n"
                  "  --batch-size 64 training.gradient_accumulation_steps=4\n"
                  "  gpu.memory_limit=10GB\n\n");
  PARAGRAPH(
      "Half the bytes of activations; activations computed again instead of kept; smaller "
      "micro-batches for the same effective batch; and a limit that the plan then keeps to by "
      "itself, where others use the GPU too.");
  brim_topic_keys("gpu.", width, out);
}

void brim_topic_bench(int width, brim_str *out) {
  static const brim_topic_pair files[] = {
      {"results.jsonl", BRIM_N_("one record per setting, with everything that was measured")},
      {"report.html", BRIM_N_("the picture; one file that needs nothing else")},
      {"best.yaml", BRIM_N_("the recommended setting as a config for brim train")},
  };
  PARAGRAPH(
      "brim bench CONFIG measures batch sizes, workers and precisions, each in steps that are "
      "timed apart (I/O, forward, backward, optimiser), and recommends the fastest setting whose "
      "times are steady. It leaves:");
  brim_topic_pairs(files, sizeof files / sizeof files[0], 18, width, out);
  blank(out);
  PARAGRAPH(
      "--apply writes the recommendation into the config, --verify proves it with an epoch of "
      "training, --resume goes on after Ctrl-C, brim compare A B sets two sweeps side by side.");
  brim_topic_keys("benchmark.", width, out);
}

void brim_topic_checkpoints(int width, brim_str *out) {
  static const brim_topic_pair files[] = {
      {"last.safetensors", BRIM_N_("everything needed to go on: weights, optimiser, position")},
      {"best.safetensors", BRIM_N_("the same, at the best evaluation so far")},
      {"model.safetensors", BRIM_N_("the weights alone, when the run is over")},
  };
  PARAGRAPH("A run leaves in its folder (--output-dir, else runs/NAME):");
  brim_topic_pairs(files, sizeof files / sizeof files[0], 22, width, out);
  blank(out);
  PARAGRAPH(
      "They are safetensors with the names of PyTorch modules. A file is written beside the old "
      "one and takes its place whole: a crash never leaves half of one.");
  brim_topic_keys("checkpoint.", width, out);
}

void brim_topic_resume(int width, brim_str *out) {
  PARAGRAPH(
      "Ctrl-C, SIGTERM and SIGHUP let the step finish, save and exit 130. The same command with "
      "--resume goes on from the last checkpoint and ends with the same bits as a run that was "
      "never interrupted; where there is no checkpoint yet it starts.");
  brim_str_append(out,
                  "  brim train photos.yaml\n"
                  "  brim train photos.yaml --resume\n"
                  "  brim train photos.yaml --resume-from best.safetensors\n\n");
  PARAGRAPH(
      "What may change in between: epochs, workers, logs, the device. Another model is refused; "
      "other data, another seed or rate are gone on with, and a warning says that the run is no "
      "longer the one that was interrupted. --weights FILE is something else: it takes the weights "
      "alone and starts at step 0.");
}

void brim_topic_logs(int width, brim_str *out) {
  PARAGRAPH(
      "Logs lie in the folder of the run. --json prints the same events as JSON lines on stdout, "
      "for other programs; --verbose says on stderr what is being done.");
  brim_topic_keys("log.", width, out);
}

void brim_topic_language(int width, brim_str *out) {
  PARAGRAPH(
      "brim speaks English and Korean. LC_ALL, LC_MESSAGES or LANG chooses (the first that is "
      "set), --lang en or --lang ko has the last word. Names of options, keys, files and fields of "
      "JSON are the same in both.");
  brim_str_append(out, "  brim --lang ko help\n  LANG=ko_KR.UTF-8 brim train photos.yaml\n");
}
