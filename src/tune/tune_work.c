// A workload of brim as a subject: what a session asks of it, answered by measure and by the workload itself.

#include "tune/tune_int.h"

#include <math.h>
#include <stdarg.h>
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

// Planning a setting that is not sensible fails with the reason.
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

// A cache is filled by an epoch, or by as many steps as a visit of a few samples makes and more.
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

// Seconds that the steps beside checkpoints take at least (measure_checkpoint.c).
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

// What the config's benchmark section lists for a knob, else what the workload proposes.
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
  return *s->work ? brim_trial_trace(*s->work, *s->device, setting, trace, out)
                  : brim_fail(BRIM_ESTATE, "no workload is open");
}

static brim_status work_profile(void *state, const brim_setting *setting,
                                const brim_profile_options *how, brim_profile *out,
                                brim_trace *trace) {
  const brim_work_subject *s = state;
  return brim_profile_run(*s->work, s->config, *s->device, setting, how, out, trace);
}

//---------------------------------- several devices ----------------------------------
// The devices of a list, each with a workload of its own. A device that cannot take part is reported in what
// is measured.

typedef struct brim_work_fleet {
  brim_memory_watch watches[BRIM_SCALING_MAX];
} brim_work_fleet;

static bool is_cpu(const char *spec) { return !brim_str_starts(spec, "cuda"); }

// The first GPU is the session's own: what it holds is given back by the next setting.
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
  // CPU replicas share the threads: all of them would otherwise wait for each other's.
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
      bool before = brim_log_hush(true);  // the session's workload has said it of its data already
      status = brim_work_open(&context, s->config, &r->work);
      brim_log_hush(before);
    }
    if (status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) {
      ++*count;  // to be released
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

//---------------------------------- --verify ----------------------------------
// The recommended setting as training runs it, for an epoch.

// Epochs shorter than this are repeated: a rate from a few steps says nothing.
static const double least_seconds = 1.0;
enum { MANY_EPOCHS = 1000000 };

typedef struct training {
  brim_subject_proof *proof;
  volatile sig_atomic_t stop;
  bool enough;  // stopped by us
  brim_time start;
  int64_t per_step;             // samples
  bool warm;                    // the first stretch, with all that is done once, is over
  double last_samples, last_s;  // of the present epoch
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

// The config of the session with the setting, for a training without end, evaluation or resume.
static brim_status load_proof(brim_work_subject *s, const brim_result *best) {
  const brim_work *work = *s->work;
  const size_t before = s->override_count;
  const brim_workload_table *table = work->table;
  const char *length = table->length_key ? table->length_key : "training.epochs";
  const char *alone = table->without_eval ? table->without_eval : "training.eval_interval=0";
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < work->knob_count && !status; i++) {
    const brim_result_knob *value = brim_result_knob_find(best, work->knobs[i].name);
    if (value) status = brim_work_override(s, "%s=%s", work->knobs[i].key, value->value);
  }
  if (!status) status = brim_work_override(s, "%s=%d", length, MANY_EPOCHS);
  if (!status) status = brim_work_override(s, "%s", alone);
  if (!status) status = brim_work_override(s, "training.resume=none");
  if (!status) status = brim_work_load(s, &s->proven);
  while (s->override_count > before) brim_free(s->overrides[--s->override_count]);
  return status;
}

// The session's workload gives its memory back first. It stays closed.
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
  if (isnan(proof->achieved)) {  // too short for a rate without the start: the whole run's
    proof->achieved = result.samples_per_s;
    proof->seconds = result.seconds;
  }
  return BRIM_OK;
}

//---------------------------------- the config ----------------------------------

brim_status brim_work_override(brim_work_subject *s, const char *fmt, ...) {
  if (s->override_count == s->override_room) {
    size_t room = s->override_room ? s->override_room * 2 : 16;
    char **grown = brim_realloc(s->overrides, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
    s->overrides = grown;
    s->override_room = room;
  }
  brim_str text;
  brim_str_init(&text);
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  char *taken = brim_str_status(&text) ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  if (!taken) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  s->overrides[s->override_count++] = taken;
  return BRIM_OK;
}

brim_status brim_work_load(const brim_work_subject *s, brim_config **out) {
  const brim_config_options how = {.path = s->path,
                                   .overrides = (const char *const *)s->overrides,
                                   .override_count = s->override_count,
                                   .mode = BRIM_CONFIG_RUN,
                                   .facts = s->facts};
  return brim_config_load(&how, out);
}

brim_status brim_work_subject_begin(brim_work_subject *s, const char *const *overrides,
                                    size_t count) {
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_work_override(s, "%s", overrides[i]));
  return BRIM_OK;
}

void brim_work_subject_end(brim_work_subject *s) {
  for (size_t i = 0; i < s->override_count; i++) brim_free(s->overrides[i]);
  brim_free(s->overrides);
  brim_config_close(s->proven);
  brim_work_resume_free(s->resume);
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
    .differs = brim_work_differs,
    .trace = work_trace,
    .profile = work_profile,
    .prove = work_prove,
    .replicas = work_replicas,
    .release = work_release,
    .write_best = brim_work_write_best,
    .check_edit = brim_work_check_edit,
    .edit = brim_work_edit,
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
