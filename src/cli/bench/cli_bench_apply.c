// `brim bench --apply`: the recommended values of what was swept, written into a config file in
// place, and what changed shown as a diff. How a file is edited is src/config/config_edit.c's.
#include "cli/bench/cli_bench.h"
#include "config/config_edit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Keys and values of a setting, as they are written; the learning rate comes on top.
typedef struct knob_edits {
  brim_config_edit edits[BRIM_KNOB_MAX + 1];
  char values[BRIM_KNOB_MAX + 1][32];
  size_t count;
} knob_edits;

#define RATE_KEY "training.learning_rate"

// What the file's effective batch and its learning rate are before and after the edit. 0: unknown, or
// nothing changes.
typedef struct rate_change {
  double batch_before, batch_after, before, after;
  bool adaptive, kept;
} rate_change;

static void add_edit(knob_edits *list, const char *key, const char *value) {
  snprintf(list->values[list->count], sizeof list->values[0], "%s", value);
  list->edits[list->count] = (brim_config_edit){key, list->values[list->count]};
  list->count++;
}

// --apply FILE, or the config that was given; one that comes with brim is nobody's to edit.
brim_status brim_cli_bench_apply_file(bench *b) {
  if (!brim_option_find(&b->cli->parse, "apply")) return BRIM_OK;
  if (b->plan_only) {
    return brim_cli_usage(b->cli, BRIM_N_("--apply needs a measurement; leave out --plan"));
  }
  const char *given = brim_option_string(&b->cli->parse, "apply", "");
  const brim_cli_input *input = &b->job->input;
  if (given[0]) {
    b->apply = given;
  } else if (input->found) {
    return brim_cli_usage(b->cli, BRIM_N_("--apply: %.200s comes with brim; name a FILE of yours"),
                          input->found);
  } else if (input->path) {
    b->apply = input->path;
  } else {
    return brim_cli_usage(b->cli, BRIM_N_("--apply: no config is given; name a FILE to edit"));
  }
  return BRIM_OK;
}

//---------------------------------- the learning rate ----------------------------------

static double edited(const knob_edits *list, const char *key, double otherwise) {
  for (size_t i = 0; i < list->count; i++) {
    double value;
    if (!strcmp(list->edits[i].key, key) && brim_parse_f64(list->edits[i].value, &value)) {
      return value;
    }
  }
  return otherwise;
}

// A learning rate belongs to the batch beside which it stands: in the file, whatever the command line
// had in its place during the sweep.
static brim_status rate_change_of(const bench *b, const knob_edits *list, rate_change *out) {
  static const char batch[] = "data.batch_size", steps[] = "training.gradient_accumulation_steps";
  brim_config *file = NULL;
  brim_advice_facts facts;
  brim_config_options how = {.path = b->apply, .mode = BRIM_CONFIG_EDIT};
  *out = (rate_change){.kept = brim_option_flag(&b->cli->parse, "keep-lr", false)};
  brim_cli_bench_facts(b, &facts);
  if (isnan(facts.batch) || isnan(facts.learning_rate)) return BRIM_OK;
  BRIM_TRY(brim_config_load(&how, &file));
  double size = (double)brim_config_int(file, batch), times = (double)brim_config_int(file, steps);
  double rate =
      brim_config_is_set(file, RATE_KEY) ? brim_config_float(file, RATE_KEY) : facts.learning_rate;
  bool one = brim_config_grid_count(file) == 1;  // of several none is the one before
  brim_config_close(file);
  if (times < 1) times = 1;
  double before = size * times, after = edited(list, batch, size) * edited(list, steps, times);
  if (!one || !(before > 0) || !(after > 0) || before == after || !(rate > 0)) return BRIM_OK;
  out->batch_before = before;
  out->batch_after = after;
  out->before = rate;
  out->adaptive = facts.adaptive;
  out->after = brim_advise_rate(rate, before, after, facts.adaptive);
  return BRIM_OK;
}

static void add_rate(knob_edits *list, const rate_change *change) {
  char value[32];
  if (!(change->after > 0) || change->kept) return;
  snprintf(value, sizeof value, "%.4g", change->after);
  add_edit(list, RATE_KEY, value);
}

static void put_rate(const rate_change *c, brim_str *out) {
  if (!(c->after > 0)) return;
  const char *rule = c->adaptive ? brim_tr("square-root rule") : brim_tr("linear rule");
  brim_str_printf(out,
                  c->kept ? brim_tr("learning rate %.4g stays (--keep-lr); it would be %.4g")
                          : brim_tr("learning rate %.4g -> %.4g, --keep-lr keeps it"),
                  c->before, c->after);
  brim_str_printf(out, brim_tr(" (%s, effective batch %.0f -> %.0f)\n"), rule, c->batch_before,
                  c->batch_after);
}

brim_status brim_cli_bench_apply_check(bench *b) {
  if (!b->apply) return BRIM_OK;
  // Tried with the values at hand, so that a file that cannot be edited is known before the sweep.
  knob_edits list = {.count = 0};
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_knob *knob = &b->job->work->knobs[b->axes.axis[i].knob];
    char value[32];
    brim_knob_format(knob, b->axes.axis[i].values[0], value);
    add_edit(&list, knob->key, value);
  }
  rate_change rate;
  BRIM_TRY(rate_change_of(b, &list, &rate));
  add_rate(&list, &rate);
  brim_config_edit_result result;
  brim_status status = brim_config_edit_preview(b->apply, list.edits, list.count, &result);
  if (status) return status;
  brim_config_edit_result_deinit(&result);
  return brim_config_edit_check(b->apply);
}

static brim_status apply_event(const bench *b, const knob_edits *list,
                               const brim_config_edit_result *result) {
  static const brim_term plain = {0};
  brim_str diff;
  brim_str_init(&diff);
  brim_status s = brim_ui_diff(&plain, b->apply, result->before, result->before_size, result->after,
                               result->after_size, &diff);
  json_t *f = json_object(), *keys = json_object();
  for (size_t i = 0; i < list->count && !s; i++) {
    s = brim_json_put(keys, list->edits[i].key, json_string(list->edits[i].value));
  }
  if (!s) s = brim_json_put(f, "path", json_string(b->apply));
  if (!s) s = brim_json_put(f, "changed", json_boolean(result->changed));
  if (!s) s = brim_json_put(f, "keys", json_incref(keys));
  if (!s) s = brim_json_put(f, "diff", json_string(diff.data));
  json_decref(keys);
  brim_str_deinit(&diff);
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "apply", f);
}

static brim_status show(const bench *b, const rate_change *rate,
                        const brim_config_edit_result *result) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  brim_str_printf(&text,
                  result->changed ? brim_tr("applied       %s\n")
                                  : brim_tr("applied       %s already has this setting\n"),
                  b->apply);
  put_rate(rate, &text);
  brim_status status =
      b->cli->quiet ? BRIM_OK
                    : brim_ui_diff(&b->cli->out, b->apply, result->before, result->before_size,
                                   result->after, result->after_size, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_bench_no_pick(const bench *b, const char *option) {
  b->cli->running = true;
  return brim_fail(BRIM_ESTATE, "--%s: no recommendation: no setting ran", option);
}

brim_status brim_cli_bench_apply(bench *b) {
  if (!b->apply) return BRIM_OK;
  if (b->picks.recommended < 0) return brim_cli_bench_no_pick(b, "apply");
  const brim_result *best = &b->results[b->picks.recommended];
  knob_edits list = {.count = 0};
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_knob *knob = &b->job->work->knobs[b->axes.axis[i].knob];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    if (value) add_edit(&list, knob->key, value->value);
  }
  rate_change rate;
  brim_config_edit_result result;
  b->cli->running = true;
  BRIM_TRY(rate_change_of(b, &list, &rate));
  add_rate(&list, &rate);
  BRIM_TRY(brim_config_edit_file(b->apply, list.edits, list.count, &result));
  brim_status status = b->cli->json ? apply_event(b, &list, &result) : show(b, &rate, &result);
  brim_config_edit_result_deinit(&result);
  return status;
}
