// Which settings bench tries: what the config's benchmark section says (options are overrides of it), else
// what the knobs of the workload propose. --benchmark-batch tries batch sizes alone, --all every knob that
// makes a difference here.
#include "cli/bench/cli_bench.h"

#include <string.h>

// `list`: the key the values come from, NULL when they were chosen here.
static brim_status check_value(bench *b, const brim_knob *knob, const char *list, int64_t value) {
  char typed[64];
  const char *name = list ? brim_cli_typed(b->cli, list, typed) : NULL;
  if (value >= knob->min && value <= knob->max) return BRIM_OK;
  if (name) b->cli->usage_error = true;
  return brim_fail(BRIM_EINVAL, "%s: %lld is not between %lld and %lld",
                   name   ? name
                   : list ? list
                          : knob->name,
                   (long long)value, (long long)knob->min, (long long)knob->max);
}

// A value that is given twice is measured once.
static brim_status add_axis(bench *b, int knob, const char *list, const int64_t *values,
                            size_t count) {
  const brim_knob *row = &b->job->work->knobs[knob];
  for (size_t i = 0; i < count; i++) BRIM_TRY(check_value(b, row, list, values[i]));
  int64_t *copy = brim_alloc(count * sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory while choosing settings");
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    bool known = false;
    for (size_t k = 0; k < n; k++) known = known || copy[k] == values[i];
    if (!known) copy[n++] = values[i];
  }
  // a list that was given, or a command whose name asks for it
  b->axes.named[knob] = list || brim_option_flag(&b->cli->parse, "benchmark-batch", false);
  b->axes.values[b->axes.count] = copy;
  b->axes.axis[b->axes.count++] = (brim_sweep_axis){knob, copy, n};
  return BRIM_OK;
}

void brim_cli_bench_axes_free(bench *b) {
  for (size_t i = 0; i < b->axes.count; i++) brim_free(b->axes.values[i]);
  memset(&b->axes, 0, sizeof b->axes);
  brim_sweep_settings_free(&b->settings);
}

//---------------------------------- given ----------------------------------

// Words of a choice or a switch; "auto" is what the workload chose from the config for this device, where
// it is no choice itself. -1 = not known.
static int64_t named_value(const brim_knob *knob, const char *name) {
  bool on = false;
  if (knob->kind == BRIM_KNOB_BOOL) return brim_parse_bool(name, &on) ? on : -1;
  for (int i = 0; knob->choices && knob->choices[i]; i++) {
    if (strcmp(knob->choices[i], name) == 0) return i;
  }
  return knob->choices && strcmp(name, "auto") == 0 ? knob->value : -1;
}

// The values of the knob's list in the config.
static brim_status listed(bench *b, int knob, bool *given) {
  const brim_knob *row = &b->job->work->knobs[knob];
  const int64_t *numbers;
  const char *const *names;
  int64_t values[BRIM_KNOB_AXIS];
  size_t count, n = 0;
  if (row->kind == BRIM_KNOB_INT) {
    BRIM_TRY(brim_config_get_ints(b->job->config, row->list, &numbers, &count));
    *given = count > 0;
    return *given ? add_axis(b, knob, row->list, numbers, count) : BRIM_OK;
  }
  BRIM_TRY(brim_config_get_strings(b->job->config, row->list, &names, &count));
  *given = count > 0;
  for (; n < count && n < BRIM_KNOB_AXIS; n++) {
    values[n] = named_value(row, names[n]);
    if (values[n] >= 0) continue;
    return brim_fail(BRIM_EINVAL, "%s %s is not known here", row->name, names[n]);
  }
  return *given ? add_axis(b, knob, row->list, values, n) : BRIM_OK;
}

// An axis of words, given by an option alone: --compile true false. The last one given counts.
static brim_status named(bench *b, int knob, bool *given) {
  const brim_knob *row = &b->job->work->knobs[knob];
  const char *option = row->option + 2;  // after the dashes
  const brim_option_value *words = brim_option_find(&b->cli->parse, option);
  int64_t values[BRIM_KNOB_AXIS];
  size_t n = 0;
  *given = words != NULL;
  if (!words) return BRIM_OK;
  for (size_t i = 0; i < words->count && n < BRIM_KNOB_AXIS; i++) {
    values[n] = named_value(row, words->values[i]);
    if (values[n++] >= 0) continue;
    return brim_cli_usage(b->cli, BRIM_N_("--%s: %.100s is not known here"), option,
                          words->values[i]);
  }
  BRIM_TRY(add_axis(b, knob, NULL, values, n));
  b->axes.named[knob] = true;
  return BRIM_OK;
}

//---------------------------------- axes ----------------------------------

// The values of a knob: those that were given, else the workload's.
static brim_status one_axis(bench *b, int knob, brim_knob_sweep *sweep) {
  const brim_work *work = b->job->work;
  const brim_knob *row = &work->knobs[knob];
  bool given = false;
  if (row->list) {
    BRIM_TRY(listed(b, knob, &given));
  } else if (row->option) {
    BRIM_TRY(named(b, knob, &given));
  }
  if (!given) {
    int64_t values[BRIM_KNOB_AXIS];
    char note[512] = "";
    sweep->note = note;
    sweep->note_size = sizeof note;
    size_t n = row->axis(work->state, sweep, values);
    sweep->note = NULL;
    if (note[0]) brim_cli_note(b->cli, "%s", note);
    if (n == 0) return BRIM_OK;
    BRIM_TRY(add_axis(b, knob, NULL, values, n));
  }
  const brim_sweep_axis *axis = &b->axes.axis[b->axes.count - 1];
  sweep->most.value[knob] = axis->values[0];
  for (size_t i = 1; i < axis->count; i++) {
    if (axis->values[i] > sweep->most.value[knob]) sweep->most.value[knob] = axis->values[i];
  }
  return BRIM_OK;
}

static brim_knob_sweep sweep_of(const bench *b) {
  return (brim_knob_sweep){.work = b->job->work,
                           .config = b->job->config,
                           .gpu = b->card || b->job->device->info.kind == BRIM_DEVICE_GPU,
                           .card_bytes = b->card_bytes,
                           .all = brim_option_flag(&b->cli->parse, "all", false),
                           .most = brim_work_setting(b->job->work)};
}

// By their order. False: the workload has none.
static brim_status all_axes(bench *b, bool *any) {
  const brim_work *work = b->job->work;
  brim_knob_sweep sweep = sweep_of(b);
  bool taken[BRIM_KNOB_MAX] = {false};
  for (*any = false;; *any = true) {
    int next = -1;
    for (size_t i = 0; i < work->knob_count; i++) {
      if (!work->knobs[i].axis || taken[i]) continue;
      if (next < 0 || work->knobs[i].order < work->knobs[next].order) next = (int)i;
    }
    if (next < 0) return BRIM_OK;
    taken[next] = true;
    BRIM_TRY(one_axis(b, next, &sweep));
  }
}

//---------------------------------- --benchmark-batch ----------------------------------

// Is it an option of the knob, or of any where `knob` is -1?
static bool is_option_of(const brim_work *work, int knob, const char *name) {
  for (size_t i = 0; i < work->knob_count; i++) {
    const char *option = work->knobs[i].option;
    if (knob >= 0 && (int)i != knob) continue;
    if (option && strcmp(option + 2, name) == 0) return true;
  }
  return false;
}

// The batch of a workload without such a knob is all of them together, so that it is the same sweep. What
// asks for another axis on the same command line contradicts it; a config's lists do not.
static brim_status batch_alone(bench *b) {
  const brim_work *work = b->job->work;
  const brim_option_parse *parse = &b->cli->parse;
  int batch = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  for (size_t i = 0; i < parse->count; i++) {
    const brim_option *o = parse->items[i].option;
    bool values = o->multiple && (o->kind == BRIM_OPTION_INT || o->kind == BRIM_OPTION_ENUM);
    if (strcmp(o->name, "all") != 0 && (!values || is_option_of(work, batch, o->name))) continue;
    return brim_cli_usage(b->cli, BRIM_N_("--benchmark-batch and --%s contradict each other"),
                          o->name);
  }
  brim_knob_sweep sweep = sweep_of(b);
  if (batch >= 0 && work->knobs[batch].axis) return one_axis(b, batch, &sweep);
  bool any = false;
  BRIM_TRY(all_axes(b, &any));
  if (any) return BRIM_OK;
  return brim_cli_usage(b->cli, BRIM_N_("--%s: this workload has no such knob"), "benchmark-batch");
}

static brim_status choose_axes(bench *b) {
  bool any = false;
  if (brim_option_flag(&b->cli->parse, "benchmark-batch", false)) return batch_alone(b);
  return all_axes(b, &any);
}

brim_status brim_cli_bench_axes(bench *b) {
  brim_status status = choose_axes(b);
  if (!status) {
    status = brim_sweep_settings_make(&b->subject, b->axes.axis, b->axes.count, true, &b->settings);
  }
  if (status) brim_cli_bench_axes_free(b);
  return status;
}
