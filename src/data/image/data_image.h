// Images in memory to pixels: JPEG (libjpeg-turbo), PNG (libpng), BMP and, where there was
// libwebp, WebP, told apart by their first bytes, never by a name. Nothing is written anywhere but into the caller's buffer, there is no shared
// state, and what is cut off or damaged is an error. Callers: data_folder.c.
//
// What comes out is 8 bits a channel, packed rows, RGB or gray (ITU-R 601 luma), as other readers
// make it by default: JPEG with the accurate inverse DCT and smooth chroma, CMYK converted without a
// colour profile; PNG with palettes looked up, 16 bits rounded to 8, alpha dropped (the colour under
// it stays), gamma and profiles ignored. EXIF's orientation is ignored too.
#ifndef BRIM_DATA_IMAGE_H_
#define BRIM_DATA_IMAGE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

// Larger ones are refused before anything is allocated for them.
#define BRIM_IMAGE_MAX_SIDE 65535
#define BRIM_IMAGE_MAX_PIXELS ((int64_t)1 << 28)
#define BRIM_IMAGE_MAX_BYTES ((size_t)1 << 30)  // of a file

typedef struct brim_image_head {
  int64_t height, width;
  int channels;  // 1 gray, 3 anything else
} brim_image_head;

// Size from the header of an open file alone, reading only what it has to. A header that promises
// more pixels than the file's bytes can hold is an error.
brim_status brim_image_probe_file(int fd, const char *name, brim_image_head *out);

typedef struct brim_image_want {
  int channels;  // 3 or 1
  int scale;     // 1, 2, 4, 8: JPEG comes out at 1/scale, rounded up; others always whole
  bool lenient;  // let bytes pass that belong to nothing, where all pixels are there
} brim_image_want;

typedef struct brim_image_pixels {
  uint8_t *data;          // (height, width, channels)
  size_t capacity;        // bytes that may be written
  int64_t height, width;  // of the result
} brim_image_pixels;

// BRIM_EPARSE: not an image, or a broken one; BRIM_EUNSUPPORTED: a kind of JPEG or BMP that is
// not read; BRIM_ELIMIT: larger than the capacity or the limits above. On failure the contents of the
// buffer are undefined.
brim_status brim_image_decode(const void *bytes, size_t size, const char *name,
                              const brim_image_want *want, brim_image_pixels *out);

// True for names of images, in any case; brim_image_ends lists the endings for messages: ".jpg,
// .jpeg, ...".
bool brim_image_is_name(const char *name);
const char *brim_image_ends(void);

//---------------------------------- one format each ----------------------------------

bool brim_png_is(const uint8_t *bytes, size_t size);
// Looks for the frame header from *at on, where a marker begins (2 for the first). BRIM_EEND: it is
// not in these bytes; *at is where to continue, at times beyond them.
brim_status brim_jpeg_find_frame(const uint8_t *bytes, size_t size, size_t *at, const char *name,
                                 brim_image_head *out, uint64_t *least_bytes);
// The header's 33 bytes. least_bytes: what a file of such an image has at least.
brim_status brim_png_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes);
bool brim_bmp_is(const uint8_t *bytes, size_t size);
// The first 54 bytes, or all.
brim_status brim_bmp_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes);
brim_status brim_bmp_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out);
// data_webp.c, or data_webp_absent.c, which reads none.
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
// Sides and pixels are within the limits above.
brim_status brim_image_check_size(const char *name, uint64_t height, uint64_t width);
// And fit the buffer.
brim_status brim_image_check_room(const char *name, const brim_image_want *want,
                                  const brim_image_pixels *out);

//---------------------------------- folders of images (data_folder.c) -----------------------------

// True if a folder of the root, or one below it, holds an image, so that it is a class there.
brim_status brim_folder_has_images(const char *root, const char *name, bool *out);
// The folders of ROOT that are splits, in the order train, val, test, unlabeled. None if ROOT/train is
// a class: it holds images itself and no folders of images, beside folders of images that are no
// splits.
enum { BRIM_FOLDER_SPLITS = 9, BRIM_FOLDER_SPLIT_ROOM = 12 };
typedef struct brim_folder_splits {
  size_t count;
  struct {
    const char *split;                    // train, val, test or unlabeled
    char folder[BRIM_FOLDER_SPLIT_ROOM];  // as it is spelled
  } found[BRIM_FOLDER_SPLITS];
} brim_folder_splits;
brim_status brim_folder_find_splits(const char *root, brim_folder_splits *out);
// The first folder of a split; for val, else the first of test. NULL = there is none.
const char *brim_folder_split_of(const brim_folder_splits *splits, const char *split);

// A set of visited folders, by device and inode: links can lead to one folder by up to 2 to the power
// of their number ways.
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
