// The replay page from made-up episodes: the parts that it has without a script, escaped texts, nothing fetched from
// outside, and a small size. A browser plays it in test_ui_replay_chromium.c.
#include "replay_trajectories.h"

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in the page", part);
}

static void lacks(const char *text, const char *part) {
  const char *at = strstr(text, part);
  if (at) fail_msg("'%s' is in the page: %.120s", part, at);
}

static size_t occurrences(const char *text, const char *part) {
  size_t n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}

static void make_page(int64_t frames, size_t count, bool walk, brim_str *page) {
  brim_trajectory list[2];
  const brim_scene *scene = replay_scene(walk);
  make_episode_in(scene, &list[0], brim_tr("Policy"), frames, false);
  make_episode_in(scene, &list[1], brim_tr("Zero policy"), 1 + frames / 3, true);
  brim_str_init(page);
  assert_ok(brim_ui_replay(&replay_options, list, count, page));
  for (int i = 0; i < 2; i++) brim_trajectory_deinit(&list[i]);
}

static void test_content(void **state) {
  (void)state;
  brim_str page;
  make_page(401, 2, false, &page);
  contains(page.data, "<!DOCTYPE html>\n<html lang=\"en\">");
  contains(page.data, "<title>quadruped &amp; &lt;stand&gt;: episode 3</title>");
  contains(page.data, "runs/a&quot;b/best.safetensors");
  contains(page.data, "brim render &#39;a&lt;b&#39;");
  contains(page.data, "linear &lt;8 x 29&gt;");
  contains(page.data, "stood for 20.00 s");
  contains(page.data, "fell at 6.65 s");
  contains(page.data, "<dt>pushes</dt><dd>8, up to 1.50 m/s</dd>");
  assert_int_equal(occurrences(page.data, "<canvas"), 2);
  assert_int_equal(occurrences(page.data, "class=\"curve\""), 3);
  assert_int_equal(occurrences(page.data, "class=\"l c"), 6);
  // eight pushes on each of three curves
  assert_int_equal(occurrences(page.data, "class=\"mark\""), 24);
  contains(page.data, "class=\"limit\"");
  contains(page.data, "beyond this line the robot has fallen");
  contains(page.data, "\"schema\":\"brim.trajectory/1\"");
  contains(page.data, "data-v=\"both\"");
  brim_str_deinit(&page);
}

// Every environment with a scene has its picture.
static void test_pictures(void **state) {
  (void)state;
  for (size_t i = 0; brim_env_at(i); i++) {
    const brim_env_row *row = brim_env_at(i);
    brim_env_values values;
    brim_scene scene;
    brim_trajectory t;
    brim_str page;
    if (!row->scene) continue;
    memset(&values, 0, sizeof values);
    memset(&scene, 0, sizeof scene);
    row->defaults(0, values.bytes);
    row->scene(values.bytes, &scene);
    assert_ok(brim_trajectory_init(&t, "policy", &scene, 1, 2));
    t.frames = 2;
    assert_ok(brim_trajectory_finish(&t));
    brim_str_init(&page);
    assert_ok(brim_ui_replay(&replay_options, &t, 1, &page));
    contains(page.data, "var brimScene = (function () {");
    assert_int_equal(occurrences(page.data, "class=\"curve\""), scene.curve_count);
    brim_str_deinit(&page);
    brim_trajectory_deinit(&t);
  }
}

// Several episodes: equally many views and curves, and a selector.
static void test_episodes(void **state) {
  (void)state;
  static const char *const names[] = {"3", "<7>"};
  brim_trajectory list[4];
  brim_str page;
  brim_ui_replay_options how = replay_options;
  for (int i = 0; i < 4; i++) make_episode(&list[i], i % 2 ? "Zero" : "Policy", 40, i % 2);
  how.episodes = names;
  how.episode_count = 2;
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&how, list, 4, &page));
  assert_int_equal(occurrences(page.data, "<canvas"), 4);
  assert_int_equal(occurrences(page.data, "class=\"curve\""), 6);
  assert_int_equal(occurrences(page.data, "class=\"l c"), 12);
  assert_int_equal(occurrences(page.data, "data-e=\"1\""), 5);
  assert_int_equal(occurrences(page.data, "<li class=\"c"), 2);
  contains(page.data, "<h2>Policy, episode &lt;7&gt;</h2>");
  contains(page.data, "<option value=\"1\">&lt;7&gt;</option>");
  contains(page.data, "\"choices\":2");
  brim_str_deinit(&page);
  brim_str_init(&page);
  assert_status(brim_ui_replay(&how, list, 3, &page), BRIM_EINVAL);
  how.episode_count = 1;
  assert_ok(brim_ui_replay(&how, list, 2, &page));
  lacks(page.data, "data-e");
  lacks(page.data, "id=\"episode\"");
  brim_str_deinit(&page);
  for (int i = 0; i < 4; i++) brim_trajectory_deinit(&list[i]);
}

// Up to four curves beside each other, distinguished by colour and line style.
static void test_beside(void **state) {
  (void)state;
  brim_trajectory list[5];
  brim_str page;
  for (int i = 0; i < 5; i++) make_episode(&list[i], "Policy", 40, i % 2);
  for (size_t n = 3; n <= 4; n++) {
    brim_str_init(&page);
    assert_ok(brim_ui_replay(&replay_options, list, n, &page));
    assert_int_equal(occurrences(page.data, "<canvas"), n);
    assert_int_equal(occurrences(page.data, "class=\"l c"), 3 * n);
    contains(page.data,
             n == 3 ? "<div id=\"stage\" data-n=\"3\">" : "<div id=\"stage\" data-n=\"4\">");
    contains(page.data, "aria-pressed=\"true\">all</button>");
    assert_int_equal(occurrences(page.data, "class=\"view c3"), n - 3);
    brim_str_deinit(&page);
  }
  brim_str_init(&page);
  assert_status(brim_ui_replay(&replay_options, list, 5, &page), BRIM_EINVAL);
  brim_str_deinit(&page);
  for (int i = 0; i < 5; i++) brim_trajectory_deinit(&list[i]);
}

static void test_alone(void **state) {
  (void)state;
  brim_str page;
  make_page(401, 1, false, &page);
  assert_int_equal(occurrences(page.data, "<canvas"), 1);
  lacks(page.data, "data-v=\"both\"");
  lacks(page.data, "Zero policy");
  brim_str_deinit(&page);
}

static void test_walk(void **state) {
  (void)state;
  brim_str page;
  make_page(401, 2, true, &page);
  contains(page.data, "stayed up for 20.00 s, 0.30 m ahead");
  contains(page.data, "<dt>ahead</dt><dd>0.30 m</dd>");
  brim_str_deinit(&page);
}

// Nothing is fetched, no NaN was printed, and the page is small.
static void test_self_contained(void **state) {
  (void)state;
  brim_str page;
  make_page(1001, 2, false, &page);
  assert_true(page.len < 400 << 10);
  static const char *const outside[] = {"http://", "https://", "src=", "url(",
                                        "@import", "\"nan",    ">nan", " nan",
                                        "inf\"",   ">inf",     "%zu",  "(null)"};
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) lacks(page.data, outside[i]);
  // the page contains the complete assets
  contains(page.data, "var brimScene = (function () {");
  contains(page.data, "brim.trajectory/1: base64");
  contains(page.data, "prefers-color-scheme: dark");
  contains(page.data, "@media print");
  assert_int_equal(occurrences(page.data, "<script"), 3);
  assert_int_equal(occurrences(page.data, "</script>"), 3);
  brim_str_deinit(&page);
}

// Very long episodes: the lines keep their extremes, but not every point.
static void test_long(void **state) {
  (void)state;
  brim_trajectory t;
  brim_str page;
  make_episode(&t, "long", 12001, false);
  t.reward[6001] = -50;  // a single step
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&replay_options, &t, 1, &page));
  const char *reward = strstr(page.data, "data-key=\"reward\"");
  assert_non_null(reward);
  contains(reward, " 87.5L");        // on a scale from 20 to -60
  contains(reward, "L500.2 87.5L");  // at the frame after the step: 6,002 of 12,000
  contains(reward, ">-60</span>");
  contains(page.data, "stood for 600.00 s");
  assert_true(page.len < 1 << 20);
  brim_str_deinit(&page);
  brim_trajectory_deinit(&t);
}

// The cost of a fall in the last step does not set the scale of all other steps.
static void test_fall_cost(void **state) {
  (void)state;
  brim_trajectory t;
  brim_str page;
  make_episode(&t, "falls", 60, true);
  t.reward[58] = -50;
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&replay_options, &t, 1, &page));
  const char *reward = strstr(page.data, "data-key=\"reward\"");
  assert_non_null(reward);
  lacks(reward, "top:100.0%\">-");
  contains(reward, " 100.0\" />");  // the line ends at the lower edge
  brim_str_deinit(&page);
  brim_trajectory_deinit(&t);
}

// A single state: no time passes, and nothing is divided by it.
static void test_short(void **state) {
  (void)state;
  brim_trajectory t;
  brim_str page;
  make_episode(&t, "</script><b>", 1, false);
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&replay_options, &t, 1, &page));
  contains(page.data, "stood for 0.00 s");
  lacks(page.data, "</script><b>");
  contains(page.data, "\\u003c/script>\\u003cb>");
  lacks(page.data, "nan%");
  lacks(page.data, "inf%");
  brim_str_deinit(&page);
  brim_str_init(&page);
  assert_status(brim_ui_replay(&replay_options, &t, 0, &page), BRIM_EINVAL);
  assert_status(brim_ui_replay(&replay_options, &t, BRIM_UI_MAX_REPLAYS + 1, &page), BRIM_EINVAL);
  brim_scene other = *t.scene;
  const brim_scene *own = t.scene;
  other.kind = "unknown";
  t.scene = &other;
  assert_status(brim_ui_replay(&replay_options, &t, 1, &page), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "no picture for scenes of kind unknown"));
  // every part and number of a scene that the picture needs: without one of them it is left out
  other = *own;
  other.parts[1].key = "other";
  assert_status(brim_ui_replay(&replay_options, &t, 1, &page), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "'pushes'"));
  other.kind = "cartpole";
  other.parts[0].key = "state";
  other.number_count = 0;
  assert_status(brim_ui_replay(&replay_options, &t, 1, &page), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "'far'"));
  t.scene = own;
  t.frames = 0;
  assert_status(brim_ui_replay(&replay_options, &t, 1, &page), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "there is no state"));
  brim_str_deinit(&page);
  brim_trajectory_deinit(&t);
}

static void test_korean(void **state) {
  (void)state;
  brim_str page;
  brim_msg_set_language("ko");
  make_page(101, 2, false, &page);
  brim_msg_set_language("en");
  contains(page.data, "<html lang=\"ko\">");
  contains(page.data, "5.00초 동안 서 있음");
  contains(page.data, "1.65초에 넘어짐");
  contains(page.data, "\"play\":\"재생\"");
  contains(page.data, "높이, m");
  brim_str_deinit(&page);
}

static void test_memory(void **state) {
  (void)state;
  brim_trajectory t;
  make_episode(&t, "policy", 30, false);
  for (uint64_t n = 1; n < 400; n++) {
    brim_str page;
    brim_str_init(&page);
    brim_alloc_fail_nth(n, false);
    brim_status status = brim_ui_replay(&replay_options, &t, 1, &page);
    brim_alloc_fail_nth(0, false);
    brim_str_deinit(&page);
    if (!status) {
      assert_true(n > 10);
      brim_trajectory_deinit(&t);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("it never got through");
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_content),        cmocka_unit_test(test_pictures),
      cmocka_unit_test(test_episodes),       cmocka_unit_test(test_beside),
      cmocka_unit_test(test_alone),          cmocka_unit_test(test_walk),
      cmocka_unit_test(test_self_contained), cmocka_unit_test(test_long),
      cmocka_unit_test(test_short),          cmocka_unit_test(test_fall_cost),
      cmocka_unit_test(test_korean),         cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
