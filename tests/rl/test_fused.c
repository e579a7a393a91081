// Fused updates on CUDA against plain loops (fused_plain.h), over shapes of all kinds: gradients of every layer,
// outputs for the caller, sums of losses, values, and the same bits every time. Cases stay away from the edges of a
// loss (clipped or not), where rounding would decide. Without a GPU only the loops are checked, by differences of the
// loss.
#include "ppo_test.h"

#include "fused_plain.h"
#include "fused_room.h"

enum { CASES = 36, NETS = 2, ARRAYS = 6 };
static const double SMALL = 3e6;  // multiplications of a forward pass

typedef struct net_data {
  float *weight[BRIM_FUSED_LAYERS], *bias[BRIM_FUSED_LAYERS], *input;
  int64_t rows, seen;  // rows of the minibatch; rows of `input`
} net_data;

typedef struct fused_data {
  brim_ppo_shape shape;
  brim_fused_net net[NETS];
  net_data data[NETS];
  int32_t listed, masked;  // masked: 0 none, 1 `allowed`, 2 `mask`
  int32_t *rows, *action;
  uint64_t *mask;
  uint8_t *allowed;
  float *logp, *adv, *ret, *old;
  brim_ppo_norm norm;
  brim_ppo_moments moments;
  double state[NETS][BRIM_STATE_COUNT];
  int32_t has_norm, has_moments;
  float huber;
} fused_data;

//---------------------------------- cases ----------------------------------

static int32_t pick(int i, int n, int32_t low, int32_t high) {
  const uint32_t bits = brim_philox(brim_rng_key(79, BRIM_RNG_TEST), (uint64_t)i, (uint64_t)n).v[0];
  return low + (int32_t)(bits % (uint32_t)(high - low + 1));
}

static void *room(int64_t count, size_t each) {
  void *p = brim_calloc((size_t)count + 1, each);
  assert_non_null(p);
  return p;
}

static float rounded(int32_t dtype, double x) { return fused_plain_round(dtype, x); }

static brim_fused_net net_of(int i, int which, const brim_ppo_shape *s) {
  const int f32 = i % 4 == 3;
  const int wide = !f32 && i % 4 == 2;  // REST
  brim_fused_net n = {.dtype = f32 ? BRIM_F32 : BRIM_BF16,
                      .act = i % 3 == 1 ? BRIM_ACT_RELU : BRIM_ACT_TANH};
  n.inputs = 8 * pick(i, 10 + which, 1, wide ? 20 : i % 8 < 4 && !which ? 4 : 8);
  n.hidden = wide ? 8 * pick(i, 12, 9, 32) : pick(i, 12, 1, 128);
  if (i % 5 == 0) n.hidden = wide ? 256 : 128;
  n.outputs = which ? s->rewards : s->act;
  if (i % 6 == 5) n.outputs = which ? BRIM_FUSED_MAX_OUTPUTS : BRIM_FUSED_MAX_ACT;
  return n;
}

static void make_net(int i, int which, fused_data *d) {
  const brim_ppo_shape *s = &d->shape;
  brim_fused_net *n = &d->net[which];
  net_data *data = &d->data[which];
  *n = net_of(i, which, s);
  data->rows = s->batch * (which ? 1 : s->agents);
  data->seen = d->listed ? (int64_t)s->steps * s->envs * (which ? 1 : s->agents) : data->rows;
  uint64_t at = (uint64_t)(i * 2 + which) << 24;
  for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
    const int64_t rows = l < 2 ? n->hidden : n->outputs, columns = l ? n->hidden : n->inputs;
    data->weight[l] = room(rows * columns, sizeof(float));
    data->bias[l] = room(rows, sizeof(float));
    const double scale = 1.2 / sqrt((double)columns);
    for (int64_t k = 0; k < rows * columns; k++) {
      data->weight[l][k] = rounded(n->dtype, scale * ppo_normal(at++));
    }
    for (int64_t k = 0; k < rows; k++) data->bias[l][k] = rounded(n->dtype, 0.1 * ppo_normal(at++));
    n->weight[l] = data->weight[l];
    n->bias[l] = data->bias[l];
  }
  data->input = room(data->seen * n->inputs, sizeof(float));
  for (int64_t k = 0; k < data->seen * n->inputs; k++) {
    data->input[k] = rounded(n->dtype, k % 3 ? ppo_normal(at++) : (double)(k % 2));
  }
}

// Old log probabilities and values at a known distance from the present ones.
static void make_past(fused_data *d) {
  const brim_ppo_shape *s = &d->shape;
  const brim_ppo_scale scale = brim_ppo_scale_of(d->has_norm ? &d->norm : NULL);
  fused_plain_row *r = room(1, sizeof *r);
  for (int64_t k = 0; k < d->data[0].rows; k++) {
    const int64_t at = (int64_t)d->rows[k / s->agents] * s->agents + k % s->agents;
    const uint64_t mask = d->masked == 2 ? d->mask[k] : d->masked ? d->allowed[at] : ~0ull;
    brim_fused_net f = d->net[0];
    f.dtype = BRIM_F32;  // the numbers are in f32, rounded or not
    fused_plain_forward(&f, d->data[0].input, d->listed ? at : k, r);
    float x[BRIM_FUSED_MAX_OUTPUTS];
    memcpy(x, r->y, sizeof x);
    int32_t a = d->action[at] % s->act;
    while (!(mask >> a & 1)) a = (a + 1) % s->act;
    d->action[at] = a;
    double most = -1e9, sum = 0;
    for (int32_t o = 0; o < s->act; o++)
      most = mask >> o & 1 && (double)x[o] > most ? (double)x[o] : most;
    for (int32_t o = 0; o < s->act; o++) sum += mask >> o & 1 ? exp((double)x[o] - most) : 0;
    static const double apart[] = {0, 0.09, -0.1, 0.4, -0.5};
    d->logp[at] = (float)((double)x[a] - most - log(sum) + apart[at % 5]);
  }
  for (int64_t k = 0; k < s->batch * s->rewards; k++) {
    const int64_t row = k / s->rewards, of = d->listed ? d->rows[row] : row;
    const int64_t at = (int64_t)d->rows[row] * s->rewards + k % s->rewards;
    brim_fused_net f = d->net[1];
    f.dtype = BRIM_F32;
    fused_plain_forward(&f, d->data[1].input, of, r);
    const float value = r->y[k % s->rewards];
    static const float moved[] = {0.05f, -0.06f, 0.6f, -0.7f}, error[] = {1.5f, -1.3f, 0.4f};
    d->old[at] = brim_ppo_value_of(scale, value - moved[at % 4]);
    d->ret[at] = brim_ppo_value_of(scale, value - error[at % 3]);
  }
  brim_free(r);
}

// Shape and options of a case.
static void plan_case(int i, fused_data *d) {
  memset(d, 0, sizeof *d);
  brim_ppo_shape *s = &d->shape;
  s->agents = pick(i, 0, 1, 12);
  s->act = i % 3 == 2 ? pick(i, 1, 6, 8) : pick(i, 1, 1, 5);
  s->rewards = i % 2 ? 1 : s->agents;
  s->steps = pick(i, 2, 1, 9);
  s->envs = pick(i, 3, 1, i % 7 == 0 ? 400 : 40);
  const int32_t all = s->steps * s->envs;
  s->batch = i % 9 == 0 ? all : pick(i, 4, 1, all);
  d->listed = i % 4 == 2 ? 0 : i % 2 == 0;
  d->masked = i % 3;
  d->has_norm = i % 5 != 2;
  d->has_moments = i % 4 != 1;
  d->huber = i % 4 == 1 ? 0.9f : 0.0f;
}

// Without a GPU no kernel is tested: small cases run, and one in fifteen of the others.
static bool left_out(bool has_cuda, int i) {
  fused_data d;
  double work = 0;
  if (has_cuda) return false;
  plan_case(i, &d);
  for (int which = 0; which < NETS; which++) {
    const brim_fused_net n = net_of(i, which, &d.shape);
    const double rows = (double)d.shape.batch * (which ? 1 : d.shape.agents);
    work += rows * n.hidden * (n.inputs + n.hidden + n.outputs);
  }
  return work > SMALL && !test_is_sampled((uint64_t)i, 15);
}

static void make_case(int i, fused_data *d) {
  plan_case(i, d);
  const brim_ppo_shape *s = &d->shape;
  const int32_t all = s->steps * s->envs;
  d->norm = (brim_ppo_norm){.weight = 1, .mean = 0.4f, .std = 1.6f, .inverse = 1 / 1.6f};
  d->moments = (brim_ppo_moments){.shift = 0.2f, .scale = 0.7f};
  d->rows = room(all, sizeof *d->rows);
  const brim_shuffle order = brim_ppo_order(9, (uint64_t)i, 0, all);
  for (int32_t k = 0; k < all; k++) d->rows[k] = (int32_t)brim_shuffle_at(&order, (uint64_t)k);
  const int64_t each = (int64_t)all * s->agents, rewards = (int64_t)all * s->rewards;
  d->action = room(each, sizeof *d->action);
  d->logp = room(each, sizeof *d->logp);
  d->allowed = room(each, sizeof *d->allowed);
  d->mask = room(s->batch * s->agents, sizeof *d->mask);
  d->adv = room(rewards, sizeof *d->adv);
  d->ret = room(rewards, sizeof *d->ret);
  d->old = room(rewards, sizeof *d->old);
  for (int64_t k = 0; k < each; k++) {
    d->action[k] = pick(i, (int)(100 + k), 0, s->act - 1);
    d->allowed[k] = (uint8_t)(pick(i, (int)(100 + k), 0, 255) | 1 << k % s->act);
  }
  for (int64_t k = 0; k < s->batch * s->agents; k++) {
    d->mask[k] = (uint64_t)pick(i, (int)(100 + k), 0, 255) | (uint64_t)1 << k % s->act;
  }
  for (int64_t k = 0; k < rewards; k++) d->adv[k] = (float)ppo_normal((uint64_t)(k + 1000 * i));
  for (int n = 0; n < NETS; n++) {
    make_net(i, n, d);
    // some rows of the last tile are padding
    const int64_t valid = i % 5 == 4 && d->data[n].rows > s->agents
                              ? d->data[n].rows - (n ? 1 : s->agents)
                              : d->data[n].rows;
    d->state[n][BRIM_STATE_ROWS] = (double)valid;
    d->state[n][BRIM_STATE_GRAD_SCALE] = 1.0 / (double)valid;
    d->state[n][BRIM_STATE_LOSS_SCALE] = 4;
  }
  make_past(d);
}

static void free_case(fused_data *d) {
  void *all[] = {d->rows, d->action, d->logp, d->allowed, d->mask, d->adv, d->ret, d->old};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) brim_free(all[k]);
  for (int n = 0; n < NETS; n++) {
    for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
      brim_free(d->data[n].weight[l]);
      brim_free(d->data[n].bias[l]);
    }
    brim_free(d->data[n].input);
  }
}

//---------------------------------- a place ----------------------------------

// Floats in the type of the network.
static void *give_typed(ppo_place *p, int32_t dtype, const float *from, int64_t count) {
  if (dtype == BRIM_F32) return ppo_give(p, from, (size_t)count * sizeof *from);
  uint16_t *half = room(count, sizeof *half);
  for (int64_t k = 0; k < count; k++) half[k] = brim_f32_to_bf16(from[k]);
  void *to = ppo_give(p, half, (size_t)count * sizeof *half);
  brim_free(half);
  return to;
}

static int64_t layer_rows(const brim_fused_net *n, int l) { return l < 2 ? n->hidden : n->outputs; }
static int64_t layer_columns(const brim_fused_net *n, int l) { return l ? n->hidden : n->inputs; }

static brim_fused_part give_part(ppo_place *p, const fused_data *d, int which, brim_fused_way way) {
  brim_fused_part part = {.net = d->net[which], .listed = d->listed};
  const net_data *data = &d->data[which];
  brim_fused_net *n = &part.net;
  for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
    const int64_t rows = layer_rows(n, l), all = rows * layer_columns(n, l);
    n->weight[l] = give_typed(p, n->dtype, data->weight[l], all);
    n->bias[l] = give_typed(p, n->dtype, data->bias[l], rows);
    n->weight_grad[l] = ppo_give(p, NULL, (size_t)all * sizeof(float));
    n->bias_grad[l] = ppo_give(p, NULL, (size_t)rows * sizeof(float));
  }
  if (way == BRIM_FUSED_WHOLE) {
    part.input = give_typed(p, n->dtype, data->input, data->seen * n->inputs);
    return part;
  }
  const int64_t all = data->rows * n->hidden;
  float *z = room(all, sizeof *z);
  for (int64_t k = 0; k < data->rows; k++) {
    for (int32_t c = 0; c < n->hidden; c++) {
      double sum = (double)data->bias[0][c];
      for (int32_t j = 0; j < n->inputs; j++) {
        sum += (double)data->weight[0][c * n->inputs + j] * (double)data->input[k * n->inputs + j];
      }
      z[k * n->hidden + c] = rounded(n->dtype, sum);
    }
  }
  part.z = give_typed(p, n->dtype, z, all);
  part.h = give_typed(p, n->dtype, z, all);
  part.g = give_typed(p, n->dtype, z, all);
  brim_free(z);
  return part;
}

static brim_fused_update give_case(ppo_place *p, const brim_fused_table *table,
                                   const fused_data *d) {
  const brim_ppo_shape *s = &d->shape;
  const size_t all = (size_t)s->steps * (size_t)s->envs, each = all * (size_t)s->agents;
  const size_t rewards = all * (size_t)s->rewards, f = sizeof(float);
  const double zeros[BRIM_PPO_METRIC_COUNT] = {0};
  size_t scratch = 0;
  assert_ok(table->scratch(s, &d->net[0], &d->net[1], &scratch));
  brim_fused_update u = {
      .losses = {.rows = ppo_give(p, d->rows, (size_t)s->batch * sizeof(int32_t)),
                 .mask =
                     d->masked == 2
                         ? ppo_give(p, d->mask, (size_t)(s->batch * s->agents) * sizeof(uint64_t))
                         : NULL,
                 .action = ppo_give(p, d->action, each * sizeof(int32_t)),
                 .logp = ppo_give(p, d->logp, each * f),
                 .adv = ppo_give(p, d->adv, rewards * f),
                 .ret = ppo_give(p, d->ret, rewards * f),
                 .old = ppo_give(p, d->old, rewards * f),
                 .norm = d->has_norm ? ppo_give(p, &d->norm, sizeof d->norm) : NULL,
                 .moments = d->has_moments ? ppo_give(p, &d->moments, sizeof d->moments) : NULL,
                 .clip = 0.2f,
                 .value_clip = 0.3f,
                 .value_coef = 0.5f,
                 .entropy = 0.02f,
                 .huber = d->huber,
                 .metrics = ppo_give(p, zeros, sizeof zeros)},
      .allowed = d->masked == 1 ? ppo_give(p, d->allowed, each) : NULL,
      .scratch = ppo_give(p, NULL, scratch + 256),
  };
  u.losses.actor.state = ppo_give(p, d->state[0], sizeof d->state[0]);
  u.losses.critic.state = ppo_give(p, d->state[1], sizeof d->state[1]);
  u.actor = give_part(p, d, 0, table->way(&d->net[0]));
  u.critic = give_part(p, d, 1, table->way(&d->net[1]));
  return u;
}

//---------------------------------- comparing ----------------------------------

// |got - want| / |want|.
static double apart(const float *got, const float *want, int64_t count) {
  double difference = 0, size = 0;
  for (int64_t k = 0; k < count; k++) {
    const double e = (double)got[k] - (double)want[k];
    difference += e * e;
    size += (double)want[k] * (double)want[k];
  }
  return difference == 0 ? 0 : sqrt(difference / size);
}

typedef struct compared {
  int i;  // the case
  const char *what;
  int32_t dtype;
  double within;
} compared;

static void compare(const compared *c, ppo_place *p, const void *got, const void *want,
                    int64_t count) {
  const int32_t dtype = c->dtype;
  const size_t bytes = (size_t)count * (dtype == BRIM_F32 ? sizeof(float) : sizeof(uint16_t));
  float *a = room(count, sizeof *a), *b = room(count, sizeof *b);
  void *taken = room(count, sizeof(float));
  ppo_take(p, taken, got, bytes);
  for (int64_t k = 0; k < count; k++) {
    a[k] = fused_plain_load(taken, dtype, k);
    b[k] = fused_plain_load(want, dtype, k);
  }
  const double e = apart(a, b, count);
  if (!(e <= c->within)) {
    fail_msg("case %d: %s is %.3g apart, %.3g allowed", c->i, c->what, e, c->within);
  }
  brim_free(a);
  brim_free(b);
  brim_free(taken);
}

static void compare_part(int i, ppo_place *p, const brim_fused_part *got,
                         const brim_fused_part *want, int64_t rows) {
  static const char *const weights[] = {"weights of layer 0", "weights of layer 1",
                                        "weights of layer 2"};
  static const char *const biases[] = {"biases of layer 0", "biases of layer 1",
                                       "biases of layer 2"};
  const brim_fused_net *n = &got->net, *m = &want->net;
  compared c = {.i = i, .dtype = BRIM_F32, .within = n->dtype == BRIM_F32 ? 1e-5 : 1e-2};
  for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
    c.what = weights[l];
    const int64_t all = got->z && l < 2 ? 0 : layer_rows(n, l) * layer_columns(n, l);
    compare(&c, p, n->weight_grad[l], m->weight_grad[l], all);
    c.what = biases[l];
    compare(&c, p, n->bias_grad[l], m->bias_grad[l], layer_rows(n, l));
  }
  if (!got->z) return;
  const struct {
    const char *what;
    const void *got, *want;
  } left[] = {{"h", got->h, want->h}, {"g", got->g, want->g}, {"z", got->z, want->z}};
  c.dtype = n->dtype;
  for (int k = 0; k < 3; k++) {
    c.what = left[k].what;
    compare(&c, p, left[k].got, left[k].want, rows * n->hidden);
  }
}

static void compare_metrics(int i, ppo_place *p, const fused_data *d, const brim_fused_update *got,
                            const brim_fused_update *want) {
  double m[BRIM_PPO_METRIC_COUNT];
  ppo_take(p, m, got->losses.metrics, sizeof m);
  for (int k = 0; k < BRIM_PPO_METRIC_COUNT; k++) {
    const int counts = k == BRIM_PPO_ROWS || k == BRIM_PPO_BAD || k == BRIM_PPO_CLIPPED ||
                       k == BRIM_PPO_VALUES || k == BRIM_PPO_BAD_VALUES ||
                       k == BRIM_PPO_VALUE_CLIPPED;
    const double rows = (double)d->data[0].rows, w = want->losses.metrics[k];
    const double within = counts ? 0 : d->net[0].dtype == BRIM_F32 ? 1e-5 * rows : 0.02 * rows;
    if (!(fabs(m[k] - w) <= within))
      fail_msg("case %d: metric %d is %.9g, %.9g wanted", i, k, m[k], w);
  }
}

typedef struct fused_places {
  cuda_extension cuda;
  ppo_place host, device;
  bool has_cuda;
} fused_places;

static int open_places(void **state) {
  static fused_places places;
  places.has_cuda = cuda_extension_open(&places.cuda, BRIM_FUSED_EXTENSION, BRIM_FUSED_ABI);
  if (places.has_cuda) {
    places.device.device = places.cuda.device;
    places.device.where.stream = places.cuda.device->stream;
  }
  printf("places: plain%s\n", places.has_cuda ? ", cuda" : " (no GPU here)");
  *state = &places;
  return 0;
}

static int close_places(void **state) {
  fused_places *places = *state;
  ppo_clear(&places->host);
  if (!places->has_cuda) return 0;
  ppo_clear(&places->device);
  cuda_extension_close(&places->cuda);
  return 0;
}

// True if the GPU takes both networks in the same way as the loops.
static bool takes(const fused_places *places, const fused_data *d) {
  const brim_fused_table *table = places->cuda.table;
  for (int n = 0; n < NETS; n++) {
    if (table->way(&d->net[n]) == fused_plain_way(&d->net[n])) continue;
    fused_leave_out(places->cuda.device);
    return false;
  }
  return true;
}

//---------------------------------- tests ----------------------------------

static void update_as_loops(fused_places *places, int i, const fused_data *d) {
  const brim_fused_table *table = places->cuda.table;
  brim_fused_update want = give_case(&places->host, &fused_plain, d);
  brim_fused_update got = give_case(&places->device, table, d);
  assert_ok(fused_plain_update_as(&d->shape, &want, true));
  assert_ok(table->update(&places->device.where, &d->shape, &got));
  compare_part(i, &places->device, &got.actor, &want.actor, d->data[0].rows);
  compare_part(i, &places->device, &got.critic, &want.critic, d->data[1].rows);
  compare_metrics(i, &places->device, d, &got, &want);
  ppo_clear(&places->host);
  ppo_clear(&places->device);
}

static void test_updates_are_those_of_plain_loops(void **state) {
  fused_places *places = *state;
  if (!places->has_cuda) skip();
  int ways[BRIM_FUSED_REST + 1] = {0};
  for (int i = 0; i < CASES; i++) {
    fused_data d;
    make_case(i, &d);
    if (takes(places, &d)) {
      for (int n = 0; n < NETS; n++) ways[fused_plain_way(&d.net[n])]++;
      update_as_loops(places, i, &d);
    }
    free_case(&d);
  }
  if (!fused_has_room(places->cuda.device)) return;
  assert_true(ways[BRIM_FUSED_WHOLE] > 10 && ways[BRIM_FUSED_REST] > 10);
}

// Collects all gradients that an update writes, and returns their number; `to` NULL: only the number.
static int64_t take_gradients(ppo_place *p, const brim_fused_update *u, float *to) {
  const brim_fused_part *parts[NETS] = {&u->actor, &u->critic};
  int64_t count = 0;
  for (int k = 0; k < NETS * ARRAYS; k++) {
    const brim_fused_part *part = parts[k / ARRAYS];
    const brim_fused_net *n = &part->net;
    const int l = k % BRIM_FUSED_LAYERS;
    const bool weights = k % ARRAYS < BRIM_FUSED_LAYERS;
    if (weights && part->z && l < 2) continue;  // the caller computes these
    const int64_t all = layer_rows(n, l) * (weights ? layer_columns(n, l) : 1);
    const float *from = weights ? n->weight_grad[l] : n->bias_grad[l];
    if (to) ppo_take(p, to + count, from, (size_t)all * sizeof *to);
    count += all;
  }
  return count;
}

static void test_bits_are_the_same_every_time(void **state) {
  fused_places *places = *state;
  if (!places->has_cuda) skip();
  const brim_fused_table *table = places->cuda.table;
  ppo_place *p = &places->device;
  for (int i = 0; i < CASES; i += 3) {
    fused_data d;
    make_case(i, &d);
    float *found[2] = {0};
    for (int run = 0; run < 2 && takes(places, &d); run++) {
      brim_fused_update u = give_case(p, table, &d);
      assert_ok(table->update(&p->where, &d.shape, &u));
      const int64_t all = take_gradients(p, &u, NULL);
      found[run] = room(all, sizeof(float));
      (void)take_gradients(p, &u, found[run]);
      if (run) assert_memory_equal(found[0], found[1], (size_t)all * sizeof(float));
      ppo_clear(p);
    }
    brim_free(found[0]);
    brim_free(found[1]);
    free_case(&d);
  }
}

static void test_values_are_outputs(void **state) {
  fused_places *places = *state;
  if (!places->has_cuda) skip();
  const brim_fused_table *table = places->cuda.table;
  for (int i = 0; i < CASES; i++) {
    fused_data d;
    make_case(i, &d);
    const brim_fused_net *n = &d.net[1];
    if (table->way(n) == BRIM_FUSED_WHOLE) {
      const brim_fused_part host = give_part(&places->host, &d, 1, BRIM_FUSED_WHOLE);
      const brim_fused_part device = give_part(&places->device, &d, 1, BRIM_FUSED_WHOLE);
      const int64_t rows = d.data[1].seen, all = rows * n->outputs;
      void *want = ppo_give(&places->host, NULL, (size_t)all * sizeof(float));
      void *got = ppo_give(&places->device, NULL, (size_t)all * sizeof(float));
      assert_ok(fused_plain.values(&places->host.where, &host.net, host.input, rows, want));
      assert_ok(table->values(&places->device.where, &device.net, device.input, rows, got));
      const compared c = {i, "values", n->dtype, n->dtype == BRIM_F32 ? 1e-5 : 1e-2};
      compare(&c, &places->device, got, want, all);
    }
    ppo_clear(&places->host);
    ppo_clear(&places->device);
    free_case(&d);
  }
}

// The loss of both networks in f32, from the sums of an update.
static double loss_of(ppo_place *p, const fused_data *d, brim_fused_update *u) {
  const double zeros[BRIM_PPO_METRIC_COUNT] = {0};
  double m[BRIM_PPO_METRIC_COUNT];
  memcpy(u->losses.metrics, zeros, sizeof zeros);
  assert_ok(fused_plain.update(&p->where, &d->shape, u));
  memcpy(m, u->losses.metrics, sizeof m);
  const double actor = m[BRIM_PPO_POLICY_LOSS] - (double)u->losses.entropy * m[BRIM_PPO_ENTROPY];
  const double critic = (double)u->losses.value_coef * m[BRIM_PPO_VALUE_LOSS] / d->shape.rewards;
  return d->state[0][BRIM_STATE_LOSS_SCALE] *
         (actor * d->state[0][BRIM_STATE_GRAD_SCALE] + critic * d->state[1][BRIM_STATE_GRAD_SCALE]);
}

// The loops that kernels are compared with are themselves checked by differences of the loss.
static void test_plain_gradients_are_slopes_of_the_loss(void **state) {
  fused_places *places = *state;
  ppo_place *p = &places->host;
  const double step = 1.0 / 512;
  for (int i = 3; i < CASES; i += 4) {  // f32
    if (left_out(places->has_cuda, i)) continue;
    fused_data d;
    make_case(i, &d);
    if (d.net[0].act == BRIM_ACT_TANH && d.shape.act > 1) {
      brim_fused_update u = give_case(p, &fused_plain, &d);
      (void)loss_of(p, &d, &u);
      for (int n = 0; n < NETS; n++) {
        brim_fused_net *net = n ? &u.critic.net : &u.actor.net;
        for (int l = 0; l < BRIM_FUSED_LAYERS; l++) {
          const int64_t all = layer_rows(net, l) * layer_columns(net, l);
          const int64_t at = pick(i, 50 + 10 * n + l, 0, (int32_t)all - 1);
          if (l == 2 && at / net->hidden >= (n ? d.shape.rewards : d.shape.act)) continue;
          (void)loss_of(p, &d, &u);
          const double slope = (double)net->weight_grad[l][at];
          float *w = (float *)(uintptr_t)net->weight[l] + at;
          const float was = *w;
          *w = (float)((double)was + step);
          const double high = loss_of(p, &d, &u);
          *w = (float)((double)was - step);
          const double low = loss_of(p, &d, &u);
          *w = was;
          assert_close(slope, (high - low) / (2 * step), 2e-3 + 0.02 * fabs(slope));
        }
      }
    }
    ppo_clear(p);
    free_case(&d);
  }
}

//---------------------------------- rows that are bad ----------------------------------

// The first number that row 0 of a minibatch reads.
static float *first_input(const fused_data *d, int which) {
  const int64_t row = d->listed ? (int64_t)d->rows[0] * (which ? 1 : d->shape.agents) : 0;
  return d->data[which].input + row * d->net[which].inputs;
}

static float first_bias_gradient(ppo_place *p, const brim_fused_part *part) {
  float x;
  ppo_take(p, &x, part->net.bias_grad[2], sizeof x);
  return x;
}

// A NaN in the input reaches the outputs through either activation, and from there the gradients: the step is skipped,
// and its rows are counted.
static void test_no_number_gives_none(void **state) {
  fused_places *places = *state;
  for (int i = 0; i < CASES; i++) {
    if (left_out(places->has_cuda, i)) continue;
    fused_data d;
    make_case(i, &d);
    for (int n = 0; n < NETS; n++) *first_input(&d, n) = NAN;
    brim_fused_update want = give_case(&places->host, &fused_plain, &d);
    assert_ok(fused_plain.update(&places->host.where, &d.shape, &want));
    assert_true(want.losses.metrics[BRIM_PPO_BAD] == 1);
    assert_true(want.losses.metrics[BRIM_PPO_BAD_VALUES] == d.shape.rewards);
    assert_true(isnan(first_bias_gradient(&places->host, &want.actor)));
    assert_true(isnan(first_bias_gradient(&places->host, &want.critic)));
    if (places->has_cuda && takes(places, &d)) {
      const brim_fused_table *table = places->cuda.table;
      brim_fused_update got = give_case(&places->device, table, &d);
      assert_ok(table->update(&places->device.where, &d.shape, &got));
      compare_metrics(i, &places->device, &d, &got, &want);
      if (!isnan(first_bias_gradient(&places->device, &got.actor)) ||
          !isnan(first_bias_gradient(&places->device, &got.critic))) {
        fail_msg("case %d: a gradient is a number", i);
      }
      ppo_clear(&places->device);
    }
    ppo_clear(&places->host);
    free_case(&d);
  }
}

// Row 0 allows no action. Other rows forbid the last action, whose output is infinite. The gradients are still finite.
static void forbid(fused_data *d) {
  const int32_t last = d->shape.act - 1;
  const int64_t each = (int64_t)d->shape.steps * d->shape.envs * d->shape.agents;
  for (int64_t k = 0; k < each; k++) {
    d->allowed[k] = (uint8_t)((d->allowed[k] | 1) & ~(1 << last));
  }
  for (int64_t k = 0; k < d->shape.batch * d->shape.agents; k++) {
    d->mask[k] = (d->mask[k] | 1) & ~((uint64_t)1 << last);
  }
  make_past(d);
  d->mask[0] = 0;
  d->allowed[(int64_t)d->rows[0] * d->shape.agents] = 0;
  d->data[0].bias[2][last] = INFINITY;
}

static void test_what_is_forbidden_has_no_gradient(void **state) {
  fused_places *places = *state;
  int made = 0;
  for (int i = 0; i < CASES; i++) {
    if (left_out(places->has_cuda, i)) continue;
    fused_data d;
    make_case(i, &d);
    if (d.masked && d.shape.act > 1) {
      forbid(&d);
      brim_fused_update want = give_case(&places->host, &fused_plain, &d);
      assert_ok(fused_plain_update_as(&d.shape, &want, true));
      assert_true(want.losses.metrics[BRIM_PPO_BAD] == 1);
      assert_true(want.actor.net.bias_grad[2][d.shape.act - 1] == 0);
      assert_true(isfinite(first_bias_gradient(&places->host, &want.actor)));
      if (places->has_cuda && takes(places, &d)) {
        const brim_fused_table *table = places->cuda.table;
        brim_fused_update got = give_case(&places->device, table, &d);
        assert_ok(table->update(&places->device.where, &d.shape, &got));
        compare_metrics(i, &places->device, &d, &got, &want);
        compare_part(i, &places->device, &got.actor, &want.actor, d.data[0].rows);
        ppo_clear(&places->device);
      }
      made++;
    }
    ppo_clear(&places->host);
    free_case(&d);
  }
  assert_true(made > 10);
}

static void test_what_does_not_fit_is_refused(void **state) {
  fused_places *places = *state;
  if (!places->has_cuda) skip();
  const brim_fused_table *table = places->cuda.table;
  fused_data d;
  make_case(0, &d);
  if (!takes(places, &d)) skip();
  brim_fused_update u = give_case(&places->device, table, &d);
  brim_ppo_shape shapes[] = {d.shape, d.shape, d.shape};
  shapes[0].act = BRIM_FUSED_MAX_ACT + 1;
  shapes[1].act = u.actor.net.outputs + 1;
  shapes[2].batch = 0;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    assert_int_equal(table->update(&places->device.where, &shapes[k], &u), BRIM_EINVAL);
  }
  ppo_clear(&places->device);
  free_case(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain_gradients_are_slopes_of_the_loss),
      cmocka_unit_test(test_updates_are_those_of_plain_loops),
      cmocka_unit_test(test_bits_are_the_same_every_time),
      cmocka_unit_test(test_values_are_outputs),
      cmocka_unit_test(test_no_number_gives_none),
      cmocka_unit_test(test_what_is_forbidden_has_no_gradient),
      cmocka_unit_test(test_what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, open_places, close_places);
}
