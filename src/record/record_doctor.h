// The findings of `brim doctor`: one line per check and checked thing. Terminal text and JSON are views of it.
// src/doctor fills it; ui_doctor.c and the command show it.
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
  const char *key;  // key in the table of checks: "host.cpu_quota"
  brim_doctor_group group;
  brim_doctor_state state;
  const char *label;  // a message: "CPU quota"
  char subject[64];   // "GPU 0"; "" = the machine has only one such thing
  char value[512];    // the reading; if UNKNOWN, what could not be read, and why
  char why[512];      // why it matters
  char fix[2048];     // commands or lines to paste, one a line; "" = nothing to fix
} brim_doctor_line;

typedef struct brim_doctor_report {
  brim_doctor_line *lines;
  size_t count, cap;
  size_t counts[BRIM_DOCTOR_STATE_COUNT];
  bool measured;  // the ceilings below were measured on `device`
  char device[128];
  brim_machine_ceilings ceilings;
  brim_status status;        // BRIM_ENOMEM stays set once a line could not be added
  brim_doctor_line no_room;  // spare line that is handed out when memory is exhausted
} brim_doctor_report;

void brim_doctor_report_init(brim_doctor_report *report);
void brim_doctor_report_deinit(brim_doctor_report *report);
// Adds a line with empty texts for the caller to fill in. Never NULL: without memory it returns the spare line.
brim_doctor_line *brim_doctor_report_add(brim_doctor_report *report, brim_doctor_group group,
                                         const char *key, brim_doctor_state state);
brim_status brim_doctor_report_json(const brim_doctor_report *report, json_t **out);

#endif  // BRIM_RECORD_DOCTOR_H_
