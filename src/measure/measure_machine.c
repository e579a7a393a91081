// What a machine can do at best: matrix products in every precision its device has, copies in its
// memory and, with memory of its own, copies to it. Through the device's own ops, as a model would
// use them. A ceiling that cannot be measured stays unknown; it never fails a sweep.
#include <math.h>
#include <string.h>

#include "measure/measure_int.h"

#define MIB ((size_t)1 << 20)
enum { PATTERN_BYTES = 1 << 20, LEAST_COPY_BYTES = 1 << 16 };

typedef struct machine {
  brim_device *device;
  const brim_machine_sizes *sizes;
  size_t allowed;  // bytes that may be taken
  brim_device_timer timer;
  bool cut;  // something was smaller than wanted, or failed
} machine;

// Buffers of one size; the first two hold random values.
typedef struct buffers {
  void *data[3];
} buffers;

//---------------------------------- memory ----------------------------------

static bool is_short(brim_status status) { return status == BRIM_EOOM || status == BRIM_ENOMEM; }

// What is enqueued may still use them.
static void free_buffers(machine *m, buffers *x) {
  if (brim_device_sync(m->device)) brim_status_clear();  // the next use of the device reports it
  for (int i = 0; i < 3; i++) {
    brim_device_free(m->device, BRIM_BUFFER_DEVICE, x->data[i]);
    x->data[i] = NULL;
  }
}

// A pattern from the host, doubled on the device: most of it never crosses the bus.
static brim_status fill_random(machine *m, brim_dtype type, unsigned char *to, size_t bytes) {
  size_t done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
  void *pattern = brim_alloc(done);
  if (!pattern) return brim_fail(BRIM_ENOMEM, "out of memory for random values");
  brim_random_values(type, pattern, done / brim_dtype_size(type));
  brim_status status = brim_device_copy(m->device, to, pattern, done, BRIM_COPY_H2D);
  brim_status synced = brim_device_sync(m->device);
  brim_free(pattern);
  BRIM_TRY(status);
  BRIM_TRY(synced);
  while (done < bytes) {
    size_t n = bytes - done < done ? bytes - done : done;
    BRIM_TRY(brim_device_copy(m->device, to + done, to, n, BRIM_COPY_D2D));
    done += n;
  }
  return BRIM_OK;
}

static brim_status make_buffers(machine *m, brim_dtype type, size_t bytes, buffers *x) {
  memset(x, 0, sizeof *x);
  brim_status status = BRIM_OK;
  for (int i = 0; i < 3 && !status; i++) {
    status = brim_device_alloc(m->device, BRIM_BUFFER_DEVICE, bytes, &x->data[i]);
  }
  for (int i = 0; i < 2 && !status; i++) {
    status = fill_random(m, type, (unsigned char *)x->data[i], bytes);
  }
  if (status) free_buffers(m, x);
  return status;
}

//---------------------------------- one call ----------------------------------

// Two inputs and an output of one shape.
static brim_op_call call_of(brim_op op, brim_dtype type, int64_t rows, int64_t cols) {
  const int64_t dim[] = {rows, cols};
  brim_op_call call = {.op = op, .in_count = 2, .out_count = 1};
  call.in[0] = call.in[1] = call.out[0] = brim_tensor_make(NULL, type, 2, dim);
  // The library's first choice. To time all of its algorithms would take longer than everything else
  // here, and load a kernel for each.
  call.planning = true;
  return call;
}

// Once (windows 0), or the best median of so many windows.
static brim_status time_call(machine *m, brim_op_call *call, const buffers *x, int windows,
                             double *seconds) {
  brim_device *device = m->device;
  BRIM_TRY(brim_op_prepare(device, call));
  brim_status status = BRIM_OK;
  if (call->workspace_bytes) {
    status = brim_device_alloc(device, BRIM_BUFFER_DEVICE, call->workspace_bytes, &call->workspace);
  }
  call->in[0].data = x->data[0];
  call->in[1].data = x->data[1];
  call->out[0].data = x->data[2];
  const brim_device_work work = {.call = call};
  if (!status) {
    status =
        windows ? brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, windows, seconds)
                : brim_device_timer_once(&m->timer, &work, seconds);
  }
  brim_status synced = brim_device_sync(device);
  if (!status) status = synced;
  brim_device_free(device, BRIM_BUFFER_DEVICE, call->workspace);
  call->workspace = NULL;
  brim_op_release(device, call);
  return status;
}

//---------------------------------- matrix products ----------------------------------

typedef struct product {
  brim_dtype type;
  bool tf32;
  int64_t most;  // side
} product;

static brim_op_call product_call(const product *p, int64_t n) {
  brim_op_call call = call_of(BRIM_OP_LINEAR, p->type, n, n);
  call.attr.tf32 = p->tf32;
  return call;
}

static size_t matrix_bytes(const product *p, int64_t n) {
  return (size_t)(n * n) * brim_dtype_size(p->type);
}

// From small to large while it does not take too long, in buffers for the largest.
static brim_status climb(machine *m, const product *p, int64_t largest, const buffers *x,
                         double *flops) {
  const brim_machine_sizes *s = m->sizes;
  double seconds = 0;
  int64_t n = s->least < largest ? s->least : largest;
  for (;; n *= 2) {
    brim_op_call call = product_call(p, n);
    BRIM_TRY(time_call(m, &call, x, 0, &seconds));
    if (2 * n > largest || 8 * seconds > s->product_ms * 1e-3) break;
  }
  brim_op_call call = product_call(p, n);
  BRIM_TRY(time_call(m, &call, x, s->windows, &seconds));
  *flops = 2.0 * (double)n * (double)n * (double)n / seconds;
  return BRIM_OK;
}

static brim_status measure_product(machine *m, const product *p, double *flops) {
  brim_op_call call = product_call(p, p->most);
  BRIM_TRY(brim_device_supports(m->device, &call));
  int64_t n = p->most;
  while (n > m->sizes->least && 3 * matrix_bytes(p, n) > m->allowed) n /= 2;
  for (;; n /= 2) {
    buffers x;
    brim_status status = make_buffers(m, p->type, matrix_bytes(p, n), &x);
    if (!status) {
      status = climb(m, p, n, &x, flops);
      free_buffers(m, &x);
    }
    if (n < p->most) m->cut = true;
    if (!is_short(status) || n / 2 < m->sizes->least) return status;
  }
}

//---------------------------------- copies ----------------------------------

// An addition reads two and writes one; on CPUs it is what all threads do, a copy may be one's.
static brim_status measure_add(machine *m, const buffers *x, size_t bytes, double *best) {
  const int64_t cols = 1024, rows = (int64_t)(bytes / sizeof(float)) / cols;
  brim_op_call call = call_of(BRIM_OP_ADD, BRIM_F32, rows, cols);
  double seconds = 0, moved = 3 * (double)bytes;
  BRIM_TRY(time_call(m, &call, x, 0, &seconds));
  if (moved / seconds < 0.5 * *best) return BRIM_OK;  // plain loops: no ceiling, and slow
  BRIM_TRY(time_call(m, &call, x, m->sizes->windows, &seconds));
  *best = fmax(*best, moved / seconds);
  return BRIM_OK;
}

static brim_status copy_once(machine *m, size_t bytes, double *rate) {
  buffers x;
  double seconds = 0;
  BRIM_TRY(make_buffers(m, BRIM_F32, bytes, &x));
  const brim_device_work work = {
      .dst = x.data[2], .src = x.data[0], .bytes = bytes, .direction = BRIM_COPY_D2D};
  brim_status status = BRIM_OK;
  // the first time counts for nothing on a GPU: one that was idle raises its clocks meanwhile
  for (int gpu = m->device->info.kind == BRIM_DEVICE_GPU; gpu >= 0 && !status; gpu--) {
    m->timer.spread = 0;
    status = brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, m->sizes->windows,
                                       &seconds);
  }
  double best = 2 * (double)bytes / seconds;
  if (!status) {
    status = measure_add(m, &x, bytes, &best);
    if (status == BRIM_EUNSUPPORTED) {
      brim_status_clear();
      status = BRIM_OK;
    }
  }
  free_buffers(m, &x);
  if (!status) *rate = best;
  return status;
}

static brim_status measure_copy(machine *m, double *rate) {
  size_t bytes = m->sizes->copy_bytes;
  while (bytes > LEAST_COPY_BYTES && 3 * bytes > m->allowed) bytes /= 2;
  for (;; bytes /= 2) {
    brim_status status = copy_once(m, bytes, rate);
    if (bytes < m->sizes->copy_bytes) m->cut = true;
    if (!is_short(status) || bytes / 2 < LEAST_COPY_BYTES) return status;
  }
}

// From pinned memory, or from what the allocator gives.
static brim_status upload_once(machine *m, bool pinned, size_t bytes, double *rate) {
  void *from = NULL, *to = NULL;
  double seconds = 0;
  brim_status status = brim_device_alloc(m->device, BRIM_BUFFER_DEVICE, bytes, &to);
  if (!status && pinned) status = brim_device_alloc(m->device, BRIM_BUFFER_HOST, bytes, &from);
  if (!status && !pinned) {
    from = brim_alloc(bytes);
    if (!from) status = brim_fail(BRIM_ENOMEM, "out of memory for %zu bytes to copy", bytes);
  }
  if (!status) {
    memset(from, 0x5a, bytes);  // pages that were not written to are all the same one
    const brim_device_work work = {
        .dst = to, .src = from, .bytes = bytes, .direction = BRIM_COPY_H2D};
    status = brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, m->sizes->windows,
                                       &seconds);
    if (!status) *rate = (double)bytes / seconds;
  }
  if (pinned) {
    brim_device_free(m->device, BRIM_BUFFER_HOST, from);
  } else {
    brim_free(from);
  }
  brim_device_free(m->device, BRIM_BUFFER_DEVICE, to);
  return status;
}

static brim_status measure_upload(machine *m, bool pinned, double *rate) {
  size_t bytes = m->sizes->h2d_bytes;
  double spread = m->timer.spread;
  while (bytes > LEAST_COPY_BYTES && bytes > m->allowed) bytes /= 2;
  for (;; bytes /= 2) {
    brim_status status = upload_once(m, pinned, bytes, rate);
    if (!pinned) m->timer.spread = spread;  // by way of the host's caches: seldom steady
    if (bytes < m->sizes->h2d_bytes) m->cut = true;
    if (!is_short(status) || bytes / 2 < LEAST_COPY_BYTES) return status;
  }
}

//---------------------------------- launches ----------------------------------

enum { LAUNCHES = 256, LAUNCH_WINDOWS = 5, LAUNCH_SIDE = 16 };

// Small ops one behind another, none waited for but the last: the host's pace, not the device's.
static brim_status launch_window(machine *m, const brim_device_work *work, double *seconds) {
  BRIM_TRY(brim_device_sync(m->device));
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_device_work_enqueue(m->device, work, LAUNCHES));
  BRIM_TRY(brim_device_sync(m->device));
  *seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9 / LAUNCHES;
  return BRIM_OK;
}

static brim_status launch_all(machine *m, brim_op_call *call, const buffers *x, double *rate) {
  double best = (double)INFINITY, seconds = 0;
  call->in[0].data = x->data[0];
  call->in[1].data = x->data[1];
  call->out[0].data = x->data[2];
  const brim_device_work work = {.call = call};
  for (int w = 0; w < LAUNCH_WINDOWS; w++) {
    if (m->timer.stop && *m->timer.stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(launch_window(m, &work, &seconds));
    if (w > 0) best = fmin(best, seconds);  // the first loads what is loaded at the first run
  }
  *rate = 1 / fmax(best, 1e-9);
  return BRIM_OK;
}

static brim_status measure_launch(machine *m, double *rate) {
  brim_op_call call = call_of(BRIM_OP_ADD, BRIM_F32, LAUNCH_SIDE, LAUNCH_SIDE);
  buffers x;
  BRIM_TRY(brim_device_supports(m->device, &call));
  BRIM_TRY(make_buffers(m, BRIM_F32, LAUNCH_SIDE * LAUNCH_SIDE * sizeof(float), &x));
  brim_status status = brim_op_prepare(m->device, &call);
  if (!status) {
    status = call.workspace_bytes ? brim_fail(BRIM_EUNSUPPORTED, "an addition needs a workspace")
                                  : launch_all(m, &call, &x, rate);
    brim_status synced = brim_device_sync(m->device);
    if (!status) status = synced;
    brim_op_release(m->device, &call);
  }
  free_buffers(m, &x);
  return status;
}

//---------------------------------- all of it ----------------------------------

// A small machine is measured with less, so that what is free is enough most of the time.
static brim_machine_sizes for_memory(brim_machine_sizes s, uint64_t total_bytes) {
  const uint64_t part = total_bytes / 8;
  if (total_bytes == 0) return s;
  while (s.copy_bytes > 16 * MIB && 3 * s.copy_bytes > part) s.copy_bytes /= 2;
  while (s.most > s.least && 3 * sizeof(float) * (uint64_t)(s.most * s.most) > part) s.most /= 2;
  if (s.most_fp32 > s.most) s.most_fp32 = s.most;
  return s;
}

brim_machine_sizes brim_machine_sizes_of(const brim_device *device) {
  const brim_device_info *info = &device->info;
  if (info->kind == BRIM_DEVICE_GPU) {
    const brim_machine_sizes gpu = {.least = 2048,
                                    .most = 8192,
                                    .most_fp32 = 4096,
                                    .copy_bytes = 256 * MIB,
                                    .h2d_bytes = 64 * MIB,
                                    .product_ms = 10,
                                    .window_ms = 15,
                                    .windows = 3,
                                    .spread = 0.15};
    return for_memory(gpu, info->total_bytes);
  }
  brim_machine_sizes cpu = {.least = 256,
                            .most = 1024,
                            .most_fp32 = 1024,
                            .copy_bytes = 128 * MIB,
                            .h2d_bytes = 16 * MIB,
                            .product_ms = 40,
                            .window_ms = 30,
                            .windows = 3,
                            .spread = 0.15};
  // Plain loops are no ceiling: a short measurement will do.
  if (strcmp(device->backend->name, "ref") == 0) {
    return (brim_machine_sizes){.least = 64,
                                .most = 256,
                                .most_fp32 = 256,
                                .copy_bytes = 16 * MIB,
                                .h2d_bytes = MIB,
                                .product_ms = 5,
                                .window_ms = 5,
                                .windows = 2,
                                .spread = 0.15};
  }
  // beyond the last cache, which grows with the cores
  while (cpu.copy_bytes < 512 * MIB && cpu.copy_bytes < (size_t)info->threads * 16 * MIB) {
    cpu.copy_bytes *= 2;
  }
  return for_memory(cpu, info->total_bytes);
}

// A quarter of what is free: others may want some meanwhile.
static size_t allowed_bytes(brim_device *device, uint64_t limit) {
  uint64_t free_bytes = 0, total_bytes = 0, most = UINT64_MAX;
  if (brim_device_memory(device, &free_bytes, &total_bytes)) {
    brim_status_clear();
  } else if (total_bytes > 0) {
    most = free_bytes / 4;
  }
  if (limit > 0 && limit < most) most = limit;
  return most < SIZE_MAX ? (size_t)most : SIZE_MAX;
}

// One ceiling is done: what it failed with leaves it unknown, unless the user wants to stop.
static brim_status done(machine *m, const char *name, brim_status status) {
  if (!status || status == BRIM_EINTERRUPTED) return status;
  brim_log_debug("measure", "cannot measure %s: %s", name, brim_status_detail());
  brim_status_clear();
  if (status != BRIM_EUNSUPPORTED) m->cut = true;
  return BRIM_OK;
}

static brim_status measure_products(machine *m, brim_machine_ceilings *out) {
  const brim_machine_sizes *s = m->sizes;
  const struct {
    const char *name;
    product how;
    double *flops;
  } products[] = {
      {"gemm_fp32_flops", {BRIM_F32, false, s->most_fp32}, &out->gemm_fp32_flops},
      {"gemm_tf32_flops", {BRIM_F32, true, s->most}, &out->gemm_tf32_flops},
      {"gemm_fp16_flops", {BRIM_F16, false, s->most}, &out->gemm_fp16_flops},
      {"gemm_bf16_flops", {BRIM_BF16, false, s->most}, &out->gemm_bf16_flops},
  };
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    // elsewhere it would silently be fp32
    if (products[i].how.tf32 && m->device->info.kind != BRIM_DEVICE_GPU) continue;
    BRIM_TRY(done(m, products[i].name, measure_product(m, &products[i].how, products[i].flops)));
  }
  return BRIM_OK;
}

// Copies first, since products depend on clocks that may still rise.
static brim_status measure_all(machine *m, brim_machine_ceilings *out) {
  BRIM_TRY(done(m, "copy_bytes_per_s", measure_copy(m, &out->copy_bytes_per_s)));
  if (!m->device->info.host_memory) {
    BRIM_TRY(
        done(m, "h2d_pinned_bytes_per_s", measure_upload(m, true, &out->h2d_pinned_bytes_per_s)));
    BRIM_TRY(done(m, "h2d_pageable_bytes_per_s",
                  measure_upload(m, false, &out->h2d_pageable_bytes_per_s)));
  }
  BRIM_TRY(done(m, "launches_per_s", measure_launch(m, &out->launches_per_s)));
  return measure_products(m, out);
}

//---------------------------------- others ----------------------------------

// The kernel counts in hundredths of a second: what is shorter says nothing.
#define LEAST_SECONDS 0.2

static void read_host(const brim_machine_options *options, brim_host_sample *out) {
  brim_host_provider system = brim_host_provider_system("");
  if (brim_host_read_sample(options->host ? options->host : &system, out)) {
    brim_host_sample_clear(out);
    brim_status_clear();
  }
}

// The share of the device that other programs had while it was measured; NaN = it cannot be known.
static double others_share(brim_device *device, const brim_machine_options *options,
                           const brim_host_sample *before) {
  if (!device->info.host_memory) {
    if (!options->memory || !options->memory->uuid[0]) return (double)NAN;
    brim_result shared;
    brim_result_init(&shared);
    if (brim_sharing_measure(device, options->memory, &shared)) brim_status_clear();
    double percent = shared.shared_percent;
    brim_result_deinit(&shared);
    return percent / 100;
  }
  brim_host_sample after;
  read_host(options, &after);
  brim_host_usage usage = brim_host_usage_between(before, &after);
  return usage.seconds >= LEAST_SECONDS ? usage.others_cpu_percent / 100 : (double)NAN;
}

//---------------------------------- the machine ----------------------------------

brim_status brim_machine_measure(brim_device *device, const brim_machine_sizes *sizes,
                                 const brim_machine_options *options, brim_machine_ceilings *out,
                                 bool *cut) {
  machine m = {.device = device, .sizes = sizes};
  brim_host_sample before;
  read_host(options, &before);
  brim_machine_ceilings_init(out);
  m.allowed = allowed_bytes(device, options->memory_limit);
  brim_status status =
      done(&m, "any ceiling", brim_device_timer_init(&m.timer, device, options->stop));
  if (!status && m.timer.end) status = measure_all(&m, out);
  brim_device_timer_deinit(&m.timer);
  if (!status) out->load = others_share(device, options, &before);
  brim_host_forget_peak();  // what was taken here is not the job's
  *cut = m.cut || m.timer.spread > sizes->spread;
  return status;
}
