// Any bytes as a .npy header and as a .npz file: an error with a message, or arrays whose sizes agree with the bytes
// and whose samples can all be read.
#include <stdlib.h>
#include <string.h>

#include "../memory_file.h"
#include "data/data_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_header(const brim_npy *h, size_t size) {
  uint64_t elements = 1;
  for (int i = 0; i < h->rank; i++) elements *= h->dim[i];
  if (elements == 0 || elements * h->element_bytes != h->body_bytes ||
      h->header_bytes + h->body_bytes != size) {
    abort();
  }
}

static void check_array(const char *path, const brim_npz_member *member) {
  brim_npy_array a;
  if (brim_npy_array_open(path, member, &a)) {
    if (a.memory || !brim_status_detail()[0]) abort();
    return;
  }
  uint8_t *body = malloc(a.header.body_bytes);  // of exact size, so that ASan finds any overrun
  if (body && brim_npy_array_read(&a, 0, body, a.header.body_bytes)) abort();
  free(body);
  if (brim_npy_array_keep(&a)) abort();
  brim_npy_array_unload(&a);
}

// The source itself, which reads an archive whatever its name.
static void read_source(const char *path, const char *args) {
  brim_source_how how = {.path = path, .split = "train", .args_json = args};
  void *state;
  if (brim_source_numpy.open(&how, &state)) {
    if (!brim_status_detail()[0]) abort();
    return;
  }
  brim_source_info info;
  brim_source_numpy.info(state, &info);
  size_t in = info.type == BRIM_SAMPLE_U8 ? 1 : 4, out = info.classes ? 1 : (size_t)info.target_dim;
  for (int i = 0; i < info.rank; i++) in *= (size_t)info.dim[i];
  void *input = malloc(in), *target = malloc(4 * out + 1);
  for (uint64_t i = 0; input && target && i < info.count && i < 64; i++) {
    if (brim_source_numpy.read(state, i, input, target)) abort();
    if (info.classes && (*(int32_t *)target < 0 || *(int32_t *)target >= info.classes)) abort();
  }
  free(input);
  free(target);
  brim_source_numpy.close(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  brim_npy npy;
  size_t have = size < BRIM_NPY_HEAD ? size : BRIM_NPY_HEAD;
  uint8_t *head = malloc(have ? have : 1);
  if (!head) return 0;
  memcpy(head, data, have);
  if (!brim_npy_parse(head, have, size, "fuzz", &npy)) {
    check_header(&npy, size);
  } else if (!brim_status_detail()[0]) {
    abort();
  }
  free(head);
  if (size == 0) return 0;
  char path[MEMORY_FILE_PATH];
  int fd = memory_file(data, size, path);
  if (brim_npz_is(data, size)) {
    brim_npz_member *members;
    size_t count;
    if (!brim_npz_list(path, &members, &count)) {
      for (size_t i = 0; i < count; i++) check_array(path, &members[i]);
      brim_npz_free(members, count);
    }
    read_source(path, "{}");
    read_source(path, "{\"targets\": \"none\"}");
  } else {
    check_array(path, NULL);
  }
  close(fd);
  return 0;
}
