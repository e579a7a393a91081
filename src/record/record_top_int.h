// Inside the record room: the members of a machine's view as tables.
#ifndef BRIM_RECORD_TOP_INT_H_
#define BRIM_RECORD_TOP_INT_H_

#include "record/record_fields.h"
#include "record/record_top.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_TOP_WHAT BRIM_N_("view of a machine")

extern const brim_fields brim_top_host_fields, brim_top_gpu_fields, brim_top_process_fields,
    brim_top_event_fields, brim_top_view_fields;

void brim_top_event_init(brim_top_event *event);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_TOP_INT_H_
