// Loading plug-ins: good ones, wrong ones of every kind, and the state kept for each.
#include "backend/backend.h"
#include "backend/plugin_toy.h"
#include "base/base.h"
#include "brim/source.h"
#include "test.h"

#define PLUGINS BRIM_BUILD_DIR "/tests/plugins"

static void assert_detail(const char *text) {
  if (!strstr(brim_status_detail(), text)) {
    fail_msg("'%s' does not say '%s'", brim_status_detail(), text);
  }
}

static void test_empty(void **state) {
  (void)state;
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  assert_int_equal(brim_registry_plugin_count(r), 0);
  assert_ptr_equal(brim_registry_backend(r, "ref"), brim_backend_ref());
  assert_null(brim_registry_backend(r, "toy"));
  assert_null(brim_registry_extension(r, "data.source/toy"));
  assert_ok(brim_registry_load_folder(r, BRIM_BUILD_DIR "/no/such/folder"));
  assert_int_equal(brim_registry_plugin_count(r), 0);
  brim_registry_destroy(r);
  brim_registry_destroy(NULL);
}

static void test_good(void **state) {
  (void)state;
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load(r, PLUGINS "/good/libbrim_toy.so"));
  assert_int_equal(brim_registry_plugin_count(r), 1);
  const char *name, *version, *path, *why;
  brim_registry_plugin(r, 0, &name, &version, &path, &why);
  assert_string_equal(name, "toy");
  assert_string_equal(version, "1.2.3");
  assert_string_equal(path, PLUGINS "/good/libbrim_toy.so");
  assert_null(why);
  assert_string_equal(brim_registry_backend(r, "toy")->name, "toy");

  const brim_source_table *source = brim_registry_extension(r, "data.source/toy");
  assert_non_null(source);
  void *s = NULL;
  brim_source_info info;
  uint8_t input[2];
  int32_t label = -1;
  assert_ok(source->open(&(brim_source_how){.split = "train"}, &s));
  source->info(s, &info);
  assert_int_equal(info.count, 4);
  assert_ok(source->read(s, 2, input, &label));
  assert_int_equal(label, 2);
  source->close(s);
  // The detail of a failure inside the plug-in arrives here.
  assert_status(source->open(&(brim_source_how){.path = "x"}, &s), BRIM_EINVAL);
  assert_detail("dummy source: takes no path");

  // Loading the same one again is refused, and the first stays.
  assert_status(brim_registry_load(r, PLUGINS "/good/libbrim_toy.so"), BRIM_EEXIST);
  assert_detail("already loaded from");
  assert_non_null(brim_registry_backend(r, "toy"));
  brim_registry_destroy(r);
}

typedef struct refusal {
  const char *file;
  brim_status status;
  const char *says;
} refusal;

static void test_refusals(void **state) {
  (void)state;
  static const refusal list[] = {
      {"bad/libbrim_oldabi.so", BRIM_EABI, "built for plug-in interface 4711, but this brim has 1"},
      {"bad/libbrim_oldbackend.so", BRIM_EABI,
       "built for backend interface 99, but this brim has 8"},
      {"bad/libbrim_refuses.so", BRIM_EABI, "made for brim's interface 4711, this one has 1"},
      {"bad/libbrim_mute.so", BRIM_EDEVICE, "the plug-in gave no reason (device error)"},
      {"bad/libbrim_notable.so", BRIM_EABI, "returned no table"},
      {"bad/libbrim_nocopy.so", BRIM_EABI, "lacks the required member copy"},
      {"bad/libbrim_halfstream.so", BRIM_EABI, "1 of the 3 stream members"},
      {"bad/libbrim_halfgraph.so", BRIM_EABI, "1 of the 4 graph members"},
      {"bad/libbrim_halfcomm.so", BRIM_EABI, "lacks the required member comm"},
      {"bad/libbrim_norun.so", BRIM_EABI, "op add lacks validate or run"},
      {"bad/libbrim_nosymbol.so", BRIM_EABI, "does not export brim_plugin_query"},
      {"bad/libbrim_absent.so", BRIM_ENOENT, "libbrim_absent.so"},
      {"good/libbrim_declines.so", BRIM_EUNSUPPORTED, "libtoy.so.1 not found"},
  };
  const size_t count = sizeof(list) / sizeof(list[0]);
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  for (size_t i = 0; i < count; i++) {
    char *path = brim_fs_join(PLUGINS, list[i].file);
    assert_non_null(path);
    assert_status(brim_registry_load(r, path), list[i].status);
    assert_detail(list[i].says);
    const char *name, *version, *at, *why;
    assert_int_equal(brim_registry_plugin_count(r), i + 1);
    brim_registry_plugin(r, i, &name, &version, &at, &why);
    assert_string_equal(at, path);
    assert_non_null(why);
    assert_non_null(strstr(why, list[i].says));
    assert_string_equal(version, "");
    assert_null(brim_registry_backend(r, name));
    brim_free(path);
  }
  brim_registry_destroy(r);
}

static void test_not_a_library(void **state) {
  (void)state;
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_fs_write("libbrim_text.so", "hello\n", 6));
  assert_status(brim_registry_load(r, "./libbrim_text.so"), BRIM_ENOENT);
  assert_detail("libbrim_text.so");
  brim_registry_destroy(r);
}

// A folder with good plug-ins and one that declines is no error.
static void test_folder(void **state) {
  (void)state;
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load_folder(r, PLUGINS "/good"));
  assert_int_equal(brim_registry_plugin_count(r), 3);
  const char *name, *why;
  static const char *const names[] = {"declines", "stream", "toy"};
  for (size_t i = 0; i < 3; i++) {
    brim_registry_plugin(r, i, &name, NULL, NULL, &why);
    assert_string_equal(name, names[i]);
    assert_true((why != NULL) == (i == 0));
  }
  brim_registry_destroy(r);
}

static void test_default_path(void **state) {
  (void)state;
  brim_registry *r;
  assert_int_equal(setenv("BRIM_PLUGIN_PATH", PLUGINS "/good::" PLUGINS "/bad", 1), 0);
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load_default(r));
  assert_non_null(brim_registry_backend(r, "toy"));
  assert_int_equal(brim_registry_plugin_count(r), 3 + 11);
  brim_registry_destroy(r);
  assert_int_equal(setenv("BRIM_PLUGIN_PATH", "", 1), 0);
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load_default(r));
  assert_int_equal(brim_registry_plugin_count(r), 0);
  brim_registry_destroy(r);
  assert_int_equal(unsetenv("BRIM_PLUGIN_PATH"), 0);
}

// The host counts each allocation of a plug-in under the right tag.
static void test_host_allocations(void **state) {
  (void)state;
  brim_registry *r;
  brim_device *device;
  brim_alloc_stats before, with, after;
  void *planned, *overhead;
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load(r, PLUGINS "/good/libbrim_toy.so"));
  assert_ok(brim_device_open(r, "toy", NULL, &device));
  brim_alloc_get_stats(&before);
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, 1000, &planned));
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_HOST, 77, &overhead));
  brim_alloc_get_stats(&with);
  assert_int_equal(with.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED], 1000);
  assert_int_equal(with.live_bytes[BRIM_MEM_OVERHEAD] - before.live_bytes[BRIM_MEM_OVERHEAD], 77);
  assert_int_equal((uintptr_t)planned % BRIM_ALIGN, 0);
  brim_device_free(device, BRIM_BUFFER_DEVICE, planned);
  brim_device_free(device, BRIM_BUFFER_HOST, overhead);
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED]);
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void collect(void *ctx, brim_log_level level, const char *module, const char *text) {
  if (level == BRIM_LOG_DEBUG && strcmp(module, "toy") == 0 && strcmp(text, "hello") == 0) {
    ++*(int *)ctx;
  }
}

static void test_host_log(void **state) {
  (void)state;
  int seen = 0;
  brim_registry *r;
  brim_log_set_sink(collect, &seen, BRIM_LOG_DEBUG);
  assert_ok(brim_registry_create(&r));
  assert_ok(brim_registry_load(r, PLUGINS "/good/libbrim_toy.so"));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  assert_int_equal(seen, 1);
  brim_registry_destroy(r);
}

static brim_status whole_life(void) {
  brim_registry *r = NULL;
  brim_device *device = NULL;
  void *buffer = NULL;
  brim_event *event = NULL;
  BRIM_TRY(brim_registry_create(&r));
  brim_status status = brim_registry_load_folder(r, PLUGINS "/good");
  if (!status) status = brim_device_open(r, "stream:1", NULL, &device);
  if (!status) status = brim_device_alloc(device, BRIM_BUFFER_DEVICE, 100, &buffer);
  if (!status) status = brim_event_create(device, &event);
  if (device) {
    brim_event_destroy(device, event);
    brim_device_free(device, BRIM_BUFFER_DEVICE, buffer);
  }
  brim_device_close(device);
  brim_registry_destroy(r);
  return status;
}

// Each allocation fails once: a clean status each time, and nothing is left behind.
static void test_allocation_failures(void **state) {
  (void)state;
  assert_ok(whole_life());
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  int failures = 0;
  for (uint64_t n = 1; n < 1000; n++) {
    uint64_t injected = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = whole_life();
    brim_alloc_fail_nth(0, 0);
    if (brim_alloc_failures() == injected) {
      assert_ok(status);
      break;
    }
    failures++;
    assert_true(status == BRIM_ENOMEM || status == BRIM_EOOM);
    brim_alloc_get_stats(&after);
    for (int t = 0; t < BRIM_MEM_TAG_COUNT; t++) {
      assert_int_equal(after.live_blocks[t], before.live_blocks[t]);
    }
  }
  assert_true(failures > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty),
      cmocka_unit_test(test_good),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_not_a_library),
      cmocka_unit_test(test_folder),
      cmocka_unit_test(test_default_path),
      cmocka_unit_test(test_host_allocations),
      cmocka_unit_test(test_host_log),
      cmocka_unit_test(test_allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
