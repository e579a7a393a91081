// The planner. Random graphs run on a shadow memory that remembers the owner of each block, so any reuse that comes too
// early is seen. Workspaces are compared with the lifetimes of all tensors, and whole networks bit by bit with a layout
// without reuse. A canary shows that the planned arena is neither too small nor too large.
#include "engine/engine_int.h"

#include "engine_test.h"

//---------------------------------- random graphs ----------------------------------

typedef struct dice {
  uint64_t seed, at;
} dice;

static int64_t roll(dice *d, int64_t n) {
  return (int64_t)(test_random(d->seed, d->at++) * (double)n);
}

// A tensor that was written before and has the size of `like` (-1: any size).
static int32_t pick(const brim_graph *g, dice *d, int32_t like) {
  for (;;) {
    int32_t t = (int32_t)roll(d, g->tensor_count);
    const brim_gtensor *x = &g->tensors[t];
    if (x->kind != BRIM_TENSOR_ACTIVATION) continue;
    if (like < 0 || brim_tensor_bytes(&x->desc) == brim_tensor_bytes(&g->tensors[like].desc))
      return t;
  }
}

static int32_t fresh(brim_graph *g, dice *d) {
  int64_t dim[] = {1 + roll(d, 4), 1 + roll(d, 40)};
  return brim_graph_tensor(g, "t", BRIM_TENSOR_ACTIVATION, BRIM_F32, 2, dim);
}

static void add_random_node(brim_graph *g, dice *d) {
  int32_t a = pick(g, d, -1);
  int32_t in[3] = {a, -1, -1}, out[3] = {-1, -1, -1};
  switch (roll(d, 6)) {
    case 0:
      out[0] = brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION);
      brim_graph_node(g, BRIM_OP_ACT, NULL, in, 1, out, 1);
      break;
    case 1:
      in[1] = pick(g, d, a);
      out[0] = brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION);
      brim_graph_node(g, BRIM_OP_ADD, NULL, in, 2, out, 1);
      break;
    case 2:
      in[1] = g->state;
      out[0] = brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION);
      brim_graph_node(g, BRIM_OP_DROPOUT, NULL, in, 2, out, 1);
      break;
    case 3:
      in[1] = pick(g, d, a);
      out[0] = brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION);
      brim_graph_node(g, BRIM_OP_ACT_BWD, NULL, in, 2, out, 1);
      break;
    case 4: {  // layer norm: one of its outputs may stay unread
      int64_t rows = g->tensors[a].desc.dim[0];
      out[0] = brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION);
      for (int i = 1; i < 3; i++) {
        out[i] = brim_graph_tensor(g, "s", BRIM_TENSOR_STATISTIC, BRIM_F32, 1, &rows);
      }
      brim_graph_node(g, BRIM_OP_LAYERNORM, NULL, in, 1, out, 3);
      break;
    }
    default:  // a product: several inputs, another size
      in[1] = pick(g, d, -1);
      in[2] = pick(g, d, -1);
      out[0] = fresh(g, d);
      brim_graph_node(g, BRIM_OP_LINEAR, NULL, in, 3, out, 1);
      break;
  }
}

static size_t blocks_of(const brim_graph *g, int32_t t) {
  return (brim_tensor_bytes(&g->tensors[t].desc) + BRIM_ALIGN - 1) / BRIM_ALIGN;
}

static bool arena_tensor(const brim_graph *g, int32_t t) {
  return t >= 0 && brim_tensor_in_arena(g->tensors[t].kind);
}

static void check_owned(const brim_graph *g, const brim_arena_plan *p, const int32_t *owner,
                        int32_t t) {
  for (size_t k = 0; k < blocks_of(g, t); k++) {
    if (owner[p->offset[t] / BRIM_ALIGN + k] != t) {
      fail_msg("tensor %d was written over by tensor %d before its last reader", (int)t,
               (int)owner[p->offset[t] / BRIM_ALIGN + k]);
    }
  }
}

static bool overlap(const brim_graph *g, const brim_arena_plan *p, int32_t a, int32_t b) {
  size_t a_end = p->offset[a] + blocks_of(g, a) * BRIM_ALIGN;
  size_t b_end = p->offset[b] + blocks_of(g, b) * BRIM_ALIGN;
  return p->offset[a] < b_end && p->offset[b] < a_end;
}

static void check_node(const brim_graph *g, const brim_arena_plan *p, const brim_gnode *n,
                       int32_t *owner) {
  for (int i = 0; i < n->in_count; i++) {
    if (arena_tensor(g, n->in[i])) check_owned(g, p, owner, n->in[i]);
  }
  for (int o = 0; o < n->out_count; o++) {
    int32_t t = n->out[o];
    if (!arena_tensor(g, t)) continue;
    for (int i = 0; i < n->in_count; i++) {
      if (!arena_tensor(g, n->in[i]) || !overlap(g, p, t, n->in[i])) continue;
      // A tensor may be read at two inputs of a node; one of the two has to allow overwriting.
      bool allowed = false;
      for (int k = 0; k < n->in_count; k++) {
        allowed = allowed || (n->in[k] == n->in[i] && brim_op_in_place(n->op, n->out_count, o, k));
      }
      assert_true(allowed);
      assert_int_equal(p->offset[t], p->offset[n->in[i]]);
    }
    for (int other = 0; other < o; other++) {
      if (arena_tensor(g, n->out[other])) assert_false(overlap(g, p, t, n->out[other]));
    }
    for (size_t k = 0; k < blocks_of(g, t); k++) owner[p->offset[t] / BRIM_ALIGN + k] = t;
  }
}

static bool written(const brim_graph *g, int32_t t) {
  for (int32_t n = 0; n < g->node_count; n++) {
    for (int o = 0; o < g->nodes[n].out_count; o++) {
      if (g->nodes[n].out[o] == t) return true;
    }
  }
  return false;
}

//---------------------------------- workspaces ----------------------------------

static bool touches(const brim_gnode *n, int32_t t) {
  for (int i = 0; i < n->in_count; i++) {
    if (n->in[i] == t) return true;
  }
  for (int o = 0; o < n->out_count; o++) {
    if (n->out[o] == t) return true;
  }
  return false;
}

// True if tensor t has, or gets, a value that a node may still need while node n runs.
static bool alive_at(const brim_graph *g, int32_t t, int32_t n) {
  int32_t first = -1, last = -1;
  for (int32_t i = 0; i < g->node_count; i++) {
    if (!touches(&g->nodes[i], t)) continue;
    if (first < 0) first = i;
    last = i;
  }
  if (g->tensors[t].keep) last = g->node_count;
  return first >= 0 && first <= n && n <= last;
}

// Describes the fault in the place of node n's workspace; NULL = none.
static const char *workspace_fault(const brim_graph *g, const brim_arena_plan *p,
                                   const size_t *workspace, int32_t n) {
  size_t bytes = workspace ? workspace[n] : 0, from = p->workspace[n];
  if (bytes == 0) return from == BRIM_PLAN_NO_PLACE ? NULL : "a place for no workspace";
  if (from == BRIM_PLAN_NO_PLACE) return "no place";
  if (from % BRIM_WORKSPACE_ALIGN != 0) return "a place off its alignment";
  if (from + bytes > p->bytes) return "a place outside the arena";
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (p->offset[t] == BRIM_PLAN_NO_PLACE || !alive_at(g, t, n)) continue;
    size_t end = p->offset[t] + brim_tensor_bytes(&g->tensors[t].desc);
    if (from < end && p->offset[t] < from + bytes) return "a place on a tensor that is alive";
  }
  return NULL;
}

//---------------------------------- whole plans ----------------------------------

// Asserts that places are aligned, inside the arena, reach its end, and keep their values until the last reader.
static void check_places(const brim_graph *g, const brim_arena_plan *p, const size_t *workspace) {
  size_t end = 0;
  for (int32_t n = 0; n < g->node_count; n++) {
    const char *fault = workspace_fault(g, p, workspace, n);
    if (fault) fail_msg("the workspace of node %d has %s", (int)n, fault);
    size_t bytes = workspace ? (workspace[n] + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN : 0;
    if (bytes && p->workspace[n] + bytes > end) end = p->workspace[n] + bytes;
  }
  assert_int_equal(p->bytes % BRIM_ALIGN, 0);
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (!arena_tensor(g, t) || !written(g, t)) {  // fusing leaves tensors that no node writes
      assert_true(p->offset[t] == BRIM_PLAN_NO_PLACE);
      continue;
    }
    assert_int_equal(p->offset[t] % BRIM_ALIGN, 0);
    size_t last = p->offset[t] + blocks_of(g, t) * BRIM_ALIGN;
    if (last > end) end = last;
  }
  assert_int_equal(end, p->bytes);
  int32_t *owner = malloc((p->bytes / BRIM_ALIGN + 1) * sizeof *owner);
  assert_non_null(owner);
  for (size_t i = 0; i < p->bytes / BRIM_ALIGN; i++) owner[i] = -1;
  for (int32_t n = 0; n < g->node_count; n++) check_node(g, p, &g->nodes[n], owner);
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (g->tensors[t].keep) check_owned(g, p, owner, t);
  }
  free(owner);
}

// Checks the places with the workspace that each node needs: the larger of its overwriting and its adding call.
static void check_program(const brim_program *p) {
  size_t *bytes = calloc((size_t)p->graph.node_count, sizeof *bytes);
  assert_non_null(bytes);
  for (int32_t n = 0; n < p->graph.node_count; n++) bytes[n] = p->calls[n].workspace_bytes;
  for (int32_t k = 0; k < p->adding_count; k++) {
    size_t *most = &bytes[p->adding_node[k]];
    if (p->adding[k].workspace_bytes > *most) *most = p->adding[k].workspace_bytes;
  }
  check_places(&p->graph, &p->places, bytes);
  free(bytes);
}

static void random_graph(brim_graph *g, brim_params *params, uint64_t seed) {
  dice d = {.seed = seed};
  assert_ok(brim_graph_init(g, params, NULL, BRIM_F32, true));
  int64_t dim[] = {1 + roll(&d, 4), 1 + roll(&d, 40)};
  int32_t raw = brim_graph_tensor(g, "raw", BRIM_TENSOR_INPUT, BRIM_F32, 2, dim);
  int32_t x = brim_graph_like(g, raw, BRIM_TENSOR_ACTIVATION);
  brim_graph_node(g, BRIM_OP_INPUT, NULL, &raw, 1, &x, 1);
  int64_t nodes = 1 + roll(&d, 60);
  for (int64_t i = 0; i < nodes; i++) add_random_node(g, &d);
  assert_ok(g->status);
  for (int k = 0; k < 2; k++) g->tensors[pick(g, &d, -1)].keep = true;
}

// Random workspace sizes; a third of the nodes have one. Free with free().
static size_t *random_workspaces(const brim_graph *g, uint64_t seed) {
  dice d = {.seed = seed, .at = 1 << 20};
  size_t *bytes = calloc((size_t)g->node_count, sizeof *bytes);
  assert_non_null(bytes);
  for (int32_t n = 0; n < g->node_count; n++) {
    if (roll(&d, 3) == 0) bytes[n] = (size_t)(1 + roll(&d, roll(&d, 4) == 0 ? 20000 : 600));
  }
  return bytes;
}

static brim_status plan_make(const brim_graph *g, const size_t *workspace, bool reuse,
                             brim_arena_plan *out) {
  brim_plan_part part = {
      .graph = g, .workspace = workspace, .forward_count = g->node_count, .out = out};
  return brim_arena_plan_together(&part, 1, reuse);
}

static void assert_same_plan(const brim_graph *g, const brim_arena_plan *a,
                             const brim_arena_plan *b) {
  assert_int_equal(a->bytes, b->bytes);
  assert_memory_equal(a->offset, b->offset, (size_t)g->tensor_count * sizeof *a->offset);
  assert_memory_equal(a->workspace, b->workspace, (size_t)g->node_count * sizeof *a->workspace);
}

static void test_random_workspaces(void **state) {
  (void)state;
  size_t with = 0, without = 0, asked = 0;
  for (uint64_t seed = 1; seed <= 700; seed++) {
    brim_params params;
    brim_graph g;
    assert_ok(brim_params_init(&params, BRIM_F32, BRIM_F32));
    random_graph(&g, &params, seed);
    size_t *bytes = random_workspaces(&g, seed), *none = calloc((size_t)g.node_count, sizeof *none);
    assert_non_null(none);
    brim_arena_plan once, again, loose, bare, zero;
    assert_ok(plan_make(&g, bytes, true, &once));
    assert_ok(plan_make(&g, bytes, true, &again));
    assert_ok(plan_make(&g, bytes, false, &loose));
    assert_ok(plan_make(&g, NULL, true, &bare));
    assert_ok(plan_make(&g, none, true, &zero));
    check_places(&g, &once, bytes);
    check_places(&g, &loose, bytes);
    check_places(&g, &bare, NULL);
    assert_same_plan(&g, &once, &again);
    assert_same_plan(&g, &bare, &zero);
    assert_true(once.bytes <= loose.bytes);
    for (int32_t n = 0; n < g.node_count; n++) asked += bytes[n];
    with += once.bytes - bare.bytes;
    without += loose.bytes;
    brim_arena_plan *plans[] = {&once, &again, &loose, &bare, &zero};
    for (int k = 0; k < 5; k++) brim_arena_plan_free(plans[k]);
    free(bytes);
    free(none);
    brim_graph_deinit(&g);
    brim_params_deinit(&params);
  }
  assert_true(without > asked);
  assert_true(with * 2 < asked);  // workspaces overlap each other and dead tensors
}

// A workspace moved to any wrong place is detected.
static void test_workspace_faults(void **state) {
  (void)state;
  int moved = 0;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    brim_params params;
    brim_graph g;
    assert_ok(brim_params_init(&params, BRIM_F32, BRIM_F32));
    random_graph(&g, &params, seed);
    size_t *bytes = random_workspaces(&g, seed);
    brim_arena_plan p;
    assert_ok(plan_make(&g, bytes, true, &p));
    for (int32_t n = 0; n < g.node_count; n++) {
      size_t kept = p.workspace[n];
      if (bytes[n] == 0) {
        p.workspace[n] = 0;
        assert_non_null(workspace_fault(&g, &p, bytes, n));
        p.workspace[n] = kept;
        continue;
      }
      const size_t bad[] = {BRIM_PLAN_NO_PLACE, kept + BRIM_ALIGN,
                            (p.bytes / BRIM_WORKSPACE_ALIGN + 1) * BRIM_WORKSPACE_ALIGN};
      for (int k = 0; k < 3; k++) {
        p.workspace[n] = bad[k];
        assert_non_null(workspace_fault(&g, &p, bytes, n));
      }
      // Moved onto the output of its own node.
      size_t at = p.offset[g.nodes[n].out[0]];
      p.workspace[n] = at / BRIM_WORKSPACE_ALIGN * BRIM_WORKSPACE_ALIGN;
      if (p.workspace[n] + bytes[n] > at) {
        assert_non_null(workspace_fault(&g, &p, bytes, n));
        moved++;
      }
      p.workspace[n] = kept;
      assert_null(workspace_fault(&g, &p, bytes, n));
    }
    brim_arena_plan_free(&p);
    free(bytes);
    brim_graph_deinit(&g);
    brim_params_deinit(&params);
  }
  assert_true(moved > 100);
}

static void test_random_graphs(void **state) {
  (void)state;
  size_t with = 0, without = 0;
  for (uint64_t seed = 1; seed <= 1500; seed++) {
    brim_params params;
    brim_graph g;
    assert_ok(brim_params_init(&params, BRIM_F32, BRIM_F32));
    random_graph(&g, &params, seed);
    brim_arena_plan once, again, loose;
    assert_ok(plan_make(&g, NULL, true, &once));
    assert_ok(plan_make(&g, NULL, true, &again));
    assert_ok(plan_make(&g, NULL, false, &loose));
    check_places(&g, &once, NULL);
    check_places(&g, &loose, NULL);
    assert_memory_equal(once.offset, again.offset, (size_t)g.tensor_count * sizeof *once.offset);
    assert_true(once.bytes <= loose.bytes);
    with += once.bytes;
    without += loose.bytes;
    brim_arena_plan_free(&once);
    brim_arena_plan_free(&again);
    brim_arena_plan_free(&loose);
    brim_graph_deinit(&g);
    brim_params_deinit(&params);
  }
  assert_true(with * 10 < without * 9);  // memory really is reused
}

//---------------------------------- networks ----------------------------------

typedef struct net_case {
  const char *model, *activation, *norm;
  double dropout;
  int64_t depth, hidden, batch, eval_batch, accumulation;
  brim_precision precision;
} net_case;

static const net_case net_cases[] = {
    {"mlp", "relu", NULL, 0, 4, 33, 9, 0, 1, BRIM_PRECISION_FP32},
    {"mlp", "relu", NULL, 0.5, 3, 64, 16, 64, 2, BRIM_PRECISION_FP32},
    {"mlp", "gelu", "layer", 0.2, 3, 20, 7, 3, 1, BRIM_PRECISION_FP32},
    {"mlp", "tanh", "layer", 0, 2, 50, 8, 100, 3, BRIM_PRECISION_BF16},
    {"mlp", "relu", NULL, 0, 0, 1, 4, 0, 1, BRIM_PRECISION_FP32},
    {"resmlp", "relu", NULL, 0.1, 3, 24, 6, 0, 2, BRIM_PRECISION_FP32},
    {"resmlp", "gelu", NULL, 0, 4, 17, 5, 40, 1, BRIM_PRECISION_BF16},
    {"resmlp", "tanh", NULL, 0.3, 1, 130, 3, 0, 1, BRIM_PRECISION_FP32},
};
enum { NET_CASES = sizeof net_cases / sizeof net_cases[0] };

static void net_spec(const net_case *c, test_spec *t) {
  test_spec_init(t);
  test_component_init(&t->model, c->model);
  test_component_int(&t->model, "depth", c->depth);
  test_component_int(&t->model, "hidden", c->hidden);
  test_component_string(&t->model, "activation", c->activation);
  if (c->norm) test_component_string(&t->model, "norm", c->norm);
  test_component_float(&t->model, "dropout", c->dropout);
  test_component_init(&t->optimizer, "adam");
  t->spec.batch = c->batch;
  t->spec.eval_batch = c->eval_batch;
  t->spec.accumulation = c->accumulation;
  t->spec.precision = c->precision;
}

// Two steps and an evaluation; leaves the outputs of the evaluation in `outputs` (may be NULL).
static void exercise(brim_net *net, const test_spec *t, float *outputs) {
  test_batch b;
  int64_t eval = net->eval_batch, rows = t->spec.batch * t->spec.accumulation;
  test_batch_make(&t->spec, rows > eval ? rows : eval, 5, &b);
  for (int64_t step = 1; step <= 2; step++) {
    test_step(net, &t->spec, &b, t->spec.accumulation, step, 0.01);
  }
  brim_batch all = test_batch_at(&t->spec, &b, 0, eval);
  assert_ok(brim_net_evaluate(net, &all, NULL));
  if (outputs) assert_ok(brim_net_outputs(net, outputs, eval));
  test_batch_free(&b);
}

static void test_reuse_is_invisible(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int k = 0; k < NET_CASES; k++) {
    test_spec t;
    net_spec(&net_cases[k], &t);
    float *params[2], outputs[2][100 * 3] = {{0}};
    size_t count[2], arena[2];
    for (int loose = 0; loose < 2; loose++) {
      brim_net_hooks hooks = {.no_reuse = loose};
      brim_net *net;
      assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &net));
      check_program(&net->train);
      check_program(&net->eval);
      arena[loose] = net->blocks[BRIM_BLOCK_ARENA].bytes;
      exercise(net, &t, outputs[loose]);
      params[loose] = test_params(net, &count[loose]);
      brim_net_destroy(net);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(params[0], params[1], count[0] * sizeof(float));
    assert_memory_equal(outputs[0], outputs[1], sizeof outputs[0]);
    assert_true(arena[0] <= arena[1]);
    free(params[0]);
    free(params[1]);
  }
  test_device_close(device);
}

// The block behind the arena stays untouched with the planned size. With one block less it does not, so the plan is as
// small as it can be.
static void test_canary(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int k = 0; k < NET_CASES; k++) {
    for (int early = 0; early < 2; early++) {
      test_spec t;
      net_spec(&net_cases[k], &t);
      brim_net_hooks hooks = {.canary = true, .canary_early = early ? BRIM_ALIGN : 0};
      brim_net *net;
      assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &net));
      assert_true(brim_net_canary_intact(net));
      exercise(net, &t, NULL);
      if (brim_net_canary_intact(net) == (bool)early) {
        fail_msg("case %d: the arena is %s", k, early ? "larger than needed" : "too small");
      }
      brim_net_destroy(net);
    }
  }
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_graphs),    cmocka_unit_test(test_random_workspaces),
      cmocka_unit_test(test_workspace_faults), cmocka_unit_test(test_reuse_is_invisible),
      cmocka_unit_test(test_canary),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
