// `brim data make` and `convert`: write the samples of a source, resized or not, as a pack. All threads read a block,
// then it is written. The result is read back and compared before it gets its name.
#include "cli/data/cli_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 20, COMPARED = 1000 };

typedef struct failure {
  brim_status status;
  char detail[512];
} failure;

typedef struct conversion {
  brim_cli_data *d;
  brim_pack_options options;
  brim_pack *pack;
  const char *out;
  brim_pipeline resize;  // count 0 = none
  brim_transforms *transforms[BRIM_CLI_DATA_SPLITS];
  brim_source_info info[BRIM_CLI_DATA_SPLITS];  // of the result
  uint64_t *good[BRIM_CLI_DATA_SPLITS];         // indices of readable samples; NULL = all
  uint64_t samples, compared, bytes, skipped;
  double seconds;
} conversion;

// A block of samples and the buffers of the threads that read it.
typedef struct block {
  brim_source *source;
  const brim_transforms *transforms;  // NULL = none
  const uint64_t *good;               // NULL = every sample
  uint64_t first;
  size_t output_bytes;
  uint8_t *inputs, *targets;
  size_t raw_bytes, scratch_bytes;
  uint8_t *raw, *scratch;  // of each thread
  failure *failed;         // of each thread
  int threads;
} block;

//---------------------------------- one sample ----------------------------------

static brim_status read_sample(block *b, uint64_t number, int thread, uint8_t *input,
                               void *target) {
  const brim_transforms *t = b->transforms;
  uint64_t index = b->good ? b->good[number] : number;
  if (!t) return brim_source_read(b->source, index, 1, input, target, NULL, NULL);
  int64_t height, width;
  uint8_t *raw = b->raw + (size_t)thread * b->raw_bytes;
  BRIM_TRY(brim_source_size(b->source, index, &height, &width));
  int scale = brim_transforms_scale(t, 0, index, height, width);
  BRIM_TRY(brim_source_read(b->source, index, scale, raw, target, &height, &width));
  const brim_transforms_view view = {.index = index, .height = height, .width = width};
  brim_transforms_apply(t, &view, raw, input,
                        b->scratch ? b->scratch + (size_t)thread * b->scratch_bytes : NULL, NULL);
  return BRIM_OK;
}

static void read_range(void *ctx, int64_t begin, int64_t end, int thread) {
  block *b = ctx;
  for (int64_t i = begin; i < end; i++) {
    uint8_t *target = b->targets ? b->targets + (size_t)i * b->source->target_bytes : NULL;
    brim_status status = read_sample(b, b->first + (uint64_t)i, thread,
                                     b->inputs + (size_t)i * b->output_bytes, target);
    if (!status) continue;
    b->failed[thread].status = status;
    snprintf(b->failed[thread].detail, sizeof b->failed[thread].detail, "%s", brim_status_detail());
    return;
  }
}

static brim_status first_failure(const block *b) {
  for (int t = 0; t < b->threads; t++) {
    if (!b->failed[t].status) continue;
    brim_status_set_detail(b->failed[t].detail);
    return b->failed[t].status;
  }
  return BRIM_OK;
}

//---------------------------------- one split ----------------------------------

static void block_deinit(block *b) {
  brim_free(b->inputs);
  brim_free(b->targets);
  brim_free(b->raw);
  brim_free(b->scratch);
  brim_free(b->failed);
}

static size_t align(size_t bytes) { return (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN; }

static brim_status block_init(const conversion *c, size_t split, uint64_t samples, block *b) {
  memset(b, 0, sizeof *b);
  b->source = c->d->split[split].source;
  b->transforms = c->transforms[split];
  b->good = c->good[split];
  b->threads = brim_pool_threads(c->d->pool);
  b->output_bytes =
      b->transforms ? brim_transforms_output_bytes(b->transforms) : b->source->input_bytes;
  b->failed = brim_calloc((size_t)b->threads, sizeof *b->failed);
  b->inputs = brim_alloc_tagged(samples * b->output_bytes, BRIM_MEM_PLANNED);
  bool good = b->failed && b->inputs;
  if (b->source->target_bytes) {
    b->targets = brim_alloc_tagged(samples * b->source->target_bytes, BRIM_MEM_PLANNED);
    good = good && b->targets;
  }
  if (b->transforms) {
    b->raw_bytes = align(b->source->input_bytes);
    b->raw = brim_alloc_tagged((size_t)b->threads * b->raw_bytes, BRIM_MEM_PLANNED);
    b->scratch_bytes = align(brim_transforms_scratch_bytes(b->transforms));
    if (b->scratch_bytes) {
      b->scratch = brim_alloc_tagged((size_t)b->threads * b->scratch_bytes, BRIM_MEM_PLANNED);
    }
    good = good && b->raw && (b->scratch || !b->scratch_bytes);
  }
  if (good) return BRIM_OK;
  block_deinit(b);
  memset(b, 0, sizeof *b);
  return brim_fail(BRIM_ENOMEM, "out of memory for a block of %llu samples",
                   (unsigned long long)samples);
}

// Samples of a block: some megabytes, whole chunks, work for every thread.
static uint64_t block_samples(const conversion *c, size_t split) {
  size_t bytes = c->transforms[split] ? brim_transforms_output_bytes(c->transforms[split])
                                      : c->d->split[split].source->input_bytes;
  uint64_t granule = brim_pack_granule(c->pack), count = c->info[split].count;
  uint64_t samples = BLOCK_BYTES / bytes, least = 4 * (uint64_t)brim_pool_threads(c->d->pool);
  if (samples > 16384) samples = 16384;  // progress is reported between blocks
  if (samples < least) samples = least;
  samples = (samples + granule - 1) / granule * granule;
  return samples < count ? samples : count;
}

static brim_status write_split(conversion *c, size_t split) {
  brim_cli_split *s = &c->d->split[split];
  uint64_t count = c->info[split].count;
  block b;
  brim_cli_data_begin(c->d, brim_tr("write"), s->name);
  BRIM_TRY(brim_pack_begin(c->pack, s->name, &c->info[split]));
  uint64_t samples = block_samples(c, split);
  BRIM_TRY(block_init(c, split, samples, &b));
  brim_status status = BRIM_OK;
  while (b.first < count && !status) {
    uint64_t n = count - b.first < samples ? count - b.first : samples;
    brim_pool_run(c->d->pool, (int64_t)n, read_range, &b);
    status = first_failure(&b);
    if (status && status != BRIM_ENOMEM && c->d->path) {
      char why[512];
      snprintf(why, sizeof why, "%s", brim_status_detail());
      status = brim_fail(status,
                         "%s; --on-error skip leaves such samples out, `brim data verify %s` names "
                         "all of them",
                         why, c->d->path);
    }
    if (!status) status = brim_pack_put(c->pack, b.inputs, b.targets, n);
    b.first += n;
    if (!status && !brim_cli_data_tick(c->d, b.first, count)) {
      status = brim_fail(BRIM_EINTERRUPTED, "interrupted; nothing was written to %s", c->out);
    }
  }
  block_deinit(&b);
  c->samples += count;
  return status ? status : brim_pack_end(c->pack);
}

//---------------------------------- reading back ----------------------------------

// The number of the sample that a written one comes from: its index, or the number in an image's name.
static uint64_t number_of(const conversion *c, const brim_source *written, uint64_t index) {
  if (c->options.format != BRIM_PACK_PNG && c->options.format != BRIM_PACK_JPG) return index;
  char text[1024];
  brim_source_describe(written, index, text, sizeof text);
  const char *name = strrchr(text, '/');
  return strtoull(name ? name + 1 : text, NULL, 10);
}

static brim_status compare_sample(const conversion *c, block *b, brim_source *written,
                                  uint64_t index) {
  uint64_t from = number_of(c, written, index);
  uint8_t *mine = b->inputs, *theirs = b->inputs + b->output_bytes;
  size_t target = b->source->target_bytes;
  BRIM_TRY(read_sample(b, from, 0, mine, b->targets));
  BRIM_TRY(brim_source_read(written, index, 1, theirs, b->targets ? b->targets + target : NULL,
                            NULL, NULL));
  bool lossy = c->options.format == BRIM_PACK_JPG;
  bool same = lossy || memcmp(mine, theirs, b->output_bytes) == 0;
  if (target) same = same && memcmp(b->targets, b->targets + target, target) == 0;
  if (same) return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s: sample %llu differs after reading it back; nothing was written",
                   c->out, (unsigned long long)from);
}

// Opens the result as a user would, with no more arguments than the files need.
static brim_status open_written(const conversion *c, const char *path, size_t split,
                                brim_source **out) {
  brim_component component = {.name = brim_pack_format_source(c->options.format)};
  const brim_source_info *info = &c->info[split];
  brim_argument gray = {.name = "color", .value = {.kind = BRIM_VALUE_STRING, .string = "gray"}};
  if (strcmp(component.name, "folder") == 0 && (info->rank == 2 || info->dim[2] == 1)) {
    component.args = &gray;
    component.arg_count = 1;
  }
  // No warning that it is smaller than the real CIFAR.
  brim_cli_log_errors(c->d->cli);
  brim_status status = brim_source_open(NULL, &component, path, c->d->split[split].name, 0, out);
  brim_cli_log(c->d->cli);
  return status;
}

static brim_status compare_split(conversion *c, const char *path, size_t split) {
  brim_source *written = NULL;
  block b;
  BRIM_TRY(open_written(c, path, split, &written));
  uint64_t count = c->info[split].count;
  brim_status status = block_init(c, split, 2, &b);
  if (status) {
    brim_source_close(written);
    return status;
  }
  if (written->info.count != count || written->input_bytes != b.output_bytes ||
      written->target_bytes != b.source->target_bytes) {
    status =
        brim_fail(BRIM_EIO, "%s: reading back gave %llu samples of %zu bytes, expected %llu of %zu",
                  c->out, (unsigned long long)written->info.count, written->input_bytes,
                  (unsigned long long)count, b.output_bytes);
  }
  uint64_t n = count < COMPARED ? count : COMPARED;
  for (uint64_t i = 0; i < n && !status; i++) {
    uint64_t index = n == count ? i : (uint64_t)((double)i * (double)count / (double)n);
    status = compare_sample(c, &b, written, index);
    c->compared++;
  }
  block_deinit(&b);
  brim_source_close(written);
  return status;
}

//---------------------------------- all of it ----------------------------------

static brim_status write_all(conversion *c) {
  const char *temporary = NULL;
  brim_status status = brim_fs_refused(brim_pack_create(c->out, &c->options, &c->pack));
  for (size_t i = 0; i < c->d->split_count && !status; i++) status = write_split(c, i);
  if (!status) status = brim_pack_seal(c->pack, &temporary);
  for (size_t i = 0; i < c->d->split_count && !status; i++) {
    status = compare_split(c, temporary, i);
    if (status) brim_fail_context(status, "reading back");
  }
  if (!status) c->bytes = brim_pack_bytes(c->pack);
  if (status) {
    brim_pack_abort(c->pack);
    return status;
  }
  return brim_pack_commit(c->pack);
}

static brim_status result_json(const conversion *c) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "path", json_string(c->out));
  if (!s) s = brim_json_put(f, "format", json_string(brim_pack_format_name(c->options.format)));
  if (!s) s = brim_json_put(f, "splits", json_object());
  json_t *splits = s ? NULL : json_object_get(f, "splits");
  for (size_t i = 0; i < c->d->split_count && !s; i++) {
    const brim_cli_split *split = &c->d->split[i];
    s = brim_json_put(splits, split->name, json_integer((json_int_t)c->info[i].count));
  }
  if (!s) s = brim_json_put(f, "samples", json_integer((json_int_t)c->samples));
  if (!s) s = brim_json_put(f, "skipped", json_integer((json_int_t)c->skipped));
  if (!s) s = brim_json_put(f, "compared", json_integer((json_int_t)c->compared));
  if (!s) s = brim_json_put(f, "bytes", json_integer((json_int_t)c->bytes));
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(c->seconds));
  return brim_cli_finish_event(c->d->cli, "written", f, s);
}

static brim_status result_text(const conversion *c) {
  char text[32], shape[128];
  brim_str out;
  brim_str_init(&out);
  brim_ui_styled(&out, &c->d->cli->out, BRIM_UI_BOLD, c->out);
  brim_str_printf(&out, ": %s", brim_pack_format_name(c->options.format));
  for (size_t i = 0; i < c->d->split_count; i++) {
    brim_format_count((double)c->info[i].count, text);
    brim_str_printf(&out, "%s %s %s", i ? " +" : ",", c->d->split[i].name, text);
  }
  brim_cli_data_shape(&c->info[0], shape, sizeof shape);
  brim_format_bytes(c->bytes, text);
  brim_str_printf(&out, brim_tr(" samples of %s, %s"), shape, text);
  brim_format_duration(c->seconds, text);
  brim_str_printf(&out, brim_tr(", %s; %llu samples read back and compared"), text,
                  (unsigned long long)c->compared);
  if (c->skipped) {
    brim_str_printf(&out, brim_tr("; %llu broken ones skipped"), (unsigned long long)c->skipped);
  }
  brim_str_append_char(&out, '\n');
  return brim_cli_finish_text(c->d->cli, &out, BRIM_OK);
}

// --on-error skip: reads every sample first and leaves out unreadable ones.
static brim_status leave_out_broken(conversion *c, size_t split) {
  brim_cli_split *s = &c->d->split[split];
  uint64_t count = s->source->info.count, n = 0;
  brim_survey_options options = {
      .pool = c->d->pool, .limit = (size_t)count, .tick = brim_cli_data_tick, .ctx = c->d};
  brim_survey survey;
  brim_cli_data_begin(c->d, brim_tr("check"), s->name);
  BRIM_TRY(brim_survey_run(s->source, &options, &survey));
  brim_status status = BRIM_OK;
  if (survey.broken_count == count) {
    status = brim_fail(BRIM_EIO, "none of the %llu samples can be read; the first: %s",
                       (unsigned long long)count, survey.broken[0].text);
  } else if (survey.broken_count) {
    c->good[split] = brim_calloc(count, sizeof *c->good[split]);
    if (!c->good[split]) status = brim_fail(BRIM_ENOMEM, "out of memory for the list of samples");
  }
  size_t at = 0;
  for (uint64_t i = 0; i < count && c->good[split] && !status; i++) {
    if (at < survey.broken_kept && survey.broken[at].index == i) {
      brim_log_warn("data", "skipped: %s", survey.broken[at++].text);
    } else {
      c->good[split][n++] = i;
    }
  }
  if (c->good[split]) c->info[split].count = n;
  c->skipped += survey.broken_count;
  brim_survey_deinit(&survey);
  return status;
}

static brim_status prepare_split(conversion *c, size_t split) {
  brim_cli_split *s = &c->d->split[split];
  const brim_source_info *info = &s->source->info;
  if (c->resize.count) {
    BRIM_TRY(brim_transforms_create(&c->resize, s->source, 0, false, &c->transforms[split]));
    info = brim_transforms_info(c->transforms[split]);
  } else if (info->varies) {
    return brim_fail(
        BRIM_EINVAL,
        "the images of %s differ in size, up to %lld x %lld; unify them with --resize SIZE",
        c->d->path, (long long)info->dim[0], (long long)info->dim[1]);
  }
  c->info[split] = *info;
  BRIM_TRY(brim_pack_check(c->options.format, s->name, info));
  const char *on_error = brim_option_string(&c->d->cli->parse, "on-error", "fail");
  return strcmp(on_error, "skip") == 0 ? leave_out_broken(c, split) : BRIM_OK;
}

static brim_status convert_all(conversion *c) {
  brim_time start = brim_clock_now();
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < c->d->split_count && !status; i++) status = prepare_split(c, i);
  if (!status && c->d->split_count) {
    status = brim_cli_data_class_names(c->d, &c->d->split[0], &c->options.class_names);
    c->options.class_count = (size_t)c->d->split[0].source->info.classes;
  }
  if (!status) status = write_all(c);
  c->seconds = (double)brim_time_since_ns(start, brim_clock_now()) / 1e9;
  if (!status) status = c->d->cli->json ? result_json(c) : result_text(c);
  for (size_t i = 0; i < BRIM_CLI_DATA_SPLITS; i++) {
    brim_transforms_destroy(c->transforms[i]);
    brim_free(c->good[i]);
  }
  return status;
}

//---------------------------------- options ----------------------------------

static brim_pack_format choose_format(const brim_cli *cli, int64_t classes) {
  const char *name = brim_option_string(&cli->parse, "format", "hdf5");
  if (strcmp(name, "folder") == 0) return BRIM_PACK_PNG;
  if (strcmp(name, "cifar") == 0) return classes > 10 ? BRIM_PACK_CIFAR100 : BRIM_PACK_CIFAR10;
  for (int f = 0; f < BRIM_PACK_FORMAT_COUNT; f++) {
    if (strcmp(brim_pack_format_name((brim_pack_format)f), name) == 0) return (brim_pack_format)f;
  }
  return BRIM_PACK_HDF5;
}

static brim_status pack_options(brim_cli_data *d, int64_t classes, brim_pack_options *out) {
  brim_cli *cli = d->cli;
  int64_t chunk = 0, deflate = 0, quality = 95;
  BRIM_TRY(brim_cli_data_int(cli, "chunk", 0, (int64_t)1 << 32, &chunk));
  BRIM_TRY(brim_cli_data_int(cli, "deflate", 1, 9, &deflate));
  BRIM_TRY(brim_cli_data_int(cli, "quality", 1, 100, &quality));
  *out = (brim_pack_options){.format = choose_format(cli, classes),
                             .replace = brim_option_flag(&cli->parse, "force", false),
                             .chunk = chunk,
                             .deflate = (int)deflate,
                             .shuffle = brim_option_flag(&cli->parse, "shuffle", false),
                             .quality = (int)quality,
                             .input = d->path,
                             .pool = d->pool};
  static const char *const hdf5_only[] = {"chunk", "deflate", "shuffle"};
  for (size_t i = 0; i < 3 && out->format != BRIM_PACK_HDF5; i++) {
    if (!brim_option_find(&cli->parse, hdf5_only[i])) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s needs --format hdf5"), hdf5_only[i]);
  }
  return BRIM_OK;
}

// "96" or "64,96", numbers of at least 1; true when the text is nothing else.
static bool parse_dims(const char *text, int64_t *dim, int max, int *count) {
  *count = 0;
  while (*count < max) {
    char part[24];
    size_t n = strcspn(text, ",x");
    if (n == 0 || n >= sizeof part) return false;
    memcpy(part, text, n);
    part[n] = '\0';
    if (!brim_parse_i64(part, &dim[*count]) || dim[*count] < 1) return false;
    (*count)++;
    text += n;
    if (!*text) return true;
    text++;
  }
  return false;
}

//---------------------------------- convert ----------------------------------

static brim_status read_resize(conversion *c) {
  const char *text = brim_option_string(&c->d->cli->parse, "resize", NULL);
  if (!text) return BRIM_OK;
  int64_t dim[2];
  int count;
  if (!parse_dims(text, dim, 2, &count)) {
    return brim_cli_usage(c->d->cli,
                          BRIM_N_("--resize takes 96 or 64,96 (height, width), not "
                                  "'%.100s'"),
                          text);
  }
  if (count == 1) dim[1] = dim[0];
  char expression[96];
  snprintf(expression, sizeof expression, "resize(size=(%lld, %lld))", (long long)dim[0],
           (long long)dim[1]);
  return brim_cli_data_parse(c->d, expression, "--resize", &c->resize);
}

brim_status brim_cli_data_convert(brim_cli *cli) {
  const brim_option_parse *p = &cli->parse;
  if (p->positional_count != 3) {
    return brim_cli_usage(cli, BRIM_N_("brim data convert takes two paths: from and to"));
  }
  const char *from = p->positional[1], *to = p->positional[2];
  if (brim_fs_same(from, to)) {
    return brim_cli_usage(cli, BRIM_N_("%.200s cannot be converted into itself"), from);
  }
  if (brim_cli_is_below(to, from)) {
    return brim_cli_usage(cli, BRIM_N_("%.200s cannot replace the folder that contains it"), from);
  }
  brim_cli_data d;
  BRIM_TRY(brim_source_open_failed(brim_cli_data_init(cli, from, &d)));
  conversion c = {.d = &d, .out = to};
  brim_status status = brim_source_open_failed(brim_cli_data_open(&d));
  if (!status) status = pack_options(&d, d.split[0].source->info.classes, &c.options);
  if (!status) status = read_resize(&c);
  if (!status) status = convert_all(&c);
  brim_cli_data_deinit(&d);
  return status;
}

//---------------------------------- make ----------------------------------

static brim_status read_shape(brim_cli *cli, brim_pack_format format, int64_t *dim, int *rank) {
  const char *text = brim_option_string(&cli->parse, "shape", NULL);
  if (!text) {
    text = format == BRIM_PACK_CIFAR10 || format == BRIM_PACK_CIFAR100 ? "32,32,3"
           : format == BRIM_PACK_STL10                                 ? "96,96,3"
                                                                       : "28,28";
  }
  if (parse_dims(text, dim, BRIM_SOURCE_MAX_RANK, rank)) return BRIM_OK;
  return brim_cli_usage(cli,
                        BRIM_N_("--shape takes 1 to %d whole numbers as in 32,32,3, not "
                                "'%.100s'"),
                        BRIM_SOURCE_MAX_RANK, text);
}

// Splits that make writes.
enum { MADE_TRAIN, MADE_TEST, MADE_UNLABELED, MADE_COUNT };
static const char *const made_names[MADE_COUNT] = {"train", "test", "unlabeled"};

// The source as an expression of a config.
static brim_status synthetic_text(brim_cli_data *d, const brim_pack_options *options,
                                  const int64_t made[MADE_COUNT], brim_str *out) {
  brim_cli *cli = d->cli;
  int64_t classes = 10, targets = 0, dim[BRIM_SOURCE_MAX_RANK];
  int rank;
  char noise[32];
  BRIM_TRY(brim_cli_data_int(cli, "classes", 1, 1000000, &classes));
  BRIM_TRY(brim_cli_data_int(cli, "targets", 1, 1000000, &targets));
  if (targets && brim_option_find(&cli->parse, "classes")) {
    return brim_cli_usage(cli, BRIM_N_("--classes and --targets conflict; give only one of them"));
  }
  BRIM_TRY(read_shape(cli, options->format, dim, &rank));
  brim_str_append(out, "synthetic(shape=[");
  for (int i = 0; i < rank; i++) brim_str_printf(out, "%s%lld", i ? ", " : "", (long long)dim[i]);
  brim_format_f64(brim_option_float(&cli->parse, "noise", 0.75), noise);
  brim_str_printf(out, "], classes=%lld", targets ? 0LL : (long long)classes);
  if (targets) brim_str_printf(out, ", targets=%lld", (long long)targets);
  brim_str_printf(out,
                  ", samples=%lld, val_samples=%lld, unlabeled_samples=%lld, dtype=%s, noise=%s, "
                  "seed=%llu)",
                  (long long)(made[MADE_TRAIN] ? made[MADE_TRAIN] : 1),
                  (long long)(made[MADE_TEST] ? made[MADE_TEST] : 1),
                  (long long)made[MADE_UNLABELED], brim_option_string(&cli->parse, "dtype", "u8"),
                  noise, (unsigned long long)d->seed);
  return brim_str_status(out);
}

static brim_status open_synthetic(brim_cli_data *d, const char *text,
                                  const int64_t made[MADE_COUNT]) {
  brim_pipeline pipeline;
  BRIM_TRY(brim_cli_data_parse(d, text, "make", &pipeline));
  for (size_t i = 0; i < MADE_COUNT; i++) {
    if (!made[i]) continue;
    brim_cli_split *s = &d->split[d->split_count];
    snprintf(s->name, sizeof s->name, "%s", made_names[i]);
    BRIM_TRY(brim_source_open(NULL, &pipeline.items[0], NULL, made_names[i], d->seed, &s->source));
    d->split_count++;
  }
  return BRIM_OK;
}

// Samples of each split. --samples 0 is for a set with only unlabelled samples.
static brim_status read_counts(brim_cli *cli, int64_t made[MADE_COUNT]) {
  const int64_t most = (int64_t)1 << 40;
  int64_t samples = 10000, test, unlabeled = 0;
  BRIM_TRY(brim_cli_data_int(cli, "unlabeled-samples", 0, most, &unlabeled));
  BRIM_TRY(brim_cli_data_int(cli, "samples", unlabeled ? 0 : 1, most, &samples));
  test = samples > 5 ? samples / 5 : samples > 0;
  BRIM_TRY(brim_cli_data_int(cli, "test-samples", 0, most, &test));
  made[MADE_TRAIN] = samples;
  made[MADE_TEST] = test;
  // STL-10 has unlabelled images, for contrastive training.
  const char *format = brim_option_string(&cli->parse, "format", NULL);
  bool given = brim_option_int(&cli->parse, "unlabeled-samples", -1) >= 0;
  if (!given && format && strcmp(format, "stl10") == 0) unlabeled = samples;
  made[MADE_UNLABELED] = unlabeled;
  return BRIM_OK;
}

static brim_status make_all(conversion *c) {
  brim_cli *cli = c->d->cli;
  int64_t made[MADE_COUNT], classes = brim_option_int(&cli->parse, "classes", 10);
  BRIM_TRY(read_counts(cli, made));
  BRIM_TRY(pack_options(c->d, classes, &c->options));
  brim_str text;
  brim_str_init(&text);
  brim_status status = synthetic_text(c->d, &c->options, made, &text);
  if (!status) status = open_synthetic(c->d, text.data, made);
  brim_str_deinit(&text);
  return status ? status : convert_all(c);
}

brim_status brim_cli_data_make(brim_cli *cli) {
  static const char *const none[] = {"dataset", "split", "resize"};
  if (cli->parse.positional_count != 2) {
    return brim_cli_usage(cli, BRIM_N_("brim data make takes one path: where to write"));
  }
  for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
    if (!brim_option_find(&cli->parse, none[i])) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s has no meaning for brim data make"), none[i]);
  }
  brim_cli_data d;
  BRIM_TRY(brim_cli_data_init(cli, NULL, &d));
  conversion c = {.d = &d, .out = cli->parse.positional[1]};
  brim_status status = make_all(&c);
  brim_cli_data_deinit(&d);
  return status;
}
