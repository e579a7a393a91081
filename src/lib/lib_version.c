// The one function that belongs to libbrim as a whole and to no room. The number comes from the
// project() line in CMakeLists.txt.
#include "brim/version.h"

const char *brim_version(void) { return BRIM_VERSION; }
