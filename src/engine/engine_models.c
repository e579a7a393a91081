// Models by component name, and those made of linear layers. Tensor names follow modules one would
// write in PyTorch, so that a checkpoint loads there with load_state_dict(strict=True):
//   linear   torch.nn.Linear(inputs, outputs)                          weight, bias
//   mlp      self.layers = ModuleList of depth + 1 Linear, self.norms = ModuleList of LayerNorm
//            x = dropout(act(norm(layer(x)))) per hidden layer         layers.0.weight, norms.0.bias
//   resmlp   self.input = Linear; self.blocks = ModuleList of modules with norm, fc1, fc2;
//            self.norm = LayerNorm; self.output = Linear
//            x = x + dropout(fc2(act(fc1(norm(x)))))                   blocks.0.fc1.weight
//   linear_policy, mlp_policy                                          weight; layers.0.weight
//   actor_critic   self.actor, self.critic with layers; or self.trunk, actor, critic when shared;
//            the last output is the value
// A new model is a new row.
#include "engine/engine_models.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Epsilon of torch.nn.LayerNorm.
static const float layernorm_eps = 1e-5f;

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

//---------------------------------- linear models ----------------------------------

static const int64_t max_depth = 1000, max_hidden = 1 << 20;

// Linear layers with an activation between them: layers.0 ... layers.depth.
static int32_t stack(const brim_model *m, int32_t x, const char *part, int64_t outputs,
                     int64_t depth, int64_t hidden, brim_act act) {
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, true,
                          brim_model_label(m, "%slayers.%lld", part, (long long)i).text);
    x = brim_graph_act(m->g, x, act);
  }
  if (outputs == 0) return x;
  return brim_graph_linear(m->g, x, outputs, true,
                           brim_model_label(m, "%slayers.%lld", part, (long long)depth).text);
}

static int32_t build_linear(const brim_model *m) {
  int32_t x = brim_model_flat(m);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, brim_component_bool(m->c, "bias", true), m->prefix);
}

static int32_t build_mlp(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 4, 0, max_depth);
  int64_t hidden = brim_model_int(m, "hidden", 512, 1, max_hidden);
  brim_act act = brim_model_act(m, "relu");
  float dropout = brim_model_dropout(m);
  const char *norm = brim_component_string(m->c, "norm", "none");
  bool layer_norm = strcmp(norm, "layer") == 0;
  if (!layer_norm && strcmp(norm, "none") != 0) {
    brim_model_fail(m, "norm is '%s', expected none or layer", norm);
  }
  int32_t x = brim_model_flat(m);
  for (int64_t i = 0; i < depth; i++) {
    long long n = (long long)i;
    x = brim_graph_linear(m->g, x, hidden, true, brim_model_label(m, "layers.%lld", n).text);
    if (layer_norm) {
      x = brim_graph_layernorm(m->g, x, layernorm_eps, brim_model_label(m, "norms.%lld", n).text);
    }
    x = brim_graph_act(m->g, x, act);
    x = brim_graph_dropout(m->g, x, dropout);
  }
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true,
                           brim_model_label(m, "layers.%lld", (long long)depth).text);
}

static int32_t build_resmlp(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 4, 1, max_depth);
  int64_t hidden = brim_model_int(m, "hidden", 512, 1, max_hidden);
  brim_act act = brim_model_act(m, "relu");
  float dropout = brim_model_dropout(m);
  brim_graph *g = m->g;
  int32_t x =
      brim_graph_linear(g, brim_model_flat(m), hidden, true, brim_model_label(m, "input").text);
  for (int64_t i = 0; i < depth; i++) {
    long long n = (long long)i;
    brim_graph_segment_begin(g);
    int32_t y =
        brim_graph_layernorm(g, x, layernorm_eps, brim_model_label(m, "blocks.%lld.norm", n).text);
    y = brim_graph_linear(g, y, hidden, true, brim_model_label(m, "blocks.%lld.fc1", n).text);
    y = brim_graph_act(g, y, act);
    y = brim_graph_linear(g, y, hidden, true, brim_model_label(m, "blocks.%lld.fc2", n).text);
    y = brim_graph_dropout(g, y, dropout);
    x = brim_graph_add(g, x, y);
    brim_graph_segment_end(g);
  }
  x = brim_graph_layernorm(g, x, layernorm_eps, brim_model_label(m, "norm").text);
  if (m->features) return x;
  return brim_graph_linear(g, x, m->outputs, true, brim_model_label(m, "output").text);
}

//---------------------------------- policies ----------------------------------

static int32_t build_linear_policy(const brim_model *m) {
  return brim_graph_linear(m->g, brim_model_flat(m), m->outputs, false, m->prefix);
}

static int32_t build_mlp_policy(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 1, 0, 64);
  int64_t hidden = brim_model_int(m, "hidden", 256, 1, max_hidden);
  return stack(m, brim_model_flat(m), "", m->outputs, depth, hidden, brim_model_act(m, "relu"));
}

static int32_t build_actor_critic(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 2, 0, 64);
  int64_t hidden = brim_model_int(m, "hidden", 256, 1, max_hidden);
  brim_act act = brim_model_act(m, "tanh");
  if (m->outputs < 2) {
    brim_model_fail(m, "actor_critic has %lld outputs, expected actions and a value: 2 or more",
                    (long long)m->outputs);
    return -1;
  }
  brim_graph *g = m->g;
  int32_t x = brim_model_flat(m), actor, critic;
  if (brim_component_bool(m->c, "shared", false)) {
    x = stack(m, x, "trunk.", 0, depth, hidden, act);
    actor = brim_graph_linear(g, x, m->outputs - 1, true, brim_model_label(m, "actor").text);
    critic = brim_graph_linear(g, x, 1, true, brim_model_label(m, "critic").text);
  } else {
    actor = stack(m, x, "actor.", m->outputs - 1, depth, hidden, act);
    critic = stack(m, x, "critic.", 1, depth, hidden, act);
  }
  return brim_graph_concat(g, actor, critic);
}

//---------------------------------- the table ----------------------------------

static const brim_model_row models_linear[] = {
    {"linear", {"bias", "num_classes"}, build_linear},
    {"mlp", {"depth", "hidden", "activation", "dropout", "norm", "num_classes"}, build_mlp},
    {"resmlp", {"depth", "hidden", "activation", "dropout", "num_classes"}, build_resmlp},
    {"linear_policy", {NULL}, build_linear_policy},
    {"mlp_policy", {"depth", "hidden", "activation"}, build_mlp_policy},
    {"actor_critic", {"depth", "hidden", "activation", "shared"}, build_actor_critic},
    {NULL, {NULL}, NULL},
};
static const brim_model_row *const tables[] = {models_linear, brim_models_conv, brim_models_token};

int32_t brim_model_part(const brim_model *m) {
  const char *names[64] = {0};
  size_t count = 0;
  if (m->g->status) return -1;
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (const brim_model_row *row = tables[t]; row->name; row++) {
      if (count < 63) names[count++] = row->name;
      if (strcmp(m->c->name, row->name) != 0) continue;
      brim_graph_fail(m->g, brim_engine_check_args(m->c, row->args));
      int64_t asked = brim_component_int(m->c, "num_classes", m->outputs);
      if (asked != m->outputs && !m->features) {
        brim_model_fail(m, "num_classes is %lld, but the data has %lld", (long long)asked,
                        (long long)m->outputs);
      }
      return m->g->status ? -1 : row->build(m);
    }
  }
  brim_graph_fail(m->g, brim_engine_fail_unknown(m->c, "model", m->c->name, names));
  return -1;
}

brim_status brim_model_build(brim_graph *g, const brim_component *model, const brim_sample *sample,
                             int64_t outputs, int32_t *out) {
  brim_model m = {.g = g,
                  .c = model,
                  .sample = sample,
                  .outputs = outputs,
                  .prefix = "",
                  .features = sample->backbone};
  *out = brim_model_part(&m);
  return g->status;
}
