// Where the views of `brim top` come from: this machine (NVML, /proc and /sys), or a recording. A source
// fills brim_top_view but for measured ceilings, which the caller adds. Caller: the command. Not for the steps of a training: the sampler of monitor.h is.
#ifndef BRIM_MONITOR_TOP_H_
#define BRIM_MONITOR_TOP_H_

#include "record/record_top.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_nvml_api;  // monitor_nvml_abi.h

// What a reading holds beside what is cheap. Leave out what is not shown.
enum {
  BRIM_TOP_WANT_PROCESSES = 1,
  // GPM's counters. Programs that use them at the same time (DCGM) disturb each other.
  BRIM_TOP_WANT_ACTIVITY = 2,
  // PCIe rates. They come with ACTIVITY where the GPU has GPM; elsewhere NVML measures 20 ms for each
  // direction while the caller waits: of two GPUs in a reading, once each has a figure.
  BRIM_TOP_WANT_PCIE = 4,
  BRIM_TOP_WANT_ALL = 7,  // of the machine
  // brim's running jobs, and their processes among PROCESSES where no GPU lists them.
  BRIM_TOP_WANT_JOBS = 8
};

typedef struct brim_top_source {
  const char *name;  // "machine", "recording"
  void *ctx;
  // Replaces *out, which is initialised. Rates and means are of the time since the reading before, or
  // since the opening; below 0.1 s they are unknown. BRIM_EEND: a recording has no further view.
  brim_status (*read)(void *ctx, unsigned want, brim_top_view *out);
  // Lines of a recording that were cut off and left out until now; NULL = it has no lines.
  long (*skipped)(void *ctx);
  void (*close)(void *ctx);
} brim_top_source;

// `root` stands in front of /proc and /sys ("" = the real ones). `api`: NVML's calls; NULL = the
// driver's library. Both are copied. Without a driver the view has no GPUs, and a note says why.
brim_status brim_top_open_machine(const char *root, const struct brim_nvml_api *api,
                                  brim_top_source *out);
// A file of brim.top/1 lines, as `--record` writes it, read one line per reading. Lines that are no JSON
// were cut off (a full disk, a stopped program): they are left out and counted. JSON that is no
// brim.top/1 record is BRIM_EPARSE with its line's number.
brim_status brim_top_open_recording(const char *path, brim_top_source *out);
void brim_top_close(brim_top_source *source);  // one that is all zero is fine

//---------------------------------- in a thread ----------------------------------

// Opens and reads a source in a thread of its own: a driver that answers slowly keeps neither keys nor
// Ctrl-C waiting. One thread calls these.
typedef struct brim_top_reader brim_top_reader;

typedef enum brim_top_reader_state {
  BRIM_TOP_READER_OPENING,
  BRIM_TOP_READER_IDLE,
  BRIM_TOP_READER_READING,
  BRIM_TOP_READER_DONE,  // a view, or a failure, waits to be taken
  BRIM_TOP_READER_STATE_COUNT
} brim_top_reader_state;

typedef brim_status (*brim_top_open_fn)(void *ctx, brim_top_source *out);
brim_status brim_top_reader_start(brim_top_open_fn open, void *ctx, brim_top_reader **out);
// Ends the thread. One that still waits for the driver is left to itself, with what it needs.
void brim_top_reader_stop(brim_top_reader *reader);  // NULL is fine
brim_top_reader_state brim_top_reader_look(brim_top_reader *reader);
// So long the opening or the reading has been under way, or the last one took.
double brim_top_reader_busy_s(brim_top_reader *reader);
// For poll(2): readable when an opening or a reading has ended since the last look.
int brim_top_reader_fd(const brim_top_reader *reader);
// Begins a reading where it is idle.
void brim_top_reader_ask(brim_top_reader *reader, unsigned want);
// The view or the failure of a reader that is done; `out` is initialised. It is idle then. A failed
// opening fails here.
brim_status brim_top_reader_take(brim_top_reader *reader, brim_top_view *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_TOP_H_
