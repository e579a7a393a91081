// `brim init`, inside the command: what was found at a path, what suits it, and the config's text.
#ifndef BRIM_CLI_INIT_H_
#define BRIM_CLI_INIT_H_

#include "brim/source.h"
#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

// What lies at the path. `info` is that of the split that is trained on.
typedef struct brim_init_facts {
  const char *name;     // of the config and the run
  const char *dataset;  // "folder", or as --dataset has it
  const char *path;     // NULL: the dataset needs none
  const char *split;    // that is trained on where it is not train; NULL = train
  bool has_val;         // a val or test split is there
  brim_source_info info;
  bool binary_targets;             // brim_source.binary_targets
  int64_t height, width;           // of images: all of them, or the middle one where sizes vary
  const char *const *class_names;  // NULL = not known
  const char *unused;              // what of the path no split reads; "" = nothing
  bool gpu;                        // the device that will train
  bool allow_external;             // other files that an HDF5 file names may be read
} brim_init_facts;

typedef enum brim_init_kind {
  BRIM_INIT_SMALL_IMAGES,  // as they are, cropped and flipped
  BRIM_INIT_LARGE_IMAGES,  // brought to one size first
  BRIM_INIT_VECTORS,
  BRIM_INIT_SIGNALS,
  BRIM_INIT_KIND_COUNT
} brim_init_kind;

typedef struct brim_init_choice {
  brim_init_kind kind;
  // Images without targets: the workload that suits them; NULL = there are targets.
  const struct brim_workload_table *unlabelled;
  int64_t batch;        // wanted; what memory allows is the plan's to say
  double val_fraction;  // 0 = a split is there, or nothing is evaluated
  int64_t epochs;
  char model[96], loss[64], optimizer[96], train[320], val[128];  // train, val: "" = none
  char why_model[200];                                            // translated
} brim_init_choice;

// What suits the data; BRIM_EINVAL where nothing does, with what to do.
brim_status brim_cli_init_choose(const brim_init_facts *facts, brim_init_choice *out);
// The optimizer for a batch (rates are scaled with it) and the config's text with its comments.
// `memory` is reported beside the batch size; "" = not planned.
void brim_cli_init_render(const brim_init_facts *facts, brim_init_choice *choice, int64_t batch,
                          const char *memory, brim_str *out);
// "1,200 images of 640 x 480 x 3 in 3 classes"
void brim_cli_init_describe(const brim_init_facts *facts, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_INIT_H_
