// Queued experiments as arrays of Slurm. An array's file is on the disk before sbatch is called; if the
// answer is lost, squeue is asked for its name, and nothing of it is submitted again before that.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_exec.h"
#include "lab/lab_sweep_slurm.h"

enum {
  FIRST_PAUSE_MS = 5000,  // after sbatch refused an array; doubles up to
  LAST_PAUSE_MS = 300000,
  BEAT_MS = 2000,
  WINDOW = 512,
  WORDS = 48
};

//---------------------------------- which ----------------------------------

typedef struct gathering {
  brim_lab_slurm *slurm;
  brim_slurm_array array;
  size_t room, listed;
  int64_t now;  // of the store
} gathering;

// The first decides how many GPUs the array's experiments have.
static brim_status on_queued(void *ctx, const brim_store_exp *exp) {
  gathering *g = ctx;
  g->listed++;
  if (exp->not_before > g->now || g->array.count == g->room) return BRIM_OK;
  if (brim_lab_slurm_find(g->slurm, exp->id, NULL)) return BRIM_OK;
  if (g->array.count > 0 && exp->gpus != g->array.gpus) return BRIM_OK;
  g->array.gpus = exp->gpus;
  brim_slurm_exp *to = &g->array.exps[g->array.count++];
  snprintf(to->id, sizeof to->id, "%s", exp->id);
  to->attempt = exp->attempt;
  return BRIM_OK;
}

static brim_status gather(brim_lab_sweep *s, gathering *g) {
  brim_store_filter filter = {
      .states = 1u << BRIM_EXP_QUEUED, .order = BRIM_STORE_BY_QUEUE, .limit = WINDOW};
  BRIM_TRY(brim_lab_source_now(&s->source, &g->now));
  do {
    g->listed = 0;
    BRIM_TRY(brim_lab_source_list(&s->source, &filter, on_queued, g));
    filter.offset += WINDOW;
  } while (g->listed == WINDOW && g->array.count < g->room);
  return BRIM_OK;
}

//---------------------------------- submitting ----------------------------------

// "brim-TITLE-12 digits"; the digits make it unlike any other.
static void name_array(const brim_lab_sweep *s, char out[BRIM_SLURM_NAME]) {
  char id[BRIM_EXP_ID], title[24];
  snprintf(title, sizeof title, "%s", s->title);
  for (char *at = title; *at; at++) {
    if (!isalnum((unsigned char)*at)) *at = '-';
  }
  brim_store_random_id(id);
  snprintf(out, BRIM_SLURM_NAME, "brim-%s%s%.12s", title, title[0] ? "-" : "", id);
}

static void add_word(brim_slurm_words *w, const char *key, int64_t value) {
  brim_slurm_word(w, "%s=%lld", key, (long long)value);
}

static brim_status write_script(const brim_lab_sweep *s, const brim_slurm_array *array) {
  const brim_lab_slurm *m = s->slurm;
  brim_slurm_words w = {0};
  brim_str text, path;
  int64_t beat = m->lease_ms / 4;
  brim_slurm_word(&w, "%s", s->program);
  brim_slurm_word(&w, "--quiet");
  brim_slurm_word(&w, "sweep");
  brim_slurm_word(&w, "element");
  brim_slurm_word(&w, "place=%s", m->place);
  brim_slurm_word(&w, "folder=%s", m->folder);
  brim_slurm_word(&w, "array=%s", array->name);
  brim_slurm_word(&w, "worker=%s", s->worker);
  if (m->no_gpu) brim_slurm_word(&w, "device=cpu");
  add_word(&w, "lease_ms", m->lease_ms);
  add_word(&w, "beat_ms", beat < BEAT_MS ? beat : BEAT_MS);
  add_word(&w, "grace_ms", s->options.grace_ms);
  if (s->options.stall_ms) add_word(&w, "stall_ms", s->options.stall_ms);
  for (const char *const *more = s->options.words; more && *more && w.count < WORDS; more++) {
    brim_slurm_word(&w, "%s", *more);
  }
  brim_str_init(&text);
  brim_str_init(&path);
  brim_str_printf(&path, "%s/" BRIM_SLURM_FOLDER "/%s.sh", m->folder, array->name);
  brim_status status = w.failed ? brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm")
                                : brim_slurm_script((const char *const *)w.list, &text);
  if (!status) status = brim_str_status(&path);
  if (!status) status = brim_fs_write(path.data, text.data, text.len);
  brim_str_deinit(&path);
  brim_str_deinit(&text);
  brim_slurm_words_deinit(&w);
  return status;
}

static brim_status start_sbatch(brim_lab_sweep *s, brim_lab_array *a) {
  brim_lab_slurm *m = s->slurm;
  brim_slurm_words words = {0};
  brim_str place;
  brim_slurm_words_submit(&a->is, &m->options.ask, m->folder, m->no_gpu, &words);
  brim_str_init(&place);
  // the whole URL with its password goes through the environment, as with executors
  if (brim_store_is_url(s->place)) brim_str_printf(&place, BRIM_LAB_PLACE_ENV "=%s", s->place);
  const char *const env[] = {place.len ? place.data : NULL, NULL};
  m->phase = BRIM_LAB_SLURM_SUBMIT;
  m->about = a;
  brim_status status = brim_str_status(&place);
  if (!status) status = brim_slurm_start(&m->command, &words, env, m->options.timeout_ms);
  brim_str_deinit(&place);
  return status;
}

static brim_status submit_array(brim_lab_sweep *s, brim_slurm_array *array) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = NULL;
  name_array(s, array->name);
  array->nodes = m->options.nodes;
  array->submitted_s = (int64_t)brim_clock_wall_s();
  BRIM_TRY(write_script(s, array));
  BRIM_TRY(brim_slurm_array_write(m->folder, array));
  BRIM_TRY(brim_lab_slurm_add(m, array, &a));
  brim_status status = start_sbatch(s, a);
  if (status) brim_lab_slurm_drop(m, a);  // sbatch was not started
  return status;
}

brim_status brim_lab_slurm_submit(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  gathering g = {.slurm = m, .room = (size_t)m->most};
  m->asked = false;
  m->gathered_ms = now;
  m->gather_ms = now + m->options.poll_ms;
  g.array.exps = brim_calloc(g.room, sizeof *g.array.exps);
  if (!g.array.exps) return brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm");
  brim_status status = gather(s, &g);
  if (!status && g.array.count > 0) status = submit_array(s, &g.array);
  brim_slurm_array_deinit(&g.array);
  return status;
}

// It printed no number. A refusal is clear; after a lost answer the array's name is looked for.
static brim_status not_submitted(brim_lab_sweep *s, brim_lab_array *a, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  const brim_slurm_command *c = &m->command;
  char why[256];
  brim_slurm_why(c, why, sizeof why);
  m->wait_ms = m->wait_ms == 0 ? FIRST_PAUSE_MS : 2 * m->wait_ms;
  if (m->wait_ms > LAST_PAUSE_MS) m->wait_ms = LAST_PAUSE_MS;
  m->hold_ms = now + m->wait_ms;
  m->look_ms = now;
  brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
               brim_tr("sbatch gave no job number for %zu experiments; brim looks for them in "
                       "Slurm's queue: %.250s"),
               a->is.count, why);
  // a refusal names its reason; a controller that did not answer may have taken the array
  a->refused = c->exit_code > 0 && !strstr(c->err.data ? c->err.data : "", "timed out");
  const bool limit = a->refused && (strstr(why, "imit") || strstr(why, "temporarily"));
  if (limit && a->is.count > 1) m->most = (int64_t)(a->is.count + 1) / 2;  // it may allow fewer
  if (a->refused && !limit && !m->accepted) snprintf(m->refusal, sizeof m->refusal, "%s", why);
  return BRIM_OK;
}

brim_status brim_lab_slurm_submitted(brim_lab_sweep *s, int64_t now) {
  brim_lab_slurm *m = s->slurm;
  brim_lab_array *a = m->about;
  const char *text = m->command.out.data ? m->command.out.data : "";
  // a number that came before the time was over is an answer as well
  if (!brim_slurm_job_of(text, a->is.job) || m->command.exit_code > 0) {
    a->is.job[0] = '\0';
    return not_submitted(s, a, now);
  }
  m->wait_ms = m->hold_ms = 0;
  m->accepted = true;
  m->gather_ms = now;  // there may be more
  if (m->look_ms > now + m->options.poll_ms / 2 || m->look_ms == 0) {
    m->look_ms = now + m->options.poll_ms / 2;
  }
  brim_lab_say(s, BRIM_SWEEP_INFO, NULL, brim_tr("%zu experiments are Slurm job %s (%s)"),
               a->is.count, a->is.job, a->is.name);
  return brim_slurm_array_write(m->folder, &a->is);
}
