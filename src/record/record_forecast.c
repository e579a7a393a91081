// Counts and sums of a forecast (record_forecast.h).
#include "record/record_forecast.h"

#include <math.h>
#include <string.h>

bool brim_forecast_runs(const brim_forecast_need *need) {
  return need->failure == BRIM_FAILURE_NONE ||
         (need->failure == BRIM_FAILURE_OOM_PLANNED && need->adapts);
}

// A need that fits beats one that fits only with less memory; then the faster one wins.
static bool is_better(const brim_forecast_need *a, const brim_forecast_need *b) {
  const bool fits = a->failure == BRIM_FAILURE_NONE;
  if (fits != (b->failure == BRIM_FAILURE_NONE)) return fits;
  return !isnan(a->run_s) && (isnan(b->run_s) || a->run_s < b->run_s);
}

const brim_forecast_need *brim_forecast_best(const brim_forecast *forecast,
                                             const brim_forecast_row *row) {
  const brim_forecast_need *best = NULL;
  for (size_t i = 0; i < forecast->device_count; i++) {
    const brim_forecast_need *need = &row->needs[i];
    if (brim_forecast_runs(need) && (!best || is_better(need, best))) best = need;
  }
  return best;
}

void brim_forecast_sum(const brim_forecast *forecast, brim_forecast_sums *out) {
  memset(out, 0, sizeof *out);
  out->most_bytes = (double)NAN;
  for (size_t i = 0; i < forecast->row_count; i++) {
    const brim_forecast_row *row = &forecast->rows[i];
    const bool done = row->state && strcmp(row->state, "done") == 0;
    const brim_forecast_need *need = brim_forecast_best(forecast, row);
    out->fresh += !row->state;
    out->known += row->state != NULL;
    out->done += done;
    out->stuck += !need && !done;
    if (done || !need) continue;
    out->to_run++;
    out->adapt += need->failure != BRIM_FAILURE_NONE;
    if (need->failure == BRIM_FAILURE_NONE) out->most_bytes = fmax(out->most_bytes, need->bytes);
    if (isnan(need->run_s)) {
      out->timeless++;
    } else {
      out->run_s += need->run_s;
    }
  }
  out->wall_s = out->timeless ? (double)NAN
                              : out->run_s / (double)(forecast->slots > 0 ? forecast->slots : 1);
}
