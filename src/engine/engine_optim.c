// Optimizers and losses by component name, with PyTorch's defaults, and learning-rate schedules. The row of a loss
// tells the engine everything about it: op, targets, rows of a sample, arguments. Schedules are pure functions of
// the step; a linear warm-up may precede each.
#include <math.h>
#include <string.h>

#include "engine/engine_int.h"

// Reads a number in [0, high); fails with a message that names the argument.
static brim_status engine_read_number(const brim_component *c, const char *name, double fallback,
                                      double high, float *out) {
  double value = brim_component_float(c, name, fallback);
  *out = (float)value;
  if (value >= 0 && (double)*out < high) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s is %g, expected 0 <= %s < %g",
                      name, value, name, high);
}

//---------------------------------- optimizers ----------------------------------

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
  BRIM_TRY(engine_read_number(c, "weight_decay", row->weight_decay, INFINITY, &attr->weight_decay));
  if (row->kind == BRIM_OPTIMIZER_SGD) {
    BRIM_TRY(engine_read_number(c, "momentum", 0, 1, &attr->momentum));
    attr->nesterov = brim_component_bool(c, "nesterov", false);
    if (attr->nesterov && attr->momentum == 0) {
      return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                          "nesterov needs a momentum above 0");
    }
    return BRIM_OK;
  }
  double beta1 = 0.9, beta2 = 0.999;
  BRIM_TRY(read_betas(c, &beta1, &beta2));
  BRIM_TRY(engine_read_number(c, "beta1", beta1, 1, &attr->beta1));
  BRIM_TRY(engine_read_number(c, "beta2", beta2, 1, &attr->beta2));
  return engine_read_number(c, "eps", 1e-8, INFINITY, &attr->eps);
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

//---------------------------------- losses ----------------------------------

static brim_status read_smoothing(const brim_component *c, brim_op_attr *attr) {
  double smoothing = brim_component_float(c, "label_smoothing", 0);
  attr->label_smoothing = (float)smoothing;
  if (smoothing >= 0 && smoothing <= 1) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                      "label_smoothing is %g, expected 0 to 1", smoothing);
}

static brim_status read_temperature(const brim_component *c, brim_op_attr *attr) {
  BRIM_TRY(engine_read_number(c, "temperature", 0.5, INFINITY, &attr->temperature));
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

// A loss for the kind of target, for messages.
static const char *loss_for_target(brim_loss_target target) {
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
                        c->name, loss_for_target(BRIM_LOSS_VALUES));
  }
  if (row->target == BRIM_LOSS_VALUES && labels) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "%s needs float targets, but the data has labels; use %s", c->name,
                        loss_for_target(BRIM_LOSS_LABELS));
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
                   loss_for_target(BRIM_LOSS_NONE));
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

//---------------------------------- learning rates ----------------------------------

typedef struct schedule_row {
  const char *name;
  const char *args[4];
  double (*lr)(const brim_schedule *s, int64_t step);
} schedule_row;

static double lr_constant(const brim_schedule *s, int64_t step) {
  (void)step;
  return s->base_lr;
}

// Multiplies the rate by gamma every `every` steps, counted from the first step: a warm-up does not shift the drops.
static double lr_step(const brim_schedule *s, int64_t step) {
  return s->base_lr * pow(s->gamma, (double)((step - 1) / s->every));
}

// Falls from base_lr at the first step after the warm-up to min_lr past the last step.
static double lr_cosine(const brim_schedule *s, int64_t step) {
  const double pi = 3.14159265358979323846;
  int64_t span = s->total_steps - s->warmup_steps;
  if (span < 1) return s->base_lr;
  double t = (double)(step - 1 - s->warmup_steps) / (double)span;
  if (t > 1) t = 1;
  return s->min_lr + 0.5 * (s->base_lr - s->min_lr) * (1 + cos(pi * t));
}

static const schedule_row schedules[] = {
    {"constant", {"warmup"}, lr_constant},
    {"step", {"every", "gamma", "warmup"}, lr_step},
    {"cosine", {"min_lr", "warmup"}, lr_cosine},
};
enum { SCHEDULE_COUNT = sizeof schedules / sizeof schedules[0] };

static brim_status check_schedule(const brim_schedule *s, const brim_component *c) {
  const char *file = c ? c->file : NULL;
  int line = c ? c->line : 0, col = c ? c->col : 0;
  if (!(s->base_lr >= 0) || !isfinite(s->base_lr)) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "the learning rate is %g, expected 0 or more",
                        s->base_lr);
  }
  if (!(s->min_lr >= 0) || !isfinite(s->min_lr)) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "min_lr is %g, expected 0 or more",
                        s->min_lr);
  }
  if (s->min_lr > s->base_lr) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "min_lr is %g, above the learning rate of %g",
                        s->min_lr, s->base_lr);
  }
  if (!(s->gamma >= 0) || !isfinite(s->gamma)) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "gamma is %g, expected 0 or more", s->gamma);
  }
  if (s->every < 1) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "every is %lld, expected 1 or more",
                        (long long)s->every);
  }
  if (s->warmup_steps < 0 || s->total_steps < 0) {
    return brim_fail_at(BRIM_EINVAL, file, line, col, "the number of steps is below 0");
  }
  return BRIM_OK;
}

brim_status brim_schedule_init(brim_schedule *schedule, const brim_component *scheduler,
                               double base_lr, int64_t warmup_steps, int64_t total_steps) {
  const char *names[SCHEDULE_COUNT + 1] = {0};
  const char *wanted = scheduler ? scheduler->name : "constant";
  *schedule = (brim_schedule){.kind = -1,
                              .base_lr = base_lr,
                              .gamma = 0.1,
                              .every = 1,
                              .warmup_steps = warmup_steps,
                              .total_steps = total_steps};
  for (int i = 0; i < SCHEDULE_COUNT; i++) {
    names[i] = schedules[i].name;
    if (strcmp(wanted, names[i]) == 0) schedule->kind = i;
  }
  if (schedule->kind < 0) {
    return brim_engine_fail_unknown(scheduler, "scheduler", wanted, names);
  }
  if (scheduler) {
    BRIM_TRY(brim_engine_check_args(scheduler, schedules[schedule->kind].args));
    schedule->min_lr = brim_component_float(scheduler, "min_lr", 0);
    schedule->gamma = brim_component_float(scheduler, "gamma", 0.1);
    schedule->every = brim_component_int(scheduler, "every", 1);
    schedule->warmup_steps = brim_component_int(scheduler, "warmup", warmup_steps);
  }
  return check_schedule(schedule, scheduler);
}

double brim_schedule_lr(const brim_schedule *schedule, int64_t step) {
  if (step < 1) step = 1;
  if (step <= schedule->warmup_steps) {
    return schedule->base_lr * (double)step / (double)schedule->warmup_steps;
  }
  return schedules[schedule->kind].lr(schedule, step);
}
