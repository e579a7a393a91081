// Optimisers by component name: arguments to op attributes. Defaults are PyTorch's.
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
  BRIM_TRY(
      brim_engine_read_number(c, "weight_decay", row->weight_decay, INFINITY, &attr->weight_decay));
  if (row->kind == BRIM_OPTIMIZER_SGD) {
    BRIM_TRY(brim_engine_read_number(c, "momentum", 0, 1, &attr->momentum));
    attr->nesterov = brim_component_bool(c, "nesterov", false);
    if (attr->nesterov && attr->momentum == 0) {
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "nesterov needs a momentum above 0");
    }
    return BRIM_OK;
  }
  double beta1 = 0.9, beta2 = 0.999;
  BRIM_TRY(read_betas(c, &beta1, &beta2));
  BRIM_TRY(brim_engine_read_number(c, "beta1", beta1, 1, &attr->beta1));
  BRIM_TRY(brim_engine_read_number(c, "beta2", beta2, 1, &attr->beta2));
  return brim_engine_read_number(c, "eps", 1e-8, INFINITY, &attr->eps);
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
