// A sweep in Slurm: looks at its queue, what that means for elements, and stopping. Submitting is
// lab_sweep_slurm_submit.c's, what becomes of experiments lab_sweep_slurm_end.c's.
//
// squeue is asked before the store is read. So an experiment that is queued there, and whose element had
// ended here, needs another element; and one whose element is still listed needs none.
#include "lab/lab_sweep_slurm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  POLL_MS = 10000,
  TIMEOUT_MS = 60000,
  LOST_MS = 60000,
  OPEN_MS = 30000,  // of the commands before the sweep begins
  MISSES = 2,       // looks without an element before it counts as gone
  KILL_MS = 15000,  // elements that stop have this long after their training's own time is over
  ASKED_MS = 2000,  // between two readings of the whole queue because something changed
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
  // indices go from 0 to MaxArraySize - 1
  m->most = most < BRIM_LAB_SLURM_LARGEST ? most : BRIM_LAB_SLURM_LARGEST;
  return BRIM_OK;
}

static bool names_nodes(const brim_slurm_ask *ask) {
  for (const char *const *word = ask->extra; word && *word; word++) {
    if (brim_str_starts(*word, "--nodelist") || brim_str_starts(*word, "-w")) return true;
  }
  return false;
}

// A SQLite store is reached through a socket of this machine.
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

// Arrays of an earlier sweep of this folder.
static brim_status read_arrays(brim_lab_sweep *s, brim_lab_slurm *m) {
  char **names = NULL;
  size_t count = 0, elements = 0;
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
    if (!status) status = brim_lab_slurm_add(m, &array, &added);
    if (!status) elements += added->open;
  }
  brim_fs_list_free(names, count);
  if (elements > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("an earlier sweep submitted %zu experiments to Slurm; brim looks at them"),
                 elements);
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
  if (!m->folder || !m->place) return brim_lab_slurm_no_memory();
  char *folder = brim_fs_join(m->folder, BRIM_SLURM_FOLDER);
  brim_status status = folder ? brim_fs_mkdirs(folder) : brim_lab_slurm_no_memory();
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
  if (!m) return brim_lab_slurm_no_memory();
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
  for (size_t i = 0; i < m->count; i++) brim_lab_slurm_free(m->arrays[i]);
  brim_free(m->arrays);
  brim_lab_ids_deinit(&m->live);
  brim_free(m->folder);
  brim_free(m->place);
  brim_free(m);
}

//---------------------------------- looking ----------------------------------

typedef struct looking {
  brim_lab_slurm *slurm;
  brim_lab_array *only;  // NULL: any
} looking;

static void take(brim_lab_element *e, const brim_slurm_row *row, bool account) {
  e->state = row->state;
  e->seen = true;
  e->missed = 0;
  snprintf(e->word, sizeof e->word, "%s", row->word);
  snprintf(e->node, sizeof e->node, "%s", row->node);
  snprintf(e->reason, sizeof e->reason, "%s", account ? "" : row->reason);
}

// A row counts for the array of its name. A second job of that name came of a submission that was taken
// for lost.
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
      brim_lab_element *e = &a->elements[row->index];
      // squeue alone knows what is live; accounts may never have heard of an end
      bool stale = l->only && brim_slurm_is_live(row->state);
      if (!e->over && !stale) take(e, row, l->only != NULL);
    }
    return;
  }
}

static brim_status start_look(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  brim_slurm_words words = {0};
  const char **names = brim_calloc(m->count, sizeof *names);
  if (!names) return brim_lab_slurm_no_memory();
  for (size_t k = 0; k < m->count; k++) {
    names[k] = m->arrays[k]->is.name;
    for (size_t i = 0; i < m->arrays[k]->is.count; i++) m->arrays[k]->elements[i].seen = false;
  }
  brim_slurm_words_look(names, m->count, &words);
  brim_free(names);
  m->phase = BRIM_LAB_SLURM_LOOK;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

static void miss_unseen(brim_lab_slurm *m, brim_lab_array *a) {
  for (size_t i = 0; i < a->is.count; i++) {
    brim_lab_element *e = &a->elements[i];
    if (e->over || e->seen || !brim_slurm_is_live(e->state)) continue;
    e->missed++;
    if (e->missed < MISSES) continue;
    if (!m->no_account && !a->accounted) {
      a->account = true;
    } else {
      e->state = BRIM_SLURM_UNKNOWN;  // it has ended, and how is not known
    }
  }
}

// sbatch did not answer, and squeue knows no such job: it may still come.
static bool is_lost(brim_lab_slurm *m, brim_lab_array *a, int64_t now) {
  if (a->is.job[0]) return false;
  a->looks++;
  return a->refused || (a->looks > MISSES && now - a->made_ms > m->options.lost_ms);
}

static brim_status looked(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  looking l = {m, NULL};
  m->look_ms = now + m->options.poll_ms;
  // "Invalid job id" and the like: squeue of names that it does not know succeeds and is empty
  if (!brim_slurm_good(&m->command)) {
    brim_lab_slurm_trouble(s, "squeue");
    return BRIM_OK;
  }
  const char *text = m->command.out.data ? m->command.out.data : "";
  size_t bad = brim_slurm_rows(text, false, on_row, &l);
  if (strlen(text) < m->command.out.len) bad++;  // a zero: there is more behind it
  if (bad > 0) {  // what is missing there may have been in such a line
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                 brim_tr("Slurm's squeue printed %zu lines that brim cannot read"), bad);
    return brim_lab_slurm_end_elements(s);
  }
  for (size_t k = 0; k < m->count;) {
    brim_lab_array *a = m->arrays[k];
    if (is_lost(m, a, now)) {
      if (m->refusal[0]) return brim_fail(BRIM_EINVAL, "sbatch refused the array: %s", m->refusal);
      brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                   brim_tr("Slurm has no array %s; its %zu experiments are submitted again"),
                   a->is.name, a->is.count);
      brim_lab_slurm_drop(m, a);
      continue;
    }
    a->accounted = false;
    if (a->is.job[0]) miss_unseen(m, a);
    k++;
  }
  return brim_lab_slurm_end_elements(s);
}

//---------------------------------- accounting ----------------------------------

static brim_status accounted(brim_lab_sweep *s) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = m->about;
  looking l = {m, a};
  a->account = false;
  a->accounted = true;
  if (brim_slurm_good(&m->command)) {
    const char *text = m->command.out.data ? m->command.out.data : "";
    (void)brim_slurm_rows(text, true, on_row, &l);
  } else if (!m->command.timed_out) {
    m->no_account = true;  // most often: accounting is off. squeue and the store decide alone
  }
  for (size_t i = 0; i < a->is.count; i++) {
    brim_lab_element *e = &a->elements[i];
    bool gone = !e->over && brim_slurm_is_live(e->state) && e->missed >= MISSES;
    if (gone) e->state = BRIM_SLURM_UNKNOWN;
  }
  return brim_lab_slurm_end_elements(s);
}

static brim_status start_account(brim_lab_slurm *m, brim_lab_array *a) {
  brim_slurm_words words = {0};
  brim_slurm_words_account(&a->is, &words);
  m->phase = BRIM_LAB_SLURM_ACCOUNT;
  m->about = a;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

//---------------------------------- cancelling ----------------------------------

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
    brim_slurm_word(&words, "--signal=USR2");  // which srun passes on
  }
  m->phase = BRIM_LAB_SLURM_CANCEL;
  m->about = a;
  return brim_slurm_start(&m->command, &words, NULL, m->options.timeout_ms);
}

// Elements that wait are withdrawn, those that run save and end. None queues itself again.
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

// What is left in Slurm's queue has nothing to run any more.
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

static brim_status ended(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  switch (m->phase) {
    case BRIM_LAB_SLURM_LOOK:
      return looked(s, now);
    case BRIM_LAB_SLURM_ACCOUNT:
      return accounted(s);
    case BRIM_LAB_SLURM_SUBMIT:
      return brim_lab_slurm_submitted(s, now);
    case BRIM_LAB_SLURM_CANCEL:
      m->look_ms = now + (m->options.poll_ms < 500 ? m->options.poll_ms : 500);
      return BRIM_OK;
    case BRIM_LAB_SLURM_IDLE:
      break;
  }
  return BRIM_OK;
}

static brim_status next(brim_lab_sweep *s, int64_t now) {
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
  return brim_lab_slurm_submit(s, now);
}

brim_status brim_lab_slurm_turn(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  bool over = true;
  if (m->phase != BRIM_LAB_SLURM_IDLE) {
    BRIM_TRY(brim_slurm_poll(&m->command, &over));
    if (!over) return BRIM_OK;
    brim_status status = ended(s, now);
    // results that the store does not take now are looked for again
    m->phase = BRIM_LAB_SLURM_IDLE;
    m->about = NULL;
    brim_slurm_close(&m->command);
    BRIM_TRY(status);
  }
  BRIM_TRY(brim_lab_slurm_index(m));
  brim_status status = next(s, now);
  if (status != BRIM_ENOENT && status != BRIM_ELIMIT) return status;
  // a command that is not there any more, or no process for it: later
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
  const brim_lab_element *e = brim_lab_slurm_find(m, exp, &a);
  out[0] = '\0';
  if (!e) return;
  size_t at = (size_t)(e - a->elements);
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
      const brim_lab_element *e = &m->arrays[k]->elements[i];
      if (e->over) continue;
      *running += e->state == BRIM_SLURM_RUNNING;
      *waiting += e->state == BRIM_SLURM_WAITING;
    }
  }
}
