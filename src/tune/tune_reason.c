// One sentence for a recommendation: by which knobs it is certainly faster, and which values cannot be
// told apart. Only settings that differ from the recommended one in one knob are evidence.
#include <math.h>
#include <string.h>

#include "tune/tune.h"

enum { LIST_BYTES = 96 };

// Values, "64, 128"; those for which there is no room are counted.
typedef struct value_list {
  char text[LIST_BYTES + 48];
  int more;
} value_list;

typedef struct knob_evidence {
  value_list certain, open;
  double least;  // factor over all of the certain ones
} knob_evidence;

static void add(value_list *list, const char *value) {
  size_t n = strlen(list->text);
  if (list->more > 0 || n + strlen(value) + 2 >= LIST_BYTES) {
    list->more++;
  } else {
    snprintf(list->text + n, LIST_BYTES - n, "%s%s", n ? ", " : "", value);
  }
}

static void end(value_list *list) {
  size_t n = strlen(list->text);
  if (list->more > 0) {
    snprintf(list->text + n, sizeof list->text - n, brim_tr(" and %d more"), list->more);
  }
}

// A sentence about several settings has to hold for all of them at once: for ten, at 95 %. That takes 1.5
// times the interval of one.
#define ALL_AT_ONCE 1.5

static double surely(brim_interval ratio) {
  return exp(log(ratio.value) - ALL_AT_ONCE * log(ratio.value / ratio.low));
}

// To two digits, never more than is certain.
static double shown(double factor) { return floor(brim_shown(100 * factor)) / 100; }

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
    double least = surely(ratio);
    bool certain = least > 1;
    if (ratio.low > 1 && !(shown(least) > 1))
      continue;  // not sure enough, or by less than is shown
    add(certain ? &out->certain : &out->open, value);
    if (certain) out->least = fmin(out->least, least);
  }
  end(&out->certain);
  end(&out->open);
}

// Whole, or not at all.
static void say(char out[512], const char *text) {
  size_t n = strlen(out);
  if (n + strlen(text) + 2 >= 512) return;
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
    if (e.certain.text[0]) {
      brim_msg_format(text, sizeof text, brim_tr("%s %s is at least %.3gx faster than %s"),
                      knob->name, knob->value, shown(e.least), e.certain.text);
      say(out, text);
    }
    if (e.open.text[0]) {
      brim_msg_format(text, sizeof text, brim_tr("%s %s and %s cannot be told apart in this sweep"),
                      knob->name, knob->value, e.open.text);
      say(out, text);
    }
  }
}
