// The part of libpq that brim calls, written down from its documented interface (libpq.so.5, stable
// since PostgreSQL 8). libpq is opened at run time, so building brim needs no header of it.
#ifndef BRIM_LAB_STORE_PQ_ABI_H_
#define BRIM_LAB_STORE_PQ_ABI_H_

#include <assert.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pg_conn brim_pq_conn;
typedef struct pg_result brim_pq_result;
typedef struct pg_cancel brim_pq_cancel;
typedef unsigned brim_pq_oid;
typedef void (*brim_pq_notice)(void *arg, const char *message);

enum {
  BRIM_PQ_CONNECTION_OK = 0,
  BRIM_PQ_COMMAND_OK = 1,
  BRIM_PQ_TUPLES_OK = 2,
  BRIM_PQ_SINGLE_TUPLE = 9,
  BRIM_PQ_DIAG_SQLSTATE = 'C',
  BRIM_PQ_OID_INT8 = 20,
  BRIM_PQ_OID_TEXT = 25,
  BRIM_PQ_OID_FLOAT8 = 701,
};
static_assert(sizeof(brim_pq_oid) == 4, "an Oid has 32 bits");

typedef struct brim_pq_api {
  brim_pq_conn *(*connect)(const char *const *keywords, const char *const *values, int expand);
  void (*finish)(brim_pq_conn *conn);
  int (*status)(const brim_pq_conn *conn);
  char *(*error_message)(const brim_pq_conn *conn);
  int (*server_version)(const brim_pq_conn *conn);
  brim_pq_notice (*set_notice)(brim_pq_conn *conn, brim_pq_notice proc, void *arg);
  brim_pq_result *(*exec)(brim_pq_conn *conn, const char *query);
  brim_pq_result *(*prepare)(brim_pq_conn *conn, const char *name, const char *query, int count,
                             const brim_pq_oid *types);
  brim_pq_result *(*exec_prepared)(brim_pq_conn *conn, const char *name, int count,
                                   const char *const *values, const int *lengths,
                                   const int *formats, int result_format);
  int (*send_prepared)(brim_pq_conn *conn, const char *name, int count, const char *const *values,
                       const int *lengths, const int *formats, int result_format);
  int (*set_single_row)(brim_pq_conn *conn);
  brim_pq_result *(*get_result)(brim_pq_conn *conn);
  brim_pq_cancel *(*get_cancel)(brim_pq_conn *conn);
  int (*cancel)(brim_pq_cancel *cancel, char *error, int size);
  void (*free_cancel)(brim_pq_cancel *cancel);
  int (*result_status)(const brim_pq_result *result);
  char *(*result_error)(const brim_pq_result *result);
  char *(*error_field)(const brim_pq_result *result, int field);
  int (*ntuples)(const brim_pq_result *result);
  char *(*get_value)(const brim_pq_result *result, int row, int column);
  int (*get_is_null)(const brim_pq_result *result, int row, int column);
  char *(*cmd_tuples)(brim_pq_result *result);
  void (*clear)(brim_pq_result *result);
} brim_pq_api;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_STORE_PQ_ABI_H_
