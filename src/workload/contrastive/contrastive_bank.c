// The bank: labelled samples whose features vote on those of the evaluation set.
#include <string.h>

#include "workload/contrastive/contrastive_int.h"
#include "workload/workload_cache.h"
#include "workload/workload_source.h"

static brim_source *bank_source(const brim_contrastive *w) {
  return w->bank.source ? w->bank.source : w->data.train.source;
}

static brim_status nothing_evaluated(brim_contrastive *w, const char *why) {
  brim_log_warn("workload", "no evaluation: %s", why);
  brim_status_clear();
  brim_transforms_destroy(w->data.eval.transforms);
  brim_source_close(w->data.eval.source);
  brim_source_close(w->bank.source);
  w->data.eval.transforms = NULL;
  w->data.eval.source = w->bank.source = NULL;
  return BRIM_OK;
}

// Of a component for all splits its labelled training samples.
static brim_status open_labelled(brim_contrastive *w) {
  const brim_component *train = w->data.component;
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    BRIM_TRY(brim_work_with_argument(w->data.arena, &train, parts[i], NULL));
  }
  bool before = brim_log_hush(true);  // the same files again
  brim_status status = brim_work_open_source(&w->data, train, "train", &w->bank.source);
  brim_log_hush(before);
  return status;
}

static const brim_source_info *info_of(const brim_source *source,
                                       const brim_transforms *transforms) {
  return transforms ? brim_transforms_info(transforms) : &source->info;
}

// What reaches the network to be evaluated is the same shape in both; labels are those of the bank.
static brim_status check_bank(brim_contrastive *w) {
  static const char advice[] =
      "; give transform.val that ends in the shape that transform.train does";
  const brim_work_data *d = &w->data;
  brim_source_info bank_info = *info_of(bank_source(w), w->bank.transforms);
  brim_source_info eval_info = *brim_work_set_info(&d->eval);
  brim_source_info train_info = *brim_work_set_info(&d->train);
  BRIM_TRY(
      brim_source_match(bank_source(w), &bank_info, d->eval.source, &eval_info, false, advice));
  train_info.classes = eval_info.classes;
  train_info.target_dim = eval_info.target_dim;
  BRIM_TRY(brim_source_match(d->train.source, &train_info, d->eval.source, &eval_info,
                             brim_work_any_size(d->config), advice));
  w->bank.classes = bank_info.classes;
  return BRIM_OK;
}

brim_status brim_contrastive_open_bank(brim_contrastive *w) {
  const brim_work_data *d = &w->data;
  if (!d->eval.source) return BRIM_OK;
  if (d->eval.source->info.classes <= 0) {
    return nothing_evaluated(w,
                             brim_tr("the evaluation set has no labels for evaluating features"));
  }
  if (d->train.source->info.classes <= 0) {
    brim_status status = open_labelled(w);
    if (status == BRIM_ENOENT || (!status && w->bank.source->info.classes <= 0)) {
      return nothing_evaluated(w, brim_tr("no labelled training split for evaluating features"));
    }
    BRIM_TRY(status);
  }
  bool random = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(d->config, &random);
  BRIM_TRY(
      brim_work_make_transforms(pipeline, bank_source(w), d->seed, random, &w->bank.transforms));
  return check_bank(w);
}

void brim_contrastive_close_bank(brim_contrastive *w) {
  brim_loader_destroy(w->bank.loader);
  brim_transforms_destroy(w->bank.transforms);
  brim_source_close(w->bank.source);
}

int64_t brim_contrastive_bank_count(const brim_contrastive *w) {
  int64_t count = (int64_t)bank_source(w)->info.count;
  int64_t limit = brim_config_int(w->data.config, "data.limit");
  return !w->bank.source && limit > 0 && limit < count ? limit : count;
}

//---------------------------------- loading it ----------------------------------

// In order; decoding and transforming are worth the workers that training has.
static brim_loader_options bank_options(const brim_contrastive *w, const brim_applied *a) {
  brim_loader_options o = a->eval;
  o.transforms = w->bank.transforms;
  o.limit = w->bank.source ? 0 : w->loader.limit;
  bool work = bank_source(w)->info.costly || w->bank.transforms;
  o.num_workers = work ? a->train.num_workers : 0;
  o.resident = NULL;
  return o;
}

static bool shares_set(const brim_contrastive *w, brim_cache cache) {
  return !w->bank.source && brim_cache_needs_no_workers(cache);
}

// Where the training set lies on the device, or is read by it, the bank is read from there: only its
// batches are besides.
brim_status brim_contrastive_plan_bank(const brim_contrastive *w, const brim_work_caching *caching,
                                       const brim_applied *a, brim_plan *plan) {
  if (!w->neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, a);
  brim_source bare = *bank_source(w);
  bare.cache = NULL;
  if (!shares_set(w, caching->train)) return brim_loader_plan(&bare, &o, plan);
  brim_plan part;
  memset(&part, 0, sizeof part);
  const brim_work_context *context = &w->data.context;
  BRIM_TRY(caching->train == BRIM_CACHE_GPU
               ? brim_resident_plan(context->registry, context->device, &bare, &o, &part)
               : brim_mapped_plan(context->registry, context->device, &bare, &o, &part));
  for (size_t i = 0; i < part.row_count; i++) {
    const brim_plan_row *row = &part.rows[i];
    if (strstr(row->name, "dataset") || strstr(row->name, "resident")) continue;
    BRIM_TRY(brim_plan_add(plan, row->place, row->name, row->bytes));
  }
  return BRIM_OK;
}

brim_status brim_contrastive_make_loader(brim_contrastive *w, const brim_applied *a) {
  if (!w->neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, a);
  if (shares_set(w, w->data.caching.train)) o.resident = w->data.train.resident;
  return brim_loader_create(w->data.context.device, bank_source(w), &o, &w->bank.loader);
}
