// The union of intervals against counting every nanosecond, and the places where libcupti is searched.
#include <unistd.h>

#include "profile/cupti/cupti_int.h"
#include "test.h"

//---------------------------------- sums ----------------------------------

enum { SPAN = 200, MOST = 40 };

static uint32_t next_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

// Counts nanosecond by nanosecond.
static void brute_force(const brim_cupti_record *records, size_t count, uint64_t begin,
                        uint64_t end, brim_gpu_trace_sum *out) {
  uint64_t busy = 0, kernel = 0, ns[BRIM_CUPTI_WORK_COUNT] = {0};
  *out = (brim_gpu_trace_sum){0};
  for (uint64_t t = begin; t < end; t++) {
    bool any = false, any_kernel = false;
    for (size_t i = 0; i < count; i++) {
      if (t < records[i].start || t >= records[i].end) continue;
      any = true;
      any_kernel |= records[i].work == BRIM_CUPTI_WORK_KERNEL;
      ns[records[i].work]++;
    }
    busy += any;
    kernel += any_kernel;
  }
  for (size_t i = 0; i < count; i++) {
    const brim_cupti_record *r = &records[i];
    if (r->end < begin || r->start > end) continue;
    bool h2d = r->work == BRIM_CUPTI_WORK_H2D, d2h = r->work == BRIM_CUPTI_WORK_D2H;
    out->kernels += r->work == BRIM_CUPTI_WORK_KERNEL;
    out->copies += r->work != BRIM_CUPTI_WORK_KERNEL && r->work != BRIM_CUPTI_WORK_MEMSET;
    out->h2d_bytes += h2d ? r->bytes : 0;
    out->d2h_bytes += d2h ? r->bytes : 0;
    out->pageable_bytes += (h2d || d2h) && r->pageable ? r->bytes : 0;
  }
  out->wall_ms = (double)(end - begin) / 1e6;
  out->busy_ms = (double)busy / 1e6;
  out->kernel_ms = (double)kernel / 1e6;
  out->h2d_ms = (double)ns[BRIM_CUPTI_WORK_H2D] / 1e6;
  out->d2h_ms = (double)ns[BRIM_CUPTI_WORK_D2H] / 1e6;
  out->d2d_ms = (double)ns[BRIM_CUPTI_WORK_D2D] / 1e6;
  out->memset_ms = (double)ns[BRIM_CUPTI_WORK_MEMSET] / 1e6;
}

static void assert_same_sum(const brim_gpu_trace_sum *a, const brim_gpu_trace_sum *b) {
  assert_true(a->wall_ms == b->wall_ms && a->busy_ms == b->busy_ms);
  assert_true(a->kernel_ms == b->kernel_ms && a->memset_ms == b->memset_ms);
  assert_true(a->h2d_ms == b->h2d_ms && a->d2h_ms == b->d2h_ms && a->d2d_ms == b->d2d_ms);
  assert_int_equal(a->kernels, b->kernels);
  assert_int_equal(a->copies, b->copies);
  assert_int_equal(a->h2d_bytes, b->h2d_bytes);
  assert_int_equal(a->d2h_bytes, b->d2h_bytes);
  assert_int_equal(a->pageable_bytes, b->pageable_bytes);
}

static void test_union_is_what_counting_gives(void **state) {
  (void)state;
  uint32_t seed = 5;
  for (int round = 0; round < 3000; round++) {
    brim_cupti_record records[MOST];
    size_t count = next_random(&seed) % (MOST + 1);
    uint32_t longest = 1 + next_random(&seed) % 40;  // sparse ones and dense ones
    for (size_t i = 0; i < count; i++) {
      uint64_t start = next_random(&seed) % SPAN;
      records[i] =
          (brim_cupti_record){.start = start,
                              .end = start + next_random(&seed) % longest,
                              .bytes = next_random(&seed) % 1000,
                              .work = (brim_cupti_work)(next_random(&seed) % BRIM_CUPTI_WORK_COUNT),
                              .pageable = next_random(&seed) % 2};
    }
    uint64_t begin = next_random(&seed) % SPAN, end = begin + next_random(&seed) % SPAN;
    brim_gpu_trace_sum want, got;
    brute_force(records, count, begin, end, &want);
    brim_cupti_sum(records, count, begin, end, &got);
    assert_same_sum(&want, &got);
    assert_true(got.kernel_ms <= got.busy_ms && got.busy_ms <= got.wall_ms);
  }
}

// Times as CUPTI gives them: nanoseconds since 1970.
static void test_large_times_lose_nothing(void **state) {
  (void)state;
  const uint64_t t = 1794740997142158613u;
  brim_cupti_record records[] = {{.start = t + 3, .end = t + 4, .work = BRIM_CUPTI_WORK_KERNEL},
                                 {.start = t + 1, .end = t + 2, .work = BRIM_CUPTI_WORK_KERNEL}};
  brim_gpu_trace_sum sum;
  brim_cupti_sum(records, 2, t, t + 10, &sum);
  assert_true(sum.busy_ms == 2 / 1e6 && sum.wall_ms == 10 / 1e6);
  brim_cupti_sum(NULL, 0, t, t + 10, &sum);
  assert_true(sum.busy_ms == 0 && sum.kernels == 0);
}

//---------------------------------- where it lies ----------------------------------

static void put(const char *root, const char *file) {
  char path[512];
  snprintf(path, sizeof path, "%s%s", root, file);
  char *folder = brim_fs_dirname(path);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  assert_ok(brim_fs_write(path, "", 0));
}

static int index_of(char *const *names, const char *root, const char *file) {
  char path[512];
  snprintf(path, sizeof path, "%s%s", root, file);
  for (int i = 0; names[i]; i++) {
    if (strcmp(names[i], path) == 0) return i;
  }
  return -1;
}

// Each allocation fails once.
static void names_without_memory(const brim_cupti_places *places) {
  for (uint64_t n = 1;; n++) {
    char **names = NULL;
    uint64_t failed = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_cupti_names(places, &names);
    brim_alloc_fail_nth(0, 0);
    if (brim_alloc_failures() == failed) {
      assert_ok(status);
      brim_cupti_names_free(names);
      break;
    }
    assert_status(status, BRIM_ENOMEM);
    assert_null(names);
  }
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  assert_int_equal(stats.live_blocks[BRIM_MEM_OVERHEAD], 0);
}

static void test_where_it_is_looked_for(void **state) {
  (void)state;
  char here[256];
  assert_non_null(getcwd(here, sizeof here));
  char root[300];
  snprintf(root, sizeof root, "%s/cupti-root", here);
  static const char *const files[] = {
      "/toolkit/extras/CUPTI/lib64/libcupti.so.13",
      "/usr/local/cuda/lib64/libcupti.so.12",
      "/usr/local/cuda/lib64/libcupti.so",
      "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
      "/env/lib/libcupti.so.12",
      "/opt/torch/.venv/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
      "/home/me/.local/lib/python3.10/site-packages/nvidia/cu13/lib/libcupti.so.13",
      "/usr/local/lib/python3.13/dist-packages/nvidia/cu13/lib/libcupti.so.13",
  };
  enum { FILES = sizeof files / sizeof *files };
  for (int i = 0; i < FILES; i++) put(root, files[i]);
  put(root, "/odd[1]/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
  const brim_cupti_places places = {.root = root,
                                    .cuda_home = "/toolkit",
                                    .cuda_path = "",
                                    .virtual_env = "/venv",
                                    .conda_prefix = "/env",
                                    .home = "/home/me",
                                    .path = "relative/bin:/opt/torch/.venv/bin::/odd[1]/bin:/bin"};
  char **names = NULL;
  assert_ok(brim_cupti_names(&places, &names));
  int at[FILES], count = 0;
  for (int i = 0; i < FILES; i++) {
    at[i] = index_of(names, root, files[i]);
    if (at[i] < 0) fail_msg("%s is not found", files[i]);
  }
  while (names[count]) count++;
  assert_int_equal(count, FILES + 3);  // and the loader's three names
  assert_string_equal(names[0], "libcupti.so.13");
  int twelve = index_of(names, "", "libcupti.so.12");
  int any = index_of(names, "", "libcupti.so");
  assert_true(twelve > 0 && any > twelve);
  for (int i = 0; i < FILES; i++) {
    bool is13 = brim_str_ends(files[i], ".13"), is12 = brim_str_ends(files[i], ".12");
    assert_int_equal(at[i] < twelve, is13);
    assert_int_equal(at[i] > twelve && at[i] < any, is12);
  }
  brim_cupti_names_free(names);

  const brim_cupti_places nowhere = {.root = "/nonexistent"};
  assert_ok(brim_cupti_names(&nowhere, &names));
  for (count = 0; names[count];) count++;
  assert_int_equal(count, 3);
  brim_cupti_names_free(names);
  brim_cupti_names_free(NULL);
  names_without_memory(&places);
}

// The library of this machine, with or without a GPU and a driver: opening it gives an answer and leaves nothing
// behind.
static void test_the_library_of_this_machine(void **state) {
  (void)state;
  for (int round = 0; round < 2; round++) {
    brim_gpu_trace *trace = NULL;
    brim_status status = brim_gpu_trace_open(&trace);
    if (!status) {
      status = brim_gpu_trace_start(trace);
      brim_gpu_trace_sum sum;
      if (!status) assert_ok(brim_gpu_trace_stop(trace, &sum));
      brim_gpu_trace_close(trace);
    } else {
      assert_null(trace);
    }
    if (status) {
      print_message("no traces here: %s\n", brim_status_detail());
      assert_int_equal(status, BRIM_EUNSUPPORTED);
      assert_non_null(strstr(brim_status_detail(), "CUPTI"));
    }
  }
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  assert_int_equal(stats.live_blocks[BRIM_MEM_OVERHEAD], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_union_is_what_counting_gives),
      cmocka_unit_test(test_large_times_lose_nothing),
      cmocka_unit_test(test_where_it_is_looked_for),
      cmocka_unit_test(test_the_library_of_this_machine),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
