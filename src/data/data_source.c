// Opening a source: the table of built-in ones, plug-ins by name, and the check that what a source
// says about itself makes sense, so that the loader never has to ask again.
#include <string.h>

#include "data/data_int.h"

static const brim_source_builtin builtin[] = {
    {"idx", &brim_source_idx, brim_source_idx_host_bytes},
    {"mnist", &brim_source_idx, brim_source_idx_host_bytes},
    {"cifar10", &brim_source_cifar10, brim_source_cifar_host_bytes},
    {"cifar100", &brim_source_cifar100, brim_source_cifar_host_bytes},
    {"synthetic", &brim_source_synthetic, NULL},
};
enum { BUILTIN_COUNT = sizeof builtin / sizeof builtin[0] };

static brim_status find_plugin(const brim_registry *registry, const char *name,
                               const brim_source_table **out) {
  char full[128];
  int n = snprintf(full, sizeof full, "data.source/%s", name);
  if (!name[0] || n < 0 || (size_t)n >= sizeof full) {
    return brim_fail(BRIM_EINVAL, "'plugin:%s' is not a name of a source", name);
  }
  const brim_source_table *table = registry ? brim_registry_extension(registry, full) : NULL;
  if (!table) {
    return brim_fail(BRIM_ENOENT,
                     "no plug-in brings a source '%s'; load the one that does with --plugin", name);
  }
  if (table->abi != BRIM_SOURCE_ABI) {
    return brim_fail(BRIM_EABI, "source '%s' was built for source ABI %u, this brim has %u", name,
                     table->abi, BRIM_SOURCE_ABI);
  }
  if (!table->open || !table->info || !table->read || !table->close) {
    return brim_fail(BRIM_EABI, "source '%s' lacks open, info, read or close", name);
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
    status = brim_fail(BRIM_EINVAL, "no source '%s'; there are %splugin:NAME", name, all.data);
  }
  brim_str_deinit(&all);
  return status;
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
      info->classes < 0 || info->classes > INT32_MAX ||
      (info->classes == 0 && info->target_dim < 1)) {
    return brim_fail(BRIM_EINVAL, "%s: type, rank, channels or target are out of range", name);
  }
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

// A plug-in's own open may fail without a word; then the status has to speak.
static brim_status open_table(brim_source *s, const brim_source_how *how, const char *name) {
  brim_status_clear();
  brim_status status = s->table->open(how, &s->state);
  if (status && !brim_status_detail()[0]) {
    return brim_fail(status, "source '%s' could not be opened: %s", name, brim_status_text(status));
  }
  return status;
}

static brim_status open_source(const brim_registry *registry, const brim_component *component,
                               brim_source_how *how, brim_source *s) {
  const brim_source_builtin *row;
  BRIM_TRY(find_table(registry, component->name, &row, &s->table));
  if (row && strcmp(how->split, "train") != 0 && strcmp(how->split, "val") != 0 &&
      strcmp(how->split, "test") != 0) {
    return brim_fail(BRIM_EINVAL, "no split '%s'; there are train, val and test", how->split);
  }
  char *args;
  BRIM_TRY(brim_data_args_dump(component, &args));
  how->args_json = args;
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_status status = open_table(s, how, component->name);
  brim_alloc_get_stats(&after);
  brim_free(args);
  if (status) return status;
  if (row) {
    s->host_bytes = row->host_bytes ? row->host_bytes(s->state) : 0;
  } else if (after.live_bytes[BRIM_MEM_PLANNED] > before.live_bytes[BRIM_MEM_PLANNED]) {
    // A plug-in says with each allocation whether it is planned; the counters add it up.
    s->host_bytes = after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED];
  }
  s->table->info(s->state, &s->info);
  status = check_info(s);
  if (status) s->table->close(s->state);
  return status;
}

brim_status brim_source_open(const brim_registry *registry, const brim_component *component,
                             const char *path, const char *split, uint64_t seed,
                             brim_source **out) {
  brim_source *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory opening a source");
  if (!split) split = brim_component_string(component, "split", "train");
  brim_source_how how = {.path = path, .split = split, .seed = seed};
  brim_status status = open_source(registry, component, &how, s);
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
  brim_free(source);
}
