// Experiments for tests, as lines of brim.experiment/1.
#ifndef BRIM_TESTS_LAB_LINES_H_
#define BRIM_TESTS_LAB_LINES_H_

#include <stdio.h>

#include "base/base.h"
#include "record/record_lab.h"
#include "test.h"

typedef struct lab_line {
  int n;              // determines the id
  const char *label;  // NULL = ""
  const char *config;
  const char *state;  // NULL = "done"
  const char *metric_key;
  const char *metric;   // a number, NULL = null
  const char *metrics;  // an object
  const char *failure, *reason, *last_lines, *attempts;
} lab_line;

static inline const char *or_text(const char *text, const char *other) {
  return text ? text : other;
}

// One line in the format of brim_store_export. The texts are inserted unescaped, so they must be valid JSON strings.
static inline void lab_line_text(const lab_line *l, brim_str *out) {
  brim_str_printf(out,
                  "{\"schema\": \"brim.experiment/1\", \"id\": \"%08x%024d\", \"grid\": \"g\", "
                  "\"index\": %d, \"label\": \"%s\", \"config\": %s, \"tags\": \"\", "
                  "\"state\": \"%s\", ",
                  (unsigned)l->n, 0, l->n, or_text(l->label, ""), or_text(l->config, "{}"),
                  or_text(l->state, "done"));
  brim_str_printf(out,
                  "\"metric_key\": \"%s\", \"metric\": %s, \"metrics\": %s, "
                  "\"failure\": \"%s\", \"reason\": \"%s\", \"last_lines\": \"%s\", "
                  "\"attempts\": %s, ",
                  or_text(l->metric_key, "eval_accuracy"), or_text(l->metric, "null"),
                  or_text(l->metrics, "{}"), or_text(l->failure, "none"), or_text(l->reason, ""),
                  or_text(l->last_lines, ""), or_text(l->attempts, "[]"));
  brim_str_append(out,
                  "\"gpus\": 1, \"step\": 40, \"steps\": 100, \"epoch\": 4, \"epochs\": 10, "
                  "\"created_ms\": 1790000000000, \"started_ms\": 1790000001000, "
                  "\"ended_ms\": 1790000061000}");
}

static inline brim_status lab_line_add(brim_lab_reader *reader, const lab_line *l) {
  brim_str text;
  json_t *value = NULL;
  brim_str_init(&text);
  lab_line_text(l, &text);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_parse(text.data, text.len, "line", &value);
  if (!status) status = brim_lab_reader_add(reader, value, "test", 1);
  json_decref(value);
  brim_str_deinit(&text);
  return status;
}

// Accuracies are percentages and losses are numbers; the workload declares no others.
static inline bool lab_metric(void *ctx, const char *workload, const char *key,
                              brim_sweep_metric *out) {
  (void)ctx;
  (void)workload;
  const bool accuracy = strstr(key, "accuracy"), loss = strstr(key, "loss");
  *out = (brim_sweep_metric){.better = accuracy ? BRIM_BETTER_HIGHER : BRIM_BETTER_LOWER,
                             .format = accuracy ? BRIM_METRIC_PERCENT : BRIM_METRIC_STEADY};
  snprintf(out->key, sizeof out->key, "%s", key);
  snprintf(out->label, sizeof out->label, "%s", accuracy ? "val acc" : "loss");
  return accuracy || loss;
}

// One key's default is known.
static inline const char *lab_default(void *ctx, const char *key) {
  (void)ctx;
  return strcmp(key, "seed") == 0 ? "0" : strcmp(key, "training.warmup") == 0 ? "1e1" : NULL;
}

#endif  // BRIM_TESTS_LAB_LINES_H_
