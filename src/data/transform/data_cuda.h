// The data room's kernels as the plug-in's door sees them (src/plugin/cuda): one extension table.
// The loader never includes this; it finds the table by name in the registry.
#ifndef BRIM_DATA_CUDA_H_
#define BRIM_DATA_CUDA_H_

#include "brim/plugin.h"
#include "data/transform/data_augment.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sets the host through which the kernels' entries report failures; call it before anything of the
// table.
void brim_data_cuda_set_host(const brim_host_api *host);
// BRIM_AUGMENT_EXTENSION of the cuda plug-in.
extern const brim_augment_table brim_data_cuda_augment;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_CUDA_H_
