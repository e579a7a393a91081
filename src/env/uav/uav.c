// The grid world's row, and its loop over environments.
#include "env/uav/uav.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "env/uav/uav_int.h"

#define BRIM_ENV(name) brim_uav_##name
#include "rl/rl_collect_each.h"
#include "rl/rl_rollout_each.h"

_Static_assert(sizeof(brim_uav_values) <= BRIM_ENV_VALUES, "settings fit");

static brim_env_sizes sizes(const void *values) {
  const brim_uav_values v = brim_grid_of(values);
  return brim_uav_sizes(&v);
}

// Rules and task are there already.
static void defaults(int32_t stage, void *values) {
  (void)stage;  // there is one
  brim_uav_values v = brim_grid_of(values);
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
  const brim_uav_values v = brim_grid_of(values);
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

// The same with numbers, where a problem comes of several settings.
static brim_status check(const void *values, const char *where) {
  const brim_uav_values v = brim_grid_of(values);
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

// A map has no bit behind its last cell.
static bool map_ends(const brim_uav_values *v, const uint32_t *map) {
  const int32_t cells = brim_grid_cells(v);
  return cells % 32 == 0 || map[cells / 32] >> cells % 32 == 0;
}

static int32_t ones(const brim_uav_values *v, const uint32_t *map) {
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

// Rules brim: every UAV has a free cell of its own, and the map of UAVs has these cells alone.
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
         ones(v, obstacles) == v->num_obstacles;
}

static bool covered_valid(const brim_uav_values *v, const brim_uav_state *s) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  const uint32_t *covered = s->rest + brim_grid_covered_at(v);
  for (int32_t i = 0; i < brim_grid_words(v); i++) {
    if (covered[i] & obstacles[i]) return false;
  }
  return map_ends(v, covered) && ones(v, covered) == s->found;
}

static bool valid(const void *values, const void *state) {
  const brim_uav_values v = brim_grid_of(values);
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
  return brim_grid_of(values).episode_steps;
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
  const brim_uav_values v = brim_grid_of(values);
  snprintf(out, size, "uav %s%s, %dx%d, %d UAVs, %d obstacles",
           v.task == BRIM_UAV_GOALS ? "goals" : "coverage", brim_grid_is_peer(&v) ? " (peer)" : "",
           v.size, v.size, v.num_uavs, v.num_obstacles);
}

static brim_env_run_fn run(void) { return brim_uav_run; }

//---------------------------------- figures ----------------------------------

static void count(const void *values, int32_t steps, const brim_rollout_episode *episode,
                  const float *raw, double (*sums)[2]) {
  const brim_uav_values v = brim_grid_of(values);
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
    .scene = brim_grid_scene,
    .facts = brim_grid_facts,
    .run = run,
    .collect = brim_uav_collects,
    .valid = valid,
};
