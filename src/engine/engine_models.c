// Models by component name. Tensor names follow modules one would write in PyTorch, so that a
// checkpoint loads there with load_state_dict(strict=True):
//   linear   torch.nn.Linear(inputs, outputs)                          weight, bias
//   mlp      self.layers = ModuleList of depth + 1 Linear, self.norms = ModuleList of LayerNorm
//            x = dropout(act(norm(layer(x)))) per hidden layer         layers.0.weight,
//            norms.0.bias
//   resmlp   self.input = Linear; self.blocks = ModuleList of modules with norm, fc1, fc2;
//            self.norm = LayerNorm; self.output = Linear
//            x = x + dropout(fc2(act(fc1(norm(x)))))                   blocks.0.fc1.weight
// Inputs are flattened. A new model is a new row.
#include <stdio.h>
#include <string.h>

#include "engine/engine_int.h"

// Epsilon of torch.nn.LayerNorm.
static const float layernorm_eps = 1e-5f;

typedef struct model_args {
  int64_t depth, hidden, outputs;
  brim_act act;
  float dropout;
  bool norm;
} model_args;

typedef struct model_row {
  const char *name;
  const char *args[8];  // NULL-terminated
  int64_t min_depth;
  int32_t (*build)(brim_graph *g, const brim_component *model, const model_args *args, int32_t x);
} model_row;

static const char *layer_name(char out[64], const char *fmt_prefix, int64_t index,
                              const char *suffix) {
  snprintf(out, 64, "%s.%lld%s", fmt_prefix, (long long)index, suffix);
  return out;
}

static int32_t build_linear(brim_graph *g, const brim_component *model, const model_args *args,
                            int32_t x) {
  return brim_graph_linear(g, x, args->outputs, brim_component_bool(model, "bias", true), "");
}

static int32_t build_mlp(brim_graph *g, const brim_component *model, const model_args *args,
                         int32_t x) {
  (void)model;
  char name[64];
  for (int64_t i = 0; i < args->depth; i++) {
    x = brim_graph_linear(g, x, args->hidden, true, layer_name(name, "layers", i, ""));
    if (args->norm) {
      x = brim_graph_layernorm(g, x, layernorm_eps, layer_name(name, "norms", i, ""));
    }
    x = brim_graph_act(g, x, args->act);
    x = brim_graph_dropout(g, x, args->dropout);
  }
  return brim_graph_linear(g, x, args->outputs, true, layer_name(name, "layers", args->depth, ""));
}

static int32_t build_resmlp(brim_graph *g, const brim_component *model, const model_args *args,
                            int32_t x) {
  (void)model;
  char name[64];
  x = brim_graph_linear(g, x, args->hidden, true, "input");
  for (int64_t i = 0; i < args->depth; i++) {
    int32_t y = brim_graph_layernorm(g, x, layernorm_eps, layer_name(name, "blocks", i, ".norm"));
    y = brim_graph_linear(g, y, args->hidden, true, layer_name(name, "blocks", i, ".fc1"));
    y = brim_graph_act(g, y, args->act);
    y = brim_graph_linear(g, y, args->hidden, true, layer_name(name, "blocks", i, ".fc2"));
    y = brim_graph_dropout(g, y, args->dropout);
    x = brim_graph_add(g, x, y);
  }
  x = brim_graph_layernorm(g, x, layernorm_eps, "norm");
  return brim_graph_linear(g, x, args->outputs, true, "output");
}

static const model_row models[] = {
    {"linear", {"bias", "num_classes"}, 0, build_linear},
    {"mlp", {"depth", "hidden", "activation", "dropout", "norm", "num_classes"}, 0, build_mlp},
    {"resmlp", {"depth", "hidden", "activation", "dropout", "num_classes"}, 1, build_resmlp},
};

//---------------------------------- arguments ----------------------------------

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

static bool parse_act(const char *text, brim_act *out) {
  static const char *const names[BRIM_ACT_COUNT] = {
      [BRIM_ACT_NONE] = "none",
      [BRIM_ACT_RELU] = "relu",
      [BRIM_ACT_GELU] = "gelu",
      [BRIM_ACT_TANH] = "tanh",
  };
  for (int i = 0; i < BRIM_ACT_COUNT; i++) {
    if (strcmp(text, names[i]) == 0) {
      *out = (brim_act)i;
      return true;
    }
  }
  return false;
}

static brim_status read_args(const model_row *row, const brim_component *c, int64_t outputs,
                             model_args *out) {
  const int64_t max_depth = 1000, max_hidden = 1 << 20;
  BRIM_TRY(brim_engine_check_args(c, row->args));
  double dropout = brim_component_float(c, "dropout", 0);
  const char *act = brim_component_string(c, "activation", "relu");
  const char *norm = brim_component_string(c, "norm", "none");
  *out = (model_args){.depth = brim_component_int(c, "depth", 4),
                      .hidden = brim_component_int(c, "hidden", 512),
                      .outputs = outputs,
                      .dropout = (float)dropout,
                      .norm = strcmp(norm, "layer") == 0};
  int64_t asked = brim_component_int(c, "num_classes", outputs);
  if (asked != outputs) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "num_classes is %lld, but the data has %lld", (long long)asked,
                        (long long)outputs);
  }
  if (out->depth < row->min_depth || out->depth > max_depth) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "depth is %lld, expected %lld to %lld", (long long)out->depth,
                        (long long)row->min_depth, (long long)max_depth);
  }
  if (out->hidden < 1 || out->hidden > max_hidden) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "hidden is %lld, expected 1 to %lld",
                        (long long)out->hidden, (long long)max_hidden);
  }
  if (!(dropout >= 0 && dropout < 1) || !(out->dropout < 1)) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "dropout is %g, expected 0 <= dropout < 1", dropout);
  }
  if (!parse_act(act, &out->act)) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "activation is '%s', expected relu, gelu, tanh or none", act);
  }
  if (!out->norm && strcmp(norm, "none") != 0) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "norm is '%s', expected none or layer", norm);
  }
  return BRIM_OK;
}

brim_status brim_model_build(brim_graph *g, const brim_component *model, int32_t x, int64_t outputs,
                             int32_t *out) {
  enum { COUNT = sizeof models / sizeof models[0] };
  const char *names[COUNT + 1] = {0};
  for (int i = 0; i < COUNT; i++) {
    names[i] = models[i].name;
    if (strcmp(model->name, models[i].name) != 0) continue;
    model_args args;
    BRIM_TRY(read_args(&models[i], model, outputs, &args));
    if (g->status) return g->status;
    *out = models[i].build(g, model, &args, x);
    return g->status;
  }
  return brim_engine_fail_unknown(model, "model", model->name, names);
}
