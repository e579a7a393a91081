// Shared by the attacks on a pool: a server in this process with a token of each role, and short calls to it.
#ifndef BRIM_TESTS_LAB_ATTACK_H_
#define BRIM_TESTS_LAB_ATTACK_H_

#include "lab_test.h"
#include "raw_http.h"

#include "lab/pool/lab_pool_int.h"

extern brim_store *attack_store;
extern brim_lab_pool *attack_pool;
extern raw_reply got;  // the last reply
extern char attack_tokens[BRIM_ROLE_COUNT][BRIM_TOKEN], attack_ended[BRIM_TOKEN];

void attack_open(const brim_lab_pool_options *limits);  // fills in store and version
int attack_setup(void **state);                         // without a token
// A token for each role, named after it, and one that has expired. A worker with the token has claimed experiment 1.
int attack_setup_tokens(void **state);
int attack_teardown(void **state);
int attack_teardown_large(void **state);  // for stores that lab_check cannot check

const char *bearer(const char *token);
int ask(const char *method, const char *path, const char *headers, const char *body);
int ask_as(brim_role role, const char *method, const char *path, const char *body);
int ask_bytes(const char *text);

bool takes_a_token(const brim_pool_route *r);
bool is_raw(const brim_pool_route *r);  // the body is bytes, not JSON
// Makes the path of a route. `at`: number of the parameter, from 0, that `instead` replaces; false: it has fewer.
bool spell_path(const brim_pool_route *r, int at, const char *instead, char *out, size_t size);
const char *path_of(const brim_pool_route *r);
const char *body_of(const brim_pool_route *r);
void expect(bool good, const brim_pool_route *r, const char *what);

// The row behind `r` in all tables, the first one for NULL; NULL at the end.
const brim_pool_route *next_route(const brim_pool_route *r);

#define EACH_ROUTE(r)                          \
  const brim_pool_route *r = next_route(NULL); \
  r;                                           \
  r = next_route(r)

#endif  // BRIM_TESTS_LAB_ATTACK_H_
