// What is told of a policy while it is trained: returns instead of losses, and how busy the GPU is.
#include <math.h>
#include <stdio.h>

#include "cli/train/cli_train.h"

// How busy the GPU is: asked of rollouts alone, which are one kernel each, so that being busy and being
// full are two things. Without an answer the figures stay unknown.
void brim_cli_training_sampler(brim_cli_training *t, const brim_work_info *info) {
  brim_cli_job *job = t->job;
  if (!info->policy || !job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.1, &t->sampler)) {
    brim_log_info("train", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

void brim_cli_training_usage(void *ctx, double *gpu_percent, double *sm_percent) {
  brim_cli_training *t = ctx;
  brim_gpu_usage u;
  if (!t->sampler) return;
  if (!gpu_percent) {
    brim_gpu_sampler_mark(t->sampler);
    return;
  }
  brim_gpu_sampler_read(t->sampler, &u);
  *gpu_percent = u.gpu_percent;
  *sm_percent = u.sm_percent;
}

void brim_cli_training_end(brim_cli_training *t) {
  brim_gpu_sampler_stop(t->sampler);
  t->sampler = NULL;
}

//---------------------------------- lines ----------------------------------

// "return 812 +- 40", with what spreads where it is known.
void brim_cli_append_return(brim_str *out, const char *label, const brim_work_returns *r) {
  double spread = brim_returns_spread(r);
  brim_str_printf(out, "  %s %.4g", label, brim_returns_mean(r));
  if (!isnan(spread)) brim_str_printf(out, " +- %.3g", spread);
}

void brim_cli_append_falls(brim_str *out, const brim_work_returns *r) {
  double falls = brim_returns_falls(r);
  if (!isnan(falls)) brim_str_printf(out, brim_tr(", falls %.1f %%"), falls * 100);
  if (r->diverged > 0) brim_str_printf(out, brim_tr(", diverged %lld"), (long long)r->diverged);
}

// Of the policy in its evaluation, in brackets of doing nothing there, and of the directions.
void brim_cli_append_policy(brim_str *out, const brim_epoch_report *r) {
  double falls = brim_returns_falls(&r->baseline);
  if (r->evaluated) {
    brim_cli_append_return(out, brim_tr("return"), &r->eval_returns);
    brim_str_printf(out, brim_tr(" (zero policy %.4g)"), brim_returns_mean(&r->baseline));
    brim_cli_append_falls(out, &r->eval_returns);
    if (!isnan(falls)) brim_str_printf(out, " (%.1f %%)", falls * 100);
  }
  brim_str_printf(out, "  %s %.4g", brim_tr("directions"), brim_returns_mean(&r->returns));
}

//---------------------------------- events ----------------------------------

// {"mean": 812, "spread": 40, "episodes": 100, "falls": 0.12, "length": 480, "speed": null,
// "diverged": 0}
json_t *brim_cli_returns_json(const brim_work_returns *r) {
  json_t *o = json_object();
  brim_status s = brim_json_put(o, "mean", brim_json_number(brim_returns_mean(r)));
  if (!s) s = brim_json_put(o, "spread", brim_json_number(brim_returns_spread(r)));
  if (!s) s = brim_json_put(o, "episodes", json_integer(r->episodes));
  if (!s) s = brim_json_put(o, "falls", brim_json_number(brim_returns_falls(r)));
  if (!s) s = brim_json_put(o, "length", brim_json_number(brim_returns_length(r)));
  if (!s) s = brim_json_put(o, "speed", brim_json_number(brim_returns_speed(r)));
  if (!s) s = brim_json_put(o, "diverged", json_integer(r->diverged));
  if (!s) return o;
  json_decref(o);
  return NULL;
}

// Figures of a policy, in the place of losses and accuracies.
brim_status brim_cli_put_policy(json_t *f, const brim_epoch_report *r) {
  BRIM_TRY(brim_json_put(f, "directions", brim_cli_returns_json(&r->returns)));
  BRIM_TRY(brim_json_put(f, "return",
                         r->evaluated ? brim_cli_returns_json(&r->eval_returns) : json_null()));
  BRIM_TRY(brim_json_put(f, "zero_policy", brim_cli_returns_json(&r->baseline)));
  BRIM_TRY(brim_json_put(f, "update_norm", brim_json_number(r->update_norm)));
  BRIM_TRY(brim_json_put(f, "policy_norm", brim_json_number(r->policy_norm)));
  BRIM_TRY(brim_json_put(f, "gpu_percent", brim_json_number(r->gpu_percent)));
  BRIM_TRY(brim_json_put(f, "sm_percent", brim_json_number(r->sm_percent)));
  return brim_json_put(f, "sigma", brim_json_number(r->sigma));
}

brim_status brim_cli_put_last_policy(json_t *f, const brim_run_result *r) {
  bool judged = r->eval_returns.episodes > 0;
  BRIM_TRY(
      brim_json_put(f, "return", judged ? brim_cli_returns_json(&r->eval_returns) : json_null()));
  BRIM_TRY(brim_json_put(f, "zero_policy", brim_cli_returns_json(&r->baseline)));
  return brim_json_put(f, "best_return", brim_json_number(r->best_accuracy));
}
