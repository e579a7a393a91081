// `brim data`: the source with its splits, and the actions info, verify, make and convert.

#include "cli/data/cli_data.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_text.h"

//------------------------------------------- sources -------------------------------------------

// Reads an option that must be in [min, max]; leaves `value` alone if it was not given.
static brim_status data_int(brim_cli *cli, const char *name, int64_t min, int64_t max,
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

// Parses one component ("synthetic(samples=10)", "resize(size=96)") into the memory of d.
static brim_status data_parse(brim_cli_data *d, const char *text, const char *name,
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
  BRIM_TRY(data_parse(d, text, "--dataset", &pipeline));
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
  BRIM_TRY(data_int(cli, "threads", 0, 1024, &threads));
  BRIM_TRY(data_int(cli, "seed", 0, INT64_MAX, &seed));
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
static size_t target_offset(const brim_source *source) {
  return (source->input_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
}

static brim_status read_sample_at(brim_source *source, uint64_t index, uint8_t *out) {
  return brim_source_read(source, index, 1, out, out + target_offset(source), NULL, NULL);
}

// *same: both sources hold the same samples, as when a data set without a val split returns its test
// set. Compares the counts, then names and contents of the first and the last sample. Compares only
// the names if a sample cannot be read.
static brim_status same_samples(brim_source *a, brim_source *b, bool *same) {
  uint64_t count = a->info.count;
  *same = false;
  if (count != b->info.count || a->input_bytes != b->input_bytes ||
      a->target_bytes != b->target_bytes) {
    return BRIM_OK;
  }
  size_t bytes = target_offset(a) + a->target_bytes;
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
    brim_status one = read_sample_at(a, index, left), other = read_sample_at(b, index, right);
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

static brim_status open_split(brim_cli_data *d, const char *split, brim_source **out) {
  return brim_source_open(d->registry, &d->component, d->path, split, d->seed, out);
}

// Opens every split. Skips a missing split; fails on any other error.
static brim_status open_splits(brim_cli_data *d) {
  static const char *const names[BRIM_CLI_DATA_SPLITS] = {"train", "test", "val", "unlabeled"};
  char first[1024] = "";
  brim_status status = BRIM_OK, missing = BRIM_OK;
  for (size_t i = 0; i < BRIM_CLI_DATA_SPLITS && !status; i++) {
    brim_source *source = NULL;
    if (i >= 2) brim_cli_log_errors(d->cli);  // val may be test again: do not repeat its warnings
    brim_status opened = open_split(d, names[i], &source);
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
  if (!split) return open_splits(d);
  brim_source *source = NULL;
  BRIM_TRY(open_split(d, split, &source));
  return add_split(d, split, source);
}

//---------------------------------- progress and names ----------------------------------

// Begins a step of work.
static void data_begin(brim_cli_data *d, const char *title, const char *split) {
  snprintf(d->title, sizeof d->title, "%s %s", title, split);
  d->start = brim_clock_now();
}

// Reports the progress of the step; false when the user wants to stop.
static bool data_tick(void *ctx, uint64_t done, uint64_t total) {
  brim_cli_data *d = ctx;
  brim_progress p = {.title = d->title, .done = (int64_t)done, .total = (int64_t)total};
  p.elapsed_s = (double)brim_time_since_ns(d->start, brim_clock_now()) / 1e9;
  p.rate = p.elapsed_s > 0 ? (double)done / p.elapsed_s : NAN;
  p.eta_s = done ? p.elapsed_s * (double)(total - done) / (double)done : NAN;
  if (!d->cli->json) brim_cli_progress(d->cli, &p);  // with --json only results are printed
  return !(d->cli->stop && *d->cli->stop);
}

// "(32, 32, 3) uint8"
static void data_shape(const brim_source_info *info, char *out, size_t size) {
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

//------------------------------------------- info -------------------------------------------

enum { LABEL_COLUMN = 16, BAR_COLUMNS = 30, CLASSES_SHOWN = 20 };

typedef struct survey_facts {
  brim_cli_data *d;
  const brim_cli_split *split;
  const brim_survey *survey;
  const char *const *class_names;  // NULL = none
  uint64_t ram_bytes, gpu_bytes;   // to cache all samples; 0 = images of different sizes
} survey_facts;

//---------------------------------- info: JSON ----------------------------------

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static brim_status put_class_counts(json_t *root, const uint64_t *counts, int64_t classes) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(root, "class_counts", list));
  for (int64_t i = 0; i < classes; i++) BRIM_TRY(brim_json_push(list, number(counts[i])));
  return BRIM_OK;
}

// Converts a value to the scale that the transform normalize uses: bytes become 0 to 1.
static double scaled(const survey_facts *f, double value) {
  return f->split->source->info.type == BRIM_SAMPLE_U8 ? value / 255.0 : value;
}

static brim_status put_pair(json_t *object, const char *key, const int64_t size[2]) {
  json_t *pair = json_array();
  BRIM_TRY(brim_json_put(object, key, pair));
  BRIM_TRY(brim_json_push(pair, json_integer(size[0])));
  return brim_json_push(pair, json_integer(size[1]));
}

static brim_status put_shape(const survey_facts *f, json_t *root) {
  const brim_source_info *info = &f->split->source->info;
  json_t *shape = json_array();
  BRIM_TRY(brim_json_put(root, "shape", shape));
  for (int i = 0; i < info->rank; i++) BRIM_TRY(brim_json_push(shape, json_integer(info->dim[i])));
  BRIM_TRY(brim_json_put(root, "dtype",
                         json_string(info->type == BRIM_SAMPLE_U8 ? "uint8" : "float32")));
  BRIM_TRY(brim_json_put(root, "varies", json_boolean(info->varies)));
  if (!info->varies) return BRIM_OK;
  BRIM_TRY(put_pair(root, "smallest", f->survey->smallest));
  BRIM_TRY(put_pair(root, "median", f->survey->median));
  return put_pair(root, "largest", f->survey->largest);
}

static brim_status put_classes(const survey_facts *f, json_t *root) {
  const brim_source_info *info = &f->split->source->info;
  BRIM_TRY(brim_json_put(root, "classes", json_integer(info->classes)));
  BRIM_TRY(brim_json_put(root, "targets", json_integer(info->classes ? 0 : info->target_dim)));
  if (!info->classes) return BRIM_OK;
  BRIM_TRY(put_class_counts(root, f->survey->class_counts, info->classes));
  if (!f->class_names) return BRIM_OK;
  json_t *names = json_array();
  BRIM_TRY(brim_json_put(root, "class_names", names));
  for (int64_t i = 0; i < info->classes; i++) {
    json_t *name = json_string(f->class_names[i]);
    if (!name) name = json_null();  // not UTF-8
    BRIM_TRY(brim_json_push(names, name));
  }
  return BRIM_OK;
}

static brim_status put_channels(const survey_facts *f, json_t *root) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(root, "channels", list));
  for (int c = 0; c < f->survey->channels; c++) {
    const brim_survey_channel *v = &f->survey->channel[c];
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "mean", brim_json_number(scaled(f, v->mean))));
    BRIM_TRY(brim_json_put(item, "std", brim_json_number(scaled(f, v->std))));
    BRIM_TRY(brim_json_put(item, "min", brim_json_number(v->min)));
    BRIM_TRY(brim_json_put(item, "max", brim_json_number(v->max)));
  }
  return BRIM_OK;
}

static double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : NAN; }

static brim_status put_speed(const survey_facts *f, json_t *root) {
  const brim_survey *s = f->survey;
  BRIM_TRY(brim_json_put(root, "read_samples_per_s",
                         brim_json_number(rate((double)s->good, s->read_s))));
  BRIM_TRY(brim_json_put(root, "read_mb_per_s",
                         brim_json_number(rate((double)s->bytes / 1e6, s->read_s))));
  return brim_json_put(root, "threads", json_integer(s->threads));
}

static brim_status put_info(const survey_facts *f, json_t *root) {
  const brim_source *source = f->split->source;
  const char *path = f->d->path;
  BRIM_TRY(brim_json_put(root, "path", path ? json_string(path) : json_null()));
  BRIM_TRY(brim_json_put(root, "source", json_string(source->table->name)));
  BRIM_TRY(brim_json_put(root, "split", json_string(f->split->name)));
  BRIM_TRY(brim_json_put(root, "samples", number(source->info.count)));
  BRIM_TRY(brim_json_put(root, "samples_measured", number(f->survey->samples)));
  BRIM_TRY(brim_json_put(root, "broken", number(f->survey->broken_count)));
  BRIM_TRY(put_shape(f, root));
  BRIM_TRY(put_classes(f, root));
  BRIM_TRY(put_channels(f, root));
  BRIM_TRY(brim_json_put(root, "nan", number(f->survey->nan_values)));
  BRIM_TRY(brim_json_put(root, "inf", number(f->survey->inf_values)));
  BRIM_TRY(brim_json_put(root, "targets_with_nan_or_inf", number(f->survey->bad_targets)));
  BRIM_TRY(brim_json_put(root, "host_bytes", number(source->host_bytes)));
  BRIM_TRY(brim_json_put(root, "ram_bytes", f->ram_bytes ? number(f->ram_bytes) : json_null()));
  BRIM_TRY(brim_json_put(root, "gpu_bytes", f->gpu_bytes ? number(f->gpu_bytes) : json_null()));
  brim_source_rows rows;
  BRIM_TRY(brim_json_put(root, "mapped_rows", json_boolean(brim_source_rows_of(source, &rows))));
  return put_speed(f, root);
}

static brim_status info_json(const survey_facts *f) {
  json_t *root = json_object();
  return brim_cli_finish_event(f->d->cli, "info", root, put_info(f, root));
}

//---------------------------------- info: text ----------------------------------

static void row(brim_str *out, const char *label, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void row(brim_str *out, const char *label, const char *fmt, ...) {
  int width = brim_utf8_width(label);
  brim_str_printf(out, "  %s", label);
  brim_str_repeat(out, ' ', (size_t)(width < LABEL_COLUMN ? LABEL_COLUMN - width : 1));
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(out, fmt, args);
  va_end(args);
  brim_str_append_char(out, '\n');
}

static void shape_rows(const survey_facts *f, brim_str *out) {
  const brim_source_info *info = &f->split->source->info;
  const brim_survey *s = f->survey;
  char text[128];
  if (!info->varies) {
    data_shape(info, text, sizeof text);
    row(out, brim_tr("shape"), "%s", text);
    return;
  }
  row(out, brim_tr("shape"),
      info->dim[2] == 1 ? brim_tr("images of %lld channel and different sizes")
                        : brim_tr("images of %lld channels and different sizes"),
      (long long)info->dim[2]);
  row(out, "", brim_tr("%lld x %lld to %lld x %lld, median %lld x %lld, by area"),
      (long long)s->smallest[0], (long long)s->smallest[1], (long long)s->largest[0],
      (long long)s->largest[1], (long long)s->median[0], (long long)s->median[1]);
}

static void class_bar(const survey_facts *f, int64_t label, uint64_t most, int name_columns,
                      brim_str *out) {
  uint64_t n = f->survey->class_counts[label];
  const brim_term *term = &f->d->cli->out;
  char count[32], name[32];
  brim_format_count((double)n, count);
  snprintf(name, sizeof name, "%lld", (long long)label);
  brim_str shown;
  brim_str_init(&shown);
  brim_ui_clip(&shown, term, f->class_names ? f->class_names[label] : name, name_columns);
  int used = brim_utf8_width(shown.data);
  brim_str_printf(out, "    %s", shown.data);
  brim_str_repeat(out, ' ', (size_t)(name_columns > used ? name_columns - used : 0));
  brim_str_deinit(&shown);
  brim_str_printf(out, "  %9s", count);
  if (n) brim_str_append(out, "  ");
  uint64_t bar = most ? (n * BAR_COLUMNS + most - 1) / most : 0;
  for (uint64_t i = 0; i < bar; i++) brim_str_append(out, term->unicode ? "\u2587" : "#");
  brim_str_append_char(out, '\n');
}

static void class_rows(const survey_facts *f, brim_str *out) {
  const brim_source_info *info = &f->split->source->info;
  if (!info->classes) {
    if (info->target_dim) {
      row(out, brim_tr("targets"),
          f->split->source->binary_targets ? brim_tr("%lld labels of 0 or 1 per sample")
          : info->target_dim == 1          ? brim_tr("%lld number")
                                           : brim_tr("%lld numbers"),
          (long long)info->target_dim);
    } else {
      row(out, brim_tr("targets"), "%s", brim_tr("none"));
    }
    return;
  }
  uint64_t most = 0, least = UINT64_MAX;
  int columns = 3;
  for (int64_t i = 0; i < info->classes; i++) {
    uint64_t n = f->survey->class_counts[i];
    most = n > most ? n : most;
    least = n < least ? n : least;
    int width = f->class_names ? brim_utf8_width(f->class_names[i]) : 0;
    columns = width > columns ? width : columns;
  }
  if (columns > 24) columns = 24;
  if (least == most) {
    row(out, brim_tr("classes"),
        most == 1 ? brim_tr("%lld, of %llu sample each") : brim_tr("%lld, of %llu samples each"),
        (long long)info->classes, (unsigned long long)most);
  } else {
    row(out, brim_tr("classes"), brim_tr("%lld, of %llu to %llu samples"), (long long)info->classes,
        (unsigned long long)least, (unsigned long long)most);
  }
  int64_t shown =
      info->classes <= CLASSES_SHOWN || f->d->cli->verbose ? info->classes : CLASSES_SHOWN / 2;
  for (int64_t i = 0; i < shown; i++) class_bar(f, i, most, columns, out);
  if (shown < info->classes) {
    brim_str_printf(out, brim_tr("    ... and %lld more; --verbose lists them\n"),
                    (long long)(info->classes - shown));
  }
}

static void value_rows(const survey_facts *f, brim_str *out) {
  const brim_survey *s = f->survey;
  bool bytes = f->split->source->info.type == BRIM_SAMPLE_U8;
  brim_str mean, std, range;
  brim_str_init(&mean);
  brim_str_init(&std);
  brim_str_init(&range);
  for (int c = 0; c < s->channels; c++) {
    const char *gap = c ? ", " : "";
    brim_str_printf(&mean, "%s%.4f", gap, scaled(f, s->channel[c].mean));
    brim_str_printf(&std, "%s%.4f", gap, scaled(f, s->channel[c].std));
    brim_str_append(&range, gap);
    brim_str_printf(&range, brim_tr("%g to %g"), s->channel[c].min, s->channel[c].max);
  }
  row(out, brim_tr("mean"), "%s%s", mean.data, bytes ? brim_tr("  (of 0..1)") : "");
  row(out, brim_tr("deviation"), "%s", std.data);
  row(out, brim_tr("range"), "%s", range.data);
  if (s->nan_values || s->inf_values) {
    row(out, brim_tr("not finite"),
        s->bad_samples == 1 ? brim_tr("%llu NaN, %llu infinite in %llu sample")
                            : brim_tr("%llu NaN, %llu infinite in %llu samples"),
        (unsigned long long)s->nan_values, (unsigned long long)s->inf_values,
        (unsigned long long)s->bad_samples);
  }
  if (s->bad_targets) {
    row(out, brim_tr("not finite"),
        s->bad_targets == 1 ? brim_tr("the target of %llu sample")
                            : brim_tr("the targets of %llu samples"),
        (unsigned long long)s->bad_targets);
  }
  if (!out->status) out->status = mean.status ? mean.status : std.status;
  if (!out->status) out->status = range.status;
  brim_str_deinit(&mean);
  brim_str_deinit(&std);
  brim_str_deinit(&range);
}

static void memory_rows(const survey_facts *f, brim_str *out) {
  char text[32];
  if (f->ram_bytes) {
    brim_format_bytes(f->ram_bytes, text);
    row(out, brim_tr("in memory"), brim_tr("%s of RAM (cache: ram) or of the GPU (cache: gpu)"),
        text);
  } else {
    row(out, brim_tr("in memory"), "%s",
        brim_tr("not possible while sizes differ; unify them with brim data convert --resize"));
  }
  brim_source_rows rows;
  if (brim_source_rows_of(f->split->source, &rows)) {
    brim_format_bytes(rows.stride * rows.count, text);
    row(out, brim_tr("in the file"),
        brim_tr("a GPU can read the rows there directly (cache: none), %s page-locked"), text);
  }
  if (f->split->source->host_bytes) {
    brim_format_bytes(f->split->source->host_bytes, text);
    row(out, brim_tr("while open"), brim_tr("%s of RAM"), text);
  }
}

static brim_status info_text(const survey_facts *f) {
  const brim_survey *s = f->survey;
  char count[32], samples[32], speed[32];
  brim_str out;
  brim_str_init(&out);
  brim_str_append_char(&out, '\n');
  brim_ui_styled(&out, &f->d->cli->out, BRIM_UI_TITLE, f->split->name);
  brim_str_append_char(&out, '\n');
  brim_format_count((double)f->split->source->info.count, count);
  brim_format_count((double)s->samples, samples);
  if (s->samples < f->split->source->info.count) {
    row(&out, brim_tr("samples"), brim_tr("%s; the figures below are from %s of them"), count,
        samples);
  } else {
    row(&out, brim_tr("samples"), "%s", count);
  }
  if (s->broken_count) {
    row(&out, brim_tr("broken"), brim_tr("%llu; brim data verify lists them"),
        (unsigned long long)s->broken_count);
  }
  shape_rows(f, &out);
  class_rows(f, &out);
  value_rows(f, &out);
  memory_rows(f, &out);
  brim_format_figure(rate((double)s->good, s->read_s), count);
  brim_format_figure(rate((double)s->bytes / 1e6, s->read_s), speed);
  row(&out, brim_tr("reading"),
      s->threads == 1 ? brim_tr("%s samples/s, %s MB/s with %d thread")
                      : brim_tr("%s samples/s, %s MB/s with %d threads"),
      count, speed, s->threads);
  return brim_cli_finish_text(f->d->cli, &out, BRIM_OK);
}

//---------------------------------- info: the files ----------------------------------

static bool is_hdf5(const brim_cli_data *d) {
  return d->path && d->split_count && strcmp(d->split[0].source->table->name, "hdf5") == 0 &&
         !brim_fs_is_dir(d->path);
}

static void dims_text(const brim_pack_dataset *e, char *out, size_t size) {
  size_t used = 0;
  snprintf(out, size, "()");
  for (int i = 0; i < e->rank && used + 2 < size; i++) {
    int n = snprintf(out + used, size - used, "%s%lld", i ? ", " : "(", (long long)e->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (e->rank && used + 1 < size) snprintf(out + used, size - used, ")");
}

static brim_status datasets_text(brim_cli_data *d, const brim_pack_dataset *entries, size_t count,
                                 brim_str *out) {
  const brim_ui_column columns[] = {{brim_tr("dataset"), NULL, BRIM_UI_LEFT, 0, 8},
                                    {brim_tr("shape"), NULL, BRIM_UI_LEFT, 0, 8},
                                    {brim_tr("type"), NULL, BRIM_UI_LEFT, 1, 0},
                                    {brim_tr("on disk"), NULL, BRIM_UI_RIGHT, 2, 0},
                                    {brim_tr("storage"), NULL, BRIM_UI_LEFT, 1, 8}};
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) {
    char dims[160], bytes[32];
    dims_text(&entries[i], dims, sizeof dims);
    brim_format_bytes(entries[i].bytes, bytes);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", entries[i].name);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", dims);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", entries[i].type);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", bytes);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", entries[i].storage);
  }
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, &d->cli->out, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

static brim_status dataset_json(const brim_pack_dataset *e, json_t *list) {
  json_t *item = json_object();
  BRIM_TRY(brim_json_push(list, item));
  json_t *name = json_string(e->name), *shape = json_array();
  BRIM_TRY(brim_json_put(item, "name", name ? name : json_null()));
  BRIM_TRY(brim_json_put(item, "shape", shape));
  for (int i = 0; i < e->rank; i++) BRIM_TRY(brim_json_push(shape, json_integer(e->dim[i])));
  BRIM_TRY(brim_json_put(item, "dtype", json_string(e->type)));
  BRIM_TRY(brim_json_put(item, "bytes", number(e->bytes)));
  return brim_json_put(item, "storage", json_string(e->storage));
}

// The content of the path: datasets of an HDF5 file, sizes, and files that no split reads.
typedef struct path_content {
  brim_pack_dataset *entries;  // NULL if it is no HDF5 file
  size_t count;
  uint64_t bytes, files;
  brim_str unused;
  brim_source_left left;
} path_content;

static brim_status files_json(brim_cli_data *d, const path_content *h) {
  json_t *root = json_object(), *list = NULL;
  const char *source = d->split[0].source->table->name;
  brim_status s = brim_json_put(root, "path", d->path ? json_string(d->path) : json_null());
  if (!s) s = brim_json_put(root, "source", json_string(source));
  if (!s) s = brim_json_put(root, "disk_bytes", number(h->bytes));
  if (!s) s = brim_json_put(root, "files", number(h->files));
  if (!s && h->entries) s = brim_json_put(root, "datasets", json_array());
  if (!s && h->entries) list = json_object_get(root, "datasets");
  for (size_t i = 0; i < h->count && !s; i++) s = dataset_json(&h->entries[i], list);
  if (!s) s = brim_json_put(root, "unused_count", number(h->left.count));
  json_t *unused = s ? NULL : json_string(h->unused.data);
  if (!s) s = brim_json_put(root, "unused", unused ? unused : json_null());
  return brim_cli_finish_event(d->cli, "files", root, s);
}

static brim_status files_text(brim_cli_data *d, const path_content *h) {
  brim_str out;
  char size[32];
  brim_str_init(&out);
  brim_format_bytes(h->bytes, size);
  if (d->path) {
    brim_ui_styled(&out, &d->cli->out, BRIM_UI_BOLD, d->path);
    const char *source = d->split[0].source->table->name;
    if (h->files == 1) {
      brim_str_printf(&out, brim_tr(": %s, %s\n"), source, size);
    } else {
      brim_str_printf(&out, brim_tr(": %s, %s in %llu files\n"), source, size,
                      (unsigned long long)h->files);
    }
  }
  brim_status status = h->entries ? datasets_text(d, h->entries, h->count, &out) : BRIM_OK;
  if (h->left.count) brim_str_printf(&out, brim_tr("not used: %s\n"), h->unused.data);
  return brim_cli_finish_text(d->cli, &out, status);
}

static brim_status show_path(brim_cli_data *d) {
  path_content h = {0};
  const brim_value *allowed = brim_component_arg(&d->component, "allow_external");
  bool outside = allowed && allowed->kind == BRIM_VALUE_BOOL && allowed->boolean;
  brim_source *sources[BRIM_CLI_DATA_SPLITS];
  for (size_t i = 0; i < d->split_count; i++) sources[i] = d->split[i].source;
  bool known = d->path && brim_source_files(sources, d->split_count, &h.files, &h.bytes);
  if (d->path && !known) BRIM_TRY(brim_data_disk_bytes(d->path, &h.bytes, &h.files));
  if (is_hdf5(d)) BRIM_TRY(brim_pack_list(d->path, outside, &h.entries, &h.count));
  brim_str_init(&h.unused);
  brim_status status = brim_cli_data_unused(d, &h.unused, &h.left);
  // The size is that of the data, without other files beside them.
  h.files -= h.left.files < h.files ? h.left.files : h.files;
  h.bytes -= h.left.bytes < h.bytes ? h.left.bytes : h.bytes;
  if (!status) status = d->cli->json ? files_json(d, &h) : files_text(d, &h);
  brim_str_deinit(&h.unused);
  brim_free(h.entries);
  return status;
}

static brim_status info_split(brim_cli_data *d, const brim_cli_split *split) {
  int64_t samples = 0;
  BRIM_TRY(data_int(d->cli, "samples", 1, INT64_MAX, &samples));
  brim_survey_options options = {
      .pool = d->pool, .samples = (uint64_t)samples, .tick = data_tick, .ctx = d};
  brim_survey survey;
  survey_facts f = {.d = d, .split = split, .survey = &survey};
  BRIM_TRY(brim_cli_data_class_names(d, split, &f.class_names));
  if (!split->source->info.varies) {
    const brim_source *source = split->source;
    f.ram_bytes = brim_source_cache_bytes(source);
    f.gpu_bytes = source->info.count * (source->input_bytes + source->target_bytes);
  }
  data_begin(d, brim_tr("info"), split->name);
  BRIM_TRY(brim_survey_run(split->source, &options, &survey));
  brim_status status = d->cli->json ? info_json(&f) : info_text(&f);
  brim_survey_deinit(&survey);
  return status;
}

static brim_status data_info(brim_cli *cli) {
  const char *path = cli->parse.positional_count > 1 ? cli->parse.positional[1] : NULL;
  if (cli->parse.positional_count > 2 || (!path && !brim_option_find(&cli->parse, "dataset"))) {
    return brim_cli_usage(cli, BRIM_N_("brim data info takes one path"));
  }
  brim_cli_data d;
  BRIM_TRY(brim_source_open_failed(brim_cli_data_init(cli, path, &d)));
  brim_status status = brim_source_open_failed(brim_cli_data_open(&d));
  if (!status) status = show_path(&d);
  for (size_t i = 0; i < d.split_count && !status; i++) status = info_split(&d, &d.split[i]);
  brim_cli_data_deinit(&d);
  return status;
}

//------------------------------------------- verify -------------------------------------------

typedef struct totals {
  uint64_t samples, broken;
  bool duplicates;
  size_t record_limit;                       // broken records to list per split
  brim_survey survey[BRIM_CLI_DATA_SPLITS];  // of the splits that were read
  size_t surveyed;
} totals;

//---------------------------------- verify: JSON ----------------------------------

// The number of records that cannot be read, have a label out of range, or have NaN or infinite values.
static uint64_t invalid_count(const brim_survey *s) {
  return s->broken_count + s->labels_out_of_range + s->odd_count;
}

static brim_status put_records(json_t *root, const char *key, const brim_survey_broken *records,
                               size_t count) {
  BRIM_TRY(brim_json_put(root, key, json_array()));
  json_t *list = json_object_get(root, key);
  for (size_t i = 0; i < count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "sample", number(records[i].index)));
    json_t *text = json_string(records[i].text);
    if (!text) text = json_string("");  // a name that is not UTF-8
    BRIM_TRY(brim_json_put(item, "message", text));
  }
  return BRIM_OK;
}

static brim_status put_pairs(json_t *root, uint64_t count, uint64_t conflicts,
                             const brim_survey_twins *twins, size_t kept) {
  BRIM_TRY(brim_json_put(root, "duplicates", number(count)));
  BRIM_TRY(brim_json_put(root, "duplicates_with_another_label", number(conflicts)));
  BRIM_TRY(brim_json_put(root, "duplicate_pairs", json_array()));
  json_t *list = json_object_get(root, "duplicate_pairs");
  for (size_t i = 0; i < kept; i++) {
    json_t *pair = json_array();
    BRIM_TRY(brim_json_push(list, pair));
    BRIM_TRY(brim_json_push(pair, number(twins[i].first)));
    BRIM_TRY(brim_json_push(pair, number(twins[i].second)));
  }
  return BRIM_OK;
}

static brim_status put_verify(const brim_cli_split *split, const brim_survey *s, bool duplicates,
                              json_t *f) {
  BRIM_TRY(brim_json_put(f, "split", json_string(split->name)));
  BRIM_TRY(brim_json_put(f, "ok", json_boolean(invalid_count(s) == 0)));
  BRIM_TRY(brim_json_put(f, "samples", number(s->samples)));
  BRIM_TRY(brim_json_put(f, "broken", number(s->broken_count)));
  BRIM_TRY(put_records(f, "broken_records", s->broken, s->broken_kept));
  if (s->class_counts) BRIM_TRY(put_class_counts(f, s->class_counts, s->classes));
  BRIM_TRY(brim_json_put(f, "labels_out_of_range", number(s->labels_out_of_range)));
  BRIM_TRY(brim_json_put(f, "nan", number(s->nan_values)));
  BRIM_TRY(brim_json_put(f, "inf", number(s->inf_values)));
  BRIM_TRY(brim_json_put(f, "samples_with_nan_or_inf", number(s->bad_samples)));
  BRIM_TRY(brim_json_put(f, "targets_with_nan_or_inf", number(s->bad_targets)));
  BRIM_TRY(put_records(f, "not_finite_records", s->odd, s->odd_kept));
  BRIM_TRY(brim_json_put(f, "constant", number(s->constant)));
  if (duplicates) {
    BRIM_TRY(put_pairs(f, s->twin_count, s->conflicts, s->twins, s->twins_kept));
  }
  return brim_json_put(f, "seconds", brim_json_number(s->elapsed_s));
}

static brim_status verify_json(brim_cli_data *d, const brim_cli_split *split, const brim_survey *s,
                               bool duplicates) {
  json_t *f = json_object();
  return brim_cli_finish_event(d->cli, "verify", f, put_verify(split, s, duplicates, f));
}

//---------------------------------- verify: text ----------------------------------

// A line of the report. Plain text: a file name may contain escape sequences.
static void count_line(brim_str *out, const brim_term *term, brim_ui_style style,
                       const char *text) {
  char plain[2048];
  brim_text_plain(text, plain, sizeof plain);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, style, plain);
  brim_str_append_char(out, '\n');
}

#define LINE(out, term, style, ...)             \
  do {                                          \
    char line_[600];                            \
    snprintf(line_, sizeof line_, __VA_ARGS__); \
    count_line(out, term, style, line_);        \
  } while (0)

static void class_balance_lines(const brim_survey *s, const brim_term *term, brim_str *out) {
  if (!s->class_counts) return;
  uint64_t least = UINT64_MAX, most = 0, empty = 0;
  for (int64_t i = 0; i < s->classes; i++) {
    uint64_t n = s->class_counts[i];
    least = n < least ? n : least;
    most = n > most ? n : most;
    empty += n == 0;
  }
  if (least == most) {
    LINE(out, term, BRIM_UI_PLAIN,
         most == 1 ? brim_tr("classes: %lld, of %llu sample each")
                   : brim_tr("classes: %lld, of %llu samples each"),
         (long long)s->classes, (unsigned long long)most);
  } else {
    LINE(out, term, BRIM_UI_PLAIN, brim_tr("%lld classes of %llu to %llu samples"),
         (long long)s->classes, (unsigned long long)least, (unsigned long long)most);
  }
  if (empty == 1) LINE(out, term, BRIM_UI_WARN, "%s", brim_tr("one class is empty"));
  if (empty > 1) {
    LINE(out, term, BRIM_UI_WARN, brim_tr("%llu classes are empty"), (unsigned long long)empty);
  }
}

static void more_line(uint64_t count, size_t kept, const brim_term *term, brim_str *out) {
  if (kept >= count) return;
  LINE(out, term, BRIM_UI_DIM, brim_tr("... and %llu more; --limit N lists more"),
       (unsigned long long)(count - kept));
}

static void invalid_value_lines(const brim_cli_split *split, const brim_survey *s,
                                const brim_term *term, brim_str *out) {
  char name[300];
  if (s->labels_out_of_range) {
    LINE(out, term, BRIM_UI_BAD,
         s->labels_out_of_range == 1 ? brim_tr("%llu label is not in [0, %lld)")
                                     : brim_tr("%llu labels are not in [0, %lld)"),
         (unsigned long long)s->labels_out_of_range, (long long)s->classes);
  }
  if (s->bad_samples) {
    LINE(out, term, BRIM_UI_BAD,
         s->bad_samples == 1
             ? brim_tr("%llu input holds NaN or infinities: %llu NaN, %llu infinite")
             : brim_tr("%llu inputs hold NaN or infinities: %llu NaN, %llu infinite"),
         (unsigned long long)s->bad_samples, (unsigned long long)s->nan_values,
         (unsigned long long)s->inf_values);
  }
  if (s->bad_targets) {
    LINE(out, term, BRIM_UI_BAD,
         s->bad_targets == 1 ? brim_tr("%llu target holds a NaN or an infinity")
                             : brim_tr("%llu targets hold a NaN or an infinity"),
         (unsigned long long)s->bad_targets);
  }
  for (size_t i = 0; i < s->odd_kept; i++) LINE(out, term, BRIM_UI_PLAIN, "  %s", s->odd[i].text);
  more_line(s->odd_count, s->odd_kept, term, out);
  if (s->constant) {
    brim_source_describe(split->source, s->first_constant, name, sizeof name);
    LINE(out, term, BRIM_UI_WARN,
         s->constant == 1 ? brim_tr("%llu sample holds a single value: %s")
                          : brim_tr("%llu samples hold a single value; the first is %s"),
         (unsigned long long)s->constant, name);
  }
}

static void duplicate_lines(const brim_cli_split *split, const brim_survey *s,
                            const brim_term *term, brim_str *out) {
  if (s->twin_count == 0) {
    LINE(out, term, BRIM_UI_PLAIN, "%s", brim_tr("no duplicate samples"));
    return;
  }
  LINE(out, term, BRIM_UI_WARN,
       s->twin_count == 1
           ? brim_tr("%llu sample is a copy of an earlier one, %llu with another label")
           : brim_tr("%llu samples are copies of an earlier one, %llu with another label"),
       (unsigned long long)s->twin_count, (unsigned long long)s->conflicts);
  for (size_t i = 0; i < s->twins_kept; i++) {
    char a[250], b[250];
    brim_source_describe(split->source, s->twins[i].first, a, sizeof a);
    brim_source_describe(split->source, s->twins[i].second, b, sizeof b);
    LINE(out, term, BRIM_UI_PLAIN, "  %s = %s%s", b, a,
         s->twins[i].labels_differ ? brim_tr(" (another label)") : "");
  }
}

static brim_status verify_text(brim_cli_data *d, const brim_cli_split *split, const brim_survey *s,
                               bool duplicates) {
  const brim_term *term = &d->cli->out;
  brim_str text, *out = &text;
  char samples[32], speed[32];
  brim_str_init(&text);
  brim_format_count((double)s->samples, samples);
  brim_format_figure(s->elapsed_s > 0 ? (double)s->samples / s->elapsed_s : 0, speed);
  brim_ui_styled(out, term, BRIM_UI_BOLD, split->name);
  brim_str_printf(out,
                  s->samples == 1 ? brim_tr(": %s sample read, %s samples/s: ")
                                  : brim_tr(": %s samples read, %s samples/s: "),
                  samples, speed);
  char bad[96];
  if (invalid_count(s) == 0) {
    brim_ui_styled(out, term, BRIM_UI_GOOD, brim_tr("all are valid"));
  } else {
    bool broken = s->broken_count == invalid_count(s);
    const char *one =
        broken ? brim_tr("%llu record is broken") : brim_tr("%llu record is not valid");
    const char *more =
        broken ? brim_tr("%llu records are broken") : brim_tr("%llu records are not valid");
    snprintf(bad, sizeof bad, invalid_count(s) == 1 ? one : more,
             (unsigned long long)invalid_count(s));
    brim_ui_styled(out, term, BRIM_UI_BAD, bad);
  }
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < s->broken_kept; i++) {
    LINE(out, term, BRIM_UI_PLAIN, "%s", s->broken[i].text);
  }
  more_line(s->broken_count, s->broken_kept, term, out);
  class_balance_lines(s, term, out);
  invalid_value_lines(split, s, term, out);
  if (duplicates) duplicate_lines(split, s, term, out);
  return brim_cli_finish_text(d->cli, &text, BRIM_OK);
}

static brim_status verify_split(brim_cli_data *d, const brim_cli_split *split, totals *total) {
  int64_t samples = 0;
  BRIM_TRY(data_int(d->cli, "samples", 1, INT64_MAX, &samples));
  brim_survey_options options = {.pool = d->pool,
                                 .samples = (uint64_t)samples,
                                 .duplicates = total->duplicates,
                                 .limit = total->record_limit,
                                 .tick = data_tick,
                                 .ctx = d};
  brim_survey *survey = &total->survey[total->surveyed];
  data_begin(d, brim_tr("verify"), split->name);
  BRIM_TRY(brim_survey_run(split->source, &options, survey));
  total->surveyed++;
  total->samples += survey->samples;
  total->broken += invalid_count(survey);
  return d->cli->json ? verify_json(d, split, survey, total->duplicates)
                      : verify_text(d, split, survey, total->duplicates);
}

//---------------------------------- verify: between splits ----------------------------------

static brim_status shared_json(brim_cli_data *d, const brim_cli_split *a, const brim_cli_split *b,
                               const brim_survey_shared *s) {
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "first", json_string(a->name));
  if (!status) status = brim_json_put(f, "second", json_string(b->name));
  if (!status) status = put_pairs(f, s->count, s->conflicts, s->twins, s->kept);
  return brim_cli_finish_event(d->cli, "duplicates", f, status);
}

static brim_status shared_text(brim_cli_data *d, const brim_cli_split *a, const brim_cli_split *b,
                               const brim_survey_shared *s) {
  const brim_term *term = &d->cli->out;
  brim_str text, *out = &text;
  if (s->count == 0) return BRIM_OK;
  brim_str_init(&text);
  LINE(out, term, BRIM_UI_WARN,
       s->count == 1 ? brim_tr("%llu sample of %s also appears in %s, %llu with another label")
                     : brim_tr("%llu samples of %s also appear in %s, %llu with another label"),
       (unsigned long long)s->count, b->name, a->name, (unsigned long long)s->conflicts);
  for (size_t i = 0; i < s->kept; i++) {
    char x[250], y[250];
    brim_source_describe(a->source, s->twins[i].first, x, sizeof x);
    brim_source_describe(b->source, s->twins[i].second, y, sizeof y);
    LINE(out, term, BRIM_UI_PLAIN, "  %s = %s%s", y, x,
         s->twins[i].labels_differ ? brim_tr(" (another label)") : "");
  }
  return brim_cli_finish_text(d->cli, &text, BRIM_OK);
}

// Finds samples that two splits share.
static brim_status find_shared(brim_cli_data *d, const totals *total) {
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < total->surveyed && total->duplicates && !status; i++) {
    for (size_t j = i + 1; j < total->surveyed && !status; j++) {
      const brim_cli_split *a = &d->split[i], *b = &d->split[j];
      brim_survey_shared shared;
      status =
          brim_survey_share(&total->survey[i], &total->survey[j], total->record_limit, &shared);
      if (!status) status = (d->cli->json ? shared_json : shared_text)(d, a, b, &shared);
      brim_free(shared.twins);
    }
  }
  return status;
}

// Checks that the labelled splits have the shape and the classes of the training set. Images of a
// folder may differ in size: transforms unify them.
static brim_status check_splits_match(const brim_cli_data *d) {
  const brim_source *train = d->split[0].source;
  for (size_t i = 1; i < d->split_count && strcmp(d->split[0].name, "train") == 0; i++) {
    const brim_source *other = d->split[i].source;
    bool images = train->info.varies || other->info.varies ||
                  (train->table->name && strcmp(train->table->name, "folder") == 0);
    if (strcmp(d->split[i].name, "unlabeled") == 0) continue;
    BRIM_TRY(brim_source_match(train, &train->info, other, &other->info, images, ""));
  }
  return BRIM_OK;
}

// The result, after all splits were read and reported.
static brim_status verdict(const brim_cli_data *d, const totals *total) {
  char text[700] = "";
  const char *path = d->path ? d->path : "data";
  brim_status mismatch = check_splits_match(d);
  if (mismatch) snprintf(text, sizeof text, "%s", brim_status_detail());
  if (total->broken == 1) {
    return brim_fail(BRIM_EIO, "%s: one of %llu records is not valid%s%s", path,
                     (unsigned long long)total->samples, mismatch ? "; " : "", text);
  }
  if (total->broken) {
    return brim_fail(BRIM_EIO, "%s: %llu of %llu records are not valid%s%s", path,
                     (unsigned long long)total->broken, (unsigned long long)total->samples,
                     mismatch ? "; " : "", text);
  }
  return mismatch ? brim_fail(BRIM_EIO, "%s: %s", path, text) : BRIM_OK;
}

// Data that exist but cannot be opened are broken: exit code 1, not the 2 of a wrong command line. If the user named
// the kind of data, the name may be wrong instead.
static brim_status as_broken(const brim_cli *cli, const char *path, brim_status status) {
  static const char *const words[] = {"dataset", "split", "plugin"};
  bool named = false;
  if (!status || cli->usage_error || !path || !brim_fs_exists(path)) return status;
  // Without permission to read the file its content is unknown.
  if (access(path, R_OK) != 0) return brim_source_open_failed(status);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    named = named || brim_option_find(&cli->parse, words[i]);
  }
  switch (status) {
    case BRIM_EPARSE:
    case BRIM_ELIMIT:
    case BRIM_EEND:
      return BRIM_EIO;
    case BRIM_EINVAL:
    case BRIM_ENOENT:
    case BRIM_EUNSUPPORTED:
      return named ? status : BRIM_EIO;
    default:
      return status;
  }
}

static brim_status data_verify(brim_cli *cli) {
  const char *path = cli->parse.positional_count > 1 ? cli->parse.positional[1] : NULL;
  if (cli->parse.positional_count > 2 || (!path && !brim_option_find(&cli->parse, "dataset"))) {
    return brim_cli_usage(cli, BRIM_N_("brim data verify takes one path"));
  }
  int64_t limit = 20;
  BRIM_TRY(data_int(cli, "limit", 0, 1000000, &limit));
  brim_cli_data d;
  totals total = {.duplicates = brim_option_flag(&cli->parse, "duplicates", false),
                  .record_limit = (size_t)limit};
  brim_status status = brim_cli_data_init(cli, path, &d);
  if (status) return as_broken(cli, path, status);
  status = as_broken(cli, path, brim_cli_data_open(&d));
  for (size_t i = 0; i < d.split_count && !status; i++) {
    status = verify_split(&d, &d.split[i], &total);
  }
  if (!status) status = find_shared(&d, &total);
  if (!status) status = verdict(&d, &total);
  for (size_t i = 0; i < total.surveyed; i++) brim_survey_deinit(&total.survey[i]);
  brim_cli_data_deinit(&d);
  return status;
}

//-------------------------------------- make and convert -------------------------------------
// `brim data make` and `convert`: write the samples of a source, resized or not, as files of another
// format (a "pack", src/data). All threads read a block, then the block is written. The result is read
// back and compared before it gets its name.

enum { BLOCK_BYTES = 64 << 20, MAX_COMPARED = 1000 };

typedef struct failure {
  brim_status status;
  char detail[512];
} failure;

typedef struct conversion {
  brim_cli_data *d;
  brim_pack_options options;
  brim_pack *pack;
  const char *out_path;
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
  bool allocated = b->failed && b->inputs;
  if (b->source->target_bytes) {
    b->targets = brim_alloc_tagged(samples * b->source->target_bytes, BRIM_MEM_PLANNED);
    allocated = allocated && b->targets;
  }
  if (b->transforms) {
    b->raw_bytes = align(b->source->input_bytes);
    b->raw = brim_alloc_tagged((size_t)b->threads * b->raw_bytes, BRIM_MEM_PLANNED);
    b->scratch_bytes = align(brim_transforms_scratch_bytes(b->transforms));
    if (b->scratch_bytes) {
      b->scratch = brim_alloc_tagged((size_t)b->threads * b->scratch_bytes, BRIM_MEM_PLANNED);
    }
    allocated = allocated && b->raw && (b->scratch || !b->scratch_bytes);
  }
  if (allocated) return BRIM_OK;
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
  data_begin(c->d, brim_tr("write"), s->name);
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
    if (!status && !data_tick(c->d, b.first, count)) {
      status = brim_fail(BRIM_EINTERRUPTED, "interrupted; nothing was written to %s", c->out_path);
    }
  }
  block_deinit(&b);
  c->samples += count;
  return status ? status : brim_pack_end(c->pack);
}

//---------------------------------- reading back ----------------------------------

// Which converted sample a written sample is. Images are read back in the order of their folders, so
// their file names carry the number.
static uint64_t converted_index(const conversion *c, const brim_source *written, uint64_t index) {
  if (c->options.format != BRIM_PACK_PNG && c->options.format != BRIM_PACK_JPG) return index;
  char text[1024];
  brim_source_describe(written, index, text, sizeof text);
  const char *name = strrchr(text, '/');
  return strtoull(name ? name + 1 : text, NULL, 10);
}

static brim_status compare_sample(const conversion *c, block *b, brim_source *written,
                                  uint64_t index) {
  uint64_t from = converted_index(c, written, index);
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
                   c->out_path, (unsigned long long)from);
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
  // Suppress the warning that the set is smaller than the real CIFAR.
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
                  c->out_path, (unsigned long long)written->info.count, written->input_bytes,
                  (unsigned long long)count, b.output_bytes);
  }
  uint64_t n = count < MAX_COMPARED ? count : MAX_COMPARED;
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
  brim_status status = brim_fs_refused(brim_pack_create(c->out_path, &c->options, &c->pack));
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
  brim_status s = brim_json_put(f, "path", json_string(c->out_path));
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
  brim_ui_styled(&out, &c->d->cli->out, BRIM_UI_BOLD, c->out_path);
  brim_str_printf(&out, ": %s", brim_pack_format_name(c->options.format));
  for (size_t i = 0; i < c->d->split_count; i++) {
    brim_format_count((double)c->info[i].count, text);
    brim_str_printf(&out, "%s %s %s", i ? " +" : ",", c->d->split[i].name, text);
  }
  data_shape(&c->info[0], shape, sizeof shape);
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
      .pool = c->d->pool, .limit = (size_t)count, .tick = data_tick, .ctx = c->d};
  brim_survey survey;
  data_begin(c->d, brim_tr("check"), s->name);
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
  BRIM_TRY(data_int(cli, "chunk", 0, (int64_t)1 << 32, &chunk));
  BRIM_TRY(data_int(cli, "deflate", 1, 9, &deflate));
  BRIM_TRY(data_int(cli, "quality", 1, 100, &quality));
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
  return data_parse(c->d, expression, "--resize", &c->resize);
}

static brim_status data_convert(brim_cli *cli) {
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
  conversion c = {.d = &d, .out_path = to};
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

// Writes the options of make as a source expression: synthetic(shape=[28, 28], ...).
static brim_status synthetic_text(brim_cli_data *d, const brim_pack_options *options,
                                  const int64_t made[MADE_COUNT], brim_str *out) {
  brim_cli *cli = d->cli;
  int64_t classes = 10, targets = 0, dim[BRIM_SOURCE_MAX_RANK];
  int rank;
  char noise[32];
  BRIM_TRY(data_int(cli, "classes", 1, 1000000, &classes));
  BRIM_TRY(data_int(cli, "targets", 1, 1000000, &targets));
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
  BRIM_TRY(data_parse(d, text, "make", &pipeline));
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
  BRIM_TRY(data_int(cli, "unlabeled-samples", 0, most, &unlabeled));
  BRIM_TRY(data_int(cli, "samples", unlabeled ? 0 : 1, most, &samples));
  test = samples > 5 ? samples / 5 : samples > 0;
  BRIM_TRY(data_int(cli, "test-samples", 0, most, &test));
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

static brim_status data_make(brim_cli *cli) {
  static const char *const inapplicable[] = {"dataset", "split", "resize"};
  if (cli->parse.positional_count != 2) {
    return brim_cli_usage(cli, BRIM_N_("brim data make takes one path: where to write"));
  }
  for (size_t i = 0; i < sizeof inapplicable / sizeof inapplicable[0]; i++) {
    if (!brim_option_find(&cli->parse, inapplicable[i])) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s has no meaning for brim data make"), inapplicable[i]);
  }
  brim_cli_data d;
  BRIM_TRY(brim_cli_data_init(cli, NULL, &d));
  conversion c = {.d = &d, .out_path = cli->parse.positional[1]};
  brim_status status = make_all(&c);
  brim_cli_data_deinit(&d);
  return status;
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
  static const brim_cli_verb verbs[] = {{"info", data_info},
                                        {"make", data_make},
                                        {"convert", data_convert},
                                        {"verify", data_verify},
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
