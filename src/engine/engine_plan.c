// Liveness, in-place merging and offsets. Tensors that are written over each other form a block; a
// block lives from its first writer to its last reader. Blocks are placed greedily in some order,
// each into the smallest gap between the blocks that are alive with it; the best of a few orders
// counts.
#include "engine/engine_plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct life {
  int32_t first, last;  // nodes; first -1 = never written
  int32_t block;        // -1 = not in the arena
} life;

typedef struct block {
  int32_t first, last;
  size_t bytes, offset, align;
  int32_t tensor;  // the first in it, workspaces after all; breaks ties, so the order is total
} block;

// Scratch of one run.
typedef struct planner {
  const brim_graph *g;
  life *lives;
  block *blocks;
  const block **order, **placed;
  int32_t block_count;
} planner;

bool brim_op_in_place(brim_op op, int out, int in) {
  switch (op) {
    case BRIM_OP_ACT:
    case BRIM_OP_DROPOUT:
    case BRIM_OP_ACT_BWD:
    case BRIM_OP_POS:
      return out == 0 && in == 0;
    case BRIM_OP_ADD:
      return out == 0 && in <= 1;
    case BRIM_OP_BATCHNORM_BWD:
      return (out == 0 && in <= 1) || (out == 3 && in == 0);
    default:
      return false;
  }
}

static bool in_arena(const brim_graph *g, int32_t tensor) {
  return tensor >= 0 && brim_tensor_in_arena(g->tensors[tensor].kind);
}

static void find_lives(planner *p) {
  const brim_graph *g = p->g;
  for (int32_t t = 0; t < g->tensor_count; t++) p->lives[t] = (life){-1, -1, -1};
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    for (int i = 0; i < node->in_count; i++) {
      if (in_arena(g, node->in[i])) p->lives[node->in[i]].last = n;
    }
    for (int i = 0; i < node->out_count; i++) {
      if (!in_arena(g, node->out[i])) continue;
      life *l = &p->lives[node->out[i]];
      if (l->first < 0) l->first = n;
      l->last = n;
    }
  }
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (p->lives[t].first >= 0 && g->tensors[t].keep) p->lives[t].last = g->node_count;
  }
}

// A dying input of node n that output `o` may be written over; -1 = none.
static int32_t dying_input(const planner *p, int32_t n, int o) {
  const brim_graph *g = p->g;
  const brim_gnode *node = &g->nodes[n];
  size_t bytes = brim_tensor_bytes(&g->tensors[node->out[o]].desc);
  for (int i = 0; i < node->in_count; i++) {
    int32_t t = node->in[i];
    if (!in_arena(g, t) || !brim_op_in_place(node->op, o, i)) continue;
    // With dz, that one goes over dy.
    if (node->op == BRIM_OP_BATCHNORM_BWD && node->out_count > 3 && o == 0 && i == 0) continue;
    if (p->lives[t].last == n && brim_tensor_bytes(&g->tensors[t].desc) == bytes) return t;
  }
  return -1;
}

static void make_blocks(planner *p, bool reuse) {
  const brim_graph *g = p->g;
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    for (int o = 0; o < node->out_count; o++) {
      int32_t t = node->out[o];
      if (!in_arena(g, t) || p->lives[t].first != n) continue;
      int32_t over = reuse ? dying_input(p, n, o) : -1;
      if (over >= 0) {
        p->lives[t].block = p->lives[over].block;
        block *b = &p->blocks[p->lives[t].block];
        if (p->lives[t].last > b->last) b->last = p->lives[t].last;
        continue;
      }
      block *b = &p->blocks[p->block_count];
      *b = (block){.first = p->lives[t].first,
                   .last = p->lives[t].last,
                   .bytes = brim_align_up(brim_tensor_bytes(&g->tensors[t].desc)),
                   .align = BRIM_ALIGN,
                   .tensor = t};
      p->lives[t].block = p->block_count++;
    }
  }
}

// Behind the tensors' blocks, in the order of the nodes.
static void add_workspaces(planner *p, const size_t *workspace) {
  for (int32_t n = 0; workspace && n < p->g->node_count; n++) {
    if (workspace[n] == 0) continue;
    block *b = &p->blocks[p->block_count++];
    *b = (block){.first = n, .last = n, .bytes = brim_align_up(workspace[n])};
    b->align = BRIM_WORKSPACE_ALIGN;
    b->tensor = p->g->tensor_count + n;
  }
}

static int tie(const block *x, const block *y) {
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static int by_size(const void *a, const void *b) {
  const block *x = *(const block *const *)a, *y = *(const block *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return tie(x, y);
}

// What lives long first: activations that wait for their turn on the way back lie together, and
// what comes and goes shares the rest.
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

// No order is the best for every graph; all are cheap, and the same graph always gets the same one.
static int (*const orders[])(const void *, const void *) = {by_size, by_life, by_area};

// Place one block among `count` placed ones that are sorted by offset.
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

brim_status brim_arena_plan_make(const brim_graph *g, const size_t *workspace, bool reuse,
                                 brim_arena_plan *out) {
  *out = (brim_arena_plan){0};
  size_t tensors = (size_t)g->tensor_count, nodes = (size_t)g->node_count, n = tensors + nodes;
  planner p = {.g = g};
  brim_status status = BRIM_OK;
  p.lives = brim_calloc(tensors, sizeof *p.lives);
  p.blocks = brim_calloc(n, sizeof *p.blocks);
  p.order = brim_calloc(n, sizeof *p.order);
  p.placed = brim_calloc(n, sizeof *p.placed);
  out->offset = brim_calloc(tensors, sizeof *out->offset);
  out->workspace = brim_calloc(nodes, sizeof *out->workspace);
  if (!p.lives || !p.blocks || !p.order || !p.placed || !out->offset || !out->workspace) {
    brim_arena_plan_free(out);
    status = brim_fail(BRIM_ENOMEM, "out of memory while planning the arena");
    goto done;
  }
  find_lives(&p);
  make_blocks(&p, reuse);
  add_workspaces(&p, workspace);
  out->bytes = place_blocks(&p, reuse);
  for (size_t t = 0; t < tensors; t++) {
    int32_t b = p.lives[t].block;
    out->offset[t] = b >= 0 ? p.blocks[b].offset : BRIM_PLAN_NO_PLACE;
  }
  for (size_t i = 0; i < nodes; i++) out->workspace[i] = BRIM_PLAN_NO_PLACE;
  for (int32_t b = 0; b < p.block_count; b++) {
    int32_t node = p.blocks[b].tensor - g->tensor_count;
    if (node >= 0) out->workspace[node] = p.blocks[b].offset;
  }
done:
  brim_free(p.placed);
  brim_free(p.order);
  brim_free(p.blocks);
  brim_free(p.lives);
  return status;
}

void brim_arena_plan_free(brim_arena_plan *plan) {
  brim_free(plan->offset);
  brim_free(plan->workspace);
  *plan = (brim_arena_plan){0};
}
