// What the reader and the writer of safetensors share. The format stands in engine_safetensors.c.
#ifndef BRIM_ENGINE_SAFETENSORS_H_
#define BRIM_ENGINE_SAFETENSORS_H_

#include "base/base_fs.h"
#include "base/base_xxh64.h"
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

// "F32"; NULL for types the format does not have here.
const char *brim_safetensors_dtype_name(brim_dtype dtype);
// A copy of an object of strings; NULL gives an empty one. jansson's own copy drops members when
// memory runs out.
brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out);
// The digits of the checksum in a header's text; NULL when it has none in the form brim writes.
enum { BRIM_SAFETENSORS_DIGITS = 16 };
#define BRIM_SAFETENSORS_SUM_KIND "xxh64:"  // in front of them
const char *brim_safetensors_sum_digits(const char *header, size_t size);
// The checksum of what went through `sum`, as these digits.
void brim_safetensors_sum_format(const brim_xxh64 *sum, char out[BRIM_SAFETENSORS_DIGITS + 1]);
// brim_safetensors_write for values that are made on the way: put writes the `bytes` of entries[i],
// called once for each in order; `data` is not looked at.
typedef brim_status (*brim_safetensors_put)(void *ctx, size_t i, brim_fs_writer *w);
brim_status brim_safetensors_write_with(const char *path, const brim_safetensors_entry *entries,
                                        size_t count, const json_t *metadata,
                                        brim_safetensors_put put, void *ctx);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_SAFETENSORS_H_
