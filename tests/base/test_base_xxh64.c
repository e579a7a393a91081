// XXH64 against values of the reference program (xxhsum), at once and in pieces.
#include "base/base_xxh64.h"

#include "test.h"

static uint64_t whole(const void *data, size_t size) {
  brim_xxh64 h;
  brim_xxh64_init(&h);
  brim_xxh64_update(&h, data, size);
  return brim_xxh64_value(&h);
}

static void known_values(void **state) {
  (void)state;
  assert_true(whole("", 0) == 0xef46db3751d8e999u);
  assert_true(whole("a", 1) == 0xd24ec4f1a98c6e5bu);
  assert_true(whole("abc", 3) == 0x44bc2cf5ad770999u);
  const char *text = "Nobody inspects the spammish repetition";  // more than a block
  assert_true(whole(text, strlen(text)) == 0xfbcea83c8a378bf1u);
}

static void every_split_is_the_same(void **state) {
  (void)state;
  char text[150];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
  for (size_t cut = 0; cut <= sizeof text; cut++) {
    brim_xxh64 h;
    brim_xxh64_init(&h);
    brim_xxh64_update(&h, text, cut);
    assert_true(brim_xxh64_value(&h) == whole(text, cut));  // reading the value changes nothing
    brim_xxh64_update(&h, text + cut, sizeof text - cut);
    assert_true(brim_xxh64_value(&h) == whole(text, sizeof text));
  }
}

// One flipped bit anywhere gives another value, which is the purpose of the hash.
static void every_bit_counts(void **state) {
  (void)state;
  uint8_t bytes[77];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
  uint64_t good = whole(bytes, sizeof bytes);
  for (size_t i = 0; i < 8 * sizeof bytes; i++) {
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    assert_true(whole(bytes, sizeof bytes) != good);
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
  }
  assert_true(whole(bytes, sizeof bytes - 1) != good);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_values),
      cmocka_unit_test(every_split_is_the_same),
      cmocka_unit_test(every_bit_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
