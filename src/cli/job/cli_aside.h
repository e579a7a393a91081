// Keeping the files of an earlier run. Callers: bench, profile.
#ifndef BRIM_CLI_ASIDE_H_
#define BRIM_CLI_ASIDE_H_

#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Renames the regular files among `paths` (NULL entries are skipped), all with the first free number:
// results.jsonl becomes results-1.jsonl. A number is free where no file, and none of this run's `outputs`
// (`output_count`, NULL entries are skipped), has such a name. `input` is copied instead, since the command still reads it;
// NULL = none. *kept: the first new name, for brim_free; NULL = nothing was there.
brim_status brim_cli_put_aside(const char *const *paths, size_t count, const char *const *outputs,
                               size_t output_count, const char *input, char **kept);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_ASIDE_H_
