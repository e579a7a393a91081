// What the two users of oneDNN in the cpu plug-in share (the v2 C API): its status as ours, and an op
// as one primitive with its memory objects. The layout of the weights is left to oneDNN (AMX needs
// its own); where it differs from ours a reorder runs beside the op, in the workspace. Everything
// is created in prepare; a run only sets addresses.
#ifndef BRIM_BACKEND_CPU_ONEDNN_H_
#define BRIM_BACKEND_CPU_ONEDNN_H_

#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/cpu_int.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline brim_status brim_cpu_dnn_check(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return BRIM_OK;
  if (status == dnnl_out_of_memory) {
    return brim_cpu_fail(BRIM_ENOMEM, "cpu: oneDNN has no memory for %s", what);
  }
  return brim_cpu_fail(status == dnnl_unimplemented ? BRIM_EUNSUPPORTED : BRIM_EDEVICE,
                       "cpu: oneDNN refused %s (status %d)", what, (int)status);
}

#define BRIM_CPU_DNN_TRY(expr, what)                       \
  do {                                                     \
    brim_status try_ = brim_cpu_dnn_check((expr), (what)); \
    if (try_ != BRIM_OK) return try_;                      \
  } while (0)

// The op itself, its gradient by the data, its gradient by the weights.
typedef enum brim_cpu_dnn_kind {
  BRIM_CPU_DNN_FORWARD,
  BRIM_CPU_DNN_DATA,
  BRIM_CPU_DNN_WEIGHT,
} brim_cpu_dnn_kind;

// What an op touches, one memory object each: tensors (or their gradients) of the caller, then what
// lies in the workspace.
enum {
  BRIM_CPU_DNN_X,
  BRIM_CPU_DNN_W,
  BRIM_CPU_DNN_Y,
  BRIM_CPU_DNN_BIAS,
  BRIM_CPU_DNN_SCRATCH,
  BRIM_CPU_DNN_BLOCKED,  // the weights in oneDNN's layout
  BRIM_CPU_DNN_REORDER,  // the reorder's scratchpad
  BRIM_CPU_DNN_SLOTS
};

// How an op is named in messages: "a convolution", "to run a convolution", ...
typedef struct brim_cpu_dnn_words {
  const char *op, *kind, *description, *reorder, *run, *finish;
} brim_cpu_dnn_words;

typedef struct brim_cpu_dnn {
  brim_cpu_dnn_kind kind;
  int threads;
  bool planning;  // no code is generated: descriptions know the sizes
  const brim_cpu_dnn_words *words;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t op, reorder;              // reorder NULL: oneDNN takes our layout
  dnnl_memory_t memory[BRIM_CPU_DNN_SLOTS];  // NULL = not used
  size_t offset[BRIM_CPU_DNN_SLOTS];         // of those in the workspace
  bool in_workspace[BRIM_CPU_DNN_SLOTS];
  int64_t add;          // > 0: a gradient of so many floats is added to what is there
  size_t plain_offset;  // such a gradient in our layout, before it is added
  size_t workspace_bytes;
} brim_cpu_dnn;

// The tensors of a layer in our layout, and the weights in any. bias NULL = none.
typedef struct brim_cpu_dnn_layer {
  dnnl_memory_desc_t x, w, w_any, y;
  const dnnl_memory_desc_t *bias;
} brim_cpu_dnn_layer;

// kind, threads, planning, words and add are given; close in any case.
brim_status brim_cpu_dnn_open(brim_cpu_dnn *d);
void brim_cpu_dnn_close(brim_cpu_dnn *d);
// Attributes with a scratchpad of ours.
brim_status brim_cpu_dnn_attr(dnnl_primitive_attr_t *attr);
// A description: of `forward`, or of `backward` (not NULL), which belongs to it.
brim_status brim_cpu_dnn_describe(const brim_cpu_dnn *d, const_dnnl_op_desc_t forward,
                                  const_dnnl_op_desc_t backward, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *pd);
// The op of a description, memory objects for its tensors, and a reorder where its weights lie otherwise
// than ours.
brim_status brim_cpu_dnn_plan(brim_cpu_dnn *d, dnnl_primitive_desc_t pd,
                              const brim_cpu_dnn_layer *layer);
// Sets addresses, runs, waits and adds. a, b and c of the arguments are the op's inputs and output.
brim_status brim_cpu_dnn_run(const brim_cpu_dnn *d, const brim_cpu_gemm_args *args);

//---------------------------------- gradients of weights ----------------------------------

// Several threads sum oneDNN's gradient of weights in barriers that spin: beside other programs each costs
// a time slice. Here each rank computes its own slice of the output channels instead, alone, from a copy
// of its columns of dy.
typedef struct brim_cpu_dnn_slice {
  void *state;  // a plan for one thread
  int64_t begin, cols;
  size_t dy, workspace;  // offsets in the workspace
} brim_cpu_dnn_slice;

typedef struct brim_cpu_dnn_slices {
  int count;
  int64_t rows, cols;  // of dy
  size_t element;      // bytes of its elements
  int64_t weights;     // floats of dw per column of dy
  const struct brim_cpu_dnn_slicer *by;
  brim_cpu_dnn_slice at[];
} brim_cpu_dnn_slices;

typedef struct brim_cpu_dnn_slicer {
  brim_status (*prepare)(const void *whole, int64_t cols, void **state, size_t *bytes);
  brim_status (*run)(const void *state, const brim_cpu_gemm_args *args);
  void (*release)(void *state);
} brim_cpu_dnn_slicer;

// rows, cols, element, weights and by are taken from `shape`. *out stays NULL where there is nothing to
// slice, or no kernel for a slice.
brim_status brim_cpu_dnn_slices_prepare(const brim_cpu_dnn_slices *shape, int threads,
                                        const void *whole, brim_cpu_dnn_slices **out,
                                        size_t *workspace_bytes);
brim_status brim_cpu_dnn_slices_run(const brim_cpu_dnn_slices *s, const brim_cpu_gemm_args *args);
void brim_cpu_dnn_slices_release(brim_cpu_dnn_slices *s);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CPU_ONEDNN_H_
