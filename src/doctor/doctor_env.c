// Environment variables that make training slow, hide GPUs or change results, and some that help. One
// row per variable; variables that are not set have no line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "doctor/doctor_int.h"

typedef struct variable {
  const char *name;
  const char *why;  // a message; of the value that is spoken of
  // What the value means; sets the line's state before it is added.
  brim_doctor_state (*judge)(const brim_doctor_exam *e, const char *value);
  const char *fix;  // NULL = "unset NAME"
} variable;

static bool is_true(const char *v) {
  static const char *const words[] = {"1", "true", "yes", "on", "y", "t"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return true;
  }
  return false;
}

static bool is_false(const char *v) {
  static const char *const words[] = {"0", "false", "no", "off", "n", "f"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return true;
  }
  return false;
}

static brim_doctor_state true_is_bad(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_true(v) ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state true_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_true(v) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state false_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_false(v) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state set_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return v[0] ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_loading(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return strcasecmp(v, "EAGER") == 0 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

// Indices or ids; the first that names no GPU hides itself and all behind it.
static brim_doctor_state judge_visible(const brim_doctor_exam *e, const char *v) {
  if (e->gpu_count == 0) return BRIM_DOCTOR_GOOD;
  if (!v[0] || strcmp(v, "-1") == 0 || strcasecmp(v, "none") == 0 ||
      strcasecmp(v, "NoDevFiles") == 0) {
    return BRIM_DOCTOR_BAD;
  }
  int last = e->gpus[e->gpu_count - 1].index;
  for (const char *at = v; *at;) {
    size_t n = strcspn(at, ",");
    char *end = NULL;
    long index = strtol(at, &end, 10);
    bool number = end == at + n && n > 0;
    if (number && (index < 0 || index > last)) return BRIM_DOCTOR_BAD;
    at += n + (at[n] == ',');
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_fraction(const brim_doctor_exam *e, const char *v) {
  double share;
  (void)e;
  if (!brim_parse_f64(v, &share) || !(share > 0)) return BRIM_DOCTOR_BAD;
  return share > 0.9 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_xla(const brim_doctor_exam *e, const char *v) {
  static const char *const slow[] = {
      "xla_dump_to", "xla_gpu_autotune_level=0", "xla_gpu_deterministic_ops=true",
      "xla_backend_optimization_level=0", "xla_force_host_platform_device_count"};
  (void)e;
  for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
    if (strstr(v, slow[i])) return BRIM_DOCTOR_WARN;
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_platforms(const brim_doctor_exam *e, const char *v) {
  return e->gpu_count > 0 && strcasecmp(v, "cpu") == 0 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_threads(const brim_doctor_exam *e, const char *v) {
  int64_t threads = 0;
  char first[32];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(v, ","), v);  // a list is for nested regions
  int most = brim_doctor_cores(e);
  if (!brim_parse_i64(first, &threads) || threads < 1) return BRIM_DOCTOR_BAD;
  if (most < 1) return BRIM_DOCTOR_GOOD;
  return threads > most || (threads == 1 && most > 4) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_debug(const brim_doctor_exam *e, const char *v) {
  static const char *const words[] = {"INFO", "TRACE", "DETAIL"};
  (void)e;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return BRIM_DOCTOR_WARN;
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_library_path(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return strstr(v, "/stubs") ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_GOOD;
}

static const variable variables[] = {
    {"CUDA_LAUNCH_BLOCKING",
     BRIM_N_(
         "At 1 the host waits for every kernel: nothing overlaps, and small kernels run several "
         "times slower. It is for debugging."),
     true_is_bad, NULL},
    {"CUDA_VISIBLE_DEVICES",
     BRIM_N_(
         "Programs see only these GPUs, numbered from 0. An entry that names no GPU hides itself "
         "and all entries behind it."),
     judge_visible, NULL},
    {"CUDA_MODULE_LOADING",
     BRIM_N_("EAGER loads every kernel at the start: more GPU memory, and seconds before the first "
             "step."),
     judge_loading, NULL},
    {"CUDA_CACHE_DISABLE",
     BRIM_N_("At 1 kernels that the driver compiles are compiled again at every start."),
     true_is_slow, NULL},
    {"CUDA_INJECTION64_PATH",
     BRIM_N_(
         "A library is loaded into every CUDA program, usually a profiler. It costs time, and a "
         "second profiler may get no events."),
     set_is_slow, NULL},
    {"NVIDIA_TF32_OVERRIDE",
     BRIM_N_("At 0 cuBLAS and cuDNN never use TF32: fp32 products run without tensor cores."),
     false_is_slow, NULL},
    {"XLA_PYTHON_CLIENT_MEM_FRACTION",
     BRIM_N_("JAX takes this share of the GPU's memory at its start. Above 0.9 little is left for "
             "other processes and for the libraries' own buffers."),
     judge_fraction, "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.75"},
    {"XLA_PYTHON_CLIENT_PREALLOCATE",
     BRIM_N_(
         "At false JAX allocates as it goes: it shares the GPU, with more fragmentation and slower "
         "allocations."),
     false_is_slow, NULL},
    {"XLA_FLAGS",
     BRIM_N_(
         "Flags for dumping, for determinism, without autotuning or with several host devices make "
         "XLA programs slower."),
     judge_xla, NULL},
    {"JAX_ENABLE_X64",
     BRIM_N_("At 1 JAX computes in float64 by default: twice the memory, and on most GPUs a "
             "fraction of "
             "the speed."),
     true_is_slow, NULL},
    {"JAX_DISABLE_JIT", BRIM_N_("At 1 JAX compiles nothing and runs op by op."), true_is_bad, NULL},
    {"JAX_DEBUG_NANS", BRIM_N_("At 1 JAX checks every result on the host, which waits for each."),
     true_is_slow, NULL},
    {"JAX_PLATFORMS", BRIM_N_("cpu hides the GPU from JAX."), judge_platforms, NULL},
    {"TORCH_CUDNN_V8_API_ENABLED",
     BRIM_N_(
         "At 0 PyTorch uses the older cuDNN interface, with fewer fused kernels. PyTorch 2 has it "
         "on by default and needs no variable."),
     false_is_slow, NULL},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING",
     BRIM_N_("At 1 every tensor is allocated by the driver, which waits for the GPU each time."),
     true_is_bad, NULL},
    {"TORCHDYNAMO_DISABLE", BRIM_N_("At 1 torch.compile compiles nothing."), true_is_slow, NULL},
    {"TORCH_DISTRIBUTED_DEBUG",
     BRIM_N_("DETAIL checks every collective against the other ranks, which costs time."),
     judge_debug, NULL},
    {"NCCL_DEBUG", BRIM_N_("INFO and TRACE write a log from inside the collectives."), judge_debug,
     NULL},
    {"NCCL_P2P_DISABLE",
     BRIM_N_("At 1 GPUs exchange data through the host instead of NVLink or PCIe."), true_is_slow,
     NULL},
    {"NCCL_IB_DISABLE", BRIM_N_("At 1 nodes exchange data over TCP instead of InfiniBand."),
     true_is_slow, NULL},
    {"OMP_NUM_THREADS",
     BRIM_N_(
         "More threads than cores wait for each other. One thread leaves the other cores idle in "
         "CPU computations."),
     judge_threads, NULL},
    {"MKL_NUM_THREADS", BRIM_N_("The same for Intel MKL."), judge_threads, NULL},
    {"LD_LIBRARY_PATH",
     BRIM_N_("Folders that are searched first for libraries. A stubs folder has a libcuda.so that "
             "finds "
             "no GPU."),
     judge_library_path,
     "export LD_LIBRARY_PATH=$(echo \"$LD_LIBRARY_PATH\" | tr : '\\n' | grep -v "
     "/stubs | paste -sd:)"},
};

static void check_variables(brim_doctor_exam *e) {
  size_t set = 0;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const variable *v = &variables[i];
    const char *value = brim_doctor_env(e, v->name);
    if (!value) continue;
    brim_doctor_state state = v->judge(e, value);
    char plain[384];
    brim_text_plain(value, plain, sizeof plain);
    brim_doctor_line *line = brim_doctor_say(e, state, "%s=%s", v->name, plain);
    brim_doctor_about(line, v->name);
    brim_doctor_because(line, "%s", brim_tr(v->why));
    set++;
    if (state == BRIM_DOCTOR_GOOD) continue;
    if (v->fix) {
      brim_doctor_fix(line, "%s", v->fix);
    } else {
      brim_doctor_fix(line, "unset %s", v->name);
    }
  }
  if (set == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("none of the %zu that brim knows is set"),
                    sizeof variables / sizeof *variables);
  }
}

const brim_doctor_row brim_doctor_env_rows[] = {
    {"env.variable", BRIM_DOCTOR_GROUP_ENV, BRIM_N_("Variable"),
     BRIM_N_(
         "A variable that was set for debugging slows every program that starts in this shell."),
     check_variables},
    {0}};
