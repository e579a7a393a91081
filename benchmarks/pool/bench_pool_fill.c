// Fills a new store for timing pages: many finished experiments, one of them with a very long curve and some with long
// ones.
//   bench_pool_fill FOLDER [--experiments 10000] [--points 10000000] [--curves 10] [--each 100000]
// Prints the id of the experiment with the longest curve, then those of the others, one a line.
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_clock.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "lab/store/lab_store.h"

enum { ROWS = 2000, LIVES = 500, SEEDS = 5, CONFIG = 1400 };

static struct { long experiments, points, curves, each; } opt = {10000, 10000000, 10, 100000};

static void id_of(long n, char out[BRIM_EXP_ID]) {
  char hex[BRIM_SHA256_HEX];
  brim_sha256_hex(&n, sizeof n, hex);
  memcpy(out, hex, BRIM_EXP_ID - 1);
  out[BRIM_EXP_ID - 1] = '\0';
}

// Configs as large as resolved ones.
static brim_status submit(brim_store *store) {
  size_t count = (size_t)opt.experiments;
  brim_store_point *points = calloc(count, sizeof *points);
  char(*ids)[BRIM_EXP_ID] = calloc(count, sizeof *ids);
  char(*texts)[CONFIG + 160] = calloc(count, sizeof *texts);
  if (!points || !ids || !texts) return brim_fail(BRIM_ENOMEM, "out of memory");
  for (size_t i = 0; i < count; i++) {
    char *label = texts[i], *config = texts[i] + 80;
    id_of((long)i, ids[i]);
    snprintf(label, 80, "lr=%.6g seed=%zu", 1e-5 * (double)(1 + i / SEEDS), i % SEEDS);
    int n = snprintf(config, CONFIG, "{\"lr\": %.6g, \"seed\": %zu, \"note\": \"",
                     1e-5 * (double)(1 + i / SEEDS), i % SEEDS);
    memset(config + n, 'x', (size_t)(CONFIG - n));
    memcpy(config + CONFIG - 3, "\"}", 3);
    points[i] = (brim_store_point){.id = ids[i],
                                   .idx = (int64_t)i,
                                   .label = label,
                                   .config = config,
                                   .metric_key = "val_accuracy",
                                   .gpus = 1,
                                   .tries = 2,
                                   .steps = 1000};
  }
  brim_store_submitted out;
  const brim_store_grid grid = {.id = "bench-fill", .name = "fill", .text = "lr: 1", .version = ""};
  brim_status status = brim_store_submit(store, &grid, points, count, &out);
  free(points);
  free(ids);
  free(texts);
  return status;
}

static brim_status write_curve(brim_store *store, const brim_store_ref *ref, const char *key,
                               long count, int64_t *seq) {
  brim_store_metric rows[ROWS];
  for (long at = 0; at < count;) {
    BRIM_TRY(brim_store_group_begin(store));
    for (int batch = 0; batch < 50 && at < count; batch++) {
      size_t n = 0;
      for (; n < ROWS && at < count; n++, at++) {
        rows[n] = (brim_store_metric){key, at, 1 / (1 + 1e-5 * (double)at) + sin((double)at) * 0.1};
      }
      BRIM_TRY(brim_store_metrics(store, ref, ++*seq, rows, n));
    }
    BRIM_TRY(brim_store_group_end(store));
  }
  return BRIM_OK;
}

static brim_status live(brim_store *store, long n, brim_store_ref *ref) {
  char claim_id[32], id[BRIM_EXP_ID];
  brim_store_claimed c;
  id_of(n, id);
  snprintf(claim_id, sizeof claim_id, "fill-%ld", n);
  const brim_store_request r = {
      .worker = "fill", .claim_id = claim_id, .exp = id, .free_gpus = 8, .free_bytes = -1};
  BRIM_TRY(brim_store_claim(store, &r, &c));
  if (!c.exp) return brim_fail(BRIM_ESTATE, "the store is not new");
  *ref = c.ref;
  brim_store_exp_free(c.exp);
  return brim_store_start(store, ref, 1, -1);
}

static brim_status end(brim_store *store, long n, const brim_store_ref *ref, int64_t seq) {
  brim_store_metric rows[10];
  for (int i = 0; i < 10; i++) {
    rows[i] = (brim_store_metric){"val_accuracy", i * 100, 0.5 + (double)((n * 7 + i) % 50) * 0.01};
  }
  BRIM_TRY(brim_store_metrics(store, ref, seq + 1, rows, 10));
  const brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
  return brim_store_finish(store, ref, &ok, NULL);
}

static brim_status fill(brim_store *store) {
  BRIM_TRY(submit(store));
  for (long n = 0; n <= opt.curves && n < opt.experiments; n++) {
    brim_store_ref ref;
    int64_t seq = 0;
    BRIM_TRY(live(store, n, &ref));
    BRIM_TRY(write_curve(store, &ref, "train_loss", n == 0 ? opt.points : opt.each, &seq));
    BRIM_TRY(end(store, n, &ref, seq));
    printf("%s\n", ref.exp);
  }
  for (long n = opt.curves + 1; n < opt.experiments;) {
    BRIM_TRY(brim_store_group_begin(store));
    for (int i = 0; i < LIVES && n < opt.experiments; i++, n++) {
      brim_store_ref ref;
      BRIM_TRY(live(store, n, &ref));
      BRIM_TRY(end(store, n, &ref, 0));
    }
    BRIM_TRY(brim_store_group_end(store));
  }
  return BRIM_OK;
}

int main(int argc, char **argv) {
  static const struct option rows[] = {{"experiments", 1, NULL, 'e'},
                                       {"points", 1, NULL, 'p'},
                                       {"curves", 1, NULL, 'c'},
                                       {"each", 1, NULL, 'n'},
                                       {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", rows, NULL)) != -1;) {
    long value = optarg ? strtol(optarg, NULL, 10) : 0;
    if (c == 'e') opt.experiments = value;
    if (c == 'p') opt.points = value;
    if (c == 'c') opt.curves = value;
    if (c == 'n') opt.each = value;
    if (c == '?') return 2;
  }
  brim_store *store = NULL;
  brim_time start = brim_clock_now();
  if (optind >= argc) return 2;
  brim_status status = brim_store_open(argv[optind], NULL, &store);
  if (!status) status = fill(store);
  brim_store_close(store);
  double seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  fprintf(stderr, "%ld experiments, %ld points in %.1f s\n", opt.experiments,
          opt.points + opt.curves * opt.each, seconds);
  if (status) fprintf(stderr, "%s\n", brim_status_detail());
  return status ? 1 : 0;
}
