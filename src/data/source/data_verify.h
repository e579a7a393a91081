// A survey reads every sample of a source by several threads and reports unreadable ones, contents
// (classes, range, mean and deviation, sizes) and oddities (NaN, constant samples, duplicates).
// Callers: `brim data info` and `verify`, the watcher of training.
#ifndef BRIM_DATA_VERIFY_H_
#define BRIM_DATA_VERIFY_H_

#include "data/data.h"

enum { BRIM_SURVEY_CHANNELS = 4 };

typedef struct brim_survey_options {
  brim_pool *pool;
  uint64_t samples;  // number of samples to read, evenly spread; 0 = all
  bool duplicates;   // compare samples by SHA-256; takes 48 bytes of memory a sample
  size_t limit;      // most entries kept of each list: broken, odd, twins
  // Called between blocks; false stops with BRIM_EINTERRUPTED. NULL = none.
  bool (*tick)(void *ctx, uint64_t done, uint64_t total);
  void *ctx;
} brim_survey_options;

typedef struct brim_survey_broken {
  uint64_t index;
  char *text;  // names the file and record
} brim_survey_broken;

// Two equal samples. In one set first < second.
typedef struct brim_survey_twins {
  uint64_t first, second;
  bool labels_differ;
} brim_survey_twins;

// Statistics of a channel, of values as stored (0 to 255 for bytes), without NaN and infinities.
typedef struct brim_survey_channel {
  double mean, std, min, max;
} brim_survey_channel;

typedef struct brim_survey {
  uint64_t samples;  // samples surveyed
  uint64_t good;     // samples that could be read
  uint64_t broken_count;
  brim_survey_broken *broken;  // the first `limit`, sorted by index
  size_t broken_kept;
  uint64_t *class_counts;  // [classes]; NULL = no classes
  int64_t classes;
  uint64_t labels_out_of_range;
  int channels;  // the last dimension of images if at most 4, else 1
  brim_survey_channel channel[BRIM_SURVEY_CHANNELS];
  uint64_t nan_values, inf_values;  // in inputs
  uint64_t bad_samples;             // samples whose input holds a NaN or an infinity
  uint64_t bad_targets;             // samples whose regression target holds one
  uint64_t odd_count;               // samples with bad input or bad target
  brim_survey_broken *odd;          // the first `limit` of them; the text says input or target
  size_t odd_kept;
  uint64_t constant;        // samples whose values are all equal
  uint64_t first_constant;  // index of the first; valid if constant > 0
  uint64_t first_bad;       // index of the first; valid if bad_samples > 0
  // Images of different sizes: those of least, most and median area.
  int64_t smallest[2], largest[2], median[2];  // height, width
  uint64_t twin_count;                         // samples that equal an earlier one
  uint64_t conflicts;                          // twins whose labels differ
  brim_survey_twins *twins;                    // the first `limit`
  size_t twins_kept;
  struct brim_survey_mark *marks;  // with `duplicates`: digests of the good samples, sorted
  uint64_t bytes;                  // of samples as read
  double read_s;     // reading and decoding, mean over the threads: samples / read_s is the rate
  double elapsed_s;  // of the whole survey
  int threads;
} brim_survey;

// Surveys a source. Broken samples are counted and do not fail it; BRIM_ENOMEM and BRIM_EINTERRUPTED do.
brim_status brim_survey_run(brim_source *source, const brim_survey_options *options,
                            brim_survey *out);
void brim_survey_deinit(brim_survey *survey);
// Finds samples of b that equal a sample of a; both were surveyed with `duplicates`. brim_free
// out->twins.
typedef struct brim_survey_shared {
  uint64_t count;            // samples of b that equal one of a
  uint64_t conflicts;        // of these, samples whose label differs
  brim_survey_twins *twins;  // the first `limit` in the order of b; `first` in a, `second` in b
  size_t kept;
} brim_survey_shared;
brim_status brim_survey_share(const brim_survey *a, const brim_survey *b, size_t limit,
                              brim_survey_shared *out);

#endif  // BRIM_DATA_VERIFY_H_
