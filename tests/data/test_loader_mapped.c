// Loaders over a mapped set: the device reads rows from a page-locked file. Runs on a fake device with two streams that
// are out of step: the stream is that of a loader with workers, byte for byte, and pages are unlocked again, whatever
// happens. On a GPU: test_mapped_cuda.c.
#include "mapped_test.h"
#include "sim_device.h"

//---------------------------------- a table for the device ----------------------------------

// The device's view of the locked pages: a copy at another address than the host's.
static struct {
  const void *memory;
  uint8_t *copy;
  size_t bytes;
  int locks, unlocks, fetches, runs;
  brim_status lock_status, fetch_status, run_status;
} table_state;
static const brim_transforms *table_transforms;
static uint8_t *table_scratch;

static brim_status table_supports(const brim_augment_program *program) {
  if (program->views > 2) return brim_fail(BRIM_EUNSUPPORTED, "views: two are the most");
  return BRIM_OK;
}

static size_t table_scratch_bytes(const brim_augment_program *program, int64_t capacity) {
  return (size_t)program->views * (size_t)capacity;
}

static brim_status table_lock(const void *memory, size_t size, const void *near,
                              const void **address) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  assert_non_null(near);
  assert_true((uintptr_t)memory % page == 0 && size > 0 && size % page == 0);
  assert_null(table_state.memory);
  if (table_state.lock_status) return brim_fail(table_state.lock_status, "no page can be locked");
  table_state.copy = malloc(size);
  assert_non_null(table_state.copy);
  memcpy(table_state.copy, memory, size);
  table_state.memory = memory;
  table_state.bytes = size;
  table_state.locks++;
  *address = table_state.copy;
  return BRIM_OK;
}

static void table_unlock(const void *memory) {
  assert_ptr_equal(memory, table_state.memory);
  memset(table_state.copy, 0x5a, table_state.bytes);
  free(table_state.copy);
  table_state.memory = NULL;
  table_state.copy = NULL;
  table_state.unlocks++;
}

static void do_fetch(void *ctx) {
  const brim_augment_fetch *f = ctx;
  memset(f->to, 0, (size_t)f->capacity * f->bytes);
  if (f->out_targets) memset(f->out_targets, 0, (size_t)f->capacity * f->target_bytes);
  for (int64_t r = 0; r < f->rows; r++) {
    const uint8_t *from = (const uint8_t *)f->from + f->place[r] * f->stride;
    assert_true(from >= table_state.copy &&
                from + f->bytes <= table_state.copy + table_state.bytes);
    memcpy((uint8_t *)f->to + (size_t)r * f->bytes, from, f->bytes);
    if (!f->targets) continue;
    memcpy((uint8_t *)f->out_targets + (size_t)r * f->target_bytes,
           (const uint8_t *)f->targets + f->index[r] * f->target_bytes, f->target_bytes);
  }
}

static brim_status table_fetch(void *stream, const brim_augment_fetch *fetch) {
  table_state.fetches++;
  if (table_state.fetch_status) return brim_fail(table_state.fetch_status, "the link is down");
  assert_ptr_equal(stream, &sim.streams[SIM_COPY]);
  sim_call(stream, do_fetch, fetch, sizeof *fetch);
  return BRIM_OK;
}

typedef struct run_args {
  brim_augment_batch b;
  size_t sample_bytes, out_bytes;
  int32_t views;
  void *scratch;
} run_args;

static void do_run(void *ctx) {
  const run_args *a = ctx;
  const brim_augment_batch *b = &a->b;
  memset(a->scratch, 0xa5, (size_t)a->views * (size_t)b->capacity);
  memset(b->out, 0, (size_t)a->views * (size_t)b->capacity * a->out_bytes);
  for (int64_t r = 0; r < b->rows; r++) {
    uint64_t place = b->in_order ? (uint64_t)r : b->index[r];
    const uint8_t *in = (const uint8_t *)b->inputs + place * a->sample_bytes;
    for (uint32_t v = 0; v < (uint32_t)a->views; v++) {
      uint8_t *to =
          (uint8_t *)b->out + ((size_t)v * (size_t)b->capacity + (size_t)r) * a->out_bytes;
      const brim_transforms_view of = {b->epoch, b->index[r], v, SIDE, SIDE};
      brim_transforms_apply(table_transforms, &of, in, to, table_scratch, NULL);
    }
  }
}

static brim_status table_run(void *stream, const brim_augment_program *p,
                             const brim_augment_batch *b, void *scratch) {
  table_state.runs++;
  if (table_state.run_status) return brim_fail(table_state.run_status, "the device is gone");
  assert_ptr_equal(stream, &sim.streams[SIM_MAIN]);
  assert_true(b->in_order && !b->targets && (uintptr_t)scratch % 64 == 0);
  const run_args args = {*b, p->sample_bytes, p->out_bytes, p->views, scratch};
  sim_call(stream, do_run, &args, sizeof args);
  return BRIM_OK;
}

static const brim_augment_table table = {.abi = BRIM_AUGMENT_ABI,
                                         .supports = table_supports,
                                         .scratch_bytes = table_scratch_bytes,
                                         .run = table_run,
                                         .lock = table_lock,
                                         .unlock = table_unlock,
                                         .fetch = table_fetch};

static void use_transforms(const brim_transforms *t) {
  memset(&table_state, 0, sizeof table_state);
  table_transforms = t;
  brim_free(table_scratch);
  table_scratch = t ? brim_alloc(brim_transforms_scratch_bytes(t) + 1) : NULL;
}

//---------------------------------- the stream ----------------------------------

static void check_same(brim_device *device, brim_source *s, brim_loader_options o) {
  brim_loader *host, *mapped;
  static heard a, b;
  size_t each = o.transforms ? (size_t)brim_transforms_views(o.transforms) *
                                   brim_transforms_output_bytes(o.transforms)
                             : s->input_bytes;
  o.num_workers = 2;
  assert_ok(brim_loader_create(NULL, s, &o, &host));
  assert_ok(brim_mapped_create_with(&table, device, s, o.limit, 2, &o.resident));
  assert_int_equal(brim_resident_locked_bytes(o.resident), table_state.bytes);
  assert_ok(brim_loader_create(device, s, &o, &mapped));
  assert_int_equal(brim_loader_samples(host), brim_loader_samples(mapped));
  listen(NULL, host, each, s->target_bytes, &a);
  listen(device, mapped, each, s->target_bytes, &b);
  same_stream(&a, &b, 0);
  // One batch is being prepared when another is taken, and a seek discards it.
  assert_int_equal(table_state.fetches, BATCHES + 1 + BATCHES / 13);
  assert_int_equal(table_state.runs, o.transforms ? BATCHES : 0);
  brim_loader_stats stats;
  brim_loader_get_stats(mapped, &stats);
  assert_int_equal(stats.batches, BATCHES);
  assert_int_equal(stats.read_ns, 0);
  forget(&a);
  forget(&b);
  brim_loader_destroy(mapped);
  brim_loader_destroy(host);
  assert_int_equal(table_state.unlocks, 0);
  brim_resident_destroy(o.resident);
  assert_int_equal(table_state.locks, 1);
  assert_int_equal(table_state.unlocks, 1);
}

static void test_same_as_workers(void **state) {
  (void)state;
  const shape *shapes;
  size_t count = shapes_of(&shapes);
  bool odd = false;
  for (size_t k = 0; k < count; k++) {
    make_file("mapped.h5", &shapes[k]);
    for (int hurry = 0; hurry < SIM_HURRIES; hurry++) {
      bool images = shapes[k].rank == 3;
      for (int views = 0; views <= (images ? 2 : 0); views++) {  // 0: no transforms at all
        brim_device *device = sim_device_open((sim_hurry)hurry);
        brim_source *s = open_file("mapped.h5");
        brim_source_rows rows;
        assert_true(brim_source_rows_of(s, &rows));
        assert_int_equal(rows.stride, s->input_bytes);
        odd = odd || (uintptr_t)rows.first % 4;
        brim_transforms *t = views ? make_transforms(s, views) : NULL;
        use_transforms(t);
        check_same(device, s, options_of(t));
        brim_transforms_destroy(t);
        brim_source_close(s);
        sim_device_close(device);
      }
    }
  }
  assert_true(odd);
}

// A part of the samples, a limit, ranks, in order, short last batches: the same as from workers.
static void test_parts_limits_ranks(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[5]);
  for (int k = 0; k < 6; k++) {
    brim_device *device = sim_device_open(SIM_COPY_FIRST);
    brim_source *s = open_file("mapped.h5");
    if (k % 3 > 0) assert_ok(brim_source_take(s, 0.1, k % 3 == 1 ? 0.9 : 0.7, 5));
    brim_transforms *t = k % 2 ? make_transforms(s, 1) : NULL;
    brim_loader_options o = options_of(t);
    if (k % 3 == 2) o.limit = 43;
    if (k >= 3) {
      o.world = 2;
      o.rank = k % 2;
      o.shuffle = k == 4;
    }
    o.drop_last = k == 5;
    use_transforms(t);
    check_same(device, s, o);
    brim_transforms_destroy(t);
    brim_source_close(s);
    sim_device_close(device);
  }
}

// Two batches may be held, and keep their numbers while later ones arrive; a third is refused.
static void test_held(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[6]);
  brim_device *device = sim_device_open(SIM_COPY_FIRST);
  brim_source *s = open_file("mapped.h5");
  brim_loader_options o = options_of(NULL);
  brim_loader *l;
  const brim_loaded *held, *other, *more;
  uint8_t expected[108], got[30][BATCH * 108], first[30][BATCH * 108];
  use_transforms(NULL);
  assert_ok(brim_mapped_create_with(&table, device, s, 0, 2, &o.resident));
  assert_ok(brim_loader_create(device, s, &o, &l));
  assert_ok(brim_loader_next(l, &held));
  for (int k = 0; k < 30; k++) {
    assert_ok(brim_loader_next(l, &other));
    if (k == 3) {
      assert_status(brim_loader_next(l, &more), BRIM_ESTATE);
      assert_detail("release");
    }
    assert_ok(brim_device_copy(device, first[k], held->input, sizeof first[k], BRIM_COPY_D2H));
    assert_ok(brim_device_copy(device, got[k], other->input, sizeof got[k], BRIM_COPY_D2H));
    for (uint64_t r = 0; r < BATCH; r++) {
      assert_int_equal(held->index[r], loader_order(&o, COUNT, 0, r));
    }
    if (k == 11) assert_ok(brim_loader_seek(l, 5, 3));
    brim_loader_release(l, other);
  }
  assert_ok(brim_device_sync(device));
  for (uint64_t r = 0; r < BATCH; r++) {
    assert_ok(brim_source_read(s, held->index[r], 1, expected, first[0], NULL, NULL));
    for (int k = 1; k < 30; k++) assert_memory_equal(first[k] + r * 108, expected, 108);
    uint64_t index = loader_order(&o, COUNT, 5, 3 + r);
    assert_ok(brim_source_read(s, index, 1, expected, first[0], NULL, NULL));
    assert_memory_equal(got[12] + r * 108, expected, 108);
  }
  brim_loader_release(l, held);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
  brim_source_close(s);
  sim_device_close(device);
}

//---------------------------------- what goes wrong ----------------------------------

static bool has_rows(const char *path) {
  brim_source *s = open_file(path);
  brim_source_rows rows;
  bool has = brim_source_rows_of(s, &rows);
  if (has) {
    assert_int_equal(brim_mapped_bytes_with(&table, s, NULL) % 4096, 0);
    assert_true(brim_mapped_bytes_with(&table, s, NULL) >= rows.count * rows.stride);
  } else {
    assert_int_equal(brim_mapped_bytes_with(&table, s, NULL), 0);
    assert_detail("one mapped file");
  }
  brim_source_close(s);
  return has;
}

// The device can read only samples that the file stores as they are.
static void test_which_rows(void **state) {
  (void)state;
  set good = floats("x", COUNT, 6), s;
  const struct {
    hid_t type;
    int what;
    bool direct;
  } rows[] = {{H5T_IEEE_F32LE, 0, true},  {H5T_STD_U8LE, 0, true},    {H5T_IEEE_F32BE, 0, false},
              {H5T_IEEE_F64LE, 0, false}, {H5T_STD_I16LE, 0, false},  {H5T_STD_I8LE, 0, false},
              {H5T_IEEE_F32LE, 1, false}, {H5T_IEEE_F32LE, 2, false}, {H5T_STD_U8LE, 3, false},
              {H5T_STD_U8LE, 4, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    s = good;
    s.type = rows[i].type;
    if (rows[i].what == 1) s.chunk[0] = 10, s.chunk[1] = 6;
    if (rows[i].what == 2) s.compact = true;
    if (rows[i].what >= 3) {  // planes, which become pixels; pixels
      s.rank = 4;
      s.dim[1] = rows[i].what == 3 ? 3 : 4;
      s.dim[2] = 4;
      s.dim[3] = rows[i].what == 3 ? 4 : 3;
    }
    hid_t file = create("which.h5", 0, false);
    put_set(file, &s, NULL);
    put_labels(file, "y", COUNT, 5);
    H5Fclose(file);
    if (has_rows("which.h5") != rows[i].direct) fail_msg("row %zu", i);
  }
}

static void live(brim_alloc_stats *out) { brim_alloc_get_stats(out); }

static void test_refused(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[5]);
  brim_device *device = sim_device_open(SIM_NOBODY);
  brim_source *s = open_file("mapped.h5");
  brim_alloc_stats before, after;
  brim_resident *made = NULL;
  use_transforms(NULL);
  live(&before);
  table_state.lock_status = BRIM_EUNSUPPORTED;
  assert_status(brim_mapped_create_with(&table, device, s, 0, 2, &made), BRIM_EUNSUPPORTED);
  assert_detail("no page can be locked");
  brim_augment_table old = table;
  old.lock = NULL;
  assert_status(brim_mapped_create_with(&old, device, s, 0, 2, &made), BRIM_EUNSUPPORTED);
  assert_detail("does not read mapped files");
  brim_transforms *t = make_transforms(s, 3);
  assert_int_equal(brim_mapped_bytes_with(&table, s, t), 0);
  assert_detail("views: two are the most");
  brim_transforms_destroy(t);
  live(&after);
  assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
  assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
  assert_int_equal(table_state.locks, table_state.unlocks);
  // A device that uses host memory cannot map a set.
  brim_registry *registry;
  assert_ok(brim_registry_create(&registry));
  assert_int_equal(brim_mapped_bytes(registry, device, s, NULL), 0);
  assert_detail("data.augment");
  device->info.host_memory = true;
  assert_int_equal(brim_mapped_bytes(registry, device, s, NULL), 0);
  assert_status(brim_mapped_probe(registry, device, s), BRIM_EUNSUPPORTED);
  assert_detail("host memory");
  brim_registry_destroy(registry);
  brim_source_close(s);
  sim_device_close(device);
}

// Targets with a broken chunk: their samples are left out as workers leave them out, or end the stream.
static void test_broken_targets(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[0]);
  hid_t file = create("broken.h5", 0, false);
  set x = floats("x", COUNT, 3);
  set y = {.name = "y",
           .type = H5T_IEEE_F32LE,
           .rank = 2,
           .dim = {COUNT, 2},
           .chunk = {10, 2},
           .fletcher = true};
  put_set(file, &x, NULL);
  put_set(file, &y, NULL);
  hid_t dataset = H5Dopen2(file, "y", H5P_DEFAULT), space = H5Dget_space(dataset);
  hsize_t at[2] = {30, 0}, size = 0;
  haddr_t address = 0;
  unsigned mask = 0;
  assert_true(H5Dget_chunk_info_by_coord(dataset, at, &mask, &address, &size) >= 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  FILE *f = fopen("broken.h5", "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, (long)address + 8, SEEK_SET), 0);
  assert_int_equal(fputc(0xee, f), 0xee);
  fclose(f);
  for (int skip = 0; skip < 2; skip++) {
    brim_device *device = sim_device_open(SIM_BOTH);
    brim_source *s = open_file("broken.h5");
    brim_loader_options o = options_of(NULL);
    o.skip_broken = skip;
    use_transforms(NULL);
    if (skip) {
      check_same(device, s, o);
    } else {
      brim_loader *l;
      assert_ok(brim_mapped_create_with(&table, device, s, 0, 3, &o.resident));
      assert_status(brim_loader_create(device, s, &o, &l), BRIM_EPARSE);
      assert_detail("x[30]");
      assert_detail("data.on_error=skip");
      brim_resident_destroy(o.resident);
      assert_int_equal(table_state.unlocks, 1);
    }
    brim_source_close(s);
    sim_device_close(device);
  }
}

// A fetch or a launch that fails loses nothing of the stream, whether the batch was being prepared or requested.
static void test_fetch_fails(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[5]);
  brim_device *device = sim_device_open(SIM_NOBODY);
  brim_source *s = open_file("mapped.h5");
  brim_transforms *t = make_transforms(s, 1);
  brim_loader_options o = options_of(t);
  brim_loader *l;
  const brim_loaded *b;
  use_transforms(t);
  assert_ok(brim_mapped_create_with(&table, device, s, 0, 1, &o.resident));
  assert_ok(brim_loader_create(device, s, &o, &l));
  int64_t first = 0;
  for (int k = 0; k < 30; k++) {
    table_state.fetch_status = k % 4 == 1 ? BRIM_EIO : BRIM_OK;
    table_state.run_status = k % 4 == 2 ? BRIM_EIO : BRIM_OK;
    brim_status status = brim_loader_next(l, &b);
    if (status) {
      assert_int_equal(status, BRIM_EIO);
      assert_true(k % 4 == 1 || k % 4 == 2);
      assert_detail(k % 4 == 1 ? "the link is down" : "the device is gone");
      continue;
    }
    assert_true(k % 4 != 2);
    assert_int_equal(b->first + b->epoch * COUNT, first);
    first += b->rows;
    brim_loader_release(l, b);
  }
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
  brim_transforms_destroy(t);
  brim_source_close(s);
  sim_device_close(device);
}

// Each allocation fails in turn; none leaks, and no page stays locked.
static void test_allocation_failures(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[1]);
  brim_device *device = sim_device_open(SIM_COPY_FIRST);
  brim_source *s = open_file("mapped.h5");
  uint64_t n = 1;
  for (;; n++) {
    brim_alloc_stats before, after;
    brim_loader_options o = options_of(NULL);
    brim_loader *l = NULL;
    const brim_loaded *b;
    use_transforms(NULL);
    live(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_mapped_create_with(&table, device, s, 0, 2, &o.resident);
    if (!status) status = brim_loader_create(device, s, &o, &l);
    if (!status) status = brim_loader_next(l, &b);
    brim_alloc_fail_nth(0, 0);
    bool failed = brim_alloc_failures() != failures;
    assert_true(!status || brim_status_detail()[0]);
    brim_loader_destroy(l);
    brim_resident_destroy(o.resident);
    assert_int_equal(table_state.locks, table_state.unlocks);
    live(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
    if (!failed) {
      assert_ok(status);
      break;
    }
    assert_true(status == BRIM_ENOMEM || status == BRIM_EOOM);
  }
  assert_true(n > 8);
  brim_source_close(s);
  sim_device_close(device);
}

// The plan has the batches on the device and the lists on the host, and equals the allocated memory.
static void test_plan(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  make_file("mapped.h5", &shapes[6]);
  for (int views = 0; views <= 2; views++) {
    brim_device *device = sim_device_open(SIM_NOBODY);
    brim_source *s = open_file("mapped.h5");
    brim_transforms *t = views ? make_transforms(s, views) : NULL;
    brim_loader_options o = options_of(t);
    brim_loader *l;
    brim_plan plan = {0};
    brim_alloc_stats before, after;
    use_transforms(t);
    assert_ok(brim_mapped_create_with(&table, device, s, 0, 1, &o.resident));
    s->host_bytes = 0;  // memory of the source does not count as the loader's
    assert_ok(brim_loader_plan(s, &o, &plan));
    assert_int_equal(plan.row_count, 2);
    assert_string_equal(plan.rows[0].name, "loader ring");
    assert_string_equal(plan.rows[1].name, "augmented batch");
    size_t batches = (views ? (size_t)views + 1 : 1) * 2 * BATCH * IMAGE;
    assert_true(plan.bytes[BRIM_PLACE_DEVICE] >= batches + 2 * BATCH * 4 + 2 * 2 * BATCH * 8);
    assert_true(plan.bytes[BRIM_PLACE_DEVICE] < batches + 16 * 256);
    live(&before);
    assert_ok(brim_loader_create(device, s, &o, &l));
    live(&after);
    assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                     plan.bytes[BRIM_PLACE_HOST] + plan.bytes[BRIM_PLACE_DEVICE]);
    brim_loader_destroy(l);
    brim_resident_destroy(o.resident);
    brim_transforms_destroy(t);
    brim_source_close(s);
    sim_device_close(device);
  }
}

static int done(void **state) {
  (void)state;
  use_transforms(NULL);
  return 0;
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_as_workers),
      cmocka_unit_test(test_parts_limits_ranks),
      cmocka_unit_test(test_held),
      cmocka_unit_test(test_which_rows),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_broken_targets),
      cmocka_unit_test(test_fetch_fails),
      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, done);
}
