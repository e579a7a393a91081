// `brim bench --resume`: which records of an interrupted sweep still hold. A record is taken over
// when it is of a setting of this sweep, measured by this version with the same config on the same
// device; anything else makes the old file one to be put aside.
#include "cli/bench/cli_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct reading {
  bench *bench;
  brim_result now;  // what a record of this sweep says of itself
  json_t *config;   // of it, without what does not change a measurement
  json_t *defaults;
  size_t foreign, again, doubtful, broken;
  char why[128];  // of the first foreign one
  size_t cap;
} reading;

// A dotted key.
static void leave_out(json_t *config, const char *key) {
  const char *dot = strchr(key, '.');
  char group[64];
  snprintf(group, sizeof group, "%.*s", (int)(dot ? dot - key : 0), key);
  json_object_del(dot ? json_object_get(config, group) : config, dot ? dot + 1 : key);
}

// "adamw(lr=0.001, beta1=0.9)" without the value of lr.
static void leave_out_rate(json_t *config) {
  const char *text = json_string_value(json_object_get(config, "optimizer"));
  const char *lr = text ? strstr(text, "(lr=") : NULL;
  if (text && !lr) lr = strstr(text, " lr=");
  if (!lr) return;
  char without[512];
  const char *rest = lr + 4 + strcspn(lr + 4, ",)");
  int n = snprintf(without, sizeof without, "%.*s%s", (int)(lr + 4 - text), text, rest);
  if (n < (int)sizeof without) json_object_set_new(config, "optimizer", json_string(without));
}

// A record of an earlier version lacks the keys that are new: they were at their defaults. Records
// name all the keys their version had.
static void fill_in(json_t *config, json_t *defaults) {
  const char *key;
  json_t *value;
  json_object_foreach(defaults, key, value) {
    json_t *here = json_object_get(config, key);
    if (!here) json_object_set_new(config, key, json_deep_copy(value));
    if (json_is_object(here) && json_is_object(value)) json_object_update_missing(here, value);
  }
}

static brim_status read_defaults(reading *in) {
  brim_config *config = NULL;
  const brim_config_options none = {.text = "", .text_name = "defaults"};
  BRIM_TRY(brim_config_load(&none, &config));
  brim_status status = brim_config_to_json(config, &in->defaults);
  brim_config_close(config);
  return status;
}

// Names, places and lists of what to try have no part in how fast a setting is, nor has the learning
// rate; the knobs are given by the setting (a config that the recommendation was written into is
// still the same).
static json_t *essence(const bench *b, const json_t *config, json_t *defaults) {
  // the device is given by what the record says of it, and the others of a list come after the
  // sweep
  static const char *const names[] = {"name",     "project",    "tags",
                                      "priority", "output_dir", "device"};
  static const char *const lists[] = {"repeats", "test_mixed_precision", "test_pin_memory"};
  json_t *copy = config ? json_deep_copy(config) : NULL;
  if (copy) fill_in(copy, defaults);
  json_t *benchmark = json_object_get(copy, "benchmark");
  for (size_t i = 0; copy && i < sizeof names / sizeof *names; i++) json_object_del(copy, names[i]);
  for (size_t i = 0; benchmark && i < sizeof lists / sizeof *lists; i++) {
    json_object_del(benchmark, lists[i]);
  }
  for (size_t i = 0; copy && i < b->job->work->knob_count; i++) {
    const brim_knob *knob = &b->job->work->knobs[i];
    leave_out(copy, knob->key);
    if (knob->list) leave_out(copy, knob->list);
  }
  if (copy) leave_out(copy, "training.use_amp");
  if (copy) leave_out(copy, "training.learning_rate");
  if (copy) leave_out_rate(copy);
  if (copy) leave_out(copy, "dataloader");
  return copy;
}

static bool is_of(const brim_work *work, const brim_setting *setting, const brim_result *r) {
  for (size_t k = 0; k < work->knob_count; k++) {
    const brim_result_knob *given = brim_result_knob_find(r, work->knobs[k].name);
    char text[32];
    brim_knob_format(&work->knobs[k], setting->value[k], text);
    if (!given || strcmp(text, given->value) != 0) return false;
  }
  return true;
}

static bool in_sweep(const bench *b, const brim_result *r) {
  for (size_t i = 0; i < b->settings.count; i++) {
    if (is_of(b->job->work, &b->settings.setting[i], r)) return true;
  }
  return false;
}

// "" when it is a record of this sweep, else what is other.
static const char *difference(const reading *in, const brim_result *r) {
  const brim_result *now = &in->now;
  if (strcmp(r->version, BRIM_VERSION) != 0) return brim_tr("another version of brim");
  if (strcmp(r->host, now->host) != 0 || strcmp(r->cpu, now->cpu) != 0 || r->cores != now->cores) {
    return brim_tr("another machine");
  }
  if (strcmp(r->device, now->device) != 0 || strcmp(r->device_id, now->device_id) != 0 ||
      strcmp(r->backend, now->backend) != 0 || strcmp(r->library, now->library) != 0 ||
      (r->threads != now->threads && !brim_result_knob_as(r, BRIM_ROLE_THREADS))) {
    return brim_tr("another device");
  }
  if (strcmp(r->workload, now->workload) != 0 || r->seed != now->seed) {
    return brim_tr("another config");
  }
  if (strcmp(r->description, now->description) != 0) return brim_tr("other data");
  json_t *config = essence(in->bench, r->config, in->defaults);
  bool same = config && json_equal(config, in->config);
  json_decref(config);
  if (!same) return brim_tr("another config");
  return in_sweep(in->bench, r) ? "" : brim_tr("a setting that is not swept now");
}

// No machine is that fast.
#define MOST_SAMPLES_PER_S 1e13
#define MOST_SECONDS 1e6
enum { MOST_REPEATS = 100000 };

// Could brim have measured this?
static bool is_plausible(const brim_result *r) {
  double rate = r->samples_per_s, low = r->samples_per_s_low, high = r->samples_per_s_high;
  if (!(rate > 0 && rate < MOST_SAMPLES_PER_S) || r->repeats < 0) return false;
  if (r->repeats > MOST_REPEATS || r->seconds > MOST_SECONDS) return false;
  if (!(r->total_ms.median > 0) || !isfinite(r->total_ms.median)) return false;
  if (isnan(low) && isnan(high)) return true;
  return low >= 0 && low <= rate && rate <= high && isfinite(high);
}

static brim_status keep(reading *in, const brim_result *r) {
  bench *b = in->bench;
  if (b->known_count == in->cap) {
    size_t cap = in->cap ? in->cap * 2 : 64;
    brim_result *grown = brim_realloc(b->known, cap * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->jsonl);
    b->known = grown;
    in->cap = cap;
  }
  b->known[b->known_count++] = *r;
  return BRIM_OK;
}

// A line that was cut short when the machine went down is no record.
static brim_status take_line(reading *in, const char *text, size_t size, int line) {
  json_t *json = NULL;
  brim_result r;
  if (strspn(text, " \t\r") >= size) return BRIM_OK;
  brim_status status = brim_json_parse(text, size, in->bench->jsonl, &json);
  if (!status) status = brim_result_from_json(json, in->bench->jsonl, line, &r);
  json_decref(json);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    in->broken++;
    brim_status_clear();
    return BRIM_OK;
  }
  brim_result_know(&r, 1);
  // only trials are taken over or stand in the way: the others follow from them
  const char *other = r.kind[0] ? "" : difference(in, &r);
  if (*other) {
    if (in->foreign++ == 0) snprintf(in->why, sizeof in->why, "%s", other);
  } else if (r.kind[0] || r.failure != BRIM_FAILURE_NONE) {
    in->again += !r.kind[0];
  } else if (!is_plausible(&r)) {
    in->doubtful++;
  } else {
    status = keep(in, &r);
    if (!status) return BRIM_OK;
  }
  brim_result_deinit(&r);
  return status;
}

static brim_status read_records(reading *in) {
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(in->bench->jsonl, 0, &text, &size));
  brim_status status = BRIM_OK;
  int line = 1;
  for (size_t at = 0; at < size && !status; line++) {
    size_t n = strcspn(text + at, "\n");
    status = take_line(in, text + at, n, line);
    at += n + 1;
  }
  brim_free(text);
  return status;
}

static void tell(const reading *in) {
  const bench *b = in->bench;
  brim_cli *cli = b->cli;
  if (b->known_count > 0) {
    brim_cli_note(cli,
                  b->known_count == 1
                      ? brim_tr("resumed: %zu setting of %s is known, the rest is measured\n")
                      : brim_tr("resumed: %zu settings of %s are known, the rest is measured\n"),
                  b->known_count, b->jsonl);
  } else {
    brim_cli_note(cli, brim_tr("nothing to resume in %s: every setting is measured now\n"),
                  b->jsonl);
  }
  if (in->again > 0) {
    brim_cli_note(cli, brim_tr("  did not run then and are tried again: %zu\n"), in->again);
  }
  if (in->doubtful > 0) {
    brim_cli_note(cli, brim_tr("  impossible figures, measured again: %zu\n"), in->doubtful);
  }
  if (in->foreign > 0) {
    brim_cli_note(cli, brim_tr("  not of this sweep (%s): %zu\n"), in->why, in->foreign);
  }
  if (in->broken > 0) brim_cli_note(cli, brim_tr("  broken lines: %zu\n"), in->broken);
}

brim_status brim_cli_bench_resume(bench *b, bool *put_aside) {
  *put_aside = true;
  b->resume = brim_option_flag(&b->cli->parse, "resume", false);
  if (!b->resume) return BRIM_OK;
  struct stat st;  // a pipe would be waited for
  if (stat(b->jsonl, &st) != 0 || !S_ISREG(st.st_mode)) {
    brim_cli_note(b->cli, brim_tr("nothing to resume in %s: every setting is measured now\n"),
                  b->jsonl);
    return BRIM_OK;
  }
  reading in = {.bench = b};
  const brim_cli_job *job = b->job;
  brim_setting setting = brim_work_setting(job->work);
  brim_trial_options how = {.memory = &b->job->memory};
  brim_status status =
      brim_trial_plan(job->work, job->config, job->device, &setting, &how, &in.now);
  if (!status) status = read_defaults(&in);
  if (!status) in.config = essence(b, in.now.config, in.defaults);
  if (!status && !in.config) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->jsonl);
  }
  if (!status) status = read_records(&in);
  if (!status) tell(&in);
  *put_aside = in.foreign > 0 || b->known_count == 0;
  json_decref(in.config);
  json_decref(in.defaults);
  brim_result_deinit(&in.now);
  return status;
}

bool brim_cli_bench_known(void *ctx, const brim_setting *setting, brim_result *out) {
  bench *b = ctx;
  const brim_work *work = b->job->work;
  for (size_t i = 0; i < b->known_count; i++) {
    brim_result *r = &b->known[i];
    bool same = r->knob_count > 0;
    for (size_t k = 0; k < work->knob_count && same; k++) {
      char text[32];
      const brim_result_knob *given = brim_result_knob_find(r, work->knobs[k].name);
      brim_knob_format(&work->knobs[k], setting->value[k], text);
      same = given && strcmp(text, given->value) == 0;
    }
    if (!same) continue;
    *out = *r;
    memset(r, 0, sizeof *r);  // given away
    return true;
  }
  return false;
}

// All that is known, in the order of the sweep; behind it what an interruption kept from its turn.
brim_status brim_cli_bench_rewrite(const bench *b) {
  size_t count = 0;
  brim_result *all = brim_calloc(b->count + b->known_count + 2, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", b->jsonl);
  for (size_t i = 0; i < b->count; i++) all[count++] = b->results[i];
  for (size_t i = 0; i < b->known_count; i++) {
    if (b->known[i].knob_count > 0) all[count++] = b->known[i];
  }
  if (b->proof_record) all[count++] = *b->proof_record;
  brim_status status = brim_results_write(b->jsonl, all, count);
  brim_free(all);
  return status;
}

void brim_cli_bench_known_free(bench *b) {
  for (size_t i = 0; i < b->known_count; i++) brim_result_deinit(&b->known[i]);
  brim_free(b->known);
  b->known = NULL;
  b->known_count = 0;
}
