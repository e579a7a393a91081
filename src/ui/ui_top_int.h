// Inside the ui room: parts of the live view of a machine.
#ifndef BRIM_UI_TOP_INT_H_
#define BRIM_UI_TOP_INT_H_

#include "ui/ui_frame.h"
#include "ui/ui_top.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- pieces of text ----------------------------------

// "87 %", "3.4 %" below ten; "-" when unknown.
void brim_ui_top_percent(double percent, char out[16]);
// Bytes in powers of 1024 as "123.8"/"1,397" GiB, "12 MiB"; "-" when unknown.
void brim_ui_top_bytes(double bytes, char out[32]);
void brim_ui_top_rate(double bytes_per_s, char out[32]);  // "2.7 GiB/s"
void brim_ui_top_whole(double value, char out[32]);       // "612"; "-" when unknown
void brim_ui_top_count(int64_t value, char out[32]);      // "12,345"; "-" when unknown
void brim_ui_top_clock(double when_s, char out[16]);      // "15:04:05" of the day here
// "26 Wh", "1.2 kWh"
void brim_ui_top_energy(double joules, char out[32]);
// Spaces up to a column of the line.
void brim_ui_top_pad(brim_str *line, int column);
// A text in a style, cut at `room` columns; nothing where there is none.
void brim_ui_top_put(brim_str *line, const brim_term *term, brim_ui_style style, const char *text,
                     int room);

//---------------------------------- parts ----------------------------------

typedef struct brim_ui_top_scene {
  const brim_ui_top *state;
  const brim_top_view *view;
  const brim_ui_top_history *history;
  const brim_term *term;  // its width is known
} brim_ui_top_scene;

const float *brim_ui_top_ring(const brim_ui_top_history *history, size_t gpu,
                              brim_ui_top_trace trace);  // NULL = none

enum { BRIM_UI_TOP_PANEL_LINES = 11, BRIM_UI_TOP_PANEL_WIDTH = 78 };
// Line `n` of a GPU's panel, `width` columns at most.
void brim_ui_top_panel_line(const brim_ui_top_scene *scene, size_t gpu, int n, int width,
                            brim_str *out);
// All GPUs as a table, a line each and a header.
brim_status brim_ui_top_gpu_table(const brim_ui_top_scene *scene, brim_str *out);
// What is wrong with a GPU, in words: hang, Xid, remap, throttling; "" = nothing. *style of the worst.
void brim_ui_top_trouble(const brim_top_view *view, const brim_top_gpu *gpu, brim_str *out,
                         brim_ui_style *style);
// Why the clock is below its top; `shares`: with how much of the time power held it down.
void brim_ui_top_held(const brim_top_gpu *gpu, bool shares, brim_str *out);

void brim_ui_top_host_lines(const brim_ui_top_scene *scene, brim_ui_frame *frame, int lines);
void brim_ui_top_host_panel(const brim_ui_top_scene *scene, brim_ui_frame *frame);

// Tables without a rule: header, then rows from `first` on, at most `most`.
brim_status brim_ui_top_jobs(const brim_ui_top_scene *scene, size_t most, brim_str *out);
// A job as one line of a pipe: where it stands, how fast it is.
void brim_ui_top_job_line(const brim_top_view *view, const brim_job *job, brim_str *out);
// One line about a job's worst finding.
void brim_ui_top_finding(const brim_ui_top_scene *scene, const brim_job *job, brim_str *out);
// Places in view->processes that pass the filter, in the order of the state. brim_free(*out).
brim_status brim_ui_top_pick(const brim_ui_top *state, const brim_top_view *view, size_t **out,
                             size_t *count);
brim_status brim_ui_top_processes(const brim_ui_top_scene *scene, const size_t *rows, size_t count,
                                  brim_str *out);
void brim_ui_top_event(const brim_top_event *event, const brim_term *term, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_TOP_INT_H_
