// Values of options that several commands have.
#include "cli/job/cli_job_options.h"

const char *const brim_cli_precisions[] = {"fp32", "tf32", "bf16", "fp16", "auto", NULL};
const char *const brim_cli_backends[] = {"auto", "ref", "cpu", "cuda", NULL};
const char *const brim_cli_truths[] = {"true", "false", NULL};
const char *const brim_cli_resume_words[] = {"auto", NULL};
const char *const brim_cli_workers_aliases[] = {"workers", NULL};
