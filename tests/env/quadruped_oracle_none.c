// Replaces MuJoCo where it is not installed.
#include "quadruped_oracle.h"

#include <stddef.h>

quadruped_oracle *quadruped_oracle_create(double margin, int rk4, int exact, const char **why) {
  (void)margin, (void)rk4, (void)exact;
  *why = "MuJoCo (libmujoco-dev) was not here when this was built";
  return NULL;
}

void quadruped_oracle_destroy(quadruped_oracle *o) { (void)o; }

void quadruped_oracle_step(quadruped_oracle *o, double *qpos, double *qvel, const double *act) {
  (void)o, (void)qpos, (void)qvel, (void)act;
}

int quadruped_oracle_touch(quadruped_oracle *o, const double *qpos, int touch[4]) {
  (void)o, (void)qpos, (void)touch;
  return 0;
}

void quadruped_oracle_run(quadruped_oracle *o, int n, const double *act) {
  (void)o, (void)n, (void)act;
}
