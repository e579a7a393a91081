// Optimisers and losses by component name: arguments to op attributes. Defaults are PyTorch's.
#include <math.h>
#include <string.h>

#include "engine/engine_int.h"

typedef struct optimizer_row {
  const char *name;
  brim_optimizer_kind kind;
  double weight_decay;  // PyTorch's default
  const char *args[8];
} optimizer_row;

static const optimizer_row optimizers[] = {
    {"sgd", BRIM_OPTIMIZER_SGD, 0, {"lr", "momentum", "nesterov", "weight_decay"}},
    {"adam", BRIM_OPTIMIZER_ADAM, 0, {"lr", "betas", "beta1", "beta2", "eps", "weight_decay"}},
    {"adamw", BRIM_OPTIMIZER_ADAMW, 0.01, {"lr", "betas", "beta1", "beta2", "eps", "weight_decay"}},
};

typedef struct loss_row {
  const char *name;
  brim_op op;
  bool classes;  // needs labels
  const char *args[2];
} loss_row;

static const loss_row losses[] = {
    {"cross_entropy", BRIM_OP_XENT, true, {"label_smoothing"}},
    {"mse", BRIM_OP_MSE, false, {NULL}},
    {"ntxent", BRIM_OP_NTXENT, false, {"temperature"}},
};

// A number in [low, high), else a message that names the argument.
static brim_status read_number(const brim_component *c, const char *name, double fallback,
                               double high, float *out) {
  double value = brim_component_float(c, name, fallback);
  *out = (float)value;
  if (value >= 0 && (double)*out < high) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s is %g, expected 0 <= %s < %g",
                      name, value, name, high);
}

static brim_status read_betas(const brim_component *c, double *beta1, double *beta2) {
  const brim_value *betas = brim_component_arg(c, "betas");
  if (!betas) return BRIM_OK;
  bool good = betas->kind == BRIM_VALUE_LIST && betas->count == 2;
  for (size_t i = 0; good && i < 2; i++) {
    good = betas->items[i].kind == BRIM_VALUE_FLOAT || betas->items[i].kind == BRIM_VALUE_INT;
  }
  if (!good) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "betas must be two numbers: betas=(0.9, 0.999)");
  }
  *beta1 = betas->items[0].number;
  *beta2 = betas->items[1].number;
  return BRIM_OK;
}

static brim_status read_optimizer(const optimizer_row *row, const brim_component *c,
                                  brim_op_attr *attr) {
  BRIM_TRY(brim_engine_check_args(c, row->args));
  memset(attr, 0, sizeof *attr);
  attr->optimizer = row->kind;
  BRIM_TRY(read_number(c, "weight_decay", row->weight_decay, INFINITY, &attr->weight_decay));
  if (row->kind == BRIM_OPTIMIZER_SGD) {
    BRIM_TRY(read_number(c, "momentum", 0, 1, &attr->momentum));
    attr->nesterov = brim_component_bool(c, "nesterov", false);
    if (attr->nesterov && attr->momentum == 0) {
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "nesterov needs a momentum above 0");
    }
    return BRIM_OK;
  }
  double beta1 = 0.9, beta2 = 0.999;
  BRIM_TRY(read_betas(c, &beta1, &beta2));
  BRIM_TRY(read_number(c, "beta1", beta1, 1, &attr->beta1));
  BRIM_TRY(read_number(c, "beta2", beta2, 1, &attr->beta2));
  return read_number(c, "eps", 1e-8, INFINITY, &attr->eps);
}

brim_status brim_optimizer_attr(const brim_component *c, brim_op_attr *attr) {
  enum { COUNT = sizeof optimizers / sizeof optimizers[0] };
  const char *names[COUNT + 1] = {0};
  for (int i = 0; i < COUNT; i++) {
    names[i] = optimizers[i].name;
    if (strcmp(c->name, names[i]) == 0) return read_optimizer(&optimizers[i], c, attr);
  }
  return brim_engine_fail_unknown(c, "optimizer", c->name, names);
}

int brim_optimizer_slots(const brim_op_attr *attr) {
  if (attr->optimizer != BRIM_OPTIMIZER_SGD) return 2;
  return attr->momentum > 0 ? 1 : 0;
}

brim_status brim_loss_attr(const brim_component *c, bool labels, brim_op *op, brim_op_attr *attr) {
  enum { COUNT = sizeof losses / sizeof losses[0] };
  const char *names[COUNT + 1] = {0};
  for (int i = 0; i < COUNT; i++) {
    names[i] = losses[i].name;
    if (strcmp(c->name, names[i]) != 0) continue;
    BRIM_TRY(brim_engine_check_args(c, losses[i].args));
    if (losses[i].classes && !labels) {
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "%s needs labels, but the data has float targets; use mse, or set "
                          "dataset: hdf5(classes=N) if they are class numbers",
                          c->name);
    }
    if (losses[i].op == BRIM_OP_MSE && labels) {
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "%s needs float targets, but the data has labels; use cross_entropy",
                          c->name);
    }
    memset(attr, 0, sizeof *attr);
    *op = losses[i].op;
    if (losses[i].op == BRIM_OP_NTXENT) {
      BRIM_TRY(read_number(c, "temperature", 0.5, INFINITY, &attr->temperature));
      if (attr->temperature > 0) return BRIM_OK;
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "temperature is 0, expected above 0");
    }
    double smoothing = brim_component_float(c, "label_smoothing", 0);
    attr->label_smoothing = (float)smoothing;
    if (smoothing >= 0 && smoothing <= 1) return BRIM_OK;
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "label_smoothing is %g, expected 0 to 1", smoothing);
  }
  return brim_engine_fail_unknown(c, "loss", c->name, names);
}
