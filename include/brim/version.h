// Which brim this is.
#ifndef BRIM_VERSION_H_
#define BRIM_VERSION_H_

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// "major.minor.patch" of the library that is linked.
BRIM_API const char *brim_version(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_VERSION_H_
