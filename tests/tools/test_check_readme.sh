#!/bin/sh
# tools/check_readme on pages of its own: it accepts a Korean page with the structure of the English one, and refuses
# any part that only one of them has, and links that lead nowhere or to the other language.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/docs/ko"
cp "$root/tools/check_readme" "$work/tools/"
cd "$work"
fail() {
  echo "test_check_readme: $1" >&2
  exit 1
}
pages() {
  cat >README.md <<'END'
# brim
[한국어](README.ko.md)
Read [docs/a.md](docs/a.md#read-the-table) and [docs/b.md](docs/b.md).
END
  cat >README.ko.md <<'END'
# brim
[English](README.md)
[docs/ko/a.md](docs/ko/a.md#표-읽기)와 [docs/b.md](docs/b.md)를 읽으십시오.
END
  cat >docs/a.md <<'END'
# A
[한국어](ko/a.md)
```console
$ brim train a.yaml    # trains
```
## Read the table
| a | b |
| --- | --- |
| `x` | see [b](b.md) and [above](#a) |
END
  cat >docs/ko/a.md <<'END'
# 가
[English](../a.md)
```console
$ brim train a.yaml    # 학습
```
## 표 읽기
| 가 | 나 |
| --- | --- |
| `x` | [b](../b.md)와 [위](#가) |
END
  echo "# B" >docs/b.md
}
refused() {  # file, sed command that changes it, part of the complaint
  pages
  cp "$1" before
  sed -i "$2" "$1"
  ! cmp -s before "$1" || fail "not changed: $1 $2"
  if tools/check_readme >out; then fail "accepted: $1 $2"; fi
  grep -qF -- "$3" out || { cat out; fail "another complaint about: $1 $2"; }
}

pages
tools/check_readme || fail "pages of the same structure are refused"
refused docs/a.md 's/^## /### /' "headings"
refused docs/ko/a.md '/^## /d' "headings"
refused docs/a.md 's/train a.yaml/bench a.yaml/' "code blocks"
refused docs/ko/a.md '/^| `x`/d' "rows of tables"
refused docs/ko/a.md 's/^| --- | --- |/| --- | --- | --- |/' "rows of tables"
refused docs/a.md 's/`x`/`y`/' "code in the text"
refused docs/ko/a.md 's/(..\/b.md)/(..\/c.md)/' "leads nowhere"
refused docs/ko/a.md 's/\[b\](..\/b.md)/b/' "links"
refused README.md 's/ and \[docs.*$/./' "links"
refused README.ko.md 's/#표-읽기//' "links"
refused README.ko.md 's/#표-읽기/#table/' "leads to no heading"
refused README.ko.md 's/(docs\/ko\/a.md#표-읽기)/(docs\/a.md#read-the-table)/' "leads to the English page"
pages
mv docs/a.md docs/c.md
if tools/check_readme >out; then fail "accepted: a Korean page without an English one"; fi
grep -qF "no English page" out || { cat out; fail "another complaint about a missing English page"; }
