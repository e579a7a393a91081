// `device: [..]`: how the picks scale. After the sweep, which ran on the first device, the setting that
// is recommended and the fastest one run on 1, 2, ... of the devices at once (src/tune/tune_scaling.c).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/cli_bench.h"

// How long each number of devices is measured, and as long again with the exchange of gradients.
#define USUAL_SECONDS 1.5

typedef struct fleet {
  bench *bench;
  brim_replica replicas[BRIM_SCALING_MAX];
  brim_memory_watch watches[BRIM_SCALING_MAX];
  size_t count;
  bool first_is_jobs;  // replicas[0] is the sweep's own device and workload
} fleet;

brim_status brim_cli_bench_scale_check(bench *b) {
  size_t count = brim_work_device_count(b->job->config);
  if (count > BRIM_SCALING_MAX) {
    return brim_fail(BRIM_EINVAL, "device names %zu devices; scaling is measured on at most %d",
                     count, BRIM_SCALING_MAX);
  }
  b->device_count = count;
  return brim_config_devices_apart(b->job->config);
}

//---------------------------------- opening ----------------------------------

static bool is_cpu(const char *spec) { return !brim_str_starts(spec, "cuda"); }

// CPU replicas share the threads: all of them would otherwise wait for each other's.
static brim_status split_threads(const bench *b, brim_device_options *options) {
  int cpus = 0, threads = options->threads > 0 ? options->threads : brim_cpu_count();
  for (size_t i = 0; i < b->device_count; i++) {
    const char *spec;
    BRIM_TRY(brim_work_device_at(b->job->config, i, &spec));
    cpus += is_cpu(spec);
  }
  options->threads = cpus > 1 && threads > cpus ? threads / cpus : cpus > 1 ? 1 : threads;
  return BRIM_OK;
}

static void could_not_open(brim_replica *r, brim_status status) {
  r->status = status;
  snprintf(r->message, sizeof r->message, "%s", brim_status_detail());
  brim_status_clear();
}

// What a workload says of its data, the sweep's said already.
static brim_status open_work(const brim_cli_job *job, brim_replica *r) {
  brim_work_context context = {.registry = job->registry, .device = r->device};
  bool before = brim_log_hush(true);
  brim_status status = brim_work_open(&context, job->config, &r->work);
  brim_log_hush(before);
  return status;
}

// The first GPU is the sweep's: what it holds is given back by the next setting.
static brim_status open_fleet(fleet *f) {
  bench *b = f->bench;
  brim_cli_job *job = b->job;
  brim_device_options options = job->options;
  BRIM_TRY(split_threads(b, &options));
  for (; f->count < b->device_count; f->count++) {
    brim_replica *r = &f->replicas[f->count];
    brim_memory_watch *watch = &f->watches[f->count];
    BRIM_TRY(brim_work_device_at(job->config, f->count, &r->spec));
    if (f->count == 0 && !is_cpu(r->spec)) {
      f->first_is_jobs = true;
      r->work = job->work;
      r->device = job->device;
      r->memory = &job->memory;
      continue;
    }
    if (*b->cli->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    brim_status status = brim_cli_device_open(job, r->spec, &options, watch, &r->device);
    if (!status) status = open_work(job, r);
    if (status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) return status;
    if (status) could_not_open(r, status);
    r->memory = watch;
  }
  return BRIM_OK;
}

static void close_fleet(fleet *f) {
  for (size_t i = 0; i < BRIM_SCALING_MAX; i++) {
    brim_replica *r = &f->replicas[i];
    if (i == 0 && f->first_is_jobs) {
      const brim_work_ranks_table *ranks = r->work->table->ranks;
      if (ranks) ranks->share(r->work->state, 0, 1);
      continue;
    }
    brim_work_close(r->work);
    brim_device_close(r->device);
  }
}

//---------------------------------- what comes out ----------------------------------

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_cli_progress(((bench *)ctx)->cli, progress);
}

static brim_status event(bench *b, json_t *json) {
  json_t *fields = json_object();
  brim_status status = brim_json_put(fields, "result", json);
  if (status) {
    json_decref(fields);
    return status;
  }
  return brim_cli_event(b->cli, "scaling", fields);
}

static void on_result(void *ctx, const brim_scaling *scaling) {
  bench *b = ctx;
  json_t *json = NULL;
  brim_cli_bench_record_scaling(b, scaling);
  if (!b->cli->json) return;
  // An event that could not be reported is no reason to stop: the records are in the file.
  if (brim_scaling_to_json(scaling, &json) || event(b, json)) brim_status_clear();
}

// Of the last, which is on all devices.
static void make_note(bench *b) {
  const brim_scaling *last = NULL;
  for (size_t i = 0; i < b->scaling_count; i++) {
    if (b->scaling[i].ran > 1 && (!last || b->scaling[i].devices > last->devices)) {
      last = &b->scaling[i];
    }
  }
  if (!last) return;
  const brim_result *r = &last->result;
  double batch = brim_result_number_as(r, BRIM_ROLE_BATCH, (double)NAN) *
                 brim_result_number_as(r, BRIM_ROLE_ACCUMULATION, 1);
  if (!(batch > 0)) return;
  char rate[256];
  brim_advice_facts facts;
  brim_cli_bench_facts(b, &facts);
  brim_advise_batch(&facts, batch * last->ran, rate);
  snprintf(
      b->scaling_note, sizeof b->scaling_note,
      brim_tr("Every device has the whole batch of %.0f: %d devices together make %.0f samples "
              "of one step. %s"),
      batch, last->ran, batch * last->ran, rate);
}

//---------------------------------- the command's part ----------------------------------

// Of a step of the sweep, which told the phases of a GPU apart.
static double backward_share(const brim_result *r) {
  double total = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) total += r->phase_used[p] ? r->phase_ms[p].mean : 0;
  bool known = r->phase_used[BRIM_PHASE_BACKWARD] && total > 0;
  return known ? r->phase_ms[BRIM_PHASE_BACKWARD].mean / total : (double)NAN;
}

static size_t choose_settings(const bench *b, brim_setting out[2], double backward[2]) {
  const int picks[] = {b->picks.recommended, b->picks.highest};
  size_t count = 0;
  for (size_t i = 0; i < 2; i++) {
    if (picks[i] < 0 || (i == 1 && picks[1] == picks[0])) continue;
    backward[count] = backward_share(&b->results[picks[i]]);
    out[count++] = b->settings.setting[picks[i]];
  }
  return count;
}

brim_status brim_cli_bench_scale(bench *b) {
  brim_setting settings[2];
  double backward[2];
  const brim_config *config = b->job->config;
  int64_t nodes = brim_config_int(config, "nodes"), node = brim_config_int(config, "gpus");
  if (brim_config_int(config, "ranks") > node) node = brim_config_int(config, "ranks");
  if (b->device_count < 2) return BRIM_OK;
  size_t count = choose_settings(b, settings, backward);
  if (count == 0) return BRIM_OK;
  fleet *f = brim_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory for %zu devices", b->device_count);
  f->bench = b;
  brim_status status = open_fleet(f);
  if (!status) {
    brim_scale_options how = {
        .replicas = f->replicas,
        .replica_count = f->count,
        .settings = settings,
        .setting_count = count,
        .backward_share = backward,
        .ranks = node * nodes,
        .node = nodes > 1 ? node : 0,
        .measure = {.config = config,
                    .seconds = USUAL_SECONDS * brim_cli_bench_visit_share(b),
                    .memory_limit = brim_cli_memory_limit(b->job),
                    .stop = b->cli->stop},
        .on_progress = on_progress,
        .on_result = on_result,
        .ctx = b,
    };
    status = brim_scale(&how, &b->scaling, &b->scaling_count);
  }
  make_note(b);
  close_fleet(f);
  brim_free(f);
  if (status == BRIM_EINTERRUPTED) {
    return brim_fail(status, "interrupted while measuring several devices; the sweep is complete");
  }
  return status;
}

void brim_cli_bench_scale_free(bench *b) {
  for (size_t i = 0; i < b->scaling_count; i++) brim_scaling_deinit(&b->scaling[i]);
  brim_free(b->scaling);
  b->scaling = NULL;
  b->scaling_count = 0;
}
