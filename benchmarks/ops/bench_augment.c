// Speed of the device's transforms (extension data.augment): batches from a resident set of random samples, in the
// loader's order. Device time of a batch, bytes that have to move, and their share of a plain copy's rate. And rows
// that the device fetches from page-locked host memory, as from a mapped file: their GB/s are those of the link. Not a
// test: it asserts nothing.
//   bench_augment [--device cuda] [--case NAME] [--batch N] [--ms PER_CASE] [--json]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "config/config.h"
#include "data/data.h"

enum { MAX_REPEATS = 500, MIN_REPEATS = 10, WARM_UP = 3, ORDERS = 8 };

typedef struct options {
  const char *device, *only;
  int64_t batch;  // 0 = the case's own
  double ms;
  bool json;
} options;

#define SIMCLR(size, kernel)                                                      \
  "random_resized_crop(size=" size                                                \
  ", scale=(0.08, 1.0), ratio=(0.75, 1.3333333)) | random_flip | "                \
  "color_jitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=0.8) | " \
  "random_grayscale(p=0.2) | gaussian_blur(kernel=" kernel ", sigma=(0.1, 2.0), p=0.5) | views"

// Two cases that fetch from host memory: aligned to a page, and one byte behind the start of one.
#define FETCH "fetch"
#define FETCH_ASKEW "fetch askew"

typedef struct bench_case {
  const char *name, *pipeline;  // NULL: a gather; FETCH: out of host memory
  int64_t dim[3];
  brim_sample_type type;
  int64_t batch;
  uint64_t count;  // samples of the set: far more than caches hold
} bench_case;

static const bench_case cases[] = {
    {"simclr-96", SIMCLR("96", "9"), {96, 96, 3}, BRIM_SAMPLE_U8, 1024, 20000},
    {"simclr-32", SIMCLR("32", "3"), {32, 32, 3}, BRIM_SAMPLE_U8, 1024, 50000},
    {"simclr-224", SIMCLR("224", "23"), {256, 256, 3}, BRIM_SAMPLE_U8, 256, 4000},
    {"crop-flip-96",
     "random_resized_crop(size=96, scale=(0.08, 1.0), ratio=(0.75, 1.3333333)) | "
     "random_flip",
     {96, 96, 3},
     BRIM_SAMPLE_U8,
     1024,
     20000},
    {"jitter-96",
     "color_jitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=1.0)",
     {96, 96, 3},
     BRIM_SAMPLE_U8,
     1024,
     20000},
    {"blur-96",
     "gaussian_blur(kernel=9, sigma=(0.1, 2.0), p=1.0)",
     {96, 96, 3},
     BRIM_SAMPLE_U8,
     1024,
     20000},
    {"cifar",
     "random_crop(size=32, padding=4) | random_flip | cutout(size=8)",
     {32, 32, 3},
     BRIM_SAMPLE_U8,
     1024,
     50000},
    {"shrink-224",
     "random_resized_crop(size=224, scale=(0.08, 1.0), ratio=(0.75, 1.3333333)) | "
     "random_flip",
     {400, 300, 3},
     BRIM_SAMPLE_U8,
     256,
     2000},
    {"gather-signals", NULL, {5160, 2, 1}, BRIM_SAMPLE_F32, 2048, 20000},
    {"gather-cifar", NULL, {32, 32, 3}, BRIM_SAMPLE_U8, 4096, 50000},
    {"gather-mnist", NULL, {28, 28, 1}, BRIM_SAMPLE_U8, 4096, 60000},
    {"fetch-signals", FETCH, {5160, 2, 1}, BRIM_SAMPLE_F32, 2048, 32768},
    {"fetch-askew", FETCH_ASKEW, {5160, 2, 1}, BRIM_SAMPLE_F32, 2048, 32768},
    {"fetch-digits", FETCH, {28, 28, 1}, BRIM_SAMPLE_U8, 4096, 200000},
    {"fetch-numbers", FETCH, {3, 1, 1}, BRIM_SAMPLE_F32, 65536, 4000000},
};

static bool is_fetched(const bench_case *c) {
  return c->pipeline && brim_str_starts(c->pipeline, FETCH);
}

//---------------------------------- timing ----------------------------------

typedef struct timed {
  brim_device *device;
  brim_event *start, *end;
  double ms;
} timed;

typedef brim_status (*work_fn)(void *ctx, int round);

static brim_status time_work(const timed *t, work_fn work, void *ctx, brim_stats_summary *out) {
  double times[MAX_REPEATS], total = 0;
  size_t n = 0;
  for (int i = 0; i < WARM_UP; i++) BRIM_TRY(work(ctx, i));
  while (n < MAX_REPEATS && (n < MIN_REPEATS || total < t->ms * 1e6)) {
    int64_t ns = 0;
    BRIM_TRY(brim_event_record(t->device, t->start));
    BRIM_TRY(work(ctx, (int)n));
    BRIM_TRY(brim_event_record(t->device, t->end));
    BRIM_TRY(brim_event_elapsed(t->device, t->start, t->end, &ns));
    times[n++] = (double)(ns > 0 ? ns : 1);
    total += (double)ns;
  }
  return brim_stats_summarize(times, n, 1, out);
}

typedef struct copying {
  brim_device *device;
  unsigned char *block;
  size_t half;
} copying;

static brim_status copy_work(void *ctx, int round) {
  (void)round;
  const copying *c = ctx;
  return brim_device_copy(c->device, c->block + c->half, c->block, c->half, BRIM_COPY_D2D);
}

// Bytes read and written by a copy of 1 GiB, per second.
static brim_status measure_copy(const timed *t, double *bytes_per_s) {
  copying c = {.device = t->device, .half = (size_t)1 << 30};
  void *block = NULL;
  BRIM_TRY(brim_device_alloc(t->device, BRIM_BUFFER_DEVICE, 2 * c.half, &block));
  c.block = block;
  brim_stats_summary s;
  brim_status status = brim_device_fill(t->device, block, 0, 2 * c.half);
  if (!status) status = time_work(t, copy_work, &c, &s);
  if (!status) *bytes_per_s = 2.0 * (double)c.half / (s.median * 1e-9);
  brim_device_free(t->device, BRIM_BUFFER_DEVICE, block);
  return status;
}

//---------------------------------- a case ----------------------------------

typedef struct loaded {
  brim_device *device;
  const brim_augment_table *table;
  const brim_augment_program *program;
  brim_augment_batch batch;
  uint64_t *orders;  // device memory, ORDERS x batch
  void *inputs, *targets, *out_targets, *scratch;
  uint8_t *pages;  // in host memory; NULL = the set is on the device
  size_t page_bytes;
  const uint8_t *rows;  // the device's address of the first row
  bool locked;
} loaded;

static brim_status fetch_work(void *ctx, int round) {
  const loaded *l = ctx;
  const brim_augment_batch *b = &l->batch;
  const uint64_t *order = l->orders + (int64_t)(round % ORDERS) * b->rows;
  const brim_augment_fetch fetch = {.from = l->rows,
                                    .stride = l->program->sample_bytes,
                                    .bytes = l->program->sample_bytes,
                                    .place = order,
                                    .rows = b->rows,
                                    .capacity = b->capacity,
                                    .to = b->out,
                                    .targets = b->targets,
                                    .index = order,
                                    .target_bytes = b->target_bytes,
                                    .out_targets = b->out_targets};
  return l->table->fetch(l->device->stream, &fetch);
}

static brim_status augment_work(void *ctx, int round) {
  loaded *l = ctx;
  brim_augment_batch batch = l->batch;
  batch.index = l->orders + (int64_t)(round % ORDERS) * batch.rows;
  batch.epoch = round;
  return l->table->run(l->device->stream, l->program, &batch, l->scratch);
}

static uint64_t mix(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Fills with repetitions of the same 16 MiB of random bytes: their values do not matter, their addresses do.
static brim_status fill_random(brim_device *device, unsigned char *to, size_t bytes) {
  size_t part = (size_t)16 << 20;
  uint64_t *host = brim_alloc(part), state = 7;
  if (!host) return brim_fail(BRIM_ENOMEM, "bench_augment: out of memory");
  for (size_t i = 0; i < part / 8; i++) host[i] = mix(&state);
  brim_status status = BRIM_OK;
  for (size_t at = 0; !status && at < bytes; at += part) {
    size_t n = bytes - at < part ? bytes - at : part;
    status = brim_device_copy(device, to + at, host, n, BRIM_COPY_H2D);
  }
  if (!status) status = brim_device_sync(device);
  brim_free(host);
  return status;
}

static brim_status fill_orders(loaded *l, uint64_t count) {
  size_t n = (size_t)l->batch.rows * ORDERS;
  uint64_t *host = brim_alloc(n * sizeof *host), state = 11;
  if (!host) return brim_fail(BRIM_ENOMEM, "bench_augment: out of memory");
  for (size_t i = 0; i < n; i++) host[i] = mix(&state) % count;
  brim_status status =
      brim_device_copy(l->device, l->orders, host, n * sizeof *host, BRIM_COPY_H2D);
  if (!status) status = brim_device_sync(l->device);
  brim_free(host);
  return status;
}

// The set in host memory that the device may read.
static brim_status lock_pages(loaded *l, size_t bytes, size_t askew) {
  const void *there = NULL;
  size_t page = 1 << 16;
  if (!l->table->lock) return brim_fail(BRIM_EUNSUPPORTED, "the device reads no host memory");
  l->page_bytes = (bytes + askew + page - 1) / page * page;
  void *pages =
      mmap(NULL, l->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return brim_fail(BRIM_ENOMEM, "bench_augment: out of memory");
  l->pages = pages;
  memset(pages, 7, l->page_bytes);
  BRIM_TRY(l->table->lock(l->pages, l->page_bytes, l->batch.out, &there));
  l->locked = true;
  l->rows = (const uint8_t *)there + askew;
  return BRIM_OK;
}

static void unload(loaded *l) {
  if (l->locked) l->table->unlock(l->pages);
  if (l->pages) munmap(l->pages, l->page_bytes);
  void *all[] = {l->inputs, l->targets, l->out_targets, l->scratch, l->orders, l->batch.out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    brim_device_free(l->device, BRIM_BUFFER_DEVICE, all[i]);
  }
}

static brim_status load(loaded *l, const bench_case *c, int64_t rows) {
  const brim_augment_program *p = l->program;
  enum { TARGET = 4 };
  void *orders = NULL;
  size_t bytes[] = {(size_t)c->count * p->sample_bytes,
                    (size_t)c->count * TARGET,
                    (size_t)rows * TARGET,
                    l->table->scratch_bytes(p, rows),
                    (size_t)rows * ORDERS * sizeof(uint64_t),
                    (size_t)rows * (size_t)p->views * p->out_bytes};
  void **to[] = {&l->inputs, &l->targets, &l->out_targets, &l->scratch, &orders, &l->batch.out};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
    if (bytes[i] == 0 || (i == 0 && is_fetched(c))) continue;
    BRIM_TRY(brim_device_alloc(l->device, BRIM_BUFFER_DEVICE, bytes[i], to[i]));
    l->orders = orders;
  }
  l->batch.inputs = l->inputs;
  l->batch.targets = l->targets;
  l->batch.out_targets = l->out_targets;
  l->batch.target_bytes = TARGET;
  l->batch.rows = l->batch.capacity = rows;
  BRIM_TRY(is_fetched(c) ? lock_pages(l, bytes[0], strcmp(c->pipeline, FETCH_ASKEW) == 0)
                         : fill_random(l->device, l->inputs, bytes[0]));
  BRIM_TRY(fill_random(l->device, l->targets, bytes[1]));
  return fill_orders(l, c->count);
}

static void print_case(const bench_case *c, const loaded *l, const brim_stats_summary *s,
                       double ceiling, bool json) {
  const brim_augment_program *p = l->program;
  double images = (double)l->batch.rows * (double)p->views;
  double bytes = (double)l->batch.rows * (double)p->sample_bytes;
  if (!is_fetched(c)) bytes += images * (double)p->out_bytes;  // each byte crosses the link once
  double rate = bytes / (s->median * 1e-9);
  if (!json) {
    printf("%-15s %6lld %5d %9.4f %8.4f %12.0f %9.1f %7.1f%%\n", c->name, (long long)l->batch.rows,
           (int)p->views, s->median * 1e-6, s->mad * 1e-6, images / (s->median * 1e-9), rate * 1e-9,
           100 * rate / ceiling);
    return;
  }
  json_t *line = json_object();
  if (!line) return;
  brim_json_put(line, "device", json_string(l->device->info.name));
  brim_json_put(line, "case", json_string(c->name));
  brim_json_put(line, "pipeline", json_string(c->pipeline ? c->pipeline : "gather"));
  brim_json_put(line, "batch", brim_json_number((double)l->batch.rows));
  brim_json_put(line, "views", brim_json_number(p->views));
  brim_json_put(line, "repeats", brim_json_number((double)s->n));
  brim_json_put(line, "median_ns", brim_json_number(s->median));
  brim_json_put(line, "mad_ns", brim_json_number(s->mad));
  brim_json_put(line, "gbytes_per_s", brim_json_number(rate * 1e-9));
  brim_json_put(line, "copy_gbytes_per_s", brim_json_number(ceiling * 1e-9));
  char *text = NULL;
  if (!brim_json_dump(line, 0, &text)) printf("%s\n", text);
  fflush(stdout);
  brim_free(text);
  json_decref(line);
}

static brim_status run_case(const timed *t, const brim_augment_table *table, const bench_case *c,
                            const options *o, double ceiling) {
  brim_source source = {.target_bytes = 4};
  size_t values = (size_t)(c->dim[0] * c->dim[1] * c->dim[2]);
  source.input_bytes = values * (c->type == BRIM_SAMPLE_F32 ? 4 : 1);
  source.info = (brim_source_info){.count = c->count, .type = c->type, .rank = 3, .classes = 10};
  memcpy(source.info.dim, c->dim, sizeof c->dim);
  brim_arena *arena = NULL;
  brim_pipeline pipeline = {0};
  brim_transforms *transforms = NULL;
  loaded l = {.device = t->device, .table = table};
  brim_stats_summary summary;
  BRIM_TRY(brim_arena_create(0, &arena));
  brim_status status = BRIM_OK;
  if (c->pipeline && !is_fetched(c))
    status = brim_config_parse_expression(arena, c->pipeline, c->name, &pipeline);
  if (!status) status = brim_transforms_create(&pipeline, &source, 1, true, &transforms);
  if (status) goto fail_arena;
  l.program = brim_transforms_program(transforms);
  status = table->supports(l.program);
  if (!status) status = load(&l, c, o->batch ? o->batch : c->batch);
  if (!status) status = time_work(t, is_fetched(c) ? fetch_work : augment_work, &l, &summary);
  if (!status) print_case(c, &l, &summary, ceiling, o->json);
  unload(&l);
  brim_transforms_destroy(transforms);
fail_arena:
  brim_arena_destroy(arena);
  return status;
}

//---------------------------------- program ----------------------------------

static brim_status bench(const brim_registry *registry, const options *o) {
  timed t = {.ms = o->ms};
  BRIM_TRY(brim_device_open(registry, o->device, NULL, &t.device));
  const brim_augment_table *table = brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION);
  brim_status status = BRIM_OK;
  double ceiling = 0;
  if (!table || t.device->info.host_memory) {
    status = brim_fail(BRIM_EUNSUPPORTED, "%s has no transforms of its own", o->device);
  }
  if (!status) status = brim_event_create(t.device, &t.start);
  if (!status) status = brim_event_create(t.device, &t.end);
  if (!status) status = measure_copy(&t, &ceiling);
  if (!status && !o->json) {
    printf("%s, copy %.0f GB/s read and written\n", t.device->info.name, ceiling * 1e-9);
    printf("%-15s %6s %5s %9s %8s %12s %9s %8s\n", "case", "batch", "views", "ms", "mad",
           "images/s", "GB/s", "of copy");
  }
  for (size_t i = 0; !status && i < sizeof cases / sizeof *cases; i++) {
    if (o->only && strcmp(o->only, cases[i].name) != 0) continue;
    status = run_case(&t, table, &cases[i], o, ceiling);
  }
  if (t.end) brim_event_destroy(t.device, t.end);
  if (t.start) brim_event_destroy(t.device, t.start);
  brim_device_close(t.device);
  return status;
}

static bool parse(int argc, char **argv, options *o) {
  *o = (options){.device = "cuda", .ms = 300};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      o->json = true;
      continue;
    }
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!value) return false;
    if (strcmp(argv[i], "--device") == 0) {
      o->device = value;
    } else if (strcmp(argv[i], "--case") == 0) {
      o->only = value;
    } else if (strcmp(argv[i], "--batch") == 0) {
      o->batch = atoll(value);
    } else if (strcmp(argv[i], "--ms") == 0) {
      o->ms = atof(value);
    } else {
      return false;
    }
    i++;
  }
  return o->batch >= 0;
}

int main(int argc, char **argv) {
  options o;
  if (!parse(argc, argv, &o)) {
    fprintf(stderr,
            "usage: bench_augment [--device cuda] [--case NAME] [--batch N] [--ms PER_CASE] "
            "[--json]\n");
    return 2;
  }
  brim_registry *registry = NULL;
  brim_status status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load_default(registry);
  if (!status) status = bench(registry, &o);
  if (status) fprintf(stderr, "bench_augment: %s\n", brim_status_detail());
  if (registry) brim_registry_destroy(registry);
  return status ? 1 : 0;
}
