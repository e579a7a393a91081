// The grid world in a replay: what a frame's numbers are (brim_uav_frame), the curves over time, and the
// figures and words of an episode.
#include <stdio.h>

#include "base/base_msg.h"
#include "env/uav/uav.h"
#include "env/uav/uav_int.h"

enum { FOUND, PERCENT, COLLISIONS, COUNTS };  // columns of the first part
enum { SIZE, CROP, LENGTH, NUMBERS };         // numbers of the scene

static const float *frame_of(const brim_scene_episode *e, int64_t i) {
  return e->frames + i * brim_scene_width(e->scene);
}

static double last_of(const brim_scene_episode *e, int column) {
  return (double)frame_of(e, e->states - 1)[column];
}

static long long steps_of(const brim_scene_episode *e) { return (long long)e->states - 1; }

//---------------------------------- words ----------------------------------

static void covered(const brim_scene_episode *e, char *out, size_t size) {
  if (e->end == BRIM_SCENE_ENDED) {
    snprintf(out, size, brim_tr("covered all cells in %lld steps"), steps_of(e));
  } else {
    snprintf(out, size, brim_tr("covered %.1f %% in %lld steps"), last_of(e, PERCENT), steps_of(e));
  }
}

static void reached(const brim_scene_episode *e, char *out, size_t size) {
  snprintf(out, size, brim_tr("%.0f goals in %lld steps"), last_of(e, FOUND), steps_of(e));
}

static void put_count(brim_scene_line *line, const char *label, const char *key, double count) {
  line->label = label;
  line->key = key;
  line->value = count;
  snprintf(line->text, sizeof line->text, "%.0f", count);
}

static void put_percent(brim_scene_line *line, const char *label, const char *key, double percent) {
  line->label = label;
  line->key = key;
  line->value = percent / 100;
  snprintf(line->text, sizeof line->text, "%.1f %%", percent);
}

// As evaluations have it: an episode that covered all cells early stays complete until its last step.
static double mean_coverage(const brim_scene_episode *e) {
  const int64_t length = (int64_t)e->scene->numbers[LENGTH].value;
  int64_t steps = e->states - 1;
  double sum = 0;
  for (int64_t i = 1; i < e->states; i++) sum += (double)frame_of(e, i)[PERCENT];
  if (e->end == BRIM_SCENE_ENDED && length > steps) {
    sum += 100 * (double)(length - steps);
    steps = length;
  }
  return steps > 0 ? sum / (double)steps : last_of(e, PERCENT);
}

static size_t coverage_figures(const brim_scene_episode *e, brim_scene_line *out) {
  put_percent(&out[0], BRIM_N_("coverage"), "coverage", last_of(e, PERCENT));
  put_percent(&out[1], BRIM_N_("mean coverage"), "mean_coverage", mean_coverage(e));
  put_count(&out[2], BRIM_N_("collisions"), "collisions", last_of(e, COLLISIONS));
  return 3;
}

static size_t goal_figures(const brim_scene_episode *e, brim_scene_line *out) {
  put_count(&out[0], BRIM_N_("goals reached"), "arrivals", last_of(e, FOUND));
  put_count(&out[1], BRIM_N_("collisions"), "collisions", last_of(e, COLLISIONS));
  return 2;
}

//---------------------------------- the scene ----------------------------------

static void add_part(brim_scene *out, const char *key, int32_t columns, brim_scene_when when) {
  out->parts[out->part_count++] =
      (brim_scene_part){.key = key, .columns = columns, .when = when, .scale = 1};
}

static void add_parts(const brim_uav_values *v, brim_scene *out) {
  const int32_t numbers = (brim_grid_cells(v) + 15) / 16, a = v->num_uavs;
  const bool goals = brim_grid_has_goals(v);
  out->parts[0] = (brim_scene_part){.key = "counts", .columns = COUNTS};
  out->part_count = 1;
  add_part(out, "uavs", 2 * a, BRIM_SCENE_EVERY);
  add_part(out, "what", a, BRIM_SCENE_EVERY);
  if (goals) add_part(out, "goals", 2 * a, BRIM_SCENE_EVERY);
  add_part(out, "walls", numbers, BRIM_SCENE_FIRST);
  if (!goals) add_part(out, "covered", numbers, BRIM_SCENE_EVERY);
}

static void add_curves(bool goals, brim_scene *out) {
  out->curves[0] =
      (brim_scene_curve){.key = goals ? "goals" : "coverage",
                         .title = goals ? BRIM_N_("Goals reached") : BRIM_N_("Coverage, %"),
                         .digits = goals ? 0 : 1,
                         .from_zero = true,
                         .column = goals ? FOUND : PERCENT};
  out->curves[1] = (brim_scene_curve){.key = "collisions",
                                      .title = BRIM_N_("Collisions so far"),
                                      .from_zero = true,
                                      .column = COLLISIONS};
  out->curves[2] = (brim_scene_curve){
      .key = "reward", .title = BRIM_N_("Reward of a step"), .digits = 3, .reward = true};
  out->curve_count = 3;
}

void brim_grid_scene(const void *values, brim_scene *out) {
  const brim_uav_values v = brim_grid_of(values);
  const bool goals = brim_grid_has_goals(&v);
  out->kind = "uav";
  add_parts(&v, out);
  add_curves(goals, out);
  out->numbers[SIZE] = (brim_scene_number){"size", v.size};
  out->numbers[CROP] = (brim_scene_number){"crop", v.crop};
  out->numbers[LENGTH] = (brim_scene_number){"episode_steps", v.episode_steps};
  out->number_count = NUMBERS;
  out->ends[BRIM_SCENE_LASTED] = "lasted";
  out->ends[BRIM_SCENE_ENDED] = goals ? "finished" : "covered";
  out->ends[BRIM_SCENE_DIVERGED] = "diverged";
  // a grid that is not covered in time is no failure
  out->good[BRIM_SCENE_LASTED] = out->good[BRIM_SCENE_ENDED] = true;
  out->plain[BRIM_SCENE_LASTED] = true;
  out->hint = BRIM_N_(
      "Rings mark UAVs that could not move. Space plays, comma and full stop move "
      "one step, [ and ] change the speed.");
  out->rate = 10;
  out->outcome = goals ? reached : covered;
  out->figures = goals ? goal_figures : coverage_figures;
}

size_t brim_grid_facts(const void *values, brim_scene_line *out) {
  const brim_uav_values v = brim_grid_of(values);
  out[0].label = BRIM_N_("Grid");
  snprintf(out[0].text, sizeof out[0].text, brim_tr("%d x %d cells, %d obstacles, %d UAVs"), v.size,
           v.size, v.num_obstacles, v.num_uavs);
  out[1].label = BRIM_N_("View");
  snprintf(out[1].text, sizeof out[1].text, brim_tr("%d x %d cells around each UAV"), v.crop,
           v.crop);
  out[2].label = BRIM_N_("Rules");
  snprintf(out[2].text, sizeof out[2].text, "%s",
           brim_grid_is_peer(&v) ? brim_tr("peer: UAVs share cells and pay for it")
                                 : brim_tr("UAVs block each other; the lowest number goes first"));
  return 3;
}
