// Findings: adding one; finding its twins, which are results that differ in a single knob and so
// show what a change is worth; and summaries of a result's findings.
#include "record/record_findings.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_int.h"

brim_finding *brim_finding_add(brim_result *r, const char *code, double cost_ms) {
  if (r->finding_count == BRIM_RESULT_MAX_FINDINGS) return NULL;
  brim_finding *f = &r->findings[r->finding_count++];
  memset(f, 0, sizeof *f);
  snprintf(f->code, sizeof f->code, "%s", code);
  f->cost_ms = cost_ms;
  f->predicted_ms = (double)NAN;
  return f;
}

const char *brim_result_knob_text(const brim_result *r, const char *name) {
  const brim_result_knob *k = brim_result_knob_find(r, name);
  return k ? k->value : "";
}

double brim_result_phase_ms(const brim_result *r, brim_phase phase) {
  const double ms = r->phase_ms[phase].median;
  const double part_ms = r->phase_ms[phase].mean / r->total_ms.mean * r->total_ms.median;
  if (r->phase_used[phase] && r->total_ms.mean > 0 && isfinite(part_ms)) return part_ms;
  return isnan(ms) ? 0 : ms;
}

//---------------------------------- twins ----------------------------------

static bool same_but(const brim_result *a, const brim_result *b, const char *name) {
  if (a->knob_count != b->knob_count) return false;
  for (size_t i = 0; i < a->knob_count; i++) {
    const char *knob = a->knobs[i].name;
    if (strcmp(knob, name) == 0) continue;
    if (strcmp(a->knobs[i].value, brim_result_knob_text(b, knob)) != 0) return false;
  }
  return true;
}

static bool is_wanted(const brim_findings *v, const brim_result *other, const char *knob,
                      brim_twin_kind kind, const char *value) {
  switch (kind) {
    case BRIM_TWIN_THIS:
      return strcmp(brim_result_knob_text(other, knob), value) == 0;
    case BRIM_TWIN_MORE:
      return brim_result_knob_number(other, knob, 0) > brim_result_knob_number(v->r, knob, 0);
    case BRIM_TWIN_ANY:
      break;
  }
  return strcmp(brim_result_knob_text(other, knob), brim_result_knob_text(v->r, knob)) != 0;
}

const brim_result *brim_finding_twin(const brim_findings *v, const char *knob, brim_twin_kind kind,
                                     const char *value) {
  const brim_result *best = NULL;
  for (size_t i = 0; i < v->count; i++) {
    const brim_result *other = &v->results[i];
    if (other == v->r || !brim_result_ran(other) || !same_but(v->r, other, knob)) continue;
    if (!is_wanted(v, other, knob, kind, value)) continue;
    if (!best || other->samples_per_s > best->samples_per_s) best = other;
  }
  return best;
}

static double samples_per_step(const brim_result *r) {
  return r->samples_per_s * r->total_ms.median * 1e-3;
}

// Half the width of the result's confidence interval, as a logarithm.
static double half_width(const brim_result *r) {
  return log(r->samples_per_s_high / r->samples_per_s_low) / 2;
}

double brim_finding_gain_ms(const brim_result *r, const brim_result *other) {
  double faster = log(other->samples_per_s / r->samples_per_s);
  if (faster > 0 && faster < hypot(half_width(r), half_width(other))) return 0;
  return r->total_ms.median - samples_per_step(r) / other->samples_per_s * 1e3;
}

//---------------------------------- remedies ----------------------------------

void brim_finding_change(brim_finding *f, const char *knob, const char *value, bool measured) {
  snprintf(f->knob, sizeof f->knob, "%s", knob);
  snprintf(f->value, sizeof f->value, "%s", value);
  f->measured = measured;
}

bool brim_finding_try(const brim_findings *v, brim_finding *f, const char *knob,
                      const char *value) {
  const char *own = brim_result_knob_text(v->r, knob);
  if (!v->probing || !own[0] || strcmp(own, value) == 0) return false;
  for (size_t i = 0; i < v->count; i++) {
    const brim_result *other = &v->results[i];
    if (other == v->r || !same_but(v->r, other, knob)) continue;
    if (strcmp(brim_result_knob_text(other, knob), value) == 0) return false;
  }
  snprintf(f->try_knob, sizeof f->try_knob, "%s", knob);
  snprintf(f->try_value, sizeof f->try_value, "%s", value);
  return true;
}

// Does `a` stand before `b`?
static bool is_before(const brim_finding *a, const brim_finding *b) {
  if (a->note || b->note) return !a->note && b->note;
  if (isnan(a->cost_ms) || isnan(b->cost_ms)) return !isnan(a->cost_ms) && isnan(b->cost_ms);
  return a->cost_ms > b->cost_ms;
}

void brim_findings_sort(brim_result *r) {
  for (size_t i = 1; i < r->finding_count; i++) {
    brim_finding f = r->findings[i];
    size_t at = i;
    for (; at > 0 && is_before(&f, &r->findings[at - 1]); at--) {
      r->findings[at] = r->findings[at - 1];
    }
    r->findings[at] = f;
  }
}

//---------------------------------- languages ----------------------------------

static brim_status add_text(json_t *finding, const char *key, const brim_msg_catalogue *language) {
  char words[sizeof((brim_finding *)0)->text] = "";
  brim_str text;
  const char *english = json_string_value(json_object_get(finding, key));
  if (!english) return BRIM_OK;
  brim_record_copy(words, sizeof words, english);
  brim_record_read_words(finding, key, words, sizeof words);
  if (!brim_words_are(words)) return BRIM_OK;
  if (!json_object_get(finding, language->language)) {
    BRIM_TRY(brim_json_put(finding, language->language, json_object()));
  }
  brim_str_init(&text);
  brim_words_read_in(language, words, &text);
  brim_status status = brim_str_status(&text);
  if (!status) {
    status = brim_json_put(json_object_get(finding, language->language), key,
                           brim_record_text(text.data));
  }
  brim_str_deinit(&text);
  return status;
}

brim_status brim_finding_add_language(json_t *finding, const brim_msg_catalogue *language) {
  if (!language || !json_is_object(finding)) return BRIM_OK;
  json_object_del(finding, language->language);  // drop the translation that the sender wrote
  BRIM_TRY(add_text(finding, "text", language));
  return add_text(finding, "remedy", language);
}

//---------------------------------- nothing to fix ----------------------------------

bool brim_result_worth_fixing(const brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (!r->findings[i].note) return true;
  }
  return false;
}

double brim_result_ceiling_share(const brim_result *r, bool *loading_limits) {
  double data = r->data_samples_per_s, compute = r->compute_samples_per_s;
  *loading_limits = data < compute;
  if (isnan(data) || isnan(compute)) return (double)NAN;
  return r->samples_per_s / fmin(data, compute);
}

#define MACHINE_BUSY 0.1  // a measured ceiling is doubtful above this share of other programs

bool brim_machine_doubtful(const brim_machine_ceilings *c) { return c->load > MACHINE_BUSY; }

static double share_of(const brim_result *r, double per_step, double most) {
  const double share = per_step / (r->total_ms.median * 1e-3) / most;
  return share <= 1 && !brim_machine_doubtful(&r->ceilings) ? share : (double)NAN;
}

double brim_result_product_share(const brim_result *r, const char **precision) {
  *precision = brim_result_text_as(r, BRIM_ROLE_PRECISION);
  return share_of(r, r->plan.flops_per_step, brim_machine_flops(&r->ceilings, *precision));
}

double brim_result_memory_share(const brim_result *r) {
  return share_of(r, r->plan.bytes_per_step, r->ceilings.copy_bytes_per_s);
}
