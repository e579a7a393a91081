// Runs a child process to its end. What a child is, base_child.c knows; here are the time limit, the
// caller's wish to stop, and the end of the output.
#include "base/base_process.h"

#include "base/base_alloc.h"
#include "base/base_child.h"
#include "base/base_clock.h"
#include "base/base_status.h"

enum { DEFAULT_OUTPUT = 64 * 1024, KILL_AFTER_MS = 2000, CANCEL_POLL_MS = 100 };

// The last `max` bytes of a stream: grows up to max, then goes round.
typedef struct tail_buffer {
  char *data;
  size_t cap, len, start, max;
} tail_buffer;

static bool tail_grow(tail_buffer *t, size_t need) {
  size_t cap = t->cap ? t->cap : 4096;
  while (cap < need) cap *= 2;
  if (cap > t->max) cap = t->max;
  char *data = brim_realloc(t->data, cap + 1);
  if (!data) return false;
  t->data = data;
  t->cap = cap;
  return true;
}

static bool tail_add(tail_buffer *t, const char *data, size_t n) {
  if (t->cap < t->max && t->len + n > t->cap && !tail_grow(t, t->len + n)) return false;
  for (size_t i = 0; i < n; i++) {
    if (t->len < t->cap) {
      t->data[t->len++] = data[i];
    } else {
      t->data[t->start] = data[i];
      t->start = (t->start + 1) % t->cap;
    }
  }
  return true;
}

static void reverse(char *data, size_t n) {
  for (size_t i = 0; i < n / 2; i++) {
    char c = data[i];
    data[i] = data[n - 1 - i];
    data[n - 1 - i] = c;
  }
}

// Turn the ring so that it starts at 0.
static void tail_finish(tail_buffer *t) {
  if (t->start) {
    reverse(t->data, t->start);
    reverse(t->data + t->start, t->len - t->start);
    reverse(t->data, t->len);
    t->start = 0;
  }
  t->data[t->len] = '\0';
}

static brim_status on_data(void *ctx, brim_child_stream stream, const char *data, size_t size) {
  (void)stream;
  if (tail_add(ctx, data, size)) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory for the output of a child process");
}

// How long to wait before the next look, in ms; -1: until there is news.
static int64_t next_look(const brim_process_options *options, bool stopping, int64_t elapsed_ms) {
  int64_t limit = -1;
  if (stopping) return -1;
  if (options->timeout_ms > 0) limit = options->timeout_ms - elapsed_ms;
  if (options->cancelled && (limit < 0 || limit > CANCEL_POLL_MS)) limit = CANCEL_POLL_MS;
  return limit;
}

// Until the child has ended: collect output, watch the clock and the caller.
static brim_status watch(const brim_process_options *options, brim_child *c, bool *cancelled,
                         brim_process_result *result) {
  brim_time start = brim_clock_now();
  bool stopping = false, ended = false;
  for (;;) {
    BRIM_TRY(brim_child_poll(c, &ended));
    int64_t elapsed_ms = brim_time_since_ns(start, brim_clock_now()) / 1000000;
    if (ended) return BRIM_OK;
    if (!stopping) {
      bool late = options->timeout_ms > 0 && elapsed_ms >= options->timeout_ms;
      *cancelled = options->cancelled && options->cancelled(options->cancel_ctx);
      result->timed_out = late && !*cancelled;
      stopping = late || *cancelled;
      if (stopping) BRIM_TRY(brim_child_stop(c, KILL_AFTER_MS));
    }
    brim_child_wait_any(&c, 1, next_look(options, stopping, elapsed_ms));
  }
}

static brim_status run(const brim_process_options *options, tail_buffer *tail,
                       brim_process_result *result) {
  brim_child_use out = options->capture ? BRIM_CHILD_PIPE : BRIM_CHILD_INHERIT;
  const brim_child_options start = {
      .argv = options->argv,
      .env = options->env,
      .cwd = options->cwd,
      .out = out,
      .err = options->capture ? BRIM_CHILD_MERGE : BRIM_CHILD_INHERIT,
      .on_data = on_data,
      .ctx = tail,
  };
  brim_child *c = NULL;
  bool cancelled = false;
  BRIM_TRY(brim_child_start(&start, &c));
  brim_status status = watch(options, c, &cancelled, result);
  if (!status) {
    const brim_child_result *r = brim_child_get_result(c);
    result->exit_code = r->exit_code;
    result->signal = r->signal;
    result->elapsed_ns = r->elapsed_ns;
  }
  brim_child_close(c);
  if (!status && cancelled)
    status = brim_fail(BRIM_EINTERRUPTED, "%s was interrupted", options->argv[0]);
  return status;
}

brim_status brim_process_run(const brim_process_options *options, brim_process_result *result) {
  *result = (brim_process_result){0};
  tail_buffer tail = {.max = options->max_output ? options->max_output : DEFAULT_OUTPUT};
  if (options->capture && !tail_grow(&tail, 1))
    return brim_fail(BRIM_ENOMEM, "out of memory for the output of a child process");
  brim_status status = run(options, &tail, result);
  if (options->capture && (!status || status == BRIM_EINTERRUPTED)) {
    tail_finish(&tail);
    result->output = tail.data;
    result->output_size = tail.len;
  } else {
    brim_free(tail.data);
  }
  return status;
}

void brim_process_result_deinit(brim_process_result *result) {
  brim_free(result->output);
  result->output = NULL;
  result->output_size = 0;
}
