// What an earlier bench measured of the same job on the same device, and what it recommends: by the rule
// of `brim bench` itself (src/tune).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_config_int.h"

#define WORTH 1.1  // a faster setting is named from this factor on

static const brim_doctor_row measured_row = {
    "config.measured", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Measured settings"),
    BRIM_N_("What brim bench measures on this device replaces the rules."), NULL};

//---------------------------------- reading ----------------------------------

static bool is_of_job(const brim_result *r, const brim_result *plan) {
  return brim_result_ran(r) && r->kind[0] == '\0' && strcmp(r->workload, plan->workload) == 0 &&
         strcmp(r->description, plan->description) == 0 && strcmp(r->device, plan->device) == 0 &&
         strcmp(r->device_id, plan->device_id) == 0 &&
         r->plan.parameter_count == plan->plan.parameter_count;
}

// Settings of both agree in every knob that both name.
static bool same_setting(const brim_result *a, const brim_result *b) {
  for (size_t i = 0; i < a->knob_count; i++) {
    const brim_result_knob *k = brim_result_knob_find(b, a->knobs[i].name);
    if (k && strcmp(k->value, a->knobs[i].value) != 0) return false;
  }
  return true;
}

// The values that the bench was asked to try; NULL = it chose them.
static const json_t *asked_values(const brim_result *r, const brim_knob *knob) {
  const char *dot = knob->list ? strchr(knob->list, '.') : NULL;
  char group[64];
  if (!dot || !r->config) return NULL;
  snprintf(group, sizeof group, "%.*s", (int)(dot - knob->list), knob->list);
  const json_t *values = json_object_get(json_object_get(r->config, group), dot + 1);
  return json_array_size(values) > 0 ? values : NULL;
}

static int64_t value_of(const brim_knob *knob, const char *text) {
  char word[32];
  if (knob->kind == BRIM_KNOB_INT) return strtoll(text, NULL, 10);
  for (int64_t v = knob->min; v <= knob->max; v++) {
    brim_knob_format(knob, v, word);
    if (strcmp(word, text) == 0) return v;
  }
  return knob->value;
}

static brim_setting setting_of(const brim_work *work, const brim_result *r) {
  brim_setting setting = brim_work_setting(work);
  for (size_t k = 0; k < work->knob_count; k++) {
    const brim_result_knob *value = brim_result_knob_find(r, work->knobs[k].name);
    if (value) setting.value[k] = value_of(&work->knobs[k], value->value);
  }
  return setting;
}

// The config's own value is none of those that the bench was asked to try: it was there to compare with.
static bool is_reference(const brim_work *work, const brim_result *r) {
  for (size_t k = 0; k < work->knob_count; k++) {
    const brim_knob *knob = &work->knobs[k];
    const json_t *values = knob->kind == BRIM_KNOB_INT ? asked_values(r, knob) : NULL;
    bool has = !values;
    for (size_t i = 0; i < json_array_size(values) && !has; i++) {
      has = json_integer_value(json_array_get(values, i)) == knob->value;
    }
    if (!has) return true;
  }
  return false;
}

// By the same evidence as bench: the race that the visits of the records make. Without memory for it nothing
// is certain.
static void choose(const brim_doctor_job *job, brim_doctor_records *out) {
  brim_race *race = NULL;
  const double passes = (double)brim_config_int(job->config, "benchmark.repeats");
  if (brim_race_of_results(out->results, out->count, passes, &race)) brim_status_clear();
  bool *withheld = (bool *)brim_calloc(out->count, sizeof *withheld);
  for (size_t i = 0; withheld && i < out->count; i++) {
    const brim_result *r = &out->results[i];
    bool named[BRIM_KNOB_MAX] = {false};
    for (size_t k = 0; k < job->work->knob_count; k++) {
      named[k] = asked_values(r, &job->work->knobs[k]) != NULL;
    }
    const brim_setting setting = setting_of(job->work, r);
    withheld[i] = brim_sweep_changes_learning(job->work, named, &setting);
  }
  const brim_recommend_options how = {
      .race = race,
      .interrupted = !race,
      .now = out->own,
      .now_is_reference = out->own >= 0 && is_reference(job->work, &out->results[out->own]),
      .withheld = withheld};
  brim_recommend(out->results, out->count, &how, &out->picks);
  brim_race_destroy(race);
  brim_free(withheld);
}

void brim_doctor_records_read(const brim_doctor_job *job, brim_doctor_records *out) {
  size_t all = 0;
  bool torn = false;
  *out = (brim_doctor_records){.own = -1};
  if (!job->records) return;
  if (brim_results_read(job->records, &out->results, &all, &torn)) {
    brim_status_clear();
    out->results = NULL;
    return;
  }
  for (size_t i = 0; i < all; i++) {
    brim_result *r = &out->results[i];
    if (!is_of_job(r, job->plan)) {
      brim_result_deinit(r);
      continue;
    }
    if (same_setting(r, job->plan)) out->own = (int)out->count;
    r->knob_set = job->work->table->knob_set;
    if (out->count < i) out->results[out->count] = *r;
    out->count++;
  }
  if (out->count > 0) choose(job, out);
}

void brim_doctor_records_free(brim_doctor_records *records) {
  for (size_t i = 0; i < records->count; i++) brim_result_deinit(&records->results[i]);
  brim_free(records->results);
  records->results = NULL;
  records->count = 0;
}

//---------------------------------- the line ----------------------------------

static const brim_knob *knob_named(const brim_work *work, const char *name) {
  int at = brim_work_knob(work, name);
  return at < 0 ? NULL : &work->knobs[at];
}

// What differs between the config and the recommended setting: in words, as overrides, and what it means
// for the learning rate ("" = nothing).
typedef struct difference {
  brim_str text, overrides;
  char rate[256];
} difference;

// As `brim bench --apply` writes it.
static void add_rate(const brim_doctor_job *job, const brim_result *to, difference *out) {
  brim_advice_facts f;
  brim_advice_facts_of(job->work, &f);
  double now = brim_result_number_as(to, BRIM_ROLE_BATCH, (double)NAN) *
               brim_result_number_as(to, BRIM_ROLE_ACCUMULATION, 1);
  double was = f.batch * f.accumulation;
  brim_advise_batch(&f, now, out->rate);
  if (!out->rate[0] || !(f.learning_rate > 0)) return;
  brim_str_printf(&out->overrides, " training.learning_rate=%.4g",
                  brim_advise_rate(f.learning_rate, was, now, f.adaptive));
}

static void find_difference(const brim_doctor_job *job, const brim_result *to, difference *out) {
  brim_str_init(&out->text);
  brim_str_init(&out->overrides);
  out->rate[0] = '\0';
  for (size_t i = 0; i < to->knob_count; i++) {
    const brim_result_knob *value = &to->knobs[i];
    const brim_result_knob *from = brim_result_knob_find(job->plan, value->name);
    const brim_knob *knob = knob_named(job->work, value->name);
    if (!from || !knob || strcmp(from->value, value->value) == 0) continue;
    brim_str_printf(&out->text, "%s%s %s -> %s", out->text.len ? ", " : "", value->name,
                    from->value, value->value);
    brim_str_printf(&out->overrides, "%s%s=%s", out->overrides.len ? " " : "", knob->key,
                    value->value);
  }
  add_rate(job, to, out);
}

// As bench doubts it; "" = it does not.
static const char *doubt_of(const brim_doctor_records *records) {
  return records->picks.provisional ? brim_tr(" (provisional: another may be faster)") : "";
}

static void say_faster(const brim_doctor_job *job, const brim_doctor_records *records,
                       const difference *d, brim_doctor_report *out) {
  const brim_interval *gain = &records->picks.gain;
  char factor[96];
  if (isnan(gain->low) || isnan(gain->high)) {
    snprintf(factor, sizeof factor, "x%.3g", gain->value);
  } else {
    snprintf(factor, sizeof factor, "x%.3g [%.3g, %.3g]", gain->value, gain->low, gain->high);
  }
  if (!(gain->low > 1)) {
    brim_doctor_line *line = brim_doctor_say_row(
        out, &measured_row, BRIM_DOCTOR_UNKNOWN,
        brim_tr("%s faster, but the intervals overlap: %s"), factor, d->text.data);
    brim_doctor_fix_bench(job, line, "");
    return;
  }
  brim_doctor_line *line = brim_doctor_say_row(
      out, &measured_row, BRIM_DOCTOR_WARN, brim_tr("%s faster%s: %s (%zu settings measured, %s)"),
      factor, doubt_of(records), d->text.data, records->count, job->records);
  if (d->rate[0]) brim_doctor_because(line, "%s", d->rate);
  brim_doctor_fix_train(job, line, "%s", d->overrides.data);
}

static void say_measured(const brim_doctor_job *job, const brim_doctor_records *records,
                         brim_doctor_report *out) {
  const brim_result *best = &records->results[records->picks.recommended];
  char rate[32];
  difference d;
  find_difference(job, best, &d);
  brim_format_figure(best->samples_per_s, rate);
  if (records->own < 0) {
    brim_doctor_line *line = brim_doctor_say_row(
        out, &measured_row, BRIM_DOCTOR_UNKNOWN,
        brim_tr("this setting is none of the %zu measured ones; the recommended one has %s %s/s: "
                "%s"),
        records->count, rate, brim_tr(brim_result_unit(best)), d.text.data);
    brim_doctor_fix_bench(job, line, "");
  } else if (d.text.len == 0) {
    brim_doctor_say_row(out, &measured_row, BRIM_DOCTOR_GOOD,
                        brim_tr("the one that brim bench recommends of %zu measured settings%s"),
                        records->count, doubt_of(records));
  } else if (!(records->picks.gain.value >= WORTH)) {
    brim_doctor_say_row(out, &measured_row, BRIM_DOCTOR_GOOD,
                        brim_tr("within %.0f %% of the recommended one of %zu measured settings%s"),
                        fmax(0, 100 * (records->picks.gain.value - 1)), records->count,
                        doubt_of(records));
  } else {
    say_faster(job, records, &d, out);
  }
  brim_str_deinit(&d.text);
  brim_str_deinit(&d.overrides);
}

void brim_doctor_measured(const brim_doctor_job *job, const brim_doctor_records *records,
                          brim_doctor_report *out) {
  if (records->count > 0 && records->picks.recommended >= 0) {
    say_measured(job, records, out);
    return;
  }
  brim_doctor_line *line = brim_doctor_say_row(
      out, &measured_row, BRIM_DOCTOR_UNKNOWN,
      brim_tr("no earlier bench of this config on this device in %s (output_dir); rules follow"),
      job->records ? job->records : "-");
  brim_doctor_fix_bench(job, line, "");
}
