// The memory timeline of a profile: what the planner put into the arenas of the networks that trained,
// node by node.
#include "measure/measure_profile_int.h"

#include <string.h>

static void set_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
}

static brim_status grow(brim_profile_memory *m, const brim_net_memory *more) {
  brim_profile_point *points = (brim_profile_point *)brim_realloc(
      m->points, (m->point_count + more->point_count + 1) * sizeof *points);
  if (points) m->points = points;
  brim_profile_block *blocks = (brim_profile_block *)brim_realloc(
      m->blocks, (m->block_count + more->place_count + 1) * sizeof *blocks);
  if (blocks) m->blocks = blocks;
  return points && blocks ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the trace");
}

// One network's points behind those that are there. Networks that share an arena take turns in it.
static brim_status add_net(const brim_net *of, const brim_net_memory *net, brim_profile_memory *m) {
  char text[160];
  BRIM_TRY(grow(m, net));
  int base = (int)m->point_count;
  for (size_t i = 0; i < net->point_count; i++) {
    const brim_net_point *from = &net->points[i];
    brim_profile_point *to = &m->points[m->point_count++];
    memset(to, 0, sizeof *to);
    set_text(to->op, sizeof to->op, from->op);
    set_text(to->layer, sizeof to->layer, brim_notes_layer(of, from->layer, text));
    set_text(to->phase, sizeof to->phase, brim_phase_key(from->phase));
    to->bytes = (double)from->bytes;
    if (m->peak >= 0 && to->bytes <= m->peak_bytes) continue;
    m->peak = base + (int)i;
    m->peak_bytes = to->bytes;
  }
  for (size_t i = 0; i < net->place_count; i++) {
    const brim_net_place *from = &net->places[i];
    brim_profile_block *to = &m->blocks[m->block_count++];
    memset(to, 0, sizeof *to);
    set_text(to->name, sizeof to->name, brim_notes_layer(of, from->name, text));
    set_text(to->kind, sizeof to->kind, from->kind);
    to->bytes = (double)from->bytes;
    to->offset = (double)from->offset;
    to->first = base + from->first;
    to->last = base + from->last;
  }
  double arena = (double)net->arena_bytes;
  if (!(m->arena_bytes >= arena)) m->arena_bytes = arena;
  return BRIM_OK;
}

brim_status brim_profile_take_memory(const brim_notes *notes, brim_profile *out) {
  brim_profile_memory *m = &out->memory;
  for (size_t i = 0; i < notes->net_count; i++) {
    brim_net_memory net;
    BRIM_TRY(brim_net_memory_of(notes->nets[i], &net));
    brim_status status = add_net(notes->nets[i], &net, m);
    brim_net_memory_free(&net);
    BRIM_TRY(status);
  }
  // without the arena, which the rows of the plan have too
  double planned = (double)out->result.plan.bytes[BRIM_PLACE_DEVICE];
  if (m->arena_bytes >= 0) m->fixed_bytes = planned > m->arena_bytes ? planned - m->arena_bytes : 0;
  return BRIM_OK;
}
