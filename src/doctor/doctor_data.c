// Checks of the data: file system, free space, reading speed.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/doctor_int.h"

#define GIB 1073741824.0
#define MIB 1048576.0
// Limits of a pass.
#define READ_SECONDS 0.5
#define READ_BYTES (128 * MIB)
#define LEAST_READ_BYTES (4 * MIB)  // too little to measure a speed
#define SLOW_BYTES_PER_S 200e6
enum { READ_FILES = 256, READ_DEPTH = 4, CHUNK = 1 << 20 };

//---------------------------------- file systems ----------------------------------

// Decodes the octal escapes of blanks in a mount point.
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at;) {
    if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] && at[3]) {
      *to++ = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
      at += 4;
    } else {
      *to++ = *at++;
    }
  }
  *to = '\0';
}

static bool is_below(const char *path, const char *point) {
  size_t n = strlen(point);
  if (strcmp(point, "/") == 0) return true;
  return strncmp(path, point, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

// One line of mountinfo: "36 35 98:0 / /data rw,noatime shared:1 - nfs4 server:/x rw".
static bool parse_mount(char *line, char point[BRIM_DOCTOR_PATH], char type[64]) {
  char *dash = strstr(line, " - ");
  if (!dash) return false;
  if (sscanf(line, "%*s %*s %*s %*s %1023s", point) != 1) return false;
  if (sscanf(dash + 3, "%63s", type) != 1) return false;
  unescape(point);
  return true;
}

bool brim_doctor_mount(const brim_doctor_machine *m, const char *path, char *type, size_t type_size,
                       char *point, size_t point_size) {
  char full[BRIM_DOCTOR_PATH], at[BRIM_DOCTOR_PATH], kind[64];
  char *line = NULL;
  size_t cap = 0, best = 0;
  bool found = false;
  char *real = realpath(path, NULL);
  snprintf(full, sizeof full, "%s/proc/self/mountinfo", m->root);
  FILE *f = real ? fopen(full, "re") : NULL;
  while (f && getline(&line, &cap, f) >= 0) {
    if (!parse_mount(line, at, kind) || !is_below(real, at)) continue;
    if (found && strlen(at) < best) continue;  // a later mount on the same point hides the earlier
    best = strlen(at);
    found = true;
    snprintf(type, type_size, "%s", kind);
    snprintf(point, point_size, "%s", at);
  }
  if (f) fclose(f);
  free(line);
  free(real);
  return found;
}

typedef struct kind {
  const char *type;  // a trailing * matches anything
  const char *what;  // a message
  bool slow;
} kind;

static const kind kinds[] = {
    {"nfs*", BRIM_N_("a network file system"), true},
    {"cifs", BRIM_N_("a network file system"), true},
    {"smb*", BRIM_N_("a network file system"), true},
    {"afs", BRIM_N_("a network file system"), true},
    {"ceph", BRIM_N_("a network file system"), true},
    {"gluster*", BRIM_N_("a network file system"), true},
    {"lustre", BRIM_N_("a parallel file system: large files are fast, many small ones slow"), true},
    {"gpfs", BRIM_N_("a parallel file system: large files are fast, many small ones slow"), true},
    {"beegfs", BRIM_N_("a parallel file system: large files are fast, many small ones slow"), true},
    {"wekafs", BRIM_N_("a parallel file system: large files are fast, many small ones slow"), true},
    {"9p", BRIM_N_("a folder of another system (Windows drive or virtual machine)"), true},
    {"drvfs", BRIM_N_("a Windows drive"), true},
    {"virtiofs", BRIM_N_("a folder of the host of this virtual machine"), true},
    {"vboxsf", BRIM_N_("a folder of the host of this virtual machine"), true},
    {"fuse.*", BRIM_N_("a file system in user space, often over a network"), true},
    {"fuse", BRIM_N_("a file system in user space, often over a network"), true},
    {"tmpfs", BRIM_N_("in memory"), false},
    {"ramfs", BRIM_N_("in memory"), false},
    {"overlay", BRIM_N_("the layers of a container"), false},
};

static const kind *kind_of(const char *type) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *star = strchr(kinds[i].type, '*');
    size_t n = star ? (size_t)(star - kinds[i].type) : 0;
    if (star ? strncmp(type, kinds[i].type, n) == 0 : strcmp(type, kinds[i].type) == 0) {
      return &kinds[i];
    }
  }
  return NULL;
}

static const char *path_of(const brim_doctor_exam *e) {
  return e->machine->data ? e->machine->data : ".";
}

// The data's path as a quoted word of a command; "SRC" if it is too long or a shell would read it differently.
enum { MOST_WORD = 256 };
static const char *source_of(const brim_doctor_exam *e, char out[MOST_WORD]) {
  const char *path = e->machine->data;
  if (!path || strlen(path) + 3 > MOST_WORD) return "SRC";
  if (strchr(path, '\'') && strpbrk(path, "\"$`\\!")) return "SRC";
  const char *quote = strchr(path, '\'') ? "\"" : "'";
  snprintf(out, MOST_WORD, "%s%s%s", quote, path, quote);
  return out;
}

static void check_filesystem(brim_doctor_exam *e) {
  char type[64], point[BRIM_DOCTOR_PATH], source[MOST_WORD];
  const char *path = path_of(e);
  brim_doctor_line *line;
  if (access(path, F_OK) != 0) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s: %s", path, brim_errno_text(errno));
    brim_doctor_fix(line, "%s",
                    brim_tr("name a path that exists: --data PATH, or data.path in the config"));
    return;
  }
  if (!brim_doctor_mount(e->machine, path, type, sizeof type, point, sizeof point)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s does not list %s"), "/proc/self/mountinfo",
                    path);
    return;
  }
  const kind *k = kind_of(type);
  brim_doctor_state state = k && k->slow ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  line = k ? brim_doctor_say(e, state, brim_tr("%s is on %s (%s): %s"), path, type, point,
                             brim_tr(k->what))
           : brim_doctor_say(e, state, brim_tr("%s is on %s (%s)"), path, type, point);
  if (state == BRIM_DOCTOR_GOOD) return;
  brim_doctor_fix(
      line,
      brim_tr("copy the data to a local disk once, pack it (brim data convert %s DST.h5), "
              "or read it once: data.cache=ram or gpu"),
      source_of(e, source));
}

//---------------------------------- space ----------------------------------

static void say_space(brim_doctor_exam *e, const char *path) {
  brim_doctor_space space;
  char left[32], total[32], there[BRIM_DOCTOR_PATH];
  brim_doctor_there(path, there, sizeof there);
  if (!e->machine->space(e->machine->ctx, there, &space)) {
    brim_doctor_about(brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                                      brim_tr("the file system of %s does not report"), there),
                      path);
    return;
  }
  brim_doctor_bytes(space.free, left);
  brim_doctor_bytes(space.total, total);
  brim_doctor_state state = space.free < GIB        ? BRIM_DOCTOR_BAD
                            : space.free < 10 * GIB ? BRIM_DOCTOR_WARN
                                                    : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say(e, state, brim_tr("%s free of %s"), left, total);
  brim_doctor_about(line, path);
  if (state == BRIM_DOCTOR_GOOD) return;
  bool plain = !strchr(there, '\'');
  brim_doctor_fix(line, "du -xsh %s%s%s/* | sort -h | tail", plain ? "'" : "\"", there,
                  plain ? "'" : "\"");
}

static void check_space(brim_doctor_exam *e) {
  say_space(e, e->machine->output ? e->machine->output : ".");
}

//---------------------------------- speed ----------------------------------

// A pass over the files of a path. It starts where the pass before it ended.
typedef struct reading {
  char *chunk;
  double skip;  // bytes still to skip: earlier passes read them
  double bytes, seconds;
  int files;
  brim_time start;
  const brim_doctor_machine *machine;
} reading;

static bool pass_is_over(const reading *r) {
  if (r->machine->stop && *r->machine->stop) return true;
  if (r->files >= READ_FILES || r->bytes >= READ_BYTES) return true;
  return (double)brim_time_since_ns(r->start, brim_clock_now()) * 1e-9 > READ_SECONDS;
}

// Reads a file after asking the kernel to drop it from its cache, so that the data come from disk.
static void read_file(reading *r, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat about;
  ssize_t got = 0;
  if (fd < 0) return;
  bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  if (regular && r->skip >= (double)about.st_size && r->skip > 0) {
    r->skip -= (double)about.st_size;
  } else if (regular && lseek(fd, (off_t)r->skip, SEEK_SET) >= 0) {
    r->skip = 0;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    brim_time start = brim_clock_now();
    while (!pass_is_over(r) && (got = read(fd, r->chunk, CHUNK)) > 0) r->bytes += (double)got;
    r->seconds += (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    r->files++;
  }
  close(fd);
}

// Reads the files below a path, without hidden ones.
static void read_tree(reading *r, const char *path, int depth) {
  char **names = NULL;
  size_t count = 0;
  if (!brim_fs_is_dir(path)) {
    read_file(r, path);
    return;
  }
  if (depth == 0 || brim_fs_list(path, &names, &count)) {
    brim_status_clear();
    return;
  }
  for (size_t i = 0; i < count && !pass_is_over(r); i++) {
    if (names[i][0] == '.') continue;
    char *below = brim_fs_join(path, names[i]);
    if (below) read_tree(r, below, depth - 1);
    brim_free(below);
  }
  brim_fs_list_free(names, count);
}

// Bytes that this process has read from storage; NaN = unknown.
static double from_storage(void) {
  char text[1024], value[64];
  double bytes;
  if (!brim_machine_read_text("", "/proc/self/io", text, sizeof text) ||
      !brim_machine_find_line(text, "read_bytes", value, sizeof value)) {
    return (double)NAN;
  }
  return brim_parse_f64(value, &bytes) ? bytes : (double)NAN;
}

static void say_speed(brim_doctor_exam *e, const brim_doctor_reading *p) {
  char bytes[32], speed[32], low[32], high[32], source[MOST_WORD];
  double rate = p->rates[p->passes / 2];
  brim_format_figure(rate / 1e6, speed);
  brim_format_figure(p->rates[0] / 1e6, low);
  brim_format_figure(p->rates[p->passes - 1] / 1e6, high);
  brim_doctor_bytes(p->bytes, bytes);
  if (!(p->stored >= 0.5)) {
    brim_doctor_say(
        e, BRIM_DOCTOR_UNKNOWN,
        brim_tr(
            "%s MB/s over %s, but the kernel does not count it as read from storage: it may have "
            "come from the page cache"),
        speed, bytes);
    return;
  }
  bool slow = rate < SLOW_BYTES_PER_S;
  brim_doctor_line *line =
      brim_doctor_say(e, slow ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                      brim_tr("%s MB/s (median of %d passes, %s to %s) over %s, in order, one "
                              "thread"),
                      speed, p->passes, low, high, bytes);
  if (slow) {
    brim_doctor_fix(
        line,
        brim_tr("copy the data to a faster disk, or read it once: data.cache=ram or gpu; "
                "pack many small files: brim data convert %s DST.h5"),
        source_of(e, source));
  }
}

static void add_rate(brim_doctor_reading *p, double rate) {
  int at = p->passes++;
  for (; at > 0 && p->rates[at - 1] > rate; at--) p->rates[at] = p->rates[at - 1];
  p->rates[at] = rate;
}

brim_status brim_doctor_read_passes(const brim_doctor_machine *machine, brim_doctor_reading *out) {
  char *chunk = (char *)brim_alloc(CHUNK);
  double before = from_storage(), at = 0;
  memset(out, 0, sizeof *out);
  if (!chunk) return brim_fail(BRIM_ENOMEM, "out of memory while reading data");
  for (int i = 0; i < BRIM_DOCTOR_PASSES; i++) {
    reading r = {.machine = machine, .start = brim_clock_now(), .chunk = chunk, .skip = at};
    read_tree(&r, machine->data, READ_DEPTH);
    if (r.bytes < LEAST_READ_BYTES && at > 0) {  // all files are read: start again
      out->bytes += r.bytes;
      r = (reading){.machine = machine, .start = brim_clock_now(), .chunk = chunk};
      read_tree(&r, machine->data, READ_DEPTH);
      at = 0;
    }
    at += r.bytes;
    out->bytes += r.bytes;
    if (r.files > out->files) out->files = r.files;
    if (r.bytes < LEAST_READ_BYTES || !(r.seconds > 0)) break;
    add_rate(out, r.bytes / r.seconds);
  }
  out->stored = (from_storage() - before) / out->bytes;
  brim_free(chunk);
  return BRIM_OK;
}

static void check_speed(brim_doctor_exam *e) {
  if (!e->machine->data) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("no data path is given: --data PATH"));
    return;
  }
  if (e->machine->quick) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("not measured (--quick)"));
    return;
  }
  brim_doctor_reading r;
  brim_status status = e->machine->read_speed(e->machine, &r);
  if (status) {
    e->report->status = status;
  } else if (r.files == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s has no file that can be read"),
                    e->machine->data);
  } else if (r.passes == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                    brim_tr("%d files with %.2g MB: too little to measure a speed"), r.files,
                    r.bytes / 1e6);
  } else {
    say_speed(e, &r);
  }
}

const brim_doctor_row brim_doctor_data_rows[] = {
    {"data.filesystem", BRIM_DOCTOR_GROUP_DATA, BRIM_N_("File system"),
     BRIM_N_(
         "Every epoch reads the data again. Over a network, each small file costs a round trip and "
         "the loader waits."),
     check_filesystem},
    {"data.speed", BRIM_DOCTOR_GROUP_DATA, BRIM_N_("Reading speed"),
     BRIM_N_("Samples that are not cached cannot come faster than this."), check_speed},
    {"data.space", BRIM_DOCTOR_GROUP_DATA, BRIM_N_("Free disk space"),
     BRIM_N_("Checkpoints and logs need it. A run fails when the disk is full."), check_space},
    {0}};
