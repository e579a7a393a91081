// Rows of keys and components, for config_keys.c, config_components.c and the sections of workloads. A key of a
// workload has the same kind of row as a key of brim. Included by files that declare rows, and by src/config.
#ifndef BRIM_CONFIG_ROWS_H_
#define BRIM_CONFIG_ROWS_H_

#include "config/config.h"

// ---- keys ------------------------------------------------------------------------------------

typedef enum brim_config_type {
  BRIM_CONFIG_INT,
  BRIM_CONFIG_FLOAT,
  BRIM_CONFIG_BOOL,
  BRIM_CONFIG_STRING,
  BRIM_CONFIG_CHOICE,
  BRIM_CONFIG_BYTES,
  BRIM_CONFIG_INTS,
  BRIM_CONFIG_STRINGS,
  BRIM_CONFIG_DEVICE,
  BRIM_CONFIG_COMPONENT,
  BRIM_CONFIG_PIPELINE,
  BRIM_CONFIG_SPECIAL,  // include, zip, exclude: not a value
  BRIM_CONFIG_TYPE_COUNT
} brim_config_type;

enum {
  BRIM_CONFIG_NEVER_AXIS = 1,  // never a grid axis, and left out of the experiment's identity
  BRIM_CONFIG_SLOTS = 2,       // train, val, test
  BRIM_CONFIG_FILE_NAME = 4,   // becomes a folder's name: must not contain '/' or begin with '.'
  BRIM_CONFIG_LATER = 8,       // accepted, but this version does not read it
  // SAVED...: the key changes the learned result, not the place or the speed, so checkpoints have it.
  BRIM_CONFIG_SAVED = 16,       // for every workload
  BRIM_CONFIG_SAVED_DATA = 32,  // for workloads that learn from data
  BRIM_CONFIG_SAVED_ENV = 64,   // for workloads that learn in an environment
  BRIM_CONFIG_SAVED_OWN = 128,  // for the workload that the key's first part names
  BRIM_CONFIG_SAVED_NETS =
      512,                     // for workloads that train networks, from data or in an environment
  BRIM_CONFIG_SWEPT = 256,     // lists values that a sweep tries
  BRIM_CONFIG_AUTO = 1024,     // accepts the word auto: the run chooses the number
  BRIM_CONFIG_OF_GRID = 2048,  // belongs to the grid: not in the config of an experiment
  BRIM_CONFIG_NO_COST = 4096   // changes neither the memory nor the time that a run takes
};

typedef struct brim_config_row {
  brim_config_key key;
  brim_config_type type;
  unsigned flags;
  double min, max;       // both 0: no bounds
  const char *category;  // component keys
} brim_config_row;

#define BRIM_KEY_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BRIM_KEY_NO_NAMES ((const char *const[]){NULL})

// name, default (NULL = none), bounds, aliases, flags, meaning
#define BRIM_KEY_INT(n, d, lo, hi, al, fl, m) \
  { {n, "int", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_INT, fl, lo, hi, NULL }
// A number that the run chooses if none is given.
#define BRIM_KEY_INT_AUTO(n, lo, hi, al, fl, m)                                                 \
  {                                                                                             \
    {n, "int or auto", "auto", BRIM_N_(m), al, NULL}, BRIM_CONFIG_INT, (fl) | BRIM_CONFIG_AUTO, \
        lo, hi, NULL                                                                            \
  }
#define BRIM_KEY_FLOAT(n, d, lo, hi, al, fl, m) \
  { {n, "float", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_FLOAT, fl, lo, hi, NULL }
#define BRIM_KEY_BOOL(n, d, al, fl, m) \
  { {n, "bool", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_BOOL, fl, 0, 0, NULL }
#define BRIM_KEY_STRING(n, d, al, fl, m) \
  { {n, "string", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_STRING, fl, 0, 0, NULL }
#define BRIM_KEY_CHOICE(n, d, al, ch, fl, m) \
  { {n, "choice", d, BRIM_N_(m), al, ch}, BRIM_CONFIG_CHOICE, fl, 0, 0, NULL }
#define BRIM_KEY_BYTES(n, d, al, fl, m) \
  { {n, "bytes", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_BYTES, fl, 0, 0, NULL }
#define BRIM_KEY_INTS(n, d, lo, hi, al, fl, m) \
  { {n, "list of int", d, BRIM_N_(m), al, NULL}, BRIM_CONFIG_INTS, fl, lo, hi, NULL }
#define BRIM_KEY_STRINGS(n, d, al, ch, fl, m) \
  { {n, "list of string", d, BRIM_N_(m), al, ch}, BRIM_CONFIG_STRINGS, fl, 0, 0, NULL }

// A link: a key that is an argument of a component too, as mappo.num_uavs is in env: uav(num_uavs=3). The later
// layer wins, and both get its value.
typedef struct brim_config_link {
  const char *component, *arg, *key;
  bool evaluation;  // true: the slots val and test; false: train and the whole
} brim_config_link;

// ---- components ------------------------------------------------------------------------------

typedef enum brim_config_arg_type {
  BRIM_CONFIG_ARG_INT,
  BRIM_CONFIG_ARG_FLOAT,
  BRIM_CONFIG_ARG_BOOL,
  BRIM_CONFIG_ARG_STRING,
  BRIM_CONFIG_ARG_CHOICE,     // choices: "a|b|c"
  BRIM_CONFIG_ARG_LIST,       // numbers or words
  BRIM_CONFIG_ARG_WORDS,      // a word, or a list of them
  BRIM_CONFIG_ARG_SIZE,       // an int, or (height, width)
  BRIM_CONFIG_ARG_NUMBERS,    // a number, or a list of them
  BRIM_CONFIG_ARG_COMPONENT,  // choices: the category
  BRIM_CONFIG_ARG_TYPE_COUNT
} brim_config_arg_type;

typedef struct brim_config_arg {
  const char *name;
  brim_config_arg_type type;
  const char *default_text;  // an expression value; NULL: no default
  bool required;
  double min, max;  // both 0: no bounds
  const char *choices;
  const char *meaning;
  const char *alias;  // another name; NULL: none
} brim_config_arg;

typedef struct brim_config_component_row {
  const char *category;
  const char *name;
  const char *meaning;
  const brim_config_arg *args;
  size_t arg_count;
} brim_config_component_row;

#define BRIM_ARG_INT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_INT, d, false, lo, hi, NULL, BRIM_N_(m), NULL }
#define BRIM_ARG_FLOAT(n, d, lo, hi, m) \
  { n, BRIM_CONFIG_ARG_FLOAT, d, false, lo, hi, NULL, BRIM_N_(m), NULL }
#define BRIM_ARG_BOOL(n, d, m) \
  { n, BRIM_CONFIG_ARG_BOOL, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define BRIM_ARG_STRING(n, d, m) \
  { n, BRIM_CONFIG_ARG_STRING, d, false, 0, 0, NULL, BRIM_N_(m), NULL }
#define BRIM_ARG_CHOICE(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_CHOICE, d, false, 0, 0, c, BRIM_N_(m), NULL }
#define BRIM_ARG_COMPONENT(n, d, c, m) \
  { n, BRIM_CONFIG_ARG_COMPONENT, d, false, 0, 0, c, BRIM_N_(m), NULL }
// A component with arguments, and one without.
#define BRIM_COMPONENT(category, name, args, meaning) \
  { category, name, BRIM_N_(meaning), args, sizeof(args) / sizeof((args)[0]) }
#define BRIM_COMPONENT_BARE(category, name, meaning) \
  { category, name, BRIM_N_(meaning), NULL, 0 }

// ---- sections of workloads -------------------------------------------------------------------

// A value of a preset.
#define BRIM_CONFIG_NO_GPU "cpu"  // preset: auto on a machine without a GPU
typedef struct brim_config_preset_row {
  const char *preset;  // "a100-80g", or BRIM_CONFIG_NO_GPU
  const char *key, *text;
} brim_config_preset_row;

// Rows that a workload adds. Its keys begin with its name and a point; those with BRIM_CONFIG_SAVED_OWN are saved
// in its checkpoints.
typedef struct brim_config_section {
  const brim_config_row *keys;
  size_t key_count;
  const brim_config_link *links;  // links of these keys
  size_t link_count;
  const brim_config_component_row *components;
  size_t component_count;
  const brim_config_preset_row *presets;  // values of presets for these keys
  size_t preset_count;
  // Keys that are part of the identity whenever they are written, even with their default value.
  // NULL-terminated; NULL = none.
  const char *const *given;
  // Pairs of keys that set the same in two ways: the first is ignored if a later layer gives the second.
  // NULL-terminated; NULL = none.
  const char *const *yields;
} brim_config_section;
// Makes the workload's name a value of `workload` and adds its rows, which must stay valid; `section` may be NULL.
// Call before the first config is loaded and before threads start. BRIM_EINVAL for a name or an alias that exists,
// or for a key outside the workload's section: then nothing is added.
brim_status brim_config_add_workload(const char *workload, const brim_config_section *section);
// Adds components that several workloads share; the rules of brim_config_add_workload apply.
brim_status brim_config_add_components(const brim_config_component_row *rows, size_t count);

#endif  // BRIM_CONFIG_ROWS_H_
