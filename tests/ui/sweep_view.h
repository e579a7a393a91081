// A sweep to display: experiments in every state on four GPUs, the same on every machine.
#ifndef BRIM_TESTS_UI_SWEEP_VIEW_H_
#define BRIM_TESTS_UI_SWEEP_VIEW_H_

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_sweep.h"

#define SWEEP_NOW 1763370000.0

static inline void sweep_view_row(brim_sweep_view *view, int i, int count) {
  static const char *const points[] = {"lr=0.1 batch_size=64", "lr=0.1 batch_size=128",
                                       "lr=0.01 batch_size=64", "lr=0.01 batch_size=128"};
  char id[33], label[96], group[16], devices[16];
  brim_sweep_row row;
  brim_sweep_row_init(&row);
  int point = i / 5 % 4, seed = i % 5;
  snprintf(id, sizeof id, "%08x%024x", (unsigned)i * 2654435761u, (unsigned)i);
  snprintf(label, sizeof label, "%s width=%d seed=%d", points[point], 64 + i / 20, seed);
  snprintf(group, sizeof group, "g%d", i / 5);
  char base[96];
  snprintf(base, sizeof base, "%s width=%d", points[point], 64 + i / 20);
  row.id = id;
  row.label = label;
  row.group = group;
  row.point = base;
  row.metric_key = "eval_score";
  row.idx = i;
  row.epochs = 10;
  row.steps = 5000;
  row.tries_left = 2;
  row.created_s = SWEEP_NOW - 9000;
  int running = count < 60 ? 4 : 8, ended = count / 3;
  if (i < ended) {
    row.state = i % 9 == 4 ? BRIM_SWEEP_FAILED : BRIM_SWEEP_DONE;
    row.step = row.state == BRIM_SWEEP_DONE ? 5000 : 1234;
    row.epoch = row.state == BRIM_SWEEP_DONE ? 10 : 2;
    row.started_s = SWEEP_NOW - 8000 + i;
    row.ran_s = 300 + 7 * (i % 11);
    row.ended_s = row.started_s + row.ran_s;
    row.metric = 0.9 + 0.001 * (i % 13);
    row.best = row.metric + 0.002;
    row.attempt = 1;
    if (row.state == BRIM_SWEEP_FAILED) {
      row.failure = i % 2 ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_NAN;
      row.message = i % 2 ? "cannot allocate 2.1 GiB on GPU 0: 1.7 GiB are free"
                          : "the loss is not finite at step 1234; lower the learning rate";
      row.metric = row.best = NAN;
    }
  } else if (i < ended + running) {
    int r = i - ended;
    row.state = r == running - 1 ? BRIM_SWEEP_LEASED : BRIM_SWEEP_RUNNING;
    snprintf(devices, sizeof devices, "GPU %d", r / 2);
    row.devices = devices;
    row.started_s = row.since_s = SWEEP_NOW - 60 - 150 * r;
    row.step = r * 611;
    row.epoch = r;
    row.metric = r ? 0.8 + 0.013 * r : NAN;
    row.best = r ? 0.81 + 0.013 * r : NAN;
    row.eta_s = 1200 - 160 * r;
    row.steps_per_s = 7.5;
    row.attempt = 1 + (r == 2);
    if (r == 3) row.want = BRIM_SWEEP_WANT_PAUSE;
  } else {
    row.state = i % 17 == 3 ? BRIM_SWEEP_PAUSED : i % 29 == 7 ? BRIM_SWEEP_CANCELLED : row.state;
    if (row.state == BRIM_SWEEP_QUEUED) row.waiting = "GPU 3 is held by pid 71 (alice)";
    row.epoch = row.step = -1;
  }
  (void)brim_sweep_view_put(view, &row);
}

static inline void sweep_view_gpus(brim_sweep_view *view, int count) {
  view->gpu_count = (size_t)count;
  for (int i = 0; i < count; i++) {
    brim_sweep_gpu *gpu = &view->gpus[i];
    brim_sweep_gpu_init(gpu);
    snprintf(gpu->name, sizeof gpu->name, "GPU %d", i);
    snprintf(gpu->model, sizeof gpu->model, "NVIDIA H200");
    gpu->state = i % 4 == 3 ? BRIM_SWEEP_GPU_FOREIGN : BRIM_SWEEP_GPU_BUSY;
    gpu->running = gpu->state == BRIM_SWEEP_GPU_BUSY ? 2 : 0;
    gpu->memory_used = (12.1 + i) * (1 << 30);
    gpu->memory_total = 139.8 * (1 << 30);
    gpu->gpu_percent = 98 - 7 * i;
    gpu->power_w = 412 + i;
    gpu->temperature_c = 61;
    if (gpu->state == BRIM_SWEEP_GPU_BUSY) gpu->steps_per_s = 4210.4;
    if (i % 4 == 3) snprintf(gpu->why, sizeof gpu->why, "held by pid 71 (alice)");
    if (i == 5) {
      gpu->state = BRIM_SWEEP_GPU_OUT;
      snprintf(gpu->why, sizeof gpu->why, "three experiments failed in a row: crashed");
    }
  }
}

static inline void sweep_view_fill(brim_sweep_view *view, int count, int gpus) {
  brim_sweep_view_init(view);
  snprintf(view->title, sizeof view->title, "mnist-grid");
  snprintf(view->store, sizeof view->store, "runs/mnist-grid");
  view->pid = 4711;
  view->now_s = SWEEP_NOW;
  view->started_s = SWEEP_NOW - 8004;
  view->done_per_h = 52.1;
  view->steps_per_s = 12630;
  view->eta_s = 15000;
  view->metric_count = 1;
  view->metrics[0] = (brim_sweep_metric){.key = "eval_score",
                                         .label = "score",
                                         .better = BRIM_BETTER_HIGHER,
                                         .format = BRIM_METRIC_PERCENT};
  for (int i = 0; i < count; i++) sweep_view_row(view, i, count);
  sweep_view_gpus(view, gpus);
  brim_sweep_view_count(view);
  brim_sweep_view_say(view, BRIM_SWEEP_INFO, SWEEP_NOW - 60, NULL,
                      "lr=0.1 batch_size=64 width=65 seed=1 is done: score 90.70 %");
  brim_sweep_view_say(view, BRIM_SWEEP_ERROR, SWEEP_NOW - 20, NULL,
                      "lr=0.1 batch_size=128 width=65 seed=3 failed: the loss is not finite");
}

#endif  // BRIM_TESTS_UI_SWEEP_VIEW_H_
