// What agents, a critic and a replay see of the grid world. Under rules brim all numbers are binary fractions
// with at most 8 significant bits, which float16 and bfloat16 hold exactly.
// An agent: crop x crop cells around it, row by row from the north-west, in three planes (an obstacle or
// outside; covered, or with the task goals the agent's goal; another UAV); x and y / 64; time / 256 as a share of the
// episode; the last move that led anywhere (north, east, south, west); goals: the way to it, x and y / 64;
// which agent it is, 1 of num_uavs.
// A critic: x and y / 64 of all UAVs; goals: of all goals; time; coverage: covered cells as a share of the
// free ones / 256; blocks of 4 x 4 cells, row by row: how many of 16 are covered (coverage), are obstacles, have
// a UAV.
// Rules peer: an agent sees obstacles alone, column by column, the way to its goal and its place, / size; a
// critic sees all places, then all goals, / size.
#ifndef BRIM_UAV_VIEW_H_
#define BRIM_UAV_VIEW_H_

#include "env/uav/uav_state.h"

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

// part / whole in 256ths, rounded down.
BRIM_HD float brim_grid_fraction(int32_t part, int32_t whole) {
  const int32_t k = part < whole ? part * 256 / whole : 256;
  return (float)k * (1.0f / 256.0f);
}

BRIM_HD float brim_grid_64th(int32_t k) { return (float)k * (1.0f / 64.0f); }

// Number `index` of what comes behind the planes.
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

// Rules brim: rows of what an agent sees, bit `column` of each; `row` counts from the north.
typedef struct brim_grid_strip {
  uint32_t blocked, covered, others;  // of a task without covered cells: 0
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

// Words that are filled from their lowest bit on.
typedef struct brim_grid_words_of {
  uint32_t *to, word;
  int32_t used;
} brim_grid_words_of;

// `count` bits more, 1 to 31; those above them are 0.
BRIM_HD void brim_grid_append(brim_grid_words_of *w, uint32_t bits, int32_t count) {
  w->word |= bits << w->used;
  w->used += count;
  if (w->used < 32) return;
  w->used -= 32;
  *w->to++ = w->word;
  w->word = bits >> (count - w->used);
}

// A row of plane `which` under rules brim: bits of the columns that exist.
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

// Peer, a window of at most 32 cells: its flags in one word. Of row j, bit i becomes bit i * crop + j, since
// an agent sees columns: copies of the row crop - 1 apart have each of its bits but the last at its place.
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

// Set cells of the block of 4 x 4 whose north-west corner is (x, y).
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
  const int32_t order = which + goals;  // covered, obstacles, UAVs
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

// In this order, with A UAVs; uav_scene.c names the parts:
//   covered cells or goals reached; coverage: percent of the free cells; collisions so far
//   x and y of each UAV
//   what became of each in the last step, bits: 1 blocked, 2 stopped by another UAV (peer: in a shared cell),
//   4 a new cell or a goal reached
//   goals: x and y of each goal
//   obstacles, 16 cells to a number: cell 16 i + k is bit k of number i
//   coverage: covered cells, likewise
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

// Rows of metrics.
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
  // an episode that covered everything early stays at that until the end
  const int32_t left = episode->outcome == BRIM_ENV_TERMINATED ? steps - episode->length : 0;
  sums[BRIM_UAV_COVERED_END][0] += (double)raw[0] / free_cells;
  sums[BRIM_UAV_COVERED_END][1] += 1;
  sums[BRIM_UAV_COVERED_MEAN][0] += (double)raw[1] / free_cells + left;
  sums[BRIM_UAV_COVERED_MEAN][1] += episode->length + left;
  sums[BRIM_UAV_OVERLAP][0] += (double)raw[3];
  sums[BRIM_UAV_OVERLAP][1] += (double)episode->length * v->num_uavs;
}

#endif  // BRIM_UAV_VIEW_H_
