// The machine as Linux describes it: processor, memory, the share of both that this process may use, and cores for
// workers. `root` is put in front of /proc and /sys ("" = the real folders; tests give a folder).
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

// Writes "Neoverse-V1", "Intel(R) Xeon(R) Platinum 8488C"; "" = unknown.
void brim_machine_cpu_name(const char *root, char *out, size_t size);
// True if the kernel lists this CPU flag ("avx512f"), so that programs may use it. Only for x86; false elsewhere.
bool brim_machine_cpu_flag(const char *root, const char *flag);

typedef struct brim_machine_memory {
  uint64_t total, available;  // memory of the machine; 0 = unknown
  uint64_t limit;             // smallest limit of the cgroup and the groups above it; 0 = none
  // memory used by the group with that limit, without page cache that can be dropped
  uint64_t used;
} brim_machine_memory;
void brim_machine_read_memory(const char *root, brim_machine_memory *out);
// Returns free and total memory of the machine, or of the cgroup if that is less.
void brim_machine_free_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes);

// Reads the beginning of root + path, NUL-terminated. Returns false if it cannot be read or is empty.
bool brim_machine_read_text(const char *root, const char *path, char *out, size_t size);
// Finds the first line that is `key` followed by a space, tab, ':' or '='. Copies the rest of the line after
// these characters, without enclosing quotes. Returns false if there is none.
bool brim_machine_find_line(const char *text, const char *key, char *out, size_t size);

//---------------------------------- CPU quota ----------------------------------

// The smallest CPU quota of the process's cgroup and those above it: 0.5 is half of one CPU's time, 0 = none. Reads
// cpu.max (version 2) and cpu.cfs_quota_us (version 1).
double brim_cpu_quota(const char *root);
// Readings of cpu.stat. Of the process's cgroup and the groups above it, the one that was throttled longest is
// read. throttled_s: seconds in which its threads were ready but not allowed to run, summed over the CPUs.
// used_s: CPU seconds used (cgroup version 2 only). NaN = unknown.
typedef struct brim_cpu_stat {
  double throttled_s, used_s;
} brim_cpu_stat;
brim_cpu_stat brim_cpu_read_stat(const char *root);
// Returns the `root` to use: BRIM_MACHINE_ROOT (for tests), else "".
const char *brim_cpu_root(void);

int brim_cpu_cores(void);  // cores in the affinity mask, regardless of the quota
// Returns the usable cores: the affinity mask, capped by the quota rounded up; at least 1.
int brim_cpu_threads(const char *root);
// Writes "2 cores", or "2 cores, quota 0.5" if the quota is smaller.
void brim_cpu_describe(const char *root, char *out, size_t size);

//---------------------------------- cores for workers ----------------------------------
// Keeps the workers of a team off the core of the thread that calls them, and off each other's cores. The scheduler
// often leaves two threads that wake each other on one core while another core idles. The caller is never pinned,
// since threads and programs that it starts would inherit that. Each worker gets its own share of the other cores
// of the caller's mask. Within a share the scheduler chooses, so that processes side by side spread.

typedef struct brim_cores {
  int cpu;    // the caller's core when the workers were placed; -1 = not placed
  int count;  // workers placed
  int left;   // calls until the mask is read again
  bool off;   // never places workers: the user does, or there are too many cores
  cpu_set_t mask;
} brim_cores;

void brim_cores_init(brim_cores *p);
// Call it before each parallel region, from the thread that starts it; cheap while that thread stays on its core.
// It places the workers again if the caller's core, its mask or the number of workers has changed. With more
// workers than other cores, all workers get the whole mask. workers[]: thread ids; 0 = not started.
void brim_cores_place(brim_cores *p, const pid_t *workers, int count);
// Computes the cores of worker `index` of `count`, for a caller on `cpu`.
void brim_cores_share(const cpu_set_t *mask, int cpu, int index, int count, cpu_set_t *out);

//---------------------------------- hidden CPU features ----------------------------------
// BRIM_CPU_MASK=bf16,amx hides CPU features from brim's own kernels; the cpu plug-in hides them from oneDNN
// too. So one machine can test the code for CPUs without these features.

// Bits of the mask. brim_cpu_mask_parse also sets the bits of the features that need a hidden one: avx512 sets
// the bits of bf16 and amx too.
enum {
  BRIM_CPU_MASK_BF16 = 1,    // Arm BF16, AVX512_BF16 and with it AMX-BF16
  BRIM_CPU_MASK_AMX = 2,     // AMX tiles
  BRIM_CPU_MASK_AVX512 = 4,  // also hides bf16 and amx
  BRIM_CPU_MASK_AVX2 = 8,    // also hides avx512, bf16 and amx
  BRIM_CPU_MASK_NEON = 16,   // brim's NEON kernels; also hides bf16
};

// Parses names separated by commas or spaces; NULL and "" hide nothing. Returns false if a name is unknown; *mask
// then has the other names.
bool brim_cpu_mask_parse(const char *text, unsigned *mask);
// Returns the features that BRIM_CPU_MASK hides. Ignores unknown names; opening the cpu device refuses them.
unsigned brim_cpu_mask(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MACHINE_H_
