// The topics of `brim help`: the list, what they are put together from, and those about the program
// itself (configs, components, exit codes, environment). The others are in cli_topics_more.c.
#include "cli/cli_topics.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"

void brim_topic_pairs(const brim_topic_pair *pairs, size_t count, int column, int width,
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

void brim_topic_paragraph(const char *text, int width, brim_str *out) {
  brim_term term = {.width = width};
  brim_ui_wrap(out, &term, text, 0);
  brim_str_append(out, "\n\n");
}

void brim_topic_keys(const char *prefix, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!brim_str_starts(key->name, prefix) || !brim_config_key_is_used(key)) continue;
    brim_topic_pairs(&(brim_topic_pair){key->name, key->meaning}, 1, 30, width, out);
  }
}

void brim_topic_components(const char *category, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    brim_config_named row = brim_config_component_named(i);
    if (strcmp(row.category, category) != 0) continue;
    brim_topic_pairs(&(brim_topic_pair){row.name, row.meaning}, 1, 24, width, out);
  }
}

static void exit_codes(int width, brim_str *out) {
  static const brim_topic_pair codes[] = {
#define X(id, code, meaning) {#code, meaning},
      BRIM_CLI_EXIT_MAP(X)
#undef X
  };
  brim_topic_paragraph(brim_tr("What brim's exit code says:"), width, out);
  brim_topic_pairs(codes, sizeof codes / sizeof codes[0], 8, width, out);
  brim_str_append_char(out, '\n');
  brim_topic_paragraph(
      brim_tr("The first Ctrl-C, SIGTERM or SIGHUP lets the step finish, saves and exits "
              "130. Another one, a second or more later, ends brim by that signal at "
              "once: nothing is saved since "
              "the last checkpoint, and a shell shows 130, 143 or 129. bench has its "
              "records on disk as soon as they are measured."),
      width, out);
  brim_topic_paragraph(
      brim_tr("An output that cannot be made where it was asked for (no such folder, no "
              "permission, something else in the way) is found before the work begins, and is "
              "2 with every command. One that fails later, as on a full disk, is 1."),
      width, out);
}

static void environment(int width, brim_str *out) {
  static const brim_topic_pair variables[] = {
      {"NO_COLOR", BRIM_N_("not empty: no colour")},
      {"CLICOLOR_FORCE", BRIM_N_("not 0: colour even when the output is no terminal")},
      {"TERM", BRIM_N_("dumb: no colour, no redrawn line")},
      {"COLUMNS", BRIM_N_("width of tables and help")},
      {"LC_ALL, LC_CTYPE, LANG", BRIM_N_("UTF-8 there: lines, bars and dots beyond ASCII")},
      {"LC_ALL, LC_MESSAGES, LANG",
       BRIM_N_("ko there: messages, help and reports in Korean, unless --lang says otherwise")},
      {"BRIM_PLUGIN_PATH",
       BRIM_N_("folders to load plug-ins from, separated by colons, in place of lib/brim beside "
               "the program")},
      {"XDG_CACHE_HOME",
       BRIM_N_("folder below which brim keeps what it measured of a machine (brim/); ~/.cache when "
               "not set")},
      {"BRIM_ALLOC_FAIL", BRIM_N_("for tests: the nth allocation fails")},
      {"BRIM_HDF5_LIMIT_S",
       BRIM_N_("for tests: seconds that libhdf5 may compute on one file or row, 60 when not set")},
  };
  brim_topic_paragraph(brim_tr("Environment variables brim reads:"), width, out);
  brim_topic_pairs(variables, sizeof variables / sizeof variables[0], 26, width, out);
}

static void config(int width, brim_str *out) {
  brim_topic_paragraph(
      brim_tr("A config is a YAML file. Every key has one meaning, one default and often "
              "several spellings; brim config explain lists them. A key that is not known "
              "is an error that names the nearest one."),
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
      brim_tr("From weak to strong: defaults, a preset named in the file, files named by "
              "include, the file itself, a preset given on the command line "
              "(preset=rtx3060-12g), options, key.path=value words. brim config show "
              "--origins shows where each value comes from."),
      width, out);
  brim_topic_paragraph(
      brim_tr("A list where one value is expected is an axis of a grid: lr: [0.1, 0.01]. "
              "zip moves axes together, exclude leaves points out, brim config grid "
              "lists them."),
      width, out);
}

static void components(int width, brim_str *out) {
  brim_topic_paragraph(
      brim_tr("Models, losses, optimisers, schedulers, data sets and transforms are named "
              "by expressions: a name, or a name with arguments. Values are numbers, "
              "words, lists [1, 2], tuples (0.8, 1.0) or other components. Transforms are "
              "pipelines: stages with | between them."),
      width, out);
  brim_str_append(out,
                  "  model: mlp(depth=3, hidden=512, dropout=0.1)\n"
                  "  optimizer: sgd(lr=0.1, momentum=0.9, nesterov=true)\n"
                  "  transform:\n"
                  "    train: random_crop(size=28, padding=2) | cutout(size=8)\n"
                  "    val: center_crop(size=28)\n\n");
  brim_topic_paragraph(
      brim_tr("brim config explain NAME says what a component does and which arguments it "
              "takes. A plug-in's component is written plugin:NAME."),
      width, out);
}

static const brim_cli_topic topics[] = {
    {"config", BRIM_N_("how configs are written and put together"), config},
    {"components", BRIM_N_("expressions like mlp(depth=4) and pipelines"), components},
    {"data", BRIM_N_("what can be trained on, and how it is found"), brim_topic_data},
    {"transforms", BRIM_N_("what is done to samples"), brim_topic_transforms},
    {"models", BRIM_N_("networks, losses, optimisers, schedules"), brim_topic_models},
    {"training", BRIM_N_("from a folder of images to a trained model"), brim_topic_training},
    {"contrastive", BRIM_N_("learning features without labels"), brim_topic_contrastive},
    {"ars", BRIM_N_("a robot that learns to stand or walk"), brim_topic_ars},
    {"precision", BRIM_N_("fp32, tf32, bf16, fp16"), brim_topic_precision},
    {"memory", BRIM_N_("what is planned, and what to do when it does not fit"), brim_topic_memory},
    {"bench", BRIM_N_("how a sweep is made and read"), brim_topic_bench},
    {"checkpoints", BRIM_N_("the files a run leaves, and other programs"), brim_topic_checkpoints},
    {"resume", BRIM_N_("going on after an interruption"), brim_topic_resume},
    {"logs", BRIM_N_("log.csv, log.jsonl, TensorBoard"), brim_topic_logs},
    {"language", BRIM_N_("English and Korean"), brim_topic_language},
    {"exit-codes", BRIM_N_("what the exit code says"), exit_codes},
    {"environment", BRIM_N_("environment variables"), environment},
};

size_t brim_cli_topic_count(void) { return sizeof topics / sizeof topics[0]; }
const brim_cli_topic *brim_cli_topic_at(size_t index) { return &topics[index]; }
