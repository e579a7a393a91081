// Chooses the cores of a team's workers by the caller's core and affinity mask.
#include "base/base_cores.h"

#include <stdlib.h>

enum { LOOK_EVERY = 256 };  // calls between two looks at the mask: a system call each

// The user has placed OpenMP's threads: ours run where the mask lets them.
static bool user_places(void) {
  static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (getenv(names[i])) return true;
  }
  return false;
}

void brim_cores_init(brim_cores *p) { *p = (brim_cores){.cpu = -1, .off = user_places()}; }

void brim_cores_share(const cpu_set_t *mask, int cpu, int index, int count, cpu_set_t *out) {
  int cores = CPU_COUNT(mask) - (CPU_ISSET((size_t)cpu, mask) ? 1 : 0);
  *out = *mask;
  if (count < 1 || cores < count) return;
  const int64_t begin = (int64_t)cores * index / count, end = (int64_t)cores * (index + 1) / count;
  CPU_ZERO(out);
  for (int i = 0, at = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET((size_t)i, mask) || i == cpu) continue;
    if (at >= begin && at < end) CPU_SET((size_t)i, out);
    at++;
  }
}

void brim_cores_place(brim_cores *p, const pid_t *workers, int count) {
  if (p->off || count < 1) return;
  const int cpu = sched_getcpu();
  if (cpu == p->cpu && count == p->count && --p->left > 0) return;
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof mask, &mask)) {
    p->off = true;  // more cores than a cpu_set_t holds
    return;
  }
  p->left = LOOK_EVERY;
  if (cpu == p->cpu && count == p->count && CPU_EQUAL(&mask, &p->mask)) return;
  p->cpu = cpu;
  p->count = count;
  p->mask = mask;
  for (int i = 0; i < count; i++) {
    cpu_set_t share;
    const pid_t worker = __atomic_load_n(&workers[i], __ATOMIC_RELAXED);
    if (worker <= 0) {
      p->cpu = -1;  // it has not begun: the next call places it
      continue;
    }
    brim_cores_share(&mask, cpu, i, count, &share);
    // Fails for a worker that has ended, or a core that was just taken away: it then runs anywhere.
    (void)sched_setaffinity(worker, sizeof share, &share);
  }
}
