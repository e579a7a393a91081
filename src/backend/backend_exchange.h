// Exchanges between the devices of one training's ranks, run as ops: sums of gradients beside the
// backward pass, statistics of batch norm, embeddings. Any device can take part: host memory goes
// through the ranks' communicator, device memory through the backend's own (NCCL) or staged through the
// host. Called by: engine (through the ops), run.
#ifndef BRIM_BACKEND_EXCHANGE_H_
#define BRIM_BACKEND_EXCHANGE_H_

#include "backend/backend_comm.h"

// Makes the device rank brim_comm_rank(comm) of brim_comm_size(comm); NULL: the only rank. `comm` is
// borrowed until the device closes or the next call; requests are made in the order of ops. With
// `own` the backend's communicator is used where possible (all ranks must pass the same `own`). *why
// (size 256, may be NULL) says why it is not used, "" if it is. Waits for all ranks.
brim_status brim_device_set_ranks(brim_device *device, brim_comm *comm, bool own, char *why);
// The device is no rank any more. Release all calls that were prepared on it as a rank before.
void brim_device_leave_ranks(brim_device *device);
// Callable from any thread: exchanges that wait for other ranks, and all later exchanges, fail soon.
void brim_device_abandon_ranks(brim_device *device);
int brim_device_rank(const brim_device *device);
int brim_device_ranks(const brim_device *device);  // 1 without ranks
// True for a rank, even for the only one: it runs exchange ops.
bool brim_device_exchanges(const brim_device *device);
// Name of the communicator: "nccl", "mpi", "shm"; "none" = a NULL communicator; "" = no rank.
const char *brim_device_exchange(const brim_device *device);

// Requests of the communicator so far; false if the device exchanges by its own means or is alone.
bool brim_device_exchange_stats(const brim_device *device, brim_comm_stats *out);
// Returns the first failure of an exchange staged through the host, and forgets it. The step that needed
// the exchange is void.
brim_status brim_exchange_check(brim_device *device);

// Host memory that a prepared call holds, in bytes.
size_t brim_exchange_host_bytes(const brim_op_call *call);

#endif  // BRIM_BACKEND_EXCHANGE_H_
