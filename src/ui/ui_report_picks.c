// The top of the report: the recommendation with the two other picks, the findings with their prices,
// and what is left to do before training.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

//---------------------------------- recommendation ----------------------------------

static void put_stat(const char *name, const char *value, const char *more, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put(out, "dt", name);
  brim_ui_put(out, "dd", value);
  if (more[0]) brim_ui_put(out, "small", more);
  brim_str_append(out, "</div>\n");
}

static void put_rate_stat(const brim_result *r, brim_str *out) {
  char text[96], more[96] = "", low[32], high[32];
  brim_ui_number(r->samples_per_s, low);
  snprintf(text, sizeof text, "%s %s/s", low, brim_tr(brim_result_unit(r)));
  if (r->repeats == 1) {
    snprintf(more, sizeof more, "%s", brim_tr("measured once"));
  } else if (brim_ui_interval_tells(r->samples_per_s_low, r->samples_per_s_high)) {
    brim_ui_number(r->samples_per_s_low, low);
    brim_ui_number(r->samples_per_s_high, high);
    snprintf(more, sizeof more, brim_tr("95 %%: %s to %s"), low, high);
  }
  put_stat(brim_tr("Throughput"), text, more, out);
}

static void put_memory_stat(const brim_result *r, brim_str *out) {
  char text[32], more[96] = "";
  double share = brim_result_memory(r) / r->free_bytes * 100;
  brim_ui_bytes_text(brim_result_memory(r), text);
  if (share < 0.1) {
    snprintf(more, sizeof more, "%s", brim_tr("under 0.1 % of what is free"));
  } else if (isfinite(share)) {
    snprintf(more, sizeof more, brim_tr("%.1f %% of what is free"), brim_shown(share));
  }
  put_stat(brim_tr("Memory planned"), text, more, out);
}

static void put_stats(const brim_result *r, brim_str *out) {
  char text[64], number[32];
  brim_str_append(out, "<dl class=\"stats\">\n");
  put_rate_stat(r, out);
  brim_ui_ms(r->total_ms.median, number);
  snprintf(text, sizeof text, "%s ms", number);
  if (!isnan(r->total_ms.median)) put_stat(brim_tr("Time per step"), text, "", out);
  put_memory_stat(r, out);
  if (!isnan(r->epoch_s)) {
    brim_format_duration(r->epoch_s, text);
    put_stat(brim_tr("One epoch"), text, "", out);
  }
  bool gpu = brim_result_has_gpu(r);
  double share = gpu ? r->gpu_percent : r->cpu_percent;
  if (!isnan(share)) {
    snprintf(text, sizeof text, "%.0f %%", brim_shown(share));
    put_stat(gpu ? brim_tr("GPU used") : brim_tr("CPU used"), text, "", out);
  }
  if (r->joules_per_sample > 0) {
    brim_ui_number(r->joules_per_sample * 1e3, number);
    snprintf(text, sizeof text, "%s mJ", number);
    put_stat(brim_tr("Energy per sample"), text, "", out);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_setting(const brim_ui_view *view, const brim_result *r, brim_str *out) {
  brim_str_append(out, "<p class=\"setting\">");
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_ui_knob_shown(view->results, view->count, r->knobs[i].name)) continue;
    brim_str_append(out, "<span>");
    brim_ui_escape_html(out, brim_ui_knob_label(r, r->knobs[i].name));
    brim_str_append(out, " <b>");
    brim_ui_escape_html(out, r->knobs[i].value);
    brim_str_append(out, "</b></span> ");
  }
  brim_str_append(out, "</p>\n");
}

// How another pick stands to the recommended one.
static void put_against(const brim_result *r, const brim_result *recommended, brim_str *out) {
  char text[128];
  double rate = (r->samples_per_s / recommended->samples_per_s - 1) * 100;
  double memory = brim_result_memory(r) / brim_result_memory(recommended);
  if (!isfinite(rate) || !isfinite(memory)) return;
  snprintf(text, sizeof text,
           brim_tr("%+.1f %% throughput, %.2f times the memory of the recommended setting"),
           brim_shown(rate), brim_shown(memory));
  brim_ui_put(out, "p", text);
}

static void put_card(const brim_ui_view *view, const char *title, int index, bool efficiency,
                     brim_str *out) {
  if (index < 0) return;
  const brim_result *r = &view->results[index];
  int best = view->picks.recommended;
  char number[32], text[96];
  brim_str_append(out, "<div class=\"card\">");
  brim_ui_put(out, "h3", title);
  put_setting(view, r, out);
  if (efficiency) {
    brim_ui_number(r->samples_per_s / (brim_result_memory(r) / 1e9), number);
    snprintf(text, sizeof text, "%s %s/s/GB", number, brim_tr(brim_result_unit(r)));
  } else {
    brim_ui_number(r->samples_per_s, number);
    snprintf(text, sizeof text, "%s %s/s", number, brim_tr(brim_result_unit(r)));
  }
  brim_str_append(out, "<p class=\"figure\">");
  brim_ui_escape_html(out, text);
  // The fastest may be one that is not to be trusted.
  if (!r->stable || r->throttled) {
    brim_str_append(out, ", <span class=\"warn\">");
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>");
  if (index == best) {
    brim_ui_put(out, "p", brim_tr("This is the recommended setting."));
  } else if (best >= 0) {
    put_against(r, &view->results[best], out);
  }
  brim_str_append(out, "</div>\n");
}

// Predicted against achieved, and over how much.
static void put_verified(const brim_ui_verified *v, const char *unit, brim_str *out) {
  char predicted[32], achieved[32], time[32], cap[32], steps[32];
  brim_ui_number(v->predicted, predicted);
  brim_ui_number(v->achieved, achieved);
  brim_ui_number((double)v->steps, steps);
  brim_format_duration(v->seconds, time);
  brim_format_duration(v->cap_s, cap);
  brim_str_append(out, "<p class=\"verified\"><b>");
  brim_ui_escape_html(out, brim_tr("Verified in training"));
  brim_str_append(out, "</b> ");
  brim_str_printf(out, brim_tr("predicted %s %s/s, achieved %s: %.1f %%"), predicted, brim_tr(unit),
                  achieved, brim_shown(100 * v->achieved / v->predicted));
  brim_str_append(out, " <small>");
  if (v->epochs == 0) {
    brim_str_printf(out,
                    brim_tr("over %s, a part of an epoch (%s steps): --verify-seconds ended it "
                            "after %s"),
                    time, steps, cap);
  } else {
    brim_str_printf(out,
                    v->epochs == 1 ? brim_tr("over %s of %" PRId64 " epoch (%s steps)")
                                   : brim_tr("over %s of %" PRId64 " short epochs (%s steps)"),
                    time, v->epochs, steps);
  }
  brim_str_append(out, "</small>");
  char comment[320];
  brim_ui_verified_comment(v, comment);
  if (comment[0]) {
    brim_str_append(out, "<br /><span>");
    brim_ui_escape_html(out, comment);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>\n");
}

// What the recommended setting gains over the config's own, why it is recommended, and what is faster but
// changes learning: the lines of the terminal.
static void put_decision(const brim_ui_decision *d, int recommended, brim_str *out) {
  char factor[64], label[96], text[320];
  if (d->now < 0 && !d->reason[0] && d->beside < 0) return;
  brim_str_append(out, "<dl class=\"decision\">\n");
  if (d->now >= 0) {
    snprintf(label, sizeof label, "%s \xe2\x86\x92 %s", brim_tr("Now"), brim_tr("recommended"));
    brim_ui_factor(d->gain, d->gain_low, d->gain_high, factor);
    brim_ui_put_pair(out, label, d->now == recommended ? brim_ui_own_text(d) : factor);
  }
  brim_ui_put_pair(out, brim_tr("Why"), d->reason);
  if (d->beside >= 0) {
    brim_ui_factor(d->more, d->more_low, d->more_high, factor);
    snprintf(text, sizeof text, "%s, %s", factor, d->beside_text);
    brim_ui_put_pair(out, brim_tr("Faster still"), text);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_hero(const brim_ui_view *view, const brim_ui_report_options *options,
                     brim_str *out) {
  const brim_result *r = &view->results[view->picks.recommended];
  bool provisional = options->decision && options->decision->provisional;
  brim_str_printf(out, "<div class=\"hero%s\"><h2>", provisional ? " provisional" : "");
  brim_ui_escape_html(out, brim_ui_pick_title(options->decision, view->picks.recommended));
  if (provisional) {
    brim_str_append(out, " <span class=\"warn\">");
    brim_ui_escape_html(out, brim_tr("(provisional: another may be faster)"));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</h2>");
  put_setting(view, r, out);
  if (options->decision) put_decision(options->decision, view->picks.recommended, out);
  put_stats(r, out);
  if (options->verified) put_verified(options->verified, brim_result_unit(r), out);
  brim_str_append(out, "</div>\n");
}

void brim_ui_report_picks(const brim_ui_view *view, const brim_ui_report_options *options,
                          brim_str *out) {
  char doubts[BRIM_UI_DOUBTS][256];
  size_t doubtful = brim_ui_doubts(view->results, view->count, doubts);
  brim_str_append(out, "<section id=\"best\">");
  for (size_t i = 0; i < doubtful; i++) {
    brim_str_append(out, "<p class=\"warn\">");
    brim_ui_escape_html(out, doubts[i]);
    brim_str_append(out, "</p>\n");
  }
  if (view->picks.recommended >= 0) {
    put_hero(view, options, out);
  } else {
    brim_ui_put(out, "h2", brim_tr("Optimal configuration"));
    brim_ui_put(out, "p", brim_ui_why_nothing(view->results, view->count));
    const char *message = view->count && !brim_ui_any_ran(view) ? view->results[0].message : "";
    if (message[0]) {
      brim_str_append(out, "<p class=\"bad\">");
      brim_ui_escape_html(out, message);
      brim_str_append(out, "</p>\n");
    }
  }
  brim_str_append(out, "<div class=\"cards\">\n");
  put_card(view, brim_tr("Highest throughput"), view->picks.highest, false, out);
  put_card(view, brim_tr("Best efficiency"), view->picks.efficient, true, out);
  brim_str_append(out, "</div>\n</section>\n");
}

//---------------------------------- findings ----------------------------------

static void put_finding(const brim_result *r, const brim_finding *f, brim_str *out) {
  char cost[32];
  brim_str_append(out, "<li><span class=\"price\">");
  brim_ui_ms(f->cost_ms, cost);
  if (isnan(f->cost_ms)) {
    brim_str_append(out, BRIM_UI_DASH);
  } else {
    brim_str_append(out, "<b>");
    brim_str_printf(out, brim_tr("%s ms"), cost);
    brim_str_append(out, "</b> ");
    const bool iterates = r->knob_set && r->knob_set->iterates;
    brim_ui_escape_html(out, iterates ? brim_tr("per iteration") : brim_tr("per step"));
    double share = f->cost_ms / r->total_ms.median * 100;  // beyond it: not within the step
    if (share < 100) brim_str_printf(out, ", %.0f %%", brim_shown(share));
    brim_ui_escape_html(out, brim_ui_estimated(f));
  }
  brim_str_append(out, "</span><div>");
  brim_ui_put_finding_text(f, out);
  brim_str_append(out, "</div></li>\n");
}

// What there is to say of one setting, under its name.
static void put_list(const char *title, const brim_result *r, const brim_ui_decision *decision,
                     int recommended, brim_str *out) {
  char healthy[256];
  brim_ui_put(out, "h3", title);
  if (brim_ui_healthy_beside(r, decision, recommended, healthy)) brim_ui_put(out, "p", healthy);
  if (r->finding_count == 0) return;
  brim_str_append(out, "\n<ul class=\"findings\">\n");
  for (size_t i = 0; i < r->finding_count; i++) put_finding(r, &r->findings[i], out);
  brim_str_append(out, "</ul>\n");
  if (brim_ui_prices_overlap(r)) brim_ui_put(out, "p", brim_tr(BRIM_UI_PRICES_OVERLAP));
}

static size_t count_throttled(const brim_ui_view *view) {
  size_t n = 0;
  for (size_t i = 0; i < view->count; i++) {
    n += brim_result_ran(&view->results[i]) && view->results[i].throttled;
  }
  return n;
}

// Of the recommended setting and, where they are others, of the fastest and of the config's own.
void brim_ui_report_findings(const brim_ui_view *view, const brim_result *own,
                             const brim_ui_decision *decision, brim_str *out) {
  brim_ui_picks picks = view->picks;
  size_t throttled = count_throttled(view);
  bool recommended = brim_ui_has_findings(view->results, view->count, picks.recommended);
  bool highest = picks.highest != picks.recommended &&
                 brim_ui_has_findings(view->results, view->count, picks.highest);
  if (own && (!brim_result_ran(own) || own == &view->results[0] + picks.recommended ||
              (highest && own == &view->results[0] + picks.highest))) {
    own = NULL;
  }
  if (picks.highest < 0 && !throttled) return;
  brim_ui_put_section(out, "findings", brim_tr("Findings"),
                      recommended || highest || own
                          ? brim_tr("What costs time, how much per step, and what would help.")
                          : NULL);
  if (throttled) {
    brim_str_append(out, "<p class=\"warn\">");
    brim_str_printf(out,
                    throttled == 1
                        ? brim_tr("The clock fell while brim measured %zu setting: its figure may "
                                  "be too low.")
                        : brim_tr("The clock fell while brim measured %zu settings: their figures "
                                  "may be too low."),
                    throttled);
    brim_str_append(out, "</p>\n");
  }
  if (picks.recommended >= 0) {
    put_list(brim_tr("Recommended for training"), &view->results[picks.recommended], NULL, -1, out);
  }
  if (highest) {
    put_list(brim_tr("Highest throughput"), &view->results[picks.highest], NULL, -1, out);
  }
  if (own) put_list(brim_tr("The config's own setting"), own, decision, picks.recommended, out);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- before training ----------------------------------

void brim_ui_report_advice(const brim_advice *advice, brim_str *out) {
  if (advice->check_count == 0 && !advice->learning_rate[0] && !advice->accumulation[0]) return;
  brim_ui_put_section(out, "before", brim_tr("Before training"), NULL);
  brim_str_append(out, "<ul class=\"checks\">\n");
  for (size_t i = 0; i < advice->check_count; i++) {
    bool done = advice->checks[i].done;
    brim_str_printf(out, "<li class=\"%s\"><span>", done ? "done" : "open");
    brim_ui_escape_html(out, done ? brim_tr("done") : brim_tr("to do"));
    brim_str_append(out, "</span> ");
    brim_ui_escape_html(out, advice->checks[i].text);
    brim_str_append(out, "</li>\n");
  }
  brim_str_append(out, "</ul>\n");
  if (advice->learning_rate[0]) brim_ui_put(out, "p", advice->learning_rate);
  if (advice->accumulation[0]) brim_ui_put(out, "p", advice->accumulation);
  brim_str_append(out, "</section>\n");
}
