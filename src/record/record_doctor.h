// What `brim doctor` found: one line per check and thing that was checked. Terminal text and JSON are
// views of it. Filled by src/doctor; shown by ui_doctor.c and the command.
//
// As JSON, "brim.doctor/1":
//   {"schema": "brim.doctor/1", "version": "0.1.0",
//    "counts": {"good": 20, "warn": 2, "bad": 0, "unknown": 3},
//    "checks": [{"key": "host.cpu_quota", "group": "host", "subject": null, "state": "warn",
//                "value": "2.0 of 16 cores", "reason": null, "why": "...", "fix": "..." or null}],
//    "ceilings": {"device": "NVIDIA H200", "gemm_fp32_flops": number or null, ...} or null}
// `key`, `group` and `state` are stable; the texts are for people, in the language of the messages.
// `value` is null where the state is unknown, and `reason` says what could not be seen. `subject` says
// which of several things a line is about: "GPU 0".
#ifndef BRIM_RECORD_DOCTOR_H_
#define BRIM_RECORD_DOCTOR_H_

#include "base/base_json.h"
#include "record/record.h"

// X(id, name in JSON, message)
#define BRIM_DOCTOR_STATE_MAP(X)   \
  X(GOOD, "good", BRIM_N_("good")) \
  X(WARN, "warn", BRIM_N_("warn")) \
  X(BAD, "bad", BRIM_N_("bad"))    \
  X(UNKNOWN, "unknown", BRIM_N_("unknown"))

typedef enum brim_doctor_state {
#define X(id, name, message) BRIM_DOCTOR_##id,
  BRIM_DOCTOR_STATE_MAP(X)
#undef X
      BRIM_DOCTOR_STATE_COUNT
} brim_doctor_state;

const char *brim_doctor_state_name(brim_doctor_state state);

// Groups in the order in which they are shown. X(id, name in JSON, heading)
#define BRIM_DOCTOR_GROUP_MAP(X)                           \
  X(SOFTWARE, "software", BRIM_N_("Driver and libraries")) \
  X(GPU, "gpu", BRIM_N_("GPU"))                            \
  X(HOST, "host", BRIM_N_("Host"))                         \
  X(WSL, "wsl", BRIM_N_("WSL2"))                           \
  X(ENV, "env", BRIM_N_("Environment variables"))          \
  X(DATA, "data", BRIM_N_("Data"))                         \
  X(CEILING, "ceiling", BRIM_N_("Measured ceilings"))      \
  X(CONFIG, "config", BRIM_N_("Config"))

typedef enum brim_doctor_group {
#define X(id, name, heading) BRIM_DOCTOR_GROUP_##id,
  BRIM_DOCTOR_GROUP_MAP(X)
#undef X
      BRIM_DOCTOR_GROUP_COUNT
} brim_doctor_group;

const char *brim_doctor_group_name(brim_doctor_group group);

typedef struct brim_doctor_line {
  const char *key;  // "host.cpu_quota"; of the table of checks
  brim_doctor_group group;
  brim_doctor_state state;
  const char *label;  // a message: "CPU quota"
  char subject[64];   // "GPU 0"; "" = there is only one
  char value[512];    // what was seen; UNKNOWN: what could not be, and why
  char why[512];      // why it matters
  char fix[2048];     // commands or lines to paste, one a line; "" = nothing to fix
} brim_doctor_line;

typedef struct brim_doctor_report {
  brim_doctor_line *lines;
  size_t count, cap;
  size_t counts[BRIM_DOCTOR_STATE_COUNT];
  bool measured;  // the ceilings below are of `device`
  char device[128];
  brim_machine_ceilings ceilings;
  brim_status status;        // BRIM_ENOMEM sticks: a line found no room
  brim_doctor_line no_room;  // such lines
} brim_doctor_report;

void brim_doctor_report_init(brim_doctor_report *report);
void brim_doctor_report_deinit(brim_doctor_report *report);
// A line with empty texts, to be filled in by the caller; never NULL (a spare one without memory).
brim_doctor_line *brim_doctor_report_add(brim_doctor_report *report, brim_doctor_group group,
                                         const char *key, brim_doctor_state state);
brim_status brim_doctor_report_json(const brim_doctor_report *report, json_t **out);

#endif  // BRIM_RECORD_DOCTOR_H_
