// Cases made from the list: the n-th of all, the n-th of those for speed, a random one; their names.
#include "cases/cases.h"

#include <stdio.h>
#include <string.h>

#include "cases/cases_int.h"
#include "hd/hd_philox.h"

int64_t brim_case_rows(const brim_case *c) {
  return c->n * (c->l ? c->l : 1) * (c->h ? c->h * c->w : 1);
}

static void shape_text(case_kind kind, const case_shape *s, char out[96]) {
  long long n = s->n, k = s->k, m = s->m, l = s->l, h = s->h, w = s->w;
  char tokens[32] = "";
  if (l) snprintf(tokens, sizeof(tokens), " l=%lld", l);
  switch (kind) {
    case CASE_LINEAR:
      snprintf(out, 96, "n=%lld%s k=%lld m=%lld", n, tokens, k, m);
      break;
    case CASE_CONV:
      snprintf(out, 96, "n=%lld h=%lld w=%lld c=%lld m=%lld window=%lldx%lld stride=%d pad=%d", n,
               h, w, k, m, (long long)s->r, (long long)s->s, (int)s->stride, (int)s->pad);
      break;
    case CASE_POOL:
      snprintf(out, 96, "n=%lld h=%lld w=%lld c=%lld window=%lld stride=%d pad=%d", n, h, w, k,
               (long long)s->r, (int)s->stride, (int)s->pad);
      break;
    case CASE_ATTENTION:
      snprintf(out, 96, "n=%lld%s c=%lld heads=%d", n, tokens, k, (int)s->heads);
      break;
    case CASE_PARTS:
      snprintf(out, 96, "parts=%lld c=%lld", n, k);
      break;
    case CASE_CONCAT:
      snprintf(out, 96, "n=%lld a=%lld b=%lld", n, k, m);
      break;
    case CASE_PARAM:
    case CASE_RING:
      snprintf(out, 96, "p=%lld", n);
      break;
    default:
      if (h) {
        snprintf(out, 96, "n=%lld h=%lld w=%lld c=%lld", n, h, w, k);
      } else {
        snprintf(out, 96, "n=%lld%s c=%lld", n, tokens, k);
      }
      break;
  }
}

static void fill_state(const case_group *g, const case_shape *s, const case_variant *v,
                       double *state) {
  int64_t views = g->op == BRIM_OP_NTXENT ? 2 : 1, all = s->n / views;
  double samples = v->empty ? 0 : (double)(v->padding ? all - all / 3 : all);
  state[BRIM_STATE_STEP] = v->step > 0 ? v->step : 3;
  state[BRIM_STATE_LR] = 0.01;
  state[BRIM_STATE_ROWS] = samples * (double)views;
  state[BRIM_STATE_SAMPLES] = samples;
  state[BRIM_STATE_GRAD_SCALE] = samples > 0 ? 1 / samples : 1;
  state[BRIM_STATE_CLIP] = v->clip;
  state[BRIM_STATE_SEED] = 9007199254740881;  // close to 2^53, still exact
  state[BRIM_STATE_ROW_OFFSET] = v->row_offset;
  state[BRIM_STATE_LOSS_SCALE] = v->loss_scale > 0 ? v->loss_scale : 1;
  state[BRIM_STATE_GOOD_STEPS] = v->good_steps;
  state[BRIM_STATE_UPDATES] = state[BRIM_STATE_STEP] - 1;
}

static void make_case(const case_group *g, const case_shape *s, const case_variant *v,
                      brim_case *out) {
  *out = (brim_case){.op = g->op, .n = s->n, .k = s->k, .m = s->m, .attr = v->attr};
  out->l = s->l;
  out->h = s->h;
  out->w = s->w;
  out->r = s->r;
  out->s = s->s;
  out->attr.stride = s->stride;
  out->attr.pad = s->pad;
  out->attr.heads = s->heads;
  if (g->kind == CASE_POOL) out->attr.window = (int32_t)s->r;
  if (g->kind == CASE_INPUT) out->m = v->wide;
  out->type = BRIM_F32;
  out->type2 = v->type2 == CASE_F32 ? BRIM_F32 : v->type2 ? v->type2 : BRIM_DTYPE_COUNT;
  out->optional = v->optional;
  out->with = v->with;
  out->padding = v->padding;
  out->offset = v->offset;
  out->ties = v->ties;
  out->bad_labels = v->bad_labels;
  out->nonfinite = v->nonfinite;
  out->in_place = v->in_place;
  out->seed = 1;
  fill_state(g, s, v, out->state);
  char text[96];
  shape_text(g->kind, s, text);
  snprintf(out->name, sizeof(out->name), "%s %s %s", brim_op_name(g->op), text, v->text);
}

//---------------------------------- counting ----------------------------------

// The variants of a group in a list: all, or those that matter for speed.
static size_t variants_in(const case_group *g, bool speed) {
  size_t count = 0;
  for (size_t i = 0; i < g->variant_count; i++) count += !speed || !g->variants[i].rare;
  return count;
}

static size_t count_cases(bool speed) {
  size_t groups, fuzz, count = 0;
  const case_group *g = brim_case_groups(&groups, &fuzz);
  for (size_t i = 0; i < groups; i++) {
    count += (speed ? g[i].speed_count : g[i].shape_count) * variants_in(&g[i], speed);
  }
  return count;
}

static void get_case(bool speed, size_t index, brim_case *out) {
  size_t groups, fuzz;
  const case_group *g = brim_case_groups(&groups, &fuzz);
  size_t per = variants_in(g, speed);
  while (index >= (speed ? g->speed_count : g->shape_count) * per) {
    index -= (speed ? g->speed_count : g->shape_count) * per;
    g++;
    per = variants_in(g, speed);
  }
  const case_variant *v = g->variants;
  for (size_t skip = index % per;; v++) {
    if (speed && v->rare) continue;
    if (skip-- == 0) break;
  }
  make_case(g, (speed ? g->speed : g->shapes) + index / per, v, out);
}

size_t brim_case_count(void) { return count_cases(false); }
void brim_case_get(size_t index, brim_case *out) { get_case(false, index, out); }
size_t brim_case_speed_count(void) { return count_cases(true); }
void brim_case_speed_get(size_t index, brim_case *out) { get_case(true, index, out); }

//---------------------------------- random shapes ----------------------------------

// A size from 1 to limit, small ones more often.
static int64_t draw_size(uint32_t bits, int64_t limit) {
  double u = (double)brim_rng_uniform(bits);
  return 1 + (int64_t)(u * u * (double)limit);
}

// A window that fits: the image is at least as large as the window less its padding.
static void draw_window(brim_philox4 bits, case_shape *s) {
  s->r = draw_size(bits.v[0], 5);
  s->s = draw_size(bits.v[1], 5);
  s->stride = (int32_t)draw_size(bits.v[2], 3);
  int64_t least = s->r < s->s ? s->r : s->s;
  s->pad = (int32_t)(bits.v[3] % (uint64_t)least);
  if (s->h + 2 * s->pad < s->r) s->h = s->r - 2 * s->pad;
  if (s->w + 2 * s->pad < s->s) s->w = s->s - 2 * s->pad;
}

static case_shape draw_image(brim_philox4 a, brim_philox4 b) {
  return (case_shape){.n = draw_size(a.v[2], 4),
                      .k = draw_size(a.v[3], 70),
                      .m = draw_size(b.v[2], 40),
                      .h = draw_size(b.v[3], 12),
                      .w = draw_size(b.v[0], 12)};
}

// Pooling needs a square window, padding smaller than it, and an image that holds it.
static void draw_pool(brim_philox4 c, case_shape *s) {
  draw_window(c, s);
  s->s = s->r;
  if (s->pad >= s->r) s->pad = 0;
  if (s->h + 2 * s->pad < s->r) s->h = s->r;
  if (s->w + 2 * s->pad < s->r) s->w = s->r;
}

static case_shape draw_attention(brim_philox4 a, brim_philox4 b) {
  case_shape s = {.n = draw_size(a.v[2], 4), .l = draw_size(a.v[3], 80)};
  s.heads = (int32_t)draw_size(b.v[2], 4);
  s.k = s.heads * draw_size(b.v[3], 40);
  return s;
}

static case_shape draw_shape(case_kind kind, brim_philox4 a, brim_philox4 b, brim_philox4 c) {
  case_shape flat = {.n = draw_size(a.v[2], 70), .k = draw_size(a.v[3], 300)}, s = flat;
  case_shape image = draw_image(a, b);
  int64_t tokens = c.v[0] % 3 == 0 ? draw_size(c.v[1], 9) : 0;
  switch (kind) {
    case CASE_LINEAR:
      s.m = draw_size(b.v[2], 70);
      s.l = tokens;
      break;
    case CASE_NORM:
      s.k += 2;
      s.l = tokens;
      break;
    case CASE_FLAT:
      s.l = tokens;
      break;
    case CASE_ROW:
      break;
    case CASE_PARAM:
    case CASE_RING:
      return (case_shape){.n = draw_size(a.v[2], kind == CASE_RING ? 40 : 3000)};
    case CASE_PARTS:
      s.n = draw_size(a.v[2], 4);
      break;
    case CASE_INPUT:
      s.k = 12 * (1 + s.k / 12);
      break;
    case CASE_CONV:
      s = image;
      draw_window(c, &s);
      break;
    case CASE_POOL:
      s = image;
      draw_pool(c, &s);
      break;
    case CASE_IMAGE:
      s = image;
      s.n += 5;
      break;
    case CASE_MEAN:
      s.l = 1 + tokens;
      if (c.v[0] % 2) s = image;
      break;
    case CASE_TOKEN:
      s.l = draw_size(c.v[1], 20);
      s.n = draw_size(a.v[2], 12);
      break;
    case CASE_ATTENTION:
      return draw_attention(a, b);
    case CASE_CONCAT:
      s.m = draw_size(b.v[2], 70);
      break;
    case CASE_VIEWS:
      s.n = 4 + 2 * (s.n / 2);
      s.k += 8;
      break;
  }
  return s;
}

void brim_case_fuzz(uint64_t seed, uint64_t index, brim_case *out) {
  uint64_t key = brim_rng_key(seed, BRIM_RNG_TEST);
  brim_philox4 r = brim_philox(key, 1, index), q = brim_philox(key, 2, index);
  size_t count, fuzz;
  const case_group *groups = brim_case_groups(&count, &fuzz);
  const case_group *g = &groups[brim_rng_below(r.v[0], q.v[0], fuzz)];
  const case_variant *v = &g->variants[brim_rng_below(r.v[1], q.v[1], g->variant_count)];
  // Random bits that chose the op are not used again for the shape.
  case_shape s = draw_shape(g->kind, r, brim_philox(key, 3, index), brim_philox(key, 4, index));
  make_case(g, &s, v, out);
  out->seed = index + 2;
}

void brim_case_set_type(brim_case *c, brim_dtype type) {
  c->type = type;
  size_t used = strlen(c->name);
  snprintf(c->name + used, sizeof(c->name) - used, " %s", brim_dtype_name(type));
}

void brim_case_set_oracle(brim_case *c) {
  c->type = BRIM_F64;
  if (c->op == BRIM_OP_CAST) c->type2 = BRIM_F64;
}
