// A sweep in Slurm: submits arrays, looks at the queue, completes ended tasks and stops them. A task is
// one element of an array and runs one experiment.

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_text.h"
#include "lab/sweep/lab_sweep_int.h"

//-------------------------------------------- arrays --------------------------------------------
// The arrays of a sweep, and the task of each experiment.

enum { TELL_MS = 60000 };  // between messages about trouble with Slurm

static brim_status slurm_no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the arrays of a sweep");
}

// Adds an array and takes over its memory.
static brim_status slurm_add(brim_lab_slurm *m, brim_slurm_array *array, brim_lab_array **out) {
  brim_lab_array *a = brim_calloc(1, sizeof *a);
  if (a) a->tasks = brim_calloc(array->count, sizeof *a->tasks);
  if (m->count == m->cap && a && a->tasks) {
    size_t cap = m->cap ? 2 * m->cap : 16;
    brim_lab_array **more = brim_realloc(m->arrays, cap * sizeof *more);
    if (more) m->arrays = more;
    if (more) m->cap = cap;
  }
  if (!a || !a->tasks || m->count == m->cap) {
    if (a) brim_free(a->tasks);
    brim_free(a);
    return slurm_no_memory();
  }
  a->is = *array;
  *array = (brim_slurm_array){0};
  a->open = a->is.count;
  a->made_ms = brim_clock_ms();
  for (size_t i = 0; i < a->is.count; i++) {
    a->tasks[i].state = BRIM_SLURM_WAITING;
    a->tasks[i].over = a->is.exps[i].over;
    a->open -= a->is.exps[i].over;
  }
  m->arrays[m->count++] = a;
  m->indexed = false;
  *out = a;
  return BRIM_OK;
}

static void slurm_free(brim_lab_array *a) {
  brim_slurm_array_deinit(&a->is);
  brim_free(a->tasks);
  brim_free(a);
}

// Drops an array and removes its files.
static void slurm_drop(brim_lab_slurm *m, brim_lab_array *a) {
  for (size_t i = 0; i < m->count; i++) {
    if (m->arrays[i] != a) continue;
    memmove(&m->arrays[i], &m->arrays[i + 1], (m->count - i - 1) * sizeof *m->arrays);
    m->count--;
    break;
  }
  m->indexed = false;
  brim_slurm_array_remove(m->folder, a->is.name);
  slurm_free(a);
}

// Maps experiments to their tasks, for slurm_find.
static brim_status slurm_index(brim_lab_slurm *m) {
  size_t total = 0;
  if (m->indexed) return BRIM_OK;
  for (size_t k = 0; k < m->count; k++) total += m->arrays[k]->open;
  brim_lab_ids_deinit(&m->live);
  m->live = (brim_lab_ids){0};
  BRIM_TRY(brim_lab_ids_init(&m->live, total + 1));
  for (size_t k = 0; k < m->count; k++) {
    const brim_lab_array *a = m->arrays[k];
    for (size_t i = 0; i < a->is.count; i++) {
      size_t at;
      if (a->tasks[i].over || brim_lab_ids_find(&m->live, a->is.exps[i].id, &at)) continue;
      brim_lab_ids_add(&m->live, a->is.exps[i].id, k * BRIM_LAB_SLURM_LARGEST + i);
    }
  }
  m->indexed = true;
  return BRIM_OK;
}

static brim_lab_task *slurm_find(const brim_lab_slurm *m, const char *exp, brim_lab_array **array) {
  size_t at = 0;
  if (!m->indexed || m->count == 0 || !brim_lab_ids_find(&m->live, exp, &at)) return NULL;
  brim_lab_array *a = m->arrays[at / BRIM_LAB_SLURM_LARGEST];
  if (array) *array = a;
  return &a->tasks[at % BRIM_LAB_SLURM_LARGEST];
}

// Reports that a command of Slurm failed, at most once a minute.
static void slurm_trouble(brim_lab_sweep *s, const char *what) {
  brim_lab_slurm *m = s->slurm;
  int64_t now = brim_clock_ms();
  char why[256];
  if (m->told_ms > 0 && now - m->told_ms < TELL_MS) return;
  m->told_ms = now;
  brim_slurm_why(&m->command, why, sizeof why);
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("Slurm's %s failed; brim tries again: %.250s"),
               what, why);
}

//------------------------------------------ submitting ------------------------------------------
// Queued experiments become arrays of Slurm. An array's file is on the disk before sbatch is called. If
// sbatch gives no answer, the sweep first looks for the array's name in the queue; only if it is
// missing there are the experiments submitted again.

enum {
  FIRST_PAUSE_MS = 5000,  // pause after sbatch refused an array; doubles up to LAST_PAUSE_MS
  LAST_PAUSE_MS = 300000,
  BEAT_MS = 2000,
  WINDOW = 512,  // experiments per listing of the store
  WORDS = 48     // most words of a task's command line
};

typedef struct gathering {
  brim_lab_slurm *slurm;
  brim_slurm_array array;
  size_t room, listed;
  int64_t now;  // time of the store
} gathering;

// Adds a queued experiment to the array. All experiments of an array need as many GPUs as its first
// one.
static brim_status on_queued(void *ctx, const brim_store_exp *exp) {
  gathering *g = ctx;
  g->listed++;
  if (exp->not_before > g->now || g->array.count == g->room) return BRIM_OK;
  if (slurm_find(g->slurm, exp->id, NULL)) return BRIM_OK;
  if (g->array.count > 0 && exp->gpus != g->array.gpus) return BRIM_OK;
  g->array.gpus = exp->gpus;
  brim_slurm_exp *to = &g->array.exps[g->array.count++];
  snprintf(to->id, sizeof to->id, "%s", exp->id);
  to->attempt = exp->attempt;
  return BRIM_OK;
}

static brim_status gather(brim_lab_sweep *s, gathering *g) {
  brim_store_filter filter = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = WINDOW};
  BRIM_TRY(brim_lab_now(s->source, &g->now));
  do {
    g->listed = 0;
    BRIM_TRY(brim_lab_list(s->source, &filter, on_queued, g));
    filter.offset += WINDOW;
  } while (g->listed == WINDOW && g->array.count < g->room);
  return BRIM_OK;
}

// Makes the name "brim-TITLE-12 digits"; the digits make it unique.
static void name_array(const brim_lab_sweep *s, char out[BRIM_SLURM_NAME]) {
  char id[BRIM_EXP_ID], title[24];
  snprintf(title, sizeof title, "%s", s->title);
  for (char *at = title; *at; at++) {
    if (!isalnum((unsigned char)*at)) *at = '-';
  }
  brim_store_random_id(id);
  snprintf(out, BRIM_SLURM_NAME, "brim-%s%s%.12s", title, title[0] ? "-" : "", id);
}

static void add_word(brim_slurm_words *w, const char *key, int64_t value) {
  brim_slurm_word(w, "%s=%lld", key, (long long)value);
}

static brim_status write_script(const brim_lab_sweep *s, const brim_slurm_array *array) {
  const brim_lab_slurm *m = s->slurm;
  brim_slurm_words w = {0};
  brim_str text, path;
  int64_t beat = m->lease_ms / 4;
  brim_slurm_word(&w, "%s", s->program);
  brim_slurm_word(&w, "--quiet");
  brim_slurm_word(&w, "sweep");
  brim_slurm_word(&w, "element");
  brim_slurm_word(&w, "place=%s", m->place);
  brim_slurm_word(&w, "folder=%s", m->folder);
  brim_slurm_word(&w, "array=%s", array->name);
  brim_slurm_word(&w, "worker=%s", s->worker);
  if (m->no_gpu) brim_slurm_word(&w, "device=cpu");
  add_word(&w, "lease_ms", m->lease_ms);
  add_word(&w, "beat_ms", beat < BEAT_MS ? beat : BEAT_MS);
  add_word(&w, "grace_ms", s->options.grace_ms);
  if (s->options.stall_ms) add_word(&w, "stall_ms", s->options.stall_ms);
  for (const char *const *more = s->options.words; more && *more && w.count < WORDS; more++) {
    brim_slurm_word(&w, "%s", *more);
  }
  brim_str_init(&text);
  brim_str_init(&path);
  brim_str_printf(&path, "%s/" BRIM_SLURM_FOLDER "/%s.sh", m->folder, array->name);
  brim_status status = w.failed ? brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm")
                                : brim_slurm_script((const char *const *)w.list, &text);
  if (!status) status = brim_str_status(&path);
  if (!status) status = brim_fs_write(path.data, text.data, text.len);
  brim_str_deinit(&path);
  brim_str_deinit(&text);
  brim_slurm_words_deinit(&w);
  return status;
}

static brim_status start_sbatch(brim_lab_sweep *s, brim_lab_array *a) {
  brim_lab_slurm *m = s->slurm;
  brim_slurm_words words = {0};
  brim_str place;
  brim_slurm_words_sbatch(&a->is, &m->options.ask, m->folder, m->no_gpu, &words);
  brim_str_init(&place);
  // The whole URL with its password is in the environment, as for executors.
  if (brim_store_is_url(s->place)) brim_str_printf(&place, BRIM_LAB_PLACE_ENV "=%s", s->place);
  const char *const env[] = {place.len ? place.data : NULL, NULL};
  m->phase = BRIM_LAB_SLURM_SUBMIT;
  m->about = a;
  brim_status status = brim_str_status(&place);
  if (!status) status = brim_slurm_start(&m->command, &words, env, m->options.timeout_ms);
  brim_str_deinit(&place);
  return status;
}

static brim_status submit_array(brim_lab_sweep *s, brim_slurm_array *array) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = NULL;
  name_array(s, array->name);
  array->nodes = m->options.nodes;
  array->submitted_s = (int64_t)brim_clock_wall_s();
  BRIM_TRY(write_script(s, array));
  BRIM_TRY(brim_slurm_array_write(m->folder, array));
  BRIM_TRY(slurm_add(m, array, &a));
  brim_status status = start_sbatch(s, a);
  if (status) slurm_drop(m, a);  // sbatch could not be started
  return status;
}

// Submits the next array of queued experiments; without any, the phase stays IDLE.
static brim_status slurm_submit(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  gathering g = {.slurm = m, .room = (size_t)m->most};
  m->asked = false;
  m->gathered_ms = now;
  m->gather_ms = now + m->options.poll_ms;
  g.array.exps = brim_calloc(g.room, sizeof *g.array.exps);
  if (!g.array.exps) return brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm");
  brim_status status = gather(s, &g);
  if (!status && g.array.count > 0) status = submit_array(s, &g.array);
  brim_slurm_array_deinit(&g.array);
  return status;
}

// Handles an sbatch that gave no job number: pauses, and looks for the array's name before its
// experiments are submitted again. Records a refusal that a further try would meet too.
static brim_status not_submitted(brim_lab_sweep *s, brim_lab_array *a, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  const brim_slurm_command *c = &m->command;
  char why[256];
  brim_slurm_why(c, why, sizeof why);
  m->wait_ms = m->wait_ms == 0 ? FIRST_PAUSE_MS : 2 * m->wait_ms;
  if (m->wait_ms > LAST_PAUSE_MS) m->wait_ms = LAST_PAUSE_MS;
  m->hold_ms = now + m->wait_ms;
  m->look_ms = now;
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
               brim_tr("sbatch gave no job number for %zu experiments; brim looks for them in "
                       "Slurm's queue: %.250s"),
               a->is.count, why);
  // A refusal has an exit code and a reason. A controller that did not answer in time may have taken
  // the array.
  a->refused = c->exit_code > 0 && !strstr(c->err.data ? c->err.data : "", "timed out");
  const bool limit = a->refused && (strstr(why, "imit") || strstr(why, "temporarily"));
  if (limit && a->is.count > 1) m->most = (int64_t)(a->is.count + 1) / 2;  // try a smaller one
  if (a->refused && !limit && !m->accepted) snprintf(m->refusal, sizeof m->refusal, "%s", why);
  return BRIM_OK;
}

static brim_status slurm_submitted(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = m->about;
  const char *text = m->command.out.data ? m->command.out.data : "";
  // Accept a printed job number even if the command then ran into its time limit.
  if (!brim_slurm_job_of(text, a->is.job) || m->command.exit_code > 0) {
    a->is.job[0] = '\0';
    return not_submitted(s, a, now);
  }
  m->wait_ms = m->hold_ms = 0;
  m->accepted = true;
  m->gather_ms = now;  // more experiments may be queued
  if (m->look_ms > now + m->options.poll_ms / 2 || m->look_ms == 0) {
    m->look_ms = now + m->options.poll_ms / 2;
  }
  brim_lab_say(s, BRIM_SWEEP_INFO, NULL, brim_tr("%zu experiments are Slurm job %s (%s)"),
               a->is.count, a->is.job, a->is.name);
  return brim_slurm_array_write(m->folder, &a->is);
}

//--------------------------------------- the end of tasks ---------------------------------------
// Completes the experiments of tasks that have ended.

enum { TAIL = 2048 };

typedef struct ending {
  brim_lab_sweep *sweep;
  brim_lab_array *array;
  brim_lab_task *task;
  const brim_slurm_exp *exp;
  brim_store_exp *now;  // the experiment as the store has it now
  char *folder;
} ending;

static bool is_ours(const ending *e) {
  return (e->now->state == BRIM_EXP_LEASED || e->now->state == BRIM_EXP_RUNNING) &&
         strcmp(e->now->worker, e->sweep->worker) == 0;
}

static brim_status read_again(ending *e) {
  brim_store_exp_free(e->now);
  e->now = NULL;
  return brim_lab_get(e->sweep->source, e->exp->id, &e->now);
}

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
  size_t at = (size_t)(e->task - e->array->tasks);
  if (e->task->state == BRIM_SLURM_UNKNOWN) {
    snprintf(out, size, brim_tr("Slurm job %s_%zu is gone from its queue without a result"), job,
             at);
  } else {
    snprintf(out, size, brim_tr("Slurm job %s_%zu ended without a result: %s on %s"), job, at,
             e->task->word, e->task->node[0] ? e->task->node : "?");
  }
}

static void log_path(const ending *e, brim_str *out) {
  brim_str_init(out);
  brim_str_printf(out, "%s/" BRIM_SLURM_FOLDER "/%s_%zu.log", e->sweep->slurm->folder,
                  e->array->is.name, (size_t)(e->task - e->array->tasks));
}

// Reads the last lines of the task's own output.
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
                                    .failure = class_of(e->task->state),
                                    .exit_code = -1,
                                    .message = message,
                                    .last_lines = tail};
  brim_status status = brim_lab_finish(e->sweep->source, ref, &result, NULL);
  if (status != BRIM_ESTATE && status != BRIM_ENOENT) return status;
  brim_status_clear();  // another attempt has taken over
  return BRIM_OK;
}

// Removes the log of a task if it is empty, as most are.
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

// Finishes an open attempt whose process has ended with its task.
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

// Claims and fails an experiment whose task never claimed it: without an attempt, it would be submitted
// for ever.
static brim_status end_unstarted(ending *e) {
  brim_store_claimed claimed = {0};
  char claim[BRIM_EXP_ID];
  brim_store_random_id(claim);
  const brim_store_request request = {.worker = e->sweep->worker,
                                      .claim_id = claim,
                                      .host = e->task->node,
                                      .exp = e->exp->id,
                                      .free_gpus = 1 << 20,
                                      .free_bytes = -1};
  BRIM_TRY(brim_lab_claim(e->sweep->source, &request, &claimed));
  brim_status status = claimed.exp ? finish(e, &claimed.ref) : BRIM_OK;
  brim_store_exp_free(claimed.exp);
  return status ? status : read_again(e);
}

// Pauses an experiment whose task a user cancelled with scancel, until a user resumes it.
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
  brim_status status = brim_lab_get(s->source, e->exp->id, &e->now);
  if (status == BRIM_ENOENT) {
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  if (is_ours(e)) BRIM_TRY(end_open(e));
  const bool queued = e->now->state == BRIM_EXP_QUEUED && !stopping;
  const bool cancelled = e->task->state == BRIM_SLURM_CANCELLED;
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

static brim_status end_task(brim_lab_sweep *s, brim_lab_array *a, size_t i) {
  ending e = {.sweep = s, .array = a, .task = &a->tasks[i], .exp = &a->is.exps[i]};
  brim_str folder;
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(s->folder, e.exp->id, &folder);
  e.folder = folder.data;
  if (!status) status = end_one(&e);
  if (!status) remove_empty_log(&e);
  brim_store_exp_free(e.now);
  brim_str_deinit(&folder);
  if (status) return status;
  a->tasks[i].over = a->is.exps[i].over = true;
  a->open--;
  s->slurm->indexed = false;
  s->slurm->gather_ms = 0;
  s->look = true;
  brim_lab_dirty(s, e.exp->id);
  return BRIM_OK;
}

// Completes the experiments of all tasks that have ended.
static brim_status slurm_end_tasks(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  for (size_t k = 0; k < m->count;) {
    brim_lab_array *a = m->arrays[k];
    const size_t before = a->open;
    for (size_t i = 0; i < a->is.count; i++) {
      brim_lab_task *e = &a->tasks[i];
      if (e->over || brim_slurm_is_live(e->state)) {
        if (!e->over) brim_lab_dirty(s, a->is.exps[i].id);
        continue;
      }
      BRIM_TRY(end_task(s, a, i));
    }
    if (a->open > 0 || a == m->about) {
      // Write the file before the experiment can be submitted again. Otherwise a sweep that starts
      // after a crash would take the new task for the ended one.
      if (a->open != before) BRIM_TRY(brim_slurm_array_write(m->folder, &a->is));
      k++;
    } else {
      slurm_drop(m, a);
    }
  }
  return BRIM_OK;
}

//--------------------------------------------- loop ---------------------------------------------
// The loop reads Slurm's queue, submits and stops. It reads squeue before the store. So a queued
// experiment gets a new task only if this sweep knows no unfinished task of it.

enum {
  POLL_MS = 10000,
  TIMEOUT_MS = 60000,
  LOST_MS = 60000,  // time for squeue to list an array whose sbatch gave no job number
  OPEN_MS = 30000,  // time limit of each command while the sweep opens
  MISSES = 2,       // looks in a row without a task before the task counts as gone
  KILL_MS = 15000,  // time for a stopping task after the training's own time
  ASKED_MS = 2000,  // between two readings of the whole queue after changes
  FIRST_LOOK_MS = 2000
};

//---------------------------------- opening ----------------------------------

static brim_status run_now(brim_slurm_words *words, const char *what, brim_slurm_command *out) {
  char why[256];
  brim_status status = brim_slurm_run(words, OPEN_MS, out);
  if (status == BRIM_ENOMEM) return status;
  if (!status && brim_slurm_good(out)) return BRIM_OK;
  if (status) {
    snprintf(why, sizeof why, "%s", brim_status_detail());
  } else {
    brim_slurm_why(out, why, sizeof why);
  }
  return brim_fail(BRIM_EUNSUPPORTED, "cannot use Slurm: %s: %s", what, why);
}

static brim_status read_limits(brim_lab_slurm *m) {
  brim_slurm_words words = {0};
  brim_slurm_command command = {0};
  brim_slurm_word(&words, "scontrol");
  brim_slurm_word(&words, "show");
  brim_slurm_word(&words, "config");
  brim_status status = run_now(&words, "scontrol show config", &command);
  int64_t most =
      status ? 0
             : brim_slurm_config_value(command.out.data ? command.out.data : "", "MaxArraySize");
  brim_slurm_close(&command);
  BRIM_TRY(status);
  if (most < 1) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot use Slurm: it has no job arrays (MaxArraySize)");
  }
  // Indexes of an array go from 0 to MaxArraySize - 1.
  m->most = most < BRIM_LAB_SLURM_LARGEST ? most : BRIM_LAB_SLURM_LARGEST;
  return BRIM_OK;
}

static bool names_nodes(const brim_slurm_ask *ask) {
  for (const char *const *word = ask->extra; word && *word; word++) {
    if (brim_str_starts(*word, "--nodelist") || brim_str_starts(*word, "-w")) return true;
  }
  return false;
}

// Checks that all tasks run on this machine, since a SQLite store is reached through a socket on it.
static brim_status check_nodes(brim_lab_sweep *s, brim_lab_slurm *m) {
  const char *partition = m->options.ask.partition;
  brim_slurm_words words = {0};
  brim_slurm_command command = {0};
  char name[BRIM_SLURM_NODE];
  if (brim_store_is_url(s->place)) return BRIM_OK;
  brim_slurm_word(&words, "sinfo");
  brim_slurm_word(&words, "--noheader");
  brim_slurm_word(&words, "--format=%%D|%%N");
  if (partition && partition[0]) brim_slurm_word(&words, "--partition=%s", partition);
  brim_status status = run_now(&words, "sinfo", &command);
  int64_t nodes = status ? 0 : brim_slurm_nodes_of(command.out.data ? command.out.data : "", name);
  brim_slurm_close(&command);
  BRIM_TRY(status);
  if (nodes > 1 && !names_nodes(&m->options.ask)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "the store %s serves one machine, and the partition has %lld nodes; use "
                     "--store postgres://..., or choose this node with --slurm=--nodelist=NAME",
                     s->place, (long long)nodes);
  }
  size_t n = strcspn(s->host, ".");
  if (nodes == 1 && (strncmp(name, s->host, n) != 0 || (name[n] && name[n] != '.'))) {
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                 brim_tr("Slurm's node %s may be another machine than this one (%s); a store in a "
                         "folder serves one machine"),
                 name, s->host);
  }
  return BRIM_OK;
}

// Reads the arrays of an earlier sweep of this folder.
static brim_status read_arrays(brim_lab_sweep *s, brim_lab_slurm *m) {
  char **names = NULL;
  size_t count = 0, tasks = 0;
  brim_status status = brim_slurm_array_names(m->folder, &names, &count);
  for (size_t i = 0; i < count && !status; i++) {
    brim_slurm_array array;
    brim_lab_array *added = NULL;
    status = brim_slurm_array_read(m->folder, names[i], &array);
    if (status == BRIM_EPARSE) {
      brim_lab_say(s, BRIM_SWEEP_WARN, NULL, "%.300s", brim_status_detail());
      brim_status_clear();
      status = BRIM_OK;
      continue;
    }
    if (!status) status = slurm_add(m, &array, &added);
    if (!status) tasks += added->open;
  }
  brim_fs_list_free(names, count);
  if (tasks > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("an earlier sweep submitted %zu experiments to Slurm; brim looks at them"),
                 tasks);
  }
  return status;
}

static brim_status open_parts(brim_lab_sweep *s, brim_lab_slurm *m) {
  char *real = realpath(s->folder, NULL), *place = realpath(s->place, NULL);
  m->folder = real ? brim_strdup(real) : NULL;
  m->place = brim_store_is_url(s->place) ? brim_store_place_shown(s->place)
             : place                     ? brim_strdup(place)
                                         : NULL;
  free(real);
  free(place);
  if (!m->folder || !m->place) return slurm_no_memory();
  char *folder = brim_fs_join(m->folder, BRIM_SLURM_FOLDER);
  brim_status status = folder ? brim_fs_mkdirs(folder) : slurm_no_memory();
  brim_free(folder);
  BRIM_TRY(status);
  BRIM_TRY(read_limits(m));
  BRIM_TRY(check_nodes(s, m));
  return read_arrays(s, m);
}

brim_status brim_lab_slurm_open(brim_lab_sweep *s, brim_lab_slurm **out) {
  if (!s->store) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "a server's workers run its experiments; in Slurm start brim worker, or use "
                     "--store postgres://...");
  }
  brim_lab_slurm *m = brim_calloc(1, sizeof *m);
  if (!m) return slurm_no_memory();
  m->options = *s->options.slurm;
  if (m->options.poll_ms <= 0) m->options.poll_ms = POLL_MS;
  if (m->options.timeout_ms <= 0) m->options.timeout_ms = TIMEOUT_MS;
  if (m->options.lost_ms <= 0) m->options.lost_ms = LOST_MS;
  m->lease_ms = s->options.store.lease_ms;
  m->no_gpu = s->devices && strcmp(s->devices, "cpu") == 0;
  *out = m;
  return open_parts(s, m);
}

void brim_lab_slurm_close(brim_lab_slurm *m) {
  if (!m) return;
  brim_slurm_close(&m->command);
  for (size_t i = 0; i < m->count; i++) slurm_free(m->arrays[i]);
  brim_free(m->arrays);
  brim_lab_ids_deinit(&m->live);
  brim_free(m->folder);
  brim_free(m->place);
  brim_free(m);
}

//---------------------------------- looking ----------------------------------

typedef struct looking {
  brim_lab_slurm *slurm;
  brim_lab_array *only;  // take rows of this array alone; NULL: of all arrays
} looking;

static void note_row(brim_lab_task *e, const brim_slurm_row *row, bool account) {
  e->state = row->state;
  e->seen = true;
  e->missed = 0;
  snprintf(e->word, sizeof e->word, "%s", row->word);
  snprintf(e->node, sizeof e->node, "%s", row->node);
  snprintf(e->reason, sizeof e->reason, "%s", account ? "" : row->reason);
}

// Assigns a row to the array of its name. A second job of that name comes from a submission that seemed
// to be lost.
static void on_row(void *ctx, const brim_slurm_row *row) {
  const looking *l = ctx;
  for (size_t k = 0; k < l->slurm->count; k++) {
    brim_lab_array *a = l->slurm->arrays[k];
    if ((l->only && a != l->only) || strcmp(a->is.name, row->name) != 0) continue;
    if (!a->is.job[0]) {
      snprintf(a->is.job, sizeof a->is.job, "%s", row->job);
      if (brim_slurm_array_write(l->slurm->folder, &a->is)) brim_status_clear();
    }
    if (strcmp(a->is.job, row->job) != 0) {
      if (!l->only && brim_slurm_is_live(row->state)) {
        snprintf(a->stray, sizeof a->stray, "%s", row->job);
      }
      return;
    }
    if (row->index >= 0 && (size_t)row->index < a->is.count) {
      brim_lab_task *e = &a->tasks[row->index];
      // Only squeue knows which tasks still run: accounting may have missed an end.
      bool stale = l->only && brim_slurm_is_live(row->state);
      if (!e->over && !stale) note_row(e, row, l->only != NULL);
    }
    return;
  }
}

static brim_status start_look(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  brim_slurm_words words = {0};
  const char **names = brim_calloc(m->count, sizeof *names);
  if (!names) return slurm_no_memory();
  for (size_t k = 0; k < m->count; k++) {
    names[k] = m->arrays[k]->is.name;
    for (size_t i = 0; i < m->arrays[k]->is.count; i++) m->arrays[k]->tasks[i].seen = false;
  }
  brim_slurm_words_squeue(names, m->count, &words);
  brim_free(names);
  m->phase = BRIM_LAB_SLURM_LOOK;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

static void miss_unseen(brim_lab_slurm *m, brim_lab_array *a) {
  for (size_t i = 0; i < a->is.count; i++) {
    brim_lab_task *e = &a->tasks[i];
    if (e->over || e->seen || !brim_slurm_is_live(e->state)) continue;
    e->missed++;
    if (e->missed < MISSES) continue;
    if (!m->no_account && !a->accounted) {
      a->account = true;
    } else {
      e->state = BRIM_SLURM_UNKNOWN;  // the task has ended in an unknown way
    }
  }
}

// Counts a look that showed no job of the array. True if the array will get none: sbatch refused it, or
// squeue has shown no such job for long enough.
static bool is_lost(brim_lab_slurm *m, brim_lab_array *a, int64_t now) {
  if (a->is.job[0]) return false;
  a->looks++;
  return a->refused || (a->looks > MISSES && now - a->made_ms > m->options.lost_ms);
}

static brim_status finish_look(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  looking l = {m, NULL};
  m->look_ms = now + m->options.poll_ms;
  // squeue succeeds with an empty list for unknown names, so any failure is trouble.
  if (!brim_slurm_good(&m->command)) {
    slurm_trouble(s, "squeue");
    return BRIM_OK;
  }
  const char *text = m->command.out.data ? m->command.out.data : "";
  size_t bad = brim_slurm_rows(text, false, on_row, &l);
  if (strlen(text) < m->command.out.len) bad++;  // a NUL byte hides the rest of the output
  if (bad > 0) {  // tasks that seem to be missing may be in these lines
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                 brim_tr("Slurm's squeue printed %zu lines that brim cannot read"), bad);
    return slurm_end_tasks(s);
  }
  for (size_t k = 0; k < m->count;) {
    brim_lab_array *a = m->arrays[k];
    if (is_lost(m, a, now)) {
      if (m->refusal[0]) return brim_fail(BRIM_EINVAL, "sbatch refused the array: %s", m->refusal);
      brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                   brim_tr("Slurm has no array %s; its %zu experiments are submitted again"),
                   a->is.name, a->is.count);
      slurm_drop(m, a);
      continue;
    }
    a->accounted = false;
    if (a->is.job[0]) miss_unseen(m, a);
    k++;
  }
  return slurm_end_tasks(s);
}

//---------------------------------- accounting ----------------------------------

static brim_status finish_account(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = m->about;
  looking l = {m, a};
  a->account = false;
  a->accounted = true;
  if (brim_slurm_good(&m->command)) {
    const char *text = m->command.out.data ? m->command.out.data : "";
    (void)brim_slurm_rows(text, true, on_row, &l);
  } else if (!m->command.timed_out) {
    m->no_account = true;  // accounting is probably off: decide by squeue and the store alone
  }
  for (size_t i = 0; i < a->is.count; i++) {
    brim_lab_task *e = &a->tasks[i];
    bool gone = !e->over && brim_slurm_is_live(e->state) && e->missed >= MISSES;
    if (gone) e->state = BRIM_SLURM_UNKNOWN;
  }
  return slurm_end_tasks(s);
}

static brim_status start_account(brim_lab_slurm *m, brim_lab_array *a) {
  brim_slurm_words words = {0};
  brim_slurm_words_sacct(&a->is, &words);
  m->phase = BRIM_LAB_SLURM_ACCOUNT;
  m->about = a;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

//---------------------------------- cancelling ----------------------------------

// Steps of stopping an array. Step 0 cancels a stray job of its name.
enum { TELL_PENDING = 1, TELL_RUNNING = 2, TELL_ALL = 3 };

static brim_status start_cancel(brim_lab_slurm *m, brim_lab_array *a, int step) {
  brim_slurm_words words = {0};
  brim_slurm_word(&words, "scancel");
  if (step == 0) {
    brim_slurm_word(&words, "%s", a->stray);
    a->stray[0] = '\0';
  } else {
    brim_slurm_word(&words, "--name=%s", a->is.name);
    a->told = step;
  }
  if (step == TELL_PENDING) brim_slurm_word(&words, "--state=PENDING");
  if (step == TELL_RUNNING) {
    brim_slurm_word(&words, "--state=RUNNING");
    brim_slurm_word(&words, "--batch");
    brim_slurm_word(&words, "--signal=USR2");  // srun passes the signal on
  }
  m->phase = BRIM_LAB_SLURM_CANCEL;
  m->about = a;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

// Starts the next command that stops the sweep's tasks: cancel waiting tasks, then signal running ones to
// save, then, when the patience is over, cancel all. The first call writes `stop` into every array's
// file, so that no task queues itself again.
static brim_status stop_next(brim_lab_sweep *s, int64_t now, bool *started) {
  brim_lab_slurm *m = s->slurm;
  int64_t patience = s->options.grace_ms + KILL_MS;
  if (m->stop_ms == 0) {
    m->stop_ms = now;
    for (size_t k = 0; k < m->count; k++) {
      m->arrays[k]->is.stop = true;
      if (brim_slurm_array_write(m->folder, &m->arrays[k]->is)) brim_status_clear();
    }
    m->look_ms = now;
  }
  int step = now - m->stop_ms > patience ? TELL_ALL : TELL_RUNNING;
  for (size_t k = 0; k < m->count; k++) {
    brim_lab_array *a = m->arrays[k];
    if (a->told >= step) continue;
    *started = true;
    return start_cancel(m, a, step == TELL_ALL ? TELL_ALL : a->told + 1);
  }
  m->gave_up = now - m->stop_ms > patience + m->options.timeout_ms;
  return BRIM_OK;
}

// Withdraws waiting tasks when no experiment is left to run.
static brim_status withdraw_next(brim_lab_sweep *s, bool *started) {
  const int64_t *n = s->counts.states;
  brim_lab_slurm *m = s->slurm;
  if (!s->counted || n[BRIM_EXP_QUEUED] + n[BRIM_EXP_LEASED] + n[BRIM_EXP_RUNNING] > 0) {
    return BRIM_OK;
  }
  for (size_t k = 0; k < m->count; k++) {
    if (m->arrays[k]->told > 0 || !m->arrays[k]->is.job[0]) continue;
    *started = true;
    return start_cancel(m, m->arrays[k], TELL_PENDING);
  }
  return BRIM_OK;
}

//---------------------------------- turns ----------------------------------

static brim_status command_ended(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  switch (m->phase) {
    case BRIM_LAB_SLURM_LOOK:
      return finish_look(s, now);
    case BRIM_LAB_SLURM_ACCOUNT:
      return finish_account(s);
    case BRIM_LAB_SLURM_SUBMIT:
      return slurm_submitted(s, now);
    case BRIM_LAB_SLURM_CANCEL:
      m->look_ms = now + (m->options.poll_ms < 500 ? m->options.poll_ms : 500);
      return BRIM_OK;
    case BRIM_LAB_SLURM_IDLE:
      break;
  }
  return BRIM_OK;
}

static brim_status start_next_command(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  bool started = false;
  for (size_t k = 0; k < m->count; k++) {
    if (m->arrays[k]->stray[0]) return start_cancel(m, m->arrays[k], 0);
  }
  if (s->stopping) BRIM_TRY(stop_next(s, now, &started));
  if (!s->stopping) BRIM_TRY(withdraw_next(s, &started));
  if (started) return BRIM_OK;
  for (size_t k = 0; k < m->count; k++) {
    if (m->arrays[k]->account) return start_account(m, m->arrays[k]);
  }
  if (m->count > 0 && now >= m->look_ms) return start_look(s);
  m->asked = m->asked || s->look;
  bool due = now >= m->gather_ms || (m->asked && now - m->gathered_ms >= ASKED_MS);
  if (s->stopping || now < m->hold_ms || !due) return BRIM_OK;
  return slurm_submit(s, now);
}

brim_status brim_lab_slurm_turn(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  bool over = true;
  if (m->phase != BRIM_LAB_SLURM_IDLE) {
    BRIM_TRY(brim_slurm_poll(&m->command, &over));
    if (!over) return BRIM_OK;
    brim_status status = command_ended(s, now);
    // After a failure of the store, the next look finds these results again.
    m->phase = BRIM_LAB_SLURM_IDLE;
    m->about = NULL;
    brim_slurm_close(&m->command);
    BRIM_TRY(status);
  }
  BRIM_TRY(slurm_index(m));
  brim_status status = start_next_command(s, now);
  if (status != BRIM_ENOENT && status != BRIM_ELIMIT) return status;
  // The command is missing now, or no process can be started: try again later.
  m->phase = BRIM_LAB_SLURM_IDLE;
  brim_slurm_close(&m->command);
  m->look_ms = m->hold_ms = now + m->options.poll_ms;
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL, "%.300s", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

bool brim_lab_slurm_idle(const brim_lab_sweep *s) {
  const brim_lab_slurm *m = s->slurm;
  return m->gave_up || (m->count == 0 && m->phase == BRIM_LAB_SLURM_IDLE);
}

size_t brim_lab_slurm_fds(const brim_lab_slurm *m, struct pollfd fds[BRIM_CHILD_FDS],
                          int *limit_ms) {
  return m->command.child ? brim_child_fds(m->command.child, fds, limit_ms) : 0;
}

//---------------------------------- views ----------------------------------

void brim_lab_slurm_why(const brim_lab_slurm *m, const char *exp, char *out, size_t size) {
  brim_lab_array *a = NULL;
  const brim_lab_task *e = slurm_find(m, exp, &a);
  out[0] = '\0';
  if (!e) return;
  size_t at = (size_t)(e - a->tasks);
  if (!a->is.job[0]) {
    snprintf(out, size, "%s", brim_tr("Slurm has not answered yet"));
  } else if (e->state == BRIM_SLURM_WAITING && e->reason[0] && strcmp(e->reason, "None") != 0) {
    snprintf(out, size, brim_tr("Slurm job %s_%zu waits: %s"), a->is.job, at, e->reason);
  } else if (e->state == BRIM_SLURM_WAITING) {
    snprintf(out, size, brim_tr("Slurm job %s_%zu waits"), a->is.job, at);
  } else if (e->state == BRIM_SLURM_RUNNING) {
    snprintf(out, size, brim_tr("Slurm job %s_%zu runs on %s"), a->is.job, at, e->node);
  }
}

void brim_lab_slurm_count(const brim_lab_slurm *m, int64_t *running, int64_t *waiting) {
  *running = *waiting = 0;
  for (size_t k = 0; k < m->count; k++) {
    for (size_t i = 0; i < m->arrays[k]->is.count; i++) {
      const brim_lab_task *e = &m->arrays[k]->tasks[i];
      if (e->over) continue;
      *running += e->state == BRIM_SLURM_RUNNING;
      *waiting += e->state == BRIM_SLURM_WAITING;
    }
  }
}
