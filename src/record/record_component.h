// Values and components: parsed config expressions such as mlp(depth=3), from which rooms build things. config
// parses them; engine, data and workloads read them. They are immutable and live in the arena of the code that made
// them.
#ifndef BRIM_RECORD_COMPONENT_H_
#define BRIM_RECORD_COMPONENT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef enum brim_value_kind {
  BRIM_VALUE_NULL,
  BRIM_VALUE_BOOL,
  BRIM_VALUE_INT,
  BRIM_VALUE_FLOAT,
  BRIM_VALUE_STRING,
  BRIM_VALUE_LIST,       // [a, b] and tuples (a, b)
  BRIM_VALUE_COMPONENT,  // nested name(k=v)
  BRIM_VALUE_KIND_COUNT
} brim_value_kind;

typedef struct brim_component brim_component;

typedef struct brim_value {
  brim_value_kind kind;
  bool tuple;  // LIST written with ( )
  bool boolean;
  int64_t integer;
  double number;       // also set for INT
  const char *string;  // also the source text of a scalar
  const struct brim_value *items;
  size_t count;
  const brim_component *component;
} brim_value;

typedef struct brim_argument {
  const char *name;
  brim_value value;
} brim_argument;

struct brim_component {
  const char *name;
  const brim_argument *args;
  size_t arg_count;
  const char *file;  // the source file; NULL if code made the component
  int line, col;
};

// A pipeline `a(k=v) | b`; a single component is a pipeline of one. `tail`: it ends with `...`.
typedef struct brim_pipeline {
  const brim_component *items;
  size_t count;
  bool tail;
} brim_pipeline;

// Finds an argument by its name; NULL = absent.
const brim_value *brim_component_arg(const brim_component *c, const char *name);
// Typed reads return `fallback` if the argument is absent or of another kind (config refuses wrong kinds earlier).
// An INT can also be read as a FLOAT.
int64_t brim_component_int(const brim_component *c, const char *name, int64_t fallback);
double brim_component_float(const brim_component *c, const char *name, double fallback);
bool brim_component_bool(const brim_component *c, const char *name, bool fallback);
const char *brim_component_string(const brim_component *c, const char *name, const char *fallback);

#endif  // BRIM_RECORD_COMPONENT_H_
