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
// What the quota has cost since the group began, of the group up the tree that was held back longest
// (cpu.stat): seconds in which its threads were ready and might not run, added up over the CPUs, and CPU
// seconds that the group has used. NaN = unknown; version 1 does not tell `used_s`.
typedef struct brim_cpu_stat {
  double throttled_s, used_s;
} brim_cpu_stat;
brim_cpu_stat brim_cpu_read_stat(const char *root);
// The folder for `root`: "", or what BRIM_MACHINE_ROOT names (for tests).
const char *brim_cpu_root(void);

int brim_cpu_cores(void);  // by affinity, whatever the quota
// Threads that compute at once: cores by affinity, at most the quota rounded up, at least 1.
int brim_cpu_threads(const char *root);
// "2 cores", or "2 cores, quota 0.5" where the quota is less than the cores.
void brim_cpu_describe(const char *root, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CPU_H_
