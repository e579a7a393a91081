// Several networks in one checkpoint (brim_net_entries_*): each with the bytes of brim_net_save behind its prefix,
// beside entries of the caller. Reading restores every bit, and a file that does not fit changes nothing.
#include "engine_test.h"
#include "same_file.h"

enum { PAIR = 2, MOST = 128 };
static const char *const prefixes[PAIR] = {"one.", "two."};

static void pair_spec(test_spec *t, int index) {
  test_spec_init(t);
  test_component_string(&t->model, "norm", "layer");
  test_component_int(&t->model, "hidden", index ? 9 : 7);
  test_component_init(&t->optimizer, "adamw");
  t->spec.seed = (uint64_t)(index + 1);
}

static void steps(brim_net *net, const test_spec *t, int64_t from, int64_t to) {
  test_batch b;
  test_batch_make(&t->spec, t->spec.batch, 3, &b);
  for (int64_t s = from; s <= to; s++) test_step(net, &t->spec, &b, 1, s, 0.05);
  test_batch_free(&b);
}

typedef struct pair {
  brim_device *device;
  test_spec t[PAIR];
  brim_net *net[PAIR];
} pair;

static void pair_open(pair *p, int64_t trained) {
  memset(p, 0, sizeof *p);
  p->device = test_device_ref();
  for (int i = 0; i < PAIR; i++) {
    pair_spec(&p->t[i], i);
    assert_ok(brim_net_create(p->device, &p->t[i].spec, &p->net[i]));
    if (trained) steps(p->net[i], &p->t[i], 1, trained);
  }
}

static void pair_close(pair *p) {
  for (int i = 0; i < PAIR; i++) brim_net_destroy(p->net[i]);
  test_device_close(p->device);
}

// Writes both networks, and an entry of the caller.
static void write_pair(brim_net_entries *const copy[PAIR], const char *path) {
  static const double mine[2] = {0.5, 7};
  brim_safetensors_entry all[MOST];
  size_t n = 0;
  all[n++] = (brim_safetensors_entry){"mine", BRIM_F64, 1, {2}, mine, sizeof mine};
  for (int wide = 1; wide >= 0; wide--) {
    for (int i = 0; i < PAIR; i++) {
      const brim_safetensors_entry *e;
      for (size_t k = 0; (e = brim_net_entries_at(copy[i], k)); k++) {
        assert_true(n < MOST);
        if ((brim_dtype_size(e->dtype) > 4) == (wide == 1)) all[n++] = *e;
      }
    }
  }
  brim_json_setup();
  json_t *meta = json_object();
  assert_ok(brim_safetensors_write(path, all, n, meta));
  json_decref(meta);
}

static void save_pair(pair *p, bool weights_only, const char *path) {
  brim_net_entries *copy[PAIR] = {NULL};
  for (int i = 0; i < PAIR; i++) {
    assert_ok(brim_net_entries_copy(p->net[i], prefixes[i], weights_only, &copy[i]));
  }
  write_pair(copy, path);
  for (int i = 0; i < PAIR; i++) brim_net_entries_free(copy[i]);
}

static brim_net_part part_of(const brim_safetensors *file, int index, bool weights_only) {
  return (brim_net_part){
      .path = "pair", .file = file, .prefix = prefixes[index], .weights_only = weights_only};
}

// Every entry of a network's own checkpoint is in the file, behind the prefix, with the same bytes.
static void test_names(void **state) {
  (void)state;
  for (int weights_only = 0; weights_only < 2; weights_only++) {
    pair p;
    brim_safetensors *both, *alone;
    size_t sum = 1;
    pair_open(&p, 3);
    save_pair(&p, weights_only, "names.safetensors");
    assert_ok(brim_safetensors_open("names.safetensors", &both));
    for (int i = 0; i < PAIR; i++) {
      assert_ok(brim_net_save(p.net[i], "alone.safetensors", NULL, weights_only));
      assert_ok(brim_safetensors_open("alone.safetensors", &alone));
      for (size_t k = 0; k < brim_safetensors_count(alone); k++) {
        const brim_safetensors_entry *a = brim_safetensors_at(alone, k);
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefixes[i], a->name);
        const brim_safetensors_entry *b = brim_safetensors_find(both, name);
        if (!b) fail_msg("no %s", name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
        if (weights_only) assert_null(strstr(name, "optimizer"));
      }
      sum += brim_safetensors_count(alone);
      brim_safetensors_close(alone);
    }
    assert_int_equal(brim_safetensors_count(both), sum);
    assert_non_null(brim_safetensors_find(both, "mine"));
    brim_safetensors_close(both);
    pair_close(&p);
  }
}

// A copy keeps the state of its making; other networks that load it continue the training to the same bits.
static void test_taken(void **state) {
  (void)state;
  pair p, q;
  brim_net_entries *copy[PAIR] = {NULL};
  brim_safetensors *file;
  pair_open(&p, 3);
  for (int i = 0; i < PAIR; i++) {
    assert_ok(brim_net_entries_copy(p.net[i], prefixes[i], false, &copy[i]));
  }
  for (int i = 0; i < PAIR; i++) steps(p.net[i], &p.t[i], 4, 6);
  write_pair(copy, "taken.safetensors");
  for (int i = 0; i < PAIR; i++) brim_net_entries_free(copy[i]);
  pair_open(&q, 0);
  assert_ok(brim_safetensors_open("taken.safetensors", &file));
  for (int i = 0; i < PAIR; i++) {
    const brim_net_part part = part_of(file, i, false);
    assert_ok(brim_net_entries_check(q.net[i], &part));
    assert_ok(brim_net_entries_take(q.net[i], &part));
  }
  brim_safetensors_close(file);
  for (int i = 0; i < PAIR; i++) {
    steps(q.net[i], &q.t[i], 4, 6);
    assert_ok(brim_net_save(p.net[i], "p.safetensors", NULL, false));
    assert_ok(brim_net_save(q.net[i], "q.safetensors", NULL, false));
    assert_same_file("p.safetensors", "q.safetensors");
  }
  pair_close(&p);
  pair_close(&q);
}

// Weights alone: loading them keeps the network's own optimizer state.
static void test_weights_only(void **state) {
  (void)state;
  pair p, q;
  brim_safetensors *file, *was, *is;
  pair_open(&p, 3);
  pair_open(&q, 2);
  save_pair(&p, false, "whole.safetensors");
  assert_ok(brim_net_save(q.net[0], "was.safetensors", NULL, false));
  assert_ok(brim_safetensors_open("whole.safetensors", &file));
  const brim_net_part part = part_of(file, 0, true);
  assert_ok(brim_net_entries_take(q.net[0], &part));
  brim_safetensors_close(file);
  assert_ok(brim_net_save(q.net[0], "is.safetensors", NULL, false));
  assert_ok(brim_net_save(p.net[0], "other.safetensors", NULL, false));
  assert_ok(brim_safetensors_open("was.safetensors", &was));
  assert_ok(brim_safetensors_open("is.safetensors", &is));
  assert_ok(brim_safetensors_open("other.safetensors", &file));
  for (size_t k = 0; k < brim_safetensors_count(is); k++) {
    const brim_safetensors_entry *e = brim_safetensors_at(is, k);
    const bool optimizer = strncmp(e->name, "optimizer", 9) == 0;
    const brim_safetensors_entry *of = brim_safetensors_find(optimizer ? was : file, e->name);
    assert_non_null(of);
    assert_memory_equal(e->data, of->data, e->bytes);
  }
  brim_safetensors_close(was);
  brim_safetensors_close(is);
  brim_safetensors_close(file);
  pair_close(&p);
  pair_close(&q);
}

static void refused(pair *p, int net, const brim_net_part *part, const char *words) {
  assert_ok(brim_net_save(p->net[net], "before.safetensors", NULL, false));
  for (int take = 0; take < 2; take++) {
    const brim_status status =
        take ? brim_net_entries_take(p->net[net], part) : brim_net_entries_check(p->net[net], part);
    assert_int_equal(status, BRIM_EINVAL);
    if (!strstr(brim_status_detail(), words)) fail_msg("%s", brim_status_detail());
  }
  assert_ok(brim_net_save(p->net[net], "after.safetensors", NULL, false));
  assert_same_file("before.safetensors", "after.safetensors");
}

static void test_refused(void **state) {
  (void)state;
  pair p;
  brim_safetensors *file;
  pair_open(&p, 2);
  save_pair(&p, true, "weights.safetensors");
  assert_ok(brim_safetensors_open("weights.safetensors", &file));
  brim_net_part part = part_of(file, 0, false);
  refused(&p, 0, &part, "one.optimizer");  // the file has only weights
  part = part_of(file, 1, true);
  refused(&p, 0, &part, "two.");  // another width
  part.prefix = "three.";
  refused(&p, 0, &part, "three.");  // missing in the file
  brim_safetensors_close(file);
  pair_close(&p);
}

// Out of memory: an error, nothing leaks, and the networks are unchanged.
static void test_memory(void **state) {
  (void)state;
  pair p;
  brim_alloc_stats before, after;
  pair_open(&p, 1);
  brim_alloc_get_stats(&before);
  bool failed = true;
  for (uint64_t n = 1; failed && n < 200; n++) {
    brim_net_entries *copy = NULL;
    const uint64_t injected = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    const brim_status status = brim_net_entries_copy(p.net[0], "a.", false, &copy);
    brim_alloc_fail_nth(0, 0);
    failed = brim_alloc_failures() > injected;
    if (failed) assert_int_equal(status, BRIM_ENOMEM);
    if (!failed) assert_ok(status);
    brim_net_entries_free(copy);
  }
  assert_false(failed);
  brim_alloc_get_stats(&after);
  for (int i = 0; i < BRIM_MEM_TAG_COUNT; i++) {
    assert_int_equal(before.live_bytes[i], after.live_bytes[i]);
  }
  brim_net_entries_free(NULL);
  pair_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),        cmocka_unit_test(test_taken),
      cmocka_unit_test(test_weights_only), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
