// Calls, legal and not, on a real store and on its model (lab_model.h), which must answer alike. `model_below` makes
// every choice: from a random number, or from the bytes of a fuzzer.
#ifndef BRIM_TESTS_LAB_MODEL_RUN_H_
#define BRIM_TESTS_LAB_MODEL_RUN_H_

#include "lab_test.h"

extern int (*model_below)(int n);  // 0 to n - 1
extern bool model_over_http;       // calls go through a server of the store

void model_begin(const lab_place *at);  // an empty store
void model_step(void);                  // one call
bool model_full(void);                  // the model is full of attempts
void model_compare(void);               // compares every experiment
void model_compare_all(void);           // also attempts, metrics, logs and lab_check
void model_end(void);

#endif  // BRIM_TESTS_LAB_MODEL_RUN_H_
