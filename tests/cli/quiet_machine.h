// Known ceilings of the machine, so that no command measures them: figures measured beside other programs are not
// remembered, and would cost every command of a test a second or two again.
#ifndef BRIM_TESTS_CLI_QUIET_MACHINE_H_
#define BRIM_TESTS_CLI_QUIET_MACHINE_H_

#include "backend/backend.h"
#include "base/base.h"
#include "json_file.h"
#include "measure/measure_int.h"
#include "test.h"

// Measures the device in a millisecond, into FOLDER/brim/ceilings.json.
static inline void quiet_machine_measure(const char *folder, const char *device) {
  static const brim_machine_sizes tiny = {.least = 16,
                                          .most = 16,
                                          .most_fp32 = 16,
                                          .copy_bytes = 65536,
                                          .h2d_bytes = 65536,
                                          .product_ms = 1,
                                          .window_ms = 0.02,
                                          .windows = 1,
                                          .spread = 1e9};
  char path[4096];
  brim_registry *registry = NULL;
  brim_device *opened = NULL;
  brim_machine_ceilings ceilings;
  const brim_device_options options = {0};
  const brim_machine_options how = {.folder = path};
  snprintf(path, sizeof path, "%s/brim", folder);
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load_folder(registry, BRIM_BUILD_DIR "/lib/brim"));
  assert_ok(brim_device_open(registry, device, &options, &opened));
  assert_ok(brim_machine_get(opened, &tiny, &how, &ceilings));
  brim_device_close(opened);
  brim_registry_destroy(registry);
}

// Sets every rate in FOLDER/brim/ceilings.json to `rate`, as measured while nothing else ran.
static inline void quiet_machine_set(const char *folder, double rate) {
  char path[4096], *text = NULL;
  snprintf(path, sizeof path, "%s/brim/ceilings.json", folder);
  json_t *root = json_file(path), *entry, *value;
  const char *key, *name;
  assert_true(json_object_size(json_object_get(root, "entries")) > 0);
  json_object_foreach(json_object_get(root, "entries"), key, entry) {
    json_object_foreach(entry, name, value) {
      if (json_is_number(value))
        assert_int_equal(json_object_set_new(entry, name, json_real(rate)), 0);
    }
    assert_int_equal(json_object_set_new(entry, "load", json_integer(0)), 0);
  }
  assert_ok(brim_json_dump(root, 0, &text));
  assert_ok(brim_fs_write(path, text, strlen(text)));
  brim_free(text);
  json_decref(root);
}

// Gives the commands of this program ceilings of the device that are far above their speed.
static inline void quiet_machine(const char *device) {
  char here[4096], folder[4096 + 8];
  assert_non_null(getcwd(here, sizeof here));
  snprintf(folder, sizeof folder, "%s/quiet", here);
  quiet_machine_measure(folder, device);
  quiet_machine_set(folder, 1e15);
  assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
}

#endif  // BRIM_TESTS_CLI_QUIET_MACHINE_H_
