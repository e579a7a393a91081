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

static void add_edit(knob_edits *list, const char *key, const char *value) {
  snprintf(list->values[list->count], sizeof list->values[0], "%s", value);
  list->edits[list->count] = (brim_config_edit){key, list->values[list->count]};
  list->count++;
}

// --apply FILE, or the config that was given; one that comes with brim is not edited.
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

// NaN where it stays.
static double edited(const knob_edits *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    double value;
    if (!strcmp(list->edits[i].key, key) && brim_parse_f64(list->edits[i].value, &value)) {
      return value;
    }
  }
  return (double)NAN;
}

static brim_status add_rate(const bench *b, knob_edits *list, bench_rate *rate) {
  BRIM_TRY(brim_cli_bench_rate(b, b->apply, edited(list, brim_cli_bench_key(b, BRIM_ROLE_BATCH)),
                               edited(list, brim_cli_bench_key(b, BRIM_ROLE_ACCUMULATION)), rate));
  char value[32];
  if (!(rate->after > 0) || rate->kept) return BRIM_OK;
  snprintf(value, sizeof value, "%.4g", rate->after);
  add_edit(list, BENCH_RATE_KEY, value);
  return BRIM_OK;
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
  bench_rate rate;
  BRIM_TRY(add_rate(b, &list, &rate));
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

static brim_status show(const bench *b, const bench_rate *rate,
                        const brim_config_edit_result *result) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  brim_str_printf(&text,
                  result->changed ? brim_tr("applied       %s\n")
                                  : brim_tr("applied       %s already has this setting\n"),
                  b->apply);
  brim_cli_bench_rate_text(rate, &text);
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
  // Values of the config's own setting stay as the file has them: what it leaves to brim is not fixed to
  // what this machine chose.
  const bool same = b->decision.now >= 0 && brim_fs_same(b->apply, b->job->input.path);
  const brim_result *own = same ? &b->results[b->decision.now] : NULL;
  knob_edits list = {.count = 0};
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_knob *knob = &b->job->work->knobs[b->axes.axis[i].knob];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    const brim_result_knob *now = own ? brim_result_knob_find(own, knob->name) : NULL;
    const bool replaced =
        brim_config_layer_of(b->job->config, knob->key) == BRIM_CONFIG_FROM_OVERRIDE;
    if (value && now && !replaced && strcmp(value->value, now->value) == 0) continue;
    if (value) add_edit(&list, knob->key, value->value);
  }
  bench_rate rate;
  brim_config_edit_result result;
  b->cli->running = true;
  BRIM_TRY(add_rate(b, &list, &rate));
  BRIM_TRY(brim_config_edit_file(b->apply, list.edits, list.count, &result));
  brim_status status = b->cli->json ? apply_event(b, &list, &result) : show(b, &rate, &result);
  brim_config_edit_result_deinit(&result);
  return status;
}
