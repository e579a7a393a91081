// What bench shows of a policy search besides its table: this card beside the two that seed guide 000
// compares, by the makers' figures, and the guide's before and after, measured.
#include <math.h>

#include "record/record_view.h"
#include "workload/ars/ars_int.h"

//---------------------------------- cells ----------------------------------

// A count, without digits behind the point.
static void whole(double value, char out[32]) {
  if (value < 1000) {
    snprintf(out, 32, "%.0f", value);
  } else {
    brim_format_figure(value, out);
  }
}

static void range_text(double low, double high, char out[32]) {
  char a[32], b[32];
  whole(low, a);
  whole(high, b);
  snprintf(out, 32, low == high ? "%.15s" : "%.15s-%.15s", a, b);
}

//---------------------------------- cards ----------------------------------

static void add_card(brim_view *v, const brim_gpu_facts *g, bool here) {
  char text[32];
  brim_view_put(v, "%s%s", g->name, here ? brim_tr(" (this card)") : "");
  brim_format_figure(g->cores, text);
  brim_view_put(v, "%s", text);
  range_text(g->memory_low_gb, g->memory_high_gb, text);
  brim_view_put(v, "%s GB", text);
  range_text(g->bandwidth_low, g->bandwidth_high, text);
  brim_view_put(v, "%s GB/s", text);
  brim_view_put(v, "%.3g", g->fp32_tflops);
  if (isnan(g->tf32_tflops)) {
    brim_view_put(v, "-");
  } else {
    brim_view_put(v, "%.3g", g->tf32_tflops);
  }
  brim_format_figure((double)g->sms * g->threads_per_sm, text);
  brim_view_put(v, "%s", text);
  brim_view_put(v, "%s", g->envs);
  if (here) v->marked = (int)v->row_count;
  v->row_count++;
}

static void cards(const brim_result *results, brim_view *v) {
  static const char *const names[] = {"A100", "RTX 3060 Laptop"};
  const brim_gpu_facts *here = brim_gpu_facts_find(results[0].device);
  *v = (brim_view){.title = brim_tr("THE CARD"),
                   .columns = {{"GPU", true, 0, 8},
                               {brim_tr("CUDA cores"), false, 0, 0},
                               {brim_tr("Memory"), false, 3, 0},
                               {brim_tr("Bandwidth"), false, 2, 0},
                               {"FP32 TFLOP/s", false, 0, 0},
                               {"TF32 TFLOP/s", false, 4, 0},
                               {brim_tr("Threads held"), false, 1, 0},
                               {brim_tr("num_envs advised"), false, 5, 0}},
                   .column_count = 8,
                   .marked = -1};
  bool listed = false;
  for (size_t i = 0; i < 2; i++) {
    const brim_gpu_facts *g = brim_gpu_facts_find(names[i]);
    listed = listed || g == here;
    add_card(v, g, g == here);
  }
  if (here && !listed) add_card(v, here, true);
  snprintf(
      v->note, sizeof v->note, "%s",
      brim_tr("Manufacturer's figures. The A100 has 6,912 CUDA cores and 19.5 TFLOP/s in FP32. Its "
              "156 TFLOP/s apply to TF32 matrix products, which a policy search does not use."));
}

//---------------------------------- before and after ----------------------------------

typedef struct search {
  double envs, dirs, chunk;
} search;

static search search_of(const brim_result *r) {
  return (search){brim_result_knob_number(r, "num_envs", 0),
                  brim_result_knob_number(r, "num_dirs", 0),
                  brim_result_knob_number(r, "dir_chunk", 0)};
}

static double total(const brim_result *r) {
  search s = search_of(r);
  return s.envs * s.dirs;
}

static const search guide_before = {128, 16, 8}, guide_after = {1024, 64, 64};

static const brim_result *find(const brim_result *results, size_t count, const search *which) {
  for (size_t i = 0; which && i < count; i++) {
    const search s = search_of(&results[i]);
    if (brim_result_ran(&results[i]) && s.envs == which->envs && s.dirs == which->dirs &&
        s.chunk == which->chunk) {
      return &results[i];
    }
  }
  return NULL;
}

// The one with fewest (or most) environments in all, of those the one in smallest (or largest) chunks.
static const brim_result *end_of(const brim_result *results, size_t count, bool last) {
  const brim_result *best = NULL;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r)) continue;
    double more = best ? total(r) - total(best) : 0;
    if (best && more == 0) more = search_of(r).chunk - search_of(best).chunk;
    if (!best || (last ? more > 0 : more < 0)) best = r;
  }
  return best;
}

static void add_end(brim_view *v, const char *label, const brim_result *r) {
  const search s = search_of(r);
  char text[32];
  bool gpu = brim_result_has_gpu(r);
  double busy = gpu ? r->gpu_percent : r->cpu_percent;
  brim_view_put(v, "%s", label);
  whole(total(r), text);
  brim_view_put(v, "%.0f x %.0f = %s", s.envs, s.dirs, text);
  brim_view_put(v, "%.0f", s.chunk);
  brim_format_figure(r->samples_per_s, text);
  brim_view_put(v, "%s", text);
  for (int i = 0; i < (gpu ? 2 : 1); i++) {
    double share = i ? r->sm_percent : busy;
    if (isnan(share)) {
      brim_view_put(v, "-");
    } else {
      brim_view_put(v, "%.0f %%", brim_shown(share));
    }
  }
  v->row_count++;
}

static bool ends(const brim_result *results, size_t count, const search *own, brim_view *v) {
  const brim_result *after = find(results, count, &guide_after);
  if (!after) after = end_of(results, count, true);
  // a config that has the last setting already is held against what it could have been
  const brim_result *before = find(results, count, own);
  if (!before || before == after) before = find(results, count, &guide_before);
  const char *label = before ? brim_tr("before") : brim_tr("smallest tried");
  if (!before) before = end_of(results, count, false);
  if (!before || !after || before == after) return false;
  bool gpu = brim_result_has_gpu(before);
  *v = (brim_view){.title = brim_tr("BEFORE AND AFTER"),
                   .columns = {{"", true, 0, 6},
                               {brim_tr("Environments"), false, 0, 0},
                               {brim_tr("Chunk"), false, 1, 0},
                               {brim_tr("Env steps/s"), false, 0, 0},
                               {gpu ? brim_tr("GPU used") : brim_tr("CPU used"), false, 2, 0},
                               {brim_tr("SMs"), false, 3, 0}},
                   .column_count = gpu ? 6 : 5,
                   .marked = -1,
                   .whole_note = true};
  add_end(v, label, before);
  add_end(v, brim_tr("after"), after);
  snprintf(v->note, sizeof v->note,
           gpu ? brim_tr("speedup %.2fx (for comparison: 8x is often expected of an A100, 50,000 "
                         "-> 400,000)")
               : brim_tr("speedup %.2fx"),
           after->samples_per_s / before->samples_per_s);
  return true;
}

static size_t make(const brim_result *results, size_t count, const brim_setting *own,
                   bool with_cards, brim_view *out) {
  size_t n = 0;
  if (count == 0) return 0;
  // cards say nothing about a CPU
  if (with_cards && brim_result_has_gpu(&results[0])) cards(results, &out[n++]);
  search has = {0};
  if (own) {
    has = (search){(double)own->value[BRIM_ARS_ENVS], (double)own->value[BRIM_ARS_DIRS],
                   (double)own->value[BRIM_ARS_CHUNK]};
  }
  return n + ends(results, count, own ? &has : NULL, &out[n]);
}

const brim_work_views_table brim_ars_views = {.make = make};
