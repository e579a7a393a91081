// Opening what train and bench work on. Nothing is written here.
#include "cli/job/cli_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

brim_status brim_cli_registry(brim_cli *cli, brim_registry **out) {
  brim_registry *registry = NULL;
  *out = NULL;
  BRIM_TRY(brim_registry_create(&registry));
  brim_status status = brim_registry_load_default(registry);
  for (size_t i = 0; i < cli->parse.count && !status; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    status = brim_registry_load(registry, item->values[0]);
  }
  if (status) {
    brim_registry_destroy(registry);
    return status;
  }
  *out = registry;
  return BRIM_OK;
}

void brim_cli_facts(const brim_registry *registry, brim_device_info *info, brim_config_facts *out) {
  memset(out, 0, sizeof *out);
  out->cpu_cores = brim_cpu_count();
  const brim_backend *cuda = brim_registry_backend(registry, "cuda");
  int count = 0;
  if (!cuda || cuda->device_count(&count) || count < 1) return;
  if (cuda->device_info(0, info)) return;
  out->gpu_name = info->name;
  out->gpu_bytes = info->total_bytes;
}

// Was this plug-in named by --plugin, and so loaded already?
static bool is_loaded(const brim_cli *cli, const char *path) {
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    if (strcmp(item->values[0], path) == 0 || brim_fs_same(item->values[0], path)) return true;
  }
  return false;
}

// A plug-in is code. One that only a file names is not run before the user has agreed to it.
brim_status brim_cli_job_plugins(const brim_cli *cli, brim_cli_job *job) {
  const char *const *paths;
  size_t count;
  BRIM_TRY(brim_config_get_strings(job->config, "plugins", &paths, &count));
  bool agreed = brim_option_flag(&cli->parse, "allow-plugins", false) ||
                brim_config_layer_of(job->config, "plugins") == BRIM_CONFIG_FROM_OVERRIDE;
  for (size_t i = 0; i < count; i++) {
    if (is_loaded(cli, paths[i])) continue;
    if (!agreed) {
      return brim_fail(BRIM_EINVAL,
                       "%s names the plug-in %s, and a plug-in runs as part of brim; load it with "
                       "--plugin %s if you trust it, or all that the config names with "
                       "--allow-plugins",
                       brim_config_origin(job->config, "plugins"), paths[i], paths[i]);
    }
    BRIM_TRY(brim_registry_load(job->registry, paths[i]));
  }
  return BRIM_OK;
}

// A key whose room is not built yet is no error, but the user must not believe that it did
// something. Those of a preset were not asked for by name.
static void warn_unused(const brim_config *config) {
  const char *workload = brim_config_string(config, "workload");
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *key = brim_config_key_at(i)->name, *dot = strchr(key, '.');
    if (!dot || brim_config_layer_of(config, key) != BRIM_CONFIG_FROM_OVERRIDE) continue;
    for (size_t k = 0; brim_workload_at(k); k++) {
      const char *name = brim_workload_at(k)->name;
      if (strlen(name) != (size_t)(dot - key) || strncmp(name, key, strlen(name)) != 0 ||
          !workload || strcmp(name, workload) == 0) {
        continue;
      }
      brim_log_warn("config", "%s (%s) has no effect on workload %s", key,
                    brim_config_origin(config, key), workload);
    }
  }
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!brim_config_is_set(config, key->name) || brim_config_key_is_used(key)) continue;
    if (brim_config_layer_of(config, key->name) == BRIM_CONFIG_FROM_PRESET) continue;
    brim_log_warn("config", "%s (%s) has no effect in this version", key->name,
                  brim_config_origin(config, key->name));
  }
}

// "override data.batch_size:1:1: must be ..." of an option is reported as the option that was
// typed.
static brim_status name_option(brim_cli *cli, brim_status status) {
  static const char before[] = "override ";
  char key[128] = "", text[512], typed[64];
  const char *detail = brim_status_detail();
  if (status == BRIM_ENOMEM || !brim_str_starts(detail, before)) return status;
  const char *at = detail + strlen(before);
  size_t n = strcspn(at, ": ");
  if (n >= sizeof key || at[n] != ':') return status;
  memcpy(key, at, n);
  for (size_t i = 0; i < cli->parse.positional_count; i++) {  // written out by hand: stays so
    const char *word = cli->parse.positional[i];
    if (strncmp(word, key, n) == 0 && word[n] == '=') return status;
  }
  if (!brim_cli_typed(cli, key, typed)) return status;
  at += n;
  while (*at == ':' || (*at >= '0' && *at <= '9')) at++;  // a place in the option's text
  snprintf(text, sizeof text, "%s:%s", typed, at);
  brim_status_set_detail(text);
  cli->usage_error = true;
  return status;
}

// Is this a list of values to try, benchmark.X_options, of a knob that the workload has?
static bool tries_knob(const char *key, const brim_workload_table *table) {
  static const char prefix[] = "benchmark.", suffix[] = "_options";
  char knob[64];
  size_t n = strlen(key), around = sizeof prefix + sizeof suffix - 2;
  if (!brim_str_starts(key, prefix) || n <= around || n - around >= sizeof knob) return false;
  if (strcmp(key + n - (sizeof suffix - 1), suffix) != 0) return false;
  snprintf(knob, sizeof knob, "%.*s", (int)(n - around), key + sizeof prefix - 1);
  return brim_knob_find(table->knob_set, knob) != NULL;
}

// The workload whose own keys are given where the config names none: of several the first that has all of
// them, under its own name or another's. NULL = no such keys.
static const char *workload_of_keys(const brim_config *config) {
  const brim_workload_table *table;
  char own[64];
  for (size_t w = 0; (table = brim_workload_at(w)); w++) {
    size_t given = 0, foreign = 0;
    for (size_t i = 0; i < brim_config_key_count(); i++) {
      const char *key = brim_config_key_at(i)->name, *dot = strchr(key, '.');
      if (!dot || !brim_config_is_asked(config, key)) continue;
      if (tries_knob(key, brim_workload_at(0))) continue;  // it is the default's, too
      size_t n = (size_t)(dot - key);
      bool of_it =
          (strlen(table->name) == n && strncmp(table->name, key, n) == 0) || tries_knob(key, table);
      bool of_other = false;
      for (size_t k = 0; brim_workload_at(k) && !of_it; k++) {
        const char *name = brim_workload_at(k)->name;
        of_other = of_other || (strlen(name) == n && strncmp(name, key, n) == 0) ||
                   tries_knob(key, brim_workload_at(k));
      }
      given += of_it;
      foreign += of_other && !brim_cli_own_key(key, table->name, own);
    }
    if (given && !foreign) return table->name;
  }
  return NULL;
}

// What a config that names neither workload nor model nor data is about: a file under the name of one of
// brim's own is about what that is, keys of one workload are about that workload. *base is the config
// that lies below it then, *workload its name.
static brim_status find_base(const brim_cli *cli, const brim_config_options *options,
                             const brim_config *config, char **base, char workload[64]) {
  static const char *const names[] = {"workload", "model", "transform", "dataset"};
  *base = NULL;
  workload[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (brim_config_is_set(config, names[i])) return BRIM_OK;
  }
  if (options->path) {
    BRIM_TRY(brim_cli_shipped_config(options->path, base));
    brim_config *shipped = NULL;
    if (*base) {
      const brim_config_options how = {
          .path = *base, .mode = options->mode, .facts = options->facts};
      BRIM_TRY(brim_config_load(&how, &shipped));
      snprintf(workload, 64, "%s", brim_config_string(shipped, "workload"));
      bool other = strcmp(workload, brim_config_string(config, "workload")) != 0;
      brim_config_close(shipped);
      if (other) return BRIM_OK;
      brim_free(*base);
      *base = NULL;
      workload[0] = '\0';
    }
  }
  const char *path = brim_config_string(config, "data.path");
  const char *own = path && *path ? NULL : workload_of_keys(config);
  if (!own) return BRIM_OK;
  snprintf(workload, 64, "%s", own);
  return brim_cli_start_config(cli, own, base);
}

static brim_status load_on_base(brim_cli *cli, const brim_config_options *options,
                                brim_config **out) {
  brim_config_options how = *options;
  char *base = NULL, workload[64];
  BRIM_TRY(brim_config_load(options, out));
  brim_status status = find_base(cli, options, *out, &base, workload);
  if (!status && base) {
    brim_log_warn("config",
                  "%s names no workload: brim trains %s and takes what is left open from %s; "
                  "workload=NAME chooses another",
                  options->path ? options->path : brim_tr("the command line"), workload,
                  brim_fs_basename(base));
    brim_config_close(*out);
    *out = NULL;
    how.base = base;
    status = brim_config_load(&how, out);
  }
  brim_free(base);
  return status;
}

brim_status brim_cli_load_config(brim_cli *cli, const brim_config_options *options,
                                 brim_cli_input *input, brim_config **out) {
  bool changed = false;
  brim_status status = load_on_base(cli, options, out);
  if (!status) status = brim_cli_input_suit(cli, *out, input, &changed);
  if (!status && changed) {
    bool before = brim_log_hush(true);  // the first load said it
    brim_config_close(*out);
    *out = NULL;
    status = load_on_base(cli, options, out);
    brim_log_hush(before);
  }
  return status ? name_option(cli, status) : BRIM_OK;
}

// A path of the file that is not here, but beside the file: it was written for that folder.
static brim_status check_data_path(const brim_cli_job *job) {
  const char *path = brim_config_string(job->config, "data.path");
  if (!path || !*path || *path == '/' || !job->input.path || brim_fs_exists(path)) return BRIM_OK;
  if (brim_config_layer_of(job->config, "data.path") != BRIM_CONFIG_FROM_FILE) return BRIM_OK;
  char *dir = brim_fs_dirname(job->input.path);
  char *beside = dir ? brim_fs_join(dir, path) : NULL;
  brim_status status = BRIM_OK;
  if (!beside) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
  } else if (brim_fs_exists(beside)) {
    status = brim_fail(BRIM_ENOENT,
                       "data.path %s is not in the current folder, but %s exists; paths are "
                       "relative to the current folder: add --data-path %s, or run brim in %s",
                       path, beside, beside, dir);
  }
  brim_free(beside);
  brim_free(dir);
  return status;
}

static brim_status load_job_config(brim_cli *cli, const brim_config_facts *facts,
                                   brim_cli_job *job) {
  brim_config_options options = {.path = job->input.path,
                                 .overrides = (const char *const *)job->input.overrides,
                                 .override_count = job->input.count,
                                 .mode = BRIM_CONFIG_RUN,
                                 .facts = facts};
  BRIM_TRY(brim_cli_load_config(cli, &options, &job->input, &job->config));
  for (size_t i = 0; i < brim_config_warning_count(job->config); i++) {
    brim_log_warn("config", "%s", brim_config_warning(job->config, i));
  }
  return BRIM_OK;
}

brim_status brim_cli_job_config(brim_cli *cli, brim_cli_job *job) {
  brim_device_info gpu;
  brim_config_facts facts;
  BRIM_TRY(brim_cli_input_init(cli, &job->input));
  BRIM_TRY(brim_cli_registry(cli, &job->registry));
  brim_cli_facts(job->registry, &gpu, &facts);
  BRIM_TRY(load_job_config(cli, &facts, job));
  BRIM_TRY(brim_work_refuse_grid(job->config));
  BRIM_TRY(check_data_path(job));
  warn_unused(job->config);
  return brim_cli_job_plugins(cli, job);
}

brim_status brim_cli_grid_config(brim_cli *cli, const brim_config_facts *facts, brim_cli_job *job) {
  BRIM_TRY(brim_cli_input_init(cli, &job->input));
  BRIM_TRY(load_job_config(cli, facts, job));
  BRIM_TRY(check_data_path(job));
  warn_unused(job->config);
  return BRIM_OK;
}

// The GPU that a device spec ("auto", "cuda", "cuda:1") will open; "" when it is none. Asking does
// not open it.
static void find_gpu(const brim_registry *registry, const char *spec, char uuid[64]) {
  bool any = strcmp(spec, "auto") == 0;
  uuid[0] = '\0';
  if (!any && !brim_str_starts(spec, "cuda")) return;
  const brim_backend *cuda = brim_registry_backend(registry, "cuda");
  const char *colon = strchr(spec, ':');
  int64_t index = 0;
  int count = 0;
  brim_device_info info;
  if (colon && !brim_parse_i64(colon + 1, &index)) return;
  if (cuda && !cuda->device_count(&count) && index >= 0 && index < count &&
      !cuda->device_info((int)index, &info) && info.kind == BRIM_DEVICE_GPU) {
    snprintf(uuid, 64, "%s", info.id);
  }
  brim_status_clear();
}

static void watch_memory(brim_cli_job *job, const char *spec, const char *folder,
                         brim_memory_watch *watch) {
  char uuid[64];
  find_gpu(job->registry, spec, uuid);
  if (uuid[0] && !job->monitor && brim_gpu_monitor_open(&job->monitor)) {
    brim_log_info("cli", "cannot list the processes that use GPU memory: %s", brim_status_detail());
    brim_status_clear();
  }
  brim_memory_watch_init(watch, job->monitor, uuid, folder);
}

brim_status brim_cli_device_open(brim_cli_job *job, const char *spec,
                                 const brim_device_options *options, brim_memory_watch *watch,
                                 brim_device **out) {
  watch_memory(job, spec, options->cache_folder, watch);
  brim_status status = brim_device_open(job->registry, spec, options, out);
  // A device that is not here is not a file that is not here.
  job->absent = status == BRIM_ENOENT || status == BRIM_EABI;
  if (job->absent) status = BRIM_EDEVICE;
  if (status == BRIM_EOOM) return brim_fit_explain_open(watch);
  if (status) return status;
  brim_memory_watch_opened(watch, *out);
  return BRIM_OK;
}

brim_failure brim_cli_device_class(const brim_cli_job *job) {
  return job->absent ? BRIM_FAILURE_UNSUPPORTED : BRIM_FAILURE_INFRASTRUCTURE;
}

int brim_cli_job_gpus(const brim_cli_job *job) {
  const brim_backend *cuda = brim_registry_backend(job->registry, "cuda");
  int count = 0;
  if (cuda && cuda->device_count(&count) == BRIM_OK) return count;
  brim_status_clear();
  return 0;
}

// This rank's device, and its part of the machine's cores.
static brim_status rank_device(brim_cli_job *job, const char **spec, char own[64]) {
  const char *devices[BRIM_RANKS_MAX];
  size_t count = brim_work_device_count(job->config);
  if (count > BRIM_RANKS_MAX) count = BRIM_RANKS_MAX;
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_work_device_at(job->config, i, &devices[i]));
  brim_ranks_device(job->ranks, devices, count, brim_cli_job_gpus(job), own, 64);
  *spec = own;
  if (job->options.threads == 0) {
    job->options.threads = brim_ranks_threads(job->ranks, brim_cpu_count());
  }
  return BRIM_OK;
}

brim_status brim_cli_job_open(brim_cli *cli, brim_cli_job *job) {
  const char *spec = NULL;
  char own[64];
  BRIM_TRY(job->on_first || job->ranks ? brim_work_device_at(job->config, 0, &spec)
                                       : brim_work_device_spec(job->config, &spec));
  job->any_device = strcmp(spec, "auto") == 0;
  BRIM_TRY(brim_work_device_options(job->config, &job->options));
  if (job->ranks) BRIM_TRY(rank_device(job, &spec, own));
  BRIM_TRY(brim_cli_device_open(job, spec, &job->options, &job->memory, &job->device));
  BRIM_TRY(brim_ranks_attach(job->ranks, job->device, job->exchange));
  brim_work_context context = {.registry = job->registry,
                               .device = job->device,
                               .comm = brim_ranks_comm(job->ranks),
                               .evaluates = job->evaluates};
  BRIM_TRY(brim_work_open(&context, job->config, &job->work));
  cli->opened = true;
  return BRIM_OK;
}

brim_status brim_cli_job_reopen(brim_cli *cli, brim_cli_job *job) {
  brim_work_close(job->work);
  brim_device_close(job->device);
  job->work = NULL;
  job->device = NULL;
  return brim_cli_job_open(cli, job);  // the monitor stays: a sampler may be using it
}

static bool has_control(const char *text) {
  for (const char *p = text; *p; p++) {
    if ((unsigned char)*p < 0x20 || *p == 0x7f) return true;
  }
  return false;
}

brim_status brim_cli_job_name(const brim_cli_job *job, char **out) {
  const char *name = brim_config_string(job->config, "name");
  *out = NULL;
  if (!name && job->input.path) name = brim_fs_basename(job->input.path);
  if (!name) name = brim_config_string(job->config, "workload");
  if (has_control(name)) {
    return brim_fail(BRIM_EINVAL,
                     "the name of this run has control characters; set another with name=NAME");
  }
  size_t n = strlen(name);
  if (brim_str_ends(name, ".yaml")) n -= 5;
  if (brim_str_ends(name, ".yml")) n -= 4;
  *out = brim_strndup(name, n);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the name of a run");
}

const char *brim_cli_job_output_dir(const brim_cli_job *job) {
  const char *dir = brim_config_string(job->config, "output_dir");
  // "runs" is the folder of folders, also where a printed config names it; asked for by name it is taken
  bool asked = brim_config_layer_of(job->config, "output_dir") == BRIM_CONFIG_FROM_OVERRIDE;
  return dir && (asked || strcmp(dir, "runs") != 0) ? dir : NULL;
}

brim_status brim_cli_job_run_dir(const brim_cli_job *job, char **out) {
  const char *given = brim_cli_job_output_dir(job);
  char *name = NULL;
  brim_str path;
  *out = NULL;
  if (!given) BRIM_TRY(brim_cli_job_name(job, &name));
  brim_str_init(&path);
  brim_str_printf(&path, "%s%s", given ? given : "runs/", given ? "" : name);
  brim_free(name);
  brim_status status = brim_str_status(&path);
  if (!status) *out = brim_str_take(&path);
  brim_str_deinit(&path);
  return status;
}

const char *brim_cli_job_bench_dir(const brim_cli_job *job) {
  const char *given = brim_cli_job_output_dir(job);
  return given ? given : "runs/bench";
}

// Training does not read checkpoint.dir in this version.
const char *brim_cli_job_saves_in(const brim_cli_job *job) {
  const char *const folders[] = {brim_cli_job_output_dir(job), "runs"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (folders[i] && brim_fs_is_dir(folders[i])) return folders[i];
  }
  return ".";
}

//---------------------------------- outputs ----------------------------------

// Is a file there that lies in a folder, or below it?
static bool is_below(const char *folder, const char *path) {
  char *a = brim_fs_is_dir(folder) ? realpath(folder, NULL) : NULL;
  char *b = a ? realpath(path, NULL) : NULL;
  size_t n = b ? strlen(a) : 0;
  bool below = b && strncmp(a, b, n) == 0 && (b[n] == '/' || (n > 0 && a[n - 1] == '/'));
  free(a);
  free(b);
  return below;
}

// A folder of data may have outputs of earlier commands in it; what is no such file is data.
static bool is_data(const char *data, const char *path) {
  static const char *const written[] = {".html", ".json", ".json.gz", ".jsonl", ".yaml"};
  for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
    if (brim_str_ends(path, written[i])) return false;
  }
  return !brim_fs_is_dir(path) && is_below(data, path);
}

brim_status brim_cli_job_check_outputs(brim_cli *cli, const brim_cli_job *job,
                                       const char *const *written, size_t count) {
  const char *data = brim_config_string(job->config, "data.path");
  const char *const read[] = {job->input.path, data,
                              brim_config_string(job->config, "training.weights")};
  BRIM_TRY(brim_cli_check_outputs(cli, read, sizeof read / sizeof *read, written, count));
  for (size_t i = 0; i < count && data; i++) {
    if (!written[i] || !is_data(data, written[i])) continue;
    return brim_cli_usage(cli, BRIM_N_("%s is read by this command; name another file"),
                          written[i]);
  }
  return BRIM_OK;
}

void brim_cli_job_close(brim_cli_job *job) {
  brim_work_close(job->work);
  brim_device_close(job->device);
  brim_gpu_monitor_close(job->monitor);
  brim_config_close(job->config);
  brim_registry_destroy(job->registry);
  brim_cli_input_deinit(&job->input);
  memset(job, 0, sizeof *job);
}

void brim_cli_device_text(const brim_device *device, char *out, size_t size) {
  const char *library = device->info.library;
  snprintf(out, size, "%s: %s%s%s%s", device->backend->name, device->info.name,
           library[0] ? " (" : "", library, library[0] ? ")" : "");
}

bool brim_cli_backend_text(const brim_cli_job *job, char *out, size_t size) {
  char why[256];
  if (!job->any_device || job->device->backend != brim_backend_ref()) return false;
  if (!brim_device_why_ref(job->registry, why, sizeof why)) return false;
  snprintf(out, size, brim_tr("ref (slow), because %s"), why);
  brim_utf8_trim(out);
  return true;
}

void brim_cli_overhead_text(double bytes, char *out, size_t size) {
  char text[32];
  if (isnan(bytes)) {
    snprintf(out, size, "%s", brim_tr("measured after warm-up"));
    return;
  }
  brim_format_bytes((uint64_t)bytes, text);
  snprintf(out, size, brim_tr("%s (CUDA context, libraries)"), text);
}
