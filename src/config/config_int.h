// Inside the config room: the YAML tree, the key table's rows, settings and their layers, values.
// Nothing here is for other rooms.
#ifndef BRIM_CONFIG_INT_H_
#define BRIM_CONFIG_INT_H_

#include "config/config_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_CONFIG_MAX_MAP_KEYS = 1024,        // entries of one map
  BRIM_CONFIG_MAX_EXPRESSION = 64 << 10,  // bytes of one component expression
  BRIM_CONFIG_MAX_ITEMS = 10000,          // items of one list value
  BRIM_CONFIG_MAX_ARGS = 64,              // arguments of one component
  BRIM_CONFIG_MAX_STAGES = 256,           // components of one pipeline
  BRIM_CONFIG_MAX_EXCLUDES = 256,
  BRIM_CONFIG_MAX_MATCHES = 2000000,  // axis items compared for exclude, in all
  BRIM_CONFIG_MAX_ROWS = 256
};

// ---- the YAML tree -------------------------------------------------------------------------

typedef enum brim_config_node_kind {
  BRIM_CONFIG_NODE_SCALAR,
  BRIM_CONFIG_NODE_LIST,
  BRIM_CONFIG_NODE_MAP,
  BRIM_CONFIG_NODE_KIND_COUNT
} brim_config_node_kind;

typedef enum brim_config_tag {
  BRIM_CONFIG_TAG_NONE,
  BRIM_CONFIG_TAG_STR,
  BRIM_CONFIG_TAG_INT,
  BRIM_CONFIG_TAG_FLOAT,
  BRIM_CONFIG_TAG_BOOL,
  BRIM_CONFIG_TAG_NULL,
  BRIM_CONFIG_TAG_LIST,  // !list: this list is a value, never an axis
  BRIM_CONFIG_TAG_COUNT
} brim_config_tag;

// Where something was written. file is "override" for the command line.
typedef struct brim_config_place {
  const char *file;
  int line, col;
} brim_config_place;

typedef struct brim_config_node brim_config_node;
struct brim_config_node {
  brim_config_node_kind kind;
  brim_config_tag tag;
  bool plain;  // scalar without quotes: subject to the core schema
  brim_config_place at;
  const char *text;                // scalar
  const char *key;                 // when an entry of a map
  brim_config_place key_at;        //   and where that key stands
  brim_config_node *first, *next;  // children; siblings
  size_t count;                    // children
  size_t weight;                   // nodes of this subtree with aliases expanded
  int height;                      // 1 for a scalar
};

// What a load carries around: where nodes live, how strict it is, what it warned of.
typedef struct brim_config_warnings {
  const char **items;
  size_t count, cap;
} brim_config_warnings;

typedef struct brim_config_context {
  brim_arena *arena;
  brim_config_mode mode;
  brim_config_warnings warnings;
  bool all_mistakes;  // continue after one, and keep what it was
  brim_config_warnings mistakes;
} brim_config_context;

// Room for one more element in an arena array; *array, *cap updated.
brim_status brim_config_grow(brim_arena *arena, void *array, size_t element, size_t count,
                             size_t *cap);
// Adds `text` (formatted by the caller, with its place in front).
brim_status brim_config_warn(brim_config_context *context, const char *text);
// After something that `status` says failed: BRIM_OK where all mistakes are needed and this is one
// of the file's, which is kept; else the status.
brim_status brim_config_mistake(brim_config_context *context, brim_status status);
// In RUN mode an error at `second` that names both places; in CHECK mode a warning.
brim_status brim_config_repeated(brim_config_context *context, const char *key,
                                 brim_config_place first, brim_config_place second);
// A pipeline that ends in '...': accepted in CHECK mode, with this warning.
brim_status brim_config_warn_tail(brim_config_context *context, const char *key,
                                  brim_config_place at);

// Bytes of the byte order mark that a text may begin with (some editors on Windows write it).
size_t brim_config_mark_size(const char *text, size_t size);
// Text to tree; *root is NULL for an empty document. `name` stands in messages.
brim_status brim_config_yaml_parse(brim_config_context *context, const char *text, size_t size,
                                   const char *name, brim_config_node **root);
const brim_config_node *brim_config_node_get(const brim_config_node *map, const char *key);
// A plain scalar made by code.
brim_config_node *brim_config_node_plain(brim_arena *arena, const char *text, brim_config_place at);

// YAML 1.2 core schema for one scalar: NULL, BOOL, INT, FLOAT or STRING.
brim_status brim_config_scalar(const brim_config_node *node, brim_value *out);
// The same for a bare word of an expression.
void brim_config_word(const char *text, brim_value *out);

// ---- component expressions ------------------------------------------------------------------

// A component while it is built: the public part first, then where each argument stands.
typedef struct brim_config_draft {
  brim_component c;
  brim_argument *args;
  brim_config_place *places;
  size_t cap;
} brim_config_draft;

typedef struct brim_config_drafts {
  brim_config_draft **items;
  size_t count, cap;
  bool tail;
} brim_config_drafts;

brim_status brim_config_expression_parse(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_config_drafts *out);
// One value ("[64, 128]", "(0.8, 1.0)", "resnet18(width=2)", "3").
brim_status brim_config_expression_value(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_value *out);
// A word that can name a component or an argument.
bool brim_config_is_name(const char *text);
brim_config_draft *brim_config_draft_create(brim_arena *arena, const char *name,
                                            brim_config_place at);
// Sets or replaces an argument.
brim_status brim_config_draft_set(brim_arena *arena, brim_config_draft *draft, const char *name,
                                  brim_value value, brim_config_place at);
// Canonical text: an expression that parses back to the same thing.
void brim_config_value_print(brim_str *out, const brim_value *value);
void brim_config_component_print(brim_str *out, const brim_component *component);
void brim_config_pipeline_print(brim_str *out, const brim_pipeline *pipeline);

// ---- the component catalogue ----------------------------------------------------------------

const brim_config_component_row *brim_config_component_at(size_t index);
const brim_config_component_row *brim_config_component_find(const char *category, const char *name);
// By its name or its alias.
const brim_config_arg *brim_config_arg_find(const brim_config_component_row *row, const char *name);
const char *brim_config_arg_type_name(brim_config_arg_type type);
bool brim_config_arg_takes_list(brim_config_arg_type type);
// The failure of `plugin:` that names no component.
brim_status brim_config_no_plugin(const char *key, brim_config_place at);
// The default of an argument, as a component that does not name it has it; NULL kind = it has none.
brim_status brim_config_arg_default(brim_arena *arena, const brim_config_component_row *row,
                                    const brim_config_arg *arg, brim_value *out);
// Names, argument names, kinds and bounds; then defaults filled in. plugin:NAME passes unchecked.
brim_status brim_config_component_check(brim_arena *arena, const char *category,
                                        brim_config_draft *draft);

// ---- the key table ---------------------------------------------------------------------------

const brim_config_row *brim_config_row_at(size_t index);
// By canonical name or alias; -1 when unknown.
int brim_config_row_find(const char *name);
// A group ("data") of a similar name, into out; NULL = none.
const char *brim_config_group_nearest(const char *name, char out[64]);
bool brim_config_row_is_group(const char *name);  // some key starts with name + "."
bool brim_config_row_is_component(const brim_config_row *row);
// Can it make a difference to a training of this workload? Keys of other workloads and of bench cannot.
bool brim_config_row_is_for(const brim_config_row *row, const char *workload);
// Does it mean something to this workload that the key is written, whatever its value?
bool brim_config_row_counts_given(const brim_config_row *row, const char *workload);
bool brim_config_row_takes_list(const brim_config_row *row);
// Of keys that several workloads have, that of `workload`, which may be NULL.
const char *brim_config_row_nearest(const char *name, const char *workload);
bool brim_config_row_ends(const brim_config_row *row, const char *name);  // its last part

// ---- what is added (config_add.c) -----------------------------------------------------------------

// All rows or none. `remove` takes back the last ones that were added.
brim_status brim_config_add_keys(const char *workload, const brim_config_row *section,
                                 size_t count);
brim_status brim_config_add_links(const brim_config_link *rows, size_t count);
// A value of `workload`.
brim_status brim_config_add_value(const char *workload);
// Of a workload that is one.
void brim_config_add_yields(const char *const *pairs);
// Does the key of `row` yield to that of `later`, which a later layer sets?
bool brim_config_row_yields(int row, int later);
void brim_config_add_given(const char *workload, const char *const *keys);
brim_status brim_config_add_presets(const brim_config_preset_row *rows, size_t count);
void brim_config_remove_presets(size_t count);
void brim_config_remove_keys(size_t count);
void brim_config_remove_links(size_t count);
void brim_config_remove_components(const brim_config_component_row *rows, size_t count);

// ---- presets -----------------------------------------------------------------------------------

typedef struct brim_config_preset_value {
  const char *key;
  int row;
  char text[32];
} brim_config_preset_value;

enum { BRIM_CONFIG_PRESET_VALUES = 24 };

typedef struct brim_config_preset {
  const char *name;  // the row that was taken ("a100-80g", also for auto)
  bool lr_for_adam;  // its learning rate is meant for adam and adamw only
  brim_config_preset_value values[BRIM_CONFIG_PRESET_VALUES];
  size_t count;
} brim_config_preset;

// name and size are valid choices of the key table.
void brim_config_preset_get(const char *name, const char *size, const brim_config_facts *facts,
                            brim_config_preset *out);
void brim_config_preset_explain(const char *name, brim_str *out);

// ---- settings, axes, values -------------------------------------------------------------------

enum {
  BRIM_CONFIG_SLOT_NONE,
  BRIM_CONFIG_SLOT_TRAIN,
  BRIM_CONFIG_SLOT_VAL,
  BRIM_CONFIG_SLOT_TEST,
  BRIM_CONFIG_SLOT_COUNT
};
int brim_config_slot_find(const char *name);  // -1 when it is none; NULL is SLOT_NONE
const char *brim_config_slot_name(int slot);

// One assignment in one layer. Component maps come apart: the whole, then one per argument.
typedef struct brim_config_setting {
  int row;
  int slot;
  const char *arg;  // NULL: the whole
  const brim_config_node *node;
  const char *written;  // the key as the user spelled it
  brim_config_place at;
  int layer;
  bool live;  // not replaced by a later one
  int axis;   // -1: none
} brim_config_setting;

typedef struct brim_config_axis_state {
  int setting;
  size_t count;
  const char *key;
  const brim_config_node **items;
  size_t stride;  // raw point index / stride % count; zipped axes share it
  bool draws;     // drawn at random; all of these are zipped
} brim_config_axis_state;

typedef struct brim_config_settings {
  brim_config_setting *items;
  size_t count, cap;
  const brim_config_node *zip, *exclude;
  int layer;  // of the document being read
} brim_config_settings;

// A resolved value of one key.
typedef struct brim_config_value {
  bool is_null;  // no value at all
  bool is_set;   // given rather than defaulted
  int64_t integer;
  double number;
  bool boolean;
  const char *string;
  const int64_t *ints;
  const char *const *strings;
  size_t count;
  const brim_pipeline *slots[BRIM_CONFIG_SLOT_COUNT];
  const char *origin;
  const brim_config_node *node;  // what it was read from, placeholders expanded
  // -2 default, -1 preset, then documents, a preset of the command line, overrides last
  int layer;
} brim_config_value;

// Everything read, immutable after the load; shared by the config and its grid points.
typedef struct brim_config_source {
  long refs;
  brim_arena *arena;
  brim_config_context context;
  brim_config_settings settings;
  int override_layer;
  const char *gpu_name;
  uint64_t gpu_bytes;
  int cpu_cores;
  brim_config_axis_state *axes;
  size_t axis_count;
  int seeds;         // the setting that `seeds` made, which nothing was written for; -1 = none
  uint32_t *points;  // raw indices left by exclude; NULL when all are
  size_t point_count;
} brim_config_source;

struct brim_config {
  brim_config_source *source;
  brim_arena *arena;
  brim_config_value *values;  // one per row
  size_t raw_point;
  bool is_point;  // a grid point: axes are fixed
};
// A short name ("iterations") is one workload's; where the workload that is named has a key of that name
// in its own section, that one is meant. For all settings, and for a key elsewhere (zip, exclude).
int brim_config_own_row(const brim_config_source *source, const char *written, int row);
// A key or a path into a component ("model.depth", "transform.train") as row, slot and argument;
// row -1 when it is neither.
typedef struct brim_config_path {
  int row, slot;
  const char *arg;
} brim_config_path;
brim_status brim_config_path_find(brim_arena *arena, const char *name, brim_config_path *out);
// Unknown-key error with 'did you mean'.
brim_status brim_config_unknown_key(const char *name, const char *workload, brim_config_place at);

// config_resolve.c: node to value by the row's type; not for components.
brim_status brim_config_convert(brim_arena *arena, const brim_config_row *row,
                                const brim_config_node *node, brim_config_value *out);
// A node as an argument's value (maps with _type become components).
brim_status brim_config_node_value(brim_arena *arena, const brim_config_node *node,
                                   brim_value *out);
// The scalar text of a value, as it would be written.
void brim_config_value_text(brim_str *out, const brim_config_row *row,
                            const brim_config_value *value);

// config_resolve.c: all values of one point.
brim_status brim_config_resolve(brim_config_source *source, size_t raw_point, bool is_point,
                                brim_config **out);
bool brim_config_has_placeholder(const brim_config_node *node);
// What a whole component setting says, not yet checked; count 0 for null.
brim_status brim_config_drafts_from_node(brim_arena *arena, const brim_config_row *row,
                                         const brim_config_node *node, brim_config_drafts *out);
brim_status brim_config_pack(brim_arena *arena, const brim_config_drafts *drafts,
                             const brim_pipeline **out);

// config_resolve.c
// The last live setting of (row, slot, arg), -1 when there is none.
int brim_config_setting_find(const brim_config_source *source, int row, int slot, const char *arg);
// The catalogue's row of an argument, by the first component written for it; NULL = unknown.
const brim_config_arg *brim_config_setting_arg(const brim_config_source *source,
                                               const brim_config_setting *setting);
// The node a setting has at a point.
const brim_config_node *brim_config_setting_node(const brim_config_source *source,
                                                 const brim_config_setting *setting,
                                                 size_t raw_point);
// Of a preset, below the files or, given on the command line, above them.
bool brim_config_layer_is_preset(const brim_config_source *source, int layer);
// brim_config_is_asked, of the value of a row, but for the defaults of components.
bool brim_config_value_is_asked(const brim_config_source *source, const brim_config_row *row,
                                const brim_config_value *value);

// config_resolve.c: the keys that are a component's argument too.
const brim_config_link *brim_config_link_at(size_t index);  // NULL behind the last
// Is it the default that a component has for this key (the optimizer's learning rate)? Of any component: a file
// has that of the one it was written with.
bool brim_config_link_is_usual(const brim_config_row *row, const brim_config_value *value);
// The link of an argument of this row and slot; NULL = it is no key too.
const brim_config_link *brim_config_link_of(int row, int slot, const char *arg);

// config_print.c: a value as JSON (new reference), and JSON of that kind as flow YAML.
json_t *brim_config_json_value(const brim_config_row *row, const brim_config_value *value);
void brim_config_yaml_flow(brim_str *out, const json_t *value);
void brim_config_yaml_string(brim_str *out, const char *text);

// config_grid.c
brim_status brim_config_grid_prepare(brim_config_source *source);
brim_status brim_config_grid_exclude(brim_config_source *source, const brim_config *base);
// The axis that varies (row, slot, arg), -1 when none does.
int brim_config_axis_find(const brim_config_source *source, brim_config_path path);
// A node as canonical text of the thing it sets; defaults of components filled in.
brim_status brim_config_item_text(brim_arena *arena, brim_config_path path,
                                  const brim_config_node *node, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CONFIG_INT_H_
