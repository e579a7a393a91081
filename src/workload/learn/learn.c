// Opening a workload that trains a network on a data set, planning its settings and building them: which
// negatives a loss of pairs has, where samples are kept, the network and its loaders.
#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_plan.h"

//---------------------------------- negatives ----------------------------------

// `auto` chooses exact accumulation if it costs less than this share more. One more forward pass costs a
// third.
static const double worth_it = 0.40;

static void read_pairs(const brim_config *config, brim_pairs *c) {
  const char *text = brim_config_string(config, "contrastive.accumulation");
  memset(c, 0, sizeof *c);
  c->exact_cost = (double)NAN;
  c->accumulation = BRIM_ACCUMULATION_AUTO;
  if (text && strcmp(text, "plain") == 0) c->accumulation = BRIM_ACCUMULATION_PLAIN;
  if (text && strcmp(text, "exact") == 0) c->accumulation = BRIM_ACCUMULATION_EXACT;
}

static void report_negatives(brim_pairs *c, const brim_batching *batching,
                             const brim_net_spec *spec) {
  if (spec->views != 2 || spec->accumulation < 2) return;
  long long all = (long long)(spec->batch * spec->accumulation);
  double percent = 100 * c->exact_cost;
  if (!spec->full_batch_negatives && brim_batching_is_smaller(batching, spec)) {
    if (c->warned != spec->batch) {
      brim_log_warn("workload",
                    "negatives now come from the smaller micro-batch of %lld; to keep all %lld, "
                    "set contrastive.accumulation: exact",
                    (long long)spec->batch, all);
    }
    c->warned = spec->batch;
    return;
  }
  if (c->reported) return;
  c->reported = true;
  if (spec->full_batch_negatives) {
    brim_log_info(
        "workload",
        "accumulation: exact, each of %lld samples has all others as negatives; computing "
        "each micro-batch twice costs %.0f %% more",
        all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isfinite(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld; those of all "
                  "%lld would cost %.0f %% more (contrastive.accumulation: exact)",
                  (long long)spec->batch, all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isinf(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld, not of all "
                  "%lld; exact is not possible here: %s",
                  (long long)spec->batch, all, c->why_plain);
  } else {
    brim_log_info(
        "workload",
        "accumulation: plain, negatives are those of a micro-batch of %lld, not of all %lld",
        (long long)spec->batch, all);
  }
}

// Plans once what exact accumulation costs in FLOPs: the share of a forward pass hardly depends on the
// setting.
static brim_status plan_cost(brim_pairs *c, brim_device *device, const brim_net_spec *spec) {
  brim_plan plain, exact;
  brim_net_spec s = *spec;
  if (!isnan(c->exact_cost)) return BRIM_OK;
  memset(&plain, 0, sizeof plain);
  memset(&exact, 0, sizeof exact);
  s.full_batch_negatives = false;
  BRIM_TRY(brim_net_plan(device, &s, &plain));
  s.full_batch_negatives = true;
  brim_status status = brim_net_plan(device, &s, &exact);
  bool possible = status == BRIM_OK;
  // `auto` treats the failure as "impossible"; exact, or a lack of memory, reports it
  bool memory = status == BRIM_ENOMEM || status == BRIM_EOOM;  // may succeed another time
  if (memory || (!possible && c->accumulation != BRIM_ACCUMULATION_AUTO)) return status;
  if (!possible) {
    snprintf(c->why_plain, sizeof c->why_plain, "%s", brim_status_detail());
    brim_utf8_trim(c->why_plain);
    brim_status_clear();
  }
  c->exact_cost = possible ? exact.flops_per_step / plain.flops_per_step - 1 : (double)INFINITY;
  return BRIM_OK;
}

// True if the config, or the checkpoint that training resumes from, made the choice.
static bool is_chosen(const brim_pairs *c) {
  return c->accumulation != BRIM_ACCUMULATION_AUTO || c->chosen != BRIM_CHOSEN_NOT;
}

// True if exact is worth any price: plain accumulation would learn nothing (micro-batches of one sample), or
// something else than asked for (too little memory split one batch).
static bool must_be_exact(const brim_pairs *c, const brim_batching *batching,
                          const brim_net_spec *spec) {
  bool asked = batching->accumulation > 1;
  if (spec->batch == 1) return true;
  if (c->chosen == BRIM_CHOSEN_PLAIN) return false;
  return !asked && brim_batching_is_smaller(batching, spec);
}

static bool has_negatives(const brim_pairs *c, int64_t batch, int64_t accumulation) {
  if (batch > 1) return true;
  bool plain = c->accumulation == BRIM_ACCUMULATION_PLAIN;
  bool impossible = isinf(c->exact_cost);
  return accumulation > 1 && !plain && !impossible;
}

static brim_status check_negatives(const brim_net_spec *spec) {
  if (spec->batch > 1 || spec->full_batch_negatives) return BRIM_OK;
  if (spec->accumulation < 2) {
    return brim_fail(BRIM_EINVAL,
                     "a step of one sample has no negatives, so contrastive training cannot learn; "
                     "set data.batch_size to 2 or more");
  }
  return brim_fail(BRIM_EINVAL,
                   "micro-batches of one sample have no negatives, so contrastive training cannot "
                   "learn; set data.batch_size to 2 or more, or contrastive.accumulation: exact");
}

static brim_status choose_negatives(brim_pairs *c, brim_device *device,
                                    const brim_batching *batching, brim_net_spec *spec) {
  spec->full_batch_negatives = false;
  if (spec->views != 2) return BRIM_OK;
  if (spec->accumulation < 2) return check_negatives(spec);
  bool exact = c->accumulation == BRIM_ACCUMULATION_EXACT;
  bool automatic = c->accumulation == BRIM_ACCUMULATION_AUTO;
  bool must = automatic && must_be_exact(c, batching, spec);
  if (automatic) exact = must || c->chosen != BRIM_CHOSEN_PLAIN;
  if (exact) BRIM_TRY(plan_cost(c, device, spec));
  bool possible = isfinite(c->exact_cost), worth = c->exact_cost < worth_it;
  spec->full_batch_negatives = exact && (must ? possible : is_chosen(c) || worth);
  return check_negatives(spec);
}

static void take_choice(brim_pairs *c, const json_t *metadata) {
  const char *text = json_string_value(json_object_get(metadata, "brim.accumulates"));
  if (text && strcmp(text, "exact") == 0) c->chosen = BRIM_CHOSEN_EXACT;
  if (text && strcmp(text, "plain") == 0) c->chosen = BRIM_CHOSEN_PLAIN;
}

//---------------------------------- a setting ----------------------------------

bool brim_batching_is_smaller(const brim_batching *batching, const brim_net_spec *spec) {
  return batching->allow_smaller && spec->batch < batching->batch &&
         spec->accumulation > batching->accumulation;
}

static void apply(const brim_learn *w, const brim_setting *setting, brim_applied *out) {
  const brim_work_set *evaluated = &w->data.eval;
  brim_net_spec *spec = &out->spec;
  brim_loader_options *train = &out->train, *eval = &out->eval;
  *spec = w->spec;
  spec->batch = setting->value[BRIM_LEARN_BATCH];
  spec->accumulation = setting->value[BRIM_LEARN_ACCUMULATION];
  spec->precision = (brim_precision)setting->value[BRIM_LEARN_PRECISION];
  spec->eager = setting->value[BRIM_LEARN_COMPILE] == 0;
  spec->recompute = (brim_recompute)setting->value[BRIM_LEARN_CHECKPOINTING];

  // data.eval_batch_size, but never more than there are samples: a plan has to be kept. The size changes no
  // result, so under a limit, or after memory ran out, it is at most training's.
  if (spec->eval_batch <= 0) {
    spec->eval_batch = spec->batch;
  } else {
    int64_t most = evaluated->source ? (int64_t)evaluated->source->info.count : spec->batch;
    if (spec->neighbours.bank > most) most = spec->neighbours.bank;
    if (spec->eval_batch > most) spec->eval_batch = most;
  }
  bool tight = spec->memory_limit > 0 || brim_batching_is_smaller(&w->batching, spec) ||
               w->batching.small_eval;
  if (tight && spec->eval_batch > spec->batch) spec->eval_batch = spec->batch;

  out->batch = spec->batch;
  *train = w->loader;
  const int ranks = brim_device_ranks(w->device);
  if (ranks > 1) {
    spec->batch = out->batch < ranks ? 1 : out->batch / ranks;
    train->rank = brim_device_rank(w->device);
    train->world = ranks;
  }
  train->transforms = w->data.train.transforms;
  train->batch = spec->batch;
  train->num_workers = (int)setting->value[BRIM_LEARN_WORKERS];
  train->prefetch_factor = (int)setting->value[BRIM_LEARN_PREFETCH];
  train->pin_memory = setting->value[BRIM_LEARN_PIN] != 0;

  // Evaluation reads in order, whole, on every rank. Samples that are only copied need no workers; samples
  // that take work have workers of their own, while those of training rest behind a full ring. All of them
  // work on one batch, so few batches are enough.
  *eval = *train;
  eval->batch = spec->eval_batch;
  bool work = evaluated->source && (evaluated->source->info.costly || evaluated->transforms);
  if (!work) eval->num_workers = 0;
  eval->prefetch_factor = 1;
  eval->most_slots = 4;
  eval->shuffle = false;
  eval->once = true;
  eval->drop_last = false;
  eval->limit = 0;
  eval->multiple = 0;
  eval->rank = 0;
  eval->world = 1;
  eval->transforms = evaluated->transforms;
  w->kind->apply(w, out);
}

//---------------------------------- where samples are kept ----------------------------------
// In files, which loader threads or the device read; in host memory; or on the device. Decided from the plan
// and from what was free when the workload was opened, so that planning a setting and building it agree.

// The cache that a setting asks for, and its other memory.
typedef struct brim_cache_request {
  brim_cache asked;
  const brim_loader_options *train, *eval;
  uint64_t limit;         // gpu.memory_limit; 0 = none
  uint64_t loaders;       // bytes of all loaders, if the limit covers them
  const brim_plan *plan;  // the network's
} brim_cache_request;

const char *const brim_cache_choices[] = {"none", "ram", "gpu", "auto", NULL};

// Left free on a device for modules, handles and recorded graphs.
static const uint64_t room_bytes = (uint64_t)1 << 30;

// Memory taken besides the network's plan.
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

// Device bytes of a set and its batches; 0 if the device cannot keep it, and the detail says why.
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

// Host memory for a rank: every rank keeps a copy of its own.
static uint64_t host_bytes(const brim_work_data *d, const brim_cache_request *r) {
  return d->host_bytes / (uint64_t)r->train->world;
}

// 0 for images of different sizes, which are not kept.
static uint64_t ram_bytes(const brim_source *source) {
  return source && !source->info.varies ? brim_source_cache_bytes(source) : 0;
}

//---------------------------------- choosing ----------------------------------

// True if the device has `bytes` more than the plan.
static bool device_has(const brim_work_data *d, const brim_cache_request *r, const taken *t,
                       uint64_t bytes) {
  uint64_t planned = r->plan->bytes[BRIM_PLACE_DEVICE] + t->device;
  uint64_t limit = r->limit, need = planned + bytes + room_bytes;
  uint64_t free_bytes = (uint64_t)(0.9 * (double)d->device_bytes);
  return need <= free_bytes && (limit == 0 || need <= limit);
}

// True if the device shall read the set's mapped file; if not, `why` says why. Locked pages cannot be swapped
// out, so at most half of the free memory is locked.
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
  if (!options->pin_memory) return false;  // pageable copies are measured on their own
  uint64_t locked = t->locked + s->mapped.bytes;
  if (locked > d->host_bytes / 2) {  // ranks lock the same pages, which count once
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

static bool counts_loaders(const brim_work_data *d, uint64_t limit) {
  return limit > 0 && d->context.device->info.host_memory;
}

// True if `bytes` more fit in gpu.memory_limit, which covers cache, network and loaders together if device
// and host share one memory.
static bool limit_has(const brim_work_data *d, const brim_cache_request *r, uint64_t bytes) {
  if (!counts_loaders(d, r->limit)) return true;
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
  brim_status_clear();  // "cannot" is an answer here, not an error
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

static brim_status decide_cache(const brim_work_data *d, const brim_cache_request *r,
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

static uint64_t left_to_net(const brim_work_data *d, const brim_cache_request *r) {
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
  bare.cache = NULL;  // plan for this setting, not for what the last one kept
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

static brim_status plan_sets(const brim_work_data *d, const brim_work_caching *caching,
                             const brim_loader_options *train, const brim_loader_options *eval,
                             brim_plan *plan) {
  BRIM_TRY(plan_set(d, d->train.source, caching->train, train, plan));
  return plan_set(d, d->eval.source, caching->eval, eval, plan);
}

static brim_status request_loaders(const brim_work_data *d, const brim_loader_options *train,
                                   const brim_loader_options *eval, brim_cache_request *r) {
  const brim_work_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
  brim_plan loaders;
  r->train = train;
  r->eval = eval;
  r->loaders = 0;
  if (!counts_loaders(d, r->limit)) return BRIM_OK;
  memset(&loaders, 0, sizeof loaders);
  BRIM_TRY(plan_sets(d, &none, train, eval, &loaders));
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

// Keeps a set. If its mapped file cannot be locked, loader threads read it from now on.
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

// Reports once why the GPU does not read a mapped file: a bench has many settings.
static void say_why(brim_work_data *d) {
  if (!d->caching.why[0] || d->reported_why) return;
  d->reported_why = true;
  brim_log_info("workload",
                "the GPU cannot read rows directly from the mapped file: %s; loader threads copy "
                "them instead",
                d->caching.why);
}

static void drop_residents(brim_work_data *d) {
  give_back(&d->train.resident);
  give_back(&d->eval.resident);
}

static brim_status keep_samples(brim_work_data *d, uint64_t limit) {
  brim_work_caching *c = &d->caching;
  *c = d->planned;
  bool kept = d->train.source->cache || (d->eval.source && d->eval.source->cache);
  bool keeps = c->train == BRIM_CACHE_RAM || c->eval == BRIM_CACHE_RAM;
  if (kept && !keeps) {
    drop_residents(d);
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

uint64_t brim_work_locked_bytes(const brim_work_data *d) {
  return brim_resident_locked_bytes(d->train.resident) +
         brim_resident_locked_bytes(d->eval.resident);
}

//---------------------------------- opening ----------------------------------

static void drop_setting(brim_learn *w) {
  brim_loader_destroy(w->train_loader);
  brim_loader_destroy(w->eval_loader);
  brim_net_destroy(w->net);
  brim_free(w->given);
  w->given = NULL;
  w->train_loader = w->eval_loader = NULL;
  w->net = NULL;
  if (w->kind->drop) w->kind->drop(w);
}

void brim_learn_close(void *work) {
  brim_learn *w = (brim_learn *)work;
  if (!w) return;
  drop_setting(w);
  if (w->kind->close) w->kind->close(w);
  brim_work_data_deinit(&w->data);
  brim_free(w);
}

static brim_status open_all(brim_learn *w, const brim_work_context *context,
                            const brim_config *config) {
  w->device = context->device;
  w->comm = context->comm;
  w->rank = brim_device_rank(w->device);
  w->ranks = brim_device_ranks(w->device);
  BRIM_TRY(brim_work_data_init(&w->data, context, config));
  brim_learn_read_spec(w);
  read_pairs(config, &w->pairs);
  BRIM_TRY(w->kind->open(w));
  return brim_learn_read_rest(w);
}

brim_status brim_learn_open(const brim_learn_kind *kind, size_t size,
                            const brim_work_context *context, const brim_config *config,
                            void **work) {
  brim_learn *w = (brim_learn *)brim_calloc(1, size);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->kind = kind;
  brim_status status = open_all(w, context, config);
  if (status) {
    brim_learn_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

size_t brim_learn_knobs(void *work, const brim_knob **out) {
  *out = ((brim_learn *)work)->knobs;
  return BRIM_LEARN_KNOBS;
}

bool brim_learn_sensible(void *work, const brim_setting *setting) {
  const brim_learn *w = (const brim_learn *)work;
  return w->spec.views != 2 || has_negatives(&w->pairs, setting->value[BRIM_LEARN_BATCH],
                                             setting->value[BRIM_LEARN_ACCUMULATION]);
}

void brim_learn_resuming(void *work, const json_t *metadata) {
  brim_learn *w = (brim_learn *)work;
  w->weights = NULL;
  if (metadata) take_choice(&w->pairs, metadata);
}

//---------------------------------- planning ----------------------------------

// The request of a setting to the caches.
static brim_status request(const brim_learn *w, const brim_setting *setting, const brim_applied *a,
                           brim_cache_request *out) {
  *out = (brim_cache_request){.asked = (brim_cache)setting->value[BRIM_LEARN_CACHE],
                              .limit = w->spec.memory_limit};
  BRIM_TRY(request_loaders(&w->data, &a->train, &a->eval, out));
  if (!w->kind->plan || !counts_loaders(&w->data, out->limit)) return BRIM_OK;
  const brim_work_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
  brim_plan third;
  memset(&third, 0, sizeof third);
  BRIM_TRY(w->kind->plan(w, &none, a, &third));
  out->loaders += third.bytes[BRIM_PLACE_HOST] + third.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

// A setting with everything that the network's plan takes: its limit, and how it accumulates.
static brim_status prepare(brim_learn *w, const brim_setting *setting, brim_applied *out) {
  brim_cache_request r;
  apply(w, setting, out);
  BRIM_TRY(brim_work_check_precision(w->device, &out->spec));
  BRIM_TRY(request(w, setting, out, &r));
  out->spec.memory_limit = left_to_net(&w->data, &r);
  return choose_negatives(&w->pairs, w->device, &w->batching, &out->spec);
}

static brim_status plan_net(brim_learn *w, const brim_setting *setting, brim_plan *out) {
  brim_applied a;
  BRIM_TRY(prepare(w, setting, &a));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->device, &a.spec, out);
}

static brim_status choose_cache(const brim_learn *w, const brim_setting *setting,
                                const brim_plan *plan, brim_work_caching *out) {
  brim_applied a;
  brim_cache_request r;
  apply(w, setting, &a);
  BRIM_TRY(request(w, setting, &a, &r));
  r.plan = plan;
  return decide_cache(&w->data, &r, out);
}

brim_status brim_learn_cache_of(brim_learn *w, const brim_setting *setting, bool planned,
                                brim_work_caching *out) {
  brim_plan plan;
  memset(&plan, 0, sizeof plan);
  if (planned) BRIM_TRY(plan_net(w, setting, &plan));
  return choose_cache(w, setting, &plan, out);
}

static brim_status plan_all(brim_learn *w, const brim_setting *setting, brim_plan *out) {
  brim_work_data *d = &w->data;
  brim_applied a;
  d->has_planned = false;
  BRIM_TRY(plan_net(w, setting, out));
  BRIM_TRY(choose_cache(w, setting, out, &d->planned));
  d->planned_for = *setting;
  d->has_planned = true;
  apply(w, setting, &a);
  BRIM_TRY(plan_sets(d, &d->planned, &a.train, &a.eval, out));
  return w->kind->plan ? w->kind->plan(w, &d->planned, &a, out) : BRIM_OK;
}

// Workspaces depend on the number of threads; the present setting keeps its own.
brim_status brim_learn_plan(void *work, const brim_setting *setting, brim_plan *out) {
  brim_learn *w = (brim_learn *)work;
  const int before = w->device->info.threads;
  BRIM_TRY(brim_device_set_threads(w->device, (int)setting->value[BRIM_LEARN_THREADS]));
  const brim_status status = plan_all(w, setting, out);
  return brim_device_set_threads(w->device, before) ? BRIM_EDEVICE : status;
}

//---------------------------------- too little memory ----------------------------------

static void allow_smaller(void *work) { ((brim_learn *)work)->batching.allow_smaller = true; }

// Gives up evaluation batches larger than training's: their size changes no result.
static bool free_optional(void *work, const brim_setting *setting) {
  brim_learn *w = (brim_learn *)work;
  brim_applied a;
  apply(w, setting, &a);
  if (w->batching.small_eval || !w->data.eval.source || a.spec.eval_batch <= a.spec.batch) {
    return false;
  }
  w->batching.small_eval = true;
  brim_log_warn("workload",
                "out of memory: evaluation uses batches of %" PRId64
                " samples like training, not the %" PRId64 " of data.eval_batch_size",
                a.spec.batch, a.spec.eval_batch);
  w->data.has_planned = false;
  return true;
}

const brim_work_batches_table brim_learn_batches = {.allow_smaller = allow_smaller,
                                                    .free_optional = free_optional};

//---------------------------------- building ----------------------------------

// Converts `every` from epochs, which configs count, to steps, which the engine counts.
static brim_component in_steps(const brim_component *scheduler, int64_t per_epoch,
                               brim_argument args[BRIM_WORK_MAX_ARGS]) {
  brim_component c = *scheduler;
  if (c.arg_count > BRIM_WORK_MAX_ARGS) c.arg_count = BRIM_WORK_MAX_ARGS;
  for (size_t i = 0; i < c.arg_count; i++) {
    args[i] = scheduler->args[i];
    if (strcmp(args[i].name, "every") != 0) continue;
    args[i].value.integer *= per_epoch;
    args[i].value.number *= (double)per_epoch;
  }
  c.args = args;
  return c;
}

static brim_status make_schedule(const brim_learn *w, brim_schedule *out) {
  const brim_config *config = w->data.config;
  const int64_t per_epoch = brim_learn_per_epoch(w);
  int64_t total = per_epoch * brim_config_int(config, "training.epochs");
  brim_work_warmup warmup = brim_work_warmup_of(config, per_epoch);
  const brim_component *scheduler = brim_config_component(config, "scheduler", NULL);
  brim_argument args[BRIM_WORK_MAX_ARGS];
  brim_component steps;
  if (scheduler) {
    steps = in_steps(scheduler, per_epoch, args);
    scheduler = &steps;
  }
  return brim_schedule_init(out, scheduler, w->optimizer.lr, warmup.steps, total);
}

// Ranks share a batch in equal parts.
static brim_status check_shares(const brim_learn *w, const brim_applied *a) {
  if (a->spec.batch * w->ranks == a->batch) return BRIM_OK;
  int64_t less = a->batch / w->ranks * w->ranks, more = less + w->ranks;
  if (less == 0) {
    return brim_fail(BRIM_EINVAL,
                     "batch_size is %" PRId64 ", but there are %d ranks; use %" PRId64 " or more",
                     a->batch, w->ranks, more);
  }
  return brim_fail(BRIM_EINVAL,
                   "batch_size is %" PRId64 ", which %d ranks cannot share equally; use %" PRId64
                   " or %" PRId64,
                   a->batch, w->ranks, less, more);
}

static brim_status start_from_weights(brim_learn *w) {
  brim_net_reinit reinit;
  BRIM_TRY(brim_net_start(w->net, w->weights, &reinit));
  if (w->reported_reinit || w->loader.rank > 0 || w->rank > 0) return BRIM_OK;
  if (reinit.inside[0] && !reinit.is) {
    brim_log_info("workload", "%s: brim loads the weights of its %.*s", w->weights,
                  (int)strlen(reinit.inside) - 1, reinit.inside);
  }
  w->reported_reinit = reinit.is || reinit.inside[0];
  if (!reinit.is) return BRIM_OK;
  if (reinit.had == 0) {
    brim_log_warn("workload",
                  "%s: brim loads the weights of its %.*s; the last layer, %s, is not among them "
                  "and is initialized from the seed",
                  w->weights, (int)strlen(reinit.inside) - 1, reinit.inside, reinit.layer);
    return BRIM_OK;
  }
  brim_log_warn("workload",
                "%s: its last layer, %s, has %" PRId64 " outputs, this run needs %" PRId64
                ": brim initializes that layer from the seed and loads the others",
                w->weights, reinit.layer, reinit.had, reinit.outputs);
  return BRIM_OK;
}

static brim_status check_epoch(const brim_learn *w) {
  if (w->epoch_samples > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   w->spec.views > 1
                       ? "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                         ", and two views need whole batches; use a smaller batch_size"
                       : "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                         ", and data.drop_last is true; use a smaller batch_size or "
                         "drop_last: false",
                   w->data.train.source->info.count, w->batch);
}

// The network, the loaders and the schedule of a setting, at position 0.
static brim_status build(brim_learn *w, const brim_setting *setting, brim_applied *a) {
  brim_work_data *d = &w->data;
  if (!w->loader.skip_broken) {
    BRIM_TRY(brim_work_data_check_readable(d, w->loader.limit));
    if (w->kind->check_readable) BRIM_TRY(w->kind->check_readable(w));
  }
  // The plan decided where samples are kept; nearly every caller has planned this setting.
  if (!d->has_planned || memcmp(&d->planned_for, setting, sizeof *setting) != 0) {
    brim_plan plan;
    BRIM_TRY(brim_learn_plan(w, setting, &plan));
  }
  BRIM_TRY(keep_samples(d, w->loader.limit));

  w->rebuilt = w->built;
  w->rank = brim_device_rank(w->device);
  w->ranks = brim_device_ranks(w->device);
  BRIM_TRY(check_shares(w, a));
  BRIM_TRY(brim_net_create(w->device, &a->spec, &w->net));
  if (w->weights) BRIM_TRY(start_from_weights(w));
  a->train.resident = d->train.resident;
  a->eval.resident = d->eval.resident;
  BRIM_TRY(brim_loader_create(w->device, d->train.source, &a->train, &w->train_loader));
  if (d->eval.source) {
    BRIM_TRY(brim_loader_create(w->device, d->eval.source, &a->eval, &w->eval_loader));
  }

  w->batch = a->spec.batch * w->ranks;
  w->eval_batch = a->spec.eval_batch;
  w->accumulation = a->spec.accumulation;
  w->exact = a->spec.full_batch_negatives;
  w->precision = a->spec.precision;
  w->mapped_rows = d->caching.train == BRIM_CACHE_MAPPED && !d->train.transforms;
  w->step = w->epoch = w->position = 0;
  w->recalibrated = -1;
  memset(&w->recalibrate_reading, 0, sizeof w->recalibrate_reading);
  memset(&w->carried, 0, sizeof w->carried);
  w->left_out = w->left_out_reads = 0;
  w->first_left_out[0] = '\0';
  w->epoch_samples = brim_loader_samples(w->train_loader);
  if (a->train.drop_last) w->epoch_samples = brim_loader_batches(w->train_loader) * a->train.batch;
  w->epoch_samples *= w->ranks;  // the same for each rank
  BRIM_TRY(check_epoch(w));
  BRIM_TRY(make_schedule(w, &w->schedule));
  w->built = true;
  return w->kind->build ? w->kind->build(w, a) : BRIM_OK;
}

void brim_learn_drop_all(brim_learn *w) {
  drop_setting(w);
  drop_residents(&w->data);
}

static brim_status configure(brim_learn *w, const brim_setting *setting) {
  brim_applied a;
  drop_setting(w);
  BRIM_TRY(brim_device_set_threads(w->device, (int)setting->value[BRIM_LEARN_THREADS]));
  BRIM_TRY(prepare(w, setting, &a));
  report_negatives(&w->pairs, &w->batching, &a.spec);
  brim_status status = build(w, setting, &a);
  if (!status) return BRIM_OK;
  brim_learn_drop_all(w);
  return status;
}

brim_status brim_learn_configure(void *work, const brim_setting *setting) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_CONFIGURE, 0, setting));
  return brim_learn_agree(w, configure(w, setting));
}

void brim_learn_info(void *work, brim_work_info *out) {
  const brim_learn *w = (const brim_learn *)work;
  const brim_work_data *d = &w->data;
  const uint64_t count = d->train.source->info.count, limit = w->loader.limit;
  memset(out, 0, sizeof *out);
  out->unit = "samples";
  out->set_samples = (int64_t)(limit && limit < count ? limit : count);
  out->samples_per_epoch = w->epoch_samples ? w->epoch_samples : out->set_samples;
  out->steps_per_epoch = brim_learn_per_epoch(w);
  out->batch = w->batch;
  out->accumulation = w->accumulation;
  out->eval_samples = d->eval.source ? (int64_t)d->eval.source->info.count : 0;
  out->eval_batch = d->eval.source ? w->eval_batch : 0;
  out->learning_rate = w->optimizer.lr;
  out->cache = brim_cache_name(d->caching.train);
  out->takes_work = d->train.source->info.costly || d->train.transforms;
  out->locked_bytes = brim_work_locked_bytes(d);
  out->not_mapped = d->caching.why[0] ? d->caching.why : NULL;
  if (w->spec.views == 2 && w->accumulation > 1) out->accumulates = w->exact ? "exact" : "plain";
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  if (w->spec.views == 1 && w->spec.loss) {
    out->loss = w->spec.loss->name;
    out->target_dim = w->spec.classes > 0 ? 0 : w->spec.target_dim;
  }
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
  w->kind->info(w, out);
}
