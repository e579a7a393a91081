// The state that running jobs publish (record_job.h): JSON, and the folder of the files.

#include "record/record_job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/record_fields.h"
#include "record/record_int.h"

//--------------------------------------------- JSON ---------------------------------------------

static const char *brim_job_phase_name(brim_job_phase phase) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_JOB_PHASE_MAP(X)
#undef X
  };
  return names[phase];
}

static const char *phase_name(int value) { return brim_job_phase_name((brim_job_phase)value); }

#define JOB BRIM_N_("record of a job")
#define CHARS(member) BRIM_FIELD_(brim_job, #member, CHARS, member)
#define NUMBER(member) BRIM_FIELD_(brim_job, #member, NUMBER, member)
#define INT(member) BRIM_FIELD_INT_(brim_job, #member, member, -1)

static const brim_field job_rows[] = {
    INT(pid),          INT(number),
    INT(pid_start),    INT(pid_namespace),
    CHARS(host),       CHARS(command),
    CHARS(workload),   CHARS(name),
    CHARS(folder),     CHARS(device),
    CHARS(device_id),  BRIM_FIELD_NAME_(brim_job, "phase", phase, phase_name, BRIM_JOB_PHASE_COUNT),
    CHARS(unit),       CHARS(metric_key),
    NUMBER(metric),    NUMBER(started_s),
    NUMBER(updated_s), INT(epoch),
    INT(epochs),       INT(step),
    INT(steps),        NUMBER(samples_per_s),
    NUMBER(eta_s),
};

#define COUNT_OF(rows) (sizeof rows / sizeof rows[0])
static const brim_fields job_fields = {.what = JOB, .rows = job_rows, .count = COUNT_OF(job_rows)};

void brim_job_init(brim_job *job) {
  memset(job, 0, sizeof *job);
  brim_fields_init(&job_fields, job);
}

static brim_status fill(const brim_job *job, json_t *root) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_JOB_SCHEMA)));
  BRIM_TRY(brim_fields_put(&job_fields, job, false, root));
  BRIM_TRY(brim_json_put(root, "findings", json_array()));
  json_t *list = json_object_get(root, "findings");
  for (size_t i = 0; i < job->finding_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_record_put_finding(item, &job->findings[i]));
  }
  return BRIM_OK;
}

brim_status brim_job_to_json(const brim_job *job, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? fill(job, root) : BRIM_OK, root, out);
}

brim_status brim_job_from_json(const json_t *json, brim_job *out) {
  brim_job_init(out);
  if (!json_is_object(json)) return brim_fields_wrong(JOB, "object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_JOB_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a job's record: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_JOB_SCHEMA);
  }
  BRIM_TRY(brim_fields_get(&job_fields, json, out));
  const double metric = out->metric;  // any number
  brim_fields_bound(&job_fields, out);
  out->metric = metric;
  const json_t *list;
  BRIM_TRY(brim_fields_list(JOB, json, "findings", &list));
  size_t n = json_array_size(list);
  for (size_t i = 0; i < n && i < BRIM_JOB_FINDINGS; i++) {
    brim_finding *finding = &out->findings[out->finding_count++];
    BRIM_TRY(brim_record_read_finding(json_array_get(list, i), JOB, 0, finding));
    finding->cost_ms = brim_fields_bounded("cost_ms", finding->cost_ms);
  }
  return BRIM_OK;
}

//-------------------------------------------- folder --------------------------------------------
// The folder in which running jobs publish: jobs write it, `brim top` reads it. Writes are small and not synced,
// because no job survives a crash of the machine.

enum {
  JOB_BYTES = 64 << 10,
  ELSEWHERE_S = 60,
  MOST_JOBS = 1024,      // jobs read from all folders
  MOST_OF_FOLDER = 256,  // newest files read per folder
  MOST_LISTED = 32768    // names looked at per folder
};

//---------------------------------- processes ----------------------------------

// Reads the start time of a process, field 22 of /proc/PID/stat; -1 = no such process, or unknown. Field 2, the
// name, may contain anything.
static int64_t start_of(int64_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = '\0';
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? (int64_t)strtoll(at + 1, NULL, 10) : -1;
}

static int64_t own_namespace(void) {
  char text[64];
  long long number = -1;
  ssize_t n = readlink("/proc/self/ns/pid", text, sizeof text - 1);
  if (n <= 0) return -1;
  text[n] = '\0';
  return sscanf(text, "pid:[%lld]", &number) == 1 ? number : -1;
}

void brim_job_identify(brim_job *job) {
  job->pid = getpid();
  job->pid_start = start_of(job->pid);
  job->pid_namespace = own_namespace();
  if (gethostname(job->host, sizeof job->host - 1)) job->host[0] = '\0';
  job->host[sizeof job->host - 1] = '\0';
}

//---------------------------------- writing ----------------------------------

brim_status brim_job_folder(char *out, size_t size) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  int n = runtime && runtime[0] == '/'
              ? snprintf(out, size, "%s/brim", runtime)
              : snprintf(out, size, "/tmp/brim-%lld", (long long)geteuid());
  if (n > 0 && (size_t)n < size) return BRIM_OK;
  out[0] = '\0';
  return brim_fail(BRIM_EUNSUPPORTED, "the name of the folder for running jobs is too long");
}

// Refuses a folder in /tmp that another user made or could write to.
static brim_status check_folder(const char *folder) {
  struct stat info;
  if (mkdir(folder, 0700) && errno != EEXIST) {
    return brim_fail(BRIM_EIO, "cannot make %s: %s", folder, brim_errno_text(errno));
  }
  if (lstat(folder, &info)) {
    return brim_fail(BRIM_EIO, "cannot read %s: %s", folder, brim_errno_text(errno));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022)) {
    return brim_fail(BRIM_EINVAL, "%s is not a folder that only this user can write to", folder);
  }
  return BRIM_OK;
}

static brim_status write_file(int folder, const char *name, const char *text, size_t size) {
  char temporary[96];
  snprintf(temporary, sizeof temporary, "%.64s.tmp", name);
  int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int fd = openat(folder, temporary, flags, 0600);
  if (fd < 0) return brim_fail(BRIM_EIO, "cannot write %s: %s", name, brim_errno_text(errno));
  ssize_t n = write(fd, text, size);
  int error = n == (ssize_t)size ? 0 : n < 0 ? errno : ENOSPC;
  if (close(fd) && !error) error = errno;
  if (!error && renameat(folder, temporary, folder, name)) error = errno;
  if (!error) return BRIM_OK;
  (void)unlinkat(folder, temporary, 0);
  return brim_fail(BRIM_EIO, "cannot write %s: %s", name, brim_errno_text(error));
}

static void name_file(const brim_job *job, char out[64]) {
  snprintf(out, 64, "job-%lld-%lld.json", (long long)job->pid, (long long)job->number);
}

brim_status brim_job_publish(const char *folder, const brim_job *job) {
  json_t *json = NULL;
  char *text = NULL, name[64];
  BRIM_TRY(check_folder(folder));
  BRIM_TRY(brim_job_to_json(job, &json));
  brim_status status = brim_json_dump(json, 0, &text);
  json_decref(json);
  BRIM_TRY(status);
  name_file(job, name);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    status = brim_fail(BRIM_EIO, "cannot read %s: %s", folder, brim_errno_text(errno));
  } else {
    status = write_file(fd, name, text, strlen(text));
    close(fd);
  }
  brim_free(text);
  return status;
}

void brim_job_withdraw(const char *folder, const brim_job *job) {
  char path[512], name[64];
  name_file(job, name);
  int n = snprintf(path, sizeof path, "%s/%s", folder, name);
  if (n > 0 && (size_t)n < sizeof path) (void)unlink(path);
}

//---------------------------------- reading ----------------------------------

typedef struct reader {
  double now_s;
  int64_t here;  // pid namespace of this process
  char host[64];
  brim_job_fn fn;
  void *ctx;
  size_t found, more;  // running jobs; files that were not read
} reader;

// True if the job runs. *remains: the file is certainly left over from a job that ended.
static bool runs(const reader *r, const brim_job *job, bool *remains) {
  // hosts that share a folder may have equal namespace numbers
  bool here = r->here >= 0 && job->pid_namespace == r->here && strcmp(job->host, r->host) == 0;
  *remains = false;
  if (!here) return fabs(job->updated_s - r->now_s) < ELSEWHERE_S;
  bool same = job->pid > 0 && start_of(job->pid) == job->pid_start && job->pid_start >= 0;
  *remains = !same;
  return same;
}

// Reads the job of a file; false if it holds none. Files of other users are not trusted: links, pipes and large
// files are refused.
static bool read_job(int folder, const char *name, brim_job *job) {
  struct stat info;
  json_t *json = NULL;
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= JOB_BYTES;
  char *text = good ? brim_alloc((size_t)info.st_size + 1) : NULL;
  ssize_t n = text ? read(fd, text, (size_t)info.st_size) : -1;
  close(fd);
  good = n > 0 && !brim_json_parse(text, (size_t)n, name, &json) && !brim_job_from_json(json, job);
  json_decref(json);
  brim_free(text);
  if (!good) brim_status_clear();
  return good;
}

typedef struct job_file {
  char name[64];
  double when_s;  // time of the last write
} job_file;

static int by_name(const void *a, const void *b) {
  return strcmp(((const job_file *)a)->name, ((const job_file *)b)->name);
}

// Parses "job-<pid>-<number>.json", or the temporary name that the file has until it is renamed.
static bool parse_name(const char *name, int64_t *pid, bool *temporary) {
  long long process = 0, number = 0;
  int used = 0;
  if (strlen(name) >= sizeof((job_file *)0)->name) return false;
  if (sscanf(name, "job-%lld-%lld.json%n", &process, &number, &used) != 2 || used == 0)
    return false;
  *pid = (int64_t)process;
  *temporary = strcmp(name + used, ".tmp") == 0;
  return process > 0 && (*temporary || name[used] == '\0');
}

// True for a leftover that its name alone proves: no process here has the pid, and no container has written for a
// minute.
static bool is_left(const reader *r, int64_t pid, double when_s) {
  return r->now_s - when_s > ELSEWHERE_S && brim_fs_writer_gone(pid);
}

// Adds a file to the newest ones. A file that finds no room, or that has to make room, is removed if it is a
// leftover, else counted in `more`.
static void keep_newest(reader *r, job_file *list, size_t *count, const job_file *item, int folder,
                        bool own) {
  size_t oldest = 0;
  job_file out = *item;
  if (*count < MOST_OF_FOLDER) {
    list[(*count)++] = *item;
    return;
  }
  for (size_t i = 1; i < *count; i++) {
    if (list[i].when_s < list[oldest].when_s) oldest = i;
  }
  if (list[oldest].when_s < item->when_s) {
    out = list[oldest];
    list[oldest] = *item;
  }
  int64_t pid = 0;
  bool temporary = false;
  if (own && parse_name(out.name, &pid, &temporary) && is_left(r, pid, out.when_s)) {
    (void)unlinkat(folder, out.name, 0);
  } else {
    r->more++;
  }
}

// Lists the newest files of jobs, ordered by name.
static size_t list_folder(reader *r, DIR *dir, bool own, job_file *list) {
  size_t count = 0;
  int listed = 0;
  for (struct dirent *e; listed < MOST_LISTED && (e = readdir(dir)); listed++) {
    struct stat info;
    job_file item;
    int64_t pid = 0;
    bool temporary = false;
    if (!parse_name(e->d_name, &pid, &temporary)) continue;
    if (fstatat(dirfd(dir), e->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue;
    item.when_s = (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
    snprintf(item.name, sizeof item.name, "%.63s", e->d_name);
    if (!temporary) {
      keep_newest(r, list, &count, &item, dirfd(dir), own);
    } else if (own && is_left(r, pid, item.when_s)) {
      (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
  }
  qsort(list, count, sizeof *list, by_name);
  // a file that is renamed during the listing may appear twice
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (kept == 0 || by_name(&list[kept - 1], &list[i]) != 0) list[kept++] = list[i];
  }
  return kept;
}

static brim_status read_folder(reader *r, const char *path) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return BRIM_OK;
  bool own = fstat(fd, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 022);
  DIR *dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    return BRIM_OK;
  }
  brim_status status = BRIM_OK;
  job_file list[MOST_OF_FOLDER];
  size_t count = list_folder(r, dir, own, list);
  for (size_t i = 0; i < count && !status; i++) {
    brim_job job;
    bool remains = false;
    if (r->found >= MOST_JOBS) {
      r->more++;
    } else if (!read_job(fd, list[i].name, &job)) {
      continue;
    } else if (runs(r, &job, &remains)) {
      r->found++;
      status = r->fn(r->ctx, &job);
    } else if (own && remains) {
      (void)unlinkat(fd, list[i].name, 0);
    }
  }
  closedir(dir);
  return status;
}

// Reads the folders in `parent` whose names begin with `prefix`; `below` is the path within each.
static brim_status read_all_users(reader *r, const char *parent, const char *prefix,
                                  const char *below) {
  DIR *dir = opendir(parent);
  brim_status status = BRIM_OK;
  if (!dir) return BRIM_OK;
  for (struct dirent *entry; !status && (entry = readdir(dir));) {
    char path[512];
    if (entry->d_name[0] == '.' || !brim_str_starts(entry->d_name, prefix)) continue;
    int n = snprintf(path, sizeof path, "%s/%s%s", parent, entry->d_name, below);
    if (n > 0 && (size_t)n < sizeof path) status = read_folder(r, path);
  }
  closedir(dir);
  return status;
}

static brim_status read_all(reader *r) {
  char own[512], other[64], temporary[64];
  long long user = (long long)geteuid();
  snprintf(other, sizeof other, "/run/user/%lld/brim", user);
  snprintf(temporary, sizeof temporary, "/tmp/brim-%lld", user);
  if (brim_job_folder(own, sizeof own)) brim_status_clear();
  // A job may have been started with or without XDG_RUNTIME_DIR, so both folders are read.
  bool covered = user == 0 && (strcmp(own, temporary) == 0 || strcmp(own, other) == 0);
  if (own[0] && !covered) BRIM_TRY(read_folder(r, own));
  if (user == 0) {
    BRIM_TRY(read_all_users(r, "/run/user", "", "/brim"));
    return read_all_users(r, "/tmp", "brim-", "");
  }
  if (strcmp(own, other) != 0) BRIM_TRY(read_folder(r, other));
  return strcmp(own, temporary) != 0 ? read_folder(r, temporary) : BRIM_OK;
}

brim_status brim_jobs_each(double now_s, brim_job_fn fn, void *ctx, size_t *more) {
  brim_job self;
  brim_job_identify(&self);
  reader r = {.now_s = now_s, .here = own_namespace(), .fn = fn, .ctx = ctx};
  memcpy(r.host, self.host, sizeof r.host);
  brim_status status = read_all(&r);
  if (more) *more = r.more;
  return status;
}
