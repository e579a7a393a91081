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

// Lines that no store takes stay in NAME.bad, for a person to look at.
static brim_status keep_refused(const char *path, const brim_str *lines) {
  if (lines->len == 0) return brim_str_status(lines);
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_status status = brim_str_status(&to);
  if (!status) status = brim_fs_write(to.data, lines->data, lines->len);
  if (!status) brim_log_warn("lab", "%s holds reports that the store does not take", to.data);
  brim_str_deinit(&to);
  return status;
}

brim_status brim_exec_spool_keep(const char *folder, int64_t attempt, const brim_str *refused) {
  char *path = spool_path(folder, attempt);
  brim_status status =
      path ? keep_refused(path, refused) : brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_free(path);
  return status;
}

//---------------------------------- sending ----------------------------------

// Whether calling again later can help; everything else is the store's answer. A request that is too long
// or cannot be read stays so.
bool brim_exec_is_passing(const brim_lab_link *link, brim_status status) {
  if (status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) return true;
  return status && status != BRIM_ELIMIT && status != BRIM_EPARSE && !brim_lab_link_answered(link);
}

static brim_status send_report(brim_lab_link *link, const json_t *request, brim_exec_sent *sent) {
  json_t *reply = NULL;
  brim_lab_report which = brim_lab_report_of(request);
  if (which == BRIM_LAB_REPORT_COUNT) {
    return brim_fail(BRIM_EPARSE, "a line is no report of an executor");
  }
  brim_status status = brim_lab_call(link, request, &reply);
  if (!status) sent->taken++;
  if (!status && which == BRIM_LAB_REPORT_FINISH) {
    const char *name = json_string_value(json_object_get(reply, "state"));
    if (name) (void)brim_exp_state_of(name, &sent->state);
    sent->finished = true;
  }
  json_decref(reply);
  return status;
}

// A line that is no report, or that the store refuses, loses nothing of what stands before and behind it.
brim_status brim_exec_spool_send(brim_lab_link *link, const brim_str *lines, brim_exec_sent *sent) {
  while (sent->at < lines->len) {
    const char *line = lines->data + sent->at;
    const char *end = memchr(line, '\n', lines->len - sent->at);
    size_t n = end ? (size_t)(end - line) : lines->len - sent->at;
    json_t *request = NULL;
    brim_status status = brim_json_parse(line, n, "spool", &request);
    bool torn = status == BRIM_EPARSE;
    if (!status) status = send_report(link, request, sent);
    json_decref(request);
    if (!torn && brim_exec_is_passing(link, status)) return BRIM_EIO;
    if (status == BRIM_ESTATE || status == BRIM_ENOENT) return BRIM_ESTATE;
    if (status) {
      brim_log_warn("lab", "the store refused a report: %s", brim_status_detail());
      brim_str_append_n(&sent->refused, line, n);
      brim_str_append_char(&sent->refused, '\n');
      BRIM_TRY(brim_str_status(&sent->refused));
    }
    sent->at += n + (end != NULL);
  }
  return BRIM_OK;
}

void brim_exec_sent_init(brim_exec_sent *sent) {
  *sent = (brim_exec_sent){0};
  brim_str_init(&sent->refused);
}

void brim_exec_sent_deinit(brim_exec_sent *sent) { brim_str_deinit(&sent->refused); }

//---------------------------------- what executors left ----------------------------------

// One that cannot be read at all stays, under another name.
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
  size_t size = 0;
  brim_status status = brim_fs_read(path, LARGEST_SPOOL, &text, &size);
  if (status == BRIM_ENOMEM || status == BRIM_EIO || status == BRIM_ENOENT) {
    return gone_is_fine(status, path);
  }
  if (status) {
    set_aside(path);
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_str lines = {.data = text, .len = size, .cap = size + 1};
  brim_exec_sent sent;
  brim_exec_sent_init(&sent);
  status = brim_exec_spool_send(link, &lines, &sent);
  bool stale = status == BRIM_ESTATE;
  if (!status || stale) status = keep_refused(path, &sent.refused);
  if (!status) {
    out->files += !stale && sent.taken > 0;
    out->stale += stale;
    out->finished += sent.finished;
    brim_status_clear();
    status = gone_is_fine(brim_fs_remove(path), path);
  }
  brim_exec_sent_deinit(&sent);
  brim_free(text);
  return status;
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
  if (!status) brim_exec_owner_clear(folder);
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
