// What the words of `brim data` share: the source and its splits, progress, names.
#include "cli/data/cli_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

//---------------------------------- the source ----------------------------------

brim_status brim_cli_data_int(brim_cli *cli, const char *name, int64_t min, int64_t max,
                              int64_t *value) {
  if (!brim_option_find(&cli->parse, name)) return BRIM_OK;
  int64_t given = brim_option_int(&cli->parse, name, *value);
  if (given < min || given > max) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %lld to %lld, not %lld"), name,
                          (long long)min, (long long)max, (long long)given);
  }
  *value = given;
  return BRIM_OK;
}

brim_status brim_cli_data_parse(brim_cli_data *d, const char *text, const char *name,
                                brim_pipeline *out) {
  BRIM_TRY(brim_config_parse_expression(d->arena, text, name, out));
  if (out->count == 1 && !out->tail) return BRIM_OK;
  return brim_cli_usage(d->cli, BRIM_N_("%s: expected one name with its arguments, not '%.200s'"),
                        name, text);
}

static brim_status find_component(brim_cli_data *d) {
  const char *text = brim_option_string(&d->cli->parse, "dataset", NULL);
  if (!text) return brim_source_guess(d->path, &d->component);
  brim_pipeline pipeline;
  BRIM_TRY(brim_cli_data_parse(d, text, "--dataset", &pipeline));
  d->component = pipeline.items[0];
  return BRIM_OK;
}

// --allow-external is the argument allow_external of hdf5.
static brim_status allow_external(brim_cli_data *d) {
  brim_component *c = &d->component;
  if (!brim_option_flag(&d->cli->parse, "allow-external", false) || strcmp(c->name, "hdf5") != 0)
    return BRIM_OK;
  brim_argument *args = brim_arena_calloc(d->arena, c->arg_count + 1, sizeof *args);
  if (!args) return brim_fail(BRIM_ENOMEM, "out of memory opening a source");
  size_t n = 0;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (strcmp(c->args[i].name, "allow_external") != 0) args[n++] = c->args[i];
  }
  args[n++] = (brim_argument){.name = "allow_external",
                              .value = {.kind = BRIM_VALUE_BOOL, .boolean = true}};
  c->args = args;
  c->arg_count = n;
  return BRIM_OK;
}

brim_status brim_cli_data_init(brim_cli *cli, const char *path, brim_cli_data *d) {
  memset(d, 0, sizeof *d);
  d->cli = cli;
  d->path = path;
  int64_t threads = 0, seed = 0;
  BRIM_TRY(brim_cli_data_int(cli, "threads", 0, 1024, &threads));
  BRIM_TRY(brim_cli_data_int(cli, "seed", 0, INT64_MAX, &seed));
  d->seed = (uint64_t)seed;
  brim_status status = brim_arena_create(0, &d->arena);
  if (!status) status = brim_pool_create(threads ? (int)threads : brim_cpu_count(), &d->pool);
  if (!status && (path || brim_option_find(&cli->parse, "dataset"))) {
    status = brim_cli_registry(cli, &d->registry);
    if (!status) status = find_component(d);
    if (!status) status = allow_external(d);
  }
  if (status) brim_cli_data_deinit(d);
  return status;
}

static void close_splits(brim_cli_data *d) {
  for (size_t i = 0; i < d->split_count; i++) brim_source_close(d->split[i].source);
  d->split_count = 0;
}

void brim_cli_data_deinit(brim_cli_data *d) {
  close_splits(d);
  brim_pool_destroy(d->pool);
  brim_registry_destroy(d->registry);
  brim_arena_destroy(d->arena);
  memset(d, 0, sizeof *d);
}

//---------------------------------- splits ----------------------------------

// Where the target lies behind an input.
static size_t target_place(const brim_source *source) {
  return (source->input_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
}

static brim_status read_one(brim_source *source, uint64_t index, uint8_t *out) {
  return brim_source_read(source, index, 1, out, out + target_place(source), NULL, NULL);
}

// Are these the same samples under two names (a set without a val split gives its test set)? By
// count, name and content of the first and the last; what cannot be read is as good as its name.
static brim_status same_samples(brim_source *a, brim_source *b, bool *same) {
  uint64_t count = a->info.count;
  *same = false;
  if (count != b->info.count || a->input_bytes != b->input_bytes ||
      a->target_bytes != b->target_bytes) {
    return BRIM_OK;
  }
  size_t bytes = target_place(a) + a->target_bytes;
  uint8_t *left = brim_calloc(1, bytes), *right = brim_calloc(1, bytes);
  if (!left || !right) {
    brim_free(left);
    brim_free(right);
    return brim_fail(BRIM_ENOMEM, "out of memory while comparing the splits");
  }
  *same = true;
  for (int i = 0; i < 2 && *same; i++) {
    uint64_t index = i ? count - 1 : 0;
    char x[512], y[512];
    brim_source_describe(a, index, x, sizeof x);
    brim_source_describe(b, index, y, sizeof y);
    brim_status one = read_one(a, index, left), other = read_one(b, index, right);
    if (!one && !other) *same = memcmp(left, right, bytes) == 0;
    *same = *same && strcmp(x, y) == 0;
  }
  brim_free(left);
  brim_free(right);
  brim_status_clear();
  return BRIM_OK;
}

static brim_status add_split(brim_cli_data *d, const char *name, brim_source *source) {
  for (size_t i = 0; i < d->split_count; i++) {
    bool same;
    brim_status status = same_samples(d->split[i].source, source, &same);
    if (!status && !same) continue;
    brim_source_close(source);
    return status;
  }
  brim_cli_split *split = &d->split[d->split_count++];
  snprintf(split->name, sizeof split->name, "%s", name);
  split->source = source;
  return BRIM_OK;
}

void brim_cli_data_hush(const brim_cli *cli, bool hush) {
  brim_log_level level = hush || cli->quiet ? BRIM_LOG_ERROR
                         : cli->verbose     ? BRIM_LOG_DEBUG
                                            : BRIM_LOG_WARN;
  bool json = brim_option_flag(&cli->parse, "log-json", false);
  brim_log_set_sink(json ? brim_log_sink_json : brim_log_sink_human, stderr, level);
}

static brim_status open_one(brim_cli_data *d, const char *split, brim_source **out) {
  return brim_source_open(d->registry, &d->component, d->path, split, d->seed, out);
}

// A split that is not there is none; anything else that is wrong with it is wrong.
static brim_status open_all(brim_cli_data *d) {
  static const char *const names[BRIM_CLI_DATA_SPLITS] = {"train", "test", "val", "unlabeled"};
  char first[1024] = "";
  brim_status status = BRIM_OK, missing = BRIM_OK;
  for (size_t i = 0; i < BRIM_CLI_DATA_SPLITS && !status; i++) {
    brim_source *source = NULL;
    brim_cli_data_hush(d->cli, i >= 2);  // they may be what was opened already
    brim_status opened = open_one(d, names[i], &source);
    brim_cli_data_hush(d->cli, false);
    if (!opened) {
      status = add_split(d, names[i], source);
    } else if (opened == BRIM_ENOENT) {
      if (!missing) snprintf(first, sizeof first, "%s", brim_status_detail());
      if (!missing) missing = opened;
    } else {
      status = opened;
    }
  }
  if (status) return status;
  if (d->split_count == 0) {
    brim_status_set_detail(first);
    return missing;
  }
  if (strcmp(d->split[0].name, "train") != 0) brim_log_warn("data", "no train split: %s", first);
  return BRIM_OK;
}

brim_status brim_cli_data_open(brim_cli_data *d) {
  const char *split = brim_option_string(&d->cli->parse, "split", NULL);
  if (!split) split = brim_component_string(&d->component, "split", NULL);
  if (!split) return open_all(d);
  brim_source *source = NULL;
  BRIM_TRY(open_one(d, split, &source));
  return add_split(d, split, source);
}

//---------------------------------- what they share ----------------------------------

void brim_cli_data_begin(brim_cli_data *d, const char *title, const char *split) {
  snprintf(d->title, sizeof d->title, "%s %s", title, split);
  d->start = brim_clock_now();
}

bool brim_cli_data_tick(void *ctx, uint64_t done, uint64_t total) {
  brim_cli_data *d = ctx;
  brim_progress p = {.title = d->title, .done = (int64_t)done, .total = (int64_t)total};
  p.elapsed_s = (double)brim_time_since_ns(d->start, brim_clock_now()) / 1e9;
  p.rate = p.elapsed_s > 0 ? (double)done / p.elapsed_s : NAN;
  p.eta_s = done ? p.elapsed_s * (double)(total - done) / (double)done : NAN;
  if (!d->cli->json) brim_cli_progress(d->cli, &p);  // a line for each result, and nothing else
  return !(d->cli->stop && *d->cli->stop);
}

void brim_cli_data_shape(const brim_source_info *info, char *out, size_t size) {
  size_t used = 0;
  for (int i = 0; i < info->rank && used < size; i++) {
    int n = snprintf(out + used, size - used, "%s%lld", i ? ", " : "(", (long long)info->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used < size) {
    snprintf(out + used, size - used, ") %s", info->type == BRIM_SAMPLE_U8 ? "uint8" : "float32");
  }
}

brim_status brim_cli_data_class_names(brim_cli_data *d, const brim_cli_split *split,
                                      const char *const **names) {
  return brim_source_class_names(d->arena, split->source, &d->component, d->path, split->name,
                                 names);
}

brim_status brim_cli_data_unused(const brim_cli_data *d, brim_str *out, brim_source_left *left) {
  brim_source *sources[BRIM_CLI_DATA_SPLITS];
  *left = (brim_source_left){0};
  bool part = brim_option_find(&d->cli->parse, "split") ||
              brim_component_arg(&d->component, "split") ||
              brim_component_arg(&d->component, "limit");
  if (part || !d->path) return BRIM_OK;
  for (size_t i = 0; i < d->split_count; i++) sources[i] = d->split[i].source;
  return brim_source_unused(sources, d->split_count, out, left);
}
