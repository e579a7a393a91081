// What bench shows of a policy search besides its table: this card beside the two that seed guide 000
// compares, by the makers' figures, and the guide's before and after, measured.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

bool brim_ui_is_search(const brim_result *results, size_t count) {
  return count > 0 && strcmp(results[0].workload, "ars") == 0;
}

//---------------------------------- cards ----------------------------------

// A count, without digits behind the point.
static void whole(double value, char out[32]) {
  if (value < 1000) {
    snprintf(out, 32, "%.0f", value);
  } else {
    brim_ui_number(value, out);
  }
}

static void range_text(double low, double high, char out[32]) {
  char a[32], b[32];
  whole(low, a);
  whole(high, b);
  snprintf(out, 32, low == high ? "%.15s" : "%.15s-%.15s", a, b);
}

static void add_card(brim_ui_table *table, const brim_gpu_facts *g, bool here) {
  char text[32];
  brim_ui_style style = here ? BRIM_UI_BEST : BRIM_UI_PLAIN;
  brim_ui_table_add(table, style, "%s%s", g->name, here ? brim_tr(" (this card)") : "");
  brim_ui_number(g->cores, text);
  brim_ui_table_add(table, style, "%s", text);
  range_text(g->memory_low_gb, g->memory_high_gb, text);
  brim_ui_table_add(table, style, "%s GB", text);
  range_text(g->bandwidth_low, g->bandwidth_high, text);
  brim_ui_table_add(table, style, "%s GB/s", text);
  brim_ui_table_add(table, style, "%.3g", g->fp32_tflops);
  if (isnan(g->tf32_tflops)) {
    brim_ui_table_add(table, style, "-");
  } else {
    brim_ui_table_add(table, style, "%.3g", g->tf32_tflops);
  }
  brim_ui_number((double)g->sms * g->threads_per_sm, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_table_add(table, style, "%s", g->envs);
}

static brim_status put_cards(const brim_term *term, const brim_result *results, brim_str *out) {
  static const char *const names[] = {"A100", "RTX 3060 Laptop"};
  const brim_gpu_facts *here = brim_gpu_facts_find(results[0].device);
  const brim_ui_column columns[] = {
      {"GPU", NULL, BRIM_UI_LEFT, 0, 8},
      {brim_tr("CUDA cores"), NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("Memory"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("Bandwidth"), NULL, BRIM_UI_RIGHT, 2, 0},
      {"FP32 TFLOP/s", NULL, BRIM_UI_RIGHT, 0, 0},
      {"TF32 TFLOP/s", NULL, BRIM_UI_RIGHT, 4, 0},
      {brim_tr("Threads held"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("num_envs advised"), NULL, BRIM_UI_RIGHT, 5, 0},
  };
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  bool listed = false;
  for (size_t i = 0; i < 2; i++) {
    const brim_gpu_facts *g = brim_gpu_facts_find(names[i]);
    listed = listed || g == here;
    add_card(&table, g, g == here);
  }
  if (here && !listed) add_card(&table, here, true);
  brim_ui_heading(out, term, brim_tr("THE CARD"));
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  brim_ui_wrap(
      out, term,
      brim_tr("Manufacturer's figures. The A100 has 6,912 CUDA cores and 19.5 TFLOP/s in FP32. Its "
              "156 TFLOP/s apply to TF32 matrix products, which a policy search does not use."),
      0);
  brim_str_append(out, "\n\n");
  return status;
}

//---------------------------------- before and after ----------------------------------

static double knob(const brim_result *r, const char *name) {
  return brim_result_knob_number(r, name, 0);
}

static double total(const brim_result *r) { return knob(r, "num_envs") * knob(r, "num_dirs"); }

static const brim_ui_search guide_before = {128, 16, 8}, guide_after = {1024, 64, 64};

static const brim_result *find(const brim_result *results, size_t count,
                               const brim_ui_search *which) {
  for (size_t i = 0; which && i < count; i++) {
    const brim_result *r = &results[i];
    if (brim_result_ran(r) && knob(r, "num_envs") == which->num_envs &&
        knob(r, "num_dirs") == which->num_dirs && knob(r, "dir_chunk") == which->dir_chunk) {
      return r;
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
    if (best && more == 0) more = knob(r, "dir_chunk") - knob(best, "dir_chunk");
    if (!best || (last ? more > 0 : more < 0)) best = r;
  }
  return best;
}

static void add_end(brim_ui_table *table, const char *label, const brim_result *r) {
  char text[32];
  bool gpu = brim_result_has_gpu(r);
  double busy = gpu ? r->gpu_percent : r->cpu_percent;
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", label);
  whole(total(r), text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%.0f x %.0f = %s", knob(r, "num_envs"),
                    knob(r, "num_dirs"), text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%.0f", knob(r, "dir_chunk"));
  brim_ui_number(r->samples_per_s, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  for (int i = 0; i < (gpu ? 2 : 1); i++) {
    double share = i ? r->sm_percent : busy;
    if (isnan(share)) {
      brim_ui_table_add(table, BRIM_UI_PLAIN, "-");
    } else {
      brim_ui_table_add(table, BRIM_UI_PLAIN, "%.0f %%", share);
    }
  }
}

static brim_status put_ends(const brim_term *term, const brim_result *results, size_t count,
                            const brim_ui_search *own, brim_str *out) {
  const brim_result *after = find(results, count, &guide_after);
  if (!after) after = end_of(results, count, true);
  // a config that has the last setting already is held against what it could have been
  const brim_result *before = find(results, count, own);
  if (!before || before == after) before = find(results, count, &guide_before);
  const char *label = before ? brim_tr("before") : brim_tr("smallest tried");
  if (!before) before = end_of(results, count, false);
  if (!before || !after || before == after) return BRIM_OK;
  bool gpu = brim_result_has_gpu(before);
  const brim_ui_column columns[] = {
      {"", NULL, BRIM_UI_LEFT, 0, 6},
      {brim_tr("Environments"), NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("Chunk"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("Env steps/s"), NULL, BRIM_UI_RIGHT, 0, 0},
      {gpu ? brim_tr("GPU used") : brim_tr("CPU used"), NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("SMs"), NULL, BRIM_UI_RIGHT, 3, 0},
  };
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns - (gpu ? 0 : 1));
  add_end(&table, label, before);
  add_end(&table, brim_tr("after"), after);
  brim_ui_heading(out, term, brim_tr("BEFORE AND AFTER"));
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  brim_str_printf(
      out,
      gpu ? brim_tr("speedup %.2fx (for comparison: 8x is often expected of an A100, 50,000 -> "
                    "400,000)\n\n")
          : brim_tr("speedup %.2fx\n\n"),
      after->samples_per_s / before->samples_per_s);
  return status;
}

brim_status brim_ui_bench_search(const brim_term *term, const brim_result *results, size_t count,
                                 bool cards, const brim_ui_search *own, brim_str *out) {
  if (!brim_ui_is_search(results, count)) return BRIM_OK;
  brim_str_append_char(out, '\n');
  // cards say nothing about a CPU
  if (cards && brim_result_has_gpu(&results[0])) BRIM_TRY(put_cards(term, results, out));
  return put_ends(term, results, count, own, out);
}
