// Lines of the benchmarks of networks.
#include <stdio.h>

#include "bench_model.h"

brim_status bench_print_json(json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) printf("%s\n", text);
  fflush(stdout);
  brim_free(text);
  json_decref(object);
  return status;
}
