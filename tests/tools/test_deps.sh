#!/bin/sh
# tools/deps in four situations, with dpkg-query, apt-get, id and sudo played by scripts: nothing missing, something
# missing as root, with sudo, and with neither; and a system without dpkg.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/deps
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir bin
for name in sh awk dirname cat rm mktemp tail touch grep env; do
  ln -s "$(command -v $name)" bin/$name
done
fail() {
  echo "deps: $1"
  cat out calls 2>/dev/null
  exit 1
}
play() {  # name, then a script's body
  printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"
  chmod +x "bin/$1"
}
run() {  # expected status, arguments
  want=$1
  shift
  : >calls
  status=0
  CALLS=$work/calls PATH=$work/bin "$tool" "$@" >out 2>&1 || status=$?
  [ $status -eq "$want" ] || fail "exit status $status, expected $want"
}
# Installed: the packages in the file `have`, or every package if the file `all` exists.
play dpkg-query "
for last in \"\$@\"; do :; done
if [ -e $work/all ] || grep -qx \"\$last\" $work/have; then printf installed; else exit 1; fi"
# shellcheck disable=SC2016  # for the played script to expand
play apt-get "
echo \"apt-get \$* \$DEBIAN_FRONTEND\" >>\"\$CALLS\"
case \"\$*\" in *install*) touch $work/all ;; esac"
play id 'echo 0'
: >have

touch all
run 0 build test
[ ! -s out ] || fail "all is there, yet something was said"
[ ! -s calls ] || fail "all is there, yet apt-get was called"

rm all
echo gcc >have
run 0 build
grep -q 'installing .*cmake' out || fail "does not say what it installs"
grep -q 'apt-get -q update noninteractive' calls || fail "no apt-get update"
grep -q 'install -y --no-install-recommends .*libyaml-dev' calls || fail "no apt-get install"
if grep -qw gcc calls; then fail "installs gcc, which is there"; fi
if grep -q cmocka calls; then fail "group build installs a package of group test"; fi

rm all
play id 'echo 1000'
run 1 build
grep -q 'not root and no sudo' out || fail "no clear message without root and sudo"
[ ! -s calls ] || fail "called apt-get without being able to"

# shellcheck disable=SC2016
play sudo 'echo sudo >>"$CALLS"; exec "$@"'
run 0 build test
grep -q '^sudo' calls || fail "did not use sudo"
grep -q 'libcmocka-dev' calls || fail "group test is not installed"

rm all bin/dpkg-query bin/apt-get
run 1 build
grep -q 'not Debian or Ubuntu.*cmake' out || fail "no list of what is missing elsewhere"
echo "deps: five situations"
