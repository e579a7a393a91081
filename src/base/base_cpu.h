// How much of the machine's processors this process may use. Like base_machine.c it calls nothing
// else of base but that and allocates nothing, so that the cpu plug-in can compile it in.
#ifndef BRIM_BASE_CPU_H_
#define BRIM_BASE_CPU_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// CPUs by the quota of the process's control group and of those above it, the smallest of them:
// 0.5 is half of one CPU's time. 0 = no quota. Reads cpu.max (version 2) and cpu.cfs_quota_us
// (version 1). `root` stands in front of /proc and /sys.
double brim_cpu_quota(const char *root);
// The folder for `root`: "", or what BRIM_MACHINE_ROOT names (for tests).
const char *brim_cpu_root(void);

// Threads that compute at once: cores by affinity, at most the quota rounded up, at least 1.
int brim_cpu_threads(const char *root);
// "2 cores", or "2 cores, quota 0.5" where the quota is less than the cores.
void brim_cpu_describe(const char *root, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CPU_H_
