// Numbers, names and orders of experiments, for every part of the page of a store.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_lab_int.h"

brim_sweep_state brim_ui_lab_state(const brim_lab_exp *exp) {
  brim_sweep_state state = BRIM_SWEEP_QUEUED;
  return brim_sweep_state_of(exp->state, &state) ? state : BRIM_SWEEP_QUEUED;
}

const char *brim_ui_lab_state_text(brim_sweep_state state) {
  static const char *const texts[BRIM_SWEEP_STATE_COUNT] = {
      [BRIM_SWEEP_QUEUED] = BRIM_N_("queued"),   [BRIM_SWEEP_LEASED] = BRIM_N_("starting"),
      [BRIM_SWEEP_RUNNING] = BRIM_N_("running"), [BRIM_SWEEP_DONE] = BRIM_N_("done"),
      [BRIM_SWEEP_FAILED] = BRIM_N_("failed"),   [BRIM_SWEEP_CANCELLED] = BRIM_N_("cancelled"),
      [BRIM_SWEEP_PAUSED] = BRIM_N_("paused"),
  };
  return brim_tr(texts[state]);
}

const char *brim_ui_lab_short(const brim_lab_set *set, size_t key) {
  const char *name = set->keys[key].name, *dot = strrchr(name, '.');
  const char *last = dot ? dot + 1 : name;
  for (size_t i = 0; i < set->key_count; i++) {
    const char *other = set->keys[i].name, *end = strrchr(other, '.');
    if (i != key && strcmp(end ? end + 1 : other, last) == 0) return name;
  }
  return last;
}

double brim_ui_lab_seconds(const brim_lab_exp *exp, double now_s) {
  const double ran = (double)exp->ran_ms / 1e3;
  if (exp->since > 0 && now_s > 0) return ran + fmax(0, now_s - (double)exp->since / 1e3);
  return exp->ran_ms > 0 ? ran : (double)NAN;
}

const char *brim_ui_lab_label(const brim_lab_set *set, const char *metric_key) {
  const brim_sweep_metric *display = brim_lab_display(set, metric_key);
  return display ? brim_ui_sweep_metric_label(display) : metric_key;
}

const char *brim_ui_lab_metric(const brim_lab_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    if (set->metric_count > 0 && strcmp(set->exps[i].metric_key, set->metrics[0].key) == 0) {
      return set->metrics[0].key;
    }
  }
  return set->count > 0 ? set->exps[0].metric_key : "";
}

size_t brim_ui_lab_best(const brim_lab_set *set, brim_lab_result result) {
  const char *key = brim_ui_lab_metric(set);
  const brim_metric_better better = brim_lab_better(set, key);
  size_t best = set->group_count;
  for (size_t i = 0; i < set->group_count && better != BRIM_BETTER_NEITHER; i++) {
    const brim_lab_rank rank = brim_lab_group_rank(&set->groups[i], result);
    if (rank.results == 0 || strcmp(set->groups[i].metric_key, key) != 0) continue;
    if (best < set->group_count) {
      const brim_lab_rank first = brim_lab_group_rank(&set->groups[best], result);
      if (brim_lab_rank_order(&rank, &first, better) >= 0) continue;
    }
    best = i;
  }
  return best;
}
