// Knobs of a config that are far from their best, by rules that hold for most machines: where no bench
// measured them. And what a bench would try.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_config_int.h"
#include "workload/workload_cache.h"

enum { LEAST_CPU_BATCH = 32 };  // the smallest that `brim bench` tries on a CPU

static const brim_doctor_row knob_row = {"config.knob", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Knob"),
                                         BRIM_N_("A setting that changes speed, by a rule that "
                                                 "holds on most machines; brim bench measures it."),
                                         NULL};
static const brim_doctor_row sweep_row = {
    "config.sweep", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("brim bench would try"),
    BRIM_N_("brim bench measures combinations of these values and recommends one."), NULL};

//---------------------------------- rules ----------------------------------

typedef struct rule_place {
  const brim_doctor_job *job;
  brim_doctor_report *out;
  const char *key, *name;
  const brim_knob *knob;  // NULL = a key that is none
  int64_t value;
} rule_place;

static bool on_gpu(const rule_place *p) { return p->job->device->info.kind == BRIM_DEVICE_GPU; }

static int cores_of(const rule_place *p) {
  const brim_doctor_exam e = {.machine = p->job->machine};
  int cores = brim_doctor_cores(&e);
  return cores > 0 ? cores : brim_cpu_threads(p->job->machine->root);
}

static brim_doctor_line *say_knob(const rule_place *p, brim_doctor_state state, const char *why) {
  char value[32];
  if (p->knob) {
    brim_knob_format(p->knob, p->value, value);
  } else {
    snprintf(value, sizeof value, "%lld", (long long)p->value);
  }
  brim_doctor_line *line = brim_doctor_say_row(p->out, &knob_row, state, "%s=%s", p->key, value);
  brim_doctor_about(line, p->name);
  if (why) brim_doctor_because(line, "%s", why);
  return line;
}

static void say_fixed(const rule_place *p, const char *why, const char *value) {
  brim_doctor_line *line = say_knob(p, BRIM_DOCTOR_WARN, why);
  brim_doctor_fix_train(p->job, line, "%s=%s", p->key, value);
}

static bool is_doubted(const brim_doctor_report *report) {
  for (size_t i = 0; i < report->count; i++) {
    const brim_doctor_line *line = &report->lines[i];
    if (strcmp(line->key, "ceiling.device") == 0) return line->state != BRIM_DOCTOR_GOOD;
  }
  return false;
}

// How many times as fast bf16 is here; NaN = not measured, or while others used the machine.
static double bf16_gain(const rule_place *p, const char *now) {
  if (is_doubted(p->out)) return (double)NAN;
  const brim_machine_ceilings *c = &p->out->ceilings;
  return p->out->measured ? c->gemm_bf16_flops / brim_machine_flops(c, now) : (double)NAN;
}

static void say_plain(const rule_place *p, double gain) {
  char why[256];
  const char *known =
      on_gpu(p)
          ? brim_tr("Products in fp32 use no tensor cores: bf16 is %.3g times as fast on this GPU.")
          : brim_tr("Products in bf16 are %.3g times as fast on this CPU.");
  const char *plain = on_gpu(p) ? brim_tr("Products in fp32 use no tensor cores.")
                                : brim_tr("This CPU has instructions for products in bf16.");
  if (isnan(gain)) {
    snprintf(why, sizeof why, "%s", plain);
  } else {
    snprintf(why, sizeof why, known, gain);
  }
  say_fixed(p, why, "bf16");
}

static void rule_precision(const rule_place *p) {
  const char *now = p->knob->choices[p->value];
  bool fast = p->job->device->info.fast_types & 1u << BRIM_BF16;
  double gain = bf16_gain(p, now);
  if (strcmp(now, "fp32") == 0 && fast && !(gain < 1.5)) {
    say_plain(p, gain);
  } else if (strcmp(now, "bf16") == 0 && !fast) {
    say_fixed(p, brim_tr("This device has no fast instructions for bf16: fp32 is faster."), "fp32");
  } else {
    say_knob(p, BRIM_DOCTOR_GOOD, NULL);
  }
}

static void rule_switch(const rule_place *p, const char *why) {
  if (!on_gpu(p)) return;
  if (p->value) {
    say_knob(p, BRIM_DOCTOR_GOOD, why);
  } else {
    say_fixed(p, why, "true");
  }
}

static void rule_pinned(const rule_place *p) {
  rule_switch(p, brim_tr("Copies from pageable memory are slower, and the host waits for each."));
}

static void rule_graph(const rule_place *p) {
  rule_switch(
      p, brim_tr("Without a recorded step the host launches every op: small steps wait for it."));
}

// Samples that the CPU decodes or transforms again in every epoch.
static bool loading_takes_work(const rule_place *p) {
  const brim_plan *plan = &p->job->plan->plan;
  brim_work_info info;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, BRIM_CACHE_ROW) == 0) return false;
  }
  brim_doctor_info(p->job, &info);
  return info.takes_work;
}

// The number that training takes where the config names none.
static void rule_workers(const rule_place *p) {
  int cores = cores_of(p);
  char value[32];
  snprintf(value, sizeof value, "%lld", (long long)brim_work_default_workers());
  if (p->value > cores) {
    say_fixed(
        p,
        brim_tr("More loader threads than cores take time from each other and from the launches."),
        value);
  } else if (p->value == 0 && on_gpu(p) && cores > 1) {
    say_fixed(p, brim_tr("Without loader threads the GPU waits while the host loads."), value);
  } else if (p->value == 0 && cores > 1 && loading_takes_work(p)) {
    say_fixed(p,
              brim_tr("Without loader threads each step reads, decodes and transforms its own "
                      "samples before it computes."),
              value);
  } else if (p->value == 0) {
    say_knob(p, BRIM_DOCTOR_GOOD,
             brim_tr("Loader threads gain little for samples that lie in memory or need no "
                     "decoding and no transforms."));
  } else {
    say_knob(p, BRIM_DOCTOR_GOOD,
             brim_tr("Between a quarter of the cores and all of them is usual; more only for slow "
                     "decoding."));
  }
}

static void rule_threads(const rule_place *p) {
  int cores = cores_of(p);
  char why[256];
  if (on_gpu(p)) return;
  if (p->value > cores) {
    say_fixed(p, brim_tr("More threads than cores wait for each other."), "0");
  } else if (p->value > 0 && 2 * p->value <= cores) {
    snprintf(why, sizeof why,
             brim_tr("%lld of %d cores compute. Small networks are as fast with few threads; "
                     "`brim bench` measures 1, half and all."),
             (long long)p->value, cores);
    say_knob(p, BRIM_DOCTOR_GOOD, why);
  } else {
    say_knob(p, BRIM_DOCTOR_GOOD,
             brim_tr("0 takes all cores. Small ops run on one thread, so small networks lose "
                     "nothing by it."));
  }
}

static void say_small_batch(const rule_place *p, const char *fmt, double share) {
  char why[256];
  snprintf(why, sizeof why, fmt, share);
  brim_doctor_line *line = say_knob(p, BRIM_DOCTOR_WARN, why);
  brim_doctor_fix_bench(p->job, line, "--benchmark-batch");
}

static void rule_batch(const rule_place *p) {
  uint64_t free_bytes = 0, total_bytes = 0;
  if (p->job->plan->failure != BRIM_FAILURE_NONE) return;
  if (!on_gpu(p)) {
    if (p->value < LEAST_CPU_BATCH) {
      say_small_batch(p,
                      brim_tr("Batches under %.0f samples leave cores idle. A larger batch often "
                              "computes faster, but it changes what is learned: adapt the learning "
                              "rate."),
                      LEAST_CPU_BATCH);
    } else {
      say_knob(p, BRIM_DOCTOR_GOOD, NULL);
    }
    return;
  }
  if (brim_device_memory(p->job->device, &free_bytes, &total_bytes) || free_bytes == 0) {
    brim_status_clear();
    return;
  }
  double share = (double)p->job->plan->plan.bytes[BRIM_PLACE_DEVICE] / (double)free_bytes;
  if (share >= 0.05) {
    say_knob(p, BRIM_DOCTOR_GOOD, NULL);
    return;
  }
  say_small_batch(
      p,
      brim_tr("The plan takes %.2g %% of the free GPU memory. A larger batch often computes "
              "faster, but it changes what is learned: adapt the learning rate."),
      100 * share);
}

void brim_doctor_rules(const brim_doctor_job *job, brim_doctor_report *out) {
  static const struct {
    brim_knob_role role;
    void (*rule)(const rule_place *p);
  } rules[] = {{BRIM_ROLE_BATCH, rule_batch},
               {BRIM_ROLE_WORKERS, rule_workers},
               {BRIM_ROLE_PINNED, rule_pinned},
               {BRIM_ROLE_PRECISION, rule_precision},
               {BRIM_ROLE_GRAPH, rule_graph}};
  const brim_setting setting = brim_work_setting(job->work);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    int at = brim_work_knob_as(job->work, rules[i].role);
    if (at < 0) continue;
    const brim_knob *knob = &job->work->knobs[at];
    const rule_place p = {.job = job,
                          .out = out,
                          .key = knob->key,
                          .name = knob->name,
                          .knob = knob,
                          .value = setting.value[at]};
    if (knob->matters && !knob->matters(job->work->state, &setting)) continue;
    // a precision that bench would not try has no rule, either: small networks gain nothing by it
    if (rules[i].role == BRIM_ROLE_PRECISION && (!knob->choices || !knob->axis)) continue;
    rules[i].rule(&p);
  }
  const rule_place threads = {.job = job,
                              .out = out,
                              .key = "threads",
                              .name = "threads",
                              .value = brim_config_int(job->config, "threads")};
  rule_threads(&threads);
}

//---------------------------------- sweep ----------------------------------

// The values that the config lists; 0 = none.
static size_t listed(const brim_doctor_job *job, const brim_knob *knob, brim_str *out,
                     int64_t *most) {
  const int64_t *numbers = NULL;
  const char *const *names = NULL;
  size_t count = 0;
  bool whole = knob->kind == BRIM_KNOB_INT;
  if (!knob->list) return 0;
  brim_status status = whole ? brim_config_get_ints(job->config, knob->list, &numbers, &count)
                             : brim_config_get_strings(job->config, knob->list, &names, &count);
  if (status) count = 0;
  brim_status_clear();
  for (size_t i = 0; i < count; i++) {
    bool known = false;
    for (size_t k = 0; k < i && !known; k++) {
      known = whole ? numbers[k] == numbers[i] : strcmp(names[k], names[i]) == 0;
    }
    if (whole && (i == 0 || numbers[i] > *most)) *most = numbers[i];
    if (known) continue;
    if (whole) brim_str_printf(out, " %lld", (long long)numbers[i]);
    if (!whole) brim_str_printf(out, " %s", names[i]);
  }
  return count;
}

static void put_axis(const brim_doctor_job *job, int at, brim_knob_sweep *sweep, brim_str *out) {
  const brim_knob *knob = &job->work->knobs[at];
  int64_t values[BRIM_KNOB_AXIS];
  brim_str text;
  brim_str_init(&text);
  size_t count = listed(job, knob, &text, &sweep->most.value[at]);
  if (count == 0) {
    count = knob->axis(job->work->state, sweep, values);
    for (size_t i = 0; i < count; i++) {
      char word[32];
      if (values[i] > sweep->most.value[at] || i == 0) sweep->most.value[at] = values[i];
      brim_knob_format(knob, values[i], word);
      brim_str_printf(&text, " %s", word);
    }
  }
  if (count >= 2) {
    brim_str_printf(out, "%s%s%s", out->len ? "; " : "", knob->name, text.data);
  }
  brim_str_deinit(&text);
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
    brim_doctor_say_row(out, &sweep_row, BRIM_DOCTOR_GOOD, "%s", text.data);
  } else {
    brim_doctor_say_row(out, &sweep_row, BRIM_DOCTOR_UNKNOWN, "%s",
                        brim_tr("the workload proposes no values"));
  }
  brim_str_deinit(&text);
}
