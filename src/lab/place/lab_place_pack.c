// Packing: windows of joint throughput, and the climb over them (lab_place_int.h).

#include <math.h>
#include <string.h>

#include "lab/place/lab_place_int.h"

static const double PAYS = 1.05;
enum { WAIT_FACTOR = 4 };  // a slow experiment delays a decision by at most so many windows

//---------------------------------- windows ----------------------------------

static brim_lab_pack_kind *kind_of(brim_lab_pack_window *w, uint64_t kind) {
  for (size_t i = 0; i < w->kind_count; i++) {
    if (w->kinds[i].kind == kind) return &w->kinds[i];
  }
  if (w->kind_count == BRIM_LAB_PACK_KINDS) return NULL;
  brim_lab_pack_kind *k = &w->kinds[w->kind_count++];
  *k = (brim_lab_pack_kind){.kind = kind};
  return k;
}

static void pass(brim_lab_pack *pack, int64_t now_ms) {
  if (now_ms > pack->now_ms) {
    if (pack->phase == BRIM_LAB_PACK_WINDOW) {
      double seconds = (double)(now_ms - pack->now_ms) * 1e-3;
      pack->job_seconds += pack->jobs * seconds;
      pack->step_seconds += pack->stepping * seconds;
    }
    pack->now_ms = now_ms;
  }
}

// Adds the steps since the last report to the window, if all of them lie in it. The start of an experiment does not
// count: the number of experiments that make steps shows what starts cost.
static void count(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step, int64_t now_ms) {
  bool inside = pack->phase == BRIM_LAB_PACK_WINDOW && job->stepped && step >= job->step &&
                job->time_ms >= pack->trial.start_ms && now_ms > job->time_ms;
  brim_lab_pack_kind *k = inside ? kind_of(&pack->trial, job->kind) : NULL;
  if (!k) return;
  k->steps += (double)(step - job->step);
  k->seconds += (double)(now_ms - job->time_ms) * 1e-3;
}

// Mean ratio of each kind's rate to its rate in the earlier window, weighted by time. NaN: no kind is in both.
static double rate_share(const brim_lab_pack_window *before, const brim_lab_pack_window *after) {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < after->kind_count; i++) {
    const brim_lab_pack_kind *a = &after->kinds[i], *b = NULL;
    for (size_t k = 0; k < before->kind_count; k++) {
      if (before->kinds[k].kind == a->kind) b = &before->kinds[k];
    }
    if (!b || b->seconds <= 0 || b->steps <= 0 || a->seconds <= 0) continue;
    sum += a->steps / a->seconds / (b->steps / b->seconds) * a->seconds;
    weight += a->seconds;
  }
  return weight > 0 ? sum / weight : (double)NAN;
}

static bool has_steps(const brim_lab_pack_window *w) {
  for (size_t i = 0; i < w->kind_count; i++) {
    if (w->kinds[i].steps > 0 && w->kinds[i].seconds > 0) return true;
  }
  return false;
}

//---------------------------------- the climb ----------------------------------

static void warm(brim_lab_pack *pack) {
  pack->phase = BRIM_LAB_PACK_WARM;
  pack->warm_since_ms = pack->now_ms;
  pack->peak = pack->jobs;
}

static void decide(brim_lab_pack *pack, const brim_lab_pack_window *w) {
  for (size_t i = 0; i < w->kind_count; i++) {
    bool known = false;
    for (size_t k = 0; k < pack->decided_count; k++) known |= pack->decided[k] == w->kinds[i].kind;
    if (!known && pack->decided_count < BRIM_LAB_PACK_KINDS) {
      pack->decided[pack->decided_count++] = w->kinds[i].kind;
    }
  }
}

static void hold(brim_lab_pack *pack) {
  pack->limit = pack->kept > 0 ? pack->kept : 1;
  pack->phase = BRIM_LAB_PACK_HOLD;
}

// The next limit to try, or the end of the climb.
static void climb(brim_lab_pack *pack) {
  if (pack->kept + pack->step > pack->most) pack->step = pack->most - pack->kept;
  if (pack->step < 1) {
    hold(pack);
    return;
  }
  pack->limit = pack->kept + pack->step;
  warm(pack);
}

static void keep(brim_lab_pack *pack, int reached, double gain) {
  pack->kept = reached;
  pack->base = pack->trial;
  pack->base.valid = true;
  pack->gain = pack->window_gain = gain;
}

static void evaluate(brim_lab_pack *pack) {
  brim_lab_pack_window *w = &pack->trial;
  decide(pack, w);
  if (!pack->base.valid) {
    int reached = (int)(w->population + 0.5);
    double gain = reached <= 1 ? 1 : (double)NAN;
    keep(pack, reached < 1 ? 1 : reached, gain);
    climb(pack);
    return;
  }
  double share = rate_share(&pack->base, w);
  double ratio = share * w->stepping / pack->base.stepping;
  if (isnan(ratio)) {  // other kinds than before: measure again at the old limit
    pack->base.valid = false;
    pack->limit = pack->kept;
    if (++pack->retries >= BRIM_LAB_PACK_RETRIES) {
      hold(pack);
    } else {
      warm(pack);
    }
    return;
  }
  bool pays = ratio > PAYS;
  if (pays) {
    int reached = (int)(w->population + 0.5);
    keep(pack, reached < pack->limit ? reached : pack->limit, pack->window_gain * ratio);
    pack->step = pack->bracketed ? pack->step / 2 : pack->step * 2;
  } else {
    pack->bracketed = true;
    pack->step /= 2;
  }
  climb(pack);
  if (!pays && pack->jobs > pack->limit) pack->shed = pack->jobs - pack->limit;
}

//---------------------------------- what happens ----------------------------------

void brim_lab_pack_init(brim_lab_pack *pack, int most, bool fixed, int64_t warmup_ms,
                        int64_t window_ms) {
  memset(pack, 0, sizeof *pack);
  pack->most = most < 1 ? 1 : most;
  pack->warmup_ms = warmup_ms;
  pack->window_ms = window_ms;
  pack->limit = fixed ? pack->most : 1;
  pack->kept = fixed ? pack->most : 0;
  pack->step = 1;
  pack->phase = fixed || pack->most == 1 ? BRIM_LAB_PACK_HOLD : BRIM_LAB_PACK_WARM;
  pack->retries = fixed ? BRIM_LAB_PACK_RETRIES : 0;
  pack->gain = pack->window_gain = (double)NAN;
}

// A kind that no window has seen starts the climb again, from half of the limit it reached.
static void note_kind(brim_lab_pack *pack, uint64_t kind) {
  if (pack->phase != BRIM_LAB_PACK_HOLD || pack->retries >= BRIM_LAB_PACK_RETRIES) return;
  if (pack->most == 1) return;
  for (size_t i = 0; i < pack->decided_count; i++) {
    if (pack->decided[i] == kind) return;
  }
  pack->retries++;
  pack->limit = pack->limit > 1 ? pack->limit / 2 : 1;
  pack->kept = 0;
  pack->step = pack->limit;
  pack->bracketed = false;
  pack->base.valid = false;
  warm(pack);
}

void brim_lab_pack_joined(brim_lab_pack *pack, brim_lab_pack_job *job, uint64_t kind,
                          int64_t now_ms) {
  pass(pack, now_ms);
  *job = (brim_lab_pack_job){.kind = kind, .time_ms = now_ms, .step = -1};
  note_kind(pack, kind);
  pack->jobs++;
  // One more than before changes caches, clocks and the rates of the others. One that replaces an
  // ended one does not.
  if (pack->phase == BRIM_LAB_PACK_WARM && pack->jobs > pack->peak) {
    pack->peak = pack->jobs;
    pack->warm_since_ms = now_ms;
  }
}

void brim_lab_pack_stepped(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step,
                           int64_t now_ms) {
  pass(pack, now_ms);
  if (step == job->step) return;  // the same report, read again
  count(pack, job, step, now_ms);
  if (!job->stepped && job->step >= 0 && step > job->step) {
    job->stepped = true;
    pack->stepping++;
  }
  job->step = step;
  job->time_ms = now_ms;
}

void brim_lab_pack_left(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t now_ms) {
  pass(pack, now_ms);
  pack->jobs--;
  if (job->stepped) pack->stepping--;
  if (pack->shed > 0) pack->shed--;
}

static void begin_window(brim_lab_pack *pack) {
  pack->phase = BRIM_LAB_PACK_WINDOW;
  pack->job_seconds = pack->step_seconds = 0;
  pack->trial = (brim_lab_pack_window){.start_ms = pack->now_ms};
}

static void end_window(brim_lab_pack *pack) {
  double seconds = (double)(pack->now_ms - pack->trial.start_ms) * 1e-3;
  brim_lab_pack_window *w = &pack->trial;
  w->population = seconds > 0 ? pack->job_seconds / seconds : 0;
  w->stepping = seconds > 0 ? pack->step_seconds / seconds : 0;
  // too few experiments ran: the window shows nothing
  double least = pack->base.valid ? pack->base.population + 0.5 : 0.5;
  if (!has_steps(w) || w->population < least) {
    warm(pack);
    return;
  }
  evaluate(pack);
}

// True if steps cover at least half of the time in which experiments made steps, or the window has
// waited long enough.
static bool window_is_seen(const brim_lab_pack *pack) {
  double seen = 0, length = (double)(pack->now_ms - pack->trial.start_ms) * 1e-3;
  for (size_t i = 0; i < pack->trial.kind_count; i++) seen += pack->trial.kinds[i].seconds;
  return (seen > 0 && seen >= 0.5 * pack->step_seconds) ||
         length * 1e3 >= (double)pack->window_ms * WAIT_FACTOR;
}

// True if as many run as may run, since the warm-up time, and most of them make steps.
static bool is_warm(brim_lab_pack *pack, bool more) {
  if (pack->jobs > pack->limit) {  // the surplus ends or is stopped first
    pack->peak = pack->limit;
    pack->warm_since_ms = pack->now_ms;
    return false;
  }
  int least = pack->base.valid ? pack->kept + 1 : 1;
  if (pack->peak < least || (more && pack->peak < pack->limit)) return false;
  int64_t since = pack->now_ms - pack->warm_since_ms;
  bool step = pack->stepping > 0 && 4 * pack->stepping >= 3 * pack->jobs;
  return since >= pack->warmup_ms && (step || since >= WAIT_FACTOR * pack->window_ms);
}

void brim_lab_pack_tick(brim_lab_pack *pack, int64_t now_ms, bool more) {
  pass(pack, now_ms);
  if (pack->jobs <= pack->limit) pack->shed = 0;
  if (pack->phase == BRIM_LAB_PACK_WARM && is_warm(pack, more)) {
    begin_window(pack);
  } else if (pack->phase == BRIM_LAB_PACK_WINDOW &&
             now_ms - pack->trial.start_ms >= pack->window_ms && window_is_seen(pack)) {
    end_window(pack);
  }
}

void brim_lab_pack_stop(brim_lab_pack *pack) {
  pack->most = pack->limit = pack->kept = 1;
  pack->phase = BRIM_LAB_PACK_HOLD;
  pack->shed = 0;
  pack->gain = (double)NAN;
}
