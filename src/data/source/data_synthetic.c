// The source `synthetic`: samples of any shape, computed when they are read, that a network can learn.
// Every value is a function of (seed, split, sample, element). A class is a fixed pattern; a sample is
// (1 - noise) * pattern + noise * uniform. Without classes (classes=0, targets=K) the targets are K
// fixed signed sums over the sample. Arguments: shape, classes, targets, samples, val_samples,
// unlabeled_samples (size of the split without targets), noise, dtype ("u8", "f32"), seed.
#include <math.h>
#include <string.h>

#include "data/data_int.h"
#include "hd/hd_philox.h"

enum { TARGET_TERMS = 16, NOISE_ONE = 256 };

// Kinds of random numbers: each has its own counters, so that no two kinds use the same numbers.
enum { DRAW_PATTERN = 1, DRAW_LABEL = 2, DRAW_TERM = 3, DRAW_SAMPLE = 4 };

typedef struct synthetic_state {
  uint64_t key;
  uint64_t split;     // 0 train, 1 val, 2 test, 3 unlabeled
  uint64_t classes;   // patterns, also of samples without labels; 0 = one pattern
  uint64_t elements;  // of one sample
  uint32_t noise;     // out of NOISE_ONE
  brim_source_info info;
} synthetic_state;

static uint64_t counter(uint64_t kind, uint64_t split, uint64_t number) {
  return kind << 60 | split << 56 | number;
}

static uint64_t label_of(const synthetic_state *s, uint64_t index) {
  brim_philox4 r = brim_philox(s->key, counter(DRAW_LABEL, s->split, 0), index);
  return brim_rng_below(r.v[0], r.v[1], s->classes);
}

// Splits one draw into 16 bytes, by shifts, so that their order does not depend on the machine.
static void to_bytes(brim_philox4 r, uint8_t out[16]) {
  for (int i = 0; i < 16; i++) out[i] = (uint8_t)(r.v[i / 4] >> (8 * (i % 4)));
}

static void fill_u8(const synthetic_state *s, uint64_t index, uint64_t label, uint8_t *out) {
  uint64_t pattern = counter(DRAW_PATTERN, 0, label);
  uint64_t sample = counter(DRAW_SAMPLE, s->split, index);
  for (uint64_t e = 0; e < s->elements; e += 16) {
    uint8_t p[16], r[16];
    to_bytes(brim_philox(s->key, pattern, e / 16), p);
    to_bytes(brim_philox(s->key, sample, e / 16), r);
    uint64_t n = s->elements - e < 16 ? s->elements - e : 16;
    for (uint64_t i = 0; i < n; i++) {
      out[e + i] = (uint8_t)((p[i] * (NOISE_ONE - s->noise) + r[i] * s->noise) / NOISE_ONE);
    }
  }
}

static void fill_f32(const synthetic_state *s, uint64_t index, uint64_t label, float *out) {
  uint64_t pattern = counter(DRAW_PATTERN, 0, label);
  uint64_t sample = counter(DRAW_SAMPLE, s->split, index);
  float noise = (float)s->noise / NOISE_ONE;
  for (uint64_t e = 0; e < s->elements; e += 4) {
    brim_philox4 p = brim_philox(s->key, pattern, e / 4);
    brim_philox4 r = brim_philox(s->key, sample, e / 4);
    uint64_t n = s->elements - e < 4 ? s->elements - e : 4;
    for (uint64_t i = 0; i < n; i++) {
      out[e + i] = (1.0f - noise) * brim_rng_uniform(p.v[i]) + noise * brim_rng_uniform(r.v[i]);
    }
  }
}

static void fill_targets(const synthetic_state *s, const void *input, float *out) {
  for (int64_t t = 0; t < s->info.target_dim; t++) {
    float sum = 0;
    for (uint64_t k = 0; k < TARGET_TERMS; k++) {
      brim_philox4 r = brim_philox(s->key, counter(DRAW_TERM, 0, (uint64_t)t), k);
      uint64_t e = brim_rng_below(r.v[0], r.v[1], s->elements);
      float x = s->info.type == BRIM_SAMPLE_U8 ? (float)((const uint8_t *)input)[e] / 255.0f
                                               : ((const float *)input)[e];
      sum += (r.v[2] & 1) ? x - 0.5f : 0.5f - x;
    }
    out[t] = sum;
  }
}

// Sets the split and its number of samples. The split `unlabeled` exists only if unlabeled_samples > 0.
static brim_status read_split(const json_t *args, const char *split, synthetic_state *s) {
  static const char *const splits[] = {"train", "val", "test", "unlabeled", NULL};
  static const char *const labeled[] = {"train", "val", "test", NULL};
  int64_t samples = 10000, val = 0, unlabeled = 0;
  BRIM_TRY(brim_data_args_int(args, "synthetic", "samples", 1, (int64_t)1 << 40, &samples));
  BRIM_TRY(brim_data_args_int(args, "synthetic", "val_samples", 1, (int64_t)1 << 40, &val));
  BRIM_TRY(
      brim_data_args_int(args, "synthetic", "unlabeled_samples", 0, (int64_t)1 << 40, &unlabeled));
  BRIM_TRY(brim_data_args_split("synthetic", split, unlabeled ? splits : labeled));
  while (strcmp(split, splits[s->split]) != 0) s->split++;
  if (!val) val = samples > 5 ? samples / 5 : 1;
  s->info.count = (uint64_t)(s->split == 0 ? samples : s->split == 3 ? unlabeled : val);
  return BRIM_OK;
}

static brim_status read_args(const json_t *args, const brim_source_how *how, synthetic_state *s) {
  brim_source_info *info = &s->info;
  const char *name = "synthetic", *dtype = "u8";
  int64_t seed = 0;
  double noise = 0.75;
  BRIM_TRY(read_split(args, how->split, s));
  info->rank = 2;
  info->dim[0] = info->dim[1] = 28;
  info->classes = 10;
  BRIM_TRY(brim_data_args_shape(args, name, "shape", info->dim, &info->rank));
  BRIM_TRY(brim_data_args_int(args, name, "classes", 0, 1000000, &info->classes));
  BRIM_TRY(brim_data_args_int(args, name, "targets", 1, 1000000, &info->target_dim));
  BRIM_TRY(brim_data_args_real(args, name, "noise", 0, 1, &noise));
  BRIM_TRY(brim_data_args_int(args, name, "seed", 0, INT64_MAX, &seed));
  BRIM_TRY(brim_data_args_string(args, name, "dtype", &dtype));
  if (strcmp(dtype, "u8") != 0 && strcmp(dtype, "f32") != 0) {
    return brim_fail(BRIM_EINVAL, "synthetic: dtype must be u8 or f32, not '%s'", dtype);
  }
  if ((info->classes == 0) != (info->target_dim > 0)) {
    return brim_fail(BRIM_EINVAL, "synthetic: give either classes=N or classes=0, targets=N");
  }
  s->classes = (uint64_t)info->classes;
  if (s->split == 3) info->classes = info->target_dim = 0;
  info->type = strcmp(dtype, "u8") == 0 ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  s->noise = (uint32_t)lround(noise * NOISE_ONE);
  s->key =
      brim_rng_key(json_object_get(args, "seed") ? (uint64_t)seed : how->seed, BRIM_RNG_SYNTHETIC);
  s->elements = 1;
  for (int i = 0; i < info->rank; i++) {
    if (__builtin_mul_overflow(s->elements, (uint64_t)info->dim[i], &s->elements) ||
        s->elements > (uint64_t)1 << 36) {
      return brim_fail(BRIM_ELIMIT, "synthetic: a sample of this shape is too large");
    }
  }
  return BRIM_OK;
}

static void set_normalisation(synthetic_state *s) {
  brim_source_info *info = &s->info;
  if (info->type != BRIM_SAMPLE_U8) return;
  // A weighted sum of two independent uniform values: its moments are known in advance.
  double w = (double)s->noise / NOISE_ONE;
  int64_t last = info->rank == 3 ? info->dim[2] : 1;
  info->channels = last <= 4 ? (int32_t)last : 1;
  for (int c = 0; c < info->channels; c++) {
    info->mean[c] = 0.5f;
    info->std[c] = (float)sqrt(((1 - w) * (1 - w) + w * w) / 12.0);
  }
}

static brim_status synthetic_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {
      "shape", "classes", "targets", "samples", "val_samples", "unlabeled_samples",
      "noise", "dtype",   "seed",    "split",   NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("synthetic", how->args_json, known, &args));
  synthetic_state *s = brim_calloc(1, sizeof *s);
  brim_status status =
      s ? read_args(args, how, s) : brim_fail(BRIM_ENOMEM, "synthetic: out of memory");
  json_decref(args);
  if (status) {
    brim_free(s);
    return status;
  }
  set_normalisation(s);
  *state = s;
  return BRIM_OK;
}

static void synthetic_info(void *state, brim_source_info *out) {
  *out = ((synthetic_state *)state)->info;
}

static brim_status synthetic_read(void *state, uint64_t index, void *input, void *target) {
  const synthetic_state *s = state;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "synthetic: holds %llu samples",
                     (unsigned long long)s->info.count);
  }
  uint64_t label = s->classes ? label_of(s, index) : 0;
  if (s->info.type == BRIM_SAMPLE_U8) {
    fill_u8(s, index, label, input);
  } else {
    fill_f32(s, index, label, input);
  }
  if (s->info.classes) {
    *(int32_t *)target = (int32_t)label;
  } else {
    fill_targets(s, input, target);
  }
  return BRIM_OK;
}

static void synthetic_close(void *state) { brim_free(state); }

static int64_t synthetic_label(const void *state, uint64_t index) {
  return (int64_t)label_of(state, index);
}

const brim_source_table brim_source_synthetic = {
    .abi = BRIM_SOURCE_ABI,
    .name = "synthetic",
    .open = synthetic_open,
    .info = synthetic_info,
    .read = synthetic_read,
    .close = synthetic_close,
};

const brim_source_builtin brim_builtin_synthetic = {
    .table = &brim_source_synthetic,
    .label = synthetic_label,
};
