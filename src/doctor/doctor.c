// The examination: which rows there are, what they share, and the lines they add.
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/doctor_int.h"

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
                               .speed = brim_doctor_read_passes};
}

//---------------------------------- all of it ----------------------------------

static bool stopped(const brim_doctor_machine *m) { return m->stop && *m->stop; }

brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out) {
  brim_doctor_exam e = {.machine = machine, .report = out};
  char release[256];
  e.no_gpus = machine->gpus ? machine->gpus->why : brim_tr("the driver has not answered");
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
