// Tuning: a session tries the settings of a subject, and everything that follows from them: race, prices of
// findings, recommendation, records, report, --apply. Callers: the bench and profile commands, doctor.
#ifndef BRIM_TUNE_H_
#define BRIM_TUNE_H_

#include "config/config.h"
#include "measure/measure.h"
#include "record/record_job.h"
#include "tune/tune_race.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- subjects ----------------------------------

// Something with knobs that can run at a setting: a workload of brim (brim_work_subject_open), later any
// program that is started once per trial. Sweep, race, prices and recommendation know subjects alone.
struct brim_tuning;
struct brim_tuning_edit;
struct brim_work_resume;
struct brim_work_fleet;

typedef struct brim_subject {
  const struct brim_subject_table *table;
  void *state;
  const char *name;        // of the workload or program, for `brim top`
  const brim_knob *knobs;  // of the subject as it is open now
  size_t knob_count;
  const brim_knob_set *knob_set;  // roles and labels; may be NULL
  void *knob_owner;               // first argument of the knobs' own functions
  bool host;  // the host's cores compute: a step is steady at once, and nothing overlaps it
} brim_subject;

typedef struct brim_subject_facts {
  int64_t set_samples;   // samples of the training set; 0 = unknown, or there is none
  double learning_rate;  // NaN = unknown
  bool adaptive;         // an optimiser of Adam's kind
} brim_subject_facts;

// Costs beside the steps of a setting, into its result.
typedef struct brim_subject_beside {
  const char *folder;              // of checkpoints; NULL = none is measured
  const brim_memory_watch *watch;  // NULL = other processes are not seen
  double step_s, left_s;           // seconds of a step, and those that measuring may take
  bool *no_time;                   // set where checkpoints would take longer
} brim_subject_beside;

// Values of a knob that a session tries where the user gave none on the command line.
typedef struct brim_subject_axis {
  const int64_t *values;
  size_t count;      // 0 = the present value alone
  const char *list;  // config key the values come from: the user named them; NULL = chosen
  int64_t chosen[BRIM_KNOB_AXIS];  // room for `values`
  char note[512];  // translated: why values are left out, with its newline; "" = nothing
} brim_subject_axis;

// What a session asks for while it chooses values.
typedef struct brim_subject_wish {
  bool all;           // every knob, a few values each
  const char *card;   // plan for a card that is not here; NULL = none
  double card_bytes;  // its memory
  brim_setting most;  // the largest values so far
} brim_subject_wish;

// A run of the recommended setting as a user would run it, for --verify.
typedef struct brim_subject_proof {
  double cap_s;
  const volatile sig_atomic_t *stop;
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void *ctx;
  // Out. Rate: samples over seconds after the warm-up; the whole run's where it was too short.
  double achieved, samples, seconds;
  int64_t epochs, steps;
  int64_t per_epoch;      // samples; 0 = unknown
  brim_host_sample host;  // when it began
} brim_subject_proof;

// `run` is required; every other member may be NULL: the subject does not have it.
typedef struct brim_subject_table {
  // Measures a setting into `out`: samples_per_s, total_ms, and *how->visit where it is asked for. What the
  // setting itself fails with is out->failure and BRIM_OK: out of memory, crash, hang, bad output. Another
  // status ends the session: BRIM_EINTERRUPTED, BRIM_ENOMEM.
  brim_status (*run)(void *state, const brim_setting *setting, const brim_trial_options *how,
                     brim_result *out);
  // The same without running it: `out` has the memory that it needs.
  brim_status (*plan)(void *state, const brim_setting *setting, const brim_trial_options *how,
                      brim_result *out);
  // Do the values of a setting go together? Fails with the reason why they do not.
  bool (*sensible)(void *state, const brim_setting *setting);
  brim_status (*refuse)(void *state, const brim_setting *setting);
  void (*facts)(void *state, brim_subject_facts *out);
  // After BRIM_FAILURE_CRASH: makes the subject able to run again.
  brim_status (*recover)(brim_subject *subject);
  // Runs a setting for at most `seconds`, until a cache that it fills is of use.
  brim_status (*warm)(void *state, const brim_setting *setting, double seconds,
                      const volatile sig_atomic_t *stop);
  brim_status (*beside)(void *state, const brim_setting *setting, const brim_subject_beside *how,
                        brim_result *out);
  // Without it only knobs with values on the command line are tried.
  brim_status (*axis)(void *state, int knob, const brim_subject_wish *wish, brim_subject_axis *out);
  // --resume: "" where a record is of this subject as it is configured now, else what differs.
  brim_status (*differs)(void *state, const brim_result *record, const char **out);
  // The GPU's own records of a setting, into its result.
  brim_status (*trace)(void *state, const brim_setting *setting, brim_gpu_trace *trace,
                       brim_result *out);
  // --verify. May replace the subject's knobs.
  brim_status (*prove)(brim_subject *subject, const brim_result *best, const char *folder,
                       brim_subject_proof *out);
  // Devices that run settings at once, for scaling; the second gives them back.
  brim_status (*replicas)(void *state, const volatile sig_atomic_t *stop, brim_replica *out,
                          size_t *count);
  void (*release)(void *state, brim_replica *replicas, size_t count);
  // Where the time and memory of a step go, and a trace of some steps.
  brim_status (*profile)(void *state, const brim_setting *setting, const brim_profile_options *how,
                         brim_profile *out, brim_trace *trace);
  // The file that runs the recommended setting (best.yaml), and --apply.
  brim_status (*write_best)(struct brim_tuning *session, const char *path);
  brim_status (*check_edit)(struct brim_tuning *session);
  brim_status (*edit)(struct brim_tuning *session, struct brim_tuning_edit *out);
} brim_subject_table;

brim_setting brim_subject_setting(const brim_subject *subject);              // its present values
int brim_subject_knob(const brim_subject *subject, const char *name);        // -1 = none
int brim_subject_knob_as(const brim_subject *subject, brim_knob_role role);  // -1 = none
// Does the knob make a difference, the others being as in `setting`?
bool brim_subject_knob_matters(const brim_subject *subject, size_t knob,
                               const brim_setting *setting);

// A workload as a subject. `work` and `device` are the caller's, who replaces both in `reopen`. A subject
// without a device only tells its knobs and facts.
typedef struct brim_work_subject {
  const brim_config *config;  // may be NULL
  brim_work **work;
  brim_device **device;
  brim_status (*reopen)(void *ctx);  // after a crash of the device; NULL = nothing is opened again
  // One more device of a list, with its own watch.
  brim_status (*open_device)(void *ctx, const char *spec, const brim_device_options *options,
                             brim_memory_watch *watch, brim_device **out);
  void *ctx;
  // The rest is for a session with files.
  brim_memory_watch *memory;  // of the device
  const brim_registry *registry;
  const brim_device_options *options;  // that the device was opened with
  const brim_config_facts *facts;
  const char *path;  // config file; NULL = defaults alone
  char **overrides;  // "key=value", owned; see brim_work_subject_begin
  size_t override_count, override_room;
  brim_config *proven;              // config of the workload that --verify opened; owned
  struct brim_work_resume *resume;  // what records are compared with; owned
  struct brim_work_fleet *fleet;    // several devices, while they are open
} brim_work_subject;
// Copies the overrides of the command line. brim_work_subject_end frees all that the subject owns, after its
// workload was closed.
brim_status brim_work_subject_begin(brim_work_subject *of, const char *const *overrides,
                                    size_t count);
void brim_work_subject_end(brim_work_subject *of);
void brim_work_subject_open(brim_work_subject *of, brim_subject *out);

//---------------------------------- sweeps ----------------------------------

typedef struct brim_sweep_axis {
  int knob;  // index into the subject's knobs
  const int64_t *values;
  size_t count;
} brim_sweep_axis;

// The settings of a sweep, in the order in which they are measured first.
typedef struct brim_sweep_settings {
  brim_setting *setting;
  size_t count;
  int own;         // the config's own among them; -1 = none is
  bool own_added;  // it is none of the axes' combinations
} brim_sweep_settings;

// Every combination of the axes, last fastest, but those that do not go together or are more than the
// data set has, and those that differ only in knobs that do not matter there. With `own`, the config's own
// setting as well, in front where the axes do not have it.
brim_status brim_sweep_settings_make(const brim_subject *subject, const brim_sweep_axis *axes,
                                     size_t axis_count, bool own, brim_sweep_settings *out);
void brim_sweep_settings_free(brim_sweep_settings *settings);

typedef struct brim_sweep_options {
  const brim_sweep_axis *axes;  // also name the knobs in titles
  size_t axis_count;
  const brim_sweep_settings *settings;  // NULL = what the axes give
  brim_trial_options trial;             // its on_step and visit are not used; see on_progress
  bool plan_only;
  // Grids of more settings than this are climbed (tune_sweep.c): only a part of them is measured.
  // 0 = every setting is measured.
  size_t climb_above;
  // Seconds from now on, after which no more settings are begun; 0 = no limit. The config's own setting is
  // measured first.
  double budget_s;
  // The budget in passes (tune_race.h); less than 2: every setting is measured once. The visit that is
  // nearest to what all say stands in the results, with the rate and interval that follow from all.
  int repeats;
  brim_race **race;  // may be NULL: gets the race, to compare settings by; destroy it
  // May be NULL. The result of a setting that was measured before, for the sweep to keep; false when
  // it has to be measured.
  bool (*known)(void *ctx, const brim_setting *setting, brim_result *out);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_result *result);
  void (*on_final)(void *ctx, const brim_result *result);  // of a setting that was repeated
  // Once, as soon as some seconds have brought several settings and more is to come: what there is.
  void (*on_first)(void *ctx, const brim_result *results, size_t count);
  // May be NULL: (settings) gets the setting of each result. Settings without a result are left out.
  size_t *setting_of;
  bool *budget_ended;              // may be NULL: did the budget end the sweep?
  const brim_host_provider *host;  // where the use of the processors comes from; NULL = the machine
  void *ctx;
} brim_sweep_options;

// The results stand in the order of the settings. *out is an array from brim_alloc (deinit each, brim_free), also when
// BRIM_EINTERRUPTED: then it holds what was done.
brim_status brim_sweep_run(brim_subject *subject, const brim_sweep_options *options,
                           brim_result **out, size_t *count);

// The race that measured these results, from the visits in their records alone: the same records give the
// same intervals. BRIM_ENOMEM.
brim_status brim_race_of_results(const brim_result *results, size_t count, double passes,
                                 brim_race **out);

// Seconds of a visit to a setting of `at` rows, from those of `n` others; NaN for none, and for more rows than
// BRIM_SWEEP_FARTHEST times those that were measured.
#define BRIM_SWEEP_FARTHEST 4.0
double brim_sweep_predict(const double *rows, const double *seconds, size_t n, double at);
// Seconds that a sweep takes at most from now on: its first round has cost `spent` and is to cost
// `ahead`; `passes` is its budget.
double brim_sweep_seconds(double spent, double ahead, double passes);

typedef struct brim_recommend_options {
  brim_race *race;        // of these results; NULL = compared by their intervals
  int now;                // -1 = unknown
  bool now_is_reference;  // that one is recommended only where it is the fastest
  bool interrupted;       // settings are missing: what is recommended is provisional
  const bool *withheld;   // (count) not to be applied; NULL = none
} brim_recommend_options;

// Fills all of *out but its texts.
void brim_recommend(const brim_result *results, size_t count, const brim_recommend_options *options,
                    brim_recommendation *out);
// Rate of results[a] over that of results[b]; an interval of NaN = nothing is certain.
brim_interval brim_compare_results(const brim_result *results, size_t a, size_t b, brim_race *race);
// Does a setting learn otherwise than the config's own, by knobs that are not among those the user named
// (by index; NULL = none)? Batches count with what is accumulated.
bool brim_sweep_changes_learning(const brim_subject *subject, const bool *named,
                                 const brim_setting *setting);
// What is certain of the recommendation and what is not, in the user's language, one sentence or two.
void brim_recommend_reason(const brim_result *results, size_t count, const brim_recommendation *r,
                           brim_race *race, char out[512]);

// Findings of results[index] (waited I/O, small batch, ...), written into it. The others are the
// evidence: a remedy that was measured has its price from there.
void brim_diagnose(brim_result *results, size_t count, size_t index);

typedef struct brim_remedy_options {
  const brim_setting *setting;  // of results[index]
  brim_trial_options trial;     // as of the sweep; its on_step, visit and ceilings are not used
  double seconds;               // for all of them; 0 = 25
  const char *folder;           // of checkpoints, to measure one there; NULL = none is
  // May be NULL. The rate of the best larger batch that was measured here over the setting's own; NaN =
  // none was.
  double *larger;
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void *ctx;
} brim_remedy_options;

// The findings of results[index] again, with prices measured: remedies that no other result has run
// for a moment, each beside the setting itself. The others are evidence as for brim_diagnose; one result
// alone is enough. The workload stands at any of these settings afterwards. BRIM_EINTERRUPTED when
// stopped: the findings have what was measured until then.
brim_status brim_remedies_measure(brim_subject *subject, const brim_remedy_options *options,
                                  brim_result *results, size_t count, size_t index);

//---------------------------------- several devices ----------------------------------

typedef struct brim_scale_options {
  brim_replica *replicas;  // in the order in which they join; at most BRIM_SCALING_MAX
  size_t replica_count;
  const brim_setting *settings;  // each is measured in turn
  size_t setting_count;
  // Per setting: of a step, the part that is the backward pass, 0..1; NaN = unknown. NULL, and on CPUs: as
  // it is measured.
  const double *backward_share;
  int64_t ranks;                 // predictions go so far at least; 0 = nothing is asked for
  int64_t node;                  // ranks of one machine; 0 = all
  brim_scaling_options measure;  // its on_wait is not used; see on_progress
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_scaling *scaling);
  void *ctx;
} brim_scale_options;

// How many at once: 1, 2, 4, ... below k, and k. Returns how many there are (at most 6).
size_t brim_scale_counts(size_t k, size_t out[8]);
// Every setting on so many devices each, without and with the exchange of gradients, and what was predicted
// of the latter. *out is an array from brim_alloc (brim_scaling_deinit each,
// brim_free), also when BRIM_EINTERRUPTED: then it holds what was done. Workloads are left as ranks of
// several.
brim_status brim_scale(const brim_scale_options *options, brim_scaling **out, size_t *count);
// What `s` lost against one device alone (of the same setting): one, efficiency, lost_to, lost_ms, and the
// efficiency of its exchange.
void brim_scale_compare(brim_scaling *s, const brim_scaling *one);

// What a prediction is made of: one device alone, and an exchange between `measured` ranks.
typedef struct brim_scale_model {
  double step_ms, rows;  // of a step
  double hidden_ms;  // of it, the time in which gradients can be summed beside it; NaN = unknown
  brim_scaling_exchange exchange;
  int measured;
  int64_t node;  // ranks of one machine; 0 = all
} brim_scale_model;
void brim_scale_predict(const brim_scale_model *model, int64_t ranks, brim_scaling_forecast *out);
// Ranks to predict beyond those measured: doubled up to 8 or to what was asked for; returns how many.
size_t brim_scale_further(int64_t measured, int64_t asked, int64_t out[BRIM_SCALING_FURTHER]);

//---------------------------------- advice ----------------------------------

// What the user had before the sweep.
typedef struct brim_advice_facts {
  double batch, accumulation;  // of the config
  double learning_rate;        // NaN = unknown
  bool adaptive;               // an optimiser of Adam's kind
  double larger;  // as of brim_remedy_options, beside the recommended setting; 0 = none
  // Knobs of which the sweep has several values, measured or not: to try them is no advice.
  const char *several[BRIM_KNOB_MAX];
  size_t several_count;
  // Knobs that make no difference to the recommended setting: workers, where the data lie in memory or on
  // the GPU.
  const char *idle[BRIM_KNOB_MAX];
  size_t idle_count;
} brim_advice_facts;
// Of a subject as it is opened; `several` and `idle` are left to the caller.
void brim_advice_facts_of(const brim_subject *subject, brim_advice_facts *out);
// Texts are in the user's language. `recommended` as brim_recommendation has it.
void brim_advise(const brim_result *results, size_t count, int recommended,
                 const brim_advice_facts *facts, brim_advice *out);
// The learning rate for an effective batch of `now` samples instead of `was`: by the square-root rule for
// optimisers of Adam's kind, by the linear rule for others.
double brim_advise_rate(double learning_rate, double was, double now, bool adaptive);
// What an effective batch of `now` samples means for the learning rate; "" where it stays as it was.
void brim_advise_batch(const brim_advice_facts *facts, double now, char out[256]);

//---------------------------------- sessions ----------------------------------

// The learning rate before and after a changed batch. after 0: it is unknown, or nothing changes.
typedef struct brim_rate_change {
  double batch_before, batch_after, before, after;
  bool adaptive, kept;  // kept: the user keeps it
} brim_rate_change;
// "learning rate 0.1 -> 0.2, ..." and a newline; nothing where nothing changes.
void brim_rate_change_text(const brim_rate_change *change, brim_str *out);

// What --apply did to a file.
typedef struct brim_tuning_edit {
  brim_config_edit edits[BRIM_KNOB_MAX + 1];
  char values[BRIM_KNOB_MAX + 1][32];
  size_t count;
  brim_rate_change rate;
  brim_config_edit_result file;
} brim_tuning_edit;

// What a session tells its caller. Members may be NULL, but `report`.
typedef struct brim_tuning_events {
  void (*note)(void *ctx, const char *text);  // a line for people, translated
  void (*progress)(void *ctx, const brim_progress *progress);
  void (*result)(void *ctx, const brim_result *result);  // a setting's first measurement
  void (*final)(void *ctx, const brim_result *result);   // what stands for one that was repeated
  // Once, when a longer sweep has the first results.
  void (*so_far)(void *ctx, const brim_result *results, size_t count);
  void (*scaling)(void *ctx, const brim_scaling *scaling);
  brim_status (*keep_earlier)(void *ctx);  // before the files of an earlier session are replaced
  brim_status (*report)(void *ctx, brim_str *page);  // the page of what is known now
} brim_tuning_events;

typedef struct brim_tuning_options {
  const brim_tuning_events *events;
  void *ctx;
  const volatile sig_atomic_t *stop;
  bool plan_only;   // plans alone: nothing runs, no files
  bool all;         // every knob of the subject
  bool batch_only;  // --benchmark-batch
  bool exhaustive;  // every setting of a large grid
  bool ceilings, price, resume, verify, keep_rate;
  double budget_s;  // 0 = no limit
  double verify_s;
  int steps;         // samples of a visit
  bool steps_asked;  // by the user
  int min_steps;     // 0 = as usual
  int repeats;       // budget in passes
  uint64_t memory_limit;
  double config_limit;        // device bytes that the config allows; 0 = no limit
  brim_memory_watch *memory;  // of the device
  brim_gpu_monitor *monitor;  // NULL = none
  brim_device **device;       // NULL = the subject has none of brim's
  brim_machine_options machine;
  size_t device_count;        // of a list; 1 without one
  int64_t ranks, node;        // of a training, as brim_scale_options has them
  const brim_config *config;  // for the records of several devices; NULL = none
  const char *card;           // --gpu: a card that is not here; NULL = none
  double card_bytes;          // its memory
  const char *checkpoints;    // folder on the disk of checkpoints; NULL = none is measured
  // Values on the command line, of knobs that have no config key for them.
  int64_t given[BRIM_KNOB_MAX][BRIM_KNOB_AXIS];
  size_t given_count[BRIM_KNOB_MAX];
  // The option that set a config key, as the user typed it; NULL = none did.
  const char *(*typed)(void *ctx, const char *key, char out[64]);
  const char *jsonl, *html, *best;  // files; NULL with plan_only
  const char *apply;                // file to edit; NULL = none
  const char *input;                // config file of the command; NULL = none
} brim_tuning_options;

// Callers read the members; the session alone writes them.
typedef struct brim_tuning {
  brim_tuning_options how;
  brim_subject *subject;
  brim_sweep_axis axes[BRIM_KNOB_MAX];
  size_t axis_count;
  bool named[BRIM_KNOB_MAX];     // by knob: the user asked for its values
  brim_sweep_settings settings;  // after the sweep those with results
  size_t grid;                   // settings before the sweep
  brim_result *results;
  size_t count;
  brim_race *race;  // NULL = nothing was measured
  brim_recommendation picks;
  brim_advice advice;              // of the subject as it was given
  brim_result *proof;              // record of --verify; NULL = none
  brim_verification verification;  // the same beside what was predicted
  brim_scaling *scaling;           // the picks on several devices at once
  size_t scaling_count;
  char scaling_note[512];  // what so large a batch means
  size_t known_count;      // records of an earlier sweep
  bool measured;           // results are there to be shown, whatever brim_tuning_run returned
  bool interrupted;        // while the settings were measured
  bool budget_ended;       // the budget ended the sweep
  bool running;            // what fails now failed while running, not before
  bool wrote_jsonl, wrote_html, wrote_best;
  struct brim_tuning_state *state;
} brim_tuning;

// Opens a session over a subject, which stays the caller's. brim_tuning_close takes one that failed to open,
// too.
brim_status brim_tuning_open(brim_tuning *session, brim_subject *subject,
                             const brim_tuning_options *options);
void brim_tuning_close(brim_tuning *session);
// Chooses the settings, and looks whether the file of --apply can be edited. BRIM_EINVAL for values out of
// range.
brim_status brim_tuning_choose(brim_tuning *session);
// Can all files be written? Reads the records to resume from. Before anything is measured.
brim_status brim_tuning_prepare(brim_tuning *session);
// Measures, concludes and writes. An interrupted session keeps what was measured; show it where `measured`.
brim_status brim_tuning_run(brim_tuning *session);
// --apply; deinit out->file.
brim_status brim_tuning_apply(brim_tuning *session, brim_tuning_edit *out);
// A value as text; false where it is none of the knob's. "auto" is the present value.
bool brim_knob_read(const brim_knob *knob, const char *text, int64_t *out);

//---------------------------------- profiles ----------------------------------

// Files of a profile, in the order in which they are listed.
typedef enum brim_profile_file {
  BRIM_PROFILE_FILE_RECORD,    // profile.json
  BRIM_PROFILE_FILE_PAGE,      // profile.html
  BRIM_PROFILE_FILE_TRACE,     // trace.json.gz
  BRIM_PROFILE_FILE_SNAPSHOT,  // of memory
  BRIM_PROFILE_FILE_EVENTS,    // a folder for TensorBoard
  BRIM_PROFILE_FILES
} brim_profile_file;

typedef struct brim_profile_session_options {
  brim_profile_options profile;  // `sampler` and `machine` are the session's
  brim_machine_options machine;  // how the device's ceilings are measured
  brim_gpu_monitor *monitor;     // NULL = none
  brim_device **device;
  bool price;                             // short runs of the findings' remedies
  const char *checkpoints;                // as in brim_tuning_options
  const char *folder;                     // of the files; locked while the session is open
  const char *paths[BRIM_PROFILE_FILES];  // NULL = not asked for
  void (*on_progress)(void *ctx, const brim_progress *progress);  // while remedies run
  brim_status (*keep_earlier)(void *ctx);                         // before files are replaced
  brim_status (*page)(void *ctx, brim_str *out);                  // profile.html
  void *ctx;
} brim_profile_session_options;

// One setting of a subject, profiled. Callers read the members.
typedef struct brim_profile_session {
  brim_profile_session_options how;
  brim_subject *subject;
  brim_profile profile;
  brim_trace trace;
  bool wrote[BRIM_PROFILE_FILES];
  bool running;   // what fails now failed while running, not before
  bool unpriced;  // interrupted: the findings have no measured prices
  brim_machine_ceilings machine;
  brim_fs_lockfile *lock;
} brim_profile_session;

void brim_profile_session_open(brim_profile_session *session, brim_subject *subject,
                               const brim_profile_session_options *options);
void brim_profile_session_close(brim_profile_session *session);
// Can a file be written there? BRIM_EINVAL with the reason; its folder is made.
brim_status brim_profile_check_file(const char *path, bool folder);
// Before anything is measured: locks the folder.
brim_status brim_profile_session_prepare(brim_profile_session *session);
// Measures the subject's present setting and finds what costs time. Fails as the setting does.
brim_status brim_profile_session_run(brim_profile_session *session);
// Writes all files it can; returns the first failure (BRIM_EIO or BRIM_ENOMEM).
brim_status brim_profile_session_write(brim_profile_session *session);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_TUNE_H_
