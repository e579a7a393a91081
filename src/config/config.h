// The config room between folders: loading with all options, grids, components, explaining.
// It never probes the machine: the preset `auto` takes facts from its caller.
#ifndef BRIM_CONFIG_ROOM_H_
#define BRIM_CONFIG_ROOM_H_

#include "base/base.h"
#include "brim/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_config_mode {
  BRIM_CONFIG_RUN,    // train, bench, sweep: of repeated keys the later wins, with a warning;
                      // `| ...` is an error
  BRIM_CONFIG_CHECK,  // config check
  BRIM_CONFIG_EDIT,   // the file is to be changed: repeated keys are errors, as `| ...` is
  BRIM_CONFIG_MODE_COUNT
} brim_config_mode;

// What the machine is, for the preset `auto`; 0 / NULL = unknown.
typedef struct brim_config_facts {
  const char *gpu_name;  // NULL = no GPU
  uint64_t gpu_bytes;
  int cpu_cores;
} brim_config_facts;

typedef struct brim_config_options {
  const char *path;       // YAML file, or NULL
  const char *base;       // a config below the file: what the file leaves open; or NULL
  const char *text;       // YAML text instead of a file, or NULL
  const char *text_name;  // its name in messages
  const char *text_path;  // the file that the text stands for: includes are relative to it; or NULL
  bool no_include;        // the text comes from elsewhere: it names no files of this machine
  const char *const *overrides;
  size_t override_count;
  brim_config_mode mode;
  const brim_config_facts *facts;  // NULL: `auto` behaves as on a machine without a GPU
  // NULL, or called for each mistake that keys, values and components have (text with file:line:col in
  // front): the load looks at all of them, and then fails by the first.
  void (*on_mistake)(void *ctx, const char *text);
  void *ctx;
} brim_config_options;

// Limits against hostile input.
enum {
  BRIM_CONFIG_MAX_BYTES = 4 << 20,
  BRIM_CONFIG_MAX_DEPTH = 32,
  BRIM_CONFIG_MAX_NODES = 200000,  // after alias expansion
  BRIM_CONFIG_MAX_ALIASES = 1000,
  BRIM_CONFIG_MAX_INCLUDES = 16,
  BRIM_CONFIG_MAX_GRID = 100000
};

brim_status brim_config_load(const brim_config_options *options, brim_config **out);

// BRIM_EINVAL: the text includes other files, so it is not all of a config. What else is wrong with it,
// loading says.
brim_status brim_config_check_whole(const char *text, const char *name);

// Warnings collected while loading (text with file:line:col in front).
size_t brim_config_warning_count(const brim_config *config);
const char *brim_config_warning(const brim_config *config, size_t index);

// Was the key given (by file, include, preset or override) rather than defaulted?
bool brim_config_is_set(const brim_config *config, const char *key);
// What gave a key its value. A file may have any name, so decisions (consent above all) go by this
// and never by the text of brim_config_origin.
typedef enum brim_config_layer {
  BRIM_CONFIG_FROM_DEFAULT,
  BRIM_CONFIG_FROM_PRESET,
  BRIM_CONFIG_FROM_FILE,      // the config file or one that it includes
  BRIM_CONFIG_FROM_OVERRIDE,  // key=value or an option of the command line
  BRIM_CONFIG_LAYER_COUNT
} brim_config_layer;
brim_config_layer brim_config_layer_of(const brim_config *config, const char *key);
// Does the user ask for this value? A default in a file is no wish: brim writes every key into config.yaml.
bool brim_config_is_asked(const brim_config *config, const char *key);
// Where, for people: "file:line:col", "preset a100-80g", "override", "default".
const char *brim_config_origin(const brim_config *config, const char *key);

// List-typed keys (benchmark.batch_sizes, ...): *count 0 when unset.
brim_status brim_config_get_ints(const brim_config *config, const char *key, const int64_t **out,
                                 size_t *count);
brim_status brim_config_get_strings(const brim_config *config, const char *key,
                                    const char *const **out, size_t *count);
// BRIM_EINVAL where `device` names a GPU twice: for commands that have no use for that.
brim_status brim_config_devices_apart(const brim_config *config);
// Reads that cannot fail for keys this binary knows to exist (asserted by tests).
int64_t brim_config_int(const brim_config *config, const char *key);
double brim_config_float(const brim_config *config, const char *key);
bool brim_config_bool(const brim_config *config, const char *key);
const char *brim_config_string(const brim_config *config, const char *key);  // NULL when unset

// Component keys (model, loss, optimizer, scheduler, ...), arguments checked against the component
// catalogue and defaults filled in. slot: "train", "val", "test" or NULL. NULL when unset.
const brim_component *brim_config_component(const brim_config *config, const char *key,
                                            const char *slot);
const brim_pipeline *brim_config_pipeline(const brim_config *config, const char *key,
                                          const char *slot);
// Parse one expression alone ("mlp(depth=3)", "a | b(k=(1, 2))"); owned by arena. `name` for
// messages.
brim_status brim_config_parse_expression(brim_arena *arena, const char *text, const char *name,
                                         brim_pipeline *out);

// Grids. A config without axes is a grid of one.
typedef struct brim_config_axis {
  const char *key;  // canonical
  size_t count;
} brim_config_axis;
size_t brim_config_axis_count(const brim_config *config);
brim_config_axis brim_config_axis_at(const brim_config *config, size_t index);
size_t brim_config_grid_count(const brim_config *config);  // after zip and exclude
// The resolved config of one point, last axis fastest; its own object, close it.
brim_status brim_config_grid_point(const brim_config *config, size_t index, brim_config **out);
// "lr=0.001 batch_size=64"
brim_status brim_config_grid_label(const brim_config *config, size_t index, brim_str *out);

// The resolved config as JSON (new reference) and as YAML text.
brim_status brim_config_to_json(const brim_config *config, json_t **out);
brim_status brim_config_to_yaml(const brim_config *config, bool with_origins, brim_str *out);
// The same with other numbers in place of the config's own, without origins.
typedef struct brim_config_number {
  const char *key;
  int64_t value;
} brim_config_number;
brim_status brim_config_to_yaml_with(const brim_config *config, const brim_config_number *numbers,
                                     size_t count, brim_str *out);
// What makes a point the experiment it is, one line per key: the keys that it sets, without those at
// their defaults, of other workloads, of bench, and those that are never an axis. So keys that a later
// version adds change nothing. Values that the machine resolves stand as they were written, and those
// of `preset: auto` not at all.
typedef enum brim_config_identity_of {
  BRIM_CONFIG_EXPERIMENT,
  BRIM_CONFIG_GROUP,  // without the seed
  BRIM_CONFIG_COST,   // without what changes neither memory nor time: seed, learning rate, ...
  BRIM_CONFIG_IDENTITY_COUNT
} brim_config_identity_of;
brim_status brim_config_identity(const brim_config *config, brim_config_identity_of of,
                                 brim_str *out);
// First 128 bits of its SHA-256, as 32 hex digits.
brim_status brim_config_hash(const brim_config *config, brim_config_identity_of of, char out[33]);
// All of them at once, which costs as much as one.
brim_status brim_config_hashes(const brim_config *config, char out[BRIM_CONFIG_IDENTITY_COUNT][33]);
// A point as YAML with the keys that it sets alone, without those of the grid (device, tags, seeds,
// ...). It loads back to the same identity.
brim_status brim_config_to_experiment(const brim_config *config, brim_str *out);

// The key table, for `config explain`, completion and docs.
typedef struct brim_config_key {
  const char *name;  // canonical, dotted
  const char *type;  // "int", "float", "bool", "string", "bytes", "list of int", ...
  const char *default_text;
  const char *meaning;         // catalogue message
  const char *const *aliases;  // NULL-terminated
  const char *const *choices;  // NULL-terminated, or NULL
} brim_config_key;
size_t brim_config_key_count(void);
const brim_config_key *brim_config_key_at(size_t index);
// Is it the first part of keys' canonical names ("data" of data.batch_size)?
bool brim_config_is_section(const char *name);
// By canonical name or alias; NULL when unknown.
const brim_config_key *brim_config_key_find(const char *name);
// Is the key read by this version? One that is not is accepted, since its meaning is fixed, but
// train and bench say that it has no effect yet.
bool brim_config_key_is_used(const brim_config_key *key);
// Does it list the values that a sweep tries, and nothing of what a run is?
bool brim_config_key_is_swept(const brim_config_key *key);
// Does the key belong in a checkpoint of this workload? Keys that change what is learned do; paths,
// names and knobs of speed do not, so that a checkpoint is the same wherever it was made.
typedef enum brim_config_learning {
  BRIM_CONFIG_LEARNS_FROM_DATA,  // the workload learns from data
  BRIM_CONFIG_LEARNS_IN_ENV,     // or in an environment
  BRIM_CONFIG_TRAINS_IN_ENV,     // or there, and trains networks by an optimizer
  BRIM_CONFIG_LEARNING_COUNT
} brim_config_learning;
bool brim_config_key_is_saved(const brim_config_key *key, const char *workload,
                              brim_config_learning from);
// The catalogue of components and the presets, for completion and help.
typedef struct brim_config_named {
  const char *category, *name;  // "model", "mlp"
  const char *meaning;          // catalogue message
} brim_config_named;
size_t brim_config_component_count(void);
// What a network and its training are made of, in order: a category of components and, as a message,
// the heading of its list; NULL past the last.
const char *brim_config_category_at(size_t index, const char **heading);
brim_config_named brim_config_component_named(size_t index);
size_t brim_config_preset_count(void);
const char *brim_config_preset_name(size_t index);
// The category of the components a key takes; NULL = none.
const char *brim_config_key_category(const brim_config_key *key);
// Human explanation of a key, a component ("mlp") or a preset ("a100-80g"); BRIM_ENOENT with
// 'did you mean'.
brim_status brim_config_explain(const char *name, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CONFIG_ROOM_H_
