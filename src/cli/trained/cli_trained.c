// Opens a checkpoint with its config, device and data, runs it, and describes it. Writes no files.
#include "cli/trained/cli_trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const brim_cli_trained_ema[] = {"auto", "yes", "no", NULL};
const char *const brim_cli_trained_splits[] = {"train", "val", "test", "unlabeled", "all", NULL};
const char *const brim_cli_trained_precisions[] = {"fp32", "tf32", "bf16", "fp16", NULL};

enum { MAX_DEFAULT_BATCH = 256 };

//---------------------------------- the config ----------------------------------

static brim_status load_config(brim_cli_trained *c, const char *path, const char *text,
                               brim_config **out) {
  brim_device_info gpu;
  brim_config_facts facts;
  brim_cli_gpu_facts(c->job.registry, &gpu, &facts);
  brim_config_options options = {.path = path,
                                 .text = text,
                                 .text_name = c->trained->path,
                                 .no_include = !path,
                                 .overrides = (const char *const *)c->job.input.overrides,
                                 .override_count = c->job.input.count,
                                 .mode = BRIM_CONFIG_RUN,
                                 .facts = &facts};
  BRIM_TRY(brim_cli_load_config(c->cli, &options, &c->job.input, out));
  for (size_t i = 0; path && !c->warned && i < brim_config_warning_count(*out); i++) {
    brim_log_warn("config", "%s", brim_config_warning(*out, i));
  }
  c->warned =
      c->warned || path;  // warn only once: the config is loaded again for each added override
  return BRIM_OK;
}

// The config.yaml beside the checkpoint; NULL if there is none.
static char *config_beside(const brim_cli_trained *c) {
  char *folder = brim_fs_dirname(c->trained->path);
  char *path = folder ? brim_fs_join(folder, "config.yaml") : NULL;
  brim_free(folder);
  if (path && brim_fs_exists(path)) return path;
  brim_free(path);
  return NULL;
}

static brim_status read_config(brim_cli_trained *c, const char *beside) {
  const char *given = brim_option_string(&c->cli->parse, "config", NULL);
  if (given && !brim_fs_exists(given)) {
    return brim_fail(BRIM_ENOENT, "%s: no such config file", given);
  }
  if (given) return load_config(c, given, NULL, &c->job.config);
  if (!c->trained->settings && beside) return load_config(c, beside, NULL, &c->job.config);
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_trained_config_text(c->trained, &text);
  if (!status) status = load_config(c, NULL, text.data, &c->job.config);
  brim_str_deinit(&text);
  return status;
}

// Reads the config again, with the overrides added since.
static brim_status read_again(brim_cli_trained *c) {
  brim_config_close(c->job.config);
  c->job.config = NULL;
  char *beside = config_beside(c);
  brim_status status = read_config(c, beside);
  brim_free(beside);
  return status;
}

brim_status brim_cli_trained_set_int(brim_cli_trained *c, const char *key, int64_t value) {
  BRIM_TRY(brim_cli_input_add(&c->job.input, "%s=%" PRId64, key, value));
  return read_again(c);
}

brim_status brim_cli_trained_set(brim_cli_trained *c, const char *key, const char *text) {
  brim_str quoted;
  brim_str_init(&quoted);
  for (const char *p = text; *p; p++) {
    if (*p == '\'') brim_str_append_char(&quoted, '\'');
    brim_str_append_char(&quoted, *p);
  }
  brim_status status = brim_str_status(&quoted);
  if (!status) status = brim_cli_input_add(&c->job.input, "%s='%s'", key, quoted.data);
  brim_str_deinit(&quoted);
  return status ? status : read_again(c);
}

// If neither an option nor the config of the checkpoint names the data (checkpoints have no paths): takes the path
// from the config beside the checkpoint.
static brim_status find_data(brim_cli_trained *c, const char *beside) {
  const brim_config *config = c->job.config;
  c->path_given = brim_config_layer_of(config, "data.path") == BRIM_CONFIG_FROM_OVERRIDE;
  if (brim_config_string(config, "data.path") || !beside) return BRIM_OK;
  brim_config *run = NULL;
  bool before = brim_log_hush(true);
  brim_status status = load_config(c, beside, NULL, &run);
  brim_log_hush(before);
  if (status == BRIM_ENOMEM) return status;
  const char *path = status ? NULL : brim_config_string(run, "data.path");
  brim_status_clear();
  status = BRIM_OK;
  if (path && brim_fs_exists(path)) {
    status = brim_cli_trained_set(c, "data.path", path);
  } else if (path) {
    c->lost_data_path = brim_strdup(path);
    if (!c->lost_data_path) status = brim_fail(BRIM_ENOMEM, "out of memory");
  }
  brim_config_close(run);
  return status;
}

brim_status brim_cli_trained_explain_no_data(const brim_cli_trained *c, brim_status status) {
  bool none =
      status == BRIM_EINVAL && !brim_config_string(c->job.config, "data.path") &&
      (strstr(brim_status_detail(), "data.path") || strstr(brim_status_detail(), "--data-path"));
  if (!none) return status;
  if (!c->lost_data_path) {
    return brim_fail(BRIM_EINVAL, "no data; give --data-path PATH");
  }
  return brim_fail(BRIM_EINVAL,
                   "%s, the data of the run, is not found from this folder; give --data-path PATH",
                   c->lost_data_path);
}

static brim_status choose_ema(brim_cli_trained *c) {
  const char *word = brim_option_string(&c->cli->parse, "ema", "auto");
  c->ema = c->trained->has_ema && strcmp(word, "no") != 0;
  if (strcmp(word, "yes") != 0 || c->trained->has_ema) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s has no averaged weights; train with training.ema_decay to get some",
                   c->trained->path);
}

// Refuses to overwrite the checkpoint, by whatever name.
static brim_status check_output(const brim_cli_trained *c) {
  if (!c->output || strcmp(c->output, "-") == 0) return BRIM_OK;
  if (brim_fs_same(c->output, c->trained->path)) {
    return brim_cli_usage(c->cli, BRIM_N_("%.200s is the checkpoint itself; write to another file"),
                          c->output);
  }
  return brim_fs_check_target(c->output);
}

brim_status brim_cli_trained_output(brim_cli_trained *c, const char *default_path) {
  if (!c->output) {
    c->output = default_path;
    BRIM_TRY(check_output(c));
  }
  return brim_cli_check_replace(c->cli, c->output, NULL);
}

const brim_workload_table *brim_cli_trained_table(const brim_trained *t) {
  const brim_workload_table *table;
  for (size_t i = 0; t->unnamed && (table = brim_workload_at(i)); i++) {
    if (table->owns && table->owns(t->file)) return table;
  }
  table = brim_workload_find(t->workload);
  if (!table) brim_status_clear();
  return table;
}

bool brim_cli_trained_takes_samples(const brim_trained *t) {
  const brim_workload_table *table = brim_cli_trained_table(t);
  return !table || table->loading;
}

bool brim_cli_trained_can_be_shown(const brim_trained *t) {
  const brim_workload_table *table = brim_cli_trained_table(t);
  return table && table->replay;
}

void brim_cli_trained_describe(const brim_trained *t, char *out, size_t size) {
  const brim_workload_table *table = brim_cli_trained_table(t);
  if (table && table->makes) {
    snprintf(out, size, "%s", brim_tr(table->makes));
  } else {
    snprintf(out, size, brim_tr("a checkpoint of workload %s"), t->workload);
  }
}

brim_status brim_cli_trained_init(brim_cli *cli, brim_cli_trained *c) {
  memset(c, 0, sizeof *c);
  c->cli = cli;
  c->output = brim_option_string(&cli->parse, "output", NULL);
  const char *path = cli->parse.positional_count > 0 ? cli->parse.positional[0] : NULL;
  if (!path || (strchr(path, '=') && !brim_fs_exists(path))) {
    return brim_cli_usage(cli, BRIM_N_("name a checkpoint: brim %s CHECKPOINT.safetensors"),
                          cli->command->name);
  }
  char *beside = NULL;
  brim_status status = brim_trained_open(path, &c->trained);
  if (!status) status = brim_cli_input_rest(cli, 1, &c->job.input);
  if (!status) status = brim_cli_registry(cli, &c->job.registry);
  if (!status) beside = config_beside(c);
  if (!status) status = read_config(c, beside);
  if (!status) status = find_data(c, beside);
  if (!status) status = brim_work_refuse_grid(c->job.config);
  if (!status) status = choose_ema(c);
  if (!status) status = check_output(c);
  brim_free(beside);
  if (status) brim_cli_trained_deinit(c);
  return status;
}

void brim_cli_trained_deinit(brim_cli_trained *c) {
  brim_trained_data_close(&c->data);
  brim_trained_close(c->trained);
  brim_cli_job_close(&c->job);
  brim_free(c->lost_data_path);
  memset(c, 0, sizeof *c);
}

//---------------------------------- opening ----------------------------------

brim_status brim_cli_trained_data(brim_cli_trained *c, const brim_trained_want *want) {
  brim_trained_want w = *want;
  w.path_given = c->path_given;
  brim_status status =
      brim_trained_data_open(c->trained, c->job.registry, c->job.config, &w, &c->data);
  return c->trained->has_network ? brim_cli_trained_explain_no_data(c, status) : status;
}

brim_status brim_cli_trained_device(brim_cli_trained *c) {
  const char *spec = NULL;
  brim_cli_job *job = &c->job;
  BRIM_TRY(brim_work_device_spec(job->config, &spec));
  BRIM_TRY(brim_work_device_options(job->config, &job->options));
  job->any_device = strcmp(spec, "auto") == 0;
  brim_status status = brim_device_open(job->registry, spec, &job->options, &job->device);
  // ENOENT and EABI mean here that the device is missing, not a file.
  return status == BRIM_ENOENT || status == BRIM_EABI ? BRIM_EDEVICE : status;
}

brim_status brim_cli_trained_batch(brim_cli_trained *c, int64_t *out) {
  const brim_option_parse *p = &c->cli->parse;
  *out = 0;
  if (!brim_option_find(p, "batch-size")) return BRIM_OK;
  *out = brim_option_int(p, "batch-size", 0);
  if (*out >= 1 && *out <= 1 << 20) return BRIM_OK;
  return brim_cli_usage(c->cli, BRIM_N_("--batch-size has to be from 1 to %d"), 1 << 20);
}

static brim_status read_run_options(brim_cli_trained *c, brim_trained_how *how) {
  const brim_option_parse *p = &c->cli->parse;
  const brim_config *config = c->job.config;
  memset(how, 0, sizeof *how);
  how->batch = brim_config_int(config, "data.eval_batch_size");
  if (how->batch <= 0) how->batch = brim_config_int(config, "data.batch_size");
  if (how->batch > MAX_DEFAULT_BATCH) how->batch = MAX_DEFAULT_BATCH;
  int64_t asked = 0;
  BRIM_TRY(brim_cli_trained_batch(c, &asked));
  if (asked > 0) how->batch = asked;
  int64_t workers = brim_config_int(config, "data.num_workers");
  how->num_workers = workers >= 0 ? (int)workers : (brim_cpu_count() + 1) / 2;
  const char *on_error = brim_config_string(config, "data.on_error");
  how->skip_broken = on_error && strcmp(on_error, "skip") == 0;
  how->ema = c->ema;
  how->features = brim_option_flag(p, "features", false);
  brim_precision_parse(brim_option_string(p, "precision", "fp32"), &how->precision);
  c->precision = brim_precision_name(how->precision);
  return BRIM_OK;
}

brim_status brim_cli_trained_run(brim_cli_trained *c, const char *title, brim_trained_fn fn,
                                 void *ctx, brim_trained_result *out) {
  brim_trained_how how;
  BRIM_TRY(read_run_options(c, &how));
  c->title = title;
  c->start = brim_clock_now();
  c->done = 0;
  how.device = c->job.device;
  how.config = c->job.config;
  how.stop = c->cli->stop;
  brim_status status = brim_trained_run(c->trained, &c->data, &how, fn, ctx, out);
  c->cli->running = out->began;
  BRIM_TRY(status);
  if (out->broken == 1) {
    brim_log_warn("data", "one sample could not be read: %s", out->first_broken);
  } else if (out->broken > 1) {
    brim_log_warn("data", "%" PRId64 " samples could not be read; the first: %s", out->broken,
                  out->first_broken);
  }
  return BRIM_OK;
}

void brim_cli_trained_tick(brim_cli_trained *c, int64_t rows) {
  int64_t total = (int64_t)c->data.source->info.count;
  c->done += rows;
  brim_progress p = {.title = c->title, .done = c->done, .total = total};
  p.elapsed_s = (double)brim_time_since_ns(c->start, brim_clock_now()) / 1e9;
  p.rate = p.elapsed_s > 0 ? (double)c->done / p.elapsed_s : (double)NAN;
  p.eta_s = c->done ? p.elapsed_s * (double)(total - c->done) / (double)c->done : (double)NAN;
  if (!c->cli->json) brim_cli_progress(c->cli, &p);  // with --json only the result is printed
}

//---------------------------------- showing ----------------------------------

static const char *model_name(const brim_cli_trained *c) {
  const brim_component *model = brim_config_component(c->job.config, "model", NULL);
  if (model) return model->name;
  const brim_workload_table *table = brim_workload_find(c->trained->workload);
  if (!table) brim_status_clear();
  return table && table->model ? table->model : c->trained->workload;
}

static int64_t parameter_count(const brim_cli_trained *c) {
  static const char *const not_parameters[] = {"optimizer.", BRIM_TRAINED_EMA, "normal.",
                                               "value_norm."};
  int64_t count = 0;
  for (size_t i = 0; i < brim_safetensors_count(c->trained->file); i++) {
    const brim_safetensors_entry *e = brim_safetensors_at(c->trained->file, i);
    // A model of several networks has names such as actor.optimizer.m.layers.0.weight.
    bool is_parameter =
        e->dtype == BRIM_F32 && !strstr(e->name, "running_") && !strstr(e->name, ".optimizer.");
    for (size_t k = 0; k < sizeof not_parameters / sizeof *not_parameters; k++)
      is_parameter = is_parameter && !brim_str_starts(e->name, not_parameters[k]);
    if (is_parameter) count += (int64_t)(e->bytes / sizeof(float));
  }
  return count;
}

brim_status brim_cli_trained_model_text(const brim_cli_trained *c, brim_str *out) {
  char count[32];
  const int64_t parameters = parameter_count(c);
  brim_format_count((double)parameters, count);
  if (parameters > 0) {
    brim_str_printf(out, brim_tr("%s, %s parameters"), model_name(c), count);
  } else {  // no float32 weights were found: the count is unknown
    brim_str_append(out, model_name(c));
  }
  if (c->trained->epoch >= 0 && c->trained->step >= 0) {
    brim_str_printf(out, brim_tr(", epoch %lld, step %lld"), (long long)c->trained->epoch,
                    (long long)c->trained->step);
  }
  if (c->ema) brim_str_append(out, brim_tr(", averaged weights"));
  return brim_str_status(out);
}

void brim_cli_trained_data_text(const brim_cli_trained *c, brim_str *out) {
  const char *path = brim_config_string(c->job.config, "data.path");
  char count[32];
  brim_format_count((double)c->data.source->info.count, count);
  bool one = c->data.source->info.count == 1;
  brim_str_printf(out, one ? brim_tr("%s, %s: %s sample") : brim_tr("%s, %s: %s samples"),
                  path ? path : c->data.source->table->name, c->data.split, count);
}

void brim_cli_trained_device_rows(const brim_cli_trained *c, brim_str *out) {
  char text[320];
  brim_cli_device_text(c->job.device, text, sizeof text);
  brim_cli_row(&c->cli->out, brim_tr("device"), text, out);
  if (brim_cli_backend_text(&c->job, text, sizeof text)) {
    brim_cli_row(&c->cli->out, brim_tr("backend"), text, out);
  }
  if (c->precision) brim_cli_row(&c->cli->out, brim_tr(BRIM_TRAINED_PRECISION), c->precision, out);
}

void brim_cli_trained_notes(const brim_cli_trained *c) {
  const brim_trained_data *d = &c->data;
  const brim_trained *t = c->trained;
  if (d->resized) {
    const int64_t *dim = brim_trained_dim(t);
    brim_cli_note((brim_cli *)c->cli, brim_tr("images are resized to %lld x %lld\n"),
                  (long long)dim[0], (long long)dim[1]);
  }
  if (d->greyed) {
    brim_cli_note((brim_cli *)c->cli, "%s",
                  brim_tr("the network takes grey images; brim converts colour images to grey\n"));
  }
  if (d->fell_back) {
    brim_cli_note((brim_cli *)c->cli, "%s",
                  brim_tr("no val or test set; brim evaluates on all samples\n"));
  }
  if (d->share_to - d->share_from < 1 && d->share_to > 0) {
    // With another path, seed or share, these samples are not the ones the run held out.
    const brim_config *config = c->job.config;
    bool other = c->path_given ||
                 brim_config_layer_of(config, "seed") == BRIM_CONFIG_FROM_OVERRIDE ||
                 brim_config_layer_of(config, "data.val_fraction") == BRIM_CONFIG_FROM_OVERRIDE;
    const char *text =
        other ? brim_tr("evaluating %.3g %% of the training set (data.val_fraction)\n")
        : d->share_from > 0
            ? brim_tr("evaluating the %.3g %% that training did not use (data.val_fraction)\n")
            : brim_tr("evaluating the %.3g %% that training used (data.val_fraction)\n");
    brim_cli_note((brim_cli *)c->cli, text, 100 * (d->share_to - d->share_from));
  }
}

brim_status brim_cli_trained_json(const brim_cli_trained *c, json_t *out) {
  const brim_trained *t = c->trained;
  const char *path = brim_config_string(c->job.config, "data.path");
  BRIM_TRY(brim_json_put(out, "checkpoint", json_string(t->path)));
  BRIM_TRY(brim_json_put(out, "workload", json_string(t->workload)));
  BRIM_TRY(brim_json_put(out, "model", json_string(model_name(c))));
  BRIM_TRY(brim_json_put(out, "step", t->step >= 0 ? json_integer(t->step) : json_null()));
  BRIM_TRY(brim_json_put(out, "epoch", t->epoch >= 0 ? json_integer(t->epoch) : json_null()));
  BRIM_TRY(brim_json_put(out, "ema", json_boolean(c->ema)));
  if (c->precision) BRIM_TRY(brim_json_put(out, BRIM_TRAINED_PRECISION, json_string(c->precision)));
  if (!c->data.source) return BRIM_OK;
  BRIM_TRY(brim_json_put(out, "data", path ? json_string(path) : json_null()));
  BRIM_TRY(brim_json_put(out, "split", json_string(c->data.split)));
  BRIM_TRY(brim_json_put(out, "samples", json_integer((json_int_t)c->data.source->info.count)));
  return brim_json_put(out, "resized", json_boolean(c->data.resized));
}
