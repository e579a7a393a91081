// Slurm by its command line: makes the commands for sbatch, squeue, sacct, scontrol, sinfo and scancel,
// reads their output, and keeps the arrays that a sweep submitted. It knows no store: lab_sweep_slurm.c
// joins Slurm and the store, and `brim sweep element` runs one element of an array.
//
// An array has a unique name, and its file FOLDER/slurm/NAME.json is on the disk before sbatch is
// called. Slurm reuses job numbers, so brim accepts a row only if the array's name matches too.
//
//   {"name": "brim-grid-1f0c..", "job": "4711" or "", "submitted": seconds since 1970, "stop": false,
//    "gpus": 1, "nodes": 1, "exps": [[id, attempt before, over], ...]}
//
// Element i of the array runs exps[i].
#ifndef BRIM_LAB_SLURM_H_
#define BRIM_LAB_SLURM_H_

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_child.h"
#include "base/base_str.h"
#include "brim/status.h"

enum {
  BRIM_SLURM_NAME = 64,    // bytes of a name with its NUL
  BRIM_SLURM_JOB = 24,     // bytes of a job's number with its NUL
  BRIM_SLURM_EXP = 33,     // bytes of an experiment's id with its NUL
  BRIM_SLURM_REASON = 96,  // bytes of a reason given by Slurm
  BRIM_SLURM_NODE = 64,
  BRIM_SLURM_REQUEUE = 75  // exit code of an element that has to run again
};
#define BRIM_SLURM_FOLDER "slurm"

//---------------------------------- answers ----------------------------------

typedef enum brim_slurm_state {
  BRIM_SLURM_UNKNOWN,
  BRIM_SLURM_WAITING,
  BRIM_SLURM_RUNNING,  // also while it starts and ends
  BRIM_SLURM_DONE,
  BRIM_SLURM_FAILED,
  BRIM_SLURM_CANCELLED,
  BRIM_SLURM_TIMEOUT,
  BRIM_SLURM_PREEMPTED,
  BRIM_SLURM_NODE_FAILED,
  BRIM_SLURM_NO_MEMORY,
  BRIM_SLURM_STATE_COUNT
} brim_slurm_state;

// Reads Slurm's word for a state; only its first part counts: "CANCELLED by 1000".
brim_slurm_state brim_slurm_state_of(const char *word);
static inline bool brim_slurm_is_live(brim_slurm_state state) {
  return state == BRIM_SLURM_WAITING || state == BRIM_SLURM_RUNNING;
}

typedef struct brim_slurm_row {
  char job[BRIM_SLURM_JOB];
  int64_t index;
  char name[BRIM_SLURM_NAME];
  brim_slurm_state state;
  char word[24];  // the state as Slurm wrote it
  char node[BRIM_SLURM_NODE];
  char reason[BRIM_SLURM_REASON];  // squeue: why it waits; sacct: the exit code
} brim_slurm_row;

typedef void (*brim_slurm_row_fn)(void *ctx, const brim_slurm_row *row);
// Reads the output of squeue (brim_slurm_words_squeue) or, with `account`, of sacct
// (brim_slurm_words_sacct). Skips jobs without an index. Returns the number of lines that are neither
// empty nor a row.
size_t brim_slurm_rows(const char *text, bool account, brim_slurm_row_fn fn, void *ctx);

// Reads "4711" from "4711;cluster\n"; false: there is no number.
bool brim_slurm_job_of(const char *text, char out[BRIM_SLURM_JOB]);
// Reads the value of a line "Key   = value" of scontrol show config; 0 = there is no such line.
int64_t brim_slurm_config_value(const char *text, const char *key);
// Sums the nodes in lines "count|names" of sinfo; sets *name if there is only one node. A node that
// several partitions share counts once for each.
int64_t brim_slurm_nodes_of(const char *text, char name[BRIM_SLURM_NODE]);
// True if the output of `srun --mpi=list` has this plug-in.
bool brim_slurm_has_mpi(const char *text, const char *name);
// Reads the seconds of a time limit in sbatch's form: "90", "1:30:00", "2-12"; -1 = none or unlimited.
int64_t brim_slurm_seconds(const char *text);

//---------------------------------- commands ----------------------------------

// Words of a command line, copied.
typedef struct brim_slurm_words {
  char **list;  // NULL-terminated
  size_t count, cap;
  bool failed;  // out of memory
} brim_slurm_words;
void brim_slurm_word(brim_slurm_words *words, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_slurm_words_deinit(brim_slurm_words *words);  // zeros are fine

// A running command. brim ends it if it prints more than 64 MiB, or when its time is over.
typedef struct brim_slurm_command {
  brim_child *child;  // NULL: none runs
  brim_str out, err;
  int64_t until_ms;
  bool timed_out, flooded;
  int exit_code;  // -1: a signal ended it, or it could not be started
} brim_slurm_command;
// Starts a command and empties *words. env: additional variables, or NULL. BRIM_ENOENT: there is no
// such program.
brim_status brim_slurm_start(brim_slurm_command *command, brim_slurm_words *words,
                             const char *const *env, int64_t timeout_ms);
brim_status brim_slurm_poll(brim_slurm_command *command, bool *ended);
void brim_slurm_close(brim_slurm_command *command);  // zeros are fine
// Runs a command to its end; `out` has its output until brim_slurm_close.
brim_status brim_slurm_run(brim_slurm_words *words, int64_t timeout_ms, brim_slurm_command *out);
// True if the command ended with 0, was not ended by brim, and all of its output was read.
bool brim_slurm_good(const brim_slurm_command *command);
// Gives the last line on its stderr, or how it ended.
void brim_slurm_why(const brim_slurm_command *command, char *out, size_t size);

//---------------------------------- arrays ----------------------------------

typedef struct brim_slurm_exp {
  char id[BRIM_SLURM_EXP];
  int64_t attempt;  // number of the last attempt before the array was submitted
  bool over;        // its element has ended, and the sweep has handled that end
} brim_slurm_exp;

typedef struct brim_slurm_array {
  char name[BRIM_SLURM_NAME];
  char job[BRIM_SLURM_JOB];  // "" = unknown: sbatch has not answered
  int64_t submitted_s;
  bool stop;  // its elements end and do not queue themselves again
  int64_t gpus, nodes;
  brim_slurm_exp *exps;
  size_t count;
} brim_slurm_array;
// folder: the folder of the sweep's experiments.
brim_status brim_slurm_array_write(const char *folder, const brim_slurm_array *array);
// BRIM_ENOENT: there is no such array.
brim_status brim_slurm_array_read(const char *folder, const char *name, brim_slurm_array *out);
void brim_slurm_array_remove(const char *folder, const char *name);  // also removes its script
void brim_slurm_array_deinit(brim_slurm_array *array);
// Lists the names of the folder's arrays; for brim_fs_list_free.
brim_status brim_slurm_array_names(const char *folder, char ***names, size_t *count);

//---------------------------------- making commands ----------------------------------

// Options of sbatch. 0 and NULL: sbatch decides.
typedef struct brim_slurm_ask {
  const char *partition, *account, *time, *memory, *gres;
  int64_t cpus;              // CPUs of each task
  int64_t at_once;           // most elements that run at once
  const char *const *extra;  // more words for sbatch, NULL-terminated
} brim_slurm_ask;

// Writes the script of an element, with its words quoted for the shell.
brim_status brim_slurm_script(const char *const *words, brim_str *out);
// Makes the sbatch command of an array, whose script is FOLDER/slurm/NAME.sh. no_gpu: `gpus` counts
// ranks on the CPU.
void brim_slurm_words_sbatch(const brim_slurm_array *array, const brim_slurm_ask *ask,
                             const char *folder, bool no_gpu, brim_slurm_words *out);
// Makes the squeue command for arrays by their names: one row per element, also for recently ended
// ones.
void brim_slurm_words_squeue(const char *const *names, size_t count, brim_slurm_words *out);
// Makes the sacct command for one array.
void brim_slurm_words_sacct(const brim_slurm_array *array, brim_slurm_words *out);

#endif  // BRIM_LAB_SLURM_H_
