// Models by component name; a new model is a new row. Tensor names follow PyTorch modules, so that a
// checkpoint loads there with load_state_dict(strict=True):
//   linear   torch.nn.Linear(inputs, outputs)                          weight, bias
//   mlp      self.layers = ModuleList of depth + 1 Linear, self.norms = ModuleList of LayerNorm
//            x = dropout(act(norm(layer(x)))) per hidden layer         layers.0.weight, norms.0.bias
//   resmlp   self.input = Linear; self.blocks = ModuleList of modules with norm, fc1, fc2;
//            self.norm = LayerNorm; self.output = Linear
//            x = x + dropout(fc2(act(fc1(norm(x)))))                   blocks.0.fc1.weight
//   linear_policy, mlp_policy                                          weight; layers.0.weight
//   actor_critic   self.actor, self.critic with layers; or self.trunk, actor, critic when shared;
//            the last output is the value
//   resnet*  torchvision's names: conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, fc
//   wideresnet     conv1, block1.layer.0.bn1, block1.layer.0.convShortcut, bn1, fc
//   simclr   backbone.* and projector.N, N as nn.Sequential counts
//   transformer    timm's names: embed.weight, pos_embed, blocks.0.norm1, blocks.0.attn.qkv,
//            blocks.0.attn.proj, blocks.0.norm2, blocks.0.mlp.fc1, blocks.0.mlp.fc2, norm, head
// Each residual or transformer block is a segment for recomputation.
#include "engine/engine_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct brim_model {
  brim_graph *g;
  const brim_component *c;
  const brim_sample *sample;
  int64_t outputs;
  const char *prefix;  // in front of all names: "" or "backbone."
  bool features;       // stop before the last layer: (N, width)
} brim_model;

// A name of at most 127 characters.
typedef struct model_name {
  char text[128];
} model_name;

// Epsilon of torch.nn.LayerNorm.
static const float layernorm_eps = 1e-5f;

static int32_t build_part(const brim_model *m);

//---------------------------------- arguments, names, inputs ----------------------------------

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

static void brim_model_fail(const brim_model *m, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_tr(fmt), args);
  va_end(args);
  const brim_component *c = m->c;
  brim_graph_fail(m->g, brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s", text));
}

// Arguments are checked; a failure sticks in the graph and gives the fallback.
static int64_t int_arg(const brim_model *m, const char *name, int64_t fallback, int64_t min,
                       int64_t max) {
  int64_t value = brim_component_int(m->c, name, fallback);
  if (value >= min && value <= max) return value;
  brim_model_fail(m, "%s is %lld, expected %lld to %lld", name, (long long)value, (long long)min,
                  (long long)max);
  return fallback;
}

static float dropout_arg(const brim_model *m) {
  double p = brim_component_float(m->c, "dropout", 0);
  if (p >= 0 && p < 1 && (float)p < 1) return (float)p;
  brim_model_fail(m, "dropout is %g, expected 0 <= dropout < 1", p);
  return 0;
}

static brim_act act_arg(const brim_model *m, const char *fallback) {
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

static model_name label(const brim_model *m, const char *fmt, ...) {
  model_name name;
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

// The batch as rows of values.
static int32_t flat_input(const brim_model *m) {
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &m->sample->attr, 2, raw.dim);
}

// The batch as images (N,H,W,C).
static int32_t image_input(const brim_model *m, int64_t *channels) {
  const brim_sample *s = m->sample;
  if (s->rank < 2 || s->rank > 3) {
    brim_model_fail(m, "model %s takes images (height, width, channels), samples have rank %d",
                    m->c->name, (int)s->rank);
    return -1;
  }
  int64_t c = s->rank == 3 ? s->dim[2] : 1, pad = m->g->channel_pad;
  brim_op_attr attr = s->attr;
  int64_t dim[] = {s->rows, s->dim[0], s->dim[1], c};
  // INPUT can pad to a multiple if it knows all channels.
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

// The batch as tokens (N,L,patch values).
static int32_t token_input(const brim_model *m, int64_t patch) {
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

//---------------------------------- convolutional networks ----------------------------------

//---------------------------------- parts ----------------------------------

static int64_t channels_of(const brim_model *m, int32_t x) {
  const brim_tensor *t = &m->g->tensors[x].desc;
  return m->g->status ? 1 : t->dim[t->rank - 1];
}

static int32_t conv(const brim_model *m, int32_t x, int64_t outputs, int32_t kernel, int32_t stride,
                    const char *name) {
  if (m->g->status) return -1;
  brim_conv_spec spec = {.inputs = channels_of(m, x),
                         .outputs = outputs,
                         .kernel = kernel,
                         .stride = stride,
                         .pad = kernel / 2};
  return brim_graph_conv(m->g, x, &spec, name);
}

static int32_t norm(const brim_model *m, int32_t x, bool zero, const char *name) {
  return brim_graph_batchnorm(m->g, x, zero ? BRIM_INIT_ZEROS : BRIM_INIT_ONES, name);
}

static int32_t relu(const brim_model *m, int32_t x) {
  return brim_graph_act(m->g, x, BRIM_ACT_RELU);
}

//---------------------------------- ResNet ----------------------------------

typedef struct resnet_row {
  const char *name;
  int blocks[4];
  bool bottleneck;
} resnet_row;

static const resnet_row resnets[] = {
    {"resnet18", {2, 2, 2, 2}, false},  {"resnet34", {3, 4, 6, 3}, false},
    {"resnet50", {3, 4, 6, 3}, true},   {"resnet101", {3, 4, 23, 3}, true},
    {"resnet152", {3, 8, 36, 3}, true},
};

typedef struct residual_spec {
  int64_t width;  // channels of the inner convolutions
  int32_t stride;
  bool bottleneck, zero_init;
  const char *name;
} residual_spec;

// The shortcut around a block. It comes first, so that the last norm can fuse the addition.
static int32_t shortcut(const brim_model *m, int32_t x, const residual_spec *b) {
  int64_t outputs = b->width * (b->bottleneck ? 4 : 1);
  if (m->g->status || (b->stride == 1 && channels_of(m, x) == outputs)) return x;
  x = conv(m, x, outputs, 1, b->stride, label(m, "%s.downsample.0", b->name).text);
  return norm(m, x, false, label(m, "%s.downsample.1", b->name).text);
}

// As in torchvision, a bottleneck has its stride in the 3x3 convolution.
static int32_t residual_block(const brim_model *m, int32_t x, const residual_spec *b) {
  brim_graph_segment_begin(m->g);
  int32_t around = shortcut(m, x, b);
  const char *name = b->name;
  int32_t y = x;
  if (b->bottleneck) {
    y = conv(m, y, b->width, 1, 1, label(m, "%s.conv1", name).text);
    y = relu(m, norm(m, y, false, label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, b->stride, label(m, "%s.conv2", name).text);
    y = relu(m, norm(m, y, false, label(m, "%s.bn2", name).text));
    y = conv(m, y, b->width * 4, 1, 1, label(m, "%s.conv3", name).text);
    y = norm(m, y, b->zero_init, label(m, "%s.bn3", name).text);
  } else {
    y = conv(m, y, b->width, 3, b->stride, label(m, "%s.conv1", name).text);
    y = relu(m, norm(m, y, false, label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, 1, label(m, "%s.conv2", name).text);
    y = norm(m, y, b->zero_init, label(m, "%s.bn2", name).text);
  }
  y = relu(m, brim_graph_add(m->g, y, around));
  brim_graph_segment_end(m->g);
  return y;
}

static bool cifar_stem(const brim_model *m) {
  const char *stem = brim_component_string(m->c, "stem", "auto");
  if (strcmp(stem, "cifar") == 0) return true;
  if (strcmp(stem, "imagenet") == 0) return false;
  if (strcmp(stem, "auto") != 0) {
    brim_model_fail(m, "stem is '%s', expected auto, cifar or imagenet", stem);
  }
  return m->sample->made_for[0] <= 64 && m->sample->made_for[1] <= 64;
}

static int32_t stem_of(const brim_model *m, int64_t width) {
  int64_t channels = 1;
  bool small = cifar_stem(m);
  int32_t x = image_input(m, &channels);
  brim_conv_spec spec = {.inputs = channels,
                         .outputs = width,
                         .kernel = small ? 3 : 7,
                         .stride = small ? 1 : 2,
                         .pad = small ? 1 : 3};
  if (m->g->status) return -1;
  x = brim_graph_conv(m->g, x, &spec, label(m, "conv1").text);
  x = relu(m, norm(m, x, false, label(m, "bn1").text));
  return small ? x : brim_graph_maxpool(m->g, x, 3, 2, 1);
}

static int32_t build_resnet(const brim_model *m) {
  const resnet_row *row = resnets;
  while (strcmp(row->name, m->c->name) != 0) row++;  // the table below has the same names
  int64_t width = int_arg(m, "width", 64, 1, 4096);
  bool zero = brim_component_bool(m->c, "zero_init", false);
  int32_t x = stem_of(m, width);
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < row->blocks[stage]; i++) {
      model_name name = label(m, "layer%d.%d", stage + 1, i);
      // The block's label already has the prefix; its parts must not get it again.
      residual_spec b = {.width = width << stage,
                         .stride = stage > 0 && i == 0 ? 2 : 1,
                         .bottleneck = row->bottleneck,
                         .zero_init = zero,
                         .name = name.text + strlen(m->prefix)};
      x = residual_block(m, x, &b);
    }
  }
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "fc").text);
}

//---------------------------------- wide ResNet ----------------------------------

// Norm and ReLU before each convolution; a block that changes the width takes its shortcut after
// the first norm, the others before it.
static int32_t wide_block(const brim_model *m, int32_t x, int64_t width, int32_t stride,
                          float dropout, const char *name) {
  brim_graph_segment_begin(m->g);
  bool same = stride == 1 && channels_of(m, x) == width;
  int32_t y = relu(m, norm(m, x, false, label(m, "%s.bn1", name).text));
  int32_t around = x;
  if (!same) {
    around = conv(m, y, width, 1, stride, label(m, "%s.convShortcut", name).text);
  }
  y = conv(m, y, width, 3, stride, label(m, "%s.conv1", name).text);
  y = relu(m, norm(m, y, false, label(m, "%s.bn2", name).text));
  y = brim_graph_dropout(m->g, y, dropout);
  y = conv(m, y, width, 3, 1, label(m, "%s.conv2", name).text);
  y = brim_graph_add(m->g, around, y);
  brim_graph_segment_end(m->g);
  return y;
}

static int32_t build_wideresnet(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 28, 10, 1000);
  int64_t widen = int_arg(m, "width", 10, 1, 64);
  float dropout = dropout_arg(m);
  if ((depth - 4) % 6 != 0) {
    brim_model_fail(m, "depth is %lld, expected 6 n + 4: 10, 16, 22, 28, 34, 40 ...",
                    (long long)depth);
  }
  int64_t channels = 1;
  int32_t x = image_input(m, &channels);
  if (m->g->status) return -1;
  brim_conv_spec spec = {.inputs = channels, .outputs = 16, .kernel = 3, .stride = 1, .pad = 1};
  x = brim_graph_conv(m->g, x, &spec, label(m, "conv1").text);
  for (int stage = 0; stage < 3; stage++) {
    for (int64_t i = 0; i < (depth - 4) / 6; i++) {
      model_name name = label(m, "block%d.layer.%lld", stage + 1, (long long)i);
      x = wide_block(m, x, (16 * widen) << stage, stage > 0 && i == 0 ? 2 : 1, dropout,
                     name.text + strlen(m->prefix));
    }
  }
  x = relu(m, norm(m, x, false, label(m, "bn1").text));
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "fc").text);
}

//---------------------------------- SimCLR ----------------------------------

// An encoder without its last layer, then one or more Linear with ReLU, and Linear. The output has
// `dim` values; NT-Xent normalizes it.
static int32_t build_simclr(const brim_model *m) {
  static const brim_component resnet18 = {.name = "resnet18"};
  const brim_value *given = brim_component_arg(m->c, "backbone");
  brim_model part = *m;
  part.c = &resnet18;
  brim_component bare = {.name = NULL, .file = m->c->file, .line = m->c->line, .col = m->c->col};
  if (given && given->kind == BRIM_VALUE_COMPONENT) {
    part.c = given->component;
  } else if (given && given->kind == BRIM_VALUE_STRING) {
    bare.name = given->string;
    part.c = &bare;
  }
  part.features = true;
  model_name prefix = label(m, "backbone.");
  part.prefix = prefix.text;
  int64_t hidden = int_arg(m, "hidden", 512, 1, 65536);
  int64_t dim = int_arg(m, "dim", 128, 1, 65536);
  int64_t depth = int_arg(m, "depth", 1, 1, 16);
  int32_t x = build_part(&part);
  if (m->features) return x;
  bool bn = brim_component_bool(m->c, "batch_norm", false);
  int place = 0;
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, !bn, label(m, "projector.%d", place++).text);
    if (bn) x = norm(m, x, false, label(m, "projector.%d", place++).text);
    x = relu(m, x);
    place++;
  }
  return brim_graph_linear(m->g, x, dim, true, label(m, "projector.%d", place).text);
}

//---------------------------------- transformers ----------------------------------

static const int64_t max_heads = 1024;

typedef struct block_spec {
  int64_t hidden, inner;
  int32_t heads;
  float dropout;
} block_spec;

static int32_t block(const brim_model *m, int32_t x, const block_spec *b, long long n) {
  brim_graph *g = m->g;
  brim_graph_segment_begin(g);
  int32_t y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm1", n).text);
  y = brim_graph_linear(g, y, 3 * b->hidden, true, label(m, "blocks.%lld.attn.qkv", n).text);
  y = brim_graph_attention(g, y, b->heads);
  y = brim_graph_linear(g, y, b->hidden, true, label(m, "blocks.%lld.attn.proj", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm2", n).text);
  y = brim_graph_linear(g, y, b->inner, true, label(m, "blocks.%lld.mlp.fc1", n).text);
  y = brim_graph_act(g, y, BRIM_ACT_GELU);
  y = brim_graph_linear(g, y, b->hidden, true, label(m, "blocks.%lld.mlp.fc2", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  brim_graph_segment_end(g);
  return x;
}

// The largest divisor of `n` up to `most`; at least 1.
static int64_t divisor(int64_t n, int64_t most) {
  for (int64_t d = most < n ? most : n; d > 1; d--) {
    if (n % d == 0) return d;
  }
  return 1;
}

static int32_t build_transformer(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 6, 1, 1000);
  int64_t hidden = int_arg(m, "hidden", 64, 1, 65536);
  int64_t heads = int_arg(m, "heads", 0, 0, max_heads);
  int64_t patch = int_arg(m, "patch", 0, 0, 65536);
  int64_t ratio = int_arg(m, "mlp_ratio", 4, 1, 64);
  // default: heads of width 16 or the next divisor, tokens of at most 32 samples
  if (heads == 0) heads = divisor(hidden, hidden / 16 < max_heads ? hidden / 16 : max_heads);
  if (patch == 0) patch = divisor(m->sample->dim[0], 32);
  block_spec b = {.hidden = hidden,
                  .inner = hidden * ratio,
                  .heads = (int32_t)heads,
                  .dropout = dropout_arg(m)};
  if (hidden % heads != 0) {
    brim_model_fail(m, "hidden is %lld, which is not a multiple of heads = %lld", (long long)hidden,
                    (long long)heads);
  }
  if (m->g->status) return -1;
  int32_t x = token_input(m, patch);
  x = brim_graph_linear(m->g, x, hidden, true, label(m, "embed").text);
  x = brim_graph_pos(m->g, x, label(m, "pos_embed").text);
  for (int64_t i = 0; i < depth; i++) x = block(m, x, &b, (long long)i);
  x = brim_graph_layernorm(m->g, x, layernorm_eps, label(m, "norm").text);
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "head").text);
}

//---------------------------------- linear layers ----------------------------------

//---------------------------------- linear models ----------------------------------

static const int64_t max_depth = 1000, max_hidden = 1 << 20;

// Linear layers with an activation between them: layers.0 ... layers.depth.
static int32_t stack(const brim_model *m, int32_t x, const char *part, int64_t outputs,
                     int64_t depth, int64_t hidden, brim_act act) {
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, true,
                          label(m, "%slayers.%lld", part, (long long)i).text);
    x = brim_graph_act(m->g, x, act);
  }
  if (outputs == 0) return x;
  return brim_graph_linear(m->g, x, outputs, true,
                           label(m, "%slayers.%lld", part, (long long)depth).text);
}

static int32_t build_linear(const brim_model *m) {
  int32_t x = flat_input(m);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, brim_component_bool(m->c, "bias", true), m->prefix);
}

// Initial weights of the layers of an mlp.
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
  // last_gain 0, the catalogue's default, means that of the other layers
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
  model_name name = label(m, "layers.%lld", (long long)index);
  if (start->orthogonal) return brim_graph_linear_orthogonal(m->g, x, outputs, gain, name.text);
  return brim_graph_linear(m->g, x, outputs, true, name.text);
}

static int32_t build_mlp(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 4, 0, max_depth);
  int64_t hidden = int_arg(m, "hidden", 512, 1, max_hidden);
  brim_act act = act_arg(m, "relu");
  float dropout = dropout_arg(m);
  const char *norm = brim_component_string(m->c, "norm", "none");
  bool layer_norm = strcmp(norm, "layer") == 0;
  if (!layer_norm && strcmp(norm, "none") != 0) {
    brim_model_fail(m, "norm is '%s', expected none or layer", norm);
  }
  mlp_start start = read_start(m);
  int32_t x = flat_input(m);
  for (int64_t i = 0; i < depth; i++) {
    x = mlp_layer(m, x, hidden, i, &start, start.gain);
    if (layer_norm) {
      model_name name = label(m, "norms.%lld", (long long)i);
      x = brim_graph_layernorm(m->g, x, layernorm_eps, name.text);
    }
    x = brim_graph_act(m->g, x, act);
    x = brim_graph_dropout(m->g, x, dropout);
  }
  if (m->features) return x;
  return mlp_layer(m, x, m->outputs, depth, &start, start.last_gain);
}

static int32_t build_resmlp(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 4, 1, max_depth);
  int64_t hidden = int_arg(m, "hidden", 512, 1, max_hidden);
  brim_act act = act_arg(m, "relu");
  float dropout = dropout_arg(m);
  brim_graph *g = m->g;
  int32_t x = brim_graph_linear(g, flat_input(m), hidden, true, label(m, "input").text);
  for (int64_t i = 0; i < depth; i++) {
    long long n = (long long)i;
    brim_graph_segment_begin(g);
    int32_t y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm", n).text);
    y = brim_graph_linear(g, y, hidden, true, label(m, "blocks.%lld.fc1", n).text);
    y = brim_graph_act(g, y, act);
    y = brim_graph_linear(g, y, hidden, true, label(m, "blocks.%lld.fc2", n).text);
    y = brim_graph_dropout(g, y, dropout);
    x = brim_graph_add(g, x, y);
    brim_graph_segment_end(g);
  }
  x = brim_graph_layernorm(g, x, layernorm_eps, label(m, "norm").text);
  if (m->features) return x;
  return brim_graph_linear(g, x, m->outputs, true, label(m, "output").text);
}

//---------------------------------- policies ----------------------------------

static int32_t build_linear_policy(const brim_model *m) {
  return brim_graph_linear(m->g, flat_input(m), m->outputs, false, m->prefix);
}

static int32_t build_mlp_policy(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 1, 0, 64);
  int64_t hidden = int_arg(m, "hidden", 256, 1, max_hidden);
  return stack(m, flat_input(m), "", m->outputs, depth, hidden, act_arg(m, "relu"));
}

static int32_t build_actor_critic(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 2, 0, 64);
  int64_t hidden = int_arg(m, "hidden", 256, 1, max_hidden);
  brim_act act = act_arg(m, "tanh");
  if (m->outputs < 2) {
    brim_model_fail(m, "actor_critic has %lld outputs, expected actions and a value: 2 or more",
                    (long long)m->outputs);
    return -1;
  }
  brim_graph *g = m->g;
  int32_t x = flat_input(m), actor, critic;
  if (brim_component_bool(m->c, "shared", false)) {
    x = stack(m, x, "trunk.", 0, depth, hidden, act);
    actor = brim_graph_linear(g, x, m->outputs - 1, true, label(m, "actor").text);
    critic = brim_graph_linear(g, x, 1, true, label(m, "critic").text);
  } else {
    actor = stack(m, x, "actor.", m->outputs - 1, depth, hidden, act);
    critic = stack(m, x, "critic.", 1, depth, hidden, act);
  }
  return brim_graph_concat(g, actor, critic);
}

//---------------------------------- the table ----------------------------------

#define RESNET(name) \
  { name, {"stem", "width", "zero_init", "num_classes"}, build_resnet }

const brim_model_row brim_models[] = {
    {"linear", {"bias", "num_classes"}, build_linear},
    {"mlp",
     {"depth", "hidden", "activation", "dropout", "norm", "init", "gain", "last_gain",
      "num_classes"},
     build_mlp},
    {"resmlp", {"depth", "hidden", "activation", "dropout", "num_classes"}, build_resmlp},
    {"linear_policy", {NULL}, build_linear_policy},
    {"mlp_policy", {"depth", "hidden", "activation"}, build_mlp_policy},
    {"actor_critic", {"depth", "hidden", "activation", "shared"}, build_actor_critic},
    RESNET("resnet18"),
    RESNET("resnet34"),
    RESNET("resnet50"),
    RESNET("resnet101"),
    RESNET("resnet152"),
    {"wideresnet", {"depth", "width", "dropout", "num_classes"}, build_wideresnet},
    {"simclr", {"backbone", "hidden", "dim", "depth", "batch_norm"}, build_simclr},
    {"transformer",
     {"depth", "hidden", "heads", "patch", "mlp_ratio", "dropout", "num_classes"},
     build_transformer},
    {NULL, {NULL}, NULL},
};

static int32_t build_part(const brim_model *m) {
  const char *names[64] = {0};
  size_t count = 0;
  if (m->g->status) return -1;
  for (const brim_model_row *row = brim_models; row->name; row++) {
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
  *out = build_part(&m);
  return g->status;
}
