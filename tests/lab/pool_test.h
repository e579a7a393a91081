// Shared by the tests of a pool: a server of a fresh store, and calls to it.
#ifndef BRIM_TESTS_POOL_TEST_H_
#define BRIM_TESTS_POOL_TEST_H_

#include "lab_test.h"

#include "lab/http/lab_http_client.h"
#include "lab/pool/lab_pool.h"

extern brim_store *store;
extern brim_lab_pool *pool;
extern brim_http_answer answer;
extern json_t *reply;                      // the last line of the answer
extern brim_lab_pool_options pool_extras;  // options for setup, besides the store

int pool_setup(void **state);
int pool_teardown(void **state);

brim_http_client *client_of(const char *token);
// Return the HTTP status; `answer` and `reply` have the rest.
int call_with(const char *token, const char *const *headers, const char *method, const char *path,
              const char *body);
int get(const char *path);
int post(const char *path, const char *body);
int as(const char *token, const char *method, const char *path, const char *body);
// Fields of the reply.
const char *text_of(const char *key);
int64_t int_of(const char *key);

// Writes into the store; brim_lab_pool_tend makes the server read it.
void add_token(const char *id, const char *role, char token[BRIM_TOKEN]);

// Reads a stream until it contains the text.
typedef struct heard {
  brim_str text;
  const char *until;
} heard;
brim_status hear(void *ctx, const char *data, size_t size);
void listen_for(const char *path, const char *until, heard *h);

#define TEST(name) cmocka_unit_test_setup_teardown(name, pool_setup, pool_teardown)

#endif  // BRIM_TESTS_POOL_TEST_H_
