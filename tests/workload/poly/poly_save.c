// Checkpoints of the polynomial workload.
#include <string.h>

#include "engine/engine.h"
#include "workload/poly/poly_rows.h"

static const char tensor[] = "poly.coefficients";

static brim_status put_int(json_t *meta, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return brim_json_put(meta, key, json_string(text));
}

brim_status poly_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  poly *p = (poly *)work;
  const brim_safetensors_entry entry = {.name = tensor,
                                        .dtype = BRIM_F64,
                                        .rank = 1,
                                        .dim = {p->degree + 1},
                                        .data = p->now.c,
                                        .bytes = (size_t)(p->degree + 1) * sizeof(double)};
  (void)weights_only;
  brim_json_setup();
  json_t *meta = json_object();
  brim_status s = brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1"));
  if (!s) s = brim_json_put(meta, "brim.workload", json_string("poly"));
  if (!s) s = put_int(meta, "brim.step", p->now.step);
  if (!s) s = put_int(meta, "brim.epoch", p->now.step / p->interval);
  if (!s) s = brim_json_put(meta, BRIM_SAFETENSORS_SUM, json_string(""));
  if (!s && extra && json_object_update(meta, (json_t *)extra)) {
    s = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!s) s = brim_safetensors_write(path, &entry, 1, meta);
  json_decref(meta);
  return s;
}

static brim_status read_file(poly *p, const char *path, json_t **extra, int64_t *step) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  const brim_safetensors_entry *e = brim_safetensors_find(file, tensor);
  bool fits = e && e->dtype == BRIM_F64 && e->rank == 1 && e->dim[0] == p->degree + 1;
  if (!status && !fits) status = brim_fail(BRIM_EINVAL, "%s is of another polynomial", path);
  if (!status) memcpy(p->now.c, e->data, e->bytes);
  const json_t *meta = brim_safetensors_metadata(file);
  const char *text = json_string_value(json_object_get(meta, "brim.step"));
  if (step && text) (void)brim_parse_i64(text, step);
  if (!status && extra) *extra = json_deep_copy(meta);
  brim_safetensors_close(file);
  return status;
}

brim_status poly_load(void *work, const char *path, json_t **extra) {
  poly *p = (poly *)work;
  BRIM_TRY(read_file(p, path, extra, &p->now.step));
  memset(p->now.sums, 0, sizeof p->now.sums);
  return BRIM_OK;
}

brim_status poly_use(void *work, const char *path, bool averaged) {
  (void)averaged;
  return read_file((poly *)work, path, NULL, NULL);
}
