// Trajectories: keeping them finite, what can be read off a frame, and the compact JSON of
// record_trajectory.h.
#include "record/record_trajectory.h"

#include <math.h>
#include <string.h>

#include "record/record_int.h"

enum { NQ = BRIM_TRAJECTORY_QPOS };

static const double scale = 1e-4;
static const double most = 1e5;  // beyond it a coordinate is no place of a robot any more

static const char *const outcome_names[BRIM_TRAJECTORY_OUTCOME_COUNT] = {
    [BRIM_TRAJECTORY_LASTED] = "lasted",
    [BRIM_TRAJECTORY_FELL] = "fell",
    [BRIM_TRAJECTORY_DIVERGED] = "diverged",
};

const char *brim_trajectory_outcome_name(brim_trajectory_outcome outcome) {
  return (unsigned)outcome < BRIM_TRAJECTORY_OUTCOME_COUNT ? outcome_names[outcome] : "?";
}

brim_status brim_trajectory_init(brim_trajectory *t, const char *label, double dt,
                                 int64_t capacity) {
  memset(t, 0, sizeof *t);
  if (capacity < 1 || capacity > 1 << 24 || !(dt > 0)) {
    return brim_fail(BRIM_EINVAL, "a trajectory has 1 to %d states and a time step above 0",
                     1 << 24);
  }
  brim_record_copy(t->label, sizeof t->label, label);
  t->dt = dt;
  t->capacity = capacity;
  t->qpos = brim_calloc((size_t)capacity * NQ, sizeof *t->qpos);
  t->push = brim_calloc((size_t)capacity * 3, sizeof *t->push);
  t->reward = brim_calloc((size_t)capacity, sizeof *t->reward);
  if (t->qpos && t->push && t->reward) return BRIM_OK;
  brim_trajectory_deinit(t);
  return brim_fail(BRIM_ENOMEM, "out of memory for a trajectory of %lld states",
                   (long long)capacity);
}

void brim_trajectory_deinit(brim_trajectory *t) {
  brim_free(t->qpos);
  brim_free(t->push);
  brim_free(t->reward);
  memset(t, 0, sizeof *t);
}

static bool sound(const float *values, int count) {
  for (int i = 0; i < count; i++) {
    if (!(fabs((double)values[i]) <= most)) return false;  // NaN too
  }
  return true;
}

brim_status brim_trajectory_finish(brim_trajectory *t) {
  int64_t n = 0;
  while (n < t->frames && sound(t->qpos + n * NQ, NQ) && sound(t->push + n * 3, 3)) {
    n++;
    // A reward is of the way to the next frame, which is not trusted where the reward is none.
    if (n < t->frames && !sound(t->reward + n - 1, 1)) break;
  }
  if (n == 0) {
    return brim_fail(BRIM_EINVAL, "the first state is not finite: there is nothing to replay");
  }
  if (n < t->frames) t->outcome = BRIM_TRAJECTORY_DIVERGED;
  t->frames = n;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

double brim_trajectory_seconds(const brim_trajectory *t) {
  return t->frames > 1 ? (double)(t->frames - 1) * t->dt : 0;
}

double brim_trajectory_return(const brim_trajectory *t) {
  double sum = 0;
  for (int64_t i = 0; i + 1 < t->frames; i++) sum += (double)t->reward[i];
  return sum;
}

double brim_trajectory_height(const brim_trajectory *t, int64_t i) {
  return (double)t->qpos[i * NQ + 2];
}

// The angle between the torso's z and the world's.
double brim_trajectory_tilt(const brim_trajectory *t, int64_t i) {
  const float *q = t->qpos + i * NQ + 3;
  double w = (double)q[0], x = (double)q[1], y = (double)q[2], z = (double)q[3];
  double norm = w * w + x * x + y * y + z * z;
  if (!(norm > 0)) return NAN;
  double up = 1 - 2 * (x * x + y * y) / norm;
  return acos(fmin(fmax(up, -1), 1)) * (180 / 3.14159265358979323846);
}

double brim_trajectory_push(const brim_trajectory *t, int64_t i) {
  const float *v = t->push + i * 3;
  return sqrt((double)v[0] * (double)v[0] + (double)v[1] * (double)v[1] +
              (double)v[2] * (double)v[2]);
}

//---------------------------------- JSON ----------------------------------

// Bytes to base64 as they come, three at a time.
typedef struct coder {
  brim_str *out;
  uint32_t bits;
  int bytes;
} coder;

static void flush(coder *c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (c->bytes == 0) return;
  uint32_t bits = c->bits << 8 * (3 - c->bytes);
  for (int i = 0; i < 4; i++) {
    brim_str_append_char(c->out, i <= c->bytes ? digits[bits >> (18 - 6 * i) & 63] : '=');
  }
  c->bits = 0;
  c->bytes = 0;
}

static void put_byte(coder *c, uint32_t byte) {
  c->bits = c->bits << 8 | byte;
  if (++c->bytes == 3) flush(c);
}

static void put_number(coder *c, int64_t value) {
  uint64_t left = value < 0 ? (uint64_t)(-value) * 2 - 1 : (uint64_t)value * 2;
  for (; left >= 128; left >>= 7) put_byte(c, (uint32_t)(left & 127) | 128);
  put_byte(c, (uint32_t)left);
}

static brim_status put_column(json_t *to, const char *key, const float *values, int64_t rows,
                              int columns) {
  brim_str text;
  brim_str_init(&text);
  coder c = {.out = &text};
  int64_t before[NQ] = {0};
  for (int64_t i = 0; i < rows; i++) {
    for (int k = 0; k < columns; k++) {
      int64_t now = llround((double)values[i * columns + k] / scale);
      put_number(&c, now - before[k]);
      before[k] = now;
    }
  }
  flush(&c);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(to, key, json_string(text.data));
  brim_str_deinit(&text);
  return status;
}

static brim_status put_pushes(json_t *to, const brim_trajectory *t) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(to, "pushes", list));
  for (int64_t i = 0; i < t->frames; i++) {
    if (!(brim_trajectory_push(t, i) > 0)) continue;
    json_t *push = json_array();
    BRIM_TRY(brim_json_push(list, push));
    BRIM_TRY(brim_json_push(push, json_integer(i)));
    for (int k = 0; k < 3; k++) {
      double v = round((double)t->push[i * 3 + k] / scale) * scale;
      BRIM_TRY(brim_json_push(push, brim_json_number(v)));
    }
  }
  return BRIM_OK;
}

static brim_status fill(json_t *to, const brim_trajectory *t) {
  const char *outcome = brim_trajectory_outcome_name(t->outcome);
  BRIM_TRY(brim_json_put(to, "schema", json_string("brim.trajectory/1")));
  BRIM_TRY(brim_json_put(to, "label", brim_record_text(t->label)));
  BRIM_TRY(brim_json_put(to, "dt", brim_json_number(t->dt)));
  BRIM_TRY(brim_json_put(to, "frames", json_integer(t->frames)));
  BRIM_TRY(brim_json_put(to, "outcome", json_string(outcome)));
  BRIM_TRY(brim_json_put(to, "scale", json_real(scale)));
  BRIM_TRY(put_column(to, "qpos", t->qpos, t->frames, NQ));
  BRIM_TRY(put_column(to, "reward", t->reward, t->frames - 1, 1));
  return put_pushes(to, t);
}

brim_status brim_trajectory_to_json(const brim_trajectory *t, json_t **out) {
  *out = NULL;
  brim_json_setup();
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory for a trajectory");
  brim_status status = fill(root, t);
  if (status) {
    json_decref(root);
    return status;
  }
  *out = root;
  return BRIM_OK;
}
