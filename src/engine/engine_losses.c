// Losses by component name. A row says all that the engine asks of one: its op, what it compares
// the outputs with, how many rows a sample has, and its arguments. Defaults are PyTorch's.
#include <math.h>
#include <string.h>

#include "engine/engine_int.h"

//---------------------------------- arguments ----------------------------------

static brim_status read_smoothing(const brim_component *c, brim_op_attr *attr) {
  double smoothing = brim_component_float(c, "label_smoothing", 0);
  attr->label_smoothing = (float)smoothing;
  if (smoothing >= 0 && smoothing <= 1) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                      "label_smoothing is %g, expected 0 to 1", smoothing);
}

static brim_status read_temperature(const brim_component *c, brim_op_attr *attr) {
  BRIM_TRY(brim_engine_read_number(c, "temperature", 0.5, INFINITY, &attr->temperature));
  if (attr->temperature > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "temperature is 0, expected above 0");
}

//---------------------------------- the table ----------------------------------

enum {
  SUMS = 1 << BRIM_METRIC_LOSS | 1 << BRIM_METRIC_ROWS | 1 << BRIM_METRIC_BAD,
  COUNTS = SUMS | 1 << BRIM_METRIC_CORRECT
};

static const brim_loss_row losses[] = {
    {.name = "cross_entropy",
     .op = BRIM_OP_XENT,
     .target = BRIM_LOSS_LABELS,
     .views = 1,
     .metrics = COUNTS,
     .args = {"label_smoothing"},
     .read = read_smoothing},
    {.name = "mse", .op = BRIM_OP_MSE, .target = BRIM_LOSS_VALUES, .views = 1, .metrics = SUMS},
    {.name = "bce", .op = BRIM_OP_BCE, .target = BRIM_LOSS_VALUES, .views = 1, .metrics = COUNTS},
    {.name = "ntxent",
     .op = BRIM_OP_NTXENT,
     .target = BRIM_LOSS_NONE,
     .views = 2,
     .any_width = true,
     .metrics = COUNTS,
     .args = {"temperature"},
     .read = read_temperature},
    {.name = NULL},
};

// The engine's own loss for such data: what a message proposes.
static const char *usual(brim_loss_target target) {
  for (const brim_loss_row *row = losses; row->name; row++) {
    if (row->target == target) return row->name;
  }
  return "?";
}

static brim_status check_target(const brim_loss_row *row, const brim_component *c, bool labels) {
  if (row->target == BRIM_LOSS_LABELS && !labels) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "%s needs labels, but the data has float targets; use %s, or set "
                        "dataset: hdf5(classes=N) if they are class numbers",
                        c->name, usual(BRIM_LOSS_VALUES));
  }
  if (row->target == BRIM_LOSS_VALUES && labels) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "%s needs float targets, but the data has labels; use %s", c->name,
                        usual(BRIM_LOSS_LABELS));
  }
  return BRIM_OK;
}

static brim_status check_views(const brim_loss_row *row, int64_t views) {
  if (row->views == views) return BRIM_OK;
  if (row->views == 2) {
    return brim_fail(BRIM_EINVAL, "%s compares two views of each sample, but the data has one",
                     row->name);
  }
  return brim_fail(BRIM_EINVAL, "training on two views of each sample needs the loss %s",
                   usual(BRIM_LOSS_NONE));
}

static const brim_loss_row *find(const brim_net_spec *spec, const char *names[64]) {
  const brim_loss_row *const tables[] = {spec->losses, losses};
  size_t count = 0;
  for (int t = 0; t < 2; t++) {
    for (const brim_loss_row *row = tables[t]; row && row->name; row++) {
      if (strcmp(spec->loss->name, row->name) == 0) return row;
      if (count < 63) names[count++] = row->name;
    }
  }
  return NULL;
}

brim_status brim_loss_find(const brim_net_spec *spec, brim_loss *out) {
  const brim_component *c = spec->loss;
  const char *names[64] = {0};
  memset(out, 0, sizeof *out);
  if (spec->external_loss) return BRIM_OK;
  const brim_loss_row *row = find(spec, names);
  if (!row) return brim_engine_fail_unknown(c, "loss", c->name, names);
  BRIM_TRY(brim_engine_check_args(c, row->args));
  BRIM_TRY(check_target(row, c, spec->classes > 0));
  if (row->read) BRIM_TRY(row->read(c, &out->attr));
  out->row = row;
  return check_views(row, spec->views > 1 ? spec->views : 1);
}

int32_t brim_loss_target_tensor(brim_graph *g, const brim_loss_row *row, int64_t rows,
                                int64_t width) {
  const int64_t dim[] = {rows, width};
  switch (row->target) {
    case BRIM_LOSS_LABELS:
      return brim_graph_tensor(g, "target", BRIM_TENSOR_TARGET, BRIM_I32, 1, dim);
    case BRIM_LOSS_VALUES:
      return brim_graph_tensor(g, "target", BRIM_TENSOR_TARGET, BRIM_F32, 2, dim);
    case BRIM_LOSS_NONE:
      break;
  }
  return -1;
}
