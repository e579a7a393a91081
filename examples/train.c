// Train a model with libbrim in a few calls: open a config, look at the plan, step, evaluate, save.
//   cc train.c $(pkg-config --cflags --libs brim) -o train && ./train config.yaml [key=value ...]
#include <brim/brim.h>
#include <stdio.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, brim_status_detail());
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: train CONFIG [key=value ...]\n");
    return 2;
  }
  brim_config *config = NULL;
  if (brim_config_open(argv[1], (const char *const *)argv + 2, (size_t)(argc - 2), &config)) {
    return fail("config");
  }
  brim_session *session = NULL;
  if (brim_session_open(config, NULL, &session)) return fail("open");
  printf("brim %s on %s\n", brim_version(), brim_session_device(session));

  // what the step will need, before it runs
  brim_plan plan;
  if (brim_session_plan(session, &plan)) return fail("plan");
  for (size_t i = 0; i < plan.row_count; i++) {
    printf("  %-16s %12llu bytes\n", plan.rows[i].name, (unsigned long long)plan.rows[i].bytes);
  }

  // one epoch
  brim_session_step_result step = {0};
  brim_session_metrics metrics;
  do {
    if (brim_session_step(session, &step)) return fail("step");
  } while (!step.epoch_end);
  if (brim_session_metrics_read(session, &metrics)) return fail("metrics");
  printf("epoch 1: %lld steps, loss %.4f, accuracy %.1f %%\n", (long long)step.step,
         brim_session_value(&metrics, "loss"), 100 * brim_session_value(&metrics, "accuracy"));
  if (brim_session_evaluate(session, &metrics)) return fail("evaluate");
  printf("held out: loss %.4f, accuracy %.1f %%\n", brim_session_value(&metrics, "loss"),
         100 * brim_session_value(&metrics, "accuracy"));
  if (brim_session_save(session, "model.safetensors")) return fail("save");

  brim_session_close(session);
  brim_config_close(config);
  return 0;
}
