// Weights of convolutions in their two layouts, and their conversion in checkpoints: compared with plain loops over the
// network's memory, on a device that uses host memory and on one where everything has to be copied.
#include "engine_lazy.h"
#include "engine_test.h"

// A convolution's parameter without a network.
static brim_param made_param(int64_t m, int64_t c, int64_t r, int64_t s, int64_t padded) {
  const int64_t outside[] = {m, c, r, s}, inside[] = {m, r, s, padded};
  brim_param p = {.conv = true, .count = m * r * s * padded, .outside_count = m * c * r * s};
  p.outside = brim_tensor_make(NULL, BRIM_F32, 4, outside);
  p.desc = brim_tensor_make(NULL, BRIM_F32, 4, inside);
  return p;
}

static float inside_at(const brim_param *p, const float *inside, int64_t outside_index) {
  if (!p->conv) return inside[outside_index];
  const int64_t *d = p->outside.dim;
  int64_t area = d[2] * d[3], at = outside_index % area, c = outside_index / area % d[1];
  return inside[(outside_index / area / d[1] * area + at) * p->desc.dim[3] + c];
}

static void check_layout(int64_t m, int64_t c, int64_t side, int64_t padded) {
  brim_param p = made_param(m, c, side, side, padded);
  size_t count = (size_t)p.count, outside_count = (size_t)p.outside_count;
  float *inside = brim_calloc(count, sizeof *inside), *back = brim_calloc(count, sizeof *back);
  float *outside = brim_calloc(outside_count + 1, sizeof *outside);
  assert_true(inside && back && outside);
  for (size_t i = 0; i < count; i++) {
    inside[i] = (int64_t)i % padded < c ? (float)(i + 1) : 0;
    back[i] = -1;
  }
  outside[outside_count] = -7;
  brim_param_export(&p, inside, outside);
  for (size_t i = 0; i < outside_count; i++) {
    assert_true(outside[i] == inside_at(&p, inside, (int64_t)i));
  }
  assert_true(outside[outside_count] == -7);
  assert_true(!brim_param_same_layout(&p) ||
              memcmp(inside, outside, outside_count * sizeof *inside) == 0);
  brim_param_import(&p, outside, back);
  assert_memory_equal(back, inside, count * sizeof *inside);
  // only the last row
  size_t row = outside_count / (size_t)m;
  memset(outside, 0, outside_count * sizeof *outside);
  brim_param_export_rows(&p, 1, inside + (size_t)(m - 1) * (count / (size_t)m), outside);
  for (size_t i = 0; i < row; i++) {
    int64_t at = (int64_t)(outside_count - row + i);
    assert_true(outside[i] == inside_at(&p, inside, at));
  }
  assert_true(row == outside_count || outside[row] == 0);
  brim_free(inside);
  brim_free(back);
  brim_free(outside);
}

static void test_layouts(void **state) {
  (void)state;
  static const int64_t channels[][2] = {{1, 1}, {1, 4},   {3, 4},   {3, 8},   {4, 4},
                                        {5, 8}, {16, 16}, {17, 24}, {64, 64}, {7, 7}};
  for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
    for (int64_t side = 1; side <= 7; side++) {
      for (int64_t m = 1; m <= 3; m++) check_layout(m, channels[i][0], side, channels[i][1]);
    }
  }
  brim_param same = made_param(3, 8, 1, 1, 8), padded = made_param(3, 7, 1, 1, 8);
  assert_true(brim_param_same_layout(&same));
  assert_false(brim_param_same_layout(&padded));
}

//---------------------------------- checkpoints ----------------------------------

// Rows of the first convolution are larger than a piece, and the whole is larger than a window.
static void spec_make(test_spec *t) {
  test_spec_init(t);
  test_component_init(&t->model, "resnet18");
  test_component_int(&t->model, "width", 24);
  test_component_float(&t->optimizer, "momentum", 0.9);
  t->spec.input_rank = 3;
  t->spec.input_dim[0] = t->spec.input_dim[1] = 4;
  t->spec.input_dim[2] = 4001;
  t->spec.batch = 2;
}

static const brim_block_id saved[] = {BRIM_BLOCK_PARAMS, BRIM_BLOCK_BUFFERS, BRIM_BLOCK_OPTIMIZER};

static void scribble(brim_net *net) {
  for (size_t k = 0; k < 3; k++) {
    float *values = (float *)(void *)net->blocks[saved[k]].data;
    size_t n = net->blocks[saved[k]].bytes / sizeof *values;
    for (size_t i = 0; i < n; i++) values[i] = (float)(i % 9973) + (float)k / 4;
  }
}

static void check_entries(const brim_safetensors *file, const brim_params *list, const char *prefix,
                          const unsigned char *block) {
  for (size_t k = 0; k < list->count; k++) {
    const brim_param *p = &list->items[k];
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    const brim_safetensors_entry *e = brim_safetensors_find(file, name);
    assert_non_null(e);
    assert_int_equal(e->bytes, (size_t)p->outside_count * sizeof(float));
    assert_int_equal(e->rank, p->outside.rank);
    for (int d = 0; d < e->rank; d++) assert_int_equal(e->dim[d], p->outside.dim[d]);
    const float *inside = (const float *)(const void *)block + p->offset;
    for (int64_t i = 0; i < p->outside_count; i++) {
      float value;
      memcpy(&value, (const char *)e->data + (size_t)i * sizeof value, sizeof value);
      if (value != inside_at(p, inside, i)) fail_msg("%s differs at %lld", name, (long long)i);
    }
  }
}

static void check_save(brim_net *net, const char *path) {
  brim_safetensors *file;
  assert_ok(brim_net_save(net, path, NULL, false));
  assert_ok(brim_safetensors_open(path, &file));
  check_entries(file, &net->params, "", net->blocks[BRIM_BLOCK_PARAMS].data);
  check_entries(file, &net->buffers, "", net->blocks[BRIM_BLOCK_BUFFERS].data);
  check_entries(file, &net->params, "optimizer.m.", brim_net_slot(net, 0));
  brim_safetensors_close(file);
}

static void same_bytes(const char *a, const char *b) {
  char *x, *y;
  size_t n, m;
  assert_ok(brim_fs_read(a, 0, &x, &n));
  assert_ok(brim_fs_read(b, 0, &y, &m));
  assert_int_equal(n, m);
  assert_true(memcmp(x, y, n) == 0);
  brim_free(x);
  brim_free(y);
}

static void test_a_checkpoint_holds_the_memory(void **state) {
  (void)state;
  test_spec t;
  spec_make(&t);
  brim_device *ref = test_device_ref(), *late = lazy_open(0);
  brim_net *near, *far;
  assert_ok(brim_net_create(ref, &t.spec, &near));
  assert_ok(brim_net_create(late, &t.spec, &far));
  assert_false(late->info.host_memory);
  scribble(near);
  check_save(near, "near.safetensors");
  for (size_t k = 0; k < 3; k++) {
    const brim_block *from = &near->blocks[saved[k]], *to = &far->blocks[saved[k]];
    assert_int_equal(from->bytes, to->bytes);
    assert_ok(brim_device_copy(late, to->data, from->data, from->bytes, BRIM_COPY_H2D));
  }
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  assert_ok(brim_net_save(far, "far.safetensors", NULL, false));
  brim_alloc_get_stats(&after);
  assert_true(after.live_bytes[BRIM_MEM_PLANNED] == before.live_bytes[BRIM_MEM_PLANNED]);
  same_bytes("near.safetensors", "far.safetensors");
  assert_ok(brim_net_save(near, "near.safetensors", NULL, true));
  assert_ok(brim_net_save(far, "far.safetensors", NULL, true));
  same_bytes("near.safetensors", "far.safetensors");
  brim_net_destroy(near);
  brim_net_destroy(far);
  lazy_close(late);
  test_device_close(ref);
}

// If any allocation fails, the file stays as it was and there is no temporary beside it.
static void test_a_save_without_memory(void **state) {
  (void)state;
  test_spec t;
  test_spec_init(&t);
  brim_device *late = lazy_open(0);
  brim_net *net;
  assert_ok(brim_net_create(late, &t.spec, &net));
  assert_ok(brim_fs_write("kept.safetensors", "kept", 4));
  brim_status status = BRIM_ENOMEM;
  for (uint64_t n = 1; status; n++) {
    brim_alloc_fail_nth(n, 0);
    status = brim_net_save(net, "kept.safetensors", NULL, false);
    brim_alloc_fail_nth(0, 0);
    if (!status) break;
    assert_int_equal(status, BRIM_ENOMEM);
    char *text;
    size_t size;
    assert_ok(brim_fs_read("kept.safetensors", 0, &text, &size));
    assert_string_equal(text, "kept");
    brim_free(text);
  }
  char **names;
  size_t count;
  assert_ok(brim_fs_list(".", &names, &count));
  for (size_t i = 0; i < count; i++) assert_null(strstr(names[i], BRIM_FS_TEMP_MARK));
  brim_fs_list_free(names, count);
  brim_net_destroy(net);
  lazy_close(late);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),
      cmocka_unit_test(test_a_checkpoint_holds_the_memory),
      cmocka_unit_test(test_a_save_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
