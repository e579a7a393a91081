// Findings of a result as lines of a terminal, with their prices; or that there is nothing to fix, with
// the share of its ceiling. Callers: bench, profile.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "ui/ui_report_int.h"

//---------------------------------- nothing to fix ----------------------------------

void brim_ui_add_others(const brim_result *r, brim_str *out) {
  if (brim_result_has_gpu(r) || !brim_results_were_disturbed(r, 1)) return;
  brim_str_printf(out, brim_tr(", while other programs had %.0f %% of the CPU"),
                  brim_shown(r->others_cpu_percent));
}

void brim_ui_doubtful(const brim_result *r, char out[256]) {
  snprintf(out, 256,
           brim_tr("unknown: other programs had %.0f %% of the machine when brim measured what it "
                   "can do"),
           brim_shown(100 * r->ceilings.load));
}

// "98 % of the slower stage (computing)"; a share above 100 % is no share.
static bool put_stage_share(const brim_result *r, char *out, size_t size) {
  bool loading;
  double share = 100 * brim_result_ceiling_share(r, &loading);
  if (!(share <= 100)) return false;
  snprintf(out, size, brim_tr("%.0f %% of the slower stage (%s)"), brim_shown(share),
           loading ? brim_tr("loading") : brim_tr("computing"));
  return true;
}

static bool put_product_share(const brim_result *r, char *out, size_t size) {
  const char *precision;
  double share = 100 * brim_result_product_share(r, &precision);
  if (!(share <= 100)) return false;
  if (share < 1) {
    snprintf(out, size, brim_tr("under 1 %% of this machine's %s matrix products"), precision);
  } else {
    snprintf(out, size, brim_tr("%.0f %% of this machine's %s matrix products"), brim_shown(share),
             precision);
  }
  return true;
}

bool brim_ui_healthy(const brim_result *result, char out[256]) {
  char stage[96], products[96];
  brim_str others;
  if (!brim_result_ran(result) || brim_result_worth_fixing(result)) return false;
  bool a = put_stage_share(result, stage, sizeof stage);
  bool b = put_product_share(result, products, sizeof products);
  if (a && b) {
    snprintf(out, 256, brim_tr("nothing worth fixing: %s, %s"), stage, products);
  } else if (a || b) {
    snprintf(out, 256, brim_tr("nothing worth fixing: %s"), a ? stage : products);
  } else {
    snprintf(out, 256, "%s",
             brim_tr("nothing worth fixing; brim has no ceiling to compare it with"));
  }
  brim_str_init(&others);
  if (a || b) brim_ui_add_others(result, &others);
  if (others.len) snprintf(out + strlen(out), 256 - strlen(out), "%s", others.data);
  brim_str_deinit(&others);
  return true;
}

bool brim_ui_healthy_beside(const brim_result *result, const brim_ui_decision *d, int recommended,
                            char out[256]) {
  char factor[64];
  if (!brim_ui_healthy(result, out)) return false;
  if (!d || d->now < 0 || brim_ui_keeps(d, recommended) || !(d->gain_low > 1)) return true;
  brim_ui_factor(d->gain, d->gain_low, d->gain_high, factor);
  snprintf(out, 256, brim_tr("no single cost stands out; the recommended setting gains %s"),
           factor);
  return true;
}

//---------------------------------- findings ----------------------------------

const char *brim_ui_estimated(const brim_finding *f) {
  return f->measured ? "" : brim_tr(", estimated");
}

static void put_finding(const brim_term *term, const brim_result *r, const brim_finding *f,
                        brim_str *out) {
  char cost[32], price[64] = "";
  if (!isnan(f->cost_ms)) {
    brim_ui_ms(f->cost_ms, cost);
    const bool iterates = r->knob_set && r->knob_set->iterates;
    snprintf(price, sizeof price,
             iterates ? brim_tr(" (%s ms per iteration%s)") : brim_tr(" (%s ms per step%s)"), cost,
             brim_ui_estimated(f));
  }
  brim_str text, remedy;
  brim_str_init(&text);
  brim_str_init(&remedy);
  brim_words_read(f->text, &text);
  brim_words_read(f->remedy, &remedy);
  brim_str_append(&text, price);
  brim_ui_styled(out, term, BRIM_UI_WARN, term->unicode ? "• " : "* ");
  brim_ui_wrap(out, term, text.data, 2);
  if (remedy.len > 0) {
    brim_str_append(out, "\n  ");
    brim_str_append(out, term->unicode ? "→ " : "> ");
    brim_ui_wrap(out, term, remedy.data, 4);
  }
  brim_str_append_char(out, '\n');
  if (text.status || remedy.status) out->status = BRIM_ENOMEM;
  brim_str_deinit(&remedy);
  brim_str_deinit(&text);
}

void brim_ui_put_finding_text(const brim_finding *f, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  brim_words_read(f->text, &text);
  brim_ui_put(out, "p", text.data);
  brim_str_clear(&text);
  brim_words_read(f->remedy, &text);
  if (text.len > 0) {
    brim_str_append(out, "<p class=\"remedy\">");
    brim_ui_escape_html(out, text.data);
    brim_str_append(out, "</p>");
  }
  if (text.status) out->status = text.status;
  brim_str_deinit(&text);
}

bool brim_ui_prices_overlap(const brim_result *result) {
  size_t priced = 0;
  for (size_t i = 0; i < result->finding_count; i++) {
    priced += !result->findings[i].note && !isnan(result->findings[i].cost_ms);
  }
  return priced > 1;
}

void brim_ui_bench_findings(const brim_term *term, const brim_result *result,
                            const brim_ui_decision *decision, int recommended, brim_str *out) {
  char healthy[256];
  if (brim_ui_healthy_beside(result, decision, recommended, healthy)) {
    brim_ui_styled(out, term, BRIM_UI_GOOD, term->unicode ? "• " : "* ");
    brim_ui_wrap(out, term, healthy, 2);
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < result->finding_count; i++) {
    put_finding(term, result, &result->findings[i], out);
  }
  if (brim_ui_prices_overlap(result)) {
    brim_ui_wrap(out, term, brim_tr(BRIM_UI_PRICES_OVERLAP), 0);
    brim_str_append_char(out, '\n');
  }
}
