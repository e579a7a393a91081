// Checks of each GPU: setup and health, by NVML.

#include "doctor/doctor_int.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base_words.h"

//---------------------------------- asking NVML ----------------------------------
// NVML is asked once, in a thread, since a call into a driver that hangs never returns.

struct brim_doctor_survey {
  brim_status (*open)(void *ctx, brim_gpu_monitor **out);
  void *ctx;
  brim_thread *thread;  // NULL = none could be started, so NVML was asked directly
  brim_gpu_monitor *monitor;
  brim_doctor_gpus gpus;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool done;  // under `mutex`; until it is set only the thread uses the members above
};

static void name_gpus(brim_doctor_gpus *e) {
  int index = -1, slice = 0;
  char bus[32] = "";
  for (size_t i = 0; i < e->count; i++) {
    brim_doctor_gpu *g = &e->list[i];
    bool same = g->listed.slice && i > 0 && e->list[i - 1].listed.slice && g->setup.bus_id[0] &&
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

static void ask_about(brim_gpu_monitor *monitor, brim_doctor_gpu *g) {
  const char *uuid = g->listed.uuid;
  if (brim_gpu_read_setup(monitor, uuid, &g->setup)) brim_status_clear();
  g->memory = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
  if (brim_gpu_read_memory(monitor, uuid, &g->memory)) g->memory.total = (double)NAN;
  g->processes_known =
      brim_gpu_read_processes(monitor, uuid, &g->processes, &g->process_count) == BRIM_OK;
  brim_status_clear();
}

static void ask_all(brim_doctor_survey *s) {
  brim_doctor_gpus *out = &s->gpus;
  brim_gpu_listed *list = NULL;
  size_t count = 0;
  brim_status status = brim_gpu_list(s->monitor, &list, &count);
  brim_gpu_driver(s->monitor, out->driver, sizeof out->driver);
  out->cuda = brim_gpu_cuda_version(s->monitor);
  if (!status && count == 0) {
    snprintf(out->no_gpu_reason, sizeof out->no_gpu_reason, "%s",
             brim_tr("the driver lists no GPU"));
  }
  if (count > 0) out->list = (brim_doctor_gpu *)brim_calloc(count, sizeof *out->list);
  if (!status && count > 0 && !out->list) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  }
  if (status) snprintf(out->no_gpu_reason, sizeof out->no_gpu_reason, "%s", brim_status_detail());
  for (size_t i = 0; out->list && i < count; i++) {
    out->list[i].listed = list[i];
    ask_about(s->monitor, &out->list[i]);
    out->count++;
  }
  name_gpus(out);
  brim_free(list);
}

static void ask(void *ctx) {
  brim_doctor_survey *s = (brim_doctor_survey *)ctx;
  brim_time start = brim_clock_now();
  brim_status status = s->open ? s->open(s->ctx, &s->monitor) : brim_gpu_monitor_open(&s->monitor);
  s->gpus.opened = !status;
  if (status) {
    snprintf(s->gpus.no_gpu_reason, sizeof s->gpus.no_gpu_reason, "%s", brim_status_detail());
  } else {
    ask_all(s);
  }
  brim_utf8_trim(s->gpus.no_gpu_reason);
  brim_status_clear();
  s->gpus.seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  pthread_mutex_lock(&s->mutex);
  s->done = true;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

brim_status brim_doctor_survey_start(brim_status (*open)(void *ctx, brim_gpu_monitor **out),
                                     void *ctx, brim_doctor_survey **out) {
  *out = NULL;
  brim_doctor_survey *s = (brim_doctor_survey *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  s->open = open;
  s->ctx = ctx;
  pthread_mutex_init(&s->mutex, NULL);
  (void)brim_cond_init(&s->changed);
  if (brim_thread_start(ask, s, "brim-nvml", &s->thread)) {
    brim_status_clear();
    ask(s);
  }
  *out = s;
  return BRIM_OK;
}

const brim_doctor_gpus *brim_doctor_survey_wait(brim_doctor_survey *s, double seconds) {
  const int64_t until_ns = brim_clock_now().ns + (int64_t)(seconds * 1e9);
  pthread_mutex_lock(&s->mutex);
  while (!s->done && brim_cond_wait(&s->changed, &s->mutex, until_ns)) continue;
  bool done = s->done;
  pthread_mutex_unlock(&s->mutex);
  return done ? &s->gpus : NULL;
}

brim_gpu_monitor *brim_doctor_survey_take(brim_doctor_survey *s) {
  brim_gpu_monitor *monitor = NULL;
  if (brim_doctor_survey_wait(s, 0)) {
    monitor = s->monitor;
    s->monitor = NULL;
  }
  return monitor;
}

void brim_doctor_survey_free(brim_doctor_survey *s) {
  if (!s || !brim_doctor_survey_wait(s, 0)) return;
  brim_thread_join(s->thread);
  for (size_t i = 0; i < s->gpus.count; i++) brim_free(s->gpus.list[i].processes);
  brim_free(s->gpus.list);
  brim_gpu_monitor_close(s->monitor);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
  brim_free(s);
}

//---------------------------------- setup ----------------------------------

#define GIB 1073741824.0

static brim_doctor_line *about_gpu(const brim_doctor_gpu *g, brim_doctor_line *line) {
  brim_doctor_about(line, g->name);
  return line;
}

static void not_told(brim_doctor_exam *e, const brim_doctor_gpu *g) {
  about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                               g->listed.slice
                                   ? brim_tr("the driver does not report it for a slice (MIG)")
                                   : brim_tr("the driver does not report")));
}

static void check_found(brim_doctor_exam *e) {
  bool asked = e->machine->gpus && !e->machine->gpus->opened;
  if (asked && !e->wsl && brim_doctor_look_at_bus(e) == BRIM_DOCTOR_BUS_NONE) {
    brim_doctor_line *line =
        brim_doctor_say(e, BRIM_DOCTOR_WARN, "%s",
                        brim_tr("no NVIDIA GPU on the PCI bus: brim computes on the CPU"));
    brim_doctor_because(line, "%s",
                        brim_tr("A CPU trains convolutions and transformers many times slower."));
    brim_doctor_fix(line, "%s",
                    brim_tr("run on a machine with an NVIDIA GPU, or keep models small"));
    return;
  }
  if (e->gpu_count == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("none found: %s"), e->no_gpus);
    return;
  }
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    about_gpu(
        g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s%s%s", g->listed.name[0] ? g->listed.name : "-",
                           g->setup.bus_id[0] ? ", PCI " : "", g->setup.bus_id));
  }
}

// Lists other processes, "python train.py (alice) 12 GiB, ..."; returns how many.
static size_t list_holders(const brim_doctor_gpu *g, brim_str *out) {
  size_t others = 0;
  for (size_t i = 0; i < g->process_count; i++) {
    const brim_gpu_process *p = &g->processes[i];
    char text[256], bytes[32] = "";
    if (p->self) continue;
    if (others++ >= 4) continue;
    brim_gpu_process_text(p, text, sizeof text);
    if (!isnan(p->bytes)) brim_doctor_bytes(p->bytes, bytes);
    brim_str_printf(out, "%s%s%s%s", others > 1 ? ", " : "", text, bytes[0] ? " " : "", bytes);
  }
  if (others > 4) brim_str_printf(out, brim_tr(" and %zu more"), others - 4);
  return others;
}

static void say_memory(brim_doctor_exam *e, const brim_doctor_gpu *g) {
  const brim_gpu_memory *m = &g->memory;
  char left[32], total[32];
  brim_str holders;
  brim_str_init(&holders);
  size_t others = list_holders(g, &holders);
  brim_doctor_bytes(m->free, left);
  brim_doctor_bytes(m->total, total);
  double held = m->total - m->free - (isnan(m->reserved) ? 0 : m->reserved);
  brim_doctor_state state = m->free < 0.1 * m->total ? BRIM_DOCTOR_BAD
                            : held > 0.05 * m->total ? BRIM_DOCTOR_WARN
                                                     : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line;
  if (others > 0) {
    line =
        brim_doctor_say(e, state, brim_tr("%s free of %s; held by %s"), left, total, holders.data);
  } else if (state == BRIM_DOCTOR_GOOD) {
    line = brim_doctor_say(e, state, brim_tr("%s free of %s"), left, total);
  } else if (g->processes_known) {
    line = brim_doctor_say(
        e, state, brim_tr("%s free of %s; the driver lists no process that holds the rest"), left,
        total);
  } else {
    line = brim_doctor_say(
        e, state, brim_tr("%s free of %s; the driver does not report which process holds the rest"),
        left, total);
  }
  about_gpu(g, line);
  brim_str_deinit(&holders);
  if (state == BRIM_DOCTOR_GOOD) return;
  brim_doctor_fix(line, "%s",
                  others > 0
                      ? brim_tr("end what is not needed: nvidia-smi, then kill PID; or choose "
                                "another GPU: --device cuda:N")
                      : brim_tr("processes of other containers or of the desktop hold it: look on "
                                "the host with nvidia-smi"));
}

static void check_memory(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    if (isnan(g->memory.total) || isnan(g->memory.free)) {
      not_told(e, g);
    } else {
      say_memory(e, g);
    }
  }
}

// Warns about other computing processes, which share the SMs even with little memory.
static void check_shared(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    size_t others = 0;
    for (size_t k = 0; k < g->process_count; k++) {
      others += g->processes[k].computes && !g->processes[k].self;
    }
    if (!g->processes_known) {
      not_told(e, g);
    } else if (others == 0) {
      about_gpu(g,
                brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("no other process computes")));
    } else {
      brim_doctor_line *line = brim_doctor_say(
          e, BRIM_DOCTOR_WARN, brim_tr("%zu other processes compute on it"), others);
      about_gpu(g, line);
      brim_doctor_fix(line, "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv");
    }
  }
}

static void check_mig(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    if (g->listed.slice) {
      brim_doctor_line *line =
          brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("on: this is a slice, %s"), g->listed.name);
      about_gpu(g, line);
      brim_doctor_fix(
          line, brim_tr("for the whole GPU, if it is yours alone: sudo nvidia-smi -i %d -mig 0"),
          g->index);
    } else if (g->setup.mig == BRIM_GPU_SWITCH_UNKNOWN) {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("this GPU has none")));
    } else {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("off")));
    }
  }
}

static void check_compute_mode(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    brim_doctor_line *line;
    switch (g->setup.compute_mode) {
      case BRIM_GPU_COMPUTE_SHARED:
        about_gpu(
            g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("default: processes share it")));
        continue;
      case BRIM_GPU_COMPUTE_EXCLUSIVE:
        line =
            brim_doctor_say(e, BRIM_DOCTOR_WARN, "%s", brim_tr("exclusive: one process at a time"));
        break;
      case BRIM_GPU_COMPUTE_PROHIBITED:
        line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                               brim_tr("prohibited: nothing may compute on it"));
        break;
      default:
        not_told(e, g);
        continue;
    }
    about_gpu(g, line);
    brim_doctor_fix(line, "sudo nvidia-smi -i %d -c DEFAULT", g->index);
  }
}

static void check_mps(brim_doctor_exam *e) {
  const char *folder = brim_doctor_env(e, "CUDA_MPS_PIPE_DIRECTORY");
  char path[BRIM_DOCTOR_PATH];
  if (e->gpu_count == 0) return;
  snprintf(path, sizeof path, "%s/control", folder && *folder ? folder : "/tmp/nvidia-mps");
  if (!brim_doctor_exists(e, path)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("not running"));
    return;
  }
  brim_doctor_line *line =
      brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("its daemon is running (%s)"), path);
  brim_doctor_fix(line, "echo quit | nvidia-cuda-mps-control");
}

static void check_persistence(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    if (g->listed.slice || e->wsl || g->setup.persistence == BRIM_GPU_SWITCH_UNKNOWN) {
      if (e->wsl) continue;  // Windows keeps the driver loaded
      not_told(e, g);
    } else if (g->setup.persistence == BRIM_GPU_SWITCH_ON) {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("on")));
    } else {
      brim_doctor_line *line = brim_doctor_say(e, BRIM_DOCTOR_WARN, "%s", brim_tr("off"));
      about_gpu(g, line);
      brim_doctor_fix(line, "sudo nvidia-smi -i %d -pm 1", g->index);
    }
  }
}

static void check_power(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    double limit = g->setup.power_limit_w, usual = g->setup.power_default_w;
    if (isnan(limit) || isnan(usual)) {
      not_told(e, g);
      continue;
    }
    bool capped = limit < 0.98 * usual;
    brim_doctor_line *line =
        capped ? brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%.0f W, lowered from %.0f W"), limit,
                                 usual)
               : brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%.0f W, the card's default or more"),
                                 limit);
    about_gpu(g, line);
    if (capped) brim_doctor_fix(line, "sudo nvidia-smi -i %d -pl %.0f", g->index, usual);
  }
}

// An idle GPU lowers the generation of its PCIe link, not the width.
static void check_link(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    const brim_gpu_setup *f = &g->setup;
    if (f->pcie_width < 0 || f->pcie_generation < 0) {
      not_told(e, g);
      continue;
    }
    bool narrow = f->pcie_width_max > 0 && f->pcie_width < f->pcie_width_max;
    bool old = f->pcie_generation_max > 0 && f->pcie_generation < f->pcie_generation_max;
    bool rests = old && (f->idle || f->performance_state > 2);
    brim_doctor_state state = narrow || (old && !rests) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
    brim_doctor_line *line;
    if (!narrow && !old) {
      line = brim_doctor_say(e, state, brim_tr("generation %d, %d lanes"), f->pcie_generation,
                             f->pcie_width);
    } else if (!narrow && rests) {
      line =
          brim_doctor_say(e, state, brim_tr("generation %d of %d while the GPU is idle, %d lanes"),
                          f->pcie_generation, f->pcie_generation_max, f->pcie_width);
    } else {
      line = brim_doctor_say(e, state, brim_tr("generation %d of %d, %d of %d lanes"),
                             f->pcie_generation, f->pcie_generation_max, f->pcie_width,
                             f->pcie_width_max);
      brim_doctor_fix(
          line, "%s",
          brim_tr("seat the card in a full slot of the CPU; check the slot's settings in the "
                  "BIOS and risers"));
    }
    about_gpu(g, line);
  }
}

static void check_numa(brim_doctor_exam *e) {
  char allowed[1024], near[1024], path[160], node[32];
  bool known = brim_doctor_allowed(e, allowed, sizeof allowed);
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    if (e->wsl) return;  // one node, and no readable PCI bus
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", g->setup.bus_id);
    if (!g->setup.bus_id[0] || !brim_doctor_read_word(e, path, node, sizeof node)) {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"),
                                   g->setup.bus_id[0] ? path : "/sys/bus/pci/devices"));
      continue;
    }
    if (strcmp(node, "-1") == 0) {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("the machine has one node")));
      continue;
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", g->setup.bus_id);
    int both = known && brim_doctor_read_word(e, path, near, sizeof near)
                   ? brim_doctor_cpu_both(allowed, near)
                   : -1;
    if (both < 0) {
      about_gpu(g,
                brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                                brim_tr("node %s; which cores are near it cannot be read"), node));
      continue;
    }
    brim_doctor_line *line =
        brim_doctor_say(e, both == 0 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                        brim_tr("node %s; %d of the %d cores of this process are near it"), node,
                        both, brim_doctor_cpu_list(allowed));
    about_gpu(g, line);
    if (both == 0)
      brim_doctor_fix(line, "numactl --cpunodebind=%s --membind=%s brim train ...", node, node);
  }
}

const brim_doctor_row brim_doctor_gpu_rows[] = {
    {"gpu.found", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("GPU"),
     BRIM_N_("brim trains on the first one unless --device names another."), check_found},
    {"gpu.memory", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("GPU memory"),
     BRIM_N_("What others hold, a run cannot have: batches get smaller, or it runs out of memory."),
     check_memory},
    {"gpu.shared", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Shared use"),
     BRIM_N_("Processes take turns on the GPU: each gets a part of its time."), check_shared},
    {"gpu.mig", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("MIG"),
     BRIM_N_("A slice has a part of the SMs and of the memory, and no utilisation figures."),
     check_mig},
    {"gpu.mps", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("MPS"),
     BRIM_N_(
         "Under MPS processes share one context: memory and faults of one touch the others, and "
         "profilers see less."),
     check_mps},
    {"gpu.compute_mode", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Compute mode"),
     BRIM_N_(
         "An exclusive GPU refuses a second process: sweeps cannot place two experiments on it."),
     check_compute_mode},
    {"gpu.persistence", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Persistence mode"),
     BRIM_N_(
         "Without it the driver starts the GPU again for every program: seconds at each start, and "
         "settings such as a power limit are lost."),
     check_persistence},
    {"gpu.power_limit", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Power limit"),
     BRIM_N_("Below the default the clock falls under load, and with it every measured ceiling."),
     check_power},
    {"gpu.pcie_link", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("PCIe link"),
     BRIM_N_("Batches come over it. Half the lanes or the generation before is half the speed."),
     check_link},
    {"gpu.numa", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("NUMA node"),
     BRIM_N_("Copies from the memory of another node cross between processors and are slower."),
     check_numa},
    {0}};

//---------------------------------- health ----------------------------------

static void check_ecc(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    const brim_gpu_setup *f = &g->setup;
    if (f->ecc == BRIM_GPU_SWITCH_UNKNOWN) {
      about_gpu(
          g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                             brim_tr("the driver does not report; many GeForce cards have none")));
    } else if (f->ecc == BRIM_GPU_SWITCH_OFF) {
      brim_doctor_line *line = brim_doctor_say(e, BRIM_DOCTOR_WARN, "%s", brim_tr("off"));
      about_gpu(g, line);
      brim_doctor_because(
          line, "%s",
          brim_tr("A flipped bit in device memory goes unnoticed. Off gives a little more "
                  "memory and bandwidth on cards with GDDR."));
      brim_doctor_fix(line, brim_tr("sudo nvidia-smi -i %d -e 1, then reboot"), g->index);
    } else if (f->ecc_uncorrected > 0) {
      brim_doctor_line *line = brim_doctor_say(
          e, BRIM_DOCTOR_BAD, brim_tr("on; %.0f uncorrected errors since the driver was loaded"),
          f->ecc_uncorrected);
      about_gpu(g, line);
      brim_doctor_fix(
          line,
          brim_tr("sudo nvidia-smi -i %d -r (ends what runs on it); replace the card if "
                  "they come back"),
          g->index);
    } else if (isnan(f->ecc_uncorrected)) {
      about_gpu(
          g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                             brim_tr("on; the driver does not report how many errors there were")));
    } else {
      about_gpu(
          g,
          brim_doctor_say(
              e, BRIM_DOCTOR_GOOD,
              brim_tr("on; %.0f corrected and no uncorrected errors since the driver was loaded"),
              isnan(f->ecc_corrected) ? 0 : f->ecc_corrected));
    }
  }
}

static void check_rows(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    const brim_gpu_setup *f = &g->setup;
    brim_doctor_line *line;
    if (isnan(f->rows_remapped)) {
      about_gpu(
          g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                             brim_tr("the driver does not report; cards before Ampere have none")));
      continue;
    }
    if (f->remap_failed == BRIM_GPU_SWITCH_ON) {
      line = brim_doctor_say(e, BRIM_DOCTOR_BAD,
                             brim_tr("%.0f, and one failed: no replacement rows are left"),
                             f->rows_remapped);
      about_gpu(g, line);
      brim_doctor_fix(line, "%s", brim_tr("have the card replaced; do not train on it"));
    } else if (f->remap_pending == BRIM_GPU_SWITCH_ON) {
      line = brim_doctor_say(e, BRIM_DOCTOR_BAD, brim_tr("%.0f, and one waits for a reset"),
                             f->rows_remapped);
      about_gpu(g, line);
      brim_doctor_fix(line, brim_tr("sudo nvidia-smi -i %d -r (ends what runs on it), or reboot"),
                      g->index);
    } else {
      about_gpu(g, brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%.0f", f->rows_remapped));
    }
  }
}

static void check_clocks(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    const brim_gpu_setup *f = &g->setup;
    char english[128], words[160] = "", reasons[160], clock[64];
    if (!f->reasons_known) {
      about_gpu(
          g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("the driver does not report")));
      continue;
    }
    brim_throttle_text(f->throttle, english, sizeof english);
    brim_words_put_list(words, sizeof words, english);
    brim_words_text(words, reasons, sizeof reasons);
    snprintf(clock, sizeof clock, "%.0f / %.0f MHz", f->clock_mhz, f->clock_max_mhz);
    if (isnan(f->clock_mhz) || isnan(f->clock_max_mhz)) snprintf(clock, sizeof clock, "-");
    if (!f->throttle) {
      about_gpu(g, f->idle ? brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s, idle"), clock)
                           : brim_doctor_say(e, BRIM_DOCTOR_GOOD,
                                             brim_tr("%s, nothing holds it down"), clock));
      continue;
    }
    const uint32_t hard = 1U << BRIM_THROTTLE_BIT_THERMAL | 1U << BRIM_THROTTLE_BIT_HARDWARE |
                          1U << BRIM_THROTTLE_BIT_POWER_BRAKE;
    // the power limit is normal under load
    bool only_power = f->throttle == 1U << BRIM_THROTTLE_BIT_POWER_CAP;
    brim_doctor_line *line = brim_doctor_say(e,
                                             f->throttle & hard ? BRIM_DOCTOR_BAD
                                             : only_power       ? BRIM_DOCTOR_GOOD
                                                                : BRIM_DOCTOR_WARN,
                                             brim_tr("%s, held down by: %s"), clock, reasons);
    about_gpu(g, line);
    if (f->throttle & (1U << BRIM_THROTTLE_BIT_APPLICATION)) {
      brim_doctor_fix(line, "sudo nvidia-smi -i %d -rac && sudo nvidia-smi -i %d -rgc", g->index,
                      g->index);
    } else if (!only_power) {
      brim_doctor_fix(
          line, "%s",
          brim_tr(
              "check fans, airflow and power cables; nvidia-smi -q -d PERFORMANCE,TEMPERATURE"));
    }
  }
}

static void check_heat(brim_doctor_exam *e) {
  for (size_t i = 0; i < e->gpu_count; i++) {
    const brim_doctor_gpu *g = &e->gpus[i];
    const brim_gpu_setup *f = &g->setup;
    if (isnan(f->temperature_c)) {
      about_gpu(
          g, brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s", brim_tr("the driver does not report")));
    } else if (isnan(f->slowdown_c)) {
      about_gpu(g, brim_doctor_say(e, f->temperature_c >= 85 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                                   "%.0f C", f->temperature_c));
    } else {
      bool hot = f->temperature_c >= f->slowdown_c - 5;
      brim_doctor_line *line =
          brim_doctor_say(e, hot ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          brim_tr("%.0f C, slows down at %.0f C"), f->temperature_c, f->slowdown_c);
      about_gpu(g, line);
      if (hot) brim_doctor_fix(line, "%s", brim_tr("check fans and airflow"));
    }
  }
}

const brim_doctor_row brim_doctor_health_rows[] = {
    {"gpu.clock", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Clock"),
     BRIM_N_("A GPU that is held down computes slower than its ceiling."), check_clocks},
    {"gpu.temperature", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Temperature"),
     BRIM_N_("A hot GPU lowers its clock, and long runs get slower after minutes."), check_heat},
    {"gpu.ecc", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("ECC"),
     BRIM_N_(
         "Uncorrected memory errors end programs with Xid errors that look like software bugs."),
     check_ecc},
    {"gpu.row_remap", BRIM_DOCTOR_GROUP_GPU, BRIM_N_("Replaced rows"),
     BRIM_N_("A GPU replaces bad rows of its memory; some replacements wait for the next reset."),
     check_rows},
    {0}};
