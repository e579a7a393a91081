// A machine for tests of records and screens: every member known, several GPUs.
#ifndef BRIM_TESTS_TOP_VIEW_H_
#define BRIM_TESTS_TOP_VIEW_H_

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_top.h"

static void top_view_host(brim_top_host *host) {
  snprintf(host->name, sizeof host->name, "node-17");
  snprintf(host->cpu, sizeof host->cpu, "AMD EPYC 9654 96-Core Processor");
  snprintf(host->os, sizeof host->os, "Ubuntu 24.04.1 LTS");
  snprintf(host->kernel, sizeof host->kernel, "Linux 6.8.0 x86_64");
  host->cores = host->cores_online = 192;
  host->cpu_percent = 31.5;
  host->iowait_percent = 0.4;
  host->load_1 = 61.2;
  host->load_5 = 58;
  host->load_15 = 40;
  host->memory_total = 1.5e12;
  host->memory_used = 4.1e11;
  host->memory_available = 1.09e12;
  host->swap_total = 0;
  host->swap_used = 0;
  host->shm_total = 7.5e11;
  host->shm_used = 2.1e10;
  host->disk_read = 1.9e9;
  host->disk_write = 3e6;
  host->network_rx = 1.2e6;
  host->network_tx = 8e5;
  host->uptime_s = 903600;
}

static void top_view_gpu(brim_top_view *view, int index) {
  brim_top_gpu *gpu = brim_top_view_add_gpu(view);
  gpu->index = index;
  snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-0000000%d", index);
  snprintf(gpu->name, sizeof gpu->name, "NVIDIA H200");
  snprintf(gpu->bus, sizeof gpu->bus, "0000:%02X:00.0", 0x18 + index);
  gpu->gpu_percent = index == 1 ? 100 : 97 - 9 * index;
  gpu->sm_percent = 71 - 7 * index;
  gpu->occupancy_percent = 38 - 4 * index;
  gpu->tensor_percent = index == 1 ? 0 : 52 - 6 * index;
  gpu->dram_percent = index == 1 ? 0.2 : 41 - 4 * index;
  gpu->memory_busy_percent = 30;
  gpu->encoder_percent = gpu->decoder_percent = gpu->jpeg_percent = gpu->ofa_percent = 0;
  gpu->ceiling_percent = 72;
  gpu->memory_total = 151e9;
  gpu->memory_used = 151e9 * (0.88 - 0.1 * index);
  gpu->memory_reserved = 0.6e9;
  gpu->bar1_total = 256e9;
  gpu->bar1_used = 12e6;
  gpu->confidential_used = 0;
  gpu->power_w = index == 1 ? 118 : 612 - 70 * index;
  gpu->power_limit_w = gpu->power_limit_default_w = gpu->power_limit_max_w = 700;
  gpu->energy_j = 91000;
  gpu->energy_total_j = 8.1e9;
  gpu->clock_mhz = 1755;
  gpu->clock_max_mhz = 1980;
  gpu->memory_clock_mhz = gpu->memory_clock_max_mhz = 3201;
  gpu->temperature_c = 58 + index;
  gpu->memory_temperature_c = 66 + index;
  gpu->slowdown_c = 87;
  gpu->shutdown_c = 92;
  gpu->pstate = 0;
  gpu->throttle_known = true;
  gpu->throttle = index == 0 ? 1u << BRIM_TOP_THROTTLE_POWER_CAP : 0;
  gpu->power_violation_percent = index == 0 ? 38 : 0;
  gpu->thermal_violation_percent = 0;
  gpu->pcie_generation = gpu->pcie_generation_max = 5;
  gpu->pcie_width = gpu->pcie_width_max = 16;
  gpu->pcie_rx = 2.9e9;
  gpu->pcie_tx = 7e7;
  gpu->pcie_replays = 0;
  gpu->ecc = BRIM_TOP_YES;
  gpu->ecc_corrected = gpu->ecc_uncorrected = gpu->ecc_corrected_total = 0;
  gpu->ecc_uncorrected_total = 0;
  gpu->remapped_corrected = gpu->remapped_uncorrected = 0;
  gpu->remap_pending = gpu->remap_failed = BRIM_TOP_NO;
  gpu->xid_watched = BRIM_TOP_YES;
  gpu->mig = BRIM_TOP_NO;
  gpu->persistence = BRIM_TOP_YES;
  snprintf(gpu->compute_mode, sizeof gpu->compute_mode, "default");
}

static void top_view_process(brim_top_view *view, int64_t pid, int64_t gpu) {
  brim_top_process *process = brim_top_view_add_process(view);
  process->pid = pid;
  process->gpu = gpu;
  snprintf(process->uuid, sizeof process->uuid, "GPU-0000000%d", (int)gpu);
  snprintf(process->type, sizeof process->type, "C");
  snprintf(process->user, sizeof process->user, "%s", gpu % 2 ? "bob" : "alice");
  snprintf(process->container, sizeof process->container, "%s", gpu % 2 ? "docker:3f2a" : "");
  snprintf(process->command, sizeof process->command, "%s",
           gpu % 2 ? "python train.py --model large" : "brim train config.yaml");
  process->elsewhere = BRIM_TOP_NO;
  process->memory = 1e9 * (double)(120 - 10 * gpu);
  process->sm_percent = (double)(95 - 9 * gpu);
  process->memory_busy_percent = 30;
  process->cpu_percent = 100.0 * (double)(8 - gpu);
  process->rss = 12e9;
  process->elapsed_s = 4000;
}

static void top_view_job(brim_top_view *view, int64_t pid) {
  brim_job *job = brim_top_view_add_job(view);
  job->pid = pid;
  job->pid_start = 123456;
  snprintf(job->command, sizeof job->command, "train");
  snprintf(job->workload, sizeof job->workload, "supervised");
  snprintf(job->name, sizeof job->name, "cifar10-resnet18");
  snprintf(job->device, sizeof job->device, "cuda:0");
  snprintf(job->device_id, sizeof job->device_id, "GPU-00000000");
  job->phase = BRIM_JOB_TRAIN;
  snprintf(job->metric_key, sizeof job->metric_key, "loss");
  job->metric = 0.4312;
  job->started_s = 1.8e9 - 600;
  job->updated_s = 1.8e9 - 0.4;
  job->epoch = 3;
  job->epochs = 10;
  job->step = 412;
  job->steps = 980;
  job->samples_per_s = 47749;
  job->eta_s = 1310;
  brim_finding *finding = &job->findings[job->finding_count++];
  snprintf(finding->code, sizeof finding->code, "io_wait");
  finding->cost_ms = 3.1;
  snprintf(finding->text, sizeof finding->text, "the GPU waits 3.1 ms per step for data");
  snprintf(finding->remedy, sizeof finding->remedy, "raise num_workers to 16");
}

// `gpus` H200s, a process on each, one job, an Xid on the second GPU.
static void top_view_make(brim_top_view *view, int gpus) {
  brim_top_view_init(view);
  view->when_s = 1.8e9;
  view->interval_s = 1;
  top_view_host(&view->host);
  if (gpus) snprintf(view->driver, sizeof view->driver, "580.95.05");
  for (int i = 0; i < gpus; i++) {
    top_view_gpu(view, i);
    top_view_process(view, 23000 + i, i);
  }
  if (gpus) top_view_job(view, 23000);
  if (gpus > 1) {
    brim_top_event *event = brim_top_view_add_event(view);
    event->when_s = 1.8e9 - 60;
    event->gpu = 1;
    snprintf(event->kind, sizeof event->kind, "xid");
    event->code = 94;
    snprintf(event->text, sizeof event->text, "contained ECC error");
    view->gpus[1].xid = 94;
  }
  brim_top_view_derive(view, NULL);
}

#endif  // BRIM_TESTS_TOP_VIEW_H_
