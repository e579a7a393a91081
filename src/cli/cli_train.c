// `brim train`: options to config, config to workload, workload to the training loop; and what a
// person sees of it. The loop itself is src/run.
#include "cli/cli_loading.h"
#include "cli/cli_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", "auto", NULL};
static const char *const backend_choices[] = {"auto", "ref", "cpu", "cuda", NULL};
static const char *const compile_choices[] = {"true", "false", NULL};
static const char *const checkpointing_choices[] = {"auto", "true", "false", NULL};
static const char *const cache_choices[] = {"auto", "none", "ram", "gpu", NULL};
static const char *const lr_aliases[] = {"learning-rate", NULL};
static const char *const workers_aliases[] = {"workers", NULL};

static const brim_option options[] = {
    {.name = "config",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("config file; the same as naming it without --config")},
    {.name = "data-path",
     .kind = BRIM_OPTION_STRING,
     .metavar = "PATH",
     .help = BRIM_N_("file or folder of the data"),
     .key = "data.path"},
    {.name = "epochs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("passes over the data"),
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
     .help = BRIM_N_("type of the maths"),
     .key = "training.precision",
     .choices = precision_choices},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("loader threads; 0 loads inline"),
     .key = "data.num_workers",
     .aliases = workers_aliases},
    {.name = "cache",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "C",
     .help = BRIM_N_("keep the data set in host memory or on the GPU"),
     .key = "data.cache",
     .choices = cache_choices},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("of weights, data order and augmentation"),
     .key = "seed"},
    {.name = "max-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("stop after so many optimiser steps in all; 0 is no limit")},
    {.name = "compile",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("capture the step as one graph and fuse, or run op by op"),
     .key = "training.compile",
     .choices = compile_choices},
    {.name = "checkpointing",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("compute activations again instead of keeping them"),
     .key = "training.checkpointing",
     .choices = checkpointing_choices},
    {.name = "device",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DEV",
     .help = BRIM_N_("auto, cpu, cuda, cuda:N or ref"),
     .key = "device",
     .group = BRIM_N_("Machine")},
    {.name = "backend",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "B",
     .help = BRIM_N_("who computes"),
     .key = "backend",
     .choices = backend_choices,
     .group = BRIM_N_("Machine")},
    {.name = "threads",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("CPU threads of the maths; 0 is all cores"),
     .key = "threads",
     .group = BRIM_N_("Machine")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("where checkpoints and logs go"),
     .key = "output_dir",
     .default_text = "runs/NAME",
     .group = BRIM_N_("Files")},
    {.name = "weights",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("start from the weights in this safetensors file, with a fresh optimiser"),
     .key = "training.weights",
     .group = BRIM_N_("Files")},
    {.name = "resume",
     .help = BRIM_N_("go on from the last checkpoint there, if there is one; `--resume auto` is "
                     "the same"),
     .group = BRIM_N_("Files")},
    {.name = "resume-from",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("go on from this checkpoint"),
     .group = BRIM_N_("Files")},
    {0},
};

typedef struct train {
  brim_cli *cli;
  brim_cli_job *job;
  const char *output_dir;
  brim_cli_memory memory;
} train;

//---------------------------------- where files go ----------------------------------

// output_dir when it is given, else runs/NAME with the run's name or the config's.
static brim_status choose_output_dir(const brim_cli_job *job, brim_str *out) {
  if (brim_cli_job_output_dir(job)) {
    brim_str_append(out, brim_cli_job_output_dir(job));
    return brim_str_status(out);
  }
  const char *name = brim_config_string(job->config, "name");
  if (!name && job->input.path) name = brim_fs_basename(job->input.path);
  if (!name) name = brim_config_string(job->config, "workload");
  size_t n = strlen(name);
  if (brim_str_ends(name, ".yaml")) n -= 5;
  if (brim_str_ends(name, ".yml")) n -= 4;
  brim_str_append(out, "runs/");
  brim_str_append_n(out, name, n);
  return brim_str_status(out);
}

static bool lies_in(const char *path, const char *dir) {
  char *folder = brim_fs_dirname(path);
  bool same = brim_fs_same(folder, dir);
  brim_free(folder);
  return same;
}

static brim_status refuse_overwriting(const char *dir) {
  char *last = brim_fs_join(dir, "last.safetensors");
  if (!last) return brim_fail(BRIM_ENOMEM, "out of memory while looking for a checkpoint");
  bool there = brim_fs_exists(last);
  brim_free(last);
  if (!there) return BRIM_OK;
  return brim_fail(BRIM_EEXIST,
                   "%s holds a run already; go on with --resume, or choose another place with "
                   "--output-dir",
                   dir);
}

//---------------------------------- what is shown ----------------------------------

static void row(brim_str *out, const brim_term *term, const char *label, const char *value) {
  int width = brim_utf8_width(label);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, label);
  brim_str_repeat(out, ' ', width < 11 ? (size_t)(11 - width) : 1);
  brim_ui_clip(out, term, value, term->width > 30 ? term->width - 14 : 0);
  brim_str_append_char(out, '\n');
}

// A GPU's overhead has a row of its own; on the host it is our bookkeeping.
static void memory_text(const train *t, const brim_plan *plan, char *out, size_t size) {
  char device[32], host[32], overhead[32];
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  brim_format_bytes(plan->bytes[BRIM_PLACE_DEVICE], device);
  brim_format_bytes(plan->bytes[BRIM_PLACE_HOST], host);
  brim_format_bytes(stats.live_bytes[BRIM_MEM_OVERHEAD], overhead);
  int n =
      t->job->memory.uuid[0]
          ? snprintf(out, size, brim_tr("planned %s on the device, %s on the host"), device, host)
          : snprintf(out, size, brim_tr("planned %s on the device, %s on the host; overhead %s"),
                     device, host, overhead);
  if (plan->recomputed > 0 && n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, brim_tr(", %d of %d blocks recomputed"),
             (int)plan->recomputed, (int)plan->segments);
  }
}

// The config's value of a knob; "" where the workload has no such knob.
static void knob_text(const train *t, const char *name, char out[32]) {
  const brim_work *work = t->job->work;
  int knob = brim_work_knob(work, name);
  out[0] = '\0';
  if (knob >= 0) brim_knob_format(&work->knobs[knob], work->knobs[knob].value, out);
}

// How the device computes, where there is a choice of it: a GPU.
static void maths_text(const train *t, char *out, size_t size) {
  char precision[32], compile[32];
  out[0] = '\0';
  if (t->job->device->info.kind != BRIM_DEVICE_GPU) return;
  knob_text(t, "precision", precision);
  knob_text(t, "compile", compile);
  bool graphs = brim_device_has_graphs(t->job->device) && strcmp(compile, "false") != 0;
  snprintf(out, size, "%s%s%s, %s", precision, precision[0] ? ", " : "",
           t->job->options.measure_algorithms ? brim_tr("algorithm selection enabled")
                                              : brim_tr("algorithm selection disabled"),
           graphs ? brim_tr("graph capture on") : brim_tr("graph capture off"));
}

static void batch_text(const train *t, char *out, size_t size) {
  const brim_config *config = t->job->config;
  int64_t batch = brim_config_int(config, "data.batch_size");
  int64_t steps = brim_config_int(config, "training.gradient_accumulation_steps");
  char precision[32];
  knob_text(t, "precision", precision);
  if (!precision[0]) snprintf(precision, sizeof precision, "fp32");
  if (steps > 1) {
    snprintf(out, size, brim_tr("%lld x %lld accumulated = %lld, %s"), (long long)batch,
             (long long)steps, (long long)(batch * steps), precision);
  } else {
    snprintf(out, size, "%lld, %s", (long long)batch, precision);
  }
}

static void banner(train *t, const brim_work_info *info, const brim_plan *plan, int64_t start_step,
                   brim_str *out) {
  const brim_term *term = &t->cli->out;
  char text[320], count[32], eval[32];
  brim_ui_styled(out, term, BRIM_UI_BOLD, "brim train");
  brim_str_append_char(out, '\n');
  brim_cli_device_text(t->job->device, text, sizeof text);
  row(out, term, brim_tr("device"), text);
  snprintf(text, sizeof text, "%d", t->job->device->info.threads);
  if (t->job->device->info.kind == BRIM_DEVICE_CPU) row(out, term, brim_tr("threads"), text);
  row(out, term, brim_tr("model"), info->description ? info->description : "");
  brim_format_count((double)plan->parameter_count, count);
  row(out, term, brim_tr("parameters"), count);
  brim_format_count((double)info->samples_per_epoch, count);
  brim_format_count((double)info->eval_samples, eval);
  int n = snprintf(text, sizeof text,
                   info->eval_samples ? brim_tr("%s %s to train on, %s to evaluate on")
                                      : brim_tr("%s %s to train on"),
                   count, info->unit ? info->unit : "", eval);
  char kept[300];
  if (brim_cli_cache_text(info, kept, sizeof kept) && n > 0 && (size_t)n < sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, ", %s", kept);
  }
  row(out, term, brim_tr("data"), text);
  batch_text(t, text, sizeof text);
  row(out, term, brim_tr("batch"), text);
  maths_text(t, text, sizeof text);
  if (text[0]) row(out, term, brim_tr("maths"), text);
  memory_text(t, plan, text, sizeof text);
  row(out, term, brim_tr("memory"), text);
  if (t->job->memory.uuid[0]) {
    brim_cli_overhead_text(brim_cli_memory_known(&t->memory), text, sizeof text);
    row(out, term, brim_tr("overhead"), text);
  }
  row(out, term, brim_tr("output"), t->output_dir);
  if (start_step > 0) {
    snprintf(text, sizeof text, brim_tr("from step %lld"), (long long)start_step);
    row(out, term, brim_tr("resumed"), text);
  }
  brim_str_append_char(out, '\n');
}

static brim_status start_event(train *t, const brim_work_info *info, const brim_plan *plan,
                               int64_t start_step) {
  char device[320];
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  double overhead = t->job->memory.uuid[0] ? brim_cli_memory_known(&t->memory)
                                           : (double)stats.live_bytes[BRIM_MEM_OVERHEAD];
  brim_cli_device_text(t->job->device, device, sizeof device);
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "device", json_string(device));
  if (!s) s = brim_json_put(f, "model", json_string(info->description ? info->description : ""));
  if (!s) {
    s = brim_json_put(f, "parameters", brim_json_number((double)plan->parameter_count));
  }
  if (!s) s = brim_json_put(f, "samples_per_epoch", json_integer(info->samples_per_epoch));
  if (!s) s = brim_json_put(f, "steps_per_epoch", json_integer(info->steps_per_epoch));
  if (!s) s = brim_json_put(f, "eval_samples", json_integer(info->eval_samples));
  if (!s) s = brim_json_put(f, "cache", json_string(info->cache ? info->cache : "none"));
  if (!s && info->locked_bytes > 0) {
    s = brim_json_put(f, "locked_bytes", brim_json_number((double)info->locked_bytes));
  }
  if (!s) {
    s = brim_json_put(f, "planned_device",
                      brim_json_number((double)plan->bytes[BRIM_PLACE_DEVICE]));
  }
  if (!s) {
    s = brim_json_put(f, "planned_host", brim_json_number((double)plan->bytes[BRIM_PLACE_HOST]));
  }
  if (!s) s = brim_json_put(f, "overhead", brim_json_number(overhead));
  if (!s) s = brim_json_put(f, "segments", json_integer(plan->segments));
  if (!s) s = brim_json_put(f, "recomputed", json_integer(plan->recomputed));
  if (!s) s = brim_json_put(f, "output_dir", json_string(t->output_dir));
  if (!s) s = brim_json_put(f, "start_step", json_integer(start_step));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(t->cli, "start", f);
}

// Said once, before the first batch is slow.
static void say_pageable(const train *t, const brim_work_info *info) {
  char pinned[32];
  knob_text(t, "pin_memory", pinned);
  bool copies = !info->cache || strcmp(info->cache, "gpu") != 0;
  const char *why = brim_cli_pageable_text(t->job->device);
  if (why && copies && strcmp(pinned, "false") == 0) brim_log_text(BRIM_LOG_WARN, "train", why);
}

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  train *t = ctx;
  t->cli->running = true;
  brim_cli_memory_started(&t->memory, plan);
  say_pageable(t, info);
  if (t->cli->json) {
    if (start_event(t, info, plan, start_step)) brim_status_clear();
    return;
  }
  if (t->cli->quiet) return;
  brim_str text;
  brim_str_init(&text);
  banner(t, info, plan, start_step, &text);
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
}

static void on_progress(void *ctx, const brim_progress *progress) {
  train *t = ctx;
  brim_cli_memory_tick(&t->memory);
  brim_cli_progress(t->cli, progress);
}

// A loss that is no number is news, not nothing.
static void append_metric(brim_str *out, const char *fmt_loss, double loss, const char *fmt_acc,
                          double accuracy) {
  char number[32] = "nan";
  if (!isnan(loss)) snprintf(number, sizeof number, "%.4g", loss);
  brim_str_printf(out, "  %s %s", fmt_loss, number);
  if (!isnan(accuracy)) brim_str_printf(out, "  %s %.2f %%", fmt_acc, accuracy * 100);
}

static void epoch_line(const train *t, const brim_epoch_report *r, brim_str *out) {
  char number[32];
  brim_str head;
  brim_str_init(&head);
  brim_str_printf(&head, brim_tr("epoch %lld/%lld"), (long long)r->epoch, (long long)r->epochs);
  brim_ui_styled(out, &t->cli->out, BRIM_UI_BOLD, head.data);
  brim_str_deinit(&head);
  append_metric(out, brim_tr("loss"), r->train_loss, brim_tr("acc"), r->train_accuracy);
  if (r->evaluated) {
    append_metric(out, brim_tr("val loss"), r->eval_loss, brim_tr("val acc"), r->eval_accuracy);
  }
  brim_ui_number(r->samples_per_s, number);
  brim_str_printf(out, brim_tr("  %s samples/s"), number);
  brim_format_duration(r->seconds, number);
  brim_str_printf(out, "  %s", number);
  if (r->best) {
    brim_str_append(out, "  ");
    brim_ui_styled(out, &t->cli->out, BRIM_UI_GOOD, brim_tr("best"));
  }
  brim_str_append_char(out, '\n');
}

static brim_status epoch_event(train *t, const brim_epoch_report *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = brim_json_put(f, "loss", brim_json_number(r->train_loss));
  if (!s) s = brim_json_put(f, "accuracy", brim_json_number(r->train_accuracy));
  if (!s) s = brim_json_put(f, "val_loss", brim_json_number(r->eval_loss));
  if (!s) s = brim_json_put(f, "val_accuracy", brim_json_number(r->eval_accuracy));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(r->lr));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "best", json_boolean(r->best));
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(t->cli, "epoch", f);
}

static void on_epoch(void *ctx, const brim_epoch_report *report) {
  train *t = ctx;
  brim_cli_memory_measure(&t->memory);  // evaluation has its own modules
  if (t->cli->json) {
    if (epoch_event(t, report)) brim_status_clear();
    return;
  }
  if (t->cli->quiet) return;
  brim_str text;
  brim_str_init(&text);
  epoch_line(t, report, &text);
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
}

//---------------------------------- the end ----------------------------------

static brim_status result_event(train *t, const brim_run_result *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "steps", json_integer(r->steps));
  if (!s) s = brim_json_put(f, "steps_run", json_integer(r->steps_run));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = brim_json_put(f, "loss", brim_json_number(r->train_loss));
  if (!s) s = brim_json_put(f, "val_loss", brim_json_number(r->eval_loss));
  if (!s) s = brim_json_put(f, "val_accuracy", brim_json_number(r->eval_accuracy));
  if (!s) s = brim_json_put(f, "best_accuracy", brim_json_number(r->best_accuracy));
  if (!s) s = brim_json_put(f, "best_epoch", json_integer(r->best_epoch));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "skipped_steps", json_integer(r->skipped_steps));
  if (!s) s = brim_json_put(f, "bad_samples", json_integer(r->bad_samples));
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
  if (!s) s = brim_json_put(f, "accuracy", brim_json_number(r->train_accuracy));
  if (!s) s = brim_json_put(f, "partial", json_boolean(r->partial));
  if (!s) s = brim_json_put(f, "interrupted", json_boolean(r->interrupted));
  if (!s && t->job->memory.uuid[0]) {
    s = brim_json_put(f, "memory", brim_cli_memory_json(&t->memory));
  }
  if (!s) s = brim_json_put(f, "checkpoint", json_string(r->checkpoint));
  if (!s) s = brim_json_put(f, "output_dir", json_string(t->output_dir));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(t->cli, "result", f);
}

static void summary_head(const brim_run_result *r, brim_str *out) {
  char time[32], rate[32];
  const char *fmt;
  brim_format_duration(r->seconds, time);
  brim_ui_number(r->samples_per_s, rate);
  if (r->interrupted && r->steps == 1) {
    fmt = brim_tr("\ninterrupted after %lld step, %s, %s samples/s\n");
  } else if (r->interrupted) {
    fmt = brim_tr("\ninterrupted after %lld steps, %s, %s samples/s\n");
  } else if (r->steps == 1) {
    fmt = brim_tr("\ndone: %lld step, %s, %s samples/s\n");
  } else {
    fmt = brim_tr("\ndone: %lld steps, %s, %s samples/s\n");
  }
  if (!r->interrupted && r->steps_run == 0) {
    brim_str_printf(out,
                    brim_tr("nothing left to do: the run stands at step %lld; a higher --epochs or "
                            "--max-steps goes on\n"),
                    (long long)r->steps);
    return;
  }
  brim_str_printf(out, fmt, (long long)r->steps, time, rate);
}

static void loading_lines(const brim_run_result *r, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  if (brim_cli_loading_text(&r->loading, &text)) {
    brim_str_printf(out, brim_tr("  loading    %s\n"), text.data ? text.data : "");
  }
  brim_str_clear(&text);
  if (brim_cli_broken_text(&r->loading, &text)) {
    brim_str_printf(out, brim_tr("  warning    %s\n"), text.data ? text.data : "");
  }
  brim_str_deinit(&text);
}

static void summary(train *t, const brim_run_result *r, brim_str *out) {
  summary_head(r, out);
  if (r->partial && !isnan(r->train_loss)) {
    brim_str_printf(out, brim_tr("  loss       %.4g"), r->train_loss);
    if (!isnan(r->train_accuracy)) {
      brim_str_printf(out, brim_tr(", acc %.2f %%"), r->train_accuracy * 100);
    }
    brim_str_printf(out, brim_tr(" so far in epoch %lld\n"), (long long)r->epochs + 1);
  }
  if (!isnan(r->eval_accuracy)) {
    brim_str_printf(out, brim_tr("  val acc    %.2f %%"), r->eval_accuracy * 100);
    if (r->best_epoch > 0 && !isnan(r->best_accuracy)) {
      brim_str_printf(out, brim_tr(", best %.2f %% in epoch %lld"), r->best_accuracy * 100,
                      (long long)r->best_epoch);
    }
    brim_str_append_char(out, '\n');
  }
  char memory[128];
  if (brim_cli_memory_text(&t->memory, memory, sizeof memory)) {
    brim_str_printf(out, brim_tr("  memory     %s\n"), memory);
  }
  loading_lines(r, out);
  if (r->skipped_steps > 0) {
    brim_str_printf(out, brim_tr("  skipped    %lld steps whose gradients were not finite\n"),
                    (long long)r->skipped_steps);
  }
  if (r->bad_samples > 0) {
    brim_str_printf(out,
                    brim_tr("  warning    %lld samples gave a loss that is not a number; `brim "
                            "data verify PATH` tells whether the data hold NaN, else a lower --lr "
                            "or training.clip_norm may help\n"),
                    (long long)r->bad_samples);
  }
  static const char *const files[] = {"last.safetensors", "best.safetensors", "model.safetensors"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char *path = brim_fs_join(t->output_dir, files[i]);
    if (path && brim_fs_exists(path)) brim_str_printf(out, "  %s\n", path);
    brim_free(path);
  }
  if (r->interrupted) brim_str_append(out, brim_tr("go on with the same command and --resume\n"));
}

static brim_status show_result(train *t, const brim_run_result *result) {
  if (t->cli->json) return result_event(t, result);
  brim_str text;
  brim_str_init(&text);
  summary(t, result, &text);
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
  return status;
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

static brim_status train_in(brim_cli *cli, brim_cli_job *job, const char *dir) {
  train t = {.cli = cli, .job = job, .output_dir = dir, .memory = {.cli = cli, .job = job}};
  brim_run_options how = {.output_dir = dir,
                          .stop = cli->stop,
                          .max_steps = brim_option_int(&cli->parse, "max-steps", 0),
                          .on_start = on_start,
                          .on_progress = on_progress,
                          .on_epoch = on_epoch,
                          .ctx = &t};
  choose_resume(cli, job->config, &how);
  if (how.resume_path && !brim_fs_exists(how.resume_path)) {
    return brim_fail(BRIM_ENOENT, "%s: no such checkpoint", how.resume_path);
  }
  // a checkpoint from elsewhere starts a run of its own: it needs a place of its own
  bool goes_on = how.resume || (how.resume_path && lies_in(how.resume_path, dir));
  if (!goes_on) BRIM_TRY(refuse_overwriting(dir));
  BRIM_TRY(brim_cli_job_open(cli, job));
  BRIM_TRY(brim_cli_memory_check(&t.memory));
  brim_run_result result;
  memset(&result, 0, sizeof result);
  brim_status status = brim_run_train(job->work, job->config, &how, &result);
  if (status) {
    status = brim_cli_memory_failed(&t.memory, status);
  } else {
    brim_cli_memory_measure(&t.memory);
  }
  if (status == BRIM_OK || (status == BRIM_EINTERRUPTED && result.interrupted)) {
    brim_status shown = show_result(&t, &result);
    if (!status) status = shown;
  }
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  if (brim_option_int(&cli->parse, "max-steps", 0) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--max-steps must be 0 or more"));
  }
  brim_status status = brim_cli_job_config(cli, &job);
  if (!status) {
    brim_str dir;
    brim_str_init(&dir);
    status = choose_output_dir(&job, &dir);
    if (!status) status = train_in(cli, &job, dir.data);
    brim_str_deinit(&dir);
  }
  brim_cli_job_close(&job);
  return status;
}

const brim_cli_command brim_cli_train = {
    .name = "train",
    .summary = BRIM_N_("train, with progress, checkpoints and logs"),
    .usage = "[CONFIG] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_("Trains what CONFIG describes. Options and key=value words overrule the file; "
                     "`brim config explain` lists every key.\n"
                     "Ctrl-C finishes the step, saves and exits 130; `--resume` then goes on as if "
                     "nothing had happened. A second Ctrl-C stops at once."),
    .examples = BRIM_N_("ten epochs on MNIST\n"
                        "brim train configs/mnist-mlp.yaml --data-path data/mnist --epochs 10\n"
                        "another optimiser, another place\n"
                        "brim train mnist.yaml optimizer=sgd lr=0.1 --output-dir runs/sgd\n"
                        "start from weights, of brim or of PyTorch\n"
                        "brim train cifar.yaml --weights model.safetensors\n"
                        "go on after an interruption\n"
                        "brim train configs/mnist-mlp.yaml --data-path data/mnist --resume\n"),
    .options = options,
    .run = run,
};
