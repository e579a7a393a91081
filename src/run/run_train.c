// The training loop. Checkpoints are written at the end of every epoch, every checkpoint.interval
// steps and on a stop; each is whole, and training from it goes on as if nothing had happened.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "profile/profile.h"
#include "run/run_int.h"

enum { METRIC_STEPS = 10 };  // the device's sums are read every so many steps

typedef struct loop {
  brim_work *work;
  const brim_config *config;
  const brim_run_options *options;
  brim_run_result *result;
  brim_run_log log;
  brim_phase_timer timer;
  brim_work_info info;
  int64_t epochs, interval, log_interval, eval_interval;
  int64_t epoch, step;  // epoch from 0, steps made
  double best_accuracy, best_loss;
  int64_t best_epoch;
  double last_lr;
  char *last_path, *best_path, *model_path;
  brim_fs_lockfile *lock;  // two runs in one folder would write over each other

  // since the epoch, the log interval and the progress line began
  brim_time epoch_start, log_start, progress_start;
  int64_t epoch_ns, epoch_samples;  // training time only: evaluation and saving do not count
  int64_t log_samples, log_steps, progress_samples, progress_steps;
  double loss_sum, correct_sum, rows_sum;              // of the epoch
  double log_loss_sum, log_correct_sum, log_rows_sum;  // of the log interval
  int64_t log_bad;
  double grad_norm;
  double loss_scale;     // of fp16; NaN without
  double epoch_skipped;  // skipped steps when the epoch began
  brim_run_loader loader;
  double train_seconds;
  int64_t train_samples;
} loop;

//---------------------------------- checkpoints ----------------------------------

static brim_status put_double(json_t *object, const char *key, double value) {
  char text[32];
  brim_format_f64(value, text);
  return brim_json_put(object, key, json_string(text));
}

// Sums of the epoch and of the log interval, in the order they are saved.
static const char *const sum_keys[] = {"brim.epoch_loss", "brim.epoch_correct", "brim.epoch_rows",
                                       "brim.log_loss",   "brim.log_correct",   "brim.log_rows",
                                       "brim.log_bad",    "brim.epoch_skipped"};

static brim_status save(loop *l, const char *path, bool weights_only) {
  brim_json_setup();
  json_t *extra = json_object();
  if (!extra) return brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  brim_status status = put_double(extra, "brim.best_accuracy", l->best_accuracy);
  if (!status) status = put_double(extra, "brim.best_loss", l->best_loss);
  if (!status) status = put_double(extra, "brim.best_epoch", (double)l->best_epoch);
  if (!status) status = brim_run_put_settings(l->config, extra);
  const double sums[] = {l->loss_sum,        l->correct_sum,  l->rows_sum,        l->log_loss_sum,
                         l->log_correct_sum, l->log_rows_sum, (double)l->log_bad, l->epoch_skipped};
  for (size_t i = 0; !status && i < sizeof sums / sizeof *sums; i++) {
    status = put_double(extra, sum_keys[i], sums[i]);
  }
  if (!status) {
    status = l->work->table->save(l->work->state, path, weights_only ? NULL : extra, weights_only);
  }
  json_decref(extra);
  if (!status) snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", path);
  return status;
}

// The same state under a second name. Until the run ends the two may be one file (each save makes a
// new one, so neither changes under the other's name): half of the bytes to write.
static brim_status save_again(loop *l, const char *from, const char *path) {
  if (brim_fs_link(from, path)) return save(l, path, false);
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", path);
  return BRIM_OK;
}

// What is left to the user are two files: other programs write into a file where it stands.
static void separate(const loop *l) {
  if (!brim_fs_same(l->best_path, l->last_path)) return;
  char why[1024];  // of a run that failed; the copy's must not replace it
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (brim_fs_copy(l->best_path, l->last_path)) {
    brim_log_warn("run", "%s and %s stay one file: %s", l->best_path, l->last_path,
                  brim_status_detail());
  }
  brim_status_set_detail(why);
}

// Values come from a file: what is no number, or beyond the integers a double holds, is left out.
static void get_double(const json_t *object, const char *key, double *out) {
  const char *text = json_string_value(json_object_get(object, key));
  double value;
  if (text && brim_parse_f64(text, &value) && !(fabs(value) > 9007199254740992.0)) *out = value;
}

// The checkpoint to go on from; NULL = from the start.
static const char *resume_path(const loop *l) {
  const char *path = l->options->resume_path;
  if (!path && l->options->resume && brim_fs_exists(l->last_path)) path = l->last_path;
  return path;
}

static brim_status resume(loop *l, const char *path) {
  json_t *extra = NULL;
  BRIM_TRY(l->work->table->load(l->work->state, path, &extra));
  double best_epoch = 0, step = 0, epoch = 0;
  get_double(extra, "brim.best_accuracy", &l->best_accuracy);
  get_double(extra, "brim.best_loss", &l->best_loss);
  get_double(extra, "brim.best_epoch", &best_epoch);
  get_double(extra, "brim.step", &step);
  get_double(extra, "brim.epoch", &epoch);
  double bad = 0;
  double *const sums[] = {&l->loss_sum,        &l->correct_sum,  &l->rows_sum, &l->log_loss_sum,
                          &l->log_correct_sum, &l->log_rows_sum, &bad,         &l->epoch_skipped};
  bool same_epoch = !json_object_get(extra, "brim.new_epoch");
  for (size_t i = 0; same_epoch && i < sizeof sums / sizeof *sums; i++) {
    get_double(extra, sum_keys[i], sums[i]);
  }
  l->log_bad = (int64_t)bad;
  brim_run_compare_settings(l->config, extra, path);
  l->best_epoch = (int64_t)best_epoch;
  l->step = (int64_t)step;
  l->epoch = (int64_t)epoch;
  json_decref(extra);
  brim_log_info("run", "resumed from %s at step %" PRId64, path, l->step);
  return BRIM_OK;
}

//---------------------------------- reports ----------------------------------

static void restart_clock(loop *l) {
  l->log_start = brim_clock_now();
  l->log_samples = l->log_steps = 0;
}

static void restart_interval(loop *l) {
  restart_clock(l);
  l->log_bad = 0;
  l->log_loss_sum = l->log_correct_sum = l->log_rows_sum = 0;
}

// Add the sums since last time to the epoch's and the interval's. When this happens is a function
// of the step alone (every tenth, every log interval, the epoch's end), never of the clock: it
// moves roundings, and two equal runs shall report equal figures.
static brim_status take_metrics(loop *l) {
  brim_work_metrics m;
  BRIM_TRY(l->work->table->metrics(l->work->state, true, &m));
  if (m.samples > 0) {
    double rows = (double)m.samples;
    double correct = isnan(m.accuracy) ? 0 : m.accuracy * rows;
    l->loss_sum += m.loss * rows;
    l->correct_sum += correct;
    l->rows_sum += rows;
    l->log_loss_sum += m.loss * rows;
    l->log_correct_sum += correct;
    l->log_rows_sum += rows;
  }
  l->log_bad += m.bad;
  l->grad_norm = m.grad_norm;
  l->loss_scale = m.loss_scale;
  l->result->bad_samples += m.bad;
  l->result->skipped_steps = m.skipped;
  return BRIM_OK;
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
  p.done = in_epoch;
  p.total = l->info.steps_per_epoch;
  p.elapsed_s = (double)brim_time_since_ns(l->epoch_start, brim_clock_now()) * 1e-9;
  p.rate = ns > 0 ? (double)l->progress_samples / ((double)ns * 1e-9) : (double)NAN;
  double step_s = (double)ns * 1e-9 / (double)l->progress_steps;
  p.eta_s = step_s * (double)(l->epochs * l->info.steps_per_epoch - l->step);
  p.unit = l->info.unit;
  p.loss = l->rows_sum > 0 ? l->loss_sum / l->rows_sum : (double)NAN;
  p.accuracy = l->rows_sum > 0 && l->info.classes > 0 ? l->correct_sum / l->rows_sum : (double)NAN;
  brim_phase_timer_shares(&l->timer, ns, p.phase_share);
  l->options->on_progress(l->options->ctx, &p);
  brim_phase_timer_reset(&l->timer);
  l->progress_start = brim_clock_now();
  l->progress_samples = l->progress_steps = 0;
}

static brim_status log_steps(loop *l, int64_t data_ns) {
  BRIM_TRY(take_metrics(l));
  double seconds = (double)brim_time_since_ns(l->log_start, brim_clock_now()) * 1e-9;
  brim_run_steps s;
  s.epoch = l->epoch + 1;
  s.step = l->step;
  s.loss = l->log_rows_sum > 0 ? l->log_loss_sum / l->log_rows_sum : (double)NAN;
  s.accuracy = l->log_rows_sum > 0 && l->info.classes > 0 ? l->log_correct_sum / l->log_rows_sum
                                                          : (double)NAN;
  s.lr = l->last_lr;
  s.grad_norm = l->grad_norm;
  s.data_s = (double)data_ns * 1e-9 / (double)l->log_steps;
  s.compute_s = seconds / (double)l->log_steps - s.data_s;
  s.loss_scale = l->loss_scale;
  s.samples_per_s = seconds > 0 ? (double)l->log_samples / seconds : (double)NAN;
  if (l->log_bad > 0) {
    brim_log_warn("run",
                  "%" PRId64 " samples gave a loss that is not finite by step %" PRId64
                  "; a lower learning rate (now %g) or training.clip_norm may help",
                  l->log_bad, l->step, l->last_lr);
  }
  restart_interval(l);
  return brim_run_log_steps(&l->log, &s);
}

// After every eval_interval'th epoch and after the last one.
static bool evaluates(const loop *l) {
  if (l->info.eval_samples <= 0) return false;
  int64_t epoch = l->epoch + 1;
  return epoch == l->epochs || (l->eval_interval > 0 && epoch % l->eval_interval == 0);
}

// Better: higher accuracy, or lower loss where nothing is classified. Without an evaluation set the
// training figures decide; with one, epochs that were not evaluated are never best.
static bool is_best(loop *l, const brim_epoch_report *r) {
  if (!r->evaluated && l->info.eval_samples > 0) return false;
  double accuracy = r->evaluated ? r->eval_accuracy : r->train_accuracy;
  double loss = r->evaluated ? r->eval_loss : r->train_loss;
  if (!isfinite(loss)) return false;  // diverged, whatever the accuracy
  bool better = isnan(accuracy) ? (isnan(l->best_loss) || loss < l->best_loss)
                                : (isnan(l->best_accuracy) || accuracy > l->best_accuracy);
  if (!better) return false;
  l->best_accuracy = accuracy;
  l->best_loss = loss;
  l->best_epoch = r->epoch;
  return true;
}

static brim_status finish_epoch(loop *l) {
  BRIM_TRY(take_metrics(l));
  show_progress(l, true);
  brim_epoch_report r;
  memset(&r, 0, sizeof r);
  r.epoch = l->epoch + 1;
  r.epochs = l->epochs;
  r.train_loss = l->rows_sum > 0 ? l->loss_sum / l->rows_sum : (double)NAN;
  r.train_accuracy =
      l->rows_sum > 0 && l->info.classes > 0 ? l->correct_sum / l->rows_sum : (double)NAN;
  r.eval_loss = r.eval_accuracy = (double)NAN;
  r.lr = l->last_lr;
  r.seconds = (double)l->epoch_ns * 1e-9;
  r.samples_per_s = r.seconds > 0 ? (double)l->epoch_samples / r.seconds : (double)NAN;
  r.evaluated = evaluates(l);
  if (r.evaluated) {
    brim_work_metrics eval;
    BRIM_TRY(l->work->table->evaluate(l->work->state, &eval));
    r.eval_loss = eval.loss;
    r.eval_accuracy = eval.accuracy;
  }
  brim_run_loader_epoch(&l->loader, l->work, &r.loading);
  r.best = is_best(l, &r);
  l->result->train_loss = r.train_loss;
  l->result->train_accuracy = r.train_accuracy;
  l->result->eval_loss = r.eval_loss;
  l->result->eval_accuracy = r.eval_accuracy;
  // weights from which nothing finite comes out must not replace a good checkpoint
  bool dead = r.evaluated && !isfinite(r.eval_loss);
  // a skipped step of fp16 lowers the loss scale: only at its end there is nothing left to lower
  bool searching = l->loss_scale > 1;
  bool lost = dead || (!searching && (double)l->result->skipped_steps - l->epoch_skipped >=
                                         (double)l->info.steps_per_epoch);
  l->epoch++;
  l->epoch_ns = l->epoch_samples = 0;
  l->loss_sum = l->correct_sum = l->rows_sum = 0;
  l->epoch_skipped = (double)l->result->skipped_steps;
  restart_interval(l);
  // the log first: rows after a checkpoint are dropped on resuming, missing ones stay missing
  BRIM_TRY(brim_run_log_epoch(&l->log, &r, l->step));
  if (r.best) BRIM_TRY(save(l, l->best_path, false));
  if (!lost) {
    BRIM_TRY(r.best ? save_again(l, l->best_path, l->last_path) : save(l, l->last_path, false));
  }
  if (l->options->on_epoch) l->options->on_epoch(l->options->ctx, &r);
  if (lost) {
    return brim_fail(BRIM_ESTATE,
                     "diverged in epoch %" PRId64
                     ": losses or gradients are no longer finite; `brim data verify PATH` tells "
                     "whether the data hold NaN, else try a lower learning rate (now %g) or "
                     "training.clip_norm, from an earlier checkpoint",
                     r.epoch, l->last_lr);
  }
  l->epoch_start = l->progress_start = brim_clock_now();
  brim_phase_timer_reset(&l->timer);
  return BRIM_OK;
}

//---------------------------------- the loop ----------------------------------

static bool stopped(const loop *l) { return l->options->stop && *l->options->stop; }

static brim_status one_step(loop *l, int64_t *data_ns, bool *epoch_end) {
  brim_step_info step;
  brim_time start = brim_clock_now();
  int64_t io_before = l->timer.ns[BRIM_PHASE_IO];
  BRIM_TRY(l->work->table->step(l->work->state, &l->timer.spans, &step));
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  *data_ns += l->timer.ns[BRIM_PHASE_IO] - io_before;
  l->step = step.step;
  l->last_lr = step.lr;
  l->epoch_ns += ns;
  l->train_seconds += (double)ns * 1e-9;
  l->epoch_samples += step.samples;
  l->train_samples += step.samples;
  l->log_samples += step.samples;
  l->progress_samples += step.samples;
  l->log_steps++;
  l->progress_steps++;
  *epoch_end = step.epoch_end;
  return BRIM_OK;
}

// --max-steps before the last epoch's end: the model as it is, and of an epoch that was begun the
// figures so far. They are read after the checkpoint, so that going on from it rounds as if nothing
// had been read.
static brim_status finish_early(loop *l, bool within_epoch) {
  if (within_epoch) {
    BRIM_TRY(take_metrics(l));
    brim_run_result *r = l->result;
    r->partial = true;
    r->train_loss = l->rows_sum > 0 ? l->loss_sum / l->rows_sum : (double)NAN;
    r->train_accuracy =
        l->rows_sum > 0 && l->info.classes > 0 ? l->correct_sum / l->rows_sum : (double)NAN;
  }
  return save(l, l->model_path, true);
}

static brim_status train(loop *l) {
  int64_t data_ns = 0;
  int64_t limit = l->options->max_steps;
  l->epoch_start = l->progress_start = brim_clock_now();
  restart_clock(l);
  while (l->epoch < l->epochs && (limit == 0 || l->step < limit)) {
    bool epoch_end = false;
    BRIM_TRY(one_step(l, &data_ns, &epoch_end));
    if (l->log_interval > 0 && l->step % l->log_interval == 0) {
      BRIM_TRY(log_steps(l, data_ns));
      data_ns = 0;
    } else if (l->step % METRIC_STEPS == 0) {
      BRIM_TRY(take_metrics(l));
    }
    if (epoch_end) {
      BRIM_TRY(finish_epoch(l));
      data_ns = 0;
    } else {
      show_progress(l, false);
      if (l->interval > 0 && l->step % l->interval == 0) BRIM_TRY(save(l, l->last_path, false));
    }
    bool enough = limit > 0 && l->step >= limit;
    if ((stopped(l) || enough) && l->epoch < l->epochs) {
      if (!epoch_end) BRIM_TRY(save(l, l->last_path, false));
      if (!stopped(l)) return finish_early(l, !epoch_end);
      l->result->interrupted = true;
      return brim_fail(BRIM_EINTERRUPTED,
                       "interrupted at step %" PRId64 "; saved to %s, go on with --resume", l->step,
                       l->last_path);
    }
  }
  return l->epoch < l->epochs ? BRIM_OK : save(l, l->model_path, true);
}

static brim_status name_files(loop *l) {
  const char *folder = l->options->output_dir;
  l->last_path = brim_fs_join(folder, "last.safetensors");
  l->best_path = brim_fs_join(folder, "best.safetensors");
  l->model_path = brim_fs_join(folder, "model.safetensors");
  if (l->last_path && l->best_path && l->model_path) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
}

static brim_status write_config(loop *l) {
  const char *folder = l->options->output_dir;
  char *config_path = brim_fs_join(folder, "config.yaml");
  brim_str yaml;
  brim_str_init(&yaml);
  brim_status status =
      config_path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
  if (!status) status = brim_config_to_yaml(l->config, false, &yaml);
  if (!status) status = brim_str_status(&yaml);
  if (!status) status = brim_fs_write(config_path, yaml.data, yaml.len);
  brim_str_deinit(&yaml);
  brim_free(config_path);
  return status;
}

static brim_status lock_folder(loop *l) {
  const char *folder = l->options->output_dir;
  BRIM_TRY(brim_fs_lock_folder(folder, &l->lock));
  if (l->lock) brim_fs_remove_stale(folder);
  return BRIM_OK;
}

// What is allowed, and seldom meant.
static void warn_of_settings(const loop *l, const brim_setting *setting, const char *from) {
  const char *weights = brim_config_string(l->config, "training.weights");
  if (from && weights && weights[0]) {
    brim_log_warn("run", "going on from %s: its weights are taken, not those of %s", from, weights);
  }
  int knob = brim_work_knob(l->work, "batch_size");
  int64_t batch = knob < 0 ? 0 : setting->value[knob];
  if (batch > l->info.samples_per_epoch) {
    brim_log_warn("run",
                  "batch_size %" PRId64 ", the data has %" PRId64
                  " samples: every step computes %" PRId64 " rows",
                  batch, l->info.samples_per_epoch, batch);
  }
}

static brim_status prepare(loop *l) {
  brim_setting setting = brim_work_setting(l->work);
  brim_plan plan;
  BRIM_TRY(l->work->table->plan(l->work->state, &setting, &plan));
  uint64_t limit = (uint64_t)brim_config_int(l->config, "gpu.memory_limit");
  BRIM_TRY(brim_work_check_fit(l->work, &setting, &plan, limit));
  BRIM_TRY(name_files(l));
  // The lock comes first, so that no other run moves on while this one reads its checkpoint; a folder
  // that is not there yet is made only after a bad checkpoint had its chance to be refused.
  bool there = brim_fs_is_dir(l->options->output_dir);
  if (there) BRIM_TRY(lock_folder(l));
  const char *from = resume_path(l);
  if (from) BRIM_TRY(brim_work_take_algorithms(l->work, from));
  if (from && l->work->table->resuming) l->work->table->resuming(l->work->state);
  BRIM_TRY(l->work->table->configure(l->work->state, &setting));
  l->work->table->info(l->work->state, &l->info);
  warn_of_settings(l, &setting, from);
  if (from) BRIM_TRY(resume(l, from));
  BRIM_TRY(brim_fs_mkdirs(l->options->output_dir));
  if (!there) BRIM_TRY(lock_folder(l));
  bool more = l->epoch < l->epochs && (!l->options->max_steps || l->step < l->options->max_steps);
  if (more) BRIM_TRY(write_config(l));
  BRIM_TRY(brim_run_log_open(&l->log, l->config, l->options->output_dir, l->step));
  if (l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, &plan, l->step);
  }
  return BRIM_OK;
}

brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out) {
  loop l;
  memset(&l, 0, sizeof l);
  memset(out, 0, sizeof *out);
  out->train_accuracy = (double)NAN;
  out->train_loss = out->eval_loss = out->eval_accuracy = out->best_accuracy = (double)NAN;
  l.work = work;
  l.config = config;
  l.options = options;
  l.result = out;
  l.epochs = brim_config_int(config, "training.epochs");
  l.interval = brim_config_int(config, "checkpoint.interval");
  l.log_interval = brim_config_int(config, "log.interval");
  l.eval_interval = brim_config_int(config, "training.eval_interval");
  l.best_accuracy = l.best_loss = l.loss_scale = (double)NAN;
  brim_phase_timer_init(&l.timer);
  brim_run_loader_init(&l.loader, config);
  brim_status status = prepare(&l);
  int64_t first_step = l.step;
  bool prepared = !status;
  if (!status) status = train(&l);
  if (prepared) separate(&l);
  if (prepared) brim_run_loader_all(&l.loader, work, &out->loading);
  out->steps = l.step;
  out->steps_run = l.step - first_step;
  out->epochs = l.epoch;
  out->best_accuracy = l.best_accuracy;
  out->best_epoch = l.best_epoch;
  out->seconds = l.train_seconds;
  out->samples_per_s =
      l.train_seconds > 0 ? (double)l.train_samples / l.train_seconds : (double)NAN;
  brim_run_log_close(&l.log);
  brim_fs_unlock(l.lock);
  brim_free(l.last_path);
  brim_free(l.best_path);
  brim_free(l.model_path);
  return status;
}
