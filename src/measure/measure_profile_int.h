// Inside the profile of a workload: what is written down while steps run. Callers: measure_profile*.c.
#ifndef BRIM_MEASURE_PROFILE_INT_H_
#define BRIM_MEASURE_PROFILE_INT_H_

#include "engine/engine.h"
#include "measure/measure_int.h"
#include "profile/profile_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_NOTES_DEPTH = 16, BRIM_NOTES_NETS = 16 };

// How ops are timed.
typedef enum brim_notes_mode {
  BRIM_NOTES_NONE,   // not at all: steps run as in training
  BRIM_NOTES_CLOCK,  // by the host's clock, each until the device is done
  BRIM_NOTES_EVENTS  // by events of the device, which continues
} brim_notes_mode;

typedef struct brim_notes_op {
  brim_event *start, *end;
  const char *name, *layer;
  brim_phase phase;
  double flops, bytes;
  int32_t step;
} brim_notes_op;

// Writes steps, phases and ops into a trace. The device's watch and the spans of the steps.
typedef struct brim_notes {
  brim_device *device;
  brim_trace *trace;
  brim_notes_mode mode;
  brim_time begin;  // of the trace
  int32_t step;
  brim_spans spans;
  brim_op_watch watch;
  struct {
    brim_phase phase;
    const char *name;
    int64_t start_ns;
  } open[BRIM_NOTES_DEPTH];
  int depth;
  int64_t op_start_ns, step_start_ns;
  bool short_of_memory;  // an event could not be added
  // Networks whose ops were seen.
  const brim_net *nets[BRIM_NOTES_NETS];
  size_t net_count;
  // Of BRIM_NOTES_EVENTS.
  brim_notes_op *ops;
  size_t op_count, op_made, op_capacity;
} brim_notes;

// The trace begins now. `exact`: spans wait for the device.
void brim_notes_begin(brim_notes *notes, brim_device *device, brim_trace *trace,
                      brim_notes_mode mode, bool exact);
// Of BRIM_NOTES_EVENTS: events for so many ops now, since making them takes the host's time.
brim_status brim_notes_reserve(brim_notes *notes, size_t ops);
// Steps of a workload, noted one by one; with `sync` each ends when the device is done.
brim_status brim_notes_step(brim_notes *notes, brim_work *work, bool sync, brim_step_info *info);
// The device is done: ops by events go into the trace. Nothing is watched any more. BRIM_ENOMEM where
// something could not be noted.
brim_status brim_notes_end(brim_notes *notes);
// What two events with nothing between them show, in ns.
brim_status brim_notes_event_ns(brim_device *device, double *ns);
// "actor/layers.0": a layer of one of several networks; its own name where the network has none. NULL:
// no layer.
const char *brim_notes_layer(const brim_net *net, const char *layer, char out[160]);
// Memory of the networks that were seen.
brim_status brim_profile_take_memory(const brim_notes *notes, brim_profile *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MEASURE_PROFILE_INT_H_
