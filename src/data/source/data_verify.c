// Surveys the samples of a source. Each thread takes a share of a block and has its own sums, which are
// added at the end. Sums of bytes are whole numbers, so the number of threads does not change them.
#include "data/source/data_verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 32 << 20, MAX_BLOCK = 65536, MIN_BLOCK = 64 };

// Sums of one channel. For floats the mean and squared deviations are merged sample by sample (Chan's
// method), which stays exact enough if the mean is large.
typedef struct channel_sums {
  uint64_t sum, squares;  // bytes
  double count;
  double mean, m2;  // floats
  double min, max;
} channel_sums;

// The first records of a thread, at most `limit`.
typedef struct record_list {
  brim_survey_broken *items;
  size_t count;
} record_list;

typedef struct worker {
  void *input, *target;
  channel_sums channel[BRIM_SURVEY_CHANNELS];
  uint64_t *class_counts;
  uint64_t good, broken_count, labels_out_of_range, nan_values, inf_values, bad_samples;
  uint64_t bad_targets, constant, first_constant, first_bad, bytes;
  int64_t read_ns;
  record_list broken, odd;
  uint64_t odd_count;
  brim_status status;
} worker;

// A sample's digest and identity.
typedef struct brim_survey_mark {
  uint8_t digest[BRIM_SHA256_BYTES];
  uint64_t index;
  int32_t label;
  int32_t used;
} mark;

typedef struct image_size {
  int64_t height, width;
} image_size;

typedef struct pass {
  brim_source *source;
  const brim_survey_options *options;
  brim_survey *out;
  int threads, channels;
  worker *workers;
  mark *marks;        // (samples); NULL without `duplicates`
  image_size *sizes;  // (samples); NULL if all images have one size
  uint64_t first;     // first sample of the block
} pass;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while looking at the samples");
}

//---------------------------------- values ----------------------------------

// Adds n pixels of `channels` values. True if all values are equal.
static bool add_bytes(const uint8_t *p, size_t n, int channels, channel_sums *sums) {
  uint8_t low = 255, high = 0;
  for (int c = 0; c < channels; c++) {
    uint8_t min = 255, max = 0;
    for (size_t begin = 0; begin < n; begin += 65536) {  // 65536 * 255^2 fits 32 bits
      size_t end = n - begin < 65536 ? n : begin + 65536;
      uint32_t sum = 0, squares = 0;
      for (size_t i = begin; i < end; i++) {
        uint32_t v = p[i * (size_t)channels + (size_t)c];
        sum += v;
        squares += v * v;
        min = v < min ? (uint8_t)v : min;
        max = v > max ? (uint8_t)v : max;
      }
      sums[c].sum += sum;
      sums[c].squares += squares;
    }
    sums[c].count += (double)n;
    if (min < sums[c].min) sums[c].min = min;
    if (max > sums[c].max) sums[c].max = max;
    low = min < low ? min : low;
    high = max > high ? max : high;
  }
  return low == high;
}

static void merge(channel_sums *into, double count, double mean, double m2) {
  if (!(count > 0)) return;
  double total = into->count + count, delta = mean - into->mean;
  into->mean += delta * count / total;
  into->m2 += m2 + delta * delta * into->count * count / total;
  into->count = total;
}

typedef struct odd_values {
  uint64_t nan, inf;
} odd_values;

static bool add_floats(const float *p, size_t n, int channels, channel_sums *sums,
                       odd_values *odd) {
  bool same = true;
  for (int c = 0; c < channels; c++) {
    double sum = 0, m2 = 0, count = 0, min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
      float v = p[i * (size_t)channels + (size_t)c];
      same = same && v == p[0];
      if (!isfinite(v)) {
        if (isnan(v)) odd->nan++;
        if (isinf(v)) odd->inf++;
        continue;
      }
      sum += (double)v;
      count++;
      min = v < min ? (double)v : min;
      max = v > max ? (double)v : max;
    }
    double mean = count > 0 ? sum / count : 0;
    for (size_t i = 0; i < n; i++) {
      float v = p[i * (size_t)channels + (size_t)c];
      if (isfinite(v)) m2 += ((double)v - mean) * ((double)v - mean);
    }
    merge(&sums[c], count, mean, m2);
    if (min < sums[c].min) sums[c].min = min;
    if (max > sums[c].max) sums[c].max = max;
  }
  return same;
}

//---------------------------------- one sample ----------------------------------

static void keep_record(pass *s, worker *w, record_list *list, uint64_t index, const char *said) {
  if (list->count == s->options->limit) return;
  char *text = brim_strdup(said);
  if (!text) {
    w->status = BRIM_ENOMEM;
    return;
  }
  list->items[list->count++] = (brim_survey_broken){.index = index, .text = text};
}

// Notes values that are not finite: `odd` counts those of the input, `value` is the index of the first
// in the target (-1 = none).
static void note_odd(pass *s, worker *w, uint64_t index, const odd_values *odd, int64_t value) {
  bool input = odd->nan || odd->inf, target = value >= 0;
  w->nan_values += odd->nan;
  w->inf_values += odd->inf;
  if (input && w->bad_samples++ == 0) w->first_bad = index;
  w->bad_targets += target;
  if (!input && !target) return;
  w->odd_count++;
  if (w->odd.count == s->options->limit) return;
  char name[400], text[600];
  if (input) {
    brim_source_describe(s->source, index, name, sizeof name);
    snprintf(text, sizeof text, brim_tr("%s: the input holds %llu NaN and %llu infinities%s"), name,
             (unsigned long long)odd->nan, (unsigned long long)odd->inf,
             target ? brim_tr(", and the target some too") : "");
  } else {
    brim_source_describe_target(s->source, index, value, name, sizeof name);
    snprintf(text, sizeof text, brim_tr("%s: the target holds a NaN or an infinity"), name);
  }
  keep_record(s, w, &w->odd, index, text);
}

// Counts a sample's label. *odd: index of the first target value that is not finite; -1 = all are finite.
static void check_target(pass *s, worker *w, int32_t *label, int64_t *odd) {
  const brim_source_info *info = &s->source->info;
  *label = -1;
  *odd = -1;
  if (info->classes > 0) {
    memcpy(label, w->target, sizeof *label);
    if (*label < 0 || *label >= info->classes) {
      w->labels_out_of_range++;
    } else {
      w->class_counts[*label]++;
    }
    return;
  }
  const float *t = w->target;
  for (int64_t i = 0; i < info->target_dim; i++) {
    if (!isfinite(t[i]) && *odd < 0) *odd = i;
  }
}

static void survey_sample(pass *s, worker *w, uint64_t i) {
  brim_source *source = s->source;
  const brim_source_info *info = &source->info;
  uint64_t samples = s->out->samples;
  uint64_t index =
      samples == info->count ? i : (uint64_t)((double)i * (double)info->count / (double)samples);
  int64_t height = info->dim[0], width = info->rank > 1 ? info->dim[1] : 1;
  brim_time before = brim_clock_now();
  brim_status status = brim_source_read(source, index, 1, w->input, w->target, &height, &width);
  w->read_ns += brim_time_since_ns(before, brim_clock_now());
  if (status == BRIM_ENOMEM) w->status = status;
  if (status) {
    w->broken_count++;
    keep_record(s, w, &w->broken, index, brim_status_detail());
    return;
  }
  size_t bytes = source->input_bytes;
  if (info->varies) bytes = (size_t)(height * width * (info->rank == 3 ? info->dim[2] : 1));
  if (s->sizes) s->sizes[i] = (image_size){height, width};
  w->good++;
  w->bytes += bytes;
  int32_t label;
  odd_values odd = {0};
  int64_t odd_target;
  check_target(s, w, &label, &odd_target);
  bool floats = info->type == BRIM_SAMPLE_F32;
  size_t pixels = bytes / (floats ? sizeof(float) : 1) / (size_t)s->channels;
  bool same = floats ? add_floats(w->input, pixels, s->channels, w->channel, &odd)
                     : add_bytes(w->input, pixels, s->channels, w->channel);
  if (same && pixels * (size_t)s->channels > 1 && w->constant++ == 0) w->first_constant = index;
  note_odd(s, w, index, &odd, odd_target);
  if (!s->marks) return;
  brim_sha256 h;
  int64_t shape[2] = {height, width};
  brim_sha256_init(&h);
  brim_sha256_update(&h, shape, sizeof shape);
  brim_sha256_update(&h, w->input, bytes);
  mark *m = &s->marks[i];
  brim_sha256_final(&h, m->digest);
  m->index = index;
  m->label = label;
  m->used = 1;
}

static void survey_range(void *ctx, int64_t begin, int64_t end, int thread) {
  pass *s = ctx;
  worker *w = &s->workers[thread];
  for (int64_t i = begin; i < end && !w->status; i++) survey_sample(s, w, s->first + (uint64_t)i);
}

//---------------------------------- merging the workers ----------------------------------

static void add_worker(brim_survey *out, channel_sums *total, worker *w, uint64_t *class_counts) {
  bool constant = w->constant && (!out->constant || w->first_constant < out->first_constant);
  bool bad = w->bad_samples && (!out->bad_samples || w->first_bad < out->first_bad);
  if (constant) out->first_constant = w->first_constant;
  if (bad) out->first_bad = w->first_bad;
  out->good += w->good;
  out->broken_count += w->broken_count;
  out->labels_out_of_range += w->labels_out_of_range;
  out->nan_values += w->nan_values;
  out->inf_values += w->inf_values;
  out->bad_samples += w->bad_samples;
  out->bad_targets += w->bad_targets;
  out->odd_count += w->odd_count;
  out->constant += w->constant;
  out->bytes += w->bytes;
  out->read_s += (double)w->read_ns / 1e9;
  for (int64_t i = 0; class_counts && i < out->classes; i++) class_counts[i] += w->class_counts[i];
  for (int c = 0; c < out->channels; c++) {
    channel_sums *from = &w->channel[c];
    if (from->sum || from->squares) {
      total[c].sum += from->sum;
      total[c].squares += from->squares;
    }
    if (from->min < total[c].min) total[c].min = from->min;
    if (from->max > total[c].max) total[c].max = from->max;
    merge(&total[c], from->count, from->mean, from->m2);
  }
}

static void finish_channels(brim_survey *out, const channel_sums *total, bool bytes) {
  for (int c = 0; c < out->channels; c++) {
    const channel_sums *t = &total[c];
    brim_survey_channel *to = &out->channel[c];
    if (!(t->count > 0)) {
      *to = (brim_survey_channel){NAN, NAN, NAN, NAN};
      continue;
    }
    double mean = bytes ? (double)t->sum / t->count : t->mean;
    double variance = bytes ? (double)t->squares / t->count - mean * mean : t->m2 / t->count;
    *to = (brim_survey_channel){mean, sqrt(variance > 0 ? variance : 0), t->min, t->max};
  }
}

static int by_index(const void *a, const void *b) {
  uint64_t x = ((const brim_survey_broken *)a)->index, y = ((const brim_survey_broken *)b)->index;
  return x < y ? -1 : x > y;
}

// Merges the records of all threads, which kept the first `limit` each, and keeps the first `limit`.
static brim_status merge_records(pass *s, bool odd, brim_survey_broken **out, size_t *kept) {
  size_t count = 0;
  for (int t = 0; t < s->threads; t++) {
    count += odd ? s->workers[t].odd.count : s->workers[t].broken.count;
  }
  if (count == 0) return BRIM_OK;
  brim_survey_broken *all = brim_calloc(count, sizeof *all);
  if (!all) return no_memory();
  size_t n = 0;
  for (int t = 0; t < s->threads; t++) {
    record_list *list = odd ? &s->workers[t].odd : &s->workers[t].broken;
    for (size_t i = 0; i < list->count; i++) all[n++] = list->items[i];
    list->count = 0;
  }
  qsort(all, count, sizeof *all, by_index);
  for (; count > s->options->limit; count--) brim_free(all[count - 1].text);
  *out = all;
  *kept = count;
  return BRIM_OK;
}

static int by_area(const void *a, const void *b) {
  const image_size *x = a, *y = b;
  int64_t left = x->height * x->width, right = y->height * y->width;
  if (left != right) return left < right ? -1 : 1;
  return x->height < y->height ? -1 : x->height > y->height;
}

static void put_size(image_size size, int64_t out[2]) {
  out[0] = size.height;
  out[1] = size.width;
}

// Sets the least, median and largest image. Broken samples have size 0, so they sort first.
static void finish_sizes(pass *s) {
  uint64_t n = s->out->samples, good = s->out->good;
  if (!s->sizes || good == 0) return;
  qsort(s->sizes, n, sizeof *s->sizes, by_area);
  put_size(s->sizes[n - good], s->out->smallest);
  put_size(s->sizes[n - good + good / 2], s->out->median);
  put_size(s->sizes[n - 1], s->out->largest);
}

static int by_digest(const void *a, const void *b) {
  const mark *x = a, *y = b;
  if (x->used != y->used) return x->used ? -1 : 1;
  int order = memcmp(x->digest, y->digest, BRIM_SHA256_BYTES);
  if (order) return order;
  return x->index < y->index ? -1 : x->index > y->index;
}

static int by_second(const void *a, const void *b) {
  uint64_t x = ((const brim_survey_twins *)a)->second, y = ((const brim_survey_twins *)b)->second;
  return x < y ? -1 : x > y;
}

static brim_status finish_twins(pass *s) {
  brim_survey *out = s->out;
  if (!s->marks) return BRIM_OK;
  qsort(s->marks, out->samples, sizeof *s->marks, by_digest);
  for (uint64_t i = 1; i < out->good; i++) {
    out->twin_count += memcmp(s->marks[i].digest, s->marks[i - 1].digest, BRIM_SHA256_BYTES) == 0;
  }
  if (out->twin_count == 0) return BRIM_OK;
  out->twins = brim_calloc(out->twin_count, sizeof *out->twins);
  if (!out->twins) return no_memory();
  size_t n = 0;
  uint64_t first = 0;
  for (uint64_t i = 1; i < out->good; i++) {
    const mark *a = &s->marks[first], *b = &s->marks[i];
    if (memcmp(a->digest, b->digest, BRIM_SHA256_BYTES) != 0) {
      first = i;
      continue;
    }
    bool differ = a->label != b->label;
    out->conflicts += differ;
    out->twins[n++] = (brim_survey_twins){a->index, b->index, differ};
  }
  qsort(out->twins, n, sizeof *out->twins, by_second);
  out->twins_kept = n < s->options->limit ? n : s->options->limit;
  return BRIM_OK;
}

static brim_status finish(pass *s) {
  brim_survey *out = s->out;
  channel_sums total[BRIM_SURVEY_CHANNELS] = {{0}};
  for (int c = 0; c < BRIM_SURVEY_CHANNELS; c++) {
    total[c].min = INFINITY;
    total[c].max = -INFINITY;
  }
  for (int t = 0; t < s->threads; t++) {
    if (s->workers[t].status) return no_memory();
    add_worker(out, total, &s->workers[t], out->class_counts);
  }
  out->read_s /= s->threads;
  finish_channels(out, total, s->source->info.type == BRIM_SAMPLE_U8);
  BRIM_TRY(merge_records(s, false, &out->broken, &out->broken_kept));
  BRIM_TRY(merge_records(s, true, &out->odd, &out->odd_kept));
  finish_sizes(s);
  return finish_twins(s);
}

//---------------------------------- the survey ----------------------------------

static brim_status prepare(pass *s) {
  const brim_source_info *info = &s->source->info;
  brim_survey *out = s->out;
  s->workers = brim_calloc((size_t)s->threads, sizeof *s->workers);
  if (!s->workers) return no_memory();
  for (int t = 0; t < s->threads; t++) {
    worker *w = &s->workers[t];
    for (int c = 0; c < BRIM_SURVEY_CHANNELS; c++) {
      w->channel[c].min = INFINITY;
      w->channel[c].max = -INFINITY;
    }
    w->input = brim_alloc(s->source->input_bytes);
    w->target = brim_calloc(1, s->source->target_bytes + sizeof(float));
    w->broken.items = brim_calloc(s->options->limit + 1, sizeof *w->broken.items);
    w->odd.items = brim_calloc(s->options->limit + 1, sizeof *w->odd.items);
    w->class_counts = brim_calloc((size_t)info->classes + 1, sizeof *w->class_counts);
    if (!w->input || !w->target || !w->broken.items || !w->odd.items || !w->class_counts)
      return no_memory();
  }
  if (info->classes > 0) {
    out->class_counts = brim_calloc((size_t)info->classes, sizeof *out->class_counts);
    if (!out->class_counts) return no_memory();
  }
  if (s->options->duplicates) s->marks = brim_calloc(out->samples, sizeof *s->marks);
  if (info->varies) s->sizes = brim_calloc(out->samples, sizeof *s->sizes);
  if ((s->options->duplicates && !s->marks) || (info->varies && !s->sizes)) return no_memory();
  return BRIM_OK;
}

static brim_status survey_blocks(pass *s) {
  const brim_survey_options *options = s->options;
  uint64_t total = s->out->samples, block = BLOCK_BYTES / s->source->input_bytes;
  if (block > MAX_BLOCK) block = MAX_BLOCK;
  if (block < MIN_BLOCK) block = MIN_BLOCK;
  for (s->first = 0; s->first < total;) {
    uint64_t n = total - s->first < block ? total - s->first : block;
    brim_pool_run(options->pool, (int64_t)n, survey_range, s);
    s->first += n;
    for (int t = 0; t < s->threads; t++) {
      if (s->workers[t].status) return no_memory();
    }
    if (options->tick && !options->tick(options->ctx, s->first, total)) {
      return brim_fail(BRIM_EINTERRUPTED, "interrupted after %llu of %llu samples",
                       (unsigned long long)s->first, (unsigned long long)total);
    }
  }
  return BRIM_OK;
}

static void deinit(pass *s) {
  for (int t = 0; s->workers && t < s->threads; t++) {
    worker *w = &s->workers[t];
    for (size_t i = 0; i < w->broken.count; i++) brim_free(w->broken.items[i].text);
    for (size_t i = 0; i < w->odd.count; i++) brim_free(w->odd.items[i].text);
    brim_free(w->broken.items);
    brim_free(w->odd.items);
    brim_free(w->class_counts);
    brim_free(w->target);
    brim_free(w->input);
  }
  brim_free(s->workers);
  brim_free(s->marks);
  brim_free(s->sizes);
}

brim_status brim_survey_run(brim_source *source, const brim_survey_options *options,
                            brim_survey *out) {
  const brim_source_info *info = &source->info;
  memset(out, 0, sizeof *out);
  out->samples =
      options->samples && options->samples < info->count ? options->samples : info->count;
  out->classes = info->classes;
  out->threads = brim_pool_threads(options->pool);
  out->channels = info->rank == 3 && info->dim[2] <= BRIM_SURVEY_CHANNELS ? (int)info->dim[2] : 1;
  pass s = {.source = source,
            .options = options,
            .out = out,
            .threads = out->threads,
            .channels = out->channels};
  brim_time start = brim_clock_now();
  brim_status status = prepare(&s);
  if (!status) status = survey_blocks(&s);
  if (!status) status = finish(&s);
  out->marks = s.marks;
  s.marks = NULL;
  out->elapsed_s = (double)brim_time_since_ns(start, brim_clock_now()) / 1e9;
  deinit(&s);
  if (status) brim_survey_deinit(out);
  return status;
}

void brim_survey_deinit(brim_survey *survey) {
  for (size_t i = 0; i < survey->broken_kept; i++) brim_free(survey->broken[i].text);
  brim_free(survey->broken);
  for (size_t i = 0; i < survey->odd_kept; i++) brim_free(survey->odd[i].text);
  brim_free(survey->odd);
  brim_free(survey->twins);
  brim_free(survey->marks);
  brim_free(survey->class_counts);
  memset(survey, 0, sizeof *survey);
}

//---------------------------------- two surveys ----------------------------------

// Walks both sorted lists. Counts the twins; if out->twins has room, stores them too.
static uint64_t find_shared(const brim_survey *a, const brim_survey *b, brim_survey_shared *out) {
  uint64_t n = 0;
  for (uint64_t i = 0, j = 0; i < a->good && j < b->good;) {
    const mark *x = &a->marks[i], *y = &b->marks[j];
    int order = memcmp(x->digest, y->digest, BRIM_SHA256_BYTES);
    i += order < 0;
    j += order >= 0;
    if (order) continue;
    bool differ = x->label != y->label;
    if (out->twins) {
      out->twins[n] = (brim_survey_twins){x->index, y->index, differ};
      out->conflicts += differ;
    }
    n++;
  }
  return n;
}

brim_status brim_survey_share(const brim_survey *a, const brim_survey *b, size_t limit,
                              brim_survey_shared *out) {
  *out = (brim_survey_shared){0};
  if (!a->marks || !b->marks) return BRIM_OK;
  out->count = find_shared(a, b, out);
  if (out->count == 0) return BRIM_OK;
  out->twins = brim_calloc(out->count, sizeof *out->twins);
  if (!out->twins) return no_memory();
  find_shared(a, b, out);
  qsort(out->twins, out->count, sizeof *out->twins, by_second);
  out->kept = out->count < limit ? (size_t)out->count : limit;
  return BRIM_OK;
}
