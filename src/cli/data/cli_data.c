// `brim data info|make|convert|verify`: the command, and the source with its splits.

#include "cli/data/cli_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

//------------------------------------------- sources -------------------------------------------

brim_status brim_cli_data_int(brim_cli *cli, const char *name, int64_t min, int64_t max,
                              int64_t *value) {
  if (!brim_option_find(&cli->parse, name)) return BRIM_OK;
  int64_t given = brim_option_int(&cli->parse, name, *value);
  if (given < min || given > max) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %lld to %lld, not %lld"), name,
                          (long long)min, (long long)max, (long long)given);
  }
  *value = given;
  return BRIM_OK;
}

brim_status brim_cli_data_parse(brim_cli_data *d, const char *text, const char *name,
                                brim_pipeline *out) {
  BRIM_TRY(brim_config_parse_expression(d->arena, text, name, out));
  if (out->count == 1 && !out->tail) return BRIM_OK;
  return brim_cli_usage(d->cli, BRIM_N_("%s: expected one name with its arguments, not '%.200s'"),
                        name, text);
}

static brim_status find_component(brim_cli_data *d) {
  const char *text = brim_option_string(&d->cli->parse, "dataset", NULL);
  if (!text) return brim_source_guess(d->path, &d->component);
  brim_pipeline pipeline;
  BRIM_TRY(brim_cli_data_parse(d, text, "--dataset", &pipeline));
  d->component = pipeline.items[0];
  return BRIM_OK;
}

// --allow-external is the argument allow_external of hdf5.
static brim_status allow_external(brim_cli_data *d) {
  brim_component *c = &d->component;
  if (!brim_option_flag(&d->cli->parse, "allow-external", false) || strcmp(c->name, "hdf5") != 0)
    return BRIM_OK;
  brim_argument *args = brim_arena_calloc(d->arena, c->arg_count + 1, sizeof *args);
  if (!args) return brim_fail(BRIM_ENOMEM, "out of memory opening a source");
  size_t n = 0;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (strcmp(c->args[i].name, "allow_external") != 0) args[n++] = c->args[i];
  }
  args[n++] = (brim_argument){.name = "allow_external",
                              .value = {.kind = BRIM_VALUE_BOOL, .boolean = true}};
  c->args = args;
  c->arg_count = n;
  return BRIM_OK;
}

brim_status brim_cli_data_init(brim_cli *cli, const char *path, brim_cli_data *d) {
  memset(d, 0, sizeof *d);
  d->cli = cli;
  d->path = path;
  int64_t threads = 0, seed = 0;
  BRIM_TRY(brim_cli_data_int(cli, "threads", 0, 1024, &threads));
  BRIM_TRY(brim_cli_data_int(cli, "seed", 0, INT64_MAX, &seed));
  d->seed = (uint64_t)seed;
  brim_status status = brim_arena_create(0, &d->arena);
  if (!status) status = brim_pool_create(threads ? (int)threads : brim_cpu_count(), &d->pool);
  if (!status && (path || brim_option_find(&cli->parse, "dataset"))) {
    status = brim_cli_registry(cli, &d->registry);
    if (!status) status = find_component(d);
    if (!status) status = allow_external(d);
  }
  if (status) brim_cli_data_deinit(d);
  return status;
}

static void close_splits(brim_cli_data *d) {
  for (size_t i = 0; i < d->split_count; i++) brim_source_close(d->split[i].source);
  d->split_count = 0;
}

void brim_cli_data_deinit(brim_cli_data *d) {
  close_splits(d);
  brim_pool_destroy(d->pool);
  brim_registry_destroy(d->registry);
  brim_arena_destroy(d->arena);
  memset(d, 0, sizeof *d);
}

//---------------------------------- splits ----------------------------------

// Offset of the target behind an input.
static size_t target_place(const brim_source *source) {
  return (source->input_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
}

static brim_status read_one(brim_source *source, uint64_t index, uint8_t *out) {
  return brim_source_read(source, index, 1, out, out + target_place(source), NULL, NULL);
}

// Are these the same samples under two names? (A set without a val split returns its test set.) Compares the
// count, then name and content of the first and the last sample; of an unreadable sample only the name.
static brim_status same_samples(brim_source *a, brim_source *b, bool *same) {
  uint64_t count = a->info.count;
  *same = false;
  if (count != b->info.count || a->input_bytes != b->input_bytes ||
      a->target_bytes != b->target_bytes) {
    return BRIM_OK;
  }
  size_t bytes = target_place(a) + a->target_bytes;
  uint8_t *left = brim_calloc(1, bytes), *right = brim_calloc(1, bytes);
  if (!left || !right) {
    brim_free(left);
    brim_free(right);
    return brim_fail(BRIM_ENOMEM, "out of memory while comparing the splits");
  }
  *same = true;
  for (int i = 0; i < 2 && *same; i++) {
    uint64_t index = i ? count - 1 : 0;
    char x[512], y[512];
    brim_source_describe(a, index, x, sizeof x);
    brim_source_describe(b, index, y, sizeof y);
    brim_status one = read_one(a, index, left), other = read_one(b, index, right);
    if (!one && !other) *same = memcmp(left, right, bytes) == 0;
    *same = *same && strcmp(x, y) == 0;
  }
  brim_free(left);
  brim_free(right);
  brim_status_clear();
  return BRIM_OK;
}

static brim_status add_split(brim_cli_data *d, const char *name, brim_source *source) {
  for (size_t i = 0; i < d->split_count; i++) {
    bool same;
    brim_status status = same_samples(d->split[i].source, source, &same);
    if (!status && !same) continue;
    brim_source_close(source);
    return status;
  }
  brim_cli_split *split = &d->split[d->split_count++];
  snprintf(split->name, sizeof split->name, "%s", name);
  split->source = source;
  return BRIM_OK;
}

static brim_status open_one(brim_cli_data *d, const char *split, brim_source **out) {
  return brim_source_open(d->registry, &d->component, d->path, split, d->seed, out);
}

// Opens every split. A missing one is skipped; any other failure is a failure.
static brim_status open_all(brim_cli_data *d) {
  static const char *const names[BRIM_CLI_DATA_SPLITS] = {"train", "test", "val", "unlabeled"};
  char first[1024] = "";
  brim_status status = BRIM_OK, missing = BRIM_OK;
  for (size_t i = 0; i < BRIM_CLI_DATA_SPLITS && !status; i++) {
    brim_source *source = NULL;
    if (i >= 2) brim_cli_log_errors(d->cli);  // val may be test again
    brim_status opened = open_one(d, names[i], &source);
    brim_cli_log(d->cli);
    if (!opened) {
      status = add_split(d, names[i], source);
    } else if (opened == BRIM_ENOENT) {
      if (!missing) snprintf(first, sizeof first, "%s", brim_status_detail());
      if (!missing) missing = opened;
    } else {
      status = opened;
    }
  }
  if (status) return status;
  if (d->split_count == 0) {
    brim_status_set_detail(first);
    return missing;
  }
  if (strcmp(d->split[0].name, "train") != 0) brim_log_warn("data", "no train split: %s", first);
  return BRIM_OK;
}

brim_status brim_cli_data_open(brim_cli_data *d) {
  const char *split = brim_option_string(&d->cli->parse, "split", NULL);
  if (!split) split = brim_component_string(&d->component, "split", NULL);
  if (!split) return open_all(d);
  brim_source *source = NULL;
  BRIM_TRY(open_one(d, split, &source));
  return add_split(d, split, source);
}

//---------------------------------- progress and names ----------------------------------

void brim_cli_data_begin(brim_cli_data *d, const char *title, const char *split) {
  snprintf(d->title, sizeof d->title, "%s %s", title, split);
  d->start = brim_clock_now();
}

bool brim_cli_data_tick(void *ctx, uint64_t done, uint64_t total) {
  brim_cli_data *d = ctx;
  brim_progress p = {.title = d->title, .done = (int64_t)done, .total = (int64_t)total};
  p.elapsed_s = (double)brim_time_since_ns(d->start, brim_clock_now()) / 1e9;
  p.rate = p.elapsed_s > 0 ? (double)done / p.elapsed_s : NAN;
  p.eta_s = done ? p.elapsed_s * (double)(total - done) / (double)done : NAN;
  if (!d->cli->json) brim_cli_progress(d->cli, &p);  // with --json only results are printed
  return !(d->cli->stop && *d->cli->stop);
}

void brim_cli_data_shape(const brim_source_info *info, char *out, size_t size) {
  size_t used = 0;
  for (int i = 0; i < info->rank && used < size; i++) {
    int n = snprintf(out + used, size - used, "%s%lld", i ? ", " : "(", (long long)info->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used < size) {
    snprintf(out + used, size - used, ") %s", info->type == BRIM_SAMPLE_U8 ? "uint8" : "float32");
  }
}

brim_status brim_cli_data_class_names(brim_cli_data *d, const brim_cli_split *split,
                                      const char *const **names) {
  return brim_source_class_names(d->arena, split->source, &d->component, d->path, split->name,
                                 names);
}

brim_status brim_cli_data_unused(const brim_cli_data *d, brim_str *out, brim_source_left *left) {
  brim_source *sources[BRIM_CLI_DATA_SPLITS];
  *left = (brim_source_left){0};
  bool part = brim_option_find(&d->cli->parse, "split") ||
              brim_component_arg(&d->component, "split") ||
              brim_component_arg(&d->component, "limit");
  if (part || !d->path) return BRIM_OK;
  for (size_t i = 0; i < d->split_count; i++) sources[i] = d->split[i].source;
  return brim_source_unused(sources, d->split_count, out, left);
}

//------------------------------------------- command -------------------------------------------

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
  static const brim_cli_verb verbs[] = {{"info", brim_cli_data_info},
                                        {"make", brim_cli_data_make},
                                        {"convert", brim_cli_data_convert},
                                        {"verify", brim_cli_data_verify},
                                        {NULL, NULL}};
  return brim_cli_run_verb(cli, verbs,
                           BRIM_N_("name an action: brim data info, make, convert or verify"),
                           BRIM_N_("unknown action '%.100s' after data; did you mean '%s'?"));
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
