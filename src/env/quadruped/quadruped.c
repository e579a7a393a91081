// The quadruped's row: its arguments and their defaults, its figures, and its loop for this CPU.
#include "env/quadruped/quadruped.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "base/base_machine.h"
#include "base/base_msg.h"
#include "env/quadruped/quadruped_episode.h"
#include "env/quadruped/quadruped_int.h"

// Defaults of the curriculum's two stages. Stage 0 learns to stand at all, stage 1 to stay up under
// stronger pushes and for longer; a policy of stage 0 can start stage 1 (--weights).
static const struct stage {
  float reset_pos, reset_vel, push_speed;
  int32_t push_every, length;
} stages[] = {
    {0.1f, 0.1f, 7, 40, 200},
    {0.1f, 0.1f, 8, 40, 400},
};

static const struct stage *stage_of(int32_t stage) { return &stages[stage == 1]; }

static void fill(int32_t stage, brim_quadruped *e) {
  const struct stage *s = stage_of(stage);
  e->rk4 = 0;
  e->frame_skip = 5;
  e->timestep = 0.01f;
  e->margin = 0.01f;
  e->reset_pos = s->reset_pos;
  e->reset_vel = s->reset_vel;
  // a robot that walks is not pushed unless the config says so
  e->push_speed = e->task == BRIM_QUADRUPED_WALK ? 0 : s->push_speed;
  e->push_every = s->push_every;
  e->action_scale = 1;
}

static void defaults(int32_t stage, void *values) {
  brim_quadruped e = brim_quadruped_of(values);
  fill(stage, &e);
  memcpy(values, &e, sizeof e);
}

static int in_range(float x) { return x >= 0.0f && x < 1e6f; }

static const char *problem(const void *values) {
  const brim_quadruped e = brim_quadruped_of(values);
  if (e.task != BRIM_QUADRUPED_STAND && e.task != BRIM_QUADRUPED_WALK) {
    return BRIM_N_("the quadruped's task is neither stand nor walk");
  }
  if (e.frame_skip < 1 || e.frame_skip > 1000) {
    return BRIM_N_("frame_skip has to be from 1 to 1000");
  }
  if (!(e.timestep > 0.0f && e.timestep <= 0.1f)) {
    return BRIM_N_("the timestep has to be above 0 and at most 0.1 s");
  }
  if (!in_range(e.margin) || !in_range(e.reset_pos) || !in_range(e.reset_vel) ||
      !in_range(e.push_speed) || !in_range(e.action_scale)) {
    return BRIM_N_("margin, resets, pushes and the scale of actions cannot be negative");
  }
  if (e.push_speed > 0.0f && (e.push_every < 1 || e.push_every > BRIM_ENV_MAX_STEPS)) {
    return BRIM_N_("with pushes, push_every has to be from 1 to 1048576 steps");
  }
  return NULL;
}

static brim_status check(const void *values, const char *where) {
  const double margin = (double)brim_quadruped_of(values).margin;
  if (fabs(margin - 0.01) < 1e-8 || fabs(margin - 0.02) < 1e-8) return BRIM_OK;
  return brim_fail(
      BRIM_EINVAL,
      "%squadruped: margin is %g, expected 0.01 (MuJoCo up to 3.4) or 0.02 (from 3.5 on)", where,
      margin);
}

static brim_env_sizes sizes(const void *values) {
  (void)values;
  return (brim_env_sizes){.kind = BRIM_ENV_CONTINUOUS,
                          .agents = 1,
                          .obs = BRIM_QUADRUPED_OBS,
                          .act = BRIM_QUADRUPED_ACT,
                          .frame = BRIM_QUADRUPED_FRAME,
                          .figures = 1,
                          .lanes = 4,
                          .rewards = 1};
}

static int32_t length(int32_t stage, const void *values) {
  (void)values;
  return stage_of(stage)->length;
}

static double best(const void *values, int32_t steps) {
  (void)values;
  (void)steps;
  return HUGE_VAL;
}

static double seconds(const void *values) {
  const brim_quadruped e = brim_quadruped_of(values);
  return (double)e.timestep * e.frame_skip;
}

// Counted: a step of the physics costs 5.1 kFLOP in the air, 7.8 standing. The lower number keeps the
// reported use of a device from being too high.
static double flops(const void *values) {
  const brim_quadruped e = brim_quadruped_of(values);
  return 5100.0 * e.frame_skip * (e.rk4 ? 4 : 1);
}

static void describe(const void *values, char *out, size_t size) {
  const brim_quadruped e = brim_quadruped_of(values);
  snprintf(out, size, "quadruped %s, %s", e.task == BRIM_QUADRUPED_WALK ? "walk" : "stand",
           e.rk4 ? "rk4" : "euler");
}

// Walked: episodes that lasted all their seconds, without a fall and at WALK_SPEED or more on average.
enum { SPEED, WALKED, WALK_SPEED, WALK_SECONDS, FIGURES };

// The one raw figure is the distance forward, in metres; where a state diverged it is NaN.
static void count(const void *values, int32_t steps, const brim_rollout_episode *episode,
                  const float *raw, double (*sums)[2]) {
  const double distance = (double)raw[0];
  const bool has_distance = episode->outcome != BRIM_ENV_DIVERGED && isfinite(distance);
  if (has_distance) {
    sums[SPEED][0] += distance;
    sums[SPEED][1] += episode->length * seconds(values);
  }
  if (brim_quadruped_of(values).task != BRIM_QUADRUPED_WALK) return;
  // 20 s, not 19.9999996: the timestep is a float
  const double whole = round(1e6 * seconds(values) * steps) / 1e6;
  const bool walked =
      has_distance && episode->outcome == BRIM_ENV_TRUNCATED && distance >= BRIM_WALK_SPEED * whole;
  sums[WALKED][0] += walked;
  sums[WALK_SPEED][0] = BRIM_WALK_SPEED;
  sums[WALK_SECONDS][0] = whole;
  // denominator 1: report the sums
  sums[WALKED][1] = sums[WALK_SPEED][1] = sums[WALK_SECONDS][1] = 1;
}

static brim_env_run_fn run_best(void) {
#if defined(BRIM_QUADRUPED_HAVE_X86)
  __builtin_cpu_init();
  const unsigned masked = brim_cpu_mask();
  if (!(masked & BRIM_CPU_MASK_AVX512) && __builtin_cpu_supports("avx512f")) {
    return brim_quadruped_run_avx512;
  }
  if (!(masked & BRIM_CPU_MASK_AVX2) && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) {
    return brim_quadruped_run_avx2;
  }
#endif
  return brim_quadruped_run_plain;
}

#define AT(member) .offset = offsetof(brim_quadruped, member)
#define CHOICE(key, member, default_, choices_, what)                        \
  .name = key, .type = BRIM_ENV_ARG_CHOICE, AT(member), .choices = choices_, \
  .default_text = default_, .meaning = BRIM_N_(what)
#define NUMBER(kind, member, default_, lo, hi, what)                                             \
  .name = #member, .type = BRIM_ENV_ARG_##kind, AT(member), .default_text = default_, .min = lo, \
  .max = hi, .meaning = BRIM_N_(what)
//---------------------------------- replay ----------------------------------

static const double degrees = 180 / 3.14159265358979323846;

static const float *frame_of(const brim_scene_episode *e, int64_t i) {
  return e->frames + i * BRIM_QUADRUPED_FRAME;
}

static double height(const float *frame) { return (double)frame[2]; }

// The angle between the torso's z and the world's.
static double tilt(const float *frame) {
  const float *q = frame + 3;
  double w = (double)q[0], x = (double)q[1], y = (double)q[2], z = (double)q[3];
  double norm = w * w + x * x + y * y + z * z;
  if (!(norm > 0)) return (double)NAN;
  double up = 1 - 2 * (x * x + y * y) / norm;
  return acos(fmin(fmax(up, -1), 1)) * degrees;
}

static double push(const float *frame) {
  const float *v = frame + BRIM_QUADRUPED_QPOS;
  return sqrt((double)v[0] * (double)v[0] + (double)v[1] * (double)v[1] +
              (double)v[2] * (double)v[2]);
}

static double ahead(const brim_scene_episode *e) {
  return (double)frame_of(e, e->states - 1)[0] - (double)frame_of(e, 0)[0];
}

//---------------------------------- words ----------------------------------

static bool ended(const brim_scene_episode *e, char *out, size_t size) {
  if (e->end == BRIM_SCENE_LASTED) return false;
  snprintf(out, size,
           e->end == BRIM_SCENE_ENDED ? brim_tr("fell at %.2f s")
                                      : brim_tr("the simulation diverged at %.2f s"),
           e->seconds);
  return true;
}

static void stood(const brim_scene_episode *e, char *out, size_t size) {
  if (!ended(e, out, size)) snprintf(out, size, brim_tr("stood for %.2f s"), e->seconds);
}

static void walked(const brim_scene_episode *e, char *out, size_t size) {
  if (ended(e, out, size)) return;
  snprintf(out, size, brim_tr("stayed up for %.2f s, %.2f m ahead"), e->seconds, ahead(e));
}

static size_t common_figures(const brim_scene_episode *e, brim_scene_line *out) {
  double low = HUGE_VAL, most = 0, hardest = 0;
  int pushes = 0;
  for (int64_t i = 0; i < e->states; i++) {
    const float *frame = frame_of(e, i);
    low = fmin(low, height(frame));
    most = fmax(most, tilt(frame));
    pushes += push(frame) > 0;
    hardest = fmax(hardest, push(frame));
  }
  out[0].label = BRIM_N_("lowest");
  snprintf(out[0].text, sizeof out[0].text, "%.2f m", low);
  out[1].label = BRIM_N_("largest tilt");
  snprintf(out[1].text, sizeof out[1].text, "%.0f\xc2\xb0", most);
  out[2].label = BRIM_N_("pushes");
  out[2].key = "pushes";
  out[2].value = pushes;
  if (pushes > 0) {
    snprintf(out[2].text, sizeof out[2].text, brim_tr("%d, up to %.2f m/s"), pushes, hardest);
  } else {
    snprintf(out[2].text, sizeof out[2].text, "0");
  }
  return 3;
}

static size_t walk_figures(const brim_scene_episode *e, brim_scene_line *out) {
  out[0].label = BRIM_N_("ahead");
  snprintf(out[0].text, sizeof out[0].text, "%.2f m", ahead(e));
  return 1 + common_figures(e, out + 1);
}

//---------------------------------- the scene ----------------------------------

static void add_curves(bool walk, brim_scene *out) {
  out->curves[0] =
      (brim_scene_curve){.key = "height",
                         .title = BRIM_N_("Height, m"),
                         .digits = 3,
                         .from_zero = true,
                         .column = 2,
                         .limit_count = 2,
                         .limits = {(double)BRIM_HEALTHY_LOW, (double)BRIM_HEALTHY_HIGH}};
  out->curves[1] = (brim_scene_curve){.key = "tilt",
                                      .title = BRIM_N_("Tilt, degrees"),
                                      .digits = 1,
                                      .from_zero = true,
                                      .value = tilt,
                                      .limit_count = walk ? 0 : 1,
                                      .limits = {acos((double)BRIM_STAND_UPRIGHT) * degrees}};
  out->curves[2] = (brim_scene_curve){
      .key = "reward", .title = BRIM_N_("Reward of a step"), .digits = 3, .reward = true};
  out->curve_count = 3;
}

static void scene(const void *values, brim_scene *out) {
  const bool walk = brim_quadruped_of(values).task == BRIM_QUADRUPED_WALK;
  out->kind = "quadruped";
  out->parts[0] = (brim_scene_part){.key = "qpos", .columns = BRIM_QUADRUPED_QPOS};
  out->parts[1] = (brim_scene_part){
      .key = "pushes", .columns = 3, .when = BRIM_SCENE_EVENTS, .label = BRIM_N_("push")};
  out->part_count = 2;
  add_curves(walk, out);
  out->limit_text = BRIM_N_("beyond this line the robot has fallen");
  out->ends[BRIM_SCENE_LASTED] = "lasted";
  out->ends[BRIM_SCENE_ENDED] = "fell";
  out->ends[BRIM_SCENE_DIVERGED] = "diverged";
  out->good[BRIM_SCENE_LASTED] = true;
  out->camera = true;
  out->hint = BRIM_N_(
      "Drag to turn; pinch or press + and - to zoom. Space plays, comma and full stop move one "
      "step, [ and ] change the speed, f follows, 0 resets. The orange legs are in front.");
  out->outcome = walk ? walked : stood;
  out->figures = walk ? walk_figures : common_figures;
}

static size_t facts(const void *values, brim_scene_line *out) {
  const brim_quadruped robot = brim_quadruped_of(values), *e = &robot;
  out[0].label = BRIM_N_("Physics");
  snprintf(out[0].text, sizeof out[0].text, brim_tr("%s, a step is %d x %g s, contact margin %g m"),
           e->rk4 ? "RK4" : "Euler", e->frame_skip, (double)e->timestep, (double)e->margin);
  out[1].label = BRIM_N_("Start");
  snprintf(out[1].text, sizeof out[1].text,
           brim_tr("positions within %g of rest, velocities of deviation %g"), (double)e->reset_pos,
           (double)e->reset_vel);
  out[2].label = BRIM_N_("Pushes");
  if (e->push_speed > 0) {
    snprintf(out[2].text, sizeof out[2].text, brim_tr("up to %g m/s, every %d steps on average"),
             (double)e->push_speed, e->push_every);
  } else {
    snprintf(out[2].text, sizeof out[2].text, "%s", brim_tr("none"));
  }
  return 3;
}

//---------------------------------- the row ----------------------------------

static const brim_env_arg args[] = {
    {CHOICE("task", task, "stand", "stand|walk", "task that is rewarded"), .task = 1},
    {NUMBER(INT, frame_skip, "5", 1, 1000, "physics steps per action")},
    {CHOICE("integrator", rk4, "euler", "euler|rk4", "integrator of the physics")},
    {NUMBER(FLOAT, margin, "0.01", 0, 1,
            "contact margin: 0.01 as in MuJoCo up to 3.4, or 0.02 as from 3.5 on")},
    {NUMBER(FLOAT, timestep, "0.01", 1e-5, 0.1, "time step of the physics, in seconds")},
    {NUMBER(
        FLOAT, reset_pos, NULL, 0, 1,
        "range of qpos around its rest value at the start, uniform (default: set by ars.phase)")},
    {NUMBER(FLOAT, reset_vel, NULL, 0, 10,
            "standard deviation of qvel at the start (default: set by ars.phase)")},
    {NUMBER(FLOAT, push_speed, NULL, 0, 100,
            "largest change of the torso's velocity by a push, in m/s (0 = no pushes; default: set "
            "by ars.phase)")},
    {NUMBER(INT, push_every, NULL, 1, 1e6,
            "average number of actions between pushes (default: set by ars.phase)")},
    {NUMBER(FLOAT, action_scale, "1", 1e-6, 1e3,
            "factor on the policy's output, applied before clipping to [-1, 1]")},
};

enum {
  EVAL = BRIM_METRIC_AT(BRIM_METRIC_EVAL),
  BASELINE = BRIM_METRIC_AT(BRIM_METRIC_BASELINE),
  ALL = BRIM_METRIC_AT(BRIM_METRIC_STEPS) | BRIM_METRIC_AT(BRIM_METRIC_TRAIN) | EVAL | BASELINE,
};

// Names of a row that only `brim eval` has.
#define REPORTED(figure_, zero_figure)                  \
  {                                                     \
    [BRIM_METRIC_EVAL] = {"", "", "", figure_},         \
    [BRIM_METRIC_BASELINE] = {"", "", "", zero_figure}, \
  }

static const brim_metric figures[FIGURES] = {
    [SPEED] = {.key = "speed",
               .label = "",
               .table_label = BRIM_N_("forward m/s"),
               .unit = BRIM_N_("m/s forward"),
               .better = BRIM_BETTER_HIGHER,
               .digits = 3,
               .join = BRIM_METRIC_COMMA,
               .flags = BRIM_METRIC_NO_CSV,
               .stages = ALL,
               .lines = BRIM_METRIC_AT(BRIM_METRIC_LINE_SUMMARY) |
                        BRIM_METRIC_AT(BRIM_METRIC_LINE_TABLE),
               .names = {[BRIM_METRIC_STEPS] = {"", "", "directions.speed", ""},
                         [BRIM_METRIC_TRAIN] = {"", "", "directions.speed", ""},
                         [BRIM_METRIC_EVAL] = {"eval_speed", "eval_speed", "return.speed",
                                               "forward_speed"},
                         [BRIM_METRIC_BASELINE] = {"", "", "zero_policy.speed",
                                                   "zero_forward_speed"}}},
    [WALKED] = {.key = "walked",
                .label = "",
                .format = BRIM_METRIC_WHOLE,
                .stages = EVAL | BASELINE,
                .names = REPORTED("walked", "zero_walked")},
    [WALK_SPEED] = {.key = "walk_speed",
                    .label = "",
                    .flags = BRIM_METRIC_OPTIONAL,
                    .stages = EVAL,
                    .names = REPORTED("walk_speed", "")},
    [WALK_SECONDS] = {.key = "walk_seconds",
                      .label = "",
                      .flags = BRIM_METRIC_OPTIONAL,
                      .stages = EVAL,
                      .names = REPORTED("walk_seconds", "")},
};

// If the task is to walk: how often it walked to the end.
static void notes(const double *v, int64_t episodes, brim_str *out) {
  if (isnan(v[WALKED])) return;
  brim_str_append_char(out, '\n');
  brim_str_printf(out,
                  brim_tr("walked in %.0f of %.0f episodes: at least %g m/s forward on average "
                          "over the whole %g s, without a fall\n"),
                  v[WALKED], (double)episodes, v[WALK_SPEED], v[WALK_SECONDS]);
}

const brim_env_row brim_quadruped_row = {
    .abi = BRIM_ENV_ABI,
    .name = "quadruped",
    .meaning = BRIM_N_("a four-legged robot; MuJoCo's Ant"),
    .args = args,
    .arg_count = sizeof args / sizeof *args,
    .ended = {"falls", BRIM_N_("falls"), BRIM_N_("fall rate"), "falls", "fall_rate",
              BRIM_BETTER_LOWER},
    .figures = figures,
    .figure_count = FIGURES,
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .check = check,
    .length = length,
    .best = best,
    .seconds = seconds,
    .flops = flops,
    .describe = describe,
    .count = count,
    .notes = notes,
    .scene = scene,
    .facts = facts,
    .run = run_best,
};
