// Actions drawn from an actor's outputs: frequencies, actions that are never drawn, log probabilities, bad rows; and
// the exponential and logarithm below them.
#include "ppo_test.h"

typedef struct drawn {
  int32_t *action;
  float *logp;
  int64_t bad;
} drawn;

typedef struct question {
  brim_dtype type;
  int64_t rows, width;
  int32_t act;
  const float *outputs;  // (rows, width)
  const uint64_t *mask;
  uint64_t seed, stream, clock;
  int32_t t, best;
  int64_t piece;  // rows of a call; 0 = all
} question;

static drawn draw(ppo_place *p, const question *q) {
  const int64_t piece = q->piece ? q->piece : q->rows;
  drawn d = {.action = malloc((size_t)q->rows * sizeof(int32_t)),
             .logp = malloc((size_t)q->rows * sizeof(float))};
  assert_true(d.action && d.logp);
  const brim_ppo_shape shape = {
      .steps = 1, .envs = (int32_t)q->rows, .agents = 1, .act = q->act, .rewards = 1};
  for (int64_t first = 0; first < q->rows; first += piece) {
    const int64_t rows = q->rows - first < piece ? q->rows - first : piece;
    const int64_t none = 0;
    brim_ppo_sample w = {
        .outputs = ppo_give_tensor(p, q->type, rows, q->width, q->outputs + first * q->width),
        .rows = rows,
        .first = first,
        .mask = q->mask ? ppo_give(p, q->mask + first, (size_t)rows * sizeof *q->mask) : NULL,
        .clock = ppo_give(p, &q->clock, sizeof q->clock),
        .t = q->t,
        .seed = q->seed,
        .stream = q->stream,
        .best = q->best,
        .action = ppo_give(p, NULL, (size_t)rows * sizeof(int32_t)),
        .logp = ppo_give(p, NULL, (size_t)rows * sizeof(float)),
        .bad = ppo_give(p, &none, sizeof none)};
    assert_ok(p->table->sample(&p->where, &shape, &w));
    int64_t bad;
    ppo_take(p, d.action + first, w.action, (size_t)rows * sizeof(int32_t));
    ppo_take(p, d.logp + first, w.logp, (size_t)rows * sizeof(float));
    ppo_take(p, &bad, w.bad, sizeof bad);
    d.bad += bad;
    ppo_clear(p);
  }
  return d;
}

static void drawn_free(drawn *d) {
  free(d->action);
  free(d->logp);
}

// log softmax over the allowed actions, in double.
static void log_softmax(const float *x, int32_t act, uint64_t mask, double *out) {
  double top = -INFINITY, sum = 0;
  for (int32_t a = 0; a < act; a++) {
    if (mask >> a & 1) top = fmax(top, (double)x[a]);
  }
  for (int32_t a = 0; a < act; a++) sum += mask >> a & 1 ? exp((double)x[a] - top) : 0;
  for (int32_t a = 0; a < act; a++) {
    out[a] = mask >> a & 1 ? (double)x[a] - top - log(sum) : -INFINITY;
  }
}

static void test_exp_and_log(void **state) {
  (void)state;
  double worst = 0;
  for (int i = -870000; i <= 887220; i += 7) {
    const float x = (float)(i * 1e-4);
    const double want = exp((double)x);
    worst = fmax(worst, fabs((double)brim_hd_exp(x) - want) / want);
  }
  printf("exp: %.3g\n", worst);
  assert_true(worst < 2e-7);
  assert_true(brim_hd_exp(0.0f) == 1.0f);
  for (int i = 0; i <= 900000; i += 3) {
    const float x = (float)(i * -1e-4);
    assert_true(brim_hd_exp_below(x) == brim_hd_exp(x));
  }
  assert_true(brim_hd_exp_below(-INFINITY) == 0.0f);
  assert_true(brim_hd_exp(-87.5f) == 0.0f && brim_hd_exp(-INFINITY) == 0.0f);
  assert_true(isinf(brim_hd_exp(88.8f)) && isinf(brim_hd_exp(INFINITY)));
  assert_true(isfinite(brim_hd_exp(88.7f)) && isnan(brim_hd_exp(NAN)));
  worst = 0;
  for (int i = 0; i < 400000; i++) {
    // the sums of up to 64 exponentials, and the whole range
    const float x = i % 2 ? 1.0f + (float)i * 1.6e-4f
                          : ldexpf(1.0f + (float)ppo_uniform((uint64_t)i), i % 250 - 125);
    const double want = log((double)x);
    const double off = fabs((double)brim_hd_log(x) - want);
    worst = fmax(worst, want != 0 ? off / fabs(want) : off);
  }
  printf("log: %.3g\n", worst);
  assert_true(worst < 2e-7);
  assert_true(brim_hd_log(1.0f) == 0.0f);
}

static void test_frequencies(void **state) {
  enum { ROWS = 40000, ACT = 6 };
  static const float logits[ACT] = {0.3f, -1.2f, 9.0f, 1.7f, 0.0f, -2.5f};
  const uint64_t allowed = 0x3b;  // without 2, the most probable
  static float outputs[ROWS * ACT];
  static uint64_t mask[ROWS];
  for (int i = 0; i < ROWS; i++) {
    mask[i] = allowed;
    memcpy(outputs + i * ACT, logits, sizeof logits);
  }
  double want[ACT];
  log_softmax(logits, ACT, allowed, want);
  EACH_PPO_PLACE(p) {
    question q = {.rows = ROWS,
                  .width = ACT,
                  .act = ACT,
                  .outputs = outputs,
                  .mask = mask,
                  .seed = 17,
                  .clock = 640,
                  .t = 3};
    drawn d = draw(p, &q);
    int64_t times[ACT] = {0};
    for (int i = 0; i < ROWS; i++) {
      times[d.action[i]]++;
      assert_close(d.logp[i], want[d.action[i]], 1e-6);
    }
    assert_int_equal(times[2], 0);
    double chi = 0;
    for (int a = 0; a < ACT; a++) {
      const double mean = exp(want[a]) * ROWS;
      if (mean > 0) chi += ((double)times[a] - mean) * ((double)times[a] - mean) / mean;
    }
    assert_true(chi < 13.3);  // four degrees of freedom: 1 %
    assert_int_equal(d.bad, 0);
    drawn_free(&d);
  }
}

// Draws of different steps, rows, seeds and streams are independent.
static void test_draws_are_independent(void **state) {
  enum { ROWS = 4000, ACT = 4 };
  static float outputs[ROWS * ACT];
  memset(outputs, 0, sizeof outputs);
  EACH_PPO_PLACE(p) {
    const question base = {
        .rows = ROWS, .width = ACT, .act = ACT, .outputs = outputs, .seed = 1, .clock = 64, .t = 0};
    question others[4] = {base, base, base, base};
    others[0].t = 1;
    others[1].clock = 128;
    others[2].seed = 2;
    others[3].stream = 1;
    drawn a = draw(p, &base);
    int same = 0;
    for (int i = 1; i < ROWS; i++) same += a.action[i] == a.action[i - 1];
    assert_in_range(same, ROWS / 4 - 120, ROWS / 4 + 120);
    for (int k = 0; k < 4; k++) {
      drawn b = draw(p, &others[k]);
      same = 0;
      for (int i = 0; i < ROWS; i++) same += a.action[i] == b.action[i];
      assert_in_range(same, ROWS / 4 - 120, ROWS / 4 + 120);
      drawn_free(&b);
    }
    drawn_free(&a);
  }
}

// Step t of clock c draws the same as step 0 of clock c + t.
static void test_clock_and_step_add_up(void **state) {
  enum { ROWS = 500, ACT = 5 };
  float outputs[ROWS * ACT] = {0};
  EACH_PPO_PLACE(p) {
    question q = {.rows = ROWS, .width = ACT, .act = ACT, .outputs = outputs, .clock = 70, .t = 5};
    drawn a = draw(p, &q);
    q.clock = 75;
    q.t = 0;
    drawn b = draw(p, &q);
    assert_memory_equal(a.action, b.action, ROWS * sizeof(int32_t));
    drawn_free(&a);
    drawn_free(&b);
  }
}

// All types, widths with columns behind the actions, masks; and the same bits on every device and for every division of
// the rows.
static void test_places_agree(void **state) {
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
  static const int32_t sizes[][2] = {{1, 1}, {2, 2}, {5, 5}, {5, 8}, {9, 9}, {18, 18}, {64, 64}};
  enum { ROWS = 1111 };
  static float outputs[ROWS * 64];
  static uint64_t mask[ROWS];
  for (int s = 0; s < 7; s++) {
    for (int k = 0; k < 3; k++) {
      const int32_t act = sizes[s][0], width = sizes[s][1];
      for (int i = 0; i < ROWS; i++) {
        mask[i] = (uint64_t)(ppo_uniform((uint64_t)i) * 1e19) | 1ull << i % act;
        for (int a = 0; a < width; a++) {
          const float x = (float)(3 * ppo_normal((uint64_t)(i * width + a)));
          outputs[i * width + a] = a < act ? ppo_rounded(types[k], x) : NAN;
        }
      }
      question q = {.type = types[k],
                    .rows = ROWS,
                    .width = width,
                    .act = act,
                    .outputs = outputs,
                    .mask = mask,
                    .seed = 3,
                    .clock = 9,
                    .t = 2};
      drawn first = {0};
      EACH_PPO_PLACE(p) {
        for (int cut = 0; cut < 2; cut++) {
          q.piece = cut ? 300 : 0;
          drawn d = draw(p, &q);
          assert_int_equal(d.bad, 0);
          if (!first.action) {
            first = d;
            continue;
          }
          assert_memory_equal(first.action, d.action, ROWS * sizeof(int32_t));
          assert_memory_equal(first.logp, d.logp, ROWS * sizeof(float));
          drawn_free(&d);
        }
      }
      for (int i = 0; i < ROWS; i++) {
        double want[64];
        log_softmax(outputs + i * width, act, mask[i], want);
        assert_in_range(first.action[i], 0, act - 1);
        assert_true(mask[i] >> first.action[i] & 1);
        assert_close(first.logp[i], want[first.action[i]], 3e-6);
      }
      drawn_free(&first);
    }
  }
}

static void test_best(void **state) {
  enum { ACT = 4 };
  const float outputs[][ACT] = {{1, 3, 2, 0}, {5, 3, 3, 2}, {1, 1, 1, 1}, {-9, -8, -8, -100}};
  const uint64_t mask[] = {15, 14, 12, 15};
  const int32_t want[] = {1, 1, 2, 1};
  EACH_PPO_PLACE(p) {
    question q = {
        .rows = 4, .width = ACT, .act = ACT, .outputs = outputs[0], .mask = mask, .best = 1};
    drawn d = draw(p, &q);
    assert_memory_equal(d.action, want, sizeof want);
    for (int i = 0; i < 4; i++) {
      double logp[ACT];
      log_softmax(outputs[i], ACT, mask[i], logp);
      assert_close(d.logp[i], logp[want[i]], 1e-6);
    }
    drawn_free(&d);
  }
}

static void test_bad_rows(void **state) {
  enum { ACT = 3 };
  const float outputs[][ACT] = {{0, 0, 0},         {NAN, 0, 0}, {0, INFINITY, 0},
                                {0, -INFINITY, 0}, {0, NAN, 0}, {1e30f, -1e30f, 0}};
  const uint64_t mask[] = {0, 7, 7, 7, 5, 7};  // row 4 has its NaN in a forbidden action
  EACH_PPO_PLACE(p) {
    question q = {.rows = 6, .width = ACT, .act = ACT, .outputs = outputs[0], .mask = mask};
    drawn d = draw(p, &q);
    assert_int_equal(d.bad, 4);
    for (int i = 0; i < 4; i++) {
      assert_int_equal(d.action[i], 0);
      assert_true(d.logp[i] == 0.0f);
    }
    assert_true(d.action[4] != 1);
    assert_close(d.logp[4], log(0.5), 1e-6);
    assert_int_equal(d.action[5], 0);
    drawn_free(&d);
  }
}

static void test_shapes_are_checked(void **state) {
  EACH_PPO_PLACE(p) {
    const brim_ppo_shape good = {.steps = 4, .envs = 4, .agents = 2, .act = 5, .rewards = 2};
    brim_ppo_shape bad = good;
    size_t bytes;
    assert_ok(p->table->scratch(&good, &bytes));
    bad.act = 65;
    assert_status(p->table->scratch(&bad, &bytes), BRIM_EINVAL);
    bad = good;
    bad.rewards = 3;
    assert_status(p->table->scratch(&bad, &bytes), BRIM_EINVAL);
    bad = good;
    bad.envs = 1 << 30;
    assert_status(p->table->scratch(&bad, &bytes), BRIM_EINVAL);
    bad = good;
    bad.steps = 0;
    assert_status(p->table->scratch(&bad, &bytes), BRIM_EINVAL);
    const float outputs[10] = {0};
    brim_ppo_sample w = {.outputs = ppo_give_tensor(p, BRIM_F32, 2, 5, outputs), .rows = 3};
    assert_status(p->table->sample(&p->where, &good, &w), BRIM_EINVAL);  // more rows than there are
    w.rows = 2;
    w.first = 7;
    assert_status(p->table->sample(&p->where, &good, &w), BRIM_EINVAL);  // beyond the step's rows
    w.first = 0;
    w.outputs.dim[1] = 4;
    assert_status(p->table->sample(&p->where, &good, &w), BRIM_EINVAL);  // too few columns
    ppo_clear(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exp_and_log),
      cmocka_unit_test(test_frequencies),
      cmocka_unit_test(test_draws_are_independent),
      cmocka_unit_test(test_clock_and_step_add_up),
      cmocka_unit_test(test_places_agree),
      cmocka_unit_test(test_best),
      cmocka_unit_test(test_bad_rows),
      cmocka_unit_test(test_shapes_are_checked),
  };
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
