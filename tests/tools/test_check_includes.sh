#!/bin/sh
# tools/check_includes finds each kind of breach, and only those: a small tree with one of each.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check_includes
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/base src/engine src/data src/backend/cpu include/brim tests examples
mkdir -p src/workload/ars src/workload/learn src/run

put() {  # file, then its lines
  file=$1
  shift
  printf '%s\n' "$@" >"$file"
}
put src/base/base.h '#include "brim/status.h"'
put include/brim/status.h '#include <stddef.h>'
put src/base/base.c '#include "base/base.h"'
put src/base/CMakeLists.txt 'base.c'
put src/engine/CMakeLists.txt 'engine.c engine_low.c engine_first.c'
put src/engine/engine.h '#include "base/base.h"'
put src/engine/engine.c '#include "engine/engine.h"' '#include "base/base.h"'
put src/data/data_int.h ''
put src/backend/cpu/CMakeLists.txt 'cpu.c'
put src/backend/cpu/cpu.c '#include <dnnl.h>' '#include "base/base.h"'
put src/workload/CMakeLists.txt 'workload.c ars.c'
put src/workload/workload.c '#include "workload/workload_int.h"'
put src/workload/workload_int.h '#include "engine/engine.h"'
put src/workload/ars/ars.h '#include "engine/engine.h"'
put src/workload/ars/ars.c '#include "workload/ars/ars.h"' '#include "workload/workload_int.h"'
put src/workload/learn/learn.h '#include "engine/engine.h"'
"$tool" "$tree" >/dev/null || { echo "a good tree is refused"; exit 1; }

expect() {  # text that must stand in the complaint, after a breach was put in
  if "$tool" "$tree" >out 2>&1; then echo "not found: $1"; exit 1; fi
  grep -qF "$1" out || { echo "wrong complaint for: $1"; cat out; exit 1; }
}
put src/engine/engine_low.c '#include "engine/engine.h"' '#include "data/data_int.h"'
expect 'src/engine/engine_low.c:2: src/engine may not include src/data'
rm src/engine/engine_low.c
put src/workload/learn/learn.h '#include "workload/ars/ars.h"'
expect 'learn.h:1: src/workload/learn may not include src/workload/ars'
put src/workload/learn/learn.h ''
put src/workload/workload.c '#include "workload/ars/ars.h"'
expect 'src/workload/workload.c:1: src/workload may not include src/workload/ars'
put src/workload/workload.c '#include "workload/workload_int.h"'
put src/run/run.h '#include "workload/ars/ars.h"'
expect 'src/run/run.h:1: src/run may not include src/workload/ars'
put src/run/run.h '#include "workload/workload_int.h"'
expect '"workload/workload_int.h" is for the inside of src/workload alone'
put src/run/run.h ''
put src/base/base.h '#include "engine/engine.h"'
expect 'src/base/base.h:1: src/base may not include src/engine'
put src/base/base.h '#include <dnnl.h>'
expect 'src/base/base.h:1: <dnnl.h> belongs in src/backend/cpu alone'
put src/base/base.h '/* #include "engine/engine.h" */' '#include <cuda_runtime.h>'
expect 'src/base/base.h:2: <cuda_runtime.h> belongs in a .cu file alone'
put src/base/base.h ''
put src/base/base.c '#include <stdio.h>' '#include "base/base.h"'
expect 'src/base/base.c:1: its own header "base/base.h" must come first'
put src/base/base.c '#include "base/base.h"'
put src/base/base_new.c '#include "base/base.h"'
expect 'base_new.c is in no CMakeLists.txt'
rm src/base/base_new.c
put include/brim/status.h '#include "base/base.h"'
expect 'include/brim/status.h:1: a public header may not include'
put include/brim/status.h ''
put examples/one.c '#include "base/base.h"'
expect 'examples/one.c:1: an example may include only'
rm examples/one.c
"$tool" "$tree" >/dev/null || { echo "the tree is good again and still refused"; exit 1; }
echo "check_includes: every breach found"
