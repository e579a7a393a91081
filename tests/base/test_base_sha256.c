// SHA-256 against the vectors of FIPS 180-4 and the NIST examples, at once and in pieces.
#include "base/base_sha256.h"

#include "test.h"

static void vector(const char *text, const char *expected) {
  char hex[BRIM_SHA256_HEX];
  brim_sha256_hex(text, strlen(text), hex);
  assert_string_equal(hex, expected);
}

static void nist_vectors(void **state) {
  (void)state;
  vector("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  vector("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  vector("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  vector(
      "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
      "lmnopqrsmnopqrstnopqrstu",
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

static void million_a_in_pieces(void **state) {
  (void)state;
  brim_sha256 h;
  uint8_t digest[BRIM_SHA256_BYTES];
  char hex[BRIM_SHA256_HEX], block[997];
  memset(block, 'a', sizeof block);
  brim_sha256_init(&h);
  for (size_t left = 1000000; left;) {
    size_t n = left < sizeof block ? left : sizeof block;
    brim_sha256_update(&h, block, n);
    left -= n;
  }
  brim_sha256_final(&h, digest);
  brim_sha256_format(digest, hex);
  assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void every_split_is_the_same(void **state) {
  (void)state;
  char text[150], whole[BRIM_SHA256_HEX], hex[BRIM_SHA256_HEX];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
  brim_sha256_hex(text, sizeof text, whole);
  for (size_t cut = 0; cut <= sizeof text; cut++) {
    brim_sha256 h;
    uint8_t digest[BRIM_SHA256_BYTES];
    brim_sha256_init(&h);
    brim_sha256_update(&h, text, cut);
    brim_sha256_update(&h, text + cut, sizeof text - cut);
    brim_sha256_final(&h, digest);
    brim_sha256_format(digest, hex);
    assert_string_equal(hex, whole);
  }
}

// The CPU's instructions against plain C, for one block and for many.
static void both_ways_are_the_same(void **state) {
  (void)state;
  uint8_t data[64 * 9];
  uint32_t x = 1;
  for (size_t i = 0; i < sizeof data; i++)
    data[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
  for (size_t blocks = 0; blocks <= 9; blocks++) {
    brim_sha256 plain, fast;
    brim_sha256_init(&plain);
    brim_sha256_init(&fast);
    if (!brim_sha256_fast(fast.state, data, blocks))
      BRIM_SKIP("this CPU has no instructions for it");
    brim_sha256_plain(plain.state, data, blocks);
    assert_memory_equal(plain.state, fast.state, sizeof plain.state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nist_vectors),
      cmocka_unit_test(both_ways_are_the_same),
      cmocka_unit_test(million_a_in_pieces),
      cmocka_unit_test(every_split_is_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
