// The executors of a sweep: started where they fit, ended, adopted after a restart.
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
  WORDS = 48,
  ALL_GPUS = 1 << 20,
  BEAT_MS = 2000,         // at most between beats: they carry the progress that views show
  KILL_AFTER_MS = 15000,  // an executor has this long after its training's own time is over
  ADOPTED_MS = 500        // executors of an earlier sweep are looked for this often
};

//---------------------------------- the list ----------------------------------

void brim_lab_runner_free(brim_lab_runner *r) {
  if (!r) return;
  if (r->child) brim_child_detach(r->child);
  brim_free(r->folder);
  brim_free(r);
}

static brim_status add_runner(brim_lab_sweep *s, const brim_store_ref *ref, brim_lab_runner **out) {
  brim_str folder;
  if (s->count == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 16;
    brim_lab_runner **more = brim_realloc(s->runners, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
    s->runners = more;
    s->cap = cap;
  }
  brim_lab_runner *r = brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(s->folder, ref->exp, &folder);
  r->folder = status ? NULL : brim_str_take(&folder);
  brim_str_deinit(&folder);
  if (!r->folder) {
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  }
  r->ref = *ref;
  r->step = r->steps = -1;
  s->runners[s->count++] = r;
  *out = r;
  return BRIM_OK;
}

static void drop_runner(brim_lab_sweep *s, brim_lab_runner *r) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->runners[i] != r) continue;
    memmove(&s->runners[i], &s->runners[i + 1], (s->count - i - 1) * sizeof *s->runners);
    s->count--;
    break;
  }
  brim_child_close(r->child);
  r->child = NULL;
  brim_lab_runner_free(r);
}

//---------------------------------- starting ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  brim_lab_runner *r = ctx;
  size_t used = strlen(r->tail), size = line->size < 400 ? line->size : 400;
  if (used + size + 2 > sizeof r->tail) {
    size_t keep = used / 2;
    memmove(r->tail, r->tail + used - keep, keep + 1);
    used = keep;
  }
  if (used + size + 2 > sizeof r->tail) used = 0;
  snprintf(r->tail + used, sizeof r->tail - used, "%s%.*s", used ? "\n" : "", (int)size,
           line->text);
  return BRIM_OK;
}

typedef struct word_list {
  const char *words[WORDS];
  char text[WORDS][1200];
  size_t count;
} word_list;

static void add_word(word_list *w, const char *key, const char *value) {
  snprintf(w->text[w->count], sizeof w->text[0], "%s=%s", key, value);
  w->words[w->count] = w->text[w->count];
  w->count++;
}

static void add_number(word_list *w, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  add_word(w, key, text);
}

// Whether a stored config, which has a key per line, says how many threads a training uses.
static bool sets_threads(const char *config) {
  static const char key[] = "threads:";
  for (const char *line = config; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, key, sizeof key - 1) == 0)
      return strtoll(line + sizeof key - 1, NULL, 10) > 0;
  }
  return false;
}

static brim_status start_executor(brim_lab_sweep *s, brim_lab_runner *r, const char *config,
                                  const brim_lab_place_slot *slot) {
  word_list *w = brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  w->words[w->count++] = s->program;
  w->words[w->count++] = "--quiet";
  w->words[w->count++] = "sweep";
  w->words[w->count++] = "execute";
  add_word(w, "place", s->place);
  add_word(w, "folder", r->folder);
  add_word(w, "exp", r->ref.exp);
  add_number(w, "attempt", r->ref.attempt);
  add_number(w, "fence", r->ref.fence);
  add_word(w, "device", slot->cpu ? "cpu" : "cuda");
  add_word(w, "gpus", slot->cpu ? "" : slot->devices);
  if (slot->threads > 0 && !sets_threads(config)) add_number(w, "threads", slot->threads);
  add_number(w, "linger_ms", s->options.store.lease_ms);
  int64_t beat = s->options.store.lease_ms / 4;
  add_number(w, "beat_ms", beat < BEAT_MS ? beat : BEAT_MS);
  add_number(w, "grace_ms", s->options.grace_ms);
  for (const char *const *extra = s->options.words; extra && *extra && w->count < WORDS - 2;) {
    w->words[w->count++] = *extra++;
  }
  if (s->options.stall_ms) add_number(w, "stall_ms", s->options.stall_ms);
  char mps[BRIM_LAB_PLACE_PATH + 32];
  snprintf(mps, sizeof mps, "CUDA_MPS_PIPE_DIRECTORY=%s", slot->mps_pipe);
  const char *env[] = {mps, NULL};
  const brim_child_options how = {.argv = w->words,
                                  .env_change = slot->mps_pipe[0] ? env : NULL,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_PIPE,
                                  .pass_fds = slot->fds,
                                  .pass_count = slot->fd_count,
                                  .on_line = on_line,
                                  .ctx = r};
  brim_status status = brim_child_start(&how, &r->child);
  brim_free(w);
  if (!status) r->pid = brim_child_pid(r->child);
  return status;
}

static void new_claim(char out[33]) {
  uint8_t bytes[16] = {0};
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
    int64_t now[2] = {brim_clock_now().ns, getpid()};
    memcpy(bytes, now, sizeof bytes);
  }
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static brim_status finish_infra(brim_lab_sweep *s, const brim_store_ref *ref, const char *message,
                                const char *tail) {
  const brim_store_result result = {.outcome = BRIM_ATTEMPT_ERROR,
                                    .failure = BRIM_FAILURE_INFRASTRUCTURE,
                                    .exit_code = -1,
                                    .message = message,
                                    .last_lines = tail};
  brim_status status = brim_store_finish(s->store, ref, &result, NULL);
  if (status != BRIM_ESTATE && status != BRIM_ENOENT) return status;
  brim_status_clear();  // another attempt has taken over
  return BRIM_OK;
}

// The attempt is claimed: its executor, or the reason why there is none.
static brim_status run_attempt(brim_lab_sweep *s, const brim_store_claimed *claimed,
                               const brim_lab_place_slot *slot) {
  brim_lab_runner *r = NULL;
  brim_lab_exec_owner owner;
  BRIM_TRY(add_runner(s, &claimed->ref, &r));
  brim_status status = brim_fs_mkdirs(r->folder);
  if (!status && brim_lab_exec_find(r->folder, &owner)) status = brim_lab_exec_kill(r->folder);
  if (!status) status = start_executor(s, r, claimed->exp->config, slot);
  if (!status) {
    brim_lab_say(s, BRIM_SWEEP_INFO, r->ref.exp, brim_tr("%.200s starts on %.80s"),
                 claimed->exp->label, slot->cpu ? "cpu" : slot->devices);
    return brim_lab_place_started(s->placing, r->ref.exp, r->pid);
  }
  char message[600];
  snprintf(message, sizeof message, brim_tr("cannot start the experiment: %.500s"),
           brim_status_detail());
  brim_lab_say(s, BRIM_SWEEP_WARN, r->ref.exp, "%s", message);
  status = finish_infra(s, &r->ref, message, "");
  drop_runner(s, r);
  brim_lab_place_ended(s->placing, brim_lab_now_ms(), claimed->ref.exp, BRIM_LAB_PLACE_UNUSED,
                       BRIM_FAILURE_NONE);
  return status;
}

static brim_status claim_and_run(brim_lab_sweep *s, const char *exp,
                                 const brim_lab_place_slot *slot) {
  char claim[33];
  new_claim(claim);
  const brim_store_request request = {.worker = s->worker,
                                      .claim_id = claim,
                                      .host = s->host,
                                      .devices = slot->devices,
                                      .exp = exp,
                                      .free_gpus = ALL_GPUS,
                                      .free_bytes = -1};
  brim_store_claimed claimed = {0};
  brim_status status = brim_store_claim(s->store, &request, &claimed);
  if (status || !claimed.exp) {
    brim_lab_place_ended(s->placing, brim_lab_now_ms(), exp, BRIM_LAB_PLACE_UNUSED,
                         BRIM_FAILURE_NONE);
    return status;
  }
  brim_lab_dirty(s, exp);
  status = run_attempt(s, &claimed, slot);
  brim_store_exp_free(claimed.exp);
  return status;
}

//---------------------------------- the queue ----------------------------------

typedef struct queue {
  brim_lab_place_want wants[BRIM_LAB_WINDOW];
  char ids[BRIM_LAB_WINDOW][BRIM_EXP_ID];
  size_t count, listed;
  bool later;  // some wait until a time
  int64_t now;
} queue;

// Experiments that differ in their seed alone take the same time.
static uint64_t kind_of(const char *label) {
  uint64_t hash = 14695981039346656037u;
  bool skip = false;
  for (const char *at = label; *at; at++) {
    if (at == label || at[-1] == ' ') skip = brim_str_starts(at, "seed=");
    if (!skip) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  }
  return hash ? hash : 1;
}

static brim_status on_queued(void *ctx, const brim_store_exp *exp) {
  queue *q = ctx;
  q->listed++;
  if (exp->not_before > q->now) {
    q->later = true;
    return BRIM_OK;
  }
  snprintf(q->ids[q->count], sizeof q->ids[0], "%s", exp->id);
  q->wants[q->count] = (brim_lab_place_want){.exp = q->ids[q->count],
                                             .gpus = exp->gpus,
                                             .need_bytes = (double)exp->need_bytes,
                                             .kind = kind_of(exp->label)};
  q->count++;
  return BRIM_OK;
}

static brim_status place_window(brim_lab_sweep *s, queue *q) {
  for (;;) {
    size_t chosen = 0;
    brim_lab_place_slot slot;
    BRIM_TRY(
        brim_lab_place_choose(s->placing, brim_lab_now_ms(), q->wants, q->count, &chosen, &slot));
    if (chosen >= q->count) return BRIM_OK;
    BRIM_TRY(claim_and_run(s, q->wants[chosen].exp, &slot));
    memmove(&q->wants[chosen], &q->wants[chosen + 1], (q->count - chosen - 1) * sizeof q->wants[0]);
    q->count--;
  }
}

static bool none_ever(brim_lab_sweep *s, const queue *q) {
  for (size_t i = 0; i < q->count; i++) {
    if (!brim_lab_place_never(s->placing, &q->wants[i], NULL, 0)) return false;
  }
  return true;
}

// Windows of the queue until one has an experiment that could run here.
static brim_status place_windows(brim_lab_sweep *s, queue *q, bool *left) {
  brim_store_filter filter = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = BRIM_LAB_WINDOW};
  *left = false;
  for (;;) {
    q->count = q->listed = 0;
    q->later = false;
    size_t before = s->count;
    BRIM_TRY(brim_store_list(s->store, &filter, on_queued, q));
    if (q->listed == 0) return BRIM_OK;
    BRIM_TRY(place_window(s, q));
    *left = *left || q->later || s->count > before;
    if (!none_ever(s, q)) {
      *left = true;
      return BRIM_OK;
    }
    filter.offset += (int64_t)q->listed - (int64_t)(s->count - before);
  }
}

brim_status brim_lab_start_queued(brim_lab_sweep *s, bool *left) {
  queue *q = brim_calloc(1, sizeof *q);
  if (!q) return brim_fail(BRIM_ENOMEM, "out of memory while placing experiments");
  brim_status status = brim_store_now(s->store, &q->now);
  if (!status) status = place_windows(s, q, left);
  if (status == BRIM_EIO) *left = true;
  brim_free(q);
  return status;
}

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
  if (last->outcome == BRIM_ATTEMPT_OK) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is done"), label);
  } else if (exp->state == BRIM_EXP_FAILED) {
    brim_lab_say(s, BRIM_SWEEP_ERROR, exp->id, brim_tr("%.120s failed (%s): %.200s"), label,
                 brim_failure_name(last->failure), last->message);
  } else if (exp->state == BRIM_EXP_CANCELLED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is cancelled"), label);
  } else if (exp->state == BRIM_EXP_PAUSED) {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s is paused"), label);
  } else if (last->outcome == BRIM_ATTEMPT_ERROR) {
    brim_lab_say(s, BRIM_SWEEP_WARN, exp->id, brim_tr("%.120s failed (%s) and runs again: %.200s"),
                 label, brim_failure_name(last->failure), last->message);
  } else {
    brim_lab_say(s, BRIM_SWEEP_INFO, exp->id, brim_tr("%.200s stopped and is queued again"), label);
  }
}

static void check_same(brim_lab_sweep *s, const brim_lab_runner *r, const last_attempt *last) {
  if (last->outcome == BRIM_ATTEMPT_OK) brim_lab_same_done(&s->same);
  if (last->outcome != BRIM_ATTEMPT_ERROR || s->options.keep_going || s->stopping) return;
  if (!brim_lab_same_add(&s->same, r->ref.exp, r->folder, last->failure, last->message)) return;
  s->end = BRIM_LAB_END_SAME_FAILURE;
  snprintf(s->view.notice, sizeof s->view.notice,
           brim_tr("the first %d experiments all failed the same way (%s): %.300s"), BRIM_LAB_SAME,
           brim_failure_name(last->failure), last->message);
  brim_lab_say(s, BRIM_SWEEP_ERROR, NULL, "%s", s->view.notice);
  brim_lab_sweep_stop(s);
}

// How the attempt ended, for people, placement and the rule about first failures.
static brim_status take_note(brim_lab_sweep *s, const brim_lab_runner *r,
                             const brim_store_exp *exp) {
  last_attempt last = {.n = r->ref.attempt, .outcome = BRIM_ATTEMPT_EXPIRED};
  BRIM_TRY(brim_store_attempts(s->store, r->ref.exp, on_attempt, &last));
  brim_lab_place_end end = last.outcome == BRIM_ATTEMPT_OK      ? BRIM_LAB_PLACE_OK
                           : last.outcome == BRIM_ATTEMPT_ERROR ? BRIM_LAB_PLACE_FAILED
                                                                : BRIM_LAB_PLACE_STOPPED;
  brim_lab_place_ended(s->placing, brim_lab_now_ms(), r->ref.exp, end, last.failure);
  if (exp->attempt == r->ref.attempt) say_end(s, exp, &last);
  if (exp->state == BRIM_EXP_DONE && exp->ended > exp->started && exp->started > 0) {
    s->ended++;
    s->ended_s += (double)(exp->ended - exp->started) / 1e3;
  }
  check_same(s, r, &last);
  return BRIM_OK;
}

// The executor has ended: sees to it that its attempt has a result. Called again after BRIM_EIO.
static brim_status settle(brim_lab_sweep *s, brim_lab_runner *r) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(s->store, r->ref.exp, &exp));
  brim_status status = BRIM_OK;
  if (is_open(exp, &r->ref)) {
    char message[128];
    brim_lab_replayed replayed = {0};
    status = brim_lab_exec_kill(r->folder);  // its training, where that outlived it
    if (!status) status = brim_lab_spool_replay_folder(r->folder, s->link, &replayed);
    brim_store_exp_free(exp);
    exp = NULL;
    if (!status) status = brim_store_get(s->store, r->ref.exp, &exp);
    if (!status && is_open(exp, &r->ref)) {
      describe_end(r, message, sizeof message);
      status = finish_infra(s, &r->ref, message, r->tail);
      brim_store_exp_free(exp);
      exp = NULL;
      if (!status) status = brim_store_get(s->store, r->ref.exp, &exp);
    }
  }
  if (!status) status = take_note(s, r, exp);
  brim_store_exp_free(exp);
  return status;
}

brim_status brim_lab_reap_runners(brim_lab_sweep *s) {
  int64_t now = brim_lab_now_ms();
  for (size_t i = 0; i < s->count;) {
    brim_lab_runner *r = s->runners[i];
    BRIM_TRY(poll_runner(s, r, now));
    if (!r->gone) {
      i++;
      continue;
    }
    BRIM_TRY(settle(s, r));
    brim_lab_dirty(s, r->ref.exp);
    s->look = true;
    drop_runner(s, r);
  }
  return BRIM_OK;
}

// Its lease ended: it was stopped or it hangs. The next attempt must not meet it.
brim_status brim_lab_end_stale(brim_lab_sweep *s) {
  for (size_t i = 0; i < s->count; i++) {
    brim_lab_runner *r = s->runners[i];
    brim_store_exp *exp = NULL;
    if (r->gone || r->killed) continue;
    BRIM_TRY(brim_store_get(s->store, r->ref.exp, &exp));
    bool stale = !is_open(exp, &r->ref);
    brim_store_exp_free(exp);
    if (!stale) continue;
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
  BRIM_TRY(brim_store_attempts(s->store, a->ref.exp, on_devices, a));
  BRIM_TRY(add_runner(s, &a->ref, &r));
  if (brim_lab_exec_find(r->folder, &owner) && owner.attempt == a->ref.attempt &&
      owner.fence == a->ref.fence) {
    const brim_lab_place_want want = {.exp = r->ref.exp, .gpus = a->gpus};
    r->pid = owner.pid;
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
  brim_status status = brim_store_list(s->store, &filter, on_open, &list);
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
  return s->count ? brim_store_list(s->store, &filter, on_running, s) : BRIM_OK;
}
