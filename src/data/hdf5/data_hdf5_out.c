// The driver through which libhdf5 writes. Callers: data_pack_hdf5.c, data_columns.c.
#include "data/hdf5/data_hdf5_out.h"

#include <errno.h>
#include <hdf5.h>
#include <string.h>
#include <unistd.h>

// How the library writes. Its own driver hands a full disk to the library, which then can neither
// finish nor forget the file and crashes at the end of the process. This one keeps the reason and
// lets the library continue: what it made is thrown away.
typedef struct driver_file {
  H5FD_t pub;
  brim_hdf5_out *out;
  haddr_t eoa, eof;
} driver_file;

typedef struct driver_info {
  brim_hdf5_out *out;
} driver_info;

static driver_file *own(H5FD_t *file) { return (driver_file *)(void *)file; }
static const driver_file *own_const(const H5FD_t *file) {
  return (const driver_file *)(const void *)file;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr) {
  const driver_info *info = H5Pget_driver_info(fapl);
  (void)name;
  (void)flags;
  (void)maxaddr;
  driver_file *f = info ? brim_calloc(1, sizeof *f) : NULL;
  if (info && !f) info->out->err = ENOMEM;
  if (!f) return NULL;
  f->out = info->out;
  return &f->pub;
}

static herr_t driver_close(H5FD_t *file) {
  brim_free(file);
  return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return own_const(file)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t eoa) {
  (void)type;
  own(file)->eoa = eoa;
  return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return own_const(file)->eof;
}

// Until nothing is left or the system refuses; its reason is kept.
void brim_hdf5_out_write(brim_hdf5_out *w, const void *data, size_t size, uint64_t offset) {
  const uint8_t *p = data;
  while (size && !w->err) {
    ssize_t n = pwrite(w->fd, p, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      w->err = n < 0 ? errno : ENOSPC;
      return;
    }
    p += n;
    offset += (uint64_t)n;
    size -= (size_t)n;
  }
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                           const void *data) {
  driver_file *f = own(file);
  (void)type;
  (void)dxpl;
  brim_hdf5_out_write(f->out, data, size, address);
  if (address + size > f->eof) f->eof = address + size;
  return 0;
}

// What is not there is zero, as with the library's own driver.
static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                          void *out) {
  const driver_file *f = own_const(file);
  size_t done = 0;
  (void)type;
  (void)dxpl;
  while (done < size) {
    ssize_t n = pread(f->out->fd, (uint8_t *)out + done, size - done, (off_t)(address + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  memset((uint8_t *)out + done, 0, size - done);
  return 0;
}

static herr_t driver_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing) {
  driver_file *f = own(file);
  (void)dxpl;
  (void)closing;
  if (!f->out->err && ftruncate(f->out->fd, (off_t)f->eoa) != 0) f->out->err = errno;
  f->eof = f->eoa;
  return 0;
}

static const H5FD_class_t driver_class = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = H5_VFD_RESERVED + 78,
#endif
    .name = "brim_out",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(driver_info),
    .open = driver_open,
    .close = driver_close,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

int64_t brim_hdf5_out_timeless(int64_t plist_class) {
  hid_t plist = H5Pcreate(plist_class);
  if (plist >= 0 && H5Pset_obj_track_times(plist, false) < 0) {
    H5Pclose(plist);
    return -1;
  }
  return plist;
}

int64_t brim_hdf5_out_create(brim_hdf5_out *out, const char *path) {
  driver_info info = {.out = out};
  hid_t file = -1;
  out->driver = H5FDregister(&driver_class);
  hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
  hid_t fcpl = brim_hdf5_out_timeless(H5P_FILE_CREATE);  // of the root group
  if (out->driver >= 0 && fapl >= 0 && fcpl >= 0 && H5Pset_driver(fapl, out->driver, &info) >= 0) {
    file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
  }
  if (fcpl >= 0) H5Pclose(fcpl);
  if (fapl >= 0) H5Pclose(fapl);
  return file;
}

void brim_hdf5_out_close(brim_hdf5_out *out) {
  if (out->driver >= 0) H5FDunregister(out->driver);
  out->driver = -1;
}
