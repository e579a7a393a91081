// Physics steps per second of one core, every CPU form of the quadruped beside MuJoCo: standing with no control, and
// under random control held for five steps. Environments are reset every RESET steps, whatever their state, in all
// forms alike. `bench_quadruped [steps]`; median of seven runs and their spread.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_clock.h"
#include "env/quadruped/quadruped_f32.h"
#include "env/quadruped/quadruped_f64.h"
#include "env/quadruped/quadruped_simd.h"
#include "quadruped_oracle.h"

enum { RUNS = 7, RESET = 500, HOLD = 5, ACTIONS = 4096 };

typedef struct job {
  int steps, rk4;
  double action[ACTIONS][8];
  double qpos[15], qvel[14];
} job;

static const double *action_of(const job *j, int step, int lane) {
  return j->action[(step / HOLD + 37 * lane) % ACTIONS];
}

static double run_f64(const job *j) {
  brim_quad_f64_world w = brim_quad_f64_world_make(0.01, 0.01, j->rk4);
  brim_quad_f64_state s = {0};
  double ctrl[4][2] = {{0}};
  for (int i = 0; i < j->steps; i++) {
    if (i % RESET == 0) brim_quad_f64_load(&s, 0, j->qpos, j->qvel);
    if (i % HOLD == 0) brim_quad_f64_load_ctrl(ctrl, 0, action_of(j, i, 0));
    brim_quad_f64_step(&w, &s, ctrl, NULL);
  }
  return s.pos[2];
}

static void to_float(int n, const double *from, float *to) {
  for (int i = 0; i < n; i++) to[i] = (float)from[i];
}

static double run_f32(const job *j) {
  brim_quad_f32_world w = brim_quad_f32_world_make(0.01f, 0.01f, j->rk4);
  brim_quad_f32_state s = {0};
  float ctrl[4][2] = {{0}}, qpos[15], qvel[14], act[8];
  to_float(15, j->qpos, qpos);
  to_float(14, j->qvel, qvel);
  for (int i = 0; i < j->steps; i++) {
    if (i % RESET == 0) brim_quad_f32_load(&s, 0, qpos, qvel);
    if (i % HOLD == 0) {
      to_float(8, action_of(j, i, 0), act);
      brim_quad_f32_load_ctrl(ctrl, 0, act);
    }
    brim_quad_f32_step(&w, &s, ctrl, NULL);
  }
  return (double)s.pos[2];
}

static double run_simd(const job *j) {
  brim_quad_simd_world w = brim_quad_simd_world_make(0.01f, 0.01f, j->rk4);
  brim_quad_simd_state s;
  brim_vf ctrl[4][2];
  memset(&s, 0, sizeof(s));
  memset(ctrl, 0, sizeof(ctrl));
  float qpos[15], qvel[14], act[8];
  to_float(15, j->qpos, qpos);
  to_float(14, j->qvel, qvel);
  for (int i = 0; i < j->steps / QUAD_LANES; i++) {
    for (int l = 0; l < QUAD_LANES && i % HOLD == 0; l++) {
      if (i % RESET == 0) brim_quad_simd_load(&s, l, qpos, qvel);
      to_float(8, action_of(j, i, l), act);
      brim_quad_simd_load_ctrl(ctrl, l, act);
    }
    brim_quad_simd_step(&w, &s, ctrl, NULL);
  }
  return (double)s.pos[2][0];
}

static double run_mujoco(const job *j) {
  const char *why;
  quadruped_oracle *o = quadruped_oracle_create(0.01, j->rk4, 0, &why);
  double qpos[15], qvel[14];
  if (!o) return (double)NAN;
  for (int i = 0; i < j->steps; i += HOLD) {
    if (i % RESET == 0) {
      memcpy(qpos, j->qpos, sizeof(qpos));
      memcpy(qvel, j->qvel, sizeof(qvel));
      quadruped_oracle_step(o, qpos, qvel, action_of(j, i, 0));
    }
    quadruped_oracle_run(o, HOLD, action_of(j, i, 0));
  }
  quadruped_oracle_destroy(o);
  return 0;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void measure(const char *name, double (*run)(const job *), const job *j) {
  double rate[RUNS], end = run(j);
  if (isnan(end)) {
    printf("  %-8s not here\n", name);
    return;
  }
  for (int i = 0; i < RUNS; i++) {
    brim_time before = brim_clock_now();
    end = run(j);
    rate[i] = 1e9 * j->steps / (double)brim_time_since_ns(before, brim_clock_now());
  }
  qsort(rate, RUNS, sizeof(*rate), by_size);
  printf("  %-8s %10.0f steps/s (%.0f to %.0f)\n", name, rate[RUNS / 2], rate[0], rate[RUNS - 1]);
}

int main(int argc, char **argv) {
  static job j = {.qpos = {0, 0, 0.56, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1}};
  j.steps = argc > 1 ? atoi(argv[1]) : 40000;
  if (j.steps < 1000) {
    fprintf(stderr, "bench_quadruped: at least 1000 steps\n");
    return 2;
  }
  uint64_t seed = 1;
  for (int mode = 0; mode < 4; mode++) {
    for (int i = 0; i < ACTIONS * 8; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      j.action[i / 8][i % 8] = mode & 1 ? (double)(seed >> 11) / 4503599627370496.0 - 1 : 0;
    }
    j.rk4 = mode >> 1;
    printf("%s, %s\n", j.rk4 ? "RK4" : "Euler", mode & 1 ? "random control" : "standing");
    measure("mujoco", run_mujoco, &j);
    measure("f64", run_f64, &j);
    measure("f32", run_f32, &j);
    measure(QUAD_LANES == 4 ? "simd 4" : QUAD_LANES == 8 ? "simd 8" : "simd 16", run_simd, &j);
  }
  return 0;
}
