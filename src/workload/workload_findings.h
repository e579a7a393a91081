// Inside the workload room: what a sweep finds about workloads that train a network on data.
#ifndef BRIM_WORKLOAD_FINDINGS_H_
#define BRIM_WORKLOAD_FINDINGS_H_

#include "record/record_findings.h"
#include "workload/workload.h"

extern const brim_work_findings_table brim_learn_findings;

#endif  // BRIM_WORKLOAD_FINDINGS_H_
