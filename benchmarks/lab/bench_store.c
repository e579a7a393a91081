// Measures how long a store takes with many experiments: submit, count, list, a whole life of some of them.
//   bench_store PLACE [--experiments 10000] [--lives 200]
// PLACE is a new folder, or a postgres:// URL whose schema "brim_bench" is not there yet.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base_clock.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "lab/store/lab_store.h"

static double since(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
}

static double resident_mb(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss / 1024;
}

static void say(const char *what, double seconds, double per_second) {
  printf("%-34s %9.1f ms", what, seconds * 1e3);
  if (per_second > 0) printf("  %10.0f /s", per_second);
  printf("  %7.1f MB at most\n", resident_mb());
  fflush(stdout);
}

typedef struct grid {
  brim_store_point *points;
  char (*ids)[BRIM_SHA256_HEX];
  char *config;
} grid;

// Configs like resolved ones: about 1.5 KB.
static brim_status make_grid(size_t count, grid *g) {
  g->points = calloc(count, sizeof *g->points);
  g->ids = calloc(count, sizeof *g->ids);
  g->config = malloc(1536);
  if (!g->points || !g->ids || !g->config) return brim_fail(BRIM_ENOMEM, "out of memory");
  memset(g->config, 'x', 1535);
  g->config[1535] = '\0';
  for (size_t i = 0; i < count; i++) {
    brim_sha256_hex(&i, sizeof i, g->ids[i]);
    g->ids[i][BRIM_EXP_ID - 1] = '\0';
    g->points[i] = (brim_store_point){.id = g->ids[i],
                                      .idx = (int64_t)i,
                                      .label = "lr=0.1 batch_size=128 seed=3",
                                      .config = g->config,
                                      .metric_key = "val_accuracy",
                                      .gpus = 1,
                                      .tries = 2};
  }
  return BRIM_OK;
}

static brim_status count_row(void *ctx, const brim_store_exp *exp) {
  *(size_t *)ctx += exp->id[0] != '\0';
  return BRIM_OK;
}

static brim_status live(brim_store *store, int n) {
  char claim_id[64];
  snprintf(claim_id, sizeof claim_id, "%ld-%d", (long)getpid(), n);
  brim_store_claimed c;
  brim_store_beat_reply reply;
  brim_store_request r = {.worker = "w", .claim_id = claim_id, .free_gpus = 8, .free_bytes = -1};
  BRIM_TRY(brim_store_claim(store, &r, &c));
  brim_store_exp_free(c.exp);
  BRIM_TRY(brim_store_start(store, &c.ref, 1, -1));
  BRIM_TRY(brim_store_beat(store, &c.ref, NULL, &reply));
  brim_store_metric rows[] = {{"loss", 1, 0.5}, {"val_accuracy", 1, 0.25}};
  BRIM_TRY(brim_store_metrics(store, &c.ref, 1, rows, 2));
  brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
  return brim_store_finish(store, &c.ref, &ok, NULL);
}

static brim_status measure_reading(brim_store *store, size_t count) {
  brim_store_counts counts;
  size_t rows = 0;
  brim_time t = brim_clock_now();
  BRIM_TRY(brim_store_count(store, NULL, &counts));
  say("count all", since(t), 0);
  t = brim_clock_now();
  BRIM_TRY(brim_store_count(store, "grid", &counts));
  say("count a grid", since(t), 0);
  t = brim_clock_now();
  BRIM_TRY(brim_store_list(store, NULL, count_row, &rows));
  say("list all", since(t), (double)rows / since(t));
  t = brim_clock_now();
  BRIM_TRY(brim_store_list(store, &(brim_store_filter){.grid = "grid", .texts = true}, count_row,
                           &rows));
  say("list a grid with its configs", since(t), 0);
  t = brim_clock_now();
  BRIM_TRY(brim_store_list(store,
                           &(brim_store_filter){.order = BRIM_STORE_BY_METRIC_HIGHEST, .limit = 20},
                           count_row, &rows));
  say("the best 20", since(t), 0);
  return rows == 2 * count + 20 ? BRIM_OK : brim_fail(BRIM_EINTERNAL, "rows are missing");
}

static brim_status run(const char *place, size_t count, int lives) {
  grid g;
  brim_store *store = NULL;
  brim_store_submitted out;
  brim_store_options options = {.schema = "brim_bench"};
  BRIM_TRY(make_grid(count, &g));
  brim_time t = brim_clock_now();
  BRIM_TRY(brim_store_open(place, &options, &store));
  say("open (create)", since(t), 0);
  t = brim_clock_now();
  brim_store_grid head = {.id = "grid", .text = "lr: [0.1]"};
  BRIM_TRY(brim_store_submit(store, &head, g.points, count, &out));
  say("submit", since(t), (double)count / since(t));
  if (out.added != (int64_t)count) return brim_fail(BRIM_EEXIST, "the place is not new");
  t = brim_clock_now();
  BRIM_TRY(brim_store_submit(store, &head, g.points, count, &out));
  say("submit again (nothing new)", since(t), (double)count / since(t));
  BRIM_TRY(measure_reading(store, count));
  t = brim_clock_now();
  for (int i = 0; i < lives; i++) BRIM_TRY(live(store, i));
  say("claim, start, beat, log, finish", since(t) / lives, lives / since(t));
  brim_store_close(store);
  t = brim_clock_now();
  BRIM_TRY(brim_store_open(place, &options, &store));
  say("open again", since(t), 0);
  brim_store_close(store);
  free(g.config);
  free(g.ids);
  free(g.points);
  return BRIM_OK;
}

int main(int argc, char **argv) {
  int64_t count = 10000, lives = 200;
  if (argc < 2) {
    fprintf(stderr, "usage: bench_store PLACE [--experiments N] [--lives N]\n");
    return 2;
  }
  for (int i = 2; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--experiments") == 0) (void)brim_parse_i64(argv[i + 1], &count);
    if (strcmp(argv[i], "--lives") == 0) (void)brim_parse_i64(argv[i + 1], &lives);
  }
  if (run(argv[1], (size_t)count, (int)lives)) {
    fprintf(stderr, "%s\n", brim_status_detail());
    return 1;
  }
  return 0;
}
