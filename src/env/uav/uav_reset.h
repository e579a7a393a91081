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

// Free cells of row y; outside there are none.
BRIM_HD uint64_t brim_grid_free_row(const uint32_t *obstacles, int32_t size, int32_t y) {
  if (y < 0 || y >= size) return 0;
  return brim_grid_low_bits(size) & ~brim_grid_row_bits(obstacles, size, y);
}

// The free cells of a row that may become obstacles: the free cells around such a cell stay within each
// other's reach, since its free neighbours lie in one arc of free cells of the ring of eight. Then all free
// cells do. There are cells that fail although a longer way around exists.
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

// The first cell behind `cell` that may become an obstacle; behind the last cell comes the first one, and
// `cell` itself is the last that is tried. -1: none may. `rows` has a bit for each row that may have one;
// those that have none are taken out.
BRIM_HD int32_t brim_grid_next_to_block(const uint32_t *obstacles, int32_t size, int32_t cell,
                                        uint64_t *rows) {
  const int32_t y = cell / size;
  const uint64_t up_to = brim_grid_low_bits(cell - y * size + 1);  // `cell` and those before it
  const uint64_t own = *rows >> y & 1 ? brim_grid_may_block_row(obstacles, size, y) : 0;
  if (own & ~up_to) return y * size + brim_grid_lowest(own & ~up_to);
  for (int part = 0; part < 2; part++) {  // the rows behind, then those before
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

// A free cell that is farthest from the first free one. Without it the others stay connected, since
// shortest ways to all of them avoid it.
BRIM_HD int32_t brim_grid_farthest(const uint32_t *obstacles, int32_t size) {
  uint64_t unseen[BRIM_UAV_MAX_SIZE], layer[BRIM_UAV_MAX_SIZE];
  int32_t found = -1, far = -1;
  for (int32_t y = 0; y < size; y++) {
    unseen[y] = brim_grid_free_row(obstacles, size, y);
    layer[y] = 0;
    if (found < 0 && unseen[y]) found = y * size + brim_grid_lowest(unseen[y]);
  }
  uint64_t rows = (uint64_t)1 << found / size;  // that have cells of the layer
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
      // the row before the next one, before it is replaced; where rows are left out they are empty
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
  uint64_t rows = brim_grid_low_bits(v->size);  // that may have a cell to block
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
  // where they start is covered
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  uint32_t *covered = s->rest + brim_grid_covered_at(v);
  for (int32_t i = 0; i < brim_grid_words(v); i++) covered[i] = occupied[i];
  s->found = v->num_uavs;
}

#endif  // BRIM_UAV_RESET_H_
