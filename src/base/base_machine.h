// The machine, as Linux tells it: processor, memory, what this process may use of them, and cores for workers. `root` is
// put in front of /proc and /sys ("" = the real ones; tests give a folder).
#ifndef BRIM_BASE_MACHINE_H_
#define BRIM_BASE_MACHINE_H_

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

// "Neoverse-V1", "Intel(R) Xeon(R) Platinum 8488C"; "" = unknown.
void brim_machine_cpu_name(const char *root, char *out, size_t size);
// True if the kernel lists this CPU flag ("avx512f"), which means that programs may use it. x86 only; false elsewhere.
bool brim_machine_cpu_flag(const char *root, const char *flag);

typedef struct brim_machine_memory {
  uint64_t total, available;  // of the machine; 0 = unknown
  uint64_t limit;             // smallest of the cgroup and those above it; 0 = none
  uint64_t used;              // by that group, without page cache that can be dropped
} brim_machine_memory;
void brim_machine_read_memory(const char *root, brim_machine_memory *out);
// Free and total memory of the machine, or of the cgroup if that is less.
void brim_machine_free_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes);

// Reads the beginning of root + path, NUL-terminated. False if it cannot be read or is empty.
bool brim_machine_read_text(const char *root, const char *path, char *out, size_t size);
// The text after "key" and any of " \t:=" on the first line that begins with the key, without quotes.
bool brim_machine_find_line(const char *text, const char *key, char *out, size_t size);

//---------------------------------- CPU quota ----------------------------------

// The smallest CPU quota of the process's cgroup and those above it: 0.5 is half of one CPU's time, 0 = none. Reads
// cpu.max (version 2) and cpu.cfs_quota_us (version 1).
double brim_cpu_quota(const char *root);
// cpu.stat of the group up the tree that was throttled longest: seconds in which its threads were ready but might not
// run, summed over the CPUs, and CPU seconds used. NaN = unknown; version 1 has no used_s.
typedef struct brim_cpu_stat {
  double throttled_s, used_s;
} brim_cpu_stat;
brim_cpu_stat brim_cpu_read_stat(const char *root);
// The `root` to use: BRIM_MACHINE_ROOT (for tests), else "".
const char *brim_cpu_root(void);

int brim_cpu_cores(void);  // in the affinity mask, without the quota
// Usable cores: the affinity mask, capped by the quota rounded up; at least 1.
int brim_cpu_threads(const char *root);
// "2 cores", or "2 cores, quota 0.5" if the quota is smaller.
void brim_cpu_describe(const char *root, char *out, size_t size);

//---------------------------------- cores for workers ----------------------------------
// Keeps the workers of a team off the core of the thread that calls them, and off each other's: the scheduler often
// leaves two threads that wake each other on one core while another idles. The caller is never pinned, since threads and
// programs that it starts would inherit that. Each worker gets its own share of the other cores of the caller's mask.
// Within a share the scheduler chooses, so that processes side by side spread.

typedef struct brim_cores {
  int cpu;    // the caller's core when the workers were placed; -1 = never
  int count;  // workers placed
  int left;   // calls until the mask is read again
  bool off;   // the user places threads, or the machine has too many cores
  cpu_set_t mask;
} brim_cores;

void brim_cores_init(brim_cores *p);
// Call it before each parallel region, from the thread that starts it; cheap while that thread stays on its core. Places
// the workers again if the caller's core, its mask or their number has changed. With more workers than other cores, all
// get the whole mask. workers[]: thread ids; 0 = not started.
void brim_cores_place(brim_cores *p, const pid_t *workers, int count);
// The cores of worker `index` of `count`, for a caller on `cpu`.
void brim_cores_share(const cpu_set_t *mask, int cpu, int index, int count, cpu_set_t *out);

//---------------------------------- hidden CPU features ----------------------------------
// BRIM_CPU_MASK=bf16,amx hides CPU features from brim's own kernels and, by the plug-in, from oneDNN's, so that one
// machine runs the code of lesser ones.

// Hiding a feature hides those that need it: without avx512 there is no amx.
enum {
  BRIM_CPU_MASK_BF16 = 1,    // Arm BF16, AVX512_BF16 and with it AMX-BF16
  BRIM_CPU_MASK_AMX = 2,     // AMX tiles
  BRIM_CPU_MASK_AVX512 = 4,  // and bf16, amx
  BRIM_CPU_MASK_AVX2 = 8,    // and avx512, bf16, amx
  BRIM_CPU_MASK_NEON = 16,   // brim's NEON kernels, and bf16
};

// Parses names separated by commas or spaces; NULL and "" hide nothing. False if a name is unknown; *mask has the others.
bool brim_cpu_mask_parse(const char *text, unsigned *mask);
// The features hidden by BRIM_CPU_MASK. Ignores unknown names, which opening the cpu device refuses.
unsigned brim_cpu_mask(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MACHINE_H_
