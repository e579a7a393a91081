// The public C API of brim, all of it.
#ifndef BRIM_BRIM_H_
#define BRIM_BRIM_H_

#include "brim/config.h"
#include "brim/plan.h"
#include "brim/plugin.h"
#include "brim/record.h"
#include "brim/session.h"
#include "brim/source.h"
#include "brim/status.h"
#include "brim/version.h"

#endif  // BRIM_BRIM_H_
