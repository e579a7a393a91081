// Inside the doctor: rows, what a check works with, and small readers of files.
#ifndef BRIM_DOCTOR_INT_H_
#define BRIM_DOCTOR_INT_H_

#include "base/base.h"
#include "base/base_machine.h"
#include "base/base_text.h"
#include "doctor/doctor.h"
#include "monitor/monitor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_DOCTOR_PATH = 1024, BRIM_DOCTOR_TEXT = 16384 };

struct brim_doctor_row;

// One examination.
typedef struct brim_doctor_exam {
  const brim_doctor_machine *machine;
  brim_doctor_report *report;
  const struct brim_doctor_row *row;  // whose turn it is
  const brim_doctor_gpu *gpus;
  size_t gpu_count;
  const char *no_gpus;  // why there are none; ""
  bool wsl;
} brim_doctor_exam;

typedef struct brim_doctor_row {
  const char *key;
  brim_doctor_group group;
  const char *label;  // a message
  const char *why;    // a message: why it matters
  void (*check)(brim_doctor_exam *e);
} brim_doctor_row;

// The rows of a file, ended by a key of NULL.
extern const brim_doctor_row brim_doctor_software_rows[], brim_doctor_gpu_rows[],
    brim_doctor_health_rows[], brim_doctor_host_rows[], brim_doctor_cpu_rows[],
    brim_doctor_wsl_rows[], brim_doctor_env_rows[], brim_doctor_data_rows[];

//---------------------------------- lines ----------------------------------

// A line of the present row; `fmt` is a translated message.
brim_doctor_line *brim_doctor_say(brim_doctor_exam *e, brim_doctor_state state, const char *fmt,
                                  ...) BRIM_PRINTF(3, 4);
// The same without an examination, of a row that stands alone.
brim_doctor_line *brim_doctor_say_row(brim_doctor_report *report, const brim_doctor_row *row,
                                      brim_doctor_state state, const char *fmt, ...)
    BRIM_PRINTF(4, 5);
// The command that fixes it.
void brim_doctor_fix(brim_doctor_line *line, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Why it matters here, where the row's reason is not the whole of it.
void brim_doctor_because(brim_doctor_line *line, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_doctor_about(brim_doctor_line *line, const char *subject);

//---------------------------------- readers ----------------------------------

const char *brim_doctor_env(const brim_doctor_exam *e, const char *name);  // NULL = not set
// The beginning of a file below the root; false when it cannot be read or is empty.
bool brim_doctor_read(const brim_doctor_exam *e, const char *path, char *out, size_t size);
// The same without the newline at the end.
bool brim_doctor_read_word(const brim_doctor_exam *e, const char *path, char *out, size_t size);
bool brim_doctor_exists(const brim_doctor_exam *e, const char *path);
// "4.0 GiB" of a number of bytes that is known.
void brim_doctor_bytes(double bytes, char out[32]);

// A list of the kernel's, "0-3,8": how many there are, and how many of them are in another list as well.
// -1 = it cannot be read.
int brim_doctor_cpu_list(const char *list);
int brim_doctor_cpu_both(const char *a, const char *b);
// "0-15": the cores that this process may use; false = not known.
bool brim_doctor_allowed(const brim_doctor_exam *e, char *out, size_t size);
// How many cores that are, or the quota of the control group where it is less; -1 = not known.
int brim_doctor_cores(const brim_doctor_exam *e);

// Is there a display or compute device of NVIDIA's on the PCI bus?
typedef enum brim_doctor_bus {
  BRIM_DOCTOR_BUS_HIDDEN,
  BRIM_DOCTOR_BUS_NONE,
  BRIM_DOCTOR_BUS_GPU
} brim_doctor_bus;
brim_doctor_bus brim_doctor_look_at_bus(const brim_doctor_exam *e);

// The nearest folder above a path of this machine, or the path itself, that is there.
void brim_doctor_there(const char *path, char *out, size_t size);
// The file system of a path of this machine, by mountinfo below the root: its type and mount point.
bool brim_doctor_mount(const brim_doctor_machine *m, const char *path, char *type, size_t type_size,
                       char *point, size_t point_size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DOCTOR_INT_H_
