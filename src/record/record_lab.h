// The experiments of a store as the report page and `brim compare` read them: settings, results,
// curves, attempts and failures. They come as lines of JSON, one per experiment, from a store or from
// the file that `brim sweep export` wrote. Memory is bounded: the more experiments, the fewer points a
// curve keeps. Callers: src/lab reads stores, ui draws, cli compares.
//
// brim.experiment/1, one JSON object per line:
//   schema | id (32 hex digits) | grid | index | label ("lr=0.1 seed=2": the axes of its grid)
//   config (object, or YAML text with a key per line) | tags | state ("done") | priority | gpus
//   step, steps, epoch, epochs (null = unknown) | metric_key | metric (at the last step)
//   failure (class) | reason | last_lines | created_ms, started_ms, ended_ms (null = not yet)
//   ran_ms: time of the attempts that ended | since_ms: when the running one began (null = none)
//   attempts [{n, worker, host, devices, outcome, failure, exit_code, message, from_step,
//              claimed_ms, started_ms, ended_ms}]
//   metrics {KEY: [[step, value or null], ...]}   by step
// Reading: keys that are not known are skipped, keys that are missing stay unknown. A line without
// "schema" is read too: earlier exports had none.
#ifndef BRIM_RECORD_LAB_H_
#define BRIM_RECORD_LAB_H_

#include "base/base.h"
#include "record/record_curves.h"
#include "record/record_metric.h"
#include "record/record_sweep.h"

#define BRIM_LAB_SCHEMA "brim.experiment/1"

enum {
  BRIM_LAB_METRICS = 32,      // metrics with curves
  BRIM_LAB_KEYS = 48,         // settings that differ and are not derived from others
  BRIM_LAB_POINTS = 1000000,  // points of all curves together
  BRIM_LAB_LEAST_POINTS = 8,  // points a curve keeps, however many experiments
  BRIM_LAB_ATTEMPTS = 32,     // attempts kept of an experiment: the first and the latest
  BRIM_LAB_TEXT = 4000        // bytes kept of a message or of last lines, from the end
};

// --- the config of an experiment as stores keep it
//
// A text with a line "key: value" per key, as `brim train` reads it. Marks stand in front: "# group HEX" is the same for
// experiments that differ in the seed alone, "# cost HEX" for those that need the same memory and time.

enum { BRIM_LAB_CONFIG_NAME = 160, BRIM_LAB_MARK = 33 };  // a mark has 32 lower-case hex digits

typedef struct brim_lab_config_line {
  bool mark;
  char name[BRIM_LAB_CONFIG_NAME];
  const char *value;  // in the text, up to the end of the line
  size_t size;
} brim_lab_config_line;
// Reads the next key or mark, and moves *text behind its line; false: there is none. Skips other lines.
bool brim_lab_config_next(const char **text, brim_lab_config_line *out);
// The value of a key; "" if the config does not have it. A value that is too long is cut.
void brim_lab_config_value(const char *config, const char *key, char *out, size_t size);
// The mark of a config; "" if it has none.
void brim_lab_config_mark(const char *config, const char *name, char out[BRIM_LAB_MARK]);

// --- one experiment

typedef struct brim_lab_attempt {
  const char *worker, *host, *devices, *outcome, *failure, *message;
  int64_t n, from_step, exit_code;
  int64_t claimed, started, ended;  // ms since 1970; 0 = not yet
} brim_lab_attempt;

typedef struct brim_lab_curve {
  size_t metric;             // index into the metrics of the set
  brim_curve_point *points;  // by step, finite
  size_t count;
} brim_lab_curve;

// Texts are never NULL; unknown steps are -1, unknown numbers NaN, unknown times 0.
typedef struct brim_lab_exp {
  const char *id, *grid, *label, *tags, *state, *metric_key;
  const char *failure, *reason, *last_lines;
  const char **values;  // (key_count) of the set's keys as text; NULL = it has none
  size_t group;         // index into the groups of the set
  bool done;            // state is "done": its metric is a result
  int64_t idx, gpus, step, steps, epoch, epochs;
  int64_t created, started, ended;
  int64_t ran_ms;     // time of all attempts that ended
  int64_t since;      // when the running attempt began, ms since 1970; 0 = none runs
  double last, best;  // of metric_key; best is unknown where no direction is better
  int64_t best_step;
  brim_lab_attempt *attempts;
  size_t attempt_count, attempts_left_out;
  brim_lab_curve *curves;
  size_t curve_count;
} brim_lab_exp;

// --- all of them

// A setting in which experiments differ.
typedef struct brim_lab_key {
  const char *name;
  bool number;      // every value is a number
  bool over;        // repeats an experiment, as the seed does: groups are made over it
  size_t distinct;  // values
} brim_lab_key;

typedef struct brim_lab_metric {
  const char *key;
  brim_metric_better better;
  size_t count;               // experiments that have it
  bool declared;              // a workload declares it
  brim_sweep_metric display;  // where it is declared: label and format
} brim_lab_metric;

// Which value of a metric is an experiment's result.
typedef enum brim_lab_result {
  BRIM_LAB_LAST,
  BRIM_LAB_BEST,
  BRIM_LAB_RESULT_COUNT
} brim_lab_result;

// Statistics of results. Deviation and interval are unknown (NaN) for fewer than two.
typedef struct brim_lab_stats {
  size_t n;
  double mean, stddev;  // n - 1
  double low, high;     // 95 % interval of the mean, by Student's t
  double least, most;
} brim_lab_stats;

// Experiments that differ only in repetitions.
typedef struct brim_lab_group {
  const char *label;      // its settings without the repetitions: "lr=0.1 batch_size=64"
  const size_t *members;  // indices into the exps of the set, in its order
  size_t count, done;
  const char *metric_key;
  brim_lab_stats last, best;  // of experiments that are done
} brim_lab_group;

typedef struct brim_lab_pair {
  const char *name, *value;
} brim_lab_pair;

// A file of experiments that was submitted.
typedef struct brim_lab_grid_row {
  const char *id, *name, *version;  // version: of the brim that submitted it
  int64_t created, points;
} brim_lab_grid_row;

typedef struct brim_lab_set {
  const brim_lab_grid_row *grids;  // empty if the set was read from a file
  size_t grid_count;
  brim_lab_exp *exps;  // in the order of submission
  size_t count;
  const brim_lab_key *keys;  // axes of the grids first
  size_t key_count, keys_left_out;
  const brim_lab_pair *common;  // settings that all experiments share
  size_t common_count;
  brim_lab_metric *metrics;  // those that decide (metric_key of experiments) first
  size_t metric_count, metrics_left_out;
  const brim_lab_group *groups;  // in the order of their first experiments
  size_t group_count;
  size_t most_points;  // that a curve may have
} brim_lab_set;

// Statistics of a group for one kind of result.
const brim_lab_stats *brim_lab_group_stats(const brim_lab_group *group, brim_lab_result result);
// Where no direction is better, the last value is the best one too.
double brim_lab_exp_result(const brim_lab_exp *exp, brim_lab_result result);
// Direction of the metric of this key; NEITHER when the set does not have it.
brim_metric_better brim_lab_better(const brim_lab_set *set, const char *metric_key);
// How values of this key are shown; NULL when no workload declares it.
const brim_sweep_metric *brim_lab_display(const brim_lab_set *set, const char *metric_key);
// The value of a setting; NULL = it has none.
const char *brim_lab_value(const brim_lab_set *set, const brim_lab_exp *exp, const char *key);
// Statistics of the finite values.
void brim_lab_stats_of(const double *values, size_t count, brim_lab_stats *out);

// The ranking of every view: terminal, report, dashboard, JSON. The result of an experiment is the best
// value of its metric (the last where no direction is better, or where the user asks for it). A group
// ranks by the mean result of its experiments that are done. A group with an experiment without result
// ranks behind all groups that have every result.
typedef struct brim_lab_rank {
  double mean;            // NaN: no result; ranks last
  size_t results, count;  // experiments with a result, and all; 1 and 1 for a single experiment
} brim_lab_rank;
// Below 0: a ranks before b. 0: neither.
int brim_lab_rank_order(const brim_lab_rank *a, const brim_lab_rank *b, brim_metric_better better);
brim_lab_rank brim_lab_group_rank(const brim_lab_group *group, brim_lab_result result);

// --- reading

typedef struct brim_lab_options {
  // Settings that repeat an experiment, ended by NULL; NULL = "seed".
  const char *const *over;
  // Settings that are no part of an experiment (device, output_dir, "log."): a final point stands
  // for all keys that begin so. Ended by NULL; NULL = none.
  const char *const *ignored;
  // Looks up how a workload ("" = the default one) declares a metric. Returns false if it does not
  // declare metric_key. NULL = no metric is declared.
  bool (*metric)(void *ctx, const char *workload, const char *metric_key, brim_sweep_metric *out);
  // The default of a setting, which experiments without it have; NULL = unknown. Settings that a
  // preset may have given stay unknown.
  const char *(*default_of)(void *ctx, const char *key);
  void *ctx;
} brim_lab_options;

typedef struct brim_lab_reader brim_lab_reader;

brim_status brim_lab_reader_create(const brim_lab_options *options, brim_lab_reader **out);
// One experiment; `name` and `line` stand in messages. BRIM_EPARSE: it is none. An id that came
// already is skipped.
brim_status brim_lab_reader_add(brim_lab_reader *reader, const json_t *value, const char *name,
                                int line);
// A grid of the store; texts are copied.
brim_status brim_lab_reader_grid(brim_lab_reader *reader, const brim_lab_grid_row *row);
// Every line of a file; *torn (may be NULL): the last was cut off and is left out.
brim_status brim_lab_reader_file(brim_lab_reader *reader, const char *path, bool *torn);
// Finds keys and groups. The set belongs to the reader and lives as long.
brim_status brim_lab_reader_finish(brim_lab_reader *reader, const brim_lab_set **out);
void brim_lab_reader_destroy(brim_lab_reader *reader);  // NULL is fine

// --- comparing

typedef enum brim_lab_verdict {
  BRIM_LAB_UNKNOWN,  // no direction is better
  BRIM_LAB_ONCE,     // one side has a single result: no interval
  BRIM_LAB_BETTER,   // certain: the interval of the difference leaves out 0
  BRIM_LAB_WORSE,
  BRIM_LAB_OPEN,       // 0 lies in the interval
  BRIM_LAB_A_MISSING,  // no result
  BRIM_LAB_B_MISSING,
  BRIM_LAB_BOTH_MISSING,
  BRIM_LAB_VERDICT_COUNT
} brim_lab_verdict;
const char *brim_lab_verdict_name(brim_lab_verdict verdict);  // "better", for JSON

// B's mean less A's, with Welch's 95 % interval; unknown is NaN.
typedef struct brim_lab_difference {
  double mean, low, high;
} brim_lab_difference;
brim_lab_verdict brim_lab_differ(const brim_lab_stats *a, const brim_lab_stats *b,
                                 brim_metric_better better, brim_lab_difference *out);

// Two groups side by side.
typedef struct brim_lab_match {
  const brim_lab_group *a, *b;
  const char *label;  // of B
  const char *metric_key;
  brim_lab_stats a_stats, b_stats;
  brim_lab_difference difference;
  brim_lab_verdict verdict;
} brim_lab_match;

typedef struct brim_lab_comparison {
  brim_lab_match *matches;
  size_t count;
  size_t only_a, only_b;  // groups without a partner
  // Mean of the differences of all matches, with its interval by Student's t over the matches; unknown
  // for fewer than two. The interval is never narrower than the one from the spread of the repetitions.
  brim_lab_stats overall;
  brim_lab_verdict verdict;
  bool several_values;  // the key has several values beside the first: `overall` has no meaning
} brim_lab_comparison;

// Groups of two sets: partners have equal values of all settings that both sets know. BRIM_EINVAL:
// no group has a partner.
brim_status brim_lab_compare(const brim_lab_set *a, const brim_lab_set *b, brim_lab_result result,
                             brim_lab_comparison *out);
// Groups of one set that differ in `key` alone, against those with its first value.
brim_status brim_lab_compare_by(const brim_lab_set *set, const char *key, brim_lab_result result,
                                brim_lab_comparison *out);
void brim_lab_comparison_deinit(brim_lab_comparison *comparison);

#endif  // BRIM_RECORD_LAB_H_
