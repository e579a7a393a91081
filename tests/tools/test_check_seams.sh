#!/bin/sh
# tools/check_seams finds a workload's name and metric in every room above, and only there: a small tree without any,
# then one of each, and a known one that has disappeared.
set -eu
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/check_seams
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/workload/bandit src/run src/ui src/cli/train src/config tools

put() {  # file, then its lines
  file=$1
  shift
  printf '%s\n' "$@" >"$file"
}
good() {
  "$tool" "$tree" >out 2>&1 || { echo "refused: $1"; cat out; exit 1; }
}
expect() {  # text that must stand in the complaint, after a breach was put in
  if "$tool" "$tree" >out 2>&1; then echo "not found: $1"; exit 1; fi
  grep -qF "$1" out || { echo "wrong complaint for: $1"; cat out; exit 1; }
}

put src/workload/bandit/bandit.c 'const brim_workload_table brim_workload_bandit = {' \
  '    .name = "bandit",' '};'
put src/workload/bandit/bandit_rows.c 'static const brim_metric rows[] = {{.key = "regret"}};'
put src/workload/bandit/bandit_knobs.c 'static const brim_knob_row words[] = {' \
  '    {.name = "num_arms", .label = BRIM_N_("Arms")}};'
put src/run/run.c '// a bandit has regret' 'int regretted;' 'const char *t = "no regrets";' \
  '/* "regret" */ int bandits(void);'
put src/config/keys.c 'const char *k = "see bandit.arms", *n = "bandit"; // "bandit.arms"'
put src/workload/bandit/bandit_keys.c 'const char *k = "bandit.arms";'
good "its own folder, comments, longer words and rooms below may have both"

put src/ui/ui.c 'const char *k = "regret";'
expect 'src/ui/ui.c:1: regret: metric "regret"'
put src/ui/ui.c 'const char *k = "best_regret";'
expect 'src/ui/ui.c:1: regret: metric "best_regret"'
put src/ui/ui.c 'int x;'
good "it is gone"

put src/config/keys.c '' 'put_int(out, "bandit.arms", 3);'
expect 'src/config/keys.c:2: bandit: key "bandit.arms"'
put src/config/keys.c 'int x;'

put src/ui/ui.c 'int k = brim_work_knob(work, "num_arms");'
expect 'src/ui/ui.c:1: num_arms: knob "num_arms"'
put src/ui/ui.c 'int k = brim_work_knob(work, "bench.num_arms");'
expect 'src/ui/ui.c:1: num_arms: knob "bench.num_arms"'
put src/ui/ui.c '{.name = "num_arms", .key = "bench.num_arms"},' \
  'brim_option_find(parse, "num_arms"); brim_config_int(config, "bench.num_arms");' \
  'const char *t = "num_arms of a step";'
good "options and config keys may have a knob's name"
put src/ui/ui.c 'int x;'

put src/cli/train/show.c '' 'bool b = strcmp(name, "bandit") == 0;'
expect 'src/cli/train/show.c:2: bandit: "bandit"'
put src/cli/train/show.c '#include "workload/bandit/bandit.h"'
expect 'src/cli/train/show.c:1: bandit:'
put src/cli/train/show.c 'int y = brim_bandit_pull(w);'
expect 'src/cli/train/show.c:1: bandit: brim_bandit_pull'
put src/cli/train/show.c 'const char *h = "arms of a bandit to try";'
expect 'bandit: "arms of a bandit to try"'

put tools/known_seams.txt '# why' 'src/cli/train/show.c bandit an example in the help'
good "it is known"
put src/cli/train/show.c 'int x;'
expect 'src/cli/train/show.c no longer has bandit'
put tools/known_seams.txt 'src/cli/train/show.c bandit'
expect 'FILE WORD REASON expected'
rm tools/known_seams.txt
good "an empty list"

rm src/workload/bandit/bandit.c
expect 'no workload, no metric or no knob found'
