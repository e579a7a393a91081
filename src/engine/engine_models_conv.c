// Convolutional networks. Names are torchvision's for ResNets (conv1, bn1, layer1.0.conv1,
// layer1.0.downsample.0, fc), those of the usual PyTorch module for wide ResNets (conv1,
// block1.layer.0.bn1, block1.layer.0.convShortcut, bn1, fc), and backbone.* and projector.N, N as
// nn.Sequential counts, for SimCLR. A residual block is a segment for recomputation.
#include <string.h>

#include "engine/engine_models.h"

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

typedef struct block_spec {
  int64_t width;  // of the inner convolutions
  int32_t stride;
  bool bottleneck, zero_init;
  const char *name;
} block_spec;

// The way round a block; it comes first, so that the last norm can take the addition in.
static int32_t shortcut(const brim_model *m, int32_t x, const block_spec *b) {
  int64_t outputs = b->width * (b->bottleneck ? 4 : 1);
  if (m->g->status || (b->stride == 1 && channels_of(m, x) == outputs)) return x;
  x = conv(m, x, outputs, 1, b->stride, brim_model_label(m, "%s.downsample.0", b->name).text);
  return norm(m, x, false, brim_model_label(m, "%s.downsample.1", b->name).text);
}

// torchvision's: a bottleneck has its stride in the 3x3 convolution.
static int32_t residual_block(const brim_model *m, int32_t x, const block_spec *b) {
  brim_graph_segment_begin(m->g);
  int32_t around = shortcut(m, x, b);
  const char *name = b->name;
  int32_t y = x;
  if (b->bottleneck) {
    y = conv(m, y, b->width, 1, 1, brim_model_label(m, "%s.conv1", name).text);
    y = relu(m, norm(m, y, false, brim_model_label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, b->stride, brim_model_label(m, "%s.conv2", name).text);
    y = relu(m, norm(m, y, false, brim_model_label(m, "%s.bn2", name).text));
    y = conv(m, y, b->width * 4, 1, 1, brim_model_label(m, "%s.conv3", name).text);
    y = norm(m, y, b->zero_init, brim_model_label(m, "%s.bn3", name).text);
  } else {
    y = conv(m, y, b->width, 3, b->stride, brim_model_label(m, "%s.conv1", name).text);
    y = relu(m, norm(m, y, false, brim_model_label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, 1, brim_model_label(m, "%s.conv2", name).text);
    y = norm(m, y, b->zero_init, brim_model_label(m, "%s.bn2", name).text);
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
  int32_t x = brim_model_images(m, &channels);
  brim_conv_spec spec = {.inputs = channels,
                         .outputs = width,
                         .kernel = small ? 3 : 7,
                         .stride = small ? 1 : 2,
                         .pad = small ? 1 : 3};
  if (m->g->status) return -1;
  x = brim_graph_conv(m->g, x, &spec, brim_model_label(m, "conv1").text);
  x = relu(m, norm(m, x, false, brim_model_label(m, "bn1").text));
  return small ? x : brim_graph_maxpool(m->g, x, 3, 2, 1);
}

static int32_t build_resnet(const brim_model *m) {
  const resnet_row *row = resnets;
  while (strcmp(row->name, m->c->name) != 0) row++;  // the table below has the same names
  int64_t width = brim_model_int(m, "width", 64, 1, 4096);
  bool zero = brim_component_bool(m->c, "zero_init", false);
  int32_t x = stem_of(m, width);
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < row->blocks[stage]; i++) {
      brim_model_name name = brim_model_label(m, "layer%d.%d", stage + 1, i);
      // The label of a block is written out once; its parts must not get the prefix again.
      block_spec b = {.width = width << stage,
                      .stride = stage > 0 && i == 0 ? 2 : 1,
                      .bottleneck = row->bottleneck,
                      .zero_init = zero,
                      .name = name.text + strlen(m->prefix)};
      x = residual_block(m, x, &b);
    }
  }
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, brim_model_label(m, "fc").text);
}

//---------------------------------- wide ResNet ----------------------------------

// Norm and ReLU before each convolution; a block that changes the width takes its shortcut after
// the first norm, the others before it.
static int32_t wide_block(const brim_model *m, int32_t x, int64_t width, int32_t stride,
                          float dropout, const char *name) {
  brim_graph_segment_begin(m->g);
  bool same = stride == 1 && channels_of(m, x) == width;
  int32_t y = relu(m, norm(m, x, false, brim_model_label(m, "%s.bn1", name).text));
  int32_t around = x;
  if (!same) {
    around = conv(m, y, width, 1, stride, brim_model_label(m, "%s.convShortcut", name).text);
  }
  y = conv(m, y, width, 3, stride, brim_model_label(m, "%s.conv1", name).text);
  y = relu(m, norm(m, y, false, brim_model_label(m, "%s.bn2", name).text));
  y = brim_graph_dropout(m->g, y, dropout);
  y = conv(m, y, width, 3, 1, brim_model_label(m, "%s.conv2", name).text);
  y = brim_graph_add(m->g, around, y);
  brim_graph_segment_end(m->g);
  return y;
}

static int32_t build_wideresnet(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 28, 10, 1000);
  int64_t widen = brim_model_int(m, "width", 10, 1, 64);
  float dropout = brim_model_dropout(m);
  if ((depth - 4) % 6 != 0) {
    brim_model_fail(m, "depth is %lld, expected 6 n + 4: 10, 16, 22, 28, 34, 40 ...",
                    (long long)depth);
  }
  int64_t channels = 1;
  int32_t x = brim_model_images(m, &channels);
  if (m->g->status) return -1;
  brim_conv_spec spec = {.inputs = channels, .outputs = 16, .kernel = 3, .stride = 1, .pad = 1};
  x = brim_graph_conv(m->g, x, &spec, brim_model_label(m, "conv1").text);
  for (int stage = 0; stage < 3; stage++) {
    for (int64_t i = 0; i < (depth - 4) / 6; i++) {
      brim_model_name name = brim_model_label(m, "block%d.layer.%lld", stage + 1, (long long)i);
      x = wide_block(m, x, (16 * widen) << stage, stage > 0 && i == 0 ? 2 : 1, dropout,
                     name.text + strlen(m->prefix));
    }
  }
  x = relu(m, norm(m, x, false, brim_model_label(m, "bn1").text));
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, brim_model_label(m, "fc").text);
}

//---------------------------------- SimCLR ----------------------------------

// An encoder without its last layer, then Linear and ReLU, once or more often, and Linear. What it
// outputs is as wide as `dim`; NT-Xent normalises it.
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
  brim_model_name prefix = brim_model_label(m, "backbone.");
  part.prefix = prefix.text;
  int64_t hidden = brim_model_int(m, "hidden", 512, 1, 65536);
  int64_t dim = brim_model_int(m, "dim", 128, 1, 65536);
  int64_t depth = brim_model_int(m, "depth", 1, 1, 16);
  int32_t x = m->part(&part);
  if (m->features) return x;
  bool bn = brim_component_bool(m->c, "batch_norm", false);
  int place = 0;
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, !bn, brim_model_label(m, "projector.%d", place++).text);
    if (bn) x = norm(m, x, false, brim_model_label(m, "projector.%d", place++).text);
    x = relu(m, x);
    place++;
  }
  return brim_graph_linear(m->g, x, dim, true, brim_model_label(m, "projector.%d", place).text);
}

#define RESNET(name) \
  { name, {"stem", "width", "zero_init", "num_classes"}, build_resnet }

const brim_model_row brim_models_conv[] = {
    RESNET("resnet18"),
    RESNET("resnet34"),
    RESNET("resnet50"),
    RESNET("resnet101"),
    RESNET("resnet152"),
    {"wideresnet", {"depth", "width", "dropout", "num_classes"}, build_wideresnet},
    {"simclr", {"backbone", "hidden", "dim", "depth", "batch_norm"}, build_simclr},
    {NULL, {NULL}, NULL},
};
