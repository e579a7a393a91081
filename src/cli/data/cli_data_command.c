// `brim data info|make|convert|verify`: the command and its options.
#include <string.h>

#include "cli/data/cli_data.h"

static const char *const split_choices[] = {"train", "val", "test", "unlabeled", "all", NULL};
static const char *const dtype_choices[] = {"u8", "f32", NULL};
static const char *const format_choices[] = {"hdf5",  "idx",    "cifar", "cifar10", "cifar100",
                                             "stl10", "folder", "png",   "jpg",     NULL};
static const char *const on_error_choices[] = {"fail", "skip", NULL};
static const char *const threads_aliases[] = {"num-workers", "workers", NULL};

static const brim_option options[] = {
    {.name = "dataset",
     .kind = BRIM_OPTION_STRING,
     .metavar = "COMP",
     .help = BRIM_N_("source as in a config: 'hdf5(inputs=[x])' (default: detected)")},
    {.name = "split",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "S",
     .help = BRIM_N_("read only this split (default: every split)"),
     .choices = split_choices},
    {.name = "allow-external", .help = BRIM_N_("read data that an HDF5 file keeps in other files")},
    {.name = "threads",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("threads that read, decode and pack (0 = all cores)"),
     .default_text = "0",
     .aliases = threads_aliases},
    {.name = "samples",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("make: samples to generate; info and verify: samples to check")},
    {.name = "limit",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of broken records to list"),
     .default_text = "20",
     .group = BRIM_N_("verify")},
    {.name = "duplicates",
     .help = BRIM_N_("look for duplicate samples"),
     .group = BRIM_N_("verify")},
    {.name = "format",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "F",
     .help = BRIM_N_("format to write (folder = PNG images)"),
     .default_text = "hdf5",
     .choices = format_choices,
     .group = BRIM_N_("make and convert")},
    {.name = "chunk",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("HDF5: samples per chunk (0 = contiguous, the fastest to read)"),
     .default_text = "0",
     .group = BRIM_N_("make and convert")},
    {.name = "deflate",
     .kind = BRIM_OPTION_INT,
     .metavar = "LEVEL",
     .help = BRIM_N_("HDF5: compression level of the chunks (1 to 9)"),
     .group = BRIM_N_("make and convert")},
    {.name = "shuffle",
     .help = BRIM_N_("HDF5: shuffle the bytes of a chunk before compressing (for floats)"),
     .group = BRIM_N_("make and convert")},
    {.name = "quality",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("JPEG quality (1 to 100)"),
     .default_text = "95",
     .group = BRIM_N_("make and convert")},
    {.name = "force",
     .help = BRIM_N_("replace the target; a folder only if brim wrote all of it"),
     .group = BRIM_N_("make and convert")},
    {.name = "resize",
     .kind = BRIM_OPTION_STRING,
     .metavar = "SIZE",
     .help = BRIM_N_("resize every image to 96, or to 64,96 (height, width)"),
     .group = BRIM_N_("convert")},
    {.name = "on-error",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "W",
     .help = BRIM_N_("on an unreadable record: stop, or skip it and report it"),
     .default_text = "fail",
     .choices = on_error_choices,
     .group = BRIM_N_("convert")},
    {.name = "shape",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIMS",
     .help = BRIM_N_("shape of a sample: 5160,2 or 32,32,3"),
     .default_text = "28,28",
     .group = BRIM_N_("make")},
    {.name = "classes",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of classes"),
     .default_text = "10",
     .group = BRIM_N_("make")},
    {.name = "targets",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("numbers to predict per sample, instead of classes"),
     .group = BRIM_N_("make")},
    {.name = "dtype",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "T",
     .help = BRIM_N_("type of the samples"),
     .default_text = "u8",
     .choices = dtype_choices,
     .group = BRIM_N_("make")},
    {.name = "noise",
     .kind = BRIM_OPTION_FLOAT,
     .help = BRIM_N_("share of noise mixed into the class pattern (0 to 1)"),
     .default_text = "0.75",
     .group = BRIM_N_("make")},
    {.name = "test-samples",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("samples in the test set (0 = none, default: a fifth)"),
     .group = BRIM_N_("make")},
    {.name = "unlabeled-samples",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("samples in the split unlabeled, without targets (hdf5, stl10)"),
     .default_text = "0",
     .group = BRIM_N_("make")},
    {.name = "seed",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("random seed for generated samples and for part=(...) of a source"),
     .default_text = "0"},
    {0},
};

static brim_status run(brim_cli *cli) {
  static const struct {
    const char *name;
    brim_status (*run)(brim_cli *cli);
  } verbs[] = {{"info", brim_cli_data_info},
               {"make", brim_cli_data_make},
               {"convert", brim_cli_data_convert},
               {"verify", brim_cli_data_verify}};
  static const char *const names[] = {"info", "make", "convert", "verify", NULL};
  if (cli->parse.positional_count == 0) {
    return brim_cli_usage(cli, BRIM_N_("name an action: brim data info, make, convert or verify"));
  }
  const char *word = cli->parse.positional[0];
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
    if (strcmp(verbs[i].name, word) == 0) return verbs[i].run(cli);
  }
  const char *near = brim_nearest(word, names);
  return brim_cli_usage(cli, BRIM_N_("unknown action '%.100s' after data; did you mean '%s'?"),
                        word, near ? near : "info");
}

const brim_cli_command brim_cli_data_command = {
    .name = "data",
    .summary = BRIM_N_("describe, generate, convert and verify data sets"),
    .usage =
        "info PATH [--dataset COMP] [--split S] [--samples N]\n"
        "make OUT [--shape DIMS] [--samples N] [--classes C] [--format F]\n"
        "convert IN OUT [--split S] [--resize SIZE] [--format F]\n"
        "verify PATH [--duplicates] [--limit N]",
    .about =
        BRIM_N_("info describes the data at a path: samples, shapes, classes, range of the values, "
                "storage, reading speed. make generates a learnable data set of any shape. convert "
                "writes any data set as HDF5, IDX, CIFAR, STL-10 or a folder of images. A folder "
                "of images converted to HDF5 trains without decoding. verify reads every record "
                "and lists those that are broken or hold NaN. It exits with 1 if the data is not "
                "valid, and with 2 on a usage error. make and convert read their result back "
                "before it appears, and never leave a partial file."),
    .examples = BRIM_N_(
        "describe a data set\nbrim data info data/cifar10\npack a folder of images for speed\nbrim "
        "data convert photos photos.h5 --resize 96\ngenerate 100,000 signals of 5160 x 2 "
        "floats\nbrim data make signals.h5 --shape 5160,2 --dtype f32 --samples 100000\nfind "
        "broken and duplicate records\nbrim data verify photos.h5 --duplicates\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
