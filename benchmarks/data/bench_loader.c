// The loader alone: batches of any source as fast as they come, as one JSON line; or the memory of many epochs
// (--epochs); or one thread of H5Dread over the same file, to compare with. Not a test: it asserts nothing. The batches
// are not read while the clock runs.
#include "bench_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "data/data.h"

// The measured batches are at least this many times those that may be ready in the ring; with fewer, the ring would be
// measured.
enum { TIMES_RING = 30, MAX_PIPELINE = 32 };

static const char *const cache_choices[] = {"none", "ram", "gpu", NULL};
static const brim_option table[] = {
    {.name = "dataset", .kind = BRIM_OPTION_STRING, .help = "'hdf5(inputs=x)'; guessed if absent"},
    {.name = "path", .kind = BRIM_OPTION_STRING, .help = "file or folder"},
    {.name = "split", .kind = BRIM_OPTION_STRING, .help = "train, val, test, unlabeled, all"},
    {.name = "transform", .kind = BRIM_OPTION_STRING, .help = "'random_crop(size=24) | ...'"},
    {.name = "cache", .kind = BRIM_OPTION_ENUM, .choices = cache_choices, .help = "of samples"},
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "whose memory is pinned; ref"},
    {.name = "batch", .kind = BRIM_OPTION_INT, .help = "samples; 512"},
    {.name = "workers", .kind = BRIM_OPTION_INT, .help = "threads; 2; 0 = inline"},
    {.name = "prefetch", .kind = BRIM_OPTION_INT, .help = "batches ready per worker; 2"},
    {.name = "limit", .kind = BRIM_OPTION_INT, .help = "only the first samples; 0 = all"},
    {.name = "seed", .kind = BRIM_OPTION_INT, .help = "of the order; 1"},
    {.name = "shuffle", .kind = BRIM_OPTION_FLAG, .negatable = true, .help = "random order; on"},
    {.name = "pin", .kind = BRIM_OPTION_FLAG, .negatable = true, .help = "batches; on"},
    {.name = "skip-broken", .kind = BRIM_OPTION_FLAG, .help = "count what cannot be read"},
    {.name = "seconds", .kind = BRIM_OPTION_FLOAT, .help = "timed; 3"},
    {.name = "windows", .kind = BRIM_OPTION_INT, .help = "of these seconds; 6; the median counts"},
    {.name = "warmup",
     .kind = BRIM_OPTION_FLOAT,
     .help = "before that an epoch, but no longer than these seconds; 1"},
    {.name = "epochs", .kind = BRIM_OPTION_INT, .help = "instead of seconds; memory now and then"},
    {.name = "digest", .kind = BRIM_OPTION_FLAG, .help = "also a hash of all inputs in any order"},
    {.name = "h5dread", .kind = BRIM_OPTION_FLAG, .help = "H5Dread of single rows, random order"},
    {.name = "h5dread-chunk", .kind = BRIM_OPTION_FLAG, .help = "H5Dread of a chunk's rows"},
    {.name = "h5dread-all", .kind = BRIM_OPTION_FLAG, .help = "one H5Dread of everything"},
    {.name = "h5-dataset", .kind = BRIM_OPTION_STRING, .help = "which H5Dread reads; x"},
    {.name = "json", .kind = BRIM_OPTION_FLAG, .help = "a JSON line instead of words"},
    {.name = "help", .kind = BRIM_OPTION_FLAG, .help = "this text"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

// A bench under construction; everything borrowed points into `arena` or argv.
typedef struct bench {
  const brim_option_parse *parse;
  char *command;
  brim_arena *arena;
  brim_component component;
  brim_component stage[MAX_PIPELINE];
  brim_pipeline pipeline;
  brim_device *device;
  brim_source *source;
  brim_transforms *transforms;
  brim_resident *resident;
  brim_loader *loader;
  brim_loader_options options;
  double sample_bytes;  // bytes of all views of one sample
  uint64_t ring;        // batches
} bench;

static const char *text_of(const bench *b, const char *name, const char *fallback) {
  return brim_option_string(b->parse, name, fallback);
}

static const char *cache_of(const bench *b) { return text_of(b, "cache", "none"); }

//---------------------------------- opening ----------------------------------

static brim_status parse_dataset(bench *b) {
  const char *path = text_of(b, "path", NULL);
  const char *text = text_of(b, "dataset", NULL);
  if (!text) return brim_source_guess(path, &b->component);
  brim_pipeline datasets;
  BRIM_TRY(brim_config_parse_expression(b->arena, text, "--dataset", &datasets));
  if (datasets.count != 1 || datasets.tail) {
    return brim_fail(BRIM_EINVAL, "--dataset is '%s', expected one component", text);
  }
  b->component = datasets.items[0];
  return BRIM_OK;
}

static brim_status parse_transform(bench *b) {
  const char *text = text_of(b, "transform", NULL);
  if (!text) return BRIM_OK;
  brim_pipeline stages;
  BRIM_TRY(brim_config_parse_expression(b->arena, text, "--transform", &stages));
  if (stages.count > MAX_PIPELINE || stages.tail) {
    return brim_fail(BRIM_EINVAL, "--transform is not a pipeline of up to %d stages", MAX_PIPELINE);
  }
  for (size_t i = 0; i < stages.count; i++) b->stage[i] = stages.items[i];
  b->pipeline = (brim_pipeline){b->stage, stages.count, false};
  return BRIM_OK;
}

static void fill_options(bench *b) {
  b->options = (brim_loader_options){
      .batch = brim_option_int(b->parse, "batch", 512),
      .num_workers = (int)brim_option_int(b->parse, "workers", 2),
      .prefetch_factor = (int)brim_option_int(b->parse, "prefetch", 2),
      .pin_memory = brim_option_flag(b->parse, "pin", true),
      .shuffle = brim_option_flag(b->parse, "shuffle", true),
      .seed = (uint64_t)brim_option_int(b->parse, "seed", 1),
      .world = 1,
      .limit = (uint64_t)brim_option_int(b->parse, "limit", 0),
      .skip_broken = brim_option_flag(b->parse, "skip-broken", false),
      .transforms = b->transforms,
      .resident = b->resident,
  };
  b->ring = (uint64_t)(b->options.num_workers * b->options.prefetch_factor) + 2;
}

static brim_status open_source(bench *b, const brim_registry *registry) {
  uint64_t seed = (uint64_t)brim_option_int(b->parse, "seed", 1);
  BRIM_TRY(parse_dataset(b));
  BRIM_TRY(parse_transform(b));
  BRIM_TRY(brim_source_open(registry, &b->component, text_of(b, "path", NULL),
                            text_of(b, "split", NULL), seed, &b->source));
  b->sample_bytes = (double)b->source->input_bytes;
  if (b->pipeline.count == 0) return BRIM_OK;
  BRIM_TRY(brim_transforms_create(&b->pipeline, b->source, seed, true, &b->transforms));
  b->sample_bytes =
      (double)brim_transforms_output_bytes(b->transforms) * brim_transforms_views(b->transforms);
  return BRIM_OK;
}

static brim_status open_all(bench *b, const brim_registry *registry) {
  brim_device_options how = {.threads = 1};
  BRIM_TRY(open_source(b, registry));
  BRIM_TRY(brim_device_open(registry, text_of(b, "device", "ref"), &how, &b->device));
  if (strcmp(cache_of(b), "ram") == 0) BRIM_TRY(brim_source_keep(b->source));
  if (strcmp(cache_of(b), "gpu") == 0) {
    BRIM_TRY(brim_resident_create(registry, b->device, b->source, 0, 2, &b->resident));
  }
  fill_options(b);
  return brim_loader_create(b->device, b->source, &b->options, &b->loader);
}

static void close_all(bench *b) {
  brim_loader_destroy(b->loader);
  brim_resident_destroy(b->resident);
  brim_transforms_destroy(b->transforms);
  brim_source_close(b->source);
  brim_device_close(b->device);
}

//---------------------------------- running ----------------------------------

static brim_status one_batch(void *ctx, uint64_t *samples) {
  bench *b = ctx;
  const brim_loaded *batch = NULL;
  BRIM_TRY(brim_loader_next(b->loader, &batch));
  *samples = (uint64_t)batch->rows;
  brim_loader_release(b->loader, batch);
  return BRIM_OK;
}

// Warms up for an epoch, so that caches are full; for less if that takes long, but for more than the ring.
static brim_status warm_up(bench *b) {
  double limit = brim_option_float(b->parse, "warmup", 1);
  uint64_t batches = (uint64_t)brim_loader_batches(b->loader), n = 0;
  brim_time start = brim_clock_now();
  double seconds = 0;
  while (n < 2 * b->ring || (n < batches && seconds < limit)) {
    uint64_t samples;
    BRIM_TRY(one_batch(b, &samples));
    n++;
    seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  }
  return BRIM_OK;
}

static brim_status digest(bench *b, uint64_t *out) {
  *out = 0;
  BRIM_TRY(brim_loader_seek(b->loader, 0, 0));
  int64_t samples = brim_loader_samples(b->loader);
  size_t bytes = (size_t)b->sample_bytes;
  while (samples > 0) {
    const brim_loaded *batch = NULL;
    BRIM_TRY(brim_loader_next(b->loader, &batch));
    if (batch->on_device) return brim_fail(BRIM_EUNSUPPORTED, "--digest with --cache gpu");
    for (int64_t i = 0; i < batch->rows; i++) {
      *out += bench_loader_hash((const uint8_t *)batch->input + (size_t)i * bytes, bytes);
    }
    samples -= batch->rows;
    brim_loader_release(b->loader, batch);
  }
  return BRIM_OK;
}

//---------------------------------- result ----------------------------------

static brim_status print_json(json_t *object, brim_status status) {
  char *text = NULL;
  if (!status) status = brim_json_dump(object, 0, &text);
  if (!status) printf("%s\n", text);
  fflush(stdout);
  brim_free(text);
  json_decref(object);
  return status;
}

static brim_status put_what(const bench *b, const char *mode, json_t *line) {
  char cpu[128];
  brim_machine_cpu_name("", cpu, sizeof cpu);
  BRIM_TRY(brim_json_put(line, "benchmark", json_string("loader")));
  BRIM_TRY(brim_json_put(line, "mode", json_string(mode)));
  BRIM_TRY(brim_json_put(line, "command", json_string(b->command)));
  return brim_json_put(line, "cpu", json_string(cpu));
}

static brim_status put_digest(uint64_t value, json_t *line) {
  char text[32];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
  return brim_json_put(line, "digest", json_string(text));
}

static brim_status put_options(const bench *b, json_t *line) {
  const brim_loader_options *o = &b->options;
  brim_plan plan = {0};
  BRIM_TRY(brim_loader_plan(b->source, o, &plan));
  BRIM_TRY(brim_json_put(line, "dataset", json_string(b->component.name)));
  BRIM_TRY(brim_json_put(line, "samples", json_integer((json_int_t)b->source->info.count)));
  BRIM_TRY(brim_json_put(line, "batch", json_integer(o->batch)));
  BRIM_TRY(brim_json_put(line, "workers", json_integer(o->num_workers)));
  BRIM_TRY(brim_json_put(line, "prefetch", json_integer(o->prefetch_factor)));
  BRIM_TRY(brim_json_put(line, "shuffle", json_boolean(o->shuffle)));
  BRIM_TRY(brim_json_put(line, "pin", json_boolean(o->pin_memory)));
  BRIM_TRY(brim_json_put(line, "cache", json_string(cache_of(b))));
  BRIM_TRY(brim_json_put(line, "transform", json_string(text_of(b, "transform", ""))));
  return brim_json_put(line, "planned_host_bytes",
                       json_integer((json_int_t)plan.bytes[BRIM_PLACE_HOST]));
}

// Microseconds of one thread per sample, over the measured time.
static brim_status put_stages(const brim_loader_stats *before, const brim_loader_stats *after,
                              json_t *line) {
  uint64_t samples = after->samples - before->samples;
  double per = samples ? 1e-3 / (double)samples : 0;
  BRIM_TRY(brim_json_put(line, "read_us_per_sample",
                         brim_json_number((double)(after->read_ns - before->read_ns) * per)));
  json_t *stages = json_object();
  brim_status status = stages ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the result");
  for (size_t i = 0; !status && i < after->stage_count; i++) {
    double ns = (double)(after->stage_ns[i] - before->stage_ns[i]);
    status = brim_json_put(stages, after->stage[i], brim_json_number(ns * per));
  }
  if (status) {
    json_decref(stages);
    return status;
  }
  BRIM_TRY(brim_json_put(line, "transform_us_per_sample", stages));
  return brim_json_put(line, "broken", json_integer((json_int_t)after->broken));
}

static brim_status report(const bench *b, const brim_loader_stats *before,
                          const brim_loader_stats *after, const bench_loader_timing *t,
                          json_t *line) {
  BRIM_TRY(put_what(b, "loader", line));
  BRIM_TRY(put_options(b, line));
  BRIM_TRY(bench_loader_put_timing(t, b->sample_bytes, line));
  BRIM_TRY(brim_json_put(line, "ring_batches", json_integer((json_int_t)b->ring)));
  BRIM_TRY(
      brim_json_put(line, "timed_over_ring", brim_json_number((double)t->steps / (double)b->ring)));
  return put_stages(before, after, line);
}

static void say(const char *what, const bench_loader_timing *t, double sample_bytes) {
  printf("%s: %.0f samples/s (%.0f to %.0f), %.1f MB/s, %llu samples in %.2f s\n", what,
         t->summary.median, t->summary.min, t->summary.max, t->summary.median * sample_bytes * 1e-6,
         (unsigned long long)t->samples, t->seconds);
}

//---------------------------------- modes ----------------------------------

static brim_status run_seconds(bench *b) {
  uint64_t hash = 0;
  bool hashed = brim_option_flag(b->parse, "digest", false);
  bench_loader_timing timing;
  brim_loader_stats before, after;
  if (hashed) BRIM_TRY(digest(b, &hash));
  BRIM_TRY(warm_up(b));
  brim_loader_get_stats(b->loader, &before);
  BRIM_TRY(bench_loader_measure(one_batch, b, brim_option_float(b->parse, "seconds", 3),
                                (size_t)brim_option_int(b->parse, "windows", 6),
                                TIMES_RING * b->ring, &timing));
  BRIM_TRY(brim_device_sync(b->device));
  brim_loader_get_stats(b->loader, &after);
  if (!brim_option_flag(b->parse, "json", false)) {
    say("loader", &timing, b->sample_bytes);
    return BRIM_OK;
  }
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = report(b, &before, &after, &timing, line);
  if (!status && hashed) status = put_digest(hash, line);
  return print_json(line, status);
}

// "VmRSS:   1234 kB" of this process; 0 if the kernel does not show it.
static json_int_t status_bytes(const char *text, const char *key) {
  char value[64];
  if (!brim_machine_find_line(text, key, value, sizeof value)) return 0;
  return (json_int_t)strtoll(value, NULL, 10) * 1024;
}

static brim_status put_memory(int64_t epoch, double seconds, json_t *line) {
  static const char *const keys[][2] = {{"VmRSS", "rss_bytes"},
                                        {"RssAnon", "rss_anon_bytes"},
                                        {"RssFile", "rss_file_bytes"},
                                        {"RssShmem", "rss_shmem_bytes"},
                                        {"VmHWM", "rss_peak_bytes"}};
  char text[8192];
  if (!brim_machine_read_text("", "/proc/self/status", text, sizeof text)) {
    return brim_fail(BRIM_EIO, "/proc/self/status cannot be read");
  }
  BRIM_TRY(brim_json_put(line, "event", json_string("epoch")));
  BRIM_TRY(brim_json_put(line, "epoch", json_integer(epoch)));
  BRIM_TRY(brim_json_put(line, "seconds", brim_json_number(seconds)));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    BRIM_TRY(brim_json_put(line, keys[i][1], json_integer(status_bytes(text, keys[i][0]))));
  }
  brim_alloc_stats memory;
  brim_alloc_get_stats(&memory);
  BRIM_TRY(brim_json_put(line, "planned_live_bytes",
                         json_integer((json_int_t)memory.live_bytes[BRIM_MEM_PLANNED])));
  return brim_json_put(line, "allocations", json_integer((json_int_t)memory.calls));
}

static brim_status run_epochs(bench *b, int64_t epochs) {
  json_t *head = json_object();
  if (!head) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = put_what(b, "epochs", head);
  if (!status) status = put_options(b, head);
  BRIM_TRY(print_json(head, status));
  for (int64_t epoch = 1; epoch <= epochs; epoch++) {
    brim_time start = brim_clock_now();
    for (int64_t i = brim_loader_batches(b->loader); i > 0; i--) {
      uint64_t samples;
      BRIM_TRY(one_batch(b, &samples));
    }
    double seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    // Prints seldom, so that printing does not affect the measurement.
    if (epoch > 2 && epoch < epochs && epoch % 20 != 0) continue;
    json_t *line = json_object();
    if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
    BRIM_TRY(print_json(line, put_memory(epoch, seconds, line)));
  }
  return BRIM_OK;
}

static brim_status report_h5(const bench *b, const char *mode, const bench_h5 *h5,
                             const bench_loader_timing *t, json_t *line) {
  BRIM_TRY(put_what(b, mode, line));
  BRIM_TRY(brim_json_put(line, "samples", json_integer((json_int_t)bench_h5_rows(h5))));
  BRIM_TRY(
      brim_json_put(line, "rows_per_call", json_integer((json_int_t)bench_h5_rows_per_call(h5))));
  return bench_loader_put_timing(t, (double)bench_h5_row_bytes(h5), line);
}

static brim_status run_h5_open(bench *b, const char *mode, bench_h5 *h5) {
  bench_loader_timing timing, warm;
  uint64_t hash = 0;
  bool hashed = brim_option_flag(b->parse, "digest", false);
  if (hashed) BRIM_TRY(bench_h5_digest(h5, &hash));
  double warmup = brim_option_float(b->parse, "warmup", 1);
  BRIM_TRY(bench_loader_measure(bench_h5_step, h5, warmup, 1, 0, &warm));
  BRIM_TRY(bench_loader_measure(bench_h5_step, h5, brim_option_float(b->parse, "seconds", 3),
                                (size_t)brim_option_int(b->parse, "windows", 6), 0, &timing));
  if (!brim_option_flag(b->parse, "json", false)) {
    say(mode, &timing, (double)bench_h5_row_bytes(h5));
    return BRIM_OK;
  }
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = report_h5(b, mode, h5, &timing, line);
  if (!status && hashed) status = put_digest(hash, line);
  return print_json(line, status);
}

static brim_status run_h5(bench *b, const char *mode, bench_h5_how how) {
  bench_h5 *h5 = NULL;
  const char *path = text_of(b, "path", NULL);
  if (!path) return brim_fail(BRIM_EINVAL, "--%s needs --path FILE", mode);
  BRIM_TRY(bench_h5_open(path, text_of(b, "h5-dataset", "x"), how,
                         (uint64_t)brim_option_int(b->parse, "seed", 1), &h5));
  brim_status status = run_h5_open(b, mode, h5);
  bench_h5_close(h5);
  return status;
}

static brim_status run(bench *b, const brim_registry *registry) {
  static const char *const peers[] = {"h5dread", "h5dread-chunk", "h5dread-all"};
  static const bench_h5_how how[] = {BENCH_H5_ROWS, BENCH_H5_CHUNKS, BENCH_H5_ALL};
  int64_t windows = brim_option_int(b->parse, "windows", 6);
  if (windows < 1 || windows > BENCH_LOADER_MAX_WINDOWS) {
    return brim_fail(BRIM_EINVAL, "--windows is not between 1 and %d", BENCH_LOADER_MAX_WINDOWS);
  }
  for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
    if (brim_option_flag(b->parse, peers[i], false)) return run_h5(b, peers[i], how[i]);
  }
  BRIM_TRY(open_all(b, registry));
  int64_t epochs = brim_option_int(b->parse, "epochs", 0);
  return epochs > 0 ? run_epochs(b, epochs) : run_seconds(b);
}

//---------------------------------- main ----------------------------------

static void print_help(void) {
  brim_str text;
  brim_str_init(&text);
  brim_option_help(tables, 100, &text);
  printf("usage: bench_loader --dataset hdf5 --path FILE --batch 512 --workers 2 ...\n%s",
         text.data);
  brim_str_deinit(&text);
}

// The command as it was given, without the program's folder.
static char *join(brim_arena *arena, int argc, char **argv) {
  char *text = brim_arena_strdup(arena, "bench_loader");
  for (int i = 1; text && i < argc; i++) {
    const char *quote = strpbrk(argv[i], " |()") ? "'" : "";
    text = brim_arena_printf(arena, "%s %s%s%s", text, quote, argv[i], quote);
  }
  return text;
}

int main(int argc, char **argv) {
  brim_json_setup();  // must come before jansson's first allocation
  brim_option_parse parse;
  brim_status status =
      brim_option_parse_args(tables, argc - 1, (const char *const *)(argv + 1), &parse);
  if (status) {
    fprintf(stderr, "bench_loader: %s\n", brim_status_detail());
    return 2;
  }
  bench b = {.parse = &parse};
  brim_registry *registry = NULL;
  if (brim_option_flag(&parse, "help", false)) {
    print_help();
    goto done;
  }
  status = brim_arena_create(0, &b.arena);
  if (!status) b.command = join(b.arena, argc, argv);
  if (!status && !b.command) status = brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load_default(registry);
  if (!status) status = run(&b, registry);
  if (status) fprintf(stderr, "bench_loader: %s\n", brim_status_detail());
  close_all(&b);
  brim_registry_destroy(registry);
  brim_arena_destroy(b.arena);
done:
  brim_option_parse_deinit(&parse);
  return status ? 1 : 0;
}
