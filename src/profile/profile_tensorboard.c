// TensorBoard event files, written without a library, and a trace as scalars in them.

#include "profile/profile_tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/profile_trace.h"

//----------------------------------------- event files -----------------------------------------
// Writes TensorBoard event files: checksums, the few protobuf fields that a scalar needs, and the files of a folder.
// The format is described in the header.

static const char file_prefix[] = "events.out.tfevents.", file_suffix[] = ".brim";
enum { HEAD = 12, TAIL = 4 };  // bytes of a record before and after its data

//---------------------------------- checksums ----------------------------------

// Takes four bits at a time: records have some fifty bytes, too few to warm up a table of 256 entries in the cache.
uint32_t brim_crc32c(const void *data, size_t size) {
  static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                      0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                      0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                      0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
  const unsigned char *p = data;
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < size; i++) {
    crc ^= p[i];
    crc = nibble[crc & 15] ^ (crc >> 4);
    crc = nibble[crc & 15] ^ (crc >> 4);
  }
  return ~crc;
}

uint32_t brim_crc32c_masked(const void *data, size_t size) {
  uint32_t crc = brim_crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

//---------------------------------- records ----------------------------------

static void put_le(brim_str *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) brim_str_append_char(out, (char)(unsigned char)(value >> 8 * i));
}

static uint64_t get_le(const unsigned char *p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << 8 * i;
  return value;
}

static void put_varint(brim_str *out, uint64_t value) {
  while (value > 127) {
    brim_str_append_char(out, (char)(unsigned char)((value & 127) | 128));
    value >>= 7;
  }
  brim_str_append_char(out, (char)value);
}

static void put_double(brim_str *out, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_varint(out, (uint64_t)field << 3 | 1);
  put_le(out, bits, 8);
}

static void put_int(brim_str *out, int field, int64_t value) {
  put_varint(out, (uint64_t)field << 3);
  put_varint(out, (uint64_t)value);
}

static void put_bytes(brim_str *out, int field, const char *data, size_t size) {
  put_varint(out, (uint64_t)field << 3 | 2);
  put_varint(out, size);
  brim_str_append_n(out, data, size);
}

// Appends a record with `event` as its data. Failures stay in the status of the texts.
static void put_record(brim_str *out, const brim_str *event) {
  brim_str head;
  brim_str_init(&head);
  put_le(&head, event->len, 8);
  put_le(&head, brim_crc32c_masked(head.data, head.len), 4);
  brim_str_append_n(out, head.data, head.len);
  brim_str_append_n(out, event->data, event->len);
  put_le(out, brim_crc32c_masked(event->data, event->len), 4);
  brim_status bad = brim_str_status(&head) ? brim_str_status(&head) : brim_str_status(event);
  if (bad && !out->status) out->status = bad;
  brim_str_deinit(&head);
}

void brim_tensorboard_put_version(brim_str *out, double wall_s) {
  static const char version[] = "brain.Event:2";
  brim_str event;
  brim_str_init(&event);
  put_double(&event, 1, wall_s);
  put_bytes(&event, 3, version, sizeof version - 1);
  put_record(out, &event);
  brim_str_deinit(&event);
}

void brim_tensorboard_put_scalar(brim_str *out, double wall_s, int64_t step, const char *tag,
                                 float value) {
  brim_str event, summary, item;
  brim_str_init(&event);
  brim_str_init(&summary);
  brim_str_init(&item);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_bytes(&item, 1, tag, strlen(tag));
  put_varint(&item, 2 << 3 | 5);
  put_le(&item, bits, 4);
  put_bytes(&summary, 1, item.data, item.len);
  put_double(&event, 1, wall_s);
  put_int(&event, 2, step);
  put_bytes(&event, 5, summary.data, summary.len);
  brim_status inner = brim_str_status(&item) ? brim_str_status(&item) : brim_str_status(&summary);
  if (inner && !event.status) event.status = inner;
  put_record(out, &event);
  brim_str_deinit(&item);
  brim_str_deinit(&summary);
  brim_str_deinit(&event);
}

// Writes SessionLog START: a reader drops the events of `step` and later.
static void put_restart(brim_str *out, double wall_s, int64_t step) {
  static const char start[] = {1 << 3, 1};
  brim_str event;
  brim_str_init(&event);
  put_double(&event, 1, wall_s);
  put_int(&event, 2, step);
  put_bytes(&event, 7, start, sizeof start);
  put_record(out, &event);
  brim_str_deinit(&event);
}

//---------------------------------- existing files ----------------------------------

static bool get_varint(const unsigned char *p, size_t size, size_t *at, uint64_t *out) {
  *out = 0;
  for (int shift = 0; *at < size && shift < 64; shift += 7) {
    unsigned char byte = p[(*at)++];
    *out |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

// The step of an event with a summary; -1 for any other.
static int64_t event_step(const unsigned char *p, size_t size) {
  int64_t step = 0;
  bool summary = false;
  for (size_t at = 0; at < size;) {
    uint64_t tag = 0, value = 0;
    if (!get_varint(p, size, &at, &tag)) return -1;
    switch (tag & 7) {
      case 0:
        if (!get_varint(p, size, &at, &value)) return -1;
        if (tag >> 3 == 2) step = (int64_t)value;
        break;
      case 1:
        at += 8;
        break;
      case 2:
        if (!get_varint(p, size, &at, &value) || value > size - at) return -1;
        if (tag >> 3 == 5) summary = true;
        at += value;
        break;
      case 5:
        at += 4;
        break;
      default:
        return -1;
    }
  }
  return summary ? step : -1;
}

typedef struct kept {
  size_t bytes;  // from the start to the first record that is dropped or torn
  bool dropped;  // whole records were dropped
  bool scalars;  // the kept bytes hold scalars
} kept;

static kept find_kept(const unsigned char *data, size_t size, int64_t start_step) {
  kept k = {0};
  while (size - k.bytes >= HEAD + TAIL) {
    const unsigned char *p = data + k.bytes;
    uint64_t n = get_le(p, 8);
    if (get_le(p + 8, 4) != brim_crc32c_masked(p, 8)) break;
    if (n > size - k.bytes - HEAD - TAIL) break;
    if (get_le(p + HEAD + n, 4) != brim_crc32c_masked(p + HEAD, (size_t)n)) break;
    int64_t step = event_step(p + HEAD, (size_t)n);
    if (step > start_step) {
      k.dropped = true;
      break;
    }
    k.scalars |= step >= 0;
    k.bytes += HEAD + TAIL + (size_t)n;
  }
  return k;
}

// Truncates one file behind the kept steps; removes it if no scalar is left.
static brim_status trim(const char *path, int64_t start_step, kept *out) {
  char *data = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, 0, &data, &size));
  *out = find_kept((const unsigned char *)data, size, start_step);
  brim_free(data);
  if (!out->scalars) return brim_fs_remove(path);
  // truncate in place: a reader may have the file open
  if (out->bytes < size && truncate(path, (off_t)out->bytes) != 0) {
    return brim_fail(BRIM_EIO, "cannot write %s: %s", path, brim_errno_text(errno));
  }
  return BRIM_OK;
}

//---------------------------------- the files of a folder ----------------------------------

struct brim_tensorboard {
  char *folder;
  char *path;  // the file being written; NULL = none yet
  int fd;
  uint64_t size, rotate;
  int64_t stamp;    // number in the newest file's name; names ascend, even within one second
  int64_t restart;  // a reader has to forget this step and later; 0 = none
  bool add;
  brim_str pending;
};

// The number in the name of an event file of brim; 0 = another program's file.
static int64_t name_stamp(const char *name) {
  if (!brim_str_starts(name, file_prefix) || !brim_str_ends(name, file_suffix)) return 0;
  int64_t stamp = 0;
  for (const char *p = name + sizeof file_prefix - 1; *p >= '0' && *p <= '9'; p++) {
    if (stamp > INT64_MAX / 10 - 1) return 0;
    stamp = stamp * 10 + (*p - '0');
  }
  return stamp;
}

static brim_status take_file(brim_tensorboard *t, const char *name, int64_t start_step) {
  char *path = brim_fs_join(t->folder, name);
  kept k = {0};
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while opening %s", name);
  brim_status status = trim(path, start_step, &k);
  if (status || !k.scalars) {
    brim_free(path);
  } else {
    brim_free(t->path);
    t->path = path;
    t->size = k.bytes;
  }
  if (k.dropped) t->restart = start_step + 1;
  return status;
}

static brim_status take_files(brim_tensorboard *t, int64_t start_step) {
  char **names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_fs_list(t->folder, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) {
    int64_t stamp = name_stamp(names[i]);
    if (!stamp) continue;
    if (stamp > t->stamp) t->stamp = stamp;
    if (!t->add) status = take_file(t, names[i], start_step);
  }
  brim_fs_list_free(names, count);
  return status;
}

static brim_status open_file(brim_tensorboard *t) {
  t->fd = open(t->path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (t->fd >= 0) return BRIM_OK;
  int err = errno;
  return brim_fail(brim_errno_status(err), "cannot open %s: %s", t->path, brim_errno_text(err));
}

static void close_file(brim_tensorboard *t) {
  if (t->fd >= 0) close(t->fd);
  t->fd = -1;
  brim_free(t->path);
  t->path = NULL;
}

// Begins the next file. Its version record goes before the pending records.
static brim_status next_file(brim_tensorboard *t) {
  char host[64] = "";
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) snprintf(host, sizeof host, "host");
  for (char *p = host; *p; p++) {
    bool good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
    if (!good && *p != '-' && *p != '.') *p = '_';
  }
  double wall_s = brim_clock_wall_s();
  t->stamp = (int64_t)wall_s > t->stamp ? (int64_t)wall_s : t->stamp + 1;
  close_file(t);
  char name[160], own[32] = "";
  if (t->add) snprintf(own, sizeof own, ".%lld", (long long)getpid());
  snprintf(name, sizeof name, "%s%" PRId64 ".%s%s%s", file_prefix, t->stamp, host, own,
           file_suffix);
  t->path = brim_fs_join(t->folder, name);
  if (!t->path) return brim_fail(BRIM_ENOMEM, "out of memory while opening %s", name);
  t->size = 0;
  brim_str head;
  brim_str_init(&head);
  brim_tensorboard_put_version(&head, wall_s);
  if (t->restart) put_restart(&head, wall_s, t->restart);
  t->restart = 0;
  brim_str_append_n(&head, t->pending.data, t->pending.len);
  if (t->pending.status && !head.status) head.status = t->pending.status;
  brim_str_deinit(&t->pending);
  t->pending = head;
  return open_file(t);
}

brim_status brim_tensorboard_open(const char *folder, int64_t start_step, uint64_t rotate_bytes,
                                  brim_tensorboard **out) {
  *out = NULL;
  brim_tensorboard *t = brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "out of memory while opening the event files");
  t->fd = -1;
  t->rotate = rotate_bytes;
  t->add = start_step == BRIM_TENSORBOARD_ADD;
  brim_str_init(&t->pending);
  t->folder = brim_strdup(folder);
  brim_status status = t->folder
                           ? take_files(t, start_step)
                           : brim_fail(BRIM_ENOMEM, "out of memory while opening the event files");
  if (status) {
    brim_tensorboard_close(t);
    return status;
  }
  if (t->restart) close_file(t);
  *out = t;
  return BRIM_OK;
}

brim_status brim_tensorboard_scalar(brim_tensorboard *t, const char *tag, int64_t step,
                                    double value) {
  brim_tensorboard_put_scalar(&t->pending, brim_clock_wall_s(), step, tag, (float)value);
  return brim_str_status(&t->pending);
}

brim_status brim_tensorboard_flush(brim_tensorboard *t) {
  if (t->pending.len == 0) return BRIM_OK;
  bool full = t->rotate > 0 && t->size > 0 && t->size + t->pending.len > t->rotate;
  if (!t->path || full) {
    BRIM_TRY(next_file(t));
  } else if (t->fd < 0) {
    BRIM_TRY(open_file(t));
  }
  BRIM_TRY(brim_str_status(&t->pending));
  ssize_t n;
  do {
    n = write(t->fd, t->pending.data, t->pending.len);
  } while (n < 0 && errno == EINTR);
  if (n < 0 || (size_t)n != t->pending.len) {
    int err = n < 0 ? errno : ENOSPC;
    // a reader stops at half a record and misses all later records
    (void)!ftruncate(t->fd, (off_t)t->size);
    return brim_fail(BRIM_EIO, "cannot write %s: %s", t->path, brim_errno_text(err));
  }
  t->size += t->pending.len;
  brim_str_clear(&t->pending);
  return BRIM_OK;
}

void brim_tensorboard_close(brim_tensorboard *t) {
  if (!t) return;
  close_file(t);
  brim_str_deinit(&t->pending);
  brim_free(t->folder);
  brim_free(t);
}

//-------------------------------------- scalars of a trace --------------------------------------
// Writes sums of each traced step as scalars.

typedef struct step_sums {
  int64_t step_ns, phase_ns[BRIM_PHASE_COUNT];
  bool phase_used[BRIM_PHASE_COUNT], gpu;
  int64_t busy_ns, busy_until;  // union of the GPU's work so far, and its end
  int64_t h2d_ns, d2h_ns, kernels;
} step_sums;

static void add_gpu(step_sums *s, const brim_trace_event *e) {
  const int64_t took = e->end_ns - e->start_ns;
  const int64_t from = e->start_ns > s->busy_until ? e->start_ns : s->busy_until;
  s->gpu = true;
  if (e->end_ns > from) s->busy_ns += e->end_ns - from;
  if (e->end_ns > s->busy_until) s->busy_until = e->end_ns;
  if (e->kind == BRIM_TRACE_KERNEL) s->kernels++;
  if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_H2D) s->h2d_ns += took;
  if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_D2H) s->d2h_ns += took;
}

// Adds an event to the sums of its step. Events must come by start, as the union needs.
static void add_event(step_sums *s, const brim_trace_event *e) {
  const int64_t took = e->end_ns - e->start_ns;
  if (took < 0) return;
  if (e->kind == BRIM_TRACE_STEP) s->step_ns += took;
  if (e->kind == BRIM_TRACE_PHASE && (unsigned)e->phase < BRIM_PHASE_COUNT) {
    s->phase_ns[e->phase] += took;
    s->phase_used[e->phase] = true;
  }
  if (e->device >= 0 && e->kind <= BRIM_TRACE_MEMSET) add_gpu(s, e);
}

static brim_status put(brim_tensorboard *t, const char *tag, int64_t step, double value) {
  return brim_tensorboard_scalar(t, tag, step, value);
}

static brim_status put_step(brim_tensorboard *t, int64_t step, const step_sums *s) {
  char tag[64];
  if (s->step_ns > 0) BRIM_TRY(put(t, "profile/step_ms", step, (double)s->step_ns / 1e6));
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    if (!s->phase_used[i]) continue;
    snprintf(tag, sizeof tag, "profile/phase_ms/%s", brim_phase_key((brim_phase)i));
    BRIM_TRY(put(t, tag, step, (double)s->phase_ns[i] / 1e6));
  }
  if (!s->gpu) return BRIM_OK;
  BRIM_TRY(put(t, "profile/gpu_busy_ms", step, (double)s->busy_ns / 1e6));
  BRIM_TRY(put(t, "profile/kernels", step, (double)s->kernels));
  BRIM_TRY(put(t, "profile/h2d_ms", step, (double)s->h2d_ns / 1e6));
  return put(t, "profile/d2h_ms", step, (double)s->d2h_ns / 1e6);
}

static brim_status put_steps(const brim_trace *trace, step_sums *sums, brim_tensorboard *t) {
  for (size_t i = 0; i < trace->count; i++) {
    const brim_trace_event *e = &trace->events[i];
    if (e->step >= 0 && e->step < trace->steps) add_event(&sums[e->step], e);
  }
  for (int32_t i = 0; i < trace->steps; i++) BRIM_TRY(put_step(t, i + 1, &sums[i]));
  return brim_tensorboard_flush(t);
}

brim_status brim_scalars_write(const brim_trace *trace, const char *folder) {
  brim_tensorboard *t = NULL;
  const size_t steps = trace->steps > 0 ? (size_t)trace->steps : 0;
  step_sums *sums = brim_calloc(steps + 1, sizeof *sums);
  if (!sums) return brim_fail(BRIM_ENOMEM, "out of memory while writing event files");
  brim_status status = brim_fs_mkdirs(folder);
  if (!status) status = brim_tensorboard_open(folder, BRIM_TENSORBOARD_ADD, 0, &t);
  if (!status) status = put_steps(trace, sums, t);
  brim_tensorboard_close(t);
  brim_free(sums);
  return status;
}
