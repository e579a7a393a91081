// The program lib/brim/brim-hdf5: calls libhdf5 on files that may be damaged, in a process of its own.
// Only brim starts it.
#include "data/hdf5/data_hdf5.h"

int main(int argc, char **argv) {
  static const brim_hdf5_job_row rows[] = {
      {"set", false, brim_hdf5_job_set},
      {"list", false, brim_pack_job_list},
      {"names", false, brim_pack_job_names},
      {"rows", true, brim_hdf5_job_rows},
      {0},
  };
  return brim_hdf5_helper_main(argc, argv, rows);
}
