// Reading the experiments of a place, line by line.
#include "lab/wire/lab_wire_records.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_link.h"

// True if the first line of the file is an experiment. Reads only the start of the line, which metrics
// can make long.
static bool is_export(const char *path) {
  static const char with_space[] = "\"schema\": \"" BRIM_LAB_SCHEMA "\"";
  static const char without_space[] = "\"schema\":\"" BRIM_LAB_SCHEMA "\"";
  char start[512];
  struct stat about;
  if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  FILE *file = fopen(path, "re");
  if (!file) return false;
  const size_t n = fread(start, 1, sizeof start - 1, file);
  fclose(file);
  start[n] = '\0';
  return strstr(start, with_space) || strstr(start, without_space);
}

brim_lab_kind brim_lab_kind_of(const char *place) {
  if (brim_store_is_url(place)) return BRIM_LAB_KIND_STORE;
  if (!brim_fs_is_dir(place)) return is_export(place) ? BRIM_LAB_KIND_EXPORT : BRIM_LAB_KIND_NONE;
  char *file = brim_fs_join(place, BRIM_STORE_FILE);
  const bool there = file && brim_fs_exists(file);
  brim_free(file);
  return there ? BRIM_LAB_KIND_STORE : BRIM_LAB_KIND_NONE;
}

const char *const *brim_lab_ignored_keys(void) {
  static const char *const keys[] = {
      "name",     "project",        "output_dir",      "device", "gpus",  "nodes",   "tags",
      "priority", "per_gpu",        "retries",         "store",  "seeds", "samples", "grid_seed",
      "log.",     "checkpoint.dir", "training.resume", NULL};
  return keys;
}

typedef struct reading {
  brim_lab_reader *reader;
  const char *place;
  int line;
} reading;

static brim_status add_line(void *ctx, const char *line) {
  reading *r = ctx;
  json_t *value = NULL;
  BRIM_TRY(brim_json_parse(line, strlen(line), r->place, &value));
  brim_status status = brim_lab_reader_add(r->reader, value, r->place, ++r->line);
  json_decref(value);
  return status;
}

static brim_status add_grid(void *ctx, const brim_store_grid_row *row) {
  reading *r = ctx;
  const brim_lab_grid_row grid = {row->grid.id, row->grid.name, row->grid.version, row->created,
                                  row->points};
  return brim_lab_reader_grid(r->reader, &grid);
}

static brim_status read_store(const char *place, brim_lab_reader *reader) {
  const brim_lab_link_options options = {.readonly = true};
  brim_lab_link *link = NULL;
  BRIM_TRY(brim_lab_link_open(place, &options, &link));
  reading r = {reader, BRIM_STORE_FILE, 0};
  brim_status status = brim_lab_grids(link, add_grid, &r);
  if (!status) status = brim_lab_export(link, NULL, add_line, &r);
  brim_lab_link_close(link);
  return status;
}

brim_status brim_lab_records_read(const char *place, brim_lab_reader *reader, bool *torn) {
  if (torn) *torn = false;
  switch (brim_lab_kind_of(place)) {
    case BRIM_LAB_KIND_STORE:
      return read_store(place, reader);
    case BRIM_LAB_KIND_EXPORT:
      return brim_lab_reader_file(reader, place, torn);
    default:
      return brim_fail(BRIM_ENOENT, "%s holds no experiments", place);
  }
}
