// The catalogue: translations, missing ones, failures and logs; and stored sentences in every language.
#include "base/base_msg.h"

#include "base/base_status.h"
#include "base/base_words.h"
#include "test.h"

static const brim_msg_pair korean[] = {
    {"cannot open %s: %s", "%s: 열 수 없음: %s"},
    {"kept", NULL},
    {"warning", "경고"},
};

static void falls_back_to_english(void **state) {
  (void)state;
  assert_string_equal(brim_tr("warning"), "warning");
  brim_msg_set_catalogue(korean, 3);
  assert_string_equal(brim_tr("warning"), "경고");
  assert_string_equal(brim_tr("unknown text"), "unknown text");
  assert_string_equal(brim_tr("kept"), "kept");
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(brim_tr("warning"), "warning");
}

static void failures_are_translated(void **state) {
  (void)state;
  brim_msg_set_catalogue(korean, 3);
  brim_fail(BRIM_EIO, "cannot open %s: %s", "a", "b");
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(brim_status_detail(), "a: 열 수 없음: b");
}

static void marker_is_the_text(void **state) {
  (void)state;
  static const char *const table[] = {
      BRIM_N_("one "
              "two")};
  assert_string_equal(table[0], "one two");
}

//---------------------------------- stored sentences ----------------------------------

static const brim_msg_pair kept[] = {
    {"%s of %.1f %% (%d)", "%3$d: %2$.1f %%, %1$s이(가)"},
    {"; up to 5 %", "; 5 %까지"},
    {"computing", "계산"},
};
static const brim_msg_catalogue catalogue = {"ko", kept, 3};

static void reads(const brim_msg_catalogue *language, const char *words, const char *wanted) {
  brim_str text;
  brim_str_init(&text);
  brim_words_read_in(language, words, &text);
  assert_ok(brim_str_status(&text));
  assert_string_equal(text.data, wanted);
  brim_str_deinit(&text);
}

// Values that are messages themselves, reordered values, particles, texts without values.
static void sentences_are_read_in_every_language(void **state) {
  (void)state;
  char words[256] = "", stage[32] = "", text[64];
  brim_words_put(stage, sizeof stage, "computing");
  brim_words_add(words, sizeof words, "%s of %.1f %% (%d)", stage, 12.25, 7);
  brim_words_put(words, sizeof words, "; up to 5 %");
  brim_words_add(words, sizeof words, ", x -> %s", "y");
  assert_true(brim_words_are(words));
  char list[64] = "";
  brim_words_put_list(list, sizeof list, "computing, heat, computing");
  reads(NULL, list, "computing, heat, computing");
  reads(&catalogue, list, "계산, heat, 계산");
  reads(NULL, words, "computing of 12.2 % (7); up to 5 %, x -> y");
  reads(&catalogue, words, "7: 12.2 %, 계산이; 5 %까지, x -> y");
  brim_msg_set_catalogue(kept, 3);
  brim_words_text(words, text, sizeof text);
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(text, "7: 12.2 %, 계산이; 5 %까지, x -> y");
  assert_false(brim_words_are("plain, 5 % of %s"));
  reads(&catalogue, "plain, 5 % of %s", "plain, 5 % of %s");
}

// A sentence that repeats nested values gives a text of bounded length.
static void sentences_do_not_explode(void **state) {
  (void)state;
  brim_str words, text;
  brim_str_init(&words);
  brim_str_init(&text);
  brim_str_append(&words, "leaf");
  for (int level = 0; level < 4; level++) {
    brim_str more;
    brim_str_init(&more);
    brim_str_append_char(&more, '\x01');
    for (int i = 0; i < 36; i++) brim_str_append(&more, "%1$s");
    brim_str_append_char(&more, '\x02');
    brim_str_append_n(&more, words.data, words.len);
    brim_str_append_char(&more, '\x03');
    brim_str_deinit(&words);
    words = more;
  }
  brim_words_read_in(NULL, words.data, &text);
  assert_ok(brim_str_status(&text));
  assert_true(text.len < 65536);
  brim_str_deinit(&words);
  brim_str_deinit(&text);
}

// A short field cuts the sentence at a character boundary, and the rest is readable.
static void sentences_may_be_cut_off(void **state) {
  (void)state;
  char words[64];
  for (size_t size = 1; size <= sizeof words; size++) {
    words[0] = '\0';
    brim_words_add(words, size, "%s of %.1f %% (%d)", "가나다라", 12.25, 7);
    brim_words_put(words, size, "computing");
    assert_true(strlen(words) < size && brim_utf8_valid(words, strlen(words)));
    brim_str text;
    brim_str_init(&text);
    brim_words_read_in(&catalogue, words, &text);
    assert_true(brim_utf8_valid(text.data, text.len));
    for (size_t i = 0; i < text.len; i++) assert_true((unsigned char)text.data[i] >= ' ');
    brim_str_deinit(&text);
  }
}

// Texts from foreign files: marks out of order, missing values, formats as values, depth.
static void foreign_sentences_are_no_formats(void **state) {
  (void)state;
  char deep[4096] = "";
  reads(&catalogue, "\x01%s%n%9999d\x02%s%n\x03", "%s%n");
  reads(&catalogue, "\x01%s of %.1f %% (%d)\x02%n\x03", ":  %, %n이");
  reads(&catalogue, "\x01%s of %.1f %% (%d)", ":  %, 이(가)");
  reads(&catalogue,
        "\x03\x02"
        "a\x01\x01\x02",
        "a");
  reads(&catalogue,
        "\x01%8$s%0$s%-$\x02"
        "a\x03z",
        "z");
  for (int i = 0; i < 900; i++) strcat(deep, "\x01%s\x02");
  strcat(deep, "computing");
  reads(&catalogue, deep, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(falls_back_to_english),
      cmocka_unit_test(failures_are_translated),
      cmocka_unit_test(marker_is_the_text),
      cmocka_unit_test(sentences_are_read_in_every_language),
      cmocka_unit_test(sentences_may_be_cut_off),
      cmocka_unit_test(sentences_do_not_explode),
      cmocka_unit_test(foreign_sentences_are_no_formats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
