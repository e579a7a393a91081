// Speed of every op of the case list on every backend that loads: FLOPs and bytes of the case, median time and spread,
// one JSON object per line. Not a test: it asserts nothing.
//   bench_ops [--device ref|cpu|cuda] [--op NAME] [--type f32] [--threads N] [--ms PER_CASE]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cases/cases.h"

enum { MAX_REPEATS = 200, MIN_REPEATS = 5, WARM_UP = 2 };

typedef struct options {
  const char *device, *op;
  brim_dtype type;
  int threads;
  double ms;
} options;

static void print_line(const brim_device *device, const brim_case *c, const brim_op_call *call,
                       const brim_stats_summary *s) {
  double flops, bytes;
  brim_op_cost(call, &flops, &bytes);
  json_t *line = json_object();
  if (!line) return;
  brim_json_put(line, "backend", json_string(device->backend->name));
  brim_json_put(line, "device", json_string(device->info.name));
  brim_json_put(line, "case", json_string(c->name));
  brim_json_put(line, "op", json_string(brim_op_name(c->op)));
  brim_json_put(line, "type", json_string(brim_dtype_name(c->type)));
  brim_json_put(line, "flops", brim_json_number(flops));
  brim_json_put(line, "bytes", brim_json_number(bytes));
  brim_json_put(line, "repeats", brim_json_number((double)s->n));
  brim_json_put(line, "median_ns", brim_json_number(s->median));
  brim_json_put(line, "mad_ns", brim_json_number(s->mad));
  brim_json_put(line, "gflops", brim_json_number(flops / s->median));
  brim_json_put(line, "gbytes_per_s", brim_json_number(bytes / s->median));
  char *text = NULL;
  if (!brim_json_dump(line, 0, &text)) printf("%s\n", text);
  fflush(stdout);
  brim_free(text);
  json_decref(line);
}

static brim_status measure(brim_device *device, const brim_case *c, const options *o) {
  brim_op_call call;
  brim_case_call(c, &call);
  if (brim_device_supports(device, &call) == BRIM_EUNSUPPORTED) return BRIM_OK;
  brim_case_data data;
  brim_case_loaded loaded;
  brim_event *start = NULL, *end = NULL;
  BRIM_TRY(brim_case_data_create(c, &data));
  brim_status status = brim_case_load(device, c, &data, &loaded);
  if (status) goto fail_data;
  if ((status = brim_event_create(device, &start))) goto fail_loaded;
  if ((status = brim_event_create(device, &end))) goto fail_start;
  double times[MAX_REPEATS], total = 0;
  size_t n = 0;
  for (int i = 0; !status && i < WARM_UP; i++) status = brim_op_run(device, &loaded.call);
  while (!status && n < MAX_REPEATS && (n < MIN_REPEATS || total < o->ms * 1e6)) {
    int64_t ns = 0;
    if ((status = brim_event_record(device, start))) break;
    if ((status = brim_op_run(device, &loaded.call))) break;
    if ((status = brim_event_record(device, end))) break;
    if ((status = brim_event_elapsed(device, start, end, &ns))) break;
    times[n++] = (double)(ns > 0 ? ns : 1);
    total += (double)ns;
  }
  brim_stats_summary summary;
  if (!status) status = brim_stats_summarize(times, n, 1, &summary);
  if (!status) print_line(device, c, &loaded.call, &summary);
  brim_event_destroy(device, end);
fail_start:
  brim_event_destroy(device, start);
fail_loaded:
  brim_case_unload(&loaded);
fail_data:
  brim_case_data_destroy(&data);
  return status;
}

static brim_status bench_device(const brim_registry *registry, const char *name, const options *o) {
  brim_device *device = NULL;
  brim_device_options how = {.threads = o->threads};
  if (brim_device_open(registry, name, &how, &device)) {
    fprintf(stderr, "bench_ops: %s\n", brim_status_detail());
    return BRIM_OK;
  }
  brim_status status = BRIM_OK;
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
  for (size_t i = 0; !status && i < brim_case_speed_count(); i++) {
    for (size_t t = 0; !status && t < sizeof(types) / sizeof(types[0]); t++) {
      brim_case c;
      brim_case_speed_get(i, &c);
      if (c.nonfinite || (o->op && strcmp(o->op, brim_op_name(c.op)) != 0)) continue;
      if (o->type != BRIM_DTYPE_COUNT && o->type != types[t]) continue;
      if (c.attr.tf32 && types[t] != BRIM_F32) continue;  // would repeat the case without tf32
      brim_case_set_type(&c, types[t]);
      status = measure(device, &c, o);
    }
  }
  brim_device_close(device);
  return status;
}

static bool parse(int argc, char **argv, options *o) {
  *o = (options){.type = BRIM_DTYPE_COUNT, .ms = 200};
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!value) return false;
    if (strcmp(argv[i], "--device") == 0) {
      o->device = value;
    } else if (strcmp(argv[i], "--op") == 0) {
      o->op = value;
    } else if (strcmp(argv[i], "--threads") == 0) {
      o->threads = atoi(value);
    } else if (strcmp(argv[i], "--ms") == 0) {
      o->ms = atof(value);
    } else if (strcmp(argv[i], "--type") == 0) {
      for (int t = 0; t < BRIM_DTYPE_COUNT; t++) {
        if (strcmp(value, brim_dtype_name((brim_dtype)t)) == 0) o->type = (brim_dtype)t;
      }
      if (o->type == BRIM_DTYPE_COUNT) return false;
    } else {
      return false;
    }
  }
  return true;
}

int main(int argc, char **argv) {
  options o;
  if (!parse(argc, argv, &o)) {
    fprintf(stderr,
            "usage: bench_ops [--device ref|cpu|cuda] [--op NAME] [--type f32|bf16|f16] "
            "[--threads N] [--ms PER_CASE]\n");
    return 2;
  }
  brim_json_setup();  // must come before jansson's first allocation
  brim_registry *registry;
  brim_status status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load_default(registry);
  static const char *const all[] = {"ref", "cpu", "cuda"};
  for (size_t i = 0; !status && i < sizeof(all) / sizeof(all[0]); i++) {
    if (!o.device || strcmp(o.device, all[i]) == 0) status = bench_device(registry, all[i], &o);
  }
  if (status) fprintf(stderr, "bench_ops: %s\n", brim_status_detail());
  brim_registry_destroy(registry);
  return status ? 1 : 0;
}
