// What `brim bench` finds about the config's own setting: prices by short runs of the remedies, and how
// that is shown.
#include "cli/bench/cli_bench.h"

static bool own_ran(const bench *b) {
  const int own = b->settings.own;
  return own >= 0 && (size_t)own < b->count && brim_result_ran(&b->results[own]);
}

brim_status brim_cli_bench_price(bench *b, const brim_remedy_options *options) {
  const brim_cli_job *job = b->job;
  if (!own_ran(b) || !job->work || !brim_option_flag(&b->cli->parse, "price", true)) return BRIM_OK;
  size_t own = (size_t)b->settings.own;
  brim_remedy_options how = *options;
  how.setting = &b->settings.setting[own];
  how.folder = brim_cli_job_saves_in(job);
  how.larger = &b->larger;
  b->priced = true;
  brim_status status =
      brim_remedies_measure(job->work, job->config, job->device, &how, b->results, b->count, own);
  if (job->work) brim_cli_bench_advise(b, &b->advice);  // now with what was tried
  return status;
}

void brim_cli_bench_put_findings(const bench *b, brim_str *out) {
  const int own = b->settings.own;
  if (!own_ran(b)) return;
  if (b->cli->verbose && (own == b->picks.recommended || own == b->picks.highest)) return;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, &b->cli->out, brim_tr("FINDINGS ABOUT THE CONFIG'S OWN SETTING"));
  brim_str_append_char(out, '\n');
  brim_ui_bench_findings(&b->cli->out, &b->results[own], &b->decision, b->picks.recommended, out);
}
