// MuJoCo itself, where it is installed: the Ant from the same facts, its solver run to the end.
#ifndef BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_
#define BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_

typedef struct quadruped_oracle quadruped_oracle;

// NULL where MuJoCo is not here, or refuses: *why says so. exact: tolerance 1e-15 and no warm
// start, else as Gymnasium leaves it.
quadruped_oracle *quadruped_oracle_create(double margin, int rk4, int exact, const char **why);
void quadruped_oracle_destroy(quadruped_oracle *o);
// One step from a state, in place.
void quadruped_oracle_step(quadruped_oracle *o, double *qpos, double *qvel, const double *act);
// Contacts of a state as MuJoCo finds them, as bits QUAD_TOUCH_* of the legs; their number comes back.
int quadruped_oracle_touch(quadruped_oracle *o, const double *qpos, int touch[4]);
// `n` steps of the state it has, for measuring.
void quadruped_oracle_run(quadruped_oracle *o, int n, const double *act);

#endif  // BRIM_TESTS_ENV_QUADRUPED_ORACLE_H_
