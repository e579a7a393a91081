#!/bin/sh
# brim-make-idx writes the same bytes on every machine. Argument: the program.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$work/data"
cd "$work/data"
cksum ./* >"$work/sums"
cat >"$work/expected" <<END
4053281554 1605648 ./t10k-images-idx3-ubyte
2609552445 2056 ./t10k-labels-idx1-ubyte
1229709125 6422544 ./train-images-idx3-ubyte
290530793 8200 ./train-labels-idx1-ubyte
END
diff "$work/expected" "$work/sums"
if "$1" "$work/no/such/folder" 2>/dev/null; then
  echo "make_idx: wrote into a folder that cannot be made"
  exit 1
fi
