// Configs for other rooms: loading with all options, values, grids, printing, identity, editing a file, the key
// table. This room never probes the machine: the preset `auto` takes facts from its caller.
#ifndef BRIM_CONFIG_ROOM_H_
#define BRIM_CONFIG_ROOM_H_

#include "base/base.h"
#include "brim/config.h"
#include "record/record_component.h"

typedef enum brim_config_mode {
  BRIM_CONFIG_RUN,    // train, bench, sweep: a repeated key is a warning and the later one wins
  BRIM_CONFIG_CHECK,  // config check
  BRIM_CONFIG_EDIT,   // before a file is edited: a repeated key is an error
  BRIM_CONFIG_MODE_COUNT
} brim_config_mode;

// The machine, for the preset `auto`; 0 or NULL = unknown.
typedef struct brim_config_facts {
  const char *gpu_name;  // NULL = no GPU
  uint64_t gpu_bytes;
  int cpu_cores;
} brim_config_facts;

typedef struct brim_config_options {
  const char *path;       // YAML file, or NULL
  const char *base;       // a config whose keys hold where the file sets none, or NULL
  const char *text;       // YAML text instead of a file, or NULL
  const char *text_name;  // its name in messages
  const char *text_path;  // includes of the text are relative to this file, or NULL
  bool no_include;        // refuse includes: the text comes from another machine
  const char *const *overrides;
  size_t override_count;
  brim_config_mode mode;
  const brim_config_facts *facts;  // NULL: `auto` behaves as on a machine without a GPU
  // If not NULL, the load checks all keys, values and components, calls this for each mistake (the text starts
  // with file:line:col), and fails with the first one.
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

// BRIM_EINVAL if the text includes other files. Does not check anything else.
brim_status brim_config_check_no_includes(const char *text, const char *name);

// Warnings collected while loading; each starts with file:line:col.
size_t brim_config_warning_count(const brim_config *config);
const char *brim_config_warning(const brim_config *config, size_t index);

// Was the key given by a file, an include, a preset or an override?
bool brim_config_is_set(const brim_config *config, const char *key);
// The source of a value. Use this for decisions such as consent, never the text of brim_config_origin: a file
// may have any name.
typedef enum brim_config_layer {
  BRIM_CONFIG_FROM_DEFAULT,
  BRIM_CONFIG_FROM_PRESET,
  BRIM_CONFIG_FROM_FILE,      // the config file or one that it includes
  BRIM_CONFIG_FROM_OVERRIDE,  // key=value or an option of the command line
  BRIM_CONFIG_LAYER_COUNT
} brim_config_layer;
brim_config_layer brim_config_layer_of(const brim_config *config, const char *key);
// Does the user ask for this value? A value in a file that equals the default does not count: brim writes every
// key into config.yaml.
bool brim_config_is_asked(const brim_config *config, const char *key);
// Text for users: "file:line:col", "preset a100-80g", "override" or "default".
const char *brim_config_origin(const brim_config *config, const char *key);

// List-typed keys (benchmark.batch_sizes, ...): *count 0 when unset.
brim_status brim_config_get_ints(const brim_config *config, const char *key, const int64_t **out,
                                 size_t *count);
brim_status brim_config_get_strings(const brim_config *config, const char *key,
                                    const char *const **out, size_t *count);
// BRIM_EINVAL if `device` names a GPU twice, for commands that cannot share one.
brim_status brim_config_devices_apart(const brim_config *config);
// Reads that cannot fail for keys this binary knows to exist (asserted by tests).
int64_t brim_config_int(const brim_config *config, const char *key);
double brim_config_float(const brim_config *config, const char *key);
bool brim_config_bool(const brim_config *config, const char *key);
const char *brim_config_string(const brim_config *config, const char *key);  // NULL when unset

// Component keys (model, loss, optimizer, scheduler, ...), arguments checked against the component
// catalogue and defaults filled in. slot: "train", "val", "test", or NULL. Returns NULL if the key
// is unset.
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
// The identity of an experiment, one line per key that the point sets. Left out: keys at their defaults, keys
// of other workloads and of bench, and keys that are never an axis, so keys of later versions change nothing.
// Values that the machine resolves are as written; values of `preset: auto` are left out.
typedef enum brim_config_identity_kind {
  BRIM_CONFIG_EXPERIMENT,
  BRIM_CONFIG_GROUP,  // without the seed
  BRIM_CONFIG_COST,   // without keys that change neither memory nor time: seed, learning rate, ...
  BRIM_CONFIG_IDENTITY_COUNT
} brim_config_identity_kind;
brim_status brim_config_identity(const brim_config *config, brim_config_identity_kind kind,
                                 brim_str *out);
// The first 128 bits of the identity's SHA-256, as 32 hex digits.
brim_status brim_config_hash(const brim_config *config, brim_config_identity_kind kind,
                             char out[33]);
// All hashes at once, for the time of one.
brim_status brim_config_hashes(const brim_config *config, char out[BRIM_CONFIG_IDENTITY_COUNT][33]);
// A point as YAML with only the keys that it sets, without those of the grid (device, tags, seeds, ...). It
// loads back to the same identity.
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
// Is it a section, the first part of canonical names ("data" in data.batch_size)?
bool brim_config_is_section(const char *name);
// By canonical name or alias; NULL when unknown.
const brim_config_key *brim_config_key_find(const char *name);
// Does this version read the key? One that it does not read is accepted, but train and bench report that it has
// no effect yet.
bool brim_config_key_is_used(const brim_config_key *key);
// Does the key only list values that a sweep tries?
bool brim_config_key_is_swept(const brim_config_key *key);
// Does the key belong in a checkpoint of this workload? Keys that change the learned result do. Paths, names and
// speed settings do not, so that a checkpoint is the same wherever it was made.
typedef enum brim_config_learning {
  BRIM_CONFIG_LEARNS_FROM_DATA,  // the workload learns from data
  BRIM_CONFIG_LEARNS_IN_ENV,     // it learns in an environment
  BRIM_CONFIG_TRAINS_IN_ENV,     // it trains networks with an optimizer in an environment
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
// The index-th category of the components of a network and its training (model, loss, ...), in
// display order. *heading is the title of its list, a catalogue message. NULL past the last.
const char *brim_config_category_at(size_t index, const char **heading);
brim_config_named brim_config_component_named(size_t index);
size_t brim_config_preset_count(void);
const char *brim_config_preset_name(size_t index);
// The category of the components a key takes; NULL = none.
const char *brim_config_key_category(const brim_config_key *key);
// Human explanation of a key, a component ("mlp") or a preset ("a100-80g"); BRIM_ENOENT with
// 'did you mean'.
brim_status brim_config_explain(const char *name, brim_str *out);

// ---- editing a file ---------------------------------------------------------------------------
// Sets keys of a config file in place: comments, order, quoting, indentation and line ends stay. A comment behind
// a changed value is removed if it names the old value ("64 fits 8 GB" behind 64).

// One key and its new value. The edited file resolves to what the old file with the override key=value does; if
// that takes more than changing this key, the edit is refused.
typedef struct brim_config_edit {
  const char *key;    // canonical name, alias, or a path into a component ("model.depth")
  const char *value;  // as in an override: YAML, on one line
} brim_config_edit;

// The texts before and after an edit, owned by the result.
typedef struct brim_config_edit_result {
  char *before, *after;
  size_t before_size, after_size;
  bool changed;
} brim_config_edit_result;

// Edits the file in memory and writes nothing. Edits a key where this file gives it, in any spelling. A key that
// the file lacks, or gets from an include, a preset or a merge key, is added to its section or in a new section
// at the end. BRIM_EINVAL with file and line for a place that cannot be edited without changing something else.
brim_status brim_config_edit_preview(const char *path, const brim_config_edit *edits, size_t count,
                                     brim_config_edit_result *out);
// The same, then replaces the file atomically: keeps its permissions and follows a symbolic link. Leaves a file
// alone that needs no change. `out` may be NULL.
brim_status brim_config_edit_file(const char *path, const brim_config_edit *edits, size_t count,
                                  brim_config_edit_result *out);
// BRIM_EINVAL if brim_config_edit_file could not replace the file, for callers that edit later. Writes nothing.
brim_status brim_config_edit_check(const char *path);
void brim_config_edit_result_deinit(brim_config_edit_result *result);

#endif  // BRIM_CONFIG_ROOM_H_
