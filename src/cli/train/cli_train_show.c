// A training run as it is reported: the start, its progress, the end. Lines for people, events with --json.

#include "cli/train/cli_train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "cli/job/cli_loading.h"
#include "record/record_job.h"

//--------------------------------------- usage of the GPU ---------------------------------------
// How busy the GPU is while a workload trains that asks for it: where a step is one kernel, being busy
// and being full are two things. Without an answer the figures stay unknown.

// How busy the GPU is, from the start of a run to its end (cli_train_show.c).
static void training_sampler(brim_cli_training *t, const brim_work_info *info) {
  brim_cli_job *job = t->job;
  if (!info->watches_gpu || !job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.1, &t->sampler)) {
    brim_log_info("train", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

static void training_usage(void *ctx, double *gpu_percent, double *sm_percent) {
  brim_cli_training *t = ctx;
  brim_gpu_usage u;
  if (!t->sampler) return;
  if (!gpu_percent) {
    brim_gpu_sampler_mark(t->sampler);
    return;
  }
  brim_gpu_sampler_read(t->sampler, &u);
  *gpu_percent = u.gpu_percent;
  *sm_percent = u.sm_percent;
}

void brim_cli_training_end(brim_cli_training *t) {
  brim_free(t->findings);
  t->findings = NULL;
  brim_gpu_sampler_stop(t->sampler);
  t->sampler = NULL;
}

//-------------------------------------------- start --------------------------------------------
// The start of a training run as it is reported: what runs where, on which data, with how much
// memory.

static void row(brim_str *out, const brim_term *term, const char *label, const char *value) {
  int width = brim_utf8_width(label);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, label);
  brim_str_repeat(out, ' ', width < 11 ? (size_t)(11 - width) : 1);
  brim_ui_clip(out, term, value, term->width > 30 ? term->width - 14 : 0);
  brim_str_append_char(out, '\n');
}

// A GPU's overhead has a row of its own; on the host it is our bookkeeping.
static void memory_text(const brim_cli_training *t, const brim_plan *plan, char *out, size_t size) {
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
    n += snprintf(out + n, size - (size_t)n, brim_tr(", %d of %d blocks recomputed"),
                  (int)plan->recomputed, (int)plan->segments);
  }
  if (t->job->ranks && n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, "%s", brim_tr(" (each rank)"));
  }
}

// The config's value of a knob; "" where the workload has no such knob.
static void training_knob(const brim_cli_training *t, brim_knob_role role, char out[32]) {
  const brim_work *work = t->job->work;
  int knob = brim_work_knob_as(work, role);
  out[0] = '\0';
  if (knob >= 0) brim_knob_format(&work->knobs[knob], work->knobs[knob].value, out);
}

// How the device computes, where there is a choice of it: a GPU.
static void precision_text(const brim_cli_training *t, char *out, size_t size) {
  char precision[32], compile[32];
  out[0] = '\0';
  if (t->job->device->info.kind != BRIM_DEVICE_GPU) return;
  training_knob(t, BRIM_ROLE_PRECISION, precision);
  training_knob(t, BRIM_ROLE_GRAPH, compile);
  if (!precision[0] && !compile[0]) return;
  bool graphs = brim_device_has_graphs(t->job->device) && strcmp(compile, "false") != 0;
  snprintf(out, size, "%s%s%s", precision, precision[0] ? ", " : "",
           graphs ? brim_tr("graph capture on") : brim_tr("graph capture off"));
}

static void check(brim_str *out, const brim_term *term, const char *text) {
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_GOOD, term->unicode ? "\xe2\x9c\x93" : "*");
  brim_str_append_char(out, ' ');
  brim_ui_clip(out, term, text, term->width > 30 ? term->width - 5 : 0);
  brim_str_append_char(out, '\n');
}

// Micro-batches of a step, and its samples: no more than an epoch has.
static int64_t accumulated(const brim_work_info *work, int64_t *samples) {
  int64_t steps = work->accumulation;
  *samples = work->batch * steps;
  if (steps > 1 && *samples > work->samples_per_epoch && work->samples_per_epoch > 0) {
    *samples = work->samples_per_epoch;
    steps = (*samples + work->batch - 1) / work->batch;
  }
  return steps;
}

// What seed guide 004 shows first: the GPU, its memory, and what is made use of. A CPU has its name in
// the row below, and its memory is not what a run is made to fit.
static void checks(const brim_cli_training *t, const brim_work_info *work, brim_str *out) {
  const brim_term *term = &t->cli->out;
  const brim_device_info *info = &t->job->device->info;
  bool gpu = info->kind == BRIM_DEVICE_GPU;
  char text[320], bytes[32], precision[32];
  if (gpu) {
    snprintf(text, sizeof text, "GPU: %s", info->name);
    check(out, term, text);
  }
  if (gpu && info->total_bytes > 0) {
    brim_format_bytes(info->total_bytes, bytes);
    snprintf(text, sizeof text, "VRAM: %s", bytes);
    check(out, term, text);
  }
  if (gpu && t->job->options.measure_algorithms) {
    check(out, term, brim_tr("algorithm selection enabled"));
  }
  training_knob(t, BRIM_ROLE_PRECISION, precision);
  if (strcmp(precision, "bf16") == 0 || strcmp(precision, "fp16") == 0) {
    snprintf(text, sizeof text, brim_tr("Mixed Precision (%s) enabled"),
             precision[0] == 'b' ? "BF16" : "FP16");
    check(out, term, text);
  }
  int64_t samples, steps = accumulated(work, &samples);
  if (steps > 1) {
    snprintf(text, sizeof text,
             brim_tr("Gradient Accumulation: %lld steps (effective batch = %lld)"),
             (long long)steps, (long long)samples);
    check(out, term, text);
  }
}

static void batch_text(const brim_cli_training *t, const brim_work_info *info, char *out,
                       size_t size) {
  int64_t batch = info->batch, samples, steps = accumulated(info, &samples);
  char precision[32];
  training_knob(t, BRIM_ROLE_PRECISION, precision);
  if (!precision[0]) snprintf(precision, sizeof precision, "fp32");
  const char *how = info->accumulates ? info->accumulates : "";
  const char *gap = how[0] ? " " : "";
  if (steps > 1 && samples == batch * steps) {
    snprintf(out, size, brim_tr("%lld x %lld accumulated%s%s = %lld, %s"), (long long)batch,
             (long long)steps, gap, how, (long long)samples, precision);
  } else if (steps > 1) {  // the last micro-batch is short: an epoch has no more samples
    snprintf(out, size, brim_tr("%lld x %lld + %lld accumulated%s%s = %lld, %s"), (long long)batch,
             (long long)(samples / batch), (long long)(samples % batch), gap, how,
             (long long)samples, precision);
  } else if (info->samples_per_epoch > 0 && info->samples_per_epoch < batch) {
    snprintf(out, size, brim_tr("%lld rows for %lld samples, %s"), (long long)batch,
             (long long)info->samples_per_epoch, precision);
  } else {
    snprintf(out, size, "%lld, %s", (long long)batch, precision);
  }
}

// Why an epoch leaves samples out: drop_last, or no rank takes a sample more than another.
static void left_out_text(const brim_cli_training *t, const brim_work_info *info, char *out,
                          size_t size) {
  char epoch[32];
  const int64_t left = info->set_samples - info->samples_per_epoch;
  const int ranks = t->job->ranks ? t->job->ranks->size : 1;
  brim_format_count((double)info->samples_per_epoch, epoch);
  if (left >= ranks) {
    snprintf(out, size, brim_tr(", %s per epoch (drop_last)"), epoch);
  } else if (left > 0) {
    snprintf(out, size, brim_tr(", %s per epoch (equal parts for %d ranks)"), epoch, ranks);
  }
}

// What brim took the targets for, and so their loss.
static void targets_text(const brim_work_info *info, char *out, size_t size) {
  const bool classes = info->classes > 0, labels = strcmp(info->loss, "bce") == 0;
  const int64_t n = classes ? info->classes : info->target_dim;
  const char *what = classes  ? n == 1 ? brim_tr("%lld class") : brim_tr("%lld classes")
                      : labels ? brim_tr("%lld labels of 0 or 1 per sample")
                     : n == 1 ? brim_tr("%lld number to predict")
                              : brim_tr("%lld numbers to predict");
  int used = snprintf(out, size, what, (long long)n);
  if (used > 0 && (size_t)used < size) {
    snprintf(out + used, size - (size_t)used, brim_tr(", loss %s"), info->loss);
  }
}

static void data_rows(const brim_cli_training *t, const brim_work_info *info, brim_str *out) {
  const brim_term *term = &t->cli->out;
  char text[320], count[32], eval[32], some[96] = "";
  brim_format_count((double)info->set_samples, count);
  brim_format_count((double)info->eval_samples, eval);
  left_out_text(t, info, some, sizeof some);
  int n = snprintf(text, sizeof text,
                   info->eval_samples ? brim_tr("%s %s to train on%s, %s to evaluate on")
                                      : brim_tr("%s %s to train on%s"),
                   count, info->unit ? brim_tr(info->unit) : "", some, eval);
  if (info->eval_size[0] > 0 && n > 0 && (size_t)n < sizeof text) {
    n += snprintf(text + n, sizeof text - (size_t)n, brim_tr(" as images of %lld x %lld"),
                  (long long)info->eval_size[0], (long long)info->eval_size[1]);
  }
  char kept[300];
  if (brim_cli_cache_text(info, kept, sizeof kept) && n > 0 && (size_t)n < sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, ", %s", kept);
  }
  row(out, term, brim_tr("data"), text);
  if (info->loss) {
    targets_text(info, text, sizeof text);
    row(out, term, brim_tr("targets"), text);
  }
  if (info->batch <= 0) return;  // it has no batches
  batch_text(t, info, text, sizeof text);
  row(out, term, brim_tr("batch"), text);
}

// What the workload says of itself, where it has no data.
static void own_rows(const brim_cli_training *t, brim_str *out) {
  const brim_work *work = t->job->work;
  brim_work_line lines[8];
  size_t n = work->table->text->start_lines(work->state, lines, sizeof lines / sizeof *lines);
  for (size_t i = 0; i < n; i++) row(out, &t->cli->out, brim_tr(lines[i].label), lines[i].text);
}

// "2 over shm", and why not over NCCL.
static void ranks_row(const brim_cli_training *t, brim_str *out) {
  const brim_cli_job *job = t->job;
  char text[320];
  if (!job->ranks) return;
  int n = snprintf(text, sizeof text, brim_tr("%d over %s"), job->ranks->size,
                   brim_device_exchange(job->device));
  if (job->exchange[0] && n > 0 && (size_t)n < sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, brim_tr("; not over NCCL: %s"), job->exchange);
  }
  row(out, &t->cli->out, brim_tr("ranks"), text);
}

// Text of the start, and the "start" event.
static void training_banner(const brim_cli_training *t, const brim_work_info *info,
                            const brim_plan *plan, int64_t start_step, brim_str *out) {
  const brim_term *term = &t->cli->out;
  char text[320], count[32];
  brim_ui_styled(out, term, BRIM_UI_BOLD, "brim train");
  brim_str_append_char(out, '\n');
  checks(t, info, out);
  brim_cli_device_text(t->job->device, text, sizeof text);
  row(out, term, brim_tr("device"), text);
  if (brim_cli_backend_text(t->job, text, sizeof text)) row(out, term, brim_tr("backend"), text);
  snprintf(text, sizeof text, t->job->ranks ? brim_tr("%d for each rank") : "%d",
           t->job->device->info.threads);
  if (t->job->device->info.kind == BRIM_DEVICE_CPU) row(out, term, brim_tr("threads"), text);
  ranks_row(t, out);
  char what[192];
  row(out, term, brim_tr("model"), brim_ui_description(info->description, what));
  brim_format_count((double)plan->parameter_count, count);
  row(out, term, brim_tr("parameters"), count);
  if (t->job->work->table->text) {
    own_rows(t, out);
  } else {
    data_rows(t, info, out);
  }
  precision_text(t, text, sizeof text);
  if (text[0]) row(out, term, brim_tr("compute"), text);
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

// What the baseline gives, under the names of the log.
static brim_status put_baseline(json_t *f, const brim_metric_set *set, const double *baseline) {
  for (size_t i = 0; i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(&set->rows[i], BRIM_METRIC_BASELINE, BRIM_METRIC_COLUMN, name)) continue;
    BRIM_TRY(brim_json_put(f, name, brim_json_number(baseline[i])));
  }
  return BRIM_OK;
}

// How far the run goes, as far as is known before it: early stopping may end it sooner.
static brim_status put_length(json_t *f, const brim_cli_training *t, const brim_work_info *info) {
  const brim_config *config = t->job->config;
  int64_t epochs = info->epochs > 0 ? info->epochs : brim_config_int(config, "training.epochs");
  int64_t steps = info->steps > 0 ? info->steps : epochs * info->steps_per_epoch;
  const int64_t limits[] = {brim_config_int(config, "training.steps"),
                            brim_option_int(&t->cli->parse, "max-steps", 0)};
  for (size_t i = 0; i < 2; i++) {
    if (limits[i] > 0 && limits[i] < steps) steps = limits[i];
  }
  BRIM_TRY(brim_json_put(f, "epochs", json_integer(epochs)));
  return brim_json_put(f, "steps", json_integer(steps));
}

static brim_status put_ranks(json_t *f, const brim_cli_job *job) {
  BRIM_TRY(brim_json_put(f, "ranks", json_integer(job->ranks->size)));
  return brim_json_put(f, "exchange", json_string(brim_device_exchange(job->device)));
}

static brim_status training_start_event(brim_cli_training *t, const brim_work_info *info,
                                        const brim_plan *plan, int64_t start_step) {
  char device[320];
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  double overhead = t->job->memory.uuid[0] ? brim_cli_memory_known(&t->memory)
                                           : (double)stats.live_bytes[BRIM_MEM_OVERHEAD];
  brim_cli_device_text(t->job->device, device, sizeof device);
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "device", json_string(device));
  bool slow = brim_cli_backend_text(t->job, device, sizeof device);
  if (!s && slow) s = brim_json_put(f, "backend", json_string(device));
  if (!s && t->job->ranks) s = put_ranks(f, t->job);
  if (!s) s = brim_json_put(f, "model", json_string(info->description ? info->description : ""));
  if (!s && info->loss) s = brim_json_put(f, "loss_name", json_string(info->loss));
  if (!s && info->fused) s = brim_json_put(f, "fused", json_string(info->fused));
  if (!s) {
    s = brim_json_put(f, "parameters", brim_json_number((double)plan->parameter_count));
  }
  if (!s) s = brim_json_put(f, "samples_per_epoch", json_integer(info->samples_per_epoch));
  if (!s) s = brim_json_put(f, "steps_per_epoch", json_integer(info->steps_per_epoch));
  if (!s) s = put_length(f, t, info);
  if (!s) s = brim_json_put(f, "eval_samples", json_integer(info->eval_samples));
  const brim_metric_set *set = t->job->work->metrics;
  if (!s && set->baseline_label) s = put_baseline(f, set, info->baseline);
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

//--------------------------------------- progress and end ---------------------------------------
// A training run as it is reported while it continues and when it ends: lines for people, events
// with --json.

// Said once, before the first batch is slow.
static void say_pageable(const brim_cli_training *t, const brim_work_info *info) {
  char pinned[32];
  training_knob(t, BRIM_ROLE_PINNED, pinned);
  bool copies = !info->cache || strcmp(info->cache, "gpu") != 0;
  const char *why = brim_cli_pageable_text(t->job->device);
  if (why && copies && strcmp(pinned, "false") == 0) brim_log_text(BRIM_LOG_WARN, "train", why);
}

static brim_status show_check(void *ctx, const brim_setting *setting, const brim_plan *plan) {
  brim_cli_training *t = ctx;
  return brim_cli_memory_check_plan(&t->memory, setting, plan);
}

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  brim_cli_training *t = ctx;
  t->cli->running = true;  // from here on a failure is none of options or config, on any rank
  if (brim_ranks_rank(t->job->ranks) > 0) return;
  t->unit = info->unit;
  brim_cli_memory_started(&t->memory, plan);
  say_pageable(t, info);
  training_sampler(t, info);
  if (t->cli->json) {
    if (training_start_event(t, info, plan, start_step)) brim_status_clear();
    return;
  }
  if (t->cli->quiet) return;
  brim_str text;
  brim_str_init(&text);
  training_banner(t, info, plan, start_step, &text);
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
}

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_training *t = ctx;
  brim_cli_memory_tick(&t->memory);
  brim_cli_progress(t->cli, progress);
}

static const char *unit_of(const brim_cli_training *t) {
  return t->unit ? brim_tr(t->unit) : brim_tr("samples");
}

static void evaluation_part(const brim_epoch_report *r, brim_str *out) {
  brim_metric_line(r->metrics, BRIM_METRIC_LINE_EVAL, r->eval, r->baseline, out);
}

static void epoch_line(const brim_cli_training *t, const brim_epoch_report *r, brim_str *out) {
  char number[32];
  brim_str head;
  brim_str_init(&head);
  brim_str_printf(&head, brim_tr("epoch %lld/%lld"), (long long)r->epoch, (long long)r->epochs);
  brim_ui_styled(out, &t->cli->out, BRIM_UI_BOLD, head.data);
  brim_str_deinit(&head);
  // beside a baseline the evaluation is what counts
  bool eval_first = r->metrics->baseline_label != NULL;
  if (eval_first && r->evaluated) evaluation_part(r, out);
  brim_metric_line(r->metrics, BRIM_METRIC_LINE_TRAIN, r->train, NULL, out);
  if (!eval_first && r->evaluated) evaluation_part(r, out);
  if (!isnan(r->seconds)) {
    brim_format_figure(r->samples_per_s, number);
    brim_str_printf(out, "  %s %s/s", number, unit_of(t));
    brim_format_duration(r->seconds, number);
    brim_str_printf(out, "  %s", number);
  }
  if (!isnan(r->gpu_percent))
    brim_str_printf(out, brim_tr("  GPU %.0f %%"), brim_shown(r->gpu_percent));
  if (!isnan(r->sm_percent))
    brim_str_printf(out, brim_tr("  SMs %.0f %%"), brim_shown(r->sm_percent));
  if (r->best) {
    brim_str_append(out, "  ");
    brim_ui_styled(out, &t->cli->out, BRIM_UI_GOOD, brim_tr("best"));
  }
}

static brim_status put_scores(json_t *f, const brim_epoch_report *r) {
  const brim_metric_set *set = r->metrics;
  BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_TRAIN, r->train));
  bool grouped = set->baseline_label != NULL;  // then a group that is not there is null as a whole
  BRIM_TRY(
      brim_cli_put_metrics(f, set, BRIM_METRIC_EVAL, r->evaluated || !grouped ? r->eval : NULL));
  BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_BASELINE, r->baseline));
  if (!r->watches_gpu) return BRIM_OK;
  BRIM_TRY(brim_json_put(f, "gpu_percent", brim_json_number(r->gpu_percent)));
  return brim_json_put(f, "sm_percent", brim_json_number(r->sm_percent));
}

static brim_status epoch_event(brim_cli_training *t, const brim_epoch_report *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = put_scores(f, r);
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
  brim_str line, text;
  brim_str_init(&line);
  brim_str_init(&text);
  epoch_line(t, report, &line);
  brim_ui_wrap_parts(&text, &t->cli->out, line.data, 2);
  brim_str_append_char(&text, '\n');
  brim_cli_print(t->cli, &text);
  brim_str_deinit(&text);
  brim_str_deinit(&line);
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
  brim_format_figure(s->samples_per_s, rate);
  brim_str_printf(&line, brim_tr("step %lld"), (long long)s->step);
  brim_metric_line(s->metrics, BRIM_METRIC_LINE_STEPS, s->values, NULL, &line);
  brim_str_printf(&line, "  %s %s/s", rate, unit_of(t));
  if (s->loads) {
    brim_str_printf(&line, "  Data: %s | Compute: %s", data, compute);
  } else {
    brim_str_printf(&line, "  Compute: %s", compute);
  }
  brim_ui_styled(out, &t->cli->out, BRIM_UI_DIM, line.data);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&line);
}

static brim_status steps_event(brim_cli_training *t, const brim_run_steps *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "step", json_integer(r->step));
  if (!s) s = brim_cli_put_metrics(f, r->metrics, BRIM_METRIC_STEPS, r->values);
  if (!s) s = brim_json_put(f, "lr", brim_json_number(r->lr));
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
  if (t->reported_waiting || !(s->data_s > s->compute_s) || s->data_s < 1e-3) return;
  t->reported_waiting = true;
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
  for (size_t i = 0; o && r->diagnosis && i < r->diagnosis->count; i++) {
    if (r->anomalies[i] == 0) continue;
    if (brim_json_put(o, r->diagnosis->rows[i].name, json_integer(r->anomalies[i]))) {
      json_decref(o);
      return NULL;
    }
  }
  return o;
}

// "best_accuracy" of the row whose evaluations events call accuracy, val_accuracy or accuracy.mean.
static brim_status put_best(json_t *f, const brim_run_result *r) {
  const brim_metric_set *set = r->metrics;
  for (size_t i = 0; i < set->count; i++) {
    char key[BRIM_METRIC_NAME + 8];
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "best_%s", row->key);
    BRIM_TRY(brim_json_put(f, key, brim_json_number(r->best[i])));
  }
  return BRIM_OK;
}

static bool any_known(const double *values) {
  for (size_t i = 0; i < BRIM_METRIC_MAX; i++) {
    if (!isnan(values[i])) return true;
  }
  return false;
}

static brim_status put_last_scores(json_t *f, const brim_run_result *r) {
  const brim_metric_set *set = r->metrics;
  bool grouped = set->baseline_label != NULL;
  if (!grouped) BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_TRAIN, r->train));
  BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_EVAL,
                                any_known(r->eval) || !grouped ? r->eval : NULL));
  BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_BASELINE, r->baseline));
  if (any_known(r->probe)) BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_PROBE, r->probe));
  return put_best(f, r);
}

static brim_status show_put_ranks(json_t *f, const brim_run_result *r) {
  if (r->ranks < 2) return BRIM_OK;
  json_t *o = json_object();
  brim_status s = brim_json_put(o, "count", json_integer(r->ranks));
  if (!s) s = brim_json_put(o, "exchange", json_string(r->exchange_by));
  if (!s) s = brim_json_put(o, "exchange_ms", brim_json_number(r->exchange_ms));
  if (!s) s = brim_json_put(o, "exposed_ms", brim_json_number(r->exchange_exposed_ms));
  if (!s) return brim_json_put(f, "ranks", o);
  json_decref(o);
  return s;
}

static brim_status result_event(brim_cli_training *t, const brim_run_result *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "steps", json_integer(r->steps));
  if (!s) s = brim_json_put(f, "steps_run", json_integer(r->steps_run));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = put_last_scores(f, r);
  if (!s) s = brim_json_put(f, "best_epoch", json_integer(r->best_epoch));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "wall_s", brim_json_number(r->wall_seconds));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "skipped_steps", json_integer(r->skipped_steps));
  if (!s) s = brim_json_put(f, "bad_samples", json_integer(r->bad_samples));
  if (!s) s = brim_json_put(f, "anomalies", anomalies_json(r));
  if (!s) s = brim_json_put(f, "stopped_early", json_boolean(r->stopped_early));
  if (!s) s = show_put_ranks(f, r);
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
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

// What makes a run continue that has nothing left to do, by what ended it.
static void nothing_left(const brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  const char *length = t->job->work->table->length_key;
  bool through = r->epochs >= brim_config_int(t->job->config, "training.epochs");
  if (length && !r->stopped_early) {
    brim_str_printf(out,
                    brim_tr("nothing left to do: the run is complete at step %lld; raise %s or "
                            "--max-steps to continue training\n"),
                    (long long)r->steps, length);
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
  brim_format_figure(r->samples_per_s, rate);
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

static int wider(int width, const char *label) {
  int columns = label && label[0] ? brim_utf8_width(brim_tr(label)) : 0;
  return columns > width ? columns : width;
}

// The columns of the summary's labels: those of the longest in this language, and two blanks.
static int summary_width(const brim_run_result *r) {
  static const char *const labels[] = {BRIM_N_("memory"),  BRIM_N_("loading"), BRIM_N_("warning"),
                                       BRIM_N_("ranks"),   BRIM_N_("skipped"), BRIM_N_("advice"),
                                       BRIM_N_("stopped"), BRIM_N_("in all")};
  const brim_metric_set *set = r->metrics;
  int width = 9;
  for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) width = wider(width, labels[i]);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool probe = row->stages & BRIM_METRIC_AT(BRIM_METRIC_PROBE);
    if (row->rank == 0 && !probe) continue;
    width = wider(width, row->eval_label ? row->eval_label : row->label);
    width = wider(width, row->label);
  }
  return wider(width, set->baseline_label) + 2;
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

static void ranks_line(const brim_run_result *r, brim_str *out) {
  char text[192], all[32], exposed[32];
  if (r->ranks < 2) return;
  brim_format_duration(r->exchange_ms * 1e-3, all);
  brim_format_duration(r->exchange_exposed_ms * 1e-3, exposed);
  if (isnan(r->exchange_ms)) {
    snprintf(text, sizeof text, "%d, %s", r->ranks, r->exchange_by);
  } else if (isnan(r->exchange_exposed_ms)) {
    snprintf(text, sizeof text, brim_tr("%d; exchanges take %s per step (%s)"), r->ranks, all,
             r->exchange_by);
  } else {
    snprintf(text, sizeof text,
             brim_tr("%d; exchanges take %s per step (%s), of which steps wait for %s"), r->ranks,
             all, r->exchange_by, exposed);
  }
  summary_row(r, out, brim_tr("ranks"), text);
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

static void anomaly_lines(const brim_run_result *r, brim_str *out) {
  char text[512];
  for (size_t i = 0; r->diagnosis && i < r->diagnosis->count; i++) {
    const brim_work_trouble_row *row = &r->diagnosis->rows[i];
    if (r->anomalies[i] == 0) continue;
    snprintf(text, sizeof text, brim_tr(r->anomalies[i] == 1 ? row->one : row->many),
             (long long)r->anomalies[i], (long long)r->first_anomaly[i]);
    summary_row(r, out, brim_tr(row->label), text);
  }
  if (!r->advice[0]) return;
  char advice[sizeof r->advice];
  brim_words_text(r->advice, advice, sizeof advice);
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

// The throughput in the other units of the workload.
static void rates_line(const brim_run_result *r, brim_str *out) {
  char number[32];
  if (r->rate_count == 0 || r->steps_run == 0) return;
  summary_label(r, out, brim_tr("rates"));
  for (size_t i = 0; i < r->rate_count; i++) {
    brim_format_figure(r->samples_per_s * r->rates[i].per_sample, number);
    brim_str_printf(out, "%s%s %s", i ? ", " : "", number, brim_tr(r->rates[i].unit));
  }
  brim_str_append_char(out, '\n');
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

// Values of the summary behind the label: "812 +- 40, falls 12.0 %".
static void summary_values(const brim_run_result *r, int row, const double *values, brim_str *out) {
  const brim_metric_set *set = r->metrics;
  char parts[BRIM_METRIC_MAX][BRIM_METRIC_TEXT], number[32];
  size_t n = brim_metric_parts(set, BRIM_METRIC_LINE_SUMMARY, values, NULL, parts, BRIM_METRIC_MAX);
  if (n == 0) {
    brim_metric_format_value(&set->rows[row], values[row], number);
    brim_str_append(out, number);
    return;
  }
  size_t label = strlen(brim_metric_label(&set->rows[row], BRIM_METRIC_LINE_SUMMARY));
  brim_str_append(out, parts[0] + 2 + label + (label > 0));
  for (size_t i = 1; i < n; i++) brim_str_append(out, parts[i]);
}

// The last evaluation and the best; where none was made now, the best alone. Below it the baseline.
static void evaluation_line(const brim_run_result *r, brim_str *out) {
  const brim_metric_set *set = r->metrics;
  int row = brim_metric_deciding(set, BRIM_METRIC_EVAL, r->eval, false);
  bool now = row >= 0;
  if (!now) row = brim_metric_deciding(set, BRIM_METRIC_EVAL, r->best, false);
  if (row < 0) return;
  char text[128] = "", number[32];
  if (r->best_epoch > 0 && !r->best_by_training && !isnan(r->best[row])) {
    brim_metric_format_value(&set->rows[row], r->best[row], number);
    snprintf(text, sizeof text, brim_tr("best %s in epoch %lld"), number, (long long)r->best_epoch);
  } else if (r->best_epoch > 0 && set->rows[row].rank == 1 && now) {
    snprintf(text, sizeof text, brim_tr("best epoch %lld by its training"),
             (long long)r->best_epoch);
  }
  if (!now && !text[0]) return;
  summary_label(r, out, brim_metric_label(&set->rows[row], BRIM_METRIC_LINE_SUMMARY));
  if (now) summary_values(r, row, r->eval, out);
  if (now && set->summary) brim_str_printf(out, brim_tr(set->summary), (long long)r->eval_samples);
  brim_str_printf(out, "%s%s\n", now && text[0] ? ", " : "", text);
}

static void baseline_line(const brim_run_result *r, brim_str *out) {
  const brim_metric_set *set = r->metrics;
  int row = brim_metric_deciding(set, BRIM_METRIC_BASELINE, r->baseline, false);
  if (!set->baseline_label || row < 0) return;
  summary_label(r, out, brim_tr(set->baseline_label));
  summary_values(r, row, r->baseline, out);
  brim_str_append_char(out, '\n');
}

// Training so far, of an epoch that --max-steps ended.
static void partial_line(const brim_run_result *r, brim_str *out) {
  char parts[BRIM_METRIC_MAX][BRIM_METRIC_TEXT];
  if (!r->partial) return;
  size_t n =
      brim_metric_parts(r->metrics, BRIM_METRIC_LINE_TRAIN, r->train, NULL, parts, BRIM_METRIC_MAX);
  int first = -1;
  for (size_t i = 0; first < 0 && i < r->metrics->count; i++) {
    if (r->metrics->rows[i].lines & BRIM_METRIC_AT(BRIM_METRIC_LINE_TRAIN)) first = (int)i;
  }
  if (n == 0 || first < 0 || isnan(r->train[first])) return;
  const char *label = brim_metric_label(&r->metrics->rows[first], BRIM_METRIC_LINE_TRAIN);
  summary_label(r, out, label);
  brim_str_append(out, parts[0] + 2 + strlen(label) + 1);
  for (size_t i = 1; i < n; i++) brim_str_printf(out, ", %s", parts[i] + 2);
  brim_str_printf(out, brim_tr(" so far in epoch %lld\n"), (long long)r->epochs + 1);
}

// The evaluation at the end, where the workload has one.
static void probe_lines(const brim_run_result *r, brim_str *out) {
  for (size_t i = 0; i < r->metrics->count; i++) {
    const brim_metric *row = &r->metrics->rows[i];
    char number[32];
    if (!(row->stages & BRIM_METRIC_AT(BRIM_METRIC_PROBE)) || !row->label[0]) continue;
    if (isnan(r->probe[i])) continue;
    brim_metric_format_value(row, r->probe[i], number);
    summary_label(r, out, brim_tr(row->label));
    brim_str_printf(out, "%s%s%s\n", number, row->about ? ", " : "",
                    row->about ? brim_tr(row->about) : "");
  }
}

// --max-steps is for trying: there may have been no evaluation, and no best.safetensors.
static void not_evaluated_line(const brim_cli_training *t, const brim_run_result *r,
                               brim_str *out) {
  if (!r->not_evaluated) return;
  char text[640];
  char *path = brim_fs_join(t->output_dir, "last.safetensors");
  brim_msg_format(
      text, sizeof text,
      brim_tr("none: --max-steps (training.steps) ended the run before an evaluation; run "
              "brim eval %s"),
      path ? path : "last.safetensors");
  brim_free(path);
  for (size_t i = 0; i < r->metrics->count; i++) {
    const brim_metric *row = &r->metrics->rows[i];
    if (row->rank == 0 || !(row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL))) continue;
    summary_row(r, out, brim_metric_label(row, BRIM_METRIC_LINE_SUMMARY), text);
    return;
  }
}

static void summary(brim_cli_training *t, const brim_run_result *r, brim_str *out) {
  t->unit = r->unit;
  summary_head(t, r, out);
  rates_line(r, out);
  time_line(r, out);
  stopped_line(t, r, out);
  partial_line(r, out);
  evaluation_line(r, out);
  baseline_line(r, out);
  not_evaluated_line(t, r, out);
  probe_lines(r, out);
  char memory[128];
  if (brim_cli_memory_text(&t->memory, memory, sizeof memory)) {
    summary_row(r, out, brim_tr("memory"), memory);
  }
  ranks_line(r, out);
  loading_lines(r, out);
  anomaly_lines(r, out);
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

//---------------------------------- for an executor ----------------------------------

// Tells the executor (record_channel.h). A record that cannot be written is no reason to stop the run.
static void tell_executor(brim_cli_training *t, const char *event, const char *key, json_t *value) {
  json_t *fields = json_object();
  brim_status s = brim_json_put(fields, key, value);
  if (s) json_decref(fields);
  if (!s) s = brim_cli_event(t->cli, event, fields);
  if (s) brim_status_clear();
}

static void on_checkpoint(void *ctx, int64_t step) {
  tell_executor(ctx, "checkpoint", "step", json_integer(step));
}

// Sends the findings when they have changed. An empty list is no news before the first one.
static void on_published(void *ctx, const brim_job *job) {
  brim_cli_training *t = ctx;
  json_t *json = NULL;
  char *text = NULL;
  if (brim_ranks_rank(t->job->ranks) > 0) return;
  if ((job->finding_count == 0 && !t->findings) || brim_job_to_json(job, &json)) {
    brim_status_clear();
    return;
  }
  json_t *list = json_object_get(json, "findings");
  if (brim_json_dump(list, 0, &text)) brim_status_clear();
  if (text && (!t->findings || strcmp(t->findings, text) != 0)) {
    tell_executor(t, "findings", "findings", json_incref(list));
    brim_free(t->findings);
    t->findings = text;
    text = NULL;
  }
  brim_free(text);
  json_decref(json);
}

void brim_cli_training_watch(brim_cli_training *t, brim_run_options *options) {
  options->check = show_check;
  options->usage = training_usage;
  options->on_start = on_start;
  options->on_progress = on_progress;
  options->on_epoch = on_epoch;
  options->on_steps = on_steps;
  if (t->cli->json && t->cli->channel) {
    options->on_checkpoint = on_checkpoint;
    options->on_published = on_published;
  }
  options->ctx = t;
}
