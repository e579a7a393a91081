// Holds a call against its op's row in backend_ops.c: types and shapes tensor by tensor, then
// attributes. Sizes are letters that the first tensor binds and later ones must match, so a message
// can name both sides. Says nothing about what a backend can do: that is its validate.
#include <stdio.h>

#include "backend/backend_ops.h"

typedef struct binding {
  int64_t size;
  const char *by;  // slot that bound it
} binding;

typedef struct check {
  const brim_op_call *call;
  const char *op;
  brim_dtype type;  // T, or COUNT while unknown
  const char *type_by;
  const brim_tensor *first;  // for "*"
  const char *first_name;
  binding letter[26];
} check;

static void shape_text(const brim_tensor *t, char out[160]) {
  size_t n = (size_t)snprintf(out, 160, "(");
  for (int i = 0; i < t->rank && n < 150; i++) {
    n += (size_t)snprintf(out + n, 160 - n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
  }
  if (n < 159) snprintf(out + n, 160 - n, ")");
}

static bool is_float(brim_dtype t) {
  return t == BRIM_F32 || t == BRIM_BF16 || t == BRIM_F16 || t == BRIM_F64;
}

static brim_status check_type(check *c, const brim_op_slot *s, brim_dtype type) {
  const char *name = brim_dtype_name(type);
  switch (s->type) {
    case SLOT_T:
      if (!is_float(type)) {
        return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f32, bf16, f16 or f64", c->op,
                         s->name, name);
      }
      if (c->type == BRIM_DTYPE_COUNT) {
        c->type = type;
        c->type_by = s->name;
      }
      if (type != c->type) {
        return brim_fail(BRIM_EINVAL, "%s: %s is %s, but %s is %s", c->op, s->name, name,
                         c->type_by, brim_dtype_name(c->type));
      }
      return BRIM_OK;
    case SLOT_P: {
      if (c->type == BRIM_DTYPE_COUNT && (type == BRIM_F32 || type == BRIM_F64)) {
        c->type = type;
        c->type_by = s->name;
      }
      brim_dtype want = c->type == BRIM_F64 ? BRIM_F64 : BRIM_F32;
      if (type == want) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected %s", c->op, s->name, name,
                       brim_dtype_name(want));
    }
    case SLOT_F64:
      if (type == BRIM_F64) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f64", c->op, s->name, name);
    case SLOT_F32:
      if (type == BRIM_F32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f32", c->op, s->name, name);
    case SLOT_I32:
      if (type == BRIM_I32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected i32", c->op, s->name, name);
    case SLOT_U8:
      if (type == BRIM_U8) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected u8", c->op, s->name, name);
    case SLOT_RAW:
      if (type == BRIM_U8 || type == BRIM_F32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected u8 or f32", c->op, s->name, name);
    case SLOT_FLOAT:
      if (is_float(type)) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected a float type", c->op, s->name, name);
    case SLOT_HALF:
      if (type == BRIM_BF16 || type == BRIM_F16) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected bf16 or f16", c->op, s->name, name);
  }
  return BRIM_OK;
}

static brim_status bind_size(check *c, const brim_op_slot *s, char letter, int64_t size) {
  binding *b = &c->letter[letter - 'A'];
  if (!b->by) {
    b->by = s->name;
    b->size = size;
  }
  if (b->size == size) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %s has %c = %lld, but %s gave %c = %lld", c->op, s->name,
                   letter, (long long)size, b->by, letter, (long long)b->size);
}

static brim_status check_dims(check *c, const brim_op_slot *s, const brim_tensor *t) {
  bool may_be_empty = s->shape[0] == '0';
  int64_t bytes = (int64_t)brim_dtype_size(t->dtype);
  if (t->rank > BRIM_MAX_RANK || t->rank < 0) {
    return brim_fail(BRIM_EINVAL, "%s: %s has rank %d, expected at most %d", c->op, s->name,
                     (int)t->rank, BRIM_MAX_RANK);
  }
  for (int i = 0; i < t->rank; i++) {
    if (t->dim[i] < (may_be_empty ? 0 : 1)) {
      return brim_fail(BRIM_EINVAL, "%s: %s has size %lld in dimension %d", c->op, s->name,
                       (long long)t->dim[i], i);
    }
    if (__builtin_mul_overflow(bytes, t->dim[i], &bytes)) {
      return brim_fail(BRIM_EINVAL, "%s: %s has more bytes than 64 bits can count", c->op, s->name);
    }
  }
  return BRIM_OK;
}

static brim_status check_same(check *c, const brim_op_slot *s, const brim_tensor *t) {
  if (!c->first) {
    c->first = t;
    c->first_name = s->name;
    return BRIM_OK;
  }
  bool same = t->rank == c->first->rank;
  for (int i = 0; same && i < t->rank; i++) same = t->dim[i] == c->first->dim[i];
  if (same) return BRIM_OK;
  char a[160], b[160];
  shape_text(t, a);
  shape_text(c->first, b);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, but %s is %s", c->op, s->name, a, c->first_name, b);
}

static brim_status wrong_rank(const check *c, const brim_op_slot *s, const brim_tensor *t,
                              const char *expected) {
  char text[160];
  shape_text(t, text);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected rank %s", c->op, s->name, text, expected);
}

// Shapes whose rank is open: ".K", "N.C", "+" and "-".
static brim_status check_open(check *c, const brim_op_slot *s, const brim_tensor *t) {
  const char *shape = s->shape;
  int64_t count = brim_tensor_count(t), last = t->dim[t->rank - 1];
  if (shape[0] == '.') {
    if (t->rank < 2) return wrong_rank(c, s, t, "2 or more");
    BRIM_TRY(bind_size(c, s, 'N', count / last));
    return bind_size(c, s, shape[1], last);
  }
  BRIM_TRY(bind_size(c, s, 'N', t->dim[0]));
  if (shape[0] == '-') return BRIM_OK;
  if (shape[0] == '+') return bind_size(c, s, 'F', count / t->dim[0]);
  if (t->rank < 3) return wrong_rank(c, s, t, "3 or more");
  return bind_size(c, s, shape[2], last);
}

static brim_status check_values(check *c, const brim_op_slot *s, const brim_tensor *t) {
  int64_t want = 0;
  for (const char *p = s->shape + 1; *p; p++) want = want * 10 + (*p - '0');
  if (t->rank == 1 && t->dim[0] == want) return BRIM_OK;
  char text[160];
  shape_text(t, text);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected (%lld)", c->op, s->name, text,
                   (long long)want);
}

static brim_status check_shape(check *c, const brim_op_slot *s, const brim_tensor *t) {
  const char *shape = s->shape;
  BRIM_TRY(check_dims(c, s, t));
  if (shape[0] == '*') return check_same(c, s, t);
  if (shape[0] == '=') return check_values(c, s, t);
  if (shape[0] == '+' || shape[0] == '-' || shape[0] == '.' || shape[1] == '.') {
    return check_open(c, s, t);
  }
  if (shape[0] == '0') {
    if (brim_tensor_count(t) == 0) return BRIM_OK;
    shape++;
  }
  int rank = 0;
  while (shape[rank]) rank++;
  if (t->rank != rank) return wrong_rank(c, s, t, (const char[]){(char)('0' + rank), '\0'});
  for (int i = 0; i < rank; i++) {
    if (shape[i] >= 'A') {
      BRIM_TRY(bind_size(c, s, shape[i], t->dim[i]));
    } else if (t->dim[i] != shape[i] - '0') {
      return i + 1 == rank ? brim_fail(BRIM_EINVAL, "%s: %s has %lld columns, expected %c", c->op,
                                       s->name, (long long)t->dim[i], shape[i])
                           : brim_fail(BRIM_EINVAL, "%s: %s has %lld rows, expected %c", c->op,
                                       s->name, (long long)t->dim[i], shape[i]);
    }
  }
  return BRIM_OK;
}

static brim_status check_side(check *c, const brim_op_slot *slots, int max, const brim_tensor *t,
                              int count) {
  int known = 0;
  while (known < max && slots[known].name) known++;
  if (count < 0 || count > known) {
    return brim_fail(BRIM_EINVAL, "%s: %d %s, expected at most %d", c->op, count,
                     t == c->call->in ? "inputs" : "outputs", known);
  }
  for (int i = 0; i < known; i++) {
    const brim_op_slot *s = &slots[i];
    if (i >= count || t[i].rank == 0) {
      if (s->optional || s->shape[0] == '0') continue;
      return brim_fail(BRIM_EINVAL, "%s: %s is missing", c->op, s->name);
    }
    BRIM_TRY(check_type(c, s, t[i].dtype));
    BRIM_TRY(check_shape(c, s, &t[i]));
  }
  return BRIM_OK;
}

brim_status brim_op_check(const brim_op_call *call) {
  if ((unsigned)call->op >= BRIM_OP_COUNT) {
    return brim_fail(BRIM_EINVAL, "unknown op %d", (int)call->op);
  }
  const brim_op_rule *rule = &brim_op_rules[call->op];
  check c = {.call = call, .op = brim_op_name(call->op), .type = BRIM_DTYPE_COUNT};
  BRIM_TRY(check_side(&c, rule->in, BRIM_OP_MAX_IN, call->in, call->in_count));
  BRIM_TRY(check_side(&c, rule->out, BRIM_OP_MAX_OUT, call->out, call->out_count));
  return rule->attr ? rule->attr(call) : BRIM_OK;
}
