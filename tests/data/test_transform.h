// Shared by the tests of transforms: pipelines from text, images made by hand, and an oracle. The oracle runs a program
// in double precision, pixel by pixel, from the definitions (torchvision's) and not from hd_image.h. It takes only the
// random draws from there; those have tests of their own.
#ifndef BRIM_TESTS_TEST_TRANSFORM_H_
#define BRIM_TESTS_TEST_TRANSFORM_H_

#include <ctype.h>
#include <math.h>

#include "base/base.h"
#include "data/transform/data_transform.h"
#include "data_test.h"

//---------------------------------- pipelines from text ----------------------------------

// "resize(size=(4, 5)) | random_flip(p=1)": names, numbers, words and tuples of numbers.
typedef struct pipeline_text {
  char text[512];
  brim_component items[24];
  brim_argument args[64];
  brim_value values[64];
  size_t arg_count, value_count;
  brim_pipeline pipeline;
} pipeline_text;

static inline void skip_space(char **at) {
  while (isspace((unsigned char)**at)) (*at)++;
}

// Reads a word up to a delimiter, returns the delimiter, and ends the word there.
static inline char take_word(char **at, char **word) {
  skip_space(at);
  *word = *at;
  *at += strcspn(*at, "(),=| ");
  char *end = *at;
  skip_space(at);
  char delimiter = **at;
  if (delimiter) (*at)++;
  *end = '\0';
  return delimiter;
}

static inline brim_value scalar(const char *word) {
  brim_value v;
  memset(&v, 0, sizeof v);
  char *end;
  v.string = word;
  v.number = strtod(word, &end);
  v.integer = (int64_t)v.number;
  v.kind = *end || end == word         ? BRIM_VALUE_STRING
           : word[strcspn(word, ".e")] ? BRIM_VALUE_FLOAT
                                       : BRIM_VALUE_INT;
  return v;
}

static inline char parse_argument(pipeline_text *p, char **at, brim_argument *a) {
  char *word;
  assert_int_equal(take_word(at, &word), '=');
  a->name = word;
  skip_space(at);
  if (**at != '(') {
    char delimiter = take_word(at, &word);
    a->value = scalar(word);
    return delimiter;
  }
  (*at)++;
  memset(&a->value, 0, sizeof a->value);
  a->value.kind = BRIM_VALUE_LIST;
  a->value.items = &p->values[p->value_count];
  char delimiter;
  do {
    delimiter = take_word(at, &word);
    p->values[p->value_count++] = scalar(word);
    a->value.count++;
  } while (delimiter == ',');
  return take_word(at, &word);
}

static inline const brim_pipeline *parse(pipeline_text *p, const char *text) {
  memset(p, 0, sizeof *p);
  snprintf(p->text, sizeof p->text, "%s", text);
  char *at = p->text, delimiter = *at ? '|' : '\0';
  while (delimiter == '|') {
    brim_component *c = &p->items[p->pipeline.count++];
    char *word;
    delimiter = take_word(&at, &word);
    c->name = word;
    c->args = &p->args[p->arg_count];
    if (delimiter != '(') continue;
    do {
      delimiter = parse_argument(p, &at, &p->args[p->arg_count++]);
      c->arg_count++;
    } while (delimiter == ',');
    assert_int_equal(delimiter, ')');
    delimiter = take_word(&at, &word);
  }
  p->pipeline.items = p->items;
  return &p->pipeline;
}

//---------------------------------- images ----------------------------------

static inline brim_source image_source(int64_t height, int64_t width, int64_t channels,
                                       brim_sample_type type) {
  brim_source s;
  memset(&s, 0, sizeof s);
  s.info.count = 1000;
  s.info.type = type;
  s.info.rank = 3;
  s.info.dim[0] = height;
  s.info.dim[1] = width;
  s.info.dim[2] = channels;
  s.input_bytes = (size_t)(height * width * channels) * (type == BRIM_SAMPLE_U8 ? 1 : 4);
  return s;
}

static inline brim_status make(const char *text, const brim_source *s, bool random,
                               brim_transforms **out) {
  pipeline_text *p = (pipeline_text *)malloc(sizeof *p);
  assert_non_null(p);
  *out = NULL;
  brim_status status = brim_transforms_create(parse(p, text), s, 11, random, out);
  memset(p, 0xee, sizeof *p);  // the program must not keep pointers into it
  free(p);
  return status;
}

// Smooth with noise on top, so that neighbours are related and no two images alike. 0..255.
static inline double value_at(uint64_t index, int64_t y, int64_t x, int64_t c) {
  brim_philox4 r = brim_philox(index, (uint64_t)y << 32 | (uint64_t)x, (uint64_t)c);
  double smooth =
      127 + 90 * sin(0.3 * (double)(y + 2 * c) + (double)index) * cos(0.2 * (double)x + (double)c);
  return floor(smooth + 37 * (double)brim_rng_uniform(r.v[0]));
}

static inline void fill_image(void *image, brim_sample_type type, uint64_t index, int64_t height,
                              int64_t width, int64_t channels) {
  for (int64_t e = 0; e < height * width * channels; e++) {
    double v = value_at(index, e / (width * channels), e / channels % width, e % channels);
    if (type == BRIM_SAMPLE_U8) {
      ((uint8_t *)image)[e] = (uint8_t)v;
    } else {
      ((float *)image)[e] = (float)(v / 255);
    }
  }
}

// Makes one view, in blocks of exact size, with garbage in the scratch. Free the result with brim_free.
static inline void *apply_at(const brim_transforms *t, uint64_t index, uint32_t view,
                             const void *in, int64_t height, int64_t width, int garbage) {
  size_t scratch_bytes = brim_transforms_scratch_bytes(t);
  uint8_t *out = (uint8_t *)brim_alloc(brim_transforms_output_bytes(t));
  uint8_t *scratch = scratch_bytes ? (uint8_t *)brim_alloc(scratch_bytes) : NULL;
  assert_non_null(out);
  if (scratch) memset(scratch, garbage, scratch_bytes);
  int64_t ns[BRIM_IMAGE_MAX_STAGES] = {0};
  const brim_transforms_view of = {3, index, view, height, width};
  brim_transforms_apply(t, &of, in, out, scratch, ns);
  for (size_t i = 0; i < BRIM_IMAGE_MAX_STAGES; i++) {
    assert_true(ns[i] >= 0 && (i < brim_transforms_count(t) || ns[i] == 0));
  }
  brim_free(scratch);
  return out;
}

//---------------------------------- oracle ----------------------------------

enum { ORACLE_SIDE = 96, ORACLE_CHANNELS = 4 };

typedef struct oracle_image {
  int height, width, channels;
  double high;
  double v[ORACLE_SIDE][ORACLE_SIDE][ORACLE_CHANNELS];
} oracle_image;

static inline double oracle_clamp(double v, double high) { return fmin(fmax(v, 0), high); }

static inline double oracle_gray(const double *p, int channels) {
  return channels == 1 ? p[0] : 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2];
}

// The index mirrored without repeating the border, one step at a time.
static inline int oracle_reflect(int i, int n) {
  if (n == 1) return 0;
  int at = 0, step = 1;
  for (int k = 0; k < abs(i); k++) {
    if (at + step < 0 || at + step >= n) step = -step;
    at += step;
  }
  return at;
}

static inline double oracle_weight(double j, double i, double in, double out) {
  double step = in / out, reach = step > 1 ? step : 1;
  return fmax(0, 1 - fabs((j + 0.5 - step * (i + 0.5)) / reach));
}

static inline void oracle_resample(const brim_image_stage *s, const brim_image_drawn *d,
                                   const oracle_image *in, oracle_image *out) {
  for (int y = 0; y < s->out_height; y++) {
    for (int x = 0; x < s->out_width; x++) {
      double sum = 0, total[ORACLE_CHANNELS] = {0};
      int fy = y + d->top, fx = x + d->left;
      int near_y = (int)floor((fy + 0.5) * d->height / d->full_height);
      int near_x = (int)floor((fx + 0.5) * d->width / d->full_width);
      for (int j = 0; j < d->height; j++) {
        double wy = s->nearest ? j == near_y : oracle_weight(j, fy, d->height, d->full_height);
        for (int i = 0; i < d->width && wy > 0; i++) {
          double w = s->nearest ? i == near_x : oracle_weight(i, fx, d->width, d->full_width);
          sum += w * wy;
          for (int c = 0; c < in->channels; c++) total[c] += w * wy * in->v[d->y + j][d->x + i][c];
        }
      }
      for (int c = 0; c < in->channels; c++) out->v[y][x][c] = total[c] / sum;
    }
  }
}

// HSV conversions from a textbook.
static inline void oracle_hue(double *p, double shift) {
  double most = fmax(p[0], fmax(p[1], p[2])), least = fmin(p[0], fmin(p[1], p[2]));
  if (most == least) return;
  double chroma = most - least, h;
  if (most == p[0]) {
    h = (p[1] - p[2]) / chroma;
  } else if (most == p[1]) {
    h = 2 + (p[2] - p[0]) / chroma;
  } else {
    h = 4 + (p[0] - p[1]) / chroma;
  }
  h = fmod(h / 6 + shift + 2, 1);
  double v = most, s = chroma / most, f = h * 6 - floor(h * 6);
  double a = v * (1 - s), q = v * (1 - s * f), t = v * (1 - s * (1 - f));
  const double sextants[6][3] = {{v, t, a}, {q, v, a}, {a, v, t}, {a, q, v}, {t, a, v}, {v, a, q}};
  memcpy(p, sextants[(int)floor(h * 6) % 6], 3 * sizeof *p);
}

static inline void oracle_jitter(const brim_image_drawn *d, oracle_image *m) {
  for (int k = 0; k < 4; k++) {
    int part = d->order[k];
    if (!d->changes[part]) continue;
    double f = (double)d->factor[part], mean = 0;
    for (int i = 0; i < m->height * m->width; i++) {
      mean += oracle_gray(m->v[i / m->width][i % m->width], m->channels);
    }
    mean /= m->height * m->width;
    for (int i = 0; i < m->height * m->width; i++) {
      double *p = m->v[i / m->width][i % m->width];
      if (part == BRIM_IMAGE_HUE) {
        if (m->channels == 3) oracle_hue(p, f);
        continue;
      }
      double other = part == BRIM_IMAGE_CONTRAST     ? mean
                     : part == BRIM_IMAGE_SATURATION ? oracle_gray(p, m->channels)
                                                     : 0;
      if (part == BRIM_IMAGE_SATURATION && m->channels == 1) continue;
      for (int c = 0; c < m->channels; c++) {
        p[c] = oracle_clamp(f * p[c] + (1 - f) * other, m->high);
      }
    }
  }
}

static inline void oracle_blur(const brim_image_stage *s, const brim_image_drawn *d,
                               const oracle_image *in, oracle_image *out) {
  int radius = s->taps / 2;
  double sum = 0, w[BRIM_IMAGE_MAX_TAPS], sigma = (double)d->sigma;
  for (int k = 0; k < s->taps; k++) {
    w[k] = exp(-0.5 * (k - radius) * (k - radius) / (sigma * sigma));
    sum += w[k];
  }
  for (int e = 0; e < in->height * in->width * in->channels; e++) {
    int y = e / (in->width * in->channels), x = e / in->channels % in->width, c = e % in->channels;
    double total = 0;
    for (int j = 0; j < s->taps; j++) {
      for (int i = 0; i < s->taps; i++) {
        int from_y = y + j - radius, from_x = x + i - radius;
        if (from_y >= in->height) from_y = 2 * (in->height - 1) - from_y;
        if (from_x >= in->width) from_x = 2 * (in->width - 1) - from_x;
        total += w[j] * w[i] *
                 in->v[oracle_reflect(from_y, in->height)][oracle_reflect(from_x, in->width)][c];
      }
    }
    out->v[y][x][c] = total / (sum * sum);
  }
}

static inline void oracle_window(const brim_image_stage *s, const brim_image_drawn *d,
                                 const oracle_image *in, oracle_image *out) {
  for (int y = 0; y < s->out_height; y++) {
    for (int x = 0; x < s->out_width; x++) {
      int from_y = y + d->y, from_x = x + d->x;
      bool inside = from_y >= 0 && from_y < in->height && from_x >= 0 && from_x < in->width;
      for (int c = 0; c < in->channels; c++) {
        out->v[y][x][c] = inside ? in->v[from_y][from_x][c] : (double)s->fill[c];
      }
    }
  }
}

static inline void oracle_move(const brim_image_stage *s, const brim_augment *a,
                               const oracle_image *in, oracle_image *out) {
  for (int y = 0; y < in->height; y++) {
    for (int x = 0; x < in->width; x++) {
      int from_y = s->op == BRIM_IMAGE_FLIP_VERTICAL ? in->height - 1 - y : y;
      int from_x = s->op == BRIM_IMAGE_FLIP ? in->width - 1 - x : x;
      memcpy(out->v[y][x], in->v[from_y][from_x], sizeof out->v[y][x]);
      for (uint32_t k = 0; k < (uint32_t)s->count && s->op == BRIM_IMAGE_CUTOUT; k++) {
        brim_augment_point at = brim_augment_place(a, s->number, k + 1, in->height, in->width);
        int64_t top = at.y - s->size / 2, left = at.x - s->size / 2;
        if (y < top || y >= top + s->size || x < left || x >= left + s->size) continue;
        for (int c = 0; c < in->channels; c++) out->v[y][x][c] = (double)s->fill[c];
      }
    }
  }
}

static inline void oracle_run(const brim_transforms *t, const brim_augment *a, oracle_image *m) {
  static oracle_image next;
  for (int i = 0; i < t->program.stage_count; i++) {
    const brim_image_stage *s = &t->program.stages[i];
    brim_image_drawn d;
    brim_image_draw(s, a, m->height, m->width, &d);
    if (!d.on) continue;
    next = *m;
    next.height = s->out_height;
    next.width = s->out_width;
    if (s->op == BRIM_IMAGE_WINDOW) {
      oracle_window(s, &d, m, &next);
    } else if (s->op == BRIM_IMAGE_RESIZE || s->op == BRIM_IMAGE_RESIZED_WINDOW) {
      oracle_resample(s, &d, m, &next);
    } else if (s->op == BRIM_IMAGE_JITTER) {
      oracle_jitter(&d, &next);
    } else if (s->op == BRIM_IMAGE_BLUR) {
      oracle_blur(s, &d, m, &next);
    } else if (s->op == BRIM_IMAGE_GRAY) {
      for (int e = 0; e < m->height * m->width; e++) {
        double *p = next.v[e / m->width][e % m->width];
        double gray = oracle_gray(p, m->channels);
        for (int c = 0; c < m->channels; c++) p[c] = gray;
      }
    } else {
      oracle_move(s, a, m, &next);
    }
    *m = next;
  }
}

// Compares the worker's view of a sample with the oracle: bytes are the nearest to the exact value (except very close
// to the middle between two), floats are within 2e-5 of the scale.
static inline void check_view(const brim_transforms *t, const brim_source *s, uint64_t index,
                              uint32_t view, int64_t height, int64_t width) {
  static oracle_image m;
  int64_t channels = s->info.dim[2];
  bool u8 = s->info.type == BRIM_SAMPLE_U8, to_u8 = u8 && !t->program.out_float;
  assert_true(height <= ORACLE_SIDE && width <= ORACLE_SIDE && channels <= ORACLE_CHANNELS);
  size_t size = (size_t)(height * width * channels) * (u8 ? 1 : sizeof(float));
  void *in = brim_alloc(size);
  assert_non_null(in);
  fill_image(in, s->info.type, index, height, width, channels);
  m.height = (int)height;
  m.width = (int)width;
  m.channels = (int)channels;
  m.high = u8 ? 255 : 1;
  for (int64_t e = 0; e < height * width * channels; e++) {
    m.v[e / (width * channels)][e / channels % width][e % channels] =
        u8 ? ((uint8_t *)in)[e] : (double)((float *)in)[e];
  }
  brim_augment a = {t->program.key, 3, index, view};
  oracle_run(t, &a, &m);
  uint8_t *out = (uint8_t *)apply_at(t, index, view, in, height, width, 0x7f);
  uint8_t *again = (uint8_t *)apply_at(t, index, view, in, height, width, 0xff);
  assert_memory_equal(out, again, brim_transforms_output_bytes(t));
  assert_int_equal(m.height, t->info.dim[0]);
  assert_int_equal(m.width, t->info.dim[1]);
  for (int64_t e = 0; e < (int64_t)m.height * m.width * channels; e++) {
    double exact = m.v[e / (m.width * channels)][e / channels % m.width][e % channels];
    double got = to_u8 ? out[e] : (double)((float *)(void *)out)[e];
    double error = fabs(got - (to_u8 ? oracle_clamp(exact, 255) : exact));
    if (!(error <= (to_u8 ? 0.5 + 2e-3 : 2e-5 * m.high))) {
      fail_msg("sample %d view %d element %d: %g instead of %g", (int)index, (int)view, (int)e, got,
               exact);
    }
  }
  brim_free(again);
  brim_free(out);
  brim_free(in);
}

#endif  // BRIM_TESTS_TEST_TRANSFORM_H_
