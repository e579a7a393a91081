// MuJoCo itself, where it is installed: the Ant with the same parameters, and its solver run to convergence.
#ifndef BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_
#define BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_

typedef struct quadruped_oracle quadruped_oracle;

// NULL if MuJoCo is not here, or refuses: *why has the reason. exact: tolerance 1e-15 and no warm start, otherwise
// Gymnasium's settings.
quadruped_oracle *quadruped_oracle_create(double margin, int rk4, int exact, const char **why);
void quadruped_oracle_destroy(quadruped_oracle *o);
// One step from a state, in place.
void quadruped_oracle_step(quadruped_oracle *o, double *qpos, double *qvel, const double *act);
// MuJoCo's contacts of a state, as bits QUAD_TOUCH_* of the legs; returns their number.
int quadruped_oracle_touch(quadruped_oracle *o, const double *qpos, int touch[4]);
// Makes `n` steps from the current state, for timing.
void quadruped_oracle_run(quadruped_oracle *o, int n, const double *act);

#endif  // BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_
