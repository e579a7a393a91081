// `brim bench --verify`: the recommended setting as training runs it, for an epoch, in a folder that
// is thrown away; and how that compares with what the sweep measured.
#include "cli/bench/cli_bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run/run.h"

// Epochs shorter than this are repeated: a rate from a few steps says nothing.
static const double least_seconds = 1.0;
enum { DEFAULT_SECONDS = 60, MANY_EPOCHS = 1000000 };

typedef struct verify {
  bench *bench;
  volatile sig_atomic_t stop;
  bool enough;  // stopped by us
  double cap_s;
  brim_time start;
  int64_t per_step, per_epoch;  // samples
  bool warm;                    // the first stretch, with all that is done once, is over
  double last_samples, last_s;  // of the present epoch
  double samples, seconds;      // after warming up
  int64_t epochs, steps;
  brim_host_sample host;  // when it began
} verify;

static void read_host(brim_host_sample *out) {
  const brim_host_provider host = brim_host_provider_system("");
  brim_host_sample_clear(out);
  if (brim_host_read_sample(&host, out)) brim_status_clear();
}

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  verify *v = ctx;
  (void)start_step;
  v->per_step = plan->samples_per_step > 0 ? (int64_t)plan->samples_per_step : 0;
  v->per_epoch = info->samples_per_epoch;
  v->start = brim_clock_now();
  read_host(&v->host);
}

static void on_progress(void *ctx, const brim_progress *p) {
  verify *v = ctx;
  double samples = (double)(p->done * v->per_step);
  if (v->per_epoch > 0 && samples > (double)v->per_epoch) samples = (double)v->per_epoch;
  if (p->elapsed_s < v->last_s || samples < v->last_samples) v->last_samples = v->last_s = 0;
  if (v->warm) {
    v->samples += samples - v->last_samples;
    v->seconds += p->elapsed_s - v->last_s;
  }
  v->warm = true;
  v->last_samples = samples;
  v->last_s = p->elapsed_s;
  double wall = (double)brim_time_since_ns(v->start, brim_clock_now()) * 1e-9;
  if (wall >= v->cap_s) v->enough = true;
  if (v->enough || *v->bench->cli->stop) v->stop = 1;
  brim_progress shown = *p;
  shown.title = brim_tr("verify");
  shown.metrics = NULL;
  shown.eta_s = (double)NAN;
  brim_cli_progress(v->bench->cli, &shown);
}

static void on_epoch(void *ctx, const brim_epoch_report *report) {
  verify *v = ctx;
  (void)report;
  v->epochs++;
  v->last_samples = v->last_s = 0;
  if (v->seconds >= least_seconds) v->enough = true;
  if (v->enough) v->stop = 1;
}

//---------------------------------- training ----------------------------------

static brim_status load(const bench *b, brim_config **out) {
  const brim_cli_job *job = b->job;
  const brim_result *best = &b->results[b->picks.recommended];
  brim_cli_input all = {.path = job->input.path};
  brim_status s = BRIM_OK;
  for (size_t i = 0; i < job->input.count && !s; i++) {
    s = brim_cli_input_add(&all, "%s", job->input.overrides[i]);
  }
  for (size_t i = 0; i < job->work->knob_count && !s; i++) {
    const brim_result_knob *value = brim_result_knob_find(best, job->work->knobs[i].name);
    if (value) s = brim_cli_input_add(&all, "%s=%s", job->work->knobs[i].key, value->value);
  }
  const brim_workload_table *table = job->work->table;
  const char *length = table->length_key ? table->length_key : "training.epochs";
  const char *alone = table->without_eval ? table->without_eval : "training.eval_interval=0";
  if (!s) s = brim_cli_input_add(&all, "%s=%d", length, MANY_EPOCHS);
  if (!s) s = brim_cli_input_add(&all, "%s", alone);
  if (!s) s = brim_cli_input_add(&all, "training.resume=none");
  if (!s) {
    brim_device_info gpu;
    brim_config_facts facts;
    brim_cli_facts(job->registry, &gpu, &facts);
    brim_config_options how = {.path = all.path,
                               .overrides = (const char *const *)all.overrides,
                               .override_count = all.count,
                               .mode = BRIM_CONFIG_RUN,
                               .facts = &facts};
    s = brim_config_load(&how, out);
  }
  brim_cli_input_deinit(&all);
  return s;
}

// A folder of files; one that holds a foreign file stays.
static void remove_folder(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  if (!brim_fs_list(folder, &names, &count)) {
    for (size_t i = 0; i < count; i++) {
      char *path = brim_fs_join(folder, names[i]);
      if (path && brim_fs_remove(path)) brim_log_info("bench", "%s", brim_status_detail());
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  if (brim_fs_exists(folder) && brim_fs_remove(folder)) {
    brim_log_info("bench", "%s", brim_status_detail());
  }
}

// Beside the sweep's own files, named so that a later sweep knows whose it was.
static char *temporary_folder(const bench *b) {
  char name[64];
  char *dir = brim_fs_dirname(b->best);
  snprintf(name, sizeof name, "verify" BRIM_FS_TEMP_MARK "%ld.0", (long)getpid());
  char *folder = dir ? brim_fs_join(dir, name) : NULL;
  brim_free(dir);
  return folder;
}

// The sweep's workload gives its memory back first.
static brim_status train(verify *v, const char *folder, brim_run_result *result) {
  brim_cli_job *job = v->bench->job;
  BRIM_TRY(load(v->bench, &v->bench->verified));
  const brim_config *config = v->bench->verified;
  brim_work_close(job->work);
  job->work = NULL;
  brim_work_context context = {.registry = job->registry, .device = job->device};
  brim_status status = brim_work_open(&context, config, &job->work);
  if (!status) {
    brim_run_options how = {.output_dir = folder,
                            .stop = &v->stop,
                            .on_start = on_start,
                            .on_progress = on_progress,
                            .on_epoch = on_epoch,
                            .ctx = v};
    status = brim_run_train(job->work, config, &how, result);
  }
  return status == BRIM_EINTERRUPTED && v->enough ? BRIM_OK : status;
}

//---------------------------------- what came out ----------------------------------

static void fill_record(const verify *v, double rate, brim_result *out) {
  const brim_result *best = &v->bench->results[v->bench->picks.recommended];
  brim_result_init(out);
  snprintf(out->kind, sizeof out->kind, "verify");
  out->when_s = brim_clock_wall_s();
  memcpy(out->workload, best->workload, sizeof out->workload);
  memcpy(out->device, best->device, sizeof out->device);
  memcpy(out->device_id, best->device_id, sizeof out->device_id);
  memcpy(out->library, best->library, sizeof out->library);
  memcpy(out->backend, best->backend, sizeof out->backend);
  memcpy(out->description, best->description, sizeof out->description);
  memcpy(out->host, best->host, sizeof out->host);
  memcpy(out->os, best->os, sizeof out->os);
  memcpy(out->cpu, best->cpu, sizeof out->cpu);
  memcpy(out->knobs, best->knobs, sizeof out->knobs);
  out->knob_count = best->knob_count;
  out->knob_set = best->knob_set;
  out->cores = best->cores;
  out->threads = best->threads;
  out->seed = best->seed;
  out->total_bytes = best->total_bytes;
  out->ceilings = best->ceilings;
  out->config = json_incref(best->config);
  out->plan = best->plan;
  out->plan.row_count = 0;  // the rows are the trial's
  out->samples_per_s = rate;
  out->epoch_s = rate > 0 && v->per_epoch > 0 ? (double)v->per_epoch / rate : (double)NAN;
  out->seconds = v->seconds;
  out->steps = (int)v->steps;
  out->repeats = 1;
  out->stable = true;
}

static brim_status tell_json(const bench *b) {
  const brim_verification *v = &b->proof;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "predicted_samples_per_s", brim_json_number(v->predicted.value));
  if (!s) s = brim_json_put(f, "achieved_samples_per_s", brim_json_number(v->achieved));
  if (!s) s = brim_json_put(f, "ratio", brim_json_number(v->achieved / v->predicted.value));
  if (!s) s = brim_json_put(f, "expected_low", brim_json_number(v->predicted.low));
  if (!s) s = brim_json_put(f, "expected_high", brim_json_number(v->predicted.high));
  bool known = v->predicted.low > 0 && isfinite(v->predicted.high);
  bool within = v->achieved >= v->predicted.low && v->achieved <= v->predicted.high;
  if (!s) s = brim_json_put(f, "as_expected", known ? json_boolean(within) : json_null());
  if (!s) s = brim_json_put(f, "others_cpu_percent_sweep", brim_json_number(v->others_then));
  if (!s) s = brim_json_put(f, "others_cpu_percent", brim_json_number(v->others_now));
  if (!s) s = brim_json_put(f, "epochs", json_integer(v->epochs));
  if (!s) s = brim_json_put(f, "steps", json_integer(v->steps));
  if (!s) s = brim_json_put(f, "partial", json_boolean(v->epochs == 0));
  if (!s) s = brim_json_put(f, "samples", brim_json_number(v->samples));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(v->seconds));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "verify", f);
}

static brim_status tell_text(const bench *b) {
  const brim_verification *v = &b->proof;
  char predicted[32], achieved[32], time[32], cap[32];
  brim_str text;
  brim_str_init(&text);
  brim_format_figure(v->predicted.value, predicted);
  brim_format_figure(v->achieved, achieved);
  brim_format_duration(v->seconds, time);
  brim_format_duration(v->cap_s, cap);
  brim_str_printf(&text,
                  brim_tr("\nverified      predicted %s %s/s, achieved %s in training: %.1f %%\n"),
                  predicted, brim_tr(brim_result_unit(&b->results[b->picks.recommended])), achieved,
                  brim_shown(100 * v->achieved / v->predicted.value));
  if (v->epochs == 0) {
    brim_str_printf(&text,
                    brim_tr("              over %s, a part of an epoch: --verify-seconds "
                            "ended it after %s\n"),
                    time, cap);
  } else {
    brim_str_printf(&text,
                    v->epochs == 1 ? brim_tr("              over %s of %" PRId64 " epoch\n")
                                   : brim_tr("              over %s of %" PRId64 " short epochs\n"),
                    time, v->epochs);
  }
  char comment[320];
  brim_ui_verified_comment(v, comment);
  if (comment[0]) {
    brim_str_append(&text, "              ");
    brim_ui_fit(&text, &b->cli->out, comment, 14);
    brim_str_append_char(&text, '\n');
  }
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

// What a later run was to be expected to reach: by the sweep, and by what other programs took in it.
static brim_interval expected(const bench *b) {
  const brim_result *r = &b->results[b->picks.recommended];
  brim_interval later = {.value = (double)NAN, .low = (double)NAN, .high = (double)NAN};
  if (b->race) later = brim_race_later(b->race, (size_t)b->picks.recommended);
  // never narrower than what is printed as its throughput
  later.low = fmin(later.low / exp(brim_result_log_load(r)), r->samples_per_s_low);
  later.high = fmax(later.high * exp(brim_result_log_load(r)), r->samples_per_s_high);
  later.value = r->samples_per_s;
  return later;
}

brim_status brim_cli_bench_verified(bench *b) {
  if (!b->proof_record) return BRIM_OK;
  return b->cli->json ? tell_json(b) : tell_text(b);
}

// The whole run's own figure where it was too short for one without the start.
static brim_status keep(verify *v, const brim_run_result *result) {
  bench *b = v->bench;
  double rate = v->seconds > 0 ? v->samples / v->seconds : (double)NAN;
  if (isnan(rate)) {
    rate = result->samples_per_s;
    v->seconds = result->seconds;
  }
  v->steps = result->steps_run;
  b->proof_record = brim_calloc(1, sizeof *b->proof_record);
  if (!b->proof_record) return brim_fail(BRIM_ENOMEM, "out of memory while verifying");
  fill_record(v, rate, b->proof_record);
  brim_interval later = expected(b);
  brim_host_sample now;
  read_host(&now);
  b->proof =
      (brim_verification){.predicted = later,
                          .others_then = brim_results_others(b->results, b->count),
                          .others_now = brim_host_usage_between(&v->host, &now).others_cpu_percent,
                          .achieved = rate,
                          .samples = v->samples,
                          .seconds = v->seconds,
                          .cap_s = v->cap_s,
                          .epochs = v->epochs,
                          .steps = v->steps};
  b->record_status = BRIM_OK;  // the file was written again since, and will be once more
  brim_cli_bench_record(b, b->proof_record);
  return BRIM_OK;
}

brim_status brim_cli_bench_verify_check(bench *b) {
  b->verify = brim_option_flag(&b->cli->parse, "verify", false);
  if (b->verify && b->plan_only) {
    return brim_cli_usage(b->cli, BRIM_N_("--verify needs a measurement; leave out --plan"));
  }
  if (brim_option_int(&b->cli->parse, "verify-seconds", DEFAULT_SECONDS) < 1) {
    return brim_cli_usage(b->cli, BRIM_N_("--verify-seconds must be 1 or more"));
  }
  return BRIM_OK;
}

brim_status brim_cli_bench_verify(bench *b) {
  if (!b->verify) return BRIM_OK;
  if (b->picks.recommended < 0) return brim_cli_bench_no_pick(b, "verify");
  verify v = {.bench = b,
              .cap_s = (double)brim_option_int(&b->cli->parse, "verify-seconds", DEFAULT_SECONDS)};
  brim_run_result result;
  memset(&result, 0, sizeof result);
  char *folder = temporary_folder(b);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while verifying");
  b->cli->running = true;
  brim_status status = train(&v, folder, &result);
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  remove_folder(folder);
  brim_free(folder);
  if (status == BRIM_EINTERRUPTED) {  // what training says of continuing is not true of this one
    return brim_fail(status, "interrupted while verifying; the files of the sweep are complete");
  }
  if (status) {
    brim_status_set_detail(detail);
    return brim_fail_context(status, "verifying the recommendation");
  }
  brim_status_clear();
  return keep(&v, &result);
}
