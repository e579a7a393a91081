// What is recommended of what was measured, and what is reported about it.
#include "cli/bench/cli_bench.h"

#include <stdio.h>
#include <string.h>

// What asks for a knob's values: an option, or the key.
static const char *option_of(const brim_knob *knob) {
  return knob->option ? knob->option : knob->list ? knob->list : "";
}

// "batch_size 1024 changes learning: ask for it with --batch-sizes"
static void beside_text(const bench *b, int index, char out[192]) {
  const brim_work *work = b->job->work;
  brim_setting own = brim_work_setting(work);
  char what[96] = "";
  const char *option = "";
  for (size_t k = 0; k < work->knob_count; k++) {
    int64_t value = b->settings.setting[index].value[k];
    if (!work->knobs[k].changes_learning || value == own.value[k]) continue;
    char text[32];
    size_t n = strlen(what);
    brim_knob_format(&work->knobs[k], value, text);
    snprintf(what + n, sizeof what - n, "%s%s %s", n ? ", " : "", work->knobs[k].name, text);
    if (!option[0]) option = option_of(&work->knobs[k]);
  }
  brim_msg_format(out, 192, brim_tr("but %s changes learning: ask for it with %s"), what, option);
}

// Is the config's own setting there to compare with, outside of values that the user named?
static bool is_reference(const bench *b) {
  for (size_t a = 0; a < b->axes.count && b->settings.own_added && b->settings.own >= 0; a++) {
    const brim_sweep_axis *axis = &b->axes.axis[a];
    bool has = !b->axes.named[axis->knob];
    for (size_t i = 0; i < axis->count && !has; i++) {
      has = axis->values[i] == b->settings.setting[b->settings.own].value[axis->knob];
    }
    if (!has) return true;
  }
  return false;
}

void brim_cli_bench_choose(bench *b, bool interrupted) {
  brim_recommendation r;
  bool *withheld = b->count > 0 ? (bool *)brim_calloc(b->count, sizeof *withheld) : NULL;
  for (size_t i = 0; withheld && i < b->count; i++) {
    withheld[i] = brim_sweep_changes_learning(b->job->work, b->axes.named, &b->settings.setting[i]);
  }
  brim_recommend_options how = {.race = b->race,
                                .now = b->settings.own,
                                .now_is_reference = is_reference(b),
                                .interrupted = interrupted,
                                .withheld = withheld};
  brim_recommend(b->results, b->count, &how, &r);
  b->picks = (brim_ui_picks){r.highest, r.efficient, r.recommended};
  b->decision = (brim_ui_decision){.provisional = r.provisional,
                                   .own_is_fastest = how.now_is_reference && r.now >= 0 &&
                                                     r.now == r.recommended && r.now == r.highest,
                                   .now = r.now,
                                   .gain = r.gain.value,
                                   .gain_low = r.gain.low,
                                   .gain_high = r.gain.high,
                                   .beside = r.beside,
                                   .more = r.more.value,
                                   .more_low = r.more.low,
                                   .more_high = r.more.high};
  brim_recommend_reason(b->results, b->count, &r, b->race, b->decision.reason);
  if (r.beside >= 0) beside_text(b, r.beside, b->decision.beside_text);
  brim_free(withheld);
  if (b->count > 0) brim_cli_bench_advise(b, &b->advice);
}
