// Negatives of pairs over several micro-batches: what they are, what it costs, what is chosen.
#include "workload/workload_pairs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Exact accumulation is taken on its own where it costs less than this: one forward pass more is a
// third.
static const double worth_it = 0.40;

void brim_pairs_read(const brim_config *config, brim_pairs *c) {
  const char *text = brim_config_string(config, "contrastive.accumulation");
  memset(c, 0, sizeof *c);
  c->exact_cost = (double)NAN;
  c->accumulation = BRIM_ACCUMULATION_AUTO;
  if (text && strcmp(text, "plain") == 0) c->accumulation = BRIM_ACCUMULATION_PLAIN;
  if (text && strcmp(text, "exact") == 0) c->accumulation = BRIM_ACCUMULATION_EXACT;
}

void brim_pairs_report(brim_pairs *c, const brim_batching *batching, const brim_net_spec *spec) {
  if (spec->views != 2 || spec->accumulation < 2) return;
  long long all = (long long)(spec->batch * spec->accumulation);
  double percent = 100 * c->exact_cost;
  if (!spec->full_batch_negatives && brim_batching_is_smaller(batching, spec)) {
    if (c->warned != spec->batch) {
      brim_log_warn("workload",
                    "negatives now come from the smaller micro-batch of %lld; to keep all %lld, "
                    "set contrastive.accumulation: exact",
                    (long long)spec->batch, all);
    }
    c->warned = spec->batch;
    return;
  }
  if (c->said) return;
  c->said = true;
  if (spec->full_batch_negatives) {
    brim_log_info(
        "workload",
        "accumulation: exact, each of %lld samples has all others as negatives; computing "
        "each micro-batch twice costs %.0f %% more",
        all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isfinite(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld; those of all "
                  "%lld would cost %.0f %% more (contrastive.accumulation: exact)",
                  (long long)spec->batch, all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isinf(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld, not of all "
                  "%lld; exact is not possible here: %s",
                  (long long)spec->batch, all, c->why_plain);
  } else {
    brim_log_info(
        "workload",
        "accumulation: plain, negatives are those of a micro-batch of %lld, not of all %lld",
        (long long)spec->batch, all);
  }
}

// By planned FLOPs, once: the share of one forward pass hardly depends on the setting.
static brim_status plan_cost(brim_pairs *c, brim_device *device, const brim_net_spec *spec) {
  brim_plan plain, exact;
  brim_net_spec s = *spec;
  if (!isnan(c->exact_cost)) return BRIM_OK;
  memset(&plain, 0, sizeof plain);
  memset(&exact, 0, sizeof exact);
  s.full_batch_negatives = false;
  BRIM_TRY(brim_net_plan(device, &s, &plain));
  s.full_batch_negatives = true;
  brim_status status = brim_net_plan(device, &s, &exact);
  bool possible = status == BRIM_OK;
  // an error only where the config asks for exact
  bool memory = status == BRIM_ENOMEM || status == BRIM_EOOM;  // another time it could be
  if (memory || (!possible && c->accumulation != BRIM_ACCUMULATION_AUTO)) return status;
  if (!possible) {
    snprintf(c->why_plain, sizeof c->why_plain, "%s", brim_status_detail());
    brim_utf8_trim(c->why_plain);
    brim_status_clear();
  }
  c->exact_cost = possible ? exact.flops_per_step / plain.flops_per_step - 1 : (double)INFINITY;
  return BRIM_OK;
}

// By the config, or by the checkpoint that training resumes from.
static bool is_chosen(const brim_pairs *c) {
  return c->accumulation != BRIM_ACCUMULATION_AUTO || c->chosen != BRIM_CHOSEN_NOT;
}

// Plain accumulation of this would learn nothing, or, where too little memory made micro-batches of what
// was asked for as one batch, something else: no price is too high then.
static bool must_be_exact(const brim_pairs *c, const brim_batching *batching,
                          const brim_net_spec *spec) {
  bool asked = batching->accumulation > 1;
  if (spec->batch == 1) return true;
  if (c->chosen == BRIM_CHOSEN_PLAIN) return false;
  return !asked && brim_batching_is_smaller(batching, spec);
}

// One sample alone is compared with nothing, unless it is with those of its whole step.
bool brim_pairs_sensible(const brim_pairs *c, int64_t batch, int64_t accumulation) {
  if (batch > 1) return true;
  bool plain = c->accumulation == BRIM_ACCUMULATION_PLAIN;
  bool impossible = isinf(c->exact_cost);
  return accumulation > 1 && !plain && !impossible;
}

static brim_status check_negatives(const brim_net_spec *spec) {
  if (spec->batch > 1 || spec->full_batch_negatives) return BRIM_OK;
  if (spec->accumulation < 2) {
    return brim_fail(BRIM_EINVAL,
                     "a step of one sample has no negatives, so contrastive training cannot learn; "
                     "set data.batch_size to 2 or more");
  }
  return brim_fail(BRIM_EINVAL,
                   "micro-batches of one sample have no negatives, so contrastive training cannot "
                   "learn; set data.batch_size to 2 or more, or contrastive.accumulation: exact");
}

brim_status brim_pairs_choose(brim_pairs *c, brim_device *device, const brim_batching *batching,
                              brim_net_spec *spec) {
  spec->full_batch_negatives = false;
  if (spec->views != 2) return BRIM_OK;
  if (spec->accumulation < 2) return check_negatives(spec);
  bool exact = c->accumulation == BRIM_ACCUMULATION_EXACT;
  bool automatic = c->accumulation == BRIM_ACCUMULATION_AUTO;
  bool must = automatic && must_be_exact(c, batching, spec);
  if (automatic) exact = must || c->chosen != BRIM_CHOSEN_PLAIN;
  if (exact) BRIM_TRY(plan_cost(c, device, spec));
  bool possible = isfinite(c->exact_cost), worth = c->exact_cost < worth_it;
  spec->full_batch_negatives = exact && (must ? possible : is_chosen(c) || worth);
  return check_negatives(spec);
}

const char *brim_pairs_choice(const brim_pairs *c, int64_t accumulation, bool exact) {
  if (c->accumulation != BRIM_ACCUMULATION_AUTO) return NULL;
  if (accumulation > 1) return exact ? "exact" : "plain";
  return c->chosen == BRIM_CHOSEN_EXACT ? "exact" : c->chosen == BRIM_CHOSEN_PLAIN ? "plain" : NULL;
}

void brim_pairs_take_choice(brim_pairs *c, const json_t *metadata) {
  const char *text = json_string_value(json_object_get(metadata, "brim.accumulates"));
  if (text && strcmp(text, "exact") == 0) c->chosen = BRIM_CHOSEN_EXACT;
  if (text && strcmp(text, "plain") == 0) c->chosen = BRIM_CHOSEN_PLAIN;
}

// As wide as the head's last layer.
int64_t brim_pairs_width(const brim_net *net) {
  int64_t width = brim_net_output_width(net);
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    if (brim_str_starts(p->name, "projector.") && p->rank == 2) width = p->dim[0];
  }
  return width;
}
