// A pipeline of transforms, prepared for the samples of one source: finds the rows, follows the
// shape through them, knows the scratch it needs. What a single transform does is in
// data_transform_*.c. Who calls: the loader's workers, and whoever has to know the shape.
#include "data/data_transform.h"

#include <math.h>
#include <string.h>

static const brim_transform_row *const tables[] = {brim_transform_geometry};

struct brim_transforms {
  uint64_t key;
  brim_source_info info;  // of the result
  size_t output_bytes;    // of one sample
  // Stages that are not in place write to the other of two scratch buffers, and the last of them to
  // the caller's: so many there are, and so large a buffer is.
  size_t moves;
  size_t buffer_bytes;
  size_t count;
  brim_transform_stage stages[];
};

static const brim_transform_row *find_row(const char *name) {
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (const brim_transform_row *row = tables[t]; row->name; row++) {
      if (strcmp(row->name, name) == 0) return row;
    }
  }
  return NULL;
}

// The names there are, for messages.
static brim_status unknown(const brim_component *c) {
  brim_str names;
  brim_str_init(&names);
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (const brim_transform_row *row = tables[t]; row->name; row++) {
      brim_str_printf(&names, "%s%s", names.len ? ", " : "", row->name);
    }
  }
  brim_status status = brim_str_status(&names);
  if (!status) {
    status =
        brim_fail(BRIM_EUNSUPPORTED, "transform '%s' is not in this version of brim; it has: %s",
                  c->name, names.data);
  }
  brim_str_deinit(&names);
  return status;
}

//---------------------------------- shapes ----------------------------------

static size_t type_bytes(const brim_source_info *info) {
  return info->type == BRIM_SAMPLE_U8 ? 1 : sizeof(float);
}

// Samples as images: (H, W) or (H, W, C).
static brim_status first_shape(const brim_component *c, const brim_source_info *info,
                               brim_transform_shape *out) {
  if (info->rank != 2 && info->rank != 3) {
    return brim_fail(BRIM_EINVAL,
                     "%s works on images (height, width or height, width, channels); these samples "
                     "have %d dimension%s",
                     c->name, (int)info->rank, info->rank == 1 ? "" : "s");
  }
  int64_t channels = info->rank == 3 ? info->dim[2] : 1;
  if (info->dim[0] > INT32_MAX || info->dim[1] > INT32_MAX || channels > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: the images are too large", c->name);
  }
  out->height = info->dim[0];
  out->width = info->dim[1];
  out->pixel_bytes = (size_t)channels * type_bytes(info);
  return BRIM_OK;
}

static bool shape_bytes(const brim_transform_shape *s, size_t *out) {
  return !__builtin_mul_overflow((size_t)s->height, (size_t)s->width, out) &&
         !__builtin_mul_overflow(*out, s->pixel_bytes, out) && *out <= PTRDIFF_MAX / 4;
}

// The value that the source's normalisation makes zero, to the nearest byte; black when it suggests
// none.
static void set_fill(const brim_source_info *info, brim_transform_stage *s) {
  size_t channels = info->channels > 0 ? (size_t)info->channels : 1;
  size_t bytes = type_bytes(info);
  if (s->in.pixel_bytes % (channels * bytes) != 0) channels = 1;
  s->fill_bytes = channels * bytes;
  for (size_t c = 0; c < channels && info->channels > 0; c++) {
    float mean = info->mean[c];
    if (info->type == BRIM_SAMPLE_U8) {
      float value = roundf(mean * 255.0f);
      s->fill[c] = (uint8_t)(value > 0 ? (value < 255 ? value : 255) : 0);
    } else {
      memcpy(s->fill + c * sizeof mean, &mean, sizeof mean);
    }
  }
}

//---------------------------------- preparing ----------------------------------

// One stage after the others; `shape` moves on.
static brim_status add_stage(brim_transforms *t, const brim_component *c, size_t number,
                             bool random, brim_transform_shape *shape) {
  const brim_transform_row *row = find_row(c->name);
  if (!row) return unknown(c);
  if (row->random && !random) return BRIM_OK;
  if (t->count == 0) BRIM_TRY(first_shape(c, &t->info, shape));
  brim_transform_stage *s = &t->stages[t->count];
  s->row = row;
  s->number = (uint32_t)number;
  s->in = s->out = *shape;
  set_fill(&t->info, s);
  BRIM_TRY(row->prepare(c, s));
  size_t in_bytes, out_bytes;
  if (!shape_bytes(&s->in, &in_bytes) || !shape_bytes(&s->out, &out_bytes)) {
    return brim_fail(BRIM_ELIMIT, "%s: the images are too large", c->name);
  }
  if (!row->in_place) {
    t->moves++;
    if (in_bytes > t->buffer_bytes) t->buffer_bytes = in_bytes;  // the last result is the caller's
  }
  *shape = s->out;
  t->output_bytes = out_bytes;
  t->count++;
  return BRIM_OK;
}

static brim_status prepare(brim_transforms *t, const brim_pipeline *pipeline, bool random) {
  brim_transform_shape shape = {0};
  for (size_t i = 0; i < pipeline->count; i++) {
    const brim_component *c = &pipeline->items[i];
    brim_status status = add_stage(t, c, i, random, &shape);
    if (!status) continue;
    if (c->file && c->line > 0) brim_fail_context(status, "%s:%d:%d", c->file, c->line, c->col);
    return status;
  }
  if (t->count) {
    t->info.dim[0] = shape.height;
    t->info.dim[1] = shape.width;
  }
  t->buffer_bytes = (t->buffer_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  return BRIM_OK;
}

brim_status brim_transforms_create(const brim_pipeline *pipeline, const brim_source *source,
                                   uint64_t seed, bool random, brim_transforms **out) {
  if (pipeline->count > BRIM_AUGMENT_MAX_STAGES) {
    return brim_fail(BRIM_ELIMIT, "a pipeline of %zu transforms; %d is the most", pipeline->count,
                     BRIM_AUGMENT_MAX_STAGES);
  }
  brim_transforms *t =
      (brim_transforms *)brim_calloc(1, sizeof *t + pipeline->count * sizeof t->stages[0]);
  if (!t) return brim_fail(BRIM_ENOMEM, "transforms: out of memory");
  t->key = brim_rng_key(seed, BRIM_RNG_AUGMENT);
  t->info = source->info;
  t->output_bytes = source->input_bytes;
  brim_status status = prepare(t, pipeline, random);
  if (status) {
    brim_free(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

void brim_transforms_destroy(brim_transforms *transforms) { brim_free(transforms); }

size_t brim_transforms_count(const brim_transforms *transforms) { return transforms->count; }

const brim_source_info *brim_transforms_info(const brim_transforms *transforms) {
  return &transforms->info;
}

size_t brim_transforms_output_bytes(const brim_transforms *transforms) {
  return transforms->output_bytes;
}

//---------------------------------- applying ----------------------------------

size_t brim_transforms_scratch_bytes(const brim_transforms *transforms) {
  return transforms->buffer_bytes * (transforms->moves > 1 ? 2 : transforms->moves);
}

void *brim_transforms_input(const brim_transforms *transforms, void *out, void *scratch) {
  return transforms->moves ? scratch : out;
}

void brim_transforms_apply(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                           void *out, void *scratch) {
  const brim_transforms *t = transforms;
  const brim_augment draw = {.key = t->key, .epoch = (uint64_t)epoch, .index = index};
  uint8_t *now = (uint8_t *)brim_transforms_input(t, out, scratch);
  uint8_t *other = t->moves > 1 ? (uint8_t *)scratch + t->buffer_bytes : NULL;
  size_t moves = t->moves;
  for (size_t i = 0; i < t->count; i++) {
    const brim_transform_stage *s = &t->stages[i];
    if (s->row->in_place) {
      s->row->apply(s, &draw, now, now);
      continue;
    }
    uint8_t *to = --moves ? other : (uint8_t *)out;
    s->row->apply(s, &draw, now, to);
    other = now;
    now = to;
  }
}
