// What a resident set and a loader over it will take, planned before either is made. The sizes are
// the loader's own (data_loader_layout.c).
#include "data/data_loader_int.h"

brim_status brim_resident_plan(const brim_registry *registry, const brim_device *device,
                               const brim_source *source, const brim_loader_options *options,
                               brim_plan *plan) {
  brim_source part = *source;
  if (options->limit && options->limit < part.info.count) part.info.count = options->limit;
  part.cache = NULL;  // what lies on the device is not kept besides
  uint64_t bytes = brim_resident_bytes(registry, device, &part, options->transforms);
  if (bytes == 0) return BRIM_EUNSUPPORTED;  // the detail says why
  brim_loader_options how = *options;
  how.resident = NULL;  // there may be none yet
  BRIM_TRY(brim_loader_plan_row(plan, BRIM_PLACE_DEVICE, BRIM_N_("resident dataset"), bytes));
  return brim_loader_plan_with(&part, &how,
                               brim_registry_extension(registry, BRIM_AUGMENT_EXTENSION), plan);
}
