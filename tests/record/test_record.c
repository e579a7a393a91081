// Results to JSON and back, .jsonl files and their errors, the public reader.
#include "record/record.h"
#include "record/record_findings.h"

#include <math.h>

#include "base/base_words.h"
#include "brim/record.h"
#include "test.h"

static brim_stats_summary summary_of(double median) {
  return (brim_stats_summary){.n = 7,
                              .min = median - 1,
                              .max = median + 1,
                              .mean = median + 0.125,
                              .stddev = 0.5,
                              .median = median,
                              .mad = 0.25,
                              .p05 = median - 0.75,
                              .p95 = median + 0.75,
                              .p99 = median + 0.875,
                              .ci_low = median - 0.1,
                              .ci_high = median + 0.1};
}

static void add_knob(brim_result *r, const char *name, const char *value, double number) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%s", value);
  k->number = number;
}

static void fill(brim_result *r) {
  brim_result_init(r);
  r->when_s = 1794709229.5;
  strcpy(r->workload, "supervised");
  strcpy(r->device, "시험 장치 \"x\"");
  strcpy(r->device_id, "GPU-1");
  strcpy(r->backend, "cuda");
  r->cores = 8;
  r->threads = 4;
  r->seed = UINT64_MAX;
  add_knob(r, "batch_size", "256", 256);
  add_knob(r, "precision", "bf16", NAN);
  add_knob(r, "pin_memory", "true", NAN);
  r->config = json_pack("{s:i}", "seed", 3);
  r->phase_used[BRIM_PHASE_IO] = r->phase_used[BRIM_PHASE_FORWARD] = true;
  r->phase_ms[BRIM_PHASE_IO] = summary_of(2.5);
  r->phase_ms[BRIM_PHASE_FORWARD] = summary_of(0.1);
  r->total_ms = summary_of(31.0);
  r->samples_per_s = 1234.5;
  r->samples_per_s_low = 1200;
  r->plan.rows[0] = (brim_plan_row){"parameters", BRIM_PLACE_DEVICE, 1000};
  r->plan.rows[1] = (brim_plan_row){"loader ring", BRIM_PLACE_HOST, 1ull << 40};
  r->plan.row_count = 2;
  r->plan.bytes[BRIM_PLACE_DEVICE] = 1000;
  r->plan.bytes[BRIM_PLACE_HOST] = 1ull << 40;
  r->plan.parameter_count = 250;
  r->plan.flops_per_step = 1e12;
  r->total_bytes = 2e10;
  r->ceilings.gemm_bf16_flops = 6.5e14;
  r->ceilings.load = 0.25;
  r->ceilings.copy_bytes_per_s = 4.2e12;
  r->ceilings.h2d_pageable_bytes_per_s = 1.25e10;
  r->steps = 10;
  r->stable = true;
  r->failure = BRIM_FAILURE_OOM_DEVICE;
  r->failure_status = BRIM_EOOM;
  strcpy(r->message, "no\nroom");
  r->finding_count = 1;
  strcpy(r->findings[0].code, "io_wait");
  r->findings[0].cost_ms = 2.5;
  strcpy(r->findings[0].text, "waits");
  strcpy(r->findings[0].remedy, "more workers");
  strcpy(r->findings[0].key, "data.num_workers");
  strcpy(r->findings[0].value, "4");
  r->findings[0].measured = r->findings[0].note = true;
  r->stage_count = 1;
  strcpy(r->stages[0].name, "gaussian_blur");
  r->stages[0].ms = 1.5;
}

static void same_summary(const brim_stats_summary *a, const brim_stats_summary *b) {
  assert_int_equal(a->n, b->n);
  assert_true(a->median == b->median && a->mad == b->mad && a->p05 == b->p05 && a->p95 == b->p95);
  assert_true(a->p99 == b->p99 && a->mean == b->mean && a->stddev == b->stddev);
  assert_true(a->min == b->min && a->max == b->max);
  assert_true(a->ci_low == b->ci_low && a->ci_high == b->ci_high);
}

// Writes a record as JSON text and reads it back, as through a file.
static void through_text(const brim_result *from, brim_result *to) {
  json_t *json, *again;
  char *text;
  assert_ok(brim_result_to_json(from, &json));
  assert_ok(brim_json_dump(json, 0, &text));
  assert_null(strchr(text, '\n'));
  assert_ok(brim_json_parse(text, strlen(text), "x", &again));
  assert_ok(brim_result_from_json(again, "x", 1, to));
  brim_free(text);
  json_decref(json);
  json_decref(again);
}

static void test_round_trip(void **state) {
  (void)state;
  brim_result a, b;
  fill(&a);
  through_text(&a, &b);
  assert_true(b.when_s == a.when_s);
  assert_string_equal(b.device, a.device);
  assert_int_equal(b.seed, UINT64_MAX);
  assert_int_equal(b.knob_count, 3);
  assert_string_equal(b.knobs[0].value, "256");
  assert_true(b.knobs[0].number == 256);
  assert_string_equal(b.knobs[1].value, "bf16");
  assert_true(isnan(b.knobs[1].number));
  assert_string_equal(b.knobs[2].value, "true");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) assert_true(b.phase_used[p] == a.phase_used[p]);
  same_summary(&b.phase_ms[BRIM_PHASE_IO], &a.phase_ms[BRIM_PHASE_IO]);
  same_summary(&b.phase_ms[BRIM_PHASE_FORWARD], &a.phase_ms[BRIM_PHASE_FORWARD]);
  same_summary(&b.total_ms, &a.total_ms);
  assert_true(b.samples_per_s == 1234.5 && b.samples_per_s_low == 1200);
  assert_int_equal(b.plan.row_count, 2);
  assert_string_equal(b.plan.rows[1].name, "loader ring");
  assert_int_equal(b.plan.rows[1].place, BRIM_PLACE_HOST);
  assert_true(b.plan.rows[1].bytes == 1ull << 40);
  assert_true(b.plan.bytes[BRIM_PLACE_HOST] == 1ull << 40);
  assert_int_equal(b.plan.parameter_count, 250);
  assert_int_equal(b.failure, BRIM_FAILURE_OOM_DEVICE);
  assert_int_equal(b.failure_status, BRIM_EOOM);
  assert_string_equal(b.message, a.message);
  assert_int_equal(b.finding_count, 1);
  assert_string_equal(b.findings[0].remedy, "more workers");
  assert_string_equal(b.findings[0].key, "data.num_workers");
  assert_string_equal(b.findings[0].value, "4");
  assert_true(b.findings[0].measured && b.findings[0].note);
  assert_int_equal(b.stage_count, 1);
  assert_string_equal(b.stages[0].name, "gaussian_blur");
  assert_float_equal(b.stages[0].ms, 1.5, 1e-12);
  assert_true(json_equal(a.config, b.config));
  assert_true(b.stable);
  assert_true(b.ceilings.gemm_bf16_flops == 6.5e14 && b.ceilings.copy_bytes_per_s == 4.2e12);
  assert_true(b.ceilings.h2d_pageable_bytes_per_s == 1.25e10 && b.ceilings.load == 0.25);
  assert_true(isnan(b.ceilings.gemm_fp32_flops) && isnan(b.ceilings.h2d_pinned_bytes_per_s));
  brim_result_deinit(&a);
  brim_result_deinit(&b);
}

static json_t *finding_of(json_t *result) {
  return json_array_get(json_object_get(result, "findings"), 0);
}

static void reads_as(const brim_result *r, const char *language, const char *text,
                     const char *remedy) {
  brim_str out;
  brim_str_init(&out);
  brim_words_read_in(brim_msg_catalogue_of(language), r->findings[0].text, &out);
  assert_string_equal(out.data, text);
  brim_str_clear(&out);
  brim_words_read_in(brim_msg_catalogue_of(language), r->findings[0].remedy, &out);
  assert_string_equal(out.data, remedy);
  brim_str_deinit(&out);
}

// A record has a finding's English text in every language of its writer, and the parts that make the sentence in other
// languages. If the two disagree the text counts; old records have only the text.
static void test_findings_in_every_language(void **state) {
  (void)state;
  static const char english[] = "waiting for data takes 40 % of a step";
  static const char remedy[] = "run brim bench to find its remedy";
  brim_result a, b;
  json_t *json;
  brim_result_init(&a);
  brim_finding *f = brim_finding_add(&a, "io_wait", 2.5);
  assert_true(brim_msg_set_language("ko"));
  const char *korean_remedy = brim_tr("run brim bench to find its remedy");
  char korean[128];
  snprintf(korean, sizeof korean, brim_tr("waiting for data takes %.0f %% of a step"), 40.0);
  brim_words_add(f->text, sizeof f->text, BRIM_N_("waiting for data takes %.0f %% of a step"),
                 40.0);
  brim_words_put(f->remedy, sizeof f->remedy, BRIM_N_("run brim bench to find its remedy"));
  brim_words_add(a.shared_with, sizeof a.shared_with,
                 BRIM_N_("another container's process (pid %u)"), 7U);
  assert_string_not_equal(korean, english);
  assert_ok(brim_result_to_json(&a, &json));
  assert_true(brim_msg_set_language("en"));
  assert_string_equal(json_string_value(json_object_get(finding_of(json), "text")), english);
  assert_string_equal(json_string_value(json_object_get(finding_of(json), "remedy")), remedy);
  assert_ok(brim_result_from_json(json, "x", 1, &b));
  reads_as(&b, "en", english, remedy);
  reads_as(&b, "ko", korean, korean_remedy);
  assert_string_equal(b.shared_with, a.shared_with);
  assert_string_equal(
      json_string_value(json_object_get(json_object_get(json, "sharing"), "processes")),
      "another container's process (pid 7)");
  brim_result_deinit(&b);
  // pages have the parts, because their reader chooses the language; parts that a sender wrote there are dropped
  json_t *page = json_deep_copy(finding_of(json));
  json_object_set_new(page, "ko", json_string("forged"));
  assert_ok(brim_finding_add_language(page, brim_msg_catalogue_of("ko")));
  assert_string_equal(json_string_value(json_object_get(json_object_get(page, "ko"), "text")),
                      korean);
  assert_string_equal(json_string_value(json_object_get(json_object_get(page, "ko"), "remedy")),
                      korean_remedy);
  json_decref(page);
  // edited by hand
  json_object_set_new(finding_of(json), "text", json_string("edited"));
  assert_ok(brim_result_from_json(json, "x", 1, &b));
  reads_as(&b, "ko", "edited", korean_remedy);
  brim_result_deinit(&b);
  // a message of another version has no translation; a value stays text, whatever it contains
  json_object_set_new(finding_of(json), "text", json_string("5 %s of it %n"));
  json_object_set_new(finding_of(json), "text_words",
                      json_string("\x01%.0f %%s of it %s\x02"
                                  "5\x02%n\x03"));
  assert_ok(brim_result_from_json(json, "x", 1, &b));
  reads_as(&b, "ko", "5 %s of it %n", korean_remedy);
  brim_result_deinit(&b);
  // an old record of a Korean writer
  json_object_set_new(finding_of(json), "text", json_string(korean));
  json_object_del(finding_of(json), "text_words");
  json_object_del(finding_of(json), "remedy_words");
  assert_ok(brim_result_from_json(json, "x", 1, &b));
  reads_as(&b, "en", korean, remedy);
  brim_result_deinit(&b);
  json_decref(json);
  brim_result_deinit(&a);
}

// A record names its kind and its version of brim. One without these is a trial of this version.
static void test_kind_and_version(void **state) {
  (void)state;
  brim_result a, b;
  brim_result_init(&a);
  through_text(&a, &b);
  assert_string_equal(b.kind, "");
  assert_string_equal(b.version, BRIM_VERSION);
  brim_result_deinit(&b);
  strcpy(a.kind, "verify");
  strcpy(a.version, "9.9");
  through_text(&a, &b);
  assert_string_equal(b.kind, "verify");
  assert_string_equal(b.version, "9.9");
  brim_result_deinit(&b);
  brim_result_deinit(&a);
}

// Unknown is null in the file and NaN here; it never becomes 0.
static void test_unknown_is_null(void **state) {
  (void)state;
  brim_result a, b;
  json_t *json;
  brim_result_init(&a);
  assert_ok(brim_result_to_json(&a, &json));
  assert_true(json_is_null(json_object_get(json_object_get(json, "throughput"), "samples_per_s")));
  assert_true(json_is_null(json_object_get(json_object_get(json, "memory"), "overhead")));
  assert_true(json_is_null(json_object_get(json, "failure")));
  const json_t *machine = json_object_get(json, "machine");
  assert_int_equal(json_object_size(machine), 9);
#define X(name) assert_true(json_is_null(json_object_get(machine, #name)));
  BRIM_MACHINE_MAP(X)
#undef X
  assert_int_equal(json_object_size(json_object_get(json, "phases")), 0);
  json_decref(json);
  through_text(&a, &b);
  assert_true(isnan(b.samples_per_s) && isnan(b.gpu_percent) && isnan(b.free_bytes));
  assert_true(isnan(b.total_ms.median) && isnan(b.when_s) && isnan(b.seconds));
#define X(name) assert_true(isnan(b.ceilings.name));
  BRIM_MACHINE_MAP(X)
#undef X
  brim_result_deinit(&a);
  brim_result_deinit(&b);
}

static void test_flops_by_precision(void **state) {
  (void)state;
  brim_machine_ceilings c;
  brim_machine_ceilings_init(&c);
  assert_true(isnan(brim_machine_flops(&c, "bf16")));
  c.gemm_fp32_flops = 1;
  c.gemm_tf32_flops = 2;
  c.gemm_bf16_flops = 3;
  c.gemm_fp16_flops = 4;
  assert_true(brim_machine_flops(&c, "fp32") == 1 && brim_machine_flops(&c, "tf32") == 2);
  assert_true(brim_machine_flops(&c, "bf16") == 3 && brim_machine_flops(&c, "fp16") == 4);
  assert_true(isnan(brim_machine_flops(&c, "")) && isnan(brim_machine_flops(&c, "fp8")));
}

static void test_text_that_is_cut(void **state) {
  (void)state;
  brim_result a, b;
  json_t *json;
  brim_result_init(&a);
  a.host[0] = (char)0xED;  // half a character: written as '?'
  assert_ok(brim_result_to_json(&a, &json));
  assert_string_equal(json_string_value(json_object_get(json_object_get(json, "where"), "host")),
                      "?");
  // A name longer than its field is cut at a character.
  char name[256] = "";
  for (int i = 0; i < 25; i++) strcat(name, "한");
  json_object_set_new(json_object_get(json, "where"), "host", json_string(name));
  assert_ok(brim_result_from_json(json, "x", 1, &b));
  assert_int_equal(strlen(b.host), 63);
  assert_true(brim_utf8_valid(b.host, strlen(b.host)));
  json_decref(json);
  brim_result_deinit(&b);
}

static void test_wrong_kinds(void **state) {
  (void)state;
  static const struct {
    const char *text, *said;
  } cases[] = {
      {"3", "object"},
      {"{}", "schema"},
      {"{\"schema\":\"brim.result/9\"}", "brim.result/9"},
      {"{\"schema\":\"brim.result/1\",\"where\":{\"cores\":\"x\"}}", "where.cores"},
      {"{\"schema\":\"brim.result/1\",\"where\":{\"cores\":1e30}}", "where.cores"},
      {"{\"schema\":\"brim.result/1\",\"where\":{\"device\":1}}", "where.device"},
      {"{\"schema\":\"brim.result/1\",\"where\":[]}", "where"},
      {"{\"schema\":\"brim.result/1\",\"what\":{\"seed\":-1}}", "what.seed"},
      {"{\"schema\":\"brim.result/1\",\"what\":{\"seed\":\"99999999999999999999\"}}", "what.seed"},
      {"{\"schema\":\"brim.result/1\",\"phases\":{\"io\":3}}", "io"},
      {"{\"schema\":\"brim.result/1\",\"phases\":{\"io\":{\"median_ms\":\"a\"}}}", "median_ms"},
      {"{\"schema\":\"brim.result/1\",\"plan\":{\"rows\":[{\"name\":1}]}}", "name"},
      {"{\"schema\":\"brim.result/1\",\"plan\":{\"rows\":[{\"name\":\"a\",\"place\":\"moon\"}]}}",
       "place"},
      {"{\"schema\":\"brim.result/1\",\"failure\":{}}", "class"},
      {"{\"schema\":\"brim.result/1\",\"trial\":{\"stable\":1}}", "trial.stable"},
      {"{\"schema\":\"brim.result/1\",\"machine\":{\"copy_bytes_per_s\":\"x\"}}", "machine.copy"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    json_t *json;
    brim_result r;
    assert_ok(brim_json_parse(cases[i].text, strlen(cases[i].text), "x", &json));
    assert_status(brim_result_from_json(json, "file.jsonl", 12, &r), BRIM_EPARSE);
    assert_non_null(strstr(brim_status_detail(), "file.jsonl:12:"));
    if (!strstr(brim_status_detail(), cases[i].said)) {
      fail_msg("case %zu: '%s' is not in: %s", i, cases[i].said, brim_status_detail());
    }
    json_decref(json);
  }
}

static void test_file(void **state) {
  (void)state;
  brim_result list[2], *read;
  size_t count;
  fill(&list[0]);
  fill(&list[1]);
  list[1].samples_per_s = NAN;
  assert_ok(brim_results_write("r.jsonl", list, 2));
  assert_ok(brim_results_read("r.jsonl", &read, &count, NULL));
  assert_int_equal(count, 2);
  assert_true(read[0].samples_per_s == 1234.5);
  assert_true(isnan(read[1].samples_per_s));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&read[i]);
  brim_free(read);

  brim_records *records;
  double number;
  const char *text;
  assert_ok(brim_records_open("r.jsonl", &records));
  assert_int_equal(brim_records_count(records), 2);
  assert_ok(brim_records_number(records, 0, "throughput.samples_per_s", &number));
  assert_true(number == 1234.5);
  assert_ok(brim_records_number(records, 1, "throughput.samples_per_s", &number));
  assert_true(isnan(number));
  assert_ok(brim_records_number(records, 0, "phases.forward.median_ms", &number));
  assert_true(number == 0.1);
  assert_ok(brim_records_string(records, 0, "where.device", &text));
  assert_string_equal(text, list[0].device);
  assert_status(brim_records_number(records, 0, "throughput.nothing", &number), BRIM_ENOENT);
  assert_status(brim_records_number(records, 7, "throughput", &number), BRIM_ENOENT);
  assert_status(brim_records_number(records, 0, "where.device", &number), BRIM_EINVAL);
  assert_status(brim_records_string(records, 0, "where.cores", &text), BRIM_EINVAL);
  brim_records_close(records);
  brim_result_deinit(&list[0]);
  brim_result_deinit(&list[1]);
}

static void test_broken_files(void **state) {
  (void)state;
  static const char good[] = "{\"schema\":\"brim.result/1\"}";
  char text[256];
  brim_result *read;
  brim_records *records;
  size_t count;
  snprintf(text, sizeof text, "%s\n\n  \n{\"schema\":\n%s\n", good, good);
  assert_ok(brim_fs_write("bad.jsonl", text, strlen(text)));
  assert_status(brim_results_read("bad.jsonl", &read, &count, NULL), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "bad.jsonl:4:"));
  assert_status(brim_records_open("bad.jsonl", &records), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "bad.jsonl:4:"));
  assert_null(records);
  assert_status(brim_results_read("absent.jsonl", &read, &count, NULL), BRIM_ENOENT);
  assert_ok(brim_fs_write("empty.jsonl", "", 0));
  assert_ok(brim_results_read("empty.jsonl", &read, &count, NULL));
  assert_int_equal(count, 0);
  brim_free(read);
}

// A writer was killed in the middle of a line: a caller may ask for the complete lines.
static void test_torn_file(void **state) {
  (void)state;
  static const char good[] = "{\"schema\":\"brim.result/1\"}";
  static const struct {
    const char *end;  // appended to two good lines
    bool torn;
    size_t count;
    brim_status status;
  } rows[] = {{"", false, 2, BRIM_OK},
              {"{\"schema\":\"brim.res", true, 2, BRIM_OK},
              {"{", true, 2, BRIM_OK},
              // complete except for the newline
              {"{\"schema\":\"brim.result/1\"}", false, 3, BRIM_OK},
              {"  ", false, 2, BRIM_OK},
              {"{\"schema\":\n", false, 0, BRIM_EPARSE},  // a complete line, but broken JSON
              {"{\"schema\":\"other\"}", false, 0, BRIM_EPARSE}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[256];
    brim_result *read;
    size_t count;
    bool torn = true;
    snprintf(text, sizeof text, "%s\n%s\n%s", good, good, rows[i].end);
    assert_ok(brim_fs_write("torn.jsonl", text, strlen(text)));
    assert_int_equal(brim_results_read("torn.jsonl", &read, &count, &torn), rows[i].status);
    assert_int_equal(torn, rows[i].torn);
    assert_int_equal(count, rows[i].count);
    for (size_t k = 0; k < count; k++) brim_result_deinit(&read[k]);
    brim_free(read);
    if (!rows[i].torn) continue;
    assert_status(brim_results_read("torn.jsonl", &read, &count, NULL), BRIM_EPARSE);
  }
}

// Each allocation of a write and a read fails once: an error each time, and nothing is left behind.
static void test_out_of_memory(void **state) {
  (void)state;
  brim_result a, *read;
  size_t count;
  fill(&a);
  assert_ok(brim_results_write("oom.jsonl", &a, 1));
  brim_alloc_stats before, after;
  for (uint64_t n = 1; n < 5000; n++) {
    brim_alloc_get_stats(&before);
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_results_write("oom2.jsonl", &a, 1);
    if (!status) status = brim_results_read("oom.jsonl", &read, &count, NULL);
    bool done = !status;
    brim_alloc_fail_nth(0, 0);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    if (done) {
      brim_result_deinit(&read[0]);
      brim_free(read);
    }
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    if (done) {
      assert_true(n > 20);
      brim_result_deinit(&a);
      return;
    }
  }
  fail_msg("still failing after 5000 allocations");
}

// Every failure class has its own name, found again by it, and a rule for retries.
static void test_classes_of_failure(void **state) {
  (void)state;
  for (int i = 0; i < BRIM_FAILURE_COUNT; i++) {
    assert_int_equal(brim_failure_of(brim_failure_name((brim_failure)i)), i);
  }
  assert_int_equal(brim_failure_of("a class of a later brim"), BRIM_FAILURE_OTHER);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_NAN), BRIM_RETRY_NEVER);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_OOM_DEVICE), BRIM_RETRY_NEVER);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_DATA), BRIM_RETRY_NEVER);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_CRASH), BRIM_RETRY_COUNTED);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_HUNG), BRIM_RETRY_COUNTED);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_KILLED), BRIM_RETRY_FREE);
  assert_int_equal(brim_failure_retry_of(BRIM_FAILURE_INFRASTRUCTURE), BRIM_RETRY_FREE);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_unknown_is_null),
      cmocka_unit_test(test_flops_by_precision),
      cmocka_unit_test(test_text_that_is_cut),
      cmocka_unit_test(test_findings_in_every_language),
      cmocka_unit_test(test_kind_and_version),
      cmocka_unit_test(test_wrong_kinds),
      cmocka_unit_test(test_file),
      cmocka_unit_test(test_broken_files),
      cmocka_unit_test(test_torn_file),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_classes_of_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
