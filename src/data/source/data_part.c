// Parts of a source: a share of a fixed random order, or the samples of an index file. Parts lie on
// one another; a share costs no memory, an index file 4 bytes a sample (8 above 2^32 samples).
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "data/source/data_source_int.h"
#include "hd/hd_shuffle.h"

// The order of parts must not be that of an epoch of the same seed.
static const uint64_t part_epoch = UINT64_MAX;

struct brim_source_part {
  brim_source_part *below;  // what its numbers are numbers of; NULL = the table's samples
  // One of the two, or neither.
  uint32_t *small;
  uint64_t *large;
  // With neither: positions from `first` on of this order.
  uint64_t first;
  brim_shuffle order;
};

uint64_t brim_source_part_at(const brim_source_part *part, uint64_t index) {
  for (; part; part = part->below) {
    if (part->small) {
      index = part->small[index];
    } else if (part->large) {
      index = part->large[index];
    } else {
      index = brim_shuffle_at(&part->order, part->first + index);
    }
  }
  return index;
}

void brim_source_part_free(brim_source_part *part) {
  while (part) {
    brim_source_part *below = part->below;
    brim_free(part->small);
    brim_free(part->large);
    brim_free(part);
    part = below;
  }
}

static brim_status check_no_cache(const brim_source *source) {
  if (!source->cache) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "select a part before caching the samples");
}

brim_status brim_source_take(brim_source *source, double from, double to, uint64_t seed) {
  BRIM_TRY(check_no_cache(source));
  // Written so that a NaN is refused too.
  if (!(from >= 0 && from < to && to <= 1)) {
    return brim_fail(BRIM_EINVAL, "part (%g, %g): it must be two shares of 1, the first smaller",
                     from, to);
  }
  uint64_t count = source->info.count;
  // Rounded the same way wherever a share begins or ends, so that neighbours touch.
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

// The class with the largest key on top, of equal ones the first.
typedef struct heap {
  double *key;    // of every class
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

static void order(heap *h) {
  for (int64_t i = h->count / 2; i > 0; i--) sink(h, i - 1);
}

// The ones given to small classes come from the largest.
static void take_back(heap *h, int64_t classes, uint64_t excess, uint64_t *want) {
  for (int64_t c = 0; c < classes; c++) {
    h->key[c] = (double)want[c];
    h->item[h->count++] = c;
  }
  order(h);
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
  order(h);
  for (; missing > 0 && h->count > 0; missing--) {
    int64_t next = h->item[0];
    want[next]++;
    h->key[next] -= 1;
    if (want[next] == have[next]) h->item[0] = h->item[--h->count];
    sink(h, 0);
  }
}

// How many of each class: shares in proportion, rounded down, one at the least while there is room,
// and what is left to those whose share lost most. There may be as many classes as samples: no step
// for one sample may look at all of them.
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
    have[source->label(source->state, brim_source_part_at(source->part, i))]++;
  }
  BRIM_TRY(share_out(have, classes, count, limit, want));
  bool large = count > UINT32_MAX;
  size_t bytes = (size_t)limit * (large ? sizeof(uint64_t) : sizeof(uint32_t));
  brim_source_part *part = brim_calloc(1, sizeof *part);
  void *table = part ? brim_alloc_tagged(bytes, BRIM_MEM_PLANNED) : NULL;
  if (!table) {
    brim_free(part);
    return limit_memory();
  }
  uint64_t n = 0;
  for (uint64_t i = 0; i < count && n < limit; i++) {
    int64_t label = source->label(source->state, brim_source_part_at(source->part, i));
    if (want[label] == 0) continue;
    want[label]--;
    if (large) {
      ((uint64_t *)table)[n++] = i;
    } else {
      ((uint32_t *)table)[n++] = (uint32_t)i;
    }
  }
  if (large) {
    part->large = table;
  } else {
    part->small = table;
  }
  part->below = source->part;
  source->part = part;
  source->info.count = n;
  source->host_bytes += bytes;
  return BRIM_OK;
}

// Positions from 0 on of a fixed random order: every part of the set has its share.
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
  if (!source->label || classes <= 0) return spread(source, limit, seed);
  uint64_t *have = brim_calloc((size_t)classes, sizeof *have);
  uint64_t *want = brim_calloc((size_t)classes, sizeof *want);
  brim_status status = have && want ? pick(source, limit, have, want) : limit_memory();
  brim_free(have);
  brim_free(want);
  return status;
}

//---------------------------------- index files ----------------------------------

// A walk over the numbers of the text.
typedef struct index_reader {
  const char *path, *at;
  int line;  // of the number last read
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

// Numbers in the text, each checked against `count` and against those before it.
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

static brim_status fill_table(brim_source *source, const char *path, const char *text,
                              uint64_t total) {
  bool large = source->info.count > UINT32_MAX;
  size_t bytes = (size_t)total * (large ? sizeof(uint64_t) : sizeof(uint32_t));
  brim_source_part *part = brim_calloc(1, sizeof *part);
  void *table = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (!part || !table) {
    brim_free(part);
    brim_free(table);
    return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  }
  if (large) {
    part->large = table;
  } else {
    part->small = table;
  }
  index_reader r = {.path = path, .at = text, .next_line = 1};
  uint64_t number = 0;
  bool found = true;
  for (uint64_t i = 0; i < total; i++) {
    (void)next_number(&r, &number, &found);  // counted before: it cannot fail
    if (large) {
      part->large[i] = number;
    } else {
      part->small[i] = (uint32_t)number;
    }
  }
  part->below = source->part;
  source->part = part;
  source->info.count = total;
  source->host_bytes += bytes;
  return BRIM_OK;
}

brim_status brim_source_part_file(brim_source *source, const char *path) {
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
  if (!status) status = fill_table(source, path, text, total);
  brim_free(text);
  return status;
}
