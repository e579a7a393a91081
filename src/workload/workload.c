// The list of workloads, and the small things every caller needs of a workload object.
#include "workload/workload.h"

#include <inttypes.h>
#include <string.h>

#include "workload/workload_int.h"

static const brim_workload_table *const workloads[] = {&brim_workload_supervised};

const brim_workload_table *brim_workload_find(const char *name) {
  for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
    if (strcmp(workloads[i]->name, name) == 0) return workloads[i];
  }
  brim_fail(BRIM_EUNSUPPORTED, "workload '%s' is not in this version of brim; it has: supervised",
            name);
  return NULL;
}

brim_status brim_work_open(const brim_work_context *context, const brim_config *config,
                           brim_work **out) {
  const char *name = brim_config_string(config, "workload");
  const brim_workload_table *table = brim_workload_find(name ? name : "supervised");
  if (!table) return BRIM_EUNSUPPORTED;
  brim_work *work = (brim_work *)brim_calloc(1, sizeof *work);
  if (!work) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  work->table = table;
  brim_status status = table->open(context, config, &work->state);
  if (status) {
    brim_free(work);
    return status;
  }
  work->knob_count = table->knobs(work->state, &work->knobs);
  *out = work;
  return BRIM_OK;
}

void brim_work_close(brim_work *work) {
  if (!work) return;
  work->table->close(work->state);
  brim_free(work);
}

brim_setting brim_work_setting(const brim_work *work) {
  brim_setting setting;
  memset(&setting, 0, sizeof setting);
  for (size_t i = 0; i < work->knob_count; i++) setting.value[i] = work->knobs[i].value;
  return setting;
}

int brim_work_knob(const brim_work *work, const char *name) {
  for (size_t i = 0; i < work->knob_count; i++) {
    if (strcmp(work->knobs[i].name, name) == 0 || strcmp(work->knobs[i].key, name) == 0) {
      return (int)i;
    }
  }
  return -1;
}

void brim_knob_format(const brim_knob *knob, int64_t value, char out[32]) {
  switch (knob->kind) {
    case BRIM_KNOB_BOOL:
      snprintf(out, 32, "%s", value ? "true" : "false");
      return;
    case BRIM_KNOB_CHOICE:
      snprintf(out, 32, "%s", knob->choices[value]);
      return;
    case BRIM_KNOB_INT:
      break;
  }
  snprintf(out, 32, "%" PRId64, value);
}
