// Files that an executor exchanges with a server: checkpoints as they appear, a full disk, an absent server, attempts
// that were replaced, damaged files. And files that a worker sends later.
#include "lab_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lab/exec/lab_exec.h"
#include "lab/exec/lab_exec_int.h"
#include "lab/pool/lab_pool.h"
#include "lab/wire/lab_wire_link.h"

enum { TRIES = 3000, PAUSE_US = 10000, NEVER_MS = 1 << 30 };

static lab_place place;
static brim_store *store;
static brim_lab_pool *pool;
static brim_lab_link *link_to;
static brim_store_ref ref;
static char root[64], folder[96], url[64];

static void open_pool(int port) {
  const brim_lab_pool_options options = {
      .store = store, .version = "9.9", .files = root, .port = port};
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
}

static int setup(void **state) {
  static int count;
  (void)state;
  store = lab_fresh(&place);
  if (count == 0 && system("rm -rf exec-files") != 0) fail_msg("cannot remove old files");
  snprintf(root, sizeof root, "exec-files/%d", ++count);
  open_pool(0);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  assert_ok(brim_lab_link_open(url, NULL, &link_to));
  lab_submit(store, "g1", 1, 1);
  ref = lab_run(store, 1);
  snprintf(folder, sizeof folder, "%s/worker/exp/%.12s", root, ref.exp);
  assert_ok(brim_fs_mkdirs(folder));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_lab_link_close(link_to);
  brim_lab_pool_close(pool);
  lab_check(store);
  brim_store_close(store);
  return 0;
}

//---------------------------------- files ----------------------------------

static void put(const char *name, const char *text, size_t size) {
  char *path = brim_fs_join(folder, name);
  assert_ok(brim_fs_write(path, text, size));
  brim_free(path);
}

// Writes a safetensors file of this step with `size` bytes behind its header.
static void put_checkpoint(const char *name, int64_t step, size_t bytes) {
  char *text = calloc(1, bytes + 256);
  assert_non_null(text);
  int n = snprintf(text + 8, 200, "{\"__metadata__\":{\"brim.step\":\"%lld\"}}", (long long)step);
  text[0] = (char)n;
  memset(text + 8 + n, (int)('a' + step % 26), bytes);
  put(name, text, 8 + (size_t)n + bytes);
  free(text);
}

typedef struct looking {
  const char *name;
  int64_t step;
  bool found;
} looking;

static brim_status look(void *ctx, const brim_store_file *f) {
  looking *l = ctx;
  if (strcmp(f->name, l->name) != 0) return BRIM_OK;
  l->step = f->step;
  l->found = true;
  return BRIM_OK;
}

// Asks over the link, because the pool has the store open exclusively.
static bool has(const char *name, int64_t step) {
  looking l = {.name = name, .step = -1};
  assert_ok(brim_lab_files(link_to, ref.exp, look, &l));
  return l.found && l.step == step;
}

static void wait_has(const char *name, int64_t step) {
  for (int i = 0; i < TRIES; i++) {
    if (has(name, step)) return;
    usleep(PAUSE_US);
  }
  fail_msg("%s of step %lld does not come", name, (long long)step);
}

static void wait_state(brim_exec_upload *f, brim_exec_upload_state expected, int64_t patience_ms) {
  brim_exec_upload_state state = BRIM_EXEC_UPLOAD_BUSY;
  for (int i = 0; i < TRIES && state == BRIM_EXEC_UPLOAD_BUSY; i++) {
    state = brim_exec_upload_poll(f, patience_ms);
    usleep(PAUSE_US);
  }
  assert_int_equal(state, expected);
}

static bool always(void *ctx) {
  (void)ctx;
  return true;
}

static bool never(void *ctx) {
  (void)ctx;
  return false;
}

//---------------------------------- tests ----------------------------------

static void test_sent_as_they_come(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  put("attempt-1.log", "one\n", 4);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  assert_int_equal(brim_exec_upload_step(f), -1);
  brim_exec_upload_open_newest(f);  // no file yet
  brim_exec_upload_send(f);
  put_checkpoint("best.safetensors", 5, 3000);
  put_checkpoint("last.safetensors", 10, 2000000);
  put("log.jsonl", "{}\n", 3);
  brim_exec_upload_open_newest(f);
  put_checkpoint("last.safetensors", 11, 50);  // replaced meanwhile
  assert_false(has("checkpoint", 10));         // not complete, so not offered yet
  brim_exec_upload_send(f);
  wait_has("checkpoint", 10);
  assert_true(has("best", -1));
  assert_true(has("record", -1));
  brim_exec_upload_open_newest(f);
  brim_exec_upload_send(f);
  wait_has("checkpoint", 11);
  put("model.safetensors", "weights", 7);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  assert_int_equal(brim_exec_upload_step(f), 11);
  assert_true(has("weights", -1));
  brim_exec_upload_close(f);
  char *log = NULL, path[128];
  snprintf(path, sizeof path, "%s/files/%s/log.1", root, ref.exp);
  assert_ok(brim_fs_read(path, 0, &log, NULL));
  assert_string_equal(log, "one\n");
  brim_free(log);
}

static void test_server_away(void **state) {
  (void)state;
  int port = brim_lab_pool_port(pool);
  brim_exec_upload *f = NULL;
  put_checkpoint("last.safetensors", 7, 1000);
  brim_lab_pool_close(pool);
  pool = NULL;
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_open_newest(f);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_LATER, 1);
  open_pool(port);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  assert_true(has("checkpoint", 7));
  brim_exec_upload_close(f);
}

static void limit_files(rlim_t bytes) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// The disk is full; later it is not.
static void test_full_disk(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  if (lab_is_postgres()) return;
  (void)signal(SIGXFSZ, SIG_IGN);
  put_checkpoint("last.safetensors", 7, 9000000);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  limit_files(3000000);
  brim_exec_upload_open_newest(f);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_LATER, 1);
  assert_false(has("checkpoint", 7));
  limit_files(RLIM_INFINITY);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  assert_true(has("checkpoint", 7));
  brim_exec_upload_close(f);
}

// A log likewise: it is not done before all of it has arrived.
static void test_full_disk_for_a_log(void **state) {
  (void)state;
  enum { SIZE = 2000000 };
  brim_exec_upload *f = NULL;
  uint64_t size = 0;
  char path[128], *text = malloc(SIZE);
  if (lab_is_postgres()) return;
  assert_non_null(text);
  (void)signal(SIGXFSZ, SIG_IGN);
  memset(text, 'x', SIZE);
  put("attempt-1.log", text, SIZE);
  free(text);
  limit_files(700000);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_LATER, 2000);  // several tries
  limit_files(RLIM_INFINITY);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  brim_exec_upload_close(f);
  snprintf(path, sizeof path, "%s/files/%s/log.1", root, ref.exp);
  assert_ok(brim_fs_size(path, &size));
  assert_int_equal(size, SIZE);
}

static void test_stale(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  put_checkpoint("last.safetensors", 7, 1000);
  lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
  lab_clock_ms += 1000000;
  const brim_store_ref next = lab_run(store, 1);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_open_newest(f);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_STALE, NEVER_MS);
  brim_exec_upload_close(f);
  assert_false(has("checkpoint", 7));
  ref = next;
}

// Fetches the checkpoints into another folder.
static void test_fetched(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  char other[128], *path;
  put_checkpoint("best.safetensors", 5, 3000);
  put_checkpoint("last.safetensors", 10, 700000);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_open_newest(f);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  brim_exec_upload_close(f);
  snprintf(other, sizeof other, "%s/other", root);
  assert_ok(brim_fs_mkdirs(other));
  assert_status(brim_exec_fetch(link_to, other, ref.exp, never, NULL), BRIM_EINTERRUPTED);
  assert_int_equal(brim_exec_checkpoint_of(other), -1);
  assert_ok(brim_exec_fetch(link_to, other, ref.exp, always, NULL));
  assert_int_equal(brim_exec_checkpoint_of(other), 10);
  path = brim_fs_join(other, "best.safetensors");
  assert_true(brim_fs_exists(path));
  brim_free(path);
  // a file that is as new stays
  memcpy(folder, other, sizeof folder);
  put_checkpoint("last.safetensors", 12, 9);
  assert_ok(brim_exec_fetch(link_to, other, ref.exp, always, NULL));
  assert_int_equal(brim_exec_checkpoint_of(other), 12);
}

// Damaged bytes on the server's disk: the training starts with the files it has.
static void test_damaged(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  char other[128], command[300];
  put_checkpoint("last.safetensors", 10, 700000);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_open_newest(f);
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_DONE, NEVER_MS);
  brim_exec_upload_close(f);
  snprintf(command, sizeof command,
           "printf x | dd of=$(ls %s/files/%s/checkpoint.*) bs=1 seek=5000 conv=notrunc 2>&1", root,
           ref.exp);
  assert_int_equal(system(command), 0);
  snprintf(other, sizeof other, "%s/other", root);
  assert_ok(brim_fs_mkdirs(other));
  assert_ok(brim_exec_fetch(link_to, other, ref.exp, always, NULL));
  char **names = NULL;
  size_t count = 9;
  assert_ok(brim_fs_list(other, &names, &count));
  assert_int_equal(count, 0);
  brim_fs_list_free(names, count);
}

// The worker sends the files that an executor left unsent, also after the result.
static void test_late(void **state) {
  (void)state;
  brim_lab_uploads *late = NULL;
  char worker[96];
  brim_store_ref owed;
  snprintf(worker, sizeof worker, "%s/worker", root);
  put_checkpoint("last.safetensors", 10, 1000);
  put("model.safetensors", "weights", 7);
  assert_false(brim_exec_pending_find(folder, &owed));
  assert_ok(brim_exec_pending_write(folder, &ref));
  assert_true(brim_exec_pending_find(folder, &owed));
  assert_int_equal(owed.fence, ref.fence);
  assert_string_equal(owed.exp, ref.exp);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  assert_ok(brim_lab_uploads_open(link_to, worker, &late));
  wait_has("weights", -1);
  for (int i = 0; i < TRIES && brim_exec_pending_find(folder, &owed); i++) usleep(PAUSE_US);
  assert_false(brim_exec_pending_find(folder, &owed));
  assert_true(has("checkpoint", 10));
  put("model.safetensors", "others", 6);  // the worker learns of this folder later
  assert_ok(brim_exec_pending_write(folder, &ref));
  brim_lab_uploads_look(late, folder);
  for (int i = 0; i < TRIES && brim_exec_pending_find(folder, &owed); i++) usleep(PAUSE_US);
  assert_false(brim_exec_pending_find(folder, &owed));
  brim_lab_uploads_close(late);
}

// A token that is missing or expired, a certificate, a proxy: these are no answers of the store, so a result waits in
// its spool.
static void test_turned_away(void **state) {
  (void)state;
  const char sha[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  const brim_store_token token = {.id = "one", .role = "admin", .sha256 = sha};
  const brim_store_result fine = {.outcome = BRIM_ATTEMPT_OK};
  int port = brim_lab_pool_port(pool);
  brim_lab_replayed done;
  brim_str lines;
  char worker[96];
  brim_lab_pool_close(pool);
  pool = NULL;
  assert_ok(brim_store_token_add(store, &token));
  open_pool(port);
  brim_str_init(&lines);
  assert_ok(brim_exec_spool_add(
      &lines, &(brim_lab_request){.op = BRIM_LAB_OP_FINISH, .ref = ref, .result = fine}));
  assert_ok(brim_exec_spool_write(folder, ref.attempt, &lines));
  brim_str_deinit(&lines);
  snprintf(worker, sizeof worker, "%s/worker", root);
  assert_status(brim_lab_spool_replay(worker, link_to, &done), BRIM_EIO);
  char *path = brim_fs_join(folder, "attempt-1.spool");
  assert_true(brim_fs_exists(path));
  brim_free(path);
  brim_exec_upload *f = NULL;
  put("model.safetensors", "weights", 7);
  assert_ok(brim_exec_upload_open(link_to, folder, &ref, &f));
  brim_exec_upload_finish(f);
  wait_state(f, BRIM_EXEC_UPLOAD_LATER, 1);
  brim_exec_upload_close(f);
  // the machine itself has no token
  brim_lab_pool_close(pool);
  pool = NULL;
  assert_ok(brim_store_token_end(store, token.id));
  const brim_lab_ops ops = {.store = store};
  brim_lab_link *local = NULL;
  assert_ok(brim_lab_link_local(&ops, &local));
  assert_ok(brim_lab_spool_replay(worker, local, &done));
  assert_int_equal(done.finished, 1);
  brim_lab_link_close(local);
}

// Asserts the files that are not yet at the server, as `brim sweep status` shows them.
static void assert_owed(const char *expected) {
  brim_store_exp *exp = NULL;
  assert_ok(brim_lab_get(link_to, ref.exp, &exp));
  assert_string_equal(exp->owed, expected);
  brim_store_exp_free(exp);
}

static void execute(const char *script, brim_lab_exec_report *out) {
  static const char *const command[] = {"/bin/sh", "training.sh", NULL};
  assert_ok(brim_fs_write("training.sh", script, strlen(script)));
  const brim_lab_exec_options o = {.link = link_to,
                                   .ref = ref,
                                   .folder = folder,
                                   .command = command,
                                   .linger_ms = 20000,
                                   .beat_ms = 20};
  assert_ok(brim_lab_execute(&o, out));
  assert_int_equal(out->end, BRIM_LAB_EXEC_REPORTED);
  assert_int_equal(out->state, BRIM_EXP_DONE);
}

// The spool cannot be written, but the files still arrive.
static void test_files_without_a_spool(void **state) {
  (void)state;
  brim_lab_exec_report r;
  brim_store_ref owed;
  char *path = brim_fs_join(folder, "attempt-1.spool/in the way");
  assert_ok(brim_fs_mkdirs(path));
  brim_free(path);
  execute("printf weights >\"$3/model.safetensors\"\n", &r);
  wait_has("weights", -1);
  assert_owed("");
  assert_false(brim_exec_pending_find(folder, &owed));
}

// The server has the result, but not the files: it lists them as missing until the worker has sent them.
static void test_files_that_are_owed(void **state) {
  (void)state;
  brim_lab_exec_report r;
  brim_store_ref owed;
  brim_lab_uploads *late = NULL;
  char worker[96];
  if (lab_is_postgres()) return;
  (void)signal(SIGXFSZ, SIG_IGN);
  snprintf(worker, sizeof worker, "%s/worker", root);
  put_checkpoint("last.safetensors", 7, 9000000);
  put("model.safetensors", "weights", 7);
  limit_files(3000000);
  execute("", &r);
  limit_files(RLIM_INFINITY);
  assert_owed("checkpoint,weights");
  assert_true(brim_exec_pending_find(folder, &owed));
  assert_ok(brim_lab_uploads_open(link_to, worker, &late));
  for (int i = 0; i < TRIES && brim_exec_pending_find(folder, &owed); i++) usleep(PAUSE_US);
  assert_false(brim_exec_pending_find(folder, &owed));
  assert_owed("");
  brim_lab_uploads_close(late);
}

// A link to a local store has no server to send files to.
static void test_no_server(void **state) {
  (void)state;
  brim_exec_upload *f = NULL;
  brim_lab_link *local = NULL;
  const brim_lab_ops ops = {.store = store};
  assert_ok(brim_lab_link_local(&ops, &local));
  assert_ok(brim_exec_upload_open(local, folder, &ref, &f));
  assert_null(f);
  assert_ok(brim_exec_fetch(local, folder, ref.exp, never, NULL));
  brim_lab_link_close(local);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_sent_as_they_come, setup, teardown),
      cmocka_unit_test_setup_teardown(test_server_away, setup, teardown),
      cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
      cmocka_unit_test_setup_teardown(test_full_disk_for_a_log, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
      cmocka_unit_test_setup_teardown(test_fetched, setup, teardown),
      cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
      cmocka_unit_test_setup_teardown(test_late, setup, teardown),
      cmocka_unit_test_setup_teardown(test_files_without_a_spool, setup, teardown),
      cmocka_unit_test_setup_teardown(test_files_that_are_owed, setup, teardown),
      cmocka_unit_test_setup_teardown(test_turned_away, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_server, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
