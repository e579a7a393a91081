// Ranks without a run loop of their own: commands that measure decide by the clock what they do next, on the
// first rank. It says each call to the others before it makes it, and they make the same.
#include "workload/workload_stepped.h"

typedef struct call {
  int32_t kind;
  int32_t number;  // steps, or `reset`
  brim_setting setting;
} call;

static brim_status tell(const brim_stepper *t, brim_step_call kind, int number,
                        const brim_setting *setting) {
  call c = {.kind = (int32_t)kind, .number = number};
  if (!t->leads) return BRIM_OK;
  if (setting) c.setting = *setting;
  return brim_comm_broadcast(t->comm, &c, sizeof c, 0);
}

// A setting stands on all ranks or on none.
static brim_status agree(const brim_stepper *t, brim_status status) {
  int64_t failed = status != BRIM_OK;
  BRIM_TRY(brim_comm_all_reduce(t->comm, &failed, 1, BRIM_I64));
  if (status || failed == 0) return status;
  return brim_fail(BRIM_EOOM, "%lld of %d ranks cannot build this setting", (long long)failed,
                   t->ranks);
}

//---------------------------------- the first rank ----------------------------------

void brim_stepped_lead(void *work, bool on) {
  brim_stepper *t = ((const brim_stepped *)work)->stepper;
  if (!t->comm || t->rank > 0) return;
  if (!on && t->leads && tell(t, BRIM_CALL_END, 0, NULL))
    brim_status_clear();  // the watch has its reason
  t->leads = on;
}

brim_status brim_stepped_tell_configure(const void *work, const brim_setting *setting) {
  return tell(((const brim_stepped *)work)->stepper, BRIM_CALL_CONFIGURE, 0, setting);
}

brim_status brim_stepped_agree(const void *work, brim_status status) {
  const brim_stepper *t = ((const brim_stepped *)work)->stepper;
  return t->leads || t->follows ? agree(t, status) : status;
}

brim_status brim_stepper_tell(const brim_stepper *t, brim_step_call kind, int number) {
  return tell(t, kind, number, NULL);
}

//---------------------------------- the others ----------------------------------

static brim_status make(const brim_workload_table *table, void *work, const call *c) {
  brim_step_info info;
  brim_work_metrics metrics;
  int64_t ns;
  switch ((brim_step_call)c->kind) {
    case BRIM_CALL_STEP:
      return table->step(work, NULL, &info);
    case BRIM_CALL_METRICS:
      return table->metrics(work, c->number != 0, &metrics);
    case BRIM_CALL_SNAPSHOT:
      return table->snapshot(work);
    case BRIM_CALL_RESTORE:
      return table->restore(work);
    case BRIM_CALL_LOAD_ONLY:
      return table->loading->load_only(work, &info);
    case BRIM_CALL_COMPUTE_ONLY:
      return table->loading->compute_only(work, c->number, &ns, &info);
    case BRIM_CALL_CONFIGURE:
      // it failed on the first rank too, which says so and continues
      if (table->configure(work, &c->setting)) brim_status_clear();
      return BRIM_OK;
    case BRIM_CALL_END:
      break;
  }
  return brim_fail(BRIM_EINTERNAL, "the first rank asked for call %d", (int)c->kind);
}

brim_status brim_stepped_follow(void *work, const brim_workload_table *table) {
  brim_stepper *t = ((const brim_stepped *)work)->stepper;
  brim_status status = BRIM_OK;
  t->follows = true;
  while (!status) {
    call c = {0};
    status = brim_comm_broadcast(t->comm, &c, sizeof c, 0);
    if (status || c.kind == BRIM_CALL_END) break;
    status = make(table, work, &c);
  }
  t->follows = false;
  return status;
}
