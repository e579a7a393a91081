// `brim predict CHECKPOINT --data-path P [--output FILE]`: writes the outputs of a trained network for every sample.
#include "cli/trained/cli_trained.h"
#include "data/pack/data_columns.h"
#include "workload/learn/learn_scores.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("FILE.csv, FILE.jsonl or FILE.h5 to write; - is the standard output"),
     .default_text = "predictions.csv"},
    {.name = "force", .help = BRIM_N_("replace the file if it exists")},
    {.name = "proba", .help = BRIM_N_("also write the probability of every class")},
    {.name = "logits", .help = BRIM_N_("also write the raw outputs of the network")},
    {.name = "features",
     .help = BRIM_N_("write only the features before the last layer or projection")},
    BRIM_CLI_TRAINED_OPTIONS,
    BRIM_CLI_TRAINED_RUN_OPTIONS,
    {0},
};

#define STANDARD_OUTPUT "predictions.csv"

enum { BLOCK = 4096 };  // rows written at once
enum { MAX_COLUMNS = 9 };

typedef struct prediction {
  brim_cli_trained *c;
  brim_columns_format format;
  bool features;        // write features instead of outputs
  size_t width;         // outputs or features of a row
  brim_columns *table;  // NULL before the first row
  brim_column columns[MAX_COLUMNS];
  size_t column_count;
  const void *data[MAX_COLUMNS];  // the arrays below, column by column
  uint64_t total, next;           // rows of the table; index of the next row to begin
  // A block of rows to write at once. A sample that cannot be read has a row with unknown values.
  uint64_t rows, room;
  uint64_t *index;
  const char **file, **class_name;
  char *names;  // room for the files' names
  size_t name_bytes;
  int32_t *label, *target;
  float *probability, *proba, *logits;
  float *values;  // targets of a regression or of labels, as wide as the outputs
} prediction;

//---------------------------------- columns ----------------------------------

static void add_column(prediction *p, const brim_column *column, const void *data) {
  p->columns[p->column_count] = *column;
  p->data[p->column_count++] = data;
}

// Bytes of the longest file name, with the terminating 0.
static size_t longest_name(const brim_source *source) {
  size_t longest = 1;
  for (uint64_t i = 0; i < source->info.count; i++) {
    char text[4096];
    brim_source_describe(source, i, text, sizeof text);
    size_t n = strlen(text) + 1;
    if (n > longest) longest = n;
  }
  return longest;
}

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the predictions");
}

static brim_status make_room(prediction *p) {
  size_t width = p->width, rows;
  p->room = width > 4096 ? 64 : BLOCK;
  rows = p->room;
  p->index = brim_calloc(rows, sizeof *p->index);
  p->file = brim_calloc(rows, sizeof *p->file);
  p->class_name = brim_calloc(rows, sizeof *p->class_name);
  p->names = brim_calloc(rows, p->name_bytes ? p->name_bytes : 1);
  p->label = brim_calloc(rows, sizeof *p->label);
  p->target = brim_calloc(rows, sizeof *p->target);
  p->probability = brim_calloc(rows, sizeof *p->probability);
  p->proba = brim_calloc(rows * width, sizeof *p->proba);
  p->logits = brim_calloc(rows * width, sizeof *p->logits);
  p->values = brim_calloc(rows * width, sizeof *p->values);
  bool good = p->index && p->file && p->class_name && p->names && p->label && p->target &&
              p->probability && p->proba && p->logits && p->values;
  return good ? BRIM_OK : no_memory();
}

static void class_columns(prediction *p) {
  const brim_trained *t = p->c->trained;
  const brim_option_parse *options_given = &p->c->cli->parse;
  size_t longest = 1;
  for (int64_t i = 0; t->class_names && i < t->outputs; i++) {
    size_t n = strlen(t->class_names[i]) + 1;
    if (n > longest) longest = n;
  }
  const brim_column label = {.name = "label",
                             .kind = BRIM_COLUMN_LABEL,
                             .labels = t->class_names,
                             .label_count = t->class_names ? (size_t)t->outputs : 0};
  const brim_column name = {.name = "class", .kind = BRIM_COLUMN_TEXT, .text_bytes = longest};
  const brim_column target = {.name = "target", .kind = BRIM_COLUMN_LABEL};
  const brim_column probability_column = {.name = "probability", .kind = BRIM_COLUMN_REAL};
  const brim_column proba = {.name = "probabilities",
                             .kind = BRIM_COLUMN_REAL,
                             .width = t->outputs,
                             .parts = t->class_names,
                             .prefix = "p_"};
  const brim_column logits = {.name = "logits",
                              .kind = BRIM_COLUMN_REAL,
                              .width = t->outputs,
                              .parts = t->class_names,
                              .prefix = "logit_"};
  add_column(p, &label, p->label);
  if (t->class_names) add_column(p, &name, p->class_name);
  add_column(p, &probability_column, p->probability);
  if (p->c->data.labelled) add_column(p, &target, p->target);
  if (brim_option_flag(options_given, "proba", false)) add_column(p, &proba, p->proba);
  if (brim_option_flag(options_given, "logits", false)) add_column(p, &logits, p->logits);
}

static void make_columns(prediction *p) {
  const brim_trained *t = p->c->trained;
  const brim_column index = {.name = "index", .kind = BRIM_COLUMN_INDEX};
  const brim_column file = {.name = "file", .kind = BRIM_COLUMN_TEXT, .text_bytes = p->name_bytes};
  add_column(p, &index, p->index);
  if (p->name_bytes) add_column(p, &file, p->file);
  if (t->task == BRIM_TASK_CLASSES && !p->features) {
    class_columns(p);
    return;
  }
  bool labels = t->task == BRIM_TASK_LABELS && !p->features;
  bool numbers = (labels || t->task == BRIM_TASK_VALUES) && !p->features;
  const char *name = p->features ? "features"
                     : labels    ? "probabilities"
                     : numbers   ? "values"
                                 : "embedding";
  const char *prefix = p->features ? "feature_"
                       : labels    ? "proba_"
                       : numbers   ? "value_"
                                   : "embedding_";
  const brim_column values = {
      .name = name, .kind = BRIM_COLUMN_REAL, .width = (int64_t)p->width, .prefix = prefix};
  add_column(p, &values, labels ? p->proba : p->logits);
  const brim_column targets = {.name = "target",
                               .kind = BRIM_COLUMN_REAL,
                               .width = p->width > 1 ? (int64_t)p->width : 0,
                               .prefix = "target_"};
  if (numbers && p->c->data.labelled) add_column(p, &targets, p->values);
}

//---------------------------------- rows ----------------------------------

static brim_status flush(prediction *p) {
  if (p->rows == 0) return BRIM_OK;
  brim_status status = brim_columns_put(p->table, p->data, p->rows);
  p->rows = 0;
  return status;
}

// Begins the next row with unknown values.
static brim_status open_row(prediction *p) {
  if (p->rows == p->room) BRIM_TRY(flush(p));
  uint64_t at = p->rows++;
  size_t width = p->width;
  p->index[at] = p->next;
  p->class_name[at] = "";
  p->file[at] = "";
  if (p->name_bytes) {
    char *name = p->names + at * p->name_bytes;
    brim_source_describe(p->c->data.source, p->next, name, p->name_bytes);
    p->file[at] = name;
  }
  p->label[at] = p->target[at] = -1;
  p->probability[at] = NAN;
  for (size_t i = 0; i < width; i++) {
    p->proba[at * width + i] = p->logits[at * width + i] = p->values[at * width + i] = NAN;
  }
  p->next++;
  return BRIM_OK;
}

static void fill_row(prediction *p, const brim_trained_rows *rows, int64_t row) {
  const brim_trained *t = p->c->trained;
  size_t width = p->width;
  uint64_t at = p->rows - 1;
  const float *outputs = rows->outputs + (size_t)row * width;
  memcpy(p->logits + at * width, outputs, width * sizeof *outputs);
  bool labels = t->task == BRIM_TASK_LABELS;
  for (size_t i = 0; i < width && labels; i++) {
    p->proba[at * width + i] = 1 / (1 + expf(-outputs[i]));
  }
  if ((labels || t->task == BRIM_TASK_VALUES) && !p->features && rows->target) {
    memcpy(p->values + at * width, rows->target + (size_t)row * width, width * sizeof *outputs);
  }
  if (t->task != BRIM_TASK_CLASSES || p->features) return;
  p->label[at] = brim_scores_argmax(outputs, t->outputs, &p->probability[at]);
  if (p->label[at] >= 0 && t->class_names) p->class_name[at] = t->class_names[p->label[at]];
  brim_scores_softmax(outputs, t->outputs, p->proba + at * width);
  if (rows->label) p->target[at] = rows->label[row];
}

// Creates the table when the first rows tell their width.
static brim_status create_table(prediction *p, int64_t width) {
  p->width = (size_t)width;
  if (strcmp(p->c->data.source->table->name, "folder") == 0) {
    p->name_bytes = longest_name(p->c->data.source);
  }
  BRIM_TRY(make_room(p));
  make_columns(p);
  bool replace = brim_option_flag(&p->c->cli->parse, "force", false);
  return brim_columns_create(p->c->output, replace, p->format, p->columns, p->column_count,
                             p->total, &p->table);
}

static brim_status on_rows(void *ctx, const brim_trained_rows *rows) {
  prediction *p = ctx;
  if (!p->table) BRIM_TRY(create_table(p, rows->width));
  for (int64_t i = 0; i < rows->rows; i++) {
    while (p->next <= rows->index[i])
      BRIM_TRY(open_row(p));  // skipped samples could not be read: their rows stay unknown
    fill_row(p, rows, i);
  }
  brim_cli_trained_tick(p->c, rows->rows);
  return BRIM_OK;
}

//---------------------------------- the result ----------------------------------

static brim_status show(const brim_cli_trained *c, const brim_trained_result *r) {
  double seconds = (double)brim_time_since_ns(c->start, brim_clock_now()) / 1e9;
  char count[32], time[32];
  if (strcmp(c->output, "-") == 0) {  // stdout gets only the rows
    brim_format_count((double)c->data.source->info.count, count);
    bool single = c->data.source->info.count == 1;
    brim_cli_note(c->cli, single ? brim_tr("%s row\n") : brim_tr("%s rows\n"), count);
    return BRIM_OK;
  }
  if (c->cli->json) {
    json_t *f = json_object();
    brim_status s = brim_cli_trained_json(c, f);
    if (!s) s = brim_json_put(f, "output", json_string(c->output));
    if (!s) s = brim_json_put(f, "rows", json_integer((json_int_t)c->data.source->info.count));
    if (!s) s = brim_json_put(f, "broken", json_integer(r->broken));
    if (!s) s = brim_json_put(f, "seconds", brim_json_number(seconds));
    return brim_cli_finish_event(c->cli, "predicted", f, s);
  }
  brim_str out, text;
  brim_str_init(&out);
  brim_str_init(&text);
  brim_format_count((double)c->data.source->info.count, count);
  brim_format_duration(seconds, time);
  brim_ui_styled(&out, &c->cli->out, BRIM_UI_BOLD, c->output);
  bool one = c->data.source->info.count == 1;
  brim_str_printf(&out, one ? brim_tr(": %s row, %s\n") : brim_tr(": %s rows, %s\n"), count, time);
  brim_cli_trained_model_text(c, &text);
  brim_cli_row(&c->cli->out, brim_tr("model"), text.data, &out);
  brim_cli_trained_device_rows(c, &out);
  brim_str_clear(&text);
  brim_cli_trained_data_text(c, &text);
  brim_cli_row(&c->cli->out, brim_tr("data"), text.data, &out);
  brim_str_deinit(&text);
  return brim_cli_finish_text(c->cli, &out, BRIM_OK);
}

static void deinit(prediction *p) {
  brim_columns_abort(p->table);
  brim_free(p->index);
  brim_free(p->file);
  brim_free(p->class_name);
  brim_free(p->names);
  brim_free(p->label);
  brim_free(p->target);
  brim_free(p->probability);
  brim_free(p->proba);
  brim_free(p->logits);
  brim_free(p->values);
}

static brim_status predict(brim_cli_trained *c, brim_columns_format format) {
  prediction p = {.c = c,
                  .format = format,
                  .features = brim_option_flag(&c->cli->parse, "features", false),
                  .total = c->data.source->info.count};
  brim_trained_result result;
  brim_status status = brim_cli_trained_run(c, "predict", on_rows, &p, &result);
  while (!status && p.next < p.total) status = open_row(&p);  // the last samples could not be read
  if (!status) status = flush(&p);
  if (!status) {
    status = brim_columns_commit(p.table);
    p.table = NULL;
  }
  deinit(&p);
  return status ? status : show(c, &result);
}

//---------------------------------- the command ----------------------------------

// Refuses models that take no samples, such as a policy that acts in an environment.
static brim_status check_kind(const brim_trained *t) {
  char what[128];
  if (brim_cli_trained_takes_samples(t)) return BRIM_OK;
  brim_cli_trained_describe(t, what, sizeof what);
  if (!brim_cli_trained_can_be_shown(t)) {
    return brim_fail(BRIM_EINVAL, "%s: %s takes no samples", t->path, what);
  }
  return brim_fail(BRIM_EINVAL, "%s: %s takes no samples; use `brim eval` or `brim render`",
                   t->path, what);
}

// Refuses --proba and --logits, unless the model is a classifier and its outputs are written.
static brim_status check_columns(const brim_cli_trained *c) {
  static const char *const names[] = {"proba", "logits"};
  bool features = brim_option_flag(&c->cli->parse, "features", false);
  if (c->trained->task == BRIM_TASK_CLASSES && !features) return BRIM_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!brim_option_flag(&c->cli->parse, names[i], false)) continue;
    return features ? brim_cli_usage(c->cli,
                                     BRIM_N_("--%s and --features conflict; give only one of them"),
                                     names[i])
                    : brim_cli_usage(c->cli,
                                     BRIM_N_("--%s needs a classifier, and %.200s is not one; brim "
                                             "writes its outputs without it"),
                                     names[i], c->trained->path);
  }
  return BRIM_OK;
}

// Chooses the format by the end of the name. The standard output gets CSV, or JSON lines with --json.
static brim_status choose_format(brim_cli *cli, brim_columns_format *out) {
  const char *output = brim_option_string(&cli->parse, "output", STANDARD_OUTPUT);
  *out = cli->json ? BRIM_COLUMNS_JSONL : BRIM_COLUMNS_CSV;
  if (strcmp(output, "-") == 0 || brim_columns_format_of(output, out)) return BRIM_OK;
  return brim_cli_usage(cli, BRIM_N_("--output ends in .csv, .jsonl or .h5, not '%.200s'"), output);
}

static brim_status run(brim_cli *cli) {
  brim_columns_format format;
  BRIM_TRY(choose_format(cli, &format));
  brim_cli_trained c;
  bool piped = strcmp(brim_option_string(&cli->parse, "output", STANDARD_OUTPUT), "-") == 0;
  if (piped) (void)signal(SIGPIPE, SIG_DFL);  // end when the reader closes the pipe
  BRIM_TRY(brim_cli_trained_init(cli, &c));
  const brim_trained_want want = {.split = brim_option_string(&cli->parse, "split", NULL),
                                  .any = true};
  brim_status status = check_kind(c.trained);
  if (!status) status = brim_cli_trained_output(&c, STANDARD_OUTPUT);
  if (!status) status = brim_cli_trained_data(&c, &want);
  if (!status) status = check_columns(&c);
  if (!status) status = brim_cli_trained_device(&c);
  if (!status) brim_cli_trained_notes(&c);
  if (!status) status = predict(&c, format);
  brim_cli_trained_deinit(&c);
  return status;
}

const brim_cli_command brim_cli_predict = {
    .name = "predict",
    .summary = BRIM_N_("write the predictions of a trained network"),
    .usage = "CHECKPOINT --data-path PATH [--output FILE] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Writes one row per sample, in the order of the data. A row has the index, the image file, "
        "and the predicted class with its probability, or the predicted numbers. The data needs no "
        "labels: a folder of images without classes, an HDF5 file with inputs only, or a single "
        "image works. Without --split brim uses the test set, or val, or train. brim resizes "
        "images of another size. --features writes the values before the last layer instead, for "
        "search and clustering.\nNormalization and transform.val come from training; key=value "
        "overrides them. brim never leaves a partial file, and replaces an existing file only with "
        "--force. `--output -` writes rows to the standard output: CSV, or JSON lines with "
        "--json."),
    .examples = BRIM_N_("every image of a folder\n"
                        "brim predict runs/pets/best.safetensors --data-path photos -o pets.csv\n"
                        "one image\n"
                        "brim predict best.safetensors --data-path cat.jpg -o cat.jsonl --proba\n"
                        "for a script\n"
                        "brim predict best.safetensors --data-path data.h5 -o out.h5 --logits\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
