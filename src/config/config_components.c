// The component catalogue: every name brim knows per category, with typed arguments, defaults and
// meanings. Rows only; config_resolve.c holds components against it, `config explain` prints it.
#include "config/config_int.h"

#include <string.h>

// 0, or the word auto: chosen by the model.
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

// ---- models -------------------------------------------------------------------------------------

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

// ---- losses, optimisers, schedules
// ------------------------------------------------------------------

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

// ---- data
// ----------------------------------------------------------------------------------------------

#define SPLIT BRIM_ARG_CHOICE("split", NULL, "train|val|test|unlabeled|all", "split to read")
#define PATH BRIM_ARG_STRING("path", NULL, "file or folder (default: data.path)")
#define LIMIT BRIM_ARG_INT("limit", NULL, 1, BIG, "use only this many records")
// What every source takes.
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

// ---- transforms
// ------------------------------------------------------------------------------------------

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

// ---- metrics and environments
// --------------------------------------------------------------------------

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

// Components of workloads: models stand behind the other models, the rest at the end. Written before
// threads start, read only afterwards.
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

void brim_config_remove_components(const brim_config_component_row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(rows[i].category, "model") == 0) {
      added_models.count--;
    } else {
      added_others.count--;
    }
  }
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

bool brim_config_arg_takes_list(brim_config_arg_type type) {
  return type == BRIM_CONFIG_ARG_LIST || type == BRIM_CONFIG_ARG_WORDS ||
         type == BRIM_CONFIG_ARG_SIZE || type == BRIM_CONFIG_ARG_NUMBERS;
}
