// A profile: the same after JSON, refused if it is none, sums and shares, and the blocks that are alive at a point of
// the memory timeline.
#include "record/record_profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "test.h"

#define assert_near(value, expected, tolerance) \
  assert_true(fabs((value) - (expected)) <= (tolerance))

static brim_profile_row *add(brim_profile *p, brim_profile_list list, const char *name, double ms) {
  brim_profile_row *row = brim_profile_add(p, list);
  assert_non_null(row);
  snprintf(row->name, sizeof row->name, "%s", name);
  snprintf(row->kind, sizeof row->kind, "op");
  row->ms = ms;
  row->total_ms = ms;
  return row;
}

static void sample(brim_profile *p) {
  brim_profile_init(p);
  snprintf(p->result.workload, sizeof p->result.workload, "supervised");
  snprintf(p->source, sizeof p->source, "cupti");
  brim_words_add(p->note, sizeof p->note, "%d kernels could not be told apart", 2);
  p->step_ms = 10;
  p->step_mad_ms = 0.25;
  p->traced_ms = 10.5;
  p->traced_steps = 20;
  for (int i = 0; i < 40; i++) {  // more than a list's first allocation
    char name[32];
    snprintf(name, sizeof name, "op %02d", i);
    add(p, BRIM_PROFILE_OPS, name, 0.25);
  }
  brim_profile_row *row = &p->lists[BRIM_PROFILE_OPS].items[7];
  snprintf(row->layer, sizeof row->layer, "layer1.0.conv1");
  snprintf(row->ceiling, sizeof row->ceiling, "bf16");
  row->flops = 3e12;
  row->ceiling_share = 0.5;
  add(p, BRIM_PROFILE_TRANSFORMS, "decode", NAN)->total_ms = 30;
  add(p, BRIM_PROFILE_TRANSFORMS, "crop", NAN)->total_ms = 10;
  p->has_gaps = true;
  p->gap_ms = 0.5;
  p->cause_ms[BRIM_GAP_INPUT] = 0.5;
  p->cause_count[BRIM_GAP_INPUT] = 1;
  p->gaps[p->gap_count++] = (brim_profile_gap){.cause = BRIM_GAP_INPUT,
                                               .ms = 0.75,
                                               .step = 3,
                                               .at_ms = 31,
                                               .before = "sgd",
                                               .after = "conv"};
  p->h2d_ms = 1;
  p->h2d_exposed_ms = 0.125;
  p->ranks = 4;
  snprintf(p->exchange_by, sizeof p->exchange_by, "nccl");
  p->exchange_ms = 3;
  p->exchange_exposed_ms = 0.5;
  p->exchange_bytes = 4096;
  p->workers = 4;
  p->seconds = 2;
  p->run_percent = 0.1;
}

static void sample_memory(brim_profile *p) {
  brim_profile_memory *m = &p->memory;
  static const struct {
    double bytes;
    int first, last;
  } blocks[] = {{64, 0, 2}, {128, 1, 1}, {256, 2, 3}, {32, 1, 3}};
  m->point_count = 4;
  m->points = brim_calloc(m->point_count, sizeof *m->points);
  m->block_count = 4;
  m->blocks = brim_calloc(m->block_count, sizeof *m->blocks);
  assert_non_null(m->points);
  assert_non_null(m->blocks);
  for (size_t i = 0; i < 4; i++) {
    snprintf(m->blocks[i].name, sizeof m->blocks[i].name, "t%zu", i);
    m->blocks[i].bytes = blocks[i].bytes;
    m->blocks[i].first = blocks[i].first;
    m->blocks[i].last = blocks[i].last;
    for (int k = blocks[i].first; k <= blocks[i].last; k++) m->points[k].bytes += blocks[i].bytes;
  }
  m->peak = 2;
  m->peak_bytes = m->points[2].bytes;
}

static void test_same_after_json(void **state) {
  (void)state;
  brim_profile p, read;
  json_t *first, *second;
  sample(&p);
  sample_memory(&p);
  brim_profile_finish(&p);
  assert_ok(brim_profile_to_json(&p, &first));
  assert_ok(brim_profile_from_json(first, "a file", &read));
  assert_ok(brim_profile_to_json(&read, &second));
  assert_true(json_equal(first, second));
  assert_string_equal(json_string_value(json_object_get(first, "note")),
                      "2 kernels could not be told apart");
  assert_string_equal(read.note, p.note);  // for a reader in another language
  assert_int_equal(read.lists[BRIM_PROFILE_OPS].count, 40);
  assert_int_equal(read.memory.point_count, 4);
  assert_int_equal(read.gaps[0].cause, BRIM_GAP_INPUT);
  assert_true(isnan(read.cause_ms[BRIM_GAP_SYNC]));
  assert_true(isnan(read.attach_s));
  assert_true(json_is_null(json_object_get(json_object_get(first, "cost"), "attach_s")));
  json_decref(first);
  json_decref(second);
  brim_profile_deinit(&p);
  brim_profile_deinit(&read);
}

static void test_unknown_is_null(void **state) {
  (void)state;
  brim_profile p, read;
  json_t *json;
  brim_profile_init(&p);
  brim_profile_finish(&p);
  assert_ok(brim_profile_to_json(&p, &json));
  assert_true(json_is_null(json_object_get(json, "gaps")));
  assert_true(json_is_null(json_object_get(json_object_get(json, "step"), "ms")));
  assert_int_equal(json_array_size(json_object_get(json, "sums")), 0);
  assert_ok(brim_profile_from_json(json, "a file", &read));
  assert_false(read.has_gaps);
  assert_int_equal(read.memory.peak, -1);
  json_decref(json);
  brim_profile_deinit(&p);
  brim_profile_deinit(&read);
}

static void refused(const char *key, json_t *value, const char *word) {
  brim_profile p, read;
  json_t *json;
  sample(&p);
  assert_ok(brim_profile_to_json(&p, &json));
  assert_int_equal(json_object_set_new(json, key, value), 0);
  assert_status(brim_profile_from_json(json, "a file", &read), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), word));
  json_decref(json);
  brim_profile_deinit(&p);
  brim_profile_deinit(&read);
}

static void test_what_is_wrong_is_named(void **state) {
  (void)state;
  refused("schema", json_string("brim.result/1"), "not a profile");
  refused("ops", json_string("many"), "profile.ops");
  refused("ops", json_pack("[{s:s}]", "ms", "long"), "row.ms");
  refused("step", json_pack("{s:f}", "traced_steps", 1.5), "step.traced_steps");
  refused("gaps", json_pack("{s:[{s:s}]}", "longest", "cause", "magic"), "gaps.longest.cause");
  refused("memory", json_pack("{s:[{s:i}]}", "blocks", "name", 3), "memory.blocks.name");
}

static void test_sums_and_shares(void **state) {
  (void)state;
  brim_profile p;
  sample(&p);
  add(&p, BRIM_PROFILE_OPS, "idle", 0.2);
  brim_profile_finish(&p);
  assert_near(p.sum_ms[BRIM_PROFILE_OPS], 10.2, 1e-9);
  assert_near(brim_profile_sum_percent(&p, BRIM_PROFILE_OPS), 102, 1e-9);
  assert_true(isnan(p.sum_ms[BRIM_PROFILE_TRANSFORMS]));
  assert_true(isnan(p.sum_ms[BRIM_PROFILE_KERNELS]));
  const brim_profile_rows *ops = &p.lists[BRIM_PROFILE_OPS];
  assert_string_equal(ops->items[0].name, "op 00");
  assert_string_equal(ops->items[40].name, "idle");
  assert_near(ops->items[0].share, 0.025, 1e-9);
  const brim_profile_row *slowest = &p.lists[BRIM_PROFILE_TRANSFORMS].items[0];
  assert_string_equal(slowest->name, "decode");
  assert_near(slowest->share, 0.75, 1e-9);
  brim_profile_deinit(&p);
}

static void test_alive_at_a_point(void **state) {
  (void)state;
  brim_profile p;
  size_t at[4];
  sample(&p);
  sample_memory(&p);
  assert_int_equal(brim_profile_alive(&p, 2, at, 4), 3);
  assert_int_equal(at[0], 2);
  assert_int_equal(at[1], 0);
  assert_int_equal(at[2], 3);
  assert_int_equal(brim_profile_alive(&p, 1, at, 2), 3);
  assert_int_equal(at[0], 1);
  assert_int_equal(at[1], 0);
  assert_int_equal(brim_profile_alive(&p, 0, at, 0), 1);
  brim_profile_deinit(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_after_json),        cmocka_unit_test(test_unknown_is_null),
      cmocka_unit_test(test_what_is_wrong_is_named), cmocka_unit_test(test_sums_and_shares),
      cmocka_unit_test(test_alive_at_a_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
