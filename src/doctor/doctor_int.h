// Inside the doctor room: rows of checks, adding lines, and small readers of files.
#ifndef BRIM_DOCTOR_INT_H_
#define BRIM_DOCTOR_INT_H_

#include "base/base.h"
#include "base/base_machine.h"
#include "base/base_text.h"
#include "doctor/doctor.h"
#include "monitor/monitor.h"

enum { BRIM_DOCTOR_PATH = 1024, BRIM_DOCTOR_TEXT = 16384 };

struct brim_doctor_row;

// The state of an examination.
typedef struct brim_doctor_exam {
  const brim_doctor_machine *machine;
  brim_doctor_report *report;
  const struct brim_doctor_row *row;  // being checked
  const brim_doctor_gpu *gpus;
  size_t gpu_count;
  const char *no_gpus;  // why there are no GPUs, or ""
  bool wsl;
} brim_doctor_exam;

typedef struct brim_doctor_row {
  const char *key;
  brim_doctor_group group;
  const char *label;  // a message
  const char *why;    // a message: why it matters
  void (*check)(brim_doctor_exam *e);
} brim_doctor_row;

// Tables of rows; a NULL key ends each.
extern const brim_doctor_row brim_doctor_software_rows[], brim_doctor_gpu_rows[],
    brim_doctor_health_rows[], brim_doctor_host_rows[], brim_doctor_cpu_rows[],
    brim_doctor_wsl_rows[], brim_doctor_env_rows[], brim_doctor_data_rows[];

//---------------------------------- lines ----------------------------------

// Adds a line for the current row; `fmt` is a translated message.
brim_doctor_line *brim_doctor_say(brim_doctor_exam *e, brim_doctor_state state, const char *fmt,
                                  ...) BRIM_PRINTF(3, 4);
// Adds a line for any row, without an examination.
brim_doctor_line *brim_doctor_say_row(brim_doctor_report *report, const brim_doctor_row *row,
                                      brim_doctor_state state, const char *fmt, ...)
    BRIM_PRINTF(4, 5);
// Sets the command that fixes the problem.
void brim_doctor_fix(brim_doctor_line *line, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Replaces the row's reason by a reason for this case.
void brim_doctor_because(brim_doctor_line *line, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_doctor_about(brim_doctor_line *line, const char *subject);

//---------------------------------- readers ----------------------------------

const char *brim_doctor_env(const brim_doctor_exam *e, const char *name);  // NULL = not set
// Reads the beginning of a file below the root. False if it cannot be read or is empty.
bool brim_doctor_read(const brim_doctor_exam *e, const char *path, char *out, size_t size);
// Reads the first line of a file, under the same conditions.
bool brim_doctor_read_word(const brim_doctor_exam *e, const char *path, char *out, size_t size);
bool brim_doctor_exists(const brim_doctor_exam *e, const char *path);
// "4.0 GiB"; `bytes` must be known.
void brim_doctor_bytes(double bytes, char out[32]);

// Counts the CPUs of a kernel list ("0-3,8"), or the CPUs that two lists share. -1 = malformed.
int brim_doctor_cpu_list(const char *list);
int brim_doctor_cpu_both(const char *a, const char *b);
// The cores that this process may use, as "0-15". False if unknown.
bool brim_doctor_allowed(const brim_doctor_exam *e, char *out, size_t size);
// Usable cores: the affinity mask, capped by the cgroup quota. -1 if unknown.
int brim_doctor_cores(const brim_doctor_exam *e);

// Says whether the PCI bus has an NVIDIA display or compute device.
typedef enum brim_doctor_bus {
  BRIM_DOCTOR_BUS_HIDDEN,
  BRIM_DOCTOR_BUS_NONE,
  BRIM_DOCTOR_BUS_GPU
} brim_doctor_bus;
brim_doctor_bus brim_doctor_look_at_bus(const brim_doctor_exam *e);

// The path if it exists, else the nearest existing folder above it. A real path, not below root.
void brim_doctor_there(const char *path, char *out, size_t size);
// The type and mount point of the file system of a real path, by mountinfo below the root.
bool brim_doctor_mount(const brim_doctor_machine *m, const char *path, char *type, size_t type_size,
                       char *point, size_t point_size);

#endif  // BRIM_DOCTOR_INT_H_
