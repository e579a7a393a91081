// A plan as a line of the planning child, for both sides (lab_plan.h).
#include "lab/lab_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void brim_lab_plan_init(brim_lab_plan *plan) {
  memset(plan, 0, sizeof *plan);
  plan->planned_device = plan->planned_host = plan->overhead = (double)NAN;
  plan->free = plan->total = (double)NAN;
  plan->samples_per_step = plan->steps = plan->epochs = (double)NAN;
  plan->step_s = plan->start_s = plan->run_s = (double)NAN;
}

typedef struct number {
  const char *key;
  size_t offset;
} number;

#define NUMBER(key, field) \
  { key, offsetof(brim_lab_plan, field) }
static const number numbers[] = {
    NUMBER("planned_device", planned_device),
    NUMBER("planned_host", planned_host),
    NUMBER("overhead", overhead),
    NUMBER("free", free),
    NUMBER("total", total),
    NUMBER("samples_per_step", samples_per_step),
    NUMBER("steps", steps),
    NUMBER("epochs", epochs),
    NUMBER("step_s", step_s),
    NUMBER("start_s", start_s),
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static brim_status fill_json(const brim_lab_plan *p, json_t *o) {
  BRIM_TRY(brim_json_put(o, "id", json_string(p->id)));
  BRIM_TRY(brim_json_put(o, "device", json_string(p->device)));
  BRIM_TRY(brim_json_put(o, "name", json_string(p->name)));
  for (size_t i = 0; i < NUMBERS; i++) {
    const double *value = (const double *)(const void *)((const char *)p + numbers[i].offset);
    BRIM_TRY(brim_json_put(o, numbers[i].key, brim_json_number(*value)));
  }
  BRIM_TRY(brim_json_put(o, "evaluates", json_boolean(p->evaluates)));
  BRIM_TRY(brim_json_put(o, "adapts", json_boolean(p->adapts)));
  BRIM_TRY(brim_json_put(o, "failure", json_string(brim_failure_name(p->failure))));
  return brim_json_put(o, "message", json_string(p->message));
}

brim_status brim_lab_plan_to_json(const brim_lab_plan *plan, json_t **out) {
  brim_json_setup();
  *out = json_object();
  brim_status status = *out ? fill_json(plan, *out) : brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

static void read_text(const json_t *o, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(o, key));
  snprintf(out, size, "%s", text ? text : "");
  brim_utf8_trim(out);
}

brim_status brim_lab_plan_from_json(const json_t *value, brim_lab_plan *out) {
  brim_lab_plan_init(out);
  const char *failure = json_string_value(json_object_get(value, "failure"));
  if (!json_is_string(json_object_get(value, "id")) || !failure) {
    return brim_fail(BRIM_EPARSE, "this line is no plan of an experiment");
  }
  read_text(value, "id", out->id, sizeof out->id);
  read_text(value, "device", out->device, sizeof out->device);
  read_text(value, "name", out->name, sizeof out->name);
  read_text(value, "message", out->message, sizeof out->message);
  for (size_t i = 0; i < NUMBERS; i++) {
    const json_t *n = json_object_get(value, numbers[i].key);
    double *at = (double *)(void *)((char *)out + numbers[i].offset);
    if (json_is_number(n) && json_number_value(n) >= 0) *at = json_number_value(n);
  }
  out->evaluates = json_is_true(json_object_get(value, "evaluates"));
  out->adapts = json_is_true(json_object_get(value, "adapts"));
  out->failure = brim_failure_of(failure);
  out->run_s = out->steps * out->step_s + out->start_s;
  return BRIM_OK;
}
