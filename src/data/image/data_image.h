// Decodes images in memory to pixels: JPEG (libjpeg-turbo), PNG (libpng), BMP and, if built with libwebp,
// WebP. The first bytes decide the format, never the name. The code writes only into the caller's buffer
// and has no shared state. A truncated or damaged image is an error. Callers: data_folder.c.
//
// Pixels have 8 bits a channel, in packed rows, RGB or gray (ITU-R 601 luma), and equal those of other
// readers by default: JPEG with the accurate inverse DCT and smooth chroma, CMYK converted without a
// colour profile; PNG with palettes looked up, 16 bits rounded to 8, alpha dropped (the colour under
// it stays), gamma and profiles ignored. EXIF's orientation is ignored too.
#ifndef BRIM_DATA_IMAGE_H_
#define BRIM_DATA_IMAGE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

// Larger images are refused before anything is allocated for them.
#define BRIM_IMAGE_MAX_SIDE 65535
#define BRIM_IMAGE_MAX_PIXELS ((int64_t)1 << 28)
#define BRIM_IMAGE_MAX_BYTES ((size_t)1 << 30)  // of a file

typedef struct brim_image_head {
  int64_t height, width;
  int channels;  // 1 if the image is gray, else 3
} brim_image_head;

// Reads the size from the header of an open file. Fails if the header announces more pixels than the
// file's bytes can hold.
brim_status brim_image_probe_file(int fd, const char *name, brim_image_head *out);

typedef struct brim_image_want {
  int channels;  // 3 or 1
  int scale;     // 1, 2, 4, 8: a JPEG is decoded to 1/scale, rounded up; other formats ignore it
  bool lenient;  // accept stray bytes and small faults if all pixels can be decoded
} brim_image_want;

typedef struct brim_image_pixels {
  uint8_t *data;          // (height, width, channels)
  size_t capacity;        // bytes of `data`
  int64_t height, width;  // set by decoding
} brim_image_pixels;

// BRIM_EPARSE: not an image, or a broken image. BRIM_EUNSUPPORTED: a kind of JPEG, BMP or WebP that brim
// does not read. BRIM_ELIMIT: larger than the capacity or the limits above. On failure the contents of
// the buffer are undefined.
brim_status brim_image_decode(const void *bytes, size_t size, const char *name,
                              const brim_image_want *want, brim_image_pixels *out);

// True for names of images, in upper or lower case. brim_image_ends lists the endings for messages:
// ".jpg, .jpeg, ...".
bool brim_image_is_name(const char *name);
const char *brim_image_ends(void);

//---------------------------------- the formats ----------------------------------

// The read_head functions set *least_bytes to the least size of a file with such an image.
bool brim_png_is(const uint8_t *bytes, size_t size);
// Looks for the frame header from *at on, where a marker must begin (2 at first). BRIM_EEND: the bytes end
// before it; *at is where to continue, which may be past the end.
brim_status brim_jpeg_find_frame(const uint8_t *bytes, size_t size, size_t *at, const char *name,
                                 brim_image_head *out, uint64_t *least_bytes);
// Needs the first 33 bytes.
brim_status brim_png_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes);
bool brim_bmp_is(const uint8_t *bytes, size_t size);
// Needs the first 54 bytes, or all.
brim_status brim_bmp_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes);
brim_status brim_bmp_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out);
// The WebP functions are in data_webp.c, or in data_webp_absent.c, which reads no WebP.
extern const bool brim_webp_present;
bool brim_webp_is(const uint8_t *bytes, size_t size);
brim_status brim_webp_read_head(const uint8_t *bytes, size_t size, const char *name,
                                brim_image_head *out, uint64_t *least_bytes);
brim_status brim_webp_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out);
brim_status brim_jpeg_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out);
brim_status brim_png_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out);
// Fails unless height, width and pixels are within the limits above.
brim_status brim_image_check_size(const char *name, uint64_t height, uint64_t width);
// Fails unless the pixels (out->height, out->width) fit the buffer.
brim_status brim_image_check_room(const char *name, const brim_image_want *want,
                                  const brim_image_pixels *out);

//---------------------------------- folders of images (data_folder.c) -----------------------------

// True if the folder ROOT/NAME, or a folder below it, holds an image, so that it is a class.
brim_status brim_folder_has_images(const char *root, const char *name, bool *out);
// Finds the folders of ROOT that are splits, in the order train, val, test, unlabeled. Finds none if
// "train" is the name of a class: ROOT/train holds images but no folders of images, and other folders
// of images beside it are no splits.
enum { BRIM_FOLDER_SPLITS = 9, BRIM_FOLDER_SPLIT_ROOM = 12 };
typedef struct brim_folder_splits {
  size_t count;
  struct {
    const char *split;                    // train, val, test or unlabeled
    char folder[BRIM_FOLDER_SPLIT_ROOM];  // its name on disk
  } found[BRIM_FOLDER_SPLITS];
} brim_folder_splits;
brim_status brim_folder_find_splits(const char *root, brim_folder_splits *out);
// The first folder of a split; for val without a folder the first of test. NULL = none.
const char *brim_folder_split_of(const brim_folder_splits *splits, const char *split);

// A set of visited folders, by device and inode: n links can lead to one folder on 2^n paths.
typedef struct brim_folder_seen {
  struct {
    uint64_t dev, ino;
  } * slots;
  size_t count, room;
} brim_folder_seen;
brim_status brim_folder_seen_add(brim_folder_seen *seen, uint64_t dev, uint64_t ino,
                                 bool *seen_before);
void brim_folder_seen_deinit(brim_folder_seen *seen);

#endif  // BRIM_DATA_IMAGE_H_
