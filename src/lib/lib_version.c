// The version, from the project() line in CMakeLists.txt.
#include "brim/version.h"

const char *brim_version(void) { return BRIM_VERSION; }
