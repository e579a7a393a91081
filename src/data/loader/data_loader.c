// The loader: a ring of batch buffers, handed out in order. Worker threads fill them; without workers
// the caller does, and from a resident set the device. The sample of a row depends on (seed, epoch,
// position) alone, so neither the number of workers nor a seek changes the stream. Nothing is allocated
// after create.
//
// Every batch has a ticket. Workers share one batch at a time and claim pieces of its rows, so that it
// is ready after a fraction of the time one worker would need. They open batches in the order of
// tickets, each in any free slot, and fill without the lock. The caller gets the slot with the next
// ticket. As long as the caller leaves one slot free, that batch is being filled or can be opened.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/loader/data_loader_int.h"
#include "record/record_plan.h"

//---------------------------------- resident sets ----------------------------------

// A whole data set that the device can read. A resident set is copied to device memory once: several
// threads read into staging buffers, which are copied while the next buffers fill. A mapped set
// stays in the source's mapped file, whose pages are locked so that the device reads rows over the
// bus; only the targets are copied. A locked page cannot leave memory and keeps its content when
// another process truncates the file, so the device never meets a missing page.

// Copies the program of the transforms; without transforms, makes a program that only gathers.
static brim_status resident_program(const brim_source *source, const brim_transforms *transforms,
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
  STAGES = 3,  // staging buffers: one being read into, one being copied, one to reuse next
  STAGE_BYTES = 8 << 20,  // so large that the start of a copy costs nothing
};

//---------------------------------- what fits on the device ----------------------------------

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
  if (resident_program(source, transforms, &program)) return 0;
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

//---------------------------------- reading a resident set ----------------------------------

// A staging buffer.
typedef struct stage {
  uint8_t *inputs, *targets;  // pinned
  brim_event *copied;
  bool used;  // `copied` was recorded
} stage;

typedef struct upload {
  brim_resident *set;
  brim_source *source;
  brim_pool *pool;
  stage stages[STAGES];
  int64_t rows;        // of a stage
  size_t input_bytes;  // of a sample; 0 = mapped set, only targets are read
  // The piece being read, and its first sample.
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

// Sorts the broken samples of all threads by index. Fails if every sample is broken.
static brim_status sort_broken(brim_resident *set) {
  if (!set->broken_count) return BRIM_OK;
  qsort(set->broken, set->broken_count, sizeof *set->broken, by_index);
  if (set->broken_count < set->count) return BRIM_OK;
  return brim_fail(set->broken[0].status, "none of the %llu samples can be read; %s",
                   (unsigned long long)set->count, set->broken[0].detail);
}

// The error of a sample that could not be read; NULL if the sample is good.
static const brim_resident_broken *resident_broken_at(const brim_resident *resident,
                                                      uint64_t index) {
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
  // The source has checked that all rows lie within the file.
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
  if (resident_program(source, transforms, &program) || table->supports(&program)) return 0;
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

// Device bytes of the targets, at least ALIGN, since `lock` needs some memory of the device. 0 = too many.
static uint64_t target_bytes(const brim_source *source, uint64_t count) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)source->target_bytes, count, &bytes) ||
      bytes > PTRDIFF_MAX / 2) {
    return 0;
  }
  return round_up(bytes ? bytes : 1);
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

//---------------------------------- sizes ----------------------------------

// Sizes that follow from the options and the source. Plan and create both take them from here.
typedef struct brim_loader_layout {
  int64_t share;    // samples of this rank in an epoch
  int64_t samples;  // samples of the share that are handed out
  bool drop_last;   // asked for, or implied by several views
  int32_t views;
  int64_t piece;        // rows that a worker claims at once
  size_t output_bytes;  // one view of a sample
  size_t raw_bytes;  // a sample as read, rounded up; 0 = samples are read straight into the batch
  size_t slots;
  size_t target_at, index_at, slot_bytes;  // inputs lie at 0
  size_t ring_bytes;
  size_t worker_bytes, workers_bytes;  // raw sample and scratch, for one thread and for all
  size_t broken_bytes;                 // skip_broken: one bit a sample
  // Resident set: the device memory holds the slots, one list of indices and scratch. Mapped set: each
  // slot also has its own list at index_at (sample numbers, then row numbers of the file) and, if
  // `staged`, room for untransformed rows at rows_at.
  size_t device_index_at, device_scratch_at, device_bytes;
  bool staged;
  size_t rows_at;
  size_t list_bytes;  // one list on the host
} brim_loader_layout;

//---------------------------------- the loader ----------------------------------

// The outcome of filling some rows. The tally of a piece is added to that of its batch.
typedef struct brim_loader_tally {
  int64_t read_ns, transform_ns;
  int64_t stage_ns[BRIM_LOADER_MAX_STAGES];
  uint64_t broken;
  int64_t broken_row;  // first row whose sample was broken; -1 = none
  char broken_text[256];
  brim_status status;
  int64_t failed_row;  // the first row that failed
  char detail[BRIM_LOADER_DETAIL];
} brim_loader_tally;

typedef enum brim_loader_state {
  BRIM_LOADER_FREE,
  BRIM_LOADER_FILLING,
  BRIM_LOADER_READY,
  BRIM_LOADER_TAKEN
} brim_loader_state;

typedef struct brim_loader_slot {
  brim_loaded loaded;
  uint64_t *index;
  brim_loader_state state;
  uint64_t ticket;
  int64_t claimed;  // rows claimed by workers so far
  int pending;      // pieces in work
  brim_loader_tally tally;
  // Mapped set. fetched: the rows have arrived. given_back: the main stream no longer reads the slot.
  brim_event *fetched, *given_back;
} brim_loader_slot;

// A thread that fills rows; workers[0] also serves the caller if there are no threads.
typedef struct brim_loader_worker {
  brim_loader *loader;
  brim_thread *thread;
  uint8_t *raw;      // a sample as read
  uint8_t *scratch;  // of the transforms; NULL if they need none
  brim_loader_tally tally;
} brim_loader_worker;

// A list of sample numbers on the host, busy until its copy to the device has run.
typedef struct brim_loader_list {
  uint64_t *index;
  brim_event *copied;
  bool used;                     // `copied` was recorded
  const brim_loader_slot *slot;  // the slot whose loaded.index points here; NULL = none
} brim_loader_list;

typedef struct brim_loader_cursor {
  int64_t epoch, position;
} brim_loader_cursor;

struct brim_loader {
  brim_device *device;  // NULL when the ring is not pinned and nothing is resident
  brim_source *source;
  brim_loader_options options;
  brim_loader_layout layout;
  uint8_t *ring;
  uint8_t *scratch;
  uint8_t *broken;  // bit i: sample i was left out; NULL without skip_broken
  brim_loader_slot *slots;
  brim_loader_worker *workers;  // one at least
  int thread_count;
  // With a resident set.
  uint8_t *device_memory;
  brim_augment_program *program;
  brim_loader_list lists[BRIM_LOADER_LISTS];
  size_t next_list;

  pthread_mutex_t lock;
  pthread_cond_t work;   // workers wait for it: a slot is free, a seek is over, or `stop` is set
  pthread_cond_t ready;  // the caller waits for it: a batch was filled
  // Guarded by the lock:
  brim_loader_cursor cursor;  // the next batch to open
  brim_loader_slot *open;     // the batch with unclaimed rows; NULL = none
  uint64_t next_ticket, next_deliver;
  size_t filling;  // pieces in work
  size_t held;     // batches the caller has not released
  bool paused;     // during a seek
  bool stop;
  brim_loader_stats stats;
};

static bool is_mapped(const brim_loader *l) {
  return l->options.resident && l->options.resident->locked;
}

// Appends advice about broken records to the current error.
static void append_advice(void) {
  char text[BRIM_LOADER_DETAIL];
  snprintf(text, sizeof text, "%s", brim_status_detail());
  brim_fail(BRIM_EIO,
            "%s; `brim data verify PATH` lists every broken record, data.on_error=skip skips them",
            text);
}

enum {
  MAX_WORKERS = 1024,
  MAX_PREFETCH = 1024,
  // A ring larger than RING_BYTES gets fewer batches, but at least MIN_SLOTS. Few large batches keep the
  // device busy too, because workers share each of them.
  RING_BYTES = 1 << 30,
  MIN_SLOTS = 4,
  // The smallest piece that is worth taking the lock: in bytes if samples are only copied, in rows if
  // they are decoded or transformed.
  PIECE_BYTES = 1 << 16,
  PIECE_ROWS = 8,
  DEVICE_ALIGN = 256,
};

//---------------------------------- checks ----------------------------------

static brim_status check_numbers(const brim_loader_options *o) {
  if (o->batch < 1) {
    return brim_fail(BRIM_EINVAL, "batch size %lld; it must be at least 1", (long long)o->batch);
  }
  if (o->num_workers < 0 || o->num_workers > MAX_WORKERS) {
    return brim_fail(BRIM_EINVAL, "num_workers %d; it must be 0 to %d", o->num_workers,
                     MAX_WORKERS);
  }
  if (o->num_workers && (o->prefetch_factor < 1 || o->prefetch_factor > MAX_PREFETCH)) {
    return brim_fail(BRIM_EINVAL, "prefetch_factor %d; it must be 1 to %d", o->prefetch_factor,
                     MAX_PREFETCH);
  }
  if (o->world < 1 || o->rank < 0 || o->rank >= o->world) {
    return brim_fail(BRIM_EINVAL, "rank %d of %d ranks", o->rank, o->world);
  }
  return BRIM_OK;
}

static brim_status check_options(const brim_source *source, const brim_loader_options *o,
                                 const brim_loader_layout *l) {
  uint64_t count = source->info.count;
  if (l->share == 0) {
    return brim_fail(BRIM_EINVAL, "%llu samples are too few for %d ranks",
                     (unsigned long long)brim_loader_usable(o, count), o->world);
  }
  if (l->drop_last && l->share < o->batch) {
    if (l->views > 1) {
      return brim_fail(BRIM_EINVAL,
                       "%lld samples are fewer than a batch of %lld, and views need whole batches; "
                       "use a smaller batch",
                       (long long)l->share, (long long)o->batch);
    }
    return brim_fail(BRIM_EINVAL,
                     "drop_last leaves nothing: %llu samples, batch size %lld; use a smaller batch "
                     "or set drop_last: false",
                     (unsigned long long)l->share, (long long)o->batch);
  }
  if (source->info.varies && (!o->transforms || brim_transforms_count(o->transforms) == 0)) {
    return brim_fail(BRIM_EINVAL,
                     "the images differ in size; bring them to one size with resize, center_crop, "
                     "random_crop or random_resized_crop");
  }
  if (o->resident && (o->resident->input_bytes != source->input_bytes ||
                      o->resident->target_bytes != source->target_bytes)) {
    return brim_fail(BRIM_EINVAL, "the samples on the device belong to another source");
  }
  if (o->resident && brim_loader_usable(o, count) > o->resident->count) {
    return brim_fail(BRIM_EINVAL, "%llu samples requested, but the device holds %llu",
                     (unsigned long long)brim_loader_usable(o, count),
                     (unsigned long long)o->resident->count);
  }
  // A resident set has read every sample already, so a broken one fails now and not mid-run.
  const brim_resident_broken *broken = o->resident ? o->resident->broken : NULL;
  if (broken && !o->skip_broken && broken->index < brim_loader_usable(o, count)) {
    brim_status_set_detail(broken->detail);
    append_advice();
    return broken->status;
  }
  return BRIM_OK;
}

//---------------------------------- sizes ----------------------------------

// *out = a * b, rounded up to a multiple of `align`; false on overflow.
static bool block_bytes(size_t a, size_t b, size_t align, size_t *out) {
  if (__builtin_mul_overflow(a, b, out) || *out > PTRDIFF_MAX - align) return false;
  *out = (*out + align - 1) / align * align;
  return true;
}

static size_t worker_count(const brim_loader_options *o) {
  return o->num_workers ? (size_t)o->num_workers : 1;
}

static int64_t piece_rows(const brim_source *source, const brim_loader_options *o,
                          const brim_loader_layout *l) {
  int64_t rows = o->batch / (4 * (int64_t)worker_count(o));
  bool work = l->raw_bytes || source->info.costly || source->info.varies;
  int64_t least = work ? PIECE_ROWS : (int64_t)(PIECE_BYTES / (l->output_bytes + 1)) + 1;
  if (rows < least) rows = least;
  return rows < o->batch ? rows : o->batch;
}

static bool worker_sizes(const brim_source *source, const brim_loader_options *o,
                         brim_loader_layout *l) {
  const brim_transforms *t = o->transforms;
  size_t scratch = 0;
  if (t && (brim_transforms_count(t) || l->views > 1)) {
    if (!block_bytes(source->input_bytes, 1, BRIM_ALIGN, &l->raw_bytes) ||
        !block_bytes(brim_transforms_scratch_bytes(t), 1, BRIM_ALIGN, &scratch)) {
      return false;
    }
  }
  return !__builtin_add_overflow(l->raw_bytes, scratch, &l->worker_bytes) &&
         block_bytes(l->worker_bytes, worker_count(o), BRIM_ALIGN, &l->workers_bytes);
}

static bool ring_sizes(const brim_source *source, const brim_loader_options *o,
                       brim_loader_layout *l) {
  size_t batch = (size_t)o->batch, rows, inputs, targets, indices, total;
  if (__builtin_mul_overflow(batch, (size_t)l->views, &rows) ||
      !block_bytes(rows, l->output_bytes, BRIM_ALIGN, &inputs) ||
      !block_bytes(batch, source->target_bytes, BRIM_ALIGN, &targets) ||
      !block_bytes(batch, sizeof(uint64_t), BRIM_ALIGN, &indices) ||
      __builtin_add_overflow(inputs, targets, &total) ||
      __builtin_add_overflow(total, indices, &total)) {
    return false;
  }
  l->target_at = inputs;
  l->index_at = inputs + targets;
  l->slot_bytes = total;
  size_t most = RING_BYTES / total;
  if (o->most_slots > 0 && most > (size_t)o->most_slots) most = (size_t)o->most_slots;
  if (most < MIN_SLOTS) most = MIN_SLOTS;
  l->slots =
      BRIM_LOADER_HELD + (size_t)o->num_workers * (o->num_workers ? (size_t)o->prefetch_factor : 0);
  if (l->slots > most) l->slots = most;
  return !__builtin_mul_overflow(total, l->slots, &l->ring_bytes) && l->ring_bytes <= PTRDIFF_MAX;
}

// Sizes of the slots, lists and scratch on the device, and of the lists on the host.
static bool device_sizes(const brim_source *source, const brim_loader_options *o, bool mapped,
                         size_t scratch, brim_loader_layout *l) {
  size_t batch = (size_t)o->batch, rows, inputs, targets, indices, list, total, raw = 0;
  if (__builtin_mul_overflow(batch, (size_t)l->views, &rows) ||
      !block_bytes(rows, l->output_bytes, DEVICE_ALIGN, &inputs) ||
      !block_bytes(batch, source->target_bytes, DEVICE_ALIGN, &targets) ||
      !block_bytes(batch, sizeof(uint64_t), DEVICE_ALIGN, &indices) ||
      !block_bytes(indices, mapped ? 2 : 1, DEVICE_ALIGN, &list) ||
      (l->staged && !block_bytes(batch, source->input_bytes, DEVICE_ALIGN, &raw)) ||
      __builtin_add_overflow(inputs, targets, &total)) {
    return false;
  }
  l->target_at = inputs;
  l->index_at = total;
  if (mapped && (__builtin_add_overflow(total, list, &l->rows_at) ||
                 __builtin_add_overflow(l->rows_at, raw, &total))) {
    return false;
  }
  if (!block_bytes(total, BRIM_LOADER_HELD, DEVICE_ALIGN, &l->device_index_at) ||
      __builtin_add_overflow(l->device_index_at, mapped ? 0 : indices, &l->device_scratch_at) ||
      __builtin_add_overflow(l->device_scratch_at, scratch, &l->device_bytes) ||
      l->device_bytes > PTRDIFF_MAX) {
    return false;
  }
  l->slot_bytes = total;
  l->slots = BRIM_LOADER_HELD;
  l->list_bytes = list;
  return block_bytes(list, BRIM_LOADER_LISTS, BRIM_ALIGN, &l->ring_bytes);
}

static brim_status make_device_layout(const brim_source *source, const brim_loader_options *o,
                                      const brim_loader_maker *maker, brim_loader_layout *l,
                                      bool *fits) {
  const brim_augment_table *table = maker->table;
  brim_augment_program program;
  BRIM_TRY(resident_program(source, o->transforms, &program));
  BRIM_TRY(table->supports(&program));
  // Rows that need no transform are fetched straight into the batch.
  l->staged = maker->mapped && (program.stage_count > 0 || program.views > 1 ||
                                program.out_bytes != program.sample_bytes);
  // Check the limits without scratch first: the table may compute scratch_bytes without checks.
  *fits = device_sizes(source, o, maker->mapped, 0, l) &&
          device_sizes(source, o, maker->mapped, table->scratch_bytes(&program, o->batch), l);
  return BRIM_OK;
}

static brim_status make_layout(const brim_source *source, const brim_loader_options *o,
                               const brim_loader_maker *maker, brim_loader_layout *out) {
  brim_loader_layout l = {.views = 1, .output_bytes = source->input_bytes};
  BRIM_TRY(check_numbers(o));
  if (o->transforms) {
    l.views = brim_transforms_views(o->transforms);
    l.output_bytes = brim_transforms_output_bytes(o->transforms);
  }
  l.drop_last = o->drop_last || l.views > 1;
  l.share = (int64_t)(brim_loader_usable(o, source->info.count) / (uint64_t)o->world);
  BRIM_TRY(check_options(source, o, &l));
  if (o->skip_broken) l.broken_bytes = (size_t)(brim_loader_usable(o, source->info.count) / 8 + 1);
  l.samples = l.share - (l.drop_last ? l.share % o->batch : 0);
  if (o->multiple > 0 && l.share >= o->multiple) l.samples = l.share - l.share % o->multiple;
  bool fits;
  if (maker->table) {
    BRIM_TRY(make_device_layout(source, o, maker, &l, &fits));
  } else {
    fits = worker_sizes(source, o, &l) && ring_sizes(source, o, &l);
    l.piece = piece_rows(source, o, &l);
  }
  if (!fits) {
    return brim_fail(BRIM_ELIMIT, "batches of %lld samples do not fit in memory",
                     (long long)o->batch);
  }
  *out = l;
  return BRIM_OK;
}

static brim_loader_maker maker_of(const brim_resident *resident) {
  return (brim_loader_maker){.table = resident ? resident->table : NULL,
                             .mapped = resident && resident->locked};
}

//---------------------------------- plan ----------------------------------

static brim_status loader_plan_with(const brim_source *source, const brim_loader_options *options,
                                    const brim_loader_maker *maker, brim_plan *plan) {
  brim_loader_layout layout;
  BRIM_TRY(make_layout(source, options, maker, &layout));
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("loader ring"), layout.ring_bytes));
  BRIM_TRY(
      brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("transform scratch"), layout.workers_bytes));
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_DEVICE, BRIM_N_("augmented batch"), layout.device_bytes));
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("dataset"),
                         source->host_bytes + layout.broken_bytes));
  if (!source->cache) return BRIM_OK;
  return brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("dataset cache"),
                       brim_source_cache_bytes(source));
}

brim_status brim_loader_plan(const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan) {
  const brim_loader_maker maker = maker_of(options->resident);
  return loader_plan_with(source, options, &maker, plan);
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
  how.resident = NULL;
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_DEVICE, BRIM_N_("resident dataset"), bytes));
  const brim_loader_maker maker = {.table =
                                       brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION)};
  return loader_plan_with(&part, &how, &maker, plan);
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
  how.resident = NULL;
  const brim_loader_maker maker = {
      .table = brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION), .mapped = true};
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("mapped dataset (page-locked)"), locked));
  BRIM_TRY(brim_plan_add(plan, BRIM_PLACE_DEVICE, BRIM_N_("resident targets"), targets));
  return loader_plan_with(&part, &how, &maker, plan);
}

//---------------------------------- batches made on the device ----------------------------------

// The host only chooses the samples. Everything else is enqueued on the device's main stream. So a
// batch may be overwritten as soon as the caller has enqueued its work on it. Only a list of samples on
// the host is not reused before its copy has run.
//
// Rows of a mapped set cross the bus, which takes as long as a step or longer. They are fetched on the
// copy stream, a batch ahead. Each slot has two events, so that the host need not wait: the main stream
// waits until the rows have arrived, the copy stream until the main stream is done with the slot.

static brim_status device_init(brim_loader *l) {
  const brim_loader_layout *layout = &l->layout;
  void *memory = NULL;
  l->program = brim_calloc(1, sizeof *l->program);
  if (!l->program) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  BRIM_TRY(resident_program(l->source, l->options.transforms, l->program));
  brim_status status =
      brim_device_alloc(l->device, BRIM_BUFFER_DEVICE, layout->device_bytes, &memory);
  if (status) {
    return brim_fail_context(status, "augmented batch of %zu bytes", layout->device_bytes);
  }
  l->device_memory = memory;
  for (size_t i = 0; i < BRIM_LOADER_LISTS; i++) {
    l->lists[i].index = (uint64_t *)(void *)(l->ring + i * layout->list_bytes);
    BRIM_TRY(brim_event_create(l->device, &l->lists[i].copied));
  }
  for (size_t i = 0; i < layout->slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    uint8_t *base = l->device_memory + i * layout->slot_bytes;
    slot->loaded.on_device = true;
    slot->loaded.input = base;
    slot->loaded.target = l->source->target_bytes ? base + layout->target_at : NULL;
    if (!is_mapped(l)) continue;
    BRIM_TRY(brim_event_create(l->device, &slot->fetched));
    BRIM_TRY(brim_event_create(l->device, &slot->given_back));
  }
  return BRIM_OK;
}

static void device_deinit(brim_loader *l) {
  if (!l->options.resident) return;
  // Wait until the device is done with this memory and with the file's pages: the caller may unlock them.
  (void)brim_device_sync(l->device);
  for (size_t i = 0; i < l->layout.slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    if (slot->fetched) (void)brim_event_sync(l->device, slot->fetched);
    brim_event_destroy(l->device, slot->fetched);
    brim_event_destroy(l->device, slot->given_back);
  }
  for (size_t i = 0; i < BRIM_LOADER_LISTS; i++) {
    if (l->lists[i].copied) brim_event_destroy(l->device, l->lists[i].copied);
  }
  if (l->device_memory) brim_device_free(l->device, BRIM_BUFFER_DEVICE, l->device_memory);
  brim_free(l->program);
}

// Takes a list that no batch in use points to, and waits until its copy has run.
static brim_status next_list(brim_loader *l, brim_loader_slot *slot, brim_loader_list **out) {
  brim_loader_list *list;
  do {  // ends: there are more lists than slots
    list = &l->lists[l->next_list++ % BRIM_LOADER_LISTS];
  } while (list->slot && list->slot != slot && list->slot->state != BRIM_LOADER_FREE &&
           list->slot->index == list->index);
  if (list->used) BRIM_TRY(brim_event_sync(l->device, list->copied));
  list->slot = slot;
  *out = list;
  return BRIM_OK;
}

// Chooses the sample of a row. A broken sample is replaced by the next good one of the rank's order, as
// in fill_position.
static brim_status choose_sample(const brim_loader *l, brim_loader_slot *slot, int64_t row,
                                 const brim_shuffle *order) {
  const brim_resident *set = l->options.resident;
  brim_loader_tally *t = &slot->tally;
  uint64_t share = (uint64_t)l->layout.share, position = (uint64_t)(slot->loaded.first + row);
  for (uint64_t k = 0; k < share; k++) {
    uint64_t index = brim_loader_index(&l->options, order, (position + k) % share);
    const brim_resident_broken *broken = resident_broken_at(set, index);
    slot->index[row] = index;
    if (!broken) return BRIM_OK;
    if (k == 0 && t->broken++ == 0) {
      t->broken_row = row;
      snprintf(t->broken_text, sizeof t->broken_text, "%s", broken->detail);
    }
  }
  return brim_fail(BRIM_EIO, "none of the %llu samples can be read; %s", (unsigned long long)share,
                   t->broken_text);
}

// Chooses the samples of a batch and notes them in a list.
static brim_status choose_samples(brim_loader *l, brim_loader_slot *slot, brim_loader_list **out) {
  brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(next_list(l, slot, &list));
  *out = list;
  slot->index = list->index;
  b->index = list->index;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, b->epoch);
  for (int64_t row = 0; row < b->rows; row++) {
    BRIM_TRY(choose_sample(l, slot, row, &order));
  }
  size_t rest = (size_t)(l->options.batch - b->rows);
  memset(list->index + b->rows, 0, rest * sizeof *list->index);
  return BRIM_OK;
}

// Makes a batch from a resident set.
static brim_status device_fill(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(choose_samples(l, slot, &list));
  void *index = l->device_memory + layout->device_index_at;
  BRIM_TRY(brim_device_copy(l->device, index, list->index, (size_t)b->rows * sizeof *list->index,
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_event_record(l->device, list->copied));
  list->used = true;
  const brim_augment_batch batch = {
      .inputs = set->inputs,
      .targets = set->targets,
      .index = index,
      .rows = b->rows,
      .capacity = l->options.batch,
      .epoch = b->epoch,
      .target_bytes = l->source->target_bytes,
      .out = b->input,
      .out_targets = b->target,
  };
  return set->table->run(l->device->stream, l->program, &batch,
                         l->device_memory + layout->device_scratch_at);
}

// First step of a batch from a mapped set: enqueues the transfer of its rows on the copy stream, a batch
// ahead of the caller.
static brim_status device_fetch(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(choose_samples(l, slot, &list));
  size_t half = layout->list_bytes / 2 / sizeof *list->index;  // samples, then their rows
  for (int64_t row = 0; row < b->rows; row++) {
    list->index[half + (size_t)row] = brim_source_row(l->source, list->index[row]);
  }
  uint8_t *base = b->input;
  uint64_t *index = (uint64_t *)(void *)(base + layout->index_at);
  BRIM_TRY(brim_event_wait_copy(l->device, slot->given_back));
  brim_status status = brim_device_upload(l->device, index, list->index, layout->list_bytes);
  if (!status) status = brim_event_record_copy(l->device, list->copied);
  list->used = list->used || !status;
  const brim_augment_fetch fetch = {
      .from = set->inputs,
      .stride = set->stride,
      .bytes = set->input_bytes,
      .place = index + half,
      .rows = b->rows,
      .capacity = l->options.batch,
      .to = layout->staged ? base + layout->rows_at : base,
      .targets = set->targets,
      .index = index,
      .target_bytes = set->target_bytes,
      .out_targets = b->target,
  };
  if (!status) status = set->table->fetch(l->device->copy_stream, &fetch);
  // Record also after a failure: a copy may already be on its way into the slot.
  brim_status ended = brim_event_record_copy(l->device, slot->fetched);
  return status ? status : ended;
}

// Second step: has the main stream wait for the rows and transform them.
static brim_status device_finish(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  uint8_t *base = b->input;
  BRIM_TRY(brim_event_wait(l->device, slot->fetched));
  if (!layout->staged) return BRIM_OK;
  const brim_augment_batch batch = {
      .inputs = base + layout->rows_at,
      .index = (const uint64_t *)(const void *)(base + layout->index_at),
      .rows = b->rows,
      .capacity = l->options.batch,
      .epoch = b->epoch,
      .out = base,
      .in_order = 1,
  };
  return set->table->run(l->device->stream, l->program, &batch,
                         l->device_memory + layout->device_scratch_at);
}

// Marks the point on the main stream after which the slot may be fetched into again.
static void device_give_back(brim_loader *l, brim_loader_slot *slot) {
  if (is_mapped(l)) (void)brim_event_record(l->device, slot->given_back);
}

// Batches from this size on are written past the caches, which could not hold them until use
// (brim_copy_stream), and the next sample is prefetched. On a Neoverse V1 only the prefetch helps: 4 %
// more rows of 41 kB a second in batches of 2048.
static const size_t STREAM_BYTES = (size_t)8 << 20;

//---------------------------------- claims ----------------------------------

// Rows of the batch at this position of an epoch; 0 at the epoch's end.
static int64_t rows_at(const brim_loader *l, int64_t position) {
  int64_t left = l->layout.samples - position;
  if (left >= l->options.batch) return l->options.batch;
  return l->layout.drop_last ? 0 : left;
}

static void tally_clear(brim_loader_tally *t) {
  t->read_ns = t->transform_ns = 0;
  memset(t->stage_ns, 0, sizeof t->stage_ns);
  t->broken = 0;
  t->broken_row = -1;
  t->status = BRIM_OK;
}

// Opens the cursor's next batch in a free slot; NULL if no slot is free.
static brim_loader_slot *open_locked(brim_loader *l) {
  brim_loader_slot *slot = NULL;
  for (size_t i = 0; i < l->layout.slots && !slot; i++) {
    if (l->slots[i].state == BRIM_LOADER_FREE) slot = &l->slots[i];
  }
  if (!slot) return NULL;
  int64_t rows = rows_at(l, l->cursor.position);
  if (rows == 0) {
    l->cursor = (brim_loader_cursor){.epoch = l->cursor.epoch + 1};
    rows = rows_at(l, 0);
  }
  slot->state = BRIM_LOADER_FILLING;
  slot->ticket = l->next_ticket++;
  slot->claimed = 0;
  slot->pending = 0;
  tally_clear(&slot->tally);
  slot->loaded.rows = rows;
  slot->loaded.epoch = l->cursor.epoch;
  slot->loaded.first = l->cursor.position;
  l->cursor.position += rows;
  slot->loaded.last = rows_at(l, l->cursor.position) == 0;
  return slot;
}

// Rows [begin, end) of a slot.
typedef struct loader_piece {
  brim_loader_slot *slot;
  int64_t begin, end;
} loader_piece;

static bool claim_locked(brim_loader *l, loader_piece *out) {
  if (!l->open) l->open = open_locked(l);
  brim_loader_slot *slot = l->open;
  if (!slot) return false;
  int64_t left = slot->loaded.rows - slot->claimed;
  int64_t rows = left < l->layout.piece ? left : l->layout.piece;
  *out = (loader_piece){.slot = slot, .begin = slot->claimed, .end = slot->claimed + rows};
  slot->claimed += rows;
  if (slot->claimed == slot->loaded.rows) l->open = NULL;
  slot->pending++;
  l->filling++;
  return true;
}

// If several workers fail, the failure of the first row counts, whichever worker came first.
static void tally_add(brim_loader_tally *to, const brim_loader_tally *from) {
  to->read_ns += from->read_ns;
  to->transform_ns += from->transform_ns;
  for (size_t i = 0; i < BRIM_LOADER_MAX_STAGES; i++) to->stage_ns[i] += from->stage_ns[i];
  to->broken += from->broken;
  if (from->broken && (to->broken_row < 0 || from->broken_row < to->broken_row)) {
    to->broken_row = from->broken_row;
    memcpy(to->broken_text, from->broken_text, sizeof to->broken_text);
  }
  if (from->status && (!to->status || from->failed_row < to->failed_row)) {
    to->status = from->status;
    to->failed_row = from->failed_row;
    memcpy(to->detail, from->detail, sizeof to->detail);
  }
}

static void finish_locked(brim_loader *l, brim_loader_slot *slot, const brim_loader_tally *tally) {
  tally_add(&slot->tally, tally);
  if (tally->status) {
    // Leave the rows after the failed one unread: the batch is lost anyway.
    slot->claimed = slot->loaded.rows;
    if (l->open == slot) l->open = NULL;
  }
  slot->pending--;
  l->filling--;
  if (slot->pending || slot->claimed < slot->loaded.rows) return;
  slot->loaded.io_ns = slot->tally.read_ns;
  slot->loaded.transform_ns = slot->tally.transform_ns;
  slot->state = BRIM_LOADER_READY;
}

//---------------------------------- rows ----------------------------------

// Reads one sample into its row of the batch and makes all its views. `next`: the sample to prefetch.
static brim_status fill_row(brim_loader_worker *w, brim_loaded *b, int64_t row, uint64_t index,
                            uint64_t next) {
  const brim_loader *l = w->loader;
  const brim_transforms *t = l->options.transforms;
  brim_source *source = l->source;
  size_t view_bytes = (size_t)l->options.batch * l->layout.output_bytes;
  uint8_t *out = (uint8_t *)b->input + (size_t)row * l->layout.output_bytes;
  void *target = b->target ? (uint8_t *)b->target + (size_t)row * source->target_bytes : NULL;
  if (!w->raw && l->layout.slot_bytes >= STREAM_BYTES && !source->info.varies) {
    return brim_source_stream(source, index, next, out, target);
  }
  if (!w->raw) return brim_source_read(source, index, 1, out, target, NULL, NULL);
  brim_time start = brim_clock_now();
  int64_t height, width;
  int scale = 1;
  if (source->info.varies) {
    BRIM_TRY(brim_source_size(source, index, &height, &width));
    scale = brim_transforms_scale(t, b->epoch, index, height, width);
  }
  BRIM_TRY(brim_source_read(source, index, scale, w->raw, target, &height, &width));
  brim_time read = brim_clock_now();
  int64_t *stage_ns = brim_transforms_count(t) <= BRIM_LOADER_MAX_STAGES ? w->tally.stage_ns : NULL;
  brim_transforms_view v = {.epoch = b->epoch, .index = index, .height = height, .width = width};
  for (; (int32_t)v.view < l->layout.views; v.view++) {
    brim_transforms_apply(t, &v, w->raw, out + (size_t)v.view * view_bytes, w->scratch, stage_ns);
  }
  w->tally.read_ns += brim_time_since_ns(start, read);
  w->tally.transform_ns += brim_time_since_ns(read, brim_clock_now());
  return BRIM_OK;
}

static void note_broken(brim_loader_tally *t, int64_t row) {
  if (t->broken++ == 0) {
    t->broken_row = row;
    snprintf(t->broken_text, sizeof t->broken_text, "%s", brim_status_detail());
  }
}

// Fills a row with the sample at its position p of the rank's order. With skip_broken a broken sample is
// replaced by the next readable one: p + 1, p + 2, ..., around the end of the epoch. So the choice does
// not depend on the worker. A broken sample counts each time its turn comes.
static brim_status fill_position(brim_loader_worker *w, const loader_piece *piece, int64_t row,
                                 const brim_shuffle *order) {
  const brim_loader *l = w->loader;
  brim_loaded *b = &piece->slot->loaded;
  uint64_t *index = &piece->slot->index[row];
  uint64_t share = (uint64_t)l->layout.share, position = (uint64_t)(b->first + row);
  for (uint64_t k = 0; k < share; k++) {
    if (k > 0) *index = brim_loader_index(&l->options, order, (position + k) % share);
    brim_status status = fill_row(w, b, row, *index, index[row + 1 < piece->end]);
    if (!status) return BRIM_OK;
    // Out of memory and an interrupt are not the sample's fault.
    const bool innocent = status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
    if (!l->options.skip_broken || innocent) {
      if (!innocent) append_advice();
      if (l->options.once) return status;
      return brim_fail_context(status, "epoch %lld", (long long)b->epoch + 1);  // shown from 1
    }
    if (k == 0) note_broken(&w->tally, row);
  }
  return brim_fail(BRIM_EIO, "none of the %llu samples can be read; %s", (unsigned long long)share,
                   w->tally.broken_text);
}

// Zeroes the rows after the last valid one.
static void clear_rest(const brim_loader *l, brim_loader_slot *slot) {
  size_t rows = (size_t)slot->loaded.rows, rest = (size_t)l->options.batch - rows;
  uint8_t *input = slot->loaded.input, *target = slot->loaded.target;
  if (!rest) return;  // with several views batches are always full
  memset(input + rows * l->layout.output_bytes, 0, rest * l->layout.output_bytes);
  if (target) {
    memset(target + rows * l->source->target_bytes, 0, rest * l->source->target_bytes);
  }
  memset(slot->index + rows, 0, rest * sizeof *slot->index);
}

// Fills the rows of a piece. Runs without the lock: the rows belong to this thread. The outcome goes to
// the worker's tally.
static void fill_piece(brim_loader_worker *w, const loader_piece *piece) {
  const brim_loader *l = w->loader;
  brim_loader_slot *slot = piece->slot;
  brim_loader_tally *t = &w->tally;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, slot->loaded.epoch);
  tally_clear(t);
  brim_time start = brim_clock_now();
  for (int64_t row = piece->begin; row < piece->end; row++) {
    slot->index[row] = brim_loader_index(&l->options, &order, (uint64_t)(slot->loaded.first + row));
  }
  for (int64_t row = piece->begin; row < piece->end; row++) {
    t->status = fill_position(w, piece, row, &order);
    if (t->status) {
      t->failed_row = row;
      snprintf(t->detail, sizeof t->detail, "%s", brim_status_detail());
      break;
    }
  }
  // Samples that are only copied are not timed one by one.
  if (!w->raw) t->read_ns = brim_time_since_ns(start, brim_clock_now());
  if (piece->end == slot->loaded.rows) clear_rest(l, slot);
}

// Fills all rows of an open slot in the calling thread.
static void fill_locked(brim_loader *l, brim_loader_slot *slot) {
  loader_piece piece = {.slot = slot, .end = slot->loaded.rows};
  slot->claimed = slot->loaded.rows;
  slot->pending = 1;
  l->filling++;
  fill_piece(&l->workers[0], &piece);
  finish_locked(l, slot, &l->workers[0].tally);
}

static void worker_main(void *ctx) {
  brim_loader_worker *w = ctx;
  brim_loader *l = w->loader;
  pthread_mutex_lock(&l->lock);
  while (!l->stop) {
    loader_piece piece;
    if (l->paused || !claim_locked(l, &piece)) {
      pthread_cond_wait(&l->work, &l->lock);
      continue;
    }
    pthread_mutex_unlock(&l->lock);
    fill_piece(w, &piece);
    pthread_mutex_lock(&l->lock);
    finish_locked(l, piece.slot, &w->tally);
    if (piece.slot->state == BRIM_LOADER_READY || l->paused) pthread_cond_signal(&l->ready);
  }
  pthread_mutex_unlock(&l->lock);
}

//---------------------------------- create, destroy ----------------------------------

static brim_status alloc_ring(brim_loader *l) {
  size_t bytes = l->layout.ring_bytes;
  if (l->device) {
    void *ring = NULL;
    brim_status status = brim_device_alloc(l->device, BRIM_BUFFER_HOST, bytes, &ring);
    if (status) return brim_fail_context(status, "loader ring of %zu bytes", bytes);
    l->ring = ring;
  } else {
    l->ring = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
    if (!l->ring) return brim_fail(BRIM_ENOMEM, "loader ring of %zu bytes: out of memory", bytes);
  }
  memset(l->ring, 0, bytes);  // fault the pages in now, not in the first steps
  if (l->options.resident) return device_init(l);
  for (size_t i = 0; i < l->layout.slots; i++) {
    uint8_t *base = l->ring + i * l->layout.slot_bytes;
    brim_loader_slot *slot = &l->slots[i];
    slot->index = (uint64_t *)(void *)(base + l->layout.index_at);
    slot->loaded.input = base;
    slot->loaded.target = l->source->target_bytes ? base + l->layout.target_at : NULL;
    slot->loaded.index = slot->index;
  }
  return BRIM_OK;
}

static brim_status alloc_scratch(brim_loader *l) {
  const brim_loader_layout *layout = &l->layout;
  for (size_t i = 0; i < worker_count(&l->options); i++) l->workers[i].loader = l;
  if (layout->workers_bytes == 0) return BRIM_OK;
  l->scratch = brim_alloc_tagged(layout->workers_bytes, BRIM_MEM_PLANNED);
  if (!l->scratch) {
    return brim_fail(BRIM_ENOMEM, "transform scratch of %zu bytes: out of memory",
                     layout->workers_bytes);
  }
  for (size_t i = 0; i < worker_count(&l->options); i++) {
    uint8_t *mine = l->scratch + i * layout->worker_bytes;
    l->workers[i].raw = mine;
    if (layout->worker_bytes > layout->raw_bytes) l->workers[i].scratch = mine + layout->raw_bytes;
  }
  return BRIM_OK;
}

static brim_status alloc_broken(brim_loader *l) {
  size_t bytes = l->layout.broken_bytes;
  if (!bytes) return BRIM_OK;
  l->broken = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (!l->broken) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  memset(l->broken, 0, bytes);
  return BRIM_OK;
}

static void free_ring(brim_loader *l) {
  device_deinit(l);
  brim_free(l->broken);
  brim_free(l->scratch);
  if (l->device && l->ring) {
    brim_device_free(l->device, BRIM_BUFFER_HOST, l->ring);
  } else {
    brim_free(l->ring);
  }
}

static void stop_threads(brim_loader *l) {
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < l->thread_count; i++) brim_thread_join(l->workers[i].thread);
  l->thread_count = 0;
}

static brim_status start_threads(brim_loader *l) {
  if (l->options.resident) return BRIM_OK;
  for (int i = 0; i < l->options.num_workers; i++) {
    brim_status status =
        brim_thread_start(worker_main, &l->workers[i], "brim-loader", &l->workers[i].thread);
    if (status) {
      stop_threads(l);
      return brim_fail_context(status, "loader worker %d", i);
    }
    l->thread_count++;
  }
  return BRIM_OK;
}

static void name_stages(brim_loader *l) {
  const brim_transforms *t = l->options.transforms;
  size_t count = t ? brim_transforms_count(t) : 0;
  if (count > BRIM_LOADER_MAX_STAGES || l->options.resident) return;  // not timed
  l->stats.stage_count = count;
  for (size_t i = 0; i < count; i++) l->stats.stage[i] = brim_transforms_name(t, i);
}

brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out) {
  const brim_resident *resident = options->resident;
  const brim_loader_maker maker = maker_of(resident);
  brim_loader_layout layout;
  BRIM_TRY(make_layout(source, options, &maker, &layout));
  brim_status status = BRIM_ENOMEM;
  brim_loader *l = brim_calloc(1, sizeof *l);
  if (!l) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  l->device = resident ? resident->device : options->pin_memory ? device : NULL;
  l->source = source;
  l->options = *options;
  l->layout = layout;
  l->slots = brim_calloc(layout.slots, sizeof *l->slots);
  l->workers = brim_calloc(worker_count(options), sizeof *l->workers);
  if (!l->slots || !l->workers) {
    brim_fail(BRIM_ENOMEM, "loader: out of memory");
    goto fail_arrays;
  }
  name_stages(l);
  status = alloc_ring(l);
  if (!status) status = alloc_scratch(l);
  if (!status) status = alloc_broken(l);
  if (status) goto fail_ring;
  pthread_mutex_init(&l->lock, NULL);  // default attributes: cannot fail on Linux
  pthread_cond_init(&l->work, NULL);
  pthread_cond_init(&l->ready, NULL);
  status = start_threads(l);
  if (status) goto fail_sync;
  *out = l;
  return BRIM_OK;
fail_sync:
  pthread_cond_destroy(&l->ready);
  pthread_cond_destroy(&l->work);
  pthread_mutex_destroy(&l->lock);
fail_ring:
  free_ring(l);
fail_arrays:
  brim_free(l->workers);
  brim_free(l->slots);
  brim_free(l);
  return status;
}

void brim_loader_destroy(brim_loader *loader) {
  if (!loader) return;
  stop_threads(loader);
  pthread_cond_destroy(&loader->ready);
  pthread_cond_destroy(&loader->work);
  pthread_mutex_destroy(&loader->lock);
  free_ring(loader);
  brim_free(loader->workers);
  brim_free(loader->slots);
  brim_free(loader);
}

int64_t brim_loader_samples(const brim_loader *loader) { return loader->layout.samples; }

int64_t brim_loader_batches(const brim_loader *loader) {
  int64_t batch = loader->options.batch;
  return loader->layout.samples / batch + (loader->layout.samples % batch != 0);
}

//---------------------------------- the caller's side ----------------------------------

// True if the next batch to hand out begins at this position.
static bool is_next_at_locked(const brim_loader *l, int64_t epoch, int64_t position) {
  if (l->next_deliver == l->next_ticket) {
    return l->cursor.epoch == epoch && l->cursor.position == position;
  }
  for (size_t i = 0; i < l->layout.slots; i++) {
    const brim_loader_slot *slot = &l->slots[i];
    bool ahead = slot->state == BRIM_LOADER_READY || slot->state == BRIM_LOADER_FILLING;
    if (!ahead || slot->ticket != l->next_deliver) continue;
    return slot->loaded.epoch == epoch && slot->loaded.first == position && !slot->tally.status;
  }
  return false;
}

brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position) {
  brim_loader *l = loader;
  if (epoch < 0 || position < 0 || position > l->layout.samples) {
    return brim_fail(BRIM_EINVAL, "epoch %lld, sample %lld: an epoch has samples 0 to %lld",
                     (long long)epoch, (long long)position, (long long)l->layout.samples);
  }
  pthread_mutex_lock(&l->lock);
  if (is_next_at_locked(l, epoch, position)) {  // keep the batches read ahead
    pthread_mutex_unlock(&l->lock);
    return BRIM_OK;
  }
  l->paused = true;
  while (l->filling) pthread_cond_wait(&l->ready, &l->lock);
  for (size_t i = 0; i < l->layout.slots; i++) {
    if (l->slots[i].state != BRIM_LOADER_TAKEN) l->slots[i].state = BRIM_LOADER_FREE;
  }
  l->open = NULL;
  l->cursor = (brim_loader_cursor){.epoch = epoch, .position = position};
  l->next_deliver = l->next_ticket;
  l->paused = false;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  return BRIM_OK;
}

static brim_loader_slot *ready_locked(brim_loader *l) {
  for (size_t i = 0; i < l->layout.slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    if (slot->state == BRIM_LOADER_READY && slot->ticket == l->next_deliver) return slot;
  }
  return NULL;
}

// Waits for the slot of the next ticket. Without workers, fills it.
static brim_loader_slot *wait_locked(brim_loader *l) {
  brim_loader_slot *slot = ready_locked(l);
  if (!slot && l->options.num_workers == 0) {
    slot = open_locked(l);
    fill_locked(l, slot);
  }
  while (!slot) {
    pthread_cond_wait(&l->ready, &l->lock);
    slot = ready_locked(l);
  }
  return slot;
}

typedef brim_status (*fill_fn)(brim_loader *l, brim_loader_slot *slot);

// Makes the next batch on the device, in a free slot; *out NULL: no slot is free. After a failure the
// next call tries the same batch again.
static brim_status open_on_device_locked(brim_loader *l, fill_fn fill, brim_loader_slot **out) {
  brim_loader_cursor before = l->cursor;
  brim_loader_slot *slot = open_locked(l);
  *out = slot;
  brim_status status = slot ? fill(l, slot) : BRIM_OK;
  if (status) {
    slot->state = BRIM_LOADER_FREE;
    l->cursor = before;
    l->next_ticket--;
  }
  return status;
}

static brim_status next_on_device_locked(brim_loader *l, brim_loader_slot **out) {
  if (!is_mapped(l)) return open_on_device_locked(l, device_fill, out);
  // Usually the batch is on its way already (fetch_ahead_locked).
  *out = ready_locked(l);
  if (!*out) {
    BRIM_TRY(open_on_device_locked(l, device_fetch, out));
    (*out)->state = BRIM_LOADER_READY;
  }
  return device_finish(l, *out);
}

// Starts the transfer of the batch after the one just handed out, to overlap it with the step. If
// that fails, the next brim_loader_next tries again and reports the error.
static void fetch_ahead_locked(brim_loader *l) {
  brim_loader_slot *slot = NULL;
  if (!is_mapped(l) || ready_locked(l)) return;
  if (open_on_device_locked(l, device_fetch, &slot)) {
    brim_status_clear();
  } else if (slot) {
    slot->state = BRIM_LOADER_READY;
  }
}

static brim_status next_filled_locked(brim_loader *l, brim_loader_slot **out) {
  *out = wait_locked(l);
  // A failed batch keeps its slot: every call fails the same way until a seek.
  if ((*out)->tally.status) brim_status_set_detail((*out)->tally.detail);
  return (*out)->tally.status;
}

// Marks and counts broken samples, each once. A sample is broken if its row holds another sample.
static void note_broken_locked(brim_loader *l, const brim_loader_slot *slot) {
  const brim_loaded *b = &slot->loaded;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, b->epoch);
  for (int64_t row = 0; row < b->rows; row++) {
    uint64_t index = brim_loader_index(&l->options, &order, (uint64_t)(b->first + row));
    uint8_t bit = (uint8_t)(1u << (index & 7));
    if (index == slot->index[row] || (l->broken[index >> 3] & bit)) continue;
    l->broken[index >> 3] |= bit;
    l->stats.broken++;
  }
}

// Adds a batch to the totals when it is handed out, so that they do not depend on how far workers have
// read ahead.
static void count_locked(brim_loader *l, const brim_loader_slot *slot) {
  brim_loader_stats *s = &l->stats;
  const brim_loader_tally *t = &slot->tally;
  s->batches++;
  s->samples += (uint64_t)slot->loaded.rows;
  s->read_ns += t->read_ns;
  for (size_t i = 0; i < s->stage_count; i++) s->stage_ns[i] += t->stage_ns[i];
  if (!t->broken) return;
  if (!s->broken) memcpy(s->first_broken, t->broken_text, sizeof s->first_broken);
  s->broken_reads += t->broken;
  note_broken_locked(l, slot);
}

brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out) {
  brim_loader *l = loader;
  brim_status status;
  pthread_mutex_lock(&l->lock);
  if (l->held == l->layout.slots) {
    status = brim_fail(BRIM_ESTATE, "all %zu batches of the loader are in use; release one first",
                       l->layout.slots);
  } else {
    brim_loader_slot *slot = NULL;
    status = l->options.resident ? next_on_device_locked(l, &slot) : next_filled_locked(l, &slot);
    if (!status) {
      slot->state = BRIM_LOADER_TAKEN;
      l->held++;
      l->next_deliver++;
      count_locked(l, slot);
      fetch_ahead_locked(l);
      *out = &slot->loaded;
    }
  }
  pthread_mutex_unlock(&l->lock);
  return status;
}

void brim_loader_release(brim_loader *loader, const brim_loaded *batch) {
  if (!batch) return;
  pthread_mutex_lock(&loader->lock);
  for (size_t i = 0; i < loader->layout.slots; i++) {
    brim_loader_slot *slot = &loader->slots[i];
    if (&slot->loaded == batch && slot->state == BRIM_LOADER_TAKEN) {
      device_give_back(loader, slot);
      slot->state = BRIM_LOADER_FREE;
      loader->held--;
      pthread_cond_broadcast(&loader->work);  // all workers share the batch that now has room
      break;
    }
  }
  pthread_mutex_unlock(&loader->lock);
}

void brim_loader_get_stats(brim_loader *loader, brim_loader_stats *out) {
  pthread_mutex_lock(&loader->lock);
  *out = loader->stats;
  pthread_mutex_unlock(&loader->lock);
}

const uint8_t *brim_loader_left_out(const brim_loader *loader, size_t *bytes) {
  *bytes = loader->layout.broken_bytes;
  return loader->broken;
}
