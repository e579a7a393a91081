// `brim help`: the overview, one command, one topic, or everything as JSON or as a man page. Made from the command
// and option tables.

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "workload/workload.h"

//--------------------------------------- parts of topics ---------------------------------------
// Paragraphs, lists of names, and the tables of keys and components.

typedef struct topic_pair {
  const char *name, *text;  // text: a message, not yet translated
} topic_pair;

static void topic_pairs(const topic_pair *pairs, size_t count, int column, int width,
                        brim_str *out) {
  brim_term term = {.width = width};
  for (size_t i = 0; i < count; i++) {
    int used = brim_utf8_width(pairs[i].name) + 2;
    brim_str_printf(out, "  %s", pairs[i].name);
    if (used + 1 > column) {
      brim_str_append_char(out, '\n');
      used = 0;
    }
    brim_str_repeat(out, ' ', (size_t)(column - used));
    brim_ui_wrap(out, &term, brim_tr(pairs[i].text), column);
    brim_str_append_char(out, '\n');
  }
}

// `text` must already be translated.
static void topic_paragraph(const char *text, int width, brim_str *out) {
  brim_term term = {.width = width};
  brim_ui_wrap(out, &term, text, 0);
  brim_str_append(out, "\n\n");
}

// The config keys that begin with `prefix` ("log.") and their meaning, without keys that this version does not use.
static void topic_keys(const char *prefix, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!brim_str_starts(key->name, prefix) || !brim_config_key_is_used(key)) continue;
    topic_pairs(&(topic_pair){key->name, key->meaning}, 1, 30, width, out);
  }
}

// The components of a category ("model") and their meaning.
static void topic_components(const char *category, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    brim_config_named row = brim_config_component_named(i);
    if (strcmp(row.category, category) != 0) continue;
    topic_pairs(&(topic_pair){row.name, row.meaning}, 1, 24, width, out);
  }
}

//------------------------------------ topics about the work ------------------------------------
// Data, models, training, precision, memory, files. Text that the tables of keys and components
// have is not repeated here.

#define PARAGRAPH(text) topic_paragraph(brim_tr(text), width, out)

static void topic_data(int width, brim_str *out) {
  PARAGRAPH(
      "A path is enough: brim detects the format. brim data info PATH describes the data, brim "
      "init PATH writes a config for it, and brim data verify PATH lists every broken record.");
  topic_components("dataset", width, out);
  brim_str_append_char(out, '\n');
  PARAGRAPH(
      "Training uses the split train; evaluation uses val, or test if there is no val. In a folder "
      "of images the splits are the folders train, val and test, each with one folder per class. "
      "Class folders alone are all train. data.val_fraction then holds out a share of the training "
      "set for validation.");
  topic_keys("data.", width, out);
}

static void topic_transforms(int width, brim_str *out) {
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
  topic_components("transform", width, out);
  brim_str_append_char(out, '\n');
  PARAGRAPH("brim config explain NAME lists the arguments of a component.");
}

static void topic_models(int width, brim_str *out) {
  PARAGRAPH(
      "brim derives the inputs and outputs of the network from the samples and targets. Write "
      "arguments in parentheses: model: resnet18(width=32).");
  const char *heading, *category;
  for (size_t i = 0; (category = brim_config_category_at(i, &heading)); i++) {
    brim_str_printf(out, "%s\n", brim_tr(heading));
    topic_components(category, width, out);
    brim_str_append_char(out, '\n');
  }
  PARAGRAPH(
      "Weights have the names and shapes of PyTorch modules. model.safetensors loads into "
      "torchvision's networks, and --weights loads theirs.");
}

static void topic_training(int width, brim_str *out) {
  PARAGRAPH("From a folder of images to a trained model:");
  brim_str_append(out,
                  "  brim init photos\n"
                  "  brim bench photos.yaml --apply\n"
                  "  brim train photos.yaml\n\n");
  PARAGRAPH(
      "The first command writes a config for the data. The second finds the fastest setting and "
      "writes it into the config. The third trains and writes its files to runs/photos. Change a "
      "value for one run on the command line: brim train photos.yaml lr=0.01 --epochs 5.");
  topic_keys("training.", width, out);
}

static void topic_precision(int width, brim_str *out) {
  static const topic_pair rows[] = {
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
  topic_pairs(rows, sizeof rows / sizeof rows[0], 10, width, out);
  brim_str_append_char(out, '\n');
  PARAGRAPH("brim bench --precisions fp32 bf16 measures the difference on this machine.");
}

static void topic_memory(int width, brim_str *out) {
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
  topic_keys("gpu.", width, out);
}

static void topic_bench(int width, brim_str *out) {
  static const topic_pair files[] = {
      {"results.jsonl", BRIM_N_("one record per setting, with every measurement")},
      {"report.html", BRIM_N_("report with charts, in one self-contained file")},
      {"best.yaml", BRIM_N_("the recommended setting as a config for brim train")},
  };
  PARAGRAPH(
      "brim bench CONFIG measures batch sizes, workers and precisions. It times I/O, forward, "
      "backward and optimizer separately and recommends the fastest setting. It writes:");
  topic_pairs(files, sizeof files / sizeof files[0], 18, width, out);
  brim_str_append_char(out, '\n');
  PARAGRAPH(
      "--apply writes the recommendation into the config. --verify checks it with an epoch of "
      "training. --resume continues an interrupted sweep. brim compare A B compares two sweeps.");
  topic_keys("benchmark.", width, out);
}

static void topic_sweep(int width, brim_str *out) {
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

static void topic_checkpoints(int width, brim_str *out) {
  static const topic_pair files[] = {
      {"last.safetensors", BRIM_N_("everything needed to resume: weights, optimizer, position")},
      {"best.safetensors", BRIM_N_("the same, at the best evaluation so far")},
      {"model.safetensors", BRIM_N_("the weights only, written at the end of the run")},
  };
  PARAGRAPH("A run writes these files to its folder (--output-dir, or runs/NAME):");
  topic_pairs(files, sizeof files / sizeof files[0], 22, width, out);
  brim_str_append_char(out, '\n');
  PARAGRAPH(
      "They are safetensors files with the names of PyTorch modules. brim writes a new file next "
      "to the old one and then replaces it, so a crash never leaves a partial file.");
  topic_keys("checkpoint.", width, out);
}

static void topic_resume(int width, brim_str *out) {
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

static void topic_logs(int width, brim_str *out) {
  PARAGRAPH(
      "Logs are in the folder of the run. --json prints the same events as JSON lines on stdout, "
      "for other programs. --verbose logs each action to stderr.");
  topic_keys("log.", width, out);
}

static void topic_language(int width, brim_str *out) {
  PARAGRAPH(
      "brim speaks English and Korean. The first of LC_ALL, LC_MESSAGES and LANG that is set "
      "chooses; --lang en or --lang ko overrides it. Names of options, keys, files and JSON fields "
      "are the same in both.");
  brim_str_append(out, "  brim --lang ko help\n  LANG=ko_KR.UTF-8 brim train photos.yaml\n");
}

//----------------------------------- topics about the program -----------------------------------
// Configs, components, exit codes, environment; then the list of all topics.

static void topic_exit_codes(int width, brim_str *out) {
  static const topic_pair codes[] = {
#define X(id, code, meaning) {#code, meaning},
      BRIM_CLI_EXIT_MAP(X)
#undef X
  };
  topic_paragraph(brim_tr("Exit codes:"), width, out);
  topic_pairs(codes, sizeof codes / sizeof codes[0], 8, width, out);
  brim_str_append_char(out, '\n');
  topic_paragraph(
      brim_tr("On the first Ctrl-C, SIGTERM or SIGHUP brim finishes the step, saves and exits with "
              "130. A second one, at least one second later, ends brim immediately. Work since the "
              "last checkpoint is then lost, and the shell shows 130, 143 or 129. bench writes "
              "each record to disk as soon as it is measured."),
      width, out);
  topic_paragraph(
      brim_tr("Every command checks its output path before it starts. A missing folder, a missing "
              "permission or an existing file of another kind exits with 2. A failure while "
              "writing, such as a full disk, exits with 1."),
      width, out);
}

static void topic_environment(int width, brim_str *out) {
  static const topic_pair variables[] = {
      {"NO_COLOR", BRIM_N_("any value: use no colour")},
      {"CLICOLOR_FORCE",
       BRIM_N_("any value but 0: use colour even if the output is not a terminal")},
      {"TERM", BRIM_N_("dumb disables colour and redrawn lines")},
      {"COLUMNS", BRIM_N_("width of tables and help texts")},
      {"LC_ALL, LC_CTYPE, LANG", BRIM_N_("UTF-8 enables lines, bars and dots beyond ASCII")},
      {"LC_ALL, LC_MESSAGES, LANG",
       BRIM_N_("ko selects messages, help and reports in Korean; --lang overrides it")},
      {"BRIM_PLUGIN_PATH", BRIM_N_("folders to load plug-ins from, separated by colons (default: "
                                   "lib/brim next to the program)")},
      {"BRIM_HDF5_HELPER", BRIM_N_("program that reads possibly damaged HDF5 files (default: "
                                   "brim-hdf5 in lib/brim)")},
      {"XDG_CACHE_HOME", BRIM_N_("parent folder of brim/, where brim keeps measurements of this "
                                 "machine (default: ~/.cache)")},
      {"OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID",
       BRIM_N_("set by mpirun and srun: the rank of this process in a training")},
      {"BRIM_ALLOC_FAIL", BRIM_N_("for tests: makes the nth allocation fail")},
      {"BRIM_HDF5_LIMIT_S",
       BRIM_N_("for tests: time limit of libhdf5 per file or row, in seconds (default: 60)")},
  };
  topic_paragraph(brim_tr("Environment variables brim reads:"), width, out);
  topic_pairs(variables, sizeof variables / sizeof variables[0], 26, width, out);
}

static void topic_config(int width, brim_str *out) {
  topic_paragraph(brim_tr("A config is a YAML file. Every key has one meaning, one default "
                          "and often several spellings; brim config explain lists them. An "
                          "unknown key is an error, and brim suggests the nearest known key."),
                  width, out);
  brim_str_append(out,
                  "  model: mlp(depth=4, hidden=512)\n"
                  "  dataset: idx\n"
                  "  optimizer: adamw(lr=1e-3)\n"
                  "  scheduler: cosine\n"
                  "  data:\n"
                  "    path: data/mnist\n"
                  "    batch_size: 128\n"
                  "  training:\n"
                  "    epochs: 10\n\n");
  topic_paragraph(
      brim_tr(
          "Later sources override earlier ones: defaults, a preset in the file, included files, "
          "the file, a preset on the command line (preset=rtx3060-12g), options, key.path=value "
          "arguments. brim config show --origins prints the source of each value."),
      width, out);
  topic_paragraph(
      brim_tr("A list in place of one value is an axis of a grid: lr: [0.1, 0.01]. zip changes "
              "axes together, exclude removes points, and brim config grid lists the points."),
      width, out);
}

static void topic_expressions(int width, brim_str *out) {
  topic_paragraph(
      brim_tr("An expression selects a model, loss, optimizer, scheduler, data set or transform: a "
              "name, or a name with arguments. Arguments are numbers, words, lists [1, 2], tuples "
              "(0.8, 1.0) or other components. Transforms are pipelines: stages separated by |."),
      width, out);
  brim_str_append(out,
                  "  model: mlp(depth=3, hidden=512, dropout=0.1)\n"
                  "  optimizer: sgd(lr=0.1, momentum=0.9, nesterov=true)\n"
                  "  transform:\n"
                  "    train: random_crop(size=28, padding=2) | cutout(size=8)\n"
                  "    val: center_crop(size=28)\n\n");
  topic_paragraph(brim_tr("brim config explain NAME describes a component and its arguments. "
                          "Write plugin:NAME for a component from a plug-in."),
                  width, out);
}

static const brim_cli_topic topics[] = {
    {"config", BRIM_N_("write and combine configs"), topic_config, NULL},
    {"components", BRIM_N_("expressions like mlp(depth=4) and pipelines"), topic_expressions, NULL},
    {"data", BRIM_N_("data formats, and how brim detects them"), topic_data, NULL},
    {"transforms", BRIM_N_("transforms of samples"), topic_transforms, NULL},
    {"models", BRIM_N_("networks, losses, optimizers, schedules"), topic_models, NULL},
    {"training", BRIM_N_("from a folder of images to a trained model"), topic_training, NULL},
    {"precision", BRIM_N_("fp32, tf32, bf16, fp16"), topic_precision, NULL},
    {"memory", BRIM_N_("the memory plan, and what to do if it does not fit"), topic_memory, NULL},
    {"bench", BRIM_N_("run a sweep and read its result"), topic_bench, NULL},
    {"sweep", BRIM_N_("run many experiments and continue them"), topic_sweep, NULL},
    {"checkpoints", BRIM_N_("files of a run, and their use in other programs"), topic_checkpoints,
     NULL},
    {"resume", BRIM_N_("resume after an interruption"), topic_resume, NULL},
    {"logs", BRIM_N_("log.csv, log.jsonl, TensorBoard"), topic_logs, NULL},
    {"language", BRIM_N_("English and Korean"), topic_language, NULL},
    {"exit-codes", BRIM_N_("exit codes and their meaning"), topic_exit_codes, NULL},
    {"environment", BRIM_N_("environment variables"), topic_environment, NULL},
};

enum { TOPICS = sizeof topics / sizeof topics[0] };

// Pages of workloads come after the topic training.
static size_t first_workload_page(void) {
  for (size_t i = 0; i < TOPICS; i++) {
    if (topics[i].write == topic_training) return i + 1;
  }
  return TOPICS;
}

static const brim_workload_table *workload_with_page(size_t index) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (table->topic && index-- == 0) return table;
  }
  return NULL;
}

static size_t workload_page_count(void) {
  size_t n = 0;
  while (workload_with_page(n)) n++;
  return n;
}

size_t brim_cli_topic_count(void) { return TOPICS + workload_page_count(); }

brim_cli_topic brim_cli_topic_at(size_t index) {
  size_t first = first_workload_page(), count = workload_page_count();
  if (index < first) return topics[index];
  if (index >= first + count) return topics[index - count];
  const brim_workload_table *table = workload_with_page(index - first);
  return (brim_cli_topic){
      .name = table->name, .summary = table->topic->summary, .page = table->topic};
}

void brim_cli_topic_write(const brim_cli_topic *topic, int width, brim_str *out) {
  if (!topic->page) {
    topic->write(width, out);
    return;
  }
  char prefix[64];
  for (size_t i = 0; i < topic->page->count; i++) {
    const char *part = topic->page->parts[i];
    if (part[0] == ' ') {
      brim_str_append(out, part);
    } else {
      topic_paragraph(brim_tr(part), width, out);
    }
  }
  snprintf(prefix, sizeof prefix, "%s.", topic->name);
  topic_keys(prefix, width, out);
}

//--------------------------------------------- help ---------------------------------------------

// Appends the texts that workloads add to a command, each on its own lines.
static void put_texts(const brim_cli_command *command, bool examples, brim_str *out) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    for (size_t k = 0; k < table->option_count; k++) {
      const brim_work_options *o = &table->options[k];
      const char *text = examples ? o->examples : o->about;
      if (!text || strcmp(o->command, command->name) != 0) continue;
      if (out->len > 0 && out->data[out->len - 1] != '\n') brim_str_append_char(out, '\n');
      brim_str_append(out, brim_tr(text));
    }
  }
}

static void command_about(const brim_cli_command *command, brim_str *out) {
  brim_str_append(out, brim_tr(command->about));
  put_texts(command, false, out);
}

static void command_examples(const brim_cli_command *command, brim_str *out) {
  if (command->examples[0]) brim_str_append(out, brim_tr(command->examples));
  put_texts(command, true, out);
}

static const brim_option options[] = {
    {.name = "man", .help = BRIM_N_("print the man page as roff")},
    {0},
};

static brim_term plain_term(int width) { return (brim_term){.width = width}; }

// Wraps each line of `text` as a paragraph.
static void paragraphs(const char *text, int indent, int width, brim_str *out) {
  brim_term term = plain_term(width);
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str line;
    brim_str_init(&line);
    brim_str_append_n(&line, text, n);
    brim_str_repeat(out, ' ', (size_t)indent);
    brim_ui_wrap(out, &term, line.data, indent);
    brim_str_append_char(out, '\n');
    if (brim_str_status(&line) && !out->status) out->status = line.status;
    brim_str_deinit(&line);
    text += n + (text[n] == '\n');
    if (*text) brim_str_append_char(out, '\n');
  }
}

static void usage(const brim_cli_command *command, int width, brim_str *out) {
  const char *text = command->usage;
  const char *head = brim_tr("Usage:");
  brim_term term = plain_term(width);
  int indent = brim_utf8_width(head) + 1;
  bool first = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, "brim %s %.*s", command->name, (int)n, text);
    if (first) {
      brim_str_printf(out, "%s ", head);
    } else {
      brim_str_repeat(out, ' ', (size_t)indent);
    }
    brim_ui_wrap(out, &term, line.data, indent);
    brim_str_append_char(out, '\n');
    if (brim_str_status(&line) && !out->status) out->status = line.status;
    brim_str_deinit(&line);
    first = false;
    text += n + (text[n] == '\n');
  }
}

// "comment\ncommand\n" pairs.
static void examples(const char *text, brim_str *out) {
  bool comment = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_printf(out, comment ? "  # %.*s\n" : "  %.*s\n", (int)n, text);
    comment = !comment;
    text += n + (text[n] == '\n');
  }
}

static void help_command(const brim_cli_command *command, int width, brim_str *out) {
  const brim_option *tables[BRIM_CLI_MAX_TABLES + 1];
  size_t n = 0;
  brim_cli_option_tables(command, tables);
  while (tables[n]) n++;
  tables[n++] = brim_cli_global_options();
  tables[n] = NULL;
  brim_str about, shown;
  brim_str_init(&about);
  brim_str_init(&shown);
  command_about(command, &about);
  command_examples(command, &shown);
  usage(command, width, out);
  brim_str_append_char(out, '\n');
  paragraphs(about.data ? about.data : "", 0, width, out);
  brim_str_append_char(out, '\n');
  brim_option_help(tables, width, out);
  if (shown.len > 0) {
    brim_str_printf(out, "\n%s\n", brim_tr("Examples:"));
    examples(shown.data, out);
  }
  if (!out->status) out->status = about.status ? about.status : shown.status;
  brim_str_deinit(&about);
  brim_str_deinit(&shown);
}

static void help_overview(const brim_cli_command *const *commands, int width, brim_str *out) {
  brim_term term = plain_term(width);
  const brim_option *tables[] = {brim_cli_global_options(), NULL};
  brim_ui_wrap(out, &term,
               brim_tr("brim makes training fast: it shows why training is slow, finds the fastest "
                       "settings that fit in memory, and trains with them."),
               0);
  brim_str_printf(out, "\n\n%s brim COMMAND [OPTIONS]\n\n%s\n", brim_tr("Usage:"),
                  brim_tr("Commands:"));
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str_printf(out, "  %-14s%s\n", (*c)->name, brim_tr((*c)->summary));
  }
  brim_str_printf(out, "\n%s\n", brim_tr("Topics (brim help TOPIC):"));
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    const brim_cli_topic topic = brim_cli_topic_at(i);
    brim_str_printf(out, "  %-14s%s\n", topic.name, brim_tr(topic.summary));
  }
  brim_str_append_char(out, '\n');
  brim_option_help(tables, width, out);
  brim_str_printf(out, "\n%s\n", brim_tr("brim COMMAND --help describes one command."));
}

//---------------------------------- JSON ----------------------------------

static brim_status put_text(json_t *object, const char *key, const char *text) {
  return brim_json_put(object, key, text ? json_string(brim_tr(text)) : json_null());
}

// Names are not translated: programs read them.
static brim_status put_name(json_t *object, const char *key, const char *name) {
  return brim_json_put(object, key, name ? json_string(name) : json_null());
}

static brim_status put_options(json_t *list, const brim_option *table) {
  static const char *const kinds[BRIM_OPTION_KIND_COUNT] = {"flag",  "string", "int",
                                                            "float", "bytes",  "enum"};
  for (const brim_option *o = table; o->name; o++) {
    json_t *item = json_object();
    char letter[2] = {o->short_name, '\0'};
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_name(item, "name", o->name));
    BRIM_TRY(put_name(item, "short", o->short_name ? letter : NULL));
    BRIM_TRY(put_name(item, "kind", kinds[o->kind]));
    BRIM_TRY(brim_json_put(item, "multiple", json_boolean(o->multiple)));
    BRIM_TRY(put_text(item, "help", o->help));
    BRIM_TRY(put_name(item, "key", o->key));
    BRIM_TRY(put_name(item, "default", o->default_text));
    BRIM_TRY(brim_cli_put_names(item, "aliases", o->aliases));
    BRIM_TRY(brim_cli_put_names(item, "choices", o->choices));
  }
  return BRIM_OK;
}

static brim_status fill_json(const brim_cli_command *const *commands, json_t *root) {
  BRIM_TRY(put_name(root, "version", BRIM_VERSION));
  BRIM_TRY(brim_json_put(root, "commands", json_array()));
  json_t *list = json_object_get(root, "commands");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_name(item, "name", (*c)->name));
    BRIM_TRY(put_text(item, "summary", (*c)->summary));
    const brim_option *tables[BRIM_CLI_MAX_TABLES];
    brim_cli_option_tables(*c, tables);
    BRIM_TRY(brim_json_put(item, "options", json_array()));
    for (size_t i = 0; tables[i]; i++) {
      BRIM_TRY(put_options(json_object_get(item, "options"), tables[i]));
    }
  }
  BRIM_TRY(brim_json_put(root, "options", json_array()));
  return put_options(json_object_get(root, "options"), brim_cli_global_options());
}

static brim_status help_json(brim_cli *cli) {
  json_t *root = json_object();
  brim_status status = fill_json(cli->commands, root);
  return brim_cli_finish_json(cli, root, status);
}

//---------------------------------- the man page ----------------------------------
// docs/brim.1 is `brim help --man`; a test compares the two.

// Escapes text as roff: backslashes, dashes, and control characters at the start of a line.
static void roff_n(const char *text, size_t n, brim_str *out) {
  bool line_start = out->len == 0 || out->data[out->len - 1] == '\n';
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (line_start && (c == '.' || c == '\'')) brim_str_append(out, "\\&");
    if (c == '\\') {
      brim_str_append(out, "\\e");
    } else if (c == '-') {
      brim_str_append(out, "\\-");
    } else {
      brim_str_append_char(out, c);
    }
    line_start = c == '\n';
  }
}

static void roff(const char *text, brim_str *out) { roff_n(text, strlen(text), out); }

static void roff_value(const brim_option *o, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  bool dots = o->multiple && !o->optional;  // the dots are not in italics
  if (dots) {
    brim_str_append(&text, brim_option_metavar(o));
  } else {
    brim_option_value_text(o, &text);
  }
  brim_str_append(out, " \\fI");
  roff(text.data ? text.data : "", out);
  brim_str_append(out, dots ? "\\fR..." : "\\fR");
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

static void roff_option(const brim_option *o, brim_str *out) {
  brim_str_append(out, ".TP\n");
  if (o->short_name) brim_str_printf(out, "\\fB\\-%c\\fR, ", o->short_name);
  brim_str_append(out, "\\fB\\-\\-");
  if (o->negatable) roff("[no-]", out);
  roff(o->name, out);
  brim_str_append(out, "\\fR");
  bool flag = o->kind == BRIM_OPTION_FLAG;
  if (!flag || o->choices) roff_value(o, out);
  brim_str_append_char(out, '\n');
  if (o->help) roff(brim_tr(o->help), out);
  if (o->choices && !flag) {
    roff(brim_tr("; one of"), out);
    for (const char *const *c = o->choices; *c; c++) {
      brim_str_append(out, c == o->choices ? " " : ", ");
      roff(*c, out);
    }
  }
  if (o->default_text) {
    brim_str_append(out, brim_tr(" (default "));
    roff(strchr(o->default_text, ' ') ? brim_tr(o->default_text) : o->default_text, out);
    brim_str_append_char(out, ')');
  }
  brim_str_append(out, ".\n");
  if (o->key) {
    brim_str_append(out, brim_tr("Sets the key "));
    brim_str_append(out, "\\fB");
    roff(o->key, out);
    brim_str_append(out, "\\fR.\n");
  }
  if (o->aliases && o->aliases[0]) {
    brim_str_append(out, brim_tr("Also"));
    for (const char *const *a = o->aliases; *a; a++) {
      brim_str_append(out, " \\fB");
      roff(strlen(*a) == 1 ? "-" : "--", out);
      roff(*a, out);
      brim_str_append(out, "\\fR");
    }
    brim_str_append(out, ".\n");
  }
}

static void roff_options(const brim_option *table, brim_str *out) {
  for (const brim_option *o = table; o->name; o++) roff_option(o, out);
}

static void roff_lines(const char *text, const char *before, brim_str *out) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_append(out, before);
    roff_n(text, n, out);
    brim_str_append_char(out, '\n');
    text += n + (text[n] == '\n');
  }
}

static void roff_examples(const char *text, brim_str *out) {
  bool comment = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_append(out, comment ? ".PP\n" : ".RS\n.nf\n");
    roff_n(text, n, out);
    brim_str_append(out, comment ? ":\n" : "\n.fi\n.RE\n");
    comment = !comment;
    text += n + (text[n] == '\n');
  }
}

static void roff_command(const brim_cli_command *command, brim_str *out) {
  const char *text = command->usage;
  brim_str_printf(out, ".SS brim %s\n", command->name);
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_printf(out, ".br\n\\fBbrim %s\\fR ", command->name);
    roff_n(text, n, out);
    brim_str_append_char(out, '\n');
    text += n + (text[n] == '\n');
  }
  brim_str about;
  brim_str_init(&about);
  command_about(command, &about);
  roff_lines(about.data ? about.data : "", ".PP\n", out);
  if (!out->status) out->status = about.status;
  brim_str_deinit(&about);
  const brim_option *tables[BRIM_CLI_MAX_TABLES];
  brim_cli_option_tables(command, tables);
  for (size_t i = 0; tables[i]; i++) roff_options(tables[i], out);
}

static void roff_topic(const char *name, const char *heading, brim_str *out) {
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    const brim_cli_topic topic = brim_cli_topic_at(i);
    if (strcmp(topic.name, name) != 0) continue;
    brim_str text;
    brim_str_init(&text);
    brim_cli_topic_write(&topic, 72, &text);
    brim_str_printf(out, ".SH %s\n.nf\n", heading);
    roff(text.data, out);
    brim_str_append(out, ".fi\n");
    if (brim_str_status(&text) && !out->status) out->status = text.status;
    brim_str_deinit(&text);
  }
}

static brim_status man_page(const brim_cli_command *const *commands, brim_str *out) {
  brim_str_append(out, ".\\\" Made by `brim help --man`; do not edit.\n");
  brim_str_printf(out, ".TH BRIM 1 \"\" \"brim %s\" \"User Commands\"\n", BRIM_VERSION);
  brim_str_printf(out, ".SH %s\n", brim_tr("NAME"));
  brim_str_append(out, "brim \\- ");
  roff(brim_tr("find the fastest training settings and train with them"), out);
  brim_str_append_char(out, '\n');
  brim_str_printf(out, ".SH %s\n", brim_tr("SYNOPSIS"));
  brim_str_append(out, "\\fBbrim\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n");
  brim_str_printf(out, ".SH %s\n", brim_tr("DESCRIPTION"));
  roff(brim_tr("brim shows why training is slow, finds the fastest settings that fit in memory, "
               "and trains with them. It runs on NVIDIA GPUs and on CPUs.\n"),
       out);
  brim_str_printf(out, ".SH %s\n", brim_tr("COMMANDS"));
  for (const brim_cli_command *const *c = commands; *c; c++) roff_command(*c, out);
  brim_str_printf(out, ".SH %s\n", brim_tr("GLOBAL OPTIONS"));
  roff_options(brim_cli_global_options(), out);
  roff_topic("config", brim_tr("CONFIGURATION"), out);
  roff_topic("components", brim_tr("COMPONENTS"), out);
  roff_topic("checkpoints", brim_tr("FILES"), out);
  roff_topic("exit-codes", brim_tr("EXIT STATUS"), out);
  roff_topic("environment", brim_tr("ENVIRONMENT"), out);
  brim_str_printf(out, ".SH %s\n", brim_tr("EXAMPLES"));
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str text;
    brim_str_init(&text);
    command_examples(*c, &text);
    roff_examples(text.data ? text.data : "", out);
    if (!out->status) out->status = text.status;
    brim_str_deinit(&text);
  }
  return brim_str_status(out);
}

//---------------------------------- the command ----------------------------------

static brim_status unknown(brim_cli *cli, const char *word) {
  const char *names[64];
  size_t n = 0;
  for (const brim_cli_command *const *c = cli->commands; *c && n < 31; c++) {
    names[n++] = (*c)->name;
  }
  for (size_t i = 0; i < brim_cli_topic_count() && n < 63; i++) {
    names[n++] = brim_cli_topic_at(i).name;
  }
  names[n] = NULL;
  const char *near = brim_nearest(word, names);
  // No similar spelling: try names that begin with the word, so `exit` finds exit-codes.
  for (size_t i = 0; !near && *word && i < n; i++) {
    if (brim_str_starts(names[i], word)) near = names[i];
  }
  if (near) {
    return brim_cli_usage(cli, BRIM_N_("no command or topic '%.100s'; did you mean '%s'?"), word,
                          near);
  }
  return brim_cli_usage(cli, BRIM_N_("no command or topic '%.100s'; brim help lists them all"),
                        word);
}

static brim_status write_help(brim_cli *cli, const char *word, int width, brim_str *out) {
  if (!word) {
    help_overview(cli->commands, width, out);
    return BRIM_OK;
  }
  // A word may be both: config is a command and a topic.
  const brim_cli_command *command = brim_cli_command_find(cli->commands, word);
  brim_cli_topic topic = {.name = NULL};
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    if (strcmp(brim_cli_topic_at(i).name, word) == 0) topic = brim_cli_topic_at(i);
  }
  if (!command && !topic.name) return unknown(cli, word);
  if (command) help_command(command, width, out);
  if (command && topic.name) brim_str_append_char(out, '\n');
  if (topic.name) brim_cli_topic_write(&topic, width, out);
  return BRIM_OK;
}

static int width_of(const brim_cli *cli) {
  int width = cli->out.width ? cli->out.width : 80;
  return width < 100 ? width : 100;
}

brim_status brim_cli_show_help(brim_cli *cli) {
  if (cli->json) return help_json(cli);
  brim_str text;
  brim_str_init(&text);
  if (cli->command) {
    help_command(cli->command, width_of(cli), &text);
  } else {
    help_overview(cli->commands, width_of(cli), &text);
  }
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

static brim_status run(brim_cli *cli) {
  if (cli->parse.positional_count > 1) {
    return brim_cli_usage(cli, BRIM_N_("help takes one command or topic"));
  }
  if (cli->json) return help_json(cli);
  brim_str text;
  brim_str_init(&text);
  const char *word = cli->parse.positional_count ? cli->parse.positional[0] : NULL;
  brim_status status = brim_option_flag(&cli->parse, "man", false)
                           ? man_page(cli->commands, &text)
                           : write_help(cli, word, width_of(cli), &text);
  return brim_cli_finish_text(cli, &text, status);
}

const brim_cli_command brim_cli_help = {
    .name = "help",
    .summary = BRIM_N_("explain a command or a topic"),
    .usage = "[COMMAND|TOPIC] [--man] [--json]",
    .about = BRIM_N_(
        "Explains a command or a topic. --json prints every command and option as one JSON value."),
    .examples = "",
    .options = options,
    .run = run,
};
