// Arguments of source components: from a component to JSON, and typed reads from JSON. Built-in
// sources and plug-ins take the same text, so neither can do what the other cannot.
#include <math.h>
#include <string.h>

#include "data/data_int.h"

static json_t *args_object(const brim_component *component);

static json_t *value_to_json(const brim_value *v) {
  switch (v->kind) {
    case BRIM_VALUE_BOOL:
      return json_boolean(v->boolean);
    case BRIM_VALUE_INT:
      return json_integer(v->integer);
    case BRIM_VALUE_FLOAT:
      // JSON has no NaN or infinity; null is refused where a number is asked for.
      return isfinite(v->number) ? json_real(v->number) : json_null();
    case BRIM_VALUE_STRING:
      return json_string(v->string);
    case BRIM_VALUE_LIST: {
      json_t *list = json_array();
      for (size_t i = 0; list && i < v->count; i++) {
        if (brim_json_push(list, value_to_json(&v->items[i]))) {
          json_decref(list);
          return NULL;
        }
      }
      return list;
    }
    case BRIM_VALUE_COMPONENT: {
      json_t *object = json_object();
      if (!object) return NULL;
      if (brim_json_put(object, "name", json_string(v->component->name)) ||
          brim_json_put(object, "args", args_object(v->component))) {
        json_decref(object);
        return NULL;
      }
      return object;
    }
    case BRIM_VALUE_NULL:
    case BRIM_VALUE_KIND_COUNT:
      break;
  }
  return json_null();
}

static json_t *args_object(const brim_component *component) {
  json_t *object = json_object();
  for (size_t i = 0; object && i < component->arg_count; i++) {
    const brim_argument *arg = &component->args[i];
    if (brim_json_put(object, arg->name, value_to_json(&arg->value))) {
      json_decref(object);
      return NULL;
    }
  }
  return object;
}

brim_status brim_data_args_dump(const brim_component *component, char **out) {
  brim_json_setup();
  json_t *object = args_object(component);
  if (!object) {
    return brim_fail(BRIM_ENOMEM, "out of memory reading the arguments of %s", component->name);
  }
  brim_status status = brim_json_dump(object, 0, out);
  json_decref(object);
  return status;
}

brim_status brim_data_args_parse(const char *source, const char *json, const char *const *known,
                                 json_t **out) {
  json_t *args = NULL;
  if (!json) json = "{}";
  BRIM_TRY(brim_json_parse(json, strlen(json), source, &args));
  brim_status status = BRIM_OK;
  if (!json_is_object(args)) {
    status = brim_fail(BRIM_EINVAL, "%s: arguments must be a JSON object", source);
  }
  const char *key;
  json_t *value;
  if (!status) {
    json_object_foreach(args, key, value) {
      size_t i = 0;
      while (known[i] && strcmp(known[i], key) != 0) i++;
      if (known[i]) continue;
      const char *near = brim_nearest(key, known);
      status = near ? brim_fail(BRIM_EINVAL, "%s has no argument '%s'; did you mean '%s'?", source,
                                key, near)
                    : brim_fail(BRIM_EINVAL, "%s has no argument '%s'", source, key);
      break;
    }
  }
  if (status) {
    json_decref(args);
    return status;
  }
  *out = args;
  return BRIM_OK;
}

brim_status brim_data_args_int(const json_t *args, const char *source, const char *name,
                               int64_t min, int64_t max, int64_t *value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a whole number from %lld to %lld", source, name,
                     (long long)min, (long long)max);
  }
  *value = json_integer_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_real(const json_t *args, const char *source, const char *name,
                                double min, double max, double *value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  // Written so that a NaN is refused too.
  if (!json_is_number(v) || !(json_number_value(v) >= min && json_number_value(v) <= max)) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a number from %g to %g", source, name, min, max);
  }
  *value = json_number_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_string(const json_t *args, const char *source, const char *name,
                                  const char **value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  if (!json_is_string(v)) return brim_fail(BRIM_EINVAL, "%s: %s must be text", source, name);
  *value = json_string_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_shape(const json_t *args, const char *source, const char *name,
                                 int64_t dim[BRIM_SOURCE_MAX_RANK], int32_t *rank) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  size_t n = json_is_array(v) ? json_array_size(v) : 1;
  bool good = n >= 1 && n <= BRIM_SOURCE_MAX_RANK;
  for (size_t i = 0; good && i < n; i++) {
    const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
    good = json_is_integer(item) && json_integer_value(item) >= 1;
    if (good) dim[i] = json_integer_value(item);
  }
  if (!good) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be 1 to %d whole numbers of at least 1, as (28, 28)",
                     source, name, BRIM_SOURCE_MAX_RANK);
  }
  *rank = (int32_t)n;
  return BRIM_OK;
}

brim_status brim_data_args_split(const char *source, const char *split, const char *const *known) {
  for (size_t i = 0; known[i]; i++) {
    if (strcmp(known[i], split) == 0) return BRIM_OK;
  }
  brim_str all;
  brim_str_init(&all);
  for (size_t i = 0; known[i]; i++) brim_str_printf(&all, "%s%s", i ? ", " : "", known[i]);
  brim_status status = brim_str_status(&all);
  if (!status) {
    // ENOENT, as for files that are not there: a caller that looks for all splits continues.
    status = brim_fail(BRIM_ENOENT, "%s has no split '%s'; it has %s", source, split, all.data);
  }
  brim_str_deinit(&all);
  return status;
}
