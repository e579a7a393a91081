// What the command line asks of a config: the file that a word names, and overrides by options and
// words. Nothing is opened here but folders, to find the file.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job.h"
#include "data/data.h"

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
  brim_free(input->found);
  memset(input, 0, sizeof *input);
}

// A value is read as YAML; text that YAML would take for something else is quoted.
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
  if (!item->count) return BRIM_OK;  // an optional value that was left out
  // ref is no device of its own: it is the plain loops on the CPU.
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

// Where a config named without a folder is looked for: what comes with brim in
// <exe>/../share/brim/configs (installed), <exe>/../configs (make dist, and a link in every build
// folder), <exe>/../../configs (a build folder in the checkout), and the user's own. A name
// (`quadruped-stand`) means the shipped one, whatever lies in the current folder; a file name
// (`quadruped-stand.yaml`) the user's own first.
static const struct {
  bool shipped;  // relative to the program's folder, else to the current one
  const char *folder;
} config_places[] = {{false, "."},
                     {false, "configs"},
                     {true, "../share/brim/configs"},
                     {true, "../configs"},
                     {true, "../../configs"}};

// FOLDER/NAME[.yaml] of one place, where it is there.
static brim_status find_at(const char *dir, const char *folder, const char *word,
                           brim_cli_input *input) {
  brim_str path;
  brim_str_init(&path);
  if (dir) brim_str_printf(&path, "%s/", dir);
  if (dir || strcmp(folder, ".") != 0) brim_str_printf(&path, "%s/", folder);
  brim_str_printf(&path, "%s%s", word, brim_str_ends(word, ".yaml") ? "" : ".yaml");
  brim_status status = brim_str_status(&path);
  if (!status && brim_fs_exists(path.data)) {
    input->found = brim_str_take(&path);
    input->path = input->found;
  }
  brim_str_deinit(&path);
  return status;
}

// `brim train WORKLOAD [KEY=VALUE]`: a workload's name stands for the config it is best met with, or for
// what an override asks for. NULL = the word names none.
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
    // of two the later one counts, as in the config
    if (brim_workload_start(table, cli->parse.positional[k], &asked)) *out = asked;
  }
  return table;
}

// The places of one kind in turn, until it is found; their names are added to `places`.
static brim_status find_kind(bool shipped, const char *dir, const char *word, brim_cli_input *input,
                             brim_str *places) {
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && !input->found && i < sizeof config_places / sizeof *config_places;
       i++) {
    if (config_places[i].shipped != shipped) continue;
    const char *at = shipped ? dir : NULL;
    status = find_at(at, config_places[i].folder, word, input);
    brim_str_printf(places, "%s%s%s%s", places->len ? ", " : "", at ? at : "", at ? "/" : "",
                    config_places[i].folder);
  }
  return status;
}

brim_status brim_cli_shipped_config(const char *path, char **out) {
  brim_cli_input shipped = {0};
  brim_str places;
  *out = NULL;
  char *dir = brim_fs_exe_dir();
  if (!dir) return brim_fail(BRIM_ENOMEM, "out of memory while looking for a config");
  brim_str_init(&places);
  brim_status status = find_kind(true, dir, brim_fs_basename(path), &shipped, &places);
  brim_str_deinit(&places);
  brim_free(dir);
  if (!status && shipped.found && !brim_fs_same(shipped.found, path)) {
    *out = shipped.found;
    shipped.found = NULL;
  }
  brim_free(shipped.found);
  return status;
}

brim_status brim_cli_start_config(const brim_cli *cli, const char *workload, char **out) {
  brim_work_start start;
  *out = NULL;
  if (!start_of(cli, workload, &start) || !start.config) return BRIM_OK;
  return brim_cli_shipped_config(start.config, out);
}

// The user's own file of the name whose shipped one was taken.
static brim_status warn_hidden(const char *word, const brim_cli_input *input) {
  brim_cli_input own = {0};
  brim_str places;
  brim_str_init(&places);
  brim_status status = find_kind(false, NULL, word, &own, &places);
  if (!status && own.found && !brim_fs_same(own.found, input->found)) {
    brim_log_warn(
        "config",
        "'%s' is the config that comes with brim, %s; to use your own file, name it: %s%s", word,
        input->found, strchr(own.found, '/') ? "" : "./", own.found);
  }
  brim_str_deinit(&places);
  brim_free(own.found);
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

// A config of a similar name that is in one of the places; "" = none.
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
  bool hides = shipped_first && input->found;
  if (!status && !input->found) status = find_kind(!shipped_first, dir, word, input, &places);
  if (!status && hides) status = warn_hidden(word, input);
  if (!status) status = brim_str_status(&places);
  char near[128] = "";
  if (!status && !input->found) status = suggest(word, dir, near);
  if (!status && !input->found && near[0]) {
    status = brim_fail(BRIM_ENOENT, "%s: no such config file; did you mean '%s'?", word, near);
  } else if (!status && !input->found) {
    status = brim_fail(BRIM_ENOENT,
                       "%s: no such config file in %s; give its path, or install brim's configs "
                       "with 'make install'; write overrides as key=value",
                       word, places.data);
  }
  brim_str_deinit(&places);
  brim_free(dir);
  return status;
}

// Data where a config is expected: the next step is another command.
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

// A name: `ars`, `quadruped-stand`. Not a path, and not the name of a file.
static bool is_name(const char *word) {
  return !strchr(word, '/') && !brim_str_ends(word, ".yaml") && !brim_str_ends(word, ".yml");
}

// The workload's defaults, and a run of that name. In front: all that the user says has the last word.
static brim_status start_without(const brim_workload_table *table, const char *name,
                                 brim_cli_input *input) {
  BRIM_TRY(brim_cli_input_add(input, "workload=%s", table->name));
  BRIM_TRY(brim_cli_input_add(input, "name=%s", name));
  char *last[2] = {input->overrides[input->count - 2], input->overrides[input->count - 1]};
  memmove(input->overrides + 2, input->overrides, (input->count - 2) * sizeof *input->overrides);
  memcpy(input->overrides, last, sizeof last);
  return BRIM_OK;
}

// `brim train phase1`: the word is a phase of a workload's curriculum, its config that workload's.
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
  const char *own = NULL;
  if (is_name(word) && !brim_fs_exists(word)) BRIM_TRY(phase_of(word, input, &own));
  const brim_workload_table *table = start_of(cli, own ? own : word, &start);
  input->word = own ? own : word;
  if (table && !start.config) return start_without(table, start.name, input);
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

// May this backend compute on this device of a list (the first `n` characters)? A name that is none is
// refused by the config.
static bool goes_with(const char *device, size_t n, const char *backend) {
  bool plain = strcmp(backend, "ref") == 0;
  bool gpu = strncmp(device, "cuda", 4) == 0 || (n > 0 && strspn(device, "0123456789") == n);
  if (n == 3 && strncmp(device, "ref", n) == 0) return plain;
  if (n == 3 && strncmp(device, "cpu", n) == 0) return plain || strcmp(backend, "cpu") == 0;
  return !gpu || strcmp(backend, "cuda") == 0;
}

// Devices and their compute backends, both named here, have to go together: neither wins silently.
static brim_status check_backend(brim_cli *cli) {
  const char *device = brim_option_string(&cli->parse, "device", NULL);
  const char *backend = brim_option_string(&cli->parse, "backend", NULL);
  if (!device || !backend || strcmp(backend, "auto") == 0) return BRIM_OK;
  for (const char *at = device; *at;) {
    at += strspn(at, " ");
    size_t n = strcspn(at, ", ");
    if (!goes_with(at, n, backend)) {
      return brim_cli_usage(cli,
                            BRIM_N_("--device %s and --backend %s conflict; give only one of them"),
                            device, backend);
    }
    at += n;
    at += strspn(at, ", ");
  }
  return BRIM_OK;
}

// `--device ref` names the backend too: that another option leaves it open changes nothing.
static bool says_nothing(brim_cli *cli, const brim_option_value *item) {
  const char *device = brim_option_string(&cli->parse, "device", NULL);
  return device && strcmp(device, "ref") == 0 && strcmp(item->option->key, "backend") == 0 &&
         strcmp(item->values[0], "auto") == 0;
}

static brim_status fill_options(brim_cli *cli, brim_cli_input *input) {
  BRIM_TRY(check_backend(cli));
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (item->option->key && !says_nothing(cli, item)) BRIM_TRY(add_option(input, item));
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
  // Options first, so that a key=value written out by hand takes precedence.
  BRIM_TRY(fill_options(cli, input));
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    BRIM_TRY(add_word(cli, input, cli->parse.positional[i]));
  }
  // `bench --apply FILE` and no other config: FILE is what is measured, too.
  const char *edited = brim_option_string(&cli->parse, "apply", NULL);
  return !input->word && edited && *edited ? find_config(cli, edited, input) : BRIM_OK;
}

brim_status brim_cli_input_init(brim_cli *cli, brim_cli_input *input) {
  memset(input, 0, sizeof *input);
  brim_status status = fill_input(cli, input);
  if (status) brim_cli_input_deinit(input);
  return status;
}

static void add_plain(const char *word, brim_str *out) {
  if (out->len) brim_str_append_char(out, ' ');
  brim_cli_word_text(word, out);
}

brim_status brim_cli_input_text(const brim_cli *cli, const brim_cli_input *input, brim_str *out) {
  if (input->word) add_plain(input->word, out);
  for (size_t i = 0; i < input->count; i++) add_plain(input->overrides[i], out);
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") == 0) {
      add_plain("--plugin", out);
      add_plain(item->values[0], out);
    } else if (strcmp(item->option->name, "allow-plugins") == 0 && item->flag) {
      add_plain("--allow-plugins", out);
    }
  }
  return brim_str_status(out);
}

//---------------------------------- options of several workloads ----------------------------------

bool brim_cli_own_key(const char *key, const char *workload, char out[64]) {
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

brim_status brim_cli_input_suit(const brim_cli *cli, const brim_config *config,
                                brim_cli_input *input, bool *changed) {
  const char *workload = brim_config_string(config, "workload");
  char own[64];
  *changed = false;
  for (size_t i = 0; workload && i < cli->parse.count; i++) {
    const char *key = cli->parse.items[i].option->key;
    if (!key || !brim_cli_own_key(key, workload, own)) continue;
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
