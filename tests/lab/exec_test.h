// Shared by the executor's tests: a store with one experiment, a link to it that a test can break, and trainings that
// are a few lines of sh.
#ifndef BRIM_TESTS_LAB_EXEC_TEST_H_
#define BRIM_TESTS_LAB_EXEC_TEST_H_

#include "test.h"

#include <unistd.h>

#include "base/base.h"
#include "lab/exec/lab_exec.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_link.h"

static const char exec_id[] = "00112233445566778899aabbccddeeff";
static const char exec_config[] = "name: one\nseed: 7\n";

typedef struct fixture {
  char place[64], folder[128];
  brim_store *store;
  brim_lab_ops ops, plain;  // `plain` answers without faults
  brim_lab_link *link;
  brim_store_ref ref;
  int calls;               // calls so far
  int down_from, down_to;  // calls in this range are not carried out
  int lost_every;          // one in this many is carried out, and its reply is lost; 0 = none
  volatile sig_atomic_t stop;
  // Called before the nth beat (from 1); and the number of beats.
  void (*on_beat)(struct fixture *f, int n);
  int beats;
  const char *remove;  // a file that another process removes before a result arrives; NULL = none
} fixture;

static inline brim_status interfere(void *ctx, const brim_lab_request *request,
                                    brim_lab_reply *reply, bool *taken) {
  fixture *f = ctx;
  int call = f->calls++;
  bool beat = request->op == BRIM_LAB_OP_BEAT;
  if (beat) f->beats++;
  if (beat && f->on_beat) f->on_beat(f, f->beats);
  if (f->remove && request->op == BRIM_LAB_OP_FINISH) assert_int_equal(remove(f->remove), 0);
  bool down = call >= f->down_from && call < f->down_to;
  bool lost = f->lost_every && call % f->lost_every == f->lost_every - 1;
  *taken = down || lost;
  if (!*taken) return BRIM_OK;
  if (lost && !down) {
    (void)brim_lab_run(&f->plain, request, reply);
    brim_store_exp_free(reply->found);
    *reply = (brim_lab_reply){0};
  }
  return brim_fail(BRIM_EIO, "the test has cut the link");
}

static inline void exec_claim(fixture *f) {
  brim_store_claimed claimed;
  char claim[32];
  static int claims;
  snprintf(claim, sizeof claim, "claim-%d", claims++);
  const brim_store_request want = {.worker = "test", .claim_id = claim, .free_bytes = -1};
  assert_ok(brim_store_claim(f->store, &want, &claimed));
  assert_non_null(claimed.exp);
  f->ref = claimed.ref;
  brim_store_exp_free(claimed.exp);
}

static inline void exec_setup(fixture *f, const char *name) {
  memset(f, 0, sizeof *f);
  snprintf(f->place, sizeof f->place, "place of %s", name);
  snprintf(f->folder, sizeof f->folder, "%s/exp/%.12s", f->place, exec_id);
  char command[160];
  snprintf(command, sizeof command, "rm -rf '%s'", f->place);
  assert_int_equal(system(command), 0);
  const brim_store_options o = {.backoff_ms = 1};
  assert_ok(brim_store_open(f->place, &o, &f->store));
  const brim_store_grid grid = {.id = "g", .name = "g", .text = "", .version = "test"};
  const brim_store_point point = {
      .id = exec_id, .label = "one", .config = exec_config, .metric_key = "eval_loss", .tries = 2};
  brim_store_submitted submitted;
  assert_ok(brim_store_submit(f->store, &grid, &point, 1, &submitted));
  f->plain = (brim_lab_ops){.store = f->store};
  f->ops = (brim_lab_ops){.store = f->store, .answer = interfere, .ctx = f};
  assert_ok(brim_lab_link_local(&f->ops, &f->link));
  exec_claim(f);
}

static inline void exec_teardown(fixture *f) {
  brim_lab_link_close(f->link);
  brim_store_close(f->store);
}

// Runs the lines as the training: $1 is the config, $3 the output folder.
static inline brim_status exec_run(fixture *f, const char *script, brim_lab_exec_options o,
                                   brim_lab_exec_report *out) {
  static const char *const command[] = {"/bin/sh", "training.sh", NULL};
  brim_str text;
  brim_str_init(&text);
  brim_str_append(
      &text,
      "dir=$3\n"
      "start() { echo '{\"event\":\"start\",\"epochs\":2,\"steps\":20,"
      "\"steps_per_epoch\":10,\"start_step\":'${1:-0}'}'; }\n"
      "row() { echo \"{\\\"event\\\":\\\"epoch\\\",\\\"epoch\\\":$1,\\\"step\\\":$2,"
      "\\\"eval_loss\\\":$3,\\\"eval_s\\\":0.5}\" >>\"$dir/log.jsonl\"; }\n"
      "error() { echo '{\"event\":\"error\",\"status\":\"'$1'\",\"message\":\"'\"$2\"'\""
      "'\"$3\"'}'; }\n"
      "result() { echo '{\"event\":\"result\",\"steps\":20,\"epochs\":2,"
      "\"interrupted\":false}'; }\n");
  brim_str_append(&text, script);
  assert_ok(brim_fs_write("training.sh", text.data, text.len));
  brim_str_deinit(&text);
  o.link = f->link;
  o.ref = f->ref;
  o.folder = f->folder;
  if (!o.command) o.command = command;
  o.stop = &f->stop;
  if (!o.beat_ms) o.beat_ms = 20;
  return brim_lab_execute(&o, out);
}

typedef struct metric_rows {
  int count;
  double sum;  // sum of step * value
} metric_rows;

static inline brim_status count_metric(void *ctx, const brim_store_metric *row, int64_t attempt) {
  metric_rows *m = ctx;
  (void)attempt;
  m->count++;
  m->sum += (double)row->step * row->value;
  return BRIM_OK;
}

static inline metric_rows exec_metrics(fixture *f, const char *key) {
  metric_rows m = {0};
  assert_ok(brim_store_read_metrics(f->store, exec_id, key, count_metric, &m));
  return m;
}

static inline brim_store_exp *exec_get(fixture *f) {
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(f->store, exec_id, &exp));
  return exp;
}

static inline bool exec_has(const fixture *f, const char *name) {
  char *path = brim_fs_join(f->folder, name);
  bool there = brim_fs_exists(path);
  brim_free(path);
  return there;
}

#endif  // BRIM_TESTS_LAB_EXEC_TEST_H_
