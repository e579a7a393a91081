// The processes of the live view: NVML's lists, brim's jobs, and /proc for those alone; without a GPU those
// that use the CPU most. Owner, command and container are read once; a later reading costs one file. The driver numbers processes as the machine
// does. In a container that number may be another process's: brim believes it only where the process
// holds a GPU.
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor_top_int.h"

enum { TEXT_BYTES = 4096, MOST_FDS = 4096 };

// The number that Linux gives the first PID namespace, the machine's own (PROC_PID_INIT_INO).
static const char MACHINE_NAMESPACE[] = "pid:[4026531836]";

static size_t read_link(const char *root, const char *path, char *out, size_t size) {
  char full[BRIM_TOP_PATH_BYTES];
  snprintf(full, sizeof full, "%.255s%.255s", root, path);
  ssize_t n = readlink(full, out, size - 1);
  out[n > 0 ? n : 0] = '\0';
  return n > 0 ? (size_t)n : 0;
}

void brim_top_processes_open(brim_top_processes *state, const char *root) {
  char name[64];
  long long number = -1;
  memset(state, 0, sizeof *state);
  snprintf(state->root, sizeof state->root, "%s", root);
  state->shared_pids = read_link(root, "/proc/self/ns/pid", name, sizeof name) > 0 &&
                       strcmp(name, MACHINE_NAMESPACE) == 0;
  state->namespace_id = sscanf(name, "pid:[%lld]", &number) == 1 ? (int64_t)number : -1;
}

void brim_top_processes_close(brim_top_processes *state) {
  brim_free(state->known);
  brim_free(state->ticks);
  memset(state, 0, sizeof *state);
}

//---------------------------------- identity ----------------------------------

// Does the process of this number have a GPU open? Unknown where its files cannot be looked at.
static brim_top_flag holds_gpu(const char *root, uint32_t pid) {
  char path[BRIM_TOP_PATH_BYTES], name[64];
  snprintf(path, sizeof path, "%s/proc/%u/fd", root, pid);
  DIR *dir = opendir(path);
  if (!dir) return BRIM_TOP_UNKNOWN;
  brim_top_flag holds = BRIM_TOP_NO;
  int looked = 0;
  for (struct dirent *e = readdir(dir); e && holds == BRIM_TOP_NO; e = readdir(dir)) {
    if (e->d_name[0] == '.') continue;
    if (looked++ == MOST_FDS) holds = BRIM_TOP_UNKNOWN;
    snprintf(path, sizeof path, "/proc/%u/fd/%.32s", pid, e->d_name);
    read_link(root, path, name, sizeof name);
    if (brim_str_starts(name, "/dev/nvidia") || brim_str_starts(name, "/dev/dxg")) {
      holds = BRIM_TOP_YES;
    }
  }
  closedir(dir);
  return holds;
}

typedef struct proc_stat {
  double cpu_ticks, start_ticks, rss_pages;
} proc_stat;

// "4711 (python) S 1 ...": the name may hold spaces and parentheses.
static bool read_stat(const char *root, uint32_t pid, proc_stat *out) {
  char path[64], text[TEXT_BYTES];
  unsigned long long user = 0, system = 0, start = 0;
  long long rss = 0;
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  if (pid == 0 || !brim_machine_read_text(root, path, text, sizeof text)) return false;
  const char *rest = strrchr(text, ')');
  if (!rest || sscanf(rest + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d "
                      "%*d %llu %*u %lld",
                      &user, &system, &start, &rss) != 4) {
    return false;
  }
  *out = (proc_stat){(double)(user + system), (double)start, (double)rss};
  return true;
}

static void identify(const brim_top_processes *s, brim_top_known *k) {
  char path[64], text[TEXT_BYTES];
  brim_gpu_process p = {.pid = k->pid};
  brim_top_flag here = BRIM_TOP_YES;
  bool sure = s->shared_pids || k->here || k->pid == (uint32_t)getpid();
  if (!sure) here = holds_gpu(s->root, k->pid);
  k->elsewhere = here == BRIM_TOP_YES  ? BRIM_TOP_NO
                 : here == BRIM_TOP_NO ? BRIM_TOP_YES
                                       : BRIM_TOP_UNKNOWN;
  k->user[0] = k->command[0] = k->container[0] = '\0';
  if (here != BRIM_TOP_YES) return;
  brim_gpu_identify(s->root, &p);
  snprintf(k->user, sizeof k->user, "%s", p.user);
  snprintf(k->command, sizeof k->command, "%s", p.command);
  snprintf(path, sizeof path, "/proc/%u/cgroup", k->pid);
  if (brim_machine_read_text(s->root, path, text, sizeof text)) {
    brim_top_container(text, k->container, sizeof k->container);
  }
}

//---------------------------------- what is known ----------------------------------

static brim_top_known *find(brim_top_processes *s, uint32_t pid) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->known[i].pid == pid) return &s->known[i];
  }
  if (s->count == s->room) {
    size_t room = s->room ? s->room * 2 : 16;
    brim_top_known *known = (brim_top_known *)brim_realloc(s->known, room * sizeof *known);
    if (!known) return NULL;
    s->known = known;
    s->room = room;
  }
  brim_top_known *k = &s->known[s->count++];
  memset(k, 0, sizeof *k);
  k->pid = pid;
  k->start_ticks = (double)NAN;
  return k;
}

// Once per reading, however many GPUs it is on.
static void refresh(brim_top_processes *s, brim_top_known *k, int64_t now_ns, double uptime_s) {
  if (k->reading == s->reading) return;
  k->reading = s->reading;
  const double hz = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
  proc_stat stat;
  double ticks = k->cpu_ticks, passed = (double)(now_ns - k->time_ns) * 1e-9;
  k->cpu_percent = k->rss = k->elapsed_s = (double)NAN;
  if (!read_stat(s->root, k->pid, &stat)) {
    // not here, or it has just ended
    k->elsewhere = BRIM_TOP_YES;
    k->user[0] = k->command[0] = k->container[0] = '\0';
    k->start_ticks = (double)NAN;
    return;
  }
  bool same = stat.start_ticks == k->start_ticks;
  if (!same) identify(s, k);
  k->start_ticks = stat.start_ticks;
  k->cpu_ticks = stat.cpu_ticks;
  k->time_ns = now_ns;
  if (k->elsewhere != BRIM_TOP_NO) return;
  k->rss = stat.rss_pages * page;
  k->elapsed_s = hz > 0 ? fmax(0, uptime_s - stat.start_ticks / hz) : (double)NAN;
  if (same && hz > 0 && passed > 0 && stat.cpu_ticks >= ticks) {
    k->cpu_percent = (stat.cpu_ticks - ticks) / hz / passed * 100;
  }
}

static void forget_old(brim_top_processes *s) {
  size_t kept = 0;
  for (size_t i = 0; i < s->count; i++) {
    if (s->known[i].reading != s->reading) continue;
    if (kept != i) s->known[kept] = s->known[i];
    kept++;
  }
  s->count = kept;
}

//---------------------------------- the lists ----------------------------------

static void set_type(brim_top_process *to, const char *type) {
  if (!strcmp(to->type, type)) return;
  if (!to->type[0] || !strcmp(to->type, "C")) {
    // the list of those that compute comes first; a client of MPS may stand in both
    const char *both = !to->type[0] ? type : !strcmp(type, "G") ? "C+G" : type;
    snprintf(to->type, sizeof to->type, "%s", both);
  }
}

static double larger(double a, double b) { return isnan(a) ? b : isnan(b) ? a : fmax(a, b); }

// A process stands in several lists with the same figure.
static brim_top_process *add(brim_top_view *view, size_t first, const brim_top_gpu_state *gpu,
                             const brim_nvml_process *from) {
  for (size_t i = first; i < view->process_count; i++) {
    if (view->processes[i].pid == from->pid && from->pid != 0) return &view->processes[i];
  }
  brim_top_process *p = brim_top_view_add_process(view);
  if (!p) return NULL;
  p->pid = from->pid;
  p->gpu = gpu->slow.index;
  snprintf(p->uuid, sizeof p->uuid, "%s", gpu->slow.uuid);
  return p;
}

static void fill_use(const brim_top_gpu_state *gpu, brim_top_process *p) {
  const brim_nvml_process_use_v1 *use = brim_top_gpu_use(gpu, (uint32_t)p->pid);
  if (!use) return;
  p->sm_percent = use->sm;
  p->memory_busy_percent = use->memory;
  p->encoder_percent = use->encoder;
  p->decoder_percent = use->decoder;
  if (gpu->use_old) return;
  p->jpeg_percent = use->jpeg;
  p->ofa_percent = use->ofa;
}

static brim_status read_gpu(brim_top_gpu_state *gpu, brim_top_view *view) {
  const struct {
    brim_nvml_list_call call;
    const char *type;
  } lists[] = {{gpu->api.compute, "C"}, {gpu->api.graphics, "G"}, {gpu->api.mps, "M"}};
  size_t first = view->process_count;
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !status; i++) {
    brim_nvml_process *list = NULL;
    unsigned count = 0;
    if (!lists[i].call || gpu->lost) continue;
    int code = brim_gpu_read_list(lists[i].call, gpu->device, &list, &count);
    if (code == BRIM_GPU_LIST_NO_MEMORY) status = BRIM_ENOMEM;
    for (unsigned k = 0; k < count && !status; k++) {
      brim_top_process *p = add(view, first, gpu, &list[k]);
      if (!p) {
        status = BRIM_ENOMEM;
        break;
      }
      unsigned long long bytes = list[k].used_bytes;
      p->memory = larger(p->memory, bytes == BRIM_NVML_UNKNOWN ? (double)NAN : (double)bytes);
      set_type(p, lists[i].type);
    }
    brim_free(list);
  }
  if (status) return brim_fail(status, "out of memory for the processes of a GPU");
  if (view->process_count > first) brim_top_gpu_read_uses(gpu);
  for (size_t i = first; i < view->process_count; i++) fill_use(gpu, &view->processes[i]);
  return BRIM_OK;
}

// Jobs on the CPU, and on GPUs whose driver lists no processes.
static brim_status add_jobs(brim_top_processes *s, brim_top_view *view) {
  for (size_t i = 0; i < view->job_count; i++) {
    const brim_job *job = &view->jobs[i];
    bool here = s->namespace_id >= 0 && job->pid_namespace == s->namespace_id;
    if (!here || job->pid <= 0 || job->pid > INT32_MAX) continue;
    brim_top_known *k = find(s, (uint32_t)job->pid);
    if (!k) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    if (!k->here) k->start_ticks = (double)NAN;  // identified without guessing
    k->here = true;
    bool listed = false;
    for (size_t n = 0; n < view->process_count; n++) listed |= view->processes[n].pid == job->pid;
    brim_top_process *p = listed ? NULL : brim_top_view_add_process(view);
    if (!listed && !p) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    if (p) p->pid = job->pid;
  }
  return BRIM_OK;
}

//---------------------------------- the busiest ----------------------------------

enum { BUSIEST = 10, MOST_PIDS = 65536 };

static int by_pid(const void *a, const void *b) {
  const brim_top_ticks *x = (const brim_top_ticks *)a, *y = (const brim_top_ticks *)b;
  return (x->pid > y->pid) - (x->pid < y->pid);
}

// Every process with memory of its own: threads of the kernel have none.
static brim_status read_ticks(const brim_top_processes *s, brim_top_ticks **out, size_t *count) {
  char path[BRIM_TOP_PATH_BYTES];
  size_t room = 0;
  *out = NULL;
  *count = 0;
  snprintf(path, sizeof path, "%s/proc", s->root);
  DIR *dir = opendir(path);
  if (!dir) return BRIM_OK;
  brim_status status = BRIM_OK;
  for (struct dirent *e = readdir(dir); e && *count < MOST_PIDS; e = readdir(dir)) {
    int64_t pid = 0;
    proc_stat stat;
    if (e->d_name[0] < '1' || e->d_name[0] > '9' || !brim_parse_i64(e->d_name, &pid) ||
        pid > INT32_MAX || !read_stat(s->root, (uint32_t)pid, &stat) || stat.rss_pages <= 0) {
      continue;
    }
    if (*count == room) {
      room = room ? 2 * room : 256;
      brim_top_ticks *more = (brim_top_ticks *)brim_realloc(*out, room * sizeof *more);
      if (!more) {
        status = brim_fail(BRIM_ENOMEM, "out of memory for processes");
        break;
      }
      *out = more;
    }
    (*out)[(*count)++] = (brim_top_ticks){(uint32_t)pid, stat.start_ticks, stat.cpu_ticks};
  }
  closedir(dir);
  if (!status && *count > 0) qsort(*out, *count, sizeof **out, by_pid);
  return status;
}

static double used_since(const brim_top_processes *s, const brim_top_ticks *now) {
  const brim_top_ticks *before =
      s->tick_count > 0
          ? (const brim_top_ticks *)bsearch(now, s->ticks, s->tick_count, sizeof *now, by_pid)
          : NULL;
  return before && before->start == now->start ? now->used - before->used : 0;
}

static brim_status add_busiest(brim_top_processes *s, int64_t now_ns, brim_top_view *view) {
  const double hz = (double)sysconf(_SC_CLK_TCK), passed = (double)(now_ns - s->ticks_ns) * 1e-9;
  brim_top_ticks *now = NULL;
  size_t count = 0;
  double most[BUSIEST] = {0};
  uint32_t pids[BUSIEST] = {0};
  brim_status status = read_ticks(s, &now, &count);
  for (size_t i = 0; i < count && !status; i++) {
    double used = used_since(s, &now[i]);
    uint32_t pid = now[i].pid;
    for (size_t k = 0; k < BUSIEST && used > 0; k++) {
      if (used <= most[k]) continue;
      const double was = most[k];
      const uint32_t other = pids[k];
      most[k] = used, pids[k] = pid;
      used = was, pid = other;
    }
  }
  for (size_t k = 0; k < BUSIEST && pids[k] && !status; k++) {
    bool listed = false;
    for (size_t n = 0; n < view->process_count; n++) listed |= view->processes[n].pid == pids[k];
    if (listed) continue;
    brim_top_known *known = find(s, pids[k]);
    brim_top_process *p = known ? brim_top_view_add_process(view) : NULL;
    if (!p) {
      status = brim_fail(BRIM_ENOMEM, "out of memory for processes");
      break;
    }
    if (!known->here) known->start_ticks = (double)NAN;
    known->here = true;
    p->pid = pids[k];
    if (hz > 0 && passed > 0) p->cpu_percent = most[k] / hz / passed * 100;
  }
  brim_free(s->ticks);
  s->ticks = status ? NULL : now;
  s->tick_count = status ? 0 : count;
  s->ticks_ns = now_ns;
  if (status) brim_free(now);
  return status;
}

brim_status brim_top_processes_read(brim_top_processes *state, brim_top_gpu_state *gpus,
                                    size_t count, int64_t now_ns, brim_top_view *view) {
  state->reading++;
  for (size_t i = 0; i < count; i++) {
    if (!gpus[i].has_slices) BRIM_TRY(read_gpu(&gpus[i], view));
  }
  BRIM_TRY(add_jobs(state, view));
  if (count == 0) BRIM_TRY(add_busiest(state, now_ns, view));
  for (size_t i = 0; i < view->process_count; i++) {
    brim_top_process *p = &view->processes[i];
    brim_top_known *k = find(state, (uint32_t)p->pid);
    if (!k) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    refresh(state, k, now_ns, view->host.uptime_s);
    p->elsewhere = k->elsewhere;
    memcpy(p->user, k->user, sizeof p->user);
    memcpy(p->container, k->container, sizeof p->container);
    memcpy(p->command, k->command, sizeof p->command);
    if (!isnan(k->cpu_percent)) p->cpu_percent = k->cpu_percent;
    p->rss = k->rss;
    p->elapsed_s = k->elapsed_s;
  }
  forget_old(state);
  return BRIM_OK;
}
