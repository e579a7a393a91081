// `brim compare A B`: compares two files of records, or the values of one knob in one file. This file reads and matches
// the records; src/ui/bench/ui_compare.c draws the table. src/cli/lab/cli_lab.c compares stores of experiments.
#include "cli/lab/cli_lab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/wire/lab_wire_records.h"
#include "measure/measure.h"
#include "record/record_view.h"

static const brim_option options[] = {
    {.name = "by",
     .kind = BRIM_OPTION_STRING,
     .metavar = "KNOB",
     .help = BRIM_N_("compare settings in one file or store that differ only in this")},
    {.name = "fail-below",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "SHARE",
     .help = BRIM_N_("exit 1 if B certainly has under SHARE (0.95) of A's speed, or fails")},
    BRIM_CLI_LAB_OPTIONS,
    {0},
};

typedef struct records {
  char *path;
  brim_result *items;
  size_t count;
  bool torn;  // the last line was cut off
} records;

typedef struct comparison {
  brim_cli *cli;
  records a, b;
  brim_ui_pair *pairs;
  size_t count;
  size_t only_a, only_b;
  char name_a[320], name_b[320];
  json_t *differences;
} comparison;

//---------------------------------- reading ----------------------------------

// Reads a file, or the results.jsonl of a folder.
static brim_status read_records(const char *given, records *out) {
  out->path = brim_fs_is_dir(given) ? brim_fs_join(given, "results.jsonl") : brim_strdup(given);
  if (!out->path) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", given);
  if (brim_fs_is_dir(given) && !brim_fs_exists(out->path)) {
    return brim_fail(BRIM_ENOENT, "%s holds no results.jsonl; run brim bench first", given);
  }
  BRIM_TRY(brim_results_read(out->path, &out->items, &out->count, &out->torn));
  if (out->torn) {
    brim_log_warn(
        "compare",
        "%s: the last line is incomplete (a run was killed while writing); brim ignores it",
        out->path);
  }
  brim_result_attach_knobs(out->items, out->count);
  size_t kept = 0;
  // Keep only records of trials, and no interrupted ones.
  for (size_t i = 0; i < out->count; i++) {
    brim_result *r = &out->items[i];
    if (r->kind[0] || r->failure == BRIM_FAILURE_INTERRUPTED) {
      brim_result_deinit(r);
    } else {
      out->items[kept++] = *r;
    }
  }
  out->count = kept;
  if (kept > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: no measured setting in it", out->path);
}

static void records_deinit(records *r) {
  for (size_t i = 0; i < r->count; i++) brim_result_deinit(&r->items[i]);
  brim_free(r->items);
  brim_free(r->path);
}

//---------------------------------- matching ----------------------------------

// Do both records have the same value of every knob that both know, except `but`?
static bool same_setting(const brim_result *a, const brim_result *b, const char *but) {
  size_t common = 0;
  for (size_t i = 0; i < a->knob_count; i++) {
    const brim_result_knob *other = brim_result_knob_find(b, a->knobs[i].name);
    if (!other || (but && strcmp(a->knobs[i].name, but) == 0)) continue;
    if (strcmp(a->knobs[i].value, other->value) != 0) return false;
    common++;
  }
  return common > 0 || but;
}

// A setting that occurs twice was measured again: the later record counts.
static bool repeated_later(const records *r, size_t index) {
  for (size_t i = index + 1; i < r->count; i++) {
    if (same_setting(&r->items[index], &r->items[i], NULL)) return true;
  }
  return false;
}

static const brim_result *last_match(const records *in, const brim_result *setting) {
  for (size_t i = in->count; i-- > 0;) {
    if (same_setting(setting, &in->items[i], NULL)) return &in->items[i];
  }
  return NULL;
}

// Makes the workload's tables that compare the settings of the two configs; returns how many.
static size_t make_views(const comparison *c, brim_view *views) {
  const brim_workload_table *table;
  if (c->b.count == 0 || strcmp(c->a.items[0].workload, c->b.items[0].workload) != 0) return 0;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (strcmp(table->name, c->a.items[0].workload) != 0) continue;
    if (!table->views || !table->views->compare) return 0;
    return table->views->compare(c->a.items, c->a.count, c->b.items, c->b.count, views);
  }
  return 0;
}

static brim_status match_files(comparison *c) {
  c->pairs = brim_calloc(c->a.count, sizeof *c->pairs);
  if (!c->pairs) return brim_fail(BRIM_ENOMEM, "out of memory while comparing");
  for (size_t i = 0; i < c->a.count; i++) {
    if (repeated_later(&c->a, i)) continue;
    const brim_result *b = last_match(&c->b, &c->a.items[i]);
    if (b) {
      brim_ui_compare_pair(&c->a.items[i], b, &c->pairs[c->count++]);
    } else {
      c->only_a++;
    }
  }
  for (size_t i = 0; i < c->b.count; i++) {
    c->only_b += !repeated_later(&c->b, i) && !last_match(&c->a, &c->b.items[i]);
  }
  snprintf(c->name_a, sizeof c->name_a, "%s", c->a.path);
  snprintf(c->name_b, sizeof c->name_b, "%s", c->b.path);
  brim_view views[BRIM_VIEWS];
  if (c->count > 0 || make_views(c, views) > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "no setting of %s is in %s", c->a.path, c->b.path);
}

static brim_status match_knob(comparison *c, const char *knob) {
  const char *dot = strrchr(knob, '.');  // "data.batch_size" is the knob batch_size
  const char *name = dot ? dot + 1 : knob;
  const brim_result_knob *base = brim_result_knob_find(&c->a.items[0], name);
  if (!base) {
    brim_str all;
    brim_str_init(&all);
    for (size_t i = 0; i < c->a.items[0].knob_count; i++) {
      brim_str_printf(&all, "%s%s", i ? ", " : "", c->a.items[0].knobs[i].name);
    }
    brim_status status = brim_cli_usage(
        c->cli, BRIM_N_("--by %.60s: the records have the knobs %.300s"), knob, all.data);
    brim_str_deinit(&all);
    return status;
  }
  c->pairs = brim_calloc(c->a.count, sizeof *c->pairs);
  if (!c->pairs) return brim_fail(BRIM_ENOMEM, "out of memory while comparing");
  for (size_t i = 0; i < c->a.count; i++) {
    const brim_result *b = &c->a.items[i], *a = NULL;
    const brim_result_knob *value = brim_result_knob_find(b, name);
    if (!value || strcmp(value->value, base->value) == 0 || repeated_later(&c->a, i)) continue;
    for (size_t j = c->a.count; j-- > 0 && !a;) {
      const brim_result_knob *own = brim_result_knob_find(&c->a.items[j], name);
      bool is_base = own && strcmp(own->value, base->value) == 0;
      if (is_base && same_setting(b, &c->a.items[j], name)) a = &c->a.items[j];
    }
    if (a) brim_ui_compare_pair(a, b, &c->pairs[c->count++]);
  }
  snprintf(c->name_a, sizeof c->name_a, "%.200s, %.31s=%.31s", c->a.path, name, base->value);
  snprintf(c->name_b, sizeof c->name_b, brim_tr("%.200s, other values of %.31s"), c->a.path, name);
  if (c->count > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: no two settings differ in %s alone", c->a.path, name);
}

//---------------------------------- what else differs ----------------------------------

static brim_status put_difference(json_t *out, const char *key, json_t *a, json_t *b) {
  json_t *both = json_array();
  brim_status status = brim_json_push(both, a);
  if (!status) {
    status = brim_json_push(both, b);
  } else {
    json_decref(b);
  }
  if (!status) return brim_json_put(out, key, both);
  json_decref(both);
  return status;
}

static json_t *or_null(json_t *value) { return value ? json_incref(value) : json_null(); }

// Is the key left out of the differences? True for knobs, values to sweep, the name and the output folder.
static bool is_reported(const char *key) {
  static const char *const keys[] = {"config.output_dir", "config.name", "config.benchmark"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (strcmp(key, keys[i]) == 0) return true;
  }
  const brim_config_key *known = brim_config_key_find(key + sizeof "config." - 1);
  return known && brim_config_key_is_swept(known);
}

static brim_status put_config_differences(json_t *out, const char *prefix, json_t *a, json_t *b) {
  const char *key;
  json_t *value;
  json_object_foreach(a, key, value) {
    char full[160];
    json_t *other = json_object_get(b, key);
    snprintf(full, sizeof full, "%s.%s", prefix, key);
    if (is_reported(full) || (other && json_equal(value, other))) continue;
    if (json_is_object(value) && json_is_object(other)) {
      BRIM_TRY(put_config_differences(out, full, value, other));
    } else {
      BRIM_TRY(put_difference(out, full, json_incref(value), or_null(other)));
    }
  }
  json_object_foreach(b, key, value) {
    char full[160];
    snprintf(full, sizeof full, "%s.%s", prefix, key);
    if (is_reported(full) || json_object_get(a, key)) continue;
    BRIM_TRY(put_difference(out, full, json_null(), json_incref(value)));
  }
  return BRIM_OK;
}

static brim_status find_differences(comparison *c) {
  const brim_result *a = c->count > 0 ? c->pairs[0].a : &c->a.items[0];
  const brim_result *b = c->count > 0 ? c->pairs[0].b : &c->b.items[0];
  const struct {
    const char *key, *a, *b;
  } texts[] = {{"version", a->version, b->version},
               {"workload", a->workload, b->workload},
               {"host", a->host, b->host},
               {"os", a->os, b->os},
               {"cpu", a->cpu, b->cpu},
               {"device", a->device, b->device},
               {"device_id", a->device_id, b->device_id},
               {"backend", a->backend, b->backend},
               {"library", a->library, b->library}};
  c->differences = json_object();
  if (!c->differences) return brim_fail(BRIM_ENOMEM, "out of memory while comparing");
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (strcmp(texts[i].a, texts[i].b) == 0) continue;
    BRIM_TRY(put_difference(c->differences, texts[i].key, json_string(texts[i].a),
                            json_string(texts[i].b)));
  }
  if (a->threads != b->threads) {
    BRIM_TRY(put_difference(c->differences, "threads", json_integer(a->threads),
                            json_integer(b->threads)));
  }
  if (a->config && b->config)
    return put_config_differences(c->differences, "config", a->config, b->config);
  return BRIM_OK;
}

static void value_text(const json_t *value, brim_str *out) {
  char *text = NULL;
  if (json_is_string(value)) {
    brim_str_append(out, json_string_value(value));
  } else if (!brim_json_dump(value, 0, &text)) {
    brim_str_append(out, text);
  }
  brim_free(text);
}

// True if the model, the data set or the kind of training differs: then a step is different work.
static bool is_other_work(const comparison *c) {
  static const char *const keys[] = {"workload",       "config.workload",  "config.model",
                                     "config.dataset", "config.transform", "config.env"};
  const char *key;
  json_t *value;
  json_object_foreach(c->differences, key, value) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      const size_t n = strlen(keys[i]);
      if (strncmp(key, keys[i], n) == 0 && (!key[n] || key[n] == '.')) return true;
    }
  }
  return false;
}

static void put_differences(const comparison *c, brim_str *out) {
  const char *key;
  json_t *value;
  if (json_object_size(c->differences) == 0) return;
  brim_str_append(out, is_other_work(c)
                           ? brim_tr("A and B do different work, so a faster one is no "
                                     "better setting:\n")
                           : brim_tr("A and B differ in more than speed:\n"));
  json_object_foreach(c->differences, key, value) {
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, "%s: ", key);
    value_text(json_array_get(value, 0), &line);
    brim_str_append(&line, " -> ");
    value_text(json_array_get(value, 1), &line);
    brim_str_append(out, "  ");
    if (!brim_str_status(&line)) brim_ui_clip(out, &c->cli->out, line.data, 160);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&line);
  }
}

//---------------------------------- what is shown ----------------------------------

static brim_status show_text(const comparison *c) {
  brim_str text, differences;
  brim_str_init(&text);
  brim_str_init(&differences);
  put_differences(c, &differences);
  const brim_ui_sides sides = {c->name_a, c->name_b, differences.data};
  brim_status status = brim_str_status(&differences);
  if (!status) status = brim_ui_compare(&c->cli->out, c->pairs, c->count, &sides, &text);
  if (c->only_a > 0) brim_str_printf(&text, brim_tr("  settings only in A: %zu\n"), c->only_a);
  if (c->only_b > 0) brim_str_printf(&text, brim_tr("  settings only in B: %zu\n"), c->only_b);
  brim_view views[BRIM_VIEWS];
  const size_t tables = make_views(c, views);
  if (!status && tables > 0) status = brim_ui_workload_tables(&c->cli->out, views, tables, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(c->cli, &text);
  brim_str_deinit(&differences);
  brim_str_deinit(&text);
  return status;
}

static brim_status side_json(const brim_result *r, json_t **out) {
  json_t *f = *out = json_object(), *setting = json_object();
  brim_status s = brim_json_put(f, "setting", setting);
  for (size_t i = 0; i < r->knob_count && !s; i++) {
    s = brim_json_put(setting, r->knobs[i].name, json_string(r->knobs[i].value));
  }
  if (!s) s = brim_json_put(f, "samples_per_s", brim_json_number(r->samples_per_s));
  if (!s) s = brim_json_put(f, "ci_low", brim_json_number(r->samples_per_s_low));
  if (!s) s = brim_json_put(f, "ci_high", brim_json_number(r->samples_per_s_high));
  if (!s) s = brim_json_put(f, "memory", brim_json_number(brim_result_memory(r)));
  if (!s) {
    s = brim_json_put(f, "failure",
                      r->failure ? json_string(brim_failure_name(r->failure)) : json_null());
  }
  return s;
}

static brim_status pair_json(const brim_ui_pair *p, json_t *list) {
  json_t *item = json_object(), *a = NULL, *b = NULL;
  BRIM_TRY(brim_json_push(list, item));
  brim_status s = side_json(p->a, &a);
  s = s ? (json_decref(a), s) : brim_json_put(item, "a", a);
  if (!s) {
    s = side_json(p->b, &b);
    s = s ? (json_decref(b), s) : brim_json_put(item, "b", b);
  }
  if (!s) s = brim_json_put(item, "ratio", brim_json_number(p->ratio.value));
  if (!s) s = brim_json_put(item, "ratio_low", brim_json_number(p->ratio.low));
  if (!s) s = brim_json_put(item, "ratio_high", brim_json_number(p->ratio.high));
  if (!s) s = brim_json_put(item, "verdict", json_string(brim_ui_verdict_name(p->verdict)));
  if (!s) s = brim_json_put(item, "certain", json_boolean(brim_ui_verdict_certain(p->verdict)));
  return s;
}

static brim_status show_json(const comparison *c) {
  brim_ui_pair all;
  size_t n = brim_ui_compare_overall(c->pairs, c->count, &all);
  json_t *f = json_object(), *list = json_array();
  brim_status s = brim_json_put(f, "a", json_string(c->name_a));
  if (!s) s = brim_json_put(f, "b", json_string(c->name_b));
  if (!s) s = brim_json_put(f, "pairs", json_incref(list));
  for (size_t i = 0; i < c->count && !s; i++) s = pair_json(&c->pairs[i], list);
  json_decref(list);
  if (!s) s = brim_json_put(f, "mean_ratio", brim_json_number(all.ratio.value));
  if (!s) s = brim_json_put(f, "mean_ratio_low", brim_json_number(all.ratio.low));
  if (!s) s = brim_json_put(f, "mean_ratio_high", brim_json_number(all.ratio.high));
  if (!s) s = brim_json_put(f, "mean_of", json_integer((json_int_t)n));
  if (!s) s = brim_json_put(f, "verdict", json_string(brim_ui_verdict_name(all.verdict)));
  if (!s) s = brim_json_put(f, "certain", json_boolean(brim_ui_verdict_certain(all.verdict)));
  if (!s) s = brim_json_put(f, "torn_a", json_boolean(c->a.torn));
  if (!s) s = brim_json_put(f, "torn_b", json_boolean(c->b.torn));
  if (!s) s = brim_json_put(f, "only_a", json_integer((json_int_t)c->only_a));
  if (!s) s = brim_json_put(f, "only_b", json_integer((json_int_t)c->only_b));
  if (!s) s = brim_json_put(f, "differences", json_incref(c->differences));
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(c->cli, "compare", f);
}

//---------------------------------- the command ----------------------------------

// True if B failed, or certainly has less than `share` of A's speed; without an interval the ratio decides. A setting
// measured only once with unsteady steps never counts as below: its interval is too narrow.
static bool is_below(const brim_ui_pair *p, double share) {
  if (p->verdict == BRIM_UI_VERDICT_B_FAILED) return true;
  bool steady = brim_result_trusted(p->a) && brim_result_trusted(p->b);
  if (p->verdict == BRIM_UI_VERDICT_ONCE && !steady) return false;
  double most = isnan(p->ratio.high) ? p->ratio.value : p->ratio.high;
  return most < share;
}

static brim_status exit_status(const comparison *c) {
  if (!brim_option_find(&c->cli->parse, "fail-below")) return BRIM_OK;
  double share = brim_option_float(&c->cli->parse, "fail-below", 0);
  const brim_ui_pair *first = NULL;
  size_t below = 0;
  for (size_t i = 0; i < c->count; i++) {
    if (!is_below(&c->pairs[i], share)) continue;
    if (!first) first = &c->pairs[i];
    below++;
  }
  if (!first && c->only_a > 0) {
    return brim_fail(BRIM_ESTATE, "%zu settings of A are not in B", c->only_a);
  }
  if (!first) return BRIM_OK;
  brim_str setting;
  brim_str_init(&setting);
  brim_ui_setting(first->b, &setting);
  brim_status status =
      brim_fail(BRIM_ESTATE, "%zu of %zu settings are below %g of A; the first: %s", below,
                c->count, share, setting.data);
  brim_str_deinit(&setting);
  return status;
}

static brim_status compare(comparison *c) {
  const brim_option_parse *parse = &c->cli->parse;
  const char *by = brim_option_string(parse, "by", NULL);
  size_t wanted = by ? 1 : 2;
  double share = brim_option_float(parse, "fail-below", 1);
  if (parse->positional_count != wanted) {
    return by ? brim_cli_usage(c->cli, BRIM_N_("compare --by takes one file or folder of records"))
              : brim_cli_usage(c->cli, BRIM_N_("compare takes two files or folders of records, or "
                                               "one and --by KNOB"));
  }
  if (!(share > 0) || !isfinite(share)) {
    return brim_cli_usage(c->cli, BRIM_N_("--fail-below takes a share above 0, such as 0.95"));
  }
  BRIM_TRY(read_records(parse->positional[0], &c->a));
  if (!by) BRIM_TRY(read_records(parse->positional[1], &c->b));
  BRIM_TRY(by ? match_knob(c, by) : match_files(c));
  BRIM_TRY(find_differences(c));
  BRIM_TRY(c->cli->json ? show_json(c) : show_text(c));
  return exit_status(c);
}

// True if a word names experiments: then `brim compare` compares stores, not files of records.
static bool names_experiments(const brim_cli *cli) {
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    if (brim_lab_kind_of(cli->parse.positional[i]) != BRIM_LAB_KIND_NONE) return true;
  }
  return false;
}

static brim_status run(brim_cli *cli) {
  if (names_experiments(cli)) return brim_cli_lab_compare(cli);
  comparison c = {.cli = cli};
  brim_status status = compare(&c);
  json_decref(c.differences);
  brim_free(c.pairs);
  records_deinit(&c.a);
  records_deinit(&c.b);
  return status;
}

const brim_cli_command brim_cli_compare = {
    .name = "compare",
    .summary = BRIM_N_("compare two files of records or two stores, with intervals"),
    .usage = "A B [OPTIONS]\nFILE --by KNOB [OPTIONS]",
    .about = BRIM_N_("A and B are results.jsonl files of brim bench, or folders with one. brim "
                     "compares settings that are in both: samples/s and their ratio with 95 % "
                     "intervals, and memory. A difference is certain when the interval of the "
                     "ratio excludes 1; otherwise the two cannot be told apart. Settings "
                     "measured only once are provisional. brim also lists other differences: "
                     "machine, version, config. Some workloads add tables of "
                     "what each config asks for, even if no setting is in both.\nWith --by, brim "
                     "compares settings "
                     "within one file that differ in that knob only.\nA and B can also be stores "
                     "of brim sweep: folders, postgres:// URLs or exports. brim then compares the "
                     "metric of experiments with equal settings: mean \xc2\xb1 standard deviation "
                     "over seeds, and the difference with its 95 % interval. One seed per setting "
                     "gives no interval."),
    .examples = BRIM_N_(
        "compare two sweeps\nbrim compare runs/before runs/after\nin CI: fail if a setting lost "
        "more than 5 %\nbrim compare main.jsonl branch.jsonl --fail-below 0.95\ncompare precisions "
        "within one sweep\nbrim compare runs/bench --by precision\ncompare optimizers within one "
        "store of experiments\nbrim compare runs/grid --by optimizer\n"),
    .options = options,
    .run = run,
};
