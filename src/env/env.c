// brim's own environments, the check of a plug-in's row, and the choices of arguments.
#include "env/env.h"

#include <string.h>

#include "base/base.h"

// Each environment has a folder of its own and includes the loops of src/rl.
extern const brim_env_row brim_quadruped_row, brim_cartpole_row, brim_uav_row;

static const brim_env_row *const rows[] = {&brim_quadruped_row, &brim_cartpole_row, &brim_uav_row};

const brim_env_row *brim_env_at(size_t index) {
  return index < sizeof rows / sizeof *rows ? rows[index] : NULL;
}

const brim_env_row *brim_env_find(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i]->name, name) == 0) return rows[i];
  }
  return NULL;
}

int32_t brim_env_rule_count(const brim_env_row *row) {
  int32_t count = 0;
  while (row->rules && row->rules[count]) count++;
  return count;
}

int32_t brim_env_rule_find(const brim_env_row *row, const char *name) {
  if (strcmp(name, "random") == 0) return 0;
  for (int32_t i = 0; row->rules && row->rules[i]; i++) {
    if (strcmp(row->rules[i], name) == 0) return i + 1;
  }
  return -1;
}

//---------------------------------- rows of plug-ins ----------------------------------

// Returns the first required member that is missing; NULL = none.
static const char *missing_member(const brim_env_row *row) {
  const struct {
    bool has;
    const char *name;
  } members[] = {
      {row->name, "name"},
      {row->args || !row->arg_count, "args"},
      {row->ended.key, "ended.key"},
      {row->ended.label, "ended.label"},
      {row->ended.rate_label, "ended.rate_label"},
      {row->ended.count, "ended.count"},
      {row->ended.rate, "ended.rate"},
      {row->figures || !row->figure_count, "figures"},
      {row->sizes, "sizes"},
      {row->defaults, "defaults"},
      {row->problem, "problem"},
      {row->length, "length"},
      {row->best, "best"},
      {row->seconds, "seconds"},
      {row->flops, "flops"},
      {row->describe, "describe"},
      {row->run, "run"},
  };
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    if (!members[i].has) return members[i].name;
  }
  return NULL;
}

static brim_status check_arg(const brim_env_row *row, size_t index, const char *name) {
  const brim_env_arg *arg = &row->args[index];
  if (!arg->name) {
    return brim_fail(BRIM_EABI, "environment %s: argument %zu has no name", name, index);
  }
  if (arg->type != BRIM_ENV_ARG_INT && arg->type != BRIM_ENV_ARG_FLOAT &&
      arg->type != BRIM_ENV_ARG_CHOICE) {
    return brim_fail(BRIM_EABI, "environment %s: argument %s has the unknown type %d", name,
                     arg->name, (int)arg->type);
  }
  // every type has four bytes
  if (arg->offset > BRIM_ENV_VALUES - sizeof(int32_t)) {
    return brim_fail(BRIM_EABI,
                     "environment %s: argument %s has offset %zu, outside the %d bytes of values",
                     name, arg->name, arg->offset, BRIM_ENV_VALUES);
  }
  if (arg->type == BRIM_ENV_ARG_CHOICE && !arg->choices) {
    return brim_fail(BRIM_EABI, "environment %s: argument %s has no choices", name, arg->name);
  }
  return BRIM_OK;
}

brim_status brim_env_check_row(const brim_env_row *row, const char *name) {
  if (row->abi != BRIM_ENV_ABI) {
    return brim_fail(
        BRIM_EABI, "environment %s has version %u, but this program needs %d; build both together",
        name, row->abi, BRIM_ENV_ABI);
  }
  const char *missing = missing_member(row);
  if (missing) return brim_fail(BRIM_EABI, "environment %s: its row has no %s", name, missing);
  if (row->figure_count > BRIM_ENV_MAX_FIGURES) {
    return brim_fail(BRIM_EABI, "environment %s: its row has %zu figures, but at most %d fit", name,
                     row->figure_count, BRIM_ENV_MAX_FIGURES);
  }
  for (size_t i = 0; i < row->figure_count; i++) {
    if (!row->figures[i].key || !row->figures[i].label) {
      return brim_fail(BRIM_EABI, "environment %s: figure %zu has no key or no label", name, i);
    }
  }
  for (size_t i = 0; i < row->arg_count; i++) BRIM_TRY(check_arg(row, i, name));
  for (int32_t i = 0; row->rules && row->rules[i]; i++) {
    // true if no earlier baseline has this name
    if (brim_env_rule_find(row, row->rules[i]) == i + 1) continue;
    return brim_fail(BRIM_EABI, "environment %s: its row has two baselines named %s", name,
                     row->rules[i]);
  }
  return BRIM_OK;
}

//---------------------------------- choices ----------------------------------

int32_t brim_env_choice(const char *choices, const char *word) {
  const size_t length = strlen(word);
  int32_t index = 0;
  for (const char *at = choices; at; index++) {
    const char *end = strchr(at, '|');
    size_t has = end ? (size_t)(end - at) : strlen(at);
    if (has == length && memcmp(at, word, length) == 0) return index;
    at = end ? end + 1 : NULL;
  }
  return -1;
}

const char *brim_env_choice_name(const char *choices, int32_t index, char *out, size_t size) {
  const char *at = choices;
  for (; at && index > 0; index--) {
    at = strchr(at, '|');
    if (at) at++;
  }
  size_t has = at ? strcspn(at, "|") : 0;
  if (has >= size) has = size - 1;
  if (has) memcpy(out, at, has);
  out[has] = 0;
  return out;
}
