// A sweep at one moment: rows by id, counts, messages. JSON is in record_sweep_json.c.
#include "record/record_sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_sweep_int.h"

const char *brim_sweep_state_name(brim_sweep_state state) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_SWEEP_STATE_MAP(X)
#undef X
  };
  return (unsigned)state < BRIM_SWEEP_STATE_COUNT ? names[state] : "";
}

bool brim_sweep_state_of(const char *name, brim_sweep_state *out) {
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (strcmp(name, brim_sweep_state_name((brim_sweep_state)i)) != 0) continue;
    *out = (brim_sweep_state)i;
    return true;
  }
  return false;
}

bool brim_sweep_state_ended(brim_sweep_state state) {
  return state == BRIM_SWEEP_DONE || state == BRIM_SWEEP_FAILED || state == BRIM_SWEEP_CANCELLED;
}

const char *brim_sweep_gpu_state_name(brim_sweep_gpu_state state) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_SWEEP_GPU_STATE_MAP(X)
#undef X
  };
  return (unsigned)state < BRIM_SWEEP_GPU_STATE_COUNT ? names[state] : "";
}

const size_t brim_sweep_row_texts[BRIM_SWEEP_ROW_TEXTS] = {
    offsetof(brim_sweep_row, id),      offsetof(brim_sweep_row, label),
    offsetof(brim_sweep_row, group),   offsetof(brim_sweep_row, point),
    offsetof(brim_sweep_row, tags),    offsetof(brim_sweep_row, devices),
    offsetof(brim_sweep_row, host),    offsetof(brim_sweep_row, metric_key),
    offsetof(brim_sweep_row, message), offsetof(brim_sweep_row, waiting),
    offsetof(brim_sweep_row, grid),    offsetof(brim_sweep_row, owed),
};

static const char **text_at(brim_sweep_row *row, size_t i) {
  return (const char **)(void *)((char *)row + brim_sweep_row_texts[i]);
}

void brim_sweep_row_init(brim_sweep_row *row) {
  memset(row, 0, sizeof *row);
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) *text_at(row, i) = "";
  row->step = row->steps = row->epoch = row->epochs = -1;
  row->metric = row->best = row->steps_per_s = row->eta_s = NAN;
  row->created_s = row->started_s = row->ended_s = row->ran_s = row->since_s = NAN;
}

void brim_sweep_gpu_init(brim_sweep_gpu *gpu) {
  memset(gpu, 0, sizeof *gpu);
  gpu->memory_used = gpu->memory_total = gpu->gpu_percent = NAN;
  gpu->power_w = gpu->temperature_c = gpu->steps_per_s = NAN;
}

void brim_sweep_view_init(brim_sweep_view *view) {
  memset(view, 0, sizeof *view);
  view->now_s = view->started_s = NAN;
  view->done_per_h = view->steps_per_s = view->eta_s = NAN;
}

void brim_sweep_view_clear_rows(brim_sweep_view *view) {
  // All texts of a row lie in one block that begins with its id.
  for (size_t i = 0; i < view->row_count; i++) brim_free((char *)(uintptr_t)view->rows[i].id);
  view->row_count = 0;
  if (view->slots) memset(view->slots, 0, view->slot_count * sizeof *view->slots);
}

void brim_sweep_view_deinit(brim_sweep_view *view) {
  brim_sweep_view_clear_rows(view);
  brim_free(view->rows);
  brim_free(view->slots);
  brim_sweep_view_init(view);
}

//---------------------------------- rows ----------------------------------

// FNV-1a: ids are hashes already, but they come from outside.
static size_t hash_of(const char *id) {
  uint64_t hash = 14695981039346656037u;
  for (; *id; id++) hash = (hash ^ (unsigned char)*id) * 1099511628211u;
  return (size_t)(hash ^ hash >> 32);
}

// The slot of an id, or the empty one it would take. Slots have the row's place + 1; 0 = empty. There
// is always an empty one.
static size_t slot_of(const brim_sweep_view *view, const char *id) {
  size_t at = hash_of(id) & (view->slot_count - 1);
  while (view->slots[at] && strcmp(view->rows[view->slots[at] - 1].id, id) != 0) {
    at = (at + 1) & (view->slot_count - 1);
  }
  return at;
}

static brim_status grow(brim_sweep_view *view) {
  size_t cap = view->row_cap ? view->row_cap * 2 : 64, slot_count = cap * 2;
  if (cap >= UINT32_MAX) return brim_fail(BRIM_EINVAL, "too many experiments in one view");
  brim_sweep_row *rows = (brim_sweep_row *)brim_realloc(view->rows, cap * sizeof *rows);
  if (rows) view->rows = rows;
  uint32_t *slots = rows ? (uint32_t *)brim_calloc(slot_count, sizeof *slots) : NULL;
  if (!slots) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  brim_free(view->slots);
  view->slots = slots;
  view->slot_count = slot_count;
  view->row_cap = cap;
  for (size_t i = 0; i < view->row_count; i++) {
    view->slots[slot_of(view, view->rows[i].id)] = (uint32_t)(i + 1);
  }
  return BRIM_OK;
}

// A copy whose texts lie in one block.
static brim_status copy_row(const brim_sweep_row *row, brim_sweep_row *out) {
  size_t size = 0, used = 0;
  *out = *row;
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) {
    const char *text = *text_at(out, i);
    size += text ? strlen(text) + 1 : 1;
  }
  char *block = (char *)brim_alloc(size);
  if (!block) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) {
    const char **text = text_at(out, i);
    size_t n = *text ? strlen(*text) : 0;
    if (n) memcpy(block + used, *text, n);
    block[used + n] = '\0';
    *text = block + used;
    used += n + 1;
  }
  return BRIM_OK;
}

brim_status brim_sweep_view_put(brim_sweep_view *view, const brim_sweep_row *row) {
  if (!row->id || !*row->id) return brim_fail(BRIM_EINVAL, "an experiment has no id");
  if (view->row_count == view->row_cap) BRIM_TRY(grow(view));
  brim_sweep_row copy;
  BRIM_TRY(copy_row(row, &copy));
  size_t slot = slot_of(view, copy.id);
  if (view->slots[slot]) {
    brim_sweep_row *old = &view->rows[view->slots[slot] - 1];
    brim_free((char *)(uintptr_t)old->id);
    *old = copy;
  } else {
    view->rows[view->row_count++] = copy;
    view->slots[slot] = (uint32_t)view->row_count;
  }
  return BRIM_OK;
}

const brim_sweep_row *brim_sweep_view_find(const brim_sweep_view *view, const char *id) {
  if (view->slot_count == 0) return NULL;
  uint32_t at = view->slots[slot_of(view, id)];
  return at ? &view->rows[at - 1] : NULL;
}

void brim_sweep_view_count(brim_sweep_view *view) {
  memset(view->counts, 0, sizeof view->counts);
  for (size_t i = 0; i < view->row_count; i++) {
    unsigned state = (unsigned)view->rows[i].state;
    if (state < BRIM_SWEEP_STATE_COUNT) view->counts[state]++;
  }
}

int64_t brim_sweep_view_total(const brim_sweep_view *view) {
  int64_t total = 0;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) total += view->counts[i];
  return total;
}

//---------------------------------- messages, metrics ----------------------------------

void brim_sweep_view_say(brim_sweep_view *view, brim_sweep_level level, double when_s,
                         const char *exp, const char *text) {
  int64_t seq = view->message_count ? view->messages[view->message_count - 1].seq + 1 : 1;
  if (view->message_count == BRIM_SWEEP_MESSAGES) {
    memmove(view->messages, view->messages + 1, (BRIM_SWEEP_MESSAGES - 1) * sizeof *view->messages);
    view->message_count--;
  }
  brim_sweep_message *m = &view->messages[view->message_count++];
  *m = (brim_sweep_message){.seq = seq, .when_s = when_s, .level = level};
  brim_record_copy(m->exp, sizeof m->exp, exp ? exp : "");
  brim_record_copy(m->text, sizeof m->text, text);
}

const brim_sweep_metric *brim_sweep_view_metric(const brim_sweep_view *view, const char *key) {
  for (size_t i = 0; i < view->metric_count; i++) {
    if (strcmp(view->metrics[i].key, key) == 0) return &view->metrics[i];
  }
  return NULL;
}

static bool metric_in(const brim_metric_set *set, const char *key, brim_metric_file file,
                      brim_sweep_metric *out) {
  char name[BRIM_METRIC_NAME];
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    for (int stage = 0; stage < BRIM_METRIC_STAGES; stage++) {
      if (!brim_metric_name(row, (brim_metric_stage)stage, file, name)) continue;
      if (strcmp(name, key) != 0) continue;
      const char *label = stage == BRIM_METRIC_EVAL && row->eval_label     ? row->eval_label
                          : row->train_label && stage <= BRIM_METRIC_TRAIN ? row->train_label
                                                                           : row->label;
      *out =
          (brim_sweep_metric){.better = row->better, .format = row->format, .digits = row->digits};
      brim_record_copy(out->key, sizeof out->key, key);
      brim_record_copy(out->label, sizeof out->label, label && *label ? label : key);
      return true;
    }
  }
  return false;
}

bool brim_sweep_metric_of(const brim_metric_set *set, const char *key, brim_sweep_metric *out) {
  return metric_in(set, key, BRIM_METRIC_COLUMN, out) ||
         metric_in(set, key, BRIM_METRIC_TAG, out) || metric_in(set, key, BRIM_METRIC_EVENT, out);
}
