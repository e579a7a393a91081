// See lab_files.h.
#include "lab/lab_files.h"

#include <assert.h>
#include <string.h>

const brim_lab_file_kind brim_lab_file_kinds[] = {
    {"log", NULL, "attempt.log", true},
    {"stdout", NULL, "stdout.log", true},
    {"stderr", NULL, "stderr.log", true},
    {"checkpoint", "last.safetensors", "last.safetensors", false},
    {"best", "best.safetensors", "best.safetensors", false},
    {"weights", "model.safetensors", "model.safetensors", false},
    {"record", "log.jsonl", "log.jsonl", false},
    {"config", "config.yaml", "config.yaml", false},
    {NULL, NULL, NULL, false},
};
static_assert(sizeof brim_lab_file_kinds / sizeof *brim_lab_file_kinds == BRIM_LAB_FILE_KINDS + 1,
              "one row for each kind");

const brim_lab_file_kind *brim_lab_file_find(const char *name) {
  for (const brim_lab_file_kind *k = brim_lab_file_kinds; k->name; k++) {
    if (strcmp(k->name, name) == 0) return k;
  }
  return NULL;
}
