// `brim data info`: what lies at a path, as text or as one JSON value per split.
#include "cli/data/cli_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_COLUMN = 16, BAR_COLUMNS = 30, CLASSES_SHOWN = 20 };

typedef struct facts {
  brim_cli_data *d;
  const brim_cli_split *split;
  const brim_survey *survey;
  const char *const *class_names;  // NULL = none
  uint64_t ram_bytes, gpu_bytes;   // with all samples there; 0 = its images vary
} facts;

//---------------------------------- JSON ----------------------------------

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

// The scale of normalize: bytes count from 0 to 1.
static double scaled(const facts *f, double value) {
  return f->split->source->info.type == BRIM_SAMPLE_U8 ? value / 255.0 : value;
}

static brim_status put_pair(json_t *object, const char *key, const int64_t size[2]) {
  json_t *pair = json_array();
  BRIM_TRY(brim_json_put(object, key, pair));
  BRIM_TRY(brim_json_push(pair, json_integer(size[0])));
  return brim_json_push(pair, json_integer(size[1]));
}

static brim_status put_shape(const facts *f, json_t *root) {
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

static brim_status put_classes(const facts *f, json_t *root) {
  const brim_source_info *info = &f->split->source->info;
  BRIM_TRY(brim_json_put(root, "classes", json_integer(info->classes)));
  BRIM_TRY(brim_json_put(root, "targets", json_integer(info->classes ? 0 : info->target_dim)));
  if (!info->classes) return BRIM_OK;
  json_t *counts = json_array();
  BRIM_TRY(brim_json_put(root, "class_counts", counts));
  for (int64_t i = 0; i < info->classes; i++) {
    BRIM_TRY(brim_json_push(counts, number(f->survey->class_counts[i])));
  }
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

static brim_status put_channels(const facts *f, json_t *root) {
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

static brim_status put_speed(const facts *f, json_t *root) {
  const brim_survey *s = f->survey;
  BRIM_TRY(brim_json_put(root, "read_samples_per_s",
                         brim_json_number(rate((double)s->good, s->read_s))));
  BRIM_TRY(brim_json_put(root, "read_mb_per_s",
                         brim_json_number(rate((double)s->bytes / 1e6, s->read_s))));
  return brim_json_put(root, "threads", json_integer(s->threads));
}

static brim_status fill_json(const facts *f, json_t *root) {
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

static brim_status tell_json(const facts *f) {
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
  brim_status status = fill_json(f, root);
  if (status) {
    json_decref(root);
    return status;
  }
  return brim_cli_event(f->d->cli, "info", root);
}

//---------------------------------- text ----------------------------------

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

static void shape_rows(const facts *f, brim_str *out) {
  const brim_source_info *info = &f->split->source->info;
  const brim_survey *s = f->survey;
  char text[128];
  if (!info->varies) {
    brim_cli_data_shape(info, text, sizeof text);
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

static void class_bar(const facts *f, int64_t label, uint64_t most, int name_columns,
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

static void class_rows(const facts *f, brim_str *out) {
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

static void value_rows(const facts *f, brim_str *out) {
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

static void memory_rows(const facts *f, brim_str *out) {
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

static brim_status tell_text(const facts *f) {
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
  brim_status status = brim_str_status(&out);
  if (!status) brim_cli_print(f->d->cli, &out);
  brim_str_deinit(&out);
  return status;
}

//---------------------------------- the files ----------------------------------

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

// What the path holds: the table of an HDF5 file's datasets, sizes, and what no split reads.
typedef struct held {
  brim_pack_dataset *entries;  // NULL = no HDF5 file
  size_t count;
  uint64_t bytes, files;
  brim_str unused;
  brim_source_left left;
} held;

static brim_status files_json(brim_cli_data *d, const held *h) {
  json_t *root = json_object(), *list = NULL;
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
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
  if (s) {
    json_decref(root);
    return s;
  }
  return brim_cli_event(d->cli, "files", root);
}

static brim_status files_text(brim_cli_data *d, const held *h) {
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
  if (!status) status = brim_str_status(&out);
  if (!status) brim_cli_print(d->cli, &out);
  brim_str_deinit(&out);
  return status;
}

static brim_status tell_files(brim_cli_data *d) {
  held h = {0};
  const brim_value *allowed = brim_component_arg(&d->component, "allow_external");
  bool outside = allowed && allowed->kind == BRIM_VALUE_BOOL && allowed->boolean;
  brim_source *sources[BRIM_CLI_DATA_SPLITS];
  for (size_t i = 0; i < d->split_count; i++) sources[i] = d->split[i].source;
  bool known = d->path && brim_source_files(sources, d->split_count, &h.files, &h.bytes);
  if (d->path && !known) BRIM_TRY(brim_data_disk_bytes(d->path, &h.bytes, &h.files));
  if (is_hdf5(d)) BRIM_TRY(brim_pack_list(d->path, outside, &h.entries, &h.count));
  brim_str_init(&h.unused);
  brim_status status = brim_cli_data_unused(d, &h.unused, &h.left);
  // the size is the data's, without what lies beside it
  h.files -= h.left.files < h.files ? h.left.files : h.files;
  h.bytes -= h.left.bytes < h.bytes ? h.left.bytes : h.bytes;
  if (!status) status = d->cli->json ? files_json(d, &h) : files_text(d, &h);
  brim_str_deinit(&h.unused);
  brim_free(h.entries);
  return status;
}

//---------------------------------- the word ----------------------------------

static brim_status info_split(brim_cli_data *d, const brim_cli_split *split) {
  int64_t samples = 0;
  BRIM_TRY(brim_cli_data_int(d->cli, "samples", 1, INT64_MAX, &samples));
  brim_survey_options options = {
      .pool = d->pool, .samples = (uint64_t)samples, .tick = brim_cli_data_tick, .ctx = d};
  brim_survey survey;
  facts f = {.d = d, .split = split, .survey = &survey};
  BRIM_TRY(brim_cli_data_class_names(d, split, &f.class_names));
  if (!split->source->info.varies) {
    const brim_source *source = split->source;
    f.ram_bytes = brim_source_cache_bytes(source);
    f.gpu_bytes = source->info.count * (source->input_bytes + source->target_bytes);
  }
  brim_cli_data_begin(d, brim_tr("info"), split->name);
  BRIM_TRY(brim_survey_run(split->source, &options, &survey));
  brim_status status = d->cli->json ? tell_json(&f) : tell_text(&f);
  brim_survey_deinit(&survey);
  return status;
}

brim_status brim_cli_data_info(brim_cli *cli) {
  const char *path = cli->parse.positional_count > 1 ? cli->parse.positional[1] : NULL;
  if (cli->parse.positional_count > 2 || (!path && !brim_option_find(&cli->parse, "dataset"))) {
    return brim_cli_usage(cli, BRIM_N_("brim data info takes one path"));
  }
  brim_cli_data d;
  BRIM_TRY(brim_source_open_failed(brim_cli_data_init(cli, path, &d)));
  brim_status status = brim_source_open_failed(brim_cli_data_open(&d));
  if (!status) status = tell_files(&d);
  for (size_t i = 0; i < d.split_count && !status; i++) status = info_split(&d, &d.split[i]);
  brim_cli_data_deinit(&d);
  return status;
}
