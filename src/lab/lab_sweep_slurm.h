// Inside a sweep that runs its experiments in Slurm: arrays, their elements, and the command of Slurm
// that runs now. One command at a time, so that the sweep's loop never waits for Slurm.
#ifndef BRIM_LAB_SWEEP_SLURM_H_
#define BRIM_LAB_SWEEP_SLURM_H_

#include "lab/lab_sweep_int.h"
#include "lab/slurm/lab_slurm.h"
#include "lab/wire/lab_wire_ids.h"

#ifdef __cplusplus
extern "C" {
#endif

// One element, as Slurm last described it.
typedef struct brim_lab_element {
  brim_slurm_state state;
  char word[24];
  char node[BRIM_SLURM_NODE];
  char reason[BRIM_SLURM_REASON];
  bool seen;   // by the last look
  int missed;  // looks in a row that did not list it
  bool over;   // it has ended, and its experiment is seen to
} brim_lab_element;

typedef struct brim_lab_array {
  brim_slurm_array is;
  brim_lab_element *elements;  // is.count of them
  size_t open;                 // not over
  int64_t made_ms;
  bool refused;                // sbatch said no
  int looks;                   // without a trace of an array that sbatch did not answer about
  bool account;                // sacct is to be asked
  bool accounted;              // and has answered
  char stray[BRIM_SLURM_JOB];  // another job of this name, to be cancelled
  int told;                    // steps of stopping that were made
} brim_lab_array;

typedef enum brim_lab_slurm_phase {
  BRIM_LAB_SLURM_IDLE,
  BRIM_LAB_SLURM_LOOK,
  BRIM_LAB_SLURM_ACCOUNT,
  BRIM_LAB_SLURM_SUBMIT,
  BRIM_LAB_SLURM_CANCEL
} brim_lab_slurm_phase;

struct brim_lab_slurm {
  brim_lab_slurm_options options;
  char *folder;  // absolute
  char *place;   // for elements: absolute, or a URL without its password
  bool no_gpu;
  int64_t most;  // elements of an array
  int64_t lease_ms;
  brim_lab_array **arrays;
  size_t count, cap;
  brim_lab_ids live;  // experiments with an element that is not over: array * LARGEST + index
  bool indexed;       // `live` is of now
  brim_lab_slurm_phase phase;
  brim_slurm_command command;
  brim_lab_array *about;  // ACCOUNT, SUBMIT, CANCEL
  int64_t look_ms, gather_ms, hold_ms,
      wait_ms;      // when the next is due; how long the last pause was
  int64_t told_ms;  // when trouble with Slurm was last reported
  bool no_account;  // sacct does not work here
  int64_t stop_ms;  // since when the sweep stops; 0 = it does not
  bool gave_up;
  bool asked;           // the store changed since the queue was read
  int64_t gathered_ms;  // when that was
  bool accepted;        // an array was submitted
  char refusal
      [256];  // why the first was refused, where another try would be as well; "" = it was not
};

enum { BRIM_LAB_SLURM_LARGEST = 100000 };  // elements of an array

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_SWEEP_SLURM_H_
