// The state of a block that makes one image, and the geometry stages. An image is C planes of floats. The
// pitch of a line is odd, so that neighbouring threads use different banks of shared memory along a row
// as well as down a column. Functions that work on a whole image are called by all threads of the block
// and end with a barrier.
#ifndef BRIM_DATA_AUGMENT_INT_CUH_
#define BRIM_DATA_AUGMENT_INT_CUH_

#include "data/transform/data_augment.h"

// Two blocks of 512 threads fill a multiprocessor; two images of 96 x 96 x 3 fit its shared memory.
enum {
  AUGMENT_THREADS = 512,
  AUGMENT_SPAN = 8,  // pixels of a line that a thread blurs
  AUGMENT_TAPS = 8   // taps of a blur unrolled at once
};
// The longest line that a block can blur in one round.
enum { AUGMENT_MOST_LINE = AUGMENT_THREADS * AUGMENT_SPAN };

#define AUGMENT_INLINE __device__ static __forceinline__

struct augment_size {
  int height, width;
};

struct augment_image {
  float *at;  // (C, height, width | 1)
  int height, width;
  __device__ int pitch() const { return width | 1; }
  __device__ int plane() const { return height * (width | 1); }
};

// The source rows (or columns) of one row (or column) of a group's result. If the axis is not `many`:
// rows `first` and `second` with the weights `a` and `b`, which add up to 1. If it is: `second` rows of
// the resampled region from `first` on, whose weights for result `number` are multiplied by `a`. A
// negative row is the border of stage -row - 1.
struct augment_row {
  int first, second;
  float a;
  union {
    float b;
    int number;
  };
};

struct augment_task {
  brim_augment_program program;
  brim_augment_batch batch;
  float *scratch;
  augment_size
      size[BRIM_IMAGE_MAX_STAGES + 1];   // of the image before each stage, and of the result
  bool in_place[BRIM_IMAGE_MAX_STAGES];  // the stage's group has only flips
  unsigned char group_end[BRIM_IMAGE_MAX_STAGES];
  int first_end;  // end of the group that reads the sample; 0 = an empty group
  int buffers;    // 2 if a later group has geometry other than flips, else 1
  size_t buffer_floats;
  int rows;  // entries of the table in shared memory; a blur keeps its weights in the same place
  int threads;
  bool shared;  // the planes are in shared memory
  size_t shared_bytes;
};

// One axis of a group: the stages `from` to `to` - 1. Stage `resample` resamples; `to` if none does.
struct augment_line {
  int from, resample, to;
  bool vertical, nearest;
  bool many;  // a result may need more than two source pixels
  int start;  // of the resampled region
  int shift;  // start of the result in the resampled image
  brim_image_axis axis;
};

// Values common to all threads of a block. They are in shared memory to leave registers for pixels.
struct augment_common {
  brim_augment ids;
  brim_image_drawn drawn[BRIM_IMAGE_MAX_STAGES];
  augment_line line[2];  // columns, rows
  float sums[32];
};

struct augment_block {
  augment_common *common;
  augment_row *rows;
  float *buffer[2];
};

__host__ __device__ static inline bool augment_is_geometry(int op) {
  return op <= BRIM_IMAGE_FLIP_VERTICAL;
}

template <int C>
struct augment_pixel {
  float v[C];
};

// How the threads of a block divide an image: thread (x, y) takes every dx-th column and dy-th row. dx is
// at least 32, so that a warp works on one row.
struct augment_tile {
  int x, y, dx, dy;
};

AUGMENT_INLINE augment_tile augment_tile_of(int height) {
  int shift = 5, threads = (int)blockDim.x;
  while ((threads >> shift) > height && (1 << shift) < threads) shift++;
  augment_tile tile;
  tile.dx = 1 << shift;
  tile.dy = threads >> shift;
  tile.x = (int)threadIdx.x & (tile.dx - 1);
  tile.y = (int)threadIdx.x >> shift;
  return tile;
}

//---------------------------------- readers of pixels ----------------------------------

template <int C>
struct augment_from_bytes {
  const uint8_t *at;  // (height, width, C)
  int width;
  __device__ __forceinline__ augment_pixel<C> get(int y, int x) const {
    const uint8_t *from = at + (y * width + x) * C;
    augment_pixel<C> p;
#pragma unroll
    for (int k = 0; k < C; k++) p.v[k] = (float)__ldg(from + k);
    return p;
  }
  // Reads pixels x and x + 1. With three channels they are six bytes in two or three words; a word that
  // holds none of them is not loaded.
  __device__ __forceinline__ void pair(int y, int x, augment_pixel<C> *a,
                                       augment_pixel<C> *b) const {
    if constexpr (C == 3) {
      const uintptr_t from = (uintptr_t)(at + (y * width + x) * C);
      const uint32_t *word = (const uint32_t *)(from & ~(uintptr_t)3);
      const uint32_t shift = (uint32_t)(from & 3) * 8;
      const uint32_t w0 = __ldg(word), w1 = __ldg(word + 1);
      const uint32_t w2 = shift == 24 ? __ldg(word + 2) : 0;
      const uint32_t low = __funnelshift_r(w0, w1, shift), high = __funnelshift_r(w1, w2, shift);
      a->v[0] = (float)(low & 0xff);
      a->v[1] = (float)(low >> 8 & 0xff);
      a->v[2] = (float)(low >> 16 & 0xff);
      b->v[0] = (float)(low >> 24);
      b->v[1] = (float)(high & 0xff);
      b->v[2] = (float)(high >> 8 & 0xff);
    } else {
      *a = get(y, x);
      *b = get(y, x + 1);
    }
  }
};

template <int C>
struct augment_from_floats {
  const float *at;  // (height, width, C)
  int width;
  __device__ __forceinline__ augment_pixel<C> get(int y, int x) const {
    const float *from = at + (y * width + x) * C;
    augment_pixel<C> p;
#pragma unroll
    for (int k = 0; k < C; k++) p.v[k] = __ldg(from + k);
    return p;
  }
  __device__ __forceinline__ void pair(int y, int x, augment_pixel<C> *a,
                                       augment_pixel<C> *b) const {
    *a = get(y, x);
    *b = get(y, x + 1);
  }
};

template <int C>
struct augment_from_planes {
  const float *at;  // (C, height, pitch)
  int pitch, plane;
  __device__ __forceinline__ augment_pixel<C> get(int y, int x) const {
    const float *from = at + y * pitch + x;
    augment_pixel<C> p;
#pragma unroll
    for (int k = 0; k < C; k++) p.v[k] = from[k * plane];
    return p;
  }
  __device__ __forceinline__ void pair(int y, int x, augment_pixel<C> *a,
                                       augment_pixel<C> *b) const {
    *a = get(y, x);
    *b = get(y, x + 1);
  }
};

// Maps index i after the stages from .. to - 1 to its index before them. Negative: the border of stage
// -index - 1.
AUGMENT_INLINE int augment_walk(const augment_task &t, const augment_common &c,
                                const augment_line &l, int from, int to, int i) {
  for (int s = to - 1; s >= from; s--) {
    const brim_image_stage &stage = t.program.stages[s];
    const brim_image_drawn &d = c.drawn[s];
    int n = l.vertical ? t.size[s].height : t.size[s].width;
    if (stage.op == BRIM_IMAGE_WINDOW) {
      i += l.vertical ? d.y : d.x;
      if (i < 0 || i >= n) {
        if (stage.pad == BRIM_IMAGE_PAD_CONSTANT) return -(s + 1);
        i = brim_image_inside(i, n, stage.pad);
      }
    } else if (d.on && stage.op == (l.vertical ? BRIM_IMAGE_FLIP_VERTICAL : BRIM_IMAGE_FLIP)) {
      i = n - 1 - i;
    }
  }
  return i;
}

AUGMENT_INLINE augment_line augment_line_of(const augment_task &t, const augment_common &c,
                                            int from, int to, bool vertical) {
  augment_line l;
  l.from = from;
  l.to = to;
  l.vertical = vertical;
  l.nearest = l.many = false;
  l.start = l.shift = 0;
  int r = from;
  while (r < to && t.program.stages[r].op != BRIM_IMAGE_RESIZE &&
         t.program.stages[r].op != BRIM_IMAGE_RESIZED_WINDOW) {
    r++;
  }
  l.resample = r;
  if (r < to) {
    const brim_image_drawn &d = c.drawn[r];
    l.nearest = t.program.stages[r].nearest != 0;
    l.start = vertical ? d.y : d.x;
    l.shift = vertical ? d.top : d.left;
    l.axis = vertical ? brim_image_axis_of(d.height, d.full_height)
                      : brim_image_axis_of(d.width, d.full_width);
    l.many = !l.nearest && l.axis.step > 1.0f;
  }
  return l;
}

AUGMENT_INLINE augment_row augment_row_of(const augment_task &t, const augment_common &c,
                                          const augment_line &l, int i) {
  augment_row row;
  int at = augment_walk(t, c, l, l.resample < l.to ? l.resample + 1 : l.from, l.to, i);
  row.a = 1.0f;
  row.b = 0.0f;
  if (at >= 0 && l.resample < l.to) {
    at += l.shift;
    if (l.nearest) {
      at =
          augment_walk(t, c, l, l.from, l.resample, l.start + brim_image_axis_nearest(&l.axis, at));
    } else {
      int count, first = brim_image_axis_first(&l.axis, at, &count);
      float sum = 0.0f;
      if (l.many) {
        for (int j = 0; j < count; j++) sum += brim_image_axis_weight(&l.axis, at, first + j);
        row.first = first;
        row.second = count;
        row.a = sum > 0.0f ? 1.0f / sum : 0.0f;
        row.number = at;
        return row;
      }
      // A step of at most 1 needs two pixels; a third one, counted by rounding, has weight 0.
      bool two = count > 1;
      float a = brim_image_axis_weight(&l.axis, at, first);
      float b = two ? brim_image_axis_weight(&l.axis, at, first + 1) : 0.0f;
      sum = a + b;
      row.first = augment_walk(t, c, l, l.from, l.resample, l.start + first);
      row.second = two ? augment_walk(t, c, l, l.from, l.resample, l.start + first + 1) : row.first;
      row.a = sum > 0.0f ? a / sum : 1.0f;
      row.b = sum > 0.0f ? b / sum : 0.0f;
      return row;
    }
  }
  row.first = row.second = at;
  return row;
}

//---------------------------------- geometry ----------------------------------

template <int C, typename R>
AUGMENT_INLINE augment_pixel<C> augment_fetch(const augment_task &t, const R &from, int y, int x) {
  if ((y | x) >= 0) return from.get(y, x);
  // If both axes leave the image, the border of the later stage covers the other.
  int stage = -(y < x ? y : x) - 1;
  augment_pixel<C> p;
#pragma unroll
  for (int k = 0; k < C; k++) p.v[k] = t.program.stages[stage].fill[k];
  return p;
}

template <int C, typename R>
AUGMENT_INLINE augment_pixel<C> augment_two(const augment_task &t, const R &from,
                                            const augment_row &y, const augment_row &x) {
  augment_pixel<C> p00, p01, p10, p11;
  if ((y.first | y.second | x.first) >= 0 && x.second == x.first + 1) {
    from.pair(y.first, x.first, &p00, &p01);
    from.pair(y.second, x.first, &p10, &p11);
  } else {
    p00 = augment_fetch<C>(t, from, y.first, x.first);
    p01 = augment_fetch<C>(t, from, y.first, x.second);
    p10 = augment_fetch<C>(t, from, y.second, x.first);
    p11 = augment_fetch<C>(t, from, y.second, x.second);
  }
  augment_pixel<C> p;
#pragma unroll
  for (int k = 0; k < C; k++) {
    float top = fmaf(x.b, p01.v[k], x.a * p00.v[k]);
    float bottom = fmaf(x.b, p11.v[k], x.a * p10.v[k]);
    p.v[k] = fmaf(y.b, bottom, y.a * top);
  }
  return p;
}

// Source pixel and weight number j of a row. If the axis is not `many`, both are in the row itself.
AUGMENT_INLINE int augment_tap(const augment_task &t, const augment_common &c,
                               const augment_line &l, const augment_row &row, int j,
                               float *weight) {
  if (!l.many) {
    *weight = j == 0 ? row.a : row.b;
    return j == 0 ? row.first : row.second;
  }
  if (row.first < 0) {  // the border of a stage after the resampling
    *weight = 1.0f;
    return row.first;
  }
  *weight = brim_image_axis_weight(&l.axis, row.number, row.first + j) * row.a;
  return augment_walk(t, c, l, l.from, l.resample, l.start + row.first + j);
}

AUGMENT_INLINE int augment_taps(const augment_line &l, const augment_row &row) {
  if (!l.many) return row.b != 0.0f ? 2 : 1;
  return row.first < 0 ? 1 : row.second;
}

template <int C, typename R>
AUGMENT_INLINE augment_pixel<C> augment_many(const augment_task &t, const augment_common &c,
                                             const R &from, const augment_row &y,
                                             const augment_row &x) {
  augment_pixel<C> p;
#pragma unroll
  for (int k = 0; k < C; k++) p.v[k] = 0.0f;
  const augment_line &lx = c.line[0], &ly = c.line[1];
  int rows = augment_taps(ly, y), columns = augment_taps(lx, x);
  for (int i = 0; i < rows; i++) {
    float wy, wx;
    int at_y = augment_tap(t, c, ly, y, i, &wy);
    augment_pixel<C> line;
#pragma unroll
    for (int k = 0; k < C; k++) line.v[k] = 0.0f;
    for (int j = 0; j < columns; j++) {
      int at_x = augment_tap(t, c, lx, x, j, &wx);
      augment_pixel<C> q = augment_fetch<C>(t, from, at_y, at_x);
#pragma unroll
      for (int k = 0; k < C; k++) line.v[k] = fmaf(wx, q.v[k], line.v[k]);
    }
#pragma unroll
    for (int k = 0; k < C; k++) p.v[k] = fmaf(wy, line.v[k], p.v[k]);
  }
  return p;
}

template <int C>
AUGMENT_INLINE void augment_put(const augment_image &image, int y, int x,
                                const augment_pixel<C> &p) {
  float *at = image.at + y * image.pitch() + x;
#pragma unroll
  for (int k = 0; k < C; k++) at[k * image.plane()] = p.v[k];
}

// Applies the geometry of stages from .. to - 1 at once: computes the source of every result pixel.
template <int C, typename R>
AUGMENT_INLINE void augment_group(const augment_task &t, const augment_block &b, int from, int to,
                                  const R &reader, const augment_image &image) {
  augment_common &c = *b.common;
  if (threadIdx.x < 2) c.line[threadIdx.x] = augment_line_of(t, c, from, to, threadIdx.x == 1);
  __syncthreads();
  for (int y = (int)threadIdx.x; y < image.height; y += (int)blockDim.x) {
    b.rows[y] = augment_row_of(t, c, c.line[1], y);
  }
  __syncthreads();
  const augment_tile tile = augment_tile_of(image.height);
  const bool one = c.line[0].resample == to || c.line[0].nearest;
  const bool many = c.line[0].many || c.line[1].many;
  for (int x = tile.x; x < image.width; x += tile.dx) {
    const augment_row cx = augment_row_of(t, c, c.line[0], x);
    if (many) {
      for (int y = tile.y; y < image.height; y += tile.dy) {
        augment_put<C>(image, y, x, augment_many<C>(t, c, reader, b.rows[y], cx));
      }
    } else if (one) {
      for (int y = tile.y; y < image.height; y += tile.dy) {
        augment_put<C>(image, y, x, augment_fetch<C>(t, reader, b.rows[y].first, cx.first));
      }
    } else {
      for (int y = tile.y; y < image.height; y += tile.dy) {
        augment_put<C>(image, y, x, augment_two<C>(t, reader, b.rows[y], cx));
      }
    }
  }
  __syncthreads();
}

// Runs the first group, which reads the sample from the set.
template <int C>
AUGMENT_INLINE void augment_load(const augment_task &t, const augment_block &b, int *next,
                                 augment_image *image, const unsigned char *sample) {
  int end = t.first_end;
  *image = {b.buffer[0], t.size[end].height, t.size[end].width};
  if (t.program.in_float) {
    const augment_from_floats<C> from = {(const float *)sample, t.size[0].width};
    augment_group<C>(t, b, 0, end, from, *image);
  } else {
    const augment_from_bytes<C> from = {sample, t.size[0].width};
    augment_group<C>(t, b, 0, end, from, *image);
  }
  *next = end;
}

// Runs a later group, which reads one buffer and writes the other.
template <int C>
AUGMENT_INLINE void augment_regroup(const augment_task &t, const augment_block &b, int *next,
                                    augment_image *image) {
  int end = t.group_end[*next];
  const augment_from_planes<C> from = {image->at, image->pitch(), image->plane()};
  float *other = image->at == b.buffer[0] ? b.buffer[1] : b.buffer[0];
  *image = {other, t.size[end].height, t.size[end].width};
  augment_group<C>(t, b, *next, end, from, *image);
  *next = end;
}

template <int C>
AUGMENT_INLINE void augment_flip(const augment_image &image, int op, const brim_image_drawn &d) {
  if (!d.on) return;
  const bool vertical = op == BRIM_IMAGE_FLIP_VERTICAL;
  const int height = vertical ? image.height / 2 : image.height;
  const int width = vertical ? image.width : image.width / 2;
  const augment_tile tile = augment_tile_of(height);
  for (int y = tile.y; y < height; y += tile.dy) {
    for (int x = tile.x; x < width; x += tile.dx) {
      int y2 = vertical ? image.height - 1 - y : y, x2 = vertical ? x : image.width - 1 - x;
#pragma unroll
      for (int k = 0; k < C; k++) {
        float *plane = image.at + k * image.plane();
        float v = plane[y * image.pitch() + x];
        plane[y * image.pitch() + x] = plane[y2 * image.pitch() + x2];
        plane[y2 * image.pitch() + x2] = v;
      }
    }
  }
  __syncthreads();
}

#endif  // BRIM_DATA_AUGMENT_INT_CUH_
