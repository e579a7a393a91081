// The loader's sizes and plan: everything that follows from the options and the source
// before a batch is read.
#include <string.h>

#include "data/loader/data_loader_int.h"

enum {
  MAX_WORKERS = 1024,
  MAX_PREFETCH = 1024,
  // A ring that would be larger holds fewer batches, down to MIN_SLOTS: with large batches it is
  // the workers' sharing of one that keeps the device busy, not how many are ready.
  RING_BYTES = 1 << 30,
  MIN_SLOTS = 4,
  // A piece is worth the lock that hands it out: so many bytes that are only copied, so many rows
  // that are worked on.
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
    if (l->views > 1) {  // whatever drop_last says
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
  // All was read already: what would end the run later ends it now.
  const brim_resident_broken *broken = o->resident ? o->resident->broken : NULL;
  if (broken && !o->skip_broken && broken->index < brim_loader_usable(o, count)) {
    brim_status_set_detail(broken->detail);
    brim_loader_advise();
    return broken->status;
  }
  return BRIM_OK;
}

//---------------------------------- sizes ----------------------------------

// a * b rounded up to `align`.
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

// What a thread needs to fill.
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

// Slots on the device, what lies behind them, and the lists on the host.
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

static brim_status made_on_device(const brim_source *source, const brim_loader_options *o,
                                  const brim_loader_maker *maker, brim_loader_layout *l,
                                  bool *fits) {
  const brim_augment_table *table = maker->table;
  brim_augment_program program;
  BRIM_TRY(brim_resident_program(source, o->transforms, &program));
  BRIM_TRY(table->supports(&program));
  // Rows that are left as they are go where they belong at once.
  l->staged = maker->mapped && (program.stage_count > 0 || program.views > 1 ||
                                program.out_bytes != program.sample_bytes);
  // Checked first: the table may count rows without looking at the limits.
  *fits = device_sizes(source, o, maker->mapped, 0, l) &&
          device_sizes(source, o, maker->mapped, table->scratch_bytes(&program, o->batch), l);
  return BRIM_OK;
}

brim_status brim_loader_layout_make(const brim_source *source, const brim_loader_options *o,
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
    BRIM_TRY(made_on_device(source, o, maker, &l, &fits));
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

brim_loader_maker brim_loader_maker_of(const brim_resident *resident) {
  return (brim_loader_maker){.table = resident ? resident->table : NULL,
                             .mapped = resident && resident->locked};
}

//---------------------------------- plan ----------------------------------

brim_status brim_loader_plan_with(const brim_source *source, const brim_loader_options *options,
                                  const brim_loader_maker *maker, brim_plan *plan) {
  brim_loader_layout layout;
  BRIM_TRY(brim_loader_layout_make(source, options, maker, &layout));
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
  const brim_loader_maker maker = brim_loader_maker_of(options->resident);
  return brim_loader_plan_with(source, options, &maker, plan);
}
