// Sources: opening (built-in ones by a table, plug-ins by name; the info is checked here so that the
// loader need not), choosing a part of the samples, keeping samples in memory, reading through both,
// and what several sources together say: whether two sets can serve one network, and which files and
// datasets no split reads.
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base_text.h"
#include "data/data_int.h"
#include "hd/hd_shuffle.h"

//---------------------------------- parts ----------------------------------

// The order of parts must not be that of an epoch of the same seed.
static const uint64_t part_epoch = UINT64_MAX;

struct brim_source_part {
  // The part whose samples this part's numbers refer to; NULL = the source.
  brim_source_part *below;
  // At most one of the two is set.
  uint32_t *index32;
  uint64_t *index64;
  // With neither table: positions of this order, from `first` on.
  uint64_t first;
  brim_shuffle order;
};

uint64_t brim_source_part_at(const brim_source_part *part, uint64_t index) {
  for (; part; part = part->below) {
    if (part->index32) {
      index = part->index32[index];
    } else if (part->index64) {
      index = part->index64[index];
    } else {
      index = brim_shuffle_at(&part->order, part->first + index);
    }
  }
  return index;
}

void brim_source_part_free(brim_source_part *part) {
  while (part) {
    brim_source_part *below = part->below;
    brim_free(part->index32);
    brim_free(part->index64);
    brim_free(part);
    part = below;
  }
}

// A part with a table of `count` numbers of the samples in use, 32 bits each where they suffice. NULL:
// out of memory.
static brim_source_part *new_table(const brim_source *source, uint64_t count) {
  brim_source_part *part = brim_calloc(1, sizeof *part);
  if (!part) return NULL;
  if (source->info.count > UINT32_MAX) {
    part->index64 = brim_alloc_tagged((size_t)count * sizeof *part->index64, BRIM_MEM_PLANNED);
  } else {
    part->index32 = brim_alloc_tagged((size_t)count * sizeof *part->index32, BRIM_MEM_PLANNED);
  }
  if (part->index64 || part->index32) return part;
  brim_free(part);
  return NULL;
}

static void set_number(brim_source_part *part, uint64_t i, uint64_t number) {
  if (part->index64) {
    part->index64[i] = number;
  } else {
    part->index32[i] = (uint32_t)number;
  }
}

// The `count` numbers of the table become the samples in use.
static void use_table(brim_source *source, brim_source_part *part, uint64_t count) {
  part->below = source->part;
  source->part = part;
  source->info.count = count;
  source->host_bytes += count * (part->index64 ? sizeof *part->index64 : sizeof *part->index32);
}

static brim_status check_no_cache(const brim_source *source) {
  if (!source->cache) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "select a part before caching the samples");
}

brim_status brim_source_take(brim_source *source, double from, double to, uint64_t seed) {
  BRIM_TRY(check_no_cache(source));
  // A NaN is refused too.
  if (!(from >= 0 && from < to && to <= 1)) {
    return brim_fail(BRIM_EINVAL, "part (%g, %g): it must be two shares of 1, the first smaller",
                     from, to);
  }
  uint64_t count = source->info.count;
  // Round the same way where a share begins or ends, so that neighbouring shares touch.
  uint64_t begin = (uint64_t)llround(from * (double)count);
  uint64_t end = (uint64_t)llround(to * (double)count);
  if (to >= 1 || end > count) end = count;
  if (begin >= end) {
    return brim_fail(BRIM_EINVAL, "part (%g, %g) of %llu samples is empty", from, to,
                     (unsigned long long)count);
  }
  brim_source_part *part = brim_calloc(1, sizeof *part);
  if (!part) return brim_fail(BRIM_ENOMEM, "part of a source: out of memory");
  part->below = source->part;
  part->first = begin;
  part->order = brim_shuffle_make(seed, part_epoch, count);
  source->part = part;
  source->info.count = end - begin;
  return BRIM_OK;
}

//---------------------------------- a limit ----------------------------------

static brim_status limit_memory(void) {
  return brim_fail(BRIM_ENOMEM, "data.limit: out of memory");
}

// A heap with the class of the largest key on top; among equal keys the lowest class.
typedef struct heap {
  double *key;    // per class
  int64_t *item;  // classes
  int64_t count;
} heap;

static bool above(const heap *h, int64_t a, int64_t b) {
  return h->key[a] > h->key[b] || (h->key[a] == h->key[b] && a < b);
}

static void sink(heap *h, int64_t at) {
  for (int64_t child = 2 * at + 1; child < h->count; child = 2 * at + 1) {
    if (child + 1 < h->count && above(h, h->item[child + 1], h->item[child])) child++;
    if (!above(h, h->item[child], h->item[at])) return;
    int64_t held = h->item[at];
    h->item[at] = h->item[child];
    h->item[child] = held;
    at = child;
  }
}

static void heapify(heap *h) {
  for (int64_t i = h->count / 2; i > 0; i--) sink(h, i - 1);
}

// Takes the samples given to small classes back from the largest ones.
static void take_back(heap *h, int64_t classes, uint64_t excess, uint64_t *want) {
  for (int64_t c = 0; c < classes; c++) {
    h->key[c] = (double)want[c];
    h->item[h->count++] = c;
  }
  heapify(h);
  for (; excess > 0; excess--) {
    int64_t most = h->item[0];
    want[most]--;
    h->key[most] -= 1;
    sink(h, 0);
  }
}

static void hand_out(heap *h, const uint64_t *have, int64_t classes, uint64_t missing,
                     uint64_t *want) {
  for (int64_t c = 0; c < classes; c++) {
    if (want[c] < have[c]) h->item[h->count++] = c;
  }
  heapify(h);
  for (; missing > 0 && h->count > 0; missing--) {
    int64_t next = h->item[0];
    want[next]++;
    h->key[next] -= 1;
    if (want[next] == have[next]) h->item[0] = h->item[--h->count];
    sink(h, 0);
  }
}

// Chooses how many samples of each class to keep: proportional shares rounded down, at least one
// while there is room, and the remainder to the classes that lost most. There may be as many
// classes as samples, so no step per sample may scan all classes.
static brim_status share_out(const uint64_t *have, int64_t classes, uint64_t count, uint64_t limit,
                             uint64_t *want) {
  heap h = {.key = brim_calloc((size_t)classes, sizeof *h.key),
            .item = brim_calloc((size_t)classes, sizeof *h.item)};
  brim_status status = h.key && h.item ? BRIM_OK : limit_memory();
  uint64_t given = 0;
  int64_t present = 0;
  for (int64_t c = 0; c < classes; c++) present += have[c] > 0;
  bool one_each = (uint64_t)present <= limit;
  for (int64_t c = 0; c < classes && !status; c++) {
    double share = (double)have[c] * ((double)limit / (double)count);
    want[c] = (uint64_t)share;
    if (want[c] > have[c]) want[c] = have[c];
    h.key[c] = share - (double)want[c];  // what rounding lost
    if (want[c] == 0 && have[c] > 0 && one_each) want[c] = 1;
    given += want[c];
  }
  if (!status && given > limit) take_back(&h, classes, given - limit, want);
  if (!status && given < limit) hand_out(&h, have, classes, limit - given, want);
  brim_free(h.key);
  brim_free(h.item);
  return status;
}

static brim_status pick(brim_source *source, uint64_t limit, uint64_t *have, uint64_t *want) {
  const int64_t classes = source->info.classes;
  const uint64_t count = source->info.count;
  for (uint64_t i = 0; i < count; i++) {
    have[source->builtin->label(source->state, brim_source_part_at(source->part, i))]++;
  }
  BRIM_TRY(share_out(have, classes, count, limit, want));
  brim_source_part *part = new_table(source, limit);
  if (!part) return limit_memory();
  uint64_t n = 0;
  for (uint64_t i = 0; i < count && n < limit; i++) {
    int64_t label = source->builtin->label(source->state, brim_source_part_at(source->part, i));
    if (want[label] == 0) continue;
    want[label]--;
    set_number(part, n++, i);
  }
  use_table(source, part, n);
  return BRIM_OK;
}

// The first positions of a fixed random order, so that every region of the set has its share.
static brim_status spread(brim_source *source, uint64_t limit, uint64_t seed) {
  brim_source_part *part = brim_calloc(1, sizeof *part);
  if (!part) return limit_memory();
  part->below = source->part;
  part->order = brim_shuffle_make(seed, part_epoch, source->info.count);
  source->part = part;
  source->info.count = limit;
  return BRIM_OK;
}

brim_status brim_source_limit(brim_source *source, uint64_t limit, uint64_t seed) {
  BRIM_TRY(check_no_cache(source));
  int64_t classes = source->info.classes;
  if (limit == 0 || limit >= source->info.count) return BRIM_OK;
  if (!source->builtin || !source->builtin->label || classes <= 0)
    return spread(source, limit, seed);
  uint64_t *have = brim_calloc((size_t)classes, sizeof *have);
  uint64_t *want = brim_calloc((size_t)classes, sizeof *want);
  brim_status status = have && want ? pick(source, limit, have, want) : limit_memory();
  brim_free(have);
  brim_free(want);
  return status;
}

//---------------------------------- index files ----------------------------------

// Reads the numbers of the text one by one.
typedef struct index_reader {
  const char *path, *at;
  int line;  // line of the number last read
  int next_line;
} index_reader;

// *found false at the end.
static brim_status next_number(index_reader *r, uint64_t *number, bool *found) {
  *found = false;
  while (*r->at && !*found) {
    const char *p = r->at;
    r->line = r->next_line;
    while (*p == ' ' || *p == '\t') p++;
    if (isdigit((unsigned char)*p)) {
      *found = true;
      *number = 0;
      for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(*number, 10u, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*p - '0'), number)) {
          return brim_fail_at(BRIM_EPARSE, r->path, r->line, 0, "the number is too large");
        }
      }
    }
    while (*p == ' ' || *p == '\t' || *p == '\r') p++;
    if (*p == '#') p += strcspn(p, "\n");
    if (*p && *p != '\n') {
      return brim_fail_at(BRIM_EPARSE, r->path, r->line, 0,
                          "expected one whole number per line (# begins a comment)");
    }
    if (*p) p++;
    r->next_line++;
    r->at = p;
  }
  return BRIM_OK;
}

// Counts the numbers in the text and checks each against `count` and against those before it.
static brim_status count_numbers(const char *path, const char *text, uint64_t count,
                                 uint64_t *total) {
  uint8_t *seen = brim_calloc(count / 8 + 1, 1);
  if (!seen) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  index_reader r = {.path = path, .at = text, .next_line = 1};
  brim_status status = BRIM_OK;
  uint64_t number = 0;
  *total = 0;
  for (bool found = true; !status;) {
    status = next_number(&r, &number, &found);
    if (status || !found) break;
    if (number >= count) {
      status =
          brim_fail_at(BRIM_EPARSE, path, r.line, 0, "no sample %llu; the source has 0 to %llu",
                       (unsigned long long)number, (unsigned long long)(count - 1));
    } else if (seen[number / 8] >> (number % 8) & 1) {
      status = brim_fail_at(BRIM_EPARSE, path, r.line, 0, "sample %llu appears twice in the file",
                            (unsigned long long)number);
    } else {
      seen[number / 8] |= (uint8_t)(1u << (number % 8));
      (*total)++;
    }
  }
  brim_free(seen);
  if (!status && *total == 0) status = brim_fail(BRIM_EPARSE, "%s: holds no number", path);
  return status;
}

// Keeps only the samples listed in a text file, in its order: one whole number a line; # begins a
// comment. A number that is repeated or too large is refused.
static brim_status take_file(brim_source *source, const char *path) {
  BRIM_TRY(check_no_cache(source));
  char *text;
  size_t size;
  uint64_t total = 0;
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  brim_status status = BRIM_OK;
  if (strlen(text) != size) {
    status = brim_fail(BRIM_EPARSE, "%s: not a text file: a zero byte at offset %zu", path,
                       strlen(text));
  }
  if (!status) status = count_numbers(path, text, source->info.count, &total);
  brim_source_part *part = status ? NULL : new_table(source, total);
  if (!status && !part) status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  index_reader r = {.path = path, .at = text, .next_line = 1};
  for (uint64_t i = 0; i < total && !status; i++) {
    uint64_t number = 0;
    bool found;
    (void)next_number(&r, &number, &found);  // cannot fail: count_numbers read the same text
    set_number(part, i, number);
  }
  if (!status) use_table(source, part, total);
  brim_free(text);
  return status;
}

//---------------------------------- samples kept in memory ----------------------------------

enum { EMPTY, FILLING, READY };

struct brim_source_cache {
  uint8_t *block;          // count x (input, target)
  _Atomic uint8_t *state;  // count; behind the samples in the same block
};

static size_t sample_bytes(const brim_source *s) { return s->input_bytes + s->target_bytes; }

// UINT64_MAX where 64 bits cannot hold it.
uint64_t brim_source_cache_bytes(const brim_source *source) {
  uint64_t each = (uint64_t)source->input_bytes + source->target_bytes + 1, all;
  return __builtin_mul_overflow(each, source->info.count, &all) ? UINT64_MAX : all;
}

brim_status brim_source_keep(brim_source *source) {
  if (source->cache) return BRIM_OK;
  if (source->info.varies) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "images of different sizes cannot be cached; convert them to one size first "
                     "(brim data convert)");
  }
  uint64_t bytes = brim_source_cache_bytes(source);
  if (bytes > PTRDIFF_MAX) {
    return brim_fail(BRIM_ELIMIT, "the samples do not fit in memory");
  }
  brim_source_cache *cache = brim_calloc(1, sizeof *cache);
  uint8_t *block = brim_alloc_tagged((size_t)bytes, BRIM_MEM_PLANNED);
  if (!cache || !block) {
    brim_free(cache);
    brim_free(block);
    return brim_fail(BRIM_ENOMEM, "dataset cache of %llu bytes: out of memory",
                     (unsigned long long)bytes);
  }
  cache->block = block;
  cache->state = (_Atomic uint8_t *)(block + (size_t)source->info.count * sample_bytes(source));
  for (uint64_t i = 0; i < source->info.count; i++) atomic_init(&cache->state[i], EMPTY);
  source->cache = cache;
  return BRIM_OK;
}

void brim_source_cache_free(brim_source_cache *cache) {
  if (!cache) return;
  brim_free(cache->block);
  brim_free(cache);
}

// Copies the sample from memory; false if it is not there yet.
static bool cache_get(const brim_source *source, uint64_t index, void *input, void *target) {
  const brim_source_cache *c = source->cache;
  if (atomic_load_explicit(&c->state[index], memory_order_acquire) != READY) return false;
  const uint8_t *from = c->block + (size_t)index * sample_bytes(source);
  memcpy(input, from, source->input_bytes);
  if (source->target_bytes) memcpy(target, from + source->input_bytes, source->target_bytes);
  return true;
}

// Puts a sample that was read. Several threads may try at once: one of them does it.
static void cache_put(const brim_source *source, uint64_t index, const void *input,
                      const void *target) {
  const brim_source_cache *c = source->cache;
  uint8_t empty = EMPTY;
  // Several threads may have read the sample at once; only one of them writes it here.
  if (!atomic_compare_exchange_strong_explicit(&c->state[index], &empty, FILLING,
                                               memory_order_relaxed, memory_order_relaxed)) {
    return;
  }
  uint8_t *to = c->block + (size_t)index * sample_bytes(source);
  memcpy(to, input, source->input_bytes);
  if (source->target_bytes) memcpy(to + source->input_bytes, target, source->target_bytes);
  atomic_store_explicit(&c->state[index], READY, memory_order_release);
}

//---------------------------------- finding a source ----------------------------------

static const struct {
  const char *name;
  const brim_source_builtin *source;
} builtin[] = {
    {"idx", &brim_builtin_idx},
    {"mnist", &brim_builtin_idx},
    {"cifar10", &brim_builtin_cifar10},
    {"cifar100", &brim_builtin_cifar100},
    {"numpy", &brim_builtin_numpy},
    {"stl10", &brim_builtin_stl10},
    {"hdf5", &brim_builtin_hdf5},
    {"folder", &brim_builtin_folder},
    {"synthetic", &brim_builtin_synthetic},
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
                              const brim_source_builtin **source, const brim_source_table **table) {
  const char *names[BUILTIN_COUNT + 1] = {0};
  *source = NULL;
  if (brim_str_starts(name, "plugin:")) {
    return find_plugin(registry, name + strlen("plugin:"), table);
  }
  for (size_t i = 0; i < BUILTIN_COUNT; i++) {
    names[i] = builtin[i].name;
    if (strcmp(builtin[i].name, name) == 0) {
      *source = builtin[i].source;
      *table = builtin[i].source->table;
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

// Samples of different sizes must be images, and the source must be able to decode them.
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

// Checks the info and derives the sizes of a sample.
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

// Arguments that every source takes besides its own.
typedef struct common_args {
  const brim_value *part;
  const brim_value *indices;
} common_args;

// Splits off the common arguments; the source's own parser sees the rest. Free *own with brim_free.
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
    BRIM_TRY(take_file(s, indices->string));
  }
  if (!part || part->kind == BRIM_VALUE_NULL) return BRIM_OK;
  if (part->kind != BRIM_VALUE_LIST || part->count != 2 || !is_number(&part->items[0]) ||
      !is_number(&part->items[1])) {
    return brim_fail(BRIM_EINVAL, "part must be two shares of 1, as part=(0, 0.8)");
  }
  return brim_source_take(s, part->items[0].number, part->items[1].number, seed);
}

// A plug-in's open may fail without a detail; then the status becomes the message.
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
    s->builtin = row;
    s->host_bytes = row->host_bytes ? row->host_bytes(s->state) : 0;
    s->binary_targets = row->binary_targets && row->binary_targets(s->state);
    s->val_is_test = strcmp(how->split, "val") == 0 &&
                     (row->no_val || (row->val_is_test && row->val_is_test(s->state)));
  } else if (after.live_bytes[BRIM_MEM_PLANNED] > before.live_bytes[BRIM_MEM_PLANNED]) {
    // A plug-in marks its allocations as planned; the counters tell how much it allocated.
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
    // The component came from a config: say where.
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
  if (source->builtin && source->builtin->describe_target) {
    uint64_t number = brim_source_part_at(source->part, index);
    source->builtin->describe_target(source->state, number, value, text, size);
  }
  if (!text[0]) brim_source_describe(source, index, text, size);
}

// Makes sure that a failure has a message and names the sample.
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
  if (!source->cache || !cache_get(source, index, input, target)) {
    uint64_t number = brim_source_part_at(source->part, index);
    brim_status_clear();
    brim_status status = info->varies ? read_varying(source, number, scale, input, target, size)
                                      : source->table->read(source->state, number, input, target);
    if (status) return name_sample(source, index, status);
    if (source->cache) cache_put(source, index, input, target);
  }
  if (height) *height = size[0];
  if (width) *width = size[1];
  return BRIM_OK;
}

brim_status brim_source_stream(brim_source *source, uint64_t index, uint64_t next, void *input,
                               void *target) {
  // A cache reads back what was just written, so do not write past the CPU caches.
  if (!source->builtin || !source->builtin->stream || source->cache) {
    return brim_source_read(source, index, 1, input, target, NULL, NULL);
  }
  BRIM_TRY(check_index(source, index));
  brim_status_clear();
  if (next >= source->info.count) next = index;
  uint64_t number = brim_source_part_at(source->part, index);
  next = brim_source_part_at(source->part, next);
  brim_status status = source->builtin->stream(source->state, number, next, input, target);
  return status ? name_sample(source, index, status) : BRIM_OK;
}

bool brim_source_rows_of(const brim_source *source, brim_source_rows *out) {
  const brim_source_builtin *own = source->builtin;
  return own && own->rows && !source->info.varies && own->rows(source->state, out);
}

uint64_t brim_source_row(const brim_source *source, uint64_t index) {
  return brim_source_part_at(source->part, index);
}

brim_status brim_source_target(brim_source *source, uint64_t index, void *target) {
  BRIM_TRY(check_index(source, index));
  uint64_t number = brim_source_part_at(source->part, index);
  brim_status_clear();
  brim_status status = source->builtin->target(source->state, number, target);
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

//---------------------------------- two sets for one network ----------------------------------

enum { NAME_BYTES = 256, TEXT_BYTES = 160 };

brim_status brim_source_open_failed(brim_status status) {
  return status == BRIM_EIO || status == BRIM_EUNSUPPORTED ? BRIM_EINVAL : status;
}

// "set.h5:train/x" of "set.h5:train/x[0]": the set, not the sample.
static void name_set(const brim_source *source, char out[NAME_BYTES]) {
  brim_source_describe(source, 0, out, NAME_BYTES);
  char *bracket = strrchr(out, '[');
  if (bracket && bracket > out && out[strlen(out) - 1] == ']') *bracket = '\0';
}

static void shape_text(const brim_source_info *info, char out[TEXT_BYTES]) {
  size_t used = 0;
  for (int i = 0; i < info->rank && used < TEXT_BYTES; i++) {
    int n = snprintf(out + used, TEXT_BYTES - used, "%s%" PRId64, i ? ", " : "(", info->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used >= TEXT_BYTES) return;
  snprintf(out + used, TEXT_BYTES - used, ") %s",
           info->type == BRIM_SAMPLE_U8 ? "uint8" : "float32");
}

static void target_text(const brim_source_info *info, char out[TEXT_BYTES]) {
  if (info->classes > 0) {
    snprintf(out, TEXT_BYTES, brim_tr("labels of %lld classes"), (long long)info->classes);
  } else if (info->target_dim > 0) {
    snprintf(out, TEXT_BYTES, brim_tr("numbers, %lld a sample"), (long long)info->target_dim);
  } else {
    snprintf(out, TEXT_BYTES, "%s", brim_tr("none"));
  }
}

static bool same_shape(const brim_source_info *a, const brim_source_info *b, bool any_size) {
  bool same = a->rank == b->rank && a->type == b->type;
  // height and width are then the transforms' concern; channels must agree
  for (int i = any_size && a->rank == 3 ? 2 : 0; same && i < a->rank; i++) {
    same = a->dim[i] == b->dim[i];
  }
  return same;
}

brim_status brim_source_match(const brim_source *train, const brim_source_info *a,
                              const brim_source *eval, const brim_source_info *b, bool any_size,
                              const char *advice) {
  char one[NAME_BYTES], other[NAME_BYTES], left[TEXT_BYTES], right[TEXT_BYTES];
  name_set(train, one);
  name_set(eval, other);
  if (!same_shape(a, b, any_size)) {
    shape_text(a, left);
    shape_text(b, right);
    return brim_fail(BRIM_EINVAL,
                     "the training and the evaluation set have samples of different shape or type: "
                     "%s has %s, %s has %s%s",
                     one, left, other, right, advice);
  }
  if (a->target_dim != b->target_dim || (a->classes > 0) != (b->classes > 0)) {
    target_text(a, left);
    target_text(b, right);
    return brim_fail(
        BRIM_EINVAL,
        "the training and the evaluation set have different targets: %s has %s, %s has %s", one,
        left, other, right);
  }
  if (b->classes > a->classes) {
    const char *kind = train->table->name;
    bool takes_classes =
        strcmp(kind, "hdf5") == 0 || strcmp(kind, "idx") == 0 || strcmp(kind, "numpy") == 0;
    snprintf(left, sizeof left, brim_tr("; if that is intended, set dataset: %s(classes=%lld)"),
             kind, (long long)b->classes);
    return brim_fail(BRIM_EINVAL,
                     "the evaluation set has labels up to %" PRId64
                     ", the training set only up to %" PRId64 ": %s and %s%s",
                     b->classes - 1, a->classes - 1, other, one, takes_classes ? left : "");
  }
  // Text labels of two sets that were opened separately may be numbered differently.
  const char *const *ours = brim_source_text_classes(train);
  const char *const *theirs = brim_source_text_classes(eval);
  // Folders number their classes by name, like text labels. Other numbers are the writer's choice.
  const brim_source *numbered = ours ? eval : train;
  if (a->classes > 0 && !ours != !theirs && strcmp(numbered->table->name, "folder") != 0) {
    brim_log_warn("data",
                  "%s has classes by name and %s by number: the numbers are taken for places in "
                  "the sorted names, "
                  "from 0",
                  ours ? one : other, ours ? other : one);
  }
  for (int64_t i = 0; ours && theirs && i < b->classes; i++) {
    if (strcmp(ours[i], theirs[i]) == 0) continue;
    brim_text_plain(ours[i], left, sizeof left);
    brim_text_plain(theirs[i], right, sizeof right);
    return brim_fail(BRIM_EINVAL,
                     "the training and the evaluation set number their classes differently: class "
                     "%" PRId64
                     " is '%s' in %s and '%s' in %s; put both sets into one file or one folder",
                     i, left, one, right, other);
  }
  return BRIM_OK;
}

//---------------------------------- what splits read, and what they leave ----------------------------------

void brim_unused_add(brim_unused *unused, const char *name) {
  if (unused->count++ >= BRIM_UNUSED_NAMED) return;
  brim_str_printf(unused->names, "%s%s", unused->count > 1 ? ", " : "", name);
}

brim_status brim_source_unused(brim_source *const *sources, size_t source_count, brim_str *out,
                               brim_source_left *left) {
  brim_unused unused = {.names = out};
  void *states[BRIM_UNUSED_SOURCES];
  *left = (brim_source_left){0};
  if (source_count == 0 || source_count > BRIM_UNUSED_SOURCES) return BRIM_OK;
  for (size_t i = 0; i < source_count; i++) {
    if (sources[i]->table != sources[0]->table) return BRIM_OK;
    states[i] = sources[i]->state;
  }
  const brim_source_builtin *own = sources[0]->builtin;
  if (own && own->unused) BRIM_TRY(own->unused(states, source_count, &unused));
  *left = (brim_source_left){unused.count, unused.files, unused.bytes};
  if (unused.count > BRIM_UNUSED_NAMED) {
    brim_str_printf(out, brim_tr(" and %zu more"), unused.count - BRIM_UNUSED_NAMED);
  }
  return brim_str_status(out);
}

bool brim_source_files(brim_source *const *sources, size_t source_count, uint64_t *files,
                       uint64_t *bytes) {
  const char *paths[BRIM_UNUSED_SOURCES * BRIM_SOURCE_FILES];
  size_t count = 0;
  *files = *bytes = 0;
  if (source_count == 0 || source_count > BRIM_UNUSED_SOURCES) return false;
  for (size_t i = 0; i < source_count; i++) {
    const brim_source_builtin *own = sources[i]->builtin;
    if (!own || !own->files) return false;
    count += own->files(sources[i]->state, paths + count);
  }
  for (size_t i = 0; i < count; i++) {
    bool again = false;  // some sources read the test set as val
    for (size_t k = 0; k < i && !again; k++) again = strcmp(paths[i], paths[k]) == 0;
    struct stat st;
    if (again || stat(paths[i], &st) != 0) continue;
    *files += 1;
    *bytes += (uint64_t)st.st_size;
  }
  return true;
}
