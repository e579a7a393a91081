// Small texts that several views share: numbers, statuses, settings.
#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void brim_ui_number(double value, char out[32]) { brim_format_figure(value, out); }

void brim_ui_ms(double value, char out[32]) {
  value = brim_shown(value);
  if (isnan(value)) {
    snprintf(out, 32, "-");
  } else if (fabs(value) >= 99.95) {
    snprintf(out, 32, "%.0f", value);
  } else if (fabs(value) >= 9.995) {
    snprintf(out, 32, "%.1f", value);
  } else {
    snprintf(out, 32, "%.2f", value);
  }
}

const char *brim_ui_failure_class(brim_failure failure) {
  static const char *const texts[BRIM_FAILURE_COUNT] = {
      [BRIM_FAILURE_NONE] = BRIM_N_("ok"),
      [BRIM_FAILURE_OOM_PLANNED] = BRIM_N_("OOM (planned)"),
      [BRIM_FAILURE_OOM_DEVICE] = BRIM_N_("OOM"),
      [BRIM_FAILURE_OOM_HOST] = BRIM_N_("OOM (host)"),
      [BRIM_FAILURE_SHARED_MEMORY] = BRIM_N_("no shared memory"),
      [BRIM_FAILURE_BAD_CONFIG] = BRIM_N_("bad config"),
      [BRIM_FAILURE_UNSUPPORTED] = BRIM_N_("unsupported"),
      [BRIM_FAILURE_CRASH] = BRIM_N_("crashed"),
      [BRIM_FAILURE_INTERRUPTED] = BRIM_N_("stopped"),
      [BRIM_FAILURE_NAN] = BRIM_N_("NaN"),
      [BRIM_FAILURE_DATA] = BRIM_N_("bad data"),
      [BRIM_FAILURE_KILLED] = BRIM_N_("killed"),
      [BRIM_FAILURE_HUNG] = BRIM_N_("hung"),
      [BRIM_FAILURE_INFRASTRUCTURE] = BRIM_N_("machine failed"),
      [BRIM_FAILURE_OTHER] = BRIM_N_("failed"),
  };
  if ((unsigned)failure >= BRIM_FAILURE_COUNT) return brim_tr("failed");
  return brim_tr(texts[failure]);
}

const char *brim_ui_failure_text(const brim_result *result) {
  if (result->failure == BRIM_FAILURE_NONE && result->throttled) return brim_tr("throttled");
  if (result->failure == BRIM_FAILURE_NONE && result->steps > 0 && !result->stable) {
    return brim_result_one_sample(result) ? brim_tr("one sample") : brim_tr("unstable");
  }
  return brim_ui_failure_class(result->failure);
}

const char *brim_ui_description(const char *english, char out[192]) {
  static const char on[] = " on ", of[] = " samples of ", most[] = "up to ";
  char model[64], count[32];
  if (!english) return "";
  const char *first = strstr(english, on);
  const char *second = first ? strstr(first, of) : NULL;
  if (!second || first - english >= (ptrdiff_t)sizeof model) return english;
  const char *number = first + strlen(on), *shape = second + strlen(of);
  if (second < number || second - number >= (ptrdiff_t)sizeof count) return english;
  snprintf(model, sizeof model, "%.*s", (int)(first - english), english);
  snprintf(count, sizeof count, "%.*s", (int)(second - number), number);
  bool varies = brim_str_starts(shape, most);
  if (varies) shape += strlen(most);
  snprintf(out, 192,
           varies ? brim_tr("%s on %s samples of up to %s") : brim_tr("%s on %s samples of %s"),
           model, count, shape);
  return out;
}

void brim_ui_setting(const brim_result *result, brim_str *out) {
  for (size_t i = 0; i < result->knob_count; i++) {
    brim_str_printf(out, "%s%s=%s", i ? " " : "", result->knobs[i].name, result->knobs[i].value);
  }
}

bool brim_ui_interval_tells(double low, double high) { return high <= 100 * low; }
