// Opens a job: finds the config that a word names, reads overrides, loads the config, opens device and workload. Writes
// no file.

#include "cli/job/cli_job.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

const char *const brim_cli_precisions[] = {"fp32", "tf32", "bf16", "fp16", "auto", NULL};
const char *const brim_cli_backends[] = {"auto", "ref", "cpu", "cuda", NULL};
const char *const brim_cli_bool_words[] = {"true", "false", NULL};
const char *const brim_cli_resume_words[] = {"auto", NULL};
const char *const brim_cli_workers_aliases[] = {"workers", NULL};

//-------------------------------------------- input --------------------------------------------
// The config file and the overrides of a command line.

brim_status brim_cli_input_add(brim_cli_input *input, const char *fmt, ...) {
  if (input->count == input->cap) {
    size_t cap = input->cap ? input->cap * 2 : 16;
    char **grown = brim_realloc(input->overrides, cap * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
    input->overrides = grown;
    input->cap = cap;
  }
  brim_str text;
  brim_str_init(&text);
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  brim_status status = brim_str_status(&text);
  char *taken = status ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  if (!taken) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  input->overrides[input->count++] = taken;
  return BRIM_OK;
}

void brim_cli_input_deinit(brim_cli_input *input) {
  for (size_t i = 0; i < input->count; i++) brim_free(input->overrides[i]);
  brim_free(input->overrides);
  brim_free(input->found_path);
  memset(input, 0, sizeof *input);
}

// Writes a value as YAML: quotes text that YAML would read as something else.
static void append_yaml(brim_str *out, const brim_option *option, const char *value) {
  bool plain =
      option->kind != BRIM_OPTION_STRING ||
      strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:+-") ==
          strlen(value);
  if (plain && *value) {
    brim_str_append(out, value);
    return;
  }
  brim_str_append_char(out, '\'');
  for (; *value; value++) {
    if (*value == '\'') brim_str_append_char(out, '\'');
    brim_str_append_char(out, *value);
  }
  brim_str_append_char(out, '\'');
}

static brim_status add_option(brim_cli_input *input, const brim_option_value *item) {
  const brim_option *option = item->option;
  if (option->kind == BRIM_OPTION_FLAG) {
    return brim_cli_input_add(input, "%s=%s", option->key, item->flag ? "true" : "false");
  }
  if (!item->count) return BRIM_OK;  // typed without its optional value
  // ref is a backend on the CPU, not a device.
  if (strcmp(option->key, "device") == 0 && strcmp(item->values[0], "ref") == 0) {
    return brim_cli_input_add(input, "backend=ref");
  }
  if (strcmp(option->key, "device") == 0 && strchr(item->values[0], ',')) {
    return brim_cli_input_add(input, "device=[%s]", item->values[0]);
  }
  brim_str text;
  brim_str_init(&text);
  if (option->multiple) brim_str_append_char(&text, '[');
  for (size_t i = 0; i < item->count; i++) {
    if (i) brim_str_append(&text, ", ");
    append_yaml(&text, option, item->values[i]);
  }
  if (option->multiple) brim_str_append_char(&text, ']');
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_cli_input_add(input, "%s=%s", option->key, text.data);
  brim_str_deinit(&text);
  return status;
}

// Folders to search for a config named without a folder: the user's own, and brim's in <exe>/../share/brim/configs
// (installed), <exe>/../configs (make dist, and a link in every build folder) and <exe>/../../configs (a build folder
// in the checkout). A name (quadruped-stand) finds brim's config first, a file name (quadruped-stand.yaml) the user's.
static const struct {
  bool shipped;  // relative to the program's folder; else to the current folder
  const char *folder;
} config_places[] = {{false, "."},
                     {false, "configs"},
                     {true, "../share/brim/configs"},
                     {true, "../configs"},
                     {true, "../../configs"}};

// Takes FOLDER/NAME[.yaml] if it exists.
static brim_status find_at(const char *dir, const char *folder, const char *word,
                           brim_cli_input *input) {
  brim_str path;
  brim_str_init(&path);
  if (dir) brim_str_printf(&path, "%s/", dir);
  if (dir || strcmp(folder, ".") != 0) brim_str_printf(&path, "%s/", folder);
  brim_str_printf(&path, "%s%s", word, brim_str_ends(word, ".yaml") ? "" : ".yaml");
  brim_status status = brim_str_status(&path);
  if (!status && brim_fs_exists(path.data)) {
    input->found_path = brim_str_take(&path);
    input->path = input->found_path;
  }
  brim_str_deinit(&path);
  return status;
}

// For `brim train WORKLOAD [KEY=VALUE]`: returns the workload that the word names, or NULL. *out = the config that its
// first run should use; an override may choose another config.
static const brim_workload_table *start_of(const brim_cli *cli, const char *word,
                                           brim_work_start *out) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (table->config && strcmp(word, table->name) == 0) break;
  }
  if (!table) return NULL;
  *out = (brim_work_start){.config = table->config};
  for (size_t k = 0; k < cli->parse.positional_count; k++) {
    brim_work_start asked;
    // The later override wins, as in a config.
    if (brim_workload_start(table, cli->parse.positional[k], &asked)) *out = asked;
  }
  return table;
}

// Searches the folders of one kind in order; adds their names to `places`.
static brim_status find_kind(bool shipped, const char *dir, const char *word, brim_cli_input *input,
                             brim_str *places) {
  brim_status status = BRIM_OK;
  for (size_t i = 0;
       !status && !input->found_path && i < sizeof config_places / sizeof *config_places; i++) {
    if (config_places[i].shipped != shipped) continue;
    const char *at = shipped ? dir : NULL;
    status = find_at(at, config_places[i].folder, word, input);
    brim_str_printf(places, "%s%s%s%s", places->len ? ", " : "", at ? at : "", at ? "/" : "",
                    config_places[i].folder);
  }
  return status;
}

// Finds brim's own config with the file name of `path`, for brim_free; NULL if there is none or `path` is that file.
static brim_status shipped_config(const char *path, char **out) {
  brim_cli_input shipped = {0};
  brim_str places;
  *out = NULL;
  char *dir = brim_fs_exe_dir();
  if (!dir) return brim_fail(BRIM_ENOMEM, "out of memory while looking for a config");
  brim_str_init(&places);
  brim_status status = find_kind(true, dir, brim_fs_basename(path), &shipped, &places);
  brim_str_deinit(&places);
  brim_free(dir);
  if (!status && shipped.found_path && !brim_fs_same(shipped.found_path, path)) {
    *out = shipped.found_path;
    shipped.found_path = NULL;
  }
  brim_free(shipped.found_path);
  return status;
}

// Finds brim's own config that `brim train WORKLOAD` uses, for brim_free; NULL if there is none.
static brim_status start_config(const brim_cli *cli, const char *workload, char **out) {
  brim_work_start start;
  *out = NULL;
  if (!start_of(cli, workload, &start) || !start.config) return BRIM_OK;
  return shipped_config(start.config, out);
}

// Warns if brim's config was taken although the user has a file of that name.
static brim_status warn_hidden(const char *word, const brim_cli_input *input) {
  brim_cli_input own = {0};
  brim_str places;
  brim_str_init(&places);
  brim_status status = find_kind(false, NULL, word, &own, &places);
  if (!status && own.found_path && !brim_fs_same(own.found_path, input->found_path)) {
    brim_log_warn(
        "config",
        "'%s' is the config that comes with brim, %s; to use your own file, name it: %s%s", word,
        input->found_path, strchr(own.found_path, '/') ? "" : "./", own.found_path);
  }
  brim_str_deinit(&places);
  brim_free(own.found_path);
  return status;
}

// Adds the names of the configs in a folder, without ".yaml".
static brim_status gather_names(brim_arena *arena, const char *folder, const char **names,
                                size_t *count, size_t most) {
  char **found;
  size_t n;
  if (!brim_fs_is_dir(folder)) return BRIM_OK;
  brim_status status = brim_fs_list(folder, &found, &n);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  for (size_t i = 0; i < n && *count < most && !status; i++) {
    if (!brim_str_ends(found[i], ".yaml")) continue;
    names[*count] = brim_arena_strndup(arena, found[i], strlen(found[i]) - 5);
    if (!names[(*count)++]) status = brim_fail(BRIM_ENOMEM, "out of memory");
  }
  brim_fs_list_free(found, n);
  return status;
}

// Suggests a workload or config with a name similar to `word`; "" = none.
static brim_status suggest(const char *word, const char *dir, char out[128]) {
  const char *names[256];
  size_t count = 0;
  const brim_workload_table *table;
  brim_arena *arena;
  out[0] = '\0';
  for (size_t i = 0; count < 255 && (table = brim_workload_at(i)); i++) {
    if (table->config) names[count++] = table->name;
  }
  BRIM_TRY(brim_arena_create(0, &arena));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof config_places / sizeof *config_places && !status; i++) {
    char *folder = brim_fs_join(config_places[i].shipped ? dir : ".", config_places[i].folder);
    status = folder ? gather_names(arena, folder, names, &count, 255)
                    : brim_fail(BRIM_ENOMEM, "out of memory");
    brim_free(folder);
  }
  names[count] = NULL;
  size_t n = strlen(word) - (brim_str_ends(word, ".yaml") ? 5 : 0);
  char *bare = status ? NULL : brim_arena_strndup(arena, word, n);
  if (!status && !bare) status = brim_fail(BRIM_ENOMEM, "out of memory");
  const char *near = status ? NULL : brim_nearest(bare, names);
  if (near) snprintf(out, 128, "%s", near);
  brim_arena_destroy(arena);
  return status;
}

static brim_status find_places(const char *word, bool shipped_first, brim_cli_input *input) {
  brim_str places;
  char *dir = brim_fs_exe_dir();
  if (!dir) return brim_fail(BRIM_ENOMEM, "out of memory while looking for a config");
  brim_str_init(&places);
  brim_status status = find_kind(shipped_first, dir, word, input, &places);
  bool shipped_found = shipped_first && input->found_path;
  if (!status && !input->found_path) status = find_kind(!shipped_first, dir, word, input, &places);
  if (!status && shipped_found) status = warn_hidden(word, input);
  if (!status) status = brim_str_status(&places);
  char near[128] = "";
  if (!status && !input->found_path) status = suggest(word, dir, near);
  if (!status && !input->found_path && near[0]) {
    status = brim_fail(BRIM_ENOENT, "%s: no such config file; did you mean '%s'?", word, near);
  } else if (!status && !input->found_path) {
    status = brim_fail(BRIM_ENOENT,
                       "%s: no such config file in %s; give its path, or install brim's configs "
                       "with 'make install'; write overrides as key=value",
                       word, places.data);
  }
  brim_str_deinit(&places);
  brim_free(dir);
  return status;
}

// Refuses a data file or folder given as a config, and names the command that takes it.
static brim_status refuse_data(const char *word) {
  if (brim_fs_is_dir(word)) {
    return brim_fail(BRIM_EINVAL,
                     "%s is a folder, but a config is a YAML file; if the folder holds data, 'brim "
                     "init %s' writes a config for it",
                     word, word);
  }
  brim_component guess;
  brim_status status = brim_source_guess(word, &guess);
  if (status == BRIM_ENOMEM || (status && brim_source_is_foreign(word))) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  bool hdf5 = strcmp(guess.name, "hdf5") == 0, numpy = strcmp(guess.name, "numpy") == 0;
  return brim_fail(
      BRIM_EINVAL,
      "%s is a file with data (%s), not a config; 'brim init %s' writes a config for it", word,
      hdf5    ? "HDF5"
      : numpy ? "NumPy"
              : "IDX",
      word);
}

// Is the word a name (ars, quadruped-stand), not a path or a file name?
static bool is_name(const char *word) {
  return !strchr(word, '/') && !brim_str_ends(word, ".yaml") && !brim_str_ends(word, ".yml");
}

// Sets the workload and the name of the run, for a workload without a config. Puts them before the user's overrides,
// which win.
static brim_status start_without_config(const brim_workload_table *table, const char *name,
                                        brim_cli_input *input) {
  BRIM_TRY(brim_cli_input_add(input, "workload=%s", table->name));
  BRIM_TRY(brim_cli_input_add(input, "name=%s", name));
  char *last[2] = {input->overrides[input->count - 2], input->overrides[input->count - 1]};
  memmove(input->overrides + 2, input->overrides, (input->count - 2) * sizeof *input->overrides);
  memcpy(input->overrides, last, sizeof last);
  return BRIM_OK;
}

// `brim train phase1`: if the word is a phase of a workload's curriculum, sets the phase and returns the workload.
static brim_status phase_of(const char *word, brim_cli_input *input, const char **workload) {
  const brim_workload_table *table;
  *workload = NULL;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    char name[64];
    snprintf(name, sizeof name, "%s.phase", table->name);
    const brim_config_key *key = brim_config_key_find(name);
    for (const char *const *c = key ? key->choices : NULL; c && *c; c++) {
      if (strcmp(*c, word) != 0) continue;
      *workload = table->name;
      return brim_cli_input_add(input, "%s=%s", name, word);
    }
  }
  return BRIM_OK;
}

static brim_status find_config(const brim_cli *cli, const char *word, brim_cli_input *input) {
  brim_work_start start;
  const char *workload = NULL;
  if (is_name(word) && !brim_fs_exists(word)) BRIM_TRY(phase_of(word, input, &workload));
  const brim_workload_table *table = start_of(cli, workload ? workload : word, &start);
  input->word = workload ? workload : word;
  if (table && !start.config) return start_without_config(table, start.name, input);
  input->path = word;
  if (table) return find_places(start.config, true, input);
  if (brim_fs_exists(word)) return refuse_data(word);
  if (!strchr(word, '/')) return find_places(word, is_name(word), input);
  return brim_fail(BRIM_ENOENT, "%s: no such config file; write overrides as key=value", word);
}

static bool is_override(const char *word) { return strchr(word, '=') && !brim_fs_exists(word); }

static brim_status add_word(brim_cli *cli, brim_cli_input *input, const char *word) {
  if (is_override(word)) return brim_cli_input_add(input, "%s", word);
  if (input->word) {
    return brim_cli_usage(cli, BRIM_N_("two configs given: %.200s and %.200s; name one"),
                          input->path ? input->path : input->word, word);
  }
  return find_config(cli, word, input);
}

brim_status brim_cli_input_words(brim_cli *cli, size_t first, brim_cli_input *input) {
  memset(input, 0, sizeof *input);
  for (size_t i = first; i < cli->parse.positional_count; i++) {
    brim_status status = add_word(cli, input, cli->parse.positional[i]);
    if (status) {
      brim_cli_input_deinit(input);
      return status;
    }
  }
  return BRIM_OK;
}

// Can the backend compute on the device? `device` has `n` characters. True for unknown names: the config refuses them.
static bool can_use(const char *device, size_t n, const char *backend) {
  bool plain = strcmp(backend, "ref") == 0;
  bool gpu = strncmp(device, "cuda", 4) == 0 || (n > 0 && strspn(device, "0123456789") == n);
  if (n == 3 && strncmp(device, "ref", n) == 0) return plain;
  if (n == 3 && strncmp(device, "cpu", n) == 0) return plain || strcmp(backend, "cpu") == 0;
  return !gpu || strcmp(backend, "cuda") == 0;
}

// Refuses a --device and a --backend that conflict: neither wins silently.
static brim_status check_backend(brim_cli *cli) {
  const char *device = brim_option_string(&cli->parse, "device", NULL);
  const char *backend = brim_option_string(&cli->parse, "backend", NULL);
  if (!device || !backend || strcmp(backend, "auto") == 0) return BRIM_OK;
  for (const char *at = device; *at;) {
    at += strspn(at, " ");
    size_t n = strcspn(at, ", ");
    if (!can_use(at, n, backend)) {
      return brim_cli_usage(cli,
                            BRIM_N_("--device %s and --backend %s conflict; give only one of them"),
                            device, backend);
    }
    at += n;
    at += strspn(at, ", ");
  }
  return BRIM_OK;
}

// Is the option --backend auto beside --device ref? Then --device already names the backend.
static bool has_no_effect(brim_cli *cli, const brim_option_value *item) {
  const char *device = brim_option_string(&cli->parse, "device", NULL);
  return device && strcmp(device, "ref") == 0 && strcmp(item->option->key, "backend") == 0 &&
         strcmp(item->values[0], "auto") == 0;
}

static brim_status fill_options(brim_cli *cli, brim_cli_input *input) {
  BRIM_TRY(check_backend(cli));
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (item->option->key && !has_no_effect(cli, item)) BRIM_TRY(add_option(input, item));
  }
  return BRIM_OK;
}

static brim_status fill_rest(brim_cli *cli, size_t first, brim_cli_input *input) {
  BRIM_TRY(fill_options(cli, input));
  for (size_t i = first; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!is_override(word)) {
      return brim_cli_usage(
          cli, BRIM_N_("unexpected argument '%.200s'; write overrides as key=value"), word);
    }
    BRIM_TRY(brim_cli_input_add(input, "%s", word));
  }
  return BRIM_OK;
}

brim_status brim_cli_input_rest(brim_cli *cli, size_t first, brim_cli_input *input) {
  memset(input, 0, sizeof *input);
  brim_status status = fill_rest(cli, first, input);
  if (status) brim_cli_input_deinit(input);
  return status;
}

static brim_status fill_input(brim_cli *cli, brim_cli_input *input) {
  const char *path = brim_option_string(&cli->parse, "config", NULL);
  if (path) BRIM_TRY(add_word(cli, input, path));
  // Options come first, so that key=value words override them.
  BRIM_TRY(fill_options(cli, input));
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    BRIM_TRY(add_word(cli, input, cli->parse.positional[i]));
  }
  // `bench --apply FILE` without another config measures FILE.
  const char *edited = brim_option_string(&cli->parse, "apply", NULL);
  return !input->word && edited && *edited ? find_config(cli, edited, input) : BRIM_OK;
}

// Reads options with a key, words key=value, and the config named by --config or by a word.
static brim_status input_init(brim_cli *cli, brim_cli_input *input) {
  memset(input, 0, sizeof *input);
  brim_status status = fill_input(cli, input);
  if (status) brim_cli_input_deinit(input);
  return status;
}

//---------------------------------- options of several workloads ----------------------------------

bool brim_cli_workload_key(const char *key, const char *workload, char out[64]) {
  const char *dot = strchr(key, '.');
  if (!dot) return false;
  for (size_t i = 0; brim_workload_at(i); i++) {
    const char *name = brim_workload_at(i)->name;
    bool of_it = strlen(name) == (size_t)(dot - key) && !strncmp(name, key, strlen(name));
    if (!of_it || strcmp(name, workload) == 0) continue;
    int n = snprintf(out, 64, "%s%s", workload, dot);
    return n > 0 && n < 64 && brim_config_key_find(out);
  }
  return false;
}

static brim_status rename_key(char **override, const char *from, const char *to) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s%s", to, *override + strlen(from));
  char *taken = brim_str_status(&text) ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  if (!taken) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  brim_free(*override);
  *override = taken;
  return BRIM_OK;
}

// An option for a key that several workloads have sets the key of the first workload. Once the config names its
// workload, renames these overrides to the keys of that workload. *changed: the config must be loaded again.
static brim_status rename_keys(const brim_cli *cli, const brim_config *config,
                               brim_cli_input *input, bool *changed) {
  const char *workload = brim_config_string(config, "workload");
  char own[64];
  *changed = false;
  for (size_t i = 0; workload && i < cli->parse.count; i++) {
    const char *key = cli->parse.items[i].option->key;
    if (!key || !brim_cli_workload_key(key, workload, own)) continue;
    for (size_t k = 0; k < input->count; k++) {
      size_t length = strlen(key);
      if (strncmp(input->overrides[k], key, length) || input->overrides[k][length] != '=') continue;
      BRIM_TRY(rename_key(&input->overrides[k], key, own));
      *changed = true;
      break;
    }
  }
  return BRIM_OK;
}

//--------------------------------------------- job ---------------------------------------------

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

void brim_cli_gpu_facts(const brim_registry *registry, brim_device_info *info,
                        brim_config_facts *out) {
  memset(out, 0, sizeof *out);
  out->cpu_cores = brim_cpu_count();
  const brim_backend *cuda = brim_registry_backend(registry, "cuda");
  int count = 0;
  if (!cuda || cuda->device_count(&count) || count < 1) return;
  if (cuda->device_info(0, info)) return;
  out->gpu_name = info->name;
  out->gpu_bytes = info->total_bytes;
}

// Has --plugin loaded this plug-in?
static bool is_loaded(const brim_cli *cli, const char *path) {
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    if (strcmp(item->values[0], path) == 0 || brim_fs_same(item->values[0], path)) return true;
  }
  return false;
}

// A plug-in is code: a plug-in that only a config file names needs the user's consent.
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

// Warns of keys without effect: keys of other workloads, and keys that this version does not use. Does
// not warn of keys that a preset sets: the user did not name them.
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

// Replaces "override data.batch_size:1:1: must be ..." by the option that was typed.
static brim_status name_option(brim_cli *cli, brim_status status) {
  static const char before[] = "override ";
  char key[128] = "", text[512], typed[64];
  const char *detail = brim_status_detail();
  if (status == BRIM_ENOMEM || !brim_str_starts(detail, before)) return status;
  const char *at = detail + strlen(before);
  size_t n = strcspn(at, ": ");
  if (n >= sizeof key || at[n] != ':') return status;
  memcpy(key, at, n);
  // Keep the message if the user typed key=value.
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (strncmp(word, key, n) == 0 && word[n] == '=') return status;
  }
  if (!brim_cli_typed(cli, key, typed)) return status;
  at += n;
  while (*at == ':' || (*at >= '0' && *at <= '9')) at++;  // skip line and column
  snprintf(text, sizeof text, "%s:%s", typed, at);
  brim_status_set_detail(text);
  cli->usage_error = true;
  return status;
}

// Is the key benchmark.X_options, where X is a knob of the workload?
static bool tries_knob(const char *key, const brim_workload_table *table) {
  static const char prefix[] = "benchmark.", suffix[] = "_options";
  char knob[64];
  size_t n = strlen(key), around = sizeof prefix + sizeof suffix - 2;
  if (!brim_str_starts(key, prefix) || n <= around || n - around >= sizeof knob) return false;
  if (strcmp(key + n - (sizeof suffix - 1), suffix) != 0) return false;
  snprintf(knob, sizeof knob, "%.*s", (int)(n - around), key + sizeof prefix - 1);
  return brim_knob_find(table->knob_set, knob) != NULL;
}

// Guesses the workload of a config that names none: the first workload that owns a key of the config and has every
// workload key of it, in its own section or as a key of the same name. NULL = no workload fits.
static const char *workload_of_keys(const brim_config *config) {
  const brim_workload_table *table;
  char own[64];
  for (size_t w = 0; (table = brim_workload_at(w)); w++) {
    size_t given = 0, foreign = 0;
    for (size_t i = 0; i < brim_config_key_count(); i++) {
      const char *key = brim_config_key_at(i)->name, *dot = strchr(key, '.');
      if (!dot || !brim_config_is_asked(config, key)) continue;
      if (tries_knob(key, brim_workload_at(0))) continue;  // the default workload has this knob too
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
      foreign += of_other && !brim_cli_workload_key(key, table->name, own);
    }
    if (given && !foreign) return table->name;
  }
  return NULL;
}

// Finds the config to load below a config that names no workload, model, transform or data set. A file named like one
// of brim's configs gets that config; a config with keys of a workload gets the workload's config. *workload: its name.
static brim_status find_base(const brim_cli *cli, const brim_config_options *options,
                             const brim_config *config, char **base, char workload[64]) {
  static const char *const names[] = {"workload", "model", "transform", "dataset"};
  *base = NULL;
  workload[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (brim_config_is_set(config, names[i])) return BRIM_OK;
  }
  if (options->path) {
    BRIM_TRY(shipped_config(options->path, base));
    brim_config *shipped = NULL;
    if (*base) {
      const brim_config_options how = {
          .path = *base, .mode = options->mode, .facts = options->facts};
      BRIM_TRY(brim_config_load(&how, &shipped));
      snprintf(workload, 64, "%s", brim_config_string(shipped, "workload"));
      bool other_workload = strcmp(workload, brim_config_string(config, "workload")) != 0;
      brim_config_close(shipped);
      if (other_workload) return BRIM_OK;
      brim_free(*base);
      *base = NULL;
      workload[0] = '\0';
    }
  }
  const char *path = brim_config_string(config, "data.path");
  const char *own = path && *path ? NULL : workload_of_keys(config);
  if (!own) return BRIM_OK;
  snprintf(workload, 64, "%s", own);
  return start_config(cli, own, base);
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
  if (!status) status = rename_keys(cli, *out, input, &changed);
  if (!status && changed) {
    bool before = brim_log_hush(true);  // the first load gave the warnings
    brim_config_close(*out);
    *out = NULL;
    status = load_on_base(cli, options, out);
    brim_log_hush(before);
  }
  return status ? name_option(cli, status) : BRIM_OK;
}

// Fails if data.path exists only relative to the folder of the config file: brim reads it from the current folder.
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
  BRIM_TRY(input_init(cli, &job->input));
  BRIM_TRY(brim_cli_registry(cli, &job->registry));
  brim_cli_gpu_facts(job->registry, &gpu, &facts);
  BRIM_TRY(load_job_config(cli, &facts, job));
  BRIM_TRY(brim_work_refuse_grid(job->config));
  BRIM_TRY(check_data_path(job));
  warn_unused(job->config);
  return brim_cli_job_plugins(cli, job);
}

brim_status brim_cli_grid_config(brim_cli *cli, const brim_config_facts *facts, brim_cli_job *job) {
  BRIM_TRY(input_init(cli, &job->input));
  BRIM_TRY(load_job_config(cli, facts, job));
  BRIM_TRY(check_data_path(job));
  warn_unused(job->config);
  return BRIM_OK;
}

// Finds the UUID of the GPU that a device spec ("auto", "cuda", "cuda:1") will open; "" if it will open no GPU.
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
  // ENOENT and EABI mean here that the device is missing, not a file.
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

// Chooses the device of this rank, and its share of the cores.
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
  BRIM_TRY(brim_ranks_attach(job->ranks, job->device, job->no_nccl_reason));
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
  return brim_cli_job_open(cli, job);  // does not close the monitor: a sampler may use it
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
  // "runs" is the parent of run folders, unless the user names it on the command line.
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

// Checkpoints go to the output folder: this version does not read checkpoint.dir.
const char *brim_cli_job_checkpoint_disk(const brim_cli_job *job) {
  const char *const folders[] = {brim_cli_job_output_dir(job), "runs"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (folders[i] && brim_fs_is_dir(folders[i])) return folders[i];
  }
  return ".";
}

//---------------------------------- outputs ----------------------------------

// Is the path a data file in the data folder? The folder may also hold outputs of earlier commands: they are no data.
static bool is_data(const char *data, const char *path) {
  static const char *const written[] = {".html", ".json", ".json.gz", ".jsonl", ".yaml"};
  for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
    if (brim_str_ends(path, written[i])) return false;
  }
  return !brim_fs_is_dir(path) && brim_cli_is_below(data, path);
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

uint64_t brim_cli_memory_limit(const brim_cli_job *job) {
  uint64_t limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit");
  if (job->device->info.kind != BRIM_DEVICE_GPU) return limit;
  double share = brim_config_float(job->config, "gpu.memory_fraction");
  uint64_t part = (uint64_t)((double)job->device->info.total_bytes * share);
  return limit && limit < part ? limit : part;
}

brim_machine_options brim_cli_machine_options(const brim_cli *cli, const brim_cli_job *job) {
  return (brim_machine_options){.memory_limit = brim_cli_memory_limit(job),
                                .folder = job->options.cache_folder,
                                .driver = job->memory.driver,
                                .memory = &job->memory,
                                .stop = cli->stop};
}

const char *brim_cli_pageable_text(const brim_device *device) {
  if (device->info.host_memory) return NULL;
  return brim_tr(
      "data.pin_memory is false: the driver first copies each batch to its own staging buffer "
      "while the host waits; the H2D time of a step shows the cost");
}
