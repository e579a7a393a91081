// `brim eval CHECKPOINT`: how good a trained network is, on any labelled data that suit it. The
// figures themselves are src/workload/workload_scores.c's; cli_eval_show.c shows and writes them.
#include "cli/trained/cli_eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write all results and the confusion matrix: FILE.json or FILE.csv")},
    {.name = "force", .help = BRIM_N_("replace the file if it exists")},
    BRIM_CLI_TRAINED_OPTIONS,
    BRIM_CLI_TRAINED_RUN_OPTIONS,
    {0},
};

static brim_status on_rows(void *ctx, const brim_trained_rows *rows) {
  brim_cli_eval *e = ctx;
  brim_scores_add(e->scores, rows);
  brim_cli_trained_tick(e->c, rows->rows);
  return BRIM_OK;
}

static brim_status evaluate_outputs(brim_cli_eval *e) {
  brim_cli_trained *c = e->c;
  const brim_trained_want want = {.split = brim_option_string(&c->cli->parse, "split", NULL),
                                  .targets = true};
  BRIM_TRY(brim_cli_trained_data(c, &want));
  BRIM_TRY(brim_cli_trained_device(c));
  brim_cli_trained_notes(c);
  BRIM_TRY(brim_scores_create(c->trained->task, c->trained->outputs, &e->scores));
  BRIM_TRY(brim_cli_trained_run(c, "eval", on_rows, e, &e->result));
  brim_scores_get(e->scores, &e->summary);
  if (e->summary.rows > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "no sample has a target for evaluation");
}

//---------------------------------- other workloads ----------------------------------

static json_t *figure_json(const brim_metric *row, double value) {
  bool whole = row->format == BRIM_METRIC_WHOLE && !isnan(value);
  return whole ? json_integer((json_int_t)value) : brim_json_number(value);
}

// The rows of a stage under their names.
static brim_status put_figures(json_t *figures, const brim_metric_set *set, brim_metric_stage stage,
                               const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    const brim_metric *row = &set->rows[i];
    if (!brim_metric_name(row, stage, BRIM_METRIC_FIGURE, name)) continue;
    if ((row->flags & BRIM_METRIC_OPTIONAL) && isnan(values[i])) continue;
    BRIM_TRY(brim_json_put(figures, name, figure_json(row, values[i])));
  }
  return BRIM_OK;
}

static brim_status evaluate_work(brim_cli_eval *e, const brim_work *work) {
  const brim_workload_table *table = work->table;
  const brim_metric_set *set = work->metrics;
  brim_status status = brim_work_evaluate(work, &e->metrics);
  if (status == BRIM_ESTATE) {  // nothing to evaluate on: nothing has been done yet
    e->c->cli->running = false;
    return BRIM_EINVAL;
  }
  BRIM_TRY(status);
  e->table = table;
  // where there is a baseline a row says of how many the figures are
  if (!set->baseline_label) {
    BRIM_TRY(brim_json_put(e->figures, "samples", json_integer(e->metrics.samples)));
  }
  BRIM_TRY(put_figures(e->figures, set, BRIM_METRIC_EVAL, e->metrics.values));
  BRIM_TRY(put_figures(e->figures, set, BRIM_METRIC_BASELINE, e->metrics.baseline));
  if (!table->features) return BRIM_OK;
  brim_work_metrics probe;
  status = table->features->probe(work->state, &probe);
  if (status == BRIM_EUNSUPPORTED) {
    brim_status_clear();  // the config does not ask for it
    return BRIM_OK;
  }
  BRIM_TRY(status);
  memcpy(e->probe, probe.values, sizeof e->probe);
  return put_figures(e->figures, set, BRIM_METRIC_PROBE, probe.values);
}

// The options that evaluate_outputs has of its own are keys here; a workload without data has neither.
static brim_status take_options(brim_cli_eval *e) {
  brim_cli_trained *c = e->c;
  const brim_option_parse *p = &c->cli->parse;
  const char *training = c->trained->workload;
  const brim_workload_table *table = brim_workload_find(training);
  bool loads = !table || table->loading;
  if (!table) brim_status_clear();
  if (brim_option_find(p, "split")) {
    return brim_cli_usage(
        c->cli,
        BRIM_N_(
            "--split does not apply to a checkpoint of %s training, which uses its evaluation set"),
        training);
  }
  static const char *const names[] = {"precision", "batch-size"};
  for (size_t i = 0; !loads && i < sizeof names / sizeof *names; i++) {
    if (!brim_option_find(p, names[i])) continue;
    return brim_cli_usage(c->cli, BRIM_N_("--%s does not apply to a checkpoint of %s training"),
                          names[i], training);
  }
  const char *precision = brim_option_string(p, "precision", NULL);
  if (precision) BRIM_TRY(brim_cli_trained_set(c, "training.precision", precision));
  int64_t batch = 0;
  BRIM_TRY(brim_cli_trained_batch(c, &batch));
  return batch > 0 ? brim_cli_trained_set_int(c, "data.eval_batch_size", batch) : BRIM_OK;
}

// How outputs are computed, where there is a choice.
static brim_status put_how(brim_cli_eval *e, const brim_work *work, const brim_setting *setting) {
  brim_work_info info;
  int knob = brim_work_knob_as(work, BRIM_ROLE_PRECISION);
  if (knob < 0) return BRIM_OK;
  work->table->info(work->state, &info);
  const char *word = work->knobs[knob].choices[setting->value[knob]];
  e->c->precision = word;
  BRIM_TRY(brim_json_put(e->figures, work->knobs[knob].name, json_string(word)));
  return brim_json_put(e->figures, "batch_size", json_integer(info.eval_batch));
}

// A workload whose outputs are compared with no target evaluates itself, on its own evaluation set: by
// the table's `evaluate` and `probe`.
static brim_status evaluate_itself(brim_cli_eval *e) {
  brim_cli_trained *c = e->c;
  brim_cli_job *job = &c->job;
  BRIM_TRY(take_options(e));
  job->evaluates = true;
  BRIM_TRY(brim_cli_trained_lost(c, brim_cli_job_open(c->cli, job)));
  const brim_workload_table *table = job->work->table;
  brim_setting setting = brim_work_setting(job->work);
  // what it once started from may be gone
  table->resuming(job->work->state, NULL);
  BRIM_TRY(table->configure(job->work->state, &setting));
  BRIM_TRY(brim_work_use(job->work, c->trained->path, c->ema));
  c->cli->running = true;
  brim_json_setup();
  e->figures = json_object();
  BRIM_TRY(put_how(e, job->work, &setting));
  table->stops(job->work->state, c->cli->stop);
  brim_status status = evaluate_work(e, job->work);
  table->stops(job->work->state, NULL);
  return status;
}

//---------------------------------- the command ----------------------------------

// Has the workload an option of this name for the command?
static bool has_option(const brim_workload_table *table, const char *command, const char *name) {
  for (size_t k = 0; k < table->option_count; k++) {
    const brim_work_options *o = &table->options[k];
    if (!o->rows || strcmp(o->command, command) != 0) continue;
    for (const brim_option *row = o->rows; row->name; row++) {
      if (strcmp(row->name, name) == 0) return true;
    }
  }
  return false;
}

// The command knows the options of all workloads, before it knows which one the checkpoint is of.
static brim_status refuse_others(const brim_cli_eval *e, const brim_workload_table *own) {
  brim_cli *cli = e->c->cli;
  const char *command = cli->command->name;
  const brim_workload_table *table;
  for (size_t i = 0; i < cli->parse.count; i++) {
    const char *name = cli->parse.items[i].option->name;
    bool others = false;
    for (size_t k = 0; (table = brim_workload_at(k)); k++) {
      others = others || has_option(table, command, name);
    }
    char key[64];
    const char *sets = cli->parse.items[i].option->key;
    if (!others || has_option(own, command, name)) continue;
    if (sets && brim_cli_own_key(sets, own->name, key)) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s does not apply to a checkpoint of %s training"), name,
                          own->name);
  }
  return BRIM_OK;
}

static brim_status evaluate(brim_cli_eval *e) {
  const brim_trained *t = e->c->trained;
  const brim_workload_table *table = brim_workload_find(t->workload);
  if (!table) return BRIM_EUNSUPPORTED;
  BRIM_TRY(refuse_others(e, table));
  if (e->c->output) BRIM_TRY(brim_cli_check_replace(e->c->cli, e->c->output, NULL));
  bool itself = !table->has_targets || (t->has_network && t->task == BRIM_TASK_EMBEDDING);
  brim_status status = itself ? evaluate_itself(e) : evaluate_outputs(e);
  if (!status && e->c->output) status = brim_cli_eval_write(e);
  return status ? status : brim_cli_eval_show(e);
}

static brim_status run(brim_cli *cli) {
  const char *output = brim_option_string(&cli->parse, "output", NULL);
  if (output && !brim_str_ends(output, ".json") && !brim_str_ends(output, ".csv")) {
    return brim_cli_usage(cli, BRIM_N_("--output must end in .json or .csv, not '%.200s'"), output);
  }
  brim_cli_trained c;
  BRIM_TRY(brim_cli_trained_init(cli, &c));
  brim_cli_eval e = {.c = &c};
  e.result.loss = (double)NAN;
  brim_metric_unknown(e.probe);
  brim_status status = evaluate(&e);
  brim_scores_destroy(e.scores);
  json_decref(e.figures);
  brim_cli_trained_deinit(&c);
  return status;
}

const brim_cli_command brim_cli_eval_command = {
    .name = "eval",
    .summary = BRIM_N_("evaluate a checkpoint: accuracy, F1, confusion; MSE, MAE, R2"),
    .usage = "CHECKPOINT [--data-path PATH] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Evaluates a trained network on the set that training evaluated, or on --split. The "
        "checkpoint contains the config; key=value overrides it. Without --data-path brim uses the "
        "data of the run.\nClassification reports accuracy, top-5, the confusion matrix, and "
        "precision, recall and F1 of each class. Regression reports MSE, MAE and R2 of each "
        "target. brim matches labels by class name if both sides have names."),
    .examples = BRIM_N_("on the set that training evaluated\n"
                        "brim eval runs/cifar/best.safetensors\n"
                        "on other data, with the whole confusion matrix\n"
                        "brim eval best.safetensors --data-path test --output confusion.csv\n"
                        "for a script\n"
                        "brim eval best.safetensors --data-path data.h5 --split test --json\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
