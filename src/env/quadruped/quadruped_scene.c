// The quadruped in a replay: what a frame's numbers are, the curves over time, and the figures and words of
// an episode.
#include <math.h>
#include <stdio.h>

#include "base/base_msg.h"
#include "env/quadruped/quadruped_episode.h"
#include "env/quadruped/quadruped_int.h"

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

void brim_quadruped_scene(const void *values, brim_scene *out) {
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

size_t brim_quadruped_facts(const void *values, brim_scene_line *out) {
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
