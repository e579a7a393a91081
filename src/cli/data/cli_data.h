// Shared by `brim data` and `brim init`: a source with its splits, progress, names.
#ifndef BRIM_CLI_DATA_H_
#define BRIM_CLI_DATA_H_

#include "cli/job/cli_job.h"
#include "data/pack/data_pack.h"
#include "data/source/data_verify.h"

enum { BRIM_CLI_DATA_SPLITS = 4 };

typedef struct brim_cli_split {
  char name[16];
  brim_source *source;
} brim_cli_split;

typedef struct brim_cli_data {
  brim_cli *cli;
  brim_registry *registry;
  brim_arena *arena;
  brim_pool *pool;
  const char *path;  // path of the data; NULL if the component needs none
  brim_component component;
  uint64_t seed;
  brim_cli_split split[BRIM_CLI_DATA_SPLITS];
  size_t split_count;
  char title[64];  // title of the progress line
  brim_time start;
} brim_cli_data;

// Loads plug-ins, starts threads, finds the source: --dataset, else the data at the path (NULL = --dataset only).
brim_status brim_cli_data_init(brim_cli *cli, const char *path, brim_cli_data *d);
void brim_cli_data_deinit(brim_cli_data *d);
// Opens the split that --split or the data set's `split` names. Without a name opens every split that exists (train,
// test, val, unlabeled) and leaves out a split that has the same samples as an earlier split.
brim_status brim_cli_data_open(brim_cli_data *d);
// Names of the classes by label, in the memory of d; NULL if unknown. Known for folders of images, HDF5 files with the
// attribute class_names, CIFAR and STL-10.
brim_status brim_cli_data_class_names(brim_cli_data *d, const brim_cli_split *split,
                                      const char *const **names);
// Names the files at the path that no split reads; none if the user asked for a part of the data.
brim_status brim_cli_data_unused(const brim_cli_data *d, brim_str *out, brim_source_left *left);

#endif  // BRIM_CLI_DATA_H_
