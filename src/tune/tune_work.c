// A workload of brim as a subject: measures it, trains with a setting, and handles its config files (--resume,
// best.yaml, --apply).

#include "tune/tune_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"

//---------------------------------- knobs ----------------------------------

brim_setting brim_subject_setting(const brim_subject *subject) {
  brim_setting setting;
  memset(&setting, 0, sizeof setting);
  for (size_t i = 0; i < subject->knob_count; i++) setting.value[i] = subject->knobs[i].value;
  return setting;
}

int brim_subject_knob(const brim_subject *subject, const char *name) {
  for (size_t i = 0; i < subject->knob_count; i++) {
    const brim_knob *knob = &subject->knobs[i];
    if (strcmp(knob->name, name) == 0 || (knob->key && strcmp(knob->key, name) == 0)) return (int)i;
  }
  return -1;
}

int brim_subject_knob_as(const brim_subject *subject, brim_knob_role role) {
  const brim_knob_row *row = brim_knob_find_as(subject->knob_set, role);
  return row ? brim_subject_knob(subject, row->name) : -1;
}

bool brim_subject_knob_matters(const brim_subject *subject, size_t knob,
                               const brim_setting *setting) {
  const brim_knob *row = &subject->knobs[knob];
  return !row->matters || row->matters(subject->knob_owner, setting);
}

double brim_subject_rows(const brim_subject *subject, const brim_setting *setting) {
  double product = 1;
  for (size_t i = 0; i < subject->knob_count; i++) {
    if (subject->knobs[i].multiplies) product *= fmax(1, (double)setting->value[i]);
  }
  return product;
}

//---------------------------------- running ----------------------------------

static brim_status work_run(void *state, const brim_setting *setting, const brim_trial_options *how,
                            brim_result *out) {
  const brim_work_subject *s = state;
  return brim_trial_run(*s->work, s->config, *s->device, setting, how, out);
}

static brim_status work_plan(void *state, const brim_setting *setting,
                             const brim_trial_options *how, brim_result *out) {
  const brim_work_subject *s = state;
  return brim_trial_plan(*s->work, s->config, *s->device, setting, how, out);
}

static bool work_sensible(void *state, const brim_setting *setting) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  return work->table->sensible(work->state, setting);
}

// Plans the setting, which fails with the reason if it is not sensible.
static brim_status work_refuse(void *state, const brim_setting *setting) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  brim_plan plan;
  return work->table->plan(work->state, setting, &plan);
}

static void work_facts(void *state, brim_subject_facts *out) {
  const brim_work *work = *((const brim_work_subject *)state)->work;
  brim_work_info info;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  *out = (brim_subject_facts){.set_samples = info.set_samples,
                              .learning_rate = info.learning_rate,
                              .adaptive = info.adaptive};
}

static brim_status work_recover(brim_subject *subject) {
  brim_work_subject *s = subject->state;
  if (!s->reopen) return BRIM_OK;
  BRIM_TRY(s->reopen(s->ctx));
  brim_work_subject_open(s, subject);
  return BRIM_OK;
}

// Runs steps for `seconds`: at least BRIM_SUBJECT_WARM_STEPS, at most an epoch.
static brim_status work_warm(void *state, const brim_setting *setting, double seconds,
                             const volatile sig_atomic_t *stop) {
  const brim_work_subject *s = state;
  const brim_work *work = *s->work;
  brim_work_info info;
  brim_step_info step;
  brim_time start = brim_clock_now();
  brim_status status = work->table->configure(work->state, setting);
  memset(&info, 0, sizeof info);
  if (!status) work->table->info(work->state, &info);
  int64_t epoch = info.steps_per_epoch > 0 ? info.steps_per_epoch : INT64_MAX;
  for (int64_t i = 0; !status && i < epoch; i++) {
    double spent = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    if (i >= BRIM_SUBJECT_WARM_STEPS && spent > seconds) break;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    status = work->table->step(work->state, NULL, &step);
  }
  if (!status) status = brim_device_sync(*s->device);
  if (status == BRIM_EINTERRUPTED || status == BRIM_EDEVICE) return status;
  brim_status_clear();
  return BRIM_OK;
}

// The least seconds of measuring checkpoints: the time of the steps between them (measure_checkpoint.c).
static double checkpoint_s(const brim_config *config, double step_s) {
  double gap = fmin(50, (double)brim_config_int(config, "checkpoint.interval"));
  return (12 + 2 * gap) * step_s;
}

static brim_status work_beside(void *state, const brim_setting *setting,
                               const brim_subject_beside *how, brim_result *out) {
  const brim_work_subject *s = state;
  brim_work *work = *s->work;
  bool saves = how->folder && s->config && brim_config_int(s->config, "checkpoint.interval") > 0;
  if (saves && checkpoint_s(s->config, how->step_s) > how->left_s) {
    *how->no_time = true;
    saves = false;
  }
  if ((*s->device)->info.host_memory && !saves) return BRIM_OK;
  BRIM_TRY(work->table->configure(work->state, setting));
  BRIM_TRY(brim_sharing_measure(*s->device, how->watch, out));
  return saves ? brim_checkpoint_measure(work, s->config, *s->device, how->folder, out) : BRIM_OK;
}

//---------------------------------- values to try ----------------------------------

// Takes the values in the config's benchmark section, else the values that the workload proposes.
static brim_status work_axis(void *state, int knob, const brim_subject_wish *wish,
                             brim_subject_axis *out) {
  const brim_work_subject *s = state;
  const brim_work *work = *s->work;
  const brim_knob *row = &work->knobs[knob];
  if (row->list && row->kind == BRIM_KNOB_INT) {
    BRIM_TRY(brim_config_get_ints(s->config, row->list, &out->values, &out->count));
  } else if (row->list) {
    const char *const *names;
    size_t count;
    BRIM_TRY(brim_config_get_strings(s->config, row->list, &names, &count));
    for (size_t i = 0; i < count && i < BRIM_KNOB_AXIS; i++) {
      if (!brim_knob_read(row, names[i], &out->chosen[out->count])) {
        return brim_fail(BRIM_EINVAL, "%s %s is not known here", row->name, names[i]);
      }
      out->count++;
    }
    out->values = out->chosen;
  }
  if (out->count > 0) {
    out->list = row->list;
    return BRIM_OK;
  }
  brim_knob_sweep sweep = {.work = work,
                           .config = s->config,
                           .gpu = wish->card || (*s->device)->info.kind == BRIM_DEVICE_GPU,
                           .card_bytes = wish->card_bytes,
                           .all = wish->all,
                           .most = wish->most,
                           .note = out->note,
                           .note_size = sizeof out->note};
  out->count = row->axis(work->state, &sweep, out->chosen);
  out->values = out->chosen;
  return BRIM_OK;
}

//---------------------------------- traces ----------------------------------

static brim_status work_trace(void *state, const brim_setting *setting, brim_gpu_trace *trace,
                              brim_result *out) {
  const brim_work_subject *s = state;
  return brim_trial_trace(*s->work, *s->device, setting, trace, out);
}

static brim_status work_profile(void *state, const brim_setting *setting,
                                const brim_profile_options *how, brim_profile *out,
                                brim_trace *trace) {
  const brim_work_subject *s = state;
  return brim_profile_run(*s->work, s->config, *s->device, setting, how, out, trace);
}

//---------------------------------- several devices ----------------------------------
// The devices of a list, each with its own workload. A device that fails to open is reported as a replica that did
// not run.

typedef struct brim_work_fleet {
  brim_memory_watch watches[BRIM_SCALING_MAX];
} brim_work_fleet;

static bool is_cpu(const char *spec) { return !brim_str_starts(spec, "cuda"); }

// True for a GPU that comes first: it is the session's own device, which is open already.
static bool is_own(size_t index, const char *spec) { return index == 0 && !is_cpu(spec); }

static brim_status work_replicas(void *state, const volatile sig_atomic_t *stop, brim_replica *out,
                                 size_t *count) {
  brim_work_subject *s = state;
  const size_t devices = brim_work_device_count(s->config);
  brim_device_options options = *s->options;
  int cpus = 0, threads = options.threads > 0 ? options.threads : brim_cpu_count();
  *count = 0;
  s->fleet = brim_calloc(1, sizeof *s->fleet);
  if (!s->fleet) return brim_fail(BRIM_ENOMEM, "out of memory for %zu devices", devices);
  // CPU replicas share the threads.
  for (size_t i = 0; i < devices; i++) {
    const char *spec;
    BRIM_TRY(brim_work_device_at(s->config, i, &spec));
    cpus += is_cpu(spec);
  }
  options.threads = cpus > 1 && threads > cpus ? threads / cpus : cpus > 1 ? 1 : threads;
  for (; *count < devices; ++*count) {
    brim_replica *r = &out[*count];
    brim_memory_watch *watch = &s->fleet->watches[*count];
    BRIM_TRY(brim_work_device_at(s->config, *count, &r->spec));
    if (is_own(*count, r->spec)) {
      r->work = *s->work;
      r->device = *s->device;
      r->memory = s->memory;
      continue;
    }
    if (*stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    brim_status status = s->open_device(s->ctx, r->spec, &options, watch, &r->device);
    if (!status) {
      const brim_work_context context = {.registry = s->registry, .device = r->device};
      bool before = brim_log_hush(true);  // the session's workload warned about the data already
      status = brim_work_open(&context, s->config, &r->work);
      brim_log_hush(before);
    }
    if (status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) {
      ++*count;  // so that work_release closes it
      return status;
    }
    if (status) {
      r->status = status;
      snprintf(r->message, sizeof r->message, "%s", brim_status_detail());
      brim_status_clear();
    }
    r->memory = watch;
  }
  return BRIM_OK;
}

static void work_release(void *state, brim_replica *replicas, size_t count) {
  brim_work_subject *s = state;
  for (size_t i = 0; i < count; i++) {
    brim_replica *r = &replicas[i];
    if (is_own(i, r->spec)) {
      const brim_work_ranks_table *ranks = r->work->table->ranks;
      if (ranks) ranks->share(r->work->state, 0, 1);
      continue;
    }
    brim_work_close(r->work);
    brim_device_close(r->device);
  }
  brim_free(s->fleet);
  s->fleet = NULL;
}

//---------------------------------- the config ----------------------------------

// Adds an override to the session's config. brim_work_subject_begin made room for all overrides.
BRIM_PRINTF(2, 3)
static brim_status override(brim_work_subject *s, const char *fmt, ...) {
  brim_str text;
  va_list args;
  brim_str_init(&text);
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  char *taken = brim_str_status(&text) ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  if (!taken) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  s->overrides[s->override_count++] = taken;
  return BRIM_OK;
}

// Loads the config with all overrides.
static brim_status load(const brim_work_subject *s, brim_config **out) {
  const brim_config_options how = {.path = s->path,
                                   .overrides = (const char *const *)s->overrides,
                                   .override_count = s->override_count,
                                   .mode = BRIM_CONFIG_RUN,
                                   .facts = s->facts};
  return brim_config_load(&how, out);
}

// Room for the overrides that --verify and best.yaml add: two settings and some other keys.
enum { MORE_OVERRIDES = 2 * BRIM_KNOB_MAX + 16 };

brim_status brim_work_subject_begin(brim_work_subject *s, const char *const *overrides,
                                    size_t count) {
  s->overrides = brim_calloc(count + MORE_OVERRIDES, sizeof *s->overrides);
  if (!s->overrides) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  for (size_t i = 0; i < count; i++) BRIM_TRY(override(s, "%s", overrides[i]));
  return BRIM_OK;
}

//---------------------------------- --verify ----------------------------------
// Trains with the recommended setting for an epoch.

// Repeat epochs that are shorter than this: a rate from a few steps is too uncertain.
static const double least_seconds = 1.0;
enum { MANY_EPOCHS = 1000000 };

typedef struct training {
  brim_subject_proof *proof;
  volatile sig_atomic_t stop;
  bool enough;  // the proof has all it needs and stopped the training
  brim_time start;
  int64_t per_step;             // samples
  bool warm;                    // the first report, which includes starting up, has come
  double last_samples, last_s;  // in the present epoch
} training;

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  training *t = ctx;
  const brim_host_provider host = brim_host_provider_system("");
  (void)start_step;
  t->per_step = plan->samples_per_step > 0 ? (int64_t)plan->samples_per_step : 0;
  t->proof->per_epoch = info->samples_per_epoch;
  t->start = brim_clock_now();
  brim_host_sample_clear(&t->proof->host);
  if (brim_host_read_sample(&host, &t->proof->host)) brim_status_clear();
}

static void on_progress(void *ctx, const brim_progress *p) {
  training *t = ctx;
  brim_subject_proof *proof = t->proof;
  double samples = (double)(p->done * t->per_step);
  if (proof->per_epoch > 0) samples = fmin(samples, (double)proof->per_epoch);
  if (p->elapsed_s < t->last_s || samples < t->last_samples) t->last_samples = t->last_s = 0;
  if (t->warm) {
    proof->samples += samples - t->last_samples;
    proof->seconds += p->elapsed_s - t->last_s;
  }
  t->warm = true;
  t->last_samples = samples;
  t->last_s = p->elapsed_s;
  double wall = (double)brim_time_since_ns(t->start, brim_clock_now()) * 1e-9;
  if (wall >= proof->cap_s) t->enough = true;
  if (t->enough || *proof->stop) t->stop = 1;
  brim_progress shown = *p;
  shown.title = brim_tr("verify");
  shown.metrics = NULL;
  shown.eta_s = (double)NAN;
  proof->on_progress(proof->ctx, &shown);
}

static void on_epoch(void *ctx, const brim_epoch_report *report) {
  training *t = ctx;
  (void)report;
  t->proof->epochs++;
  t->last_samples = t->last_s = 0;
  if (t->proof->seconds >= least_seconds) t->enough = true;
  if (t->enough) t->stop = 1;
}

// Loads the session's config with the setting, for a training without end, evaluation or resume.
static brim_status load_proof(brim_work_subject *s, const brim_result *best) {
  const brim_work *work = *s->work;
  const size_t before = s->override_count;
  const brim_workload_table *table = work->table;
  const char *length = table->length_key ? table->length_key : "training.epochs";
  const char *alone = table->without_eval ? table->without_eval : "training.eval_interval=0";
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < work->knob_count && !status; i++) {
    const brim_result_knob *value = brim_result_knob_find(best, work->knobs[i].name);
    if (value) status = override(s, "%s=%s", work->knobs[i].key, value->value);
  }
  if (!status) status = override(s, "%s=%d", length, MANY_EPOCHS);
  if (!status) status = override(s, "%s", alone);
  if (!status) status = override(s, "training.resume=none");
  if (!status) status = load(s, &s->proven);
  while (s->override_count > before) brim_free(s->overrides[--s->override_count]);
  return status;
}

// Closes the session's workload first, to free its memory. Afterwards the workload of the training is open in its
// place.
static brim_status work_prove(brim_subject *subject, const brim_result *best, const char *folder,
                              brim_subject_proof *proof) {
  brim_work_subject *s = subject->state;
  training t = {.proof = proof};
  brim_run_result result;
  memset(&result, 0, sizeof result);
  BRIM_TRY(load_proof(s, best));
  brim_work_close(*s->work);
  *s->work = NULL;
  subject->knobs = NULL;
  subject->knob_count = 0;
  const brim_work_context context = {.registry = s->registry, .device = *s->device};
  BRIM_TRY(brim_work_open(&context, s->proven, s->work));
  const brim_run_options how = {.output_dir = folder,
                                .stop = &t.stop,
                                .on_start = on_start,
                                .on_progress = on_progress,
                                .on_epoch = on_epoch,
                                .ctx = &t};
  brim_status status = brim_run_train(*s->work, s->proven, &how, &result);
  brim_work_subject_open(s, subject);
  if (status && !(status == BRIM_EINTERRUPTED && t.enough)) return status;
  proof->steps = result.steps_run;
  proof->achieved = proof->seconds > 0 ? proof->samples / proof->seconds : (double)NAN;
  if (isnan(proof->achieved)) {  // the run was too short to leave out its start
    proof->achieved = result.samples_per_s;
    proof->seconds = result.seconds;
  }
  return BRIM_OK;
}

#define RATE_KEY "training.learning_rate"

//-------------------------------------------- resume --------------------------------------------
// Takes over a record that was measured with the same config on the same device.

typedef struct brim_work_resume {
  brim_result now;  // a record that this session would write
  json_t *config;   // its config, reduced to what changes a measurement (measured_config)
  json_t *defaults;
} brim_work_resume;

// Removes a dotted key.
static void leave_out(json_t *config, const char *key) {
  const char *dot = strchr(key, '.');
  char group[64];
  snprintf(group, sizeof group, "%.*s", (int)(dot ? dot - key : 0), key);
  json_object_del(dot ? json_object_get(config, group) : config, dot ? dot + 1 : key);
}

// Removes the value of lr from the optimizer: "adamw(lr=0.001, beta1=0.9)".
static void leave_out_rate(json_t *config) {
  const char *text = json_string_value(json_object_get(config, "optimizer"));
  const char *lr = text ? strstr(text, "(lr=") : NULL;
  if (text && !lr) lr = strstr(text, " lr=");
  if (!lr) return;
  char without[512];
  const char *rest = lr + 4 + strcspn(lr + 4, ",)");
  int n = snprintf(without, sizeof without, "%.*s%s", (int)(lr + 4 - text), text, rest);
  if (n < (int)sizeof without) json_object_set_new(config, "optimizer", json_string(without));
}

// Fills in the defaults of keys that are newer than a record.
static void fill_in(json_t *config, json_t *defaults) {
  const char *key;
  json_t *value;
  json_object_foreach(defaults, key, value) {
    json_t *here = json_object_get(config, key);
    if (!here) json_object_set_new(config, key, json_deep_copy(value));
    if (json_is_object(here) && json_is_object(value)) json_object_update_missing(here, value);
  }
}

// The keys of a config that change how fast a setting is. Names, folders, values to try, the learning rate and the
// knobs are left out: the setting has the knobs. So writing the recommendation into a config does not change the
// result.
static json_t *measured_config(const brim_work *work, const json_t *config, json_t *defaults) {
  // "device" is left out: the record has the device it ran on, and the sweep uses no other device of a list
  static const char *const names[] = {"name",     "project",    "tags",
                                      "priority", "output_dir", "device"};
  static const char *const lists[] = {"repeats", "test_mixed_precision", "test_pin_memory"};
  json_t *copy = config ? json_deep_copy(config) : NULL;
  if (copy) fill_in(copy, defaults);
  json_t *benchmark = json_object_get(copy, "benchmark");
  for (size_t i = 0; copy && i < sizeof names / sizeof *names; i++) json_object_del(copy, names[i]);
  for (size_t i = 0; benchmark && i < sizeof lists / sizeof *lists; i++) {
    json_object_del(benchmark, lists[i]);
  }
  for (size_t i = 0; copy && i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    leave_out(copy, knob->key);
    if (knob->list) leave_out(copy, knob->list);
  }
  if (copy) leave_out(copy, "training.use_amp");
  if (copy) leave_out(copy, "training.learning_rate");
  if (copy) leave_out_rate(copy);
  if (copy) leave_out(copy, "dataloader");
  return copy;
}

static void resume_free(brim_work_resume *resume) {
  if (!resume) return;
  json_decref(resume->config);
  json_decref(resume->defaults);
  brim_result_deinit(&resume->now);
  brim_free(resume);
}

// Prepares the comparison when the first record is read.
static brim_status begin_resume(brim_work_subject *s) {
  const brim_work *work = *s->work;
  const brim_trial_options how = {.memory = s->memory};
  const brim_config_options none = {.text = "", .text_name = "defaults"};
  brim_setting setting = brim_work_setting(work);
  brim_config *config = NULL;
  brim_work_resume *resume = s->resume = brim_calloc(1, sizeof *resume);
  if (!resume) return brim_fail(BRIM_ENOMEM, "out of memory for the sweep");
  BRIM_TRY(brim_trial_plan(*s->work, s->config, *s->device, &setting, &how, &resume->now));
  BRIM_TRY(brim_config_load(&none, &config));
  brim_status status = brim_config_to_json(config, &resume->defaults);
  brim_config_close(config);
  BRIM_TRY(status);
  resume->config = measured_config(work, resume->now.config, resume->defaults);
  return resume->config ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the sweep");
}

static brim_status work_differs(void *state, const brim_result *r, const char **out) {
  brim_work_subject *s = state;
  if (!s->resume) BRIM_TRY(begin_resume(s));
  const brim_result *now = &s->resume->now;
  *out = "";
  if (strcmp(r->host, now->host) != 0 || strcmp(r->cpu, now->cpu) != 0 || r->cores != now->cores) {
    *out = brim_tr("another machine");
  } else if (strcmp(r->device, now->device) != 0 || strcmp(r->device_id, now->device_id) != 0 ||
             strcmp(r->backend, now->backend) != 0 || strcmp(r->library, now->library) != 0 ||
             (r->threads != now->threads && !brim_result_knob_as(r, BRIM_ROLE_THREADS))) {
    *out = brim_tr("another device");
  } else if (strcmp(r->workload, now->workload) != 0 || r->seed != now->seed) {
    *out = brim_tr("another config");
  } else if (strcmp(r->description, now->description) != 0) {
    *out = brim_tr("other data");
  } else {
    json_t *config = measured_config(*s->work, r->config, s->resume->defaults);
    if (!config || !json_equal(config, s->resume->config)) *out = brim_tr("another config");
    json_decref(config);
  }
  return BRIM_OK;
}

//---------------------------------------- learning rate ----------------------------------------
// The learning rate for a recommended batch, for --apply and best.yaml. brim_advise_rate has the rule.

// Batch, accumulation and learning rate in one file.
typedef struct file_rate {
  double batch, steps, rate;
} file_rate;

// The config key of the knob with a role; "" if the workload has none.
static const char *key_of(const brim_tuning *s, brim_knob_role role) {
  int knob = brim_subject_knob_as(s->subject, role);
  return knob < 0 ? "" : s->subject->knobs[knob].key;
}

static double number_of(const brim_tuning *s, const brim_config *file, brim_knob_role role) {
  const char *key = key_of(s, role);
  return key[0] ? (double)brim_config_int(file, key) : 1;
}

// Reads a file. Without a learning rate it gets the session's. A grid has several learning rates: NaN.
static brim_status read_file(const brim_tuning *s, const char *path, const brim_advice_facts *facts,
                             file_rate *out) {
  brim_config *file = NULL;
  brim_config_options how = {.path = path, .mode = BRIM_CONFIG_EDIT};
  BRIM_TRY(brim_config_load(&how, &file));
  *out = (file_rate){number_of(s, file, BRIM_ROLE_BATCH),
                     number_of(s, file, BRIM_ROLE_ACCUMULATION), facts->learning_rate};
  if (brim_config_is_set(file, RATE_KEY)) out->rate = brim_config_float(file, RATE_KEY);
  if (brim_config_grid_count(file) != 1) out->rate = (double)NAN;
  brim_config_close(file);
  return BRIM_OK;
}

// Finds the learning rate for a batch of `batch` x `steps` (NaN: unchanged). A learning rate belongs to the batch in
// the same file `path`, even if the command line overrides that batch. If `path` is NULL it belongs to the session's
// config.
static brim_status rate_change(const brim_tuning *s, const char *path, double batch, double steps,
                               brim_rate_change *out) {
  brim_advice_facts facts;
  *out = (brim_rate_change){.kept = s->how.keep_rate};
  brim_advice_facts_of(s->subject, &facts);
  if (isnan(facts.batch) || isnan(facts.learning_rate)) return BRIM_OK;
  file_rate was = {facts.batch, facts.accumulation, facts.learning_rate};
  if (path) BRIM_TRY(read_file(s, path, &facts, &was));
  if (was.steps < 1) was.steps = 1;
  double before = was.batch * was.steps;
  double after = (isnan(batch) ? was.batch : batch) * (isnan(steps) ? was.steps : steps);
  if (!(before > 0) || !(after > 0) || before == after || !(was.rate > 0)) return BRIM_OK;
  out->batch_before = before;
  out->batch_after = after;
  out->before = was.rate;
  out->adaptive = facts.adaptive;
  out->after = brim_advise_rate(was.rate, before, after, facts.adaptive);
  return BRIM_OK;
}

void brim_rate_change_text(const brim_rate_change *c, brim_str *out) {
  if (!(c->after > 0)) return;
  const char *rule = c->adaptive ? brim_tr("square-root rule") : brim_tr("linear rule");
  brim_str_printf(out,
                  c->kept ? brim_tr("learning rate %.4g stays (--keep-lr); it would be %.4g")
                          : brim_tr("learning rate %.4g -> %.4g, --keep-lr keeps it"),
                  c->before, c->after);
  brim_str_printf(out, brim_tr(" (%s, effective batch %.0f -> %.0f)\n"), rule, c->batch_before,
                  c->batch_after);
}

//------------------------------------------ best.yaml ------------------------------------------
// best.yaml has the keys that the user gave, with the recommended setting. Defaults and keys without effect are left
// out.

// Overrides a path by its absolute form, so that best.yaml works from any folder.
static brim_status add_path(brim_work_subject *w, const char *key) {
  const char *given = brim_config_string(w->config, key);
  if (!given || !*given || !brim_config_is_set(w->config, key)) return BRIM_OK;
  char *full = realpath(given, NULL);
  if (!full) return BRIM_OK;  // the path does not exist here: keep the value
  brim_str quoted;
  brim_str_init(&quoted);
  for (const char *c = full; *c; c++) brim_str_append(&quoted, *c == '\'' ? "''" : (char[]){*c, 0});
  free(full);
  brim_status status = brim_str_status(&quoted);
  if (!status) status = override(w, "%s='%s'", key, quoted.data);
  brim_str_deinit(&quoted);
  return status;
}

// True if best.yaml keeps a key. It drops the values to sweep, the output folder, and keys without effect.
static bool is_kept(const brim_config *config, const char *name) {
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 && brim_config_is_set(config, name) &&
         brim_config_key_is_used(key) && strcmp(name, "output_dir") != 0 &&
         !brim_str_starts(name, "benchmark.");
}

// Copies the lines of kept keys. "group:" is written with the first kept key of the group; deeper lines (slots of a
// component) follow the key above them.
static void filter(const brim_config *config, const char *text, brim_str *out) {
  char group[64] = "";
  bool group_reported = false, keep = false;
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    size_t indent = strspn(text, " "), length = strcspn(text + indent, ":\n");
    char name[128] = "";
    if (indent == 0) {
      strncat(name, text, length < 63 ? length : 63);
      const brim_config_key *key = brim_config_key_find(name);
      bool is_group = !key || strcmp(key->name, name) != 0;
      memcpy(group, is_group ? name : "", is_group ? strlen(name) + 1 : 1);
      group_reported = false;
      keep = !is_group && is_kept(config, name);
    } else if (group[0] && indent == 2) {
      strcat(strcat(name, group), ".");
      strncat(name, text + indent, length < 63 ? length : 63);
      keep = is_kept(config, name);
    }
    if (!keep) continue;
    if (group[0] && !group_reported) brim_str_printf(out, "%s:\n", group);
    group_reported = true;
    brim_str_append_n(out, text, n);
    brim_str_append_char(out, '\n');
  }
}

// Loads the config once more with the setting as overrides, so that everything that depends on it follows. The
// overrides stay for --verify.
static brim_status work_write_best(brim_tuning *s, const char *path) {
  brim_work_subject *w = s->subject->state;
  const brim_subject *subject = s->subject;
  const size_t before = w->override_count;
  const brim_result *best = &s->results[s->picks.recommended];
  char number[32];
  brim_rate_change rate = {.after = 0};
  brim_str text, whole;
  brim_str_init(&text);
  brim_str_init(&whole);
  brim_format_figure(best->samples_per_s, number);
  brim_str_printf(&text, brim_tr("# recommended by brim bench: %s %s/s on %s\n"), number,
                  brim_tr(brim_result_unit(best)), best->device);
  brim_status status = add_path(w, "data.path");
  if (!status && s->how.device_count > 1) {  // training runs on one device
    const char *first = NULL;
    status = brim_work_device_at(w->config, 0, &first);
    if (!status) status = override(w, "device=%s", first);
  }
  if (!status) status = add_path(w, "training.weights");
  for (size_t i = 0; i < subject->knob_count && !status; i++) {
    const brim_knob *knob = &subject->knobs[i];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    if (!value) continue;
    brim_str_printf(&text, "#   %s: %s\n", knob->key, value->value);
    status = override(w, "%s=%s", knob->key, value->value);
  }
  // a rate from the command line belongs to the batch of the command line, not to the file's
  bool given = brim_config_layer_of(w->config, RATE_KEY) == BRIM_CONFIG_FROM_OVERRIDE;
  double batch = brim_result_number_as(best, BRIM_ROLE_BATCH, (double)NAN);
  double steps = brim_result_number_as(best, BRIM_ROLE_ACCUMULATION, (double)NAN);
  if (!status) status = rate_change(s, given ? NULL : w->path, batch, steps, &rate);
  if (!status && rate.after > 0) {
    brim_str_append(&text, "# ");
    brim_rate_change_text(&rate, &text);
    if (!rate.kept) status = override(w, "%s=%.4g", RATE_KEY, rate.after);
  }
  brim_config *config = NULL;
  if (!status) status = load(w, &config);
  if (!status) status = brim_config_to_yaml(config, false, &whole);
  if (!status) filter(config, whole.data, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  while (status && w->override_count > before) brim_free(w->overrides[--w->override_count]);
  brim_config_close(config);
  brim_str_deinit(&whole);
  brim_str_deinit(&text);
  return status;
}

//------------------------------------------- --apply -------------------------------------------
// Writes the recommended values of the swept knobs into a config file in place (config_edit.c).

static void add_edit(brim_tuning_edit *list, const char *key, const char *value) {
  snprintf(list->values[list->count], sizeof list->values[0], "%s", value);
  list->edits[list->count] = (brim_config_edit){key, list->values[list->count]};
  list->count++;
}

// The new value of a key in the edit; NaN = unchanged.
static double edited_value(const brim_tuning_edit *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    double value;
    if (!strcmp(list->edits[i].key, key) && brim_parse_f64(list->edits[i].value, &value)) {
      return value;
    }
  }
  return (double)NAN;
}

static brim_status add_rate(const brim_tuning *s, brim_tuning_edit *list) {
  brim_rate_change *rate = &list->rate;
  BRIM_TRY(rate_change(s, s->how.apply, edited_value(list, key_of(s, BRIM_ROLE_BATCH)),
                       edited_value(list, key_of(s, BRIM_ROLE_ACCUMULATION)), rate));
  char value[32];
  if (!(rate->after > 0) || rate->kept) return BRIM_OK;
  snprintf(value, sizeof value, "%.4g", rate->after);
  add_edit(list, RATE_KEY, value);
  return BRIM_OK;
}

// Previews the edit with the first value of each axis: a file that cannot be edited is refused before the sweep.
static brim_status work_check_edit(brim_tuning *s) {
  brim_tuning_edit list = {.count = 0};
  for (size_t i = 0; i < s->axis_count; i++) {
    const brim_knob *knob = &s->subject->knobs[s->axes[i].knob];
    char value[32];
    brim_knob_format(knob, s->axes[i].values[0], value);
    add_edit(&list, knob->key, value);
  }
  BRIM_TRY(add_rate(s, &list));
  BRIM_TRY(brim_config_edit_preview(s->how.apply, list.edits, list.count, &list.file));
  brim_config_edit_result_deinit(&list.file);
  return brim_config_edit_check(s->how.apply);
}

// Edits only keys that differ from the config's own setting: a value that the file leaves to brim is not replaced by
// the value that brim chose on this machine.
static brim_status work_edit(brim_tuning *s, brim_tuning_edit *out) {
  const brim_work_subject *w = s->subject->state;
  const brim_result *best = &s->results[s->picks.recommended];
  const bool same = s->picks.now >= 0 && brim_fs_same(s->how.apply, w->path);
  const brim_result *own = same ? &s->results[s->picks.now] : NULL;
  for (size_t i = 0; i < s->axis_count; i++) {
    const brim_knob *knob = &s->subject->knobs[s->axes[i].knob];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    const brim_result_knob *now = own ? brim_result_knob_find(own, knob->name) : NULL;
    const bool replaced = brim_config_layer_of(w->config, knob->key) == BRIM_CONFIG_FROM_OVERRIDE;
    if (value && now && !replaced && strcmp(value->value, now->value) == 0) continue;
    if (value) add_edit(out, knob->key, value->value);
  }
  BRIM_TRY(add_rate(s, out));
  return brim_config_edit_file(s->how.apply, out->edits, out->count, &out->file);
}

void brim_work_subject_end(brim_work_subject *s) {
  for (size_t i = 0; i < s->override_count; i++) brim_free(s->overrides[i]);
  brim_free(s->overrides);
  brim_config_close(s->proven);
  resume_free(s->resume);
}

//---------------------------------- the table ----------------------------------

static const brim_subject_table work_table = {
    .run = work_run,
    .plan = work_plan,
    .sensible = work_sensible,
    .refuse = work_refuse,
    .facts = work_facts,
    .recover = work_recover,
    .warm = work_warm,
    .beside = work_beside,
    .axis = work_axis,
    .differs = work_differs,
    .trace = work_trace,
    .profile = work_profile,
    .prove = work_prove,
    .replicas = work_replicas,
    .release = work_release,
    .write_best = work_write_best,
    .check_edit = work_check_edit,
    .edit = work_edit,
};

void brim_work_subject_open(brim_work_subject *of, brim_subject *out) {
  const brim_work *work = *of->work;
  *out = (brim_subject){.name = work->table->name,
                        .table = &work_table,
                        .state = of,
                        .knobs = work->knobs,
                        .knob_count = work->knob_count,
                        .knob_set = work->table->knob_set,
                        .knob_owner = work->state,
                        .host = of->device && (*of->device)->info.host_memory};
}
