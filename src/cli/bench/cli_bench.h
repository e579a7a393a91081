// Inside the bench command: its state, the choice of axes, the files it leaves.
#ifndef BRIM_CLI_BENCH_H_
#define BRIM_CLI_BENCH_H_

#include "cli/job/cli_memory.h"
#include "record/record_job.h"
#include "tune/tune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_axes {
  brim_sweep_axis axis[BRIM_KNOB_MAX];
  int64_t *values[BRIM_KNOB_MAX];  // owned
  size_t count;
  bool named[BRIM_KNOB_MAX];  // by knob: the user asked for its values
} bench_axes;

typedef struct bench {
  brim_cli *cli;
  brim_cli_job *job;
  brim_work_subject work;
  brim_subject subject;  // the job's workload
  bench_axes axes;
  brim_sweep_settings
      settings;       // what is swept; own: the config's. After the sweep: those with results
  brim_time started;  // of the sweep
  size_t grid;        // settings before the sweep
  bool budget_ended;  // --budget ended the sweep
  brim_race *race;    // how they compare; NULL = nothing was measured
  bool plan_only;
  const char *card;   // --gpu: a card that is not here; NULL = none
  double card_bytes;  // its memory
  brim_result *results;
  size_t count;
  brim_recommendation picks;
  char *jsonl, *html, *best;  // paths, chosen before the sweep
  brim_fs_lockfile *lock;     // of the output folder
  bool wrote_jsonl, wrote_html, wrote_best;
  size_t recorded;                // results that are in the .jsonl file
  brim_machine_ceilings machine;  // for every result
  brim_gpu_sampler *sampler;      // while sweeping a GPU; NULL = none
  const char *apply;              // --apply: the file to edit; NULL = none
  bool verify, resume;            // --verify, --resume
  double larger;              // batches beside the config's own (brim_remedy_options); NaN = none
  bool priced;                // the findings of the config's own setting have measured prices
  brim_advice advice;         // with the picks; of the config as it was given
  brim_config *verified;      // the recommended setting's; its workload may be open until the end
  brim_verification proof;    // what --verify found
  brim_result *proof_record;  // the same as a record; NULL = there is none
  size_t device_count;        // of the list; 1 without one
  brim_scaling *scaling;      // the picks on several of them at once
  size_t scaling_count;
  char scaling_note[512];  // what so large a batch means
  brim_result *known;      // of the sweep that is resumed; those handed out are empty
  size_t known_count;
  struct brim_job_publisher *publisher;  // while something is measured; NULL = none
  brim_job published;
  brim_time published_at;
  brim_status record_status;  // of the first record that could not be written
  char record_detail[512];
} bench;

// Options and the benchmark section of the config, else a grid that the plan allows.
brim_status brim_cli_bench_axes(bench *b);
void brim_cli_bench_axes_free(bench *b);

// Before the sweep: paths, folders, and whether they can be written to (BRIM_EINVAL when not). The
// files of an earlier sweep are put aside as NAME-1, NAME-2, ...
brim_status brim_cli_bench_prepare(bench *b);
// One more line in the .jsonl file, at once: a process that is killed loses nothing it measured. A
// failure is kept for the end.
void brim_cli_bench_record(bench *b, const brim_result *result);
// After the sweep, and again when more is known: the records, the report, best.yaml. Tries all of
// them; returns the first failure (BRIM_EIO or BRIM_ENOMEM).
brim_status brim_cli_bench_files(bench *b);
void brim_cli_bench_facts(bench *b, brim_advice_facts *out);
void brim_cli_bench_publish(bench *b, const brim_progress *progress);
void brim_cli_bench_publish_result(bench *b, const brim_result *result);

// `device: [..]`: before the sweep, whether there are too many; after it, the picks on 1, 2, ... of the
// devices at once. A device that cannot take part is reported in what is measured.
brim_status brim_cli_bench_scale_check(bench *b);
brim_status brim_cli_bench_scale(bench *b);
void brim_cli_bench_scale_free(bench *b);
// The share of its usual time that a visit of a setting gets: less than 1 with few --steps or a --budget.
double brim_cli_bench_visit_share(const bench *b);
void brim_cli_bench_record_scaling(bench *b, const brim_scaling *scaling);
#define BENCH_RATE_KEY "training.learning_rate"

// Effective batch and learning rate before and after a recommendation. after 0: the rate is unknown, or
// nothing changes; kept: --keep-lr.
typedef struct bench_rate {
  double batch_before, batch_after, before, after;
  bool adaptive, kept;
} bench_rate;

// A config of what was given and of the recommended setting, with the learning rate that goes with it.
brim_status brim_cli_bench_best(bench *b, const char *path);

// --apply: which file, as soon as the config is read; before the sweep, whether it can be edited;
// after it, the edit.
brim_status brim_cli_bench_apply_file(bench *b);
brim_status brim_cli_bench_apply_check(bench *b);
brim_status brim_cli_bench_apply(bench *b);
// Fails, and says why there is no recommendation for `option` to work with.
brim_status brim_cli_bench_no_pick(const bench *b, const char *option);

// --verify: the recommended setting in training, into `proof`; the sweep's workload is closed for
// it. Then, after the table, what came out.
brim_status brim_cli_bench_verify_check(bench *b);
brim_status brim_cli_bench_verify(bench *b);
brim_status brim_cli_bench_verified(bench *b);

// --resume: reads the records that are there. *put_aside says whether the file has something else in
// it, or nothing that is of use.
brim_status brim_cli_bench_resume(bench *b, bool *put_aside);
// A setting's record, moved out; false when it is to be measured. ctx: the bench.
bool brim_cli_bench_known(void *ctx, const brim_setting *setting, brim_result *out);
// The .jsonl file again, with all results there are.
brim_status brim_cli_bench_rewrite(const bench *b);
void brim_cli_bench_known_free(bench *b);
// The tables of the workload about these results; how many there are.
size_t brim_cli_bench_views(const bench *b, brim_view views[BRIM_VIEWS]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_BENCH_H_
