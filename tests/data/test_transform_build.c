// Prepared pipelines: shapes, normalisation folded into the description of the result, images of different sizes and
// how small they may be decoded, the program for a device, refusals.
#include "test_transform.h"

static brim_transforms *made(const char *text, const brim_source *s) {
  brim_transforms *t;
  brim_status status = make(text, s, true, &t);
  if (status) fail_msg("%s: %s", text, brim_status_detail());
  return t;
}

static void refused(const char *text, const brim_source *s, brim_status expected,
                    const char *detail) {
  brim_transforms *t;
  assert_status(make(text, s, true, &t), expected);
  assert_null(t);
  assert_detail(detail);
}

//---------------------------------- shapes and programs ----------------------------------

static void test_shapes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t height, width;
    size_t stages;
  } cases[] = {
      {"", 30, 40, 0},
      {"resize(size=8)", 8, 8, 1},
      {"resize(size=(8, 9))", 8, 9, 1},
      {"resize(size=16) | center_crop(size=(12, 10))", 12, 10, 1},
      {"resize(size=(16, 20)) | center_crop(size=12)", 12, 12, 2},
      {"random_resized_crop(size=(5, 70))", 5, 70, 1},
      {"random_crop(size=32, padding=4)", 32, 32, 1},
      {"pad(padding=3)", 36, 46, 1},
      {"random_flip | color_jitter | grayscale | gaussian_blur | cutout", 30, 40, 5},
      {"center_crop(size=20) | to_tensor | normalize", 20, 20, 1},
      {"cast(dtype=uint8) | views(views=2)", 30, 40, 0},
      {"cast", 30, 40, 1},
      {"random_flip | cast", 30, 40, 1},
  };
  brim_source s = image_source(30, 40, 3, BRIM_SAMPLE_U8);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_transforms *t = made(cases[i].text, &s);
    const brim_source_info *info = brim_transforms_info(t);
    assert_int_equal(info->dim[0], cases[i].height);
    assert_int_equal(info->dim[1], cases[i].width);
    assert_int_equal(info->dim[2], 3);
    assert_int_equal(info->count, 1000);
    bool cast = strstr(cases[i].text, "cast") && !strstr(cases[i].text, "uint8");
    assert_int_equal(info->type, cast ? BRIM_SAMPLE_F32 : BRIM_SAMPLE_U8);
    size_t out = (size_t)(cases[i].height * cases[i].width * 3) * (cast ? 4 : 1);
    assert_int_equal(brim_transforms_output_bytes(t), out);
    assert_int_equal(brim_transforms_count(t), cases[i].stages);
    const brim_augment_program *p = brim_transforms_program(t);
    assert_non_null(p);
    assert_int_equal(p->key, brim_rng_key(11, BRIM_RNG_AUGMENT));
    assert_int_equal(p->stage_count, cases[i].stages);
    assert_int_equal(p->sample_bytes, s.input_bytes);
    assert_int_equal(p->out_bytes, out);
    assert_int_equal(p->in_height, 30);
    assert_int_equal(p->out_width, cases[i].width);
    assert_int_equal(p->channels, 3);
    assert_int_equal(p->in_float, 0);
    assert_int_equal(p->out_float, cast);
    int32_t height = 30, width = 40;  // each stage gets the size of the one before
    for (int32_t k = 0; k < p->stage_count; k++) {
      assert_int_equal(p->stages[k].in_height, height);
      assert_int_equal(p->stages[k].in_width, width);
      height = p->stages[k].out_height;
      width = p->stages[k].out_width;
    }
    assert_int_equal(height, cases[i].height);
    brim_transforms_destroy(t);
  }
}

// The number of a stage is its place as written: removing others does not change its draws, nor does `views`.
static void test_numbers(void **state) {
  (void)state;
  brim_source s = image_source(30, 40, 3, BRIM_SAMPLE_U8);
  brim_transforms *t = made(
      "views | resize(size=16) | center_crop(size=12) | cast(dtype=uint8) | random_flip | cutout",
      &s);
  const brim_augment_program *p = brim_transforms_program(t);
  static const uint32_t numbers[] = {0, 3, 4};
  for (int i = 0; i < 3; i++) assert_int_equal(p->stages[i].number, numbers[i]);
  assert_string_equal(brim_transforms_name(t, 0), "resize");
  assert_string_equal(brim_transforms_name(t, 2), "cutout");
  brim_transforms_destroy(t);
  // Evaluation keeps only stages without draws, and one view.
  assert_ok(
      make("views | random_flip | center_crop(size=9) | color_jitter | grayscale(p=0.5) | "
           "grayscale | gaussian_blur | random_resized_crop(size=4) | normalize",
           &s, false, &t));
  assert_int_equal(brim_transforms_count(t), 2);
  assert_int_equal(brim_transforms_views(t), 1);
  assert_int_equal(brim_transforms_program(t)->stages[1].number, 4);
  assert_int_equal(brim_transforms_info(t)->dim[0], 9);
  brim_transforms_destroy(t);
}

// An empty pipeline copies any sample.
static void test_empty(void **state) {
  (void)state;
  brim_source s = image_source(1, 1, 1, BRIM_SAMPLE_F32);
  s.info.rank = 1;
  s.info.dim[0] = 7;
  s.input_bytes = 28;
  brim_transforms *t = made("normalize(mean=2, std=3) | views(views=2)", &s);
  assert_int_equal(brim_transforms_scratch_bytes(t), 0);
  assert_int_equal(brim_transforms_info(t)->rank, 1);
  assert_int_equal(brim_transforms_info(t)->dim[0], 7);
  assert_int_equal(brim_transforms_info(t)->channels, 1);
  assert_true(brim_transforms_info(t)->mean[0] == 2 && brim_transforms_info(t)->std[0] == 3);
  float in[7] = {1, -2, 3, 4, 5, 6, 1e9f};
  float *out = apply_at(t, 0, 1, in, 0, 0, 0);
  assert_memory_equal(in, out, sizeof in);
  brim_free(out);
  brim_transforms_destroy(t);
  // Bytes that are no image become floats too.
  s.info.type = BRIM_SAMPLE_U8;
  s.input_bytes = 7;
  t = made("cast", &s);
  assert_int_equal(brim_transforms_output_bytes(t), 28);
  assert_int_equal(brim_transforms_info(t)->dim[0], 7);
  static const uint8_t few[7] = {0, 1, 2, 127, 128, 254, 255};
  out = apply_at(t, 0, 0, few, 0, 0, 0);
  for (int i = 0; i < 7; i++) assert_true(out[i] == (float)few[i]);
  brim_free(out);
  brim_transforms_destroy(t);
}

//---------------------------------- normalisation ----------------------------------

// The network's input for a raw value (workload: unit
// std, -mean
// std).
static double input(const brim_source_info *info, int c, double raw) {
  double unit = info->type == BRIM_SAMPLE_U8 ? 1 / 255.0 : 1;
  if (info->channels == 0) return raw * unit;
  int k = c % info->channels;
  return (raw * unit - (double)info->mean[k]) / (double)info->std[k];
}

static void test_normalize(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double mean[3], std[3];  // on 0..1
  } cases[] = {
      {"random_flip | normalize(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.5))",
       {0.4, 0.5, 0.6},
       {0.2, 0.25, 0.5}},
      {"to_tensor | normalize(mean=0.25, std=2)", {0.25, 0.25, 0.25}, {2, 2, 2}},
      {"normalize", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
      {"normalize(mean=(0.1, 0.2, 0.3), std=2)", {0.1, 0.2, 0.3}, {2, 2, 2}},
      {"random_flip | to_tensor", {0, 0, 0}, {1, 1, 1}},
      {"normalize(mean=0.1, std=0.5) | cast", {0.1, 0.1, 0.1}, {0.5, 0.5, 0.5}},
      {"random_flip", {0.5, 0.25, 1}, {0.5, 1, 2}},  // the source's own values
      {"cast", {0.5, 0.25, 1}, {0.5, 1, 2}},
  };
  brim_source s = image_source(4, 4, 3, BRIM_SAMPLE_U8);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const float mean[] = {0.5f, 0.25f, 1}, std[] = {0.5f, 1, 2};
    memcpy(s.info.mean, mean, sizeof mean);
    memcpy(s.info.std, std, sizeof std);
    s.info.channels = 3;
    brim_transforms *t = made(cases[i].text, &s);
    const brim_source_info *info = brim_transforms_info(t);
    assert_int_equal(info->channels, 3);
    for (int c = 0; c < 3; c++) {
      for (int raw = 0; raw < 256; raw += 51) {
        double exact = (raw / 255.0 - cases[i].mean[c]) / cases[i].std[c];
        assert_true(fabs(input(info, c, raw) - exact) < 1e-5);
      }
    }
    brim_transforms_destroy(t);
  }
  // If the source gives no values, a single number applies to every channel, and cutout fills with the mean.
  s.info.channels = 0;
  brim_transforms *t = made("cutout(size=9) | normalize(mean=(0.5, 0, 1), std=1)", &s);
  uint8_t in[48] = {0};
  uint8_t *out = apply_at(t, 0, 0, in, 4, 4, 0);
  static const uint8_t zero[] = {128, 0, 255};
  assert_memory_equal(out, zero, 3);
  brim_free(out);
  brim_transforms_destroy(t);
  t = made("normalize(mean=0.25)", &s);
  assert_int_equal(brim_transforms_info(t)->channels, 3);
  brim_transforms_destroy(t);
  // Floats are normalised from their raw values.
  s = image_source(4, 4, 3, BRIM_SAMPLE_F32);
  t = made("random_flip | to_tensor | normalize(mean=(1, 2, 3), std=4)", &s);
  assert_true(fabs(input(brim_transforms_info(t), 1, 10) - 2) < 1e-6);
  brim_transforms_destroy(t);
}

//---------------------------------- images of different sizes ----------------------------------

static brim_source varied(int64_t height, int64_t width) {
  brim_source s = image_source(height, width, 3, BRIM_SAMPLE_U8);
  s.info.varies = 1;
  return s;
}

static void test_varying(void **state) {
  (void)state;
  static const char *const texts[] = {
      "resize(size=(9, 14)) | random_flip",
      "resize(size=20) | center_crop(size=(20, 13)) | color_jitter",
      "center_crop(size=24)",
      "random_crop(size=(30, 8), padding=1) | gaussian_blur",
      "random_resized_crop(size=16) | random_flip | color_jitter | gaussian_blur",
      "cast(dtype=uint8) | random_resized_crop(size=40) | cast",
  };
  static const int64_t sizes[][2] = {{64, 50}, {50, 64}, {9, 9}, {1, 33}, {40, 2}, {1, 1}};
  brim_source s = varied(64, 64);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    brim_transforms *t = made(texts[i], &s);
    assert_null(brim_transforms_program(t));
    assert_int_equal(brim_transforms_info(t)->varies, 0);
    for (size_t k = 0; k < 6; k++) {
      for (uint64_t n = 0; n < 6; n++) check_view(t, &s, n, 0, sizes[k][0], sizes[k][1]);
    }
    brim_transforms_destroy(t);
  }
  refused("", &s, BRIM_EINVAL, "differ in size");
  refused("normalize", &s, BRIM_EINVAL, "differ in size");
  refused("random_flip | resize(size=8)", &s, BRIM_EINVAL, "random_flip: the images");
  refused("pad | resize(size=8)", &s, BRIM_EINVAL, "resize, center_crop, random_crop");
  brim_transforms *t;
  assert_status(make("random_resized_crop(size=8)", &s, false, &t), BRIM_EINVAL);
  assert_detail("differ in size");
}

// Decoding smaller, the drawn region of every view still has at least the pixels of its result; the next smaller size
// would not.
static void test_scale(void **state) {
  (void)state;
  brim_source s = varied(2000, 2000);
  static const char *const texts[] = {
      "random_resized_crop(size=64) | views",
      "random_resized_crop(size=(32, 100), scale=(0.3, 1)) | random_flip",
      "resize(size=(100, 60))",
      "resize(size=256) | center_crop(size=224)",
  };
  int seen[9] = {0};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    brim_transforms *t = made(texts[i], &s);
    const brim_augment_program *p = &t->program;
    for (uint64_t n = 0; n < 300; n++) {
      int64_t height = 30 + (int64_t)(n * 37 % 1900), width = 30 + (int64_t)(n * 53 % 1900);
      int scale = brim_transforms_scale(t, 4, n, height, width);
      assert_true(scale == 1 || scale == 2 || scale == 4 || scale == 8);
      seen[scale]++;
      bool twice = scale < 8;
      for (int at = scale; at <= 2 * scale; at += scale) {
        bool loses = false;
        for (int32_t v = 0; v < p->views; v++) {
          brim_augment a = {.key = p->key, .epoch = 4, .index = n, .view = (uint32_t)v};
          brim_image_drawn d;
          brim_image_draw(&p->stages[0], &a, (int32_t)((height + at - 1) / at),
                          (int32_t)((width + at - 1) / at), &d);
          loses |= d.height < d.full_height || d.width < d.full_width;
        }
        if (at == scale && scale > 1) assert_false(loses);
        if (at > scale && twice) assert_true(loses);
      }
    }
    brim_transforms_destroy(t);
  }
  for (int k = 1; k <= 8; k *= 2) assert_true(seen[k] > 20);
  brim_transforms *t = made("random_crop(size=8)", &s);
  assert_int_equal(brim_transforms_scale(t, 0, 0, 2000, 2000), 1);
  brim_transforms_destroy(t);
}

// An image decoded smaller gives nearly the same result.
static void test_scaled(void **state) {
  (void)state;
  enum { SIDE = 256, OUT = 24 };
  brim_source s = varied(SIDE, SIDE);
  brim_transforms *t = made("random_resized_crop(size=24, scale=(0.4, 1)) | color_jitter", &s);
  static uint8_t whole[SIDE][SIDE][3], small[SIDE][SIDE][3];
  for (int e = 0; e < SIDE * SIDE * 3; e++) {
    int y = e / (SIDE * 3), x = e / 3 % SIDE, c = e % 3;
    whole[y][x][c] = (uint8_t)(128 + 100 * sin(y * 0.01 + c) * cos(x * 0.015 - c));
  }
  double sum = 0;
  int same = 0;
  for (uint64_t n = 0; n < 50; n++) {
    int scale = brim_transforms_scale(t, 3, n, SIDE, SIDE), side = SIDE / scale;
    assert_true(scale >= 4);
    uint8_t *to = &small[0][0][0];
    for (int e = 0; e < side * side * 3; e++) {
      int y = e / (side * 3), x = e / 3 % side, c = e % 3, total = 0;
      for (int k = 0; k < scale * scale; k++) {
        total += whole[y * scale + k / scale][x * scale + k % scale][c];
      }
      to[e] = (uint8_t)(total / (scale * scale));
    }
    brim_augment draw = {.key = t->program.key, .epoch = 3, .index = n};
    brim_image_drawn d, ds;
    brim_image_draw(&t->program.stages[0], &draw, SIDE, SIDE, &d);
    brim_image_draw(&t->program.stages[0], &draw, side, side, &ds);
    same += abs(ds.y * scale - d.y) <= scale && abs(ds.x * scale - d.x) <= scale &&
            abs(ds.height * scale - d.height) <= scale && abs(ds.width * scale - d.width) <= scale;
    uint8_t *a = apply_at(t, n, 0, whole, SIDE, SIDE, 0);
    uint8_t *b = apply_at(t, n, 0, small, side, side, 0);
    for (int e = 0; e < OUT * OUT * 3; e++) sum += abs(a[e] - b[e]);
    brim_free(a);
    brim_free(b);
  }
  assert_true(same >= 48);  // the same region, to within a pixel of the smaller image
  double mean = sum / (50.0 * OUT * OUT * 3);
  if (mean > 2.5) fail_msg("%g steps of 1/255 on average", mean);
  brim_transforms_destroy(t);
}

//---------------------------------- refusals ----------------------------------

static const struct {
  const char *text;
  brim_status status;
  const char *detail;
} refusals[] = {
    {"resize", BRIM_EINVAL, "resize: size must be"},
    {"resize(size=0)", BRIM_EINVAL, "resize: size must be"},
    {"resize(size=8, interpolation=cubic)", BRIM_EINVAL, "bilinear or nearest"},
    {"resize(size=8) | center_crop(size=9)", BRIM_EINVAL, "shorter side was resized to 8"},
    {"center_crop(size=21)", BRIM_EINVAL, "does not fit"},
    {"random_resized_crop(size=8, scale=(0.5, 0.1))", BRIM_EINVAL, "scale must be (lowest"},
    {"random_resized_crop(size=8, scale=(0, 1))", BRIM_EINVAL, "scale must be"},
    {"random_resized_crop(size=8, ratio=(1, 2, 3))", BRIM_EINVAL, "ratio must be"},
    {"color_jitter(hue=0.6)", BRIM_EINVAL, "hue must be a number from 0 to 0.5"},
    {"color_jitter(contrast=-1)", BRIM_EINVAL, "contrast must be"},
    {"gaussian_blur(kernel=4)", BRIM_EINVAL, "kernel must be odd"},
    {"gaussian_blur(sigma=0)", BRIM_EINVAL, "sigma must be"},
    {"gaussian_blur(p=2)", BRIM_EINVAL, "p must be"},
    {"pad(value=256)", BRIM_EINVAL, "from 0 to 255"},
    {"pad(padding=-1)", BRIM_EINVAL, "padding must be"},
    {"cast(dtype=float16)", BRIM_EUNSUPPORTED, "set the compute precision with training.precision"},
    {"cast(dtype=bfloat16)", BRIM_EUNSUPPORTED,
     "set the compute precision with training.precision"},
    {"cast(dtype=int7)", BRIM_EINVAL, "dtype must be"},
    {"normalize(std=0)", BRIM_EINVAL, "std must be above 0"},
    {"normalize(mean=(1, 2))", BRIM_EINVAL, "each of the 3 channels"},
    {"normalize(mean=(1, 2, 3), std=(1, 2))", BRIM_EINVAL, "each of the 3 channels"},
    {"normalize | random_flip", BRIM_EINVAL, "random_flip comes after normalize"},
    {"to_tensor | cutout", BRIM_EINVAL, "cutout comes after to_tensor"},
    {"normalize | normalize", BRIM_EINVAL, "normalize comes after normalize"},
    {"cast | random_flip", BRIM_EINVAL, "random_flip comes after cast"},
    {"cast | normalize", BRIM_EINVAL, "normalize comes after cast"},
    {"views(views=0)", BRIM_EINVAL, "views must be"},
    {"views | random_flip | views", BRIM_EINVAL, "twice"},
    {"random_flip | random_flip | random_flip | random_flip | random_flip | random_flip | "
     "random_flip | random_flip | random_flip | random_flip | random_flip | random_flip | "
     "random_flip | random_flip | random_flip | random_flip | random_flip",
     BRIM_ELIMIT, "more than 16"},
    {"sharpen", BRIM_EUNSUPPORTED, "'sharpen' is not supported in this version"},
};

static void test_refusals(void **state) {
  (void)state;
  brim_source s = image_source(20, 20, 3, BRIM_SAMPLE_U8);
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    refused(refusals[i].text, &s, refusals[i].status, refusals[i].detail);
  }
  brim_source two = image_source(20, 20, 2, BRIM_SAMPLE_U8);
  refused("color_jitter", &two, BRIM_EINVAL, "1 or 3 channels; these have 2");
  refused("grayscale", &two, BRIM_EINVAL, "grayscale works on");
  brim_source floats = image_source(20, 20, 3, BRIM_SAMPLE_F32);
  refused("cast(dtype=uint8)", &floats, BRIM_EUNSUPPORTED, "cannot become uint8");
  static const char *const stages[] = {
      "resize(size=8)",     "color_jitter", "gaussian_blur", "pad", "random_resized_crop(size=4)",
      "random_crop(size=4)"};
  s.info.rank = 1;
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
    refused(stages[i], &s, BRIM_EINVAL, "works on images");
  }
  s = image_source(60000, 60000, 3, BRIM_SAMPLE_U8);
  s.info.dim[2] = 60000;
  refused("random_flip", &s, BRIM_ELIMIT, "too large");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),  cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_empty),   cmocka_unit_test(test_normalize),
      cmocka_unit_test(test_varying), cmocka_unit_test(test_scale),
      cmocka_unit_test(test_scaled),  cmocka_unit_test(test_refusals),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
