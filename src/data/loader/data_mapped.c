// A mapped set: samples stay in the source's mapped file, whose pages are locked so that the device
// reads rows of it on its own. Only the targets are copied to the device. A locked page cannot
// leave memory and stays what it was when another process cuts the file short: the device never
// meets a lost one.
#include <unistd.h>

#include "data/loader/data_loader_int.h"

//---------------------------------- what can be mapped ----------------------------------

// Whole pages around all rows.
typedef struct pages {
  const uint8_t *at;
  size_t bytes;
  uint64_t skip;  // of row 0 in them
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
  const brim_augment_table *table = brim_resident_table(registry, device);
  return table ? brim_mapped_bytes_with(table, source, transforms) : 0;
}

brim_status brim_mapped_probe(const brim_registry *registry, brim_device *device,
                              const brim_source *source) {
  const brim_augment_table *table = brim_resident_table(registry, device);
  brim_source_rows rows;
  pages p;
  void *near = NULL;
  const void *address;
  if (!table) return BRIM_EUNSUPPORTED;
  BRIM_TRY(check_table(table));
  BRIM_TRY(find_pages(source, &rows, &p));
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, BRIM_RESIDENT_ALIGN, &near));
  brim_status status = table->lock(p.at, page_bytes(), near, &address);
  if (!status) table->unlock(p.at);
  brim_device_free(device, BRIM_BUFFER_DEVICE, near);
  return status;
}

//---------------------------------- the plan ----------------------------------

// Of the targets on the device; never 0, so that there is memory of the device to name it by.
static uint64_t target_bytes(const brim_source *source, uint64_t count) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)source->target_bytes, count, &bytes) ||
      bytes > PTRDIFF_MAX / 2) {
    return 0;
  }
  return brim_resident_round(bytes ? bytes : 1);
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

//---------------------------------- create ----------------------------------

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
  return brim_resident_fill(set, source, threads);
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
  const brim_augment_table *table = brim_resident_table(registry, device);
  if (!table) return BRIM_EUNSUPPORTED;
  return brim_mapped_create_with(table, device, source, limit, threads, out);
}

uint64_t brim_resident_locked_bytes(const brim_resident *resident) {
  return resident ? resident->locked_bytes : 0;
}
