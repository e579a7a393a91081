// Where the supervised workload keeps its samples: in files, which loader threads read or the device
// reads by itself, in host memory, on the device. Decided
// from the plan alone (and what was free when the workload was opened), so that planning a setting
// and building it agree.
#include <string.h>

#include "workload/workload_int.h"

// Left free on a device beside plan and data set: modules, handles, recorded graphs.
static const uint64_t room_bytes = (uint64_t)1 << 30;

// The set for training or evaluation, as the decision sees it.
typedef struct set {
  const brim_source *source;  // NULL = there is none
  const brim_supervised_mapped *mapped;
  brim_loader_options options;
} set;

// What is taken so far besides the network's plan.
typedef struct taken {
  uint64_t device, host;
  uint64_t locked;   // pages of mapped files
  uint64_t loaders;  // counted where gpu.memory_limit is also the host's
} taken;

const char *brim_supervised_cache_name(brim_cache cache) {
  return cache == BRIM_CACHE_MAPPED ? "mapped" : brim_cache_choices[cache];
}

static void sets_of(const brim_supervised *w, const brim_setting *setting, set *train, set *eval) {
  brim_net_spec spec;
  train->source = w->train_source;
  eval->source = w->eval_source;
  train->mapped = &w->train_mapped;
  eval->mapped = &w->eval_mapped;
  brim_supervised_apply(w, setting, &spec, &train->options, &eval->options);
}

// Device bytes of the set and the batches made of it; 0 where the device cannot, the detail says why.
static uint64_t resident_bytes(const brim_supervised *w, const set *s) {
  brim_plan plan;
  memset(&plan, 0, sizeof plan);
  if (!s->source ||
      brim_resident_plan(w->context.registry, w->context.device, s->source, &s->options, &plan)) {
    return 0;
  }
  return plan.bytes[BRIM_PLACE_DEVICE];
}

// Every rank on this machine keeps its own.
static uint64_t host_bytes(const brim_supervised *w) {
  return w->host_bytes / (uint64_t)w->loader.world;
}

// 0 where there is nothing to keep: images of different sizes.
static uint64_t ram_bytes(const brim_source *source) {
  return source && !source->info.varies ? brim_source_cache_bytes(source) : 0;
}

//---------------------------------- choosing ----------------------------------

// Does the device have so much beside what is planned?
static bool device_has(const brim_supervised *w, uint64_t planned, uint64_t bytes) {
  uint64_t limit = w->spec.memory_limit, need = planned + bytes + room_bytes;
  uint64_t free_bytes = (uint64_t)(0.9 * (double)w->device_bytes);
  return need <= free_bytes && (limit == 0 || need <= limit);
}

// Whether the device shall read the set's mapped file; `why` says what speaks against it, where there
// is one at all. Locked pages cannot leave memory: half of what is free is the most.
static bool choose_mapped(const brim_supervised *w, const set *s, const brim_plan *plan, taken *t,
                          char why[256]) {
  brim_plan mapped;
  char need[32], have[32];
  why[0] = '\0';
  if (!s->source || s->mapped->bytes == 0) {
    if (s->source) snprintf(why, 256, "%s", s->mapped->why);
    return false;
  }
  if (!s->options.pin_memory) return false;  // what that costs is told apart
  uint64_t locked = t->locked + s->mapped->bytes;
  if (locked > w->host_bytes / 2) {  // ranks lock the same pages: they count once
    brim_format_bytes(locked, need);
    brim_format_bytes(w->host_bytes, have);
    snprintf(why, 256, brim_tr("it would page-lock %s, more than half of the %s that are free"),
             need, have);
    return false;
  }
  memset(&mapped, 0, sizeof mapped);
  if (brim_mapped_plan(w->context.registry, w->context.device, s->source, &s->options, &mapped)) {
    snprintf(why, 256, "%s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  uint64_t bytes = mapped.bytes[BRIM_PLACE_DEVICE];
  if (!device_has(w, plan->bytes[BRIM_PLACE_DEVICE] + t->device, bytes)) {
    brim_format_bytes(bytes, need);
    snprintf(why, 256, brim_tr("the GPU has no %s left for the batches"), need);
    return false;
  }
  t->device += bytes;
  t->locked = locked;
  return true;
}

// Where device and host are one memory, gpu.memory_limit holds for the cache, the network and the
// loaders together.
static brim_status count_loaders(const brim_supervised *w, const set *train, const set *eval,
                                 taken *t) {
  const brim_supervised_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
  brim_plan loaders;
  if (w->spec.memory_limit == 0 || !w->context.device->info.host_memory) return BRIM_OK;
  memset(&loaders, 0, sizeof loaders);
  BRIM_TRY(brim_supervised_plan_data(w, &none, &train->options, &eval->options, &loaders));
  t->loaders = loaders.bytes[BRIM_PLACE_HOST] + loaders.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

static bool limit_has(const brim_supervised *w, const brim_plan *plan, uint64_t bytes) {
  uint64_t limit = w->spec.memory_limit;
  if (limit == 0 || !w->context.device->info.host_memory) return true;
  uint64_t planned = plan->bytes[BRIM_PLACE_DEVICE] + plan->bytes[BRIM_PLACE_HOST];
  return planned <= limit && bytes <= limit - planned;
}

static brim_cache choose_auto(const brim_supervised *w, const set *s, const brim_plan *plan,
                              taken *t, char why[256]) {
  if (!s->source) return BRIM_CACHE_NONE;
  uint64_t bytes = resident_bytes(w, s);
  if (bytes > 0 && device_has(w, plan->bytes[BRIM_PLACE_DEVICE] + t->device, bytes)) {
    t->device += bytes;
    return BRIM_CACHE_GPU;
  }
  brim_status_clear();  // a device that cannot is an answer
  if (choose_mapped(w, s, plan, t, why)) return BRIM_CACHE_MAPPED;
  bytes = s->source->info.costly ? ram_bytes(s->source) : 0;
  uint64_t most = host_bytes(w) / 4;
  if (bytes == 0 || bytes > most || t->host > most - bytes) return BRIM_CACHE_NONE;
  if (!limit_has(w, plan, t->loaders + t->host + bytes)) return BRIM_CACHE_NONE;
  t->host += bytes;
  return BRIM_CACHE_RAM;
}

static brim_cache choose_none(const brim_supervised *w, const set *s, const brim_plan *plan,
                              taken *t, char why[256]) {
  return choose_mapped(w, s, plan, t, why) ? BRIM_CACHE_MAPPED : BRIM_CACHE_NONE;
}

static void probe(brim_supervised *w, const brim_source *source, const brim_transforms *transforms,
                  brim_supervised_mapped *out) {
  brim_source_rows rows;
  const brim_registry *registry = w->context.registry;
  brim_device *device = w->context.device;
  memset(out, 0, sizeof *out);
  if (device->info.host_memory || !source || !brim_source_rows_of(source, &rows)) return;
  brim_status_clear();
  out->bytes = brim_mapped_bytes(registry, device, source, transforms);
  if (out->bytes && brim_mapped_probe(registry, device, source)) out->bytes = 0;
  if (out->bytes == 0) snprintf(out->why, sizeof out->why, "%s", brim_status_detail());
  brim_status_clear();
}

void brim_supervised_probe_mapped(brim_supervised *w) {
  probe(w, w->train_source, w->train_transforms, &w->train_mapped);
  probe(w, w->eval_source, w->eval_transforms, &w->eval_mapped);
}

static brim_status refuse_gpu(const brim_supervised *w) {
  char why[400];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(BRIM_EUNSUPPORTED, "data.cache=gpu is not possible on %s: %s",
                   w->context.device->info.name, why[0] ? why : brim_tr("the data set is empty"));
}

static brim_status check_ram(const brim_supervised *w) {
  uint64_t bytes = ram_bytes(w->train_source);
  char need[32], have[32];
  if (bytes == 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "data.cache=ram is not possible: the images differ in size; convert them to "
                     "one size with `brim data convert`, or use data.cache=none");
  }
  if (bytes <= host_bytes(w)) return BRIM_OK;
  brim_format_bytes(bytes, need);
  brim_format_bytes(host_bytes(w), have);
  return brim_fail(
      BRIM_ENOMEM,
      "data.cache=ram needs %s for the training set, but %s are free; use data.cache=none", need,
      have);
}

brim_status brim_supervised_choose_cache(const brim_supervised *w, const brim_setting *setting,
                                         const brim_plan *plan, brim_supervised_caching *out) {
  brim_cache asked = (brim_cache)setting->value[BRIM_SUPERVISED_CACHE];
  set train, eval;
  taken t = {0};
  char ignored[256];
  sets_of(w, setting, &train, &eval);
  memset(out, 0, sizeof *out);
  switch (asked) {
    case BRIM_CACHE_GPU:
      if (resident_bytes(w, &train) == 0) return refuse_gpu(w);
      out->train = BRIM_CACHE_GPU;
      out->eval = resident_bytes(w, &eval) > 0 ? BRIM_CACHE_GPU : BRIM_CACHE_NONE;
      brim_status_clear();
      return BRIM_OK;
    case BRIM_CACHE_RAM:
      BRIM_TRY(check_ram(w));
      out->train = BRIM_CACHE_RAM;
      t.host = ram_bytes(w->eval_source);
      if (t.host > 0 && t.host <= host_bytes(w) - ram_bytes(w->train_source)) {
        out->eval = BRIM_CACHE_RAM;
      }
      return BRIM_OK;
    case BRIM_CACHE_AUTO:
      BRIM_TRY(count_loaders(w, &train, &eval, &t));
      out->train = choose_auto(w, &train, plan, &t, out->why);
      out->eval = choose_auto(w, &eval, plan, &t, ignored);
      return BRIM_OK;
    default:
      out->train = choose_none(w, &train, plan, &t, out->why);
      out->eval = choose_none(w, &eval, plan, &t, ignored);
      return BRIM_OK;
  }
}

uint64_t brim_supervised_asked_bytes(const brim_supervised *w, const brim_setting *setting) {
  if (setting->value[BRIM_SUPERVISED_CACHE] != BRIM_CACHE_GPU) return 0;
  set train, eval;
  sets_of(w, setting, &train, &eval);
  uint64_t bytes = resident_bytes(w, &train) + resident_bytes(w, &eval);
  brim_status_clear();
  return bytes;
}

//---------------------------------- planning ----------------------------------

static brim_status plan_set(const brim_supervised *w, const brim_source *source, brim_cache cache,
                            const brim_loader_options *options, brim_plan *plan) {
  if (!source) return BRIM_OK;
  brim_source bare = *source;
  bare.cache = NULL;  // what is kept under this setting, not under the one before
  if (cache == BRIM_CACHE_GPU) {
    return brim_resident_plan(w->context.registry, w->context.device, &bare, options, plan);
  }
  if (cache == BRIM_CACHE_MAPPED) {
    return brim_mapped_plan(w->context.registry, w->context.device, &bare, options, plan);
  }
  BRIM_TRY(brim_loader_plan(&bare, options, plan));
  if (cache != BRIM_CACHE_RAM) return BRIM_OK;
  return brim_plan_add(plan, BRIM_PLACE_HOST, BRIM_N_("dataset cache"), ram_bytes(source));
}

brim_status brim_supervised_plan_data(const brim_supervised *w,
                                      const brim_supervised_caching *caching,
                                      const brim_loader_options *train,
                                      const brim_loader_options *eval, brim_plan *plan) {
  BRIM_TRY(plan_set(w, w->train_source, caching->train, train, plan));
  BRIM_TRY(plan_set(w, w->eval_source, caching->eval, eval, plan));
  return brim_contrastive_plan_bank(w, caching, train, eval, plan);
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

static brim_status keep_one(brim_supervised *w, brim_source *source, uint64_t limit,
                            brim_cache cache, brim_resident **resident) {
  int threads = (int)brim_supervised_default_workers();
  if (*resident && !is_kind(*resident, cache)) give_back(resident);
  if (!source) return BRIM_OK;
  if (cache == BRIM_CACHE_RAM && !source->cache) return brim_source_keep(source);
  if (*resident) return BRIM_OK;
  if (cache == BRIM_CACHE_GPU) {
    return brim_resident_create(w->context.registry, w->context.device, source, limit, threads,
                                resident);
  }
  if (cache != BRIM_CACHE_MAPPED) return BRIM_OK;
  return brim_mapped_create(w->context.registry, w->context.device, source, limit, threads,
                            resident);
}

// A set that was to be mapped and cannot be locked is read by loader threads, now and from now on.
static brim_status keep_or_read(brim_supervised *w, brim_source *source, uint64_t limit,
                                brim_cache *cache, brim_resident **resident,
                                brim_supervised_mapped *mapped) {
  brim_status status = keep_one(w, source, limit, *cache, resident);
  if (*cache != BRIM_CACHE_MAPPED || status != BRIM_EUNSUPPORTED) return status;
  *cache = BRIM_CACHE_NONE;
  mapped->bytes = 0;
  snprintf(mapped->why, sizeof mapped->why, "%s", brim_status_detail());
  w->has_planned = false;
  brim_status_clear();
  return BRIM_OK;
}

// Once: a bench has many settings.
static void say_why(brim_supervised *w) {
  if (!w->caching.why[0] || w->said_why) return;
  w->said_why = true;
  brim_log_info("workload",
                "the GPU cannot read rows directly from the mapped file: %s; loader threads copy "
                "them instead",
                w->caching.why);
}

brim_status brim_supervised_keep(brim_supervised *w, const brim_supervised_caching *caching) {
  bool kept = w->train_source->cache || (w->eval_source && w->eval_source->cache);
  bool keeps = caching->train == BRIM_CACHE_RAM || caching->eval == BRIM_CACHE_RAM;
  w->caching = *caching;
  if (kept && !keeps) {
    give_back(&w->train_resident);
    give_back(&w->eval_resident);
    BRIM_TRY(brim_supervised_reopen_sources(w));
  }
  brim_supervised_caching *c = &w->caching;
  bool mapped = c->train == BRIM_CACHE_MAPPED;
  BRIM_TRY(keep_or_read(w, w->train_source, w->loader.limit, &c->train, &w->train_resident,
                        &w->train_mapped));
  if (mapped && c->train == BRIM_CACHE_NONE) {
    snprintf(c->why, sizeof c->why, "%s", w->train_mapped.why);
  }
  say_why(w);
  return keep_or_read(w, w->eval_source, 0, &c->eval, &w->eval_resident, &w->eval_mapped);
}
