// Phase sums from spans. A span that opens inside another stops the outer one's clock until it
// ends.
#include "profile/profile.h"

#include <string.h>

static void charge(brim_phase_timer *t, int64_t now_ns) {
  if (t->depth == 0) return;
  int top = t->depth - 1;
  brim_phase phase = t->stack[top].phase;
  t->ns[phase] += now_ns - t->stack[top].start_ns;
  t->used[phase] = true;
}

static void timer_begin(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  brim_phase_timer *t = (brim_phase_timer *)ctx;
  if (t->depth == BRIM_PHASE_TIMER_DEPTH) return;
  int64_t now_ns = brim_clock_now().ns;
  charge(t, now_ns);
  t->stack[t->depth].phase = phase;
  t->stack[t->depth].start_ns = now_ns;
  t->depth++;
}

static void timer_end(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  brim_phase_timer *t = (brim_phase_timer *)ctx;
  if (t->depth == 0 || t->stack[t->depth - 1].phase != phase) return;
  int64_t now_ns = brim_clock_now().ns;
  charge(t, now_ns);
  t->depth--;
  if (t->depth > 0) t->stack[t->depth - 1].start_ns = now_ns;
}

static void timer_add(void *ctx, brim_phase phase, brim_span_figure figure, int64_t ns) {
  brim_phase_timer *t = (brim_phase_timer *)ctx;
  int64_t *const sums[BRIM_SPAN_FIGURES] = {t->ns, t->busy_ns, t->moved_ns};
  int64_t *sum = &sums[figure][phase];
  if (*sum < 0) *sum = 0;
  *sum += ns;
  if (figure == BRIM_SPAN_TOOK) t->used[phase] = true;
}

static void forget(brim_phase_timer *t) {
  memset(t->ns, 0, sizeof t->ns);
  memset(t->used, 0, sizeof t->used);
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) t->busy_ns[i] = t->moved_ns[i] = -1;
}

void brim_phase_timer_init(brim_phase_timer *timer) {
  memset(timer, 0, sizeof *timer);
  forget(timer);
  timer->spans.ctx = timer;
  timer->spans.begin = timer_begin;
  timer->spans.end = timer_end;
  timer->spans.add = timer_add;
}

void brim_phase_timer_reset(brim_phase_timer *timer) {
  forget(timer);
  int64_t now_ns = brim_clock_now().ns;
  if (timer->depth > 0) timer->stack[timer->depth - 1].start_ns = now_ns;
}

int64_t brim_phase_timer_sum(const brim_phase_timer *timer) {
  int64_t sum = 0;
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) sum += timer->ns[i];
  return sum;
}

void brim_phase_timer_shares(const brim_phase_timer *timer, int64_t total_ns,
                             double share[BRIM_PHASE_COUNT]) {
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    share[i] = total_ns > 0 ? (double)timer->ns[i] / (double)total_ns : 0.0;
  }
  int64_t rest = total_ns - brim_phase_timer_sum(timer);
  if (total_ns > 0 && rest > 0) share[BRIM_PHASE_OTHER] += (double)rest / (double)total_ns;
}
