// What the files of models share: a model under construction, its inputs, its arguments.
#ifndef BRIM_ENGINE_MODELS_H_
#define BRIM_ENGINE_MODELS_H_

#include "engine/engine_int.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_model {
  brim_graph *g;
  const brim_component *c;
  const brim_sample *sample;
  int64_t outputs;
  const char *prefix;  // of all names: "" or "backbone."
  bool features;       // stop before the last layer: (N, width)
  // Any model by its component, as part of another.
  int32_t (*part)(const struct brim_model *m);
} brim_model;

typedef struct brim_model_row {
  const char *name;
  const char *args[10];  // NULL-terminated
  int32_t (*build)(const brim_model *m);
} brim_model_row;

// engine_models_conv.c, engine_models_token.c: rows end with one without a name.
extern const brim_model_row brim_models_conv[];
extern const brim_model_row brim_models_token[];

// Prefix, then printf: a name of at most 127 characters.
typedef struct brim_model_name {
  char text[128];
} brim_model_name;
brim_model_name brim_model_label(const brim_model *m, const char *fmt, ...) BRIM_PRINTF(2, 3);

// The batch as rows of values, as images (N,H,W,C) or as tokens (N,L,patch values).
int32_t brim_model_flat(const brim_model *m);
int32_t brim_model_images(const brim_model *m, int64_t *channels);
int32_t brim_model_tokens(const brim_model *m, int64_t patch);

// Arguments, checked; a failure sticks in the graph and gives the fallback.
int64_t brim_model_int(const brim_model *m, const char *name, int64_t fallback, int64_t min,
                       int64_t max);
float brim_model_dropout(const brim_model *m);
brim_act brim_model_act(const brim_model *m, const char *fallback);
void brim_model_fail(const brim_model *m, const char *fmt, ...) BRIM_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_MODELS_H_
