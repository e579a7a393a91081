// Lines of an export as a user may have edited them: any bytes become records or an error, and a page made from the
// records has valid JSON as its data.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "record/record_lab.h"
#include "ui/sweep/ui_sweep.h"

static bool metric(void *ctx, const char *workload, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  (void)workload;
  const unsigned first = (unsigned char)key[0];
  *out = (brim_sweep_metric){.better = (brim_metric_better)(first % 3),
                             .format = (brim_metric_format)(first % 5)};
  return first % 7 != 0;
}

// A default may be any text.
static const char *default_of(void *ctx, const char *key) {
  (void)ctx;
  return key[0] % 2 ? key : NULL;
}

static void check_page(const brim_lab_set *set) {
  static const char begin[] = "<script type=\"application/json\" id=\"data\">";
  const brim_ui_lab_options options = {.title = "fuzz", .place = "x", .now_s = 1};
  brim_str page;
  brim_str_init(&page);
  if (brim_ui_lab_report(&options, set, &page)) abort();
  const char *data = strstr(page.data, begin);
  const char *end = data ? strstr(data, "</script>") : NULL;
  json_t *value = NULL;
  if (!end) abort();
  data += strlen(begin);
  if (brim_json_parse(data, (size_t)(end - data), "data", &value)) abort();
  json_decref(value);
  brim_str_deinit(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const brim_lab_options options = {.metric = metric, .default_of = default_of};
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = NULL;
  if (brim_lab_reader_create(&options, &reader)) abort();
  int line = 1;
  for (size_t at = 0; at < size; line++) {
    const uint8_t *end = memchr(data + at, '\n', size - at);
    const size_t length = end ? (size_t)(end - (data + at)) : size - at;
    json_t *value = NULL;
    if (!brim_json_parse((const char *)data + at, length, "line", &value)) {
      (void)brim_lab_reader_add(reader, value, "fuzz", line);
      json_decref(value);
    }
    at += length + 1;
  }
  if (brim_lab_reader_finish(reader, &set)) abort();
  check_page(set);
  brim_lab_comparison comparison;
  if (!brim_lab_compare(set, set, BRIM_LAB_BEST, &comparison)) {
    brim_lab_comparison_deinit(&comparison);
  }
  for (size_t i = 0; i < set->key_count; i++) {
    if (!brim_lab_compare_by(set, set->keys[i].name, BRIM_LAB_LAST, &comparison)) {
      brim_lab_comparison_deinit(&comparison);
    }
  }
  brim_lab_reader_destroy(reader);
  return 0;
}
