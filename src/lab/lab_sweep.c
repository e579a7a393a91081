// The sweep's loop (lab_sweep.h).
#include "lab/lab_sweep.h"

brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out) {
  brim_str_printf(out, "%s/" BRIM_LAB_SWEEP_EXPS "/%.*s", folder, BRIM_LAB_SHORT_ID, id);
  return brim_str_status(out);
}
