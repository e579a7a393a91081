// A profile for tests of its views: of a GPU with its own records, gaps, transforms and memory; or of a CPU by the
// clock, without a finding.
#ifndef BRIM_TESTS_PROFILE_RECORD_H_
#define BRIM_TESTS_PROFILE_RECORD_H_

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_profile.h"
#include "test.h"

static inline brim_profile_row *add_profile_row(brim_profile *p, brim_profile_list list,
                                                const char *name, const char *kind, double count,
                                                double ms) {
  brim_profile_row *row = brim_profile_add(p, list);
  assert_non_null(row);
  snprintf(row->name, sizeof row->name, "%s", name);
  snprintf(row->kind, sizeof row->kind, "%s", kind);
  row->count = count;
  row->ms = row->total_ms = ms;
  return row;
}

static inline void set_ceiling(brim_profile_row *row, const char *op, const char *layer,
                               const char *ceiling, double share) {
  snprintf(row->op, sizeof row->op, "%s", op);
  snprintf(row->layer, sizeof row->layer, "%s", layer);
  snprintf(row->phase, sizeof row->phase, "forward");
  snprintf(row->ceiling, sizeof row->ceiling, "%s", ceiling);
  row->ceiling_share = share;
  row->flops = 2e9;
  row->bytes = 1e8;
}

// 24 ops: activations grow in the forward pass and are freed in the backward pass.
static inline void make_profile_memory(brim_profile *p) {
  enum { OPS = 24, HALF = OPS / 2 };
  brim_profile_memory *m = &p->memory;
  m->points = brim_calloc(OPS, sizeof *m->points);
  m->blocks = brim_calloc(OPS, sizeof *m->blocks);
  assert_non_null(m->points);
  assert_non_null(m->blocks);
  m->point_count = OPS;
  m->block_count = HALF + 2;
  const double each = 8 << 20;
  for (int i = 0; i < OPS; i++) {
    brim_profile_point *point = &m->points[i];
    const bool back = i >= HALF;
    snprintf(point->op, sizeof point->op, back ? "conv_backward" : "conv");
    snprintf(point->layer, sizeof point->layer, "block.%d", back ? OPS - 1 - i : i);
    snprintf(point->phase, sizeof point->phase, back ? "backward" : "forward");
    point->bytes = each * (back ? OPS - i : i + 1) + (i == HALF || i == HALF - 1 ? each * 2 : 0);
  }
  for (int i = 0; i < HALF; i++) {
    brim_profile_block *b = &m->blocks[i];
    snprintf(b->name, sizeof b->name, "block.%d output", i);
    snprintf(b->kind, sizeof b->kind, "activation");
    b->bytes = each;
    b->offset = each * i;
    b->first = i;
    b->last = OPS - 1 - i;
  }
  for (int i = 0; i < 2; i++) {
    brim_profile_block *b = &m->blocks[HALF + i];
    snprintf(b->name, sizeof b->name, i ? "conv workspace" : "gradient of block.11");
    snprintf(b->kind, sizeof b->kind, i ? "workspace" : "gradient");
    b->bytes = each;
    b->offset = each * (HALF + i);
    b->first = HALF - 1;
    b->last = HALF;
  }
  m->peak = HALF - 1;
  m->peak_bytes = m->arena_bytes = m->points[HALF - 1].bytes;
  m->fixed_bytes = 60e6;
}

static inline void make_profile_head(brim_profile *p, const char *device, const char *source) {
  brim_profile_init(p);
  brim_result *r = &p->result;
  snprintf(r->workload, sizeof r->workload, "supervised");
  snprintf(r->description, sizeof r->description, "resnet18 on 50,000 samples of 32x32x3 u8");
  snprintf(r->device, sizeof r->device, "%s", device);
  r->when_s = 1790000000;
  snprintf(r->knobs[0].name, sizeof r->knobs[0].name, "batch_size");
  snprintf(r->knobs[0].value, sizeof r->knobs[0].value, "512");
  snprintf(r->knobs[1].name, sizeof r->knobs[1].name, "precision");
  snprintf(r->knobs[1].value, sizeof r->knobs[1].value, "bf16");
  r->knob_count = 2;
  r->samples_per_s = 40960;
  static const brim_plan_row rows[] = {{"parameters", BRIM_PLACE_DEVICE, 40000000},
                                       {"optimizer state", BRIM_PLACE_DEVICE, 20000000},
                                       {"activations", BRIM_PLACE_DEVICE, 117440512},
                                       {"loader ring", BRIM_PLACE_HOST, 5000000}};
  memcpy(r->plan.rows, rows, sizeof rows);
  r->plan.row_count = 4;
  snprintf(p->source, sizeof p->source, "%s", source);
  p->step_ms = 12.5;
  p->step_mad_ms = 0.08;
  p->traced_ms = 12.7;
  p->traced_steps = 40;
  p->seconds = 9.4;
  p->window_s = 0.51;
  p->extra_ms = 0.2;
  p->run_percent = 0.064;
  make_profile_memory(p);
}

static inline void make_gpu_rows(brim_profile *p) {
  set_ceiling(
      add_profile_row(p, BRIM_PROFILE_KERNELS,
                      "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_"
                      "128x2_tn_align8>(Params)",
                      "kernel", 20, 5.1),
      "conv", "block.3", "bf16", 0.62);
  set_ceiling(
      add_profile_row(p, BRIM_PROFILE_KERNELS, "brim_batchnorm_backward", "kernel", 20, 2.4),
      "batchnorm", "block.3", "copy", 0.18);
  for (int i = 0; i < 14; i++) {
    char name[64];
    snprintf(name, sizeof name, "brim_elementwise_%d<float>", i);
    set_ceiling(add_profile_row(p, BRIM_PROFILE_KERNELS, name, "kernel", 4, 0.2 - i * 0.01), "add",
                "block.1", "copy", 0.7);
  }
  add_profile_row(p, BRIM_PROFILE_KERNELS, "Memcpy HtoD", "copy", 1, 0.9);
  add_profile_row(p, BRIM_PROFILE_KERNELS, "input", "gap", 1, 2.2);
  set_ceiling(add_profile_row(p, BRIM_PROFILE_OPS, "conv", "op", 20, 6.3), "conv", "block.3",
              "bf16", 0.6);
  set_ceiling(add_profile_row(p, BRIM_PROFILE_LAYERS, "block.3 <b>", "layer", 8, 4.4), "", "",
              "bf16", 0.5);
  static const struct {
    const char *name;
    double ms;
  } phases[] = {{"backward", 5.5}, {"forward", 3.2}, {"io", 1.4}, {"h2d", 0.9}, {"optimizer", 1.5}};
  for (size_t i = 0; i < 5; i++) {
    add_profile_row(p, BRIM_PROFILE_PHASES, phases[i].name, "phase", 1, phases[i].ms);
  }
  add_profile_row(p, BRIM_PROFILE_TRANSFORMS, "random_resized_crop", "transform", 512, 30);
  add_profile_row(p, BRIM_PROFILE_TRANSFORMS, "normalize", "transform", 512, 4);
}

static inline void make_gpu_profile(brim_profile *p) {
  make_profile_head(p, "NVIDIA H200", "cupti");
  snprintf(p->result.device_id, sizeof p->result.device_id, "GPU-1");
  make_gpu_rows(p);
  p->attach_s = 1.2;
  p->has_gaps = true;
  p->gap_ms = 2.2;
  p->cause_ms[BRIM_GAP_INPUT] = 1.4;
  p->cause_count[BRIM_GAP_INPUT] = 1;
  p->cause_ms[BRIM_GAP_TRANSFER] = 0.6;
  p->cause_count[BRIM_GAP_TRANSFER] = 1;
  p->gaps[0] = (brim_profile_gap){.cause = BRIM_GAP_INPUT,
                                  .ms = 1.6,
                                  .step = 2,
                                  .at_ms = 30,
                                  .before = "brim_sgd<float>",
                                  .after = "Memcpy HtoD"};
  p->gap_count = 1;
  p->h2d_ms = 0.9;
  p->h2d_exposed_ms = 0.6;
  p->h2d_bytes = 1572864;
  p->h2d_pageable_bytes = 1572864;
  p->workers = 4;
  p->worker_io_ms = 6;
  p->worker_transform_ms = 34;
  brim_finding *f = p->result.findings;
  snprintf(f->text, sizeof f->text, "The step waits for data.");
  snprintf(f->remedy, sizeof f->remedy, "Raise num_workers to 8.");
  f->cost_ms = f->predicted_ms = 1.4;
  p->result.finding_count = 1;
  brim_profile_finish(p);
}

static inline void make_cpu_profile(brim_profile *p) {
  make_profile_head(p, "Neoverse-V1, 2 threads", "clock");
  set_ceiling(add_profile_row(p, BRIM_PROFILE_OPS, "matmul", "op", 6, 10), "", "fc1", "fp32", 0.8);
  set_ceiling(add_profile_row(p, BRIM_PROFILE_OPS, "relu", "op", 3, 2.5), "", "act", "copy", 0.4);
  add_profile_row(p, BRIM_PROFILE_PHASES, "forward", "phase", 1, 12.5);
  brim_profile_finish(p);
}

#endif  // BRIM_TESTS_PROFILE_RECORD_H_
