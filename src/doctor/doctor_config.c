// What a config asks of this machine: does it fit, which files will it write. What its knobs could be
// comes from doctor_knobs.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_config_int.h"

#define GIB 1073741824.0
// On the high side: a line of log.jsonl of a small supervised run has about 260, a figure in an event
// file about 50.
#define LOG_LINE_BYTES 400.0
#define EVENT_BYTES 80.0
#define SMALL_CHECKPOINT 65536.0

static const brim_doctor_row rows[] = {
    {"config.opens", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Config and data"),
     BRIM_N_("brim reads the config, opens the device and looks at the data, as a run would."),
     NULL},
    {"config.fit", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Device memory"),
     BRIM_N_("brim plans every byte before a step runs. A plan that does not fit is not started, "
             "or runs "
             "with a smaller micro-batch."),
     NULL},
    {"config.host_memory", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Host memory"),
     BRIM_N_("It holds loader buffers and the data cache. The kernel kills a process that exceeds "
             "it."),
     NULL},
    {"config.checkpoints", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Checkpoints"),
     BRIM_N_("A checkpoint has weights and optimizer state. A run fails when the disk is full."),
     NULL},
    {"config.interval", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Time between checkpoints"),
     BRIM_N_("A run that ends early loses what it did since the last checkpoint."), NULL},
    {"config.logs", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Logs"),
     BRIM_N_("Log files grow with the number of steps, and one run after another."), NULL},
};
enum { OPENS, FIT, HOST_MEMORY, CHECKPOINTS, INTERVAL, LOGS };

void brim_doctor_config_failed(const char *message, const char *words, brim_doctor_report *out) {
  brim_doctor_line *line = brim_doctor_say_row(out, &rows[OPENS], BRIM_DOCTOR_BAD, "%s", message);
  if (words[0]) brim_doctor_fix(line, "brim config show %s --origins", words);
}

//---------------------------------- memory ----------------------------------

static void say_fit(const brim_doctor_job *job, brim_doctor_report *out) {
  const brim_result *r = job->plan;
  const brim_knob_set *set = job->work->table->knob_set;
  char planned[32], overhead[64] = "", left[32];
  if (r->failure != BRIM_FAILURE_NONE) {
    brim_doctor_line *line =
        brim_doctor_say_row(out, &rows[FIT], BRIM_DOCTOR_BAD, "%s", r->message);
    if (set && set->less_memory) brim_doctor_fix(line, "%s", brim_tr(set->less_memory));
    return;
  }
  double need = (double)r->plan.bytes[BRIM_PLACE_DEVICE];
  brim_doctor_bytes(need, planned);
  if (!isnan(r->overhead_bytes) && r->overhead_bytes > 0) {
    char bytes[32];
    brim_doctor_bytes(r->overhead_bytes, bytes);
    brim_msg_format(overhead, sizeof overhead, brim_tr(" and %s overhead"), bytes);
    need += r->overhead_bytes;
  }
  uint64_t free_bytes = 0, total_bytes = 0;
  if (brim_device_memory(job->device, &free_bytes, &total_bytes) || total_bytes == 0) {
    brim_status_clear();
    brim_doctor_say_row(out, &rows[FIT], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("planned %s%s; how much is free cannot be seen"), planned,
                        overhead);
    return;
  }
  brim_doctor_bytes((double)free_bytes, left);
  double share = 100 * need / fmax(1, (double)free_bytes);
  bool tight = share > 95;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[FIT], tight ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          share < 0.1 ? brim_tr("fits: planned %s%s of %s free (under %.1f %%)")
                                      : brim_tr("fits: planned %s%s of %s free (%.1f %%)"),
                          planned, overhead, left, brim_shown(fmax(0.1, share)));
  if (tight && set && set->less_memory) brim_doctor_fix(line, "%s", brim_tr(set->less_memory));
}

static void say_host(const brim_doctor_job *job, brim_doctor_report *out) {
  uint64_t free_bytes = 0, total_bytes = 0;
  char need[32], left[32];
  double planned = (double)job->plan->plan.bytes[BRIM_PLACE_HOST];
  if (job->plan->failure != BRIM_FAILURE_NONE) return;
  brim_doctor_bytes(planned, need);
  brim_machine_free_memory(job->machine->root, &free_bytes, &total_bytes);
  if (total_bytes == 0) {
    brim_doctor_say_row(out, &rows[HOST_MEMORY], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("planned %s; how much is free cannot be seen"), need);
    return;
  }
  brim_doctor_bytes((double)free_bytes, left);
  brim_doctor_state state = planned > (double)free_bytes         ? BRIM_DOCTOR_BAD
                            : planned > 0.8 * (double)free_bytes ? BRIM_DOCTOR_WARN
                                                                 : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say_row(out, &rows[HOST_MEMORY], state,
                                               brim_tr("planned %s of %s free"), need, left);
  if (state != BRIM_DOCTOR_GOOD) {
    brim_doctor_fix_train(job, line, "data.cache=none data.prefetch_factor=1");
  }
}

//---------------------------------- files ----------------------------------

// Of the plan's rows, those that a checkpoint keeps.
static double checkpoint_bytes(const brim_plan *plan) {
  static const char *const kept[] = {"parameters", BRIM_PLAN_STATISTICS, "optimizer state",
                                     "average of weights", "average of running statistics"};
  double bytes = 0;
  for (size_t i = 0; i < plan->row_count; i++) {
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
      if (strcmp(plan->rows[i].name, kept[k]) == 0) bytes += (double)plan->rows[i].bytes;
    }
  }
  return bytes;
}

static double file_bytes(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name);
  uint64_t size = 0;
  bool known = path && brim_fs_exists(path) && brim_fs_size(path, &size) == BRIM_OK;
  brim_free(path);
  brim_status_clear();
  return known ? (double)size : (double)NAN;
}

static const char *run_folder(const brim_doctor_job *job) {
  return job->machine->output ? job->machine->output : ".";
}

// Sizes as they were written before, else by the plan. Names and settings in front of the tensors take
// a few KiB that no plan knows.
static double all_checkpoints(const brim_doctor_job *job, double one) {
  double keep = (double)brim_config_int(job->config, "checkpoint.keep");
  // the recent ones, the best one, the final weights, and one that is being written
  return one * (keep + 2) + 4 * (double)job->plan->plan.parameter_count;
}

static void say_checkpoints(const brim_doctor_job *job, brim_doctor_report *out) {
  char size[32], all[32], left[32], there[BRIM_DOCTOR_PATH];
  brim_doctor_space space;
  double one = file_bytes(run_folder(job), "last.safetensors");
  bool written = !isnan(one);
  if (!written) one = checkpoint_bytes(&job->plan->plan);
  bool small = !written && one < SMALL_CHECKPOINT;
  if (!(one > 0)) {
    brim_doctor_say_row(out, &rows[CHECKPOINTS], BRIM_DOCTOR_UNKNOWN, "%s",
                        brim_tr("the plan does not say how large a checkpoint is"));
    return;
  }
  if (small) one = SMALL_CHECKPOINT;
  double total = all_checkpoints(job, one);
  brim_doctor_bytes(one, size);
  brim_doctor_bytes(total, all);
  brim_doctor_there(run_folder(job), there, sizeof there);
  if (!job->machine->space(job->machine->ctx, there, &space)) {
    brim_doctor_say_row(out, &rows[CHECKPOINTS], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("%s each, at most %s; free space cannot be seen"), size, all);
    return;
  }
  brim_doctor_bytes(space.free, left);
  brim_doctor_state state = total > space.free         ? BRIM_DOCTOR_BAD
                            : total > 0.5 * space.free ? BRIM_DOCTOR_WARN
                                                       : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[CHECKPOINTS], state,
                          written ? brim_tr("%s each as written before, at most %s in %s; %s free")
                          : small ? brim_tr("under %s each, at most %s in %s; %s free")
                                  : brim_tr("about %s each, at most %s in %s; %s free"),
                          size, all, run_folder(job), left);
  if (state == BRIM_DOCTOR_GOOD) return;
  if (brim_config_int(job->config, "checkpoint.keep") > 1) {
    brim_doctor_fix_train(job, line, "checkpoint.keep=1");
  } else {
    brim_doctor_fix_train(job, line, "output_dir=/FOLDER/ON/A/LARGER/DISK");
  }
}

static double epoch_seconds(const brim_doctor_job *job, const brim_doctor_records *records) {
  brim_work_info info;
  brim_doctor_info(job, &info);
  if (records->own < 0 || info.set_samples <= 0) return (double)NAN;
  return (double)info.set_samples / records->results[records->own].samples_per_s;
}

static void say_interval(const brim_doctor_job *job, const brim_doctor_records *records,
                         brim_doctor_report *out) {
  int64_t interval = brim_config_int(job->config, "checkpoint.interval");
  double epoch = epoch_seconds(job, records);
  char time[32];
  if (interval > 0) {
    brim_work_info info;
    brim_doctor_info(job, &info);
    if (info.interval_unit) {
      brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_GOOD,
                          brim_tr("every %lld %s (checkpoint.interval) and after each epoch"),
                          (long long)interval, brim_tr(info.interval_unit));
    } else {
      brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_GOOD,
                          brim_tr("every %lld steps (checkpoint.interval) and after each epoch"),
                          (long long)interval);
    }
    return;
  }
  if (isnan(epoch)) {
    brim_doctor_line *line =
        brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_UNKNOWN, "%s",
                            brim_tr("after each epoch; how long one takes was not measured"));
    brim_doctor_fix_bench(job, line, "");
    return;
  }
  brim_format_duration(epoch, time);
  bool longer = epoch > 1800;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[INTERVAL], longer ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          brim_tr("after each epoch, about every %s"), time);
  if (longer) brim_doctor_fix_train(job, line, "checkpoint.interval=1000");
}

// Steps of a whole run; NaN = not known before it runs.
static double run_steps(const brim_doctor_job *job, double *epochs) {
  brim_work_info info;
  brim_doctor_info(job, &info);
  const double per_step = job->plan->plan.samples_per_step;
  int64_t samples = info.set_samples - (info.multiple > 0 ? info.set_samples % info.multiple : 0);
  double per_epoch = info.steps_per_epoch > 0      ? (double)info.steps_per_epoch
                     : samples > 0 && per_step > 0 ? ceil((double)samples / per_step)
                                                   : (double)NAN;
  int64_t most = brim_config_int(job->config, "training.steps");
  *epochs =
      (double)(info.epochs > 0 ? info.epochs : brim_config_int(job->config, "training.epochs"));
  double steps = info.steps > 0 ? (double)info.steps : *epochs * per_epoch;
  return most > 0 && !((double)most >= steps) ? (double)most : steps;
}

static double log_bytes(const brim_doctor_job *job, double steps, double epochs) {
  double lines = steps / (double)brim_config_int(job->config, "log.interval") + epochs;
  double bytes = 0;
  if (brim_config_bool(job->config, "log.jsonl")) bytes += lines * LOG_LINE_BYTES;
  if (brim_config_bool(job->config, "log.csv")) bytes += epochs * LOG_LINE_BYTES;
  if (brim_config_bool(job->config, "log.tensorboard")) {
    bytes += lines * EVENT_BYTES * (double)job->work->metrics->count;
  }
  return bytes;
}

static void say_logs(const brim_doctor_job *job, brim_doctor_report *out) {
  double epochs = 0, steps = run_steps(job, &epochs);
  double there = file_bytes(run_folder(job), "log.jsonl");
  char bytes[32], now[64] = "";
  if (!isnan(there)) {
    char size[32];
    brim_doctor_bytes(there, size);
    brim_msg_format(now, sizeof now, brim_tr("; log.jsonl has %s now"), size);
  }
  if (isnan(steps)) {
    brim_doctor_say_row(out, &rows[LOGS], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("the number of steps is not known before a run%s"), now);
    return;
  }
  double total = log_bytes(job, steps, epochs);
  brim_doctor_bytes(total, bytes);
  bool large = total > GIB;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[LOGS], large ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          brim_tr("about %s for %.0f steps%s"), bytes, steps, now);
  if (large) {
    brim_doctor_fix_train(
        job, line, "log.interval=%.0f",
        ceil((double)brim_config_int(job->config, "log.interval") * total / (0.1 * GIB)));
  }
}

//---------------------------------- all of it ----------------------------------

static bool is_of_memory(brim_failure failure) {
  return failure == BRIM_FAILURE_OOM_PLANNED || failure == BRIM_FAILURE_OOM_DEVICE ||
         failure == BRIM_FAILURE_OOM_HOST || failure == BRIM_FAILURE_SHARED_MEMORY;
}

void brim_doctor_config(const brim_doctor_job *job, brim_doctor_report *out) {
  brim_doctor_records records;
  if (job->plan->failure != BRIM_FAILURE_NONE && !is_of_memory(job->plan->failure)) {
    brim_doctor_config_failed(job->plan->message, job->words, out);
    return;
  }
  brim_doctor_say_row(out, &rows[OPENS], BRIM_DOCTOR_GOOD, brim_tr("%s on %s"),
                      job->what[0] ? job->what : job->work->table->name, job->device->info.name);
  brim_doctor_records_read(job, &records);
  say_fit(job, out);
  say_host(job, out);
  brim_doctor_measured(job, &records, out);
  if (records.own < 0) brim_doctor_rules(job, out);
  brim_doctor_sweep(job, out);
  say_checkpoints(job, out);
  say_interval(job, &records, out);
  say_logs(job, out);
  brim_doctor_records_free(&records);
}
