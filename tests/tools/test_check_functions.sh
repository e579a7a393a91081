#!/bin/sh
# tools/check_functions finds long functions and long parameter lists in C and CUDA, and only those.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check_functions
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src tests tools

good() {
  "$tool" "$tree" >out 2>&1 || { echo "refused: $1"; cat out; exit 1; }
}
expect() {  # text that must stand in the complaint
  if "$tool" "$tree" >out 2>&1; then echo "not found: $1"; exit 1; fi
  grep -qF "$1" out || { echo "wrong complaint for: $1"; cat out; exit 1; }
}
long() {  # a function whose body has so many lines
  echo "// A comment with a brace {"
  echo "static int $1("
  echo "    int x) {"
  for i in $(seq "$2"); do echo "  x += $i;  /* } */ puts(\"{\");"; done
  echo "}"
}

long sixty 57 >src/a.c
good "60 lines"
long longer 58 >src/a.c
expect 'src/a.c:2: longer: 61 lines, at most 60'
echo "longer for a reason" >tools/known_functions.txt
good "a known one"
long longer 57 >src/a.c
expect 'longer: within the limits'
rm tools/known_functions.txt

cat >src/a.c <<END
typedef int (*callback)(int a, int b, int c, int d, int e, int f, int g, int h);
int seven(int a, int b, int c, int d, int e, int (*f)(int, int), int g[2][3], ...) {
  return a;
}
#define MANY(a, b, c, d, e, f, g, h) (a)
struct table {
  int (*row)(int a, int b, int c, int d, int e, int f, int g, int h);
};
static const struct table rows[] = {{0}};
int none(void) { return seven(1, 2, 3, 4, 5, 0, 0, 8, 9); }
END
good "seven parameters, and calls and types with more"
cat >tests/b.c <<END
static inline __attribute__((unused)) void
eight(int a, int b, int c, int d, int e, int f, int g, int (*h)(int, int)) {
  (void)a;
}
END
expect 'tests/b.c:1: eight: 8 parameters, at most 7'
rm tests/b.c
cat >src/k.cu <<END
extern "C" {
template <typename T, int N>
__global__ static void __launch_bounds__(256)
    kernel(const T *a, T *b, int c, int d, int e, int f, int g, int h) {
}
}
END
expect 'src/k.cu:2: kernel: 8 parameters, at most 7'
rm src/k.cu
good "the tree without them"
echo "check_functions: every breach found"
