// The one case list: ops, shapes, types and attributes, with everything needed to run a case on a device. It serves
// correctness, gradients, support and speed, on every backend; none of them has a list of its own. Values are doubles
// on the host, already rounded to the type they get on the device, so that an f64 run of the same values is an exact
// oracle.
#ifndef BRIM_TESTS_CASES_H_
#define BRIM_TESTS_CASES_H_

#include "backend/backend.h"

// The optional tensors of a BATCHNORM* case.
enum {
  BRIM_WITH_Z = 1,
  BRIM_WITH_RUNNING = 2,
  BRIM_WITH_Y = 4,
  BRIM_WITH_DY2 = 8,
  BRIM_WITH_DZ = 16
};

typedef struct brim_case {
  char name[192];  // "linear n=3 k=17 m=31 relu bias"
  brim_op op;
  brim_dtype type;   // T
  brim_dtype type2;  // CAST: target; INPUT: source; OPTIMIZER: copy; COUNT = none or as `type`
  int64_t n, k, m;   // rows, columns (inputs, channels), outputs; flat ops have n values
  int64_t l;         // tokens; 0 = none
  int64_t h, w;      // image; 0 = none
  int64_t r, s;      // window
  bool optional;     // with the optional tensor: bias, db, gradient
  unsigned with;     // BRIM_WITH_*
  int in_place;      // output 0 overwrites this input, counted from 1; 0 = separate
  bool offset;       // values with a large mean beside their spread
  bool ties;         // many equal values
  bool padding;      // a third of the rows is padding
  bool bad_labels;   // some labels are out of range
  bool nonfinite;    // some values are infinite or NaN
  brim_op_attr attr;
  double state[BRIM_STATE_COUNT];
  uint64_t seed;  // seed of the values
} brim_case;

// Rows of a tensor (.., columns): n times the tokens or pixels.
int64_t brim_case_rows(const brim_case *c);

// The list, all in f32; brim_case_set_type makes the other types of it.
size_t brim_case_count(void);
void brim_case_get(size_t index, brim_case *out);
// Large shapes, for speed only.
size_t brim_case_speed_count(void);
void brim_case_speed_get(size_t index, brim_case *out);
// Any op with any of its variants in a small random shape.
void brim_case_fuzz(uint64_t seed, uint64_t index, brim_case *out);
void brim_case_set_type(brim_case *c, brim_dtype type);
// The same case with every float tensor in f64: the oracle.
void brim_case_set_oracle(brim_case *c);

// The call of a case, without data.
void brim_case_call(const brim_case *c, brim_op_call *call);

// Host values: inputs, and the contents of the outputs before (create) or after (run) the op.
typedef struct brim_case_data {
  double *in[BRIM_OP_MAX_IN];
  double *out[BRIM_OP_MAX_OUT];
} brim_case_data;

brim_status brim_case_data_create(const brim_case *c, brim_case_data *out);
void brim_case_data_destroy(brim_case_data *data);

// Values of a type in memory; encode rounds.
void brim_case_encode(brim_dtype type, const double *values, int64_t count, void *out);
void brim_case_decode(brim_dtype type, const void *data, int64_t count, double *out);
// A value in [-1, 1), a function of the arguments.
double brim_case_uniform(uint64_t seed, uint64_t slot, uint64_t element);

// A case with its tensors on a device, ready to run many times.
typedef struct brim_case_loaded {
  brim_device *device;
  brim_op_call call;
  size_t guard;     // bytes behind every buffer that an op must not change
  void *workspace;  // the block that contains the call's workspace
} brim_case_loaded;

brim_status brim_case_load(brim_device *device, const brim_case *c, const brim_case_data *data,
                           brim_case_loaded *out);
void brim_case_unload(brim_case_loaded *loaded);
// Load, run once, fetch the outputs into `out`. BRIM_EINTERNAL if the op wrote behind one of its buffers.
brim_status brim_case_run(brim_device *device, const brim_case *c, const brim_case_data *data,
                          brim_case_data *result);

// The largest relative error (by norm) of an output, and whether exact rules hold (counts, padding rows). `why` names
// the output.
brim_status brim_case_compare(const brim_case *c, const brim_case_data *got,
                              const brim_case_data *want, double *error, char why[160]);
double brim_case_tolerance(const brim_case *c);

#endif  // BRIM_TESTS_CASES_H_
