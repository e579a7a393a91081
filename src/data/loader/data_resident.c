// A whole data set where the device can read it. A resident set is copied to device memory once:
// several threads read into staging buffers, which are copied while the next ones fill. A mapped set
// stays in the source's mapped file, whose pages are locked so that the device reads rows over the
// bus; only the targets are copied. A locked page cannot leave memory and keeps its content when
// another process truncates the file, so the device never meets a missing page. The loader makes
// batches of both (data_loader.c).
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/loader/data_loader_int.h"
#include "record/record_plan.h"

brim_status brim_resident_program(const brim_source *source, const brim_transforms *transforms,
                                  brim_augment_program *out) {
  if (source->info.varies) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "images of different sizes cannot be kept on the device; convert them to one "
                     "size first (brim data convert)");
  }
  if (transforms) {
    const brim_augment_program *program = brim_transforms_program(transforms);
    if (!program) {
      return brim_fail(BRIM_EUNSUPPORTED, "these transforms cannot run on the device");
    }
    *out = *program;
    return BRIM_OK;
  }
  *out = (brim_augment_program){
      .views = 1, .sample_bytes = source->input_bytes, .out_bytes = source->input_bytes};
  return BRIM_OK;
}

enum {
  ALIGN = 256,
  STAGES = 3,             // one being read into, one being copied, one about to be reused
  STAGE_BYTES = 8 << 20,  // large enough that a copy's start costs nothing
};

//---------------------------------- what fits ----------------------------------

static uint64_t round_up(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// The device's augment table; NULL with a detail if it has none. A device in host memory gains
// nothing from a copy, and the table of another device would write to the wrong memory.
static const brim_augment_table *device_table(const brim_registry *registry,
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
  return round_up(inputs) + round_up(targets);
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
  const brim_augment_table *table = device_table(registry, device);
  return table ? brim_resident_bytes_with(table, source, transforms) : 0;
}

brim_status brim_resident_plan(const brim_registry *registry, const brim_device *device,
                               const brim_source *source, const brim_loader_options *options,
                               brim_plan *plan) {
  brim_source part = *source;
  if (options->limit && options->limit < part.info.count) part.info.count = options->limit;
  part.cache = NULL;  // samples on the device are not cached on the host too
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
  size_t input_bytes;  // of a sample; 0 = mapped set, only targets are read
  // The piece being read.
  stage *now;
  uint64_t first;
  pthread_mutex_t lock;
  // Guarded by the lock, as are the set's broken samples.
  brim_status status;
  char detail[BRIM_LOADER_DETAIL];
} upload;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "resident dataset: out of memory");
}

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
    // Out of memory is not the sample's fault.
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

// Sorts broken samples by index, whatever thread met them first. Fails if no sample is left.
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

// Reads the samples (the targets alone, for a mapped set) into device memory.
static brim_status fill_set(brim_resident *set, brim_source *source, int threads) {
  upload u = {.set = set, .source = source};
  u.input_bytes = set->locked ? 0 : source->input_bytes;
  if (u.input_bytes + source->target_bytes == 0) return BRIM_OK;
  int64_t rows = (int64_t)(STAGE_BYTES / (u.input_bytes ? u.input_bytes : source->target_bytes));
  u.rows = rows < 1 ? 1 : (uint64_t)rows > set->count ? (int64_t)set->count : rows;
  BRIM_TRY(brim_pool_create(threads < 1 ? 1 : threads, &u.pool));
  pthread_mutex_init(&u.lock, NULL);  // default attributes: cannot fail on Linux
  brim_status status = read_all(&u);
  if (!status) status = sort_broken(set);
  // Freeing waits for copies, which may overwrite the detail.
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
    size_t inputs = (size_t)round_up(count * source->input_bytes);
    set->inputs = set->memory;
    if (source->target_bytes) set->targets = (uint8_t *)set->memory + inputs;
    status = fill_set(set, source, threads);
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
  const brim_augment_table *table = device_table(registry, device);
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

//---------------------------------- mapped sets ----------------------------------

// The whole pages that contain all rows.
typedef struct pages {
  const uint8_t *at;
  size_t bytes;
  uint64_t skip;  // offset of row 0
} pages;

static size_t page_bytes(void) {
  long page = sysconf(_SC_PAGESIZE);
  return page > 0 ? (size_t)page : 4096;
}

static brim_status find_pages(const brim_source *source, brim_source_rows *rows, pages *out) {
  if (!brim_source_rows_of(source, rows) || rows->stride < source->input_bytes) {
    return brim_fail(BRIM_EUNSUPPORTED, "the samples do not lie in one mapped file as they are");
  }
  uint64_t page = page_bytes(), all;
  out->skip = (uint64_t)((uintptr_t)rows->first % page);
  out->at = rows->first - out->skip;
  // The source has checked that the file is that long.
  if (__builtin_mul_overflow(rows->stride, rows->count, &all) || all > PTRDIFF_MAX / 2) {
    return brim_fail(BRIM_ELIMIT, "the samples do not fit in memory");
  }
  out->bytes = (size_t)((out->skip + all + page - 1) / page * page);
  return BRIM_OK;
}

static brim_status check_table(const brim_augment_table *table) {
  if (table->lock && table->unlock && table->fetch) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "%s does not read mapped files", BRIM_AUGMENT_EXTENSION);
}

uint64_t brim_mapped_bytes_with(const brim_augment_table *table, const brim_source *source,
                                const brim_transforms *transforms) {
  brim_source_rows rows;
  pages p;
  brim_augment_program program;
  if (check_table(table) || find_pages(source, &rows, &p)) return 0;
  if (brim_resident_program(source, transforms, &program) || table->supports(&program)) return 0;
  return p.bytes;
}

uint64_t brim_mapped_bytes(const brim_registry *registry, const brim_device *device,
                           const brim_source *source, const brim_transforms *transforms) {
  const brim_augment_table *table = device_table(registry, device);
  return table ? brim_mapped_bytes_with(table, source, transforms) : 0;
}

brim_status brim_mapped_probe(const brim_registry *registry, brim_device *device,
                              const brim_source *source) {
  const brim_augment_table *table = device_table(registry, device);
  brim_source_rows rows;
  pages p;
  void *near = NULL;
  const void *address;
  if (!table) return BRIM_EUNSUPPORTED;
  BRIM_TRY(check_table(table));
  BRIM_TRY(find_pages(source, &rows, &p));
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, ALIGN, &near));
  brim_status status = table->lock(p.at, page_bytes(), near, &address);
  if (!status) table->unlock(p.at);
  brim_device_free(device, BRIM_BUFFER_DEVICE, near);
  return status;
}

// Device bytes of the targets; never 0, since `lock` needs some memory of the device.
static uint64_t target_bytes(const brim_source *source, uint64_t count) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)source->target_bytes, count, &bytes) ||
      bytes > PTRDIFF_MAX / 2) {
    return 0;
  }
  return round_up(bytes ? bytes : 1);
}

brim_status brim_mapped_plan(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan) {
  brim_source part = *source;
  if (options->limit && options->limit < part.info.count) part.info.count = options->limit;
  part.cache = NULL;
  uint64_t locked = brim_mapped_bytes(registry, device, &part, options->transforms);
  if (locked == 0) return BRIM_EUNSUPPORTED;  // the detail says why
  uint64_t targets = target_bytes(source, part.info.count);
  if (targets == 0) return brim_fail(BRIM_EUNSUPPORTED, "the targets do not fit in memory");
  brim_loader_options how = *options;
  how.resident = NULL;  // there may be none yet
  const brim_loader_maker maker = {
      .table = brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION), .mapped = true};
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("mapped dataset (page-locked)"), locked));
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_DEVICE, BRIM_N_("resident targets"), targets));
  return brim_loader_plan_with(&part, &how, &maker, plan);
}

static brim_status lock_and_fill(brim_resident *set, brim_source *source, const pages *p,
                                 int threads) {
  const void *address = NULL;
  uint64_t bytes = target_bytes(source, set->count);
  if (bytes == 0) return brim_fail(BRIM_EUNSUPPORTED, "the targets do not fit in memory");
  brim_status status =
      brim_device_alloc(set->device, BRIM_BUFFER_DEVICE, (size_t)bytes, &set->memory);
  if (status) {
    return brim_fail_context(status, "resident targets of %llu bytes", (unsigned long long)bytes);
  }
  BRIM_TRY(set->table->lock(p->at, p->bytes, set->memory, &address));
  set->locked = p->at;
  set->locked_bytes = p->bytes;
  set->inputs = (const uint8_t *)address + p->skip;
  if (source->target_bytes) set->targets = set->memory;
  return fill_set(set, source, threads);
}

brim_status brim_mapped_create_with(const brim_augment_table *table, brim_device *device,
                                    brim_source *source, uint64_t limit, int threads,
                                    brim_resident **out) {
  brim_source_rows rows;
  pages p;
  BRIM_TRY(check_table(table));
  BRIM_TRY(find_pages(source, &rows, &p));
  brim_resident *set = brim_calloc(1, sizeof *set);
  if (!set) return brim_fail(BRIM_ENOMEM, "mapped dataset: out of memory");
  *set = (brim_resident){.device = device,
                         .table = table,
                         .count = limit && limit < source->info.count ? limit : source->info.count,
                         .input_bytes = source->input_bytes,
                         .target_bytes = source->target_bytes,
                         .stride = rows.stride};
  brim_status status = lock_and_fill(set, source, &p, threads);
  if (status) {
    brim_resident_destroy(set);
    return status;
  }
  *out = set;
  return BRIM_OK;
}

brim_status brim_mapped_create(const brim_registry *registry, brim_device *device,
                               brim_source *source, uint64_t limit, int threads,
                               brim_resident **out) {
  const brim_augment_table *table = device_table(registry, device);
  if (!table) return BRIM_EUNSUPPORTED;
  return brim_mapped_create_with(table, device, source, limit, threads, out);
}

uint64_t brim_resident_locked_bytes(const brim_resident *resident) {
  return resident ? resident->locked_bytes : 0;
}
