// Inside the cpu plug-in: the device, the host's functions, the thread team, the product providers
// and the op entry points. The plug-in links nothing of brim, so the few tensor helpers that it
// needs are here.
#ifndef BRIM_BACKEND_CPU_INT_H_
#define BRIM_BACKEND_CPU_INT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "base/base_machine.h"
#include "brim/plugin.h"

#define BRIM_CPU_ALIGN 64

//---------------------------------- host ----------------------------------

const brim_host_api *brim_cpu_host(void);
// The value of BRIM_CPU_MASK when the plug-in was loaded: bits BRIM_CPU_MASK_*.
unsigned brim_cpu_masked(void);
brim_status brim_cpu_fail(brim_status status, const char *format, ...) BRIM_PRINTF(2, 3);

//---------------------------------- team ----------------------------------

// Makes the team at least `threads` large. Returns 0, or the errno of a thread that could not be started;
// *started is the team's size.
int brim_cpu_team_start(int threads, int *started);
// Runs a body once per rank. The caller is rank 0 and takes ranks that no other thread has begun. size is
// `threads`, at most the team's size. Work that has to wait for all ranks needs a second run. A barrier
// inside a body would need all threads at once, and beside other programs one of them may not be running.
typedef void (*brim_cpu_body)(void *arg, int rank, int size);
void brim_cpu_team_run(int threads, brim_cpu_body body, void *arg);
// Sets the number of threads that oneDNN takes on the calling thread.
void brim_cpu_team_set_default(int threads);

// Waking and joining a team takes about 10 us, and milliseconds beside other programs, so work of less
// than about 50 us stays on one thread. The limits are the least work for a team. The choice may change
// bits, so it depends on shapes alone.
enum {
  BRIM_CPU_TEAM_ELEMENTS = 65536,    // elements of an op that reads and writes each
  BRIM_CPU_TEAM_EXPS = 16384,        // elements of an op that computes an exponential of each
  BRIM_CPU_TEAM_PRODUCTS = 2000000,  // multiply-adds, at 80 GFLOP/s per thread
};
static inline int brim_cpu_team_for(int threads, double work, double least) {
  return work < least ? 1 : threads;
}

// The share [*lo, *hi) of `count` items of thread `rank`, cut at multiples of `grain`.
static inline void brim_cpu_split(int64_t count, int64_t grain, int rank, int size, int64_t *lo,
                                  int64_t *hi) {
  int64_t blocks = (count + grain - 1) / grain;
  int64_t begin = blocks * rank / size * grain, end = blocks * (rank + 1) / size * grain;
  *lo = begin < count ? begin : count;
  *hi = end < count ? end : count;
}

//---------------------------------- machine ----------------------------------

typedef struct brim_cpu_machine {
  char model[52];
  char features[44];  // features that brim uses: "neon bf16", "avx512f amx_bf16"
  int threads;        // CPUs that this process may run on
  bool neon, neon_bf16;
  bool amx;  // bf16 tiles, which the operating system lets this process use
} brim_cpu_machine;

// True if the CPU has bf16 tiles. Asks the operating system for them, for every thread of this process.
bool brim_cpu_amx_permitted(void);

//---------------------------------- matrix products ----------------------------------

// C(m,n) = epilogue(A(m,k) B(k,n)). The op decides how A and B lie in memory:
//   LINEAR             A = x(m,k)   B = w(n,k)'  C = y:  + bias(n), act
//   LINEAR_BWD_DATA    A = dy(m,k)  B = w(k,n)   C = dx: times act'(s(m,n))
//   LINEAR_BWD_WEIGHT  A = dy(k,m)' B = x(k,n)   C = dw: f32, added to when accumulate
typedef struct brim_cpu_gemm {
  brim_op op;
  brim_dtype type;  // type of A, B, bias, s, and of C except for LINEAR_BWD_WEIGHT
  int64_t m, n, k;
  bool bias, accumulate;
  brim_act act;
  int threads;
  size_t cap;     // workspace cap in bytes, 0 = none
  bool planning;  // prepare only finds the workspace; the product is never run
} brim_cpu_gemm;

typedef struct brim_cpu_gemm_args {
  const void *a, *b, *bias, *s;
  void *c;
  void *workspace;
} brim_cpu_gemm_args;

// A convolution or one of its gradients; dimensions as in the op table.
typedef struct brim_cpu_conv {
  brim_op op;
  brim_dtype type;     // type of activations and weights; a gradient of weights is f32
  int64_t n, h, w, c;  // x
  int64_t m, r, s;     // w(m, r, s, c)
  int64_t p, q;        // y(n, p, q, m)
  int64_t stride, pad;
  bool accumulate;  // CONV_BWD_WEIGHT
  // A LINEAR op computed as a convolution of one pixel (cpu_linear.c): members as in brim_cpu_gemm.
  bool bias;
  brim_act act;
  int threads;
  size_t cap;
  bool planning;
} brim_cpu_conv;

// a and b of brim_cpu_gemm_args are the op's inputs, c is its output.
typedef struct brim_cpu_conv_table {
  brim_status (*prepare)(const brim_cpu_machine *machine, const brim_cpu_conv *conv, void **state,
                         size_t *workspace_bytes);
  brim_status (*run)(const void *state, const brim_cpu_gemm_args *args);
  void (*release)(void *state);
  bool pointwise;  // also computes 1 x 1 convolutions; else these become matrix products
} brim_cpu_conv_table;

typedef struct brim_cpu_gemm_provider {
  const char *name;
  // True if this build and this machine have the provider; `text` names the library or kernels.
  bool (*available)(const brim_cpu_machine *machine, char *text, size_t text_size);
  bool (*supports)(const brim_cpu_machine *machine, brim_dtype type);
  // True if this CPU multiplies the type faster than f32.
  bool (*fast)(const brim_cpu_machine *machine, brim_dtype type);
  // True if the provider also beats the loops for narrow layers (cpu_linear.c). NULL = never.
  bool (*narrow)(const brim_cpu_machine *machine, brim_dtype type);
  brim_status (*prepare)(const brim_cpu_machine *machine, const brim_cpu_gemm *gemm, void **state,
                         size_t *workspace_bytes);
  brim_status (*run)(const void *state, const brim_cpu_gemm_args *args);
  void (*release)(void *state);
  const brim_cpu_conv_table *conv;
} brim_cpu_gemm_provider;

// Hides from oneDNN the features that BRIM_CPU_MASK hides; call it before any other use of oneDNN.
void brim_cpu_onednn_mask(unsigned mask);

extern const brim_cpu_gemm_provider brim_cpu_gemm_onednn;
extern const brim_cpu_gemm_provider brim_cpu_gemm_own;
extern const brim_cpu_gemm_provider brim_cpu_gemm_portable;
extern const brim_cpu_conv_table brim_cpu_conv_onednn;
extern const brim_cpu_conv_table brim_cpu_conv_own;
extern const brim_cpu_conv_table brim_cpu_conv_portable;
extern const brim_cpu_conv_table brim_cpu_conv_amx;  // bf16, channels in 32s: see cpu_conv.c
extern const int brim_cpu_amx_least_images;          // fewest images per block of 32, on average

// The most usual end of a product, done by the kernel itself on whole tiles: adds bias, applies relu or
// relu's derivative (s > 0), and stores into C.
typedef struct brim_cpu_finish {
  void *c;               // element of C at the tile's corner
  const void *bias, *s;  // elements at the same corner, or NULL
  int64_t ld;            // elements from row to row of C and s
  bool relu, c_f32;
} brim_cpu_finish;

// A set of own kernels. A panel holds `width` rows (mr of A or nr columns of B) of a k-block, in
// groups of kg along k: [k / kg][width][kg], zero-padded, elements of pack_bytes.
typedef struct brim_cpu_kernel {
  const char *name;
  int mr, nr, kg;
  int kc, mc;  // sizes of a block of k, and of a block of rows of A that stays in L2
  size_t pack_bytes;
  // dst <- rows x k elements of src; k_contiguous: (r, i) at src[r * ld + i], else src[i * ld + r].
  void (*pack)(void *dst, int width, const void *src, int64_t ld, int rows, int k,
               bool k_contiguous);
  // Packs elements that lie apart. If k_contiguous, at[r] + offset (bytes) has the k elements of row r, else
  // at[i] + offset has the `rows` elements of step i.
  void (*gather)(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                 bool k_contiguous);
  // tile(mr, nr) = the sum over groups (at least 1). May read up to BRIM_CPU_ALIGN bytes past a panel.
  void (*tile)(int64_t groups, const void *a, const void *b, float *tile);
  // (optional; default: plain loops) Ends a product as brim_cpu_finish says.
  void (*finish)(const float *tile, const brim_cpu_finish *how);
} brim_cpu_kernel;

#define BRIM_CPU_MAX_TILE 192

extern const brim_cpu_kernel brim_cpu_kernel_neon_f32;  // pack is NULL where not compiled
extern const brim_cpu_kernel brim_cpu_kernel_neon_bf16;
extern const brim_cpu_kernel brim_cpu_kernel_portable_f32;
extern const brim_cpu_kernel brim_cpu_kernel_portable_bf16;  // widens to f32 when packing
// The fastest kernels for this machine and type.
const brim_cpu_kernel *brim_cpu_kernel_for(const brim_cpu_machine *machine, brim_dtype type);
// The machine without its vector features; the portable provider runs on it.
brim_cpu_machine brim_cpu_machine_plain(const brim_cpu_machine *machine);

//---------------------------------- device ----------------------------------

typedef struct brim_cpu_device {
  brim_cpu_machine machine;
  int threads;
  size_t workspace_cap;
  pid_t pid;  // process that opened the device: OpenMP's threads do not survive a fork
  const brim_cpu_gemm_provider *provider;
  bool amx_kernels;  // brim_cpu_conv_amx computes the shapes it can, instead of the provider
} brim_cpu_device;

// Fails in a forked process. Every run calls it.
brim_status brim_cpu_check_process(const brim_cpu_device *device);
// Runs an op that touches each element: checks the process and runs `body` over `count` elements, on the
// team if there are enough elements.
brim_status brim_cpu_spread(void *impl, int64_t count, brim_cpu_body body, void *arg);

//---------------------------------- ops ----------------------------------

// The validate of every row. The host has checked shapes; this refuses types without code.
brim_status brim_cpu_validate(void *impl, const brim_op_call *call);

extern const brim_op_family brim_cpu_linear_ops;
extern const brim_op_family brim_cpu_conv_ops;
extern const brim_op_family brim_cpu_batchnorm_ops;
extern const brim_op_family brim_cpu_pool_ops;
extern const brim_op_family brim_cpu_attention_ops;
extern const brim_op_family brim_cpu_elementwise_ops;
extern const brim_op_family brim_cpu_norm_ops;
extern const brim_op_family brim_cpu_loss_ops;
extern const brim_op_family brim_cpu_ntxent_ops;
extern const brim_op_family brim_cpu_knn_ops;
extern const brim_op_family brim_cpu_optimizer_ops;

// Arguments of ADD or ACT_BWD on plain arrays: y = a + b, or y = a * act'(b). y may be a or b. For providers
// that do not compute these ops themselves.
typedef struct brim_cpu_map_arg {
  const void *a, *b;
  void *y;
  brim_dtype type;
  int64_t count;
  brim_act act;
} brim_cpu_map_arg;
// Runs ADD if op is ADD, else ACT_BWD, over arg.count elements.
void brim_cpu_add_or_act_bwd(int threads, brim_op op, brim_cpu_map_arg arg);

// out(cols) = or += the sum over rows of data(rows, cols). The same bits for any number of threads.
typedef struct brim_cpu_column_sum {
  const void *data;
  brim_dtype type;
  int64_t rows, cols;
  float *out;
  bool accumulate;
  float *workspace;  // brim_cpu_column_sum_bytes large
} brim_cpu_column_sum;
size_t brim_cpu_column_sum_bytes(int64_t rows, int64_t cols);
void brim_cpu_column_sum_run(int threads, brim_cpu_column_sum sum);

//---------------------------------- small products ----------------------------------

// C(m,n) = or += A(m,k) B(k,n) on one thread, all f32 and in cache. B is read and C written up to the next
// multiple of BRIM_CPU_SMALL_COLS columns.
#define BRIM_CPU_SMALL_COLS 16
typedef struct brim_cpu_small {
  int64_t m, n, k;
  const float *a;
  int64_t a_row, a_step;  // A(i, p) is a[i * a_row + p * a_step]
  const float *b;
  int64_t b_ld;
  float *c;
  int64_t c_ld;
  bool add;
} brim_cpu_small;
void brim_cpu_small_run(const brim_cpu_small *s);

//---------------------------------- tensors ----------------------------------

static inline size_t brim_cpu_size(brim_dtype type) { return type == BRIM_F32 ? 4 : 2; }
static inline size_t brim_cpu_round64(size_t bytes) {
  return (bytes + BRIM_CPU_ALIGN - 1) / BRIM_CPU_ALIGN * BRIM_CPU_ALIGN;
}
static inline int64_t brim_cpu_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t brim_cpu_ceil_div(int64_t x, int64_t by) { return (x + by - 1) / by; }
static inline int64_t brim_cpu_round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
// Reads a count of the state (BRIM_STATE_ROWS, BRIM_STATE_SAMPLES), limited to 0 to `most`.
static inline int64_t brim_cpu_valid(const double *state, int which, int64_t most) {
  double n = state[which];
  return n > 0 ? (n < (double)most ? (int64_t)n : most) : 0;
}
// The number of rows of a batch of `rows` that are no padding.
static inline int64_t brim_cpu_valid_rows(const double *state, int64_t rows) {
  return brim_cpu_valid(state, BRIM_STATE_ROWS, rows);
}

static inline int64_t brim_cpu_elements(const brim_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dim[i];
  return t->rank ? n : 0;
}

static inline int64_t brim_cpu_cols(const brim_tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t brim_cpu_rows(const brim_tensor *t) {
  int64_t cols = brim_cpu_cols(t);
  return cols ? brim_cpu_elements(t) / cols : 0;
}

// NULL if the optional tensor is left out or has rank 0.
static inline const brim_tensor *brim_cpu_in(const brim_op_call *call, int i) {
  return i < call->in_count && call->in[i].rank ? &call->in[i] : NULL;
}
static inline const brim_tensor *brim_cpu_out(const brim_op_call *call, int i) {
  return i < call->out_count && call->out[i].rank ? &call->out[i] : NULL;
}

#endif  // BRIM_BACKEND_CPU_INT_H_
