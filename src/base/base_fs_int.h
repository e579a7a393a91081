// What the files of base that read and write files share.
#ifndef BRIM_BASE_FS_INT_H_
#define BRIM_BASE_FS_INT_H_

#include "base/base_fs.h"

#ifdef __cplusplus
extern "C" {
#endif

// A regular file for reading, and its size; close the descriptor. A folder, a FIFO, a socket or a
// device is refused (BRIM_EINVAL) and never waited for.
brim_status brim_fs_open_regular(const char *path, int *out, uint64_t *size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_FS_INT_H_
