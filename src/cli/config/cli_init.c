// `brim init`: examines data and writes a commented config that can train on them.

#include "base/base_text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/source.h"
#include "cli/cli.h"
#include "cli/data/cli_data.h"
#include "cli/job/cli_job.h"
#include "workload/workload.h"

// The data at the path. `info` is that of the split to train on.
typedef struct brim_init_facts {
  const char *name;     // of the config and the run
  const char *dataset;  // the text of --dataset, else the detected name such as "folder"
  const char *path;     // NULL if the dataset needs none
  const char *split;    // split to train on; NULL = train
  bool has_val;         // there is a val or test split
  brim_source_info info;
  bool binary_targets;             // brim_source.binary_targets
  int64_t height, width;           // of images; the median if sizes differ
  const char *const *class_names;  // NULL = unknown
  const char *unused;              // files at the path that no split reads; "" = none
  bool gpu;                        // a GPU will train
  bool allow_external;             // read other files that an HDF5 file names
} brim_init_facts;

typedef enum brim_init_kind {
  BRIM_INIT_SMALL_IMAGES,  // kept at their size, cropped and flipped
  BRIM_INIT_LARGE_IMAGES,  // resized first
  BRIM_INIT_VECTORS,
  BRIM_INIT_SIGNALS,
  BRIM_INIT_KIND_COUNT
} brim_init_kind;

typedef struct brim_init_choice {
  brim_init_kind kind;
  // The workload for images without targets; NULL if there are targets.
  const struct brim_workload_table *unlabelled_workload;
  int64_t batch;        // wanted; the plan may reduce it
  double val_fraction;  // 0 = the data have a val or test split, or nothing is evaluated
  int64_t epochs;
  char model[96], loss[64], optimizer[96], train[320], val[128];  // train, val: "" = none
  char why_model[200];                                            // translated
} brim_init_choice;

//-------------------------------------------- choice --------------------------------------------
// Chooses model, transforms, optimizer, batch and epochs for a data set, and writes the config. Opens nothing.

enum {
  SMALL_SIDE = 64,       // largest side of small images, for which resnets have a stem of their own
  SIGNAL_CHANNELS = 16,  // a float matrix with more columns may be an image
  IMAGE_STRETCH = 2,     // an image's sides differ by less than this factor
  MIN_BATCH = 16,        // smaller batches have noisy statistics
  MIN_STEPS = 10,        // the batch is halved until an epoch has this many steps
  MIN_HOLD_OUT = 10,     // with fewer samples none are held out for validation
};

//---------------------------------- the kind of data ----------------------------------

static bool is_image(const brim_source_info *info) {
  if (info->rank == 3) return info->dim[2] == 1 || info->dim[2] == 3;
  if (info->rank != 2) return false;
  if (info->type == BRIM_SAMPLE_U8) return true;
  int64_t a = info->dim[0], b = info->dim[1];
  return b > SIGNAL_CHANNELS && a < IMAGE_STRETCH * b && b < IMAGE_STRETCH * a;
}

static int channels_of(const brim_source_info *info) {
  return info->rank == 3 ? (int)info->dim[2] : 1;
}

static int64_t least_side(const brim_init_facts *f) {
  return f->height < f->width ? f->height : f->width;
}

// The workload that learns from images without targets; NULL = none.
static const brim_workload_table *find_unlabelled_workload(void) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (table->begin) return table;
  }
  return NULL;
}

static brim_status find_kind(const brim_init_facts *f, brim_init_choice *out) {
  const brim_source_info *info = &f->info;
  bool targets = info->classes > 0 || info->target_dim > 0;
  if (is_image(info)) {
    bool small = !info->varies && f->height <= SMALL_SIDE && f->width <= SMALL_SIDE;
    out->kind = small ? BRIM_INIT_SMALL_IMAGES : BRIM_INIT_LARGE_IMAGES;
    if (!targets) out->unlabelled_workload = find_unlabelled_workload();
  } else {
    out->kind = info->rank == 2 ? BRIM_INIT_SIGNALS : BRIM_INIT_VECTORS;
  }
  if (!targets && !out->unlabelled_workload) {
    return brim_fail(BRIM_EINVAL,
                     "%s: these samples have no targets to learn from; name the targets, e.g. "
                     "--dataset 'hdf5(inputs=x, targets=y)'",
                     f->path ? f->path : f->dataset);
  }
  return BRIM_OK;
}

//---------------------------------- images ----------------------------------

// "32" or "(48, 64)".
static void size_text(int64_t height, int64_t width, char out[48]) {
  if (height == width) {
    snprintf(out, 48, "%lld", (long long)height);
  } else {
    snprintf(out, 48, "(%lld, %lld)", (long long)height, (long long)width);
  }
}

// The side of the crop of large images, up to 224.
static int64_t crop_side(const brim_init_facts *f) {
  static const int64_t sides[] = {224, 192, 160, 128, 96, 64};
  int64_t least = least_side(f);
  for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
    if (least >= sides[i]) return sides[i];
  }
  return least < 32 ? 32 : least / 8 * 8;
}

static void choose_unlabelled_images(const brim_init_facts *f, brim_init_choice *c) {
  const bool small = c->kind == BRIM_INIT_SMALL_IMAGES;
  const int64_t side = crop_side(f);
  const brim_work_images images = {.height = small ? f->height : side,
                                   .width = small ? f->width : side,
                                   .colour = channels_of(&f->info) == 3,
                                   .gpu = f->gpu};
  brim_work_beginning begin = {0};
  c->unlabelled_workload->begin(&images, &begin);
  snprintf(c->model, sizeof c->model, "%s", begin.model);
  snprintf(c->loss, sizeof c->loss, "%s", begin.loss);
  snprintf(c->optimizer, sizeof c->optimizer, "%s", begin.optimizer);
  snprintf(c->train, sizeof c->train, "%s", begin.train);
  snprintf(c->why_model, sizeof c->why_model, "%s", brim_tr(begin.why));
  c->epochs = begin.epochs;
}

static void choose_images(const brim_init_facts *f, brim_init_choice *c) {
  bool colour = channels_of(&f->info) == 3;
  snprintf(c->model, sizeof c->model, "resnet18%s", f->gpu ? "" : "(width=16)");
  if (c->kind == BRIM_INIT_SMALL_IMAGES) {
    char size[48];
    size_text(f->height, f->width, size);
    int64_t padding = least_side(f) / 8;
    // Do not flip grey images: they are often digits, letters or scans.
    snprintf(c->train, sizeof c->train, "random_crop(size=%s, padding=%lld)%s", size,
             (long long)(padding > 0 ? padding : 1), colour ? " | random_flip" : "");
  } else {
    long long side = crop_side(f);
    snprintf(c->train, sizeof c->train,
             "random_resized_crop(size=%lld, scale=(0.35, 1.0)) | random_flip", side);
    snprintf(c->val, sizeof c->val, "resize(size=%lld) | center_crop(size=%lld)",
             side * 8 / 7 / 8 * 8 > side ? side * 8 / 7 / 8 * 8 : side, side);
  }
  snprintf(c->why_model, sizeof c->why_model, "%s",
           f->gpu ? brim_tr("larger: resnet34, resnet50; width=N makes it narrower")
                  : brim_tr("narrow, for a CPU; on a GPU use resnet18 or resnet50 at full width"));
}

//---------------------------------- signals ----------------------------------

// Chooses a transformer. A token is 8 to 32 samples long and should divide the length of the signal.
// Crops long signals whose length has no such divisor, such as a prime.
static void choose_signals(const brim_init_facts *f, brim_init_choice *c) {
  enum { MIN_LENGTH_TO_CROP = 128, MAX_TOKEN = 32, MIN_TOKEN = 8 };
  int64_t length = f->info.dim[0];
  bool good = length < MIN_LENGTH_TO_CROP;
  for (int64_t d = MIN_TOKEN; d <= MAX_TOKEN && !good; d++) good = length % d == 0;
  snprintf(c->model, sizeof c->model, "transformer(depth=4, hidden=64, heads=4)");
  snprintf(c->why_model, sizeof c->why_model, "%s",
           brim_tr("patch=N sets the signal samples per token"));
  if (good) return;
  long long cut = (long long)(length - length % MAX_TOKEN), channels = (long long)f->info.dim[1];
  snprintf(c->train, sizeof c->train, "center_crop(size=(%lld, %lld))", cut, channels);
  snprintf(c->val, sizeof c->val, "center_crop(size=(%lld, %lld))", cut, channels);
}

//---------------------------------- the rest ----------------------------------

// The largest power of two up to `want` that leaves MIN_STEPS steps in an epoch.
static int64_t batch_for(const brim_init_facts *f, const brim_init_choice *c) {
  int64_t batch = c->kind == BRIM_INIT_LARGE_IMAGES ? (f->gpu ? 128 : 32)
                  : c->kind == BRIM_INIT_SMALL_IMAGES && !c->unlabelled_workload
                      ? (f->gpu ? 256 : 128)
                      : (f->gpu ? 512 : 128);
  double samples = (double)f->info.count * (1 - c->val_fraction);
  while (batch > MIN_BATCH && samples / (double)batch < MIN_STEPS) batch /= 2;
  while (batch > 1 && (double)batch > samples) batch /= 2;
  return batch;
}

static int64_t epochs_for(const brim_init_facts *f, const brim_init_choice *c) {
  if (c->unlabelled_workload) return c->epochs;
  return f->info.count < 2000 ? 60 : f->info.count < 20000 ? 40 : 24;
}

// Makes the choice; BRIM_EINVAL if nothing suits the data.
static brim_status init_choose(const brim_init_facts *f, brim_init_choice *c) {
  memset(c, 0, sizeof *c);
  BRIM_TRY(find_kind(f, c));
  if (f->info.count < 2) {
    return brim_fail(BRIM_EINVAL, "%s: 1 sample; training needs at least 2",
                     f->path ? f->path : f->dataset);
  }
  snprintf(c->loss, sizeof c->loss, "%s",
           f->info.classes > 0 ? "cross_entropy(label_smoothing=0.1)"
           : f->binary_targets ? "bce"
                               : "mse");
  if (c->unlabelled_workload) {
    choose_unlabelled_images(f, c);
  } else if (c->kind <= BRIM_INIT_LARGE_IMAGES) {
    choose_images(f, c);
  } else if (c->kind == BRIM_INIT_VECTORS) {
    snprintf(c->model, sizeof c->model, "mlp(depth=3, hidden=256, dropout=0.1)");
    snprintf(c->why_model, sizeof c->why_model, "%s",
             brim_tr("wider: hidden=1024; resmlp for more depth"));
  } else {
    choose_signals(f, c);
  }
  if (!c->unlabelled_workload && !f->has_val && f->info.count >= MIN_HOLD_OUT) {
    c->val_fraction = f->info.count < 1000 ? 0.2 : 0.1;
  }
  c->batch = batch_for(f, c);
  c->epochs = epochs_for(f, c);
  return BRIM_OK;
}

// The learning rate of sgd scales with the batch; that of adamw does not.
static void choose_optimizer(brim_init_choice *c, int64_t batch) {
  if (c->unlabelled_workload) return;  // chosen by its workload
  if (c->kind <= BRIM_INIT_LARGE_IMAGES) {
    double lr = 0.1 * (double)batch / 128;
    snprintf(c->optimizer, sizeof c->optimizer,
             "sgd(lr=%.2g, momentum=0.9, nesterov=true, weight_decay=5e-4)", fmin(lr, 0.4));
  } else {
    snprintf(c->optimizer, sizeof c->optimizer, "adamw(lr=%s)",
             c->kind == BRIM_INIT_SIGNALS ? "3e-4" : "1e-3");
  }
}

//---------------------------------- the text ----------------------------------

// "1,200 images of 640 x 480 x 3 in 3 classes"
static void init_describe(const brim_init_facts *f, char *out, size_t size) {
  char count[32], shape[96], targets[96];
  const brim_source_info *info = &f->info;
  brim_format_count((double)info->count, count);
  size_t used = 0;
  shape[0] = '\0';
  for (int i = 0; i < info->rank && used < sizeof shape; i++) {
    int n = snprintf(shape + used, sizeof shape - used, "%s%lld", i ? " x " : "",
                     (long long)info->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (info->classes > 0) {
    snprintf(targets, sizeof targets,
             info->classes == 1 ? brim_tr("%lld class") : brim_tr("%lld classes"),
             (long long)info->classes);
  } else if (info->target_dim > 0) {
    snprintf(targets, sizeof targets,
             f->binary_targets       ? brim_tr("%lld labels of 0 or 1 per sample")
             : info->target_dim == 1 ? brim_tr("%lld number to predict")
                                     : brim_tr("%lld numbers to predict"),
             (long long)info->target_dim);
  } else {
    snprintf(targets, sizeof targets, "%s", brim_tr("no targets"));
  }
  if (info->varies) {
    snprintf(out, size, brim_tr("%s samples of up to %s, %s"), count, shape, targets);
  } else {
    snprintf(out, size, brim_tr("%s samples of %s, %s"), count, shape, targets);
  }
}

// A YAML scalar: plain only if it surely reads back as the same text.
static void put_scalar(brim_str *out, const char *text) {
  static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  bool letter = strpbrk(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/") != NULL;
  static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", NULL};
  for (const char *const *w = words; *w; w++) letter = letter && strcasecmp(text, *w) != 0;
  if (letter && text[0] != '-' && strspn(text, safe) == strlen(text)) {
    brim_str_append(out, text);
    return;
  }
  brim_str_append_char(out, '\'');
  for (; *text; text++) {
    if (*text == '\'') brim_str_append_char(out, '\'');
    brim_str_append_char(out, *text);
  }
  brim_str_append_char(out, '\'');
}

static void put_comment(brim_str *out, const char *text) {
  brim_term term = {.width = 96};
  brim_str wrapped;
  brim_str_init(&wrapped);
  brim_ui_wrap(&wrapped, &term, text, 0);
  for (const char *p = wrapped.data; *p;) {
    size_t n = strcspn(p, "\n");
    brim_str_append(out, "# ");
    brim_str_append_n(out, p, n);
    brim_str_append_char(out, '\n');
    p += n + (p[n] == '\n');
  }
  if (brim_str_status(&wrapped) && !out->status) out->status = wrapped.status;
  brim_str_deinit(&wrapped);
}

// A line with a comment in the comment column.
static void put_line(brim_str *out, const char *line, const char *why) {
  int width = brim_utf8_width(line);
  brim_str_append(out, line);
  if (why && *why) {
    brim_str_repeat(out, ' ', (size_t)(width < 30 ? 30 - width : 2));
    brim_str_printf(out, "# %s", why);
  }
  brim_str_append_char(out, '\n');
}

static void put_head(const brim_init_facts *f, brim_str *out) {
  char text[320];
  init_describe(f, text, sizeof text);
  brim_str_append(out, "# ");
  brim_str_append(out, text);
  brim_str_append_char(out, '\n');
  if (f->class_names) {
    brim_str names;
    brim_str_init(&names);
    brim_str_append(&names, brim_tr("classes:"));
    for (int64_t i = 0; i < f->info.classes && i < 20; i++) {
      brim_str_append(&names, i ? ", " : " ");  // YAML refuses control characters even in comments
      brim_text_append_plain(&names, f->class_names[i], strlen(f->class_names[i]), NULL);
    }
    if (f->info.classes > 20) brim_str_append(&names, ", ...");
    for (char *p = names.data; *p; p++) {
      if (*p == '\n' || *p == '\r') *p = ' ';  // a folder may have any name
    }
    put_comment(out, names.data);
    brim_str_deinit(&names);
  }
  put_comment(out, brim_tr("Written by brim init as a starting point. brim config explain KEY "
                           "describes a key. brim bench --apply finds the fastest batch size, "
                           "workers and precision and writes them here."));
}

static void put_data(const brim_init_facts *f, const brim_init_choice *c, int64_t batch,
                     const char *memory, brim_str *out) {
  char line[160];
  brim_str_append(out, "\ndataset: ");
  if (f->split && !strchr(f->dataset, '(')) {
    brim_str_printf(out, "%s(split=%s)\n", f->dataset, f->split);
  } else {
    brim_str_printf(out, "%s\n", f->dataset);
  }
  brim_str_append(out, "data:\n");
  if (f->path) {
    brim_str_append(out, "  path: ");
    put_scalar(out, f->path);
    brim_str_append_char(out, '\n');
  }
  if (f->allow_external)
    put_line(out, "  allow_external: true", brim_tr("reads other files that the HDF5 file names"));
  snprintf(line, sizeof line, "  batch_size: %lld", (long long)batch);
  put_line(out, line, memory);
  if (c->val_fraction > 0) {
    snprintf(line, sizeof line, "  val_fraction: %g", c->val_fraction);
    put_line(out, line, brim_tr("no val or test split: this share is held out for validation"));
  } else if (!f->has_val && !c->unlabelled_workload) {
    brim_str_append(out, "  ");
    put_comment(out, brim_tr("too few samples to hold out some for validation; add more, then set "
                             "val_fraction: 0.2"));
  }
}

static void put_drop_last(const brim_init_facts *f, const brim_init_choice *c, int64_t batch,
                          brim_str *out) {
  double samples = (double)f->info.count * (1 - c->val_fraction);
  if (c->kind > BRIM_INIT_LARGE_IMAGES || c->unlabelled_workload || samples < (double)batch) return;
  put_line(out, "  drop_last: true", brim_tr("a short last batch would have noisy statistics"));
}

static void put_transforms(const brim_init_choice *c, brim_str *out) {
  if (!c->train[0]) return;
  brim_str_append_char(out, '\n');
  put_comment(out, c->kind == BRIM_INIT_SIGNALS
                       ? brim_tr("Cuts signals to a length that divides into tokens of 32 samples; "
                                 "other lengths make short tokens and train slowly.")
                   : c->kind == BRIM_INIT_LARGE_IMAGES
                       ? brim_tr("Images are resized to one size; training uses a random crop of "
                                 "each image every epoch.")
                       : brim_tr("Random transforms of each sample, redrawn every epoch."));
  brim_str_printf(out, "transform:\n  train: %s\n", c->train);
  if (c->val[0]) brim_str_printf(out, "  val: %s\n", c->val);
}

// Chooses the optimizer for the batch and writes the config with its comments. `memory`: the comment of the batch size;
// "" before planning.
static void init_render(const brim_init_facts *f, brim_init_choice *c, int64_t batch,
                        const char *memory, brim_str *out) {
  char line[160];
  choose_optimizer(c, batch);
  put_head(f, out);
  brim_str_append(out, "name: ");
  put_scalar(out, f->name);
  brim_str_append_char(out, '\n');
  if (c->unlabelled_workload) brim_str_printf(out, "workload: %s\n", c->unlabelled_workload->name);
  put_data(f, c, batch, memory, out);
  put_drop_last(f, c, batch, out);
  put_transforms(c, out);
  brim_str_append_char(out, '\n');
  snprintf(line, sizeof line, "model: %s", c->model);
  put_line(out, line, c->why_model);
  brim_str_printf(out, "loss: %s\noptimizer: %s\nscheduler: cosine\n\ntraining:\n", c->loss,
                  c->optimizer);
  snprintf(line, sizeof line, "  epochs: %lld", (long long)c->epochs);
  put_line(out, line, brim_tr("train longer for a better model, up to a point"));
  put_line(out, "  precision: auto",
           brim_tr("auto: 16 bits if the device is fast at it, otherwise fp32"));
  snprintf(line, sizeof line, "  warmup_epochs: %lld",
           (long long)(c->unlabelled_workload ? 10 : 2));
  put_line(out, line, NULL);
}

//------------------------------------------- command -------------------------------------------

enum { SIZES_LOOKED_AT = 256 };

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("config file to write"),
     .default_text = "NAME.yaml"},
    {.name = "force", .help = BRIM_N_("replace an existing file")},
    {.name = "dataset",
     .kind = BRIM_OPTION_STRING,
     .metavar = "COMP",
     .help = BRIM_N_("source as in a config: 'hdf5(inputs=[x])' (default: detected)")},
    {.name = "allow-external", .help = BRIM_N_("read data that an HDF5 file keeps in other files")},
    {.name = "device",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DEV",
     .help = BRIM_N_("device to plan for: auto, cpu, cuda, cuda:N or ref"),
     .default_text = "auto"},
    {0},
};

//---------------------------------- examining the data ----------------------------------

// The name of the config: the file or folder without its ending.
static void name_of(const char *path, char *out, size_t size) {
  char real[PATH_MAX];
  const char *base = path && realpath(path, real) ? brim_fs_basename(real) : "";
  if (!*base || strcmp(base, "/") == 0) base = "brim";
  snprintf(out, size, "%s", base);
  static const char *const endings[] = {".h5", ".hdf5", ".npz", ".npy", ".gz", ".yaml", NULL};
  for (const char *const *e = endings; *e; e++) {
    if (brim_str_ends(out, *e) && strlen(out) > strlen(*e)) out[strlen(out) - strlen(*e)] = '\0';
  }
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Sets height and width to the medians of a sample of the images, taken at even steps.
static void median_size(brim_source *source, brim_init_facts *f) {
  int64_t heights[SIZES_LOOKED_AT], widths[SIZES_LOOKED_AT];
  uint64_t count = source->info.count, wanted = count < SIZES_LOOKED_AT ? count : SIZES_LOOKED_AT;
  size_t n = 0;
  for (uint64_t i = 0; i < wanted; i++) {
    if (brim_source_size(source, i * (count / wanted), &heights[n], &widths[n])) continue;
    n++;
  }
  brim_status_clear();  // training reports images that cannot be read
  if (n == 0) return;
  qsort(heights, n, sizeof heights[0], by_value);
  qsort(widths, n, sizeof widths[0], by_value);
  f->height = heights[n / 2];
  f->width = widths[n / 2];
}

// The split to train on: train, else unlabeled, else the first.
static const brim_cli_split *find_split(const brim_cli_data *d) {
  static const char *const names[] = {"train", "unlabeled", NULL};
  for (const char *const *name = names; *name; name++) {
    for (size_t i = 0; i < d->split_count; i++) {
      if (strcmp(d->split[i].name, *name) == 0) return &d->split[i];
    }
  }
  return &d->split[0];
}

static brim_status find_unused(const brim_cli_data *d, brim_init_facts *f) {
  brim_str unused;
  brim_source_left left;
  brim_str_init(&unused);
  brim_status status = brim_cli_data_unused(d, &unused, &left);
  f->unused = status ? "" : brim_arena_strdup(d->arena, unused.data);
  brim_str_deinit(&unused);
  if (!status && !f->unused) return brim_fail(BRIM_ENOMEM, "out of memory");
  return status;
}

static brim_status read_facts(brim_cli_data *d, brim_init_facts *f) {
  const brim_cli_split *split = find_split(d);
  const char *asked = brim_option_string(&d->cli->parse, "dataset", NULL);
  bool chosen = brim_component_string(&d->component, "split", NULL) != NULL;
  if (!chosen && (!strcmp(split->name, "val") || !strcmp(split->name, "test"))) {
    return brim_fail(BRIM_EINVAL,
                     "%s: no train split, only '%s'; to train on '%s' add --dataset '%s(split=%s)'",
                     d->path ? d->path : d->component.name, split->name, split->name,
                     d->component.name, split->name);
  }
  f->dataset = asked ? asked : d->component.name;
  f->allow_external = brim_option_flag(&d->cli->parse, "allow-external", false);
  f->path = d->path;
  f->info = split->source->info;
  f->binary_targets = split->source->binary_targets;
  f->split = strcmp(split->name, "train") == 0 ? NULL : split->name;
  for (size_t i = 0; i < d->split_count; i++) {
    const char *name = d->split[i].name;
    f->has_val |= &d->split[i] != split && (!strcmp(name, "val") || !strcmp(name, "test"));
  }
  f->height = f->info.rank >= 2 ? f->info.dim[0] : 0;
  f->width = f->info.rank >= 2 ? f->info.dim[1] : 0;
  if (f->info.varies) median_size(split->source, f);
  BRIM_TRY(brim_cli_data_class_names(d, split, &f->class_names));
  BRIM_TRY(find_unused(d, f));
  // One class only: the path may be one folder too high, the parent of photos with photos/cat and
  // photos/dog.
  if (f->info.classes == 1 && f->class_names && !strcmp(split->source->table->name, "folder")) {
    brim_log_warn("init",
                  "%s: all images belong to one class, '%s'; if the folders in it are the classes, "
                  "run init on that folder",
                  f->path, f->class_names[0]);
  }
  return BRIM_OK;
}

//---------------------------------- planning ----------------------------------

typedef struct opened {
  brim_config *config;
  brim_device *device;
  brim_work *work;
} opened;

static void opened_close(opened *o) {
  brim_work_close(o->work);
  brim_device_close(o->device);
  brim_config_close(o->config);
}

static brim_status load_text(const brim_cli *cli, const char *text, brim_config **out) {
  char device[128];
  const char *overrides[1] = {device};
  const char *asked = brim_option_string(&cli->parse, "device", NULL);
  bool ref = asked && strcmp(asked, "ref") == 0;
  snprintf(device, sizeof device, "%s=%s", ref ? "backend" : "device", asked ? asked : "auto");
  brim_config_options how = {.text = text,
                             .text_name = "brim init",
                             .overrides = overrides,
                             .override_count = asked ? 1 : 0,
                             .mode = BRIM_CONFIG_RUN};
  return brim_config_load(&how, out);
}

static brim_status open_device(const brim_cli *cli, brim_registry *registry, const char *text,
                               opened *o) {
  const char *spec;
  brim_device_options how;
  BRIM_TRY(load_text(cli, text, &o->config));
  BRIM_TRY(brim_work_device_spec(o->config, &spec));
  BRIM_TRY(brim_work_device_options(o->config, &how));
  brim_status status = brim_device_open(registry, spec, &how, &o->device);
  return status == BRIM_ENOENT || status == BRIM_EABI ? BRIM_EDEVICE : status;
}

// Halves the batch until it fits into four fifths of the free memory.
static brim_status fit_batch(const opened *o, const brim_plan *plan, int64_t *batch) {
  uint64_t free_bytes = 0, total = 0;
  BRIM_TRY(brim_device_memory(o->device, &free_bytes, &total));
  brim_setting setting = brim_work_setting(o->work);
  uint64_t limit = free_bytes / 5 * 4;
  brim_status status = brim_work_check_fit(o->work, &setting, plan, limit);
  if (status != BRIM_EOOM) return status;
  int64_t largest = brim_work_largest_batch(o->work, &setting, limit, NULL);
  if (largest < 1) return status;  // the detail says what does not fit
  brim_status_clear();
  while (*batch > largest) *batch /= 2;
  return BRIM_OK;
}

static brim_status plan_batch(const brim_cli_data *d, opened *o, int64_t *batch, char *memory,
                              size_t size) {
  brim_work_context context = {.registry = d->registry, .device = o->device};
  BRIM_TRY(brim_work_open(&context, o->config, &o->work));
  brim_setting setting = brim_work_setting(o->work);
  brim_plan plan;
  BRIM_TRY(o->work->table->plan(o->work->state, &setting, &plan));
  BRIM_TRY(fit_batch(o, &plan, batch));
  int knob = brim_work_knob_as(o->work, BRIM_ROLE_BATCH);
  if (knob >= 0) setting.value[knob] = *batch;
  BRIM_TRY(o->work->table->plan(o->work->state, &setting, &plan));
  char bytes[32];
  brim_format_bytes(plan.bytes[BRIM_PLACE_DEVICE], bytes);
  // The comment names the batch size, so that a later edit of the key removes it.
  snprintf(memory, size, brim_tr("a batch of %lld needs %s on %s"), (long long)*batch, bytes,
           o->device->info.name);
  return BRIM_OK;
}

// Chooses for the device, renders the config, loads and plans it, then renders it again with the batch that fits.
static brim_status compose(brim_cli_data *d, brim_init_facts *f, brim_init_choice *c,
                           brim_str *text, int64_t *batch) {
  opened o = {0};
  char memory[224] = "";
  brim_status status = open_device(d->cli, d->registry, "seed: 0\n", &o);
  if (!status) {
    f->gpu = o.device->info.kind == BRIM_DEVICE_GPU;
    status = init_choose(f, c);
  }
  if (!status) {
    *batch = c->batch;
    init_render(f, c, *batch, "", text);
    status = brim_str_status(text);
  }
  brim_config_close(o.config);
  o.config = NULL;
  if (!status) status = load_text(d->cli, text->data, &o.config);
  if (!status) status = plan_batch(d, &o, batch, memory, sizeof memory);
  opened_close(&o);
  if (status) return status;
  brim_str_clear(text);
  brim_utf8_trim(memory);
  init_render(f, c, *batch, memory, text);
  return brim_str_status(text);
}

//---------------------------------- output ----------------------------------

static brim_status tell_json(brim_cli *cli, const brim_init_facts *f, const brim_init_choice *c,
                             const char *output, int64_t batch) {
  json_t *e = json_object();
  brim_status status = brim_json_put(e, "file", json_string(output));
  if (!status) status = brim_json_put(e, "dataset", json_string(f->dataset));
  if (!status) status = brim_json_put(e, "samples", json_integer((json_int_t)f->info.count));
  if (!status) status = brim_json_put(e, "classes", json_integer((json_int_t)f->info.classes));
  if (!status) status = brim_json_put(e, "model", json_string(c->model));
  if (!status) status = brim_json_put(e, "batch_size", json_integer((json_int_t)batch));
  json_t *unused = status ? NULL : json_string(f->unused);
  if (!status) status = brim_json_put(e, "unused", unused ? unused : json_null());
  return brim_cli_finish_event(cli, "init", e, status);
}

static void put_quoted(brim_str *out, const char *word) {
  static const char safe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@%";
  if (*word && strspn(word, safe) == strlen(word)) {
    brim_str_append(out, word);
    return;
  }
  brim_str_append_char(out, '\'');
  for (; *word; word++) {
    if (*word == '\'') {
      brim_str_append(out, "'\\''");
    } else {
      brim_str_append_char(out, *word);
    }
  }
  brim_str_append_char(out, '\'');
}

static void put_next(brim_str *out, const char *command, const char *file, const char *why) {
  brim_str_printf(out, "  brim %s ", command);
  put_quoted(out, file);
  brim_str_printf(out, "   # %s\n", why);
}

static brim_status tell(brim_cli *cli, const brim_init_facts *f, const brim_init_choice *c,
                        const char *output, int64_t batch) {
  if (cli->json) return tell_json(cli, f, c, output, batch);
  brim_str text;
  brim_str_init(&text);
  char what[320];
  init_describe(f, what, sizeof what);
  brim_utf8_trim(what);
  brim_str_printf(&text, brim_tr("wrote %s: %s on %s\n"), output, c->model, what);
  if (f->unused[0]) brim_str_printf(&text, brim_tr("not used: %s\n"), f->unused);
  if (!cli->quiet) {
    brim_str_printf(&text, "\n%s\n", brim_tr("Next:"));
    put_next(&text, "bench", output, brim_tr("find the fastest setting"));
    put_next(&text, "train", output, brim_tr("train"));
    brim_str_append(&text, "  brim sweep ");
    put_quoted(&text, output);
    brim_str_printf(&text, " lr='[0.01, 0.001]'   # %s\n", brim_tr("compare settings"));
  }
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

//---------------------------------- the command ----------------------------------

static brim_status write_config(brim_cli *cli, brim_cli_data *d, brim_init_facts *f,
                                const char *output) {
  brim_init_choice choice;
  int64_t batch = 0;
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_source_open_failed(brim_cli_data_open(d));
  if (!status) status = read_facts(d, f);
  brim_cli_log_errors(cli);  // warnings about the data were given when they were opened
  if (!status) status = compose(d, f, &choice, &text, &batch);
  brim_cli_log(cli);
  if (!status) status = brim_fs_write(output, text.data, text.len);
  if (!status) status = tell(cli, f, &choice, output, batch);
  brim_str_deinit(&text);
  return status;
}

static brim_status run(brim_cli *cli) {
  if (cli->parse.positional_count > 1) {
    return brim_cli_usage(cli, BRIM_N_("init takes one path: the file or folder of the data"));
  }
  const char *dataset = brim_option_string(&cli->parse, "dataset", NULL);
  const char *path = cli->parse.positional_count ? cli->parse.positional[0] : NULL;
  if (!path && !dataset) path = ".";
  char name[256], file[272];
  name_of(path, name, sizeof name);
  snprintf(file, sizeof file, "%s.yaml", name);
  const char *output = brim_option_string(&cli->parse, "output", file);
  if (brim_fs_is_dir(output)) {
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", output);
  }
  BRIM_TRY(brim_cli_check_replace(cli, output, NULL));
  BRIM_TRY(brim_fs_check_target(output));
  brim_init_facts facts = {.name = name};
  brim_cli_data d;
  BRIM_TRY(brim_source_open_failed(brim_cli_data_init(cli, path, &d)));
  brim_status status = write_config(cli, &d, &facts, output);
  brim_cli_data_deinit(&d);
  return status;
}

const brim_cli_command brim_cli_init = {
    .name = "init",
    .summary = BRIM_N_("write a config for your own data"),
    .usage = "[PATH] [--output FILE] [--force]",
    .about = BRIM_N_("Writes a config for the data at PATH (default: the current folder). The data "
                     "is an HDF5 file, a folder of images, or the files of MNIST, CIFAR or STL-10. "
                     "The config has a model, transforms, a batch size that fits in memory, and "
                     "comments. You can train with it as it is, or edit it."),
    .examples = BRIM_N_("a config for a folder of images\n"
                        "brim init photos\n"
                        "for an HDF5 file, under another name\n"
                        "brim init signals.h5 --output mine.yaml\n"),
    .options = options,
    .run = run,
};
