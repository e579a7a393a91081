// Shared by the tests of the training loop: a run with overrides and optionally another table, its files and its warnings.
#ifndef BRIM_TESTS_RUN_TEST_H_
#define BRIM_TESTS_RUN_TEST_H_

#include <pthread.h>

#include "run/run.h"
#include "run/run_figures.h"
#include "same_file.h"
#include "workload/fixture.h"

enum { MAX_OVERRIDES = 12 };

typedef struct job {
  const char *folder;
  const char *overrides[MAX_OVERRIDES];
  bool resume;
  const char *resume_path;  // the --resume-from option
  int64_t max_steps;
  const brim_workload_table *table;  // replaces the workload's; NULL = its own
  const volatile sig_atomic_t *stop;
  void (*on_steps)(void *ctx, const brim_run_steps *steps);
  void *ctx;
} job;

static inline brim_status run(const job *j, brim_run_result *out) {
  fixture f;
  size_t count = 0;
  while (count < MAX_OVERRIDES && j->overrides[count]) count++;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, j->overrides, count));
  const brim_workload_table *real = f.work->table;
  if (j->table) {
    f.work->table = j->table;
    f.work->metrics = j->table->metric_set;
  }
  brim_run_options options = {.output_dir = j->folder,
                              .resume = j->resume,
                              .resume_path = j->resume_path,
                              .max_steps = j->max_steps,
                              .stop = j->stop,
                              .on_steps = j->on_steps,
                              .ctx = j->ctx};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  f.work->table = real;
  fixture_close(&f);
  return status;
}

static inline void fresh(const char *folder) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
}

static inline char *slurp(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name), *data = NULL;
  size_t size;
  assert_non_null(path);
  assert_ok(brim_fs_read(path, 0, &data, &size));
  brim_free(path);
  return data;
}

// not inline: gcc 12 then sees a dangling pointer where there is none
__attribute__((noinline, unused)) static int count_of(const char *text, const char *word) {
  int n = 0;
  for (const char *p = strstr(text, word); p; p = strstr(p + 1, word)) n++;
  return n;
}

static inline bool exists(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name);
  bool there = brim_fs_exists(path);
  brim_free(path);
  return there;
}

static inline void assert_same(const char *a, const char *b, const char *name) {
  char *pa = brim_fs_join(a, name), *pb = brim_fs_join(b, name);
  assert_same_file(pa, pb);
  brim_free(pa);
  brim_free(pb);
}

static pthread_mutex_t warned_lock = PTHREAD_MUTEX_INITIALIZER;
static char warned[8192];
static inline void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx;
  (void)module;
  if (level != BRIM_LOG_WARN) return;
  pthread_mutex_lock(&warned_lock);  // a thread writes checkpoints
  size_t n = strlen(warned);
  snprintf(warned + n, sizeof warned - n, "%s\n", text);
  pthread_mutex_unlock(&warned_lock);
}

static inline void listen_now(void) {
  warned[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
}
static inline void listen_no_more(void) { brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR); }

#endif  // BRIM_TESTS_RUN_TEST_H_
