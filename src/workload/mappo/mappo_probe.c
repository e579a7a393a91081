// What a rollout's pieces take on a GPU, by its own clock: a few steps of each, recorded and launched, scaled
// to the rollout. Two uses: a rollout on the GPU is one launch, in which nothing tells environment and actor
// apart; a rollout on the CPU learns what it would take on the GPU. Only steps that are measured phase by
// phase ask for it.
#include "workload/mappo/mappo_int.h"

enum { PROBE_STEPS = 32, WARM_RUNS = 3 };  // the first runs go op by op and record

bool brim_mappo_probes(const brim_mappo *w, const brim_spans *spans) {
  return spans && spans->exact && spans->add && !w->context.device->info.host_memory;
}

//---------------------------------- pieces ----------------------------------

static int32_t probe_steps(const brim_mappo *w) {
  return w->sizes.steps < PROBE_STEPS ? w->sizes.steps : PROBE_STEPS;
}

static brim_status enqueue_env(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) {
    BRIM_TRY(brim_mappo_look(w, t));
    BRIM_TRY(w->collect->step(&w->where, &w->shape, w->block, t));
  }
  return BRIM_OK;
}

static brim_status enqueue_outputs(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) {
    BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  }
  return BRIM_OK;
}

static brim_status enqueue_draw(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) BRIM_TRY(brim_mappo_draw(w, t));
  return BRIM_OK;
}

static brim_status prepare(brim_mappo *w) {
  for (int i = 0; i < BRIM_MAPPO_MARKS; i++) {
    if (w->probe.marks[i]) continue;
    BRIM_TRY(brim_event_create(w->context.device, &w->probe.marks[i]));
  }
  return BRIM_OK;
}

static brim_status time_piece(brim_mappo *w, int piece, brim_status (*enqueue)(void *ctx),
                              int64_t *ns) {
  brim_device *device = w->context.device;
  brim_record **record = &w->probe.records[piece];
  brim_event **marks = w->probe.marks;
  const bool first = *record == NULL;
  if (first) BRIM_TRY(brim_record_create(device, w->group, record));
  for (int i = 0; first && i < WARM_RUNS; i++)
    BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_device_sync(device));
  // two launches: of the second the GPU does not wait for the host
  BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_event_record(device, marks[0]));
  BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_event_record(device, marks[1]));
  BRIM_TRY(brim_event_elapsed(device, marks[0], marks[1], ns));
  *ns = (int64_t)((double)*ns * w->sizes.steps / probe_steps(w));
  return BRIM_OK;
}

brim_status brim_mappo_probe_run(brim_mappo *w, const brim_spans *spans, brim_mappo_pieces *out) {
  if (!brim_mappo_probes(w, spans)) return BRIM_OK;
  BRIM_TRY(prepare(w));
  // states are those a rollout begins with, also before the first one; actions exist before environments step
  BRIM_TRY(w->collect->begin(&w->where, &w->shape, w->block));
  BRIM_TRY(brim_mappo_look(w, 0));
  BRIM_TRY(
      time_piece(w, BRIM_MAPPO_PIECE_OUTPUTS, enqueue_outputs, &out->ns[BRIM_MAPPO_PIECE_OUTPUTS]));
  BRIM_TRY(time_piece(w, BRIM_MAPPO_PIECE_DRAW, enqueue_draw, &out->ns[BRIM_MAPPO_PIECE_DRAW]));
  return time_piece(w, BRIM_MAPPO_PIECE_ENV, enqueue_env, &out->ns[BRIM_MAPPO_PIECE_ENV]);
}

//---------------------------------- an iteration ----------------------------------

brim_status brim_mappo_mark(brim_mappo *w, const brim_spans *spans, int mark) {
  return brim_mappo_probes(w, spans) ? brim_event_record(w->context.device, w->probe.marks[mark])
                                     : BRIM_OK;
}

// A rollout on the CPU: the GPU computes the actor's outputs and the update, nothing else.
static void tell_host(const brim_spans *spans, const brim_mappo_pieces *pieces, int64_t update_ns) {
  const int64_t outputs = pieces->ns[BRIM_MAPPO_PIECE_OUTPUTS];
  brim_span_add(spans, BRIM_PHASE_ENV, BRIM_SPAN_BUSY, 0);
  brim_span_add(spans, BRIM_PHASE_H2D, BRIM_SPAN_BUSY, 0);
  brim_span_add(spans, BRIM_PHASE_ACT, BRIM_SPAN_BUSY, outputs);
  brim_span_add(spans, BRIM_PHASE_UPDATE, BRIM_SPAN_BUSY, update_ns);
  brim_span_add(spans, BRIM_PHASE_ENV, BRIM_SPAN_MOVED, pieces->ns[BRIM_MAPPO_PIECE_ENV]);
  brim_span_add(spans, BRIM_PHASE_H2D, BRIM_SPAN_MOVED, 0);
  brim_span_add(spans, BRIM_PHASE_ACT, BRIM_SPAN_MOVED,
                outputs + pieces->ns[BRIM_MAPPO_PIECE_DRAW]);
}

// All on the GPU: it computes all the time, in the proportions of the pieces while it collects.
static void tell_device(const brim_spans *spans, const brim_mappo_pieces *pieces,
                        int64_t rollout_ns, int64_t update_ns) {
  const double env = (double)pieces->ns[BRIM_MAPPO_PIECE_ENV];
  const double act =
      (double)(pieces->ns[BRIM_MAPPO_PIECE_OUTPUTS] + pieces->ns[BRIM_MAPPO_PIECE_DRAW]);
  const int64_t env_ns = env + act > 0 ? (int64_t)((double)rollout_ns * env / (env + act)) : 0;
  const struct {
    brim_phase phase;
    int64_t ns;
  } parts[] = {{BRIM_PHASE_ENV, env_ns},
               {BRIM_PHASE_ACT, rollout_ns - env_ns},
               {BRIM_PHASE_UPDATE, update_ns}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    brim_span_add(spans, parts[i].phase, BRIM_SPAN_TOOK, parts[i].ns);
    brim_span_add(spans, parts[i].phase, BRIM_SPAN_BUSY, parts[i].ns);
  }
}

brim_status brim_mappo_probe_tell(brim_mappo *w, const brim_spans *spans,
                                  const brim_mappo_pieces *pieces) {
  brim_device *device = w->context.device;
  brim_event **marks = w->probe.marks;
  int64_t rollout = 0, update = 0;
  if (!brim_mappo_probes(w, spans)) return BRIM_OK;
  BRIM_TRY(brim_event_elapsed(device, marks[BRIM_MAPPO_MARK_ROLLOUT], marks[BRIM_MAPPO_MARK_UPDATE],
                              &rollout));
  BRIM_TRY(brim_event_elapsed(device, marks[BRIM_MAPPO_MARK_UPDATE], marks[BRIM_MAPPO_MARK_END],
                              &update));
  if (w->sizes.on_host) {
    tell_host(spans, pieces, update);
  } else {
    tell_device(spans, pieces, rollout, update);
  }
  return BRIM_OK;
}
