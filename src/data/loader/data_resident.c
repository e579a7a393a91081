// A whole data set in device memory: read once, by several threads, into staging buffers that are
// copied to the device while the next is read. What batches are made of it is up to the loader.
#include <stdlib.h>
#include <string.h>

#include "data/loader/data_loader_int.h"

enum {
  STAGES = 3,             // one is read, one copied, one about to be reused
  STAGE_BYTES = 8 << 20,  // large enough that a copy's start costs nothing
};

//---------------------------------- what fits ----------------------------------

uint64_t brim_resident_round(uint64_t bytes) {
  return (bytes + BRIM_RESIDENT_ALIGN - 1) / BRIM_RESIDENT_ALIGN * BRIM_RESIDENT_ALIGN;
}

// The table of the device; NULL with a detail where it has none. A device whose memory is the
// host's has nothing to gain, and another device's table would write to the wrong memory.
const brim_augment_table *brim_resident_table(const brim_registry *registry,
                                              const brim_device *device) {
  if (device->info.host_memory) {
    brim_fail(BRIM_EUNSUPPORTED, "%s works in host memory; keep the samples there",
              device->backend->name);
    return NULL;
  }
  const brim_augment_table *table =
      registry ? brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION) : NULL;
  if (!table) {
    brim_fail(BRIM_EUNSUPPORTED, "%s provides no %s", device->backend->name,
              BRIM_AUGMENT_EXTENSION);
    return NULL;
  }
  if (table->abi != BRIM_AUGMENT_ABI) {
    brim_fail(BRIM_EABI, "%s was built for ABI %u, but this brim has %u", BRIM_AUGMENT_EXTENSION,
              table->abi, BRIM_AUGMENT_ABI);
    return NULL;
  }
  return table;
}

static uint64_t set_bytes(const brim_source *source, uint64_t count) {
  uint64_t inputs, targets;
  if (__builtin_mul_overflow((uint64_t)source->input_bytes, count, &inputs) ||
      __builtin_mul_overflow((uint64_t)source->target_bytes, count, &targets) ||
      inputs > PTRDIFF_MAX / 2 || targets > PTRDIFF_MAX / 2) {
    return 0;
  }
  return brim_resident_round(inputs) + brim_resident_round(targets);
}

uint64_t brim_resident_bytes_with(const brim_augment_table *table, const brim_source *source,
                                  const brim_transforms *transforms) {
  brim_augment_program program;
  if (brim_resident_program(source, transforms, &program)) return 0;
  if (table->supports(&program)) return 0;
  uint64_t bytes = set_bytes(source, source->info.count);
  if (!bytes) brim_fail(BRIM_ELIMIT, "the samples do not fit in memory");
  return bytes;
}

uint64_t brim_resident_bytes(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_transforms *transforms) {
  const brim_augment_table *table = brim_resident_table(registry, device);
  return table ? brim_resident_bytes_with(table, source, transforms) : 0;
}

// Before the set or a loader over it is made; the sizes are the loader's own.
brim_status brim_resident_plan(const brim_registry *registry, const brim_device *device,
                               const brim_source *source, const brim_loader_options *options,
                               brim_plan *plan) {
  brim_source part = *source;
  if (options->limit && options->limit < part.info.count) part.info.count = options->limit;
  part.cache = NULL;  // what lies on the device is not kept besides
  uint64_t bytes = brim_resident_bytes(registry, device, &part, options->transforms);
  if (bytes == 0) return BRIM_EUNSUPPORTED;  // the detail says why
  brim_loader_options how = *options;
  how.resident = NULL;  // there may be none yet
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_DEVICE, BRIM_N_("resident dataset"), bytes));
  const brim_loader_maker maker = {.table =
                                       brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION)};
  return brim_loader_plan_with(&part, &how, &maker, plan);
}

//---------------------------------- reading it ----------------------------------

typedef struct stage {
  uint8_t *inputs, *targets;  // pinned
  brim_event *copied;
  bool used;
} stage;

typedef struct upload {
  brim_resident *set;
  brim_source *source;
  brim_pool *pool;
  stage stages[STAGES];
  int64_t rows;        // of a stage
  size_t input_bytes;  // of a sample that is read; 0: of a mapped set only the targets are
  // The piece that is being read.
  stage *now;
  uint64_t first;
  pthread_mutex_t lock;
  // Under the lock, as are the set's broken samples.
  brim_status status;
  char detail[BRIM_LOADER_DETAIL];
} upload;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "resident dataset: out of memory");
}

// One more broken sample, with what is wrong with it.
static brim_status add_broken_locked(brim_resident *set, uint64_t index, brim_status status) {
  if (set->broken_count == set->broken_room) {
    size_t room = set->broken_room ? 2 * set->broken_room : 16;
    brim_resident_broken *more = brim_realloc(set->broken, room * sizeof *more);
    if (!more) return no_memory();
    set->broken = more;
    set->broken_room = room;
  }
  char *detail = brim_strdup(brim_status_detail());
  if (!detail) return no_memory();
  set->broken[set->broken_count++] =
      (brim_resident_broken){.index = index, .status = status, .detail = detail};
  return BRIM_OK;
}

static void read_range(void *ctx, int64_t begin, int64_t end, int thread) {
  upload *u = ctx;
  brim_source *s = u->source;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    uint64_t index = u->first + (uint64_t)i;
    uint8_t *target = s->target_bytes ? u->now->targets + (size_t)i * s->target_bytes : NULL;
    uint8_t *input = u->input_bytes ? u->now->inputs + (size_t)i * u->input_bytes : NULL;
    brim_status status = input ? brim_source_read(s, index, 1, input, target, NULL, NULL)
                               : brim_source_target(s, index, target);
    if (!status) continue;
    if (input) memset(input, 0, u->input_bytes);
    if (target) memset(target, 0, s->target_bytes);
    pthread_mutex_lock(&u->lock);
    // Memory that is short is no fault of the sample's.
    if (status != BRIM_ENOMEM) status = add_broken_locked(u->set, index, status);
    if (status && !u->status) {
      u->status = status;
      snprintf(u->detail, sizeof u->detail, "%s", brim_status_detail());
    }
    pthread_mutex_unlock(&u->lock);
    if (status) return;
  }
}

static brim_status upload_piece(upload *u, stage *to, uint64_t first, int64_t rows) {
  brim_device *device = u->set->device;
  size_t input = u->input_bytes, target = u->source->target_bytes;
  if (to->used) BRIM_TRY(brim_event_sync(device, to->copied));
  u->now = to;
  u->first = first;
  brim_pool_run(u->pool, rows, read_range, u);
  if (u->status) {
    brim_status_set_detail(u->detail);
    return u->status;
  }
  if (input) {
    BRIM_TRY(brim_device_upload(device, (uint8_t *)u->set->memory + (size_t)first * input,
                                to->inputs, (size_t)rows * input));
  }
  if (target) {
    BRIM_TRY(brim_device_upload(device, (uint8_t *)u->set->targets + (size_t)first * target,
                                to->targets, (size_t)rows * target));
  }
  BRIM_TRY(brim_event_record_copy(device, to->copied));
  to->used = true;
  return BRIM_OK;
}

static brim_status alloc_stage(upload *u, stage *s) {
  brim_device *device = u->set->device;
  void *inputs = NULL, *targets = NULL;
  if (u->input_bytes) {
    BRIM_TRY(
        brim_device_alloc(device, BRIM_BUFFER_HOST, (size_t)u->rows * u->input_bytes, &inputs));
    s->inputs = inputs;
  }
  if (u->source->target_bytes) {
    BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_HOST, (size_t)u->rows * u->source->target_bytes,
                               &targets));
    s->targets = targets;
  }
  return brim_event_create(device, &s->copied);
}

static void free_stage(brim_device *device, stage *s) {
  if (s->used) (void)brim_event_sync(device, s->copied);
  if (s->copied) brim_event_destroy(device, s->copied);
  brim_device_free(device, BRIM_BUFFER_HOST, s->targets);
  brim_device_free(device, BRIM_BUFFER_HOST, s->inputs);
}

static brim_status read_all(upload *u) {
  uint64_t count = u->set->count, rows = (uint64_t)u->rows;
  size_t stages = (count - 1) / rows + 1 < STAGES ? (size_t)((count - 1) / rows + 1) : STAGES;
  for (size_t i = 0; i < stages; i++) BRIM_TRY(alloc_stage(u, &u->stages[i]));
  size_t turn = 0;
  for (uint64_t first = 0; first < count; first += rows, turn = (turn + 1) % stages) {
    uint64_t n = count - first < rows ? count - first : rows;
    BRIM_TRY(upload_piece(u, &u->stages[turn], first, (int64_t)n));
  }
  for (size_t i = 0; i < stages; i++) {
    if (u->stages[i].used) BRIM_TRY(brim_event_sync(u->set->device, u->stages[i].copied));
  }
  return BRIM_OK;
}

static int by_index(const void *a, const void *b) {
  uint64_t x = ((const brim_resident_broken *)a)->index;
  uint64_t y = ((const brim_resident_broken *)b)->index;
  return x < y ? -1 : x > y;
}

// Whichever thread met them first, they stand in order; where nothing else is there, there is no
// set.
static brim_status sort_broken(brim_resident *set) {
  if (!set->broken_count) return BRIM_OK;
  qsort(set->broken, set->broken_count, sizeof *set->broken, by_index);
  if (set->broken_count < set->count) return BRIM_OK;
  return brim_fail(set->broken[0].status, "none of the %llu samples can be read; %s",
                   (unsigned long long)set->count, set->broken[0].detail);
}

const brim_resident_broken *brim_resident_broken_at(const brim_resident *resident, uint64_t index) {
  const brim_resident_broken key = {.index = index};
  if (!resident->broken_count) return NULL;
  return bsearch(&key, resident->broken, resident->broken_count, sizeof key, by_index);
}

brim_status brim_resident_fill(brim_resident *set, brim_source *source, int threads) {
  upload u = {.set = set, .source = source};
  u.input_bytes = set->locked ? 0 : source->input_bytes;
  if (u.input_bytes + source->target_bytes == 0) return BRIM_OK;
  int64_t rows = (int64_t)(STAGE_BYTES / (u.input_bytes ? u.input_bytes : source->target_bytes));
  u.rows = rows < 1 ? 1 : (uint64_t)rows > set->count ? (int64_t)set->count : rows;
  BRIM_TRY(brim_pool_create(threads < 1 ? 1 : threads, &u.pool));
  pthread_mutex_init(&u.lock, NULL);  // default attributes: cannot fail on Linux
  brim_status status = read_all(&u);
  if (!status) status = sort_broken(set);
  // Freeing waits for copies and may say something of its own.
  char detail[BRIM_LOADER_DETAIL];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  for (size_t i = 0; i < STAGES; i++) free_stage(set->device, &u.stages[i]);
  pthread_mutex_destroy(&u.lock);
  brim_pool_destroy(u.pool);
  if (status) brim_status_set_detail(detail);
  return status;
}

//---------------------------------- create, destroy ----------------------------------

brim_status brim_resident_create_with(const brim_augment_table *table, brim_device *device,
                                      brim_source *source, uint64_t limit, int threads,
                                      brim_resident **out) {
  uint64_t count = limit && limit < source->info.count ? limit : source->info.count;
  uint64_t bytes = source->info.varies ? 0 : set_bytes(source, count);
  if (!bytes) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot keep these samples on the device: %s",
                     source->info.varies ? "their sizes differ" : "they are too many");
  }
  brim_resident *set = brim_calloc(1, sizeof *set);
  if (!set) return no_memory();
  *set = (brim_resident){.device = device,
                         .table = table,
                         .count = count,
                         .input_bytes = source->input_bytes,
                         .target_bytes = source->target_bytes};
  // One block: inputs, then targets.
  brim_status status = brim_device_alloc(device, BRIM_BUFFER_DEVICE, (size_t)bytes, &set->memory);
  if (status) {
    brim_fail_context(status, "resident dataset of %llu bytes", (unsigned long long)bytes);
  } else {
    size_t inputs = (size_t)brim_resident_round(count * source->input_bytes);
    set->inputs = set->memory;
    if (source->target_bytes) set->targets = (uint8_t *)set->memory + inputs;
    status = brim_resident_fill(set, source, threads);
  }
  if (status) {
    brim_resident_destroy(set);
    return status;
  }
  *out = set;
  return BRIM_OK;
}

brim_status brim_resident_create(const brim_registry *registry, brim_device *device,
                                 brim_source *source, uint64_t limit, int threads,
                                 brim_resident **out) {
  const brim_augment_table *table = brim_resident_table(registry, device);
  if (!table) return BRIM_EUNSUPPORTED;
  return brim_resident_create_with(table, device, source, limit, threads, out);
}

void brim_resident_destroy(brim_resident *resident) {
  if (!resident) return;
  if (resident->locked) resident->table->unlock(resident->locked);
  brim_device_free(resident->device, BRIM_BUFFER_DEVICE, resident->memory);
  for (size_t i = 0; i < resident->broken_count; i++) brim_free(resident->broken[i].detail);
  brim_free(resident->broken);
  brim_free(resident);
}
