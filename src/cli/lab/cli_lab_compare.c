// `brim compare` of stores: groups of experiments with equal settings side by side. Matching and
// statistics are src/record/record_lab.c's, the table is src/ui/ui_compare.c's.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/lab/cli_lab.h"
#include "ui/sweep/ui_sweep.h"

typedef struct stores {
  brim_cli *cli;
  brim_cli_lab a, b;
  const brim_lab_set *left, *right;  // the same set with --by
  brim_lab_comparison result;
  char name_a[320], name_b[320];
  json_t *differences;  // {key: [a, b]}
} stores;

bool brim_cli_lab_is_compared(const brim_cli *cli) {
  for (size_t i = 0; i < cli->parse.positional_count; i++) {
    if (brim_lab_kind_of(cli->parse.positional[i]) != BRIM_LAB_KIND_NONE) return true;
  }
  return false;
}

//---------------------------------- reading ----------------------------------

static brim_status check_words(brim_cli *cli, const char *by) {
  const brim_option_parse *p = &cli->parse;
  if (brim_option_find(p, "fail-below")) {
    return brim_cli_usage(cli,
                          BRIM_N_("--fail-below is for records of brim bench, not for stores"));
  }
  if (p->positional_count != (by ? 1u : 2u)) {
    return by ? brim_cli_usage(cli, BRIM_N_("compare --by takes one store"))
              : brim_cli_usage(cli, BRIM_N_("compare takes two stores, or one and --by KEY"));
  }
  for (size_t i = 0; i < p->positional_count; i++) {
    if (brim_lab_kind_of(p->positional[i]) != BRIM_LAB_KIND_NONE) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s holds no experiments; brim compares a store only with another store",
                     p->positional[i]);
  }
  return BRIM_OK;
}

static brim_status match_by(stores *s, const char *by) {
  const brim_lab_set *set = s->left = s->right = s->a.set;
  BRIM_TRY(brim_lab_compare_by(set, by, brim_cli_lab_result(s->cli), &s->result));
  // The first match's partner has the value that the others are compared with.
  const brim_lab_match *first = &s->result.matches[0];
  const char *base = "-", *key = by;
  for (size_t i = 0; i < set->key_count; i++) {
    const char *x = set->exps[first->a->list[0]].values[i];
    const char *y = set->exps[first->b->list[0]].values[i];
    if (set->keys[i].over || x == y) continue;  // texts are kept once
    key = set->keys[i].name;
    base = x ? x : brim_tr("not set");
  }
  snprintf(s->name_a, sizeof s->name_a, "%.160s, %.60s=%.80s", s->a.place, key, base);
  snprintf(s->name_b, sizeof s->name_b, brim_tr("%.160s, other values of %.60s"), s->a.place, key);
  return BRIM_OK;
}

static brim_status match_two(stores *s) {
  BRIM_TRY(brim_cli_lab_read(s->cli, s->cli->parse.positional[1], &s->b));
  s->left = s->a.set;
  s->right = s->b.set;
  snprintf(s->name_a, sizeof s->name_a, "%.300s", s->a.place);
  snprintf(s->name_b, sizeof s->name_b, "%.300s", s->b.place);
  return brim_lab_compare(s->left, s->right, brim_cli_lab_result(s->cli), &s->result);
}

//---------------------------------- what else differs ----------------------------------

static bool is_key(const brim_lab_set *set, const char *name) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (strcmp(set->keys[i].name, name) == 0) return true;
  }
  return false;
}

static const char *common_value(const brim_lab_set *set, const char *name) {
  for (size_t i = 0; i < set->common_count; i++) {
    if (strcmp(set->common[i].name, name) == 0) return set->common[i].value;
  }
  return NULL;
}

static brim_status differ(json_t *out, const char *key, const char *a, const char *b) {
  json_t *both = json_array();
  brim_status status = brim_json_push(both, a ? json_string(a) : json_null());
  if (!status) status = brim_json_push(both, b ? json_string(b) : json_null());
  if (!status) return brim_json_put(out, key, both);
  json_decref(both);
  return status;
}

// Settings that are the same within each store, but not in both; those that vary are matched.
static brim_status find_differences(stores *s) {
  s->differences = json_object();
  if (!s->differences) return brim_fail(BRIM_ENOMEM, "out of memory while comparing experiments");
  const brim_lab_set *sides[] = {s->left, s->right};
  for (size_t side = 0; side < 2; side++) {
    for (size_t i = 0; i < sides[side]->common_count; i++) {
      const char *name = sides[side]->common[i].name;
      if (is_key(s->left, name) || is_key(s->right, name)) continue;
      const char *a = common_value(s->left, name), *b = common_value(s->right, name);
      if (json_object_get(s->differences, name) || (a && b && strcmp(a, b) == 0)) continue;
      BRIM_TRY(differ(s->differences, name, a, b));
    }
  }
  return BRIM_OK;
}

static void put_differences(const stores *s, brim_str *out) {
  const char *key;
  json_t *value;
  if (json_object_size(s->differences) == 0) return;
  brim_str_append(out, brim_tr("A and B also differ in:\n"));
  json_object_foreach(s->differences, key, value) {
    const char *a = json_string_value(json_array_get(value, 0));
    const char *b = json_string_value(json_array_get(value, 1));
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, "%s: %s -> %s", key, a ? a : brim_tr("not set"),
                    b ? b : brim_tr("not set"));
    brim_str_append(out, "  ");
    if (!brim_str_status(&line)) brim_ui_clip(out, &s->cli->out, line.data, 160);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&line);
  }
}

//---------------------------------- what is shown ----------------------------------

static void metric_line(const stores *s, char out[192]) {
  const char *key = s->result.count > 0 ? s->result.matches[0].metric_key : "";
  const brim_metric_better better = brim_lab_better(s->right, key);
  const brim_sweep_metric *display = brim_lab_display(s->right, key);
  const char *label = display ? brim_tr(display->label) : key;
  snprintf(out, 192, "%.80s, %s%s%s", label[0] ? label : brim_tr("no metric"),
           brim_cli_lab_result(s->cli) == BRIM_LAB_BEST ? brim_tr("best value of a run")
                                                        : brim_tr("last value of a run"),
           better == BRIM_BETTER_NEITHER ? "" : "; ",
           better == BRIM_BETTER_HIGHER  ? brim_tr("higher is better")
           : better == BRIM_BETTER_LOWER ? brim_tr("lower is better")
                                         : "");
}

static brim_status show_text(const stores *s) {
  brim_str text, differences;
  char metric[192];
  brim_str_init(&text);
  brim_str_init(&differences);
  put_differences(s, &differences);
  metric_line(s, metric);
  const brim_ui_lab_sides sides = {.a_name = s->name_a,
                                   .b_name = s->name_b,
                                   .differences = differences.data,
                                   .metric = metric,
                                   .a = s->left,
                                   .b = s->right};
  brim_status status = brim_str_status(&differences);
  if (!status) status = brim_ui_lab_compare(&s->cli->out, &s->result, &sides, &text);
  if (s->result.only_a > 0) {
    brim_str_printf(&text, brim_tr("  settings only in A: %zu\n"), s->result.only_a);
  }
  if (s->result.only_b > 0) {
    brim_str_printf(&text, brim_tr("  settings only in B: %zu\n"), s->result.only_b);
  }
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(s->cli, &text);
  brim_str_deinit(&differences);
  brim_str_deinit(&text);
  return status;
}

static bool is_certain(brim_lab_verdict verdict) {
  return verdict == BRIM_LAB_BETTER || verdict == BRIM_LAB_WORSE || verdict == BRIM_LAB_UNKNOWN;
}

static brim_status put_stats(json_t *to, const char *key, const brim_lab_stats *stats) {
  json_t *f = json_object();
  brim_status s = brim_json_put(to, key, f);
  if (!s) s = brim_json_put(f, "n", json_integer((json_int_t)stats->n));
  if (!s) s = brim_json_put(f, "mean", brim_json_number(stats->mean));
  if (!s) s = brim_json_put(f, "stddev", brim_json_number(stats->stddev));
  if (!s) s = brim_json_put(f, "ci_low", brim_json_number(stats->low));
  if (!s) s = brim_json_put(f, "ci_high", brim_json_number(stats->high));
  return s;
}

static brim_status match_json(const brim_lab_match *m, json_t *list) {
  json_t *f = json_object();
  BRIM_TRY(brim_json_push(list, f));
  BRIM_TRY(brim_json_put(f, "a_setting", json_string(m->a->label)));
  BRIM_TRY(brim_json_put(f, "b_setting", json_string(m->b->label)));
  BRIM_TRY(brim_json_put(f, "metric", json_string(m->metric_key)));
  BRIM_TRY(put_stats(f, "a", &m->a_stats));
  BRIM_TRY(put_stats(f, "b", &m->b_stats));
  BRIM_TRY(brim_json_put(f, "difference", brim_json_number(m->difference.mean)));
  BRIM_TRY(brim_json_put(f, "difference_low", brim_json_number(m->difference.low)));
  BRIM_TRY(brim_json_put(f, "difference_high", brim_json_number(m->difference.high)));
  BRIM_TRY(brim_json_put(f, "verdict", json_string(brim_lab_verdict_name(m->verdict))));
  return brim_json_put(f, "certain", json_boolean(is_certain(m->verdict)));
}

static brim_status fill_json(const stores *s, json_t *f) {
  const brim_lab_comparison *c = &s->result;
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(f, "pairs", list));
  for (size_t i = 0; i < c->count; i++) BRIM_TRY(match_json(&c->matches[i], list));
  BRIM_TRY(brim_json_put(f, "a", json_string(s->name_a)));
  BRIM_TRY(brim_json_put(f, "b", json_string(s->name_b)));
  BRIM_TRY(brim_json_put(f, "mean_difference", brim_json_number(c->overall.mean)));
  BRIM_TRY(brim_json_put(f, "mean_difference_low", brim_json_number(c->overall.low)));
  BRIM_TRY(brim_json_put(f, "mean_difference_high", brim_json_number(c->overall.high)));
  BRIM_TRY(brim_json_put(f, "mean_of", json_integer((json_int_t)c->overall.n)));
  BRIM_TRY(brim_json_put(f, "verdict", json_string(brim_lab_verdict_name(c->verdict))));
  BRIM_TRY(brim_json_put(f, "certain", json_boolean(is_certain(c->verdict))));
  BRIM_TRY(brim_json_put(f, "only_a", json_integer((json_int_t)c->only_a)));
  BRIM_TRY(brim_json_put(f, "only_b", json_integer((json_int_t)c->only_b)));
  return brim_json_put(f, "differences", json_incref(s->differences));
}

static brim_status show_json(const stores *s) {
  json_t *f = json_object();
  brim_status status = f ? fill_json(s, f) : brim_fail(BRIM_ENOMEM, "out of memory");
  if (status) {
    json_decref(f);
    return status;
  }
  return brim_cli_event(s->cli, "compare", f);
}

//---------------------------------- the command ----------------------------------

static brim_status compare(stores *s) {
  const char *by = brim_option_string(&s->cli->parse, "by", NULL);
  BRIM_TRY(check_words(s->cli, by));
  BRIM_TRY(brim_cli_lab_read(s->cli, s->cli->parse.positional[0], &s->a));
  BRIM_TRY(by ? match_by(s, by) : match_two(s));
  BRIM_TRY(find_differences(s));
  return s->cli->json ? show_json(s) : show_text(s);
}

brim_status brim_cli_lab_compare(brim_cli *cli) {
  stores s = {.cli = cli};
  brim_status status = compare(&s);
  json_decref(s.differences);
  brim_lab_comparison_deinit(&s.result);
  brim_cli_lab_deinit(&s.a);
  brim_cli_lab_deinit(&s.b);
  return status;
}
