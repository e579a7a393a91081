// Names and sizes of dtypes, tensors and ops. The file calls nothing of base: plug-ins compile it in and
// must not link a second base.
#include "backend/backend.h"

size_t brim_dtype_size(brim_dtype dtype) {
  static const size_t sizes[BRIM_DTYPE_COUNT] = {
#define X(id, name, bytes) [BRIM_##id] = bytes,
      BRIM_DTYPE_MAP(X)
#undef X
  };
  return (unsigned)dtype < BRIM_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *brim_dtype_name(brim_dtype dtype) {
  static const char *const names[BRIM_DTYPE_COUNT] = {
#define X(id, name, bytes) [BRIM_##id] = name,
      BRIM_DTYPE_MAP(X)
#undef X
  };
  return (unsigned)dtype < BRIM_DTYPE_COUNT ? names[dtype] : "?";
}

int64_t brim_tensor_count(const brim_tensor *t) {
  if (t->rank <= 0) return 0;
  int64_t count = 1;
  for (int i = 0; i < t->rank && i < BRIM_MAX_RANK; i++) count *= t->dim[i];
  return count;
}

size_t brim_tensor_bytes(const brim_tensor *t) {
  return (size_t)brim_tensor_count(t) * brim_dtype_size(t->dtype);
}

brim_tensor brim_tensor_make(void *data, brim_dtype dtype, int rank, const int64_t *dim) {
  brim_tensor t = {.data = data, .dtype = dtype, .rank = rank};
  for (int i = 0; i < rank && i < BRIM_MAX_RANK; i++) t.dim[i] = dim[i];
  return t;
}

const char *brim_op_name(brim_op op) {
  static const char *const names[BRIM_OP_COUNT] = {
#define X(id, name) [BRIM_OP_##id] = name,
      BRIM_OP_MAP(X) BRIM_OP_EXCHANGE_MAP(X)
#undef X
  };
  return (unsigned)op < BRIM_OP_COUNT ? names[op] : "?";
}
