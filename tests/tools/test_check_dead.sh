#!/bin/sh
# tools/check_dead finds functions that only tests call, and no others: a small tree in which every kind of path reaches
# a function, then one dead function after the other, and the list of exceptions.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check_dead
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/a include/brim tests tools

put() {  # file, then its lines
  file=$1
  shift
  printf '%s\n' "$@" >"$file"
}
good() {
  "$tool" "$tree" >out 2>&1 || { echo "refused: $1"; cat out; exit 1; }
}
expect() {  # text that must stand in the complaint
  if "$tool" "$tree" >out 2>&1; then echo "not found: $1"; exit 1; fi
  grep -qF "$1" out || { echo "wrong complaint for: $1"; cat out; exit 1; }
}

put include/brim/api.h 'int brim_public(void);'
put src/a/a.h 'int brim_called(void);' 'int brim_row(void);' 'int brim_op_add_run(void);' \
  'int brim_by_macro(void);' 'int brim_inner(void);' 'int brim_loose(void);' \
  'static inline int twice(void) { return brim_inner() + brim_inner(); }' \
  '#define BOTH() brim_by_macro()'
put src/a/a.c 'int brim_called(void) { return 1; }' 'int brim_row(void) { return 2; }' \
  'int brim_op_add_run(void) { return 3; }' 'int brim_by_macro(void) { return 4; }' \
  'int brim_inner(void) { return 5; }' 'int brim_public(void) { return 6; }'
put src/a/main.c '#define OP(name) brim_op_##name##_run' 'static int (*const table[])(void) = {' \
  '    brim_row, OP(add)};' 'static int helper(void) { return brim_called() + twice(); }' \
  'int main(void) { return table[0]() + helper(); }'
put src/a/first.c 'int brim_early(void) { return 9; }' \
  '__attribute__((constructor)) static void before_main(void) { brim_early(); }'
put tests/test_a.c 'int main(void) { return brim_loose(); }'
good "calls, tables, macros, headers and the public interface reach a function"

put src/a/b.c '// brim_loose is called' 'const char *text = "brim_loose";' \
  'int brim_loose(void);' 'int brim_loose(void) { return 7; }'
expect 'src/a/b.c:4: brim_loose: no product path reaches it'
put src/a/b.c 'int brim_deep(void) { return 8; }' 'int brim_loose(void) { return brim_deep(); }'
expect 'src/a/b.c:1: brim_deep: no product path reaches it'
put src/a/b.c 'int brim_self(int n) { return n ? brim_self(n - 1) : 0; }'
expect 'src/a/b.c:1: brim_self: no product path reaches it'
put src/a/b.c 'int brim_deep(void) { return 8; }' 'int brim_loose(void) { return brim_deep(); }'
put tools/known_dead.txt '# kept' 'brim_loose a reason'
good "a function that is kept, and what it calls"
put tools/known_dead.txt 'brim_loose'
expect 'tools/known_dead.txt: brim_loose: give a reason'
put tools/known_dead.txt 'brim_loose a reason' 'brim_called a reason'
expect 'tools/known_dead.txt: brim_called: reached or gone; take the line out'
put tools/known_dead.txt 'brim_loose a reason' 'brim_gone a reason'
expect 'tools/known_dead.txt: brim_gone: reached or gone; take the line out'
