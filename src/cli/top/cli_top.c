// `brim top`: a live view of this machine or of a recording; lines if stdout is no terminal; the files it writes.

#include "cli/top/cli_top.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_text.h"
#include "base/base_thread.h"
#include "measure/measure.h"
#include "monitor/monitor.h"
#include "ui/top/ui_top.h"
#include "workload/workload.h"

// A file that gets every reading: --record (JSON lines) or --csv.
typedef struct brim_cli_top_file {
  const char *path;  // NULL = no file; "-" = the standard output
  bool csv;
  int fd;        // -1 = not open
  bool started;  // it has rows, so a CSV file needs no header
  bool torn;     // its last line is incomplete
} brim_cli_top_file;

// Ceilings measured earlier, read once per GPU.
enum { BRIM_CLI_TOP_GPUS = 64 };
typedef struct brim_cli_top_ceilings {
  size_t count;
  char uuid[BRIM_CLI_TOP_GPUS][64];
  double percent[BRIM_CLI_TOP_GPUS];  // NaN = unknown
} brim_cli_top_ceilings;
//------------------------------------------- ceilings -------------------------------------------

// Every card of the table multiplies bf16 and fp16 twice as fast as tf32. The maker's figure is for a lower clock than
// cards reach. So it is scaled to the highest clock, the peak to which ofu_percent refers too.
double brim_cli_top_share(const brim_top_gpu *gpu, const brim_machine_ceilings *ceilings) {
  const brim_gpu_facts *facts = brim_gpu_facts_find(gpu->name);
  if (!facts || !(facts->tf32_tflops > 0) || !(gpu->clock_max_mhz > 0)) return (double)NAN;
  const double peak = facts->tf32_tflops * 1e12 * gpu->clock_max_mhz / facts->tensor_mhz;
  const double shares[] = {ceilings->gemm_tf32_flops / peak, ceilings->gemm_bf16_flops / (2 * peak),
                           ceilings->gemm_fp16_flops / (2 * peak)};
  double best = (double)NAN;
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    if (isnan(best) || shares[i] > best) best = shares[i];
  }
  return 100 * best;
}

static double read_share(const brim_top_gpu *gpu) {
  char folder[512];
  brim_machine_ceilings ceilings;
  brim_work_cache_folder(folder, sizeof folder);
  if (brim_machine_ceilings_of_gpu(folder, gpu->uuid, &ceilings)) brim_status_clear();
  return brim_cli_top_share(gpu, &ceilings);
}

static double share_of(const brim_top_gpu *gpu, brim_cli_top_ceilings *known) {
  for (size_t i = 0; i < known->count; i++) {
    if (strcmp(known->uuid[i], gpu->uuid) == 0) return known->percent[i];
  }
  if (known->count == BRIM_CLI_TOP_GPUS) return (double)NAN;
  memcpy(known->uuid[known->count], gpu->uuid, sizeof gpu->uuid);
  known->percent[known->count] = read_share(gpu);
  return known->percent[known->count++];
}

// Adds the measured ceilings to a view: its source does not know them.
static void top_complete(brim_top_view *view, brim_cli_top_ceilings *ceilings) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    view->gpus[i].ceiling_percent = share_of(&view->gpus[i], ceilings);
  }
}

//-------------------------------------------- files --------------------------------------------
// One write per reading appends a JSON line (--record) or CSV rows (--csv), so a kill never tears a line. A full disk
// may tear a line; the next run then begins a new line. Files that brim top did not write are refused.

static brim_status cannot_write(const brim_cli_top_file *file, brim_status status, int error) {
  return brim_fail(status, "cannot write %s: %s", file->path, brim_errno_text(error));
}

//---------------------------------- earlier content ----------------------------------

// Does the file begin like a recording? Ignores spaces, which other programs may have added.
static bool is_recording(const char *text, size_t size) {
  static const char head[] = "{\"schema\":\"" BRIM_TOP_SCHEMA "\"";
  size_t at = 0;
  for (size_t i = 0; i < size && head[at]; i++) {
    if (text[i] == ' ') continue;
    if (text[i] != head[at++]) return false;
  }
  return true;  // a recording cut off within `head` counts too
}

static brim_status is_table(const char *text, size_t size, bool *out) {
  brim_str header;
  brim_str_init(&header);
  brim_status status = brim_ui_top_csv_header(&header);
  *out = !status && size >= header.len && memcmp(text, header.data, header.len) == 0;
  brim_str_deinit(&header);
  return status;
}

static brim_status check_content(brim_cli *cli, const brim_cli_top_file *file, const char *text,
                                 size_t size) {
  bool known = true;
  if (file->csv) {
    BRIM_TRY(is_table(text, size, &known));
  } else {
    known = is_recording(text, size);
  }
  if (known) return BRIM_OK;
  return brim_cli_usage(
      cli,
      file->csv ? BRIM_N_("%s is no CSV file with the columns of brim top; name another file")
                : BRIM_N_("%s is no recording of brim top; name another file"),
      file->path);
}

// Checks a file before the command writes to it. BRIM_EINVAL: it exists and brim top did not write it.
static brim_status top_file_check(brim_cli *cli, brim_cli_top_file *file) {
  char text[16 << 10], last = '\n';
  struct stat info;
  if (!file->path || strcmp(file->path, "-") == 0) return BRIM_OK;
  if (stat(file->path, &info) || !S_ISREG(info.st_mode) || info.st_size == 0) return BRIM_OK;
  int fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return brim_fail(BRIM_EINVAL, "cannot read %s: %s", file->path, brim_errno_text(errno));
  }
  ssize_t n = pread(fd, text, sizeof text, 0);
  ssize_t m = pread(fd, &last, 1, info.st_size - 1);
  int error = errno;
  close(fd);
  if (n < 0 || m < 0) {
    return brim_fail(BRIM_EINVAL, "cannot read %s: %s", file->path, brim_errno_text(error));
  }
  file->torn = last != '\n';
  return check_content(cli, file, text, (size_t)n);
}

//---------------------------------- writing ----------------------------------

// Opens the file for appending. BRIM_EINVAL if it cannot be written.
static brim_status top_file_open(brim_cli_top_file *file) {
  struct stat info;
  file->fd = -1;
  if (!file->path || strcmp(file->path, "-") == 0) return BRIM_OK;
  file->fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file->fd < 0) return cannot_write(file, BRIM_EINVAL, errno);
  // A file with rows has its header already.
  file->started = fstat(file->fd, &info) == 0 && info.st_size > 0;
  return BRIM_OK;
}

// Waits for room in a full pipe; false if the user asked to stop and the pipe is still full a second later.
static bool wait_for_room(const brim_cli_top_file *file, brim_stop_wait *wait) {
  struct pollfd room = {.fd = file->fd, .events = POLLOUT};
  (void)poll(&room, 1, BRIM_STOP_LOOK_MS);
  return !brim_stop_overdue(wait);
}

static brim_status write_all(const brim_cli_top_file *file, const char *data, size_t size) {
  brim_stop_wait wait = {0};
  while (size > 0) {
    ssize_t n = write(file->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (wait_for_room(file, &wait)) continue;
      return cannot_write(file, BRIM_EIO, EAGAIN);
    }
    if (n <= 0) return cannot_write(file, BRIM_EIO, n < 0 ? errno : ENOSPC);
    data += n;
    size -= (size_t)n;
  }
  return BRIM_OK;
}

static brim_status make_text(brim_cli_top_file *file, const brim_top_view *view, brim_str *out) {
  if (file->csv) {
    if (!file->started) BRIM_TRY(brim_ui_top_csv_header(out));
    return brim_ui_top_csv_rows(view, out);
  }
  json_t *json = NULL;
  char *text = NULL;
  BRIM_TRY(brim_top_view_to_json(view, &json));
  brim_status status = brim_json_dump(json, 0, &text);
  json_decref(json);
  BRIM_TRY(status);
  brim_str_append(out, text);
  brim_str_append_char(out, '\n');
  brim_free(text);
  return brim_str_status(out);
}

static brim_status top_file_add(brim_cli *cli, brim_cli_top_file *file, const brim_top_view *view) {
  brim_str text;
  if (!file->path) return BRIM_OK;
  brim_str_init(&text);
  if (file->torn) brim_str_append_char(&text, '\n');
  file->torn = false;
  brim_status status = make_text(file, view, &text);
  if (!status && file->fd >= 0) {
    status = write_all(file, text.data, text.len);
  } else if (!status) {
    brim_cli_print(cli, &text);
  }
  file->started = true;
  brim_str_deinit(&text);
  return status;
}

// BRIM_EIO: the data did not reach the disk.
static brim_status top_file_close(brim_cli_top_file *file) {
  int fd = file->fd;
  file->fd = -1;
  if (fd < 0) return BRIM_OK;
  return close(fd) ? cannot_write(file, BRIM_EIO, errno) : BRIM_OK;
}

//------------------------------------------- command -------------------------------------------

enum { REPLAY_GAP_S = 10 };  // longest pause of a replay
enum { LOOK_MS = 100 };      // longest wait before checking for a signal
#define SHORTEST_S 0.5
#define LONGEST_S 3600.0
#define SLOW_S 1.0  // report a reading that takes longer

static const brim_option options[] = {
    {.name = "once", .help = BRIM_N_("print one reading and exit")},
    {.name = "interval",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds between readings (0.5 to 3600)"),
     .default_text = "1"},
    {.name = "csv",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("append a CSV row per GPU and reading; - is the standard output")},
    {.name = "record",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("append every reading as a JSON line")},
    {.name = "replay",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("show a file of --record in place of this machine")},
    {0},
};

typedef struct top {
  brim_cli *cli;
  brim_top_reader *reader;  // reads this machine; NULL with --replay
  brim_top_source source;   // reads a recording
  brim_top_view view;
  brim_ui_top_history history;
  brim_cli_top_ceilings ceilings;
  brim_ui_top ui;
  brim_screen *screen;  // NULL = lines, JSON or CSV
  brim_cli_top_file record, csv;
  const char *replay;  // NULL = this machine
  bool paced;          // show a recording at --interval, not at its own pace
  bool once;
  bool taken;        // at least one view was read
  char notice[160];  // the last warning that was logged
} top;

//---------------------------------- readings ----------------------------------

static unsigned wanted_parts(const top *t) {
  bool lists = t->screen || t->cli->json || t->record.path || t->once;
  return BRIM_TOP_WANT_JOBS |
         (lists ? BRIM_TOP_WANT_ALL : BRIM_TOP_WANT_ACTIVITY | BRIM_TOP_WANT_PCIE);
}

static bool must_end(const top *t) { return *t->cli->stop || t->cli->write_errno != 0; }

static brim_status note_slowness(top *t) {
  char text[160];
  double seconds = t->reader ? brim_top_reader_busy_s(t->reader) : 0;
  if (!(seconds > SLOW_S)) return BRIM_OK;
  snprintf(text, sizeof text, brim_tr("the driver answers slowly: this reading took %.1f s"),
           seconds);
  return brim_top_view_note(&t->view, text);
}

// Completes a view and writes it to the files.
static brim_status add_view(top *t) {
  t->taken = true;
  if (!t->replay) top_complete(&t->view, &t->ceilings);
  if (!t->screen) BRIM_TRY(note_slowness(t));  // the screen shows the delay itself (set_lateness)
  if (t->notice[0]) BRIM_TRY(brim_top_view_note(&t->view, t->notice));
  BRIM_TRY(brim_ui_top_history_add(&t->history, &t->view));
  BRIM_TRY(top_file_add(t->cli, &t->record, &t->view));
  return top_file_add(t->cli, &t->csv, &t->view);
}

// Reads the next view of a recording. BRIM_EEND: the recording has ended.
static brim_status take_recorded(top *t) {
  brim_status status = t->source.read(t->source.ctx, wanted_parts(t), &t->view);
  if (t->source.skipped) t->ui.skipped = t->source.skipped(t->source.ctx);
  if (status == BRIM_EEND && !t->taken) {
    return brim_fail(BRIM_EPARSE, "%s holds no reading of brim top", t->replay);
  }
  BRIM_TRY(status);
  return add_view(t);
}

// Waits until the reader of the machine has opened or read; BRIM_EEND: the user ended the command.
static brim_status await_reader(const top *t) {
  struct pollfd done = {.fd = brim_top_reader_fd(t->reader), .events = POLLIN};
  for (;;) {
    brim_top_reader_state state = brim_top_reader_poll(t->reader);
    if (state == BRIM_TOP_READER_IDLE || state == BRIM_TOP_READER_DONE) return BRIM_OK;
    if (must_end(t)) return BRIM_EEND;
    (void)poll(&done, 1, LOOK_MS);
  }
}

// Reads the next view when there is no screen. BRIM_EEND: the recording has ended, or the user ended the command.
static brim_status take_view(top *t) {
  if (t->replay) return take_recorded(t);
  BRIM_TRY(await_reader(t));
  brim_top_reader_request(t->reader, wanted_parts(t));
  BRIM_TRY(await_reader(t));
  BRIM_TRY(brim_top_reader_take(t->reader, &t->view));
  return add_view(t);
}

static bool csv_on_stdout(const top *t) { return t->csv.path && strcmp(t->csv.path, "-") == 0; }

static brim_status print_view(top *t) {
  brim_str text;
  if (csv_on_stdout(t)) return BRIM_OK;
  if (t->cli->json) {
    json_t *json = NULL;
    BRIM_TRY(brim_top_view_to_json(&t->view, &json));
    return brim_cli_json(t->cli, json);
  }
  if (t->cli->quiet) return BRIM_OK;
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  if (t->once) {
    status = brim_ui_top_text(&t->view, &t->history, &t->cli->out, &text);
  } else {
    brim_ui_top_lines(&t->view, &t->cli->out, &text);
    status = brim_str_status(&text);
  }
  return brim_cli_finish_text(t->cli, &text, status);
}

// Waits for a key, a reading, a resized terminal, or the time `due`.
static void wait_until(const top *t, brim_time due) {
  int64_t left_ms = -brim_time_since_ns(due, brim_clock_now()) / 1000000 + 1;
  struct pollfd fds[] = {
      {.fd = t->screen ? brim_screen_fd(t->screen) : -1, .events = POLLIN},
      {.fd = t->screen && t->reader ? brim_top_reader_fd(t->reader) : -1, .events = POLLIN}};
  if (t->screen && brim_screen_has_input(t->screen) && left_ms > BRIM_SCREEN_ESCAPE_MS) {
    left_ms = BRIM_SCREEN_ESCAPE_MS;
  }
  // A signal interrupts poll even though the handler asks for restarted calls.
  if (left_ms > 0) (void)poll(fds, 2, (int)left_ms);
}

static brim_time add_seconds(brim_time from, double seconds) {
  from.ns += (int64_t)(seconds * 1e9);
  return from;
}

static void sleep_for(const top *t, double seconds) {
  brim_time due = add_seconds(brim_clock_now(), seconds);
  while (!must_end(t) && brim_time_since_ns(due, brim_clock_now()) < 0) wait_until(t, due);
}

//---------------------------------- lines ----------------------------------

// Reads a recording to its last view, so that the trends are complete.
static brim_status read_to_end(top *t) {
  brim_status status = take_view(t);
  while (!status && !must_end(t)) status = take_view(t);
  if (status == BRIM_EEND) {
    brim_status_clear();
    return BRIM_OK;
  }
  return status;
}

static brim_status run_once(top *t) {
  if (t->replay) {
    BRIM_TRY(read_to_end(t));
  } else {
    brim_status status = await_reader(t);
    if (!status) sleep_for(t, t->ui.interval_s);  // rates need an interval after the opening
    if (!status && !must_end(t)) status = take_view(t);
    if (status != BRIM_EEND) BRIM_TRY(status);
    if (must_end(t)) return BRIM_OK;
  }
  return print_view(t);
}

static brim_status run_lines(top *t) {
  while (!must_end(t)) {
    if (!t->replay || t->paced) sleep_for(t, t->ui.interval_s);
    if (must_end(t)) break;
    brim_status status = take_view(t);
    if (status == BRIM_EEND) {
      brim_status_clear();
      return BRIM_OK;
    }
    BRIM_TRY(status);
    BRIM_TRY(print_view(t));
  }
  return BRIM_OK;
}

//---------------------------------- the screen ----------------------------------

static void log_to_view(void *ctx, brim_log_level level, const char *module, const char *text) {
  top *t = ctx;
  (void)module;
  if (level <= BRIM_LOG_WARN) brim_text_plain(text, t->notice, sizeof t->notice);
}

static brim_status draw(top *t) {
  brim_term term;
  brim_str frame;
  int rows = 0;
  brim_screen_size(t->screen, &term, &rows);
  term.colour = t->cli->out.colour;  // as --color says
  brim_str_init(&frame);
  brim_status status = brim_ui_top_frame(&t->ui, &t->view, &t->history, &term, rows, &frame);
  if (!status) status = brim_screen_draw(t->screen, frame.data);
  brim_str_deinit(&frame);
  return status;
}

static void change_interval(top *t, double factor) {
  double to = t->ui.interval_s * factor;
  t->ui.interval_s = to < SHORTEST_S ? SHORTEST_S : to > LONGEST_S ? LONGEST_S : to;
  t->paced = true;
}

// Handles keys; true = quit.
static bool take_keys(top *t) {
  brim_key key;
  while (brim_screen_key(t->screen, brim_clock_now(), &key)) {
    if (key.code == BRIM_KEY_REDRAW) brim_screen_redraw_all(t->screen);
    switch (brim_ui_top_key(&t->ui, &t->view, key)) {
      case BRIM_UI_TOP_QUIT:
        return true;
      case BRIM_UI_TOP_FASTER:
        change_interval(t, 0.5);
        break;
      case BRIM_UI_TOP_SLOWER:
        change_interval(t, 2);
        break;
      case BRIM_UI_TOP_NOTHING:
      case BRIM_UI_TOP_DRAW:
      case BRIM_UI_TOP_ACTION_COUNT:
        break;
    }
  }
  return false;
}

// Seconds to the next view: a recording keeps its own pace, unless --interval is given.
static double next_wait(const top *t, double before_s) {
  double gap = t->view.when_s - before_s;
  if (!t->replay || t->paced || !(gap > 0)) return t->ui.interval_s;
  return gap > REPLAY_GAP_S ? REPLAY_GAP_S : gap;
}

// Takes a finished view of this machine; asks for the next one when it is time.
static brim_status turn_live(top *t, brim_time *due) {
  if (brim_top_reader_poll(t->reader) == BRIM_TOP_READER_DONE) {
    bool first = !t->taken;
    BRIM_TRY(brim_top_reader_take(t->reader, &t->view));
    BRIM_TRY(add_view(t));
    if (first) t->ui.order = t->view.gpu_count ? BRIM_UI_TOP_BY_MEMORY : BRIM_UI_TOP_BY_CPU;
    *due = add_seconds(brim_clock_now(), first ? SHORTEST_S : t->ui.interval_s);
  }
  bool is_due = brim_time_since_ns(*due, brim_clock_now()) >= 0;
  if (is_due && !t->ui.paused) brim_top_reader_request(t->reader, wanted_parts(t));
  return BRIM_OK;
}

static brim_status turn_recorded(top *t, brim_time *due) {
  if (t->ui.paused || t->ui.ended || brim_time_since_ns(*due, brim_clock_now()) < 0) return BRIM_OK;
  double before_s = t->view.when_s;
  bool first = !t->taken;
  brim_status status = take_recorded(t);
  if (status == BRIM_EEND) {
    brim_status_clear();
    t->ui.ended = true;
    return BRIM_OK;
  }
  if (first) t->ui.order = t->view.gpu_count ? BRIM_UI_TOP_BY_MEMORY : BRIM_UI_TOP_BY_CPU;
  *due = add_seconds(brim_clock_now(), first ? t->ui.interval_s : next_wait(t, before_s));
  return status;
}

// Sets how long the driver has not answered, and the age of the view shown.
static void set_lateness(top *t) {
  t->ui.empty = !t->taken;
  t->ui.slow_s = t->ui.age_s = (double)NAN;
  if (!t->reader || t->ui.paused) return;
  double seconds = brim_top_reader_busy_s(t->reader);
  if (!(seconds > SLOW_S)) return;
  t->ui.slow_s = seconds;
  t->ui.age_s = brim_clock_wall_s() - t->view.when_s;
}

// When the screen next changes without a key.
static brim_time next_change(const top *t, brim_time due) {
  brim_time now = brim_clock_now();
  bool waits = t->ui.paused || t->ui.ended;
  if (!t->reader) return waits ? add_seconds(now, LONGEST_S) : due;
  brim_top_reader_state state = brim_top_reader_poll(t->reader);
  if (state == BRIM_TOP_READER_DONE) return now;
  bool busy = state == BRIM_TOP_READER_OPENING || state == BRIM_TOP_READER_READING;
  if (busy || isfinite(t->ui.slow_s)) return add_seconds(now, 0.5);
  return waits ? add_seconds(now, LONGEST_S) : due;
}

static brim_status run_screen(top *t) {
  brim_time due = brim_clock_now();
  while (!must_end(t)) {
    BRIM_TRY(t->replay ? turn_recorded(t, &due) : turn_live(t, &due));
    set_lateness(t);
    brim_status status = draw(t);
    if (status == BRIM_EIO) {  // the terminal is gone
      brim_status_clear();
      return BRIM_OK;
    }
    BRIM_TRY(status);
    wait_until(t, next_change(t, due));
    double interval_s = t->ui.interval_s;
    if (take_keys(t)) break;
    if (interval_s > t->ui.interval_s || interval_s < t->ui.interval_s) {
      due = add_seconds(brim_clock_now(), t->ui.interval_s);
    }
  }
  return BRIM_OK;
}

static brim_status show_views(top *t) {
  bool shows = !t->once && !t->cli->json && !t->cli->quiet && !csv_on_stdout(t);
  if (shows && brim_screen_open(STDIN_FILENO, STDOUT_FILENO, BRIM_UI_COLOUR_AUTO, &t->screen)) {
    brim_status_clear();
  }
  if (!t->screen) return t->once ? run_once(t) : run_lines(t);
  brim_log_set_sink(log_to_view, t, BRIM_LOG_WARN);
  brim_status status = run_screen(t);
  brim_screen_close(t->screen);
  t->screen = NULL;
  brim_cli_log(t->cli);
  return status;
}

//---------------------------------- the command ----------------------------------

static brim_status read_options(top *t) {
  const brim_option_parse *p = &t->cli->parse;
  if (p->positional_count > 0) {
    return brim_cli_usage(t->cli, BRIM_N_("top takes no argument, only options: '%s'"),
                          p->positional[0]);
  }
  t->once = brim_option_flag(p, "once", false);
  t->paced = brim_option_find(p, "interval") != NULL;
  t->ui.interval_s = brim_option_float(p, "interval", 1);
  if (!(t->ui.interval_s >= SHORTEST_S && t->ui.interval_s <= LONGEST_S)) {
    return brim_cli_usage(t->cli, BRIM_N_("--interval takes 0.5 to 3600 seconds, not %g"),
                          t->ui.interval_s);
  }
  t->replay = brim_option_string(p, "replay", NULL);
  t->record.path = brim_option_string(p, "record", NULL);
  t->csv.path = brim_option_string(p, "csv", NULL);
  t->csv.csv = true;
  if (t->cli->json && csv_on_stdout(t)) {
    return brim_cli_usage(t->cli, BRIM_N_("--json and --csv - both write to standard output"));
  }
  if (t->record.path && strcmp(t->record.path, "-") == 0) {
    return brim_cli_usage(t->cli,
                          BRIM_N_("--record needs a file; --json writes to standard output"));
  }
  const char *const written[] = {t->record.path, csv_on_stdout(t) ? NULL : t->csv.path};
  BRIM_TRY(brim_cli_check_outputs(t->cli, &t->replay, 1, written, 2));
  BRIM_TRY(top_file_check(t->cli, &t->record));
  return top_file_check(t->cli, &t->csv);
}

static brim_status open_machine(void *ctx, brim_top_source *out) {
  (void)ctx;
  return brim_top_open_machine("", NULL, out);
}

static brim_status open_source(top *t) {
  if (!t->replay) return brim_top_reader_start(open_machine, NULL, &t->reader);
  snprintf(t->ui.source, sizeof t->ui.source, brim_tr("replay of %.80s"),
           brim_fs_basename(t->replay));
  brim_utf8_trim(t->ui.source);
  return brim_top_open_recording(t->replay, &t->source);
}

static void report_skipped(const top *t) {
  if (t->ui.skipped == 0) return;
  brim_log_warn("top", "%s: damaged lines skipped: %ld", t->replay, t->ui.skipped);
}

static brim_status run(brim_cli *cli) {
  top t = {.cli = cli, .record = {.fd = -1}, .csv = {.fd = -1}};
  brim_ui_top_init(&t.ui);
  BRIM_TRY(read_options(&t));
  brim_top_view_init(&t.view);
  brim_ui_top_history_init(&t.history);
  brim_status status = open_source(&t);
  if (!status) status = top_file_open(&t.record);
  if (!status) status = top_file_open(&t.csv);
  if (!status) status = show_views(&t);
  report_skipped(&t);
  brim_status closed = top_file_close(&t.record);
  if (!status) status = closed;
  closed = top_file_close(&t.csv);
  if (!status) status = closed;
  brim_top_close(&t.source);
  brim_top_reader_stop(t.reader);
  brim_ui_top_history_deinit(&t.history);
  brim_top_view_deinit(&t.view);
  return status;
}

const brim_cli_command brim_cli_top = {
    .name = "top",
    .summary = BRIM_N_("show live what GPUs, host, processes and brim jobs do"),
    .usage = BRIM_N_("[OPTION...]"),
    .about = BRIM_N_(
        "Shows each GPU's ladder of utilisation: a kernel ran (NVML), SMs, occupancy, tensor pipes "
        "and device memory in use (GPM, Hopper and later). OFU is tensor activity times clock: the "
        "share of the card's peak in use. Targets (utilisation above 90 %, memory "
        "above "
        "80 %, power at least 75 % of the limit) are marked met or missed.\n"
        "Below come throttling in words, PCIe, ECC, Xid events, a hang flag (full utilisation at "
        "idle power), running brim jobs and processes. What this machine does not tell is shown "
        "as -.\n"
        "Keys: s sorts, / filters, g shows one GPU, p pauses, ? helps, q quits. Where standard "
        "output is no terminal, brim prints a line per GPU and per job; --json prints one "
        "brim.top/1 "
        "object "
        "per reading."),
    .examples = BRIM_N_("watch this machine\n"
                        "brim top\n"
                        "one reading, as JSON\n"
                        "brim top --once --json\n"
                        "record, and look at it later\n"
                        "brim top --record day.jsonl\n"
                        "brim top --replay day.jsonl\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
