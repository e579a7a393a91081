// The row of the grid world, with the CPU's loops over it.
#include "env/uav/uav.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"

#define BRIM_ENV(name) brim_uav_##name
#include "rl/rl_collect_each.h"
#include "rl/rl_rollout_each.h"

_Static_assert(sizeof(brim_uav_values) <= BRIM_ENV_VALUES, "settings fit");

// Reads the settings from the bytes of a brim_env_values.
static brim_uav_values settings_of(const void *values) {
  brim_uav_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

static brim_env_sizes sizes(const void *values) {
  const brim_uav_values v = settings_of(values);
  return brim_uav_sizes(&v);
}

// Sets all but rules and task, which the caller has set.
static void defaults(int32_t stage, void *values) {
  (void)stage;  // the grid world has one stage
  brim_uav_values v = settings_of(values);
  const bool peer = brim_grid_is_peer(&v);
  if (v.task == BRIM_UAV_AUTO) v.task = peer ? BRIM_UAV_GOALS : BRIM_UAV_COVERAGE;
  v.size = peer ? 50 : 32;
  v.num_uavs = 10;
  v.num_obstacles = 40;
  v.episode_steps = 200;
  v.crop = peer ? 5 : 11;
  v.team = peer;
  memcpy(values, &v, sizeof v);
}

static const char *problem(const void *values) {
  const brim_uav_values v = settings_of(values);
  if (v.size < 2 || v.size > BRIM_UAV_MAX_SIZE) return BRIM_N_("size has to be from 2 to 64");
  if (v.num_uavs < 1 || v.num_uavs > BRIM_UAV_MAX_UAVS) {
    return BRIM_N_("num_uavs has to be from 1 to 32");
  }
  if (v.episode_steps < 1 || v.episode_steps > BRIM_UAV_MAX_STEPS) {
    return BRIM_N_("episode_steps has to be from 1 to 32768");
  }
  if (v.crop < 1 || v.crop > BRIM_UAV_MAX_CROP || v.crop % 2 == 0) {
    return BRIM_N_("crop has to be odd, from 1 to 15");
  }
  if (v.crop > v.size) return BRIM_N_("crop has to be at most size");
  if (v.task != BRIM_UAV_COVERAGE && v.task != BRIM_UAV_GOALS) {
    return BRIM_N_("task has to be coverage or goals");
  }
  if (brim_grid_is_peer(&v) && v.task != BRIM_UAV_GOALS) {
    return BRIM_N_("rules=peer has only the task goals");
  }
  if (v.num_obstacles < 0 || v.num_obstacles >= brim_grid_cells(&v)) {
    return BRIM_N_("num_obstacles has to be at least 0 and leave a free cell");
  }
  if (!brim_grid_is_peer(&v) && v.num_uavs >= brim_grid_free_cells(&v)) {
    return BRIM_N_("there have to be more free cells than UAVs");
  }
  return NULL;
}

// Reports problems of several settings together, with their numbers.
static brim_status check(const void *values, const char *where) {
  const brim_uav_values v = settings_of(values);
  const bool sized = v.size >= 2 && v.size <= BRIM_UAV_MAX_SIZE;
  const bool placed = sized && v.num_obstacles >= 0 && v.num_obstacles < brim_grid_cells(&v);
  if (v.crop % 2 == 0) {
    return brim_fail(BRIM_EINVAL, "%suav: crop is %d, expected an odd number from 1 to %d", where,
                     v.crop, BRIM_UAV_MAX_CROP);
  }
  if (sized && v.crop > v.size) {
    return brim_fail(BRIM_EINVAL, "%suav: crop is %d, but the grid has only %d x %d cells", where,
                     v.crop, v.size, v.size);
  }
  if (sized && v.num_obstacles >= 0 && !placed) {
    return brim_fail(BRIM_EINVAL,
                     "%suav: num_obstacles is %d, but the grid has only %d x %d = %d cells", where,
                     v.num_obstacles, v.size, v.size, brim_grid_cells(&v));
  }
  if (placed && !brim_grid_is_peer(&v) && v.num_uavs >= brim_grid_free_cells(&v)) {
    return brim_fail(BRIM_EINVAL,
                     "%suav: num_uavs is %d, but %d x %d cells with %d obstacles have only %d free "
                     "cells; at least one has to stay free",
                     where, v.num_uavs, v.size, v.size, v.num_obstacles, brim_grid_free_cells(&v));
  }
  return BRIM_OK;
}

// True if a map has no bits after its last cell.
static bool map_ends(const brim_uav_values *v, const uint32_t *map) {
  const int32_t cells = brim_grid_cells(v);
  return cells % 32 == 0 || map[cells / 32] >> cells % 32 == 0;
}

static int32_t count_cells(const brim_uav_values *v, const uint32_t *map) {
  int32_t sum = 0;
  for (int32_t i = 0; i < brim_grid_words(v); i++) sum += brim_grid_ones(map[i]);
  return sum;
}

static bool places_valid(const brim_uav_values *v, const brim_uav_state *s) {
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const uint32_t place = s->rest[i];
    if (!brim_grid_inside(v->size, brim_grid_x(place), brim_grid_y(place)) ||
        !brim_grid_inside(v->size, brim_grid_goal_x(place), brim_grid_goal_y(place)) ||
        brim_grid_heading(s->rest[v->num_uavs + i]) >= brim_uav_ACT) {
      return false;
    }
  }
  return true;
}

// For rules brim: true if each UAV is on a free cell of its own, and the map of UAVs has exactly these cells.
static bool cells_valid(const brim_uav_values *v, const brim_uav_state *s) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  uint32_t map[BRIM_UAV_MAX_CELLS / 32] = {0};
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const int32_t cell = brim_grid_y(s->rest[i]) * v->size + brim_grid_x(s->rest[i]);
    if (brim_grid_bit(map, cell) || brim_grid_bit(obstacles, cell)) return false;
    brim_grid_set(map, cell);
  }
  return memcmp(map, occupied, (size_t)brim_grid_words(v) * sizeof *map) == 0 &&
         count_cells(v, obstacles) == v->num_obstacles;
}

static bool covered_valid(const brim_uav_values *v, const brim_uav_state *s) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  const uint32_t *covered = s->rest + brim_grid_covered_at(v);
  for (int32_t i = 0; i < brim_grid_words(v); i++) {
    if (covered[i] & obstacles[i]) return false;
  }
  return map_ends(v, covered) && count_cells(v, covered) == s->found;
}

static bool valid(const void *values, const void *state) {
  const brim_uav_values v = settings_of(values);
  const brim_uav_state *s = (const brim_uav_state *)state;
  if (s->time < 0 || s->time >= v.episode_steps || s->found < 0 || s->sum < 0 ||
      s->collisions < 0 || s->overlap < 0) {
    return false;
  }
  if (!map_ends(&v, s->rest + brim_grid_obstacles_at(&v)) || !places_valid(&v, s)) return false;
  if (!brim_grid_is_peer(&v) && !cells_valid(&v, s)) return false;
  return brim_grid_has_goals(&v) || covered_valid(&v, s);
}

static int32_t length(int32_t stage, const void *values) {
  (void)stage;
  return settings_of(values).episode_steps;
}

static double best(const void *values, int32_t steps) {
  (void)values;
  (void)steps;
  return HUGE_VAL;
}

static double zero(const void *values) {
  (void)values;
  return 0;
}

static void describe(const void *values, char *out, size_t size) {
  const brim_uav_values v = settings_of(values);
  snprintf(out, size, "uav %s%s, %dx%d, %d UAVs, %d obstacles",
           v.task == BRIM_UAV_GOALS ? "goals" : "coverage", brim_grid_is_peer(&v) ? " (peer)" : "",
           v.size, v.size, v.num_uavs, v.num_obstacles);
}

//---------------------------------- replay ----------------------------------

enum { FOUND, PERCENT, COLLISIONS, COUNTS };  // columns of the first part
enum { SIZE, CROP, LENGTH, NUMBERS };         // numbers of the scene

static const float *frame_of(const brim_scene_episode *e, int64_t i) {
  return e->frames + i * brim_scene_width(e->scene);
}

static double last_of(const brim_scene_episode *e, int column) {
  return (double)frame_of(e, e->states - 1)[column];
}

static long long steps_of(const brim_scene_episode *e) { return (long long)e->states - 1; }

static void describe_coverage(const brim_scene_episode *e, char *out, size_t size) {
  if (e->end == BRIM_SCENE_ENDED) {
    snprintf(out, size, brim_tr("covered all cells in %lld steps"), steps_of(e));
  } else {
    snprintf(out, size, brim_tr("covered %.1f %% in %lld steps"), last_of(e, PERCENT), steps_of(e));
  }
}

static void describe_goals(const brim_scene_episode *e, char *out, size_t size) {
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

// Mean coverage as evaluations compute it: an episode that covered all cells early counts as complete for the rest
// of its steps.
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

static void scene(const void *values, brim_scene *out) {
  const brim_uav_values v = settings_of(values);
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
  out->outcome = goals ? describe_goals : describe_coverage;
  out->figures = goals ? goal_figures : coverage_figures;
}

static size_t facts(const void *values, brim_scene_line *out) {
  const brim_uav_values v = settings_of(values);
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

//---------------------------------- loops and figures ----------------------------------

static brim_env_run_fn run(void) { return brim_uav_run; }

static void count(const void *values, int32_t steps, const brim_rollout_episode *episode,
                  const float *raw, double (*sums)[2]) {
  const brim_uav_values v = settings_of(values);
  brim_uav_count(&v, steps, episode, raw, sums);
}

static const brim_metric figures[BRIM_UAV_FIGURES] = {
    [BRIM_UAV_COVERED_END] = {.key = "coverage",
                              .label = BRIM_N_("coverage"),
                              .better = BRIM_BETTER_HIGHER,
                              .format = BRIM_METRIC_PERCENT,
                              .digits = 1,
                              .flags = BRIM_METRIC_OPTIONAL},
    [BRIM_UAV_COVERED_MEAN] = {.key = "mean_coverage",
                               .label = BRIM_N_("mean coverage"),
                               .better = BRIM_BETTER_HIGHER,
                               .format = BRIM_METRIC_PERCENT,
                               .digits = 1,
                               .flags = BRIM_METRIC_OPTIONAL},
    [BRIM_UAV_COLLISIONS] = {.key = "collisions",
                             .label = BRIM_N_("collisions"),
                             .better = BRIM_BETTER_LOWER},
    [BRIM_UAV_OVERLAP] = {.key = "overlap",
                          .label = BRIM_N_("overlap"),
                          .better = BRIM_BETTER_LOWER,
                          .format = BRIM_METRIC_PERCENT,
                          .digits = 1,
                          .flags = BRIM_METRIC_OPTIONAL},
    [BRIM_UAV_ARRIVALS] = {.key = "arrivals",
                           .label = BRIM_N_("goals reached"),
                           .better = BRIM_BETTER_HIGHER,
                           .flags = BRIM_METRIC_OPTIONAL},
};

//---------------------------------- the row ----------------------------------

#define AT(member) .offset = offsetof(brim_uav_values, member)
#define WORD(n, m, d, c, what)                                                    \
  .name = n, .type = BRIM_ENV_ARG_CHOICE, AT(m), .choices = c, .default_text = d, \
  .meaning = BRIM_N_(what)
#define NUMBER(m, d, lo, hi, what)                                                      \
  .name = #m, .type = BRIM_ENV_ARG_INT, AT(m), .default_text = d, .min = lo, .max = hi, \
  .meaning = BRIM_N_(what)
static const brim_env_arg args[] = {
    {WORD("rules", rules, "brim", "brim|peer",
          "brim: UAVs block each other; peer: the environment of other programs, for comparison"),
     .task = 1},
    {WORD("task", task, "auto", "auto|coverage|goals",
          "task that is rewarded (auto = coverage, or goals with rules=peer)"),
     .task = 1},
    {NUMBER(size, NULL, 2, 64,
            "side length of the grid, in cells (default: 32, or 50 with rules=peer)"),
     .alias = "grid_size"},
    {NUMBER(num_uavs, "10", 1, 32, "number of UAVs")},
    {NUMBER(num_obstacles, "40", 0, 4095,
            "number of obstacle cells (with rules=peer: on average)")},
    {NUMBER(episode_steps, "200", 1, 32768, "longest episode, in steps"), .alias = "max_steps"},
    {NUMBER(crop, NULL, 1, 15,
            "side length of what a UAV sees, in cells; odd (default: 11, or 5 with rules=peer)")},
    {WORD("reward", team, NULL, "own|team",
          "own: each UAV has its own reward; team: all have the mean (default: own, or team with "
          "rules=peer)")},
};

static const char *const rules[] = {"greedy", NULL};

const brim_env_row brim_uav_row = {
    .abi = BRIM_ENV_ABI,
    .name = "uav",
    .meaning = BRIM_N_("UAVs in a grid world with obstacles"),
    .args = args,
    .arg_count = sizeof args / sizeof *args,
    .ended = {"finished", BRIM_N_("finished"), BRIM_N_("finish rate"), "finished", "finish_rate",
              BRIM_BETTER_HIGHER},
    .figures = figures,
    .figure_count = BRIM_UAV_FIGURES,
    .rules = rules,
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .check = check,
    .length = length,
    .best = best,
    .seconds = zero,
    .flops = zero,
    .describe = describe,
    .count = count,
    .scene = scene,
    .facts = facts,
    .run = run,
    .collect = brim_uav_collects,
    .valid = valid,
};
