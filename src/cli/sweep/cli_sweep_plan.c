// `brim sweep plan`, started by the sweep and not by people: reads questions from its standard input,
// one JSON object a line, and answers each with what the experiment will need (lab/lab_plan.h). Ends
// with its input. A question that cannot be answered is answered with a class and a message.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/cli_job.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/lab_plan.h"
#include "run/run.h"

// Of a measured setting: enough to tell hours from days.
enum { MEASURED_STEPS = 5, MEASURED_WARMUP = 5 };
#define MEASURED_SECONDS 10.0

typedef struct planner {
  brim_cli *cli;
  brim_cli_job job;  // its device stays open while questions want the same
  char spec[64];     // it was opened by
  bool plugged;      // the plug-ins of the grid are loaded: no axis changes them
  double ready_s;    // what loading the plug-ins of this program took: drivers begin there
  double device_s;   // what opening the device took
} planner;

static brim_failure class_of(const brim_cli_job *job, brim_status status) {
  switch (status) {
    case BRIM_EOOM:
      return BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_EDEVICE:
      return brim_cli_device_class(job);
    case BRIM_EIO:
    case BRIM_EEND:
      return BRIM_FAILURE_DATA;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_ELIMIT:
      return BRIM_FAILURE_BAD_CONFIG;
    default:
      return BRIM_FAILURE_OTHER;
  }
}

//---------------------------------- opening ----------------------------------

static void close_work(planner *p) {
  brim_work_close(p->job.work);
  brim_config_close(p->job.config);
  p->job.work = NULL;
  p->job.config = NULL;
  p->job.memory.held = 0;
}

static void close_device(planner *p) {
  brim_device_close(p->job.device);
  p->job.device = NULL;
  p->spec[0] = '\0';
}

static double seconds_since(brim_time begin) {
  return (double)brim_time_since_ns(begin, brim_clock_now()) * 1e-9;
}

// What the preset `auto` is of: the GPU that is asked about.
static void facts_of(const planner *p, const char *device, brim_device_info *info,
                     brim_config_facts *out) {
  const brim_backend *cuda = brim_registry_backend(p->job.registry, "cuda");
  const char *colon = strchr(device, ':');
  int64_t index = 0;
  int count = 0;
  memset(out, 0, sizeof *out);
  out->cpu_cores = brim_cpu_count();
  if (!brim_str_starts(device, "cuda") && strcmp(device, "auto") != 0) return;
  if (colon && !brim_parse_i64(colon + 1, &index)) return;
  if (!cuda || cuda->device_count(&count) || index < 0 || index >= count) return;
  if (cuda->device_info((int)index, info)) return;
  out->gpu_name = info->name;
  out->gpu_bytes = info->total_bytes;
}

static brim_status load(planner *p, const char *text, const char *device) {
  brim_device_info info;
  brim_config_facts facts;
  char override[96];
  const char *const overrides[] = {override};
  snprintf(override, sizeof override, "device=%s", device);
  facts_of(p, device, &info, &facts);
  const brim_config_options options = {.text = text,
                                       .text_name = "experiment",
                                       .no_include = true,
                                       .overrides = overrides,
                                       .override_count = 1,
                                       .facts = &facts};
  BRIM_TRY(brim_config_load(&options, &p->job.config));
  BRIM_TRY(brim_work_refuse_grid(p->job.config));
  if (p->plugged) return BRIM_OK;
  BRIM_TRY(brim_cli_job_plugins(p->cli, &p->job));
  p->plugged = true;
  return BRIM_OK;
}

static brim_status open_work(planner *p) {
  const char *spec;
  brim_device_options options;
  brim_cli_job *job = &p->job;
  BRIM_TRY(brim_work_device_spec(job->config, &spec));
  BRIM_TRY(brim_work_device_options(job->config, &options));
  if (job->device &&
      (strcmp(spec, p->spec) != 0 || memcmp(&options, &job->options, sizeof options) != 0)) {
    close_device(p);
  }
  if (!job->device) {
    const brim_time begin = brim_clock_now();
    job->options = options;
    BRIM_TRY(brim_cli_device_open(job, spec, &job->options, &job->memory, &job->device));
    snprintf(p->spec, sizeof p->spec, "%s", spec);
    p->device_s = seconds_since(begin);
  }
  const brim_work_context context = {.registry = job->registry, .device = job->device};
  return brim_work_open(&context, job->config, &job->work);
}

//---------------------------------- planning ----------------------------------

// Steps of an epoch before anything is built.
static double epoch_steps(const brim_cli_job *job, const brim_work_info *info,
                          const brim_plan *plan) {
  if (info->steps_per_epoch > 0) return (double)info->steps_per_epoch;
  if (info->set_samples <= 0 || !(plan->samples_per_step > 0)) return (double)NAN;
  const double steps = (double)info->set_samples / plan->samples_per_step;
  return brim_config_bool(job->config, "data.drop_last") && steps >= 1 ? floor(steps) : ceil(steps);
}

static void count_steps(const brim_cli_job *job, const brim_plan *plan, brim_lab_plan *out) {
  brim_work_info info;
  memset(&info, 0, sizeof info);
  job->work->table->info(job->work->state, &info);
  const int64_t most = brim_config_int(job->config, "training.steps");
  out->epochs =
      (double)(info.epochs > 0 ? info.epochs : brim_config_int(job->config, "training.epochs"));
  out->steps = info.steps > 0 ? (double)info.steps : out->epochs * epoch_steps(job, &info, plan);
  if (most > 0 && !((double)most >= out->steps)) out->steps = (double)most;
  out->evaluates = info.eval_samples > 0;
}

static void take_result(const brim_cli_job *job, const brim_result *r, brim_lab_plan *out) {
  uint64_t free_bytes, total_bytes;
  out->failure = r->failure;
  snprintf(out->message, sizeof out->message, "%s", r->message);
  brim_utf8_trim(out->message);
  if (brim_device_memory(job->device, &free_bytes, &total_bytes) == BRIM_OK) {
    out->free = (double)free_bytes;
    out->total = (double)total_bytes;
  }
  brim_status_clear();
  if (r->plan.row_count == 0) return;
  out->planned_device = (double)r->plan.bytes[BRIM_PLACE_DEVICE];
  out->planned_host = (double)r->plan.bytes[BRIM_PLACE_HOST];
  out->overhead = r->overhead_bytes;
  out->samples_per_step = r->plan.samples_per_step;
  count_steps(job, &r->plan, out);
}

// Building the network, choosing algorithms and the first, slower steps are part of every run.
static brim_status measure(brim_cli_job *job, const brim_setting *setting,
                           const brim_trial_options *how, brim_lab_plan *out) {
  const brim_time begin = brim_clock_now();
  brim_trial_options options = *how;
  brim_result r;
  brim_result_init(&r);
  options.steps = options.min_steps = MEASURED_STEPS;
  options.max_warmup = MEASURED_WARMUP;
  options.max_seconds = MEASURED_SECONDS;
  brim_status status = brim_trial_run(job->work, job->config, job->device, setting, &options, &r);
  if (!status && brim_result_ran(&r)) {
    out->step_s = r.total_ms.median / 1000;
    out->start_s = fmax(0, seconds_since(begin) - (double)r.steps * out->step_s);
    if (!isnan(r.overhead_bytes)) out->overhead = r.overhead_bytes;
  } else if (!status) {
    out->failure = r.failure;
    snprintf(out->message, sizeof out->message, "%s", r.message);
    brim_utf8_trim(out->message);
  }
  brim_result_deinit(&r);
  return status;
}

static brim_status plan(planner *p, const json_t *question, brim_lab_plan *out) {
  const char *text = json_string_value(json_object_get(question, "config"));
  brim_cli_job *job = &p->job;
  if (!text) return brim_fail(BRIM_EPARSE, "the question has no config");
  const brim_time begin = brim_clock_now();
  const bool opened = job->device != NULL;
  BRIM_TRY(load(p, text, out->device));
  BRIM_TRY(open_work(p));
  // An experiment opens its device itself, also where this process has it open.
  const double open_s = seconds_since(begin) + (opened ? p->device_s : 0);
  snprintf(out->name, sizeof out->name, "%s", job->device->info.name);
  const brim_setting setting = brim_work_setting(job->work);
  const brim_trial_options how = {
      .memory_limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit"),
      .memory = &job->memory,
      .stop = p->cli->stop};
  brim_result r;
  brim_result_init(&r);
  brim_status status = brim_trial_plan(job->work, job->config, job->device, &setting, &how, &r);
  if (!status) take_result(job, &r, out);
  if (!status && out->failure == BRIM_FAILURE_OOM_PLANNED) {
    out->adapts = brim_run_adapts(job->work, job->config);
  }
  brim_result_deinit(&r);
  const bool asked = json_is_true(json_object_get(question, "measure"));
  if (status || !asked || out->failure != BRIM_FAILURE_NONE) return status;
  BRIM_TRY(measure(job, &setting, &how, out));
  out->start_s += p->ready_s + open_s;
  return BRIM_OK;
}

//---------------------------------- lines ----------------------------------

static void copy_text(const json_t *question, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(question, key));
  snprintf(out, size, "%s", text ? text : "");
}

static brim_status answer(planner *p, const char *line, size_t size) {
  json_t *question, *reply;
  brim_lab_plan out;
  brim_lab_plan_init(&out);
  brim_status status = brim_json_parse(line, size, "standard input", &question);
  if (!status) {
    copy_text(question, "id", out.id, sizeof out.id);
    copy_text(question, "device", out.device, sizeof out.device);
    if (!out.device[0]) snprintf(out.device, sizeof out.device, "auto");
    status = plan(p, question, &out);
    json_decref(question);
  }
  if (status == BRIM_EINTERRUPTED) return status;
  if (status) {
    out.failure = class_of(&p->job, status);
    snprintf(out.message, sizeof out.message, "%s", brim_status_detail());
    brim_utf8_trim(out.message);
    brim_status_clear();
  }
  close_work(p);
  // Nothing is asked of a device any more that crashed.
  if (out.failure == BRIM_FAILURE_CRASH) close_device(p);
  BRIM_TRY(brim_lab_plan_to_json(&out, &reply));
  return brim_cli_json(p->cli, reply);
}

brim_status brim_cli_sweep_plan(brim_cli *cli) {
  planner p = {.cli = cli};
  char *line = NULL;
  size_t cap = 0;
  ssize_t size;
  const brim_time begin = brim_clock_now();
  brim_status status = brim_cli_registry(cli, &p.job.registry);
  p.ready_s = seconds_since(begin);
  while (!status && (size = getline(&line, &cap, stdin)) >= 0) {
    if (size > 1) status = answer(&p, line, (size_t)size);
    if (!status && fflush(stdout) != 0) status = BRIM_EEND;  // the sweep has ended
  }
  free(line);
  close_work(&p);
  brim_cli_job_close(&p.job);
  return status == BRIM_EEND ? BRIM_OK : status;
}
