// Opening, the clock, and what the sweep shows of its devices.
#include "lab/lab_place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_place_int.h"

enum {
  READ_MS = 1000,
  RETURN_READ_MS = 200,  // while memory is being returned
  DEFAULT_RETURN_MS = 60000,
  DEFAULT_WARMUP_MS = 5000,
  DEFAULT_WINDOW_MS = 20000
};

static brim_status copy_text(brim_lab_place *place, size_t i, const char *from,
                             const char *fallback, const char **to) {
  if (!from) from = fallback;
  place->texts[i] = from ? brim_strdup(from) : NULL;
  *to = place->texts[i];
  if (from && !*to) return brim_fail(BRIM_ENOMEM, "out of memory for the devices of a sweep");
  return BRIM_OK;
}

static brim_status copy_options(brim_lab_place *place, const brim_lab_place_options *from) {
  brim_lab_place_options *o = &place->options;
  *o = *from;
  BRIM_TRY(copy_text(place, 0, from->store, "", &o->store));
  BRIM_TRY(copy_text(place, 1, from->devices, "auto", &o->devices));
  BRIM_TRY(copy_text(place, 2, from->visible, NULL, &o->visible));
  BRIM_TRY(copy_text(place, 3, from->lock_dir, "/tmp", &o->lock_dir));
  BRIM_TRY(copy_text(place, 4, from->run_dir, "/tmp", &o->run_dir));
  BRIM_TRY(copy_text(place, 5, from->mps_program, "nvidia-cuda-mps-control", &o->mps_program));
  BRIM_TRY(copy_text(place, 6, from->root, "", &o->root));
  if (o->cores < 1) o->cores = 1;
  if (o->jobs < 1) o->jobs = 1;
  if (o->per_gpu == 0) o->per_gpu = 1;
  if (o->return_ms <= 0) o->return_ms = DEFAULT_RETURN_MS;
  if (o->warmup_ms <= 0) o->warmup_ms = DEFAULT_WARMUP_MS;
  if (o->window_ms <= 0) o->window_ms = DEFAULT_WINDOW_MS;
  return BRIM_OK;
}

static brim_status set_up(brim_lab_place *place) {
  const brim_lab_place_options *o = &place->options;
  BRIM_TRY(brim_lab_place_list(place));
  brim_lab_place_mask mask;
  BRIM_TRY(brim_lab_place_parse(place, o->devices, &mask));
  place->cpu_allowed = mask.cpu;
  place->cpu_slots = mask.cpu ? o->jobs : 0;
  bool fixed = o->per_gpu != BRIM_LAB_PLACE_AUTO;
  int most = fixed && o->per_gpu < BRIM_LAB_PLACE_PACKED ? o->per_gpu : BRIM_LAB_PLACE_PACKED;
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    card->allowed = (mask.cards >> i & 1) != 0;
    card->memory = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    card->base_used = card->base_free = card->base_foreign = (double)NAN;
    brim_lab_pack_init(&card->pack, most, fixed, o->warmup_ms, o->window_ms);
  }
  return BRIM_OK;
}

brim_status brim_lab_place_open(const brim_lab_place_options *options, brim_lab_place **out) {
  *out = NULL;
  brim_lab_place *place = (brim_lab_place *)brim_calloc(1, sizeof *place);
  if (!place) return brim_fail(BRIM_ENOMEM, "out of memory for the devices of a sweep");
  brim_status status = copy_options(place, options);
  if (!status) status = set_up(place);
  if (status) {
    brim_lab_place_close(place);
    return status;
  }
  *out = place;
  return BRIM_OK;
}

void brim_lab_place_close(brim_lab_place *place) {
  if (!place) return;
  for (int i = 0; i < place->card_count; i++) {
    if (place->cards[i].lock_fd >= 0) close(place->cards[i].lock_fd);
    brim_lab_mps_stop(place->cards[i].mps);
  }
  for (size_t i = 0; i < sizeof place->texts / sizeof *place->texts; i++)
    brim_free(place->texts[i]);
  brim_free(place->cards);
  brim_free(place->jobs);
  brim_free(place);
}

int64_t brim_lab_place_wait_ms(const brim_lab_place *place, int64_t now_ms) {
  int64_t period = READ_MS;
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    bool starting = card->mps && card->jobs == 0 && !card->mps_refused;
    if (card->returning || starting) period = RETURN_READ_MS;
  }
  if (!place->ticked) return 0;
  int64_t left = place->tick_ms + period - now_ms;
  return left > 0 ? left : 0;
}

brim_status brim_lab_place_tick(brim_lab_place *place, int64_t now_ms) {
  if (brim_lab_place_wait_ms(place, now_ms) > 0) return BRIM_OK;
  place->ticked = true;
  place->tick_ms = now_ms;
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!card->allowed && card->jobs == 0) continue;
    BRIM_TRY(brim_lab_place_card_read(place, card));
    brim_lab_place_card_update(place, card, now_ms);
  }
  return BRIM_OK;
}

const char *brim_lab_place_excess(brim_lab_place *place, int64_t now_ms) {
  (void)now_ms;
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    if (card->pack.shed < 1 || card->jobs <= card->pack.limit) continue;
    const brim_lab_place_job *youngest = NULL;
    for (size_t k = 0; k < place->job_count; k++) {
      const brim_lab_place_job *job = &place->jobs[k];
      if (job->card_count != 1 || job->cards[0] != i) continue;
      if (!youngest || job->number > youngest->number) youngest = job;
    }
    if (youngest) return youngest->exp;
  }
  return NULL;
}

//---------------------------------- seeing ----------------------------------

static const brim_lab_place_card *card_at(const brim_lab_place *place, size_t i) {
  for (int k = 0; k < place->card_count; k++) {
    if (place->cards[k].allowed && i-- == 0) return &place->cards[k];
  }
  return NULL;
}

size_t brim_lab_place_count(const brim_lab_place *place) {
  size_t count = 0;
  while (card_at(place, count)) count++;
  return count;
}

void brim_lab_place_get(const brim_lab_place *place, size_t i, brim_lab_place_gpu *out) {
  const brim_lab_place_card *card = card_at(place, i);
  *out = (brim_lab_place_gpu){
      .total_bytes = (double)NAN, .free_bytes = (double)NAN, .gain = (double)NAN};
  if (!card) return;
  out->index = card->index;
  snprintf(out->uuid, sizeof out->uuid, "%s", card->uuid);
  snprintf(out->name, sizeof out->name, "%s", card->name);
  out->state = brim_lab_place_card_state(place, card);
  const char *reason = out->state == BRIM_LAB_PLACE_FOREIGN  ? card->holder
                       : out->state == BRIM_LAB_PLACE_LOCKED ? card->locked_by
                       : out->state == BRIM_LAB_PLACE_OUT    ? card->reason
                                                             : "";
  snprintf(out->reason, sizeof out->reason, "%s", reason);
  out->total_bytes = card->memory.total;
  out->free_bytes = card->memory.free;
  out->jobs = card->jobs;
  out->limit = card->pack.limit;
  out->mps = card->mps && !card->mps_refused;
  out->measuring = card->pack.phase != BRIM_LAB_PACK_HOLD;
  out->gain = card->pack.gain;
  out->failures = card->failures;
}

void brim_lab_place_cpu(const brim_lab_place *place, int *slots, int *taken) {
  *slots = place->cpu_slots;
  *taken = place->cpu_taken;
}

brim_status brim_lab_place_restore(brim_lab_place *place, const char *device) {
  brim_lab_place_mask mask;
  BRIM_TRY(brim_lab_place_parse(place, device, &mask));
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if ((mask.cards >> i & 1) == 0 || !card->out) continue;
    card->out = false;
    card->failures = card->misses = 0;
    card->reason[0] = '\0';
    brim_log_info("lab", "GPU %d (%s) is in service again", card->index, card->uuid);
  }
  return BRIM_OK;
}
