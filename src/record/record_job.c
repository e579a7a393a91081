// What a running job publishes, to JSON and back (record_job.h).
#include "record/record_job.h"

#include <string.h>

#include "record/record_fields.h"

const char *brim_job_phase_name(brim_job_phase phase) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_JOB_PHASE_MAP(X)
#undef X
  };
  return names[phase];
}

static const char *phase_name(int value) { return brim_job_phase_name((brim_job_phase)value); }

#define JOB BRIM_N_("record of a job")
#define CHARS(member) BRIM_FIELD_(brim_job, #member, CHARS, member)
#define NUMBER(member) BRIM_FIELD_(brim_job, #member, NUMBER, member)
#define INT(member) BRIM_FIELD_INT_(brim_job, #member, member, -1)

static const brim_field job_rows[] = {
    INT(pid),          INT(number),
    INT(pid_start),    INT(pid_namespace),
    CHARS(host),       CHARS(command),
    CHARS(workload),   CHARS(name),
    CHARS(folder),     CHARS(device),
    CHARS(device_id),  BRIM_FIELD_NAME_(brim_job, "phase", phase, phase_name, BRIM_JOB_PHASE_COUNT),
    CHARS(unit),       CHARS(metric_key),
    NUMBER(metric),    NUMBER(started_s),
    NUMBER(updated_s), INT(epoch),
    INT(epochs),       INT(step),
    INT(steps),        NUMBER(samples_per_s),
    NUMBER(eta_s),
};

#define COUNT_OF(rows) (sizeof rows / sizeof rows[0])
static const brim_fields job_fields = {.what = JOB, .rows = job_rows, .count = COUNT_OF(job_rows)};

void brim_job_init(brim_job *job) {
  memset(job, 0, sizeof *job);
  brim_fields_init(&job_fields, job);
}

static brim_status fill(const brim_job *job, json_t *root) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_JOB_SCHEMA)));
  BRIM_TRY(brim_fields_put(&job_fields, job, false, root));
  BRIM_TRY(brim_json_put(root, "findings", json_array()));
  json_t *list = json_object_get(root, "findings");
  for (size_t i = 0; i < job->finding_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_record_put_finding(item, &job->findings[i]));
  }
  return BRIM_OK;
}

brim_status brim_job_to_json(const brim_job *job, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? fill(job, root) : BRIM_OK, root, out);
}

brim_status brim_job_from_json(const json_t *json, brim_job *out) {
  brim_job_init(out);
  if (!json_is_object(json)) return brim_fields_wrong(JOB, "object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_JOB_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a job's record: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_JOB_SCHEMA);
  }
  BRIM_TRY(brim_fields_get(&job_fields, json, out));
  const double metric = out->metric;  // any number
  brim_fields_bound(&job_fields, out);
  out->metric = metric;
  const json_t *list;
  BRIM_TRY(brim_fields_list(JOB, json, "findings", &list));
  size_t n = json_array_size(list);
  for (size_t i = 0; i < n && i < BRIM_JOB_FINDINGS; i++) {
    brim_finding *finding = &out->findings[out->finding_count++];
    BRIM_TRY(brim_record_read_finding(json_array_get(list, i), JOB, 0, finding));
    finding->cost_ms = brim_fields_bounded("cost_ms", finding->cost_ms);
  }
  return BRIM_OK;
}
