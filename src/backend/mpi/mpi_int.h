// Inside the mpi plug-in: what the host lends it, failures in its words, the communicator's opening.
#ifndef BRIM_BACKEND_MPI_INT_H_
#define BRIM_BACKEND_MPI_INT_H_

#include "backend/backend_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

void brim_mpi_set_host(const brim_host_api *host);
const brim_host_api *brim_mpi_host(void);
// `format` is a message of brim's catalogue.
brim_status brim_mpi_fail(brim_status status, const char *format, ...) BRIM_PRINTF(2, 3);

brim_status brim_mpi_open(brim_mpi_ranks *out);  // mpi_comm.c

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_MPI_INT_H_
