// One sentence for a recommendation: by which knobs it is certainly faster, and which values cannot be
// told apart. Only settings that differ from the recommended one in one knob are evidence.
#include <math.h>
#include <string.h>

#include "tune/tune.h"

typedef struct knob_evidence {
  char certain[96], open[96];  // values, "64, 128"
  double least;                // factor over all of the certain ones
} knob_evidence;

static void list(char out[96], const char *value) {
  size_t n = strlen(out);
  snprintf(out + n, 96 - n, "%s%s", n ? ", " : "", value);
}

// Do two results differ in this knob and in no other?
static bool differ_in(const brim_result *a, const brim_result *b, size_t knob) {
  for (size_t k = 0; k < a->knob_count; k++) {
    const brim_result_knob *other = brim_result_knob_find(b, a->knobs[k].name);
    bool same = other && strcmp(other->value, a->knobs[k].value) == 0;
    if (same != (k != knob)) return false;
  }
  return true;
}

static void gather(const brim_result *results, size_t count, int pick, size_t knob, brim_race *race,
                   knob_evidence *out) {
  *out = (knob_evidence){.least = INFINITY};
  for (size_t i = 0; i < count; i++) {
    if ((int)i == pick || !brim_result_ran(&results[i])) continue;
    if (!differ_in(&results[pick], &results[i], knob)) continue;
    brim_interval ratio = brim_compare_results(results, (size_t)pick, i, race);
    const char *value = results[i].knobs[knob].value;
    if (ratio.high < 1) continue;  // certainly faster: withheld, and told elsewhere
    list(ratio.low > 1 ? out->certain : out->open, value);
    if (ratio.low > 1) out->least = fmin(out->least, ratio.low);
  }
}

static void say(char out[512], const char *text) {
  size_t n = strlen(out);
  snprintf(out + n, 512 - n, "%s%s", n ? "; " : "", text);
}

void brim_recommend_reason(const brim_result *results, size_t count, const brim_recommendation *r,
                           brim_race *race, char out[512]) {
  out[0] = '\0';
  if (r->recommended < 0) return;
  const brim_result *pick = &results[r->recommended];
  for (size_t k = 0; k < pick->knob_count; k++) {
    const brim_result_knob *knob = &pick->knobs[k];
    knob_evidence e;
    char text[384];
    gather(results, count, r->recommended, k, race, &e);
    if (e.certain[0]) {
      snprintf(text, sizeof text, brim_tr("%s %s is at least %.3gx faster than %s"), knob->name,
               knob->value, floor(100 * e.least) / 100, e.certain);
      say(out, text);
    }
    if (e.open[0]) {
      snprintf(text, sizeof text, brim_tr("%s %s and %s cannot be told apart here now"), knob->name,
               knob->value, e.open);
      say(out, text);
    }
  }
}
