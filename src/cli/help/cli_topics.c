// The topics of `brim help`: the list, and those about the program itself (configs, components, exit
// codes, environment). The others are in cli_topics_more.c.
#include "cli/help/cli_topics.h"

#include <stdio.h>

#include "workload/workload.h"

static void exit_codes(int width, brim_str *out) {
  static const brim_topic_pair codes[] = {
#define X(id, code, meaning) {#code, meaning},
      BRIM_CLI_EXIT_MAP(X)
#undef X
  };
  brim_topic_paragraph(brim_tr("Exit codes:"), width, out);
  brim_topic_pairs(codes, sizeof codes / sizeof codes[0], 8, width, out);
  brim_str_append_char(out, '\n');
  brim_topic_paragraph(
      brim_tr("On the first Ctrl-C, SIGTERM or SIGHUP brim finishes the step, saves and exits with "
              "130. A second one, at least one second later, ends brim immediately. Work since the "
              "last checkpoint is then lost, and the shell shows 130, 143 or 129. bench writes "
              "each record to disk as soon as it is measured."),
      width, out);
  brim_topic_paragraph(
      brim_tr("Every command checks its output path before it starts. A missing folder, a missing "
              "permission or an existing file of another kind exits with 2. A failure while "
              "writing, such as a full disk, exits with 1."),
      width, out);
}

static void environment(int width, brim_str *out) {
  static const brim_topic_pair variables[] = {
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
  brim_topic_paragraph(brim_tr("Environment variables brim reads:"), width, out);
  brim_topic_pairs(variables, sizeof variables / sizeof variables[0], 26, width, out);
}

static void config(int width, brim_str *out) {
  brim_topic_paragraph(brim_tr("A config is a YAML file. Every key has one meaning, one default "
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
  brim_topic_paragraph(
      brim_tr(
          "Later sources override earlier ones: defaults, a preset in the file, included files, "
          "the file, a preset on the command line (preset=rtx3060-12g), options, key.path=value "
          "arguments. brim config show --origins prints the source of each value."),
      width, out);
  brim_topic_paragraph(
      brim_tr("A list in place of one value is an axis of a grid: lr: [0.1, 0.01]. zip changes "
              "axes together, exclude removes points, and brim config grid lists the points."),
      width, out);
}

static void components(int width, brim_str *out) {
  brim_topic_paragraph(
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
  brim_topic_paragraph(brim_tr("brim config explain NAME describes a component and its arguments. "
                               "Write plugin:NAME for a component from a plug-in."),
                       width, out);
}

static const brim_cli_topic topics[] = {
    {"config", BRIM_N_("write and combine configs"), config, NULL},
    {"components", BRIM_N_("expressions like mlp(depth=4) and pipelines"), components, NULL},
    {"data", BRIM_N_("data formats, and how brim detects them"), brim_topic_data, NULL},
    {"transforms", BRIM_N_("transforms of samples"), brim_topic_transforms, NULL},
    {"models", BRIM_N_("networks, losses, optimizers, schedules"), brim_topic_models, NULL},
    {"training", BRIM_N_("from a folder of images to a trained model"), brim_topic_training, NULL},
    {"precision", BRIM_N_("fp32, tf32, bf16, fp16"), brim_topic_precision, NULL},
    {"memory", BRIM_N_("the memory plan, and what to do if it does not fit"), brim_topic_memory,
     NULL},
    {"bench", BRIM_N_("run a sweep and read its result"), brim_topic_bench, NULL},
    {"sweep", BRIM_N_("run many experiments and continue them"), brim_topic_sweep, NULL},
    {"checkpoints", BRIM_N_("files of a run, and their use in other programs"),
     brim_topic_checkpoints, NULL},
    {"resume", BRIM_N_("resume after an interruption"), brim_topic_resume, NULL},
    {"logs", BRIM_N_("log.csv, log.jsonl, TensorBoard"), brim_topic_logs, NULL},
    {"language", BRIM_N_("English and Korean"), brim_topic_language, NULL},
    {"exit-codes", BRIM_N_("exit codes and their meaning"), exit_codes, NULL},
    {"environment", BRIM_N_("environment variables"), environment, NULL},
};

enum { TOPICS = sizeof topics / sizeof topics[0] };

// Pages of workloads stand behind that of training.
static size_t first_of_workloads(void) {
  for (size_t i = 0; i < TOPICS; i++) {
    if (topics[i].write == brim_topic_training) return i + 1;
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

static size_t pages(void) {
  size_t n = 0;
  while (workload_with_page(n)) n++;
  return n;
}

size_t brim_cli_topic_count(void) { return TOPICS + pages(); }

brim_cli_topic brim_cli_topic_at(size_t index) {
  size_t first = first_of_workloads(), count = pages();
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
      brim_topic_paragraph(brim_tr(part), width, out);
    }
  }
  snprintf(prefix, sizeof prefix, "%s.", topic->name);
  brim_topic_keys(prefix, width, out);
}
