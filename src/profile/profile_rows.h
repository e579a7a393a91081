// From traces to the lists of a profile. Pure functions: what was recorded goes in, rows come out.
// Callers: measure.
#ifndef BRIM_PROFILE_ROWS_H_
#define BRIM_PROFILE_ROWS_H_

#include "profile/profile_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

// Lists of ops, layers and phases from steps, phases and ops by the host's clock, of a device that is
// the host. Rows are means of the twentieth of the steps (three at least) that took most nearly as long as an untraced one
// (out->step_ms, or as their median where that is unknown), scaled to it. Sets traced_ms (the median of all) and
// traced_steps.
brim_status brim_profile_host_rows(const brim_trace *trace, brim_profile *out);

// What every kernel and memset of `window` belongs to (op, layer, phase, step). `mapped` is one step
// whose ops ran one by one, each until the device was done: a kernel belongs to the op and the phase
// in whose time it began. The same kernels in the same order belong to the same ops. Returns the share
// of the window's kernels that were found; the others have no op.
double brim_trace_attribute(brim_trace *window, brim_trace *mapped);

// Lists of kernels, ops, layers and phases, gaps and transfers from a window of steps on a GPU, whose
// first `lead` steps and last step are not counted where steps could be told apart. out->step_ms has
// to be set: what a traced step took more than it is taken out of the gaps, which tracing makes
// longer. Sets traced_ms and traced_steps.
brim_status brim_profile_device_rows(const brim_trace *window, const brim_trace *mapped, int lead,
                                     brim_profile *out);

// Lists of ops and layers from a GPU's events around each op, all of kind HOST_OP with device 0, in
// `steps` steps; `event_ns` is what two events without work between them show. The phases are those of
// out->result, the ops of each phase are scaled down to it where they took longer one by one.
brim_status brim_profile_event_rows(const brim_trace *trace, double event_ns, brim_profile *out);

// Of rows with FLOPs or bytes: the ceiling of out->result that limits them, and how close they came.
void brim_profile_ceilings(brim_profile *out, const char *precision);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_ROWS_H_
