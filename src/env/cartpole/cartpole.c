// The row of the cart-pole, with the CPU's loops over it.
#include "env/cartpole/cartpole.h"

#include <math.h>
#include <stdio.h>

#include "base/base_msg.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "rl/rl_collect_each.h"
#include "rl/rl_rollout_each.h"

static brim_cartpole_values settings_of(const void *values) {
  brim_cartpole_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

static brim_env_sizes sizes(const void *values) {
  const brim_cartpole_values v = settings_of(values);
  return brim_cartpole_sizes(&v);
}

static void defaults(int32_t stage, void *values) {
  (void)stage;  // the cart-pole has no stages
  const brim_cartpole_values v = {.reset = 0.05f};
  memcpy(values, &v, sizeof v);
}

static const char *problem(const void *values) {
  const float reset = settings_of(values).reset;
  if (reset >= 0.0f && reset <= 1.0f) return NULL;
  return BRIM_N_("reset has to be from 0 to 1");
}

static bool valid(const void *values, const void *state) {
  const brim_cartpole_state *s = (const brim_cartpole_state *)state;
  (void)values;
  return isfinite(s->x) && isfinite(s->speed) && isfinite(s->angle) && isfinite(s->turn);
}

static int32_t length(int32_t stage, const void *values) {
  (void)stage;
  (void)values;
  return BRIM_CARTPOLE_LENGTH;
}

// Every step has reward 1.
static double best(const void *values, int32_t steps) {
  (void)values;
  return steps;
}

static double seconds(const void *values) {
  (void)values;
  return BRIM_CARTPOLE_STEP;
}

// Operations counted in cartpole.h: two series, the accelerations, four sums.
static double flops(const void *values) {
  (void)values;
  return 65;
}

static void describe(const void *values, char *out, size_t size) {
  (void)values;
  snprintf(out, size, "cartpole");
}

//---------------------------------- replay ----------------------------------

enum { X, ANGLE };  // numbers of a frame

static const double degrees = 180 / 3.14159265358979323846;

static double angle_of(const float *frame) { return (double)frame[ANGLE] * degrees; }

static void outcome(const brim_scene_episode *e, char *out, size_t size) {
  const float *last = e->frames + (e->states - 1) * brim_cartpole_FRAME;
  if (e->end == BRIM_SCENE_LASTED) {
    snprintf(out, size, brim_tr("balanced for %.2f s"), e->seconds);
  } else if (e->end == BRIM_SCENE_DIVERGED) {
    snprintf(out, size, brim_tr("the simulation diverged at %.2f s"), e->seconds);
  } else if (fabs((double)last[X]) > BRIM_CARTPOLE_FAR) {
    snprintf(out, size, brim_tr("left the track at %.2f s"), e->seconds);
  } else {
    snprintf(out, size, brim_tr("fell at %.2f s"), e->seconds);
  }
}

static size_t scene_figures(const brim_scene_episode *e, brim_scene_line *out) {
  double far = 0, tilt = 0;
  for (int64_t i = 0; i < e->states; i++) {
    const float *frame = e->frames + i * brim_cartpole_FRAME;
    far = fmax(far, fabs((double)frame[X]));
    tilt = fmax(tilt, fabs(angle_of(frame)));
  }
  out[0].label = BRIM_N_("largest distance");
  snprintf(out[0].text, sizeof out[0].text, "%.2f m", far);
  out[1].label = BRIM_N_("largest angle");
  snprintf(out[1].text, sizeof out[1].text, "%.1f\xc2\xb0", tilt);
  return 2;
}

static void scene(const void *values, brim_scene *out) {
  (void)values;
  out->kind = "cartpole";
  out->parts[0] = (brim_scene_part){.key = "state", .columns = brim_cartpole_FRAME};
  out->part_count = 1;
  out->numbers[0] = (brim_scene_number){"far", BRIM_CARTPOLE_FAR};
  out->numbers[1] = (brim_scene_number){"tilt", BRIM_CARTPOLE_TILT};
  out->numbers[2] = (brim_scene_number){"pole", 2 * BRIM_CARTPOLE_HALF};
  out->number_count = 3;
  out->curves[0] = (brim_scene_curve){.key = "cart",
                                      .title = BRIM_N_("Cart, m from the middle"),
                                      .digits = 3,
                                      .from_zero = true,
                                      .column = X,
                                      .limit_count = 2,
                                      .limits = {-BRIM_CARTPOLE_FAR, BRIM_CARTPOLE_FAR}};
  out->curves[1] =
      (brim_scene_curve){.key = "angle",
                         .title = BRIM_N_("Pole, degrees from upright"),
                         .digits = 2,
                         .from_zero = true,
                         .value = angle_of,
                         .limit_count = 2,
                         .limits = {-BRIM_CARTPOLE_TILT * degrees, BRIM_CARTPOLE_TILT * degrees}};
  out->curve_count = 2;
  out->limit_text = BRIM_N_("beyond this line the episode ends");
  out->ends[BRIM_SCENE_LASTED] = "lasted";
  out->ends[BRIM_SCENE_ENDED] = "fell";
  out->ends[BRIM_SCENE_DIVERGED] = "diverged";
  out->good[BRIM_SCENE_LASTED] = true;
  out->outcome = outcome;
  out->figures = scene_figures;
}

static size_t facts(const void *values, brim_scene_line *out) {
  out[0].label = BRIM_N_("Physics");
  snprintf(out[0].text, sizeof out[0].text, brim_tr("CartPole-v1, a step is %g s, a push is %g N"),
           BRIM_CARTPOLE_STEP, BRIM_CARTPOLE_FORCE);
  out[1].label = BRIM_N_("Start");
  snprintf(out[1].text, sizeof out[1].text, brim_tr("positions and velocities within %g of 0"),
           (double)settings_of(values).reset);
  return 2;
}

static brim_env_run_fn run(void) { return brim_cartpole_run; }

static const brim_env_arg args[] = {
    {.name = "reset",
     .type = BRIM_ENV_ARG_FLOAT,
     .offset = offsetof(brim_cartpole_values, reset),
     .default_text = "0.05",
     .min = 0,
     .max = 1,
     .meaning = BRIM_N_("range of every number of the state at the start, uniform")},
};

const brim_env_row brim_cartpole_row = {
    .abi = BRIM_ENV_ABI,
    .name = "cartpole",
    .meaning = BRIM_N_("a pole on a cart; Gymnasium's CartPole-v1"),
    .args = args,
    .arg_count = sizeof args / sizeof *args,
    .ended = {"falls", BRIM_N_("falls"), BRIM_N_("fall rate"), "falls", "fall_rate",
              BRIM_BETTER_LOWER},
    .once = 1,
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .length = length,
    .best = best,
    .seconds = seconds,
    .flops = flops,
    .describe = describe,
    .scene = scene,
    .facts = facts,
    .run = run,
    .collect = brim_cartpole_collects,
    .valid = valid,
};
