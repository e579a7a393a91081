#!/bin/sh
# tools/check_words on a tree of its own: it finds long sentences, phrases and long option help, in documents, in
# messages and in comments, and ignores text that is no prose.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/src/cli" "$work/include" "$work/docs/performance"
cp "$root/tools/messages" "$root/tools/check_words" "$work/tools/"
cd "$work"
fail() {
  echo "test_check_words: $1" >&2
  exit 1
}
long="one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
long="$long sixteen seventeen eighteen nineteen twenty and one and two and three"  # 26 words
accepted() {
  tools/check_words "$1" >out || { cat out; fail "refused: $2"; }
}
refused() {  # what, why it is refused, part of the complaint
  if tools/check_words "$1" >out; then fail "accepted: $2"; fi
  grep -qF -- "$3" out || { cat out; fail "another complaint about $2"; }
}

# Documents: text that is no prose, or counts as one word.
cat >README.md <<END
# A title

brim trains a network. It takes \`$long\` as one word.
See [$(printf 'text')](https://example.org/goes-on) or <https://example.org/judge>.

\`\`\`
$long, and it goes on
\`\`\`

    $long, and it goes on

<!-- $long, and it goes on -->
- one two three four five six seven eight nine ten eleven twelve thirteen
- one two three four five six seven eight nine ten eleven twelve thirteen

| one two three four five six seven | eight nine ten eleven twelve thirteen | fourteen fifteen |
| --- | --- | --- |
| sixteen seventeen eighteen | nineteen twenty | one two three four five six, e.g. Linux, v1.2 |

One two three four five six seven eight nine ten eleven twelve, e.g. thirteen fourteen. Fifteen
sixteen seventeen eighteen nineteen twenty. Training makes one pass over the data.

The loader reads one two three four five six seven eight nine ten eleven twelve. brim checks one
two three four five six seven eight nine ten eleven twelve.
END
accepted README.md "what is no prose"
printf 'Text.\n\nMore text: %s.\n' "$long" >docs/a.md
refused docs/a.md "a long sentence" "docs/a.md:3: 28 words, at most 25"
printf 'A sentence that is broken over two lines and\ngoes\non.\n' >docs/b.md
refused docs/b.md "a phrase over a line end" "docs/b.md:1: 'goes on': write continue, resume"
printf '| a | b |\n| - | - |\n| c | the class is said |\n' >docs/c.md
refused docs/c.md "a phrase in a table" "docs/c.md:3: 'is said'"
printf -- '- fine\n- %s\n' "$long" >docs/d.md
refused docs/d.md "a long list item" "docs/d.md:2: 26 words"
refused documents "documents together" "4 passages to rewrite"
rm docs/?.md
printf '%s\n' "$long, and it goes on" >docs/performance/a.md
refused documents "a record of measurements" "docs/performance/a.md:1: 'goes on'"
mv docs/performance/a.md docs/performance/a.ko.md
accepted documents "a Korean document"
rm docs/performance/a.ko.md

# Messages: a semicolon and a line end begin a sentence, a conversion is a word, commands are no prose.
half="one two three four five six seven eight nine ten eleven twelve thirteen"
cat >src/cli/a.c <<END
void f(void) {
  brim_fail(1, "%s: $half; $half", a);
  puts(brim_tr("$half\nbrim train a b c d e f g h i j k l m n o p q r s t u v w x goes on\n"));
}
static const row rows[] = {{.name = "seed", .help = "random seed (default: 0)"}};
END
accepted messages "short messages"
sed 's/; one two/ one two/' src/cli/a.c >src/cli/b.c
refused messages "a long message" "src/cli/b.c: 27 words, at most 25"
printf 'void f(void) { puts(brim_tr("brim goes on")); }\n' >src/cli/b.c
refused messages "prose that begins with brim" "src/cli/b.c: 'goes on'"
printf 'void f(void) { brim_fail(1, "%%s asked " "for but: %%s", a, b); }\n' >src/cli/b.c
refused messages "a phrase in a message" "src/cli/b.c: 'asked for but': write cannot use X: reason"
printf 'static const row rows[] = {{.help = "%s"}};\n' \
  "a help text that is longer than the seventy characters that it may have" >src/cli/b.c
refused messages "long help" "src/cli/b.c: help of 71 characters, at most 69"
rm src/cli/b.c
# Comments of C, Python, shell and CMake; strings and code between backticks do not count.
cat >src/cli/a.c <<'END'
// The run continues. `goes on` is code, and a string below has words that no comment has.
const char *text = "// nobody";  // the second line of the sentence that a worker is told to stop
END
printf '#!/bin/sh\n# It continues.\necho "nobody" # goes on here: not at a line start\n' >tools/a
printf '"""A tool."""\ntext = "# nobody"\n' >tools/b.py
accepted comments "plain comments"
printf 'int x;\n/* It\n * goes\n * on. */\n' >src/cli/b.c
refused comments "a comment of several lines" "src/cli/b.c:2: 'goes on': write continue, resume"
printf 'int x;  // what nobody\n        // reads\n' >src/cli/b.c
refused comments "a comment behind code" "src/cli/b.c:1: 'nobody'"
rm src/cli/b.c
printf '#!/usr/bin/env python3\n"""Who calls it."""\n' >tools/c
refused comments "a docstring" "tools/c:2: 'Who'"
printf '#!/bin/sh\n# begun\n# anew\n' >tools/c
refused comments "a shell comment" "tools/c:2: 'anew': write again"
rm tools/c
printf '# what it puts out\n' >src/cli/CMakeLists.txt
refused comments "a CMake comment" "src/cli/CMakeLists.txt:1: 'puts out'"
rm src/cli/CMakeLists.txt
tools/check_words >out || { cat out; fail "a good tree is refused"; }
tools/check_words --phrases | grep -q 'continue, resume' || fail "--phrases does not list"
status=0
tools/check_words --wrong 2>/dev/null || status=$?
[ "$status" -eq 2 ] || fail "an unknown option is not a usage error"
