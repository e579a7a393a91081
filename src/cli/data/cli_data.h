// Inside the data command: what its four words share.
#ifndef BRIM_CLI_DATA_H_
#define BRIM_CLI_DATA_H_

#include "cli/job/cli_job.h"
#include "data/pack/data_pack.h"
#include "data/source/data_verify.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  const char *path;  // of the data; NULL where the component needs none
  brim_component component;
  uint64_t seed;
  brim_cli_split split[BRIM_CLI_DATA_SPLITS];
  size_t split_count;
  // Of what is being done, for the progress line.
  char title[64];
  brim_time start;
} brim_cli_data;

// Plug-ins, threads and the source: --dataset, else what lies at the path (NULL = --dataset alone).
brim_status brim_cli_data_init(brim_cli *cli, const char *path, brim_cli_data *d);
void brim_cli_data_deinit(brim_cli_data *d);
// An expression ("synthetic(samples=10)", "resize(size=96)"); lives as long as d.
brim_status brim_cli_data_parse(brim_cli_data *d, const char *text, const char *name,
                                brim_pipeline *out);
// --split, else every split that there is: train, test, val and unlabeled, those that are another's
// samples left out.
brim_status brim_cli_data_open(brim_cli_data *d);
// Warnings off, and on again as the command line has it.
void brim_cli_data_hush(const brim_cli *cli, bool hush);
// A step of work has begun; its progress. false when the user wants to stop.
void brim_cli_data_begin(brim_cli_data *d, const char *title, const char *split);
bool brim_cli_data_tick(void *ctx, uint64_t done, uint64_t total);
// Names of the classes by label, in d's memory; NULL where they are not known. A folder of images has
// them, an HDF5 file with an attribute class_names, CIFAR and STL-10.
brim_status brim_cli_data_class_names(brim_cli_data *d, const brim_cli_split *split,
                                      const char *const **names);
// What lies at the path and no split reads, named in `out`; nothing where only a part was asked for.
brim_status brim_cli_data_unused(const brim_cli_data *d, brim_str *out, brim_source_left *left);
// "(32, 32, 3) uint8"
void brim_cli_data_shape(const brim_source_info *info, char *out, size_t size);
// An option that has to lie in [min, max]; `value` is left alone when it was not given.
brim_status brim_cli_data_int(brim_cli *cli, const char *name, int64_t min, int64_t max,
                              int64_t *value);

brim_status brim_cli_data_info(brim_cli *cli);
brim_status brim_cli_data_make(brim_cli *cli);
brim_status brim_cli_data_convert(brim_cli *cli);
brim_status brim_cli_data_verify(brim_cli *cli);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_DATA_H_
