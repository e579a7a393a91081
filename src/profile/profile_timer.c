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

void brim_phase_timer_init(brim_phase_timer *timer) {
  memset(timer, 0, sizeof *timer);
  timer->spans.ctx = timer;
  timer->spans.begin = timer_begin;
  timer->spans.end = timer_end;
}

void brim_phase_timer_reset(brim_phase_timer *timer) {
  memset(timer->ns, 0, sizeof timer->ns);
  memset(timer->used, 0, sizeof timer->used);
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
