// Training a network on a data set, for the workloads supervised and contrastive: reading the config, planning
// settings and building them, where samples are kept, steps, metrics, passes over the evaluation data,
// snapshots, checkpoints, and the ranks that follow the first one.

#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_plan.h"
#include "workload/learn/learn_trained.h"

// Steps of an epoch; 0 before the first setting.
static int64_t learn_per_epoch(const brim_learn *w) {
  int64_t per_step = w->batch * w->accumulation;
  return per_step ? (w->epoch_samples + per_step - 1) / per_step : 0;
}

//------------------------------------- calls of all ranks ------------------------------------

// Calls that all ranks make.
typedef enum learn_call {
  BRIM_CALL_END,
  BRIM_CALL_CONFIGURE,
  BRIM_CALL_STEP,
  BRIM_CALL_METRICS,
  BRIM_CALL_SNAPSHOT,
  BRIM_CALL_RESTORE,
  BRIM_CALL_LOAD_ONLY,
  BRIM_CALL_COMPUTE_ONLY
} learn_call;

typedef struct call {
  int32_t kind;
  int32_t number;  // steps, or `reset`
  brim_setting setting;
} call;

// On a leading rank, makes the other ranks repeat a call. `number`: the call's steps or `reset`; `setting` may
// be NULL.
static brim_status learn_tell(const brim_learn *w, learn_call kind, int number,
                              const brim_setting *setting) {
  call c = {.kind = (int32_t)kind, .number = number};
  if (!w->leads) return BRIM_OK;
  if (setting) c.setting = *setting;
  return brim_comm_broadcast(w->comm, &c, sizeof c, 0);
}

// With leading and following ranks, a setting that fails on one rank fails on all.
static brim_status learn_agree(const brim_learn *w, brim_status status) {
  int64_t failed = status != BRIM_OK;
  if (!w->leads && !w->follows) return status;
  BRIM_TRY(brim_comm_all_reduce(w->comm, &failed, 1, BRIM_I64));
  if (status || failed == 0) return status;
  return brim_fail(BRIM_EOOM, "%lld of %d ranks cannot build this setting", (long long)failed,
                   w->ranks);
}

//----------------------------------- where samples are kept ----------------------------------
// Samples stay in files, which loader threads or the device read, or are kept in host memory or on the device.
// The choice depends on the plan and on the memory that was free when the workload was opened, so that planning
// a setting and building it agree.

// The cache that a setting asks for, and the setting's other memory.
typedef struct brim_cache_request {
  brim_cache asked;
  const brim_loader_options *train, *eval;
  uint64_t limit;         // gpu.memory_limit; 0 = no limit
  uint64_t loaders;       // bytes of all loaders, if the limit covers them
  const brim_plan *plan;  // plan of the network
} brim_cache_request;

const char *const brim_cache_choices[] = {"none", "ram", "gpu", "auto", NULL};

// Device memory left free for modules, handles and recorded graphs.
static const uint64_t room_bytes = (uint64_t)1 << 30;

// Memory taken by caches so far, in addition to the network's plan.
typedef struct taken {
  uint64_t device, host;
  uint64_t locked;  // pages of mapped files
} taken;

// "mapped"
static const char *cache_name(brim_cache cache) {
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

// Host memory for one rank: every rank keeps its own copy of the samples.
static uint64_t host_bytes(const brim_work_data *d, const brim_cache_request *r) {
  return d->host_bytes / (uint64_t)r->train->world;
}

// Host bytes to keep a source; 0 for images of different sizes, which are not kept.
static uint64_t ram_bytes(const brim_source *source) {
  return source && !source->info.varies ? brim_source_cache_bytes(source) : 0;
}

//---------------------------------- choosing ----------------------------------

// True if the device has room for `bytes` in addition to plan and caches.
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
  if (!options->pin_memory) return false;  // the setting asks for pageable copies
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

// True if `bytes` more fit in gpu.memory_limit. If device and host share one memory, the limit covers cache,
// network and loaders together; else it does not limit host memory.
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
  brim_status_clear();  // a device that cannot keep the set is no error here
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

// Notes free memory, and whether the GPU can read the sources' mapped files.
static brim_status work_data_measure(brim_work_data *d) {
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
  bare.cache = NULL;  // ignore the cache of the last setting
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

// Reports why the GPU does not read a mapped file. Only once: a bench has many settings.
static void report_unmapped(brim_work_data *d) {
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
  report_unmapped(d);
  return keep_or_read(d, &d->eval, 0, &c->eval);
}

// Bytes of mapped files that are page-locked.
static uint64_t work_locked_bytes(const brim_work_data *d) {
  return brim_resident_locked_bytes(d->train.resident) +
         brim_resident_locked_bytes(d->eval.resident);
}

//--------------------------------------------- loss ---------------------------------------------

static brim_status check_views(const brim_component *loss, int32_t views) {
  bool pairs = strcmp(loss->name, "ntxent") == 0;
  if (pairs && views != 2) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "loss ntxent compares two views of each sample, but transform makes %d; "
                        "write transform: views | random_resized_crop(size=96) | ...",
                        (int)views);
  }
  if (!pairs && views > 1) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "transform makes %d views of each sample, but loss %s takes one; use loss "
                        "ntxent, or remove views",
                        (int)views, loss->name);
  }
  return BRIM_OK;
}

// Config keys that set an argument of the default loss. config_resolve.c handles losses that the config names.
static const struct {
  const char *loss, *argument, *key;
} loss_keys[] = {{"ntxent", "temperature", "contrastive.temperature"},
                 {"cross_entropy", "label_smoothing", "training.label_smoothing"}};

void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out) {
  memset(out, 0, sizeof *out);
  out->loss.name = name;
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 || !brim_config_is_set(config, loss_keys[i].key)) {
      continue;
    }
    double number = brim_config_float(config, loss_keys[i].key);
    out->argument = (brim_argument){.name = loss_keys[i].argument,
                                    .value = {.kind = BRIM_VALUE_FLOAT, .number = number}};
    out->loss.args = &out->argument;
    out->loss.arg_count = 1;
  }
}

static const brim_component *usual_loss(const brim_config *config, const brim_source *source,
                                        int32_t views, brim_usual *usual) {
  const brim_source_info *info = &source->info;
  const char *name = views == 2               ? "ntxent"
                     : info->classes > 0      ? "cross_entropy"
                     : source->binary_targets ? "bce"
                                              : "mse";
  if (views != 2 && info->classes == 0 && source->binary_targets) {
    brim_log_info(
        "workload",
        "all targets are 0 or 1, %lld per sample: brim trains %lld independent labels with "
        "loss=bce; loss=mse makes it a regression",
        (long long)info->target_dim, (long long)info->target_dim);
  }
  brim_usual_loss(config, name, usual);
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 && brim_config_is_asked(config, loss_keys[i].key)) {
      brim_log_warn("workload", "'%s' has no effect on '%s'", loss_keys[i].key, name);
    }
  }
  return &usual->loss;
}

// Refuses simclr without two views: it outputs projections, which predict nothing.
static brim_status check_model(const brim_config *config, int32_t views) {
  const brim_component *model = brim_config_component(config, "model", NULL);
  if (views > 1 || !model || strcmp(model->name, "simclr") != 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, model->file, model->line, model->col,
                      "model simclr trains on two views without labels; write workload: "
                      "contrastive and transform: views | random_resized_crop(size=96) | ...; to "
                      "train on labels, use its backbone as the model");
}

// True for bce: a target says for each label if the sample has it.
static bool work_is_multi_label(const brim_component *loss) {
  return loss && strcmp(loss->name, "bce") == 0;
}

brim_status brim_learn_choose_loss(brim_learn *w) {
  const brim_config *config = w->data.config;
  const brim_source *source = w->data.train.source;
  const int32_t views = w->spec.views;
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  if (!loss) loss = usual_loss(config, source, views, &w->usual);
  w->spec.loss = loss;
  BRIM_TRY(check_views(loss, views));
  BRIM_TRY(check_model(config, views));
  if (views > 1 || source->info.classes > 0 || source->info.target_dim > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                      "the training set has no %s, which loss %s needs; use a labelled split, or "
                      "loss ntxent with transform: views | ...",
                      strcmp(loss->name, "cross_entropy") == 0 ? "labels" : "targets", loss->name);
}

//-------------------------------------------- knobs --------------------------------------------

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", NULL};
// training.checkpointing's words in the order of brim_recompute: none, auto, all
static const char *const checkpointing_choices[] = {"false", "auto", "true", NULL};

//---------------------------------- words ----------------------------------

static const brim_knob_check batch_check = {
    .recommended = BRIM_N_("batch size: %s"),
    .none = BRIM_N_("batch size: several were tried, none is recommended"),
    .one = BRIM_N_("batch size: only one was tried; --batch-sizes 128 256 512 ..."),
    .ended = BRIM_N_("batch size: the sweep ended with one alone measured")};

static const brim_knob_check workers_check = {
    .recommended = BRIM_N_("workers: %s"),
    .none = BRIM_N_("workers: several were tried, none is recommended"),
    .one = BRIM_N_("workers: only one number was tried; --num-workers 0 2 4 8"),
    .ended = BRIM_N_("workers: the sweep ended with one number alone measured")};

static const brim_knob_row words[BRIM_LEARN_KNOBS] = {
    [BRIM_LEARN_BATCH] = {.name = "batch_size",
                          .label = BRIM_N_("Batch size"),
                          .heading = BRIM_N_("Batch"),
                          .narrow = BRIM_N_("Batch"),
                          .role = BRIM_ROLE_BATCH,
                          .always = true,
                          .check = &batch_check},
    [BRIM_LEARN_WORKERS] = {.name = "num_workers",
                            .label = BRIM_N_("Workers"),
                            .heading = BRIM_N_("Workers"),
                            .narrow = BRIM_N_("Work"),
                            .role = BRIM_ROLE_WORKERS,
                            .always = true,
                            .check = &workers_check},
    [BRIM_LEARN_PRECISION] = {.name = "precision",
                              .label = BRIM_N_("Precision"),
                              .heading = BRIM_N_("Precision"),
                              .narrow = BRIM_N_("Prec"),
                              .role = BRIM_ROLE_PRECISION,
                              .always = true,
                              .overhead = true},
    [BRIM_LEARN_PIN] = {.name = "pin_memory",
                        .label = BRIM_N_("Pinned memory"),
                        .heading = BRIM_N_("Pinned"),
                        .narrow = BRIM_N_("Pin"),
                        .role = BRIM_ROLE_PINNED},
    [BRIM_LEARN_PREFETCH] = {.name = "prefetch",
                             .label = BRIM_N_("Prefetch"),
                             .heading = BRIM_N_("Prefetch"),
                             .narrow = BRIM_N_("Pre"),
                             .role = BRIM_ROLE_PREFETCH},
    [BRIM_LEARN_ACCUMULATION] = {.name = "accumulation",
                                 .label = BRIM_N_("Accumulation"),
                                 .heading = BRIM_N_("Accum"),
                                 .narrow = BRIM_N_("Acc"),
                                 .role = BRIM_ROLE_ACCUMULATION},
    [BRIM_LEARN_COMPILE] = {.name = "compile",
                            .label = BRIM_N_("Compile"),
                            .heading = BRIM_N_("Compile"),
                            .narrow = BRIM_N_("Comp"),
                            .role = BRIM_ROLE_GRAPH,
                            .overhead = true},
    [BRIM_LEARN_CHECKPOINTING] = {.name = "checkpointing",
                                  .label = BRIM_N_("Checkpointing"),
                                  .heading = BRIM_N_("Ckpt"),
                                  .narrow = BRIM_N_("Ckpt"),
                                  .role = BRIM_ROLE_RECOMPUTE,
                                  .overhead = true},
    [BRIM_LEARN_CACHE] = {.name = "cache",
                          .label = BRIM_N_("Data set kept in"),
                          .heading = BRIM_N_("Cache"),
                          .narrow = BRIM_N_("Cache")},
    [BRIM_LEARN_THREADS] = BRIM_THREADS_KNOB_ROW,
};

const brim_knob_set brim_learn_knob_set = {
    .rows = words,
    .count = BRIM_LEARN_KNOBS,
    .less_memory =
        BRIM_N_("a smaller batch_size with gradient_accumulation_steps, or checkpointing=true")};

//--------------------------------------- values of knobs ---------------------------------------
// The values that a sweep tries if the user names none: powers of two that fit, a few numbers of workers,
// mixed precision if it works. With `all`, a few values of every knob that makes a difference.

enum { MAX_BATCHES = 10, BATCHES_OF_ALL = 3, STEP_OF_ALL = 3 };
_Static_assert((int)MAX_BATCHES <= (int)BRIM_KNOB_AXIS, "all default batches fit an axis");

//---------------------------------- plans ----------------------------------

static bool has_plan(const brim_knob_sweep *sweep, int knob, int64_t value, brim_plan *plan) {
  const brim_work *work = sweep->work;
  brim_setting setting = brim_work_setting(work);
  setting.value[knob] = value;
  bool fine = !work->table->plan(work->state, &setting, plan);
  brim_status_clear();
  return fine;
}

// True if a batch has a plan that fits in free memory.
static bool batch_fits(const brim_knob_sweep *sweep, int64_t batch) {
  brim_device *device = sweep->work->context.device;
  brim_plan plan;
  uint64_t free_bytes = 0, total_bytes = 0;
  if (!has_plan(sweep, BRIM_LEARN_BATCH, batch, &plan)) return false;
  if (sweep->card_bytes > 0) {
    return (double)plan.bytes[BRIM_PLACE_DEVICE] < 0.9 * sweep->card_bytes;
  }
  if (brim_device_memory(device, &free_bytes, &total_bytes)) return false;
  uint64_t need = plan.bytes[BRIM_PLACE_DEVICE];
  if (device->info.host_memory) need += plan.bytes[BRIM_PLACE_HOST];
  return (double)need < 0.9 * (double)free_bytes;
}

// Two values of a knob, if both have a plan.
static size_t two_values(const brim_knob_sweep *sweep, int knob, int64_t a, int64_t b,
                         int64_t *values) {
  brim_plan plan;
  if (!has_plan(sweep, knob, a, &plan) || !has_plan(sweep, knob, b, &plan)) return 0;
  values[0] = a;
  values[1] = b;
  return 2;
}

//---------------------------------- axes ----------------------------------

static size_t batches_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  size_t count = 0;
  brim_work_info info;
  memset(&info, 0, sizeof info);
  sweep->work->table->info(state, &info);
  int64_t all = info.samples_per_epoch, top = sweep->gpu ? 32768 : 4096;
  int64_t least = sweep->gpu ? 64 : 32;
  for (int64_t batch = least; batch <= top && count < MAX_BATCHES; batch *= 2) {
    if ((all > 0 && batch > all) || !batch_fits(sweep, batch)) break;
    values[count++] = batch;
  }
  // a set smaller than every batch is one batch
  if (count == 0 && all > 0 && all < least) values[count++] = all;
  brim_status_clear();  // a batch without a plan is no error here
  if (count == 0 || !sweep->all) return count;
  // all other knobs vary too, so take few batches: the largest, 1/8 and 1/64 of it
  size_t n = (count - 1) / STEP_OF_ALL + 1;
  if (n > BATCHES_OF_ALL) n = BATCHES_OF_ALL;
  for (size_t i = 0; i < n; i++) values[i] = values[count - 1 - (n - 1 - i) * STEP_OF_ALL];
  return n;
}

static size_t workers_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t cpu[] = {0, 1, 2}, gpu[] = {2, 4, 8, 16};
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t max = sweep->gpu ? 4 : 3, count = 0;
  int64_t cores = brim_cpu_count();
  (void)state;
  for (; count < max && from[count] <= cores; count++) values[count] = from[count];
  if (count == 0) values[count++] = from[0];
  if (!sweep->all || count <= 2) return count;
  values[1] = values[count - 1];  // keep the first and the last value
  return 2;
}

static int64_t precision_of(const brim_knob_sweep *sweep, const char *name) {
  const char *const *choices = sweep->work->knobs[BRIM_LEARN_PRECISION].choices;
  int64_t i = 0;
  while (choices[i] && strcmp(choices[i], name) != 0) i++;
  return i;
}

static size_t precisions_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_mixed_precision")) return 0;
  values[0] = precision_of(sweep, "fp32");
  values[1] = precision_of(sweep, "bf16");
  brim_setting setting = brim_work_setting(sweep->work);
  setting.value[BRIM_LEARN_PRECISION] = values[1];
  brim_plan plan;
  if (!sweep->work->table->plan(state, &setting, &plan)) return 2;
  if (sweep->note) {
    snprintf(sweep->note, sweep->note_size, brim_tr("no mixed precision: %s\n"),
             brim_status_detail());
  }
  brim_status_clear();
  return 0;
}

static size_t pinned_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_pin_memory")) return 0;
  if (sweep->work->context.device->info.host_memory) {
    brim_log_info("bench", "pinned memory makes no difference on this device; not swept");
    return 0;
  }
  values[0] = 1;
  values[1] = 0;
  return 2;
}

static size_t compiled_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all || !brim_device_has_graphs(sweep->work->context.device)) return 0;
  return two_values(sweep, BRIM_LEARN_COMPILE, 1, 0, values);
}

// Values of training.checkpointing, for models with segments to recompute.
static size_t checkpointed_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  brim_plan plan;
  (void)state;
  if (!sweep->all) return 0;
  bool planned = has_plan(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_ALL, &plan);
  if (!planned || plan.recomputed <= 0) return 0;
  return two_values(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_ALL,
                    values);
}

static size_t cached_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  bool host = sweep->work->context.device->info.host_memory;
  return two_values(sweep, BRIM_LEARN_CACHE, BRIM_CACHE_NONE,
                    host ? BRIM_CACHE_RAM : BRIM_CACHE_GPU, values);
}

static size_t prefetches_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 2;
  values[1] = 4;
  return 2;
}

static size_t accumulations_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 1;
  values[1] = 4;
  return 2;
}

//---------------------------------- knobs ----------------------------------

static int64_t cache(const brim_config *config) {
  const char *text = brim_config_string(config, "data.cache");
  for (int64_t i = 0; text && brim_cache_choices[i]; i++) {
    if (strcmp(brim_cache_choices[i], text) == 0) return i;
  }
  return BRIM_CACHE_AUTO;
}

static int64_t checkpointing(const brim_config *config) {
  const char *text = brim_config_string(config, "training.checkpointing");
  for (int64_t i = 0; text && checkpointing_choices[i]; i++) {
    if (strcmp(checkpointing_choices[i], text) == 0) return i;
  }
  return BRIM_RECOMPUTE_AUTO;
}

static const brim_knob knob_rows[BRIM_LEARN_KNOBS] = {
    [BRIM_LEARN_BATCH] = {.name = "batch_size",
                          .key = "data.batch_size",
                          .kind = BRIM_KNOB_INT,
                          .min = 1,
                          .max = 1 << 28,
                          .changes_learning = true,
                          .multiplies = true,
                          .list = "benchmark.batch_sizes",
                          .option = "--batch-sizes",
                          .axis = batches_axis,
                          .order = 8},
    [BRIM_LEARN_WORKERS] = {.name = "num_workers",
                            .key = "data.num_workers",
                            .kind = BRIM_KNOB_INT,
                            .min = 0,
                            .max = 1024,
                            .list = "benchmark.num_workers_options",
                            .option = "--num-workers",
                            .axis = workers_axis,
                            .order = 7},
    [BRIM_LEARN_PRECISION] = {.name = "precision",
                              .key = "training.precision",
                              .kind = BRIM_KNOB_CHOICE,
                              .min = 0,
                              .max = BRIM_PRECISION_COUNT - 1,
                              .choices = precision_choices,
                              .list = "benchmark.precisions",
                              .option = "--precisions",
                              .axis = precisions_axis},
    [BRIM_LEARN_PIN] = {.name = "pin_memory",
                        .key = "data.pin_memory",
                        .kind = BRIM_KNOB_BOOL,
                        .min = 0,
                        .max = 1,
                        .axis = pinned_axis,
                        .order = 1},
    [BRIM_LEARN_PREFETCH] = {.name = "prefetch",
                             .key = "data.prefetch_factor",
                             .kind = BRIM_KNOB_INT,
                             .min = 1,
                             .max = 1024,
                             .list = "benchmark.prefetch_options",
                             .axis = prefetches_axis,
                             .order = 5},
    [BRIM_LEARN_ACCUMULATION] = {.name = "accumulation",
                                 .key = "training.gradient_accumulation_steps",
                                 .kind = BRIM_KNOB_INT,
                                 .min = 1,
                                 .max = 65536,
                                 .changes_learning = true,
                                 .multiplies = true,
                                 .list = "benchmark.accumulation_options",
                                 .option = "--batch-sizes",
                                 .axis = accumulations_axis,
                                 .order = 6},
    [BRIM_LEARN_COMPILE] = {.name = "compile",
                            .key = "training.compile",
                            .kind = BRIM_KNOB_BOOL,
                            .min = 0,
                            .max = 1,
                            .option = "--compile",
                            .axis = compiled_axis,
                            .order = 2},
    [BRIM_LEARN_CHECKPOINTING] = {.name = "checkpointing",
                                  .key = "training.checkpointing",
                                  .kind = BRIM_KNOB_CHOICE,
                                  .min = BRIM_RECOMPUTE_NONE,
                                  .max = BRIM_RECOMPUTE_ALL,
                                  .choices = checkpointing_choices,
                                  .option = "--checkpointing",
                                  .axis = checkpointed_axis,
                                  .order = 3},
    [BRIM_LEARN_CACHE] = {.name = "cache",
                          .key = "data.cache",
                          .kind = BRIM_KNOB_CHOICE,
                          .min = BRIM_CACHE_NONE,
                          .max = BRIM_CACHE_AUTO,
                          .choices = brim_cache_choices,
                          .fills = BRIM_CACHE_RAM,
                          .option = "--cache",
                          .axis = cached_axis,
                          .order = 4},
};

// Where a setting keeps its samples. `planned`: plan the network first, since its memory counts.
static brim_status learn_cache_of(brim_learn *w, const brim_setting *setting, bool planned,
                                  brim_work_caching *out);

// True if workers load the samples; false if the device keeps or reads them.
static bool loader_matters(void *work, const brim_setting *setting) {
  brim_learn *w = (brim_learn *)work;
  brim_work_caching caching;
  if (w->device->info.host_memory) return true;
  // the choice of auto and none depends on the memory that the network leaves
  bool planned = setting->value[BRIM_LEARN_CACHE] != BRIM_CACHE_GPU;
  brim_status status = learn_cache_of(w, setting, planned, &caching);
  brim_status_clear();
  return status || !brim_cache_needs_no_workers(caching.train);
}

static bool pin_matters(void *work, const brim_setting *setting) {
  return !((const brim_learn *)work)->device->info.host_memory && loader_matters(work, setting);
}

static bool prefetch_matters(void *work, const brim_setting *setting) {
  return setting->value[BRIM_LEARN_WORKERS] > 0 && loader_matters(work, setting);
}

static brim_status read_knobs(brim_learn *w) {
  const brim_config *config = w->data.config;
  brim_knob *out = w->knobs;
  brim_precision precision = BRIM_PRECISION_FP32;
  BRIM_TRY(brim_work_precision(config, w->device, &precision));
  int64_t workers = brim_config_int(config, "data.num_workers");
  if (workers < 0) workers = brim_work_default_workers();  // -1: chosen here
  memcpy(out, knob_rows, sizeof knob_rows);
  out[BRIM_LEARN_BATCH].value = brim_config_int(config, "data.batch_size");
  out[BRIM_LEARN_WORKERS].value = workers;
  out[BRIM_LEARN_PRECISION].value = precision;
  out[BRIM_LEARN_PIN].value = brim_config_bool(config, "data.pin_memory");
  out[BRIM_LEARN_PREFETCH].value = brim_config_int(config, "data.prefetch_factor");
  out[BRIM_LEARN_ACCUMULATION].value =
      brim_config_int(config, "training.gradient_accumulation_steps");
  out[BRIM_LEARN_COMPILE].value = brim_config_bool(config, "training.compile");
  out[BRIM_LEARN_CHECKPOINTING].value = checkpointing(config);
  out[BRIM_LEARN_CACHE].value = cache(config);
  out[BRIM_LEARN_THREADS] = brim_work_threads_knob(config, w->device);
  out[BRIM_LEARN_WORKERS].matters = loader_matters;
  out[BRIM_LEARN_PIN].matters = pin_matters;
  out[BRIM_LEARN_PREFETCH].matters = prefetch_matters;
  w->batching = (brim_batching){.batch = out[BRIM_LEARN_BATCH].value,
                                .accumulation = out[BRIM_LEARN_ACCUMULATION].value};
  return BRIM_OK;
}

//-------------------------------------------- config --------------------------------------------

//---------------------------------- input ----------------------------------

// Scale and shift of a channel: x / 255 for bytes, then (x - mean) / std if the source suggests them.
void brim_learn_input_of(const brim_source_info *info, brim_net_spec *spec) {
  spec->input_dtype = info->type == BRIM_SAMPLE_U8 ? BRIM_U8 : BRIM_F32;
  spec->input_rank = info->rank;
  for (int i = 0; i < info->rank; i++) spec->input_dim[i] = info->dim[i];
  float unit = info->type == BRIM_SAMPLE_U8 ? 1.0f / 255.0f : 1.0f;
  spec->channels = info->channels > 0 ? info->channels : 1;
  for (int c = 0; c < spec->channels; c++) {
    float mean = info->channels > 0 ? info->mean[c] : 0.0f;
    float std = info->channels > 0 && info->std[c] > 0 ? info->std[c] : 1.0f;
    spec->scale[c] = unit / std;
    spec->shift[c] = -mean / std;
  }
}

// With two views there are no classes or targets: projections are compared with each other, and the model sets
// their width.
void brim_learn_set_input(brim_learn *w) {
  const brim_source_info *info = brim_work_set_info(&w->data.train);
  const bool pairs = w->spec.views > 1;
  brim_learn_input_of(info, &w->spec);
  brim_work_set_eval_size(&w->data, &w->spec);
  w->spec.classes = pairs ? 0 : info->classes;
  w->spec.target_dim = pairs ? 1 : info->target_dim;
}

//---------------------------------- words ----------------------------------

// `patch: auto` takes a divisor of the length, up to 32. A length without a good divisor, such as a prime,
// makes a token of every few values, and the cost of attention grows with the square of the tokens.
static void warn_of_short_tokens(const brim_net_spec *spec, const brim_source_info *info) {
  enum { LONG = 128, MOST_TOKEN = 32, LEAST_TOKEN = 8 };
  int64_t length = info->dim[0], patch = 1;
  if (strcmp(spec->model->name, "transformer") != 0 || info->rank > 2 || length < LONG) return;
  if (brim_component_int(spec->model, "patch", 0) > 0) return;
  for (int64_t d = 2; d <= MOST_TOKEN; d++) patch = length % d == 0 ? d : patch;
  if (patch >= LEAST_TOKEN) return;
  long long cut = (long long)(length - length % MOST_TOKEN);
  if (info->rank == 2) {
    brim_log_warn("workload",
                  "transformer: a length of %lld makes %lld tokens, which trains slowly; cut the "
                  "signals, for train and val: transform: center_crop(size=(%lld, %lld))",
                  (long long)length, (long long)(length / patch), cut, (long long)info->dim[1]);
  } else {
    brim_log_warn("workload",
                  "transformer: a length of %lld makes %lld tokens, which trains slowly; store "
                  "signals of %lld values",
                  (long long)length, (long long)(length / patch), cut);
  }
}

// "mlp on 60,000 samples of 28x28 u8"
static void describe(const brim_net_spec *spec, const brim_source_info *info, char *out,
                     size_t size) {
  char count[32];
  brim_format_count((double)info->count, count);
  int n = snprintf(out, size, "%s on %s samples of %s", spec->model->name, count,
                   info->varies ? "up to " : "");
  for (int i = 0; i < info->rank && n > 0 && (size_t)n < size; i++) {
    n += snprintf(out + n, size - (size_t)n, "%s%" PRId64, i ? "x" : "", info->dim[i]);
  }
  if (n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, " %s", info->type == BRIM_SAMPLE_U8 ? "u8" : "f32");
  }
}

// Reads the config for all settings, as far as possible before the sets are open.
static void learn_read_spec(brim_learn *w) {
  static const brim_component mlp = {.name = "mlp"};
  const brim_config *config = w->data.config;
  const brim_component *model = brim_config_component(config, "model", NULL);
  brim_net_spec *spec = &w->spec;
  spec->seed = (uint64_t)brim_config_int(config, "seed");
  spec->clip_norm = brim_config_float(config, "training.clip_norm");
  spec->ema_decay = brim_config_float(config, "training.ema_decay");
  spec->local_norm = !brim_config_bool(config, "training.sync_batchnorm");
  spec->memory_limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  spec->eval_batch = brim_config_int(config, "data.eval_batch_size");
  spec->model = model ? model : &mlp;
}

static void read_loader(brim_learn *w) {
  static const char persistent[] = "data.persistent_workers";
  const brim_config *config = w->data.config;
  const char *on_error = brim_config_string(config, "data.on_error");
  w->loader = (brim_loader_options){
      .shuffle = brim_config_bool(config, "data.shuffle"),
      .drop_last = w->spec.views > 1 || brim_config_bool(config, "data.drop_last"),
      .seed = w->spec.seed,
      .world = 1,
      .limit = (uint64_t)brim_config_int(config, "data.limit"),
      .skip_broken = on_error && strcmp(on_error, "skip") == 0,
  };
  // Loader threads always persist. Say so if the user asked for something else, but not if a preset did.
  if (!brim_config_is_set(config, persistent) || brim_config_bool(config, persistent)) return;
  if (brim_config_layer_of(config, persistent) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload",
                "%s: false has no effect; loader threads always stay alive between epochs",
                persistent);
}

// Reads the rest of the config, once the sets are open.
static brim_status learn_read_rest(brim_learn *w) {
  const brim_config *config = w->data.config;
  warn_of_short_tokens(&w->spec, brim_work_set_info(&w->data.train));
  BRIM_TRY(brim_work_read_optimizer(config, &w->optimizer));
  w->spec.optimizer = &w->optimizer.component;
  BRIM_TRY(read_knobs(w));
  read_loader(w);
  BRIM_TRY(work_data_measure(&w->data));
  w->counts = w->spec.classes > 0 || work_is_multi_label(w->spec.loss);
  w->weights = brim_work_weights(config);
  w->recalibrate_batches = brim_config_int(config, "training.ema_batches");
  describe(&w->spec, &w->data.train.source->info, w->description, sizeof w->description);
  return BRIM_OK;
}

//---------------------------------- negatives ----------------------------------

// `auto` chooses exact accumulation if its extra cost is below this share. One more forward pass adds a third.
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

// Computes the extra cost of exact accumulation in FLOPs, from two plans. Once is enough: the share of a forward
// pass hardly depends on the setting.
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
  bool memory = status == BRIM_ENOMEM || status == BRIM_EOOM;  // a later call may succeed
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

// True if exact is needed at any cost: plain accumulation would learn nothing (micro-batches of one sample), or
// would change the task (the config has one batch, and lack of memory split it).
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

  // data.eval_batch_size, capped at the number of samples. The size changes no result, so under a memory limit,
  // or after memory ran out, it is at most training's batch.
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

  // Evaluation reads the whole set in order, on every rank. Samples that are only copied need no workers;
  // samples to decode or transform get their own workers, while training's workers wait with a full ring.
  // All workers share one batch, so a few batches in the ring are enough.
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

//------------------------------------------ opening ------------------------------------------

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
  learn_read_spec(w);
  read_pairs(config, &w->pairs);
  BRIM_TRY(w->kind->open(w));
  return learn_read_rest(w);
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

// Fills in the cache request of a setting.
static brim_status fill_cache_request(const brim_learn *w, const brim_setting *setting,
                                      const brim_applied *a, brim_cache_request *out) {
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

// Applies a setting and completes the network's spec for its plan: the memory limit and the negatives.
static brim_status prepare(brim_learn *w, const brim_setting *setting, brim_applied *out) {
  brim_cache_request r;
  apply(w, setting, out);
  BRIM_TRY(brim_work_check_precision(w->device, &out->spec));
  BRIM_TRY(fill_cache_request(w, setting, out, &r));
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
  BRIM_TRY(fill_cache_request(w, setting, &a, &r));
  r.plan = plan;
  return decide_cache(&w->data, &r, out);
}

static brim_status learn_cache_of(brim_learn *w, const brim_setting *setting, bool planned,
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

// Plans with the setting's number of threads, on which workspaces depend; the present setting's number is
// restored afterwards.
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

//------------------------------------------ building -----------------------------------------

// Converts `every` from epochs, which configs count, to steps, which the engine counts.
static brim_component scheduler_in_steps(const brim_component *scheduler, int64_t per_epoch,
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
  const int64_t per_epoch = learn_per_epoch(w);
  int64_t total = per_epoch * brim_config_int(config, "training.epochs");
  brim_work_warmup warmup = brim_work_warmup_of(config, per_epoch);
  const brim_component *scheduler = brim_config_component(config, "scheduler", NULL);
  brim_argument args[BRIM_WORK_MAX_ARGS];
  brim_component steps;
  if (scheduler) {
    steps = scheduler_in_steps(scheduler, per_epoch, args);
    scheduler = &steps;
  }
  return brim_schedule_init(out, scheduler, w->optimizer.lr, warmup.steps, total);
}

// Refuses a batch that the ranks cannot divide into equal parts.
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

// Builds the network, the loaders and the schedule of a setting, at position 0.
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
  w->epoch_samples *= w->ranks;  // each rank has the same number of samples
  BRIM_TRY(check_epoch(w));
  BRIM_TRY(make_schedule(w, &w->schedule));
  w->built = true;
  return w->kind->build ? w->kind->build(w, a) : BRIM_OK;
}

// Drops the network, the loaders and the samples on the device.
static void learn_drop_all(brim_learn *w) {
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
  learn_drop_all(w);
  return status;
}

brim_status brim_learn_configure(void *work, const brim_setting *setting) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_CONFIGURE, 0, setting));
  return learn_agree(w, configure(w, setting));
}

void brim_learn_info(void *work, brim_work_info *out) {
  const brim_learn *w = (const brim_learn *)work;
  const brim_work_data *d = &w->data;
  const uint64_t count = d->train.source->info.count, limit = w->loader.limit;
  memset(out, 0, sizeof *out);
  out->unit = "samples";
  out->set_samples = (int64_t)(limit && limit < count ? limit : count);
  out->samples_per_epoch = w->epoch_samples ? w->epoch_samples : out->set_samples;
  out->steps_per_epoch = learn_per_epoch(w);
  out->batch = w->batch;
  out->accumulation = w->accumulation;
  out->eval_samples = d->eval.source ? (int64_t)d->eval.source->info.count : 0;
  out->eval_batch = d->eval.source ? w->eval_batch : 0;
  out->learning_rate = w->optimizer.lr;
  out->cache = cache_name(d->caching.train);
  out->takes_work = d->train.source->info.costly || d->train.transforms;
  out->locked_bytes = work_locked_bytes(d);
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

//------------------------------------------ stepping -----------------------------------------

static brim_batch batch_of(const brim_learn *w, const brim_loaded *loaded) {
  brim_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.input = loaded->input;
  batch.target = loaded->target;
  batch.on_device = loaded->on_device;
  batch.rows = loaded->rows * w->spec.views;
  return batch;
}

static brim_status next_batch(brim_learn *w, const brim_spans *spans, const brim_loaded **loaded) {
  brim_span_begin(spans, BRIM_PHASE_IO, "next batch");
  brim_status status = brim_loader_next(w->train_loader, loaded);
  brim_span_end(spans, BRIM_PHASE_IO, "next batch");
  if (status || !(*loaded)->on_device || !spans || !spans->exact) return status;
  // Wait for the device's transforms, or for rows that the device reads: this time is not computing.
  bool rows = w->mapped_rows;
  brim_phase phase = rows ? BRIM_PHASE_H2D : BRIM_PHASE_TRANSFORM;
  const char *name = rows ? "mapped rows" : "augment";
  brim_span_begin(spans, phase, name);
  status = brim_device_sync(w->device);
  brim_span_end(spans, phase, name);
  if (status) brim_loader_release(w->train_loader, *loaded);
  return status;
}

static void move_on(brim_learn *w, int64_t rows, brim_step_info *out) {
  w->position += rows;
  out->samples = rows;
  out->epoch = w->epoch;
  out->step = w->step;
  if (w->position < w->epoch_samples) return;
  out->epoch_end = true;
  w->epoch++;
  w->position = 0;
}

static int64_t rows_of_step(const brim_learn *w) {
  int64_t remaining = w->epoch_samples - w->position, rows = w->batch * w->accumulation;
  return rows < remaining ? rows : remaining;
}

static brim_status make_step(brim_learn *w, const brim_spans *spans, brim_step_info *out) {
  const int64_t step_rows = rows_of_step(w);
  // The schedule follows the position in the data, not the count of steps, so that a run that resumes with
  // another batch size still completes the schedule.
  int64_t place = w->epoch * learn_per_epoch(w) + w->position / (w->batch * w->accumulation);
  double lr = brim_schedule_lr(&w->schedule, place + 1);
  memset(out, 0, sizeof *out);
  int64_t rows = 0;
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, spans, &loaded));
    brim_net_micro micro;
    memset(&micro, 0, sizeof micro);
    micro.batch = batch_of(w, loaded);
    micro.batch.row_offset = (rows + w->rank * loaded->rows) * w->spec.views;
    micro.step = w->step + 1;
    micro.step_rows = step_rows * w->spec.views;
    micro.first = rows == 0;
    rows += loaded->rows * w->ranks;
    brim_status status = rows < step_rows ? brim_net_train(w->net, &micro, spans)
                                          : brim_net_step(w->net, &micro, lr, spans);
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  w->step++;
  out->lr = lr;
  move_on(w, rows, out);
  return BRIM_OK;
}

// Undoes a step that fails half-way: brim then repeats it with less memory, or saves the state from before the
// data failed. Nothing can be undone on a failed device.
brim_status brim_learn_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_STEP, 0, NULL));
  brim_status status = make_step(w, spans, out);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  BRIM_TRY(brim_net_undo(w->net));
  brim_status_set_detail(why);
  return status;
}

void brim_learn_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_learn *)work)->stop = stop;
}

//---------------------------------- half a step ----------------------------------

static brim_status load_only(void *work, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_LOAD_ONLY, 0, NULL));
  int64_t step_rows = rows_of_step(w), rows = 0;
  memset(out, 0, sizeof *out);
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, NULL, &loaded));
    rows += loaded->rows * w->ranks;
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
  }
  move_on(w, rows, out);
  return BRIM_OK;
}

// Runs steps in which every micro-batch is the same batch. A device with its own memory keeps the batch in its
// slots: further batches have no data and upload nothing.
static brim_status compute_on(brim_learn *w, const brim_loaded *loaded, int steps,
                              brim_step_info *out) {
  bool host = w->device->info.host_memory;
  brim_net_micro micro;
  memset(&micro, 0, sizeof micro);
  micro.batch = batch_of(w, loaded);
  micro.step_rows = micro.batch.rows * w->accumulation * w->ranks;
  for (int i = 0; i < steps; i++) {
    for (int64_t k = 0; k < w->accumulation; k++) {
      bool last = k + 1 == w->accumulation;
      micro.batch.input = host ? loaded->input : NULL;
      micro.batch.row_offset = (k * w->ranks + w->rank) * micro.batch.rows;
      micro.step = w->step + 1;
      micro.first = k == 0;
      BRIM_TRY(last ? brim_net_step(w->net, &micro, w->optimizer.lr, NULL)
                    : brim_net_train(w->net, &micro, NULL));
    }
    w->step++;
    out->samples += loaded->rows * w->accumulation * w->ranks;
  }
  out->step = w->step;
  return BRIM_OK;
}

static brim_status compute_only(void *work, int steps, int64_t *ns, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_COMPUTE_ONLY, steps, NULL));
  const brim_loaded *loaded = NULL;
  brim_step_info moved;
  memset(out, 0, sizeof *out);
  BRIM_TRY(next_batch(w, NULL, &loaded));
  // The last batch of an epoch may be short but costs as much as a full batch: take the next batch.
  if (loaded->rows * w->ranks < w->batch) {
    int64_t part = loaded->rows * w->ranks;
    brim_loader_release(w->train_loader, loaded);
    move_on(w, part, &moved);
    BRIM_TRY(next_batch(w, NULL, &loaded));
  }
  int64_t rows = loaded->rows * w->ranks;
  brim_status status = brim_device_sync(w->device);
  brim_time start = brim_clock_now();
  if (!status) status = compute_on(w, loaded, steps, out);
  // the device may still be reading the batch
  brim_status waited = brim_device_sync(w->device);
  *ns = brim_time_since_ns(start, brim_clock_now());
  brim_loader_release(w->train_loader, loaded);
  move_on(w, rows, &moved);
  return status ? status : waited;
}

//------------------------------------------ metrics ------------------------------------------

static void add_metrics(brim_net_metrics *sum, const brim_net_metrics *part) {
  sum->loss_sum += part->loss_sum;
  sum->correct += part->correct;
  sum->rows += part->rows;
  sum->bad_rows += part->bad_rows;
  sum->grad_norm = part->grad_norm;
  sum->grad_norm_max = fmax(sum->grad_norm_max, part->grad_norm_max);  // 0 = none yet
  sum->loss_scale = part->loss_scale;
  sum->skipped_steps = part->skipped_steps;
}

void brim_learn_means(const brim_learn *w, const brim_net_metrics *sum, bool evaluated,
                      brim_work_metrics *out) {
  bool any = sum->rows > 0, half = w->precision == BRIM_PRECISION_FP16;
  double of = evaluated || sum->bad_rows == 0 ? sum->rows - sum->bad_rows : 0;
  brim_work_metrics_clear(w->kind->metric_set, out);
  double *v = out->values;
  v[BRIM_NET_LOSS] = of > 0 ? sum->loss_sum / of : (double)NAN;
  v[BRIM_NET_ACCURACY] = any && w->counts ? sum->correct / sum->rows : (double)NAN;
  v[BRIM_NET_GRAD_NORM] = sum->grad_norm;
  v[BRIM_NET_GRAD_NORM_MAX] = sum->grad_norm_max > 0 ? sum->grad_norm_max : (double)NAN;
  v[BRIM_NET_LOSS_SCALE] = half ? sum->loss_scale : (double)NAN;
  out->samples = (int64_t)sum->rows;
  out->bad = (int64_t)sum->bad_rows;
  out->skipped = (int64_t)sum->skipped_steps;
  out->searching = half && sum->loss_scale > 1;
  if (!any) return;
  double rows = (double)out->samples, accuracy = v[BRIM_NET_ACCURACY];
  out->sums[BRIM_NET_SUM_LOSS] = v[BRIM_NET_LOSS] * rows;
  out->sums[BRIM_NET_SUM_CORRECT] = isnan(accuracy) ? 0 : accuracy * rows;
  out->sums[BRIM_NET_SUM_ROWS] = rows;
}

void brim_learn_figures(void *work, const double *sums, double *values) {
  const brim_learn *w = (const brim_learn *)work;
  double rows = sums[BRIM_NET_SUM_ROWS];
  bool counted = rows > 0 && w->counts;
  values[BRIM_NET_LOSS] = rows > 0 ? sums[BRIM_NET_SUM_LOSS] / rows : (double)NAN;
  values[BRIM_NET_ACCURACY] = counted ? sums[BRIM_NET_SUM_CORRECT] / rows : (double)NAN;
}

// Replaces this rank's sums by the sums over all ranks.
static brim_status collect_sums(const brim_learn *w, brim_net_metrics *sums) {
  if (!w->comm || brim_net_shares_loss(w->net)) return BRIM_OK;
  double all[] = {sums->loss_sum, sums->correct, sums->rows, sums->bad_rows};
  BRIM_TRY(brim_comm_all_reduce(w->comm, all, 4, BRIM_F64));
  sums->loss_sum = all[0];
  sums->correct = all[1];
  sums->rows = all[2];
  sums->bad_rows = all[3];
  return BRIM_OK;
}

// Counts the samples that any rank left out. A sample counts once, even if different ranks had it in different
// epochs.
static brim_status gather_left_out(brim_learn *w, const brim_loader_stats *mine,
                                   const uint8_t *bits, size_t bytes) {
  const size_t text = sizeof w->first_left_out;
  uint8_t *all = brim_calloc(2, bytes + text);
  if (!all) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  uint8_t *one = all + bytes + text;  // one rank's bits, then the error of its first broken sample
  brim_status status = BRIM_OK;
  w->first_left_out[0] = '\0';
  for (int rank = 0; rank < w->ranks && !status; rank++) {
    if (rank == w->rank) {
      memcpy(one, bits, bytes);
      memcpy(one + bytes, mine->first_broken, text);
    }
    status = brim_comm_broadcast(w->comm, one, bytes + text, rank);
    for (size_t i = 0; i < bytes; i++) all[i] |= one[i];
    if (!w->first_left_out[0]) memcpy(w->first_left_out, one + bytes, text);
  }
  w->left_out = 0;
  for (size_t i = 0; i < bytes; i++) w->left_out += __builtin_popcount(all[i]);
  brim_free(all);
  return status;
}

static brim_status collect_left_out(brim_learn *w) {
  size_t bytes = 0;
  const uint8_t *bits = brim_loader_left_out(w->train_loader, &bytes);
  brim_loader_stats mine;
  if (!w->comm || !bits) return BRIM_OK;
  brim_loader_get_stats(w->train_loader, &mine);
  int64_t reads = (int64_t)(mine.broken_reads - w->recalibrate_reading.broken_reads);
  BRIM_TRY(brim_comm_all_reduce(w->comm, &reads, 1, BRIM_I64));
  if (reads == w->left_out_reads) return BRIM_OK;
  w->left_out_reads = reads;
  return gather_left_out(w, &mine, bits, bytes);
}

// Reads training's metrics since the last reset.
brim_status brim_learn_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_METRICS, reset, NULL));
  brim_net_metrics now, all;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  all = w->carried;
  BRIM_TRY(collect_sums(w, &all));
  BRIM_TRY(collect_left_out(w));
  brim_learn_means(w, &all, false, out);
  if (reset) memset(&w->carried, 0, sizeof w->carried);
  return BRIM_OK;
}

//------------------------------------------- passes ------------------------------------------

brim_status brim_learn_check_stop(const brim_learn *w) {
  return w->stop && *w->stop ? brim_fail(BRIM_EINTERRUPTED, "interrupted") : BRIM_OK;
}

brim_status brim_learn_each(const brim_learn *w, brim_loader *loader, brim_batch_fn fn, void *ctx) {
  int64_t samples = brim_loader_samples(loader), first = 0;
  BRIM_TRY(brim_loader_seek(loader, 0, 0));
  while (first < samples) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_learn_check_stop(w));
    BRIM_TRY(brim_loader_next(loader, &loaded));
    brim_batch batch = {.input = loaded->input,
                        .target = loaded->target,
                        .on_device = loaded->on_device,
                        .rows = loaded->rows};
    brim_status status = fn(ctx, &batch, first);
    first += loaded->rows;
    brim_loader_release(loader, loaded);
    if (status) return status;
  }
  return brim_loader_seek(loader, 0, 0);  // start reading ahead for the next pass
}

// Recalibrates with the batches that training reads next, at most an epoch: the loader has read ahead already.
static brim_status recalibrate_from(brim_learn *w, bool stops, bool *begun) {
  int64_t all = (w->epoch_samples + w->batch - 1) / w->batch;
  int64_t count = w->recalibrate_batches < all ? w->recalibrate_batches : all;
  for (int64_t i = 0; i < count; i++) {
    const brim_loaded *loaded = NULL;
    if (stops) BRIM_TRY(brim_learn_check_stop(w));
    BRIM_TRY(brim_loader_next(w->train_loader, &loaded));
    brim_batch batch = batch_of(w, loaded);
    *begun = true;
    brim_status status = brim_net_recalibrate(w->net, &batch, w->step + 1, i);
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  return BRIM_OK;
}

// Counts the loader's work for recalibration separately, so that training's loading statistics can leave it out.
static void leave_out_reading(brim_learn *w, const brim_loader_stats *before) {
  brim_loader_stats *out = &w->recalibrate_reading, now;
  brim_loader_get_stats(w->train_loader, &now);
  out->samples += now.samples - before->samples;
  out->read_ns += now.read_ns - before->read_ns;
  out->broken_reads += now.broken_reads - before->broken_reads;
  for (size_t i = 0; i < now.stage_count; i++) {
    out->stage_ns[i] += now.stage_ns[i] - before->stage_ns[i];
  }
}

// Recalibrates the batch-norm statistics of the average, before it is evaluated or saved as the model. Does
// nothing without an average, without batch norm, or if this step was recalibrated already.
static brim_status recalibrate(brim_learn *w, bool stops) {
  if (w->recalibrate_batches == 0 || !brim_net_recalibrates(w->net) || w->recalibrated == w->step)
    return BRIM_OK;
  bool begun = false;
  brim_loader_stats before;
  brim_loader_get_stats(w->train_loader, &before);
  brim_status status = recalibrate_from(w, stops, &begun);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status back = brim_loader_seek(w->train_loader, w->epoch, w->position / w->ranks);
  leave_out_reading(w, &before);
  if (status) {
    if (begun && status != BRIM_EDEVICE) BRIM_TRY(brim_net_undo_recalibration(w->net));
    brim_status_set_detail(why);
    return status;
  }
  BRIM_TRY(back);
  w->recalibrated = w->step;
  return BRIM_OK;
}

brim_status brim_learn_evaluate(brim_learn *w, brim_status (*pass)(brim_learn *w),
                                brim_net_metrics *sums) {
  if (!w->eval_loader) {
    return brim_fail(BRIM_ESTATE,
                     "no data set for evaluation; set dataset.val (with labels for contrastive "
                     "training), or data.val_fraction=0.1 to hold out a tenth of a labelled set");
  }
  BRIM_TRY(recalibrate(w, true));
  brim_net_metrics now;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  brim_status status = pass(w);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  // read after a failure too, to drop the sums of half an evaluation
  brim_status read = brim_net_read_metrics(w->net, true, sums);
  if (status) {
    brim_status_set_detail(why);
    return status;
  }
  return read;
}

_Static_assert(BRIM_WORK_MAX_STAGES == BRIM_LOADER_MAX_STAGES, "stages of a pipeline");

static void loading_stats(void *work, brim_work_loading *out) {
  const brim_learn *w = (const brim_learn *)work;
  memset(out, 0, sizeof *out);
  if (!w->train_loader) return;
  brim_loader_stats train, eval;
  brim_loader_get_stats(w->train_loader, &train);
  memset(&eval, 0, sizeof eval);
  if (w->eval_loader) brim_loader_get_stats(w->eval_loader, &eval);
  out->cache = cache_name(w->data.caching.train);
  out->locked_bytes = work_locked_bytes(&w->data);
  const brim_loader_stats *less = &w->recalibrate_reading;
  out->samples = (int64_t)(train.samples - less->samples);
  out->read_ns = train.read_ns - less->read_ns;
  out->stage_count = train.stage_count;
  for (size_t i = 0; i < train.stage_count; i++) {
    out->stage[i] = train.stage[i];
    out->stage_ns[i] = train.stage_ns[i] - less->stage_ns[i];
  }
  const int64_t reads = (int64_t)(train.broken_reads - less->broken_reads);
  const int64_t broken = w->comm ? w->left_out : (int64_t)train.broken;
  const char *first = w->comm ? w->first_left_out : train.first_broken;
  out->broken = broken + (int64_t)eval.broken;
  out->broken_reads = (w->comm ? w->left_out_reads : reads) + (int64_t)eval.broken_reads;
  if (!broken) first = eval.first_broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", first);
}

const brim_work_loading_table brim_learn_loading = {
    .load_only = load_only, .compute_only = compute_only, .stats = loading_stats};

//---------------------------------- trials ----------------------------------

brim_status brim_learn_snapshot(void *work) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_SNAPSHOT, 0, NULL));
  // brim_net_snapshot reads the metrics: save their exact sums and put them back
  BRIM_TRY(brim_net_get_sums(w->net, &w->saved.sums));
  BRIM_TRY(brim_net_snapshot(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved.sums));
  w->saved.carried = w->carried;
  w->saved.step = w->step;
  w->saved.epoch = w->epoch;
  w->saved.position = w->position;
  return BRIM_OK;
}

brim_status brim_learn_restore(void *work) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(learn_tell(w, BRIM_CALL_RESTORE, 0, NULL));
  BRIM_TRY(brim_net_restore(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved.sums));
  BRIM_TRY(brim_loader_seek(w->train_loader, w->saved.epoch, w->saved.position / w->ranks));
  w->step = w->saved.step;
  w->epoch = w->saved.epoch;
  w->position = w->saved.position;
  w->carried = w->saved.carried;
  return BRIM_OK;
}

//---------------------------------------- checkpoints ----------------------------------------
// A checkpoint has the position in the data and the training sums of the epoch, so that a resumed run continues
// from exactly there. engine_checkpoint.c writes the file.

enum { SUM_COUNT = 4 + 2 * BRIM_METRIC_COUNT };

// Reads this rank's training sums of the epoch so far: carried (4), then host and device sums of the network.
// With them a resumed epoch reports the same metrics as an uninterrupted epoch.
static brim_status own_sums(brim_learn *w, brim_net_sums *sums, double values[SUM_COUNT]) {
  BRIM_TRY(brim_net_get_sums(w->net, sums));
  const double carried[] = {w->carried.loss_sum, w->carried.correct, w->carried.rows,
                            w->carried.bad_rows};
  memcpy(values, carried, sizeof carried);
  memcpy(values + 4, sums->host, sizeof sums->host);
  memcpy(values + 4 + BRIM_METRIC_COUNT, sums->device, sizeof sums->device);
  return BRIM_OK;
}

// True if ranks have different sums. A loss over all ranks' samples has the same sums on each rank.
static bool sums_apart(const brim_learn *w) {
  return w->ranks > 1 && !brim_net_shares_loss(w->net);
}

static brim_status put_sums(brim_learn *w, json_t *meta) {
  brim_net_sums sums;
  double values[SUM_COUNT];
  BRIM_TRY(own_sums(w, &sums, values));
  bool all = sums_apart(w) && w->given && w->given_step == w->step;
  brim_status status =
      all ? brim_json_put_numbers(meta, "brim.sums", w->given, (size_t)w->ranks * SUM_COUNT)
          : brim_json_put_numbers(meta, "brim.sums", values, SUM_COUNT);
  if (!status) status = brim_work_put_i64(meta, "brim.skipped_steps", (int64_t)sums.skipped_steps);
  double norm = fmax(w->carried.grad_norm_max, sums.grad_norm_max);  // 0 and NaN = none
  if (status || !(norm > 0)) return status;
  char number[32];
  brim_format_f64(norm, number);
  return brim_json_put(meta, "brim.grad_norm_max", json_string(number));
}

// The place where training samples are transformed: "by the device", "by workers", or NULL (none). Their results
// differ in the last bit, and the choice of data.cache=auto depends on the free memory.
static const char *transforms_where(const brim_learn *w) {
  if (!w->data.train.transforms) return NULL;
  return w->data.train.resident ? "by the device" : "by workers";
}

// Warns if class names, or their order, differ from the checkpoint's: output k of the network means the class
// that was number k in its training.
static brim_status warn_of_classes(const brim_learn *w, const json_t *meta, const char *path) {
  const char *const *names = w->data.class_names;
  const char *text = json_string_value(json_object_get(meta, "brim.network"));
  if (!text || !names) return BRIM_OK;
  json_t *network = NULL;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &network));
  const json_t *saved = json_object_get(network, "class_names");
  for (size_t i = 0; i < json_array_size(saved) && (int64_t)i < w->spec.classes; i++) {
    const char *was = json_string_value(json_array_get(saved, i));
    if (!was || strcmp(was, names[i]) == 0) continue;
    brim_log_warn("workload",
                  "%s was trained with other classes or another class order: class %d was '%.*s' "
                  "and is '%.*s' now",
                  path, (int)i, 200, was, 200, names[i]);
    break;
  }
  json_decref(network);
  return BRIM_OK;
}

// The width of a projection, from the head's last layer. (brim_net_output_width gives the width of features,
// which a network of two views outputs in evaluation.)
static int64_t projection_width(const brim_net *net) {
  int64_t width = brim_net_output_width(net);
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    if (brim_str_starts(p->name, "projector.") && p->rank == 2) width = p->dim[0];
  }
  return width;
}

static brim_status put_network(const brim_learn *w, json_t *meta) {
  const brim_net_spec *spec = &w->spec;
  brim_task task = BRIM_TASK_VALUES;
  int64_t outputs = spec->target_dim;
  if (spec->classes > 0) {
    task = BRIM_TASK_CLASSES;
    outputs = spec->classes;
  } else if (spec->views > 1) {
    task = BRIM_TASK_EMBEDDING;
    outputs = projection_width(w->net);
  } else if (work_is_multi_label(spec->loss)) {
    task = BRIM_TASK_LABELS;
  }
  return brim_trained_put_network(spec, task, outputs, w->data.class_names, meta);
}

// The choice of `auto`, for a checkpoint: "exact", "plain"; NULL = there was no choice.
static const char *choice_of(const brim_pairs *c, int64_t accumulation, bool exact) {
  if (c->accumulation != BRIM_ACCUMULATION_AUTO) return NULL;
  if (accumulation > 1) return exact ? "exact" : "plain";
  return c->chosen == BRIM_CHOSEN_EXACT ? "exact" : c->chosen == BRIM_CHOSEN_PLAIN ? "plain" : NULL;
}

static brim_status fill_metadata(brim_learn *w, bool weights_only, json_t *meta) {
  const char *where = transforms_where(w), *negatives = NULL;
  if (w->spec.views == 2) negatives = choice_of(&w->pairs, w->accumulation, w->exact);
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string(w->kind->name)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", w->epoch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.position", w->position));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", (int64_t)w->spec.seed));
  BRIM_TRY(brim_work_put_i64(meta, "brim.batch", w->batch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.accumulation", w->accumulation));
  if (w->ranks > 1) BRIM_TRY(brim_work_put_i64(meta, "brim.ranks", w->ranks));
  int64_t samples = (int64_t)w->data.train.source->info.count;
  BRIM_TRY(brim_work_put_i64(meta, "brim.samples", samples));
  BRIM_TRY(put_network(w, meta));
  BRIM_TRY(put_sums(w, meta));
  BRIM_TRY(brim_work_put_i64(meta, "brim.threads", w->device->info.threads));
  if (negatives) BRIM_TRY(brim_json_put(meta, "brim.accumulates", json_string(negatives)));
  if (w->recalibrated >= 0 && !weights_only)
    BRIM_TRY(brim_work_put_i64(meta, "brim.settled", w->recalibrated));
  if (where) BRIM_TRY(brim_json_put(meta, "brim.transforms", json_string(where)));
  return brim_work_put_device(w->device, !weights_only, meta);
}

// Makes the metadata of a checkpoint; *out is NULL on failure.
static brim_status make_metadata(brim_learn *w, const json_t *extra, bool weights_only,
                                 json_t **out) {
  brim_json_setup();
  json_t *meta = json_object();
  *out = NULL;
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  brim_status status = fill_metadata(w, weights_only, meta);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  }
  if (status) {
    json_decref(meta);
    return status;
  }
  *out = meta;
  return BRIM_OK;
}

// Recalibrates the average before it is saved as the model, in case it was not evaluated at this step. If that
// fails, the model keeps averaged statistics; with several ranks the run fails, since ranks recalibrate together.
static brim_status recalibrate_model(brim_learn *w) {
  brim_status status = recalibrate(w, false);
  if (status == BRIM_OK || status == BRIM_EDEVICE || w->ranks > 1) return status;
  brim_log_warn("workload",
                "cannot recalibrate the batch-norm statistics of the averaged weights, so brim "
                "uses averaged ones: %s",
                brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

static brim_status give(void *work, bool weights_only) {
  brim_learn *w = (brim_learn *)work;
  brim_net_sums sums;
  double values[SUM_COUNT];
  if (weights_only) BRIM_TRY(recalibrate_model(w));
  if (!sums_apart(w)) return BRIM_OK;
  BRIM_TRY(own_sums(w, &sums, values));
  if (!w->given) w->given = brim_calloc((size_t)w->ranks * SUM_COUNT, sizeof *w->given);
  if (!w->given) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  w->given_step = w->step;
  return brim_comm_all_gather(w->comm, values, w->given, sizeof values);
}

brim_status brim_learn_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta;
  if (weights_only) BRIM_TRY(recalibrate_model(w));
  BRIM_TRY(make_metadata(w, extra, weights_only, &meta));
  brim_status status = brim_net_save(w->net, path, meta, weights_only);
  json_decref(meta);
  return status;
}

static brim_status held_write(void *held, const char *path) {
  return brim_net_held_write((brim_net_held *)held, path);
}

static void held_free(void *held) { brim_net_held_free((brim_net_held *)held); }

static brim_status hold(void *work, const json_t *extra, bool weights_only, brim_work_held *out) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta;
  brim_net_held *held = NULL;
  BRIM_TRY(make_metadata(w, extra, weights_only, &meta));
  brim_status status = brim_net_hold(w->net, meta, weights_only, &held);
  json_decref(meta);
  *out = (brim_work_held){.state = held, .write = held_write, .free = held_free};
  return status;
}

const brim_work_background_table brim_learn_background = {.hold = hold};

//---------------------------------- loading ----------------------------------

// Reads this rank's sums. If the checkpoint is from another number of ranks, the first rank takes all sums.
static bool get_rank_sums(const brim_learn *w, const json_t *meta, double values[SUM_COUNT]) {
  size_t most = (size_t)BRIM_RANKS_MAX * SUM_COUNT;
  double *all = brim_calloc(most, sizeof *all);
  size_t count = all ? brim_json_get_numbers(meta, "brim.sums", all, most) : 0;
  size_t ranks = count / SUM_COUNT;
  bool there = count > 0 && count % SUM_COUNT == 0;
  for (size_t r = 0; there && r < ranks; r++) {
    bool own = ranks == (size_t)w->ranks ? r == (size_t)w->rank : w->rank == 0;
    if (brim_net_shares_loss(w->net)) own = ranks == 1 || w->rank == 0;
    for (size_t i = 0; own && i < SUM_COUNT; i++) values[i] += all[r * SUM_COUNT + i];
  }
  brim_free(all);
  return there;
}

// Loads the sums. Without valid sums in the checkpoint they start at 0: only reports depend on them.
static brim_status load_sums(brim_learn *w, const json_t *meta) {
  brim_net_sums sums;
  memset(&sums, 0, sizeof sums);
  memset(&w->carried, 0, sizeof w->carried);
  sums.grad_norm_max = (double)NAN;
  double values[SUM_COUNT] = {0};
  if (get_rank_sums(w, meta, values)) {
    w->carried.loss_sum = values[0];
    w->carried.correct = values[1];
    w->carried.rows = values[2];
    w->carried.bad_rows = values[3];
    memcpy(sums.host, values + 4, sizeof sums.host);
    memcpy(sums.device, values + 4 + BRIM_METRIC_COUNT, sizeof sums.device);
  }
  int64_t skipped = 0;
  const char *count = json_string_value(json_object_get(meta, "brim.skipped_steps"));
  if (count && brim_parse_i64(count, &skipped) && skipped > 0)
    sums.skipped_steps = (uint64_t)skipped;
  const char *norm = json_string_value(json_object_get(meta, "brim.grad_norm_max"));
  if (norm && (!brim_parse_f64(norm, &sums.grad_norm_max) || !(sums.grad_norm_max > 0))) {
    sums.grad_norm_max = (double)NAN;
  }
  return brim_net_set_sums(w->net, &sums);
}

// Warns if the continued run cannot be bit-identical: another backend, library, thread count or setting. Says
// nothing of other micro-batches, which the caller logs.
static void warn_if_different(const brim_learn *w, const json_t *meta, const char *path) {
  char threads[16], batch[32], samples[32], ranks[16];
  const char *saved_ranks = json_string_value(json_object_get(meta, "brim.ranks"));
  snprintf(ranks, sizeof ranks, "%d", w->ranks);
  if (w->rank > 0) return;  // rank 0 warns
  if (strcmp(saved_ranks ? saved_ranks : "1", ranks) != 0) {
    brim_log_warn("workload",
                  "%s was written with %s ranks, this run has %s: the run continues, but is no "
                  "longer bit-identical",
                  path, saved_ranks ? saved_ranks : "1", ranks);
  }
  snprintf(samples, sizeof samples, "%" PRIu64, w->data.train.source->info.count);
  snprintf(threads, sizeof threads, "%d", (int)w->device->info.threads);
  snprintf(batch, sizeof batch, "%" PRId64, w->batch);
  const brim_device *device = w->device;
  const char *where = transforms_where(w);
  const char *const rows[][2] = {{"brim.transforms", where ? where : ""},
                                 {"brim.backend", device->backend->name},
                                 {"brim.library", device->info.library},
                                 {"brim.device", device->info.name},
                                 {"brim.threads", threads},
                                 {"brim.batch", batch},
                                 {"brim.samples", samples}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (w->rebuilt && rows[i][1] == batch) continue;
    if (rows[i][1][0]) brim_work_warn_if_other(meta, path, rows[i][0], rows[i][1]);
  }
}

typedef struct checkpoint_place {
  int64_t step, epoch, position;
  bool moved;  // the position was moved to the start of the next epoch
} checkpoint_place;

// Reads and checks the place of a checkpoint before anything changes.
static brim_status read_place(const brim_learn *w, const char *path, checkpoint_place *out) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  const json_t *meta = brim_safetensors_metadata(file);
  brim_status status = brim_work_get_count(meta, path, "brim.step", &out->step);
  if (!status) status = brim_work_get_count(meta, path, "brim.epoch", &out->epoch);
  if (!status) status = brim_work_get_count(meta, path, "brim.position", &out->position);
  brim_safetensors_close(file);
  if (status) return status;
  // compare with the whole set: the rest that drop_last leaves out depends on the batch size
  int64_t samples = (int64_t)w->data.train.source->info.count;
  int64_t limit = (int64_t)w->loader.limit;
  if (limit && limit < samples) samples = limit;
  if (out->position >= samples) {
    return brim_fail(BRIM_EINVAL,
                     "%s is at sample %" PRId64 " of an epoch, but this data set has %" PRId64
                     "; was it trained on other data?",
                     path, out->position, samples);
  }
  // drop_last needs whole batches: with another batch size, skip to the next start of a batch
  if (w->loader.drop_last && out->position % w->batch != 0) {
    out->position += w->batch - out->position % w->batch;
  }
  // the position must be a multiple of the number of ranks
  if (out->position % w->ranks != 0) out->position += w->ranks - out->position % w->ranks;
  if (out->position >= w->epoch_samples) {
    out->position = 0;
    out->epoch++;
    out->moved = true;
  }
  return BRIM_OK;
}

brim_status brim_learn_load(void *work, const char *path, json_t **extra) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta = NULL;
  checkpoint_place at = {0};
  BRIM_TRY(read_place(w, path, &at));
  BRIM_TRY(brim_net_load(w->net, path, false, &meta));
  brim_status status = BRIM_OK;
  if (at.moved) {
    // The rest of the epoch is too short for a batch, so its sums end here.
    if (json_object_del(meta, "brim.sums")) brim_log_debug("workload", "%s has no sums", path);
    status = brim_work_put_i64(meta, "brim.epoch", at.epoch);
    if (!status) status = brim_json_put(meta, "brim.new_epoch", json_string("true"));
  }
  const char *recalibrated = json_string_value(json_object_get(meta, "brim.settled"));
  if (!recalibrated || !brim_parse_i64(recalibrated, &w->recalibrated)) w->recalibrated = -1;
  if (!status) status = load_sums(w, meta);
  if (!status) status = brim_loader_seek(w->train_loader, at.epoch, at.position / w->ranks);
  if (!status) {
    w->step = at.step;
    w->epoch = at.epoch;
    w->position = at.position;
    warn_if_different(w, meta, path);
    status = warn_of_classes(w, meta, path);
  }
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

brim_status brim_learn_use(void *work, const char *path, bool averaged) {
  brim_learn *w = (brim_learn *)work;
  w->recalibrated = w->step;  // the file has the statistics for its weights
  return brim_net_load_weights(w->net, path, averaged ? BRIM_TRAINED_EMA : NULL);
}

//------------------------------------------- ranks -------------------------------------------
// Commands that measure have no run loop on ranks 1..n. The first rank decides by the clock what to run,
// broadcasts each call, and the others repeat it.

static void lead(void *work, bool on) {
  brim_learn *w = (brim_learn *)work;
  if (!w->comm || w->rank > 0) return;
  if (!on && w->leads && learn_tell(w, BRIM_CALL_END, 0, NULL)) {
    brim_status_clear();  // the rank that failed reports why
  }
  w->leads = on;
}

static brim_status repeat(const brim_workload_table *table, void *work, const call *c) {
  brim_step_info info;
  brim_work_metrics metrics;
  int64_t ns;
  switch ((learn_call)c->kind) {
    case BRIM_CALL_STEP:
      return table->step(work, NULL, &info);
    case BRIM_CALL_METRICS:
      return table->metrics(work, c->number != 0, &metrics);
    case BRIM_CALL_SNAPSHOT:
      return table->snapshot(work);
    case BRIM_CALL_RESTORE:
      return table->restore(work);
    case BRIM_CALL_LOAD_ONLY:
      return table->loading->load_only(work, &info);
    case BRIM_CALL_COMPUTE_ONLY:
      return table->loading->compute_only(work, c->number, &ns, &info);
    case BRIM_CALL_CONFIGURE:
      // learn_agree makes it fail on the first rank too, which reports it and continues
      if (table->configure(work, &c->setting)) brim_status_clear();
      return BRIM_OK;
    case BRIM_CALL_END:
      break;
  }
  return brim_fail(BRIM_EINTERNAL, "the first rank asked for call %d", (int)c->kind);
}

static brim_status follow(void *work, const brim_workload_table *table) {
  brim_learn *w = (brim_learn *)work;
  brim_status status = BRIM_OK;
  w->follows = true;
  while (!status) {
    call c = {0};
    status = brim_comm_broadcast(w->comm, &c, sizeof c, 0);
    if (status || c.kind == BRIM_CALL_END) break;
    status = repeat(table, work, &c);
  }
  w->follows = false;
  return status;
}

// Sets the rank. Drops the decision of the last plan: the share of host memory may have changed.
static void share(void *work, int rank, int world) {
  brim_learn *w = (brim_learn *)work;
  w->loader.rank = rank;
  w->loader.world = world;
  w->data.has_planned = false;
}

static void drop(void *work) { learn_drop_all((brim_learn *)work); }

const brim_work_ranks_table brim_learn_ranks = {
    .share = share, .drop = drop, .give = give, .lead = lead, .follow = follow};
