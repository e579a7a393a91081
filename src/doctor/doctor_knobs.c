// Knobs of a config that are far from their best. Earlier measurements of the same job on the same
// device decide where there are some; else rules that hold for most machines.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_config_int.h"

#define WORTH 1.1  // a faster setting is named from this factor on

static const brim_doctor_row measured_row = {
    "config.measured", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Measured settings"),
    BRIM_N_("An earlier bench measured this config on this device."), NULL};
static const brim_doctor_row knob_row = {"config.knob", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Knob"),
                                         BRIM_N_("A setting that changes speed, by a rule that "
                                                 "holds on most machines; brim bench measures it."),
                                         NULL};
static const brim_doctor_row sweep_row = {
    "config.sweep", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("A sweep would try"),
    BRIM_N_("brim bench measures combinations of these values and recommends one."), NULL};

//---------------------------------- records ----------------------------------

static bool is_of_job(const brim_result *r, const brim_result *plan) {
  return brim_result_ran(r) && r->kind[0] == '\0' && strcmp(r->workload, plan->workload) == 0 &&
         strcmp(r->description, plan->description) == 0 && strcmp(r->device, plan->device) == 0 &&
         strcmp(r->device_id, plan->device_id) == 0;
}

// Settings of both agree in every knob that both name.
static bool same_setting(const brim_result *a, const brim_result *b) {
  for (size_t i = 0; i < a->knob_count; i++) {
    const brim_result_knob *k = brim_result_knob_find(b, a->knobs[i].name);
    if (k && strcmp(k->value, a->knobs[i].value) != 0) return false;
  }
  return true;
}

void brim_doctor_records_read(const brim_doctor_job *job, brim_doctor_records *out) {
  bool torn = false;
  *out = (brim_doctor_records){.own = -1, .best = -1};
  if (!job->records) return;
  if (brim_results_read(job->records, &out->results, &out->count, &torn)) {
    brim_status_clear();
    out->results = NULL;
    out->count = 0;
    return;
  }
  for (size_t i = 0; i < out->count; i++) {
    const brim_result *r = &out->results[i];
    if (!is_of_job(r, job->plan)) continue;
    out->fitting++;
    if (same_setting(r, job->plan)) out->own = (int)i;
    if (out->best < 0 || r->samples_per_s > out->results[out->best].samples_per_s)
      out->best = (int)i;
  }
}

void brim_doctor_records_free(brim_doctor_records *records) {
  for (size_t i = 0; i < records->count; i++) brim_result_deinit(&records->results[i]);
  brim_free(records->results);
  records->results = NULL;
  records->count = 0;
}

static const brim_knob *knob_named(const brim_work *work, const char *name) {
  for (size_t i = 0; i < work->knob_count; i++) {
    if (strcmp(work->knobs[i].name, name) == 0) return &work->knobs[i];
  }
  return NULL;
}

// What differs between the config and the fastest: in words, as overrides, and a knob that changes what
// is learned (NULL = none).
typedef struct difference {
  brim_str text, overrides;
  const char *learning;
} difference;

static void find_difference(const brim_doctor_job *job, const brim_result *best, difference *out) {
  brim_str_init(&out->text);
  brim_str_init(&out->overrides);
  out->learning = NULL;
  for (size_t i = 0; i < best->knob_count; i++) {
    const brim_result_knob *to = &best->knobs[i];
    const brim_result_knob *from = brim_result_knob_find(job->plan, to->name);
    const brim_knob *knob = knob_named(job->work, to->name);
    if (!from || !knob || strcmp(from->value, to->value) == 0) continue;
    brim_str_printf(&out->text, "%s%s %s -> %s", out->text.len ? ", " : "", to->name, from->value,
                    to->value);
    brim_str_printf(&out->overrides, "%s%s=%s", out->overrides.len ? " " : "", knob->key,
                    to->value);
    if (knob->changes_learning) out->learning = knob->name;
  }
}

static void say_faster(const brim_doctor_job *job, const brim_doctor_records *records,
                       const difference *d, brim_doctor_report *out) {
  const brim_result *best = &records->results[records->best],
                    *own = &records->results[records->own];
  char gain[32];
  snprintf(gain, sizeof gain, "x%.3g", best->samples_per_s / own->samples_per_s);
  if (!(best->samples_per_s_low > own->samples_per_s_high)) {
    brim_doctor_line *line = brim_doctor_say_row(
        out, &measured_row, BRIM_DOCTOR_UNKNOWN,
        brim_tr("%s faster, but the intervals overlap: %s"), gain, d->text.data);
    brim_doctor_fix(line, "brim bench %s", job->name);
    return;
  }
  brim_doctor_line *line = brim_doctor_say_row(out, &measured_row, BRIM_DOCTOR_WARN,
                                               brim_tr("%s faster: %s (%zu settings measured, %s)"),
                                               gain, d->text.data, records->fitting, job->records);
  if (d->learning) {
    brim_doctor_because(
        line,
        brim_tr("An earlier bench measured it. %s changes what is learned: adapt the "
                "learning rate."),
        d->learning);
  }
  brim_doctor_fix(line, "brim train %s %s", job->name, d->overrides.data);
}

static void say_measured(const brim_doctor_job *job, const brim_doctor_records *records,
                         brim_doctor_report *out) {
  const brim_result *best = &records->results[records->best];
  const brim_result *own = records->own >= 0 ? &records->results[records->own] : NULL;
  char rate[32];
  difference d;
  find_difference(job, best, &d);
  brim_format_figure(best->samples_per_s, rate);
  double factor = own ? best->samples_per_s / own->samples_per_s : (double)NAN;
  if (!own) {
    brim_doctor_line *line = brim_doctor_say_row(
        out, &measured_row, BRIM_DOCTOR_UNKNOWN,
        brim_tr("this setting is none of the %zu measured ones; the fastest has %s %s/s: %s"),
        records->fitting, rate, brim_result_unit(best), d.text.data);
    brim_doctor_fix(line, "brim bench %s", job->name);
  } else if (factor < WORTH || d.text.len == 0) {
    brim_doctor_say_row(out, &measured_row, BRIM_DOCTOR_GOOD,
                        brim_tr("within %.0f %% of the fastest of %zu measured settings"),
                        fmax(0, 100 * (factor - 1)), records->fitting);
  } else {
    say_faster(job, records, &d, out);
  }
  brim_str_deinit(&d.text);
  brim_str_deinit(&d.overrides);
}

//---------------------------------- rules ----------------------------------

typedef struct rule_place {
  const brim_doctor_job *job;
  brim_doctor_report *out;
  const brim_knob *knob;
  int64_t value;
  brim_setting setting;
} rule_place;

static bool on_gpu(const rule_place *p) { return p->job->device->info.kind == BRIM_DEVICE_GPU; }

static brim_doctor_line *say_knob(const rule_place *p, brim_doctor_state state, const char *value,
                                  const char *why) {
  brim_doctor_line *line =
      brim_doctor_say_row(p->out, &knob_row, state, "%s=%s", p->knob->key, value);
  brim_doctor_about(line, p->knob->name);
  if (why) brim_doctor_because(line, "%s", why);
  return line;
}

static void rule_precision(const rule_place *p) {
  const char *now = p->knob->choices[p->value];
  const brim_machine_ceilings *c = &p->out->ceilings;
  char why[256];
  if (!on_gpu(p)) return;
  double gain = p->out->measured ? c->gemm_bf16_flops / brim_machine_flops(c, now) : (double)NAN;
  bool plain = strcmp(now, "fp32") == 0;
  if (!plain || gain < 1.5) {
    say_knob(p, BRIM_DOCTOR_GOOD, now, NULL);
    return;
  }
  if (isnan(gain)) {
    snprintf(why, sizeof why, "%s", brim_tr("Products in fp32 use no tensor cores."));
  } else {
    snprintf(
        why, sizeof why,
        brim_tr("Products in fp32 use no tensor cores: bf16 is %.3g times as fast on this GPU."),
        gain);
  }
  brim_doctor_fix(say_knob(p, BRIM_DOCTOR_WARN, now, why), "%s=bf16", p->knob->key);
}

static void rule_switch(const rule_place *p, const char *why) {
  if (!on_gpu(p)) return;
  brim_doctor_line *line =
      say_knob(p, p->value ? BRIM_DOCTOR_GOOD : BRIM_DOCTOR_WARN, p->value ? "true" : "false", why);
  if (!p->value) brim_doctor_fix(line, "%s=true", p->knob->key);
}

static void rule_pinned(const rule_place *p) {
  rule_switch(p, brim_tr("Copies from pageable memory are slower, and the host waits for each."));
}

static void rule_graph(const rule_place *p) {
  rule_switch(
      p, brim_tr("Without a recorded step the host launches every op: small steps wait for it."));
}

static void rule_workers(const rule_place *p) {
  int cores = brim_cpu_threads(p->job->machine->root);
  char value[32];
  snprintf(value, sizeof value, "%lld", (long long)p->value);
  if (p->value > cores) {
    brim_doctor_line *line = say_knob(
        p, BRIM_DOCTOR_WARN, value,
        brim_tr("More loader threads than cores take time from each other and from the launches."));
    brim_doctor_fix(line, "%s=%d", p->knob->key, cores > 1 ? (cores + 1) / 2 : 1);
  } else if (p->value == 0 && on_gpu(p) && cores > 1) {
    brim_doctor_line *line =
        say_knob(p, BRIM_DOCTOR_WARN, value,
                 brim_tr("Without loader threads the GPU waits while the host loads."));
    brim_doctor_fix(line, "%s=%d", p->knob->key, cores > 4 ? cores / 4 : 1);
  } else {
    say_knob(p, BRIM_DOCTOR_GOOD, value,
             brim_tr("Between a quarter of the cores and all of them is usual; more only for slow "
                     "decoding."));
  }
}

static void rule_batch(const rule_place *p) {
  uint64_t free_bytes = 0, total_bytes = 0;
  char value[32];
  if (!on_gpu(p) || p->job->plan->failure != BRIM_FAILURE_NONE) return;
  if (brim_device_memory(p->job->device, &free_bytes, &total_bytes) || free_bytes == 0) {
    brim_status_clear();
    return;
  }
  double share = (double)p->job->plan->plan.bytes[BRIM_PLACE_DEVICE] / (double)free_bytes;
  snprintf(value, sizeof value, "%lld", (long long)p->value);
  if (share >= 0.05) {
    say_knob(p, BRIM_DOCTOR_GOOD, value, NULL);
    return;
  }
  brim_doctor_line *line = say_knob(p, BRIM_DOCTOR_WARN, value, NULL);
  brim_doctor_because(
      line,
      brim_tr("The plan takes %.2g %% of the free GPU memory. A larger batch often computes "
              "faster, but it changes what is learned: adapt the learning rate."),
      100 * share);
  brim_doctor_fix(line, "brim bench %s --benchmark-batch", p->job->name);
}

static void apply_rules(const brim_doctor_job *job, brim_doctor_report *out) {
  static const struct {
    brim_knob_role role;
    void (*rule)(const rule_place *p);
  } rules[] = {{BRIM_ROLE_BATCH, rule_batch},
               {BRIM_ROLE_WORKERS, rule_workers},
               {BRIM_ROLE_PINNED, rule_pinned},
               {BRIM_ROLE_PRECISION, rule_precision},
               {BRIM_ROLE_GRAPH, rule_graph}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    int at = brim_work_knob_as(job->work, rules[i].role);
    if (at < 0) continue;
    rule_place p = {.job = job, .out = out, .knob = &job->work->knobs[at]};
    p.setting = brim_work_setting(job->work);
    p.value = p.setting.value[at];
    if (p.knob->matters && !p.knob->matters(job->work->state, &p.setting)) continue;
    if (rules[i].role == BRIM_ROLE_PRECISION && !p.knob->choices) continue;
    rules[i].rule(&p);
  }
}

void brim_doctor_knobs(const brim_doctor_job *job, const brim_doctor_records *records,
                       brim_doctor_report *out) {
  if (records->best >= 0) {
    say_measured(job, records, out);
  } else {
    brim_doctor_line *line = brim_doctor_say_row(
        out, &measured_row, BRIM_DOCTOR_UNKNOWN, "%s",
        brim_tr("no earlier bench of this config on this device; rules follow"));
    brim_doctor_fix(line, "brim bench %s", job->name);
  }
  if (records->own < 0) apply_rules(job, out);
}

//---------------------------------- sweep ----------------------------------

static void put_value(const brim_knob *knob, int64_t value, brim_str *out) {
  if (knob->kind == BRIM_KNOB_BOOL) {
    brim_str_printf(out, " %s", value ? "true" : "false");
  } else if (knob->choices) {
    brim_str_printf(out, " %s", knob->choices[value]);
  } else {
    brim_str_printf(out, " %lld", (long long)value);
  }
}

static void put_axis(const brim_doctor_job *job, int at, brim_knob_sweep *sweep, brim_str *out) {
  const brim_knob *knob = &job->work->knobs[at];
  const int64_t *given = NULL;
  int64_t values[BRIM_KNOB_AXIS];
  size_t count = 0;
  if (knob->list && knob->kind == BRIM_KNOB_INT &&
      brim_config_get_ints(job->config, knob->list, &given, &count)) {
    brim_status_clear();
    count = 0;
  }
  if (count == 0) {
    count = knob->axis(job->work->state, sweep, values);
    given = values;
  }
  for (size_t i = 0; i < count; i++) {
    if (given[i] > sweep->most.value[at] || i == 0) sweep->most.value[at] = given[i];
  }
  if (count < 2) return;
  brim_str_printf(out, "%s%s", out->len ? "; " : "", knob->name);
  for (size_t i = 0; i < count; i++) put_value(knob, given[i], out);
}

void brim_doctor_sweep(const brim_doctor_job *job, brim_doctor_report *out) {
  const brim_work *work = job->work;
  brim_knob_sweep sweep = {.work = work,
                           .config = job->config,
                           .gpu = job->device->info.kind == BRIM_DEVICE_GPU,
                           .most = brim_work_setting(work)};
  bool taken[BRIM_KNOB_MAX] = {false};
  brim_str text;
  brim_str_init(&text);
  for (;;) {
    int next = -1;
    for (size_t i = 0; i < work->knob_count; i++) {
      if (!work->knobs[i].axis || taken[i]) continue;
      if (next < 0 || work->knobs[i].order < work->knobs[next].order) next = (int)i;
    }
    if (next < 0) break;
    taken[next] = true;
    put_axis(job, next, &sweep, &text);
  }
  brim_status_clear();
  if (text.len > 0) {
    brim_doctor_line *line =
        brim_doctor_say_row(out, &sweep_row, BRIM_DOCTOR_GOOD, "%s", text.data);
    brim_doctor_fix(line, "brim bench %s", job->name);
  } else {
    brim_doctor_say_row(out, &sweep_row, BRIM_DOCTOR_UNKNOWN, "%s",
                        brim_tr("the workload proposes no values"));
  }
  brim_str_deinit(&text);
}
