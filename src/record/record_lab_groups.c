// Experiments that repeat each other as groups with mean and deviation, and the finished set.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_stats.h"
#include "record/record_lab_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
}

//---------------------------------- statistics ----------------------------------

void brim_lab_stats_of(const double *values, size_t count, brim_lab_stats *out) {
  *out = (brim_lab_stats){.mean = (double)NAN,
                          .stddev = (double)NAN,
                          .low = (double)NAN,
                          .high = (double)NAN,
                          .least = (double)NAN,
                          .most = (double)NAN};
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(values[i])) continue;
    sum += values[i];
    if (out->n == 0 || values[i] < out->least) out->least = values[i];
    if (out->n == 0 || values[i] > out->most) out->most = values[i];
    out->n++;
  }
  if (out->n == 0) return;
  out->mean = sum / (double)out->n;
  for (size_t i = 0; i < count; i++) {
    if (isfinite(values[i])) squares += (values[i] - out->mean) * (values[i] - out->mean);
  }
  if (out->n < 2) return;
  const double df = (double)(out->n - 1);
  out->stddev = sqrt(squares / df);
  const double half = brim_stats_t95(df) * out->stddev / sqrt((double)out->n);
  out->low = out->mean - half;
  out->high = out->mean + half;
}

const brim_lab_stats *brim_lab_group_stats(const brim_lab_group *group, brim_lab_result result) {
  return result == BRIM_LAB_BEST ? &group->best : &group->last;
}

int brim_lab_rank_order(const brim_lab_rank *a, const brim_lab_rank *b, brim_metric_better better) {
  if (isnan(a->mean) || isnan(b->mean)) return isnan(a->mean) - isnan(b->mean);
  const bool lacks_a = a->results < a->count, lacks_b = b->results < b->count;
  if (lacks_a != lacks_b) return lacks_a - lacks_b;
  const int order = (a->mean > b->mean) - (a->mean < b->mean);
  return better == BRIM_BETTER_LOWER ? order : better == BRIM_BETTER_HIGHER ? -order : 0;
}

brim_lab_rank brim_lab_group_rank(const brim_lab_group *group, brim_lab_result result) {
  const brim_lab_stats *stats = brim_lab_group_stats(group, result);
  return (brim_lab_rank){stats->mean, stats->n, group->count};
}

double brim_lab_exp_result(const brim_lab_exp *exp, brim_lab_result result) {
  return result == BRIM_LAB_BEST && !isnan(exp->best) ? exp->best : exp->last;
}

brim_metric_better brim_lab_better(const brim_lab_set *set, const char *metric_key) {
  for (size_t i = 0; i < set->metric_count; i++) {
    if (strcmp(set->metrics[i].key, metric_key) == 0) return set->metrics[i].better;
  }
  return BRIM_BETTER_NEITHER;
}

const brim_sweep_metric *brim_lab_display(const brim_lab_set *set, const char *metric_key) {
  for (size_t i = 0; i < set->metric_count; i++) {
    const brim_lab_metric *m = &set->metrics[i];
    if (strcmp(m->key, metric_key) == 0) return m->declared ? &m->display : NULL;
  }
  return NULL;
}

const char *brim_lab_value(const brim_lab_set *set, const brim_lab_exp *exp, const char *key) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (strcmp(set->keys[i].name, key) == 0) return exp->values[i];
  }
  for (size_t i = 0; i < set->common_count; i++) {
    if (strcmp(set->common[i].name, key) == 0) return set->common[i].value;
  }
  return NULL;
}

//---------------------------------- groups ----------------------------------

// Orders experiments of one group behind each other, as they were submitted.
typedef struct member {
  const brim_lab_set *set;
  size_t exp;
} member;

static int compare_texts(const char *a, const char *b) {
  // Texts are kept once: the same text is the same pointer.
  if (a == b) return 0;
  if (!a || !b) return a ? 1 : -1;
  return strcmp(a, b);
}

static int compare_groups(const member *x, const member *y) {
  const brim_lab_exp *a = &x->set->exps[x->exp], *b = &y->set->exps[y->exp];
  int order = compare_texts(a->metric_key, b->metric_key);
  for (size_t i = 0; i < x->set->key_count && !order; i++) {
    if (!x->set->keys[i].over) order = compare_texts(a->values[i], b->values[i]);
  }
  return order;
}

static int by_group(const void *a, const void *b) {
  const member *x = a, *y = b;
  const int order = compare_groups(x, y);
  return order ? order : (x->exp > y->exp) - (x->exp < y->exp);
}

static int by_first(const void *a, const void *b) {
  const brim_lab_group *x = a, *y = b;
  return (x->list[0] > y->list[0]) - (x->list[0] < y->list[0]);
}

static brim_status put_label(brim_lab_reader *r, brim_lab_group *g) {
  brim_str text;
  brim_str_init(&text);
  const brim_lab_exp *first = &r->set.exps[g->list[0]];
  for (size_t i = 0; i < r->set.key_count; i++) {
    if (r->set.keys[i].over || !first->values[i]) continue;
    brim_str_printf(&text, "%s%s=%s", text.len ? " " : "", r->set.keys[i].name, first->values[i]);
  }
  brim_status status = brim_str_status(&text);
  if (!status && !(g->label = brim_arena_strdup(r->arena, text.data))) status = no_memory();
  brim_str_deinit(&text);
  return status;
}

static void put_stats(const brim_lab_set *set, brim_lab_group *g, double *values) {
  for (int result = 0; result < BRIM_LAB_RESULT_COUNT; result++) {
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++) {
      const brim_lab_exp *e = &set->exps[g->list[i]];
      if (e->done) values[n++] = brim_lab_exp_result(e, (brim_lab_result)result);
    }
    brim_lab_stats *stats = result == BRIM_LAB_BEST ? &g->best : &g->last;
    g->done = n;
    brim_lab_stats_of(values, n, stats);
    // The interval of a share ends where shares end: Student's t knows no bounds.
    const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
    if (n > 1 && display && display->format == BRIM_METRIC_PERCENT) {
      if (stats->least >= 0) stats->low = fmax(stats->low, 0);
      if (stats->most <= 1) stats->high = fmin(stats->high, 1);
    }
  }
}

// `members` are ordered by group.
static brim_status put_groups(brim_lab_reader *r, const member *members, double *values) {
  brim_lab_set *set = &r->set;
  size_t *list = brim_arena_calloc(r->arena, set->count + 1, sizeof *list);
  brim_lab_group *groups = brim_arena_calloc(r->arena, set->count + 1, sizeof *groups);
  if (!list || !groups) return no_memory();
  for (size_t i = 0; i < set->count; i++) {
    if (i == 0 || compare_groups(&members[i - 1], &members[i]) != 0) {
      groups[set->group_count++] =
          (brim_lab_group){.list = list + i, .metric_key = set->exps[members[i].exp].metric_key};
    }
    list[i] = members[i].exp;
    groups[set->group_count - 1].count++;
  }
  if (set->group_count) qsort(groups, set->group_count, sizeof *groups, by_first);
  for (size_t g = 0; g < set->group_count; g++) {
    for (size_t i = 0; i < groups[g].count; i++) set->exps[groups[g].list[i]].group = g;
    put_stats(set, &groups[g], values);
    BRIM_TRY(put_label(r, &groups[g]));
  }
  set->groups = groups;
  return BRIM_OK;
}

brim_status brim_lab_find_groups(brim_lab_reader *r) {
  const size_t count = r->set.count;
  member *members = brim_calloc(count + 1, sizeof *members);
  double *values = brim_calloc(count + 1, sizeof *values);
  brim_status status = members && values ? BRIM_OK : no_memory();
  for (size_t i = 0; !status && i < count; i++) members[i] = (member){&r->set, i};
  if (!status && count) qsort(members, count, sizeof *members, by_group);
  if (!status) status = put_groups(r, members, values);
  brim_free(members);
  brim_free(values);
  return status;
}

//---------------------------------- the set ----------------------------------

typedef struct ranked {
  brim_lab_metric metric;
  size_t was;
  size_t decides;  // experiments whose metric it is
} ranked;

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->decides != y->decides) return x->decides > y->decides ? -1 : 1;
  const bool left = x->metric.better != BRIM_BETTER_NEITHER;
  const bool right = y->metric.better != BRIM_BETTER_NEITHER;
  if (left != right) return left ? -1 : 1;
  return strcmp(x->metric.key, y->metric.key);
}

static void order_metrics(brim_lab_set *set) {
  ranked list[BRIM_LAB_METRICS];
  size_t now[BRIM_LAB_METRICS];
  for (size_t i = 0; i < set->metric_count; i++) {
    list[i] = (ranked){set->metrics[i], i, 0};
    for (size_t k = 0; k < set->count; k++) {
      list[i].decides += strcmp(set->exps[k].metric_key, set->metrics[i].key) == 0;
    }
  }
  if (set->metric_count) qsort(list, set->metric_count, sizeof *list, by_rank);
  for (size_t i = 0; i < set->metric_count; i++) {
    now[list[i].was] = i;
    set->metrics[i] = list[i].metric;
  }
  for (size_t i = 0; i < set->count; i++) {
    brim_lab_exp *e = &set->exps[i];
    for (size_t k = 0; k < e->curve_count; k++) e->curves[k].metric = now[e->curves[k].metric];
  }
}

brim_status brim_lab_reader_finish(brim_lab_reader *r, const brim_lab_set **out) {
  *out = NULL;
  order_metrics(&r->set);
  BRIM_TRY(brim_lab_find_keys(r));
  BRIM_TRY(brim_lab_find_groups(r));
  *out = &r->set;
  return BRIM_OK;
}
