// What `brim init` writes for images without labels.
#include <stdio.h>

#include "workload/contrastive/contrastive_int.h"

static const char in_colour[] =
    " | color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, p=0.8)"
    " | random_grayscale(p=0.2) | gaussian_blur(kernel=9, sigma=(0.1, 2.0), p=0.5)";

void brim_contrastive_begin(const brim_work_images *images, brim_work_beginning *out) {
  char size[48];
  if (images->height == images->width) {
    snprintf(size, sizeof size, "%lld", (long long)images->height);
  } else {
    snprintf(size, sizeof size, "(%lld, %lld)", (long long)images->height,
             (long long)images->width);
  }
  snprintf(out->train, sizeof out->train,
           "views | random_resized_crop(size=%s, scale=(0.2, 1.0)) | random_flip%s", size,
           images->colour ? in_colour : "");
  snprintf(out->model, sizeof out->model, "simclr(backbone=resnet18%s, hidden=512, dim=128)",
           images->gpu ? "" : "(width=16)");
  snprintf(out->loss, sizeof out->loss, "ntxent(temperature=0.5)");
  snprintf(out->optimizer, sizeof out->optimizer, "adamw(lr=1e-3, weight_decay=1e-4)");
  out->epochs = 100;
  out->why = BRIM_N_("no labels: trains two views of each image to be alike (SimCLR)");
}
