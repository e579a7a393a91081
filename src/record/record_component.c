// Reads the arguments of a component.
#include "record/record_component.h"

#include <string.h>

const brim_value *brim_component_arg(const brim_component *c, const char *name) {
  if (!c) return NULL;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (c->args[i].name && strcmp(c->args[i].name, name) == 0) return &c->args[i].value;
  }
  return NULL;
}

int64_t brim_component_int(const brim_component *c, const char *name, int64_t fallback) {
  const brim_value *v = brim_component_arg(c, name);
  return v && v->kind == BRIM_VALUE_INT ? v->integer : fallback;
}

double brim_component_float(const brim_component *c, const char *name, double fallback) {
  const brim_value *v = brim_component_arg(c, name);
  if (v && v->kind == BRIM_VALUE_FLOAT) return v->number;
  if (v && v->kind == BRIM_VALUE_INT) return (double)v->integer;
  return fallback;
}

bool brim_component_bool(const brim_component *c, const char *name, bool fallback) {
  const brim_value *v = brim_component_arg(c, name);
  return v && v->kind == BRIM_VALUE_BOOL ? v->boolean : fallback;
}

const char *brim_component_string(const brim_component *c, const char *name, const char *fallback) {
  const brim_value *v = brim_component_arg(c, name);
  return v && v->kind == BRIM_VALUE_STRING && v->string ? v->string : fallback;
}
