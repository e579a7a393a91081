// A profile's session: one setting of a subject is measured and traced, its findings are priced, and the files
// are written. It stands here and not in the profile room since it needs measure's trials and tune's prices.

#include "tune/tune_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "profile/profile_rows.h"
#include "profile/profile_trace.h"

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

brim_status brim_profile_check_file(const char *path, bool folder) {
  char *made = folder ? brim_strdup(path) : brim_fs_dirname(path);
  char *probe = folder ? brim_fs_join(path, "events") : brim_strdup(path);
  brim_status status =
      made && probe ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  struct stat st;
  if (!status && strcmp(made, ".") != 0) status = brim_fs_mkdirs(made);
  if (!status && !folder && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s is not a regular file; name another", path);
  }
  if (!status) status = brim_fs_check_target(probe);
  brim_free(made);
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
  how.sampler = sampler = brim_tune_sampler("profile", s->how.monitor, how.memory);
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
