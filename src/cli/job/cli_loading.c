// What train and bench tell of loading: what reading and each transform cost, broken samples, where
// the data set is kept, and pageable memory.
#include "cli/job/cli_loading.h"

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
  brim_str_append(out, brim_tr(" per sample in one thread"));
  return true;
}

bool brim_cli_broken_text(const brim_run_loading *loading, brim_str *out) {
  int64_t broken = loading->broken, reads = loading->broken_reads;
  const char *first = loading->first_broken;
  if (broken <= 0) return false;
  if (reads > broken) {
    brim_str_printf(
        out,
        broken == 1 ? brim_tr("%" PRId64 " sample could not be read and was skipped, in %" PRId64
                              " reads: %s")
                    : brim_tr("%" PRId64 " samples could not be read and were skipped, in %" PRId64
                              " reads; the first: %s"),
        broken, reads, first);
    return true;
  }
  brim_str_printf(
      out,
      broken == 1
          ? brim_tr("%" PRId64 " sample could not be read and was skipped: %s")
          : brim_tr("%" PRId64 " samples could not be read and were skipped; the first: %s"),
      broken, first);
  return true;
}

json_t *brim_cli_loading_json(const brim_run_loading *loading) {
  json_t *o = json_object(), *stages = json_object();
  brim_status s = brim_json_put(o, "samples", json_integer(loading->samples));
  if (!s && loading->cache) s = brim_json_put(o, "cache", json_string(loading->cache));
  if (!s && loading->locked_bytes > 0) {
    s = brim_json_put(o, "locked_bytes", json_integer((json_int_t)loading->locked_bytes));
  }
  if (!s) s = brim_json_put(o, "read_ms", brim_json_number(loading->read_ms));
  for (size_t i = 0; i < loading->stage_count && !s; i++) {
    // a transform that stands twice in the pipeline is one sum
    double ms =
        loading->stage_ms[i] + json_number_value(json_object_get(stages, loading->stage[i]));
    s = brim_json_put(stages, loading->stage[i], brim_json_number(ms));
  }
  if (!s) s = brim_json_put(o, "transforms_ms", json_incref(stages));
  if (!s) s = brim_json_put(o, "broken", json_integer(loading->broken));
  if (!s) s = brim_json_put(o, "broken_reads", json_integer(loading->broken_reads));
  if (!s && loading->broken > 0) {
    s = brim_json_put(o, "first_broken", json_string(loading->first_broken));
  }
  json_decref(stages);
  if (!s) return o;
  json_decref(o);
  return NULL;
}

bool brim_cli_cache_text(const brim_work_info *info, char *out, size_t size) {
  const char *cache = info->cache ? info->cache : "none";
  char locked[32];
  brim_format_bytes(info->locked_bytes, locked);
  if (strcmp(cache, "gpu") == 0) {
    snprintf(out, size, "%s", brim_tr("kept on the GPU"));
  } else if (strcmp(cache, "ram") == 0) {
    snprintf(out, size, "%s", brim_tr("kept in host memory"));
  } else if (strcmp(cache, "mapped") == 0) {
    snprintf(out, size, brim_tr("the GPU reads rows from the mapped file (%s page-locked)"),
             locked);
  } else if (info->not_mapped) {
    snprintf(out, size, brim_tr("loader threads copy rows from the mapped file (%s)"),
             info->not_mapped);
  } else {
    return false;
  }
  return true;
}

const char *brim_cli_pageable_text(const brim_device *device) {
  if (device->info.host_memory) return NULL;
  return brim_tr(
      "data.pin_memory is false: the driver first copies each batch to its own staging buffer "
      "while the host waits; the H2D time of a step shows the cost");
}
