// The executors of a sweep: how they end, and those that an earlier sweep left.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "lab/lab_exec.h"
#include "lab/lab_sweep_int.h"

enum {
  KILL_AFTER_MS = 15000,  // an executor has this long after its training's own time is over
  ADOPTED_MS = 500        // executors of an earlier sweep are looked for this often
};

//---------------------------------- ending ----------------------------------

void brim_lab_ask_runner(brim_lab_sweep *s, brim_lab_runner *r) {
  brim_lab_exec_owner owner;
  if (r->asked) return;
  r->asked = true;
  r->asked_ms = brim_lab_now_ms();
  if (r->child) {
    (void)brim_child_signal(r->child, SIGTERM);
  } else if (brim_lab_exec_find(r->folder, &owner) && owner.attempt == r->ref.attempt) {
    (void)kill((pid_t)owner.pid, SIGTERM);
  }
  brim_status_clear();
  (void)s;
}

void brim_lab_sweep_stop(brim_lab_sweep *s) {
  if (s->stopping) return;
  s->stopping = true;
  if (s->end == BRIM_LAB_END_NONE) s->end = BRIM_LAB_END_STOPPED;
  for (size_t i = 0; i < s->count; i++) brim_lab_ask_runner(s, s->runners[i]);
}

// Whether the executor's process has ended.
static brim_status poll_runner(brim_lab_sweep *s, brim_lab_runner *r, int64_t now) {
  brim_lab_exec_owner owner;
  if (r->gone) return BRIM_OK;
  if (r->asked && now - r->asked_ms > s->options.grace_ms + KILL_AFTER_MS && !r->killed) {
    r->killed = true;
    if (brim_lab_exec_kill(r->folder)) brim_status_clear();
    if (r->child) (void)brim_child_signal(r->child, SIGKILL);
  }
  if (r->child) {
    brim_status status = brim_child_poll(r->child, &r->gone);
    if (status == BRIM_ECHILD) r->gone = true;
    if (status && status != BRIM_ENOMEM) brim_status_clear();
    return status == BRIM_ENOMEM ? status : BRIM_OK;
  }
  if (now < r->next_look_ms) return BRIM_OK;
  r->next_look_ms = now + ADOPTED_MS;
  r->gone = !(brim_lab_exec_find(r->folder, &owner) && owner.attempt == r->ref.attempt);
  return BRIM_OK;
}

static bool is_open(const brim_store_exp *exp, const brim_store_ref *ref) {
  return exp->fence == ref->fence && exp->attempt == ref->attempt &&
         (exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING);
}

static void describe_end(const brim_lab_runner *r, char *out, size_t size) {
  const brim_child_result *result = r->child ? brim_child_get_result(r->child) : NULL;
  if (!result || result->lost) {
    snprintf(out, size, "%s", brim_tr("the executor ended without a result"));
  } else if (result->signal) {
    snprintf(out, size, brim_tr("the executor was ended by signal %d"), result->signal);
  } else {
    snprintf(out, size, brim_tr("the executor ended without a result, exit code %d"),
             result->exit_code);
  }
}

typedef struct last_attempt {
  int64_t n;
  brim_attempt_outcome outcome;
  brim_failure failure;
  char message[512];
} last_attempt;

static brim_status on_attempt(void *ctx, const brim_store_attempt *a) {
  last_attempt *last = ctx;
  if (a->n != last->n) return BRIM_OK;
  last->outcome = a->outcome;
  last->failure = brim_failure_of(a->failure);
  snprintf(last->message, sizeof last->message, "%s", a->message);
  brim_utf8_trim(last->message);
  return BRIM_OK;
}

static void say_end(brim_lab_sweep *s, const brim_store_exp *exp, const last_attempt *last) {
  const char *label = exp->label[0] ? exp->label : exp->id;
  char why[220];
  brim_lab_shorten(last->message, why, sizeof why);
  if (last->outcome == BRIM_ATTEMPT_OK) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is done"), label);
  } else if (exp->state == BRIM_EXP_FAILED) {
    brim_lab_say(s, BRIM_SWEEP_ERROR, exp->id, brim_tr("%.120s failed (%s): %s"), label,
                 brim_failure_name(last->failure), why);
  } else if (exp->state == BRIM_EXP_CANCELLED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is cancelled"), label);
  } else if (exp->state == BRIM_EXP_PAUSED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is paused"), label);
  } else if (last->outcome == BRIM_ATTEMPT_ERROR) {
    brim_lab_say(s, BRIM_SWEEP_WARN, exp->id, brim_tr("%.120s failed (%s) and runs again: %s"),
                 label, brim_failure_name(last->failure), why);
  } else {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s stopped and is queued again"), label);
  }
}

static void check_same(brim_lab_sweep *s, const char *exp, const char *folder,
                       const last_attempt *last) {
  if (last->outcome == BRIM_ATTEMPT_OK) brim_lab_same_done(&s->same);
  if (last->outcome != BRIM_ATTEMPT_ERROR || s->options.keep_going || s->stopping) return;
  if (!brim_lab_same_add(&s->same, exp, folder, last->failure, last->message)) return;
  char why[300];
  brim_lab_shorten(last->message, why, sizeof why);
  s->end = BRIM_LAB_END_SAME_FAILURE;
  snprintf(s->view.notice, sizeof s->view.notice,
           brim_tr("the first %d experiments all failed the same way (%s): %s"), BRIM_LAB_SAME,
           brim_failure_name(last->failure), why);
  brim_lab_say(s, BRIM_SWEEP_ERROR, NULL, "%s", s->view.notice);
  brim_lab_sweep_stop(s);
}

brim_status brim_lab_take_note(brim_lab_sweep *s, int64_t attempt, const char *folder,
                               const brim_store_exp *exp) {
  last_attempt last = {.n = attempt, .outcome = BRIM_ATTEMPT_EXPIRED};
  BRIM_TRY(brim_lab_source_attempts(&s->source, exp->id, on_attempt, &last));
  brim_lab_place_end end = last.outcome == BRIM_ATTEMPT_OK      ? BRIM_LAB_PLACE_OK
                           : last.outcome == BRIM_ATTEMPT_ERROR ? BRIM_LAB_PLACE_FAILED
                                                                : BRIM_LAB_PLACE_STOPPED;
  brim_lab_place_ended(s->placing, brim_lab_now_ms(), exp->id, end, last.failure);
  if (exp->attempt == attempt) say_end(s, exp, &last);
  if (exp->state == BRIM_EXP_DONE && exp->ran_ms > 0) {
    s->ended++;
    s->ended_s += (double)exp->ran_ms / 1e3;
  }
  check_same(s, exp->id, folder, &last);
  return BRIM_OK;
}

// The executor has ended: sees to it that its attempt has a result. Called again after BRIM_EIO.
static brim_status settle(brim_lab_sweep *s, brim_lab_runner *r) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_lab_source_get(&s->source, r->ref.exp, &exp));
  brim_status status = BRIM_OK;
  if (is_open(exp, &r->ref)) {
    char message[128];
    brim_lab_replayed replayed = {0};
    status = brim_lab_exec_kill(r->folder);  // its training, where that outlived it
    if (!status) status = brim_lab_spool_replay_folder(r->folder, s->link, &replayed);
    brim_store_exp_free(exp);
    exp = NULL;
    if (!status) status = brim_lab_source_get(&s->source, r->ref.exp, &exp);
    if (!status && is_open(exp, &r->ref)) {
      describe_end(r, message, sizeof message);
      status = brim_lab_finish_infra(s, &r->ref, message, r->tail);
      brim_store_exp_free(exp);
      exp = NULL;
      if (!status) status = brim_lab_source_get(&s->source, r->ref.exp, &exp);
    }
  }
  if (!status) status = brim_lab_take_note(s, r->ref.attempt, r->folder, exp);
  brim_store_exp_free(exp);
  return status;
}

brim_status brim_lab_reap_runners(brim_lab_sweep *s) {
  int64_t now = brim_lab_now_ms();
  // All of them, also while the store refuses the result of one.
  for (size_t i = 0; i < s->count; i++) BRIM_TRY(poll_runner(s, s->runners[i], now));
  for (size_t i = 0; i < s->count;) {
    brim_lab_runner *r = s->runners[i];
    if (!r->gone) {
      i++;
      continue;
    }
    BRIM_TRY(settle(s, r));
    brim_lab_late_look(s->late, r->folder);
    brim_lab_dirty(s, r->ref.exp);
    s->look = true;
    brim_lab_runner_drop(s, r);
  }
  return BRIM_OK;
}

// Its lease ended: it was stopped or it hangs. The next attempt must not meet it.
brim_status brim_lab_end_stale(brim_lab_sweep *s) {
  for (size_t i = 0; i < s->count; i++) {
    brim_lab_runner *r = s->runners[i];
    brim_store_exp *exp = NULL;
    if (r->gone || r->killed) continue;
    BRIM_TRY(brim_lab_source_get(&s->source, r->ref.exp, &exp));
    bool stale = !is_open(exp, &r->ref), seen = r->stale;
    brim_store_exp_free(exp);
    r->stale = stale;
    // with a server it may be about to end: it has until the next look
    if (!stale || (!s->store && !seen)) continue;
    r->killed = true;
    if (brim_lab_exec_kill(r->folder)) brim_status_clear();
    if (r->child) (void)brim_child_signal(r->child, SIGKILL);
    brim_status_clear();
  }
  return BRIM_OK;
}

//---------------------------------- adopting ----------------------------------

typedef struct open_attempt {
  brim_store_ref ref;
  int64_t gpus;
  char devices[BRIM_LAB_PLACE_DEVICES];
} open_attempt;

typedef struct open_list {
  const char *worker;
  open_attempt *items;
  size_t count, cap;
} open_list;

static brim_status on_open(void *ctx, const brim_store_exp *exp) {
  open_list *list = ctx;
  if (strcmp(exp->worker, list->worker) != 0) return BRIM_OK;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 16;
    open_attempt *more = brim_realloc(list->items, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while adopting experiments");
    list->items = more;
    list->cap = cap;
  }
  open_attempt *a = &list->items[list->count++];
  *a = (open_attempt){.ref = {.attempt = exp->attempt, .fence = exp->fence}, .gpus = exp->gpus};
  snprintf(a->ref.exp, sizeof a->ref.exp, "%s", exp->id);
  return BRIM_OK;
}

static brim_status on_devices(void *ctx, const brim_store_attempt *attempt) {
  open_attempt *a = ctx;
  if (attempt->n == a->ref.attempt) {
    snprintf(a->devices, sizeof a->devices, "%s", attempt->devices);
  }
  return BRIM_OK;
}

static brim_status adopt_one(brim_lab_sweep *s, open_attempt *a, size_t *adopted) {
  brim_lab_runner *r = NULL;
  brim_lab_exec_owner owner = {0};
  BRIM_TRY(brim_lab_source_attempts(&s->source, a->ref.exp, on_devices, a));
  BRIM_TRY(brim_lab_runner_add(s, &a->ref, &r));
  if (brim_lab_exec_find(r->folder, &owner) && owner.attempt == a->ref.attempt &&
      owner.fence == a->ref.fence) {
    const brim_lab_place_want want = {.exp = r->ref.exp, .gpus = a->gpus};
    r->pid = owner.pid;
    r->devices = brim_strdup(a->devices);
    ++*adopted;
    brim_status status =
        brim_lab_place_adopt(s->placing, brim_lab_now_ms(), &want, a->devices, owner.pid);
    if (status != BRIM_ENOENT && status != BRIM_EINVAL) return status;
    brim_status_clear();  // this sweep may not use its device: it stops and runs elsewhere
    brim_lab_ask_runner(s, r);
    return BRIM_OK;
  }
  r->gone = true;  // the next turn ends it
  return BRIM_OK;
}

brim_status brim_lab_adopt(brim_lab_sweep *s) {
  open_list list = {.worker = s->worker};
  const brim_store_filter filter = {.states = 1u << BRIM_EXP_LEASED | 1u << BRIM_EXP_RUNNING};
  size_t adopted = 0;
  brim_status status = brim_lab_source_list(&s->source, &filter, on_open, &list);
  for (size_t i = 0; i < list.count && !status; i++) {
    status = adopt_one(s, &list.items[i], &adopted);
  }
  brim_free(list.items);
  if (adopted > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("%zu experiments of the last sweep still run; brim keeps them"), adopted);
  }
  return status;
}

//---------------------------------- progress ----------------------------------

static brim_status on_running(void *ctx, const brim_store_exp *exp) {
  brim_lab_sweep *s = ctx;
  brim_lab_runner *r = brim_lab_runner_find(s, exp->id);
  int64_t now = brim_lab_now_ms();
  if (!r || exp->step < 0) return BRIM_OK;
  brim_lab_place_progress(s->placing, now, exp->id, exp->step);
  if (exp->step > r->step && r->step >= 0 && now > r->step_ms) {
    double rate = (double)(exp->step - r->step) * 1e3 / (double)(now - r->step_ms);
    r->steps_per_s = r->steps_per_s > 0 ? 0.7 * r->steps_per_s + 0.3 * rate : rate;
  }
  if (exp->step != r->step) {
    r->step = exp->step;
    r->step_ms = now;
  }
  r->steps = exp->steps;
  return BRIM_OK;
}

brim_status brim_lab_read_progress(brim_lab_sweep *s) {
  const brim_store_filter filter = {.states = 1u << BRIM_EXP_RUNNING};
  return s->count ? brim_lab_source_list(&s->source, &filter, on_running, s) : BRIM_OK;
}
