// The arrays of a sweep in Slurm, and which element is whose.
#include <stdio.h>
#include <string.h>

#include "lab/lab_sweep_slurm.h"

enum { TELL_MS = 60000 };  // between messages of trouble

brim_status brim_lab_slurm_no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the arrays of a sweep");
}

brim_status brim_lab_slurm_add(brim_lab_slurm *m, brim_slurm_array *array, brim_lab_array **out) {
  brim_lab_array *a = brim_calloc(1, sizeof *a);
  if (a) a->elements = brim_calloc(array->count, sizeof *a->elements);
  if (m->count == m->cap && a && a->elements) {
    size_t cap = m->cap ? 2 * m->cap : 16;
    brim_lab_array **more = brim_realloc(m->arrays, cap * sizeof *more);
    if (more) m->arrays = more;
    if (more) m->cap = cap;
  }
  if (!a || !a->elements || m->count == m->cap) {
    if (a) brim_free(a->elements);
    brim_free(a);
    return brim_lab_slurm_no_memory();
  }
  a->is = *array;
  *array = (brim_slurm_array){0};
  a->open = a->is.count;
  a->made_ms = brim_lab_now_ms();
  for (size_t i = 0; i < a->is.count; i++) {
    a->elements[i].state = BRIM_SLURM_WAITING;
    a->elements[i].over = a->is.exps[i].over;
    a->open -= a->is.exps[i].over;
  }
  m->arrays[m->count++] = a;
  m->indexed = false;
  *out = a;
  return BRIM_OK;
}

void brim_lab_slurm_free(brim_lab_array *a) {
  brim_slurm_array_deinit(&a->is);
  brim_free(a->elements);
  brim_free(a);
}

void brim_lab_slurm_drop(brim_lab_slurm *m, brim_lab_array *a) {
  for (size_t i = 0; i < m->count; i++) {
    if (m->arrays[i] != a) continue;
    memmove(&m->arrays[i], &m->arrays[i + 1], (m->count - i - 1) * sizeof *m->arrays);
    m->count--;
    break;
  }
  m->indexed = false;
  brim_slurm_array_remove(m->folder, a->is.name);
  brim_lab_slurm_free(a);
}

brim_status brim_lab_slurm_index(brim_lab_slurm *m) {
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
      if (a->elements[i].over || brim_lab_ids_find(&m->live, a->is.exps[i].id, &at)) continue;
      brim_lab_ids_add(&m->live, a->is.exps[i].id, k * BRIM_LAB_SLURM_LARGEST + i);
    }
  }
  m->indexed = true;
  return BRIM_OK;
}

brim_lab_element *brim_lab_slurm_find(const brim_lab_slurm *m, const char *exp,
                                      brim_lab_array **array) {
  size_t at = 0;
  if (!m->indexed || m->count == 0 || !brim_lab_ids_find(&m->live, exp, &at)) return NULL;
  brim_lab_array *a = m->arrays[at / BRIM_LAB_SLURM_LARGEST];
  if (array) *array = a;
  return &a->elements[at % BRIM_LAB_SLURM_LARGEST];
}

void brim_lab_slurm_trouble(brim_lab_sweep *s, const char *what) {
  brim_lab_slurm *m = s->slurm;
  int64_t now = brim_lab_now_ms();
  char why[256];
  if (m->told_ms > 0 && now - m->told_ms < TELL_MS) return;
  m->told_ms = now;
  brim_slurm_why(&m->command, why, sizeof why);
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("Slurm's %s failed; brim tries again: %.250s"),
               what, why);
}
