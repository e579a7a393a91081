// Checks that the functions of an environment's header agree with each other. A template over the header, like
// rl_rollout_each.h: a test includes the header, defines BRIM_ENV(x), includes this, undefines BRIM_ENV and calls
// brim_NAME_views with some settings. Empty without BRIM_ENV.
#ifdef BRIM_ENV
#include "env/env_step.h"
#include "rl/rl_rollout_plan.h"

#define VIEWS_POISON 0xa5

static uint32_t BRIM_ENV(views_random)(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

// Compares single numbers with those of the whole, bit for bit, in memory that ends with the stored bytes.
static void BRIM_ENV(views_numbers)(const BRIM_ENV(values) * v, const BRIM_ENV(state) * full) {
  const brim_env_sizes z = BRIM_ENV(sizes)(v);
  const size_t stored = (size_t)BRIM_ENV(stored)(v),
               all = z.obs > z.global ? (size_t)z.obs : (size_t)z.global;
  assert_in_range(stored, 4, sizeof *full);
  assert_int_equal(stored % 4, 0);
  assert_int_equal(stored % _Alignof(BRIM_ENV(state)), 0);
  // a separate copy: AddressSanitizer detects reads behind it
  BRIM_ENV(state) *s = malloc(stored);
  float *out = malloc((all + 1) * sizeof *out);
  assert_non_null(s);
  assert_non_null(out);
  memcpy(s, full, stored);
  for (int32_t agent = 0; agent < z.agents; agent++) {
    out[z.obs] = 12345.0f;
    BRIM_ENV(observe)(v, s, agent, out);
    assert_true(out[z.obs] == 12345.0f);
    for (int32_t i = 0; i < z.obs; i++) {
      const float one = BRIM_ENV(sees)(v, s, agent, i);
      if (memcmp(&one, &out[i], sizeof one)) {
        fail_msg("agent %d sees %g, but observes %g as number %d", agent, (double)one,
                 (double)out[i], i);
      }
    }
    if (z.kind == BRIM_ENV_DISCRETE) {
      const uint64_t mask = BRIM_ENV(mask)(v, s, agent);
      assert_true(mask != 0);
      assert_true(z.act == 64 || mask >> z.act == 0);
    }
  }
  out[z.global] = 12345.0f;
  if (z.global) BRIM_ENV(global)(v, s, out);
  assert_true(out[z.global] == 12345.0f);
  for (int32_t i = 0; i < z.global; i++) {
    const float one = BRIM_ENV(global_sees)(v, s, i);
    if (memcmp(&one, &out[i], sizeof one)) {
      fail_msg("a critic sees %g, but gets %g as number %d", (double)one, (double)out[i], i);
    }
  }
  free(s);
  free(out);
}

// `rules` is the number of baselines in the row.
static void BRIM_ENV(views)(const BRIM_ENV(values) * v, int32_t rules, int32_t steps) {
  const brim_env_sizes z = BRIM_ENV(sizes)(v);
  const size_t stored = (size_t)BRIM_ENV(stored)(v);
  brim_env_track t = brim_env_track_of(brim_env_training(5, 0, 0, 3));
  BRIM_ENV(state) s, poisoned;
  uint32_t random = 7;
  memset(&s, 0, sizeof s);
  memset(&poisoned, VIEWS_POISON, sizeof poisoned);
  BRIM_ENV(reset)(v, &t, &s);
  BRIM_ENV(reset)(v, &t, &poisoned);
  for (int32_t step = 0; step < steps; step++) {
    BRIM_ENV(action) action[BRIM_ENV(AGENTS) * BRIM_ENV(ACT)];
    BRIM_ENV(views_numbers)(v, &s);
    // the stored bytes decide everything, and nothing behind them is changed
    assert_memory_equal(&s, &poisoned, stored);
    for (size_t i = stored; i < sizeof s; i++) {
      assert_int_equal(((unsigned char *)&poisoned)[i], VIEWS_POISON);
    }
    for (int32_t agent = 0; agent < z.agents; agent++) {
      if (z.kind != BRIM_ENV_DISCRETE) {
        for (int32_t a = 0; a < z.act; a++) {
          action[agent * z.act + a] =
              (BRIM_ENV(action))((float)(BRIM_ENV(views_random)(&random) % 201) / 100.0f - 1.0f);
        }
        continue;
      }
      const uint64_t mask = BRIM_ENV(mask)(v, &s, agent);
      const uint32_t bits = BRIM_ENV(views_random)(&random) << 8;
      const int32_t rule = (int32_t)(BRIM_ENV(views_random)(&random) % (uint32_t)(rules + 1));
      const int32_t choice =
          rule ? BRIM_ENV(rule)(v, &s, agent, rule, bits) : brim_env_any(mask, bits);
      assert_in_range(choice, 0, z.act - 1);
      assert_true(mask >> choice & 1);
      action[agent] = (BRIM_ENV(action))choice;
    }
    const brim_env_outcome o = BRIM_ENV(step)(v, &t, &s, action);
    const brim_env_outcome p = BRIM_ENV(step)(v, &t, &poisoned, action);
    assert_memory_equal(&o, &p, sizeof o);
    if (brim_env_rewards(&z) == z.agents) {
      double sum = 0;
      for (int32_t i = 0; i < z.agents; i++) sum += (double)BRIM_ENV(share)(v, &s, i);
      assert_true(fabs(sum / z.agents - (double)o.reward) <= 1e-6 * (1 + fabs((double)o.reward)));
    }
    if (!brim_env_after(&t, o, 50)) continue;
    t.episode++;
    t.step = 0;
    BRIM_ENV(reset)(v, &t, &s);
    memset(&poisoned, VIEWS_POISON, sizeof poisoned);
    BRIM_ENV(reset)(v, &t, &poisoned);
  }
}

#undef VIEWS_POISON
#endif  // BRIM_ENV
