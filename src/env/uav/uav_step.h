// One step of the grid world. All UAVs move at once. Rules brim:
//   1. A move into an obstacle or over the edge is blocked: the UAV stays.
// 2. Of two or more that want one cell the one with the lowest number may continue; the others are
// stopped.
//   3. Two that want each other's cells are stopped.
//   4. A move into the cell of a UAV that stays, for whatever reason, is stopped; so on along a chain.
// UAVs that follow each other therefore move together, also around a ring of three or more. The result does
// not depend on an order of evaluation: the loser by rule 2 also stays when the winner is stopped
// later, since then the cell's UAV has stayed.
#ifndef BRIM_UAV_STEP_H_
#define BRIM_UAV_STEP_H_

#include "env/uav/uav_reset.h"

// What UAVs want, and what comes of it; bit i is UAV i.
typedef struct brim_grid_moves {
  int32_t from[BRIM_UAV_MAX_UAVS], to[BRIM_UAV_MAX_UAVS];  // cells
  uint32_t moving;
  uint32_t blocked;  // by an obstacle or the edge
  uint32_t stopped;  // by another UAV
} brim_grid_moves;

// Rule 1.
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

// Rules 2 to 4.
BRIM_HD void brim_grid_resolve(const brim_uav_values *v, const brim_uav_state *s,
                               brim_grid_moves *m) {
  const uint32_t *occupied = s->rest + brim_grid_occupied_at(v);
  const uint32_t wanted = m->moving;
  uint32_t lost = 0, follows = 0;
  int32_t ahead[BRIM_UAV_MAX_UAVS];  // the UAV in the target cell, where it follows
  for (int32_t i = 0; i < v->num_uavs; i++) {
    if (!(wanted >> i & 1)) continue;
    ahead[i] = 0;
    for (int32_t j = 0; j < i; j++) {
      if ((wanted >> j & 1) && m->to[j] == m->to[i]) lost |= (uint32_t)1 << i;
    }
    if (!brim_grid_bit(occupied, m->to[i])) continue;
    while (m->from[ahead[i]] != m->to[i]) ahead[i]++;
    follows |= (uint32_t)1 << i;
    if (m->to[ahead[i]] == m->from[i]) lost |= (uint32_t)1 << i;  // and the other one in its turn
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

// Coverage: the UAV is in its cell now. What it gets for that.
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

// Goals: the way that is left, and the next goal where there is none. `i` has the UAV's new place.
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

// The mean over UAVs, of integers: exact but for one rounding.
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
      // coordinates are bytes and stay within 0..63: adding the move to the word carries nothing
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

// Peer: UAVs do not see each other when they move. A UAV that starts on an obstacle and stays hits it.
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
  // the end is part of the task: nothing comes behind it
  o.end = s->time >= v->episode_steps ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING;
  return o;
}

BRIM_HD brim_env_outcome brim_uav_step(const brim_uav_values *v, const brim_env_track *t,
                                       brim_uav_state *s, const brim_uav_action *action) {
  return brim_grid_is_peer(v) ? brim_grid_peer_step(v, t, s, action)
                              : brim_grid_own_step(v, t, s, action);
}

// An agent's own reward of the last step.
BRIM_HD float brim_uav_share(const brim_uav_values *v, const brim_uav_state *s, int32_t agent) {
  return (float)brim_grid_reward(s->rest[v->num_uavs + agent]) / 100.0f;
}

#endif  // BRIM_UAV_STEP_H_
