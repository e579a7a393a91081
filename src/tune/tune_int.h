// Inside the tune room.
#ifndef BRIM_TUNE_INT_H_
#define BRIM_TUNE_INT_H_

#include <stdlib.h>

#include "tune/tune.h"

// An interval wider than this factor says nothing.
#define BRIM_TUNE_WIDEST 100.0

#endif  // BRIM_TUNE_INT_H_
