// Shrinks the setting when memory is too small: smaller micro-batches and more of them, so that a step keeps its
// samples, or what the workload's own `shrinking` gives up. Each change is reported, logged with its step, and
// stored in checkpoints, from which a resumed run takes it.
#include <inttypes.h>
#include <string.h>

#include "run/run_int.h"

void brim_run_adapt_init(brim_run_adapt *a, const brim_work *work, const brim_config *config) {
  const char *text = brim_config_string(config, "gpu.on_oom");
  memset(a, 0, sizeof *a);
  a->setting = brim_work_setting(work);
  a->batch = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  a->accumulation = brim_work_knob_as(work, BRIM_ROLE_ACCUMULATION);
  a->asked = a->setting;
  a->shrinks = work->table->shrinking != NULL;
  bool batches = a->batch >= 0 && a->accumulation >= 0;
  // with ranks, one rank cannot change its setting alone
  a->frees_optional = (!text || strcmp(text, "fail") != 0) && !work->context.comm;
  a->on = a->frees_optional && (batches || a->shrinks);
  if (work->table->batches) work->table->batches->allow_smaller(work->state);
  if (!batches || a->shrinks) return;
  a->effective = a->setting.value[a->batch] * a->setting.value[a->accumulation];
  // smaller micro-batches do not help a step that is larger than the data
  brim_work_info info;
  work->table->info(work->state, &info);
  a->whole = info.whole;
  if (a->effective > info.set_samples) a->on = false;
}

static bool free_optional(const brim_workload_table *table, void *state, const brim_setting *s) {
  if (table->batches && table->batches->free_optional(state, s)) return true;
  const brim_work_shrink_table *shrinking = table->shrinking;
  return shrinking && shrinking->free_optional && shrinking->free_optional(state, s);
}

// The next smaller setting: without optional memory, else with the next smaller micro-batch that divides a step.
static bool next_smaller(brim_run_adapt *a, const brim_work *work) {
  const brim_workload_table *table = work->table;
  if (a->frees_optional && free_optional(table, work->state, &a->setting)) return true;
  if (!a->on) return false;
  if (a->shrinks) return table->shrinking->shrink(work->state, &a->setting);
  int64_t most = work->knobs[a->accumulation].max;
  for (int64_t batch = a->setting.value[a->batch] - 1; batch >= 1; batch--) {
    if (a->effective % batch != 0 || a->whole % batch != 0) continue;
    if (a->effective / batch > most) return false;
    brim_setting smaller = a->setting;
    smaller.value[a->batch] = batch;
    smaller.value[a->accumulation] = a->effective / batch;
    if (!table->sensible(work->state, &smaller)) continue;
    a->setting = smaller;
    return true;
  }
  return false;
}

// BRIM_EOOM if the plan does not fit. Does not look for one that fits.
static brim_status plan_fits(const brim_run_adapt *a, const brim_work *work,
                             const brim_run_options *options, uint64_t limit, brim_plan *plan) {
  BRIM_TRY(work->table->plan(work->state, &a->setting, plan));
  if (!brim_work_fits(work, plan, limit)) return BRIM_EOOM;
  return options->check ? options->check(options->ctx, &a->setting, plan) : BRIM_OK;
}

// What smaller micro-batches change in the result: batch norm. "" if nothing. `plan` may be NULL.
static void side_effects(const brim_run_adapt *a, const brim_work *work, const brim_plan *plan,
                         char *out, size_t size) {
  brim_plan made;
  out[0] = 0;
  if (!plan && work->table->plan(work->state, &a->setting, &made)) {
    brim_status_clear();  // configuring will report it
    return;
  }
  if (!plan) plan = &made;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, BRIM_PLAN_STATISTICS) != 0) continue;
    snprintf(out, size, brim_tr("; batch norm uses %lld samples at a time"),
             (long long)a->setting.value[a->batch]);
  }
}

static void warn_smaller(const brim_run_adapt *a, const brim_work *work, const brim_setting *was,
                         const brim_plan *plan, const char *when) {
  if (memcmp(was, &a->setting, sizeof *was) == 0)
    return;  // freeing optional memory was reported already
  if (a->shrinks) {
    char change[160];
    brim_work_setting_change(work, was, &a->setting, change, sizeof change);
    brim_log_warn("run", "out of memory%s: %s", when, change);
    return;
  }
  char besides[128];
  side_effects(a, work, plan, besides, sizeof besides);
  brim_log_warn("run",
                "out of memory%s: micro-batch %" PRId64 " -> %" PRId64 ", accumulation %" PRId64
                " -> %" PRId64 "; the effective batch of %" PRId64 " and the learning rate stay%s",
                when, was->value[a->batch], a->setting.value[a->batch], was->value[a->accumulation],
                a->setting.value[a->accumulation], a->effective, besides);
}

brim_status brim_run_adapt_plan(brim_run_adapt *a, const brim_work *work,
                                const brim_run_options *options, uint64_t limit, brim_plan *plan) {
  const brim_setting was = a->setting;
  brim_status status = plan_fits(a, work, options, limit, plan);
  if (status != BRIM_EOOM) return status;
  while (status == BRIM_EOOM && next_smaller(a, work)) {
    status = plan_fits(a, work, options, limit, plan);
  }
  if (!status) {
    brim_status_clear();
    warn_smaller(a, work, &was, plan, brim_tr(" foreseen"));
    return BRIM_OK;
  }
  if (status != BRIM_EOOM) return status;
  a->setting = was;  // nothing fits: report the setting that was asked for
  BRIM_TRY(work->table->plan(work->state, &a->setting, plan));
  BRIM_TRY(brim_work_check_fit(work, &a->setting, plan, limit));
  return options->check ? options->check(options->ctx, &a->setting, plan) : BRIM_OK;
}

bool brim_run_adapts(const brim_work *work, const brim_config *config) {
  const brim_run_options options = {0};
  const uint64_t limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  brim_run_adapt a;
  brim_plan plan;
  brim_run_adapt_init(&a, work, config);
  const bool fits = brim_run_adapt_plan(&a, work, &options, limit, &plan) == BRIM_OK;
  brim_status_clear();
  return fits;
}

brim_status brim_run_adapt_build(brim_run_adapt *a, brim_work *work, int64_t step) {
  const brim_setting was = a->setting;
  char why[512], when[64];
  brim_status status = work->table->configure(work->state, &a->setting);
  while (status == BRIM_EOOM) {
    snprintf(why, sizeof why, "%s", brim_status_detail());
    if (!next_smaller(a, work)) {
      a->setting = was;
      return brim_fail(BRIM_EOOM, "%s", why);
    }
    status = work->table->configure(work->state, &a->setting);
  }
  if (status || memcmp(&was, &a->setting, sizeof was) == 0) return status;
  snprintf(when, sizeof when, brim_tr(" at step %lld"), (long long)step);
  warn_smaller(a, work, &was, NULL, when);
  return BRIM_OK;
}

brim_status brim_run_adapt_rebuild(brim_run_adapt *a, brim_work *work, int64_t step) {
  const brim_setting was = a->setting;
  char when[64];
  if (!next_smaller(a, work)) return BRIM_EOOM;
  const brim_setting first = a->setting;
  BRIM_TRY(brim_run_adapt_build(a, work, step));
  if (memcmp(&first, &a->setting, sizeof first) != 0) return BRIM_OK;  // build reported it
  snprintf(when, sizeof when, brim_tr(" at step %lld"), (long long)step);
  warn_smaller(a, work, &was, NULL, when);
  return BRIM_OK;
}

//---------------------------------- remembering ----------------------------------

// The adapted values: every knob if the workload decides how to shrink, else micro-batch and accumulation.
static void values_of(const brim_run_adapt *a, const brim_work *work, int64_t step,
                      brim_run_adaption *out) {
  memset(out, 0, sizeof *out);
  out->step = step;
  for (size_t i = 0; a->shrinks && i < work->knob_count; i++) {
    out->setting.value[i] = a->setting.value[i];
  }
  if (a->shrinks) return;
  out->batch = a->setting.value[a->batch];
  out->accumulation = a->setting.value[a->accumulation];
}

static brim_status put_fields(const brim_run_adapt *a, const brim_work *work,
                              const brim_run_adaption *made, json_t *f) {
  for (size_t i = 0; a->shrinks && i < work->knob_count; i++) {
    if (a->setting.value[i] == a->asked.value[i]) continue;
    BRIM_TRY(brim_json_put(f, work->knobs[i].name, json_integer(a->setting.value[i])));
  }
  if (a->shrinks) return BRIM_OK;
  BRIM_TRY(brim_json_put(f, work->knobs[a->batch].name, json_integer(made->batch)));
  BRIM_TRY(brim_json_put(f, work->knobs[a->accumulation].name, json_integer(made->accumulation)));
  return brim_json_put(f, "effective_batch", json_integer(a->effective));
}

brim_status brim_run_adapt_note(brim_run_adapt *a, const brim_work *work, brim_run_log *log,
                                int64_t epoch, int64_t step) {
  if (a->count == BRIM_RUN_ADAPTIONS) {  // drop the oldest: a resumed run uses only the last
    memmove(a->made, a->made + 1, (BRIM_RUN_ADAPTIONS - 1) * sizeof *a->made);
    a->count--;
  }
  brim_run_adaption *made = &a->made[a->count++];
  values_of(a, work, step, made);
  json_t *f = json_object();
  brim_status s = f ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while logging");
  if (!s) s = put_fields(a, work, made, f);
  if (!s) return brim_run_log_event(log, "adapt", epoch, step, f);
  json_decref(f);
  return s;
}

// "step:batch:accumulation ...", or, if the workload decides how to shrink, "step:knob=value<asked:... ..." with the
// knobs that are smaller than the config asked for.
brim_status brim_run_adapt_put(const brim_run_adapt *a, const brim_work *work, json_t *metadata) {
  if (a->count == 0) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < a->count; i++) {
    const brim_run_adaption *made = &a->made[i];
    brim_str_printf(&text, "%s%" PRId64, i ? " " : "", made->step);
    if (!a->shrinks)
      brim_str_printf(&text, ":%" PRId64 ":%" PRId64, made->batch, made->accumulation);
    for (size_t k = 0; a->shrinks && k < work->knob_count; k++) {
      const int64_t value = made->setting.value[k], asked = a->asked.value[k];
      if (value == asked) continue;
      brim_str_printf(&text, ":%s=%" PRId64 "<%" PRId64, work->knobs[k].name, value, asked);
    }
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(metadata, "brim.adapted", json_string(text.data));
  brim_str_deinit(&text);
  return status;
}

// Copies the next word of a text. False at the end, or if it does not fit.
static bool next_word(const char **text, char part[256]) {
  size_t n = strcspn(*text, " ");
  if (n == 0 || n >= 256) return false;
  memcpy(part, *text, n);
  part[n] = 0;
  *text += n + ((*text)[n] == ' ');
  return true;
}

static bool read_batches(const brim_run_adapt *a, const brim_work *work, char *part,
                         brim_run_adaption *out) {
  char *second = strchr(part, ':'), *third = second ? strchr(second + 1, ':') : NULL;
  if (!third) return false;
  *second = *third = 0;
  bool numbers = brim_parse_i64(part, &out->step) && brim_parse_i64(second + 1, &out->batch) &&
                 brim_parse_i64(third + 1, &out->accumulation) && out->step >= 0 &&
                 out->batch > 0 && out->accumulation > 0;
  // bounding each factor by the product first keeps the multiplication from overflowing
  return numbers && out->accumulation <= work->knobs[a->accumulation].max &&
         out->batch <= a->effective / out->accumulation &&
         out->batch * out->accumulation == a->effective && a->whole % out->batch == 0;
}

// Reads "knob=value<asked". A knob keeps this config's value if the config asks for another one than the run did.
// Earlier versions wrote all knobs without "<asked"; then no value may be larger than what is asked for now.
static bool read_knob(const brim_run_adapt *a, const brim_work *work, char *text,
                      brim_setting *out) {
  char *value = strchr(text, '='), *of = strchr(text, '<');
  if (!value || (of && of < value)) return false;
  *value++ = 0;
  if (of) *of++ = 0;
  const int knob = brim_work_knob(work, text);
  int64_t number = 0, asked = 0;
  if (knob < 0 || !brim_parse_i64(value, &number)) return false;
  if (of && !brim_parse_i64(of, &asked)) return false;
  if (!of) asked = a->asked.value[knob];
  if (number < work->knobs[knob].min || number > asked) return false;
  if (asked == a->asked.value[knob]) out->value[knob] = number;
  return true;
}

static bool read_knobs(const brim_run_adapt *a, const brim_work *work, char *part,
                       brim_run_adaption *out) {
  char *at = strchr(part, ':');
  if (!at) return false;
  *at++ = 0;
  if (!brim_parse_i64(part, &out->step) || out->step < 0) return false;
  out->setting = a->asked;
  while (at && *at) {
    char *next = strchr(at, ':');
    if (next) *next++ = 0;
    if (!read_knob(a, work, at, &out->setting)) return false;
    at = next;
  }
  return true;
}

static bool read_one(const brim_run_adapt *a, const brim_work *work, const char **text,
                     brim_run_adaption *out) {
  char part[256];
  memset(out, 0, sizeof *out);
  if (!next_word(text, part)) return false;
  return a->shrinks ? read_knobs(a, work, part, out) : read_batches(a, work, part, out);
}

// Continues with the last adaption of the checkpoint.
static void continue_with(brim_run_adapt *a, const brim_work *work, const char *path) {
  const brim_run_adaption *last = &a->made[a->count - 1];
  if (!a->shrinks) {
    a->setting.value[a->batch] = last->batch;
    a->setting.value[a->accumulation] = last->accumulation;
    brim_log_info("run",
                  "%s ran out of memory at step %" PRId64
                  "; brim continues with its micro-batches, %" PRId64 " x %" PRId64,
                  path, last->step, last->batch, last->accumulation);
    return;
  }
  char change[160];
  a->setting = last->setting;
  brim_work_setting_change(work, &a->asked, &a->setting, change, sizeof change);
  brim_log_info("run", "%s ran out of memory at step %" PRId64 "; brim continues with %s", path,
                last->step, change);
}

brim_status brim_run_adapt_take(brim_run_adapt *a, const brim_work *work, const char *path) {
  json_t *meta = NULL;
  BRIM_TRY(brim_work_metadata(path, &meta));
  work->table->resuming(work->state, meta);
  a->setting = a->asked =
      brim_work_setting(work);  // the checkpoint decided knobs that were left open
  const char *text = json_string_value(json_object_get(meta, "brim.adapted"));
  bool fits = text && (a->shrinks || (a->batch >= 0 && a->accumulation >= 0));
  while (fits && *text) {
    brim_run_adaption one;
    if (!read_one(a, work, &text, &one)) {
      a->count = 0;  // damaged, or of another effective batch: use this config
      break;
    }
    if (a->shrinks && memcmp(&one.setting, &a->asked, sizeof a->asked) == 0) continue;
    if (a->count < BRIM_RUN_ADAPTIONS) a->made[a->count++] = one;
  }
  json_decref(meta);
  // other changes of this config may make the stored setting impossible
  const brim_run_adaption *last = a->count > 0 ? &a->made[a->count - 1] : NULL;
  if (last && a->shrinks && !work->table->sensible(work->state, &last->setting)) a->count = 0;
  if (a->count > 0) continue_with(a, work, path);
  return BRIM_OK;
}
