// Shared by the store's tests: fresh stores of both kinds, a clock the tests set, short calls.
// A program is called with "sqlite" or "postgres"; for the second, BRIM_TEST_POSTGRES has a URL.
#ifndef BRIM_TESTS_LAB_TEST_H_
#define BRIM_TESTS_LAB_TEST_H_

#include "test.h"

#include "base/base.h"
#include "lab/store/lab_store.h"

enum { LAB_LEASE_MS = 60000, LAB_BACKOFF_MS = 1000, LAB_INFRA = 3 };

// Takes "sqlite" or "postgres" from the command line; skips if there is no server.
void lab_choose(int argc, char **argv);
bool lab_is_postgres(void);

extern int64_t lab_clock_ms;  // the clock of stores that lab_open opens
extern int lab_infra;         // infra_tries that lab_check expects; LAB_INFRA at the start

// An empty place for a store, which may be opened repeatedly.
typedef struct lab_place {
  char place[512];
  char schema[32];
} lab_place;
void lab_new_place(lab_place *out);
brim_store_options lab_options(const lab_place *place);
brim_store *lab_open(const lab_place *place);
// Opens a new place with the clock at its start, as most tests begin.
brim_store *lab_fresh(lab_place *out);

// The name of a place's SQLite file with a suffix.
char *lab_file(const lab_place *place, const char *suffix, char out[600]);
// Counts the experiments in a store that no process has open.
int lab_count(const char *where, const char *schema);

// The id of experiment n.
const char *lab_id(int n, char out[BRIM_EXP_ID]);
// Submits points `from` to `from` + count - 1 of grid `grid`.
void lab_submit(brim_store *store, const char *grid, int from, int count);
// Claims experiment n, and asserts that the claim succeeds.
brim_store_ref lab_claim(brim_store *store, int n);
brim_store_ref lab_run(brim_store *store, int n);  // claimed and started
brim_exp_state lab_state(brim_store *store, int n);
// Finishes the attempt; returns the experiment's new state.
brim_exp_state lab_finish(brim_store *store, const brim_store_ref *ref,
                          brim_attempt_outcome outcome, brim_failure failure);
// Checks every rule that holds in a store at any time: states against attempts, leases, members, events.
void lab_check(brim_store *store);

#endif  // BRIM_TESTS_LAB_TEST_H_
