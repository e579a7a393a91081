// Where samples are kept: in files, which loader threads read or the device reads on its own, in
// host memory, on the device.
#include "workload/workload_cache.h"

#include <string.h>

const char *const brim_cache_choices[] = {"none", "ram", "gpu", "auto", NULL};

// Left free on a device beside plan and data set: modules, handles, recorded graphs.
static const uint64_t room_bytes = (uint64_t)1 << 30;

// What is taken so far besides the network's plan.
typedef struct taken {
  uint64_t device, host;
  uint64_t locked;  // pages of mapped files
} taken;

const char *brim_cache_name(brim_cache cache) {
  return cache == BRIM_CACHE_MAPPED ? "mapped" : brim_cache_choices[cache];
}

bool brim_cache_needs_no_workers(brim_cache cache) {
  return cache == BRIM_CACHE_GPU || cache == BRIM_CACHE_MAPPED;
}

// Three eighths of the cores: in the middle between a quarter and half.
int64_t brim_work_default_workers(void) {
  int64_t cores = brim_cpu_count(), half = cores / 2;
  int64_t workers = (3 * cores + 7) / 8;
  if (workers > half) workers = half;
  return workers > 1 ? workers : 1;
}

static const brim_loader_options *options_of(const brim_work_data *d, const brim_work_set *s,
                                             const brim_cache_request *r) {
  return s == &d->train ? r->train : r->eval;
}

// Device bytes of the set and the batches made of it; 0 where the device cannot, the detail says why.
static uint64_t resident_bytes(const brim_work_data *d, const brim_work_set *s,
                               const brim_loader_options *options) {
  brim_plan plan;
  memset(&plan, 0, sizeof plan);
  if (!s->source ||
      brim_resident_plan(d->context.registry, d->context.device, s->source, options, &plan)) {
    return 0;
  }
  return plan.bytes[BRIM_PLACE_DEVICE];
}

// Every rank on this machine keeps its own.
static uint64_t host_bytes(const brim_work_data *d, const brim_cache_request *r) {
  return d->host_bytes / (uint64_t)r->train->world;
}

// 0 where there is nothing to keep: images of different sizes.
static uint64_t ram_bytes(const brim_source *source) {
  return source && !source->info.varies ? brim_source_cache_bytes(source) : 0;
}

//---------------------------------- choosing ----------------------------------

// Does the device have so much beside what is planned?
static bool device_has(const brim_work_data *d, const brim_cache_request *r, const taken *t,
                       uint64_t bytes) {
  uint64_t planned = r->plan->bytes[BRIM_PLACE_DEVICE] + t->device;
  uint64_t limit = r->limit, need = planned + bytes + room_bytes;
  uint64_t free_bytes = (uint64_t)(0.9 * (double)d->device_bytes);
  return need <= free_bytes && (limit == 0 || need <= limit);
}

// Whether the device shall read the set's mapped file; `why` says what speaks against it, where there
// is one at all. Locked pages cannot leave memory: half of what is free is the most.
static bool choose_mapped(const brim_work_data *d, const brim_work_set *s,
                          const brim_cache_request *r, taken *t, char why[256]) {
  const brim_loader_options *options = options_of(d, s, r);
  brim_plan mapped;
  char need[32], have[32];
  why[0] = '\0';
  if (!s->source || s->mapped.bytes == 0) {
    if (s->source) snprintf(why, 256, "%s", s->mapped.why);
    return false;
  }
  if (!options->pin_memory) return false;  // what that costs is told apart
  uint64_t locked = t->locked + s->mapped.bytes;
  if (locked > d->host_bytes / 2) {  // ranks lock the same pages: they count once
    brim_format_bytes(locked, need);
    brim_format_bytes(d->host_bytes, have);
    brim_msg_format(why, 256,
                    brim_tr("it would page-lock %s, more than half of the %s that are free"), need,
                    have);
    return false;
  }
  memset(&mapped, 0, sizeof mapped);
  if (brim_mapped_plan(d->context.registry, d->context.device, s->source, options, &mapped)) {
    snprintf(why, 256, "%s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  uint64_t bytes = mapped.bytes[BRIM_PLACE_DEVICE];
  if (!device_has(d, r, t, bytes)) {
    brim_format_bytes(bytes, need);
    brim_msg_format(why, 256, brim_tr("the GPU has no %s left for the batches"), need);
    return false;
  }
  t->device += bytes;
  t->locked = locked;
  return true;
}

bool brim_work_counts_loaders(const brim_work_data *d, uint64_t limit) {
  return limit > 0 && d->context.device->info.host_memory;
}

// Where device and host are one memory, gpu.memory_limit holds for the cache, the network and the
// loaders together.
static bool limit_has(const brim_work_data *d, const brim_cache_request *r, uint64_t bytes) {
  if (!brim_work_counts_loaders(d, r->limit)) return true;
  uint64_t planned = r->plan->bytes[BRIM_PLACE_DEVICE] + r->plan->bytes[BRIM_PLACE_HOST];
  return planned <= r->limit && r->loaders + bytes <= r->limit - planned;
}

static brim_cache choose_auto(const brim_work_data *d, const brim_work_set *s,
                              const brim_cache_request *r, taken *t, char why[256]) {
  if (!s->source) return BRIM_CACHE_NONE;
  uint64_t bytes = resident_bytes(d, s, options_of(d, s, r));
  if (bytes > 0 && device_has(d, r, t, bytes)) {
    t->device += bytes;
    return BRIM_CACHE_GPU;
  }
  brim_status_clear();  // a device that cannot is an answer
  if (choose_mapped(d, s, r, t, why)) return BRIM_CACHE_MAPPED;
  bytes = s->source->info.costly ? ram_bytes(s->source) : 0;
  uint64_t most = host_bytes(d, r) / 4;
  if (bytes == 0 || bytes > most || t->host > most - bytes) return BRIM_CACHE_NONE;
  if (!limit_has(d, r, t->host + bytes)) return BRIM_CACHE_NONE;
  t->host += bytes;
  return BRIM_CACHE_RAM;
}

static brim_cache choose_none(const brim_work_data *d, const brim_work_set *s,
                              const brim_cache_request *r, taken *t, char why[256]) {
  return choose_mapped(d, s, r, t, why) ? BRIM_CACHE_MAPPED : BRIM_CACHE_NONE;
}

static void probe(const brim_work_data *d, brim_work_set *s) {
  brim_source_rows rows;
  const brim_registry *registry = d->context.registry;
  brim_device *device = d->context.device;
  brim_work_mapped *out = &s->mapped;
  memset(out, 0, sizeof *out);
  if (device->info.host_memory || !s->source || !brim_source_rows_of(s->source, &rows)) return;
  brim_status_clear();
  out->bytes = brim_mapped_bytes(registry, device, s->source, s->transforms);
  if (out->bytes && brim_mapped_probe(registry, device, s->source)) out->bytes = 0;
  if (out->bytes == 0) snprintf(out->why, sizeof out->why, "%s", brim_status_detail());
  brim_status_clear();
}

brim_status brim_work_data_measure(brim_work_data *d) {
  uint64_t total = 0;
  brim_machine_free_memory("", &d->host_bytes, &total);
  BRIM_TRY(brim_device_memory(d->context.device, &d->device_bytes, &total));
  probe(d, &d->train);
  probe(d, &d->eval);
  return BRIM_OK;
}

static brim_status refuse_gpu(const brim_work_data *d) {
  char why[400];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(BRIM_EUNSUPPORTED, "data.cache=gpu is not possible on %s: %s",
                   d->context.device->info.name, why[0] ? why : brim_tr("the data set is empty"));
}

static brim_status check_ram(const brim_work_data *d, const brim_cache_request *r) {
  uint64_t bytes = ram_bytes(d->train.source);
  char need[32], have[32];
  if (bytes == 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "data.cache=ram is not possible: the images differ in size; convert them to "
                     "one size with `brim data convert`, or use data.cache=none");
  }
  if (bytes <= host_bytes(d, r)) return BRIM_OK;
  brim_format_bytes(bytes, need);
  brim_format_bytes(host_bytes(d, r), have);
  return brim_fail(
      BRIM_ENOMEM,
      "data.cache=ram needs %s for the training set, but %s are free; use data.cache=none", need,
      have);
}

brim_status brim_work_choose_cache(const brim_work_data *d, const brim_cache_request *r,
                                   brim_work_caching *out) {
  taken t = {0};
  char ignored[256];
  memset(out, 0, sizeof *out);
  switch (r->asked) {
    case BRIM_CACHE_GPU:
      if (resident_bytes(d, &d->train, r->train) == 0) return refuse_gpu(d);
      out->train = BRIM_CACHE_GPU;
      out->eval = resident_bytes(d, &d->eval, r->eval) > 0 ? BRIM_CACHE_GPU : BRIM_CACHE_NONE;
      brim_status_clear();
      return BRIM_OK;
    case BRIM_CACHE_RAM:
      BRIM_TRY(check_ram(d, r));
      out->train = BRIM_CACHE_RAM;
      t.host = ram_bytes(d->eval.source);
      if (t.host > 0 && t.host <= host_bytes(d, r) - ram_bytes(d->train.source)) {
        out->eval = BRIM_CACHE_RAM;
      }
      return BRIM_OK;
    case BRIM_CACHE_AUTO:
      out->train = choose_auto(d, &d->train, r, &t, out->why);
      out->eval = choose_auto(d, &d->eval, r, &t, ignored);
      return BRIM_OK;
    default:
      out->train = choose_none(d, &d->train, r, &t, out->why);
      out->eval = choose_none(d, &d->eval, r, &t, ignored);
      return BRIM_OK;
  }
}

uint64_t brim_work_left_to_net(const brim_work_data *d, const brim_cache_request *r) {
  if (r->limit == 0) return 0;
  uint64_t others = r->loaders;
  if (r->asked == BRIM_CACHE_GPU) {
    others += resident_bytes(d, &d->train, r->train) + resident_bytes(d, &d->eval, r->eval);
    brim_status_clear();
  }
  return r->limit > others ? r->limit - others : 1;  // 0 would be no limit
}

//---------------------------------- planning ----------------------------------

static brim_status plan_set(const brim_work_data *d, const brim_source *source, brim_cache cache,
                            const brim_loader_options *options, brim_plan *plan) {
  if (!source) return BRIM_OK;
  brim_source bare = *source;
  bare.cache = NULL;  // what is kept under this setting, not under the one before
  if (cache == BRIM_CACHE_GPU) {
    return brim_resident_plan(d->context.registry, d->context.device, &bare, options, plan);
  }
  if (cache == BRIM_CACHE_MAPPED) {
    return brim_mapped_plan(d->context.registry, d->context.device, &bare, options, plan);
  }
  BRIM_TRY(brim_loader_plan(&bare, options, plan));
  if (cache != BRIM_CACHE_RAM) return BRIM_OK;
  return brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_CACHE_ROW, ram_bytes(source));
}

brim_status brim_work_plan_sets(const brim_work_data *d, const brim_work_caching *caching,
                                const brim_loader_options *train, const brim_loader_options *eval,
                                brim_plan *plan) {
  BRIM_TRY(plan_set(d, d->train.source, caching->train, train, plan));
  return plan_set(d, d->eval.source, caching->eval, eval, plan);
}

brim_status brim_work_request(const brim_work_data *d, const brim_loader_options *train,
                              const brim_loader_options *eval, brim_cache_request *r) {
  const brim_work_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
  brim_plan loaders;
  r->train = train;
  r->eval = eval;
  r->loaders = 0;
  if (!brim_work_counts_loaders(d, r->limit)) return BRIM_OK;
  memset(&loaders, 0, sizeof loaders);
  BRIM_TRY(brim_work_plan_sets(d, &none, train, eval, &loaders));
  r->loaders = loaders.bytes[BRIM_PLACE_HOST] + loaders.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

//---------------------------------- keeping ----------------------------------

static void give_back(brim_resident **resident) {
  brim_resident_destroy(*resident);
  *resident = NULL;
}

static bool is_kind(const brim_resident *resident, brim_cache cache) {
  bool mapped = brim_resident_locked_bytes(resident) > 0;
  return cache == (mapped ? BRIM_CACHE_MAPPED : BRIM_CACHE_GPU);
}

static brim_status keep_one(const brim_work_data *d, brim_work_set *s, uint64_t limit,
                            brim_cache cache) {
  const brim_registry *registry = d->context.registry;
  brim_device *device = d->context.device;
  int threads = (int)brim_work_default_workers();
  if (s->resident && !is_kind(s->resident, cache)) give_back(&s->resident);
  if (!s->source) return BRIM_OK;
  if (cache == BRIM_CACHE_RAM && !s->source->cache) return brim_source_keep(s->source);
  if (s->resident) return BRIM_OK;
  if (cache == BRIM_CACHE_GPU) {
    return brim_resident_create(registry, device, s->source, limit, threads, &s->resident);
  }
  if (cache != BRIM_CACHE_MAPPED) return BRIM_OK;
  return brim_mapped_create(registry, device, s->source, limit, threads, &s->resident);
}

// A set that was to be mapped and cannot be locked is read by loader threads, now and from now on.
static brim_status keep_or_read(brim_work_data *d, brim_work_set *s, uint64_t limit,
                                brim_cache *cache) {
  brim_status status = keep_one(d, s, limit, *cache);
  if (*cache != BRIM_CACHE_MAPPED || status != BRIM_EUNSUPPORTED) return status;
  *cache = BRIM_CACHE_NONE;
  s->mapped.bytes = 0;
  snprintf(s->mapped.why, sizeof s->mapped.why, "%s", brim_status_detail());
  d->has_planned = false;
  brim_status_clear();
  return BRIM_OK;
}

// Once: a bench has many settings.
static void say_why(brim_work_data *d) {
  if (!d->caching.why[0] || d->reported_why) return;
  d->reported_why = true;
  brim_log_info("workload",
                "the GPU cannot read rows directly from the mapped file: %s; loader threads copy "
                "them instead",
                d->caching.why);
}

brim_status brim_work_keep(brim_work_data *d, uint64_t limit) {
  brim_work_caching *c = &d->caching;
  *c = d->planned;
  bool kept = d->train.source->cache || (d->eval.source && d->eval.source->cache);
  bool keeps = c->train == BRIM_CACHE_RAM || c->eval == BRIM_CACHE_RAM;
  if (kept && !keeps) {
    brim_work_drop_residents(d);
    BRIM_TRY(brim_work_data_reopen(d));
  }
  bool mapped = c->train == BRIM_CACHE_MAPPED;
  BRIM_TRY(keep_or_read(d, &d->train, limit, &c->train));
  if (mapped && c->train == BRIM_CACHE_NONE) {
    snprintf(c->why, sizeof c->why, "%s", d->train.mapped.why);
  }
  say_why(d);
  return keep_or_read(d, &d->eval, 0, &c->eval);
}

void brim_work_drop_residents(brim_work_data *d) {
  give_back(&d->train.resident);
  give_back(&d->eval.resident);
}

uint64_t brim_work_locked_bytes(const brim_work_data *d) {
  return brim_resident_locked_bytes(d->train.resident) +
         brim_resident_locked_bytes(d->eval.resident);
}
