// What this machine is: the name of its processor and its memory, for backends that compute on the
// host. Calls nothing of base, so that the cpu plug-in can compile backend_host.c in.
#ifndef BRIM_BACKEND_HOST_H_
#define BRIM_BACKEND_HOST_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// "Neoverse-V1", "Intel(R) Xeon(R) Platinum 8488C"; "CPU" when the kernel does not say.
void brim_host_cpu_name(char *out, size_t size);
// From /proc/meminfo (MemTotal, MemAvailable); 0 when unknown.
void brim_host_memory(uint64_t *free_bytes, uint64_t *total_bytes);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_HOST_H_
