// Inside data: built-in source tables, arguments of components, mapped files, gzip, IDX files.
#ifndef BRIM_DATA_INT_H_
#define BRIM_DATA_INT_H_

#include "data/data.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- built-in sources ----------------------------------

typedef struct brim_source_builtin {
  const char *name;
  const brim_source_table *table;
  uint64_t (*host_bytes)(void *state);  // what a plan has to foretell
} brim_source_builtin;

extern const brim_source_table brim_source_idx;
uint64_t brim_source_idx_host_bytes(void *state);
extern const brim_source_table brim_source_synthetic;

//---------------------------------- arguments ----------------------------------

// Arguments of a component as JSON text, the form in which every source gets them; brim_free.
brim_status brim_data_args_dump(const brim_component *component, char **out);

// The other way: parse, and refuse names that are not in `known` (NULL-terminated).
brim_status brim_data_args_parse(const char *source, const char *json, const char *const *known,
                                 json_t **out);
// Typed reads; an absent argument leaves *value as it is.
brim_status brim_data_args_int(const json_t *args, const char *source, const char *name,
                               int64_t min, int64_t max, int64_t *value);
brim_status brim_data_args_real(const json_t *args, const char *source, const char *name,
                                double min, double max, double *value);
brim_status brim_data_args_string(const json_t *args, const char *source, const char *name,
                                  const char **value);  // lives as long as args
// A whole number or a list of 1 to BRIM_SOURCE_MAX_RANK of them, each >= 1.
brim_status brim_data_args_shape(const json_t *args, const char *source, const char *name,
                                 int64_t dim[BRIM_SOURCE_MAX_RANK], int32_t *rank);

//---------------------------------- files ----------------------------------

// A file mapped for reading.
typedef struct brim_data_map {
  const uint8_t *data;
  size_t size;
} brim_data_map;
brim_status brim_data_map_open(const char *path, brim_data_map *out);
void brim_data_map_close(brim_data_map *map);  // an empty one is fine

// Gzip from memory, read in pieces. `name` and the bytes must outlive it.
typedef struct brim_data_gz brim_data_gz;
bool brim_data_is_gz(const void *data, size_t size);
brim_status brim_data_gz_open(const void *data, size_t size, const char *name, brim_data_gz **out);
void brim_data_gz_close(brim_data_gz *gz);
// Exactly n bytes, or an error that names the offset in the compressed file.
brim_status brim_data_gz_read(brim_data_gz *gz, void *out, size_t n);
// What was read must have been all of it, checksum included.
brim_status brim_data_gz_finish(brim_data_gz *gz);
// Bytes `size` bytes of gzip can unpack to at most (deflate's own limit).
uint64_t brim_data_gz_limit(size_t size);

//---------------------------------- IDX files ----------------------------------

// One IDX array. body is packed, row-major and big-endian, as in the file.
typedef struct brim_idx_array {
  brim_idx header;
  const uint8_t *body;
  size_t body_bytes;
  void *memory;  // unpacked body (planned bytes); NULL when body lies in the file's own bytes
} brim_idx_array;
// From the bytes of a plain or gzip file, which a plain array keeps pointing into.
brim_status brim_idx_array_load(const void *data, size_t size, const char *name,
                                brim_idx_array *out);
void brim_idx_array_unload(brim_idx_array *array);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_INT_H_
