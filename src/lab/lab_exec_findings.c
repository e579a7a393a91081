// What slows a training down, as it publishes it while it runs (record_job.h).
#include <string.h>

#include "lab/lab_exec_int.h"
#include "record/record_job.h"

enum { LOOK_MS = 3000 };

typedef struct looking {
  int64_t pid;
  json_t *found;
} looking;

static brim_status on_job(void *ctx, const brim_job *job) {
  looking *l = ctx;
  json_t *json = NULL;
  if (job->pid != l->pid || l->found) return BRIM_OK;
  BRIM_TRY(brim_job_to_json(job, &json));
  l->found = json_incref(json_object_get(json, "findings"));
  json_decref(json);
  return BRIM_OK;
}

// One that cannot be read is looked for again. Nothing is news where nothing was found before.
void brim_exec_findings_look(brim_exec_findings *f, int64_t pid, int64_t now_ns) {
  looking l = {.pid = pid};
  char *text = NULL;
  if (f->looked_ns && now_ns - f->looked_ns < LOOK_MS * 1000000LL) return;
  f->looked_ns = now_ns;
  brim_status status = brim_jobs_each(brim_clock_wall_s(), on_job, &l, NULL);
  bool empty = json_array_size(l.found) == 0 && !f->text;
  if (!status && l.found && !empty) status = brim_json_dump(l.found, 0, &text);
  json_decref(l.found);
  if (status) brim_status_clear();
  if (!text || (f->text && strcmp(f->text, text) == 0)) {
    brim_free(text);
    return;
  }
  brim_free(f->text);
  f->text = text;
  f->sent = false;
}

void brim_exec_findings_deinit(brim_exec_findings *f) { brim_free(f->text); }
