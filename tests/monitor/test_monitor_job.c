// Publishing a running job: its file, its owner, files of killed jobs, and failures without effect on the job.
#include "monitor/monitor_job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "test.h"

enum { PATIENCE_MS = 30000 };

static char root[64], folder[512];

static int set_up(void **state) {
  (void)state;
  snprintf(root, sizeof root, "/tmp/brim-test-job-XXXXXX");
  assert_non_null(mkdtemp(root));
  setenv("XDG_RUNTIME_DIR", root, 1);
  assert_ok(brim_job_folder(folder, sizeof folder));
  assert_true(brim_str_starts(folder, root));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char **names = NULL;
  size_t count = 0;
  (void)unlink(folder);  // a link must go before anything is listed through it
  if (!brim_fs_list(folder, &names, &count)) {
    for (size_t i = 0; i < count; i++) {
      char path[1024];
      snprintf(path, sizeof path, "%s/%s", folder, names[i]);
      unlink(path);
    }
    brim_fs_list_free(names, count);
  }
  brim_status_clear();
  (void)rmdir(folder);
  (void)rmdir(root);
  return 0;
}

typedef struct seen {
  int count;
  brim_job last;
  const char *name;  // of the jobs to count
} seen;

static brim_status on_job(void *ctx, const brim_job *job) {
  seen *s = ctx;
  if (strcmp(job->name, s->name) != 0) return BRIM_OK;  // another program's job on this machine
  s->count++;
  s->last = *job;
  return BRIM_OK;
}

static seen look(const char *name) {
  seen s = {.name = name};
  assert_ok(brim_jobs_each(brim_clock_wall_s(), on_job, &s, NULL));
  return s;
}

static brim_job sample(const char *name) {
  brim_job job;
  brim_job_init(&job);
  snprintf(job.command, sizeof job.command, "train");
  snprintf(job.name, sizeof job.name, "%s", name);
  return job;
}

static seen wait_for_step(const char *name, int64_t step) {
  for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
    seen s = look(name);
    if (s.count == 1 && s.last.step == step) return s;
    usleep(20000);
  }
  fail_msg("step %lld is not published", (long long)step);
  return (seen){0};
}

static void test_a_job_is_seen_while_it_runs(void **state) {
  (void)state;
  struct stat info;
  brim_job job = sample("seen-while-it-runs");
  brim_job_publisher *publisher = brim_job_publisher_start(&job);
  assert_non_null(publisher);
  job.step = 7;
  brim_job_publisher_set(publisher, &job);
  seen s = wait_for_step("seen-while-it-runs", 7);
  assert_int_equal(s.last.pid, getpid());
  assert_true(s.last.pid_start > 0);
  assert_true(s.last.updated_s >= s.last.started_s);
  assert_int_equal(stat(folder, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  brim_job_publisher_stop(publisher);
  assert_int_equal(look("seen-while-it-runs").count, 0);
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_fs_list(folder, &names, &count));
  assert_int_equal(count, 0);
  brim_fs_list_free(names, count);
}

static void test_two_jobs_of_a_process(void **state) {
  (void)state;
  brim_job a = sample("first-of-two"), b = sample("second-of-two");
  brim_job_publisher *first = brim_job_publisher_start(&a), *second = brim_job_publisher_start(&b);
  assert_non_null(first);
  assert_non_null(second);
  (void)wait_for_step("first-of-two", -1);
  (void)wait_for_step("second-of-two", -1);
  brim_job_publisher_stop(first);
  assert_int_equal(look("first-of-two").count, 0);
  assert_int_equal(look("second-of-two").count, 1);
  brim_job_publisher_stop(second);
}

// The file of a killed job is not shown, and removed.
static void test_remains_go(void **state) {
  (void)state;
  char path[1024], text[1024];
  char *const arguments[] = {"sleep", "600", NULL};
  pid_t child;
  assert_int_equal(posix_spawnp(&child, "sleep", NULL, NULL, arguments, environ), 0);
  brim_job job = sample("killed");
  brim_job_identify(&job);
  // the job's process with field 22 of /proc/PID/stat, its start, where the name in brackets is field 2
  job.pid = child;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_non_null(fgets(text, sizeof text, file));
  fclose(file);
  long long start = -1;
  assert_int_equal(sscanf(strrchr(text, ')'),
                          ") %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                          "%*s %*s %lld",
                          &start),
                   1);
  job.pid_start = start;
  job.number = 1;
  job.updated_s = brim_clock_wall_s();
  assert_ok(brim_job_publish(folder, &job));
  seen before = look("killed");
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(before.count, 1);
  seen s = before;
  // gVisor lists a process for a moment after its parent waited for it.
  for (int waited = 0; waited < PATIENCE_MS && s.count > 0; waited += 20) {
    s = look("killed");
    if (s.count > 0) usleep(20000);
  }
  assert_int_equal(s.count, 0);
  snprintf(path, sizeof path, "%s/job-%d-1.json", folder, (int)child);
  assert_false(brim_fs_exists(path));
}

// A PID that another process has now is not the job. A PID from another container counts while its file is young.
static void test_other_processes(void **state) {
  (void)state;
  brim_job job = sample("reused");
  brim_job_identify(&job);
  job.number = 2;
  job.pid_start++;
  job.updated_s = brim_clock_wall_s();
  assert_ok(brim_job_publish(folder, &job));
  assert_int_equal(look("reused").count, 0);
  job.pid_namespace++;
  assert_ok(brim_job_publish(folder, &job));
  assert_int_equal(look("reused").count, 1);
  job.updated_s -= 3600;
  assert_ok(brim_job_publish(folder, &job));
  assert_int_equal(look("reused").count, 0);
  char path[1024];
  snprintf(path, sizeof path, "%s/job-%d-2.json", folder, (int)getpid());
  assert_true(brim_fs_exists(path));  // the job may still run: not ours to remove
}

static void test_garbage_is_skipped(void **state) {
  (void)state;
  char path[1024];
  brim_job job = sample("beside-garbage");
  brim_job_identify(&job);
  job.number = 3;
  assert_ok(brim_job_publish(folder, &job));
  snprintf(path, sizeof path, "%s/job-1-1.json", folder);
  assert_ok(brim_fs_write(path, "{\"schema\":", 10));
  snprintf(path, sizeof path, "%s/job-2-1.json", folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  snprintf(path, sizeof path, "%s/job-3-1.json", folder);
  assert_int_equal(symlink("/etc/passwd", path), 0);
  assert_int_equal(look("beside-garbage").count, 1);
}

// A folder that others can write is not used, and a job that cannot publish continues.
static void test_failures_harm_nothing(void **state) {
  (void)state;
  brim_job job = sample("unpublished");
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(chmod(folder, 0777), 0);
  brim_job_identify(&job);
  assert_int_equal(brim_job_publish(folder, &job), BRIM_EINVAL);
  brim_job_publisher *publisher = brim_job_publisher_start(&job);
  for (int i = 0; i < 100; i++) brim_job_publisher_set(publisher, &job);
  brim_job_publisher_stop(publisher);
  assert_int_equal(look("unpublished").count, 0);
  assert_int_equal(rmdir(folder), 0);
  assert_int_equal(symlink(".", folder), 0);  // leads to the test's own folder, mode 0700
  assert_int_equal(brim_job_publish(folder, &job), BRIM_EINVAL);
  brim_job_publisher_set(NULL, &job);
  brim_job_publisher_stop(NULL);
}

static void name_file(char out[1024], long long pid, int number, const char *end) {
  snprintf(out, 1024, "%s/job-%lld-%d.json%s", folder, pid, number, end);
}

static pid_t dead_pid(void) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  return child;
}

// A job that was killed while writing leaves half a file.
static void test_half_written_files_go(void **state) {
  (void)state;
  char dead[1024], alive[1024];
  pid_t gone = dead_pid();
  double now_s = brim_clock_wall_s();
  assert_int_equal(mkdir(folder, 0700), 0);
  name_file(dead, gone, 1, ".tmp");
  name_file(alive, getpid(), 1, ".tmp");
  assert_ok(brim_fs_write(dead, "{", 1));
  assert_ok(brim_fs_write(alive, "{", 1));
  seen s = {.name = "none"};
  assert_ok(brim_jobs_each(now_s, on_job, &s, NULL));
  assert_true(brim_fs_exists(dead));  // another container may be writing it
  assert_ok(brim_jobs_each(now_s + 120, on_job, &s, NULL));
  assert_false(brim_fs_exists(dead));
  assert_true(brim_fs_exists(alive));
}

static void set_age(const char *path, double when_s) {
  struct timespec times[2] = {{(time_t)when_s, 0}, {(time_t)when_s, 0}};
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

// Only the newest files are read, however many there are. Files of dead processes are removed.
static void test_a_bound_on_files(void **state) {
  (void)state;
  enum { FILES = 400, READ = 256 };
  char path[1024];
  size_t more = 0;
  double now_s = brim_clock_wall_s();
  brim_job job = sample("one-of-many");
  brim_job_identify(&job);
  for (int i = 0; i < FILES; i++) {
    job.number = i;
    job.step = i;
    assert_ok(brim_job_publish(folder, &job));
    name_file(path, getpid(), i, "");
    set_age(path, now_s - 3600 + i);
  }
  seen s = {.name = "one-of-many"};
  assert_ok(brim_jobs_each(now_s, on_job, &s, &more));
  assert_int_equal(s.count, READ);
  assert_int_equal(more, FILES - READ);
  assert_int_equal(s.last.step, FILES - 1);
  // old files of a process that has ended
  job.pid = dead_pid();
  for (int i = 0; i < 50; i++) {
    job.number = i;
    assert_ok(brim_job_publish(folder, &job));
    name_file(path, job.pid, i, "");
    set_age(path, now_s - 7200);
  }
  assert_ok(brim_jobs_each(now_s, on_job, &s, &more));
  assert_int_equal(more, FILES - READ);
  assert_false(brim_fs_exists(path));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_a_job_is_seen_while_it_runs),
      TEST(test_two_jobs_of_a_process),
      TEST(test_remains_go),
      TEST(test_other_processes),
      TEST(test_garbage_is_skipped),
      TEST(test_failures_harm_nothing),
      TEST(test_half_written_files_go),
      TEST(test_a_bound_on_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
