#!/bin/sh
# tests/lab/with_slurm without Slurm: it skips, and fails if the environment requires Slurm.
set -u
tool=$(cd "$(dirname "$0")" && pwd)/with_slurm
fail() {
  echo "with_slurm: $1"
  exit 1
}
out=$(BRIM_NEED_SLURM='' BRIM_TEST_SLURMCTLD=/nowhere "$tool" false)
[ $? -eq 77 ] || fail "does not skip without Slurm"
case $out in "skipped: "*) ;; *) fail "does not say why: $out" ;; esac
BRIM_NEED_SLURM=1 BRIM_TEST_SLURMCTLD=/nowhere "$tool" true 2>/dev/null
[ $? -eq 1 ] || fail "does not fail where Slurm is asked for"
