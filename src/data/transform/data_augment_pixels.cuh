// The stages that a block applies in place (colours, blur, cutout), and storing the result.
#ifndef BRIM_DATA_AUGMENT_PIXELS_CUH_
#define BRIM_DATA_AUGMENT_PIXELS_CUH_

#include "data/transform/data_augment_int.cuh"

//---------------------------------- colours ----------------------------------

// Sums v over the block, always in the same order. Every thread gets the sum.
AUGMENT_INLINE float augment_sum(float v, float *sums) {
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = v;
  __syncthreads();
  int warps = (int)blockDim.x >> 5, lane = (int)threadIdx.x & 31;
  v = lane < warps ? sums[lane] : 0.0f;
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();
  return v;
}

// The parts of a color_jitter in the order drawn; -1 = a part that does nothing.
struct augment_parts {
  int part[BRIM_IMAGE_JITTER_COUNT];
  float factor[BRIM_IMAGE_JITTER_COUNT];
};

template <int C>
AUGMENT_INLINE augment_pixel<C> augment_jitter_pixel(augment_pixel<C> p, const augment_parts &j,
                                                     int from, int to, float mean, float high) {
#pragma unroll
  for (int i = 0; i < BRIM_IMAGE_JITTER_COUNT; i++) {
    if (i < from || i >= to || j.part[i] < 0) continue;
    if constexpr (C == 3) {
      brim_image_rgb rgb = {p.v[0], p.v[1], p.v[2]};
      rgb = brim_image_jitter_rgb(rgb, j.part[i], j.factor[i], mean, high);
      p.v[0] = rgb.r;
      p.v[1] = rgb.g;
      p.v[2] = rgb.b;
    } else {
#pragma unroll
      for (int k = 0; k < C; k++) {
        p.v[k] = brim_image_jitter_one(p.v[k], j.part[i], j.factor[i], mean, high);
      }
    }
  }
  return p;
}

// Applies parts from .. to - 1 to every pixel. Returns the sum of the resulting grays of this thread's
// pixels.
template <int C>
AUGMENT_INLINE float augment_jitter_pass(const augment_image &image, const augment_parts &j,
                                         int from, int to, float mean, float high) {
  const augment_tile tile = augment_tile_of(image.height);
  const int pitch = image.pitch(), plane = image.plane();
  bool changes = false;
#pragma unroll
  for (int i = 0; i < BRIM_IMAGE_JITTER_COUNT; i++) {
    changes = changes || (i >= from && i < to && j.part[i] >= 0);
  }
  float sum = 0.0f;
  for (int y = tile.y; y < image.height; y += tile.dy) {
    for (int x = tile.x; x < image.width; x += tile.dx) {
      float *at = image.at + y * pitch + x;
      augment_pixel<C> p;
#pragma unroll
      for (int k = 0; k < C; k++) p.v[k] = at[k * plane];
      p = augment_jitter_pixel<C>(p, j, from, to, mean, high);
      if constexpr (C == 3) {
        sum += brim_image_gray(p.v[0], p.v[1], p.v[2]);
      } else {
        sum += p.v[0];
      }
      if (!changes) continue;
#pragma unroll
      for (int k = 0; k < C; k++) at[k * plane] = p.v[k];
    }
  }
  return sum;
}

template <int C>
AUGMENT_INLINE void augment_jitter(const augment_image &image, const brim_image_drawn &d,
                                   float high, float *sums) {
  if (!d.on) return;
  augment_parts j;
  int contrast = BRIM_IMAGE_JITTER_COUNT;
#pragma unroll
  for (int i = 0; i < BRIM_IMAGE_JITTER_COUNT; i++) {
    int part = d.order[i];
    bool idle =
        !d.changes[part] || (C != 3 && (part == BRIM_IMAGE_SATURATION || part == BRIM_IMAGE_HUE));
    j.part[i] = idle ? -1 : part;
    j.factor[i] = d.factor[part];
    if (!idle && part == BRIM_IMAGE_CONTRAST) contrast = i;
  }
  // Contrast needs the mean of the whole image after the parts before it.
  float sum = augment_jitter_pass<C>(image, j, 0, contrast, 0.0f, high);
  if (contrast < BRIM_IMAGE_JITTER_COUNT) {
    float mean = augment_sum(sum, sums) / ((float)image.height * (float)image.width);
    augment_jitter_pass<C>(image, j, contrast, BRIM_IMAGE_JITTER_COUNT, mean, high);
  }
  __syncthreads();
}

template <int C>
AUGMENT_INLINE void augment_gray(const augment_image &image, const brim_image_drawn &d) {
  if (!d.on) return;
  if constexpr (C == 3) {
    const augment_tile tile = augment_tile_of(image.height);
    const int pitch = image.pitch(), plane = image.plane();
    for (int y = tile.y; y < image.height; y += tile.dy) {
      for (int x = tile.x; x < image.width; x += tile.dx) {
        float *at = image.at + y * pitch + x;
        float v = brim_image_gray(at[0], at[plane], at[2 * plane]);
        at[0] = at[plane] = at[2 * plane] = v;
      }
    }
    __syncthreads();
  }
}

//---------------------------------- blur ----------------------------------

// The rows or the columns of a plane: `count` lines of `length` pixels.
struct augment_lines {
  int count, length;
  int step, stride;  // floats from a line to the next, and from a pixel to the next
};

// Blurs AUGMENT_SPAN pixels of a line from `start` on. `weights` is in shared memory.
AUGMENT_INLINE void augment_blur_span(const float *line, const augment_lines &l, int start,
                                      const float *weights, int taps, float out[AUGMENT_SPAN]) {
  const int reach = taps / 2;
  const bool inside = start - reach >= 0 && start + AUGMENT_SPAN - 1 + reach < l.length;
#pragma unroll
  for (int i = 0; i < AUGMENT_SPAN; i++) out[i] = 0.0f;
  int first = 0;
  for (; first + AUGMENT_TAPS <= taps; first += AUGMENT_TAPS) {
    float in[AUGMENT_SPAN + AUGMENT_TAPS - 1];
    const int at = start - reach + first;
#pragma unroll
    for (int i = 0; i < AUGMENT_SPAN + AUGMENT_TAPS - 1; i++) {
      int place = inside ? at + i : brim_image_inside(at + i, l.length, BRIM_IMAGE_PAD_REFLECT);
      in[i] = line[place * l.stride];
    }
#pragma unroll
    for (int k = 0; k < AUGMENT_TAPS; k++) {
      const float w = weights[first + k];
#pragma unroll
      for (int i = 0; i < AUGMENT_SPAN; i++) out[i] = fmaf(w, in[i + k], out[i]);
    }
  }
  for (; first < taps; first++) {
    const float w = weights[first];
    const int at = start - reach + first;
#pragma unroll
    for (int i = 0; i < AUGMENT_SPAN; i++) {
      int place = inside ? at + i : brim_image_inside(at + i, l.length, BRIM_IMAGE_PAD_REFLECT);
      out[i] = fmaf(w, line[place * l.stride], out[i]);
    }
  }
}

// Blurs all lines in place: a round takes whole lines and reads them into registers before it writes any.
// Neighbouring threads take neighbouring lines.
template <int C>
AUGMENT_INLINE void augment_blur_lines(const augment_image &image, const augment_lines &l,
                                       const float *weights, int taps) {
  const int threads = (int)blockDim.x, lines = C * l.count;
  const int spans = (l.length + AUGMENT_SPAN - 1) / AUGMENT_SPAN;
  const int most = threads / spans;
  const int rounds = (lines + most - 1) / most, each = (lines + rounds - 1) / rounds;
  const int span = (int)threadIdx.x / each, mine = (int)threadIdx.x % each;
  for (int round = 0; round < rounds; round++) {
    const int number = round * each + mine;
    const bool busy = span < spans && number < lines;
    const int start = span * AUGMENT_SPAN;
    float *line = image.at;
    float out[AUGMENT_SPAN];
    if (busy) {
      int plane = number / l.count;
      line += plane * image.plane() + (number - plane * l.count) * l.step;
      augment_blur_span(line, l, start, weights, taps, out);
    }
    __syncthreads();
    if (busy) {
#pragma unroll
      for (int i = 0; i < AUGMENT_SPAN; i++) {
        if (start + i < l.length) line[(start + i) * l.stride] = out[i];
      }
    }
  }
  __syncthreads();
}

template <int C>
AUGMENT_INLINE void augment_blur(const augment_image &image, int taps, const brim_image_drawn &d,
                                 float *weights) {
  if (!d.on) return;
  const int k = (int)threadIdx.x;
  for (int i = k; i < taps; i += (int)blockDim.x) {
    weights[i] = brim_image_blur_weight(i, taps, d.sigma);
  }
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < taps; i++) sum += weights[i];
  __syncthreads();
  for (int i = k; i < taps; i += (int)blockDim.x) weights[i] = weights[i] / sum;
  __syncthreads();
  const int pitch = image.pitch();
  const augment_lines rows = {image.height, image.width, pitch, 1};
  const augment_lines columns = {image.width, image.height, 1, pitch};
  augment_blur_lines<C>(image, rows, weights, taps);
  augment_blur_lines<C>(image, columns, weights, taps);
}

//---------------------------------- cutout and storing ----------------------------------

template <int C>
AUGMENT_INLINE void augment_cutout(const augment_image &image, const brim_image_stage &s,
                                   const brim_augment &ids, const brim_image_drawn &d) {
  if (!d.on) return;
  for (int n = 0; n < s.count; n++) {
    const brim_image_square q =
        brim_image_draw_square(&s, &ids, (uint32_t)n, image.height, image.width);
    const augment_tile tile = augment_tile_of(q.y1 - q.y0);
    for (int y = q.y0 + tile.y; y < q.y1; y += tile.dy) {
      for (int x = q.x0 + tile.x; x < q.x1; x += tile.dx) {
#pragma unroll
        for (int k = 0; k < C; k++) {
          image.at[k * image.plane() + y * image.pitch() + x] = s.fill[k];
        }
      }
    }
  }
  __syncthreads();
}

// Stores the image packed as (height, width, C), as floats or rounded to bytes. Writes four bytes at a
// time if rows are aligned to words.
template <int C>
AUGMENT_INLINE void augment_store(const augment_image &image, unsigned char *out, bool floats) {
  const augment_tile tile = augment_tile_of(image.height);
  const int pitch = image.pitch(), plane = image.plane(), row = image.width * C;
  const bool words = !floats && row % 4 == 0 && ((uintptr_t)out & 3) == 0;
  for (int y = tile.y; y < image.height; y += tile.dy) {
    const float *line = image.at + y * pitch;
    if (words) {
      for (int j = tile.x; j < row / 4; j += tile.dx) {
        int x = 4 * j / C, k = 4 * j - x * C;
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          word |= (uint32_t)brim_image_byte(line[k * plane + x]) << (8 * i);
          k++;
          x += k == C;
          k = k == C ? 0 : k;
        }
        ((uint32_t *)out)[y * (row / 4) + j] = word;
      }
      continue;
    }
    for (int j = tile.x; j < row; j += tile.dx) {
      int x = j / C, k = j - x * C;
      float v = line[k * plane + x];
      if (floats) {
        ((float *)out)[y * row + j] = v;
      } else {
        out[y * row + j] = brim_image_byte(v);
      }
    }
  }
}

#endif  // BRIM_DATA_AUGMENT_PIXELS_CUH_
