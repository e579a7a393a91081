// The settings of an experiment as flat names and values, out of its config and its label.
#include <string.h>

#include "base/base_xxh64.h"
#include "record/record_lab_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
}

//---------------------------------- texts ----------------------------------

static uint64_t hash_of(const char *text, size_t length) {
  brim_xxh64 h;
  brim_xxh64_init(&h);
  brim_xxh64_update(&h, text, length);
  return brim_xxh64_value(&h);
}

static void put_slot(brim_lab_texts *t, uint32_t number) {
  size_t at = (size_t)hash_of(t->list[number], strlen(t->list[number])) & (t->slot_count - 1);
  while (t->slots[at]) at = (at + 1) & (t->slot_count - 1);
  t->slots[at] = number + 1;
}

// Room for one more, with at most half of the slots in use.
static bool grow(brim_lab_texts *t) {
  if (t->count == t->capacity) {
    size_t capacity = t->capacity ? t->capacity * 2 : 256;
    void *grown = brim_realloc(t->list, capacity * sizeof *t->list);
    if (!grown) return false;
    t->list = grown;
    t->capacity = capacity;
  }
  if (t->slot_count > 2 * t->count + 1) return true;
  size_t slot_count = t->slot_count ? t->slot_count * 2 : 512;
  uint32_t *slots = brim_calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  brim_free(t->slots);
  t->slots = slots;
  t->slot_count = slot_count;
  for (size_t i = 0; i < t->count; i++) put_slot(t, (uint32_t)i);
  return true;
}

uint32_t brim_lab_text(brim_lab_texts *t, brim_arena *arena, const char *text, size_t length) {
  if (t->count >= UINT32_MAX - 1 || !grow(t)) return BRIM_LAB_NONE;
  size_t at = (size_t)hash_of(text, length) & (t->slot_count - 1);
  for (; t->slots[at]; at = (at + 1) & (t->slot_count - 1)) {
    const char *other = t->list[t->slots[at] - 1];
    if (strlen(other) == length && memcmp(other, text, length) == 0) return t->slots[at] - 1;
  }
  const char *copy = brim_arena_strndup(arena, text, length);
  if (!copy) return BRIM_LAB_NONE;
  t->list[t->count] = copy;
  t->slots[at] = (uint32_t)t->count + 1;
  return (uint32_t)t->count++;
}

void brim_lab_texts_deinit(brim_lab_texts *t) {
  brim_free(t->list);
  brim_free(t->slots);
}

//---------------------------------- settings ----------------------------------

enum { MAX_DEPTH = 16, MAX_NAME = 160, MAX_SETTINGS = 1024 };

typedef struct flat {
  brim_lab_reader *reader;
  brim_lab_setting list[MAX_SETTINGS];
  size_t count;
  bool axis;
} flat;

static brim_status add(flat *f, const char *name, const char *value, size_t length) {
  if (f->count == MAX_SETTINGS) return BRIM_OK;  // no config of brim has so many
  brim_lab_reader *r = f->reader;
  brim_lab_setting *s = &f->list[f->count];
  s->name = brim_lab_text(&r->names, r->arena, name, strlen(name));
  s->value = brim_lab_text(&r->values, r->arena, value, length);
  s->axis = f->axis;
  if (s->name == BRIM_LAB_NONE || s->value == BRIM_LAB_NONE) return no_memory();
  f->count++;
  return BRIM_OK;
}

static size_t name_length(const char *text) {
  size_t n = 0;
  while ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z') ||
         (n > 0 && ((text[n] >= '0' && text[n] <= '9') || text[n] == '.' || text[n] == '-')) ||
         text[n] == '_') {
    n++;
  }
  return n;
}

// Bytes up to `stop` outside brackets and quotes, or to the end; of a label, `stop` is a space in front
// of the next name.
static size_t value_length(const char *text, char stop) {
  int depth = 0;
  char quote = 0;
  size_t i = 0;
  for (; text[i]; i++) {
    const char c = text[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (strchr("([{", c)) {
      depth++;
    } else if (strchr(")]}", c) && depth > 0) {
      depth--;
    } else if (c == stop && depth == 0) {
      if (stop != ' ') break;
      size_t n = name_length(text + i + 1);
      if (n > 0 && text[i + 1 + n] == '=') break;
    }
  }
  return i;
}

// The text of "adamw(lr=0.1, eps=1e-8)" between its brackets, or NULL when it is something else.
static const char *arguments_of(const char *text, size_t *name, size_t *length) {
  *name = name_length(text);
  const size_t n = strlen(text);
  if (*name == 0 || text[*name] != '(' || n < *name + 2 || text[n - 1] != ')') return NULL;
  *length = n - *name - 2;
  // "a(b=1) | c(d=2)" ends with a bracket too, but not with the first one's.
  if (value_length(text + *name, '|') != n - *name) return NULL;
  return text + *name + 1;
}

static brim_status add_text(flat *f, const char *name, const char *text) {
  char inner[2048], full[2 * MAX_NAME];
  size_t base = 0, length = 0;
  const char *arguments = arguments_of(text, &base, &length);
  if (!arguments || length >= sizeof inner) return add(f, name, text, strlen(text));
  memcpy(inner, arguments, length);
  inner[length] = '\0';
  for (const char *p = inner; *p;) {  // all of them have a name, or none is taken apart
    const size_t n = name_length(p);
    if (n == 0 || n >= MAX_NAME || p[n] != '=') return add(f, name, text, strlen(text));
    p += value_length(p, ',');
    p += strspn(p, ", ");
  }
  BRIM_TRY(add(f, name, text, base));
  for (const char *p = inner; *p;) {
    const size_t n = name_length(p), end = value_length(p, ',');
    snprintf(full, sizeof full, "%.*s.%.*s", MAX_NAME, name, (int)n, p);
    BRIM_TRY(add(f, full, p + n + 1, end - n - 1));
    p += end;
    p += strspn(p, ", ");
  }
  return BRIM_OK;
}

static brim_status add_value(flat *f, const char *name, const json_t *value) {
  char number[32], *text = NULL;
  switch (json_typeof(value)) {
    case JSON_NULL:  // not set
      return BRIM_OK;
    case JSON_STRING:
      return add_text(f, name, json_string_value(value));
    case JSON_INTEGER:
      snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
      return add(f, name, number, strlen(number));
    case JSON_REAL:
      brim_format_f64(json_real_value(value), number);
      return add(f, name, number, strlen(number));
    default:
      break;
  }
  BRIM_TRY(brim_json_dump(value, 0, &text));
  brim_status status = add(f, name, text, strlen(text));
  brim_free(text);
  return status;
}

static brim_status add_object(flat *f, const char *prefix, const json_t *object, int depth) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
    brim_utf8_trim(name);
    if (json_is_object(value) && depth < MAX_DEPTH) {
      BRIM_TRY(add_object(f, name, value, depth + 1));
    } else {
      BRIM_TRY(add_value(f, name, value));
    }
  }
  return BRIM_OK;
}

// A quoted scalar without its quotes; other texts as they are.
static brim_status add_scalar(flat *f, const char *name, char *text) {
  const size_t n = strlen(text);
  json_t *value = NULL;
  if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
    value = json_loadb(text, n, JSON_DECODE_ANY, NULL);
  } else if (n >= 2 && text[0] == '\'' && text[n - 1] == '\'') {
    size_t kept = 0;
    for (size_t i = 1; i + 1 < n; i++) {
      text[kept++] = text[i];
      if (text[i] == '\'' && text[i + 1] == '\'') i++;
    }
    text[kept] = '\0';
  }
  brim_status status = add_text(f, name, json_is_string(value) ? json_string_value(value) : text);
  json_decref(value);
  return status;
}

// A config as the store has it: lines "training.learning_rate: 0.1"; others are skipped.
static brim_status add_lines(flat *f, const char *text) {
  brim_str value;
  brim_str_init(&value);
  brim_status status = BRIM_OK;
  while (*text && !status) {
    const size_t length = strcspn(text, "\n"), n = name_length(text);
    if (n > 0 && n < MAX_NAME && n + 1 < length && text[n] == ':' && text[n + 1] == ' ') {
      char name[MAX_NAME];
      memcpy(name, text, n);
      name[n] = '\0';
      brim_str_clear(&value);
      brim_str_append_n(&value, text + n + 2, length - n - 2);
      status = brim_str_status(&value);
      if (!status) status = add_scalar(f, name, value.data);
    }
    text += length + (text[length] == '\n');
  }
  brim_str_deinit(&value);
  return status;
}

// "lr=0.1 model=mlp(depth=3, width=2) seed=0"
static brim_status add_label(flat *f, const char *label) {
  f->axis = true;
  for (const char *p = label; *p;) {
    char name[MAX_NAME];
    const size_t n = name_length(p);
    const size_t end = value_length(p, ' ');
    if (n > 0 && n < sizeof name && p[n] == '=') {
      memcpy(name, p, n);
      name[n] = '\0';
      BRIM_TRY(add(f, name, p + n + 1, end - n - 1));
    }
    p += end;
    p += strspn(p, " ");
  }
  return BRIM_OK;
}

brim_status brim_lab_flatten(brim_lab_reader *reader, const json_t *config, const char *label,
                             brim_lab_raw *out) {
  flat *f = brim_calloc(1, sizeof *f);
  if (!f) return no_memory();
  f->reader = reader;
  brim_status status = BRIM_OK;
  if (json_is_object(config)) status = add_object(f, "", config, 0);
  if (json_is_string(config)) status = add_lines(f, json_string_value(config));
  if (!status) status = add_label(f, label);
  if (!status) {
    out->count = f->count;
    out->settings =
        brim_arena_alloc(reader->arena, f->count * sizeof *f->list + 1, _Alignof(brim_lab_setting));
    if (out->settings) memcpy(out->settings, f->list, f->count * sizeof *f->list);
    status = out->settings ? BRIM_OK : no_memory();
  }
  brim_free(f);
  return status;
}
