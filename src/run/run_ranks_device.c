// A device becomes a rank's: which way its exchanges go, and a communicator of their own where they run
// beside the thread that trains.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_exchange.h"
#include "run/run_ranks_int.h"

// NCCL wants a GPU for each rank.
static brim_status each_its_own(const brim_ranks *ranks, const brim_device *device, bool *out) {
  char mine[sizeof device->info.id] = "";
  size_t size = sizeof mine;
  char *all = brim_calloc((size_t)ranks->size, size);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  snprintf(mine, size, "%s", device->info.id);
  brim_status status = brim_comm_all_gather(ranks->comm, mine, all, size);
  *out = true;
  for (int a = 0; !status && a < ranks->size; a++) {
    const char *id = all + (size_t)a * size;
    if (!id[0]) *out = false;
    for (int b = 0; b < a; b++) *out = *out && strcmp(id, all + (size_t)b * size) != 0;
  }
  brim_free(all);
  return status;
}

static brim_status attach_gpu(brim_ranks *ranks, brim_device *device, char why[256]) {
  bool apart = false;
  BRIM_TRY(each_its_own(ranks, device, &apart));
  BRIM_TRY(brim_device_set_ranks(device, ranks->device_comm, apart, why));
  if (!apart) snprintf(why, 256, "%s", brim_tr("ranks share a GPU"));
  return BRIM_OK;
}

brim_status brim_ranks_attach(brim_ranks *ranks, brim_device *device, char why[256]) {
  why[0] = 0;
  if (!ranks) {
    // to measure what exchanging costs
    return getenv("BRIM_EXCHANGE_ALONE") ? brim_device_set_ranks(device, NULL, true, why) : BRIM_OK;
  }
  if (!ranks->device_comm) {
    BRIM_TRY(brim_ranks_open_twin(ranks, &ranks->device_comm));
    brim_ranks_watch_add(ranks->watch, ranks->device_comm);
  }
  if (device->info.host_memory) {
    return brim_device_set_ranks(device, ranks->device_comm, false, why);
  }
  return attach_gpu(ranks, device, why);
}
