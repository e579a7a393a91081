// Learning-rate schedules: pure functions of the step. A linear warm-up may stand in front of each.
#include <math.h>
#include <string.h>

#include "engine/engine_int.h"

typedef struct schedule_row {
  const char *name;
  const char *args[4];
  double (*lr)(const brim_schedule *s, int64_t step);
} schedule_row;

static double lr_constant(const brim_schedule *s, int64_t step) {
  (void)step;
  return s->base_lr;
}

// Drops are counted from the first step of all, so a warm-up does not shift them.
static double lr_step(const brim_schedule *s, int64_t step) {
  return s->base_lr * pow(s->gamma, (double)((step - 1) / s->every));
}

// From base_lr at the first step after the warm-up towards min_lr past the last.
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
