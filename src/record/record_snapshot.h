// What lies in device memory during a step, as one JSON object for other programs. The page of a profile
// shows the same. Callers: the profile command.
//
// brim.memory/1:
//   schema "brim.memory/1" | when (ISO 8601) | workload, description, device, setting {knob: value}
//   plan    [{name, place, bytes}]   all that brim asks for; "device" or "host"
//   overhead_bytes   what context and libraries take besides; null = unknown, or no GPU
//   arena_bytes, fixed_bytes, peak_bytes, peak   as in brim.profile/1
//   ops     [{op, layer, phase, bytes, owners: [index of a block, ...]}]   in the order of a step; owners:
//           the blocks that are alive while it runs, the largest first
//   blocks  [{name, kind, bytes, offset, first, last}]   offset: in the arena; from op `first` to `last`
#ifndef BRIM_RECORD_SNAPSHOT_H_
#define BRIM_RECORD_SNAPSHOT_H_

#include "record/record_profile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_SNAPSHOT_SCHEMA "brim.memory/1"

brim_status brim_snapshot_to_json(const brim_profile *profile, json_t **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_SNAPSHOT_H_
