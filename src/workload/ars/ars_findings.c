// What a sweep finds about a policy search: directions that wait for one another, and why a large card is no
// faster than a laptop's.
#include <math.h>

#include "base/base_words.h"
#include "workload/ars/ars_int.h"
#include "workload/workload_findings.h"

enum { LANES = 4 };  // threads of an environment on a GPU: one for each leg
enum { FEW = 32 };   // environments of a CPU's thread: with more there is nothing to gain

static double least_gain(const brim_result *r) { return BRIM_FINDING_LEAST * r->total_ms.median; }

// Remedy and price of more of a knob: as measured, else `otherwise`, which is asked for; four times the
// best again, while it helps.
static void more_of(const brim_findings *v, const char *knob, double otherwise, brim_finding *f) {
  const brim_result *more = brim_finding_twin(v, knob, BRIM_TWIN_MORE, NULL);
  double gain = more ? brim_finding_gain_ms(v->r, more) : (double)NAN;
  char next[32];
  snprintf(next, sizeof next, "%.0f",
           more ? 4 * brim_result_knob_number(more, knob, 0) : otherwise);
  brim_finding_try(v, f, knob, next);
  if (more && gain > 0) {
    f->cost_ms = gain;
    brim_finding_change(f, knob, brim_result_knob_text(more, knob), true);
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("%s %s -> %s: measured, %.2f ms less for the same env steps"), knob,
                   brim_result_knob_text(v->r, knob), brim_result_knob_text(more, knob), gain);
  } else {
    snprintf(next, sizeof next, "%.0f", otherwise);
    brim_finding_change(f, knob, next, false);
    brim_words_add(f->remedy, sizeof f->remedy, "%s %s -> %s", knob,
                   brim_result_knob_text(v->r, knob), next);
  }
}

// Directions that wait for one another, although there is room: a smaller chunk is for want of memory.
static void find_chunks(const brim_findings *v) {
  brim_result *r = v->r;
  double dirs = brim_result_knob_number(r, "num_dirs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  const brim_result *more = brim_finding_twin(v, "dir_chunk", BRIM_TWIN_MORE, NULL);
  if (!(chunk > 0) || chunk >= dirs) return;
  if (more && brim_finding_gain_ms(r, more) <= least_gain(r)) return;  // measured: no matter
  if (!more && !brim_result_has_gpu(r)) return;  // on a CPU its threads are busy with fewer
  brim_finding *f = brim_finding_add(r, "serial_chunks", (double)NAN);
  if (!f) return;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.0f directions run %.0f at a time, in %.0f consecutive turns"), dirs,
                 chunk, ceil(dirs / chunk));
  more_of(v, "dir_chunk", dirs, f);
}

// Why a large card is no faster than a laptop's: it is not given enough to do at once.
static void find_threads(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_gpu_facts *gpu = brim_result_has_gpu(r) ? brim_gpu_facts_find(r->device) : NULL;
  double envs = brim_result_knob_number(r, "num_envs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  double threads = envs * chunk * LANES;
  double most = gpu ? (double)gpu->sms * gpu->threads_per_sm : (double)NAN;
  if (!(threads > 0) || !(threads < 0.5 * most)) return;
  const brim_result *more = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  if (more && brim_finding_gain_ms(r, more) <= least_gain(r)) return;
  brim_finding *f = brim_finding_add(r, "few_threads", (double)NAN);
  if (!f) return;
  const brim_gpu_facts *laptop = brim_gpu_facts_find("3060 Laptop");
  bool fills = threads <= (double)laptop->sms * laptop->threads_per_sm;
  brim_words_add(
      f->text, sizeof f->text,
      fills ? BRIM_N_("%.0f x %.0f environments use %.0f of the %.0f threads of this card; a "
                      "laptop GPU runs as many, just as fast")
            : BRIM_N_("%.0f x %.0f environments use %.0f of the %.0f threads of this card; "
                      "the rest idles"),
      envs, chunk, threads, most);
  more_of(v, "num_envs", ceil(most / (chunk * LANES) / 2) * 2, f);
}

// On a CPU, and on a card whose threads are not known: environments step in groups, and few of them leave
// lanes and threads idle. Only a measurement tells.
static void find_few(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *more = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  double envs = brim_result_knob_number(r, "num_envs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  if (brim_result_has_gpu(r) && brim_gpu_facts_find(r->device)) return;
  if (!(envs * chunk > 0) || (more && brim_finding_gain_ms(r, more) <= least_gain(r))) return;
  if (!more && !(v->probing && (brim_result_has_gpu(r) || envs * chunk < FEW * r->threads))) return;
  brim_finding *f = brim_finding_add(r, "few_envs", (double)NAN);
  if (!f) return;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.0f x %.0f environments at once are too few for this device"), envs,
                 chunk);
  more_of(v, "num_envs", 4 * envs, f);
}

static void find(const brim_findings *v) {
  find_chunks(v);
  find_threads(v);
  find_few(v);
}

const brim_work_findings_table brim_ars_findings = {find};
