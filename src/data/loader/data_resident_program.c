// What the device does to samples of a resident set: the transforms' program, or a plain copy.
#include "data/loader/data_loader_int.h"

brim_status brim_resident_program(const brim_source *source, const brim_transforms *transforms,
                                  brim_augment_program *out) {
  if (source->info.varies) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "images of different sizes cannot be kept on the device; convert them to one "
                     "size first (brim data convert)");
  }
  if (transforms) {
    const brim_augment_program *program = brim_transforms_program(transforms);
    if (!program) {
      return brim_fail(BRIM_EUNSUPPORTED, "these transforms cannot run on the device");
    }
    *out = *program;
    return BRIM_OK;
  }
  *out = (brim_augment_program){
      .views = 1, .sample_bytes = source->input_bytes, .out_bytes = source->input_bytes};
  return BRIM_OK;
}
