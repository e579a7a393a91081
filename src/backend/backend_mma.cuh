// Tensor-core building blocks for 16-bit types: mma.sync m16n8k16 with f32 sums, ldmatrix,
// cp.async. Storage is uint16_t everywhere; T (bf16 or f16) only says how the bits are read. Needs nothing
// of the CUDA backend: kernels of other rooms include it too.
//
// Fragments of one m16n8k16 product, lane = 4 g + t (g 0..7, t 0..3), two values a register, the
// lower index in the lower half:
//   A (16 x 16)  a0 (g, 2t..)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)     (row, k)
//   B (16 x 8)   b0 (2t.., g)  b1 (2t+8.., g)                                        (k, column)
//   C (16 x 8)   c0 c1 (g, 2t 2t+1)  c2 c3 (g+8, 2t 2t+1)                            (row, column)
// So two neighbouring C tiles, packed, are the A fragment of a product over their columns.
#ifndef BRIM_BACKEND_MMA_CUH_
#define BRIM_BACKEND_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

template <typename T>
__device__ static inline void brim_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);

template <>
__device__ inline void brim_mma<__nv_bfloat16>(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void brim_mma<__half>(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats into one register, the first in the lower half; and back.
template <typename T>
__device__ static inline uint32_t brim_pack(float low, float high);

template <>
__device__ inline uint32_t brim_pack<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

template <>
__device__ inline uint32_t brim_pack<__half>(float low, float high) {
  __half2 v = __floats2half2_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

template <typename T>
__device__ static inline float2 brim_unpack(uint32_t bits);

template <>
__device__ inline float2 brim_unpack<__nv_bfloat16>(uint32_t bits) {
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

template <>
__device__ inline float2 brim_unpack<__half>(uint32_t bits) {
  __half2 v;
  memcpy(&v, &bits, sizeof v);
  return __half22float2(v);
}

// v rounded to T, as 16 bits.
template <typename T>
__device__ static inline uint16_t brim_to_bits16(float v) {
  return (uint16_t)(brim_pack<T>(v, 0.0f) & 0xffffu);
}

// Loads four 8 x 8 matrices. Lane l passes the address of row l % 8 of matrix l / 8 (16 bytes,
// aligned). Register i gets the values (g, 2t) and (g, 2t+1) of matrix i; brim_ldmatrix_trans gets
// (2t, g) and (2t+1, g).
__device__ static inline void brim_ldmatrix(uint32_t r[4], const uint16_t *row) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

__device__ static inline void brim_ldmatrix_trans(uint32_t r[4], const uint16_t *row) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// Loads the 16 x 16 piece at p (row-major, `ld` values a row, p and rows 16-byte aligned) as an
// operand of a product; load_at and load_bt transpose it. The product's indices that the piece's
// rows (r) and columns (c) are:
//   load_a    r = row, c = k        -> a0..a3
//   load_at   r = k, c = row        -> a0..a3
//   load_b    r = column, c = k     -> b0 b1 of columns 0..7, b0 b1 of columns 8..15
//   load_bt   r = k, c = column     -> likewise
// brim_rows_first and brim_columns_first return the address that this lane passes to ldmatrix. The
// matrices in register order are those at (0,0) (8,0) (0,8) (8,8) for rows first, as load_a and load_bt
// take them, and (0,0) (0,8) (8,0) (8,8) for columns first, as the others do.
__device__ static inline const uint16_t *brim_rows_first(const uint16_t *p, int ld) {
  int l = (int)threadIdx.x & 31;
  return p + ((l & 7) + ((l >> 3) & 1) * 8) * ld + (l >> 4) * 8;
}
__device__ static inline const uint16_t *brim_columns_first(const uint16_t *p, int ld) {
  int l = (int)threadIdx.x & 31;
  return p + ((l & 7) + (l >> 4) * 8) * ld + ((l >> 3) & 1) * 8;
}
__device__ static inline void brim_load_a(uint32_t a[4], const uint16_t *p, int ld) {
  brim_ldmatrix(a, brim_rows_first(p, ld));
}
__device__ static inline void brim_load_at(uint32_t a[4], const uint16_t *p, int ld) {
  brim_ldmatrix_trans(a, brim_columns_first(p, ld));
}
__device__ static inline void brim_load_b(uint32_t b[4], const uint16_t *p, int ld) {
  brim_ldmatrix(b, brim_columns_first(p, ld));
}
__device__ static inline void brim_load_bt(uint32_t b[4], const uint16_t *p, int ld) {
  brim_ldmatrix_trans(b, brim_rows_first(p, ld));
}

// Copy 16, 8 or 4 bytes to shared memory without waiting; zeros where not `valid`, and then src is not
// read (it must still be an address).
__device__ static inline void brim_copy16(uint16_t *dst, const uint16_t *src, bool valid) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(dst);
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(src), "r"(bytes)
               : "memory");
}
__device__ static inline void brim_copy8(uint16_t *dst, const uint16_t *src, bool valid) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(dst);
  int bytes = valid ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(src), "r"(bytes)
               : "memory");
}
__device__ static inline void brim_copy4(int32_t *dst, const int32_t *src, bool valid) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(dst);
  int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(src), "r"(bytes)
               : "memory");
}
__device__ static inline void brim_copy_commit(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most GROUPS_LEFT committed groups of copies are unfinished.
template <int GROUPS_LEFT>
__device__ static inline void brim_copy_wait(void) {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS_LEFT) : "memory");
}

// 2^x by the special function unit: 2 ulp, 0 for -inf.
__device__ static inline float brim_exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh by the special function unit: within 2^-10.9, an eighth of the spacing of bf16 below 1.
__device__ static inline float brim_tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif  // BRIM_BACKEND_MMA_CUH_
