// Functions that the formats share: they read files and gzip in pieces (every error names the file and
// the offset), parse the arguments of source components, and compute the mean and deviation of images.
// Built-in sources and plug-ins get their arguments as the same JSON text.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "data/data_int.h"

//---------------------------------- files ----------------------------------

static brim_status fail_errno(const char *path, int err) {
  return brim_fail(brim_errno_status(err), "%s: %s", path, brim_errno_text(err));
}

brim_status brim_data_file_open(const char *path, brim_data_file *out) {
  *out = (brim_data_file){0};
  // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail_errno(path, errno);
  brim_status status = BRIM_OK;
  struct stat st;
  if (fstat(fd, &st)) {
    status = fail_errno(path, errno);
  } else if (!S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s: not a regular file", path);
  } else if (st.st_size == 0) {
    status = brim_fail(BRIM_EPARSE, "%s: offset 0: the file is empty", path);
  }
  if (status) {
    close(fd);
    return status;
  }
  *out = (brim_data_file){.path = path, .fd = fd, .size = (size_t)st.st_size};
  return BRIM_OK;
}

void brim_data_file_close(brim_data_file *file) {
  if (file->path) close(file->fd);
  *file = (brim_data_file){0};
}

brim_status brim_data_file_read(const brim_data_file *file, size_t offset, void *out, size_t n) {
  size_t got = 0;
  while (got < n) {
    ssize_t more = pread(file->fd, (uint8_t *)out + got, n - got, (off_t)(offset + got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      return brim_fail(BRIM_EIO, "%s: offset %zu: %s", file->path, offset + got,
                       brim_errno_text(errno));
    }
    if (more == 0) {
      return brim_fail(BRIM_EIO, "%s: offset %zu: the file became shorter while it was in use",
                       file->path, offset + got);
    }
    got += (size_t)more;
  }
  return BRIM_OK;
}

//---------------------------------- gzip ----------------------------------

enum {
  GZ_PIECE = 1 << 30,  // zlib counts in unsigned int
  GZ_BUFFER = 1 << 16,
};

struct brim_data_gz {
  z_stream z;
  const brim_data_file *file;
  size_t in_at, in_held;  // the buffer has in_held bytes of the file from in_at on
  size_t in_pos;          // offset in the file of the next byte to unpack
  bool ended;             // at the end of a member
  uint8_t buffer[GZ_BUFFER];
};

static void *gz_alloc(void *ctx, unsigned items, unsigned size) {
  (void)ctx;
  return brim_calloc(items, size);
}

static void gz_free(void *ctx, void *ptr) {
  (void)ctx;
  brim_free(ptr);
}

bool brim_data_is_gz(const void *data, size_t size) {
  return size >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
}

uint64_t brim_data_gz_limit(size_t size) { return (uint64_t)size * 1032 + 1024; }

brim_status brim_data_gz_open(const brim_data_file *file, brim_data_gz **out) {
  brim_data_gz *gz = brim_calloc(1, sizeof *gz);
  if (!gz) return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  gz->file = file;
  gz->z.zalloc = gz_alloc;
  gz->z.zfree = gz_free;
  if (inflateInit2(&gz->z, 16 + MAX_WBITS) != Z_OK) {  // 16: accept gzip only
    brim_free(gz);
    return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  }
  *out = gz;
  return BRIM_OK;
}

void brim_data_gz_close(brim_data_gz *gz) {
  if (!gz) return;
  inflateEnd(&gz->z);
  brim_free(gz);
}

// Reads the next piece of the file once the current one is used up.
static brim_status gz_refill(brim_data_gz *gz) {
  size_t left = gz->file->size - gz->in_pos;
  if (!left || gz->in_pos < gz->in_at + gz->in_held) return BRIM_OK;
  gz->in_at = gz->in_pos;
  gz->in_held = left < GZ_BUFFER ? left : GZ_BUFFER;
  return brim_data_file_read(gz->file, gz->in_at, gz->buffer, gz->in_held);
}

// Calls inflate once. *produced: bytes written to out.
static brim_status gz_step(brim_data_gz *gz, void *out, size_t n, size_t *produced) {
  BRIM_TRY(gz_refill(gz));
  size_t left = gz->in_at + gz->in_held - gz->in_pos;
  unsigned avail_in = left < GZ_PIECE ? (unsigned)left : GZ_PIECE;
  unsigned avail_out = n < GZ_PIECE ? (unsigned)n : GZ_PIECE;
  gz->z.next_in = (Bytef *)(uintptr_t)(gz->buffer + (gz->in_pos - gz->in_at));
  gz->z.avail_in = avail_in;
  gz->z.next_out = out;
  gz->z.avail_out = avail_out;
  int rc = inflate(&gz->z, Z_NO_FLUSH);
  gz->in_pos += avail_in - gz->z.avail_in;
  *produced = avail_out - gz->z.avail_out;
  switch (rc) {
    case Z_OK:
      return BRIM_OK;
    case Z_STREAM_END:
      gz->ended = true;
      return BRIM_OK;
    case Z_BUF_ERROR:
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: the gzip file ends too early; it is cut off",
                       gz->file->path, gz->in_pos);
    case Z_MEM_ERROR:
      return brim_fail(BRIM_ENOMEM, "%s: out of memory", gz->file->path);
    default:
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: damaged gzip data (%s)", gz->file->path,
                       gz->in_pos, gz->z.msg ? gz->z.msg : "unknown");
  }
}

brim_status brim_data_gz_read(brim_data_gz *gz, void *out, size_t n) {
  size_t got = 0;
  while (got < n) {
    if (gz->ended) {
      // gzip files may consist of several members.
      if (gz->in_pos == gz->file->size) {
        return brim_fail(BRIM_EPARSE, "%s: offset %zu: the gzip data ends %zu bytes too early",
                         gz->file->path, gz->in_pos, n - got);
      }
      inflateReset(&gz->z);
      gz->ended = false;
    }
    size_t produced;
    BRIM_TRY(gz_step(gz, (uint8_t *)out + got, n - got, &produced));
    got += produced;
  }
  return BRIM_OK;
}

brim_status brim_data_gz_finish(brim_data_gz *gz) {
  while (!gz->ended) {
    uint8_t more;
    size_t produced;
    BRIM_TRY(gz_step(gz, &more, 1, &produced));
    if (produced) {
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: holds more data than its header says",
                       gz->file->path, gz->in_pos);
    }
  }
  if (gz->in_pos != gz->file->size) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: %zu bytes follow the gzip data", gz->file->path,
                     gz->in_pos, gz->file->size - gz->in_pos);
  }
  return BRIM_OK;
}

//---------------------------------- arguments ----------------------------------

static json_t *args_object(const brim_component *component);

static json_t *value_to_json(const brim_value *v) {
  switch (v->kind) {
    case BRIM_VALUE_BOOL:
      return json_boolean(v->boolean);
    case BRIM_VALUE_INT:
      return json_integer(v->integer);
    case BRIM_VALUE_FLOAT:
      // JSON has no NaN or infinity; readers of numbers refuse null.
      return isfinite(v->number) ? json_real(v->number) : json_null();
    case BRIM_VALUE_STRING:
      return json_string(v->string);
    case BRIM_VALUE_LIST: {
      json_t *list = json_array();
      for (size_t i = 0; list && i < v->count; i++) {
        if (brim_json_push(list, value_to_json(&v->items[i]))) {
          json_decref(list);
          return NULL;
        }
      }
      return list;
    }
    case BRIM_VALUE_COMPONENT: {
      json_t *object = json_object();
      if (!object) return NULL;
      if (brim_json_put(object, "name", json_string(v->component->name)) ||
          brim_json_put(object, "args", args_object(v->component))) {
        json_decref(object);
        return NULL;
      }
      return object;
    }
    case BRIM_VALUE_NULL:
    case BRIM_VALUE_KIND_COUNT:
      break;
  }
  return json_null();
}

static json_t *args_object(const brim_component *component) {
  json_t *object = json_object();
  for (size_t i = 0; object && i < component->arg_count; i++) {
    const brim_argument *arg = &component->args[i];
    if (brim_json_put(object, arg->name, value_to_json(&arg->value))) {
      json_decref(object);
      return NULL;
    }
  }
  return object;
}

brim_status brim_data_args_dump(const brim_component *component, char **out) {
  brim_json_setup();
  json_t *object = args_object(component);
  if (!object) {
    return brim_fail(BRIM_ENOMEM, "out of memory reading the arguments of %s", component->name);
  }
  brim_status status = brim_json_dump(object, 0, out);
  json_decref(object);
  return status;
}

brim_status brim_data_args_parse(const char *source, const char *json, const char *const *known,
                                 json_t **out) {
  json_t *args = NULL;
  if (!json) json = "{}";
  BRIM_TRY(brim_json_parse(json, strlen(json), source, &args));
  brim_status status = BRIM_OK;
  if (!json_is_object(args)) {
    status = brim_fail(BRIM_EINVAL, "%s: arguments must be a JSON object", source);
  }
  const char *key;
  json_t *value;
  if (!status) {
    json_object_foreach(args, key, value) {
      size_t i = 0;
      while (known[i] && strcmp(known[i], key) != 0) i++;
      if (known[i]) continue;
      const char *near = brim_nearest(key, known);
      status = near ? brim_fail(BRIM_EINVAL, "%s has no argument '%s'; did you mean '%s'?", source,
                                key, near)
                    : brim_fail(BRIM_EINVAL, "%s has no argument '%s'", source, key);
      break;
    }
  }
  if (status) {
    json_decref(args);
    return status;
  }
  *out = args;
  return BRIM_OK;
}

brim_status brim_data_args_int(const json_t *args, const char *source, const char *name,
                               int64_t min, int64_t max, int64_t *value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a whole number from %lld to %lld", source, name,
                     (long long)min, (long long)max);
  }
  *value = json_integer_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_real(const json_t *args, const char *source, const char *name,
                                double min, double max, double *value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  // A NaN is refused too.
  if (!json_is_number(v) || !(json_number_value(v) >= min && json_number_value(v) <= max)) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a number from %g to %g", source, name, min, max);
  }
  *value = json_number_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_string(const json_t *args, const char *source, const char *name,
                                  const char **value) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  if (!json_is_string(v)) return brim_fail(BRIM_EINVAL, "%s: %s must be text", source, name);
  *value = json_string_value(v);
  return BRIM_OK;
}

brim_status brim_data_args_shape(const json_t *args, const char *source, const char *name,
                                 int64_t dim[BRIM_SOURCE_MAX_RANK], int32_t *rank) {
  const json_t *v = json_object_get(args, name);
  if (!v) return BRIM_OK;
  size_t n = json_is_array(v) ? json_array_size(v) : 1;
  bool good = n >= 1 && n <= BRIM_SOURCE_MAX_RANK;
  for (size_t i = 0; good && i < n; i++) {
    const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
    good = json_is_integer(item) && json_integer_value(item) >= 1;
    if (good) dim[i] = json_integer_value(item);
  }
  if (!good) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be 1 to %d whole numbers of at least 1, as (28, 28)",
                     source, name, BRIM_SOURCE_MAX_RANK);
  }
  *rank = (int32_t)n;
  return BRIM_OK;
}

brim_status brim_data_args_split(const char *source, const char *split, const char *const *known) {
  for (size_t i = 0; known[i]; i++) {
    if (strcmp(known[i], split) == 0) return BRIM_OK;
  }
  brim_str all;
  brim_str_init(&all);
  for (size_t i = 0; known[i]; i++) brim_str_printf(&all, "%s%s", i ? ", " : "", known[i]);
  brim_status status = brim_str_status(&all);
  if (!status) {
    // BRIM_ENOENT, as for missing files: a caller that tries all splits then continues.
    status = brim_fail(BRIM_ENOENT, "%s has no split '%s'; it has %s", source, split, all.data);
  }
  brim_str_deinit(&all);
  return status;
}

//---------------------------------- mean and deviation ----------------------------------

enum { PART = 65536 };  // values summed in 32 bits: PART * 255^2 fits

typedef struct channel_sums {
  uint64_t sum, squares;
} channel_sums;

// Adds n <= PART pixels of `channels` values each. Simple enough for the compiler to vectorise.
static void add_part(const uint8_t *p, size_t n, size_t channels, channel_sums *sums) {
  for (size_t c = 0; c < channels; c++) {
    uint32_t part = 0, part2 = 0;
    for (size_t i = 0; i < n; i++) {
      uint32_t v = p[i * channels + c];
      part += v;
      part2 += v * v;
    }
    sums[c].sum += part;
    sums[c].squares += part2;
  }
}

brim_status brim_data_measure(brim_source_info *info, const brim_data_measured *m) {
  if (info->type != BRIM_SAMPLE_U8) return BRIM_OK;  // floats are used as they are
  int64_t last = info->rank == 3 ? info->dim[2] : 1;
  size_t channels = last <= 4 ? (size_t)last : 1, pixels = m->bytes / channels;
  // A run is contiguous values of the same kind: all pixels, or one plane of one sample.
  bool planes = m->planes && channels > 1;
  size_t together = planes ? 1 : channels;
  size_t run = planes ? (size_t)(info->dim[0] * info->dim[1]) : pixels;
  uint8_t *buffer = brim_alloc(PART * together);
  if (!buffer) return brim_fail(BRIM_ENOMEM, "%s: out of memory", m->path);
  channel_sums sums[4] = {{0}};
  brim_status status = BRIM_OK;
  size_t runs = m->bytes / (run * together);
  for (size_t r = 0; r < runs && !status; r++) {
    for (size_t begin = 0; begin < run && !status; begin += PART) {
      size_t n = run - begin < PART ? run - begin : PART;
      status = m->read(m->ctx, (r * run + begin) * together, buffer, n * together);
      if (!status) add_part(buffer, n, together, sums + (planes ? r % channels : 0));
    }
  }
  brim_free(buffer);
  if (status) return status;
  for (size_t c = 0; c < channels; c++) {
    double mean = (double)sums[c].sum / (double)pixels;
    double variance = (double)sums[c].squares / (double)pixels - mean * mean;
    info->mean[c] = (float)(mean / 255.0);
    info->std[c] = variance > 1e-9 ? (float)(sqrt(variance) / 255.0) : 1.0f;  // constant images
  }
  info->channels = (int32_t)channels;
  return BRIM_OK;
}
