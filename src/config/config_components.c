// The component catalogue: every name brim knows per category, with typed arguments, defaults and
// meanings. Rows only; config_check.c holds components against it, `config explain` prints it.
#include "config/config_int.h"

#include <string.h>

#define INT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, d, false, lo, hi, NULL, BRIM_N_(m), NULL }
// With another name that configs may use.
#define INT_ALIAS(n, alias, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, d, false, lo, hi, NULL, BRIM_N_(m), alias }
// 0, or the word auto: chosen by the model.
#define AUTO(n, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, "0", false, 0, hi, "auto", BRIM_N_(m), NULL }
#define FLOAT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_FLOAT, d, false, lo, hi, NULL, BRIM_N_(m), NULL }
#define BOOL(n, d, m) \
  { n, BRIM_CONFIG_ARG_BOOL, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define STR(n, d, m) \
  { n, BRIM_CONFIG_ARG_STRING, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define CHOICE(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_CHOICE, d, false, 0, 0, c, BRIM_N_(m), NULL }
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
#define COMP(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_COMPONENT, d, false, 0, 0, c, BRIM_N_(m), NULL }

#define BIG 1e9

// ---- models -------------------------------------------------------------------------------------

#define CLASSES INT("num_classes", NULL, 1, 1e6, "number of outputs (default: taken from the data)")
#define ACTIVATION \
  CHOICE("activation", "relu", "relu|gelu|tanh", "activation after each hidden layer")
#define DROPOUT FLOAT("dropout", "0", 0, 0.99, "share of activations dropped in training")

static const brim_config_arg mlp_args[] = {
    INT("depth", "4", 0, 1000, "hidden layers"),
    INT("hidden", "512", 1, 65536, "width of each hidden layer"),
    ACTIVATION,
    DROPOUT,
    CHOICE("norm", "none", "none|layer", "normalization before the activation"),
    CHOICE("init", "uniform", "uniform|orthogonal",
           "first weights: PyTorch's default, or orthogonal with biases of 0"),
    FLOAT("gain", "1", 0, 100, "factor of orthogonal weights"),
    FLOAT("last_gain", "0", 0, 100, "the same for the last layer (0 = gain)"),
    CLASSES,
};
static const brim_config_arg resmlp_args[] = {
    INT("depth", "4", 1, 1000, "residual blocks"),
    INT("hidden", "512", 1, 65536, "width"),
    ACTIVATION,
    DROPOUT,
    CLASSES,
};
static const brim_config_arg transformer_args[] = {
    INT("depth", "6", 1, 1000, "blocks"),
    INT("hidden", "64", 1, 65536, "width; a multiple of heads"),
    AUTO("heads", 1024,
         "attention heads (auto or 0 = the largest divisor of hidden up to hidden / 16)"),
    AUTO(
        "patch", 65536,
        "samples of the signal per token (auto or 0 = the largest divisor of its length up to 32)"),
    INT("mlp_ratio", "4", 1, 64, "width of the feed-forward part, as a multiple of hidden"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg resnet_args[] = {
    CHOICE("stem", "auto", "auto|cifar|imagenet",
           "first layers; auto = cifar up to 64 pixels, imagenet above"),
    INT("width", "64", 1, 4096, "channels of the first stage"),
    BOOL("zero_init", "false", "start each block as the identity"),
    CLASSES,
};
static const brim_config_arg wideresnet_args[] = {
    INT("depth", "28", 10, 1000, "number of layers, of the form 6n + 4"),
    INT("width", "10", 1, 64, "widening factor"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg linear_args[] = {
    BOOL("bias", "true", "add a bias"),
    CLASSES,
};
static const brim_config_arg simclr_args[] = {
    COMP("backbone", "resnet18", "model", "model used as the encoder"),
    INT("hidden", "512", 1, 65536, "width of the projection head"),
    INT("dim", "128", 1, 65536, "width of the projection"),
    INT("depth", "1", 1, 16, "hidden layers of the head"),
    BOOL("batch_norm", "false", "batch norm after each hidden layer of the head"),
};
static const brim_config_arg policy_args[] = {
    INT("depth", "1", 0, 64, "hidden layers"),
    INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    ACTIVATION,
};
static const brim_config_arg actor_critic_args[] = {
    INT("depth", "2", 0, 64, "hidden layers"),
    INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    CHOICE("activation", "tanh", "relu|gelu|tanh", "activation after each hidden layer"),
    BOOL("shared", "false", "policy and value share one trunk"),
};

// ---- losses, optimisers, schedules
// ------------------------------------------------------------------

static const brim_config_arg cross_entropy_args[] = {
    FLOAT("label_smoothing", "0", 0, 0.999, "share of the target spread over all classes"),
};
static const brim_config_arg ntxent_args[] = {
    FLOAT("temperature", "0.5", 1e-6, 100, "temperature of the similarities"),
};
#define LR(d) FLOAT("lr", d, 0, BIG, "learning rate")
#define DECAY(d) FLOAT("weight_decay", d, 0, BIG, "weight decay")
static const brim_config_arg sgd_args[] = {
    LR("0.1"),
    FLOAT("momentum", "0.9", 0, 0.99999, "momentum (0 = plain SGD)"),
    BOOL("nesterov", "false", "Nesterov momentum (needs momentum)"),
    DECAY("0"),
};
#define ADAM(decay)                                                               \
  LR("0.001"), FLOAT("beta1", "0.9", 0, 0.99999999, "decay of the first moment"), \
      FLOAT("beta2", "0.999", 0, 0.99999999, "decay of the second moment"),       \
      FLOAT("eps", "1e-8", 0, 1, "epsilon added to the root of the second moment"), DECAY(decay)
static const brim_config_arg adam_args[] = {ADAM("0")};
static const brim_config_arg adamw_args[] = {ADAM("0.01")};
#define WARMUP INT("warmup", NULL, 0, BIG, "steps of linear warm-up at the start")
static const brim_config_arg constant_args[] = {WARMUP};
static const brim_config_arg step_args[] = {
    INT("every", "30", 1, BIG, "epochs between two drops"),
    FLOAT("gamma", "0.1", 0, 1, "factor at each drop"),
    WARMUP,
};
static const brim_config_arg cosine_args[] = {
    FLOAT("min_lr", "0", 0, BIG, "learning rate at the end"),
    WARMUP,
};

// ---- data
// ----------------------------------------------------------------------------------------------

#define SPLIT CHOICE("split", NULL, "train|val|test|unlabeled|all", "split to read")
#define PATH STR("path", NULL, "file or folder (default: data.path)")
#define LIMIT INT("limit", NULL, 1, BIG, "use only this many records")
// What every source takes.
#define PARTS                                                                                  \
  LIST("part", NULL, "part of the data in random order, as two shares from 0 to 1: (0, 0.8)"), \
      STR("indices", NULL, "file with the indices of the records to use, one per line")
static const brim_config_arg files_args[] = {PATH, SPLIT, LIMIT, PARTS};
static const brim_config_arg idx_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    INT("classes", NULL, 1, 1e6,
        "number of classes (default: the largest label + 1; at least 10 for files with MNIST's "
        "names)"),
    STR("labels", NULL, "label file (default: found next to the images)"),
};
static const brim_config_arg stl10_args[] = {
    PATH, SPLIT, LIMIT, PARTS,
    INT("fold", NULL, 0, 9, "fold to use: one of ten with 1,000 training images each")};
static const brim_config_arg hdf5_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    WORDS("inputs", NULL, "names of the input datasets (default: detected)"),
    WORDS("targets", NULL, "names of the target datasets, or none (default: detected)"),
    INT("classes", NULL, 1, 1e6,
        "number of classes (default: detected from targets that are whole numbers)"),
    CHOICE("layout", NULL, "NCHW|NHWC|NCL|NLC",
           "order of images (NCHW, NHWC) or signals (NCL, NLC) (default: detected)"),
    STR("chunk_cache", NULL,
        "memory for unpacked chunks, such as 512MiB (default: an eighth of the memory, 256MiB to "
        "4GiB)"),
};
static const brim_config_arg synthetic_args[] = {
    LIST("shape", "[28, 28]", "shape of one sample; images are height, width, channels"),
    INT("classes", "10", 0, 1e6, "number of classes (0 = a regression set)"),
    INT("targets", NULL, 1, 1e6, "numbers to predict per sample, with classes=0"),
    INT("samples", "10000", 1, 1e12, "number of training records"),
    INT("val_samples", NULL, 1, 1e12,
        "number of evaluation records (default: a fifth of the training records)"),
    INT("unlabeled_samples", "0", 0, 1e12,
        "number of records in the split unlabeled, without targets"),
    INT("seed", NULL, 0, 9e15, "random seed for generated samples (default: the run's seed)"),
    CHOICE("dtype", "u8", "u8|f32", "type of the samples"),
    FLOAT("noise", "0.75", 0, 1, "share of noise mixed into the class pattern"),
    SPLIT,
    PARTS,
};
static const brim_config_arg folder_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    CHOICE("color", "rgb", "rgb|gray", "colour format that every image is converted to"),
    BOOL("strict", "true", "reject images with extra bytes or more data than their size needs"),
};
static const brim_config_arg loader_args[] = {
    SPLIT,
    BOOL("shuffle", NULL, "shuffle every epoch (default: data.shuffle)"),
    INT("prefetch_factor", NULL, 1, 4096, "batches each worker prepares ahead"),
    INT("batch_size", NULL, 1, BIG, "samples per step"),
    INT("num_workers", NULL, -1, 1024, "threads"),
    BOOL("drop_last", NULL, "drop an incomplete last batch"),
    BOOL("pin_memory", NULL, "use page-locked buffers"),
    BOOL("persistent_workers", NULL, "keep the threads alive between epochs"),
};

// ---- transforms
// ------------------------------------------------------------------------------------------

#define PROB(d) FLOAT("p", d, 0, 1, "probability")
#define FILTER CHOICE("interpolation", "bilinear", "nearest|bilinear", "interpolation")
static const brim_config_arg resize_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)"), FILTER};
static const brim_config_arg crop_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)")};
static const brim_config_arg random_crop_args[] = {
    SIZE_NEEDED("size", "size as a number or (height, width)"),
    INT("padding", "0", 0, 65536, "pixels of padding on each side before cropping"),
    CHOICE(
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
#define JITTER(n) FLOAT(n, "0.4", 0, 100, "strength")
static const brim_config_arg color_jitter_args[] = {
    JITTER("brightness"), JITTER("contrast"), JITTER("saturation"),
    FLOAT("hue", "0.1", 0, 0.5, "strength"), PROB("1.0")};
static const brim_config_arg grayscale_args[] = {PROB("1.0")};
static const brim_config_arg random_grayscale_args[] = {PROB("0.2")};
static const brim_config_arg blur_args[] = {
    INT("kernel", "9", 1, 255, "filter size in pixels (odd)"),
    LIST("sigma", "(0.1, 2.0)", "lowest and highest sigma"),
    PROB("0.5"),
};
static const brim_config_arg cutout_args[] = {
    INT("size", "8", 1, 65536, "side length of a square"),
    INT("count", "1", 1, 1024, "squares"),
    PROB("1.0"),
};
static const brim_config_arg pad_args[] = {
    INT("padding", "4", 0, 65536, "pixels of padding on each side"),
    FLOAT("value", "0", 0, 0, "value of the padding"),
};
static const brim_config_arg cast_args[] = {
    CHOICE("dtype", "float32", "uint8|float32|float16|bfloat16", "type of the result")};
static const brim_config_arg views_args[] = {
    INT("views", "2", 1, 16, "number of augmented copies")};

// ---- metrics and environments
// --------------------------------------------------------------------------

static const brim_config_arg f1_args[] = {
    CHOICE("average", "macro", "macro|micro|weighted", "average over the classes")};
static const brim_config_arg topk_args[] = {
    INT("k", "5", 1, 1e6, "number of predictions that count")};
static const brim_config_arg quadruped_args[] = {
    CHOICE("task", "stand", "stand|walk", "task that is rewarded"),
    INT("frame_skip", "5", 1, 1000, "physics steps per action"),
    CHOICE("integrator", "euler", "euler|rk4", "integrator of the physics"),
    FLOAT("margin", "0.01", 0, 1,
          "contact margin: 0.01 as in MuJoCo up to 3.4, or 0.02 as from 3.5 on"),
    FLOAT("timestep", "0.01", 1e-5, 0.1, "time step of the physics, in seconds"),
    FLOAT("reset_pos", NULL, 0, 1,
          "range of qpos around its rest value at the start, uniform (default: set by ars.phase)"),
    FLOAT("reset_vel", NULL, 0, 10,
          "standard deviation of qvel at the start (default: set by ars.phase)"),
    FLOAT("push_speed", NULL, 0, 100,
          "largest change of the torso's velocity by a push, in m/s (0 = no pushes; default: set "
          "by ars.phase)"),
    INT("push_every", NULL, 1, 1e6,
        "average number of actions between pushes (default: set by ars.phase)"),
    FLOAT("action_scale", "1", 1e-6, 1e3,
          "factor on the policy's output, applied before clipping to [-1, 1]"),
};
static const brim_config_arg cartpole_args[] = {
    FLOAT("reset", "0.05", 0, 1, "range of every number of the state at the start, uniform"),
};
static const brim_config_arg uav_args[] = {
    CHOICE("rules", "brim", "brim|peer",
           "brim: UAVs block each other; peer: the environment of other programs, for comparison"),
    CHOICE("task", "auto", "auto|coverage|goals",
           "task that is rewarded (auto = coverage, or goals with rules=peer)"),
    INT_ALIAS("size", "grid_size", NULL, 2, 64,
              "side length of the grid, in cells (default: 32, or 50 with rules=peer)"),
    INT("num_uavs", "10", 1, 32, "number of UAVs"),
    INT("num_obstacles", "40", 0, 4095, "number of obstacle cells (with rules=peer: on average)"),
    INT_ALIAS("episode_steps", "max_steps", "200", 1, 32768, "longest episode, in steps"),
    INT("crop", NULL, 1, 15,
        "side length of what a UAV sees, in cells; odd (default: 11, or 5 with rules=peer)"),
    CHOICE("reward", NULL, "own|team",
           "own: each UAV has its own reward; team: all have the mean (default: own, or team with "
           "rules=peer)"),
};

#define ROW(category, name, args, meaning) \
  { category, name, BRIM_N_(meaning), args, sizeof(args) / sizeof((args)[0]) }
#define BARE(category, name, meaning) \
  { category, name, BRIM_N_(meaning), NULL, 0 }

static const brim_config_component_row rows[] = {
    ROW("model", "mlp", mlp_args, "fully connected layers over the flattened input"),
    ROW("model", "resmlp", resmlp_args, "fully connected residual blocks"),
    ROW("model", "transformer", transformer_args, "transformer encoder over patches of a signal"),
    ROW("model", "resnet18", resnet_args, "residual convnet, 18 layers"),
    ROW("model", "resnet34", resnet_args, "residual convnet, 34 layers"),
    ROW("model", "resnet50", resnet_args, "residual convnet with bottlenecks, 50 layers"),
    ROW("model", "resnet101", resnet_args, "residual convnet with bottlenecks, 101 layers"),
    ROW("model", "resnet152", resnet_args, "residual convnet with bottlenecks, 152 layers"),
    ROW("model", "wideresnet", wideresnet_args, "wide residual convnet; the default is WRN-28-10"),
    ROW("model", "linear", linear_args, "single linear layer"),
    ROW("model", "simclr", simclr_args, "encoder with a projection head"),
    BARE("model", "linear_policy", "actions = weights x observations"),
    ROW("model", "mlp_policy", policy_args, "small network that maps observations to actions"),
    ROW("model", "actor_critic", actor_critic_args, "policy and value heads"),
    ROW("loss", "cross_entropy", cross_entropy_args, "softmax cross-entropy"),
    BARE("loss", "mse", "mean squared error"),
    ROW("loss", "ntxent", ntxent_args, "contrastive loss over two views"),
    ROW("optimizer", "sgd", sgd_args, "stochastic gradient descent"),
    ROW("optimizer", "adam", adam_args, "Adam; weight decay is added to the gradient"),
    ROW("optimizer", "adamw", adamw_args, "Adam with decoupled weight decay"),
    ROW("scheduler", "constant", constant_args, "constant learning rate"),
    ROW("scheduler", "step", step_args, "multiply by gamma at regular intervals"),
    ROW("scheduler", "cosine", cosine_args, "half a cosine wave down to min_lr"),
    ROW("dataset", "idx", idx_args, "IDX files, plain or gz"),
    ROW("dataset", "mnist", idx_args, "MNIST files (same as idx)"),
    ROW("dataset", "hdf5", hdf5_args, "datasets of an HDF5 file"),
    ROW("dataset", "cifar10", files_args, "CIFAR-10 binary files"),
    ROW("dataset", "cifar100", files_args, "CIFAR-100 binary files, fine labels"),
    ROW("dataset", "stl10", stl10_args, "STL-10 binary files"),
    ROW("dataset", "folder", folder_args, "images in one folder per class"),
    ROW("dataset", "synthetic", synthetic_args, "generated, learnable samples of any shape"),
    ROW("dataloader", "basic", loader_args, "data loader with threads and a ring of buffers"),
    ROW("transform", "resize", resize_args, "resize"),
    ROW("transform", "center_crop", crop_args, "crop from the middle"),
    ROW("transform", "random_crop", random_crop_args, "crop at a random position"),
    ROW("transform", "random_resized_crop", random_resized_crop_args,
        "crop of random area and aspect ratio, resized"),
    ROW("transform", "random_flip", flip_args, "swap left and right"),
    ROW("transform", "random_vertical_flip", flip_args, "swap top and bottom"),
    ROW("transform", "normalize", normalize_args, "(x - mean) / std, per channel, on 0..1"),
    ROW("transform", "color_jitter", color_jitter_args, "brightness, contrast, saturation, hue"),
    ROW("transform", "grayscale", grayscale_args, "remove colour, keep the channels"),
    ROW("transform", "random_grayscale", random_grayscale_args,
        "remove colour with a given probability"),
    ROW("transform", "gaussian_blur", blur_args, "blur with a random sigma"),
    ROW("transform", "cutout", cutout_args, "fill random squares with the mean colour"),
    ROW("transform", "pad", pad_args, "add a border"),
    ROW("transform", "cast", cast_args, "convert to another type"),
    BARE("transform", "to_tensor", "convert uint8 0..255 to float 0..1"),
    ROW("transform", "views", views_args, "several augmented copies, for contrastive learning"),
    BARE("metric", "accuracy", "share of right answers"),
    ROW("metric", "topk", topk_args,
        "share of samples with the right answer among the k best predictions"),
    BARE("metric", "top5",
         "share of samples with the right answer among the five best predictions"),
    ROW("metric", "f1", f1_args, "harmonic mean of precision and recall"),
    BARE("metric", "confusion", "counts per true and predicted class"),
    BARE("metric", "mae", "mean absolute error"),
    BARE("metric", "mse", "mean squared error"),
    BARE("metric", "r2", "share of the variance explained"),
    ROW("env", "quadruped", quadruped_args, "a four-legged robot; MuJoCo's Ant"),
    ROW("env", "cartpole", cartpole_args, "a pole on a cart; Gymnasium's CartPole-v1"),
    ROW("env", "uav", uav_args, "UAVs in a grid world with obstacles"),
};

size_t brim_config_component_count(void) { return sizeof rows / sizeof rows[0]; }

const brim_config_component_row *brim_config_component_at(size_t index) { return &rows[index]; }

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
  return (brim_config_named){rows[index].category, rows[index].name, rows[index].meaning};
}

const brim_config_component_row *brim_config_component_find(const char *category,
                                                            const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (category && strcmp(rows[i].category, category)) continue;
    if (!strcmp(rows[i].name, name)) return &rows[i];
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
