// The CUDA kernels of src/data for the plug-in (src/plugin/cuda), which registers their one extension
// table. The loader never includes this header; it finds the table by name in the registry.
#ifndef BRIM_DATA_CUDA_H_
#define BRIM_DATA_CUDA_H_

#include "brim/plugin.h"
#include "data/transform/data_augment.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sets the host to report failures to. Call it before any function of the table.
void brim_data_cuda_set_host(const brim_host_api *host);
// The table for BRIM_AUGMENT_EXTENSION.
extern const brim_augment_table brim_data_cuda_augment;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_CUDA_H_
