// A source that is read in a thread: a slow one delays nothing else; failures, and an end while it reads.
#include <poll.h>
#include <semaphore.h>

#include "monitor/monitor.h"
#include "test.h"

// Opening and reading block until the test releases them.
typedef struct gate {
  sem_t open, read, closed;  // posted by the test; by the test and the source
  sem_t began;               // a reading has begun
  brim_status opens, reads;
  int readings;
} gate;

static void gate_init(gate *g) {
  memset(g, 0, sizeof *g);
  assert_int_equal(sem_init(&g->open, 0, 0), 0);
  assert_int_equal(sem_init(&g->read, 0, 0), 0);
  assert_int_equal(sem_init(&g->closed, 0, 0), 0);
  assert_int_equal(sem_init(&g->began, 0, 0), 0);
}

static void pass(sem_t *sem) {
  while (sem_wait(sem)) {
  }
}

static brim_status gate_read(void *ctx, unsigned want, brim_top_view *out) {
  gate *g = ctx;
  sem_post(&g->began);
  pass(&g->read);
  if (g->reads) return brim_fail(g->reads, "the source is broken");
  brim_top_view_clear(out);
  out->when_s = ++g->readings;
  out->interval_s = want;
  return BRIM_OK;
}

static void gate_close(void *ctx) { (void)sem_post(&((gate *)ctx)->closed); }

static brim_status gate_open(void *ctx, brim_top_source *out) {
  gate *g = ctx;
  pass(&g->open);
  if (g->opens) return brim_fail(g->opens, "the source does not open");
  *out = (brim_top_source){.name = "gate", .ctx = g, .read = gate_read, .close = gate_close};
  return BRIM_OK;
}

static brim_top_reader *start(gate *g) {
  brim_top_reader *reader = NULL;
  gate_init(g);
  assert_ok(brim_top_reader_start(gate_open, g, &reader));
  return reader;
}

// Waits until a reading has ended.
static brim_top_reader_state await(brim_top_reader *reader) {
  struct pollfd done = {.fd = brim_top_reader_fd(reader), .events = POLLIN};
  assert_int_equal(poll(&done, 1, 60000), 1);
  return brim_top_reader_poll(reader);
}

static void test_nothing_waits_for_a_reading(void **state) {
  (void)state;
  gate g;
  brim_top_view view;
  brim_top_view_init(&view);
  brim_top_reader *reader = start(&g);
  assert_int_equal(brim_top_reader_poll(reader), BRIM_TOP_READER_OPENING);
  brim_top_reader_request(reader, 1);  // too early, so it does nothing
  assert_true(brim_top_reader_busy_s(reader) >= 0);
  assert_status(brim_top_reader_take(reader, &view), BRIM_ESTATE);
  sem_post(&g.open);
  assert_int_equal(await(reader), BRIM_TOP_READER_IDLE);
  for (int i = 1; i <= 3; i++) {
    brim_top_reader_request(reader, (unsigned)i);
    brim_top_reader_request(reader, 9);  // one is already under way
    assert_int_equal(brim_top_reader_poll(reader), BRIM_TOP_READER_READING);
    assert_status(brim_top_reader_take(reader, &view), BRIM_ESTATE);
    sem_post(&g.read);
    assert_int_equal(await(reader), BRIM_TOP_READER_DONE);
    assert_ok(brim_top_reader_take(reader, &view));
    assert_true(view.when_s == i && view.interval_s == i);
    assert_int_equal(brim_top_reader_poll(reader), BRIM_TOP_READER_IDLE);
  }
  brim_top_reader_stop(reader);
  pass(&g.closed);
  assert_int_equal(g.readings, 3);
  brim_top_view_deinit(&view);
}

static void test_failures_are_handed_over(void **state) {
  (void)state;
  gate g;
  brim_top_view view;
  brim_top_view_init(&view);
  brim_top_reader *reader = start(&g);
  g.opens = BRIM_EIO;
  sem_post(&g.open);
  assert_int_equal(await(reader), BRIM_TOP_READER_DONE);
  assert_status(brim_top_reader_take(reader, &view), BRIM_EIO);
  assert_string_equal(brim_status_detail(), "the source does not open");
  brim_top_reader_stop(reader);
  reader = start(&g);
  sem_post(&g.open);
  assert_int_equal(await(reader), BRIM_TOP_READER_IDLE);
  g.reads = BRIM_ENOMEM;
  brim_top_reader_request(reader, 1);
  sem_post(&g.read);
  assert_int_equal(await(reader), BRIM_TOP_READER_DONE);
  assert_status(brim_top_reader_take(reader, &view), BRIM_ENOMEM);
  assert_string_equal(brim_status_detail(), "the source is broken");
  brim_top_reader_stop(reader);
  brim_top_reader_stop(NULL);
  brim_top_view_deinit(&view);
}

// A driver that does not answer delays nothing, neither in opening nor in reading; the thread cleans up.
static void test_it_ends_while_it_reads(void **state) {
  (void)state;
  gate g;
  brim_top_reader *reader = start(&g);
  brim_top_reader_stop(reader);
  sem_post(&g.open);
  pass(&g.closed);
  reader = start(&g);
  sem_post(&g.open);
  assert_int_equal(await(reader), BRIM_TOP_READER_IDLE);
  brim_top_reader_request(reader, 1);
  pass(&g.began);
  brim_top_reader_stop(reader);
  sem_post(&g.read);
  pass(&g.closed);
  assert_int_equal(g.readings, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_waits_for_a_reading),
      cmocka_unit_test(test_failures_are_handed_over),
      cmocka_unit_test(test_it_ends_while_it_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
