// Inside the ui room: pages of a sweep's live view.
#ifndef BRIM_UI_SWEEP_FRAME_H_
#define BRIM_UI_SWEEP_FRAME_H_

#include "ui/ui_frame.h"
#include "ui/ui_sweep_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// Pages over the table.
void brim_ui_sweep_help(brim_ui_frame *frame, const brim_ui_sweep *state);
void brim_ui_sweep_page(brim_ui_frame *frame, brim_ui_sweep *state, const brim_sweep_view *view,
                        const brim_ui_sweep_log *log);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_SWEEP_FRAME_H_
