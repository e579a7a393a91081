// The training curves of a replay page from made-up records: its parts without a script, escaped texts, and the curves
// left out.
#include "replay_training.h"
#include "replay_trajectories.h"

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in the page", part);
}

static void lacks(const char *text, const char *part) {
  const char *at = strstr(text, part);
  if (at) fail_msg("'%s' is in the page: %.120s", part, at);
}

static void make_page(const brim_curves *curves, const char *baseline, brim_str *page) {
  brim_ui_replay_options how = replay_options;
  brim_trajectory t;
  how.training = curves;
  how.training_step = "iteration";
  how.training_baseline = baseline;
  make_episode(&t, "Policy", 40, false);
  brim_str_init(page);
  assert_ok(brim_ui_replay(&how, &t, 1, page));
  brim_trajectory_deinit(&t);
}

static void test_content(void **state) {
  (void)state;
  brim_str page;
  make_page(&training_curves, "ran<dom", &page);
  contains(page.data, "<section id=\"training\"><h2>Training</h2>");
  contains(page.data, "Evaluations of the run; x axis: iteration");
  contains(page.data,
           "<b>score</b><span class=\"read c0\"><span>iteration 30</span> "
           "<output>7.5</output></span><span class=\"read base\">ran&lt;dom <b>1.25</b>");
  contains(page.data,
           "<b>share (%)</b><span class=\"read c0\"><span>iteration 30</span> "
           "<output>30.0 %</output></span></figcaption>");
  contains(page.data, "aria-label=\"score: iteration 30, 7.5\"");
  contains(page.data, "this checkpoint: iteration 30</li>");
  // from -5 to 10, over 50 iterations: 7.5 is a sixth from the top
  contains(page.data, "M200.0 80.0L400.0 63.3L600.0 16.7L800.0 46.7L1000.0 40.0\" />");
  contains(page.data, "<path class=\"base\" d=\"M0 58.3H1000\" />");
  contains(page.data, "<path class=\"here\" d=\"M600.0 0V100\" />");
  contains(page.data, "<i class=\"dot\" style=\"left:60.00%;top:16.7%\"></i>");
  contains(page.data,
           "\"training\":{\"step\":\"iteration\",\"last\":50,\"curves\":[{\"steps\":"
           "[10,20,30,40,50],\"values\":[\"-2\",\"0.5\",\"7.5\",\"3\",\"4\"],\"at\":2}");
  brim_str_deinit(&page);
}

// Texts of rows; a single point is visible; a curve that the checkpoint is not part of has no dot.
static void test_odd(void **state) {
  (void)state;
  const brim_curves one = {.list = &training_list[2], .count = 1, .marked = 30};
  brim_str page;
  make_page(&one, NULL, &page);
  contains(page.data, "<b>l&lt;i&gt; (u&amp;v)</b>");
  contains(page.data, "data-key=\"a&quot;b&lt;\"");
  contains(page.data, "<span>iteration 20</span> <output>3</output>");
  contains(page.data, "h0\" />");
  contains(page.data, "\"last\":30");
  lacks(page.data, "<i class=\"dot\"");
  lacks(page.data, "class=\"base\"");
  lacks(page.data, "l<i>");
  brim_str_deinit(&page);
}

static void test_left_out(void **state) {
  (void)state;
  const brim_curves none = {.marked = 30};
  brim_str page;
  make_page(&none, "random", &page);
  lacks(page.data, "id=\"training\"");
  lacks(page.data, "\"training\"");
  brim_str_deinit(&page);
  make_page(&training_curves, NULL, &page);  // baselines are hidden
  lacks(page.data, "class=\"base\"");
  brim_str_deinit(&page);
  brim_curves trained = training_curves;
  trained.training = true;
  trained.marked = -1;
  make_page(&trained, NULL, &page);
  contains(page.data, "since the log has no evaluations");
  contains(page.data, "<span>iteration 50</span> <output>4</output>");
  lacks(page.data, "class=\"here\"");
  lacks(page.data, "this checkpoint");
  brim_str_deinit(&page);
}

// Flat, tiny and huge curves have a scale with finite numbers.
static void test_scales(void **state) {
  (void)state;
  static const double values[][2] = {{0, 0}, {1e100, -1e100},  {1e100, 1e100},  {-1e-30, 1e-30},
                                     {5, 5}, {1e15, 1e15 + 1}, {-1e-90, -1e-90}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    brim_curve_point points[2] = {{0, values[i][0]}, {1, values[i][1]}};
    brim_curve curve = {&training_rows[i % 2], points, 2, (double)NAN};
    const brim_curves all = {.list = &curve, .count = 1, .marked = 0};
    brim_str page;
    make_page(&all, NULL, &page);
    const char *from = strstr(page.data, "<section id=\"training\">");
    assert_non_null(from);
    char *section = brim_strdup(from);
    assert_non_null(section);
    char *end = strstr(section, "</section>");
    assert_non_null(end);
    *end = '\0';
    lacks(section, "nan");
    lacks(section, "inf");
    assert_true(strlen(section) < 6000);
    brim_free(section);
    brim_str_deinit(&page);
  }
}

static void test_korean(void **state) {
  (void)state;
  brim_str page;
  brim_msg_set_language("ko");
  make_page(&training_curves, "random", &page);
  brim_msg_set_language("en");
  contains(page.data, "<h2>학습</h2>");
  contains(page.data, "이 체크포인트: 반복 30");
  contains(page.data, "무작위 <b>1.25</b>");
  brim_str_deinit(&page);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_content),  cmocka_unit_test(test_odd),
      cmocka_unit_test(test_left_out), cmocka_unit_test(test_scales),
      cmocka_unit_test(test_korean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
