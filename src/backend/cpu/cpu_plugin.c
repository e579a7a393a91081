// Entry of the cpu plug-in: brim_plugin_query, the functions the host lends it, the features of
// this CPU and the kernels chosen by them, the device itself (host memory, synchronous), and the
// backend table. The ops and their rows are in the other files of this folder.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "backend/cpu/cpu_int.h"
#include "base/base_machine.h"

//---------------------------------- the host ----------------------------------

// File-scope state, as device_count and device_info have no object to carry it. brim_plugin_query sets it
// before anything else can be called.
static const brim_host_api *host_api;
static unsigned masked;  // bits BRIM_CPU_MASK_* of the environment variable

unsigned brim_cpu_masked(void) { return masked; }

const brim_host_api *brim_cpu_host(void) { return host_api; }

brim_status brim_cpu_fail(brim_status status, const char *format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, host_api->translate(format), args);
  va_end(args);
  return host_api->fail(status, text);
}

brim_status brim_cpu_check_process(const brim_cpu_device *device) {
  if (device->pid == getpid()) return BRIM_OK;
  return brim_cpu_fail(BRIM_ESTATE,
                       "cpu: the device was opened before a fork, so its threads are in the "
                       "parent; open it in the child");
}

brim_status brim_cpu_spread(void *impl, int64_t count, brim_cpu_body body, void *arg) {
  const brim_cpu_device *device = impl;
  BRIM_TRY(brim_cpu_check_process(device));
  brim_cpu_team_run(brim_cpu_team_for(device->threads, (double)count, BRIM_CPU_TEAM_ELEMENTS), body,
                    arg);
  return BRIM_OK;
}

//---------------------------------- the CPU ----------------------------------

#if defined(__aarch64__)
#include <asm/hwcap.h>
#endif

static void add_feature(brim_cpu_machine *machine, const char *name) {
  size_t n = strlen(machine->features);
  snprintf(machine->features + n, sizeof machine->features - n, "%s%s", n ? " " : "", name);
}

static void read_features(brim_cpu_machine *machine) {
#if defined(__aarch64__)
  machine->neon = !(masked & BRIM_CPU_MASK_NEON);
  if (machine->neon) add_feature(machine, "neon");
#ifdef HWCAP2_BF16
  machine->neon_bf16 = !(masked & BRIM_CPU_MASK_BF16) && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
  if (machine->neon_bf16) add_feature(machine, "bf16");
#elif defined(__x86_64__)
  static const struct {
    const char *flag;
    unsigned bit;
  } wanted[] = {{"avx2", BRIM_CPU_MASK_AVX2},
                {"avx512f", BRIM_CPU_MASK_AVX512},
                {"avx512_bf16", BRIM_CPU_MASK_BF16},
                {"amx_bf16", BRIM_CPU_MASK_AMX}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!(masked & wanted[i].bit) && brim_machine_cpu_flag("", wanted[i].flag)) {
      add_feature(machine, wanted[i].flag);
    }
  }
#endif
}

static void read_machine(brim_cpu_machine *machine) {
  *machine = (brim_cpu_machine){.threads = brim_cpu_threads(brim_cpu_root())};
  brim_machine_cpu_name("", machine->model, sizeof machine->model);
  if (!machine->model[0]) snprintf(machine->model, sizeof machine->model, "CPU");
  read_features(machine);
  machine->amx = !(masked & BRIM_CPU_MASK_AMX) && brim_cpu_amx_permitted();
}

const brim_cpu_kernel *brim_cpu_kernel_for(const brim_cpu_machine *machine, brim_dtype type) {
  if (type == BRIM_BF16) {
    bool neon = machine->neon_bf16 && brim_cpu_kernel_neon_bf16.pack;
    return neon ? &brim_cpu_kernel_neon_bf16 : &brim_cpu_kernel_portable_bf16;
  }
  bool neon = machine->neon && brim_cpu_kernel_neon_f32.pack;
  return neon ? &brim_cpu_kernel_neon_f32 : &brim_cpu_kernel_portable_f32;
}

// Selects the kernels of machines without vector features. It works on any machine, so tests reach them.
brim_cpu_machine brim_cpu_machine_plain(const brim_cpu_machine *machine) {
  brim_cpu_machine plain = *machine;
  plain.neon = plain.neon_bf16 = plain.amx = false;
  return plain;
}

//---------------------------------- the device ----------------------------------

static brim_status choose_provider(const brim_cpu_machine *machine, const char *name,
                                   const brim_cpu_gemm_provider **out, char *text,
                                   size_t text_size) {
  // Best first. Debian's oneDNN has no Arm kernels (22-27 GFLOP/s f32 on two Neoverse-V1 cores against more
  // than 130 of brim's kernels, and no bf16), so on Arm it serves only by name.
#if defined(__aarch64__)
  static const brim_cpu_gemm_provider *const rows[] = {&brim_cpu_gemm_own, &brim_cpu_gemm_onednn,
                                                       &brim_cpu_gemm_portable};
#else
  static const brim_cpu_gemm_provider *const rows[] = {&brim_cpu_gemm_onednn, &brim_cpu_gemm_own,
                                                       &brim_cpu_gemm_portable};
#endif
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (name && strcmp(name, rows[i]->name) != 0) continue;
    if (!rows[i]->available(machine, text, text_size)) continue;
    *out = rows[i];
    return BRIM_OK;
  }
  return brim_cpu_fail(BRIM_EUNSUPPORTED,
                       "cpu: BRIM_CPU_GEMM=%s is not in this build; choose own, portable or, if "
                       "built with oneDNN, onednn",
                       name ? name : "");
}

// A provider chosen by name runs without AMX kernels, except for `own`.
static bool takes_amx(const brim_cpu_machine *machine, const char *name,
                      const brim_cpu_gemm_provider *provider) {
  return machine->amx && (!name || provider == &brim_cpu_gemm_own);
}

// If the provider lacks bf16, brim's own kernels compute it (cpu_linear.c, cpu_conv.c).
static bool fast_bf16(const brim_cpu_machine *machine, const brim_cpu_gemm_provider *provider) {
  if (!provider->supports(machine, BRIM_BF16)) provider = &brim_cpu_gemm_own;
  return provider->fast(machine, BRIM_BF16);
}

// Refuses an unknown feature: with a misspelt one a test would test nothing.
static brim_status check_mask(void) {
  unsigned mask;
  if (brim_cpu_mask_parse(getenv("BRIM_CPU_MASK"), &mask)) return BRIM_OK;
  return brim_cpu_fail(
      BRIM_EINVAL,
      "cpu: BRIM_CPU_MASK=%s names an unknown feature; it takes bf16, amx, avx512, "
      "avx2 and neon",
      getenv("BRIM_CPU_MASK"));
}

static const char *wanted_provider(void) {
  const char *name = getenv("BRIM_CPU_GEMM");
  return name && *name ? name : NULL;
}

static brim_status device_count(int *count) {
  *count = 1;
  return BRIM_OK;
}

static brim_status device_info(int index, brim_device_info *info) {
  (void)index;
  const brim_cpu_gemm_provider *provider = NULL;
  BRIM_TRY(check_mask());
  brim_cpu_machine machine;
  read_machine(&machine);
  *info = (brim_device_info){.kind = BRIM_DEVICE_CPU, .host_memory = true};
  info->threads = machine.threads;
  // The name tells a quota, too: figures are stored by device name, and a quota changes them.
  char quota[48] = "";
  if (brim_cpu_quota(brim_cpu_root()) > 0) {
    brim_cpu_describe(brim_cpu_root(), quota, sizeof quota);
  }
  snprintf(info->name, sizeof info->name, "%s%s%s%s%s", machine.model,
           machine.features[0] ? ", " : "", machine.features, quota[0] ? ", " : "", quota);
  brim_machine_free_memory("", &info->free_bytes, &info->total_bytes);
  brim_status status =
      choose_provider(&machine, wanted_provider(), &provider, info->library, sizeof info->library);
  if (status == BRIM_OK && fast_bf16(&machine, provider)) info->fast_types = 1u << BRIM_BF16;
  if (status == BRIM_OK && takes_amx(&machine, wanted_provider(), provider)) {
    size_t n = strlen(info->library);
    snprintf(info->library + n, sizeof info->library - n,
             ", bf16 convolutions and small layers brim amx");
  }
  return status;
}

//---------------------------------- threads ----------------------------------

static brim_status start_threads(int threads) {
  int started = 1;
  const int err = brim_cpu_team_start(threads, &started);
  if (!err) return BRIM_OK;
  return brim_cpu_fail(BRIM_ELIMIT,
                       "cpu: cannot start %d threads: %s; raise the limit (ulimit -u), or use "
                       "fewer: threads=%d",
                       threads, strerror(err), started);
}

static brim_status device_open(int index, const brim_device_options *options, void **impl) {
  (void)index;
  char text[128];
  BRIM_TRY(check_mask());
  brim_cpu_device *device = host_api->alloc(sizeof *device, 0);
  if (!device) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the device");
  *device = (brim_cpu_device){.pid = getpid()};
  read_machine(&device->machine);
  brim_status status =
      choose_provider(&device->machine, wanted_provider(), &device->provider, text, sizeof text);
  device->threads = options && options->threads > 0 ? options->threads : device->machine.threads;
  if (!status) status = start_threads(device->threads);
  if (status) {
    host_api->free(device);
    return status;
  }
  device->workspace_cap = options ? (size_t)options->workspace_cap : 0;
  device->amx_kernels = takes_amx(&device->machine, wanted_provider(), device->provider);
  *impl = device;
  return BRIM_OK;
}

static brim_status device_set_threads(void *impl, int threads) {
  brim_cpu_device *device = impl;
  BRIM_TRY(start_threads(threads));
  device->threads = threads;
  return BRIM_OK;
}

static void device_close(void *impl) { host_api->free(impl); }

static brim_status device_memory(void *impl, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)impl;
  brim_machine_free_memory("", free_bytes, total_bytes);
  return BRIM_OK;
}

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  (void)impl, (void)kind;
  *ptr = host_api->alloc(bytes, 1);
  if (*ptr) return BRIM_OK;
  return brim_cpu_fail(kind == BRIM_BUFFER_DEVICE ? BRIM_EOOM : BRIM_ENOMEM,
                       "cpu: no memory for a buffer of %zu bytes", bytes);
}

static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  (void)impl, (void)kind;
  host_api->free(ptr);
}

static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  (void)impl, (void)stream, (void)direction;
  if (bytes) memmove(dst, src, bytes);
  return BRIM_OK;
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  (void)impl, (void)stream;
  if (bytes) memset(dst, byte, bytes);
  return BRIM_OK;
}

//---------------------------------- ops ----------------------------------

brim_status brim_cpu_validate(void *impl, const brim_op_call *call) {
  (void)impl;
  const brim_tensor *lists[2] = {call->in, call->out};
  int32_t counts[2] = {call->in_count, call->out_count};
  // The op fixes the types of state (f64), labels (i32) and raw input (u8); the other types are float.
  for (int l = 0; l < 2; l++) {
    for (int32_t i = 0; i < counts[l]; i++) {
      const brim_tensor *t = &lists[l][i];
      if (t->rank && t->dtype == BRIM_F16) {
        return brim_cpu_fail(BRIM_EUNSUPPORTED,
                             "cpu: fp16 is not supported on the CPU; use bf16 or fp32");
      }
    }
  }
  const brim_tensor *data = &call->in[0];
  bool stated = call->op == BRIM_OP_OPTIMIZER || call->op == BRIM_OP_AVERAGE;
  if (stated) data = &call->in[2];
  bool f64 = data->dtype == BRIM_F64 ||
             (call->op == BRIM_OP_INPUT && call->out_count && call->out[0].dtype == BRIM_F64);
  if (f64 && call->op != BRIM_OP_CAST) {
    return brim_cpu_fail(BRIM_EUNSUPPORTED,
                         "cpu: f64 is not supported on this backend; use the ref backend");
  }
  return BRIM_OK;
}

static const brim_op_family *const families[] = {
    &brim_cpu_linear_ops,    &brim_cpu_conv_ops,        &brim_cpu_batchnorm_ops, &brim_cpu_pool_ops,
    &brim_cpu_attention_ops, &brim_cpu_elementwise_ops, &brim_cpu_norm_ops,      &brim_cpu_loss_ops,
    &brim_cpu_ntxent_ops,    &brim_cpu_knn_ops,         &brim_cpu_optimizer_ops,
};

static const brim_backend backend = {
    .abi = BRIM_BACKEND_ABI,
    .name = "cpu",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .copy = copy,
    .fill = fill,
    .ops = families,
    .op_families = sizeof families / sizeof *families,
    .set_threads = device_set_threads,
};

static const brim_plugin plugin = {
    .abi = BRIM_PLUGIN_ABI,
    .name = "cpu",
    .version = BRIM_VERSION,
    .backend = &backend,
};

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI || !host || host->abi != BRIM_PLUGIN_ABI ||
      host->size < sizeof(brim_host_api)) {
    return BRIM_EABI;
  }
  host_api = host;
  masked = brim_cpu_mask();
  brim_cpu_onednn_mask(masked);
  *out = &plugin;
  return BRIM_OK;
}
