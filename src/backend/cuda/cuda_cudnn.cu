// cuDNN 9 through its graph API, found at run time. Attribute names, types and element counts are
// those of cudnn_graph.h; headers of another 9.x do, as the numbers are part of its ABI.
#include "backend/cuda/cuda_cudnn.cuh"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const brim_cuda_dnn_names[] = {"libcudnn.so.9",
                                           "/usr/local/cuda/lib64/libcudnn.so.9",
                                           "/usr/lib/x86_64-linux-gnu/libcudnn.so.9",
                                           "/usr/lib/aarch64-linux-gnu/libcudnn.so.9",
                                           "libcudnn_graph.so.9",
                                           "/usr/local/cuda/lib64/libcudnn_graph.so.9",
                                           NULL};

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

typedef cudnnBackendDescriptor_t dnn_desc;

struct brim_cuda_dnn {
  void *library;  // NULL: not found
  cudnnHandle_t handle;
  cudaStream_t stream;  // that the handle works on
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

struct brim_cuda_dnn_problem {
  const brim_cuda_conv *conv;
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

bool brim_cuda_dnn_ready(brim_cuda *d) {
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
  // asked in any case: cuDNN may have left an error with the runtime
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

// (A, H, W, C) in memory; cuDNN takes sizes and strides in the order A, C, H, W.
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

static cudnnStatus_t make_convolution(const brim_cuda_dnn *n, const brim_cuda_conv *c,
                                      dnn_desc *out) {
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

// Which attributes an operation has; tensors in the order x, w, y.
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

static cudnnStatus_t make_graph(const brim_cuda_dnn *n, brim_cuda_dnn_problem *p, bool add) {
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

brim_status brim_cuda_dnn_problem_open(brim_cuda *d, const brim_cuda_conv *c, brim_dtype out_type,
                                       bool add, brim_cuda_dnn_problem **out) {
  const brim_cuda_dnn *n = d->dnn;
  brim_cuda_dnn_problem *p = (brim_cuda_dnn_problem *)brim_cuda_host->alloc(sizeof *p, 0);
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
    brim_cuda_dnn_problem_close(d, p);
    return dnn_fail(n, e, "describing a convolution");
  }
  *out = p;
  return BRIM_OK;
}

void brim_cuda_dnn_problem_close(brim_cuda *d, brim_cuda_dnn_problem *p) {
  if (!p) return;
  drop(d->dnn, &p->graph);
  drop(d->dnn, &p->operation);
  drop(d->dnn, &p->convolution);
  for (auto &t : p->tensor) drop(d->dnn, &t);
  brim_cuda_host->free(p);
}

//---------------------------------- plans ----------------------------------

void brim_cuda_dnn_plan_close(brim_cuda *d, brim_cuda_dnn_plan *plan) {
  drop(d->dnn, &plan->pack);
  drop(d->dnn, &plan->plan);
  drop(d->dnn, &plan->config);
  memset(plan, 0, sizeof *plan);
}

// Makes an executable plan from plan->config, which must be finalized.
static cudnnStatus_t finish(const brim_cuda_dnn *n, brim_cuda_dnn_plan *plan) {
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

// " type:value" of every knob behind what stands in text.
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
      text[0] = 0;  // cannot be named, can be run
      break;
    }
    used += (size_t)length;
  }
  for (auto &k : knobs) drop(n, &k);
  return e;
}

static bool allowed(const brim_cuda *d, const brim_cuda_dnn_problem *p,
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
      // Fast transforms lose digits: a ResNet-50 in f32 was 1.2e-4 away from double with them.
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

// True if the engine behind a configuration may be used; also makes its text.
static bool inspect(const brim_cuda *d, const brim_cuda_dnn_problem *p, brim_cuda_dnn_plan *plan) {
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

// Configurations that one mode of the heuristics proposes, best first. The caller owns the
// descriptors.
static int64_t propose(const brim_cuda_dnn *n, const brim_cuda_dnn_problem *p,
                       cudnnBackendHeurMode_t mode, dnn_desc configs[MAX_CONFIGS]) {
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

static bool known(const brim_cuda_dnn_plan *plans, int count, const char *text) {
  for (int i = 0; i < count; i++) {
    if (text[0] && strcmp(plans[i].text, text) == 0) return true;
  }
  return false;
}

int brim_cuda_dnn_plans(brim_cuda *d, brim_cuda_dnn_problem *p, size_t budget,
                        brim_cuda_dnn_plan *plans, int max) {
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                 CUDNN_HEUR_MODE_FALLBACK};
  const brim_cuda_dnn *n = d->dnn;
  int found = 0;
  for (auto mode : modes) {
    if (found == max) break;
    dnn_desc configs[MAX_CONFIGS] = {NULL};
    int64_t count = propose(n, p, mode, configs);
    for (int64_t i = 0; i < count && found < max; i++) {
      brim_cuda_dnn_plan plan;
      memset(&plan, 0, sizeof plan);
      plan.config = configs[i];
      configs[i] = NULL;
      bool good = inspect(d, p, &plan) && !known(plans, found, plan.text) && !finish(n, &plan) &&
                  plan.workspace <= budget;
      if (good) {
        plans[found++] = plan;
      } else {
        brim_cuda_dnn_plan_close(d, &plan);
      }
    }
    for (auto &c : configs) drop(n, &c);
  }
  cudaGetLastError();  // left by a plan that could not be made
  return found;
}

// Reads "12 2:7 13:1" into the engine and its knobs.
static cudnnStatus_t make_config(const brim_cuda_dnn *n, const brim_cuda_dnn_problem *p,
                                 const char *text, dnn_desc *engine, dnn_desc knobs[MAX_KNOBS],
                                 dnn_desc *config) {
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

brim_status brim_cuda_dnn_plan_named(brim_cuda *d, brim_cuda_dnn_problem *p, const char *text,
                                     size_t budget, brim_cuda_dnn_plan *plan) {
  const brim_cuda_dnn *n = d->dnn;
  dnn_desc engine = NULL, knobs[MAX_KNOBS] = {NULL};
  memset(plan, 0, sizeof *plan);
  cudnnStatus_t e = make_config(n, p, text, &engine, knobs, &plan->config);
  // A text from elsewhere is held to the same rules as cuDNN's own proposals.
  if (!e && !inspect(d, p, plan)) e = CUDNN_STATUS_NOT_SUPPORTED;
  if (!e) e = finish(n, plan);
  if (!e && plan->workspace > budget) e = CUDNN_STATUS_NOT_SUPPORTED;
  for (auto &k : knobs) drop(n, &k);
  drop(n, &engine);
  if (!e) return BRIM_OK;
  brim_cuda_dnn_plan_close(d, plan);
  return dnn_fail(n, e, "making the plan of a remembered algorithm");
}

//---------------------------------- running ----------------------------------

static cudnnStatus_t pack(const brim_cuda_dnn *n, brim_cuda_dnn_plan *plan, void *const tensors[3],
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

brim_status brim_cuda_dnn_run(brim_cuda *d, brim_cuda_dnn_plan *plan, void *const tensors[3],
                              void *workspace, cudaStream_t stream) {
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

bool brim_cuda_dnn_ready(brim_cuda *d) {
  if (d->dnn_reported) return false;
  d->dnn_reported = true;
  brim_cuda_host->log(
      1, "cuda",
      "built without cuDNN; convolutions run on slow kernels of brim's own. Install "
      "cuDNN 9 with its headers and build brim again");
  return false;
}
void brim_cuda_dnn_close(brim_cuda *) {}
brim_status brim_cuda_dnn_problem_open(brim_cuda *, const brim_cuda_conv *, brim_dtype, bool,
                                       brim_cuda_dnn_problem **) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
void brim_cuda_dnn_problem_close(brim_cuda *, brim_cuda_dnn_problem *) {}
int brim_cuda_dnn_plans(brim_cuda *, brim_cuda_dnn_problem *, size_t, brim_cuda_dnn_plan *, int) {
  return 0;
}
brim_status brim_cuda_dnn_plan_named(brim_cuda *, brim_cuda_dnn_problem *, const char *, size_t,
                                     brim_cuda_dnn_plan *) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
void brim_cuda_dnn_plan_close(brim_cuda *, brim_cuda_dnn_plan *) {}
brim_status brim_cuda_dnn_run(brim_cuda *, brim_cuda_dnn_plan *, void *const *, void *,
                              cudaStream_t) {
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "built without cuDNN");
}
#endif
