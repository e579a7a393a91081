// Makes the lists of a profile from traces. Pure functions. Callers: measure.
#ifndef BRIM_PROFILE_ROWS_H_
#define BRIM_PROFILE_ROWS_H_

#include "profile/profile_trace.h"

// Lists of ops, layers and phases from a trace by the host's clock, on a device that is the host. Rows are means over
// the steps whose time is nearest to an untraced step (out->step_ms, or their median if that is unknown): a twentieth
// of all, three at least. They are scaled to the untraced step. Sets traced_ms (the median of all) and traced_steps.
brim_status brim_profile_host_rows(const brim_trace *trace, brim_profile *out);

// Finds the op, layer, phase and step of every kernel and memset of `window`. In `mapped` one step ran op by op, each
// until the device was done, so that a kernel belongs to the op during which it began. The same kernels in the same
// order belong to the same ops. Returns the share of the window's kernels that got an op.
double brim_trace_attribute(brim_trace *window, brim_trace *mapped);

// Lists of kernels, ops, layers and phases, gaps and transfers from a window of steps on a GPU. The first `lead`
// steps and the last are not counted, if steps can be told apart. Needs out->step_ms: tracing makes gaps longer, and
// they are shortened by the time that a traced step took more. Sets traced_ms and traced_steps.
brim_status brim_profile_device_rows(const brim_trace *window, const brim_trace *mapped, int lead,
                                     brim_profile *out);

// Lists of ops and layers from a GPU's events around each op (kind HOST_OP, device 0) in `steps` steps. `event_ns`:
// the time between two events without work. Ops are scaled down to their phase in out->result if they took longer one
// by one.
brim_status brim_profile_event_rows(const brim_trace *trace, double event_ns, brim_profile *out);

// Sets the ceiling of out->result that limits each row with FLOPs or bytes, and the share of it that was reached.
void brim_profile_ceilings(brim_profile *out, const char *precision);

#endif  // BRIM_PROFILE_ROWS_H_
