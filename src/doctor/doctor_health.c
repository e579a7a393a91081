// Checks of each GPU's health: memory errors, replaced rows, heat, and what holds its clock down now.
#include <math.h>
#include <stdio.h>

#include "base/base_words.h"
#include "doctor/doctor_int.h"

static brim_doctor_line *about_gpu(const brim_doctor_gpu *g, brim_doctor_line *line) {
  brim_doctor_about(line, g->name);
  return line;
}

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
    // under load a card works at its power limit; that alone is no fault
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
