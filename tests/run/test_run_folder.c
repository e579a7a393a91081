// The folder of a run: files of others stay unchanged; training survives a log that cannot be written and a removed folder;
// files are synced to disk.
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine.h"
#include "run/run_test.h"
#include "sync_calls.h"

//---------------------------------- files of others ----------------------------------

static void put(const char *folder, const char *name, const char *text) {
  char *path = brim_fs_join(folder, name);
  assert_non_null(path);
  assert_ok(brim_fs_mkdirs(folder));
  assert_ok(brim_fs_write(path, text, strlen(text)));
  brim_free(path);
}

// not inline: gcc 12 then sees a dangling pointer where there is none
__attribute__((noinline)) static char *text_of(const char *folder, const char *name) {
  return slurp(folder, name);
}

static void assert_text(const char *folder, const char *name, const char *want) {
  char *text = text_of(folder, name);
  assert_string_equal(text, want);
  brim_free(text);
}

static void test_foreign_files(void **state) {
  (void)state;
  static const struct {
    const char *name, *text;
  } foreign[] = {{"config.yaml", "# my own\nworkload: supervised\n"},
                 {"config.yaml", "workload: supervised\nseed: 1\n"},
                 {"log.csv", "my,table\n1,2\n"},
                 {"log.1.csv", "my,table\n1,2\n"},
                 {"log.jsonl", "{\"mine\":1}\n"},
                 {"log.jsonl", "{\"event\":\"x\"}\n{\"step\":1}\n"},
                 {"log.7.jsonl", "text"},
                 {"best.safetensors", "my notes on the best"},
                 {"step-00000005.safetensors", "mine"},
                 {"lock", "my door\n"},
                 {"lock", "1234 monkeys\n"}};
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    brim_run_result r;
    fresh("theirs");
    put("theirs", foreign[i].name, foreign[i].text);
    put("theirs", "notes.txt", "mine");
    job j = {.folder = "theirs", .overrides = {"training.epochs=1"}};
    brim_status status = run(&j, &r);
    if (status != BRIM_EEXIST) {
      fail_msg("%s: %s", foreign[i].name, status ? brim_status_detail() : "trained");
    }
    char want[64];
    snprintf(want, sizeof want, "theirs/%s was not written by brim", foreign[i].name);
    assert_non_null(strstr(brim_status_detail(), want));
    assert_non_null(strstr(brim_status_detail(), "--output-dir"));
    assert_text("theirs", foreign[i].name, foreign[i].text);
    char **names = NULL;
    size_t count = 0;
    assert_ok(brim_fs_list("theirs", &names, &count));
    assert_int_equal(count, 2);  // nothing was added, nothing removed
    brim_fs_list_free(names, count);
  }
}

static void test_foreign_checkpoint(void **state) {
  (void)state;
  static const char *const names[] = {"last.safetensors", "best.safetensors", "model.safetensors",
                                      "step-00000012.safetensors"};
  const float one = 1;
  const brim_safetensors_entry e = {
      .name = "w", .dtype = BRIM_F32, .rank = 1, .dim = {1}, .data = &one, .bytes = 4};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    brim_run_result r;
    fresh("theirs");
    assert_ok(brim_fs_mkdirs("theirs"));
    char *path = brim_fs_join("theirs", names[i]);
    assert_ok(brim_safetensors_write(path, &e, 1, NULL));
    job j = {.folder = "theirs", .overrides = {"training.epochs=1"}};
    assert_status(run(&j, &r), BRIM_EEXIST);
    assert_non_null(strstr(brim_status_detail(), names[i]));
    brim_free(path);
  }
}

// Names that this run does not write are left alone, such as a log that is turned off.
static void test_other_files_stay(void **state) {
  (void)state;
  brim_run_result r;
  fresh("beside");
  put("beside", "notes.txt", "mine");
  put("beside", "log.txt", "mine");
  put("beside", "log.x.csv", "mine");
  put("beside", "log.csv", "mine");
  put("beside", "log.csv.tmp.999999999.0", "mine");  // named like a leftover temporary of brim's
  job j = {.folder = "beside", .overrides = {"training.epochs=1", "log.csv=false"}};
  assert_ok(run(&j, &r));
  assert_text("beside", "notes.txt", "mine");
  assert_text("beside", "log.txt", "mine");
  assert_text("beside", "log.x.csv", "mine");
  assert_text("beside", "log.csv", "mine");
  assert_text("beside", "log.csv.tmp.999999999.0", "mine");
  assert_true(exists("beside", "last.safetensors"));
}

// A run killed at its start leaves a lock, possibly empty; 0.1 wrote the PID alone.
static void test_lock_left_behind(void **state) {
  (void)state;
  static const char *const locks[] = {"", "4194305\n", "4194305 brim\n"};
  for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
    brim_run_result r;
    fresh("killed");
    put("killed", "lock", locks[i]);
    job j = {.folder = "killed", .overrides = {"training.epochs=1"}};
    assert_ok(run(&j, &r));
    assert_false(exists("killed", "lock"));
    assert_true(exists("killed", "model.safetensors"));
  }
}

// Version 0.1 wrote config.yaml without its first line and the lock as a PID.
static void test_folder_of_01(void **state) {
  (void)state;
  brim_run_result r;
  fresh("old");
  job j = {.folder = "old", .overrides = {"training.epochs=2"}, .max_steps = 5};
  assert_ok(run(&j, &r));
  char *config = text_of("old", "config.yaml");
  assert_true(brim_str_starts(config, "# written by brim train"));
  const char *rest = strchr(config, '\n') + 1;
  // a comment in it, or another order, shows that a person wrote it
  char noted[8192];
  j.resume = true;
  snprintf(noted, sizeof noted, "%s# my note\n", rest);
  put("old", "config.yaml", noted);
  assert_status(run(&j, &r), BRIM_EEXIST);
  snprintf(noted, sizeof noted, "name: x\n%s", rest);
  put("old", "config.yaml", noted);
  assert_status(run(&j, &r), BRIM_EEXIST);
  put("old", "config.yaml", rest);
  put("old", "lock", "4194305\n");
  brim_free(config);
  j.max_steps = 0;
  assert_ok(run(&j, &r));
  assert_int_equal(r.epochs, 2);
  assert_false(exists("old", "lock"));
  // overwritten if the caller asks for it, as before
  put("old", "lock", "4194305\n");
  j.resume = false;
  assert_ok(run(&j, &r));
}

//---------------------------------- logs that fail ----------------------------------

static const char *blocked;  // turned into a folder at step 3, and back at step 9
static void block(void *ctx, const brim_run_steps *steps) {
  (void)ctx;
  char kept[128];
  snprintf(kept, sizeof kept, "%s.kept", blocked);
  if (steps->step == 3) {
    assert_int_equal(rename(blocked, kept), 0);
    assert_ok(brim_fs_mkdirs(blocked));
  } else if (steps->step == 9) {
    assert_ok(brim_fs_remove(blocked));
    assert_int_equal(rename(kept, blocked), 0);
  }
}

// log.jsonl is a folder for a while: one warning, and no row is lost.
static void test_blocked_log(void **state) {
  (void)state;
  brim_run_result r;
  fresh("plain");
  fresh("blocked");
  job j = {.folder = "plain", .overrides = {"training.epochs=2", "log.interval=1"}};
  assert_ok(run(&j, &r));
  int64_t steps = r.steps;
  blocked = "blocked/log.jsonl";
  j.folder = "blocked";
  j.on_steps = block;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_int_equal(r.steps, steps);
  assert_int_equal(count_of(warned, "the run continues"), 1);
  assert_int_equal(count_of(warned, "log.jsonl is writable again"), 1);
  assert_int_equal(count_of(warned, "lost"), 0);
  char *a = text_of("plain", "log.jsonl"), *b = text_of("blocked", "log.jsonl");
  assert_int_equal(count_of(a, "\"event\":\"steps\""), count_of(b, "\"event\":\"steps\""));
  assert_int_equal(count_of(b, "\"event\":\"steps\""), (int)steps);
  const char *at = b;  // events are in the order of their steps
  for (int i = 1; i <= (int)steps; i++) {
    char want[32];
    snprintf(want, sizeof want, "\"step\":%d,", i);
    at = strstr(at, want);
    assert_non_null(at);
  }
  brim_free(a);
  brim_free(b);
  assert_same("plain", "blocked", "model.safetensors");
}

static void block_for_good(void *ctx, const brim_run_steps *steps) {
  (void)ctx;
  if (steps->step != 3) return;
  assert_int_equal(rename("blocked/log.csv", "blocked/kept.csv"), 0);
  assert_ok(brim_fs_mkdirs("blocked/log.csv"));
}

static void test_log_that_stays_blocked(void **state) {
  (void)state;
  brim_run_result r;
  fresh("blocked");
  job j = {.folder = "blocked",
           .overrides = {"training.epochs=2", "log.interval=1"},
           .on_steps = block_for_good};
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_int_equal(count_of(warned, "the run continues"), 1);
  assert_int_equal(count_of(warned, "2 rows of log.csv are lost"), 1);
  assert_true(exists("blocked", "last.safetensors"));
  assert_true(exists("blocked", "model.safetensors"));
}

// The disk is full for the logs only: a limit on the size of files cuts event files and rows short.
static struct rlimit usual;
static void fill_disk(void *ctx, const brim_run_steps *steps) {
  (void)ctx;
  struct rlimit small = usual;
  small.rlim_cur = 700;
  if (steps->step == 3) assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  if (steps->step == 9) assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
}

static void test_full_disk(void **state) {
  (void)state;
  brim_run_result r;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
  fresh("full");
  job j = {.folder = "full",
           .overrides = {"training.epochs=1", "log.interval=1", "log.tensorboard=true"},
           .on_steps = fill_disk};
  listen_now();
  brim_status status = run(&j, &r);
  listen_no_more();
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
  assert_ok(status);
  assert_true(count_of(warned, "the run continues") >= 1);
  assert_int_equal(count_of(warned, "lost"), 0);
  char *text = text_of("full", "log.jsonl");
  assert_int_equal(count_of(text, "\"event\":\"steps\""), (int)r.steps);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    assert_int_equal(line[strlen(line) - 1], '}');  // only whole lines
  }
  brim_free(text);
}

//---------------------------------- a removed folder ----------------------------------

static void remove_folder(void *ctx, const brim_run_steps *steps) {
  (void)ctx;
  if (steps->step != 3) return;
  fresh("moved");  // moved in one rename: a checkpoint may be about to enter it
  assert_int_equal(rename("gone", "moved"), 0);
}

static void test_removed_folder(void **state) {
  (void)state;
  brim_run_result r;
  fresh("stays");
  fresh("gone");
  job j = {.folder = "stays",
           .overrides = {"training.epochs=2", "log.interval=1", "checkpoint.interval=2",
                         "log.tensorboard=true"}};
  assert_ok(run(&j, &r));
  j.folder = "gone";
  j.on_steps = remove_folder;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_true(count_of(warned, "gone was removed during the run") >= 1);
  assert_same("stays", "gone", "model.safetensors");
  assert_same("stays", "gone", "last.safetensors");
  assert_true(exists("gone", "config.yaml"));
  assert_false(exists("gone", "lock"));
  char *text = text_of("gone", "log.jsonl");
  assert_int_equal(count_of(text, "\"event\":\"steps\""), (int)r.steps - 2);  // all steps from 3 on
  brim_free(text);
  char **names = NULL;
  size_t count = 0, events = 0;
  assert_ok(brim_fs_list("gone", &names, &count));
  for (size_t i = 0; i < count; i++) events += brim_str_starts(names[i], "events.out");
  brim_fs_list_free(names, count);
  assert_int_equal(events, 1);
  // and the run can be resumed
  job more = {.folder = "gone", .overrides = {"training.epochs=3"}, .resume = true};
  assert_ok(run(&more, &r));
  assert_int_equal(r.epochs, 3);
}

// The folder is removed while a checkpoint is being written, before it gets its name.
static int times_moved;
static void move_while_saving(const char *path) {
  if (times_moved > 0 || !strstr(path, "/last.safetensors.tmp.")) return;
  times_moved++;
  fresh("moved");
  assert_int_equal(__real_rename("gone", "moved"), 0);
}

static void test_removed_while_saving(void **state) {
  (void)state;
  brim_run_result r;
  fresh("stays");
  fresh("gone");
  job j = {.folder = "stays", .overrides = {"training.epochs=2", "checkpoint.interval=3"}};
  assert_ok(run(&j, &r));
  j.folder = "gone";
  times_moved = 0;
  sync_hook = move_while_saving;
  brim_status status = run(&j, &r);
  sync_hook = NULL;
  assert_ok(status);
  assert_int_equal(times_moved, 1);
  assert_same("stays", "gone", "model.safetensors");
  assert_same("stays", "gone", "last.safetensors");
}

//---------------------------------- bad checkpoints ----------------------------------

// The same checkpoint with one weight NaN.
static void spoil(const char *path) {
  enum { MOST = 64 };
  brim_safetensors_entry entries[MOST];
  brim_safetensors *file = NULL;
  float *weights = NULL;
  assert_ok(brim_safetensors_open(path, &file));
  size_t count = brim_safetensors_count(file);
  assert_true(count > 0 && count <= MOST);
  for (size_t i = 0; i < count; i++) {
    entries[i] = *brim_safetensors_at(file, i);
    if (weights || entries[i].dtype != BRIM_F32 || entries[i].bytes == 0) continue;
    weights = brim_alloc(entries[i].bytes);
    assert_non_null(weights);
    memcpy(weights, entries[i].data, entries[i].bytes);
    weights[0] = (float)NAN;
    entries[i].data = weights;
  }
  assert_non_null(weights);
  json_t *metadata = json_deep_copy(brim_safetensors_metadata(file));
  (void)json_object_del(metadata, "brim.checksum");
  assert_ok(brim_safetensors_write("spoilt.safetensors", entries, count, metadata));
  json_decref(metadata);
  brim_safetensors_close(file);
  brim_free(weights);
  assert_int_equal(__real_rename("spoilt.safetensors", path), 0);
}

static void test_nan_is_passed_over(void **state) {
  (void)state;
  brim_run_result r;
  fresh("whole");
  fresh("spoilt");
  job j = {.folder = "whole", .overrides = {"training.epochs=2", "checkpoint.interval=4"}};
  assert_ok(run(&j, &r));
  j.folder = "spoilt";
  j.max_steps = 10;
  assert_ok(run(&j, &r));
  spoil("spoilt/last.safetensors");
  j.max_steps = 0;
  j.resume = true;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_true(count_of(warned, "last.safetensors") >= 1);
  assert_true(count_of(warned, "NaN") >= 1);
  assert_same("whole", "spoilt", "model.safetensors");
}

// Among equally good epochs the first is the best.
static void test_first_of_equals(void **state) {
  (void)state;
  brim_run_result r;
  fresh("equal");
  job j = {.folder = "equal", .overrides = {"training.epochs=3", "optimizer=sgd(lr=0)"}};
  assert_ok(run(&j, &r));
  assert_int_equal(r.epochs, 3);
  assert_int_equal(r.best_epoch, 1);
}

//---------------------------------- on the disk ----------------------------------

// Every renamed file is synced before the rename, and its folder after it.
static void test_synced(void **state) {
  (void)state;
  brim_run_result r;
  fresh("synced");
  sync_begin();
  job j = {.folder = "synced",
           .overrides = {"training.epochs=2", "checkpoint.interval=4", "checkpoint.keep=3"}};
  assert_ok(run(&j, &r));
  static const char *const files[] = {"config.yaml", "last.safetensors", "best.safetensors",
                                      "model.safetensors", "log.csv"};
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    int renames = 0;
    for (size_t i = 0; i < sync_count; i++) {
      if (sync_calls[i].what != 'r' || !sync_ends(sync_calls[i].path, files[f])) continue;
      renames++;
      assert_true(sync_folder_after(i, "/synced"));
      // the first file of a name is written; later ones may be links to a file on disk
      bool linked = renames > 1 && strcmp(files[f], "last.safetensors") == 0;
      bool first_link = renames == 1 && strcmp(files[f], "last.safetensors") == 0 &&
                        sync_file_before(i, "best.safetensors");
      if (!sync_file_before(i, files[f]) && !linked && !first_link) {
        fail_msg("%s gets its name before it is synced", files[f]);
      }
    }
    assert_true(renames > 0);
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_foreign_files),
      cmocka_unit_test(test_foreign_checkpoint),
      cmocka_unit_test(test_other_files_stay),
      cmocka_unit_test(test_folder_of_01),
      cmocka_unit_test(test_lock_left_behind),
      cmocka_unit_test(test_blocked_log),
      cmocka_unit_test(test_log_that_stays_blocked),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_removed_folder),
      cmocka_unit_test(test_removed_while_saving),
      cmocka_unit_test(test_nan_is_passed_over),
      cmocka_unit_test(test_first_of_equals),
      cmocka_unit_test(test_synced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
