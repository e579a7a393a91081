// The version; CMake passes it from the project() line of CMakeLists.txt.
#include "brim/version.h"

const char *brim_version(void) { return BRIM_VERSION; }
