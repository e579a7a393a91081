// Start states for the tests of the quadruped: recorded ones, and random ones.
#ifndef BRIM_TESTS_ENV_QUADRUPED_STATES_H_
#define BRIM_TESTS_ENV_QUADRUPED_STATES_H_

#include <math.h>
#include <zlib.h>

#include "quadruped_forms.h"
#include "test.h"

enum { COLUMNS = 54, LINES = 1000, STATES = 10000 };

typedef struct trace {
  const char *name;
  int rk4;
  double margin;
} trace;
static const trace traces[] = {
    {"mujoco222_euler_seed1.txt.gz", 0, 0.01},
    {"mujoco222_rk4_seed1.txt.gz", 1, 0.01},
    {"w_euler_1.txt.gz", 0, 0.02},
    {"w_rk4.txt.gz", 1, 0.02},
    {"w_tumble_1.txt.gz", 0, 0.02},
};

// Each line: qpos15 qvel14 ctrl8 qacc14 nefc ncon niter; the next line is the state after one step.
static inline int read_trace(const char *name, sample *s, int *contacts) {
  char path[1024];
  snprintf(path, sizeof(path), BRIM_SOURCE_DIR "/tests/data/quadruped/%s", name);
  gzFile file = gzopen(path, "rb");
  if (!file) fail_msg("cannot open %s", path);
  static char line[8192];
  int n = 0;
  while (n < LINES && gzgets(file, line, sizeof(line))) {
    double v[COLUMNS];
    char *at = line;
    for (int i = 0; i < COLUMNS; i++) v[i] = strtod(at, &at);
    memset(&s[n], 0, sizeof(s[n]));
    memcpy(s[n].qpos, v, sizeof(s[n].qpos));
    memcpy(s[n].qvel, v + 15, sizeof(s[n].qvel));
    memcpy(s[n].act, v + 29, sizeof(s[n].act));
    contacts[n++] = (int)v[52];
  }
  gzclose(file);
  return n;
}

// Uniform in [-1, 1).
static inline double draw(uint64_t *s) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (double)(*s >> 11) / 4503599627370496.0 - 1;
}

static inline void draw_state(uint64_t *seed, int kind, sample *s) {
  static const double sign[4] = {1, -1, -1, 1};
  // standing, pushed, tumbling, limits violated
  static const double tilt[4] = {0.1, 0.3, 2, 0.3}, speed[4] = {0.2, 3, 3, 2},
                      spin[4] = {0.2, 3, 6, 4}, bend[4] = {0.3, 0.5, 0.6, 0.7},
                      turn[4] = {0.3, 3, 6, 6};
  memset(s, 0, sizeof(*s));
  s->qpos[0] = 5 * draw(seed);
  s->qpos[1] = 5 * draw(seed);
  s->qpos[3] = kind == 2 ? draw(seed) : 1;
  for (int i = 4; i < 7; i++) s->qpos[i] = tilt[kind] * draw(seed);
  double norm = 0;
  for (int i = 3; i < 7; i++) norm += s->qpos[i] * s->qpos[i];
  for (int i = 3; i < 7; i++) s->qpos[i] /= sqrt(norm);
  for (int i = 0; i < 3; i++) s->qvel[i] = speed[kind] * draw(seed);
  for (int i = 3; i < 6; i++) s->qvel[i] = spin[kind] * draw(seed);
  for (int k = 0; k < 4; k++) {
    s->qpos[7 + 2 * k] = bend[kind] * draw(seed);
    s->qpos[8 + 2 * k] = sign[k] * (0.9 + bend[kind] * draw(seed));
    s->qvel[6 + 2 * k] = turn[kind] * draw(seed);
    s->qvel[7 + 2 * k] = turn[kind] * draw(seed);
  }
  // Up to 5 cm in the floor, or as much above it; one in 64 of the tumbling ones is deep in it.
  double deep = kind == 2 && draw(seed) > 0.96875 ? -0.3 : 0.05 * draw(seed);
  s->qpos[2] = deep - lowest(s);
  for (int i = 0; i < 8; i++) s->act[i] = kind == 0 ? 0 : 1.5 * draw(seed);
}

#endif  // BRIM_TESTS_ENV_QUADRUPED_STATES_H_
