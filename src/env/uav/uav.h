// UAVs in a grid world with obstacles: together they cover all free cells, or each flies to goals of its own.
// docs/uav.md has rules and rewards. All arithmetic is on integers, so CPU and CUDA give the same bits. rules=peer
// is an environment of another project, for comparison of measurements.
#ifndef BRIM_UAV_H_
#define BRIM_UAV_H_

#include "env/env_step.h"

#ifdef __cplusplus
extern "C" {
#endif
// The row of env: uav(...).
extern const brim_env_row brim_uav_row;
#ifdef __cplusplus
}
#endif

//---------------------------------- the state ----------------------------------
// A map has a bit for each cell, row by row: cell y * size + x is bit cell % 32 of word cell / 32. y grows to the
// south. Names of the contract begin with brim_uav_, all others with brim_grid_, because templates add names that
// begin with brim_uav_.

enum {
  BRIM_UAV_MAX_SIZE = 64,
  BRIM_UAV_MAX_CELLS = BRIM_UAV_MAX_SIZE * BRIM_UAV_MAX_SIZE,
  BRIM_UAV_MAX_CROP = 15,
  BRIM_UAV_MAX_UAVS = 32,        // a word has a bit for each
  BRIM_UAV_MAX_STEPS = 1 << 15,  // most steps of an episode: (step, UAV) is a counter of draws
  brim_uav_AGENTS = BRIM_UAV_MAX_UAVS,
  brim_uav_ACT = 5,  // stay, north, east, south, west
  brim_uav_OBS = 3 * BRIM_UAV_MAX_CROP * BRIM_UAV_MAX_CROP + 9 + BRIM_UAV_MAX_UAVS,
  // figures: covered cells, their sum over steps, collisions, overlap, goals reached
  brim_uav_FIGURES = 5
};

typedef enum brim_grid_rules {
  BRIM_UAV_BRIM,  // UAVs block each other; moves into obstacles are masked
  BRIM_UAV_PEER   // another project's environment: UAVs share cells and pay for it, no mask
} brim_grid_rules;

typedef enum brim_grid_task {
  BRIM_UAV_AUTO,      // chosen by the rules; defaults() resolves it
  BRIM_UAV_COVERAGE,  // visit every free cell
  BRIM_UAV_GOALS      // each UAV flies to a goal of its own, then to the next one
} brim_grid_task;

typedef struct brim_uav_values {
  int32_t rules, task;
  int32_t size;  // cells per side
  int32_t num_uavs, num_obstacles;
  int32_t episode_steps;
  int32_t crop;  // cells per side of a UAV's view; odd
  int32_t team;  // 0: each UAV has a reward of its own
} brim_uav_values;

// Rewards, in hundredths.
enum {
  BRIM_UAV_NEW_CELL = 100,    // coverage: a move into a cell where no UAV was before
  BRIM_UAV_ALL_CELLS = 1000,  // coverage: for each UAV, when every free cell is covered
  BRIM_UAV_STEP = -1,
  BRIM_UAV_STOPPED = -20,  // the move failed
  BRIM_UAV_NEARER = 10,    // goals: per cell closer to the goal; farther costs as much
  BRIM_UAV_ARRIVED = 500,
  BRIM_UAV_PEER_HIT = -50,      // peer: a move into an obstacle, or over the edge
  BRIM_UAV_PEER_SHARED = -100,  // peer: in one cell with another UAV
};

// Results of a UAV's last move.
enum { BRIM_UAV_WAS_BLOCKED = 1, BRIM_UAV_WAS_STOPPED = 2, BRIM_UAV_FOUND = 4 };

// With num_uavs = A and W words per map, `rest` has
//   A words of places: x | y << 8 | goal x << 16 | goal y << 24
//   A words of the last step: reward in hundredths (16 bits) | heading << 16 | result of the move << 20
//   W words of obstacles
//   W words of covered cells (coverage)
//   W words of cells with a UAV (rules brim)
typedef struct brim_uav_state {
  int32_t time;   // steps of the episode
  int32_t found;  // coverage: covered cells; goals: goals reached
  int32_t sum;    // sum of `found` after each step (coverage)
  // brim: moves that another UAV stopped; peer: UAVs in a shared cell, each step
  int32_t collisions;
  int32_t overlap;  // coverage: moves into a cell that was already covered
  uint32_t rest[2 * BRIM_UAV_MAX_UAVS + 3 * (BRIM_UAV_MAX_CELLS / 32)];
} brim_uav_state;

typedef int32_t brim_uav_action;

//---------------------------------- where things lie ----------------------------------

BRIM_HD int brim_grid_is_peer(const brim_uav_values *v) { return v->rules == BRIM_UAV_PEER; }
BRIM_HD int brim_grid_has_goals(const brim_uav_values *v) { return v->task == BRIM_UAV_GOALS; }
BRIM_HD int32_t brim_grid_cells(const brim_uav_values *v) { return v->size * v->size; }
BRIM_HD int32_t brim_grid_words(const brim_uav_values *v) { return (v->size * v->size + 31) / 32; }
// For rules brim: every map has the same number of free cells.
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
// Returns the distance from a UAV to its goal, summed over both axes.
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
// Returns the last move that succeeded, 1 to 4; 0 = none yet.
BRIM_HD int32_t brim_grid_heading(uint32_t last) { return (int32_t)(last >> 16 & 7); }
BRIM_HD int32_t brim_grid_what(uint32_t last) { return (int32_t)(last >> 20); }

// The step of an action: north, east, south, west; peer: +x, -x, +y, -y.
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

// True for an obstacle and for cells outside of the grid.
BRIM_HD int brim_grid_blocked(const uint32_t *obstacles, int32_t size, int32_t x, int32_t y) {
  return !brim_grid_inside(size, x, y) || brim_grid_bit(obstacles, y * size + x);
}

BRIM_HD int32_t brim_grid_ones(uint32_t bits) {
  bits = bits - (bits >> 1 & 0x55555555u);
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return (int32_t)((((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24);
}

// Returns the place of the lowest set bit of a number that is not 0.
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

// Returns row y of a map: bit x is cell (x, y). Reads only words with cells of the row.
BRIM_HD uint64_t brim_grid_row_bits(const uint32_t *map, int32_t size, int32_t y) {
  const int32_t start = y * size, word = start >> 5, skip = start & 31;
  uint64_t bits = (uint64_t)map[word] >> skip;
  if (skip + size > 32) bits |= (uint64_t)map[word + 1] << (32 - skip);
  if (skip + size > 64) bits |= (uint64_t)map[word + 2] << (64 - skip);
  return bits & brim_grid_low_bits(size);
}

// The columns of a window that lie inside of the grid: `first` to first + inside - 1. `skip`: columns of the window
// before them; `all`: their bits in the window.
typedef struct brim_grid_columns {
  int32_t first, inside, skip;
  uint32_t all;
} brim_grid_columns;

// Clips columns x to x + count - 1, for 0 < count < 32.
BRIM_HD brim_grid_columns brim_grid_clip(int32_t size, int32_t x, int32_t count) {
  const int32_t end = x + count < size ? x + count : size;
  brim_grid_columns c;
  c.first = x > 0 ? x : 0;
  c.skip = c.first - x;
  c.inside = end > c.first ? end - c.first : 0;
  c.all = (((uint32_t)1 << c.inside) - 1) << c.skip;
  return c;
}

// Returns the cells of row y in those columns; cells outside are 0. Reads only words with cells of the row.
BRIM_HD uint32_t brim_grid_piece(const uint32_t *map, int32_t size, brim_grid_columns c,
                                 int32_t y) {
  const int32_t start = y * size + c.first, word = start >> 5, shift = start & 31;
  uint32_t bits = map[word] >> shift;
  if (shift + c.inside > 32) bits |= map[word + 1] << (32 - shift);
  return bits << c.skip & c.all;
}

// Returns `count` cells of a row from column x on; cells outside of the grid are 0.
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

//---------------------------------- a new episode ----------------------------------
// A new episode of the grid world: obstacles that keep all free cells connected, UAVs on free cells of their own,
// goals. All are drawn from the key of starts.

// Counters for the draws of a start.
enum {
  BRIM_UAV_DRAW_OBSTACLES = 0,
  BRIM_UAV_DRAW_UAVS = 2 * BRIM_UAV_MAX_CELLS,
  BRIM_UAV_DRAW_GOALS = BRIM_UAV_DRAW_UAVS + 2 * BRIM_UAV_MAX_UAVS,
  BRIM_UAV_TRIES = 8  // random places tried for a UAV; a draw gives four
};

BRIM_HD int32_t brim_grid_below(uint32_t bits, int32_t count) {
  return (int32_t)brim_mulhi32(bits, (uint32_t)count);
}

// Returns the free cells of row y; none outside of the grid.
BRIM_HD uint64_t brim_grid_free_row(const uint32_t *obstacles, int32_t size, int32_t y) {
  if (y < 0 || y >= size) return 0;
  return brim_grid_low_bits(size) & ~brim_grid_row_bits(obstacles, size, y);
}

// Returns the free cells of a row that may become obstacles. The free neighbours of such a cell form one arc in the
// ring of eight around it, so they stay connected, and with them all free cells. The test also rejects some cells
// that a longer way around would allow.
BRIM_HD uint64_t brim_grid_may_block_row(const uint32_t *obstacles, int32_t size, int32_t y) {
  const uint64_t above = brim_grid_free_row(obstacles, size, y - 1);
  const uint64_t here = brim_grid_free_row(obstacles, size, y);
  const uint64_t below = brim_grid_free_row(obstacles, size, y + 1);
  const uint64_t east = here >> 1, west = here << 1;
  // a free side begins an arc unless the side before it, clockwise, and the corner between are free
  const uint64_t from_north = above & ~(west & above << 1);
  const uint64_t from_east = east & ~(above & above >> 1);
  const uint64_t from_south = below & ~(east & below >> 1);
  const uint64_t from_west = west & ~(below & below << 1);
  const uint64_t two = (from_north & from_east) | (from_south & from_west) |
                       ((from_north | from_east) & (from_south | from_west));
  return here & ~two;
}

BRIM_HD int brim_grid_may_block(const uint32_t *obstacles, int32_t size, int32_t cell) {
  const int32_t y = cell / size;
  return (int)(brim_grid_may_block_row(obstacles, size, y) >> (cell - y * size) & 1);
}

// Returns the next cell after `cell`, cyclically, that may become an obstacle; `cell` itself is tried last. -1: no
// cell may. `rows` has a bit for each row that may have such cells; a row without such cells loses its bit.
BRIM_HD int32_t brim_grid_next_to_block(const uint32_t *obstacles, int32_t size, int32_t cell,
                                        uint64_t *rows) {
  const int32_t y = cell / size;
  // `cell` and the cells before it
  const uint64_t up_to = brim_grid_low_bits(cell - y * size + 1);
  const uint64_t own = *rows >> y & 1 ? brim_grid_may_block_row(obstacles, size, y) : 0;
  if (own & ~up_to) return y * size + brim_grid_lowest(own & ~up_to);
  for (int part = 0; part < 2; part++) {  // first the rows from `cell` on, then those before
    uint64_t left = part == 0 ? *rows & ~brim_grid_low_bits(y + 1) : *rows & brim_grid_low_bits(y);
    for (; left; left &= left - 1) {
      const int32_t row = brim_grid_lowest(left);
      const uint64_t cells = brim_grid_may_block_row(obstacles, size, row);
      if (cells) return row * size + brim_grid_lowest(cells);
      *rows &= ~((uint64_t)1 << row);
    }
  }
  if (own) return y * size + brim_grid_lowest(own);
  *rows = 0;
  return -1;
}

// Returns a free cell farthest from the first free cell. Without it the other cells stay connected, since no
// shortest way to them uses it.
BRIM_HD int32_t brim_grid_farthest(const uint32_t *obstacles, int32_t size) {
  uint64_t unseen[BRIM_UAV_MAX_SIZE], layer[BRIM_UAV_MAX_SIZE];
  int32_t found = -1, far = -1;
  for (int32_t y = 0; y < size; y++) {
    unseen[y] = brim_grid_free_row(obstacles, size, y);
    layer[y] = 0;
    if (found < 0 && unseen[y]) found = y * size + brim_grid_lowest(unseen[y]);
  }
  uint64_t rows = (uint64_t)1 << found / size;  // rows that have cells of the layer
  layer[found / size] = (uint64_t)1 << found % size;
  unseen[found / size] &= ~layer[found / size];
  while (found >= 0) {
    far = found;
    found = -1;
    uint64_t left = (rows | rows << 1 | rows >> 1) & brim_grid_low_bits(size), above = 0;
    for (rows = 0; left; left &= left - 1) {
      const int32_t y = brim_grid_lowest(left);
      const uint64_t here = layer[y], below = y + 1 < size ? layer[y + 1] : 0;
      const uint64_t next = (above | below | here << 1 | here >> 1) & unseen[y];
      // keep the row before it is replaced; rows that are left out are empty
      above = here;
      layer[y] = next;
      unseen[y] &= ~next;
      if (!next) continue;
      rows |= (uint64_t)1 << y;
      if (found < 0) found = y * size + brim_grid_lowest(next);
    }
  }
  return far;
}

BRIM_HD void brim_grid_put_obstacles(const brim_uav_values *v, const brim_env_track *t,
                                     uint32_t *map) {
  const int32_t cells = brim_grid_cells(v);
  uint64_t rows = brim_grid_low_bits(v->size);  // rows that may have a cell to block
  for (int32_t i = 0; i < v->num_obstacles; i++) {
    int32_t cell = 0, found = 0;
    brim_philox4 r = {{0, 0, 0, 0}};
    for (int32_t k = 0; k < BRIM_UAV_TRIES && !found; k++) {
      const int32_t n = BRIM_UAV_DRAW_OBSTACLES + 2 * i + k / 4;
      if (k % 4 == 0) r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, n);
      cell = brim_grid_below(r.v[k % 4], cells);
      found = brim_grid_may_block(map, v->size, cell);
    }
    if (!found) cell = brim_grid_next_to_block(map, v->size, cell, &rows);
    if (cell < 0) cell = brim_grid_farthest(map, v->size);
    brim_grid_set(map, cell);
    const uint64_t row = (uint64_t)1 << cell / v->size;
    rows |= (row | row << 1 | row >> 1) & brim_grid_low_bits(v->size);
  }
}

// Puts the UAVs on free cells, no two on the same.
BRIM_HD void brim_grid_put_uavs(const brim_uav_values *v, const brim_env_track *t,
                                brim_uav_state *s) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  const int32_t cells = brim_grid_cells(v);
  for (int32_t i = 0; i < v->num_uavs; i++) {
    int32_t cell = 0, found = 0;
    brim_philox4 r = {{0, 0, 0, 0}};
    for (int32_t k = 0; k < BRIM_UAV_TRIES && !found; k++) {
      const int32_t n = BRIM_UAV_DRAW_UAVS + 2 * i + k / 4;
      if (k % 4 == 0) r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, n);
      cell = brim_grid_below(r.v[k % 4], cells);
      found = !brim_grid_bit(obstacles, cell) && !brim_grid_bit(occupied, cell);
    }
    for (int32_t k = 0; k < cells && !found; k++) {
      cell = cell + 1 < cells ? cell + 1 : 0;
      found = !brim_grid_bit(obstacles, cell) && !brim_grid_bit(occupied, cell);
    }
    brim_grid_set(occupied, cell);
    s->rest[i] = brim_grid_place(cell % v->size, cell / v->size, 0, 0);
  }
}

// For rules brim: draws a free cell other than the UAV's own.
BRIM_HD uint32_t brim_grid_new_goal(const brim_uav_values *v, const uint32_t *obstacles,
                                    uint32_t place, brim_philox4 r) {
  const int32_t cells = brim_grid_cells(v), x = brim_grid_x(place), y = brim_grid_y(place);
  int32_t cell = 0, found = 0;
  for (int32_t k = 0; k < 4 && !found; k++) {
    cell = brim_grid_below(r.v[k], cells);
    found = !brim_grid_bit(obstacles, cell) && cell != y * v->size + x;
  }
  for (int32_t k = 0; k < cells && !found; k++) {
    cell = cell + 1 < cells ? cell + 1 : 0;
    found = !brim_grid_bit(obstacles, cell) && cell != y * v->size + x;
  }
  return brim_grid_place(x, y, cell % v->size, cell / v->size);
}

// For rules peer: draws any cell.
BRIM_HD uint32_t brim_grid_peer_goal(const brim_uav_values *v, uint32_t place, brim_philox4 r) {
  return brim_grid_place(brim_grid_x(place), brim_grid_y(place), brim_grid_below(r.v[2], v->size),
                         brim_grid_below(r.v[3], v->size));
}

// For rules peer: every cell is an obstacle with the same probability. The map is drawn for the environment, not
// for the episode, so it stays the same. UAVs and goals may be anywhere, also on obstacles.
BRIM_HD void brim_grid_peer_reset(const brim_uav_values *v, const brim_env_track *t,
                                  brim_uav_state *s) {
  const int32_t cells = brim_grid_cells(v);
  const uint32_t below = (uint32_t)(((uint64_t)(uint32_t)v->num_obstacles << 32) / (uint32_t)cells);
  uint32_t *map = s->rest + brim_grid_obstacles_at(v), word = 0;
  brim_philox4 r = {{0, 0, 0, 0}};
  for (int32_t cell = 0; cell < cells; cell++) {
    if (cell % 4 == 0) r = brim_env_draw(t->ids.start_key, &t->ids, 0, cell / 4);
    word |= (uint32_t)(r.v[cell % 4] < below) << (cell & 31);
    if ((cell & 31) < 31 && cell + 1 < cells) continue;
    map[cell >> 5] = word;
    word = 0;
  }
  for (int32_t i = 0; i < v->num_uavs; i++) {
    r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, BRIM_UAV_DRAW_UAVS + i);
    const uint32_t place =
        brim_grid_place(brim_grid_below(r.v[0], v->size), brim_grid_below(r.v[1], v->size), 0, 0);
    s->rest[i] = brim_grid_peer_goal(v, place, r);
  }
}

BRIM_HD void brim_uav_reset(const brim_uav_values *v, const brim_env_track *t, brim_uav_state *s) {
  const int32_t rest = brim_uav_stored(v) / 4 - 5;
  s->time = s->found = s->sum = s->collisions = s->overlap = 0;
  for (int32_t i = 0; i < rest; i++) s->rest[i] = 0;
  if (brim_grid_is_peer(v)) {
    brim_grid_peer_reset(v, t, s);
    return;
  }
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  brim_grid_put_obstacles(v, t, s->rest + brim_grid_obstacles_at(v));
  brim_grid_put_uavs(v, t, s);
  if (brim_grid_has_goals(v)) {
    for (int32_t i = 0; i < v->num_uavs; i++) {
      const brim_philox4 r =
          brim_env_draw(t->ids.start_key, &t->ids, t->episode, BRIM_UAV_DRAW_GOALS + i);
      s->rest[i] = brim_grid_new_goal(v, obstacles, s->rest[i], r);
    }
    return;
  }
  // the cells where UAVs start are covered
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  uint32_t *covered = s->rest + brim_grid_covered_at(v);
  for (int32_t i = 0; i < brim_grid_words(v); i++) covered[i] = occupied[i];
  s->found = v->num_uavs;
}

//---------------------------------- a step ----------------------------------
// One step of the grid world. All UAVs move at once. Rules brim:
//   1. A move into an obstacle or over the edge is blocked: the UAV stays.
//   2. If several UAVs want one cell, the one with the lowest number may continue; the others are stopped.
//   3. Two UAVs that want each other's cells are stopped.
//   4. A move into the cell of a UAV that stays, for whatever reason, is stopped; so on along a chain.
// So UAVs that follow each other move together, also around a ring of three or more. The order of evaluation does
// not matter. The UAV that loses by rule 2 stays even if the winner is stopped later, since the winner is only
// stopped if the UAV in the cell stays.

// The moves that UAVs want, and those that fail; bit i is UAV i.
typedef struct brim_grid_moves {
  int32_t from[BRIM_UAV_MAX_UAVS], to[BRIM_UAV_MAX_UAVS];  // cells
  uint32_t moving;
  uint32_t blocked;  // moves blocked by an obstacle or the edge
  uint32_t stopped;  // moves stopped by another UAV
} brim_grid_moves;

// Applies rule 1.
BRIM_HD void brim_grid_want(const brim_uav_values *v, const brim_uav_state *s,
                            const brim_uav_action *action, brim_grid_moves *m) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  m->moving = m->blocked = m->stopped = 0;
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const int32_t x = brim_grid_x(s->rest[i]), y = brim_grid_y(s->rest[i]);
    const int32_t dx = brim_grid_dx(0, action[i]), dy = brim_grid_dy(0, action[i]);
    m->from[i] = m->to[i] = y * v->size + x;
    if (dx == 0 && dy == 0) continue;
    if (brim_grid_blocked(obstacles, v->size, x + dx, y + dy)) {
      m->blocked |= (uint32_t)1 << i;
      continue;
    }
    m->to[i] = (y + dy) * v->size + x + dx;
    m->moving |= (uint32_t)1 << i;
  }
}

// Applies rules 2 to 4.
BRIM_HD void brim_grid_resolve(const brim_uav_values *v, const brim_uav_state *s,
                               brim_grid_moves *m) {
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  const uint32_t wanted = m->moving;
  uint32_t lost = 0, follows = 0;
  int32_t ahead[BRIM_UAV_MAX_UAVS];  // the UAV that is in the target cell
  for (int32_t i = 0; i < v->num_uavs; i++) {
    if (!(wanted >> i & 1)) continue;
    ahead[i] = 0;
    for (int32_t j = 0; j < i; j++) {
      if ((wanted >> j & 1) && m->to[j] == m->to[i]) lost |= (uint32_t)1 << i;
    }
    if (!brim_grid_bit(occupied, m->to[i])) continue;
    while (m->from[ahead[i]] != m->to[i]) ahead[i]++;
    follows |= (uint32_t)1 << i;
    // rule 3 stops both UAVs, each in its turn
    if (m->to[ahead[i]] == m->from[i]) lost |= (uint32_t)1 << i;
  }
  uint32_t moving = wanted & ~lost;
  for (int changed = 1; changed;) {
    changed = 0;
    for (int32_t i = 0; i < v->num_uavs; i++) {
      if (!(moving & follows & (uint32_t)1 << i) || (moving >> ahead[i] & 1)) continue;
      moving &= ~((uint32_t)1 << i);
      changed = 1;
    }
  }
  m->moving = moving;
  m->stopped = wanted & ~moving;
}

// Coverage: returns the reward of a UAV for the cell it is in now.
BRIM_HD int32_t brim_grid_cover(const brim_uav_values *v, brim_uav_state *s, int32_t cell,
                                int32_t *what) {
  uint32_t *covered = s->rest + brim_grid_covered_at(v);
  if (brim_grid_bit(covered, cell)) {
    s->overlap++;
    return 0;
  }
  brim_grid_set(covered, cell);
  s->found++;
  *what |= BRIM_UAV_FOUND;
  return BRIM_UAV_NEW_CELL;
}

// Goals: returns the reward for the change of the distance, and draws the next goal when the UAV is at its goal.
// `i` already has its new place.
BRIM_HD int32_t brim_grid_approach(const brim_uav_values *v, const brim_env_track *t,
                                   brim_uav_state *s, int32_t i, int32_t before, int32_t *what) {
  const int32_t left = brim_grid_way(s->rest[i]), nearer = BRIM_UAV_NEARER * (before - left);
  if (left) return nearer;
  const int32_t n = (t->step & (BRIM_UAV_MAX_STEPS - 1)) * BRIM_UAV_MAX_UAVS + i;
  const brim_philox4 r = brim_env_draw(t->ids.event_key, &t->ids, t->episode, n);
  s->found++;
  *what |= BRIM_UAV_FOUND;
  s->rest[i] = brim_grid_is_peer(v)
                   ? brim_grid_peer_goal(v, s->rest[i], r)
                   : brim_grid_new_goal(v, s->rest + brim_grid_obstacles_at(v), s->rest[i], r);
  return nearer + BRIM_UAV_ARRIVED;
}

// Returns the mean over UAVs; the sum is an integer, so only one rounding occurs.
BRIM_HD float brim_grid_mean(const brim_uav_values *v, int32_t hundredths) {
  return (float)hundredths / (float)(100 * v->num_uavs);
}

BRIM_HD brim_env_outcome brim_grid_own_step(const brim_uav_values *v, const brim_env_track *t,
                                            brim_uav_state *s, const brim_uav_action *action) {
  uint32_t *occupied = s->rest + brim_grid_occupied_at(v), *last = s->rest + v->num_uavs;
  const int goals = brim_grid_has_goals(v);
  brim_grid_moves m;
  int32_t total = 0;
  brim_grid_want(v, s, action, &m);
  brim_grid_resolve(v, s, &m);
  for (int32_t i = 0; i < v->num_uavs; i++) {
    if (m.moving >> i & 1) brim_grid_clear(occupied, m.from[i]);
  }
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const int moves = (int)(m.moving >> i & 1);
    const int blocked = (int)(m.blocked >> i & 1), stopped = (int)(m.stopped >> i & 1);
    int32_t what = BRIM_UAV_WAS_BLOCKED * blocked | BRIM_UAV_WAS_STOPPED * stopped;
    int32_t reward = BRIM_UAV_STEP + (what ? BRIM_UAV_STOPPED : 0);
    if (moves) {
      const int32_t before = brim_grid_way(s->rest[i]);
      // Coordinates are bytes and stay within 0..63, so adding the move to the word carries nothing.
      s->rest[i] +=
          (uint32_t)brim_grid_dx(0, action[i]) + ((uint32_t)brim_grid_dy(0, action[i]) << 8);
      brim_grid_set(occupied, m.to[i]);
      reward += goals ? brim_grid_approach(v, t, s, i, before, &what)
                      : brim_grid_cover(v, s, m.to[i], &what);
    }
    s->collisions += stopped;
    total += reward;
    last[i] = brim_grid_last(reward, moves ? action[i] : brim_grid_heading(last[i]), what);
  }
  s->time++;
  brim_env_outcome o;
  o.end = BRIM_ENV_RUNNING;
  if (!goals) {
    s->sum += s->found;
    if (s->found == brim_grid_free_cells(v)) {
      o.end = BRIM_ENV_TERMINATED;
      total += BRIM_UAV_ALL_CELLS * v->num_uavs;
      for (int32_t i = 0; i < v->num_uavs; i++) {
        last[i] = brim_grid_last(brim_grid_reward(last[i]) + BRIM_UAV_ALL_CELLS,
                                 brim_grid_heading(last[i]), brim_grid_what(last[i]));
      }
    }
  }
  o.reward = brim_grid_mean(v, total);
  return o;
}

// A step under rules peer: UAVs do not see each other when they move. A UAV that starts on an obstacle and stays
// hits it.
BRIM_HD brim_env_outcome brim_grid_peer_step(const brim_uav_values *v, const brim_env_track *t,
                                             brim_uav_state *s, const brim_uav_action *action) {
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  uint32_t *last = s->rest + v->num_uavs;
  int32_t before[BRIM_UAV_MAX_UAVS], total = 0;
  uint32_t hit = 0, shared = 0;
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const uint32_t place = s->rest[i];
    const int32_t dx = brim_grid_dx(1, action[i]), dy = brim_grid_dy(1, action[i]);
    before[i] = brim_grid_way(place);
    if (brim_grid_blocked(obstacles, v->size, brim_grid_x(place) + dx, brim_grid_y(place) + dy)) {
      hit |= (uint32_t)1 << i;
    } else {
      s->rest[i] = place + (uint32_t)dx + ((uint32_t)dy << 8);
    }
  }
  for (int32_t i = 1; i < v->num_uavs; i++) {
    const uint32_t cell = s->rest[i] & 0xffff;
    for (int32_t j = 0; j < i; j++) {
      if ((s->rest[j] & 0xffff) == cell) shared |= (uint32_t)1 << i | (uint32_t)1 << j;
    }
  }
  for (int32_t i = 0; i < v->num_uavs; i++) {
    const int hits = (int)(hit >> i & 1), shares = (int)(shared >> i & 1);
    int32_t what = BRIM_UAV_WAS_BLOCKED * hits | BRIM_UAV_WAS_STOPPED * shares;
    const int32_t reward = BRIM_UAV_STEP + hits * BRIM_UAV_PEER_HIT +
                           shares * BRIM_UAV_PEER_SHARED +
                           brim_grid_approach(v, t, s, i, before[i], &what);
    const int moved = !hits && action[i] != 0;
    s->collisions += shares;
    total += reward;
    last[i] = brim_grid_last(reward, moved ? action[i] : brim_grid_heading(last[i]), what);
  }
  s->time++;
  brim_env_outcome o;
  o.reward = brim_grid_mean(v, total);
  // the task is over: terminated, not truncated
  o.end = s->time >= v->episode_steps ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING;
  return o;
}

BRIM_HD brim_env_outcome brim_uav_step(const brim_uav_values *v, const brim_env_track *t,
                                       brim_uav_state *s, const brim_uav_action *action) {
  return brim_grid_is_peer(v) ? brim_grid_peer_step(v, t, s, action)
                              : brim_grid_own_step(v, t, s, action);
}

// Returns an agent's own reward of the last step.
BRIM_HD float brim_uav_share(const brim_uav_values *v, const brim_uav_state *s, int32_t agent) {
  return (float)brim_grid_reward(s->rest[v->num_uavs + agent]) / 100.0f;
}

//---------------------------------- views ----------------------------------
// The views of agents, a critic and a replay. Under rules brim all numbers are binary fractions with at most 8
// significant bits, which float16 and bfloat16 hold exactly.
// An agent sees crop x crop cells around it, row by row from the north-west, in three planes: an obstacle or
// outside; covered, or with the task goals the agent's goal; another UAV. Then come: x and y / 64; time / 256 as a
// share of the episode; the last move that succeeded (north, east, south, west); goals: the way to it, x and y / 64;
// the agent's number, as 1 of num_uavs.
// A critic sees x and y / 64 of all UAVs; goals: of all goals; time; coverage: covered cells as a share of the free
// cells / 256; for blocks of 4 x 4 cells, row by row: how many of 16 are covered (coverage), are obstacles, have a
// UAV.
// Under rules peer an agent sees only obstacles, column by column, the way to its goal and its place, / size; a
// critic sees all places, then all goals, / size.

BRIM_HD uint64_t brim_uav_mask(const brim_uav_values *v, const brim_uav_state *s, int32_t agent) {
  if (brim_grid_is_peer(v)) return 31;
  const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
  const int32_t x = brim_grid_x(s->rest[agent]), y = brim_grid_y(s->rest[agent]);
  uint64_t mask = 1;
  for (int32_t a = 1; a < brim_uav_ACT; a++) {
    const int blocked =
        brim_grid_blocked(obstacles, v->size, x + brim_grid_dx(0, a), y + brim_grid_dy(0, a));
    mask |= (uint64_t)!blocked << a;
  }
  return mask;
}

// Returns part / whole in 256ths, rounded down.
BRIM_HD float brim_grid_fraction(int32_t part, int32_t whole) {
  const int32_t k = part < whole ? part * 256 / whole : 256;
  return (float)k * (1.0f / 256.0f);
}

BRIM_HD float brim_grid_64th(int32_t k) { return (float)k * (1.0f / 64.0f); }

// Returns number `index` of those after the planes.
BRIM_HD float brim_grid_sees_itself(const brim_uav_values *v, const brim_uav_state *s,
                                    int32_t agent, int32_t index) {
  const uint32_t place = s->rest[agent];
  if (index == 0) return brim_grid_64th(brim_grid_x(place));
  if (index == 1) return brim_grid_64th(brim_grid_y(place));
  if (index == 2) return brim_grid_fraction(s->time, v->episode_steps);
  if (index < 7) return brim_grid_heading(s->rest[v->num_uavs + agent]) == index - 2 ? 1.0f : 0.0f;
  index -= 7;
  if (brim_grid_has_goals(v)) {
    if (index == 0) return brim_grid_64th(brim_grid_goal_x(place) - brim_grid_x(place));
    if (index == 1) return brim_grid_64th(brim_grid_goal_y(place) - brim_grid_y(place));
    index -= 2;
  }
  return index == agent ? 1.0f : 0.0f;
}

BRIM_HD float brim_grid_peer_sees(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                                  int32_t index) {
  const uint32_t place = s->rest[agent];
  const int32_t window = v->crop * v->crop, x = brim_grid_x(place), y = brim_grid_y(place);
  if (index < window) {
    const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
    const int32_t column = index / v->crop, half = v->crop / 2;
    return brim_grid_blocked(obstacles, v->size, x + column - half,
                             y + index - column * v->crop - half)
               ? 1.0f
               : 0.0f;
  }
  index -= window;
  const int32_t at = index & 1 ? y : x;
  const int32_t goal = index & 1 ? brim_grid_goal_y(place) : brim_grid_goal_x(place);
  return (float)(index < 2 ? goal - at : at) / (float)v->size;
}

BRIM_HD float brim_uav_sees(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                            int32_t index) {
  if (brim_grid_is_peer(v)) return brim_grid_peer_sees(v, s, agent, index);
  const int32_t plane = v->crop * v->crop;
  if (index >= 3 * plane) return brim_grid_sees_itself(v, s, agent, index - 3 * plane);
  const int32_t which = (index >= plane) + (index >= 2 * plane), within = index - which * plane;
  const int32_t row = within / v->crop, half = v->crop / 2;
  const uint32_t place = s->rest[agent];
  const int32_t dy = row - half, dx = within - row * v->crop - half;
  const int32_t x = brim_grid_x(place) + dx, y = brim_grid_y(place) + dy, cell = y * v->size + x;
  if (!brim_grid_inside(v->size, x, y)) return which == 0 ? 1.0f : 0.0f;
  int seen;
  if (which == 1 && brim_grid_has_goals(v)) {
    seen = x == brim_grid_goal_x(place) && y == brim_grid_goal_y(place);
  } else {
    const int32_t at = which == 0   ? brim_grid_obstacles_at(v)
                       : which == 1 ? brim_grid_covered_at(v)
                                    : brim_grid_occupied_at(v);
    seen = brim_grid_bit(s->rest + at, cell) && (which < 2 || dx != 0 || dy != 0);
  }
  return seen ? 1.0f : 0.0f;
}

// For rules brim: a row of an agent's view in three planes, with bit i for column i; rows count from the north.
typedef struct brim_grid_strip {
  uint32_t blocked, covered, others;  // covered: 0 in a task without covered cells
} brim_grid_strip;

BRIM_HD brim_grid_strip brim_grid_look(const brim_uav_values *v, const brim_uav_state *s,
                                       uint32_t place, int32_t row) {
  const int32_t half = v->crop / 2, size = v->size;
  const int32_t x = brim_grid_x(place) - half, y = brim_grid_y(place) - half + row;
  const uint32_t all = (uint32_t)brim_grid_low_bits(v->crop);
  brim_grid_strip out;
  out.blocked = all;
  out.covered = out.others = 0;
  if (y < 0 || y >= size) return out;
  const uint64_t obstacles = brim_grid_row_bits(s->rest + brim_grid_obstacles_at(v), size, y);
  out.blocked = all & ~brim_grid_span(~obstacles & brim_grid_low_bits(size), x, v->crop);
  out.others =
      brim_grid_span(brim_grid_row_bits(s->rest + brim_grid_occupied_at(v), size, y), x, v->crop);
  if (row == half) out.others &= ~((uint32_t)1 << half);
  if (!brim_grid_has_goals(v)) {
    out.covered =
        brim_grid_span(brim_grid_row_bits(s->rest + brim_grid_covered_at(v), size, y), x, v->crop);
  }
  return out;
}

BRIM_HD void brim_uav_observe(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                              float *out) {
  const int32_t obs = brim_uav_sizes(v).obs, crop = v->crop, plane = crop * crop;
  if (brim_grid_is_peer(v)) {
    for (int32_t i = 0; i < obs; i++) out[i] = brim_grid_peer_sees(v, s, agent, i);
    return;
  }
  for (int32_t row = 0; row < crop; row++) {
    const brim_grid_strip strip = brim_grid_look(v, s, s->rest[agent], row);
    float *to = out + row * crop;
    for (int32_t i = 0; i < crop; i++) {
      to[i] = (float)(strip.blocked >> i & 1);
      to[plane + i] = (float)(strip.covered >> i & 1);
      to[2 * plane + i] = (float)(strip.others >> i & 1);
    }
  }
  if (brim_grid_has_goals(v)) {
    const uint32_t place = s->rest[agent];
    const int32_t column = brim_grid_goal_x(place) - brim_grid_x(place) + crop / 2;
    const int32_t row = brim_grid_goal_y(place) - brim_grid_y(place) + crop / 2;
    if (brim_grid_inside(crop, column, row)) out[plane + row * crop + column] = 1.0f;
  }
  for (int32_t i = 3 * plane; i < obs; i++) {
    out[i] = brim_grid_sees_itself(v, s, agent, i - 3 * plane);
  }
}

// Writes bits into words, from the lowest bit on.
typedef struct brim_grid_words_of {
  uint32_t *to, word;
  int32_t used;
} brim_grid_words_of;

// Appends `count` bits, 1 to 31; higher bits must be 0.
BRIM_HD void brim_grid_append(brim_grid_words_of *w, uint32_t bits, int32_t count) {
  w->word |= bits << w->used;
  w->used += count;
  if (w->used < 32) return;
  w->used -= 32;
  *w->to++ = w->word;
  w->word = bits >> (count - w->used);
}

// For rules brim: returns a row of plane `which`, with the bits of the columns that exist.
BRIM_HD uint32_t brim_grid_plane_row(const brim_uav_values *v, const brim_uav_state *s,
                                     int32_t agent, int32_t which, brim_grid_columns c, int32_t y) {
  const uint32_t place = s->rest[agent];
  if (which == 1 && brim_grid_has_goals(v)) {
    const int32_t column = brim_grid_goal_x(place) - brim_grid_x(place) + v->crop / 2;
    const int seen = brim_grid_goal_y(place) == y && column >= 0 && column < v->crop;
    return seen ? (uint32_t)1 << column : 0;
  }
  const int32_t at = which == 0   ? brim_grid_obstacles_at(v)
                     : which == 1 ? brim_grid_covered_at(v)
                                  : brim_grid_occupied_at(v);
  const uint32_t bits = brim_grid_piece(s->rest + at, v->size, c, y);
  if (which == 0) return bits | ~c.all;
  return which == 2 && brim_grid_y(place) == y ? bits & ~((uint32_t)1 << v->crop / 2) : bits;
}

// For rules peer and a window of at most 32 cells: returns its flags in one word. An agent sees columns, so bit i
// of row j becomes bit i * crop + j. A product makes copies of the row, crop - 1 apart; in these copies every bit
// but the last is at its place.
BRIM_HD uint32_t brim_grid_peer_window(const brim_uav_values *v, const uint32_t *obstacles,
                                       brim_grid_columns columns, int32_t y) {
  const int32_t crop = v->crop, last = crop - 1;
  const uint32_t all = ((uint32_t)1 << crop) - 1, low = all >> 1;
  uint32_t copies = 0, kept = 0, out = 0;
  for (int32_t i = 0; i < last; i++) {
    copies |= (uint32_t)1 << i * last;
    kept |= (uint32_t)1 << i * crop;
  }
  for (int32_t j = 0; j < crop; j++) {
    const int there = y + j >= 0 && y + j < v->size;
    const uint32_t seen = there ? brim_grid_piece(obstacles, v->size, columns, y + j) : all;
    const uint32_t row = (seen | ~columns.all) & all;
    out |= (((row & low) * copies & kept) | row >> last << last * crop) << j;
  }
  return out;
}

BRIM_HD int32_t brim_uav_flags(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                               uint32_t *out) {
  const int peer = brim_grid_is_peer(v);
  const int32_t crop = v->crop, count = (peer ? 1 : 3) * crop * crop;
  if (!out) return count;
  const uint32_t all = (uint32_t)brim_grid_low_bits(crop);
  const int32_t x = brim_grid_x(s->rest[agent]) - crop / 2;
  const int32_t y = brim_grid_y(s->rest[agent]) - crop / 2;
  const brim_grid_columns columns = brim_grid_clip(v->size, x, crop);
  if (peer && count <= 32) {
    *out = brim_grid_peer_window(v, s->rest + brim_grid_obstacles_at(v), columns, y);
    return count;
  }
  brim_grid_words_of w = {out, 0, 0};
  for (int32_t which = 0; which < (peer ? 1 : 3); which++) {
    for (int32_t i = 0; i < crop; i++) {
      uint32_t bits = 0;
      if (peer) {  // column by column
        const uint32_t *obstacles = s->rest + brim_grid_obstacles_at(v);
        for (int32_t j = 0; j < crop; j++) {
          bits |= (uint32_t)brim_grid_blocked(obstacles, v->size, x + i, y + j) << j;
        }
      } else if (y + i >= 0 && y + i < v->size) {
        bits = brim_grid_plane_row(v, s, agent, which, columns, y + i) & all;
      } else if (which == 0) {
        bits = all;
      }
      brim_grid_append(&w, bits, crop);
    }
  }
  if (w.used > 0) *w.to = w.word;
  return count;
}

//---------------------------------- the critic ----------------------------------

// Counts the set cells of the block of 4 x 4 whose north-west corner is (x, y).
BRIM_HD int32_t brim_grid_block(const uint32_t *map, int32_t size, int32_t x, int32_t y) {
  const int32_t rows = size - y < 4 ? size - y : 4, columns = size - x < 4 ? size - x : 4;
  uint32_t all = 0;
  for (int32_t row = 0; row < rows; row++) {
    const int32_t start = (y + row) * size + x, word = start >> 5, skip = start & 31;
    uint32_t bits = map[word] >> skip;
    if (skip + columns > 32) bits |= map[word + 1] << (32 - skip);
    all |= (bits & (((uint32_t)1 << columns) - 1)) << 4 * row;
  }
  return brim_grid_ones(all);
}

BRIM_HD float brim_uav_global_sees(const brim_uav_values *v, const brim_uav_state *s,
                                   int32_t index) {
  const int peer = brim_grid_is_peer(v), goals = brim_grid_has_goals(v);
  const int32_t pairs = (goals ? 4 : 2) * v->num_uavs;
  if (index < pairs) {
    const int goal = index >= 2 * v->num_uavs;
    const uint32_t place = s->rest[(index - (goal ? 2 * v->num_uavs : 0)) >> 1];
    const uint32_t word = goal ? place >> 16 : place;
    const int32_t at = index & 1 ? brim_grid_y(word) : brim_grid_x(word);
    return peer ? (float)at / (float)v->size : brim_grid_64th(at);
  }
  index -= pairs;
  if (index == 0) return brim_grid_fraction(s->time, v->episode_steps);
  if (index == 1 && !goals) return brim_grid_fraction(s->found, brim_grid_free_cells(v));
  index -= goals ? 1 : 2;
  const int32_t side = (v->size + 3) / 4, plane = side * side;
  const int32_t which = (index >= plane) + (index >= 2 * plane), within = index - which * plane;
  const int32_t row = within / side;
  const int32_t order = which + goals;  // 0 = covered, 1 = obstacles, 2 = UAVs
  const int32_t at = order == 0   ? brim_grid_covered_at(v)
                     : order == 1 ? brim_grid_obstacles_at(v)
                                  : brim_grid_occupied_at(v);
  const int32_t count = brim_grid_block(s->rest + at, v->size, 4 * (within - row * side), 4 * row);
  return (float)count * (1.0f / 16.0f);
}

BRIM_HD void brim_uav_global(const brim_uav_values *v, const brim_uav_state *s, float *out) {
  const int32_t count = brim_uav_sizes(v).global;
  for (int32_t i = 0; i < count; i++) out[i] = brim_uav_global_sees(v, s, i);
}

//---------------------------------- a replay ----------------------------------

// Writes a frame in this order, with A UAVs; the scene in uav.c names the parts:
//   covered cells or goals reached; coverage: percent of the free cells; collisions so far
//   x and y of each UAV
//   result of each UAV's last step, bits: 1 blocked, 2 stopped by another UAV (peer: in a shared cell),
//   4 a new cell or a goal reached
//   goals: x and y of each goal
//   obstacles, 16 cells to a number: cell 16 i + k is bit k of number i
//   coverage: covered cells, in the same form
BRIM_HD void brim_uav_frame(const brim_uav_values *v, const brim_uav_state *s, float *out) {
  enum { MOST = 99999 };  // a replay takes no larger numbers
  const int goals = brim_grid_has_goals(v);
  const int32_t numbers = (brim_grid_cells(v) + 15) / 16, a = v->num_uavs;
  float *uavs = out + 3, *what = uavs + 2 * a, *goal = what + a, *map = goal + 2 * a * goals;
  out[0] = (float)(s->found < MOST ? s->found : MOST);
  out[1] = goals ? 0.0f : 100.0f * (float)s->found / (float)brim_grid_free_cells(v);
  out[2] = (float)(s->collisions < MOST ? s->collisions : MOST);
  for (int32_t i = 0; i < a; i++) {
    const uint32_t place = s->rest[i];
    uavs[2 * i] = (float)brim_grid_x(place);
    uavs[2 * i + 1] = (float)brim_grid_y(place);
    what[i] = (float)brim_grid_what(s->rest[a + i]);
    if (!goals) continue;
    goal[2 * i] = (float)brim_grid_goal_x(place);
    goal[2 * i + 1] = (float)brim_grid_goal_y(place);
  }
  for (int32_t which = 0; which < 2 - goals; which++, map += numbers) {
    const uint32_t *from = s->rest + (which ? brim_grid_covered_at(v) : brim_grid_obstacles_at(v));
    for (int32_t i = 0; i < numbers; i++) map[i] = (float)(from[i / 2] >> 16 * (i % 2) & 0xffff);
  }
}

BRIM_HD void brim_uav_figures(const brim_uav_values *v, const brim_uav_state *s, float *out) {
  const int goals = brim_grid_has_goals(v);
  out[0] = goals ? 0.0f : (float)s->found;
  out[1] = (float)s->sum;
  out[2] = (float)s->collisions;
  out[3] = (float)s->overlap;
  out[4] = goals ? (float)s->found : 0.0f;
}

// Indices of the metric rows.
enum {
  BRIM_UAV_COVERED_END,
  BRIM_UAV_COVERED_MEAN,
  BRIM_UAV_COLLISIONS,
  BRIM_UAV_OVERLAP,
  BRIM_UAV_ARRIVALS,
  BRIM_UAV_FIGURES
};

BRIM_HD void brim_uav_count(const brim_uav_values *v, int32_t steps,
                            const brim_rollout_episode *episode, const float *raw,
                            double (*sums)[2]) {
  sums[BRIM_UAV_COLLISIONS][0] += (double)raw[2];
  sums[BRIM_UAV_COLLISIONS][1] += 1;
  if (brim_grid_has_goals(v)) {
    sums[BRIM_UAV_ARRIVALS][0] += (double)raw[4];
    sums[BRIM_UAV_ARRIVALS][1] += 1;
    return;
  }
  const double free_cells = brim_grid_free_cells(v);
  // an episode that covered everything early counts as covered in its remaining steps
  const int32_t left = episode->outcome == BRIM_ENV_TERMINATED ? steps - episode->length : 0;
  sums[BRIM_UAV_COVERED_END][0] += (double)raw[0] / free_cells;
  sums[BRIM_UAV_COVERED_END][1] += 1;
  sums[BRIM_UAV_COVERED_MEAN][0] += (double)raw[1] / free_cells + left;
  sums[BRIM_UAV_COVERED_MEAN][1] += episode->length + left;
  sums[BRIM_UAV_OVERLAP][0] += (double)raw[3];
  sums[BRIM_UAV_OVERLAP][1] += (double)episode->length * v->num_uavs;
}

//---------------------------------- the baseline ----------------------------------
// The grid world's baseline `greedy`: each UAV decides by its own observation.
// Coverage: it goes to the nearest uncovered cell in view, along a shortest way through free cells in view, around
// other UAVs. Ties go to the first of north, east, south, west. If it can reach no such cell, it keeps its heading
// until something blocks it, then makes a random move.
// Goals: it moves towards the goal, along the longer axis if both are free. One move in four is random, and every
// move is random if none brings it nearer.

// Returns the moves into a free cell; under rules brim the cell must also have no UAV.
BRIM_HD uint32_t brim_grid_open_moves(const brim_uav_values *v, const brim_uav_state *s,
                                      int32_t agent) {
  const int peer = brim_grid_is_peer(v);
  const int32_t x = brim_grid_x(s->rest[agent]), y = brim_grid_y(s->rest[agent]);
  uint32_t open = 0;
  for (int32_t a = 1; a < brim_uav_ACT; a++) {
    const int32_t nx = x + brim_grid_dx(peer, a), ny = y + brim_grid_dy(peer, a);
    if (brim_grid_blocked(s->rest + brim_grid_obstacles_at(v), v->size, nx, ny)) continue;
    if (!peer && brim_grid_bit(s->rest + brim_grid_occupied_at(v), ny * v->size + nx)) continue;
    open |= (uint32_t)1 << a;
  }
  return open;
}

// Returns the first move of a shortest way to an uncovered cell in view; 0 = there is none. Grows the set of cells
// that are at most k moves from such a cell until a neighbour of the UAV is in it.
BRIM_HD int32_t brim_grid_nearest(const brim_uav_values *v, const brim_uav_state *s,
                                  int32_t agent) {
  uint32_t open[BRIM_UAV_MAX_CROP], near[BRIM_UAV_MAX_CROP];
  const int32_t half = v->crop / 2;
  const uint32_t middle = (uint32_t)1 << half;
  for (int32_t row = 0; row < v->crop; row++) {
    const brim_grid_strip strip = brim_grid_look(v, s, s->rest[agent], row);
    open[row] = (uint32_t)brim_grid_low_bits(v->crop) & ~(strip.blocked | strip.others);
    near[row] = open[row] & ~strip.covered;
  }
  for (int growing = 1; growing;) {
    if (half > 0) {
      if (near[half - 1] & middle) return 1;
      if (near[half] & middle << 1) return 2;
      if (near[half + 1] & middle) return 3;
      if (near[half] & middle >> 1) return 4;
    }
    growing = 0;
    uint32_t above = 0;
    for (int32_t row = 0; row < v->crop; row++) {
      const uint32_t here = near[row], below = row + 1 < v->crop ? near[row + 1] : 0;
      near[row] |= (above | below | here << 1 | here >> 1) & open[row];
      growing |= near[row] != here;
      above = here;
    }
  }
  return 0;
}

BRIM_HD int32_t brim_grid_towards(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                                  uint32_t open) {
  const int peer = brim_grid_is_peer(v);
  const uint32_t place = s->rest[agent];
  const int32_t way_x = brim_grid_goal_x(place) - brim_grid_x(place);
  const int32_t way_y = brim_grid_goal_y(place) - brim_grid_y(place);
  int32_t best = 0, most = 0;
  for (int32_t a = 1; a < brim_uav_ACT; a++) {
    const int32_t gain = brim_grid_dx(peer, a) * way_x + brim_grid_dy(peer, a) * way_y;
    if (!(open >> a & 1) || gain <= most) continue;
    best = a;
    most = gain;
  }
  return best;
}

BRIM_HD int32_t brim_uav_rule(const brim_uav_values *v, const brim_uav_state *s, int32_t agent,
                              int32_t rule, uint32_t bits) {
  (void)rule;  // the only rule is greedy
  const uint32_t open = brim_grid_open_moves(v, s, agent);
  int32_t move;
  if (brim_grid_has_goals(v)) {
    // random moves, or a UAV could go back and forth forever in a corner of obstacles
    move = bits & 3 ? brim_grid_towards(v, s, agent, open) : 0;
  } else {
    const int32_t heading = brim_grid_heading(s->rest[v->num_uavs + agent]);
    move = brim_grid_nearest(v, s, agent);
    if (!move && heading && (open >> heading & 1)) move = heading;
  }
  return move ? move : brim_env_any(open, bits);
}

#endif  // BRIM_UAV_H_
