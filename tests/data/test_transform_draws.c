// Statistics of random transforms: areas and shapes of resized crops, factors and order of colour jitter, how often an
// event of probability p happens. Nothing but (seed, epoch, sample, view, stage) decides a draw.
#include "test_transform.h"

enum { DRAWS = 20000 };

static const brim_image_stage *stage_of(const char *text, int64_t height, int64_t width,
                                        brim_transforms **t) {
  brim_source s = image_source(height, width, 3, BRIM_SAMPLE_U8);
  brim_status status = make(text, &s, true, t);
  if (status) fail_msg("%s: %s", text, brim_status_detail());
  assert_int_equal(brim_transforms_count(*t), 1);
  return &brim_transforms_program(*t)->stages[0];
}

static void draw_at(const brim_transforms *t, uint64_t index, brim_image_drawn *d) {
  const brim_augment_program *p = &t->program;
  brim_augment a = {.key = p->key, .epoch = 5, .index = index};
  memset(d, 0xee, sizeof *d);
  brim_image_draw(&p->stages[0], &a, p->in_height, p->in_width, d);
}

// Counts in ten equal bins; none is further from its share than 15 %.
static void assert_uniform(const int bins[10], int total) {
  for (int i = 0; i < 10; i++) {
    if (abs(bins[i] - total / 10) > total / 10 * 15 / 100) {
      fail_msg("bin %d has %d of %d", i, bins[i], total);
    }
  }
}

static void count_bin(int bins[10], double at) {
  assert_true(at > -0.002 && at < 1.002);  // sizes are whole pixels
  int k = (int)floor(at * 10);
  bins[k < 0 ? 0 : k > 9 ? 9 : k]++;
}

// Every try fits into a large square image with areas up to a half. So the area is uniform, the shape uniform in its
// logarithm, and every place in the image equally likely.
static void test_resized_crop(void **state) {
  (void)state;
  brim_transforms *t;
  stage_of("random_resized_crop(size=8, scale=(0.1, 0.5))", 3000, 3000, &t);
  int area[10] = {0}, shape[10] = {0}, place[10] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    brim_image_drawn d;
    draw_at(t, i, &d);
    assert_true(d.y >= 0 && d.x >= 0 && d.height >= 1 && d.width >= 1);
    assert_true(d.y + d.height <= 3000 && d.x + d.width <= 3000);
    assert_int_equal(d.full_height, 8);
    assert_int_equal(d.top, 0);
    count_bin(area, ((double)d.height * d.width / 9e6 - 0.1) / 0.4);
    count_bin(shape, (log((double)d.width / d.height) / log(4.0 / 3) + 1) / 2);
    count_bin(place, (double)d.x / (3000 - d.width));
  }
  assert_uniform(area, DRAWS);
  assert_uniform(shape, DRAWS);
  assert_uniform(place, DRAWS);
  brim_transforms_destroy(t);
}

// torchvision's rule, written again in doubles: the same regions, except for a pixel of rounding.
static void test_resized_crop_rule(void **state) {
  (void)state;
  brim_transforms *t;
  const brim_image_stage *s = stage_of("random_resized_crop(size=8)", 96, 80, &t);
  int fallbacks = 0;
  for (uint64_t i = 0; i < 5000; i++) {
    brim_augment a = {.key = t->program.key, .epoch = 5, .index = i};
    brim_image_drawn d;
    draw_at(t, i, &d);
    int h = 96, w = 80;  // the image's own shape is allowed
    bool found = false;
    for (uint32_t k = 0; k < 10 && !found; k++) {
      brim_philox4 r = brim_augment_draw(&a, s->number, 2 * k);
      double target = 96 * 80 * (0.08 + (double)brim_rng_uniform(r.v[0]) * 0.92);
      double low = log(0.75), high = log(4.0 / 3);
      double ratio = exp(low + (double)brim_rng_uniform(r.v[1]) * (high - low));
      int try_w = (int)floor(sqrt(target * ratio) + 0.5);
      int try_h = (int)floor(sqrt(target / ratio) + 0.5);
      found = try_w >= 1 && try_w <= 80 && try_h >= 1 && try_h <= 96;
      if (found) {
        h = try_h;
        w = try_w;
      }
    }
    fallbacks += !found;
    if (abs(d.height - h) > 1 || abs(d.width - w) > 1) {
      fail_msg("sample %d: %dx%d instead of %dx%d", (int)i, (int)d.height, (int)d.width, h, w);
    }
  }
  assert_true(fallbacks < 50);
  brim_transforms_destroy(t);
}

// Nothing fits: the largest middle part with an allowed shape.
static void test_resized_crop_fallback(void **state) {
  (void)state;
  static const struct {
    int64_t height, width;
    int y, x, h, w;
  } cases[] = {{10, 100, 0, 43, 10, 13}, {100, 10, 43, 0, 13, 10}, {1, 1, 0, 0, 1, 1}};
  for (size_t k = 0; k < 3; k++) {
    brim_transforms *t;
    stage_of("random_resized_crop(size=8, scale=(1, 1))", cases[k].height, cases[k].width, &t);
    for (uint64_t i = 0; i < 50; i++) {
      brim_image_drawn d;
      draw_at(t, i, &d);
      assert_int_equal(d.y, cases[k].y);
      assert_int_equal(d.x, cases[k].x);
      assert_int_equal(d.height, cases[k].h);
      assert_int_equal(d.width, cases[k].w);
    }
    brim_transforms_destroy(t);
  }
}

static void test_jitter(void **state) {
  (void)state;
  brim_transforms *t;
  stage_of("color_jitter(brightness=0.4, contrast=0.8, saturation=1.5, hue=0.2, p=0.8)", 8, 8, &t);
  static const double low[] = {0.6, 0.2, 0, -0.2}, high[] = {1.4, 1.8, 2.5, 0.2};
  int bins[4][10] = {{0}}, orders[256] = {0}, on = 0;
  for (uint64_t i = 0; i < DRAWS; i++) {
    brim_image_drawn d;
    draw_at(t, i, &d);
    on += d.on;
    int seen = 0, code = 0;
    for (int k = 0; k < 4; k++) {
      count_bin(bins[k], ((double)d.factor[k] - low[k]) / (high[k] - low[k]));
      assert_true(d.changes[k]);
      assert_in_range(d.order[k], 0, 3);
      seen |= 1 << d.order[k];
      code = code * 4 + d.order[k];
    }
    assert_int_equal(seen, 15);
    orders[code]++;
  }
  assert_in_range(on, (int)(0.785 * DRAWS), (int)(0.815 * DRAWS));
  for (int k = 0; k < 4; k++) assert_uniform(bins[k], DRAWS);
  int kinds = 0;
  for (int k = 0; k < 256; k++) {
    if (orders[k] == 0) continue;
    kinds++;
    assert_in_range(orders[k], DRAWS / 24 * 8 / 10, DRAWS / 24 * 12 / 10);
  }
  assert_int_equal(kinds, 24);
  brim_transforms_destroy(t);
  stage_of("color_jitter(brightness=0, contrast=0.1, saturation=0, hue=0.1)", 8, 8, &t);
  brim_image_drawn d;
  draw_at(t, 0, &d);
  assert_true(!d.changes[0] && d.changes[1] && !d.changes[2] && d.changes[3]);
  assert_true(d.factor[0] == 1 && d.factor[2] == 1);
  brim_transforms_destroy(t);
}

static void test_blur(void **state) {
  (void)state;
  brim_transforms *t;
  stage_of("gaussian_blur(sigma=(0.5, 3), p=0.3)", 8, 8, &t);
  int bins[10] = {0}, on = 0, both[2] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    brim_image_drawn d;
    draw_at(t, i, &d);
    on += d.on;
    both[d.on] += d.sigma > 1.75f;
    count_bin(bins, ((double)d.sigma - 0.5) / 2.5);
  }
  assert_uniform(bins, DRAWS);
  assert_in_range(on, (int)(0.285 * DRAWS), (int)(0.315 * DRAWS));
  // whether a stage runs is independent of its strength
  assert_in_range(both[1], on * 45 / 100, on * 55 / 100);
  brim_transforms_destroy(t);
}

static void test_probabilities(void **state) {
  (void)state;
  static const char *const names[] = {"random_flip",      "random_vertical_flip",
                                      "random_grayscale", "gaussian_blur",
                                      "cutout",           "color_jitter"};
  static const double ps[] = {0, 0.2, 0.5, 1};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    for (size_t k = 0; k < 4; k++) {
      char text[64];
      snprintf(text, sizeof text, "%s(p=%g)", names[n], ps[k]);
      brim_transforms *t;
      stage_of(text, 8, 8, &t);
      int on = 0;
      for (uint64_t i = 0; i < 4000; i++) {
        brim_image_drawn d;
        draw_at(t, i, &d);
        on += d.on;
      }
      bool sure = ps[k] == 0 || ps[k] == 1;
      if (fabs(on / 4000.0 - ps[k]) > (sure ? 0 : 0.025)) fail_msg("%s: %d of 4000", text, on);
      brim_transforms_destroy(t);
    }
  }
}

// An image smaller than the window, in a set of varying sizes: it is centred in a border.
static void test_window_of_small_images(void **state) {
  (void)state;
  brim_image_stage s = {.op = BRIM_IMAGE_WINDOW, .random = 1, .out_height = 10, .out_width = 4};
  brim_augment a = {.key = 1};
  for (uint64_t i = 0; i < 200; i++) {
    brim_image_drawn d;
    a.index = i;
    brim_image_draw(&s, &a, 5, 9, &d);
    assert_int_equal(d.y, -2);
    assert_in_range(d.x, 0, 5);
    s.random = 0;
    brim_image_draw(&s, &a, 5, 9, &d);
    assert_int_equal(d.y, -2);
    assert_int_equal(d.x, 2);
    s.random = 1;
  }
}

// Views, epochs, samples and seeds give different draws; equal ones give equal draws.
static void test_what_decides(void **state) {
  (void)state;
  brim_source s = image_source(20, 20, 3, BRIM_SAMPLE_U8);
  brim_transforms *t, *plain;
  assert_ok(make("random_resized_crop(size=8) | views(views=3) | color_jitter", &s, true, &t));
  assert_ok(make("random_resized_crop(size=8) | color_jitter", &s, true, &plain));
  assert_int_equal(brim_transforms_views(t), 3);
  assert_int_equal(brim_transforms_views(plain), 1);
  uint8_t in[20 * 20 * 3];
  fill_image(in, BRIM_SAMPLE_U8, 1, 20, 20, 3);
  uint8_t *views[4];
  for (uint32_t v = 0; v < 3; v++) views[v] = apply_at(t, 7, v, in, 20, 20, 0);
  views[3] = apply_at(t, 8, 0, in, 20, 20, 0);
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < i; k++) assert_memory_not_equal(views[i], views[k], 8 * 8 * 3);
  }
  uint8_t *same = apply_at(plain, 7, 0, in, 20, 20, 0);
  assert_memory_equal(same, views[0], 8 * 8 * 3);
  brim_free(same);
  same = apply_at(t, 7, 2, in, 20, 20, 9);
  assert_memory_equal(same, views[2], 8 * 8 * 3);
  brim_free(same);
  for (int i = 0; i < 4; i++) brim_free(views[i]);
  brim_transforms_destroy(plain);
  brim_transforms_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resized_crop),
      cmocka_unit_test(test_resized_crop_rule),
      cmocka_unit_test(test_resized_crop_fallback),
      cmocka_unit_test(test_jitter),
      cmocka_unit_test(test_blur),
      cmocka_unit_test(test_probabilities),
      cmocka_unit_test(test_window_of_small_images),
      cmocka_unit_test(test_what_decides),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
