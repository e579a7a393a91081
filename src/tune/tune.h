// Tuning. A session tries the settings of a subject and draws the conclusions: race, prices of findings,
// recommendation, records, report, --apply. Callers: the bench and profile commands; doctor concludes from records.
#ifndef BRIM_TUNE_H_
#define BRIM_TUNE_H_

#include "config/config.h"
#include "measure/measure.h"
#include "record/record_job.h"

struct brim_tuning;
struct brim_tuning_edit;
struct brim_work_resume;
struct brim_work_fleet;

//---------------------------------- subjects ----------------------------------

// Something with knobs that can run at a setting: a workload of brim (brim_work_subject_open), later any program, which
// is started once per trial. A session knows nothing else of what it tunes.
typedef struct brim_subject {
  const struct brim_subject_table *table;
  void *state;
  const char *name;        // of the workload or program, for `brim top`
  const brim_knob *knobs;  // their `value` is the present setting
  size_t knob_count;
  const brim_knob_set *knob_set;  // roles and labels; may be NULL
  void *knob_owner;               // first argument of the knobs' own functions
  bool host;                      // computes on the host: its first step is as fast as later steps
} brim_subject;

typedef struct brim_subject_facts {
  int64_t set_samples;   // size of the training set; 0 = unknown, or there is none
  double learning_rate;  // NaN = unknown
  bool adaptive;         // an optimiser of Adam's kind
} brim_subject_facts;

// How to measure costs beside the steps: checkpoints and other processes.
typedef struct brim_subject_beside {
  const char *folder;              // where to write checkpoints; NULL = do not measure them
  const brim_memory_watch *watch;  // watches other processes; NULL = do not measure them
  double step_s;                   // seconds of a step
  double left_s;                   // seconds that measuring may take
  bool *no_time;                   // set if measuring checkpoints would take longer than left_s
} brim_subject_beside;

// A session's request for values to try.
typedef struct brim_subject_wish {
  bool all;           // every knob, a few values each
  const char *card;   // plan for a card that this machine lacks; NULL = none
  double card_bytes;  // its memory
  brim_setting most;  // the largest values chosen so far
} brim_subject_wish;

// The values to try for one knob.
typedef struct brim_subject_axis {
  const int64_t *values;
  size_t count;      // 0 = only the present value
  const char *list;  // config key of values that the user listed; NULL = the subject chose them
  int64_t chosen[BRIM_KNOB_AXIS];  // room for `values`
  char note[512];  // why values are left out, translated, with a newline; "" = none are
} brim_subject_axis;

// A run of the recommended setting as a user would run it, for --verify.
typedef struct brim_subject_proof {
  double cap_s;  // time limit
  const volatile sig_atomic_t *stop;
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void *ctx;
  // Filled by the subject. achieved = samples / seconds, without starting up unless the run was too short for that.
  double achieved, samples, seconds;
  int64_t epochs, steps;
  int64_t per_epoch;      // samples; 0 = unknown
  brim_host_sample host;  // the host's counters at the beginning
} brim_subject_proof;

// `run` is required. A NULL member means that the subject cannot do this, or need not.
typedef struct brim_subject_table {
  // Measures a setting into `out`: samples_per_s, total_ms, and *how->visit if it is not NULL. A setting that fails
  // (out of memory, crash, hang, bad output) is classed in out->failure and gives BRIM_OK: the session continues. Any
  // other status ends the session: BRIM_EINTERRUPTED, BRIM_ENOMEM.
  brim_status (*run)(void *state, const brim_setting *setting, const brim_trial_options *how,
                     brim_result *out);
  // Predicts memory into `out` without running the setting. Fails as `run` does.
  brim_status (*plan)(void *state, const brim_setting *setting, const brim_trial_options *how,
                      brim_result *out);
  // True if the values of a setting go together. NULL = they always do.
  bool (*sensible)(void *state, const brim_setting *setting);
  // Fails with the reason why a setting is not sensible.
  brim_status (*refuse)(void *state, const brim_setting *setting);
  void (*facts)(void *state, brim_subject_facts *out);
  // Makes the subject able to run again after BRIM_FAILURE_CRASH.
  brim_status (*recover)(brim_subject *subject);
  // Runs a setting for `seconds` to fill the cache that it uses.
  brim_status (*warm)(void *state, const brim_setting *setting, double seconds,
                      const volatile sig_atomic_t *stop);
  brim_status (*beside)(void *state, const brim_setting *setting, const brim_subject_beside *how,
                        brim_result *out);
  // Chooses the values to try for a knob that has none on the command line. NULL = such knobs keep their values.
  brim_status (*axis)(void *state, int knob, const brim_subject_wish *wish, brim_subject_axis *out);
  // --resume: names a difference between a record's subject and this one ("another device"); "" = none.
  brim_status (*differs)(void *state, const brim_result *record, const char **out);
  // Adds the GPU's own records of a setting to its result.
  brim_status (*trace)(void *state, const brim_setting *setting, brim_gpu_trace *trace,
                       brim_result *out);
  // Finds where the time and memory of a step go, and traces some steps.
  brim_status (*profile)(void *state, const brim_setting *setting, const brim_profile_options *how,
                         brim_profile *out, brim_trace *trace);
  // --verify: runs the recommended setting. Files go to `folder`. The subject may have other knobs afterwards.
  brim_status (*prove)(brim_subject *subject, const brim_result *best, const char *folder,
                       brim_subject_proof *out);
  // Opens several devices to run settings on all of them at once. Call `release` afterwards, also after a failure.
  brim_status (*replicas)(void *state, const volatile sig_atomic_t *stop, brim_replica *out,
                          size_t *count);
  void (*release)(void *state, brim_replica *replicas, size_t count);
  // Writes a file that runs the recommended setting (best.yaml).
  brim_status (*write_best)(struct brim_tuning *session, const char *path);
  // --apply: check_edit says before the sweep whether the file can be edited; edit edits it.
  brim_status (*check_edit)(struct brim_tuning *session);
  brim_status (*edit)(struct brim_tuning *session, struct brim_tuning_edit *out);
} brim_subject_table;

brim_setting brim_subject_setting(const brim_subject *subject);              // the present values
int brim_subject_knob(const brim_subject *subject, const char *name);        // -1 = none
int brim_subject_knob_as(const brim_subject *subject, brim_knob_role role);  // -1 = none
// True if a knob makes a difference at this setting.
bool brim_subject_knob_matters(const brim_subject *subject, size_t knob,
                               const brim_setting *setting);
// Parses a value of a knob; false if it has no such value. "auto" is the present value.
bool brim_knob_read(const brim_knob *knob, const char *text, int64_t *out);

// A workload as a subject. The caller owns the open workload and device, and replaces both in `reopen`. Without a
// device the subject only tells its knobs and facts.
typedef struct brim_work_subject {
  const brim_config *config;  // may be NULL
  brim_work **work;
  brim_device **device;
  brim_status (*reopen)(void *ctx);  // after a crash of the device; NULL = keep it open
  // Opens one more device of a list, with a watch of its own.
  brim_status (*open_device)(void *ctx, const char *spec, const brim_device_options *options,
                             brim_memory_watch *watch, brim_device **out);
  void *ctx;
  // The other members are for sessions that write files.
  brim_memory_watch *memory;  // of the device
  const brim_registry *registry;
  const brim_device_options *options;  // the device was opened with these
  const brim_config_facts *facts;
  const char *path;  // config file; NULL = only defaults
  char **overrides;  // "key=value"; owned
  size_t override_count;
  brim_config *proven;              // config of the workload that --verify opened; owned
  struct brim_work_resume *resume;  // the present config, to compare records with; owned
  struct brim_work_fleet *fleet;    // several devices, while they are open
} brim_work_subject;
void brim_work_subject_open(brim_work_subject *of, brim_subject *out);
// Copies the overrides of the command line, for sessions with files. `end` frees what the subject owns, after its
// workload was closed.
brim_status brim_work_subject_begin(brim_work_subject *of, const char *const *overrides,
                                    size_t count);
void brim_work_subject_end(brim_work_subject *of);

//---------------------------------- settings ----------------------------------

// The values of one knob to try.
typedef struct brim_sweep_axis {
  int knob;  // index into the subject's knobs
  const int64_t *values;
  size_t count;
} brim_sweep_axis;

// Settings, in the order of their first measurements.
typedef struct brim_sweep_settings {
  brim_setting *setting;
  size_t count;
  int own;         // index of the subject's present setting; -1 = none of them
  bool own_added;  // `own` was added: it is no combination of the axes
} brim_sweep_settings;

// True if a setting learns differently from the subject's present one, by knobs that are not in `named` (by index;
// NULL = no knob is named). Only the effective batch counts, not how accumulation divides it.
bool brim_sweep_changes_learning(const brim_subject *subject, const bool *named,
                                 const brim_setting *setting);

//---------------------------------- conclusions ----------------------------------

// Compares settings. It uses only the visits in their results: equal records give equal intervals.
typedef struct brim_race brim_race;
// `passes`: the budget the settings were measured with. BRIM_ENOMEM.
brim_status brim_race_of_results(const brim_result *results, size_t count, double passes,
                                 brim_race **out);
void brim_race_destroy(brim_race *race);

typedef struct brim_recommend_options {
  brim_race *race;        // the race of these results; NULL = compare their intervals
  int now;                // the present setting; -1 = unknown
  bool now_is_reference;  // the user did not ask to try it: recommend it only if it is fastest
  bool interrupted;       // settings are missing: the recommendation is provisional
  const bool *withheld;   // (count) settings that may not be applied; NULL = none
} brim_recommend_options;

// Fills all of *out but its texts.
void brim_recommend(const brim_result *results, size_t count, const brim_recommend_options *options,
                    brim_recommendation *out);
// Says in a sentence or two which comparisons are certain and which are open, in the user's language.
void brim_recommend_reason(const brim_result *results, size_t count, const brim_recommendation *r,
                           brim_race *race, char out[512]);
// Rate of results[a] over rate of results[b], on a quiet machine. Nothing is certain if low and high are NaN.
brim_interval brim_compare_results(const brim_result *results, size_t a, size_t b, brim_race *race);

// Writes the findings of results[index] (waited I/O, small batch, ...) into it. The other results are evidence: they
// give the prices of remedies that were measured.
void brim_diagnose(brim_result *results, size_t count, size_t index);

// The setting before the sweep, for advice.
typedef struct brim_advice_facts {
  double batch, accumulation;
  double learning_rate;  // NaN = unknown
  bool adaptive;         // an optimiser of Adam's kind
  // Rate of larger batches over the recommended setting's rate, measured as a remedy; 0 = none.
  double larger;
  // Knobs with several values in the sweep, measured or not. Advice does not tell the user to vary them.
  const char *several[BRIM_KNOB_MAX];
  size_t several_count;
  // Knobs without effect on the recommended setting, such as workers when the data are in GPU memory.
  const char *idle[BRIM_KNOB_MAX];
  size_t idle_count;
} brim_advice_facts;
// Sets all members but `larger`, `several` and `idle`.
void brim_advice_facts_of(const brim_subject *subject, brim_advice_facts *out);
// Texts are in the user's language.
void brim_advise(const brim_result *results, size_t count, int recommended,
                 const brim_advice_facts *facts, brim_advice *out);
// The learning rate when the effective batch goes from `was` to `now` samples: by the square-root rule for optimisers
// of Adam's kind, by the linear rule for other optimisers.
double brim_advise_rate(double learning_rate, double was, double now, bool adaptive);
// Says what an effective batch of `now` samples means for the learning rate; "" if the batch does not change.
void brim_advise_batch(const brim_advice_facts *facts, double now, char out[256]);

//---------------------------------- sessions ----------------------------------

// The learning rate for a changed batch. after is 0 if the rate is unknown or does not change.
typedef struct brim_rate_change {
  double batch_before, batch_after, before, after;
  bool adaptive;
  bool kept;  // the user keeps the rate
} brim_rate_change;
// "learning rate 0.1 -> 0.2, ..." and a newline; nothing if nothing changes.
void brim_rate_change_text(const brim_rate_change *change, brim_str *out);

// The edits that --apply made in a file.
typedef struct brim_tuning_edit {
  brim_config_edit edits[BRIM_KNOB_MAX + 1];
  char values[BRIM_KNOB_MAX + 1][32];
  size_t count;
  brim_rate_change rate;
  brim_config_edit_result file;
} brim_tuning_edit;

// Callbacks of a session. All but `report` may be NULL.
typedef struct brim_tuning_events {
  void (*note)(void *ctx, const char *text);  // text for people, translated
  void (*progress)(void *ctx, const brim_progress *progress);
  void (*result)(void *ctx, const brim_result *result);  // the first measurement of a setting
  void (*final)(void *ctx,
                const brim_result *result);  // the result of all measurements of a setting
  void (*so_far)(void *ctx, const brim_result *results, size_t count);  // once, in a long sweep
  void (*scaling)(void *ctx, const brim_scaling *scaling);
  brim_status (*keep_earlier)(void *ctx);  // before files of an earlier session are replaced
  brim_status (*report)(void *ctx, brim_str *page);  // makes the page of the present results
} brim_tuning_events;

typedef struct brim_tuning_options {
  const brim_tuning_events *events;
  void *ctx;
  const volatile sig_atomic_t *stop;
  bool plan_only;   // --plan: predict memory, run nothing, write no files
  bool all;         // --all
  bool batch_only;  // --benchmark-batch
  bool exhaustive;  // measure every setting of a large grid
  bool ceilings;    // measure the limits of machine, loader and device
  bool price;       // measure the remedies of findings
  bool resume;
  bool keep_rate;             // --keep-lr
  bool verify;                // run the recommended setting
  double verify_s;            // time limit of `verify`
  double budget_s;            // time limit of the sweep; 0 = none
  int steps;                  // samples of a visit
  bool steps_asked;           // the user gave `steps`
  int min_steps;              // 0 = as usual
  int repeats;                // measuring budget in passes; 1 = every setting once
  uint64_t memory_limit;      // device bytes that a plan may take; 0 = what is free
  double config_limit;        // the config's own limit, for `card`; 0 = none
  brim_device **device;       // NULL = no device of brim: no ceilings, no traces
  brim_memory_watch *memory;  // of the device
  brim_gpu_monitor *monitor;  // NULL = none
  brim_machine_options machine;
  size_t device_count;        // devices of the config's list; 1 without a list
  int64_t ranks, node;        // as in brim_scale_options
  const brim_config *config;  // for the records of several devices; NULL = none
  const char *card;           // --gpu: plan for a card that this machine lacks; NULL = none
  double card_bytes;          // its memory
  const char *checkpoints;    // folder for test checkpoints; NULL = do not measure checkpoints
  // Values on the command line for knobs without a config key that lists them.
  int64_t given[BRIM_KNOB_MAX][BRIM_KNOB_AXIS];
  size_t given_count[BRIM_KNOB_MAX];
  // The option that set a config key, as the user typed it, for messages; NULL = no option did.
  const char *(*typed)(void *ctx, const char *key, char out[64]);
  const char *jsonl, *html, *best;  // files; NULL with plan_only
  const char *apply;                // the file to edit; NULL = none
} brim_tuning_options;

// Callers read the members; only the session writes them.
typedef struct brim_tuning {
  brim_tuning_options how;
  brim_subject *subject;
  brim_sweep_axis axes[BRIM_KNOB_MAX];
  size_t axis_count;
  bool named[BRIM_KNOB_MAX];     // (knobs) the user asked for values of the knob
  brim_sweep_settings settings;  // after the sweep, setting i is that of results[i]
  size_t grid;                   // settings before the sweep
  brim_result *results;
  size_t count;
  brim_race *race;  // NULL = nothing was measured
  brim_recommendation picks;
  brim_advice advice;              // for the subject's setting before the sweep
  brim_result *proof;              // the record of --verify; NULL = none
  brim_verification verification;  // `proof` beside the prediction of the sweep
  brim_scaling *scaling;           // the picks on several devices at once
  size_t scaling_count;
  char scaling_note[512];  // what the larger batch of all devices means
  size_t known_count;      // records taken over from an earlier sweep
  bool measured;           // there are results to show, even if brim_tuning_run failed
  bool interrupted;        // interrupted while settings were measured
  bool budget_ended;       // the budget ended the sweep
  bool running;            // measuring has begun: a failure is not bad input
  bool wrote_jsonl, wrote_html, wrote_best;
  struct brim_tuning_state *state;
} brim_tuning;

// The caller keeps the subject. Close a session that failed to open, too.
brim_status brim_tuning_open(brim_tuning *session, brim_subject *subject,
                             const brim_tuning_options *options);
void brim_tuning_close(brim_tuning *session);
// Chooses the settings, and checks the file of --apply. BRIM_EINVAL for values out of range.
brim_status brim_tuning_choose(brim_tuning *session);
// Checks that the files can be written, locks their folder, and reads the records to resume from.
brim_status brim_tuning_prepare(brim_tuning *session);
// Measures, concludes and writes the files. If `measured` is set there are results to show, even after a failure.
brim_status brim_tuning_run(brim_tuning *session);
// --apply: edits the file. Deinit out->file afterwards.
brim_status brim_tuning_apply(brim_tuning *session, brim_tuning_edit *out);

//---------------------------------- profiles ----------------------------------

// Files of a profile, in the order in which they are listed.
typedef enum brim_profile_file {
  BRIM_PROFILE_FILE_RECORD,    // profile.json
  BRIM_PROFILE_FILE_PAGE,      // profile.html
  BRIM_PROFILE_FILE_TRACE,     // trace.json.gz
  BRIM_PROFILE_FILE_SNAPSHOT,  // the snapshot of memory
  BRIM_PROFILE_FILE_EVENTS,    // a folder for TensorBoard
  BRIM_PROFILE_FILES
} brim_profile_file;

typedef struct brim_profile_session_options {
  brim_profile_options profile;  // the session sets `sampler` and `machine`
  brim_machine_options machine;  // how the device's ceilings are measured
  brim_gpu_monitor *monitor;     // NULL = none
  brim_device **device;
  bool price;                             // measure the remedies of findings
  const char *checkpoints;                // as in brim_tuning_options
  const char *folder;                     // folder of the files; locked until the session is closed
  const char *paths[BRIM_PROFILE_FILES];  // NULL = not asked for
  void (*on_progress)(void *ctx, const brim_progress *progress);  // while remedies run
  brim_status (*keep_earlier)(void *ctx);                         // before files are replaced
  brim_status (*page)(void *ctx, brim_str *out);                  // makes profile.html
  void *ctx;
} brim_profile_session_options;

// A profile of a subject's present setting. Callers read the members.
typedef struct brim_profile_session {
  brim_profile_session_options how;
  brim_subject *subject;
  brim_profile profile;
  brim_trace trace;
  bool wrote[BRIM_PROFILE_FILES];
  bool running;   // the steps ran, or failed on their own: a failure is not bad input
  bool unpriced;  // interrupted: not all prices were measured
  brim_machine_ceilings machine;
  brim_fs_lockfile *lock;
} brim_profile_session;

void brim_profile_session_open(brim_profile_session *session, brim_subject *subject,
                               const brim_profile_session_options *options);
void brim_profile_session_close(brim_profile_session *session);
// Checks that `path` can be written: a file, or files in a folder. BRIM_EINVAL with the reason.
brim_status brim_profile_check_file(const char *path, bool is_folder);
// Locks the folder, before anything is measured.
brim_status brim_profile_session_prepare(brim_profile_session *session);
// Measures, traces and prices. Fails if the setting fails.
brim_status brim_profile_session_run(brim_profile_session *session);
// Tries to write all files; returns the first failure (BRIM_EIO or BRIM_ENOMEM).
brim_status brim_profile_session_write(brim_profile_session *session);

#endif  // BRIM_TUNE_H_
