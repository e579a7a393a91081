// The summary of a profile and its page. With a folder as argument it writes pages there for people to look at.
#include "profile_record.h"
#include "ui/profile/ui_profile.h"

static const brim_term wide = {.unicode = true, .width = 110};
static const brim_term narrow = {.width = 80};

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void lacks(const char *text, const char *part) {
  if (strstr(text, part)) fail_msg("\"%s\" is in:\n%s", part, text);
}

static char *summary(const brim_term *term, const brim_profile *p, brim_profile_list by,
                     brim_ui_profile_sort sort, size_t limit) {
  brim_str out;
  brim_str_init(&out);
  const brim_ui_profile_options how = {.by = by, .sort = sort, .limit = limit};
  assert_ok(brim_ui_profile(term, p, &how, &out));
  char *text = brim_str_take(&out);
  assert_non_null(text);
  return text;
}

static void test_gpu(void **state) {
  (void)state;
  brim_profile p;
  make_gpu_profile(&p);
  assert_int_equal(brim_ui_profile_finest(&p), BRIM_PROFILE_KERNELS);
  char *text = summary(&wide, &p, BRIM_PROFILE_KERNELS, BRIM_UI_PROFILE_TIME, 10);
  has(text, "12.5 ms ± 0.080 (median and MAD, untraced), 40,960 samples/s");
  has(text, "batch_size=512 precision=bf16");
  has(text, "62 % bf16");
  has(text, "8 more: 0.84 ms");
  has(text, "GPU idle: the step waited for data");
  has(text, "--limit 18 shows all");
  has(text, "GPU idle: 2.20 ms of each step (18 %)");
  has(text, "1.40 ms  the step waited for data");
  has(text, "1.60 ms in step 3, after brim_sgd<float>, before Memcpy HtoD");
  has(text, "1.5 MiB in 0.90 ms per step, 0.60 ms of it exposed");
  has(text, "1.5 MiB came");
  has(text, "from pageable memory.");
  has(text, "waited for data (1 per step)");
  has(text, "random_resized_crop");
  has(text, "4 loader workers read for 6.00 ms per step, added up, and transform for 34.0 ms.");
  has(text, "Peak at conv block.11: 112.0 MiB");
  has(text, "38.1 MiB  parameters (whole run)");
  lacks(text, "activations (whole run)");
  has(text, "The step waits for data. (1.40 ms per step, estimated)");
  has(text, "window costs 0.1 %.");
  has(text, "Measuring took 9.4 s, attaching the tracer 1.2 s, 40 traced steps 510 ms.");
  has(text, "A traced step took 0.20 ms");
  lacks(text, "nothing worth fixing");
  brim_free(text);
  brim_profile_deinit(&p);
}

static void test_cpu(void **state) {
  (void)state;
  brim_profile p;
  make_cpu_profile(&p);
  char *text = summary(&narrow, &p, brim_ui_profile_finest(&p), BRIM_UI_PROFILE_TIME, 10);
  has(text, "Ops, by time; together 100 % of the step");
  has(text, "nothing worth fixing");
  has(text, "72 %: at this machine's measured ceilings the ops");
  has(text, "9.00 ms");
  lacks(text, "GPU idle");
  lacks(text, "Host to device");
  lacks(text, "loader worker");
  lacks(text, "nan");
  brim_free(text);
  p.workers = 0;
  p.worker_io_ms = 6;
  text = summary(&wide, &p, brim_ui_profile_finest(&p), BRIM_UI_PROFILE_TIME, 10);
  has(text, "Without loader workers, the step itself reads for 6.00 ms.");
  brim_free(text);
  p.workers = 1;
  p.worker_transform_ms = 3;
  text = summary(&wide, &p, brim_ui_profile_finest(&p), BRIM_UI_PROFILE_TIME, 10);
  has(text, "One loader worker reads for 6.00 ms per step and transforms for 3.00 ms.");
  brim_free(text);
  // ops that are a small part of a step do not describe it
  brim_profile_rows *ops = &p.lists[BRIM_PROFILE_OPS];
  for (size_t i = 0; i < ops->count; i++) ops->items[i].ms /= 4;
  text = summary(&narrow, &p, brim_ui_profile_finest(&p), BRIM_UI_PROFILE_TIME, 10);
  lacks(text, "measured ceilings");
  brim_free(text);
  brim_profile_deinit(&p);
}

// True if the first words of row `a` come before those of row `b` in the text.
static bool before(const char *text, const char *a, const char *b) {
  has(text, a);
  has(text, b);
  return strstr(text, a) < strstr(text, b);
}

static void test_orders(void **state) {
  (void)state;
  brim_profile p;
  make_gpu_profile(&p);
  char *text = summary(&wide, &p, BRIM_PROFILE_KERNELS, BRIM_UI_PROFILE_CEILING, 0);
  assert_true(before(text, "brim_batchnorm_backward", "void cutlass"));
  assert_true(before(text, "void cutlass", "Memcpy HtoD  "));  // unknown sorts last
  brim_free(text);
  text = summary(&wide, &p, BRIM_PROFILE_KERNELS, BRIM_UI_PROFILE_NAME, 0);
  assert_true(before(text, "brim_batchnorm_backward", "brim_elementwise_0"));
  assert_true(before(text, "brim_elementwise_9", "void cutlass"));
  brim_free(text);
  text = summary(&wide, &p, BRIM_PROFILE_PHASES, BRIM_UI_PROFILE_SHARE, 2);
  has(text, "3 more: ");
  brim_free(text);
  brim_profile_deinit(&p);
}

static void test_narrow(void **state) {
  (void)state;
  brim_profile p;
  make_gpu_profile(&p);
  char *text = summary(&narrow, &p, BRIM_PROFILE_KERNELS, BRIM_UI_PROFILE_TIME, 10);
  for (const char *line = text; *line;) {
    const size_t n = strcspn(line, "\n");
    char one[512];
    assert_true(n < sizeof one);
    memcpy(one, line, n);
    one[n] = '\0';
    if (brim_utf8_width(one) > 80) fail_msg("wider than 80: %s", one);
    line += n + (line[n] != '\0');
  }
  brim_free(text);
  brim_profile_deinit(&p);
}

// Only the step time is known.
static void test_empty(void **state) {
  (void)state;
  brim_profile p;
  brim_profile_init(&p);
  p.step_ms = 3;
  char *text = summary(&narrow, &p, BRIM_PROFILE_OPS, BRIM_UI_PROFILE_TIME, 10);
  lacks(text, "Ceiling");
  lacks(text, "nan");
  brim_free(text);
  brim_str page;
  brim_str_init(&page);
  assert_ok(brim_ui_profile_page(&p, NULL, &page));
  lacks(page.data, "nan");
  brim_str_deinit(&page);
  brim_profile_deinit(&p);
}

static void test_page(void **state) {
  (void)state;
  brim_profile p;
  brim_str page;
  make_gpu_profile(&p);
  snprintf(p.memory.blocks[0].name, sizeof p.memory.blocks[0].name, "</script><b>");
  brim_str_init(&page);
  assert_ok(brim_ui_profile_page(&p, "brim profile a.yaml", &page));
  has(page.data, "<h1>resnet18 on 50,000 samples of 32x32x3 u8</h1>");
  has(page.data, "block.3 &lt;b&gt;");
  lacks(page.data, "</script><b>");
  has(page.data, "data-list=\"transforms\"");
  has(page.data, "id=\"memory-chart\"");
  has(page.data, "<b>1.40 ms per step</b> (11 %), estimated");
  has(page.data, "brim profile a.yaml");
  lacks(page.data, "http://");
  lacks(page.data, "https://");
  brim_str_deinit(&page);
  brim_profile_deinit(&p);
}

static void test_memory_runs_out(void **state) {
  (void)state;
  brim_profile p;
  make_gpu_profile(&p);
  const brim_ui_profile_options how = {.by = BRIM_PROFILE_KERNELS, .limit = 10};
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    brim_str out, page;
    brim_str_init(&out);
    brim_str_init(&page);
    brim_alloc_fail_nth(n, 0);
    const brim_status a = brim_ui_profile(&wide, &p, &how, &out);
    const brim_status b = a ? a : brim_ui_profile_page(&p, "brim", &page);
    brim_alloc_fail_nth(0, 0);
    failed = b != BRIM_OK;
    brim_str_deinit(&out);
    brim_str_deinit(&page);
    assert_true(n < 20000);
  }
  brim_profile_deinit(&p);
}

static void write_page(const char *folder, const char *name, const brim_profile *p) {
  brim_str page;
  brim_str_init(&page);
  char *path = brim_fs_join(folder, name);
  assert_ok(brim_ui_profile_page(p, "brim profile configs/cifar10-resnet.yaml", &page));
  assert_ok(brim_fs_write(path, page.data, page.len));
  brim_free(path);
  brim_str_deinit(&page);
}

int main(int argc, char **argv) {
  if (argc == 2) {
    brim_profile p;
    make_gpu_profile(&p);
    write_page(argv[1], "gpu.html", &p);
    char *text = summary(&wide, &p, BRIM_PROFILE_KERNELS, BRIM_UI_PROFILE_TIME, 10);
    puts(text);
    brim_free(text);
    brim_profile_deinit(&p);
    make_cpu_profile(&p);
    write_page(argv[1], "cpu.html", &p);
    brim_profile_deinit(&p);
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpu),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_orders),
      cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_empty),
      cmocka_unit_test(test_page),
      cmocka_unit_test(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
