#!/bin/sh
# tools/check_cycles finds cycles of every kind, in C and CUDA, and only those: a small tree that has
# none, then one of each.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check_cycles
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/base src/data/hdf5 src/backend/cuda tools

put() {  # file, then its lines
  file=$1
  shift
  printf '%s\n' "$@" >"$file"
}
good() {
  "$tool" "$tree" >out 2>&1 || { echo "refused: $1"; cat out; exit 1; }
}
expect() {  # text that must stand in the complaint, after a breach was put in
  if "$tool" "$tree" >out 2>&1; then echo "not found: $1"; exit 1; fi
  grep -qF "$1" out || { echo "wrong complaint for: $1"; cat out; exit 1; }
}

put src/base/base.h 'int brim_low(int x);' 'int brim_high(int x);' \
  'extern const int brim_table[2];'
put src/base/base_low.c '#include "base/base.h"' 'int brim_low(int x) { return x; }' \
  '// brim_high(x) calls this' 'static const char *text = "brim_high(1)";' \
  'const char *brim_text(void) { return text; }'
put src/base/base_high.c '#include "base/base.h"' 'int brim_high(int x)' '{' \
  '  return brim_low(x);' '}'
good "one file needs another; a comment and a text name it back"

put src/base/base_low.c 'int brim_high(int x);' 'int brim_low(int x) { return brim_high(x); }'
expect 'src/base: 2 files need each other'
grep -qF 'src/base/base_low.c needs src/base/base_high.c: brim_high' out || { cat out; exit 1; }

put src/base/base_low.c 'const int brim_table[2] = {1, 2};' 'int brim_low(int x) { return x; }'
put src/base/base_high.c '#include "base/base.h"' 'int brim_high(int x) { return brim_table[x]; }'
good "a table is used"
put src/base/base_low.c 'extern int brim_high(int x);' 'const int brim_table[2] = {1, 2};' \
  'int (*brim_of(void))(int) { return brim_high; }'
expect 'src/base/base_high.c needs src/base/base_low.c: brim_table'
put src/base/base_low.c 'int brim_low(int x) { return x; }'
put src/base/base_high.c 'int brim_high(int x) { return x; }'

put src/data/data.h 'int brim_a(void);' 'int brim_b(void);' 'int brim_c(void);' \
  'static inline int brim_inline(void) { return brim_c(); }'
put src/data/data_a.c '#include "data/data.h"' 'int brim_a(void) { return brim_b(); }'
put src/data/hdf5/data_b.c 'int brim_b(void) { return brim_c(); }'
put src/data/data_c.c 'int brim_c(void) { return 1; }'
good "a chain over folders of one room"
put src/data/data_c.c 'int brim_a(void);' 'int brim_c(void) { return brim_a(); }'
expect 'src/data: 3 files need each other'
put src/data/data_c.c '#include "data/data.h"' 'int brim_c(void) { return 1; }'
good "an inline function calls what its includer defines"
put src/data/hdf5/data_b.c '#include "data/data.h"' 'int brim_b(void) { return 1; }'
put src/data/data_c.c 'int brim_b(void);' 'int brim_c(void) { return brim_b(); }'
expect 'src/data/hdf5/data_b.c needs src/data/data_c.c: brim_c'
put src/data/data_c.c 'int brim_c(void) { return 1; }'

put src/backend/cuda/cuda_int.cuh 'extern "C" {' 'int brim_cuda_k(void);' 'int brim_cuda_t(void);' '}'
put src/backend/cuda/cuda_k.cu '#include "backend/cuda/cuda_int.cuh"' \
  'template <typename T>' '__global__ static void k(T *x) { *x = 1; }' \
  'extern "C" int brim_cuda_k(void) { return 0; }'
put src/backend/cuda/cuda_t.cu '#include "backend/cuda/cuda_int.cuh"' 'extern "C" {' \
  'int brim_cuda_t(void) { return brim_cuda_k(); }' '}'
good "CUDA without a cycle: declarations are no use"
put src/backend/cuda/cuda_k.cu '#include "backend/cuda/cuda_int.cuh"' \
  'extern "C" int brim_cuda_k(void) { return brim_cuda_t(); }'
expect 'src/backend/cuda: 2 files need each other'
put tools/known_cycles.txt 'backend/cuda'
good "a known cycle"
put src/backend/cuda/cuda_k.cu 'extern "C" int brim_cuda_k(void) { return 0; }'
expect 'src/backend/cuda: no cycle any more'
rm tools/known_cycles.txt

put src/base/base_one.h '#include "base/base_two.h"'
put src/base/base_two.h '#include "base/base_one.h"'
expect 'src/base/base_one.h needs src/base/base_two.h: #include'
rm src/base/base_one.h src/base/base_two.h
good "the tree without them"
echo "check_cycles: every cycle found"
