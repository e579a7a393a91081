// Help text from option tables: one heading per group, rows in table order, words wrapped to the
// width. Widths are terminal columns, so translated help lines up too.
#include <string.h>

#include "base/base_msg.h"
#include "base/base_option.h"

enum { HELP_COLUMN = 30, MIN_WIDTH = 40, NARROW_COLUMN = 8, NARROW_WIDTH = 60 };

static const char *group_of(const brim_option *o) {
  return o->group ? o->group : BRIM_N_("Options");
}

// A value stays as it is typed; a sentence is translated.
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

// The sentence of a row with what the table knows besides: choices, default, other names.
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

// Words of text into out from column `at`, continued at `indent`; ends the line.
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

// Has a row before this one the same group?
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
