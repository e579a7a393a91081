// Checkpoints of networks: equal states are equal bytes, loading restores exactly the saved state, and a file that does
// not fit changes nothing. With an argument: writes a checkpoint there and lists names and sums, for the check by
// Python.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <math.h>

#include "engine_lazy.h"
#include "engine_test.h"

static void checkpoint_spec(test_spec *t, const char *optimizer) {
  test_spec_init(t);
  test_component_string(&t->model, "norm", "layer");
  test_component_init(&t->optimizer, optimizer);
  if (strcmp(optimizer, "sgd") == 0) test_component_float(&t->optimizer, "momentum", 0.9);
}

static json_t *metadata(void) {
  brim_json_setup();
  json_t *meta = json_object();
  assert_ok(brim_json_put(meta, "step", json_string("4")));
  assert_ok(brim_json_put(meta, "cursor", json_string("{\"epoch\": 1}")));
  return meta;
}

static void same_files(const char *a, const char *b) {
  char *x, *y;
  size_t n, m;
  assert_ok(brim_fs_read(a, 0, &x, &n));
  assert_ok(brim_fs_read(b, 0, &y, &m));
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n);
  brim_free(x);
  brim_free(y);
}

static void steps(brim_net *net, const test_spec *t, int64_t from, int64_t to) {
  test_batch b;
  test_batch_make(&t->spec, t->spec.batch, 3, &b);
  for (int64_t s = from; s <= to; s++) test_step(net, &t->spec, &b, 1, s, 0.05);
  test_batch_free(&b);
}

// Stopped and resumed equals uninterrupted, byte for byte.
static void check_resume(brim_device *device, const char *optimizer, brim_precision precision) {
  test_spec t;
  checkpoint_spec(&t, optimizer);
  t.spec.precision = precision;
  test_component_float(&t.model, "dropout", 0.2);
  brim_net *whole, *resumed;
  json_t *meta = metadata(), *read;
  assert_ok(brim_net_create(device, &t.spec, &whole));
  steps(whole, &t, 1, 4);
  assert_ok(brim_net_save(whole, "half.safetensors", meta, false));
  steps(whole, &t, 5, 8);
  assert_ok(brim_net_save(whole, "whole.safetensors", meta, false));
  assert_ok(brim_net_create(device, &t.spec, &resumed));
  assert_ok(brim_net_load(resumed, "half.safetensors", false, &read));
  assert_true(json_equal(meta, read));
  json_decref(read);
  assert_ok(brim_net_save(resumed, "again.safetensors", meta, false));
  same_files("half.safetensors", "again.safetensors");
  steps(resumed, &t, 5, 8);
  assert_ok(brim_net_save(resumed, "resumed.safetensors", meta, false));
  same_files("whole.safetensors", "resumed.safetensors");
  json_decref(meta);
  brim_net_destroy(whole);
  brim_net_destroy(resumed);
}

static void check_writes(brim_net_held *held, const char *as) {
  assert_ok(brim_net_held_write(held, "held.safetensors"));
  same_files(as, "held.safetensors");
}

// A held checkpoint writes the bytes of a save at the time of holding, whatever the network has become since.
static void check_held(brim_device *device, bool weights_only) {
  test_spec t;
  checkpoint_spec(&t, "adamw");
  t.spec.ema_decay = 0.9;
  brim_net *net;
  brim_net_held *held;
  json_t *meta = metadata();
  assert_ok(brim_net_create(device, &t.spec, &net));
  steps(net, &t, 1, 3);
  assert_ok(brim_net_save(net, "then.safetensors", meta, weights_only));
  assert_ok(brim_net_hold(net, meta, weights_only, &held));
  steps(net, &t, 4, 6);
  check_writes(held, "then.safetensors");
  assert_int_equal(unlink("held.safetensors"), 0);
  check_writes(held, "then.safetensors");  // a second time
  assert_status(brim_net_held_write(held, "no/such/folder.safetensors"), BRIM_ENOENT);
  brim_net_held_free(held);
  // A page-locked block is kept for the next hold.
  brim_block_id block = weights_only ? BRIM_BLOCK_AVERAGE : BRIM_BLOCK_PARAMS;
  const void *room = net->reusable[block];
  assert_true((room != NULL) == !device->info.host_memory);
  assert_ok(brim_net_hold(net, meta, weights_only, &held));
  assert_null(net->reusable[block]);
  brim_net_held_free(held);  // held but never written
  assert_ptr_equal(net->reusable[block], room);
  // Two holds at once: the first takes the kept block, the second allocates its own.
  brim_net_held *next;
  assert_ok(brim_net_save(net, "then.safetensors", meta, weights_only));
  assert_ok(brim_net_hold(net, meta, weights_only, &held));
  steps(net, &t, 7, 7);
  assert_ok(brim_net_save(net, "next.safetensors", meta, weights_only));
  assert_ok(brim_net_hold(net, meta, weights_only, &next));
  steps(net, &t, 8, 8);
  check_writes(next, "next.safetensors");
  brim_net_held_free(next);
  check_writes(held, "then.safetensors");
  brim_net_held_free(held);
  json_decref(meta);
  brim_net_destroy(net);
}

static void test_held(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_held(device, false);
  check_held(device, true);
  test_device_close(device);
}

static void test_held_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  check_held(device, false);
  check_held(device, true);
  lazy_close(device);
}

// A copy takes at most half of the free memory. Its block is kept only if it is a small part of the machine's memory.
static void test_held_room(void **state) {
  (void)state;
  static const struct {
    const char *meminfo;
    brim_status status;
    bool stays;
  } cases[] = {{"MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n", BRIM_OK, true},
               {"MemTotal: 8000000 kB\nMemAvailable: 1 kB\n", BRIM_ENOMEM, false},
               {"MemTotal: 40 kB\nMemAvailable: 4000000 kB\n", BRIM_OK, false}};
  assert_true(mkdir("machine", 0777) == 0 || errno == EEXIST);
  assert_true(mkdir("machine/proc", 0777) == 0 || errno == EEXIST);
  test_spec t;
  checkpoint_spec(&t, "adamw");
  brim_net_hooks hooks = {.machine = "machine"};
  brim_device *device = lazy_open(0);
  json_t *meta = metadata();
  for (int i = 0; i < 3; i++) {
    FILE *f = fopen("machine/proc/meminfo", "w");
    assert_non_null(f);
    fputs(cases[i].meminfo, f);
    fclose(f);
    brim_net *net;
    brim_net_held *held;
    assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &net));
    assert_status(brim_net_hold(net, meta, false, &held), cases[i].status);
    brim_net_held_free(held);
    assert_true((net->reusable[BRIM_BLOCK_PARAMS] != NULL) == cases[i].stays);
    brim_net_destroy(net);
  }
  json_decref(meta);
  lazy_close(device);
}

static void test_held_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_held(device, false);
  check_held(device, true);
  test_device_close(device);
}

static void test_held_cuda(void **state) {
  (void)state;
  brim_device *device = test_device_cuda();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_held(device, false);
  check_held(device, true);
  test_device_close(device);
}

static void test_resume(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_resume(device, "sgd", BRIM_PRECISION_FP32);
  check_resume(device, "adamw", BRIM_PRECISION_FP32);
  check_resume(device, "adam", BRIM_PRECISION_BF16);
  test_device_close(device);
}

static void test_resume_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_resume(device, "adamw", BRIM_PRECISION_FP32);
  test_device_close(device);
}

static void test_weights_only(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "adam");
  brim_net *a, *b;
  assert_ok(brim_net_create(device, &t.spec, &a));
  steps(a, &t, 1, 3);
  assert_ok(brim_net_save(a, "full.safetensors", NULL, false));
  assert_ok(brim_net_save(a, "weights.safetensors", NULL, true));
  brim_safetensors *file;
  assert_ok(brim_safetensors_open("weights.safetensors", &file));
  assert_int_equal(brim_safetensors_count(file), brim_net_param_count(a));
  brim_safetensors_close(file);
  assert_ok(brim_safetensors_open("full.safetensors", &file));
  assert_int_equal(brim_safetensors_count(file), 3 * brim_net_param_count(a) + 1);
  assert_non_null(brim_safetensors_find(file, "optimizer.state"));
  assert_non_null(brim_safetensors_find(file, "optimizer.v.layers.0.weight"));
  brim_safetensors_close(file);
  t.spec.seed = 9;
  size_t n;
  float *expected = test_params(a, &n);
  for (int k = 0; k < 2; k++) {
    assert_ok(brim_net_create(device, &t.spec, &b));
    const char *path = k ? "weights.safetensors" : "full.safetensors";
    assert_ok(brim_net_load(b, path, true, NULL));
    float *got = test_params(b, &n);
    assert_memory_equal(expected, got, n * sizeof *got);
    free(got);
    // The optimizer's state did not change.
    for (size_t i = 0; i < brim_net_flat_bytes(b); i++) assert_int_equal(brim_net_slot(b, 0)[i], 0);
    if (k) {
      assert_status(brim_net_load(b, path, false, NULL), BRIM_EINVAL);
      assert_non_null(strstr(brim_status_detail(), "'optimizer.state' is missing"));
      assert_non_null(strstr(brim_status_detail(), "weights only"));
    }
    brim_net_destroy(b);
  }
  free(expected);
  brim_net_destroy(a);
  test_device_close(device);
}

// Weights for other classes: the last layer keeps the seed's values, the others are the file's.
static void test_start_with_other_outputs(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "sgd");
  brim_net *a, *b;
  brim_net_reinit reinit;
  size_t na, nb;
  assert_ok(brim_net_create(device, &t.spec, &a));
  steps(a, &t, 1, 3);
  assert_ok(brim_net_save(a, "classes.safetensors", NULL, true));
  float *from = test_params(a, &na);
  t.spec.seed = 9;
  t.spec.classes++;
  assert_ok(brim_net_create(device, &t.spec, &b));
  float *seeded = test_params(b, &nb);
  assert_status(brim_net_load(b, "classes.safetensors", true, NULL), BRIM_EINVAL);
  assert_ok(brim_net_start(b, "classes.safetensors", &reinit));
  assert_true(reinit.is);
  assert_int_equal(reinit.had, t.spec.classes - 1);
  assert_int_equal(reinit.outputs, t.spec.classes);
  float *got = test_params(b, &nb);
  size_t at = 0, renewed = 0;
  for (size_t i = 0; i < brim_net_param_count(b); i++) {
    const brim_net_param *p = brim_net_param_at(b, i);
    bool head = brim_str_starts(p->name, reinit.layer);
    renewed += head;
    // parameters before the last layer are at the same place in both
    assert_memory_equal(got + at, (head ? seeded : from) + at, (size_t)p->count * sizeof *got);
    at += (size_t)p->count;
  }
  assert_int_equal(renewed, 2);
  assert_ok(brim_net_start(a, "classes.safetensors", &reinit));
  assert_false(reinit.is);
  brim_net_destroy(b);
  // a layer in between must match, even if the last one differs
  t.spec.input_dim[0]++;
  assert_ok(brim_net_create(device, &t.spec, &b));
  assert_status(brim_net_start(b, "classes.safetensors", &reinit), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "layers.0.weight"));
  brim_net_destroy(b);
  brim_net_destroy(a);
  free(from);
  free(seeded);
  free(got);
  test_device_close(device);
}

// Copies the file at `from` as part of a larger model: every name gets the prefix `inside`, the layer `head` is left
// out (NULL = keep all), and one entry of the larger model is added.
static void put_around(const char *from, const char *to, const char *inside, const char *head) {
  static const float zeros[2] = {0};
  static char names[64][128];
  brim_safetensors *file;
  brim_safetensors_entry entries[64];
  size_t count = 0;
  assert_ok(brim_safetensors_open(from, &file));
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    brim_safetensors_entry e = *brim_safetensors_at(file, i);
    if (head && brim_str_starts(e.name, head)) continue;
    snprintf(names[count], sizeof names[count], "%s%s", inside, e.name);
    e.name = names[count];
    entries[count++] = e;
  }
  entries[count++] = (brim_safetensors_entry){.name = "projector.0.bias",
                                              .dtype = BRIM_F32,
                                              .rank = 1,
                                              .dim = {2},
                                              .data = zeros,
                                              .bytes = sizeof zeros};
  assert_ok(brim_safetensors_write(to, entries, count, NULL));
  brim_safetensors_close(file);
}

// Writes a file with parameters around the network's own; starting from it must fail with `detail`.
static void refused_around(brim_net *b, const char *inside, const char *without,
                           const char *detail) {
  brim_net_reinit reinit;
  put_around("inner.safetensors", "around.safetensors", inside, without);
  assert_status(brim_net_start(b, "around.safetensors", &reinit), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), detail));
}

// Files with an encoder inside: of a contrastive run, and of a larger PyTorch module.
static void test_start_from_inside(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  brim_net *a, *b;
  brim_net_reinit reinit;
  size_t n;
  checkpoint_spec(&t, "sgd");
  assert_ok(brim_net_create(device, &t.spec, &a));
  steps(a, &t, 1, 3);
  assert_ok(brim_net_save(a, "inner.safetensors", NULL, true));
  float *from = test_params(a, &n);
  const char *last = brim_net_param_at(a, brim_net_param_count(a) - 1)->name;
  char head[128];
  snprintf(head, sizeof head, "%.*s", (int)(strrchr(last, '.') - last), last);
  t.spec.seed = 9;
  for (int k = 0; k < 2; k++) {
    const char *inside = k ? "backbone." : "module._orig_mod.";
    put_around("inner.safetensors", "around.safetensors", inside, k ? head : NULL);
    assert_ok(brim_net_create(device, &t.spec, &b));
    float *seeded = test_params(b, &n);
    assert_ok(brim_net_start(b, "around.safetensors", &reinit));
    assert_string_equal(reinit.inside, inside);
    assert_true(reinit.is == (k == 1) && reinit.had == (k ? 0 : reinit.had));
    if (k) assert_string_equal(reinit.layer, head);
    float *got = test_params(b, &n);
    size_t at = 0;
    for (size_t i = 0; i < brim_net_param_count(b); i++) {
      const brim_net_param *p = brim_net_param_at(b, i);
      bool fresh = k && brim_str_starts(p->name, head);
      assert_memory_equal(got + at, (fresh ? seeded : from) + at, (size_t)p->count * sizeof *got);
      at += (size_t)p->count;
    }
    // such a file cannot be resumed from, and loading it as the whole network names its contents
    assert_status(brim_net_load(b, "around.safetensors", true, NULL), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "this network is part of a larger one there"));
    free(seeded);
    free(got);
    brim_net_destroy(b);
  }
  // without a layer in between it does not count as an encoder
  assert_ok(brim_net_create(device, &t.spec, &b));
  refused_around(b, "backbone.", "layers.0.", "'layers.0.weight' is missing");
  // nor does one with more layers where the network has its last; and other names fit no network
  refused_around(b, "backbone.", NULL, "its encoder is deeper than this network");
  refused_around(b, "optimizer.m.", NULL,
                 "'layers.0.weight' is missing; does the file belong to another");
  refused_around(b, "module.", "layers.1.", "'module.layers.1.weight' is missing");
  brim_net_destroy(b);
  brim_net_destroy(a);
  free(from);
  test_device_close(device);
}

//---------------------------------- files that do not fit ----------------------------------

typedef struct misfit {
  const char *what;
  const char *text;
} misfit;

static const misfit misfits[] = {
    {"missing", "entry 'layers.1.bias' is missing"},
    {"shape", "entry 'layers.1.bias' has shape (8), expected (7)"},
    {"rank", "entry 'layers.1.bias' has shape (7, 1), expected (7)"},
    {"dtype", "entry 'layers.1.bias' is bf16, expected f32"},
    {"extra", "entry 'layers.9.bias' does not belong to this network"},
    {"moment", "the file holds the state of another optimizer (entry 'optimizer.w.layers.1.bias')"},
};

// Copies the checkpoint at `from` with one entry changed.
static void bend(const char *from, const char *to, const char *what) {
  static const float zeros[64] = {0};
  brim_safetensors *file;
  assert_ok(brim_safetensors_open(from, &file));
  brim_safetensors_entry entries[64];
  size_t count = 0;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    brim_safetensors_entry e = *brim_safetensors_at(file, i);
    if (strcmp(e.name, "layers.1.bias") == 0) {
      if (strcmp(what, "missing") == 0) continue;
      if (strcmp(what, "shape") == 0) e.dim[0] = 8, e.bytes = 32, e.data = zeros;
      if (strcmp(what, "rank") == 0) e.rank = 2, e.dim[1] = 1;
      if (strcmp(what, "dtype") == 0) e.dtype = BRIM_BF16, e.bytes = 14;
    }
    entries[count++] = e;
  }
  bool extra = strcmp(what, "extra") == 0;
  if (extra || strcmp(what, "moment") == 0) {
    entries[count++] =
        (brim_safetensors_entry){.name = extra ? "layers.9.bias" : "optimizer.w.layers.1.bias",
                                 .dtype = BRIM_F32,
                                 .rank = 1,
                                 .dim = {2},
                                 .data = zeros,
                                 .bytes = 8};
  }
  assert_ok(brim_safetensors_write(to, entries, count, NULL));
  brim_safetensors_close(file);
}

static void test_misfits(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "sgd");
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  steps(net, &t, 1, 2);
  assert_ok(brim_net_save(net, "good.safetensors", NULL, false));
  steps(net, &t, 3, 4);
  size_t n;
  float *before = test_params(net, &n);
  for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
    // loading weights alone ignores the optimizer's state
    int ways = strcmp(misfits[i].what, "moment") == 0 ? 1 : 2;
    for (int weights_only = 0; weights_only < ways; weights_only++) {
      bend("good.safetensors", "bent.safetensors", misfits[i].what);
      json_t *meta;
      assert_status(brim_net_load(net, "bent.safetensors", weights_only, &meta), BRIM_EINVAL);
      assert_null(meta);
      if (!strstr(brim_status_detail(), misfits[i].text) ||
          !strstr(brim_status_detail(), "bent.safetensors")) {
        fail_msg("the message is '%s', expected '%s' in it", brim_status_detail(), misfits[i].text);
      }
      float *after = test_params(net, &n);
      assert_memory_equal(before, after, n * sizeof *after);
      free(after);
    }
  }
  assert_ok(brim_net_load(net, "good.safetensors", false, NULL));
  free(before);
  brim_net_destroy(net);
  test_device_close(device);
}

// Values that no training produces; loading them leaves the network unchanged.
static void test_impossible_values(void **state) {
  (void)state;
  static const struct {
    double scale, good, updates;
    bool fits;
  } states[] = {{65536, 10, 5, true}, {1, 0, 0, true},    {0, 0, 0, false},
                {-4, 0, 0, false},    {3, 0, 0, false},   {1e38, 0, 0, false},
                {8, -1, 0, false},    {8, 0, 2.5, false}, {8, 0, -1, false}};
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "adam");
  t.spec.precision = BRIM_PRECISION_FP16;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  steps(net, &t, 1, 2);
  assert_ok(brim_net_save(net, "good.safetensors", NULL, false));
  brim_safetensors *file;
  assert_ok(brim_safetensors_open("good.safetensors", &file));
  for (size_t k = 0; k < sizeof states / sizeof states[0]; k++) {
    const double bent[] = {states[k].scale, states[k].good, states[k].updates};
    brim_safetensors_entry entries[64];
    size_t count = brim_safetensors_count(file);
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++) {
      entries[i] = *brim_safetensors_at(file, i);
      if (strcmp(entries[i].name, "optimizer.state") == 0) entries[i].data = bent;
    }
    assert_ok(brim_safetensors_write("bent.safetensors", entries, count, NULL));
    brim_status status = brim_net_load(net, "bent.safetensors", false, NULL);
    assert_int_equal(status, states[k].fits ? BRIM_OK : BRIM_EINVAL);
    brim_net_metrics m;
    assert_ok(brim_net_read_metrics(net, false, &m));
    assert_true(m.loss_scale == (k == 0 ? 65536 : 1));
  }
  // Without its step count Adam would restart its averages.
  brim_safetensors_entry entries[64];
  size_t count = 0;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    entries[count] = *brim_safetensors_at(file, i);
    count += strcmp(entries[count].name, "optimizer.state") != 0;
  }
  assert_ok(brim_safetensors_write("bent.safetensors", entries, count, NULL));
  assert_status(brim_net_load(net, "bent.safetensors", false, NULL), BRIM_EINVAL);
  // A negative second moment.
  static const float minus[64] = {[3] = -1};
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    entries[i] = *brim_safetensors_at(file, i);
    if (strcmp(entries[i].name, "optimizer.v.layers.1.bias") == 0) entries[i].data = minus;
  }
  assert_ok(
      brim_safetensors_write("bent.safetensors", entries, brim_safetensors_count(file), NULL));
  assert_status(brim_net_load(net, "bent.safetensors", false, NULL), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "optimizer.v.layers.1.bias"));
  brim_safetensors_close(file);
  brim_net_destroy(net);
  test_device_close(device);
}

// Adam does not count a skipped step: its first update has the same size with and without the skipping.
static void test_skipped_steps_and_adam(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "adam");
  float *params[2];
  size_t n = 0;
  for (int skip = 0; skip < 2; skip++) {
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    test_batch b;
    test_batch_make(&t.spec, t.spec.batch * t.spec.accumulation, 3, &b);
    float saved = ((float *)b.input)[0];
    if (skip) {
      ((float *)b.input)[0] = INFINITY;
      test_step(net, &t.spec, &b, t.spec.accumulation, 1, 0.1);
      ((float *)b.input)[0] = saved;
    }
    test_step(net, &t.spec, &b, t.spec.accumulation, 1 + skip, 0.1);
    brim_net_metrics m;
    assert_ok(brim_net_read_metrics(net, true, &m));
    assert_int_equal(m.skipped_steps, skip);
    params[skip] = test_params(net, &n);
    test_batch_free(&b);
    brim_net_destroy(net);
  }
  assert_memory_equal(params[0], params[1], n * sizeof *params[0]);
  free(params[0]);
  free(params[1]);
  test_device_close(device);
}

//---------------------------------- damage ----------------------------------

static void flip(const char *path, size_t at) {
  char *bytes;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &bytes, &size));
  assert_true(at < size);
  bytes[at] ^= 1;
  assert_ok(brim_fs_write("flipped.safetensors", bytes, size));
  brim_free(bytes);
}

// Any wrong bit, in a tensor or in the metadata, is found before anything is changed. Files without a checksum (of
// earlier versions, of other programs) load as before.
static void test_damage(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "adam");
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  steps(net, &t, 1, 2);
  json_t *meta = metadata();
  assert_ok(brim_net_save(net, "good.safetensors", meta, false));
  json_decref(meta);
  brim_safetensors *file;
  assert_ok(brim_safetensors_open("good.safetensors", &file));
  assert_ok(brim_safetensors_verify(file));
  const char *sum =
      json_string_value(json_object_get(brim_safetensors_metadata(file), BRIM_SAFETENSORS_SUM));
  assert_int_equal(strlen(sum), 6 + 16);
  assert_null(strstr(sum, "0000000000000000"));
  brim_safetensors_entry entries[64];
  size_t count = brim_safetensors_count(file), n;
  assert_true(count <= 64);
  for (size_t i = 0; i < count; i++) entries[i] = *brim_safetensors_at(file, i);
  char *text;
  size_t size;
  assert_ok(brim_fs_read("good.safetensors", 0, &text, &size));
  const char *step = strstr(text + 8, "\"step\":\"4\""), *digits = strstr(text + 8, "xxh64:");
  assert_true(step && digits);
  const size_t places[] = {size - 1, size / 2, (size_t)(step - text) + 8,
                           (size_t)(digits - text) + 7};
  float *before = test_params(net, &n);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    flip("good.safetensors", places[i]);
    assert_status(brim_net_load(net, "flipped.safetensors", false, NULL), BRIM_EPARSE);
    assert_non_null(strstr(brim_status_detail(), "flipped.safetensors"));
    assert_non_null(strstr(brim_status_detail(), "damaged"));
    assert_status(brim_net_load(net, "flipped.safetensors", true, NULL), BRIM_EPARSE);
    assert_status(brim_net_load_weights(net, "flipped.safetensors", NULL), BRIM_EPARSE);
    float *after = test_params(net, &n);
    assert_memory_equal(before, after, n * sizeof *after);
    free(after);
  }
  assert_ok(brim_safetensors_write("plain.safetensors", entries, count, NULL));
  assert_ok(brim_net_load(net, "plain.safetensors", false, NULL));
  // a file written with the old checksum in its metadata gets its own
  static const float other[4096] = {1};
  assert_true(entries[count - 1].bytes <= sizeof other);
  entries[count - 1].data = other;
  assert_ok(
      brim_safetensors_write("again.safetensors", entries, count, brim_safetensors_metadata(file)));
  assert_ok(brim_net_load(net, "again.safetensors", false, NULL));
  free(before);
  brim_free(text);
  brim_safetensors_close(file);
  brim_net_destroy(net);
  test_device_close(device);
}

//---------------------------------- for Python ----------------------------------

// Writes a checkpoint, and to stdout the entries that Python has to find: name, shape, first and last value.
static int write_for_python(const char *path) {
  brim_device *device = test_device_ref();
  test_spec t;
  checkpoint_spec(&t, "adamw");
  brim_net *net;
  if (brim_net_create(device, &t.spec, &net)) return 1;
  steps(net, &t, 1, 2);
  json_t *meta = metadata();
  if (brim_net_save(net, path, meta, false)) return 1;
  json_decref(meta);
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    float values[256];
    if (p->count > 256 || brim_net_param_read(net, i, values)) return 1;
    printf("%s", p->name);
    for (int d = 0; d < p->rank; d++) printf(" %lld", (long long)p->dim[d]);
    printf(" = %.9g %.9g\n", (double)values[0], (double)values[p->count - 1]);
  }
  brim_net_destroy(net);
  test_device_close(device);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return write_for_python(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_resume_cpu),
      cmocka_unit_test(test_held),
      cmocka_unit_test(test_held_late),
      cmocka_unit_test(test_held_room),
      cmocka_unit_test(test_held_cpu),
      cmocka_unit_test(test_held_cuda),
      cmocka_unit_test(test_weights_only),
      cmocka_unit_test(test_start_with_other_outputs),
      cmocka_unit_test(test_start_from_inside),
      cmocka_unit_test(test_impossible_values),
      cmocka_unit_test(test_skipped_steps_and_adam),
      cmocka_unit_test(test_misfits),
      cmocka_unit_test(test_damage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
