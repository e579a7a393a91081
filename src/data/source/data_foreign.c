// Data of other programs that brim does not read: CSV, Parquet. Known by their names and first
// bytes, so that the message can say how to convert them. Called when no source fits a path.
#include <string.h>
#include <strings.h>

#include "data/source/data_source_int.h"

typedef struct foreign_kind {
  const char *ending;
  const char *magic;  // NULL = any content
  const char *name;
  const char *load;  // Python that makes x and y; %s is the file's name
} foreign_kind;

#define TABLE "x, y = a[:, :-1], a[:, -1]"

static const foreign_kind kinds[] = {
    {".csv", NULL, "CSV", "a = numpy.genfromtxt('%s', delimiter=',', skip_header=1); " TABLE},
    {".tsv", NULL, "TSV", "a = numpy.genfromtxt('%s', delimiter='\\t', skip_header=1); " TABLE},
    {".parquet", "PAR1", "Parquet", "import pandas; a = pandas.read_parquet('%s').values; " TABLE},
};

static const foreign_kind *kind_of_name(const char *name) {
  size_t n = strlen(name);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t k = strlen(kinds[i].ending);
    if (n > k && strcasecmp(name + n - k, kinds[i].ending) == 0) return &kinds[i];
  }
  return NULL;
}

static const foreign_kind *kind_of_file(const char *path) {
  const foreign_kind *kind = kind_of_name(brim_fs_basename(path));
  brim_data_file file;
  char got[8] = "";
  if (!kind || !kind->magic) return kind;
  size_t n = strlen(kind->magic);
  if (brim_data_file_open(path, &file)) {
    brim_status_clear();
    return NULL;
  }
  bool same =
      file.size >= n && !brim_data_file_read(&file, 0, got, n) && memcmp(got, kind->magic, n) == 0;
  brim_data_file_close(&file);
  brim_status_clear();
  return same ? kind : NULL;
}

static brim_status refuse(const char *path, const char *file, const foreign_kind *kind) {
  brim_str load;
  brim_str_init(&load);
  const char *gap = strstr(kind->load, "%s");
  brim_str_append_n(&load, kind->load, (size_t)(gap - kind->load));
  brim_str_append(&load, file);
  brim_str_append(&load, gap + 2);
  brim_status status = brim_str_status(&load);
  if (!status) {
    status = brim_fail(BRIM_EINVAL,
                       "%s: brim does not read %s files; convert it to HDF5 with Python: import "
                       "h5py, numpy; %s; f = h5py.File('data.h5', 'w'); f['x'] = x; f['y'] = y",
                       path, kind->name, load.data);
  }
  brim_str_deinit(&load);
  return status;
}

bool brim_source_is_foreign(const char *path) {
  return !brim_fs_is_dir(path) && kind_of_file(path) != NULL;
}

brim_status brim_data_refuse_foreign(const char *path) {
  if (!brim_fs_is_dir(path)) {
    const foreign_kind *kind = kind_of_file(path);
    return kind ? refuse(path, path, kind) : BRIM_OK;
  }
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    if (!kind_of_name(names[i])) continue;
    char *file = brim_fs_join(path, names[i]);
    if (!file) {
      status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
    } else if (kind_of_file(file)) {
      status = refuse(path, file, kind_of_file(file));
    }
    brim_free(file);
  }
  brim_fs_list_free(names, count);
  return status;
}
