// Filling batches: workers share one batch at a time, a piece of its rows each, so that it is ready
// after a fraction of the time one of them would take. Claims are in the order of the rows and
// batches; what lies in a row is a function of (seed, epoch, position) alone.
#include <stdio.h>
#include <string.h>

#include "data/loader/data_loader_int.h"

// Batches from here on are written past the caches, which would not hold one until it is used
// (brim_copy_stream), with the next sample asked for in advance. On a Neoverse V1 only the asking
// counts: 4 % more rows of 41 kB a second in batches of 2048.
static const size_t STREAM_BYTES = (size_t)8 << 20;

//---------------------------------- claims ----------------------------------

// Whether an epoch has a batch at this position, and how many rows it has.
static int64_t rows_at(const brim_loader *l, int64_t position) {
  int64_t left = l->layout.samples - position;
  if (left >= l->options.batch) return l->options.batch;
  return l->layout.drop_last ? 0 : left;
}

static void tally_clear(brim_loader_tally *t) {
  t->read_ns = t->transform_ns = 0;
  memset(t->stage_ns, 0, sizeof t->stage_ns);
  t->broken = 0;
  t->broken_row = -1;
  t->status = BRIM_OK;
}

brim_loader_slot *brim_loader_open_locked(brim_loader *l) {
  brim_loader_slot *slot = NULL;
  for (size_t i = 0; i < l->layout.slots && !slot; i++) {
    if (l->slots[i].state == BRIM_LOADER_FREE) slot = &l->slots[i];
  }
  if (!slot) return NULL;
  int64_t rows = rows_at(l, l->cursor.position);
  if (rows == 0) {
    l->cursor = (brim_loader_cursor){.epoch = l->cursor.epoch + 1};
    rows = rows_at(l, 0);
  }
  slot->state = BRIM_LOADER_FILLING;
  slot->ticket = l->next_ticket++;
  slot->claimed = 0;
  slot->pending = 0;
  tally_clear(&slot->tally);
  slot->loaded.rows = rows;
  slot->loaded.epoch = l->cursor.epoch;
  slot->loaded.first = l->cursor.position;
  l->cursor.position += rows;
  slot->loaded.last = rows_at(l, l->cursor.position) == 0;
  return slot;
}

// Rows [begin, end) of a slot.
typedef struct loader_piece {
  brim_loader_slot *slot;
  int64_t begin, end;
} loader_piece;

static bool claim_locked(brim_loader *l, loader_piece *out) {
  if (!l->open) l->open = brim_loader_open_locked(l);
  brim_loader_slot *slot = l->open;
  if (!slot) return false;
  int64_t left = slot->loaded.rows - slot->claimed;
  int64_t rows = left < l->layout.piece ? left : l->layout.piece;
  *out = (loader_piece){.slot = slot, .begin = slot->claimed, .end = slot->claimed + rows};
  slot->claimed += rows;
  if (slot->claimed == slot->loaded.rows) l->open = NULL;
  slot->pending++;
  l->filling++;
  return true;
}

// One of several workers that fail tells; always the one with the first row, whichever worker came
// first.
static void tally_add(brim_loader_tally *to, const brim_loader_tally *from) {
  to->read_ns += from->read_ns;
  to->transform_ns += from->transform_ns;
  for (size_t i = 0; i < BRIM_LOADER_MAX_STAGES; i++) to->stage_ns[i] += from->stage_ns[i];
  to->broken += from->broken;
  if (from->broken && (to->broken_row < 0 || from->broken_row < to->broken_row)) {
    to->broken_row = from->broken_row;
    memcpy(to->broken_text, from->broken_text, sizeof to->broken_text);
  }
  if (from->status && (!to->status || from->failed_row < to->failed_row)) {
    to->status = from->status;
    to->failed_row = from->failed_row;
    memcpy(to->detail, from->detail, sizeof to->detail);
  }
}

static void finish_locked(brim_loader *l, brim_loader_slot *slot, const brim_loader_tally *tally) {
  tally_add(&slot->tally, tally);
  if (tally->status) {
    // Rows before it are all claimed; those after it would be read for nothing.
    slot->claimed = slot->loaded.rows;
    if (l->open == slot) l->open = NULL;
  }
  slot->pending--;
  l->filling--;
  if (slot->pending || slot->claimed < slot->loaded.rows) return;
  slot->loaded.io_ns = slot->tally.read_ns;
  slot->loaded.transform_ns = slot->tally.transform_ns;
  slot->state = BRIM_LOADER_READY;
}

//---------------------------------- rows ----------------------------------

// One sample into its row of the batch, all views of it; `next` is the one that will follow.
static brim_status fill_row(brim_loader_worker *w, brim_loaded *b, int64_t row, uint64_t index,
                            uint64_t next) {
  const brim_loader *l = w->loader;
  const brim_transforms *t = l->options.transforms;
  brim_source *source = l->source;
  size_t view_bytes = (size_t)l->options.batch * l->layout.output_bytes;
  uint8_t *out = (uint8_t *)b->input + (size_t)row * l->layout.output_bytes;
  void *target = b->target ? (uint8_t *)b->target + (size_t)row * source->target_bytes : NULL;
  if (!w->raw && l->layout.slot_bytes >= STREAM_BYTES && !source->info.varies) {
    return brim_source_stream(source, index, next, out, target);
  }
  if (!w->raw) return brim_source_read(source, index, 1, out, target, NULL, NULL);
  brim_time start = brim_clock_now();
  int64_t height, width;
  int scale = 1;
  if (source->info.varies) {
    BRIM_TRY(brim_source_size(source, index, &height, &width));
    scale = brim_transforms_scale(t, b->epoch, index, height, width);
  }
  BRIM_TRY(brim_source_read(source, index, scale, w->raw, target, &height, &width));
  brim_time read = brim_clock_now();
  int64_t *stage_ns = brim_transforms_count(t) <= BRIM_LOADER_MAX_STAGES ? w->tally.stage_ns : NULL;
  brim_transforms_view v = {.epoch = b->epoch, .index = index, .height = height, .width = width};
  for (; (int32_t)v.view < l->layout.views; v.view++) {
    brim_transforms_apply(t, &v, w->raw, out + (size_t)v.view * view_bytes, w->scratch, stage_ns);
  }
  w->tally.read_ns += brim_time_since_ns(start, read);
  w->tally.transform_ns += brim_time_since_ns(read, brim_clock_now());
  return BRIM_OK;
}

void brim_loader_advise(void) {
  char text[BRIM_LOADER_DETAIL];
  snprintf(text, sizeof text, "%s", brim_status_detail());
  brim_fail(BRIM_EIO,
            "%s; `brim data verify PATH` lists every broken record, data.on_error=skip skips them",
            text);
}

static void note_broken(brim_loader_tally *t, int64_t row) {
  if (t->broken++ == 0) {
    t->broken_row = row;
    snprintf(t->broken_text, sizeof t->broken_text, "%s", brim_status_detail());
  }
}

// The sample of a row or, where broken ones are left out, the next of the rank's order that can be
// read: p + 1, p + 2, ..., around the end of the epoch. So which one does not depend on which
// worker fills what, and a broken sample counts once for each time its turn comes.
static brim_status fill_position(brim_loader_worker *w, const loader_piece *piece, int64_t row,
                                 const brim_shuffle *order) {
  const brim_loader *l = w->loader;
  brim_loaded *b = &piece->slot->loaded;
  uint64_t *index = &piece->slot->index[row];
  uint64_t share = (uint64_t)l->layout.share, position = (uint64_t)(b->first + row);
  for (uint64_t k = 0; k < share; k++) {
    if (k > 0) *index = brim_loader_index(&l->options, order, (position + k) % share);
    brim_status status = fill_row(w, b, row, *index, index[row + 1 < piece->end]);
    if (!status) return BRIM_OK;
    // Memory that is short is no fault of the sample's, nor is a user who wants to stop.
    const bool innocent = status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
    if (!l->options.skip_broken || innocent) {
      if (!innocent) brim_loader_advise();
      if (l->options.once) return status;
      return brim_fail_context(status, "epoch %lld", (long long)b->epoch + 1);  // as it is shown
    }
    if (k == 0) note_broken(&w->tally, row);
  }
  return brim_fail(BRIM_EIO, "none of the %llu samples can be read; %s", (unsigned long long)share,
                   w->tally.broken_text);
}

// What the rows past the last one hold.
static void clear_rest(const brim_loader *l, brim_loader_slot *slot) {
  size_t rows = (size_t)slot->loaded.rows, rest = (size_t)l->options.batch - rows;
  uint8_t *input = slot->loaded.input, *target = slot->loaded.target;
  if (!rest) return;  // always so with several views
  memset(input + rows * l->layout.output_bytes, 0, rest * l->layout.output_bytes);
  if (target) {
    memset(target + rows * l->source->target_bytes, 0, rest * l->source->target_bytes);
  }
  memset(slot->index + rows, 0, rest * sizeof *slot->index);
}

// Without the lock: only this thread sees these rows. The result is the worker's tally.
static void fill_piece(brim_loader_worker *w, const loader_piece *piece) {
  const brim_loader *l = w->loader;
  brim_loader_slot *slot = piece->slot;
  brim_loader_tally *t = &w->tally;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, slot->loaded.epoch);
  tally_clear(t);
  brim_time start = brim_clock_now();
  for (int64_t row = piece->begin; row < piece->end; row++) {
    slot->index[row] = brim_loader_index(&l->options, &order, (uint64_t)(slot->loaded.first + row));
  }
  for (int64_t row = piece->begin; row < piece->end; row++) {
    t->status = fill_position(w, piece, row, &order);
    if (t->status) {
      t->failed_row = row;
      snprintf(t->detail, sizeof t->detail, "%s", brim_status_detail());
      break;
    }
  }
  // Samples that are only copied are not timed one by one.
  if (!w->raw) t->read_ns = brim_time_since_ns(start, brim_clock_now());
  if (piece->end == slot->loaded.rows) clear_rest(l, slot);
}

void brim_loader_fill_locked(brim_loader *l, brim_loader_slot *slot) {
  loader_piece piece = {.slot = slot, .end = slot->loaded.rows};
  slot->claimed = slot->loaded.rows;
  slot->pending = 1;
  l->filling++;
  fill_piece(&l->workers[0], &piece);
  finish_locked(l, slot, &l->workers[0].tally);
}

void brim_loader_worker_main(void *ctx) {
  brim_loader_worker *w = ctx;
  brim_loader *l = w->loader;
  pthread_mutex_lock(&l->lock);
  while (!l->stop) {
    loader_piece piece;
    if (l->paused || !claim_locked(l, &piece)) {
      pthread_cond_wait(&l->work, &l->lock);
      continue;
    }
    pthread_mutex_unlock(&l->lock);
    fill_piece(w, &piece);
    pthread_mutex_lock(&l->lock);
    finish_locked(l, piece.slot, &w->tally);
    if (piece.slot->state == BRIM_LOADER_READY || l->paused) pthread_cond_signal(&l->ready);
  }
  pthread_mutex_unlock(&l->lock);
}
