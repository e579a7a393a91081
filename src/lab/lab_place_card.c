// One GPU: which processes are ours, whether memory was returned, whether it is in service.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_place_int.h"

#define MIB (1024.0 * 1024.0)

enum {
  MOST_ROOTS = BRIM_LAB_PLACE_PACKED + BRIM_LAB_PLACE_GPUS + 2,
  LOST_READINGS = 3,
  TOUCH_MS = 10 * 60 * 1000
};

brim_lab_place_state brim_lab_place_card_state(const brim_lab_place *place,
                                               const brim_lab_place_card *card) {
  if (card->out) return BRIM_LAB_PLACE_OUT;
  if (card->jobs > 0) return BRIM_LAB_PLACE_BUSY;
  if (card->returning) return BRIM_LAB_PLACE_RETURNING;
  if (card->foreign > 0 && !place->options.share) return BRIM_LAB_PLACE_FOREIGN;
  return card->locked ? BRIM_LAB_PLACE_LOCKED : BRIM_LAB_PLACE_FREE;
}

void brim_lab_place_card_retire(brim_lab_place_card *card, const char *reason) {
  if (card->out) return;
  card->out = true;
  snprintf(card->reason, sizeof card->reason, "%s", reason);
  brim_utf8_trim(card->reason);
  brim_log_warn("lab", "GPU %d (%s) is out of service: %s", card->index, card->uuid, card->reason);
}

//---------------------------------- processes ----------------------------------

typedef struct roots {
  int64_t pid[MOST_ROOTS];
  brim_lab_place_job *job[MOST_ROOTS];  // NULL: MPS, or the sweep itself
  size_t count;
  size_t mps;  // from here on
} roots;

static void add_root(roots *r, int64_t pid, brim_lab_place_job *job) {
  if (pid <= 0 || r->count == MOST_ROOTS) return;
  r->pid[r->count] = pid;
  r->job[r->count++] = job;
}

static bool job_is_on(const brim_lab_place_job *job, const brim_lab_place_card *card) {
  for (int i = 0; i < job->card_count; i++) {
    if (job->cards[i] == card->index) return true;
  }
  return false;
}

static void list_roots(brim_lab_place *place, const brim_lab_place_card *card, roots *r) {
  r->count = 0;
  for (size_t i = 0; i < place->job_count; i++) {
    if (job_is_on(&place->jobs[i], card)) add_root(r, place->jobs[i].pid, &place->jobs[i]);
  }
  r->mps = r->count;
  for (int i = 0; i < place->card_count; i++) {
    if (place->cards[i].mps) add_root(r, brim_lab_mps_pid(place->cards[i].mps), NULL);
  }
  add_root(r, (int64_t)getpid(), NULL);
}

static bool has_pid(const uint32_t *list, size_t count, uint32_t pid) {
  for (size_t i = 0; i < count; i++) {
    if (list[i] == pid) return true;
  }
  return false;
}

static void remember(brim_lab_place_card *card, uint32_t pid) {
  if (card->ours_count == BRIM_LAB_PLACE_SEEN || has_pid(card->ours, card->ours_count, pid)) return;
  card->ours[card->ours_count++] = pid;
}

// In a container the driver may give numbers of processes that are not in our /proc, even for our
// own. One that came after our experiment is taken for its.
static bool is_presumed_ours(const brim_lab_place_card *card, const brim_gpu_process *p) {
  bool using = card->jobs > 0 || card->returning;
  return using && p->elsewhere && !has_pid(card->before, card->before_count, p->pid);
}

static void add_bytes(double *sum, double bytes) { *sum += bytes; }  // NaN stays

static void take_ours(brim_lab_place_card *card, const brim_gpu_process *p,
                      brim_lab_place_job *job) {
  remember(card, p->pid);
  if (job && !isnan(p->bytes))
    job->used_bytes = (isnan(job->used_bytes) ? 0 : job->used_bytes) + p->bytes;
}

// MPS's server where the driver gives numbers that are not in our /proc: there is one, and it stays.
static bool is_presumed_mps(brim_lab_place_card *card, const brim_gpu_process *p) {
  if (!card->mps || card->mps_seen || !p->elsewhere) return false;
  card->mps_seen = true;
  return true;
}

static void take_process(brim_lab_place *place, brim_lab_place_card *card, const roots *r,
                         const brim_gpu_process *p) {
  size_t which = 0;
  if (brim_lab_place_descends(place->options.root, p->pid, r->pid, r->count, &which)) {
    if (which >= r->mps) {
      card->mps_seen = true;
      if (!isnan(p->bytes)) card->mps_bytes += p->bytes;
    } else {
      take_ours(card, p, r->job[which]);
    }
    return;
  }
  if (is_presumed_mps(card, p)) {
    if (!isnan(p->bytes)) card->mps_bytes += p->bytes;
    return;
  }
  if (has_pid(card->ours, card->ours_count, p->pid) || is_presumed_ours(card, p)) {
    remember(card, p->pid);
    card->left++;
    return;
  }
  add_bytes(&card->foreign_bytes, p->bytes);
  if (!p->computes) return;  // a desktop is on a GPU all the time
  if (card->foreign++ == 0) brim_gpu_process_text(p, card->holder, sizeof card->holder);
}

// Memory that no process on the list has: in a container the driver may list none of the others'.
// Less than an eighth may be a desktop's.
static void look_for_hidden(brim_lab_place_card *card, const brim_gpu_process *list, size_t count) {
  double hidden = card->memory.used - card->mps_bytes;
  for (size_t i = 0; i < count; i++) hidden -= list[i].bytes;  // NaN: unknown
  if (card->jobs > 0 || card->returning || card->mps || card->foreign > 0) return;
  if (!(hidden > fmax(2048 * MIB, card->memory.total / 8))) return;
  char size[32];
  brim_format_bytes((uint64_t)hidden, size);
  brim_msg_format(card->holder, sizeof card->holder,
                  brim_tr("a process that the driver does not list (%s)"), size);
  card->foreign = 1;
}

static void classify(brim_lab_place *place, brim_lab_place_card *card, const brim_gpu_process *list,
                     size_t count) {
  roots r;
  card->foreign = card->left = 0;
  card->mps_seen = false;
  card->foreign_bytes = card->mps_bytes = 0;
  list_roots(place, card, &r);
  for (size_t i = 0; i < r.count; i++) {
    if (r.job[i]) r.job[i]->used_bytes = (double)NAN;
  }
  for (size_t i = 0; i < count; i++) take_process(place, card, &r, &list[i]);
  look_for_hidden(card, list, count);
  // those that the driver lists for another GPU's slice, or after their end, are forgotten
  if (card->jobs == 0 && !card->returning) {
    card->ours_count = card->before_count = 0;
    for (size_t i = 0; i < count && i < BRIM_LAB_PLACE_SEEN; i++) {
      card->before[card->before_count++] = list[i].pid;
    }
  }
}

static brim_status read_processes(brim_lab_place *place, brim_lab_place_card *card) {
  brim_gpu_process *list = NULL;
  size_t count = 0;
  brim_status status = brim_gpu_read_processes(place->options.monitor, card->uuid, &list, &count);
  if (status == BRIM_ENOMEM) return status;
  // a list that fails now and then does not open a GPU that others use
  if (status && card->has_list && ++card->list_misses < LOST_READINGS) return BRIM_OK;
  card->has_list = status == BRIM_OK;
  card->list_misses = 0;
  classify(place, card, list, count);
  brim_free(list);
  return BRIM_OK;
}

// A driver that reports more free memory than there is, or used memory without a total, is not
// believed.
static void check_memory(brim_gpu_memory *m) {
  bool wrong = isnan(m->total) || m->total <= 0 || m->free < 0 || m->free > m->total ||
               m->used < 0 || m->used > m->total;
  if (wrong) *m = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
}

brim_status brim_lab_place_card_read(brim_lab_place *place, brim_lab_place_card *card) {
  brim_gpu_memory memory;
  brim_status status = brim_gpu_read_memory(place->options.monitor, card->uuid, &memory);
  if (status == BRIM_ENOMEM) return status;
  check_memory(&memory);
  if (status && card->read) {
    if (++card->misses == LOST_READINGS) brim_lab_place_card_retire(card, brim_status_detail());
  } else if (!status) {
    card->misses = 0;
    card->read = true;
  }
  card->memory = memory;
  return read_processes(place, card);
}

//---------------------------------- locks ----------------------------------

static void text_of(char *out, size_t size, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void text_of(char *out, size_t size, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(out, size, fmt, args);
  va_end(args);
  brim_utf8_trim(out);
}

static void note_lock(brim_lab_place *place, brim_lab_place_card *card, brim_status status,
                      const brim_lab_place_holder *holder) {
  card->locked = status != BRIM_OK;
  if (status == BRIM_OK) return;
  if (status != BRIM_EEXIST) {
    text_of(card->locked_by, sizeof card->locked_by, "%s", brim_status_detail());
  } else if (strcmp(holder->store, place->options.store) == 0) {
    text_of(card->locked_by, sizeof card->locked_by, "%s",
            brim_tr("an experiment of this store from before has not ended"));
  } else if (holder->pid > 0) {
    text_of(card->locked_by, sizeof card->locked_by,
            brim_tr("the sweep of %s (pid %lld, %s) uses it"), holder->store,
            (long long)holder->pid, holder->user);
  } else {
    text_of(card->locked_by, sizeof card->locked_by, "%s", brim_tr("another sweep uses it"));
  }
}

static void probe_lock(brim_lab_place *place, brim_lab_place_card *card) {
  brim_lab_place_holder holder;
  note_lock(place, card, brim_lab_place_lock_probe(place->options.lock_dir, card->uuid, &holder),
            &holder);
}

static brim_status take_lock(brim_lab_place *place, brim_lab_place_card *card) {
  brim_lab_place_holder holder;
  if (card->lock_fd >= 0) return BRIM_OK;
  brim_status status = brim_lab_place_lock(place->options.lock_dir, card->uuid,
                                           place->options.store, &card->lock_fd, &holder);
  note_lock(place, card, status, &holder);
  return status;
}

brim_status brim_lab_place_card_take(brim_lab_place *place, brim_lab_place_card *card,
                                     int64_t now_ms) {
  BRIM_TRY(take_lock(place, card));
  card->touched_ms = now_ms;
  card->base_used = card->memory.used;
  card->base_free = card->memory.free;
  card->base_foreign = card->foreign_bytes;
  card->ours_count = 0;
  return BRIM_OK;
}

static void release(brim_lab_place_card *card) {
  if (card->lock_fd >= 0) close(card->lock_fd);
  card->lock_fd = -1;
  card->returning = card->adopted = false;
}

void brim_lab_place_card_give(brim_lab_place *place, brim_lab_place_card *card, bool ran,
                              int64_t now_ms) {
  (void)place;
  if (!ran) {
    release(card);
    return;
  }
  card->returning = true;
  card->returning_since_ms = now_ms;
}

//---------------------------------- memory ----------------------------------

static double tolerance_of(const brim_lab_place_card *card) {
  double share = card->memory.total / 256;
  // MPS's server came after the baseline and keeps a context; later baselines have it
  double server = card->mps && !card->mps_seen && !card->mps_counted ? 2048 * MIB : 0;
  return fmax(128 * MIB, isnan(share) ? 0 : share) + server;
}

// Bytes above the baseline that no process of others explains; NaN = unknown.
static double unreturned(const brim_lab_place_card *card) {
  return card->memory.used - card->mps_bytes - card->base_used -
         (card->foreign_bytes - card->base_foreign);
}

static void check_returned(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms) {
  // executors of an earlier sweep had the lock: with the last of them it is free
  if (card->lock_fd < 0 && take_lock(place, card) != BRIM_OK) {
    if (now_ms - card->returning_since_ms < place->options.return_ms) return;
    release(card);
    return;
  }
  double bytes = unreturned(card);
  bool returned = card->left == 0 && !(bytes > tolerance_of(card));
  if (returned) {
    card->mps_counted = card->mps != NULL;
    release(card);
    return;
  }
  if (now_ms - card->returning_since_ms < place->options.return_ms) return;
  char reason[BRIM_LAB_PLACE_TEXT], size[32];
  brim_format_bytes((uint64_t)(bytes > 0 ? bytes : 0), size);
  text_of(reason, sizeof reason, brim_tr("memory not returned: %s in use %lld s after the end"),
          size, (long long)((now_ms - card->returning_since_ms) / 1000));
  release(card);
  brim_lab_place_card_retire(card, reason);
}

bool brim_lab_place_card_fits(const brim_lab_place *place, const brim_lab_place_card *card,
                              double need_bytes) {
  double margin = fmax(512 * MIB, card->memory.total / 50);
  double planned = need_bytes;
  for (size_t i = 0; i < place->job_count; i++) {
    const brim_lab_place_job *job = &place->jobs[i];
    // fmax leaves out a NaN, and what is not planned is not packed
    if (job_is_on(job, card))
      planned += isnan(job->need_bytes) ? job->need_bytes : fmax(job->need_bytes, job->used_bytes);
  }
  // comparisons with NaN are false
  return card->base_free - planned >= margin && card->memory.free - need_bytes >= margin;
}

//---------------------------------- MPS ----------------------------------

brim_lab_mps_state brim_lab_place_card_mps(brim_lab_place_card *card, int64_t now_ms) {
  if (!card->mps) return BRIM_LAB_MPS_FAILED;
  brim_lab_mps_state state = brim_lab_mps_update(card->mps, now_ms);
  if (state != BRIM_LAB_MPS_FAILED) return state;
  const char *line = brim_lab_mps_error(card->mps);
  if (!card->mps_refused) {
    brim_log_warn("lab", "GPU %d: MPS does not run, so experiments take turns: %s", card->index,
                  *line ? line : brim_tr("it gave no reason"));
  }
  card->mps_refused = true;
  if (card->jobs > 0) return state;  // experiments that are its clients end first
  brim_lab_mps_stop(card->mps);
  card->mps = NULL;
  return state;
}

void brim_lab_place_card_update(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms) {
  if (now_ms - card->touched_ms >= TOUCH_MS) {
    brim_lab_place_lock_touch(card->lock_fd);
    card->touched_ms = now_ms;
  }
  (void)brim_lab_place_card_mps(card, now_ms);
  if (card->returning) check_returned(place, card, now_ms);
  if (card->jobs == 0 && !card->returning && card->lock_fd < 0) probe_lock(place, card);
  brim_lab_pack_tick(&card->pack, now_ms, card->more && !card->out);
}
