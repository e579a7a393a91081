// The files of a sweep: records as they come, the report at the end. Whether they can be written is
// determined before anything is measured, and an earlier sweep's files are kept.
#include "cli/bench/cli_bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/job/cli_aside.h"
#include "run/run.h"

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
                                .picks = b->picks,
                                .decision = &b->decision,
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
