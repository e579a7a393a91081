// Experiments and the places they have; failures of a GPU in a row.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_place_int.h"

brim_lab_place_job *brim_lab_place_job_find(const brim_lab_place *place, const char *exp) {
  for (size_t i = 0; i < place->job_count; i++) {
    if (strcmp(place->jobs[i].exp, exp) == 0) return &place->jobs[i];
  }
  return NULL;
}

brim_status brim_lab_place_job_add(brim_lab_place *place, const brim_lab_place_want *want,
                                   int64_t now_ms, brim_lab_place_job **out) {
  (void)now_ms;
  if (!want->exp || strlen(want->exp) >= BRIM_LAB_PLACE_EXP ||
      brim_lab_place_job_find(place, want->exp)) {
    return brim_fail(BRIM_EINVAL, "experiment %s cannot be placed twice",
                     want->exp ? want->exp : "");
  }
  if (place->job_count == place->job_room) {
    size_t room = place->job_room ? place->job_room * 2 : 16;
    brim_lab_place_job *jobs = (brim_lab_place_job *)brim_realloc(place->jobs, room * sizeof *jobs);
    if (!jobs) return brim_fail(BRIM_ENOMEM, "out of memory for the running experiments");
    place->jobs = jobs;
    place->job_room = room;
  }
  brim_lab_place_job *job = &place->jobs[place->job_count++];
  *job = (brim_lab_place_job){.number = place->next_number++, .used_bytes = (double)NAN};
  job->need_bytes = want->need_bytes > 0 ? want->need_bytes : (double)NAN;
  snprintf(job->exp, sizeof job->exp, "%s", want->exp);
  *out = job;
  return BRIM_OK;
}

void brim_lab_place_job_join(brim_lab_place *place, brim_lab_place_job *job, uint64_t kind,
                             int64_t now_ms) {
  if (job->cpu) place->cpu_taken++;
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    card->jobs++;
    card->returning = false;
    // windows of one GPU; an experiment on several is never packed
    if (i == 0) brim_lab_pack_joined(&card->pack, &job->pack, kind, now_ms);
  }
}

brim_status brim_lab_place_started(brim_lab_place *place, const char *exp, int64_t pid) {
  brim_lab_place_job *job = brim_lab_place_job_find(place, exp);
  if (!job) return brim_fail(BRIM_ENOENT, "experiment %s has no place", exp);
  job->pid = pid;
  return BRIM_OK;
}

void brim_lab_place_progress(brim_lab_place *place, int64_t now_ms, const char *exp, int64_t step) {
  brim_lab_place_job *job = brim_lab_place_job_find(place, exp);
  if (!job || job->card_count == 0) return;
  brim_lab_pack_stepped(&place->cards[job->cards[0]].pack, &job->pack, step, now_ms);
}

//---------------------------------- adopting ----------------------------------

static brim_lab_place_card *card_of(brim_lab_place *place, const char *uuid, size_t size) {
  for (int i = 0; i < place->card_count; i++) {
    const char *name = place->cards[i].uuid;
    if (strlen(name) == size && memcmp(name, uuid, size) == 0) return &place->cards[i];
  }
  return NULL;
}

static brim_status adopt_cards(brim_lab_place *place, brim_lab_place_job *job,
                               const char *devices) {
  const char *at = devices;
  while (*at) {
    size_t n = strcspn(at, ",");
    brim_lab_place_card *card = card_of(place, at, n);
    if (!card || job->card_count == BRIM_LAB_PLACE_K) {
      return brim_fail(BRIM_ENOENT, "this machine has no GPU %.*s", (int)n, at);
    }
    job->cards[job->card_count++] = card->index;
    at += n + (at[n] == ',');
  }
  return BRIM_OK;
}

brim_status brim_lab_place_adopt(brim_lab_place *place, int64_t now_ms,
                                 const brim_lab_place_want *want, const char *devices,
                                 int64_t pid) {
  brim_lab_place_job *job = NULL;
  BRIM_TRY(brim_lab_place_job_add(place, want, now_ms, &job));
  job->pid = pid;
  job->cpu = strcmp(devices, "cpu") == 0 || !*devices;
  brim_status status = job->cpu ? BRIM_OK : adopt_cards(place, job, devices);
  if (status) {
    place->job_count--;
    return status;
  }
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    if (card->jobs > 0) continue;
    // what it used before they started is unknown
    card->base_used = card->base_free = card->base_foreign = (double)NAN;
    card->adopted = card->lock_fd < 0;
  }
  brim_lab_place_job_join(place, job, want->kind, now_ms);
  return BRIM_OK;
}

//---------------------------------- ends ----------------------------------

// Whether a failure of this class may be the GPU's.
static bool blames_gpu(brim_failure failure) {
  switch (failure) {
    case BRIM_FAILURE_CRASH:
    case BRIM_FAILURE_HUNG:
    case BRIM_FAILURE_INFRASTRUCTURE:
    case BRIM_FAILURE_OOM_DEVICE:
      return true;
    default:
      return false;
  }
}

// An experiment that failed on another GPU too fails on its own account.
static bool failed_elsewhere(brim_lab_place *place, const char *exp, int card) {
  bool found = false;
  for (size_t i = 0; i < BRIM_LAB_PLACE_REMEMBERED; i++) {
    const brim_lab_place_failed *f = &place->failed[i];
    found |= strcmp(f->exp, exp) == 0 && f->card != card;
  }
  brim_lab_place_failed *f = &place->failed[place->failed_next++ % BRIM_LAB_PLACE_REMEMBERED];
  snprintf(f->exp, sizeof f->exp, "%s", exp);
  f->card = card;
  return found;
}

// Of the other GPU where it was counted: it was not that GPU's fault either.
static void uncount(brim_lab_place *place, const char *exp) {
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    for (int k = 0; k < card->failures && !card->out; k++) {
      if (strcmp(card->failed[k], exp) != 0) continue;
      card->failures--;
      memmove(card->failed[k], card->failed[k + 1],
              (size_t)(card->failures - k) * sizeof *card->failed);
      k--;
    }
  }
}

static void count_failure(brim_lab_place *place, brim_lab_place_card *card, const char *exp,
                          brim_failure failure) {
  if (failed_elsewhere(place, exp, card->index)) {
    uncount(place, exp);
    return;
  }
  for (int i = 0; i < card->failures; i++) {
    if (strcmp(card->failed[i], exp) == 0) return;  // the same one again
  }
  if (card->failures < BRIM_LAB_PLACE_FAILURES) {
    memcpy(card->failed[card->failures++], exp, strlen(exp) + 1);
  }
  if (card->failures < BRIM_LAB_PLACE_FAILURES) return;
  char reason[BRIM_LAB_PLACE_TEXT];
  snprintf(reason, sizeof reason, brim_tr("%d experiments in a row failed on it, the last by: %s"),
           card->failures, brim_tr(brim_failure_name(failure)));
  brim_lab_place_card_retire(card, reason);
}

// Several at once under MPS: the fault of one ends all of them, and shows as theirs.
static bool packing_is_suspect(brim_lab_place_card *card) {
  bool suspect = (card->mps && !card->mps_refused) || card->jobs > 1;
  if (!suspect) return false;
  brim_log_warn("lab", "GPU %d: an experiment failed beside others; from here on one at a time",
                card->index);
  card->mps_refused = true;
  brim_lab_pack_stop(&card->pack);
  return true;
}

static void note_end(brim_lab_place *place, brim_lab_place_card *card,
                     const brim_lab_place_job *job, brim_lab_place_end end, brim_failure failure) {
  if (end == BRIM_LAB_PLACE_OK) {
    card->failures = 0;
  } else if (end == BRIM_LAB_PLACE_FAILED && blames_gpu(failure) && !packing_is_suspect(card)) {
    count_failure(place, card, job->exp, failure);
  }
}

static void leave(brim_lab_place *place, const brim_lab_place_job *job, brim_lab_place_card *card,
                  bool ran, int64_t now_ms) {
  card->jobs--;
  (void)job;
  if (card->jobs > 0) return;
  brim_lab_place_card_give(place, card, ran, now_ms);
  if (card->mps && card->mps_refused) {
    brim_lab_mps_stop(card->mps);
    card->mps = NULL;
  }
}

void brim_lab_place_ended(brim_lab_place *place, int64_t now_ms, const char *exp,
                          brim_lab_place_end end, brim_failure failure) {
  brim_lab_place_job *job = brim_lab_place_job_find(place, exp);
  if (!job) return;
  bool ran = end != BRIM_LAB_PLACE_UNUSED;
  if (job->cpu) place->cpu_taken--;
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    if (i == 0) brim_lab_pack_left(&card->pack, &job->pack, now_ms);
    note_end(place, card, job, end, failure);
    leave(place, job, card, ran, now_ms);
  }
  place->job_count--;
  *job = place->jobs[place->job_count];
}
