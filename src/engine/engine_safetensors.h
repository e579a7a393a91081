// What the reader and the writer of safetensors share. The format stands in engine_safetensors.c.
#ifndef BRIM_ENGINE_SAFETENSORS_H_
#define BRIM_ENGINE_SAFETENSORS_H_

#include "base/base_fs.h"
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

// "F32"; NULL for types the format does not have here.
const char *brim_safetensors_dtype_name(brim_dtype dtype);
// A copy of an object of strings. jansson's own copy drops members when memory runs out.
brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out);
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
