// The files of a bench: records as they come, the report, best.yaml, and --apply.

#include "cli/bench/cli_bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/job/cli_aside.h"
#include "config/config.h"
#include "run/run.h"

//-------------------------------------- records and report --------------------------------------
// The files of a sweep: records as they come, the report at the end. Whether they can be written is
// determined before anything is measured, and an earlier sweep's files are kept.

//---------------------------------- before ----------------------------------

// *path is owned by the caller.
static brim_status file_path(const bench *b, const char *option, const char *name, char **path) {
  const char *given = option ? brim_option_string(&b->cli->parse, option, NULL) : NULL;
  *path = given ? brim_strdup(given) : brim_fs_join(brim_cli_job_bench_dir(b->job), name);
  return *path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", name);
}

// A device such as /dev/null is written to as it is.
static bool is_regular(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// Can a file be made at this path? The folder is made.
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
  // Nothing was measured yet: this is about what was asked for, not about a run that failed.
  return status && status != BRIM_ENOMEM ? BRIM_EINVAL : status;
}

// Records are always kept. A report that was named outright is replaced.
static brim_status put_aside(bench *b) {
  const char *const paths[] = {b->jsonl, b->best, b->html};
  size_t count = brim_option_string(&b->cli->parse, "report", NULL) ? 2 : 3;
  char *kept = NULL;
  BRIM_TRY(brim_cli_put_aside(paths, count, paths, 3, b->job->input.path, &kept));
  if (kept) brim_cli_note(b->cli, brim_tr("the earlier sweep is kept: %s\n"), kept);
  brim_free(kept);
  return BRIM_OK;
}

// The report and best.yaml are written whole and renamed into place.
static brim_status check_replaceable(const char *path) {
  BRIM_TRY(check_writable(path));
  if (!brim_fs_exists(path) || is_regular(path)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
}

// Two sweeps, or a sweep and a run, in one folder would mix their files.
static brim_status lock_folder(bench *b) {
  char *folder = brim_fs_dirname(b->best);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while opening the output folder");
  brim_status status = brim_fs_lock_folder(folder, &b->lock);
  const char *const targets[] = {b->jsonl, b->html, b->best};
  for (size_t i = 0; i < sizeof targets / sizeof *targets && !status && b->lock; i++) {
    brim_fs_remove_stale_of(targets[i]);
  }
  brim_free(folder);
  return status;
}

// best.yaml and the file to edit may be the config of this sweep; records and report may not be one of them.
static brim_status check_outputs(bench *b) {
  const char *const written[] = {b->jsonl, b->html};
  BRIM_TRY(brim_cli_job_check_outputs(b->cli, b->job, written, 2));
  const char *const configs[] = {b->best, b->apply};
  for (size_t i = 0; i < 2; i++) {
    const char *const all[] = {configs[i], b->jsonl, b->html};
    BRIM_TRY(brim_cli_check_outputs(b->cli, NULL, 0, all, 3));
  }
  return BRIM_OK;
}

brim_status brim_cli_bench_prepare(bench *b) {
  BRIM_TRY(file_path(b, "output", "results.jsonl", &b->jsonl));
  BRIM_TRY(file_path(b, "report", "report.html", &b->html));
  BRIM_TRY(file_path(b, NULL, "best.yaml", &b->best));
  BRIM_TRY(check_outputs(b));
  BRIM_TRY(check_replaceable(b->html));
  if (brim_option_string(&b->cli->parse, "report", NULL)) {
    BRIM_TRY(brim_cli_check_replace(b->cli, b->html, BRIM_CLI_PAGE_MARK));
  }
  BRIM_TRY(check_writable(b->jsonl));
  BRIM_TRY(check_replaceable(b->best));
  BRIM_TRY(lock_folder(b));
  bool aside;
  BRIM_TRY(brim_cli_bench_resume(b, &aside));
  if (aside) BRIM_TRY(put_aside(b));
  return b->known_count > 0 ? brim_cli_bench_rewrite(b) : BRIM_OK;
}

//---------------------------------- meanwhile ----------------------------------

static void kept_for_the_end(bench *b, brim_status status) {
  b->record_status = status;
  snprintf(b->record_detail, sizeof b->record_detail, "%s", brim_status_detail());
  brim_log_info("bench", "a record could not be written; tried again at the end: %s",
                brim_status_detail());
}

// Takes the record.
static brim_status append(const bench *b, json_t *json) {
  char *line = NULL;
  brim_status status = brim_json_dump(json, 0, &line);
  if (!status) status = brim_fs_append_line(b->jsonl, line);
  brim_free(line);
  json_decref(json);
  return status;
}

void brim_cli_bench_record(bench *b, const brim_result *result) {
  if (b->record_status) return;  // the whole file is tried again at the end
  json_t *json = NULL;
  brim_status status = brim_result_to_json(result, &json);
  if (!status) status = append(b, json);
  if (status) {
    kept_for_the_end(b, status);
  } else {
    b->recorded++;
  }
}

void brim_cli_bench_record_scaling(bench *b, const brim_scaling *scaling) {
  if (b->record_status) return;
  json_t *json = NULL;
  brim_status status = brim_scaling_to_json(scaling, &json);
  if (!status) status = append(b, json);
  if (status) kept_for_the_end(b, status);
}

//---------------------------------- after ----------------------------------

// --benchmark-batch asks for the sweep's alone.
size_t brim_cli_bench_views(const bench *b, brim_view views[BRIM_VIEWS]) {
  const brim_work *work = b->job->work;
  if (!work || !work->table->views || b->count == 0) return 0;
  const brim_setting own = brim_work_setting(work);
  bool whole = !brim_option_flag(&b->cli->parse, "benchmark-batch", false);
  return work->table->views->make(b->results, b->count, &own, whole, views);
}

static brim_status write_report(const bench *b, const char *path) {
  brim_str page, command;
  brim_str_init(&page);
  brim_str_init(&command);
  brim_cli_command_text(b->cli, &command);
  const int own = b->settings.own;
  brim_view views[BRIM_VIEWS];
  brim_ui_report_options how = {.views = views,
                                .view_count = brim_cli_bench_views(b, views),
                                .own = own >= 0 && (size_t)own < b->count ? &b->results[own] : NULL,
                                .command = command.data,
                                .picks = &b->picks,
                                .advice = b->count > 0 ? &b->advice : NULL,
                                .verified = b->proof_record ? &b->proof : NULL,
                                .scaling = b->scaling,
                                .scaling_count = b->scaling_count,
                                .scaling_note = b->scaling_note};
  brim_status status = brim_ui_report(&how, b->results, b->count, &page);
  if (!status) status = brim_str_status(&command);
  if (!status) status = brim_fs_write(path, page.data, page.len);
  brim_str_deinit(&page);
  brim_str_deinit(&command);
  return status;
}

// The lines written meanwhile are what a killed sweep leaves. At its end the file is written again:
// repeats have replaced results, findings know all settings, and the one at which a sweep was stopped
// comes last. What is no file (a pipe, a device) keeps the lines it got.
static brim_status complete_records(bench *b) {
  if (!brim_fs_exists(b->jsonl) || is_regular(b->jsonl)) {
    BRIM_TRY(brim_cli_bench_rewrite(b));
    for (size_t i = 0; i < b->scaling_count; i++) {
      json_t *json = NULL;
      BRIM_TRY(brim_scaling_to_json(&b->scaling[i], &json));
      BRIM_TRY(append(b, json));
    }
    return BRIM_OK;
  }
  for (size_t i = b->recorded; i < b->count && !b->record_status; i++) {
    brim_cli_bench_record(b, &b->results[i]);
  }
  if (!b->record_status) return BRIM_OK;
  brim_status_set_detail(b->record_detail);
  return b->record_status;
}

typedef struct first_failure {
  brim_status status;
  char detail[512];
} first_failure;

static bool wrote(first_failure *f, brim_status status) {
  if (!status) return true;
  if (!f->status) {
    f->status = status == BRIM_ENOMEM ? status : BRIM_EIO;
    snprintf(f->detail, sizeof f->detail, "%s", brim_status_detail());
  }
  return false;
}

brim_status brim_cli_bench_files(bench *b) {
  first_failure f = {BRIM_OK, ""};
  b->wrote_jsonl = wrote(&f, complete_records(b));
  b->wrote_html = wrote(&f, write_report(b, b->html));
  if (b->picks.recommended >= 0 && !b->wrote_best) {
    b->wrote_best = wrote(&f, brim_cli_bench_best(b, b->best));
  }
  if (f.status) brim_status_set_detail(f.detail);
  return f.status;
}

//---------------------------------------- learning rate ----------------------------------------
// The learning rate that goes with a recommended batch, for --apply and best.yaml. The rule itself is
// src/tune/tune_recommend.c's.

// What stands in a file beside each other.
typedef struct file_rate {
  double batch, steps, rate;
} file_rate;

// The config key of the knob in a role; "" where the workload has none.
static const char *bench_key(const bench *b, brim_knob_role role) {
  int knob = brim_work_knob_as(b->job->work, role);
  return knob < 0 ? "" : b->job->work->knobs[knob].key;
}

static double number_of(const bench *b, const brim_config *file, brim_knob_role role) {
  const char *key = bench_key(b, role);
  return key[0] ? (double)brim_config_int(file, key) : 1;
}

// A file without a learning rate has the one of the sweep; of a grid none is the one before.
static brim_status read_file(const bench *b, const char *path, const brim_advice_facts *facts,
                             file_rate *out) {
  brim_config *file = NULL;
  brim_config_options how = {.path = path, .mode = BRIM_CONFIG_EDIT};
  BRIM_TRY(brim_config_load(&how, &file));
  *out = (file_rate){number_of(b, file, BRIM_ROLE_BATCH),
                     number_of(b, file, BRIM_ROLE_ACCUMULATION), facts->learning_rate};
  if (brim_config_is_set(file, BENCH_RATE_KEY)) out->rate = brim_config_float(file, BENCH_RATE_KEY);
  if (brim_config_grid_count(file) != 1) out->rate = (double)NAN;
  brim_config_close(file);
  return BRIM_OK;
}

// For `batch` x `steps` (NaN: as before). A learning rate belongs to the batch beside which it stands: in
// the file `path`, whatever the command line had in its place; without a file, to the sweep's config.
static brim_status brim_cli_bench_rate(bench *b, const char *path, double batch, double steps,
                                       bench_rate *out) {
  brim_advice_facts facts;
  *out = (bench_rate){.kept = brim_option_flag(&b->cli->parse, "keep-lr", false)};
  brim_cli_bench_facts(b, &facts);
  if (isnan(facts.batch) || isnan(facts.learning_rate)) return BRIM_OK;
  file_rate was = {facts.batch, facts.accumulation, facts.learning_rate};
  if (path) BRIM_TRY(read_file(b, path, &facts, &was));
  if (was.steps < 1) was.steps = 1;
  double before = was.batch * was.steps;
  double after = (isnan(batch) ? was.batch : batch) * (isnan(steps) ? was.steps : steps);
  if (!(before > 0) || !(after > 0) || before == after || !(was.rate > 0)) return BRIM_OK;
  out->batch_before = before;
  out->batch_after = after;
  out->before = was.rate;
  out->adaptive = facts.adaptive;
  out->after = brim_advise_rate(was.rate, before, after, facts.adaptive);
  return BRIM_OK;
}

// "learning rate 0.1 -> 0.2, ..." and a newline; nothing where nothing changes.
static void bench_rate_text(const bench_rate *c, brim_str *out) {
  if (!(c->after > 0)) return;
  const char *rule = c->adaptive ? brim_tr("square-root rule") : brim_tr("linear rule");
  brim_str_printf(out,
                  c->kept ? brim_tr("learning rate %.4g stays (--keep-lr); it would be %.4g")
                          : brim_tr("learning rate %.4g -> %.4g, --keep-lr keeps it"),
                  c->before, c->after);
  brim_str_printf(out, brim_tr(" (%s, effective batch %.0f -> %.0f)\n"), rule, c->batch_before,
                  c->batch_after);
}

//------------------------------------------ best.yaml ------------------------------------------
// best.yaml: the keys that were given, with the recommended setting in place of what was swept.
// Defaults are left to the brim that reads it, as are keys that this version does not use.

// Files are found from any folder.
static brim_status add_path(const bench *b, const char *key, brim_cli_input *input) {
  const char *given = brim_config_string(b->job->config, key);
  if (!given || !*given || !brim_config_is_set(b->job->config, key)) return BRIM_OK;
  char *full = realpath(given, NULL);
  if (!full) return BRIM_OK;  // not a path of this machine's files: stays as it is
  brim_str quoted;
  brim_str_init(&quoted);
  for (const char *c = full; *c; c++) brim_str_append(&quoted, *c == '\'' ? "''" : (char[]){*c, 0});
  free(full);
  brim_status status = brim_str_status(&quoted);
  if (!status) status = brim_cli_input_add(input, "%s='%s'", key, quoted.data);
  brim_str_deinit(&quoted);
  return status;
}

// What was swept is answered, where the sweep's files went is no part of the answer, and a key
// without effect would only be warned of.
static bool is_kept(const brim_config *config, const char *name) {
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 && brim_config_is_set(config, name) &&
         brim_config_key_is_used(key) && strcmp(name, "output_dir") != 0 &&
         !brim_str_starts(name, "benchmark.");
}

// The printed config line by line. "group:" is held back until a key of it is kept; deeper lines
// (slots of a component) go with the key above them.
static void filter(const brim_config *config, const char *text, brim_str *out) {
  char group[64] = "";
  bool group_reported = false, keep = false;
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    size_t indent = strspn(text, " "), length = strcspn(text + indent, ":\n");
    char name[128] = "";
    if (indent == 0) {
      strncat(name, text, length < 63 ? length : 63);
      const brim_config_key *key = brim_config_key_find(name);
      bool is_group = !key || strcmp(key->name, name) != 0;
      memcpy(group, is_group ? name : "", is_group ? strlen(name) + 1 : 1);
      group_reported = false;
      keep = !is_group && is_kept(config, name);
    } else if (group[0] && indent == 2) {
      strcat(strcat(name, group), ".");
      strncat(name, text + indent, length < 63 ? length : 63);
      keep = is_kept(config, name);
    }
    if (!keep) continue;
    if (group[0] && !group_reported) brim_str_printf(out, "%s:\n", group);
    group_reported = true;
    brim_str_append_n(out, text, n);
    brim_str_append_char(out, '\n');
  }
}

// As one more load with the setting as overrides, so that everything that follows from it does.
static brim_status load_best(const bench *b, brim_config **out) {
  brim_device_info gpu;
  brim_config_facts facts;
  const brim_cli_input *input = &b->job->input;
  brim_cli_facts(b->job->registry, &gpu, &facts);
  brim_config_options how = {.path = input->path,
                             .overrides = (const char *const *)input->overrides,
                             .override_count = input->count,
                             .mode = BRIM_CONFIG_RUN,
                             .facts = &facts};
  return brim_config_load(&how, out);
}

// The same rate as --apply writes; one that the command line gives belongs to its batch.
static brim_status add_rate(bench *b, const brim_result *best, brim_str *text) {
  bench_rate rate;
  double batch = brim_result_number_as(best, BRIM_ROLE_BATCH, (double)NAN);
  double steps = brim_result_number_as(best, BRIM_ROLE_ACCUMULATION, (double)NAN);
  bool given = brim_config_layer_of(b->job->config, BENCH_RATE_KEY) == BRIM_CONFIG_FROM_OVERRIDE;
  BRIM_TRY(brim_cli_bench_rate(b, given ? NULL : b->job->input.path, batch, steps, &rate));
  if (!(rate.after > 0)) return BRIM_OK;
  brim_str_append(text, "# ");
  bench_rate_text(&rate, text);
  if (rate.kept) return BRIM_OK;
  return brim_cli_input_add(&b->job->input, "%s=%.4g", BENCH_RATE_KEY, rate.after);
}

brim_status brim_cli_bench_best(bench *b, const char *path) {
  const brim_result *best = &b->results[b->picks.recommended];
  char rate[32];
  brim_str text, whole;
  brim_str_init(&text);
  brim_str_init(&whole);
  brim_format_figure(best->samples_per_s, rate);
  brim_str_printf(&text, brim_tr("# recommended by brim bench: %s %s/s on %s\n"), rate,
                  brim_tr(brim_result_unit(best)), best->device);
  brim_status status = add_path(b, "data.path", &b->job->input);
  if (!status && b->device_count > 1) {  // training is on one
    const char *first = NULL;
    status = brim_work_device_at(b->job->config, 0, &first);
    if (!status) status = brim_cli_input_add(&b->job->input, "device=%s", first);
  }
  if (!status) status = add_path(b, "training.weights", &b->job->input);
  for (size_t i = 0; i < b->job->work->knob_count && !status; i++) {
    const brim_knob *knob = &b->job->work->knobs[i];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    if (!value) continue;
    brim_str_printf(&text, "#   %s: %s\n", knob->key, value->value);
    status = brim_cli_input_add(&b->job->input, "%s=%s", knob->key, value->value);
  }
  if (!status) status = add_rate(b, best, &text);
  brim_config *config = NULL;
  if (!status) status = load_best(b, &config);
  if (!status) status = brim_config_to_yaml(config, false, &whole);
  if (!status) filter(config, whole.data, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_config_close(config);
  brim_str_deinit(&whole);
  brim_str_deinit(&text);
  return status;
}

//------------------------------------------- --apply -------------------------------------------
// `brim bench --apply`: the recommended values of what was swept, written into a config file in
// place, and what changed shown as a diff. How a file is edited is src/config/config_edit.c's.

// Keys and values of a setting, as they are written; the learning rate comes on top.
typedef struct knob_edits {
  brim_config_edit edits[BRIM_KNOB_MAX + 1];
  char values[BRIM_KNOB_MAX + 1][32];
  size_t count;
} knob_edits;

static void add_edit(knob_edits *list, const char *key, const char *value) {
  snprintf(list->values[list->count], sizeof list->values[0], "%s", value);
  list->edits[list->count] = (brim_config_edit){key, list->values[list->count]};
  list->count++;
}

// --apply FILE, or the config that was given; one that comes with brim is not edited.
brim_status brim_cli_bench_apply_file(bench *b) {
  if (!brim_option_find(&b->cli->parse, "apply")) return BRIM_OK;
  if (b->plan_only) {
    return brim_cli_usage(b->cli, BRIM_N_("--apply needs a measurement; leave out --plan"));
  }
  const char *given = brim_option_string(&b->cli->parse, "apply", "");
  const brim_cli_input *input = &b->job->input;
  if (given[0]) {
    b->apply = given;
  } else if (input->found) {
    return brim_cli_usage(b->cli, BRIM_N_("--apply: %.200s comes with brim; name a FILE of yours"),
                          input->found);
  } else if (input->path) {
    b->apply = input->path;
  } else {
    return brim_cli_usage(b->cli, BRIM_N_("--apply: no config is given; name a FILE to edit"));
  }
  return BRIM_OK;
}

//---------------------------------- the learning rate ----------------------------------

// NaN where it stays.
static double edited(const knob_edits *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    double value;
    if (!strcmp(list->edits[i].key, key) && brim_parse_f64(list->edits[i].value, &value)) {
      return value;
    }
  }
  return (double)NAN;
}

static brim_status apply_add_rate(bench *b, knob_edits *list, bench_rate *rate) {
  BRIM_TRY(brim_cli_bench_rate(b, b->apply, edited(list, bench_key(b, BRIM_ROLE_BATCH)),
                               edited(list, bench_key(b, BRIM_ROLE_ACCUMULATION)), rate));
  char value[32];
  if (!(rate->after > 0) || rate->kept) return BRIM_OK;
  snprintf(value, sizeof value, "%.4g", rate->after);
  add_edit(list, BENCH_RATE_KEY, value);
  return BRIM_OK;
}

brim_status brim_cli_bench_apply_check(bench *b) {
  if (!b->apply) return BRIM_OK;
  // Tried with the values at hand, so that a file that cannot be edited is known before the sweep.
  knob_edits list = {.count = 0};
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_knob *knob = &b->job->work->knobs[b->axes.axis[i].knob];
    char value[32];
    brim_knob_format(knob, b->axes.axis[i].values[0], value);
    add_edit(&list, knob->key, value);
  }
  bench_rate rate;
  BRIM_TRY(apply_add_rate(b, &list, &rate));
  brim_config_edit_result result;
  brim_status status = brim_config_edit_preview(b->apply, list.edits, list.count, &result);
  if (status) return status;
  brim_config_edit_result_deinit(&result);
  return brim_config_edit_check(b->apply);
}

static brim_status apply_event(const bench *b, const knob_edits *list,
                               const brim_config_edit_result *result) {
  static const brim_term plain = {0};
  brim_str diff;
  brim_str_init(&diff);
  brim_status s = brim_ui_diff(&plain, b->apply, result->before, result->before_size, result->after,
                               result->after_size, &diff);
  json_t *f = json_object(), *keys = json_object();
  for (size_t i = 0; i < list->count && !s; i++) {
    s = brim_json_put(keys, list->edits[i].key, json_string(list->edits[i].value));
  }
  if (!s) s = brim_json_put(f, "path", json_string(b->apply));
  if (!s) s = brim_json_put(f, "changed", json_boolean(result->changed));
  if (!s) s = brim_json_put(f, "keys", json_incref(keys));
  if (!s) s = brim_json_put(f, "diff", json_string(diff.data));
  json_decref(keys);
  brim_str_deinit(&diff);
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(b->cli, "apply", f);
}

static brim_status show(const bench *b, const bench_rate *rate,
                        const brim_config_edit_result *result) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append_char(&text, '\n');
  brim_str_printf(&text,
                  result->changed ? brim_tr("applied       %s\n")
                                  : brim_tr("applied       %s already has this setting\n"),
                  b->apply);
  bench_rate_text(rate, &text);
  brim_status status =
      b->cli->quiet ? BRIM_OK
                    : brim_ui_diff(&b->cli->out, b->apply, result->before, result->before_size,
                                   result->after, result->after_size, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(b->cli, &text);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_bench_no_pick(const bench *b, const char *option) {
  b->cli->running = true;
  return brim_fail(BRIM_ESTATE, "--%s: no recommendation: no setting ran", option);
}

brim_status brim_cli_bench_apply(bench *b) {
  if (!b->apply) return BRIM_OK;
  if (b->picks.recommended < 0) return brim_cli_bench_no_pick(b, "apply");
  const brim_result *best = &b->results[b->picks.recommended];
  // Values of the config's own setting stay as the file has them: what it leaves to brim is not fixed to
  // what this machine chose.
  const bool same = b->picks.now >= 0 && brim_fs_same(b->apply, b->job->input.path);
  const brim_result *own = same ? &b->results[b->picks.now] : NULL;
  knob_edits list = {.count = 0};
  for (size_t i = 0; i < b->axes.count; i++) {
    const brim_knob *knob = &b->job->work->knobs[b->axes.axis[i].knob];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    const brim_result_knob *now = own ? brim_result_knob_find(own, knob->name) : NULL;
    const bool replaced =
        brim_config_layer_of(b->job->config, knob->key) == BRIM_CONFIG_FROM_OVERRIDE;
    if (value && now && !replaced && strcmp(value->value, now->value) == 0) continue;
    if (value) add_edit(&list, knob->key, value->value);
  }
  bench_rate rate;
  brim_config_edit_result result;
  b->cli->running = true;
  BRIM_TRY(apply_add_rate(b, &list, &rate));
  BRIM_TRY(brim_config_edit_file(b->apply, list.edits, list.count, &result));
  brim_status status = b->cli->json ? apply_event(b, &list, &result) : show(b, &rate, &result);
  brim_config_edit_result_deinit(&result);
  return status;
}
