// What the two users of oneDNN in the cpu plug-in share: its status as ours.
#ifndef BRIM_BACKEND_CPU_ONEDNN_H_
#define BRIM_BACKEND_CPU_ONEDNN_H_

#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/cpu_int.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline brim_status brim_cpu_dnn_check(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return BRIM_OK;
  if (status == dnnl_out_of_memory) {
    return brim_cpu_fail(BRIM_ENOMEM, "cpu: oneDNN has no memory for %s", what);
  }
  return brim_cpu_fail(status == dnnl_unimplemented ? BRIM_EUNSUPPORTED : BRIM_EDEVICE,
                       "cpu: oneDNN refused %s (status %d)", what, (int)status);
}

#define BRIM_CPU_DNN_TRY(expr, what)                       \
  do {                                                     \
    brim_status try_ = brim_cpu_dnn_check((expr), (what)); \
    if (try_ != BRIM_OK) return try_;                      \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CPU_ONEDNN_H_
