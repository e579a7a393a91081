// The precision of `auto` and use_amp: 16 bits only if the device reports them as fast, otherwise a warning with the
// reason. The tests set the device's report, so that every machine runs all of them.
#include "fixture.h"

static char said[4096];

static void keep(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  strncat(said, text, sizeof said - strlen(said) - 1);
}

// The precision for `override` on a device with these fast types.
static const char *taken(const char *backend, uint32_t fast_types, const char *override) {
  fixture f;
  const char *overrides[] = {override};
  assert_ok(fixture_open(&f, backend, fixture_yaml, overrides, 1));
  brim_work_close(f.work);
  f.work = NULL;
  f.device->info.fast_types = fast_types;
  said[0] = '\0';
  brim_log_set_sink(keep, NULL, BRIM_LOG_WARN);
  brim_work_context context = {.registry = f.registry, .device = f.device};
  assert_ok(brim_work_open(&context, f.config, &f.work));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  int knob = brim_work_knob(f.work, "precision");
  assert_true(knob >= 0);
  const brim_knob *k = &f.work->knobs[knob];
  const char *word = k->choices[k->value];
  fixture_close(&f);
  return word;
}

static void emulated_types_are_not_taken(void **state) {
  (void)state;
  static const char *const asks[] = {"training.precision=auto", "training.use_amp=true",
                                     "mixed_precision=true"};
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
    assert_string_equal(taken("cpu", 0, asks[i]), "fp32");
    assert_non_null(
        strstr(said, "precision: fp32, because this CPU has no fast bf16 instructions"));
    assert_string_equal(taken("ref", 0, asks[i]), "fp32");
    assert_non_null(strstr(said, "because the ref backend only emulates 16 bits"));
  }
}

static void fast_types_are_taken(void **state) {
  (void)state;
  assert_string_equal(taken("cpu", 1u << BRIM_BF16, "training.precision=auto"), "bf16");
  assert_string_equal(said, "");
  assert_string_equal(taken("ref", 1u << BRIM_F16, "training.use_amp=true"), "fp16");
  assert_string_equal(taken("ref", 1u << BRIM_F16 | 1u << BRIM_BF16, "use_amp=true"), "bf16");
  // The device claims fp16, but the cpu backend has none.
  assert_string_equal(taken("cpu", 1u << BRIM_F16, "training.use_amp=true"), "fp32");
}

static void named_types_are_taken_as_they_are(void **state) {
  (void)state;
  assert_string_equal(taken("cpu", 0, "training.precision=bf16"), "bf16");
  assert_string_equal(said, "");
  assert_string_equal(taken("cpu", 1u << BRIM_BF16, "training.precision=fp32"), "fp32");
  assert_string_equal(taken("cpu", 1u << BRIM_BF16, "training.use_amp=false"), "fp32");
  assert_string_equal(said, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(emulated_types_are_not_taken),
      cmocka_unit_test(fast_types_are_taken),
      cmocka_unit_test(named_types_are_taken_as_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
