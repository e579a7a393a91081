// Any bytes as a safetensors file: refused with a message, or read with every byte of every entry inside the input.
#include <stdlib.h>
#include <string.h>

#include "../memory_file.h"
#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  brim_safetensors *file = NULL;
  char path[MEMORY_FILE_PATH];
  int fd = memory_file(data, size, path);
  brim_status status = brim_safetensors_open(path, &file);
  close(fd);
  if (status) {
    if (file || !brim_status_detail()[0]) abort();
    return 0;
  }
  size_t sum = 0;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const brim_safetensors_entry *e = brim_safetensors_at(file, i);
    if (brim_safetensors_find(file, e->name) != e) abort();
    const uint8_t *bytes = e->data;
    for (size_t k = 0; k < e->bytes; k++) sink += bytes[k];
    sum += e->bytes;
  }
  if (sum > size || !json_is_object(brim_safetensors_metadata(file))) abort();
  brim_safetensors_close(file);
  return 0;
}
