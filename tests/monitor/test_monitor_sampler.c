// The sampler with a scripted GPU: means and medians, a falling clock, coarse counters, missing and failing calls, a lost GPU.
// The clock is the test's own, so that nothing waits; one test uses the thread.
#include <math.h>

#include "base/base.h"
#include "monitor/fake_nvml.h"
#include "monitor/monitor_int.h"

#define MS FAKE_NVML_MS
#define NEVER 3600.0  // a period that no test outlasts
#define BIT(id) (1u << BRIM_THROTTLE_BIT_##id)

// A sampler with the test's own time, whose thread sleeps.
static brim_gpu_monitor *monitor;

static brim_gpu_sampler *open_sampler(const brim_nvml_api *api) {
  brim_gpu_sampler *sampler = NULL;
  assert_ok(brim_gpu_monitor_open_api(api, "", &monitor));
  assert_ok(brim_gpu_sampler_start(monitor, FAKE_NVML_UUID, NEVER, &sampler));
  return sampler;
}

static brim_gpu_sampler *open_scripted(void) {
  fake_nvml_reset(true);
  brim_nvml_api api = fake_nvml_api();
  return open_sampler(&api);
}

static void close_sampler(brim_gpu_sampler *sampler) {
  brim_gpu_sampler_stop(sampler);
  brim_gpu_monitor_close(monitor);
  monitor = NULL;
  assert_int_equal(fake_nvml_samples_alive(), 0);
  assert_int_equal(fake_nvml.inits, fake_nvml.shutdowns);
}

// `count` readings, one every `period_ns`; the last by the read itself.
static brim_gpu_usage run(brim_gpu_sampler *sampler, int count, int64_t period_ns) {
  brim_gpu_usage usage;
  for (int i = 0; i < count; i++) {
    fake_nvml_pass(period_ns);
    if (i + 1 < count) brim_gpu_sampler_take(sampler);
  }
  brim_gpu_sampler_read(sampler, &usage);
  return usage;
}

#define assert_near(value, expected, within)                                           \
  do {                                                                                 \
    double v_ = (value), e_ = (expected);                                              \
    if (!(fabs(v_ - e_) <= (within))) fail_msg("%s: %g, expected %g", #value, v_, e_); \
  } while (0)

static void assert_no_activity(const brim_gpu_usage *u) {
  assert_true(isnan(u->sm_percent) && isnan(u->occupancy_percent));
  assert_true(isnan(u->tensor_percent) && isnan(u->dram_percent));
}

static void assert_nothing(const brim_gpu_usage *u) {
  assert_no_activity(u);
  assert_true(isnan(u->gpu_percent) && isnan(u->power_w) && isnan(u->power_limit_w));
  assert_true(isnan(u->energy_j) && isnan(u->clock_mhz) && isnan(u->clock_low_mhz));
  assert_true(isnan(u->clock_max_mhz) && isnan(u->temperature_c));
  assert_int_equal(u->throttle, 0);
  assert_int_equal(u->readings, 0);
}

//---------------------------------- texts and bits ----------------------------------

static void test_texts(void **state) {
  (void)state;
  char text[96];
  brim_throttle_text(0, text, sizeof text);
  assert_string_equal(text, "");
  brim_throttle_text(BIT(POWER_CAP) | BIT(THERMAL), text, sizeof text);
  assert_string_equal(text, "power cap, heat");
  brim_throttle_text(~0u, text, sizeof text);
  assert_string_equal(text, "power cap, power brake, heat, hardware slowdown, application clocks");
  // cut off, but never written past the end
  char small[8] = "xxxxxxx";
  brim_throttle_text(~0u, small, sizeof small);
  assert_string_equal(small, "power c");
  char one[1] = {'x'};
  brim_throttle_text(~0u, one, sizeof one);
  assert_string_equal(one, "");
}

static void test_bits(void **state) {
  (void)state;
  assert_int_equal(brim_throttle_bits(0), 0);
  assert_int_equal(brim_throttle_bits(0x1), 0);    // idle
  assert_int_equal(brim_throttle_bits(0x110), 0);  // boost in step with others; a display's clock
  assert_int_equal(brim_throttle_bits(0x2), BIT(APPLICATION));
  assert_int_equal(brim_throttle_bits(0x4), BIT(POWER_CAP));
  assert_int_equal(brim_throttle_bits(0x20), BIT(THERMAL));
  assert_int_equal(brim_throttle_bits(0x40), BIT(THERMAL));
  assert_int_equal(brim_throttle_bits(0x8), BIT(HARDWARE));
  // a general bit beside a specific one counts as the specific one
  assert_int_equal(brim_throttle_bits(0x48), BIT(THERMAL));
  assert_int_equal(brim_throttle_bits(0x88), BIT(POWER_BRAKE));
  assert_int_equal(brim_throttle_bits(0x28), BIT(THERMAL) | BIT(HARDWARE));
}

//---------------------------------- figures ----------------------------------

static void test_steady(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_near(u.seconds, 1, 1e-9);
  assert_int_equal(u.readings, 20);
  assert_near(u.gpu_percent, 100, 1e-9);
  assert_near(u.sm_percent, 90, 1e-9);
  assert_near(u.occupancy_percent, 40, 1e-9);
  assert_near(u.tensor_percent, 50, 1e-9);
  assert_near(u.dram_percent, 60, 1e-9);
  assert_near(u.power_w, 600, 0.01);
  assert_near(u.energy_j, 600, 0.01);
  assert_near(u.power_limit_w, 700, 1e-9);
  assert_near(u.clock_mhz, 1980, 0);
  assert_near(u.clock_low_mhz, 1980, 0);
  assert_near(u.clock_max_mhz, 1980, 0);
  assert_near(u.temperature_c, 60, 0);
  assert_int_equal(u.throttle, 0);
  // reading does not end the interval
  u = run(s, 20, 50 * MS);
  assert_near(u.seconds, 2, 1e-9);
  assert_int_equal(u.readings, 40);
  assert_near(u.energy_j, 1200, 0.02);
  // the next interval begins empty
  fake_nvml_becomes(FAKE_NVML_HOT);
  brim_gpu_sampler_mark(s);
  u = run(s, 10, 50 * MS);
  assert_int_equal(u.readings, 10);
  assert_near(u.clock_mhz, 1200, 0);
  assert_near(u.temperature_c, 88, 0);
  assert_near(u.tensor_percent, 30, 1e-9);
  assert_int_equal(u.throttle, BIT(THERMAL));
  close_sampler(s);
}

// The clock falls in the middle: the median of 8 high and 12 low readings, and time-weighted means.
static void test_the_clock_falls(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  fake_nvml_at(425 * MS, FAKE_NVML_HOT);
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_near(u.clock_mhz, 1200, 0);
  assert_near(u.clock_low_mhz, 1200, 0);
  assert_near(u.temperature_c, 88, 0);
  assert_int_equal(u.throttle, BIT(THERMAL));
  assert_near(u.tensor_percent, 50 * 0.425 + 30 * 0.575, 1e-9);
  assert_near(u.power_w, 600 * 0.425 + 300 * 0.575, 20);  // the counter's first step left out
  assert_near(u.energy_j, u.power_w * u.seconds, 1e-9);
  close_sampler(s);
  // as many high readings as low ones
  s = open_scripted();
  fake_nvml_at(525 * MS, FAKE_NVML_HOT);
  brim_gpu_sampler_mark(s);
  u = run(s, 20, 50 * MS);
  assert_near(u.clock_mhz, (1980 + 1200) / 2.0, 0);
  close_sampler(s);
}

// A reason that was seen in fewer than a tenth of the readings does not count.
static void test_a_tenth(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  fake_nvml_at(0, FAKE_NVML_HOT);
  fake_nvml_at(75 * MS, FAKE_NVML_BUSY);
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 10, 50 * MS);
  assert_int_equal(u.throttle, BIT(THERMAL));  // 1 of 10
  assert_near(u.clock_low_mhz, 1200, 0);
  u = run(s, 1, 50 * MS);
  assert_int_equal(u.throttle, 0);  // 1 of 11
  assert_near(u.clock_low_mhz, 1200, 0);
  assert_near(u.clock_mhz, 1980, 0);
  close_sampler(s);
}

// A GPU that waits for data lowers its clock; those readings do not count, and nothing is wrong.
static void test_idle(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  fake_nvml_at(275 * MS, FAKE_NVML_IDLE);
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_near(u.clock_mhz, 1980, 0);
  assert_near(u.clock_low_mhz, 1980, 0);
  assert_int_equal(u.throttle, 0);
  assert_near(u.sm_percent, 90 * 0.275, 1e-9);
  // idle for a whole interval: the clock is unknown
  brim_gpu_sampler_mark(s);
  u = run(s, 10, 50 * MS);
  assert_true(isnan(u.clock_mhz) && isnan(u.clock_low_mhz));
  assert_near(u.clock_max_mhz, 1980, 0);
  assert_near(u.gpu_percent, 0, 1e-9);
  assert_near(u.power_w, 75, 0.01);
  close_sampler(s);
}

// The driver's utilisation covers the last sixth of a second, so a shorter interval has none. GPM's covers the interval.
static void test_utilisation_is_late(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  fake_nvml_at(0, FAKE_NVML_IDLE);
  fake_nvml.metric_code[BRIM_NVML_GPM_GRAPHICS_UTIL] = BRIM_NVML_NOT_SUPPORTED;
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 3, 50 * MS);
  assert_true(isnan(u.gpu_percent));
  assert_int_equal(u.readings, 3);
  u = run(s, 5, 50 * MS);
  assert_near(u.gpu_percent, 0, 1e-9);
  fake_nvml.metric_code[BRIM_NVML_GPM_GRAPHICS_UTIL] = BRIM_NVML_SUCCESS;
  brim_gpu_sampler_mark(s);
  u = run(s, 3, 50 * MS);
  assert_near(u.gpu_percent, 0, 1e-9);
  close_sampler(s);
}

//---------------------------------- energy ----------------------------------

// A counter that moves every 100 ms gives the power to a tenth if its steps are far enough apart; in a shorter interval the
// driver's readings do.
static void test_coarse_counter(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  fake_nvml.energy_step_ns = 100 * MS;
  fake_nvml_pass(93 * MS);
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 30, 50 * MS);
  assert_near(u.power_w, 600, 60);
  assert_near(u.energy_j, u.power_w * 1.5, 1e-6);
  // 300 ms: two or three steps, known to 50 ms each
  brim_gpu_sampler_mark(s);
  u = run(s, 6, 50 * MS);
  assert_near(u.power_w, 600, 1e-9);
  assert_near(u.energy_j, 180, 1e-6);
  // shorter than a step: never 0
  brim_gpu_sampler_mark(s);
  u = run(s, 1, 20 * MS);
  assert_near(u.power_w, 600, 1e-9);
  assert_near(u.energy_j, 12, 1e-6);
  close_sampler(s);
}

static void test_without_a_counter(void **state) {
  (void)state;
  fake_nvml_reset(true);
  fake_nvml.code[FAKE_NVML_ENERGY] = BRIM_NVML_NOT_SUPPORTED;
  brim_nvml_api api = fake_nvml_api();
  brim_gpu_sampler *s = open_sampler(&api);
  fake_nvml_at(525 * MS, FAKE_NVML_HOT);
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_near(u.power_w, 450, 1e-6);
  assert_near(u.energy_j, 450, 1e-6);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_ENERGY), 1);
  close_sampler(s);
  // an energy counter without power readings
  fake_nvml_reset(true);
  fake_nvml.code[FAKE_NVML_POWER] = BRIM_NVML_NOT_SUPPORTED;
  s = open_sampler(&api);
  u = run(s, 20, 50 * MS);
  assert_near(u.power_w, 600, 0.1);
  // neither, in an interval too short for the counter
  brim_gpu_sampler_mark(s);
  u = run(s, 2, 50 * MS);
  assert_true(isnan(u.power_w) && isnan(u.energy_j));
  close_sampler(s);
}

// The driver is reloaded in the middle of an interval: the counter gives no difference.
static void test_counter_starts_anew(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  brim_gpu_sampler_mark(s);
  run(s, 10, 50 * MS);
  fake_nvml.energy_offset_mj = 6000000;
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_near(u.power_w, 600, 1e-9);
  assert_near(u.energy_j, 900, 1e-6);
  close_sampler(s);
}

//---------------------------------- GPM ----------------------------------

static void test_short_intervals(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  brim_gpu_sampler_mark(s);
  brim_gpu_usage u = run(s, 1, 100 * MS - 1);
  assert_no_activity(&u);
  assert_int_equal(u.readings, 1);
  assert_near(u.clock_mhz, 1980, 0);
  u = run(s, 1, 1);
  assert_near(u.sm_percent, 90, 1e-6);
  // an interval of no length
  brim_gpu_sampler_mark(s);
  u = run(s, 1, 0);
  assert_true(isnan(u.seconds) && isnan(u.energy_j));
  assert_near(u.power_w, 600, 1e-9);
  close_sampler(s);
}

static void test_gpm_failures(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  brim_gpu_usage u;
  // calls that fail, and readings that no GPU has
  fake_nvml.metric_code[BRIM_NVML_GPM_ANY_TENSOR_UTIL] = BRIM_NVML_NOT_SUPPORTED;
  u = run(s, 5, 50 * MS);
  assert_true(isnan(u.tensor_percent));
  assert_near(u.sm_percent, 90, 1e-6);
  fake_nvml.gpm_scale = 1.15;
  u = run(s, 1, 50 * MS);
  assert_near(u.sm_percent, 100, 0);
  assert_near(u.dram_percent, 69, 1e-6);
  fake_nvml.gpm_scale = 1e15;
  u = run(s, 1, 50 * MS);
  assert_no_activity(&u);
  fake_nvml.gpm_scale = (double)NAN;
  u = run(s, 1, 50 * MS);
  assert_no_activity(&u);
  fake_nvml.gpm_scale = -1;
  u = run(s, 1, 50 * MS);
  assert_no_activity(&u);
  fake_nvml.gpm_scale = 1;
  // a temporary failure costs its interval
  fake_nvml.code[FAKE_NVML_GPM_SAMPLE] = BRIM_NVML_UNKNOWN_ERROR;
  brim_gpu_sampler_mark(s);
  fake_nvml.code[FAKE_NVML_GPM_SAMPLE] = 0;
  u = run(s, 5, 50 * MS);
  assert_no_activity(&u);
  brim_gpu_sampler_mark(s);
  u = run(s, 5, 50 * MS);
  assert_near(u.sm_percent, 90, 1e-6);
  // without permission: tried once, and everything else works
  fake_nvml.code[FAKE_NVML_GPM_SAMPLE] = BRIM_NVML_NO_PERMISSION;
  brim_gpu_sampler_mark(s);
  int asked = fake_nvml_calls(FAKE_NVML_GPM_SAMPLE);
  for (int i = 0; i < 3; i++) {
    u = run(s, 5, 50 * MS);
    assert_no_activity(&u);
    assert_near(u.gpu_percent, 100, 1e-9);
    brim_gpu_sampler_mark(s);
  }
  assert_int_equal(fake_nvml_calls(FAKE_NVML_GPM_SAMPLE), asked);
  close_sampler(s);
}

// A GPU before Hopper, a driver without the calls, a driver without memory for a sample.
static void test_without_gpm(void **state) {
  (void)state;
  const fake_nvml_call fails[] = {FAKE_NVML_GPM_SUPPORT, FAKE_NVML_GPM_ALLOC,
                                  FAKE_NVML_GPM_METRICS};
  for (int i = 0; i < 3; i++) {
    fake_nvml_reset(true);
    fake_nvml.code[fails[i]] = BRIM_NVML_NOT_SUPPORTED;
    brim_nvml_api api = fake_nvml_api();
    brim_gpu_sampler *s = open_sampler(&api);
    brim_gpu_usage u = run(s, 20, 50 * MS);
    assert_no_activity(&u);
    assert_near(u.clock_mhz, 1980, 0);
    close_sampler(s);
  }
  fake_nvml_reset(true);
  brim_nvml_api api = fake_nvml_api();
  api.gpm_free = NULL;
  brim_gpu_sampler *s = open_sampler(&api);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_no_activity(&u);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_GPM_ALLOC), 0);
  close_sampler(s);
}

//---------------------------------- missing and failing calls ----------------------------------

static void test_old_driver(void **state) {
  (void)state;
  // the calls' older names; then a new call that reports itself unsupported
  for (int i = 0; i < 2; i++) {
    fake_nvml_reset(true);
    brim_nvml_api api = fake_nvml_api();
    if (i == 0) api.event_reasons = NULL;
    if (i == 0) api.temperature = NULL;
    fake_nvml.code[FAKE_NVML_EVENT_REASONS] = BRIM_NVML_FUNCTION_NOT_FOUND;
    fake_nvml.code[FAKE_NVML_TEMPERATURE] = BRIM_NVML_DEPRECATED;
    brim_gpu_sampler *s = open_sampler(&api);
    fake_nvml_becomes(FAKE_NVML_HOT);
    brim_gpu_sampler_mark(s);
    brim_gpu_usage u = run(s, 4, 50 * MS);
    assert_int_equal(u.throttle, BIT(THERMAL));
    assert_near(u.temperature_c, 88, 0);
    assert_int_equal(fake_nvml_calls(FAKE_NVML_EVENT_REASONS), i);
    close_sampler(s);
  }
  // none of the calls: unknown, and no warning
  fake_nvml_reset(true);
  const brim_nvml_api bare = {.init = fake_nvml_init,
                              .shutdown = fake_nvml_shutdown,
                              .by_uuid = fake_nvml_by_uuid,
                              .now_ns = fake_nvml_now};
  brim_gpu_sampler *s = open_sampler(&bare);
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_nothing(&u);
  assert_near(u.seconds, 1, 1e-9);
  close_sampler(s);
}

// A slice of a GPU: most values are unknown, and the counters would be those of the whole GPU.
static void test_slice(void **state) {
  (void)state;
  fake_nvml_reset(true);
  fake_nvml.known_uuid = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  fake_nvml.code[FAKE_NVML_UTILISATION] = BRIM_NVML_NOT_SUPPORTED;
  fake_nvml.code[FAKE_NVML_POWER] = BRIM_NVML_INVALID_ARGUMENT;
  brim_nvml_api api = fake_nvml_api();
  brim_gpu_sampler *s = open_sampler(&api);
  brim_gpu_usage u = run(s, 10, 50 * MS);
  assert_no_activity(&u);
  assert_true(isnan(u.gpu_percent));
  assert_near(u.clock_mhz, 1980, 0);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_GPM_SUPPORT), 0);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_UTILISATION), 1);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_POWER), 1);
  close_sampler(s);
}

static void count_warnings(void *ctx, brim_log_level level, const char *module, const char *text) {
  assert_int_equal(level, BRIM_LOG_WARN);
  assert_string_equal(module, "monitor");
  assert_non_null(strstr(text, FAKE_NVML_UUID));
  ++*(int *)ctx;
}

// The GPU falls off the bus: one warning, the interval is unknown, and it is asked no more.
static void test_lost(void **state) {
  (void)state;
  int warnings = 0;
  brim_log_set_sink(count_warnings, &warnings, BRIM_LOG_DEBUG);
  brim_gpu_sampler *s = open_scripted();
  run(s, 10, 50 * MS);
  fake_nvml_lose();
  brim_gpu_usage u = run(s, 10, 50 * MS);
  assert_nothing(&u);
  assert_near(u.seconds, 1, 1e-9);
  int asked = fake_nvml_calls(FAKE_NVML_ENERGY) + fake_nvml_calls(FAKE_NVML_GPM_SAMPLE);
  for (int i = 0; i < 5; i++) {
    brim_gpu_sampler_mark(s);
    u = run(s, 10, 50 * MS);
    assert_nothing(&u);
  }
  assert_int_equal(fake_nvml_calls(FAKE_NVML_ENERGY) + fake_nvml_calls(FAKE_NVML_GPM_SAMPLE),
                   asked);
  assert_int_equal(warnings, 1);
  close_sampler(s);
  // noticed first by the thread that marks
  s = open_scripted();
  fake_nvml_lose();
  brim_gpu_sampler_mark(s);
  u = run(s, 3, 50 * MS);
  assert_nothing(&u);
  assert_int_equal(warnings, 2);
  close_sampler(s);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_INFO);
}

// A passing error costs its reading; if nothing answers for long, the GPU is lost.
static void test_errors_that_pass(void **state) {
  (void)state;
  int warnings = 0;
  brim_log_set_sink(count_warnings, &warnings, BRIM_LOG_DEBUG);
  brim_gpu_sampler *s = open_scripted();
  brim_gpu_sampler_mark(s);
  fake_nvml.code[FAKE_NVML_CLOCK] = BRIM_NVML_UNKNOWN_ERROR;
  brim_gpu_usage u = run(s, 20, 50 * MS);
  assert_true(isnan(u.clock_mhz));
  assert_near(u.gpu_percent, 100, 0);
  assert_int_equal(u.readings, 20);
  fake_nvml.code[FAKE_NVML_CLOCK] = 0;
  u = run(s, 1, 50 * MS);
  assert_near(u.clock_mhz, 1980, 0);
  for (int i = 0; i < FAKE_NVML_CALL_COUNT; i++) fake_nvml.code[i] = BRIM_NVML_UNKNOWN_ERROR;
  u = run(s, 5, 50 * MS);
  assert_int_equal(u.readings, 21);
  assert_near(u.clock_mhz, 1980, 0);
  assert_int_equal(warnings, 0);
  // one answer in between
  fake_nvml.code[FAKE_NVML_POWER] = 0;
  u = run(s, 1, 50 * MS);
  assert_int_equal(u.readings, 22);
  fake_nvml.code[FAKE_NVML_POWER] = BRIM_NVML_UNKNOWN_ERROR;
  u = run(s, 9, 50 * MS);
  assert_int_equal(u.readings, 22);
  assert_int_equal(warnings, 0);
  u = run(s, 1, 50 * MS);
  assert_nothing(&u);
  assert_int_equal(warnings, 1);
  close_sampler(s);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_INFO);
}

static void test_start_failures(void **state) {
  (void)state;
  brim_gpu_sampler *s = (brim_gpu_sampler *)&s;
  fake_nvml_reset(true);
  brim_nvml_api api = fake_nvml_api();
  assert_ok(brim_gpu_monitor_open_api(&api, "", &monitor));
  const double periods[] = {0, -1, 0.019, (double)NAN};
  for (int i = 0; i < 4; i++) {
    assert_status(brim_gpu_sampler_start(monitor, FAKE_NVML_UUID, periods[i], &s), BRIM_EINVAL);
    assert_null(s);
  }
  assert_status(brim_gpu_sampler_start(monitor, "GPU-other", 1, &s), BRIM_EUNSUPPORTED);
  assert_null(s);
  for (uint64_t n = 1; n < 4; n++) {
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_gpu_sampler_start(monitor, FAKE_NVML_UUID, (double)INFINITY, &s);
    brim_alloc_fail_nth(0, 0);
    assert_true(status == BRIM_ENOMEM ? s == NULL : status == BRIM_OK && n > 2);
    brim_gpu_sampler_stop(s);
    assert_int_equal(fake_nvml_samples_alive(), 0);
  }
  brim_gpu_sampler_stop(NULL);
  brim_gpu_monitor_close(monitor);
}

//---------------------------------- long, and with the thread ----------------------------------

// Hundreds of trials on one sampler do not affect each other.
static void test_many_trials(void **state) {
  (void)state;
  brim_gpu_sampler *s = open_scripted();
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  for (int i = 0; i < 500; i++) {
    bool hot = i % 7 == 0;
    fake_nvml.states[0].state = hot ? FAKE_NVML_HOT : FAKE_NVML_BUSY;
    brim_gpu_sampler_mark(s);
    brim_gpu_usage u = run(s, 6, 50 * MS);
    assert_int_equal(u.readings, 6);
    assert_near(u.clock_mhz, hot ? 1200 : 1980, 0);
    assert_near(u.tensor_percent, hot ? 30 : 50, 1e-6);
    assert_int_equal(u.throttle, hot ? BIT(THERMAL) : 0);
    assert_int_equal(fake_nvml_samples_alive(), 2);
  }
  brim_alloc_get_stats(&after);
  assert_int_equal(before.live_bytes[BRIM_MEM_OVERHEAD], after.live_bytes[BRIM_MEM_OVERHEAD]);
  assert_int_equal(fake_nvml_calls(FAKE_NVML_GPM_ALLOC), 2);
  close_sampler(s);
}

// Waits until the thread has made this many more readings.
static void await_readings(int more) {
  int until = fake_nvml_calls(FAKE_NVML_POWER) + more;
  while (fake_nvml_calls(FAKE_NVML_POWER) < until) brim_clock_sleep_ns(2 * MS);
}

static void test_thread(void **state) {
  (void)state;
  fake_nvml_reset(false);
  brim_nvml_api api = fake_nvml_api();
  brim_gpu_sampler *s = NULL;
  brim_gpu_usage u;
  assert_ok(brim_gpu_monitor_open_api(&api, "", &monitor));
  assert_ok(brim_gpu_sampler_start(monitor, FAKE_NVML_UUID, 0.02, &s));
  for (int i = 0; i < 5; i++) {
    brim_gpu_sampler_mark(s);
    if (i == 2) fake_nvml_becomes(FAKE_NVML_HOT);
    await_readings(2);
    brim_gpu_sampler_read(s, &u);
    assert_true(u.readings >= 3);
    assert_near(u.clock_mhz, i < 2 ? 1980 : 1200, 0);
    assert_int_equal(u.throttle, i < 2 ? 0 : BIT(THERMAL));
  }
  fake_nvml_lose();
  brim_gpu_sampler_read(s, &u);
  assert_nothing(&u);
  close_sampler(s);
  // stops at once, in the middle of a long period
  fake_nvml_reset(false);
  s = open_sampler(&api);
  close_sampler(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_steady),
      cmocka_unit_test(test_the_clock_falls),
      cmocka_unit_test(test_a_tenth),
      cmocka_unit_test(test_idle),
      cmocka_unit_test(test_utilisation_is_late),
      cmocka_unit_test(test_coarse_counter),
      cmocka_unit_test(test_without_a_counter),
      cmocka_unit_test(test_counter_starts_anew),
      cmocka_unit_test(test_short_intervals),
      cmocka_unit_test(test_gpm_failures),
      cmocka_unit_test(test_without_gpm),
      cmocka_unit_test(test_old_driver),
      cmocka_unit_test(test_slice),
      cmocka_unit_test(test_lost),
      cmocka_unit_test(test_errors_that_pass),
      cmocka_unit_test(test_start_failures),
      cmocka_unit_test(test_many_trials),
      cmocka_unit_test(test_thread),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
