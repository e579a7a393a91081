// Which queued experiment starts where, and why the others wait.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_place_int.h"

static bool in_mask(const brim_lab_place_mask *mask, const brim_lab_place_card *card) {
  return card->allowed && (mask->cards >> card->index & 1) != 0;
}

static brim_lab_place_mask mask_of(const brim_lab_place *place, const brim_lab_place_want *want) {
  brim_lab_place_mask mask = {place->cpu_allowed, ~(uint64_t)0}, named;
  if (!want->device || !*want->device) return mask;
  if (brim_lab_place_parse(place, want->device, &named)) {
    brim_status_clear();
    return (brim_lab_place_mask){0};
  }
  named.cpu = named.cpu && place->cpu_allowed;
  return named;
}

static int64_t gpus_of(const brim_lab_place_want *want) { return want->gpus < 1 ? 1 : want->gpus; }

static bool is_free(const brim_lab_place *place, const brim_lab_place_card *card) {
  return brim_lab_place_card_state(place, card) == BRIM_LAB_PLACE_FREE;
}

// May become free without the help of others.
static bool is_usable(const brim_lab_place *place, const brim_lab_place_card *card) {
  brim_lab_place_state state = brim_lab_place_card_state(place, card);
  return state == BRIM_LAB_PLACE_FREE || state == BRIM_LAB_PLACE_BUSY ||
         state == BRIM_LAB_PLACE_RETURNING;
}

static bool exceeds(double need, double bytes) { return need > 0 && need > bytes; }  // NaN: no

//---------------------------------- taking ----------------------------------

static int thread_share(const brim_lab_place *place, const brim_lab_place_job *job) {
  int parts = job->cpu ? place->cpu_slots : 0;
  for (int i = 0; i < place->card_count && !job->cpu; i++) parts += place->cards[i].allowed;
  int threads = place->options.cores / (parts > 0 ? parts : 1);
  if (threads < 1) threads = 1;
  return job->cpu ? threads : threads * job->card_count;
}

static void add_fd(brim_lab_place_slot *slot, int fd) {
  if (fd >= 0 && slot->fd_count < BRIM_LAB_PLACE_FDS) slot->fds[slot->fd_count++] = fd;
}

static void fill_slot(const brim_lab_place *place, const brim_lab_place_job *job,
                      brim_lab_place_slot *slot) {
  *slot = (brim_lab_place_slot){.cpu = job->cpu, .threads = thread_share(place, job)};
  size_t at = 0;
  if (job->cpu) at = (size_t)snprintf(slot->devices, sizeof slot->devices, "cpu");
  for (int i = 0; i < job->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[job->cards[i]];
    at += (size_t)snprintf(slot->devices + at, sizeof slot->devices - at, "%s%s", i ? "," : "",
                           card->uuid);
    add_fd(slot, card->lock_fd);
    if (job->card_count > 1 || !card->mps || card->mps_refused) continue;
    add_fd(slot, brim_lab_mps_fd(card->mps));
    snprintf(slot->mps_pipe, sizeof slot->mps_pipe, "%s", brim_lab_mps_pipe(card->mps));
    slot->mps_percent = card->pack.limit > 1 ? 100 / card->pack.limit : 0;
  }
}

typedef struct chooser {
  brim_lab_place *place;
  int64_t now_ms;
  const brim_lab_place_want *want;
  brim_lab_place_mask mask;
  brim_lab_place_slot *slot;
} chooser;

// The cards are locked: the experiment has them.
static brim_status occupy(chooser *c, const int *cards, int count) {
  brim_lab_place *place = c->place;
  brim_lab_place_job *job = NULL;
  brim_status status = brim_lab_place_job_add(place, c->want, c->now_ms, &job);
  if (status) {
    for (int i = 0; i < count; i++) {
      brim_lab_place_card *card = &place->cards[cards[i]];
      if (card->jobs == 0) brim_lab_place_card_give(place, card, false, c->now_ms);
    }
    return status;
  }
  job->cpu = count == 0;
  job->card_count = count;
  for (int i = 0; i < count; i++) job->cards[i] = cards[i];
  brim_lab_place_job_join(place, job, c->want->kind, c->now_ms);
  fill_slot(place, job, c->slot);
  return BRIM_OK;
}

//---------------------------------- MPS ----------------------------------

// Several experiments may come to this GPU, and all of them have to be MPS's clients: it starts
// before the first. *wait: not ready yet.
static void prepare_mps(chooser *c, brim_lab_place_card *card, bool *wait) {
  brim_lab_place *place = c->place;
  const brim_lab_place_options *o = &place->options;
  *wait = false;
  if (o->per_gpu == 1 || o->no_mps || card->mps_refused || c->want->gpus > 1) return;
  if (card->pack.most < 2) return;
  if (!card->mps) {
    if (brim_lab_mps_start(o->mps_program, o->run_dir, card->uuid, c->now_ms, &card->mps)) {
      brim_log_warn("lab", "GPU %d: cannot use MPS, so experiments take turns: %s", card->index,
                    brim_status_detail());
      card->mps_refused = true;
      return;
    }
    card->mps_counted = false;
  }
  *wait = brim_lab_place_card_mps(card, c->now_ms) == BRIM_LAB_MPS_STARTING;
}

//---------------------------------- one GPU ----------------------------------

static brim_status take_one(chooser *c, brim_lab_place_card *card, bool *done) {
  int index = card->index;
  if (card->jobs == 0) {
    bool wait = false;
    prepare_mps(c, card, &wait);
    if (wait) return BRIM_OK;
    brim_status status = brim_lab_place_card_take(c->place, card, c->now_ms);
    if (status) return status == BRIM_ENOMEM ? status : BRIM_OK;  // the card says why
  }
  *done = true;
  return occupy(c, &index, 1);
}

static bool has_wide_job(const brim_lab_place *place, const brim_lab_place_card *card) {
  for (size_t i = 0; i < place->job_count; i++) {
    const brim_lab_place_job *job = &place->jobs[i];
    for (int k = 0; k < job->card_count && job->card_count > 1; k++) {
      if (job->cards[k] == card->index) return true;
    }
  }
  return false;
}

// Beside others: only where every plan is known and all of them fit.
static bool can_join(const brim_lab_place *place, const brim_lab_place_card *card,
                     const brim_lab_place_want *want) {
  return brim_lab_place_card_state(place, card) == BRIM_LAB_PLACE_BUSY && !card->reserved &&
         card->lock_fd >= 0 && card->foreign == 0 && card->jobs < card->pack.limit &&
         card->jobs < BRIM_LAB_PLACE_PACKED && want->need_bytes > 0 && !has_wide_job(place, card) &&
         brim_lab_place_card_fits(place, card, want->need_bytes);
}

static brim_status place_one(chooser *c, bool *done) {
  brim_lab_place *place = c->place;
  for (int i = 0; i < place->card_count && !*done; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(&c->mask, card) || card->reserved || !is_free(place, card)) continue;
    if (exceeds(c->want->need_bytes, card->memory.free)) continue;
    BRIM_TRY(take_one(c, card, done));
  }
  brim_lab_place_card *best = NULL;
  for (int i = 0; i < place->card_count && !*done; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(&c->mask, card) || !can_join(place, card, c->want)) continue;
    if (!best || card->jobs < best->jobs) best = card;
  }
  if (best) return take_one(c, best, done);
  if (*done || !c->mask.cpu || place->cpu_taken >= place->cpu_slots) return BRIM_OK;
  *done = true;
  return occupy(c, NULL, 0);
}

//---------------------------------- several GPUs ----------------------------------

// By how soon they can be had: free ones, then those with the fewest experiments.
static int gather(const chooser *c, int *out, int *free_count) {
  const brim_lab_place *place = c->place;
  int count = 0;
  *free_count = 0;
  for (int jobs = 0; jobs <= BRIM_LAB_PLACE_PACKED; jobs++) {
    for (int i = 0; i < place->card_count; i++) {
      const brim_lab_place_card *card = &place->cards[i];
      if (card->jobs != jobs || !in_mask(&c->mask, card) || card->reserved) continue;
      if (!is_usable(place, card) || exceeds(c->want->need_bytes, card->memory.total)) continue;
      if (!is_free(place, card)) continue;
      out[count++] = i;
    }
    if (jobs == 0) *free_count = count;
    for (int i = 0; i < place->card_count; i++) {
      const brim_lab_place_card *card = &place->cards[i];
      if (card->jobs != jobs || !in_mask(&c->mask, card) || card->reserved) continue;
      if (!is_usable(place, card) || exceeds(c->want->need_bytes, card->memory.total)) continue;
      if (is_free(place, card)) continue;
      out[count++] = i;
    }
  }
  return count;
}

static brim_status place_several(chooser *c, bool *done) {
  brim_lab_place *place = c->place;
  int cards[BRIM_LAB_PLACE_GPUS], free_count = 0;
  int count = gather(c, cards, &free_count);
  if (gpus_of(c->want) > BRIM_LAB_PLACE_K) return BRIM_OK;
  const int k = (int)gpus_of(c->want);
  if (count < k) return BRIM_OK;  // not by waiting: it reserves nothing
  int locked = 0;
  while (free_count >= k && locked < k) {
    brim_status status = brim_lab_place_card_take(place, &place->cards[cards[locked]], c->now_ms);
    if (status == BRIM_ENOMEM) return status;
    if (status) break;
    locked++;
  }
  if (locked == k) {
    *done = true;
    return occupy(c, cards, k);
  }
  for (int i = 0; i < locked; i++) {
    brim_lab_place_card_give(place, &place->cards[cards[i]], false, c->now_ms);
  }
  for (int i = 0; i < k; i++) place->cards[cards[i]].reserved = true;
  return BRIM_OK;
}

// Whether one that waits could join those on a GPU, if its limit allowed it: packing does not wait for
// others that do not fit.
static void note_more(brim_lab_place *place, const brim_lab_place_want *wants, size_t count) {
  for (int i = 0; i < place->card_count; i++) place->cards[i].more = false;
  for (size_t k = 0; k < count; k++) {
    if (wants[k].gpus > 1 || !(wants[k].need_bytes > 0)) continue;
    const brim_lab_place_mask mask = mask_of(place, &wants[k]);
    for (int i = 0; i < place->card_count; i++) {
      brim_lab_place_card *card = &place->cards[i];
      if (card->more || card->jobs == 0 || card->reserved || !in_mask(&mask, card)) continue;
      card->more = brim_lab_place_card_fits(place, card, wants[k].need_bytes);
    }
  }
}

brim_status brim_lab_place_choose(brim_lab_place *place, int64_t now_ms,
                                  const brim_lab_place_want *wants, size_t count, size_t *chosen,
                                  brim_lab_place_slot *slot) {
  *chosen = count;
  *slot = (brim_lab_place_slot){0};
  for (int i = 0; i < place->card_count; i++) place->cards[i].reserved = false;
  for (size_t i = 0; i < count; i++) {
    // its last executor may have reported, and not have ended
    if (brim_lab_place_job_find(place, wants[i].exp)) continue;
    chooser c = {place, now_ms, &wants[i], mask_of(place, &wants[i]), slot};
    bool done = false;
    brim_status status = wants[i].gpus > 1 ? place_several(&c, &done) : place_one(&c, &done);
    if (status) return status;
    if (done) {
      *chosen = i;
      return BRIM_OK;
    }
  }
  note_more(place, wants, count);
  return BRIM_OK;
}

//---------------------------------- why ----------------------------------

typedef struct tally {
  int named, usable, free_count, fitting, reserved;
  const brim_lab_place_card *only;  // a card that none of ours uses and that is closed
  double largest;                   // memory of the largest card
} tally;

static tally count_cards(const brim_lab_place *place, const brim_lab_place_want *want,
                         const brim_lab_place_mask *mask) {
  tally t = {0};
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(mask, card)) continue;
    t.named++;
    t.largest = fmax(t.largest, card->memory.total);
    if (!exceeds(want->need_bytes, card->memory.total)) t.fitting++;
    if (is_usable(place, card)) t.usable++;
    if (is_free(place, card)) t.free_count += !card->reserved;
    if (is_free(place, card)) t.reserved += card->reserved;
    if (!is_usable(place, card) && !t.only) t.only = card;
  }
  return t;
}

static void explain_closed(const brim_lab_place *place, const brim_lab_place_card *card, char *out,
                           size_t size) {
  switch (brim_lab_place_card_state(place, card)) {
    case BRIM_LAB_PLACE_FOREIGN:
      brim_msg_format(out, size, brim_tr("GPU %d is held by %s"), card->index, card->holder);
      break;
    case BRIM_LAB_PLACE_LOCKED:
      brim_msg_format(out, size, brim_tr("GPU %d is not free: %s"), card->index, card->locked_by);
      break;
    default:
      brim_msg_format(out, size, brim_tr("GPU %d is out of service: %s"), card->index,
                      card->reason);
      break;
  }
}

static bool explain_never(const tally *t, const brim_lab_place_want *want,
                          const brim_lab_place_mask *mask, char *out, size_t size) {
  char need[32], most[32];
  int64_t k = gpus_of(want);
  if (mask->cpu && k == 1) return false;
  if (t->named == 0) {
    snprintf(out, size, "%s", brim_tr("no device that it may use is here"));
  } else if (k > t->named || k > BRIM_LAB_PLACE_K) {
    brim_msg_format(out, size, brim_tr("needs %lld GPUs, and the sweep may use %d"), (long long)k,
                    t->named);
  } else if (t->fitting < k) {
    brim_format_bytes((uint64_t)want->need_bytes, need);
    brim_format_bytes((uint64_t)t->largest, most);
    brim_msg_format(out, size, brim_tr("needs %s on each GPU, and the largest has %s"), need, most);
  } else {
    return false;
  }
  return true;
}

bool brim_lab_place_never(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                          size_t size) {
  char text[BRIM_LAB_PLACE_TEXT];
  brim_lab_place_mask mask = mask_of(place, want);
  tally t = count_cards(place, want, &mask);
  bool never = explain_never(&t, want, &mask, text, sizeof text);
  if (never && out) snprintf(out, size, "%s", text);
  return never;
}

void brim_lab_place_why(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                        size_t size) {
  brim_lab_place_mask mask = mask_of(place, want);
  tally t = count_cards(place, want, &mask);
  int64_t k = gpus_of(want);
  if (explain_never(&t, want, &mask, out, size)) return;
  if (want->exp && brim_lab_place_job_find(place, want->exp)) {
    snprintf(out, size, "%s", brim_tr("its last process has not ended"));
  } else if (mask.cpu && t.named == 0 && place->cpu_slots == 1) {
    snprintf(out, size, "%s", brim_tr("the CPU runs another experiment"));
  } else if (mask.cpu && t.named == 0) {
    brim_msg_format(out, size, brim_tr("all %d CPU slots are taken"), place->cpu_slots);
  } else if (t.usable < k && t.only) {
    explain_closed(place, t.only, out, size);
  } else if (k > 1) {
    brim_msg_format(out, size,
                    t.free_count + t.reserved == 1 ? brim_tr("needs %lld GPUs, %d is free")
                                                   : brim_tr("needs %lld GPUs, %d are free"),
                    (long long)k, t.free_count + t.reserved);
  } else if (t.free_count == 0 && t.reserved > 0) {
    brim_msg_format(out, size, "%s",
                    brim_tr("a free GPU is reserved for an experiment that needs several"));
  } else if (t.free_count > 0 && want->need_bytes > 0) {
    char need[32];
    brim_format_bytes((uint64_t)want->need_bytes, need);
    brim_msg_format(out, size, brim_tr("needs %s, more than the free GPUs have left"), need);
  } else {
    snprintf(out, size, "%s", brim_tr("waits for a free GPU"));
  }
  brim_utf8_trim(out);
}
