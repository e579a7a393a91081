// The help page of contrastive training.
#include "workload/contrastive/contrastive_int.h"

const brim_work_options brim_contrastive_options = {
    .command = "eval",
    .about =
        BRIM_N_("Contrastive training evaluates features by nearest neighbours (kNN) and a linear "
                "probe, in the training precision unless you give --precision."),
};

static const char *const page[] = {
    BRIM_N_(
        "Contrastive training learns features without labels (SimCLR). The network learns similar "
        "features for two augmented views of one image, and different features for different "
        "images."),
    "  brim train contrastive --data-path stl10_binary\n"
    "  brim train cifar10-simclr --data-path cifar10\n\n",
    BRIM_N_(
        "A config of your own needs these keys; brim init writes one for images without labels:"),
    "  workload: contrastive\n"
    "  model: simclr(backbone=resnet18, hidden=512, dim=128)\n"
    "  transform:\n"
    "    train: views | random_resized_crop(size=96)\n\n",
    BRIM_N_(
        "Labels serve only to evaluate the features: by nearest neighbours (knn) during training, "
        "and by a linear classifier (probe) at the end. brim predict --features writes the "
        "features "
        "for other programs. brim train model=resnet18 --weights MODEL trains the encoder further "
        "with labels.")};
const brim_work_topic brim_contrastive_topic = {BRIM_N_("learning features without labels"), page,
                                                sizeof page / sizeof *page};
