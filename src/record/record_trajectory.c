// Trajectories: cutting them where they stop being finite, and the compact JSON of record_trajectory.h.
#include "record/record_trajectory.h"

#include <math.h>
#include <string.h>

#include "record/record_int.h"

static const double scale = 1e-4;
static const double most = 1e5;     // no place in a scene has larger numbers
static const double unknown = 2e5;  // stored for an unknown value of a curve

brim_status brim_trajectory_init(brim_trajectory *t, const char *label, const brim_scene *scene,
                                 double dt, int64_t capacity) {
  memset(t, 0, sizeof *t);
  if (capacity < 1 || capacity > 1 << 24 || !(dt > 0)) {
    return brim_fail(BRIM_EINVAL, "a trajectory has 1 to %d states and a time step above 0",
                     1 << 24);
  }
  brim_record_copy(t->label, sizeof t->label, label);
  t->scene = scene;
  t->dt = dt;
  t->capacity = capacity;
  t->width = brim_scene_width(scene);
  t->state = brim_calloc((size_t)capacity * (size_t)t->width, sizeof *t->state);
  t->reward = brim_calloc((size_t)capacity, sizeof *t->reward);
  if (t->state && t->reward) return BRIM_OK;
  brim_trajectory_deinit(t);
  return brim_fail(BRIM_ENOMEM, "out of memory for a trajectory of %lld states",
                   (long long)capacity);
}

void brim_trajectory_deinit(brim_trajectory *t) {
  brim_free(t->state);
  brim_free(t->reward);
  memset(t, 0, sizeof *t);
}

static bool are_in_range(const float *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (!(fabs((double)values[i]) <= most)) return false;  // NaN too
  }
  return true;
}

brim_status brim_trajectory_finish(brim_trajectory *t) {
  int64_t n = 0;
  while (n < t->frames && are_in_range(brim_trajectory_frame(t, n), t->width)) {
    n++;
    // The reward of a step also depends on the next frame. If the reward is not sound, drop that frame.
    if (n < t->frames && !are_in_range(t->reward + n - 1, 1)) break;
  }
  if (n == 0) {
    return brim_fail(BRIM_EINVAL, "the first state is not finite: there is nothing to replay");
  }
  if (n < t->frames) t->end = BRIM_SCENE_DIVERGED;
  t->frames = n;
  return BRIM_OK;
}

const float *brim_trajectory_frame(const brim_trajectory *t, int64_t i) {
  return t->state + i * t->width;
}

double brim_trajectory_seconds(const brim_trajectory *t) {
  return t->frames > 1 ? (double)(t->frames - 1) * t->dt : 0;
}

brim_scene_episode brim_trajectory_episode(const brim_trajectory *t) {
  return (brim_scene_episode){.scene = t->scene,
                              .frames = t->state,
                              .reward = t->reward,
                              .states = t->frames,
                              .end = t->end,
                              .seconds = brim_trajectory_seconds(t)};
}

double brim_trajectory_sum(const brim_trajectory *t) {
  const brim_scene_episode episode = brim_trajectory_episode(t);
  return brim_scene_sum(&episode);
}

//---------------------------------- JSON ----------------------------------

// Encodes bytes as base64, three at a time.
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

// Columns of numbers, stored as whole multiples of `unit`. Each number is stored as its difference to the same
// column of the row before.
typedef struct column {
  const float *values;
  int64_t rows;
  int32_t columns, stride;
  double unit;
} column;

static brim_status put_column(json_t *to, const char *key, const column *from) {
  brim_str text;
  brim_str_init(&text);
  coder c = {.out = &text};
  int64_t *before = brim_calloc((size_t)from->columns, sizeof *before);
  if (!before) return brim_fail(BRIM_ENOMEM, "out of memory for a trajectory");
  for (int64_t i = 0; i < from->rows; i++) {
    for (int32_t k = 0; k < from->columns; k++) {
      int64_t now = llround((double)from->values[i * from->stride + k] / from->unit);
      put_number(&c, now - before[k]);
      before[k] = now;
    }
  }
  flush(&c);
  brim_free(before);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(to, key, json_string(text.data ? text.data : ""));
  brim_str_deinit(&text);
  return status;
}

static double unit_of(const brim_scene_part *part) { return part->scale > 0 ? part->scale : scale; }

static brim_status put_events(json_t *to, const brim_trajectory *t, size_t part_index) {
  const brim_scene_part *part = &t->scene->parts[part_index];
  const double unit = unit_of(part);
  const int32_t offset = brim_scene_offset(t->scene, part_index);
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(to, part->key, list));
  for (int64_t i = 0; i < t->frames; i++) {
    const float *frame = brim_trajectory_frame(t, i);
    if (!brim_scene_event(t->scene, part_index, frame)) continue;
    json_t *event = json_array();
    BRIM_TRY(brim_json_push(list, event));
    BRIM_TRY(brim_json_push(event, json_integer(i)));
    for (int32_t k = 0; k < part->columns; k++) {
      double v = round((double)frame[offset + k] / unit) * unit;
      BRIM_TRY(brim_json_push(event, brim_json_number(v)));
    }
  }
  return BRIM_OK;
}

static brim_status put_part(json_t *to, const brim_trajectory *t, size_t part_index) {
  const brim_scene_part *part = &t->scene->parts[part_index];
  if (part->when == BRIM_SCENE_EVENTS) return BRIM_OK;
  const column from = {t->state + brim_scene_offset(t->scene, part_index),
                       part->when == BRIM_SCENE_FIRST ? 1 : t->frames, part->columns, t->width,
                       unit_of(part)};
  return put_column(to, part->key, &from);
}

static brim_status fill(json_t *to, const brim_trajectory *t) {
  BRIM_TRY(brim_json_put(to, "schema", json_string("brim.trajectory/1")));
  BRIM_TRY(brim_json_put(to, "label", brim_record_text(t->label)));
  BRIM_TRY(brim_json_put(to, "dt", brim_json_number(t->dt)));
  BRIM_TRY(brim_json_put(to, "frames", json_integer(t->frames)));
  BRIM_TRY(brim_json_put(to, "outcome", json_string(t->scene->ends[t->end])));
  BRIM_TRY(brim_json_put(to, "scale", json_real(scale)));
  for (size_t i = 0; i < t->scene->part_count; i++) BRIM_TRY(put_part(to, t, i));
  const column reward = {t->reward, t->frames - 1, 1, 1, scale};
  BRIM_TRY(put_column(to, "reward", &reward));
  for (size_t i = 0; i < t->scene->part_count; i++) {
    if (t->scene->parts[i].when == BRIM_SCENE_EVENTS) BRIM_TRY(put_events(to, t, i));
  }
  return BRIM_OK;
}

brim_status brim_trajectory_curve(const brim_trajectory *t, const brim_scene_curve *curve,
                                  brim_str *out) {
  coder c = {.out = out};
  int64_t before = 0;
  for (int64_t i = 0; i < t->frames; i++) {
    double v = curve->value(brim_trajectory_frame(t, i));
    int64_t now = llround((fabs(v) <= most ? v : unknown) / scale);
    put_number(&c, now - before);
    before = now;
  }
  flush(&c);
  return brim_str_status(out);
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
