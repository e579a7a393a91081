// Keeps the workers of a team off the core of the thread that calls them, and off each other's. The
// scheduler often leaves two threads that wake each other on one core while another idles. The caller is
// never pinned: threads and programs that it starts would inherit that. Each worker gets its own share of
// the other cores of the caller's mask; within a share the scheduler chooses, so processes side by side
// spread. Like base_cpu.c it allocates nothing, so that the cpu plug-in can compile it in.
#ifndef BRIM_BASE_CORES_H_
#define BRIM_BASE_CORES_H_

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cores {
  int cpu;    // the caller's core when the workers were placed; -1 = never
  int count;  // workers placed
  int left;   // calls until the mask is read again
  bool off;   // the user places threads, or the machine has too many cores
  cpu_set_t mask;
} brim_cores;

void brim_cores_init(brim_cores *p);
// Called before each parallel region by the thread that starts it; costs nothing while that thread stays
// on its core. Places the workers again when the caller's core, its mask or their number has changed.
// With more workers than other cores, all workers get the whole mask. workers[] are thread ids; those that
// are 0 have not begun.
void brim_cores_place(brim_cores *p, const pid_t *workers, int count);
// The cores of worker `index` of `count` beside a caller on `cpu`.
void brim_cores_share(const cpu_set_t *mask, int cpu, int index, int count, cpu_set_t *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CORES_H_
