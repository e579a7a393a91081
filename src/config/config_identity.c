// What makes a point the experiment it is: its identity, the hashes of it, and the config that an
// experiment is stored with. Both leave out what says nothing; they differ in what that is.
#include <stdlib.h>
#include <string.h>

#include "base/base_sha256.h"
#include "config/config_int.h"

// What a key says, with the newline.
typedef struct line {
  const char *text;
  int row;
} line;

typedef struct writer {
  const brim_config *config;
  const char *workload;
  bool automatic;  // preset: auto
  bool stored;     // for the stored config, else the identity
  brim_arena *arena;
  line *lines;
  size_t count, cap;
  bool usual[BRIM_CONFIG_MAX_ROWS];  // keys that have their component's default
} writer;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while printing a config");
}

static const brim_config_value *value_of(const brim_config *config, const char *key) {
  return &config->values[brim_config_row_find(key)];
}

static brim_status writer_init(writer *w, const brim_config *config, bool stored) {
  memset(w, 0, sizeof *w);
  const brim_config_value *preset = value_of(config, "preset");
  w->config = config;
  w->workload = value_of(config, "workload")->string;
  w->automatic = !preset->is_null && preset->string && !strcmp(preset->string, "auto");
  w->stored = stored;
  brim_json_setup();
  return brim_arena_create(0, &w->arena);
}

// Did the machine choose it?
static bool is_resolved(const writer *w, const brim_config_value *value) {
  return w->automatic && brim_config_layer_is_preset(w->config->source, value->layer);
}

//---------------------------------- components ----------------------------------

// The component whose arguments may be keys too.
typedef struct owner {
  int row, slot;
  bool single;  // else a pipeline of several, whose arguments are none
} owner;

static brim_status print_component(writer *w, const char *category, const brim_component *c,
                                   const owner *of, brim_str *out);

static brim_status print_value(writer *w, const brim_config_arg *arg, const brim_value *v,
                               brim_str *out) {
  if (v->kind == BRIM_VALUE_COMPONENT) {
    BRIM_TRY(print_component(w, arg ? arg->choices : NULL, v->component, NULL, out));
    if (out->len && out->data[out->len - 1] != ')') brim_str_append(out, "()");
    return BRIM_OK;
  }
  if (v->kind != BRIM_VALUE_LIST) {
    brim_config_value_print(out, v);
    return BRIM_OK;
  }
  const bool tuple = w->stored && v->tuple;  // (1, 2) and [1, 2] are the same
  brim_str_append_char(out, tuple ? '(' : '[');
  for (size_t i = 0; i < v->count; i++) {
    if (i) brim_str_append(out, ", ");
    BRIM_TRY(print_value(w, arg, &v->items[i], out));
  }
  if (tuple && v->count == 1) brim_str_append_char(out, ',');
  brim_str_append_char(out, tuple ? ')' : ']');
  return BRIM_OK;
}

// Most arguments are numbers at their defaults: these need not be printed to be compared.
static bool is_same_number(const brim_value *a, const brim_value *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == BRIM_VALUE_INT) return a->integer == b->integer;
  return a->kind == BRIM_VALUE_FLOAT && memcmp(&a->number, &b->number, sizeof a->number) == 0;
}

static brim_status is_usual(writer *w, const brim_config_component_row *row,
                            const brim_config_arg *arg, const brim_value *v, bool *out) {
  brim_value usual;
  *out = false;
  if (!arg) return BRIM_OK;
  BRIM_TRY(brim_config_arg_default(w->arena, row, arg, &usual));
  if (usual.kind == BRIM_VALUE_NULL) return BRIM_OK;
  if (is_same_number(&usual, v)) {
    *out = true;
    return BRIM_OK;
  }
  brim_str a, b;
  brim_str_init(&a);
  brim_str_init(&b);
  brim_status status = print_value(w, arg, &usual, &a);
  if (!status) status = print_value(w, arg, v, &b);
  if (!status) status = brim_str_status(&a);
  if (!status) status = brim_str_status(&b);
  *out = !strcmp(a.data, b.data);
  brim_str_deinit(&a);
  brim_str_deinit(&b);
  return status;
}

// Is the argument left out? A key that is the same setting has its value.
static brim_status leaves_out(writer *w, const brim_config_component_row *row,
                              const brim_argument *argument, const owner *of, bool *out) {
  const brim_value *v = &argument->value;
  const brim_config_arg *arg = row ? brim_config_arg_find(row, argument->name) : NULL;
  const brim_config_link *link =
      of && of->single ? brim_config_link_of(of->row, of->slot, argument->name) : NULL;
  const int key = link ? brim_config_row_find(link->key) : -1;
  const brim_config_value *same = link ? &w->config->values[key] : NULL;
  if (same && (same->number != v->number || same->boolean != v->boolean)) same = NULL;
  BRIM_TRY(is_usual(w, row, arg, v, out));
  if (!same) return BRIM_OK;
  if (w->stored) {
    const bool given = same->is_set && same->layer >= 0 &&
                       !brim_config_layer_is_preset(w->config->source, same->layer);
    *out = !given;
    return BRIM_OK;
  }
  if (*out) w->usual[key] = true;
  *out = true;
  return BRIM_OK;
}

static int by_name(const void *a, const void *b) {
  const brim_argument *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static brim_status print_component(writer *w, const char *category, const brim_component *c,
                                   const owner *of, brim_str *out) {
  const brim_config_component_row *row =
      category ? brim_config_component_find(category, c->name) : NULL;
  const brim_argument **args = brim_arena_calloc(w->arena, c->arg_count + 1, sizeof(void *));
  if (!args) return no_memory();
  for (size_t i = 0; i < c->arg_count; i++) args[i] = &c->args[i];
  if (!w->stored && c->arg_count) qsort(args, c->arg_count, sizeof *args, by_name);
  brim_str_append(out, c->name);
  const char *before = "(";
  for (size_t i = 0; i < c->arg_count; i++) {
    bool out_of_it;
    BRIM_TRY(leaves_out(w, row, args[i], of, &out_of_it));
    if (out_of_it) continue;
    brim_str_printf(out, "%s%s=", before, args[i]->name);
    BRIM_TRY(print_value(w, row ? brim_config_arg_find(row, args[i]->name) : NULL, &args[i]->value,
                         out));
    before = ", ";
  }
  if (*before == ',') brim_str_append_char(out, ')');
  return BRIM_OK;
}

static brim_status print_pipeline(writer *w, int row, int slot, const brim_pipeline *p,
                                  brim_str *out) {
  const owner of = {row, slot, p->count == 1};
  for (size_t i = 0; i < p->count; i++) {
    if (i) brim_str_append(out, " | ");
    BRIM_TRY(print_component(w, brim_config_row_at((size_t)row)->category, &p->items[i], &of, out));
  }
  if (p->tail) brim_str_append(out, p->count ? " | ..." : "...");
  return brim_str_status(out);
}

//---------------------------------- lines ----------------------------------

// The length keeps values apart that have line breaks of their own.
static brim_status add_line(writer *w, int row, const char *slot, const brim_str *value) {
  const char *key = brim_config_row_at((size_t)row)->key.name;
  const char *made;
  BRIM_TRY(brim_str_status(value));
  BRIM_TRY(brim_config_grow(w->arena, &w->lines, sizeof *w->lines, w->count, &w->cap));
  const char *dot = slot ? "." : "";
  if (!slot) slot = "";
  if (w->stored) {
    brim_str text;
    brim_str_init(&text);
    brim_config_yaml_string(&text, value->data);
    made = brim_str_status(&text)
               ? NULL
               : brim_arena_printf(w->arena, "%s%s%s: %s\n", key, dot, slot, text.data);
    brim_str_deinit(&text);
  } else {
    made = brim_arena_printf(w->arena, "%s%s%s %zu %s\n", key, dot, slot, value->len, value->data);
  }
  if (!made) return no_memory();
  w->lines[w->count++] = (line){made, row};
  return BRIM_OK;
}

static brim_status component_lines(writer *w, int row, brim_str *text) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  const char *usual = info->key.default_text;
  if (w->stored && !value->is_set) return BRIM_OK;
  for (int slot = 0; slot < BRIM_CONFIG_SLOT_COUNT; slot++) {
    if (!value->slots[slot]) continue;
    brim_str_clear(text);
    BRIM_TRY(print_pipeline(w, row, slot, value->slots[slot], text));
    if (!w->stored && !slot && usual && !strcmp(text->data, usual)) continue;
    BRIM_TRY(add_line(w, row, brim_config_slot_name(slot), text));
  }
  return BRIM_OK;
}

static void value_text(const brim_config_row *row, const brim_config_value *value, brim_str *out) {
  if (value->is_null) {
    brim_str_append(out, "auto");
  } else {
    brim_config_value_text(out, row, value);
  }
}

static brim_status at_default(writer *w, const brim_config_row *row, const char *text, bool *out) {
  const brim_config_place at = {"default", 0, 0};
  brim_config_value usual;
  brim_str have;
  *out = false;
  if (!row->key.default_text) return BRIM_OK;
  const brim_config_node *node = brim_config_node_plain(w->arena, row->key.default_text, at);
  if (!node) return no_memory();
  BRIM_TRY(brim_config_convert(w->arena, row, node, &usual));
  brim_str_init(&have);
  value_text(row, &usual, &have);
  brim_status status = brim_str_status(&have);
  *out = !strcmp(have.data, text);
  brim_str_deinit(&have);
  return status;
}

static bool is_open(const brim_config_row *row, const brim_config_value *value) {
  return value->is_null && !(row->flags & BRIM_CONFIG_AUTO);
}

// Is the key left out of the identity of a group, or of what a run costs?
static bool is_beside(brim_config_identity_of of, int at) {
  const brim_config_row *row = brim_config_row_at((size_t)at);
  if (of == BRIM_CONFIG_GROUP) return !strcmp(row->key.name, "seed");
  return of == BRIM_CONFIG_COST && row->flags & BRIM_CONFIG_NO_COST;
}

static brim_status key_line(writer *w, int row, brim_str *text) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  const char *name = info->key.name;
  const bool given = brim_config_row_counts_given(info, w->workload);
  if (!value->is_set || is_open(info, value) || is_resolved(w, value)) return BRIM_OK;
  if (w->usual[row] && !given) return BRIM_OK;
  if (info->flags & BRIM_CONFIG_NEVER_AXIS) return BRIM_OK;
  // The values of a preset stand for it.
  if (!w->automatic && (!strcmp(name, "preset") || !strcmp(name, "model_size"))) return BRIM_OK;
  bool usual = false;
  if (given && brim_config_layer_is_preset(w->config->source, value->layer)) return BRIM_OK;
  brim_str_clear(text);
  value_text(info, value, text);
  if (!given) BRIM_TRY(at_default(w, info, text->data, &usual));
  return usual ? BRIM_OK : add_line(w, row, NULL, text);
}

//---------------------------------- identity ----------------------------------

static int by_text(const void *a, const void *b) {
  const line *x = a, *y = b;
  return strcmp(x->text, y->text);
}

// Components first: they know which keys have a default of theirs.
static brim_status collect(writer *w, brim_str *text) {
  const int rows = (int)brim_config_key_count();
  for (int component = 1; component >= 0; component--) {
    for (int row = 0; row < rows; row++) {
      const brim_config_row *info = brim_config_row_at((size_t)row);
      if (info->type == BRIM_CONFIG_SPECIAL || !brim_config_row_is_for(info, w->workload) ||
          brim_config_row_is_component(info) != component) {
        continue;
      }
      BRIM_TRY(component ? component_lines(w, row, text) : key_line(w, row, text));
    }
  }
  return BRIM_OK;
}

// All lines in their order. w->arena is for the caller, also after a failure.
static brim_status write_lines(const brim_config *config, writer *w) {
  brim_str text;
  BRIM_TRY(writer_init(w, config, false));
  brim_str_init(&text);
  brim_status status = collect(w, &text);
  if (!status && w->count) qsort(w->lines, w->count, sizeof *w->lines, by_text);
  brim_str_deinit(&text);
  return status;
}

static void put_identity(const writer *w, brim_config_identity_of of, brim_str *out) {
  for (size_t i = 0; i < w->count; i++) {
    if (!is_beside(of, w->lines[i].row)) brim_str_append(out, w->lines[i].text);
  }
}

brim_status brim_config_identity(const brim_config *config, brim_config_identity_of of,
                                 brim_str *out) {
  writer w;
  brim_status status = write_lines(config, &w);
  if (!status) put_identity(&w, of, out);
  brim_arena_destroy(w.arena);
  return status ? status : brim_str_status(out);
}

static brim_status put_hash(const writer *w, brim_config_identity_of of, brim_str *text,
                            char out[33]) {
  static const char *const heads[BRIM_CONFIG_IDENTITY_COUNT] = {"brim experiment\n", "brim group\n",
                                                                "brim cost\n"};
  char hex[BRIM_SHA256_HEX];
  brim_str_clear(text);
  brim_str_append(text, heads[of]);
  put_identity(w, of, text);
  BRIM_TRY(brim_str_status(text));
  brim_sha256_hex(text->data, text->len, hex);
  memcpy(out, hex, 32);
  out[32] = 0;
  return BRIM_OK;
}

brim_status brim_config_hashes(const brim_config *config,
                               char out[BRIM_CONFIG_IDENTITY_COUNT][33]) {
  writer w;
  brim_str text;
  brim_str_init(&text);
  brim_status status = write_lines(config, &w);
  for (int of = 0; of < BRIM_CONFIG_IDENTITY_COUNT && !status; of++) {
    status = put_hash(&w, (brim_config_identity_of)of, &text, out[of]);
  }
  brim_arena_destroy(w.arena);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_config_hash(const brim_config *config, brim_config_identity_of of, char out[33]) {
  char all[BRIM_CONFIG_IDENTITY_COUNT][33];
  BRIM_TRY(brim_config_hashes(config, all));
  memcpy(out, all[of], sizeof all[of]);
  return BRIM_OK;
}

//---------------------------------- the stored config ----------------------------------

static brim_status stored_key(writer *w, int row, brim_str *out) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  // What a preset gives, it gives again.
  if (!value->is_set || is_open(info, value) || value->layer == -1 || is_resolved(w, value)) {
    return BRIM_OK;
  }
  json_t *json = brim_config_json_value(info, value);
  if (!json) return no_memory();
  brim_str_printf(out, "%s: ", info->key.name);
  brim_config_yaml_flow(out, json);
  brim_str_append_char(out, '\n');
  json_decref(json);
  return brim_str_status(out);
}

brim_status brim_config_to_experiment(const brim_config *config, brim_str *out) {
  writer w;
  brim_str text;
  BRIM_TRY(writer_init(&w, config, true));
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  for (int row = 0; row < (int)brim_config_key_count() && !status; row++) {
    const brim_config_row *info = brim_config_row_at((size_t)row);
    if (info->type == BRIM_CONFIG_SPECIAL || info->flags & BRIM_CONFIG_OF_GRID) continue;
    if (!brim_config_row_is_for(info, w.workload)) continue;
    status = brim_config_row_is_component(info) ? component_lines(&w, row, &text)
                                                : stored_key(&w, row, out);
  }
  for (size_t i = 0; i < w.count && !status; i++) brim_str_append(out, w.lines[i].text);
  brim_str_deinit(&text);
  brim_arena_destroy(w.arena);
  return status ? status : brim_str_status(out);
}
