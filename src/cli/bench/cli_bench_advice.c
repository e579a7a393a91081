// What the user had before the sweep, for the advice after it.
#include <math.h>
#include <string.h>

#include "cli/bench/cli_bench.h"

static double knob_of(const brim_work *work, const brim_setting *setting, brim_knob_role role) {
  int knob = brim_work_knob_as(work, role);
  return knob < 0 ? (double)NAN : (double)setting->value[knob];
}

void brim_cli_bench_facts(const bench *b, brim_advice_facts *out) {
  const brim_work *work = b->job->work;
  brim_setting setting = brim_work_setting(work);
  brim_work_info info;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  *out = (brim_advice_facts){
      .batch = knob_of(work, &setting, BRIM_ROLE_BATCH),
      .accumulation = knob_of(work, &setting, BRIM_ROLE_ACCUMULATION),
      .learning_rate = info.learning_rate,
      .larger = b->picks.recommended == b->settings.own ? b->larger : (double)NAN,
      .adaptive = info.adaptive};
  if (isnan(out->accumulation)) out->accumulation = 1;
  for (size_t i = 0; i < b->axes.count; i++) {
    if (b->axes.axis[i].count < 2) continue;
    out->several[out->several_count++] = work->knobs[b->axes.axis[i].knob].name;
  }
}

void brim_cli_bench_advise(const bench *b, brim_advice *out) {
  brim_advice_facts facts;
  brim_cli_bench_facts(b, &facts);
  brim_advise(b->results, b->count, b->picks.recommended, &facts, out);
}
