// Components: the catalogue of every name brim knows, with typed arguments, defaults and meanings. Converts
// expressions such as `mlp(depth=3)` or `a | b(k=(1, 2))` and YAML trees to components, prints components as
// expressions, and checks a component against the catalogue.
#include "config/config_int.h"

#include <math.h>
#include <string.h>

// A count, or the word auto: the model chooses the number. 0 is allowed.
#define AUTO(n, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, "0", false, 0, hi, "auto", BRIM_N_(m), NULL }
#define LIST(n, d, m) \
  { n, BRIM_CONFIG_ARG_LIST, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define WORDS(n, d, m) \
  { n, BRIM_CONFIG_ARG_WORDS, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define NUMS(n, d, m) \
  { n, BRIM_CONFIG_ARG_NUMBERS, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define SIZE(n, d, m) \
  { n, BRIM_CONFIG_ARG_SIZE, d, false, 1, 65536, NULL, BRIM_N_(m), NULL }
#define SIZE_NEEDED(n, m) \
  { n, BRIM_CONFIG_ARG_SIZE, NULL, true, 1, 65536, NULL, BRIM_N_(m), NULL }

#define BIG 1e9

// ---- models ------------------------------------------------------------------------------------

#define CLASSES \
  BRIM_ARG_INT("num_classes", NULL, 1, 1e6, "number of outputs (default: taken from the data)")
#define ACTIVATION \
  BRIM_ARG_CHOICE("activation", "relu", "relu|gelu|tanh", "activation after each hidden layer")
#define DROPOUT BRIM_ARG_FLOAT("dropout", "0", 0, 0.99, "share of activations dropped in training")

static const brim_config_arg mlp_args[] = {
    BRIM_ARG_INT("depth", "4", 0, 1000, "hidden layers"),
    BRIM_ARG_INT("hidden", "512", 1, 65536, "width of each hidden layer"),
    ACTIVATION,
    DROPOUT,
    BRIM_ARG_CHOICE("norm", "none", "none|layer", "normalization before the activation"),
    BRIM_ARG_CHOICE("init", "uniform", "uniform|orthogonal",
                    "first weights: PyTorch's default, or orthogonal with biases of 0"),
    BRIM_ARG_FLOAT("gain", "1", 0, 100, "factor of orthogonal weights"),
    BRIM_ARG_FLOAT("last_gain", "0", 0, 100, "the same for the last layer (0 = gain)"),
    CLASSES,
};
static const brim_config_arg resmlp_args[] = {
    BRIM_ARG_INT("depth", "4", 1, 1000, "residual blocks"),
    BRIM_ARG_INT("hidden", "512", 1, 65536, "width"),
    ACTIVATION,
    DROPOUT,
    CLASSES,
};
static const brim_config_arg transformer_args[] = {
    BRIM_ARG_INT("depth", "6", 1, 1000, "blocks"),
    BRIM_ARG_INT("hidden", "64", 1, 65536, "width; a multiple of heads"),
    AUTO("heads", 1024,
         "attention heads (auto or 0 = the largest divisor of hidden up to hidden / 16)"),
    AUTO(
        "patch", 65536,
        "samples of the signal per token (auto or 0 = the largest divisor of its length up to 32)"),
    BRIM_ARG_INT("mlp_ratio", "4", 1, 64,
                 "width of the feed-forward part, as a multiple of hidden"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg resnet_args[] = {
    BRIM_ARG_CHOICE("stem", "auto", "auto|cifar|imagenet",
                    "first layers; auto = cifar up to 64 pixels, imagenet above"),
    BRIM_ARG_INT("width", "64", 1, 4096, "channels of the first stage"),
    BRIM_ARG_BOOL("zero_init", "false", "start each block as the identity"),
    CLASSES,
};
static const brim_config_arg wideresnet_args[] = {
    BRIM_ARG_INT("depth", "28", 10, 1000, "number of layers, of the form 6n + 4"),
    BRIM_ARG_INT("width", "10", 1, 64, "widening factor"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg linear_args[] = {
    BRIM_ARG_BOOL("bias", "true", "add a bias"),
    CLASSES,
};

// ---- losses, optimisers, schedules -------------------------------------------------------------
static const brim_config_arg cross_entropy_args[] = {
    BRIM_ARG_FLOAT("label_smoothing", "0", 0, 0.999, "share of the target spread over all classes"),
};
static const brim_config_arg ntxent_args[] = {
    BRIM_ARG_FLOAT("temperature", "0.5", 1e-6, 100, "temperature of the similarities"),
};
#define LR(d) BRIM_ARG_FLOAT("lr", d, 0, BIG, "learning rate")
#define DECAY(d) BRIM_ARG_FLOAT("weight_decay", d, 0, BIG, "weight decay")
static const brim_config_arg sgd_args[] = {
    LR("0.1"),
    BRIM_ARG_FLOAT("momentum", "0.9", 0, 0.99999, "momentum (0 = plain SGD)"),
    BRIM_ARG_BOOL("nesterov", "false", "Nesterov momentum (needs momentum)"),
    DECAY("0"),
};
#define ADAM(decay)                                                                          \
  LR("0.001"), BRIM_ARG_FLOAT("beta1", "0.9", 0, 0.99999999, "decay of the first moment"),   \
      BRIM_ARG_FLOAT("beta2", "0.999", 0, 0.99999999, "decay of the second moment"),         \
      BRIM_ARG_FLOAT("eps", "1e-8", 0, 1, "epsilon added to the root of the second moment"), \
      DECAY(decay)
static const brim_config_arg adam_args[] = {ADAM("0")};
static const brim_config_arg adamw_args[] = {ADAM("0.01")};
#define WARMUP BRIM_ARG_INT("warmup", NULL, 0, BIG, "steps of linear warm-up at the start")
static const brim_config_arg constant_args[] = {WARMUP};
static const brim_config_arg step_args[] = {
    BRIM_ARG_INT("every", "30", 1, BIG, "epochs between two drops"),
    BRIM_ARG_FLOAT("gamma", "0.1", 0, 1, "factor at each drop"),
    WARMUP,
};
static const brim_config_arg cosine_args[] = {
    BRIM_ARG_FLOAT("min_lr", "0", 0, BIG, "learning rate at the end"),
    WARMUP,
};

// ---- data --------------------------------------------------------------------------------------
#define SPLIT BRIM_ARG_CHOICE("split", NULL, "train|val|test|unlabeled|all", "split to read")
#define PATH BRIM_ARG_STRING("path", NULL, "file or folder (default: data.path)")
#define LIMIT BRIM_ARG_INT("limit", NULL, 1, BIG, "use only this many records")
// Arguments of every source.
#define PARTS                                                                                  \
  LIST("part", NULL, "part of the data in random order, as two shares from 0 to 1: (0, 0.8)"), \
      BRIM_ARG_STRING("indices", NULL,                                                         \
                      "file with the indices of the records to use, one per line")
#define CLASSES_AND_LAYOUT                                                                         \
  BRIM_ARG_INT("classes", NULL, 0, 1e6,                                                            \
               "number of classes, 0 = regression (default: detected from targets that are whole " \
               "numbers)"),                                                                        \
      BRIM_ARG_CHOICE("layout", NULL, "NCHW|NHWC|NCL|NLC",                                         \
                      "order of images (NCHW, NHWC) or signals (NCL, NLC) (default: detected)")
static const brim_config_arg files_args[] = {PATH, SPLIT, LIMIT, PARTS};
static const brim_config_arg idx_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    BRIM_ARG_INT(
        "classes", NULL, 0, 1e6,
        "number of classes, 0 = regression (default: the largest label + 1; at least 10 for files "
        "with MNIST's names)"),
    BRIM_ARG_STRING("labels", NULL, "label file (default: found next to the images)"),
};
static const brim_config_arg numpy_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    WORDS("inputs", NULL, "name of the input array (default: detected)"),
    WORDS("targets", NULL, "name of the target array, or none (default: detected)"),
    CLASSES_AND_LAYOUT,
};
static const brim_config_arg stl10_args[] = {
    PATH, SPLIT, LIMIT, PARTS,
    BRIM_ARG_INT("fold", NULL, 0, 9, "fold to use: one of ten with 1,000 training images each")};
static const brim_config_arg hdf5_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    WORDS("inputs", NULL, "names of the input datasets (default: detected)"),
    WORDS("targets", NULL, "names of the target datasets, or none (default: detected)"),
    CLASSES_AND_LAYOUT,
    BRIM_ARG_FLOAT("nan", NULL, -BIG, BIG, "value that replaces NaN and infinite inputs"),
    BRIM_ARG_STRING(
        "chunk_cache", NULL,
        "memory for unpacked chunks, such as 512MiB (default: an eighth of the memory, 256MiB to "
        "4GiB)"),
};
static const brim_config_arg synthetic_args[] = {
    LIST("shape", "[28, 28]", "shape of one sample; images are height, width, channels"),
    BRIM_ARG_INT("classes", "10", 0, 1e6, "number of classes (0 = a regression set)"),
    BRIM_ARG_INT("targets", NULL, 1, 1e6, "numbers to predict per sample, with classes=0"),
    BRIM_ARG_INT("samples", "10000", 1, 1e12, "number of training records"),
    BRIM_ARG_INT("val_samples", NULL, 1, 1e12,
                 "number of evaluation records (default: a fifth of the training records)"),
    BRIM_ARG_INT("unlabeled_samples", "0", 0, 1e12,
                 "number of records in the split unlabeled, without targets"),
    BRIM_ARG_INT("seed", NULL, 0, 9e15,
                 "random seed for generated samples (default: the run's seed)"),
    BRIM_ARG_CHOICE("dtype", "u8", "u8|f32", "type of the samples"),
    BRIM_ARG_FLOAT("noise", "0.75", 0, 1, "share of noise mixed into the class pattern"),
    SPLIT,
    PARTS,
};
static const brim_config_arg folder_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    BRIM_ARG_CHOICE("color", "rgb", "rgb|gray", "colour format that every image is converted to"),
    BRIM_ARG_BOOL("strict", "true",
                  "reject images with extra bytes or more data than their size needs"),
};
static const brim_config_arg loader_args[] = {
    SPLIT,
    BRIM_ARG_BOOL("shuffle", NULL, "shuffle every epoch (default: data.shuffle)"),
    BRIM_ARG_INT("prefetch_factor", NULL, 1, 4096, "batches each worker prepares ahead"),
    BRIM_ARG_INT("batch_size", NULL, 1, BIG, "samples per step"),
    BRIM_ARG_INT("num_workers", NULL, -1, 1024, "threads"),
    BRIM_ARG_BOOL("drop_last", NULL, "drop an incomplete last batch"),
    BRIM_ARG_BOOL("pin_memory", NULL, "use page-locked buffers"),
    BRIM_ARG_BOOL("persistent_workers", NULL, "keep the threads alive between epochs"),
};

// ---- transforms --------------------------------------------------------------------------------
#define PROB(d) BRIM_ARG_FLOAT("p", d, 0, 1, "probability")
#define FILTER BRIM_ARG_CHOICE("interpolation", "bilinear", "nearest|bilinear", "interpolation")
static const brim_config_arg resize_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)"), FILTER};
static const brim_config_arg crop_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)")};
static const brim_config_arg random_crop_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)"),
    BRIM_ARG_INT("padding", "0", 0, 65536, "pixels of padding on each side before cropping"),
    BRIM_ARG_CHOICE(
        "padding_mode", "constant", "constant|edge|reflect",
        "content of the padding: black, the border's pixels, or the image mirrored at its border"),
};
static const brim_config_arg random_resized_crop_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)"),
    LIST("scale", "(0.08, 1.0)", "share of the area, lowest and highest"),
    LIST("ratio", "(0.75, 1.3333333333333333)", "width over height, lowest and highest"),
    FILTER,
};
static const brim_config_arg flip_args[] = {PROB("0.5")};
static const brim_config_arg normalize_args[] = {
    NUMS("mean", "0.5", "per channel"),
    NUMS("std", "0.5", "per channel"),
};
#define JITTER(n) BRIM_ARG_FLOAT(n, "0.4", 0, 100, "strength")
static const brim_config_arg color_jitter_args[] = {
    JITTER("brightness"), JITTER("contrast"), JITTER("saturation"),
    BRIM_ARG_FLOAT("hue", "0.1", 0, 0.5, "strength"), PROB("1.0")};
static const brim_config_arg grayscale_args[] = {PROB("1.0")};
static const brim_config_arg random_grayscale_args[] = {PROB("0.2")};
static const brim_config_arg blur_args[] = {
    BRIM_ARG_INT("kernel", "9", 1, 255, "filter size in pixels (odd)"),
    LIST("sigma", "(0.1, 2.0)", "lowest and highest sigma"),
    PROB("0.5"),
};
static const brim_config_arg cutout_args[] = {
    BRIM_ARG_INT("size", "8", 1, 65536, "side length of a square"),
    BRIM_ARG_INT("count", "1", 1, 1024, "squares"),
    PROB("1.0"),
};
static const brim_config_arg pad_args[] = {
    BRIM_ARG_INT("padding", "4", 0, 65536, "pixels of padding on each side"),
    BRIM_ARG_FLOAT("value", "0", 0, 0, "value of the padding"),
};
static const brim_config_arg cast_args[] = {
    BRIM_ARG_CHOICE("dtype", "float32", "uint8|float32|float16|bfloat16", "type of the result")};
static const brim_config_arg views_args[] = {
    BRIM_ARG_INT("views", "2", 1, 16, "number of augmented copies")};

// ---- metrics and environments ------------------------------------------------------------------
static const brim_config_arg f1_args[] = {
    BRIM_ARG_CHOICE("average", "macro", "macro|micro|weighted", "average over the classes")};
static const brim_config_arg topk_args[] = {
    BRIM_ARG_INT("k", "5", 1, 1e6, "number of predictions that count")};

static const brim_config_component_row models[] = {
    BRIM_COMPONENT("model", "mlp", mlp_args, "fully connected layers over the flattened input"),
    BRIM_COMPONENT("model", "resmlp", resmlp_args, "fully connected residual blocks"),
    BRIM_COMPONENT("model", "transformer", transformer_args,
                   "transformer encoder over patches of a signal"),
    BRIM_COMPONENT("model", "resnet18", resnet_args, "residual convnet, 18 layers"),
    BRIM_COMPONENT("model", "resnet34", resnet_args, "residual convnet, 34 layers"),
    BRIM_COMPONENT("model", "resnet50", resnet_args,
                   "residual convnet with bottlenecks, 50 layers"),
    BRIM_COMPONENT("model", "resnet101", resnet_args,
                   "residual convnet with bottlenecks, 101 layers"),
    BRIM_COMPONENT("model", "resnet152", resnet_args,
                   "residual convnet with bottlenecks, 152 layers"),
    BRIM_COMPONENT("model", "wideresnet", wideresnet_args,
                   "wide residual convnet; the default is WRN-28-10"),
    BRIM_COMPONENT("model", "linear", linear_args, "single linear layer"),
};

static const brim_config_component_row others[] = {
    BRIM_COMPONENT("loss", "cross_entropy", cross_entropy_args, "softmax cross-entropy"),
    BRIM_COMPONENT_BARE("loss", "mse", "mean squared error"),
    BRIM_COMPONENT_BARE("loss", "bce",
                        "binary cross-entropy of logits, for targets of 0 and 1 (multi-label)"),
    BRIM_COMPONENT("loss", "ntxent", ntxent_args, "contrastive loss over two views"),
    BRIM_COMPONENT("optimizer", "sgd", sgd_args, "stochastic gradient descent"),
    BRIM_COMPONENT("optimizer", "adam", adam_args, "Adam; weight decay is added to the gradient"),
    BRIM_COMPONENT("optimizer", "adamw", adamw_args, "Adam with decoupled weight decay"),
    BRIM_COMPONENT("scheduler", "constant", constant_args, "constant learning rate"),
    BRIM_COMPONENT("scheduler", "step", step_args, "multiply by gamma at regular intervals"),
    BRIM_COMPONENT("scheduler", "cosine", cosine_args, "half a cosine wave down to min_lr"),
    BRIM_COMPONENT("dataset", "idx", idx_args, "IDX files, plain or gz"),
    BRIM_COMPONENT("dataset", "mnist", idx_args, "MNIST files (same as idx)"),
    BRIM_COMPONENT("dataset", "hdf5", hdf5_args, "datasets of an HDF5 file"),
    BRIM_COMPONENT("dataset", "numpy", numpy_args, "arrays in .npy files or a .npz file"),
    BRIM_COMPONENT("dataset", "cifar10", files_args, "CIFAR-10 binary files"),
    BRIM_COMPONENT("dataset", "cifar100", files_args, "CIFAR-100 binary files, fine labels"),
    BRIM_COMPONENT("dataset", "stl10", stl10_args, "STL-10 binary files"),
    BRIM_COMPONENT("dataset", "folder", folder_args, "images in one folder per class"),
    BRIM_COMPONENT("dataset", "synthetic", synthetic_args,
                   "generated, learnable samples of any shape"),
    BRIM_COMPONENT("dataloader", "basic", loader_args,
                   "data loader with threads and a ring of buffers"),
    BRIM_COMPONENT("transform", "resize", resize_args, "resize"),
    BRIM_COMPONENT("transform", "center_crop", crop_args, "crop from the middle"),
    BRIM_COMPONENT("transform", "random_crop", random_crop_args, "crop at a random position"),
    BRIM_COMPONENT("transform", "random_resized_crop", random_resized_crop_args,
                   "crop of random area and aspect ratio, resized"),
    BRIM_COMPONENT("transform", "random_flip", flip_args, "swap left and right"),
    BRIM_COMPONENT("transform", "random_vertical_flip", flip_args, "swap top and bottom"),
    BRIM_COMPONENT("transform", "normalize", normalize_args,
                   "(x - mean) / std, per channel, on 0..1"),
    BRIM_COMPONENT("transform", "color_jitter", color_jitter_args,
                   "brightness, contrast, saturation, hue"),
    BRIM_COMPONENT("transform", "grayscale", grayscale_args, "remove colour, keep the channels"),
    BRIM_COMPONENT("transform", "random_grayscale", random_grayscale_args,
                   "remove colour with a given probability"),
    BRIM_COMPONENT("transform", "gaussian_blur", blur_args, "blur with a random sigma"),
    BRIM_COMPONENT("transform", "cutout", cutout_args, "fill random squares with the mean colour"),
    BRIM_COMPONENT("transform", "pad", pad_args, "add a border"),
    BRIM_COMPONENT("transform", "cast", cast_args, "convert to another type"),
    BRIM_COMPONENT_BARE("transform", "to_tensor", "convert uint8 0..255 to float 0..1"),
    BRIM_COMPONENT("transform", "views", views_args,
                   "several augmented copies, for contrastive learning"),
    BRIM_COMPONENT_BARE("metric", "accuracy", "share of right answers"),
    BRIM_COMPONENT("metric", "topk", topk_args,
                   "share of samples with the right answer among the k best predictions"),
    BRIM_COMPONENT_BARE("metric", "top5",
                        "share of samples with the right answer among the five best predictions"),
    BRIM_COMPONENT("metric", "f1", f1_args, "harmonic mean of precision and recall"),
    BRIM_COMPONENT_BARE("metric", "confusion", "counts per true and predicted class"),
    BRIM_COMPONENT_BARE("metric", "mae", "mean absolute error"),
    BRIM_COMPONENT_BARE("metric", "mse", "mean squared error"),
    BRIM_COMPONENT_BARE("metric", "r2", "share of the variance explained"),
};

enum {
  MODELS = sizeof models / sizeof models[0],
  OTHERS = sizeof others / sizeof others[0],
  MAX_ADDED = 32
};

// Components that workloads added: models are listed after the other models, the rest at the end. Written
// before threads start, read-only afterwards.
static struct {
  const brim_config_component_row *rows[MAX_ADDED];
  size_t count;
} added_models, added_others;

size_t brim_config_component_count(void) {
  return MODELS + added_models.count + OTHERS + added_others.count;
}

const brim_config_component_row *brim_config_component_at(size_t index) {
  if (index < MODELS) return &models[index];
  index -= MODELS;
  if (index < added_models.count) return added_models.rows[index];
  index -= added_models.count;
  return index < OTHERS ? &others[index] : added_others.rows[index - OTHERS];
}

brim_status brim_config_add_components(const brim_config_component_row *rows, size_t count) {
  const size_t had_models = added_models.count, had_others = added_others.count;
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) {
    const bool model = strcmp(rows[i].category, "model") == 0;
    size_t *n = model ? &added_models.count : &added_others.count;
    if (*n == MAX_ADDED || brim_config_component_find(rows[i].category, rows[i].name)) {
      status =
          brim_fail(BRIM_EINVAL, "cannot add the %s %s: it is there already, or there are too many",
                    rows[i].category, rows[i].name);
    } else {
      (model ? added_models.rows : added_others.rows)[(*n)++] = &rows[i];
    }
  }
  if (!status) return BRIM_OK;
  added_models.count = had_models;
  added_others.count = had_others;
  return status;
}

const char *brim_config_category_at(size_t index, const char **heading) {
  static const struct {
    const char *name, *heading;
  } categories[] = {
      {"model", BRIM_N_("Models:")},
      {"loss", BRIM_N_("Losses:")},
      {"optimizer", BRIM_N_("Optimizers:")},
      {"scheduler", BRIM_N_("Schedules of the learning rate:")},
  };
  if (index >= sizeof categories / sizeof *categories) return NULL;
  *heading = categories[index].heading;
  return categories[index].name;
}

brim_config_named brim_config_component_named(size_t index) {
  const brim_config_component_row *row = brim_config_component_at(index);
  return (brim_config_named){row->category, row->name, row->meaning};
}

const brim_config_component_row *brim_config_component_find(const char *category,
                                                            const char *name) {
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    if (category && strcmp(row->category, category)) continue;
    if (!strcmp(row->name, name)) return row;
  }
  return NULL;
}

const brim_config_arg *brim_config_arg_find(const brim_config_component_row *row,
                                            const char *name) {
  for (size_t i = 0; row && i < row->arg_count; i++) {
    const brim_config_arg *arg = &row->args[i];
    if (!strcmp(arg->name, name) || (arg->alias && !strcmp(arg->alias, name))) return arg;
  }
  return NULL;
}

const char *brim_config_arg_type_name(brim_config_arg_type type) {
  static const char *const names[BRIM_CONFIG_ARG_TYPE_COUNT] = {"int",
                                                                "float",
                                                                "bool",
                                                                "string",
                                                                "word",
                                                                "list",
                                                                "name or list of names",
                                                                "int or (h, w)",
                                                                "number or list of numbers",
                                                                "component"};
  return names[type];
}

// ---- expressions -------------------------------------------------------------------------------
// `name`, `name(k=v, ...)` and pipelines `a(k=v) | b`. A value is a number, a word, a quoted string, a [list],
// a (tuple) or a nested component. The parser does not look at the catalogue.

typedef struct reader {
  brim_arena *arena;
  const char *text, *p;
  brim_config_place at;
  int depth;
} reader;

static brim_status value(reader *r, brim_value *out);

// The place of `p` in the file. Columns count characters. Inside a scalar of several lines, the place is the
// scalar's beginning.
static brim_config_place place_at(const reader *r, const char *p) {
  brim_config_place at = r->at;
  int chars = 0;
  for (const char *q = r->text; q < p; q++) {
    if (*q == '\n') return r->at;
    if (((unsigned char)*q & 0xC0) != 0x80) chars++;
  }
  if (at.col > 0) at.col += chars;
  return at;
}

static brim_status unexpected(const reader *r, const char *wanted) {
  wanted = brim_tr(wanted);
  brim_config_place at = place_at(r, r->p);
  if (!*r->p) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "the expression ends; expected %s",
                        wanted);
  }
  return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "expected %s before '%.20s'", wanted,
                      r->p);
}

static void skip_space(reader *r) { r->p += strspn(r->p, " \t\r\n"); }

static bool take(reader *r, char c) {
  skip_space(r);
  if (*r->p != c) return false;
  r->p++;
  return true;
}

static bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t name_length(const char *p) {
  if (!is_name_start(*p)) return 0;
  return strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-");
}

bool brim_config_is_name(const char *text) {
  size_t length = name_length(text);
  return length > 0 && length <= 128 && !text[length];
}

static brim_status quoted(reader *r, brim_value *out) {
  const char *start = r->p;
  char quote = *start;
  const char *end = start + 1;
  while (*end && *end != quote) end += *end == '\\' && end[1] ? 2 : 1;
  if (!*end) return unexpected(r, BRIM_N_("a closing quote"));
  char *text = brim_arena_alloc(r->arena, (size_t)(end - start), 1);
  if (!text) return brim_config_no_memory();
  size_t n = 0;
  for (r->p = start + 1; r->p < end; r->p++) {
    if (*r->p == '\\') r->p++;
    text[n++] = *r->p;
  }
  r->p = end + 1;
  text[n] = 0;
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = text};
  return BRIM_OK;
}

// Parses the rest of "(a, b)" or "[a, b]" after the opening bracket.
static brim_status sequence(reader *r, char close, brim_value *out) {
  brim_value *items = NULL;
  size_t count = 0, cap = 0;
  bool comma = false;
  while (!take(r, close)) {
    if (count && !comma)
      return unexpected(r, close == ')' ? BRIM_N_("',' or ')'") : BRIM_N_("',' or ']'"));
    if (count >= BRIM_CONFIG_MAX_ITEMS) {
      brim_config_place at = place_at(r, r->p);
      return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "a list has more than %d items",
                          BRIM_CONFIG_MAX_ITEMS);
    }
    BRIM_TRY(brim_config_grow(r->arena, &items, sizeof *items, count, &cap));
    BRIM_TRY(value(r, &items[count]));
    count++;
    comma = take(r, ',');
  }
  if (close == ')' && count == 1 && !comma) {  // plain parentheses, as in Python
    *out = items[0];
    return BRIM_OK;
  }
  *out =
      (brim_value){.kind = BRIM_VALUE_LIST, .tuple = close == ')', .items = items, .count = count};
  return BRIM_OK;
}

static brim_config_draft *draft_create(brim_arena *arena, const char *name, brim_config_place at) {
  brim_config_draft *draft = brim_arena_calloc(arena, 1, sizeof *draft);
  if (!draft) return NULL;
  draft->c.name = name;
  draft->c.file = at.file;
  draft->c.line = at.line;
  draft->c.col = at.col;
  return draft;
}

brim_status brim_config_draft_set(brim_arena *arena, brim_config_draft *draft, const char *name,
                                  brim_value v, brim_config_place at) {
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    if (!strcmp(draft->args[i].name, name)) {
      draft->args[i].value = v;
      draft->places[i] = at;
      return BRIM_OK;
    }
  }
  if (draft->c.arg_count >= BRIM_CONFIG_MAX_ARGS) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col,
                        "a component has more than %d arguments", BRIM_CONFIG_MAX_ARGS);
  }
  size_t cap = draft->cap;
  BRIM_TRY(brim_config_grow(arena, &draft->args, sizeof *draft->args, draft->c.arg_count, &cap));
  cap = draft->cap;
  BRIM_TRY(
      brim_config_grow(arena, &draft->places, sizeof *draft->places, draft->c.arg_count, &cap));
  draft->cap = cap;
  draft->args[draft->c.arg_count] = (brim_argument){name, v};
  draft->places[draft->c.arg_count++] = at;
  draft->c.args = draft->args;
  return BRIM_OK;
}

static brim_status arguments(reader *r, brim_config_draft *draft) {
  bool comma = true;
  while (!take(r, ')')) {
    if (!comma) return unexpected(r, BRIM_N_("',' or ')'"));
    skip_space(r);
    const char *start = r->p;
    size_t length = name_length(r->p);
    r->p += length;
    if (!length || !take(r, '=')) {
      r->p = start;
      return unexpected(r, BRIM_N_("an argument written name=value"));
    }
    char *name = brim_arena_strndup(r->arena, start, length);
    if (!name) return brim_config_no_memory();
    brim_config_place at = place_at(r, start);
    if (brim_component_arg(&draft->c, name)) {
      return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "the argument '%.80s' is repeated",
                          name);
    }
    brim_value v;
    BRIM_TRY(value(r, &v));
    BRIM_TRY(brim_config_draft_set(r->arena, draft, name, v, at));
    comma = take(r, ',');
  }
  return BRIM_OK;
}

static brim_status component(reader *r, brim_config_draft **out) {
  skip_space(r);
  size_t length = name_length(r->p);
  if (!length) return unexpected(r, BRIM_N_("a component's name"));
  brim_config_place at = place_at(r, r->p);
  char *name = brim_arena_strndup(r->arena, r->p, length);
  *out = name ? draft_create(r->arena, name, at) : NULL;
  if (!*out) return brim_config_no_memory();
  r->p += length;
  return take(r, '(') ? arguments(r, *out) : BRIM_OK;
}

static brim_status word(reader *r, brim_value *out) {
  size_t length = strcspn(r->p, ",()[]|=\"' \t\r\n");
  if (!length) return unexpected(r, BRIM_N_("a value"));
  const char *start = r->p;
  r->p += length;
  skip_space(r);
  if (*r->p == '(' && name_length(start) == length) {
    r->p = start;
    brim_config_draft *draft;
    BRIM_TRY(component(r, &draft));
    *out = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
    return BRIM_OK;
  }
  char *text = brim_arena_strndup(r->arena, start, length);
  if (!text) return brim_config_no_memory();
  brim_config_word(text, out);
  return BRIM_OK;
}

static brim_status value(reader *r, brim_value *out) {
  skip_space(r);
  if (r->depth >= BRIM_CONFIG_MAX_DEPTH) {
    brim_config_place at = place_at(r, r->p);
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "nested deeper than %d levels",
                        BRIM_CONFIG_MAX_DEPTH);
  }
  r->depth++;
  brim_status status;
  if (*r->p == '"' || *r->p == '\'') {
    status = quoted(r, out);
  } else if (take(r, '[')) {
    status = sequence(r, ']', out);
  } else if (take(r, '(')) {
    status = sequence(r, ')', out);
  } else {
    status = word(r, out);
  }
  r->depth--;
  return status;
}

static brim_status begin(reader *r, brim_arena *arena, const char *text, brim_config_place at) {
  *r = (reader){.arena = arena, .text = text, .p = text, .at = at};
  if (strlen(text) > BRIM_CONFIG_MAX_EXPRESSION) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col,
                        "an expression is longer than %d bytes", BRIM_CONFIG_MAX_EXPRESSION);
  }
  return BRIM_OK;
}

static brim_status parse_pipeline(brim_arena *arena, const char *text, brim_config_place at,
                                  brim_config_drafts *out) {
  reader r;
  BRIM_TRY(begin(&r, arena, text, at));
  *out = (brim_config_drafts){0};
  for (bool more = true; more;) {
    skip_space(&r);
    if (!strncmp(r.p, "...", 3)) {
      r.p += 3;
      out->tail = true;
      break;
    }
    if (out->count >= BRIM_CONFIG_MAX_STAGES) {
      brim_config_place stage = place_at(&r, r.p);
      return brim_fail_at(BRIM_ELIMIT, stage.file, stage.line, stage.col,
                          "a pipeline has more than %d stages", BRIM_CONFIG_MAX_STAGES);
    }
    BRIM_TRY(brim_config_grow(arena, &out->items, sizeof *out->items, out->count, &out->cap));
    BRIM_TRY(component(&r, &out->items[out->count]));
    out->count++;
    more = take(&r, '|');
  }
  skip_space(&r);
  if (*r.p) return unexpected(&r, out->tail ? "nothing after '...'" : "'|' or the end");
  return BRIM_OK;
}

brim_status brim_config_expression_value(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_value *out) {
  reader r;
  BRIM_TRY(begin(&r, arena, text, at));
  BRIM_TRY(value(&r, out));
  skip_space(&r);
  return *r.p ? unexpected(&r, "the end of the value") : BRIM_OK;
}

brim_status brim_config_parse_expression(brim_arena *arena, const char *text, const char *name,
                                         brim_pipeline *out) {
  char *file = brim_arena_strdup(arena, name);
  if (!file) return brim_config_no_memory();
  brim_config_drafts drafts;
  const brim_pipeline *pipeline;
  BRIM_TRY(parse_pipeline(arena, text, (brim_config_place){file, 1, 1}, &drafts));
  BRIM_TRY(brim_config_pack(arena, &drafts, &pipeline));
  *out = *pipeline;
  return BRIM_OK;
}

static void component_print(brim_str *out, const brim_component *c);

// Quotes a string that would read back as something else.
static void print_string(brim_str *out, const char *text) {
  brim_value v;
  brim_config_word(text, &v);
  if (v.kind == BRIM_VALUE_STRING && !text[strcspn(text, ",()[]|=\"' \t\r\n\\")]) {
    brim_str_append(out, text);
    return;
  }
  brim_str_append_char(out, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') brim_str_append_char(out, '\\');
    brim_str_append_char(out, *text);
  }
  brim_str_append_char(out, '"');
}

void brim_config_value_print(brim_str *out, const brim_value *v) {
  char number[32];
  switch (v->kind) {
    case BRIM_VALUE_BOOL:
      brim_str_append(out, v->boolean ? "true" : "false");
      break;
    case BRIM_VALUE_INT:
      brim_str_printf(out, "%lld", (long long)v->integer);
      break;
    case BRIM_VALUE_FLOAT:
      if (isfinite(v->number)) {
        brim_format_f64(v->number == 0 ? 0 : v->number, number);  // no -0
        brim_str_append(out, number);
      } else {
        brim_str_append(out, isnan(v->number) ? ".nan" : v->number < 0 ? "-.inf" : ".inf");
      }
      break;
    case BRIM_VALUE_STRING:
      print_string(out, v->string);
      break;
    case BRIM_VALUE_LIST:
      brim_str_append_char(out, v->tuple ? '(' : '[');
      for (size_t i = 0; i < v->count; i++) {
        if (i) brim_str_append(out, ", ");
        brim_config_value_print(out, &v->items[i]);
      }
      if (v->tuple && v->count == 1) brim_str_append_char(out, ',');
      brim_str_append_char(out, v->tuple ? ')' : ']');
      break;
    case BRIM_VALUE_COMPONENT:
      component_print(out, v->component);
      if (!v->component->arg_count) brim_str_append(out, "()");  // without () it would be a word
      break;
    default:
      brim_str_append(out, "null");
      break;
  }
}

static void component_print(brim_str *out, const brim_component *c) {
  brim_str_append(out, c->name);
  if (!c->arg_count) return;
  brim_str_append_char(out, '(');
  for (size_t i = 0; i < c->arg_count; i++) {
    brim_str_printf(out, "%s%s=", i ? ", " : "", c->args[i].name);
    brim_config_value_print(out, &c->args[i].value);
  }
  brim_str_append_char(out, ')');
}

void brim_config_pipeline_print(brim_str *out, const brim_pipeline *pipeline) {
  for (size_t i = 0; i < pipeline->count; i++) {
    if (i) brim_str_append(out, " | ");
    component_print(out, &pipeline->items[i]);
  }
  if (pipeline->tail) brim_str_append(out, pipeline->count ? " | ..." : "...");
}

// ---- from a YAML tree --------------------------------------------------------------------------

// Converts a map: {_type: name, k: v} becomes a component.
static brim_status map_value(brim_arena *arena, const brim_config_node *node, brim_value *out) {
  const brim_config_node *type = brim_config_node_get(node, "_type");
  if (!type || type->kind != BRIM_CONFIG_NODE_SCALAR) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at),
                        "a component written as a map needs '_type: name'");
  }
  if (!brim_config_is_name(type->text)) {
    return brim_fail_at(BRIM_EINVAL, AT(type->at), "'%.80s' is not a component's name", type->text);
  }
  brim_config_draft *draft = draft_create(arena, type->text, type->at);
  if (!draft) return brim_config_no_memory();
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n == type) continue;
    if (!brim_config_is_name(n->key)) {
      return brim_fail_at(BRIM_EINVAL, AT(n->key_at), "'%.80s' is not an argument's name", n->key);
    }
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, n, &v));
    BRIM_TRY(brim_config_draft_set(arena, draft, n->key, v, n->key_at));
  }
  *out = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
  return BRIM_OK;
}

brim_status brim_config_node_value(brim_arena *arena, const brim_config_node *node,
                                   brim_value *out) {
  if (node->kind == BRIM_CONFIG_NODE_MAP) return map_value(arena, node, out);
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) {
    BRIM_TRY(brim_config_scalar(node, out));
    // "(0.8, 1.0)", "[1, 2]" and "resnet18(width=2)" mean what they mean in an expression.
    if (out->kind == BRIM_VALUE_STRING && node->tag != BRIM_CONFIG_TAG_STR &&
        (node->text[0] == '[' || (node->plain && strchr(node->text, '(')))) {
      brim_value v;
      brim_status status = brim_config_expression_value(arena, node->text, node->at, &v);
      if (status == BRIM_ENOMEM) return status;
      if (!status) *out = v;
    }
    return BRIM_OK;
  }
  brim_value *items = brim_arena_calloc(arena, node->count + 1, sizeof *items);
  if (!items) return brim_config_no_memory();
  size_t count = 0;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    BRIM_TRY(brim_config_node_value(arena, n, &items[count++]));
  }
  *out = (brim_value){.kind = BRIM_VALUE_LIST, .items = items, .count = count};
  return BRIM_OK;
}

// ---- check -------------------------------------------------------------------------------------
// Checks a component against the catalogue: its name, its arguments, their kinds and bounds. Then fills in
// the defaults. Every message has the place of the argument.

static brim_status unknown_name(const char *category, const brim_config_draft *draft) {
  const char *names[128];
  size_t count = 0;
  for (size_t i = 0; i < brim_config_component_count() && count < 127; i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    if (!strcmp(row->category, category)) names[count++] = row->name;
  }
  names[count] = NULL;
  const brim_component *c = &draft->c;
  const char *near = brim_nearest(c->name, names);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "unknown %s '%.80s'; did you mean '%s'?", category, c->name, near);
  }
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                      "unknown %s '%.80s'; to use one from a plug-in write plugin:%.80s", category,
                      c->name, c->name);
}

static brim_status unknown_arg(const brim_config_component_row *row, const char *name,
                               brim_config_place at) {
  const char *names[BRIM_CONFIG_MAX_ARGS + 1];
  size_t count = 0;
  for (; count < row->arg_count && count < BRIM_CONFIG_MAX_ARGS; count++) {
    names[count] = row->args[count].name;
  }
  names[count] = NULL;
  const char *near = brim_nearest(name, names);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s has no argument '%.80s'; did you mean '%s'?",
                        row->name, name, near);
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s has no argument '%.80s'", row->name, name);
}

static brim_status wrong_kind(const brim_config_component_row *row, const brim_config_arg *arg,
                              const brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(at),
                        "%s: '%s' expects %s, not a list (for a grid write the component as a map: "
                        "{_type: %s, %s: [...]})",
                        row->name, arg->name, brim_config_arg_type_name(arg->type), row->name,
                        arg->name);
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' expects %s", row->name, arg->name,
                      brim_config_arg_type_name(arg->type));
}

static brim_status check_argument_bounds(const brim_config_component_row *row,
                                         const brim_config_arg *arg, double number,
                                         brim_config_place at) {
  if (!isfinite(number)) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be finite", row->name, arg->name);
  }
  if ((arg->min == 0 && arg->max == 0) || (number >= arg->min && number <= arg->max)) {
    return BRIM_OK;
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be between %g and %g", row->name,
                      arg->name, arg->min, arg->max);
}

// True if the value is a whole number, such as 1e3; then makes it an INT.
static bool argument_int(brim_value *v) {
  if (v->kind == BRIM_VALUE_FLOAT && v->number == floor(v->number) && fabs(v->number) < 9e15) {
    v->kind = BRIM_VALUE_INT;
    v->integer = (int64_t)v->number;
  }
  return v->kind == BRIM_VALUE_INT;
}

static bool is_number(const brim_value *v) {
  return v->kind == BRIM_VALUE_INT || v->kind == BRIM_VALUE_FLOAT;
}

static bool in_choices(const char *choices, const char *word) {
  size_t length = strlen(word);
  for (const char *p = choices; *p;) {
    size_t n = strcspn(p, "|");
    if (n == length && !strncmp(p, word, n)) return true;
    p += n + (p[n] == '|');
  }
  return false;
}

static brim_status check_list(const brim_config_component_row *row, const brim_config_arg *arg,
                              brim_value *v, brim_config_place at) {
  if (arg->type == BRIM_CONFIG_ARG_SIZE && v->count != 2) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' expects one number or (height, width)",
                        row->name, arg->name);
  }
  for (size_t i = 0; i < v->count; i++) {
    brim_value item = v->items[i];
    if (arg->type == BRIM_CONFIG_ARG_SIZE && !argument_int(&item))
      return wrong_kind(row, arg, &item, at);
    if (arg->type == BRIM_CONFIG_ARG_NUMBERS && !is_number(&item)) {
      return wrong_kind(row, arg, &item, at);
    }
    if (is_number(&item)) BRIM_TRY(check_argument_bounds(row, arg, item.number, at));
  }
  return BRIM_OK;
}

static brim_status check_word(const brim_config_component_row *row, const brim_config_arg *arg,
                              brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_LIST || v->kind == BRIM_VALUE_COMPONENT || !v->string) {
    return wrong_kind(row, arg, v, at);
  }
  v->kind = BRIM_VALUE_STRING;  // a number given as a word keeps its text
  if (arg->type == BRIM_CONFIG_ARG_CHOICE && !in_choices(arg->choices, v->string)) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be one of %s, not '%.80s'", row->name,
                        arg->name, arg->choices, v->string);
  }
  return BRIM_OK;
}

static brim_status check_nested(brim_arena *arena, const brim_config_component_row *row,
                                const brim_config_arg *arg, brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_STRING) {
    brim_config_draft *draft = draft_create(arena, v->string, at);
    if (!draft) return brim_config_no_memory();
    *v = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
  }
  if (v->kind != BRIM_VALUE_COMPONENT) return wrong_kind(row, arg, v, at);
  // Inside src/config every component value is the first member of a draft.
  return brim_config_component_check(arena, arg->choices, (brim_config_draft *)v->component);
}

static brim_status check_arg(brim_arena *arena, const brim_config_component_row *row,
                             const brim_config_arg *arg, brim_value *v, brim_config_place at) {
  bool flag;
  switch (arg->type) {
    case BRIM_CONFIG_ARG_INT:
      if (arg->choices && v->kind == BRIM_VALUE_STRING && !strcmp(v->string, arg->choices)) {
        *v = (brim_value){.kind = BRIM_VALUE_INT, .string = "0"};
      }
      if (!argument_int(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_FLOAT:
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      v->kind = BRIM_VALUE_FLOAT;
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_BOOL:
      if (v->kind == BRIM_VALUE_STRING && brim_parse_bool(v->string, &flag)) {
        *v = (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = flag, .string = v->string};
      }
      return v->kind == BRIM_VALUE_BOOL ? BRIM_OK : wrong_kind(row, arg, v, at);
    case BRIM_CONFIG_ARG_SIZE:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!argument_int(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_NUMBERS:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_WORDS:
      return v->kind == BRIM_VALUE_LIST ? BRIM_OK : check_word(row, arg, v, at);
    case BRIM_CONFIG_ARG_LIST:
      if (v->kind != BRIM_VALUE_LIST) return wrong_kind(row, arg, v, at);
      return check_list(row, arg, v, at);
    case BRIM_CONFIG_ARG_COMPONENT:
      return check_nested(arena, row, arg, v, at);
    default:
      return check_word(row, arg, v, at);
  }
}

brim_status brim_config_arg_default(brim_arena *arena, const brim_config_component_row *row,
                                    const brim_config_arg *arg, brim_value *out) {
  const brim_config_place at = {"default", 0, 0};
  *out = (brim_value){.kind = BRIM_VALUE_NULL};
  if (!arg->default_text) return BRIM_OK;
  BRIM_TRY(brim_config_expression_value(arena, arg->default_text, at, out));
  return check_arg(arena, row, arg, out, at);
}

static brim_status fill_defaults(brim_arena *arena, const brim_config_component_row *row,
                                 brim_config_draft *draft) {
  brim_config_place at = {draft->c.file, draft->c.line, draft->c.col};
  for (size_t i = 0; i < row->arg_count; i++) {
    const brim_config_arg *arg = &row->args[i];
    if (brim_component_arg(&draft->c, arg->name)) continue;
    if (arg->required) {
      return brim_fail_at(BRIM_EINVAL, AT(at), "%s needs '%s' (%s)", row->name, arg->name,
                          arg->meaning);
    }
    if (!arg->default_text) continue;
    brim_value v;
    BRIM_TRY(brim_config_arg_default(arena, row, arg, &v));
    // A place without a file marks a default.
    BRIM_TRY(brim_config_draft_set(arena, draft, arg->name, v, (brim_config_place){NULL, 0, 0}));
  }
  return BRIM_OK;
}

brim_status brim_config_replace_aliases(const char *category, brim_config_draft *draft) {
  const brim_config_component_row *row = brim_config_component_find(category, draft->c.name);
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    const char *name = draft->args[i].name;
    const brim_config_arg *arg = brim_config_arg_find(row, name);
    if (!arg || !strcmp(arg->name, name)) continue;
    if (brim_component_arg(&draft->c, arg->name)) {
      return brim_fail_at(BRIM_EINVAL, AT(draft->places[i]),
                          "%s: '%s' and '%s' are the same argument; specify it once", row->name,
                          arg->name, arg->alias);
    }
    draft->args[i].name = arg->name;
  }
  return BRIM_OK;
}

brim_status brim_config_no_plugin(const char *key, brim_config_place at) {
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s is plugin: without a name; write plugin:NAME", key);
}

brim_status brim_config_component_check(brim_arena *arena, const char *category,
                                        brim_config_draft *draft) {
  static const char plugin[] = "plugin:";
  if (strcmp(draft->c.name, plugin) == 0) {
    const brim_config_place at = {draft->c.file, draft->c.line, draft->c.col};
    return brim_config_no_plugin(category, at);
  }
  if (brim_str_starts(draft->c.name, plugin)) return BRIM_OK;
  const brim_config_component_row *row = brim_config_component_find(category, draft->c.name);
  if (!row) return unknown_name(category, draft);
  BRIM_TRY(brim_config_replace_aliases(category, draft));
  size_t kept = 0;
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    const brim_config_arg *arg = brim_config_arg_find(row, draft->args[i].name);
    if (!arg) return unknown_arg(row, draft->args[i].name, draft->places[i]);
    if (draft->args[i].value.kind == BRIM_VALUE_NULL) continue;  // null counts as not written
    BRIM_TRY(check_arg(arena, row, arg, &draft->args[i].value, draft->places[i]));
    draft->args[kept] = draft->args[i];
    draft->places[kept++] = draft->places[i];
  }
  draft->c.arg_count = kept;
  return fill_defaults(arena, row, draft);
}

brim_status brim_config_drafts_from_node(brim_arena *arena, const brim_config_row *row,
                                         const brim_config_node *node, brim_config_drafts *out) {
  *out = (brim_config_drafts){0};
  if (node->kind == BRIM_CONFIG_NODE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects a %s, not a list", row->key.name,
                        row->key.type);
  }
  if (node->kind == BRIM_CONFIG_NODE_MAP) {
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, node, &v));
    BRIM_TRY(brim_config_grow(arena, &out->items, sizeof *out->items, 0, &out->cap));
    out->items[out->count++] = (brim_config_draft *)v.component;
    return BRIM_OK;
  }
  brim_value v;
  BRIM_TRY(brim_config_scalar(node, &v));
  if (v.kind == BRIM_VALUE_NULL) return BRIM_OK;
  brim_config_place at = node->at;
  if (!node->plain) at.col++;  // the opening quote
  BRIM_TRY(parse_pipeline(arena, node->text, at, out));
  if (row->type == BRIM_CONFIG_COMPONENT && (out->count != 1 || out->tail)) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' takes one component, not a pipeline",
                        row->key.name);
  }
  return BRIM_OK;
}

brim_status brim_config_pack(brim_arena *arena, const brim_config_drafts *drafts,
                             const brim_pipeline **out) {
  brim_pipeline *pipeline = brim_arena_calloc(arena, 1, sizeof *pipeline);
  brim_component *items = brim_arena_calloc(arena, drafts->count + 1, sizeof *items);
  if (!pipeline || !items) return brim_config_no_memory();
  for (size_t i = 0; i < drafts->count; i++) items[i] = drafts->items[i]->c;
  *pipeline = (brim_pipeline){.items = items, .count = drafts->count, .tail = drafts->tail};
  *out = pipeline;
  return BRIM_OK;
}
