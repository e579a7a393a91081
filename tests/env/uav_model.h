// The grid world again, written plainly for the tests alone: arrays of cells and sets of UAVs instead of bits. It
// shares nothing with src/env/uav except the layout of a state, which model_read parses by hand.
#ifndef BRIM_TESTS_ENV_UAV_MODEL_H_
#define BRIM_TESTS_ENV_UAV_MODEL_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "env/uav/uav.h"

typedef struct model {
  int size, uavs, steps;
  bool goals;
  bool wall[64][64], covered[64][64];  // [y][x]
  int x[32], y[32], goal_x[32], goal_y[32];
  int heading[32];
  int hundredths[32];  // rewards of the last step
  bool blocked[32], stopped[32], found[32];
  int time, total_found, sum, collisions, overlap;
  bool complete;  // coverage: all cells are covered
} model;

// Default settings for these rules and this task.
static inline brim_uav_values uav_values(int32_t rules, int32_t task) {
  brim_uav_values v = {.rules = rules, .task = task};
  unsigned char bytes[BRIM_ENV_VALUES] = {0};
  memcpy(bytes, &v, sizeof v);
  brim_uav_row.defaults(0, bytes);
  memcpy(&v, bytes, sizeof v);
  return v;
}

static inline brim_uav_values uav_grid(int32_t size, int32_t uavs, int32_t obstacles,
                                       int32_t crop) {
  brim_uav_values v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_COVERAGE);
  v.size = size;
  v.num_uavs = uavs;
  v.num_obstacles = obstacles;
  v.crop = crop;
  return v;
}

static inline brim_env_track uav_track(uint64_t seed, int32_t env) {
  return brim_env_track_of(brim_env_training(seed, 0, 0, env));
}

static inline uint32_t model_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 32);
}
static inline int model_below(uint64_t *state, int count) {
  return (int)(model_random(state) % (uint32_t)count);
}

// One bit from the words of a state behind its five counters.
static inline bool model_map_bit(const brim_uav_state *s, int word, int cell) {
  return s->rest[word + cell / 32] >> (cell % 32) & 1;
}

static inline int model_words(const model *m) { return (m->size * m->size + 31) / 32; }

// Parses a state of rules=brim; false if its map of UAVs disagrees with its list of UAVs.
static inline bool model_read(const brim_uav_values *v, const brim_uav_state *s, model *m) {
  memset(m, 0, sizeof *m);
  m->size = v->size;
  m->uavs = v->num_uavs;
  m->steps = v->episode_steps;
  m->goals = v->task == BRIM_UAV_GOALS;
  m->time = s->time;
  m->total_found = s->found;
  m->sum = s->sum;
  m->collisions = s->collisions;
  m->overlap = s->overlap;
  const int words = model_words(m), first = 2 * m->uavs;
  const int occupied = first + words + (m->goals ? 0 : words);
  bool there[64][64] = {{0}};
  for (int i = 0; i < m->uavs; i++) {
    const uint32_t place = s->rest[i], last = s->rest[m->uavs + i];
    m->x[i] = place & 255;
    m->y[i] = place >> 8 & 255;
    m->goal_x[i] = place >> 16 & 255;
    m->goal_y[i] = (int)(place >> 24);
    m->hundredths[i] = (int16_t)(last & 0xffff);
    m->heading[i] = last >> 16 & 15;
    m->blocked[i] = last >> 20 & 1;
    m->stopped[i] = last >> 21 & 1;
    m->found[i] = last >> 22 & 1;
    if (m->x[i] >= m->size || m->y[i] >= m->size) return false;
    there[m->y[i]][m->x[i]] = true;
  }
  for (int y = 0; y < m->size; y++) {
    for (int x = 0; x < m->size; x++) {
      const int cell = y * m->size + x;
      m->wall[y][x] = model_map_bit(s, first, cell);
      if (!m->goals) m->covered[y][x] = model_map_bit(s, first + words, cell);
      if (model_map_bit(s, occupied, cell) != there[y][x]) return false;
    }
  }
  return true;
}

// The reverse: writes a model as a state.
static inline void model_write(const model *m, brim_uav_state *s) {
  memset(s, 0, sizeof *s);
  s->time = m->time;
  s->found = m->total_found;
  s->sum = m->sum;
  s->collisions = m->collisions;
  s->overlap = m->overlap;
  const int words = model_words(m), first = 2 * m->uavs;
  const int occupied = first + words + (m->goals ? 0 : words);
  for (int i = 0; i < m->uavs; i++) {
    s->rest[i] = (uint32_t)(m->x[i] + 256 * m->y[i]) + ((uint32_t)m->goal_x[i] << 16) +
                 ((uint32_t)m->goal_y[i] << 24);
    s->rest[m->uavs + i] = (uint32_t)m->heading[i] << 16;
    const int cell = m->y[i] * m->size + m->x[i];
    s->rest[occupied + cell / 32] |= (uint32_t)1 << cell % 32;
  }
  for (int cell = 0; cell < m->size * m->size; cell++) {
    const uint32_t bit = (uint32_t)1 << cell % 32;
    if (m->wall[cell / m->size][cell % m->size]) s->rest[first + cell / 32] |= bit;
    if (m->covered[cell / m->size][cell % m->size]) s->rest[first + words + cell / 32] |= bit;
  }
}

static inline bool model_wall(const model *m, int x, int y) {
  return x < 0 || y < 0 || x >= m->size || y >= m->size || m->wall[y][x];
}

static inline int model_uav_at(const model *m, int x, int y) {
  for (int i = 0; i < m->uavs; i++) {
    if (m->x[i] == x && m->y[i] == y) return i;
  }
  return -1;
}

// The UAVs that stay: a set that grows by rounds of all rules, until a round adds none.
static inline void model_stayers(const model *m, const int *to_x, const int *to_y, bool *stays) {
  for (bool grown = true; grown;) {
    bool add[32] = {0};
    for (int i = 0; i < m->uavs; i++) {
      if (stays[i]) continue;
      const int other = model_uav_at(m, to_x[i], to_y[i]);
      // the cell of a UAV that stays
      if (other >= 0 && stays[other]) add[i] = true;
      // two UAVs swap cells
      if (other >= 0 && to_x[other] == m->x[i] && to_y[other] == m->y[i]) add[i] = true;
      // another UAV heads for the same cell, and comes first
      for (int j = 0; j < i; j++) {
        if (!stays[j] && to_x[j] == to_x[i] && to_y[j] == to_y[i]) add[i] = true;
      }
    }
    grown = false;
    for (int i = 0; i < m->uavs; i++) {
      grown |= add[i];
      stays[i] |= add[i];
    }
  }
}

static inline int model_way(const model *m, int i) {
  return abs(m->goal_x[i] - m->x[i]) + abs(m->goal_y[i] - m->y[i]);
}

// New goals are drawn, so the model does not have them: an arrived UAV keeps its old goal here.
static inline void model_step(model *m, const int32_t *action) {
  static const int dx[5] = {0, 0, 1, 0, -1}, dy[5] = {0, -1, 0, 1, 0};
  int to_x[32], to_y[32], way[32];
  bool stays[32], wants[32];
  for (int i = 0; i < m->uavs; i++) {
    to_x[i] = m->x[i] + dx[action[i]];
    to_y[i] = m->y[i] + dy[action[i]];
    way[i] = model_way(m, i);
    m->blocked[i] = action[i] && model_wall(m, to_x[i], to_y[i]);
    m->stopped[i] = m->found[i] = false;
    wants[i] = action[i] && !m->blocked[i];
    stays[i] = !wants[i];
    if (!stays[i]) continue;
    to_x[i] = m->x[i];
    to_y[i] = m->y[i];
  }
  model_stayers(m, to_x, to_y, stays);
  for (int i = 0; i < m->uavs; i++) {
    m->hundredths[i] = -1;
    m->stopped[i] = wants[i] && stays[i];
    m->collisions += m->stopped[i];
    if (m->stopped[i] || m->blocked[i]) m->hundredths[i] -= 20;
    if (stays[i]) continue;
    m->x[i] = to_x[i];
    m->y[i] = to_y[i];
    m->heading[i] = action[i];
    if (m->goals) {
      m->hundredths[i] += 10 * (way[i] - model_way(m, i));
      m->found[i] = model_way(m, i) == 0;
      m->hundredths[i] += m->found[i] ? 500 : 0;
    } else {
      m->found[i] = !m->covered[to_y[i]][to_x[i]];
      m->overlap += !m->found[i];
      m->hundredths[i] += m->found[i] ? 100 : 0;
      m->covered[to_y[i]][to_x[i]] = true;
    }
    m->total_found += m->found[i];
  }
  m->time++;
  m->complete = !m->goals;
  for (int y = 0; y < m->size && !m->goals; y++) {
    for (int x = 0; x < m->size; x++) m->complete &= m->wall[y][x] || m->covered[y][x];
  }
  if (!m->goals) m->sum += m->total_found;
  for (int i = 0; i < m->uavs && m->complete; i++) m->hundredths[i] += 1000;
}

// Counts free cells within reach of the first one, with a queue.
static inline int model_reach(const model *m) {
  static int queue[64 * 64];
  static bool seen[64][64];
  int count = 0, next = 0;
  memset(seen, 0, sizeof seen);
  for (int cell = 0; cell < m->size * m->size && !count; cell++) {
    if (m->wall[cell / m->size][cell % m->size]) continue;
    queue[count++] = cell;
    seen[cell / m->size][cell % m->size] = true;
  }
  while (next < count) {
    static const int dx[4] = {1, -1, 0, 0}, dy[4] = {0, 0, 1, -1};
    const int x = queue[next] % m->size, y = queue[next] / m->size;
    next++;
    for (int k = 0; k < 4; k++) {
      const int nx = x + dx[k], ny = y + dy[k];
      if (model_wall(m, nx, ny) || seen[ny][nx]) continue;
      seen[ny][nx] = true;
      queue[count++] = ny * m->size + nx;
    }
  }
  return count;
}

static inline int model_free(const model *m) {
  int count = 0;
  for (int y = 0; y < m->size; y++) {
    for (int x = 0; x < m->size; x++) count += !m->wall[y][x];
  }
  return count;
}

#endif  // BRIM_TESTS_ENV_UAV_MODEL_H_
