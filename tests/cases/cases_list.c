// The list: per op its shapes and its variants; a case is one of each.
#include "cases/cases_int.h"

#define LINEAR_TOKENS(n_, l_, k_, m_) \
  { .n = n_, .l = l_, .k = k_, .m = m_ }
#define MAT(n_, k_, m_) \
  { .n = n_, .k = k_, .m = m_ }
#define FLAT(n_, k_) \
  { .n = n_, .k = k_ }
#define TOKENS(n_, l_, k_) \
  { .n = n_, .l = l_, .k = k_ }
#define IMAGE(n_, h_, w_, k_) \
  { .n = n_, .h = h_, .w = w_, .k = k_ }
#define CONV(n_, h_, w_, k_, m_, r_, s_, stride_, pad_) \
  { .n = n_, .h = h_, .w = w_, .k = k_, .m = m_, .r = r_, .s = s_, .stride = stride_, .pad = pad_ }
#define POOL(n_, h_, w_, k_, r_, stride_, pad_) \
  { .n = n_, .h = h_, .w = w_, .k = k_, .r = r_, .stride = stride_, .pad = pad_ }
#define HEADS(n_, l_, k_, heads_) \
  { .n = n_, .l = l_, .k = k_, .heads = heads_ }

// 1, primes, sizes one below and one above vector widths and blocks, and MNIST's own; columns in 32s, as AMX tiles need
// them; rows that are tokens.
static const case_shape linear_shapes[] = {
    MAT(1, 1, 1),
    MAT(1, 7, 3),
    MAT(5, 1, 9),
    MAT(3, 17, 31),
    MAT(2, 16, 16),
    MAT(13, 64, 10),
    MAT(33, 65, 5),
    MAT(64, 31, 67),
    MAT(127, 10, 16),
    MAT(32, 784, 96),
    MAT(257, 101, 129),
    MAT(6, 1031, 2),
    MAT(40, 32, 64),
    LINEAR_TOKENS(3, 5, 17, 9),
    LINEAR_TOKENS(2, 43, 16, 48),
};
// MNIST's layers; ResNet-18's last; the transformer 3/16 on 256 signals of 172 tokens.
static const case_shape linear_speed[] = {
    MAT(512, 784, 512),
    MAT(512, 512, 512),
    MAT(512, 512, 10),
    MAT(64, 512, 10),
    LINEAR_TOKENS(256, 172, 60, 16),
    LINEAR_TOKENS(256, 172, 16, 48),
    LINEAR_TOKENS(256, 172, 16, 16),
    LINEAR_TOKENS(256, 172, 16, 64),
    LINEAR_TOKENS(256, 172, 64, 16),
};
static const case_shape flat_shapes[] = {
    FLAT(1, 1), FLAT(1, 13), FLAT(7, 1), FLAT(3, 17), FLAT(64, 64), FLAT(129, 257), TOKENS(3, 5, 7),
};
static const case_shape flat_speed[] = {FLAT(512, 512), FLAT(512, 784), TOKENS(256, 172, 64)};
static const case_shape row_shapes[] = {
    FLAT(1, 2), FLAT(2, 10), FLAT(5, 3), FLAT(17, 31), FLAT(64, 10), FLAT(33, 1000), FLAT(128, 257),
};
static const case_shape row_speed[] = {FLAT(512, 10), FLAT(512, 512)};
// At least three columns: with two, the gradient of a layer norm is only rounding error.
static const case_shape norm_shapes[] = {
    FLAT(1, 3),   FLAT(2, 10),    FLAT(5, 4),     FLAT(17, 31),
    FLAT(64, 16), FLAT(33, 1000), FLAT(128, 257), TOKENS(3, 7, 16),
};
static const case_shape norm_speed[] = {FLAT(512, 512), TOKENS(256, 172, 16)};
static const case_shape input_shapes[] = {FLAT(1, 12), FLAT(3, 24), FLAT(32, 3072), FLAT(17, 588)};
static const case_shape input_speed[] = {FLAT(512, 3072)};
static const case_shape param_shapes[] = {
    {.n = 1}, {.n = 13}, {.n = 64}, {.n = 1023}, {.n = 66661}};
static const case_shape param_speed[] = {{.n = 1197066}, {.n = 11173962}};

// Every stride and pad of the models, square and oblong windows, rows that no window reaches, one pixel, channels
// around vector widths.
static const case_shape conv_shapes[] = {
    CONV(1, 1, 1, 1, 1, 1, 1, 1, 0),   CONV(1, 3, 3, 1, 1, 3, 3, 1, 1),
    CONV(2, 5, 7, 3, 4, 3, 3, 1, 1),   CONV(2, 5, 7, 3, 4, 3, 3, 2, 1),
    CONV(3, 8, 8, 16, 16, 3, 3, 1, 1), CONV(2, 9, 9, 8, 24, 3, 3, 2, 1),
    CONV(2, 7, 5, 17, 31, 1, 1, 1, 0), CONV(2, 8, 8, 16, 32, 1, 1, 2, 0),
    CONV(1, 15, 15, 3, 8, 7, 7, 2, 3), CONV(2, 6, 6, 5, 7, 2, 2, 2, 0),
    CONV(1, 6, 9, 4, 3, 2, 3, 1, 1),   CONV(2, 11, 10, 4, 6, 5, 5, 3, 2),
    CONV(1, 7, 8, 2, 3, 1, 1, 3, 0),   CONV(2, 8, 8, 6, 5, 3, 3, 2, 0),
    CONV(1, 8, 8, 64, 64, 3, 3, 1, 1), CONV(4, 4, 4, 64, 128, 3, 3, 2, 1),
    CONV(2, 8, 8, 4, 64, 3, 3, 1, 1),  CONV(1, 2, 2, 130, 66, 3, 3, 1, 1),
    CONV(4, 6, 6, 2, 4, 1, 1, 2, 0),   CONV(3, 8, 8, 10, 12, 1, 1, 2, 0),
};
// The layers of ResNet-18 for 32 x 32 images, batch 64, and of a wide ResNet 28-2, batch 512.
static const case_shape conv_speed[] = {
    CONV(64, 32, 32, 4, 64, 3, 3, 1, 1),    CONV(64, 32, 32, 64, 64, 3, 3, 1, 1),
    CONV(64, 32, 32, 64, 128, 3, 3, 2, 1),  CONV(64, 32, 32, 64, 128, 1, 1, 2, 0),
    CONV(64, 16, 16, 128, 128, 3, 3, 1, 1), CONV(64, 16, 16, 128, 256, 3, 3, 2, 1),
    CONV(64, 8, 8, 256, 256, 3, 3, 1, 1),   CONV(64, 8, 8, 256, 512, 3, 3, 2, 1),
    CONV(64, 4, 4, 512, 512, 3, 3, 1, 1),   CONV(512, 32, 32, 16, 32, 3, 3, 1, 1),
    CONV(512, 32, 32, 32, 32, 3, 3, 1, 1),  CONV(512, 16, 16, 64, 64, 3, 3, 1, 1),
    CONV(512, 8, 8, 128, 128, 3, 3, 1, 1),
};
// At least six values per channel, four of them valid.
static const case_shape image_shapes[] = {
    IMAGE(2, 2, 2, 1),   IMAGE(3, 1, 3, 5),   IMAGE(4, 2, 3, 7),
    IMAGE(9, 1, 1, 16),  IMAGE(2, 5, 5, 17),  IMAGE(8, 4, 4, 64),
    IMAGE(3, 3, 3, 300), IMAGE(32, 3, 2, 12), IMAGE(5, 9, 7, 33),
};
static const case_shape image_speed[] = {
    IMAGE(64, 32, 32, 64),  IMAGE(64, 16, 16, 128), IMAGE(64, 8, 8, 256),  IMAGE(64, 4, 4, 512),
    IMAGE(512, 32, 32, 32), IMAGE(512, 16, 16, 64), IMAGE(512, 8, 8, 128),
};
static const case_shape parts_shapes[] = {
    FLAT(1, 1),  FLAT(1, 16), FLAT(2, 7),   FLAT(2, 64),
    FLAT(3, 33), FLAT(4, 17), FLAT(4, 300), FLAT(4, 2048),
};
static const case_shape parts_speed[] = {FLAT(4, 64), FLAT(16, 512)};
static const case_shape pool_shapes[] = {
    POOL(1, 1, 1, 1, 1, 1, 0),    POOL(2, 5, 7, 3, 3, 2, 1),   POOL(2, 8, 8, 16, 2, 2, 0),
    POOL(1, 9, 9, 17, 3, 1, 1),   POOL(2, 7, 6, 5, 3, 3, 2),   POOL(1, 20, 17, 2, 15, 4, 7),
    POOL(3, 4, 4, 65, 2, 1, 0),   POOL(1, 5, 5, 300, 3, 2, 1), POOL(1, 7, 7, 4, 2, 3, 1),
    POOL(2, 16, 16, 64, 3, 2, 1),
};
static const case_shape pool_speed[] = {POOL(32, 112, 112, 64, 3, 2, 1)};
static const case_shape mean_shapes[] = {
    IMAGE(1, 1, 1, 1), IMAGE(2, 4, 4, 16), IMAGE(3, 7, 7, 5), IMAGE(2, 3, 2, 300),
    TOKENS(3, 43, 16), TOKENS(17, 5, 33),  TOKENS(2, 172, 7),
};
static const case_shape mean_speed[] = {IMAGE(64, 4, 4, 512), IMAGE(512, 8, 8, 128),
                                        TOKENS(256, 172, 16)};
static const case_shape token_shapes[] = {
    TOKENS(1, 1, 1), TOKENS(2, 3, 5), TOKENS(3, 7, 16), TOKENS(33, 4, 9), TOKENS(2, 5, 300),
};
static const case_shape token_speed[] = {TOKENS(256, 172, 16)};
static const case_shape attention_shapes[] = {
    HEADS(1, 1, 1, 1),   HEADS(2, 3, 4, 2),    HEADS(3, 7, 6, 3),   HEADS(2, 17, 16, 4),
    HEADS(1, 33, 16, 1), HEADS(2, 43, 24, 3),  HEADS(1, 65, 64, 2), HEADS(1, 129, 8, 2),
    HEADS(1, 5, 128, 1), HEADS(2, 172, 16, 4),
};
static const case_shape attention_speed[] = {HEADS(256, 172, 16, 4), HEADS(256, 172, 64, 4),
                                             HEADS(256, 172, 128, 4)};
static const case_shape concat_shapes[] = {
    MAT(1, 1, 1), MAT(3, 5, 2), MAT(7, 16, 16), MAT(33, 300, 7), MAT(64, 3, 65),
};
static const case_shape concat_speed[] = {MAT(4096, 64, 16)};
// Samples are half of the rows.
static const case_shape views_shapes[] = {
    FLAT(4, 8), FLAT(6, 16), FLAT(10, 33), FLAT(34, 24), FLAT(64, 128), FLAT(18, 300),
};
static const case_shape views_speed[] = {FLAT(1024, 128)};
static const case_shape ring_shapes[] = {{.n = 1}, {.n = 4}, {.n = 7}, {.n = 512}};
static const case_shape ring_speed[] = {{.n = 512}};
// Long sums and many outputs, so that rounding errors average out.
static const case_shape linear_tf32_shapes[] = {MAT(64, 31, 67), MAT(32, 784, 96),
                                                MAT(129, 65, 129), LINEAR_TOKENS(4, 43, 16, 48)};
static const case_shape conv_tf32_shapes[] = {
    CONV(2, 8, 8, 32, 32, 3, 3, 1, 1), CONV(2, 9, 9, 16, 24, 3, 3, 2, 1),
    CONV(3, 8, 8, 64, 32, 1, 1, 1, 0), CONV(1, 21, 21, 4, 16, 7, 7, 2, 3)};
// Shapes that reach the kernels made for the real networks, in the variants that matter there: the transformer's narrow
// layers, those of a policy (with few outputs of any number), its longest signals and other sizes of heads; the stems
// and stages of the residual networks; channels and rows of their largest norms.
static const case_shape linear_large_shapes[] = {
    MAT(5003, 60, 16),  MAT(300, 128, 100), MAT(300, 64, 16),   MAT(20000, 16, 48),
    MAT(5536, 16, 48),  MAT(1290, 32, 128), MAT(700, 128, 128), MAT(1290, 128, 8),
    MAT(4099, 128, 5),  MAT(4099, 128, 1),  MAT(4100, 64, 10),  MAT(4224, 16, 3),
    MAT(4097, 40, 128), MAT(4099, 24, 2),   MAT(4098, 120, 8)};
static const case_shape attention_large_shapes[] = {
    HEADS(1, 530, 16, 1), HEADS(1, 530, 64, 4), HEADS(1, 300, 64, 1), HEADS(1, 300, 256, 4),
    HEADS(2, 81, 100, 1), HEADS(1, 81, 400, 4), HEADS(2, 172, 16, 1), HEADS(2, 172, 64, 4)};
static const case_shape conv_large_shapes[] = {
    CONV(2, 32, 32, 3, 64, 7, 7, 2, 3),   CONV(2, 32, 32, 4, 64, 7, 7, 2, 3),
    CONV(2, 32, 32, 8, 64, 7, 7, 2, 3),   CONV(2, 32, 32, 64, 64, 3, 3, 1, 1),
    CONV(2, 32, 32, 64, 128, 1, 1, 2, 0), CONV(2, 32, 32, 16, 32, 3, 3, 1, 1),
    CONV(2, 32, 32, 16, 32, 1, 1, 1, 0)};
static const case_shape row_large_shapes[] = {FLAT(70001, 5)};
static const case_shape image_large_shapes[] = {IMAGE(4, 3, 3, 2048), IMAGE(1000, 10, 10, 16)};
#define linear_tf32_speed linear_speed
#define conv_tf32_speed conv_speed

static const case_variant linear_variants[] = {
    {.text = "plain"},
    {.text = "bias", .optional = true},
    {.text = "bias relu", .optional = true, .attr = {.act = BRIM_ACT_RELU}},
    {.text = "bias gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU}},
    {.text = "bias tanh", .optional = true, .attr = {.act = BRIM_ACT_TANH}},
    {.text = "relu", .attr = {.act = BRIM_ACT_RELU}},
};
static const case_variant bwd_data_variants[] = {
    {.text = "plain"},
    {.text = "relu", .optional = true, .attr = {.act = BRIM_ACT_RELU}},
    {.text = "gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU}},
    {.text = "tanh", .optional = true, .attr = {.act = BRIM_ACT_TANH}},
};
static const case_variant bwd_weight_variants[] = {
    {.text = "plain"},
    {.text = "db", .optional = true},
    {.text = "accumulate", .attr = {.accumulate = true}},
    {.text = "db accumulate", .optional = true, .attr = {.accumulate = true}},
};
static const case_variant act_variants[] = {
    {.text = "relu", .attr = {.act = BRIM_ACT_RELU}},
    {.text = "gelu", .attr = {.act = BRIM_ACT_GELU}},
    {.text = "tanh", .attr = {.act = BRIM_ACT_TANH}},
};
static const case_variant layernorm_variants[] = {
    {.text = "eps=1e-5", .attr = {.eps = 1e-5f}},
    {.text = "eps=0.1", .attr = {.eps = 0.1f}},
};
static const case_variant layernorm_bwd_variants[] = {
    {.text = "plain", .attr = {.eps = 1e-5f}},
    {.text = "accumulate", .attr = {.eps = 1e-5f, .accumulate = true}},
};
static const case_variant dropout_variants[] = {
    {.text = "p=0.5", .attr = {.p = 0.5f, .layer = 1}},
    {.text = "p=0", .attr = {.p = 0.0f, .layer = 2}},
    {.text = "p=0.1 offset", .attr = {.p = 0.1f, .layer = 3}, .row_offset = 37},
    {.text = "p=0.9 late", .attr = {.p = 0.9f, .layer = 65535}, .step = 123456789},
};
static const case_variant add_variants[] = {
    {.text = "apart"},
    {.text = "onto a", .in_place = 1},
    {.text = "onto b", .in_place = 2},
};
static const case_variant cast_variants[] = {
    {.text = "to f32", .type2 = CASE_F32},
    {.text = "to bf16", .type2 = BRIM_BF16},
    {.text = "to f16", .type2 = BRIM_F16},
    {.text = "to f64", .type2 = BRIM_F64},
};
#define SCALES .scale = {0.017f, 0.0175f, 0.0174f, 0.02f}, .shift = {-2.1f, -2.0f, 1.8f, 0.5f}
static const case_variant input_variants[] = {
    {.text = "u8 grey", .type2 = BRIM_U8, .attr = {.channels = 1, SCALES}},
    {.text = "u8 rgb", .type2 = BRIM_U8, .attr = {.channels = 3, SCALES}},
    {.text = "u8 4 channels", .type2 = BRIM_U8, .attr = {.channels = 4, SCALES}},
    {.text = "f32 rgb", .type2 = CASE_F32, .attr = {.channels = 3, SCALES}},
    {.text = "u8 rgb image", .type2 = BRIM_U8, .wide = 3, .attr = {.channels = 3, SCALES}},
    {.text = "u8 rgb to 4 channels", .type2 = BRIM_U8, .wide = 4, .attr = {.channels = 3, SCALES}},
    {.text = "u8 rgb to 8 channels", .type2 = BRIM_U8, .wide = 8, .attr = {.channels = 3, SCALES}},
    {.text = "f32 grey to 5 channels",
     .type2 = CASE_F32,
     .wide = 5,
     .rare = true,
     .attr = {.channels = 1, SCALES}},
};
static const case_variant xent_variants[] = {
    {.text = "loss"},
    {.text = "gradient", .optional = true},
    {.text = "gradient smoothing", .optional = true, .attr = {.label_smoothing = 0.1f}},
    {.text = "gradient padding", .optional = true, .padding = true},
    {.text = "gradient scaled bad labels",
     .optional = true,
     .bad_labels = true,
     .loss_scale = 1024,
     .attr = {.label_smoothing = 0.3f}},
    {.text = "nonfinite", .nonfinite = true},
};
static const case_variant mse_variants[] = {
    {.text = "loss"},
    {.text = "gradient", .optional = true},
    {.text = "gradient padding scaled", .optional = true, .padding = true, .loss_scale = 512},
    {.text = "nonfinite", .nonfinite = true},
};
static const case_variant norm_variants[] = {{.text = "plain"},
                                             {.text = "nonfinite", .nonfinite = true}};
#define ADAM .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f
static const case_variant optimizer_variants[] = {
    {.text = "sgd"},
    {.text = "sgd decay clip", .attr = {.weight_decay = 0.01f}, .clip = 0.5},
    {.text = "sgd momentum first", .step = 1, .attr = {.momentum = 0.9f}},
    {.text = "sgd momentum decay", .attr = {.momentum = 0.9f, .weight_decay = 1e-3f}},
    {.text = "sgd nesterov scaled",
     .loss_scale = 8,
     .attr = {.momentum = 0.8f, .nesterov = true, .weight_decay = 1e-3f}},
    {.text = "adam first", .step = 1, .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM}},
    {.text = "adam decay clip",
     .clip = 0.25,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM, .weight_decay = 0.1f}},
    {.text = "adamw decay",
     .step = 1000,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.1f}},
    {.text = "adamw bf16 scaled clip",
     .type2 = BRIM_BF16,
     .clip = 1,
     .loss_scale = 2,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.01f}},
    {.text = "adam f16", .type2 = BRIM_F16, .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM}},
    {.text = "adamw skipped",
     .nonfinite = true,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.1f}},
    {.text = "sgd average first", .step = 1, .optional = true, .attr = {.average_rate = 0.01f}},
    {.text = "sgd momentum average",
     .step = 5000,
     .optional = true,
     .attr = {.momentum = 0.9f, .average_rate = 0.01f}},
    {.text = "adamw average bf16",
     .step = 40,
     .optional = true,
     .type2 = BRIM_BF16,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .average_rate = 1e-4f}},
    {.text = "adam average skipped",
     .nonfinite = true,
     .optional = true,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM, .average_rate = 0.1f}},
};

//---------------------------------- images ----------------------------------

static const case_variant plain_variants[] = {{.text = "plain"}};
static const case_variant sum_variants[] = {
    {.text = "plain"},
    {.text = "accumulate", .attr = {.accumulate = true}},
};
#define NORM .eps = 1e-5f, .momentum = 0.1f
#define RELU .act = BRIM_ACT_RELU
static const case_variant batchnorm_variants[] = {
    {.text = "running", .with = BRIM_WITH_RUNNING, .attr = {NORM}},
    {.text = "running relu", .with = BRIM_WITH_RUNNING, .attr = {NORM, RELU}},
    {.text = "running z relu", .with = BRIM_WITH_RUNNING | BRIM_WITH_Z, .attr = {NORM, RELU}},
    {.text = "plain", .rare = true, .attr = {NORM}},
    {.text = "z", .rare = true, .with = BRIM_WITH_Z, .attr = {.eps = 0.1f, .momentum = 0.1f}},
    {.text = "running padding relu",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM, RELU}},
    {.text = "running padding z momentum=1",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_RUNNING | BRIM_WITH_Z,
     .attr = {.eps = 1e-3f, .momentum = 1}},
    {.text = "running offset",
     .rare = true,
     .offset = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM}},
    {.text = "running empty",
     .rare = true,
     .empty = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM}},
};
static const case_variant batchnorm_apply_variants[] = {
    {.text = "rstd relu", .attr = {RELU}},
    {.text = "rstd z relu", .with = BRIM_WITH_Z, .attr = {RELU}},
    {.text = "variance relu", .attr = {RELU, .variance = true, .eps = 1e-5f}},
    {.text = "variance z relu",
     .with = BRIM_WITH_Z,
     .attr = {RELU, .variance = true, .eps = 1e-5f}},
    {.text = "rstd", .rare = true},
    {.text = "variance z", .rare = true, .with = BRIM_WITH_Z, .attr = {.variance = true, NORM}},
};
static const case_variant batchnorm_bwd_variants[] = {
    {.text = "plain", .attr = {NORM}},
    {.text = "relu", .attr = {NORM, RELU}},
    {.text = "relu y dz", .with = BRIM_WITH_Y | BRIM_WITH_DZ, .attr = {NORM, RELU}},
    {.text = "relu y dy2 dz",
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "accumulate", .rare = true, .attr = {NORM, .accumulate = true}},
    {.text = "relu y", .rare = true, .with = BRIM_WITH_Y, .attr = {NORM, RELU}},
    {.text = "relu dy2", .rare = true, .with = BRIM_WITH_DY2, .attr = {NORM, RELU}},
    {.text = "dy2 dz", .rare = true, .with = BRIM_WITH_DY2 | BRIM_WITH_DZ, .attr = {NORM}},
    {.text = "padding relu accumulate",
     .rare = true,
     .padding = true,
     .attr = {NORM, RELU, .accumulate = true}},
    {.text = "padding relu y dy2 dz",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "empty relu y dy2 dz accumulate",
     .rare = true,
     .empty = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU, .accumulate = true}},
    {.text = "onto dy", .rare = true, .in_place = 1, .attr = {NORM}},
    {.text = "relu y dz onto dy",
     .rare = true,
     .in_place = 1,
     .with = BRIM_WITH_Y | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "relu y dy2 onto x, dz onto dy",
     .rare = true,
     .in_place = 3,
     .padding = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "relu onto x", .rare = true, .in_place = 2, .attr = {NORM, RELU}},
    {.text = "relu padding onto x",
     .rare = true,
     .in_place = 2,
     .padding = true,
     .attr = {NORM, RELU}},
};
static const case_variant batchnorm_part_variants[] = {
    {.text = "plain"},
    {.text = "padding", .rare = true, .padding = true},
    {.text = "offset", .rare = true, .offset = true},
    {.text = "empty", .rare = true, .empty = true},
    {.text = "nonfinite", .rare = true, .nonfinite = true},
};
static const case_variant batchnorm_join_variants[] = {
    {.text = "running", .with = BRIM_WITH_RUNNING, .attr = {NORM}},
    {.text = "plain", .rare = true, .attr = {NORM}},
    {.text = "running padding momentum=1",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {.eps = 1e-3f, .momentum = 1}},
    {.text = "running offset",
     .rare = true,
     .offset = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM}},
    {.text = "running empty",
     .rare = true,
     .empty = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM}},
    {.text = "running nonfinite",
     .rare = true,
     .nonfinite = true,
     .with = BRIM_WITH_RUNNING,
     .attr = {NORM}},
};
static const case_variant batchnorm_bwd_sums_variants[] = {
    {.text = "plain", .attr = {NORM}},
    {.text = "relu", .attr = {NORM, RELU}},
    {.text = "relu y dy2", .with = BRIM_WITH_Y | BRIM_WITH_DY2, .attr = {NORM, RELU}},
    {.text = "accumulate", .rare = true, .attr = {NORM, .accumulate = true}},
    {.text = "relu y", .rare = true, .with = BRIM_WITH_Y, .attr = {NORM, RELU}},
    {.text = "offset dy2", .rare = true, .offset = true, .with = BRIM_WITH_DY2, .attr = {NORM}},
    {.text = "padding relu dy2 accumulate",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_DY2,
     .attr = {NORM, RELU, .accumulate = true}},
    {.text = "empty relu y accumulate",
     .rare = true,
     .empty = true,
     .with = BRIM_WITH_Y,
     .attr = {NORM, RELU, .accumulate = true}},
    {.text = "nonfinite", .rare = true, .nonfinite = true, .attr = {NORM}},
};
static const case_variant batchnorm_bwd_joined_variants[] = {
    {.text = "plain", .attr = {NORM}},
    {.text = "relu", .attr = {NORM, RELU}},
    {.text = "relu y dy2 dz",
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "relu y dz", .rare = true, .with = BRIM_WITH_Y | BRIM_WITH_DZ, .attr = {NORM, RELU}},
    {.text = "offset dy2 dz",
     .rare = true,
     .offset = true,
     .with = BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM}},
    {.text = "padding relu dy2 dz",
     .rare = true,
     .padding = true,
     .with = BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "empty relu y dz",
     .rare = true,
     .empty = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "nonfinite", .rare = true, .nonfinite = true, .attr = {NORM}},
    {.text = "onto dy", .rare = true, .in_place = 1, .attr = {NORM}},
    {.text = "relu onto x", .rare = true, .in_place = 2, .attr = {NORM, RELU}},
    {.text = "relu y dy2 onto x, dz onto dy",
     .rare = true,
     .in_place = 3,
     .padding = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
};
static const case_variant maxpool_variants[] = {
    {.text = "plain"},
    {.text = "ties", .ties = true, .rare = true},
    {.text = "nonfinite", .nonfinite = true, .rare = true},
};

//---------------------------------- sequences ----------------------------------

static const case_variant pos_variants[] = {
    {.text = "apart"},
    {.text = "onto x", .in_place = 1},
};
static const case_variant ntxent_variants[] = {
    {.text = "loss", .attr = {.temperature = 0.5f}},
    {.text = "gradient", .optional = true, .attr = {.temperature = 0.5f}},
    {.text = "gradient t=0.1 scaled",
     .optional = true,
     .loss_scale = 256,
     .rare = true,
     .attr = {.temperature = 0.1f}},
    {.text = "gradient padding",
     .optional = true,
     .padding = true,
     .rare = true,
     .attr = {.temperature = 0.5f}},
    {.text = "gradient empty",
     .optional = true,
     .empty = true,
     .rare = true,
     .attr = {.temperature = 0.5f}},
    {.text = "nonfinite", .nonfinite = true, .attr = {.temperature = 0.5f}},
};

#define NEAR(k_, classes_) .neighbours = k_, .classes = classes_, .temperature = 0.1f
static const case_variant knn_variants[] = {
    {.text = "guess", .optional = true, .attr = {NEAR(20, 10)}},
    {.text = "nearest", .attr = {NEAR(1, 3)}},
    {.text = "all", .optional = true, .attr = {NEAR(100000, 7)}},
    {.text = "ties padding", .optional = true, .ties = true, .padding = true, .attr = {NEAR(3, 4)}},
    {.text = "bad labels", .optional = true, .bad_labels = true, .attr = {NEAR(5, 10)}},
    {.text = "nonfinite", .optional = true, .nonfinite = true, .attr = {NEAR(5, 300)}},
    {.text = "nonfinite all", .optional = true, .nonfinite = true, .attr = {NEAR(100000, 5000)}},
};

//---------------------------------- ends of steps ----------------------------------

static const case_variant average_variants[] = {
    {.text = "first", .step = 1, .attr = {.average_rate = 0.01f}},
    {.text = "early", .step = 30, .attr = {.average_rate = 0.001f}},
    {.text = "late", .step = 100000, .attr = {.average_rate = 0.001f}},
    {.text = "skipped", .nonfinite = true, .attr = {.average_rate = 0.01f}},
};

#define DYNAMIC .dynamic_scale = true, .growth_interval = 5
static const case_variant step_end_variants[] = {
    {.text = "fixed", .loss_scale = 128},
    {.text = "fixed nonfinite", .loss_scale = 128, .nonfinite = true},
    {.text = "good", .loss_scale = 1024, .good_steps = 2, .step = 9, .attr = {DYNAMIC}},
    {.text = "grows", .loss_scale = 1024, .good_steps = 4, .step = 20, .attr = {DYNAMIC}},
    {.text = "largest", .loss_scale = 16777216, .good_steps = 4, .attr = {DYNAMIC}},
    {.text = "halves",
     .loss_scale = 4096,
     .good_steps = 3,
     .step = 1000001,
     .nonfinite = true,
     .attr = {DYNAMIC}},
    {.text = "smallest", .good_steps = 3, .nonfinite = true, .attr = {DYNAMIC}},
};

//---------------------------------- large shapes ----------------------------------

static const case_variant linear_large_variants[] = {
    {.text = "plain"},
    {.text = "bias", .optional = true},
    {.text = "bias relu", .optional = true, .attr = {RELU}},
    {.text = "bias gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU}},
    {.text = "bias tanh", .optional = true, .attr = {.act = BRIM_ACT_TANH}},
};
static const case_variant bwd_weight_large_variants[] = {
    {.text = "db", .optional = true},
    {.text = "accumulate", .attr = {.accumulate = true}},
    {.text = "db accumulate", .optional = true, .attr = {.accumulate = true}},
};
static const case_variant xent_large_variants[] = {
    {.text = "gradient padding", .optional = true, .padding = true},
};
static const case_variant mse_large_variants[] = {
    {.text = "gradient padding scaled", .optional = true, .padding = true, .loss_scale = 512},
};
static const case_variant batchnorm_large_variants[] = {
    {.text = "running z relu", .with = BRIM_WITH_RUNNING | BRIM_WITH_Z, .attr = {NORM, RELU}},
    {.text = "running padding", .padding = true, .with = BRIM_WITH_RUNNING, .attr = {NORM}},
};
static const case_variant batchnorm_apply_large_variants[] = {
    {.text = "rstd z relu", .with = BRIM_WITH_Z, .attr = {RELU}},
    {.text = "variance", .attr = {.variance = true, .eps = 1e-5f}},
};
static const case_variant batchnorm_bwd_large_variants[] = {
    {.text = "relu y dy2 dz",
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "padding relu accumulate", .padding = true, .attr = {NORM, RELU, .accumulate = true}},
};
static const case_variant batchnorm_part_large_variants[] = {
    {.text = "offset", .offset = true},
    {.text = "padding", .padding = true},
};
static const case_variant batchnorm_bwd_sums_large_variants[] = {
    {.text = "padding relu y dy2 accumulate",
     .padding = true,
     .with = BRIM_WITH_Y | BRIM_WITH_DY2,
     .attr = {NORM, RELU, .accumulate = true}},
};
static const case_variant batchnorm_bwd_joined_large_variants[] = {
    {.text = "relu y dy2 dz",
     .with = BRIM_WITH_Y | BRIM_WITH_DY2 | BRIM_WITH_DZ,
     .attr = {NORM, RELU}},
    {.text = "padding relu", .padding = true, .attr = {NORM, RELU}},
};

//---------------------------------- tf32 ----------------------------------

static const case_variant tf32_variants[] = {{.text = "tf32", .attr = {.tf32 = true}}};
static const case_variant linear_tf32_variants[] = {
    {.text = "tf32 bias gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU, .tf32 = true}},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define GROUP(op, kind, shapes, variants)                                               \
  {                                                                                     \
    BRIM_OP_##op, CASE_##kind, shapes##_shapes, COUNT(shapes##_shapes), shapes##_speed, \
        COUNT(shapes##_speed), variants##_variants, COUNT(variants##_variants)          \
  }
// A group that is only listed: not fuzzed, not timed.
#define LISTED(op, kind, shapes, variants)                                       \
  {                                                                              \
    BRIM_OP_##op, CASE_##kind, shapes##_shapes, COUNT(shapes##_shapes), NULL, 0, \
        variants##_variants, COUNT(variants##_variants)                          \
  }
static const case_group groups[] = {
    GROUP(LINEAR, LINEAR, linear, linear),
    GROUP(LINEAR_BWD_DATA, LINEAR, linear, bwd_data),
    GROUP(LINEAR_BWD_WEIGHT, LINEAR, linear, bwd_weight),
    GROUP(CONV, CONV, conv, plain),
    GROUP(CONV_BWD_DATA, CONV, conv, plain),
    GROUP(CONV_BWD_WEIGHT, CONV, conv, sum),
    GROUP(BATCHNORM, IMAGE, image, batchnorm),
    GROUP(BATCHNORM_APPLY, IMAGE, image, batchnorm_apply),
    GROUP(BATCHNORM_BWD, IMAGE, image, batchnorm_bwd),
    GROUP(BATCHNORM_PART, IMAGE, image, batchnorm_part),
    GROUP(BATCHNORM_JOIN, PARTS, parts, batchnorm_join),
    GROUP(BATCHNORM_BWD_SUMS, IMAGE, image, batchnorm_bwd_sums),
    GROUP(BATCHNORM_BWD_JOINED, IMAGE, image, batchnorm_bwd_joined),
    GROUP(MAXPOOL, POOL, pool, maxpool),
    GROUP(MAXPOOL_BWD, POOL, pool, plain),
    GROUP(MEAN, MEAN, mean, plain),
    GROUP(MEAN_BWD, MEAN, mean, plain),
    GROUP(POS, TOKEN, token, pos),
    GROUP(POS_BWD, TOKEN, token, sum),
    GROUP(ATTENTION, ATTENTION, attention, plain),
    GROUP(ATTENTION_BWD, ATTENTION, attention, plain),
    GROUP(CONCAT, CONCAT, concat, plain),
    GROUP(CONCAT_BWD, CONCAT, concat, plain),
    GROUP(ACT, FLAT, flat, act),
    GROUP(ACT_BWD, FLAT, flat, act),
    GROUP(LAYERNORM, NORM, norm, layernorm),
    GROUP(LAYERNORM_BWD, NORM, norm, layernorm_bwd),
    GROUP(DROPOUT, FLAT, flat, dropout),
    GROUP(ADD, FLAT, flat, add),
    GROUP(CAST, FLAT, flat, cast),
    GROUP(INPUT, INPUT, input, input),
    GROUP(XENT, ROW, row, xent),
    GROUP(MSE, ROW, row, mse),
    GROUP(BCE, ROW, row, mse),
    GROUP(NTXENT, VIEWS, views, ntxent),
    GROUP(UNIT, ROW, row, plain),
    GROUP(KNN, ROW, row, knn),
    GROUP(GRAD_NORM, PARAM, param, norm),
    GROUP(OPTIMIZER, PARAM, param, optimizer),
    GROUP(AVERAGE, PARAM, param, average),
    GROUP(STEP_END, RING, ring, step_end),
    LISTED(LINEAR, LINEAR, linear_large, linear_large),
    LISTED(LINEAR_BWD_DATA, LINEAR, linear_large, bwd_data),
    LISTED(LINEAR_BWD_WEIGHT, LINEAR, linear_large, bwd_weight_large),
    LISTED(CONV, CONV, conv_large, plain),
    LISTED(CONV_BWD_DATA, CONV, conv_large, plain),
    LISTED(CONV_BWD_WEIGHT, CONV, conv_large, sum),
    LISTED(BATCHNORM, IMAGE, image_large, batchnorm_large),
    LISTED(BATCHNORM_APPLY, IMAGE, image_large, batchnorm_apply_large),
    LISTED(BATCHNORM_BWD, IMAGE, image_large, batchnorm_bwd_large),
    LISTED(BATCHNORM_PART, IMAGE, image_large, batchnorm_part_large),
    LISTED(BATCHNORM_BWD_SUMS, IMAGE, image_large, batchnorm_bwd_sums_large),
    LISTED(BATCHNORM_BWD_JOINED, IMAGE, image_large, batchnorm_bwd_joined_large),
    LISTED(ATTENTION, ATTENTION, attention_large, plain),
    LISTED(ATTENTION_BWD, ATTENTION, attention_large, plain),
    LISTED(XENT, ROW, row_large, xent_large),
    LISTED(MSE, ROW, row_large, mse_large),
    LISTED(BCE, ROW, row_large, mse_large),
    GROUP(LINEAR, LINEAR, linear_tf32, linear_tf32),
    GROUP(LINEAR_BWD_DATA, LINEAR, linear_tf32, tf32),
    GROUP(LINEAR_BWD_WEIGHT, LINEAR, linear_tf32, tf32),
    GROUP(CONV, CONV, conv_tf32, tf32),
    GROUP(CONV_BWD_DATA, CONV, conv_tf32, tf32),
    GROUP(CONV_BWD_WEIGHT, CONV, conv_tf32, tf32),
};
enum { LARGE_GROUPS = 16, TF32_GROUPS = 6 };

const case_group *brim_case_groups(size_t *count, size_t *fuzz_count) {
  *count = COUNT(groups);
  *fuzz_count = COUNT(groups) - LARGE_GROUPS - TF32_GROUPS;
  return groups;
}
