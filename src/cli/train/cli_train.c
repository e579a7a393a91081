// `brim train`: reads options and config, opens the workload and gives it to the training loop in src/run. Shows the
// run: lines for people, events with --json.
#include "cli/train/cli_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_words.h"
#include "cli/job/cli_ranks.h"
#include "engine/engine.h"
#include "record/record_channel.h"
#include "record/record_job.h"
#include "workload/learn/learn_trained.h"

//------------------------------------- the memory of a run -------------------------------------

// Ticks before the memory is measured. Progress comes at most ten times a second: by the third tick all GPU modules are
// loaded and the step is recorded as a graph.
enum { WARM_TICKS = 3 };

static bool no_gpu(const brim_cli_memory *m) { return m->job->memory.uuid[0] == '\0'; }

static brim_fit fit_of(brim_cli_memory *m) {
  const brim_cli_job *job = m->job;
  return (brim_fit){.work = job->work,
                    .config = job->config,
                    .setting = &m->setting,
                    .plan = &m->plan,
                    .limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit"),
                    .watch = &job->memory};
}

brim_status brim_cli_memory_check_plan(brim_cli_memory *memory, const brim_setting *setting,
                                       const brim_plan *plan) {
  memory->setting = *setting;
  if (no_gpu(memory)) return BRIM_OK;
  memory->plan = *plan;
  brim_fit fit = fit_of(memory);
  return brim_fit_check(&fit);
}

void brim_cli_memory_started(brim_cli_memory *memory, const brim_plan *plan) {
  memory->plan = *plan;
  memory->started = true;
  if (!no_gpu(memory)) memory->job->memory.held = plan->bytes[BRIM_PLACE_DEVICE];
}

void brim_cli_memory_measure(brim_cli_memory *memory) {
  const brim_cli_job *job = memory->job;
  if (no_gpu(memory) || !memory->started) return;
  brim_memory_watch_measure(&memory->job->memory, job->device, &memory->plan);
  brim_memory_watch_remember(&job->memory, job->work, job->config, &memory->setting);
}

static void report_memory(brim_cli_memory *memory) {
  char text[128];
  if (memory->cli->json) {
    json_t *fields = brim_cli_memory_json(memory);
    // A failure to report memory does not stop the run.
    if (fields && brim_cli_event(memory->cli, "memory", fields)) brim_status_clear();
    return;
  }
  if (brim_cli_memory_text(memory, text, sizeof text)) {
    brim_cli_note(memory->cli, brim_tr("  memory     %s\n"), text);
  }
}

void brim_cli_memory_tick(brim_cli_memory *memory) {
  if (no_gpu(memory) || memory->ticks >= WARM_TICKS || ++memory->ticks < WARM_TICKS) return;
  brim_cli_memory_measure(memory);
  report_memory(memory);
}

brim_status brim_cli_memory_failed(brim_cli_memory *memory, brim_status status) {
  if (status != BRIM_EOOM || no_gpu(memory)) return status;
  brim_fit fit = fit_of(memory);
  return brim_fit_explain(&fit, true);
}

json_t *brim_cli_memory_json(const brim_cli_memory *memory) {
  const brim_memory_watch *w = &memory->job->memory;
  if (no_gpu(memory)) return NULL;
  json_t *f = json_object();
  brim_status s =
      brim_json_put(f, "planned", brim_json_number((double)memory->plan.bytes[BRIM_PLACE_DEVICE]));
  if (!s) s = brim_json_put(f, "overhead", brim_json_number(w->overhead));
  if (!s) s = brim_json_put(f, "real", brim_json_number(w->real));
  if (!s) return f;
  json_decref(f);
  brim_status_clear();
  return NULL;
}

bool brim_cli_memory_text(const brim_cli_memory *memory, char *out, size_t size) {
  const brim_memory_watch *w = &memory->job->memory;
  char planned[32], overhead[32], real[32];
  if (no_gpu(memory) || isnan(w->overhead)) return false;
  brim_format_bytes(memory->plan.bytes[BRIM_PLACE_DEVICE], planned);
  brim_format_bytes((uint64_t)w->overhead, overhead);
  brim_format_bytes((uint64_t)w->real, real);
  snprintf(out, size, brim_tr("planned %s + overhead %s = %s on the device"), planned, overhead,
           real);
  return true;
}

double brim_cli_memory_known_overhead(const brim_cli_memory *memory) {
  const brim_cli_job *job = memory->job;
  return brim_memory_watch_known(&job->memory, job->work, job->config, &memory->setting).total;
}

//------------------------------------------- loading -------------------------------------------

bool brim_cli_loading_text(const brim_run_loading *loading, brim_str *out) {
  double sum = loading->read_ms;
  for (size_t i = 0; i < loading->stage_count; i++) sum += loading->stage_ms[i];
  if (loading->samples <= 0 || sum <= 0) return false;
  char time[32];
  brim_format_duration(loading->read_ms / 1e3, time);
  brim_str_printf(out, brim_tr("read %s"), time);
  for (size_t i = 0; i < loading->stage_count; i++) {
    brim_format_duration(loading->stage_ms[i] / 1e3, time);
    brim_str_printf(out, ", %s %s", loading->stage[i], time);
  }
  brim_str_append(out, brim_tr(" per sample in one thread"));
  return true;
}

bool brim_cli_broken_text(const brim_run_loading *loading, brim_str *out) {
  int64_t broken = loading->broken, reads = loading->broken_reads;
  const char *first = loading->first_broken;
  if (broken <= 0) return false;
  if (reads > broken) {
    brim_str_printf(
        out,
        broken == 1 ? brim_tr("%" PRId64 " sample could not be read and was skipped, in %" PRId64
                              " reads: %s")
                    : brim_tr("%" PRId64 " samples could not be read and were skipped, in %" PRId64
                              " reads; the first: %s"),
        broken, reads, first);
    return true;
  }
  brim_str_printf(
      out,
      broken == 1
          ? brim_tr("%" PRId64 " sample could not be read and was skipped: %s")
          : brim_tr("%" PRId64 " samples could not be read and were skipped; the first: %s"),
      broken, first);
  return true;
}

json_t *brim_cli_loading_json(const brim_run_loading *loading) {
  json_t *o = json_object(), *stages = json_object();
  brim_status s = brim_json_put(o, "samples", json_integer(loading->samples));
  if (!s && loading->cache) s = brim_json_put(o, "cache", json_string(loading->cache));
  if (!s && loading->locked_bytes > 0) {
    s = brim_json_put(o, "locked_bytes", json_integer((json_int_t)loading->locked_bytes));
  }
  if (!s) s = brim_json_put(o, "read_ms", brim_json_number(loading->read_ms));
  for (size_t i = 0; i < loading->stage_count && !s; i++) {
    // Sum the times of a transform that is in the pipeline twice.
    double ms =
        loading->stage_ms[i] + json_number_value(json_object_get(stages, loading->stage[i]));
    s = brim_json_put(stages, loading->stage[i], brim_json_number(ms));
  }
  if (!s) s = brim_json_put(o, "transforms_ms", json_incref(stages));
  if (!s) s = brim_json_put(o, "broken", json_integer(loading->broken));
  if (!s) s = brim_json_put(o, "broken_reads", json_integer(loading->broken_reads));
  if (!s && loading->broken > 0) {
    s = brim_json_put(o, "first_broken", json_string(loading->first_broken));
  }
  json_decref(stages);
  if (!s) return o;
  json_decref(o);
  return NULL;
}

bool brim_cli_cache_text(const brim_work_info *info, char *out, size_t size) {
  const char *cache = info->cache ? info->cache : "none";
  char locked[32];
  brim_format_bytes(info->locked_bytes, locked);
  if (strcmp(cache, "gpu") == 0) {
    snprintf(out, size, "%s", brim_tr("kept on the GPU"));
  } else if (strcmp(cache, "ram") == 0) {
    snprintf(out, size, "%s", brim_tr("kept in host memory"));
  } else if (strcmp(cache, "mapped") == 0) {
    snprintf(out, size, brim_tr("the GPU reads rows from the mapped file (%s page-locked)"),
             locked);
  } else if (info->not_mapped) {
    snprintf(out, size, brim_tr("loader threads copy rows from the mapped file (%s)"),
             info->not_mapped);
  } else {
    return false;
  }
  return true;
}

// The state for showing one run.
typedef struct training {
  brim_cli *cli;
  brim_cli_job *job;
  const char *output_dir;
  brim_cli_memory memory;
  bool reported_waiting;      // warn_waiting has warned
  brim_gpu_sampler *sampler;  // samples the GPU's utilisation; NULL = none
  char *findings;             // the last findings sent to the executor, as JSON; NULL = none so far
  const char *unit;           // unit of rates: "samples", "env steps"; NULL before the start
} training;

//--------------------------------------- utilisation of the GPU ---------------------------------------
// Measured for workloads that ask for it: if a step is one kernel, a GPU can be busy while most multiprocessors idle.

static void start_sampler(training *t, const brim_work_info *info) {
  brim_cli_job *job = t->job;
  if (!info->watches_gpu || !job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.1, &t->sampler)) {
    brim_log_info("train", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

static void on_usage(void *ctx, double *gpu_percent, double *sm_percent) {
  training *t = ctx;
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

static void training_deinit(training *t) {
  brim_gpu_sampler_stop(t->sampler);
  t->sampler = NULL;
  brim_free(t->findings);
  t->findings = NULL;
}

//-------------------------------------------- start --------------------------------------------
// The banner and the "start" event: model, device, data, memory.

// The text of the memory row. On a CPU it has the overhead of the host; the overhead of a GPU has its own row.
static void memory_text(const training *t, const brim_plan *plan, char *out, size_t size) {
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

// The value of the knob with this role in the config; "" if the workload has no such knob.
static void training_knob(const training *t, brim_knob_role role, char out[32]) {
  const brim_work *work = t->job->work;
  int knob = brim_work_knob_as(work, role);
  out[0] = '\0';
  if (knob >= 0) brim_knob_format(&work->knobs[knob], work->knobs[knob].value, out);
}

// Writes precision and graph capture of a GPU; "" on a CPU.
static void precision_text(const training *t, char *out, size_t size) {
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

static void check_line(brim_str *out, const brim_term *term, const char *text) {
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_GOOD, term->unicode ? "\xe2\x9c\x93" : "*");
  brim_str_append_char(out, ' ');
  brim_ui_clip(out, term, text, term->width > 30 ? term->width - 5 : 0);
  brim_str_append_char(out, '\n');
}

// Returns the micro-batches of a step and sets *samples to the samples of a step. A step never exceeds an epoch.
static int64_t micro_batches(const brim_work_info *work, int64_t *samples) {
  int64_t steps = work->accumulation;
  *samples = work->batch * steps;
  if (steps > 1 && *samples > work->samples_per_epoch && work->samples_per_epoch > 0) {
    *samples = work->samples_per_epoch;
    steps = (*samples + work->batch - 1) / work->batch;
  }
  return steps;
}

// Writes the first lines, each with a check mark: the GPU, its memory, features in use. A CPU has no such line: the row
// `device` names it.
static void check_lines(const training *t, const brim_work_info *work, brim_str *out) {
  const brim_term *term = &t->cli->out;
  const brim_device_info *info = &t->job->device->info;
  bool gpu = info->kind == BRIM_DEVICE_GPU;
  char text[320], bytes[32], precision[32];
  if (gpu) {
    snprintf(text, sizeof text, "GPU: %s", info->name);
    check_line(out, term, text);
  }
  if (gpu && info->total_bytes > 0) {
    brim_format_bytes(info->total_bytes, bytes);
    snprintf(text, sizeof text, "VRAM: %s", bytes);
    check_line(out, term, text);
  }
  if (gpu && t->job->options.measure_algorithms) {
    check_line(out, term, brim_tr("algorithm selection enabled"));
  }
  training_knob(t, BRIM_ROLE_PRECISION, precision);
  if (strcmp(precision, "bf16") == 0 || strcmp(precision, "fp16") == 0) {
    snprintf(text, sizeof text, brim_tr("Mixed Precision (%s) enabled"),
             precision[0] == 'b' ? "BF16" : "FP16");
    check_line(out, term, text);
  }
  int64_t samples, steps = micro_batches(work, &samples);
  if (steps > 1) {
    snprintf(text, sizeof text,
             brim_tr("Gradient Accumulation: %lld steps (effective batch = %lld)"),
             (long long)steps, (long long)samples);
    check_line(out, term, text);
  }
}

static void batch_text(const training *t, const brim_work_info *info, char *out, size_t size) {
  int64_t batch = info->batch, samples, steps = micro_batches(info, &samples);
  char precision[32];
  training_knob(t, BRIM_ROLE_PRECISION, precision);
  if (!precision[0]) snprintf(precision, sizeof precision, "fp32");
  const char *method = info->accumulates ? info->accumulates : "";
  const char *gap = method[0] ? " " : "";
  if (steps > 1 && samples == batch * steps) {
    snprintf(out, size, brim_tr("%lld x %lld accumulated%s%s = %lld, %s"), (long long)batch,
             (long long)steps, gap, method, (long long)samples, precision);
  } else if (steps > 1) {  // the epoch ends within the last micro-batch
    snprintf(out, size, brim_tr("%lld x %lld + %lld accumulated%s%s = %lld, %s"), (long long)batch,
             (long long)(samples / batch), (long long)(samples % batch), gap, method,
             (long long)samples, precision);
  } else if (info->samples_per_epoch > 0 && info->samples_per_epoch < batch) {
    snprintf(out, size, brim_tr("%lld rows for %lld samples, %s"), (long long)batch,
             (long long)info->samples_per_epoch, precision);
  } else {
    snprintf(out, size, "%lld, %s", (long long)batch, precision);
  }
}

// Says that an epoch leaves samples out, and why: drop_last, or equal parts for all ranks.
static void left_out_text(const training *t, const brim_work_info *info, char *out, size_t size) {
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

// Writes the kind of targets and the loss.
static void targets_text(const brim_work_info *info, char *out, size_t size) {
  const bool classes = info->classes > 0, labels = strcmp(info->loss, "bce") == 0;
  const int64_t n = classes ? info->classes : info->target_dim;
  const char *format = classes  ? n == 1 ? brim_tr("%lld class") : brim_tr("%lld classes")
                        : labels ? brim_tr("%lld labels of 0 or 1 per sample")
                       : n == 1 ? brim_tr("%lld number to predict")
                                : brim_tr("%lld numbers to predict");
  int used = snprintf(out, size, format, (long long)n);
  if (used > 0 && (size_t)used < size) {
    snprintf(out + used, size - (size_t)used, brim_tr(", loss %s"), info->loss);
  }
}

static void data_rows(const training *t, const brim_work_info *info, brim_str *out) {
  const brim_term *term = &t->cli->out;
  char text[320], count[32], eval[32], left_out[96] = "";
  brim_format_count((double)info->set_samples, count);
  brim_format_count((double)info->eval_samples, eval);
  left_out_text(t, info, left_out, sizeof left_out);
  int n = snprintf(text, sizeof text,
                   info->eval_samples ? brim_tr("%s %s to train on%s, %s to evaluate on")
                                      : brim_tr("%s %s to train on%s"),
                   count, info->unit ? brim_tr(info->unit) : "", left_out, eval);
  if (info->eval_size[0] > 0 && n > 0 && (size_t)n < sizeof text) {
    n += snprintf(text + n, sizeof text - (size_t)n, brim_tr(" as images of %lld x %lld"),
                  (long long)info->eval_size[0], (long long)info->eval_size[1]);
  }
  char kept[300];
  if (brim_cli_cache_text(info, kept, sizeof kept) && n > 0 && (size_t)n < sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, ", %s", kept);
  }
  brim_cli_row(term, brim_tr("data"), text, out);
  if (info->loss) {
    targets_text(info, text, sizeof text);
    brim_cli_row(term, brim_tr("targets"), text, out);
  }
  if (info->batch <= 0) return;  // the workload has no batches
  batch_text(t, info, text, sizeof text);
  brim_cli_row(term, brim_tr("batch"), text, out);
}

// Writes rows that the workload provides in place of the data rows.
static void workload_rows(const training *t, brim_str *out) {
  const brim_work *work = t->job->work;
  brim_work_line lines[8];
  size_t n = work->table->text->start_lines(work->state, lines, sizeof lines / sizeof *lines);
  for (size_t i = 0; i < n; i++)
    brim_cli_row(&t->cli->out, brim_tr(lines[i].label), lines[i].text, out);
}

// Writes the row of the ranks, such as "2 over shm", with the reason if they do not use NCCL.
static void ranks_row(const training *t, brim_str *out) {
  const brim_cli_job *job = t->job;
  char text[320];
  if (!job->ranks) return;
  int n = snprintf(text, sizeof text, brim_tr("%d over %s"), job->ranks->size,
                   brim_device_exchange(job->device));
  if (job->no_nccl_reason[0] && n > 0 && (size_t)n < sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, brim_tr("; not over NCCL: %s"),
             job->no_nccl_reason);
  }
  brim_cli_row(&t->cli->out, brim_tr("ranks"), text, out);
}

static void training_banner(const training *t, const brim_work_info *info, const brim_plan *plan,
                            int64_t start_step, brim_str *out) {
  const brim_term *term = &t->cli->out;
  char text[320], count[32];
  brim_ui_styled(out, term, BRIM_UI_BOLD, "brim train");
  brim_str_append_char(out, '\n');
  check_lines(t, info, out);
  brim_cli_device_text(t->job->device, text, sizeof text);
  brim_cli_row(term, brim_tr("device"), text, out);
  if (brim_cli_backend_text(t->job, text, sizeof text))
    brim_cli_row(term, brim_tr("backend"), text, out);
  snprintf(text, sizeof text, t->job->ranks ? brim_tr("%d for each rank") : "%d",
           t->job->device->info.threads);
  if (t->job->device->info.kind == BRIM_DEVICE_CPU)
    brim_cli_row(term, brim_tr("threads"), text, out);
  ranks_row(t, out);
  char what[192];
  brim_cli_row(term, brim_tr("model"), brim_ui_description(info->description, what), out);
  brim_format_count((double)plan->parameter_count, count);
  brim_cli_row(term, brim_tr("parameters"), count, out);
  if (t->job->work->table->text) {
    workload_rows(t, out);
  } else {
    data_rows(t, info, out);
  }
  precision_text(t, text, sizeof text);
  if (text[0]) brim_cli_row(term, brim_tr("compute"), text, out);
  memory_text(t, plan, text, sizeof text);
  brim_cli_row(term, brim_tr("memory"), text, out);
  if (t->job->memory.uuid[0]) {
    brim_cli_overhead_text(brim_cli_memory_known_overhead(&t->memory), text, sizeof text);
    brim_cli_row(term, brim_tr("overhead"), text, out);
  }
  brim_cli_row(term, brim_tr("output"), t->output_dir, out);
  if (start_step > 0) {
    snprintf(text, sizeof text, brim_tr("from step %lld"), (long long)start_step);
    brim_cli_row(term, brim_tr("resumed"), text, out);
  }
  brim_str_append_char(out, '\n');
}

// Puts the baseline's metrics under the names that they have in the log.
static brim_status put_baseline(json_t *f, const brim_metric_set *set, const double *baseline) {
  for (size_t i = 0; i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(&set->rows[i], BRIM_METRIC_BASELINE, BRIM_METRIC_COLUMN, name)) continue;
    BRIM_TRY(brim_json_put(f, name, brim_json_number(baseline[i])));
  }
  return BRIM_OK;
}

// Puts the planned length of the run. Early stopping may end it sooner.
static brim_status put_length(json_t *f, const training *t, const brim_work_info *info) {
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

static brim_status training_start_event(training *t, const brim_work_info *info,
                                        const brim_plan *plan, int64_t start_step) {
  char device[320];
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  double overhead = t->job->memory.uuid[0] ? brim_cli_memory_known_overhead(&t->memory)
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
  return brim_cli_finish_event(t->cli, "start", f, s);
}

//--------------------------------------- progress and end ---------------------------------------

// Warns if batches are copied to the GPU from pageable host memory.
static void warn_pageable(const training *t, const brim_work_info *info) {
  char pinned[32];
  training_knob(t, BRIM_ROLE_PINNED, pinned);
  bool copies = !info->cache || strcmp(info->cache, "gpu") != 0;
  const char *why = brim_cli_pageable_text(t->job->device);
  if (why && copies && strcmp(pinned, "false") == 0) brim_log_text(BRIM_LOG_WARN, "train", why);
}

static brim_status on_check(void *ctx, const brim_setting *setting, const brim_plan *plan) {
  training *t = ctx;
  return brim_cli_memory_check_plan(&t->memory, setting, plan);
}

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  training *t = ctx;
  t->cli->running = true;  // on any rank: from here on a failure is no longer bad input
  if (brim_ranks_rank(t->job->ranks) > 0) return;
  t->unit = info->unit;
  brim_cli_memory_started(&t->memory, plan);
  warn_pageable(t, info);
  start_sampler(t, info);
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
  training *t = ctx;
  brim_cli_memory_tick(&t->memory);
  brim_cli_progress(t->cli, progress);
}

static const char *unit_of(const training *t) {
  return t->unit ? brim_tr(t->unit) : brim_tr("samples");
}

static void evaluation_part(const brim_epoch_report *r, brim_str *out) {
  brim_metric_line(r->metrics, BRIM_METRIC_LINE_EVAL, r->eval, r->baseline, out);
}

static void epoch_line(const training *t, const brim_epoch_report *r, brim_str *out) {
  char number[32];
  brim_str head;
  brim_str_init(&head);
  brim_str_printf(&head, brim_tr("epoch %lld/%lld"), (long long)r->epoch, (long long)r->epochs);
  brim_ui_styled(out, &t->cli->out, BRIM_UI_BOLD, head.data);
  brim_str_deinit(&head);
  // With a baseline the evaluation comes first, since it matters more than the training metrics.
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
  bool grouped = set->baseline_label != NULL;  // a missing group of metrics is null as a whole
  BRIM_TRY(
      brim_cli_put_metrics(f, set, BRIM_METRIC_EVAL, r->evaluated || !grouped ? r->eval : NULL));
  BRIM_TRY(brim_cli_put_metrics(f, set, BRIM_METRIC_BASELINE, r->baseline));
  if (!r->watches_gpu) return BRIM_OK;
  BRIM_TRY(brim_json_put(f, "gpu_percent", brim_json_number(r->gpu_percent)));
  return brim_json_put(f, "sm_percent", brim_json_number(r->sm_percent));
}

static brim_status epoch_event(training *t, const brim_epoch_report *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "epochs", json_integer(r->epochs));
  if (!s) s = put_scores(f, r);
  if (!s) s = brim_json_put(f, "lr", brim_json_number(r->lr));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "best", json_boolean(r->best));
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
  return brim_cli_finish_event(t->cli, "epoch", f, s);
}

static void on_epoch(void *ctx, const brim_epoch_report *report) {
  training *t = ctx;
  brim_cli_memory_measure(&t->memory);  // the evaluation has loaded GPU modules of its own
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

// Three decimals, or five below 0.0995 s.
static void seconds_text(double seconds, char out[32]) {
  snprintf(out, 32, seconds >= 0.0995 ? "%.3fs" : "%.5fs", seconds);
}

static void steps_line(const training *t, const brim_run_steps *s, brim_str *out) {
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

static brim_status steps_event(training *t, const brim_run_steps *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "epoch", json_integer(r->epoch));
  if (!s) s = brim_json_put(f, "step", json_integer(r->step));
  if (!s) s = brim_cli_put_metrics(f, r->metrics, BRIM_METRIC_STEPS, r->values);
  if (!s) s = brim_json_put(f, "lr", brim_json_number(r->lr));
  if (!s) s = brim_json_put(f, "data_s", brim_json_number(r->data_s));
  if (!s) s = brim_json_put(f, "compute_s", brim_json_number(r->compute_s));
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  return brim_cli_finish_event(t->cli, "steps", f, s);
}

// Warns once if steps wait for data longer than they compute.
static void warn_waiting(training *t, const brim_run_steps *s) {
  if (t->reported_waiting || !(s->data_s > s->compute_s) || s->data_s < 1e-3) return;
  t->reported_waiting = true;
  brim_log_text(BRIM_LOG_WARN, "train",
                brim_tr("steps wait for data longer than they compute; try more data.num_workers, "
                        "data.cache=ram or a faster disk; `brim bench` measures which helps"));
}

static void on_steps(void *ctx, const brim_run_steps *steps) {
  training *t = ctx;
  warn_waiting(t, steps);
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

// The counts of the anomalies that happened, such as {"loss_not_finite": 3}.
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

// Puts the best value of each ranking metric, such as "best_accuracy".
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

static brim_status put_ranks_result(json_t *f, const brim_run_result *r) {
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

static brim_status result_event(training *t, const brim_run_result *r) {
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
  if (!s) s = put_ranks_result(f, r);
  if (!s) s = brim_json_put(f, "loader", brim_cli_loading_json(&r->loading));
  if (!s) s = brim_json_put(f, "partial", json_boolean(r->partial));
  if (!s) s = brim_json_put(f, "interrupted", json_boolean(r->interrupted));
  if (!s && t->job->memory.uuid[0]) {
    s = brim_json_put(f, "memory", brim_cli_memory_json(&t->memory));
  }
  if (!s) s = brim_json_put(f, "checkpoint", json_string(r->checkpoint));
  if (!s) s = brim_json_put(f, "output_dir", json_string(t->output_dir));
  return brim_cli_finish_event(t->cli, "result", f, s);
}

// Says how to continue a run that has nothing left to do.
static void nothing_left(const training *t, const brim_run_result *r, brim_str *out) {
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

static void summary_head(const training *t, const brim_run_result *r, brim_str *out) {
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
    // Steps count the whole run; time and rate only the steps of this invocation.
    fmt = r->interrupted
              ? brim_tr("\ninterrupted after %lld steps, %lld of them now: %s, %s %s/s\n")
              : brim_tr("\ndone: %lld steps, %lld of them now: %s, %s %s/s\n");
    brim_str_printf(out, fmt, (long long)r->steps, (long long)r->steps_run, time, rate, unit_of(t));
  } else {
    brim_str_printf(out, fmt, (long long)r->steps, time, rate, unit_of(t));
  }
}

static int max_width(int width, const char *label) {
  int columns = label && label[0] ? brim_utf8_width(brim_tr(label)) : 0;
  return columns > width ? columns : width;
}

// Width of the summary's labels: the longest label in this language, and two blanks.
static int summary_width(const brim_run_result *r) {
  static const char *const labels[] = {BRIM_N_("memory"),  BRIM_N_("loading"), BRIM_N_("warning"),
                                       BRIM_N_("ranks"),   BRIM_N_("skipped"), BRIM_N_("advice"),
                                       BRIM_N_("stopped"), BRIM_N_("in all")};
  const brim_metric_set *set = r->metrics;
  int width = 9;
  for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) width = max_width(width, labels[i]);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool probe = row->stages & BRIM_METRIC_AT(BRIM_METRIC_PROBE);
    if (row->rank == 0 && !probe) continue;
    width = max_width(width, row->eval_label ? row->eval_label : row->label);
    width = max_width(width, row->label);
  }
  return max_width(width, set->baseline_label) + 2;
}

// Writes the label of a row of the summary, padded to the width of all labels.
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

// Writes the total time, if the steps took clearly less.
static void time_line(const brim_run_result *r, brim_str *out) {
  char time[32];
  if (r->steps_run == 0 || r->wall_seconds < 1.1 * r->seconds + 0.5) return;
  brim_format_duration(r->wall_seconds, time);
  summary_label(r, out, brim_tr("in all"));
  brim_str_printf(out, brim_tr("%s including start, evaluations and checkpoints\n"), time);
}

// Writes the throughput in the workload's other units.
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

static void stopped_line(const training *t, const brim_run_result *r, brim_str *out) {
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

// Writes the values that follow a label of the summary: "812 +- 40, falls 12.0 %".
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

// Writes the last evaluation of this invocation, if there was one, and the best evaluation of the run.
static void evaluation_line(const brim_run_result *r, brim_str *out) {
  const brim_metric_set *set = r->metrics;
  int row = brim_metric_deciding(set, BRIM_METRIC_EVAL, r->eval, false);
  bool evaluated = row >= 0;
  if (!evaluated) row = brim_metric_deciding(set, BRIM_METRIC_EVAL, r->best, false);
  if (row < 0) return;
  char text[128] = "", number[32];
  if (r->best_epoch > 0 && !r->best_by_training && !isnan(r->best[row])) {
    brim_metric_format_value(&set->rows[row], r->best[row], number);
    snprintf(text, sizeof text, brim_tr("best %s in epoch %lld"), number, (long long)r->best_epoch);
  } else if (r->best_epoch > 0 && set->rows[row].rank == 1 && evaluated) {
    snprintf(text, sizeof text, brim_tr("best epoch %lld by its training"),
             (long long)r->best_epoch);
  }
  if (!evaluated && !text[0]) return;
  summary_label(r, out, brim_metric_label(&set->rows[row], BRIM_METRIC_LINE_SUMMARY));
  if (evaluated) summary_values(r, row, r->eval, out);
  if (evaluated && set->summary)
    brim_str_printf(out, brim_tr(set->summary), (long long)r->eval_samples);
  brim_str_printf(out, "%s%s\n", evaluated && text[0] ? ", " : "", text);
}

static void baseline_line(const brim_run_result *r, brim_str *out) {
  const brim_metric_set *set = r->metrics;
  int row = brim_metric_deciding(set, BRIM_METRIC_BASELINE, r->baseline, false);
  if (!set->baseline_label || row < 0) return;
  summary_label(r, out, brim_tr(set->baseline_label));
  summary_values(r, row, r->baseline, out);
  brim_str_append_char(out, '\n');
}

// Writes the training metrics of an epoch that --max-steps cut short.
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

// Writes the results of the probe, a further evaluation at the end that some workloads have.
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

// Says that --max-steps ended the run before an evaluation, so there is no best.safetensors.
static void not_evaluated_line(const training *t, const brim_run_result *r, brim_str *out) {
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

static void summary(training *t, const brim_run_result *r, brim_str *out) {
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

static brim_status show_result(training *t, const brim_run_result *result) {
  if (t->cli->json) return result_event(t, result);
  brim_str text;
  brim_str_init(&text);
  summary(t, result, &text);
  return brim_cli_finish_text(t->cli, &text, BRIM_OK);
}

//---------------------------------- for an executor ----------------------------------

// Sends a record to the executor (record_channel.h). A failure does not stop the run.
static void tell_executor(training *t, const char *event, const char *key, json_t *value) {
  json_t *fields = json_object();
  brim_status s = brim_json_put(fields, key, value);
  if (brim_cli_finish_event(t->cli, event, fields, s)) brim_status_clear();
}

static void on_checkpoint(void *ctx, int64_t step) {
  tell_executor(ctx, "checkpoint", "step", json_integer(step));
}

// Sends the findings when they have changed. Skips an empty list before the first finding.
static void on_published(void *ctx, const brim_job *job) {
  training *t = ctx;
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

static void set_callbacks(training *t, brim_run_options *options) {
  options->check = on_check;
  options->usage = on_usage;
  options->on_start = on_start;
  options->on_progress = on_progress;
  options->on_epoch = on_epoch;
  options->on_steps = on_steps;
  options->ctx = t;
  if (t->cli->json && t->cli->channel) {
    options->on_checkpoint = on_checkpoint;
    options->on_published = on_published;
  }
}

//------------------------------------------- command -------------------------------------------

static const char *const checkpointing_choices[] = {"auto", "true", "false", NULL};
static const char *const cache_choices[] = {"auto", "none", "ram", "gpu", NULL};
static const char *const lr_aliases[] = {"learning-rate", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    BRIM_CLI_OPTION_DATA_PATH,
    BRIM_CLI_OPTION_ALLOW_EXTERNAL,
    {.name = "epochs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of passes over the data (epochs)"),
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
     .help = BRIM_N_("compute precision"),
     .key = "training.precision",
     .choices = brim_cli_precisions},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("data-loader threads (0 = load in the main thread)"),
     .key = "data.num_workers",
     .aliases = brim_cli_workers_aliases},
    {.name = "cache",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "C",
     .help = BRIM_N_("keep the data set in host memory or on the GPU"),
     .key = "data.cache",
     .choices = cache_choices},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("random seed for weights, data order and augmentation"),
     .key = "seed"},
    {.name = "max-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("stop after this many optimizer steps in total (0 = no limit)")},
    {.name = "compile",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("capture the step as one graph and fuse ops, or run op by op"),
     .key = "training.compile",
     .choices = brim_cli_bool_words},
    {.name = "checkpointing",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("recompute activations instead of storing them"),
     .key = "training.checkpointing",
     .choices = checkpointing_choices},
    BRIM_CLI_OPTION_DEVICE,
    BRIM_CLI_OPTION_BACKEND,
    BRIM_CLI_OPTION_THREADS,
    {.name = "gpus",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train on this many GPUs of this machine (one rank each)"),
     .key = "gpus",
     .group = BRIM_N_("Machine")},
    {.name = "ranks",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("train with this many processes that share the batch"),
     .key = "ranks",
     .group = BRIM_N_("Machine")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for checkpoints and logs"),
     .key = "output_dir",
     .default_text = "runs/NAME",
     .group = BRIM_N_("Files")},
    {.name = "weights",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("start from the weights in this file, with a new optimizer"),
     .key = "training.weights",
     .group = BRIM_N_("Files")},
    {.name = "resume",
     .help = BRIM_N_("resume from the newest valid checkpoint, if any (same as auto)"),
     .metavar = "when",
     .choices = brim_cli_resume_words,
     .group = BRIM_N_("Files")},
    {.name = "resume-from",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("resume from this checkpoint"),
     .group = BRIM_N_("Files")},
    {0},
};

//---------------------------------- where files go ----------------------------------

static bool lies_in(const char *path, const char *dir) {
  char *folder = brim_fs_dirname(path);
  bool same = brim_fs_same(folder, dir);
  brim_free(folder);
  return same;
}

// Does the folder have a checkpoint? A new run would take an old checkpoint of a later step for its own.
static bool holds_checkpoint(const char *dir) {
  char **names = NULL;
  size_t count = 0;
  bool found = false;
  if (!brim_fs_is_dir(dir) || brim_fs_list(dir, &names, &count)) return false;
  for (size_t i = 0; !found && i < count; i++) {
    found = strcmp(names[i], "last.safetensors") == 0 ||
            strcmp(names[i], "best.safetensors") == 0 ||
            (brim_str_starts(names[i], "step-") && brim_str_ends(names[i], ".safetensors"));
  }
  brim_fs_list_free(names, count);
  return found;
}

static brim_status refuse_overwriting(const char *dir) {
  char *model = brim_fs_join(dir, "model.safetensors");
  bool kept = model && brim_fs_exists(model);
  brim_free(model);
  if (!holds_checkpoint(dir)) {
    if (!kept) return BRIM_OK;
    return brim_fail(BRIM_EEXIST,
                     "%s already holds a model; choose another folder with --output-dir, or move "
                     "model.safetensors away",
                     dir);
  }
  return brim_fail(BRIM_EEXIST,
                   "%s already holds a run; continue it with --resume, or choose another folder "
                   "with --output-dir",
                   dir);
}

//---------------------------------- the command ----------------------------------

// Reads --resume, --resume-from, and the key training.resume: none, auto (as --resume) or a path, which both options
// override.
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

// Fails if the checkpoint to resume from cannot be read. Called before the device is opened, to fail early.
static brim_status check_resume_file(const char *path) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_trained_refuse_folder(path, "last.safetensors"));
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_safetensors_close(file);
  return BRIM_OK;
}

// The failure class, for programs that run many trainings. Once the device is open, a file that cannot be read counts
// as a failure of the data.
static brim_failure class_of(const brim_cli *cli, const brim_cli_job *job, brim_status status,
                             const brim_run_result *r) {
  if (r->diverged) return BRIM_FAILURE_NAN;
  if (r->folder_failed) return BRIM_FAILURE_INFRASTRUCTURE;
  switch (status) {
    case BRIM_EOOM:
      return cli->running ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EDEVICE:
      return brim_cli_device_class(job);
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_ECHILD:
    case BRIM_EINTERNAL:
    case BRIM_ERANK:
      return BRIM_FAILURE_CRASH;
    case BRIM_EIO:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_EEND:
      return job->device ? BRIM_FAILURE_DATA : BRIM_FAILURE_BAD_CONFIG;
    default:
      return cli->running ? BRIM_FAILURE_OTHER : BRIM_FAILURE_BAD_CONFIG;
  }
}

// Checks the checkpoint to resume from and the output folder, before the device and the data are opened.
static brim_status prepare(const brim_cli *cli, const brim_cli_job *job, const char *dir,
                           brim_run_options *how) {
  choose_resume(cli, job->config, how);
  if (brim_ranks_rank(job->ranks) > 0) return BRIM_OK;  // the first rank checks files
  if (how->resume_path) BRIM_TRY(check_resume_file(how->resume_path));
  // A checkpoint from another folder starts a new run, which needs an empty folder.
  bool continues = how->resume || (how->resume_path && lies_in(how->resume_path, dir));
  return continues ? BRIM_OK : refuse_overwriting(dir);
}

static brim_status train_in(brim_cli *cli, brim_cli_job *job, const char *dir,
                            brim_run_result *result) {
  training t = {.cli = cli, .job = job, .output_dir = dir, .memory = {.cli = cli, .job = job}};
  cli->channel = getenv(BRIM_CHANNEL_ENV) != NULL;
  brim_run_options how = {.output_dir = dir,
                          .stop = cli->stop,
                          .publish = "train",
                          .max_steps = brim_option_int(&cli->parse, "max-steps", 0)};
  set_callbacks(&t, &how);
  BRIM_TRY(prepare(cli, job, dir, &how));
  if (!job->ranks) {
    int count = 1;
    BRIM_TRY(brim_cli_ranks_wanted(job, &count));
    if (count > 1) return brim_cli_ranks_launch(cli, count);
    job->on_first = true;  // gpus=1 or ranks=1 may cut a list of devices to one
  }
  BRIM_TRY(brim_cli_job_open(cli, job));
  brim_status status = brim_run_train(job->work, job->config, &how, result);
  training_deinit(&t);
  if (status) {
    status = brim_cli_memory_failed(&t.memory, status);
  } else {
    brim_cli_memory_measure(&t.memory);
  }
  if (status == BRIM_OK || (status == BRIM_EINTERRUPTED && result->interrupted)) {
    brim_status show_status = show_result(&t, result);
    if (!status) status = show_status;
  }
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_job job = {0};
  if (brim_option_int(&cli->parse, "max-steps", 0) < 0) {
    return brim_cli_usage(cli, BRIM_N_("--max-steps must be 0 or more"));
  }
  brim_run_result result;
  memset(&result, 0, sizeof result);
  brim_cli_ranks *ranks = NULL;
  BRIM_TRY(brim_cli_ranks_open(cli, &ranks));
  job.ranks = brim_cli_ranks_get(ranks);
  // The process that launched this rank has reported the warnings of the config.
  bool launched = job.ranks && job.ranks->origin == BRIM_RANKS_BRIM;
  bool before = launched ? brim_log_hush(true) : false;
  brim_status status = brim_cli_job_config(cli, &job);
  if (launched) brim_log_hush(before);
  if (!status) {
    char *dir = NULL;
    status = brim_cli_job_run_dir(&job, &dir);
    if (!status) status = train_in(cli, &job, dir, &result);
    brim_free(dir);
  }
  if (status) cli->failure = class_of(cli, &job, status, &result);
  status = brim_cli_ranks_failed(cli, ranks, status);
  brim_cli_job_close(&job);
  brim_cli_ranks_close(ranks);
  return status;
}

const brim_cli_command brim_cli_train = {
    .name = "train",
    .summary = BRIM_N_("train, with progress, checkpoints and logs"),
    .usage = "[CONFIG] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_("Trains as CONFIG describes. Options and key=value arguments override the "
                     "file; `brim config explain` lists every key.\nOn Ctrl-C brim finishes the "
                     "step, saves and exits with 130. `--resume` continues from there; the result "
                     "is bit-identical. A second Ctrl-C, at least one second later, stops "
                     "immediately."),
    .examples = BRIM_N_(
        "train ten epochs on MNIST\nbrim train configs/mnist-mlp.yaml --data-path data/mnist "
        "--epochs 10\nanother optimizer, another folder\nbrim train mnist.yaml optimizer=sgd "
        "lr=0.1 --output-dir runs/sgd\nstart from weights of brim or PyTorch\nbrim train "
        "cifar.yaml --weights model.safetensors\nresume after an interruption\nbrim train "
        "configs/mnist-mlp.yaml --data-path data/mnist --resume\ntrain one model on two GPUs\nbrim "
        "train cifar.yaml --gpus 2\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_SAVES,
};
