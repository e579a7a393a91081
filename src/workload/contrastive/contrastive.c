// What contrastive training has besides the supervised workload's steps: a labelled bank of samples
// whose features judge those of the evaluation set, and the choice between negatives of a micro-batch
// and of the whole step.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload_int.h"

// Exact accumulation is taken by itself where it costs less than this: one forward pass more is a
// third.
static const double worth_it = 0.40;

//---------------------------------- config ----------------------------------

static void read_accumulation(brim_contrastive *c, const brim_config *config) {
  const char *text = brim_config_string(config, "contrastive.accumulation");
  c->exact_cost = (double)NAN;
  c->accumulation = BRIM_ACCUMULATION_AUTO;
  if (text && strcmp(text, "plain") == 0) c->accumulation = BRIM_ACCUMULATION_PLAIN;
  if (text && strcmp(text, "exact") == 0) c->accumulation = BRIM_ACCUMULATION_EXACT;
}

brim_source *brim_contrastive_bank(const brim_supervised *w) {
  return w->contrastive.bank_source ? w->contrastive.bank_source : w->train_source;
}

static int64_t bank_count(const brim_supervised *w) {
  int64_t count = (int64_t)brim_contrastive_bank(w)->info.count, limit = (int64_t)w->loader.limit;
  return !w->contrastive.bank_source && limit > 0 && limit < count ? limit : count;
}

brim_status brim_contrastive_setup(brim_supervised *w) {
  brim_contrastive *c = &w->contrastive;
  const brim_config *config = w->config;
  read_accumulation(c, config);
  if (!c->on) return BRIM_OK;
  if (brim_config_int(config, "contrastive.views") != 2) {
    return brim_fail(BRIM_EINVAL,
                     "contrastive.views is %lld, but NT-Xent compares 2; remove the key",
                     (long long)brim_config_int(config, "contrastive.views"));
  }
  c->probe_epochs = brim_config_int(config, "contrastive.probe_epochs");
  if (!w->eval_source) return BRIM_OK;
  w->loader.limit =
      (uint64_t)brim_config_int(config, "data.limit");  // before the loader's own turn
  c->neighbours.bank = bank_count(w);
  c->neighbours.classes = c->classes;
  c->neighbours.k = (int32_t)brim_config_int(config, "contrastive.knn_k");
  c->neighbours.temperature = brim_config_float(config, "contrastive.knn_temperature");
  return BRIM_OK;
}

//---------------------------------- the bank ----------------------------------

static brim_status nothing_evaluated(brim_supervised *w, const char *why) {
  brim_log_warn("workload", "no evaluation: %s", why);
  brim_status_clear();
  brim_transforms_destroy(w->eval_transforms);
  brim_source_close(w->eval_source);
  brim_source_close(w->contrastive.bank_source);
  w->eval_transforms = NULL;
  w->eval_source = w->contrastive.bank_source = NULL;
  return BRIM_OK;
}

// Of a component for all splits its labelled training samples.
static brim_status open_labelled(brim_supervised *w, const brim_component *train) {
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    BRIM_TRY(brim_supervised_with_argument(w->arena, &train, parts[i], NULL));
  }
  bool before = brim_log_hush(true);  // the same files again
  brim_status status = brim_supervised_open_source(w, train, "train", &w->contrastive.bank_source);
  brim_log_hush(before);
  return status;
}

static const brim_source_info *info_of(const brim_source *source,
                                       const brim_transforms *transforms) {
  return transforms ? brim_transforms_info(transforms) : &source->info;
}

// What reaches the network to be judged is the same shape in both; labels are those of the bank.
static brim_status check_bank(brim_supervised *w) {
  static const char advice[] =
      "; give transform.val that ends in the shape that transform.train does";
  brim_contrastive *c = &w->contrastive;
  const brim_source *bank = brim_contrastive_bank(w);
  brim_source_info bank_info = *info_of(bank, c->bank_transforms);
  brim_source_info eval_info = *info_of(w->eval_source, w->eval_transforms);
  brim_source_info train_info = *brim_supervised_train_info(w);
  BRIM_TRY(brim_source_match(bank, &bank_info, w->eval_source, &eval_info, false, advice));
  train_info.classes = eval_info.classes;
  train_info.target_dim = eval_info.target_dim;
  BRIM_TRY(brim_source_match(w->train_source, &train_info, w->eval_source, &eval_info,
                             brim_supervised_any_size(w->config), advice));
  c->classes = bank_info.classes;
  return BRIM_OK;
}

brim_status brim_contrastive_open_bank(brim_supervised *w, const brim_component *train) {
  brim_contrastive *c = &w->contrastive;
  if (!w->eval_source) return BRIM_OK;
  if (w->eval_source->info.classes <= 0) {
    return nothing_evaluated(w,
                             brim_tr("the evaluation set has no labels for evaluating features"));
  }
  if (w->train_source->info.classes <= 0) {
    brim_status status = open_labelled(w, train);
    if (status == BRIM_ENOENT || (!status && c->bank_source->info.classes <= 0)) {
      return nothing_evaluated(w, brim_tr("no labelled training split for evaluating features"));
    }
    BRIM_TRY(status);
  }
  bool random = false;
  const brim_pipeline *pipeline = brim_supervised_eval_pipeline(w->config, &random);
  BRIM_TRY(brim_supervised_make_transforms(w, pipeline, brim_contrastive_bank(w), random,
                                           &c->bank_transforms));
  return check_bank(w);
}

// Of features that are no numbers every sample is bad, and their neighbours are a finite 0 % right.
void brim_contrastive_figures(const brim_net_metrics *sums, brim_work_metrics *out) {
  memset(out, 0, sizeof *out);
  out->set = &brim_contrastive_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  out->values[BRIM_CONTRASTIVE_KNN] = sums->rows > 0 ? sums->correct / sums->rows : (double)NAN;
  out->samples = (int64_t)sums->rows;
  out->bad = (int64_t)sums->bad_rows;
}

void brim_contrastive_close(brim_supervised *w) {
  brim_transforms_destroy(w->contrastive.bank_transforms);
  brim_source_close(w->contrastive.bank_source);
}

//---------------------------------- loading it ----------------------------------

// In order; decoding and transforming are worth the workers that training has.
static brim_loader_options bank_options(const brim_supervised *w, const brim_loader_options *train,
                                        const brim_loader_options *eval) {
  brim_loader_options o = *eval;
  const brim_contrastive *c = &w->contrastive;
  o.transforms = c->bank_transforms;
  o.limit = c->bank_source ? 0 : w->loader.limit;
  bool work = brim_contrastive_bank(w)->info.costly || c->bank_transforms;
  o.num_workers = work ? train->num_workers : 0;
  o.resident = NULL;
  return o;
}

static bool shares_set(const brim_supervised *w, brim_cache cache) {
  return !w->contrastive.bank_source && (cache == BRIM_CACHE_GPU || cache == BRIM_CACHE_MAPPED);
}

// Where the training set lies on the device, or is read by it, the bank is read from there: only its
// batches are besides.
brim_status brim_contrastive_plan_bank(const brim_supervised *w,
                                       const brim_supervised_caching *caching,
                                       const brim_loader_options *train,
                                       const brim_loader_options *eval, brim_plan *plan) {
  if (!w->contrastive.neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, train, eval);
  brim_source bare = *brim_contrastive_bank(w);
  bare.cache = NULL;
  if (!shares_set(w, caching->train)) return brim_loader_plan(&bare, &o, plan);
  brim_plan part;
  memset(&part, 0, sizeof part);
  const brim_registry *registry = w->context.registry;
  BRIM_TRY(caching->train == BRIM_CACHE_GPU
               ? brim_resident_plan(registry, w->context.device, &bare, &o, &part)
               : brim_mapped_plan(registry, w->context.device, &bare, &o, &part));
  for (size_t i = 0; i < part.row_count; i++) {
    const brim_plan_row *row = &part.rows[i];
    if (strstr(row->name, "dataset") || strstr(row->name, "resident")) continue;
    BRIM_TRY(brim_plan_add(plan, row->place, row->name, row->bytes));
  }
  return BRIM_OK;
}

brim_status brim_contrastive_make_loader(brim_supervised *w, const brim_loader_options *train,
                                         const brim_loader_options *eval) {
  if (!w->contrastive.neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, train, eval);
  if (shares_set(w, w->caching.train)) o.resident = w->train_resident;
  return brim_loader_create(w->context.device, brim_contrastive_bank(w), &o,
                            &w->contrastive.bank_loader);
}

//---------------------------------- judging ----------------------------------

brim_status brim_contrastive_each(const brim_supervised *w, brim_loader *loader, brim_batch_fn fn,
                                  void *ctx) {
  int64_t samples = brim_loader_samples(loader), first = 0;
  BRIM_TRY(brim_loader_seek(loader, 0, 0));
  while (first < samples) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_supervised_go_on(w));
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
  return brim_loader_seek(loader, 0, 0);  // what is read ahead now is of use the next time
}

static brim_status keep(void *net, const brim_batch *batch, int64_t first) {
  return brim_net_bank((brim_net *)net, batch, first);
}

static brim_status judge(void *net, const brim_batch *batch, int64_t first) {
  (void)first;
  return brim_net_judge((brim_net *)net, batch);
}

brim_status brim_contrastive_judge(brim_supervised *w) {
  BRIM_TRY(brim_contrastive_each(w, w->contrastive.bank_loader, keep, w->net));
  return brim_contrastive_each(w, w->eval_loader, judge, w->net);
}

//---------------------------------- accumulation ----------------------------------

void brim_contrastive_tell(brim_supervised *w, const brim_net_spec *spec) {
  brim_contrastive *c = &w->contrastive;
  if (w->views != 2 || spec->accumulation < 2) return;
  long long all = (long long)(spec->batch * spec->accumulation);
  double percent = 100 * c->exact_cost;
  if (!spec->exact && brim_supervised_adapted(w, spec)) {
    if (c->warned != spec->batch) {
      brim_log_warn("workload",
                    "negatives now come from the smaller micro-batch of %lld; to keep all %lld, "
                    "set contrastive.accumulation: exact",
                    (long long)spec->batch, all);
    }
    c->warned = spec->batch;
    return;
  }
  if (c->said) return;
  c->said = true;
  if (spec->exact) {
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

// By planned FLOPs, once: the share of one forward pass hardly depends on the setting.
static brim_status plan_cost(brim_supervised *w, const brim_net_spec *spec) {
  brim_plan plain, exact;
  brim_net_spec s = *spec;
  if (!isnan(w->contrastive.exact_cost)) return BRIM_OK;
  memset(&plain, 0, sizeof plain);
  memset(&exact, 0, sizeof exact);
  s.exact = false;
  BRIM_TRY(brim_net_plan(w->context.device, &s, &plain));
  s.exact = true;
  brim_status status = brim_net_plan(w->context.device, &s, &exact);
  bool possible = status == BRIM_OK;
  // only who asked for it has to be told that it cannot be
  bool memory = status == BRIM_ENOMEM || status == BRIM_EOOM;  // another time it could be
  if (memory || (!possible && w->contrastive.accumulation != BRIM_ACCUMULATION_AUTO)) return status;
  if (!possible) {
    snprintf(w->contrastive.why_plain, sizeof w->contrastive.why_plain, "%s", brim_status_detail());
    brim_utf8_trim(w->contrastive.why_plain);
    brim_status_clear();
  }
  w->contrastive.exact_cost =
      possible ? exact.flops_per_step / plain.flops_per_step - 1 : (double)INFINITY;
  return BRIM_OK;
}

// By the config, or by the checkpoint that is gone on from.
static bool settled(const brim_contrastive *c) {
  return c->accumulation != BRIM_ACCUMULATION_AUTO || c->decided != BRIM_DECIDED_NOT;
}

// Plain accumulation of this would learn nothing, or, where too little memory made micro-batches of what
// was asked for as one batch, something else: no price is too high then.
static bool must_be_exact(const brim_supervised *w, const brim_net_spec *spec) {
  bool asked = w->knobs[BRIM_SUPERVISED_ACCUMULATION].value > 1;
  if (spec->batch == 1) return true;
  if (w->contrastive.decided == BRIM_DECIDED_PLAIN) return false;
  return !asked && brim_supervised_adapted(w, spec);
}

// One sample alone is compared with nothing, unless it is with those of its whole step.
bool brim_contrastive_sensible(void *work, const brim_setting *setting) {
  const brim_supervised *w = (const brim_supervised *)work;
  bool alone = w->views == 2 && setting->value[BRIM_SUPERVISED_BATCH] == 1;
  if (!alone) return true;
  bool plain = w->contrastive.accumulation == BRIM_ACCUMULATION_PLAIN;
  bool impossible = isinf(w->contrastive.exact_cost);
  return setting->value[BRIM_SUPERVISED_ACCUMULATION] > 1 && !plain && !impossible;
}

static brim_status check_negatives(const brim_net_spec *spec) {
  if (spec->batch > 1 || spec->exact) return BRIM_OK;
  if (spec->accumulation < 2) {
    return brim_fail(BRIM_EINVAL,
                     "a step of one sample has no negatives, so contrastive training cannot learn; "
                     "set data.batch_size to 2 or more");
  }
  return brim_fail(BRIM_EINVAL,
                   "micro-batches of one sample have no negatives, so contrastive training cannot "
                   "learn; set data.batch_size to 2 or more, or contrastive.accumulation: exact");
}

brim_status brim_contrastive_choose(brim_supervised *w, brim_net_spec *spec) {
  brim_contrastive *c = &w->contrastive;
  spec->exact = false;
  if (w->views != 2) return BRIM_OK;
  if (spec->accumulation < 2) return check_negatives(spec);
  bool exact = c->accumulation == BRIM_ACCUMULATION_EXACT;
  bool automatic = c->accumulation == BRIM_ACCUMULATION_AUTO;
  bool must = automatic && must_be_exact(w, spec);
  if (automatic) exact = must || c->decided != BRIM_DECIDED_PLAIN;
  if (exact) BRIM_TRY(plan_cost(w, spec));
  bool possible = isfinite(c->exact_cost), worth = c->exact_cost < worth_it;
  spec->exact = exact && (must ? possible : settled(c) || worth);
  return check_negatives(spec);
}

brim_status brim_contrastive_put_choice(const brim_supervised *w, json_t *metadata) {
  const brim_contrastive *c = &w->contrastive;
  if (w->views != 2 || c->accumulation != BRIM_ACCUMULATION_AUTO) return BRIM_OK;
  const char *now = w->accumulation > 1 ? (w->exact ? "exact" : "plain") : NULL;
  const char *decided = c->decided == BRIM_DECIDED_EXACT   ? "exact"
                        : c->decided == BRIM_DECIDED_PLAIN ? "plain"
                                                           : NULL;
  if (!now) now = decided;
  return now ? brim_json_put(metadata, "brim.accumulates", json_string(now)) : BRIM_OK;
}

void brim_contrastive_take_choice(void *work, const json_t *metadata) {
  brim_contrastive *c = &((brim_supervised *)work)->contrastive;
  const char *text = json_string_value(json_object_get(metadata, "brim.accumulates"));
  if (text && strcmp(text, "exact") == 0) c->decided = BRIM_DECIDED_EXACT;
  if (text && strcmp(text, "plain") == 0) c->decided = BRIM_DECIDED_PLAIN;
}
