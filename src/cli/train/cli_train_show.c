// A training run as it is told while it goes on and when it ends: lines for people, events with
// --json.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_loading.h"
#include "cli/train/cli_train.h"

// Said once, before the first batch is slow.
static void say_pageable(const brim_cli_training *t, const brim_work_info *info) {
  char pinned[32];
  brim_cli_training_knob(t, "pin_memory", pinned);
  bool copies = !info->cache || strcmp(info->cache, "gpu") != 0;
  const char *why = brim_cli_pageable_text(t->job->device);
  if (why && copies && strcmp(pinned, "false") == 0) brim_log_text(BRIM_LOG_WARN, "train", why);
}

static brim_status check(void *ctx, const brim_setting *setting, const brim_plan *plan) {
  brim_cli_training *t = ctx;
  return brim_cli_memory_check_plan(&t->memory, setting, plan);
}

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  brim_cli_training *t = ctx;
  t->cli->running = true;
  t->unit = info->unit;
  brim_cli_memory_started(&t->memory, plan);
  say_pageable(t, info);
  brim_cli_training_sampler(t, info);
  if (t->cli->json) {
    if (brim_cli_training_start_event(t, info, plan, start_step)) brim_status_clear();
    return;
  }
  if (t->cli->quiet) return;
  brim_str text;
  brim_str_init(&text);
  brim_cli_training_banner(t, info, plan, start_step, &text);
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
}

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_training *t = ctx;
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

static bool is_knn(const char *metric) { return metric && strcmp(metric, "knn") == 0; }

static const char *unit_of(const brim_cli_training *t) {
  return t->unit ? brim_tr(t->unit) : brim_tr("samples");
}

static void epoch_line(const brim_cli_training *t, const brim_epoch_report *r, brim_str *out) {
  char number[32];
  brim_str head;
  brim_str_init(&head);
  brim_str_printf(&head, brim_tr("epoch %lld/%lld"), (long long)r->epoch, (long long)r->epochs);
  brim_ui_styled(out, &t->cli->out, BRIM_UI_BOLD, head.data);
  brim_str_deinit(&head);
  if (r->policy) {
    brim_cli_append_policy(out, r);
  } else {
    append_metric(out, brim_tr("loss"), r->train_loss, brim_tr("acc"), r->train_accuracy);
  }
  if (r->policy) {
    // the evaluation stands there already
  } else if (r->evaluated && is_knn(r->metric)) {
    brim_str_printf(out, "  knn %.2f %%", r->eval_accuracy * 100);
  } else if (r->evaluated) {
    append_metric(out, brim_tr("val loss"), r->eval_loss, brim_tr("val acc"), r->eval_accuracy);
  }
  if (!isnan(r->seconds)) {
    brim_ui_number(r->samples_per_s, number);
    brim_str_printf(out, "  %s %s/s", number, unit_of(t));
    brim_format_duration(r->seconds, number);
    brim_str_printf(out, "  %s", number);
  }
  if (!isnan(r->gpu_percent)) brim_str_printf(out, brim_tr("  GPU %.0f %%"), r->gpu_percent);
  if (!isnan(r->sm_percent)) brim_str_printf(out, brim_tr("  SMs %.0f %%"), r->sm_percent);
  if (r->best) {
    brim_str_append(out, "  ");
    brim_ui_styled(out, &t->cli->out, BRIM_UI_GOOD, brim_tr("best"));
  }
  brim_str_append_char(out, '\n');
}

static brim_status put_scores(json_t *f, const brim_epoch_report *r) {
  BRIM_TRY(brim_json_put(f, "loss", brim_json_number(r->train_loss)));
  BRIM_TRY(brim_json_put(f, "accuracy", brim_json_number(r->train_accuracy)));
  BRIM_TRY(brim_json_put(f, "val_loss", brim_json_number(r->eval_loss)));
  const char *metric = is_knn(r->metric) ? "knn" : "val_accuracy";
  return brim_json_put(f, metric, brim_json_number(r->eval_accuracy));
}

static brim_status epoch_event(brim_cli_training *t, const brim_epoch_report *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = r->policy ? brim_cli_put_policy(f, r) : put_scores(f, r);
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
  brim_cli_training *t = ctx;
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

//---------------------------------- steps ----------------------------------

// Three digits behind the point as in seed guide 003, more where a step is shorter than that shows.
static void seconds_text(double seconds, char out[32]) {
  snprintf(out, 32, seconds >= 0.0995 ? "%.3fs" : "%.5fs", seconds);
}

static void steps_line(const brim_cli_training *t, const brim_run_steps *s, brim_str *out) {
  char data[32], compute[32], rate[32];
  brim_str line;
  brim_str_init(&line);
  seconds_text(s->data_s, data);
  seconds_text(s->compute_s, compute);
  brim_ui_number(s->samples_per_s, rate);
  brim_str_printf(&line, brim_tr("step %lld"), (long long)s->step);
  if (s->policy) {
    brim_cli_append_return(&line, brim_tr("directions"), &s->returns);
    brim_cli_append_falls(&line, &s->returns);
  } else {
    append_metric(&line, brim_tr("loss"), s->loss, brim_tr("acc"), s->accuracy);
  }
  brim_str_printf(&line, "  %s %s/s", rate, unit_of(t));
  if (s->policy) {
    brim_str_printf(&line, "  Compute: %s", compute);
  } else {
    brim_str_printf(&line, "  Data: %s | Compute: %s", data, compute);
  }
  brim_ui_styled(out, &t->cli->out, BRIM_UI_DIM, line.data);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&line);
}

static brim_status steps_event(brim_cli_training *t, const brim_run_steps *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "step", json_integer(r->step));
  if (!s && r->policy) s = brim_json_put(f, "directions", brim_cli_returns_json(&r->returns));
  if (!s && !r->policy) s = brim_json_put(f, "loss", brim_json_number(r->loss));
  if (!s && !r->policy) s = brim_json_put(f, "accuracy", brim_json_number(r->accuracy));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(r->lr));
  if (!s && !r->policy) s = brim_json_put(f, "grad_norm", brim_json_number(r->grad_norm));
  if (!s) s = brim_json_put(f, "data_s", brim_json_number(r->data_s));
  if (!s) s = brim_json_put(f, "compute_s", brim_json_number(r->compute_s));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(t->cli, "steps", f);
}

// Said once: what the figures of the line mean, when they mean something.
static void say_waiting(brim_cli_training *t, const brim_run_steps *s) {
  if (t->said_waiting || !(s->data_s > s->compute_s) || s->data_s < 1e-3) return;
  t->said_waiting = true;
  brim_log_text(BRIM_LOG_WARN, "train",
                brim_tr("steps wait for data longer than they compute; try more data.num_workers, "
                        "data.cache=ram or a faster disk; `brim bench` measures which helps"));
}

static void on_steps(void *ctx, const brim_run_steps *steps) {
  brim_cli_training *t = ctx;
  say_waiting(t, steps);
  if (t->cli->json) {
    if (steps_event(t, steps)) brim_status_clear();
    return;
  }
  if (t->cli->quiet) return;
  brim_str text;
  brim_str_init(&text);
  steps_line(t, steps, &text);
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
}

//---------------------------------- the end ----------------------------------

// {"loss_not_finite": 3, ...}: only what happened.
static json_t *anomalies_json(const brim_run_result *r) {
  json_t *o = json_object();
  for (int i = 0; o && i < BRIM_ANOMALY_COUNT; i++) {
    if (r->anomalies[i] == 0) continue;
    const char *name = brim_anomaly_name((brim_anomaly)i);
    if (brim_json_put(o, name, json_integer(r->anomalies[i]))) {
      json_decref(o);
      return NULL;
    }
  }
  return o;
}

static brim_status put_last_scores(json_t *f, const brim_run_result *r) {
  bool knn = is_knn(r->metric);
  BRIM_TRY(brim_json_put(f, "loss", brim_json_number(r->train_loss)));
  BRIM_TRY(brim_json_put(f, "val_loss", brim_json_number(r->eval_loss)));
  BRIM_TRY(brim_json_put(f, knn ? "knn" : "val_accuracy", brim_json_number(r->eval_accuracy)));
  BRIM_TRY(
      brim_json_put(f, knn ? "best_knn" : "best_accuracy", brim_json_number(r->best_accuracy)));
  if (!isnan(r->probe_accuracy)) {
    BRIM_TRY(brim_json_put(f, "probe", brim_json_number(r->probe_accuracy)));
  }
  return brim_json_put(f, "best_loss", brim_json_number(r->best_loss));
}

static brim_status result_event(brim_cli_training *t, const brim_run_result *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "steps", json_integer(r->steps));
  if (!s) s = brim_json_put(f, "steps_run", json_integer(r->steps_run));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = r->policy ? brim_cli_put_last_policy(f, r) : put_last_scores(f, r);
  if (!s) s = brim_json_put(f, "best_epoch", json_integer(r->best_epoch));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "wall_s", brim_json_number(r->wall_seconds));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "skipped_steps", json_integer(r->skipped_steps));
  if (!s) s = brim_json_put(f, "bad_samples", json_integer(r->bad_samples));
  if (!s) s = brim_json_put(f, "anomalies", anomalies_json(r));
  if (!s) s = brim_json_put(f, "stopped_early", json_boolean(r->stopped_early));
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
  if (!s && !r->policy) s = brim_json_put(f, "accuracy", brim_json_number(r->train_accuracy));
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

// What makes a run go on that has nothing left to do, by what ended it.
static void nothing_left(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  bool through = r->epochs >= brim_config_int(t->job->config, "training.epochs");
  if (r->policy && !r->stopped_early) {
    brim_str_printf(out,
                    brim_tr("nothing left to do: the run is complete at step %lld; raise "
                            "ars.iterations or --max-steps to continue training\n"),
                    (long long)r->steps);
    return;
  }
  const char *fmt;
  if (r->stopped_early && through) {
    fmt = brim_tr(
        "nothing left to do: early stopping ended the run at step %lld; raise "
        "training.early_stopping_patience and --epochs to continue training\n");
  } else if (r->stopped_early) {
    fmt = brim_tr(
        "nothing left to do: early stopping ended the run at step %lld; raise "
        "training.early_stopping_patience to continue training\n");
  } else {
    fmt = brim_tr(
        "nothing left to do: the run is complete at step %lld; raise --epochs or --max-steps to "
        "continue training\n");
  }
  brim_str_printf(out, fmt, (long long)r->steps);
}

static void summary_head(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  char time[32], rate[32];
  const char *fmt;
  brim_format_duration(r->seconds, time);
  brim_ui_number(r->samples_per_s, rate);
  if (r->interrupted && r->steps == 1) {
    fmt = brim_tr("\ninterrupted after %lld step, %s, %s %s/s\n");
  } else if (r->interrupted) {
    fmt = brim_tr("\ninterrupted after %lld steps, %s, %s %s/s\n");
  } else if (r->steps == 1) {
    fmt = brim_tr("\ndone: %lld step, %s, %s %s/s\n");
  } else {
    fmt = brim_tr("\ndone: %lld steps, %s, %s %s/s\n");
  }
  if (!r->interrupted && r->steps_run == 0) {
    nothing_left(t, r, out);
  } else if (r->steps_run < r->steps) {
    // the steps are the run's, the time and the rate are of those made now
    fmt = r->interrupted
              ? brim_tr("\ninterrupted after %lld steps, %lld of them now: %s, %s %s/s\n")
              : brim_tr("\ndone: %lld steps, %lld of them now: %s, %s %s/s\n");
    brim_str_printf(out, fmt, (long long)r->steps, (long long)r->steps_run, time, rate, unit_of(t));
  } else {
    brim_str_printf(out, fmt, (long long)r->steps, time, rate, unit_of(t));
  }
}

// The columns of the summary's labels: those of the longest in this language, and two blanks.
static int summary_width(const brim_run_result *r) {
  static const char *const labels[] = {
      BRIM_N_("loss"),        BRIM_N_("val loss"), BRIM_N_("val acc"), BRIM_N_("knn"),
      BRIM_N_("probe"),       BRIM_N_("memory"),   BRIM_N_("loading"), BRIM_N_("warning"),
      BRIM_N_("skipped"),     BRIM_N_("advice"),   BRIM_N_("stopped"), BRIM_N_("in all"),
      BRIM_N_("return"),
      BRIM_N_("zero policy"),  // the last two are a policy's
  };
  int width = 9;
  size_t count = sizeof labels / sizeof labels[0] - (r->policy ? 0 : 2);
  for (size_t i = 0; i < count; i++) {
    int columns = brim_utf8_width(brim_tr(labels[i]));
    if (columns > width) width = columns;
  }
  return width + 2;
}

// The label of a row of the summary, padded to the others' width.
static void summary_label(const brim_run_result *r, brim_str *out, const char *label) {
  int width = summary_width(r) - brim_utf8_width(label);
  brim_str_printf(out, "  %s", label);
  brim_str_repeat(out, ' ', width > 0 ? (size_t)width : 1);
}

static void summary_row(const brim_run_result *r, brim_str *out, const char *label,
                        const char *text) {
  summary_label(r, out, label);
  brim_str_printf(out, "%s\n", text);
}

static void loading_lines(const brim_run_result *r, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  if (brim_cli_loading_text(&r->loading, &text)) {
    summary_row(r, out, brim_tr("loading"), text.data ? text.data : "");
  }
  brim_str_clear(&text);
  if (brim_cli_broken_text(&r->loading, &text)) {
    summary_row(r, out, brim_tr("warning"), text.data ? text.data : "");
  }
  brim_str_deinit(&text);
}

static void anomaly_text(brim_anomaly kind, int64_t count, int64_t step, char *out, size_t size) {
  static const char *const formats[BRIM_ANOMALY_COUNT] = {
      [BRIM_ANOMALY_LOSS_NOT_FINITE] =
          BRIM_N_("%lld samples gave a loss that is not a number, from step %lld on"),
      [BRIM_ANOMALY_GRADIENT_NOT_FINITE] =
          BRIM_N_("%lld steps whose gradients were not finite, from step %lld on"),
      [BRIM_ANOMALY_LOSS_EXPLODED] =
          BRIM_N_("%lld times the loss was many times its median, first by step %lld"),
      [BRIM_ANOMALY_GRADIENT_EXPLODED] =
          BRIM_N_("%lld times the gradient norm was many times its median, first by step %lld"),
      [BRIM_ANOMALY_RETURN_COLLAPSED] =
          BRIM_N_("%lld times the return collapsed, first by step %lld"),
      [BRIM_ANOMALY_UPDATE_SKIPPED] =
          BRIM_N_("%lld updates did not change the policy, from step %lld on"),
      [BRIM_ANOMALY_EPISODE_DIVERGED] = BRIM_N_("%lld episodes diverged, from step %lld on")};
  static const char *const single[BRIM_ANOMALY_COUNT] = {
      [BRIM_ANOMALY_LOSS_NOT_FINITE] =
          BRIM_N_("%lld sample gave a loss that is not a number, by step %lld"),
      [BRIM_ANOMALY_GRADIENT_NOT_FINITE] =
          BRIM_N_("%lld step whose gradients were not finite, by step %lld"),
      [BRIM_ANOMALY_LOSS_EXPLODED] =
          BRIM_N_("%lld time the loss was many times its median, by step %lld"),
      [BRIM_ANOMALY_GRADIENT_EXPLODED] =
          BRIM_N_("%lld time the gradient norm was many times its median, by step %lld"),
      [BRIM_ANOMALY_RETURN_COLLAPSED] = BRIM_N_("%lld time the return collapsed, by step %lld"),
      [BRIM_ANOMALY_UPDATE_SKIPPED] =
          BRIM_N_("%lld update did not change the policy, by step %lld"),
      [BRIM_ANOMALY_EPISODE_DIVERGED] = BRIM_N_("%lld episode diverged, by step %lld")};
  snprintf(out, size, brim_tr(count == 1 ? single[kind] : formats[kind]), (long long)count,
           (long long)step);
}

static void anomaly_lines(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  char text[512], advice[512];
  int worst = -1;
  for (int i = 0; i < BRIM_ANOMALY_COUNT; i++) {
    if (r->anomalies[i] == 0) continue;
    bool skipped = i == BRIM_ANOMALY_GRADIENT_NOT_FINITE;
    anomaly_text((brim_anomaly)i, r->anomalies[i], r->first_anomaly[i], text, sizeof text);
    summary_row(r, out, skipped ? brim_tr("skipped") : brim_tr("warning"), text);
    // in fp16 skipped steps are how the loss scale is found: nothing to change for them alone
    if (worst < 0 && !(skipped && r->scaled)) worst = i;
  }
  if (r->collapse[0]) summary_row(r, out, brim_tr("advice"), r->collapse);
  if (worst < 0 || worst >= BRIM_ANOMALY_RETURN_COLLAPSED) return;
  brim_anomaly_advice((brim_anomaly)worst, t->job->config, r->lr, advice, sizeof advice);
  summary_row(r, out, brim_tr("advice"), advice);
}

// Where the steps were not nearly all of it.
static void time_line(const brim_run_result *r, brim_str *out) {
  char time[32];
  if (r->steps_run == 0 || r->wall_seconds < 1.1 * r->seconds + 0.5) return;
  brim_format_duration(r->wall_seconds, time);
  summary_label(r, out, brim_tr("in all"));
  brim_str_printf(out, brim_tr("%s including start, evaluations and checkpoints\n"), time);
}

static void stopped_line(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  char text[256];
  const brim_config *config = t->job->config;
  if (!r->stopped_early) return;
  snprintf(text, sizeof text,
           brim_tr("early, after epoch %lld: no improvement above %g in %lld evaluations; the best "
                   "is epoch %lld"),
           (long long)r->epochs, brim_config_float(config, "training.early_stopping_delta"),
           (long long)brim_config_int(config, "training.early_stopping_patience"),
           (long long)r->best_epoch);
  summary_row(r, out, brim_tr("stopped"), text);
}

// The last evaluation of a policy, the best, and doing nothing in the same episodes.
static void policy_lines(const brim_run_result *r, brim_str *out) {
  brim_str line;
  brim_str_init(&line);
  if (r->eval_returns.episodes > 0) {
    brim_cli_append_return(&line, "", &r->eval_returns);
    brim_cli_append_falls(&line, &r->eval_returns);
    double speed = brim_returns_speed(&r->eval_returns);
    if (!isnan(speed)) brim_str_printf(&line, brim_tr(", %.3g m/s forward"), speed);
    brim_str_printf(&line, brim_tr(" in %lld held-out episodes"),
                    (long long)r->eval_returns.episodes);
    if (r->best_epoch > 0 && !isnan(r->best_accuracy)) {
      brim_str_append(&line, ", ");
      brim_str_printf(&line, brim_tr("best %.4g in epoch %lld"), r->best_accuracy,
                      (long long)r->best_epoch);
    }
    if (line.data) summary_row(r, out, brim_tr("return"), line.data + 3);
    brim_str_clear(&line);
  }
  if (r->baseline.episodes > 0) {
    brim_cli_append_return(&line, "", &r->baseline);
    brim_cli_append_falls(&line, &r->baseline);
    if (line.data) summary_row(r, out, brim_tr("zero policy"), line.data + 3);
  }
  brim_str_deinit(&line);
}

// The last evaluation and the best; where none was made now, the best alone.
static void evaluation_line(const brim_run_result *r, brim_str *out) {
  bool share = !isnan(r->eval_accuracy) || (isnan(r->eval_loss) && !isnan(r->best_accuracy));
  double now = share ? r->eval_accuracy * 100 : r->eval_loss;
  double best = share ? r->best_accuracy * 100 : r->best_loss;
  char text[128] = "";
  if (r->best_epoch > 0 && !r->best_by_training && !isnan(best)) {
    const char *fmt =
        share ? brim_tr("best %.2f %% in epoch %lld") : brim_tr("best %.4g in epoch %lld");
    snprintf(text, sizeof text, fmt, best, (long long)r->best_epoch);
  } else if (r->best_epoch > 0 && share && !isnan(now)) {
    snprintf(text, sizeof text, brim_tr("best epoch %lld by its training"),
             (long long)r->best_epoch);
  }
  if (isnan(now) && !text[0]) return;
  const char *rate = is_knn(r->metric) ? brim_tr("knn") : brim_tr("val acc");
  summary_label(r, out, share ? rate : brim_tr("val loss"));
  if (!isnan(now)) brim_str_printf(out, share ? "%.2f %%" : "%.4g", now);
  brim_str_printf(out, "%s%s\n", !isnan(now) && text[0] ? ", " : "", text);
}

// --max-steps is for trying: there may have been nothing to judge by, and no best.safetensors.
static void unjudged_line(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  if (!r->unjudged) return;
  char text[640];
  char *path = brim_fs_join(t->output_dir, "last.safetensors");
  snprintf(text, sizeof text,
           brim_tr("none: --max-steps (training.steps) ended the run before an evaluation; run "
                   "brim eval %s"),
           path ? path : "last.safetensors");
  brim_free(path);
  summary_row(r, out, is_knn(r->metric) ? brim_tr("knn") : brim_tr("val loss"), text);
}

static void summary(brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  t->unit = r->unit;
  summary_head(t, r, out);
  time_line(r, out);
  stopped_line(t, r, out);
  if (r->policy) policy_lines(r, out);
  if (r->partial && !isnan(r->train_loss)) {
    summary_label(r, out, brim_tr("loss"));
    brim_str_printf(out, "%.4g", r->train_loss);
    if (!isnan(r->train_accuracy)) {
      brim_str_printf(out, brim_tr(", acc %.2f %%"), r->train_accuracy * 100);
    }
    brim_str_printf(out, brim_tr(" so far in epoch %lld\n"), (long long)r->epochs + 1);
  }
  if (!r->policy) evaluation_line(r, out);
  unjudged_line(t, r, out);
  if (!isnan(r->probe_accuracy)) {
    summary_label(r, out, brim_tr("probe"));
    brim_str_printf(out, brim_tr("%.2f %%, linear classifier on the features\n"),
                    r->probe_accuracy * 100);
  }
  char memory[128];
  if (brim_cli_memory_text(&t->memory, memory, sizeof memory)) {
    summary_row(r, out, brim_tr("memory"), memory);
  }
  loading_lines(r, out);
  anomaly_lines(t, r, out);
  static const char *const files[] = {"last.safetensors", "best.safetensors", "model.safetensors"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char *path = brim_fs_join(t->output_dir, files[i]);
    if (path && brim_fs_exists(path)) brim_str_printf(out, "  %s\n", path);
    brim_free(path);
  }
  if (r->interrupted)
    brim_str_append(out, brim_tr("to continue, run the same command with --resume\n"));
}

brim_status brim_cli_training_result(brim_cli_training *t, const brim_run_result *result) {
  if (t->cli->json) return result_event(t, result);
  brim_str text;
  brim_str_init(&text);
  summary(t, result, &text);
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
  return status;
}

void brim_cli_training_watch(brim_cli_training *t, brim_run_options *options) {
  options->check = check;
  options->usage = brim_cli_training_usage;
  options->on_start = on_start;
  options->on_progress = on_progress;
  options->on_epoch = on_epoch;
  options->on_steps = on_steps;
  options->ctx = t;
}
