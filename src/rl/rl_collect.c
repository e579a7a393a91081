// Collected rollouts on the CPU (brim_collect_table). Threads share the environments; the loops of the
// environment's row run them (brim_env_row.collect). The number of threads changes no bit.
#include "rl/rl_collect.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "rl/rl_collect_plan.h"
#include "rl/rl_int.h"

static brim_status check_shape(const brim_collect_shape *shape) {
  const char *problem = brim_collect_problem(shape);
  if (problem) return brim_fail(BRIM_EINVAL, "%s", brim_tr(problem));
  if (brim_collect_sizes(shape).kind != BRIM_ENV_DISCRETE || !shape->row->collect) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "environment %s has continuous actions, but this needs discrete ones",
                     shape->row->name);
  }
  return BRIM_OK;
}

static brim_status layout(const brim_collect_shape *shape, brim_collect_layout *out) {
  BRIM_TRY(check_shape(shape));
  const int32_t stored = shape->row->collect()->stored(shape->env.bytes);
  if (stored < 1) {
    return brim_fail(BRIM_EABI,
                     "environment %s: its sizes are larger than the capacities of its header, or a "
                     "state stores no bytes",
                     shape->row->name);
  }
  brim_collect_layout_of(shape, stored, out);
  return BRIM_OK;
}

typedef struct range_call {
  brim_collect_work work;
  brim_collect_fn fn;
} range_call;

static brim_status work_of(const brim_collect_shape *shape, void *block, brim_collect_work *out) {
  brim_collect_layout offsets;
  BRIM_TRY(layout(shape, &offsets));
  const int32_t stored = shape->row->collect()->stored(shape->env.bytes);
  *out = (brim_collect_work){.env = shape->env.bytes,
                             .task = brim_collect_task_of(shape, &offsets, stored, block),
                             .rows = (int64_t)offsets.slots * shape->num_envs};
  return BRIM_OK;
}

static void run_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const range_call *c = ctx;
  c->fn(&c->work, begin, end);
}

// Waking threads takes 5 to 50 us, more beside other programs: work of about 100 us stays on one thread.
enum { ALONE_NS = 100000 };

// Runs fn over `count` environments or rows that take about each_ns nanoseconds each.
static brim_status over_threads(const brim_rollout_where *where, const brim_collect_work *work,
                                brim_collect_fn fn, int64_t count, int64_t each_ns) {
  range_call c = {.work = *work, .fn = fn};
  if (count <= 1 || count * each_ns < ALONE_NS) {
    run_range(&c, 0, count, 0);
    return BRIM_OK;
  }
  brim_pool *pool;
  BRIM_TRY(brim_rl_pool(where, &pool));
  brim_pool_run(pool, count, run_range, &c);
  brim_rl_pool_done(where, pool);
  return BRIM_OK;
}

// Estimated nanoseconds to write a row of a view, at about 1 ns a number.
static int64_t look_ns(const brim_collect_task *c, const brim_collect_view *view) {
  const int64_t actor = view->actor.data ? (int64_t)c->agents * c->obs : 0;
  return 10 + actor + (view->critic.data ? c->critic : 0) + (view->mask ? 5 * c->agents : 0);
}

// Estimated nanoseconds to step an environment.
static int64_t move_ns(const brim_collect_task *c) {
  return 20 + 30 * (int64_t)c->agents + c->state_bytes / 8;
}

static brim_status check_step(const brim_collect_shape *shape, int32_t t) {
  if (t >= 0 && t < shape->steps) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "step %d is not one of the %d of a rollout", t, shape->steps);
}

//---------------------------------- the table ----------------------------------

static brim_status reset(const brim_rollout_where *where, const brim_collect_shape *shape,
                         void *block) {
  brim_collect_layout offsets;
  brim_collect_work w;
  BRIM_TRY(layout(shape, &offsets));
  BRIM_TRY(work_of(shape, block, &w));
  memset((char *)block + offsets.saved[1].offset, 0, offsets.saved[1].bytes);
  return over_threads(where, &w, shape->row->collect()->reset, shape->num_envs, move_ns(&w.task));
}

static brim_status begin(const brim_rollout_where *where, const brim_collect_shape *shape,
                         void *block) {
  (void)where;
  brim_collect_work w;
  BRIM_TRY(work_of(shape, block, &w));
  const brim_collect_task *c = &w.task;
  memcpy(brim_collect_state(c, 0), brim_collect_state(c, (int64_t)c->steps * c->envs),
         (size_t)c->envs * (size_t)c->state_bytes);
  c->clock->now = c->clock->next;
  c->clock->next += (uint64_t)c->steps;
  return BRIM_OK;
}

// Writes the observations of a view.
static brim_status look(const brim_rollout_where *where, const brim_collect_shape *shape,
                        void *block, const brim_collect_view *view) {
  brim_collect_layout offsets;
  brim_collect_work w;
  BRIM_TRY(layout(shape, &offsets));
  BRIM_TRY(work_of(shape, block, &w));
  const char *problem = brim_collect_view_problem(&offsets, shape->num_envs, w.task.obs, view);
  if (problem) return brim_fail(BRIM_EINVAL, "%s", brim_tr(problem));
  w.view = view;
  return over_threads(where, &w, shape->row->collect()->look, view->count, look_ns(&w.task, view));
}

static brim_status choose(const brim_rollout_where *where, const brim_collect_shape *shape,
                          void *block, int32_t t, int32_t rule) {
  brim_collect_work w;
  BRIM_TRY(work_of(shape, block, &w));
  BRIM_TRY(check_step(shape, t));
  const int32_t rules = brim_env_rule_count(shape->row);
  if (rule < 0 || rule > rules) {
    return brim_fail(BRIM_EINVAL, "baseline %d is not one of the %d of environment %s", rule, rules,
                     shape->row->name);
  }
  w.t = t;
  w.rule = rule;
  return over_threads(where, &w, shape->row->collect()->choose, shape->num_envs, move_ns(&w.task));
}

static brim_status step(const brim_rollout_where *where, const brim_collect_shape *shape,
                        void *block, int32_t t) {
  brim_collect_work w;
  BRIM_TRY(work_of(shape, block, &w));
  BRIM_TRY(check_step(shape, t));
  w.t = t;
  return over_threads(where, &w, shape->row->collect()->step, shape->num_envs, move_ns(&w.task));
}

static void add(const brim_collect_tally *from, int32_t count, brim_collect_tally *out) {
  for (int32_t word = 0; word < BRIM_COLLECT_WORDS; word++) {
    brim_collect_add_word(from, count, word, out);
  }
}

// Sums each part of BRIM_ROLLOUT_PART environments, then the parts, in the same order as the kernels.
static brim_status tally(const brim_rollout_where *where, const brim_collect_shape *shape,
                         void *block, int32_t clear) {
  (void)where;
  brim_collect_work w;
  BRIM_TRY(work_of(shape, block, &w));
  const brim_collect_task *c = &w.task;
  const int32_t parts = brim_rollout_parts(c->envs);
  for (int32_t p = 0; p < parts; p++) {
    const int32_t first = p * BRIM_ROLLOUT_PART, left = c->envs - first;
    add(c->sums + first, left < BRIM_ROLLOUT_PART ? left : BRIM_ROLLOUT_PART, &c->parts[p]);
  }
  add(c->parts, parts, c->tally);
  if (clear) memset(c->sums, 0, (size_t)c->envs * sizeof *c->sums);
  return BRIM_OK;
}

const brim_collect_table *brim_collect_cpu(void) {
  static const brim_collect_table table = {
      .abi = BRIM_COLLECT_ABI,
      .layout = layout,
      .reset = reset,
      .begin = begin,
      .look = look,
      .choose = choose,
      .step = step,
      .tally = tally,
  };
  return &table;
}

//---------------------------------- from a checkpoint ----------------------------------

static bool track_valid(const brim_collect_shape *shape, const brim_collect_track *k) {
  return isfinite(k->reward) && k->episode >= 0 && k->episode < INT32_MAX && k->step >= 0 &&
         k->step < shape->episode_length;
}

brim_status brim_collect_check_saved(const brim_collect_shape *shape, const void *states,
                                     const void *carried) {
  brim_collect_layout offsets;
  BRIM_TRY(layout(shape, &offsets));
  const char *tracks = (const char *)carried + (offsets.tracks - offsets.saved[1].offset);
  void *state = brim_alloc(offsets.state_bytes);  // aligned
  if (!state) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the environments");
  int32_t e = 0;
  for (; e < shape->num_envs; e++) {
    brim_collect_track k;
    memcpy(&k, tracks + (size_t)e * sizeof k, sizeof k);
    memcpy(state, (const char *)states + (size_t)e * offsets.state_bytes, offsets.state_bytes);
    if (!track_valid(shape, &k)) break;
    if (shape->row->valid && !shape->row->valid(shape->env.bytes, state)) break;
  }
  brim_free(state);
  if (e == shape->num_envs) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "the state of environment %d is not one of %s: the file is damaged",
                   (int)e, shape->row->name);
}

void brim_collect_frame(const brim_collect_shape *shape, const void *block, int64_t row,
                        float *out) {
  brim_collect_layout offsets;
  const brim_collect_each *each = shape->row->collect();
  brim_collect_layout_of(shape, each->stored(shape->env.bytes), &offsets);
  each->frame(shape->env.bytes,
              (const char *)block + offsets.states + (size_t)row * offsets.state_bytes, out);
}
