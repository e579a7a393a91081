// Lines about what a device was measured to do at best. Figures are good by being known; one is marked
// where the machine's own facts say that more should be possible.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_int.h"

#define SLOW_LAUNCH_S 20e-6

typedef enum unit { FLOPS, BYTES, LAUNCHES } unit;

static const struct {
  brim_doctor_row row;
  size_t offset;  // in brim_machine_ceilings
  unit unit;
  bool gpu;  // a CPU has none
} figures[] = {
#define AT(member) offsetof(brim_machine_ceilings, member)
    {{"ceiling.gemm_fp32", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, fp32"),
      BRIM_N_("No layer computes faster in fp32."), NULL},
     AT(gemm_fp32_flops),
     FLOPS,
     false},
    {{"ceiling.gemm_tf32", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, tf32"),
      BRIM_N_("training.precision=tf32 uses tensor cores for fp32 products."), NULL},
     AT(gemm_tf32_flops),
     FLOPS,
     true},
    {{"ceiling.gemm_bf16", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, bf16"),
      BRIM_N_("No layer computes faster in bf16."), NULL},
     AT(gemm_bf16_flops),
     FLOPS,
     false},
    {{"ceiling.gemm_fp16", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, fp16"),
      BRIM_N_("No layer computes faster in fp16."), NULL},
     AT(gemm_fp16_flops),
     FLOPS,
     true},
    {{"ceiling.copy", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Memory bandwidth"),
      BRIM_N_("Activations, normalisation and optimizers are bound by it. Reading and writing both "
              "count."),
      NULL},
     AT(copy_bytes_per_s),
     BYTES,
     false},
    {{"ceiling.h2d_pinned", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Host to GPU, pinned"),
      BRIM_N_("Batches come at most this fast (data.pin_memory=true)."), NULL},
     AT(h2d_pinned_bytes_per_s),
     BYTES,
     true},
    {{"ceiling.h2d_pageable", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Host to GPU, pageable"),
      BRIM_N_("The same without pinned memory."), NULL},
     AT(h2d_pageable_bytes_per_s),
     BYTES,
     true},
    {{"ceiling.launch", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Launch of an op"),
      BRIM_N_("An op that computes for less time than its launch leaves the device idle. Larger "
              "batches "
              "and training.compile=true help."),
      NULL},
     AT(launches_per_s),
     LAUNCHES,
     false},
#undef AT
};

static void figure_text(double value, unit u, char out[64]) {
  char number[32];
  switch (u) {
    case FLOPS:
      brim_format_figure(value * (value >= 1e12 ? 1e-12 : 1e-9), number);
      snprintf(out, 64, "%s %s", number, value >= 1e12 ? "TFLOP/s" : "GFLOP/s");
      break;
    case BYTES:
      brim_format_figure(value * 1e-9, number);
      snprintf(out, 64, "%s GB/s", number);
      break;
    default:
      brim_format_figure(1e6 / value, number);
      snprintf(out, 64, "%s us", number);
  }
}

// Bytes/s of a link with encoding, one direction; NaN = not known.
static double link_rate(const brim_gpu_setup *f) {
  static const double lane[] = {0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  if (!f || f->pcie_generation_max < 1 || f->pcie_generation_max > 6 || f->pcie_width < 1) {
    return (double)NAN;
  }
  return lane[f->pcie_generation_max - 1] * (double)f->pcie_width;
}

static void say_measure_again(brim_doctor_line *line) {
  char folder[512];
  brim_work_cache_folder(folder, sizeof folder);
  if (folder[0]) {
    brim_doctor_fix(
        line,
        brim_tr("run near the GPU (numactl); check the slot, the IOMMU and that nothing "
                "else copies, then measure again: rm %s/ceilings.json; brim doctor"),
        folder);
  } else {
    brim_doctor_fix(
        line, "%s",
        brim_tr("run near the GPU (numactl); check the slot, the IOMMU and that nothing "
                "else copies, then measure again: brim doctor"));
  }
}

// They were measured beside other programs. brim measures them again the next time.
static void say_busy(brim_doctor_line *line, const brim_machine_ceilings *ceilings, bool gpu) {
  brim_doctor_because(
      line,
      gpu ? brim_tr("Other processes used %.0f %% of the GPU's time while brim measured: the "
                    "figures may be too low.")
          : brim_tr("Other programs used %.0f %% of the processors while brim measured: the "
                    "figures may be too low."),
      brim_shown(100 * ceilings->load));
  brim_doctor_fix(line, "%s", brim_tr("brim doctor, when the machine is quiet: it measures again"));
}

static void say_figure(brim_doctor_report *out, size_t i, double value, const brim_gpu_setup *facts,
                       bool gpu) {
  const brim_doctor_row *row = &figures[i].row;
  char text[64], most[64];
  figure_text(value, figures[i].unit, text);
  double link = figures[i].offset == offsetof(brim_machine_ceilings, h2d_pinned_bytes_per_s)
                    ? link_rate(facts)
                    : (double)NAN;
  if (value < 0.5 * link) {
    figure_text(link, BYTES, most);
    brim_doctor_line *line = brim_doctor_say_row(
        out, row, BRIM_DOCTOR_WARN, brim_tr("%s, %.0f %% of what the PCIe link carries (%s)"), text,
        brim_shown(100 * value / link), most);
    say_measure_again(line);
    return;
  }
  if (figures[i].unit == LAUNCHES && gpu && 1 / value > SLOW_LAUNCH_S) {
    brim_doctor_line *line = brim_doctor_say_row(out, row, BRIM_DOCTOR_WARN,
                                                 brim_tr("%s, several times the usual"), text);
    brim_doctor_fix(
        line, "%s",
        brim_tr("check CUDA_LAUNCH_BLOCKING, profilers, the CPU governor and quota; keep "
                "training.compile=true"));
    return;
  }
  brim_doctor_say_row(out, row, BRIM_DOCTOR_GOOD, "%s", text);
}

void brim_doctor_ceilings(const brim_machine_ceilings *ceilings, const brim_device_info *device,
                          const brim_gpu_setup *facts, const char *reason,
                          brim_doctor_report *out) {
  static const brim_doctor_row all = {
      "ceiling.device", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Device"),
      BRIM_N_("What a program reaches is compared with what this device "
              "can do. Figures are remembered per device."),
      NULL};
  if (reason) {
    brim_doctor_say_row(out, &all, BRIM_DOCTOR_UNKNOWN, "%s", reason);
    return;
  }
  bool gpu = device->kind == BRIM_DEVICE_GPU;
  out->measured = true;
  out->ceilings = *ceilings;
  snprintf(out->device, sizeof out->device, "%s", device->name);
  bool disturbed = brim_machine_was_busy(ceilings);
  brim_doctor_line *line =
      brim_doctor_say_row(out, &all, disturbed ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD, "%s%s%s",
                          device->name, device->library[0] ? ", " : "", device->library);
  if (disturbed) say_busy(line, ceilings, gpu);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    double value = *(const double *)((const char *)ceilings + figures[i].offset);
    if (figures[i].gpu && !gpu) continue;
    if (isnan(value)) {
      brim_doctor_say_row(out, &figures[i].row, BRIM_DOCTOR_UNKNOWN, "%s",
                          brim_tr("brim could not measure it here: the device refused, or memory "
                                  "was short"));
    } else {
      say_figure(out, i, value, facts, gpu);
    }
  }
}
