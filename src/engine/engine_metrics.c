// What the device counts: sums of losses and correct rows, and the gradient norms that wait in a
// ring, so that nothing waits for the device in a step. Reading waits for it.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/engine_int.h"

//---------------------------------- norms ----------------------------------

// Bring the waiting rows of the ring home: the last one has the gradient norm, and every one with a
// non-finite value was a skipped step.
static brim_status drain_norms(brim_net *net) {
  union {
    float f32[BRIM_NORM_RING][4];
    double f64[BRIM_NORM_RING][4];
  } ring;
  int64_t count = net->ring_count;
  if (count == 0) return BRIM_OK;
  size_t row = 4 * brim_dtype_size(net->master);
  int64_t at = (net->exec.ring_first - 1) % BRIM_NORM_RING;
  int64_t head = count < BRIM_NORM_RING - at ? count : BRIM_NORM_RING - at;
  const unsigned char *from = brim_net_ring_ptr(net);
  unsigned char *to = (unsigned char *)&ring;
  BRIM_TRY(brim_device_copy(net->device, to, from + (size_t)at * row, (size_t)head * row,
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(net->device, to + (size_t)head * row, from,
                            (size_t)(count - head) * row, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  for (int64_t i = 0; i < count; i++) {
    bool wide = net->master == BRIM_F64;
    double squares = wide ? ring.f64[i][0] : (double)ring.f32[i][0];
    double bad = wide ? ring.f64[i][1] : (double)ring.f32[i][1];
    net->grad_norm = sqrt(squares);
    if (bad > 0) {
      net->skipped_steps++;
    } else {
      net->grad_norm_max = fmax(net->grad_norm_max, net->grad_norm);  // a NaN is left out
    }
  }
  net->ring_count = 0;
  return BRIM_OK;
}

// The device writes the row of the step's number: make sure that it does not hold a norm that
// the host has not read, and that the waiting rows stay one run of steps.
brim_status brim_net_reserve_norm(brim_net *net, int64_t step) {
  return brim_net_reserve_norms(net, step, 1);
}

brim_status brim_net_reserve_norms(brim_net *net, int64_t step, int64_t count) {
  if (step < 1) return brim_fail(BRIM_EINVAL, "invalid step %" PRId64, step);
  if (net->ring_count + count > BRIM_NORM_RING || step != net->exec.ring_first + net->ring_count) {
    BRIM_TRY(drain_norms(net));
  }
  if (net->ring_count == 0) net->exec.ring_first = step;
  return BRIM_OK;
}

//---------------------------------- metrics ----------------------------------

typedef union device_sums {
  float f32[BRIM_METRIC_COUNT];
  double f64[BRIM_METRIC_COUNT];
} device_sums;

static brim_status fetch_sums(brim_net *net, double out[BRIM_METRIC_COUNT], double *loss_scale) {
  device_sums now;
  double kept[BRIM_EXEC_KEPT];
  size_t bytes = BRIM_METRIC_COUNT * brim_dtype_size(net->master);
  BRIM_TRY(drain_norms(net));
  BRIM_TRY(brim_device_copy(net->device, &now, brim_net_metrics_ptr(net), bytes, BRIM_COPY_D2H));
  BRIM_TRY(brim_exec_get_kept(net, kept));  // waits for both
  *loss_scale = kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST];
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    out[i] = net->master == BRIM_F64 ? now.f64[i] : (double)now.f32[i];
  }
  return BRIM_OK;
}

// The device counts in f32; each read moves its sums into doubles here, so they stay exact.
brim_status brim_net_read_metrics(brim_net *net, bool reset, brim_net_metrics *out) {
  double now[BRIM_METRIC_COUNT], loss_scale = 1;
  BRIM_TRY(fetch_sums(net, now, &loss_scale));
  BRIM_TRY(brim_device_fill(net->device, brim_net_metrics_ptr(net), 0,
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master)));
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) net->sums[i] += now[i];
  *out = (brim_net_metrics){.loss_sum = net->sums[BRIM_METRIC_LOSS],
                            .correct = net->sums[BRIM_METRIC_CORRECT],
                            .rows = net->sums[BRIM_METRIC_ROWS],
                            .bad_rows = net->sums[BRIM_METRIC_BAD],
                            .grad_norm = net->grad_norm,
                            .grad_norm_max = net->grad_norm_max,
                            .loss_scale = loss_scale,
                            .skipped_steps = net->skipped_steps};
  if (!reset) return BRIM_OK;
  memset(net->sums, 0, sizeof net->sums);
  net->grad_norm_max = (double)NAN;
  return BRIM_OK;
}

brim_status brim_net_get_sums(brim_net *net, brim_net_sums *out) {
  double ignored;
  BRIM_TRY(fetch_sums(net, out->device, &ignored));
  memcpy(out->host, net->sums, sizeof out->host);
  out->grad_norm_max = net->grad_norm_max;
  out->skipped_steps = net->skipped_steps;
  return BRIM_OK;
}

brim_status brim_net_set_sums(brim_net *net, const brim_net_sums *sums) {
  device_sums now;
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    if (net->master == BRIM_F64) {
      now.f64[i] = sums->device[i];
    } else {
      now.f32[i] = (float)sums->device[i];
    }
  }
  BRIM_TRY(drain_norms(net));
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_ptr(net), &now,
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master), BRIM_COPY_H2D));
  BRIM_TRY(brim_device_sync(net->device));
  memcpy(net->sums, sums->host, sizeof net->sums);
  net->grad_norm_max = sums->grad_norm_max;
  net->skipped_steps = sums->skipped_steps;
  return BRIM_OK;
}
