// The public session: a registry, a device and a workload in one object, for C programs that use libbrim.
#include "brim/session.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "measure/measure.h"
#include "workload/workload.h"

struct brim_session {
  const brim_config *config;  // borrowed; outlives the session
  brim_registry *registry;
  brim_device *device;
  brim_work *work;
  char device_text[192];
};

// Finds the real path of the shared object or program that contains this code. Returns false if it is unknown.
static bool own_path(char out[PATH_MAX]) {
  static const char anchor = 0;
  Dl_info info;
  return dladdr(&anchor, &info) && info.dli_fname && realpath(info.dli_fname, out);
}

// Loads the plug-ins installed with this library: from $BRIM_PLUGIN_PATH, else from brim/ beside libbrim.so. If
// libbrim is linked into a program, it uses the program's standard places instead of brim/.
static brim_status load_installed(brim_registry *registry) {
  char own[PATH_MAX], program[PATH_MAX];
  if (getenv("BRIM_PLUGIN_PATH") || !own_path(own) || !realpath("/proc/self/exe", program) ||
      strcmp(own, program) == 0) {
    return brim_registry_load_default(registry);
  }
  char *beside = brim_fs_dirname(own);
  char *folder = beside ? brim_fs_join(beside, "brim") : NULL;
  brim_free(beside);
  if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for the plug-in folder");
  brim_status status = brim_registry_load_folder(registry, folder);
  brim_free(folder);
  return status;
}

static bool is_listed(const char *const *plugins, const char *path) {
  for (; plugins && *plugins; plugins++) {
    if (strcmp(*plugins, path) == 0 || brim_fs_same(*plugins, path)) return true;
  }
  return false;
}

// Loads the installed plug-ins and those that the caller lists. Fails if the config names another one: a plug-in is
// code, and a config may come from anywhere.
static brim_status load_plugins(brim_session *s, const char *const *plugins) {
  BRIM_TRY(brim_registry_create(&s->registry));
  BRIM_TRY(load_installed(s->registry));
  for (const char *const *p = plugins; p && *p; p++) BRIM_TRY(brim_registry_load(s->registry, *p));
  const char *const *named = NULL;
  size_t count = 0;
  BRIM_TRY(brim_config_get_strings(s->config, "plugins", &named, &count));
  for (size_t i = 0; i < count; i++) {
    if (is_listed(plugins, named[i])) continue;
    return brim_fail(BRIM_EINVAL,
                     "the config names the plug-in %s, which is not in the list of plug-ins that "
                     "brim_session_open was given",
                     named[i]);
  }
  return BRIM_OK;
}

static brim_status open_all(brim_session *s, const char *const *plugins) {
  const char *spec = NULL;
  BRIM_TRY(brim_work_refuse_grid(s->config));
  BRIM_TRY(brim_work_device_spec(s->config, &spec));
  BRIM_TRY(load_plugins(s, plugins));
  brim_device_options options;
  BRIM_TRY(brim_work_device_options(s->config, &options));
  BRIM_TRY(brim_device_open(s->registry, spec, &options, &s->device));
  snprintf(s->device_text, sizeof s->device_text, "%s: %s", s->device->backend->name,
           s->device->info.name);
  brim_work_context context = {.registry = s->registry, .device = s->device};
  BRIM_TRY(brim_work_open(&context, s->config, &s->work));
  brim_setting setting = brim_work_setting(s->work);
  brim_plan plan;
  BRIM_TRY(s->work->table->plan(s->work->state, &setting, &plan));
  uint64_t limit = (uint64_t)brim_config_int(s->config, "gpu.memory_limit");
  BRIM_TRY(brim_work_check_fit(s->work, &setting, &plan, limit));
  return s->work->table->configure(s->work->state, &setting);
}

brim_status brim_session_open(const brim_config *config, const char *const *plugins,
                              brim_session **out) {
  brim_session *s = (brim_session *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory while opening a session");
  s->config = config;
  brim_status status = open_all(s, plugins);
  if (status) {
    brim_session_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

void brim_session_close(brim_session *session) {
  if (!session) return;
  brim_work_close(session->work);
  brim_device_close(session->device);
  brim_registry_destroy(session->registry);
  brim_free(session);
}

const char *brim_session_device(const brim_session *session) { return session->device_text; }

brim_status brim_session_plan(brim_session *session, brim_plan *out) {
  brim_setting setting = brim_work_setting(session->work);
  return session->work->table->plan(session->work->state, &setting, out);
}

brim_status brim_session_step(brim_session *session, brim_session_step_result *out) {
  brim_step_info info;
  BRIM_TRY(session->work->table->step(session->work->state, NULL, &info));
  out->step = info.step;
  out->epoch = info.epoch;
  out->samples = info.samples;
  out->epoch_end = info.epoch_end;
  out->lr = info.lr;
  return BRIM_OK;
}

_Static_assert((int)BRIM_METRIC_MAX <= (int)BRIM_SESSION_METRICS, "all rows of a workload fit");
static void copy_metrics(const brim_work_metrics *from, brim_session_metrics *to) {
  const brim_metric_set *set = from->set;
  memset(to, 0, sizeof *to);
  to->samples = from->samples;
  for (size_t i = 0; i < set->count; i++) {
    to->keys[to->count] = set->rows[i].key;
    to->values[to->count++] = from->values[i];
  }
}

double brim_session_value(const brim_session_metrics *metrics, const char *key) {
  for (size_t i = 0; i < metrics->count; i++) {
    if (strcmp(metrics->keys[i], key) == 0) return metrics->values[i];
  }
  return (double)NAN;
}

brim_status brim_session_metrics_read(brim_session *session, brim_session_metrics *out) {
  brim_work_metrics metrics;
  BRIM_TRY(session->work->table->metrics(session->work->state, true, &metrics));
  copy_metrics(&metrics, out);
  return BRIM_OK;
}

brim_status brim_session_evaluate(brim_session *session, brim_session_metrics *out) {
  brim_work_metrics metrics;
  BRIM_TRY(brim_work_evaluate(session->work, &metrics));
  copy_metrics(&metrics, out);
  return BRIM_OK;
}

brim_status brim_session_save(brim_session *session, const char *path) {
  return session->work->table->save(session->work->state, path, NULL, false);
}

brim_status brim_session_load(brim_session *session, const char *path) {
  return session->work->table->load(session->work->state, path, NULL);
}

static brim_status append_result(const brim_result *result, const char *path) {
  json_t *json = NULL;
  char *text = NULL;
  brim_status status = brim_result_to_json(result, &json);
  if (!status) status = brim_json_dump(json, 0, &text);
  if (!status) status = brim_fs_append_line(path, text);
  brim_free(text);
  json_decref(json);
  return status;
}

brim_status brim_session_measure(brim_session *session, int steps, const char *path) {
  brim_setting setting = brim_work_setting(session->work);
  brim_trial_options options;
  memset(&options, 0, sizeof options);
  options.steps = steps;
  options.configured = true;
  brim_result result;
  brim_status status =
      brim_trial_run(session->work, session->config, session->device, &setting, &options, &result);
  if (!status && result.failure != BRIM_FAILURE_NONE) {
    status = brim_fail(BRIM_EDEVICE, "the measurement failed (%s): %s",
                       brim_failure_name(result.failure), result.message);
  }
  if (!status) status = append_result(&result, path);
  brim_result_deinit(&result);
  return status;
}
