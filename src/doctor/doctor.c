// The examination: tables of rows, adding lines, and the readers that checks share.

#include "doctor/doctor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/doctor_int.h"

//---------------------------------- lines ----------------------------------

static void fill(char *out, size_t size, const char *fmt, va_list args) {
  vsnprintf(out, size, fmt, args);
  brim_msg_particles(out, 0);
  brim_utf8_trim(out);
}

static brim_doctor_line *add_line(brim_doctor_report *report, const brim_doctor_row *row,
                                  brim_doctor_state state, const char *fmt, va_list args) {
  brim_doctor_line *line = brim_doctor_report_add(report, row->group, row->key, state);
  line->label = row->label;
  if (row->why) snprintf(line->why, sizeof line->why, "%s", brim_tr(row->why));
  fill(line->value, sizeof line->value, fmt, args);
  return line;
}

brim_doctor_line *brim_doctor_say(brim_doctor_exam *e, brim_doctor_state state, const char *fmt,
                                  ...) {
  va_list args;
  va_start(args, fmt);
  brim_doctor_line *line = add_line(e->report, e->row, state, fmt, args);
  va_end(args);
  return line;
}

brim_doctor_line *brim_doctor_say_row(brim_doctor_report *report, const brim_doctor_row *row,
                                      brim_doctor_state state, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  brim_doctor_line *line = add_line(report, row, state, fmt, args);
  va_end(args);
  return line;
}

void brim_doctor_fix(brim_doctor_line *line, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fill(line->fix, sizeof line->fix, fmt, args);
  va_end(args);
}

void brim_doctor_because(brim_doctor_line *line, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fill(line->why, sizeof line->why, fmt, args);
  va_end(args);
}

void brim_doctor_about(brim_doctor_line *line, const char *subject) {
  snprintf(line->subject, sizeof line->subject, "%s", subject);
  brim_utf8_trim(line->subject);
}

//---------------------------------- readers ----------------------------------

const char *brim_doctor_env(const brim_doctor_exam *e, const char *name) {
  return e->machine->env(e->machine->ctx, name);
}

bool brim_doctor_read(const brim_doctor_exam *e, const char *path, char *out, size_t size) {
  return brim_machine_read_text(e->machine->root, path, out, size);
}

bool brim_doctor_read_word(const brim_doctor_exam *e, const char *path, char *out, size_t size) {
  if (!brim_doctor_read(e, path, out, size)) return false;
  out[strcspn(out, "\n")] = '\0';
  return out[0] != '\0';
}

bool brim_doctor_exists(const brim_doctor_exam *e, const char *path) {
  char full[BRIM_DOCTOR_PATH];
  int n = snprintf(full, sizeof full, "%s%s", e->machine->root, path);
  return n > 0 && (size_t)n < sizeof full && access(full, F_OK) == 0;
}

void brim_doctor_there(const char *path, char *out, size_t size) {
  int n = snprintf(out, size, "%s", path);
  if (n < 0 || (size_t)n >= size) out[0] = '\0';
  while (out[0] && !brim_fs_exists(out)) {
    char *slash = strrchr(out, '/');
    if (!slash) out[0] = '\0';
    if (slash) slash[slash == out] = '\0';
    if (slash == out) break;
  }
  if (!out[0]) snprintf(out, size, ".");
}

void brim_doctor_bytes(double bytes, char out[32]) {
  const bool unlimited = bytes >= 0x1p64;  // some drivers report ~0
  brim_format_bytes(unlimited ? UINT64_MAX : bytes > 0 ? (uint64_t)bytes : 0, out);
}

//---------------------------------- lists of cores ----------------------------------

enum { MAX_CPUS = 8192 };

// Marks the CPUs of a kernel list. False if it is malformed.
static bool mark_cpus(const char *list, unsigned char marks[MAX_CPUS], unsigned char bit) {
  const char *at = list;
  while (*at && *at != '\n') {
    char *end;
    unsigned long first = strtoul(at, &end, 10), last = first;
    if (end == at) return false;
    at = end;
    if (*at == '-') {
      last = strtoul(at + 1, &end, 10);
      if (end == at + 1) return false;
      at = end;
    }
    for (unsigned long i = first; i <= last && i < MAX_CPUS; i++) marks[i] |= bit;
    if (*at == ',') {
      at++;
    } else if (*at && *at != '\n' && *at != ' ') {
      return false;
    } else {
      break;
    }
  }
  return true;
}

int brim_doctor_cpu_both(const char *a, const char *b) {
  unsigned char marks[MAX_CPUS] = {0};
  int count = 0;
  if (!mark_cpus(a, marks, 1) || !mark_cpus(b, marks, 2)) return -1;
  for (int i = 0; i < MAX_CPUS; i++) count += marks[i] == 3;
  return count;
}

int brim_doctor_cpu_list(const char *list) { return brim_doctor_cpu_both(list, list); }

bool brim_doctor_allowed(const brim_doctor_exam *e, char *out, size_t size) {
  char text[BRIM_DOCTOR_TEXT];
  return brim_doctor_read(e, "/proc/self/status", text, sizeof text) &&
         brim_machine_find_line(text, "Cpus_allowed_list", out, size) && out[0];
}

int brim_doctor_cores(const brim_doctor_exam *e) {
  char allowed[1024];
  double quota = brim_cpu_quota(e->machine->root);
  int may = brim_doctor_allowed(e, allowed, sizeof allowed) ? brim_doctor_cpu_list(allowed) : -1;
  if (may < 1) return -1;
  return quota > 0 && quota < (double)may ? (int)ceil(quota) : may;
}

//----------------------------------------- examination -----------------------------------------

static const brim_doctor_row *const tables[] = {brim_doctor_software_rows, brim_doctor_gpu_rows,
                                                brim_doctor_health_rows,   brim_doctor_host_rows,
                                                brim_doctor_cpu_rows,      brim_doctor_wsl_rows,
                                                brim_doctor_env_rows,      brim_doctor_data_rows};

//---------------------------------- this machine ----------------------------------

static const char *real_env(void *ctx, const char *name) {
  (void)ctx;
  return getenv(name);
}

static bool real_space(void *ctx, const char *path, brim_doctor_space *out) {
  struct statvfs about;
  (void)ctx;
  if (statvfs(path, &about) != 0 || about.f_blocks == 0) return false;
  out->total = (double)about.f_blocks * (double)about.f_frsize;
  out->free = (double)about.f_bavail * (double)about.f_frsize;
  return true;
}

brim_doctor_machine brim_doctor_this_machine(void) {
  return (brim_doctor_machine){.root = brim_cpu_root(),
                               .env = real_env,
                               .space = real_space,
                               .read_speed = brim_doctor_read_passes};
}

//---------------------------------- the examination ----------------------------------

static bool stopped(const brim_doctor_machine *m) { return m->stop && *m->stop; }

brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out) {
  brim_doctor_exam e = {.machine = machine, .report = out};
  char release[256];
  e.no_gpus = machine->gpus ? machine->gpus->no_gpu_reason : brim_tr("the driver has not answered");
  if (machine->gpus) {
    e.gpus = machine->gpus->list;
    e.gpu_count = machine->gpus->count;
  }
  e.wsl = brim_doctor_read(&e, "/proc/sys/kernel/osrelease", release, sizeof release) &&
          (strstr(release, "microsoft") || strstr(release, "Microsoft"));
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (e.row = tables[t]; e.row->key && !stopped(machine); e.row++) e.row->check(&e);
  }
  return out->status;
}
