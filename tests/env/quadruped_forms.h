// Every form of the quadruped behind one signature, and the common measure of errors.
#ifndef BRIM_TESTS_ENV_QUADRUPED_FORMS_H_
#define BRIM_TESTS_ENV_QUADRUPED_FORMS_H_

// A state and an action in MuJoCo's order, and after a step the contacts of each leg.
typedef struct sample {
  double qpos[15], qvel[14], act[8];
  int touch[4];
  int newton, open;
} sample;

typedef struct setting {
  double timestep, margin;
  int rk4;
} setting;

// One step of each of n samples, in place.
typedef struct form {
  const char *name;
  void (*step)(const setting *set, int n, sample *s);
} form;

enum { FORM_F64, FORM_F32, FORM_SIMD, FORM_FOUR, FORM_COUNT };
extern const form forms[FORM_COUNT];

// Distance from the lowest point of the body to the floor.
double lowest(const sample *s);

// Errors of one form against a reference.
typedef struct errors {
  int n;
  double *qvel;        // largest of each step, absolute; sorted by errors_sort
  double qvel_scaled;  // largest over max(1, |qvel|)
  double qpos_scaled;
  int newton, open, flips;  // flips: contact sets other than the reference's
} errors;

// Adds the errors of `got` against `want`, both after the step; `from` is the state before it, and `want` has the
// step's contacts.
void errors_add(errors *e, const sample *got, const sample *want, const sample *from,
                double margin);
double errors_at(errors *e, double part);  // a quantile; 1 is the largest
// Asserts the error bounds of single precision, or of double.
void errors_check(errors *e, const char *name, int is_f64);

#endif  // BRIM_TESTS_ENV_QUADRUPED_FORMS_H_
