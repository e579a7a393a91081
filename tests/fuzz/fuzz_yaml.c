// Fuzz: any text as a config, in both modes. Every accepted config must resolve, print, load back from the printed
// text, and keep its hash; CHECK must accept every config that RUN accepts.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "workload/workload.h"

// The list of workloads adds their keys and components before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fine) {
  if (!fine) abort();
}

static brim_config *load(const char *text, brim_config_mode mode) {
  brim_config_options options = {.text = text, .text_name = "fuzz", .mode = mode};
  brim_config *config;
  brim_status status = brim_config_load(&options, &config);
  if (!status) return config;
  must(config == NULL);
  must(brim_status_detail()[0] != 0);
  return NULL;
}

static void load_back(const brim_config *config) {
  brim_str text, again;
  brim_str_init(&text);
  brim_str_init(&again);
  must(!brim_config_to_yaml(config, false, &text));
  if (!strstr(text.data, "{{")) {  // a placeholder that yields placeholders would be expanded again
    brim_config *second = load(text.data, BRIM_CONFIG_CHECK);
    must(second != NULL);
    must(!brim_config_to_yaml(second, false, &again));
    must(!strcmp(text.data, again.data));
    brim_config_close(second);
  }
  brim_str_deinit(&text);
  brim_str_deinit(&again);
}

// A stored experiment loads back as the same experiment.
static void store_and_load(const brim_config *point) {
  brim_str text;
  brim_str_init(&text);
  must(!brim_config_to_experiment(point, &text));
  if (!strstr(text.data, "{{")) {
    char before[33], after[33];
    brim_config *again = load(text.data, BRIM_CONFIG_CHECK);
    must(again != NULL);
    must(brim_config_grid_count(again) == 1);
    must(!brim_config_hash(point, BRIM_CONFIG_EXPERIMENT, before));
    must(!brim_config_hash(again, BRIM_CONFIG_EXPERIMENT, after));
    must(!strcmp(before, after));
    brim_config_close(again);
  }
  brim_str_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  if (size) memcpy(text, data, size);
  text[size] = 0;
  brim_config *check = load(text, BRIM_CONFIG_CHECK);
  brim_config *run = load(text, BRIM_CONFIG_RUN);
  must(!run || check);
  if (check) {
    brim_config *point;
    char hash[33];
    brim_str label;
    brim_str_init(&label);
    size_t last = brim_config_grid_count(check) - 1;
    must(!brim_config_hash(check, BRIM_CONFIG_EXPERIMENT, hash));
    must(!brim_config_grid_label(check, last, &label));
    // Printing and loading back is expensive: only for one text in eight.
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) sum += data[i];
    // A placeholder may cause an error in this point that the first point did not have.
    if (!brim_config_grid_point(check, last, &point)) {
      if (sum % 8 == 0) load_back(point);
      if (sum % 8 == 0) store_and_load(point);
      brim_config_close(point);
    }
    if (sum % 8 == 0) load_back(check);
    brim_str_deinit(&label);
  }
  brim_config_close(run);
  brim_config_close(check);
  free(text);
  return 0;
}
