#!/bin/sh
# tools/build's choice of GPU code for CMake, with cmake and nvidia-smi played by scripts: machines without a GPU, with
# two kinds of them and with one that is too old, CUDA=..., and the choice that a configured folder keeps.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/tools" "$work/bin"
cp "$tool" "$work/tree/tools/build"
cd "$work"
fail() {
  echo "build: $1"
  cat out calls
  exit 1
}
play() {  # name, then a script's body
  printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"
  chmod +x "bin/$1"
}
# The script notes its arguments, and stores -D values like CMake.
# shellcheck disable=SC2016  # for the played script to expand
play cmake '
echo "$*" >>"$CALLS"
case $1 in --build) exit 0 ;; esac
for a in "$@"; do
  case $a in
    -DBRIM_CUDA_FOR=*) echo "BRIM_CUDA_FOR:STRING=${a#*=}" >build/CMakeCache.txt ;;
    -DBRIM_CUDA_QUICK=*) echo "BRIM_CUDA_QUICK:BOOL=${a#*=}" >>build/CMakeCache.txt ;;
  esac
done
echo CMOCKA_FOUND:INTERNAL=1 >>build/CMakeCache.txt
touch build/build.ninja'
gpus() {  # lines of compute capabilities, or none
  if [ $# -eq 0 ]; then
    play nvidia-smi 'exit 9'
  else
    play nvidia-smi "printf '%s\\n' $*"
  fi
}
run() {  # expected status, CUDA, arguments
  want=$1 cuda=$2
  shift 2
  : >calls
  status=0
  CUDA=$cuda CALLS=$work/calls PATH=$work/bin:$PATH tree/tools/build "$@" >out 2>&1 || status=$?
  [ $status -eq "$want" ] || fail "exit status $status, expected $want"
}
configured() { grep -q -- "--preset default.*$1" calls || fail "cmake was not given: $1"; }
unset BRIM_CUDA_QUICK BUILD_DIR

gpus
run 0 '' default bin
configured '-DBRIM_CUDA=OFF'
grep -q 'CUDA=all' out || fail "does not say how to get GPU code"
grep -q -- '--target brim_installed' calls || fail "builds more than what is installed"
run 0 '' default
if grep -q -- --preset calls; then fail "configures again though nothing changed"; fi
grep -q 'CUDA=all' out || fail "says it the first time only"

gpus 9.0 8.6 9.0
run 0 '' default
configured '-DBRIM_CUDA=ON -DBRIM_CUDA_ARCHS=86;90'
gpus 12.0
run 0 '' default
configured '-DBRIM_CUDA_ARCHS=90'
gpus 7.5
run 0 '' default
configured '-DBRIM_CUDA=OFF'

run 0 all default
configured '-DBRIM_CUDA=ON -UBRIM_CUDA_ARCHS'
gpus 9.0
run 0 '' default
if grep -q -- --preset calls; then fail "forgets what was asked for"; fi
run 0 '80 90' default
configured '-DBRIM_CUDA_ARCHS=80;90'
mkdir -p tree/build/lib/brim
touch tree/build/lib/brim/libbrim_cuda.so
run 0 none default
configured '-DBRIM_CUDA=OFF'
if [ -e tree/build/lib/brim/libbrim_cuda.so ]; then fail "leaves the plug-in of an earlier build"; fi
if grep -q 'CUDA=all' out; then fail "explains what was asked for"; fi
run 2 nonsense default
if [ -s calls ]; then fail "goes on with a CUDA= that it does not know"; fi
rm -rf tree/build
BRIM_CUDA_QUICK=1
export BRIM_CUDA_QUICK
run 0 80 default
configured '-DBRIM_CUDA_QUICK=ON'
unset BRIM_CUDA_QUICK
run 0 '' default
configured '-DBRIM_CUDA_QUICK=OFF'
