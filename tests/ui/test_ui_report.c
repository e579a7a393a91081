// The HTML report from made-up results: its parts, every text escaped, nothing fetched from outside, and a dash for
// each unknown value. A browser reads it in test_ui_report_chromium.c.
#include "report_results.h"
#include "ui/bench/ui_bench_int.h"

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in the page", part);
}

static void lacks(const char *text, const char *part) {
  const char *at = strstr(text, part);
  if (at) fail_msg("'%s' is in the page: %.120s", part, at);
}

static size_t occurrences(const char *text, const char *part) {
  size_t n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}

// The part of a page between two texts; free it with brim_free.
static char *between(const char *page, const char *from, const char *to) {
  const char *a = strstr(page, from);
  assert_non_null(a);
  const char *b = strstr(a, to);
  assert_non_null(b);
  char *part = brim_alloc((size_t)(b - a) + 1);
  assert_non_null(part);
  memcpy(part, a, (size_t)(b - a));
  part[b - a] = '\0';
  return part;
}

// Every tag is closed by its own name, in order. Text inside a script or a style counts as no tag. memchr, because
// AddressSanitizer lets strchr read to the end of its string: the rest of the page for each tag.
static void check_tags(const char *page) {
  char stack[64][16];
  int depth = 0;
  const char *last = page + strlen(page);
  for (const char *p = page; (p = memchr(p, '<', (size_t)(last - p))); p++) {
    const char *end = memchr(p, '>', (size_t)(last - p));
    assert_non_null(end);
    if (p[1] == '!' || end[-1] == '/') continue;
    bool closing = p[1] == '/';
    char name[16];
    const char *from = p + 1 + closing, *space = memchr(from, ' ', (size_t)(end - from));
    size_t n = (size_t)((space ? space : end) - from);
    assert_true(n > 0 && n < sizeof name);
    memcpy(name, from, n);
    name[n] = '\0';
    if (!closing) {
      assert_true(depth < 64);
      strcpy(stack[depth++], name);
      if (strcmp(name, "script") == 0) p = strstr(p, "</script>") - 1;
      if (strcmp(name, "style") == 0) p = strstr(p, "</style>") - 1;
    } else {
      assert_true(depth > 0);
      assert_string_equal(stack[--depth], name);
    }
  }
  assert_int_equal(depth, 0);
}

// Nothing is fetched, and no NaN or infinity was printed.
static void check_page(const char *page) {
  check_tags(page);
  lacks(page, "http://");
  lacks(page, "https://");
  lacks(page, "src=");
  lacks(page, "url(");
  lacks(page, "@import");
  lacks(page, "\"nan");
  lacks(page, ">nan");
  lacks(page, ">-nan");
  lacks(page, ":nan");
  lacks(page, " nan");
  lacks(page, "inf\"");
  lacks(page, ":inf");
}

static void make_page(const brim_result *list, size_t count, brim_recommendation picks,
                      brim_str *out) {
  brim_ui_report_options how = {.command = "brim bench", .picks = &picks};
  brim_str_init(out);
  assert_ok(brim_ui_report(&how, list, count, out));
  check_page(out->data);
}

static void test_gpu(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_gpu(list);
  make_page(list, GPU_RESULTS, picks, &out);
  assert_int_equal(strncmp(out.data, "<!DOCTYPE html>\n<html lang=\"en\">", 31), 0);
  assert_true(out.len < 400 * 1000);
  static const char *const sections[] = {"best", "findings", "charts", "phases", "use",
                                         "map",  "settings", "plan",   "machine"};
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
    char text[48];
    snprintf(text, sizeof text, "<section id=\"%s\">", sections[i]);
    contains(out.data, text);
  }
  contains(out.data, "<h1>transformer on 178,000 samples of 3000x1 f32</h1>");
  contains(out.data, "Recommended for training");
  contains(out.data, "Highest throughput");
  contains(out.data, "Best efficiency");
  contains(out.data, "NVIDIA H200");
  contains(out.data, "2026-11-15 02:20:29 UTC");
  contains(out.data, "prefers-color-scheme");
  contains(out.data, "@media print");
  contains(out.data, "num_workers 8 -&gt; 16, or data.cache=ram");
  contains(out.data, "<span class=\"price\">\xe2\x80\x93</span>");  // a finding without a price
  contains(out.data, "The clock fell while brim measured 1 setting:");
  contains(out.data, "throttled");
  brim_str_deinit(&out);
}

// Findings are listed under the name of their setting. So is the sentence that there is nothing to fix, above the
// notes.
static void test_findings_are_of_a_setting(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_gpu(list);
  brim_result *r = &list[picks.recommended], *own = r == &list[0] ? &list[1] : &list[0];
  picks.highest = picks.recommended;
  make_page(list, GPU_RESULTS, picks, &out);
  contains(out.data, "Each price is what one remedy saves alone");
  brim_str_deinit(&out);
  // a wait that is not part of a step's own time has no share of it
  r->finding_count = 1;
  r->findings[0].cost_ms = 7 * r->total_ms.median;
  make_page(list, GPU_RESULTS, picks, &out);
  char *price = between(out.data, "<span class=\"price\">", "</span>");
  contains(price, "per step");
  lacks(price, "%");
  brim_free(price);
  brim_str_deinit(&out);
  r->findings[0].note = true;
  own->finding_count = 0;
  brim_ui_report_options how = {.command = "brim bench", .picks = &picks, .own = own};
  brim_str_init(&out);
  assert_ok(brim_ui_report(&how, list, GPU_RESULTS, &out));
  check_page(out.data);
  char *part = between(out.data, "<section id=\"findings\">", "</section>");
  contains(part, "<h3>Recommended for training</h3><p>nothing worth fixing");
  contains(part, "<h3>The config&#39;s own setting</h3><p>nothing worth fixing");
  assert_int_equal(occurrences(part, "nothing worth fixing"), 2);
  lacks(part, "Each price");
  brim_free(part);
  brim_str_deinit(&out);
}

// Every column of seed guide 002's table, and one complete row.
static void test_table(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  static const char *const headers[] = {"Batch",     "Workers", "Precision", "I/O ms", "Fwd ms",
                                        "Bwd ms",    "Opt ms",  "Total ms",  "GPU %",  "Mem",
                                        "Samples/s", "Status",  "H2D ms",    "SM %",   "Data only"};
  brim_str out;
  make_page(list, GPU_RESULTS, make_gpu(list), &out);
  char *table = between(out.data, "<table class=\"all\"", "</table>");
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "<button type=\"button\">%s</button>", headers[i]);
    contains(table, text);
  }
  assert_int_equal(occurrences(table, "<tr id=\"r"), GPU_RESULTS);
  assert_int_equal(occurrences(table, "class=\"best\""), 1);
  assert_int_equal(occurrences(table, "class=\"failed\""), 6);
  contains(table,
           "<tr id=\"r0\"><td>1</td><td>2</td><td>fp32</td><td>true</td><td class=\"status ok\">ok"
           "</td><td>0.01</td>");
  // a setting that did not run: its knobs, its planned memory, dashes in the other columns
  char *failed = between(table, "<tr id=\"r13\"", "</tr>");
  contains(failed, "<td>8192</td><td>2</td><td>fp32</td><td>true</td><td class=\"status warn\"");
  contains(failed, "OOM (planned)</td><td>\xe2\x80\x93</td>");
  contains(failed, "GiB</td>");
  contains(failed, "OOM (planned)");
  contains(failed, "title=\"needs 177.2 GiB");
  lacks(failed, "<td>0");
  brim_free(failed);
  brim_free(table);
  brim_str_deinit(&out);
}

// One line per worker count and precision; crosses for settings that ran out of memory; the limits.
static void test_charts(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_gpu(list);
  make_page(list, GPU_RESULTS, picks, &out);
  char *rate = between(out.data, "<figure class=\"chart\"><figcaption>Throughput", "</figure>");
  assert_int_equal(occurrences(rate, "<g class=\"s c"), 6);
  // one more in the legend
  assert_int_equal(occurrences(rate, "<path class=\"oom\" d=\"M") - 1, 3);
  assert_int_equal(occurrences(rate, "class=\"ci\""), 14 * 6 - 3);
  contains(rate, "Workers 8");
  contains(rate, "bf16");
  contains(rate, "class=\"pick\"");
  contains(rate, "class=\"pt hollow\"");
  contains(rate, "Batch 1024, Workers 8, bf16, Pinned true\n102,776 samples/s (95 %: ");
  contains(rate, "needs 177.2 GiB");
  contains(rate, "At each point: the fastest over Pinned.");
  brim_free(rate);
  char *memory = between(out.data, "<figcaption>Memory planned", "</figure>");
  assert_int_equal(occurrences(memory, "<g class=\"s c"), 2);  // workers do not change memory
  lacks(memory, "hollow");
  contains(memory, "free: 138.9 GiB");
  contains(memory, "80 % of it: 111.1 GiB");
  assert_int_equal(occurrences(memory, "<path class=\"rule\""), 2);
  brim_free(memory);
  brim_str_deinit(&out);
}

static void test_bars(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_gpu(list);
  make_page(list, GPU_RESULTS, picks, &out);
  char *phases = between(out.data, "<section id=\"phases\">", "</section>");
  assert_int_equal(occurrences(phases, "<div class=\"sg\""), 12);
  assert_int_equal(occurrences(phases, "hidden=\"hidden\""), 11);  // the shown setting is the first
  assert_int_equal(occurrences(phases, "<div class=\"sr on\""), 1);
  contains(phases, "Waited I/O");
  contains(phases, "Exposed H2D");
  contains(phases, "Optimizer");
  contains(phases, "<em>OOM (planned)</em>");
  brim_free(phases);
  char *use = between(out.data, "<section id=\"use\">", "</section>");
  static const char *const rungs[] = {"GPU busy",     "SMs active",    "Occupancy",
                                      "Tensor cores", "Device memory", "Power"};
  for (size_t i = 0; i < 6; i++) contains(use, rungs[i]);
  contains(use, "data-key=\"power\" data-unit=\" W of 700 W\" data-max=\"700\"");
  contains(use, "Data alone");
  contains(use, "Device alone");
  contains(use, "98 % of the slower stage (loading).");
  brim_free(use);
  char *plan = between(out.data, "<section id=\"plan\">", "</section>");
  contains(plan, "Batch 1024, Workers 8, bf16, Pinned true");
  contains(plan, "<th>activations</th><td>device</td><td>11.8 GiB</td>");
  contains(plan, "<th>overhead (CUDA context, libraries)</th><td>device</td><td>612.0 MiB</td>");
  brim_free(plan);
  brim_str_deinit(&out);
}

// The recommendation in the terminal's words: gain, reason, faster settings, and whether it is provisional.
static void test_decision(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  const brim_recommendation alone = make_cpu(list);
  brim_recommendation d = {.highest = alone.highest,
                           .efficient = alone.efficient,
                           .recommended = alone.recommended,
                           .provisional = true,
                           .now = 0,
                           .gain = {1.43, 1.31, 1.52},
                           .beside = 3,
                           .more = {1.2, 1.1, 1.3},
                           .beside_text = "but batch_size 1024 changes <learning>",
                           .reason = "num_workers 2 and 0 cannot be told apart in this sweep"};
  brim_ui_report_options how = {.picks = &d};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
  check_page(out.data);
  char *best = between(out.data, "<section id=\"best\">", "</section>");
  contains(best, "<div class=\"hero provisional\">");
  contains(best, "<span class=\"warn\">(provisional: another may be faster)</span>");
  contains(best, "<dt>Now \xe2\x86\x92 recommended</dt><dd>x1.43 [1.31, 1.52]</dd>");
  contains(best, "<dt>Why</dt><dd>num_workers 2 and 0 cannot be told apart in this sweep</dd>");
  contains(best,
           "<dt>Faster still</dt><dd>x1.20 [1.10, 1.30], but batch_size 1024 changes "
           "&lt;learning&gt;</dd>");
  brim_free(best);
  brim_str_clear(&out);
  d = alone;
  d.now = alone.recommended;
  d.gain = (brim_interval){1, 0, 0};
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
  best = between(out.data, "<section id=\"best\">", "</section>");
  contains(best, "<h2>Keep your setting</h2>");
  contains(best, "<dd>keep your setting: no other is certainly faster</dd>");
  lacks(best, "provisional");
  lacks(best, "Faster still");
  lacks(best, "<dt>Why");
  brim_free(best);
  brim_str_clear(&out);
  for (int sure = 0; sure < 2; sure++) {  // "already the fastest" only when that is certain
    d.own_is_fastest = true;
    d.provisional = !sure;
    assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
    best = between(out.data, "<section id=\"best\">", "</section>");
    contains(best, sure ? "<dd>keep your setting: it is already the fastest</dd>"
                        : "<dd>keep your setting: no other is certainly faster</dd>");
    brim_free(best);
    brim_str_clear(&out);
  }
  d.own_is_fastest = d.provisional = false;
  d.now = -1;  // no current setting is known
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
  best = between(out.data, "<section id=\"best\">", "</section>");
  lacks(best, "class=\"decision\"");
  brim_free(best);
  brim_str_deinit(&out);
}

// Loading or computing alone that is slower than both together was measured while the machine was busy: the page warns
// of it.
static void test_busy_ceiling(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  brim_result *r = &list[picks.recommended];
  r->data_samples_per_s = 4 * r->samples_per_s;
  r->compute_samples_per_s = r->samples_per_s / 1.25;
  make_page(list, CPU_RESULTS, picks, &out);
  contains(out.data, "<p class=\"warn\">computing alone was slower than both together");
  lacks(out.data, "125 %");
  brim_str_deinit(&out);
  r->compute_samples_per_s = r->samples_per_s * 1.25;
  make_page(list, CPU_RESULTS, picks, &out);
  contains(out.data, "<p>80 % of the slower stage (computing).</p>");
  lacks(out.data, "slower than both");
  brim_str_deinit(&out);
  r->data_samples_per_s = NAN;
  make_page(list, CPU_RESULTS, picks, &out);
  contains(out.data, "<p>80 % of computing alone.</p>");
  contains(out.data, "Ceilings of this job, samples/s");
  brim_str_deinit(&out);
  snprintf(r->unit, sizeof r->unit, "points");
  make_page(list, CPU_RESULTS, picks, &out);
  contains(out.data, "Ceilings of this job, points/s");
  lacks(out.data, "Ceilings of this job, samples/s");
  brim_str_deinit(&out);
}

static void test_heat(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_str out;
  make_page(list, GPU_RESULTS, make_gpu(list), &out);
  char *map = between(out.data, "<section id=\"map\">", "</section>");
  contains(map, "Batch \\ Workers");  // workers make the largest difference
  contains(map, "<option value=\"pin_memory\">");
  assert_int_equal(occurrences(map, "<td"), 14 * 3);
  assert_int_equal(occurrences(map, "class=\"top\""), 1);
  assert_int_equal(occurrences(map, "class=\"best\""),
                   1);  // one for the recommended setting, one for another
  contains(map, "<td class=\"top\" style=\"--q:100\">103,799</td>");
  lacks(map, "OOM");  // bf16 fits where fp32 does not: the cell shows the best
  brim_free(map);
  brim_str_deinit(&out);
}

// A CPU page has CPU % and RSS, no GPU columns, no heading without content.
static void test_cpu(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  make_page(list, CPU_RESULTS, make_cpu(list), &out);
  contains(out.data, "<button type=\"button\">CPU %</button>");
  contains(out.data, "<button type=\"button\">Peak RSS</button>");
  contains(out.data, "data-key=\"cpu\" data-unit=\" %\" data-max=\"100\"");
  lacks(out.data, "GPU");
  lacks(out.data, "DRAM");
  lacks(out.data, "H2D ms");
  lacks(out.data, "id=\"ceilings\"");
  contains(out.data, "far above: free 5.6 GiB, 80 % of it 4.5 GiB");
  brim_str_deinit(&out);
}

// Texts from records are escaped everywhere.
static void test_escaped(void **state) {
  (void)state;
  static const char evil[] = "<script>alert('x & \"y\"')</script>";
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  for (int i = 0; i < CPU_RESULTS; i++) {
    brim_result *r = &list[i];
    strcpy(r->device, evil);
    strcpy(r->cpu, evil);
    strcpy(r->host, evil);
    strcpy(r->description, evil);
    strcpy(r->message, evil);
    snprintf(r->knobs[1].name, sizeof r->knobs[1].name, "%s", "<script>k</script>");
    snprintf(r->knobs[1].value, sizeof r->knobs[1].value, "<script>%d</script>", i % 2);
    snprintf(r->knobs[2].value, sizeof r->knobs[2].value, "<b>%d</b>", i % 3);
    r->knobs[1].number = NAN;
    r->plan.rows[0].name = "<script>row</script>";
    add_finding(r, "<x>", 1.5, evil, evil);
  }
  forget(&list[3], BRIM_FAILURE_OOM_DEVICE, evil);
  brim_ui_report_options how = {.title = evil, .command = evil, .picks = &picks};
  brim_str_init(&out);
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
  check_page(out.data);
  assert_int_equal(occurrences(out.data, "<script"), 1);  // only the page's own
  lacks(out.data, "<b>0");
  lacks(out.data, "alert('");
  contains(out.data, "&lt;script&gt;alert(&#39;x &amp; &quot;y&quot;&#39;)&lt;/script&gt;");
  brim_str_deinit(&out);
}

// An unknown value is a dash, and a chart without values is left out.
static void test_unknown(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  for (int i = 0; i < CPU_RESULTS; i++) {
    list[i].samples_per_s_low = list[i].samples_per_s_high = list[i].epoch_s = NAN;
    list[i].peak_rss_bytes = list[i].free_bytes = list[i].total_bytes = NAN;
    list[i].cpu_percent = i == 0 ? 50 : NAN;
    list[i].seconds = NAN;
  }
  make_page(list, CPU_RESULTS, picks, &out);
  char *row = between(out.data, "<tr id=\"r1\"", "</tr>");
  contains(row, "<td>\xe2\x80\x93</td>");
  brim_free(row);
  lacks(out.data, "class=\"ci\"");
  lacks(out.data, "Peak RSS");
  lacks(out.data, "One epoch</dt>");
  contains(out.data, "<th>process at its peak</th><td>host</td><td>\xe2\x80\x93</td>");
  brim_str_deinit(&out);
}

// Other shapes of sweeps: none, one setting, no batch size, a knob of zeros, many values.
static void test_shapes(void **state) {
  (void)state;
  static brim_result list[60];
  brim_str out;
  const brim_recommendation none = picked(-1, -1, -1), beyond = picked(70, 99, 60);
  make_page(NULL, 0, none, &out);
  contains(out.data, "nothing to recommend");
  brim_str_deinit(&out);
  make_gpu_one(&list[0], 3);
  make_page(list, 1, picked(0, 0, 0), &out);
  contains(out.data, "<span>1 setting</span>");
  lacks(out.data, "<section id=\"map\">");
  brim_str_deinit(&out);
  for (int i = 0; i < 60; i++) {
    make_gpu_one(&list[i], i % 14);
    list[i].knob_count = 0;
    add_number(&list[i], "num_envs", 1 << i % 20);
    add_number(&list[i], "dir_chunk", i / 5);
  }
  make_page(list, 60, beyond, &out);
  contains(out.data, "num_envs");
  contains(out.data, " settings are in the table only.");  // more values than colours
  contains(out.data, "No setting is recommended");
  brim_str_deinit(&out);
  for (int i = 0; i < 60; i++) {
    list[i].knob_count = 0;
    add_number(&list[i], "num_workers", i);  // 0 has no place on a logarithmic axis
  }
  make_page(list, 60, picked(7, 7, 7), &out);
  lacks(out.data, "<section id=\"charts\">");
  contains(out.data, "<div class=\"stack wide\"");
  brim_str_deinit(&out);
  for (int i = 0; i < 60; i++) list[i].knob_count = 0;
  make_page(list, 60, none, &out);
  brim_str_deinit(&out);
}

// A failure of every kind, with the words of its message.
static void test_failures(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  make_cpu(list);
  enum { CLASSES = 9 };  // some kinds twice
  for (int i = 0; i < CPU_RESULTS; i++) {
    forget(&list[i], (brim_failure)(1 + i % CLASSES), i % 3 ? "why" : "");
  }
  make_page(list, CPU_RESULTS, picked(-1, -1, -1), &out);
  contains(out.data, "No setting ran");
  contains(out.data, "14 settings did not run");
  contains(out.data, " and 1 more</span>");  // each reason once
  lacks(out.data, "<section id=\"charts\">");
  lacks(out.data, "<section id=\"map\">");
  contains(out.data, "crashed");
  brim_str_deinit(&out);
}

// Every class of failure has a text of its own.
static void test_failure_texts(void **state) {
  (void)state;
  brim_result a = {0}, b = {0};
  for (int i = 0; i < BRIM_FAILURE_COUNT; i++) {
    a.failure = (brim_failure)i;
    assert_true(brim_ui_failure_text(&a)[0] != '\0');
    for (int k = 0; k < i; k++) {
      b.failure = (brim_failure)k;
      assert_string_not_equal(brim_ui_failure_text(&a), brim_ui_failure_text(&b));
    }
  }
}

// A page in another language names that language, and its texts come from the catalogue.
static void test_language(void **state) {
  (void)state;
  static const brim_msg_pair korean[] = {
      {"All settings", "모든 설정"},
      {"Recommended for training", "학습 권장 설정"},
      {"Waited I/O", "I/O 대기"},
      {"en", "ko"},
  };
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  brim_msg_set_catalogue(korean, 4);
  make_page(list, CPU_RESULTS, picks, &out);
  brim_msg_set_catalogue(NULL, 0);
  contains(out.data, "<html lang=\"ko\">");
  contains(out.data, "<h2>모든 설정</h2>");
  contains(out.data, "<h2>학습 권장 설정</h2>");
  contains(out.data, "I/O 대기");
  lacks(out.data, "All settings");
  brim_str_deinit(&out);
}

// The line of the fastest setting mentions that its times were unsteady.
static void test_unsteady(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  picks.recommended = 3;
  make_page(list, CPU_RESULTS, picks, &out);
  lacks(out.data, "samples/s, <span class=\"warn\">");
  brim_str_deinit(&out);
  list[picks.highest].stable = false;
  make_page(list, CPU_RESULTS, picks, &out);
  contains(out.data, "samples/s, <span class=\"warn\">unstable</span></p>");
  brim_str_deinit(&out);
}

// The checklist and the notes, if there are any, and the machine's limits.
static void test_advice(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_advice advice = {.check_count = 2};
  const brim_recommendation picks = make_cpu(list);
  brim_ui_report_options how = {.picks = &picks, .advice = &advice};
  advice.checks[0].done = true;
  strcpy(advice.checks[0].text, "benchmark run");
  strcpy(advice.checks[1].text, "mixed precision <on>");
  strcpy(advice.learning_rate, "the batch is 4 times as large");
  list[picks.recommended].ceilings.gemm_bf16_flops = 791.4e12;
  list[picks.recommended].ceilings.copy_bytes_per_s = 4.12e12;
  brim_str_init(&out);
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
  check_page(out.data);
  contains(out.data, "<section id=\"before\">");
  contains(out.data, "<li class=\"done\"><span>done</span> benchmark run</li>");
  contains(out.data, "<li class=\"open\"><span>to do</span> mixed precision &lt;on&gt;</li>");
  contains(out.data, "<p>the batch is 4 times as large</p>");
  contains(out.data, "bf16 791 TFLOP/s, copies in its memory 4,120 GB/s");
  brim_str_deinit(&out);
  make_page(list, CPU_RESULTS, picks, &out);
  lacks(out.data, "<section id=\"before\">");
  brim_str_deinit(&out);
}

// One setting was planned beyond the free memory, small ones ran: the chart draws the lines of free memory between
// them.
static void test_planned_beyond(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_str out;
  brim_recommendation picks = make_cpu(list);
  list[6].plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)7e9;
  forget(&list[6], BRIM_FAILURE_OOM_PLANNED, "needs 6.5 GiB, 5.6 GiB are free");
  list[13].plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)7e12;
  forget(&list[13], BRIM_FAILURE_OOM_PLANNED, "needs 6.4 TiB, 5.6 GiB are free");
  make_page(list, CPU_RESULTS, picks, &out);
  char *memory = between(out.data, "<figcaption>Memory planned", "</figure>");
  lacks(memory, "far above");
  assert_int_equal(occurrences(memory, "<path class=\"rule\""), 2);
  contains(memory, "free: 5.6 GiB");
  contains(memory, "80 % of it: 4.5 GiB");
  contains(memory, "needs 6.4 TiB");
  contains(memory, "Crosses at four times the free memory mean that much or more.");
  lacks(memory, " TiB</text>");  // this setting is drawn lower than its size
  brim_free(memory);
  brim_str_deinit(&out);
  // A setting was refused by a limit far below the free memory: no drawn point comes near the lines.
  list[6].plan.bytes[BRIM_PLACE_DEVICE] = list[13].plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)5e6;
  make_page(list, CPU_RESULTS, picks, &out);
  memory = between(out.data, "<figcaption>Memory planned", "</figure>");
  contains(memory, "far above: free 5.6 GiB, 80 % of it 4.5 GiB");
  lacks(memory, "Crosses at");
  assert_int_equal(occurrences(memory, "<path class=\"rule\""), 0);
  brim_free(memory);
  brim_str_deinit(&out);
}

// The rate of training beside the predicted one, and how much of the training it covers.
static void test_verified(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_verification v = {.predicted = {.value = 20000},
                         .achieved = 19500,
                         .samples = 40000,
                         .seconds = 2.25,
                         .cap_s = 60,
                         .epochs = 3,
                         .steps = 1250};
  const brim_recommendation picks = make_cpu(list);
  brim_ui_report_options how = {.picks = &picks, .verified = &v};
  static const char *const texts[] = {
      "over 2.25 s, a part of an epoch (1,250 steps): --verify-seconds ended it after 1 min 00 s",
      "over 2.25 s of 1 epoch (1,250 steps)", "over 2.25 s of 2 short epochs (1,250 steps)"};
  for (size_t i = 0; i < 3; i++) {
    brim_str out;
    brim_str_init(&out);
    v.epochs = (int64_t)i;
    assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &out));
    check_page(out.data);
    contains(out.data, "predicted 20,000 samples/s, achieved 19,500: 97.5 %");
    contains(out.data, texts[i]);
    brim_str_deinit(&out);
  }
  // every figure has its explanation
  char text[320];
  brim_ui_verified_comment(&v, text);
  contains(text, "too unsteady");
  v.predicted.low = 18000, v.predicted.high = 22000;
  v.others_then = v.others_now = NAN;
  brim_ui_verified_comment(&v, text);
  contains(text, "within the 18,000 to 22,000");
  v.achieved = 44800;
  brim_ui_verified_comment(&v, text);
  contains(text, "above the 18,000 to 22,000");
  v.others_then = 60, v.others_now = 5;
  brim_ui_verified_comment(&v, text);
  contains(text, "60 % of the CPU during the sweep and 5 % now");
  v.others_then = 5;
  v.achieved = 9000;
  brim_ui_verified_comment(&v, text);
  contains(text, "below the 18,000 to 22,000");
}

static void test_out_of_memory(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  const brim_recommendation picks = make_gpu(list);
  brim_ui_report_options how = {.command = "brim bench", .picks = &picks};
  for (uint64_t n = 1; n < 2000; n++) {
    brim_str out;
    brim_alloc_fail_nth(n, 1);
    brim_str_init(&out);
    brim_status status = brim_ui_report(&how, list, GPU_RESULTS, &out);
    brim_alloc_fail_nth(0, 0);
    brim_str_deinit(&out);
    if (!status) {
      assert_true(n > 10);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("still failing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpu),      cmocka_unit_test(test_findings_are_of_a_setting),
      cmocka_unit_test(test_table),    cmocka_unit_test(test_charts),
      cmocka_unit_test(test_bars),     cmocka_unit_test(test_heat),
      cmocka_unit_test(test_cpu),      cmocka_unit_test(test_escaped),
      cmocka_unit_test(test_unknown),  cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_failures), cmocka_unit_test(test_failure_texts),
      cmocka_unit_test(test_decision), cmocka_unit_test(test_busy_ceiling),
      cmocka_unit_test(test_language), cmocka_unit_test(test_advice),
      cmocka_unit_test(test_unsteady), cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_verified), cmocka_unit_test(test_planned_beyond),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
