// Option tables: the parser, and help texts from the rows.

#include "base/base_option.h"

#include <limits.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_msg.h"
#include "base/base_status.h"

//-------------------------------------------- parser --------------------------------------------

// The option that a word on the command line names.
typedef struct match {
  const brim_option *option;
  bool negated;
} match;

// Compares names; '_' and '-' are the same.
static bool same_name(const char *name, const char *word, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char a = name[i] == '_' ? '-' : name[i], b = word[i] == '_' ? '-' : word[i];
    if (a != b || !a) return false;
  }
  return name[n] == '\0';
}

static bool has_name(const brim_option *o, const char *word, size_t n) {
  if (same_name(o->name, word, n)) return true;
  for (const char *const *a = o->aliases; a && *a; a++) {
    if (same_name(*a, word, n)) return true;
  }
  return false;
}

static const brim_option *find_option(const brim_option *const *tables, const char *word,
                                      size_t n) {
  for (; *tables; tables++) {
    for (const brim_option *o = *tables; o->name; o++) {
      if (has_name(o, word, n)) return o;
    }
  }
  return NULL;
}

static match match_long(const brim_option *const *tables, const char *word, size_t n) {
  match m = {.option = find_option(tables, word, n)};
  if (!m.option && n > 3 && (strncmp(word, "no-", 3) == 0 || strncmp(word, "no_", 3) == 0)) {
    m.option = find_option(tables, word + 3, n - 3);
    m.negated = true;
    if (m.option && !m.option->negatable) m.option = NULL;
  }
  return m;
}

static const brim_option *match_short(const brim_option *const *tables, char letter) {
  for (const brim_option *const *t = tables; *t; t++) {
    for (const brim_option *o = *t; o->name; o++) {
      if (o->short_name == letter) return o;
    }
  }
  return find_option(tables, &letter, 1);  // a name or an alias may be one letter
}

// Returns the name nearest to a mistyped one, or NULL.
static const char *suggest(const brim_option *const *tables, const char *word) {
  const char *best = NULL;
  int best_distance = INT_MAX;
  for (; *tables; tables++) {
    for (const brim_option *o = *tables; o->name; o++) {
      const char *const *alias = o->aliases;
      for (const char *name = o->name; name; name = alias ? *alias++ : NULL) {
        const char *const one[] = {name, NULL};
        if (!brim_nearest(word, one)) continue;
        int distance = brim_edit_distance(word, name);
        if (distance < best_distance) {
          best = name;
          best_distance = distance;
        }
      }
    }
  }
  return best;
}

static brim_status unknown_option(const brim_option *const *tables, const char *word, size_t n) {
  char name[128];
  if (n >= sizeof name) n = sizeof name - 1;
  memcpy(name, word, n);
  name[n] = '\0';
  const char *near = suggest(tables, name);
  if (near) {
    return brim_fail(BRIM_EINVAL, "unknown option --%s; did you mean --%s?", name, near);
  }
  return brim_fail(BRIM_EINVAL, "unknown option --%s; --help lists them all", name);
}

// True for "-x" and "--x", but not for "-" and negative numbers.
static bool is_option(const char *arg) {
  double number;
  return arg[0] == '-' && arg[1] != '\0' && !brim_parse_f64(arg, &number);
}

static brim_status check_choice(const brim_option *o, const char *value) {
  char list[512] = "";
  size_t used = 0;
  for (const char *const *c = o->choices; c && *c; c++) {
    if (strcmp(*c, value) == 0) return BRIM_OK;
    size_t n = strlen(*c);
    if (used + n + 3 > sizeof list) continue;
    if (used) {
      memcpy(list + used, ", ", 2);
      used += 2;
    }
    memcpy(list + used, *c, n + 1);
    used += n;
  }
  const char *near = o->choices ? brim_nearest(value, o->choices) : NULL;
  if (near) {
    return brim_fail(BRIM_EINVAL, "--%s: '%s' is not one of: %s; did you mean '%s'?", o->name,
                     value, list, near);
  }
  return brim_fail(BRIM_EINVAL, "--%s: '%s' is not one of: %s", o->name, value, list);
}

static brim_status check_value(const brim_option *o, const char *value) {
  int64_t whole;
  double number;
  uint64_t bytes;
  switch (o->kind) {
    case BRIM_OPTION_INT:
      if (brim_parse_i64(value, &whole)) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "--%s: '%s' is not a whole number", o->name, value);
    case BRIM_OPTION_FLOAT:
      if (brim_parse_f64(value, &number)) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "--%s: '%s' is not a number", o->name, value);
    case BRIM_OPTION_BYTES:
      if (brim_parse_bytes(value, &bytes)) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "--%s: '%s' is not a size like 12GB or 512MiB", o->name, value);
    case BRIM_OPTION_ENUM:
      return check_choice(o, value);
    case BRIM_OPTION_FLAG:
    case BRIM_OPTION_STRING:
    case BRIM_OPTION_KIND_COUNT:
      break;
  }
  return BRIM_OK;
}

static bool is_choice(const brim_option *o, const char *word) {
  for (const char *const *c = o->choices; c && *c; c++) {
    if (strcmp(*c, word) == 0) return true;
  }
  return false;
}

// True if the word after an option is its value.
static bool is_value_of(const brim_option *o, const char *word) {
  int64_t whole;
  double number;
  uint64_t bytes;
  switch (o->kind) {
    case BRIM_OPTION_FLAG:
    case BRIM_OPTION_ENUM:
      return is_choice(o, word);
    case BRIM_OPTION_INT:
      return brim_parse_i64(word, &whole);
    case BRIM_OPTION_FLOAT:
      return brim_parse_f64(word, &number);
    case BRIM_OPTION_BYTES:
      return brim_parse_bytes(word, &bytes);
    case BRIM_OPTION_STRING:
    case BRIM_OPTION_KIND_COUNT:
      break;
  }
  return word[0] != '-' && (!strchr(word, '=') || brim_fs_exists(word));
}

// The state of parsing. Every argument fills at most one slot, so argc slots are enough.
typedef struct walk {
  const brim_option *const *tables;
  int argc;
  const char *const *argv;
  int at;
  const char **slots;
  size_t slot_count;
  brim_option_parse *out;
} walk;

static brim_status add_value(walk *w, brim_option_value *item, const char *value) {
  BRIM_TRY(check_value(item->option, value));
  w->slots[w->slot_count++] = value;
  item->count++;
  return BRIM_OK;
}

// Takes one occurrence of an option. `attached`: the text after '=' or after a short name, or NULL.
static brim_status take_option(walk *w, match m, const char *attached) {
  const brim_option *o = m.option;
  brim_option_value *item = &w->out->items[w->out->count];
  *item = (brim_option_value){.option = o, .flag = !m.negated, .values = w->slots + w->slot_count};
  w->out->count++;
  bool has_next = w->at < w->argc;
  if (o->kind == BRIM_OPTION_FLAG && o->choices && !m.negated) {
    if (attached && is_choice(o, attached)) return add_value(w, item, attached);
    if (!attached && has_next && is_choice(o, w->argv[w->at]))
      return add_value(w, item, w->argv[w->at++]);
  }
  if (o->kind == BRIM_OPTION_FLAG || m.negated) {
    if (!attached) return BRIM_OK;
    bool value;
    if (m.negated || !brim_parse_bool(attached, &value)) {
      if (o->choices && !m.negated) return check_choice(o, attached);
      return brim_fail(BRIM_EINVAL, "--%s takes no value, but '%s' was given", o->name, attached);
    }
    item->flag = value;
    return BRIM_OK;
  }
  if (attached) return add_value(w, item, attached);
  while (w->at < w->argc &&
         (o->optional ? is_value_of(o, w->argv[w->at]) : !is_option(w->argv[w->at]))) {
    BRIM_TRY(add_value(w, item, w->argv[w->at++]));
    if (!o->multiple) return BRIM_OK;
  }
  if (item->count || o->optional) return BRIM_OK;
  if (w->at < w->argc && strcmp(w->argv[w->at], "--") != 0) {
    return brim_fail(BRIM_EINVAL,
                     "--%s needs a value, but %s follows; write --%s=VALUE for a value "
                     "that starts with a dash",
                     o->name, w->argv[w->at], o->name);
  }
  return brim_fail(BRIM_EINVAL, "--%s needs a value", o->name);
}

static brim_status take_long(walk *w, const char *word) {
  const char *equals = strchr(word, '=');
  size_t n = equals ? (size_t)(equals - word) : strlen(word);
  match m = match_long(w->tables, word, n);
  if (!m.option) return unknown_option(w->tables, word, n);
  return take_option(w, m, equals ? equals + 1 : NULL);
}

// Takes -x, -x VALUE, -xVALUE or -x=VALUE. Flags are not bundled: "-abc" would hide a mistyped "--abc".
static brim_status take_short(walk *w, const char *arg) {
  size_t n = strcspn(arg + 1, "=");
  match m = {.option = match_short(w->tables, arg[1])};
  bool attached = m.option && n > 1 && m.option->kind != BRIM_OPTION_FLAG;
  if (!m.option || (n > 1 && !attached)) {
    if (find_option(w->tables, arg + 1, n)) {
      return brim_fail(BRIM_EINVAL, "unknown option %s; did you mean -%s?", arg, arg);
    }
    return brim_fail(BRIM_EINVAL, "unknown option %s; --help lists them all", arg);
  }
  if (n == 1) return take_option(w, m, arg[2] == '=' ? arg + 3 : NULL);
  return take_option(w, m, arg + 2);
}

brim_status brim_option_parse_args(const brim_option *const *tables, int argc,
                                   const char *const *argv, brim_option_parse *out) {
  *out = (brim_option_parse){0};
  // One block: occurrences, then value slots, then positional arguments; at most argc of each.
  size_t n = argc > 0 ? (size_t)argc : 0;
  char *block = brim_calloc(n + 1, sizeof(brim_option_value) + 2 * sizeof(char *));
  if (!block) return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
  out->items = (brim_option_value *)(void *)block;
  walk w = {.tables = tables, .argc = argc, .argv = argv, .out = out};
  w.slots = (const char **)(void *)(block + (n + 1) * sizeof(brim_option_value));
  out->positional = w.slots + n + 1;
  brim_status status = BRIM_OK;
  while (w.at < argc && !status) {
    const char *arg = argv[w.at++];
    if (strcmp(arg, "--") == 0) {
      out->rest = argv + w.at;
      out->rest_count = (size_t)(argc - w.at);
      break;
    }
    if (!is_option(arg)) {
      out->positional[out->positional_count++] = arg;
    } else if (arg[1] == '-') {
      status = take_long(&w, arg + 2);
    } else {
      status = take_short(&w, arg);
    }
  }
  if (status) brim_option_parse_deinit(out);
  return status;
}

void brim_option_parse_deinit(brim_option_parse *parse) {
  brim_free(parse->items);
  *parse = (brim_option_parse){0};
}

const brim_option_value *brim_option_find(const brim_option_parse *parse, const char *name) {
  for (size_t i = parse->count; i > 0; i--) {
    if (strcmp(parse->items[i - 1].option->name, name) == 0) return &parse->items[i - 1];
  }
  return NULL;
}

bool brim_option_flag(const brim_option_parse *parse, const char *name, bool fallback) {
  const brim_option_value *v = brim_option_find(parse, name);
  return v ? v->flag : fallback;
}

const char *brim_option_string(const brim_option_parse *parse, const char *name,
                               const char *fallback) {
  const brim_option_value *v = brim_option_find(parse, name);
  return v && v->count ? v->values[0] : fallback;
}

int64_t brim_option_int(const brim_option_parse *parse, const char *name, int64_t fallback) {
  const brim_option_value *v = brim_option_find(parse, name);
  int64_t whole;
  uint64_t bytes;
  if (!v || !v->count) return fallback;
  if (v->option->kind == BRIM_OPTION_BYTES) {
    return brim_parse_bytes(v->values[0], &bytes) && bytes <= INT64_MAX ? (int64_t)bytes : fallback;
  }
  return brim_parse_i64(v->values[0], &whole) ? whole : fallback;
}

double brim_option_float(const brim_option_parse *parse, const char *name, double fallback) {
  const brim_option_value *v = brim_option_find(parse, name);
  double number;
  return v && v->count && brim_parse_f64(v->values[0], &number) ? number : fallback;
}

//---------------------------------- help ----------------------------------
// Help has one heading per group, rows in table order, wrapped to the width. Widths are terminal columns, so
// translated help lines up.

enum { HELP_COLUMN = 30, MIN_WIDTH = 40, NARROW_COLUMN = 8, NARROW_WIDTH = 60 };

static const char *group_of(const brim_option *o) {
  return o->group ? o->group : BRIM_N_("Options");
}

// Returns the default as help shows it; only a sentence is translated.
static const char *default_of(const brim_option *o) {
  return strchr(o->default_text, ' ') ? brim_tr(o->default_text) : o->default_text;
}

const char *brim_option_metavar(const brim_option *o) {
  static const char *const names[BRIM_OPTION_KIND_COUNT] = {
      [BRIM_OPTION_FLAG] = "",   [BRIM_OPTION_STRING] = "TEXT", [BRIM_OPTION_INT] = "N",
      [BRIM_OPTION_FLOAT] = "X", [BRIM_OPTION_BYTES] = "SIZE",  [BRIM_OPTION_ENUM] = "CHOICE"};
  return o->metavar ? o->metavar : names[o->kind];
}

void brim_option_value_text(const brim_option *o, brim_str *out) {
  if (o->kind != BRIM_OPTION_FLAG) {
    brim_str_printf(out, o->optional ? "[%s%s]" : "%s%s", brim_option_metavar(o),
                    o->multiple ? "..." : "");
    return;
  }
  for (const char *const *c = o->choices; c && *c; c++)
    brim_str_printf(out, "%s%s%s", c == o->choices ? "[" : "|", *c, c[1] ? "" : "]");
}

static void append_names(const brim_option *o, brim_str *out) {
  brim_str_append(out, "  ");
  if (o->short_name) {
    brim_str_printf(out, "-%c, ", o->short_name);
  } else {
    brim_str_append(out, "    ");
  }
  bool flag = o->kind == BRIM_OPTION_FLAG;
  brim_str_printf(out, "--%s%s", flag && o->negatable ? "[no-]" : "", o->name);
  if (!flag || o->choices) brim_str_append_char(out, ' ');
  brim_option_value_text(o, out);
}

// Appends a row's sentence with its choices, default and aliases.
static void append_sentence(const brim_option *o, brim_str *out) {
  if (o->help) brim_str_append(out, brim_tr(o->help));
  if (o->kind == BRIM_OPTION_ENUM && o->choices) {
    brim_str_printf(out, "%s(%s ", out->len ? " " : "", brim_tr("one of:"));
    for (const char *const *c = o->choices; *c; c++) {
      brim_str_printf(out, "%s%s", *c, c[1] ? ", " : ")");
    }
  }
  if (o->default_text) {
    brim_str_printf(out, "%s(%s %s)", out->len ? " " : "", brim_tr("default:"), default_of(o));
  }
  if (o->aliases && o->aliases[0]) {
    brim_str_printf(out, "%s(%s ", out->len ? " " : "", brim_tr("also:"));
    for (const char *const *a = o->aliases; *a; a++) {
      brim_str_printf(out, "%s%s%s", strlen(*a) == 1 ? "-" : "--", *a, a[1] ? ", " : ")");
    }
  }
}

// Appends words from column `at`, wrapped at `width` and continued at `indent`; ends the line.
static void append_wrapped(const char *text, int at, int indent, int width, brim_str *out) {
  bool line_empty = true;
  for (const char *p = text; *p;) {
    size_t n = strcspn(p, " ");
    if (n == 0) {
      p++;
      continue;
    }
    brim_str word;
    brim_str_init(&word);
    brim_str_append_n(&word, p, n);
    int columns = brim_utf8_width(word.data);
    if (word.status && !out->status) out->status = word.status;
    brim_str_deinit(&word);
    if (!line_empty && at + 1 + columns > width) {
      brim_str_append_char(out, '\n');
      brim_str_repeat(out, ' ', (size_t)indent);
      at = indent;
      line_empty = true;
    }
    if (!line_empty) brim_str_append_char(out, ' ');
    brim_str_append_n(out, p, n);
    at += columns + (line_empty ? 0 : 1);
    line_empty = false;
    p += n;
  }
  brim_str_append_char(out, '\n');
}

static void append_row(const brim_option *o, int width, brim_str *out) {
  int indent = width < NARROW_WIDTH ? NARROW_COLUMN : HELP_COLUMN;
  brim_str part;
  brim_str_init(&part);
  append_names(o, &part);
  int at = brim_utf8_width(part.data);
  brim_str_append(out, part.data);
  brim_str_clear(&part);
  append_sentence(o, &part);
  if (part.len == 0) {
    brim_str_append_char(out, '\n');
  } else {
    if (at + 2 > indent) {
      brim_str_append_char(out, '\n');
      at = 0;
    }
    brim_str_repeat(out, ' ', (size_t)(indent - at));
    append_wrapped(part.data, indent, indent, width, out);
  }
  if (part.status && !out->status) out->status = part.status;
  brim_str_deinit(&part);
}

// True if an earlier row has the same group.
static bool group_seen(const brim_option *const *tables, const brim_option *row) {
  for (; *tables; tables++) {
    for (const brim_option *o = *tables; o->name; o++) {
      if (o == row) return false;
      if (strcmp(group_of(o), group_of(row)) == 0) return true;
    }
  }
  return false;
}

static void append_group(const brim_option *const *tables, const char *group, int width,
                         brim_str *out) {
  brim_str_printf(out, "%s:\n", brim_tr(group));
  for (; *tables; tables++) {
    for (const brim_option *o = *tables; o->name; o++) {
      if (strcmp(group_of(o), group) == 0) append_row(o, width, out);
    }
  }
}

void brim_option_help(const brim_option *const *tables, int width, brim_str *out) {
  if (width < MIN_WIDTH) width = MIN_WIDTH;
  bool first = true;
  for (const brim_option *const *t = tables; *t; t++) {
    for (const brim_option *o = *t; o->name; o++) {
      if (group_seen(tables, o)) continue;
      if (!first) brim_str_append_char(out, '\n');
      first = false;
      append_group(tables, group_of(o), width, out);
    }
  }
}
