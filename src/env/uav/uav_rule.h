// The grid world's baseline `greedy`: each UAV by what it observes itself.
// Coverage: to the nearest uncovered cell it sees, along a shortest way through free cells it sees, around
// other UAVs. Of equal ones the first move of north, east, south, west. With none in reach it keeps its heading
// until something is in the way, and then takes a random move.
// Goals: a move towards the goal, along the longer axis where both are free. One move in four, and where no
// move brings it nearer, is random.
#ifndef BRIM_UAV_RULE_H_
#define BRIM_UAV_RULE_H_

#include "env/uav/uav_view.h"

// Moves that lead into a free cell; under rules brim, one without a UAV.
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

// The first move of a shortest way to an uncovered cell in view; 0 = there is none. Grows the set of cells
// from which one is so many moves away until the UAV has one of them beside it.
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
  (void)rule;  // there is one
  const uint32_t open = brim_grid_open_moves(v, s, agent);
  int32_t move;
  if (brim_grid_has_goals(v)) {
    // in a corner of obstacles it would go back and forth forever
    move = bits & 3 ? brim_grid_towards(v, s, agent, open) : 0;
  } else {
    const int32_t heading = brim_grid_heading(s->rest[v->num_uavs + agent]);
    move = brim_grid_nearest(v, s, agent);
    if (!move && heading && (open >> heading & 1)) move = heading;
  }
  return move ? move : brim_env_any(open, bits);
}

#endif  // BRIM_UAV_RULE_H_
