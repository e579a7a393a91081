// A session chooses and measures the settings of a subject, draws conclusions, and writes them to files. The
// caller prints. brim_tuning_run, at the end, shows the order.
#include "tune/tune_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/monitor_job.h"
#include "profile/profile_rows.h"
#include "profile/profile_trace.h"

// Members that callers do not see.
typedef struct brim_tuning_state {
  int64_t *values[BRIM_KNOB_MAX];  // of the axes
  brim_time started;               // the sweep
  brim_machine_ceilings machine;   // for every result
  brim_gpu_sampler *sampler;       // while a GPU is measured; NULL = none
  double larger_batch_gain;  // rate of the best larger batch over the config's own; NaN = unknown
  bool priced;               // findings of the config's own setting have measured prices
  brim_fs_lockfile *lock;    // of the output folder
  brim_result *known;        // records to resume from; those handed out are empty
  size_t known_room;
  size_t recorded;            // results that are in the .jsonl file
  brim_status record_status;  // of the first record that could not be written
  char record_detail[512];
  brim_job_publisher *publisher;  // for `brim top`, while something is measured; NULL = none
  brim_job published;
  brim_time published_at;
} state;

static void note(const brim_tuning *s, const char *fmt, ...) BRIM_PRINTF(2, 3);
static void note(const brim_tuning *s, const char *fmt, ...) {
  brim_str text;
  va_list args;
  if (!s->how.events->note) return;
  brim_str_init(&text);
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  if (!brim_str_status(&text)) s->how.events->note(s->how.ctx, text.data);
  brim_str_deinit(&text);
}

//-------------------------------------------- settings --------------------------------------------

bool brim_knob_read(const brim_knob *knob, const char *text, int64_t *out) {
  char *end;
  bool on = false;
  if (knob->kind == BRIM_KNOB_INT) {
    *out = strtoll(text, &end, 10);
    return end != text && !*end;
  }
  if (knob->kind == BRIM_KNOB_BOOL) {
    if (!brim_parse_bool(text, &on)) return false;
    *out = on;
    return true;
  }
  for (int64_t i = 0; knob->choices && knob->choices[i]; i++) {
    if (strcmp(knob->choices[i], text) != 0) continue;
    *out = i;
    return true;
  }
  *out = knob->value;  // what the workload chose from the config for this device
  return knob->choices && strcmp(text, "auto") == 0;
}

// One axis of the grid; a value that is given twice is measured once. `list`: the key the values come from;
// NULL = none.
static brim_status add_axis(brim_tuning *s, int knob, const char *list, const int64_t *values,
                            size_t count) {
  const brim_knob *row = &s->subject->knobs[knob];
  for (size_t i = 0; i < count; i++) {
    if (values[i] >= row->min && values[i] <= row->max) continue;
    char typed[64];
    const char *name = list && s->how.typed ? s->how.typed(s->how.ctx, list, typed) : NULL;
    return brim_fail(BRIM_EINVAL, "%s: %lld is not between %lld and %lld",
                     name   ? name
                     : list ? list
                            : row->name,
                     (long long)values[i], (long long)row->min, (long long)row->max);
  }
  int64_t *copy = brim_alloc(count * sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory while choosing settings");
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    bool known = false;
    for (size_t k = 0; k < n; k++) known = known || copy[k] == values[i];
    if (!known) copy[n++] = values[i];
  }
  s->state->values[s->axis_count] = copy;
  s->axes[s->axis_count++] = (brim_sweep_axis){knob, copy, n};
  return BRIM_OK;
}

// The values of a knob: those of the command line, else the subject's.
static brim_status choose_axis(brim_tuning *s, int knob, brim_subject_wish *wish) {
  brim_subject *subject = s->subject;
  brim_subject_axis found = {.count = 0};
  if (s->how.given_count[knob] > 0) {
    BRIM_TRY(add_axis(s, knob, NULL, s->how.given[knob], s->how.given_count[knob]));
    s->named[knob] = true;
  } else {
    if (subject->table->axis) {
      BRIM_TRY(subject->table->axis(subject->state, knob, wish, &found));
    }
    if (found.note[0]) note(s, "%s", found.note);
    if (found.count == 0) return BRIM_OK;
    BRIM_TRY(add_axis(s, knob, found.list, found.values, found.count));
    // the user chose the values: by a list in the config, or by --benchmark-batch
    s->named[knob] = found.list || s->how.batch_only;
  }
  const brim_sweep_axis *axis = &s->axes[s->axis_count - 1];
  int64_t *most = &wish->most.value[knob];
  *most = axis->values[0];
  for (size_t i = 1; i < axis->count; i++) {
    if (axis->values[i] > *most) *most = axis->values[i];
  }
  return BRIM_OK;
}

brim_status brim_tuning_choose(brim_tuning *s) {
  const brim_subject *subject = s->subject;
  brim_subject_wish wish = {.all = s->how.all,
                            .card = s->how.card,
                            .card_bytes = s->how.card_bytes,
                            .most = brim_subject_setting(subject)};
  bool taken[BRIM_KNOB_MAX] = {false};
  int batch = brim_subject_knob_as(subject, BRIM_ROLE_BATCH);
  // --benchmark-batch sweeps the batch knob alone. A subject without a batch knob is swept over all of
  // its knobs.
  if (s->how.batch_only && batch >= 0 && subject->knobs[batch].axis) {
    BRIM_TRY(choose_axis(s, batch, &wish));
  } else {
    for (;;) {
      int next = -1;
      for (size_t i = 0; i < subject->knob_count; i++) {
        bool tried = subject->knobs[i].axis || (!subject->table->axis && s->how.given_count[i] > 0);
        if (!tried || taken[i]) continue;
        if (next < 0 || subject->knobs[i].order < subject->knobs[next].order) next = (int)i;
      }
      if (next < 0) break;
      taken[next] = true;
      BRIM_TRY(choose_axis(s, next, &wish));
    }
  }
  BRIM_TRY(brim_sweep_settings_make(subject, s->axes, s->axis_count, true, &s->settings));
  return s->how.apply && subject->table->check_edit ? subject->table->check_edit(s) : BRIM_OK;
}

//-------------------------------------------- records --------------------------------------------
// A line of the .jsonl file for every setting, as soon as it was measured: a session that is killed loses
// nothing. --resume takes over the records that still hold.

static bool is_regular(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// Appends a record to the .jsonl file and releases `json`.
static brim_status append(const brim_tuning *s, json_t *json) {
  char *line = NULL;
  brim_status status = brim_json_dump(json, 0, &line);
  if (!status) status = brim_fs_append_line(s->how.jsonl, line);
  brim_free(line);
  json_decref(json);
  return status;
}

// Appends a record. A failure is kept for the end, when the whole file is tried again.
static void record(brim_tuning *s, const brim_result *result, const brim_scaling *scaling) {
  state *st = s->state;
  json_t *json = NULL;
  if (st->record_status) return;
  brim_status status =
      result ? brim_result_to_json(result, &json) : brim_scaling_to_json(scaling, &json);
  if (!status) status = append(s, json);
  if (!status) {
    st->recorded += result != NULL;
    return;
  }
  st->record_status = status;
  snprintf(st->record_detail, sizeof st->record_detail, "%s", brim_status_detail());
  brim_log_info("bench", "a record could not be written; tried again at the end: %s",
                brim_status_detail());
}

// Writes the .jsonl file again: the results in the order of the sweep, then unused records of the earlier sweep, then
// the record of --verify.
static brim_status rewrite(const brim_tuning *s) {
  size_t count = 0;
  brim_result *all = brim_calloc(s->count + s->known_count + 2, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", s->how.jsonl);
  for (size_t i = 0; i < s->count; i++) all[count++] = s->results[i];
  for (size_t i = 0; i < s->known_count; i++) {
    if (s->state->known[i].knob_count > 0) all[count++] = s->state->known[i];
  }
  if (s->proof) all[count++] = *s->proof;
  brim_status status = brim_results_write(s->how.jsonl, all, count);
  brim_free(all);
  return status;
}

static bool has_setting(const brim_subject *subject, const brim_setting *setting,
                        const brim_result *r) {
  for (size_t k = 0; k < subject->knob_count; k++) {
    const brim_result_knob *given = brim_result_knob_find(r, subject->knobs[k].name);
    char text[32];
    brim_knob_format(&subject->knobs[k], setting->value[k], text);
    if (!given || strcmp(text, given->value) != 0) return false;
  }
  return true;
}

// Larger figures are no measurements.
#define MOST_SAMPLES_PER_S 1e13
#define MOST_SECONDS 1e6
enum { MOST_REPEATS = 100000 };

// True if the figures of the record are possible. Files may be edited or damaged.
static bool is_plausible(const brim_result *r) {
  double rate = r->samples_per_s, low = r->samples_per_s_low, high = r->samples_per_s_high;
  if (!(rate > 0 && rate < MOST_SAMPLES_PER_S) || r->repeats < 0) return false;
  if (r->repeats > MOST_REPEATS || r->seconds > MOST_SECONDS) return false;
  if (!(r->total_ms.median > 0) || !isfinite(r->total_ms.median)) return false;
  if (isnan(low) && isnan(high)) return true;
  return low >= 0 && low <= rate && rate <= high && isfinite(high);
}

// How many records could not be taken over, by the reason.
typedef struct left_out {
  size_t foreign, again, doubtful, broken;
  char why[128];  // of the first foreign one
} left_out;

// Reads a line of the earlier sweep's file and keeps its record if it still holds. A broken line, such as one cut
// short by a crash, is counted and skipped.
static brim_status resume_line(brim_tuning *s, const char *text, size_t size, int line,
                               left_out *out) {
  state *st = s->state;
  const brim_subject *subject = s->subject;
  const char *other = "";
  json_t *json = NULL;
  brim_result r;
  if (strspn(text, " \t\r") >= size) return BRIM_OK;
  brim_status status = brim_json_parse(text, size, s->how.jsonl, &json);
  if (!status) status = brim_result_from_json(json, s->how.jsonl, line, &r);
  json_decref(json);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    out->broken++;
    brim_status_clear();
    return BRIM_OK;
  }
  brim_result_attach_knobs(&r, 1);
  if (subject->knob_set) r.knob_set = subject->knob_set;
  // only trials (no kind) decide about resuming: records of other kinds are made again
  if (!r.kind[0]) {
    if (strcmp(r.version, BRIM_VERSION) != 0) {
      other = brim_tr("another version of brim");
    } else if (subject->table->differs) {
      status = subject->table->differs(subject->state, &r, &other);
    }
    bool swept = false;
    for (size_t i = 0; i < s->settings.count && !*other && !swept; i++) {
      swept = has_setting(subject, &s->settings.setting[i], &r);
    }
    if (!*other && !swept) other = brim_tr("a setting that is not swept now");
  }
  if (!status && *other) {
    if (out->foreign++ == 0) snprintf(out->why, sizeof out->why, "%s", other);
  } else if (!status && (r.kind[0] || r.failure != BRIM_FAILURE_NONE)) {
    out->again += !r.kind[0];
  } else if (!status && !is_plausible(&r)) {
    out->doubtful++;
  } else if (!status) {
    if (s->known_count == st->known_room) {
      size_t room = st->known_room ? st->known_room * 2 : 64;
      brim_result *grown = brim_realloc(st->known, room * sizeof *grown);
      if (!grown) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", s->how.jsonl);
      if (grown) st->known = grown;
      if (grown) st->known_room = room;
    }
    if (!status) {
      st->known[s->known_count++] = r;
      return BRIM_OK;
    }
  }
  brim_result_deinit(&r);
  return status;
}

// Reads the records of an earlier sweep. *keep: the file has other or no useful records, so it is kept under
// another name.
static brim_status resume(brim_tuning *s, bool *keep) {
  char *text = NULL;
  size_t size = 0;
  left_out out = {.why = ""};
  *keep = true;
  if (!s->how.resume) return BRIM_OK;
  if (!is_regular(s->how.jsonl)) {  // reading a pipe would wait
    note(s, brim_tr("nothing to resume in %s: every setting is measured now\n"), s->how.jsonl);
    return BRIM_OK;
  }
  BRIM_TRY(brim_fs_read(s->how.jsonl, 0, &text, &size));
  brim_status status = BRIM_OK;
  int line = 1;
  for (size_t at = 0; at < size && !status; line++) {
    size_t n = strcspn(text + at, "\n");
    status = resume_line(s, text + at, n, line, &out);
    at += n + 1;
  }
  brim_free(text);
  BRIM_TRY(status);
  if (s->known_count > 0) {
    note(s,
         s->known_count == 1
             ? brim_tr("resumed: %zu setting of %s is known, the rest is measured\n")
             : brim_tr("resumed: %zu settings of %s are known, the rest is measured\n"),
         s->known_count, s->how.jsonl);
  } else {
    note(s, brim_tr("nothing to resume in %s: every setting is measured now\n"), s->how.jsonl);
  }
  if (out.again > 0) note(s, brim_tr("  did not run then and are tried again: %zu\n"), out.again);
  if (out.doubtful > 0) {
    note(s, brim_tr("  impossible figures, measured again: %zu\n"), out.doubtful);
  }
  if (out.foreign > 0) note(s, brim_tr("  not of this sweep (%s): %zu\n"), out.why, out.foreign);
  if (out.broken > 0) note(s, brim_tr("  broken lines: %zu\n"), out.broken);
  *keep = out.foreign > 0 || s->known_count == 0;
  return BRIM_OK;
}

// Moves the known record of a setting to *out. False if there is none: the setting must be measured.
static bool take_known(void *ctx, const brim_setting *setting, brim_result *out) {
  brim_tuning *s = ctx;
  for (size_t i = 0; i < s->known_count; i++) {
    brim_result *r = &s->state->known[i];
    if (r->knob_count == 0 || !has_setting(s->subject, setting, r)) continue;
    *out = *r;
    memset(r, 0, sizeof *r);
    return true;
  }
  return false;
}

//-------------------------------------------- files --------------------------------------------

// Checks that a file can be written at this path, and makes its folder. Nothing was measured yet, so a
// failure counts as bad input. Accepts devices such as /dev/null.
static brim_status check_writable(const char *path) {
  char *dir = brim_fs_dirname(path);
  if (!dir) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  brim_status status = strcmp(dir, ".") == 0 ? BRIM_OK : brim_fs_mkdirs(dir);
  brim_free(dir);
  bool there = brim_fs_exists(path) && !brim_fs_is_dir(path);
  if (!status && there && access(path, W_OK) != 0) {  // records are appended to what is there
    status = brim_fail(BRIM_EINVAL, "%s cannot be written: %s", path, brim_errno_text(errno));
  } else if (!status && (!there || is_regular(path))) {
    status = brim_fs_check_target(path);
  }
  return status && status != BRIM_ENOMEM ? BRIM_EINVAL : status;
}

// check_writable for a file that is written whole and renamed into place: it must be a regular file.
static brim_status check_replaceable(const char *path) {
  BRIM_TRY(check_writable(path));
  if (!brim_fs_exists(path) || is_regular(path)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
}

brim_status brim_tuning_prepare(brim_tuning *s) {
  BRIM_TRY(check_replaceable(s->how.html));
  BRIM_TRY(check_writable(s->how.jsonl));
  BRIM_TRY(check_replaceable(s->how.best));
  // Two sweeps, or a sweep and a run, in one folder would mix their files.
  char *folder = brim_fs_dirname(s->how.best);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while opening the output folder");
  brim_status status = brim_fs_lock_folder(folder, &s->state->lock);
  const char *const targets[] = {s->how.jsonl, s->how.html, s->how.best};
  for (size_t i = 0; i < sizeof targets / sizeof *targets && !status && s->state->lock; i++) {
    brim_fs_remove_stale_of(targets[i]);
  }
  brim_free(folder);
  bool keep = false;
  if (!status) status = resume(s, &keep);
  if (!status && keep && s->how.events->keep_earlier) {
    status = s->how.events->keep_earlier(s->how.ctx);
  }
  return !status && s->known_count > 0 ? rewrite(s) : status;
}

// Lines are written during the sweep so that a killed sweep loses nothing. At the end the file is
// rewritten: repeats have replaced results, and findings know all settings. A pipe or device keeps its
// lines.
static brim_status complete_records(brim_tuning *s) {
  state *st = s->state;
  if (!brim_fs_exists(s->how.jsonl) || is_regular(s->how.jsonl)) {
    BRIM_TRY(rewrite(s));
    for (size_t i = 0; i < s->scaling_count; i++) {
      json_t *json = NULL;
      BRIM_TRY(brim_scaling_to_json(&s->scaling[i], &json));
      BRIM_TRY(append(s, json));
    }
    return BRIM_OK;
  }
  for (size_t i = st->recorded; i < s->count && !st->record_status; i++) {
    record(s, &s->results[i], NULL);
  }
  if (!st->record_status) return BRIM_OK;
  brim_status_set_detail(st->record_detail);
  return st->record_status;
}

static brim_status write_report(const brim_tuning *s) {
  brim_str page;
  brim_str_init(&page);
  brim_status status = s->how.events->report(s->how.ctx, &page);
  if (!status) status = brim_fs_write(s->how.html, page.data, page.len);
  brim_str_deinit(&page);
  return status;
}

// The first failure of several steps that are all tried.
typedef struct outcome {
  brim_status status;
  char detail[1024];
} outcome;

static void note_first_failure(outcome *o, brim_status status) {
  if (!status || o->status) return;
  o->status = status;
  snprintf(o->detail, sizeof o->detail, "%s", brim_status_detail());
}

static bool wrote(outcome *o, brim_status status) {
  note_first_failure(o, status && status != BRIM_ENOMEM ? BRIM_EIO : status);
  return !status;
}

// Records, report and best setting. Tries all of them; fails with BRIM_EIO or BRIM_ENOMEM.
static brim_status write_files(brim_tuning *s) {
  outcome first = {BRIM_OK, ""};
  const brim_subject_table *table = s->subject->table;
  s->wrote_jsonl = wrote(&first, complete_records(s));
  s->wrote_html = wrote(&first, write_report(s));
  if (s->picks.recommended >= 0 && !s->wrote_best && table->write_best) {
    s->wrote_best = wrote(&first, table->write_best(s, s->how.best));
  }
  if (first.status) brim_status_set_detail(first.detail);
  return first.status;
}

//-------------------------------------- published progress --------------------------------------
// Publishes for `brim top` the setting that is measured, its rate and the time left.

enum { PUBLISH_NS = 500000000 };

static void publish_start(brim_tuning *s) {
  brim_job *job = &s->state->published;
  if (s->how.plan_only) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "bench");
  snprintf(job->workload, sizeof job->workload, "%.31s", s->subject->name);
  if (s->how.device) {
    const brim_device *device = *s->how.device;
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  job->phase = BRIM_JOB_START;
  s->state->publisher = brim_job_publisher_start(job);
}

void brim_tuning_job_progress(brim_job *job, const brim_progress *progress) {
  char name[sizeof job->name];
  snprintf(name, sizeof name, "%.63s", progress->title ? progress->title : "");
  brim_utf8_trim(name);
  if (strcmp(name, job->name) !=
      0) {  // a new setting begins: drop the figures of the setting before it
    memcpy(job->name, name, sizeof job->name);
    job->samples_per_s = (double)NAN;
    job->finding_count = 0;
  }
  job->phase = BRIM_JOB_MEASURE;
  job->eta_s =
      progress->eta_s;  // done and total are left out: they count settings, as the title does
}

void brim_tuning_job_result(brim_job *job, const brim_result *result) {
  job->samples_per_s = result->samples_per_s;
  snprintf(job->unit, sizeof job->unit, "%.23s", brim_result_unit(result));
  job->finding_count = 0;
  for (size_t i = 0; i < result->finding_count && i < BRIM_JOB_FINDINGS; i++) {
    job->findings[job->finding_count++] = result->findings[i];
  }
}

static void publish(brim_tuning *s, const brim_progress *progress) {
  state *st = s->state;
  brim_time now = brim_clock_now();
  brim_tuning_job_progress(&st->published, progress);
  if (!st->publisher || brim_time_since_ns(st->published_at, now) < PUBLISH_NS) return;
  st->published_at = now;
  brim_job_publisher_set(st->publisher, &st->published);
}

//-------------------------------------------- measuring --------------------------------------------

static void on_progress(void *ctx, const brim_progress *progress) {
  brim_tuning *s = ctx;
  if (s->how.events->progress) s->how.events->progress(s->how.ctx, progress);
  publish(s, progress);
}

// Applies --gpu to a result: sets whether its plan fits the memory of the named card, in place of this device's.
// Only the bytes planned for the device count. On a CPU the host's bytes would count too.
static void take_card(const brim_tuning *s, brim_result *r) {
  double limit = s->how.config_limit;
  double most = limit > 0 && limit < s->how.card_bytes ? limit : s->how.card_bytes;
  if (r->failure != BRIM_FAILURE_NONE && r->failure != BRIM_FAILURE_OOM_PLANNED) return;
  bool fits = (double)r->plan.bytes[BRIM_PLACE_DEVICE] <= most;
  r->free_bytes = r->total_bytes = s->how.card_bytes;
  snprintf(r->device, sizeof r->device, "%s", s->how.card);
  snprintf(r->device_id, sizeof r->device_id, "%s", s->how.card);
  r->failure = fits ? BRIM_FAILURE_NONE : BRIM_FAILURE_OOM_PLANNED;
  r->failure_status = fits ? BRIM_OK : BRIM_EOOM;
  r->message[0] = '\0';
}

static void on_result(void *ctx, const brim_result *result) {
  brim_tuning *s = ctx;
  if (!s->how.plan_only) record(s, result, NULL);
  brim_tuning_job_result(&s->state->published, result);
  brim_job_publisher_set(s->state->publisher, &s->state->published);
  if (!s->how.events->result) return;
  brim_result shown = *result;
  if (s->how.card) take_card(s, &shown);
  s->how.events->result(s->how.ctx, &shown);
}

static void on_final(void *ctx, const brim_result *result) {
  brim_tuning *s = ctx;
  if (s->how.events->final) s->how.events->final(s->how.ctx, result);
}

static void on_so_far(void *ctx, const brim_result *results, size_t count) {
  brim_tuning *s = ctx;
  if (s->how.events->so_far) s->how.events->so_far(s->how.ctx, results, count);
}

// Seconds of a first visit; the sweep's budget is a multiple of it. A GPU first records graphs and loads kernels.
#define CPU_SECONDS 4.0
#define GPU_SECONDS 30.0
// With fewer steps than usual every part of a visit is shorter.
enum { USUAL_STEPS = 10, LEAST_STEPS = 2 };

static double usual_seconds(const brim_tuning *s) {
  return s->subject->host ? CPU_SECONDS : GPU_SECONDS;
}

static bool is_brief(const brim_tuning *s) {
  return s->how.steps_asked && s->how.steps < USUAL_STEPS;
}

// The share of its usual time that a visit gets: less with few --steps, and with a --budget, which must do for several
// settings.
static double visit_share(const brim_tuning *s) {
  double share = is_brief(s) ? fmax(LEAST_STEPS, (double)s->how.steps) / USUAL_STEPS : 1;
  if (!(s->how.budget_s > 0)) return share;
  return fmin(share, fmax(0.25, s->how.budget_s / 16) / usual_seconds(s));
}

static brim_trial_options trial_options(const brim_tuning *s) {
  int steps = s->how.steps;
  return (brim_trial_options){.steps = steps,
                              .max_warmup = !is_brief(s)          ? 0
                                            : steps > LEAST_STEPS ? steps
                                                                  : LEAST_STEPS,
                              .min_steps = s->how.min_steps,
                              .ci_target = 0.01,
                              .max_seconds = usual_seconds(s) * visit_share(s),
                              .memory_limit = s->how.memory_limit,
                              .memory = s->how.memory,
                              .sampler = s->state->sampler,
                              .machine = &s->state->machine,
                              .ceilings = s->how.ceilings,
                              .stop = s->how.stop};
}

// Starts the sampler of a GPU; NULL without one: its columns stay unknown.
static brim_gpu_sampler *tune_sampler(const char *who, brim_gpu_monitor *monitor,
                                      const brim_memory_watch *memory) {
  brim_gpu_sampler *sampler = NULL;
  if (!monitor || !memory || !memory->uuid[0]) return NULL;
  if (brim_gpu_sampler_start(monitor, memory->uuid, 0.05, &sampler)) {
    brim_log_info(who, "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
    return NULL;
  }
  return sampler;
}

// The ceilings of the machine, known from an earlier run or measured now, in a second or two; and the sampler
// of a GPU.
static brim_status measure_machine(brim_tuning *s) {
  state *st = s->state;
  brim_machine_ceilings_init(&st->machine);
  if (s->how.plan_only || !s->how.device) return BRIM_OK;
  if (s->how.ceilings) {
    BRIM_TRY(brim_machine_ceilings_get(*s->how.device, &s->how.machine, &st->machine));
  }
  st->sampler = tune_sampler("bench", s->how.monitor, s->how.memory);
  return BRIM_OK;
}

// Above this many settings the sweep climbs through the grid instead of measuring every setting; not with --exhaustive.
enum { WHOLE_GRID = 24 };

static brim_status sweep(brim_tuning *s) {
  s->grid = s->settings.count;
  size_t *setting_of = brim_calloc(s->settings.count + 1, sizeof *setting_of);
  if (!setting_of) return brim_fail(BRIM_ENOMEM, "out of memory for the sweep");
  brim_sweep_options how = {
      .axes = s->axes,
      .axis_count = s->axis_count,
      .trial = trial_options(s),
      .settings = &s->settings,
      .race = &s->race,
      .plan_only = s->how.plan_only,
      .repeats = s->how.repeats,
      .on_progress = on_progress,
      .on_result = on_result,
      .on_final = on_final,
      .known = s->how.resume ? take_known : NULL,
      .on_first = on_so_far,
      .climb_above = s->how.exhaustive ? 0 : WHOLE_GRID,
      .budget_s =
          s->how.plan_only ? 0 : s->how.budget_s,  // measuring the machine's ceilings is extra time
      .setting_of = setting_of,
      .budget_ended = &s->budget_ended,
      .ctx = s,
  };
  brim_status status = brim_sweep_run(s->subject, &how, &s->results, &s->count);
  if (s->results) {
    // From here on s->settings has only the settings with a result.
    int own = -1;
    for (size_t i = 0; i < s->count; i++) {
      if (s->settings.own >= 0 && setting_of[i] == (size_t)s->settings.own) own = (int)i;
      s->settings.setting[i] = s->settings.setting[setting_of[i]];
    }
    s->settings.own = own;
    s->settings.count = s->count;
  }
  brim_free(setting_of);
  return status;
}

//------------------------------------------ conclusions ------------------------------------------

// Collects the facts that advice needs: the setting before the sweep, the knobs with several values,
// the knobs that do not matter for the pick.
static brim_advice_facts advice_facts(const brim_tuning *s) {
  const brim_subject *subject = s->subject;
  brim_advice_facts out;
  brim_advice_facts_of(subject, &out);
  out.larger = s->picks.recommended == s->settings.own ? s->state->larger_batch_gain : (double)NAN;
  for (size_t i = 0; i < s->axis_count; i++) {
    if (s->axes[i].count < 2) continue;
    out.several[out.several_count++] = subject->knobs[s->axes[i].knob].name;
  }
  for (size_t k = 0; s->picks.recommended >= 0 && k < subject->knob_count; k++) {
    const brim_setting *pick = &s->settings.setting[s->picks.recommended];
    if (!brim_subject_knob_matters(subject, k, pick)) {
      out.idle[out.idle_count++] = subject->knobs[k].name;
    }
  }
  return out;
}

static void advise(brim_tuning *s) {
  const brim_advice_facts facts = advice_facts(s);
  brim_advise(s->results, s->count, s->picks.recommended, &facts, &s->advice);
}

// "but batch_size 1024 changes learning: ask for it with --batch-sizes"
static void beside_text(const brim_tuning *s, int index, char out[192]) {
  const brim_subject *subject = s->subject;
  char what[96] = "";
  const char *option = "";
  for (size_t k = 0; k < subject->knob_count; k++) {
    const brim_knob *knob = &subject->knobs[k];
    int64_t value = s->settings.setting[index].value[k];
    if (!knob->changes_learning || value == knob->value) continue;
    char text[32];
    size_t n = strlen(what);
    brim_knob_format(knob, value, text);
    snprintf(what + n, sizeof what - n, "%s%s %s", n ? ", " : "", knob->name, text);
    if (!option[0]) option = knob->option ? knob->option : knob->list ? knob->list : "";
  }
  brim_msg_format(out, 192, brim_tr("but %s changes learning: ask for it with %s"), what, option);
}

// True if the config's own setting is measured only for comparison, because the user named other values.
static bool is_reference(const brim_tuning *s) {
  for (size_t a = 0; a < s->axis_count && s->settings.own_added && s->settings.own >= 0; a++) {
    const brim_sweep_axis *axis = &s->axes[a];
    bool has = !s->named[axis->knob];
    for (size_t i = 0; i < axis->count && !has; i++) {
      has = axis->values[i] == s->settings.setting[s->settings.own].value[axis->knob];
    }
    if (!has) return true;
  }
  return false;
}

static void recommend(brim_tuning *s) {
  brim_recommendation *r = &s->picks;
  bool *withheld = s->count > 0 ? (bool *)brim_calloc(s->count, sizeof *withheld) : NULL;
  for (size_t i = 0; withheld && i < s->count; i++) {
    withheld[i] = brim_sweep_changes_learning(s->subject, s->named, &s->settings.setting[i]);
  }
  const brim_recommend_options how = {.race = s->race,
                                      .now = s->settings.own,
                                      .now_is_reference = is_reference(s),
                                      .interrupted = s->interrupted,
                                      .withheld = withheld};
  brim_recommend(s->results, s->count, &how, r);
  brim_recommend_reason(s->results, s->count, r, s->race, r->reason);
  if (r->beside >= 0) beside_text(s, r->beside, r->beside_text);
  brim_free(withheld);
  if (s->count > 0) advise(s);
}

// Fails if no setting ran: with the first failure that is not for lack of memory, else with the first one. With --plan,
// a setting that does not fit is a valid result.
static brim_status check_something_ran(brim_tuning *s) {
  const brim_result *cause = NULL;
  for (size_t i = 0; i < s->count; i++) {
    const brim_result *r = &s->results[i];
    if (r->failure == BRIM_FAILURE_NONE) return BRIM_OK;
    if (s->how.plan_only && brim_result_is_oom(r)) return BRIM_OK;
    if (!cause || (brim_result_is_oom(cause) && !brim_result_is_oom(r))) cause = r;
  }
  if (!cause) return BRIM_OK;
  brim_status status = brim_result_is_oom(cause) ? BRIM_EOOM : cause->failure_status;
  s->running =
      cause->failure == BRIM_FAILURE_OTHER;  // the workload was configured; its steps failed
  if (s->how.plan_only) {
    return brim_fail(status, "no setting can be planned: %s", cause->message);
  }
  return brim_fail(status, "no setting ran: %s", cause->message);
}

// Longest time for measuring prices of findings when --budget is set.
#define LONGEST_PRICES 25.0

// Measures the gain of each remedy for the findings of the config's own setting, and updates the advice.
static brim_status price(brim_tuning *s) {
  state *st = s->state;
  const int own = s->settings.own;
  brim_remedy_options how = {.trial = trial_options(s), .on_progress = on_progress, .ctx = s};
  double spent = (double)brim_time_since_ns(st->started, brim_clock_now()) * 1e-9;
  if (s->how.budget_s > 0) how.seconds = fmin(LONGEST_PRICES, s->how.budget_s - spent);
  if (how.seconds < 0 || !s->how.price) return BRIM_OK;
  if (own < 0 || (size_t)own >= s->count || !brim_result_ran(&s->results[own])) return BRIM_OK;
  how.setting = &s->settings.setting[own];
  how.folder = s->how.checkpoints;
  how.larger = &st->larger_batch_gain;
  st->priced = true;
  brim_status status = brim_remedies_measure(s->subject, &how, s->results, s->count, (size_t)own);
  advise(s);  // now with what was tried
  return status;
}

//---------------------------------- several devices ----------------------------------

// Time in seconds to measure each number of devices; the same again with the exchange of gradients.
#define SCALE_SECONDS 1.5

static void on_scaling(void *ctx, const brim_scaling *scaling) {
  brim_tuning *s = ctx;
  record(s, NULL, scaling);
  if (s->how.events->scaling) s->how.events->scaling(s->how.ctx, scaling);
}

static void show_progress(void *ctx, const brim_progress *progress) {
  brim_tuning *s = ctx;
  if (s->how.events->progress) s->how.events->progress(s->how.ctx, progress);
}

// The backward pass's share of a step; NaN = unknown.
static double backward_share(const brim_result *r) {
  double total = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) total += r->phase_used[p] ? r->phase_ms[p].mean : 0;
  bool known = r->phase_used[BRIM_PHASE_BACKWARD] && total > 0;
  return known ? r->phase_ms[BRIM_PHASE_BACKWARD].mean / total : (double)NAN;
}

// Writes a note: how the learning rate changes with the batch of all devices together.
static void scaling_note(brim_tuning *s) {
  const brim_scaling *last = NULL;
  for (size_t i = 0; i < s->scaling_count; i++) {
    if (s->scaling[i].ran > 1 && (!last || s->scaling[i].devices > last->devices)) {
      last = &s->scaling[i];
    }
  }
  if (!last) return;
  double batch = brim_result_number_as(&last->result, BRIM_ROLE_BATCH, (double)NAN) *
                 brim_result_number_as(&last->result, BRIM_ROLE_ACCUMULATION, 1);
  if (!(batch > 0)) return;
  char rate[256];
  const brim_advice_facts facts = advice_facts(s);
  brim_advise_batch(&facts, batch * last->ran, rate);
  snprintf(
      s->scaling_note, sizeof s->scaling_note,
      brim_tr("Every device has the whole batch of %.0f: %d devices together make %.0f samples "
              "of one step. %s"),
      batch, last->ran, batch * last->ran, rate);
}

// If the config lists several devices, measures the recommended and the fastest setting on 1, 2, ... of
// them at once.
static brim_status scale(brim_tuning *s) {
  const brim_subject *subject = s->subject;
  const int picks[] = {s->picks.recommended, s->picks.highest};
  brim_setting settings[2];
  double backward[2];
  size_t count = 0, opened = 0;
  for (size_t i = 0; i < 2; i++) {
    if (picks[i] < 0 || (i == 1 && picks[1] == picks[0])) continue;
    backward[count] = backward_share(&s->results[picks[i]]);
    settings[count++] = s->settings.setting[picks[i]];
  }
  if (s->how.device_count < 2 || count == 0 || !subject->table->replicas) return BRIM_OK;
  brim_replica *replicas = brim_calloc(BRIM_SCALING_MAX, sizeof *replicas);
  if (!replicas) {
    return brim_fail(BRIM_ENOMEM, "out of memory for %zu devices", s->how.device_count);
  }
  brim_status status = subject->table->replicas(subject->state, s->how.stop, replicas, &opened);
  if (!status) {
    const brim_scale_options how = {.replicas = replicas,
                                    .replica_count = opened,
                                    .settings = settings,
                                    .setting_count = count,
                                    .backward_share = backward,
                                    .ranks = s->how.ranks,
                                    .node = s->how.node,
                                    .measure = {.config = s->how.config,
                                                .seconds = SCALE_SECONDS * visit_share(s),
                                                .memory_limit = s->how.memory_limit,
                                                .stop = s->how.stop},
                                    .on_progress = show_progress,
                                    .on_result = on_scaling,
                                    .ctx = s};
    status = brim_scale(&how, &s->scaling, &s->scaling_count);
  }
  scaling_note(s);
  subject->table->release(subject->state, replicas, opened);
  brim_free(replicas);
  if (status == BRIM_EINTERRUPTED) {
    return brim_fail(status, "interrupted while measuring several devices; the sweep is complete");
  }
  return status;
}

//---------------------------------- --verify ----------------------------------

static brim_status no_pick(brim_tuning *s, const char *option) {
  s->running = true;
  return brim_fail(BRIM_ESTATE, "--%s: no recommendation: no setting ran", option);
}

// Removes the files in the folder, then the folder. It stays if something in it cannot be removed, such
// as a folder.
static void remove_folder(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  if (!brim_fs_list(folder, &names, &count)) {
    for (size_t i = 0; i < count; i++) {
      char *path = brim_fs_join(folder, names[i]);
      if (path && brim_fs_remove(path)) brim_log_info("bench", "%s", brim_status_detail());
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  if (brim_fs_exists(folder) && brim_fs_remove(folder)) {
    brim_log_info("bench", "%s", brim_status_detail());
  }
}

// The rate that the sweep predicts for a later run, with an allowance for other programs; never narrower than the
// printed interval of the setting.
static brim_interval expected(const brim_tuning *s) {
  const brim_result *r = &s->results[s->picks.recommended];
  const double load = exp(brim_result_log_load(r));
  brim_interval later = {.value = (double)NAN, .low = (double)NAN, .high = (double)NAN};
  if (s->race) later = brim_race_later(s->race, (size_t)s->picks.recommended);
  return (brim_interval){.value = r->samples_per_s,
                         .low = fmin(later.low / load, r->samples_per_s_low),
                         .high = fmax(later.high * load, r->samples_per_s_high)};
}

// Makes the record of --verify: the recommended setting's record with the figures of the verifying run.
static brim_status fill_proof(brim_tuning *s, const brim_subject_proof *run) {
  const brim_result *best = &s->results[s->picks.recommended];
  brim_result *out = s->proof = brim_calloc(1, sizeof *s->proof);
  if (!out) return brim_fail(BRIM_ENOMEM, "out of memory while verifying");
  brim_result_init(out);
  snprintf(out->kind, sizeof out->kind, "verify");
  out->when_s = brim_clock_wall_s();
  memcpy(out->workload, best->workload, sizeof out->workload);
  memcpy(out->device, best->device, sizeof out->device);
  memcpy(out->device_id, best->device_id, sizeof out->device_id);
  memcpy(out->library, best->library, sizeof out->library);
  memcpy(out->backend, best->backend, sizeof out->backend);
  memcpy(out->description, best->description, sizeof out->description);
  memcpy(out->host, best->host, sizeof out->host);
  memcpy(out->os, best->os, sizeof out->os);
  memcpy(out->cpu, best->cpu, sizeof out->cpu);
  memcpy(out->knobs, best->knobs, sizeof out->knobs);
  out->knob_count = best->knob_count;
  out->knob_set = best->knob_set;
  out->cores = best->cores;
  out->threads = best->threads;
  out->seed = best->seed;
  out->total_bytes = best->total_bytes;
  out->ceilings = best->ceilings;
  out->config = json_incref(best->config);
  out->plan = best->plan;
  out->plan.row_count = 0;  // the rows are the trial's
  out->samples_per_s = run->achieved;
  bool known = run->achieved > 0 && run->per_epoch > 0;
  out->epoch_s = known ? (double)run->per_epoch / run->achieved : (double)NAN;
  out->seconds = run->seconds;
  out->steps = (int)run->steps;
  out->repeats = 1;
  out->stable = true;
  return BRIM_OK;
}

// Runs the recommended setting as a user would, in a folder that is removed, and compares it with the sweep's
// prediction.
static brim_status verify(brim_tuning *s) {
  if (!s->how.verify || !s->subject->table->prove) return BRIM_OK;
  if (s->picks.recommended < 0) return no_pick(s, "verify");
  brim_subject_proof run = {
      .cap_s = s->how.verify_s, .stop = s->how.stop, .on_progress = show_progress, .ctx = s};
  // A folder beside the sweep's files. Its name holds the process id, so a later sweep can remove it if
  // this process was killed.
  char name[64];
  char *dir = brim_fs_dirname(s->how.best);
  snprintf(name, sizeof name, "verify" BRIM_FS_TEMP_MARK "%ld.0", (long)getpid());
  char *folder = dir ? brim_fs_join(dir, name) : NULL;
  brim_free(dir);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while verifying");
  s->running = true;
  outcome end = {BRIM_OK, ""};
  note_first_failure(
      &end, s->subject->table->prove(s->subject, &s->results[s->picks.recommended], folder, &run));
  remove_folder(folder);
  brim_free(folder);
  // Drop training's own message: it says how to continue, but this run cannot be continued.
  if (end.status == BRIM_EINTERRUPTED) {
    return brim_fail(end.status,
                     "interrupted while verifying; the files of the sweep are complete");
  }
  if (end.status) {
    brim_status_set_detail(end.detail);
    return brim_fail_context(end.status, "verifying the recommendation");
  }
  brim_status_clear();
  BRIM_TRY(fill_proof(s, &run));
  const brim_host_provider system = brim_host_provider_system("");
  brim_host_sample now;
  brim_host_sample_clear(&now);
  if (brim_host_read_sample(&system, &now)) brim_status_clear();
  s->verification =
      (brim_verification){.predicted = expected(s),
                          .achieved = run.achieved,
                          .others_then = brim_results_others(s->results, s->count),
                          .others_now = brim_host_usage_between(&run.host, &now).others_cpu_percent,
                          .samples = run.samples,
                          .seconds = run.seconds,
                          .cap_s = run.cap_s,
                          .epochs = run.epochs,
                          .steps = run.steps};
  s->state->record_status =
      BRIM_OK;  // an earlier failure is void: the file is rewritten at the end
  record(s, s->proof, NULL);
  return BRIM_OK;
}

//---------------------------------- traces ----------------------------------

static bool trace_one(brim_tuning *s, brim_gpu_trace *trace, int index) {
  const brim_subject *subject = s->subject;
  if (!subject->table->trace(subject->state, &s->settings.setting[index], trace,
                             &s->results[index])) {
    return true;
  }
  brim_log_info("bench", "a setting could not be traced: %s", brim_status_detail());
  brim_status_clear();
  return false;
}

// Traces the picks by the GPU's own records; true if one was traced. This runs last: the tracer stays attached to the
// process and slows down what follows.
static bool trace_picks(brim_tuning *s) {
  brim_gpu_trace *trace = NULL;
  const int pick = s->picks.recommended;
  if (!s->how.memory || !s->how.memory->uuid[0] || !s->subject->table->trace) return false;
  if (pick < 0 || !brim_result_ran(&s->results[pick])) return false;
  if (brim_gpu_trace_open(&trace)) {
    brim_log_info("bench", "the GPU's own records are not read: %s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  bool traced = trace_one(s, trace, pick);
  if (s->picks.highest != pick) traced = trace_one(s, trace, s->picks.highest) || traced;
  brim_gpu_trace_close(trace);
  return traced;
}

//------------------------------------------- session -------------------------------------------

brim_status brim_tuning_open(brim_tuning *s, brim_subject *subject,
                             const brim_tuning_options *options) {
  memset(s, 0, sizeof *s);
  s->how = *options;
  s->subject = subject;
  s->settings.own = -1;
  brim_recommendation_init(&s->picks);
  s->state = brim_calloc(1, sizeof *s->state);
  if (!s->state) return brim_fail(BRIM_ENOMEM, "out of memory for the sweep");
  s->state->larger_batch_gain = (double)NAN;
  return BRIM_OK;
}

void brim_tuning_close(brim_tuning *s) {
  state *st = s->state;
  for (size_t i = 0; i < s->count; i++) brim_result_deinit(&s->results[i]);
  brim_free(s->results);
  if (s->proof) brim_result_deinit(s->proof);
  brim_free(s->proof);
  brim_race_destroy(s->race);
  for (size_t i = 0; i < s->scaling_count; i++) brim_scaling_deinit(&s->scaling[i]);
  brim_free(s->scaling);
  brim_sweep_settings_free(&s->settings);
  if (st) {
    brim_job_publisher_stop(st->publisher);
    for (size_t i = 0; i < s->known_count; i++) brim_result_deinit(&st->known[i]);
    brim_free(st->known);
    for (size_t i = 0; i < s->axis_count; i++) brim_free(st->values[i]);
    brim_fs_unlock(st->lock);
    brim_free(st);
  }
  memset(s, 0, sizeof *s);
}

// Concludes a sweep: recommends a setting, writes the files, then prices, scales, verifies and traces. Writes the files
// again if one of these ran. Returns the first failure: of writing, else the interruption, else of the later steps.
static brim_status conclude(brim_tuning *s, brim_status swept) {
  outcome end = {BRIM_OK, ""}, interrupted = {BRIM_OK, ""};
  note_first_failure(&interrupted, swept);
  recommend(s);
  // Ceilings that a setting exceeds are measured again; what is still too low is marked where it is shown.
  if (s->how.device) {
    (void)brim_machine_ceilings_raise(*s->how.device, &s->how.machine, s->results, s->count,
                                      &s->state->machine);
  }
  if (s->count > 0) note_first_failure(&end, write_files(s));
  if (!end.status) end = interrupted;
  if (!end.status) note_first_failure(&end, check_something_ran(s));
  if (!end.status) {
    note_first_failure(&end, price(s));
    if (!end.status) note_first_failure(&end, scale(s));
    if (!end.status) note_first_failure(&end, verify(s));
    bool traced = !end.status && trace_picks(s);
    if (traced || s->state->priced || s->proof || s->scaling_count > 0) {
      note_first_failure(&end, write_files(s));
    }
  }
  if (end.status) brim_status_set_detail(end.detail);
  return end.status;
}

brim_status brim_tuning_run(brim_tuning *s) {
  state *st = s->state;
  publish_start(s);
  st->started = brim_clock_now();
  brim_status status = measure_machine(s);
  if (!status) status = sweep(s);
  brim_gpu_sampler_stop(st->sampler);
  st->sampler = NULL;
  for (size_t i = 0; i < s->count && s->how.card; i++) take_card(s, &s->results[i]);
  s->interrupted = status == BRIM_EINTERRUPTED;
  s->measured = !status || s->interrupted;
  if (!s->measured) return status;
  if (s->how.plan_only) return status ? status : check_something_ran(s);
  return conclude(s, status);
}

brim_status brim_tuning_apply(brim_tuning *s, brim_tuning_edit *out) {
  memset(out, 0, sizeof *out);
  if (s->picks.recommended < 0) return no_pick(s, "apply");
  s->running = true;
  return s->subject->table->edit(s, out);
}

//------------------------------------------ profiles --------------------------------------------
// A profile's session: one setting of a subject is measured and traced, its findings are priced, and the files
// are written. It stands here and not in the profile room since it needs measure's trials and tune's prices. A price
// is the time that a finding's remedy saves.

void brim_profile_session_open(brim_profile_session *s, brim_subject *subject,
                               const brim_profile_session_options *options) {
  memset(s, 0, sizeof *s);
  s->how = *options;
  s->subject = subject;
  brim_profile_init(&s->profile);
  brim_trace_init(&s->trace);
}

void brim_profile_session_close(brim_profile_session *s) {
  brim_trace_deinit(&s->trace);
  brim_profile_deinit(&s->profile);
  brim_fs_unlock(s->lock);
  s->lock = NULL;
}

//---------------------------------- files ----------------------------------

brim_status brim_profile_check_file(const char *path, bool is_folder) {
  char *folder_path = is_folder ? brim_strdup(path) : brim_fs_dirname(path);
  char *probe = is_folder ? brim_fs_join(path, "events") : brim_strdup(path);
  brim_status status = folder_path && probe
                           ? BRIM_OK
                           : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  struct stat st;
  if (!status && strcmp(folder_path, ".") != 0) status = brim_fs_mkdirs(folder_path);
  if (!status && !is_folder && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
  }
  if (!status) status = brim_fs_check_target(probe);
  brim_free(folder_path);
  brim_free(probe);
  return brim_fs_refused(status);
}

brim_status brim_profile_session_prepare(brim_profile_session *s) {
  BRIM_TRY(brim_fs_lock_folder(s->how.folder, &s->lock));
  for (int i = 0; i < BRIM_PROFILE_FILES && s->lock; i++) {
    if (s->how.paths[i]) brim_fs_remove_stale_of(s->how.paths[i]);
  }
  return BRIM_OK;
}

static brim_status write_file(const brim_profile_session *s, brim_profile_file file,
                              const char *path) {
  json_t *value = NULL;
  brim_status status = BRIM_OK;
  switch (file) {
    case BRIM_PROFILE_FILE_TRACE:
      return brim_chrome_write(&s->trace, &s->profile.memory, path);
    case BRIM_PROFILE_FILE_EVENTS:
      return brim_scalars_write(&s->trace, path);
    case BRIM_PROFILE_FILE_PAGE: {
      brim_str page;
      brim_str_init(&page);
      status = s->how.page(s->how.ctx, &page);
      if (!status) status = brim_fs_write(path, page.data, page.len);
      brim_str_deinit(&page);
      return status;
    }
    case BRIM_PROFILE_FILE_RECORD:
      status = brim_profile_to_json(&s->profile, &value);
      break;
    case BRIM_PROFILE_FILE_SNAPSHOT:
      status = brim_snapshot_to_json(&s->profile, &value);
      break;
    case BRIM_PROFILE_FILES:
      break;
  }
  char *text = NULL;
  if (!status) status = brim_json_dump(value, 1, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  brim_free(text);
  json_decref(value);
  return status;
}

brim_status brim_profile_session_write(brim_profile_session *s) {
  brim_status first = BRIM_OK;
  char detail[512] = "";
  const brim_status kept = s->how.keep_earlier(s->how.ctx);
  if (kept) return kept == BRIM_ENOMEM ? kept : BRIM_EIO;
  for (int i = 0; i < BRIM_PROFILE_FILES; i++) {
    if (!s->how.paths[i]) continue;
    const brim_status status = write_file(s, (brim_profile_file)i, s->how.paths[i]);
    s->wrote[i] = status == BRIM_OK;
    if (!status || first) continue;
    first = status == BRIM_ENOMEM ? status : BRIM_EIO;
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
  }
  if (first) brim_status_set_detail(detail);
  return first;
}

//---------------------------------- measuring ----------------------------------

brim_status brim_profile_session_run(brim_profile_session *s) {
  brim_subject *subject = s->subject;
  const brim_setting setting = brim_subject_setting(subject);
  const brim_result *r = &s->profile.result;
  brim_profile_options how = s->how.profile;
  brim_gpu_sampler *sampler = NULL;
  brim_machine_ceilings_init(&s->machine);
  BRIM_TRY(brim_machine_ceilings_get(*s->how.device, &s->how.machine, &s->machine));
  how.machine = &s->machine;
  how.sampler = sampler = tune_sampler("profile", s->how.monitor, how.memory);
  brim_status status =
      subject->table->profile(subject->state, &setting, &how, &s->profile, &s->trace);
  brim_gpu_sampler_stop(sampler);
  BRIM_TRY(status);
  if (r->failure != BRIM_FAILURE_NONE) {  // it did not fit, or its steps did not run
    s->running = r->failure == BRIM_FAILURE_OTHER;
    return brim_fail(brim_result_is_oom(r) ? BRIM_EOOM : r->failure_status, "%s", r->message);
  }
  s->running = true;
  brim_time start = brim_clock_now();
  // Ceilings from a busy hour would give shares above 100 %.
  if (brim_machine_ceilings_raise(*s->how.device, &s->how.machine, &s->profile.result, 1,
                                  &s->machine)) {
    const char *precision = brim_result_text_as(r, BRIM_ROLE_PRECISION);
    brim_profile_ceilings(&s->profile, precision[0] ? precision : "fp32");
  }
  if (s->how.price) {
    const brim_remedy_options remedies = {.setting = &setting,
                                          .folder = s->how.checkpoints,
                                          .trial = {.memory_limit = how.memory_limit,
                                                    .memory = how.memory,
                                                    .machine = &s->machine,
                                                    .ci_target = 0.01,
                                                    .stop = how.stop},
                                          .on_progress = s->how.on_progress,
                                          .ctx = s->how.ctx};
    status = brim_remedies_measure(subject, &remedies, &s->profile.result, 1, 0);
  } else {
    brim_diagnose(&s->profile.result, 1, 0);
  }
  s->profile.seconds += (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  s->unpriced = status == BRIM_EINTERRUPTED;  // the findings have what was known until then
  return s->unpriced ? BRIM_OK : status;
}
