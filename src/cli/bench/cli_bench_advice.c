// What the user had before the sweep, for the advice after it.
#include <math.h>

#include "cli/bench/cli_bench.h"

void brim_cli_bench_facts(const bench *b, brim_advice_facts *out) {
  const brim_work *work = b->job->work;
  brim_advice_facts_of(work, out);
  out->larger = b->picks.recommended == b->settings.own ? b->larger : (double)NAN;
  for (size_t i = 0; i < b->axes.count; i++) {
    if (b->axes.axis[i].count < 2) continue;
    out->several[out->several_count++] = work->knobs[b->axes.axis[i].knob].name;
  }
  const brim_setting *pick =
      b->picks.recommended >= 0 ? &b->settings.setting[b->picks.recommended] : NULL;
  for (size_t k = 0; pick && k < work->knob_count; k++) {
    const brim_knob *knob = &work->knobs[k];
    if (knob->matters && !knob->matters(work->state, pick))
      out->idle[out->idle_count++] = knob->name;
  }
}

void brim_cli_bench_advise(const bench *b, brim_advice *out) {
  brim_advice_facts facts;
  brim_cli_bench_facts(b, &facts);
  brim_advise(b->results, b->count, b->picks.recommended, &facts, out);
}
