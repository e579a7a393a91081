#!/bin/sh
# tools/check's choice of tests, in a small tree with ninja and ctest played by scripts: those near to a file within the
# budget, all that its room is linked into, none without a change, and its message without git.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/a tree"
mkdir -p "$tree/tools" "$tree/src/base" "$tree/tests/base" "$tree/build/tests/base" "$work/bin"
cp "$tool" "$tree/tools/check"
cd "$tree"
fail() {
  echo "check: $1"
  cat "$work/out" "$work/calls"
  exit 1
}
echo 'int brim_str_make(int n) { return n; }' >src/base/base_str.c
echo 'int main(void) { return brim_str_make(0); }' | tee tests/base/test_base_str.c >tests/base/test_base_use.c
echo 'int main(void) { return 0; }' >tests/base/test_base_far.c
for name in str use far; do
  echo "BRIM_TEST_MAIN(test_base_$name, main_of_test_base_$name)" >>build/tests/base/base_tests.inc
  ln -s base_tests "build/tests/test_base_$name"
done
printf '#!/bin/sh\n' >build/tests/base_tests
chmod +x build/tests/base_tests
touch build/build.ninja
# shellcheck disable=SC2016  # for the played scripts to expand
cat >"$work/bin/ninja" <<'END'
#!/bin/sh
case "$*" in
  *targets*) printf '%s: phony\n' test_base_str test_base_use test_base_far brim ;;
  *inputs*) echo lib/libbrim_base.a ;;
  *) echo "ninja $*" >>"$CALLS" ;;
esac
END
cat >"$work/bin/ctest" <<'END'
#!/bin/sh
case "$*" in
  *show-only*)
    printf '{"tests": ['
    for name in str use far; do
      printf '{"name": "test_base_%s", "command": ["test_cost", "/b/tests/test_base_%s"]},' $name $name
    done
    printf '{"name": "check_words", "command": ["tools/check_words"]}]}' ;;
  *) echo "ctest $*" >>"$CALLS" ;;
esac
END
chmod +x "$work/bin/ninja" "$work/bin/ctest"
run() {  # expected status, arguments
  want=$1
  shift
  : >"$work/calls"
  status=0
  CALLS=$work/calls PATH=$work/bin:$PATH GIT_DIR=$work/none tools/check "$@" >"$work/out" 2>&1 || status=$?
  [ $status -eq "$want" ] || fail "exit status $status, expected $want"
}
ran() { grep -q "^ctest .*[(|]$1[|)]" "$work/calls"; }

run 0 src/base/base_str.c
ran test_base_str || fail "leaves out the test of the file's name"
ran test_base_use || fail "leaves out a test that calls the file's function"
if ran test_base_far; then fail "runs a test that is not near"; fi
grep -q '^ninja .*test_base_use' "$work/calls" || fail "does not build what it runs"

# Beyond the budget only the nearest test runs.
printf '%s\n' '6 6 test_base_str' '6 6 test_base_use' >build/costs-main.txt
run 0 src/base/base_str.c
ran test_base_str || fail "leaves out the nearest test"
if ran test_base_use; then fail "runs more than the budget allows"; fi

run 0 --all src/base/base_str.c
ran test_base_use || fail "--all keeps to the budget"
ran test_base_far || fail "--all leaves out a test of the room"

run 2 src/base/none.c
run 1  # without git nobody says what changed
if [ -s "$work/calls" ]; then fail "runs tests though nobody said what changed"; fi
