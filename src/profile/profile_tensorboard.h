// TensorBoard event files: scalars by step. No library is needed. A file is a sequence of records:
//   u64 length | u32 masked crc32c of the length | data | u32 masked crc32c of the data
// all little-endian, masked = rotate right by 15, plus 0xa282ead8. The data are Event messages of
// protobuf: 1 double wall_time, 2 int64 step, 3 string file_version ("brain.Event:2", the first
// record of a file), 5 Summary {1 Value {1 string tag, 2 float simple_value}}, 7 SessionLog
// {1 enum status, START = 1}. Callers: run.
#ifndef BRIM_PROFILE_TENSORBOARD_H_
#define BRIM_PROFILE_TENSORBOARD_H_

#include "base/base.h"

// CRC-32C (Castagnoli): "123456789" gives 0xe3069283. The masked form is the one in records.
uint32_t brim_crc32c(const void *data, size_t size);
uint32_t brim_crc32c_masked(const void *data, size_t size);

// The event files of one folder, FOLDER/events.out.tfevents.<seconds>.<host>.brim; their names sort
// by age, which is the order TensorBoard reads them in.
typedef struct brim_tensorboard brim_tensorboard;

// Drops steps after `start_step` from existing files. If there were any, a new file begins with a mark that makes
// readers forget them; otherwise the last file is continued. A new file begins at `rotate_bytes` (0 = never).
// BRIM_TENSORBOARD_ADD: keeps existing files and begins one of this process.
#define BRIM_TENSORBOARD_ADD (-1)
brim_status brim_tensorboard_open(const char *folder, int64_t start_step, uint64_t rotate_bytes,
                                  brim_tensorboard **out);
// Keeps a scalar in memory until flush, which writes all in one piece: a reader sees whole records.
brim_status brim_tensorboard_scalar(brim_tensorboard *t, const char *tag, int64_t step,
                                    double value);
brim_status brim_tensorboard_flush(brim_tensorboard *t);
void brim_tensorboard_close(brim_tensorboard *t);  // NULL is fine

// Appends the whole record of a file's first event, or of one scalar.
void brim_tensorboard_put_version(brim_str *out, double wall_s);
void brim_tensorboard_put_scalar(brim_str *out, double wall_s, int64_t step, const char *tag,
                                 float value);

#endif  // BRIM_PROFILE_TENSORBOARD_H_
