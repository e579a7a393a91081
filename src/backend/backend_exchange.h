// What ranks of one training exchange between their devices, as ops among others: sums of gradients beside
// the backward pass, statistics of batch norm, embeddings. Any device can: memory of the host goes through
// the ranks' communicator, memory of a device through the backend's own (NCCL) or staged through the host.
// Called by: engine (by way of the ops), run.
#ifndef BRIM_BACKEND_EXCHANGE_H_
#define BRIM_BACKEND_EXCHANGE_H_

#include "backend/backend_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// The device becomes rank brim_comm_rank(comm) of as many as it has; `comm` is borrowed until the device
// closes or the next call, and its requests are made in the order of ops. NULL: a rank alone. With `own` the
// backend's communicator carries what it can (all ranks must say the same); *why (size 256, may be NULL)
// says why it does not, "" where it does. Waits for all ranks.
brim_status brim_device_set_ranks(brim_device *device, brim_comm *comm, bool own, char *why);
// The device is no rank any more. Nothing that was prepared on it as one may be left.
void brim_device_leave_ranks(brim_device *device);
// From any thread: exchanges that wait for other ranks end with a failure soon, and all later ones.
void brim_device_abandon_ranks(brim_device *device);
int brim_device_rank(const brim_device *device);
int brim_device_ranks(const brim_device *device);  // 1 without ranks
bool brim_device_exchanges(
    const brim_device *device);  // exchange ops are run although it may be alone
const char *brim_device_exchange(
    const brim_device *device);  // "nccl", "mpi", "shm"; "" = a rank alone

// What the communicator was asked for so far; false where the device exchanges by its own means or is alone.
bool brim_device_exchange_stats(const brim_device *device, brim_comm_stats *out);
// The first failure of an exchange that ran beside the host, once: the step that needed it is void.
brim_status brim_exchange_check(brim_device *device);

// Inside the backend room: the ops.
bool brim_op_is_exchange(brim_op op);
brim_status brim_exchange_prepare(brim_device *device, brim_op_call *call);
brim_status brim_exchange_run(brim_device *device, const brim_op_call *call);
void brim_exchange_release(brim_device *device, brim_op_call *call);
void brim_exchange_close(brim_device *device);
// Bytes of the host's memory that a prepared call holds.
size_t brim_exchange_host_bytes(const brim_op_call *call);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_EXCHANGE_H_
