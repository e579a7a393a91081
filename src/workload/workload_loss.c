// The loss of a network that learns from data: the one the config names, or the one for such targets.
#include "workload/workload_loss.h"

#include <string.h>

static brim_status check_views(const brim_component *loss, int32_t views) {
  bool pairs = strcmp(loss->name, "ntxent") == 0;
  if (pairs && views != 2) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "loss ntxent compares two views of each sample, but transform makes %d; "
                        "write transform: views | random_resized_crop(size=96) | ...",
                        (int)views);
  }
  if (!pairs && views > 1) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "transform makes %d views of each sample, but loss %s takes one; use loss "
                        "ntxent, or remove views",
                        (int)views, loss->name);
  }
  return BRIM_OK;
}

// Of a loss the argument that a key gives too, as config_links.c has it for one that is written down.
static const struct {
  const char *loss, *argument, *key;
} loss_keys[] = {{"ntxent", "temperature", "contrastive.temperature"},
                 {"cross_entropy", "label_smoothing", "training.label_smoothing"}};

void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out) {
  memset(out, 0, sizeof *out);
  out->loss.name = name;
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 || !brim_config_is_set(config, loss_keys[i].key)) {
      continue;
    }
    double number = brim_config_float(config, loss_keys[i].key);
    out->argument = (brim_argument){.name = loss_keys[i].argument,
                                    .value = {.kind = BRIM_VALUE_FLOAT, .number = number}};
    out->loss.args = &out->argument;
    out->loss.arg_count = 1;
  }
}

static const brim_component *usual_loss(const brim_config *config, const brim_source *source,
                                        int32_t views, brim_usual *usual) {
  const brim_source_info *info = &source->info;
  const char *name = views == 2               ? "ntxent"
                     : info->classes > 0      ? "cross_entropy"
                     : source->binary_targets ? "bce"
                                              : "mse";
  if (views != 2 && info->classes == 0 && source->binary_targets) {
    brim_log_info(
        "workload",
        "all targets are 0 or 1, %lld per sample: brim trains %lld independent labels with "
        "loss=bce; loss=mse makes it a regression",
        (long long)info->target_dim, (long long)info->target_dim);
  }
  brim_usual_loss(config, name, usual);
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 && brim_config_is_asked(config, loss_keys[i].key)) {
      brim_log_warn("workload", "'%s' has no effect on '%s'", loss_keys[i].key, name);
    }
  }
  return &usual->loss;
}

// A projection is compared, it predicts nothing.
static brim_status check_model(const brim_config *config, int32_t views) {
  const brim_component *model = brim_config_component(config, "model", NULL);
  if (views > 1 || !model || strcmp(model->name, "simclr") != 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, model->file, model->line, model->col,
                      "model simclr trains on two views without labels; write workload: "
                      "contrastive and transform: views | random_resized_crop(size=96) | ...; to "
                      "train on labels, use its backbone as the model");
}

bool brim_work_is_multi_label(const brim_component *loss) {
  return loss && strcmp(loss->name, "bce") == 0;
}

brim_status brim_work_choose_loss(const brim_config *config, const brim_source *source,
                                  int32_t views, brim_usual *usual, const brim_component **out) {
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  if (!loss) loss = usual_loss(config, source, views, usual);
  *out = loss;
  BRIM_TRY(check_views(loss, views));
  BRIM_TRY(check_model(config, views));
  if (views > 1 || source->info.classes > 0 || source->info.target_dim > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                      "the training set has no %s, which loss %s needs; use a labelled split, or "
                      "loss ntxent with transform: views | ...",
                      strcmp(loss->name, "cross_entropy") == 0 ? "labels" : "targets", loss->name);
}
