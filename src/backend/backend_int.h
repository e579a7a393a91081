// Inside the backend room: what its files share.
#ifndef BRIM_BACKEND_INT_H_
#define BRIM_BACKEND_INT_H_

#include "backend/backend_exchange.h"

// Why the plug-in of this name refused to load; NULL if it did not refuse.
const char *brim_registry_why(const brim_registry *registry, const char *name);

// Exchange ops (backend_exchange.c).
bool brim_op_is_exchange(brim_op op);
brim_status brim_exchange_prepare(brim_device *device, brim_op_call *call);
brim_status brim_exchange_run(brim_device *device, const brim_op_call *call);
void brim_exchange_release(brim_device *device, brim_op_call *call);

#endif  // BRIM_BACKEND_INT_H_
