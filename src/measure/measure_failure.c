// The failure class of a status. Called by trials, and by sweeps for settings that no trial ran.
#include "measure/measure_int.h"

brim_failure brim_trial_class(brim_status status) {
  switch (status) {
    case BRIM_OK:
      return BRIM_FAILURE_NONE;
    case BRIM_EOOM:
      return BRIM_FAILURE_OOM_DEVICE;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_ELIMIT:
      return BRIM_FAILURE_BAD_CONFIG;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_EDEVICE:
      return BRIM_FAILURE_CRASH;
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    default:
      return BRIM_FAILURE_OTHER;
  }
}

brim_failure brim_trial_class_of_steps(brim_status status) {
  brim_failure failure = brim_trial_class(status);
  return failure == BRIM_FAILURE_BAD_CONFIG ? BRIM_FAILURE_OTHER : failure;
}
