// Axes that are written as a function: linspace(a, b, n), logspace(a, b, n), range(a, b[, step]), and
// the draws uniform(a, b), loguniform(a, b), randint(a, b), choice(x, y, ...). Their values become
// items as if they had been listed. And `seeds: N`, which is a list of seeds.
//
// A draw is a function of grid_seed, the key and the number of the draw alone: more samples, more keys
// or more values elsewhere leave the values as they are.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config_int.h"
#include "hd/hd_philox.h"

#define AT(p) (p).file, (p).line, (p).col

// The mathematical functions may differ in their last bits between machines; an id must not.
enum { SPACE_DIGITS = 12, DRAW_DIGITS = 6, MAX_DIGITS = 15, MAX_ARGS = 1024 };

typedef enum kind { LINSPACE, LOGSPACE, RANGE, UNIFORM, LOGUNIFORM, RANDINT, CHOICE } kind;

typedef struct form {
  const char *name, *usage;
  kind kind;
  bool draws;
  size_t least, most;  // arguments
} form;

static const form forms[] = {
    {"linspace", "linspace(first, last, count)", LINSPACE, false, 3, 3},
    {"logspace", "logspace(first, last, count)", LOGSPACE, false, 3, 3},
    {"range", "range(first, end[, step])", RANGE, false, 2, 3},
    {"uniform", "uniform(low, high)", UNIFORM, true, 2, 2},
    {"loguniform", "loguniform(low, high)", LOGUNIFORM, true, 2, 2},
    {"randint", "randint(low, high)", RANDINT, true, 2, 2},
    {"choice", "choice(a, b, ...)", CHOICE, true, 1, MAX_ARGS},
};

// One call, taken apart.
typedef struct call {
  const form *form;
  const brim_config_setting *setting;
  brim_config_place at;
  bool whole;  // the key takes whole numbers
  char **args;
  bool *quoted;
  size_t count;
  double a, b, c;  // the first arguments, where they are numbers
} call;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

//---------------------------------- recognizing ----------------------------------

static bool is_whole(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  if (!s->arg) return row->type == BRIM_CONFIG_INT || row->type == BRIM_CONFIG_BYTES;
  const brim_config_arg *arg = brim_config_setting_arg(source, s);
  return arg && (arg->type == BRIM_CONFIG_ARG_INT || arg->type == BRIM_CONFIG_ARG_SIZE);
}

// Quotes, which flow style needs because of the commas, make a text of what may be one.
static bool is_text(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  if (!s->arg) {
    return row->type == BRIM_CONFIG_STRING || row->type == BRIM_CONFIG_STRINGS ||
           brim_config_row_is_component(row);
  }
  const brim_config_arg *arg = brim_config_setting_arg(source, s);
  return !arg || arg->type == BRIM_CONFIG_ARG_STRING || arg->type == BRIM_CONFIG_ARG_WORDS;
}

static const form *form_of(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_node *node = s->node;
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  if (node->kind != BRIM_CONFIG_NODE_SCALAR || node->tag != BRIM_CONFIG_TAG_NONE ||
      row->flags & BRIM_CONFIG_NEVER_AXIS || (!s->arg && brim_config_row_takes_list(row))) {
    return NULL;
  }
  const size_t length = strlen(node->text), name = strcspn(node->text, "(");
  if (name == length || node->text[length - 1] != ')') return NULL;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    if (strlen(forms[i].name) != name || strncmp(forms[i].name, node->text, name)) continue;
    return node->plain || !is_text(source, s) ? &forms[i] : NULL;
  }
  return NULL;
}

//---------------------------------- reading ----------------------------------

static brim_status wrong(const call *c) {
  return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': expected %s, not '%.80s'", c->setting->written,
                      c->form->usage, c->setting->node->text);
}

// The end of an argument: a comma outside of brackets and quotes, or the last character.
static const char *argument_end(const char *p, const char *end) {
  int depth = 0;
  char quote = 0;
  for (; p < end; p++) {
    if (quote) {
      if (*p == quote) quote = 0;
    } else if (*p == '"' || *p == '\'') {
      quote = *p;
    } else if (*p == '(' || *p == '[') {
      depth++;
    } else if (*p == ')' || *p == ']') {
      depth--;
    } else if (*p == ',' && depth == 0) {
      return p;
    }
  }
  return end;
}

static brim_status split(brim_arena *arena, call *c) {
  const char *text = c->setting->node->text, *end = text + strlen(text) - 1;
  c->args = brim_arena_calloc(arena, MAX_ARGS, sizeof *c->args);
  c->quoted = brim_arena_calloc(arena, MAX_ARGS, sizeof *c->quoted);
  if (!c->args || !c->quoted) return no_memory();
  for (const char *p = strchr(text, '(') + 1; p <= end;) {
    const char *stop = argument_end(p, end), *a = p, *b = stop;
    while (a < b && strchr(" \t\n", *a)) a++;
    while (b > a && strchr(" \t\n", b[-1])) b--;
    if (a == b || c->count == MAX_ARGS) return wrong(c);
    const bool quoted = b - a >= 2 && (*a == '"' || *a == '\'') && b[-1] == *a;
    c->quoted[c->count] = quoted;
    c->args[c->count] = brim_arena_strndup(arena, a + quoted, (size_t)(b - a) - (quoted ? 2U : 0U));
    if (!c->args[c->count++]) return no_memory();
    p = stop + 1;
  }
  return c->count < c->form->least || c->count > c->form->most ? wrong(c) : BRIM_OK;
}

static brim_status read_numbers(call *c) {
  double *const out[] = {&c->a, &c->b, &c->c};
  for (size_t i = 0; i < c->count && c->form->kind != CHOICE; i++) {
    brim_value v;
    brim_config_word(c->args[i], &v);
    if ((v.kind != BRIM_VALUE_INT && v.kind != BRIM_VALUE_FLOAT) || !isfinite(v.number)) {
      return wrong(c);
    }
    *out[i] = v.number;
  }
  return BRIM_OK;
}

static brim_status check_numbers(const call *c) {
  const kind k = c->form->kind;
  if ((k == LOGSPACE || k == LOGUNIFORM) && (c->a <= 0 || c->b <= 0)) {
    return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': the bounds of %s have to be above 0",
                        c->setting->written, c->form->name);
  }
  if ((k == UNIFORM || k == LOGUNIFORM || k == RANDINT) && c->b < c->a) {
    return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': the first bound of %s is the lower one",
                        c->setting->written, c->form->name);
  }
  if (k == RANDINT &&
      (c->a != floor(c->a) || c->b != floor(c->b) || fabs(c->a) > 9e15 || fabs(c->b) > 9e15)) {
    return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': randint takes whole numbers",
                        c->setting->written);
  }
  if (k == UNIFORM && c->whole) {
    return brim_fail_at(BRIM_EINVAL, AT(c->at),
                        "'%s' is a whole number; draw it with randint(low, high)",
                        c->setting->written);
  }
  return BRIM_OK;
}

static brim_status too_many(const call *c) {
  return brim_fail_at(BRIM_ELIMIT, AT(c->at), "'%s' has more than %d values", c->setting->written,
                      BRIM_CONFIG_MAX_GRID);
}

// How many values it has; of a draw: `samples`.
static brim_status count_of(const call *c, int64_t samples, size_t *out) {
  double count = (double)samples;
  if (c->form->draws && samples == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(c->at),
                        "'%s' is drawn at random; say how often with samples: N",
                        c->setting->written);
  }
  if (c->form->kind == LINSPACE || c->form->kind == LOGSPACE) {
    count = c->c;
    if (count < 1 || count != floor(count)) return wrong(c);
  } else if (c->form->kind == RANGE) {
    const double step = c->count == 3 ? c->c : 1;
    count = step == 0 ? 0 : ceil((c->b - c->a) / step - 1e-9);
    if (!(count >= 1)) {
      return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': %.80s has no values", c->setting->written,
                          c->setting->node->text);
    }
  }
  if (count > BRIM_CONFIG_MAX_GRID) return too_many(c);
  *out = (size_t)count;
  return BRIM_OK;
}

//---------------------------------- values ----------------------------------

static uint64_t hash_of(const char *key) {
  uint64_t h = 0xCBF29CE484222325u;  // FNV-1a
  for (; *key; key++) h = (h ^ (unsigned char)*key) * 0x100000001B3u;
  return h;
}

// Digits that tell values between the bounds apart.
static int draw_digits(double a, double b) {
  const double largest = fmax(fabs(a), fabs(b));
  const double more = b > a ? ceil(log10(largest / (b - a))) : 0;
  const int digits = DRAW_DIGITS + (more > 0 ? (int)fmin(more, MAX_DIGITS) : 0);
  return digits < MAX_DIGITS ? digits : MAX_DIGITS;
}

static double drawn(const call *c, brim_philox4 r) {
  const double u = (double)(((uint64_t)r.v[0] << 32 | r.v[1]) >> 11) * 0x1p-53;
  if (c->form->kind == RANDINT) {
    return c->a + (double)brim_rng_below(r.v[0], r.v[1], (uint64_t)(c->b - c->a) + 1);
  }
  const bool logarithmic = c->form->kind == LOGUNIFORM;
  const double value =
      logarithmic ? exp(log(c->a) + u * (log(c->b) - log(c->a))) : c->a + u * (c->b - c->a);
  const int digits = logarithmic ? DRAW_DIGITS : draw_digits(c->a, c->b);
  return fmin(fmax(brim_round_digits(value, digits), c->a), c->b);
}

static double spaced(const call *c, size_t i, size_t count) {
  if (c->form->kind == RANGE) {
    return brim_round_digits(c->a + (double)i * (c->count == 3 ? c->c : 1), SPACE_DIGITS);
  }
  if (i == 0) return c->a;
  if (i == count - 1) return c->b;
  const double share = (double)i / (double)(count - 1);
  const double value = c->form->kind == LOGSPACE ? exp(log(c->a) + share * (log(c->b) - log(c->a)))
                                                 : c->a + share * (c->b - c->a);
  return brim_round_digits(value, SPACE_DIGITS);
}

static brim_config_node *item(brim_config_source *source, const call *c, const char *key,
                              uint64_t seed, size_t i, size_t count) {
  brim_philox4 r = {{0}};
  if (c->form->draws) r = brim_philox(brim_rng_key(seed, BRIM_RNG_GRID), hash_of(key), i);
  if (c->form->kind == CHOICE) {
    const size_t at = (size_t)brim_rng_below(r.v[0], r.v[1], c->count);
    brim_config_node *node = brim_config_node_plain(source->arena, c->args[at], c->at);
    if (node) node->plain = !c->quoted[at];
    return node;
  }
  char text[32];
  const double value = c->form->draws ? drawn(c, r) : spaced(c, i, count);
  if (c->whole || c->form->kind == RANDINT) {
    snprintf(text, sizeof text, "%.0f", round(value));
  } else {
    brim_format_f64(value, text);
  }
  const char *own = brim_arena_strdup(source->arena, text);
  return own ? brim_config_node_plain(source->arena, own, c->at) : NULL;
}

//---------------------------------- the settings of a grid ----------------------------------

// A whole number that the grid itself is made by, before anything is resolved.
static brim_status number_of(brim_config_source *source, const char *key, int64_t *out) {
  const int row = brim_config_row_find(key);
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const int index = brim_config_setting_find(source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_place at = {"default", 0, 0};
  const brim_config_node *node = index >= 0 ? source->settings.items[index].node : NULL;
  brim_config_value value = {.is_null = true};
  if (node) BRIM_TRY(brim_config_convert(source->arena, info, node, &value));
  if (value.is_null) {
    node = brim_config_node_plain(source->arena, info->key.default_text, at);
    if (!node) return no_memory();
    BRIM_TRY(brim_config_convert(source->arena, info, node, &value));
  }
  *out = value.integer;
  return BRIM_OK;
}

brim_status brim_config_axis_items(brim_config_source *source, const brim_config_setting *s,
                                   brim_config_axis_state *out) {
  call c = {.form = form_of(source, s), .setting = s, .at = s->node->at};
  int64_t samples, seed;
  c.whole = is_whole(source, s);
  BRIM_TRY(split(source->arena, &c));
  BRIM_TRY(read_numbers(&c));
  BRIM_TRY(check_numbers(&c));
  BRIM_TRY(number_of(source, "samples", &samples));
  BRIM_TRY(number_of(source, "grid_seed", &seed));
  BRIM_TRY(count_of(&c, samples, &out->count));
  out->items = brim_arena_calloc(source->arena, out->count, sizeof *out->items);
  if (!out->items) return no_memory();
  for (size_t i = 0; i < out->count; i++) {
    out->items[i] = item(source, &c, out->key, (uint64_t)seed, i, out->count);
    if (!out->items[i]) return no_memory();
  }
  out->draws = c.form->draws;
  return BRIM_OK;
}

bool brim_config_is_axis_function(const brim_config_source *source, const brim_config_setting *s) {
  return form_of(source, s) != NULL;
}

// `seed`, `seed` + 1, ... as the last and fastest axis.
brim_status brim_config_add_seeds(brim_config_source *source) {
  const int row = brim_config_row_find("seed");
  const int key = brim_config_setting_find(source, brim_config_row_find("seeds"), 0, NULL);
  int64_t count, first;
  source->seeds = -1;
  if (key < 0) return BRIM_OK;
  BRIM_TRY(number_of(source, "seeds", &count));
  if (count < 2) return BRIM_OK;
  const int old = brim_config_setting_find(source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_setting of = source->settings.items[key];
  const brim_config_setting *was = old >= 0 ? &source->settings.items[old] : NULL;
  if (was && (was->node->kind == BRIM_CONFIG_NODE_LIST || form_of(source, was))) {
    return brim_fail_at(BRIM_EINVAL, AT(was->at),
                        "'seed' is a list, and 'seeds' repeats every point; specify one of them");
  }
  BRIM_TRY(number_of(source, "seed", &first));
  brim_config_node *list = brim_arena_calloc(source->arena, 1, sizeof *list);
  if (!list) return no_memory();
  *list = (brim_config_node){.kind = BRIM_CONFIG_NODE_LIST, .at = of.at};
  brim_config_node **link = &list->first;
  for (; list->count < (size_t)count; list->count++, link = &(*link)->next) {
    const char *text =
        brim_arena_printf(source->arena, "%lld", (long long)first + (long long)list->count);
    *link = text ? brim_config_node_plain(source->arena, text, of.at) : NULL;
    if (!*link) return no_memory();
  }
  BRIM_TRY(brim_config_grow(source->arena, &source->settings.items, sizeof of,
                            source->settings.count, &source->settings.cap));
  if (old >= 0) source->settings.items[old].live = false;
  source->seeds = (int)source->settings.count;
  source->settings.items[source->settings.count++] = (brim_config_setting){.row = row,
                                                                           .node = list,
                                                                           .written = "seed",
                                                                           .at = of.at,
                                                                           .layer = of.layer,
                                                                           .live = true,
                                                                           .axis = -1};
  return BRIM_OK;
}
