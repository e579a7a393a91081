// The files of a profile. Whether they can be written is determined before anything is measured; those of
// an earlier profile in the same folder are kept under other names.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/job/cli_aside.h"
#include "cli/profile/cli_profile.h"
#include "profile/profile_chrome.h"
#include "profile/profile_scalars.h"
#include "record/record_snapshot.h"

// Option, name in the folder (NULL = only where the option names it), key in JSON, label.
static const struct {
  const char *option, *name, *key, *label;
  const char *mark;  // in the beginning of a file that a profile wrote; NULL = none
} files[CLI_PROFILE_FILES] = {
    [CLI_PROFILE_RECORD] = {NULL, "profile.json", "record", BRIM_N_("record"), NULL},
    [CLI_PROFILE_PAGE] = {"html", "profile.html", "html", BRIM_N_("page"), BRIM_CLI_PAGE_MARK},
    [CLI_PROFILE_TRACE] = {"trace", "trace.json.gz", "trace", BRIM_N_("trace"),
                           "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\""},
    [CLI_PROFILE_SNAPSHOT] = {"memory-snapshot", NULL, "memory_snapshot", BRIM_N_("memory"), NULL},
    [CLI_PROFILE_EVENTS] = {"tensorboard", NULL, "tensorboard", "TensorBoard", NULL},
};

//---------------------------------- before ----------------------------------

// output_dir when it is given, else runs/profile-NAME with the run's name or the config's.
static brim_status choose_folder(const brim_cli_job *job, brim_str *out) {
  if (brim_cli_job_output_dir(job)) {
    brim_str_append(out, brim_cli_job_output_dir(job));
    return brim_str_status(out);
  }
  const char *name = brim_config_string(job->config, "name");
  if (!name && job->input.path) name = brim_fs_basename(job->input.path);
  if (!name) name = brim_config_string(job->config, "workload");
  size_t n = strlen(name);
  if (brim_str_ends(name, ".yaml")) n -= 5;
  if (brim_str_ends(name, ".yml")) n -= 4;
  brim_str_append(out, "runs/profile-");
  brim_str_append_n(out, name, n);
  return brim_str_status(out);
}

// A place that cannot be written to is wrong input: nothing has begun.
static brim_status check_file(const char *path) {
  char *folder = brim_fs_dirname(path);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  brim_status status = strcmp(folder, ".") == 0 ? BRIM_OK : brim_fs_mkdirs(folder);
  brim_free(folder);
  struct stat st;
  if (!status && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
  }
  if (!status) status = brim_fs_check_target(path);
  return brim_fs_refused(status);
}

static brim_status check_folder(const char *path) {
  brim_status status = brim_fs_mkdirs(path);
  char *probe = status ? NULL : brim_fs_join(path, "events");
  if (!status && !probe) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (!status) status = brim_fs_check_target(probe);
  brim_free(probe);
  return brim_fs_refused(status);
}

static brim_status check_endings(cli_profile *p) {
  const char *trace = p->paths[CLI_PROFILE_TRACE];
  if (!brim_str_ends(trace, ".json") && !brim_str_ends(trace, ".json.gz")) {
    return brim_cli_usage(p->cli, BRIM_N_("--trace must end in .json or .json.gz, not %s"), trace);
  }
  return BRIM_OK;
}

static brim_status choose_paths(cli_profile *p, const char *folder) {
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    const char *given =
        files[i].option ? brim_option_string(&p->cli->parse, files[i].option, NULL) : NULL;
    if (!given && !files[i].name) continue;
    p->paths[i] = given ? brim_strdup(given) : brim_fs_join(folder, files[i].name);
    if (!p->paths[i]) return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  return check_endings(p);
}

brim_status brim_cli_profile_prepare(cli_profile *p) {
  brim_str folder;
  brim_str_init(&folder);
  brim_status status = choose_folder(p->job, &folder);
  if (!status) status = choose_paths(p, folder.data);
  if (!status) {
    status = brim_cli_job_check_outputs(p->cli, p->job, (const char *const *)p->paths,
                                        CLI_PROFILE_FILES);
  }
  for (int i = 0; i < CLI_PROFILE_FILES && !status; i++) {
    if (!p->paths[i]) continue;
    status = i == CLI_PROFILE_EVENTS ? check_folder(p->paths[i]) : check_file(p->paths[i]);
    // what has its usual name is kept beside the new one
    bool named = files[i].option && brim_option_string(&p->cli->parse, files[i].option, NULL);
    if (!status && named) status = brim_cli_check_replace(p->cli, p->paths[i], files[i].mark);
  }
  if (!status) status = brim_fs_lock_folder(folder.data, &p->lock);
  for (int i = 0; i < CLI_PROFILE_FILES && !status && p->lock; i++) {
    if (p->paths[i]) brim_fs_remove_stale_of(p->paths[i]);
  }
  brim_str_deinit(&folder);
  return status;
}

//---------------------------------- after ----------------------------------

// Takes the value.
static brim_status write_json(json_t *value, int indent, const char *path) {
  char *text = NULL;
  brim_status status = brim_json_dump(value, indent, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  brim_free(text);
  json_decref(value);
  return status;
}

static brim_status write_record(const cli_profile *p, const char *path) {
  json_t *value = NULL;
  BRIM_TRY(brim_profile_to_json(&p->profile, &value));
  return write_json(value, 1, path);
}

static brim_status write_page(const cli_profile *p, const char *path) {
  brim_str page, command;
  brim_str_init(&page);
  brim_str_init(&command);
  brim_cli_command_text(p->cli, &command);
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_profile_page(&p->profile, command.data, &page);
  if (!status) status = brim_fs_write(path, page.data, page.len);
  brim_str_deinit(&command);
  brim_str_deinit(&page);
  return status;
}

static brim_status write_trace(const cli_profile *p, const char *path) {
  return brim_chrome_write(&p->trace, &p->profile.memory, path);
}

static brim_status write_snapshot(const cli_profile *p, const char *path) {
  json_t *value = NULL;
  BRIM_TRY(brim_snapshot_to_json(&p->profile, &value));
  return write_json(value, 1, path);
}

static brim_status write_events(const cli_profile *p, const char *path) {
  return brim_scalars_write(&p->trace, path);
}

// A file that was named outright is replaced, as asked for.
static brim_status put_aside(const cli_profile *p) {
  const char *paths[CLI_PROFILE_FILES] = {NULL};
  char *kept = NULL;
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    const char *option = files[i].option;
    if (!option || !brim_option_string(&p->cli->parse, option, NULL)) paths[i] = p->paths[i];
  }
  BRIM_TRY(brim_cli_put_aside(paths, CLI_PROFILE_FILES, (const char *const *)p->paths,
                              CLI_PROFILE_FILES, p->job->input.path, &kept));
  if (kept) brim_cli_note(p->cli, brim_tr("the earlier profile is kept: %s\n"), kept);
  brim_free(kept);
  return BRIM_OK;
}

brim_status brim_cli_profile_files(cli_profile *p) {
  static brim_status (*const write[CLI_PROFILE_FILES])(const cli_profile *, const char *) = {
      [CLI_PROFILE_RECORD] = write_record, [CLI_PROFILE_PAGE] = write_page,
      [CLI_PROFILE_TRACE] = write_trace,   [CLI_PROFILE_SNAPSHOT] = write_snapshot,
      [CLI_PROFILE_EVENTS] = write_events,
  };
  brim_status first = BRIM_OK;
  char detail[512] = "";
  const brim_status kept = put_aside(p);
  if (kept) return kept == BRIM_ENOMEM ? kept : BRIM_EIO;
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    if (!p->paths[i]) continue;
    const brim_status status = write[i](p, p->paths[i]);
    p->wrote[i] = status == BRIM_OK;
    if (!status || first) continue;
    first = status == BRIM_ENOMEM ? status : BRIM_EIO;
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
  }
  if (first) brim_status_set_detail(detail);
  return first;
}

brim_status brim_cli_profile_page_again(cli_profile *p, const char *record) {
  const char *given = brim_option_string(&p->cli->parse, files[CLI_PROFILE_PAGE].option, NULL);
  if (!given) return BRIM_OK;
  BRIM_TRY(brim_cli_check_outputs(p->cli, &record, 1, &given, 1));
  p->paths[CLI_PROFILE_PAGE] = brim_strdup(given);
  if (!p->paths[CLI_PROFILE_PAGE]) {
    return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  }
  BRIM_TRY(check_file(given));
  BRIM_TRY(write_page(p, given));
  p->wrote[CLI_PROFILE_PAGE] = true;
  return BRIM_OK;
}

void brim_cli_profile_files_free(cli_profile *p) {
  brim_fs_unlock(p->lock);
  for (int i = 0; i < CLI_PROFILE_FILES; i++) brim_free(p->paths[i]);
}

json_t *brim_cli_profile_files_json(const cli_profile *p) {
  json_t *object = json_object();
  for (int i = 0; object && i < CLI_PROFILE_FILES; i++) {
    if (!p->wrote[i] || !brim_json_put(object, files[i].key, json_string(p->paths[i]))) continue;
    json_decref(object);
    return NULL;
  }
  return object;
}

void brim_cli_profile_files_text(const cli_profile *p, brim_str *out) {
  for (int i = 0; i < CLI_PROFILE_FILES; i++) {
    if (!p->wrote[i]) continue;
    const char *label = brim_tr(files[i].label);
    const int width = brim_utf8_width(label);
    brim_str_append(out, label);
    brim_str_repeat(out, ' ', (size_t)(width < 12 ? 13 - width : 1));
    brim_str_printf(out, "%s\n", p->paths[i]);
  }
}
