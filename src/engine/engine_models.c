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

#include <string.h>

// Epsilon of torch.nn.LayerNorm.
static const float layernorm_eps = 1e-5f;

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

// How the layers of an mlp start.
typedef struct mlp_start {
  bool orthogonal;
  double gain, last_gain;
} mlp_start;

static mlp_start read_start(const brim_model *m) {
  const char *init = brim_component_string(m->c, "init", "uniform");
  mlp_start s = {.orthogonal = strcmp(init, "orthogonal") == 0};
  if (!s.orthogonal && strcmp(init, "uniform") != 0) {
    brim_model_fail(m, "init is '%s', expected uniform or orthogonal", init);
  }
  // the catalogue's default of last_gain is 0: that of the other layers
  s.gain = brim_component_float(m->c, "gain", 1);
  s.last_gain = brim_component_float(m->c, "last_gain", 0);
  if (s.last_gain == 0) s.last_gain = s.gain;
  if (!(s.gain > 0 && s.gain <= 100 && s.last_gain > 0 && s.last_gain <= 100)) {
    brim_model_fail(m, "gain is %g and last_gain %g, expected more than 0 to 100", s.gain,
                    s.last_gain);
  }
  if (!s.orthogonal && (s.gain != 1 || s.last_gain != 1)) {
    brim_model_fail(m, "gain and last_gain need init=orthogonal");
  }
  return s;
}

static int32_t mlp_layer(const brim_model *m, int32_t x, int64_t outputs, int64_t index,
                         const mlp_start *start, double gain) {
  brim_model_name name = brim_model_label(m, "layers.%lld", (long long)index);
  if (start->orthogonal) return brim_graph_linear_orthogonal(m->g, x, outputs, gain, name.text);
  return brim_graph_linear(m->g, x, outputs, true, name.text);
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
  mlp_start start = read_start(m);
  int32_t x = brim_model_flat(m);
  for (int64_t i = 0; i < depth; i++) {
    x = mlp_layer(m, x, hidden, i, &start, start.gain);
    if (layer_norm) {
      brim_model_name name = brim_model_label(m, "norms.%lld", (long long)i);
      x = brim_graph_layernorm(m->g, x, layernorm_eps, name.text);
    }
    x = brim_graph_act(m->g, x, act);
    x = brim_graph_dropout(m->g, x, dropout);
  }
  if (m->features) return x;
  return mlp_layer(m, x, m->outputs, depth, &start, start.last_gain);
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
    {"mlp",
     {"depth", "hidden", "activation", "dropout", "norm", "init", "gain", "last_gain",
      "num_classes"},
     build_mlp},
    {"resmlp", {"depth", "hidden", "activation", "dropout", "num_classes"}, build_resmlp},
    {"linear_policy", {NULL}, build_linear_policy},
    {"mlp_policy", {"depth", "hidden", "activation"}, build_mlp_policy},
    {"actor_critic", {"depth", "hidden", "activation", "shared"}, build_actor_critic},
    {NULL, {NULL}, NULL},
};
static const brim_model_row *const tables[] = {models_linear, brim_models_conv, brim_models_token};

static int32_t build_part(const brim_model *m) {
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
                  .features = sample->backbone,
                  .part = build_part};
  *out = build_part(&m);
  return g->status;
}
