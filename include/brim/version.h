// The version of the linked library.
#ifndef BRIM_VERSION_H_
#define BRIM_VERSION_H_

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns "major.minor.patch".
BRIM_API const char *brim_version(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_VERSION_H_
