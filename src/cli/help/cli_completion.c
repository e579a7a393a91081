// `brim completion bash|zsh`: completion scripts made from the command, option and config tables. A script contains
// all its words, so that a key press starts no program.
#include "cli/cli.h"
#include "config/config.h"

#include <ctype.h>
#include <string.h>

#include "workload/workload.h"

static const brim_option options[] = {{0}};

//---------------------------------- words ----------------------------------

// Kinds of option values.
typedef enum value_kind {
  VALUE_NONE,    // a flag
  VALUE_FREE,    // a number or a free name
  VALUE_WORDS,   // one of a list
  VALUE_FILE,    // any file or folder
  VALUE_CONFIG,  // a YAML file
  VALUE_FOLDER
} value_kind;

// Lists no GPU numbers: only the driver knows which GPUs this machine has.
static const char *const device_names[] = {"auto", "cpu", "cuda", "ref", NULL};

// The values of `compare --by`: the knobs of all workloads, as records name them.
enum { MOST_KNOBS = 64 };
typedef const char *knob_names[MOST_KNOBS + 1];

static void find_knobs(knob_names out) {
  size_t n = 0;
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    for (size_t k = 0; table->knob_set && k < table->knob_set->count && n < MOST_KNOBS; k++) {
      const char *name = table->knob_set->rows[k].name;
      size_t at = 0;
      while (at < n && strcmp(out[at], name) != 0) at++;
      if (at == n) out[n++] = name;
    }
  }
  out[n] = NULL;
}

// Lists the workloads that can be named in place of a config (`brim train WORKLOAD`), sorted; for brim_str_deinit.
static void workload_names(brim_str *out) {
  const char *last = "", *next;
  brim_str_init(out);
  do {
    next = NULL;
    const brim_workload_table *table;
    for (size_t i = 0; (table = brim_workload_at(i)); i++) {
      if (!table->config || strcmp(table->name, last) <= 0) continue;
      if (!next || strcmp(table->name, next) < 0) next = table->name;
    }
    if (next) brim_str_printf(out, "%s%s", last[0] ? " " : "", next);
    if (next) last = next;
  } while (next);
}

// The kind of the option's value; *words = the words to offer, or NULL. `knobs` is room for names of knobs.
static value_kind kind_of(const brim_option *o, knob_names knobs, const char *const **words) {
  const char *metavar = o->metavar ? o->metavar : "";
  *words = NULL;
  if (o->choices) *words = o->choices;
  if (o->kind == BRIM_OPTION_FLAG) return VALUE_NONE;
  if (o->choices) return VALUE_WORDS;
  if (o->key && strcmp(o->key, "device") == 0) {
    *words = device_names;
    return VALUE_WORDS;
  }
  if (strcmp(metavar, "KNOB") == 0) {
    find_knobs(knobs);
    *words = knobs;
    return VALUE_WORDS;
  }
  if (o->kind != BRIM_OPTION_STRING) return VALUE_FREE;
  if (strcmp(o->name, "config") == 0 || strcmp(o->name, "apply") == 0) return VALUE_CONFIG;
  if (strcmp(metavar, "DIR") == 0) return VALUE_FOLDER;
  bool file = strstr(metavar, "FILE") || strcmp(metavar, "PATH") == 0 || strcmp(metavar, "SO") == 0;
  return file ? VALUE_FILE : VALUE_FREE;
}

// The verbs of a command such as `brim data`: the first words of its usage lines, with '|' between verbs that share
// a line.
enum { MOST_VERBS = 24 };
typedef char verb_names[MOST_VERBS][24];

static size_t verbs_of(const brim_cli_command *command, verb_names out) {
  size_t count = 0;
  for (const char *line = command->usage; *line;) {
    size_t end = strcspn(line, "\n"), word = strcspn(line, " \n");
    for (const char *at = line; at < line + word;) {
      size_t n = 0;
      while (islower((unsigned char)at[n]) || (n > 0 && at[n] == '-')) n++;
      bool whole = at + n == line + word || at[n] == '|';
      if (n == 0 || n >= sizeof out[0] || !whole || count == MOST_VERBS) break;
      memcpy(out[count], at, n);
      out[count++][n] = '\0';
      at += n + (at[n] == '|');
    }
    line += end + (line[end] == '\n');
  }
  return count;
}

static bool takes_overrides(const brim_cli_command *command) {
  return strstr(command->usage, "key.path=value") || strstr(command->usage, "key=value");
}

static bool takes_config(const brim_cli_command *command) {
  return strstr(command->usage, "CONFIG") || strstr(command->usage, "GRID");
}

// True if the first word can be a verb or a config.
static bool takes_grid(const brim_cli_command *command) {
  return brim_str_starts(command->usage, "GRID");
}

static bool takes_workload(const brim_cli_command *command) {
  return strcmp(command->name, "train") == 0 || strcmp(command->name, "bench") == 0;
}

static bool takes_nothing(const brim_cli_command *command) {
  // Look for a word in capitals that is no value of an option.
  for (const char *p = command->usage; *p; p++) {
    if (isupper((unsigned char)*p) && (p == command->usage || p[-1] == '[' || p[-1] == '\n')) {
      return false;
    }
  }
  return true;
}

static void put_components(brim_str *out, const char *category, const char *prefix) {
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    brim_config_named row = brim_config_component_named(i);
    if (category && strcmp(row.category, category) != 0) continue;
    brim_str_printf(out, "%s%s", prefix, row.name);
  }
}

// Puts every key by its name and its short aliases, such as batch_size and lr.
static void put_keys(brim_str *out) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    brim_str_printf(out, " %s", key->name);
    for (const char *const *a = key->aliases; *a; a++) {
      if (!strchr(*a, '.')) brim_str_printf(out, " %s", *a);
    }
  }
}

static void put_words(brim_str *out, const char *const *words) {
  for (const char *const *w = words; *w; w++) {
    brim_str_printf(out, "%s%s", w == words ? "" : " ", *w);
  }
}

//---------------------------------- bash ----------------------------------

static const char bash_head[] =
    "# bash completion for brim; made by `brim completion bash`.\n"
    "# To use it: brim completion bash > ~/.local/share/bash-completion/completions/brim\n\n";

// The functions that read the line. They split it themselves, since COMP_WORDS is also split at '=' and ':', which are
// parts of brim's words. After '=' they offer only the value, since readline keeps the part before it.
static const char bash_tail[] =
    "_brim_offer() {\n"
    "  local word\n"
    "  while IFS= read -r word; do\n"
    "    [ -n \"$word\" ] && COMPREPLY+=(\"$word\")\n"
    "  done < <(compgen -W \"$1\" -- \"$2\")\n"
    "}\n\n"
    "_brim_files() {\n"
    "  local name\n"
    "  compopt -o filenames 2>/dev/null\n"
    "  while IFS= read -r name; do\n"
    "    case $1 in\n"
    "      folder) [ -d \"$name\" ] || continue ;;\n"
    "      config) [ -d \"$name\" ] || [[ $name == *.yaml || $name == *.yml ]] || continue ;;\n"
    "    esac\n"
    "    COMPREPLY+=(\"$name\")\n"
    "  done < <(compgen -f -- \"$2\")\n"
    "}\n\n"
    "# What an option takes: kind and words of _brim_values, and what of it is typed.\n"
    "_brim_value() {\n"
    "  case $1 in\n"
    "    words*) _brim_offer \"${1#words}\" \"$2\" ;;\n"
    "    none*) _brim_offer \"${1#none}\" \"$2\" ;;\n"
    "    file | folder | config) _brim_files \"$1\" \"$2\" ;;\n"
    "  esac\n"
    "}\n\n"
    "_brim_argument() {\n"
    "  local command=$1 verb=$2 cur=$3 key kind\n"
    "  kind=$(_brim_takes \"$command\" \"$verb\")\n"
    "  if [[ $kind == *keys* && $cur == *=* ]]; then\n"
    "    key=${cur%%=*}\n"
    "    _brim_offer \"$(_brim_key_values \"$key\")\" \"${cur#*=}\"\n"
    "    return\n"
    "  fi\n"
    "  case $kind in\n"
    "    words*) _brim_offer \"${kind#words}\" \"$cur\" ;;\n"
    "    either*) _brim_files config \"$cur\"; _brim_offer \"${kind#either}\" \"$cur\" ;;\n"
    "    *config*) _brim_files config \"$cur\" ;;\n"
    "    *file*) _brim_files file \"$cur\" ;;\n"
    "  esac\n"
    "  [[ $kind == *workload* ]] && _brim_offer \"$(_brim_workloads)\" \"$cur\"\n"
    "  # keys are many: they are offered once a letter is typed\n"
    "  if [[ $kind == *keys* && -n $cur ]]; then\n"
    "    _brim_offer \"$(_brim_keys | sed 's/$/=/')\" \"$cur\"\n"
    "    [ ${#COMPREPLY[@]} -gt 0 ] && [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace "
    "2>/dev/null\n"
    "  fi\n"
    "}\n\n"
    "_brim() {\n"
    "  local line=${COMP_LINE:0:COMP_POINT} cur='' command='' verb='' option='' last='' kind='' "
    "word i\n"
    "  local -a words\n"
    "  COMPREPLY=()\n"
    "  read -ra words <<<\"$line\"\n"
    "  if [[ $line != *[[:space:]] ]]; then\n"
    "    cur=${words[${#words[@]} - 1]}\n"
    "    unset \"words[${#words[@]}-1]\"\n"
    "  fi\n"
    "  for ((i = 1; i < ${#words[@]}; i++)); do\n"
    "    word=${words[i]}\n"
    "    if [[ $word == -* ]]; then\n"
    "      last=$word option=$word\n"
    "      [[ $word == *=* ]] && option=''\n"
    "      [[ $(_brim_values \"$command\" \"$option\") == none* ]] && option='' last=''\n"
    "    elif [ -n \"$option\" ]; then\n"
    "      [[ $(_brim_values \"$command\" \"$option\") == *+ ]] || last=''\n"
    "      option=''\n"
    "    elif [ -z \"$command\" ]; then\n"
    "      command=$word\n"
    "    elif [ -z \"$last\" ]; then\n"
    "      [ -z \"$verb\" ] && verb=$word\n"
    "    fi\n"
    "  done\n"
    "  if [ -n \"$option\" ]; then\n"
    "    kind=$(_brim_values \"$command\" \"$option\")\n"
    "    _brim_value \"${kind%+}\" \"$cur\"\n"
    "  elif [[ $cur == --*=* ]]; then\n"
    "    kind=$(_brim_values \"$command\" \"${cur%%=*}\")\n"
    "    _brim_value \"${kind%+}\" \"${cur#*=}\"\n"
    "  elif [[ $cur == -* ]]; then\n"
    "    _brim_offer \"$(_brim_options \"$command\") $(_brim_options '')\" \"$cur\"\n"
    "  elif [ -z \"$command\" ]; then\n"
    "    _brim_offer \"$(_brim_commands)\" \"$cur\"\n"
    "  else\n"
    "    if [ -n \"$last\" ]; then\n"
    "      kind=$(_brim_values \"$command\" \"$last\")\n"
    "      _brim_value \"${kind%+}\" \"$cur\"\n"
    "    fi\n"
    "    # a flag that may be followed by a word: --resume auto\n"
    "    kind=$(_brim_values \"$command\" \"${words[${#words[@]} - 1]}\")\n"
    "    [[ $kind == 'none '* ]] && _brim_value \"$kind\" \"$cur\"\n"
    "    _brim_argument \"$command\" \"$verb\" \"$cur\"\n"
    "  fi\n"
    "}\n\n"
    "complete -F _brim brim\n";

static void bash_options(const brim_option *table, brim_str *out) {
  for (const brim_option *o = table; o->name; o++) {
    brim_str_printf(out, "%s--%s", o == table ? "" : " ", o->name);
    if (o->negatable) brim_str_printf(out, " --no-%s", o->name);
  }
}

static void bash_value_row(const char *command, const brim_option *o, brim_str *out) {
  static const char *const names[] = {
      [VALUE_NONE] = "none", [VALUE_FREE] = "free",     [VALUE_WORDS] = "words",
      [VALUE_FILE] = "file", [VALUE_CONFIG] = "config", [VALUE_FOLDER] = "folder"};
  knob_names knobs;
  const char *const *words;
  value_kind kind = kind_of(o, knobs, &words);
  brim_str_printf(out, "    '%s --%s'", command, o->name);
  if (o->short_name) brim_str_printf(out, " | '%s -%c'", command, o->short_name);
  if (o->negatable) brim_str_printf(out, " | '%s --no-%s'", command, o->name);
  for (const char *const *a = o->aliases; a && *a; a++) {
    brim_str_printf(out, " | '%s %s%s'", command, strlen(*a) == 1 ? "-" : "--", *a);
  }
  brim_str_printf(out, ") echo '%s", names[kind]);
  if (words) {
    brim_str_append_char(out, ' ');
    put_words(out, words);
  }
  brim_str_printf(out, "%s' ;;\n", o->multiple ? "+" : "");
}

static void bash_values(const brim_cli_command *const *commands, brim_str *out) {
  brim_str_append(out, "_brim_values() {\n  case \"$1 $2\" in\n");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    const brim_option *tables[BRIM_CLI_MAX_TABLES];
    brim_cli_option_tables(*c, tables);
    for (size_t i = 0; tables[i]; i++) {
      for (const brim_option *o = tables[i]; o->name; o++) bash_value_row((*c)->name, o, out);
    }
  }
  brim_str_append(out, "    *) _brim_global_values \"$2\" ;;\n  esac\n}\n\n");
  brim_str_append(out, "_brim_global_values() {\n  case \" $1\" in\n");
  for (const brim_option *o = brim_cli_global_options(); o->name; o++) bash_value_row("", o, out);
  brim_str_append(out, "    *) echo free ;;\n  esac\n}\n\n");
}

static void put_command_names(const brim_cli_command *const *commands, brim_str *out,
                              const char *prefix) {
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str_printf(out, "%s%s", prefix, (*c)->name);
  }
}

static void put_topics(brim_str *out, const char *prefix) {
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    brim_str_printf(out, "%s%s", prefix, brim_cli_topic_at(i).name);
  }
}

static void put_explainable(brim_str *out, const char *prefix) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    brim_str_printf(out, "%s%s", prefix, brim_config_key_at(i)->name);
  }
  put_components(out, NULL, prefix);
  for (size_t i = 0; i < brim_config_preset_count(); i++) {
    brim_str_printf(out, "%s%s", prefix, brim_config_preset_name(i));
  }
}

// Writes the arguments of a command besides options: "words ...", "either ..." (a word or a config), "file" or
// "config", the last two also with " keys" and " workload".
static void bash_takes_row(const brim_cli_command *const *commands, const brim_cli_command *c,
                           brim_str *out) {
  verb_names verbs;
  size_t count = verbs_of(c, verbs);
  if (count > 0) {
    brim_str_printf(out, "    '%s ') echo '%s", c->name, takes_grid(c) ? "either" : "words");
    for (size_t i = 0; i < count; i++) brim_str_printf(out, " %s", verbs[i]);
    brim_str_append(out, "' ;;\n");
  }
  if (strcmp(c->name, "config") == 0) {
    brim_str_append(out, "    'config explain') echo 'words");
    put_explainable(out, " ");
    brim_str_append(out, "' ;;\n");
  }
  if (strcmp(c->name, "help") == 0) {
    brim_str_append(out, "    'help '*) echo 'words");
    put_command_names(commands, out, " ");
    put_topics(out, " ");
    brim_str_append(out, "' ;;\n");
  } else if (strcmp(c->name, "completion") != 0 && !(takes_nothing(c) && count == 0)) {
    brim_str_printf(out, "    '%s '*) echo '%s%s%s' ;;\n", c->name,
                    takes_config(c) ? "config" : "file", takes_overrides(c) ? " keys" : "",
                    takes_workload(c) ? " workload" : "");
  }
}

static bool key_has_values(const brim_config_key *key) {
  return brim_config_key_category(key) || key->choices || strcmp(key->type, "bool") == 0;
}

static void put_key_values(brim_str *out, const brim_config_key *key) {
  const char *category = brim_config_key_category(key);
  if (category) put_components(out, category, " ");
  if (key->choices) put_words(out, key->choices);
  if (strcmp(key->type, "bool") == 0) brim_str_append(out, "true false");
}

static void bash_key_values(brim_str *out) {
  brim_str_append(out, "_brim_key_values() {\n  case $1 in\n");
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!key_has_values(key)) continue;
    brim_str_printf(out, "    %s", key->name);
    for (const char *const *a = key->aliases; *a; a++) brim_str_printf(out, " | %s", *a);
    brim_str_append(out, ") echo '");
    put_key_values(out, key);
    brim_str_append(out, "' ;;\n");
  }
  brim_str_append(out, "  esac\n}\n\n");
}

static void bash(const brim_cli_command *const *commands, brim_str *out) {
  brim_str_append(out, bash_head);
  brim_str_append(out, "_brim_commands() {\n  echo '");
  put_command_names(commands, out, " ");
  brim_str_append(out, "'\n}\n\n_brim_options() {\n  case $1 in\n");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str_printf(out, "    %s) echo '", (*c)->name);
    const brim_option *tables[BRIM_CLI_MAX_TABLES];
    brim_cli_option_tables(*c, tables);
    for (size_t i = 0; tables[i]; i++) {
      if (i > 0) brim_str_append_char(out, ' ');
      bash_options(tables[i], out);
    }
    brim_str_append(out, "' ;;\n");
  }
  brim_str_append(out, "    '') echo '");
  bash_options(brim_cli_global_options(), out);
  brim_str_append(out, "' ;;\n  esac\n}\n\n");
  bash_values(commands, out);
  brim_str_append(out, "_brim_takes() {\n  case \"$1 $2\" in\n");
  for (const brim_cli_command *const *c = commands; *c; c++) bash_takes_row(commands, *c, out);
  brim_str_append(out, "  esac\n}\n\n_brim_keys() {\n  printf '%s\\n'");
  put_keys(out);
  brim_str names;
  workload_names(&names);
  brim_str_printf(out, "\n}\n\n_brim_workloads() {\n  echo '%s'\n}\n\n", names.data);
  brim_str_deinit(&names);
  bash_key_values(out);
  brim_str_append(out, bash_tail);
}

//---------------------------------- zsh ----------------------------------

// Escapes a text for single quotes inside a spec of _arguments or _describe.
static void zsh_text(brim_str *out, const char *text) {
  for (; *text; text++) {
    if (*text == '\'') {
      brim_str_append(out, "'\\''");
    } else if (strchr("[]:\\", *text)) {
      brim_str_printf(out, "\\%c", *text);
    } else {
      brim_str_append_char(out, *text == '\n' ? ' ' : *text);
    }
  }
}

static void zsh_value(const brim_option *o, brim_str *out) {
  knob_names knobs;
  const char *const *words;
  value_kind kind = kind_of(o, knobs, &words);
  if (kind == VALUE_NONE && !words) return;
  brim_str_append(out, kind == VALUE_NONE || o->optional ? "::" : ":");
  zsh_text(out, o->metavar ? o->metavar : o->name);
  brim_str_append_char(out, ':');
  if (words) {
    brim_str_append_char(out, '(');
    put_words(out, words);
    brim_str_append_char(out, ')');
  }
  if (kind == VALUE_FILE) brim_str_append(out, "_files");
  if (kind == VALUE_FOLDER) brim_str_append(out, "_files -/");
  if (kind == VALUE_CONFIG) brim_str_append(out, "_brim_config");
}

static void zsh_spec(const brim_option *o, const char *dashes, const char *name, brim_str *out) {
  bool flag = o->kind == BRIM_OPTION_FLAG;
  brim_str_printf(out, "    '%s%s%s%s[", o->multiple ? "*" : "", dashes, name,
                  flag                                   ? ""
                  : dashes[0] == '-' && dashes[1] == '-' ? "="
                                                         : "+");
  if (o->help) zsh_text(out, brim_tr(o->help));
  brim_str_append_char(out, ']');
  zsh_value(o, out);
  brim_str_append(out, "'\n");
}

static void zsh_specs(const brim_option *table, brim_str *out) {
  for (const brim_option *o = table; o->name; o++) {
    zsh_spec(o, "--", o->name, out);
    char letter[2] = {o->short_name, '\0'};
    if (o->short_name) zsh_spec(o, "-", letter, out);
    if (o->negatable) zsh_spec(o, "--no-", o->name, out);
  }
}

static void zsh_arguments(const brim_cli_command *const *commands, const brim_cli_command *c,
                          brim_str *out) {
  verb_names verbs;
  size_t count = verbs_of(c, verbs);
  if (count > 0) {
    bool grid = takes_grid(c);
    brim_str_append(out, grid ? "    '1:verb:{_alternative \"verbs:verb:(" : "    '1:verb:(");
    for (size_t i = 0; i < count; i++) brim_str_printf(out, "%s%s", i ? " " : "", verbs[i]);
    brim_str_append(out, grid ? ")\" \"configs:config:_brim_config\"}'\n" : ")'\n");
  }
  if (strcmp(c->name, "help") == 0) {
    brim_str_append(out, "    '1:command or topic:(");
    put_command_names(commands, out, " ");
    put_topics(out, " ");
    brim_str_append(out, ")'\n");
  } else if (strcmp(c->name, "completion") != 0 && !(takes_nothing(c) && count == 0)) {
    brim_str_printf(out, "    '*:argument:%s'\n",
                    takes_overrides(c) || takes_config(c) ? "_brim_words" : "_files");
  }
}

static void zsh_describe(const char *name, const char *text, brim_str *out) {
  brim_str_append(out, "    '");
  zsh_text(out, name);
  brim_str_append_char(out, ':');
  zsh_text(out, brim_tr(text));
  brim_str_append(out, "'\n");
}

static const char zsh_helpers[] =
    "_brim_config() {\n"
    "  _files -g '*.(yaml|yml)'\n"
    "}\n\n"
    "# A config file, or key=value; for `config explain` a name.\n"
    "_brim_words() {\n"
    "  local key=${PREFIX%%=*}\n"
    "  if [[ $words[1] == config && $words[2] == explain ]]; then\n"
    "    compadd -a _brim_names\n"
    "  elif [[ $PREFIX == *=* ]]; then\n"
    "    compset -P '*='\n"
    "    [[ -n $_brim_key_values[$key] ]] && compadd -- ${=_brim_key_values[$key]}\n"
    "  else\n"
    "    _brim_config\n"
    "    [[ $words[1] == (train|bench) ]] && compadd -- ${=_brim_workloads}\n"
    "    [[ -n $PREFIX ]] && compadd -S '=' -a _brim_keys\n"
    "  fi\n"
    "}\n\n";

static void zsh_tables(brim_str *out) {
  brim_str_append(out, "typeset -ga _brim_keys _brim_names\ntypeset -gA _brim_key_values\n");
  brim_str names;
  workload_names(&names);
  brim_str_printf(out, "typeset -g _brim_workloads='%s'\n", names.data);
  brim_str_deinit(&names);
  brim_str_append(out, "_brim_keys=(");
  put_keys(out);
  brim_str_append(out, " )\n_brim_names=(");
  put_explainable(out, " ");
  brim_str_append(out, " )\n_brim_key_values=(\n");
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!key_has_values(key)) continue;
    const char *name = key->name;
    for (const char *const *a = key->aliases; name; name = *a++) {
      brim_str_printf(out, "  %s '", name);
      put_key_values(out, key);
      brim_str_append(out, "'\n");
    }
  }
  brim_str_append(out, ")\n\n");
}

static void zsh(const brim_cli_command *const *commands, brim_str *out) {
  brim_str_append(out,
                  "#compdef brim\n# zsh completion for brim; made by `brim completion zsh`.\n"
                  "# To use it: brim completion zsh > a folder of $fpath, as _brim\n\n");
  zsh_tables(out);
  brim_str_append(out, zsh_helpers);
  brim_str_append(out, "_brim() {\n  local curcontext=$curcontext state line\n");
  brim_str_append(out, "  local -a commands globals\n  commands=(\n");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    zsh_describe((*c)->name, (*c)->summary, out);
  }
  brim_str_append(out, "  )\n  globals=(\n");
  zsh_specs(brim_cli_global_options(), out);
  brim_str_append(out,
                  "  )\n  _arguments -C $globals '1:command:->command' '*::argument:->argument'\n"
                  "  if [[ $state == command ]]; then\n"
                  "    _describe -t commands command commands\n    return\n  fi\n"
                  "  [[ $state == argument ]] || return\n  case $words[1] in\n");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str_printf(out, "  %s)\n    local -a specs\n    specs=(\n", (*c)->name);
    const brim_option *tables[BRIM_CLI_MAX_TABLES];
    brim_cli_option_tables(*c, tables);
    for (size_t i = 0; tables[i]; i++) zsh_specs(tables[i], out);
    zsh_arguments(commands, *c, out);
    brim_str_append(out, "    )\n    _arguments $specs $globals\n    ;;\n");
  }
  brim_str_append(out,
                  "  esac\n}\n\nif [[ $funcstack[1] == _brim ]]; then\n  _brim \"$@\"\nelse\n"
                  "  compdef _brim brim\nfi\n");
}

//---------------------------------- the command ----------------------------------

static brim_status run(brim_cli *cli) {
  const char *shell = cli->parse.positional_count ? cli->parse.positional[0] : "";
  bool is_bash = strcmp(shell, "bash") == 0;
  if (cli->parse.positional_count != 1 || (!is_bash && strcmp(shell, "zsh") != 0)) {
    return brim_cli_usage(cli, BRIM_N_("name a shell: brim completion bash, or zsh"));
  }
  brim_str text;
  brim_str_init(&text);
  if (is_bash) {
    bash(cli->commands, &text);
  } else {
    zsh(cli->commands, &text);
  }
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

const brim_cli_command brim_cli_completion = {
    .name = "completion",
    .summary = BRIM_N_("print a completion script for bash or zsh"),
    .usage = "bash\nzsh",
    .about = BRIM_N_("Prints a script that completes brim's commands, options, config keys, "
                     "component names and files in the shell. make install installs it. Without "
                     "make install, write it to a file that your shell reads."),
    .examples = BRIM_N_("in this shell only\nsource <(brim completion bash)\npermanently\nbrim "
                        "completion bash > ~/.local/share/bash-completion/completions/brim\n"),
    .options = options,
    .run = run,
};
