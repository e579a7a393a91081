// New episodes of the grid world: obstacles that leave every free cell within reach, UAVs on free cells of
// their own, goals. All of it is drawn from the key of starts.
#ifndef BRIM_UAV_RESET_H_
#define BRIM_UAV_RESET_H_

#include "env/uav/uav_state.h"

// Counters of the draws of a start.
enum {
  BRIM_UAV_DRAW_OBSTACLES = 0,
  BRIM_UAV_DRAW_UAVS = 2 * BRIM_UAV_MAX_CELLS,
  BRIM_UAV_DRAW_GOALS = BRIM_UAV_DRAW_UAVS + 2 * BRIM_UAV_MAX_UAVS,
  BRIM_UAV_TRIES = 8  // four for each draw
};

BRIM_HD int32_t brim_grid_below(uint32_t bits, int32_t count) {
  return (int32_t)brim_mulhi32(bits, (uint32_t)count);
}

// Whether the free cells around a free cell stay within each other's reach when it becomes an obstacle: its
// free neighbours lie in one arc of free cells of the ring of eight. Then all free cells do. There are cells
// that fail although a longer way around exists.
BRIM_HD int brim_grid_may_block(const uint32_t *obstacles, int32_t size, int32_t cell) {
  const int32_t y = cell / size, x = cell - y * size;
  uint32_t sides = 0, corners = 0;  // north, east, south, west; corner k is before side k
  if (brim_grid_bit(obstacles, cell)) return 0;
  for (int32_t k = 0; k < 4; k++) {
    const int32_t dx = (k == 1) - (k == 3), dy = (k == 2) - (k == 0);
    // the side before it, counted clockwise, is a quarter turn back: (dy, -dx)
    sides |= (uint32_t)!brim_grid_blocked(obstacles, size, x + dx, y + dy) << k;
    corners |= (uint32_t)!brim_grid_blocked(obstacles, size, x + dx + dy, y + dy - dx) << k;
  }
  const uint32_t before = (sides << 1 | sides >> 3) & 15;
  return brim_grid_ones(sides) - brim_grid_ones(sides & before & corners) <= 1;
}

// A free cell that is farthest from the first free one. Without it the others stay connected, since
// shortest ways to all of them avoid it.
BRIM_HD int32_t brim_grid_farthest(const uint32_t *obstacles, int32_t size) {
  uint64_t seen[BRIM_UAV_MAX_SIZE], layer[BRIM_UAV_MAX_SIZE];
  const uint64_t all = brim_grid_low_bits(size);
  int32_t first = 0, far = -1;
  while (brim_grid_bit(obstacles, first)) first++;
  for (int32_t y = 0; y < size; y++) seen[y] = layer[y] = 0;
  seen[first / size] = layer[first / size] = (uint64_t)1 << first % size;
  for (int32_t found = first; found >= 0;) {
    far = found;
    found = -1;
    uint64_t above = 0;  // the layer of the row before, before it was replaced
    for (int32_t y = 0; y < size; y++) {
      const uint64_t here = layer[y], below = y + 1 < size ? layer[y + 1] : 0;
      const uint64_t around = above | below | here << 1 | here >> 1;
      const uint64_t next = around & all & ~brim_grid_row_bits(obstacles, size, y) & ~seen[y];
      above = here;
      layer[y] = next;
      for (int32_t x = 0; next && found < 0; x++) {
        if (next >> x & 1) found = y * size + x;
      }
    }
    for (int32_t y = 0; y < size; y++) seen[y] |= layer[y];
  }
  return far;
}

BRIM_HD void brim_grid_put_obstacles(const brim_uav_values *v, const brim_env_track *t,
                                     uint32_t *map) {
  const int32_t cells = brim_grid_cells(v);
  for (int32_t i = 0; i < v->num_obstacles; i++) {
    int32_t cell = 0, found = 0;
    brim_philox4 r = {{0, 0, 0, 0}};
    for (int32_t k = 0; k < BRIM_UAV_TRIES && !found; k++) {
      const int32_t n = BRIM_UAV_DRAW_OBSTACLES + 2 * i + k / 4;
      if (k % 4 == 0) r = brim_env_draw(t->who.start_key, &t->who, t->episode, n);
      cell = brim_grid_below(r.v[k % 4], cells);
      found = brim_grid_may_block(map, v->size, cell);
    }
    for (int32_t k = 0; k < cells && !found; k++) {
      cell = cell + 1 < cells ? cell + 1 : 0;
      found = brim_grid_may_block(map, v->size, cell);
    }
    if (!found) cell = brim_grid_farthest(map, v->size);
    brim_grid_set(map, cell);
  }
}

// UAVs on free cells, no two on one.
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
      if (k % 4 == 0) r = brim_env_draw(t->who.start_key, &t->who, t->episode, n);
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

// Rules brim: another free cell than the one the UAV is in.
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

// Rules peer: any cell.
BRIM_HD uint32_t brim_grid_peer_goal(const brim_uav_values *v, uint32_t place, brim_philox4 r) {
  return brim_grid_place(brim_grid_x(place), brim_grid_y(place), brim_grid_below(r.v[2], v->size),
                         brim_grid_below(r.v[3], v->size));
}

// Every cell is an obstacle with the same probability, drawn by the environment and not by the episode: the
// map stays. UAVs and goals are anywhere, on obstacles too.
BRIM_HD void brim_grid_peer_reset(const brim_uav_values *v, const brim_env_track *t,
                                  brim_uav_state *s) {
  const int32_t cells = brim_grid_cells(v);
  const uint32_t below = (uint32_t)(((uint64_t)(uint32_t)v->num_obstacles << 32) / (uint32_t)cells);
  uint32_t *map = s->rest + brim_grid_obstacles_at(v), word = 0;
  brim_philox4 r = {{0, 0, 0, 0}};
  for (int32_t cell = 0; cell < cells; cell++) {
    if (cell % 4 == 0) r = brim_env_draw(t->who.start_key, &t->who, 0, cell / 4);
    word |= (uint32_t)(r.v[cell % 4] < below) << (cell & 31);
    if ((cell & 31) < 31 && cell + 1 < cells) continue;
    map[cell >> 5] = word;
    word = 0;
  }
  for (int32_t i = 0; i < v->num_uavs; i++) {
    r = brim_env_draw(t->who.start_key, &t->who, t->episode, BRIM_UAV_DRAW_UAVS + i);
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
          brim_env_draw(t->who.start_key, &t->who, t->episode, BRIM_UAV_DRAW_GOALS + i);
      s->rest[i] = brim_grid_new_goal(v, obstacles, s->rest[i], r);
    }
    return;
  }
  // where they start is covered
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  uint32_t *covered = s->rest + brim_grid_covered_at(v);
  for (int32_t i = 0; i < brim_grid_words(v); i++) covered[i] = occupied[i];
  s->found = v->num_uavs;
}

#endif  // BRIM_UAV_RESET_H_
