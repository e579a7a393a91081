// The hdf5 source: datasets of one file as inputs and targets. Opening reads the layout with
// libhdf5; rows then come from the mapped file without its lock (data_hdf5_array.c).
#include "data/hdf5/data_hdf5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/hdf5/data_hdf5_set.h"

// Unpacked chunks kept, unless chunk_cache= says otherwise: an eighth of the memory between these.
// Rows in random order unpack a chunk again for each of its rows where it is not kept.
static const uint64_t LEAST_CACHE = (uint64_t)256 << 20, MOST_CACHE = (uint64_t)4 << 30;
// What only libhdf5 can read is kept in memory up to here, and read slowly beyond.
static const uint64_t KEEP_LIMIT = (uint64_t)64 << 20;
enum {
  NAN_ROWS = 256,  // looked at for a dataset of nothing but NaN
};

//---------------------------------- memory ----------------------------------

// The budget for unpacked chunks, shared by what each dataset would need in all.
static brim_status set_caches(brim_hdf5_set *s, uint64_t budget) {
  double all = 0;
  brim_hdf5_array *sets[2] = {s->inputs, s->targets};
  size_t counts[2] = {s->input_count, s->target_count};
  for (int pass = 0; pass < 2; pass++) {
    for (int k = 0; k < 2; k++) {
      for (size_t i = 0; i < counts[k]; i++) {
        brim_hdf5_array *a = &sets[k][i];
        if (a->where != BRIM_HDF5_PACKED) continue;
        double need = (double)a->chunk_count * (double)a->chunk_bytes;
        if (pass == 0) {
          all += need;
        } else {
          BRIM_TRY(brim_hdf5_cache_create(a, (uint64_t)((double)budget * (need / all)), &a->cache));
        }
      }
    }
  }
  return BRIM_OK;
}

// What fits is fetched at once; small rows of what does not fit are not read ahead.
static void advise(const brim_hdf5_set *s) {
  uint64_t left = 0, memory = 0;
  brim_machine_free_memory("", &left, &memory);
  const brim_map *map = &s->file.map;
  if (map->size <= memory / 4 && map->size <= (uint64_t)4 << 30) {
    brim_map_advise(map, 0, map->size, BRIM_MAP_USE_SOON);
  } else if (map->size > memory / 2 && s->inputs[0].row_bytes < 64 << 10) {
    brim_map_advise(map, 0, map->size, BRIM_MAP_USE_RANDOM);
  }
}

// A dataset of floats in which every value of some rows, spread over it, is NaN trains nothing.
static brim_status check_nan(const brim_hdf5_set *s, const brim_hdf5_array *a) {
  if (a->type.kind < BRIM_HDF5_F16) return BRIM_OK;
  brim_hdf5_array flat = *a;
  brim_hdf5_array_pack(&flat, 0);
  flat.bytes = false;
  float *row = brim_calloc(a->row_elements, sizeof *row);
  if (!row) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", s->file.path, a->name);
  brim_status status = BRIM_OK;
  bool good = false;
  uint64_t looked = 0;
  for (; looked < NAN_ROWS && looked < s->rows && !good && !status; looked++) {
    // drawn, as values may be missing at regular intervals
    brim_philox4 r = brim_philox(0, 0, looked);
    uint64_t at = s->rows > NAN_ROWS ? brim_rng_below(r.v[0], r.v[1], s->rows) : looked;
    status = brim_hdf5_array_row(&flat, at, row);
    for (uint64_t i = 0; i < a->row_elements && !good && !status; i++) good = !isnan(row[i]);
    // One that cannot be read is named when it is its turn, or left out.
    good = good || (status && status != BRIM_ENOMEM);
    if (status != BRIM_ENOMEM) status = BRIM_OK;
  }
  brim_free(row);
  if (status || good) return status;
  return brim_fail(BRIM_EINVAL, "%s: %s holds only NaN in the %" PRIu64 " rows checked",
                   s->file.path, a->name, looked);
}

static void warn_unwritten(const brim_hdf5_set *s, const brim_hdf5_array *a) {
  uint64_t rows = brim_hdf5_array_unwritten(a);
  if (!rows) return;
  brim_log_warn("data",
                "%s: %" PRIu64 " of %" PRIu64
                " rows of %s were never written and read as the fill value; did the program that "
                "wrote the file finish?",
                s->file.path, rows, a->dim[0], a->name);
}

//---------------------------------- the table ----------------------------------

static void hdf5_close(void *state) {
  brim_hdf5_set *s = state;
  if (!s) return;
  for (size_t i = 0; i < s->input_count; i++) brim_hdf5_file_close_array(&s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) brim_hdf5_file_close_array(&s->targets[i]);
  brim_hdf5_file_close(&s->file);
  brim_data_classes_deinit(&s->classes);
  brim_free(s->labels);
  brim_free(s);
}

static brim_status start_readers(const brim_hdf5_set *s) {
  for (size_t i = 0; i < s->input_count; i++) {
    if (s->inputs[i].reader) BRIM_TRY(brim_hdf5_reader_start(s->inputs[i].reader));
  }
  for (size_t i = 0; i < s->target_count; i++) {
    if (s->targets[i].reader) BRIM_TRY(brim_hdf5_reader_start(s->targets[i].reader));
  }
  return BRIM_OK;
}

// By the name of the file (`whole`) or of the first input in it.
static brim_status note_split(brim_hdf5_set *s, const brim_hdf5_set_args *args, bool whole) {
  char *own = NULL, plain[512];
  if (strcmp(args->split, "val") != 0) return BRIM_OK;
  if (!whole) {
    int split = brim_hdf5_split_of(s->choice.inputs[0]->path, plain, sizeof plain);
    s->val_is_test = split == BRIM_HDF5_TEST;
    return BRIM_OK;
  }
  BRIM_TRY(brim_hdf5_split_file(args->path, "val", &own));
  s->val_is_test = !own;
  brim_free(own);
  return BRIM_OK;
}

static brim_status open_probed(brim_hdf5_set *s, const brim_hdf5_set_args *args) {
  char *path;
  bool whole;
  BRIM_TRY(brim_hdf5_find_file(args->path, args->split, &path, &whole));
  brim_hdf5_set_args own = *args;
  brim_status status = brim_hdf5_set_probe(&own, path, whole);
  if (status == BRIM_EPARSE) {
    // Some row, perhaps, of what was to come into memory: the others may be good.
    own.keep = 0;
    status = brim_hdf5_set_probe(&own, path, whole);
  }
  if (!status) status = brim_hdf5_set_open(s, &own, path, whole);
  brim_free(path);
  BRIM_TRY(status);
  BRIM_TRY(note_split(s, args, whole));
  BRIM_TRY(start_readers(s));
  BRIM_TRY(set_caches(s, args->cache));
  for (size_t i = 0; i < s->input_count; i++) warn_unwritten(s, &s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) warn_unwritten(s, &s->targets[i]);
  for (size_t i = 0; i < s->input_count; i++) BRIM_TRY(check_nan(s, &s->inputs[i]));
  for (size_t i = 0; i < s->target_count; i++) BRIM_TRY(check_nan(s, &s->targets[i]));
  s->fills = args->fills;
  s->nan = args->nan;
  s->input_values = 1;
  for (int k = 0; k < s->info.rank; k++) s->input_values *= (uint64_t)s->info.dim[k];
  advise(s);
  brim_hdf5_file_choose(&s->file);
  return BRIM_OK;
}

static uint64_t default_cache(void) {
  uint64_t left = 0, total = 0;
  brim_machine_free_memory("", &left, &total);
  uint64_t cache = total / 8 < MOST_CACHE ? total / 8 : MOST_CACHE;
  return cache > LEAST_CACHE ? cache : LEAST_CACHE;
}

static brim_status cache_argument(const json_t *args, uint64_t *out) {
  const json_t *v = json_object_get(args, "chunk_cache");
  if (!v) return BRIM_OK;
  if (json_is_integer(v) && json_integer_value(v) >= 0) {
    *out = (uint64_t)json_integer_value(v);
  } else if (!json_is_string(v) || !brim_parse_bytes(json_string_value(v), out)) {
    return brim_fail(BRIM_EINVAL, "hdf5: chunk_cache must be a number of bytes, as 512MiB");
  }
  return BRIM_OK;
}

static brim_status layout_argument(const json_t *args, const char **out) {
  static const char *const layouts[] = {"NCHW", "NHWC", "NCL", "NLC", NULL};
  BRIM_TRY(brim_data_args_string(args, "hdf5", "layout", out));
  for (const char *const *l = layouts; *out && *l; l++) {
    if (strcasecmp(*l, *out) == 0) return BRIM_OK;
  }
  if (!*out) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "hdf5: layout is NCHW, NHWC, NCL or NLC, not '%s'", *out);
}

static brim_status read_args(const brim_source_how *how, const json_t *json,
                             brim_hdf5_set_args *args) {
  *args = (brim_hdf5_set_args){.path = how->path,
                               .split = how->split,
                               .classes = -1,
                               .cache = default_cache(),
                               .keep = KEEP_LIMIT};
  BRIM_TRY(brim_data_args_string(json, "hdf5", "path", &args->path));
  BRIM_TRY(brim_data_args_int(json, "hdf5", "limit", 1, INT64_MAX, &args->limit));
  BRIM_TRY(brim_data_args_int(json, "hdf5", "classes", 0, BRIM_HDF5_MAX_CLASSES, &args->classes));
  BRIM_TRY(layout_argument(json, &args->layout));
  BRIM_TRY(cache_argument(json, &args->cache));
  const json_t *fill = json_object_get(json, "nan");
  if (fill && !json_is_number(fill)) return brim_fail(BRIM_EINVAL, "hdf5: nan must be a number");
  if (fill) {
    args->fills = true;
    args->nan = (float)json_number_value(fill);
  }
  const json_t *outside = json_object_get(json, "allow_external");
  if (outside && !json_is_boolean(outside))
    return brim_fail(BRIM_EINVAL, "hdf5: allow_external is true or false");
  args->outside = json_is_true(outside);
  args->inputs = json_object_get(json, "inputs");
  args->targets = json_object_get(json, "targets");
  if (!args->path || !args->path[0])
    return brim_fail(BRIM_EINVAL,
                     "hdf5 needs data.path: a file such as data.h5, or a folder of "
                     "train.h5 and val.h5");
  if (!args->split) args->split = "train";
  return BRIM_OK;
}

static brim_status hdf5_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {
      "path",    "split",       "limit",          "inputs", "targets", "classes", "part",
      "indices", "chunk_cache", "allow_external", "layout", "nan",     NULL};
  json_t *json;
  brim_hdf5_set_args args;
  BRIM_TRY(brim_data_args_parse("hdf5", how->args_json, known, &json));
  brim_hdf5_set *s = brim_calloc(1, sizeof *s);
  brim_status status = BRIM_OK;
  if (s) {
    s->file.driver = s->file.file = s->file.access = -1;
    status = read_args(how, json, &args);
    if (!status) status = open_probed(s, &args);
  } else {
    status = brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
  }
  json_decref(json);
  if (status) {
    hdf5_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void hdf5_info(void *state, brim_source_info *out) { *out = ((brim_hdf5_set *)state)->info; }

static brim_status check_row(const brim_hdf5_set *s, uint64_t index) {
  if (index < s->info.count) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " samples", s->file.path, s->info.count);
}

static brim_status read_target(const brim_hdf5_set *s, uint64_t index, void *target) {
  for (size_t i = 0; i < s->target_count; i++)
    BRIM_TRY(brim_hdf5_array_row(&s->targets[i], index, target));
  if (s->labels) memcpy(target, &s->labels[index], sizeof s->labels[index]);
  return BRIM_OK;
}

// With nan=, values that are not finite are read as that one.
static void fill_odd(const brim_hdf5_set *s, float *input) {
  for (uint64_t i = 0; i < s->input_values; i++) {
    if (!isfinite(input[i])) input[i] = s->nan;
  }
}

static brim_status read_sample(const brim_hdf5_set *s, uint64_t index, void *input, void *target,
                               bool stream) {
  BRIM_TRY(check_row(s, index));
  for (size_t i = 0; i < s->input_count; i++)
    BRIM_TRY(stream ? brim_hdf5_array_stream(&s->inputs[i], index, input)
                    : brim_hdf5_array_row(&s->inputs[i], index, input));
  if (s->fills && s->info.type == BRIM_SAMPLE_F32) fill_odd(s, input);
  return read_target(s, index, target);
}

static brim_status hdf5_read(void *state, uint64_t index, void *input, void *target) {
  return read_sample(state, index, input, target, false);
}

brim_status brim_source_hdf5_stream(void *state, uint64_t index, uint64_t next, void *input,
                                    void *target) {
  const brim_hdf5_set *s = state;
  if (next < s->info.count) {
    for (size_t i = 0; i < s->input_count; i++) brim_hdf5_array_prefetch(&s->inputs[i], next);
    for (size_t i = 0; i < s->target_count; i++) brim_hdf5_array_prefetch(&s->targets[i], next);
    if (s->labels) __builtin_prefetch(&s->labels[next]);
  }
  return read_sample(s, index, input, target, true);
}

// One dataset, contiguous, of numbers that a sample has as they are.
bool brim_source_hdf5_rows(void *state, brim_source_rows *out) {
  const brim_hdf5_set *s = state;
  const brim_hdf5_array *a = &s->inputs[0];
  if (s->fills || s->input_count != 1 || !brim_hdf5_array_direct(a)) return false;
  *out = (brim_source_rows){
      .first = a->map->data + a->offset, .stride = a->row_bytes, .count = s->info.count};
  return true;
}

brim_status brim_source_hdf5_target(void *state, uint64_t index, void *target) {
  const brim_hdf5_set *s = state;
  BRIM_TRY(check_row(s, index));
  return read_target(s, index, target);
}

static void hdf5_describe(void *state, uint64_t index, char *text, size_t size) {
  const brim_hdf5_set *s = state;
  snprintf(text, size, "%s:%s[%" PRIu64 "]", brim_fs_basename(s->file.path), s->inputs[0].name,
           index);
}

void brim_source_hdf5_describe_target(void *state, uint64_t index, int64_t value, char *text,
                                      size_t size) {
  const brim_hdf5_set *s = state;
  const brim_hdf5_array *a = NULL;
  for (size_t i = 0; i < s->target_count; i++) {
    if (value >= (int64_t)s->targets[i].base) a = &s->targets[i];
  }
  if (a) snprintf(text, size, "%s:%s[%" PRIu64 "]", brim_fs_basename(s->file.path), a->name, index);
}

bool brim_source_hdf5_binary_targets(void *state) {
  return ((brim_hdf5_set *)state)->binary_targets;
}

bool brim_source_hdf5_val_is_test(void *state) { return ((brim_hdf5_set *)state)->val_is_test; }

uint64_t brim_source_hdf5_host_bytes(void *state) {
  const brim_hdf5_set *s = state;
  uint64_t n = s->labels ? s->rows * sizeof *s->labels : 0;
  for (size_t i = 0; i < s->input_count; i++) n += brim_hdf5_array_host_bytes(&s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) n += brim_hdf5_array_host_bytes(&s->targets[i]);
  return n;
}

int64_t brim_source_hdf5_label(void *state, uint64_t index) {
  return ((const brim_hdf5_set *)state)->labels[index];
}

const char *const *brim_source_hdf5_class_names(void *state) {
  return ((const brim_hdf5_set *)state)->classes.names;
}

const brim_hdf5_file *brim_source_hdf5_file(void *state, const brim_hdf5_choice **choice) {
  const brim_hdf5_set *s = state;
  *choice = &s->choice;
  return &s->file;
}

const brim_source_table brim_source_hdf5 = {
    .abi = BRIM_SOURCE_ABI,
    .name = "hdf5",
    .open = hdf5_open,
    .info = hdf5_info,
    .read = hdf5_read,
    .close = hdf5_close,
    .describe = hdf5_describe,
};
