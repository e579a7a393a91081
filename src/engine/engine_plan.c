// The planner: liveness, in-place merging and offsets. Tensors that overwrite each other form a block, which lives
// from its first writer to its last reader. Blocks are placed greedily, each into the smallest gap between the
// blocks that are alive at the same time. The planner tries a few orders of blocks and takes the best.
#include "engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct life {
  int32_t first, last;  // numbers of nodes in the order they run; first -1 = never written
  int32_t block;        // -1 = not in the arena
} life;

typedef struct block {
  int32_t first, last;
  size_t bytes, offset, align;
  // Number of the first tensor or workspace in the block, to break ties. Every graph numbers its tensors, then its
  // workspaces.
  int32_t id;
} block;

// One of the graphs that share the arena. The forward nodes of all graphs run first, graph after graph; then the
// backward nodes, in the same order of graphs.
typedef struct member {
  const brim_plan_part *part;
  life *lives;
  int32_t forward, backward;  // times of the first forward and the first backward node
  int32_t id;                 // id of the first tensor
} member;

// Working memory of one run of the planner.
typedef struct planner {
  member *members;
  int32_t member_count;
  // Time of the last forward node. Tensors that callers read between the passes live at least until then.
  int32_t meet;
  int32_t end;  // time after the last node
  life *lives;
  block *blocks;
  const block **order, **placed;
  int32_t block_count;
} planner;

static bool in_arena(const brim_graph *g, int32_t tensor) {
  return tensor >= 0 && brim_tensor_in_arena(g->tensors[tensor].kind);
}

static int32_t time_of(const member *m, int32_t node) {
  int32_t forward = m->part->forward_count;
  return node < forward ? m->forward + node : m->backward + (node - forward);
}

static void find_lives(const planner *p, const member *m) {
  const brim_graph *g = m->part->graph;
  for (int32_t t = 0; t < g->tensor_count; t++) m->lives[t] = (life){-1, -1, -1};
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    int32_t now = time_of(m, n);
    for (int i = 0; i < node->in_count; i++) {
      if (!in_arena(g, node->in[i])) continue;
      m->lives[node->in[i]].last = brim_gnode_is_call(node) ? now : p->meet;
    }
    for (int i = 0; i < node->out_count; i++) {
      if (!in_arena(g, node->out[i])) continue;
      life *l = &m->lives[node->out[i]];
      if (l->first < 0) l->first = now;
      l->last = now;
    }
  }
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (m->lives[t].first >= 0 && g->tensors[t].keep) m->lives[t].last = p->end;
  }
}

// An input that dies at node n and that output `o` may overwrite; -1 = none.
static int32_t dying_input(const member *m, int32_t n, int o) {
  const brim_graph *g = m->part->graph;
  const brim_gnode *node = &g->nodes[n];
  size_t bytes = brim_tensor_bytes(&g->tensors[node->out[o]].desc);
  for (int i = 0; i < node->in_count; i++) {
    int32_t t = node->in[i];
    if (!in_arena(g, t) || !brim_op_in_place(node->op, node->out_count, o, i)) continue;
    if (m->lives[t].last != time_of(m, n)) continue;
    if (brim_tensor_bytes(&g->tensors[t].desc) == bytes) return t;
  }
  return -1;
}

static void make_blocks(planner *p, const member *m, bool reuse) {
  const brim_graph *g = m->part->graph;
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    for (int o = 0; o < node->out_count; o++) {
      int32_t t = node->out[o];
      if (!in_arena(g, t) || m->lives[t].first != time_of(m, n)) continue;
      int32_t over = reuse ? dying_input(m, n, o) : -1;
      if (over >= 0) {
        m->lives[t].block = m->lives[over].block;
        block *b = &p->blocks[m->lives[t].block];
        if (m->lives[t].last > b->last) b->last = m->lives[t].last;
        continue;
      }
      block *b = &p->blocks[p->block_count];
      *b = (block){.first = m->lives[t].first,
                   .last = m->lives[t].last,
                   .bytes = brim_align_up(brim_tensor_bytes(&g->tensors[t].desc)),
                   .align = BRIM_ALIGN,
                   .id = m->id + t};
      m->lives[t].block = p->block_count++;
    }
  }
}

// Adds scratch blocks behind those of the tensors, in the order of the nodes.
static void add_workspaces(planner *p, const member *m) {
  const size_t *workspace = m->part->workspace;
  for (int32_t n = 0; workspace && n < m->part->graph->node_count; n++) {
    if (workspace[n] == 0) continue;
    block *b = &p->blocks[p->block_count++];
    *b = (block){.bytes = brim_align_up(workspace[n]), .align = BRIM_WORKSPACE_ALIGN};
    b->first = b->last = time_of(m, n);
    b->id = m->id + m->part->graph->tensor_count + n;
  }
}

static int tie(const block *x, const block *y) {
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static int by_size(const void *a, const void *b) {
  const block *x = *(const block *const *)a, *y = *(const block *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return tie(x, y);
}

// Orders blocks by length of life, longest first: activations that wait for the backward pass are placed together,
// and short-lived tensors share the rest.
static int by_life(const void *a, const void *b) {
  const block *x = *(const block *const *)a, *y = *(const block *const *)b;
  int32_t life_x = x->last - x->first, life_y = y->last - y->first;
  if (life_x != life_y) return life_x > life_y ? -1 : 1;
  return by_size(a, b);
}

static int by_area(const void *a, const void *b) {
  const block *x = *(const block *const *)a, *y = *(const block *const *)b;
  double area_x = (double)x->bytes * (x->last - x->first + 1);
  double area_y = (double)y->bytes * (y->last - y->first + 1);
  if (area_x != area_y) return area_x > area_y ? -1 : 1;
  return by_size(a, b);
}

// The orders to try: none is best for every graph, and all are cheap. The choice is deterministic.
static int (*const orders[])(const void *, const void *) = {by_size, by_life, by_area};

// Finds a place for one block among `count` placed ones, which are sorted by offset.
static size_t best_gap(const block *b, const block *const *placed, int32_t count, bool reuse) {
  size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
  for (int32_t i = 0; i < count; i++) {
    const block *other = placed[i];
    if (reuse && (other->last < b->first || b->last < other->first)) continue;
    size_t start = (end + b->align - 1) / b->align * b->align;
    if (other->offset >= start + b->bytes && other->offset - end < best_gap) {
      best = start;
      best_gap = other->offset - end;
    }
    if (other->offset + other->bytes > end) end = other->offset + other->bytes;
  }
  return best != SIZE_MAX ? best : (end + b->align - 1) / b->align * b->align;
}

static size_t place_in_order(planner *p, int order, bool reuse) {
  size_t bytes = 0;
  for (int32_t i = 0; i < p->block_count; i++) p->order[i] = &p->blocks[i];
  if (p->block_count) {
    qsort(p->order, (size_t)p->block_count, sizeof *p->order, orders[order]);
  }
  for (int32_t i = 0; i < p->block_count; i++) {
    block *b = &p->blocks[p->order[i] - p->blocks];
    b->offset = best_gap(b, p->placed, i, reuse);
    if (b->offset + b->bytes > bytes) bytes = b->offset + b->bytes;
    int32_t at = i;
    for (; at > 0 && p->placed[at - 1]->offset > b->offset; at--) p->placed[at] = p->placed[at - 1];
    p->placed[at] = b;
  }
  return bytes;
}

static size_t place_blocks(planner *p, bool reuse) {
  const int count = reuse ? (int)(sizeof orders / sizeof *orders) : 1;
  size_t best = SIZE_MAX;
  int chosen = 0;
  for (int i = 0; i < count; i++) {
    size_t bytes = place_in_order(p, i, reuse);
    if (bytes >= best) continue;
    best = bytes;
    chosen = i;
  }
  return chosen == count - 1 ? best : place_in_order(p, chosen, reuse);
}

// Numbers the nodes of all graphs in the order they run, and gives each graph its range of blocks.
static void number_nodes(planner *p, const brim_plan_part *parts) {
  int32_t forward = 0, backward = 0, id = 0, tensors = 0;
  for (int32_t i = 0; i < p->member_count; i++) backward += parts[i].forward_count;
  p->meet = backward - 1;
  for (int32_t i = 0; i < p->member_count; i++) {
    const brim_graph *g = parts[i].graph;
    p->members[i] = (member){.part = &parts[i],
                             .lives = p->lives + tensors,
                             .forward = forward,
                             .backward = backward,
                             .id = id};
    forward += parts[i].forward_count;
    backward += g->node_count - parts[i].forward_count;
    id += g->tensor_count + g->node_count;
    tensors += g->tensor_count;
  }
  p->end = backward;
}

static void write_places(const planner *p, const member *m, size_t bytes) {
  const brim_graph *g = m->part->graph;
  brim_arena_plan *out = m->part->out;
  out->bytes = bytes;
  for (int32_t t = 0; t < g->tensor_count; t++) {
    int32_t b = m->lives[t].block;
    out->offset[t] = b >= 0 ? p->blocks[b].offset : BRIM_PLAN_NO_PLACE;
  }
  for (int32_t i = 0; i < g->node_count; i++) out->workspace[i] = BRIM_PLAN_NO_PLACE;
  for (int32_t b = 0; b < p->block_count; b++) {
    int32_t node = p->blocks[b].id - m->id - g->tensor_count;
    if (node >= 0 && node < g->node_count) out->workspace[node] = p->blocks[b].offset;
  }
}

static bool allocate(planner *p, const brim_plan_part *parts, int32_t count) {
  size_t tensors = 0, nodes = 0;
  bool good = true;
  for (int32_t i = 0; i < count; i++) {
    size_t t = (size_t)parts[i].graph->tensor_count, n = (size_t)parts[i].graph->node_count;
    parts[i].out->offset = brim_calloc(t, sizeof *parts[i].out->offset);
    parts[i].out->workspace = brim_calloc(n, sizeof *parts[i].out->workspace);
    good = good && parts[i].out->offset && parts[i].out->workspace;
    tensors += t;
    nodes += n;
  }
  p->members = brim_calloc((size_t)count, sizeof *p->members);
  p->lives = brim_calloc(tensors, sizeof *p->lives);
  p->blocks = brim_calloc(tensors + nodes, sizeof *p->blocks);
  p->order = brim_calloc(tensors + nodes, sizeof *p->order);
  p->placed = brim_calloc(tensors + nodes, sizeof *p->placed);
  return good && p->members && p->lives && p->blocks && p->order && p->placed;
}

brim_status brim_arena_plan_together(const brim_plan_part *parts, int32_t count, bool reuse) {
  planner p = {.member_count = count};
  brim_status status = BRIM_OK;
  for (int32_t i = 0; i < count; i++) *parts[i].out = (brim_arena_plan){0};
  if (!allocate(&p, parts, count)) {
    for (int32_t i = 0; i < count; i++) brim_arena_plan_free(parts[i].out);
    status = brim_fail(BRIM_ENOMEM, "out of memory while planning the arena");
    goto done;
  }
  number_nodes(&p, parts);
  for (int32_t i = 0; i < count; i++) find_lives(&p, &p.members[i]);
  for (int32_t i = 0; i < count; i++) make_blocks(&p, &p.members[i], reuse);
  for (int32_t i = 0; i < count; i++) add_workspaces(&p, &p.members[i]);
  size_t bytes = place_blocks(&p, reuse);
  for (int32_t i = 0; i < count; i++) write_places(&p, &p.members[i], bytes);
done:
  brim_free(p.placed);
  brim_free(p.order);
  brim_free(p.blocks);
  brim_free(p.lives);
  brim_free(p.members);
  return status;
}

brim_status brim_arena_plan_lives(const brim_graph *g, int32_t forward_count, int32_t *first,
                                  int32_t *last) {
  const brim_plan_part part = {.graph = g, .forward_count = forward_count};
  member m = {.part = &part};
  planner p = {.members = &m, .member_count = 1};
  p.lives = brim_calloc((size_t)g->tensor_count, sizeof *p.lives);
  if (!p.lives) return brim_fail(BRIM_ENOMEM, "out of memory while planning the arena");
  number_nodes(&p, &part);
  find_lives(&p, &m);
  for (int32_t t = 0; t < g->tensor_count; t++) {
    first[t] = p.lives[t].first;
    last[t] = p.lives[t].last;
  }
  brim_free(p.lives);
  return BRIM_OK;
}

void brim_arena_plan_free(brim_arena_plan *plan) {
  brim_free(plan->offset);
  brim_free(plan->workspace);
  *plan = (brim_arena_plan){0};
}
