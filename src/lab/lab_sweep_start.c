// The executors of a sweep: claimed, placed and started.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_exec.h"
#include "lab/lab_grid.h"
#include "lab/lab_link_http.h"
#include "lab/lab_sweep_int.h"

enum {
  WORDS = 48,
  ALL_GPUS = 1 << 20,
  BEAT_MS = 2000,  // at most between beats: they carry the progress that views show
  SERVER_AWAY_MS = 7 * 24 * 3600 * 1000
};

//---------------------------------- starting ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  brim_lab_runner *r = ctx;
  size_t used = strlen(r->tail), size = line->size < 400 ? line->size : 400;
  if (used + size + 2 > sizeof r->tail) {
    size_t keep = used / 2;
    memmove(r->tail, r->tail + used - keep, keep + 1);
    used = keep;
  }
  if (used + size + 2 > sizeof r->tail) used = 0;
  snprintf(r->tail + used, sizeof r->tail - used, "%s%.*s", used ? "\n" : "", (int)size,
           line->text);
  return BRIM_OK;
}

typedef struct word_list {
  const char *words[WORDS];
  char text[WORDS][1200];
  size_t count;
} word_list;

static void add_word(word_list *w, const char *key, const char *value) {
  snprintf(w->text[w->count], sizeof w->text[0], "%s=%s", key, value);
  w->words[w->count] = w->text[w->count];
  w->count++;
}

static void add_number(word_list *w, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  add_word(w, key, text);
}

// The value of a key in a stored config, which has a key per line; "" where it has none.
static void config_value(const char *config, const char *key, char *out, size_t size) {
  size_t n = strlen(key);
  out[0] = '\0';
  for (const char *line = config; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, key, n) != 0 || line[n] != ':') continue;
    line += n + 1;
    line += strspn(line, " ");
    snprintf(out, size, "%.*s", (int)strcspn(line, " \n"), line);
    return;
  }
}

static bool sets_threads(const char *config) {
  char value[32];
  config_value(config, "threads", value, sizeof value);
  return strtoll(value, NULL, 10) > 0;
}

static bool runs_on_a_part(const brim_lab_sweep *s, const char *config) {
  char workload[64];
  config_value(config, "workload", workload, sizeof workload);
  return s->options.any_part && s->options.any_part(workload);
}

enum { EXECUTOR_ENV = 3 };  // variables at most

// What others must not see in a list of processes, and what this experiment alone has.
static brim_status executor_env(const brim_lab_sweep *s, const char *config,
                                const brim_lab_place_slot *slot, brim_str *text,
                                const char *env[EXECUTOR_ENV + 1]) {
  size_t at[EXECUTOR_ENV], n = 0;
  if (slot->mps_pipe[0]) {
    at[n++] = text->len;
    brim_str_printf(text, "CUDA_MPS_PIPE_DIRECTORY=%s", slot->mps_pipe);
    brim_str_append_n(text, "", 1);
  }
  if (slot->mps_pipe[0] && slot->mps_percent > 0 && runs_on_a_part(s, config)) {
    at[n++] = text->len;
    brim_str_printf(text, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", slot->mps_percent);
    brim_str_append_n(text, "", 1);
  }
  if (brim_store_is_url(s->place)) {
    at[n++] = text->len;
    brim_str_printf(text, BRIM_LAB_PLACE_ENV "=%s", s->place);
  }
  BRIM_TRY(brim_str_status(text));
  for (size_t i = 0; i < n; i++) env[i] = text->data + at[i];
  env[n] = NULL;
  return BRIM_OK;
}

static brim_status start_executor(brim_lab_sweep *s, brim_lab_runner *r, const char *config,
                                  const brim_lab_place_slot *slot) {
  word_list *w = brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  w->words[w->count++] = s->program;
  w->words[w->count++] = "--quiet";
  w->words[w->count++] = "sweep";
  w->words[w->count++] = "execute";
  char *shown = brim_store_place_shown(s->place);
  add_word(w, "place", shown ? shown : "");
  brim_free(shown);
  add_word(w, "folder", r->folder);
  add_word(w, "exp", r->ref.exp);
  add_number(w, "attempt", r->ref.attempt);
  add_number(w, "fence", r->ref.fence);
  add_word(w, "device", slot->cpu ? "cpu" : "cuda");
  add_word(w, "gpus", slot->cpu ? "" : slot->devices);
  if (slot->threads > 0 && !sets_threads(config)) add_number(w, "threads", slot->threads);
  // A server may be away for long: the training continues, and the spool keeps its results.
  const bool patient = brim_lab_is_server(s->place);
  add_number(w, "linger_ms", patient ? (int64_t)SERVER_AWAY_MS : s->options.store.lease_ms);
  int64_t beat = s->options.store.lease_ms / 4;
  add_number(w, "beat_ms", beat < BEAT_MS ? beat : BEAT_MS);
  add_number(w, "grace_ms", s->options.grace_ms);
  for (const char *const *extra = s->options.words; extra && *extra && w->count < WORDS - 2;) {
    w->words[w->count++] = *extra++;
  }
  if (s->options.stall_ms) add_number(w, "stall_ms", s->options.stall_ms);
  const char *env[EXECUTOR_ENV + 1];
  brim_str env_text;
  brim_str_init(&env_text);
  brim_status status = executor_env(s, config, slot, &env_text, env);
  const brim_child_options how = {.argv = w->words,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_PIPE,
                                  .pass_fds = slot->fds,
                                  .pass_count = slot->fd_count,
                                  .on_line = on_line,
                                  .ctx = r};
  if (!status) status = brim_child_start(&how, &r->child);
  brim_str_deinit(&env_text);
  brim_free(w);
  if (!status) r->pid = brim_child_pid(r->child);
  return status;
}

// The attempt is claimed: its executor, or the reason why there is none.
static brim_status run_attempt(brim_lab_sweep *s, const brim_store_claimed *claimed,
                               const brim_lab_place_slot *slot) {
  brim_lab_runner *r = NULL;
  brim_lab_exec_owner owner;
  BRIM_TRY(brim_lab_runner_add(s, &claimed->ref, &r));
  brim_status status = brim_fs_mkdirs(r->folder);
  if (!status && brim_lab_exec_find(r->folder, &owner)) status = brim_lab_exec_kill(r->folder);
  if (!status) status = start_executor(s, r, claimed->exp->config, slot);
  if (!status) {
    r->devices = brim_strdup(slot->devices);  // without it the steps of its GPU are unknown
    brim_lab_say(s, BRIM_SWEEP_INFO, r->ref.exp, brim_tr("%.200s starts on %.80s"),
                 claimed->exp->label[0] ? claimed->exp->label : r->ref.exp,
                 slot->cpu ? "cpu" : slot->devices);
    return brim_lab_place_started(s->placing, r->ref.exp, r->pid);
  }
  char message[600];
  snprintf(message, sizeof message, brim_tr("cannot start the experiment: %.500s"),
           brim_status_detail());
  brim_lab_say(s, BRIM_SWEEP_WARN, r->ref.exp, "%s", message);
  status = brim_lab_finish_infra(s, &r->ref, message, "");
  brim_lab_runner_drop(s, r);
  brim_lab_place_ended(s->placing, brim_lab_now_ms(), claimed->ref.exp, BRIM_LAB_PLACE_UNUSED,
                       BRIM_FAILURE_NONE);
  return status;
}

// A claim without a reply may have been carried out. The same claim again gets the same attempt; it goes
// back to the queue, since others may wait for it and its place here may be taken.
static brim_status return_claim(brim_lab_sweep *s) {
  if (!s->claim[0]) return BRIM_OK;
  const brim_store_request request = {.worker = s->worker,
                                      .claim_id = s->claim,
                                      .host = s->host,
                                      .exp = s->claim_exp,
                                      .free_gpus = ALL_GPUS,
                                      .free_bytes = -1};
  const brim_store_result back = {.outcome = BRIM_ATTEMPT_STOPPED};
  brim_store_claimed claimed = {0};
  brim_status status = brim_lab_source_claim(&s->source, &request, &claimed);
  if (!status && claimed.exp) status = brim_lab_source_finish(&s->source, &claimed.ref, &back);
  brim_store_exp_free(claimed.exp);
  if (status == BRIM_EIO || status == BRIM_ENOMEM) return status;
  brim_status_clear();  // another attempt has taken over
  s->claim[0] = '\0';
  return BRIM_OK;
}

static brim_status claim_and_run(brim_lab_sweep *s, const char *exp,
                                 const brim_lab_place_slot *slot) {
  brim_store_random_id(s->claim);
  snprintf(s->claim_exp, sizeof s->claim_exp, "%s", exp);
  const brim_store_request request = {.worker = s->worker,
                                      .claim_id = s->claim,
                                      .host = s->host,
                                      .devices = slot->devices,
                                      .exp = exp,
                                      .free_gpus = ALL_GPUS,
                                      .free_bytes = -1};
  brim_store_claimed claimed = {0};
  brim_status status = brim_lab_source_claim(&s->source, &request, &claimed);
  if (status != BRIM_EIO) s->claim[0] = '\0';
  if (status || !claimed.exp) {
    brim_lab_place_ended(s->placing, brim_lab_now_ms(), exp, BRIM_LAB_PLACE_UNUSED,
                         BRIM_FAILURE_NONE);
    return status;
  }
  if (!s->store) s->lease_ms = claimed.lease_ms;
  brim_lab_dirty(s, exp);
  status = run_attempt(s, &claimed, slot);
  brim_store_exp_free(claimed.exp);
  return status;
}

//---------------------------------- the queue ----------------------------------

typedef struct queue {
  brim_lab_place_want wants[BRIM_LAB_WINDOW];
  char ids[BRIM_LAB_WINDOW][BRIM_EXP_ID];
  brim_lab_sweep *sweep;
  size_t count, listed;
  bool later;  // some wait until a time
  int64_t now;
} queue;

static bool packs(const brim_lab_sweep *s) {
  return s->options.per_gpu > 1 || s->options.per_gpu == BRIM_LAB_PLACE_AUTO;
}

// Experiments of one cost take the same time for a step: those that differ in their seed or their
// learning rate. A config that does not name its cost is of a kind of its own.
static uint64_t kind_of(const brim_store_exp *exp) {
  char cost[BRIM_LAB_ID] = "";
  uint64_t hash = 14695981039346656037u;
  if (exp->config[0]) brim_lab_config_cost(exp->config, cost);
  for (const char *at = cost[0] ? cost : exp->label; *at; at++) {
    hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  }
  return hash ? hash : 1;
}

static brim_status on_queued(void *ctx, const brim_store_exp *exp) {
  queue *q = ctx;
  q->listed++;
  // Its last executor may have reported and not have ended yet.
  if (exp->not_before > q->now || brim_lab_runner_find(q->sweep, exp->id)) {
    q->later = true;
    return BRIM_OK;
  }
  snprintf(q->ids[q->count], sizeof q->ids[0], "%s", exp->id);
  q->wants[q->count] = (brim_lab_place_want){.exp = q->ids[q->count],
                                             .gpus = exp->gpus,
                                             .need_bytes = (double)exp->need_bytes,
                                             .kind = kind_of(exp)};
  q->count++;
  return BRIM_OK;
}

static brim_status place_window(brim_lab_sweep *s, queue *q) {
  for (;;) {
    size_t chosen = 0;
    brim_lab_place_slot slot;
    BRIM_TRY(
        brim_lab_place_choose(s->placing, brim_lab_now_ms(), q->wants, q->count, &chosen, &slot));
    if (chosen >= q->count) return BRIM_OK;
    BRIM_TRY(claim_and_run(s, q->wants[chosen].exp, &slot));
    memmove(&q->wants[chosen], &q->wants[chosen + 1], (q->count - chosen - 1) * sizeof q->wants[0]);
    q->count--;
  }
}

static bool none_ever(brim_lab_sweep *s, const queue *q) {
  for (size_t i = 0; i < q->count; i++) {
    if (!brim_lab_place_never(s->placing, &q->wants[i], NULL, 0)) return false;
  }
  return true;
}

// Windows of the queue until one has an experiment that could run here.
static brim_status place_windows(brim_lab_sweep *s, queue *q, bool *left) {
  brim_store_filter filter = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = BRIM_LAB_WINDOW};
  filter.texts = packs(s);  // configs name the cost of a step
  *left = false;
  for (;;) {
    q->count = q->listed = 0;
    q->later = false;
    size_t before = s->count;
    BRIM_TRY(brim_lab_source_list(&s->source, &filter, on_queued, q));
    if (q->listed == 0) return BRIM_OK;
    BRIM_TRY(place_window(s, q));
    *left = *left || q->later || s->count > before;
    if (!none_ever(s, q)) {
      *left = true;
      return BRIM_OK;
    }
    filter.offset += (int64_t)q->listed - (int64_t)(s->count - before);
  }
}

brim_status brim_lab_start_queued(brim_lab_sweep *s, bool *left) {
  queue *q = brim_calloc(1, sizeof *q);
  if (!q) return brim_fail(BRIM_ENOMEM, "out of memory while placing experiments");
  q->sweep = s;
  brim_status status = return_claim(s);
  if (!status) status = brim_lab_source_now(&s->source, &q->now);
  if (!status) status = place_windows(s, q, left);
  if (status == BRIM_EIO) *left = true;
  brim_free(q);
  return status;
}
