// A store of experiments for the page: learning rates x batch sizes x seeds with curves, some that failed, one that
// runs.
#ifndef BRIM_TESTS_LAB_EXPERIMENTS_H_
#define BRIM_TESTS_LAB_EXPERIMENTS_H_

#include <math.h>

#include "../record/lab_lines.h"

enum { LAB_RATES = 4, LAB_BATCHES = 3, LAB_SEEDS = 3, LAB_EPOCHS = 20 };

// Accuracy rises to a height that the learning rate determines.
static inline double lab_accuracy(int rate, int batch, int seed, int epoch) {
  const double top = 0.95 - 0.08 * abs(rate - 2) - 0.02 * batch + 0.004 * ((seed * 7) % 3 - 1);
  return top * (1 - exp(-(epoch + 1) / (2.0 + rate)));
}

static inline void lab_curves(int rate, int batch, int seed, int epochs, brim_str *out) {
  brim_str_append(out, "{\"eval_accuracy\": [");
  for (int e = 0; e < epochs; e++) {
    brim_str_printf(out, "%s[%d, %.5f]", e ? ", " : "", (e + 1) * 100,
                    lab_accuracy(rate, batch, seed, e));
  }
  brim_str_append(out, "], \"train_loss\": [");
  for (int e = 0; e < epochs; e++) {
    brim_str_printf(out, "%s[%d, %.5f]", e ? ", " : "", (e + 1) * 100,
                    2.3 * exp(-(e + 1) / (3.0 + rate)) + 0.01 * batch + 0.002);
  }
  brim_str_append(out, "], \"lr\": [[100, 0.1], [2000, 0.01]]}");
}

static const char lab_attempt_ok[] =
    "[{\"n\": 1, \"worker\": \"w\", \"host\": \"node-1\", \"devices\": \"GPU 0\", \"outcome\": "
    "\"ok\","
    " \"failure\": \"none\", \"exit_code\": 0, \"message\": \"\", \"from_step\": 0,"
    " \"claimed_ms\": 1790000000000, \"started_ms\": 1790000001000, \"ended_ms\": 1790000061000}]";
static const char lab_attempt_bad[] =
    "[{\"n\": 1, \"host\": \"node-1\", \"devices\": \"GPU 1\", \"outcome\": \"expired\","
    " \"failure\": \"infrastructure\", \"message\": \"lost\", \"from_step\": -1},"
    " {\"n\": 2, \"host\": \"node-2\", \"devices\": \"GPU 0\", \"outcome\": \"error\","
    " \"failure\": \"nan\", \"exit_code\": 1, \"message\": \"the loss is nan <b>&\","
    " \"from_step\": 300, \"started_ms\": 1790000001000, \"ended_ms\": 1790000061000}]";

static inline void lab_add_point(brim_lab_reader *reader, int n, int rate, int batch, int seed) {
  static const char *const rates[LAB_RATES] = {"0.0001", "0.001", "0.01", "0.1"};
  static const int batches[LAB_BATCHES] = {32, 128, 512};
  char label[160], config[400], metric[32];
  const bool failed = rate == 3 && batch == 0, running = n == 7;
  const int epochs = failed ? 3 : running ? 8 : LAB_EPOCHS;
  snprintf(label, sizeof label, "training.learning_rate=%s data.batch_size=%d model=%s seed=%d",
           rates[rate], batches[batch], rate % 2 ? "mlp(depth=2)" : "<cnn>", seed);
  snprintf(
      config, sizeof config,
      "{\"workload\": \"supervised\", \"model\": \"%s\", \"seed\": %d, \"data\": {\"batch_size\": "
      "%d, \"path\": \"x.h5\"}, \"training\": {\"learning_rate\": %s, \"epochs\": 20}, "
      "\"optimizer\": \"adamw(lr=%s, eps=1e-08)\"}",
      rate % 2 ? "mlp(depth=2)" : "<cnn>", seed, batches[batch], rates[rate], rates[rate]);
  snprintf(metric, sizeof metric, "%.5f", lab_accuracy(rate, batch, seed, epochs - 1));
  brim_str curves;
  brim_str_init(&curves);
  lab_curves(rate, batch, seed, epochs, &curves);
  assert_ok(lab_line_add(
      reader, &(lab_line){.n = 0x1000 + n,
                          .label = label,
                          .config = config,
                          .state = failed    ? "failed"
                                   : running ? "running"
                                             : "done",
                          .metric = metric,
                          .metrics = curves.data,
                          .failure = failed ? "nan" : "none",
                          .reason = failed ? "the loss is nan <b>&" : "",
                          .last_lines = failed ? "epoch 3\\nloss nan </pre><script>alert(1)" : "",
                          .attempts = failed ? lab_attempt_bad : lab_attempt_ok}));
  brim_str_deinit(&curves);
}

// Free the reader with brim_lab_reader_destroy.
static inline brim_lab_reader *lab_experiments(const brim_lab_set **out) {
  static const brim_lab_options options = {.metric = lab_metric};
  brim_lab_reader *reader = NULL;
  int n = 0;
  assert_ok(brim_lab_reader_create(&options, &reader));
  assert_ok(brim_lab_reader_grid(
      reader, &(brim_lab_grid_row){"g", "rates <1>", "0.1.0", 1790000000000, 36}));
  for (int rate = 0; rate < LAB_RATES; rate++) {
    for (int batch = 0; batch < LAB_BATCHES; batch++) {
      for (int seed = 0; seed < LAB_SEEDS; seed++) lab_add_point(reader, n++, rate, batch, seed);
    }
  }
  assert_ok(brim_lab_reader_finish(reader, out));
  return reader;
}

// `count` experiments of five settings with curves of three metrics of `steps` points each.
static inline brim_lab_reader *lab_many(int count, int steps, const brim_lab_set **out) {
  static const brim_lab_options options = {.metric = lab_metric};
  static const char *const metrics[] = {"eval_accuracy", "train_loss", "lr"};
  brim_lab_reader *reader = NULL;
  assert_ok(brim_lab_reader_create(&options, &reader));
  brim_str curves;
  brim_str_init(&curves);
  for (int n = 0; n < count; n++) {
    char label[160], metric[32];
    const double noise = (double)((unsigned)n * 2654435761u % 1000) / 1000;
    brim_str_clear(&curves);
    for (int m = 0; m < 3; m++) {
      brim_str_printf(&curves, "%s\"%s\": [", m ? ", " : "{", metrics[m]);
      for (int s = 0; s < steps; s++) {
        brim_str_printf(&curves, "%s[%d, %.4f]", s ? ", " : "", s * 10,
                        m == 0 ? (0.5 + 0.5 * noise) * s / steps : noise + 1.0 / (s + 1));
      }
      brim_str_append_char(&curves, ']');
    }
    brim_str_append_char(&curves, '}');
    snprintf(label, sizeof label, "lr=%g batch=%d width=%d drop=%.3f seed=%d",
             1e-4 * (1 + n / 5 % 50), 16 << n / 250 % 6, 64 * (1 + n / 1500), noise, n % 5);
    snprintf(metric, sizeof metric, "%.4f", 0.5 + 0.5 * noise);
    assert_ok(lab_line_add(reader, &(lab_line){.n = n * 16 + 1,
                                               .label = label,
                                               .metric = metric,
                                               .metrics = curves.data,
                                               .attempts = lab_attempt_ok}));
  }
  brim_str_deinit(&curves);
  assert_ok(brim_lab_reader_finish(reader, out));
  return reader;
}

#endif  // BRIM_TESTS_LAB_EXPERIMENTS_H_
