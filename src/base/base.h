// Includes all headers of the base room.
#ifndef BRIM_BASE_H_
#define BRIM_BASE_H_

#include "base/base_alloc.h"
#include "base/base_child.h"
#include "base/base_clock.h"
#include "base/base_dl.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_log.h"
#include "base/base_machine.h"
#include "base/base_map.h"
#include "base/base_msg.h"
#include "base/base_option.h"
#include "base/base_sha256.h"
#include "base/base_span.h"
#include "base/base_stats.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "base/base_thread.h"

#endif  // BRIM_BASE_H_
