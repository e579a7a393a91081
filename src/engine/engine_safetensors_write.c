// Writing safetensors: header padded with spaces to 8 bytes, entries in the order given, the file
// whole or not at all. Equal entries and metadata give equal bytes.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"
#include "engine/engine_safetensors.h"

static brim_status entry_json(const brim_safetensors_entry *e, size_t offset, json_t **out) {
  json_t *object = json_object(), *shape = json_array(), *offsets = json_array();
  brim_status status = BRIM_OK;
  if (!object || !shape || !offsets) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the header of a checkpoint");
  }
  for (int i = 0; !status && i < e->rank; i++) {
    status = brim_json_push(shape, json_integer(e->dim[i]));
  }
  if (!status) status = brim_json_push(offsets, json_integer((json_int_t)offset));
  if (!status) status = brim_json_push(offsets, json_integer((json_int_t)(offset + e->bytes)));
  if (!status) {
    status = brim_json_put(object, "dtype", json_string(brim_safetensors_dtype_name(e->dtype)));
  }
  // put takes the lists over, whatever comes of it
  if (!status) {
    status = brim_json_put(object, "shape", shape);
    shape = NULL;
  }
  if (!status) {
    status = brim_json_put(object, "data_offsets", offsets);
    offsets = NULL;
  }
  json_decref(shape);
  json_decref(offsets);
  if (status) {
    json_decref(object);
    object = NULL;
  }
  *out = object;
  return status;
}

static brim_status check_entry(const brim_safetensors_entry *e, const json_t *header) {
  if (!brim_safetensors_dtype_name(e->dtype)) {
    return brim_fail(BRIM_EINVAL, "entry '%s' has a type that safetensors does not support",
                     e->name);
  }
  int64_t bytes = (int64_t)brim_dtype_size(e->dtype);
  for (int i = 0; i < e->rank; i++) {
    if (e->dim[i] < 0 || __builtin_mul_overflow(bytes, e->dim[i], &bytes)) {
      return brim_fail(BRIM_EINVAL, "entry '%s' has an invalid shape", e->name);
    }
  }
  if ((size_t)bytes != e->bytes) {
    return brim_fail(BRIM_EINVAL, "entry '%s' has %zu bytes, but its shape needs %zu", e->name,
                     e->bytes, (size_t)bytes);
  }
  if (json_object_get(header, e->name) || strcmp(e->name, "__metadata__") == 0) {
    return brim_fail(BRIM_EINVAL, "entry '%s' appears twice", e->name);
  }
  return BRIM_OK;
}

brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out) {
  *out = NULL;
  if (from && !json_is_object(from)) {
    return brim_fail(BRIM_EINVAL, "the metadata of a checkpoint is not an object");
  }
  json_t *copy = json_object();
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  const char *key;
  json_t *text;
  brim_status status = BRIM_OK;
  // jansson's loop takes no const object; nothing in it is changed
  json_object_foreach((json_t *)(uintptr_t)from, key, text) {
    if (!json_is_string(text)) {
      status = brim_fail(BRIM_EINVAL, "metadata '%s' of a checkpoint is not a string", key);
    } else {
      status =
          brim_json_put(copy, key, json_stringn(json_string_value(text), json_string_length(text)));
    }
    if (status) break;
  }
  if (status) {
    json_decref(copy);
    return status;
  }
  *out = copy;
  return BRIM_OK;
}

//---------------------------------- the checksum ----------------------------------

// The header comes first in the file and the checksum is known last: 16 zeros hold its place.
static const char no_digits[] = "0000000000000000";

static brim_status put_place(json_t *metadata) {
  if (!json_object_get(metadata, BRIM_SAFETENSORS_SUM)) return BRIM_OK;
  char text[sizeof BRIM_SAFETENSORS_SUM_KIND + sizeof no_digits];
  snprintf(text, sizeof text, "%s%s", BRIM_SAFETENSORS_SUM_KIND, no_digits);
  return brim_json_put(metadata, BRIM_SAFETENSORS_SUM, json_string(text));
}

//---------------------------------- the file ----------------------------------

static brim_status fill_header(json_t *header, const brim_safetensors_entry *entries, size_t count,
                               const json_t *metadata) {
  json_t *copy;
  BRIM_TRY(brim_safetensors_copy_metadata(metadata, &copy));
  brim_status status = put_place(copy);
  if (!status && json_object_size(copy) > 0) {
    status = brim_json_put(header, "__metadata__", json_incref(copy));
  }
  json_decref(copy);
  BRIM_TRY(status);
  size_t offset = 0;
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(check_entry(&entries[i], header));
    json_t *value;
    BRIM_TRY(entry_json(&entries[i], offset, &value));
    BRIM_TRY(brim_json_put(header, entries[i].name, value));
    offset += entries[i].bytes;
  }
  return BRIM_OK;
}

static brim_status header_text(const brim_safetensors_entry *entries, size_t count,
                               const json_t *metadata, brim_str *out) {
  brim_json_setup();
  json_t *header = json_object();
  if (!header) return brim_fail(BRIM_ENOMEM, "out of memory for the header of a checkpoint");
  char *text = NULL;
  brim_status status = fill_header(header, entries, count, metadata);
  if (!status) status = brim_json_dump(header, 0, &text);
  json_decref(header);
  if (status) return status;
  brim_str_append(out, text);
  brim_str_repeat(out, ' ', (8 - out->len % 8) % 8);
  brim_free(text);
  return brim_str_status(out);
}

static brim_status put_data(void *ctx, size_t i, brim_fs_writer *w) {
  const brim_safetensors_entry *e = (const brim_safetensors_entry *)ctx + i;
  return brim_fs_writer_write(w, e->data, e->bytes);
}

static brim_status write_file(brim_fs_writer *w, const brim_str *header, size_t count,
                              brim_safetensors_put put, void *ctx) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header->len >> (8 * i));
  const char *digits = brim_safetensors_sum_digits(header->data, header->len);
  brim_xxh64 sum;
  brim_xxh64_init(&sum);
  if (digits) brim_fs_writer_sum(w, &sum);
  BRIM_TRY(brim_fs_writer_write(w, length, sizeof length));
  BRIM_TRY(brim_fs_writer_write(w, header->data, header->len));
  for (size_t i = 0; i < count; i++) BRIM_TRY(put(ctx, i, w));
  if (!digits) return BRIM_OK;
  char value[BRIM_SAFETENSORS_DIGITS + 1];
  brim_safetensors_sum_format(&sum, value);
  brim_fs_writer_sum(w, NULL);
  return brim_fs_writer_patch(w, sizeof length + (size_t)(digits - header->data), value,
                              BRIM_SAFETENSORS_DIGITS);
}

brim_status brim_safetensors_write(const char *path, const brim_safetensors_entry *entries,
                                   size_t count, const json_t *metadata) {
  return brim_safetensors_write_with(path, entries, count, metadata, put_data,
                                     (void *)(uintptr_t)entries);
}

brim_status brim_safetensors_write_with(const char *path, const brim_safetensors_entry *entries,
                                        size_t count, const json_t *metadata,
                                        brim_safetensors_put put, void *ctx) {
  brim_str header;
  brim_str_init(&header);
  brim_fs_writer *w = NULL;
  brim_status status = header_text(entries, count, metadata, &header);
  if (!status) status = brim_fs_writer_open(path, &w);
  if (!status) {
    status = write_file(w, &header, count, put, ctx);
    if (status) {
      brim_fs_writer_abort(w);
    } else {
      status = brim_fs_writer_commit(w);
    }
  }
  brim_str_deinit(&header);
  return status;
}
