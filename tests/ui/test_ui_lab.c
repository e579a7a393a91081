// The page of a store: its parts without a script, texts that must not become HTML, the form of numbers, a store of
// 10,000 experiments, and memory that runs out.
#include "lab_experiments.h"
#include "ui/sweep/ui_sweep_int.h"

static const brim_ui_lab_options options = {.title = "rates <1>",
                                            .place = "runs/rates",
                                            .command = "brim report runs/rates",
                                            .now_s = 1790000100};

static void make_page(brim_str *page) {
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_experiments(&set);
  brim_str_init(page);
  assert_ok(brim_ui_lab_report(&options, set, page));
  brim_lab_reader_destroy(reader);
}

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in the page", part);
}

static void contains_not(const char *text, const char *part) {
  const char *at = strstr(text, part);
  if (at) fail_msg("'%s' is in the page: %.80s", part, at);
}

// The page's JSON; free it with json_decref.
static json_t *data_of(const char *page) {
  static const char begin[] = "<script type=\"application/json\" id=\"data\">";
  const char *from = strstr(page, begin);
  assert_non_null(from);
  from += strlen(begin);
  const char *end = strstr(from, "</script>");
  assert_non_null(end);
  json_t *value = NULL;
  assert_ok(brim_json_parse(from, (size_t)(end - from), "data", &value));
  return value;
}

static void test_content(void **state) {
  (void)state;
  brim_str page;
  make_page(&page);
  contains(page.data, "<h1>rates &lt;1&gt;</h1>");
  contains(page.data, "<span>36 experiments</span>");
  contains(page.data, "begun 2026-09-21 14:13 UTC");
  contains(page.data, "as of 2026-09-21 14:15 UTC");
  contains(page.data, "<b>32</b> done");
  contains(page.data, "<b>3</b> failed");
  contains(page.data, "<b>1</b> running");
  // last values of 0.95, 0.946 and 0.954 times the height after 20 epochs
  contains(page.data, "learning_rate <b>0.01</b>");
  contains(page.data, "<dt>val acc, last value of a run</dt><dd>94.36 \xc2\xb1 0.40 %</dd>");
  contains(page.data, "<dt>mean, 95 % interval</dt><dd>93.37 \xe2\x80\x93 95.35 %</dd>");
  contains(page.data, "<th>val acc, last</th>");
  contains_not(page.data, "<th>eval_accuracy");
  contains(page.data, "Certainly better than each of the 10 other settings");
  contains(page.data, "<b>3 \xc3\x97</b> the loss is nan &lt;b&gt;&amp;");
  contains(page.data, "<code>brim sweep rerun-failed runs/rates</code>");
  contains(page.data, "href=\"#exp=0000101b0000\"");
  contains(page.data, "<td class=\"s-running\">running</td>");
  contains(page.data, "<th title=\"training.learning_rate\">learning_rate</th>");
  // A setting that differs between experiments, and those that do not.
  contains(page.data,
           "<th scope=\"row\">data.batch_size</th><td><span class=\"value\"><b>32</b> "
           "\xc3\x97"
           "12</span>");
  contains(page.data, "<dt>training.epochs</dt><dd>20</dd>");
  contains_not(page.data, "<dt>optimizer.lr</dt>");
  contains(page.data, "36 experiments, submitted 2026-09-21 14:13 UTC by brim 0.1.0");
  brim_str_deinit(&page);
}

static void test_texts_stay_texts(void **state) {
  (void)state;
  brim_str page;
  make_page(&page);
  contains_not(page.data, "<cnn>");
  contains_not(page.data, "nan <b>");
  contains_not(page.data, "<script>alert");
  contains_not(page.data, "http://");
  contains_not(page.data, "https://");
  contains(page.data, "loss nan &lt;/pre&gt;&lt;script&gt;alert(1)");
  json_t *data = data_of(page.data);
  const json_t *more = json_object_get(json_object_get(data, "details"), "27");
  assert_string_equal(json_string_value(json_object_get(more, "lines")),
                      "epoch 3\nloss nan </pre><script>alert(1)");
  json_decref(data);
  brim_str_deinit(&page);
}

static void test_data(void **state) {
  (void)state;
  brim_str page;
  make_page(&page);
  json_t *data = data_of(page.data);
  assert_int_equal(json_integer_value(json_object_get(data, "count")), 36);
  assert_string_equal(json_string_value(json_object_get(data, "metric")), "eval_accuracy");
  assert_string_equal(json_string_value(json_object_get(data, "label")), "val acc");
  assert_int_equal(json_integer_value(json_object_get(data, "percent")), 2);
  assert_int_equal(json_integer_value(json_object_get(data, "better")), BRIM_BETTER_HIGHER);
  const json_t *keys = json_object_get(data, "keys");
  assert_int_equal(json_array_size(keys), 4);
  const json_t *batch = json_array_get(keys, 1), *values = json_object_get(batch, "values");
  // Values are sorted as numbers, not as text.
  assert_string_equal(json_string_value(json_array_get(values, 0)), "32");
  assert_string_equal(json_string_value(json_array_get(values, 2)), "512");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(batch, "of"), 4)), 1);
  assert_int_equal(json_array_size(json_object_get(data, "groups")), 12);
  const json_t *metrics = json_object_get(data, "metrics");
  assert_int_equal(json_array_size(metrics), 3);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(metrics, 0), "percent")), 2);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(metrics, 1), "percent")), -1);
  assert_string_equal(json_string_value(json_object_get(json_array_get(metrics, 2), "label")),
                      "lr");  // no workload declares this metric
  const json_t *curves = json_object_get(json_array_get(metrics, 0), "curves");
  assert_int_equal(json_array_size(curves), 36);
  const json_t *curve = json_array_get(curves, 0);
  assert_int_equal(json_array_size(curve), 2 + LAB_EPOCHS);
  const json_t *steps = json_array_get(json_object_get(data, "steps"), 0);
  assert_int_equal(json_array_size(steps), LAB_EPOCHS);
  assert_true(fabs(json_number_value(json_array_get(curve, 2)) - lab_accuracy(0, 0, 0, 0)) < 1e-5);
  json_decref(data);
  brim_str_deinit(&page);
}

static void test_numbers(void **state) {
  (void)state;
  char text[80];
  const struct {
    double mean, stddev;
    const char *text;
  } rows[] = {
      {0.91234, 0.0123, "0.912 \xc2\xb1 0.012"}, {812.4, 41.2, "812 \xc2\xb1 41"},
      {1234.5, 0.5, "1234.50 \xc2\xb1 0.50"},    {3, 0, "3.0000 \xc2\xb1 0.0000"},
      {5e9, 2e8, "5e+09 \xc2\xb1 2e+08"},        {2.5, (double)NAN, "2.5"},
      {1e-9, 2e-10, "1e-09 \xc2\xb1 2e-10"},     {(double)NAN, (double)NAN, "\xe2\x80\x93"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_ui_value_spread(NULL, rows[i].mean, rows[i].stddev, text);
    assert_string_equal(text, rows[i].text);
  }
}

static void test_metric_numbers(void **state) {
  (void)state;
  static const brim_sweep_metric percent = {.format = BRIM_METRIC_PERCENT, .digits = 1};
  static const double narrow[2] = {0.91, 0.9345678}, unknown[2] = {(double)NAN, (double)NAN};
  char text[112];
  brim_ui_value_spread(&percent, 0.91234, 0.0123, text);
  assert_string_equal(text, "91.2 \xc2\xb1 1.2 %");
  brim_ui_value_spread(&percent, 0.91234, (double)NAN, text);
  assert_string_equal(text, "91.2 %");
  brim_ui_value_range(&percent, narrow, 0.0123, text);
  assert_string_equal(text, "91.0 \xe2\x80\x93 93.5 %");
  // A value has as many digits as its deviation.
  brim_ui_value_range(NULL, narrow, 0.0123, text);
  assert_string_equal(text, "0.910 \xe2\x80\x93 0.935");
  brim_ui_value_range(NULL, unknown, (double)NAN, text);
  assert_string_equal(text, "\xe2\x80\x93");
  brim_ui_value_difference(&percent, 0.1, (const double[2]){0.0773, 0.1227}, text);
  assert_string_equal(text, "+10.0 [+7.7, +12.3] pp");
  brim_ui_value_difference(&percent, -0.1, unknown, text);
  assert_string_equal(text, "-10.0 pp");
  brim_ui_value_difference(NULL, 0.1, (const double[2]){0.0773, 0.1227}, text);
  assert_string_equal(text, "+0.1 [+0.0773, +0.123]");
  brim_ui_value_difference(&percent, (double)NAN, unknown, text);
  assert_string_equal(text, "-");
  brim_ui_value_or_dash(&percent, (double)NAN, text);
  assert_string_equal(text, "\xe2\x80\x93");
}

static void put_plain(brim_lab_reader *reader, int n, const char *metric) {
  char label[32];
  snprintf(label, sizeof label, "lr=%d", n);
  assert_ok(lab_line_add(reader, &(lab_line){.n = n, .label = label, .metric = metric}));
}

// One result for each setting: nothing is certain, and there are no groups.
static void test_one_seed(void **state) {
  (void)state;
  static const brim_lab_options how = {.metric = lab_metric};
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = NULL;
  brim_str page;
  assert_ok(brim_lab_reader_create(&how, &reader));
  put_plain(reader, 1, "0.5");
  put_plain(reader, 2, "0.9");
  assert_ok(brim_lab_reader_finish(reader, &set));
  brim_str_init(&page);
  assert_ok(brim_ui_lab_report(&options, set, &page));
  contains(page.data, "lr <b>2</b>");
  contains(page.data, "One result per setting does not show how far repetitions differ");
  contains_not(page.data, "Certainly better");
  contains_not(page.data, "id=\"groups\"");
  contains_not(page.data, "id=\"curves\"");
  contains_not(page.data, "id=\"failures\"");
  brim_str_deinit(&page);
  brim_lab_reader_destroy(reader);
}

// A grid without axes: its experiment has no label, and the page names the grid.
static void test_failure_without_axes(void **state) {
  (void)state;
  static const brim_lab_options how = {.metric = lab_metric};
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = NULL;
  brim_str page;
  assert_ok(brim_lab_reader_create(&how, &reader));
  assert_ok(lab_line_add(reader, &(lab_line){.n = 1, .state = "failed", .failure = "data"}));
  assert_ok(brim_lab_reader_finish(reader, &set));
  brim_str_init(&page);
  assert_ok(brim_ui_lab_report(&options, set, &page));
  contains(page.data, "</code></a> rates &lt;1&gt;</p>");
  brim_str_deinit(&page);
  brim_lab_reader_destroy(reader);
}

static void test_empty(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = NULL;
  brim_str page;
  assert_ok(brim_lab_reader_create(NULL, &reader));
  assert_ok(brim_lab_reader_finish(reader, &set));
  brim_str_init(&page);
  assert_ok(brim_ui_lab_report(&(brim_ui_lab_options){.title = "none"}, set, &page));
  contains(page.data, "There is no experiment in this store yet.");
  json_decref(data_of(page.data));
  brim_str_deinit(&page);
  brim_lab_reader_destroy(reader);
}

static void test_korean(void **state) {
  (void)state;
  brim_str page;
  brim_msg_set_language("ko");
  make_page(&page);
  brim_msg_set_language("en");
  contains(page.data, "<html lang=\"ko\">");
  contains(page.data, "가장 좋은 세팅");
  contains(page.data, "<b>3</b> 실패");
  contains(page.data, "\"mean\":\"그룹별 평균\"");
  brim_str_deinit(&page);
}

// The page stays small enough for a browser, whatever the number of experiments and curves.
static void test_ten_thousand(void **state) {
  (void)state;
  enum { EXPERIMENTS = 10000 };
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_many(EXPERIMENTS, 60, &set);
  brim_str page;
  brim_str_init(&page);
  assert_ok(brim_ui_lab_report(&options, set, &page));
  assert_int_equal(set->count, EXPERIMENTS);
  assert_true(page.len < (size_t)24 << 20);
  json_t *data = data_of(page.data);
  const json_t *first = json_array_get(json_object_get(data, "metrics"), 0);
  assert_int_equal(json_array_size(json_object_get(first, "curves")), EXPERIMENTS);
  json_decref(data);
  brim_str_deinit(&page);
  brim_lab_reader_destroy(reader);
}

static void test_memory(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_experiments(&set);
  for (uint64_t n = 1; n < 400; n++) {
    brim_str page;
    brim_str_init(&page);
    brim_alloc_fail_nth(n, false);
    brim_status status = brim_ui_lab_report(&options, set, &page);
    brim_alloc_fail_nth(0, false);
    brim_str_deinit(&page);
    if (!status) {
      assert_true(n > 10);
      brim_lab_reader_destroy(reader);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("it never got through");
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_content),        cmocka_unit_test(test_texts_stay_texts),
      cmocka_unit_test(test_data),           cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_metric_numbers), cmocka_unit_test(test_failure_without_axes),
      cmocka_unit_test(test_one_seed),       cmocka_unit_test(test_empty),
      cmocka_unit_test(test_korean),         cmocka_unit_test(test_ten_thousand),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
