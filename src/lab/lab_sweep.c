// The sweep's loop: opening, turns, stopping (lab_sweep.h). Executors are lab_sweep_run.c's.
#include "lab/lab_sweep.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_exec.h"
#include "lab/lab_link_http.h"
#include "lab/lab_sweep_int.h"
#include "lab/lab_wire.h"

enum {
  LEASE_MS = 60000,
  GRACE_MS = 60000,
  COUNT_MS = 1000,     // states are counted at least this often
  PROGRESS_MS = 2000,  // steps are read
  GIVE_UP_MS = 10000,  // a sweep that stops waits this long for its store
  SEEN_MS = 15000,     // the store notes that this sweep is there
  STATUS_MS = 5000,    // and a server what a worker's machine does
  STALE_MS = 15000     // at most, until a worker ends executors that its server has given up
};

//---------------------------------- requests of others ----------------------------------

// Executors hear of a wish with their next beat; the signal is sooner.
static void on_changed(void *ctx, const char *op, const char *exp) {
  brim_lab_sweep *s = ctx;
  brim_lab_dirty(s, exp);
  if (strcmp(op, "beat") == 0 || strcmp(op, "metrics") == 0 || strcmp(op, "log") == 0) return;
  s->look = true;
  brim_lab_runner *runner = strcmp(op, "want") == 0 ? brim_lab_runner_find(s, exp) : NULL;
  brim_store_exp *now = NULL;
  if (runner && !brim_lab_source_get(&s->source, exp, &now) && now->want != BRIM_WANT_RUN) {
    brim_lab_ask_runner(s, runner);
  }
  brim_store_exp_free(now);
}

static brim_status answer_status(brim_lab_sweep *s, json_t *reply) {
  const brim_sweep_view *view = NULL;
  json_t *value = NULL;
  BRIM_TRY(brim_lab_sweep_view(s, false, &view));
  BRIM_TRY(brim_sweep_view_to_json(view, false, &value));
  BRIM_TRY(brim_json_put(reply, "view", value));
  value = json_array();
  BRIM_TRY(brim_json_put(reply, "rows", value));
  BRIM_TRY(brim_lab_sweep_active(s, value));
  return brim_json_put(reply, "folder", json_string(s->folder));
}

static brim_status answer_restore(brim_lab_sweep *s, const json_t *request) {
  const char *device = json_string_value(json_object_get(request, "device"));
  if (!device) return brim_fail(BRIM_EINVAL, "the request names no device");
  return brim_lab_place_restore(s->placing, device);
}

static brim_status on_request(void *ctx, const char *op, const json_t *request, json_t *reply,
                              bool *taken) {
  brim_lab_sweep *s = ctx;
  *taken = true;
  if (strcmp(op, "status") == 0) return answer_status(s, reply);
  if (strcmp(op, "restore") == 0) return answer_restore(s, request);
  if (strcmp(op, "stop") == 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL, "%s",
                 brim_tr("another terminal asked the sweep to stop"));
    brim_lab_sweep_stop(s);
    return BRIM_OK;
  }
  *taken = false;
  return BRIM_OK;
}

//---------------------------------- opening ----------------------------------

static brim_status copy_text(const char *text, char **out) {
  if (!text) return BRIM_OK;
  *out = brim_strdup(text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
}

// The caller's list is gone when the executors are started.
static brim_status copy_words(brim_lab_sweep *s) {
  const char *const *from = s->options.words;
  size_t n = 0;
  while (from && from[n]) n++;
  s->options.words = NULL;
  s->words = brim_calloc(n + 1, sizeof *s->words);
  if (!s->words) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  for (size_t i = 0; i < n; i++) BRIM_TRY(copy_text(from[i], &s->words[i]));
  s->options.words = (const char *const *)s->words;
  return BRIM_OK;
}

static brim_status copy_options(const brim_lab_sweep_options *o, brim_lab_sweep *s) {
  s->options = *o;
  if (s->options.grace_ms <= 0) s->options.grace_ms = GRACE_MS;
  if (s->options.store.lease_ms <= 0) s->options.store.lease_ms = LEASE_MS;
  BRIM_TRY(copy_text(o->place, &s->place));
  BRIM_TRY(copy_text(o->folder ? o->folder : o->place, &s->folder));
  BRIM_TRY(copy_text(o->title ? o->title : "", &s->title));
  BRIM_TRY(copy_text(o->program, &s->program));
  BRIM_TRY(copy_text(o->version ? o->version : "", &s->version));
  BRIM_TRY(copy_text(o->devices, &s->devices));
  BRIM_TRY(copy_words(s));
  return copy_text(o->lock_dir, &s->lock_dir);
}

// The folder by its path and this machine's name: the same for the next sweep of the folder.
static void name_worker(brim_lab_sweep *s, const char *id) {
  char *real = realpath(s->folder, NULL);
  if (gethostname(s->host, sizeof s->host - 1) != 0) s->host[0] = '\0';
  // elements of an array are the folder's, whatever machine the sweep runs on
  const bool slurm = s->options.slurm != NULL;
  brim_lab_worker_name(slurm ? "slurm" : id, slurm ? "" : s->host, real ? real : s->folder,
                       s->worker);
  free(real);
}

static brim_status open_placing(brim_lab_sweep *s) {
  const brim_lab_place_options how = {.store = s->store ? brim_store_place(s->store) : s->place,
                                      .devices = s->devices,
                                      .visible = getenv("CUDA_VISIBLE_DEVICES"),
                                      .cores = (int)s->options.cores,
                                      .jobs = (int)s->options.jobs,
                                      .per_gpu = (int)s->options.per_gpu,
                                      .share = s->options.share,
                                      .no_mps = s->options.no_mps,
                                      .monitor = s->options.monitor,
                                      .lock_dir = s->lock_dir};
  // Slurm has the devices
  const brim_lab_place_options none = {
      .store = how.store, .devices = "cpu", .lock_dir = s->lock_dir};
  if (s->options.slurm) return brim_lab_place_open(&none, &s->placing);
  return brim_lab_place_open(&how, &s->placing);
}

// A server knows its workers by names that begin with their token's.
static brim_status open_server_link(brim_lab_sweep *s) {
  char id[65], version[32];
  BRIM_TRY(brim_lab_link_open(s->place, NULL, &s->link));
  BRIM_TRY(brim_lab_whoami(s->link, id, version));
  if (!brim_lab_wire_fits(version, s->version)) {
    return brim_fail(BRIM_EABI, "the server is brim %s and takes no worker of brim %s; install %s",
                     version, s->version, version);
  }
  if (strcmp(version, s->version) != 0) {
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("the server is brim %s, this worker %s"),
                 version, s->version);
  }
  name_worker(s, id);
  s->source = (brim_lab_source){.link = s->link};
  return BRIM_OK;
}

static brim_status open_source(brim_lab_sweep *s) {
  name_worker(s, "");
  s->ops =
      (brim_lab_ops){.version = s->version, .changed = on_changed, .answer = on_request, .ctx = s};
  if (brim_lab_is_server(s->place)) return open_server_link(s);
  BRIM_TRY(brim_store_open(s->place, &s->options.store, &s->store));
  s->source = (brim_lab_source){.store = s->store};
  s->ops.store = s->store;
  return brim_lab_link_local(&s->ops, &s->link);
}

static brim_status open_parts(brim_lab_sweep *s) {
  const bool elsewhere = brim_store_is_url(s->place) || brim_lab_is_server(s->place);
  const char *served = elsewhere ? s->folder : s->place;
  brim_status made = brim_fs_refused(brim_fs_mkdirs(s->folder));
  if (made) return made == BRIM_EEXIST ? BRIM_EINVAL : made;  // a file is in the way, not a sweep
  BRIM_TRY(open_source(s));
  BRIM_TRY(open_placing(s));
  BRIM_TRY(brim_lab_server_open(&(brim_lab_server_options){.folder = served, .ops = s->ops},
                                &s->server));
  brim_lab_replayed replayed = {0};
  BRIM_TRY(brim_lab_tolerate(s, brim_lab_spool_replay(s->folder, s->link, &replayed)));
  if (replayed.finished > 0) {
    brim_lab_say(s, BRIM_SWEEP_INFO, NULL,
                 brim_tr("%lld experiments ended while no sweep was running; brim took over their "
                         "results"),
                 (long long)replayed.finished);
  }
  if (!s->store) BRIM_TRY(brim_lab_late_open(s->link, s->folder, &s->late));
  if (s->options.slurm) return brim_lab_slurm_open(s, &s->slurm);
  return brim_lab_adopt(s);
}

brim_status brim_lab_sweep_open(const brim_lab_sweep_options *options, brim_lab_sweep **out) {
  brim_lab_sweep *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  brim_sweep_view_init(&s->view);
  s->all_dirty = s->look = true;
  s->paused = -1;
  s->view.started_s = s->first_s = brim_clock_wall_s();
  brim_status status = copy_options(options, s);
  if (!status) status = open_parts(s);
  if (status) {
    brim_lab_sweep_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

// Others need not wait until this one is missed. A store that did not answer lately is not asked.
static void say_goodbye(brim_lab_sweep *s) {
  if (s->seen_ms == 0 || s->trouble_ms > 0) return;
  const brim_store_worker self = {
      .id = s->worker, .host = s->host, .gpus = "", .version = s->version, .left = true};
  char why[1024];  // the sweep may end by a failure
  snprintf(why, sizeof why, "%s", brim_status_detail());
  (void)brim_lab_source_seen(&s->source, &self);
  brim_status_set_detail(why);
}

void brim_lab_sweep_close(brim_lab_sweep *s) {
  if (!s) return;
  say_goodbye(s);
  brim_lab_server_close(s->server);
  brim_lab_gpus_close(s);
  for (size_t i = 0; i < s->count; i++) brim_lab_runner_free(s->runners[i]);
  brim_free(s->runners);
  brim_lab_slurm_close(s->slurm);
  brim_lab_place_close(s->placing);
  brim_lab_late_close(s->late);
  brim_lab_link_close(s->link);
  brim_store_close(s->store);
  brim_sweep_view_deinit(&s->view);
  brim_free(s->fds);
  brim_free(s->place);
  brim_free(s->folder);
  brim_free(s->title);
  brim_free(s->program);
  brim_free(s->version);
  brim_free(s->devices);
  for (size_t i = 0; s->words && s->words[i]; i++) brim_free(s->words[i]);
  brim_free(s->words);
  brim_free(s->lock_dir);
  brim_free(s);
}

brim_status brim_lab_sweep_submit(brim_lab_sweep *s, const brim_store_grid *grid,
                                  const brim_store_point *points, size_t count,
                                  brim_store_submitted *out) {
  s->look = s->all_dirty = true;
  return brim_lab_source_submit(&s->source, grid, points, count, out);
}

struct brim_lab_link *brim_lab_sweep_link(brim_lab_sweep *s) {
  return s->link;
}

//---------------------------------- turns ----------------------------------

static brim_status read_counts(brim_lab_sweep *s, int64_t now) {
  if (!s->look && s->counted && now - s->count_ms < COUNT_MS) return BRIM_OK;
  s->count_ms = now;
  BRIM_TRY(brim_lab_source_count(&s->source, &s->counts));
  s->counted = true;
  const int64_t paused = s->counts.states[BRIM_EXP_PAUSED];
  if (s->paused < 0 || paused < s->paused) s->paused = paused;
  return BRIM_OK;
}

static brim_status tell_seen(brim_lab_sweep *s) {
  char *status = NULL;
  if (s->options.serves) BRIM_TRY(brim_lab_sweep_status(s, &status));
  const brim_store_worker self = {
      .id = s->worker, .host = s->host, .gpus = "", .version = s->version, .status = status};
  brim_status told = brim_lab_source_seen(&s->source, &self);
  brim_free(status);
  return told;
}

// Leases that ran out, and that this sweep is there.
static brim_status keep_store(brim_lab_sweep *s, int64_t now) {
  int64_t lease = s->options.store.lease_ms, expired = 0;
  BRIM_TRY(brim_lab_source_check(&s->source));
  if (now >= s->seen_ms) {
    s->seen_ms = now + (s->options.serves ? STATUS_MS : SEEN_MS);
    BRIM_TRY(tell_seen(s));
  }
  if (now >= s->progress_ms) {
    s->progress_ms = now + PROGRESS_MS;
    BRIM_TRY(brim_lab_read_progress(s));
  }
  if (!s->store && now >= s->stale_ms) {
    int64_t often = s->lease_ms > 0 && s->lease_ms / 2 < STALE_MS ? s->lease_ms / 2 : STALE_MS;
    s->stale_ms = now + often;
    BRIM_TRY(brim_lab_end_stale(s));
  }
  if (now < s->reap_ms) return BRIM_OK;
  s->reap_ms = now + (lease / 12 > 5000 ? 5000 : lease / 12 < 200 ? 200 : lease / 12);
  BRIM_TRY(brim_lab_source_reap(&s->source, &expired));
  if (expired == 0) return BRIM_OK;
  s->look = s->all_dirty = true;
  return brim_lab_end_stale(s);
}

// GPUs that cannot be used any more, or not yet, are named.
static void tell_gpus(brim_lab_sweep *s) {
  for (size_t i = 0; i < brim_lab_place_count(s->placing) && i < BRIM_LAB_PLACE_GPUS; i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    brim_lab_place_state before = s->gpu_states[i];
    s->gpu_states[i] = gpu.state;
    if (gpu.state == before) continue;
    if (gpu.state == BRIM_LAB_PLACE_OUT) {
      brim_lab_say(s, BRIM_SWEEP_ERROR, NULL, brim_tr("GPU %d is out of service: %.200s"),
                   gpu.index, gpu.reason);
    } else if (gpu.state == BRIM_LAB_PLACE_FOREIGN || gpu.state == BRIM_LAB_PLACE_LOCKED) {
      brim_lab_say(s, BRIM_SWEEP_WARN, NULL, brim_tr("GPU %d is left alone: %.200s"), gpu.index,
                   gpu.reason);
    } else if (before == BRIM_LAB_PLACE_OUT) {
      brim_lab_say(s, BRIM_SWEEP_INFO, NULL, brim_tr("GPU %d is in service again"), gpu.index);
    }
  }
}

// Whether no device is left that could run anything.
static bool all_out(const brim_lab_sweep *s) {
  int slots = 0, taken = 0;
  size_t count = brim_lab_place_count(s->placing);
  brim_lab_place_cpu(s->placing, &slots, &taken);
  for (size_t i = 0; i < count; i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (gpu.state != BRIM_LAB_PLACE_OUT) return false;
  }
  return slots == 0 && count > 0;
}

static brim_status work(brim_lab_sweep *s, int64_t now) {
  BRIM_TRY(brim_lab_reap_runners(s));
  BRIM_TRY(keep_store(s, now));
  if (s->slurm) {
    BRIM_TRY(brim_lab_slurm_turn(s, now));
    s->left = true;
    BRIM_TRY(read_counts(s, now));
    s->look = false;
    s->trouble_ms = s->trouble_wait = 0;
    return BRIM_OK;
  }
  BRIM_TRY(brim_lab_place_tick(s->placing, now));
  tell_gpus(s);
  brim_lab_gpus_read(s, now);
  const char *excess = brim_lab_place_excess(s->placing, now);
  brim_lab_runner *runner = excess ? brim_lab_runner_find(s, excess) : NULL;
  if (runner) brim_lab_ask_runner(s, runner);
  if (!s->stopping && (s->look || now >= s->place_ms)) {
    s->place_ms = now + COUNT_MS;
    BRIM_TRY(brim_lab_start_queued(s, &s->left));
  }
  BRIM_TRY(read_counts(s, now));
  s->look = false;
  s->trouble_ms = s->trouble_wait = 0;
  return BRIM_OK;
}

// Every executor has ended, and the store takes no results: they stay in the spools.
static bool gives_up(brim_lab_sweep *s) {
  int64_t now = brim_lab_now_ms(), lease = s->options.store.lease_ms;
  bool ended = s->stopping && s->trouble_ms > 0;
  for (size_t i = 0; i < s->count; i++) ended = ended && s->runners[i]->gone;
  if (!ended) {
    s->give_up_ms = 0;
    return false;
  }
  if (s->give_up_ms == 0) s->give_up_ms = now + (lease < GIVE_UP_MS ? lease : GIVE_UP_MS);
  if (now < s->give_up_ms) return false;
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL, "%s",
               brim_tr("the store cannot be used; the next sweep reads the results of the last "
                       "experiments from their folders"));
  return true;
}

// Whether experiments that were paused while this sweep runs are all that is left: it waits for its
// user. Those that an earlier sweep left paused are none of its business.
static bool waits_for_paused(brim_lab_sweep *s) {
  const int64_t *n = s->counts.states;
  const bool waits = n[BRIM_EXP_PAUSED] > s->paused && n[BRIM_EXP_QUEUED] == 0;
  if (waits && !s->told_paused) {
    brim_lab_say(
        s, BRIM_SWEEP_WARN, NULL,
        brim_tr("only paused experiments are left (%lld): brim sweep resume --all continues "
                "them, Ctrl-C ends the sweep"),
        (long long)n[BRIM_EXP_PAUSED]);
  }
  s->told_paused = waits;
  return waits;
}

static bool finished(brim_lab_sweep *s) {
  const int64_t *n = s->counts.states;
  int64_t under_way = n[BRIM_EXP_LEASED] + n[BRIM_EXP_RUNNING];
  if (s->count > 0) return gives_up(s);
  if (s->slurm && s->stopping) return brim_lab_slurm_idle(s);
  if (s->stopping) return true;
  if (s->options.serves) return false;
  if (!s->counted || under_way > 0) return false;
  if (waits_for_paused(s)) return false;
  if (s->slurm && n[BRIM_EXP_QUEUED] == 0 && !brim_lab_slurm_idle(s)) return false;
  bool out = n[BRIM_EXP_QUEUED] > 0 && all_out(s);
  if (n[BRIM_EXP_QUEUED] > 0 && s->left && !out) return false;
  if (out) {
    snprintf(s->view.notice, sizeof s->view.notice, "%s", brim_tr("every GPU is out of service"));
  }
  s->end = n[BRIM_EXP_QUEUED] > 0 ? BRIM_LAB_END_NO_PLACE : BRIM_LAB_END_ALL;
  return true;
}

static int shorter(int64_t a, int64_t b) {
  int64_t least = a < 0 ? b : b < 0 ? a : a < b ? a : b;
  return least < 0 ? -1 : least > INT_MAX ? INT_MAX : (int)least;
}

static brim_status grow_fds(brim_lab_sweep *s, size_t need) {
  if (need <= s->fd_cap) return BRIM_OK;
  struct pollfd *more = brim_realloc(s->fds, need * 2 * sizeof *more);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory in the sweep's loop");
  s->fds = more;
  s->fd_cap = need * 2;
  return BRIM_OK;
}

// Until the socket, an executor, the caller's descriptors or the time need a turn.
static brim_status wait_for_work(brim_lab_sweep *s, struct pollfd *extra, size_t extra_count,
                                 int timeout_ms) {
  size_t n = 0;
  int64_t now = brim_lab_now_ms();
  // What waits for the store is ready all the time, and nothing can be done about it before.
  bool trouble = s->trouble_ms > now;
  int wait = shorter(timeout_ms, brim_lab_server_wait_ms(s->server));
  if (trouble) {
    wait = shorter(wait, s->trouble_ms - now);
  } else if (!s->slurm) {
    wait = shorter(wait, brim_lab_place_wait_ms(s->placing, now));
  }
  wait = shorter(wait, s->options.store.lease_ms < 4 * COUNT_MS ? s->options.store.lease_ms / 8
                                                                : COUNT_MS / 2);
  BRIM_TRY(grow_fds(s, extra_count + 1 + (s->count + 1) * BRIM_CHILD_FDS));
  for (size_t i = 0; i < extra_count; i++) s->fds[n++] = extra[i];
  s->fds[n++] = (struct pollfd){.fd = brim_lab_server_fd(s->server), .events = POLLIN};
  if (s->slurm && !trouble) {
    int limit = -1;
    n += brim_lab_slurm_fds(s->slurm, s->fds + n, &limit);
    wait = shorter(wait, limit);
  }
  for (size_t i = 0; i < s->count; i++) {
    int limit = -1;
    if (trouble || s->runners[i]->gone || !s->runners[i]->child) continue;
    n += brim_child_fds(s->runners[i]->child, s->fds + n, &limit);
    wait = shorter(wait, limit);
  }
  int ready = poll(s->fds, (nfds_t)n, wait);
  for (size_t i = 0; i < extra_count; i++) extra[i].revents = ready > 0 ? s->fds[i].revents : 0;
  return BRIM_OK;
}

brim_status brim_lab_sweep_turn(brim_lab_sweep *s, struct pollfd *extra, size_t extra_count,
                                int timeout_ms, bool *done) {
  int64_t now = brim_lab_now_ms(), lease = s->options.store.lease_ms;
  *done = false;
  // After a time in which this process did not run, executors come first: they beat before long.
  if (s->last_ms > 0 && now - s->last_ms > lease / 4) s->reap_ms = now + lease / 2;
  s->last_ms = now;
  BRIM_TRY(brim_lab_tolerate(s, brim_lab_server_serve(s->server)));
  if (now >= s->trouble_ms) BRIM_TRY(brim_lab_tolerate(s, work(s, now)));
  *done = finished(s);
  if (*done) return BRIM_OK;
  BRIM_TRY(wait_for_work(s, extra, extra_count, timeout_ms));
  return brim_lab_tolerate(s, brim_lab_server_serve(s->server));
}

brim_lab_end brim_lab_sweep_end(const brim_lab_sweep *s) { return s->end; }
