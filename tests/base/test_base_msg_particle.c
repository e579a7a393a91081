// Korean particles: the form depends on how the word before is read; unknown words keep both forms.
#include <stdio.h>
#include <string.h>

#include "base/base_log.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "test.h"

static void expect(const char *text, const char *wanted) {
  char buffer[256];
  snprintf(buffer, sizeof buffer, "%s", text);
  assert_int_equal(brim_msg_particles(buffer, 0), strlen(wanted));
  assert_string_equal(buffer, wanted);
}

static void numbers(void **state) {
  (void)state;
  expect("64(으)로 100(으)로 7(으)로 0(으)로", "64로 100으로 7로 0으로");
  expect("1이(가) 2이(가) 3이(가) 10이(가)", "1이 2가 3이 10이");
  expect("gcc 12.2.0(으)로 빌드됨", "gcc 12.2.0으로 빌드됨");
  expect("123.4 MiB이(가) 3.2 ms을(를) 5 GB/s은(는) 80 %은(는)",
         "123.4 MiB가 3.2 ms를 5 GB/s는 80 %는");
}

static void words(void **state) {
  (void)state;
  expect("data.val_fraction이(가)", "data.val_fraction이");
  expect("batch_size은(는) training.epochs을(를)", "batch_size는 training.epochs를");
  expect("lr은(는) GPU이(가) JSON을(를) png(으)로 model(으)로", "lr은 GPU가 JSON을 png로 model로");
  expect("float이(가) float(으)로 dataset을(를) output은(는)",
         "float가 float로 dataset을 output은");
  expect("'mlp'이(가) hdf5(inputs=x, f(y))을(를)", "'mlp'가 hdf5(inputs=x, f(y))를");
  expect("샘플(으)로 바이트을(를) 값과(와) 수와(과)", "샘플로 바이트를 값과 수와");
}

static void both_stay_where_the_sound_is_unknown(void **state) {
  (void)state;
  expect("gadget은(는)", "gadget은(는)");
  expect("이(가)", "이(가)");
  expect("data/이(가)", "data/이(가)");
  expect("no particle (here)", "no particle (here)");
  expect("", "");
}

static void only_messages_with_one_are_changed(void **state) {
  (void)state;
  assert_true(brim_msg_has_particle("%s이(가)"));
  assert_true(brim_msg_has_particle("%d(으)로"));
  assert_false(brim_msg_has_particle("%s (가)"));
  brim_str s;
  brim_str_init(&s);
  brim_str_printf(&s, "%s ", "파일이(가)");
  assert_string_equal(s.data, "파일이(가) ");
  brim_str_printf(&s, "%d이(가) %s", 5, "끝");
  assert_string_equal(s.data, "파일이(가) 5가 끝");
  assert_int_equal(s.len, strlen(s.data));
  brim_str_deinit(&s);
}

static void keep_line(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)level;
  (void)module;
  snprintf(ctx, 128, "%s", text);
}

static void failures_and_the_log_choose(void **state) {
  (void)state;
  static const brim_msg_pair korean[] = {{"%s is missing", "%s이(가) 없습니다"}};
  char line[128] = "";
  brim_msg_set_catalogue(korean, 1);
  brim_fail(BRIM_EINVAL, "%s is missing", "model");
  assert_string_equal(brim_status_detail(), "model이 없습니다");
  brim_log_set_sink(keep_line, line, BRIM_LOG_INFO);
  brim_log_warn("test", "%s is missing", "data");
  brim_log_set_sink(NULL, NULL, BRIM_LOG_INFO);
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(line, "data가 없습니다");
}

// Texts of a fixed size: those of findings, warnings and tables.
static void fixed_texts_choose(void **state) {
  (void)state;
  char out[32] = "kept";
  assert_int_equal(brim_msg_format(out, sizeof out, "%s을(를) %d(으)로", "model", 64),
                   strlen("model을 64로"));
  assert_string_equal(out, "model을 64로");
  // data that look like a particle stay if the message has none there
  brim_msg_format(out, sizeof out, "%s", "a이(가)");
  assert_string_equal(out, "a이(가)");
  assert_int_equal(brim_msg_format(out, 4, "%s", "abcdef"), 3);
  assert_string_equal(out, "abc");
  assert_int_equal(brim_msg_format(out, 0, "%s", "x"), 0);
  assert_string_equal(out, "abc");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),
      cmocka_unit_test(words),
      cmocka_unit_test(both_stay_where_the_sound_is_unknown),
      cmocka_unit_test(only_messages_with_one_are_changed),
      cmocka_unit_test(failures_and_the_log_choose),
      cmocka_unit_test(fixed_texts_choose),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
