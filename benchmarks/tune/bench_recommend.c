// Are recommendations right? Sweeps over simulated timings with a known truth (tests/tune/truth.h), by the race of
// `brim bench`. Prints a table, and with --record FILE one JSON line per noise level.
//   bench_recommend [--sweeps 1000] [--seed 700000] [--record FILE]
// Seeds below 100,000 are for development.
#include <stdio.h>
#include <stdlib.h>

#include "tune/truth.h"

static double share(int part, int whole) { return whole > 0 ? (double)part / whole : (double)NAN; }

static brim_status record(const char *path, double noise, uint64_t seed, const truth_score *s) {
  char line[1024];
  snprintf(
      line, sizeof line,
      "{\"benchmark\": \"recommend\", \"command\": \"bench_recommend --sweeps %d --seed %llu\", "
      "\"settings\": %d, \"noise\": %.2f, \"sweeps\": %d, \"within_3_percent\": %.4f, "
      "\"certainly_beaten\": %d, \"ratio_coverage\": %.4f, \"gain_coverage\": %.4f, "
      "\"rate_coverage\": %.4f, \"gap_20_percent_certain\": %.4f, \"provisional\": %.4f, "
      "\"visits\": %.1f, \"passes\": %.2f}",
      s->sweeps, (unsigned long long)seed, TRUTH_SETTINGS, noise, s->sweeps,
      share(s->right, s->sweeps), s->beaten, share(s->ratios_covered, s->ratios),
      share(s->gains_covered, s->gains), share(s->rates_covered, s->rates),
      share(s->gaps_certain, s->gaps), share(s->provisional, s->sweeps), s->visits / s->sweeps,
      s->seconds / s->sweeps);
  return brim_fs_append_line(path, line);
}

int main(int argc, char **argv) {
  static const double levels[] = {0.02, 0.05, 0.10, 0.20, 0.40};
  int sweeps = 1000;
  uint64_t seed = TRUTH_RECORD_SEED;
  const char *path = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--sweeps") == 0) sweeps = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--record") == 0) path = argv[i + 1];
  }
  printf("noise  within 3 %%  beaten  ratios  gains  rates  20 %% certain  provisional  passes\n");
  for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
    truth_score s = {0};
    for (int i = 0; i < sweeps; i++) {
      if (truth_sweep(seed + l * 10000 + (uint64_t)i, levels[l], &s)) {
        fprintf(stderr, "%s\n", brim_status_detail());
        return 1;
      }
    }
    printf("%5.2f  %10.3f  %6d  %6.3f  %5.3f  %5.3f  %12.3f  %11.3f  %6.2f\n", levels[l],
           share(s.right, s.sweeps), s.beaten, share(s.ratios_covered, s.ratios),
           share(s.gains_covered, s.gains), share(s.rates_covered, s.rates),
           share(s.gaps_certain, s.gaps), share(s.provisional, s.sweeps), s.seconds / s.sweeps);
    fflush(stdout);
    if (path && record(path, levels[l], seed, &s)) {
      fprintf(stderr, "%s\n", brim_status_detail());
      return 1;
    }
  }
  return 0;
}
