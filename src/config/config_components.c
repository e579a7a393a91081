// The component catalogue: every name brim knows per category, with typed arguments, defaults and
// meanings. Rows only; config_check.c holds components against it, `config explain` prints it.
#include "config/config_int.h"

#include <string.h>

#define INT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, d, false, lo, hi, NULL, BRIM_N_(m) }
#define FLOAT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_FLOAT, d, false, lo, hi, NULL, BRIM_N_(m) }
#define BOOL(n, d, m) \
  { n, BRIM_CONFIG_ARG_BOOL, d, false, 0, 0, NULL, BRIM_N_(m) }
#define STR(n, d, m) \
  { n, BRIM_CONFIG_ARG_STRING, d, false, 0, 0, NULL, BRIM_N_(m) }
#define CHOICE(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_CHOICE, d, false, 0, 0, c, BRIM_N_(m) }
#define LIST(n, d, m) \
  { n, BRIM_CONFIG_ARG_LIST, d, false, 0, 0, NULL, BRIM_N_(m) }
#define WORDS(n, d, m) \
  { n, BRIM_CONFIG_ARG_WORDS, d, false, 0, 0, NULL, BRIM_N_(m) }
#define NUMS(n, d, m) \
  { n, BRIM_CONFIG_ARG_NUMBERS, d, false, 0, 0, NULL, BRIM_N_(m) }
#define SIZE(n, d, m) \
  { n, BRIM_CONFIG_ARG_SIZE, d, false, 1, 65536, NULL, BRIM_N_(m) }
#define SIZE_NEEDED(n, m) \
  { n, BRIM_CONFIG_ARG_SIZE, NULL, true, 1, 65536, NULL, BRIM_N_(m) }
#define COMP(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_COMPONENT, d, false, 0, 0, c, BRIM_N_(m) }

#define BIG 1e9

// ---- models -------------------------------------------------------------------------------------

#define CLASSES INT("num_classes", NULL, 1, 1e6, "outputs; found from the data when not given")
#define ACTIVATION CHOICE("activation", "relu", "relu|gelu|tanh", "after each hidden layer")
#define DROPOUT FLOAT("dropout", "0", 0, 0.99, "share of activations dropped in training")

static const brim_config_arg mlp_args[] = {
    INT("depth", "4", 0, 1000, "hidden layers"),
    INT("hidden", "512", 1, 65536, "width of each hidden layer"),
    ACTIVATION,
    DROPOUT,
    CHOICE("norm", "none", "none|layer", "normalisation before the activation"),
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
    INT("heads", "0", 0, 1024,
        "attention heads; 0 = hidden / 16, or the next below that divides hidden"),
    INT("patch", "0", 0, 65536,
        "samples of the signal in one token; 0 = the largest divisor of its length up to 32"),
    INT("mlp_ratio", "4", 1, 64, "width of the feed-forward part over hidden"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg resnet_args[] = {
    CHOICE("stem", "auto", "auto|cifar|imagenet", "auto: cifar up to 64 pixels, imagenet above"),
    INT("width", "64", 1, 4096, "channels of the first stage"),
    BOOL("zero_init", "false", "start each block as the identity"),
    CLASSES,
};
static const brim_config_arg wideresnet_args[] = {
    INT("depth", "28", 10, 1000, "layers; 6n + 4"),
    INT("width", "10", 1, 64, "widening factor"),
    DROPOUT,
    CLASSES,
};
static const brim_config_arg linear_args[] = {
    BOOL("bias", "true", "add a bias"),
    CLASSES,
};
static const brim_config_arg simclr_args[] = {
    COMP("backbone", "resnet18", "model", "the encoder"),
    INT("hidden", "512", 1, 65536, "width of the projection head"),
    INT("dim", "128", 1, 65536, "width of the projection"),
    INT("depth", "1", 1, 16, "hidden layers of the head"),
    BOOL("batch_norm", "false", "batch norm after the head's hidden layers"),
};
static const brim_config_arg policy_args[] = {
    INT("depth", "1", 0, 64, "hidden layers"),
    INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    ACTIVATION,
};
static const brim_config_arg actor_critic_args[] = {
    INT("depth", "2", 0, 64, "hidden layers"),
    INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    CHOICE("activation", "tanh", "relu|gelu|tanh", "after each hidden layer"),
    BOOL("shared", "false", "one trunk for policy and value"),
};

// ---- losses, optimisers, schedules
// ------------------------------------------------------------------

static const brim_config_arg cross_entropy_args[] = {
    FLOAT("label_smoothing", "0", 0, 0.999, "share of the target spread over all classes"),
};
static const brim_config_arg ntxent_args[] = {
    FLOAT("temperature", "0.5", 1e-6, 100, "of the similarities"),
};
#define LR(d) FLOAT("lr", d, 0, BIG, "learning rate")
#define DECAY(d) FLOAT("weight_decay", d, 0, BIG, "weight decay")
static const brim_config_arg sgd_args[] = {
    LR("0.1"),
    FLOAT("momentum", "0.9", 0, 0.99999, "0 is plain SGD"),
    BOOL("nesterov", "false", "look ahead; needs momentum"),
    DECAY("0"),
};
#define ADAM(decay)                                                               \
  LR("0.001"), FLOAT("beta1", "0.9", 0, 0.99999999, "decay of the first moment"), \
      FLOAT("beta2", "0.999", 0, 0.99999999, "decay of the second moment"),       \
      FLOAT("eps", "1e-8", 0, 1, "added to the root of the second moment"), DECAY(decay)
static const brim_config_arg adam_args[] = {ADAM("0")};
static const brim_config_arg adamw_args[] = {ADAM("0.01")};
#define WARMUP INT("warmup", NULL, 0, BIG, "steps of linear warm-up in front")
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

#define SPLIT CHOICE("split", NULL, "train|val|test|unlabeled|all", "part of the data")
#define PATH STR("path", NULL, "file or folder; data.path when not given")
#define LIMIT INT("limit", NULL, 1, BIG, "use only the first n records")
// What every source takes.
#define PARTS                                                                          \
  LIST("part", NULL, "from and to, shares of 1: that part of a random order by seed"), \
      STR("indices", NULL, "file with the numbers of the records to use, one a line")
static const brim_config_arg files_args[] = {PATH, SPLIT, LIMIT, PARTS};
static const brim_config_arg idx_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    INT("classes", NULL, 1, 1e6,
        "labels are below this; the largest label + 1 when not given, under MNIST's names 10 at "
        "least"),
    STR("labels", NULL, "file of the labels; found beside the images when not given"),
};
static const brim_config_arg stl10_args[] = {
    PATH, SPLIT, LIMIT, PARTS,
    INT("fold", NULL, 0, 9, "one of the ten folds of 1,000 training images")};
static const brim_config_arg hdf5_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    WORDS("inputs", NULL, "names of the input datasets; found when not given"),
    WORDS("targets", NULL, "names of the target datasets, or none; found when not given"),
    INT("classes", NULL, 1, 1e6,
        "targets are labels below this; found from whole numbers when not given"),
    STR("chunk_cache", NULL,
        "bytes for unpacked chunks, as 512MiB; an eighth of the memory, 256MiB to 4GiB, when not "
        "given"),
};
static const brim_config_arg synthetic_args[] = {
    LIST("shape", "[28, 28]", "shape of one sample; images are height, width, channels"),
    INT("classes", "10", 0, 1e6, "0 makes a regression set"),
    INT("targets", NULL, 1, 1e6, "with classes=0: numbers to predict"),
    INT("samples", "10000", 1, 1e12, "records of the training set"),
    INT("val_samples", NULL, 1, 1e12, "records of the evaluation set; a fifth when not given"),
    INT("unlabeled_samples", "0", 0, 1e12, "records of the split unlabeled, which has no targets"),
    INT("seed", NULL, 0, 9e15, "of the generator; the run's seed when not given"),
    CHOICE("dtype", "u8", "u8|f32", "type of the samples"),
    FLOAT("noise", "0.75", 0, 1, "share of noise over the class pattern"),
    SPLIT,
    PARTS,
};
static const brim_config_arg folder_args[] = {
    PATH,
    SPLIT,
    LIMIT,
    PARTS,
    CHOICE("color", "rgb", "rgb|gray", "convert every image to this"),
    BOOL("strict", "true", "refuse images with stray bytes or more data than pixels"),
};
static const brim_config_arg loader_args[] = {
    SPLIT,
    BOOL("shuffle", NULL, "new order each epoch; data.shuffle when not given"),
    INT("prefetch_factor", NULL, 1, 4096, "batches ahead per worker"),
    INT("batch_size", NULL, 1, BIG, "samples per step"),
    INT("num_workers", NULL, -1, 1024, "threads"),
    BOOL("drop_last", NULL, "leave out a short last batch"),
    BOOL("pin_memory", NULL, "page-locked buffers"),
    BOOL("persistent_workers", NULL, "keep the threads between epochs"),
};

// ---- transforms
// ------------------------------------------------------------------------------------------

#define PROB(d) FLOAT("p", d, 0, 1, "probability")
#define FILTER CHOICE("interpolation", "bilinear", "nearest|bilinear", "how to sample")
static const brim_config_arg resize_args[] = {SIZE_NEEDED("size", "int or (height, width)"),
                                              FILTER};
static const brim_config_arg crop_args[] = {SIZE_NEEDED("size", "int or (height, width)")};
static const brim_config_arg random_crop_args[] = {
    SIZE_NEEDED("size", "int or (height, width)"),
    INT("padding", "0", 0, 65536, "pixels added on each side first"),
    CHOICE("padding_mode", "constant", "constant|edge|reflect",
           "what they are: black, the border's, or the image mirrored at its border"),
};
static const brim_config_arg random_resized_crop_args[] = {
    SIZE_NEEDED("size", "int or (height, width)"),
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
    INT("kernel", "9", 1, 255, "taps; odd"),
    LIST("sigma", "(0.1, 2.0)", "lowest and highest"),
    PROB("0.5"),
};
static const brim_config_arg cutout_args[] = {
    INT("size", "8", 1, 65536, "side of the square"),
    INT("count", "1", 1, 1024, "squares"),
    PROB("1.0"),
};
static const brim_config_arg pad_args[] = {
    INT("padding", "4", 0, 65536, "pixels on each side"),
    FLOAT("value", "0", 0, 0, "what they are filled with"),
};
static const brim_config_arg cast_args[] = {
    CHOICE("dtype", "float32", "uint8|float32|float16|bfloat16", "type of the result")};
static const brim_config_arg views_args[] = {INT("views", "2", 1, 16, "augmented copies")};

// ---- metrics and environments
// --------------------------------------------------------------------------

static const brim_config_arg f1_args[] = {
    CHOICE("average", "macro", "macro|micro|weighted", "over the classes")};
static const brim_config_arg topk_args[] = {INT("k", "5", 1, 1e6, "guesses allowed")};
static const brim_config_arg quadruped_args[] = {
    CHOICE("task", "stand", "stand|walk", "what is rewarded"),
    INT("frame_skip", "5", 1, 1000, "physics steps per action"),
    CHOICE("integrator", "euler", "euler|rk4", "of the physics"),
    FLOAT("margin", "0.01", 0, 1, "of contacts: 0.01 as MuJoCo up to 3.4, 0.02 as from 3.5 on"),
    FLOAT("timestep", "0.01", 1e-5, 0.1, "of the physics, in seconds"),
    FLOAT("reset_pos", NULL, 0, 1, "starts: qpos is uniform within this of its rest; by ars.phase"),
    FLOAT("reset_vel", NULL, 0, 10, "starts: deviation of qvel; by ars.phase"),
    FLOAT("push_speed", NULL, 0, 100,
          "a push adds up to this to the torso's velocity, m/s; 0 = none; by ars.phase"),
    INT("push_every", NULL, 1, 1e6, "actions from a push to the next, on average; by ars.phase"),
    FLOAT("action_scale", "1", 1e-6, 1e3, "of what the policy says, before it is cut to [-1, 1]"),
};
static const brim_config_arg uav_args[] = {
    INT("num_uavs", NULL, 1, 1024, "agents; mappo.num_uavs when not given"),
    INT("num_obstacles", NULL, 0, 1e6, "cells; mappo.num_obstacles when not given"),
    INT("grid_size", NULL, 2, 65536, "side; mappo.grid_size when not given"),
};

#define ROW(category, name, args, meaning) \
  { category, name, BRIM_N_(meaning), args, sizeof(args) / sizeof((args)[0]) }
#define BARE(category, name, meaning) \
  { category, name, BRIM_N_(meaning), NULL, 0 }

static const brim_config_component_row rows[] = {
    ROW("model", "mlp", mlp_args, "fully connected layers over the flattened input"),
    ROW("model", "resmlp", resmlp_args, "fully connected residual blocks"),
    ROW("model", "transformer", transformer_args, "encoder over patches of a signal"),
    ROW("model", "resnet18", resnet_args, "residual convnet, 18 layers"),
    ROW("model", "resnet34", resnet_args, "residual convnet, 34 layers"),
    ROW("model", "resnet50", resnet_args, "residual convnet with bottlenecks, 50 layers"),
    ROW("model", "resnet101", resnet_args, "residual convnet with bottlenecks, 101 layers"),
    ROW("model", "resnet152", resnet_args, "residual convnet with bottlenecks, 152 layers"),
    ROW("model", "wideresnet", wideresnet_args, "wide residual convnet; the default is WRN-28-10"),
    ROW("model", "linear", linear_args, "one linear layer"),
    ROW("model", "simclr", simclr_args, "an encoder with a projection head"),
    BARE("model", "linear_policy", "actions = weights x observations"),
    ROW("model", "mlp_policy", policy_args, "a small network from observations to actions"),
    ROW("model", "actor_critic", actor_critic_args, "policy and value heads"),
    ROW("loss", "cross_entropy", cross_entropy_args, "softmax cross-entropy"),
    BARE("loss", "mse", "mean squared error"),
    ROW("loss", "ntxent", ntxent_args, "contrastive loss over two views"),
    ROW("optimizer", "sgd", sgd_args, "stochastic gradient descent"),
    ROW("optimizer", "adam", adam_args, "Adam; weight decay is added to the gradient"),
    ROW("optimizer", "adamw", adamw_args, "Adam with decoupled weight decay"),
    ROW("scheduler", "constant", constant_args, "the same learning rate throughout"),
    ROW("scheduler", "step", step_args, "drops by gamma every so many epochs"),
    ROW("scheduler", "cosine", cosine_args, "half a cosine down to min_lr"),
    ROW("dataset", "idx", idx_args, "IDX files, plain or gz"),
    ROW("dataset", "mnist", idx_args, "the MNIST files; the same as idx"),
    ROW("dataset", "hdf5", hdf5_args, "datasets of an HDF5 file"),
    ROW("dataset", "cifar10", files_args, "CIFAR-10 binary files"),
    ROW("dataset", "cifar100", files_args, "CIFAR-100 binary files, fine labels"),
    ROW("dataset", "stl10", stl10_args, "STL-10 binary files"),
    ROW("dataset", "folder", folder_args, "images in one folder per class"),
    ROW("dataset", "synthetic", synthetic_args, "made up, learnable, of any shape"),
    ROW("dataloader", "basic", loader_args, "the loader: threads and a ring of buffers"),
    ROW("transform", "resize", resize_args, "to a size"),
    ROW("transform", "center_crop", crop_args, "the middle"),
    ROW("transform", "random_crop", random_crop_args, "a random window"),
    ROW("transform", "random_resized_crop", random_resized_crop_args,
        "a random window of random area and shape, resized"),
    ROW("transform", "random_flip", flip_args, "left and right swapped"),
    ROW("transform", "random_vertical_flip", flip_args, "top and bottom swapped"),
    ROW("transform", "normalize", normalize_args, "(x - mean) / std, per channel, on 0..1"),
    ROW("transform", "color_jitter", color_jitter_args, "brightness, contrast, saturation, hue"),
    ROW("transform", "grayscale", grayscale_args, "colour removed, channels kept"),
    ROW("transform", "random_grayscale", random_grayscale_args, "colour removed now and then"),
    ROW("transform", "gaussian_blur", blur_args, "blurred by a random sigma"),
    ROW("transform", "cutout", cutout_args, "random squares set to the mean colour"),
    ROW("transform", "pad", pad_args, "a border"),
    ROW("transform", "cast", cast_args, "to another type"),
    BARE("transform", "to_tensor", "uint8 0..255 to float 0..1"),
    ROW("transform", "views", views_args, "several augmented copies, for contrastive learning"),
    BARE("metric", "accuracy", "share of right answers"),
    ROW("metric", "topk", topk_args, "right answer among the k best guesses"),
    BARE("metric", "top5", "right answer among the five best guesses"),
    ROW("metric", "f1", f1_args, "harmonic mean of precision and recall"),
    BARE("metric", "confusion", "counts per true and guessed class"),
    BARE("metric", "mae", "mean absolute error"),
    BARE("metric", "mse", "mean squared error"),
    BARE("metric", "r2", "share of the variance explained"),
    ROW("env", "quadruped", quadruped_args, "a four-legged robot; MuJoCo's Ant"),
    ROW("env", "uav", uav_args, "drones in a grid world"),
};

size_t brim_config_component_count(void) { return sizeof rows / sizeof rows[0]; }

const brim_config_component_row *brim_config_component_at(size_t index) { return &rows[index]; }

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
    if (!strcmp(row->args[i].name, name)) return &row->args[i];
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
