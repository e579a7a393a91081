// How long a device takes for one piece of work, by its own events. Repeats of short work are recorded
// and launched together where the device can, so that launching is not what is measured. Callers:
// measure_machine.c, and the benchmark of a model's ops.
#include <math.h>

#include "backend/backend_half.h"
#include "measure/measure_int.h"

enum { MAX_SAMPLES = 50, MAX_INSIDE = 200 };
#define LAUNCH_HIDDEN_S 1e-3  // of work that takes longer the launch does not show

brim_status brim_device_timer_init(brim_device_timer *t, brim_device *device,
                                   const volatile sig_atomic_t *stop) {
  *t = (brim_device_timer){.device = device, .stop = stop};
  BRIM_TRY(brim_event_create(device, &t->start));
  return brim_event_create(device, &t->end);
}

void brim_device_timer_deinit(brim_device_timer *t) {
  brim_event_destroy(t->device, t->start);
  brim_event_destroy(t->device, t->end);
  t->start = t->end = NULL;
}

brim_status brim_device_work_enqueue(brim_device *device, const brim_device_work *work,
                                     int64_t times) {
  for (int64_t i = 0; i < times; i++) {
    BRIM_TRY(work->call
                 ? brim_op_run(device, work->call)
                 : brim_device_copy(device, work->dst, work->src, work->bytes, work->direction));
  }
  return BRIM_OK;
}

// Seconds of one launch of the recorded piece or, without one, of `inside` repeats.
static brim_status sample(const brim_device_timer *t, const brim_device_work *work,
                          brim_graph_exec *recorded, int64_t inside, double *seconds) {
  int64_t ns = 0;
  if (t->stop && *t->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  BRIM_TRY(brim_event_record(t->device, t->start));
  BRIM_TRY(recorded ? brim_graph_launch(t->device, recorded)
                    : brim_device_work_enqueue(t->device, work, inside));
  BRIM_TRY(brim_event_record(t->device, t->end));
  BRIM_TRY(brim_event_elapsed(t->device, t->start, t->end, &ns));
  *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
  return BRIM_OK;
}

// NULL where the device cannot record, or this work cannot be recorded.
static brim_graph_exec *record(brim_device *device, const brim_device_work *work, int64_t times) {
  brim_graph_exec *recorded = NULL;
  if (!brim_device_has_graphs(device)) return NULL;
  brim_status status = brim_capture_begin(device);
  if (!status) {
    status = brim_device_work_enqueue(device, work, times);
    brim_status ended = brim_capture_end(device, &recorded);
    if (!status) status = ended;
  }
  if (!status) return recorded;
  if (recorded) brim_graph_exec_destroy(device, recorded);
  brim_status_clear();  // then it is launched one by one
  return NULL;
}

static int64_t clamp(double value, int64_t low, int64_t high) {
  return value < (double)low ? low : value > (double)high ? high : (int64_t)value;
}

brim_status brim_device_timer_once(const brim_device_timer *t, const brim_device_work *work,
                                   double *seconds) {
  BRIM_TRY(sample(t, work, NULL, 1, seconds));  // loads what is loaded at the first run
  return sample(t, work, NULL, 1, seconds);
}

brim_status brim_device_timer_measure(brim_device_timer *t, const brim_device_work *work, double ms,
                                      int windows, double *seconds) {
  double once = 0, times[MAX_SAMPLES], best = (double)INFINITY, worst = 0;
  BRIM_TRY(brim_device_timer_once(t, work, &once));
  int64_t inside = clamp(ms * 1e-3 / 5 / once, 1, MAX_INSIDE);
  bool record_it = inside > 1 && once < LAUNCH_HIDDEN_S;
  brim_graph_exec *recorded = record_it ? record(t->device, work, inside) : NULL;
  brim_status status = BRIM_OK;
  double whole = once * (double)inside;
  if (recorded) status = sample(t, work, recorded, inside, &whole);
  int64_t samples = clamp(ms * 1e-3 / whole, 3, MAX_SAMPLES);
  for (int w = 0; !status && w < windows; w++) {
    double median = 0;
    for (int64_t i = 0; !status && i < samples; i++) {
      status = sample(t, work, recorded, inside, &times[i]);
      times[i] /= (double)inside;
    }
    if (!status) status = brim_stats_median(times, (size_t)samples, &median);
    if (status) break;
    best = fmin(best, median);
    worst = fmax(worst, median);
  }
  if (!status) t->spread = fmax(t->spread, worst / best - 1);
  // a device that runs on its own may still be at what was enqueued when this failed
  brim_status drained = brim_device_sync(t->device);
  if (!status) status = drained;
  if (recorded) brim_graph_exec_destroy(t->device, recorded);
  *seconds = best;
  return status;
}

//---------------------------------- values ----------------------------------

// A linear congruence is enough: values are neither zero nor alike.
static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

void brim_random_values(brim_dtype type, void *out, size_t count) {
  uint32_t state = 1;
  float *f32 = (float *)out;
  uint16_t *half = (uint16_t *)out;
  unsigned char *byte = (unsigned char *)out;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = next_random(&state);
    float value = (float)bits / 4194304.0f - 2.0f;  // [-2, 2)
    if (type == BRIM_F32) {
      f32[i] = value;
    } else if (type == BRIM_U8) {
      byte[i] = (unsigned char)bits;
    } else {
      half[i] = type == BRIM_BF16 ? brim_f32_to_bf16(value) : brim_f32_to_f16(value);
    }
  }
}
