// Grids: finds axes, applies zip and exclude, and numbers the points that remain. A list where a scalar is
// expected is an axis, and so is a function such as linspace(a, b, n). Axes keep the order in which their keys
// are written; the last axis changes fastest.

#include "config/config_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hd/hd_philox.h"

// ---- axes as functions -------------------------------------------------------------------------
// linspace(a, b, n), logspace(a, b, n), range(a, b[, step]), and the random draws uniform(a, b),
// loguniform(a, b), randint(a, b), choice(x, y, ...). Their values become items as if they were listed.
// `seeds: N` becomes a list of seeds.
//
// A draw is a function of grid_seed, the key and the number of the draw alone, so adding samples, keys or
// values elsewhere does not change it.

// Values are rounded to these digits: exp and log may differ in their last bits between machines, but the id
// of an experiment must not.
enum { SPACE_DIGITS = 12, DRAW_DIGITS = 6, MAX_DIGITS = 15, MAX_ARGS = 1024 };

typedef enum kind { LINSPACE, LOGSPACE, RANGE, UNIFORM, LOGUNIFORM, RANDINT, CHOICE } kind;

typedef struct form {
  const char *name, *usage;
  kind kind;
  bool draws;
  size_t least, most;  // number of arguments
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

// One parsed call.
typedef struct call {
  const form *form;
  const brim_config_setting *setting;
  brim_config_place at;
  bool whole;  // the key takes whole numbers
  char **args;
  bool *quoted;
  size_t count;
  double a, b, c;  // the first arguments, if they are numbers
} call;

// ---- recognizing -------------------------------------------------------------------------------

// The catalogue's row of the argument that a setting gives, taken from the first component written for it.
// NULL if it is unknown.
static const brim_config_arg *setting_arg(const brim_config_source *source,
                                          const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  int whole = brim_config_setting_find(source, s->row, s->slot, NULL);
  if (whole < 0) whole = brim_config_setting_find(source, s->row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_node *node = whole < 0 ? NULL : source->settings.items[whole].node;
  if (node && node->kind == BRIM_CONFIG_NODE_LIST) node = node->first;
  if (node && node->kind == BRIM_CONFIG_NODE_MAP) node = brim_config_node_get(node, "_type");
  const char *text = node && node->kind == BRIM_CONFIG_NODE_SCALAR ? node->text : NULL;
  if (!text) text = row->key.default_text;
  char name[64];
  size_t length = text ? strcspn(text, "(| ") : 0;
  if (!length || length >= sizeof name) return NULL;
  memcpy(name, text, length);
  name[length] = 0;
  return brim_config_arg_find(brim_config_component_find(row->category, name), s->arg);
}

static bool is_whole(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  if (!s->arg) return row->type == BRIM_CONFIG_INT || row->type == BRIM_CONFIG_BYTES;
  const brim_config_arg *arg = setting_arg(source, s);
  return arg && (arg->type == BRIM_CONFIG_ARG_INT || arg->type == BRIM_CONFIG_ARG_SIZE);
}

// True if the setting can hold text: a quoted function is then text. In other settings a quoted function is a
// function, since YAML's flow style needs quotes because of the commas.
static bool is_text(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  if (!s->arg) {
    return row->type == BRIM_CONFIG_STRING || row->type == BRIM_CONFIG_STRINGS ||
           brim_config_row_is_component(row);
  }
  const brim_config_arg *arg = setting_arg(source, s);
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

// ---- reading -----------------------------------------------------------------------------------

static brim_status wrong(const call *c) {
  return brim_fail_at(BRIM_EINVAL, AT(c->at), "'%s': expected %s, not '%.80s'", c->setting->written,
                      c->form->usage, c->setting->node->text);
}

// The end of an argument: a comma outside brackets and quotes, or `end`.
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
  if (!c->args || !c->quoted) return brim_config_no_memory();
  for (const char *p = strchr(text, '(') + 1; p <= end;) {
    const char *stop = argument_end(p, end), *a = p, *b = stop;
    while (a < b && strchr(" \t\n", *a)) a++;
    while (b > a && strchr(" \t\n", b[-1])) b--;
    if (a == b || c->count == MAX_ARGS) return wrong(c);
    const bool quoted = b - a >= 2 && (*a == '"' || *a == '\'') && b[-1] == *a;
    c->quoted[c->count] = quoted;
    c->args[c->count] = brim_arena_strndup(arena, a + quoted, (size_t)(b - a) - (quoted ? 2U : 0U));
    if (!c->args[c->count++]) return brim_config_no_memory();
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

// The number of values that a call makes; a draw makes `samples`.
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

// ---- values ------------------------------------------------------------------------------------

static uint64_t hash_of(const char *key) {
  uint64_t h = 0xCBF29CE484222325u;  // FNV-1a
  for (; *key; key++) h = (h ^ (unsigned char)*key) * 0x100000001B3u;
  return h;
}

// Digits needed to tell values between the bounds apart.
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

// ---- the settings of a grid --------------------------------------------------------------------

// Reads an integer key that defines the grid (samples, grid_seed, seeds, seed), before values are resolved.
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
    if (!node) return brim_config_no_memory();
    BRIM_TRY(brim_config_convert(source->arena, info, node, &value));
  }
  *out = value.integer;
  return BRIM_OK;
}

static brim_status axis_items(brim_config_source *source, const brim_config_setting *s,
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
  if (!out->items) return brim_config_no_memory();
  for (size_t i = 0; i < out->count; i++) {
    out->items[i] = item(source, &c, out->key, (uint64_t)seed, i, out->count);
    if (!out->items[i]) return brim_config_no_memory();
  }
  out->draws = c.form->draws;
  return BRIM_OK;
}

// Adds the axis of `seeds: N` as the last and fastest one: `seed`, `seed` + 1, ...
static brim_status add_seeds(brim_config_source *source) {
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
  if (!list) return brim_config_no_memory();
  *list = (brim_config_node){.kind = BRIM_CONFIG_NODE_LIST, .at = of.at};
  brim_config_node **link = &list->first;
  for (; list->count < (size_t)count; list->count++, link = &(*link)->next) {
    const char *text =
        brim_arena_printf(source->arena, "%lld", (long long)first + (long long)list->count);
    *link = text ? brim_config_node_plain(source->arena, text, of.at) : NULL;
    if (!*link) return brim_config_no_memory();
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

// ---- grids -------------------------------------------------------------------------------------
static bool all_lists(const brim_config_node *node) {
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n->kind != BRIM_CONFIG_NODE_LIST) return false;
  }
  return node->count > 0;
}

static bool arg_takes_list(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_arg *arg = setting_arg(source, s);
  return !arg || arg->type == BRIM_CONFIG_ARG_LIST || arg->type == BRIM_CONFIG_ARG_WORDS ||
         arg->type == BRIM_CONFIG_ARG_SIZE || arg->type == BRIM_CONFIG_ARG_NUMBERS;
}

static brim_status is_axis(const brim_config_source *source, const brim_config_setting *s,
                           bool *out) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  *out = false;
  if (s->node->kind != BRIM_CONFIG_NODE_LIST || s->node->tag == BRIM_CONFIG_TAG_LIST ||
      row->flags & BRIM_CONFIG_NEVER_AXIS) {
    return BRIM_OK;
  }
  bool list = s->arg ? arg_takes_list(source, s) : brim_config_row_takes_list(row);
  if (list) {
    *out = all_lists(s->node);
    return BRIM_OK;
  }
  if (s->node->count == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(s->node->at), "'%s': the list is empty", s->written);
  }
  *out = true;
  return BRIM_OK;
}

static const char *axis_key(brim_arena *arena, const brim_config_setting *s) {
  const char *key = brim_config_row_at((size_t)s->row)->key.name;
  const char *slot = brim_config_slot_name(s->slot);
  return brim_arena_printf(arena, "%s%s%s%s%s", key, slot ? "." : "", slot ? slot : "",
                           s->arg ? "." : "", s->arg ? s->arg : "");
}

static brim_status list_items(brim_config_source *source, const brim_config_setting *s,
                              brim_config_axis_state *out) {
  out->items = brim_arena_calloc(source->arena, s->node->count, sizeof *out->items);
  if (!out->items) return brim_config_no_memory();
  for (const brim_config_node *n = s->node->first; n; n = n->next) out->items[out->count++] = n;
  return BRIM_OK;
}

static brim_status find_axes(brim_config_source *source) {
  size_t cap = 0;
  BRIM_TRY(add_seeds(source));
  for (size_t i = 0; i < source->settings.count; i++) {
    brim_config_setting *s = &source->settings.items[i];
    bool axis;
    if (!s->live) continue;
    BRIM_TRY(is_axis(source, s, &axis));
    const bool function = form_of(source, s) != NULL;
    if (!axis && !function) continue;
    BRIM_TRY(brim_config_grow(source->arena, &source->axes, sizeof *source->axes,
                              source->axis_count, &cap));
    brim_config_axis_state *state = &source->axes[source->axis_count];
    *state = (brim_config_axis_state){.setting = (int)i, .key = axis_key(source->arena, s)};
    if (!state->key) return brim_config_no_memory();
    BRIM_TRY(function ? axis_items(source, s, state) : list_items(source, s, state));
    s->axis = (int)source->axis_count++;
  }
  return BRIM_OK;
}

// ---- zip ---------------------------------------------------------------------------------------
// Per axis: the first axis of its group, and whether zip has named it.
typedef struct zips {
  int *leader;
  bool *taken;
} zips;

// Makes one group, [a, b]: its axes change together.
static brim_status zip_group(brim_config_source *source, const brim_config_node *group, zips z) {
  int *leader = z.leader;
  int first = -1;
  for (const brim_config_node *n = group->first; n; n = n->next) {
    if (n->kind != BRIM_CONFIG_NODE_SCALAR) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip takes keys: [a, b] or [[a, b], [c, d]]");
    }
    brim_config_path path;
    BRIM_TRY(brim_config_path_find(source->arena, n->text, &path));
    if (path.row < 0) return brim_config_unknown_key(n->text, NULL, n->at);
    path.row = brim_config_own_row(source, n->text, path.row);
    int axis = brim_config_axis_find(source, path);
    if (axis < 0) continue;  // an override has replaced the axis by a single value
    if (source->axes[axis].draws) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at),
                          "zip: '%.80s' is drawn at random; draws change together already",
                          n->text);
    }
    if (z.taken[axis]) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip names '%.80s' twice", n->text);
    }
    if (first < 0) first = axis;
    if (source->axes[axis].count != source->axes[first].count) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip: '%s' has %zu values but '%s' has %zu",
                          source->axes[axis].key, source->axes[axis].count, source->axes[first].key,
                          source->axes[first].count);
    }
    leader[axis] = first;
    z.taken[axis] = true;
  }
  // The group takes the place of the axis that was written first.
  int least = first;
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (leader[i] == first && i < least) least = i;
  }
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (first >= 0 && leader[i] == first) leader[i] = least;
  }
  return BRIM_OK;
}

static brim_status read_zip(brim_config_source *source, zips z) {
  const brim_config_node *zip = source->settings.zip;
  if (!zip) return BRIM_OK;
  if (zip->kind != BRIM_CONFIG_NODE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(zip->at), "zip takes keys: [a, b] or [[a, b], [c, d]]");
  }
  if (!all_lists(zip)) return zip_group(source, zip, z);
  for (const brim_config_node *n = zip->first; n; n = n->next) {
    BRIM_TRY(zip_group(source, n, z));
  }
  return BRIM_OK;
}

// Zips all draws: a point uses draw number k of each.
static brim_status zip_draws(brim_config_source *source, int *leader) {
  const int row = brim_config_row_find("samples");
  const int samples = brim_config_setting_find(source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  int first = -1;
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (!source->axes[i].draws) continue;
    if (first < 0) first = i;
    leader[i] = first;
  }
  if (first >= 0 || samples < 0) return BRIM_OK;
  const brim_config_place at = source->settings.items[samples].at;
  return brim_config_warn(&source->context, at,
                          brim_tr("'samples' has no effect: no value is drawn at random, such as "
                                  "lr: loguniform(1e-5, 1e-1)"));
}

brim_status brim_config_grid_prepare(brim_config_source *source) {
  BRIM_TRY(find_axes(source));
  int *leader = brim_arena_calloc(source->arena, source->axis_count + 1, sizeof *leader);
  bool *taken = brim_arena_calloc(source->arena, source->axis_count + 1, sizeof *taken);
  if (!leader || !taken) return brim_config_no_memory();
  for (size_t i = 0; i < source->axis_count; i++) leader[i] = (int)i;
  BRIM_TRY(read_zip(source, (zips){leader, taken}));
  BRIM_TRY(zip_draws(source, leader));
  size_t total = 1;
  for (size_t i = source->axis_count; i-- > 0;) {
    brim_config_axis_state *axis = &source->axes[i];
    if (leader[i] != (int)i) continue;
    axis->stride = total;
    if (axis->count > BRIM_CONFIG_MAX_GRID / total) {
      const brim_config_setting *s = &source->settings.items[axis->setting];
      return brim_fail_at(BRIM_ELIMIT, AT(s->at), "the grid has more than %d points",
                          BRIM_CONFIG_MAX_GRID);
    }
    total *= axis->count;
  }
  for (size_t i = 0; i < source->axis_count; i++) {
    source->axes[i].stride = source->axes[leader[i]].stride;
  }
  source->point_count = total;
  return BRIM_OK;
}

// ---- exclude -----------------------------------------------------------------------------------
brim_status brim_config_item_text(brim_arena *arena, brim_config_path path,
                                  const brim_config_node *node, brim_str *out) {
  const brim_config_row *row = brim_config_row_at((size_t)path.row);
  if (path.arg) {
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, node, &v));
    brim_config_value_print(out, &v);
    return brim_str_status(out);
  }
  if (!brim_config_row_is_component(row)) {
    brim_config_value v;
    BRIM_TRY(brim_config_convert(arena, row, node, &v));
    if (v.is_null) {
      brim_str_append(out, "null");
    } else {
      brim_config_value_text(out, row, &v);
    }
    return brim_str_status(out);
  }
  brim_config_drafts drafts;
  const brim_pipeline *pipeline;
  BRIM_TRY(brim_config_drafts_from_node(arena, row, node, &drafts));
  for (size_t i = 0; i < drafts.count; i++) {
    BRIM_TRY(brim_config_component_check(arena, row->category, drafts.items[i]));
  }
  BRIM_TRY(brim_config_pack(arena, &drafts, &pipeline));
  if (pipeline->count || pipeline->tail) {
    brim_config_pipeline_print(out, pipeline);
  } else {
    brim_str_append(out, "null");
  }
  return brim_str_status(out);
}

// One key of an exclude map: an axis (-1 = a fixed value) and the items of it that match.
typedef struct condition {
  int axis;
  size_t *budget;  // axis items that may still be compared
  bool fixed_match;
  unsigned char *match;
} condition;

static void fixed_text(const brim_config *base, brim_config_path path, brim_str *out) {
  const brim_config_value *v = &base->values[path.row];
  const brim_pipeline *p = v->slots[path.slot];
  if (path.arg) {
    const brim_value *arg = p && p->count ? brim_component_arg(&p->items[0], path.arg) : NULL;
    if (arg) brim_config_value_print(out, arg);
  } else if (path.slot) {
    if (p) brim_config_pipeline_print(out, p);
  } else if (v->is_null) {
    brim_str_append(out, "null");
  } else {
    brim_config_value_text(out, brim_config_row_at((size_t)path.row), v);
  }
}

// Marks the items, or the fixed value, that equal the wanted one.
static brim_status match_value(brim_config_source *source, const brim_config *base,
                               brim_config_path path, const brim_config_node *wanted,
                               condition *c) {
  brim_str want, have;
  brim_str_init(&want);
  brim_str_init(&have);
  brim_status status = brim_config_item_text(source->arena, path, wanted, &want);
  if (!status && c->axis < 0) {
    fixed_text(base, path, &have);
    status = brim_str_status(&have);
    if (!strcmp(want.data, have.data)) c->fixed_match = true;
  }
  if (!status && c->axis >= 0) {
    if (source->axes[c->axis].count > *c->budget) {
      status = brim_fail_at(BRIM_ELIMIT, AT(wanted->at), "exclude is too large for this grid");
    } else {
      *c->budget -= source->axes[c->axis].count;
    }
    const brim_config_axis_state *axis = &source->axes[c->axis];
    for (size_t i = 0; i < axis->count && !status; i++) {
      brim_arena_mark mark = brim_arena_get_mark(source->arena);
      brim_str_clear(&have);
      status = brim_config_item_text(source->arena, path, axis->items[i], &have);
      brim_arena_release(source->arena, mark);
      if (!status && !strcmp(want.data, have.data)) c->match[i] = 1;
    }
  }
  brim_str_deinit(&want);
  brim_str_deinit(&have);
  return status;
}

static brim_status read_condition(brim_config_source *source, const brim_config *base,
                                  const brim_config_node *node, condition *c) {
  brim_config_path path;
  BRIM_TRY(brim_config_path_find(source->arena, node->key, &path));
  if (path.row < 0 || brim_config_row_at((size_t)path.row)->type == BRIM_CONFIG_SPECIAL) {
    return brim_config_unknown_key(node->key, NULL, node->key_at);
  }
  path.row = brim_config_own_row(source, node->key, path.row);
  c->axis = brim_config_axis_find(source, path);
  if (c->axis >= 0) {
    c->match = brim_arena_calloc(source->arena, source->axes[c->axis].count, 1);
    if (!c->match) return brim_config_no_memory();
  }
  bool any_of = node->kind == BRIM_CONFIG_NODE_LIST && node->tag != BRIM_CONFIG_TAG_LIST &&
                !brim_config_row_takes_list(brim_config_row_at((size_t)path.row));
  if (!any_of) return match_value(source, base, path, node, c);
  for (const brim_config_node *n = node->first; n; n = n->next) {
    BRIM_TRY(match_value(source, base, path, n, c));
  }
  return BRIM_OK;
}

static bool matches(const brim_config_source *source, const condition *conditions, size_t count,
                    size_t raw) {
  for (size_t i = 0; i < count; i++) {
    const condition *c = &conditions[i];
    if (c->axis < 0) {
      if (!c->fixed_match) return false;
      continue;
    }
    const brim_config_axis_state *axis = &source->axes[c->axis];
    if (!c->match[raw / axis->stride % axis->count]) return false;
  }
  return true;
}

static brim_status apply_exclude(brim_config_source *source, const brim_config *base,
                                 const brim_config_node *map, unsigned char *gone, size_t *budget) {
  if (map->kind != BRIM_CONFIG_NODE_MAP || map->count == 0 || map->count > 32) {
    return brim_fail_at(BRIM_EINVAL, AT(map->at),
                        "exclude takes maps of up to 32 keys: - {lr: 0.1, batch_size: 64}");
  }
  condition conditions[32] = {{0}};
  size_t count = 0;
  for (const brim_config_node *n = map->first; n; n = n->next) {
    conditions[count].budget = budget;
    BRIM_TRY(read_condition(source, base, n, &conditions[count++]));
  }
  for (size_t raw = 0; raw < source->point_count; raw++) {
    if (!gone[raw] && matches(source, conditions, count, raw)) gone[raw] = 1;
  }
  return BRIM_OK;
}

brim_status brim_config_grid_exclude(brim_config_source *source, const brim_config *base) {
  const brim_config_node *exclude = source->settings.exclude;
  if (!exclude) return BRIM_OK;
  if (exclude->kind != BRIM_CONFIG_NODE_LIST || exclude->count > BRIM_CONFIG_MAX_EXCLUDES) {
    return brim_fail_at(BRIM_EINVAL, AT(exclude->at), "exclude takes a list of up to %d maps",
                        BRIM_CONFIG_MAX_EXCLUDES);
  }
  unsigned char *gone = brim_arena_calloc(source->arena, source->point_count, 1);
  uint32_t *points = brim_arena_calloc(source->arena, source->point_count, sizeof *points);
  if (!gone || !points) return brim_config_no_memory();
  size_t budget = BRIM_CONFIG_MAX_MATCHES;
  for (const brim_config_node *n = exclude->first; n; n = n->next) {
    BRIM_TRY(apply_exclude(source, base, n, gone, &budget));
  }
  size_t kept = 0;
  for (size_t raw = 0; raw < source->point_count; raw++) {
    if (!gone[raw]) points[kept++] = (uint32_t)raw;
  }
  if (kept == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(exclude->at), "exclude leaves no point of the grid");
  }
  source->points = points;
  source->point_count = kept;
  return BRIM_OK;
}

// ---- points of the grid ------------------------------------------------------------------------

size_t brim_config_axis_count(const brim_config *config) {
  return config->is_point ? 0 : config->source->axis_count;
}

brim_config_axis brim_config_axis_at(const brim_config *config, size_t index) {
  if (index >= brim_config_axis_count(config)) return (brim_config_axis){NULL, 0};
  const brim_config_axis_state *axis = &config->source->axes[index];
  return (brim_config_axis){axis->key, axis->count};
}

size_t brim_config_grid_count(const brim_config *config) {
  return config->is_point ? 1 : config->source->point_count;
}

static brim_status raw_point(const brim_config *config, size_t index, size_t *raw) {
  if (index >= brim_config_grid_count(config)) {
    return brim_fail(BRIM_EINVAL, "grid point %zu of %zu", index, brim_config_grid_count(config));
  }
  if (config->is_point) {
    *raw = config->raw_point;
  } else {
    *raw = config->source->points ? config->source->points[index] : index;
  }
  return BRIM_OK;
}

brim_status brim_config_grid_point(const brim_config *config, size_t index, brim_config **out) {
  *out = NULL;
  size_t raw = 0;
  BRIM_TRY(raw_point(config, index, &raw));
  return brim_config_resolve(config->source, raw, true, out);
}

brim_status brim_config_grid_label(const brim_config *config, size_t index, brim_str *out) {
  size_t raw = 0;
  BRIM_TRY(raw_point(config, index, &raw));
  const brim_config_source *source = config->source;
  brim_arena *scratch;
  BRIM_TRY(brim_arena_create(0, &scratch));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < source->axis_count && !status; i++) {
    const brim_config_setting *s = &source->settings.items[source->axes[i].setting];
    brim_str_printf(out, "%s%s=", i ? " " : "", s->written);
    const brim_config_node *node = brim_config_setting_node(source, s, raw);
    bool as_written = node->kind == BRIM_CONFIG_NODE_SCALAR &&
                      (strstr(node->text, "{{") ||
                       brim_config_row_is_component(brim_config_row_at((size_t)s->row)));
    if (as_written) {
      brim_str_append(out, node->text);
    } else {
      status =
          brim_config_item_text(scratch, (brim_config_path){s->row, s->slot, s->arg}, node, out);
    }
  }
  brim_arena_destroy(scratch);
  return status ? status : brim_str_status(out);
}
