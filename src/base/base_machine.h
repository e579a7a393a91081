// What this machine is: the name of its processor and its memory, as Linux tells it. The one place
// that reads this, for backends that compute on the host and for the monitor. base_machine.c calls
// nothing else of base and allocates nothing, so that the cpu plug-in can compile it in.
// `root` stands in front of /proc and /sys ("" = the real ones; tests give a folder).
#ifndef BRIM_BASE_MACHINE_H_
#define BRIM_BASE_MACHINE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// "Neoverse-V1", "Intel(R) Xeon(R) Platinum 8488C"; "" when the kernel does not say.
void brim_machine_cpu_name(const char *root, char *out, size_t size);
// Does the kernel list this word among the CPU's flags ("avx512f")? It leaves out what the system
// does not let us use. x86 only; false elsewhere.
bool brim_machine_cpu_flag(const char *root, const char *flag);

typedef struct brim_machine_memory {
  uint64_t total, available;  // of the machine; 0 = unknown
  uint64_t limit;             // the control group's, the smallest of it and those above; 0 = none
  uint64_t used;              // of that group, page cache that can be dropped not counted
} brim_machine_memory;
void brim_machine_read_memory(const char *root, brim_machine_memory *out);
// What a program may still take, and what there is in all: the machine's, or the group's when less.
void brim_machine_free_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes);

// The beginning of root + path, NUL-terminated; false when it cannot be read or is empty.
bool brim_machine_read_text(const char *root, const char *path, char *out, size_t size);
// The text after "key" and any of " \t:=" on the first line that begins so, quotes stripped.
bool brim_machine_find_line(const char *text, const char *key, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MACHINE_H_
