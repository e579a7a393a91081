// A training run: the setting that fits in memory, the output folder with its checkpoints, and the loop of epochs with
// evaluation, early stopping, resume and reports.

#include "run/run_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base_words.h"
#include "engine/engine.h"
#include "monitor/monitor_job.h"
#include "profile/profile.h"
#include "record/record_job.h"

// The best epoch so far, and the state of early stopping.
typedef struct brim_run_best {
  const brim_metric_set *metrics;
  int asked_row;       // the row of checkpoint.best; -1 = the known row of highest rank
  bool training;       // use training metrics even if there is an evaluation
  bool warned;         // a warning has said that another row is used than checkpoint.best names
  const char *wanted;  // value of checkpoint.best if this workload has no such row; else NULL
  double values[BRIM_METRIC_MAX];  // of the best epoch, rows with a rank only; NaN = none yet
  int64_t epoch;                   // from 1; 0 = none
  int64_t patience, waited;        // evaluations without improvement; patience 0 = off
  double delta, reference;         // least improvement; last improved value, NaN = none yet
  int row;                         // the row that decided last; -1 = none
} brim_run_best;

// Problems that the workload found while training.
typedef struct brim_run_watch {
  brim_work *work;
  brim_run_log *log;
  brim_run_result *result;
  int64_t times[BRIM_WORK_MAX_TROUBLES];  // by problem: readings that had it
  brim_job *job;                          // the published job; NULL = not published
} brim_run_watch;

// Loading times, and the slow transforms that were reported.
typedef struct brim_run_loader {
  double slow_ms;            // data.slow_transform_ms
  brim_work_loading before;  // when the epoch began
  uint32_t warned;           // one bit per transform
} brim_run_loader;

// The checkpoint files of a run.
typedef struct brim_run_files {
  const char *folder;  // borrowed
  char *last, *best, *model;
  int64_t keep;       // checkpoint.keep: `last`, and keep - 1 files named by step
  int64_t last_step;  // step of `last`; -1 = unknown
  brim_time saved_at;
  int64_t save_ns;  // time that writing the last checkpoint took
} brim_run_files;

// A checkpoint that a thread writes. Read its members after joining the thread, except `written`.
typedef struct brim_run_saver {
  bool busy;  // a checkpoint is being written, or its result was not taken yet
  brim_thread *thread;
  brim_work_held held;
  brim_run_files files;  // copy of the loop's
  int64_t step;
  bool best, last;  // the files to write
  brim_time start;
  int written;  // atomic: the thread is done
  brim_status status;
  char why[1024];
} brim_run_saver;

typedef struct loop {
  brim_work *work;
  brim_comm *comm;             // the workload's communicator; NULL = one rank
  sig_atomic_t any_rank_stop;  // with ranks: a rank was told to stop
  const brim_config *config;
  const brim_run_options *options;
  brim_run_result *result;
  brim_run_log log;
  brim_phase_timer timer;
  brim_work_info info;
  int64_t epochs, interval, log_interval, eval_interval;
  int64_t limit;        // optimiser steps; 0 = none
  int64_t first_step;   // steps made before this process began
  int64_t epoch, step;  // epoch counts from 0; step: steps made so far
  bool save_due;        // checkpoint.interval asks for a checkpoint after the last step
  bool ended;           // all steps of `epoch` are made, but not its evaluation
  bool caught_up;       // this process evaluated an epoch that another process trained
  bool evaluated;       // this process evaluated an epoch
  bool torn;            // the workload is being rebuilt: only last.safetensors has the state
  brim_run_best best;
  brim_run_files files;
  brim_run_saver saver;
  brim_run_watch watch;
  brim_run_adapt adapt;
  bool adapting;  // the setting shrank, and no checkpoint has shown yet that training works with it
  brim_run_adapt before_adapting;
  double last_lr;
  brim_fs_lockfile *lock;  // keeps a second run out of the folder

  // beginnings of the epoch, the log interval and the progress interval
  brim_time epoch_start, log_start, progress_start;
  int64_t epoch_ns, epoch_samples;  // training only, without evaluation and checkpoints
  int64_t log_samples, log_steps, progress_samples, progress_steps;
  double sums[BRIM_WORK_MAX_SUMS];      // sums of the epoch
  double log_sums[BRIM_WORK_MAX_SUMS];  // sums of the log interval
  double last[BRIM_METRIC_MAX];         // last values of metrics that are no sums
  int64_t log_bad;
  int64_t updated;       // the last step that changed the weights
  bool searching;        // the loss scale is being searched: skipped steps are normal
  double epoch_skipped;  // skipped steps when the epoch began
  brim_run_loader loader;
  double train_seconds;
  brim_time began;
  int64_t train_samples;

  // published for `brim top`; publisher NULL = not published
  brim_job_publisher *publisher;
  brim_job job;
  brim_time publish_time;
  double publish_seconds;
  int64_t publish_samples, publish_step;
} loop;

// True for the first rank: it alone writes files and logs.
static bool writes_files(const loop *l) { return brim_comm_rank(l->comm) == 0; }

static brim_status position_put(const loop *l, json_t *extra);
static void epoch_values(const loop *l, double values[BRIM_METRIC_MAX]);

//--------------------------------------- out of memory ------------------------------------------
// Shrinks the setting when memory is too small. It takes smaller micro-batches and more of them, so that a step keeps
// its samples, or calls the workload's own `shrinking`. Each change is reported, logged with its step, and stored in
// checkpoints, from which a resumed run takes it.

void brim_run_adapt_init(brim_run_adapt *a, const brim_work *work, const brim_config *config) {
  const char *text = brim_config_string(config, "gpu.on_oom");
  memset(a, 0, sizeof *a);
  a->setting = brim_work_setting(work);
  a->batch = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  a->accumulation = brim_work_knob_as(work, BRIM_ROLE_ACCUMULATION);
  a->asked = a->setting;
  a->shrinks = work->table->shrinking != NULL;
  bool batches = a->batch >= 0 && a->accumulation >= 0;
  // with ranks, one rank cannot change its setting alone
  a->frees_optional = (!text || strcmp(text, "fail") != 0) && !work->context.comm;
  a->on = a->frees_optional && (batches || a->shrinks);
  if (work->table->batches) work->table->batches->allow_smaller(work->state);
  if (!batches || a->shrinks) return;
  a->effective = a->setting.value[a->batch] * a->setting.value[a->accumulation];
  // smaller micro-batches do not help a step that is larger than the data
  brim_work_info info;
  work->table->info(work->state, &info);
  a->whole = info.whole;
  if (a->effective > info.set_samples) a->on = false;
}

static bool free_optional(const brim_workload_table *table, void *state, const brim_setting *s) {
  if (table->batches && table->batches->free_optional(state, s)) return true;
  const brim_work_shrink_table *shrinking = table->shrinking;
  return shrinking && shrinking->free_optional && shrinking->free_optional(state, s);
}

// Makes the setting smaller: frees optional memory, else lets the workload shrink it, else takes the next smaller
// micro-batch that divides a step. False if nothing is left.
static bool next_smaller(brim_run_adapt *a, const brim_work *work) {
  const brim_workload_table *table = work->table;
  if (a->frees_optional && free_optional(table, work->state, &a->setting)) return true;
  if (!a->on) return false;
  if (a->shrinks) return table->shrinking->shrink(work->state, &a->setting);
  int64_t most = work->knobs[a->accumulation].max;
  for (int64_t batch = a->setting.value[a->batch] - 1; batch >= 1; batch--) {
    if (a->effective % batch != 0 || a->whole % batch != 0) continue;
    if (a->effective / batch > most) return false;
    brim_setting smaller = a->setting;
    smaller.value[a->batch] = batch;
    smaller.value[a->accumulation] = a->effective / batch;
    if (!table->sensible(work->state, &smaller)) continue;
    a->setting = smaller;
    return true;
  }
  return false;
}

// Plans the present setting. BRIM_EOOM if the plan does not fit; does not try smaller settings.
static brim_status plan_fits(const brim_run_adapt *a, const brim_work *work,
                             const brim_run_options *options, uint64_t limit, brim_plan *plan) {
  BRIM_TRY(work->table->plan(work->state, &a->setting, plan));
  if (!brim_work_fits(work, plan, limit)) return BRIM_EOOM;
  return options->check ? options->check(options->ctx, &a->setting, plan) : BRIM_OK;
}

// Says how smaller micro-batches change the result: by batch norm. "" if they do not. `plan` may be NULL.
static void side_effects(const brim_run_adapt *a, const brim_work *work, const brim_plan *plan,
                         char *out, size_t size) {
  brim_plan made;
  out[0] = 0;
  if (!plan && work->table->plan(work->state, &a->setting, &made)) {
    brim_status_clear();  // configuring will report it
    return;
  }
  if (!plan) plan = &made;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, BRIM_PLAN_STATISTICS) != 0) continue;
    snprintf(out, size, brim_tr("; batch norm uses %lld samples at a time"),
             (long long)a->setting.value[a->batch]);
  }
}

static void warn_smaller(const brim_run_adapt *a, const brim_work *work, const brim_setting *was,
                         const brim_plan *plan, const char *when) {
  if (memcmp(was, &a->setting, sizeof *was) == 0)
    return;  // freeing optional memory was reported already
  if (a->shrinks) {
    char change[160];
    brim_work_setting_change(work, was, &a->setting, change, sizeof change);
    brim_log_warn("run", "out of memory%s: %s", when, change);
    return;
  }
  char besides[128];
  side_effects(a, work, plan, besides, sizeof besides);
  brim_log_warn("run",
                "out of memory%s: micro-batch %" PRId64 " -> %" PRId64 ", accumulation %" PRId64
                " -> %" PRId64 "; the effective batch of %" PRId64 " and the learning rate stay%s",
                when, was->value[a->batch], a->setting.value[a->batch], was->value[a->accumulation],
                a->setting.value[a->accumulation], a->effective, besides);
}

brim_status brim_run_adapt_plan(brim_run_adapt *a, const brim_work *work,
                                const brim_run_options *options, uint64_t limit, brim_plan *plan) {
  const brim_setting was = a->setting;
  brim_status status = plan_fits(a, work, options, limit, plan);
  if (status != BRIM_EOOM) return status;
  while (status == BRIM_EOOM && next_smaller(a, work)) {
    status = plan_fits(a, work, options, limit, plan);
  }
  if (!status) {
    brim_status_clear();
    warn_smaller(a, work, &was, plan, brim_tr(" foreseen"));
    return BRIM_OK;
  }
  if (status != BRIM_EOOM) return status;
  a->setting = was;  // nothing fits: report the setting that was asked for
  BRIM_TRY(work->table->plan(work->state, &a->setting, plan));
  BRIM_TRY(brim_work_check_fit(work, &a->setting, plan, limit));
  return options->check ? options->check(options->ctx, &a->setting, plan) : BRIM_OK;
}

bool brim_run_adapts(const brim_work *work, const brim_config *config) {
  const brim_run_options options = {0};
  const uint64_t limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  brim_run_adapt a;
  brim_plan plan;
  brim_run_adapt_init(&a, work, config);
  const bool fits = brim_run_adapt_plan(&a, work, &options, limit, &plan) == BRIM_OK;
  brim_status_clear();
  return fits;
}

// Configures the workload, after BRIM_EOOM again with a smaller setting. adapt_rebuild begins with a smaller setting.
static brim_status adapt_build(brim_run_adapt *a, brim_work *work, int64_t step) {
  const brim_setting was = a->setting;
  char why[512], when[64];
  brim_status status = work->table->configure(work->state, &a->setting);
  while (status == BRIM_EOOM) {
    snprintf(why, sizeof why, "%s", brim_status_detail());
    if (!next_smaller(a, work)) {
      a->setting = was;
      return brim_fail(BRIM_EOOM, "%s", why);
    }
    status = work->table->configure(work->state, &a->setting);
  }
  if (status || memcmp(&was, &a->setting, sizeof was) == 0) return status;
  snprintf(when, sizeof when, brim_tr(" at step %lld"), (long long)step);
  warn_smaller(a, work, &was, NULL, when);
  return BRIM_OK;
}

static brim_status adapt_rebuild(brim_run_adapt *a, brim_work *work, int64_t step) {
  const brim_setting was = a->setting;
  char when[64];
  if (!next_smaller(a, work)) return BRIM_EOOM;
  const brim_setting first = a->setting;
  BRIM_TRY(adapt_build(a, work, step));
  // adapt_build has reported a further change
  if (memcmp(&first, &a->setting, sizeof first) != 0) return BRIM_OK;
  snprintf(when, sizeof when, brim_tr(" at step %lld"), (long long)step);
  warn_smaller(a, work, &was, NULL, when);
  return BRIM_OK;
}

//---------------------------------- remembering ----------------------------------

// The adapted values: every knob if the workload decides how to shrink, else micro-batch and accumulation.
static void adapted_values(const brim_run_adapt *a, const brim_work *work, int64_t step,
                           brim_run_adaption *out) {
  memset(out, 0, sizeof *out);
  out->step = step;
  for (size_t i = 0; a->shrinks && i < work->knob_count; i++) {
    out->setting.value[i] = a->setting.value[i];
  }
  if (a->shrinks) return;
  out->batch = a->setting.value[a->batch];
  out->accumulation = a->setting.value[a->accumulation];
}

static brim_status put_fields(const brim_run_adapt *a, const brim_work *work,
                              const brim_run_adaption *made, json_t *f) {
  for (size_t i = 0; a->shrinks && i < work->knob_count; i++) {
    if (a->setting.value[i] == a->asked.value[i]) continue;
    BRIM_TRY(brim_json_put(f, work->knobs[i].name, json_integer(a->setting.value[i])));
  }
  if (a->shrinks) return BRIM_OK;
  BRIM_TRY(brim_json_put(f, work->knobs[a->batch].name, json_integer(made->batch)));
  BRIM_TRY(brim_json_put(f, work->knobs[a->accumulation].name, json_integer(made->accumulation)));
  return brim_json_put(f, "effective_batch", json_integer(a->effective));
}

// Logs {"event": "adapt"} and remembers the setting for checkpoints.
static brim_status adapt_note(brim_run_adapt *a, const brim_work *work, brim_run_log *log,
                              int64_t epoch, int64_t step) {
  if (a->count == BRIM_RUN_ADAPTIONS) {  // drop the oldest: a resumed run uses only the newest
    memmove(a->made, a->made + 1, (BRIM_RUN_ADAPTIONS - 1) * sizeof *a->made);
    a->count--;
  }
  brim_run_adaption *made = &a->made[a->count++];
  adapted_values(a, work, step, made);
  json_t *f = json_object();
  brim_status s = f ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while logging");
  if (!s) s = put_fields(a, work, made, f);
  if (!s) return brim_run_log_event(log, "adapt", epoch, step, f);
  json_decref(f);
  return s;
}

// "step:batch:accumulation ...", or, if the workload decides how to shrink, "step:knob=value<asked:... ..." with the
// knobs that are smaller than the config asked for.
static brim_status adapt_put(const brim_run_adapt *a, const brim_work *work, json_t *metadata) {
  if (a->count == 0) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < a->count; i++) {
    const brim_run_adaption *made = &a->made[i];
    brim_str_printf(&text, "%s%" PRId64, i ? " " : "", made->step);
    if (!a->shrinks)
      brim_str_printf(&text, ":%" PRId64 ":%" PRId64, made->batch, made->accumulation);
    for (size_t k = 0; a->shrinks && k < work->knob_count; k++) {
      const int64_t value = made->setting.value[k], asked = a->asked.value[k];
      if (value == asked) continue;
      brim_str_printf(&text, ":%s=%" PRId64 "<%" PRId64, work->knobs[k].name, value, asked);
    }
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(metadata, "brim.adapted", json_string(text.data));
  brim_str_deinit(&text);
  return status;
}

// Copies the next word of a text. False at the end, or if it does not fit.
static bool next_word(const char **text, char part[256]) {
  size_t n = strcspn(*text, " ");
  if (n == 0 || n >= 256) return false;
  memcpy(part, *text, n);
  part[n] = 0;
  *text += n + ((*text)[n] == ' ');
  return true;
}

static bool read_batches(const brim_run_adapt *a, const brim_work *work, char *part,
                         brim_run_adaption *out) {
  char *second = strchr(part, ':'), *third = second ? strchr(second + 1, ':') : NULL;
  if (!third) return false;
  *second = *third = 0;
  bool numbers = brim_parse_i64(part, &out->step) && brim_parse_i64(second + 1, &out->batch) &&
                 brim_parse_i64(third + 1, &out->accumulation) && out->step >= 0 &&
                 out->batch > 0 && out->accumulation > 0;
  // bounding each factor by the product first keeps the multiplication from overflowing
  return numbers && out->accumulation <= work->knobs[a->accumulation].max &&
         out->batch <= a->effective / out->accumulation &&
         out->batch * out->accumulation == a->effective && a->whole % out->batch == 0;
}

// Reads "knob=value<asked". A knob keeps this config's value if the config asks for another value than the run's config
// did. Earlier versions wrote all knobs without "<asked"; then no value may be larger than this config asks for.
static bool read_knob(const brim_run_adapt *a, const brim_work *work, char *text,
                      brim_setting *out) {
  char *value = strchr(text, '='), *of = strchr(text, '<');
  if (!value || (of && of < value)) return false;
  *value++ = 0;
  if (of) *of++ = 0;
  const int knob = brim_work_knob(work, text);
  int64_t number = 0, asked = 0;
  if (knob < 0 || !brim_parse_i64(value, &number)) return false;
  if (of && !brim_parse_i64(of, &asked)) return false;
  if (!of) asked = a->asked.value[knob];
  if (number < work->knobs[knob].min || number > asked) return false;
  if (asked == a->asked.value[knob]) out->value[knob] = number;
  return true;
}

static bool read_knobs(const brim_run_adapt *a, const brim_work *work, char *part,
                       brim_run_adaption *out) {
  char *at = strchr(part, ':');
  if (!at) return false;
  *at++ = 0;
  if (!brim_parse_i64(part, &out->step) || out->step < 0) return false;
  out->setting = a->asked;
  while (at && *at) {
    char *next = strchr(at, ':');
    if (next) *next++ = 0;
    if (!read_knob(a, work, at, &out->setting)) return false;
    at = next;
  }
  return true;
}

static bool read_one(const brim_run_adapt *a, const brim_work *work, const char **text,
                     brim_run_adaption *out) {
  char part[256];
  memset(out, 0, sizeof *out);
  if (!next_word(text, part)) return false;
  return a->shrinks ? read_knobs(a, work, part, out) : read_batches(a, work, part, out);
}

// Continues with the last adaption of the checkpoint.
static void continue_with(brim_run_adapt *a, const brim_work *work, const char *path) {
  const brim_run_adaption *last = &a->made[a->count - 1];
  if (!a->shrinks) {
    a->setting.value[a->batch] = last->batch;
    a->setting.value[a->accumulation] = last->accumulation;
    brim_log_info("run",
                  "%s ran out of memory at step %" PRId64
                  "; brim continues with its micro-batches, %" PRId64 " x %" PRId64,
                  path, last->step, last->batch, last->accumulation);
    return;
  }
  char change[160];
  a->setting = last->setting;
  brim_work_setting_change(work, &a->asked, &a->setting, change, sizeof change);
  brim_log_info("run", "%s ran out of memory at step %" PRId64 "; brim continues with %s", path,
                last->step, change);
}

brim_status brim_run_adapt_take(brim_run_adapt *a, const brim_work *work, const char *path) {
  json_t *meta = NULL;
  BRIM_TRY(brim_work_metadata(path, &meta));
  work->table->resuming(work->state, meta);
  a->setting = a->asked =
      brim_work_setting(work);  // the checkpoint has set knobs that the config leaves open
  const char *text = json_string_value(json_object_get(meta, "brim.adapted"));
  bool fits = text && (a->shrinks || (a->batch >= 0 && a->accumulation >= 0));
  while (fits && *text) {
    brim_run_adaption one;
    if (!read_one(a, work, &text, &one)) {
      a->count = 0;  // the entry is damaged or has another effective batch: use this config
      break;
    }
    if (a->shrinks && memcmp(&one.setting, &a->asked, sizeof a->asked) == 0) continue;
    if (a->count < BRIM_RUN_ADAPTIONS) a->made[a->count++] = one;
  }
  json_decref(meta);
  // other changes of this config may make the stored setting impossible
  const brim_run_adaption *last = a->count > 0 ? &a->made[a->count - 1] : NULL;
  if (last && a->shrinks && !work->table->sensible(work->state, &last->setting)) a->count = 0;
  if (a->count > 0) continue_with(a, work, path);
  return BRIM_OK;
}

//----------------------------------- checkpoints and folder -------------------------------------
// The output folder of a run: its checkpoint files, config.yaml, and the check that its files are brim's own.

enum { CHEAP_NS = 200000000 };  // a checkpoint that takes less time to write is never postponed

// Doubles as strings that read back to the same bits. `get` leaves *out alone if the text is no number, or
// larger than 2^53.
static brim_status put_double(json_t *object, const char *key, double value) {
  char text[32];
  brim_format_f64(value, text);
  return brim_json_put(object, key, json_string(text));
}

static void get_double(const json_t *object, const char *key, double *out) {
  const char *text = json_string_value(json_object_get(object, key));
  double value;
  if (text && brim_parse_f64(text, &value) && !(fabs(value) > 9007199254740992.0)) *out = value;
}

//---------------------------------- checkpoint files ----------------------------------

static const char step_prefix[] = "step-", suffix[] = ".safetensors";

static brim_status files_init(brim_run_files *files, const brim_config *config,
                              const char *folder) {
  files->folder = folder;
  files->keep = brim_config_int(config, "checkpoint.keep");
  files->last_step = -1;
  files->last = brim_fs_join(folder, "last.safetensors");
  files->best = brim_fs_join(folder, "best.safetensors");
  files->model = brim_fs_join(folder, "model.safetensors");
  if (files->last && files->best && files->model) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
}

static void files_deinit(brim_run_files *files) {
  brim_free(files->last);
  brim_free(files->best);
  brim_free(files->model);
  memset(files, 0, sizeof *files);
}

// The step in "step-00001234.safetensors"; -1 for any other name.
static int64_t step_of(const char *name) {
  if (!brim_str_starts(name, step_prefix) || !brim_str_ends(name, suffix)) return -1;
  int64_t step = 0;
  const char *p = name + sizeof step_prefix - 1;
  const char *end = name + strlen(name) - (sizeof suffix - 1);
  if (end - p < 8 || end - p > 18) return -1;
  for (; p < end; p++) {
    if (*p < '0' || *p > '9') return -1;
    step = step * 10 + (*p - '0');
  }
  return step;
}

// Metadata that all checkpoints of a run share, if they have it.
static const char *const identity[] = {"brim.workload", "brim.seed", "brim.network"};
enum { IDENTITY = sizeof identity / sizeof *identity };

static bool same_run(const json_t *metadata, const json_t *other) {
  for (size_t i = 0; i < IDENTITY; i++) {
    if (!json_equal(json_object_get(metadata, identity[i]), json_object_get(other, identity[i])) &&
        json_object_get(metadata, identity[i]) != json_object_get(other, identity[i])) {
      return false;
    }
  }
  return true;
}

// True if the file is a checkpoint of this step and of the same run as `last`. Any other file is the user's.
static bool is_step_of_run(const char *path, int64_t step, const brim_safetensors *last) {
  brim_safetensors *file = NULL;
  double file_step = -1;
  bool ours = false;
  if (brim_safetensors_open(path, &file) == BRIM_OK) {
    get_double(brim_safetensors_metadata(file), "brim.step", &file_step);
    ours = file_step == (double)step &&
           (!last || same_run(brim_safetensors_metadata(file), brim_safetensors_metadata(last)));
  }
  brim_safetensors_close(file);
  brim_status_clear();
  return ours;
}

// Opens the last checkpoint. NULL if it is missing or unreadable.
static brim_safetensors *open_last(const brim_run_files *files) {
  brim_safetensors *last = NULL;
  if (brim_safetensors_open(files->last, &last)) brim_status_clear();
  return last;
}

// Keeps `last` under the name of its step, before the checkpoint of `step` replaces it.
static void files_keep_last(brim_run_files *files, int64_t step) {
  if (files->keep < 2 || files->last_step < 0 || files->last_step >= step) return;
  char name[64];
  snprintf(name, sizeof name, "%s%08" PRId64 "%s", step_prefix, files->last_step, suffix);
  char *path = brim_fs_join(files->folder, name);
  brim_safetensors *last = path && brim_fs_exists(path) ? open_last(files) : NULL;
  bool taken = path && brim_fs_exists(path) && !is_step_of_run(path, files->last_step, last);
  brim_safetensors_close(last);
  if (taken) {
    brim_log_warn("run", "%s is no checkpoint of its step; brim leaves it and writes none there",
                  path);
    brim_free(path);
    return;
  }
  // a hard link until `last` is replaced; a copy if the file system has no links
  brim_status status = path ? brim_fs_link(files->last, path) : BRIM_ENOMEM;
  if (status == BRIM_EUNSUPPORTED) status = brim_fs_copy(files->last, path);
  if (status) {
    brim_log_warn("run", "cannot keep the checkpoint of step %" PRId64 ": %s", files->last_step,
                  brim_status_detail());
    brim_status_clear();
  }
  brim_free(path);
}

// Removes checkpoints named by step: checkpoints beyond checkpoint.keep, and checkpoints of a later step, which a
// resumed run has discarded. Files that are no checkpoint of this run stay.
static void files_prune(const brim_run_files *files, int64_t step) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count)) {
    brim_status_clear();
    return;
  }
  int64_t room = files->keep - 1;
  brim_safetensors *last = NULL;
  for (size_t i = count; i > 0; i--) {  // names sort by step; start with the highest
    int64_t file_step = step_of(names[i - 1]);
    char *path = file_step < 0 ? NULL : brim_fs_join(files->folder, names[i - 1]);
    if (path && !last) last = open_last(files);
    bool ours = path && is_step_of_run(path, file_step, last);
    if (ours && file_step < step && room > 0) {
      room--;
    } else if (ours && brim_fs_remove(path)) {
      brim_log_warn("run", "cannot remove %s: %s", path, brim_status_detail());
      brim_status_clear();
    }
    brim_free(path);
  }
  brim_safetensors_close(last);
  brim_fs_list_free(names, count);
}

static void separate(const char *best, const char *path) {
  if (!brim_fs_same(best, path)) return;
  if (brim_fs_copy(best, path)) {
    brim_log_warn("run", "%s and %s remain one file: %s", best, path, brim_status_detail());
  }
}

// Makes files that share one inode separate at the end of the run, since other programs may write into them.
static void files_separate(const brim_run_files *files) {
  char why[1024];  // keep the detail of a failed run
  snprintf(why, sizeof why, "%s", brim_status_detail());
  separate(files->best, files->last);
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count) == BRIM_OK) {
    for (size_t i = 0; i < count; i++) {
      if (step_of(names[i]) < 0) continue;
      char *path = brim_fs_join(files->folder, names[i]);
      if (path) separate(files->best, path);
      if (path) separate(files->last, path);
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  brim_status_set_detail(why);
}

// Checks length, checksum and that all weights are finite: a checkpoint of a diverged run is useless.
static brim_status check_whole(const char *path) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  bool ours = json_object_get(brim_safetensors_metadata(file), "brim.step") != NULL;
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = brim_safetensors_finite(file, NULL);
  brim_safetensors_close(file);
  if (status || ours) return status;
  return brim_fail(BRIM_EPARSE, "%s: no step in it; is it a checkpoint of brim train?", path);
}

// True if model.safetensors is whole and belongs to this step.
static bool files_model_at(const brim_run_files *files, int64_t step) {
  brim_safetensors *file = NULL;
  double file_step = -1;
  if (!brim_fs_exists(files->model)) return false;
  brim_status status = brim_safetensors_open(files->model, &file);
  if (!status) status = brim_safetensors_verify(file);
  if (!status) get_double(brim_safetensors_metadata(file), "brim.step", &file_step);
  brim_safetensors_close(file);
  brim_status_clear();  // a broken file is an answer, not an error
  return (int64_t)file_step == step;
}

typedef struct search {
  char *found, *broken;
  char why[1024];  // the error of the first broken file
  brim_status status;
} search;

// Tries a checkpoint. Takes ownership of `path`. True if the search is over.
static bool try_path(search *s, char *path) {
  if (!path) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while looking for a checkpoint");
    return true;
  }
  if (!brim_fs_exists(path)) {
    brim_free(path);
    return false;
  }
  brim_status status = check_whole(path);
  if (status == BRIM_OK) {
    s->found = path;
    return true;
  }
  brim_log_warn("run", "skipped: %s", brim_status_detail());
  if (s->broken) {
    brim_free(path);
    return false;
  }
  snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
  s->broken = path;
  s->status = status;
  return false;
}

// Tries last.safetensors, then the files named by step from the newest, then best.safetensors.
static void search_files(search *s, const brim_run_files *files) {
  if (try_path(s, brim_strdup(files->last))) return;
  char **names = NULL;
  size_t count = 0;
  bool done = false;
  if (!brim_fs_is_dir(files->folder) || brim_fs_list(files->folder, &names, &count)) return;
  for (size_t i = count; !done && i > 0; i--) {
    if (step_of(names[i - 1]) < 0) continue;
    done = try_path(s, brim_fs_join(files->folder, names[i - 1]));
  }
  brim_fs_list_free(names, count);
  if (!done) try_path(s, brim_strdup(files->best));
}

// The checkpoint to resume from, for brim_free; NULL if there is none. Damaged files are skipped with a
// warning; if all are damaged, fails with the first one's error.
static brim_status files_newest(const brim_run_files *files, char **path) {
  search s = {0};
  *path = NULL;
  search_files(&s, files);
  brim_status status = BRIM_OK;
  if (s.found) {
    if (s.broken) brim_log_warn("run", "resuming from %s instead", s.found);
    brim_status_clear();
    *path = s.found;
  } else if (s.broken) {
    status = brim_fail(s.status,
                       "%s; no other checkpoint is usable; remove them all to start from the "
                       "beginning, or name one with --resume-from",
                       s.why);
  } else if (!s.status && brim_fs_exists(files->model)) {
    status = brim_fail(BRIM_EEXIST,
                       "%s exists, but there is no checkpoint to resume from; move it away to "
                       "start from the beginning, or choose another folder with --output-dir",
                       files->model);
  } else {
    status = s.status;
  }
  brim_free(s.broken);
  return status;
}

//---------------------------------- files of other programs ----------------------------------
// A file with a name that brim uses counts as brim's if its content looks like it. A mark cannot decide: folders of
// earlier versions have none and can still be resumed.

// The first line of config.yaml.
#define CONFIG_MARK "# written by brim train: the config of this run, every key"

enum { LOOK_BYTES = 1 << 20 };  // enough for a checkpoint's header, which holds its metadata

typedef enum kind { OTHER, CONFIG, LOCK, CSV, JSONL, CHECKPOINT } kind;

// "log.csv", "log.12.csv": `name` without "log." is EXT or digits, a dot and EXT.
static bool is_log(const char *name, const char *ext) {
  if (!brim_str_starts(name, "log.")) return false;
  const char *at = name + 4;
  if (strcmp(at, ext) == 0) return true;
  size_t digits = strspn(at, "0123456789");
  return digits > 0 && at[digits] == '.' && strcmp(at + digits + 1, ext) == 0;
}

static kind kind_of(const char *name) {
  static const char *const checkpoints[] = {"last.safetensors", "best.safetensors",
                                            "model.safetensors"};
  if (strcmp(name, "config.yaml") == 0) return CONFIG;
  if (strcmp(name, "lock") == 0) return LOCK;
  if (is_log(name, "csv")) return CSV;
  if (is_log(name, "jsonl")) return JSONL;
  for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
    if (strcmp(name, checkpoints[i]) == 0) return CHECKPOINT;
  }
  return step_of(name) >= 0 ? CHECKPOINT : OTHER;
}

// 0.1 wrote config.yaml without a mark: every key with its value in brim's order, no comment.
static bool is_config(const char *text) {
  static const char *const keys[] = {"\nseed: ", "\ndevice: ", "\nthreads: ", "\npriority: "};
  if (brim_str_starts(text, CONFIG_MARK)) return true;
  if (!brim_str_starts(text, "workload: ") || strstr(text, "\n#")) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!strstr(text, keys[i])) return false;
  }
  return true;
}

static bool is_csv(const char *text) {
  return !*text || brim_str_starts(text, "epoch,step,lr,train_");
}

static bool is_jsonl(const char *text) {
  if (!*text) return true;
  const char *end = strchr(text, '\n'), *step = strstr(text, "\"step\":");
  return brim_str_starts(text, "{\"event\":\"") && step && (!end || step < end);
}

// *sure stays false for an empty lock and for a 0.1 lock with the PID alone: another program may write such a file.
static bool is_lock(const char *text, size_t size, bool *sure) {
  bool lock = brim_fs_is_lock(text, size);
  *sure = lock && strstr(text, " brim\n");
  return lock;
}

// Searches bytes, not text: the header may contain zeros.
static bool is_checkpoint(const char *data, size_t size, bool *sure) {
  static const char word[] = "\"brim.";
  *sure = false;
  if (size < 9 || data[8] != '{') return size == 0;
  for (size_t i = 8; !*sure && i + sizeof word - 1 <= size; i++) {
    *sure = memcmp(data + i, word, sizeof word - 1) == 0;
  }
  return *sure;
}

// Reads the beginning of a file, NUL-terminated, for brim_free. *size excludes the NUL.
static brim_status read_start(const char *path, char **out, size_t *size) {
  FILE *file = NULL;
  struct stat st;
  *out = NULL;
  *size = 0;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return BRIM_OK;  // opening it will fail
  *out = brim_alloc(LOOK_BYTES + 1);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", path);
  file = fopen(path, "rbe");
  if (file) {
    *size = fread(*out, 1, LOOK_BYTES, file);
    fclose(file);
  }
  (*out)[*size] = '\0';
  return BRIM_OK;
}

typedef struct look {
  const char *folder;
  bool csv, jsonl;  // the run writes log.csv and log.jsonl
  bool resume;      // an unreadable checkpoint is reported when it is opened
  bool own;         // a file here was certainly written by brim: the folder is a run's
  char weak[32];    // a file of unclear origin: damaged if a run used the folder, else foreign
} look;

static brim_status refuse(const char *folder, const char *name) {
  return brim_fail(BRIM_EEXIST,
                   "%s/%s was not written by brim, and this run would replace it; choose another "
                   "folder with --output-dir, or move the file away",
                   folder, name);
}

// True if the text looks like a file of this kind by brim. *sure: no other program writes it.
static bool is_ours(kind k, const char *text, size_t size, bool *sure) {
  *sure = false;
  switch (k) {
    case CONFIG:
      return *sure = is_config(text);
    case LOCK:
      return is_lock(text, size, sure);
    case CSV:
      return is_csv(text);
    case JSONL:
      return is_jsonl(text);
    case CHECKPOINT:
      return is_checkpoint(text, size, sure);
    case OTHER:
      break;
  }
  return true;
}

static brim_status check_file(look *l, const char *name) {
  kind k = kind_of(name);
  if (k == OTHER || (k == CSV && !l->csv) || (k == JSONL && !l->jsonl)) return BRIM_OK;
  char *path = brim_fs_join(l->folder, name), *text = NULL;
  size_t size = 0;
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", name);
  brim_status status = read_start(path, &text, &size);
  bool sure = false, ours = !text || is_ours(k, text, size, &sure);
  if (sure) l->own = true;
  // brim repairs a torn first log; later logs begin whole
  bool weak = k == LOCK || strcmp(name, "log.csv") == 0 || strcmp(name, "log.jsonl") == 0 ||
              (k == CHECKPOINT && (size < 9 || text[8] != '{'));
  if (k == CHECKPOINT && weak && l->resume) ours = true;
  if (!status && !ours && !weak) status = refuse(l->folder, name);
  if (!ours && weak) snprintf(l->weak, sizeof l->weak, "%s", name);
  brim_free(text);
  brim_free(path);
  return status;
}

// BRIM_EEXIST if a file that this run would write or remove was not written by brim. *own: a run of brim
// used the folder before.
static brim_status folder_check(const brim_config *config, const char *folder, bool resume,
                                bool *own) {
  char **names = NULL;
  size_t count = 0;
  look l = {.folder = folder,
            .resume = resume,
            .csv = brim_config_bool(config, "log.csv"),
            .jsonl = brim_config_bool(config, "log.jsonl")};
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) status = check_file(&l, names[i]);
  brim_fs_list_free(names, count);
  *own = l.own;
  return !status && l.weak[0] && !l.own ? refuse(folder, l.weak) : status;
}

void brim_run_folder_restore(const char *folder) {
  if (brim_fs_is_dir(folder)) return;
  if (brim_fs_mkdirs(folder)) {
    brim_status_clear();  // the next write to the folder fails with the reason
    return;
  }
  brim_log_warn(
      "run",
      "%s was removed during the run; brim creates it again, but its earlier content is lost",
      folder);
}

//---------------------------------- settings ----------------------------------
// A checkpoint holds, as one JSON text ("brim.settings"), every key that changes what is learned. Resuming with
// other values is allowed; each difference gets a warning.

// Returns the workload's rule for the keys that belong in checkpoints.
static brim_config_learning learns_from(const char *workload) {
  const brim_workload_table *table = workload ? brim_workload_find(workload) : NULL;
  if (!table || !table->policy) return BRIM_CONFIG_LEARNS_FROM_DATA;
  return table->policy->networks ? BRIM_CONFIG_TRAINS_IN_ENV : BRIM_CONFIG_LEARNS_IN_ENV;
}

// The value of a dotted key in a nested object; borrowed, NULL if unset.
static json_t *find(json_t *config, const char *key) {
  char part[64];
  for (; config && *key; key += *key == '.') {
    size_t n = strcspn(key, ".");
    if (n >= sizeof part) return NULL;
    memcpy(part, key, n);
    part[n] = 0;
    config = json_object_get(config, part);
    key += n;
  }
  return config;
}

static brim_status collect(const brim_config *config, json_t **out) {
  json_t *all = NULL;
  BRIM_TRY(brim_config_to_json(config, &all));
  const char *workload = brim_config_string(config, "workload");
  const brim_config_learning from = learns_from(workload);
  json_t *picked = json_object();
  brim_status status =
      picked ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while saving the settings");
  for (size_t i = 0; !status && i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    json_t *value = brim_config_key_is_saved(key, workload, from) ? find(all, key->name) : NULL;
    if (value) status = brim_json_put(picked, key->name, json_incref(value));
  }
  json_decref(all);
  if (status) {
    json_decref(picked);
    return status;
  }
  *out = picked;
  return BRIM_OK;
}

static brim_status put_settings(const brim_config *config, const brim_work *work,
                                json_t *metadata) {
  json_t *picked = NULL;
  char *text = NULL;
  BRIM_TRY(collect(config, &picked));
  // store the chosen number in place of "auto"
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    const char *word = json_string_value(json_object_get(picked, knob->key));
    if (knob->kind != BRIM_KNOB_INT || !word || strcmp(word, "auto") != 0) continue;
    status = brim_json_put(picked, knob->key, json_integer(knob->value));
  }
  if (!status) status = brim_json_dump(picked, 0, &text);
  if (!status) status = brim_json_put(metadata, "brim.settings", json_string(text));
  brim_free(text);
  json_decref(picked);
  return status;
}

// Adds the defaults of arguments that are newer than the checkpoint to a component. NULL if that fails.
static json_t *with_defaults(const char *key, const json_t *was) {
  brim_config *config = NULL;
  json_t *all = NULL, *out = NULL;
  brim_str text;
  const char *value = json_string_value(was);
  if (!value || strpbrk(value, "\"\\\r\n")) return NULL;  // the file is not trusted
  brim_str_init(&text);
  brim_str_printf(&text, "%s: \"%s\"\n", key, value);
  const brim_config_options options = {
      .text = text.data, .text_name = key, .mode = BRIM_CONFIG_RUN};
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_load(&options, &config);
  if (!status) status = brim_config_to_json(config, &all);
  if (!status) out = json_incref(find(all, key));
  if (status) brim_status_clear();
  json_decref(all);
  brim_config_close(config);
  brim_str_deinit(&text);
  return out;
}

static bool means_the_same(const char *key, const json_t *was, const json_t *now) {
  json_t *filled = with_defaults(key, was);
  bool same = filled && now && json_equal(filled, now);
  json_decref(filled);
  return same;
}

static bool is_unset(const json_t *value) { return !value || json_is_null(value); }

static void warn_changed(const char *key, const json_t *was, const json_t *now, const char *path) {
  char *a = NULL, *b = NULL;
  if (!is_unset(was)) brim_json_dump(was, 0, &a);
  if (!is_unset(now)) brim_json_dump(now, 0, &b);
  brim_log_warn("run", "%s was trained with %s %s; this run continues with %s", path, key,
                a ? a : "unset", b ? b : "unset");
  brim_free(a);
  brim_free(b);
}

// True if the new held-out part is larger. The seed orders the samples, so a larger part contains a smaller part.
static bool is_larger(const char *key, const json_t *was, const json_t *now) {
  return strcmp(key, "data.val_fraction") == 0 && json_number_value(now) > json_number_value(was);
}

static bool keeps_part(const brim_config *config) {
  const brim_component *val = brim_config_component(config, "dataset", "val");
  bool own = val && val != brim_config_component(config, "dataset", NULL);
  return !own && brim_config_float(config, "data.val_fraction") > 0;
}

// Warns about changed settings. Without memory the warnings are skipped.
static void compare_settings(const brim_config *config, const brim_work *work,
                             const json_t *metadata, const char *path) {
  const char *text = json_string_value(json_object_get(metadata, "brim.settings"));
  json_t *was = NULL, *now = NULL;
  if (!text || brim_json_parse(text, strlen(text), path, &was)) return;
  if (collect(config, &now) == BRIM_OK) {
    const brim_workload_table *table = work->table;
    if (table->settings) table->settings->resolve(work->state, metadata, was, now);
    const char *workload = brim_config_string(config, "workload");
    const brim_config_learning from = learns_from(workload);
    bool other_part = false;
    for (size_t i = 0; i < brim_config_key_count(); i++) {
      const brim_config_key *key = brim_config_key_at(i);
      if (!brim_config_key_is_saved(key, workload, from)) continue;
      const json_t *a = json_object_get(was, key->name);
      const json_t *b = json_object_get(now, key->name);
      bool same = (is_unset(a) && is_unset(b)) || (a && b && json_equal(a, b)) ||
                  means_the_same(key->name, a, b);
      if (same) continue;
      warn_changed(key->name, a, b, path);
      other_part |= strcmp(key->name, "seed") == 0 || is_larger(key->name, a, b);
    }
    if (other_part && table->loading && keeps_part(config)) {
      brim_log_warn("run",
                    "data.val_fraction now holds out other samples: evaluation includes samples "
                    "the run was trained on, so its results look too good");
    }
  }
  json_decref(was);
  json_decref(now);
}

// Lists the knobs that config.yaml must show with the value in use: knobs that the config leaves open, and knobs of
// which the workload uses less than a default or a preset says.
static size_t numbers_used(const brim_config *config, const brim_work *work,
                           brim_config_number out[BRIM_KNOB_MAX]) {
  size_t count = 0;
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    int64_t own;
    if (knob->kind != BRIM_KNOB_INT) continue;
    if (brim_config_get_int(config, knob->key, &own)) {  // the config leaves it open
      brim_status_clear();
      out[count++] = (brim_config_number){knob->key, knob->value};
      continue;
    }
    bool asked = brim_config_layer_of(config, knob->key) > BRIM_CONFIG_FROM_PRESET;
    if (!asked && knob->value < own) {
      out[count++] = (brim_config_number){knob->key, knob->value};
    }
  }
  return count;
}

// Writes the resolved config to config.yaml.
static brim_status write_config(const brim_config *config, const brim_work *work,
                                const char *folder) {
  brim_config_number numbers[BRIM_KNOB_MAX];
  const size_t count = numbers_used(config, work, numbers);
  char *path = brim_fs_join(folder, "config.yaml");
  brim_str yaml;
  brim_str_init(&yaml);
  brim_status status =
      path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
  brim_str_append(&yaml, CONFIG_MARK "\n");
  if (!status) status = brim_config_to_yaml_with(config, numbers, count, &yaml);
  if (!status) status = brim_str_status(&yaml);
  if (!status) status = brim_fs_write(path, yaml.data, yaml.len);
  brim_str_deinit(&yaml);
  brim_free(path);
  return status;
}

//---------------------------------- saving ----------------------------------
// A checkpoint is copied to host memory, and a thread writes the copy while training continues. The thread
// writes one checkpoint at a time. A checkpoint appears whole or not at all.

// The error of a failed save. The last checkpoint is still whole, since files are replaced by renaming.
static brim_status not_saved(const loop *l, brim_status status, int64_t step) {
  if (status == BRIM_ENOMEM) return status;
  l->result->folder_failed = true;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (l->files.last_step < 0 || !brim_fs_exists(l->files.last) || brim_fs_is_dir(l->files.last)) {
    return brim_fail(
        status,
        "%s; cannot save step %" PRId64
        "; free disk space or make the folder writable, or choose another with --output-dir",
        why, step);
  }
  return brim_fail(
      status,
      "%s; cannot save step %" PRId64
      "; free disk space or make the folder writable, then --resume continues from step %" PRId64
      " in %s",
      why, step, l->files.last_step, l->files.last);
}

// Metadata of a checkpoint. Weights alone get the settings, for eval, predict and export.
static brim_status make_extra(const loop *l, bool weights_only, json_t **out) {
  brim_json_setup();
  *out = json_object();
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while saving");
  brim_status status = put_settings(l->config, l->work, *out);
  if (!status && !weights_only) status = position_put(l, *out);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

// Restores a removed folder with its config and lock. Ignores errors: the next write reports them.
static void keep_folder(loop *l) {
  const char *folder = l->options->output_dir;
  brim_run_folder_restore(folder);
  char *config = brim_fs_join(folder, "config.yaml"), *lock = brim_fs_join(folder, "lock");
  if (config && !brim_fs_exists(config)) (void)write_config(l->config, l->work, folder);
  if (lock && l->lock && !brim_fs_exists(lock)) {
    brim_fs_unlock(l->lock);
    l->lock = NULL;
    if (brim_fs_lock_folder(folder, &l->lock)) {
      brim_log_warn("run", "%s is no longer locked: %s", folder, brim_status_detail());
    }
  }
  brim_free(lock);
  brim_free(config);
  brim_status_clear();
}

static brim_status write_both(brim_run_saver *s) {
  const char *path = s->files.last;
  if (s->best) BRIM_TRY(s->held.write(s->held.state, s->files.best));
  if (!s->last) return BRIM_OK;
  files_keep_last(&s->files, s->step);
  // best and last share one file until the end of the run: each save makes a new file, so none changes
  if (!s->best || brim_fs_link(s->files.best, path)) BRIM_TRY(s->held.write(s->held.state, path));
  s->files.last_step = s->step;
  files_prune(&s->files, s->step);
  return BRIM_OK;
}

static void write_files(void *saver) {
  brim_run_saver *s = (brim_run_saver *)saver;
  brim_time start = brim_clock_now();
  s->status = write_both(s);
  // the folder was removed while writing; the log may have created it again
  for (int tries = 0; tries < 3 && s->status == BRIM_ENOENT; tries++) {
    brim_run_folder_restore(s->files.folder);
    s->status = write_both(s);
  }
  if (s->status) snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
  s->files.saved_at = brim_clock_now();
  s->files.save_ns = brim_time_since_ns(start, s->files.saved_at);
  __atomic_store_n(&s->written, 1, __ATOMIC_RELEASE);
}

// Waits for the checkpoint that is being written. Its error names the step that is not saved, and
// the step that is.
static brim_status save_wait(loop *l) {
  brim_run_saver *s = &l->saver;
  if (!s->busy) return BRIM_OK;
  brim_thread_join(s->thread);
  s->thread = NULL;
  s->busy = false;
  if (s->held.free) s->held.free(s->held.state);
  memset(&s->held, 0, sizeof s->held);
  l->files.last_step = s->files.last_step;
  l->files.saved_at = s->files.saved_at;
  l->files.save_ns = s->files.save_ns;
  if (s->status) {
    brim_status_set_detail(s->why);
    return not_saved(l, s->status, s->step);
  }
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s",
           s->last ? l->files.last : l->files.best);
  if (s->last && l->options->on_checkpoint) l->options->on_checkpoint(l->options->ctx, s->step);
  return BRIM_OK;
}

static brim_status save_model(loop *l) {
  json_t *extra;
  if (l->comm) BRIM_TRY(l->work->table->ranks->give(l->work->state, true));
  if (!writes_files(l)) return BRIM_OK;
  BRIM_TRY(save_wait(l));
  keep_folder(l);
  BRIM_TRY(make_extra(l, true, &extra));
  brim_status status = l->work->table->save(l->work->state, l->files.model, extra, true);
  json_decref(extra);
  if (status) return not_saved(l, status, l->step);
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", l->files.model);
  return BRIM_OK;
}

// Like save_wait if the thread is done; else returns at once.
static brim_status save_poll(loop *l) {
  if (!l->saver.busy || !__atomic_load_n(&l->saver.written, __ATOMIC_ACQUIRE)) return BRIM_OK;
  return save_wait(l);
}

// True if the end of an epoch may go without a checkpoint: checkpoints take long to write, and the last one is young
// or still being written.
static bool save_postponed(const loop *l) {
  const brim_time now = brim_clock_now();
  const bool expensive = l->files.save_ns > CHEAP_NS;
  if (l->saver.busy) return expensive || brim_time_since_ns(l->saver.start, now) > CHEAP_NS;
  // spend at most a twentieth of the time on writing
  return expensive && brim_time_since_ns(l->files.saved_at, now) < 20 * l->files.save_ns;
}

// Writes the workload's state directly, without a copy.
typedef struct direct {
  const brim_work *work;
  const json_t *extra;
} direct;

static brim_status direct_write(void *state, const char *path) {
  const direct *d = (const direct *)state;
  return d->work->table->save(d->work->state, path, d->extra, false);
}

// Fills s->held with a copy of the state, or with the direct writer if `wait` is set or memory is short.
static brim_status hold(loop *l, direct *d, bool wait, bool *copied) {
  brim_run_saver *s = &l->saver;
  const brim_work_background_table *background = l->work->table->background;
  *copied = false;
  s->held = (brim_work_held){.state = d, .write = direct_write};
  if (wait || !background) return BRIM_OK;
  brim_work_held held;
  brim_status status = background->hold(l->work->state, d->extra, false, &held);
  if (status == BRIM_ENOMEM) {
    brim_status_clear();
    return BRIM_OK;
  }
  if (status) return not_saved(l, status, l->step);
  s->held = held;
  *copied = true;
  return BRIM_OK;
}

// Saves the state to best.safetensors, last.safetensors or both. With `wait` returns when they are written;
// else a thread writes them. Waits for the previous checkpoint first.
static brim_status save_state(loop *l, bool best, bool last, bool wait) {
  brim_run_saver *s = &l->saver;
  json_t *extra;
  if (!best && !last) return BRIM_OK;
  if (l->comm) BRIM_TRY(l->work->table->ranks->give(l->work->state, false));
  if (!writes_files(l)) {
    if (last) l->files.last_step = l->step;
    return BRIM_OK;
  }
  BRIM_TRY(save_wait(l));
  keep_folder(l);
  brim_status status = make_extra(l, false, &extra);
  if (status) return not_saved(l, status, l->step);
  s->files = l->files;
  s->step = l->step;
  s->best = best;
  s->last = last;
  s->status = BRIM_OK;
  s->written = 0;
  s->start = brim_clock_now();
  direct d = {.work = l->work, .extra = extra};
  bool copied;
  status = hold(l, &d, wait, &copied);
  s->busy = !status;
  // write here if no thread can be started
  if (copied && brim_thread_start(write_files, s, "brim-save", &s->thread)) brim_status_clear();
  if (s->busy && !s->thread) {
    write_files(s);
    status = save_wait(l);
  }
  json_decref(extra);
  return status;
}

//------------------------------------------ training --------------------------------------------
// The loop: epochs, evaluation, early stopping, resume, and the reports of a run.

//---------------------------------- published findings ----------------------------------
// The findings of a running job, for `brim top`: problems that the workload reports, and waiting for data.

static const double WAITS = 0.1;  // report waiting for data above this share of a step

// Finds the finding with this code, or adds one. A full list drops its oldest finding.
static brim_finding *finding_of(brim_job *job, const char *code) {
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) == 0) return &job->findings[i];
  }
  if (job->finding_count == BRIM_JOB_FINDINGS) {
    memmove(job->findings, job->findings + 1, (BRIM_JOB_FINDINGS - 1) * sizeof *job->findings);
    job->finding_count--;
  }
  return &job->findings[job->finding_count++];
}

// Replaces the finding with the same code. `job` may be NULL; `text` as base_words.h stores it.
static void publish_finding(brim_job *job, const char *code, const char *text) {
  if (!job) return;
  brim_finding *f = finding_of(job, code);
  memset(f, 0, sizeof *f);
  f->cost_ms = f->predicted_ms = (double)NAN;
  snprintf(f->code, sizeof f->code, "%.31s", code);
  snprintf(f->text, sizeof f->text, "%s", text);
  brim_utf8_trim(f->text);
}

// Publishes or removes the finding that steps wait for data.
static void publish_waits(loop *l, const brim_run_steps *s) {
  static const char code[] = "io_wait";
  brim_job *job = &l->job;
  double step_s = s->data_s + s->compute_s;
  if (!l->publisher || !s->loads || !(step_s > 0)) return;
  if (s->data_s > WAITS * step_s) {
    char text[256] = "";
    brim_words_add(text, sizeof text, BRIM_N_("waiting for data takes %.0f %% of a step"),
                   brim_shown(100 * s->data_s / step_s));
    publish_finding(job, code, text);
    brim_finding *f = finding_of(job, code);
    f->cost_ms = s->data_s * 1e3;
    brim_words_put(f->remedy, sizeof f->remedy, BRIM_N_("run brim bench to find its remedy"));
    return;
  }
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) != 0) continue;
    size_t after = job->finding_count - i - 1;
    memmove(job->findings + i, job->findings + i + 1, after * sizeof *job->findings);
    job->finding_count--;
    return;
  }
}

//---------------------------------- problems ----------------------------------
// Problems that the workload finds while it trains: counted, warned about, logged and published.

static brim_status log_trouble(brim_run_watch *w, const brim_work_trouble *t,
                               const brim_work_moment *at) {
  const char *name = w->work->table->diagnosis->rows[t->kind].name;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "kind", json_string(name));
  if (!s) s = brim_json_put(f, "count", json_integer(t->count));
  for (size_t i = 0; !s && i < t->field_count; i++) {
    s = brim_json_put(f, t->fields[i].key, brim_json_number(t->fields[i].value));
  }
  char advice[sizeof t->advice];
  brim_words_text(t->advice, advice, sizeof advice);
  if (!s && advice[0]) s = brim_json_put(f, "advice", json_string(advice));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(at->lr));
  if (!s) return brim_run_log_event(w->log, "anomaly", at->epoch, at->step, f);
  json_decref(f);
  return s;
}

static brim_status report_trouble(brim_run_watch *w, const brim_work_trouble *t,
                                  const brim_work_moment *at, bool unlogged) {
  brim_run_result *r = w->result;
  if (!r->first_anomaly[t->kind]) r->first_anomaly[t->kind] = at->step;
  r->anomalies[t->kind] += t->count;
  int64_t times = ++w->times[t->kind];
  // warn the 1st, 2nd, 4th, 8th, ... time
  bool warns = (times & (times - 1)) == 0 || w->work->table->diagnosis->rows[t->kind].always;
  char text[sizeof t->text];
  brim_words_text(t->text, text, sizeof text);
  if (!t->silent && warns) brim_log_text(BRIM_LOG_WARN, "run", text);
  if (!t->silent) publish_finding(w->job, w->work->table->diagnosis->rows[t->kind].name, t->text);
  return unlogged ? BRIM_OK : log_trouble(w, t, at);
}

// Asks the workload for new problems. With `unlogged` they are not logged, since a resumed run will log them.
static brim_status check_trouble(brim_run_watch *w, const brim_work_moment *at, bool unlogged) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  brim_work_trouble troubles[BRIM_WORK_MAX_TROUBLES];
  if (!d) return BRIM_OK;
  size_t n = d->take(w->work->state, at, troubles);
  for (size_t i = 0; i < n; i++) BRIM_TRY(report_trouble(w, &troubles[i], at, unlogged));
  return BRIM_OK;
}

//---------------------------------- loading ----------------------------------
// Loading times per sample, for logs, the summary and the warning about slow transforms.

enum { FEW_SAMPLES = 8 };  // with fewer, one cold call would dominate the mean

_Static_assert(BRIM_WORK_MAX_STAGES <= 32, "bits of brim_run_loader.warned");

static bool loading_now(const brim_work *work, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (!work->table->loading) return false;
  work->table->loading->stats(work->state, out);
  return true;
}

static void loading_between(const brim_work_loading *from, const brim_work_loading *to,
                            brim_run_loading *out) {
  memset(out, 0, sizeof *out);
  out->broken = to->broken;
  out->broken_reads = to->broken_reads;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", to->first_broken);
  out->cache = to->cache;
  out->locked_bytes = to->locked_bytes;
  out->samples = to->samples - from->samples;
  out->stage_count = to->stage_count;
  for (size_t i = 0; i < to->stage_count; i++) out->stage[i] = to->stage[i];
  if (out->samples <= 0) return;
  double ms_scale = 1e-6 / (double)out->samples;
  out->read_ms = (double)(to->read_ns - from->read_ns) * ms_scale;
  for (size_t i = 0; i < to->stage_count; i++) {
    out->stage_ms[i] = (double)(to->stage_ns[i] - from->stage_ns[i]) * ms_scale;
  }
}

static void warn_slow(brim_run_loader *loader, const brim_run_loading *loading) {
  if (loading->samples < FEW_SAMPLES) return;
  for (size_t i = 0; i < loading->stage_count; i++) {
    uint32_t bit = (uint32_t)1 << i;
    if (loading->stage_ms[i] <= loader->slow_ms || (loader->warned & bit)) continue;
    loader->warned |= bit;
    brim_log_warn("run",
                  "transform %s takes %.3g ms per sample (limit data.slow_transform_ms %g); move "
                  "it after the stage that shrinks the image, raise data.num_workers, or run it on "
                  "the GPU with data.cache=gpu",
                  loading->stage[i], loading->stage_ms[i], loader->slow_ms);
  }
}

// Takes the loading times since the epoch began, and begins the next epoch. Warns once about each slow transform.
static void loader_epoch(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now;
  memset(out, 0, sizeof *out);
  if (!loading_now(work, &now)) return;
  loading_between(&loader->before, &now, out);
  loader->before = now;
  warn_slow(loader, out);
}

// Takes the loading times since the setting was built.
static void loader_all(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now, none;
  memset(out, 0, sizeof *out);
  memset(&none, 0, sizeof none);
  if (!loading_now(work, &now)) return;
  loading_between(&none, &now, out);
  warn_slow(loader, out);
}

//---------------------------------- published progress ----------------------------------
// Phase, epoch, step and throughput of a running job, for `brim top` (monitor.h). A step costs one look at the
// clock, and a copy twice a second. Nothing here can fail a run.

enum { PERIOD_NS = 500000000 };

// The config's name, else the folder's.
static const char *name_of(const loop *l) {
  const char *name = brim_config_string(l->config, "name");
  return name && name[0] ? name : brim_fs_basename(l->options->output_dir);
}

static void publish_start(loop *l) {
  brim_job *job = &l->job;
  if (!l->options->publish) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "%.15s", l->options->publish);
  snprintf(job->workload, sizeof job->workload, "%.31s", l->work->table->name);
  snprintf(job->name, sizeof job->name, "%.63s", name_of(l));
  snprintf(job->folder, sizeof job->folder, "%.255s", l->options->output_dir);
  brim_utf8_trim(job->name);
  brim_utf8_trim(job->folder);
  const brim_device *device = l->work->context.device;
  if (device) {
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  if (l->info.unit) snprintf(job->unit, sizeof job->unit, "%.23s", l->info.unit);
  job->phase = BRIM_JOB_START;
  l->publisher = brim_job_publisher_start(job);
  l->publish_time = brim_clock_now();
  l->watch.job = job;
}

// Publishes the first metric that has a value while training. Between epochs it keeps its last value.
static void put_metric(const loop *l, brim_job *job) {
  double values[BRIM_METRIC_MAX];
  const brim_metric_set *set = l->work->metrics;
  epoch_values(l, values);
  for (size_t i = 0; i < set->count; i++) {
    if (!(set->rows[i].stages & BRIM_METRIC_AT(BRIM_METRIC_STEPS))) continue;
    if (!isfinite(values[i]) && strcmp(set->rows[i].key, job->metric_key) == 0) return;
    if (!isfinite(values[i])) continue;
    snprintf(job->metric_key, sizeof job->metric_key, "%s", set->rows[i].key);
    job->metric = values[i];
    return;
  }
}

static void put_place(const loop *l, brim_job *job) {
  int64_t last_step = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  if (l->limit > 0 && l->limit < last_step) last_step = l->limit;
  job->epoch = l->epoch + 1 < l->epochs ? l->epoch + 1 : l->epochs;
  job->epochs = l->epochs;
  job->step = l->step;
  job->steps = last_step > 0 ? last_step : -1;
}

static void publish(loop *l) {
  brim_job_publisher_set(l->publisher, &l->job);
  if (l->options->on_published) l->options->on_published(l->options->ctx, &l->job);
}

static void publish_phase(loop *l, brim_job_phase phase) {
  if (!l->publisher) return;
  l->job.phase = phase;
  put_place(l, &l->job);
  publish(l);
}

// Called after each step; publishes at most twice a second.
static void publish_step(loop *l) {
  if (!l->publisher) return;
  brim_time now = brim_clock_now();
  int64_t ns = brim_time_since_ns(l->publish_time, now);
  if (ns < PERIOD_NS) return;
  brim_job *job = &l->job;
  double seconds = l->train_seconds - l->publish_seconds;  // evaluations do not count
  int64_t steps = l->step - l->publish_step;
  if (steps <= 0 || !(seconds > 0)) return;
  put_place(l, job);
  put_metric(l, job);
  job->phase = BRIM_JOB_TRAIN;
  job->samples_per_s = (double)(l->train_samples - l->publish_samples) / seconds;
  double step_s = (double)ns * 1e-9 / (double)steps;
  job->eta_s = job->steps >= l->step ? step_s * (double)(job->steps - l->step) : (double)NAN;
  publish(l);
  l->publish_time = now;
  l->publish_seconds = l->train_seconds;
  l->publish_samples = l->train_samples;
  l->publish_step = l->step;
}

//---------------------------------- the best epoch ----------------------------------
// Finds the best epoch by checkpoint.best, and stops early by the same metric. Checkpoints store both, so that
// a resumed run chooses as the uninterrupted one does.

// The row with this key or name in checkpoints; -1 if none. Prefers a row measured in `stage`. The training
// stage accepts no other row.
static int row_of(const brim_metric_set *set, const char *name, brim_metric_stage stage) {
  int found = -1;
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    if (strcmp(row->key, name) != 0 && strcmp(brim_metric_best_name(row), name) != 0) continue;
    if (row->stages & BRIM_METRIC_AT(stage)) return (int)i;
    if (found < 0 && stage != BRIM_METRIC_TRAIN) found = (int)i;
  }
  return found;
}

static bool others_have(const char *name, brim_metric_stage stage) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (row_of(table->metric_set, name, stage) >= 0) return true;
  }
  return false;
}

static brim_status no_metric(const brim_metric_set *set, const char *name) {
  brim_str keys;
  brim_str_init(&keys);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    brim_str_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", row->key);
    bool eval = row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL);
    bool train = row->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN);
    if (eval && train) brim_str_printf(&keys, ", val_%s", row->key);
    if (train) brim_str_printf(&keys, ", train_%s", row->key);
  }
  brim_status status = brim_fail(BRIM_EINVAL, "checkpoint.best is '%s', expected one of %s", name,
                                 keys.data ? keys.data : "");
  brim_str_deinit(&keys);
  return status;
}

static brim_status best_init(brim_run_best *best, const brim_config *config,
                             const brim_metric_set *metrics) {
  memset(best, 0, sizeof *best);
  brim_metric_unknown(best->values);
  best->metrics = metrics;
  best->asked_row = best->row = -1;
  best->reference = (double)NAN;
  best->patience = brim_config_int(config, "training.early_stopping_patience");
  best->delta = brim_config_float(config, "training.early_stopping_delta");
  const char *name = brim_config_string(config, "checkpoint.best");
  if (!name || !name[0]) return BRIM_OK;
  const char *key = name;
  best->training = brim_str_starts(name, "train_");
  if (best->training) key += 6;
  if (brim_str_starts(name, "val_")) key += 4;
  if (brim_str_starts(name, "eval_")) key += 5;
  brim_metric_stage stage = best->training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  best->asked_row = row_of(metrics, key, stage);
  if (best->asked_row >= 0) return BRIM_OK;
  if (!others_have(key, stage)) return no_metric(metrics, name);
  best->wanted = name;
  return BRIM_OK;
}

// Called before training: falls back to training metrics, with a warning, if checkpoint.best needs an evaluation and
// there is none.
static void best_start(brim_run_best *best, bool evaluates) {
  const brim_metric_set *set = best->metrics;
  if (evaluates || best->asked_row < 0) return;
  const brim_metric *asked = &set->rows[best->asked_row];
  if (asked->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN)) return;
  best->asked_row = -1;
  brim_log_warn("run",
                "checkpoint.best is %s, but this run has nothing to evaluate it on; brim uses the "
                "training metrics",
                asked->key);
}

//---------------------------------- epochs ----------------------------------

// The row that decides by default: the highest rank with a known value.
static int by_rank(const brim_metric_set *set, brim_metric_stage stage, const double *values) {
  int row = brim_metric_deciding(set, stage, values, false);
  for (size_t i = 0; row < 0 && i < set->count; i++) {
    const brim_metric *r = &set->rows[i];
    bool must = r->rank > 0 && (r->flags & BRIM_METRIC_FINITE);
    if (must && (r->stages & BRIM_METRIC_AT(stage))) row = (int)i;
  }
  return row >= 0 ? row : brim_metric_deciding(set, stage, values, true);
}

// The row's name in checkpoint.best: "accuracy", "train_loss".
static void name_row(const brim_run_best *best, int row, char out[BRIM_METRIC_NAME]) {
  snprintf(out, BRIM_METRIC_NAME, "%s%s", best->training ? "train_" : "",
           brim_metric_best_name(&best->metrics->rows[row]));
}

static void warn_another_row(brim_run_best *best, const char *asked, int row) {
  if (!best->warned && row >= 0) {
    char used[BRIM_METRIC_NAME];
    name_row(best, row, used);
    brim_log_warn("run", "checkpoint.best is %s, which this run does not have; brim uses %s", asked,
                  used);
  }
  best->warned = true;
}

// Returns the row that decides (-1 = none), and sets `values` to the values to read it from.
static int deciding_row(brim_run_best *best, const brim_epoch_report *r, brim_metric_stage stage,
                        const double **values) {
  const brim_metric_set *set = best->metrics;
  const brim_metric *asked = best->asked_row >= 0 ? &set->rows[best->asked_row] : NULL;
  if (asked && !(asked->stages & BRIM_METRIC_AT(stage))) {
    if (!best->warned) {
      brim_log_warn(
          "run", "checkpoint.best is %s, but this evaluation has none; brim uses the training %s",
          asked->key, asked->key);
    }
    best->warned = true;
    *values = r->train;
    return best->asked_row;
  }
  if (asked && (!isnan((*values)[best->asked_row]) || (asked->flags & BRIM_METRIC_FINITE))) {
    return best->asked_row;
  }
  int row = by_rank(set, stage, *values);
  if (best->wanted) warn_another_row(best, best->wanted, row);
  if (asked) warn_another_row(best, asked->key, row);
  return row;
}

// False if the deciding value, or any value that must be finite, is not: the network diverged.
static bool is_finite(const brim_run_best *best, const double *values, brim_metric_stage stage,
                      int row) {
  if (!isfinite(values[row])) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *m = &best->metrics->rows[i];
    if (!(m->flags & BRIM_METRIC_FINITE) || !(m->stages & BRIM_METRIC_AT(stage))) continue;
    if (!isfinite(values[i])) return false;
  }
  return true;
}

// True if this epoch is the best so far. With an evaluation set (`evaluates`) only evaluated epochs can be best;
// without one the training metrics decide.
static bool best_take(brim_run_best *best, const brim_epoch_report *r, bool evaluates) {
  bool training = best->training || !evaluates;
  if (!training && !r->evaluated) return false;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  const double *values = training ? r->train : r->eval;
  int row = deciding_row(best, r, stage, &values);
  best->row = row;
  if (row < 0) return false;
  bool finite = is_finite(best, values, stage, row) && (training || !r->eval_not_finite);
  bool lower = best->metrics->rows[row].better == BRIM_BETTER_LOWER;
  double value = lower ? -values[row] : values[row];
  if (best->patience > 0) {
    bool improved = finite && (isnan(best->reference) || value > best->reference + best->delta);
    best->waited = improved ? 0 : best->waited + 1;
    if (improved) best->reference = value;
  }
  if (!finite) return false;
  double so_far = lower ? -best->values[row] : best->values[row];
  if (!isnan(so_far) && !(value > so_far)) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    if (best->metrics->rows[i].rank > 0) best->values[i] = training ? r->train[i] : r->eval[i];
  }
  best->values[row] = values[row];
  best->epoch = r->epoch;
  return true;
}

static bool best_stops(const brim_run_best *best) {
  return best->patience > 0 && best->waited >= best->patience;
}

// True if this run selects by another metric than the checkpoint's row `was`: then values cannot be compared.
static bool uses_another_row(const brim_run_best *best, int was, bool training) {
  if (was < 0 || training != best->training) return true;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int now = best->asked_row >= 0 ? best->asked_row
                                 : brim_metric_deciding(best->metrics, stage, best->values, true);
  if (now < 0 || now == was) return false;
  const brim_metric *rows = best->metrics->rows;
  if (strcmp(brim_metric_best_name(&rows[now]), brim_metric_best_name(&rows[was])) == 0)
    return false;
  // a checkpoint without a value of `now` fell back to `was`, as this run does
  return rows[was].rank < rows[now].rank || !isnan(best->values[now]);
}

static brim_status best_put(const brim_run_best *best, json_t *metadata) {
  if (best->row >= 0 && (best->epoch > 0 || best->waited > 0)) {
    char name[BRIM_METRIC_NAME];
    name_row(best, best->row, name);
    BRIM_TRY(brim_json_put(metadata, "brim.best_by", json_string(name)));
  }
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    // two rows may share a name: store the known value
    if (isnan(best->values[i]) && json_object_get(metadata, key)) continue;
    BRIM_TRY(put_double(metadata, key, best->values[i]));
  }
  BRIM_TRY(put_double(metadata, "brim.best_epoch", (double)best->epoch));
  if (best->patience == 0) return BRIM_OK;
  BRIM_TRY(put_double(metadata, "brim.stop_reference", best->reference));
  return put_double(metadata, "brim.stop_waited", (double)best->waited);
}

static void best_get(brim_run_best *best, const json_t *metadata) {
  double epoch = 0, waited = 0;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    get_double(metadata, key, &best->values[i]);
  }
  get_double(metadata, "brim.best_epoch", &epoch);
  best->epoch = (int64_t)epoch;
  const char *was = json_string_value(json_object_get(metadata, "brim.best_by"));
  bool training = was && brim_str_starts(was, "train_");
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int row = was ? row_of(best->metrics, training ? was + 6 : was, stage) : -1;
  if (was && uses_another_row(best, row, training)) {
    brim_log_warn(
        "run",
        "the best epoch so far was selected by %s; brim now uses another metric and starts over",
        was);
    brim_metric_unknown(best->values);
    best->epoch = 0;
    return;
  }
  best->row = row;
  if (best->patience == 0) return;
  get_double(metadata, "brim.stop_reference", &best->reference);
  get_double(metadata, "brim.stop_waited", &waited);
  best->waited = waited > 0 ? (int64_t)waited : 0;
}

//---------------------------------- position ----------------------------------
// The position of a run, in the metadata of its checkpoints.

// Stores sums of the epoch or the log interval: one key each ("brim.epoch_loss"), or one list.
static brim_status put_sums(const brim_work *work, const char *of, const double *sums,
                            json_t *extra) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  bool any = false;
  for (size_t i = 0; i < rows->count; i++) {
    any = any || sums[i] != 0;
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    if (!rows->packed) BRIM_TRY(put_double(extra, key, sums[i]));
  }
  if (!rows->packed || !any) return BRIM_OK;
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  return brim_json_put_numbers(extra, key, sums, rows->count);
}

// Sums that the checkpoint lacks start at 0: only reports depend on them.
static void get_sums(const brim_work *work, const char *of, const json_t *extra, double *sums) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  for (size_t i = 0; !rows->packed && i < rows->count; i++) {
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    get_double(extra, key, &sums[i]);
  }
  if (!rows->packed) return;
  double read[BRIM_WORK_MAX_SUMS] = {0};
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  const size_t n = brim_json_get_numbers(extra, key, read, rows->count);
  if (n != rows->count && (rows->least == 0 || n < rows->least)) return;
  for (size_t i = 0; i < rows->count; i++) {
    if (!isfinite(read[i])) return;
  }
  memcpy(sums, read, rows->count * sizeof *sums);
}

// Stores the position of the run in a checkpoint: the best epoch, sums, adaptions, counts of problems.
static brim_status position_put(const loop *l, json_t *extra) {
  BRIM_TRY(best_put(&l->best, extra));
  BRIM_TRY(adapt_put(&l->adapt, l->work, extra));
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  if (d && d->put) BRIM_TRY(d->put(l->work->state, l->watch.times, extra));
  BRIM_TRY(put_sums(l->work, "epoch", l->sums, extra));
  BRIM_TRY(put_sums(l->work, "log", l->log_sums, extra));
  BRIM_TRY(put_double(extra, "brim.log_bad", (double)l->log_bad));
  BRIM_TRY(put_double(extra, "brim.epoch_skipped", l->epoch_skipped));
  if (l->info.idle_limit > 0) {
    BRIM_TRY(put_double(extra, "brim.updated", (double)l->updated));
  }
  // `ended`: the workload is at the next epoch already, and the report still needs the learning rate
  return l->ended ? put_double(extra, "brim.ended_lr", l->last_lr) : BRIM_OK;
}

static brim_status resume(loop *l, const char *path) {
  json_t *extra = NULL;
  BRIM_TRY(l->work->table->load(l->work->state, path, &extra));
  double step = 0, epoch = 0, skipped = 0;
  best_get(&l->best, extra);
  get_double(extra, "brim.step", &step);
  get_double(extra, "brim.epoch", &epoch);
  get_double(extra, "brim.skipped_steps", &skipped);
  double bad = 0;
  bool same_epoch = !json_object_get(extra, "brim.new_epoch");
  if (same_epoch) {
    get_sums(l->work, "epoch", extra, l->sums);
    get_sums(l->work, "log", extra, l->log_sums);
    get_double(extra, "brim.log_bad", &bad);
    get_double(extra, "brim.epoch_skipped", &l->epoch_skipped);
  }
  l->log_bad = (int64_t)bad;
  compare_settings(l->config, l->work, extra, path);
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  if (d && d->get) d->get(l->work->state, extra, (int64_t)skipped, l->watch.times);
  l->step = (int64_t)step;
  double updated = step;
  get_double(extra, "brim.updated", &updated);
  l->updated = updated >= 0 && updated <= step ? (int64_t)updated : l->step;
  if (l->info.idle_limit > 0) l->result->skipped_steps = (int64_t)skipped;
  l->ended = same_epoch && epoch >= 1 && json_object_get(extra, "brim.ended_lr");
  get_double(extra, "brim.ended_lr", &l->last_lr);
  l->epoch = (int64_t)epoch - l->ended;
  if (brim_fs_same(path, l->files.last)) l->files.last_step = l->step;
  json_decref(extra);
  brim_log_info("run", "resumed from %s at step %" PRId64, path, l->step);
  return BRIM_OK;
}

//---------------------------------- reports ----------------------------------
// Progress, the figures of a log interval, and the report of an epoch.

static void restart_clock(loop *l) {
  l->log_start = brim_clock_now();
  l->log_samples = l->log_steps = 0;
}

static void restart_interval(loop *l) {
  restart_clock(l);
  l->log_bad = 0;
  memset(l->log_sums, 0, sizeof l->log_sums);
}

// Adds the time since `start` to the training time of epoch and run; returns it.
static int64_t count_time(loop *l, brim_time start) {
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  l->epoch_ns += ns;
  l->train_seconds += (double)ns * 1e-9;
  return ns;
}

// Adds the sums since the last call to the sums of the epoch and the interval. Call it at fixed steps (every tenth,
// each log interval, the end of an epoch), never by the clock: the grouping changes roundings, and equal runs
// must report equal figures. Steps are only enqueued, so this waits for the device and counts that as training.
static brim_status take_metrics(loop *l) {
  brim_work_metrics m;
  brim_time start = brim_clock_now();
  BRIM_TRY(l->work->table->metrics(l->work->state, true, &m));
  int64_t ns = count_time(l, start);
  if (l->timer.used[BRIM_PHASE_COMPUTE]) l->timer.ns[BRIM_PHASE_COMPUTE] += ns;
  const size_t count = l->work->table->sums->count;
  for (size_t i = 0; i < count; i++) l->sums[i] += m.sums[i];
  for (size_t i = 0; i < count; i++) l->log_sums[i] += m.sums[i];
  memcpy(l->last, m.values, sizeof l->last);
  l->log_bad += m.bad;
  // without samples no step was made
  if (m.samples > 0 && m.skipped == l->result->skipped_steps) l->updated = l->step;
  l->searching = m.searching;
  l->result->bad_samples += m.bad;
  if (!m.searching && m.skipped > l->result->skipped_steps) {
    l->result->lost_steps += m.skipped - l->result->skipped_steps;
  }
  l->result->skipped_steps = m.skipped;
  const brim_work_moment at = {
      .epoch = l->epoch + 1, .step = l->step, .lr = l->last_lr, .metrics = &m};
  return check_trouble(&l->watch, &at, l->result->partial);
}

// Computes metrics from sums; NaN if a metric has no value.
static void values_of(const loop *l, const double *sums, double *values) {
  memcpy(values, l->last, sizeof l->last);
  l->work->table->figures(l->work->state, sums, values);
}

static void epoch_values(const loop *l, double values[BRIM_METRIC_MAX]) {
  values_of(l, l->sums, values);
}

// Sets the metrics that are the throughput in another unit.
static void put_rates(const loop *l, double samples_per_s, double *values) {
  for (size_t i = 0; i < l->info.rate_count; i++) {
    const brim_work_rate *rate = &l->info.rates[i];
    if (rate->row > 0) values[rate->row - 1] = samples_per_s * rate->per_sample;
  }
}

static void show_progress(loop *l, bool force) {
  if (!l->options->on_progress || l->progress_steps == 0) return;
  int64_t ns = brim_time_since_ns(l->progress_start, brim_clock_now());
  if (!force && ns < 100000000) return;
  char title[64];
  snprintf(title, sizeof title, "epoch %" PRId64 "/%" PRId64, l->epoch + 1, l->epochs);
  brim_progress p;
  memset(&p, 0, sizeof p);
  int64_t in_epoch = l->step - l->epoch * l->info.steps_per_epoch;
  p.title = title;
  p.epoch = l->epoch + 1;
  p.epochs = l->epochs;
  p.done = in_epoch;
  p.total = l->info.steps_per_epoch;
  p.elapsed_s = (double)brim_time_since_ns(l->epoch_start, brim_clock_now()) * 1e-9;
  p.rate = ns > 0 ? (double)l->progress_samples / ((double)ns * 1e-9) : (double)NAN;
  double step_s = (double)ns * 1e-9 / (double)l->progress_steps;
  int64_t last_step = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  p.eta_s = step_s * (double)(last_step - l->step);
  p.unit = l->info.unit;
  double values[BRIM_METRIC_MAX];
  epoch_values(l, values);
  p.metrics = l->work->metrics;
  p.values = values;
  p.baseline = l->info.has_baseline ? l->info.training_baseline : NULL;
  brim_phase_timer_shares(&l->timer, ns, p.phase_share);
  l->options->on_progress(l->options->ctx, &p);
  brim_phase_timer_reset(&l->timer);
  l->progress_start = brim_clock_now();
  l->progress_samples = l->progress_steps = 0;
}

// Reports a log interval to the log and the callback. `data_ns`: time that steps waited for data.
static brim_status report_steps(loop *l, int64_t data_ns) {
  BRIM_TRY(take_metrics(l));
  double seconds = (double)brim_time_since_ns(l->log_start, brim_clock_now()) * 1e-9;
  brim_run_steps s;
  memset(&s, 0, sizeof s);
  s.metrics = l->work->metrics;
  values_of(l, l->log_sums, s.values);
  s.loads = l->work->table->loading != NULL;
  s.epoch = l->epoch + 1;
  s.step = l->step;
  s.lr = l->last_lr;
  s.data_s = (double)data_ns * 1e-9 / (double)l->log_steps;
  s.compute_s = seconds / (double)l->log_steps - s.data_s;
  s.samples_per_s = seconds > 0 ? (double)l->log_samples / seconds : (double)NAN;
  put_rates(l, s.samples_per_s, s.values);
  restart_interval(l);
  if (l->options->on_steps) l->options->on_steps(l->options->ctx, &s);
  publish_waits(l, &s);
  return brim_run_log_steps(&l->log, &s);
}

// Fills in the training part of an epoch's report.
static void fill_report(const loop *l, brim_epoch_report *r) {
  memset(r, 0, sizeof *r);
  r->epoch = l->epoch + 1;
  r->epochs = l->epochs;
  r->metrics = l->work->metrics;
  epoch_values(l, r->train);
  brim_metric_unknown(r->eval);
  memcpy(r->baseline, l->info.baseline, sizeof r->baseline);
  if (!l->info.has_baseline) brim_metric_unknown(r->baseline);
  r->watches_gpu = l->info.watches_gpu;
  r->gpu_percent = r->sm_percent = (double)NAN;
  const brim_run_options *o = l->options;
  if (o->usage) o->usage(o->ctx, &r->gpu_percent, &r->sm_percent);
  r->lr = l->last_lr;
  // unknown if another process made the steps
  bool made = l->epoch_samples > 0 && l->epoch_ns > 0;
  r->seconds = made ? (double)l->epoch_ns * 1e-9 : (double)NAN;
  r->samples_per_s = made ? (double)l->epoch_samples / r->seconds : (double)NAN;
  put_rates(l, r->samples_per_s, r->train);
}

// The error for an epoch that left nothing to continue from.
static brim_status fail_lost(const loop *l, int64_t epoch) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  l->result->diverged = true;
  if (d && d->lost) return d->lost(l->work->state, epoch, l->last_lr);
  return brim_fail(BRIM_ESTATE, "training diverged in epoch %" PRId64, epoch);
}

//---------------------------------- ranks ----------------------------------
// Ranks have their own clocks, files and signals. Every rank calls these functions at the same place, and the first
// rank decides. With one rank they change nothing.

static brim_status sync_stop(loop *l) {
  const volatile sig_atomic_t *stop = l->options->stop;
  int64_t any = stop && *stop;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_all_reduce(l->comm, &any, 1, BRIM_I64));
  l->any_rank_stop = any > 0;
  return BRIM_OK;
}

static bool stopped(const loop *l) {
  const volatile sig_atomic_t *stop = l->comm ? &l->any_rank_stop : l->options->stop;
  return stop && *stop;
}

static brim_status follow_first(const loop *l, bool *decision) {
  unsigned char first = *decision;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_broadcast(l->comm, &first, 1, 0));
  *decision = first != 0;
  return BRIM_OK;
}

// An evaluation may round differently on other machines; all must choose the same best epoch.
static brim_status follow_first_metrics(const loop *l, brim_work_metrics *m) {
  const brim_metric_set *set = m->set;
  if (!l->comm) return BRIM_OK;
  brim_status status = brim_comm_broadcast(l->comm, m, sizeof *m, 0);
  m->set = set;
  return status;
}

static brim_status follow_first_path(const loop *l, char **path) {
  char text[4096] = "";
  if (!l->comm) return BRIM_OK;
  if (*path && strlen(*path) >= sizeof text) {
    return brim_fail(BRIM_EINVAL, "the path of the checkpoint is longer than %zu bytes",
                     sizeof text - 1);
  }
  if (*path) strcpy(text, *path);
  BRIM_TRY(brim_comm_broadcast(l->comm, text, sizeof text, 0));
  brim_free(*path);
  *path = text[0] ? brim_strdup(text) : NULL;
  if (text[0] && !*path) return brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
  return BRIM_OK;
}

//---------------------------------- the same training on all ranks ----------------------------------

// True for config lines that may differ between machines: paths, devices, threads, and knobs, whose effect
// ranks_verify compares.
static bool may_differ(const brim_work *work, const char *line) {
  static const char *const keys[] = {"backend", "checkpoint.", "data.path", "dataset",
                                     "gpu.",    "log.",        "threads",   "training.weights"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (brim_str_starts(line, keys[i])) return true;
  }
  const size_t size = strcspn(line, " \n");
  const char *name = line;
  for (size_t i = 0; i < size; i++) {
    if (line[i] == '.') name = line + i + 1;
  }
  const size_t left = size - (size_t)(name - line);
  for (size_t i = 0; i < work->knob_count; i++) {
    const char *knob = work->knobs[i].name;
    if (strlen(knob) == left && memcmp(knob, name, left) == 0) return true;
  }
  return false;
}

// The next line from *at that must be the same on all ranks; NULL at the end.
static const char *next_line(const brim_work *work, const char **at, int *size) {
  while (**at) {
    const char *line = *at;
    size_t n = strcspn(line, "\n");
    *at = line + n + (line[n] != 0);
    *size = (int)n;
    if (!may_differ(work, line)) return line;
  }
  *size = 0;
  return NULL;
}

static brim_status compare_configs(const loop *l, const char *mine, const char *first) {
  for (;;) {
    int mine_size, first_size;
    const char *m = next_line(l->work, &mine, &mine_size);
    const char *f = next_line(l->work, &first, &first_size);
    if (!m && !f) return BRIM_OK;
    if (m && f && mine_size == first_size && memcmp(m, f, (size_t)mine_size) == 0) continue;
    // Lines are sorted, so the smaller one is missing in the other config. A space ends the key.
    bool more = m && (!f || strncmp(m, f, (size_t)mine_size + 1) < 0);
    const char *key = more ? m : f;
    return brim_fail(BRIM_EINVAL,
                     "the config of rank %d is not that of the first rank: %.*s differs; start all "
                     "ranks with the same config",
                     brim_comm_rank(l->comm), (int)strcspn(key, " \n"), key);
  }
}

static brim_status same_config(const loop *l) {
  brim_str mine;
  brim_str_init(&mine);
  brim_status status = brim_config_identity(l->config, BRIM_CONFIG_EXPERIMENT, &mine);
  int64_t size = (int64_t)mine.len;
  if (!status) status = brim_comm_broadcast(l->comm, &size, sizeof size, 0);
  char *first = status ? NULL : brim_calloc((size_t)size + 1, 1);
  if (!status && !first) status = brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (!status && mine.len > 0 && writes_files(l)) memcpy(first, mine.data, mine.len);
  if (!status) status = brim_comm_broadcast(l->comm, first, (size_t)size, 0);
  if (!status) status = compare_configs(l, mine.len > 0 ? mine.data : "", first);
  brim_free(first);
  brim_str_deinit(&mine);
  return status;
}

// Compares version, config and sizes with the first rank's before the first step. Ranks that differ
// would wait for each other forever, or drift apart. The rank that differs fails.
static brim_status ranks_verify(const loop *l) {
  static const char *const names[] = {"training.epochs",
                                      "training.steps",
                                      "checkpoint.interval",
                                      "log.interval",
                                      "training.eval_interval",
                                      "the first step",
                                      "training samples",
                                      "steps of an epoch",
                                      "samples to evaluate",
                                      "samples of a micro-batch",
                                      "micro-batches of a step",
                                      "samples evaluated at once",
                                      "classes"};
  const brim_work_info *info = &l->info;
  const int64_t mine[] = {l->epochs,
                          l->limit,
                          l->interval,
                          l->log_interval,
                          l->eval_interval,
                          l->step,
                          info->samples_per_epoch,
                          info->steps_per_epoch,
                          info->eval_samples,
                          info->batch,
                          info->accumulation,
                          info->eval_batch,
                          info->classes};
  enum { COUNT = sizeof mine / sizeof *mine };
  _Static_assert(sizeof names / sizeof *names == COUNT, "a name for each");
  char version[32] = "", own[32] = "";
  int64_t first[COUNT];
  if (!l->comm) return BRIM_OK;
  memcpy(first, mine, sizeof first);
  snprintf(own, sizeof own, "%s", BRIM_VERSION);
  memcpy(version, own, sizeof version);
  BRIM_TRY(brim_comm_broadcast(l->comm, version, sizeof version, 0));
  if (strcmp(version, own) != 0) {
    return brim_fail(BRIM_EINVAL, "rank %d is brim %s, and the first rank is brim %.31s",
                     brim_comm_rank(l->comm), own, version);
  }
  BRIM_TRY(same_config(l));
  BRIM_TRY(brim_comm_broadcast(l->comm, first, sizeof first, 0));
  for (size_t i = 0; i < COUNT; i++) {
    if (first[i] == mine[i]) continue;
    return brim_fail(BRIM_EINVAL,
                     "rank %d and the first rank do not train on the same: %s is %" PRId64
                     " there and %" PRId64 " here",
                     brim_comm_rank(l->comm), names[i], first[i], mine[i]);
  }
  return BRIM_OK;
}

//---------------------------------- out of memory ----------------------------------

// No smaller setting is left. Roll back to the setting of the last checkpoint and log that.
static brim_status nothing_fits(loop *l, const char *why) {
  if (l->adapting) {
    l->adapt = l->before_adapting;
    l->adapting = false;
    brim_run_adapt reported = l->adapt;  // log it, but do not remember it
    BRIM_TRY(adapt_note(&reported, l->work, &l->log, l->epoch + 1, l->step));
  }
  if (l->ended) {  // end_epoch adds to the message what is saved
    return brim_fail(
        BRIM_EOOM,
        l->adapt.shrinks ? "%s; nothing smaller fits" : "%s; no smaller micro-batch fits", why);
  }
  return brim_fail(BRIM_EOOM,
                   l->adapt.shrinks
                       ? "%s; nothing smaller fits; saved to %s, continue with --resume"
                       : "%s; no smaller micro-batch fits; saved to %s, continue with --resume",
                   why, l->files.last);
}

// Recovers from out-of-memory: save, rebuild with a smaller setting, reload. The caller repeats the interrupted
// step. After the step has worked, the next checkpoint stores the smaller setting. With ranks this is not done, since
// one rank cannot change alone.
static brim_status adapt(loop *l, brim_status status) {
  if (status != BRIM_EOOM || !l->adapt.frees_optional || l->comm) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  const brim_setting was = l->adapt.setting;
  bool saved = l->adapting && l->files.last_step == l->step;
  if (!saved) {
    BRIM_TRY(save_state(l, false, true, true));
    l->before_adapting = l->adapt;
    l->adapting = false;
  }
  l->torn = true;
  status = adapt_rebuild(&l->adapt, l->work, l->step);
  if (status == BRIM_EOOM) return nothing_fits(l, why);
  BRIM_TRY(status);
  bool changed =
      memcmp(&was, &l->adapt.setting, sizeof was) != 0;  // false: only optional memory was freed
  l->adapting = l->adapting || changed;
  BRIM_TRY(l->work->table->load(l->work->state, l->files.last, NULL));
  l->torn = false;
  l->work->table->info(l->work->state, &l->info);
  memset(&l->loader.before, 0, sizeof l->loader.before);  // the new loader starts at 0
  if (!changed) return BRIM_OK;
  return adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step);
}

//---------------------------------- the end of an epoch ----------------------------------

static brim_status evaluate(loop *l, brim_work_metrics *out) {
  brim_status status = brim_work_evaluate(l->work, out);
  while (status == BRIM_EOOM) {
    BRIM_TRY(adapt(l, status));
    status = brim_work_evaluate(l->work, out);
  }
  return status ? status : follow_first_metrics(l, out);
}

// True if this process trained or evaluated anything.
static bool has_continued(const loop *l) { return l->step > l->first_step || l->caught_up; }

// Evaluates the learned features at the end, if the workload can. Runs before the model is written: the model
// marks a finished run, so an interrupted probe is repeated on resume.
static brim_status probe(loop *l) {
  brim_work_metrics m;
  const brim_work_features_table *features = l->work->table->features;
  if (!features) return BRIM_OK;
  brim_status status = features->probe(l->work->state, &m);
  if (status == BRIM_EUNSUPPORTED) {
    brim_status_clear();
    return BRIM_OK;
  }
  // with ranks no rank may skip: the others would wait for its metrics
  if (!l->comm && (status == BRIM_EOOM || status == BRIM_ENOMEM)) {
    brim_log_warn("run", "no evaluation at the end: %s; run brim eval when memory is free",
                  brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  BRIM_TRY(follow_first_metrics(l, &m));
  memcpy(l->result->probe, m.values, sizeof l->result->probe);
  const brim_metric_set *set = l->work->metrics;
  json_t *f = json_object();
  brim_status s = BRIM_OK;
  for (size_t i = 0; !s && i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(&set->rows[i], BRIM_METRIC_PROBE, BRIM_METRIC_COLUMN, name)) continue;
    s = brim_json_put(f, name, brim_json_number(m.values[i]));
  }
  if (!s) return brim_run_log_event(&l->log, features->event, l->epoch, l->step, f);
  json_decref(f);
  return s;
}

// True after every eval_interval-th epoch and the last one.
static bool evaluates(const loop *l) {
  if (l->info.eval_samples <= 0) return false;
  int64_t epoch = l->epoch + 1;
  return epoch == l->epochs || (l->eval_interval > 0 && epoch % l->eval_interval == 0);
}

// True if all evaluation metrics that must be finite are finite.
static bool all_finite(const brim_metric_set *set, const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool must =
        (row->flags & BRIM_METRIC_FINITE) && (row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL));
    if (must && !isfinite(values[i])) return false;
  }
  return true;
}

// Evaluates an epoch and fills in its report.
static brim_status evaluate_epoch(loop *l, brim_epoch_report *r) {
  brim_work_metrics eval;
  BRIM_TRY(evaluate(l, &eval));
  memcpy(r->eval, eval.values, sizeof r->eval);
  memcpy(l->result->eval, eval.values, sizeof r->eval);
  l->result->eval_samples = eval.samples;
  if (l->info.has_baseline) {
    memcpy(r->baseline, eval.baseline, sizeof r->baseline);
    memcpy(l->result->baseline, eval.baseline, sizeof r->baseline);
  }
  r->eval_not_finite =
      (eval.samples > 0 && eval.bad >= eval.samples) || !all_finite(l->work->metrics, eval.values);
  const brim_work_moment at = {.epoch = r->epoch,
                               .step = l->step,
                               .lr = l->last_lr,
                               .metrics = &eval,
                               .evaluated = true,
                               .train = r->train};
  return check_trouble(&l->watch, &at, false);
}

// True if no step of the epoch changed the weights. Workloads whose short epochs may be idle have an idle_limit: then
// at least that many steps in a row must be idle, too.
static bool is_idle(const loop *l) {
  if (l->info.idle_limit > 0) {
    int64_t idle = l->step - l->updated;
    return idle >= l->info.idle_limit && idle >= l->info.steps_per_epoch;
  }
  return (double)l->result->skipped_steps - l->epoch_skipped >= (double)l->info.steps_per_epoch;
}

static brim_status finish_epoch(loop *l) {
  BRIM_TRY(take_metrics(l));
  show_progress(l, true);
  brim_epoch_report r;
  fill_report(l, &r);
  r.evaluated = evaluates(l);
  l->ended = true;
  r.eval_seconds = (double)NAN;
  if (r.evaluated) {
    brim_time start = brim_clock_now();
    publish_phase(l, BRIM_JOB_EVALUATE);
    BRIM_TRY(evaluate_epoch(l, &r));
    l->evaluated = true;
    r.eval_seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  }
  loader_epoch(&l->loader, l->work, &r.loading);
  r.best = best_take(&l->best, &r, l->info.eval_samples > 0);
  memcpy(l->result->train, r.train, sizeof r.train);
  // a lost epoch must not replace a good checkpoint; steps skipped to find the loss scale do not count as lost
  bool lost = r.eval_not_finite || (!l->searching && is_idle(l));
  l->epoch++;
  l->ended = false;
  l->epoch_ns = l->epoch_samples = 0;
  memset(l->sums, 0, sizeof l->sums);
  l->epoch_skipped = (double)l->result->skipped_steps;
  restart_interval(l);
  r.wall_seconds = (double)brim_time_since_ns(l->began, brim_clock_now()) * 1e-9;
  // log before saving: resume drops rows after the checkpoint, but cannot add missing ones
  BRIM_TRY(brim_run_log_epoch(&l->log, &r, l->step));
  BRIM_TRY(save_poll(l));
  // replace a checkpoint that was written before this evaluation
  bool not_evaluated = l->files.last_step == l->step;
  bool due = r.best || not_evaluated || l->adapting || l->save_due || !save_postponed(l);
  BRIM_TRY(follow_first(l, &due));
  if (r.best || due) publish_phase(l, BRIM_JOB_CHECKPOINT);
  BRIM_TRY(save_state(l, r.best, !lost && due, false));
  l->adapting = false;
  if (l->options->on_epoch) l->options->on_epoch(l->options->ctx, &r);
  publish_phase(l, BRIM_JOB_TRAIN);
  publish_step(l);
  if (lost) return fail_lost(l, r.epoch);
  restart_clock(l);  // the time of evaluation and checkpoint does not count
  l->epoch_start = l->progress_start = l->log_start;
  brim_phase_timer_reset(&l->timer);
  if (l->options->usage) l->options->usage(l->options->ctx, NULL, NULL);
  return BRIM_OK;
}

//---------------------------------- the loop ----------------------------------
// Checkpoints are written at the end of an epoch (save_postponed skips short epochs), every
// checkpoint.interval steps, and on a stop. Training continues from each bit for bit.

enum { METRIC_STEPS = 10 };  // steps between two readings of the device's sums

static bool done(const loop *l) { return l->epoch >= l->epochs || best_stops(&l->best); }

// True if this step reached a multiple of checkpoint.interval.
static bool reaches_interval(const loop *l, const brim_step_info *step) {
  if (l->interval <= 0) return false;
  if (!l->info.interval_unit) return step->step % l->interval == 0;
  return step->counted / l->interval != step->counted_before / l->interval;
}

static brim_status one_step(loop *l, int64_t *data_ns, bool *epoch_end) {
  brim_step_info step;
  brim_time start = brim_clock_now();
  int64_t io_before = l->timer.ns[BRIM_PHASE_IO];
  brim_status status = l->work->table->step(l->work->state, &l->timer.spans, &step);
  while (status == BRIM_EOOM) {
    BRIM_TRY(adapt(l, status));
    status = l->work->table->step(l->work->state, &l->timer.spans, &step);
  }
  BRIM_TRY(status);
  count_time(l, start);
  *data_ns += l->timer.ns[BRIM_PHASE_IO] - io_before;
  l->step = step.step;
  l->save_due = reaches_interval(l, &step);
  l->last_lr = step.lr;
  l->epoch_samples += step.samples;
  l->train_samples += step.samples;
  l->log_samples += step.samples;
  l->progress_samples += step.samples;
  l->log_steps++;
  l->progress_steps++;
  *epoch_end = step.epoch_end;
  return sync_stop(l);
}

// Makes sure that last.safetensors holds this step.
static brim_status save_here(loop *l) {
  BRIM_TRY(save_wait(l));
  if (l->torn || (l->files.last_step == l->step && !l->adapting)) return BRIM_OK;
  BRIM_TRY(save_state(l, false, true, true));
  l->adapting = false;
  return BRIM_OK;
}

// Saves after a failure, whose detail goes to `why`. False if saving failed too; the detail is then restored.
static bool saved_after(loop *l, char *why, size_t size) {
  snprintf(why, size, "%s", brim_status_detail());
  if (save_here(l) == BRIM_OK) return true;
  brim_status_set_detail(why);
  return false;
}

// Ends at --max-steps: writes the model, and reports the metrics of the begun epoch. The metrics are read
// after the checkpoint is written, so that a resumed run rounds as if they had not been read.
static brim_status finish_early(loop *l, bool within_epoch) {
  l->result->not_evaluated = l->info.eval_samples > 0 && !l->evaluated &&
                             (l->best.epoch == 0 || (l->best.training && l->first_step == 0));
  if (within_epoch) {
    brim_run_result *r = l->result;
    r->partial = true;
    BRIM_TRY(take_metrics(l));
    epoch_values(l, r->train);
  }
  return save_model(l);
}

// Reports that training.early_stopping_patience ended the run, now or before a resume.
static brim_status report_early_stop(loop *l) {
  l->result->stopped_early = true;
  if (!has_continued(l)) return BRIM_OK;  // reported before the resume
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "patience", json_integer(l->best.patience));
  if (!s) s = brim_json_put(f, "delta", brim_json_number(l->best.delta));
  if (!s) s = brim_json_put(f, "best_epoch", json_integer(l->best.epoch));
  if (!s) return brim_run_log_event(&l->log, "early_stop", l->epoch, l->step, f);
  json_decref(f);
  return s;
}

static brim_status interrupted(loop *l) {
  BRIM_TRY(save_here(l));
  l->result->interrupted = true;
  return brim_fail(BRIM_EINTERRUPTED,
                   "interrupted at step %" PRId64 "; saved to %s, continue with --resume", l->step,
                   l->files.last);
}

// Finishes an epoch. If its evaluation is stopped or fails, the epoch is saved, and a resumed run evaluates it.
// After a device error nothing can be saved.
static brim_status end_epoch(loop *l) {
  brim_status status = finish_epoch(l);
  if (status == BRIM_OK) return BRIM_OK;
  if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
  if (!l->ended || status == BRIM_EDEVICE || l->comm) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume begins with its evaluation",
                   why, l->step);
}

// All epochs are made: write the model. A run that was over before keeps its model: its settings may differ from the
// settings of this resume.
static brim_status finish(loop *l) {
  BRIM_TRY(save_wait(l));
  bool unfinished = has_continued(l) || !files_model_at(&l->files, l->step);
  BRIM_TRY(follow_first(l, &unfinished));
  if (unfinished) {
    brim_status status = probe(l);
    if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
    BRIM_TRY(status);
    return save_model(l);
  }
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", l->files.model);
  return BRIM_OK;
}

// A step failed, mostly because data cannot be read: save what was learned. That is impossible after a device
// error or out of memory.
static brim_status step_failed(loop *l, brim_status status) {
  // saving needs all ranks, and the other ranks are within a step
  bool kept = status != BRIM_EDEVICE && status != BRIM_EOOM && status != BRIM_ENOMEM && !l->comm;
  if (!kept || !has_continued(l)) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume continues from there", why,
                   l->step);
}

// Fails a run in which most steps had no effect, so that no sweep ranks it. The model stays. is_idle checks workloads
// with an idle_limit instead.
static brim_status check_learned(const loop *l) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  brim_run_result *r = l->result;
  if (l->info.idle_limit > 0 || 2 * r->lost_steps <= l->step) return BRIM_OK;
  char words[sizeof r->advice] = "", advice[sizeof r->advice];
  if (d && d->advice) d->advice(l->work->state, r->anomalies, l->last_lr, words, sizeof words);
  brim_words_text(words, advice, sizeof advice);
  r->diverged = true;
  return brim_fail(BRIM_ESTATE,
                   "%" PRId64 " of %" PRId64
                   " steps had no effect, because losses or gradients were not finite%s%s",
                   r->lost_steps, l->step, advice[0] ? ": " : "", advice);
}

static brim_status train(loop *l) {
  int64_t data_ns = 0;
  int64_t limit = l->limit;
  l->epoch_start = l->progress_start = brim_clock_now();
  restart_clock(l);
  if (l->ended && !done(l)) {
    BRIM_TRY(end_epoch(l));
    l->caught_up = true;
    if (!done(l) && limit > 0 && l->step >= limit) {
      BRIM_TRY(finish_early(l, false));
      return check_learned(l);
    }
  }
  while (!done(l) && (limit == 0 || l->step < limit)) {
    bool epoch_end = false;
    brim_status status = one_step(l, &data_ns, &epoch_end);
    if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
    if (status) return step_failed(l, status);
    if (l->log_interval > 0 && l->step % l->log_interval == 0) {
      BRIM_TRY(report_steps(l, data_ns));
      data_ns = 0;
    } else if (l->info.reads_often || l->step % METRIC_STEPS == 0) {
      BRIM_TRY(take_metrics(l));
    }
    if (epoch_end) {
      BRIM_TRY(end_epoch(l));
      data_ns = 0;
    } else {
      show_progress(l, false);
      publish_step(l);
      brim_time start = brim_clock_now();
      bool due = l->adapting || l->save_due;
      BRIM_TRY(due ? save_state(l, false, true, false) : save_poll(l));
      l->adapting = false;
      int64_t saving_ns =
          brim_time_since_ns(start, brim_clock_now());  // is no part of the intervals
      l->log_start.ns += saving_ns;
      l->progress_start.ns += saving_ns;
    }
    bool enough = limit > 0 && l->step >= limit;
    if (stopped(l) && !done(l)) return interrupted(l);
    if (enough && !done(l)) {
      BRIM_TRY(save_here(l));
      BRIM_TRY(finish_early(l, !epoch_end));
      return check_learned(l);
    }
  }
  if (!done(l)) return BRIM_OK;
  if (has_continued(l)) BRIM_TRY(save_here(l));
  if (best_stops(&l->best)) BRIM_TRY(report_early_stop(l));
  BRIM_TRY(finish(l));
  return check_learned(l);
}

// Notes a failure to write to the folder in the result.
static brim_status in_folder(loop *l, brim_status status) {
  if (status && status != BRIM_ENOMEM) l->result->folder_failed = true;
  return status;
}

// Adds a hint to the error of a folder that cannot be created or written.
static brim_status not_writable(loop *l, brim_status status) {
  if (in_folder(l, status) == BRIM_OK || status == BRIM_ENOMEM) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(brim_fs_refused(status),
                   "%s; choose a folder that can be written to with --output-dir", why);
}

static brim_status lock_folder(loop *l, bool own) {
  const char *folder = l->options->output_dir;
  brim_status status = brim_fs_lock_folder(folder, &l->lock);
  if (status == BRIM_EEXIST) {
    l->result->folder_failed = true;
    char why[1024];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    return brim_fail(status, "%s; wait for it, or choose another folder with --output-dir", why);
  }
  BRIM_TRY(not_writable(l, status));
  if (l->lock && own) brim_fs_remove_stale(folder);
  return BRIM_OK;
}

// Finds folders in the way of checkpoints before training, not after.
static brim_status check_places(const loop *l) {
  const char *const places[] = {l->files.last, l->files.best, l->files.model};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    if (!brim_fs_is_dir(places[i])) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s is a folder, but brim needs the name for a checkpoint; remove it, or "
                     "choose another folder with --output-dir",
                     places[i]);
  }
  return BRIM_OK;
}

// Warns when the learning rate is still rising at the end of the run. --max-steps does not count as the end.
static void warn_warmup(const brim_config *config, int64_t steps_per_epoch) {
  brim_work_warmup warmup = brim_work_warmup_of(config, steps_per_epoch);
  int64_t total = steps_per_epoch * brim_config_int(config, "training.epochs");
  int64_t step_limit = brim_config_int(config, "training.steps");
  if (step_limit > 0 && step_limit < total) total = step_limit;
  if (total <= 0) return;
  if (warmup.steps >= total) {
    brim_log_warn("run",
                  "the learning rate is still rising at the end of the run: warm-up takes %" PRId64
                  " steps, the run has %" PRId64 "; lower %s, or train longer",
                  warmup.steps, total, warmup.key);
  } else if (warmup.steps < warmup.asked) {
    brim_log_warn("run",
                  "%s asks for %" PRId64
                  " steps of warm-up, half of the run or more; the run is "
                  "short, so brim takes %" PRId64,
                  warmup.key, warmup.asked, warmup.steps);
  }
}

// Warns about settings that are allowed but seldom meant.
static void warn_settings(loop *l, const brim_setting *setting, const char *from) {
  best_start(&l->best, l->info.eval_samples > 0);
  const char *weights = brim_config_string(l->config, "training.weights");
  if (from && weights && weights[0]) {
    brim_log_warn("run", "resuming from %s: brim uses its weights, not those of %s", from, weights);
  }
  int knob = brim_work_knob_as(l->work, BRIM_ROLE_BATCH);
  int64_t batch = knob < 0 ? 0 : setting->value[knob];
  if (batch > l->info.samples_per_epoch) {
    brim_log_warn("run",
                  "batch_size is %" PRId64 ", but the data has %" PRId64
                  " samples; every step computes %" PRId64 " rows to train on %" PRId64
                  "; set data.batch_size=%" PRId64,
                  batch, l->info.samples_per_epoch, batch, l->info.samples_per_epoch,
                  l->info.samples_per_epoch);
  } else if (l->adapt.effective > l->info.samples_per_epoch) {
    brim_log_warn("run",
                  "a step of %" PRId64 " samples is larger than the epoch of %" PRId64
                  "; every step uses all of them",
                  l->adapt.effective, l->info.samples_per_epoch);
  }
  if (l->best.patience > 0 && l->eval_interval == 0 && l->info.eval_samples > 0 && l->epochs > 1 &&
      !l->best.training) {
    brim_log_warn("run",
                  "training.early_stopping_patience has no effect: with training.eval_interval: 0 "
                  "there is only one evaluation, at the end");
  }
  // a workload with its own number of epochs has its own schedule too
  if (l->info.epochs == 0) warn_warmup(l->config, l->info.steps_per_epoch);
}

static brim_status build(loop *l, const char *from) {
  if (from) BRIM_TRY(brim_work_take_algorithms(l->work, from));
  BRIM_TRY(adapt_build(&l->adapt, l->work, 0));
  const brim_work_policy_table *policy = l->work->table->policy;
  if (policy) BRIM_TRY(policy->baseline(l->work->state));
  l->work->table->info(l->work->state, &l->info);
  if (l->info.epochs > 0) l->epochs = l->info.epochs;
  if (l->info.has_baseline) {
    memcpy(l->result->baseline, l->info.baseline, sizeof l->info.baseline);
    l->result->baseline_samples = l->info.baseline_samples;
  }
  l->result->unit = l->info.unit;
  memcpy(l->result->rates, l->info.rates, sizeof l->info.rates);
  l->result->rate_count = l->info.rate_count;
  warn_settings(l, &l->adapt.setting, from);
  if (from) BRIM_TRY(resume(l, from));
  return ranks_verify(l);
}

// Prepares a rank other than the first, which has no folder and no logs.
static brim_status prepare_rank(loop *l, uint64_t limit, brim_plan *plan) {
  char *from = NULL;
  brim_status status = follow_first_path(l, &from);
  if (!status && from) status = brim_run_adapt_take(&l->adapt, l->work, from);
  if (!status) status = brim_run_adapt_plan(&l->adapt, l->work, l->options, limit, plan);
  if (!status) status = build(l, from);
  brim_free(from);
  l->first_step = l->step;
  if (!status && l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, plan, l->step);
  }
  return status;
}

static brim_status check_ranks(const loop *l) {
  if (!l->comm || l->work->table->ranks) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "workload %s trains on one rank only; start one brim train for each GPU, or "
                   "brim sweep over seeds",
                   l->work->table->name);
}

static brim_status prepare(loop *l) {
  brim_plan plan;
  uint64_t limit = (uint64_t)brim_config_int(l->config, "gpu.memory_limit");
  BRIM_TRY(check_ranks(l));
  brim_run_adapt_init(&l->adapt, l->work, l->config);
  l->watch = (brim_run_watch){.work = l->work, .log = &l->log, .result = l->result};
  if (!writes_files(l)) return prepare_rank(l, limit, &plan);
  // Lock first, so that no other run writes while this one reads the checkpoint. Create a missing folder only
  // after everything that may fail without it.
  bool existed = brim_fs_is_dir(l->options->output_dir);
  bool own = false;
  if (existed) BRIM_TRY(folder_check(l->config, l->options->output_dir, l->options->resume, &own));
  if (existed) BRIM_TRY(lock_folder(l, own));
  BRIM_TRY(check_places(l));
  char *from = NULL;
  brim_status built = BRIM_OK;
  if (l->options->resume_path) {
    from = brim_strdup(l->options->resume_path);
    if (!from) built = brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
  } else if (l->options->resume) {
    built = files_newest(&l->files, &from);
  }
  if (!built) built = follow_first_path(l, &from);
  if (!built && !from && l->options->resume) {
    brim_log_warn("run", "%s holds no checkpoint to resume from, so training starts at step 0",
                  l->options->output_dir);
  }
  if (!built && from) built = brim_run_adapt_take(&l->adapt, l->work, from);
  brim_setting took = l->adapt.setting;
  if (!built) built = brim_run_adapt_plan(&l->adapt, l->work, l->options, limit, &plan);
  brim_setting planned = l->adapt.setting;
  if (!built) built = build(l, from);
  brim_free(from);
  BRIM_TRY(built);
  bool met = memcmp(&planned, &l->adapt.setting, sizeof planned) != 0;
  if (met) BRIM_TRY(l->work->table->plan(l->work->state, &l->adapt.setting, &plan));
  bool adapted = memcmp(&took, &l->adapt.setting, sizeof took) != 0;
  BRIM_TRY(not_writable(l, brim_fs_mkdirs(l->options->output_dir)));
  if (!existed) BRIM_TRY(lock_folder(l, false));
  l->first_step = l->step;
  bool more = !done(l) && (!l->limit || l->step < l->limit);
  const char *folder = l->options->output_dir;
  if (more) BRIM_TRY(in_folder(l, write_config(l->config, l->work, folder)));
  BRIM_TRY(in_folder(l, brim_run_log_open(&l->log, l->config, l->work->metrics, l->info.watches_gpu,
                                          folder, l->step, l->ended)));
  if (adapted) BRIM_TRY(adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step));
  publish_start(l);
  if (l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, &plan, l->step);
  }
  return BRIM_OK;
}

//---------------------------------- the result ----------------------------------

static void clear_result(const brim_work *work, brim_run_result *out) {
  memset(out, 0, sizeof *out);
  out->metrics = work->metrics;
  out->diagnosis = work->table->diagnosis;
  brim_metric_unknown(out->train);
  brim_metric_unknown(out->eval);
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->probe);
  brim_metric_unknown(out->best);
  out->unit = "samples";
}

// Leaves out->best unknown if training metrics chose the best epoch although there are evaluations.
static void put_best(const loop *l, brim_run_result *out) {
  bool evaluates = l->info.eval_samples > 0;
  out->best_by_training = l->best.training || !evaluates;
  out->best_epoch = l->best.epoch;
  if (!(l->best.training && evaluates)) memcpy(out->best, l->best.values, sizeof out->best);
}

// Sets the exchange times per step of this process.
static void put_exchange(const loop *l, brim_run_result *out) {
  const brim_device *device = l->work->context.device;
  brim_comm_stats stats;
  out->exchange_ms = out->exchange_exposed_ms = (double)NAN;
  if (!l->comm) return;
  out->ranks = brim_comm_size(l->comm);
  snprintf(out->exchange_by, sizeof out->exchange_by, "%s", brim_device_exchange(device));
  if (out->steps_run <= 0 || !brim_device_exchange_stats(device, &stats)) return;
  out->exchange_ms = (double)stats.busy_ns * 1e-6 / (double)out->steps_run;
  // the host does not wait for a GPU's exchange
  if (!device->info.host_memory) return;
  out->exchange_exposed_ms = (double)stats.waited_ns * 1e-6 / (double)out->steps_run;
  // waking the waiting thread is part of the exchange
  out->exchange_ms = fmax(out->exchange_ms, out->exchange_exposed_ms);
}

// Waits for the checkpoint that is being written, before the run returns with `status`.
static brim_status finish_saving(loop *l, brim_status status) {
  if (!status) return save_wait(l);
  if (!l->saver.busy) return status;
  char why[4096];  // keeps the reason why the run ended
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (save_wait(l)) brim_log_text(BRIM_LOG_WARN, "run", brim_status_detail());
  brim_status_set_detail(why);
  return status;
}

brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out) {
  loop l;
  memset(&l, 0, sizeof l);
  clear_result(work, out);
  l.began = brim_clock_now();
  l.work = work;
  l.comm = work->context.comm;
  l.config = config;
  l.options = options;
  l.result = out;
  l.epochs = brim_config_int(config, "training.epochs");
  l.interval = brim_config_int(config, "checkpoint.interval");
  l.log_interval = brim_config_int(config, "log.interval");
  l.eval_interval = brim_config_int(config, "training.eval_interval");
  brim_metric_unknown(l.last);
  l.limit = brim_config_int(config, "training.steps");
  if (options->max_steps > 0 && (l.limit == 0 || options->max_steps < l.limit)) {
    l.limit = options->max_steps;
  }
  brim_phase_timer_init(&l.timer);
  l.loader.slow_ms = brim_config_float(config, "data.slow_transform_ms");
  brim_status status = best_init(&l.best, config, work->metrics);
  if (!status) status = files_init(&l.files, config, options->output_dir);
  work->table->stops(work->state, l.comm ? &l.any_rank_stop : options->stop);
  if (!status) status = prepare(&l);
  // preparing can take long, and writes nothing
  if (status == BRIM_EINTERRUPTED) {
    status = brim_fail(status, "interrupted before training began; nothing was written");
  }
  bool prepared = !status;
  if (!status) status = train(&l);
  status = finish_saving(&l, status);
  brim_job_publisher_stop(l.publisher);
  l.publisher = NULL;
  work->table->stops(work->state, NULL);
  if (prepared && writes_files(&l)) files_separate(&l.files);
  if (prepared) loader_all(&l.loader, work, &out->loading);
  out->steps = l.step;
  out->steps_run = prepared ? l.step - l.first_step : 0;
  out->epochs = l.epoch;
  put_best(&l, out);
  put_exchange(&l, out);
  out->lr = l.last_lr;
  out->seconds = l.train_seconds;
  out->wall_seconds = (double)brim_time_since_ns(l.began, brim_clock_now()) * 1e-9;
  out->samples_per_s =
      l.train_seconds > 0 ? (double)l.train_samples / l.train_seconds : (double)NAN;
  const brim_work_diagnosis *d = work->table->diagnosis;
  if (d && d->advice)
    d->advice(work->state, out->anomalies, out->lr, out->advice, sizeof out->advice);
  brim_run_log_close(&l.log);
  brim_fs_unlock(l.lock);
  files_deinit(&l.files);
  return status;
}
