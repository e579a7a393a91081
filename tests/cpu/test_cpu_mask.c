// Features that BRIM_CPU_MASK hides are neither used nor claimed. The program runs once with each mask.
#include "test.h"

#include "backend/backend.h"

static const char *PLUGIN = BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so";

static bool masks(const char *word) {
  const char *text = getenv("BRIM_CPU_MASK");
  return text && *text && strstr(text, word);
}

static void hidden_features_are_not_claimed(void **state) {
  (void)state;
  brim_registry *registry = NULL;
  brim_device *device = NULL;
  brim_device_options options = {.threads = 1};
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load(registry, PLUGIN));
  if (masks("nothing-known")) {
    assert_int_equal(brim_device_open(registry, "cpu", &options, &device), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "nothing-known"));
    brim_registry_destroy(registry);
    return;
  }
  assert_ok(brim_device_open(registry, "cpu", &options, &device));
  const char *name = device->info.name, *library = device->info.library;
  bool bf16 = device->info.fast_types & 1u << BRIM_BF16;
  if (!masks("")) {
    // Unmasked, the claim agrees with the CPU's name.
#if defined(__aarch64__)
    assert_int_equal(bf16, strstr(name, " bf16") != NULL);
#endif
  } else if (strcmp(getenv("BRIM_CPU_MASK"), "amx") == 0) {
    // Without AMX, Intel's bf16 is slower than fp32: `auto` does not choose it.
    if (strstr(name, "Intel")) assert_false(bf16);
    assert_null(strstr(library, "core_amx"));
    assert_null(strstr(library, "brim amx"));
  } else {
    assert_false(bf16);
    assert_null(strstr(name, "bf16"));
    assert_null(strstr(library, "bf16 neon"));
    assert_null(strstr(library, "core_amx"));
    assert_null(strstr(library, "core_bf16"));
    assert_null(strstr(library, "brim amx"));
  }
  if (masks("avx")) assert_null(strstr(library, "avx512"));
  if (masks("avx2")) assert_null(strstr(name, "avx"));
  if (masks("neon")) assert_null(strstr(name, "neon"));
  // fp16 is never fast here, because it is not supported.
  assert_false(device->info.fast_types & 1u << BRIM_F16);
  brim_device_close(device);
  brim_registry_destroy(registry);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hidden_features_are_not_claimed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
