// What bench shows of multi-agent PPO besides its table: where the time of an iteration goes, and the rates of
// the config's own setting beside those of the fastest.
#include <math.h>
#include <string.h>

#include "record/record_findings.h"
#include "record/record_view.h"
#include "workload/mappo/mappo_int.h"

BRIM_PRINTF(2, 3)
static void put(brim_view *v, const char *fmt, ...) {
  size_t column = 0;
  while (column < v->column_count && v->cells[v->row_count][column][0]) column++;
  if (column == v->column_count) return;
  va_list args;
  va_start(args, fmt);
  vsnprintf(v->cells[v->row_count][column], BRIM_VIEW_CELL, fmt, args);
  va_end(args);
}

static void put_figure(brim_view *v, double value) {
  char text[32] = "-";
  if (!isnan(value)) brim_format_figure(value, text);
  put(v, "%s", text);
}

//---------------------------------- phases ----------------------------------

static void phases(const brim_result *r, brim_view *v) {
  static const struct {
    brim_phase phase;
    const char *label;
  } rows[] = {{BRIM_PHASE_ENV, BRIM_N_("environment simulation")},
              {BRIM_PHASE_ACT, BRIM_N_("action selection")},
              {BRIM_PHASE_H2D, BRIM_N_("transfers")},
              {BRIM_PHASE_UPDATE, BRIM_N_("network update")}};
  *v = (brim_view){.title = brim_tr("WHERE AN ITERATION'S TIME GOES"),
                   .columns = {{brim_tr("Phase"), true, 0, 8},
                               {brim_tr("ms"), false, 0, 0},
                               {brim_tr("Share"), false, 0, 0}},
                   .column_count = 3,
                   .marked = -1};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const double ms = brim_result_phase_ms(r, rows[i].phase);
    put(v, "%s", brim_tr(rows[i].label));
    put(v, "%.3g", ms);
    put(v, "%.0f %%", 100 * ms / r->total_ms.median);
    v->row_count++;
  }
  if (isnan(r->gpu_percent)) return;
  snprintf(v->note, sizeof v->note, brim_tr("The GPU is busy for %.0f %% of the iteration."),
           r->gpu_percent);
}

//---------------------------------- rates ----------------------------------

static double rate_of(const brim_result *r, size_t index) {
  return index < r->rate_count ? r->samples_per_s * r->rates[index].per_sample : (double)NAN;
}

static void add_rates(brim_view *v, const char *label, const brim_result *r) {
  const double episodes = rate_of(r, BRIM_MAPPO_RATE_EPISODES);
  char time[32] = "-";
  put(v, "%s", label);
  for (size_t i = 0; i < BRIM_MAPPO_RATE_EPISODES; i++) put_figure(v, rate_of(r, i));
  put(v, "%.3g s", 1 / episodes);
  if (episodes > 0) brim_format_duration(10000 / episodes, time);
  put(v, "%s", time);
  if (!isnan(r->gpu_percent)) put(v, "%.0f %%", r->gpu_percent);
  v->row_count++;
}

static void rates(const brim_result *own, const brim_result *fastest, brim_view *v) {
  *v = (brim_view){.title = brim_tr("RATES"),
                   .columns = {{brim_tr("Setting"), true, 0, 8},
                               {brim_tr("agent-steps/s collected"), false, 0, 0},
                               {brim_tr("agent-samples/s trained"), false, 0, 0},
                               {brim_tr("environment steps/s"), false, 2, 0},
                               {brim_tr("per episode"), false, 1, 0},
                               {brim_tr("10,000 episodes"), false, 3, 0},
                               {brim_tr("GPU busy"), false, 4, 0}},
                   .column_count = brim_result_has_gpu(fastest) ? 7 : 6,
                   .marked = -1};
  if (own) add_rates(v, brim_tr("config"), own);
  if (fastest != own) add_rates(v, brim_tr("fastest"), fastest);
}

static bool is_own(const brim_result *r, const brim_setting *own) {
  return brim_result_knob_number(r, "num_envs", -1) == (double)own->value[BRIM_MAPPO_ENVS];
}

static size_t make(const brim_result *results, size_t count, const brim_setting *own, bool whole,
                   brim_view *out) {
  const brim_result *mine = NULL, *fastest = NULL;
  (void)whole;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r)) continue;
    if (!mine && own && is_own(r, own)) mine = r;
    if (!fastest || r->samples_per_s > fastest->samples_per_s) fastest = r;
  }
  if (!fastest) return 0;
  phases(mine ? mine : fastest, &out[0]);
  rates(mine, fastest, &out[1]);
  return 2;
}

const brim_work_views_table brim_mappo_views = {make};
