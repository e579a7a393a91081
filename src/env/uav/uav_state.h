// The state of the grid world, its maps of bits, and the sizes that follow from the settings. Cells are
// counted row by row: cell y * size + x is bit cell % 32 of word cell / 32 of a map. y grows to the south.
// Names of the contract begin with brim_uav_, the others with brim_grid_: templates add names of the first kind.
#ifndef BRIM_UAV_STATE_H_
#define BRIM_UAV_STATE_H_

#include "env/env_step.h"

enum {
  BRIM_UAV_MAX_SIZE = 64,
  BRIM_UAV_MAX_CELLS = BRIM_UAV_MAX_SIZE * BRIM_UAV_MAX_SIZE,
  BRIM_UAV_MAX_CROP = 15,
  BRIM_UAV_MAX_UAVS = 32,        // a word has a bit for each
  BRIM_UAV_MAX_STEPS = 1 << 15,  // of an episode: (step, UAV) is a counter of draws
  brim_uav_AGENTS = BRIM_UAV_MAX_UAVS,
  brim_uav_ACT = 5,  // stay, north, east, south, west
  brim_uav_OBS = 3 * BRIM_UAV_MAX_CROP * BRIM_UAV_MAX_CROP + 9 + BRIM_UAV_MAX_UAVS,
  brim_uav_FIGURES = 5  // covered cells, their sum over steps, collisions, overlap, goals reached
};

typedef enum brim_grid_rules {
  BRIM_UAV_BRIM,  // UAVs block each other; moves into obstacles are masked
  BRIM_UAV_PEER   // an environment that others measure: UAVs share cells and pay for it, no mask
} brim_grid_rules;

typedef enum brim_grid_task {
  BRIM_UAV_AUTO,      // by the rules; defaults() resolves it
  BRIM_UAV_COVERAGE,  // be in every free cell once
  BRIM_UAV_GOALS      // each UAV to a goal of its own, then to the next one
} brim_grid_task;

typedef struct brim_uav_values {
  int32_t rules, task;
  int32_t size;  // cells of a side
  int32_t num_uavs, num_obstacles;
  int32_t episode_steps;
  int32_t crop;  // cells of a side of what a UAV sees; odd
  int32_t team;  // 0: each UAV has a reward of its own
} brim_uav_values;

// Rewards, in hundredths.
enum {
  BRIM_UAV_NEW_CELL = 100,    // coverage: into a cell where no UAV was before
  BRIM_UAV_ALL_CELLS = 1000,  // coverage: to each UAV when every free cell is covered
  BRIM_UAV_STEP = -1,
  BRIM_UAV_STOPPED = -20,  // it wanted to move and could not
  BRIM_UAV_NEARER = 10,    // goals: for every cell closer to the goal; farther costs as much
  BRIM_UAV_ARRIVED = 500,
  BRIM_UAV_PEER_HIT = -50,      // peer: into an obstacle, or over the edge
  BRIM_UAV_PEER_SHARED = -100,  // peer: in a cell with another UAV
};

// What became of a UAV in the last step.
enum { BRIM_UAV_WAS_BLOCKED = 1, BRIM_UAV_WAS_STOPPED = 2, BRIM_UAV_FOUND = 4 };

// With num_uavs = A and W words to a map, `rest` has
//   A words of places: x | y << 8 | goal x << 16 | goal y << 24
//   A words of the last step: reward in hundredths (16 bits) | heading << 16 | what became of it << 20
//   W words of obstacles
//   W words of covered cells (coverage)
//   W words of cells with a UAV (rules brim)
typedef struct brim_uav_state {
  int32_t time;        // steps of the episode
  int32_t found;       // coverage: covered cells; goals: goals reached
  int32_t sum;         // of `found` after each step (coverage)
  int32_t collisions;  // brim: moves another UAV stopped; peer: UAVs in a shared cell, each step
  int32_t overlap;     // coverage: moves into a cell that was covered
  uint32_t rest[2 * BRIM_UAV_MAX_UAVS + 3 * (BRIM_UAV_MAX_CELLS / 32)];
} brim_uav_state;

typedef int32_t brim_uav_action;

//---------------------------------- where things lie ----------------------------------

BRIM_HD int brim_grid_is_peer(const brim_uav_values *v) { return v->rules == BRIM_UAV_PEER; }
BRIM_HD int brim_grid_has_goals(const brim_uav_values *v) { return v->task == BRIM_UAV_GOALS; }
BRIM_HD int32_t brim_grid_cells(const brim_uav_values *v) { return v->size * v->size; }
BRIM_HD int32_t brim_grid_words(const brim_uav_values *v) { return (v->size * v->size + 31) / 32; }
// Rules brim: every map has the same number.
BRIM_HD int32_t brim_grid_free_cells(const brim_uav_values *v) {
  return brim_grid_cells(v) - v->num_obstacles;
}

BRIM_HD int32_t brim_grid_obstacles_at(const brim_uav_values *v) { return 2 * v->num_uavs; }
BRIM_HD int32_t brim_grid_covered_at(const brim_uav_values *v) {
  return 2 * v->num_uavs + brim_grid_words(v);
}
BRIM_HD int32_t brim_grid_occupied_at(const brim_uav_values *v) {
  return 2 * v->num_uavs + brim_grid_words(v) * (brim_grid_has_goals(v) ? 1 : 2);
}
BRIM_HD int32_t brim_uav_stored(const brim_uav_values *v) {
  const int32_t maps = 1 + !brim_grid_has_goals(v) + !brim_grid_is_peer(v);
  return (5 + 2 * v->num_uavs + maps * brim_grid_words(v)) * 4;
}

BRIM_HD int32_t brim_grid_x(uint32_t place) { return (int32_t)(place & 255); }
BRIM_HD int32_t brim_grid_y(uint32_t place) { return (int32_t)(place >> 8 & 255); }
BRIM_HD int32_t brim_grid_goal_x(uint32_t place) { return (int32_t)(place >> 16 & 255); }
BRIM_HD int32_t brim_grid_goal_y(uint32_t place) { return (int32_t)(place >> 24); }
BRIM_HD uint32_t brim_grid_place(int32_t x, int32_t y, int32_t goal_x, int32_t goal_y) {
  return (uint32_t)x | (uint32_t)y << 8 | (uint32_t)goal_x << 16 | (uint32_t)goal_y << 24;
}
// From where the UAV is to where its goal is, along both axes together.
BRIM_HD int32_t brim_grid_way(uint32_t place) {
  const int32_t dx = brim_grid_goal_x(place) - brim_grid_x(place);
  const int32_t dy = brim_grid_goal_y(place) - brim_grid_y(place);
  return (dx < 0 ? -dx : dx) + (dy < 0 ? -dy : dy);
}

BRIM_HD uint32_t brim_grid_last(int32_t reward, int32_t heading, int32_t what) {
  return ((uint32_t)reward & 0xffff) | (uint32_t)heading << 16 | (uint32_t)what << 20;
}
BRIM_HD int32_t brim_grid_reward(uint32_t last) {
  const int32_t low = (int32_t)(last & 0xffff);
  return low < 0x8000 ? low : low - 0x10000;
}
// The last move that led anywhere, 1 to 4; 0 = none yet.
BRIM_HD int32_t brim_grid_heading(uint32_t last) { return (int32_t)(last >> 16 & 7); }
BRIM_HD int32_t brim_grid_what(uint32_t last) { return (int32_t)(last >> 20); }

// Where an action leads: north, east, south, west; peer: +x, -x, +y, -y.
BRIM_HD int32_t brim_grid_dx(int peer, int32_t a) {
  return peer ? (a == 1) - (a == 2) : (a == 2) - (a == 4);
}
BRIM_HD int32_t brim_grid_dy(int peer, int32_t a) {
  return peer ? (a == 3) - (a == 4) : (a == 3) - (a == 1);
}

//---------------------------------- maps ----------------------------------

BRIM_HD int brim_grid_bit(const uint32_t *map, int32_t cell) {
  return (int)(map[cell >> 5] >> (cell & 31) & 1);
}
BRIM_HD void brim_grid_set(uint32_t *map, int32_t cell) {
  map[cell >> 5] |= (uint32_t)1 << (cell & 31);
}
BRIM_HD void brim_grid_clear(uint32_t *map, int32_t cell) {
  map[cell >> 5] &= ~((uint32_t)1 << (cell & 31));
}

BRIM_HD int brim_grid_inside(int32_t size, int32_t x, int32_t y) {
  return x >= 0 && x < size && y >= 0 && y < size;
}

// An obstacle, or outside.
BRIM_HD int brim_grid_blocked(const uint32_t *obstacles, int32_t size, int32_t x, int32_t y) {
  return !brim_grid_inside(size, x, y) || brim_grid_bit(obstacles, y * size + x);
}

BRIM_HD int32_t brim_grid_ones(uint32_t bits) {
  bits = bits - (bits >> 1 & 0x55555555u);
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return (int32_t)((((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24);
}

// The place of the lowest bit that is set; there is one.
BRIM_HD int32_t brim_grid_lowest(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __ffsll((long long)bits) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

BRIM_HD uint64_t brim_grid_low_bits(int32_t count) {
  return count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}

// Row y of a map: bit x is cell (x, y). Reads no word that has none of its cells.
BRIM_HD uint64_t brim_grid_row_bits(const uint32_t *map, int32_t size, int32_t y) {
  const int32_t start = y * size, word = start >> 5, skip = start & 31;
  uint64_t bits = (uint64_t)map[word] >> skip;
  if (skip + size > 32) bits |= (uint64_t)map[word + 1] << (32 - skip);
  if (skip + size > 64) bits |= (uint64_t)map[word + 2] << (64 - skip);
  return bits & brim_grid_low_bits(size);
}

// Columns x to x + count - 1 of which `first` to first + inside - 1 exist, and bits of those among count.
typedef struct brim_grid_columns {
  int32_t first, inside, skip;
  uint32_t all;
} brim_grid_columns;

// For 0 < count < 32.
BRIM_HD brim_grid_columns brim_grid_clip(int32_t size, int32_t x, int32_t count) {
  const int32_t end = x + count < size ? x + count : size;
  brim_grid_columns c;
  c.first = x > 0 ? x : 0;
  c.skip = c.first - x;
  c.inside = end > c.first ? end - c.first : 0;
  c.all = (((uint32_t)1 << c.inside) - 1) << c.skip;
  return c;
}

// Cells of row y in those columns; those outside are 0. Reads no word that has none of its cells.
BRIM_HD uint32_t brim_grid_piece(const uint32_t *map, int32_t size, brim_grid_columns c,
                                 int32_t y) {
  const int32_t start = y * size + c.first, word = start >> 5, shift = start & 31;
  uint32_t bits = map[word] >> shift;
  if (shift + c.inside > 32) bits |= map[word + 1] << (32 - shift);
  return bits << c.skip & c.all;
}

// `count` cells of a row from column x on, which may lie outside; those that do are 0.
BRIM_HD uint32_t brim_grid_span(uint64_t row, int32_t x, int32_t count) {
  const uint64_t moved = x < 0 ? row << -x : row >> x;
  return (uint32_t)(moved & brim_grid_low_bits(count));
}

BRIM_HD brim_env_sizes brim_uav_sizes(const brim_uav_values *v) {
  const int32_t a = v->num_uavs, goals = brim_grid_has_goals(v), blocks = (v->size + 3) / 4;
  brim_env_sizes z;
  z.kind = BRIM_ENV_DISCRETE;
  z.agents = a;
  z.act = brim_uav_ACT;
  if (brim_grid_is_peer(v)) {
    z.obs = v->crop * v->crop + 4;
    z.global = 4 * a;
  } else {
    z.obs = 3 * v->crop * v->crop + 7 + 2 * goals + a;
    z.global = goals ? 4 * a + 1 + 2 * blocks * blocks : 2 * a + 2 + 3 * blocks * blocks;
  }
  z.frame = 3 + (goals ? 5 : 3) * a + (goals ? 1 : 2) * ((brim_grid_cells(v) + 15) / 16);
  z.figures = brim_uav_FIGURES;
  z.lanes = 1;
  z.rewards = v->team ? 1 : a;
  return z;
}

#endif  // BRIM_UAV_STATE_H_
