// Values of a metric as people read them: with their deviation, as an interval, as a difference. The
// metric says whether they are percentages; metric NULL: plain numbers.
#include <math.h>
#include <stdio.h>

#include "ui/ui_report_int.h"
#include "ui/ui_sweep_int.h"

static bool is_percent(const brim_sweep_metric *metric) {
  return metric && metric->format == BRIM_METRIC_PERCENT;
}

static int percent_digits(const brim_sweep_metric *metric) {
  return metric->digits ? metric->digits : 2;
}

// Decimals that show two digits of `std`; -1 = a number of that size has none that are readable.
static int decimals_of(double size, double std) {
  if (!isfinite(std)) return -1;
  const double place = std > 0 ? floor(log10(std)) : -3;
  if (!(fabs(size) < 1e6) || place < -6 || place >= 6) return -1;
  return place < 1 ? 1 - (int)place : 0;
}

void brim_ui_value(const brim_sweep_metric *metric, double value, char out[32]) {
  brim_ui_sweep_value(metric, isfinite(value) ? value : (double)NAN, out);
  if (!out[0]) snprintf(out, 32, BRIM_UI_DASH);
}

void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]) {
  char number[32];
  if (!isfinite(mean) || !isfinite(std)) {
    brim_ui_value(metric, mean, number);
    snprintf(out, 80, "%s", number);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f %%", digits, brim_shown(mean * 100), digits,
             brim_shown(std * 100));
  } else if (decimals_of(mean, std) >= 0) {
    const int digits = decimals_of(mean, std);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f", digits, brim_shown(mean), digits, brim_shown(std));
  } else {
    brim_ui_value(metric, mean, number);
    snprintf(out, 80, "%s \xc2\xb1 %.2g", number, brim_shown(std));
  }
}

void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]) {
  const double size = fmax(fabs(bounds[0]), fabs(bounds[1]));
  if (!isfinite(bounds[0]) || !isfinite(bounds[1])) {
    snprintf(out, 80, BRIM_UI_DASH);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f %%", digits, brim_shown(bounds[0] * 100), digits,
             brim_shown(bounds[1] * 100));
  } else if (decimals_of(size, std) >= 0) {
    const int digits = decimals_of(size, std);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f", digits, brim_shown(bounds[0]), digits,
             brim_shown(bounds[1]));
  } else {
    snprintf(out, 80, "%.4g \xe2\x80\x93 %.4g", brim_shown(bounds[0]), brim_shown(bounds[1]));
  }
}

static void put_signed(const brim_sweep_metric *metric, double value, char out[32]) {
  if (is_percent(metric)) {
    snprintf(out, 32, "%+.*f", percent_digits(metric), brim_shown(value * 100));
  } else {
    snprintf(out, 32, "%+.3g", brim_shown(value));
  }
}

void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]) {
  char middle[32], low[32], high[32], text[104];
  if (!isfinite(mean)) {
    snprintf(out, 112, "-");
    return;
  }
  put_signed(metric, mean, middle);
  if (isfinite(bounds[0])) {
    put_signed(metric, bounds[0], low);
    put_signed(metric, bounds[1], high);
    snprintf(text, sizeof text, "%s [%s, %s]", middle, low, high);
  } else {
    snprintf(text, sizeof text, "%s", middle);
  }
  snprintf(out, 112, is_percent(metric) ? brim_tr("%s pp") : "%s", text);
}
