// A view of a machine to JSON and back, by the tables of record_top_fields.c. The format is specified in record_top.h.
#include <math.h>
#include <string.h>

#include "record/record_top_int.h"

#define TOP BRIM_TOP_WHAT

//---------------------------------- to JSON ----------------------------------

static json_t *flag_value(brim_top_flag flag) {
  return flag == BRIM_TOP_UNKNOWN ? json_null() : json_boolean(flag == BRIM_TOP_YES);
}

static brim_status put_throttle(const brim_top_gpu *gpu, json_t *out) {
  if (!gpu->throttle_known) return brim_json_put(out, "throttle", json_null());
  BRIM_TRY(brim_json_put(out, "throttle", json_array()));
  json_t *list = json_object_get(out, "throttle");
  for (int i = 0; i < BRIM_TOP_THROTTLE_COUNT; i++) {
    if (!(gpu->throttle >> i & 1)) continue;
    BRIM_TRY(brim_json_push(list, json_string(brim_top_throttle_name((brim_top_throttle)i))));
  }
  return BRIM_OK;
}

static brim_status put_gpus(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_fields_put_list(&brim_top_gpu_fields, view->gpus, sizeof *view->gpus,
                                view->gpu_count, "gpus", root));
  json_t *list = json_object_get(root, "gpus");
  for (size_t i = 0; i < view->gpu_count; i++) {
    json_t *item = json_array_get(list, i);
    BRIM_TRY(put_throttle(&view->gpus[i], item));
    BRIM_TRY(brim_json_put(item, "targets", json_object()));
    json_t *targets = json_object_get(item, "targets");
    for (int t = 0; t < BRIM_TOP_TARGET_COUNT; t++) {
      BRIM_TRY(brim_json_put(targets, brim_top_target_name((brim_top_target)t),
                             flag_value(view->gpus[i].targets[t])));
    }
  }
  return BRIM_OK;
}

// To a tenth of a percent: a line of a recording has one for each core.
static brim_status put_cores(const brim_top_host *host, json_t *out) {
  BRIM_TRY(brim_json_put(out, "core_percent", json_array()));
  json_t *list = json_object_get(out, "core_percent");
  for (size_t i = 0; i < host->core_count; i++) {
    BRIM_TRY(brim_json_push(list, brim_json_number(round(host->core_percent[i] * 10) / 10)));
  }
  return BRIM_OK;
}

static brim_status put_jobs(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_json_put(root, "jobs", json_array()));
  json_t *list = json_object_get(root, "jobs");
  for (size_t i = 0; i < view->job_count; i++) {
    json_t *item = NULL;
    BRIM_TRY(brim_job_to_json(&view->jobs[i], &item));
    BRIM_TRY(brim_json_push(list, item));
  }
  return BRIM_OK;
}

static brim_status fill(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_TOP_SCHEMA)));
  BRIM_TRY(brim_fields_put(&brim_top_view_fields, view, false, root));
  BRIM_TRY(brim_json_put(root, "notes", json_array()));
  for (size_t i = 0; i < view->note_count; i++) {
    BRIM_TRY(brim_json_push(json_object_get(root, "notes"), brim_record_text(view->notes[i])));
  }
  BRIM_TRY(brim_json_put(root, "host", json_object()));
  BRIM_TRY(
      brim_fields_put(&brim_top_host_fields, &view->host, false, json_object_get(root, "host")));
  BRIM_TRY(put_cores(&view->host, json_object_get(root, "host")));
  BRIM_TRY(put_gpus(view, root));
  BRIM_TRY(brim_fields_put_list(&brim_top_process_fields, view->processes, sizeof *view->processes,
                                view->process_count, "processes", root));
  BRIM_TRY(brim_fields_put_list(&brim_top_event_fields, view->events, sizeof *view->events,
                                view->event_count, "events", root));
  return put_jobs(view, root);
}

brim_status brim_top_view_to_json(const brim_top_view *view, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? fill(view, root) : BRIM_OK, root, out);
}

//---------------------------------- from JSON ----------------------------------

// A name that this brim does not know is another reason.
static brim_status get_throttle(const json_t *from, brim_top_gpu *gpu) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, from, "throttle", &list));
  gpu->throttle_known = list != NULL;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name) return brim_fields_wrong(TOP, "throttle");
    int bit = 0;
    while (bit < BRIM_TOP_THROTTLE_OTHER &&
           strcmp(name, brim_top_throttle_name((brim_top_throttle)bit)) != 0) {
      bit++;
    }
    gpu->throttle |= 1u << bit;
  }
  return BRIM_OK;
}

static brim_status get_targets(const json_t *from, brim_top_gpu *gpu) {
  const json_t *targets = json_object_get(from, "targets");
  if (!targets || json_is_null(targets)) return BRIM_OK;
  if (!json_is_object(targets)) return brim_fields_wrong(TOP, "targets");
  for (int t = 0; t < BRIM_TOP_TARGET_COUNT; t++) {
    const json_t *value = json_object_get(targets, brim_top_target_name((brim_top_target)t));
    if (!value || json_is_null(value)) continue;
    if (!json_is_boolean(value)) return brim_fields_wrong(TOP, "targets");
    gpu->targets[t] = json_is_true(value) ? BRIM_TOP_YES : BRIM_TOP_NO;
  }
  return BRIM_OK;
}

static brim_status get_cores(const json_t *from, brim_top_host *host) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, from, "core_percent", &list));
  for (size_t i = 0; i < json_array_size(list) && i < BRIM_TOP_CORES; i++) {
    const json_t *value = json_array_get(list, i);
    if (!json_is_number(value) && !json_is_null(value))
      return brim_fields_wrong(TOP, "core_percent");
    host->core_percent[i] =
        json_is_null(value) ? NAN : brim_fields_bounded("core_percent", json_number_value(value));
    host->core_count = i + 1;
  }
  return BRIM_OK;
}

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory"); }

static brim_status get_gpus(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "gpus", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    brim_top_gpu *gpu = brim_top_view_add_gpu(out);
    if (!gpu) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_gpu_fields, item, gpu));
    brim_fields_bound(&brim_top_gpu_fields, gpu);
    BRIM_TRY(get_throttle(item, gpu));
    BRIM_TRY(get_targets(item, gpu));
  }
  return BRIM_OK;
}

static brim_status get_processes(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "processes", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_top_process *process = brim_top_view_add_process(out);
    if (!process) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_process_fields, json_array_get(list, i), process));
    brim_fields_bound(&brim_top_process_fields, process);
  }
  BRIM_TRY(brim_fields_list(TOP, root, "events", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_top_event *event = brim_top_view_add_event(out);
    if (!event) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_event_fields, json_array_get(list, i), event));
    brim_fields_bound(&brim_top_event_fields, event);
  }
  return BRIM_OK;
}

static brim_status get_rest(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "jobs", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_job *job = brim_top_view_add_job(out);
    if (!job) return no_memory();
    BRIM_TRY(brim_job_from_json(json_array_get(list, i), job));
  }
  BRIM_TRY(brim_fields_list(TOP, root, "notes", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *text = json_string_value(json_array_get(list, i));
    if (!text) return brim_fields_wrong(TOP, "notes");
    BRIM_TRY(brim_top_view_note(out, text));
  }
  return BRIM_OK;
}

brim_status brim_top_view_from_json(const json_t *json, brim_top_view *out) {
  brim_top_view_clear(out);
  if (!json_is_object(json)) return brim_fields_wrong(TOP, "object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_TOP_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a record of brim top: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_TOP_SCHEMA);
  }
  BRIM_TRY(brim_fields_get(&brim_top_view_fields, json, out));
  brim_fields_bound(&brim_top_view_fields, out);
  const json_t *host = json_object_get(json, "host");
  if (host && !json_is_null(host)) {
    BRIM_TRY(brim_fields_get(&brim_top_host_fields, host, &out->host));
    brim_fields_bound(&brim_top_host_fields, &out->host);
    BRIM_TRY(get_cores(host, &out->host));
  }
  BRIM_TRY(get_gpus(json, out));
  BRIM_TRY(get_processes(json, out));
  return get_rest(json, out);
}
