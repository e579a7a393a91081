// What a training leaves on the disk while it runs: rows of log.jsonl as metrics, and the step of its
// newest checkpoint.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/lab_exec_int.h"

enum {
  BATCH_BYTES = 256 << 10,   // of a log, at most in one batch
  LONGEST_ROW = 4 << 20,     // a longer line is none of brim's
  BATCH_ROWS = 2000,         // no more lines are added then
  LONGEST_KEY = 120,         // of a metric, by the store
  LARGEST_HEADER = 64 << 20  // of a checkpoint
};

void brim_exec_tail_init(brim_exec_tail *t, const char *folder) {
  memset(t, 0, sizeof *t);
  t->folder = folder;
}

static void drop_batch(brim_exec_tail *t) {
  json_decref(t->lines);
  t->lines = NULL;
  t->count = 0;
}

void brim_exec_tail_deinit(brim_exec_tail *t) {
  drop_batch(t);
  brim_free(t->rows);
  t->rows = NULL;
}

void brim_exec_tail_acknowledged(brim_exec_tail *t) {
  t->number = t->next_number;
  t->offset = t->next_offset;
  drop_batch(t);
}

//---------------------------------- rows ----------------------------------

// Times say how this machine was doing. Throughput does too, but is worth a curve.
static bool is_metric(const char *key) {
  size_t n = strlen(key);
  if (n == 0 || n > LONGEST_KEY || !brim_utf8_valid(key, n)) return false;
  if (strcmp(key, "step") == 0 || strcmp(key, "epoch") == 0 || strcmp(key, "seconds") == 0) {
    return false;
  }
  return !brim_str_ends(key, "_s") || brim_str_ends(key, "_per_s");
}

// Lines whose numbers are settings, not results.
static bool has_metrics(const json_t *line) {
  static const char *const others[] = {"anomaly", "adapt", "early_stop"};
  const char *event = json_string_value(json_object_get(line, "event"));
  for (size_t i = 0; event && i < sizeof others / sizeof *others; i++) {
    if (strcmp(event, others[i]) == 0) return false;
  }
  return event != NULL;
}

static brim_status add_row(brim_exec_tail *t, const char *key, int64_t step, double value) {
  if (t->count == t->cap) {
    size_t cap = t->cap ? 2 * t->cap : 256;
    brim_store_metric *grown = brim_realloc(t->rows, cap * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
    t->rows = grown;
    t->cap = cap;
  }
  t->rows[t->count++] = (brim_store_metric){key, step, value};
  return BRIM_OK;
}

// A line that is no JSON, or torn, is left out.
static brim_status add_line(brim_exec_tail *t, const char *text, size_t size) {
  json_t *line = NULL;
  brim_status status = brim_json_parse(text, size, "log.jsonl", &line);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  const json_t *step = json_object_get(line, "step");
  if (!has_metrics(line) || !json_is_integer(step) || json_integer_value(step) < 0) {
    json_decref(line);
    return BRIM_OK;
  }
  BRIM_TRY(brim_json_push(t->lines, line));  // keeps the keys
  const char *key;
  json_t *value;
  json_object_foreach(line, key, value) {
    if (!json_is_number(value) || !is_metric(key)) continue;
    double number = json_number_value(value);
    BRIM_TRY(add_row(t, key, (int64_t)json_integer_value(step), number));
  }
  return BRIM_OK;
}

//---------------------------------- files ----------------------------------

static char *log_path(const brim_exec_tail *t, int number) {
  char name[48];
  snprintf(name, sizeof name, number > 0 ? "log.%d.jsonl" : "log.jsonl", number);
  return brim_fs_join(t->folder, name);
}

static ssize_t read_at(int fd, char *data, size_t size, uint64_t offset) {
  size_t done = 0;
  while (done < size) {
    ssize_t n = pread(fd, data + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += (size_t)n;
  }
  return (ssize_t)done;
}

// The piece of a file from t->next_offset on. *used: bytes of whole lines; 0 where there is none yet.
static brim_status take_lines(brim_exec_tail *t, const char *data, size_t size, size_t *used) {
  *used = 0;
  while (*used < size && t->count < BATCH_ROWS) {
    const char *line = data + *used, *end = memchr(line, '\n', size - *used);
    if (!end) break;
    BRIM_TRY(add_line(t, line, (size_t)(end - line)));
    *used += (size_t)(end - line) + 1;
  }
  return BRIM_OK;
}

// As much of the file as makes a batch, in a buffer large enough for one row. *more: lines are left.
static brim_status read_file(brim_exec_tail *t, int fd, bool *more) {
  *more = false;
  for (size_t size = BATCH_BYTES; size <= LONGEST_ROW; size *= 4) {
    char *data = brim_alloc(size);
    size_t used = 0;
    if (!data) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
    ssize_t n = read_at(fd, data, size, t->next_offset);
    brim_status status = n > 0 ? take_lines(t, data, (size_t)n, &used) : BRIM_OK;
    brim_free(data);
    BRIM_TRY(status);
    t->next_offset += used;
    *more = used > 0;
    if (used > 0 || n < (ssize_t)size) return BRIM_OK;
  }
  t->next_offset += LONGEST_ROW;  // what is left of it is no JSON, and skipped
  *more = true;
  return BRIM_OK;
}

// *more: there may be more behind what was read. A file is complete once the next one is there, which is
// why that is asked first.
static brim_status read_next(brim_exec_tail *t, bool *more) {
  char *path = log_path(t, t->next_number), *next = log_path(t, t->next_number + 1);
  bool complete = next && brim_fs_exists(next);
  brim_free(next);
  *more = false;
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  brim_free(path);
  if (fd < 0) return BRIM_OK;  // not there yet
  struct stat st = {0};
  bool cut = fstat(fd, &st) == 0 && (uint64_t)st.st_size < t->next_offset;
  if (cut) t->next_offset = 0;  // begun again: the store takes the same rows twice
  brim_status status = read_file(t, fd, more);
  (void)close(fd);
  if (status || *more || !complete) return status;
  t->next_number++;
  t->next_offset = 0;
  *more = true;
  return BRIM_OK;
}

brim_status brim_exec_tail_fill(brim_exec_tail *t) {
  if (t->count > 0) return BRIM_OK;
  drop_batch(t);
  t->next_number = t->number;
  t->next_offset = t->offset;
  brim_json_setup();
  t->lines = json_array();
  if (!t->lines) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
  brim_status status = BRIM_OK;
  bool more = true;
  while (!status && more && t->count < BATCH_ROWS / 2) status = read_next(t, &more);
  if (status) {
    drop_batch(t);
    return status;
  }
  if (t->count > 0) {
    t->seq++;
  } else {
    brim_exec_tail_acknowledged(t);  // lines without metrics
  }
  return BRIM_OK;
}

//---------------------------------- the checkpoint ----------------------------------

// The metadata "brim.step" of a safetensors file: 8 bytes of length, then JSON.
int64_t brim_exec_checkpoint_step(int fd) {
  unsigned char head[8];
  uint64_t size = 0;
  int64_t step = -1;
  json_t *header = NULL;
  if (read_at(fd, (char *)head, sizeof head, 0) != (ssize_t)sizeof head) return -1;
  for (int i = 7; i >= 0; i--) size = size << 8 | head[i];
  if (size < 2 || size > LARGEST_HEADER) return -1;
  char *text = brim_alloc((size_t)size);
  if (text && read_at(fd, text, (size_t)size, sizeof head) == (ssize_t)size &&
      brim_json_parse(text, (size_t)size, "checkpoint", &header) == BRIM_OK) {
    const char *number =
        json_string_value(json_object_get(json_object_get(header, "__metadata__"), "brim.step"));
    double value;
    if (number && brim_parse_f64(number, &value) && value >= 0 && value < 9e15) {
      step = (int64_t)value;
    }
  }
  json_decref(header);
  brim_free(text);
  brim_status_clear();
  return step;
}

void brim_exec_checkpoint_look(brim_exec_checkpoint *c, const char *folder) {
  char *path = brim_fs_join(folder, "last.safetensors");
  struct stat st = {0};
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  brim_free(path);
  if (fd < 0) return;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    const uint64_t id[4] = {(uint64_t)st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                            (uint64_t)st.st_mtim.tv_nsec};
    if (memcmp(id, c->id, sizeof id) != 0) {
      int64_t step = brim_exec_checkpoint_step(fd);
      memcpy(c->id, id, sizeof id);
      if (step >= 0) c->step = step;
    }
  }
  (void)close(fd);
}
