// Which settings tell experiments apart, and which experiments repeat each other. Settings that follow
// from others (optimizer.lr from training.learning_rate) are left out.
#include <math.h>
#include <string.h>

#include "record/record_lab_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
}

//---------------------------------- a table of values ----------------------------------

// What is known of a name over all experiments.
typedef struct column {
  size_t count;    // experiments that have it
  uint32_t first;  // the first value
  bool differs, axis, ignored, over, chosen;
} column;

typedef struct finder {
  brim_lab_reader *reader;
  column *columns;   // (names)
  uint32_t *row;     // (names) values of one experiment
  uint32_t *usual;   // (names) the default's value; BRIM_LAB_NONE = unknown
  uint32_t preset;   // the name of this setting; BRIM_LAB_NONE = no experiment has it
  uint32_t *chosen;  // names
  size_t chosen_count;
  uint32_t *order;  // names: axes as they come in labels, then the others
  size_t order_count;
  uint64_t *hashes;  // (experiments) of the chosen values
} finder;

static bool is_listed(const char *const *list, const char *name) {
  for (; list && *list; list++) {
    const size_t n = strlen(*list);
    if (n > 0 && (*list)[n - 1] == '.' ? strncmp(*list, name, n) == 0 : strcmp(*list, name) == 0) {
      return true;
    }
  }
  return false;
}

static uint32_t given_value(const finder *f, size_t exp, uint32_t name) {
  const brim_lab_raw *raw = &f->reader->raws[exp];
  for (size_t i = 0; i < raw->count; i++) {
    if (raw->settings[i].name == name) return raw->settings[i].value;
  }
  return BRIM_LAB_NONE;
}

// What a preset gives is not stored: with one, only a repetition is known to be at its default.
static uint32_t usual_value(const finder *f, uint32_t name, bool preset) {
  return preset && !f->columns[name].over ? BRIM_LAB_NONE : f->usual[name];
}

static bool has_preset(const finder *f, size_t exp) {
  return f->preset != BRIM_LAB_NONE && given_value(f, exp, f->preset) != BRIM_LAB_NONE;
}

// A value of the config stands above that of the label, which may spell it differently.
static void read_row(const finder *f, size_t exp) {
  const brim_lab_raw *raw = &f->reader->raws[exp];
  const bool preset = has_preset(f, exp);
  const size_t names = f->reader->names.count;
  for (size_t n = 0; n < names; n++) f->row[n] = usual_value(f, (uint32_t)n, preset);
  for (size_t i = raw->count; i-- > 0;) f->row[raw->settings[i].name] = raw->settings[i].value;
}

// A number of the experiments that equals `usual`, as they spell it; else `usual`.
static uint32_t spelling_of(const finder *f, uint32_t name, uint32_t usual) {
  const brim_lab_reader *r = f->reader;
  double number, other;
  if (!brim_parse_f64(r->values.list[usual], &number)) return usual;
  for (size_t i = 0; i < r->set.count; i++) {
    const uint32_t value = given_value(f, i, name);
    if (value != BRIM_LAB_NONE && brim_parse_f64(r->values.list[value], &other) &&
        other == number) {
      return value;
    }
  }
  return usual;
}

static brim_status find_defaults(finder *f) {
  static const char *const seed[] = {"seed", NULL};
  brim_lab_reader *r = f->reader;
  const size_t names = r->names.count;
  f->preset = BRIM_LAB_NONE;
  for (size_t name = 0; name < names; name++) {
    const char *text =
        r->options.default_of ? r->options.default_of(r->options.ctx, r->names.list[name]) : NULL;
    f->usual[name] = BRIM_LAB_NONE;
    f->columns[name].ignored = is_listed(r->options.ignored, r->names.list[name]);
    f->columns[name].over =
        is_listed(r->options.over ? r->options.over : seed, r->names.list[name]);
    if (strcmp(r->names.list[name], "preset") == 0) f->preset = (uint32_t)name;
    if (!text || !text[0]) continue;
    const uint32_t usual = brim_lab_text(&r->values, r->arena, text, strlen(text));
    if (usual == BRIM_LAB_NONE) return no_memory();
    f->usual[name] = spelling_of(f, (uint32_t)name, usual);
  }
  return BRIM_OK;
}

static void put_order(finder *f, bool axes) {
  const brim_lab_reader *r = f->reader;
  for (size_t i = 0; i < r->set.count; i++) {
    for (size_t k = 0; k < r->raws[i].count; k++) {
      const brim_lab_setting *s = &r->raws[i].settings[k];
      column *c = &f->columns[s->name];
      if (axes && s->axis && !c->axis) {
        c->axis = true;
        f->order[f->order_count++] = s->name;
      }
    }
  }
  for (size_t name = 0; !axes && name < r->names.count; name++) {
    if (!f->columns[name].axis) f->order[f->order_count++] = (uint32_t)name;
  }
}

static void read_columns(finder *f) {
  const brim_lab_reader *r = f->reader;
  const size_t names = r->names.count;
  for (size_t i = 0; i < r->set.count; i++) {
    read_row(f, i);
    for (size_t name = 0; name < names; name++) {
      column *c = &f->columns[name];
      if (f->row[name] == BRIM_LAB_NONE) continue;
      if (c->count++ == 0) c->first = f->row[name];
      if (c->first != f->row[name]) c->differs = true;
    }
  }
  for (size_t name = 0; name < names; name++) {
    column *c = &f->columns[name];
    if (c->count < r->set.count) c->differs = true;
  }
  put_order(f, true);
  put_order(f, false);
}

//---------------------------------- which settings ----------------------------------

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

// A table by hash: each entry is an experiment + 1 that was the first with its hash.
typedef struct firsts {
  size_t *slots;
  size_t count;
} firsts;

static bool firsts_init(firsts *t, size_t experiments) {
  t->count = 16;
  while (t->count < 2 * experiments) t->count *= 2;
  t->slots = brim_calloc(t->count, sizeof *t->slots);
  return t->slots;
}

// The first experiment with this hash.
static size_t first_of(firsts *t, const uint64_t *hashes, size_t exp) {
  size_t at = (size_t)(hashes[exp] >> 7) & (t->count - 1);
  while (t->slots[at] && hashes[t->slots[at] - 1] != hashes[exp]) at = (at + 1) & (t->count - 1);
  if (!t->slots[at]) t->slots[at] = exp + 1;
  return t->slots[at] - 1;
}

static uint32_t value_of(const finder *f, size_t exp, uint32_t name) {
  const uint32_t value = given_value(f, exp, name);
  return value != BRIM_LAB_NONE ? value : usual_value(f, name, has_preset(f, exp));
}

// Do experiments with equal values of the chosen settings have equal values of this one?
static brim_status follows(const finder *f, uint32_t name, bool *out) {
  firsts t;
  if (!firsts_init(&t, f->reader->set.count)) return no_memory();
  *out = true;
  for (size_t i = 0; i < f->reader->set.count && *out; i++) {
    const size_t first = first_of(&t, f->hashes, i);
    *out = first == i || value_of(f, first, name) == value_of(f, i, name);
  }
  brim_free(t.slots);
  return BRIM_OK;
}

static void choose(finder *f, uint32_t name) {
  f->columns[name].chosen = true;
  f->chosen[f->chosen_count++] = name;
  for (size_t i = 0; i < f->reader->set.count; i++) {
    f->hashes[i] = mix(f->hashes[i], value_of(f, i, name) + (uint64_t)1);
  }
}

static brim_status choose_keys(finder *f) {
  for (size_t i = 0; i < f->order_count; i++) {
    const column *c = &f->columns[f->order[i]];
    bool derived = false;
    if (!c->differs || c->ignored) continue;
    if (!c->axis) BRIM_TRY(follows(f, f->order[i], &derived));
    if (derived) continue;
    if (f->chosen_count < BRIM_LAB_KEYS) {
      choose(f, f->order[i]);
    } else {
      f->reader->set.keys_left_out++;
    }
  }
  return BRIM_OK;
}

//---------------------------------- the result ----------------------------------

static void describe(const finder *f, size_t index, uint8_t *seen, brim_lab_key *out) {
  const brim_lab_reader *r = f->reader;
  const uint32_t name = f->chosen[index];
  double number;
  *out = (brim_lab_key){.name = r->names.list[name], .number = true, .over = f->columns[name].over};
  memset(seen, 0, r->values.count);
  for (size_t i = 0; i < r->set.count; i++) {
    const uint32_t value = value_of(f, i, name);
    r->set.exps[i].values[index] = value == BRIM_LAB_NONE ? NULL : r->values.list[value];
    if (value == BRIM_LAB_NONE || seen[value]) continue;
    seen[value] = 1;
    out->distinct++;
    if (!brim_parse_f64(r->values.list[value], &number) || !isfinite(number)) out->number = false;
  }
}

static brim_status put_keys(finder *f) {
  brim_lab_reader *r = f->reader;
  brim_lab_set *set = &r->set;
  const size_t n = f->chosen_count;
  brim_lab_key *keys = brim_arena_calloc(r->arena, n + 1, sizeof *keys);
  const char **values = brim_arena_calloc(r->arena, n * set->count + 1, sizeof *values);
  uint8_t *seen = brim_alloc(r->values.count + 1);
  const bool all = keys && values && seen;
  for (size_t i = 0; all && i < set->count; i++) set->exps[i].values = values + i * n;
  for (size_t i = 0; all && i < n; i++) describe(f, i, seen, &keys[i]);
  brim_free(seen);
  if (!all) return no_memory();
  set->keys = keys;
  set->key_count = n;
  return BRIM_OK;
}

static brim_status put_common(finder *f) {
  brim_lab_reader *r = f->reader;
  brim_lab_pair *common = brim_arena_calloc(r->arena, r->names.count + 1, sizeof *common);
  if (!common) return no_memory();
  r->set.common = common;
  for (size_t name = 0; name < r->names.count; name++) {
    const column *c = &f->columns[name];
    if (c->differs || c->ignored || c->count == 0) continue;
    common[r->set.common_count++] = (brim_lab_pair){r->names.list[name], r->values.list[c->first]};
  }
  return BRIM_OK;
}

brim_status brim_lab_find_keys(brim_lab_reader *r) {
  const size_t names = r->names.count + 1;
  finder f = {.reader = r,
              .columns = brim_calloc(names, sizeof *f.columns),
              .row = brim_calloc(names, sizeof *f.row),
              .usual = brim_calloc(names, sizeof *f.usual),
              .chosen = brim_calloc(BRIM_LAB_KEYS, sizeof *f.chosen),
              .order = brim_calloc(names, sizeof *f.order),
              .hashes = brim_calloc(r->set.count + 1, sizeof *f.hashes)};
  brim_status status =
      f.columns && f.row && f.usual && f.chosen && f.order && f.hashes ? BRIM_OK : no_memory();
  if (!status) status = find_defaults(&f);
  if (!status) {
    read_columns(&f);
    status = choose_keys(&f);
  }
  if (!status) status = put_keys(&f);
  if (!status) status = put_common(&f);
  brim_free(f.columns);
  brim_free(f.row);
  brim_free(f.usual);
  brim_free(f.chosen);
  brim_free(f.order);
  brim_free(f.hashes);
  return status;
}
