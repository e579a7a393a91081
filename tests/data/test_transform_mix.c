// Transforms that mix pixels, against an oracle in double precision that follows only the definitions: each stage alone
// over many shapes, types and draws, then whole pipelines; and small images with known results.
#include "test_transform.h"

// A pipeline over `samples` images of a shape.
static void check(const char *text, int64_t height, int64_t width, int64_t channels,
                  brim_sample_type type, uint64_t samples) {
  brim_source s = image_source(height, width, channels, type);
  brim_transforms *t;
  brim_status status = make(text, &s, true, &t);
  if (status) fail_msg("%s: %s", text, brim_status_detail());
  for (uint64_t i = 0; i < samples; i++) {
    for (int32_t v = 0; v < brim_transforms_views(t); v++) {
      check_view(t, &s, i, (uint32_t)v, height, width);
    }
  }
  brim_transforms_destroy(t);
}

static void check_types(const char *text, int64_t height, int64_t width, int64_t channels,
                        uint64_t samples) {
  check(text, height, width, channels, BRIM_SAMPLE_U8, samples);
  check(text, height, width, channels, BRIM_SAMPLE_F32, samples);
}

//---------------------------------- arithmetic ----------------------------------

static void test_functions(void **state) {
  (void)state;
  for (double x = -79.5; x < 80; x += 0.0371) {
    float f = (float)x;
    double e = exp((double)f);
    assert_true(fabs((double)brim_image_exp(f) - e) <= 3e-7 * e);
  }
  assert_true(brim_image_exp(-200) == 0);
  assert_true(brim_image_exp(0) == 1);
  for (double x = 1e-6; x < 1e6; x *= 1.0173) {
    float f = (float)x;
    double exact = log((double)f);
    assert_true(fabs((double)brim_image_log(f) - exact) <= 2e-7 * fmax(1, fabs(exact)));
  }
  assert_true(brim_image_log(1) == 0);
  for (int v = 0; v < 256; v++) assert_int_equal(brim_image_byte((float)v), v);
  assert_int_equal(brim_image_byte(-3), 0);
  assert_int_equal(brim_image_byte(0.5f), 1);
  assert_int_equal(brim_image_byte(254.49f), 254);
  assert_int_equal(brim_image_byte(300), 255);
  for (int n = 1; n < 6; n++) {
    for (int i = 0; i < 40; i++) {
      assert_int_equal(brim_image_inside(-i, n, BRIM_IMAGE_PAD_REFLECT), oracle_reflect(i, n));
      assert_int_equal(brim_image_inside(n - 1 + i, n, BRIM_IMAGE_PAD_REFLECT),
                       n - 1 - oracle_reflect(i, n));
      assert_int_equal(brim_image_inside(i, n, BRIM_IMAGE_PAD_EDGE), i < n ? i : n - 1);
    }
  }
}

// Red turned by a third of the circle is green, then blue; gray has no hue; value and spread stay.
static void test_hue_of_known_colours(void **state) {
  (void)state;
  brim_image_rgb red = {200, 20, 20};
  brim_image_rgb green = brim_image_hue(red, 1.0f / 3), blue = brim_image_hue(red, -1.0f / 3);
  assert_true(fabsf(green.r - 20) < 1e-3f && fabsf(green.g - 200) < 1e-3f);
  assert_true(fabsf(green.b - 20) < 1e-3f && fabsf(blue.b - 200) < 1e-3f);
  brim_image_rgb cyan = brim_image_hue(red, 0.5f);
  assert_true(fabsf(cyan.r - 20) < 1e-3f && fabsf(cyan.g - 200) < 1e-3f);
  brim_image_rgb gray = {77, 77, 77};
  gray = brim_image_hue(gray, 0.3f);
  assert_true(gray.r == 77 && gray.g == 77 && gray.b == 77);
  for (int k = 0; k < 2000; k++) {
    brim_philox4 r = brim_philox(1, 2, (uint64_t)k);
    brim_image_rgb p = {(float)(r.v[0] & 255), (float)(r.v[1] & 255), (float)(r.v[2] & 255)};
    float shift = brim_rng_uniform(r.v[3]) - 0.5f;
    double q[3] = {(double)p.r, (double)p.g, (double)p.b};
    oracle_hue(q, (double)shift);
    brim_image_rgb got = brim_image_hue(p, shift);
    assert_true(fabs((double)got.r - q[0]) < 1e-3 && fabs((double)got.g - q[1]) < 1e-3 &&
                fabs((double)got.b - q[2]) < 1e-3);
  }
}

//---------------------------------- single stages ----------------------------------

static void test_resize(void **state) {
  (void)state;
  static const int64_t in[][2] = {{7, 5}, {1, 1}, {33, 21}, {5, 64}, {96, 96}};
  static const char *const to[] = {"(4, 9)", "(3, 3)", "1", "(40, 2)", "(17, 31)"};
  for (size_t i = 0; i < 5; i++) {
    for (size_t k = 0; k < 5; k++) {
      for (int64_t channels = 1; channels <= 4; channels++) {
        char text[96];
        snprintf(text, sizeof text, "resize(size=%s)", to[k]);
        check_types(text, in[i][0], in[i][1], channels, 1);
        snprintf(text, sizeof text, "resize(size=%s, interpolation=nearest)", to[k]);
        check_types(text, in[i][0], in[i][1], channels, 1);
      }
    }
  }
}

// Known results: resizing to the same size changes nothing; two pixels resized to four mix 3/4 of the nearer one and
// 1/4 of the other, as other libraries do.
static void test_resize_known(void **state) {
  (void)state;
  brim_source s = image_source(9, 13, 3, BRIM_SAMPLE_U8);
  brim_transforms *t;
  assert_ok(make("resize(size=(9, 13))", &s, true, &t));
  uint8_t in[9 * 13 * 3];
  fill_image(in, BRIM_SAMPLE_U8, 5, 9, 13, 3);
  uint8_t *out = apply_at(t, 0, 0, in, 9, 13, 1);
  assert_memory_equal(in, out, sizeof in);
  brim_free(out);
  brim_transforms_destroy(t);
  s = image_source(1, 2, 1, BRIM_SAMPLE_U8);
  assert_ok(make("resize(size=(1, 4))", &s, true, &t));
  static const uint8_t two[] = {0, 100}, four[] = {0, 25, 75, 100};
  out = apply_at(t, 0, 0, two, 1, 2, 1);
  assert_memory_equal(out, four, 4);
  brim_free(out);
  brim_transforms_destroy(t);
  s = image_source(1, 4, 1, BRIM_SAMPLE_U8);
  // shrinking reads beyond the two nearest pixels
  assert_ok(make("resize(size=(1, 2))", &s, true, &t));
  static const uint8_t line[] = {0, 0, 70, 140};
  out = apply_at(t, 0, 0, line, 1, 4, 1);
  assert_int_equal(out[0], 10);  // weights 3, 3, 1 of 7
  assert_int_equal(out[1], 90);  // 1, 3, 3 of 7
  brim_free(out);
  brim_transforms_destroy(t);
}

// Resizing the shorter side and cropping the middle: the same as both stages in a row.
static void test_resize_to_shorter_side(void **state) {
  (void)state;
  static const struct {
    int64_t height, width;
    const char *one, *two;
  } cases[] = {
      {30, 40, "resize(size=16) | center_crop(size=(11, 10))",
       "resize(size=(16, 21)) | random_flip(p=0) | center_crop(size=(11, 10))"},
      {50, 17, "resize(size=9) | center_crop(size=4)",
       "resize(size=(26, 9)) | random_flip(p=0) | center_crop(size=4)"},
      {20, 20, "resize(size=33) | center_crop(size=30)",
       "resize(size=(33, 33)) | center_crop(size=30)"},
  };
  for (size_t i = 0; i < 3; i++) {
    brim_source s = image_source(cases[i].height, cases[i].width, 3, BRIM_SAMPLE_U8);
    uint8_t in[2048 * 3];
    fill_image(in, BRIM_SAMPLE_U8, i, cases[i].height, cases[i].width, 3);
    brim_transforms *one, *two;
    assert_ok(make(cases[i].one, &s, true, &one));
    assert_ok(make(cases[i].two, &s, true, &two));
    assert_int_equal(brim_transforms_count(one), 1);
    uint8_t *a = apply_at(one, 0, 0, in, cases[i].height, cases[i].width, 0);
    uint8_t *b = apply_at(two, 0, 0, in, cases[i].height, cases[i].width, 0);
    assert_int_equal(brim_transforms_output_bytes(one), brim_transforms_output_bytes(two));
    assert_memory_equal(a, b, brim_transforms_output_bytes(one));
    brim_free(a);
    brim_free(b);
    brim_transforms_destroy(one);
    brim_transforms_destroy(two);
  }
}

static void test_resized_crop(void **state) {
  (void)state;
  check_types("random_resized_crop(size=16)", 24, 30, 3, 60);
  check_types("random_resized_crop(size=(9, 20), scale=(0.5, 1), ratio=(0.3, 3))", 24, 30, 1, 40);
  check("random_resized_crop(size=7, interpolation=nearest)", 20, 20, 3, BRIM_SAMPLE_U8, 40);
  check("random_resized_crop(size=96)", 96, 96, 3, BRIM_SAMPLE_U8, 4);
  check("random_resized_crop(size=8)", 1, 40, 3, BRIM_SAMPLE_U8, 20);  // always the fallback
}

static void test_jitter(void **state) {
  (void)state;
  check_types("color_jitter(brightness=0.9, contrast=0, saturation=0, hue=0)", 9, 11, 3, 40);
  check_types("color_jitter(brightness=0, contrast=0.9, saturation=0, hue=0)", 9, 11, 3, 40);
  check_types("color_jitter(brightness=0, contrast=0, saturation=0.9, hue=0)", 9, 11, 3, 40);
  check_types("color_jitter(brightness=0, contrast=0, saturation=0, hue=0.5)", 9, 11, 3, 40);
  check_types("color_jitter", 9, 11, 3, 60);
  check_types("color_jitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=0.8)", 40, 33,
              3, 40);
  check_types("color_jitter(brightness=3, contrast=3, saturation=3)", 8, 8, 3, 40);
  check_types("color_jitter", 31, 29, 1, 20);
}

static void test_gray(void **state) {
  (void)state;
  check_types("grayscale", 7, 9, 3, 3);
  check_types("grayscale", 7, 9, 1, 3);
  check_types("random_grayscale(p=0.5)", 7, 9, 3, 20);
  brim_source s = image_source(1, 2, 3, BRIM_SAMPLE_U8);
  brim_transforms *t;
  assert_ok(make("grayscale", &s, false, &t));  // draws nothing, so evaluation has it too
  static const uint8_t in[] = {255, 0, 0, 10, 200, 30}, gray[] = {76, 76, 76, 124, 124, 124};
  uint8_t *out = apply_at(t, 0, 0, in, 1, 2, 0);
  assert_memory_equal(out, gray, 6);
  brim_free(out);
  brim_transforms_destroy(t);
}

static void test_blur(void **state) {
  (void)state;
  check_types("gaussian_blur", 24, 19, 3, 30);
  check_types("gaussian_blur(kernel=5, sigma=(1, 1), p=1)", 16, 8, 1, 3);
  check_types("gaussian_blur(kernel=23, sigma=(0.5, 9), p=1)", 17, 30, 4, 6);
  // the kernel is larger than the image
  check_types("gaussian_blur(kernel=11, sigma=3, p=1)", 3, 2, 3, 3);
  check_types("gaussian_blur(kernel=1, p=1)", 5, 5, 3, 2);
  // An image of one colour does not change.
  brim_source s = image_source(12, 12, 3, BRIM_SAMPLE_U8);
  brim_transforms *t;
  assert_ok(make("gaussian_blur(p=1)", &s, true, &t));
  uint8_t in[12 * 12 * 3];
  memset(in, 93, sizeof in);
  uint8_t *out = apply_at(t, 7, 0, in, 12, 12, 0);
  assert_memory_equal(in, out, sizeof in);
  brim_free(out);
  brim_transforms_destroy(t);
}

//---------------------------------- pipelines ----------------------------------

// Stages that move pixels before, between and after stages that mix them; stages with a probability.
static void test_pipelines(void **state) {
  (void)state;
  static const char *const texts[] = {
      "random_resized_crop(size=16) | random_flip | color_jitter(brightness=0.8, contrast=0.8, "
      "saturation=0.8, hue=0.2, p=0.8) | random_grayscale | gaussian_blur | views",
      "random_flip | color_jitter(p=0.5) | random_crop(size=12, padding=2) | random_vertical_flip "
      "| "
      "cutout(size=3, count=2)",
      "color_jitter | resize(size=(9, 13)) | gaussian_blur | random_crop(size=8)",
      "pad(padding=2, value=9) | random_crop(size=14) | random_grayscale(p=0.5) | pad(padding=1, "
      "value=200) | random_flip",
      "gaussian_blur | resize(size=10) | resize(size=20) | resize(size=15, interpolation=nearest) "
      "| "
      "random_flip(p=1) | random_vertical_flip(p=1) | center_crop(size=9)",
      "random_vertical_flip | cutout(size=5) | random_resized_crop(size=20, scale=(0.2, 0.9))",
      "center_crop(size=13) | random_flip | cutout | cast",
      "random_grayscale(p=0.5) | random_flip(p=0.5) | cast(dtype=float32)",
      "resize(size=20) | center_crop(size=(11, 16)) | color_jitter | cast",
      "cast(dtype=float32)",
      "pad(padding=0)",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    check(texts[i], 18, 22, 3, BRIM_SAMPLE_U8, 25);
    check(texts[i], 18, 18, 1, BRIM_SAMPLE_U8, 10);
    if (!strstr(texts[i], "value=")) check(texts[i], 18, 22, 3, BRIM_SAMPLE_F32, 10);
  }
  // SimCLR's pipeline, at its size.
  check(texts[0], 96, 96, 3, BRIM_SAMPLE_U8, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions),
      cmocka_unit_test(test_hue_of_known_colours),
      cmocka_unit_test(test_resize),
      cmocka_unit_test(test_resize_known),
      cmocka_unit_test(test_resize_to_shorter_side),
      cmocka_unit_test(test_resized_crop),
      cmocka_unit_test(test_jitter),
      cmocka_unit_test(test_gray),
      cmocka_unit_test(test_blur),
      cmocka_unit_test(test_pipelines),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
