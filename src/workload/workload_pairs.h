// Inside the workload room: a loss that compares the samples of a step (ntxent) with gradient
// accumulation. The negatives of a sample are those of its micro-batch (plain), or of the whole step
// (exact), which computes each micro-batch twice.
#ifndef BRIM_WORKLOAD_PAIRS_H_
#define BRIM_WORKLOAD_PAIRS_H_

#include "workload/workload_learn.h"

typedef struct brim_pairs {
  // contrastive.accumulation, and what `auto` found: by how much exact costs more, once planned
  enum { BRIM_ACCUMULATION_PLAIN, BRIM_ACCUMULATION_EXACT, BRIM_ACCUMULATION_AUTO } accumulation;
  double exact_cost;    // NaN = not planned yet; infinite = it cannot be
  char why_plain[256];  // why it cannot be
  // by the checkpoint that training resumes from: `auto` decides nothing again
  enum { BRIM_CHOSEN_NOT, BRIM_CHOSEN_PLAIN, BRIM_CHOSEN_EXACT } chosen;
  bool said;
  int64_t warned;  // the smaller micro-batch whose fewer negatives were warned of
} brim_pairs;

void brim_pairs_read(const brim_config *config, brim_pairs *c);
// Sets spec->full_batch_negatives: whether the loss of a step is taken over all its micro-batches; planned where `auto`
// has to know. Without two views there is nothing to choose.
brim_status brim_pairs_choose(brim_pairs *c, brim_device *device, const brim_batching *batching,
                              brim_net_spec *spec);
// Reports what a sample's negatives are, once; where too little memory made them fewer, warns.
void brim_pairs_report(brim_pairs *c, const brim_batching *batching, const brim_net_spec *spec);
// Of two views: does each sample have negatives?
bool brim_pairs_sensible(const brim_pairs *c, int64_t batch, int64_t accumulation);
// The choice of `auto` to and from a checkpoint ("exact", "plain"); NULL = nothing was chosen.
const char *brim_pairs_choice(const brim_pairs *c, int64_t accumulation, bool exact);
void brim_pairs_take_choice(brim_pairs *c, const json_t *metadata);
// The width of a projection: a network of pairs may output its features when it is evaluated.
int64_t brim_pairs_width(const brim_net *net);

#endif  // BRIM_WORKLOAD_PAIRS_H_
