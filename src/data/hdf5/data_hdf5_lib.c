// libhdf5's lock, its reasons and its number types: what every file needs that calls the library.
#include "data/hdf5/data_hdf5_lib.h"

#include <hdf5.h>
#include <pthread.h>
#include <stdlib.h>

// One for the process, as the library has one state for the process. Debian's build has a lock of
// its own, others have none.
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static bool quiet_at_exit;  // under the lock

// Of a damaged file the library may keep memory that it never gives back, and complain of that when
// the process ends. It has nothing to say then that a person could act on.
static void be_quiet(void) { (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL); }

void brim_data_leave_hdf5_open(void) { (void)H5dont_atexit(); }

// lzf for libhdf5, which reads labels and what only it can: it is undone, never applied. An optional
// filter leaves out what it cannot pack.
static size_t undo_lzf(unsigned flags, size_t count, const unsigned values[], size_t used,
                       size_t *size, void **data) {
  if (!(flags & H5Z_FLAG_REVERSE)) return 0;
  // the third value is a chunk's size; a file may lie
  size_t room = count > 2 && values[2] ? values[2] : *size, got = SIZE_MAX;
  for (; got == SIZE_MAX && room <= 256 * (used + 1); room *= 2) {
    void *out = H5allocate_memory(room, false);
    if (!out) return 0;
    got = brim_hdf5_unpack_lzf(*data, used, out, room);
    if (got == SIZE_MAX) {
      (void)H5free_memory(out);
      continue;
    }
    (void)H5free_memory(*data);
    *data = out;
    *size = room;
    return got;
  }
  return 0;
}

static void add_lzf(void) {
  static const H5Z_class2_t row = {
      H5Z_CLASS_T_VERS, BRIM_HDF5_LZF_NUMBER, 0, 1, "lzf", NULL, NULL, undo_lzf,
  };
  if (H5Zfilter_avail(BRIM_HDF5_LZF_NUMBER) <= 0) (void)H5Zregister(&row);
}

void brim_hdf5_enter(brim_hdf5_scope *scope) {
  H5E_auto2_t print = NULL;
  pthread_mutex_lock(&library_lock);
  if (!quiet_at_exit) {
    quiet_at_exit = true;
    (void)H5open();  // its own end is registered first, so that it comes after this
    (void)atexit(be_quiet);
    add_lzf();
  }
  scope->ctx = NULL;
  (void)H5Eget_auto2(H5E_DEFAULT, &print, &scope->ctx);
  scope->print = print;
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void brim_hdf5_leave(const brim_hdf5_scope *scope) {
  (void)H5Eset_auto2(H5E_DEFAULT, scope->print, scope->ctx);
  pthread_mutex_unlock(&library_lock);
}

typedef struct reason {
  char *text;
  size_t size;
} reason;

// The first one is where it went wrong; what follows are its callers.
static herr_t first_reason(unsigned n, const H5E_error2_t *error, void *ctx) {
  const reason *r = ctx;
  (void)n;
  snprintf(r->text, r->size, "%s", error->desc ? error->desc : "");
  return 1;
}

const char *brim_hdf5_reason(char *text, size_t size) {
  reason r = {.text = text, .size = size};
  text[0] = 0;
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, &r);
  if (!text[0]) snprintf(text, size, "%s", brim_tr("no reason given"));
  return text;
}

//---------------------------------- numbers ----------------------------------

static bool plain_float(hid_t type, size_t size) {
  static const size_t exponent[9] = {[2] = 5, [4] = 8, [8] = 11};
  size_t sign, at, exponent_bits, mantissa_at, mantissa_bits;
  if (size > 8 || !exponent[size]) return false;
  if (H5Tget_fields(type, &sign, &at, &exponent_bits, &mantissa_at, &mantissa_bits) < 0)
    return false;
  return exponent_bits == exponent[size] && sign == 8 * size - 1 && mantissa_at == 0 &&
         mantissa_bits == at && at + exponent_bits == sign &&
         H5Tget_ebias(type) == ((size_t)1 << (exponent_bits - 1)) - 1 &&
         H5Tget_norm(type) == H5T_NORM_IMPLIED;
}

static bool plain_number(hid_t type, bool integer, brim_hdf5_type *out) {
  static const brim_hdf5_kind ints[9] = {
      [1] = BRIM_HDF5_I8, [2] = BRIM_HDF5_I16, [4] = BRIM_HDF5_I32, [8] = BRIM_HDF5_I64};
  static const brim_hdf5_kind floats[9] = {
      [2] = BRIM_HDF5_F16, [4] = BRIM_HDF5_F32, [8] = BRIM_HDF5_F64};
  size_t size = H5Tget_size(type);
  H5T_order_t order = H5Tget_order(type);
  if ((size != 1 && size != 2 && size != 4 && size != 8) || H5Tget_precision(type) != 8 * size ||
      H5Tget_offset(type) != 0)
    return false;
  if (size > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE) return false;
  out->swap = size > 1 && order != H5Tget_order(H5T_NATIVE_INT);
  if (!integer) {
    out->kind = floats[size];
    return plain_float(type, size);
  }
  out->kind = ints[size];
  if (H5Tget_sign(type) == H5T_SGN_NONE) out->kind = (brim_hdf5_kind)(out->kind + 1);
  return true;
}

brim_hdf5_number brim_hdf5_number_of(int64_t type) {
  static const char *const other[] = {"numbers",  "numbers",   "time", "text",     "bits", "opaque",
                                      "compound", "reference", "enum", "variable", "array"};
  brim_hdf5_number n = {.other = "unknown"};
  H5T_class_t class = H5Tget_class(type);
  if (class == H5T_ENUM) {  // what h5py makes of bool
    hid_t base = H5Tget_super(type);
    if (base >= 0) n = brim_hdf5_number_of(base);
    if (base >= 0) (void)H5Tclose(base);
    return n;
  }
  if (class >= 0 && (size_t) class < sizeof other / sizeof *other) n.other = other[class];
  n.numeric = class == H5T_INTEGER || class == H5T_FLOAT;
  n.integer = class == H5T_INTEGER;
  n.plain = n.numeric && plain_number(type, n.integer, &n.type);
  return n;
}
