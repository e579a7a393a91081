// What the reader and the writer of safetensors share. The format stands in engine_safetensors.c.
#ifndef BRIM_ENGINE_SAFETENSORS_H_
#define BRIM_ENGINE_SAFETENSORS_H_

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

// "F32"; NULL for types the format does not have here.
const char *brim_safetensors_dtype_name(brim_dtype dtype);
// A copy of an object of strings. jansson's own copy drops members when memory runs out.
brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_SAFETENSORS_H_
