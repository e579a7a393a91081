// The forecast of a grid as a table with what it adds up to. A pure function of the record. Caller:
// `brim sweep --dry-run`.
#ifndef BRIM_UI_FORECAST_H_
#define BRIM_UI_FORECAST_H_

#include "record/record_forecast.h"
#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

brim_status brim_ui_forecast(const brim_term *term, const brim_forecast *forecast, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_FORECAST_H_
