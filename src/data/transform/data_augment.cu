// Transforms on the GPU: the extension "data.augment". One block makes one view of one sample. It applies
// the first geometry stages while it reads the sample into planes of floats, which lie in shared memory
// if they fit, else in a slice of scratch per block. The other stages work on the planes, and the result
// is written once. hd/hd_image.h defines what a stage draws and does to a pixel; this file only divides
// the work among threads. A program without stages is a gather (data_gather.cuh).
#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base_status.h"
#include "data/transform/data_augment_pixels.cuh"
#include "data/transform/data_cuda.h"
#include "data/transform/data_fetch.cuh"
#include "data/transform/data_gather.cuh"

static const brim_host_api *host_api;

void brim_data_cuda_set_host(const brim_host_api *host) { host_api = host; }

static brim_status fail(brim_status status, const char *fmt, ...) {
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return host_api->fail(status, text);
}

static brim_status check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return BRIM_OK;
  cudaGetLastError();
  // The first launch of a kernel loads it, which can fail for lack of memory.
  brim_status status = error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE;
  return fail(status, "%s: %s", what, cudaGetErrorString(error));
}

//---------------------------------- kernel ----------------------------------

// The dynamic shared memory of a block: rows of the table, then planes. All instances of the kernel use
// this one array.
extern __shared__ float4 augment_shared[];

template <int C>
AUGMENT_INLINE augment_image run_stages(const augment_task &t, const augment_block &b,
                                        uint64_t place) {
  const augment_common &c = *b.common;
  augment_image image;
  int next = 0;
  augment_load<C>(t, b, &next, &image,
                  (const unsigned char *)t.batch.inputs + place * t.program.sample_bytes);
  while (next < t.program.stage_count) {
    const brim_image_stage &s = t.program.stages[next];
    const brim_image_drawn &d = c.drawn[next];
    if (augment_is_geometry(s.op) && !t.in_place[next]) {
      augment_regroup<C>(t, b, &next, &image);
      continue;
    }
    switch (s.op) {
      case BRIM_IMAGE_JITTER:
        augment_jitter<C>(image, d, t.program.in_float ? 1.0f : 255.0f, b.common->sums);
        break;
      case BRIM_IMAGE_GRAY:
        augment_gray<C>(image, d);
        break;
      case BRIM_IMAGE_BLUR:
        augment_blur<C>(image, s.taps, d, (float *)b.rows);
        break;
      case BRIM_IMAGE_CUTOUT:
        augment_cutout<C>(image, s, c.ids, d);
        break;
      default:
        augment_flip<C>(image, s.op, d);
        break;
    }
    next++;
  }
  return image;
}

// Draws the random values of all stages, one warp a stage: some draws take long.
AUGMENT_INLINE void draw_stages(const augment_task &t, augment_common *c, uint64_t index,
                                uint32_t view) {
  const brim_augment ids = {t.program.key, (uint64_t)t.batch.epoch, index, view};
  if (threadIdx.x == 0) c->ids = ids;
  if ((threadIdx.x & 31) == 0) {
    for (int s = (int)threadIdx.x >> 5; s < t.program.stage_count; s += (int)blockDim.x >> 5) {
      brim_image_draw(&t.program.stages[s], &ids, t.size[s].height, t.size[s].width, &c->drawn[s]);
    }
  }
  __syncthreads();
}

template <int C, bool SHARED>
__global__ void __launch_bounds__(AUGMENT_THREADS, 2)
    augment_kernel(const __grid_constant__ augment_task t) {
  __shared__ augment_common common;
  augment_block b;
  b.common = &common;
  b.rows = (augment_row *)augment_shared;
  b.buffer[0] = SHARED ? (float *)(b.rows + t.rows)
                       : t.scratch + (size_t)blockIdx.x * t.buffers * t.buffer_floats;
  b.buffer[1] = b.buffer[0] + (t.buffers > 1 ? t.buffer_floats : 0);
  const brim_augment_batch &batch = t.batch;
  const int64_t total = batch.capacity * t.program.views;
  for (int64_t item = blockIdx.x; item < total; item += gridDim.x) {
    const int64_t view = item / batch.capacity, row = item - view * batch.capacity;
    const bool padding = row >= batch.rows;
    const uint64_t index = padding ? 0 : batch.index[row];
    if (view == 0 && batch.target_bytes) {
      gather_block(
          (unsigned char *)batch.out_targets + (size_t)row * batch.target_bytes,
          padding ? NULL : (const unsigned char *)batch.targets + index * batch.target_bytes,
          batch.target_bytes);
    }
    unsigned char *out = (unsigned char *)batch.out + (size_t)item * t.program.out_bytes;
    if (padding) {
      gather_block(out, NULL, t.program.out_bytes);
      continue;
    }
    draw_stages(t, &common, index, (uint32_t)view);
    const augment_image image = run_stages<C>(t, b, batch.in_order ? (uint64_t)row : index);
    augment_store<C>(image, out, t.program.out_float != 0);
    __syncthreads();
  }
}

//---------------------------------- shape of a program ----------------------------------

static bool is_resample(int op) {
  return op == BRIM_IMAGE_RESIZE || op == BRIM_IMAGE_RESIZED_WINDOW;
}

static bool is_flip(int op) { return op == BRIM_IMAGE_FLIP || op == BRIM_IMAGE_FLIP_VERTICAL; }

// The end of the group of geometry stages that begins at `from` and is applied at once: any number of
// windows and flips, and at most one resampling.
static int group_end(const brim_augment_program *p, int from) {
  int end = from;
  bool resampled = false;
  for (; end < p->stage_count && augment_is_geometry(p->stages[end].op); end++) {
    if (is_resample(p->stages[end].op)) {
      if (resampled) break;
      resampled = true;
    }
  }
  return end;
}

// Makes room for an image of this size among the planes and in the table of rows.
static void add_image_size(augment_task *t, augment_size size, int *most_pixels, int *longest) {
  size_t floats = (size_t)size.height * (size_t)(size.width | 1) * (size_t)t->program.channels;
  // Planes begin at multiples of 16 bytes.
  floats = (floats + 3) / 4 * 4;
  if (floats > t->buffer_floats) t->buffer_floats = floats;
  if (size.height > t->rows) t->rows = size.height;
  int pixels = size.height * size.width;
  if (pixels > *most_pixels) *most_pixels = pixels;
  if (size.height > *longest) *longest = size.height;
  if (size.width > *longest) *longest = size.width;
}

// Shared memory a block may have, without the kernel's static part. The least of all devices, so that a
// plan for one device holds on another.
static size_t ask_shared_most(void) {
  int count = 0, most = 227 << 10;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int i = 0; i < count; i++) {
    int bytes = 0;
    if (cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, i) == cudaSuccess &&
        bytes < most) {
      most = bytes;
    }
  }
  cudaGetLastError();
  return (size_t)most - sizeof(augment_common) - 128;
}

// Asks only once: devices do not change.
static size_t shared_most(void) {
  static const size_t most = ask_shared_most();
  return most;
}

// Fills the task for a program: sizes before each stage, groups, buffers, rows of the table, threads.
// Buffers are sized for images between groups: inside a group no image is stored.
static void fill_task(const brim_augment_program *p, augment_task *t) {
  t->program = *p;
  t->size[0] = {p->in_height, p->in_width};
  bool bytes = !p->in_float;
  for (int i = 0; i < p->stage_count; i++) {
    brim_image_stage *s = &t->program.stages[i];
    // Fill values are rounded to bytes, as in a worker, until a stage has mixed pixels.
    bytes = bytes &&
            (s->op == BRIM_IMAGE_CUTOUT || (augment_is_geometry(s->op) && !is_resample(s->op)));
    for (int c = 0; bytes && c < BRIM_IMAGE_MAX_CHANNELS; c++) {
      s->fill[c] = (float)brim_image_byte(s->fill[c]);
    }
    t->size[i + 1] = t->size[i];
    if (s->op == BRIM_IMAGE_WINDOW || is_resample(s->op)) {
      t->size[i + 1] = {s->out_height, s->out_width};
    }
  }
  t->buffers = 1;
  t->buffer_floats = 0;
  t->rows = (BRIM_IMAGE_MAX_TAPS + 1) * (int)sizeof(float) / (int)sizeof(augment_row);
  int pixels = 0, longest = 0;
  for (int i = 0; i == 0 || i < p->stage_count;) {
    int end = group_end(p, i);
    bool flips = i > 0;
    for (int k = i; k < end; k++) flips = flips && is_flip(p->stages[k].op);
    for (int k = i; k < end; k++) {
      t->in_place[k] = flips;
      t->group_end[k] = (unsigned char)end;
    }
    if (i == 0) t->first_end = end;
    if (i > 0 && end > i && !flips) t->buffers = 2;
    add_image_size(t, t->size[end], &pixels, &longest);
    i = end;
    while (i < p->stage_count && !augment_is_geometry(p->stages[i].op)) i++;
  }
  t->threads = pixels <= 1024 ? 128 : pixels <= 4096 ? 256 : AUGMENT_THREADS;
  if (longest > t->threads * AUGMENT_SPAN) t->threads = AUGMENT_THREADS;
  t->shared_bytes = (size_t)t->rows * sizeof(augment_row);
  size_t planes = t->buffers * t->buffer_floats * sizeof(float);
  t->shared = t->shared_bytes + planes <= shared_most();
  if (t->shared) {
    t->shared_bytes += planes;
  } else {
    t->threads = AUGMENT_THREADS;
  }
}

// Number of blocks if the planes lie in scratch: two for each of an H200's 132 multiprocessors, fewer if
// their scratch would exceed 256 MB, but at least 16.
static int64_t scratch_blocks(const augment_task *t, int64_t items) {
  size_t slice = t->buffers * t->buffer_floats * sizeof(float);
  int64_t blocks = (int64_t)(((size_t)256 << 20) / slice);
  if (blocks < 16) blocks = 16;
  if (blocks > 264) blocks = 264;
  return blocks < items ? blocks : items;
}

//---------------------------------- the table ----------------------------------

static const char *const names[BRIM_IMAGE_OP_COUNT] = {
    "crop or pad",  "resize",    "random_resized_crop", "flip",   "vertical flip",
    "color_jitter", "grayscale", "gaussian_blur",       "cutout",
};

static brim_status check_size(const char *what, augment_size size, int channels) {
  int64_t floats = (int64_t)size.height * ((int64_t)size.width | 1) * channels;
  // The table of rows must fit in shared memory.
  if (size.height >= 1 && size.width >= 1 && floats < (int64_t)1 << 30 &&
      (size_t)size.height * sizeof(augment_row) <= shared_most()) {
    return BRIM_OK;
  }
  return fail(BRIM_EUNSUPPORTED, "cuda: %s of %d x %d pixels: too large", what, size.height,
              size.width);
}

static brim_status supports(const brim_augment_program *p) {
  if (p->stage_count == 0) return BRIM_OK;
  if (p->stage_count < 0 || p->stage_count > BRIM_IMAGE_MAX_STAGES || p->views < 1 ||
      p->views > 256) {
    return fail(BRIM_EUNSUPPORTED, "cuda: a pipeline of %d stages and %d views", p->stage_count,
                p->views);
  }
  if (p->channels < 1 || p->channels > BRIM_IMAGE_MAX_CHANNELS) {
    return fail(BRIM_EUNSUPPORTED, "cuda: images of %d channels cannot be transformed",
                p->channels);
  }
  if (p->in_float && !p->out_float) {
    return fail(BRIM_EUNSUPPORTED, "cuda: samples of floats cannot become bytes");
  }
  augment_size size = {p->in_height, p->in_width};
  BRIM_TRY(check_size("images", size, p->channels));
  for (int i = 0; i < p->stage_count; i++) {
    const brim_image_stage *s = &p->stages[i];
    if (s->op < 0 || s->op >= BRIM_IMAGE_OP_COUNT) {
      return fail(BRIM_EUNSUPPORTED, "cuda: stage %d is of a kind this plug-in does not know", i);
    }
    if (s->op == BRIM_IMAGE_BLUR && (s->taps < 1 || s->taps > BRIM_IMAGE_MAX_TAPS)) {
      return fail(BRIM_EUNSUPPORTED, "cuda: %s of %d taps, at most %d", names[s->op], s->taps,
                  BRIM_IMAGE_MAX_TAPS);
    }
    if (s->op == BRIM_IMAGE_BLUR &&
        (size.height > AUGMENT_MOST_LINE || size.width > AUGMENT_MOST_LINE)) {
      return fail(BRIM_EUNSUPPORTED, "cuda: %s of %d x %d pixels, at most %d on a side",
                  names[s->op], size.height, size.width, AUGMENT_MOST_LINE);
    }
    if (s->op == BRIM_IMAGE_WINDOW || is_resample(s->op)) {
      size = {s->out_height, s->out_width};
      BRIM_TRY(check_size(names[s->op], size, p->channels));
    }
  }
  return BRIM_OK;
}

static size_t scratch_bytes(const brim_augment_program *p, int64_t capacity) {
  if (p->stage_count == 0 || capacity < 1) return 0;
  augment_task t = {};
  fill_task(p, &t);
  if (t.shared) return 0;
  return (size_t)scratch_blocks(&t, capacity * p->views) * t.buffers * t.buffer_floats *
         sizeof(float);
}

template <int C, bool SHARED>
static brim_status launch(const augment_task *t, cudaStream_t stream) {
  int64_t items = t->batch.capacity * t->program.views;
  int64_t blocks = SHARED ? items : scratch_blocks(t, items);
  if (blocks > INT32_MAX) blocks = INT32_MAX;
  if (SHARED) {
    // Prefer shared memory to cache: more blocks run at once, and a sample is read only once.
    BRIM_TRY(check(cudaFuncSetAttribute(augment_kernel<C, SHARED>,
                                        cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared),
                   "data.augment: shared memory"));
  }
  if (t->shared_bytes > (size_t)48 << 10) {
    BRIM_TRY(check(
        cudaFuncSetAttribute(augment_kernel<C, SHARED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)t->shared_bytes),
        "data.augment: shared memory"));
  }
  cudaGetLastError();  // clears errors of earlier calls
  augment_kernel<C, SHARED><<<(unsigned)blocks, t->threads, t->shared_bytes, stream>>>(*t);
  return check(cudaGetLastError(), "data.augment");
}

template <int C>
static brim_status launch_channels(const augment_task *t, cudaStream_t stream) {
  return t->shared ? launch<C, true>(t, stream) : launch<C, false>(t, stream);
}

// Selects the device that `memory` belongs to: a thread may use several devices.
static brim_status select_device(const void *memory, int *device) {
  cudaPointerAttributes at;
  BRIM_TRY(check(cudaPointerGetAttributes(&at, memory), "data.augment: the device's memory"));
  if (device) *device = at.device;
  return check(cudaSetDevice(at.device), "cudaSetDevice");
}

static brim_status run(void *stream, const brim_augment_program *p, const brim_augment_batch *batch,
                       void *scratch) {
  if (batch->rows < 1 || batch->capacity < batch->rows || !batch->inputs || !batch->index ||
      !batch->out) {
    return fail(BRIM_EINVAL, "data.augment: %lld rows of a batch of %lld cannot be made",
                (long long)batch->rows, (long long)batch->capacity);
  }
  BRIM_TRY(select_device(batch->out, NULL));
  brim_augment_batch b = *batch;
  if (!b.targets || !b.out_targets) b.target_bytes = 0;
  if (p->stage_count == 0) {
    BRIM_TRY(check(gather_samples(&b, p->sample_bytes, p->views, (cudaStream_t)stream),
                   "data.augment: gather"));
    return check(gather_targets(&b, (cudaStream_t)stream), "data.augment: targets");
  }
  BRIM_TRY(supports(p));
  augment_task t = {};
  fill_task(p, &t);
  t.batch = b;
  t.scratch = (float *)scratch;
  if (!t.shared && !scratch) return fail(BRIM_EINVAL, "data.augment: no scratch was given");
  switch (p->channels) {
    case 1:
      return launch_channels<1>(&t, (cudaStream_t)stream);
    case 2:
      return launch_channels<2>(&t, (cudaStream_t)stream);
    case 3:
      return launch_channels<3>(&t, (cudaStream_t)stream);
    default:
      return launch_channels<4>(&t, (cudaStream_t)stream);
  }
}

//---------------------------------- rows of a mapped file ----------------------------------

// Every failure to lock is BRIM_EUNSUPPORTED: the caller then works without a mapped set.
static brim_status refuse(cudaError_t error, const char *what) {
  cudaGetLastError();
  return fail(BRIM_EUNSUPPORTED, "%s: %s", what, cudaGetErrorString(error));
}

static brim_status lock(const void *memory, size_t bytes, const void *near, const void **address) {
  int device = 0, can = 0;
  BRIM_TRY(select_device(near, &device));
  cudaError_t error =
      cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, device);
  if (error != cudaSuccess || !can) {
    cudaGetLastError();
    return fail(BRIM_EUNSUPPORTED, "cuda: this GPU cannot read pages that are mapped read-only");
  }
  void *pages = (void *)memory, *there = NULL;
  error = cudaHostRegister(pages, bytes, cudaHostRegisterMapped | cudaHostRegisterReadOnly);
  if (error != cudaSuccess) return refuse(error, "cuda: cudaHostRegister");
  error = cudaHostGetDevicePointer(&there, pages, 0);
  if (error != cudaSuccess) {
    cudaHostUnregister(pages);
    return refuse(error, "cuda: cudaHostGetDevicePointer");
  }
  *address = there;
  return BRIM_OK;
}

static void unlock(const void *memory) {
  if (cudaHostUnregister((void *)memory) != cudaSuccess) cudaGetLastError();
}

static brim_status fetch(void *stream, const brim_augment_fetch *f) {
  if (f->rows < 1 || f->capacity < f->rows || !f->from || !f->place || !f->to) {
    return fail(BRIM_EINVAL, "data.augment: %lld rows of a batch of %lld cannot be fetched",
                (long long)f->rows, (long long)f->capacity);
  }
  BRIM_TRY(select_device(f->to, NULL));
  BRIM_TRY(check(fetch_rows(f, (cudaStream_t)stream), "data.augment: fetch"));
  if (!f->targets || !f->out_targets) return BRIM_OK;
  brim_augment_batch b = {};
  b.targets = f->targets;
  b.out_targets = f->out_targets;
  b.target_bytes = f->target_bytes;
  b.index = f->index;
  b.rows = f->rows;
  b.capacity = f->capacity;
  return check(gather_targets(&b, (cudaStream_t)stream), "data.augment: targets");
}

const brim_augment_table brim_data_cuda_augment = {
    BRIM_AUGMENT_ABI, supports, scratch_bytes, run, lock, unlock, fetch};
