// Inside the workload room: the loss of a network that learns from data.
#ifndef BRIM_WORKLOAD_LOSS_H_
#define BRIM_WORKLOAD_LOSS_H_

#include "config/config.h"
#include "data/data.h"

// A loss that the config does not name, with what its keys say of it: `loss` points to `argument`.
typedef struct brim_usual {
  brim_component loss;
  brim_argument argument;
} brim_usual;
void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out);

// The loss that the config names, or `usual`, the one for such targets and so many views of a sample;
// BRIM_EINVAL where views, model or targets do not suit it.
brim_status brim_work_choose_loss(const brim_config *config, const brim_source *source,
                                  int32_t views, brim_usual *usual, const brim_component **out);

// Targets are labels that are there or not, each on its own: the loss is bce.
bool brim_work_is_multi_label(const brim_component *loss);

#endif  // BRIM_WORKLOAD_LOSS_H_
