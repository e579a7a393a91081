// Talking to `brim sweep plan`: few questions at a time, answers as they come, and a new child behind
// whatever the last one did not survive.
#include "lab/lab_plan_child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base_child.h"

enum {
  WINDOW = 4,  // questions without an answer
  WAIT_MS = 200,
  LIMIT_MS = 120000,
  LIMIT_MEASURE_MS = 600000,
  LOST_CHILDREN = 3
};

typedef struct talk {
  const brim_lab_plan_options *options;
  const brim_lab_plan_job *jobs;
  size_t count, sent, done;
  brim_child *child;
  brim_str out;      // of the question that is being written
  size_t written;    // of it
  brim_time heard;   // when the last answer came, or the child began
  int silent;        // children in a row that ended without an answer
  char visible[96];  // "CUDA_VISIBLE_DEVICES=.." of the child; "" = all devices
  char last[256];    // line of its stderr
} talk;

// A device by its UUID is the only one of its child: CUDA shows one slice of a GPU to a process.
static bool is_uuid(const char *device) {
  return brim_str_starts(device, "GPU-") || brim_str_starts(device, "MIG-");
}

static const char *asked_for(const char *device) { return is_uuid(device) ? "cuda:0" : device; }

static void visible_of(const char *device, char out[96]) {
  out[0] = '\0';
  if (is_uuid(device)) snprintf(out, 96, "CUDA_VISIBLE_DEVICES=%.63s", device);
}

static void tell(const talk *t) {
  if (t->options->on_plan) t->options->on_plan(t->options->ctx, t->done, t->count);
}

static brim_status on_line(void *ctx, const brim_child_line *line) {
  talk *t = ctx;
  if (line->stream == BRIM_CHILD_ERR) {
    if (line->size) snprintf(t->last, sizeof t->last, "%.*s", (int)sizeof t->last - 1, line->text);
    brim_utf8_trim(t->last);
    return BRIM_OK;
  }
  json_t *value;
  brim_lab_plan plan;
  // Libraries may print too: what is not the answer is left alone.
  if (t->done == t->sent || brim_json_parse(line->text, line->size, "plan", &value)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_lab_plan_job *job = &t->jobs[t->done];
  brim_status status = brim_lab_plan_from_json(value, &plan);
  json_decref(value);
  if (status || strcmp(plan.id, job->id) != 0 || strcmp(plan.device, asked_for(job->device)) != 0) {
    brim_status_clear();
    return BRIM_OK;
  }
  *job->out = plan;
  snprintf(job->out->device, sizeof job->out->device, "%s", job->device);
  t->done++;
  t->silent = 0;
  t->heard = brim_clock_now();
  tell(t);
  return BRIM_OK;
}

static brim_status start(talk *t) {
  // Devices count as the sweep counts them.
  visible_of(t->jobs[t->done].device, t->visible);
  const char *const order[] = {"CUDA_DEVICE_ORDER=PCI_BUS_ID", t->visible[0] ? t->visible : NULL,
                               NULL};
  const brim_child_options options = {.argv = t->options->command,
                                      .env_change = order,
                                      .in = BRIM_CHILD_PIPE,
                                      .out = BRIM_CHILD_PIPE,
                                      .err = BRIM_CHILD_PIPE,
                                      .die_with_parent = true,
                                      .on_line = on_line,
                                      .ctx = t};
  t->sent = t->done;
  t->written = 0;
  t->last[0] = '\0';
  t->heard = brim_clock_now();
  brim_str_clear(&t->out);
  return brim_child_start(&options, &t->child);
}

static brim_status question(const talk *t, json_t *o) {
  const brim_lab_plan_job *job = &t->jobs[t->sent];
  BRIM_TRY(brim_json_put(o, "id", json_string(job->id)));
  BRIM_TRY(brim_json_put(o, "config", json_string(job->config)));
  BRIM_TRY(brim_json_put(o, "device", json_string(asked_for(job->device))));
  return brim_json_put(o, "measure", json_boolean(t->options->measure));
}

static brim_status ask(talk *t) {
  char *text = NULL;
  json_t *o = json_object();
  brim_status status = o ? question(t, o) : brim_fail(BRIM_ENOMEM, "out of memory for a plan");
  if (!status) status = brim_json_dump(o, 0, &text);
  json_decref(o);
  if (status) return status;
  brim_str_clear(&t->out);
  brim_str_printf(&t->out, "%s\n", text);
  brim_free(text);
  t->written = 0;
  t->sent++;
  return brim_str_status(&t->out);
}

// Does the next question need a child that sees other devices?
static bool needs_another(const talk *t) {
  char visible[96];
  if (t->sent == t->count) return false;
  visible_of(t->jobs[t->sent].device, visible);
  return strcmp(visible, t->visible) != 0;
}

// As much as the child takes. One that reads no more ends before long, which says why.
static brim_status write_some(talk *t) {
  for (;;) {
    if (t->written == t->out.len) {
      if (t->sent == t->count || t->sent - t->done >= WINDOW || needs_another(t)) return BRIM_OK;
      BRIM_TRY(ask(t));
    }
    size_t n = 0;
    brim_status status =
        brim_child_write(t->child, t->out.data + t->written, t->out.len - t->written, &n);
    if (status == BRIM_EEND) {
      brim_status_clear();
      return BRIM_OK;
    }
    if (status || n == 0) return status;
    t->written += n;
  }
}

// What was asked first has no answer.
static void lose(talk *t, brim_failure failure) {
  brim_lab_plan *plan = t->jobs[t->done].out;
  const brim_child_result *r =
      failure == BRIM_FAILURE_HUNG ? NULL : brim_child_get_result(t->child);
  plan->failure = failure;
  if (!r) {
    snprintf(plan->message, sizeof plan->message, "%s",
             brim_tr("planning took too long and was ended"));
  } else if (r->signal) {
    snprintf(plan->message, sizeof plan->message, brim_tr("planning was ended by signal %d"),
             r->signal);
  } else {
    snprintf(plan->message, sizeof plan->message,
             brim_tr("planning ended with exit code %d without an answer: %s"), r->exit_code,
             t->last);
  }
  brim_utf8_trim(plan->message);
  t->done++;
  t->silent++;
  tell(t);
}

static brim_status lost_too_many(const talk *t) {
  const brim_lab_plan *plan = t->jobs[t->done - 1].out;
  return brim_fail(BRIM_ECHILD, "cannot plan the experiments: %s", plan->message);
}

static void wait_for(talk *t) {
  struct pollfd fds[BRIM_CHILD_FDS + 1];
  int limit = -1;
  nfds_t n = (nfds_t)brim_child_fds(t->child, fds, &limit);
  if (t->written < t->out.len && brim_child_input_fd(t->child) >= 0) {
    fds[n++] = (struct pollfd){.fd = brim_child_input_fd(t->child), .events = POLLOUT};
  }
  (void)poll(fds, n, limit >= 0 && limit < WAIT_MS ? limit : WAIT_MS);
}

static bool is_late(const talk *t) {
  int64_t limit = t->options->limit_ms;
  if (limit <= 0) limit = t->options->measure ? LIMIT_MEASURE_MS : LIMIT_MS;
  return brim_time_since_ns(t->heard, brim_clock_now()) > limit * 1000000;
}

static brim_status turn(talk *t) {
  bool ended = false;
  if (t->options->stop && *t->options->stop) {
    return brim_fail(BRIM_EINTERRUPTED, "planning was interrupted");
  }
  if (t->child && t->done == t->sent && needs_another(t)) {
    brim_child_close(t->child);
    t->child = NULL;
  }
  if (!t->child) BRIM_TRY(start(t));
  BRIM_TRY(write_some(t));
  wait_for(t);
  BRIM_TRY(brim_child_poll(t->child, &ended));
  const bool late = !ended && is_late(t);
  if (t->done == t->count || (!ended && !late)) return BRIM_OK;
  lose(t, late ? BRIM_FAILURE_HUNG : BRIM_FAILURE_CRASH);
  brim_child_close(t->child);
  t->child = NULL;
  return t->silent >= LOST_CHILDREN ? lost_too_many(t) : BRIM_OK;
}

brim_status brim_lab_plan_child_run(const brim_lab_plan_options *options,
                                    const brim_lab_plan_job *jobs, size_t count) {
  talk t = {.options = options, .jobs = jobs, .count = count};
  brim_status status = BRIM_OK;
  brim_str_init(&t.out);
  brim_json_setup();
  while (t.done < count && !status) status = turn(&t);
  brim_child_close(t.child);
  brim_str_deinit(&t.out);
  return status;
}
