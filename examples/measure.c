// Measure a setting with libbrim and read the record back.
//   cc measure.c $(pkg-config --cflags --libs brim) -o measure && ./measure config.yaml out.jsonl
#include <brim/brim.h>
#include <stdio.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, brim_status_detail());
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: measure CONFIG OUT.jsonl [key=value ...]\n");
    return 2;
  }
  brim_config *config = NULL;
  brim_session *session = NULL;
  if (brim_config_open(argv[1], (const char *const *)argv + 3, (size_t)(argc - 3), &config)) {
    return fail("config");
  }
  if (brim_session_open(config, NULL, &session)) return fail("open");
  if (brim_session_measure(session, 10, argv[2])) return fail("measure");
  brim_session_close(session);
  brim_config_close(config);

  brim_records *records = NULL;
  if (brim_records_open(argv[2], &records)) return fail("records");
  for (size_t i = 0; i < brim_records_count(records); i++) {
    double rate, total, forward;
    const char *device;
    if (brim_records_number(records, i, "throughput.samples_per_s", &rate) ||
        brim_records_number(records, i, "total.median_ms", &total) ||
        brim_records_number(records, i, "phases.forward.median_ms", &forward) ||
        brim_records_string(records, i, "where.device", &device)) {
      return fail("record");
    }
    printf("%s: %.0f samples/s, %.3f ms a step, %.3f ms of it forward\n", device, rate, total,
           forward);
  }
  brim_records_close(records);
  return 0;
}
