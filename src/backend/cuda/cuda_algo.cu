// Remembers which algorithm was chosen where a library offers several: a sorted table in the open device, a
// cache file per GPU and library versions, and the timing that chooses. The op that stores a key and value
// defines them. Callers: cuda_conv.cu, cuda_linear.cu.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/cuda_int.cuh"

struct algo_entry {
  char key[BRIM_CUDA_ALGO_CHARS];
  char value[BRIM_CUDA_ALGO_CHARS];   // the choice of this process
  char cached[BRIM_CUDA_ALGO_CHARS];  // the choice in the cache file; "" = none
  bool used;         // an op of this process uses it, or a checkpoint put it: checkpoints keep it
  bool provisional;  // chosen without memory to measure with; the next measurement ignores it
  bool reported;     // brim_cuda_algo_warn_once has reported it
};

struct brim_cuda_algos {
  pthread_mutex_t mutex;
  algo_entry *entries;  // sorted by key
  size_t count, capacity;
  char path[768];  // "" = no cache file
  char title[256];
  bool warned;
  cudaStream_t stream;  // for timing; kept open, as libraries keep the last stream they were given
};

static void warn(const char *what, const char *path, const char *why) {
  char text[1024];
  snprintf(text, sizeof text, "%s %s: %s", what, path, why);
  brim_cuda_host->log(1, "cuda", text);
}

//---------------------------------- the table ----------------------------------

// Position of the key, or the position to insert it at.
static size_t position_locked(const brim_cuda_algos *a, const char *key, bool *found) {
  size_t low = 0, high = a->count;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    int order = strcmp(a->entries[mid].key, key);
    if (order == 0) {
      *found = true;
      return mid;
    }
    if (order < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  *found = false;
  return low;
}

// Returns the entry of a key, making it if there is none. NULL when memory is short.
static algo_entry *entry_locked(brim_cuda_algos *a, const char *key) {
  bool found = false;
  size_t at = position_locked(a, key, &found);
  if (found) return &a->entries[at];
  if (a->count == a->capacity) {
    size_t capacity = a->capacity ? 2 * a->capacity : 64;
    algo_entry *grown = (algo_entry *)brim_cuda_host->alloc(capacity * sizeof *grown, 0);
    if (!grown) return NULL;
    if (a->count) memcpy(grown, a->entries, a->count * sizeof *grown);
    brim_cuda_host->free(a->entries);
    a->entries = grown;
    a->capacity = capacity;
  }
  memmove(&a->entries[at + 1], &a->entries[at], (a->count - at) * sizeof *a->entries);
  a->count++;
  algo_entry *e = &a->entries[at];
  memset(e, 0, sizeof *e);
  snprintf(e->key, sizeof e->key, "%s", key);
  return e;
}

static bool printable(const char *text, size_t length, bool spaces) {
  if (length == 0 || length >= BRIM_CUDA_ALGO_CHARS) return false;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < ' ' || text[i] > '~' || (text[i] == ' ' && !spaces)) return false;
  }
  return true;
}

// Splits a line "key value" without its end. False if the line has another form.
static bool parse(const char *line, size_t length, char *key, char *value) {
  const char *space = (const char *)memchr(line, ' ', length);
  if (!space) return false;
  size_t key_length = (size_t)(space - line), value_length = length - key_length - 1;
  if (!printable(line, key_length, false) || !printable(space + 1, value_length, true))
    return false;
  memcpy(key, line, key_length);
  key[key_length] = 0;
  memcpy(value, space + 1, value_length);
  value[value_length] = 0;
  return true;
}

//---------------------------------- the cache file ----------------------------------

// Adds the file's choices that the table does not have. Choices in the table, and those this process is
// about to write, win. The first line names the machine: another machine's file is not read.
static void load_locked(brim_cuda_algos *a) {
  if (!a->path[0]) return;
  FILE *f = fopen(a->path, "r");
  if (!f) return;  // no file yet
  char line[2 * BRIM_CUDA_ALGO_CHARS + 16], key[BRIM_CUDA_ALGO_CHARS], value[BRIM_CUDA_ALGO_CHARS];
  bool first = true, odd = false;
  while (fgets(line, sizeof line, f)) {
    size_t length = strlen(line);
    bool whole = length && line[length - 1] == '\n';
    if (whole) line[--length] = 0;
    if (first) {
      first = false;
      if (whole && strcmp(line, a->title) == 0) continue;
      odd = true;
      break;
    }
    if (!whole || !parse(line, length, key, value)) {
      odd = true;
      continue;
    }
    algo_entry *e = entry_locked(a, key);
    if (!e) continue;
    if (!e->value[0]) snprintf(e->value, sizeof e->value, "%s", value);
    if (!e->cached[0]) snprintf(e->cached, sizeof e->cached, "%s", value);
  }
  if (odd && !a->warned) {
    a->warned = true;
    warn("algorithm cache", a->path, "lines that are not understood are left out");
  }
  fclose(f);
}

static bool write_locked(const brim_cuda_algos *a, FILE *f) {
  bool good = fprintf(f, "%s\n", a->title) > 0;
  for (size_t i = 0; good && i < a->count; i++) {
    const algo_entry *e = &a->entries[i];
    if (e->cached[0]) good = fprintf(f, "%s %s\n", e->key, e->cached) > 0;
  }
  return good && fflush(f) == 0 && fsync(fileno(f)) == 0;
}

// Makes a new file beside the cache file, open for writing. NULL and errno if that fails. Other users of
// the folder may read it, which mkstemp alone would not allow.
static FILE *open_temporary(const brim_cuda_algos *a, char *temporary, size_t size) {
  snprintf(temporary, size, "%s.XXXXXX", a->path);
  int fd = mkstemp(temporary);
  if (fd < 0) return NULL;
  FILE *f = fchmod(fd, 0644) == 0 ? fdopen(fd, "w") : NULL;
  if (f) return f;
  int error = errno;
  close(fd);
  unlink(temporary);
  errno = error;
  return NULL;
}

// Writes the whole file beside the old one and then renames it: a reader never sees half of it. Choices
// that other processes have added since are loaded first.
static void save_locked(brim_cuda_algos *a) {
  if (!a->path[0]) return;
  load_locked(a);
  char temporary[800];
  FILE *f = open_temporary(a, temporary, sizeof temporary);
  bool good = f && write_locked(a, f);
  int error = errno;
  if (f && fclose(f) != 0) {
    error = errno;
    good = false;
  }
  if (good && rename(temporary, a->path) != 0) {
    error = errno;
    good = false;
  }
  if (good) return;
  if (f) unlink(temporary);
  if (!a->warned) warn("algorithm cache not written:", a->path, strerror(error));
  a->warned = true;
}

// Copies the letters, digits and dots of a name; other characters become one '-'.
static void file_word(char *out, size_t size, const char *text) {
  size_t n = 0;
  for (; *text && n + 1 < size; text++) {
    bool letter = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') ||
                  (*text >= 'A' && *text <= 'Z') || *text == '.';
    if (letter) {
      out[n++] = *text;
    } else if (n && out[n - 1] != '-') {
      out[n++] = '-';
    }
  }
  out[n] = 0;
}

// Makes the folder and its parents.
static bool make_folders(const char *folder) {
  char path[520];
  size_t length = strlen(folder);
  if (length >= sizeof path) return false;
  for (size_t i = 1; i <= length; i++) {
    if (folder[i] != '/' && folder[i] != 0) continue;
    memcpy(path, folder, i);
    path[i] = 0;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return false;
  }
  return true;
}

brim_status brim_cuda_algo_open(brim_cuda *d, const char *cache_folder,
                                const brim_device_info *info) {
  brim_cuda_algos *a = (brim_cuda_algos *)brim_cuda_host->alloc(sizeof *a, 0);
  if (!a) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while opening a CUDA device");
  memset(a, 0, sizeof *a);
  pthread_mutex_init(&a->mutex, NULL);
  d->algos = a;
  if (!cache_folder[0]) return BRIM_OK;
  char gpu[96], library[128];
  file_word(gpu, sizeof gpu, info->name);
  file_word(library, sizeof library, info->library);
  snprintf(a->title, sizeof a->title, "brim-algorithms-1 %s %s", gpu, library);
  if (!make_folders(cache_folder)) {
    warn("algorithm cache not used:", cache_folder, strerror(errno));
    return BRIM_OK;
  }
  snprintf(a->path, sizeof a->path, "%s/algorithms-%s-%s", cache_folder, gpu, library);
  pthread_mutex_lock(&a->mutex);
  load_locked(a);
  pthread_mutex_unlock(&a->mutex);
  return BRIM_OK;
}

void brim_cuda_algo_close(brim_cuda *d) {
  brim_cuda_algos *a = d->algos;
  if (!a) return;
  if (a->stream) cudaStreamDestroy(a->stream);
  pthread_mutex_destroy(&a->mutex);
  brim_cuda_host->free(a->entries);
  brim_cuda_host->free(a);
  d->algos = NULL;
}

//---------------------------------- find and store ----------------------------------

bool brim_cuda_algo_find(brim_cuda *d, const char *key, char value[BRIM_CUDA_ALGO_CHARS]) {
  brim_cuda_algos *a = d->algos;
  bool found = false;
  pthread_mutex_lock(&a->mutex);
  size_t at = position_locked(a, key, &found);
  if (found) found = d->measure_algorithms ? !a->entries[at].provisional : a->entries[at].used;
  if (found) {
    a->entries[at].used = true;
    snprintf(value, BRIM_CUDA_ALGO_CHARS, "%s", a->entries[at].value);
  }
  pthread_mutex_unlock(&a->mutex);
  return found;
}

static void remember(brim_cuda *d, const char *key, const char *value, bool measured,
                     bool provisional) {
  brim_cuda_algos *a = d->algos;
  if (!printable(key, strlen(key), false) || !printable(value, strlen(value), true)) {
    warn("algorithm not remembered for", key, "its name is too long");
    return;
  }
  pthread_mutex_lock(&a->mutex);
  algo_entry *e = entry_locked(a, key);
  if (e) {
    snprintf(e->value, sizeof e->value, "%s", value);
    e->used = true;
    e->provisional = provisional;
    if (measured) {
      memcpy(e->cached, e->value, sizeof e->cached);
      save_locked(a);
    }
  }
  pthread_mutex_unlock(&a->mutex);
}

void brim_cuda_algo_store(brim_cuda *d, const char *key, const char *value) {
  remember(d, key, value, true, false);
}

void brim_cuda_algo_note(brim_cuda *d, const char *key, const char *value, bool for_now) {
  remember(d, key, value, false, for_now);
}

bool brim_cuda_algo_warn_once(brim_cuda *d, const char *key) {
  brim_cuda_algos *a = d->algos;
  bool found = false, first = true;
  pthread_mutex_lock(&a->mutex);
  size_t at = position_locked(a, key, &found);
  if (found) {
    first = !a->entries[at].reported;
    a->entries[at].reported = true;
  }
  pthread_mutex_unlock(&a->mutex);
  return first;
}

brim_status brim_cuda_algorithms_get(void *impl, char **text) {
  brim_cuda_algos *a = ((brim_cuda *)impl)->algos;
  pthread_mutex_lock(&a->mutex);
  size_t bytes = 1;
  for (size_t i = 0; i < a->count; i++) {
    const algo_entry *e = &a->entries[i];
    if (e->used) bytes += strlen(e->key) + strlen(e->value) + 2;
  }
  char *out = (char *)brim_cuda_host->alloc(bytes, 0);
  if (out) {
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < a->count; i++) {
      const algo_entry *e = &a->entries[i];
      if (e->used) n += (size_t)snprintf(out + n, bytes - n, "%s %s\n", e->key, e->value);
    }
  }
  pthread_mutex_unlock(&a->mutex);
  if (!out) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while listing algorithms");
  *text = out;
  return BRIM_OK;
}

// Takes the lines over; with `a` NULL only checks them.
static brim_status put_locked(brim_cuda_algos *a, const char *text) {
  char key[BRIM_CUDA_ALGO_CHARS], value[BRIM_CUDA_ALGO_CHARS];
  for (int number = 1; *text; number++) {
    const char *end = strchr(text, '\n');
    size_t length = end ? (size_t)(end - text) : strlen(text);
    if (length && !parse(text, length, key, value)) {
      return brim_cuda_fail(BRIM_EPARSE, "algorithms, line %d: expected \"key value\"", number);
    }
    if (length && a) {
      algo_entry *e = entry_locked(a, key);
      if (!e) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while reading algorithms");
      e->used = true;
      e->provisional = false;
      snprintf(e->value, sizeof e->value, "%s", value);
    }
    text += length + (end ? 1 : 0);
  }
  return BRIM_OK;
}

brim_status brim_cuda_algorithms_put(void *impl, const char *text) {
  brim_cuda_algos *a = ((brim_cuda *)impl)->algos;
  BRIM_TRY(put_locked(NULL, text));  // all or nothing
  pthread_mutex_lock(&a->mutex);
  brim_status status = put_locked(a, text);
  pthread_mutex_unlock(&a->mutex);
  return status;
}

//---------------------------------- timing ----------------------------------

enum { SAMPLES = 5, MAX_REPEATS = 200 };
static const float sample_ms = 0.3f;  // one sample lasts at least this long

struct algo_clock {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  brim_status (*run)(void *ctx, int candidate, cudaStream_t stream);
  void *ctx;
};

static brim_status sample(const algo_clock *c, int candidate, int repeats, float *ms) {
  BRIM_TRY(BRIM_CUDA(cudaEventRecord(c->begin, c->stream)));
  for (int i = 0; i < repeats; i++) BRIM_TRY(c->run(c->ctx, candidate, c->stream));
  BRIM_TRY(BRIM_CUDA(cudaEventRecord(c->end, c->stream)));
  BRIM_TRY(BRIM_CUDA(cudaEventSynchronize(c->end)));
  BRIM_TRY(BRIM_CUDA(cudaEventElapsedTime(ms, c->begin, c->end)));
  *ms /= (float)repeats;
  return BRIM_OK;
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

// Median of a few samples. A candidate that takes three times as long as the best gets one sample only.
static brim_status time_one(const algo_clock *c, int candidate, float best, float *ms) {
  BRIM_TRY(sample(c, candidate, 1, ms));  // warm-up: loads or compiles the kernel
  BRIM_TRY(sample(c, candidate, 1, ms));
  if (*ms > 3.0f * best) return BRIM_OK;
  float samples[SAMPLES];
  float wanted = *ms > 0 ? sample_ms / *ms + 1.0f : (float)MAX_REPEATS;
  int repeats = wanted < (float)MAX_REPEATS ? (int)wanted : MAX_REPEATS;
  for (int i = 0; i < SAMPLES; i++) BRIM_TRY(sample(c, candidate, repeats, &samples[i]));
  qsort(samples, SAMPLES, sizeof *samples, by_value);
  *ms = samples[SAMPLES / 2];
  return BRIM_OK;
}

brim_status brim_cuda_algo_time(brim_cuda *d,
                                brim_status (*run)(void *ctx, int candidate, cudaStream_t stream),
                                void *ctx, int candidates, int *best, float *ms) {
  brim_cuda_enter(d);
  brim_cuda_algos *a = d->algos;
  brim_status status = BRIM_OK;
  if (!a->stream) {
    status = BRIM_CUDA(cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking));
  }
  algo_clock c = {a->stream, NULL, NULL, run, ctx};
  if (!status) status = BRIM_CUDA(cudaEventCreate(&c.begin));
  if (!status) status = BRIM_CUDA(cudaEventCreate(&c.end));
  *best = -1;
  *ms = 1e30f;
  for (int i = 0; !status && i < candidates; i++) {
    float own = 0;
    if (time_one(&c, i, *ms, &own)) {
      cudaStreamSynchronize(c.stream);
      cudaGetLastError();  // clears the error: the failure concerns this candidate alone
      continue;
    }
    if (own < *ms) {
      *ms = own;
      *best = i;
    }
  }
  if (c.stream) cudaStreamSynchronize(c.stream);
  if (c.begin) cudaEventDestroy(c.begin);
  if (c.end) cudaEventDestroy(c.end);
  if (!status && *best < 0) {
    status = brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: none of %d algorithms ran", candidates);
  }
  return status;
}
