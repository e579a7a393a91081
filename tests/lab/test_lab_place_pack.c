// The number of experiments that a GPU should run at once, for simulated GPUs: the test defines how fast each of n
// experiments runs.
#include <math.h>

#include "lab/place/lab_place_int.h"
#include "test.h"

enum { MOST = 64, MS = 1000 };

typedef struct sim_job {
  bool runs;
  int64_t start_ms, life_ms, said_ms, said;
  double steps;
  brim_lab_pack_job pack;
} sim_job;

// A GPU, and a queue that never empties unless `queue` limits it.
typedef struct sim {
  brim_lab_pack pack;
  int64_t now;
  double (*rate)(int n);  // steps/s of each of n experiments
  double noise;           // relative error of a rate
  int64_t startup_ms;     // before the first step
  int64_t life_ms;        // 0 = for ever
  int64_t say_ms;         // between two reports
  int queue;              // experiments left; < 0: endless
  int room;               // memory for this many
  uint64_t (*kind)(int64_t number);
  double slower;  // rate of odd kinds relative to even ones
  int64_t number;
  uint64_t random;
  sim_job jobs[MOST];
  int most_seen, shed_seen;
} sim;

static double perfect(int n) {
  (void)n;
  return 100;
}
static double sliced(int n) { return 100.0 / n; }               // no gain
static double worse(int n) { return n == 1 ? 100 : 70.0 / n; }  // a loss
static double up_to_six(int n) { return n <= 6 ? 100 : 600.0 / n; }
static double three_quarters(int n) { return 100 * pow(n, -0.25); }  // each doubling gives 1.68

static double random_of(sim *s) {
  s->random = s->random * 6364136223846793005u + 1442695040888963407u;
  return (double)(s->random >> 40) / (double)(1 << 24);
}

static int running(const sim *s) {
  int n = 0;
  for (int i = 0; i < MOST; i++) n += s->jobs[i].runs;
  return n;
}

static void fill(sim *s) {
  int n = running(s);
  for (int i = 0; i < MOST && n < s->pack.limit && n < s->room && s->queue != 0; i++) {
    sim_job *j = &s->jobs[i];
    if (j->runs) continue;
    *j = (sim_job){.runs = true, .start_ms = s->now, .said_ms = s->now, .life_ms = s->life_ms};
    if (j->life_ms) j->life_ms += (int64_t)(random_of(s) * (double)s->life_ms);
    brim_lab_pack_joined(&s->pack, &j->pack, s->kind ? s->kind(s->number) : 0, s->now);
    s->number++;
    s->queue -= s->queue > 0;
    n++;
  }
  if (n > s->most_seen) s->most_seen = n;
}

static void leave(sim *s, sim_job *j) {
  brim_lab_pack_left(&s->pack, &j->pack, s->now);
  j->runs = false;
}

static void pass(sim *s, int64_t ms) {
  int n = 0;
  for (int i = 0; i < MOST; i++)
    n += s->jobs[i].runs && s->now - s->jobs[i].start_ms >= s->startup_ms;
  s->now += ms;
  for (int i = 0; i < MOST; i++) {
    sim_job *j = &s->jobs[i];
    if (!j->runs) continue;
    if (s->now - j->start_ms > s->startup_ms) {
      double rate = s->rate(n ? n : 1) * (1 + s->noise * (2 * random_of(s) - 1));
      if (j->pack.kind % 2) rate *= s->slower > 0 ? s->slower : 1;
      j->steps += rate * (double)ms * 1e-3;
      if (s->now - j->said_ms >= s->say_ms) {
        j->said = (int64_t)j->steps;
        j->said_ms = s->now;
      }
      // the sweep reads the store more often than executors report
      if (j->said) brim_lab_pack_stepped(&s->pack, &j->pack, j->said, s->now);
    }
    if (j->life_ms && s->now - j->start_ms >= j->life_ms) leave(s, j);
  }
}

static void run(sim *s, int64_t seconds) {
  fill(s);
  for (int64_t i = 0; i < seconds * 2; i++) {
    pass(s, MS / 2);
    fill(s);
    brim_lab_pack_tick(&s->pack, s->now, s->queue != 0 && running(s) < s->room);
    if (s->pack.shed > s->shed_seen) s->shed_seen = s->pack.shed;
    while (s->pack.shed > 0 && running(s) > s->pack.limit) {
      int last = MOST - 1;
      while (!s->jobs[last].runs) last--;
      leave(s, &s->jobs[last]);
    }
    assert_true(s->pack.limit >= 1 && s->pack.limit <= s->pack.max_limit);
    assert_int_equal(s->pack.jobs, running(s));
    assert_true(s->pack.stepping >= 0 && s->pack.stepping <= s->pack.jobs);
  }
}

static sim make(double (*rate)(int n)) {
  sim s = {.now = 5000,
           .rate = rate,
           .startup_ms = 3000,
           .say_ms = 1000,
           .queue = -1,
           .room = MOST,
           .random = 7};
  brim_lab_pack_init(&s.pack, 16, false, 5000, 20000);
  return s;
}

//---------------------------------- long experiments ----------------------------------

static void test_all_that_fit_pay(void **state) {
  (void)state;
  sim s = make(perfect);
  assert_int_equal(s.pack.limit, 1);
  run(&s, 20);
  assert_int_equal(s.most_seen, 1);  // one alone is measured first
  run(&s, 180);
  assert_int_equal(s.pack.limit, 16);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_true(fabs(s.pack.gain - 16) < 0.5);
  assert_int_equal(s.shed_seen, 0);
}

static void test_taking_turns_does_not_pay(void **state) {
  (void)state;
  sim s = make(sliced);
  run(&s, 300);
  assert_int_equal(s.most_seen, 2);  // two were tried once
  assert_int_equal(s.pack.limit, 1);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_true(s.pack.gain == 1);
}

static void test_a_loss_is_taken_back(void **state) {
  (void)state;
  sim s = make(worse);
  run(&s, 300);
  assert_int_equal(s.shed_seen, 1);
  assert_int_equal(s.pack.limit, 1);
  assert_int_equal(running(&s), 1);
}

static void test_saturation(void **state) {
  (void)state;
  sim s = make(up_to_six);
  run(&s, 600);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_in_range(s.pack.limit, 6, 8);
  assert_true(fabs(s.pack.gain - 6) < 0.3);
}

static void test_a_gain_that_shrinks(void **state) {
  (void)state;
  sim s = make(three_quarters);
  run(&s, 900);
  // 16 at once gain a factor of 8, and each doubling pays
  assert_int_equal(s.pack.limit, 16);
  assert_true(fabs(s.pack.gain - 8) < 0.4);
}

static void test_noise(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    sim s = make(sliced);
    s.noise = 0.08;  // per half second
    s.random = seed * 7919;
    run(&s, 300);
    assert_int_equal(s.pack.limit, 1);
    s = make(perfect);
    s.noise = 0.08;
    s.random = seed * 104729;
    run(&s, 300);
    assert_int_equal(s.pack.limit, 16);
  }
}

static void test_memory_stops_it(void **state) {
  (void)state;
  sim s = make(perfect);
  s.room = 5;
  run(&s, 600);
  assert_int_equal(s.most_seen, 5);
  assert_true(s.pack.limit >= 5);
  assert_true(fabs(s.pack.gain - 5) < 0.3);
}

static void test_the_queue_ends(void **state) {
  (void)state;
  sim s = make(perfect);
  s.queue = 3;
  run(&s, 600);
  assert_int_equal(running(&s), 3);
  assert_true(fabs(s.pack.gain - 3) < 0.3);
  s = make(perfect);
  s.queue = 1;
  run(&s, 600);
  assert_int_equal(running(&s), 1);
  assert_true(s.pack.gain == 1);
}

// Executors report every 15 s; windows wait until they have seen enough.
static void test_rare_reports(void **state) {
  (void)state;
  sim s = make(perfect);
  s.say_ms = 15000;
  run(&s, 900);
  assert_int_equal(s.pack.limit, 16);
  assert_true(fabs(s.pack.gain - 16) < 1);
  s = make(sliced);
  s.say_ms = 15000;
  run(&s, 900);
  assert_int_equal(s.pack.limit, 1);
}

// An experiment that never reports delays a decision, but does not prevent it.
static void test_no_reports(void **state) {
  (void)state;
  sim s = make(perfect);
  s.say_ms = 1LL << 40;
  run(&s, 3600);
  assert_int_equal(s.pack.limit, 1);
  assert_int_equal(s.most_seen, 1);
}

//---------------------------------- short experiments ----------------------------------

// Experiments of 4 to 8 s, of which 3 s are the start. Running them together overlaps the starts.
static void test_short_ones(void **state) {
  (void)state;
  sim s = make(perfect);
  s.life_ms = 4000;
  run(&s, 1200);
  assert_int_equal(s.pack.limit, 16);
  s = make(sliced);
  s.startup_ms = 500;
  s.life_ms = 4000;
  run(&s, 1200);
  assert_in_range(s.pack.limit, 1,
                  4);  // starts overlap, the steps do not; windows of few are rough
}

//---------------------------------- kinds ----------------------------------

static uint64_t two_kinds(int64_t number) { return (uint64_t)(number % 2) + 10; }
static uint64_t all_different(int64_t number) { return (uint64_t)number + 1; }
static uint64_t another_from_20(int64_t number) { return number < 20 ? 10 : 12; }

// One kind makes ten steps while the other makes one: a sum of steps/s would show a false gain or loss.
static void test_kinds_are_not_mixed_up(void **state) {
  (void)state;
  sim s = make(sliced);
  s.kind = two_kinds;
  s.slower = 10;
  run(&s, 600);
  assert_int_equal(s.pack.limit, 1);
  s = make(perfect);
  s.kind = two_kinds;
  s.slower = 0.1;
  run(&s, 600);
  assert_int_equal(s.pack.limit, 16);
  assert_true(fabs(s.pack.gain - 16) < 0.6);
}

// All experiments are of different kinds: only those that run in both windows can be compared. If none does, nothing is
// packed on trust.
static void test_all_kinds_different(void **state) {
  (void)state;
  sim s = make(sliced);
  s.kind = all_different;
  s.life_ms = 6000;
  run(&s, 3600);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_int_equal(s.pack.limit, 1);
  assert_true(s.most_seen <= 2);
  s = make(perfect);
  s.kind = all_different;
  s.startup_ms = 500;
  s.life_ms = 1500;  // shorter than a warm-up
  run(&s, 3600);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_int_equal(s.pack.limit, 1);
  assert_true(s.most_seen <= 2);
}

static void test_the_mix_changes(void **state) {
  (void)state;
  sim s = make(perfect);
  s.kind = another_from_20;
  s.life_ms = 200000;
  run(&s, 200);
  assert_int_equal(s.pack.limit, 16);
  s.rate = sliced;  // the new kind fills the GPU alone
  run(&s, 200);
  assert_true(s.pack.restarts >= 1);
  run(&s, 3000);
  assert_int_equal(s.pack.phase, BRIM_LAB_PACK_HOLD);
  assert_true(s.pack.limit <= 8);
}

//---------------------------------- others ----------------------------------

static void test_fixed(void **state) {
  (void)state;
  sim s = make(worse);
  brim_lab_pack_init(&s.pack, 3, true, 5000, 20000);
  fill(&s);
  assert_int_equal(running(&s), 3);
  run(&s, 300);
  assert_int_equal(s.pack.limit, 3);
  assert_int_equal(s.shed_seen, 0);
  brim_lab_pack_init(&s.pack, 0, true, 5000, 20000);
  assert_int_equal(s.pack.limit, 1);
}

static void test_stopped(void **state) {
  (void)state;
  sim s = make(perfect);
  run(&s, 200);
  assert_int_equal(s.pack.limit, 16);
  brim_lab_pack_stop(&s.pack);
  assert_int_equal(s.pack.limit, 1);
  run(&s, 600);  // running ones may end; none is added
  assert_int_equal(s.pack.limit, 1);
}

// Arbitrary reports: times that stand still, steps that fall back after a resume.
static void test_random_calls(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed < 300; seed++) {
    sim s = make(seed % 2 ? sliced : perfect);
    s.random = seed;
    for (int i = 0; i < 2000; i++) {
      double what = random_of(&s);
      sim_job *j = &s.jobs[(int)(random_of(&s) * MOST)];
      if (what < 0.3) s.now += (int64_t)(random_of(&s) * 9000);
      if (what < 0.5) fill(&s);
      if (what > 0.8 && j->runs) leave(&s, j);
      if (what > 0.4 && j->runs) {
        brim_lab_pack_stepped(&s.pack, &j->pack, (int64_t)(random_of(&s) * 1e6), s.now);
      }
      brim_lab_pack_tick(&s.pack, s.now, random_of(&s) < 0.5);
      assert_true(s.pack.limit >= 1 && s.pack.limit <= 16);
      assert_int_equal(s.pack.jobs, running(&s));
      assert_true(s.pack.shed >= 0 && s.pack.shed <= s.pack.jobs);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_that_fit_pay),
      cmocka_unit_test(test_taking_turns_does_not_pay),
      cmocka_unit_test(test_a_loss_is_taken_back),
      cmocka_unit_test(test_saturation),
      cmocka_unit_test(test_a_gain_that_shrinks),
      cmocka_unit_test(test_noise),
      cmocka_unit_test(test_memory_stops_it),
      cmocka_unit_test(test_the_queue_ends),
      cmocka_unit_test(test_rare_reports),
      cmocka_unit_test(test_no_reports),
      cmocka_unit_test(test_short_ones),
      cmocka_unit_test(test_kinds_are_not_mixed_up),
      cmocka_unit_test(test_all_kinds_different),
      cmocka_unit_test(test_the_mix_changes),
      cmocka_unit_test(test_fixed),
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_random_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
