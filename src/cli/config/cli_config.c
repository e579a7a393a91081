// `brim config show|explain|grid|check`: prints configs, descriptions of keys, grid points and mistakes (src/config).
#include "cli/job/cli_job.h"

#include <stdio.h>
#include <string.h>

enum { KEY_COLUMN = 38, MAX_MISTAKES = 50 };

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    {.name = "yaml", .help = BRIM_N_("show: print YAML (the default)")},
    {.name = "origins", .help = BRIM_N_("show: print the source of each value")},
    {0},
};

//---------------------------------- loading ----------------------------------

typedef struct loaded {
  brim_cli_input input;
  brim_registry *registry;
  brim_config *config;
} loaded;

static void loaded_close(loaded *l) {
  brim_config_close(l->config);
  brim_registry_destroy(l->registry);
  brim_cli_input_deinit(&l->input);
}

static void print_warnings(const brim_config *config) {
  for (size_t i = 0; i < brim_config_warning_count(config); i++) {
    brim_log_warn("config", "%s", brim_config_warning(config, i));
  }
}

static brim_status load(brim_cli *cli, brim_config_mode mode, loaded *l) {
  brim_device_info gpu;
  brim_config_facts facts;
  memset(l, 0, sizeof *l);
  BRIM_TRY(brim_cli_input_words(cli, 1, &l->input));
  const char *path = brim_option_string(&cli->parse, "config", NULL);
  if (path && l->input.path) {
    return brim_cli_usage(cli, BRIM_N_("two configs given: %.200s and %.200s; name one"), path,
                          l->input.path);
  }
  BRIM_TRY(brim_cli_registry(cli, &l->registry));
  brim_cli_gpu_facts(l->registry, &gpu, &facts);
  brim_config_options how = {.path = path ? path : l->input.path,
                             .overrides = (const char *const *)l->input.overrides,
                             .override_count = l->input.count,
                             .mode = mode,
                             .facts = &facts};
  BRIM_TRY(brim_cli_load_config(cli, &how, &l->input, &l->config));
  print_warnings(l->config);
  return BRIM_OK;
}

//---------------------------------- show ----------------------------------

static brim_status show(brim_cli *cli) {
  loaded l;
  brim_status status = load(cli, BRIM_CONFIG_CHECK, &l);
  if (!status && cli->json) {
    json_t *json = NULL;
    status = brim_config_to_json(l.config, &json);
    if (!status) status = brim_cli_json(cli, json);
  } else if (!status) {
    brim_str text;
    brim_str_init(&text);
    status = brim_config_to_yaml(l.config, brim_option_flag(&cli->parse, "origins", false), &text);
    status = brim_cli_finish_text(cli, &text, status);
  }
  loaded_close(&l);
  return status;
}

//---------------------------------- explain ----------------------------------

static size_t group_length(const char *name) {
  const char *dot = strchr(name, '.');
  return dot ? (size_t)(dot - name) : 0;
}

static void put_meaning(const brim_term *term, const brim_config_key *key, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text, brim_tr(key->meaning));
  if (!brim_config_key_is_used(key)) {
    brim_str_printf(&text, " (%s)", brim_tr("not used by this version"));
  }
  brim_ui_wrap(out, term, text.data, KEY_COLUMN);
  brim_str_append_char(out, '\n');
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

static bool same_group(const char *a, const char *b) {
  size_t n = group_length(a);
  return n == group_length(b) && strncmp(a, b, n) == 0;
}

// True if this version uses no key of the group: it belongs to a workload of a later version.
static bool is_group_unused(const char *name) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (same_group(key->name, name) && brim_config_key_is_used(key)) return false;
  }
  return group_length(name) > 0;
}

static void put_group(const brim_term *term, const char *name, brim_str *out) {
  char head[64];
  snprintf(head, sizeof head, "%.*s", (int)group_length(name), name);
  brim_ui_styled(out, term, BRIM_UI_TITLE, head[0] ? head : brim_tr("top level"));
  brim_str_append_char(out, '\n');
}

static void put_key(const brim_term *term, const brim_config_key *key, brim_str *out) {
  int width = brim_utf8_width(key->name) + 2;
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_BOLD, key->name);
  if (width + 2 > KEY_COLUMN) {
    brim_str_append_char(out, '\n');
    width = 0;
  }
  brim_str_repeat(out, ' ', (size_t)(KEY_COLUMN - width));
  put_meaning(term, key, out);
}

// Lists the keys of one section, or of all sections (NULL). The list of all sections only names an unused one.
static void list_keys(const brim_term *term, const char *section, brim_str *out) {
  const char *last = NULL;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    size_t n = group_length(key->name);
    if (section && (n != strlen(section) || strncmp(section, key->name, n) != 0)) continue;
    bool unused = !section && is_group_unused(key->name);
    bool next = !last || !same_group(key->name, last);
    if (next && last) brim_str_append_char(out, '\n');
    if (next) put_group(term, key->name, out);
    if (next && unused) {
      brim_str_printf(
          out, brim_tr("  not used by this version; brim config explain %.*s lists the keys\n"),
          (int)n, key->name);
    }
    if (!unused) put_key(term, key, out);
    last = key->name;
  }
  brim_str_append_char(out, '\n');
  brim_str_append(out, brim_tr("brim config explain KEY describes one key.\n"));
}

static brim_status key_json(const brim_config_key *key, json_t *out) {
  BRIM_TRY(brim_json_put(out, "key", json_string(key->name)));
  BRIM_TRY(brim_json_put(out, "type", json_string(key->type)));
  BRIM_TRY(brim_json_put(out, "default",
                         key->default_text ? json_string(key->default_text) : json_null()));
  BRIM_TRY(brim_json_put(out, "meaning", json_string(brim_tr(key->meaning))));
  BRIM_TRY(brim_json_put(out, "used", json_boolean(brim_config_key_is_used(key))));
  BRIM_TRY(brim_cli_put_names(out, "aliases", key->aliases));
  return brim_cli_put_names(out, "choices", key->choices);
}

static brim_status keys_json(brim_cli *cli, const char *section) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *name = brim_config_key_at(i)->name;
    size_t n = group_length(name);
    if (section && (n != strlen(section) || strncmp(section, name, n) != 0)) continue;
    json_t *line = json_object();
    brim_status status = key_json(brim_config_key_at(i), line);
    BRIM_TRY(brim_cli_finish_json(cli, line, status));
  }
  return BRIM_OK;
}

static brim_status explain_json(brim_cli *cli, const char *name, const char *text) {
  const brim_config_key *key = brim_config_key_find(name);
  json_t *line = json_object();
  brim_status status = key ? key_json(key, line) : brim_json_put(line, "name", json_string(name));
  if (!status) status = brim_json_put(line, "text", json_string(text));
  return brim_cli_finish_json(cli, line, status);
}

// Explains a key, component, preset or section. With --json each is a line of its own.
static brim_status explain_one(brim_cli *cli, const char *name, brim_str *text) {
  const brim_config_key *key = brim_config_key_find(name);
  if (!key && brim_config_is_section(name)) {
    if (cli->json) return keys_json(cli, name);
    list_keys(&cli->out, name, text);
    return brim_str_status(text);
  }
  if (cli->json) brim_str_clear(text);
  BRIM_TRY(brim_config_explain(name, text));
  if (key && !brim_config_key_is_used(key)) {
    brim_str_printf(text, "  %s\n", brim_tr("not used by this version"));
  }
  BRIM_TRY(brim_str_status(text));
  return cli->json ? explain_json(cli, name, text->data) : BRIM_OK;
}

static brim_status explain(brim_cli *cli) {
  if (cli->parse.positional_count == 1 && cli->json) return keys_json(cli, NULL);
  brim_str text;
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  if (cli->parse.positional_count == 1) list_keys(&cli->out, NULL, &text);
  for (size_t i = 1; i < cli->parse.positional_count && !status; i++) {
    if (i > 1 && !cli->json) brim_str_append_char(&text, '\n');
    status = explain_one(cli, cli->parse.positional[i], &text);
  }
  if (!status) status = brim_str_status(&text);
  if (!status && !cli->json) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- grid ----------------------------------

static brim_status grid_json(brim_cli *cli, const brim_config *config) {
  for (size_t i = 0; i < brim_config_grid_count(config); i++) {
    brim_str label;
    brim_str_init(&label);
    json_t *line = json_object();
    brim_status status = brim_config_grid_label(config, i, &label);
    if (!status) status = brim_json_put(line, "point", json_integer((json_int_t)i));
    if (!status) status = brim_json_put(line, "label", json_string(label.data));
    brim_str_deinit(&label);
    BRIM_TRY(brim_cli_finish_json(cli, line, status));
  }
  return BRIM_OK;
}

static brim_status grid_text(brim_cli *cli, const brim_config *config, brim_str *out) {
  size_t axes = brim_config_axis_count(config), points = brim_config_grid_count(config);
  if (axes == 0) {
    brim_str_append(out, brim_tr("1 point: this config has no axes\n"));
    return brim_str_status(out);
  }
  for (size_t i = 0; i < points; i++) {
    brim_str_printf(out, "%6zu  ", i);
    BRIM_TRY(brim_config_grid_label(config, i, out));
    brim_str_append_char(out, '\n');
  }
  brim_str tail;
  brim_str_init(&tail);
  brim_str_printf(&tail, brim_tr("%zu points:"), points);
  for (size_t i = 0; i < axes; i++) {
    brim_config_axis axis = brim_config_axis_at(config, i);
    brim_str_printf(&tail, "%s %s (%zu)", i ? "," : "", axis.key, axis.count);
  }
  brim_ui_styled(out, &cli->out, BRIM_UI_BOLD, tail.data);
  brim_str_append_char(out, '\n');
  brim_status status = brim_str_status(&tail);
  brim_str_deinit(&tail);
  return status ? status : brim_str_status(out);
}

static brim_status grid(brim_cli *cli) {
  loaded l;
  brim_status status = load(cli, BRIM_CONFIG_CHECK, &l);
  if (!status && cli->json) {
    status = grid_json(cli, l.config);
  } else if (!status) {
    brim_str text;
    brim_str_init(&text);
    status = brim_cli_finish_text(cli, &text, grid_text(cli, l.config, &text));
  }
  loaded_close(&l);
  return status;
}

//---------------------------------- check ----------------------------------

// The mistakes of one file. `more`: mistakes beyond MAX_MISTAKES. `lost`: memory ran out for the text of one.
typedef struct mistakes {
  brim_str text[MAX_MISTAKES];
  size_t count, more;
  bool lost;
} mistakes;

static void on_mistake(void *ctx, const char *text) {
  mistakes *m = ctx;
  if (m->count == MAX_MISTAKES) {
    m->more++;
    return;
  }
  brim_str *to = &m->text[m->count++];
  brim_str_init(to);
  brim_str_append(to, text);
  if (brim_str_status(to)) m->lost = true;
}

static void mistakes_free(mistakes *m) {
  for (size_t i = 0; i < m->count; i++) brim_str_deinit(&m->text[i]);
}

static brim_status check_event(brim_cli *cli, const char *path, const brim_config *config,
                               const mistakes *m) {
  const char *error = config ? NULL : m->count ? m->text[0].data : brim_status_detail();
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "file", json_string(path));
  if (!status) status = brim_json_put(f, "ok", json_boolean(config != NULL));
  if (!status) status = brim_json_put(f, "refused", json_boolean(!config));
  const char *workload = config ? brim_config_string(config, "workload") : NULL;
  if (!status) {
    status = brim_json_put(f, "workload", workload ? json_string(workload) : json_null());
  }
  if (!status) status = brim_json_put(f, "error", error ? json_string(error) : json_null());
  if (!status) status = brim_json_put(f, "errors", json_array());
  for (size_t i = 0; i < m->count && !status; i++) {
    status = brim_json_push(json_object_get(f, "errors"), json_string(m->text[i].data));
  }
  if (!status && error && m->count == 0) {
    status = brim_json_push(json_object_get(f, "errors"), json_string(error));
  }
  if (!status) status = brim_json_put(f, "warnings", json_array());
  json_t *list = status ? NULL : json_object_get(f, "warnings");
  for (size_t i = 0; config && !status && i < brim_config_warning_count(config); i++) {
    status = brim_json_push(list, json_string(brim_config_warning(config, i)));
  }
  return brim_cli_finish_event(cli, "check", f, status);
}

static brim_status print_check(brim_cli *cli, const char *path, const brim_config *config) {
  brim_str text;
  brim_str_init(&text);
  print_warnings(config);
  if (!cli->quiet) {
    brim_str_printf(&text, "%s: ", path);
    brim_ui_styled(&text, &cli->out, BRIM_UI_GOOD, brim_tr("ok"));
    size_t points = brim_config_grid_count(config);
    if (brim_config_axis_count(config) > 0) {
      brim_str_printf(&text, brim_tr(", a grid of %zu points"), points);
    }
    brim_str_append_char(&text, '\n');
  }
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

// Prints the mistakes in order. Afterwards the status detail is the text of the first mistake.
static void print_mistakes(brim_cli *cli, const mistakes *m, brim_status status) {
  if (m->count < 2) {
    brim_cli_error(cli, status);
    return;
  }
  for (size_t i = 0; i < m->count; i++) {
    brim_status_set_detail(m->text[i].data);
    brim_cli_error(cli, status);
  }
  if (m->more)
    brim_cli_note(cli,
                  m->more == 1 ? brim_tr("and %zu more error\n") : brim_tr("and %zu more errors\n"),
                  m->more);
  brim_status_set_detail(m->text[0].data);
}

static brim_status check_one(brim_cli *cli, const char *path, brim_cli_input *input,
                             const brim_config_facts *facts) {
  mistakes found = {.count = 0};
  brim_config_options how = {.path = path,
                             .overrides = (const char *const *)input->overrides,
                             .override_count = input->count,
                             .mode = BRIM_CONFIG_CHECK,
                             .facts = facts,
                             .on_mistake = on_mistake,
                             .ctx = &found};
  brim_config *config = NULL;
  brim_status status = brim_cli_load_config(cli, &how, input, &config);
  if (found.lost) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  if (cli->json && status != BRIM_ENOMEM) {
    char detail[1024] = "";
    strncat(detail, brim_status_detail(), sizeof detail - 1);
    brim_status reported = check_event(cli, path, config, &found);
    if (status) brim_status_set_detail(detail);
    if (!status) status = reported;
  } else if (status && !cli->json) {
    print_mistakes(cli, &found, status);
  } else if (!status) {
    status = print_check(cli, path, config);
    if (status) brim_cli_error(cli, status);
  }
  brim_config_close(config);
  mistakes_free(&found);
  return status;
}

static bool is_file(const char *word) { return !strchr(word, '=') || brim_fs_exists(word); }

// Checks every file. The command fails with the status of the first bad file.
static brim_status check_all(brim_cli *cli, brim_cli_input *input, const brim_config_facts *facts) {
  const char *option = brim_option_string(&cli->parse, "config", NULL);
  brim_status first_failure = BRIM_OK;
  size_t files = 0;
  char first_detail[1024] = "";
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!is_file(word)) BRIM_TRY(brim_cli_input_add(input, "%s", word));
  }
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    const char *word = i == 0 ? option : cli->parse.positional[i];
    if (!word || !is_file(word)) continue;
    files++;
    brim_status status = check_one(cli, word, input, facts);
    if (!status) continue;
    if (!first_failure) strncat(first_detail, brim_status_detail(), sizeof first_detail - 1);
    if (!first_failure) first_failure = status;
  }
  if (files == 0) return brim_cli_usage(cli, BRIM_N_("config check needs a file"));
  if (first_failure) brim_status_set_detail(first_detail);
  cli->error_reported = first_failure && !cli->json;
  return first_failure;
}

static brim_status check(brim_cli *cli) {
  brim_registry *registry = NULL;
  brim_cli_input input = {0};
  brim_device_info gpu;
  brim_config_facts facts;
  BRIM_TRY(brim_cli_registry(cli, &registry));
  brim_cli_gpu_facts(registry, &gpu, &facts);
  brim_status status = check_all(cli, &input, &facts);
  brim_cli_input_deinit(&input);
  brim_registry_destroy(registry);
  return status;
}

//---------------------------------- the command ----------------------------------

static brim_status run(brim_cli *cli) {
  static const brim_cli_verb verbs[] = {
      {"show", show}, {"explain", explain}, {"grid", grid}, {"check", check}, {NULL, NULL}};
  return brim_cli_run_verb(cli, verbs,
                           BRIM_N_("name an action: brim config show, explain, grid or check"),
                           BRIM_N_("unknown action '%.100s' after config; did you mean '%s'?"));
}

const brim_cli_command brim_cli_config = {
    .name = "config",
    .summary = BRIM_N_("show, explain, expand and check configs"),
    .usage =
        "show [CONFIG] [key.path=value ...] [--origins] [--json]\n"
        "explain [KEY|SECTION|COMPONENT|PRESET ...]\n"
        "grid CONFIG [key.path=value ...]\n"
        "check FILE...",
    .about = BRIM_N_("show prints the resolved config. explain describes a key, a section of keys, "
                     "a component or a "
                     "preset; without an argument it lists every key. grid lists the points of a "
                     "config with lists as values. check reports errors in config files."),
    .examples = BRIM_N_("print the resolved config and the source of each value\nbrim config show "
                        "configs/mnist-mlp.yaml --origins\ndescribe a key, a component and a "
                        "preset\nbrim config explain batch_size mlp a100-80g\nlist the points of a "
                        "grid\nbrim config grid lr='[0.1, 0.01]' batch_size='[64, 128]'\n"),
    .options = options,
    .run = run,
};
