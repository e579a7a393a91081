// A pipeline of transforms, prepared for the samples of one source, and what a worker does with it:
// packed pixels move as they are until the first stage that mixes them, from there on they are
// planes of floats, and are rounded once at the end. Nothing is allocated after preparing. What a
// single stage does is in data_transform_*.c.
#include "data/transform/data_transform.h"

#include <string.h>

#include "base/base.h"

//---------------------------------- preparing ----------------------------------

static size_t sample_type_bytes(int32_t is_float) { return is_float ? sizeof(float) : 1; }

static bool resamples(const brim_image_stage *s) {
  return s->op == BRIM_IMAGE_RESIZE || s->op == BRIM_IMAGE_RESIZED_WINDOW;
}
static bool changes_size(const brim_image_stage *s) {
  return resamples(s) || s->op == BRIM_IMAGE_WINDOW;
}
static bool mixes(const brim_image_stage *s) {
  return resamples(s) || s->op == BRIM_IMAGE_JITTER || s->op == BRIM_IMAGE_GRAY ||
         s->op == BRIM_IMAGE_BLUR;
}

static size_t area(const brim_image_stage *s) {
  return (size_t)s->out_height * (size_t)s->out_width;
}

static void grow(size_t *size, size_t n) {
  if (n > *size) *size = n;
}

// One after the other, aligned; 0 bytes take no place.
static size_t place(brim_transforms *t, size_t bytes) {
  size_t at = t->scratch_bytes;
  t->scratch_bytes += (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  return at;
}

// Buffers of packed pixels: for every stage that writes to another place than the result.
static void place_packed(brim_transforms *t) {
  const brim_augment_program *p = &t->program;
  size_t pixel = (size_t)p->channels * sample_type_bytes(p->in_float), size = 0, writes = 0;
  bool read_only = true;  // still the source's own
  for (int32_t i = 0; i < p->stage_count && !resamples(&p->stages[i]); i++) {
    const brim_image_stage *s = &p->stages[i];
    bool moves = s->op == BRIM_IMAGE_WINDOW || (read_only && !mixes(s));
    if (!moves) continue;
    read_only = false;
    if (t->resizes[i + 1] == 0 && p->in_float == p->out_float) continue;
    writes++;
    grow(&size, area(s) * pixel);
  }
  for (size_t k = 0; k < 2; k++) t->packed_at[k] = place(t, writes > k ? size : 0);
}

static void place_planes(brim_transforms *t) {
  const brim_augment_program *p = &t->program;
  size_t channels = (size_t)p->channels, first = 0, second = 0, resample = 0, blur = 0;
  bool mixed = false;
  for (int32_t i = 0; i < p->stage_count; i++) {
    const brim_image_stage *s = &p->stages[i];
    bool again = mixed && changes_size(s);
    mixed = mixed || mixes(s);
    if (!mixed) continue;
    grow(&first, area(s) * channels * sizeof(float));
    if (again) second = SIZE_MAX;
    if (resamples(s)) {
      grow(&resample, brim_transform_resample_bytes(s, s->in_height, s->in_width, p->channels));
    }
    if (s->op == BRIM_IMAGE_BLUR) {
      grow(&blur, brim_transform_blur_bytes(s, s->out_width));
      grow(&second, area(s) * sizeof(float));
    }
  }
  t->plane_at[0] = place(t, first);
  t->plane_at[1] = place(t, second == SIZE_MAX ? first : second);
  t->resample_at = place(t, resample);
  t->blur_at = place(t, blur);
}

// Bytes of a sample of these dimensions, far from overflow with all that scratch is made of.
static brim_status check_bytes(const brim_augment_program *p) {
  for (int32_t i = 0; i < p->stage_count; i++) {
    const brim_image_stage *s = &p->stages[i];
    size_t bytes = area(s);
    if (__builtin_mul_overflow(bytes, (size_t)p->channels * sizeof(float), &bytes) ||
        bytes > (size_t)1 << 40) {
      return brim_fail(BRIM_ELIMIT, "transforms: images of %dx%d with %d channels are too large",
                       (int)s->out_height, (int)s->out_width, (int)p->channels);
    }
  }
  return BRIM_OK;
}

static brim_status prepare(brim_transforms *t, const brim_pipeline *pipeline,
                           const brim_source *source, bool random) {
  const brim_source_info *info = &source->info;
  bool image = info->rank == 2 || info->rank == 3;
  brim_transform_build b = {.t = t, .source = info, .random = random};
  b.channels = image && info->rank == 3 ? info->dim[2] : 1;
  b.height = image ? info->dim[0] : 1;
  size_t type_bytes = sample_type_bytes(info->type != BRIM_SAMPLE_U8);
  b.width = image ? info->dim[1] : (int64_t)(source->input_bytes / type_bytes);
  t->varies = info->varies != 0;
  t->info = *info;
  brim_augment_program *p = &t->program;
  p->views = 1;
  p->in_height = (int32_t)(b.height <= INT32_MAX ? b.height : 0);
  p->in_width = (int32_t)(b.width <= INT32_MAX ? b.width : 0);
  p->channels = (int32_t)(b.channels <= INT32_MAX ? b.channels : 0);
  BRIM_TRY(brim_transform_read(pipeline, &b));
  p->out_height = p->stage_count ? (int32_t)b.height : p->in_height;
  p->out_width = p->stage_count ? (int32_t)b.width : p->in_width;
  p->in_float = info->type != BRIM_SAMPLE_U8;
  p->out_float = t->info.type != BRIM_SAMPLE_U8;
  p->sample_bytes = source->input_bytes;
  p->out_bytes = source->input_bytes;
  BRIM_TRY(check_bytes(p));
  if (p->stage_count) {
    p->out_bytes = (size_t)p->out_height * (size_t)p->out_width * (size_t)p->channels *
                   sample_type_bytes(p->out_float);
  }
  if (p->stage_count && image) {
    t->info.dim[0] = p->out_height;
    t->info.dim[1] = p->out_width;
  }
  t->info.varies = 0;
  for (int32_t i = p->stage_count - 1; i >= 0; i--) {
    t->resizes[i] = t->resizes[i + 1] + changes_size(&p->stages[i]);
  }
  place_packed(t);
  place_planes(t);
  return BRIM_OK;
}

brim_status brim_transforms_create(const brim_pipeline *pipeline, const brim_source *source,
                                   uint64_t seed, bool random, brim_transforms **out) {
  if (pipeline->count > BRIM_AUGMENT_MAX_STAGES) {
    return brim_fail(BRIM_ELIMIT, "a pipeline of %zu transforms, expected at most %d",
                     pipeline->count, BRIM_AUGMENT_MAX_STAGES);
  }
  brim_transforms *t = (brim_transforms *)brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "transforms: out of memory");
  t->program.key = brim_rng_key(seed, BRIM_RNG_AUGMENT);
  brim_status status = prepare(t, pipeline, source, random);
  if (status) {
    brim_free(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

void brim_transforms_destroy(brim_transforms *transforms) { brim_free(transforms); }

size_t brim_transforms_count(const brim_transforms *transforms) {
  return (size_t)transforms->program.stage_count;
}

const char *brim_transforms_name(const brim_transforms *transforms, size_t stage) {
  return transforms->names[stage];
}

int32_t brim_transforms_views(const brim_transforms *transforms) {
  return transforms->program.views;
}

const brim_source_info *brim_transforms_info(const brim_transforms *transforms) {
  return &transforms->info;
}

size_t brim_transforms_output_bytes(const brim_transforms *transforms) {
  return transforms->program.out_bytes;
}

size_t brim_transforms_scratch_bytes(const brim_transforms *transforms) {
  return transforms->scratch_bytes;
}

const brim_augment_program *brim_transforms_program(const brim_transforms *transforms) {
  return transforms->varies ? NULL : &transforms->program;
}

//---------------------------------- decoding smaller ----------------------------------

// The region of a decoded image that the first stage resamples has at least as many rows and
// columns as it makes of them.
static bool enough(const brim_image_stage *s, const brim_augment *draw, int32_t height,
                   int32_t width) {
  brim_image_drawn d;
  brim_image_draw(s, draw, height, width, &d);
  return d.height >= d.full_height && d.width >= d.full_width;
}

int brim_transforms_scale(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                          int64_t height, int64_t width) {
  const brim_augment_program *p = &transforms->program;
  if (p->stage_count == 0 || !resamples(&p->stages[0])) return 1;
  if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX) return 1;
  brim_augment draw = {.key = p->key, .epoch = (uint64_t)epoch, .index = index};
  for (int scale = 8; scale > 1; scale /= 2) {
    bool fits = true;
    for (int32_t v = 0; v < p->views && fits; v++) {
      draw.view = (uint32_t)v;
      fits = enough(&p->stages[0], &draw, (int32_t)((height + scale - 1) / scale),
                    (int32_t)((width + scale - 1) / scale));
    }
    if (fits) return scale;
  }
  return 1;
}

//---------------------------------- applying ----------------------------------

// A sample on its way: packed, or planes once something has mixed its pixels.
typedef struct walk {
  const brim_transforms *t;
  brim_augment draw;
  const uint8_t *in;
  uint8_t *now;  // packed; NULL = still `in`
  uint8_t *out, *scratch;
  int32_t height, width;
  int next;   // packed buffer to write to
  int plane;  // planes in use; -1 = packed
} walk;

static const uint8_t *packed_now(const walk *w) { return w->now ? w->now : w->in; }

static brim_transform_planes planes_at(const walk *w, int which) {
  const brim_augment_program *p = &w->t->program;
  brim_transform_planes planes = {.data = (float *)(void *)(w->scratch + w->t->plane_at[which]),
                                  .height = w->height,
                                  .width = w->width,
                                  .channels = p->channels,
                                  .high = p->in_float ? 1.0f : 255.0f};
  return planes;
}

// Where stage i writes packed pixels: to the result when nothing behind it changes the size.
static uint8_t *packed_to(walk *w, int32_t i) {
  const brim_augment_program *p = &w->t->program;
  if (w->t->resizes[i + 1] == 0 && p->in_float == p->out_float) return w->out;
  uint8_t *to = w->scratch + w->t->packed_at[w->next];
  w->next ^= 1;
  return to;
}

// The packed pixels, writable.
static uint8_t *own(walk *w, int32_t i, size_t pixel) {
  if (!w->now) {
    w->now = packed_to(w, i);
    memcpy(w->now, w->in, (size_t)w->height * (size_t)w->width * pixel);
  }
  return w->now;
}

static void move_packed(walk *w, int32_t i, const brim_image_drawn *d) {
  const brim_augment_program *p = &w->t->program;
  const brim_image_stage *s = &p->stages[i];
  size_t channels = (size_t)p->channels, bytes = sample_type_bytes(p->in_float);
  brim_transform_packed shape = {.height = w->height, .width = w->width, .pixel = channels * bytes};
  size_t fills = channels < BRIM_IMAGE_MAX_CHANNELS ? channels : BRIM_IMAGE_MAX_CHANNELS;
  shape.fill_bytes = fills * bytes;
  for (size_t c = 0; c < fills; c++) {
    if (p->in_float) {
      memcpy(shape.fill + c * bytes, &s->fill[c], bytes);
    } else {
      shape.fill[c] = brim_image_byte(s->fill[c]);
    }
  }
  if (s->op == BRIM_IMAGE_WINDOW) {
    uint8_t *to = packed_to(w, i);
    brim_transform_window(s, d, &shape, packed_now(w), to);
    w->now = to;
  } else if (s->op == BRIM_IMAGE_FLIP) {
    brim_transform_flip(&shape, own(w, i, shape.pixel));
  } else if (s->op == BRIM_IMAGE_FLIP_VERTICAL) {
    brim_transform_flip_vertical(&shape, own(w, i, shape.pixel));
  } else {
    for (int32_t k = 0; k < s->count; k++) {
      brim_image_square q = brim_image_draw_square(s, &w->draw, (uint32_t)k, w->height, w->width);
      brim_transform_cover(&shape, &q, own(w, i, shape.pixel));
    }
  }
}

// The same on planes, each an image of one float a pixel.
static void move_planes(walk *w, const brim_image_stage *s, const brim_image_drawn *d) {
  brim_transform_planes planes = planes_at(w, w->plane);
  size_t n = (size_t)w->height * (size_t)w->width;
  float *to = s->op == BRIM_IMAGE_WINDOW ? planes_at(w, w->plane ^ 1).data : NULL;
  for (int32_t c = 0; c < planes.channels; c++) {
    brim_transform_packed shape = {.height = w->height,
                                   .width = w->width,
                                   .pixel = sizeof(float),
                                   .fill_bytes = sizeof(float)};
    memcpy(shape.fill, &s->fill[c % BRIM_IMAGE_MAX_CHANNELS], sizeof(float));
    float *plane = planes.data + (size_t)c * n;
    if (s->op == BRIM_IMAGE_WINDOW) {
      brim_transform_window(s, d, &shape, plane, to + (size_t)c * area(s));
    } else if (s->op == BRIM_IMAGE_FLIP) {
      brim_transform_flip(&shape, plane);
    } else if (s->op == BRIM_IMAGE_FLIP_VERTICAL) {
      brim_transform_flip_vertical(&shape, plane);
    } else {
      for (int32_t k = 0; k < s->count; k++) {
        brim_image_square q = brim_image_draw_square(s, &w->draw, (uint32_t)k, w->height, w->width);
        brim_transform_cover(&shape, &q, plane);
      }
    }
  }
  if (to) w->plane ^= 1;
}

static void resample(walk *w, const brim_image_stage *s, const brim_image_drawn *d) {
  const brim_augment_program *p = &w->t->program;
  void *scratch = w->scratch + w->t->resample_at;
  int to = w->plane < 0 ? 0 : w->plane ^ 1;
  float *out = planes_at(w, to).data;
  brim_transform_from from = {.width = w->width, .channels = p->channels};
  if (w->plane < 0) {
    from.data = packed_now(w);
    from.bytes = !p->in_float;
    brim_transform_resample(s, d, &from, out, area(s), scratch);
  } else {
    const float *in = planes_at(w, w->plane).data;
    from.channels = 1;
    for (int32_t c = 0; c < p->channels; c++) {
      from.data = in + (size_t)c * (size_t)w->height * (size_t)w->width;
      brim_transform_resample(s, d, &from, out + (size_t)c * area(s), area(s), scratch);
    }
  }
  w->plane = to;
}

static void run_stage(walk *w, int32_t i) {
  const brim_image_stage *s = &w->t->program.stages[i];
  brim_image_drawn d;
  brim_image_draw(s, &w->draw, w->height, w->width, &d);
  if (!d.on) return;
  if (resamples(s)) {
    resample(w, s, &d);
  } else if (!mixes(s)) {
    if (w->plane < 0) {
      move_packed(w, i, &d);
    } else {
      move_planes(w, s, &d);
    }
  } else {
    if (w->plane < 0) {
      w->plane = 0;
      brim_transform_planes planes = planes_at(w, 0);
      brim_transform_load(packed_now(w), !w->t->program.in_float, &planes);
    }
    brim_transform_planes planes = planes_at(w, w->plane);
    if (s->op == BRIM_IMAGE_JITTER) brim_transform_jitter(&d, &planes);
    if (s->op == BRIM_IMAGE_GRAY) brim_transform_gray(&planes);
    if (s->op == BRIM_IMAGE_BLUR) {
      brim_transform_blur(s, &d, &planes, planes_at(w, w->plane ^ 1).data,
                          w->scratch + w->t->blur_at);
    }
  }
  w->height = s->out_height;
  w->width = s->out_width;
}

static void finish(walk *w) {
  const brim_augment_program *p = &w->t->program;
  if (w->plane >= 0) {
    brim_transform_planes planes = planes_at(w, w->plane);
    brim_transform_store(&planes, w->out, !p->out_float);
  } else if (p->in_float != p->out_float) {
    brim_transform_widen(packed_now(w), (float *)(void *)w->out, p->out_bytes / sizeof(float));
  } else if (w->now != w->out) {
    memcpy(w->out, packed_now(w), p->out_bytes);
  }
}

void brim_transforms_apply(const brim_transforms *transforms, const brim_transforms_view *view,
                           const void *in, void *out, void *scratch, int64_t *stage_ns) {
  const brim_augment_program *p = &transforms->program;
  walk w = {.t = transforms,
            .draw = {.key = p->key,
                     .epoch = (uint64_t)view->epoch,
                     .index = view->index,
                     .view = view->view},
            .in = (const uint8_t *)in,
            .out = (uint8_t *)out,
            .scratch = (uint8_t *)scratch,
            .height = transforms->varies ? (int32_t)view->height : p->in_height,
            .width = transforms->varies ? (int32_t)view->width : p->in_width,
            .plane = -1};
  brim_time start = {0};
  if (stage_ns) start = brim_clock_now();
  for (int32_t i = 0; i < p->stage_count; i++) {
    run_stage(&w, i);
    if (i + 1 == p->stage_count) finish(&w);
    if (stage_ns) {
      brim_time end = brim_clock_now();
      stage_ns[i] += brim_time_since_ns(start, end);
      start = end;
    }
  }
  if (p->stage_count == 0) finish(&w);
}
