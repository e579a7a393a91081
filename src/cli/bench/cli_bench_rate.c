// The learning rate that goes with a recommended batch, for --apply and best.yaml. The rule itself is
// src/tune/tune_advice.c's.
#include <math.h>

#include "cli/bench/cli_bench.h"

// What stands in a file beside each other.
typedef struct file_rate {
  double batch, steps, rate;
} file_rate;

const char *brim_cli_bench_key(const bench *b, brim_knob_role role) {
  int knob = brim_work_knob_as(b->job->work, role);
  return knob < 0 ? "" : b->job->work->knobs[knob].key;
}

static double number_of(const bench *b, const brim_config *file, brim_knob_role role) {
  const char *key = brim_cli_bench_key(b, role);
  return key[0] ? (double)brim_config_int(file, key) : 1;
}

// A file without a learning rate has the one of the sweep; of a grid none is the one before.
static brim_status read_file(const bench *b, const char *path, const brim_advice_facts *facts,
                             file_rate *out) {
  brim_config *file = NULL;
  brim_config_options how = {.path = path, .mode = BRIM_CONFIG_EDIT};
  BRIM_TRY(brim_config_load(&how, &file));
  *out = (file_rate){number_of(b, file, BRIM_ROLE_BATCH),
                     number_of(b, file, BRIM_ROLE_ACCUMULATION), facts->learning_rate};
  if (brim_config_is_set(file, BENCH_RATE_KEY)) out->rate = brim_config_float(file, BENCH_RATE_KEY);
  if (brim_config_grid_count(file) != 1) out->rate = (double)NAN;
  brim_config_close(file);
  return BRIM_OK;
}

brim_status brim_cli_bench_rate(const bench *b, const char *path, double batch, double steps,
                                bench_rate *out) {
  brim_advice_facts facts;
  *out = (bench_rate){.kept = brim_option_flag(&b->cli->parse, "keep-lr", false)};
  brim_cli_bench_facts(b, &facts);
  if (isnan(facts.batch) || isnan(facts.learning_rate)) return BRIM_OK;
  file_rate was = {facts.batch, facts.accumulation, facts.learning_rate};
  if (path) BRIM_TRY(read_file(b, path, &facts, &was));
  if (was.steps < 1) was.steps = 1;
  double before = was.batch * was.steps;
  double after = (isnan(batch) ? was.batch : batch) * (isnan(steps) ? was.steps : steps);
  if (!(before > 0) || !(after > 0) || before == after || !(was.rate > 0)) return BRIM_OK;
  out->batch_before = before;
  out->batch_after = after;
  out->before = was.rate;
  out->adaptive = facts.adaptive;
  out->after = brim_advise_rate(was.rate, before, after, facts.adaptive);
  return BRIM_OK;
}

void brim_cli_bench_rate_text(const bench_rate *c, brim_str *out) {
  if (!(c->after > 0)) return;
  const char *rule = c->adaptive ? brim_tr("square-root rule") : brim_tr("linear rule");
  brim_str_printf(out,
                  c->kept ? brim_tr("learning rate %.4g stays (--keep-lr); it would be %.4g")
                          : brim_tr("learning rate %.4g -> %.4g, --keep-lr keeps it"),
                  c->before, c->after);
  brim_str_printf(out, brim_tr(" (%s, effective batch %.0f -> %.0f)\n"), rule, c->batch_before,
                  c->batch_after);
}
