// A survey reads every sample of a source by several threads and reports unreadable ones, contents
// (classes, range, mean and deviation, sizes) and oddities (NaN, constant samples, duplicates).
// Callers: `brim data info` and `verify`, the watcher of training.
#ifndef BRIM_DATA_VERIFY_H_
#define BRIM_DATA_VERIFY_H_

#include "data/data.h"

enum { BRIM_SURVEY_CHANNELS = 4 };

typedef struct brim_survey_options {
  brim_pool *pool;
  uint64_t samples;  // look at so many, evenly spread; 0 = all
  bool duplicates;   // compare samples by SHA-256: 48 bytes of memory each
  size_t limit;      // keep the text of so many failures, and so many duplicates
  // Called between blocks; false stops with BRIM_EINTERRUPTED. NULL = none.
  bool (*tick)(void *ctx, uint64_t done, uint64_t total);
  void *ctx;
} brim_survey_options;

typedef struct brim_survey_broken {
  uint64_t index;
  char *text;  // names the file and record
} brim_survey_broken;

typedef struct brim_survey_twins {
  uint64_t first, second;  // samples; of one set, first < second
  bool labels_differ;
} brim_survey_twins;

// One channel. Values as stored (0 to 255 for bytes), without NaN and infinities.
typedef struct brim_survey_channel {
  double mean, std, min, max;
} brim_survey_channel;

typedef struct brim_survey {
  uint64_t samples;  // looked at
  uint64_t good;     // samples that could be read
  uint64_t broken_count;
  brim_survey_broken *broken;  // by index, at most `limit`
  size_t broken_kept;
  uint64_t *class_counts;  // classes of them; NULL = no classes
  int64_t classes;
  uint64_t labels_out_of_range;
  int channels;  // the last dimension of images of up to 4, else 1
  brim_survey_channel channel[BRIM_SURVEY_CHANNELS];
  uint64_t nan_values, inf_values, bad_samples;  // floats only; samples with such values
  uint64_t bad_targets;                          // samples whose numbers to predict hold one
  uint64_t odd_count;                            // samples of either kind
  brim_survey_broken *odd;                       // which, and whether input or target; like broken
  size_t odd_kept;
  uint64_t constant;                   // samples of one value throughout
  uint64_t first_constant, first_bad;  // index of the first; meaningful where counted
  // Images that vary: the least and the most area, and the middle one.
  int64_t smallest[2], largest[2], median[2];  // height, width
  uint64_t twin_count;                         // samples that an earlier one equals
  uint64_t conflicts;                          // twins whose labels differ
  brim_survey_twins *twins;                    // at most `limit`
  size_t twins_kept;
  struct brim_survey_mark *marks;  // with duplicates: the digests of the good samples, in order
  uint64_t bytes;                  // of samples as read
  double read_s;     // reading and decoding alone, over the threads: samples / read_s is the rate
  double elapsed_s;  // all of it
  int threads;
} brim_survey;

// Broken samples are counted, not a failure of this. BRIM_ENOMEM, BRIM_EINTERRUPTED.
brim_status brim_survey_run(brim_source *source, const brim_survey_options *options,
                            brim_survey *out);
void brim_survey_deinit(brim_survey *survey);
// Samples of two sets, both surveyed with duplicates, that are the same. In *out those of b, each with
// the first of a that equals it; twins is brim_free's.
typedef struct brim_survey_shared {
  uint64_t count, conflicts;  // samples of b; of these, those with another label
  brim_survey_twins *twins;   // in the order of b, at most `limit`; first in a, second in b
  size_t kept;
} brim_survey_shared;
brim_status brim_survey_share(const brim_survey *a, const brim_survey *b, size_t limit,
                              brim_survey_shared *out);

#endif  // BRIM_DATA_VERIFY_H_
