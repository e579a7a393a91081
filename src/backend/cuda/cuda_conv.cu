// Convolutions, NHWC. One engine of cuDNN computes a convolution: the remembered one, the fastest of those
// measured, or the first that cuDNN's heuristics propose. brim's own kernels compute it if cuDNN has no
// engine or is missing. cuDNN 9 is found at run time and used through its graph API. Attribute names, types
// and element counts are those of cudnn_graph.h; headers of any 9.x will do, as the numbers are part of its
// ABI.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_int.cuh"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#endif

// A convolution, and which of its three products is asked for.
struct conv_shape {
  brim_op op;                         // CONV, CONV_BWD_DATA, CONV_BWD_WEIGHT
  brim_dtype type;                    // T
  int64_t n, h, w, c, m, r, s, p, q;  // x(N,H,W,C) w(M,R,S,C) y(N,P,Q,M)
  int64_t stride, pad;
  bool tf32;        // T = f32: products may round to tf32
  bool accumulate;  // CONV_BWD_WEIGHT: adds to dw
};

// An operation graph of cuDNN for one product. Undefined in a build without cuDNN's headers.
struct dnn_problem;

// One engine with its settings, ready to run.
struct dnn_plan {
  void *config, *plan, *pack;  // cudnnBackendDescriptor_t
  void *pointer[4];            // the three tensors and the workspace that `pack` refers to
  size_t workspace;            // bytes
  // Engine and knobs: "12 2:7 13:1"; "" = too long to be named.
  char text[BRIM_CUDA_ALGO_CHARS - 16];
};

//---------------------------------- cuDNN ----------------------------------

const char *const brim_cuda_dnn_names[] = {"libcudnn.so.9",
                                           "/usr/local/cuda/lib64/libcudnn.so.9",
                                           "/usr/lib/x86_64-linux-gnu/libcudnn.so.9",
                                           "/usr/lib/aarch64-linux-gnu/libcudnn.so.9",
                                           "libcudnn_graph.so.9",
                                           "/usr/local/cuda/lib64/libcudnn_graph.so.9",
                                           NULL};

#if __has_include(<cudnn_graph.h>)

typedef cudnnBackendDescriptor_t dnn_desc;

struct brim_cuda_dnn {
  void *library;  // NULL: not found
  cudnnHandle_t handle;
  cudaStream_t stream;  // the stream that the handle works on
  bool stream_set;
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnCreate) create_handle;
  decltype(&cudnnDestroy) destroy_handle;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create;
  decltype(&cudnnBackendDestroyDescriptor) destroy;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

struct dnn_problem {
  const conv_shape *conv;
  dnn_desc tensor[3], convolution, operation, graph;
  bool strict;  // f32 without tf32: no tensor cores
};

enum { MAX_CONFIGS = 64, MAX_KNOBS = 64 };

//---------------------------------- the library ----------------------------------

static bool load(brim_cuda_dnn *n) {
  for (int i = 0; brim_cuda_dnn_names[i] && !n->library; i++) {
    n->library = dlopen(brim_cuda_dnn_names[i], RTLD_NOW);
  }
  if (!n->library) return false;
  const struct {
    const char *name;
    void **address;
  } symbols[] = {
      {"cudnnGetVersion", (void **)&n->version},
      {"cudnnGetErrorString", (void **)&n->error_string},
      {"cudnnCreate", (void **)&n->create_handle},
      {"cudnnDestroy", (void **)&n->destroy_handle},
      {"cudnnSetStream", (void **)&n->set_stream},
      {"cudnnBackendCreateDescriptor", (void **)&n->create},
      {"cudnnBackendDestroyDescriptor", (void **)&n->destroy},
      {"cudnnBackendSetAttribute", (void **)&n->set},
      {"cudnnBackendGetAttribute", (void **)&n->get},
      {"cudnnBackendFinalize", (void **)&n->finalize},
      {"cudnnBackendExecute", (void **)&n->execute},
  };
  for (const auto &s : symbols) {
    *s.address = dlsym(n->library, s.name);
    if (!*s.address) return false;
  }
  return n->version() / 10000 == CUDNN_MAJOR;
}

// True if cuDNN can be used. The first call looks for it, and logs if it is missing.
static bool dnn_ready(brim_cuda *d) {
  if (d->dnn) return d->dnn->handle != NULL;
  brim_cuda_dnn *n = (brim_cuda_dnn *)brim_cuda_host->alloc(sizeof *n, 0);
  if (!n) return false;
  memset(n, 0, sizeof *n);
  d->dnn = n;
  if (!load(n)) {
    brim_cuda_host->log(1, "cuda",
                        "cuDNN 9 not found; convolutions run on slow kernels of brim's own. "
                        "Install cuDNN 9 (libcudnn.so.9) or add its folder to LD_LIBRARY_PATH");
    return false;
  }
  cudnnStatus_t error = n->create_handle(&n->handle);
  if (error) {
    char text[256];
    snprintf(text, sizeof text, "cudnnCreate: %s; convolutions run on slow kernels of brim's own",
             n->error_string(error));
    brim_cuda_host->log(1, "cuda", text);
    n->handle = NULL;
    cudaGetLastError();
  }
  return n->handle != NULL;
}

void brim_cuda_dnn_close(brim_cuda *d) {
  if (!d->dnn) return;
  if (d->dnn->handle) d->dnn->destroy_handle(d->dnn->handle);
  brim_cuda_host->free(d->dnn);
  d->dnn = NULL;
}

static brim_status dnn_fail(const brim_cuda_dnn *n, cudnnStatus_t error, const char *what) {
  int kind = (int)error / 1000;
  // Check the runtime in any case: cuDNN may have left an error there.
  brim_status failed =
      brim_cuda_library_failed(error == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  brim_status status = error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? BRIM_ENOMEM
                       : kind == 2 || kind == 3 ? BRIM_EUNSUPPORTED
                                                : failed;
  return brim_cuda_fail(status, "cuDNN, %s: %s", what, n->error_string(error));
}

//---------------------------------- descriptors ----------------------------------

static void drop(const brim_cuda_dnn *n, void **desc) {
  if (*desc) n->destroy(*desc);
  *desc = NULL;
}

static cudnnStatus_t set_desc(const brim_cuda_dnn *n, dnn_desc desc,
                              cudnnBackendAttributeName_t name, const dnn_desc *value) {
  return n->set(desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, value);
}

static cudnnDataType_t data_type(brim_dtype type) {
  return type == BRIM_BF16  ? CUDNN_DATA_BFLOAT16
         : type == BRIM_F16 ? CUDNN_DATA_HALF
                            : CUDNN_DATA_FLOAT;
}

// Describes a tensor that is (A, H, W, C) in memory; cuDNN takes sizes and strides in the order A, C, H, W.
static cudnnStatus_t make_tensor(const brim_cuda_dnn *n, brim_dtype type, int64_t id,
                                 const int64_t dim[4], dnn_desc *out) {
  cudnnDataType_t kind = data_type(type);
  int64_t a = dim[0], h = dim[1], w = dim[2], c = dim[3], align = 16;
  int64_t sizes[4] = {a, c, h, w};
  int64_t strides[4] = {h * w * c, 1, w * c, c};
  cudnnStatus_t e = n->create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, out);
  if (!e) e = n->set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kind);
  if (!e) e = n->set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
  if (!e) e = n->set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  if (!e) e = n->set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  if (!e) e = n->set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
  if (!e) e = n->finalize(*out);
  return e;
}

static cudnnStatus_t make_convolution(const brim_cuda_dnn *n, const conv_shape *c, dnn_desc *out) {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  int64_t spatial = 2, dilation[2] = {1, 1}, stride[2] = {c->stride, c->stride};
  int64_t pad[2] = {c->pad, c->pad};
  cudnnStatus_t e = n->create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out);
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  if (!e) {
    e = n->set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  }
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
  if (!e) e = n->set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
  if (!e) e = n->finalize(*out);
  return e;
}

// Attributes of an operation; tensors in the order x, w, y.
struct operation_names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, tensor[3];
};

static operation_names names_of(brim_op op) {
  switch (op) {
    case BRIM_OP_CONV:
      return {
          CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}};
    case BRIM_OP_CONV_BWD_DATA:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  }
}

static cudnnStatus_t make_graph(const brim_cuda_dnn *n, dnn_problem *p, bool add) {
  operation_names name = names_of(p->conv->op);
  float alpha = 1.0f, beta = add ? 1.0f : 0.0f;
  cudnnStatus_t e = n->create(name.type, &p->operation);
  if (!e) e = set_desc(n, p->operation, name.convolution, &p->convolution);
  for (int i = 0; i < 3 && !e; i++) e = set_desc(n, p->operation, name.tensor[i], &p->tensor[i]);
  if (!e) e = n->set(p->operation, name.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  if (!e) e = n->set(p->operation, name.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  if (!e) e = n->finalize(p->operation);
  if (!e) e = n->create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &p->graph);
  if (!e) {
    e = n->set(p->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &n->handle);
  }
  if (!e) e = set_desc(n, p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &p->operation);
  if (!e) e = n->finalize(p->graph);
  return e;
}

static void dnn_problem_close(brim_cuda *d, dnn_problem *p) {
  if (!p) return;
  drop(d->dnn, &p->graph);
  drop(d->dnn, &p->operation);
  drop(d->dnn, &p->convolution);
  for (auto &t : p->tensor) drop(d->dnn, &t);
  brim_cuda_host->free(p);
}

// `out_type` is the type of the written tensor; with `add` the result is added to it. BRIM_EUNSUPPORTED
// when cuDNN refuses.
static brim_status dnn_problem_open(brim_cuda *d, const conv_shape *c, brim_dtype out_type,
                                    bool add, dnn_problem **out) {
  const brim_cuda_dnn *n = d->dnn;
  dnn_problem *p = (dnn_problem *)brim_cuda_host->alloc(sizeof *p, 0);
  if (!p) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a convolution");
  memset(p, 0, sizeof *p);
  p->conv = c;
  p->strict = c->type == BRIM_F32 && !c->tf32;
  const int64_t dims[3][4] = {
      {c->n, c->h, c->w, c->c}, {c->m, c->r, c->s, c->c}, {c->n, c->p, c->q, c->m}};
  int written = c->op == BRIM_OP_CONV ? 2 : c->op == BRIM_OP_CONV_BWD_DATA ? 0 : 1;
  cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
  for (int i = 0; i < 3 && !e; i++) {
    e = make_tensor(n, i == written ? out_type : c->type, i + 1, dims[i], &p->tensor[i]);
  }
  if (!e) e = make_convolution(n, c, &p->convolution);
  if (!e) e = make_graph(n, p, add);
  if (e) {
    dnn_problem_close(d, p);
    return dnn_fail(n, e, "describing a convolution");
  }
  *out = p;
  return BRIM_OK;
}

//---------------------------------- plans ----------------------------------

static void dnn_plan_close(brim_cuda *d, dnn_plan *plan) {
  drop(d->dnn, &plan->pack);
  drop(d->dnn, &plan->plan);
  drop(d->dnn, &plan->config);
  memset(plan, 0, sizeof *plan);
}

// Makes an executable plan from plan->config, which must be finalized.
static cudnnStatus_t finish(const brim_cuda_dnn *n, dnn_plan *plan) {
  int64_t bytes = 0, got = 0;
  cudnnStatus_t e = n->create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
  if (!e) {
    e = n->set(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &n->handle);
  }
  if (!e) e = set_desc(n, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &plan->config);
  if (!e) e = n->finalize(plan->plan);
  if (!e) {
    e = n->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
               &bytes);
  }
  plan->workspace = bytes > 0 ? (size_t)bytes : 0;
  return e;
}

// Appends " type:value" for every knob to text.
static cudnnStatus_t append_knobs(const brim_cuda_dnn *n, dnn_desc config, char *text,
                                  size_t size) {
  dnn_desc knobs[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
  int64_t count = 0;
  cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
  for (auto &k : knobs) {
    if (!e) e = n->create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &k);
  }
  if (!e) {
    e = n->get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               CUDNN_KNOB_TYPE_COUNTS, &count, knobs);
  }
  size_t used = strlen(text);
  for (int64_t i = 0; i < count && i < CUDNN_KNOB_TYPE_COUNTS && !e; i++) {
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t value = 0, got = 0;
    e = n->get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type);
    if (!e) {
      e = n->get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value);
    }
    if (e) break;
    int length = snprintf(text + used, size - used, " %d:%lld", (int)type, (long long)value);
    if (length < 0 || used + (size_t)length >= size) {
      text[0] = 0;  // the plan can be run but has no name
      break;
    }
    used += (size_t)length;
  }
  for (auto &k : knobs) drop(n, &k);
  return e;
}

static bool allowed(const brim_cuda *d, const dnn_problem *p,
                    const cudnnBackendNumericalNote_t *notes, int64_t count) {
  bool f32 = p->conv->type == BRIM_F32;
  for (int64_t i = 0; i < count; i++) {
    switch (notes[i]) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (!d->nondeterministic) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (p->strict) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        if (f32) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return false;
      // Fast transforms lose digits: with them a ResNet-50 in f32 was 1.2e-4 away from double.
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        if (p->strict) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

// True if the engine behind a configuration may be used. Also makes its text.
static bool inspect(const brim_cuda *d, const dnn_problem *p, dnn_plan *plan) {
  const brim_cuda_dnn *n = d->dnn;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t got = 0, count = 0, index = -1;
  dnn_desc engine = NULL;
  cudnnStatus_t e = n->create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
  if (!e) {
    e = n->get(plan->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
               &engine);
  }
  if (!e) e = n->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &index);
  if (!e) {
    e = n->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
  }
  if (count > CUDNN_NUMERICAL_NOTE_TYPE_COUNT) count = CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
  bool good = !e && allowed(d, p, notes, count);
  if (good) {
    snprintf(plan->text, sizeof plan->text, "%lld", (long long)index);
    good = !append_knobs(n, plan->config, plan->text, sizeof plan->text);
  }
  drop(n, &engine);
  return good;
}

// Lists the configurations that one mode of the heuristics proposes, best first. The caller owns the
// descriptors.
static int64_t propose(const brim_cuda_dnn *n, const dnn_problem *p, cudnnBackendHeurMode_t mode,
                       dnn_desc configs[MAX_CONFIGS]) {
  dnn_desc heuristic = NULL;
  int64_t count = 0, got = 0;
  cudnnStatus_t e = n->create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
  if (!e) e = set_desc(n, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &p->graph);
  if (!e) e = n->set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!e) e = n->finalize(heuristic);
  if (!e) {
    e = n->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
               NULL);
  }
  if (count > MAX_CONFIGS) count = MAX_CONFIGS;
  for (int64_t i = 0; i < count && !e; i++) {
    e = n->create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
  }
  if (!e && count) {
    e = n->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got,
               configs);
  }
  drop(n, &heuristic);
  return e ? 0 : got < count ? got : count;
}

static bool plan_known(const dnn_plan *plans, int count, const char *text) {
  for (int i = 0; i < count; i++) {
    if (text[0] && strcmp(plans[i].text, text) == 0) return true;
  }
  return false;
}

// Makes up to `max` plans in the order of cuDNN's heuristics. They are allowed (numerics, determinism) and
// need at most `budget` bytes. Returns their number.
static int dnn_plans(brim_cuda *d, dnn_problem *p, size_t budget, dnn_plan *plans, int max) {
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                 CUDNN_HEUR_MODE_FALLBACK};
  const brim_cuda_dnn *n = d->dnn;
  int found = 0;
  for (auto mode : modes) {
    if (found == max) break;
    dnn_desc configs[MAX_CONFIGS] = {NULL};
    int64_t count = propose(n, p, mode, configs);
    for (int64_t i = 0; i < count && found < max; i++) {
      dnn_plan plan;
      memset(&plan, 0, sizeof plan);
      plan.config = configs[i];
      configs[i] = NULL;
      bool good = inspect(d, p, &plan) && !plan_known(plans, found, plan.text) &&
                  !finish(n, &plan) && plan.workspace <= budget;
      if (good) {
        plans[found++] = plan;
      } else {
        dnn_plan_close(d, &plan);
      }
    }
    for (auto &c : configs) drop(n, &c);
  }
  cudaGetLastError();  // clears the error of a plan that could not be made
  return found;
}

// Reads "12 2:7 13:1" into the engine and its knobs.
static cudnnStatus_t make_config(const brim_cuda_dnn *n, const dnn_problem *p, const char *text,
                                 dnn_desc *engine, dnn_desc knobs[MAX_KNOBS], dnn_desc *config) {
  char *rest = NULL;
  int64_t index = strtoll(text, &rest, 10), count = 0;
  if (rest == text || index < 0) return CUDNN_STATUS_BAD_PARAM;
  cudnnStatus_t e = n->create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine);
  if (!e) e = set_desc(n, *engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &p->graph);
  if (!e) e = n->set(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  if (!e) e = n->finalize(*engine);
  while (!e && *rest) {
    int type = 0, length = 0;
    long long read = 0;
    if (count == MAX_KNOBS || sscanf(rest, " %d:%lld%n", &type, &read, &length) != 2) {
      return CUDNN_STATUS_BAD_PARAM;
    }
    rest += length;
    cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)type;
    int64_t value = read;
    dnn_desc *k = &knobs[count++];
    e = n->create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, k);
    if (!e) e = n->set(*k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
    if (!e) e = n->set(*k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    if (!e) e = n->finalize(*k);
  }
  if (!e) e = n->create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config);
  if (!e) e = set_desc(n, *config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!e && count) {
    e = n->set(*config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
               knobs);
  }
  if (!e) e = n->finalize(*config);
  return e;
}

// Makes the plan of a text that came from dnn_plan.text. BRIM_EUNSUPPORTED if cuDNN no longer has it.
static brim_status dnn_plan_named(brim_cuda *d, dnn_problem *p, const char *text, size_t budget,
                                  dnn_plan *plan) {
  const brim_cuda_dnn *n = d->dnn;
  dnn_desc engine = NULL, knobs[MAX_KNOBS] = {NULL};
  memset(plan, 0, sizeof *plan);
  cudnnStatus_t e = make_config(n, p, text, &engine, knobs, &plan->config);
  // A text from a cache file or a checkpoint must obey the same rules as cuDNN's own proposals.
  if (!e && !inspect(d, p, plan)) e = CUDNN_STATUS_NOT_SUPPORTED;
  if (!e) e = finish(n, plan);
  if (!e && plan->workspace > budget) e = CUDNN_STATUS_NOT_SUPPORTED;
  for (auto &k : knobs) drop(n, &k);
  drop(n, &engine);
  if (!e) return BRIM_OK;
  dnn_plan_close(d, plan);
  return dnn_fail(n, e, "making the plan of a remembered algorithm");
}

//---------------------------------- running ----------------------------------

static cudnnStatus_t pack(const brim_cuda_dnn *n, dnn_plan *plan, void *const tensors[3],
                          void *workspace) {
  if (plan->pack && memcmp(plan->pointer, tensors, 3 * sizeof *tensors) == 0 &&
      plan->pointer[3] == workspace) {
    return CUDNN_STATUS_SUCCESS;
  }
  static const int64_t ids[3] = {1, 2, 3};
  drop(n, &plan->pack);
  memcpy(plan->pointer, tensors, 3 * sizeof *tensors);
  plan->pointer[3] = workspace;
  cudnnStatus_t e = n->create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &plan->pack);
  if (!e) e = n->set(plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
  if (!e) {
    e = n->set(plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3,
               plan->pointer);
  }
  if (!e) {
    e = n->set(plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
               &plan->pointer[3]);
  }
  if (!e) e = n->finalize(plan->pack);
  if (e) drop(n, &plan->pack);
  return e;
}

// Runs a plan. The tensors are in the order x, w, y (or their gradients). Does not allocate device memory
// and does not wait.
static brim_status dnn_run(brim_cuda *d, dnn_plan *plan, void *const tensors[3], void *workspace,
                           cudaStream_t stream) {
  brim_cuda_dnn *n = d->dnn;
  cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
  if (!n->stream_set || n->stream != stream) e = n->set_stream(n->handle, stream);
  n->stream = stream;
  n->stream_set = !e;
  if (!e) e = pack(n, plan, tensors, workspace);
  if (!e) e = n->execute(n->handle, plan->plan, plan->pack);
  return e ? dnn_fail(n, e, "running a convolution") : BRIM_OK;
}

#else  // no headers at build time

static bool dnn_ready(brim_cuda *d) {
  if (d->dnn_reported) return false;
  d->dnn_reported = true;
  brim_cuda_host->log(
      1, "cuda",
      "built without cuDNN; convolutions run on slow kernels of brim's own. Install "
      "cuDNN 9 with its headers and build brim again");
  return false;
}
void brim_cuda_dnn_close(brim_cuda *) {}
static brim_status dnn_problem_open(brim_cuda *, const conv_shape *, brim_dtype, bool,
                                    dnn_problem **) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
static void dnn_problem_close(brim_cuda *, dnn_problem *) {}
static int dnn_plans(brim_cuda *, dnn_problem *, size_t, dnn_plan *, int) { return 0; }
static brim_status dnn_plan_named(brim_cuda *, dnn_problem *, const char *, size_t, dnn_plan *) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
static void dnn_plan_close(brim_cuda *, dnn_plan *) {}
static brim_status dnn_run(brim_cuda *, dnn_plan *, void *const *, void *, cudaStream_t) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
#endif

//---------------------------------- brim's own kernels ----------------------------------

// A tiled matrix product whose operands are gathered from the images. It computes every shape and type,
// is deterministic, and far slower than cuDNN. FLOPs: 2 N P Q M R S C for each product.

// D (rows, cols) = A (rows, depth) B (depth, cols), all indices flattened:
//   CONV             rows (N,P,Q)  cols M        depth (R,S,C)   A = x,  B = w
//   CONV_BWD_DATA    rows (N,H,W)  cols C        depth (R,S,M)   A = dy, B = w
//   CONV_BWD_WEIGHT  rows M        cols (R,S,C)  depth (N,P,Q)   A = dy, B = x
enum { TILE = 64, DEPTH = 16, THREADS = 256, THREAD_SIDE = 4 };
enum { FORWARD, DATA, WEIGHT };

struct geometry {
  int h, w, c, m, r, s, p, q, stride, pad;
  int64_t rows, cols, depth;
  int64_t chunk;  // length of the depth that one block of blockIdx.z computes
};

// The value of x in the window of an output pixel; 0 outside the image.
template <typename T>
__device__ static float image(const geometry &g, const T *x, int64_t pixel, int64_t k) {
  int c = (int)(k % g.c), rs = (int)(k / g.c), s = rs % g.s, r = rs / g.s;
  int q = (int)(pixel % g.q);
  int64_t rest = pixel / g.q;
  int p = (int)(rest % g.p);
  int64_t n = rest / g.p;
  int h = p * g.stride - g.pad + r, w = q * g.stride - g.pad + s;
  if (h < 0 || h >= g.h || w < 0 || w >= g.w) return 0.0f;
  return brim_load(x, ((n * g.h + h) * g.w + w) * g.c + c);
}

// dy of the output pixel whose window has this input pixel at (r, s); 0 if there is none.
template <typename T>
__device__ static float gradient(const geometry &g, const T *dy, int64_t pixel, int64_t k) {
  int m = (int)(k % g.m), rs = (int)(k / g.m), s = rs % g.s, r = rs / g.s;
  int w = (int)(pixel % g.w);
  int64_t rest = pixel / g.w;
  int h = (int)(rest % g.h);
  int64_t n = rest / g.h;
  int p = h + g.pad - r, q = w + g.pad - s;
  if (p < 0 || q < 0 || p % g.stride || q % g.stride) return 0.0f;
  p /= g.stride;
  q /= g.stride;
  if (p >= g.p || q >= g.q) return 0.0f;
  return brim_load(dy, ((n * g.p + p) * g.q + q) * g.m + m);
}

template <typename T, int KIND>
__device__ static float fetch_a(const geometry &g, const T *a, int64_t row, int64_t k) {
  if (KIND == FORWARD) return image(g, a, row, k);
  if (KIND == DATA) return gradient(g, a, row, k);
  return brim_load(a, k * g.m + row);
}

template <typename T, int KIND>
__device__ static float fetch_b(const geometry &g, const T *b, int64_t k, int64_t col) {
  if (KIND == FORWARD) return brim_load(b, col * g.depth + k);
  if (KIND == DATA) return brim_load(b, ((k % g.m) * g.r * g.s + k / g.m) * g.c + col);
  return image(g, b, k, col);
}

// Position of a block's product: its first row and column, and the range [k0, end) of the depth.
struct corner {
  int64_t row0, col0, k0, end;
};

// Loads a tile of each operand. Neighbouring threads read neighbouring addresses, along the depth or across
// it.
template <typename T, int KIND>
__device__ static void load_tiles(const geometry &g, const T *a, const T *b, const corner &to,
                                  float (*ta)[TILE + 1], float (*tb)[TILE + 1]) {
  for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
    int k = KIND == WEIGHT ? i / TILE : i % DEPTH, at = KIND == WEIGHT ? i % TILE : i / DEPTH;
    bool inside = to.row0 + at < g.rows && to.k0 + k < to.end;
    ta[k][at] = inside ? fetch_a<T, KIND>(g, a, to.row0 + at, to.k0 + k) : 0.0f;
    k = KIND == FORWARD ? i % DEPTH : i / TILE;
    at = KIND == FORWARD ? i / DEPTH : i % TILE;
    inside = to.col0 + at < g.cols && to.k0 + k < to.end;
    tb[k][at] = inside ? fetch_b<T, KIND>(g, b, to.k0 + k, to.col0 + at) : 0.0f;
  }
}

// `out` is T for images and f32 for weights. For weights each block of z writes its own part.
template <typename T, typename O, int KIND>
__global__ static void __launch_bounds__(THREADS)
    multiply(geometry g, const T *a, const T *b, O *out, bool accumulate) {
  __shared__ float ta[DEPTH][TILE + 1], tb[DEPTH][TILE + 1];
  int64_t row0 = (int64_t)blockIdx.x * TILE, col0 = (int64_t)blockIdx.y * TILE;
  int64_t begin = (int64_t)blockIdx.z * g.chunk;
  int64_t end = begin + g.chunk < g.depth ? begin + g.chunk : g.depth;
  int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
  float sum[THREAD_SIDE][THREAD_SIDE] = {};
  for (int64_t k0 = begin; k0 < end; k0 += DEPTH) {
    load_tiles<T, KIND>(g, a, b, {row0, col0, k0, end}, ta, tb);
    __syncthreads();
    for (int k = 0; k < DEPTH; k++) {
      for (int i = 0; i < THREAD_SIDE; i++) {
        for (int j = 0; j < THREAD_SIDE; j++) sum[i][j] += ta[k][ty + 16 * i] * tb[k][tx + 16 * j];
      }
    }
    __syncthreads();
  }
  out += (int64_t)blockIdx.z * g.rows * g.cols;
  for (int i = 0; i < THREAD_SIDE; i++) {
    for (int j = 0; j < THREAD_SIDE; j++) {
      int64_t row = row0 + ty + 16 * i, col = col0 + tx + 16 * j;
      if (row >= g.rows || col >= g.cols) continue;
      int64_t at = row * g.cols + col;
      brim_store(out, at, accumulate ? brim_load(out, at) + sum[i][j] : sum[i][j]);
    }
  }
}

template <typename T>
__global__ static void sum_parts(float *dw, const T *src, int64_t count, int64_t parts,
                                 bool accumulate) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = brim_load(src, i);
    for (int64_t part = 1; part < parts; part++) sum += brim_load(src, part * count + i);
    dw[i] = accumulate ? dw[i] + sum : sum;
  }
}

// dw (count) = sum of `parts` rows of src (parts, count), added in order; dw is added if `accumulate`.
static brim_status conv_sum(float *dw, const void *src, brim_dtype type, int64_t count,
                            int64_t parts, bool accumulate, cudaStream_t stream) {
  BRIM_CUDA_DISPATCH(type, (sum_parts<T><<<brim_cuda_blocks(count, 256), 256, 0, stream>>>(
                               dw, (const T *)src, count, parts, accumulate)));
  return brim_cuda_launched("sum_parts");
}

static geometry geometry_of(const conv_shape *c) {
  geometry g = {(int)c->h, (int)c->w,      (int)c->c,   (int)c->m, (int)c->r, (int)c->s, (int)c->p,
                (int)c->q, (int)c->stride, (int)c->pad, 0,         0,         0,         0};
  int64_t in = c->n * c->h * c->w, out = c->n * c->p * c->q, window = c->r * c->s;
  g.rows = c->op == BRIM_OP_CONV ? out : c->op == BRIM_OP_CONV_BWD_DATA ? in : c->m;
  g.cols = c->op == BRIM_OP_CONV ? c->m : c->op == BRIM_OP_CONV_BWD_DATA ? c->c : window * c->c;
  g.depth = c->op == BRIM_OP_CONV            ? window * c->c
            : c->op == BRIM_OP_CONV_BWD_DATA ? window * c->m
                                             : out;
  g.chunk = g.depth;
  return g;
}

// Splits the sum of a weight gradient, which has few tiles and a long sum. Takes enough parts to fill a
// large GPU, but no more than the workspace holds and none too short. The result depends on the shape and
// the workspace alone, as the order of the sum depends on it. Returns the number of parts.
static int64_t split(geometry *g, size_t bytes) {
  int64_t tiles = (g->rows + TILE - 1) / TILE * ((g->cols + TILE - 1) / TILE);
  int64_t room = (int64_t)(bytes / sizeof(float)) / (g->rows * g->cols);
  int64_t parts = 512 / tiles;
  if (parts > g->depth / 256) parts = g->depth / 256;
  if (parts > room) parts = room;
  if (parts < 1) parts = 1;
  g->chunk = ((g->depth + parts - 1) / parts + DEPTH - 1) / DEPTH * DEPTH;
  return (g->depth + g->chunk - 1) / g->chunk;
}

// Computes in f32, always in the same order. The tensors are in the order x, w, y (or their gradients).
// `bytes` is the size of the workspace; it limits the parts of a weight gradient.
static brim_status conv_direct(const conv_shape *c, void *const tensors[3], void *workspace,
                               size_t bytes, cudaStream_t stream) {
  geometry g = geometry_of(c);
  bool weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  int64_t parts = weight ? split(&g, bytes) : 1;
  int64_t rows = (g.rows + TILE - 1) / TILE, cols = (g.cols + TILE - 1) / TILE;
  if (rows > INT32_MAX || cols > 65535) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: this convolution is too large");
  }
  dim3 grid((unsigned)rows, (unsigned)cols, (unsigned)parts);
  const void *x = tensors[0], *w = tensors[1], *y = tensors[2];
  float *dw = parts > 1 ? (float *)workspace : (float *)tensors[1];
  bool accumulate = weight && c->accumulate && parts == 1;
  if (c->op == BRIM_OP_CONV) {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, T, FORWARD><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)x, (const T *)w, (T *)tensors[2], false)));
  } else if (c->op == BRIM_OP_CONV_BWD_DATA) {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, T, DATA><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)y, (const T *)w, (T *)tensors[0], false)));
  } else {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, float, WEIGHT><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)y, (const T *)x, dw, accumulate)));
  }
  BRIM_TRY(brim_cuda_launched("convolution"));
  if (parts == 1) return BRIM_OK;
  return conv_sum((float *)tensors[1], workspace, BRIM_F32, g.rows * g.cols, parts, c->accumulate,
                  stream);
}

//---------------------------------- ways of a result ----------------------------------

// Ways of a result into the output. ADD and ROUND are for weight gradients.
enum conv_way {
  WAY_OWN,    // brim's own kernels
  WAY_INTO,   // cuDNN writes (or adds) straight into the output
  WAY_ADD,    // cuDNN writes f32 into the workspace, which is added to dw
  WAY_ROUND,  // cuDNN writes T into the workspace, which is converted or added
  WAY_COUNT
};
static const char *const way_names[WAY_COUNT] = {"own", "into", "add", "round"};

enum { ALIGN = 256, PRECISE = 12, ROUNDED = 8 };  // alignment; most plans that are timed
// A weight gradient rounded to T must be this much faster to be worth its lost digits.
static const float round_price = 1.15f;

struct conv_state {
  conv_shape conv;
  conv_way way;
  dnn_problem *problem;
  dnn_plan plan;
  // Bytes at the start of the workspace, for a dw that is added or converted afterwards.
  size_t room;
  size_t budget;  // bytes after `room`, for cuDNN
};

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

//---------------------------------- shapes ----------------------------------

// Lists the tensors of any op in the order x, w, y.
static void tensors_of(const brim_op_call *c, const brim_tensor *t[3]) {
  bool forward = c->op == BRIM_OP_CONV, weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  t[0] = forward ? &c->in[0] : weight ? &c->in[1] : &c->out[0];
  t[1] = weight ? &c->out[0] : &c->in[1];
  t[2] = forward ? &c->out[0] : &c->in[0];
}

static conv_shape conv_of(const brim_op_call *call) {
  const brim_tensor *t[3];
  tensors_of(call, t);
  conv_shape c;
  memset(&c, 0, sizeof c);
  c.op = call->op;
  c.type = call->in[0].dtype;
  c.n = t[0]->dim[0];
  c.h = t[0]->dim[1];
  c.w = t[0]->dim[2];
  c.c = t[0]->dim[3];
  c.m = t[1]->dim[0];
  c.r = t[1]->dim[1];
  c.s = t[1]->dim[2];
  c.p = t[2]->dim[1];
  c.q = t[2]->dim[2];
  c.stride = call->attr.stride;
  c.pad = call->attr.pad;
  c.tf32 = c.type == BRIM_F32 && call->attr.tf32;
  c.accumulate = call->op == BRIM_OP_CONV_BWD_WEIGHT && call->attr.accumulate;
  return c;
}

static size_t type_bytes(brim_dtype type) { return type == BRIM_F32 ? 4 : 2; }
static int64_t weight_count(const conv_shape *c) { return c->m * c->r * c->s * c->c; }

// Sizes the workspace. The size depends on the shape and the options alone, so that a plan made without
// timing equals what is allocated. Engines that work on another layout copy both images and the weights;
// in f32 without tensor cores no other engines are worth having (cuDNN 9.19, H200). Tensor-core engines need
// little: sums in f32 if they split the weights' sum over k.
static void size_workspace(const brim_cuda *d, conv_state *s) {
  const conv_shape *c = &s->conv;
  const size_t mib = (size_t)1 << 20;
  size_t images = (size_t)(c->n * (c->h * c->w * c->c + c->p * c->q * c->m)) * type_bytes(c->type);
  size_t weights = round_up((size_t)weight_count(c) * sizeof(float));
  bool strict = c->type == BRIM_F32 && !c->tf32;
  s->budget = strict && images > 8 * mib ? images : 8 * mib;
  if (s->budget > 1024 * mib) s->budget = 1024 * mib;
  s->budget = round_up(s->budget + weights + mib);
  size_t cap = d->conv_workspace_cap;
  if (cap && s->budget > cap) s->budget = cap / ALIGN * ALIGN;
  // Room for a dw that does not go straight into the output: f32 to be added, or T to be widened.
  bool narrow = c->type != BRIM_F32 && !c->accumulate;
  bool detour = c->op == BRIM_OP_CONV_BWD_WEIGHT && (c->accumulate || narrow);
  s->room = !detour ? 0 : narrow ? round_up((size_t)weight_count(c) * 2) : weights;
}

static void key_of(const brim_cuda *d, const conv_state *s, char key[BRIM_CUDA_ALGO_CHARS]) {
  static const char *const types[] = {"f32", "bf16", "f16"};
  const conv_shape *c = &s->conv;
  const char *op = c->op == BRIM_OP_CONV            ? "fwd"
                   : c->op == BRIM_OP_CONV_BWD_DATA ? "data"
                                                    : "weight";
  const char *type = c->tf32 ? "tf32"
                             : types[c->type == BRIM_F32    ? 0
                                     : c->type == BRIM_BF16 ? 1
                                                            : 2];
  snprintf(key, BRIM_CUDA_ALGO_CHARS,
           "conv/%s%s/%s/n%lldh%lldw%lldc%lldm%lldr%llds%lld/stride%lldpad%lld/workspace%zu%s", op,
           c->accumulate ? "+" : "", type, (long long)c->n, (long long)c->h, (long long)c->w,
           (long long)c->c, (long long)c->m, (long long)c->r, (long long)c->s, (long long)c->stride,
           (long long)c->pad, s->budget >> 10, d->nondeterministic ? "/nondeterministic" : "");
}

//---------------------------------- one way ----------------------------------

static bool way_possible(const conv_shape *c, int way) {
  if (way == WAY_INTO) return true;
  if (c->op != BRIM_OP_CONV_BWD_WEIGHT) return false;
  return way == WAY_ADD ? c->accumulate : way == WAY_ROUND && c->type != BRIM_F32;
}

static brim_status open_way(brim_cuda *d, const conv_shape *c, int way, dnn_problem **out) {
  bool weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  brim_dtype type = weight && way != WAY_ROUND ? BRIM_F32 : c->type;
  return dnn_problem_open(d, c, type, way == WAY_INTO && c->accumulate, out);
}

static brim_status run_way(brim_cuda *d, const conv_state *s, int way, dnn_plan *plan,
                           void *const tensors[3], void *workspace, cudaStream_t stream) {
  char *base = (char *)round_up((size_t)workspace);
  const conv_shape *c = &s->conv;
  if (way == WAY_OWN) return conv_direct(c, tensors, base, s->room + s->budget, stream);
  void *targets[3] = {tensors[0], tensors[1], tensors[2]};
  if (way != WAY_INTO) targets[1] = base;
  BRIM_TRY(dnn_run(d, plan, targets, base + s->room, stream));
  if (way == WAY_INTO) return BRIM_OK;
  return conv_sum((float *)tensors[1], base, way == WAY_ADD ? BRIM_F32 : c->type, weight_count(c),
                  1, c->accumulate, stream);
}

// Writes the choice as the table stores it: "into 12 2:7".
static void name_choice(const conv_state *s, char value[BRIM_CUDA_ALGO_CHARS]) {
  const char *gap = s->plan.text[0] ? " " : "";
  snprintf(value, BRIM_CUDA_ALGO_CHARS, "%s%s%s", way_names[s->way], gap, s->plan.text);
}

static bool nameable(const conv_state *s) { return s->way == WAY_OWN || s->plan.text[0]; }

// Takes a choice from the table. False if the value is not understood or cuDNN no longer has the engine.
static bool take_choice(brim_cuda *d, conv_state *s, const char *value) {
  if (strcmp(value, way_names[WAY_OWN]) == 0) {
    s->way = WAY_OWN;
    return true;
  }
  for (int way = WAY_INTO; way < WAY_COUNT; way++) {
    size_t length = strlen(way_names[way]);
    if (strncmp(value, way_names[way], length) != 0 || value[length] != ' ') continue;
    if (!way_possible(&s->conv, way) || open_way(d, &s->conv, way, &s->problem)) return false;
    if (!dnn_plan_named(d, s->problem, value + length + 1, s->budget, &s->plan)) {
      s->way = (conv_way)way;
      return true;
    }
    dnn_problem_close(d, s->problem);
    s->problem = NULL;
  }
  return false;
}

// Takes the first plan of the heuristics that is allowed and fits; else brim's own kernels.
static void take_first(brim_cuda *d, conv_state *s) {
  for (int way = WAY_INTO; way < WAY_COUNT; way++) {
    if (!way_possible(&s->conv, way) || open_way(d, &s->conv, way, &s->problem)) continue;
    if (dnn_plans(d, s->problem, s->budget, &s->plan, 1)) {
      s->way = (conv_way)way;
      return;
    }
    dnn_problem_close(d, s->problem);
    s->problem = NULL;
  }
  s->way = WAY_OWN;
}

//---------------------------------- measuring ----------------------------------

// All plans that are timed for one convolution: those with precise ways first, then rounded ones.
struct conv_race {
  brim_cuda *device;
  const conv_state *state;
  dnn_problem *problem[WAY_COUNT];
  dnn_plan plan[PRECISE + ROUNDED];
  int way[PRECISE + ROUNDED];
  int precise, count;
  int first;         // index of the first plan of the group being timed
  bool starved;      // there was no memory to time with
  void *tensors[3];  // temporary tensors
  void *workspace;
};

static void gather(conv_race *r, int way, int max) {
  const conv_state *s = r->state;
  if (max < 1 || !way_possible(&s->conv, way)) return;
  if (open_way(r->device, &s->conv, way, &r->problem[way])) return;
  int found = dnn_plans(r->device, r->problem[way], s->budget, &r->plan[r->count], max);
  for (int i = 0; i < found; i++) r->way[r->count++] = way;
}

static brim_status race_run(void *ctx, int candidate, cudaStream_t stream) {
  conv_race *r = (conv_race *)ctx;
  int i = r->first + candidate;
  return run_way(r->device, r->state, r->way[i], &r->plan[i], r->tensors, r->workspace, stream);
}

// Allocates temporary tensors of the sizes of the call, filled with a small number. NULL without memory.
static char *race_memory(conv_race *r, size_t workspace_bytes) {
  const conv_shape *c = &r->state->conv;
  size_t x = round_up((size_t)(c->n * c->h * c->w * c->c) * type_bytes(c->type));
  size_t w = round_up((size_t)weight_count(c) * sizeof(float));
  size_t y = round_up((size_t)(c->n * c->p * c->q * c->m) * type_bytes(c->type));
  char *memory = NULL;
  if (BRIM_CUDA(cudaMalloc(&memory, x + w + y + workspace_bytes))) return NULL;
  cudaMemset(memory, 0x3c, x + w + y);  // 0.01 in f32 and bf16, 1.06 in f16
  cudaDeviceSynchronize();
  r->tensors[0] = memory;
  r->tensors[1] = memory + x;
  r->tensors[2] = memory + x + w;
  r->workspace = memory + x + w + y;
  return memory;
}

// Times the plans. Returns the index of the fastest; -1 if none could be timed.
static int race(conv_race *r, size_t workspace_bytes, float *ms) {
  char *memory = race_memory(r, workspace_bytes);
  r->starved = !memory;
  if (!memory) return -1;
  int best = -1, rounded = -1;
  float rounded_ms = 0;
  *ms = 0;
  if (r->precise && brim_cuda_algo_time(r->device, race_run, r, r->precise, &best, ms)) best = -1;
  r->first = r->precise;
  if (r->count > r->precise &&
      !brim_cuda_algo_time(r->device, race_run, r, r->count - r->precise, &rounded, &rounded_ms)) {
    if (best < 0 || rounded_ms * round_price < *ms) {
      best = r->precise + rounded;
      *ms = rounded_ms;
    }
  }
  cudaFree(memory);
  return best;
}

// False if no plan could be timed; *starved = for lack of memory.
static bool take_fastest(brim_cuda *d, conv_state *s, size_t workspace_bytes, const char *key,
                         bool *starved) {
  conv_race *r = (conv_race *)brim_cuda_host->alloc(sizeof *r, 0);
  *starved = !r;
  if (!r) return false;
  memset(r, 0, sizeof *r);
  r->device = d;
  r->state = s;
  gather(r, WAY_INTO, PRECISE);
  gather(r, WAY_ADD, PRECISE - r->count);
  r->precise = r->count;
  gather(r, WAY_ROUND, ROUNDED);
  float ms = 0;
  int best = r->count ? race(r, workspace_bytes, &ms) : -1;
  if (best >= 0) {
    s->way = (conv_way)r->way[best];
    s->plan = r->plan[best];
    s->problem = r->problem[s->way];
    r->problem[s->way] = NULL;
    char text[640];
    snprintf(text, sizeof text, "%s: %s %s, %.4f ms, the fastest of %d", key, way_names[s->way],
             s->plan.text, (double)ms, r->count);
    brim_cuda_host->log(3, "cuda", text);
  }
  for (int i = 0; i < r->count; i++) {
    if (i != best) dnn_plan_close(d, &r->plan[i]);
  }
  for (auto &p : r->problem) dnn_problem_close(d, p);
  *starved = r->starved;
  brim_cuda_host->free(r);
  return best >= 0;
}

static void choose_ready(brim_cuda *d, conv_state *s, size_t workspace_bytes, const char *key) {
  char value[BRIM_CUDA_ALGO_CHARS];
  if (brim_cuda_algo_find(d, key, value)) {
    if (take_choice(d, s, value)) return;
    char text[2 * BRIM_CUDA_ALGO_CHARS + 64];
    snprintf(text, sizeof text, "%s: the remembered algorithm \"%s\" cannot be had here", key,
             value);
    brim_cuda_host->log(1, "cuda", text);
  }
  bool starved = false;
  bool measured = d->measure_algorithms && take_fastest(d, s, workspace_bytes, key, &starved);
  if (!measured) take_first(d, s);
  if (!nameable(s)) return;
  name_choice(s, value);
  if (measured) {
    brim_cuda_algo_store(d, key, value);
  } else {
    brim_cuda_algo_note(d, key, value, starved);
  }
}

static void choose(brim_cuda *d, conv_state *s, size_t workspace_bytes) {
  s->way = WAY_OWN;
  if (!dnn_ready(d)) return;
  char key[BRIM_CUDA_ALGO_CHARS], text[BRIM_CUDA_ALGO_CHARS + 192];
  key_of(d, s, key);
  choose_ready(d, s, workspace_bytes, key);
  if (s->way != WAY_OWN || !brim_cuda_algo_warn_once(d, key)) return;
  snprintf(text, sizeof text,
           "%s: no engine of cuDNN is used for this shape with a workspace of %zu KiB, but brim's "
           "own kernels, which are slow",
           key, s->budget >> 10);
  brim_cuda_host->log(1, "cuda", text);
}

//---------------------------------- the ops ----------------------------------

static brim_status conv_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return brim_cuda_float_type(&c->in[0], "a convolution");
}

// Planning needs only the size of the workspace and looks for no engine.
static brim_status conv_prepare(void *impl, brim_op_call *call) {
  brim_cuda_enter(impl);
  brim_cuda *d = (brim_cuda *)impl;
  conv_state *s = (conv_state *)brim_cuda_host->alloc(sizeof *s, 0);
  if (!s) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a convolution");
  memset(s, 0, sizeof *s);
  s->conv = conv_of(call);
  size_workspace(d, s);
  call->workspace_bytes = s->room + s->budget + ALIGN;
  call->state = s;
  if (!call->planning) choose(d, s, call->workspace_bytes);
  return BRIM_OK;
}

static void conv_release(void *impl, brim_op_call *call) {
  brim_cuda *d = (brim_cuda *)impl;
  conv_state *s = (conv_state *)call->state;
  if (!s) return;
  dnn_plan_close(d, &s->plan);
  dnn_problem_close(d, s->problem);
  brim_cuda_host->free(s);
  call->state = NULL;
}

static brim_status conv_run(void *impl, void *stream, const brim_op_call *call) {
  brim_cuda_enter(impl);
  conv_state *s = (conv_state *)call->state;
  const brim_tensor *t[3];
  tensors_of(call, t);
  void *const tensors[3] = {t[0]->data, t[1]->data, t[2]->data};
  return run_way((brim_cuda *)impl, s, s->way, &s->plan, tensors, call->workspace,
                 (cudaStream_t)stream);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_CONV, conv_validate, conv_prepare, conv_run, conv_release},
    {BRIM_OP_CONV_BWD_DATA, conv_validate, conv_prepare, conv_run, conv_release},
    {BRIM_OP_CONV_BWD_WEIGHT, conv_validate, conv_prepare, conv_run, conv_release},
};

const brim_op_family brim_cuda_conv_ops = {rows, sizeof rows / sizeof *rows};
