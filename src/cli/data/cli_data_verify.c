// `brim data verify`: every record is read; what is broken is named, what is odd is counted.
#include "base/base_text.h"
#include "cli/data/cli_data.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct totals {
  uint64_t samples, broken;
  bool duplicates;
  size_t limit;
  brim_survey survey[BRIM_CLI_DATA_SPLITS];  // of the splits that were read
  size_t surveyed;
} totals;

//---------------------------------- JSON ----------------------------------

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

// Records that are not sound: not to be read, of a class that is not there, or not of numbers.
static uint64_t unsound(const brim_survey *s) {
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

static brim_status put_classes(json_t *root, const brim_survey *s) {
  if (!s->class_counts) return BRIM_OK;
  BRIM_TRY(brim_json_put(root, "class_counts", json_array()));
  json_t *list = json_object_get(root, "class_counts");
  for (int64_t i = 0; i < s->classes; i++) {
    BRIM_TRY(brim_json_push(list, number(s->class_counts[i])));
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

static brim_status put_twins(json_t *root, const brim_survey *s) {
  return put_pairs(root, s->twin_count, s->conflicts, s->twins, s->twins_kept);
}

static brim_status fill_json(const brim_cli_split *split, const brim_survey *s, bool duplicates,
                             json_t *f) {
  BRIM_TRY(brim_json_put(f, "split", json_string(split->name)));
  BRIM_TRY(brim_json_put(f, "ok", json_boolean(unsound(s) == 0)));
  BRIM_TRY(brim_json_put(f, "samples", number(s->samples)));
  BRIM_TRY(brim_json_put(f, "broken", number(s->broken_count)));
  BRIM_TRY(put_records(f, "broken_records", s->broken, s->broken_kept));
  BRIM_TRY(put_classes(f, s));
  BRIM_TRY(brim_json_put(f, "labels_out_of_range", number(s->labels_out_of_range)));
  BRIM_TRY(brim_json_put(f, "nan", number(s->nan_values)));
  BRIM_TRY(brim_json_put(f, "inf", number(s->inf_values)));
  BRIM_TRY(brim_json_put(f, "samples_with_nan_or_inf", number(s->bad_samples)));
  BRIM_TRY(brim_json_put(f, "targets_with_nan_or_inf", number(s->bad_targets)));
  BRIM_TRY(put_records(f, "not_finite_records", s->odd, s->odd_kept));
  BRIM_TRY(brim_json_put(f, "constant", number(s->constant)));
  if (duplicates) BRIM_TRY(put_twins(f, s));
  return brim_json_put(f, "seconds", brim_json_number(s->elapsed_s));
}

static brim_status tell_json(brim_cli_data *d, const brim_cli_split *split, const brim_survey *s,
                             bool duplicates) {
  json_t *f = json_object();
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
  brim_status status = fill_json(split, s, duplicates, f);
  if (status) {
    json_decref(f);
    return status;
  }
  return brim_cli_event(d->cli, "verify", f);
}

//---------------------------------- text ----------------------------------

// A name of a file may hold what looks like one of brim's own colours.
static void count_line(brim_str *out, const brim_term *term, brim_ui_style style,
                       const char *text) {
  char plain[2048];
  brim_text_plain(text, plain, sizeof plain);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, style, plain);
  brim_str_append_char(out, '\n');
}

#define LINE(style, ...)                        \
  do {                                          \
    char line_[600];                            \
    snprintf(line_, sizeof line_, __VA_ARGS__); \
    count_line(out, term, style, line_);        \
  } while (0)

static void balance(const brim_survey *s, const brim_term *term, brim_str *out) {
  if (!s->class_counts) return;
  uint64_t least = UINT64_MAX, most = 0, empty = 0;
  for (int64_t i = 0; i < s->classes; i++) {
    uint64_t n = s->class_counts[i];
    least = n < least ? n : least;
    most = n > most ? n : most;
    empty += n == 0;
  }
  if (least == most) {
    LINE(BRIM_UI_PLAIN,
         most == 1 ? brim_tr("classes: %lld, of %llu sample each")
                   : brim_tr("classes: %lld, of %llu samples each"),
         (long long)s->classes, (unsigned long long)most);
  } else {
    LINE(BRIM_UI_PLAIN, brim_tr("%lld classes of %llu to %llu samples"), (long long)s->classes,
         (unsigned long long)least, (unsigned long long)most);
  }
  if (empty == 1) LINE(BRIM_UI_WARN, "%s", brim_tr("one class is empty"));
  if (empty > 1) LINE(BRIM_UI_WARN, brim_tr("%llu classes are empty"), (unsigned long long)empty);
}

static void more_line(uint64_t count, size_t kept, const brim_term *term, brim_str *out) {
  if (kept >= count) return;
  LINE(BRIM_UI_DIM, brim_tr("... and %llu more; --limit N lists more"),
       (unsigned long long)(count - kept));
}

static void odd(const brim_cli_split *split, const brim_survey *s, const brim_term *term,
                brim_str *out) {
  char name[300];
  if (s->labels_out_of_range) {
    LINE(BRIM_UI_BAD,
         s->labels_out_of_range == 1 ? brim_tr("%llu label is not in [0, %lld)")
                                     : brim_tr("%llu labels are not in [0, %lld)"),
         (unsigned long long)s->labels_out_of_range, (long long)s->classes);
  }
  if (s->bad_samples) {
    LINE(BRIM_UI_BAD,
         s->bad_samples == 1
             ? brim_tr("%llu input holds NaN or infinities: %llu NaN, %llu infinite")
             : brim_tr("%llu inputs hold NaN or infinities: %llu NaN, %llu infinite"),
         (unsigned long long)s->bad_samples, (unsigned long long)s->nan_values,
         (unsigned long long)s->inf_values);
  }
  if (s->bad_targets) {
    LINE(BRIM_UI_BAD,
         s->bad_targets == 1 ? brim_tr("%llu target holds a NaN or an infinity")
                             : brim_tr("%llu targets hold a NaN or an infinity"),
         (unsigned long long)s->bad_targets);
  }
  for (size_t i = 0; i < s->odd_kept; i++) LINE(BRIM_UI_PLAIN, "  %s", s->odd[i].text);
  more_line(s->odd_count, s->odd_kept, term, out);
  if (s->constant) {
    brim_source_describe(split->source, s->first_constant, name, sizeof name);
    LINE(BRIM_UI_WARN,
         s->constant == 1 ? brim_tr("%llu sample holds a single value: %s")
                          : brim_tr("%llu samples hold a single value; the first is %s"),
         (unsigned long long)s->constant, name);
  }
}

static void twins(const brim_cli_split *split, const brim_survey *s, const brim_term *term,
                  brim_str *out) {
  if (s->twin_count == 0) {
    LINE(BRIM_UI_PLAIN, "%s", brim_tr("no duplicate samples"));
    return;
  }
  LINE(BRIM_UI_WARN,
       s->twin_count == 1
           ? brim_tr("%llu sample is a copy of an earlier one, %llu with another label")
           : brim_tr("%llu samples are copies of an earlier one, %llu with another label"),
       (unsigned long long)s->twin_count, (unsigned long long)s->conflicts);
  for (size_t i = 0; i < s->twins_kept; i++) {
    char a[250], b[250];
    brim_source_describe(split->source, s->twins[i].first, a, sizeof a);
    brim_source_describe(split->source, s->twins[i].second, b, sizeof b);
    LINE(BRIM_UI_PLAIN, "  %s = %s%s", b, a,
         s->twins[i].labels_differ ? brim_tr(" (another label)") : "");
  }
}

static brim_status tell_text(brim_cli_data *d, const brim_cli_split *split, const brim_survey *s,
                             bool duplicates) {
  const brim_term *term = &d->cli->out;
  brim_str text, *out = &text;
  char samples[32], rate[32];
  brim_str_init(&text);
  brim_format_count((double)s->samples, samples);
  brim_format_figure(s->elapsed_s > 0 ? (double)s->samples / s->elapsed_s : 0, rate);
  brim_ui_styled(out, term, BRIM_UI_BOLD, split->name);
  brim_str_printf(out,
                  s->samples == 1 ? brim_tr(": %s sample read, %s samples/s: ")
                                  : brim_tr(": %s samples read, %s samples/s: "),
                  samples, rate);
  char bad[96];
  if (unsound(s) == 0) {
    brim_ui_styled(out, term, BRIM_UI_GOOD, brim_tr("all are valid"));
  } else {
    bool broken = s->broken_count == unsound(s);
    const char *one =
        broken ? brim_tr("%llu record is broken") : brim_tr("%llu record is not valid");
    const char *more =
        broken ? brim_tr("%llu records are broken") : brim_tr("%llu records are not valid");
    snprintf(bad, sizeof bad, unsound(s) == 1 ? one : more, (unsigned long long)unsound(s));
    brim_ui_styled(out, term, BRIM_UI_BAD, bad);
  }
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < s->broken_kept; i++) LINE(BRIM_UI_PLAIN, "%s", s->broken[i].text);
  more_line(s->broken_count, s->broken_kept, term, out);
  balance(s, term, out);
  odd(split, s, term, out);
  if (duplicates) twins(split, s, term, out);
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(d->cli, &text);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- one split ----------------------------------

static brim_status verify_split(brim_cli_data *d, const brim_cli_split *split, totals *total) {
  int64_t samples = 0;
  BRIM_TRY(brim_cli_data_int(d->cli, "samples", 1, INT64_MAX, &samples));
  brim_survey_options options = {.pool = d->pool,
                                 .samples = (uint64_t)samples,
                                 .duplicates = total->duplicates,
                                 .limit = total->limit,
                                 .tick = brim_cli_data_tick,
                                 .ctx = d};
  brim_survey *survey = &total->survey[total->surveyed];
  brim_cli_data_begin(d, brim_tr("verify"), split->name);
  BRIM_TRY(brim_survey_run(split->source, &options, survey));
  total->surveyed++;
  total->samples += survey->samples;
  total->broken += unsound(survey);
  return d->cli->json ? tell_json(d, split, survey, total->duplicates)
                      : tell_text(d, split, survey, total->duplicates);
}

//---------------------------------- between splits ----------------------------------

static brim_status shared_json(brim_cli_data *d, const brim_cli_split *a, const brim_cli_split *b,
                               const brim_survey_shared *s) {
  json_t *f = json_object();
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
  brim_status status = brim_json_put(f, "first", json_string(a->name));
  if (!status) status = brim_json_put(f, "second", json_string(b->name));
  if (!status) status = put_pairs(f, s->count, s->conflicts, s->twins, s->kept);
  if (!status) return brim_cli_event(d->cli, "duplicates", f);
  json_decref(f);
  return status;
}

static brim_status shared_text(brim_cli_data *d, const brim_cli_split *a, const brim_cli_split *b,
                               const brim_survey_shared *s) {
  const brim_term *term = &d->cli->out;
  brim_str text, *out = &text;
  if (s->count == 0) return BRIM_OK;
  brim_str_init(&text);
  LINE(BRIM_UI_WARN,
       s->count == 1 ? brim_tr("%llu sample of %s also appears in %s, %llu with another label")
                     : brim_tr("%llu samples of %s also appear in %s, %llu with another label"),
       (unsigned long long)s->count, b->name, a->name, (unsigned long long)s->conflicts);
  for (size_t i = 0; i < s->kept; i++) {
    char x[250], y[250];
    brim_source_describe(a->source, s->twins[i].first, x, sizeof x);
    brim_source_describe(b->source, s->twins[i].second, y, sizeof y);
    LINE(BRIM_UI_PLAIN, "  %s = %s%s", y, x,
         s->twins[i].labels_differ ? brim_tr(" (another label)") : "");
  }
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(d->cli, &text);
  brim_str_deinit(&text);
  return status;
}

// What is evaluated on and was trained on too.
static brim_status look_across(brim_cli_data *d, const totals *total) {
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < total->surveyed && total->duplicates && !status; i++) {
    for (size_t j = i + 1; j < total->surveyed && !status; j++) {
      const brim_cli_split *a = &d->split[i], *b = &d->split[j];
      brim_survey_shared shared;
      status = brim_survey_share(&total->survey[i], &total->survey[j], total->limit, &shared);
      if (!status) status = (d->cli->json ? shared_json : shared_text)(d, a, b, &shared);
      brim_free(shared.twins);
    }
  }
  return status;
}

// Samples without labels are trained on on their own; the others have to fit the training set.
// Sizes of images in a folder are the transforms' business.
static brim_status check_together(const brim_cli_data *d) {
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

// After all was read: nothing is left out of the report.
static brim_status verdict(const brim_cli_data *d, const totals *total) {
  char text[700] = "";
  const char *path = d->path ? d->path : "data";
  brim_status apart = check_together(d);
  if (apart) snprintf(text, sizeof text, "%s", brim_status_detail());
  if (total->broken == 1) {
    return brim_fail(BRIM_EIO, "%s: one of %llu records is not valid%s%s", path,
                     (unsigned long long)total->samples, apart ? "; " : "", text);
  }
  if (total->broken) {
    return brim_fail(BRIM_EIO, "%s: %llu of %llu records are not valid%s%s", path,
                     (unsigned long long)total->broken, (unsigned long long)total->samples,
                     apart ? "; " : "", text);
  }
  return apart ? brim_fail(BRIM_EIO, "%s: %s", path, text) : BRIM_OK;
}

//---------------------------------- the word ----------------------------------

// Data that are there and cannot even be opened are broken: 1, not the 2 of a wrong command line.
// Where the user said what they are, it may be that which is wrong.
static brim_status as_broken(const brim_cli *cli, const char *path, brim_status status) {
  static const char *const words[] = {"dataset", "split", "plugin"};
  bool said = false;
  if (!status || cli->usage_error || !path || !brim_fs_exists(path)) return status;
  // the content of a file is unknown that may not be read
  if (access(path, R_OK) != 0) return brim_source_open_failed(status);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    said = said || brim_option_find(&cli->parse, words[i]);
  }
  switch (status) {
    case BRIM_EPARSE:
    case BRIM_ELIMIT:
    case BRIM_EEND:
      return BRIM_EIO;
    case BRIM_EINVAL:
    case BRIM_ENOENT:
    case BRIM_EUNSUPPORTED:
      return said ? status : BRIM_EIO;
    default:
      return status;
  }
}

brim_status brim_cli_data_verify(brim_cli *cli) {
  const char *path = cli->parse.positional_count > 1 ? cli->parse.positional[1] : NULL;
  if (cli->parse.positional_count > 2 || (!path && !brim_option_find(&cli->parse, "dataset"))) {
    return brim_cli_usage(cli, BRIM_N_("brim data verify takes one path"));
  }
  int64_t limit = 20;
  BRIM_TRY(brim_cli_data_int(cli, "limit", 0, 1000000, &limit));
  brim_cli_data d;
  totals total = {.duplicates = brim_option_flag(&cli->parse, "duplicates", false),
                  .limit = (size_t)limit};
  brim_status status = brim_cli_data_init(cli, path, &d);
  if (status) return as_broken(cli, path, status);
  status = as_broken(cli, path, brim_cli_data_open(&d));
  for (size_t i = 0; i < d.split_count && !status; i++) {
    status = verify_split(&d, &d.split[i], &total);
  }
  if (!status) status = look_across(&d, &total);
  if (!status) status = verdict(&d, &total);
  for (size_t i = 0; i < total.surveyed; i++) brim_survey_deinit(&total.survey[i]);
  brim_cli_data_deinit(&d);
  return status;
}
