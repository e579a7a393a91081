// What must hold in the store after a chaos test: one result per experiment, attempts one after the
// other, and the metrics and models of the undisturbed run.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_chaos_int.h"
#include "lab/lab_link.h"
#include "lab/lab_sweep.h"

typedef struct exp_item {
  char id[BRIM_EXP_ID];
  char seed[16];  // "seed=3"
  brim_exp_state state;
  int64_t attempt;
  // By the events.
  int64_t claims, after_done;
  bool claimed, claimed_twice, done;
} exp_item;

typedef struct exp_list {
  exp_item *items;
  size_t count, cap;
  size_t last;  // of an event
} exp_list;

// The word of a label that names the training.
static void seed_of(const char *label, char out[16]) {
  const char *at = strstr(label, "seed=");
  snprintf(out, 16, "%.*s", at ? (int)strcspn(at, " ") : 0, at ? at : "");
}

static brim_status on_exp(void *ctx, const brim_store_exp *exp) {
  exp_list *list = ctx;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 64;
    exp_item *more = brim_realloc(list->items, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
    list->items = more;
    list->cap = cap;
  }
  exp_item *item = &list->items[list->count++];
  *item = (exp_item){.state = exp->state, .attempt = exp->attempt};
  snprintf(item->id, sizeof item->id, "%s", exp->id);
  seed_of(exp->label, item->seed);
  return BRIM_OK;
}

//---------------------------------- attempts ----------------------------------

typedef struct attempt_view {
  int64_t count, ok, open, last_ok, fence, ended;
  int64_t from_step;  // of the one with the result
  char worker[65];    // of it
  bool in_order, apart;
} attempt_view;

static brim_status on_attempt(void *ctx, const brim_store_attempt *a) {
  attempt_view *v = ctx;
  v->count++;
  v->in_order = v->in_order && a->n == v->count && a->fence > v->fence;
  v->apart = v->apart && a->claimed >= v->ended && (a->ended == 0 || a->ended >= a->claimed);
  v->fence = a->fence;
  v->ended = a->ended;
  v->open += a->outcome == BRIM_ATTEMPT_OPEN;
  if (a->outcome == BRIM_ATTEMPT_OK) {
    v->ok++;
    v->last_ok = a->n;
    v->from_step = a->from_step;
    snprintf(v->worker, sizeof v->worker, "%s", a->worker);
  }
  return BRIM_OK;
}

static brim_status check_attempts(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                                  attempt_view *out) {
  attempt_view v = {.in_order = true, .apart = true};
  BRIM_TRY(brim_lab_attempts(link, exp->id, on_attempt, &v));
  c->report->attempts += v.count;
  if (!v.in_order) brim_chaos_violation(c, "attempts of %.12s are not in order", exp->id);
  if (!v.apart) brim_chaos_violation(c, "attempts of %.12s overlap in time", exp->id);
  if (v.open > 0) brim_chaos_violation(c, "an attempt of %.12s has no end", exp->id);
  if (v.ok != 1 || v.last_ok != exp->attempt || v.count != exp->attempt) {
    brim_chaos_violation(c, "experiment %.12s has %lld results in %lld attempts", exp->id,
                         (long long)v.ok, (long long)v.count);
  }
  *out = v;
  return BRIM_OK;
}

//---------------------------------- metrics ----------------------------------

typedef struct metric_row {
  char key[BRIM_METRIC_NAME];
  int64_t step;
  double value;
} metric_row;

typedef struct metric_list {
  metric_row *rows;
  size_t count, cap;
  const attempt_view *by;  // what an attempt before the last wrote behind its first step is stale
  size_t stale;
} metric_list;

static bool is_time(const char *key) {
  return brim_str_ends(key, "_s") || brim_str_ends(key, "_ms") || strcmp(key, "seconds") == 0;
}

static brim_status on_metric(void *ctx, const brim_store_metric *row, int64_t attempt) {
  metric_list *list = ctx;
  if (list->by && attempt != list->by->last_ok) {
    list->stale += attempt > list->by->last_ok || row->step > list->by->from_step;
  }
  if (is_time(row->key)) return BRIM_OK;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 256;
    metric_row *more = brim_realloc(list->rows, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
    list->rows = more;
    list->cap = cap;
  }
  metric_row *to = &list->rows[list->count++];
  *to = (metric_row){.step = row->step, .value = row->value};
  snprintf(to->key, sizeof to->key, "%s", row->key);
  return BRIM_OK;
}

static bool same_value(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void compare_metrics(brim_chaos *c, const exp_item *exp, const metric_list *a,
                            const metric_list *b) {
  if (a->count != b->count || a->count == 0) {
    brim_chaos_violation(c, "experiment %.12s has %zu metric rows, undisturbed %zu", exp->id,
                         a->count, b->count);
    return;
  }
  for (size_t i = 0; i < a->count; i++) {
    const metric_row *x = &a->rows[i], *y = &b->rows[i];
    if (strcmp(x->key, y->key) == 0 && x->step == y->step && same_value(x->value, y->value)) {
      continue;
    }
    brim_chaos_violation(c, "experiment %.12s: %s at step %lld is %.17g, undisturbed %.17g",
                         exp->id, x->key, (long long)x->step, x->value, y->value);
    return;
  }
}

static brim_status check_metrics(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                                 brim_lab_link *reference, const exp_item *twin,
                                 const attempt_view *by) {
  metric_list a = {.by = by}, b = {0};
  brim_status status = brim_lab_read_metrics(link, exp->id, NULL, 0, on_metric, &a);
  if (!status) {
    status = brim_lab_read_metrics(reference, twin->id, NULL, 0, on_metric, &b);
  }
  if (!status) compare_metrics(c, exp, &a, &b);
  if (!status && a.stale > 0) {
    brim_chaos_violation(c, "experiment %.12s has %zu metric rows of a stale attempt", exp->id,
                         a.stale);
  }
  brim_free(a.rows);
  brim_free(b.rows);
  return status;
}

//---------------------------------- files ----------------------------------

static brim_status read_of(const char *folder, const exp_item *exp, const char *name, char **out,
                           size_t *size) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, exp->id, &path);
  brim_str_printf(&path, "/%s", name);
  if (!status) status = brim_str_status(&path);
  if (!status) status = brim_fs_read(path.data, 0, out, size);
  brim_str_deinit(&path);
  return status;
}

// The folder that has the files of an attempt: the sweep's, or that of a worker, whose name ends with the
// hash of its folder's path.
static void folder_of(const brim_chaos *c, const char *worker, char *out, size_t size) {
  char hex[BRIM_SHA256_HEX];
  const char *hash = strrchr(worker, '-');
  for (int i = 1; i <= c->options->workers; i++) {
    brim_chaos_worker_folder(c, i, out, size);
    brim_sha256_hex(out, strlen(out), hex);
    if (hash && strncmp(hash + 1, hex, strlen(hash + 1)) == 0) return;
  }
  snprintf(out, size, "%s", c->folder);
}

// The model and the last checkpoint are those of the undisturbed run, bit for bit.
static brim_status check_files(brim_chaos *c, const exp_item *exp, const exp_item *twin,
                               const attempt_view *by) {
  static const char *const names[] = {"model.safetensors", "last.safetensors"};
  char folder[1200];
  folder_of(c, by->worker, folder, sizeof folder);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *a = NULL, *b = NULL;
    size_t a_size = 0, b_size = 0;
    brim_status status = read_of(c->reference, twin, names[i], &b, &b_size);
    bool got = !status && !read_of(folder, exp, names[i], &a, &a_size);
    if (!status && !got) {
      brim_chaos_violation(c, "experiment %.12s has no %s: %.200s", exp->id, names[i],
                           brim_status_detail());
    } else if (!status && (a_size != b_size || memcmp(a, b, a_size) != 0)) {
      brim_chaos_violation(c, "%s of experiment %.12s differs from the undisturbed one", names[i],
                           exp->id);
    }
    brim_free(a);
    brim_free(b);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

//---------------------------------- events ----------------------------------

// In the order of the events: attempts of an experiment begin one after the other, and nothing comes after
// its result.
static brim_status on_event(void *ctx, const brim_store_event *event) {
  exp_list *list = ctx;
  if (!event->exp[0]) return BRIM_OK;
  size_t i = list->last;
  while (i < list->count && strcmp(list->items[i].id, event->exp) != 0) i++;
  for (size_t k = 0; i == list->count && k < list->last; k++) {
    if (strcmp(list->items[k].id, event->exp) == 0) i = k;
  }
  if (i == list->count) return BRIM_OK;
  exp_item *exp = &list->items[i];
  list->last = i;
  if (exp->done) exp->after_done++;
  if (strcmp(event->kind, "done") == 0) exp->done = true;
  if (strcmp(event->kind, "claimed") == 0) {
    exp->claims++;
    exp->claimed_twice = exp->claimed_twice || exp->claimed;
    exp->claimed = true;
  } else if (strcmp(event->kind, "adopted") == 0) {
    exp->claimed = true;
  } else if (strcmp(event->kind, "started") != 0) {
    exp->claimed = false;  // however the attempt ended
  }
  return BRIM_OK;
}

static void check_events(brim_chaos *c, const exp_item *exp) {
  if (exp->after_done > 0) {
    brim_chaos_violation(c, "experiment %.12s changed after its result", exp->id);
  }
  if (exp->claimed_twice) {
    brim_chaos_violation(c, "experiment %.12s was claimed while an attempt had it", exp->id);
  }
  if (exp->claims != exp->attempt) {
    brim_chaos_violation(c, "experiment %.12s was claimed %lld times for %lld attempts", exp->id,
                         (long long)exp->claims, (long long)exp->attempt);
  }
}

//---------------------------------- all ----------------------------------

static brim_status check_one(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                             brim_lab_link *reference, const exp_list *undisturbed) {
  if (exp->state != BRIM_EXP_DONE) {
    brim_chaos_violation(c, "experiment %.12s is %s, not done", exp->id,
                         brim_exp_state_name(exp->state));
    return BRIM_OK;
  }
  attempt_view by;
  check_events(c, exp);
  BRIM_TRY(check_attempts(c, link, exp, &by));
  size_t twin = 0;
  while (twin < undisturbed->count && strcmp(undisturbed->items[twin].seed, exp->seed) != 0) {
    twin++;
  }
  if (twin == undisturbed->count) {
    return brim_fail(BRIM_EINTERNAL, "the undisturbed run has no '%s'", exp->seed);
  }
  BRIM_TRY(check_metrics(c, link, exp, reference, &undisturbed->items[twin], &by));
  return check_files(c, exp, &undisturbed->items[twin], &by);
}

static brim_status check_all(brim_chaos *c, brim_lab_link *link, brim_lab_link *reference) {
  exp_list all = {0}, undisturbed = {0};
  brim_status status = brim_lab_list(link, NULL, on_exp, &all);
  if (!status) status = brim_lab_events(link, 0, 0, on_event, &all);
  if (!status) status = brim_lab_list(reference, NULL, on_exp, &undisturbed);
  c->report->experiments = (int64_t)all.count;
  for (size_t i = 0; i < all.count && !status; i++) {
    status = check_one(c, link, &all.items[i], reference, &undisturbed);
  }
  brim_free(all.items);
  brim_free(undisturbed.items);
  return status;
}

// A database may be someone's own: the sweeps of the test would run what it has queued.
brim_status brim_chaos_check_empty(const char *store) {
  brim_lab_link *link = NULL;
  brim_store_counts counts = {0};
  brim_status status = brim_lab_link_open(store, NULL, &link);
  if (!status) status = brim_lab_count(link, NULL, &counts);
  brim_lab_link_close(link);
  if (status || counts.total == 0) return status;
  return brim_fail(BRIM_EEXIST, "the store has %lld experiments; the chaos test needs an empty one",
                   (long long)counts.total);
}

brim_status brim_chaos_check(brim_chaos *c) {
  const brim_lab_link_options how = {.readonly = true};
  brim_lab_link *link = NULL, *undisturbed = NULL;
  brim_status status = brim_lab_link_open(c->store, &how, &link);
  if (!status) status = brim_lab_link_open(c->reference, &how, &undisturbed);
  if (!status) status = check_all(c, link, undisturbed);
  brim_lab_link_close(undisturbed);
  brim_lab_link_close(link);
  return status;
}
