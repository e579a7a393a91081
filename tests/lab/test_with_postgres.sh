#!/bin/sh
# tests/lab/with_postgres without a server: it skips, and fails if the environment requires a server.
set -u
tool=$(cd "$(dirname "$0")" && pwd)/with_postgres
fail() {
  echo "with_postgres: $1"
  exit 1
}
out=$(BRIM_NEED_POSTGRES='' BRIM_TEST_POSTGRES_BIN=/nowhere "$tool" false)
[ $? -eq 77 ] || fail "does not skip without a server"
case $out in "skipped: "*) ;; *) fail "does not say why: $out" ;; esac
BRIM_NEED_POSTGRES=1 BRIM_TEST_POSTGRES_BIN=/nowhere "$tool" true 2>/dev/null
[ $? -eq 1 ] || fail "does not fail where a server is asked for"
