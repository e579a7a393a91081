// Presets: per GPU and model size the batch, workers, accumulation and learning rate that the
// guides recommend, and how much of the memory to plan with. Where the guides are silent the value
// is scaled from the nearest one they give, and the preset's text says so.
#include <stdio.h>
#include <string.h>

#include "config/config_int.h"

typedef struct preset {
  const char *name;
  const char *match;     // part of the GPU's name; NULL: found by memory only
  uint64_t least_bytes;  // of a GPU that may use it
  int batch[3];          // small, medium, large
  int workers[3];
  int accumulation[3];
  const char *lr[3];
  const char *memory_fraction;
  int autotune_level;
  int empty_cache_freq;
  const char *meaning;
} preset;

static const char *const sizes[] = {"small", "medium", "large"};

// Ordered by memory, largest first: `auto` takes the first that fits.
static const preset presets[] = {
    {"h200",
     "H200",
     130000000000,
     {8192, 2048, 512},
     {12, 12, 12},
     {1, 1, 2},
     {"0.00042", "0.00028", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_(
         "NVIDIA H200, 141 GB. Scaled from the A100 80 GB: twice the batch, the same effective "
         "batch for large models, learning rates by the square-root rule. ARS is as on the A100.")},
    {"a100-80g",
     "A100",
     70000000000,
     {4096, 1024, 256},
     {12, 12, 8},
     {1, 1, 4},
     {"0.0003", "0.0002", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_("NVIDIA A100 80 GB. All values are tuned.")},
    {"a100-40g",
     "A100",
     38000000000,
     {2048, 512, 128},
     {8, 8, 8},
     {1, 2, 8},
     {"0.00021", "0.0002", "0.00015"},
     "0.95",
     3,
     0,
     BRIM_N_("NVIDIA A100 40 GB. Tuned: batches, workers and accumulation of small and medium. "
             "Large is half the 80 GB batch at the same effective batch. Learning rates follow the "
             "square-root rule from the 80 GB ones.")},
    {"rtx4090-24g",
     "4090",
     22000000000,
     {1024, 256, 64},
     {6, 4, 4},
     {1, 4, 16},
     {"0.00015", "0.0002", "0.00015"},
     "0.85",
     2,
     0,
     BRIM_N_(
         "GeForce RTX 4090, 24 GB. Tuned: batches, workers and accumulation of small and medium. "
         "Large keeps the effective batch of 1024. Learning rates follow the square-root rule. "
         "Memory share, autotune level and ARS are scaled from the RTX 3060.")},
    {"rtx3090-24g",
     "3090",
     22000000000,
     {1024, 256, 64},
     {6, 4, 4},
     {1, 4, 16},
     {"0.00015", "0.0002", "0.00015"},
     "0.85",
     2,
     0,
     BRIM_N_("GeForce RTX 3090, 24 GB. Same values as rtx4090-24g.")},
    {"rtx3060-12g",
     "3060",
     11000000000,
     {512, 128, 32},
     {6, 6, 6},
     {1, 4, 16},
     {"0.00011", "0.00014", "0.00011"},
     "0.85",
     2,
     5,
     BRIM_N_("GeForce RTX 3060, 12 GB. Tuned: medium, 128 x 4 with 6 workers and pinned memory. "
             "Small and large keep the effective batch of 512. Learning rates follow the "
             "square-root rule. ARS is twice the laptop's.")},
    {"rtx3060-laptop-6g",
     "3060",
     0,
     {256, 64, 16},
     {4, 4, 4},
     {2, 8, 32},
     {"0.00011", "0.00014", "0.00011"},
     "0.85",
     2,
     0,
     BRIM_N_(
         "GeForce RTX 3060 Laptop, 6 GB. Tuned: memory share, autotune level, ARS and the small "
         "model's batch. The rest is half the 12 GB card's batch at the same effective batch.")},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

size_t brim_config_preset_count(void) { return PRESET_COUNT + 1; }

const char *brim_config_preset_name(size_t index) {
  return index < PRESET_COUNT ? presets[index].name : "auto";
}

static const preset *find(const char *name) {
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    if (!strcmp(presets[i].name, name)) return &presets[i];
  }
  return NULL;
}

// By name where the GPU's name says it, else the largest whose memory it has.
static const preset *pick(const brim_config_facts *facts) {
  if (!facts || !facts->gpu_name) return NULL;
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    const preset *p = &presets[i];
    if (!strstr(facts->gpu_name, p->match)) continue;
    bool laptop = strstr(facts->gpu_name, "Laptop") != NULL;
    if (laptop && p->least_bytes > 0) continue;
    if (!facts->gpu_bytes || facts->gpu_bytes >= p->least_bytes) return p;
  }
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    if (facts->gpu_bytes >= presets[i].least_bytes) return &presets[i];
  }
  return &presets[PRESET_COUNT - 1];
}

static void put(brim_config_preset *out, const char *key, const char *text) {
  if (out->count == BRIM_CONFIG_PRESET_VALUES) return;  // brim_config_add_presets sees to it
  brim_config_preset_value *v = &out->values[out->count++];
  v->key = key;
  v->row = brim_config_row_find(key);
  snprintf(v->text, sizeof v->text, "%s", text);
}

static void put_int(brim_config_preset *out, const char *key, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  put(out, key, text);
}

//---------------------------------- added ----------------------------------

enum { MAX_ADDED = 64, OWN_VALUES = 10 };  // OWN_VALUES: brim's own, of one preset

// Values of workloads. Written before threads start, read only afterwards.
static const brim_config_preset_row *added[MAX_ADDED];
static size_t added_count;

static void put_added(brim_config_preset *out) {
  for (size_t i = 0; i < added_count; i++) {
    if (strcmp(added[i]->preset, out->name) == 0) put(out, added[i]->key, added[i]->text);
  }
}

static size_t values_of(const char *name) {
  size_t count = OWN_VALUES;
  for (size_t i = 0; i < added_count; i++) count += strcmp(added[i]->preset, name) == 0;
  return count;
}

static brim_status add_value(const brim_config_preset_row *row) {
  const bool known = find(row->preset) || strcmp(row->preset, BRIM_CONFIG_NO_GPU) == 0;
  if (!known || brim_config_row_find(row->key) < 0) {
    return brim_fail(BRIM_EINVAL, "no preset %s, or no key %s that it could set", row->preset,
                     row->key);
  }
  if (added_count == MAX_ADDED || values_of(row->preset) == BRIM_CONFIG_PRESET_VALUES) {
    return brim_fail(BRIM_EINVAL, "preset %s has too many values for %s", row->preset, row->key);
  }
  added[added_count++] = row;
  return BRIM_OK;
}

brim_status brim_config_add_presets(const brim_config_preset_row *rows, size_t count) {
  const size_t before = added_count;
  for (size_t i = 0; i < count; i++) {
    brim_status status = add_value(&rows[i]);
    if (!status) continue;
    added_count = before;
    return status;
  }
  return BRIM_OK;
}

void brim_config_remove_presets(size_t count) { added_count -= count; }

//---------------------------------- values ----------------------------------

// No GPU: small batches, a quarter of the cores for the loader, nothing pinned, fp32.
static void without_gpu(size_t size, int cores, brim_config_preset *out) {
  static const int batch[] = {128, 64, 32};
  out->name = BRIM_CONFIG_NO_GPU;
  put_int(out, "data.batch_size", batch[size]);
  put_int(out, "data.num_workers", cores >= 8 ? cores / 4 : cores >= 2 ? 1 : 0);
  put(out, "data.pin_memory", "false");
  put(out, "training.use_amp", "false");
  put_added(out);
}

void brim_config_preset_get(const char *name, const char *size, const brim_config_facts *facts,
                            brim_config_preset *out) {
  size_t s = 0;
  while (s < 2 && strcmp(sizes[s], size)) s++;
  *out = (brim_config_preset){.lr_for_adam = true};
  const preset *p = strcmp(name, "auto") ? find(name) : pick(facts);
  if (!p) {
    without_gpu(s, facts ? facts->cpu_cores : 0, out);
    return;
  }
  out->name = p->name;
  put_int(out, "data.batch_size", p->batch[s]);
  put_int(out, "data.num_workers", p->workers[s]);
  put(out, "data.pin_memory", "true");
  put(out, "training.use_amp", "true");
  put(out, "training.learning_rate", p->lr[s]);
  put_int(out, "training.gradient_accumulation_steps", p->accumulation[s]);
  put(out, "gpu.memory_fraction", p->memory_fraction);
  put_int(out, "gpu.autotune_level", p->autotune_level);
  put(out, "gpu.cudnn_benchmark", "true");
  if (p->empty_cache_freq) put_int(out, "gpu.empty_cache_freq", p->empty_cache_freq);
  put_added(out);
}

void brim_config_preset_explain(const char *name, brim_str *out) {
  const preset *p = find(name);
  brim_str_printf(out, "preset %s\n  ", name);
  if (!p) {
    brim_str_append(out, brim_tr("Selects the preset for this machine's GPU by its name and "
                                 "memory. Without a GPU the values suit a CPU."));
    brim_str_append_char(out, '\n');
    return;
  }
  brim_str_append(out, brim_tr(p->meaning));
  brim_str_append(out, "\n");
  brim_str_append(out,
                  brim_tr("  Its learning rate applies to adam and adamw; sgd keeps its own."));
  brim_str_append(out, "\n\n");
  for (size_t s = 0; s < 3; s++) {
    brim_config_preset values;
    brim_config_preset_get(name, sizes[s], NULL, &values);
    brim_str_printf(out, "  model_size: %s\n", sizes[s]);
    for (size_t i = 0; i < values.count; i++) {
      brim_str_printf(out, "    %s: %s\n", values.values[i].key, values.values[i].text);
    }
  }
}
