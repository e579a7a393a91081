// Data that the store keeps for a pool: curves in coarse steps, files, findings, tokens and authors.
#include "store_test.h"

#include <math.h>

enum { MOST = 20000 };

typedef struct read_back {
  brim_store_bucket buckets[MOST];
  int count;
} read_back;

static brim_status keep(void *ctx, const brim_store_bucket *b) {
  read_back *r = ctx;
  assert_true(r->count < MOST);
  r->buckets[r->count++] = *b;
  return BRIM_OK;
}

static read_back *curve(const char *exp, const char *key, int64_t first, int64_t last,
                        int64_t points) {
  static read_back r;
  const brim_store_range range = {first, last, points};
  r.count = 0;
  assert_ok(brim_store_read_curve(store, exp, key, &range, keep, &r));
  return &r;
}

static double wave(int64_t step) { return sin((double)step * 0.01) + (double)(step % 7); }

// The same, computed from the values themselves.
static void check(const read_back *r, int64_t first, int64_t last, int64_t every) {
  int64_t covered = first - first % every;
  if (covered < first) covered += every;
  for (int i = 0; i < r->count; i++) {
    const brim_store_bucket *b = &r->buckets[i];
    double lo = INFINITY, hi = -INFINITY, sum = 0;
    int64_t n = 0;
    assert_true(b->first <= covered && b->last >= covered);
    for (int64_t s = covered; s <= b->last && s <= last; s += every, covered = s) {
      lo = fmin(lo, wave(s));
      hi = fmax(hi, wave(s));
      sum += wave(s);
      n++;
    }
    assert_int_equal(b->n, n);
    assert_true(b->lo == lo && b->hi == hi);
    assert_true(fabs(b->mean - sum / (double)n) < 1e-9);
  }
  assert_true(covered > last);
}

static void write_curve(const brim_store_ref *ref, const char *key, int64_t count, int64_t every,
                        int64_t *seq) {
  brim_store_metric rows[500];
  for (int64_t i = 0; i < count;) {
    size_t n = 0;
    for (; n < 500 && i < count; n++, i++)
      rows[n] = (brim_store_metric){key, i * every, wave(i * every)};
    assert_ok(brim_store_metrics(store, ref, ++*seq, rows, n));
  }
}

static void test_curves(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  int64_t seq = 0;
  write_curve(&ref, "dense", 20000, 1, &seq);
  write_curve(&ref, "sparse", 400, 50, &seq);
  read_back *r = curve(ref.exp, "dense", 0, 0, 10000);  // 32 rows for each point: the values
  assert_int_equal(r->count, 10000);
  check(r, 0, 19999, 1);
  r = curve(ref.exp, "dense", 0, 0, 100);  // the first level, merged
  assert_true(r->count <= 100 && r->count > 50);
  check(r, 0, 19999, 1);
  r = curve(ref.exp, "dense", 0, 0, 5);
  assert_true(r->count <= 5 && r->count > 0);
  check(r, 0, 19999, 1);
  r = curve(ref.exp, "dense", 6400, 12799, 100);  // a part of it, as for zooming in
  assert_true(r->count <= 100 && r->count > 50);
  check(r, 6400, 12799, 1);
  r = curve(ref.exp, "sparse", 0, 0, 1000);
  assert_int_equal(r->count, 400);
  check(r, 0, 19950, 50);
  r = curve(ref.exp, "none", 0, 0, 10);
  assert_int_equal(r->count, 0);
  const brim_store_range wrong[] = {{0, 0, 0}, {0, 0, BRIM_STORE_POINTS + 1}, {-1, 0, 5}};
  for (int i = 0; i < 3; i++) {
    assert_status(brim_store_read_curve(store, ref.exp, "dense", &wrong[i], keep, r), BRIM_EINVAL);
  }
}

// The smallest and the largest of many values, wherever they are, and the first step of equal ones.
static void test_best(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  static const int64_t at[] = {0, 63, 64, 4095, 4096, 19999, 400000, 9000000};
  brim_store_best_value best;
  int64_t seq = 0;
  write_curve(&ref, "loss", 20000, 1, &seq);
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    const double far = 1e6 + (double)i;
    const brim_store_metric rows[] = {{"loss", at[i], far}, {"loss", at[i] + 20000000, far}};
    assert_ok(brim_store_metrics(store, &ref, ++seq, rows, 2));
    assert_ok(brim_store_best(store, ref.exp, "loss", false, &best));
    assert_true(best.value == far && best.step == at[i]);
    const brim_store_metric low[] = {{"loss", at[i], -far}, {"loss", at[i] + 20000000, -far}};
    assert_ok(brim_store_metrics(store, &ref, ++seq, low, 2));
    assert_ok(brim_store_best(store, ref.exp, "loss", true, &best));
    assert_true(best.value == -far && best.step == at[i]);
  }
  assert_ok(brim_store_best(store, ref.exp, "none", true, &best));
  assert_true(isnan(best.value) && best.step == -1);
}

// A value that replaces another replaces it in the bounds too, and NaN is counted separately.
static void test_replaced_values(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_metric rows[200];
  for (int i = 0; i < 200; i++) rows[i] = (brim_store_metric){"loss", i, i == 70 ? 1000 : 1};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, 200));
  read_back *r = curve(ref.exp, "loss", 0, 0, 1);
  assert_int_equal(r->count, 1);
  assert_true(r->buckets[0].hi == 1000);
  const brim_store_metric again[] = {
      {"loss", 70, 2}, {"loss", 71, (double)NAN}, {"loss", -1, 50}, {"acc", 0, (double)NAN}};
  assert_ok(brim_store_metrics(store, &ref, 2, again, 4));
  r = curve(ref.exp, "loss", 0, 0, 1);
  assert_true(r->buckets[0].hi == 2 && r->buckets[0].lo == 1);
  assert_int_equal(r->buckets[0].n, 199);
  assert_int_equal(r->buckets[0].bad, 1);
  r = curve(ref.exp, "acc", 0, 0, 1);
  assert_int_equal(r->count, 1);
  assert_true(isnan(r->buckets[0].mean) && isnan(r->buckets[0].lo));
}

// A retried attempt may end earlier than the attempt it replaces. The values beyond its end are removed from the coarse
// levels too.
static void test_discarded_values(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref first = lab_run(store, 1);
  int64_t seq = 0;
  write_curve(&first, "loss", 10000, 1, &seq);
  lab_finish(store, &first, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_INFRASTRUCTURE);
  lab_clock_ms += 64 * LAB_BACKOFF_MS;
  brim_store_ref second = lab_run(store, 1);
  seq = 0;
  write_curve(&second, "loss", 5000, 1, &seq);
  assert_int_equal(lab_finish(store, &second, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  for (int64_t points = 1; points <= 10000; points *= 10) {
    read_back *r = curve(first.exp, "loss", 0, 0, points);
    assert_true(r->count > 0);
    check(r, 0, 4999, 1);
  }
}

static brim_status last_file(void *ctx, const brim_store_file *f) {
  snprintf(ctx, 256, "%s %.4s %lld step %lld of attempt %lld", f->name, f->sha256,
           (long long)f->size, (long long)f->step, (long long)f->attempt);
  return BRIM_OK;
}

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHA3 "7123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHA2 "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_files_and_findings(void **state) {
  (void)state;
  char text[256] = "";
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1), stale = ref;
  brim_store_file file = {.name = "last.safetensors", .sha256 = SHA, .size = 10, .step = 5};
  assert_ok(brim_store_put_file(store, &ref, &file));
  assert_ok(brim_store_put_file(store, &ref, &file));
  file.sha256 = SHA2;
  file.step = 9;
  assert_ok(brim_store_put_file(store, &ref, &file));
  assert_ok(brim_store_files(store, ref.exp, last_file, text));
  assert_string_equal(text, "last.safetensors f123 10 step 9 of attempt 1");
  assert_ok(brim_store_findings(store, &ref, "[{\"code\": \"io_wait\"}]"));
  stale.fence--;
  assert_status(brim_store_put_file(store, &stale, &file), BRIM_ESTATE);
  assert_status(brim_store_findings(store, &stale, "[]"), BRIM_ESTATE);
  file.sha256 = "0123";
  assert_status(brim_store_put_file(store, &ref, &file), BRIM_EINVAL);
  brim_store_exp *exp;
  assert_ok(brim_store_get(store, ref.exp, &exp));
  assert_string_equal(exp->findings, "[{\"code\": \"io_wait\"}]");
  brim_store_exp_free(exp);
}

static brim_status put_token(void *ctx, const brim_store_token *t) {
  brim_str_printf(ctx, "%s %s %.1s;", t->id, t->role, t->sha256);
  return BRIM_OK;
}

static void has_tokens(const char *expected) {
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_store_tokens(store, put_token, &text));
  assert_string_equal(text.data, expected);
  brim_str_deinit(&text);
}

static brim_status last_event(void *ctx, const brim_store_event *e) {
  snprintf(ctx, 256, "%s %s by %s", e->kind, e->text, e->who);
  return BRIM_OK;
}

static void test_tokens(void **state) {
  (void)state;
  char event[256] = "";
  brim_store_token lab = {.id = "lab", .role = "worker", .sha256 = SHA};
  brim_store_token me = {.id = "kim", .role = "admin", .sha256 = SHA2};
  assert_ok(brim_store_token_add(store, &lab));
  assert_status(brim_store_token_add(store, &lab), BRIM_EEXIST);
  brim_store_set_author(store, "kim");
  assert_ok(brim_store_token_add(store, &me));
  has_tokens("kim admin f;lab worker 0;");
  assert_ok(brim_store_token_end(store, "lab"));
  has_tokens("kim admin f;");
  assert_status(brim_store_token_end(store, "lab"), BRIM_ENOENT);
  assert_status(brim_store_token_rotate(store, "lab", SHA), BRIM_ENOENT);
  assert_ok(brim_store_token_rotate(store, "kim", SHA3));
  has_tokens("kim admin 7;");
  assert_ok(brim_store_events(store, 0, 0, last_event, event));
  assert_string_equal(event, "token rotated kim by kim");
  lab.sha256 = SHA2;
  assert_ok(brim_store_token_add(store, &lab));  // the name can be used again
  has_tokens("kim admin 7;lab worker f;");
  lab.sha256 = "secret";
  assert_status(brim_store_token_add(store, &lab), BRIM_EINVAL);
}

static brim_status put_worker(void *ctx, const brim_store_worker *w) {
  brim_str_printf(ctx, "%s %s %s;", w->id, w->host, w->status);
  return BRIM_OK;
}

static void test_worker_status(void **state) {
  (void)state;
  brim_store_worker w = {.id = "w1", .host = "h", .status = "{\"gpus\": []}"};
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_store_worker_seen(store, &w));
  w.status = NULL;
  assert_ok(brim_store_worker_seen(store, &w));
  assert_ok(brim_store_workers(store, put_worker, &text));
  assert_string_equal(text.data, "w1 h {\"gpus\": []};");
  brim_str_deinit(&text);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_best),
      TEST(test_curves),
      TEST(test_discarded_values),
      TEST(test_replaced_values),
      TEST(test_files_and_findings),
      TEST(test_tokens),
      TEST(test_worker_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
