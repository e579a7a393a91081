// Two sets of experiments side by side, or the groups of one: which settings have a partner, how far
// their results are apart, and whether that is more than repetitions differ.
#include <math.h>
#include <string.h>

#include "base/base_stats.h"
#include "record/record_lab_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while comparing experiments");
}

const char *brim_lab_verdict_name(brim_lab_verdict verdict) {
  static const char *const names[BRIM_LAB_VERDICT_COUNT] = {
      [BRIM_LAB_UNKNOWN] = "unknown",     [BRIM_LAB_ONCE] = "once",
      [BRIM_LAB_BETTER] = "better",       [BRIM_LAB_WORSE] = "worse",
      [BRIM_LAB_OPEN] = "open",           [BRIM_LAB_A_MISSING] = "a_missing",
      [BRIM_LAB_B_MISSING] = "b_missing", [BRIM_LAB_BOTH_MISSING] = "both_missing"};
  return (unsigned)verdict < BRIM_LAB_VERDICT_COUNT ? names[verdict] : "unknown";
}

//---------------------------------- differences ----------------------------------

static brim_lab_verdict decide(double low, double high, brim_metric_better better) {
  if (low <= 0 && high >= 0) return BRIM_LAB_OPEN;
  if (better == BRIM_BETTER_NEITHER) return BRIM_LAB_UNKNOWN;
  return (low > 0) == (better == BRIM_BETTER_HIGHER) ? BRIM_LAB_BETTER : BRIM_LAB_WORSE;
}

// Student's t of degrees of freedom that need not be whole: between two whole ones by 1 / df.
static double t_between(double df) {
  const double below = fmax(1, floor(df)), above = below + 1;
  const double share = (1 / fmax(1, df) - 1 / above) / (1 / below - 1 / above);
  return brim_stats_t95(above) + share * (brim_stats_t95(below) - brim_stats_t95(above));
}

// Welch: the two sides may spread differently.
static double half_width(const brim_lab_stats *a, const brim_lab_stats *b) {
  const double va = a->stddev * a->stddev / (double)a->n;
  const double vb = b->stddev * b->stddev / (double)b->n;
  if (!(va + vb > 0)) return 0;
  const double df =
      (va + vb) * (va + vb) / (va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1));
  return t_between(df) * sqrt(va + vb);
}

brim_lab_verdict brim_lab_differ(const brim_lab_stats *a, const brim_lab_stats *b,
                                 brim_metric_better better, brim_lab_difference *out) {
  *out = (brim_lab_difference){(double)NAN, (double)NAN, (double)NAN};
  if (a->n == 0 || b->n == 0) {
    return a->n > 0 ? BRIM_LAB_B_MISSING : b->n > 0 ? BRIM_LAB_A_MISSING : BRIM_LAB_BOTH_MISSING;
  }
  out->mean = b->mean - a->mean;
  if (a->n < 2 || b->n < 2) return BRIM_LAB_ONCE;
  const double half = half_width(a, b);
  out->low = out->mean - half;
  out->high = out->mean + half;
  return decide(out->low, out->high, better);
}

static void measure(brim_lab_match *m, brim_lab_result result, brim_metric_better better) {
  m->a_stats = *brim_lab_group_stats(m->a, result);
  m->b_stats = *brim_lab_group_stats(m->b, result);
  m->metric_key = m->a->metric_key;
  m->verdict = brim_lab_differ(&m->a_stats, &m->b_stats, better, &m->difference);
}

// Half the 95 % interval of the mean difference by the repetitions; NaN where a point has too few.
static double half_width_within(const brim_lab_comparison *c) {
  double sum = 0, freedom = 0, points = 0;
  for (size_t i = 0; i < c->count; i++) {
    const brim_lab_match *m = &c->matches[i];
    if (isnan(m->difference.mean)) continue;
    if (m->a_stats.n < 2 || m->b_stats.n < 2) return (double)NAN;
    const double na = (double)m->a_stats.n, nb = (double)m->b_stats.n;
    const double va = m->a_stats.stddev * m->a_stats.stddev / na;
    const double vb = m->b_stats.stddev * m->b_stats.stddev / nb;
    sum += va + vb;
    freedom += va * va / (na - 1) + vb * vb / (nb - 1);
    points++;
  }
  if (!(freedom > 0)) return (double)NAN;
  return t_between(sum * sum / freedom) * sqrt(sum) / points;
}

// Over the points: each is one difference, whatever the number of repetitions behind it. A few
// differences agree by chance too, so the interval is never narrower than the repetitions allow.
static brim_status measure_all(brim_lab_comparison *c, brim_metric_better better) {
  double *list = brim_calloc(c->count + 1, sizeof *list);
  if (!list) return no_memory();
  bool same = true;
  for (size_t i = 0; i < c->count; i++) {
    list[i] = c->matches[i].difference.mean;
    same = same && strcmp(c->matches[i].metric_key, c->matches[0].metric_key) == 0;
  }
  brim_lab_stats_of(list, same && !c->several ? c->count : 0, &c->overall);
  brim_free(list);
  const double within = half_width_within(c);
  if (c->overall.n >= 2 && within > c->overall.high - c->overall.mean) {
    c->overall.low = c->overall.mean - within;
    c->overall.high = c->overall.mean + within;
  }
  c->verdict = c->overall.n == 0  ? BRIM_LAB_BOTH_MISSING
               : c->overall.n < 2 ? BRIM_LAB_ONCE
                                  : decide(c->overall.low, c->overall.high, better);
  return BRIM_OK;
}

//---------------------------------- partners ----------------------------------

// The settings that partners have in common.
typedef struct keys {
  const char *names[2 * BRIM_LAB_KEYS];
  size_t count;
} keys;

static void add_keys(keys *k, const brim_lab_set *set, const char *but) {
  for (size_t i = 0; i < set->key_count; i++) {
    bool known = set->keys[i].over || (but && strcmp(set->keys[i].name, but) == 0);
    for (size_t j = 0; j < k->count && !known; j++) {
      known = strcmp(k->names[j], set->keys[i].name) == 0;
    }
    if (!known) k->names[k->count++] = set->keys[i].name;
  }
}

static const char *value_of(const brim_lab_set *set, const brim_lab_group *g, const char *key) {
  return brim_lab_value(set, &set->exps[g->list[0]], key);
}

// The metric and the values of all keys as one text, each behind its length.
static brim_status signature(const keys *k, const brim_lab_set *set, const brim_lab_group *g,
                             brim_str *out) {
  brim_str_clear(out);
  brim_str_printf(out, "%zu %s", strlen(g->metric_key), g->metric_key);
  for (size_t i = 0; i < k->count; i++) {
    const char *value = value_of(set, g, k->names[i]);
    if (value) brim_str_printf(out, "%zu %s", strlen(value), value);
    if (!value) brim_str_append(out, "-");
  }
  return brim_str_status(out);
}

// Groups by their signatures: texts numbered as they come, and the first group of each number.
typedef struct group_index {
  brim_arena *arena;
  brim_lab_texts texts;
  const brim_lab_group **groups;
  brim_str text;
} group_index;

// `count`: groups that are added or looked for.
static brim_status index_open(group_index *x, size_t count) {
  *x = (group_index){0};
  brim_str_init(&x->text);
  x->groups = brim_calloc(count + 1, sizeof *x->groups);
  if (!x->groups) return no_memory();
  return brim_arena_create(0, &x->arena);
}

static void index_close(group_index *x) {
  brim_lab_texts_deinit(&x->texts);
  brim_arena_destroy(x->arena);
  brim_str_deinit(&x->text);
  brim_free(x->groups);
}

static brim_status index_add(group_index *x, const keys *k, const brim_lab_set *set,
                             const brim_lab_group *g) {
  BRIM_TRY(signature(k, set, g, &x->text));
  const uint32_t number = brim_lab_text(&x->texts, x->arena, x->text.data, x->text.len);
  if (number == BRIM_LAB_NONE) return no_memory();
  if (!x->groups[number]) x->groups[number] = g;
  return BRIM_OK;
}

// The partner of a group; *out NULL = it has none.
static brim_status index_find(group_index *x, const keys *k, const brim_lab_set *set,
                              const brim_lab_group *g, const brim_lab_group **out) {
  BRIM_TRY(signature(k, set, g, &x->text));
  const uint32_t number = brim_lab_text(&x->texts, x->arena, x->text.data, x->text.len);
  if (number == BRIM_LAB_NONE) return no_memory();
  *out = x->groups[number];
  return BRIM_OK;
}

//---------------------------------- matching ----------------------------------

typedef struct matching {
  const brim_lab_set *a, *b;
  brim_lab_result result;
  keys keys;
  group_index index;  // of A's groups
  brim_lab_comparison *out;
  brim_metric_better better;
} matching;

static brim_status open_matching(matching *m) {
  *m->out = (brim_lab_comparison){0};
  BRIM_TRY(index_open(&m->index, m->a->group_count + m->b->group_count));
  m->out->matches = brim_calloc(m->b->group_count + 1, sizeof *m->out->matches);
  return m->out->matches ? BRIM_OK : no_memory();
}

static brim_status match(matching *m, const brim_lab_group *b) {
  const brim_lab_group *a = NULL;
  BRIM_TRY(index_find(&m->index, &m->keys, m->b, b, &a));
  m->out->only_b += !a;
  if (!a) return BRIM_OK;
  brim_lab_match *pair = &m->out->matches[m->out->count++];
  *pair = (brim_lab_match){.a = a, .b = b, .label = b->label[0] ? b->label : a->label};
  m->better = brim_lab_better(m->b, b->metric_key);
  measure(pair, m->result, m->better);
  return BRIM_OK;
}

static brim_status close_matching(matching *m, brim_status status) {
  index_close(&m->index);
  if (!status) status = measure_all(m->out, m->better);
  if (status) brim_lab_comparison_deinit(m->out);
  return status;
}

brim_status brim_lab_compare(const brim_lab_set *a, const brim_lab_set *b, brim_lab_result result,
                             brim_lab_comparison *out) {
  matching m = {.a = a, .b = b, .result = result, .out = out};
  add_keys(&m.keys, a, NULL);
  add_keys(&m.keys, b, NULL);
  brim_status status = open_matching(&m);
  for (size_t i = 0; i < a->group_count && !status; i++) {
    status = index_add(&m.index, &m.keys, a, &a->groups[i]);
  }
  for (size_t i = 0; i < b->group_count && !status; i++) status = match(&m, &b->groups[i]);
  if (!status && out->count == 0) {
    status = brim_fail(BRIM_EINVAL, "the two stores have no setting in common");
  }
  out->only_a = a->group_count - out->count;
  return close_matching(&m, status);
}

static const brim_lab_key *find_key(const brim_lab_set *set, const char *name) {
  const brim_lab_key *found = NULL;
  const size_t n = strlen(name);
  for (size_t i = 0; i < set->key_count; i++) {
    const char *full = set->keys[i].name;
    if (strcmp(full, name) == 0) return &set->keys[i];
    // "batch_size" is data.batch_size
    const size_t length = strlen(full);
    if (length > n && full[length - n - 1] == '.' && strcmp(full + length - n, name) == 0) {
      found = &set->keys[i];
    }
  }
  return found;
}

static brim_status unknown_key(const brim_lab_set *set, const char *key) {
  brim_str all;
  brim_str_init(&all);
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over) continue;
    brim_str_printf(&all, "%s%s", all.len ? ", " : "", set->keys[i].name);
  }
  brim_status status =
      brim_fail(BRIM_EINVAL, "the experiments do not differ in '%.60s'; they differ in %.300s", key,
                all.len ? all.data : "-");
  brim_str_deinit(&all);
  return status;
}

brim_status brim_lab_compare_by(const brim_lab_set *set, const char *name, brim_lab_result result,
                                brim_lab_comparison *out) {
  const brim_lab_key *key = find_key(set, name);
  *out = (brim_lab_comparison){0};
  if (!key || key->over) return unknown_key(set, name);
  matching m = {.a = set, .b = set, .result = result, .out = out};
  add_keys(&m.keys, set, key->name);
  const char *base = value_of(set, &set->groups[0], key->name), *other = NULL;
  brim_status status = open_matching(&m);
  for (int b = 0; b < 2; b++) {  // first those with the first value, then the others
    for (size_t i = 0; i < set->group_count && !status; i++) {
      const brim_lab_group *g = &set->groups[i];
      const bool is_base = value_of(set, g, key->name) == base;  // texts are kept once
      if (is_base && !b) status = index_add(&m.index, &m.keys, set, g);
      if (is_base || !b) continue;
      const char *value = value_of(set, g, key->name);
      out->several = out->several || (other && value != other);
      other = value;
      status = match(&m, g);
    }
  }
  if (!status && out->count == 0) {
    status = brim_fail(BRIM_EINVAL, "no two groups of experiments differ in %s alone", key->name);
  }
  return close_matching(&m, status);
}

void brim_lab_comparison_deinit(brim_lab_comparison *comparison) {
  brim_free(comparison->matches);
  *comparison = (brim_lab_comparison){0};
}
