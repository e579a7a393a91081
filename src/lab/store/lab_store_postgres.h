// PostgreSQL behind the table of lab_store_db.h, through libpq where it is installed.
#ifndef BRIM_LAB_STORE_POSTGRES_H_
#define BRIM_LAB_STORE_POSTGRES_H_

#include "lab/store/lab_store_db.h"

#ifdef __cplusplus
extern "C" {
#endif

// `place`: the URL as messages show it. BRIM_EUNSUPPORTED: no libpq, or a server older than 12.
// BRIM_EIO: the server cannot be reached.
brim_status brim_db_postgres_open(const char *url, const char *schema, const char *place,
                                  brim_db **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_STORE_POSTGRES_H_
