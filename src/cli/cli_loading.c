// What train and bench tell of loading: what reading and each transform cost, broken samples, where
// the data set is kept, and pageable memory.
#include "cli/cli_loading.h"

#include <inttypes.h>
#include <string.h>

bool brim_cli_loading_text(const brim_run_loading *loading, brim_str *out) {
  double sum = loading->read_ms;
  for (size_t i = 0; i < loading->stage_count; i++) sum += loading->stage_ms[i];
  if (loading->samples <= 0 || sum <= 0) return false;
  char time[32];
  brim_format_duration(loading->read_ms / 1e3, time);
  brim_str_printf(out, brim_tr("read %s"), time);
  for (size_t i = 0; i < loading->stage_count; i++) {
    brim_format_duration(loading->stage_ms[i] / 1e3, time);
    brim_str_printf(out, ", %s %s", loading->stage[i], time);
  }
  brim_str_append(out, brim_tr(" per sample and thread"));
  return true;
}

bool brim_cli_broken_text(const brim_run_loading *loading, brim_str *out) {
  if (loading->broken <= 0) return false;
  brim_str_printf(
      out,
      loading->broken == 1
          ? brim_tr("%" PRId64 " sample could not be read and was skipped: %s")
          : brim_tr("%" PRId64 " samples could not be read and were skipped; the first: %s"),
      loading->broken, loading->first_broken);
  return true;
}

json_t *brim_cli_loading_json(const brim_run_loading *loading) {
  json_t *o = json_object(), *stages = json_object();
  brim_status s = brim_json_put(o, "samples", json_integer(loading->samples));
  if (!s) s = brim_json_put(o, "read_ms", brim_json_number(loading->read_ms));
  for (size_t i = 0; i < loading->stage_count && !s; i++) {
    // a transform that stands twice in the pipeline is one sum
    double ms =
        loading->stage_ms[i] + json_number_value(json_object_get(stages, loading->stage[i]));
    s = brim_json_put(stages, loading->stage[i], brim_json_number(ms));
  }
  if (!s) s = brim_json_put(o, "transforms_ms", json_incref(stages));
  if (!s) s = brim_json_put(o, "broken", json_integer(loading->broken));
  if (!s && loading->broken > 0) {
    s = brim_json_put(o, "first_broken", json_string(loading->first_broken));
  }
  json_decref(stages);
  if (!s) return o;
  json_decref(o);
  return NULL;
}

const char *brim_cli_cache_text(const brim_work_info *info) {
  if (!info->cache) return NULL;
  if (strcmp(info->cache, "gpu") == 0) return brim_tr("kept on the GPU");
  if (strcmp(info->cache, "ram") == 0) return brim_tr("kept in host memory");
  return NULL;
}

const char *brim_cli_pageable_text(const brim_device *device) {
  if (device->info.host_memory) return NULL;
  return brim_tr(
      "data.pin_memory is false: the driver copies each batch from pageable memory to a staging "
      "buffer of its own first, and the host waits for that; what it costs is the H2D time of a "
      "step");
}
