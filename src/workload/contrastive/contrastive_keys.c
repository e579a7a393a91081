// Config keys of contrastive learning, and the models it brings.
#include "workload/contrastive/contrastive_int.h"

static const brim_config_row keys[] = {
    BRIM_KEY_CHOICE(
        "contrastive.accumulation", "auto", BRIM_KEY_NO_NAMES,
        BRIM_KEY_NAMES("plain", "exact", "auto"), BRIM_CONFIG_SAVED_OWN,
        "which negatives to use: the micro-batch (plain), the whole effective batch in two "
        "passes (exact), or chosen by cost (auto)"),
    BRIM_KEY_FLOAT("contrastive.temperature", NULL, 1e-6, 100, BRIM_KEY_NAMES("temperature"),
                   BRIM_CONFIG_SAVED_OWN, "temperature of NT-Xent (default: the loss's own)"),
    BRIM_KEY_INT("contrastive.views", "2", 2, 16, BRIM_KEY_NO_NAMES, 0,
                 "augmented copies of a sample"),
    BRIM_KEY_INT("contrastive.projection_dim", "128", 1, 65536, BRIM_KEY_NAMES("projection_dim"), 0,
                 "width of the projection"),
    BRIM_KEY_INT("contrastive.knn_k", "200", 1, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "number of neighbours in the kNN evaluation"),
    BRIM_KEY_FLOAT("contrastive.knn_temperature", "0.1", 1e-6, 100, BRIM_KEY_NO_NAMES,
                   BRIM_CONFIG_SAVED_OWN,
                   "temperature that weights the neighbours in the kNN evaluation"),
    BRIM_KEY_INT("contrastive.probe_epochs", "100", 0, 1e6, BRIM_KEY_NO_NAMES,
                 BRIM_CONFIG_SAVED_OWN, "epochs of the linear probe"),
};

static const brim_config_link links[] = {
    {"loss", "temperature", "contrastive.temperature", false},
    {"model", "dim", "contrastive.projection_dim", false},
};

static const brim_config_arg simclr_args[] = {
    BRIM_ARG_COMPONENT("backbone", "resnet18", "model", "model used as the encoder"),
    BRIM_ARG_INT("hidden", "512", 1, 65536, "width of the projection head"),
    BRIM_ARG_INT("dim", "128", 1, 65536, "width of the projection"),
    BRIM_ARG_INT("depth", "1", 1, 16, "hidden layers of the head"),
    BRIM_ARG_BOOL("batch_norm", "false", "batch norm after each hidden layer of the head"),
};

static const brim_config_component_row components[] = {
    BRIM_COMPONENT("model", "simclr", simclr_args, "encoder with a projection head"),
};

const brim_config_section brim_contrastive_section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .links = links,
    .link_count = sizeof links / sizeof *links,
    .components = components,
    .component_count = sizeof components / sizeof *components,
};
