#!/bin/sh
# tools/messages on a tree of its own: it finds messages, asks for every translation, and refuses one that does not take
# the same arguments or loses a required word.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/src/base" "$work/include"
cp "$root/tools/messages" "$work/tools/"
cat >"$work/src/a.c" <<'END'
void f(void) {
  brim_fail(1, "cannot open %s: %d", a, b);
  brim_fail_at(1, AT(place), "unknown key '%s'; see --help", key);
  puts(brim_tr("  loss       %.4g\n"));
  puts(brim_tr("100 %% of " "what is there"));
}
END
cat >"$work/src/rows.h" <<'END'
#define BRIM_ROW(name, m) \
  { name, BRIM_N_(m) }
#define OTHER(m) BRIM_N_(m)
END
cd "$work"
fail() {
  echo "test_messages: $1" >&2
  exit 1
}
tools/messages | grep -q '^4 messages, 4 without a translation$' || fail "not four messages"
if tools/messages --check >out; then fail "a missing translation is no failure"; fi
grep -q '4 of 4 messages have no translation' out || fail "what is missing is not told"
tools/messages --missing | grep -q "unknown key '%s'; see --help" || fail "--missing does not list"

refused() {  # english, korean
  printf '{"%s",\n "%s"},\n' "$1" "$2" >row.txt
  if tools/messages --merge row.txt >out; then fail "taken: $2"; fi
}
taken() {
  printf '{"%s",\n "%s"},\n' "$1" "$2" >row.txt
  tools/messages --merge row.txt >out || { cat out; fail "refused: $2"; }
}
refused 'cannot open %s: %d' '%d: 열 수 없음: %s'
refused 'cannot open %s: %d' '열 수 없음: %s'
refused 'cannot open %s: %d' '%2$d: 열 수 없음: %s'
refused "unknown key '%s'; see --help" "알 수 없는 키 '%s'"
refused '  loss       %.4g\n' '  손실 %.4g\n'
refused '  loss       %.4g\n' '  손실       %.4g'
refused '100 %% of what is there' '100 %'
refused 'cannot open %s: %d' '%s을 열 수 없음: %d'
refused 'cannot open %s: %d' "'%s'가 열리지 않음: %d"
refused 'cannot open %s: %d' '%s: %d로 열 수 없음'
refused 'this machine' '이 장비'
refused 'the report' '리포트'
taken 'cannot open %s: %d' '%s을(를) %d(으)로 열 수 없음'
taken 'cannot open %s: %d' '%2$d: 열 수 없음: %1$s'
taken "unknown key '%s'; see --help" "알 수 없는 키 '%s'; --help"
taken '  loss       %.4g\n' '  손실       %.4g\n'
taken '100 %% of what is there' '있는 것의 100 %%'
tools/messages --check || fail "a complete catalogue is not accepted"
taken 'cannot open %s: %d' '%s을(를) %d(으)로 열 수 없음'
tools/messages --check || fail "both forms of a particle are not accepted"
cp src/a.c kept.c
echo 'static const row rows[] = {BRIM_ROW("name", "of a header")};' >>src/a.c
tools/messages --missing | grep -q '"of a header"' || fail "a macro of a header is not followed"
echo 'static const row more[] = {OTHER("of no header")};' >>src/a.c
if tools/messages --missing | grep -q '"of no header"'; then fail "any macro is followed"; fi
cp kept.c src/a.c
echo 'void g(void) { snprintf(a, 9, x ? brim_tr("cannot open %s: %d") : b, c, d); }' >>src/a.c
if tools/messages --check >out; then fail "a particle that snprintf prints is accepted"; fi
grep -q 'src/a.c: snprintf chooses no particle' out || fail "where snprintf prints one is not told"
sed -i 's/snprintf/brim_msg_format/' src/a.c
tools/messages --check || fail "brim_msg_format is not accepted"
mv kept.c src/a.c
taken 'gone' '없음'
if tools/messages --check >/dev/null; then fail "a translation of nothing is accepted"; fi
tools/messages --prune >/dev/null
tools/messages --check || fail "--prune leaves something"
