// The start of a training run as it is reported: what runs where, on which data, with how much
// memory.
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_loading.h"
#include "cli/train/cli_train.h"

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

void brim_cli_training_knob(const brim_cli_training *t, brim_knob_role role, char out[32]) {
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
  brim_cli_training_knob(t, BRIM_ROLE_PRECISION, precision);
  brim_cli_training_knob(t, BRIM_ROLE_GRAPH, compile);
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
  brim_cli_training_knob(t, BRIM_ROLE_PRECISION, precision);
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
  brim_cli_training_knob(t, BRIM_ROLE_PRECISION, precision);
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

void brim_cli_training_banner(const brim_cli_training *t, const brim_work_info *info,
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

brim_status brim_cli_training_start_event(brim_cli_training *t, const brim_work_info *info,
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
