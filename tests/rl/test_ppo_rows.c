// The rows of minibatches: each epoch visits every row once, in its own order, however it is cut.
#include "ppo_test.h"

static void take_rows(ppo_place *p, uint64_t seed, uint64_t clock, int32_t epoch, int32_t total,
                      int32_t piece, int32_t *out) {
  uint64_t *when = ppo_give(p, &clock, sizeof clock);
  for (int32_t first = 0; first < total; first += piece) {
    const int32_t count = total - first < piece ? total - first : piece;
    int32_t *rows = ppo_give(p, NULL, (size_t)count * sizeof *rows);
    brim_ppo_rows work = {.seed = seed,
                          .clock = when,
                          .epoch = epoch,
                          .total = total,
                          .first = first,
                          .count = count,
                          .rows = rows};
    assert_ok(p->table->rows(&p->where, &work));
    ppo_take(p, out + first, rows, (size_t)count * sizeof *rows);
  }
  ppo_clear(p);
}

static void test_every_row_once(void **state) {
  static const int32_t totals[] = {1, 2, 3, 4, 5, 7, 16, 17, 31, 64, 97, 255, 1000, 4097, 65536};
  EACH_PPO_PLACE(p) {
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
      const int32_t n = totals[i];
      int32_t *rows = malloc((size_t)n * sizeof *rows);
      char *seen = calloc((size_t)n, 1);
      assert_true(rows && seen);
      take_rows(p, 11, 640, 2, n, n, rows);
      for (int32_t r = 0; r < n; r++) {
        assert_in_range(rows[r], 0, n - 1);
        assert_int_equal(seen[rows[r]]++, 0);
      }
      free(rows);
      free(seen);
    }
  }
}

static int32_t same_places(const int32_t *a, const int32_t *b, int32_t n) {
  int32_t same = 0;
  for (int32_t i = 0; i < n; i++) same += a[i] == b[i];
  return same;
}

static void test_orders_differ(void **state) {
  enum { N = 1009 };
  int32_t first[N], other[N], sorted[N];
  for (int32_t i = 0; i < N; i++) sorted[i] = i;
  EACH_PPO_PLACE(p) {
    take_rows(p, 11, 640, 0, N, N, first);
    assert_true(same_places(first, sorted, N) < 20);
    take_rows(p, 11, 640, 1, N, N, other);  // the next epoch
    assert_true(same_places(first, other, N) < 20);
    take_rows(p, 11, 641, 0, N, N, other);  // the next iteration
    assert_true(same_places(first, other, N) < 20);
    take_rows(p, 12, 640, 0, N, N, other);  // another seed
    assert_true(same_places(first, other, N) < 20);
    take_rows(p, 11, 640, 0, N, N, other);
    assert_memory_equal(first, other, sizeof first);
  }
}

static void test_pieces_do_not_matter(void **state) {
  enum { N = 1013 };
  int32_t whole[N], pieces[N];
  take_rows(&((ppo_places *)*state)->at[0], 3, 99, 4, N, N, whole);
  EACH_PPO_PLACE(p) {
    take_rows(p, 3, 99, 4, N, 100, pieces);
    assert_memory_equal(whole, pieces, sizeof whole);
  }
}

static void test_ranges_are_checked(void **state) {
  uint64_t clock = 0;
  EACH_PPO_PLACE(p) {
    brim_ppo_rows good = {.clock = &clock, .total = 10, .first = 4, .count = 6}, bad = good;
    bad.count = 7;
    assert_status(p->table->rows(&p->where, &bad), BRIM_EINVAL);
    bad = good;
    bad.total = 0;
    assert_status(p->table->rows(&p->where, &bad), BRIM_EINVAL);
    bad = good;
    bad.epoch = BRIM_PPO_MAX_EPOCHS;
    assert_status(p->table->rows(&p->where, &bad), BRIM_EINVAL);
    bad = good;
    bad.first = -1;
    assert_status(p->table->rows(&p->where, &bad), BRIM_EINVAL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row_once),
      cmocka_unit_test(test_orders_differ),
      cmocka_unit_test(test_pieces_do_not_matter),
      cmocka_unit_test(test_ranges_are_checked),
  };
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
