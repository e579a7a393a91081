// Names of the formats, and a message that every writer has.
#include "data/pack/data_pack_int.h"

static const struct {
  const char *name, *source;
} formats[BRIM_PACK_FORMAT_COUNT] = {
    [BRIM_PACK_HDF5] = {"hdf5", "hdf5"},          [BRIM_PACK_IDX] = {"idx", "idx"},
    [BRIM_PACK_CIFAR10] = {"cifar10", "cifar10"}, [BRIM_PACK_CIFAR100] = {"cifar100", "cifar100"},
    [BRIM_PACK_STL10] = {"stl10", "stl10"},       [BRIM_PACK_PNG] = {"png", "folder"},
    [BRIM_PACK_JPG] = {"jpg", "folder"},
};

const char *brim_pack_format_name(brim_pack_format format) { return formats[format].name; }
const char *brim_pack_format_source(brim_pack_format format) { return formats[format].source; }

brim_status brim_pack_no_memory(const brim_pack *pack) {
  return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", pack->path);
}
