// Inside the profile command: its state and the files it leaves.
#ifndef BRIM_CLI_PROFILE_H_
#define BRIM_CLI_PROFILE_H_

#include "cli/job/cli_memory.h"
#include "measure/measure.h"
#include "profile/profile_trace.h"
#include "ui/ui_profile.h"

#ifdef __cplusplus
extern "C" {
#endif

// Files, in the order in which they are listed.
typedef enum cli_profile_file {
  CLI_PROFILE_RECORD,    // profile.json
  CLI_PROFILE_PAGE,      // profile.html
  CLI_PROFILE_TRACE,     // trace.json.gz
  CLI_PROFILE_SNAPSHOT,  // of memory: only where it is asked for
  CLI_PROFILE_EVENTS,    // TensorBoard's folder: the same
  CLI_PROFILE_FILES
} cli_profile_file;

typedef struct cli_profile {
  brim_cli *cli;
  brim_cli_job *job;
  brim_setting setting;
  brim_time begun;  // measuring
  brim_machine_ceilings machine;
  brim_gpu_sampler *sampler;       // on a GPU; NULL = none
  char *paths[CLI_PROFILE_FILES];  // chosen before anything is measured; NULL = not asked for
  bool wrote[CLI_PROFILE_FILES];
  brim_fs_lockfile *lock;  // of the output folder
  brim_profile profile;
  brim_trace trace;
} cli_profile;

// Before anything is measured: where files go, and whether they can be written (BRIM_EINVAL when not).
brim_status brim_cli_profile_prepare(cli_profile *p);
// Afterwards. Tries all of them; returns the first failure (BRIM_EIO or BRIM_ENOMEM).
brim_status brim_cli_profile_files(cli_profile *p);
// The page alone where --html names it, from a record that was read; it may not take the record's place.
brim_status brim_cli_profile_page_again(cli_profile *p, const char *record);
void brim_cli_profile_files_free(cli_profile *p);
// {"record": path, ...} of those that were written; NULL without memory.
json_t *brim_cli_profile_files_json(const cli_profile *p);
// "profile    runs/profile-x/profile.json", a line each.
void brim_cli_profile_files_text(const cli_profile *p, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_PROFILE_H_
