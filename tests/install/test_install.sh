#!/bin/sh
# The installed files suffice: this installs the build into a fresh prefix, builds every examples/*.c against it twice
# (pkg-config, find_package), and runs it. plugin_*.c becomes a shared object that `brim --plugin` loads; the others are
# programs, run with a config (measure: and a file for its records) and a small dataset. Arguments: source folder, build
# folder, compiler.
set -eu
src=$1 build=$2 cc=$3
work=$build/tests/run/install
rm -rf "$work"
mkdir -p "$work"
prefix="$work/a prefix"  # with a blank: paths must be quoted all the way
fail() {
  echo "install: $1" >&2
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || fail "cmake --install failed"
lib=$(dirname "$(find "$prefix" -name libbrim.so | head -n 1)")
[ -e "$lib/libbrim.so.0" ] || fail "no libbrim.so.0 under the prefix"
[ -e "$prefix/include/brim/status.h" ] || fail "no public header under the prefix"
[ -e "$prefix/share/brim/configs/demo.yaml" ] || fail "no configs under the prefix"
# A workload's name selects its config, wherever brim is installed.
(cd "$work" && "$prefix/bin/brim" config show contrastive) >"$work/contrastive" 2>&1 ||
  fail "brim config show contrastive: $(cat "$work/contrastive")"
grep -q 'gradient_accumulation' "$work/contrastive" || fail "contrastive is not stl10_config.yaml"
for file in bash-completion/completions/brim zsh/site-functions/_brim man/man1/brim.1 \
  man/ko/man1/brim.1; do
  [ -s "$prefix/share/$file" ] || fail "no share/$file under the prefix"
done

# The library exports exactly the API: every BRIM_API name in the headers, and no other.
nm -D --defined-only "$lib/libbrim.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
  sort -u >"$work/exported"
if grep -v '^brim_' "$work/exported"; then fail "libbrim.so exports names that are not brim's"; fi
# (plug-ins define brim_plugin_query.)
cat "$prefix"/include/brim/*.h | sed 's|//.*||' | tr '\n' ' ' | grep -oE 'BRIM_API [^;{}]*' |
  sed -n 's/^[^(]*[ *]\(brim_[a-z0-9_]*\)(.*/\1/p' | grep -vx brim_plugin_query |
  sort -u >"$work/declared"
comm -23 "$work/declared" "$work/exported" >"$work/absent"
if [ -s "$work/absent" ]; then
  cat "$work/absent"
  fail "declared BRIM_API in a header but not in libbrim.so"
fi
comm -13 "$work/declared" "$work/exported" >"$work/extra"
if [ -s "$work/extra" ]; then
  cat "$work/extra"
  fail "exported by libbrim.so but not declared BRIM_API in a header"
fi

# The installed program finds its plug-ins and libraries on its own.
if [ -x "$prefix/bin/brim" ]; then
  (cd / && env -u LD_LIBRARY_PATH "$prefix/bin/brim" version >"$work/version.log") ||
    fail "the installed brim does not run"
fi

# A sweep starts the installed program for each experiment, wherever it is installed.
cat >"$work/grid.yaml" <<END
backend: ref
device: cpu
dataset: synthetic(shape=(6,), classes=3, samples=96)
model: mlp(depth=1, hidden=8)
data: {num_workers: 0}
lr: [0.1, 0.01]
epochs: 1
END
(cd "$work" && env -u LD_LIBRARY_PATH "$prefix/bin/brim" sweep grid.yaml) >"$work/sweep.log" 2>&1 ||
  { cat "$work/sweep.log"; fail "the installed brim cannot run a sweep"; }
(cd "$work" && "$prefix/bin/brim" sweep export) >"$work/sweep.jsonl" || fail "brim sweep export failed"
[ "$(grep -c '"state":"done"' "$work/sweep.jsonl")" = 2 ] ||
  { cat "$work/sweep.jsonl"; fail "the experiments of the installed brim are not done"; }

set -- "$src"/examples/*.c
[ -e "$1" ] || { echo "install: examples/ holds no program"; exit 77; }

export PKG_CONFIG_PATH="$lib/pkgconfig"
# pkg-config quotes the blank in the prefix for the shell, so its words are read back by eval.
flags=$(pkg-config --cflags --libs brim)
mkdir -p "$work/pc" "$work/cm"
# shellcheck disable=SC2034  # used inside eval
for file in "$src"/examples/*.c; do
  name=$(basename "$file" .c)
  case $name in
    plugin_*) shape="-shared -fPIC" out=$name.so ;;
    *) shape='' out=$name ;;
  esac
  eval "\"\$cc\" -std=c17 -Wall -Wextra -Werror $shape \"\$file\" -o \"\$work/pc/\$out\" $flags \
    -Wl,-rpath,\"\$lib\" -lm" || fail "$name.c does not build with pkg-config"
done

cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(examples C)
set(CMAKE_C_STANDARD 17)
find_package(brim 0.1 REQUIRED)
file(GLOB files "$src/examples/*.c")
foreach(file \${files})
  get_filename_component(name \${file} NAME_WE)
  if(name MATCHES "^plugin_")
    add_library(\${name} MODULE \${file})
    set_target_properties(\${name} PROPERTIES PREFIX "")
  else()
    add_executable(\${name} \${file})
  endif()
  target_link_libraries(\${name} PRIVATE brim::brim m)
endforeach()
END
{
  cmake -S "$work" -B "$work/cm" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" &&
    cmake --build "$work/cm"
} >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "find_package(brim) failed"; }

"$prefix/bin/brim" data make "$work/data.h5" --shape 600,2 --samples 600 --targets 4 --dtype f32 >/dev/null ||
  fail "brim data make failed"
config=$prefix/share/brim/configs/demo.yaml
ran=0
for how in pc cm; do
  for file in "$src"/examples/*.c; do
    name=$(basename "$file" .c)
    case $name in plugin_*) continue ;; esac
    mkdir -p "$work/$how-run"
    case $name in
      measure) set -- "$config" records.jsonl ;;
      *) set -- "$config" ;;
    esac
    (cd "$work/$how-run" &&
      env -u LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES= "$work/$how/$name" "$@" "data.path=$work/data.h5" >"$name.log" 2>&1) ||
      { cat "$work/$how-run/$name.log"; fail "$name ($how) exited with an error"; }
    [ -s "$work/$how-run/$name.log" ] || fail "$name ($how) printed nothing"
    ran=$((ran + 1))
  done
done

# A program outside of the prefix still finds the plug-ins beside the library. The runs above hide GPUs, so that it
# takes the cpu plug-in.
if [ -e "$lib/brim/libbrim_cpu.so" ] && [ -e "$work/pc-run/train.log" ]; then
  grep -q ' on cpu' "$work/pc-run/train.log" || fail "the train example did not find the cpu plug-in"
fi

# A user's plug-ins load the same way, and the spiral can be used for training.
brim() { env -u LD_LIBRARY_PATH "$prefix/bin/brim" "$@" >"$work/plugin.log" 2>&1; }
for plugin in "$work"/pc/plugin_*.so "$work"/cm/plugin_*.so; do
  [ -e "$plugin" ] || continue
  if ! brim --plugin "$plugin" version || ! grep -qF "$plugin" "$work/plugin.log"; then
    cat "$work/plugin.log"
    fail "$(basename "$plugin") does not load"
  fi
  case $plugin in
    */plugin_spiral.so)
      brim train --plugin "$plugin" --output-dir "$work/spiral" dataset=plugin:spiral \
        "model=mlp(depth=2, hidden=64)" training.epochs=1 ||
        { cat "$work/plugin.log"; fail "cannot train on the spiral plug-in"; }
      rm -rf "$work/spiral"
      ;;
  esac
done
echo "install: $ran runs of the examples"
