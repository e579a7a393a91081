// Reading the records of a training (record_channel.h).
#include "record/record_channel.h"

#include <string.h>

typedef struct member {
  const char *key;
  size_t offset;
} member;

#define NUMBER(key, field) \
  { key, offsetof(brim_channel_record, field) }

// The members with a number, for each kind of record.
static const member numbers[BRIM_CHANNEL_KIND_COUNT][4] = {
    [BRIM_CHANNEL_START] = {NUMBER("start_step", step), NUMBER("steps", steps),
                            NUMBER("epochs", epochs)},
    [BRIM_CHANNEL_PROGRESS] = {NUMBER("step", step), NUMBER("epoch", epoch),
                               NUMBER("epochs", epochs)},
    [BRIM_CHANNEL_STEPS] = {NUMBER("step", step)},
    [BRIM_CHANNEL_EPOCH] = {NUMBER("epoch", epoch), NUMBER("epochs", epochs)},
    [BRIM_CHANNEL_CHECKPOINT] = {NUMBER("step", step)},
    [BRIM_CHANNEL_RESULT] = {NUMBER("steps", step), NUMBER("epochs", epoch)},
};

static brim_status status_of(const char *name) {
#define X(id, value, text) \
  if (name && strcmp(name, "BRIM_" #id) == 0) return BRIM_##id;
  BRIM_STATUS_MAP(X)
#undef X
  return BRIM_EINTERNAL;
}

bool brim_channel_read(const json_t *event, brim_channel_record *out) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_CHANNEL_MAP(X)
#undef X
  };
  const char *name = json_string_value(json_object_get(event, "event"));
  int kind = 0;
  while (name && kind < BRIM_CHANNEL_KIND_COUNT && strcmp(name, names[kind]) != 0) kind++;
  if (!name || kind == BRIM_CHANNEL_KIND_COUNT) return false;
  *out = (brim_channel_record){
      .kind = (brim_channel_kind)kind, .step = -1, .steps = -1, .epoch = -1, .epochs = -1};
  for (const member *m = numbers[kind]; m < numbers[kind] + 4 && m->key; m++) {
    const json_t *value = json_object_get(event, m->key);
    const bool good = json_is_integer(value) && json_integer_value(value) >= 0;
    int64_t *at = (int64_t *)(void *)((char *)out + m->offset);
    if (good) *at = (int64_t)json_integer_value(value);
  }
  const char *class = json_string_value(json_object_get(event, "class"));
  const char *message = json_string_value(json_object_get(event, "message"));
  out->interrupted = json_is_true(json_object_get(event, "interrupted"));
  out->status = status_of(json_string_value(json_object_get(event, "status")));
  out->failure = class ? brim_failure_of(class) : BRIM_FAILURE_NONE;
  out->message = message ? message : "";
  out->findings = json_object_get(event, "findings");
  return kind != BRIM_CHANNEL_FINDINGS || json_is_array(out->findings);
}
