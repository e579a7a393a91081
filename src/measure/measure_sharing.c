// What other processes take of a GPU. The driver gives each process the whole GPU in turns of
// milliseconds: short products that run back to back take their own time within a turn, and one that
// meets the end of a turn takes as long as the others' turns as well. All of them beside the usual one
// is the share that was lost. MPS, which divides the GPU in space, does not show this way.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "measure/measure_int.h"

enum { SIDE = 1024, INTERVALS = 400, EACH = 4, WARM = 400 };
// Less is the clock's and the driver's; where no other process is visible, more of it is needed.
#define LEAST_LOST 0.03
#define LEAST_UNSEEN 0.10

typedef struct sharing {
  brim_device *device;
  void *data[3];
  brim_op_call call;
  brim_event *event[INTERVALS + 1];
} sharing;

static brim_status prepare(sharing *s) {
  const int64_t dim[] = {SIDE, SIDE};
  s->call = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1, .planning = true};
  for (int i = 0; i < 3; i++) {
    BRIM_TRY(brim_device_alloc(s->device, BRIM_BUFFER_DEVICE, (size_t)SIDE * SIDE * sizeof(float),
                               &s->data[i]));
    brim_tensor t = brim_tensor_make(s->data[i], BRIM_F32, 2, dim);
    *(i < 2 ? &s->call.in[i] : &s->call.out[0]) = t;
  }
  BRIM_TRY(brim_op_prepare(s->device, &s->call));
  if (s->call.workspace_bytes) {
    BRIM_TRY(brim_device_alloc(s->device, BRIM_BUFFER_DEVICE, s->call.workspace_bytes,
                               &s->call.workspace));
  }
  for (int i = 0; i <= INTERVALS; i++) BRIM_TRY(brim_event_create(s->device, &s->event[i]));
  return BRIM_OK;
}

static brim_status run(sharing *s, double ms[INTERVALS]) {
  const brim_device_work work = {.call = &s->call};
  BRIM_TRY(brim_device_work_enqueue(s->device, &work, WARM));  // until the clock has risen
  for (int i = 0; i <= INTERVALS; i++) {
    BRIM_TRY(brim_event_record(s->device, s->event[i]));
    if (i < INTERVALS) BRIM_TRY(brim_device_work_enqueue(s->device, &work, EACH));
  }
  BRIM_TRY(brim_device_sync(s->device));
  for (int i = 0; i < INTERVALS; i++) {
    int64_t ns = 0;
    BRIM_TRY(brim_event_elapsed(s->device, s->event[i], s->event[i + 1], &ns));
    ms[i] = (double)ns * 1e-6;
  }
  return BRIM_OK;
}

static void clean_up(sharing *s, bool prepared) {
  for (int i = 0; i <= INTERVALS; i++) {
    if (s->event[i]) brim_event_destroy(s->device, s->event[i]);
  }
  brim_device_free(s->device, BRIM_BUFFER_DEVICE, s->call.workspace);
  for (int i = 0; i < 3; i++) brim_device_free(s->device, BRIM_BUFFER_DEVICE, s->data[i]);
  if (prepared) brim_op_release(s->device, &s->call);
}

double brim_sharing_lost(const double *ms, size_t count) {
  double usual = 0, sum = 0;
  if (brim_stats_median(ms, count, &usual)) return (double)NAN;
  for (size_t i = 0; i < count; i++) sum += ms[i];
  return sum > 0 ? fmax(0, 1 - usual * (double)count / sum) : (double)NAN;
}

// The two with the most memory.
static size_t name_others(const brim_memory_watch *watch, char *out, size_t size) {
  brim_gpu_process *list = NULL;
  size_t count = 0, found = 0;
  out[0] = '\0';
  if (!watch || !watch->monitor ||
      brim_gpu_read_processes(watch->monitor, watch->uuid, &list, &count)) {
    brim_status_clear();
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].self || !list[i].computes) continue;
    if (found++ >= 2) continue;
    char text[96];
    if (found > 1) brim_words_add(out, size, ", ");
    if (list[i].elsewhere) {
      brim_words_add(out, size, BRIM_N_("another container's process (pid %u)"), list[i].pid);
    } else {
      brim_gpu_process_text(&list[i], text, sizeof text);
      brim_words_add(out, size, "%s", text);
    }
  }
  brim_free(list);
  return found;
}

brim_status brim_sharing_measure(brim_device *device, const brim_memory_watch *watch,
                                 brim_result *out) {
  double ms[INTERVALS];
  sharing s = {.device = device};
  if (device->info.host_memory) return BRIM_OK;
  size_t others = name_others(watch, out->shared_with, sizeof out->shared_with);
  brim_status status = prepare(&s);
  bool prepared = !status;
  if (!status) status = run(&s, ms);
  brim_status drained = brim_device_sync(device);
  clean_up(&s, prepared);
  if (drained) return drained;
  if (status) {  // no memory for it, no such op: then it is not known
    brim_log_debug("measure", "cannot measure the share of other processes: %s",
                   brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  double lost = brim_sharing_lost(ms, INTERVALS);
  out->shared_percent = lost >= (others ? LEAST_LOST : LEAST_UNSEEN) ? 100 * lost : 0;
  return BRIM_OK;
}
