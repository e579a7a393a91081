// The report of the doctor: adding lines, and writing it as JSON.
#include "record/record_doctor.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/base_text.h"

const char *brim_doctor_state_name(brim_doctor_state state) {
  static const char *const names[] = {
#define X(id, name, message) name,
      BRIM_DOCTOR_STATE_MAP(X)
#undef X
  };
  return (unsigned)state < BRIM_DOCTOR_STATE_COUNT ? names[state] : "unknown";
}

const char *brim_doctor_group_name(brim_doctor_group group) {
  static const char *const names[] = {
#define X(id, name, heading) name,
      BRIM_DOCTOR_GROUP_MAP(X)
#undef X
  };
  return (unsigned)group < BRIM_DOCTOR_GROUP_COUNT ? names[group] : "";
}

void brim_doctor_report_init(brim_doctor_report *report) {
  memset(report, 0, sizeof *report);
  brim_machine_ceilings_init(&report->ceilings);
}

void brim_doctor_report_deinit(brim_doctor_report *report) {
  brim_free(report->lines);
  brim_doctor_report_init(report);
}

static brim_doctor_line *next_line(brim_doctor_report *report) {
  if (report->count == report->cap) {
    size_t cap = report->cap ? 2 * report->cap : 64;
    void *lines = brim_realloc(report->lines, cap * sizeof *report->lines);
    if (!lines) {
      report->status = brim_fail(BRIM_ENOMEM, "out of memory for the lines of a report");
      return &report->no_room;
    }
    report->lines = (brim_doctor_line *)lines;
    report->cap = cap;
  }
  return &report->lines[report->count++];
}

brim_doctor_line *brim_doctor_report_add(brim_doctor_report *report, brim_doctor_group group,
                                         const char *key, brim_doctor_state state) {
  brim_doctor_line *line = next_line(report);
  *line = (brim_doctor_line){.key = key, .group = group, .state = state, .label = ""};
  report->counts[state]++;
  return line;
}

//---------------------------------- JSON ----------------------------------

static json_t *text_or_null(const char *text) {
  char plain[2048];
  if (!text[0]) return json_null();
  if (brim_utf8_valid(text, strlen(text))) return json_string(text);
  brim_text_plain(text, plain, sizeof plain);  // names of files and commands may contain any bytes
  return json_string(plain);
}

static brim_status put_line(json_t *list, const brim_doctor_line *line) {
  const bool unknown = line->state == BRIM_DOCTOR_UNKNOWN;
  json_t *item = json_object();
  BRIM_TRY(brim_json_push(list, item));
  BRIM_TRY(brim_json_put(item, "key", json_string(line->key)));
  BRIM_TRY(brim_json_put(item, "group", json_string(brim_doctor_group_name(line->group))));
  BRIM_TRY(brim_json_put(item, "subject", text_or_null(line->subject)));
  BRIM_TRY(brim_json_put(item, "state", json_string(brim_doctor_state_name(line->state))));
  BRIM_TRY(brim_json_put(item, "value", unknown ? json_null() : text_or_null(line->value)));
  BRIM_TRY(brim_json_put(item, "reason", unknown ? text_or_null(line->value) : json_null()));
  BRIM_TRY(brim_json_put(item, "why", text_or_null(line->why)));
  return brim_json_put(item, "fix", text_or_null(line->fix));
}

static brim_status put_ceilings(json_t *root, const brim_doctor_report *report) {
  if (!report->measured) return brim_json_put(root, "ceilings", json_null());
  json_t *item = json_object();
  BRIM_TRY(brim_json_put(root, "ceilings", item));
  BRIM_TRY(brim_json_put(item, "device", text_or_null(report->device)));
#define X(name) BRIM_TRY(brim_json_put(item, #name, brim_json_number(report->ceilings.name)));
  BRIM_MACHINE_MAP(X)
#undef X
  return BRIM_OK;
}

static brim_status fill(json_t *root, const brim_doctor_report *report) {
  BRIM_TRY(brim_json_put(root, "schema", json_string("brim.doctor/1")));
  BRIM_TRY(brim_json_put(root, "version", json_string(BRIM_VERSION)));
  json_t *counts = json_object();
  BRIM_TRY(brim_json_put(root, "counts", counts));
  for (int s = 0; s < BRIM_DOCTOR_STATE_COUNT; s++) {
    BRIM_TRY(brim_json_put(counts, brim_doctor_state_name((brim_doctor_state)s),
                           json_integer((json_int_t)report->counts[s])));
  }
  json_t *checks = json_array();
  BRIM_TRY(brim_json_put(root, "checks", checks));
  for (size_t i = 0; i < report->count; i++) BRIM_TRY(put_line(checks, &report->lines[i]));
  return put_ceilings(root, report);
}

brim_status brim_doctor_report_json(const brim_doctor_report *report, json_t **out) {
  *out = NULL;
  if (report->status) return report->status;
  brim_json_setup();
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
  brim_status status = fill(root, report);
  if (status) {
    json_decref(root);
    return status;
  }
  *out = root;
  return BRIM_OK;
}
