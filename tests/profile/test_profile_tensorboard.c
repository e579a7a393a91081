// Event files against published checksums and bytes, and read back by an independent reader. With a folder as argument
// it writes one there for read_events.py.
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "profile/profile_tensorboard.h"
#include "test.h"

//---------------------------------- a reader ----------------------------------

typedef struct scalar {
  char tag[32];
  int64_t step;
  float value;
} scalar;

typedef struct reading {
  scalar items[64];
  int count, files, restarts;
  int64_t restart_step;
} reading;

static uint64_t little(const unsigned char *p, int n) {
  uint64_t v = 0;
  for (int i = n; i > 0; i--) v = v << 8 | p[i - 1];
  return v;
}

static uint64_t varint(const unsigned char **p) {
  uint64_t v = 0;
  int shift = 0;
  do {
    v |= (uint64_t)(**p & 127) << shift;
    shift += 7;
  } while (*(*p)++ & 128);
  return v;
}

// Bit by bit from the polynomial, unlike the tested code.
static uint32_t slow_crc(const unsigned char *p, size_t n) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; i++) {
    crc ^= p[i];
    for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void read_value(const unsigned char *p, const unsigned char *end, scalar *out) {
  assert_int_equal(*p++, 1 << 3 | 2);  // Summary.value
  uint64_t size_of_summary = varint(&p);
  assert_int_equal(size_of_summary, end - p);
  assert_int_equal(*p++, 1 << 3 | 2);  // tag
  size_t n = (size_t)varint(&p);
  assert_true(n < sizeof out->tag);
  memcpy(out->tag, p, n);
  out->tag[n] = 0;
  p += n;
  assert_int_equal(*p++, 2 << 3 | 5);  // simple_value
  uint32_t bits = (uint32_t)little(p, 4);
  memcpy(&out->value, &bits, sizeof bits);
  assert_ptr_equal(p + 4, end);
}

static void read_event(const unsigned char *p, size_t size, bool first, reading *r) {
  const unsigned char *end = p + size;
  assert_int_equal(*p, 1 << 3 | 1);  // wall_time
  uint64_t bits = little(p + 1, 8);
  double wall;
  memcpy(&wall, &bits, sizeof wall);
  assert_true(wall > 1.6e9);
  p += 9;
  if (first) {
    assert_int_equal(end - p, 15);
    assert_memory_equal(p,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    return;
  }
  assert_int_equal(*p++, 2 << 3);  // step
  int64_t step = (int64_t)varint(&p);
  if (*p == (7 << 3 | 2)) {  // session_log, START
    assert_memory_equal(p, "\x3a\x02\x08\x01", 4);
    r->restarts++;
    r->restart_step = step;
    return;
  }
  assert_int_equal(*p++, 5 << 3 | 2);
  uint64_t size_of_summary = varint(&p);
  assert_int_equal(size_of_summary, end - p);
  assert_true(r->count < 64);
  scalar *s = &r->items[r->count++];
  s->step = step;
  read_value(p, end, s);
}

static void read_folder(const char *folder, reading *r) {
  char **names;
  size_t count;
  memset(r, 0, sizeof *r);
  assert_ok(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count; i++) {
    if (!strstr(names[i], "tfevents")) continue;
    char *path = brim_fs_join(folder, names[i]), *data = NULL;
    size_t size, at = 0;
    assert_ok(brim_fs_read(path, 0, &data, &size));
    const unsigned char *p = (const unsigned char *)data;
    while (at < size) {
      assert_true(size - at >= 16);
      uint64_t n = little(p + at, 8);
      assert_int_equal(little(p + at + 8, 4), slow_crc(p + at, 8));
      assert_true(n <= size - at - 16);
      assert_int_equal(little(p + at + 12 + n, 4), slow_crc(p + at + 12, n));
      read_event(p + at + 12, n, at == 0, r);
      at += n + 16;
    }
    r->files++;
    brim_free(data);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
}

static void fresh(const char *folder) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
  assert_ok(brim_fs_mkdirs(folder));
}

//---------------------------------- tests ----------------------------------

// RFC 3720, B.4.
static void test_crc32c_vectors(void **state) {
  (void)state;
  unsigned char b[32];
  assert_int_equal(brim_crc32c("", 0), 0);
  assert_int_equal(brim_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(brim_crc32c_masked("123456789", 9), 0xc78ab0e5);
  memset(b, 0, sizeof b);
  assert_int_equal(brim_crc32c(b, 32), 0x8a9136aa);
  memset(b, 0xff, sizeof b);
  assert_int_equal(brim_crc32c(b, 32), 0x62a8ab43);
  for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
  assert_int_equal(brim_crc32c(b, 32), 0x46dd794e);
  for (int i = 0; i < 32; i++) b[i] = (unsigned char)(31 - i);
  assert_int_equal(brim_crc32c(b, 32), 0x113fdb5c);
}

static void hex(const brim_str *s, char *out) {
  for (size_t i = 0; i < s->len; i++) sprintf(out + 2 * i, "%02x", (unsigned char)s->data[i]);
}

static void test_known_bytes(void **state) {
  (void)state;
  char text[256];
  brim_str s;
  brim_str_init(&s);
  brim_tensorboard_put_version(&s, 1700000000.0);
  hex(&s, text);
  assert_string_equal(
      text, "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
  brim_str_clear(&s);
  brim_tensorboard_put_scalar(&s, 1700000000.0, 1, "a", 1.5f);
  hex(&s, text);
  assert_string_equal(
      text, "1700000000000000e7cef81e0900000040fc54d94110012a0a0a080a0161150000c03f6f1c9810");
  assert_ok(brim_str_status(&s));
  brim_str_deinit(&s);
}

static void write_steps(const char *folder, int64_t start, uint64_t rotate, int64_t first,
                        int64_t last) {
  brim_tensorboard *t;
  assert_ok(brim_tensorboard_open(folder, start, rotate, &t));
  for (int64_t step = first; step <= last; step += 100) {
    assert_ok(brim_tensorboard_scalar(t, "loss", step, 1.0 / (double)step));
    assert_ok(brim_tensorboard_scalar(t, "lr", step, 0.5));
    assert_ok(brim_tensorboard_flush(t));
  }
  brim_tensorboard_close(t);
}

static void assert_steps(const char *folder, int64_t last, int files, int restarts) {
  reading r;
  read_folder(folder, &r);
  assert_int_equal(r.count, last / 100 * 2);
  for (int i = 0; i < r.count; i++) {
    int64_t step = (i / 2 + 1) * 100;
    assert_int_equal(r.items[i].step, step);
    assert_string_equal(r.items[i].tag, i % 2 ? "lr" : "loss");
    assert_true(r.items[i].value == (i % 2 ? 0.5f : (float)(1.0 / (double)step)));
  }
  assert_int_equal(r.files, files);
  assert_int_equal(r.restarts, restarts);
}

static void test_written_and_read(void **state) {
  (void)state;
  fresh("plain");
  brim_tensorboard *t;
  assert_ok(brim_tensorboard_open("plain", 0, 0, &t));
  reading r;
  read_folder("plain", &r);
  assert_int_equal(r.files, 0);  // a run without scalars leaves no file
  assert_ok(brim_tensorboard_scalar(t, "loss", 5, (double)NAN));
  assert_ok(brim_tensorboard_scalar(t, "loss", (int64_t)1 << 40, 0.25));
  assert_ok(brim_tensorboard_flush(t));
  read_folder("plain", &r);  // while it is open, as a live reader sees it
  assert_int_equal(r.count, 2);
  assert_true(isnan(r.items[0].value));
  assert_int_equal(r.items[1].step, (int64_t)1 << 40);
  brim_tensorboard_close(t);
  fresh("steps");
  write_steps("steps", 0, 0, 100, 1000);
  assert_steps("steps", 1000, 1, 0);
}

// Steps after the checkpoint appear once, and a reader that saw them is notified.
static void test_resumed(void **state) {
  (void)state;
  fresh("cut");
  write_steps("cut", 0, 0, 100, 700);
  write_steps("cut", 450, 0, 500, 1000);
  assert_steps("cut", 1000, 2, 1);
  reading r;
  read_folder("cut", &r);
  assert_int_equal(r.restart_step, 451);
  // nothing to drop: the last file continues
  write_steps("cut", 1000, 0, 1100, 1200);
  assert_steps("cut", 1200, 2, 1);
  // from the start: earlier files are removed
  write_steps("cut", 0, 0, 100, 300);
  assert_steps("cut", 300, 1, 1);
}

static void test_torn_tail(void **state) {
  (void)state;
  fresh("torn");
  write_steps("torn", 0, 0, 100, 500);
  char **names;
  size_t count;
  assert_ok(brim_fs_list("torn", &names, &count));
  assert_int_equal(count, 1);
  char *path = brim_fs_join("torn", names[0]);
  uint64_t size;
  assert_ok(brim_fs_size(path, &size));
  assert_int_equal(truncate(path, (off_t)size - 7), 0);  // half of the last record
  brim_fs_list_free(names, count);
  brim_free(path);
  brim_tensorboard *t;
  assert_ok(brim_tensorboard_open("torn", 500, 0, &t));
  assert_ok(brim_tensorboard_scalar(t, "lr", 500, 0.5));
  assert_ok(brim_tensorboard_flush(t));
  brim_tensorboard_close(t);
  assert_steps("torn", 500, 1, 0);
}

// Files of other programs in the folder are not truncated.
static void test_files_of_others_stay(void **state) {
  (void)state;
  fresh("others");
  assert_ok(brim_fs_write("others/events.out.tfevents.17.other", "x", 1));
  write_steps("others", 0, 0, 100, 200);
  write_steps("others", 0, 0, 100, 200);
  uint64_t size;
  assert_ok(brim_fs_size("others/events.out.tfevents.17.other", &size));
  assert_int_equal(size, 1);
}

static void test_rotation(void **state) {
  (void)state;
  fresh("many");
  write_steps("many", 0, 300, 100, 1000);
  reading r;
  read_folder("many", &r);
  assert_true(r.files > 2);
  assert_steps("many", 1000, r.files, 0);
  int files = r.files;
  write_steps("many", 1000, 300, 1100, 1500);
  read_folder("many", &r);
  assert_true(r.files > files);
  assert_steps("many", 1500, r.files, 0);
  write_steps("many", 250, 300, 300, 1200);  // removes whole files
  read_folder("many", &r);
  assert_steps("many", 1200, r.files, 1);
}

static int write_for_python(const char *folder) {
  brim_tensorboard *t;
  if (brim_tensorboard_open(folder, 0, 400, &t)) return 1;
  for (int step = 0; step < 20; step++) {
    double value = sin(step * 0.7) * 3;
    if (brim_tensorboard_scalar(t, step % 2 ? "val_loss" : "loss", step * 1000, value)) return 1;
    printf("%s %d %.6g\n", step % 2 ? "val_loss" : "loss", step * 1000, (double)(float)value);
    if (brim_tensorboard_flush(t)) return 1;
  }
  brim_tensorboard_close(t);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return write_for_python(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc32c_vectors),   cmocka_unit_test(test_known_bytes),
      cmocka_unit_test(test_written_and_read), cmocka_unit_test(test_resumed),
      cmocka_unit_test(test_torn_tail),        cmocka_unit_test(test_files_of_others_stay),
      cmocka_unit_test(test_rotation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
