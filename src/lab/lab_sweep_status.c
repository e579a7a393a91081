// What a worker's machine does, as its server keeps it: a JSON object with each GPU, the processor and memory.
#include <math.h>
#include <string.h>

#include "lab/lab_sweep_int.h"
#include "lab/lab_wire.h"

static brim_status put_gpu(brim_lab_sweep *s, size_t i, json_t *list) {
  brim_lab_place_gpu gpu;
  json_t *o = json_object();
  BRIM_TRY(brim_json_push(list, o));
  brim_lab_place_get(s->placing, i, &gpu);
  const brim_lab_gpu_reader *read = brim_lab_gpus_find(s, gpu.uuid);
  BRIM_TRY(brim_json_put(o, "index", json_integer(gpu.index)));
  BRIM_TRY(brim_json_put(o, "uuid", brim_lab_wire_text(gpu.uuid)));
  BRIM_TRY(brim_json_put(o, "name", brim_lab_wire_text(gpu.name)));
  BRIM_TRY(brim_json_put(o, "state",
                         json_string(brim_sweep_gpu_state_name(brim_lab_gpu_state(gpu.state)))));
  BRIM_TRY(brim_json_put(o, "running", json_integer(gpu.jobs)));
  BRIM_TRY(brim_json_put(o, "util", brim_json_number(read ? read->gpu_percent : (double)NAN)));
  BRIM_TRY(brim_json_put(o, "memory_used", brim_json_number(gpu.total_bytes - gpu.free_bytes)));
  BRIM_TRY(brim_json_put(o, "memory_total", brim_json_number(gpu.total_bytes)));
  BRIM_TRY(brim_json_put(o, "power_w", brim_json_number(read ? read->power_w : (double)NAN)));
  BRIM_TRY(brim_json_put(o, "power_limit_w",
                         brim_json_number(read ? read->power_limit_w : (double)NAN)));
  return brim_json_put(o, "temp_c", brim_json_number(read ? read->temperature_c : (double)NAN));
}

// Since the last call; unknown the first time.
static double cpu_percent(brim_lab_sweep *s) {
  const brim_host_provider machine = brim_host_provider_system("");
  brim_host_sample now;
  if (brim_host_read_sample(&machine, &now)) {
    brim_status_clear();
    return (double)NAN;
  }
  double percent = (double)NAN;
  if (s->host_read) percent = brim_host_usage_between(&s->host_sample, &now).system_cpu_percent;
  s->host_sample = now;
  s->host_read = true;
  return percent;
}

static brim_status put_host(brim_lab_sweep *s, json_t *o) {
  brim_host_info info = {.memory_total_bytes = (double)NAN, .memory_available_bytes = (double)NAN};
  int taken = 0, slots = 0;
  if (brim_host_get_info(&info)) brim_status_clear();
  brim_lab_place_cpu(s->placing, &slots, &taken);
  BRIM_TRY(brim_json_put(o, "cpu_percent", brim_json_number(cpu_percent(s))));
  BRIM_TRY(brim_json_put(o, "memory_used",
                         brim_json_number(info.memory_total_bytes - info.memory_available_bytes)));
  BRIM_TRY(brim_json_put(o, "memory_total", brim_json_number(info.memory_total_bytes)));
  BRIM_TRY(brim_json_put(o, "cpu_slots", json_integer(slots)));
  return brim_json_put(o, "running", json_integer((json_int_t)s->count));
}

brim_status brim_lab_sweep_status(brim_lab_sweep *s, char **out) {
  json_t *o = json_object(), *gpus = json_array();
  *out = NULL;
  brim_status status = brim_json_put(o, "gpus", gpus);
  for (size_t i = 0; !status && i < brim_lab_place_count(s->placing); i++) {
    status = put_gpu(s, i, gpus);
  }
  if (!status) status = put_host(s, o);
  if (!status) status = brim_json_dump(o, 0, out);
  json_decref(o);
  return status;
}
