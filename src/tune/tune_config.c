// The config files of a workload's session: which records --resume takes over, best.yaml, and --apply.

#include "tune/tune_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_KEY "training.learning_rate"

//-------------------------------------------- resume --------------------------------------------
// A record is taken over when it was measured with the same config on the same device.

typedef struct brim_work_resume {
  brim_result now;  // what a record of this session says of itself
  json_t *config;   // of it, without what does not change a measurement
  json_t *defaults;
} brim_work_resume;

// A dotted key.
static void leave_out(json_t *config, const char *key) {
  const char *dot = strchr(key, '.');
  char group[64];
  snprintf(group, sizeof group, "%.*s", (int)(dot ? dot - key : 0), key);
  json_object_del(dot ? json_object_get(config, group) : config, dot ? dot + 1 : key);
}

// "adamw(lr=0.001, beta1=0.9)" without the value of lr.
static void leave_out_rate(json_t *config) {
  const char *text = json_string_value(json_object_get(config, "optimizer"));
  const char *lr = text ? strstr(text, "(lr=") : NULL;
  if (text && !lr) lr = strstr(text, " lr=");
  if (!lr) return;
  char without[512];
  const char *rest = lr + 4 + strcspn(lr + 4, ",)");
  int n = snprintf(without, sizeof without, "%.*s%s", (int)(lr + 4 - text), text, rest);
  if (n < (int)sizeof without) json_object_set_new(config, "optimizer", json_string(without));
}

// A record of an earlier version lacks the keys that are new: they were at their defaults. Records
// name all the keys their version had.
static void fill_in(json_t *config, json_t *defaults) {
  const char *key;
  json_t *value;
  json_object_foreach(defaults, key, value) {
    json_t *here = json_object_get(config, key);
    if (!here) json_object_set_new(config, key, json_deep_copy(value));
    if (json_is_object(here) && json_is_object(value)) json_object_update_missing(here, value);
  }
}

// Names, places and lists of what to try have no part in how fast a setting is, nor has the learning
// rate; the knobs are given by the setting (a config that the recommendation was written into is
// still the same).
static json_t *essence(const brim_work *work, const json_t *config, json_t *defaults) {
  // the device is given by what the record says of it, and the others of a list come after the
  // sweep
  static const char *const names[] = {"name",     "project",    "tags",
                                      "priority", "output_dir", "device"};
  static const char *const lists[] = {"repeats", "test_mixed_precision", "test_pin_memory"};
  json_t *copy = config ? json_deep_copy(config) : NULL;
  if (copy) fill_in(copy, defaults);
  json_t *benchmark = json_object_get(copy, "benchmark");
  for (size_t i = 0; copy && i < sizeof names / sizeof *names; i++) json_object_del(copy, names[i]);
  for (size_t i = 0; benchmark && i < sizeof lists / sizeof *lists; i++) {
    json_object_del(benchmark, lists[i]);
  }
  for (size_t i = 0; copy && i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    leave_out(copy, knob->key);
    if (knob->list) leave_out(copy, knob->list);
  }
  if (copy) leave_out(copy, "training.use_amp");
  if (copy) leave_out(copy, "training.learning_rate");
  if (copy) leave_out_rate(copy);
  if (copy) leave_out(copy, "dataloader");
  return copy;
}

void brim_work_resume_free(brim_work_resume *resume) {
  if (!resume) return;
  json_decref(resume->config);
  json_decref(resume->defaults);
  brim_result_deinit(&resume->now);
  brim_free(resume);
}

// What records are compared with, made by the first of them.
static brim_status begin_resume(brim_work_subject *s) {
  const brim_work *work = *s->work;
  const brim_trial_options how = {.memory = s->memory};
  const brim_config_options none = {.text = "", .text_name = "defaults"};
  brim_setting setting = brim_work_setting(work);
  brim_config *config = NULL;
  brim_work_resume *resume = s->resume = brim_calloc(1, sizeof *resume);
  if (!resume) return brim_fail(BRIM_ENOMEM, "out of memory while reading records");
  BRIM_TRY(brim_trial_plan(*s->work, s->config, *s->device, &setting, &how, &resume->now));
  BRIM_TRY(brim_config_load(&none, &config));
  brim_status status = brim_config_to_json(config, &resume->defaults);
  brim_config_close(config);
  BRIM_TRY(status);
  resume->config = essence(work, resume->now.config, resume->defaults);
  return resume->config ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading records");
}

brim_status brim_work_differs(void *state, const brim_result *r, const char **out) {
  brim_work_subject *s = state;
  if (!s->resume) BRIM_TRY(begin_resume(s));
  const brim_result *now = &s->resume->now;
  *out = "";
  if (strcmp(r->host, now->host) != 0 || strcmp(r->cpu, now->cpu) != 0 || r->cores != now->cores) {
    *out = brim_tr("another machine");
  } else if (strcmp(r->device, now->device) != 0 || strcmp(r->device_id, now->device_id) != 0 ||
             strcmp(r->backend, now->backend) != 0 || strcmp(r->library, now->library) != 0 ||
             (r->threads != now->threads && !brim_result_knob_as(r, BRIM_ROLE_THREADS))) {
    *out = brim_tr("another device");
  } else if (strcmp(r->workload, now->workload) != 0 || r->seed != now->seed) {
    *out = brim_tr("another config");
  } else if (strcmp(r->description, now->description) != 0) {
    *out = brim_tr("other data");
  } else {
    json_t *config = essence(*s->work, r->config, s->resume->defaults);
    if (!config || !json_equal(config, s->resume->config)) *out = brim_tr("another config");
    json_decref(config);
  }
  return BRIM_OK;
}

//---------------------------------------- learning rate ----------------------------------------
// The learning rate that goes with a recommended batch, for --apply and best.yaml. brim_advise_rate has the
// rule.

// Batch, accumulation and learning rate as one file has them.
typedef struct file_rate {
  double batch, steps, rate;
} file_rate;

// The config key of the knob in a role; "" where the workload has none.
static const char *key_of(const brim_tuning *s, brim_knob_role role) {
  int knob = brim_subject_knob_as(s->subject, role);
  return knob < 0 ? "" : s->subject->knobs[knob].key;
}

static double number_of(const brim_tuning *s, const brim_config *file, brim_knob_role role) {
  const char *key = key_of(s, role);
  return key[0] ? (double)brim_config_int(file, key) : 1;
}

// A file without a learning rate has the one of the sweep; of a grid none is the one before.
static brim_status read_file(const brim_tuning *s, const char *path, const brim_advice_facts *facts,
                             file_rate *out) {
  brim_config *file = NULL;
  brim_config_options how = {.path = path, .mode = BRIM_CONFIG_EDIT};
  BRIM_TRY(brim_config_load(&how, &file));
  *out = (file_rate){number_of(s, file, BRIM_ROLE_BATCH),
                     number_of(s, file, BRIM_ROLE_ACCUMULATION), facts->learning_rate};
  if (brim_config_is_set(file, RATE_KEY)) out->rate = brim_config_float(file, RATE_KEY);
  if (brim_config_grid_count(file) != 1) out->rate = (double)NAN;
  brim_config_close(file);
  return BRIM_OK;
}

// For `batch` x `steps` (NaN: as before). A learning rate belongs to the batch beside which it stands: in
// the file `path`, whatever the command line had in its place; without a file, to the sweep's config.
static brim_status rate_change(const brim_tuning *s, const char *path, double batch, double steps,
                               brim_rate_change *out) {
  brim_advice_facts facts;
  *out = (brim_rate_change){.kept = s->how.keep_rate};
  brim_advice_facts_of(s->subject, &facts);
  if (isnan(facts.batch) || isnan(facts.learning_rate)) return BRIM_OK;
  file_rate was = {facts.batch, facts.accumulation, facts.learning_rate};
  if (path) BRIM_TRY(read_file(s, path, &facts, &was));
  if (was.steps < 1) was.steps = 1;
  double before = was.batch * was.steps;
  double after = (isnan(batch) ? was.batch : batch) * (isnan(steps) ? was.steps : steps);
  if (!(before > 0) || !(after > 0) || before == after || !(was.rate > 0)) return BRIM_OK;
  out->batch_before = before;
  out->batch_after = after;
  out->before = was.rate;
  out->adaptive = facts.adaptive;
  out->after = brim_advise_rate(was.rate, before, after, facts.adaptive);
  return BRIM_OK;
}

void brim_rate_change_text(const brim_rate_change *c, brim_str *out) {
  if (!(c->after > 0)) return;
  const char *rule = c->adaptive ? brim_tr("square-root rule") : brim_tr("linear rule");
  brim_str_printf(out,
                  c->kept ? brim_tr("learning rate %.4g stays (--keep-lr); it would be %.4g")
                          : brim_tr("learning rate %.4g -> %.4g, --keep-lr keeps it"),
                  c->before, c->after);
  brim_str_printf(out, brim_tr(" (%s, effective batch %.0f -> %.0f)\n"), rule, c->batch_before,
                  c->batch_after);
}

//------------------------------------------ best.yaml ------------------------------------------
// best.yaml: the keys that were given, with the recommended setting in place of what was swept.
// Defaults are left to the brim that reads it, as are keys that this version does not use.

// Files are found from any folder.
static brim_status add_path(brim_work_subject *w, const char *key) {
  const char *given = brim_config_string(w->config, key);
  if (!given || !*given || !brim_config_is_set(w->config, key)) return BRIM_OK;
  char *full = realpath(given, NULL);
  if (!full) return BRIM_OK;  // not a path of this machine's files: stays as it is
  brim_str quoted;
  brim_str_init(&quoted);
  for (const char *c = full; *c; c++) brim_str_append(&quoted, *c == '\'' ? "''" : (char[]){*c, 0});
  free(full);
  brim_status status = brim_str_status(&quoted);
  if (!status) status = brim_work_override(w, "%s='%s'", key, quoted.data);
  brim_str_deinit(&quoted);
  return status;
}

// What was swept is answered, where the sweep's files went is no part of the answer, and a key
// without effect would only be warned of.
static bool is_kept(const brim_config *config, const char *name) {
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 && brim_config_is_set(config, name) &&
         brim_config_key_is_used(key) && strcmp(name, "output_dir") != 0 &&
         !brim_str_starts(name, "benchmark.");
}

// The printed config line by line. "group:" is held back until a key of it is kept; deeper lines
// (slots of a component) go with the key above them.
static void filter(const brim_config *config, const char *text, brim_str *out) {
  char group[64] = "";
  bool group_reported = false, keep = false;
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    size_t indent = strspn(text, " "), length = strcspn(text + indent, ":\n");
    char name[128] = "";
    if (indent == 0) {
      strncat(name, text, length < 63 ? length : 63);
      const brim_config_key *key = brim_config_key_find(name);
      bool is_group = !key || strcmp(key->name, name) != 0;
      memcpy(group, is_group ? name : "", is_group ? strlen(name) + 1 : 1);
      group_reported = false;
      keep = !is_group && is_kept(config, name);
    } else if (group[0] && indent == 2) {
      strcat(strcat(name, group), ".");
      strncat(name, text + indent, length < 63 ? length : 63);
      keep = is_kept(config, name);
    }
    if (!keep) continue;
    if (group[0] && !group_reported) brim_str_printf(out, "%s:\n", group);
    group_reported = true;
    brim_str_append_n(out, text, n);
    brim_str_append_char(out, '\n');
  }
}

// The keys that were given, with the recommended setting as overrides, so that everything that follows from it
// does. The learning rate is the one that --apply writes; one that the command line gives belongs to its batch.
brim_status brim_work_write_best(brim_tuning *s, const char *path) {
  brim_work_subject *w = s->subject->state;
  const brim_subject *subject = s->subject;
  const brim_result *best = &s->results[s->picks.recommended];
  char number[32];
  brim_rate_change rate = {.after = 0};
  brim_str text, whole;
  brim_str_init(&text);
  brim_str_init(&whole);
  brim_format_figure(best->samples_per_s, number);
  brim_str_printf(&text, brim_tr("# recommended by brim bench: %s %s/s on %s\n"), number,
                  brim_tr(brim_result_unit(best)), best->device);
  brim_status status = add_path(w, "data.path");
  if (!status && s->how.device_count > 1) {  // training is on one
    const char *first = NULL;
    status = brim_work_device_at(w->config, 0, &first);
    if (!status) status = brim_work_override(w, "device=%s", first);
  }
  if (!status) status = add_path(w, "training.weights");
  for (size_t i = 0; i < subject->knob_count && !status; i++) {
    const brim_knob *knob = &subject->knobs[i];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    if (!value) continue;
    brim_str_printf(&text, "#   %s: %s\n", knob->key, value->value);
    status = brim_work_override(w, "%s=%s", knob->key, value->value);
  }
  bool given = brim_config_layer_of(w->config, RATE_KEY) == BRIM_CONFIG_FROM_OVERRIDE;
  double batch = brim_result_number_as(best, BRIM_ROLE_BATCH, (double)NAN);
  double steps = brim_result_number_as(best, BRIM_ROLE_ACCUMULATION, (double)NAN);
  if (!status) status = rate_change(s, given ? NULL : w->path, batch, steps, &rate);
  if (!status && rate.after > 0) {
    brim_str_append(&text, "# ");
    brim_rate_change_text(&rate, &text);
    if (!rate.kept) status = brim_work_override(w, "%s=%.4g", RATE_KEY, rate.after);
  }
  brim_config *config = NULL;
  if (!status) status = brim_work_load(w, &config);
  if (!status) status = brim_config_to_yaml(config, false, &whole);
  if (!status) filter(config, whole.data, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_config_close(config);
  brim_str_deinit(&whole);
  brim_str_deinit(&text);
  return status;
}

//------------------------------------------- --apply -------------------------------------------
// The recommended values of what was swept, written into a config file in place. config_edit.c edits.

static void add_edit(brim_tuning_edit *list, const char *key, const char *value) {
  snprintf(list->values[list->count], sizeof list->values[0], "%s", value);
  list->edits[list->count] = (brim_config_edit){key, list->values[list->count]};
  list->count++;
}

// NaN where it stays.
static double edited(const brim_tuning_edit *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    double value;
    if (!strcmp(list->edits[i].key, key) && brim_parse_f64(list->edits[i].value, &value)) {
      return value;
    }
  }
  return (double)NAN;
}

static brim_status add_rate(const brim_tuning *s, brim_tuning_edit *list) {
  brim_rate_change *rate = &list->rate;
  BRIM_TRY(rate_change(s, s->how.apply, edited(list, key_of(s, BRIM_ROLE_BATCH)),
                       edited(list, key_of(s, BRIM_ROLE_ACCUMULATION)), rate));
  char value[32];
  if (!(rate->after > 0) || rate->kept) return BRIM_OK;
  snprintf(value, sizeof value, "%.4g", rate->after);
  add_edit(list, RATE_KEY, value);
  return BRIM_OK;
}

// Tried with the values at hand, so that a file that cannot be edited is known before the sweep.
brim_status brim_work_check_edit(brim_tuning *s) {
  brim_tuning_edit list = {.count = 0};
  for (size_t i = 0; i < s->axis_count; i++) {
    const brim_knob *knob = &s->subject->knobs[s->axes[i].knob];
    char value[32];
    brim_knob_format(knob, s->axes[i].values[0], value);
    add_edit(&list, knob->key, value);
  }
  BRIM_TRY(add_rate(s, &list));
  BRIM_TRY(brim_config_edit_preview(s->how.apply, list.edits, list.count, &list.file));
  brim_config_edit_result_deinit(&list.file);
  return brim_config_edit_check(s->how.apply);
}

// Values of the config's own setting stay as the file has them: what it leaves to brim is not fixed to what
// this machine chose.
brim_status brim_work_edit(brim_tuning *s, brim_tuning_edit *out) {
  const brim_work_subject *w = s->subject->state;
  const brim_result *best = &s->results[s->picks.recommended];
  const bool same = s->picks.now >= 0 && brim_fs_same(s->how.apply, w->path);
  const brim_result *own = same ? &s->results[s->picks.now] : NULL;
  for (size_t i = 0; i < s->axis_count; i++) {
    const brim_knob *knob = &s->subject->knobs[s->axes[i].knob];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    const brim_result_knob *now = own ? brim_result_knob_find(own, knob->name) : NULL;
    const bool replaced = brim_config_layer_of(w->config, knob->key) == BRIM_CONFIG_FROM_OVERRIDE;
    if (value && now && !replaced && strcmp(value->value, now->value) == 0) continue;
    if (value) add_edit(out, knob->key, value->value);
  }
  BRIM_TRY(add_rate(s, out));
  return brim_config_edit_file(s->how.apply, out->edits, out->count, &out->file);
}
