// The helper program with a test filter and a job that ends as a test asks: by=N raises signal N, or exits with -N.
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5.h"
#include "hdf5_odd_filter.h"

static void end_by(const brim_hdf5_job *job) {
  int number = (int)brim_hdf5_job_int(job, "by");
  if (job->at[0] != 'a') snprintf(job->at, BRIM_HDF5_PROBE_ROOM, "other.h5");
  fprintf(stderr, "not to be seen");
  if (number < 0) _exit(-number);
  if (number) raise(number);
}

int main(int argc, char **argv) {
  static const brim_hdf5_job_row rows[] = {
      {"end", false, end_by},
      {"set", false, brim_hdf5_job_set},
      {"rows", true, brim_hdf5_job_rows},
      {0},
  };
  const char *version = getenv("BRIM_TEST_HELPER_VERSION");
  if (version) {  // plays another version of brim
    const off_t at = (off_t)offsetof(brim_hdf5_probe_room, version);
    return pwrite(3, version, strlen(version) + 1, at) > 0;
  }
  if (!odd_filter_register()) return 2;
  return brim_hdf5_helper_main(argc, argv, rows);
}
