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
  const char *path;  // of the data; NULL if the component needs none
  brim_component component;
  uint64_t seed;
  brim_cli_split split[BRIM_CLI_DATA_SPLITS];
  size_t split_count;
  char title[64];  // of the progress line
  brim_time start;
} brim_cli_data;

// Loads plug-ins, starts threads, finds the source: --dataset, else the data at the path (NULL = --dataset only).
brim_status brim_cli_data_init(brim_cli *cli, const char *path, brim_cli_data *d);
void brim_cli_data_deinit(brim_cli_data *d);
// Parses one component ("synthetic(samples=10)", "resize(size=96)") into the memory of d.
brim_status brim_cli_data_parse(brim_cli_data *d, const char *text, const char *name,
                                brim_pipeline *out);
// Opens --split, else every split that exists: train, test, val and unlabeled. Leaves out a split with the same
// samples as another one.
brim_status brim_cli_data_open(brim_cli_data *d);
// Begins a step of work, and reports its progress. The tick is false when the user wants to stop.
void brim_cli_data_begin(brim_cli_data *d, const char *title, const char *split);
bool brim_cli_data_tick(void *ctx, uint64_t done, uint64_t total);
// Names of the classes by label, in the memory of d; NULL if unknown. Known for folders of images, HDF5 files with the
// attribute class_names, CIFAR and STL-10.
brim_status brim_cli_data_class_names(brim_cli_data *d, const brim_cli_split *split,
                                      const char *const **names);
// Names the files at the path that no split reads; none if the user asked for a part of the data.
brim_status brim_cli_data_unused(const brim_cli_data *d, brim_str *out, brim_source_left *left);
// "(32, 32, 3) uint8"
void brim_cli_data_shape(const brim_source_info *info, char *out, size_t size);
// Reads an option that must be in [min, max]; leaves `value` alone if it was not given.
brim_status brim_cli_data_int(brim_cli *cli, const char *name, int64_t min, int64_t max,
                              int64_t *value);

brim_status brim_cli_data_make(brim_cli *cli);
brim_status brim_cli_data_convert(brim_cli *cli);

#endif  // BRIM_CLI_DATA_H_
