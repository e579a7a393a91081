#include "cli_changed.h"

#include <string.h>

#include "cli_test.h"
#include "engine/engine.h"

enum { MAX_ENTRIES = 64 };

void write_changed(const char *from, const char *to, const char *tensor, size_t at, float value) {
  brim_safetensors *file;
  brim_safetensors_entry entries[MAX_ENTRIES];
  unsigned char *changed = NULL;
  assert_ok(brim_safetensors_open(from, &file));
  size_t count = brim_safetensors_count(file);
  assert_true(count <= MAX_ENTRIES);
  for (size_t i = 0; i < count; i++) {
    brim_safetensors_entry *e = &entries[i];
    *e = *brim_safetensors_at(file, i);
    if (strcmp(e->name, tensor) != 0) continue;
    assert_true(e->dtype == BRIM_F32 && (at + 1) * sizeof value <= e->bytes);
    changed = malloc(e->bytes);
    assert_non_null(changed);
    memcpy(changed, e->data, e->bytes);
    memcpy(changed + at * sizeof value, &value, sizeof value);
    e->data = changed;
  }
  assert_non_null(changed);
  json_t *meta = json_deep_copy(brim_safetensors_metadata(file));
  assert_non_null(meta);
  json_object_del(meta, BRIM_SAFETENSORS_SUM);
  assert_ok(brim_safetensors_write(to, entries, count, meta));
  json_decref(meta);
  brim_safetensors_close(file);
  free(changed);
}
