// What models are built with: components and their arguments, names, and the batch as their input.
#include "engine/engine_models.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

//---------------------------------- components ----------------------------------

brim_status brim_engine_fail_unknown(const brim_component *c, const char *what, const char *name,
                                     const char *const *known) {
  const char *near = brim_nearest(name, known);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "unknown %s '%s'; did you mean '%s'?", what, name, near);
  }
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "unknown %s '%s'", what, name);
}

brim_status brim_engine_check_args(const brim_component *c, const char *const *known) {
  for (size_t i = 0; i < c->arg_count; i++) {
    const char *const *k = known;
    while (*k && strcmp(*k, c->args[i].name) != 0) k++;
    if (!*k) {
      BRIM_TRY(brim_engine_fail_unknown(c, "argument", c->args[i].name, known));
    }
  }
  return BRIM_OK;
}

brim_status brim_engine_read_number(const brim_component *c, const char *name, double fallback,
                                    double high, float *out) {
  double value = brim_component_float(c, name, fallback);
  *out = (float)value;
  if (value >= 0 && (double)*out < high) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s is %g, expected 0 <= %s < %g",
                      name, value, name, high);
}

//---------------------------------- arguments ----------------------------------

void brim_model_fail(const brim_model *m, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_tr(fmt), args);
  va_end(args);
  const brim_component *c = m->c;
  brim_graph_fail(m->g, brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s", text));
}

int64_t brim_model_int(const brim_model *m, const char *name, int64_t fallback, int64_t min,
                       int64_t max) {
  int64_t value = brim_component_int(m->c, name, fallback);
  if (value >= min && value <= max) return value;
  brim_model_fail(m, "%s is %lld, expected %lld to %lld", name, (long long)value, (long long)min,
                  (long long)max);
  return fallback;
}

float brim_model_dropout(const brim_model *m) {
  double p = brim_component_float(m->c, "dropout", 0);
  if (p >= 0 && p < 1 && (float)p < 1) return (float)p;
  brim_model_fail(m, "dropout is %g, expected 0 <= dropout < 1", p);
  return 0;
}

brim_act brim_model_act(const brim_model *m, const char *fallback) {
  static const char *const names[BRIM_ACT_COUNT] = {
      [BRIM_ACT_NONE] = "none",
      [BRIM_ACT_RELU] = "relu",
      [BRIM_ACT_GELU] = "gelu",
      [BRIM_ACT_TANH] = "tanh",
  };
  const char *text = brim_component_string(m->c, "activation", fallback);
  for (int i = 0; i < BRIM_ACT_COUNT; i++) {
    if (strcmp(text, names[i]) == 0) return (brim_act)i;
  }
  brim_model_fail(m, "activation is '%s', expected relu, gelu, tanh or none", text);
  return BRIM_ACT_NONE;
}

brim_model_name brim_model_label(const brim_model *m, const char *fmt, ...) {
  brim_model_name name;
  int n = snprintf(name.text, sizeof name.text, "%s", m->prefix);
  va_list args;
  va_start(args, fmt);
  vsnprintf(name.text + n, sizeof name.text - (size_t)n, fmt, args);
  va_end(args);
  return name;
}

//---------------------------------- inputs ----------------------------------

static brim_tensor raw_batch(const brim_model *m) {
  int64_t dim[] = {m->sample->rows, m->sample->features};
  return brim_tensor_make(NULL, m->sample->dtype, 2, dim);
}

int32_t brim_model_flat(const brim_model *m) {
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &m->sample->attr, 2, raw.dim);
}

int32_t brim_model_images(const brim_model *m, int64_t *channels) {
  const brim_sample *s = m->sample;
  if (s->rank < 2 || s->rank > 3) {
    brim_model_fail(m, "model %s takes images (height, width, channels), samples have rank %d",
                    m->c->name, (int)s->rank);
    return -1;
  }
  int64_t c = s->rank == 3 ? s->dim[2] : 1, pad = m->g->channel_pad;
  brim_op_attr attr = s->attr;
  int64_t dim[] = {s->rows, s->dim[0], s->dim[1], c};
  // INPUT can fill up to a multiple where it knows all channels.
  if (pad > 1 && c % pad != 0 && c <= 4) {
    if (attr.channels == 1) {
      for (int i = 1; i < c; i++) {
        attr.scale[i] = attr.scale[0];
        attr.shift[i] = attr.shift[0];
      }
      attr.channels = (int32_t)c;
    }
    if (attr.channels == c) dim[3] = (c + pad - 1) / pad * pad;
  }
  *channels = c;
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &attr, 4, dim);
}

int32_t brim_model_tokens(const brim_model *m, int64_t patch) {
  const brim_sample *s = m->sample;
  if (s->rank > 2 || s->dim[0] % patch != 0) {
    brim_model_fail(m,
                    "model %s takes signals (length, channels) whose length is a multiple of "
                    "patch = %lld; samples have rank %d and length %lld",
                    m->c->name, (long long)patch, (int)s->rank, (long long)s->dim[0]);
    return -1;
  }
  int64_t dim[] = {s->rows, s->dim[0] / patch, s->features / (s->dim[0] / patch)};
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &s->attr, 3, dim);
}
