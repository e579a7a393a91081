// The recommendation in short: the setting, what it gains over the config's own, and why.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

// As many digits as the interval lets stand.
static int digits(double low, double high) {
  double width = high - low;
  return width >= 0.5 ? 1 : width >= 0.02 ? 2 : 3;
}

void brim_ui_factor(double value, double low, double high, char out[64]) {
  out[0] = '\0';
  if (isnan(value)) return;
  if (!brim_ui_interval_tells(low, high)) {
    snprintf(out, 64, "x%.2f", brim_shown(value));
    return;
  }
  int n = digits(low, high);
  snprintf(out, 64, "x%.*f [%.*f, %.*f]", n, brim_shown(value), n, brim_shown(low), n,
           brim_shown(high));
}

const char *brim_ui_own_text(const brim_ui_decision *d) {
  return d->own_is_fastest && !d->provisional
             ? brim_tr("keep your setting: it is already the fastest")
             : brim_tr("keep your setting: no other is certainly faster");
}

bool brim_ui_keeps(const brim_ui_decision *d, int recommended) {
  return d->now >= 0 && d->now == recommended;
}

static void put_gain(const brim_term *term, const brim_ui_decision *d, bool same, brim_str *out) {
  char factor[64], label[64];
  if (d->now < 0) return;
  snprintf(label, sizeof label, "%s %s %s", brim_tr("Now"), term->unicode ? "→" : "->",
           brim_tr("recommended"));
  if (same) {
    brim_ui_put_line(term, label, brim_ui_own_text(d), out);
    return;
  }
  brim_ui_factor(d->gain, d->gain_low, d->gain_high, factor);
  brim_ui_put_line(term, label, factor, out);
}

static void put_beside(const brim_term *term, const brim_ui_decision *d, brim_str *out) {
  char factor[64], text[320];
  if (d->beside < 0) return;
  brim_ui_factor(d->more, d->more_low, d->more_high, factor);
  snprintf(text, sizeof text, "%s, %s", factor, d->beside_text);
  brim_ui_put_line(term, brim_tr("Faster still"), text, out);
}

const char *brim_ui_pick_title(const brim_ui_decision *d, int recommended) {
  return d && brim_ui_keeps(d, recommended) ? brim_tr("Keep your setting")
                                            : brim_tr("Recommended for training");
}

void brim_ui_recommended_title(const brim_term *term, const brim_ui_decision *d, int recommended,
                               brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_BOLD, brim_ui_pick_title(d, recommended));
  if (d && d->provisional) {
    brim_str_append_char(out, ' ');
    brim_ui_styled(out, term, BRIM_UI_WARN, brim_tr("(provisional: another may be faster)"));
  }
  brim_str_append_char(out, '\n');
}

void brim_ui_decision_lines(const brim_term *term, const brim_ui_decision *d, int recommended,
                            brim_str *out) {
  put_gain(term, d, d->now == recommended, out);
  if (d->reason[0]) brim_ui_put_line(term, brim_tr("Why"), d->reason, out);
  put_beside(term, d, out);
}

// So many percent more or less of the CPU explain another speed.
#define OTHER_LOAD 10

void brim_ui_verified_comment(const brim_ui_verified *v, char out[320]) {
  char low[32], high[32];
  out[0] = '\0';
  if (!(v->achieved > 0) || !(v->predicted > 0)) return;
  if (!(v->low > 0) || !brim_ui_interval_tells(v->low, v->high)) {
    snprintf(out, 320, "%s", brim_tr("the sweep was too unsteady to predict a range"));
    return;
  }
  brim_ui_number(v->low, low);
  brim_ui_number(v->high, high);
  if (v->achieved >= v->low && v->achieved <= v->high) {
    snprintf(out, 320, brim_tr("within the %s to %s that were expected"), low, high);
  } else if (fabs(v->others_now - v->others_then) >= OTHER_LOAD) {
    snprintf(out, 320,
             brim_tr("outside the %s to %s that were expected: other programs used %.0f %% of the "
                     "CPU during the sweep and %.0f %% now"),
             low, high, v->others_then, v->others_now);
  } else {
    snprintf(out, 320,
             v->achieved > v->high
                 ? brim_tr("above the %s to %s that were expected: the machine was slower during "
                           "the sweep; measure again with more --repeats")
                 : brim_tr("below the %s to %s that were expected: the machine is slower now, or "
                           "training has costs that the sweep does not; see brim profile"),
             low, high);
  }
}
