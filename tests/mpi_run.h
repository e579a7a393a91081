// Runs a program under mpirun on this machine alone, for the tests of ranks over MPI.
#ifndef BRIM_TESTS_MPI_RUN_H_
#define BRIM_TESTS_MPI_RUN_H_

#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "process_run.h"

// True if MPI is here; *why gets the reason otherwise. With BRIM_NEED_MPI=1 its absence is a failure.
static inline bool mpi_is_here(const char *plugin, const char **why) {
  *why = NULL;
  if (!brim_fs_exists(plugin)) *why = "MPI (libopenmpi-dev) was not here when this was built";
  if (!*why) {
    static const char *const which[] = {"sh", "-c", "command -v mpirun", NULL};
    process_result found = process_run(which, NULL, 60000);
    if (found.exit_code != 0) *why = "mpirun (openmpi-bin) is not installed";
    brim_free(found.output);
  }
  const char *need = getenv("BRIM_NEED_MPI");
  if (*why && need && strcmp(need, "1") == 0) fail_msg("%s, and BRIM_NEED_MPI=1 asks for it", *why);
  return !*why;
}

// Puts the mpirun part of a command line into argv: more ranks than cores, as root too, no network. Settings that are
// no options go to the environment.
static inline size_t mpi_arguments(const char *ranks, const char **argv) {
  size_t n = 0;
  argv[n++] = "mpirun";
  argv[n++] = "-n";
  argv[n++] = ranks;
  argv[n++] = "--oversubscribe";
  argv[n++] = "--bind-to";
  argv[n++] = "none";
  if (geteuid() == 0) argv[n++] = "--allow-run-as-root";
  setenv("OMPI_MCA_btl", "self,vader", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  setenv("OMPI_MCA_plm_rsh_agent", "", 0);  // ssh is neither needed nor searched
  setenv("OMPI_MCA_oob_tcp_if_include", "lo", 0);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  setenv("PMIX_MCA_gds", "hash", 0);
  return n;
}

#endif  // BRIM_TESTS_MPI_RUN_H_
