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
  return (brim_doctor_machine){.root = brim_cpu_root(), .env = real_env, .space = real_space};
}

//---------------------------------- GPUs ----------------------------------

static void name_gpus(brim_doctor_exam *e) {
  int index = -1, slice = 0;
  char bus[32] = "";
  for (size_t i = 0; i < e->gpu_count; i++) {
    brim_doctor_gpu *g = &e->gpus[i];
    bool same = g->listed.slice && i > 0 && e->gpus[i - 1].listed.slice && g->setup.bus_id[0] &&
                strcmp(bus, g->setup.bus_id) == 0;
    slice = same ? slice + 1 : 0;
    if (!same) index++;
    g->index = index;
    snprintf(bus, sizeof bus, "%s", g->setup.bus_id);
    if (g->listed.slice) {
      snprintf(g->name, sizeof g->name, brim_tr("GPU %d slice %d"), index, slice);
    } else {
      snprintf(g->name, sizeof g->name, "GPU %d", index);
    }
  }
}

static brim_status find_gpus(brim_doctor_exam *e) {
  brim_gpu_monitor *monitor = e->machine->monitor;
  brim_gpu_listed *list = NULL;
  size_t count = 0;
  if (!monitor) {
    const char *why = e->machine->no_monitor;
    snprintf(e->no_gpus, sizeof e->no_gpus, "%s", why && *why ? why : brim_tr("NVML is not here"));
    return BRIM_OK;
  }
  brim_status status = brim_gpu_list(monitor, &list, &count);
  if (status == BRIM_ENOMEM) return status;
  if (status) snprintf(e->no_gpus, sizeof e->no_gpus, "%s", brim_status_detail());
  brim_status_clear();
  if (!status && count == 0) {
    snprintf(e->no_gpus, sizeof e->no_gpus, "%s", brim_tr("the driver lists no GPU"));
  }
  if (count > 0) {
    e->gpus = (brim_doctor_gpu *)brim_calloc(count, sizeof *e->gpus);
    if (!e->gpus) {
      brim_free(list);
      return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
    }
  }
  for (size_t i = 0; i < count; i++) {
    e->gpus[i].listed = list[i];
    if (brim_gpu_read_setup(monitor, list[i].uuid, &e->gpus[i].setup)) brim_status_clear();
  }
  e->gpu_count = count;
  name_gpus(e);
  brim_free(list);
  return BRIM_OK;
}

//---------------------------------- all of it ----------------------------------

static bool stopped(const brim_doctor_machine *m) { return m->stop && *m->stop; }

brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out) {
  brim_doctor_exam e = {.machine = machine, .report = out};
  char release[256];
  BRIM_TRY(find_gpus(&e));
  e.wsl = brim_doctor_read(&e, "/proc/sys/kernel/osrelease", release, sizeof release) &&
          (strstr(release, "microsoft") || strstr(release, "Microsoft"));
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (e.row = tables[t]; e.row->key && !stopped(machine); e.row++) e.row->check(&e);
  }
  brim_free(e.gpus);
  return out->status;
}
