// Findings that a run publishes while it runs: what its workload reports, and waiting for data.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "run/run_loop.h"

static const double WAITS = 0.1;  // of a step: what is reported as waiting for data

// The one of this code, or a new one; the oldest goes where there is no room.
static brim_finding *slot_of(brim_job *job, const char *code) {
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) == 0) return &job->findings[i];
  }
  if (job->finding_count == BRIM_JOB_FINDINGS) {
    memmove(job->findings, job->findings + 1, (BRIM_JOB_FINDINGS - 1) * sizeof *job->findings);
    job->finding_count--;
  }
  return &job->findings[job->finding_count++];
}

void brim_run_publish_trouble(brim_job *job, const char *code, const char *text) {
  if (!job) return;
  brim_finding *f = slot_of(job, code);
  memset(f, 0, sizeof *f);
  f->cost_ms = f->predicted_ms = (double)NAN;
  snprintf(f->code, sizeof f->code, "%.31s", code);
  snprintf(f->text, sizeof f->text, "%s", text);
  brim_utf8_trim(f->text);
}

void brim_run_publish_waits(brim_run_loop *l, const brim_run_steps *s) {
  static const char code[] = "io_wait";
  brim_job *job = &l->job;
  double step_s = s->data_s + s->compute_s;
  if (!l->publisher || !s->loads || !(step_s > 0)) return;
  if (s->data_s > WAITS * step_s) {
    char text[256] = "";
    brim_words_add(text, sizeof text, BRIM_N_("waiting for data takes %.0f %% of a step"),
                   brim_shown(100 * s->data_s / step_s));
    brim_run_publish_trouble(job, code, text);
    brim_finding *f = slot_of(job, code);
    f->cost_ms = s->data_s * 1e3;
    brim_words_put(f->remedy, sizeof f->remedy, BRIM_N_("run brim bench to find its remedy"));
    return;
  }
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) != 0) continue;
    size_t after = job->finding_count - i - 1;
    memmove(job->findings + i, job->findings + i + 1, after * sizeof *job->findings);
    job->finding_count--;
    return;
  }
}
