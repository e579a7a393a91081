// Shared by the files of this room: the YAML tree, components, rows, settings and their layers, values.
#ifndef BRIM_CONFIG_INT_H_
#define BRIM_CONFIG_INT_H_

#include <string.h>

#include "config/config_rows.h"

// Passes a brim_config_place to brim_fail_at.
#define AT(place) (place).file, (place).line, (place).col

enum {
  BRIM_CONFIG_MAX_MAP_KEYS = 1024,        // entries of one map
  BRIM_CONFIG_MAX_EXPRESSION = 64 << 10,  // bytes of one component expression
  BRIM_CONFIG_MAX_ITEMS = 10000,          // items of one list value
  BRIM_CONFIG_MAX_ARGS = 64,              // arguments of one component
  BRIM_CONFIG_MAX_STAGES = 256,           // components of one pipeline
  BRIM_CONFIG_MAX_EXCLUDES = 256,
  BRIM_CONFIG_MAX_MATCHES = 2000000,  // axis items that exclude compares
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

// The place where a text was written. `file` is "override" for the command line.
typedef struct brim_config_place {
  const char *file;
  int line, col;
} brim_config_place;

typedef struct brim_config_node brim_config_node;
struct brim_config_node {
  brim_config_node_kind kind;
  brim_config_tag tag;
  bool plain;  // scalar without quotes: may be a number, a bool or null
  brim_config_place at;
  const char *text;  // text of a scalar
  const char *key;   // key of an entry of a map
  brim_config_place key_at;
  brim_config_node *first, *next;  // children; siblings
  size_t count;                    // children
  size_t weight;                   // nodes of this subtree with aliases expanded
  int height;                      // levels of this subtree; 1 for a scalar
};

typedef struct brim_config_warnings {
  const char **items;
  size_t count, cap;
} brim_config_warnings;

// The context of a load: its arena, mode and messages.
typedef struct brim_config_context {
  brim_arena *arena;  // owns the nodes
  brim_config_mode mode;
  brim_config_warnings warnings;
  bool all_mistakes;  // keep mistakes and continue
  brim_config_warnings mistakes;
} brim_config_context;

brim_status brim_config_no_memory(void);
// Makes room for one more element in an arena array; updates *array and *cap.
brim_status brim_config_grow(brim_arena *arena, void *array, size_t element, size_t count,
                             size_t *cap);
// Adds a warning, translated by the caller, after its place: `file` NULL = none, `line` 0 = no line.
brim_status brim_config_warn(brim_config_context *context, brim_config_place at, const char *format,
                             ...);
// Keeps a mistake of the config and returns BRIM_OK if the load reports all of them; else returns `status`.
brim_status brim_config_mistake(brim_config_context *context, brim_status status);
// A key given twice: an error in EDIT mode, else a warning.
brim_status brim_config_repeated(brim_config_context *context, const char *key,
                                 brim_config_place first, brim_config_place second);
// Warns of a pipeline that ends in '...'.
brim_status brim_config_warn_tail(brim_config_context *context, const char *key,
                                  brim_config_place at);

// Size of the byte order mark at the start of a text, which some editors on Windows write; 0 = none.
static inline size_t brim_config_mark_size(const char *text, size_t size) {
  return size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
}
// Parses a text; *root is NULL for an empty document. `name` is the file in messages.
brim_status brim_config_yaml_parse(brim_config_context *context, const char *text, size_t size,
                                   const char *name, brim_config_node **root);
const brim_config_node *brim_config_node_get(const brim_config_node *map, const char *key);
// Makes a plain scalar; NULL when out of memory.
brim_config_node *brim_config_node_plain(brim_arena *arena, const char *text, brim_config_place at);

// The value of a scalar by the YAML 1.2 core schema: NULL, BOOL, INT, FLOAT or STRING.
brim_status brim_config_scalar(const brim_config_node *node, brim_value *out);
// The value of a bare word in an expression, by the same schema.
void brim_config_word(const char *text, brim_value *out);

// ---- components ------------------------------------------------------------------------------

// A component while it is built: the public part comes first. `places` has the place of each argument.
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

// Parses a value as in an expression ("[64, 128]", "(0.8, 1.0)", "resnet18(width=2)", "3").
brim_status brim_config_expression_value(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_value *out);
// True if the word can name a component or an argument.
bool brim_config_is_name(const char *text);
// Sets or replaces an argument.
brim_status brim_config_draft_set(brim_arena *arena, brim_config_draft *draft, const char *name,
                                  brim_value value, brim_config_place at);
// Converts a whole component setting to drafts, not yet checked; count 0 for null.
brim_status brim_config_drafts_from_node(brim_arena *arena, const brim_config_row *row,
                                         const brim_config_node *node, brim_config_drafts *out);
brim_status brim_config_pack(brim_arena *arena, const brim_config_drafts *drafts,
                             const brim_pipeline **out);
// Converts a node to the value of an argument; a map with _type becomes a component.
brim_status brim_config_node_value(brim_arena *arena, const brim_config_node *node,
                                   brim_value *out);
// Appends the canonical text of a value, which parses back to the same value.
void brim_config_value_print(brim_str *out, const brim_value *value);
void brim_config_pipeline_print(brim_str *out, const brim_pipeline *pipeline);

const brim_config_component_row *brim_config_component_at(size_t index);
const brim_config_component_row *brim_config_component_find(const char *category, const char *name);
// Finds an argument by name or alias; NULL if the row is NULL or has no such argument.
const brim_config_arg *brim_config_arg_find(const brim_config_component_row *row, const char *name);
const char *brim_config_arg_type_name(brim_config_arg_type type);
// Returns the failure for `plugin:` without a name.
brim_status brim_config_no_plugin(const char *key, brim_config_place at);
// The default of an argument after the check; of kind NULL if it has none.
brim_status brim_config_arg_default(brim_arena *arena, const brim_config_component_row *row,
                                    const brim_config_arg *arg, brim_value *out);
// Replaces aliases of arguments by their names. Fails if an argument is given by both.
brim_status brim_config_replace_aliases(const char *category, brim_config_draft *draft);
// Checks the name, the arguments, their kinds and bounds, then fills in defaults. Accepts any plugin:NAME.
brim_status brim_config_component_check(brim_arena *arena, const char *category,
                                        brim_config_draft *draft);

// ---- the key table ---------------------------------------------------------------------------

const brim_config_row *brim_config_row_at(size_t index);
// By canonical name or alias; -1 when unknown.
int brim_config_row_find(const char *name);
bool brim_config_row_is_group(const char *name);  // some key starts with name + "."
bool brim_config_row_is_component(const brim_config_row *row);
// True if the key can affect a training of this workload; false for keys of other workloads and of bench.
bool brim_config_row_is_for(const brim_config_row *row, const char *workload);
// True if the key, once written, is part of the workload's identity even with its default value.
bool brim_config_row_counts_given(const brim_config_row *row, const char *workload);
bool brim_config_row_takes_list(const brim_config_row *row);
// True if the key of `row` is ignored when a later layer gives the key of `later`.
bool brim_config_row_yields(int row, int later);
// The most similar key; NULL = none. Prefers keys of `workload`, which may be NULL.
const char *brim_config_row_nearest(const char *name, const char *workload);

// Keys that are arguments of components too.
const brim_config_link *brim_config_link_at(size_t index);  // NULL past the last
bool brim_config_link_applies(const brim_config_link *link, int row, int slot);

// ---- presets -----------------------------------------------------------------------------------

typedef struct brim_config_preset_value {
  const char *key;
  int row;
  char text[32];
} brim_config_preset_value;

enum { BRIM_CONFIG_PRESET_VALUES = 24 };

typedef struct brim_config_preset {
  const char *name;  // name of the chosen preset: "a100-80g", never "auto"
  brim_config_preset_value values[BRIM_CONFIG_PRESET_VALUES];
  size_t count;
} brim_config_preset;

// Fills in a preset. `name` and `size` must be valid choices of the key table.
void brim_config_preset_get(const char *name, const char *size, const brim_config_facts *facts,
                            brim_config_preset *out);

// ---- settings, axes, values -------------------------------------------------------------------

enum {
  BRIM_CONFIG_SLOT_NONE,
  BRIM_CONFIG_SLOT_TRAIN,
  BRIM_CONFIG_SLOT_VAL,
  BRIM_CONFIG_SLOT_TEST,
  BRIM_CONFIG_SLOT_COUNT
};
int brim_config_slot_find(const char *name);  // -1 = no slot; NULL is SLOT_NONE
const char *brim_config_slot_name(int slot);

// One assignment in one layer. A component map becomes several: the whole, then one per argument.
typedef struct brim_config_setting {
  int row;
  int slot;
  const char *arg;  // NULL: the whole component or value
  const brim_config_node *node;
  const char *written;  // the key as the user wrote it
  brim_config_place at;
  int layer;
  bool live;  // no later setting replaces this one
  int axis;   // -1: none
} brim_config_setting;

typedef struct brim_config_axis_state {
  int setting;
  size_t count;
  const char *key;
  const brim_config_node **items;
  size_t stride;  // raw point index / stride % count; zipped axes share it
  bool draws;     // values are drawn at random; all axes of draws are zipped
} brim_config_axis_state;

typedef struct brim_config_settings {
  brim_config_setting *items;
  size_t count, cap;
  const brim_config_node *zip, *exclude;
  int layer;  // layer of the document being read
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
  const brim_config_node *node;  // source of the value, with placeholders expanded
  // -2 default, -1 preset, then documents, a preset of the command line, overrides last
  int layer;
} brim_config_value;

// All settings that a load has read. Immutable after the load; shared by the config and its grid points.
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
  int seeds;         // index of the setting made from `seeds`; -1 = none
  uint32_t *points;  // raw indices of the points that exclude keeps; NULL = all points
  size_t point_count;
} brim_config_source;

struct brim_config {
  brim_config_source *source;
  brim_arena *arena;
  brim_config_value *values;  // one per row
  size_t raw_point;
  bool is_point;  // a grid point: axes are fixed
};
// ---- loading (config_load.c) -------------------------------------------------------------------

// The row of a short name such as "iterations": the key of that name in the section of the workload that the
// settings name, if it has one, else `row`.
int brim_config_own_row(const brim_config_source *source, const char *written, int row);
// A key or a path into a component ("model.depth", "transform.train"). Row -1 = neither.
typedef struct brim_config_path {
  int row, slot;
  const char *arg;
} brim_config_path;
brim_status brim_config_path_find(brim_arena *arena, const char *name, brim_config_path *out);
// Fails with 'did you mean'.
brim_status brim_config_unknown_key(const char *name, const char *workload, brim_config_place at);

// ---- resolving (config_resolve.c) --------------------------------------------------------------

// Resolves all values of one point.
brim_status brim_config_resolve(brim_config_source *source, size_t raw_point, bool is_point,
                                brim_config **out);
// Converts a node to a value of the row's type; not for components.
brim_status brim_config_convert(brim_arena *arena, const brim_config_row *row,
                                const brim_config_node *node, brim_config_value *out);
// Appends the text of a value, as a config file has it.
void brim_config_value_text(brim_str *out, const brim_config_row *row,
                            const brim_config_value *value);
// The last live setting of (row, slot, arg); -1 = none.
int brim_config_setting_find(const brim_config_source *source, int row, int slot, const char *arg);
// The node of a setting at a point.
static inline const brim_config_node *brim_config_setting_node(const brim_config_source *source,
                                                               const brim_config_setting *setting,
                                                               size_t raw_point) {
  if (setting->axis < 0) return setting->node;
  const brim_config_axis_state *axis = &source->axes[setting->axis];
  return axis->items[raw_point / axis->stride % axis->count];
}
bool brim_config_has_placeholder(const brim_config_node *node);
// True for the layers of a preset: below the files, or above them if the command line names the preset.
static inline bool brim_config_layer_is_preset(const brim_config_source *source, int layer) {
  return layer == -1 || layer == source->override_layer - 1;
}

// ---- grids (config_grid.c) ---------------------------------------------------------------------

// Finds the axes and zips; then, with the base config resolved, applies exclude.
brim_status brim_config_grid_prepare(brim_config_source *source);
brim_status brim_config_grid_exclude(brim_config_source *source, const brim_config *base);
// The axis of (row, slot, arg); -1 = none.
static inline int brim_config_axis_find(const brim_config_source *source, brim_config_path path) {
  int index = brim_config_setting_find(source, path.row, path.slot, path.arg);
  return index < 0 ? -1 : source->settings.items[index].axis;
}
// Makes the canonical text of a node as a value of the path, with defaults of components.
brim_status brim_config_item_text(brim_arena *arena, brim_config_path path,
                                  const brim_config_node *node, brim_str *out);

#endif  // BRIM_CONFIG_INT_H_
