// What suits a data set: model, transforms, optimiser, batch and epochs to start from, and the config
// that says so. Nothing is opened here.
#include "base/base_text.h"
#include "cli/config/cli_init.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload.h"

enum {
  SMALL_SIDE = 64,       // up to here images are taken whole, and resnets have their stem for them
  SIGNAL_CHANNELS = 16,  // a float matrix with more columns may be a picture
  IMAGE_STRETCH = 2,     // and is one if neither side is so many times the other
  MIN_BATCH = 16,        // below it the statistics of a batch are noise
  MIN_STEPS = 10,        // of an epoch, where the set is small
  MIN_SHARED = 10,       // of fewer samples none is kept for validation
};

//---------------------------------- what it is ----------------------------------

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

// The workload that learns from images alone; NULL = there is none.
static const brim_workload_table *without_targets(void) {
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
    if (!targets) out->unlabelled = without_targets();
  } else {
    out->kind = info->rank == 2 ? BRIM_INIT_SIGNALS : BRIM_INIT_VECTORS;
  }
  if (!targets && !out->unlabelled) {
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

// The side of the window that large images are cut to: what they have, up to 224.
static int64_t window_of(const brim_init_facts *f) {
  static const int64_t sides[] = {224, 192, 160, 128, 96, 64};
  int64_t least = least_side(f);
  for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
    if (least >= sides[i]) return sides[i];
  }
  return least < 32 ? 32 : least / 8 * 8;
}

static void choose_views(const brim_init_facts *f, brim_init_choice *c) {
  const bool small = c->kind == BRIM_INIT_SMALL_IMAGES;
  const int64_t side = window_of(f);
  const brim_work_images images = {.height = small ? f->height : side,
                                   .width = small ? f->width : side,
                                   .colour = channels_of(&f->info) == 3,
                                   .gpu = f->gpu};
  brim_work_beginning begin = {0};
  c->unlabelled->begin(&images, &begin);
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
    // Grey images are often digits, letters or scans, that mirrored are something else.
    snprintf(c->train, sizeof c->train, "random_crop(size=%s, padding=%lld)%s", size,
             (long long)(padding > 0 ? padding : 1), colour ? " | random_flip" : "");
  } else {
    long long side = window_of(f);
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

// The transformer's tokens are a divisor of the length, up to 32 samples each. A length without a
// good one, such as a prime, is cut to the next that has one.
static void choose_signals(const brim_init_facts *f, brim_init_choice *c) {
  enum { LONG = 128, MOST_TOKEN = 32, LEAST_TOKEN = 8 };
  int64_t length = f->info.dim[0];
  bool good = length < LONG;
  for (int64_t d = LEAST_TOKEN; d <= MOST_TOKEN && !good; d++) good = length % d == 0;
  snprintf(c->model, sizeof c->model, "transformer(depth=4, hidden=64, heads=4)");
  snprintf(c->why_model, sizeof c->why_model, "%s",
           brim_tr("patch=N sets the signal samples per token"));
  if (good) return;
  long long cut = (long long)(length - length % MOST_TOKEN), channels = (long long)f->info.dim[1];
  snprintf(c->train, sizeof c->train, "center_crop(size=(%lld, %lld))", cut, channels);
  snprintf(c->val, sizeof c->val, "center_crop(size=(%lld, %lld))", cut, channels);
}

//---------------------------------- the rest ----------------------------------

// The largest power of two up to `want` that leaves MIN_STEPS steps in an epoch.
static int64_t batch_for(const brim_init_facts *f, const brim_init_choice *c) {
  int64_t batch = c->kind == BRIM_INIT_LARGE_IMAGES                     ? (f->gpu ? 128 : 32)
                  : c->kind == BRIM_INIT_SMALL_IMAGES && !c->unlabelled ? (f->gpu ? 256 : 128)
                                                                        : (f->gpu ? 512 : 128);
  double samples = (double)f->info.count * (1 - c->val_fraction);
  while (batch > MIN_BATCH && samples / (double)batch < MIN_STEPS) batch /= 2;
  while (batch > 1 && (double)batch > samples) batch /= 2;
  return batch;
}

static int64_t epochs_for(const brim_init_facts *f, const brim_init_choice *c) {
  if (c->unlabelled) return c->epochs;
  return f->info.count < 2000 ? 60 : f->info.count < 20000 ? 40 : 24;
}

brim_status brim_cli_init_choose(const brim_init_facts *f, brim_init_choice *c) {
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
  if (c->unlabelled) {
    choose_views(f, c);
  } else if (c->kind <= BRIM_INIT_LARGE_IMAGES) {
    choose_images(f, c);
  } else if (c->kind == BRIM_INIT_VECTORS) {
    snprintf(c->model, sizeof c->model, "mlp(depth=3, hidden=256, dropout=0.1)");
    snprintf(c->why_model, sizeof c->why_model, "%s",
             brim_tr("wider: hidden=1024; resmlp for more depth"));
  } else {
    choose_signals(f, c);
  }
  if (!c->unlabelled && !f->has_val && f->info.count >= MIN_SHARED) {
    c->val_fraction = f->info.count < 1000 ? 0.2 : 0.1;
  }
  c->batch = batch_for(f, c);
  c->epochs = epochs_for(f, c);
  return BRIM_OK;
}

// Rates scale with the batch for sgd; adamw keeps its own.
static void choose_optimizer(brim_init_choice *c, int64_t batch) {
  if (c->unlabelled) return;  // its workload says
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

void brim_cli_init_describe(const brim_init_facts *f, char *out, size_t size) {
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

// A YAML scalar: plain where that is sure to be read back as the same text.
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

// A line with what it means behind it, in one column.
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
  brim_cli_init_describe(f, text, sizeof text);
  brim_str_append(out, "# ");
  brim_str_append(out, text);
  brim_str_append_char(out, '\n');
  if (f->class_names) {
    brim_str names;
    brim_str_init(&names);
    brim_str_append(&names, brim_tr("classes:"));
    for (int64_t i = 0; i < f->info.classes && i < 20; i++) {
      brim_str_append(&names, i ? ", " : " ");  // YAML takes no control characters, not even here
      brim_text_append_plain(&names, f->class_names[i], strlen(f->class_names[i]), NULL);
    }
    if (f->info.classes > 20) brim_str_append(&names, ", ...");
    for (char *p = names.data; *p; p++) {
      if (*p == '\n' || *p == '\r') *p = ' ';  // a folder may be called anything
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
  } else if (!f->has_val && !c->unlabelled) {
    brim_str_append(out, "  ");
    put_comment(out, brim_tr("too few samples to hold out some for validation; add more, then set "
                             "val_fraction: 0.2"));
  }
}

static void put_drop_last(const brim_init_facts *f, const brim_init_choice *c, int64_t batch,
                          brim_str *out) {
  double samples = (double)f->info.count * (1 - c->val_fraction);
  if (c->kind > BRIM_INIT_LARGE_IMAGES || c->unlabelled || samples < (double)batch) return;
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

void brim_cli_init_render(const brim_init_facts *f, brim_init_choice *c, int64_t batch,
                          const char *memory, brim_str *out) {
  char line[160];
  choose_optimizer(c, batch);
  put_head(f, out);
  brim_str_append(out, "name: ");
  put_scalar(out, f->name);
  brim_str_append_char(out, '\n');
  if (c->unlabelled) brim_str_printf(out, "workload: %s\n", c->unlabelled->name);
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
  snprintf(line, sizeof line, "  warmup_epochs: %lld", (long long)(c->unlabelled ? 10 : 2));
  put_line(out, line, NULL);
}
