// The chaos test of sweeps: processes that die, disks that fail, a network that loses messages, and the
// checks of what must stay true.

#include "chaos/chaos.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chaos/chaos_int.h"
#include "lab/exec/lab_exec.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_link.h"

//------------------------------------------ shared parts ------------------------------------------
// Random numbers, grids, processes to disturb and violations, for the tests of a sweep and of a pool.

enum {
  MOST_HITS = 4,  // most disturbances of the processes of one experiment
  PATH_BYTES = 1200,
  DRAIN_S = 300  // time for the last experiments after the disturbances
};

const char *brim_chaos_act_name(brim_chaos_act act) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_CHAOS_ACT_MAP(X)
#undef X
  };
  return names[act];
}

const char *brim_chaos_fault_name(brim_chaos_fault fault) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_CHAOS_FAULT_MAP(X)
#undef X
  };
  return names[fault];
}

static void say(const brim_chaos *c, const char *text) {
  if (c->options->say) c->options->say(c->options->ctx, text);
}

static void violation(brim_chaos *c, const char *fmt, ...) BRIM_PRINTF(2, 3);
static void violation(brim_chaos *c, const char *fmt, ...) {
  char text[sizeof c->report->first];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  brim_utf8_trim(text);
  if (c->report->violations++ == 0) memcpy(c->report->first, text, sizeof text);
  say(c, text);
}

static bool is_stopped(const brim_chaos *c) { return c->options->stop && *c->options->stop; }

// True if a process ended because a write failed: the test starts it again.
static bool disk_failed(const char *words) {
  return strstr(words, "disk I/O error") || strstr(words, brim_errno_text(EIO));
}

//---------------------------------- chance ----------------------------------

static int64_t random_between(brim_chaos *c, int64_t low, int64_t high) {
  return low + (int64_t)(brim_chaos_random(&c->random) % (uint64_t)(high - low + 1));
}

// Chooses an act by the shares, in percent.
static brim_chaos_act choose_act(brim_chaos *c, const int shares[BRIM_CHAOS_ACT_COUNT]) {
  int64_t at = random_between(c, 0, 99);
  int act = 0;
  while (act + 1 < BRIM_CHAOS_ACT_COUNT && at >= shares[act]) at -= shares[act++];
  return (brim_chaos_act)act;
}

//---------------------------------- files ----------------------------------

void brim_chaos_worker_folder(const brim_chaos *c, int worker, char *out, size_t size) {
  snprintf(out, size, "%.1000s/worker-%d", c->folder, worker);
}

static void grid_path(const brim_chaos *c, int64_t round, char *out) {
  snprintf(out, PATH_BYTES, "%s/round-%lld.yaml", c->folder, (long long)round);
}

// Writes a grid with `copies` of each seed. The copies differ in the patience of early stopping, which
// is always longer than the training, so they train alike.
static brim_status write_grid(const brim_chaos *c, int64_t round, int64_t first, int64_t copies,
                              char *path) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text,
                  "name: chaos\n"
                  "backend: ref\n"
                  "device: cpu\n"
                  "threads: 1\n"
                  "dataset: synthetic(shape=[6], classes=3, samples=96, seed=0)\n"
                  "model: mlp(depth=1, hidden=8)\n"
                  "data: {batch_size: 16, num_workers: 0}\n"
                  "retries: 1000\n"
                  "seed: [0, 1, 2, 3, 4, 5, 6, 7]\n");
  brim_str_printf(&text, "training.epochs: %d\ntraining.early_stopping_patience: [",
                  c->options->workers > 0 ? 60 : 25);
  for (int64_t i = 0; i < copies; i++) {
    brim_str_printf(&text, "%s%lld", i ? ", " : "", (long long)(1000 + first + i));
  }
  brim_str_append(&text, "]\n");
  brim_status status = brim_str_status(&text);
  grid_path(c, round, path);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- processes ----------------------------------

static void continue_stopped(brim_chaos *c, bool all) {
  int64_t now = brim_clock_ms();
  for (size_t i = 0; i < c->stopped_count;) {
    if (!all && now < c->stopped[i].until) {
      i++;
      continue;
    }
    (void)kill(c->stopped[i].pid, SIGCONT);
    c->stopped[i] = c->stopped[--c->stopped_count];
  }
}

// Sends SIGSTOP now; continue_stopped sends SIGCONT later.
static void stop_process(brim_chaos *c, pid_t pid, int64_t for_ms) {
  if (c->stopped_count == BRIM_CHAOS_STOPPED || kill(pid, SIGSTOP) != 0) return;
  c->stopped[c->stopped_count].pid = pid;
  c->stopped[c->stopped_count++].until = brim_clock_ms() + for_ms;
}

// Finds or adds the number of times that processes of an experiment were disturbed.
static int *hits_of(brim_chaos *c, const char *exp) {
  size_t kept = c->hits_count < BRIM_CHAOS_PROCS ? c->hits_count : BRIM_CHAOS_PROCS;
  for (size_t i = 0; i < kept; i++) {
    if (strcmp(c->hits[i].exp, exp) == 0) return &c->hits[i].count;
  }
  size_t at = c->hits_count++ % BRIM_CHAOS_PROCS;
  memcpy(c->hits[at].exp, exp, BRIM_CHAOS_ID);
  c->hits[at].count = 0;
  return &c->hits[at].count;
}

// Chooses an executor or a training of an experiment with fewer than MOST_HITS disturbances; 0 = none.
// Without that limit the last experiments of a round would be hit over and over, and an experiment
// rightly fails after eleven failures of the machine without a checkpoint in between.
static pid_t any_process(brim_chaos *c, bool trains) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  size_t n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS), kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (all[i].trains == trains && *hits_of(c, all[i].exp) < MOST_HITS) all[kept++] = all[i];
  }
  if (kept == 0) return 0;
  const brim_chaos_proc *chosen = &all[brim_chaos_random(&c->random) % kept];
  ++*hits_of(c, chosen->exp);
  return chosen->pid;
}

//------------------------------------------ processes ------------------------------------------
// Finds executors and trainings below the folder of the test by their command lines.

// Reads the 12 digits behind FOLDER/exp/ or FOLDER/worker-N/exp/ in a word; false if they are missing.
static bool exp_of(const char *word, const char *folder, brim_chaos_proc *out) {
  const char *at = strstr(word, folder);
  int worker = 0, used = 0;
  if (!at) return false;
  at += strlen(folder);
  if (sscanf(at, "/worker-%d%n", &worker, &used) == 1) at += used;
  if (strncmp(at, "/exp/", 5) != 0 || strlen(at) < 5 + BRIM_CHAOS_ID - 1) return false;
  snprintf(out->exp, BRIM_CHAOS_ID, "%.*s", BRIM_CHAOS_ID - 1, at + 5);
  out->worker = worker;
  return true;
}

static bool read_process(const char *pid, const char *folder, brim_chaos_proc *out) {
  char path[64], text[4096];
  bool executes = false, trains = false, found = false;
  snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return false;
  text[size] = '\0';
  *out = (brim_chaos_proc){.pid = (pid_t)strtol(pid, NULL, 10)};
  for (const char *word = text; word < text + size; word += strlen(word) + 1) {
    executes = executes || strcmp(word, "execute") == 0;
    trains = trains || strcmp(word, "train") == 0;
    if (strncmp(word, "fence=", 6) == 0) out->fence = strtoll(word + 6, NULL, 10);
    found = exp_of(word, folder, out) || found;
  }
  if (!found || (!executes && !trains)) return false;
  out->trains = !executes;
  return true;
}

// Reads the fourth field of /proc/PID/stat, behind a name that may contain anything; 0 if the process
// has ended.
static pid_t parent_of(pid_t pid) {
  char path[64], text[512];
  int parent = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size > 0 ? size : 0] = '\0';
  const char *at = strrchr(text, ')');
  return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static bool is_copy(const brim_chaos_proc *of, const brim_chaos_proc *all, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (all[i].pid == of->parent && all[i].trains == of->trains) return true;
  }
  return false;
}

size_t brim_chaos_processes(const char *folder, brim_chaos_proc *out, size_t most) {
  size_t n = 0, kept = 0;
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  brim_chaos_proc *all = brim_calloc(BRIM_CHAOS_PROCS, sizeof *all);
  for (struct dirent *entry; all && n < BRIM_CHAOS_PROCS && (entry = readdir(dir));) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (read_process(entry->d_name, folder, &all[n])) n++;
  }
  closedir(dir);
  for (size_t i = 0; i < n; i++) all[i].parent = parent_of(all[i].pid);
  for (size_t i = 0; i < n && kept < most; i++) {
    if (!is_copy(&all[i], all, n)) out[kept++] = all[i];
  }
  brim_free(all);
  return kept;
}

//---------------------------------------- what must hold ----------------------------------------
// Checks of the store after the test: one result per experiment, attempts one after the other, and
// the metrics and models of the undisturbed run.

typedef struct exp_item {
  char id[BRIM_EXP_ID];
  char seed[16];  // "seed=3"
  brim_exp_state state;
  int64_t attempt;
  // counts from the events
  int64_t claims, after_done;
  bool claimed, claimed_twice, done;
} exp_item;

typedef struct exp_list {
  exp_item *items;
  size_t count, cap;
  size_t last;  // index of the experiment of the last event
} exp_list;

// Copies the word of a label that identifies the training.
static void seed_of(const char *label, char out[16]) {
  const char *at = strstr(label, "seed=");
  snprintf(out, 16, "%.*s", at ? (int)strcspn(at, " ") : 0, at ? at : "");
}

static brim_status on_exp(void *ctx, const brim_store_exp *exp) {
  exp_list *list = ctx;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 64;
    exp_item *more = brim_realloc(list->items, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
    list->items = more;
    list->cap = cap;
  }
  exp_item *item = &list->items[list->count++];
  *item = (exp_item){.state = exp->state, .attempt = exp->attempt};
  snprintf(item->id, sizeof item->id, "%s", exp->id);
  seed_of(exp->label, item->seed);
  return BRIM_OK;
}

//---------------------------------- attempts ----------------------------------

typedef struct attempt_view {
  int64_t count, ok, open, last_ok, fence, ended;
  int64_t from_step;  // first step of the attempt that has the result
  char worker[65];    // worker of the attempt that has the result
  bool in_order, apart;
} attempt_view;

static brim_status on_attempt(void *ctx, const brim_store_attempt *a) {
  attempt_view *v = ctx;
  v->count++;
  v->in_order = v->in_order && a->n == v->count && a->fence > v->fence;
  v->apart = v->apart && a->claimed >= v->ended && (a->ended == 0 || a->ended >= a->claimed);
  v->fence = a->fence;
  v->ended = a->ended;
  v->open += a->outcome == BRIM_ATTEMPT_OPEN;
  if (a->outcome == BRIM_ATTEMPT_OK) {
    v->ok++;
    v->last_ok = a->n;
    v->from_step = a->from_step;
    snprintf(v->worker, sizeof v->worker, "%s", a->worker);
  }
  return BRIM_OK;
}

static brim_status check_attempts(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                                  attempt_view *out) {
  attempt_view v = {.in_order = true, .apart = true};
  BRIM_TRY(brim_lab_attempts(link, exp->id, on_attempt, &v));
  c->report->attempts += v.count;
  if (!v.in_order) violation(c, "attempts of %.12s are not in order", exp->id);
  if (!v.apart) violation(c, "attempts of %.12s overlap in time", exp->id);
  if (v.open > 0) violation(c, "an attempt of %.12s has no end", exp->id);
  if (v.ok != 1 || v.last_ok != exp->attempt || v.count != exp->attempt) {
    violation(c, "experiment %.12s has %lld results in %lld attempts", exp->id, (long long)v.ok,
              (long long)v.count);
  }
  *out = v;
  return BRIM_OK;
}

//---------------------------------- metrics ----------------------------------

typedef struct metric_row {
  char key[BRIM_METRIC_NAME];
  int64_t step;
  double value;
} metric_row;

typedef struct metric_list {
  metric_row *rows;
  size_t count, cap;
  const attempt_view *by;  // values of other attempts beyond its from_step are stale
  size_t stale;
} metric_list;

static bool is_time(const char *key) {
  return brim_str_ends(key, "_s") || brim_str_ends(key, "_ms") || strcmp(key, "seconds") == 0;
}

static brim_status on_metric(void *ctx, const brim_store_metric *row, int64_t attempt) {
  metric_list *list = ctx;
  if (list->by && attempt != list->by->last_ok) {
    list->stale += attempt > list->by->last_ok || row->step > list->by->from_step;
  }
  if (is_time(row->key)) return BRIM_OK;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 256;
    metric_row *more = brim_realloc(list->rows, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
    list->rows = more;
    list->cap = cap;
  }
  metric_row *to = &list->rows[list->count++];
  *to = (metric_row){.step = row->step, .value = row->value};
  snprintf(to->key, sizeof to->key, "%s", row->key);
  return BRIM_OK;
}

static bool same_value(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void compare_metrics(brim_chaos *c, const exp_item *exp, const metric_list *a,
                            const metric_list *b) {
  if (a->count != b->count || a->count == 0) {
    violation(c, "experiment %.12s has %zu metric rows, undisturbed %zu", exp->id, a->count,
              b->count);
    return;
  }
  for (size_t i = 0; i < a->count; i++) {
    const metric_row *x = &a->rows[i], *y = &b->rows[i];
    if (strcmp(x->key, y->key) == 0 && x->step == y->step && same_value(x->value, y->value)) {
      continue;
    }
    violation(c, "experiment %.12s: %s at step %lld is %.17g, undisturbed %.17g", exp->id, x->key,
              (long long)x->step, x->value, y->value);
    return;
  }
}

static brim_status check_metrics(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                                 brim_lab_link *reference, const exp_item *twin,
                                 const attempt_view *by) {
  metric_list a = {.by = by}, b = {0};
  brim_status status = brim_lab_read_metrics(link, exp->id, NULL, 0, on_metric, &a);
  if (!status) {
    status = brim_lab_read_metrics(reference, twin->id, NULL, 0, on_metric, &b);
  }
  if (!status) compare_metrics(c, exp, &a, &b);
  if (!status && a.stale > 0) {
    violation(c, "experiment %.12s has %zu metric rows of a stale attempt", exp->id, a.stale);
  }
  brim_free(a.rows);
  brim_free(b.rows);
  return status;
}

//---------------------------------- files ----------------------------------

static brim_status read_of(const char *folder, const exp_item *exp, const char *name, char **out,
                           size_t *size) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, exp->id, &path);
  brim_str_printf(&path, "/%s", name);
  if (!status) status = brim_str_status(&path);
  if (!status) status = brim_fs_read(path.data, 0, out, size);
  brim_str_deinit(&path);
  return status;
}

// Finds the folder with the files of an attempt: the sweep's, or that of the worker whose name ends
// with the hash of its folder's path.
static void folder_of(const brim_chaos *c, const char *worker, char *out, size_t size) {
  char hex[BRIM_SHA256_HEX];
  const char *hash = strrchr(worker, '-');
  for (int i = 1; i <= c->options->workers; i++) {
    brim_chaos_worker_folder(c, i, out, size);
    brim_sha256_hex(out, strlen(out), hex);
    if (hash && strncmp(hash + 1, hex, strlen(hash + 1)) == 0) return;
  }
  snprintf(out, size, "%s", c->folder);
}

// Checks that the model and the last checkpoint equal those of the undisturbed run, bit for bit.
static brim_status check_files(brim_chaos *c, const exp_item *exp, const exp_item *twin,
                               const attempt_view *by) {
  static const char *const names[] = {"model.safetensors", "last.safetensors"};
  char folder[1200];
  folder_of(c, by->worker, folder, sizeof folder);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *a = NULL, *b = NULL;
    size_t a_size = 0, b_size = 0;
    brim_status status = read_of(c->reference, twin, names[i], &b, &b_size);
    bool got = !status && !read_of(folder, exp, names[i], &a, &a_size);
    if (!status && !got) {
      violation(c, "experiment %.12s has no %s: %.200s", exp->id, names[i], brim_status_detail());
    } else if (!status && (a_size != b_size || memcmp(a, b, a_size) != 0)) {
      violation(c, "%s of experiment %.12s differs from the undisturbed one", names[i], exp->id);
    }
    brim_free(a);
    brim_free(b);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

//---------------------------------- events ----------------------------------

// Counts claims while events arrive in order: an attempt must end before the next one begins, and
// nothing may follow the result.
static brim_status on_event(void *ctx, const brim_store_event *event) {
  exp_list *list = ctx;
  if (!event->exp[0]) return BRIM_OK;
  size_t i = list->last;
  while (i < list->count && strcmp(list->items[i].id, event->exp) != 0) i++;
  for (size_t k = 0; i == list->count && k < list->last; k++) {
    if (strcmp(list->items[k].id, event->exp) == 0) i = k;
  }
  if (i == list->count) return BRIM_OK;
  exp_item *exp = &list->items[i];
  list->last = i;
  if (exp->done) exp->after_done++;
  if (strcmp(event->kind, "done") == 0) exp->done = true;
  if (strcmp(event->kind, "claimed") == 0) {
    exp->claims++;
    exp->claimed_twice = exp->claimed_twice || exp->claimed;
    exp->claimed = true;
  } else if (strcmp(event->kind, "adopted") == 0) {
    exp->claimed = true;
  } else if (strcmp(event->kind, "started") != 0) {
    exp->claimed = false;  // the attempt has ended, in whatever way
  }
  return BRIM_OK;
}

static void check_events(brim_chaos *c, const exp_item *exp) {
  if (exp->after_done > 0) {
    violation(c, "experiment %.12s changed after its result", exp->id);
  }
  if (exp->claimed_twice) {
    violation(c, "experiment %.12s was claimed while an attempt had it", exp->id);
  }
  if (exp->claims != exp->attempt) {
    violation(c, "experiment %.12s was claimed %lld times for %lld attempts", exp->id,
              (long long)exp->claims, (long long)exp->attempt);
  }
}

//---------------------------------- all ----------------------------------

static brim_status check_one(brim_chaos *c, brim_lab_link *link, const exp_item *exp,
                             brim_lab_link *reference, const exp_list *undisturbed) {
  if (exp->state != BRIM_EXP_DONE) {
    violation(c, "experiment %.12s is %s, not done", exp->id, brim_exp_state_name(exp->state));
    return BRIM_OK;
  }
  attempt_view by;
  check_events(c, exp);
  BRIM_TRY(check_attempts(c, link, exp, &by));
  size_t twin = 0;
  while (twin < undisturbed->count && strcmp(undisturbed->items[twin].seed, exp->seed) != 0) {
    twin++;
  }
  if (twin == undisturbed->count) {
    return brim_fail(BRIM_EINTERNAL, "the undisturbed run has no '%s'", exp->seed);
  }
  BRIM_TRY(check_metrics(c, link, exp, reference, &undisturbed->items[twin], &by));
  return check_files(c, exp, &undisturbed->items[twin], &by);
}

static brim_status check_all(brim_chaos *c, brim_lab_link *link, brim_lab_link *reference) {
  exp_list all = {0}, undisturbed = {0};
  brim_status status = brim_lab_list(link, NULL, on_exp, &all);
  if (!status) status = brim_lab_events(link, 0, 0, on_event, &all);
  if (!status) status = brim_lab_list(reference, NULL, on_exp, &undisturbed);
  c->report->experiments = (int64_t)all.count;
  for (size_t i = 0; i < all.count && !status; i++) {
    status = check_one(c, link, &all.items[i], reference, &undisturbed);
  }
  brim_free(all.items);
  brim_free(undisturbed.items);
  return status;
}

// Refuses a store that has experiments (BRIM_EEXIST): it may be a user's database, and the sweeps of
// the test would run its queue.
static brim_status check_empty(const char *store) {
  brim_lab_link *link = NULL;
  brim_store_counts counts = {0};
  brim_status status = brim_lab_link_open(store, NULL, &link);
  if (!status) status = brim_lab_count(link, NULL, &counts);
  brim_lab_link_close(link);
  if (status || counts.total == 0) return status;
  return brim_fail(BRIM_EEXIST, "the store has %lld experiments; the chaos test needs an empty one",
                   (long long)counts.total);
}

brim_status brim_chaos_check(brim_chaos *c) {
  const brim_lab_link_options how = {.readonly = true};
  brim_lab_link *link = NULL, *undisturbed = NULL;
  brim_status status = brim_lab_link_open(c->store, &how, &link);
  if (!status) status = brim_lab_link_open(c->reference, &how, &undisturbed);
  if (!status) status = check_all(c, link, undisturbed);
  brim_lab_link_close(undisturbed);
  brim_lab_link_close(link);
  return status;
}

//--------------------------------------------- pool ---------------------------------------------
// The chaos test of a pool: a server and workers with folders of their own as child processes, the
// proxy between them, and the disturbances.

enum {
  WORKERS = 200,     // most workers
  ROUND = 48,        // experiments that one client submits
  LEASE_S = 3,       // lease time of the server
  CALL_S = 2,        // time limit of a request
  LATE_MS = 5000,    // longest delay of a request or a reply
  PERCENT = 10,      // share of the requests that are spoiled
  PORTS = 20000,     // first of the 10,000 ports to choose from; outgoing connections use others
  COUNT_MS = 500,    // pause between two readings of the server's counts
  READY_MS = 60000,  // time limit for the first start of the server
  LEAVE_MS = 60000   // time limit for the end of all processes
};

// The server, a worker, or a client that submits.
typedef struct member {
  brim_child *child;  // NULL: the member does not run
  char name[24];      // name of its folder and its log
  bool killed;        // this test killed it
  bool ready;
  int64_t start_ms;  // when it may start again
  int64_t stopped_until;
  char tail[512];  // last line of its stderr
  FILE *log;
} member;

typedef struct pool {
  brim_chaos *c;
  member server, submit, workers[WORKERS];
  int count, port;
  brim_chaos_proxy *proxy;
  brim_lab_link *link;
  brim_store_counts counts;
  int64_t submitted, first;  // experiments submitted so far; copies of each seed so far
  int64_t failed_submits;    // failed submits in a row
} pool;

//---------------------------------- processes ----------------------------------

static brim_status on_member_line(void *ctx, const brim_child_line *line) {
  member *m = ctx;
  if (m->log) fprintf(m->log, "%.*s\n", (int)line->size, line->text);
  if (strstr(line->text, "\"event\":\"serving\"")) m->ready = true;
  if (line->stream == BRIM_CHILD_OUT || line->size == 0) return BRIM_OK;
  snprintf(m->tail, sizeof m->tail, "%.*s", (int)(line->size < 500 ? line->size : 500), line->text);
  return BRIM_OK;
}

static brim_status start_member(pool *p, member *m, const char *const *argv) {
  char path[PATH_BYTES], timeout[32];
  snprintf(timeout, sizeof timeout, BRIM_LAB_TIMEOUT_ENV "=%d", CALL_S);
  const char *const env[] = {timeout, BRIM_LAB_TOKEN_ENV, NULL};
  const brim_child_options how = {.argv = argv,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_PIPE,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_member_line,
                                  .ctx = m};
  snprintf(path, sizeof path, "%.1000s/%s.log", p->c->folder, m->name);
  if (!m->log) m->log = fopen(path, "ae");
  m->tail[0] = '\0';
  m->killed = m->ready = false;
  m->stopped_until = 0;
  p->c->report->starts++;
  return brim_child_start(&how, &m->child);
}

static brim_status start_server(pool *p) {
  char port[16], lease[16], folder[PATH_BYTES];
  snprintf(folder, sizeof folder, "%.1000s/server", p->c->folder);
  snprintf(port, sizeof port, "%d", p->port);
  snprintf(lease, sizeof lease, "%d", LEASE_S);
  const char *const argv[] = {p->c->options->program,
                              "--json",
                              "serve",
                              "--server-only",
                              "--store",
                              p->c->store,
                              "--output-dir",
                              folder,
                              "--port",
                              port,
                              "--lease",
                              lease,
                              "--backoff",
                              "0.2",
                              NULL};
  return start_member(p, &p->server, argv);
}

static void proxy_url(const pool *p, char out[64]) {
  snprintf(out, 64, "http://127.0.0.1:%d", brim_chaos_proxy_port(p->proxy));
}

static brim_status start_worker(pool *p, int worker) {
  char folder[1200], url[64];
  brim_chaos_worker_folder(p->c, worker, folder, sizeof folder);
  proxy_url(p, url);
  const char *const argv[] = {p->c->options->program, "--quiet", "worker",   "--url", url,
                              "--output-dir",         folder,    "--device", "cpu",   NULL};
  return start_member(p, &p->workers[worker - 1], argv);
}

static brim_status start_submit(pool *p, const char *grid) {
  char url[64];
  proxy_url(p, url);
  const char *const argv[] = {
      p->c->options->program, "--quiet", "sweep", grid, "--store", url, NULL};
  return start_member(p, &p->submit, argv);
}

// *ended: the member ran and has ended now.
static brim_status poll_member(pool *p, member *m, bool *ended) {
  *ended = false;
  if (!m->child) return BRIM_OK;
  BRIM_TRY(brim_child_poll(m->child, ended));
  if (!*ended) return BRIM_OK;
  const brim_child_result *r = brim_child_get_result(m->child);
  if (!m->killed && m != &p->submit) {
    if (r->signal || !disk_failed(m->tail)) {
      violation(p->c, "%s ended by itself with exit code %d, signal %d: %.300s", m->name,
                r->exit_code, r->signal, m->tail);
    }
    m->start_ms = brim_clock_ms() + 1000;
  }
  if (m == &p->submit)
    p->failed_submits = r->exit_code == 0 && !r->signal ? 0 : p->failed_submits + 1;
  brim_child_close(m->child);
  m->child = NULL;
  return BRIM_OK;
}

static brim_status keep_members(pool *p, int64_t now) {
  bool ended;
  BRIM_TRY(poll_member(p, &p->server, &ended));
  if (!p->server.child && now >= p->server.start_ms) BRIM_TRY(start_server(p));
  for (int i = 1; i <= p->count; i++) {
    member *m = &p->workers[i - 1];
    BRIM_TRY(poll_member(p, m, &ended));
    if (!m->child && now >= m->start_ms) BRIM_TRY(start_worker(p, i));
  }
  return BRIM_OK;
}

//---------------------------------- disturbances ----------------------------------

// The process of a member that may be disturbed now; 0: it does not run, or is killed or stopped
// already.
static pid_t member_pid(member *m) {
  return m->child && !m->killed && brim_clock_ms() >= m->stopped_until ? brim_child_pid(m->child)
                                                                       : 0;
}

// Ends a member. Most start again soon, some so late that other workers have taken over their
// experiments.
static void end_member(pool *p, member *m, pid_t pid, int sig) {
  int64_t most = m != &p->server && random_between(p->c, 0, 3) == 0 ? 3000 * LEASE_S : 1500;
  m->killed = true;
  m->start_ms = brim_clock_ms() + random_between(p->c, 0, most);
  (void)kill(pid, sig);
}

static void stop_member(pool *p, member *m, pid_t pid, int64_t most_ms) {
  int64_t ms = random_between(p->c, 100, most_ms);
  m->stopped_until = brim_clock_ms() + ms;
  stop_process(p->c, pid, ms);
}

static void disturb_pool(pool *p) {
  static const int shares[BRIM_CHAOS_ACT_COUNT] = {
      [BRIM_CHAOS_KILL_EXECUTOR] = 24, [BRIM_CHAOS_STOP_EXECUTOR] = 8,
      [BRIM_CHAOS_KILL_TRAINING] = 12, [BRIM_CHAOS_KILL_WORKER] = 26,
      [BRIM_CHAOS_STOP_WORKER] = 10,   [BRIM_CHAOS_END_WORKER] = 6,
      [BRIM_CHAOS_KILL_SERVER] = 7,    [BRIM_CHAOS_STOP_SERVER] = 5,
      [BRIM_CHAOS_END_SERVER] = 2};
  brim_chaos_act act = choose_act(p->c, shares);
  member *m = act >= BRIM_CHAOS_KILL_SERVER ? &p->server
                                            : &p->workers[random_between(p->c, 0, p->count - 1)];
  pid_t pid = act >= BRIM_CHAOS_KILL_WORKER ? member_pid(m)
                                            : any_process(p->c, act == BRIM_CHAOS_KILL_TRAINING);
  if (pid == 0) return;
  p->c->report->acts[act]++;
  if (act == BRIM_CHAOS_STOP_EXECUTOR) {
    stop_process(p->c, pid, random_between(p->c, 100, 2500 * LEASE_S));
  } else if (act == BRIM_CHAOS_STOP_WORKER) {
    stop_member(p, m, pid, 2500 * LEASE_S);
  } else if (act == BRIM_CHAOS_STOP_SERVER) {
    stop_member(p, m, pid, 1500 * LEASE_S);
  } else if (act == BRIM_CHAOS_END_WORKER || act == BRIM_CHAOS_END_SERVER) {
    end_member(p, m, pid, SIGINT);
  } else if (act == BRIM_CHAOS_KILL_WORKER || act == BRIM_CHAOS_KILL_SERVER) {
    end_member(p, m, pid, SIGKILL);
  } else {
    (void)kill(pid, SIGKILL);
  }
}

// Finds a folder or a fence that two processes use.
static bool find_twice(const brim_chaos_proc *all, size_t n, char *out, size_t size) {
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < i; k++) {
      const brim_chaos_proc *a = &all[i], *b = &all[k];
      if (a->trains != b->trains || strcmp(a->exp, b->exp) != 0) continue;
      if (a->trains && a->worker == b->worker) {
        snprintf(out, size, "experiment %s is trained twice in the folder of worker %d", a->exp,
                 a->worker);
        return true;
      }
      if (!a->trains && a->fence == b->fence) {
        snprintf(out, size, "experiment %s has two executors with fence %lld", a->exp,
                 (long long)a->fence);
        return true;
      }
    }
  }
  return false;
}

// Reports a violation only if three looks in a row see it: a process may end while the processes are
// listed.
static void watch_pool(pool *p) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  char what[160];
  for (int look = 0; look < 3; look++) {
    if (look > 0) brim_clock_sleep_ns(20000000);
    size_t n = brim_chaos_processes(p->c->folder, all, BRIM_CHAOS_PROCS);
    if (!find_twice(all, n, what, sizeof what)) return;
  }
  violation(p->c, "%s", what);
}

//---------------------------------- experiments ----------------------------------

// Keeps the queue filled by clients that try again after a failure of the network.
static brim_status submit_more(pool *p, bool open) {
  const int64_t *n = p->counts.states;
  char path[PATH_BYTES], text[128];
  bool ended;
  int64_t wanted = (p->c->options->experiments + BRIM_CHAOS_SEEDS - 1) / BRIM_CHAOS_SEEDS;
  int64_t copies = ROUND / BRIM_CHAOS_SEEDS;
  BRIM_TRY(poll_member(p, &p->submit, &ended));
  if (p->submit.child) return BRIM_OK;
  if (ended && p->failed_submits == 0) {
    if (wanted && copies > wanted - p->first) copies = wanted - p->first;
    p->first += copies;
    p->submitted += copies * BRIM_CHAOS_SEEDS;
    return BRIM_OK;
  }
  if (p->failed_submits > 100) {
    return brim_fail(BRIM_ECHILD, "no grid can be submitted: %.300s", p->submit.tail);
  }
  bool low = p->counts.total == p->submitted && n[BRIM_EXP_QUEUED] < 2 * p->count;
  if (!p->failed_submits && !(low && (p->first == 0 || (wanted ? p->first < wanted : open)))) {
    return BRIM_OK;
  }
  if (wanted && copies > wanted - p->first) copies = wanted - p->first;
  if (!p->failed_submits) {
    snprintf(text, sizeof text, brim_tr("round %lld: %lld experiments"),
             (long long)++p->c->report->rounds, (long long)(copies * BRIM_CHAOS_SEEDS));
    say(p->c, text);
  }
  BRIM_TRY(write_grid(p->c, p->c->report->rounds, p->first, copies, path));
  return start_submit(p, path);
}

// Keeps the old counts if the server does not answer.
static void read_counts(pool *p) {
  brim_store_counts counts = {0};
  if (member_pid(&p->server) == 0) return;
  if (brim_lab_count(p->link, NULL, &counts) == BRIM_OK) p->counts = counts;
  brim_status_clear();
}

static bool all_ended(const pool *p) {
  const int64_t *n = p->counts.states;
  return p->submitted > 0 && !p->submit.child && p->failed_submits == 0 &&
         p->counts.total == p->submitted &&
         n[BRIM_EXP_DONE] + n[BRIM_EXP_FAILED] + n[BRIM_EXP_CANCELLED] == p->counts.total;
}

static brim_status run_members(pool *p) {
  const brim_chaos_options *o = p->c->options;
  int64_t end_ms = brim_clock_ms() + (int64_t)(o->seconds * 1e3);
  int64_t last_ms = end_ms + DRAIN_S * 1000LL, next_act = 0, next_count = 0, next_look = 0;
  for (bool calm = false;;) {
    int64_t now = brim_clock_ms();
    if (is_stopped(p->c)) {
      return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    }
    if (!calm && now >= end_ms) brim_chaos_proxy_calm(p->proxy);
    calm = now >= end_ms;
    continue_stopped(p->c, calm);
    BRIM_TRY(keep_members(p, now));
    BRIM_TRY(submit_more(p, !calm));
    if (now >= next_count) {
      read_counts(p);
      next_count = brim_clock_ms() + COUNT_MS;
      bool more = o->experiments ? p->submitted < o->experiments : !calm;
      if (!more && all_ended(p)) return BRIM_OK;
    }
    if (now > last_ms) {
      violation(p->c, "the experiments did not end within %d s", DRAIN_S);
      return BRIM_OK;
    }
    if (!calm && now >= next_act) {
      disturb_pool(p);
      next_act = now + random_between(p->c, 20, 300);
    }
    if (now >= next_look) {
      watch_pool(p);
      next_look = now + 200;
    }
    brim_clock_sleep_ns(10000000);
  }
}

//---------------------------------- begin and end ----------------------------------

// Chooses a port that no program uses now.
static brim_status choose_port(pool *p) {
  for (int tries = 0; tries < 100; tries++) {
    p->port = PORTS + (int)random_between(p->c, 0, 9999);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)p->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free_now = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (free_now) return BRIM_OK;
  }
  return brim_fail(BRIM_EIO, "the chaos test finds no free port");
}

static brim_status wait_for_server(pool *p) {
  int64_t until = brim_clock_ms() + READY_MS;
  bool ended = false;
  while (!ended && !p->server.ready && brim_clock_ms() < until) {
    BRIM_TRY(brim_child_wait(p->server.child, 100, &ended));
  }
  if (p->server.ready) return BRIM_OK;
  return brim_fail(BRIM_ECHILD, "the server does not start: %.300s", p->server.tail);
}

static brim_status begin_pool(pool *p) {
  char url[64];
  BRIM_TRY(choose_port(p));
  const brim_chaos_proxy_options how = {.port = p->port,
                                        .seed = p->c->options->seed,
                                        .percent = PERCENT,
                                        .late_ms = LATE_MS,
                                        .only = -1};
  const brim_lab_link_options link = {.timeout_ms = 300};
  BRIM_TRY(brim_chaos_proxy_open(&how, &p->proxy));
  snprintf(url, sizeof url, "http://127.0.0.1:%d", p->port);
  BRIM_TRY(brim_lab_link_open(url, &link, &p->link));
  BRIM_TRY(start_server(p));
  return wait_for_server(p);
}

static void close_member(member *m) {
  brim_child_close(m->child);
  if (m->log) fclose(m->log);
  m->child = NULL;
  m->log = NULL;
}

// Ends the workers as Ctrl-C does, and then the server.
static void end_pool(pool *p) {
  int64_t until = brim_clock_ms() + LEAVE_MS;
  bool ended = false;
  continue_stopped(p->c, true);
  for (int i = 0; i < p->count; i++) {
    if (p->workers[i].child) (void)brim_child_signal(p->workers[i].child, SIGINT);
  }
  for (int i = 0; i <= p->count; i++) {
    member *m = i < p->count ? &p->workers[i] : &p->server;
    if (m == &p->server && m->child) (void)brim_child_signal(m->child, SIGINT);
    int64_t left = until - brim_clock_ms();
    if (!m->child || brim_child_wait(m->child, left > 0 ? left : 0, &ended)) continue;
    if (!ended) violation(p->c, "%s does not end after SIGINT", m->name);
  }
  for (int i = 0; i < p->count; i++) close_member(&p->workers[i]);
  close_member(&p->submit);
  close_member(&p->server);
  brim_lab_link_close(p->link);
  if (p->proxy) brim_chaos_proxy_counts(p->proxy, &p->c->report->requests, p->c->report->faults);
  brim_chaos_proxy_close(p->proxy);
  brim_status_clear();
}

static brim_status run_pool(brim_chaos *c) {
  pool *p = brim_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
  p->c = c;
  p->count = (int)(c->options->workers < WORKERS ? c->options->workers : WORKERS);
  snprintf(p->server.name, sizeof p->server.name, "server");
  snprintf(p->submit.name, sizeof p->submit.name, "submit");
  for (int i = 0; i < p->count; i++) {
    snprintf(p->workers[i].name, sizeof p->workers[i].name, "worker-%d", i + 1);
  }
  brim_status status = begin_pool(p);
  if (!status) status = run_members(p);
  char detail[512];
  snprintf(detail, sizeof detail, "%s", status ? brim_status_detail() : "");
  end_pool(p);
  brim_free(p);
  if (status) brim_status_set_detail(detail);
  return status;
}

//-------------------------------------------- sweep --------------------------------------------
// The chaos test of a sweep: sweeps as child processes, and the disturbances.

enum {
  CHAOS_ROUND = 48,      // experiments of one round
  CHAOS_LEASE_S = 2,     // lease time of the sweeps
  ORPHAN_MS = 20000,     // time for processes to end after their sweep
  SMALL_FILE = 32 << 10  // largest size in bytes of a file while the disk is full
};

//---------------------------------- the sweep ----------------------------------

static brim_status on_sweep_line(void *ctx, const brim_child_line *line) {
  brim_chaos *c = ctx;
  snprintf(c->tail, sizeof c->tail, "%.*s", (int)(line->size < 900 ? line->size : 900), line->text);
  return BRIM_OK;
}

static brim_status start_sweep(brim_chaos *c, const char *grid, const char *store,
                               const char *folder) {
  char jobs[24], lease[24];
  snprintf(jobs, sizeof jobs, "%lld", (long long)c->options->executors);
  snprintf(lease, sizeof lease, "%d", CHAOS_LEASE_S);
  const char *const argv[] = {
      c->options->program, "--quiet", "sweep",        grid, "--store", store,
      "--output-dir",      folder,    "--jobs",       jobs, "--lease", lease,
      "--backoff",         "0.2",     "--keep-going", NULL};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_sweep_line,
                                  .ctx = c};
  c->tail[0] = '\0';
  c->killed = false;
  c->full_until = 0;
  c->report->starts++;
  return brim_child_start(&how, &c->sweep);
}

// *ended: the sweep's process has ended. *done: its grid has ended too.
static brim_status poll_sweep(brim_chaos *c, bool *ended, bool *done) {
  *ended = *done = false;
  BRIM_TRY(brim_child_poll(c->sweep, ended));
  if (!*ended) return BRIM_OK;
  const brim_child_result *r = brim_child_get_result(c->sweep);
  bool expected =
      c->killed || brim_clock_ms() - c->full_ms < 3000 || (!r->signal && disk_failed(c->tail));
  *done = r->signal == 0 && r->exit_code == 0;
  if (!*done && !expected) {
    violation(c, "the sweep ended by itself with exit code %d, signal %d: %.300s", r->exit_code,
              r->signal, c->tail);
  }
  brim_child_close(c->sweep);
  c->sweep = NULL;
  return BRIM_OK;
}

//---------------------------------- disturbances ----------------------------------

// Continues the stopped processes whose time is over, and ends the lack of disk space.
static void continue_due(brim_chaos *c, bool all) {
  int64_t now = brim_clock_ms();
  continue_stopped(c, all);
  if (c->sweep && c->full_until && (all || now >= c->full_until)) {
    struct rlimit limit = {0};
    pid_t pid = brim_child_pid(c->sweep);
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      (void)prlimit(pid, RLIMIT_FSIZE, &limit, NULL);
    }
    c->full_until = 0;
    c->full_ms = now;
  }
}

static void fill_disk(brim_chaos *c) {
  struct rlimit limit = {0};
  pid_t pid = brim_child_pid(c->sweep);
  if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) != 0) return;
  limit.rlim_cur = SMALL_FILE;
  if (prlimit(pid, RLIMIT_FSIZE, &limit, NULL) != 0) return;
  c->full_until = brim_clock_ms() + random_between(c, 200, 1500);
  c->full_ms = c->full_until;
}

static void disturb_sweep(brim_chaos *c) {
  static const int shares[BRIM_CHAOS_ACT_COUNT] = {
      [BRIM_CHAOS_KILL_EXECUTOR] = 48, [BRIM_CHAOS_STOP_EXECUTOR] = 10,
      [BRIM_CHAOS_KILL_TRAINING] = 22, [BRIM_CHAOS_KILL_SWEEP] = 8,
      [BRIM_CHAOS_STOP_SWEEP] = 5,     [BRIM_CHAOS_END_SWEEP] = 3,
      [BRIM_CHAOS_FULL_DISK] = 4};
  brim_chaos_act act = choose_act(c, shares);
  bool of_sweep = act >= BRIM_CHAOS_KILL_SWEEP;
  pid_t pid = of_sweep ? (c->sweep ? brim_child_pid(c->sweep) : 0)
                       : any_process(c, act == BRIM_CHAOS_KILL_TRAINING);
  if (pid == 0) return;
  c->report->acts[act]++;
  switch (act) {
    case BRIM_CHAOS_STOP_EXECUTOR:
      stop_process(c, pid, random_between(c, 100, 2500 * CHAOS_LEASE_S));
      break;
    case BRIM_CHAOS_STOP_SWEEP:
      stop_process(c, pid, random_between(c, 100, 1500 * CHAOS_LEASE_S));
      break;
    case BRIM_CHAOS_FULL_DISK:
      fill_disk(c);
      break;
    case BRIM_CHAOS_KILL_SWEEP:
    case BRIM_CHAOS_END_SWEEP:
      c->killed = true;
      c->start_ms = brim_clock_ms() + random_between(c, 0, 1000);
      (void)kill(pid, act == BRIM_CHAOS_KILL_SWEEP ? SIGKILL : SIGINT);
      break;
    default:
      (void)kill(pid, SIGKILL);
      break;
  }
}

//---------------------------------- what must hold all the time ----------------------------------

static size_t count_trainings(const brim_chaos_proc *all, size_t n, char twice[BRIM_CHAOS_ID]) {
  size_t trainings = 0;
  for (size_t i = 0; i < n; i++) {
    trainings += all[i].trains;
    for (size_t k = 0; k < i; k++) {
      if (all[i].trains && all[k].trains && strcmp(all[i].exp, all[k].exp) == 0) {
        memcpy(twice, all[i].exp, BRIM_CHAOS_ID);
      }
    }
  }
  return trainings;
}

// Reports a violation only if three looks in a row see it, as watch_pool does.
static void watch_sweep(brim_chaos *c) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  char twice[BRIM_CHAOS_ID];
  size_t trainings = 0;
  for (int look = 0; look < 3; look++) {
    twice[0] = '\0';
    size_t n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS);
    trainings = count_trainings(all, n, twice);
    if (!twice[0] && trainings <= (size_t)c->options->executors) return;
    brim_clock_sleep_ns(20000000);
  }
  if (twice[0]) violation(c, "experiment %s is trained twice at once", twice);
  if (trainings > (size_t)c->options->executors) {
    violation(c, "%zu trainings at once, more than the %lld slots", trainings,
              (long long)c->options->executors);
  }
}

// Reports processes that still run at the end.
static void watch_orphans(brim_chaos *c) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  int64_t until = brim_clock_ms() + ORPHAN_MS;
  size_t n;
  while ((n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS)) > 0 &&
         brim_clock_ms() < until) {
    brim_clock_sleep_ns(100000000);
  }
  for (size_t i = 0; i < n; i++) {
    violation(c, "process %ld of experiment %s is left", (long)all[i].pid, all[i].exp);
    (void)kill(all[i].pid, SIGKILL);
  }
}

//---------------------------------- rounds ----------------------------------

// Runs a round until all of its experiments have ended, disturbed until end_ms. *late: they did not end
// in time.
static brim_status run_round(brim_chaos *c, int64_t round, int64_t end_ms, bool *late) {
  char grid[PATH_BYTES];
  bool done = false, ended = false;
  int64_t last_ms = (brim_clock_ms() > end_ms ? brim_clock_ms() : end_ms) + DRAIN_S * 1000;
  int64_t next_act = brim_clock_ms() + random_between(c, 200, 600), next_look = 0;
  c->hits_count = 0;
  grid_path(c, round, grid);
  while (!done) {
    int64_t now = brim_clock_ms();
    bool calm = now >= end_ms;
    if (is_stopped(c)) return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    if (now > last_ms) {
      violation(c, "round %lld did not end within %d s", (long long)round, DRAIN_S);
      *late = true;
      return BRIM_OK;
    }
    continue_due(c, calm);
    if (!c->sweep && now >= c->start_ms) {
      BRIM_TRY(start_sweep(c, grid, c->store, c->folder));
    }
    if (c->sweep) BRIM_TRY(poll_sweep(c, &ended, &done));
    if (!calm && now >= next_act) {
      disturb_sweep(c);
      next_act = now + random_between(c, 20, 300);
    }
    if (now >= next_look) {
      watch_sweep(c);
      next_look = now + 100;
    }
    brim_clock_sleep_ns(10000000);
  }
  return BRIM_OK;
}

static void end_sweep(brim_chaos *c) {
  continue_due(c, true);
  brim_child_close(c->sweep);
  c->sweep = NULL;
}

static brim_status run_rounds(brim_chaos *c) {
  const brim_chaos_options *o = c->options;
  int64_t end_ms = brim_clock_ms() + (int64_t)(o->seconds * 1e3), first = 0;
  int64_t wanted = (o->experiments + BRIM_CHAOS_SEEDS - 1) / BRIM_CHAOS_SEEDS;
  bool late = false;
  // Keep rounds small: a sweep that is killed every second must reach its work in between.
  while (!late && (first == 0 || (wanted ? first < wanted : brim_clock_ms() < end_ms))) {
    int64_t copies = CHAOS_ROUND / BRIM_CHAOS_SEEDS;
    if (wanted && copies > wanted - first) copies = wanted - first;
    char path[PATH_BYTES], text[128];
    int64_t round = ++c->report->rounds;
    BRIM_TRY(write_grid(c, round, first, copies, path));
    snprintf(text, sizeof text, brim_tr("round %lld: %lld experiments"), (long long)round,
             (long long)(copies * BRIM_CHAOS_SEEDS));
    say(c, text);
    BRIM_TRY(run_round(c, round, end_ms, &late));
    first += copies;
  }
  return BRIM_OK;
}

// Runs the trainings that the disturbed ones are compared with.
static brim_status run_reference(brim_chaos *c) {
  char path[PATH_BYTES];
  bool ended = false, done = false;
  BRIM_TRY(write_grid(c, 0, 0, 1, path));
  BRIM_TRY(start_sweep(c, path, c->reference, c->reference));
  while (!ended) {
    if (is_stopped(c)) return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    BRIM_TRY(poll_sweep(c, &ended, &done));
    brim_clock_sleep_ns(10000000);
  }
  return done ? BRIM_OK : brim_fail(BRIM_ECHILD, "the undisturbed sweep failed: %.300s", c->tail);
}

static brim_status open_folder(brim_chaos *c) {
  char **names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_fs_refused(brim_fs_mkdirs(c->options->folder)));
  BRIM_TRY(brim_fs_list(c->options->folder, &names, &count));
  brim_fs_list_free(names, count);
  if (count > 0) {
    return brim_fail(BRIM_EEXIST, "%s is not empty; the chaos test needs a folder of its own",
                     c->options->folder);
  }
  char *real = realpath(c->options->folder, NULL);
  c->folder = real ? brim_strdup(real) : NULL;
  free(real);
  c->reference = c->folder ? brim_fs_join(c->folder, "reference") : NULL;
  c->store = c->reference ? brim_strdup(c->options->store ? c->options->store : c->folder) : NULL;
  if (!c->store) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
  return c->options->store ? check_empty(c->store) : BRIM_OK;
}

brim_status brim_chaos_run(const brim_chaos_options *options, brim_chaos_report *out) {
  brim_chaos_options o = *options;
  if (!(o.seconds > 0)) o.seconds = 120;
  if (o.executors <= 0) o.executors = 16;
  memset(out, 0, sizeof *out);
  out->seed = o.seed;
  out->workers = o.workers;
  brim_chaos c = {.options = &o, .report = out, .random = o.seed};
  int64_t start = brim_clock_ms();
  brim_status status = open_folder(&c);
  if (!status) status = run_reference(&c);
  if (!status) status = o.workers > 0 ? run_pool(&c) : run_rounds(&c);
  end_sweep(&c);
  if (!status || status == BRIM_EINTERRUPTED) watch_orphans(&c);
  if (!status) status = brim_chaos_check(&c);
  out->seconds = (double)(brim_clock_ms() - start) / 1e3;
  brim_free(c.store);
  brim_free(c.reference);
  brim_free(c.folder);
  return status;
}
