// Opening a source: the table of built-in ones, plug-ins by name, and the check that what a source
// says about itself makes sense, so that the loader never has to ask again. And reading from one:
// through the part in use and the cache.
#include <inttypes.h>
#include <string.h>

#include "data/source/data_source_int.h"

// Of formats that have no val split: val is always the test set.
static bool always(void *state) {
  (void)state;
  return true;
}

static const brim_source_builtin builtin[] = {
    {"idx", &brim_source_idx, brim_source_idx_host_bytes, .label = brim_source_idx_label,
     .val_is_test = always, .files = brim_source_idx_files},
    {"mnist", &brim_source_idx, brim_source_idx_host_bytes, .label = brim_source_idx_label,
     .val_is_test = always, .files = brim_source_idx_files},
    {"cifar10", &brim_source_cifar10, brim_source_cifar_host_bytes,
     .label = brim_source_cifar_label, .val_is_test = always, .files = brim_source_cifar_files},
    {"cifar100", &brim_source_cifar100, brim_source_cifar_host_bytes,
     .label = brim_source_cifar_label, .val_is_test = always, .files = brim_source_cifar_files},
    {"numpy", &brim_source_numpy, brim_source_numpy_host_bytes, .label = brim_source_numpy_label,
     .binary_targets = brim_source_numpy_binary_targets,
     .val_is_test = brim_source_numpy_val_is_test, .files = brim_source_numpy_files,
     .class_names = brim_source_numpy_class_names},
    {"stl10", &brim_source_stl10, brim_source_stl10_host_bytes, .label = brim_source_stl10_label,
     .val_is_test = always, .files = brim_source_stl10_files},
    {"hdf5", &brim_source_hdf5, brim_source_hdf5_host_bytes, brim_source_hdf5_stream,
     brim_source_hdf5_rows, brim_source_hdf5_target, brim_source_hdf5_describe_target,
     brim_source_hdf5_label, .binary_targets = brim_source_hdf5_binary_targets,
     .val_is_test = brim_source_hdf5_val_is_test, .class_names = brim_source_hdf5_class_names},
    {"folder", &brim_source_folder, brim_source_folder_host_bytes,
     .label = brim_source_folder_label, .val_is_test = brim_source_folder_val_is_test},
    {"synthetic", &brim_source_synthetic, .label = brim_source_synthetic_label},
};
enum { BUILTIN_COUNT = sizeof builtin / sizeof builtin[0] };

static brim_status find_plugin(const brim_registry *registry, const char *name,
                               const brim_source_table **out) {
  char full[128];
  int n = snprintf(full, sizeof full, "data.source/%s", name);
  if (!name[0] || n < 0 || (size_t)n >= sizeof full) {
    return brim_fail(BRIM_EINVAL, "'plugin:%s' is not the name of a source", name);
  }
  const brim_source_table *table = registry ? brim_registry_extension(registry, full) : NULL;
  if (!table) {
    return brim_fail(BRIM_ENOENT,
                     "no plug-in provides a source '%s'; load its plug-in with --plugin", name);
  }
  if (table->abi != BRIM_SOURCE_ABI) {
    return brim_fail(BRIM_EABI, "source '%s' was built for source ABI %u, but this brim has %u",
                     name, table->abi, BRIM_SOURCE_ABI);
  }
  if (!table->open || !table->info || !table->close || (!table->read && !table->decode)) {
    return brim_fail(BRIM_EABI, "source '%s' lacks open, info, read or close", name);
  }
  if (!table->size != !table->decode) {
    return brim_fail(BRIM_EABI, "source '%s' has size or decode, but not both", name);
  }
  *out = table;
  return BRIM_OK;
}

static brim_status find_table(const brim_registry *registry, const char *name,
                              const brim_source_builtin **row, const brim_source_table **table) {
  const char *names[BUILTIN_COUNT + 1] = {0};
  *row = NULL;
  if (brim_str_starts(name, "plugin:")) {
    return find_plugin(registry, name + strlen("plugin:"), table);
  }
  for (size_t i = 0; i < BUILTIN_COUNT; i++) {
    names[i] = builtin[i].name;
    if (strcmp(builtin[i].name, name) == 0) {
      *row = &builtin[i];
      *table = builtin[i].table;
      return BRIM_OK;
    }
  }
  const char *near = brim_nearest(name, names);
  if (near) return brim_fail(BRIM_EINVAL, "no source '%s'; did you mean '%s'?", name, near);
  brim_str all;
  brim_str_init(&all);
  for (size_t i = 0; i < BUILTIN_COUNT; i++) brim_str_printf(&all, "%s, ", names[i]);
  brim_status status = brim_str_status(&all);
  if (!status) {
    status = brim_fail(BRIM_EINVAL, "no source '%s'; choose from %splugin:NAME", name, all.data);
  }
  brim_str_deinit(&all);
  return status;
}

// Images of different sizes have to be images, and to come with what reads them.
static brim_status check_varies(const brim_source *s, const char *name) {
  if (!s->info.varies) {
    if (s->table->read) return BRIM_OK;
    return brim_fail(BRIM_EABI, "%s: samples of one size, but nothing that reads them", name);
  }
  if (s->info.rank != 3 || s->info.type != BRIM_SAMPLE_U8) {
    return brim_fail(BRIM_EINVAL,
                     "%s: samples of different sizes have to be images of bytes (height, width, "
                     "channels)",
                     name);
  }
  if (s->table->size && s->table->decode) return BRIM_OK;
  return brim_fail(BRIM_EABI, "%s: images of different sizes, but no size and decode", name);
}

// Sizes of a sample from the info, checked.
static brim_status check_info(brim_source *s) {
  static const size_t type_bytes[BRIM_SAMPLE_TYPE_COUNT] = {1, 4};
  const brim_source_info *info = &s->info;
  const char *name = s->table->name ? s->table->name : "source";
  if (info->count == 0 || info->count > INT64_MAX / 8) {
    return brim_fail(BRIM_EINVAL, "%s: a source of %llu samples cannot be used", name,
                     (unsigned long long)info->count);
  }
  if ((unsigned)info->type >= BRIM_SAMPLE_TYPE_COUNT || info->rank < 1 ||
      info->rank > BRIM_SOURCE_MAX_RANK || info->channels < 0 || info->channels > 4 ||
      info->classes < 0 || info->classes > INT32_MAX || info->target_dim < 0) {
    return brim_fail(BRIM_EINVAL, "%s: type, rank, channels or target are out of range", name);
  }
  BRIM_TRY(check_varies(s, name));
  size_t bytes = type_bytes[info->type];
  for (int i = 0; i < info->rank; i++) {
    if (info->dim[i] < 1 || __builtin_mul_overflow(bytes, (size_t)info->dim[i], &bytes) ||
        bytes > PTRDIFF_MAX) {
      return brim_fail(BRIM_EINVAL, "%s: size %d of a sample is out of range", name, i);
    }
  }
  s->input_bytes = bytes;
  s->target_bytes = sizeof(int32_t);
  if (!info->classes &&
      (__builtin_mul_overflow((size_t)info->target_dim, sizeof(float), &s->target_bytes) ||
       s->target_bytes > PTRDIFF_MAX)) {
    return brim_fail(BRIM_EINVAL, "%s: the target of a sample is out of range", name);
  }
  return BRIM_OK;
}

//---------------------------------- opening ----------------------------------

// What every source takes besides its own arguments.
typedef struct common_args {
  const brim_value *part;
  const brim_value *indices;
} common_args;

// The component without them, which is what its own parser sees; *own is brim_free's.
static brim_status split_args(const brim_component *component, common_args *common,
                              brim_argument **own, brim_component *rest) {
  *common = (common_args){0};
  *own = brim_calloc(component->arg_count + 1, sizeof **own);
  if (!*own) return brim_fail(BRIM_ENOMEM, "out of memory opening a source");
  *rest = *component;
  rest->args = *own;
  rest->arg_count = 0;
  for (size_t i = 0; i < component->arg_count; i++) {
    const brim_argument *arg = &component->args[i];
    if (strcmp(arg->name, "part") == 0) {
      common->part = &arg->value;
    } else if (strcmp(arg->name, "indices") == 0) {
      common->indices = &arg->value;
    } else {
      (*own)[rest->arg_count++] = *arg;
    }
  }
  return BRIM_OK;
}

static bool is_number(const brim_value *v) {
  return v->kind == BRIM_VALUE_INT || v->kind == BRIM_VALUE_FLOAT;
}

static brim_status apply_common(brim_source *s, const common_args *common, uint64_t seed) {
  const brim_value *part = common->part, *indices = common->indices;
  if (indices && indices->kind != BRIM_VALUE_NULL) {
    if (indices->kind != BRIM_VALUE_STRING || !indices->string[0]) {
      return brim_fail(BRIM_EINVAL, "indices must be the name of a file, as indices=val.txt");
    }
    BRIM_TRY(brim_source_part_file(s, indices->string));
  }
  if (!part || part->kind == BRIM_VALUE_NULL) return BRIM_OK;
  if (part->kind != BRIM_VALUE_LIST || part->count != 2 || !is_number(&part->items[0]) ||
      !is_number(&part->items[1])) {
    return brim_fail(BRIM_EINVAL, "part must be two shares of 1, as part=(0, 0.8)");
  }
  return brim_source_take(s, part->items[0].number, part->items[1].number, seed);
}

// A plug-in's own open may fail without a word; then the status has to speak.
static brim_status open_table(brim_source *s, const brim_source_how *how, const char *name) {
  brim_status_clear();
  brim_status status = s->table->open(how, &s->state);
  if (status && !brim_status_detail()[0]) {
    return brim_fail(status, "source '%s' could not be opened: %s", name, brim_status_text(status));
  }
  return status;
}

static brim_status check_split(const char *split) {
  static const char *const known[] = {"train", "val", "test", "unlabeled", "all", NULL};
  for (size_t i = 0; known[i]; i++) {
    if (strcmp(known[i], split) == 0) return BRIM_OK;
  }
  const char *near = brim_nearest(split, known);
  if (near) return brim_fail(BRIM_EINVAL, "no split '%s'; did you mean '%s'?", split, near);
  return brim_fail(BRIM_EINVAL, "no split '%s'; choose train, val, test, unlabeled or all", split);
}

static brim_status open_source(const brim_registry *registry, const brim_component *component,
                               brim_source_how *how, brim_source *s) {
  const brim_source_builtin *row;
  BRIM_TRY(find_table(registry, component->name, &row, &s->table));
  if (row) BRIM_TRY(check_split(how->split));
  char *args;
  BRIM_TRY(brim_data_args_dump(component, &args));
  how->args_json = args;
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_status status = open_table(s, how, component->name);
  brim_alloc_get_stats(&after);
  brim_free(args);
  if (status && row) {
    const char *path = brim_component_string(component, "path", how->path);
    return brim_source_guess_other(path, component->name, status);
  }
  if (status) return status;
  if (row) {
    s->stream = row->stream;
    s->rows = row->rows;
    s->target = row->target;
    s->describe_target = row->describe_target;
    s->label = row->label;
    s->files = row->files;
    s->class_names = row->class_names;
    s->host_bytes = row->host_bytes ? row->host_bytes(s->state) : 0;
    s->binary_targets = row->binary_targets && row->binary_targets(s->state);
    s->val_is_test =
        strcmp(how->split, "val") == 0 && row->val_is_test && row->val_is_test(s->state);
  } else if (after.live_bytes[BRIM_MEM_PLANNED] > before.live_bytes[BRIM_MEM_PLANNED]) {
    // A plug-in says with each allocation whether it is planned; the counters add it up.
    s->host_bytes = after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED];
  }
  s->table->info(s->state, &s->info);
  status = check_info(s);
  if (status) s->table->close(s->state);
  return status;
}

static brim_status open_part(const brim_registry *registry, const brim_component *component,
                             brim_source_how *how, brim_source *s) {
  common_args common;
  brim_argument *own;
  brim_component rest;
  BRIM_TRY(split_args(component, &common, &own, &rest));
  brim_status status = open_source(registry, &rest, how, s);
  if (!status) {
    status = apply_common(s, &common, how->seed);
    if (status) {
      brim_source_part_free(s->part);
      s->table->close(s->state);
    }
  }
  brim_free(own);
  return status;
}

brim_status brim_source_open(const brim_registry *registry, const brim_component *component,
                             const char *path, const char *split, uint64_t seed,
                             brim_source **out) {
  brim_source *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory opening a source");
  if (!split) split = brim_component_string(component, "split", "train");
  brim_source_how how = {.path = path, .split = split, .seed = seed};
  brim_status status = open_part(registry, component, &how, s);
  if (status) {
    brim_free(s);
    // What is wrong with the component itself stands somewhere in a config: say where.
    if (status == BRIM_EINVAL && component->file && component->line > 0) {
      brim_fail_context(status, "%s:%d:%d", component->file, component->line, component->col);
    }
    return status;
  }
  *out = s;
  return BRIM_OK;
}

void brim_source_close(brim_source *source) {
  if (!source) return;
  source->table->close(source->state);
  brim_source_cache_free(source->cache);
  brim_source_part_free(source->part);
  brim_free(source);
}

//---------------------------------- reading ----------------------------------

void brim_source_describe(const brim_source *source, uint64_t index, char *text, size_t size) {
  if (size == 0) return;
  uint64_t number = brim_source_part_at(source->part, index);
  text[0] = '\0';
  if (source->table->describe) {
    source->table->describe(source->state, number, text, size);
    text[size - 1] = '\0';
  }
  if (!text[0]) snprintf(text, size, "sample %llu", (unsigned long long)number);
}

void brim_source_describe_target(const brim_source *source, uint64_t index, int64_t value,
                                 char *text, size_t size) {
  if (size == 0) return;
  text[0] = '\0';
  if (source->describe_target) {
    uint64_t number = brim_source_part_at(source->part, index);
    source->describe_target(source->state, number, value, text, size);
  }
  if (!text[0]) brim_source_describe(source, index, text, size);
}

// Every failure says something, and says of which sample.
static brim_status name_sample(const brim_source *source, uint64_t index, brim_status status) {
  char text[512];
  if (!brim_status_detail()[0]) brim_status_set_detail(brim_status_text(status));
  brim_source_describe(source, index, text, sizeof text);
  if (strstr(brim_status_detail(), text)) return status;
  return brim_fail_context(status, "%s", text);
}

static brim_status check_index(const brim_source *source, uint64_t index) {
  if (index < source->info.count) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "no sample %llu; the source has %llu", (unsigned long long)index,
                   (unsigned long long)source->info.count);
}

static brim_status read_varying(brim_source *s, uint64_t number, int scale, void *input,
                                void *target, int64_t size[2]) {
  brim_source_image image = {.scale = scale, .pixels = input, .capacity = s->input_bytes};
  BRIM_TRY(s->table->decode(s->state, number, &image, target));
  size[0] = image.height;
  size[1] = image.width;
  if (size[0] < 1 || size[1] < 1 || size[0] > s->info.dim[0] || size[1] > s->info.dim[1]) {
    return brim_fail(BRIM_EINVAL, "an image of %lld x %lld where %lld x %lld is the largest",
                     (long long)size[0], (long long)size[1], (long long)s->info.dim[0],
                     (long long)s->info.dim[1]);
  }
  return BRIM_OK;
}

brim_status brim_source_read(brim_source *source, uint64_t index, int scale, void *input,
                             void *target, int64_t *height, int64_t *width) {
  BRIM_TRY(check_index(source, index));
  const brim_source_info *info = &source->info;
  int64_t size[2] = {info->dim[0], info->rank > 1 ? info->dim[1] : 1};
  if (!source->cache || !brim_source_cache_get(source, index, input, target)) {
    uint64_t number = brim_source_part_at(source->part, index);
    brim_status_clear();
    brim_status status = info->varies ? read_varying(source, number, scale, input, target, size)
                                      : source->table->read(source->state, number, input, target);
    if (status) return name_sample(source, index, status);
    if (source->cache) brim_source_cache_put(source, index, input, target);
  }
  if (height) *height = size[0];
  if (width) *width = size[1];
  return BRIM_OK;
}

brim_status brim_source_stream(brim_source *source, uint64_t index, uint64_t next, void *input,
                               void *target) {
  // A cache reads what was just written.
  if (!source->stream || source->cache) {
    return brim_source_read(source, index, 1, input, target, NULL, NULL);
  }
  BRIM_TRY(check_index(source, index));
  brim_status_clear();
  if (next >= source->info.count) next = index;
  uint64_t number = brim_source_part_at(source->part, index);
  next = brim_source_part_at(source->part, next);
  brim_status status = source->stream(source->state, number, next, input, target);
  return status ? name_sample(source, index, status) : BRIM_OK;
}

bool brim_source_rows_of(const brim_source *source, brim_source_rows *out) {
  return source->rows && !source->info.varies && source->rows(source->state, out);
}

uint64_t brim_source_row(const brim_source *source, uint64_t index) {
  return brim_source_part_at(source->part, index);
}

brim_status brim_source_target(brim_source *source, uint64_t index, void *target) {
  BRIM_TRY(check_index(source, index));
  uint64_t number = brim_source_part_at(source->part, index);
  brim_status_clear();
  brim_status status = source->target(source->state, number, target);
  return status ? name_sample(source, index, status) : BRIM_OK;
}

brim_status brim_source_check_readable(brim_source *source, uint64_t limit) {
  if (source->table != &brim_source_folder) return BRIM_OK;
  uint64_t count = source->info.count, broken = 0, first = 0;
  if (limit > 0 && limit < count) count = limit;
  for (uint64_t i = 0; i < count; i++) {
    int64_t height, width;
    uint64_t number = brim_source_part_at(source->part, i);
    if (!source->table->size(source->state, number, &height, &width)) continue;
    if (!broken++) first = i;
  }
  if (!broken) return BRIM_OK;
  int64_t height, width;
  uint64_t number = brim_source_part_at(source->part, first);
  brim_status_clear();
  brim_status status = source->table->size(source->state, number, &height, &width);
  if (!status) brim_fail(BRIM_EIO, "the file changed while brim read it");
  return brim_fail(BRIM_EINVAL,
                   "cannot read %" PRIu64 " of %" PRIu64
                   " images, the first: %s; repair or remove them (`brim data verify PATH` lists "
                   "them), or skip them with data.on_error=skip",
                   broken, count, brim_status_detail());
}

brim_status brim_source_size(brim_source *source, uint64_t index, int64_t *height, int64_t *width) {
  BRIM_TRY(check_index(source, index));
  const brim_source_info *info = &source->info;
  *height = info->dim[0];
  *width = info->rank > 1 ? info->dim[1] : 1;
  if (!info->varies) return BRIM_OK;
  uint64_t number = brim_source_part_at(source->part, index);
  brim_status_clear();
  brim_status status = source->table->size(source->state, number, height, width);
  return status ? name_sample(source, index, status) : BRIM_OK;
}
