// Checks of a config on this machine: memory and disk space that it needs, what an earlier bench recommends, and knobs
// that are far from their best value. It also shows the measured ceilings.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_int.h"
#include "record/record_findings.h"
#include "tune/tune.h"
#include "workload/learn/learn.h"

// Results of an earlier bench for this job and device, and their recommendation.
typedef struct brim_doctor_records {
  brim_result *results;
  size_t count;
  int own;                    // index of the result with the config's own setting; -1 = none
  brim_recommendation picks;  // set if there are results
} brim_doctor_records;
static void fix_train(const brim_doctor_job *job, brim_doctor_line *line, const char *fmt, ...)
    BRIM_PRINTF(3, 4);

//---------------------------------- commands ----------------------------------
// Complete commands to paste, with the data and all overrides of the job.

// The length of the first word, including quotes.
static size_t word_length(const char *text) {
  size_t n = 0;
  for (bool quoted = false; text[n] && (quoted || text[n] != ' '); n++) {
    if (text[n] == '\'') quoted = !quoted;
  }
  return n;
}

// True if one of the words of `more` sets the same key as this word.
static bool is_replaced(const char *word, size_t n, const char *more) {
  size_t key = strcspn(word, "=");
  if (key >= n) return false;
  for (const char *at = more; *at; at += strspn(at, " ")) {
    size_t length = word_length(at);
    if (key < length && strncmp(at, word, key + 1) == 0) return true;
    at += length;
  }
  return false;
}

static void fix_command(const brim_doctor_job *job, brim_doctor_line *line, const char *command,
                        const char *more) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "brim %s", command);
  for (const char *at = job->words; *at; at += strspn(at, " ")) {
    size_t n = word_length(at);
    if (!is_replaced(at, n, more)) {
      brim_str_append_char(&text, ' ');
      brim_str_append_n(&text, at, n);
    }
    at += n;
  }
  if (more[0]) brim_str_printf(&text, " %s", more);
  if (text.len < sizeof line->fix) {
    snprintf(line->fix, sizeof line->fix, "%s", text.data);
  } else {
    brim_doctor_fix(line, brim_tr("the same command as brim %s, and: %s"), command, more);
  }
  brim_str_deinit(&text);
}

// Sets a command that trains this job with other values ("data.pin_memory=true"). Sets none if the command is too long.
static void fix_train(const brim_doctor_job *job, brim_doctor_line *line, const char *fmt, ...) {
  char more[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(more, sizeof more, fmt, args);
  va_end(args);
  fix_command(job, line, "train", more);
}

static void fix_bench(const brim_doctor_job *job, brim_doctor_line *line, const char *extra) {
  fix_command(job, line, "bench", extra);
}

static void brim_doctor_info(const brim_doctor_job *job, brim_work_info *out) {
  memset(out, 0, sizeof *out);
  job->work->table->info(job->work->state, out);
}

//---------------------------------- ceilings ----------------------------------
// A measured figure is good, unless the machine's own facts say that more should be possible.

#define SLOW_LAUNCH_S 20e-6

typedef enum unit { FLOPS, BYTES, LAUNCHES } unit;

static const struct {
  brim_doctor_row row;
  size_t offset;  // in brim_machine_ceilings
  unit unit;
  bool gpu;  // measured on GPUs only
} figures[] = {
#define AT(member) offsetof(brim_machine_ceilings, member)
    {{"ceiling.gemm_fp32", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, fp32"),
      BRIM_N_("No layer computes faster in fp32."), NULL},
     AT(gemm_fp32_flops),
     FLOPS,
     false},
    {{"ceiling.gemm_tf32", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, tf32"),
      BRIM_N_("training.precision=tf32 uses tensor cores for fp32 products."), NULL},
     AT(gemm_tf32_flops),
     FLOPS,
     true},
    {{"ceiling.gemm_bf16", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, bf16"),
      BRIM_N_("No layer computes faster in bf16."), NULL},
     AT(gemm_bf16_flops),
     FLOPS,
     false},
    {{"ceiling.gemm_fp16", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Products, fp16"),
      BRIM_N_("No layer computes faster in fp16."), NULL},
     AT(gemm_fp16_flops),
     FLOPS,
     true},
    {{"ceiling.copy", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Memory bandwidth"),
      BRIM_N_("Activations, normalisation and optimizers are bound by it. Reading and writing both "
              "count."),
      NULL},
     AT(copy_bytes_per_s),
     BYTES,
     false},
    {{"ceiling.h2d_pinned", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Host to GPU, pinned"),
      BRIM_N_("Batches come at most this fast (data.pin_memory=true)."), NULL},
     AT(h2d_pinned_bytes_per_s),
     BYTES,
     true},
    {{"ceiling.h2d_pageable", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Host to GPU, pageable"),
      BRIM_N_("The same without pinned memory."), NULL},
     AT(h2d_pageable_bytes_per_s),
     BYTES,
     true},
    {{"ceiling.launch", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Launch of an op"),
      BRIM_N_("An op that computes for less time than its launch leaves the device idle. Larger "
              "batches "
              "and training.compile=true help."),
      NULL},
     AT(launches_per_s),
     LAUNCHES,
     false},
#undef AT
};

static void figure_text(double value, unit u, char out[64]) {
  char number[32];
  switch (u) {
    case FLOPS:
      brim_format_figure(value * (value >= 1e12 ? 1e-12 : 1e-9), number);
      snprintf(out, 64, "%s %s", number, value >= 1e12 ? "TFLOP/s" : "GFLOP/s");
      break;
    case BYTES:
      brim_format_figure(value * 1e-9, number);
      snprintf(out, 64, "%s GB/s", number);
      break;
    default:
      brim_format_figure(1e6 / value, number);
      snprintf(out, 64, "%s us", number);
  }
}

// Bytes/s of a PCIe link in one direction, after encoding; NaN = unknown.
static double link_rate(const brim_gpu_setup *f) {
  static const double lane[] = {0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  if (!f || f->pcie_generation_max < 1 || f->pcie_generation_max > 6 || f->pcie_width < 1) {
    return (double)NAN;
  }
  return lane[f->pcie_generation_max - 1] * (double)f->pcie_width;
}

static void say_measure_again(brim_doctor_line *line) {
  char folder[512];
  brim_work_cache_folder(folder, sizeof folder);
  if (folder[0]) {
    brim_doctor_fix(
        line,
        brim_tr("run near the GPU (numactl); check the slot, the IOMMU and that nothing "
                "else copies, then measure again: rm %s/ceilings.json; brim doctor"),
        folder);
  } else {
    brim_doctor_fix(
        line, "%s",
        brim_tr("run near the GPU (numactl); check the slot, the IOMMU and that nothing "
                "else copies, then measure again: brim doctor"));
  }
}

// Notes that other programs ran during the measurement, so that brim measures again next time.
static void say_busy(brim_doctor_line *line, const brim_machine_ceilings *ceilings, bool gpu) {
  brim_doctor_because(
      line,
      gpu ? brim_tr("Other processes used %.0f %% of the GPU's time while brim measured: the "
                    "figures may be too low.")
          : brim_tr("Other programs used %.0f %% of the processors while brim measured: the "
                    "figures may be too low."),
      brim_shown(100 * ceilings->load));
  brim_doctor_fix(line, "%s", brim_tr("brim doctor, when the machine is quiet: it measures again"));
}

static void say_figure(brim_doctor_report *out, size_t i, double value,
                       const brim_gpu_setup *gpu_setup, bool gpu) {
  const brim_doctor_row *row = &figures[i].row;
  char text[64], most[64];
  figure_text(value, figures[i].unit, text);
  double link = figures[i].offset == offsetof(brim_machine_ceilings, h2d_pinned_bytes_per_s)
                    ? link_rate(gpu_setup)
                    : (double)NAN;
  if (value < 0.5 * link) {
    figure_text(link, BYTES, most);
    brim_doctor_line *line = brim_doctor_say_row(
        out, row, BRIM_DOCTOR_WARN, brim_tr("%s, %.0f %% of what the PCIe link carries (%s)"), text,
        brim_shown(100 * value / link), most);
    say_measure_again(line);
    return;
  }
  if (figures[i].unit == LAUNCHES && gpu && 1 / value > SLOW_LAUNCH_S) {
    brim_doctor_line *line = brim_doctor_say_row(out, row, BRIM_DOCTOR_WARN,
                                                 brim_tr("%s, several times the usual"), text);
    brim_doctor_fix(
        line, "%s",
        brim_tr("check CUDA_LAUNCH_BLOCKING, profilers, the CPU governor and quota; keep "
                "training.compile=true"));
    return;
  }
  brim_doctor_say_row(out, row, BRIM_DOCTOR_GOOD, "%s", text);
}

void brim_doctor_ceilings(const brim_machine_ceilings *ceilings, const brim_device_info *device,
                          const brim_gpu_setup *gpu_setup, const char *reason,
                          brim_doctor_report *out) {
  static const brim_doctor_row all = {
      "ceiling.device", BRIM_DOCTOR_GROUP_CEILING, BRIM_N_("Device"),
      BRIM_N_("What a program reaches is compared with what this device "
              "can do. Figures are remembered per device."),
      NULL};
  if (reason) {
    brim_doctor_say_row(out, &all, BRIM_DOCTOR_UNKNOWN, "%s", reason);
    return;
  }
  bool gpu = device->kind == BRIM_DEVICE_GPU;
  out->measured = true;
  out->ceilings = *ceilings;
  snprintf(out->device, sizeof out->device, "%s", device->name);
  bool disturbed = brim_machine_doubtful(ceilings);
  brim_doctor_line *line =
      brim_doctor_say_row(out, &all, disturbed ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD, "%s%s%s",
                          device->name, device->library[0] ? ", " : "", device->library);
  if (disturbed) say_busy(line, ceilings, gpu);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    double value = *(const double *)((const char *)ceilings + figures[i].offset);
    if (figures[i].gpu && !gpu) continue;
    if (isnan(value)) {
      brim_doctor_say_row(out, &figures[i].row, BRIM_DOCTOR_UNKNOWN, "%s",
                          brim_tr("brim could not measure it here: the device refused, or memory "
                                  "was short"));
    } else {
      say_figure(out, i, value, gpu_setup, gpu);
    }
  }
}

//---------------------------------- earlier benches ----------------------------------
// The recommendation from an earlier bench of the same job and device, by the rule of `brim bench` (src/tune).

#define WORTH 1.1  // name a setting that is faster by this factor

static const brim_doctor_row measured_row = {
    "config.measured", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Measured settings"),
    BRIM_N_("What brim bench measures on this device replaces the rules."), NULL};

static bool is_of_job(const brim_result *r, const brim_result *plan) {
  return brim_result_ran(r) && r->kind[0] == '\0' && strcmp(r->workload, plan->workload) == 0 &&
         strcmp(r->description, plan->description) == 0 && strcmp(r->device, plan->device) == 0 &&
         strcmp(r->device_id, plan->device_id) == 0 &&
         r->plan.parameter_count == plan->plan.parameter_count;
}

// True if the settings agree in every knob that both have.
static bool same_setting(const brim_result *a, const brim_result *b) {
  for (size_t i = 0; i < a->knob_count; i++) {
    const brim_result_knob *k = brim_result_knob_find(b, a->knobs[i].name);
    if (k && strcmp(k->value, a->knobs[i].value) != 0) return false;
  }
  return true;
}

// The values that the user asked bench to try; NULL = bench chose them.
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

// True if the config's own value was not among the values to try, so that it was only a reference.
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

// Recommends a setting by the same race as bench, built from the records' visits. If memory for the race is short, the
// recommendation counts as that of an interrupted bench.
static void choose(const brim_doctor_job *job, brim_doctor_records *out) {
  brim_race *race = NULL;
  const double passes = (double)brim_config_int(job->config, "benchmark.repeats");
  if (brim_race_of_results(out->results, out->count, passes, &race)) brim_status_clear();
  brim_work *work = job->work;
  brim_work_subject of = {.work = &work};
  brim_subject subject;
  brim_work_subject_open(&of, &subject);
  bool *withheld = (bool *)brim_calloc(out->count, sizeof *withheld);
  for (size_t i = 0; withheld && i < out->count; i++) {
    const brim_result *r = &out->results[i];
    bool named[BRIM_KNOB_MAX] = {false};
    for (size_t k = 0; k < job->work->knob_count; k++) {
      named[k] = asked_values(r, &job->work->knobs[k]) != NULL;
    }
    const brim_setting setting = setting_of(job->work, r);
    withheld[i] = brim_sweep_changes_learning(&subject, named, &setting);
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

// Reads the records. An unreadable file counts as empty.
static void records_read(const brim_doctor_job *job, brim_doctor_records *out) {
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

static void records_free(brim_doctor_records *records) {
  for (size_t i = 0; i < records->count; i++) brim_result_deinit(&records->results[i]);
  brim_free(records->results);
  records->results = NULL;
  records->count = 0;
}

static const brim_knob *knob_named(const brim_work *work, const char *name) {
  int at = brim_work_knob(work, name);
  return at < 0 ? NULL : &work->knobs[at];
}

// Differences between the config and the recommended setting: in words, as overrides, and the effect on the learning
// rate ("" = none).
typedef struct difference {
  brim_str text, overrides;
  char rate[256];
} difference;

// Adds the learning rate as `brim bench --apply` writes it.
static void add_rate(const brim_doctor_job *job, const brim_result *to, difference *out) {
  brim_advice_facts f;
  brim_work *work = job->work;
  brim_work_subject of = {.work = &work};
  brim_subject subject;
  brim_work_subject_open(&of, &subject);
  brim_advice_facts_of(&subject, &f);
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

// The reason why bench doubts its recommendation; "" = it does not.
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
    fix_bench(job, line, "");
    return;
  }
  brim_doctor_line *line = brim_doctor_say_row(
      out, &measured_row, BRIM_DOCTOR_WARN, brim_tr("%s faster%s: %s (%zu settings measured, %s)"),
      factor, doubt_of(records), d->text.data, records->count, job->records);
  if (d->rate[0]) brim_doctor_because(line, "%s", d->rate);
  fix_train(job, line, "%s", d->overrides.data);
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
    fix_bench(job, line, "");
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

static void brim_doctor_measured(const brim_doctor_job *job, const brim_doctor_records *records,
                                 brim_doctor_report *out) {
  if (records->count > 0 && records->picks.recommended >= 0) {
    say_measured(job, records, out);
    return;
  }
  brim_doctor_line *line = brim_doctor_say_row(
      out, &measured_row, BRIM_DOCTOR_UNKNOWN,
      brim_tr("no earlier bench of this config on this device in %s (output_dir); rules follow"),
      job->records ? job->records : "-");
  fix_bench(job, line, "");
}

//---------------------------------- knobs ----------------------------------
// Rules for knobs that no bench has measured, and the values that a bench would try. The rules hold on most machines.

enum { LEAST_CPU_BATCH = 32 };  // the smallest batch that bench tries on a CPU

static const brim_doctor_row knob_row = {"config.knob", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Knob"),
                                         BRIM_N_("A setting that changes speed, by a rule that "
                                                 "holds on most machines; brim bench measures it."),
                                         NULL};
static const brim_doctor_row sweep_row = {
    "config.sweep", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("brim bench would try"),
    BRIM_N_("brim bench measures combinations of these values and recommends one."), NULL};

typedef struct rule_place {
  const brim_doctor_job *job;
  brim_doctor_report *out;
  const char *key, *name;
  const brim_knob *knob;  // NULL = the key is no knob
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
  fix_train(p->job, line, "%s=%s", p->key, value);
}

static bool is_doubted(const brim_doctor_report *report) {
  for (size_t i = 0; i < report->count; i++) {
    const brim_doctor_line *line = &report->lines[i];
    if (strcmp(line->key, "ceiling.device") == 0) return line->state != BRIM_DOCTOR_GOOD;
  }
  return false;
}

// Speed of bf16 relative to `now`; NaN = not measured, or measured on a busy machine.
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

// True if the CPU decodes or transforms samples again in every epoch.
static bool loading_takes_work(const rule_place *p) {
  const brim_plan *plan = &p->job->plan->plan;
  brim_work_info info;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, BRIM_CACHE_ROW) == 0) return false;
  }
  brim_doctor_info(p->job, &info);
  return info.takes_work;
}

// Compares num_workers with the number that training takes by default.
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
  fix_bench(p->job, line, "--benchmark-batch");
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

static void brim_doctor_rules(const brim_doctor_job *job, brim_doctor_report *out) {
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
    // skip a precision that bench would not try: small networks gain nothing from it
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

// The values that the config lists for a knob; returns how many.
static size_t put_listed_values(const brim_doctor_job *job, const brim_knob *knob, brim_str *out,
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
  size_t count = put_listed_values(job, knob, &text, &sweep->most.value[at]);
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

// The values that `brim bench` would try, in its order.
static void brim_doctor_sweep(const brim_doctor_job *job, brim_doctor_report *out) {
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

//---------------------------------- memory and disk space ----------------------------------

#define GIB 1073741824.0
// Estimates on the high side: a line of log.jsonl of a small supervised run has about 260 bytes, a figure in an event
// file about 50.
#define LOG_LINE_BYTES 400.0
#define EVENT_BYTES 80.0
#define SMALL_CHECKPOINT 65536.0

static const brim_doctor_row rows[] = {
    {"config.opens", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Config and data"),
     BRIM_N_("brim reads the config, opens the device and looks at the data, as a run would."),
     NULL},
    {"config.fit", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Device memory"),
     BRIM_N_("brim plans every byte before a step runs. A plan that does not fit is not started, "
             "or runs "
             "with a smaller micro-batch."),
     NULL},
    {"config.host_memory", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Host memory"),
     BRIM_N_("It holds loader buffers and the data cache. The kernel kills a process that exceeds "
             "it."),
     NULL},
    {"config.checkpoints", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Checkpoints"),
     BRIM_N_("A checkpoint has weights and optimizer state. A run fails when the disk is full."),
     NULL},
    {"config.interval", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Time between checkpoints"),
     BRIM_N_("A run that ends early loses what it did since the last checkpoint."), NULL},
    {"config.logs", BRIM_DOCTOR_GROUP_CONFIG, BRIM_N_("Logs"),
     BRIM_N_("Log files grow with the number of steps, and one run after another."), NULL},
};
enum { OPENS, FIT, HOST_MEMORY, CHECKPOINTS, INTERVAL, LOGS };

void brim_doctor_config_failed(const char *message, const char *words, brim_doctor_report *out) {
  brim_doctor_line *line = brim_doctor_say_row(out, &rows[OPENS], BRIM_DOCTOR_BAD, "%s", message);
  if (words[0]) brim_doctor_fix(line, "brim config show %s --origins", words);
}

static void say_fit(const brim_doctor_job *job, brim_doctor_report *out) {
  const brim_result *r = job->plan;
  const brim_knob_set *set = job->work->table->knob_set;
  char planned[32], overhead[64] = "", left[32];
  if (r->failure != BRIM_FAILURE_NONE) {
    brim_doctor_line *line =
        brim_doctor_say_row(out, &rows[FIT], BRIM_DOCTOR_BAD, "%s", r->message);
    if (set && set->less_memory) brim_doctor_fix(line, "%s", brim_tr(set->less_memory));
    return;
  }
  double need = (double)r->plan.bytes[BRIM_PLACE_DEVICE];
  brim_doctor_bytes(need, planned);
  if (!isnan(r->overhead_bytes) && r->overhead_bytes > 0) {
    char bytes[32];
    brim_doctor_bytes(r->overhead_bytes, bytes);
    brim_msg_format(overhead, sizeof overhead, brim_tr(" and %s overhead"), bytes);
    need += r->overhead_bytes;
  }
  uint64_t free_bytes = 0, total_bytes = 0;
  if (brim_device_memory(job->device, &free_bytes, &total_bytes) || total_bytes == 0) {
    brim_status_clear();
    brim_doctor_say_row(out, &rows[FIT], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("planned %s%s; how much is free cannot be seen"), planned,
                        overhead);
    return;
  }
  brim_doctor_bytes((double)free_bytes, left);
  double share = 100 * need / fmax(1, (double)free_bytes);
  bool tight = share > 95;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[FIT], tight ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          share < 0.1 ? brim_tr("fits: planned %s%s of %s free (under %.1f %%)")
                                      : brim_tr("fits: planned %s%s of %s free (%.1f %%)"),
                          planned, overhead, left, brim_shown(fmax(0.1, share)));
  if (tight && set && set->less_memory) brim_doctor_fix(line, "%s", brim_tr(set->less_memory));
}

static void say_host(const brim_doctor_job *job, brim_doctor_report *out) {
  uint64_t free_bytes = 0, total_bytes = 0;
  char need[32], left[32];
  double planned = (double)job->plan->plan.bytes[BRIM_PLACE_HOST];
  if (job->plan->failure != BRIM_FAILURE_NONE) return;
  brim_doctor_bytes(planned, need);
  brim_machine_free_memory(job->machine->root, &free_bytes, &total_bytes);
  if (total_bytes == 0) {
    brim_doctor_say_row(out, &rows[HOST_MEMORY], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("planned %s; how much is free cannot be seen"), need);
    return;
  }
  brim_doctor_bytes((double)free_bytes, left);
  brim_doctor_state state = planned > (double)free_bytes         ? BRIM_DOCTOR_BAD
                            : planned > 0.8 * (double)free_bytes ? BRIM_DOCTOR_WARN
                                                                 : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say_row(out, &rows[HOST_MEMORY], state,
                                               brim_tr("planned %s of %s free"), need, left);
  if (state != BRIM_DOCTOR_GOOD) {
    fix_train(job, line, "data.cache=none data.prefetch_factor=1");
  }
}

// Bytes of the plan's rows that a checkpoint contains.
static double checkpoint_bytes(const brim_plan *plan) {
  static const char *const kept[] = {"parameters", BRIM_PLAN_STATISTICS, "optimizer state",
                                     "average of weights", "average of running statistics"};
  double bytes = 0;
  for (size_t i = 0; i < plan->row_count; i++) {
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
      if (strcmp(plan->rows[i].name, kept[k]) == 0) bytes += (double)plan->rows[i].bytes;
    }
  }
  return bytes;
}

static double file_bytes(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name);
  uint64_t size = 0;
  bool known = path && brim_fs_exists(path) && brim_fs_size(path, &size) == BRIM_OK;
  brim_free(path);
  brim_status_clear();
  return known ? (double)size : (double)NAN;
}

static const char *run_folder(const brim_doctor_job *job) {
  return job->machine->output ? job->machine->output : ".";
}

// Bytes of all checkpoints of a run, from one checkpoint's size. Headers take a few KiB more.
static double all_checkpoints(const brim_doctor_job *job, double one) {
  double keep = (double)brim_config_int(job->config, "checkpoint.keep");
  // the last ones, the best, one being written, and the final weights
  return one * (keep + 2) + 4 * (double)job->plan->plan.parameter_count;
}

static void say_checkpoints(const brim_doctor_job *job, brim_doctor_report *out) {
  char size[32], all[32], left[32], there[BRIM_DOCTOR_PATH];
  brim_doctor_space space;
  double one = file_bytes(run_folder(job), "last.safetensors");
  bool written = !isnan(one);
  if (!written) one = checkpoint_bytes(&job->plan->plan);
  bool small = !written && one < SMALL_CHECKPOINT;
  if (!(one > 0)) {
    brim_doctor_say_row(out, &rows[CHECKPOINTS], BRIM_DOCTOR_UNKNOWN, "%s",
                        brim_tr("the plan does not say how large a checkpoint is"));
    return;
  }
  if (small) one = SMALL_CHECKPOINT;
  double total = all_checkpoints(job, one);
  brim_doctor_bytes(one, size);
  brim_doctor_bytes(total, all);
  brim_doctor_there(run_folder(job), there, sizeof there);
  if (!job->machine->space(job->machine->ctx, there, &space)) {
    brim_doctor_say_row(out, &rows[CHECKPOINTS], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("%s each, at most %s; free space cannot be seen"), size, all);
    return;
  }
  brim_doctor_bytes(space.free, left);
  brim_doctor_state state = total > space.free         ? BRIM_DOCTOR_BAD
                            : total > 0.5 * space.free ? BRIM_DOCTOR_WARN
                                                       : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[CHECKPOINTS], state,
                          written ? brim_tr("%s each as written before, at most %s in %s; %s free")
                          : small ? brim_tr("under %s each, at most %s in %s; %s free")
                                  : brim_tr("about %s each, at most %s in %s; %s free"),
                          size, all, run_folder(job), left);
  if (state == BRIM_DOCTOR_GOOD) return;
  if (brim_config_int(job->config, "checkpoint.keep") > 1) {
    fix_train(job, line, "checkpoint.keep=1");
  } else {
    fix_train(job, line, "output_dir=/FOLDER/ON/A/LARGER/DISK");
  }
}

static double epoch_seconds(const brim_doctor_job *job, const brim_doctor_records *records) {
  brim_work_info info;
  brim_doctor_info(job, &info);
  if (records->own < 0 || info.set_samples <= 0) return (double)NAN;
  return (double)info.set_samples / records->results[records->own].samples_per_s;
}

static void say_interval(const brim_doctor_job *job, const brim_doctor_records *records,
                         brim_doctor_report *out) {
  int64_t interval = brim_config_int(job->config, "checkpoint.interval");
  double epoch = epoch_seconds(job, records);
  char time[32];
  if (interval > 0) {
    brim_work_info info;
    brim_doctor_info(job, &info);
    if (info.interval_unit) {
      brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_GOOD,
                          brim_tr("every %lld %s (checkpoint.interval) and after each epoch"),
                          (long long)interval, brim_tr(info.interval_unit));
    } else {
      brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_GOOD,
                          brim_tr("every %lld steps (checkpoint.interval) and after each epoch"),
                          (long long)interval);
    }
    return;
  }
  if (isnan(epoch)) {
    brim_doctor_line *line =
        brim_doctor_say_row(out, &rows[INTERVAL], BRIM_DOCTOR_UNKNOWN, "%s",
                            brim_tr("after each epoch; how long one takes was not measured"));
    fix_bench(job, line, "");
    return;
  }
  brim_format_duration(epoch, time);
  bool longer = epoch > 1800;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[INTERVAL], longer ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          brim_tr("after each epoch, about every %s"), time);
  if (longer) fix_train(job, line, "checkpoint.interval=1000");
}

// Steps of a whole run; NaN = unknown before it runs.
static double run_steps(const brim_doctor_job *job, double *epochs) {
  brim_work_info info;
  brim_doctor_info(job, &info);
  const double per_step = job->plan->plan.samples_per_step;
  int64_t samples = info.set_samples - (info.multiple > 0 ? info.set_samples % info.multiple : 0);
  double per_epoch = info.steps_per_epoch > 0      ? (double)info.steps_per_epoch
                     : samples > 0 && per_step > 0 ? ceil((double)samples / per_step)
                                                   : (double)NAN;
  int64_t step_limit = brim_config_int(job->config, "training.steps");
  *epochs =
      (double)(info.epochs > 0 ? info.epochs : brim_config_int(job->config, "training.epochs"));
  double steps = info.steps > 0 ? (double)info.steps : *epochs * per_epoch;
  return step_limit > 0 && !((double)step_limit >= steps) ? (double)step_limit : steps;
}

static double log_bytes(const brim_doctor_job *job, double steps, double epochs) {
  double lines = steps / (double)brim_config_int(job->config, "log.interval") + epochs;
  double bytes = 0;
  if (brim_config_bool(job->config, "log.jsonl")) bytes += lines * LOG_LINE_BYTES;
  if (brim_config_bool(job->config, "log.csv")) bytes += epochs * LOG_LINE_BYTES;
  if (brim_config_bool(job->config, "log.tensorboard")) {
    bytes += lines * EVENT_BYTES * (double)job->work->metrics->count;
  }
  return bytes;
}

static void say_logs(const brim_doctor_job *job, brim_doctor_report *out) {
  double epochs = 0, steps = run_steps(job, &epochs);
  double present_bytes = file_bytes(run_folder(job), "log.jsonl");
  char bytes[32], now[64] = "";
  if (!isnan(present_bytes)) {
    char size[32];
    brim_doctor_bytes(present_bytes, size);
    brim_msg_format(now, sizeof now, brim_tr("; log.jsonl has %s now"), size);
  }
  if (isnan(steps)) {
    brim_doctor_say_row(out, &rows[LOGS], BRIM_DOCTOR_UNKNOWN,
                        brim_tr("the number of steps is not known before a run%s"), now);
    return;
  }
  double total = log_bytes(job, steps, epochs);
  brim_doctor_bytes(total, bytes);
  bool large = total > GIB;
  brim_doctor_line *line =
      brim_doctor_say_row(out, &rows[LOGS], large ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                          brim_tr("about %s for %.0f steps%s"), bytes, steps, now);
  if (large) {
    fix_train(job, line, "log.interval=%.0f",
              ceil((double)brim_config_int(job->config, "log.interval") * total / (0.1 * GIB)));
  }
}

//---------------------------------- the job ----------------------------------

static bool is_of_memory(brim_failure failure) {
  return failure == BRIM_FAILURE_OOM_PLANNED || failure == BRIM_FAILURE_OOM_DEVICE ||
         failure == BRIM_FAILURE_OOM_HOST || failure == BRIM_FAILURE_SHARED_MEMORY;
}

void brim_doctor_config(const brim_doctor_job *job, brim_doctor_report *out) {
  brim_doctor_records records;
  if (job->plan->failure != BRIM_FAILURE_NONE && !is_of_memory(job->plan->failure)) {
    brim_doctor_config_failed(job->plan->message, job->words, out);
    return;
  }
  brim_doctor_say_row(out, &rows[OPENS], BRIM_DOCTOR_GOOD, brim_tr("%s on %s"),
                      job->description[0] ? job->description : job->work->table->name,
                      job->device->info.name);
  records_read(job, &records);
  say_fit(job, out);
  say_host(job, out);
  brim_doctor_measured(job, &records, out);
  if (records.own < 0) brim_doctor_rules(job, out);
  brim_doctor_sweep(job, out);
  say_checkpoints(job, out);
  say_interval(job, &records, out);
  say_logs(job, out);
  records_free(&records);
}
