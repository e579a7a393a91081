// The best number of devices, the cost of more of them, and a whole measurement with failures in it.
#include <math.h>

#include "tune/tune_int.h"
#include "workload/fixture.h"

static void test_counts(void **state) {
  (void)state;
  static const struct {
    size_t k, n, counts[6];
  } rows[] = {{1, 1, {1}},
              {2, 2, {1, 2}},
              {3, 3, {1, 2, 3}},
              {4, 3, {1, 2, 4}},
              {6, 4, {1, 2, 4, 6}},
              {8, 4, {1, 2, 4, 8}},
              {32, 6, {1, 2, 4, 8, 16, 32}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t out[8];
    assert_int_equal(brim_scale_counts(rows[i].k, out), rows[i].n);
    for (size_t k = 0; k < rows[i].n; k++) assert_int_equal(out[k], rows[i].counts[k]);
  }
}

static void put(brim_scaling *s, brim_phase phase, double ms) {
  s->result.phase_used[phase] = true;
  s->result.phase_ms[phase].mean = ms;
  double total = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (s->result.phase_used[p]) total += s->result.phase_ms[p].mean;
  }
  s->result.total_ms.mean = total;
}

static void made_up(brim_scaling *s, int devices, double io, double h2d, double forward,
                    double backward) {
  brim_scaling_init(s);
  s->devices = s->ran = devices;
  s->effective_batch = 100.0 * devices;
  put(s, BRIM_PHASE_IO, io);
  put(s, BRIM_PHASE_H2D, h2d);
  put(s, BRIM_PHASE_FORWARD, forward);
  put(s, BRIM_PHASE_BACKWARD, backward);
  s->result.samples_per_s = s->effective_batch / (s->result.total_ms.mean * 1e-3);
}

static void test_what_is_lost(void **state) {
  (void)state;
  brim_scaling one, two;
  made_up(&one, 1, 1, 1, 3, 5);
  brim_scale_compare(&one, &one);
  assert_float_equal(one.efficiency, 1, 1e-12);
  assert_string_equal(one.lost_to, "");
  made_up(&two, 2, 3, 2, 3, 5);
  brim_scale_compare(&two, &one);
  assert_float_equal(two.one, 10000, 1e-9);
  assert_float_equal(two.efficiency, 10.0 / 13, 1e-9);
  assert_string_equal(two.lost_to, "io");
  assert_float_equal(two.lost_ms, 2, 1e-9);
  made_up(&two, 2, 1, 2, 3, 5);
  brim_scale_compare(&two, &one);
  assert_string_equal(two.lost_to, "h2d");
  // computing is one phase, however it is divided
  made_up(&two, 2, 2.5, 1, 4, 6);
  brim_scale_compare(&two, &one);
  assert_string_equal(two.lost_to, "compute");
  assert_float_equal(two.lost_ms, 2, 1e-9);
  // differences within the noise
  made_up(&two, 2, 1.05, 1, 3, 5);
  brim_scale_compare(&two, &one);
  assert_string_equal(two.lost_to, "");
  assert_true(isnan(two.lost_ms));
  // the same number of steps with fewer samples in each
  made_up(&two, 2, 1, 1, 3, 5);
  two.effective_batch = 160;
  two.result.samples_per_s = 16000;
  brim_scale_compare(&two, &one);
  assert_float_equal(two.efficiency, 0.8, 1e-9);
  assert_string_equal(two.lost_to, "short_batch");
  assert_float_equal(two.lost_ms, 2, 1e-9);
  // three of four ran: the figures are those of three
  made_up(&two, 3, 1, 1, 3, 5);
  two.devices = 4;
  brim_scale_compare(&two, &one);
  assert_float_equal(two.efficiency, 1, 1e-9);
  // the run on one device failed
  one.result.samples_per_s = (double)NAN;
  brim_scale_compare(&two, &one);
  assert_true(isnan(two.efficiency));
  assert_string_equal(two.lost_to, "");
}

static void test_advice(void **state) {
  (void)state;
  brim_advice_facts facts = {.batch = 64, .accumulation = 2, .learning_rate = 0.1};
  char text[256];
  brim_advise_batch(&facts, 512, text);
  assert_non_null(strstr(text, "from 128 to 512"));
  assert_non_null(strstr(text, "0.1 -> 0.4"));
  brim_advise_batch(&facts, 128, text);
  assert_string_equal(text, "");
}

//---------------------------------- predictions ----------------------------------

static void assert_near(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-12 * fabs(expected));
}

// 10 ms for one device with 100 samples; 4 sums of 1,000,256 bytes each: 0.1 ms, and 1 ms more per MB.
static brim_scale_model model_of(int measured) {
  brim_scaling s;
  brim_scaling_init(&s);
  brim_scale_model m = {.step_ms = 10, .rows = 100, .measured = measured, .exchange = s.exchange};
  brim_scaling_exchange *e = &m.exchange;
  e->gradient_bytes = 4 * 1000256.0;
  e->sums = 4;
  e->small_bytes = 256;
  e->small_ms = 0.1;
  e->bucket_bytes = 1000256;
  e->bucket_ms = 1.1;
  return m;
}

static void test_predicted(void **state) {
  (void)state;
  brim_scale_model m = model_of(2);
  brim_scaling_forecast f;
  brim_scale_predict(&m, 2, &f);
  assert_int_equal(f.ranks, 2);
  assert_false(f.beyond || f.network);
  assert_near(f.exchange_ms, 4.4);
  assert_near(f.waited_ms, 4.4);  // no computation hides it
  assert_near(f.step_ms, 14.4);
  assert_near(f.samples_per_s, 200 / 14.4e-3);
  assert_near(f.efficiency, 10 / 14.4);
  // part of it is hidden, or all but the last sum
  m.hidden_ms = 2;
  brim_scale_predict(&m, 2, &f);
  assert_near(f.exchange_ms, 4.4);
  assert_near(f.waited_ms, 2.4);
  m.hidden_ms = 100;
  brim_scale_predict(&m, 2, &f);
  assert_near(f.waited_ms, 1.1);
  // steps wait for exchanges that cannot overlap, by latency and size
  m.exchange.calls = 10;
  m.exchange.call_bytes = 10 * (256 + 100000.0);
  brim_scale_predict(&m, 2, &f);
  assert_near(f.exchange_ms, 4.4 + 10 * 0.2);
  assert_near(f.waited_ms, 1.1 + 10 * 0.2);
}

static void test_predicted_beyond(void **state) {
  (void)state;
  brim_scale_model m = model_of(2);
  brim_scaling_forecast f;
  // three times the hops, and 1.5 times the bytes through each rank
  brim_scale_predict(&m, 4, &f);
  assert_true(f.beyond);
  assert_near(f.exchange_ms, 4 * (0.3 + 1.5));
  assert_near(f.samples_per_s, 400 / 17.2e-3);
  // the same from four measured ranks needs no extrapolation
  m.measured = 4;
  brim_scale_predict(&m, 4, &f);
  assert_false(f.beyond);
  assert_near(f.exchange_ms, 4.4);
  // fewer than measured
  brim_scale_predict(&m, 2, &f);
  assert_false(f.beyond);
  assert_near(f.exchange_ms, 4 * (0.1 / 3 + 1 / 1.5));
}

static void assert_unknown(const brim_scaling_forecast *f) {
  assert_true(isnan(f->samples_per_s) && isnan(f->efficiency) && isnan(f->step_ms));
  assert_true(isnan(f->waited_ms));
}

static void test_predicted_unknown(void **state) {
  (void)state;
  brim_scale_model m = model_of(2);
  brim_scaling_forecast f;
  m.hidden_ms = (double)NAN;
  brim_scale_predict(&m, 2, &f);
  assert_unknown(&f);
  assert_near(f.exchange_ms, 4.4);
  // over a network that was not measured
  m = model_of(2);
  m.node = 4;
  brim_scale_predict(&m, 4, &f);
  assert_true(f.samples_per_s > 0 && !f.network);
  brim_scale_predict(&m, 8, &f);
  assert_true(f.network && f.beyond);
  assert_unknown(&f);
  assert_true(isnan(f.exchange_ms));
  // no exchange was timed
  m = model_of(2);
  m.exchange.bucket_ms = m.exchange.small_ms = (double)NAN;
  brim_scale_predict(&m, 2, &f);
  assert_true(isnan(f.samples_per_s) && isnan(f.efficiency) && isnan(f.exchange_ms));
  m = model_of(1);
  brim_scale_predict(&m, 2, &f);
  assert_unknown(&f);
}

static void test_further(void **state) {
  (void)state;
  static const struct {
    int64_t measured, asked;
    size_t n;
    int64_t ranks[6];
  } rows[] = {{2, 0, 2, {4, 8}},        {3, 1, 2, {4, 8}}, {4, 8, 1, {8}},
              {8, 8, 0, {0}},           {16, 1, 0, {0}},   {2, 12, 3, {4, 8, 12}},
              {8, 64, 3, {16, 32, 64}}, {32, 48, 1, {48}}};
  int64_t out[BRIM_SCALING_FURTHER];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(brim_scale_further(rows[i].measured, rows[i].asked, out), rows[i].n);
    for (size_t k = 0; k < rows[i].n; k++) assert_int_equal(out[k], rows[i].ranks[k]);
  }
  size_t most = brim_scale_further(2, INT64_C(4096) * 65536, out);
  assert_int_equal(out[most - 1], INT64_C(4096) * 65536);
}

//---------------------------------- a measurement ----------------------------------

static size_t told;
static volatile sig_atomic_t stop;
static size_t stop_after;

static void on_result(void *ctx, const brim_scaling *s) {
  (void)ctx;
  (void)s;
  if (++told == stop_after) stop = 1;
}

static void on_progress(void *ctx, const brim_progress *p) {
  (void)ctx;
  assert_non_null(strstr(p->title, "scaling"));
  assert_true(p->done <= p->total);
}

typedef struct team {
  fixture f[2];
  brim_replica replicas[3];
  brim_setting settings[2];
} team;

static brim_scale_options team_open(team *t) {
  memset(t, 0, sizeof *t);
  told = 0;
  stop = 0;
  stop_after = 0;
  for (int i = 0; i < 2; i++) {
    assert_ok(fixture_open(&t->f[i], "ref", fixture_yaml, NULL, 0));
    t->replicas[i] = (brim_replica){.spec = "ref", .work = t->f[i].work, .device = t->f[i].device};
  }
  t->replicas[2] = (brim_replica){.spec = "cuda:7", .status = BRIM_EDEVICE, .message = "none here"};
  t->settings[0] = t->settings[1] = brim_work_setting(t->f[0].work);
  t->settings[1].value[brim_work_knob(t->f[0].work, "batch_size")] = 16;
  return (brim_scale_options){.replicas = t->replicas,
                              .replica_count = 3,
                              .settings = t->settings,
                              .setting_count = 2,
                              .ranks = 20,
                              .node = 10,
                              .measure = {.seconds = 0.01, .max_warmup = 2, .stop = &stop},
                              .on_progress = on_progress,
                              .on_result = on_result};
}

static void team_close(team *t, brim_scaling *all, size_t count) {
  for (size_t i = 0; i < count; i++) brim_scaling_deinit(&all[i]);
  brim_free(all);
  for (int i = 0; i < 2; i++) fixture_close(&t->f[i]);
}

static void test_two_settings(void **state) {
  (void)state;
  team t;
  brim_scale_options how = team_open(&t);
  brim_scaling *all = NULL;
  size_t count = 0;
  static const int devices[] = {1, 2, 3}, ran[] = {1, 2, 2};
  assert_ok(brim_scale(&how, &all, &count));
  assert_int_equal(count, 6);
  assert_int_equal(told, 6);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(all[i].devices, devices[i % 3]);
    assert_int_equal(all[i].ran, ran[i % 3]);
    assert_true(all[i].efficiency > 0);
    assert_true(all[i].one == all[i / 3 * 3].result.samples_per_s);
    assert_string_equal(brim_result_knob_find(&all[i].result, "batch_size")->value,
                        i < 3 ? "32" : "16");
  }
  assert_string_equal(all[2].replicas[2].message, "none here");
  for (size_t i = 0; i < 6; i++) {
    bool several = i % 3 > 0;
    assert_int_equal(all[i].exchange.samples_per_s > 0, several);
    assert_int_equal(all[i].predicted.ranks, several ? 2 : 0);
    assert_int_equal(all[i].predicted.samples_per_s > 0, several);
    assert_int_equal(all[i].further_count, i % 3 == 2 ? 4 : 0);  // only beside all devices
    if (!several) continue;
    assert_true(all[i].exchange.efficiency ==
                all[i].exchange.samples_per_s / (2 * all[i / 3 * 3].result.samples_per_s));
    assert_true(isfinite(brim_scaling_error(&all[i])));
  }
  static const int64_t ranks[] = {4, 8, 16, 20};
  for (int k = 0; k < 4; k++) {
    const brim_scaling_forecast *f = &all[5].further[k];
    assert_int_equal(f->ranks, ranks[k]);
    assert_true(f->beyond);
    assert_int_equal(f->network, ranks[k] > 10);
    assert_int_equal(f->samples_per_s > 0, ranks[k] <= 10);
  }
  team_close(&t, all, count);
}

// Results before Ctrl-C are kept.
static void test_stopped(void **state) {
  (void)state;
  team t;
  brim_scale_options how = team_open(&t);
  brim_scaling *all = NULL;
  size_t count = 0;
  stop_after = 2;
  assert_status(brim_scale(&how, &all, &count), BRIM_EINTERRUPTED);
  assert_int_equal(count, 2);
  assert_int_equal(all[1].ran, 2);
  team_close(&t, all, count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counts),           cmocka_unit_test(test_what_is_lost),
      cmocka_unit_test(test_advice),           cmocka_unit_test(test_two_settings),
      cmocka_unit_test(test_stopped),          cmocka_unit_test(test_predicted),
      cmocka_unit_test(test_predicted_beyond), cmocka_unit_test(test_predicted_unknown),
      cmocka_unit_test(test_further),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
