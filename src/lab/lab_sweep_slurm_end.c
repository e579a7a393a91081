// Elements that have ended: what the store lacks of their experiments.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_text.h"
#include "lab/lab_exec.h"
#include "lab/lab_sweep_slurm.h"

enum { TAIL = 2048 };

typedef struct ending {
  brim_lab_sweep *sweep;
  brim_lab_array *array;
  brim_lab_element *element;
  const brim_slurm_exp *exp;
  brim_store_exp *now;  // as the store has it
  char *folder;
} ending;

static bool is_ours(const ending *e) {
  return (e->now->state == BRIM_EXP_LEASED || e->now->state == BRIM_EXP_RUNNING) &&
         strcmp(e->now->worker, e->sweep->worker) == 0;
}

static brim_status read_again(ending *e) {
  brim_store_exp_free(e->now);
  e->now = NULL;
  return brim_lab_source_get(&e->sweep->source, e->exp->id, &e->now);
}

//---------------------------------- failures ----------------------------------

static brim_failure class_of(brim_slurm_state state) {
  switch (state) {
    case BRIM_SLURM_NO_MEMORY:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_SLURM_TIMEOUT:
    case BRIM_SLURM_PREEMPTED:
    case BRIM_SLURM_CANCELLED:
      return BRIM_FAILURE_INTERRUPTED;
    default:
      return BRIM_FAILURE_INFRASTRUCTURE;
  }
}

static void describe(const ending *e, char *out, size_t size) {
  const char *job = e->array->is.job;
  size_t at = (size_t)(e->element - e->array->elements);
  if (e->element->state == BRIM_SLURM_UNKNOWN) {
    snprintf(out, size, brim_tr("Slurm job %s_%zu is gone from its queue without a result"), job,
             at);
  } else {
    snprintf(out, size, brim_tr("Slurm job %s_%zu ended without a result: %s on %s"), job, at,
             e->element->word, e->element->node[0] ? e->element->node : "?");
  }
}

static void log_path(const ending *e, brim_str *out) {
  brim_str_init(out);
  brim_str_printf(out, "%s/" BRIM_SLURM_FOLDER "/%s_%zu.log", e->sweep->slurm->folder,
                  e->array->is.name, (size_t)(e->element - e->array->elements));
}

// The end of what the element itself printed.
static void read_tail(const ending *e, char out[TAIL]) {
  brim_str path;
  char *text = NULL;
  size_t size = 0;
  out[0] = '\0';
  log_path(e, &path);
  if (!brim_str_status(&path) && brim_fs_exists(path.data) &&
      !brim_fs_read(path.data, 8 << 20, &text, &size)) {
    const char *from = size >= TAIL ? text + size - TAIL + 1 : text;
    brim_text_plain(from, out, TAIL);
  }
  brim_status_clear();
  brim_free(text);
  brim_str_deinit(&path);
}

static brim_status finish(const ending *e, const brim_store_ref *ref) {
  char message[256], tail[TAIL];
  describe(e, message, sizeof message);
  read_tail(e, tail);
  const brim_store_result result = {.outcome = BRIM_ATTEMPT_ERROR,
                                    .failure = class_of(e->element->state),
                                    .exit_code = -1,
                                    .message = message,
                                    .last_lines = tail};
  brim_status status = brim_lab_source_finish(&e->sweep->source, ref, &result);
  if (status != BRIM_ESTATE && status != BRIM_ENOENT) return status;
  brim_status_clear();  // another attempt has taken over
  return BRIM_OK;
}

// Most elements print nothing.
static void remove_empty_log(const ending *e) {
  brim_str path;
  uint64_t size = 1;
  log_path(e, &path);
  if (!brim_str_status(&path) && !brim_fs_size(path.data, &size) && size == 0) {
    (void)brim_fs_remove(path.data);
  }
  brim_status_clear();
  brim_str_deinit(&path);
}

//---------------------------------- cases ----------------------------------

// The attempt is open and its process is gone.
static brim_status end_open(ending *e) {
  brim_lab_replayed replayed = {0};
  BRIM_TRY(brim_lab_spool_replay_folder(e->folder, e->sweep->link, &replayed));
  BRIM_TRY(read_again(e));
  if (!is_ours(e)) return BRIM_OK;
  brim_store_ref ref = {.attempt = e->now->attempt, .fence = e->now->fence};
  snprintf(ref.exp, sizeof ref.exp, "%s", e->exp->id);
  BRIM_TRY(finish(e, &ref));
  return read_again(e);
}

// The element never claimed its experiment: that is an attempt too, or it would be submitted for ever.
static brim_status end_unstarted(ending *e) {
  brim_store_claimed claimed = {0};
  char claim[BRIM_EXP_ID];
  brim_store_random_id(claim);
  const brim_store_request request = {.worker = e->sweep->worker,
                                      .claim_id = claim,
                                      .host = e->element->node,
                                      .exp = e->exp->id,
                                      .free_gpus = 1 << 20,
                                      .free_bytes = -1};
  BRIM_TRY(brim_lab_source_claim(&e->sweep->source, &request, &claimed));
  brim_status status = claimed.exp ? finish(e, &claimed.ref) : BRIM_OK;
  brim_store_exp_free(claimed.exp);
  return status ? status : read_again(e);
}

// scancel by a person holds the experiment until a person resumes it.
static brim_status end_cancelled(ending *e) {
  brim_lab_sweep *s = e->sweep;
  brim_status status = brim_lab_want(s->link, e->exp->id, BRIM_WANT_PAUSE);
  if (status == BRIM_EIO || status == BRIM_ENOMEM) return status;
  brim_status_clear();
  brim_lab_say(s, BRIM_SWEEP_WARN, e->exp->id,
               brim_tr("%.120s was cancelled in Slurm, so brim pauses it; brim sweep resume %.12s "
                       "continues it"),
               e->now->label[0] ? e->now->label : e->exp->id, e->exp->id);
  return read_again(e);
}

static brim_status end_one(ending *e) {
  brim_lab_sweep *s = e->sweep;
  const bool stopping = s->stopping || e->array->is.stop || e->array->told > 0;
  brim_status status = brim_lab_source_get(&s->source, e->exp->id, &e->now);
  if (status == BRIM_ENOENT) {
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  if (is_ours(e)) BRIM_TRY(end_open(e));
  const bool queued = e->now->state == BRIM_EXP_QUEUED && !stopping;
  const bool cancelled = e->element->state == BRIM_SLURM_CANCELLED;
  if (queued && cancelled) {
    BRIM_TRY(end_cancelled(e));
  } else if (queued && e->now->attempt == e->exp->attempt) {
    BRIM_TRY(end_unstarted(e));
  }
  if (e->now->attempt > e->exp->attempt) {
    BRIM_TRY(brim_lab_take_note(s, e->now->attempt, e->folder, e->now));
  }
  return BRIM_OK;
}

static brim_status end_element(brim_lab_sweep *s, brim_lab_array *a, size_t i) {
  ending e = {.sweep = s, .array = a, .element = &a->elements[i], .exp = &a->is.exps[i]};
  brim_str folder;
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(s->folder, e.exp->id, &folder);
  e.folder = folder.data;
  if (!status) status = end_one(&e);
  if (!status) remove_empty_log(&e);
  brim_store_exp_free(e.now);
  brim_str_deinit(&folder);
  if (status) return status;
  a->elements[i].over = a->is.exps[i].over = true;
  a->open--;
  s->slurm->indexed = false;
  s->slurm->gather_ms = 0;
  s->look = true;
  brim_lab_dirty(s, e.exp->id);
  return BRIM_OK;
}

brim_status brim_lab_slurm_end_elements(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  for (size_t k = 0; k < m->count;) {
    brim_lab_array *a = m->arrays[k];
    const size_t before = a->open;
    for (size_t i = 0; i < a->is.count; i++) {
      brim_lab_element *e = &a->elements[i];
      if (e->over || brim_slurm_is_live(e->state)) {
        if (!e->over) brim_lab_dirty(s, a->is.exps[i].id);
        continue;
      }
      BRIM_TRY(end_element(s, a, i));
    }
    if (a->open > 0 || a == m->about) {
      // before one of them is submitted again: the next sweep must not take its new element for this one
      if (a->open != before) BRIM_TRY(brim_slurm_array_write(m->folder, &a->is));
      k++;
    } else {
      brim_lab_slurm_drop(m, a);
    }
  }
  return BRIM_OK;
}
