// Results for the tests of the report, from a small model of a machine: a sweep on a GPU as large as brim bench makes
// it (14 batch sizes x 3 worker counts x 2 precisions x pinned or not), and one on a CPU. Values have the magnitude of
// such machines.
#ifndef BRIM_TESTS_UI_REPORT_RESULTS_H_
#define BRIM_TESTS_UI_REPORT_RESULTS_H_

#include <math.h>

#include "picked.h"
#include "test.h"
#include "ui/bench/ui_bench.h"
#include "workload/workload.h"

enum { GPU_RESULTS = 14 * 3 * 2 * 2, CPU_RESULTS = 7 * 2 };

static inline void add_knob(brim_result *r, const char *name, const char *value) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%s", value);
  char *end;
  k->number = strtod(value, &end);
  if (*end || end == value) k->number = NAN;
}

static inline void add_number(brim_result *r, const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  add_knob(r, name, text);
}

static inline void set_phase(brim_result *r, brim_phase phase, double ms) {
  r->phase_used[phase] = true;
  r->phase_ms[phase].median = r->phase_ms[phase].mean = ms;
  r->total_ms.median += ms;
}

static inline void add_row(brim_result *r, const char *name, brim_place place, double bytes) {
  r->plan.rows[r->plan.row_count++] = (brim_plan_row){name, place, (uint64_t)bytes};
  r->plan.bytes[place] += (uint64_t)bytes;
}

static inline void finish(brim_result *r, double batch, double noise) {
  r->total_ms.mean = r->total_ms.median;
  r->samples_per_s = batch / r->total_ms.median * 1e3;
  r->samples_per_s_low = r->samples_per_s * (1 - noise);
  r->samples_per_s_high = r->samples_per_s * (1 + noise);
  r->epoch_s = 178000 / r->samples_per_s;
  r->steps = 40;
  r->repeats = 3;
  r->warmup_steps = 5;
  r->stable = true;
  r->seconds = 1.4;
}

static inline void forget(brim_result *r, brim_failure failure, const char *message) {
  r->failure = failure;
  r->samples_per_s = r->samples_per_s_low = r->samples_per_s_high = r->epoch_s = NAN;
  r->total_ms.median = r->total_ms.mean = NAN;
  r->steps = 0;
  r->stable = false;
  r->gpu_percent = r->sm_percent = r->occupancy_percent = r->tensor_percent = r->dram_percent = NAN;
  r->power_w = r->joules_per_sample = r->peak_rss_bytes = r->real_bytes = NAN;
  memset(r->phase_used, 0, sizeof r->phase_used);
  snprintf(r->message, sizeof r->message, "%s", message);
}

static inline void gpu_where(brim_result *r) {
  r->when_s = 1794709229;
  strcpy(r->workload, "supervised");
  strcpy(r->device, "NVIDIA H200");
  strcpy(r->device_id, "GPU-3f1c0e52-77aa-4b1e-9c0d-2f6a5d1b8e90");
  strcpy(r->library, "CUDA 13.0, driver API 13.0, cuBLASLt 13.1.0, cuDNN 9.14.0");
  strcpy(r->backend, "cuda");
  strcpy(r->cpu, "Intel(R) Xeon(R) Processor");
  strcpy(r->os, "Debian GNU/Linux 12, Linux 6.1");
  strcpy(r->host, "gpu-07");
  strcpy(r->description, "transformer on 178,000 samples of 3000x1 f32");
  r->cores = 16;
  r->threads = 16;
  r->total_bytes = 139.8 * (1 << 30);
  r->free_bytes = 138.9 * (1 << 30);
  r->ceilings.gemm_fp32_flops = 51.6e12;
  r->ceilings.gemm_tf32_flops = 402e12;
  r->ceilings.gemm_bf16_flops = 741e12;
  r->ceilings.gemm_fp16_flops = 738e12;
  r->ceilings.copy_bytes_per_s = 4.09e12;
  r->ceilings.h2d_pinned_bytes_per_s = 55.3e9;
  r->ceilings.h2d_pageable_bytes_per_s = 9.8e9;
}

static inline void gpu_memory(brim_result *r, double batch, bool half, int workers) {
  add_row(r, "parameters", BRIM_PLACE_DEVICE, 44707456);
  if (half) add_row(r, "16-bit copy", BRIM_PLACE_DEVICE, 22353728);
  add_row(r, "gradients", BRIM_PLACE_DEVICE, 44707456);
  add_row(r, "optimizer state", BRIM_PLACE_DEVICE, 89414912);
  add_row(r, "activations", BRIM_PLACE_DEVICE, batch * (half ? 12.4e6 : 23.1e6));
  add_row(r, "workspace", BRIM_PLACE_DEVICE, 33554432);
  add_row(r, "inputs", BRIM_PLACE_DEVICE, 2 * batch * 12000);
  add_row(r, "loader ring", BRIM_PLACE_HOST, batch * 12000 * 2 * workers);
  r->overhead_bytes = 612 * 1048576.0;
  r->real_bytes = (double)r->plan.bytes[BRIM_PLACE_DEVICE] + r->overhead_bytes;
  r->counted_bytes = (double)r->plan.bytes[BRIM_PLACE_DEVICE];
  r->peak_rss_bytes = 1.9e9 + (double)r->plan.bytes[BRIM_PLACE_HOST];
  r->plan.parameter_count = 11173962;
  r->plan.samples_per_step = batch;
  r->plan.flops_per_step = batch * 3.36e9;
  r->plan.bytes_per_step = batch * 16e6 + 3e8;
}

static inline void gpu_use(brim_result *r, double batch, bool half, double compute, double data) {
  double busy = compute / r->total_ms.median, fill = batch / (batch + 48);
  r->gpu_percent = 100 * fmin(1, busy * 1.02);
  r->sm_percent = 96 * busy * fill;
  r->occupancy_percent = 52 * busy * fill;
  r->tensor_percent = (half ? 38 : 9) * busy * fill;
  r->dram_percent = (half ? 61 : 66) * busy * fill;
  r->power_w = 122 + (half ? 480 : 430) * busy * fill;
  r->power_limit_w = 700;
  r->clock_mhz = 1980 - 45 * fill;
  r->clock_max_mhz = 1980;
  r->temperature_c = 38 + 21 * busy * fill;
  r->joules_per_sample = r->power_w / r->samples_per_s;
  r->data_samples_per_s = data;
  r->compute_samples_per_s = batch / compute * 1e3;
  r->gpu_busy_ms = compute * 0.99;
  r->gpu_kernel_ms = compute * 0.985;
  r->gpu_copy_ms = 0.02 * compute;
  r->kernels = 214;
}

static inline void make_gpu_one(brim_result *r, int index) {
  static const int workers_of[] = {2, 4, 8};
  int batch = 1 << index % 14, workers = workers_of[index / 14 % 3];
  bool half = index / 42 % 2, pinned = index / 84 == 0;
  char message[96];
  double b = batch;
  brim_result_init(r);
  r->knob_set = brim_workload_find("supervised")->knob_set;
  gpu_where(r);
  add_number(r, "batch_size", batch);
  add_number(r, "num_workers", workers);
  add_knob(r, "precision", half ? "bf16" : "fp32");
  add_knob(r, "pin_memory", pinned ? "true" : "false");
  add_number(r, "gradient_accumulation_steps", 1);
  gpu_memory(r, b, half, workers);
  double forward = (half ? 0.42 : 0.47) + b * (half ? 0.0027 : 0.0081);
  double backward = forward * 1.9, optimizer = 0.19;
  double data = 13100.0 * workers / (1 + 4 / b);  // samples/s of the loader
  double h2d = 0.012 + b * (pinned ? 0.00022 : 0.00075);
  double compute = forward + backward + optimizer;
  double io = fmax(0, b / data * 1e3 - compute - h2d) + 0.01;
  r->total_ms.median = 0;
  set_phase(r, BRIM_PHASE_IO, io);
  set_phase(r, BRIM_PHASE_H2D, h2d);
  set_phase(r, BRIM_PHASE_FORWARD, forward);
  set_phase(r, BRIM_PHASE_BACKWARD, backward);
  set_phase(r, BRIM_PHASE_OPTIMIZER, optimizer);
  set_phase(r, BRIM_PHASE_OTHER, 0.05 + 0.01 * compute);
  r->worker_io_ms = b * 0.052;
  r->worker_transform_ms = b * 0.021;
  finish(r, b, 0.004 + 0.03 / sqrt(b) + (index * 7 % 11) * 0.001);
  gpu_use(r, b, half, compute, data);
  r->stable = index * 5 % 37 != 3;
  r->throttled = index == 90;
  if (r->throttled) strcpy(r->throttle, "heat");
  if (r->real_bytes > r->free_bytes) {
    snprintf(message, sizeof message, "needs %.1f GiB, %.1f GiB are free",
             r->real_bytes / (1 << 30), r->free_bytes / (1 << 30));
    forget(r, BRIM_FAILURE_OOM_PLANNED, message);
  }
}

static inline void add_finding(brim_result *r, const char *code, double ms, const char *text,
                               const char *remedy) {
  brim_finding *f = &r->findings[r->finding_count++];
  f->cost_ms = ms;
  snprintf(f->code, sizeof f->code, "%s", code);
  snprintf(f->text, sizeof f->text, "%s", text);
  snprintf(f->remedy, sizeof f->remedy, "%s", remedy);
}

// The picks by the rules of the recommendation, simplified.
static inline brim_recommendation pick(const brim_result *list, size_t count) {
  brim_recommendation p = picked(-1, -1, -1);
  for (size_t i = 0; i < count; i++) {
    if (list[i].failure || !list[i].stable || list[i].throttled) continue;
    if (p.highest < 0 || list[i].samples_per_s > list[p.highest].samples_per_s) p.highest = (int)i;
  }
  for (size_t i = 0; p.highest >= 0 && i < count; i++) {
    const brim_result *r = &list[i], *top = &list[p.highest];
    if (r->failure || !r->stable || r->throttled) continue;
    double e = r->samples_per_s / brim_result_memory(r);
    if (r->samples_per_s >= 0.9 * top->samples_per_s &&
        (p.efficient < 0 ||
         e > list[p.efficient].samples_per_s / brim_result_memory(&list[p.efficient]))) {
      p.efficient = (int)i;
    }
    if (r->samples_per_s >= 0.97 * top->samples_per_s &&
        (p.recommended < 0 || brim_result_memory(r) < brim_result_memory(&list[p.recommended]))) {
      p.recommended = (int)i;
    }
  }
  return p;
}

static inline brim_recommendation make_gpu(brim_result *list) {
  for (int i = 0; i < GPU_RESULTS; i++) make_gpu_one(&list[i], i);
  brim_recommendation p = pick(list, GPU_RESULTS);
  brim_result *r = &list[p.recommended];
  double io = r->phase_ms[BRIM_PHASE_IO].median;
  add_finding(r, "io_wait", io, "the step waits for data; the loader gives less than the GPU takes",
              "num_workers 8 -> 16, or data.cache=ram");
  add_finding(r, "h2d", r->phase_ms[BRIM_PHASE_H2D].median,
              "copies to the device are not hidden behind the computing", "prefetch_factor 2 -> 4");
  add_finding(r, "noise", NAN, "a finding without a price", "");
  return p;
}

static inline brim_recommendation make_cpu(brim_result *list) {
  for (int i = 0; i < CPU_RESULTS; i++) {
    brim_result *r = &list[i];
    int batch = 16 << i % 7, workers = i / 7 * 2;
    double b = batch;
    brim_result_init(r);
    r->knob_set = brim_workload_find("supervised")->knob_set;
    r->when_s = 1794709229;
    strcpy(r->workload, "supervised");
    strcpy(r->device, "Test CPU, 2 cores");
    strcpy(r->backend, "ref");
    strcpy(r->cpu, "Test CPU");
    strcpy(r->description, "mlp on 8,192 samples of 28x28 u8");
    r->cores = 2;
    r->threads = 2;
    r->total_bytes = 8e9;
    r->free_bytes = 6e9;
    add_number(r, "batch_size", batch);
    add_number(r, "num_workers", workers);
    add_knob(r, "precision", "fp32");
    add_row(r, "parameters", BRIM_PLACE_DEVICE, 472104);
    add_row(r, "activations", BRIM_PLACE_DEVICE, b * 4200);
    add_row(r, "loader ring", BRIM_PLACE_HOST, b * 784 * (2 + workers));
    r->total_ms.median = 0;
    set_phase(r, BRIM_PHASE_IO, workers ? 0 : b * 0.002);
    set_phase(r, BRIM_PHASE_FORWARD, 0.05 + b * 0.021);
    set_phase(r, BRIM_PHASE_BACKWARD, 0.06 + b * 0.022);
    set_phase(r, BRIM_PHASE_OPTIMIZER, 0.9);
    set_phase(r, BRIM_PHASE_OTHER, 0.02);
    finish(r, b, 0.01);
    r->cpu_percent = 45 + 4 * workers;
    r->peak_rss_bytes = 61e6 + b * 4200;
  }
  return pick(list, CPU_RESULTS);
}

#endif  // BRIM_TESTS_UI_REPORT_RESULTS_H_
