// What lies in the arena while each node of training runs: the planner's answer once more, for a
// profile. Nothing is measured, and nothing of the network changes.
#include "engine/engine_int.h"

static const char *kind_name(brim_tensor_kind kind) {
  switch (kind) {
    case BRIM_TENSOR_GRADIENT:
      return "gradient";
    case BRIM_TENSOR_STATISTIC:
      return "statistic";
    default:
      return "activation";
  }
}

// A tensor that was written over one of the node's inputs: that one's life ends before.
static void end_overwritten(const brim_program *p, int32_t *last, int32_t node, int32_t tensor) {
  const brim_gnode *n = &p->graph.nodes[node];
  for (int i = 0; i < n->in_count; i++) {
    int32_t t = n->in[i];
    if (t < 0 || t == tensor || last[t] != node) continue;
    if (p->places.offset[t] == p->places.offset[tensor]) last[t] = node - 1;
  }
}

static void end_all_overwritten(const brim_program *p, const int32_t *first, int32_t *last) {
  for (int32_t n = 0; n < p->graph.node_count; n++) {
    const brim_gnode *node = &p->graph.nodes[n];
    for (int i = 0; i < node->out_count; i++) {
      int32_t t = node->out[i];
      if (t >= 0 && first[t] == n) end_overwritten(p, last, n, t);
    }
  }
}

static void add(brim_net_memory *m, brim_net_place place) {
  int32_t end = (int32_t)m->point_count - 1;
  if (place.last > end) place.last = end;
  if (place.first < 0 || place.last < place.first) return;
  for (int32_t i = place.first; i <= place.last; i++) m->points[i].bytes += place.bytes;
  m->places[m->place_count++] = place;
}

static size_t workspace_of(const brim_program *p, int32_t node) {
  size_t bytes = p->calls[node].workspace_bytes;
  for (int32_t k = 0; k < p->adding_count; k++) {
    if (p->adding_node[k] == node && p->adding[k].workspace_bytes > bytes) {
      bytes = p->adding[k].workspace_bytes;
    }
  }
  return bytes;
}

// An activation is its maker's: what a layer computes in the place of another may have that one's name.
static const char *name_of(const brim_graph *g, int32_t tensor, int32_t first) {
  const brim_gtensor *t = &g->tensors[tensor];
  const brim_gnode *node = first >= 0 && first < g->node_count ? &g->nodes[first] : NULL;
  if (!node || !node->layer || t->kind != BRIM_TENSOR_ACTIVATION) {
    return t->name;
  }
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] == tensor) return node->layer;
  }
  return t->name;
}

static void fill(const brim_program *p, const int32_t *first, const int32_t *last,
                 brim_net_memory *m) {
  const brim_graph *g = &p->graph;
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    m->points[n] =
        (brim_net_point){.op = brim_gnode_is_call(node) ? brim_op_name(node->op) : "loss",
                         .layer = node->layer,
                         .phase = node->backward ? BRIM_PHASE_BACKWARD : BRIM_PHASE_FORWARD};
  }
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (p->places.offset[t] == BRIM_PLAN_NO_PLACE) continue;
    add(m, (brim_net_place){.name = name_of(g, t, first[t]),
                            .kind = kind_name(g->tensors[t].kind),
                            .bytes = brim_align_up(brim_tensor_bytes(&g->tensors[t].desc)),
                            .offset = p->places.offset[t],
                            .first = first[t],
                            .last = last[t]});
  }
  for (int32_t n = 0; n < g->node_count; n++) {
    if (p->places.workspace[n] == BRIM_PLAN_NO_PLACE) continue;
    add(m, (brim_net_place){.name = g->nodes[n].layer ? g->nodes[n].layer : m->points[n].op,
                            .kind = "workspace",
                            .bytes = brim_align_up(workspace_of(p, n)),
                            .offset = p->places.workspace[n],
                            .first = n,
                            .last = n});
  }
}

brim_status brim_net_memory_of(const brim_net *net, brim_net_memory *out) {
  const brim_program *p = &net->train;
  size_t tensors = (size_t)p->graph.tensor_count, nodes = (size_t)p->graph.node_count;
  *out = (brim_net_memory){.point_count = nodes, .arena_bytes = p->places.bytes};
  int32_t *first = brim_calloc(2 * tensors + 1, sizeof *first);
  out->points = brim_calloc(nodes, sizeof *out->points);
  out->places = brim_calloc(tensors + nodes, sizeof *out->places);
  brim_status status = BRIM_OK;
  if (!first || !out->points || !out->places) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while planning the arena");
  }
  int32_t *last = first ? first + tensors : NULL;
  if (!status) status = brim_arena_plan_lives(&p->graph, p->forward_count, first, last);
  if (!status) {
    end_all_overwritten(p, first, last);
    fill(p, first, last, out);
  }
  brim_free(first);
  if (status) brim_net_memory_free(out);
  return status;
}

const char *brim_net_name(const brim_net *net) { return net->name; }

void brim_net_memory_free(brim_net_memory *memory) {
  brim_free(memory->points);
  brim_free(memory->places);
  *memory = (brim_net_memory){0};
}
