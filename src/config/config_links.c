// Settings that exist both as a key and as a component's argument (training.learning_rate and
// sgd(lr=...)) are one setting: of two the later layer wins and both then say the same. Twice in
// one layer is warned of like any repeated key: the later one wins.
#include <string.h>

#include "config/config_int.h"

typedef brim_config_link link;

static const link links[] = {
    {"optimizer", "lr", "training.learning_rate", false},
    {"optimizer", "weight_decay", "training.weight_decay", false},
    {"optimizer", "momentum", "training.momentum", false},
    {"optimizer", "nesterov", "training.nesterov", false},
    {"loss", "label_smoothing", "training.label_smoothing", false},
    {"scheduler", "warmup", "training.warmup_steps", false},
    {"dataloader", "batch_size", "data.batch_size", false},
    {"dataloader", "num_workers", "data.num_workers", false},
    {"dataloader", "prefetch_factor", "data.prefetch_factor", false},
    {"dataloader", "persistent_workers", "data.persistent_workers", false},
    {"dataloader", "pin_memory", "data.pin_memory", false},
    {"dataloader", "drop_last", "data.drop_last", false},
    {"dataloader", "shuffle", "data.shuffle", false},
    {"dataloader", "batch_size", "data.eval_batch_size", true},
};

enum { BUILT_IN = sizeof links / sizeof links[0], MAX_ADDED = 32 };

// Of workloads. Written before threads start, read only afterwards.
static const link *added[MAX_ADDED];
static size_t added_count;

brim_status brim_config_add_links(const brim_config_link *rows, size_t count) {
  if (count > MAX_ADDED - added_count) {
    return brim_fail(BRIM_EINVAL, "too many keys that are arguments too: %zu more than %d",
                     added_count + count - MAX_ADDED, MAX_ADDED);
  }
  for (size_t i = 0; i < count; i++) {
    if (brim_config_row_find(rows[i].component) >= 0 && brim_config_row_find(rows[i].key) >= 0) {
      continue;
    }
    return brim_fail(BRIM_EINVAL, "no key %s, or no key %s that it can be an argument of",
                     rows[i].key, rows[i].component);
  }
  for (size_t i = 0; i < count; i++) added[added_count++] = &rows[i];
  return BRIM_OK;
}

void brim_config_remove_links(size_t count) { added_count -= count; }

const brim_config_link *brim_config_link_at(size_t index) {
  if (index < BUILT_IN) return &links[index];
  return index - BUILT_IN < added_count ? added[index - BUILT_IN] : NULL;
}

bool brim_config_link_is_usual(const brim_config_row *row, const brim_config_value *value) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (strcmp(l->key, row->key.name) != 0) continue;
    const int of = brim_config_row_find(l->component);
    const char *category = brim_config_row_at((size_t)of)->category;
    for (size_t k = 0; k < brim_config_component_count(); k++) {
      const brim_config_component_row *c = brim_config_component_at(k);
      if (strcmp(c->category, category) != 0) continue;
      const brim_config_arg *arg = brim_config_arg_find(c, l->arg);
      if (arg && brim_config_value_is_usual(row, value, arg->default_text)) return true;
    }
  }
  return false;
}

static bool applies(const link *l, int row, int slot) {
  if (strcmp(l->component, brim_config_row_at((size_t)row)->key.name)) return false;
  bool evaluation = slot == BRIM_CONFIG_SLOT_VAL || slot == BRIM_CONFIG_SLOT_TEST;
  return l->evaluation == evaluation;
}

const brim_config_link *brim_config_link_of(int row, int slot, const char *arg) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!strcmp(l->arg, arg) && applies(l, row, slot)) return l;
  }
  return NULL;
}

// The setting that gave an explicit argument: its own, or the expression it stands in.
static int giver(const brim_config *config, int row, int slot, const char *arg, int whole) {
  int own = brim_config_setting_find(config->source, row, slot, arg);
  return own >= 0 ? own : whole;
}

static brim_value value_of(const brim_config_row *row, const brim_config_value *v) {
  switch (row->type) {
    case BRIM_CONFIG_BOOL:
      return (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = v->boolean};
    case BRIM_CONFIG_FLOAT:
      return (brim_value){.kind = BRIM_VALUE_FLOAT, .number = v->number};
    default:
      return (brim_value){
          .kind = BRIM_VALUE_INT, .integer = v->integer, .number = (double)v->integer};
  }
}

// `whole`: the setting that names the component; -1 = none.
static brim_status no_effect(const brim_config *config, const brim_config_row *key,
                             const brim_config_draft *draft, int whole,
                             const brim_config_value *value) {
  if (config->is_point || !brim_config_value_is_asked(config->source, key, value)) return BRIM_OK;
  // a default of the component that the file had, which an override has replaced
  const brim_config_setting *named = whole < 0 ? NULL : &config->source->settings.items[whole];
  if (named && named->layer > value->layer && brim_config_link_is_usual(key, value)) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s: ", value->origin);
  brim_str_printf(&text, brim_tr("'%s' has no effect on '%s'"), key->key.name, draft->c.name);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_warn(&config->source->context, text.data);
  brim_str_deinit(&text);
  return status;
}

static bool is_adam(const char *name) { return brim_str_starts(name, "adam"); }

// Given both ways in one layer: warned of (refused while editing). *key_wins: which of the two
// stands later.
static brim_status both(const brim_config *config, const link *l, int key_setting, int arg_setting,
                        bool *key_wins) {
  const brim_config_setting *k = &config->source->settings.items[key_setting];
  const brim_config_setting *a = &config->source->settings.items[arg_setting];
  *key_wins = key_setting > arg_setting;
  if (config->is_point || k->layer == config->source->override_layer) return BRIM_OK;
  return *key_wins ? brim_config_repeated(&config->source->context, l->key, a->at, k->at)
                   : brim_config_repeated(&config->source->context, l->key, k->at, a->at);
}

static brim_status link_one(brim_config *config, const link *l, int row, int slot, int whole,
                            brim_config_draft *draft) {
  int key_row = brim_config_row_find(l->key);
  const brim_config_row *info = brim_config_row_at((size_t)key_row);
  brim_config_value *value = &config->values[key_row];
  const brim_config_component_row *known =
      brim_config_component_find(brim_config_row_at((size_t)row)->category, draft->c.name);
  if (!known) return BRIM_OK;
  if (!brim_config_arg_find(known, l->arg)) return no_effect(config, info, draft, whole, value);
  // The presets' rates were found for Adam; SGD with them would hardly move.
  if (value->layer == -1 && !strcmp(l->arg, "lr") && !is_adam(draft->c.name)) {
    *value = (brim_config_value){.is_null = true, .layer = -2, .origin = "default"};
  }
  const brim_value *arg = brim_component_arg(&draft->c, l->arg);
  if (value->is_null || (arg && !value->is_set)) return BRIM_OK;
  // 0 steps is "not said here": it must not hide warmup_epochs, neither as the default nor in a
  // printed config, which says both.
  if (!arg && !strcmp(l->arg, "warmup") && value->integer == 0) return BRIM_OK;
  if (l->evaluation && value->integer == 0) return BRIM_OK;  // 0: as in training
  if (arg) {
    int arg_setting = giver(config, row, slot, l->arg, whole);
    int arg_layer = arg_setting >= 0 ? config->source->settings.items[arg_setting].layer : -2;
    if (arg_layer > value->layer) return BRIM_OK;
    if (arg_layer == value->layer && arg_setting >= 0) {
      int key_setting = brim_config_setting_find(config->source, key_row, 0, NULL);
      // An axis is plainly meant to vary; equal values are no contradiction (printed configs say
      // both).
      bool key_wins = key_setting >= 0 && config->source->settings.items[key_setting].axis >= 0;
      bool equal = arg->number == value->number && arg->boolean == value->boolean;
      if (key_setting >= 0 && !key_wins && !equal) {
        BRIM_TRY(both(config, l, key_setting, arg_setting, &key_wins));
      }
      if (!key_wins) return BRIM_OK;
    }
  }
  brim_config_place at = {value->origin, 0, 0};
  return brim_config_draft_set(config->arena, draft, l->arg, value_of(info, value), at);
}

brim_status brim_config_link_in(brim_config *config, int row, int slot, int whole,
                                brim_config_draft *draft) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!applies(l, row, slot)) continue;
    BRIM_TRY(link_one(config, l, row, slot, whole, draft));
  }
  return BRIM_OK;
}

static const brim_config_place *place_of(const brim_config_draft *draft, const char *arg) {
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    if (!strcmp(draft->args[i].name, arg)) return &draft->places[i];
  }
  return NULL;
}

// Now the argument is what counts: the key follows it.
static brim_status follow(brim_config *config, int key_row, const brim_value *arg, bool written,
                          int setting) {
  brim_config_value *value = &config->values[key_row];
  if (!written && !value->is_null) return BRIM_OK;
  value->is_null = false;
  value->boolean = arg->boolean;
  value->number = arg->number;
  value->integer = arg->integer;
  value->node = NULL;
  if (!written) return BRIM_OK;
  value->is_set = true;
  if (setting < 0) return BRIM_OK;
  const brim_config_setting *s = &config->source->settings.items[setting];
  value->layer = s->layer;
  value->origin = "override";
  if (s->layer == config->source->override_layer) return BRIM_OK;
  value->origin = brim_arena_printf(config->arena, "%s:%d:%d", s->at.file, s->at.line, s->at.col);
  return value->origin ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

brim_status brim_config_link_out(brim_config *config, int row, int slot, int whole,
                                 const brim_config_draft *draft) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!applies(l, row, slot)) continue;
    const brim_value *arg = brim_component_arg(&draft->c, l->arg);
    const brim_config_place *place = place_of(draft, l->arg);
    if (!arg) continue;
    // line 0: link_in took it from the key itself; no file: a default.
    if (place->file && place->line == 0) continue;
    int setting = giver(config, row, slot, l->arg, whole);
    BRIM_TRY(follow(config, brim_config_row_find(l->key), arg, place->file != NULL, setting));
  }
  return BRIM_OK;
}

brim_status brim_config_link_precision(brim_config *config) {
  brim_config_value *p = &config->values[brim_config_row_find("training.precision")];
  brim_config_value *amp = &config->values[brim_config_row_find("training.use_amp")];
  bool mixed = strcmp(p->string, "fp32") && strcmp(p->string, "tf32");
  bool contradict = p->is_set && amp->is_set && mixed != amp->boolean;
  bool amp_wins = amp->layer >= p->layer;
  if (contradict && p->layer == amp->layer && p->layer >= 0) {
    int a = brim_config_setting_find(config->source, brim_config_row_find("training.precision"), 0,
                                     NULL);
    int b =
        brim_config_setting_find(config->source, brim_config_row_find("training.use_amp"), 0, NULL);
    static const link pair = {NULL, NULL, "training.precision", false};
    BRIM_TRY(both(config, &pair, b, a, &amp_wins));
  }
  if (amp->is_set && (!p->is_set || (contradict && amp_wins))) {
    p->string = amp->boolean ? "auto" : "fp32";
    p->is_set = true;
    p->layer = amp->layer;
    p->origin = amp->origin;
    p->node = NULL;
  } else if (p->is_set) {
    amp->boolean = mixed;
    amp->is_set = true;
    amp->layer = p->layer;
    amp->origin = p->origin;
    amp->node = NULL;
  }
  return BRIM_OK;
}
