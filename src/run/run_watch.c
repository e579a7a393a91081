// What the workload finds wrong while it trains, as a run counts, reports and logs it.
#include <string.h>

#include "base/base_words.h"
#include "run/run_int.h"

static brim_status log_trouble(brim_run_watch *w, const brim_work_trouble *t,
                               const brim_work_moment *at) {
  const char *name = w->work->table->diagnosis->rows[t->kind].name;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "kind", json_string(name));
  if (!s) s = brim_json_put(f, "count", json_integer(t->count));
  for (size_t i = 0; !s && i < t->field_count; i++) {
    s = brim_json_put(f, t->fields[i].key, brim_json_number(t->fields[i].value));
  }
  char advice[sizeof t->advice];
  brim_words_text(t->advice, advice, sizeof advice);
  if (!s && advice[0]) s = brim_json_put(f, "advice", json_string(advice));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(at->lr));
  if (!s) return brim_run_log_event(w->log, "anomaly", at->epoch, at->step, f);
  json_decref(f);
  return s;
}

static brim_status meet(brim_run_watch *w, const brim_work_trouble *t, const brim_work_moment *at,
                        bool unlogged) {
  brim_run_result *r = w->result;
  if (!r->first_anomaly[t->kind]) r->first_anomaly[t->kind] = at->step;
  r->anomalies[t->kind] += t->count;
  int64_t times = ++w->times[t->kind];
  // the 1st, 2nd, 4th, 8th, ... time
  bool said = (times & (times - 1)) == 0 || w->work->table->diagnosis->rows[t->kind].always;
  char text[sizeof t->text];
  brim_words_text(t->text, text, sizeof text);
  if (!t->silent && said) brim_log_text(BRIM_LOG_WARN, "run", text);
  if (!t->silent)
    brim_run_publish_trouble(w->job, w->work->table->diagnosis->rows[t->kind].name, t->text);
  return unlogged ? BRIM_OK : log_trouble(w, t, at);
}

brim_status brim_run_watch_take(brim_run_watch *w, const brim_work_moment *at, bool unlogged) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  brim_work_trouble troubles[BRIM_WORK_MAX_TROUBLES];
  if (!d) return BRIM_OK;
  size_t n = d->take(w->work->state, at, troubles);
  for (size_t i = 0; i < n; i++) BRIM_TRY(meet(w, &troubles[i], at, unlogged));
  return BRIM_OK;
}

brim_status brim_run_watch_put(const brim_run_watch *w, json_t *metadata) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  return d && d->put ? d->put(w->work->state, w->times, metadata) : BRIM_OK;
}

void brim_run_watch_get(brim_run_watch *w, const json_t *metadata, int64_t skipped) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  if (d && d->get) d->get(w->work->state, metadata, skipped, w->times);
}
