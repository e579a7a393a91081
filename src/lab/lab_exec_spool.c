// Writes of an attempt that the store has not acknowledged: one request a line, in a file that appears
// whole and goes when all of it is sent.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_exec_int.h"
#include "lab/lab_link.h"

enum { LARGEST_SPOOL = 1 << 30 };
static const char suffix[] = ".spool";

brim_status brim_exec_spool_add(brim_str *lines, json_t *request) {
  char *text = NULL;
  if (!request) return brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_status status = brim_json_dump(request, 0, &text);
  json_decref(request);
  BRIM_TRY(status);
  brim_str_append(lines, text);
  brim_str_append_char(lines, '\n');
  brim_free(text);
  return brim_str_status(lines);
}

static char *spool_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, suffix);
  return brim_fs_join(folder, name);
}

brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines) {
  BRIM_TRY(brim_str_status(lines));
  char *path = spool_path(folder, attempt);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_status status = brim_fs_write(path, lines->data, lines->len);
  brim_free(path);
  return status;
}

void brim_exec_spool_remove(const char *folder, int64_t attempt) {
  char *path = spool_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

//---------------------------------- sending ----------------------------------

static brim_status send_line(brim_lab_link *link, const json_t *request, brim_exp_state *state,
                             bool *finished) {
  json_t *reply = NULL;
  const char *op = json_string_value(json_object_get(request, "op"));
  bool result = op && strcmp(op, "finish") == 0;
  brim_status status = brim_lab_call(link, request, &reply);
  if (!status && result) {
    const char *name = json_string_value(json_object_get(reply, "state"));
    brim_exp_state became;
    if (state && name && brim_exp_state_of(name, &became)) *state = became;
    if (finished) *finished = true;
  }
  json_decref(reply);
  return status;
}

// Whether calling again later can help; everything else is the store's answer.
static bool is_passing(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
}

// Executors report about one attempt; a file that holds other requests is none of theirs.
static brim_status check_report(const json_t *request) {
  static const char *const ops[] = {"start", "beat", "metrics", "log", "checkpoint", "finish"};
  const char *op = json_string_value(json_object_get(request, "op"));
  for (size_t i = 0; op && i < sizeof ops / sizeof *ops; i++) {
    if (strcmp(op, ops[i]) == 0) return BRIM_OK;
  }
  return brim_fail(BRIM_EPARSE, "a line is no report of an executor");
}

static brim_status send_lines(brim_lab_link *link, const brim_str *lines, size_t *at,
                              brim_exp_state *state, bool *finished) {
  while (*at < lines->len) {
    const char *line = lines->data + *at;
    size_t n = strcspn(line, "\n");
    json_t *request = NULL;
    BRIM_TRY(brim_json_parse(line, n, "spool", &request));
    brim_status status = check_report(request);
    if (status) {
      json_decref(request);
      return status;
    }
    status = send_line(link, request, state, finished);
    json_decref(request);
    if (is_passing(status)) return BRIM_EIO;
    if (status == BRIM_ESTATE || status == BRIM_ENOENT) return BRIM_ESTATE;
    if (status) brim_log_warn("lab", "the store refused a report: %s", brim_status_detail());
    *at += n + (line[n] == '\n');
  }
  return BRIM_OK;
}

brim_status brim_exec_spool_send(brim_lab_link *link, const brim_str *lines, size_t *at,
                                 brim_exp_state *state) {
  return send_lines(link, lines, at, state, NULL);
}

//---------------------------------- what executors left ----------------------------------

// It stays, under another name, for a person to look at.
static void set_aside(const char *path) {
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_log_warn("lab", "%s cannot be read and is kept as %s.bad: %s", path, path,
                brim_status_detail());
  if (brim_str_status(&to) || rename(path, to.data) != 0) brim_status_clear();
  brim_str_deinit(&to);
}

// The executor may send and remove its spool meanwhile: a file that is gone was sent.
static brim_status gone_is_fine(brim_status status, const char *path) {
  if (!status || brim_fs_exists(path)) return status;
  brim_status_clear();
  return BRIM_OK;
}

static brim_status replay_file(const char *path, brim_lab_link *link, brim_lab_replayed *out) {
  char *text = NULL;
  size_t size = 0, at = 0;
  bool finished = false;
  brim_status status = brim_fs_read(path, LARGEST_SPOOL, &text, &size);
  if (status == BRIM_ENOMEM || status == BRIM_EIO || status == BRIM_ENOENT) {
    return gone_is_fine(status, path);
  }
  const brim_str lines = {.data = text, .len = size, .cap = size + 1};
  if (!status) status = send_lines(link, &lines, &at, NULL, &finished);
  brim_free(text);
  if (status == BRIM_EIO || status == BRIM_ENOMEM) return status;
  if (status && status != BRIM_ESTATE) {
    set_aside(path);
    return BRIM_OK;
  }
  out->files += status == BRIM_OK;
  out->stale += status == BRIM_ESTATE;
  out->finished += finished;
  brim_status_clear();
  return gone_is_fine(brim_fs_remove(path), path);
}

brim_status brim_lab_spool_replay_folder(const char *folder, brim_lab_link *link,
                                         brim_lab_replayed *out) {
  char **names = NULL;
  size_t count = 0;
  brim_status status = BRIM_OK;
  if (!brim_fs_is_dir(folder)) return BRIM_OK;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; !status && i < count; i++) {
    if (!brim_str_starts(names[i], "attempt-") || !brim_str_ends(names[i], suffix)) continue;
    char *path = brim_fs_join(folder, names[i]);
    status = path ? replay_file(path, link, out)
                  : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", folder);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  return status;
}

brim_status brim_lab_spool_replay(const char *place, brim_lab_link *link, brim_lab_replayed *out) {
  char **names = NULL, *all = brim_fs_join(place, "exp");
  size_t count = 0;
  brim_lab_replayed sum = {0};
  brim_status status = BRIM_OK;
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
  if (brim_fs_is_dir(all)) status = brim_fs_list(all, &names, &count);
  for (size_t i = 0; !status && i < count; i++) {
    char *folder = brim_fs_join(all, names[i]);
    status = folder ? brim_lab_spool_replay_folder(folder, link, &sum)
                    : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
    brim_free(folder);
  }
  brim_fs_list_free(names, count);
  brim_free(all);
  if (out) *out = sum;
  return status;
}
