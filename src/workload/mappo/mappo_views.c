// What bench shows of multi-agent PPO besides its table: where the time of an iteration goes, and what the
// config's own setting costs beside the same one on the GPU and the fastest; compare shows two configs so.
#include <math.h>
#include <string.h>

#include "record/record_findings.h"
#include "record/record_view.h"
#include "workload/mappo/mappo_int.h"

enum { MOST_SIDES = 3 };

// A measured setting, and what a column calls it.
typedef struct side {
  const char *heading;
  const brim_result *r;
  const char *ms;  // the heading of its milliseconds where there are two
} side;

// Three digits, or all of a larger number.
static void put_three(brim_view *v, double value) {
  brim_view_put(v, value >= 999.5 ? "%.0f" : "%.3g", value);
}

static void put_percent(brim_view *v, double percent) {
  if (isnan(percent)) {
    brim_view_put(v, "-");
  } else {
    brim_view_put(v, "%.0f %%", brim_shown(percent));
  }
}

//---------------------------------- phases ----------------------------------

static const struct {
  brim_phase phase;
  const char *label;
} phase_rows[] = {{BRIM_PHASE_ENV, BRIM_N_("environment simulation")},
                  {BRIM_PHASE_ACT, BRIM_N_("action selection")},
                  {BRIM_PHASE_H2D, BRIM_N_("transfers")},
                  {BRIM_PHASE_UPDATE, BRIM_N_("network update")},
                  {BRIM_PHASE_OTHER, BRIM_N_("other")}};
enum { PHASE_ROWS = sizeof phase_rows / sizeof *phase_rows };

// Of the mean iteration: shares of means add up.
static double share_of(const brim_result *r, brim_phase phase) {
  const double share = r->phase_ms[phase].mean / r->total_ms.mean;
  return r->phase_used[phase] && isfinite(share) ? share : 0;
}

// Percent of a phase in which the GPU computes; of the iteration by its own counters where they are known.
static double busy_of(const brim_result *r, brim_phase phase) {
  const double percent = 100 * r->phase_busy_ms[phase] / r->phase_ms[phase].mean;
  return percent > 100 ? 100 : percent;
}

static double busy_of_all(const brim_result *r) {
  double sum = 0;
  bool any = false;
  if (!isnan(r->gpu_percent)) return r->gpu_percent;
  for (size_t i = 0; i < PHASE_ROWS; i++) {
    const brim_phase phase = phase_rows[i].phase;
    if (phase == BRIM_PHASE_OTHER || share_of(r, phase) <= 0) continue;
    sum += r->phase_busy_ms[phase];
    any = true;
  }
  const double percent = any ? 100 * sum / r->total_ms.mean : (double)NAN;
  return percent > 100 ? 100 : percent;
}

static void add_phase(brim_view *v, size_t row, const side *sides, size_t count, bool gpu) {
  const brim_phase phase = phase_rows[row].phase;
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, share_of(sides[i].r, phase));
  if (most <= 0 || (phase == BRIM_PHASE_OTHER && most < 0.005)) return;
  brim_view_put(v, "%s", brim_tr(phase_rows[row].label));
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = sides[i].r;
    const double share = share_of(r, phase);
    if (share > 0) {
      put_three(v, share * r->total_ms.median);
    } else {
      brim_view_put(v, "-");
    }
    put_percent(v, share > 0 ? 100 * share : (double)NAN);
    if (gpu) put_percent(v, share > 0 ? busy_of(r, phase) : (double)NAN);
  }
  v->row_count++;
}

static void phases_note(const side *sides, size_t count, brim_view *v) {
  size_t used = 0;
  used += (size_t)snprintf(v->note, sizeof v->note, "%s",
                           brim_tr("GPU busy: the share of a phase in which any kernel runs."));
  for (size_t i = 0; i < count && used < sizeof v->note; i++) {
    const double percent = sides[i].r->sm_percent;
    char text[160];
    if (isnan(percent)) continue;
    if (count == 1) {
      brim_msg_format(text, sizeof text,
                      brim_tr("Over the iteration %.0f %% of its processors (SMs) have work."),
                      percent);
    } else {
      brim_msg_format(text, sizeof text,
                      brim_tr("%s: over the iteration %.0f %% of its processors (SMs) have work."),
                      sides[i].heading, percent);
    }
    used += (size_t)snprintf(v->note + used, sizeof v->note - used, " %s", text);
  }
}

static void phases(const side *sides, size_t count, brim_view *v) {
  bool gpu = false;
  for (size_t i = 0; i < count; i++) gpu = gpu || brim_result_has_gpu(sides[i].r);
  *v = (brim_view){.title = brim_tr("WHERE AN ITERATION'S TIME GOES"),
                   .columns = {{brim_tr("Phase"), true, 0, 8}},
                   .column_count = 1,
                   .marked = -1};
  static const char *const headings[] = {BRIM_N_("ms"), BRIM_N_("Share"), BRIM_N_("GPU busy")};
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < (gpu ? 3u : 2u); k++) {
      brim_view_column *column = &v->columns[v->column_count++];
      *column = (brim_view_column){.heading = brim_tr(headings[k])};
    }
    if (sides[i].ms) v->columns[v->column_count - (gpu ? 3 : 2)].heading = sides[i].ms;
  }
  for (size_t i = 0; i < PHASE_ROWS; i++) add_phase(v, i, sides, count, gpu);
  brim_view_put(v, "%s", brim_tr("iteration"));
  for (size_t i = 0; i < count; i++) {
    put_three(v, sides[i].r->total_ms.median);
    put_percent(v, 100);
    if (gpu) put_percent(v, busy_of_all(sides[i].r));
  }
  v->row_count++;
  if (gpu) phases_note(sides, count, v);
}

//---------------------------------- before and after ----------------------------------

static double rate_of(const brim_result *r, size_t index) {
  return index < r->rate_count ? r->samples_per_s * r->rates[index].per_sample : (double)NAN;
}

static double get_sm(const brim_result *r) { return r->sm_percent; }
static double get_episode(const brim_result *r) { return 1 / rate_of(r, BRIM_MAPPO_RATE_EPISODES); }
static double get_many(const brim_result *r) { return 10000 * get_episode(r); }
static double get_agent_step(const brim_result *r) { return 1e6 / r->samples_per_s; }
static double get_collected(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_COLLECTED); }
static double get_trained(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_TRAINED); }
static double get_stepped(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_STEPPED); }
// Of a GPU with what driver and libraries take.
static double get_memory(const brim_result *r) {
  return isnan(r->real_bytes) ? brim_result_memory(r) : r->real_bytes;
}

static void percent_text(double value, char out[32]) { snprintf(out, 32, "%.0f %%", value); }
static void bytes_text(double value, char out[32]) { brim_format_bytes((uint64_t)value, out); }
static void micro_text(double value, char out[32]) {
  snprintf(out, 32, value >= 999.5 ? "%.0f us" : "%.3g us", value);
}

static const struct {
  const char *label;
  double (*get)(const brim_result *r);
  void (*text)(double value, char out[32]);
  bool gpu;  // of a GPU alone
} items[] = {
    {BRIM_N_("GPU busy"), busy_of_all, percent_text, true},
    {BRIM_N_("GPU processors with work"), get_sm, percent_text, true},
    {BRIM_N_("time per episode"), get_episode, brim_format_duration, false},
    {BRIM_N_("time for 10,000 episodes"), get_many, brim_format_duration, false},
    {BRIM_N_("memory"), get_memory, bytes_text, false},
    {BRIM_N_("time per agent-step"), get_agent_step, micro_text, false},
    {BRIM_N_("agent-steps/s collected"), get_collected, brim_format_figure, false},
    {BRIM_N_("agent-samples/s trained"), get_trained, brim_format_figure, false},
    {BRIM_N_("environment steps/s"), get_stepped, brim_format_figure, false},
};

static void add_item(brim_view *v, size_t item, const side *sides, size_t count) {
  double first = (double)NAN, last = (double)NAN;
  bool known = false;
  for (size_t i = 0; i < count; i++) known = known || isfinite(items[item].get(sides[i].r));
  if (!known) return;
  brim_view_put(v, "%s", brim_tr(items[item].label));
  for (size_t i = 0; i < count; i++) {
    char text[32] = "-";
    last = items[item].get(sides[i].r);
    if (i == 0) first = last;
    if (isfinite(last)) items[item].text(last, text);
    brim_view_put(v, "%s", text);
  }
  if (count > 1 && isfinite(last / first)) brim_view_put(v, "x%.2f", brim_shown(last / first));
  v->row_count++;
}

static void story(const side *sides, size_t count, brim_view *v) {
  bool gpu = false;
  *v = (brim_view){.title = count > 1 ? brim_tr("BEFORE AND AFTER") : brim_tr("RATES"),
                   .columns = {{"", true, 0, 8}},
                   .column_count = 1,
                   .marked = -1};
  for (size_t i = 0; i < count; i++) {
    v->columns[v->column_count++] = (brim_view_column){.heading = sides[i].heading};
    gpu = gpu || brim_result_has_gpu(sides[i].r);
  }
  if (count > 1) {
    v->columns[v->column_count++] = (brim_view_column){.heading = brim_tr("Change"), .drop = 1};
  }
  for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
    if (gpu || !items[i].gpu) add_item(v, i, sides, count);
  }
}

//---------------------------------- of a sweep ----------------------------------

static bool is_own(const brim_result *r, const brim_setting *own) {
  static const char *const places[] = {"cpu", "gpu"};
  static const char *const numbers[][2] = {{"num_envs", "num_envs"},
                                           {"rollout_steps", "episodes_per_batch"},
                                           {"minibatches", "batch_size"}};
  for (int i = 0; i < 3; i++) {
    double value = brim_result_knob_number(r, numbers[i][0], (double)NAN);
    if (isnan(value)) value = brim_result_knob_number(r, numbers[i][1], (double)NAN);
    if (value != (double)own->value[i]) return false;
  }
  const char *place = brim_result_knob_text(r, "collect_on");
  const char *precision = brim_result_knob_text(r, "precision");
  return strcmp(place, places[own->value[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_GPU]) == 0 &&
         strcmp(precision, brim_precision_name((brim_precision)own->value[BRIM_MAPPO_PRECISION])) ==
             0;
}

// The same setting with the environments on the GPU.
static bool is_moved(const brim_result *r, const brim_result *own) {
  for (size_t i = 0; i < own->knob_count; i++) {
    const char *name = own->knobs[i].name;
    const bool place = strcmp(name, "collect_on") == 0;
    const char *value = place ? "gpu" : own->knobs[i].value;
    if (strcmp(brim_result_knob_text(r, name), value) != 0) return false;
  }
  return r != own && brim_result_has_gpu(r);
}

static void fastest_note(const brim_result *own, const brim_result *fastest, brim_view *v) {
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < own->knob_count && used < sizeof text; i++) {
    const char *name = own->knobs[i].name, *value = brim_result_knob_text(fastest, name);
    if (strcmp(own->knobs[i].value, value) == 0) continue;
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "", name, value);
  }
  brim_msg_format(v->note, sizeof v->note,
                  brim_tr("Fastest: %s. The numbers of environments and of samples per minibatch "
                          "change learning."),
                  text);
}

static size_t make(const brim_result *results, size_t count, const brim_setting *own, bool whole,
                   brim_view *out) {
  const brim_result *mine = NULL, *moved = NULL, *fastest = NULL;
  (void)whole;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r)) continue;
    if (!mine && own && is_own(r, own)) mine = r;
    if (!fastest || r->samples_per_s > fastest->samples_per_s) fastest = r;
  }
  if (!fastest) return 0;
  if (!mine) mine = fastest;
  for (size_t i = 0; i < count && !moved; i++) {
    if (brim_result_ran(&results[i]) && is_moved(&results[i], mine)) moved = &results[i];
  }
  side sides[MOST_SIDES] = {{brim_tr("Config"), mine, NULL}};
  size_t n = 1;
  if (moved) sides[n++] = (side){"collect_on gpu", moved, NULL};
  if (fastest != mine && fastest != moved) sides[n++] = (side){brim_tr("Fastest"), fastest, NULL};
  phases(sides, 1, &out[0]);
  story(sides, n, &out[1]);
  if (sides[n - 1].r == fastest && fastest != mine && fastest != moved) {
    fastest_note(mine, fastest, &out[1]);
  }
  return 2;
}

//---------------------------------- of two configs ----------------------------------

static const json_t *in_config(const brim_result *r, const char *section, const char *key) {
  return json_object_get(json_object_get(r->config, section), key);
}

// Environments that the config asks for; NaN = it leaves them open.
static double envs_asked(const brim_result *r) {
  const json_t *envs = in_config(r, "mappo", "num_envs");
  const json_t *each = in_config(r, "mappo", "episodes_per_worker");
  const json_t *workers = in_config(r, "data", "num_workers");
  if (json_is_number(envs)) return json_number_value(envs);
  const double product = json_number_value(each) * json_number_value(workers);
  return product > 0 ? product : (double)NAN;
}

// Does a record have the values that its config names?
static bool is_asked(const brim_result *r) {
  static const char *const numbers[][2] = {{"mappo", "rollout_steps"},
                                           {"mappo", "episodes_per_batch"},
                                           {"mappo", "minibatches"},
                                           {"data", "batch_size"}};
  static const char *const words[][2] = {{"mappo", "collect_on"}, {"training", "precision"}};
  const double envs = envs_asked(r);
  if (!isnan(envs) && brim_result_knob_number(r, "num_envs", envs) != envs) return false;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const json_t *value = in_config(r, numbers[i][0], numbers[i][1]);
    const double number = json_number_value(value);
    if (!json_is_number(value)) continue;
    if (brim_result_knob_number(r, numbers[i][1], number) != number) return false;
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *value = json_string_value(in_config(r, words[i][0], words[i][1]));
    if (!value || strcmp(value, "auto") == 0) continue;
    if (strcmp(brim_result_knob_text(r, words[i][1]), value) != 0) return false;
  }
  return true;
}

static const brim_result *asked(const brim_result *results, size_t count) {
  const brim_result *found = NULL;
  for (size_t i = 0; i < count; i++) {  // what was measured again stands later
    if (brim_result_ran(&results[i]) && is_asked(&results[i])) found = &results[i];
  }
  return found;
}

static double episode_steps(const brim_result *r) {
  return rate_of(r, BRIM_MAPPO_RATE_STEPPED) / rate_of(r, BRIM_MAPPO_RATE_EPISODES);
}

static size_t compare(const brim_result *a, size_t a_count, const brim_result *b, size_t b_count,
                      brim_view *out) {
  const side sides[] = {{"A", asked(a, a_count), "A (ms)"}, {"B", asked(b, b_count), "B (ms)"}};
  if (!sides[0].r || !sides[1].r) return 0;
  const double before = episode_steps(sides[0].r), after = episode_steps(sides[1].r);
  phases(sides, 2, &out[0]);
  story(sides, 2, &out[1]);
  if (isfinite(before) && isfinite(after) && fabs(before - after) > 0.5) {
    brim_msg_format(out[1].note, sizeof out[1].note,
                    brim_tr("Episodes have %.0f steps in A and %.0f in B, so compare the time per "
                            "agent-step: shorter episodes flatter the time per episode."),
                    before, after);
  }
  return 2;
}

const brim_work_views_table brim_mappo_views = {.brief = true, .make = make, .compare = compare};
